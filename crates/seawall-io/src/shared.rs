//! Memory that outlives the process: a file's pages, mapped.
//!
//! This is one of the modules in which `unsafe` is allowed.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

/// The mapped bytes of a file: see [`Disk::map_shared`](crate::Disk::map_shared). Access is through the pointer: the
/// owner decides which code may access which bytes, and when. The memory is unmapped when this value is dropped.
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    _keeper: Box<dyn Any + Send + Sync>,
}

// SAFETY: only the pointer and the length are accessible through it; every access is the owner's own unsafe code.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Wraps the memory at `start`, which `keeper` keeps mapped.
    ///
    /// # Safety
    /// `len` bytes from `start` are initialised, may be read and written, and stay so until `keeper` is dropped.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, len: usize, keeper: Box<dyn Any + Send + Sync>) -> Self {
        Self { start, len, _keeper: keeper }
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length, bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.len
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.len)
    }
}
