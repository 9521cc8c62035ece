//! Where one thread waits for one answer.
//!
//! 1. The answer is given once: the first of grant, deadlock, interrupt and time-out settles it; the others
//!    are told that they came too late.
//! 2. No wake-up is lost: the answer is written and read under the mutex that the wait releases.
//! 3. A wait that no answer can end any more, because the database has stopped, ends within [`PATIENCE`].
//! 4. Settling and waking are two steps, so that the wake-up can come after other locks are released. The
//!    thread that settles must also wake.
//!
//! `super::sync` names the mutex and the condition variable: the tests run this same file with those of a
//! model checker.

use super::sync::{Condvar, Instant, Mutex, wait_until};
use crate::format::TxnId;
use std::time::Duration;

/// How often a waiting thread checks that the database has not stopped.
const PATIENCE: Duration = Duration::from_millis(250);

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The lock is held now.
    Granted,
    /// Chosen as the victim of a deadlock, in which it waited for this transaction.
    DeadlockVictim { waits_for: TxnId },
    /// No answer came in time, or the database has stopped.
    TimedOut,
    /// Another thread interrupted the wait.
    Interrupted,
}

#[derive(Debug)]
pub(super) struct WaitCell {
    outcome: Mutex<Option<Outcome>>,
    settled: Condvar,
}

impl WaitCell {
    pub(super) fn new() -> Self {
        Self { outcome: Mutex::new(None), settled: Condvar::new() }
    }

    /// Sets the answer. Returns `false` if there is one already.
    #[must_use]
    pub(super) fn settle(&self, outcome: Outcome) -> bool {
        let mut settled = self.outcome.lock();
        if settled.is_some() {
            return false;
        }
        *settled = Some(outcome);
        true
    }

    /// Wakes the waiting thread.
    pub(super) fn wake(&self) {
        self.settled.notify_one();
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.answer().is_none()
    }

    /// The answer, if there is one.
    pub(super) fn answer(&self) -> Option<Outcome> {
        *self.outcome.lock()
    }

    /// Blocks until there is an answer. Answers [`Outcome::TimedOut`] itself at the deadline, and when `stopped`.
    pub(super) fn wait(&self, deadline: Instant, stopped: impl Fn() -> bool) -> Outcome {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(settled) = *outcome {
                return settled;
            }
            let check = deadline.min(Instant::now() + PATIENCE);
            let (guard, late) = wait_until(&self.settled, outcome, check);
            outcome = guard;
            if late && outcome.is_none() && (check == deadline || stopped()) {
                *outcome = Some(Outcome::TimedOut);
            }
        }
    }
}
