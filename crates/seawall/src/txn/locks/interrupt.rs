//! Breaking a transaction's wait or scan from another thread.
//!
//! 1. `pending` changes, and the cell of a wait is entered and taken out, under one mutex. An interrupt that comes before the wait is entered has the
//!    wait answered as soon as it is; one that comes after finds the cell. None is lost.
//! 2. An interrupt stays pending until its transaction clears it. Cleared before it comes, or raised again: only the state now counts.
//! 3. A wait that is answered otherwise stays answered so: the interrupt meets the next one.
//! 4. Mutexes: this one, then that of the wait cell. No other is taken under it, and it is taken with none held.
//!
//! `super::sync` names the primitives: the tests run this same file under a model checker's.

use super::cell::{Outcome, WaitCell};
use super::sync::{Arc, AtomicBool, Mutex, Ordering};

/// What a transaction is interrupted by.
#[derive(Debug)]
pub struct Interrupt {
    /// Written with the mutex held.
    pending: AtomicBool,
    /// Where the transaction waits.
    waiting: Mutex<Option<Arc<WaitCell>>>,
}

impl Default for Interrupt {
    fn default() -> Self {
        Self { pending: AtomicBool::new(false), waiting: Mutex::new(None) }
    }
}

impl Interrupt {
    /// Breaks the transaction's wait, if it waits, and is pending from now on.
    pub fn raise(&self) {
        let waiting = self.waiting.lock();
        self.pending.store(true, Ordering::Release);
        if let Some(cell) = &*waiting {
            if cell.settle(Outcome::Interrupted) {
                cell.wake();
            }
        }
    }

    /// Is not pending any more.
    pub fn clear(&self) {
        let _waiting = self.waiting.lock();
        self.pending.store(false, Ordering::Release);
    }

    /// Whether it was raised and not cleared.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// The transaction is about to wait here: for nothing, if the interrupt is pending.
    pub(super) fn enter(&self, cell: &Arc<WaitCell>) {
        let mut waiting = self.waiting.lock();
        *waiting = Some(cell.clone());
        if self.is_pending() && cell.settle(Outcome::Interrupted) {
            cell.wake();
        }
    }

    /// It has an answer.
    pub(super) fn leave(&self) {
        *self.waiting.lock() = None;
    }
}
