//! Which thread fetches completions from the kernel, and how the others wait.
//!
//! 1. At most one thread fetches at a time; every other waiter sleeps on the condition variable.
//! 2. A thread that has fetched lets another thread fetch and wakes the sleepers before it checks its own
//!    ticket again, so a completed request never waits for a thread that needs a different one.

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

/// What a thread that waits for a completion does next.
pub(super) enum NextStep {
    /// Its condition holds.
    Satisfied,
    /// This thread fetches now; it must call [`Waiting::fetched`].
    Fetch,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until `satisfied`, or until no other thread is fetching and this thread must. With `any`, it
    /// also returns when another thread has fetched.
    pub(super) fn wait_or_fetch(&self, any: bool, satisfied: impl Fn() -> bool) -> NextStep {
        let mut state = self.state();
        let epoch = state.epoch;
        loop {
            if satisfied() || (any && state.epoch != epoch) {
                return NextStep::Satisfied;
            }
            if !state.fetching {
                state.fetching = true;
                return NextStep::Fetch;
            }
            state.sleepers += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
    }

    /// Makes this thread the one that fetches, if there is none. Returns whether it is.
    pub(super) fn try_fetch(&self) -> bool {
        let mut state = self.state();
        !std::mem::replace(&mut state.fetching, true)
    }

    /// Ends fetching by this thread and wakes the sleepers.
    pub(super) fn fetched(&self) {
        let mut state = self.state();
        state.fetching = false;
        state.epoch += 1;
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// Reports a completion that was not fetched (a worker of the pool finished).
    pub(super) fn completed(&self) {
        let mut state = self.state();
        state.epoch += 1;
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// Sleeps until `satisfied`; with `any`, also until anything completes. No thread fetches: the workers of
    /// a pool complete requests themselves.
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
