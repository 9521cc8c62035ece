//! Which process a handle belongs to.
//!
//! 1. `fork` copies memory, and so every handle, but not the other threads: locks held by other threads stay
//!    locked in the child, and the child must not write to files that the parent has open. A handle remembers
//!    its [`Process`] and checks [`Process::is_current`] before it does anything.
//! 2. The check is one load: a fork handler of the C library increments a counter in each child. A child made
//!    by the bare system call, without the C library, is not noticed.
//! 3. The child of a process that held an [`InUse`] can never create one. Locks keep queues of waiting
//!    threads in shared memory of the process. In the child, the queue entries of those threads never leave
//!    the queues. A new thread of the child can be given the memory of such an entry, and would then never be
//!    woken.

use crate::os::sys;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    forks: u64,
}

impl Process {
    /// Returns the current process.
    #[must_use]
    pub fn current() -> Self {
        sys::count_forks();
        Self { forks: sys::forks() }
    }

    /// Returns whether this is still the same process: false in a child forked since.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        self.forks == sys::forks()
    }
}

/// Like a [`Process`], but it can be closed, which invalidates all its handles at once: a closed gate is open
/// in no process. The check is as cheap as for a `Process`.
///
/// ```
/// let gate = seawall_io::ProcessGate::new(seawall_io::Process::current());
/// assert!(gate.is_open());
/// gate.close();
/// assert!(!gate.is_open() && gate.is_closed());
/// ```
#[derive(Debug)]
pub struct ProcessGate(AtomicU64);

/// No real process reaches this number of forks.
const CLOSED: u64 = u64::MAX;

impl ProcessGate {
    /// Creates a gate that is open in `process`.
    #[must_use]
    pub fn new(process: Process) -> Self {
        Self(AtomicU64::new(process.forks))
    }

    /// Returns whether the gate is open and belongs to the current process.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) == sys::forks()
    }

    /// Closes the gate permanently.
    pub fn close(&self) {
        self.0.store(CLOSED, Ordering::SeqCst);
    }

    /// Returns whether the gate was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) == CLOSED
    }
}

/// Marks that several threads of this process can wait for locks, from creation until drop.
#[derive(Debug)]
pub struct InUse(Process);

impl InUse {
    /// Creates a mark; returns `None` in a process forked from one that held an `InUse`.
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
