//! Which process a handle belongs to.
//!
//! 1. `fork` copies memory, and so every handle, but no thread: locks stay taken that other threads had, and nothing in the child may write to
//!    files that the parent has open. A handle remembers its [`Process`] and asks [`Process::is_current`] before it touches anything.
//! 2. That is one load: a handler of the C library counts up in each child. A child that was made by the bare system call, without the C library, is
//!    not noticed.

use crate::os::sys;

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    forks: u64,
}

impl Process {
    /// This one.
    #[must_use]
    pub fn current() -> Self {
        sys::count_forks();
        Self { forks: sys::forks() }
    }

    /// Whether it is still this one: false in a child that was forked since.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        self.forks == sys::forks()
    }
}
