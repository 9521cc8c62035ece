//! Requests in flight.
//!
//! 1. A request takes effect when it is due on the virtual clock, not when it is submitted: random delays
//!    reorder requests.
//! 2. [`Request::attempt_ended`] decides the outcome of an attempt, as in every other backend; the rest of a
//!    short attempt is due later.
//! 3. A request without progress in [`ATTEMPTS_MAX`] attempts ends with its last errno: a fault that always
//!    interrupts must not hang the run.
//! 4. A finished request waits in `ready` until a thread drives completions.

use seawall_io::{Completer, Completion, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// Attempts in a row that may end without progress.
pub(crate) const ATTEMPTS_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) request: Request,
    pub(crate) completer: Completer,
    /// Attempts in a row that ended without progress.
    pub(crate) futile: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// By due time, then by order of submission.
    in_flight: BTreeMap<(Duration, u64), InFlight>,
    submitted: u64,
    pub(crate) ready: Vec<(Completer, Completion)>,
}

impl Queue {
    pub(crate) fn push(&mut self, due: Duration, one: InFlight) {
        self.submitted += 1;
        self.in_flight.insert((due, self.submitted), one);
    }

    /// Returns when the next request is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.in_flight.first_key_value().map(|((due, _), _)| *due)
    }

    pub(crate) fn pop_due(&mut self, now: Duration) -> Option<InFlight> {
        (self.next_due()? <= now).then(|| self.in_flight.pop_first().map(|(_, one)| one))?
    }

    /// Removes all requests in flight and returns them in due order.
    pub(crate) fn drain(&mut self) -> Vec<InFlight> {
        std::mem::take(&mut self.in_flight).into_values().collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }
}
