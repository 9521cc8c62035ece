//! The loop of every workload: each thread runs one operation after the other, until the time is over or the
//! work is done.
//!
//! ```text
//!   made (a session each) ──all are there──> warm-up ──observed──> window ──time over, work done, error, Ctrl-C──> ended ──observed──
//! ```
//!
//! 1. One reading of the clock for each operation: its end is the beginning of the next. So the latency
//!    includes generating key and value, the same for every store.
//! 2. An operation that met a conflict is repeated, and its latency includes the retries.
//! 3. The first error ends every thread. The figures so far are returned with the error.
//! 4. The driving thread only sleeps and shows progress ten times a second.

use super::recorder::{Latencies, Recorder, Timeline};
use crate::observe::{Observed, Observer};
use crate::store::{Error, Result};
use seawall_lab::run::Progress;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The latest end, in the timeline, of a window without a known end; later completions count in its last
/// moment.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
const TICK: Duration = Duration::from_millis(100);

/// When the measured window ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// After this time.
    For(Duration),
    /// After this many operations of all threads together.
    Ops(u64),
    /// When every thread has returned [`Outcome::Finished`]; `ops` is the expected number, for the progress
    /// display.
    Finished {
        /// Operations expected.
        ops: u64,
    },
}

/// The result of one call of a thread's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This many operations were done.
    Done(u64),
    /// Conflict with another transaction: repeat the same operation.
    Conflict,
    /// This thread has nothing left to do.
    Finished,
}

/// What a thread repeats. A closure that does one operation implements it.
pub trait Operation {
    /// Does the next operation, or repeats the last one after a conflict.
    ///
    /// # Errors
    /// Those of the store; the first one ends the run.
    fn next(&mut self) -> Result<Outcome>;

    /// The last operation was recorded with this latency: for operations that keep latencies by kind. `late`:
    /// it completed after the window and does not count for the rate.
    fn recorded(&mut self, _latency: Duration, _late: bool) {}
}

impl<F: FnMut() -> Result<Outcome>> Operation for F {
    fn next(&mut self) -> Result<Outcome> {
        self()
    }
}

/// What to drive.
#[derive(Debug)]
pub struct Spec<'a> {
    /// Threads, at least one.
    pub threads: usize,
    /// Warm-up before anything is recorded.
    pub warm_up: Duration,
    /// The window's end.
    pub limit: Limit,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
}

/// The result.
#[derive(Debug)]
pub struct Driven {
    /// Length of the window.
    pub window: Duration,
    /// Latencies of all threads.
    pub latencies: Latencies,
    /// Completions by time.
    pub timeline: Timeline,
    /// Operations completed in the window.
    pub ops: u64,
    /// Retries because of a conflict with another transaction.
    pub conflicts: u64,
    /// Threads that ended with an error.
    pub errors: u64,
    /// The first of them.
    pub error: Option<Error>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// What happened on the machine meanwhile.
    pub observed: Observed,
}

/// What the threads share.
struct Shared<'a> {
    spec: &'a Spec<'a>,
    timeline: Timeline,
    /// When the window began; empty during the warm-up.
    began: OnceLock<Instant>,
    over: AtomicBool,
    ready: Barrier,
    working: AtomicUsize,
    ended_ns: AtomicU64,
    conflicts: AtomicU64,
    errors: AtomicU64,
    error: Mutex<Option<Error>>,
    turn: Mutex<()>,
    one_ended: Condvar,
}

/// Runs the operation of each thread repeatedly. `make` creates it from the thread's number, on that thread.
/// `observer` records the window; `phase` names the window in the progress display.
pub fn drive<M, F>(
    spec: &Spec<'_>,
    observer: &mut Observer<'_>,
    progress: &mut dyn Progress,
    phase: &str,
    make: M,
) -> Driven
where
    M: Fn(usize) -> Result<F> + Sync,
    F: Operation,
{
    let threads = spec.threads.max(1);
    let longest = if let Limit::For(time) = spec.limit { time } else { LONGEST };
    let shared = Shared {
        spec,
        timeline: Timeline::new(longest),
        began: OnceLock::new(),
        over: AtomicBool::new(false),
        ready: Barrier::new(threads + 1),
        working: AtomicUsize::new(threads),
        ended_ns: AtomicU64::new(0),
        conflicts: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        error: Mutex::default(),
        turn: Mutex::default(),
        one_ended: Condvar::new(),
    };
    let (latencies, interrupted, observed) = std::thread::scope(|scope| {
        let (shared, make) = (&shared, &make);
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || shared.work(thread, make))).collect();
        let (interrupted, observed) = shared.supervise(observer, progress, phase);
        let mut latencies = Latencies::new();
        for worker in workers {
            match worker.join() {
                Ok(of_thread) => latencies.merge(&of_thread),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (latencies, interrupted, observed)
    });
    let window = shared.window();
    let error = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner);
    Driven {
        window,
        latencies,
        ops: shared.timeline.ops(),
        conflicts: shared.conflicts.into_inner(),
        errors: shared.errors.into_inner(),
        error,
        interrupted,
        observed,
        timeline: shared.timeline,
    }
}

impl Shared<'_> {
    /// The length of the finished window.
    fn window(&self) -> Duration {
        let ended = Duration::from_nanos(self.ended_ns.load(Ordering::Relaxed));
        match self.spec.limit {
            Limit::For(time) => time.min(ended),
            _ => ended,
        }
    }

    /// One thread, from its session to its end.
    fn work<M, F>(&self, thread: usize, make: &M) -> Latencies
    where
        M: Fn(usize) -> Result<F>,
        F: Operation,
    {
        let leaving = Leaving(self);
        let mut recorder = Recorder::new(&self.timeline);
        let made = make(thread);
        self.ready.wait();
        let worked = made.and_then(|operation| self.repeat(thread, operation, &mut recorder));
        if let Err(error) = worked {
            self.errors.fetch_add(1, Ordering::Relaxed);
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.over.store(true, Ordering::Relaxed);
        }
        drop(leaving);
        recorder.finish()
    }

    fn repeat(&self, thread: usize, mut operation: impl Operation, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut left = self.share(thread);
        let mut begin = Instant::now();
        while left > 0 && !self.over.load(Ordering::Relaxed) {
            let outcome = operation.next()?;
            let end = Instant::now();
            // Operations that end in the window count even if they began before it; at the other edge, those
            // that began in it and end later do not.
            let at = self.began.get().and_then(|began| end.checked_duration_since(*began));
            let late = matches!((self.spec.limit, at), (Limit::For(time), Some(at)) if at > time);
            match (outcome, at) {
                (Outcome::Done(_), Some(_)) if late => {
                    recorder.record_late(end - begin);
                    operation.recorded(end - begin, true);
                }
                (Outcome::Done(ops), Some(at)) => {
                    recorder.record(at, end - begin, ops);
                    operation.recorded(end - begin, false);
                    left = left.saturating_sub(ops);
                }
                (Outcome::Conflict, Some(_)) => {
                    self.conflicts.fetch_add(1, Ordering::Relaxed);
                }
                (Outcome::Finished, _) => break,
                (Outcome::Done(_) | Outcome::Conflict, None) => {}
            }
            if late {
                break;
            }
            if outcome != Outcome::Conflict {
                begin = end;
            }
        }
        Ok(())
    }

    /// The operations assigned to one thread.
    fn share(&self, thread: usize) -> u64 {
        match self.spec.limit {
            Limit::Ops(ops) => {
                let threads = self.spec.threads.max(1) as u64;
                ops / threads + u64::from((thread as u64) < ops % threads)
            }
            Limit::For(_) | Limit::Finished { .. } => u64::MAX,
        }
    }

    /// The driving thread's part. Returns whether Ctrl-C ended it, and the observations.
    fn supervise(&self, observer: &mut Observer<'_>, progress: &mut dyn Progress, phase: &str) -> (bool, Observed) {
        if self.spec.warm_up.is_zero() {
            // Without this, the first operations, which may already have begun, would be missing from the
            // requested number.
            self.begin(observer);
            self.ready.wait();
        } else {
            self.ready.wait();
            progress.begin("warming up", millis(self.spec.warm_up));
            let began = Instant::now();
            while began.elapsed() < self.spec.warm_up && self.goes_on(self.spec.warm_up - began.elapsed()) {
                progress.at(millis(began.elapsed()), "");
            }
            self.begin(observer);
        }
        let total = match self.spec.limit {
            Limit::For(time) => millis(time),
            Limit::Ops(ops) | Limit::Finished { ops } => ops,
        };
        progress.begin(phase, total);
        let began = self.began.get().copied().unwrap_or_else(Instant::now);
        let mut before = (Duration::ZERO, 0);
        loop {
            let elapsed = began.elapsed();
            let rest = if let Limit::For(time) = self.spec.limit { time.saturating_sub(elapsed) } else { TICK };
            if rest.is_zero() || !self.goes_on(rest) {
                break;
            }
            let now = (began.elapsed(), self.timeline.ops());
            let rate = (now.1 - before.1) as f64 / (now.0 - before.0).as_secs_f64().max(1e-3);
            let done = if let Limit::For(_) = self.spec.limit { millis(now.0) } else { now.1 };
            progress.at(done, &format!("{rate:.0}/s"));
            before = now;
        }
        let observed = observer.end();
        let interrupted = self.spec.stop.load(Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        (interrupted, observed)
    }

    fn begin(&self, observer: &mut Observer<'_>) {
        observer.begin();
        self.began.get_or_init(Instant::now);
    }

    /// Sleeps for a tick or `rest`. Returns whether threads still work and nothing has asked for the end.
    fn goes_on(&self, rest: Duration) -> bool {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let working = |_: &mut ()| self.working.load(Ordering::Relaxed) > 0;
        drop(self.one_ended.wait_timeout_while(turn, rest.min(TICK), working));
        self.working.load(Ordering::Relaxed) > 0
            && !self.over.load(Ordering::Relaxed)
            && !self.spec.stop.load(Ordering::Relaxed)
    }
}

/// Reports on drop that a thread has ended, also after a panic: the driving thread must not wait for it.
struct Leaving<'s, 'a>(&'s Shared<'a>);

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        let ended = self.0.began.get().map_or(0, |began| began.elapsed().as_nanos() as u64);
        self.0.ended_ns.fetch_max(ended, Ordering::Relaxed);
        let _turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.working.fetch_sub(1, Ordering::Relaxed);
        self.0.one_ended.notify_all();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_lab::run::Silent;

    fn driven<M, F>(threads: usize, warm_up: Duration, limit: Limit, stop: &AtomicBool, make: M) -> Driven
    where
        M: Fn(usize) -> Result<F> + Sync,
        F: FnMut() -> Result<Outcome>,
    {
        let mut observer = Observer::new(&std::env::temp_dir());
        drive(&Spec { threads, warm_up, limit, stop }, &mut observer, &mut Silent, "testing", make)
    }

    #[test]
    fn does_as_many_operations_as_asked() {
        let (calls, no) = (AtomicU64::new(0), AtomicBool::new(false));
        let make = |thread| {
            let mut blocked = thread == 0;
            let calls = &calls;
            Ok(move || {
                if std::mem::take(&mut blocked) {
                    return Ok(Outcome::Conflict);
                }
                calls.fetch_add(1, Ordering::Relaxed);
                Ok(Outcome::Done(1))
            })
        };
        let ran = driven(3, Duration::ZERO, Limit::Ops(1000), &no, make);
        assert_eq!((ran.ops, ran.conflicts, ran.errors, ran.interrupted), (1000, 1, 0, false));
        assert_eq!((calls.into_inner(), ran.latencies.count()), (1000, 1000));
        assert!(!ran.window.is_zero());
    }

    #[test]
    fn ends_when_the_time_is_over_and_leaves_the_warm_up_out() {
        let (calls, no) = (AtomicU64::new(0), AtomicBool::new(false));
        let make = |_| {
            let calls = &calls;
            Ok(move || {
                calls.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
                Ok(Outcome::Done(1))
            })
        };
        let time = Duration::from_millis(150);
        let ran = driven(2, Duration::from_millis(60), Limit::For(time), &no, make);
        assert_eq!(ran.window, time);
        assert!(ran.ops > 0 && ran.ops < calls.into_inner());
        assert_eq!(ran.timeline.steps(time, Duration::from_millis(100)).iter().sum::<u64>(), ran.ops);
    }

    #[test]
    fn finishes_when_all_have_and_counts_batches() {
        let no = AtomicBool::new(false);
        let make = |thread| {
            let mut batches = thread + 1;
            Ok(move || {
                if batches == 0 {
                    return Ok(Outcome::Finished);
                }
                batches -= 1;
                Ok(Outcome::Done(10))
            })
        };
        let ran = driven(2, Duration::ZERO, Limit::Finished { ops: 30 }, &no, make);
        assert_eq!((ran.ops, ran.latencies.count()), (30, 3));
    }

    #[test]
    fn one_error_ends_all() {
        let no = AtomicBool::new(false);
        let make = |thread| {
            Ok(move || if thread == 1 { Err(Error::failed("test", "no space")) } else { Ok(Outcome::Done(1)) })
        };
        let ran = driven(2, Duration::from_millis(5), Limit::For(Duration::from_secs(3600)), &no, make);
        assert!(ran.error.unwrap().to_string().contains("no space"));
        let make = |thread| {
            if thread == 0 { Err(Error::failed("test", "no session")) } else { Ok(|| Ok(Outcome::Done(1))) }
        };
        let ran = driven(2, Duration::ZERO, Limit::For(Duration::from_secs(3600)), &no, make);
        assert!(ran.error.unwrap().to_string().contains("no session"));
        assert_eq!(ran.errors, 1);
    }

    #[test]
    fn stops_at_once() {
        let stop = AtomicBool::new(false);
        let make = |_| {
            let stop = &stop;
            Ok(move || {
                stop.store(true, Ordering::Relaxed);
                Ok(Outcome::Done(1))
            })
        };
        assert!(driven(1, Duration::ZERO, Limit::For(Duration::from_secs(3600)), &stop, make).interrupted);
    }
}
