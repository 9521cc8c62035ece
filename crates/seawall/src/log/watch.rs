//! Callbacks that are called when the log is durable up to a position.
//!
//! 1. A callback is called exactly once: when its position is durable, or when that can no longer happen (the database
//!    is poisoned, or was closed before). At that moment no mutex is held and no group is being written.
//! 2. Leaders only check `lowest`, and wake the thread that calls the callbacks. A missed wake-up, or a database
//!    poisoned by something other than the log, is noticed after [`PATIENCE`].
//! 3. A callback that panics does not stop the others.

use super::Log;
use crate::counted::Mutex;
use crate::error::{Error, Result};
use crate::format::Lsn;
use parking_lot::Condvar;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often the thread that calls the callbacks checks by itself, while a callback waits.
const PATIENCE: Duration = Duration::from_millis(20);
/// The value of `lowest` when no callback waits.
const NEVER: u64 = u64::MAX;

/// A callback.
pub type OnDurable = Box<dyn FnOnce(Result<Lsn>) + Send>;

#[derive(Debug)]
pub(super) struct Watch {
    /// The lowest position that a callback waits for.
    lowest: AtomicU64,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// By position, then in order of registration.
    waiting: BTreeMap<(u64, u64), OnDurable>,
    asked: u64,
    ended: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).field("ended", &self.ended).finish()
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self { lowest: AtomicU64::new(NEVER), state: Mutex::default(), wake: Condvar::new() }
    }
}

impl Watch {
    /// Wakes that thread if a callback is due. The leader calls this after each group, when it has put its state back.
    #[inline]
    pub(super) fn look(&self, durable: u64, poisoned: bool) {
        if self.lowest.load(Ordering::SeqCst) <= durable || poisoned {
            self.notify();
        }
    }

    #[cold]
    fn notify(&self) {
        drop(self.state.lock());
        self.wake.notify_all();
    }
}

impl State {
    /// Takes out the callbacks up to `durable`, or all of them.
    fn due(&mut self, durable: u64, all: bool) -> BTreeMap<(u64, u64), OnDurable> {
        if all {
            return std::mem::take(&mut self.waiting);
        }
        let later = self.waiting.split_off(&(durable.saturating_add(1), 0));
        std::mem::replace(&mut self.waiting, later)
    }

    fn lowest(&self) -> u64 {
        self.waiting.keys().next().map_or(NEVER, |(lsn, _)| *lsn)
    }
}

impl Log {
    /// Registers `call` for when everything before `lsn` is durable. [`Log::tell`] or [`Log::tell_until_ended`] calls
    /// it, on the thread that runs either. Flushes nothing.
    ///
    /// # Errors
    /// [`Error::Usage`] when `lsn` lies beyond the log, or the log is closed.
    pub fn on_durable(&self, lsn: Lsn, call: OnDurable) -> Result<()> {
        if lsn > self.head() {
            return Err(Error::Usage(format!("{lsn} lies beyond the log, which ends at {}", self.head())));
        }
        {
            let mut state = self.watch.state.lock();
            if state.ended {
                return Err(Error::Usage("the database is closed".into()));
            }
            state.asked += 1;
            let order = state.asked;
            state.waiting.insert((lsn.0, order), call);
            self.watch.lowest.store(state.lowest(), Ordering::SeqCst);
        }
        self.watch.wake.notify_all();
        Ok(())
    }

    /// Calls the callbacks whose position is durable, or all if none can become durable any more. Returns
    /// whether there were any.
    pub fn tell(&self) -> bool {
        self.tell_those(None)
    }

    fn tell_those(&self, ended: Option<&Error>) -> bool {
        // Read first: a position that is neither durable nor poisoned now is checked again later.
        let (poisoned, durable) = (self.health.check().err(), self.durable().0);
        let due = {
            let mut state = self.watch.state.lock();
            state.ended |= ended.is_some();
            let all = poisoned.is_some() || state.ended;
            let due = state.due(durable, all);
            self.watch.lowest.store(state.lowest(), Ordering::SeqCst);
            due
        };
        let any = !due.is_empty();
        for ((lsn, _), call) in due {
            let outcome = if lsn <= durable {
                Ok(self.durable_whole())
            } else {
                Err(poisoned.clone().or_else(|| ended.cloned()).unwrap_or_else(closed))
            };
            // (3) The panic hook has reported it.
            drop(catch_unwind(AssertUnwindSafe(|| call(outcome))));
        }
        any
    }

    /// Calls callbacks until [`Log::end_watch`], then the remaining ones.
    pub fn tell_until_ended(&self) {
        loop {
            if self.tell() {
                continue;
            }
            let mut state = self.watch.state.lock();
            if state.ended && state.waiting.is_empty() {
                return;
            }
            if state.ended || state.lowest() <= self.durable().0 {
                continue;
            }
            if state.waiting.is_empty() {
                self.watch.wake.wait(&mut state);
            } else {
                self.watch.wake.wait_for(&mut state, PATIENCE);
            }
        }
    }

    /// Calls the remaining callbacks: the log is closed, and nothing becomes durable any more.
    pub fn end_watch(&self, why: Option<&Error>) {
        let closed = closed();
        self.tell_those(Some(why.unwrap_or(&closed)));
        self.watch.wake.notify_all();
    }
}

fn closed() -> Error {
    Error::Usage("the database was closed before this was durable".into())
}
