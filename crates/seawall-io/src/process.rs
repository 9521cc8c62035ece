//! Which process a handle belongs to.
//!
//! 1. `fork` copies memory, and so every handle, but no thread: locks stay taken that other threads had, and nothing in the child may write to
//!    files that the parent has open. A handle remembers its [`Process`] and asks [`Process::is_current`] before it touches anything.
//! 2. That is one load: a handler of the C library counts up in each child. A child that was made by the bare system call, without the C library, is
//!    not noticed.
//! 3. The child of a process that held an [`InUse`] holds none, ever. Locks have queues of waiting threads in memory that all of them share. The
//!    copies of those threads never leave the queues, and a new thread of the child gets the memory of one of them: it would not be woken.

use crate::os::sys;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// A [`Process`] whose handles can be given up as a whole: then it is open in no process any more. Asking is as cheap as for a `Process`.
///
/// ```
/// let gate = seawall_io::ProcessGate::new(seawall_io::Process::current());
/// assert!(gate.is_open());
/// gate.close();
/// assert!(!gate.is_open() && gate.is_closed());
/// ```
#[derive(Debug)]
pub struct ProcessGate(AtomicU64);

/// No process has forked so often.
const CLOSED: u64 = u64::MAX;

impl ProcessGate {
    /// Open in this process.
    #[must_use]
    pub fn new(process: Process) -> Self {
        Self(AtomicU64::new(process.forks))
    }

    /// Whether it is open, and still in its process.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) == sys::forks()
    }

    /// Gives it up, for good.
    pub fn close(&self) {
        self.0.store(CLOSED, Ordering::SeqCst);
    }

    /// Whether it was given up.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) == CLOSED
    }
}

/// Something whose locks several threads of this process wait for, from its making until it is dropped.
#[derive(Debug)]
pub struct InUse(Process);

impl InUse {
    /// `None` in a process that was forked from one that held one.
    #[must_use]
    pub fn new() -> Option<Self> {
        let process = Process::current();
        if sys::FORKED_IN_USE.load(Ordering::Relaxed) {
            return None;
        }
        sys::IN_USE.fetch_add(1, Ordering::Relaxed);
        Some(Self(process))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.0.is_current() {
            sys::IN_USE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
