//! Interrupts a transaction's wait or scan from another thread.
//!
//! 1. `pending` changes, and the cell of a wait is entered and removed, under one mutex. A wait that enters
//!    after the interrupt is answered at once; an interrupt that comes after the wait has entered finds its
//!    cell. None is lost.
//! 2. An interrupt stays pending until its transaction clears it. Interrupts are not counted: only the
//!    current state matters.
//! 3. A wait that already has another answer keeps it: the interrupt ends the next one.
//! 4. Mutexes: this one, then that of the wait cell. No other is taken under it, and it is taken with none
//!    held.
//!
//! `super::sync` names the primitives: the tests run this same file with those of a model checker.

use super::cell::{Outcome, WaitCell};
use super::sync::{Arc, AtomicBool, Mutex, Ordering};

/// The interrupt of one transaction.
#[derive(Debug)]
pub struct Interrupt {
    /// Written with the mutex held.
    pending: AtomicBool,
    /// The wait cell of the transaction, while it waits.
    waiting: Mutex<Option<Arc<WaitCell>>>,
}

impl Default for Interrupt {
    fn default() -> Self {
        Self { pending: AtomicBool::new(false), waiting: Mutex::new(None) }
    }
}

impl Interrupt {
    /// Ends the transaction's wait, if it waits, and stays pending.
    pub fn raise(&self) {
        let waiting = self.waiting.lock();
        self.pending.store(true, Ordering::Release);
        if let Some(cell) = &*waiting {
            if cell.settle(Outcome::Interrupted) {
                cell.wake();
            }
        }
    }

    /// Ends the pending state.
    pub fn clear(&self) {
        let _waiting = self.waiting.lock();
        self.pending.store(false, Ordering::Release);
    }

    /// Whether it was raised and not cleared.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Called when the transaction is about to wait in `cell`. A pending interrupt answers it at once.
    pub(super) fn enter(&self, cell: &Arc<WaitCell>) {
        let mut waiting = self.waiting.lock();
        *waiting = Some(cell.clone());
        if self.is_pending() && cell.settle(Outcome::Interrupted) {
            cell.wake();
        }
    }

    /// Called when the wait has its answer.
    pub(super) fn leave(&self) {
        *self.waiting.lock() = None;
    }
}
