//! The two protocols between threads, compiled a second time on a checked scheduler (loom) that tries every
//! interleaving and every value a load may return.
//!
//! `slots.rs` and `waiters.rs` are the product's own files: only `super::sync` is replaced here.

mod sync {
    pub(super) use loom::sync::Arc;
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(super) use loom::thread::{Thread, current, park, yield_now};

    pub(super) const SLOTS: usize = 2;

    #[derive(Debug, Default)]
    pub(super) struct Padded<T>(pub(super) T);

    pub(super) fn slot_hint() -> usize {
        0
    }

    /// A mutex with the interface of the product's.
    #[derive(Debug)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(inner: T) -> Self {
            Self(loom::sync::Mutex::new(inner))
        }
        pub(super) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("no thread of the model panics")
        }
    }
}

#[allow(dead_code, clippy::duplicate_mod)] // counters are not modelled
#[path = "slots.rs"]
mod slots;
#[allow(dead_code, clippy::duplicate_mod)] // nor are background steps
#[path = "waiters.rs"]
mod waiters;

use loom::sync::atomic::{AtomicU8, AtomicU64};
use slots::Slots;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use waiters::{Entered, Waiter, Waiters};

/// Explores the interleavings with at most `preemptions` preemptions: nearly all bugs need only a few.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Bytes of the stream, relaxed: a reader may see an old one unless the protocol orders it after the write.
struct Stream {
    slots: Slots,
    bytes: Vec<AtomicU8>,
}

impl Stream {
    fn new(len: usize) -> Self {
        Self { slots: Slots::new(0), bytes: (0..len).map(|_| AtomicU8::new(0)).collect() }
    }

    fn write_entry(&self, len: u64) {
        let claim = self.slots.claim(len);
        for at in claim.start..claim.end {
            self.bytes[at as usize].store(1, Ordering::Relaxed);
        }
        self.slots.publish(&claim);
    }

    /// Reads everything before `oldest_unpublished`.
    fn check(&self, from: u64) -> u64 {
        let published = self.slots.oldest_unpublished();
        for at in from..published {
            let byte = self.bytes[at as usize].load(Ordering::Relaxed);
            assert_eq!(byte, 1, "byte {at} is not there, and everything before {published} is published");
        }
        published
    }
}

#[test]
fn nothing_counts_as_published_before_it_is() {
    explore(3, || {
        let stream = Arc::new(Stream::new(5));
        let writers: Vec<_> = [1, 2]
            .map(|len| {
                let stream = stream.clone();
                loom::thread::spawn(move || stream.write_entry(len))
            })
            .into();
        stream.check(0);
        // The second position may be lower (slots.rs, 6), but is as true.
        stream.check(0);
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(stream.check(0), 3);
    });
}

#[test]
fn a_slot_that_is_taken_again_hides_nothing() {
    explore(2, || {
        let stream = Arc::new(Stream::new(4));
        let writer = loom::thread::spawn({
            let stream = stream.clone();
            move || {
                stream.write_entry(1);
                stream.write_entry(1);
            }
        });
        stream.write_entry(1);
        stream.check(0);
        writer.join().unwrap();
        assert_eq!(stream.check(0), 3);
    });
}

#[test]
fn nothing_counts_as_published_behind_an_abandoned_place() {
    explore(3, || {
        let stream = Arc::new(Stream::new(4));
        let writer = loom::thread::spawn({
            let stream = stream.clone();
            move || {
                let claim = stream.slots.claim(1);
                stream.slots.abandon(&claim);
                // Its slot is free again.
                stream.write_entry(1);
                claim.start
            }
        });
        stream.write_entry(1);
        stream.check(0);
        let abandoned = writer.join().unwrap();
        assert_eq!(stream.check(0), abandoned);
    });
}

#[derive(Debug)]
struct LeaderState;

/// Leaders make durable everything that was published when they began; every thread returns, in any order.
fn commits(threads: u64) {
    let durable = Arc::new(AtomicU64::new(0));
    let published = Arc::new(AtomicU64::new(0));
    let waiters = Arc::new(Waiters::new(LeaderState));
    let commit = move |lsn: u64| {
        let waiter = Waiter::new();
        published.fetch_max(lsn, Ordering::AcqRel);
        let done = |lsn: u64| durable.load(Ordering::Acquire) >= lsn;
        while !done(lsn) {
            match waiters.enter(lsn, &waiter, || done(lsn)) {
                Entered::Recheck => {}
                Entered::Lead(state) => {
                    // Called too late: another thread led first.
                    if !done(lsn) {
                        durable.store(published.load(Ordering::Acquire), Ordering::Release);
                    }
                    waiters.leave(state, done);
                }
            }
        }
    };
    let others: Vec<_> = (1..threads)
        .map(|lsn| {
            let commit = commit.clone();
            loom::thread::spawn(move || commit(lsn))
        })
        .collect();
    commit(threads);
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn no_wake_up_is_lost_between_two() {
    explore(4, || commits(2));
}

#[test]
fn no_wake_up_is_lost_between_three() {
    explore(2, || commits(3));
}

/// A called waiter that no longer needs anything, because the database failed elsewhere in the meantime,
/// still passes the call on.
#[test]
fn a_waiter_that_gives_up_passes_the_call_on() {
    explore(2, || {
        let failed = Arc::new(AtomicU64::new(0));
        let waiters = Arc::new(Waiters::new(LeaderState));
        let leading = waiters.try_lead();
        let wait = {
            let (failed, waiters) = (failed.clone(), waiters.clone());
            move || {
                let waiter = Waiter::new();
                let over = || failed.load(Ordering::Acquire) == 1;
                while !over() {
                    if let Entered::Lead(state) = waiters.enter((), &waiter, over) {
                        failed.store(1, Ordering::Release);
                        waiters.leave(state, |()| over());
                    }
                }
            }
        };
        let others = [(); 2].map(|()| loom::thread::spawn(wait.clone()));
        // Leaves while nothing has failed, so that only one of the others is called.
        waiters.leave(leading.expect("no thread leads yet"), |()| false);
        failed.store(1, Ordering::Release);
        for other in others {
            other.join().unwrap();
        }
    });
}
