//! Pauses in long work, so that concurrent writers keep most of their rate.
//!
//! 1. The writers' rate is measured while the work runs and while it pauses. A pause is long enough for the mean rate
//!    to reach the requested share of the writers' rate during pauses.
//! 2. Pauses change only the timing: the result is the same without them. Without changes by writers there are
//!    no pauses.
//! 3. The work takes no latch and no lock for a pause.
//! 4. The work is asked whether it is to go on before each pause, and ends with the error at its next check.
//! 5. A pause is bounded: the work runs for at least a tenth of the time. Where it catches up with the
//!    writers, it stays twice as fast as they are.

use crate::error::{Error, Result};
use seawall_io::Clock;
use std::time::Duration;

/// Steps between two readings of the clock.
const STEPS: u32 = 256;
/// The least working time between two pauses, and the least pause when the writers' rate must be measured. In a shorter
/// pause the disk is still working on earlier prefetches, and the writers have not yet reached the rate that they have
/// alone.
const SLICE: Duration = Duration::from_millis(10);
/// The longest pause, as a multiple of the work before it.
const PAUSE_FACTOR: f64 = 9.0;
/// Slices after which there is a short pause even if none is due: to measure the writers' rate.
const PROBE_EVERY: u32 = 16;
/// The weight of a new measurement against the earlier ones.
const WEIGHT: f64 = 0.25;

/// Paces the work of one thread.
pub(super) struct Pace<'p> {
    clock: &'p dyn Clock,
    /// The number of changes by writers so far.
    changes: Box<dyn Fn() -> u64 + 'p>,
    /// The share of their rate that writers keep; 0: no pauses.
    keep: f64,
    /// Steps since the last reading of the clock.
    steps: u32,
    /// Changes processed since the last pause.
    worth: f64,
    began: Duration,
    changes_then: u64,
    /// Changes a second while it works, and while it pauses; `None` before the first.
    working: Option<f64>,
    pausing: Option<f64>,
    slices: u32,
    /// Looked at as often as the clock: whether the work is to go on.
    goes_on: Box<dyn Fn() -> Result<()> + 'p>,
    stopped: Option<Error>,
}

/// Returns the length of the pause after `worked` seconds of work, in seconds; `working` and `pausing` are the
/// writers' rates during work and during a pause.
fn pause_for(worked: f64, working: f64, pausing: f64, keep: f64) -> f64 {
    let due = worked * (keep * pausing - working) / (pausing * (1.0 - keep)).max(1e-9);
    due.clamp(0.0, PAUSE_FACTOR * worked)
}

fn mean(before: Option<f64>, now: f64) -> Option<f64> {
    Some(before.map_or(now, |before| before + WEIGHT * (now - before)))
}

impl<'p> Pace<'p> {
    /// Paces work so that writers keep `keep_percent` of their rate, at most 95.
    pub(super) fn new(clock: &'p dyn Clock, keep_percent: u32, changes: impl Fn() -> u64 + 'p) -> Self {
        let (began, changes_then) = (clock.now(), changes());
        Self {
            clock,
            changes: Box::new(changes),
            keep: f64::from(keep_percent.min(95)) / 100.0,
            steps: 0,
            worth: 0.0,
            began,
            changes_then,
            working: None,
            pausing: None,
            slices: 0,
            goes_on: Box::new(|| Ok(())),
            stopped: None,
        }
    }

    /// Makes the work end with the error of `goes_on` soon after that returns one.
    pub(super) fn while_it(self, goes_on: impl Fn() -> Result<()> + 'p) -> Self {
        Self { goes_on: Box::new(goes_on), ..self }
    }

    /// Returns the error if the work is not to go on.
    pub(super) fn check(&mut self) -> Result<()> {
        self.stopped.take().map_or(Ok(()), Err)
    }

    /// Counts one small step as done.
    #[inline]
    pub(super) fn step(&mut self) {
        self.steps += 1;
        if self.steps >= STEPS {
            self.steps = 0;
            self.look(None);
        }
    }

    /// Counts `part`, between 0 and 1, of the work for one change as done.
    pub(super) fn caught_up(&mut self, part: f64) {
        self.worth += part;
        self.steps += 1;
        if self.steps >= STEPS {
            self.steps = 0;
            self.look(Some(self.worth));
        }
    }

    fn look(&mut self, caught_up: Option<f64>) {
        self.stopped = (self.goes_on)().err();
        if self.stopped.is_some() {
            return;
        }
        if self.keep == 0.0 {
            return;
        }
        let (now, changes) = (self.clock.now(), (self.changes)());
        let worked = now.saturating_sub(self.began);
        if worked < SLICE {
            return;
        }
        let seconds = worked.as_secs_f64();
        self.working = mean(self.working, changes.saturating_sub(self.changes_then) as f64 / seconds);
        let mut pause = match (self.working, self.pausing) {
            (Some(working), Some(pausing)) => pause_for(seconds, working, pausing, self.keep),
            // The writers' rate is not known yet, or there are none.
            _ => 0.0,
        };
        self.slices += 1;
        let unknown = self.pausing.is_none() || self.slices >= PROBE_EVERY;
        if unknown && changes > self.changes_then {
            pause = pause.max(SLICE.as_secs_f64());
        }
        if let (Some(caught_up), Some(pausing)) = (caught_up, self.pausing) {
            pause = pause.min((caught_up / 2.0 / pausing.max(1.0) - seconds).max(0.0));
        }
        let mut woken = now;
        if pause > 0.0 {
            self.clock.sleep(Duration::from_secs_f64(pause));
            woken = self.clock.now();
            let rested = woken.saturating_sub(now).as_secs_f64();
            if rested > 0.0 {
                let meanwhile = (self.changes)().saturating_sub(changes);
                (self.pausing, self.slices) = (mean(self.pausing, meanwhile as f64 / rested), 0);
            }
        }
        (self.began, self.changes_then, self.worth) = (woken, (self.changes)(), 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Simulated writers: their rate of changes while the work sleeps, and the share `beside` of it while it
    /// runs.
    #[derive(Debug)]
    struct Others {
        /// Time, and changes.
        now: Mutex<(Duration, f64)>,
        rate: f64,
        beside: f64,
        slept: Mutex<Duration>,
    }

    impl Others {
        fn new(rate: f64, beside: f64) -> Self {
            Self { now: Mutex::default(), rate, beside, slept: Mutex::default() }
        }

        fn work(&self, time: Duration) {
            let mut now = self.now.lock().unwrap();
            now.0 += time;
            now.1 += time.as_secs_f64() * self.rate * self.beside;
        }

        fn changes(&self) -> u64 {
            self.now.lock().unwrap().1 as u64
        }
    }

    impl Clock for Others {
        fn now(&self) -> Duration {
            self.now.lock().unwrap().0
        }

        fn sleep(&self, duration: Duration) {
            let mut now = self.now.lock().unwrap();
            now.0 += duration;
            now.1 += duration.as_secs_f64() * self.rate;
            *self.slept.lock().unwrap() += duration;
        }
    }

    /// The share of their rate that they keep beside two seconds of work.
    fn kept(others: &Others, keep_percent: u32, step: fn(&mut Pace<'_>)) -> f64 {
        let mut pace = Pace::new(others, keep_percent, || others.changes());
        for _ in 0..200_000 {
            others.work(Duration::from_micros(10));
            step(&mut pace);
        }
        let (time, changes) = *others.now.lock().unwrap();
        changes / (time.as_secs_f64() * others.rate)
    }

    fn step(pace: &mut Pace<'_>) {
        pace.step();
    }

    #[test]
    fn others_keep_the_share_that_is_asked_for() {
        for (beside, keep) in [(0.5, 85), (0.3, 80), (0.7, 90)] {
            let others = Others::new(30_000.0, beside);
            let kept = kept(&others, keep, step);
            let asked = f64::from(keep) / 100.0;
            assert!((asked - 0.03..asked + 0.05).contains(&kept), "{kept} of {asked}, {beside} without pauses");
        }
    }

    #[test]
    fn it_waits_only_for_others_that_lose_work() {
        let idle = Others::new(0.0, 0.0);
        kept(&idle, 85, step);
        assert_eq!(*idle.slept.lock().unwrap(), Duration::ZERO);
        let unhurt = Others::new(30_000.0, 1.0);
        kept(&unhurt, 85, step);
        assert!(*unhurt.slept.lock().unwrap() < Duration::from_millis(300), "probes alone: {unhurt:?}");
        let asked_for_none = Others::new(30_000.0, 0.2);
        kept(&asked_for_none, 0, step);
        assert_eq!(*asked_for_none.slept.lock().unwrap(), Duration::ZERO);
    }

    #[test]
    fn who_has_to_catch_up_is_twice_as_fast_as_the_changes() {
        // 10 us a change are 100,000 a second, beside 20,000 of the others.
        let others = Others::new(20_000.0, 0.3);
        kept(&others, 90, |pace| pace.caught_up(1.0));
        let (time, changes) = *others.now.lock().unwrap();
        assert!(200_000.0 > 1.8 * changes, "{changes} changes while 200,000 were caught up with in {time:?}");
        assert!(*others.slept.lock().unwrap() > Duration::from_millis(500), "and it pauses where it can: {others:?}");
    }

    #[test]
    fn a_pause_has_an_end() {
        assert_eq!(pause_for(0.002, 0.0, 1e9, 0.95), 0.002 * PAUSE_FACTOR);
        assert_eq!(pause_for(0.002, 100.0, 0.0, 0.95), 0.0);
        assert_eq!(pause_for(0.002, 90.0, 100.0, 0.8), 0.0);
        assert!((pause_for(0.002, 40.0, 100.0, 0.8) - 0.004).abs() < 1e-9);
    }
}
