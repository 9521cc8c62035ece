//! Who waits for completions, and who fetches them from the kernel.
//!
//! 1. At most one thread fetches at a time; every other waiter sleeps on the condition variable.
//! 2. Whoever fetched ends its turn before it looks at its own ticket again, and wakes the others, so that a completion is never
//!    stuck behind a thread that waits for something else.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    fetching: bool,
    sleepers: u32,
    epoch: u64,
}

/// What a thread that wants a completion has to do now.
pub(super) enum Turn {
    /// What it waited for has happened.
    Satisfied,
    /// It is this thread's turn to fetch; it must call [`Waiting::fetched`].
    Fetch,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until `satisfied`, or until it is this thread's turn to fetch. With `any`, the end of anybody's fetch satisfies.
    pub(super) fn turn(&self, any: bool, satisfied: impl Fn() -> bool) -> Turn {
        let mut state = self.state();
        let epoch = state.epoch;
        loop {
            if satisfied() || (any && state.epoch != epoch) {
                return Turn::Satisfied;
            }
            if !state.fetching {
                state.fetching = true;
                return Turn::Fetch;
            }
            state.sleepers += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
    }

    /// Takes the turn to fetch if nobody has it.
    pub(super) fn try_turn(&self) -> bool {
        let mut state = self.state();
        !std::mem::replace(&mut state.fetching, true)
    }

    /// Ends this thread's turn.
    pub(super) fn fetched(&self) {
        let mut state = self.state();
        state.fetching = false;
        state.epoch += 1;
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// Something completed without anybody's turn (a pool's worker finished).
    pub(super) fn completed(&self) {
        let mut state = self.state();
        state.epoch += 1;
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// Sleeps until `satisfied` or until anything completes; nobody fetches (a pool's workers complete by themselves).
    pub(super) fn sleep_until(&self, any: bool, satisfied: impl Fn() -> bool) {
        let mut state = self.state();
        let epoch = state.epoch;
        while !(satisfied() || (any && state.epoch != epoch)) {
            state.sleepers += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
    }
}
