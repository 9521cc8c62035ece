//! The loop of every workload: each thread runs one operation after the other, until the time is over or the
//! work is done.
//!
//! ```text
//!   made (a session each) ──all are there──> warm-up, until steady ──observed──> window ──time over, work done, error, Ctrl-C──> ended ──observed──
//! ```
//!
//! 1. One reading of the clock for each operation: its end is the beginning of the next. So the latency
//!    includes generating key and value, the same for every store.
//! 2. An operation that met a conflict is repeated, and its latency includes the retries.
//! 3. The first error ends every thread. The figures so far are returned with the error.
//! 4. The driving thread only sleeps and shows progress ten times a second.
//! 5. Open loop: operations arrive at random times at a given rate. The latency begins at the arrival, also
//!    when the thread is late because of earlier operations.

use super::recorder::{Latencies, Recorder, Timeline};
use crate::observe::{Observed, Observer};
use crate::store::{Error, Result};
use crate::workload::thread_rng;
use parking_lot::{Condvar, Mutex};
use rand_distr::{Distribution as _, Exp};
use rand_pcg::Pcg64Mcg;
use seawall_lab::run::Progress;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(100);
/// The most classes of operations.
pub const CLASSES: usize = 6;

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

impl Outcome {
    /// The outcome of an attempt at `ops` operations.
    ///
    /// # Errors
    /// That of the attempt, unless it is a conflict.
    pub fn of(attempt: Result<()>, ops: u64) -> Result<Self> {
        match attempt {
            Ok(()) => Ok(Self::Done(ops)),
            Err(Error::Conflict(_)) => Ok(Self::Conflict),
            Err(error) => Err(error),
        }
    }
}

/// What a thread repeats. A closure that does one operation implements it.
pub trait Operation {
    /// Does the next operation, or repeats the last one after a conflict.
    ///
    /// # Errors
    /// Those of the store; the first one ends the run.
    fn next(&mut self) -> Result<Outcome>;

    /// The class of the last operation: each has its own figures in [`Driven::classes`].
    fn class(&self) -> usize {
        0
    }
}

impl<F: FnMut() -> Result<Outcome>> Operation for F {
    fn next(&mut self) -> Result<Outcome> {
        self()
    }
}

/// What to drive.
#[expect(missing_debug_implementations, reason = "the test of the steady state is a closure")]
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    /// Threads; none counts as one.
    pub threads: usize,
    /// Warm-up before anything is recorded.
    pub warm_up: Duration,
    /// After it, wait until this test succeeds, at most for this time.
    pub steady: Option<(&'a SteadyTest<'a>, Duration)>,
    /// Operations of all threads together that arrive a second; `None`: the next begins when the last ends.
    pub rate: Option<f64>,
    /// The window's end.
    pub limit: Limit,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
}

impl<'a> Spec<'a> {
    /// A closed loop without a warm-up.
    pub fn new(threads: usize, limit: Limit, stop: &'a AtomicBool) -> Self {
        Self { threads, warm_up: Duration::ZERO, steady: None, rate: None, limit, stop }
    }
}

/// Whether the store is in its steady state.
pub type SteadyTest<'a> = dyn Fn() -> bool + Sync + 'a;

/// The result.
#[derive(Debug)]
pub struct Driven {
    /// Length of the window.
    pub window: Duration,
    /// Latencies of all threads.
    pub latencies: Latencies,
    /// Operations by [`Operation::class`].
    pub classes: [Latencies; CLASSES],
    /// Completions by time.
    pub timeline: Timeline,
    /// Operations completed in the window.
    pub ops: u64,
    /// Retries because of a conflict with another transaction.
    pub conflicts: u64,
    /// Threads that ended with an error.
    pub errors: u64,
    /// The first error of a thread, or else Ctrl-C.
    pub error: Option<Error>,
    /// How long the store took to reach its steady state; `None` if it did not, or if this was not requested.
    pub steady_after: Option<Duration>,
    /// What happened on the machine meanwhile.
    pub observed: Observed,
}

/// What the threads share.
struct Shared<'s> {
    spec: Spec<'s>,
    timeline: Mutex<Timeline>,
    /// When the window began; empty during the warm-up.
    began: OnceLock<Instant>,
    over: AtomicBool,
    ready: Barrier,
    state: Mutex<State>,
    one_ended: Condvar,
}

/// What the threads have reported.
#[derive(Default)]
struct State {
    /// Threads that work.
    working: usize,
    /// The end of the last thread, from the window's beginning.
    ended: Duration,
    conflicts: u64,
    errors: Vec<Error>,
}

/// Runs the operation of each thread repeatedly. `make` creates it from the thread's number, on that thread.
/// `observer` records the window; `phase` names the window in the progress display.
pub fn drive<F: Operation>(
    spec: &Spec<'_>,
    observer: &mut Observer<'_>,
    progress: &mut dyn Progress,
    phase: &str,
    make: impl Fn(usize) -> Result<F> + Sync,
) -> Driven {
    let spec = Spec { threads: spec.threads.max(1), ..*spec };
    let shared = Shared {
        spec,
        timeline: Mutex::default(),
        began: OnceLock::new(),
        over: AtomicBool::new(false),
        ready: Barrier::new(spec.threads + 1),
        state: Mutex::new(State { working: spec.threads, ..State::default() }),
        one_ended: Condvar::new(),
    };
    let mut classes = <[Latencies; CLASSES]>::default();
    let (interrupted, steady_after, observed) = std::thread::scope(|scope| {
        let (shared, make) = (&shared, &make);
        let workers: Vec<_> = (0..spec.threads).map(|thread| scope.spawn(move || shared.work(thread, make))).collect();
        let supervised = shared.supervise(observer, progress, phase);
        for worker in workers {
            let worked = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            classes.iter_mut().zip(&worked).for_each(|(class, more)| class.merge(more));
        }
        supervised
    });
    let (State { ended, conflicts, errors, .. }, timeline) = (shared.state.into_inner(), shared.timeline.into_inner());
    let mut latencies = Latencies::default();
    classes.iter().for_each(|class| latencies.merge(class));
    Driven {
        window: if let Limit::For(time) = spec.limit { time.min(ended) } else { ended },
        latencies,
        classes,
        ops: timeline.ops,
        conflicts,
        errors: errors.len() as u64,
        error: errors.into_iter().next().or(interrupted.then_some(Error::Interrupted)),
        steady_after,
        observed,
        timeline,
    }
}

impl Shared<'_> {
    /// One thread, from its session to its end. Returns the latencies of each class.
    fn work<F: Operation>(&self, thread: usize, make: &impl Fn(usize) -> Result<F>) -> Vec<Latencies> {
        let _leaving = Leaving(self);
        let mut classes = Vec::new();
        let made = make(thread);
        self.ready.wait();
        let worked = made.and_then(|operation| self.repeat(thread, operation, &mut classes));
        if let Err(error) = worked {
            self.state.lock().errors.push(error);
            self.over.store(true, Ordering::Relaxed);
        }
        classes
    }

    fn repeat(&self, thread: usize, mut operation: impl Operation, classes: &mut Vec<Latencies>) -> Result<()> {
        let mut recorder = Recorder::new(&self.timeline);
        let mut left = match self.spec.limit {
            Limit::Ops(ops) => {
                let (threads, thread) = (self.spec.threads as u64, thread as u64);
                ops / threads + u64::from(thread < ops % threads)
            }
            Limit::For(_) | Limit::Finished { .. } => u64::MAX,
        };
        let mut arrivals = self.spec.rate.map(|rate| Arrivals::new(rate / self.spec.threads as f64, thread));
        let (mut begin, mut again) = (Instant::now(), false);
        while left > 0 && !self.over.load(Ordering::Relaxed) {
            if let Some(arrivals) = arrivals.as_mut().filter(|_| !again) {
                begin = arrivals.wait();
            }
            let outcome = operation.next()?;
            let end = Instant::now();
            // Operations that end in the window count even if they began before it; at the other edge, those
            // that began in it and end later do not.
            let at = self.began.get().and_then(|began| end.checked_duration_since(*began));
            let late = matches!((self.spec.limit, at), (Limit::For(time), Some(at)) if at > time);
            match (outcome, at) {
                (Outcome::Done(ops), Some(at)) => {
                    let class = operation.class();
                    classes.resize_with(classes.len().max(class + 1), Latencies::default);
                    classes[class].add(end - begin);
                    if !late {
                        recorder.record(at, ops);
                        classes[class].ops += ops;
                        left = left.saturating_sub(ops);
                    }
                }
                (Outcome::Conflict, Some(_)) => self.state.lock().conflicts += 1,
                (Outcome::Finished, _) => break,
                (Outcome::Done(_) | Outcome::Conflict, None) => {}
            }
            if late {
                break;
            }
            again = outcome == Outcome::Conflict;
            if !again {
                begin = end;
            }
        }
        Ok(())
    }

    /// The driving thread's part. Returns whether Ctrl-C ended it, when the store was steady, and the
    /// observations.
    fn supervise(
        &self,
        observer: &mut Observer<'_>,
        progress: &mut dyn Progress,
        phase: &str,
    ) -> (bool, Option<Duration>, Observed) {
        let (spec, mut steady_after) = (&self.spec, None);
        if spec.warm_up.is_zero() && spec.steady.is_none() {
            // Without this, the first operations, which may already have begun, would be missing from the
            // requested number.
            self.begin(observer);
            self.ready.wait();
        } else {
            self.ready.wait();
            progress.begin("warming up", millis(spec.warm_up));
            let began = Instant::now();
            while began.elapsed() < spec.warm_up && self.goes_on(spec.warm_up - began.elapsed()) {
                progress.at(millis(began.elapsed()), "");
            }
            if let Some((is_steady, within)) = spec.steady {
                progress.begin("until it is steady", millis(within));
                let mut reached = is_steady();
                while !reached && began.elapsed() < within && self.goes_on(TICK) {
                    progress.at(millis(began.elapsed()), "");
                    reached = is_steady();
                }
                steady_after = reached.then(|| began.elapsed());
            }
            self.begin(observer);
        }
        let total = match spec.limit {
            Limit::For(time) => millis(time),
            Limit::Ops(ops) | Limit::Finished { ops } => ops,
        };
        progress.begin(phase, total);
        let began = self.began.get().copied().unwrap_or_else(Instant::now);
        let mut before = (Duration::ZERO, 0);
        loop {
            let elapsed = began.elapsed();
            let rest = if let Limit::For(time) = spec.limit { time.saturating_sub(elapsed) } else { TICK };
            if rest.is_zero() || !self.goes_on(rest) {
                break;
            }
            let now = (began.elapsed(), self.timeline.lock().ops);
            let rate = (now.1 - before.1) as f64 / (now.0 - before.0).as_secs_f64().max(1e-3);
            let done = if let Limit::For(_) = spec.limit { millis(now.0) } else { now.1 };
            progress.at(done, &format!("{rate:.0}/s"));
            before = now;
        }
        let observed = observer.end();
        let interrupted = spec.stop.load(Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        (interrupted, steady_after, observed)
    }

    fn begin(&self, observer: &mut Observer<'_>) {
        observer.begin();
        self.began.get_or_init(Instant::now);
    }

    /// Sleeps for a tick or `rest`. Returns whether threads still work and nothing has asked for the end.
    fn goes_on(&self, rest: Duration) -> bool {
        let mut state = self.state.lock();
        self.one_ended.wait_while_for(&mut state, |state| state.working > 0, rest.min(TICK));
        state.working > 0 && !self.over.load(Ordering::Relaxed) && !self.spec.stop.load(Ordering::Relaxed)
    }
}

/// The times at which operations of one thread arrive: a Poisson process.
struct Arrivals {
    next: Instant,
    gaps: Exp<f64>,
    rng: Pcg64Mcg,
}

impl Arrivals {
    /// `rate`: arrivals a second, above 0.
    fn new(rate: f64, thread: usize) -> Self {
        let gaps = Exp::new(rate.max(1e-3)).expect("a positive rate");
        Self { next: Instant::now(), gaps, rng: thread_rng(3, thread) }
    }

    /// Waits for the next arrival, unless it is past; returns its time.
    fn wait(&mut self) -> Instant {
        let at = self.next;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        self.next += Duration::from_secs_f64(self.gaps.sample(&mut self.rng));
        at
    }
}

/// Reports on drop that a thread has ended, also after a panic: the driving thread must not wait for it.
struct Leaving<'s>(&'s Shared<'s>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.ended = state.ended.max(self.0.began.get().map_or(Duration::ZERO, Instant::elapsed));
        state.working -= 1;
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
    use std::sync::atomic::AtomicU64;

    fn driven<M, F>(threads: usize, warm_up: Duration, limit: Limit, stop: &AtomicBool, make: M) -> Driven
    where
        M: Fn(usize) -> Result<F> + Sync,
        F: FnMut() -> Result<Outcome>,
    {
        let mut observer = Observer::new(&std::env::temp_dir());
        let spec = Spec { warm_up, ..Spec::new(threads, limit, stop) };
        drive(&spec, &mut observer, &mut Silent, "testing", make)
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
        assert_eq!((ran.ops, ran.conflicts, ran.errors), (1000, 1, 0));
        assert!(ran.error.is_none());
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
    fn the_window_begins_when_the_store_is_steady_or_time_is_up() {
        let no = AtomicBool::new(false);
        for (target, steady) in [(50, true), (u64::MAX, false)] {
            let calls = AtomicU64::new(0);
            let reached = || calls.load(Ordering::Relaxed) >= target;
            let within = Duration::from_millis(if steady { 60_000 } else { 30 });
            let rate = Some(1000.0);
            let spec = Spec { steady: Some((&reached, within)), rate, ..Spec::new(1, Limit::Ops(5), &no) };
            let make = |_| {
                Ok(|| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    Ok(Outcome::Done(1))
                })
            };
            let mut observer = Observer::new(&std::env::temp_dir());
            let ran = drive(&spec, &mut observer, &mut Silent, "testing", make);
            assert_eq!((ran.ops, ran.steady_after.is_some()), (5, steady));
            assert!(!steady || calls.into_inner() >= 55);
        }
    }

    #[test]
    fn operations_that_arrive_meanwhile_wait_and_their_latency_says_so() {
        let no = AtomicBool::new(false);
        let spec = Spec { rate: Some(1e6), ..Spec::new(1, Limit::Ops(20), &no) };
        let make = |_| {
            Ok(|| {
                std::thread::sleep(Duration::from_millis(1));
                Ok(Outcome::Done(1))
            })
        };
        let mut observer = Observer::new(&std::env::temp_dir());
        let ran = drive(&spec, &mut observer, &mut Silent, "testing", make);
        assert!(ran.latencies.max_us() >= 15_000.0, "the last one has waited for the others");
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
        let ran = driven(1, Duration::ZERO, Limit::For(Duration::from_secs(3600)), &stop, make);
        assert!(matches!(ran.error, Some(Error::Interrupted)));
    }
}
