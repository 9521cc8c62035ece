//! Files mapped as shared memory.
//!
//! 1. A store to a mapping is in the page cache at once: it survives a crash of the process. The disk reads the memory
//!    when it is forked and when it crashes. It takes the pages that have changed as buffered writes: a power cut
//!    keeps any of them, torn.
//! 2. After a crash the memory belongs to a dead process: a store to it changes nothing.
//! 3. Nothing stores to the memory while the disk reads it: crashes fall between two steps of the code under test.
//!
//! This is the module of this crate in which `unsafe` is allowed.
#![allow(unsafe_code)]

use seawall_io::{AlignedBuf, SharedMemory};
use std::ptr::NonNull;
use std::sync::Arc;

/// Size of a page, bytes.
const PAGE: usize = 4096;

/// Memory that belongs to `_owner`. All access is through the pointer, none through `_owner`.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    _owner: AlignedBuf,
}

// SAFETY: the memory is owned; the user of `SharedMemory` and (3) decide which code may access it, and when.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The disk's side of a mapping.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) inode: u64,
    memory: Arc<Memory>,
    /// The bytes that the file has taken from it.
    known: Vec<u8>,
}

impl Mapped {
    /// Maps a file that holds `bytes`. Returns the mapping, and the memory for its user.
    pub(crate) fn new(inode: u64, bytes: Vec<u8>) -> (Self, SharedMemory) {
        let mut owner = AlignedBuf::copy_of(&bytes);
        let start = NonNull::new(owner.as_mut_ptr()).expect("an allocation is not at address zero");
        let memory = Arc::new(Memory { start, _owner: owner });
        // SAFETY: initialised bytes on the heap, which stay allocated as long as the keeper holds their owner.
        let shared = unsafe { SharedMemory::new(start, bytes.len(), Box::new(memory.clone())) };
        (Self { inode, memory, known: bytes }, shared)
    }

    /// Returns whether the user has dropped the memory.
    pub(crate) fn has_ended(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    /// Returns the pages that have changed since the last call, with their offsets, bytes.
    pub(crate) fn changed(&mut self) -> Vec<(u64, Vec<u8>)> {
        // SAFETY: the length has not changed since `new`, the bytes are initialised, and nothing stores to them
        // meanwhile (3).
        let now = unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr(), self.known.len()) };
        let mut changed = Vec::new();
        for (at, (new, old)) in now.chunks(PAGE).zip(self.known.chunks_mut(PAGE)).enumerate() {
            if new != old {
                old.copy_from_slice(new);
                changed.push(((at * PAGE) as u64, new.to_vec()));
            }
        }
        changed
    }
}
