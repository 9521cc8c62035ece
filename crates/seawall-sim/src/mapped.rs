//! Files mapped as shared memory.
//!
//! 1. What is stored to a mapping is in the page cache at once: a crash of the process keeps it. The disk looks at the
//!    memory when it is forked, when it crashes and when the mapping has ended, and takes what has changed since as
//!    buffered writes of pages: a power cut keeps any of them, torn.
//! 2. After a crash the memory belongs to the dead: what is stored to it changes nothing.
//! 3. Nothing stores to the memory while the disk looks at it: crashes fall between two steps of the code under test.
//!
//! This is the module of this crate in which `unsafe` is allowed.
#![allow(unsafe_code)]

use seawall_io::{AlignedBuf, SharedMemory};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Memory inside `_owner`, which is not used again: all access is through the pointer.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    _owner: AlignedBuf,
}

// SAFETY: the memory is owned; who may touch it when is decided by the user of `SharedMemory` and by (3).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A mapping, as the disk knows it.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) inode: u64,
    memory: Arc<Memory>,
    /// What the file holds of it.
    known: Vec<u8>,
}

impl Mapped {
    /// A mapping of a file that holds `bytes`, and the memory for its user.
    pub(crate) fn new(inode: u64, bytes: Vec<u8>) -> (Self, SharedMemory) {
        let mut owner = AlignedBuf::copy_of(&bytes);
        let start = NonNull::new(owner.as_mut_ptr()).expect("an allocation is not at address zero");
        let memory = Arc::new(Memory { start, _owner: owner });
        // SAFETY: initialised bytes on the heap, which stay as long as the keeper keeps their owner.
        let shared = unsafe { SharedMemory::new(start, bytes.len(), Box::new(memory.clone())) };
        (Self { inode, memory, known: bytes }, shared)
    }

    /// Whether its user has dropped it.
    pub(crate) fn has_ended(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    /// The pages that have changed since the last call, with their offsets, bytes.
    pub(crate) fn changed(&mut self) -> Vec<(u64, Vec<u8>)> {
        // SAFETY: as many bytes as there were at first, initialised; nothing stores to them meanwhile (3).
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
