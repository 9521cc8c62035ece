//! The protocol of `ids.rs`, compiled a second time on a checked scheduler (loom) that tries every
//! interleaving and every value a load may return. Only `super::sync` differs.

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
    use std::cell::Cell;

    pub(super) const STRIPES: usize = 2;
    pub(super) const MORE: usize = 1;

    #[derive(Debug, Default)]
    pub(super) struct Padded<T>(pub(super) T);

    std::thread_local!(static NUMBER: Cell<usize> = const { Cell::new(0) });

    pub(super) fn thread_number() -> usize {
        NUMBER.get()
    }

    /// Each thread of a model sets its number: loom's threads share one real thread.
    pub(super) fn as_thread<T>(number: usize, f: impl FnOnce() -> T) -> T {
        NUMBER.set(number);
        f()
    }

    pub(super) fn pause(_: u32) {
        loom::thread::yield_now();
    }

    /// A mutex that locks as the product's does.
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

#[allow(dead_code, clippy::duplicate_mod)]
#[path = "ids.rs"]
mod ids;

use ids::{Ended, Ids};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The ids, and the lock of the views, which holds the `low` of the snapshot that is given out.
struct Set {
    ids: Ids,
    views: Mutex<Option<u64>>,
}

impl Set {
    fn new() -> Arc<Self> {
        Arc::new(Self { ids: Ids::new(), views: Mutex::new(None) })
    }

    /// As `ActiveSet::end`, if no view outlives the moment of its creation.
    fn end(&self, id: u64) {
        match self.ids.end(id) {
            Ended::Done => {}
            Ended::Prune => {
                let fresh = self.views.lock().unwrap();
                self.prune(*fresh);
            }
            Ended::Locked => {
                let mut fresh = self.views.lock().unwrap();
                *fresh = None;
                self.ids.none_is_fresh();
                self.ids.free(id);
                self.prune(*fresh);
            }
        }
    }

    fn prune(&self, fresh: Option<u64>) {
        match fresh {
            Some(low) => self.ids.raise_to(low),
            None => {
                self.ids.none_is_live();
                self.ids.raise();
            }
        }
    }

    fn snapshot(&self) -> (u64, Vec<u64>) {
        let mut fresh = self.views.lock().unwrap();
        let mut active = Vec::new();
        let next = self.ids.close(|id| active.push(id));
        // While it is given out the horizon stays at or below it.
        let low = active.iter().copied().min().unwrap_or(next);
        *fresh = Some(low);
        self.ids.open(true);
        assert!(self.ids.horizon() <= low, "the horizon ran ahead of a view");
        (next, active)
    }
}

/// Two transactions end at once: the horizon passes both.
#[test]
fn the_horizon_is_not_left_behind() {
    explore(|| {
        let set = Set::new();
        let (a, b) = (sync::as_thread(0, || set.ids.begin()), sync::as_thread(1, || set.ids.begin()));
        let other = set.clone();
        let thread = thread::spawn(move || other.end(a));
        set.end(b);
        thread.join().unwrap();
        assert_eq!(set.ids.horizon(), 3);
    });
}

/// Two transactions end at once while a third begins.
#[test]
fn the_horizon_stops_at_one_that_begins() {
    explore(|| {
        let set = Set::new();
        let a = set.ids.begin();
        let other = set.clone();
        let thread = thread::spawn(move || {
            let b = other.ids.begin();
            other.end(b);
        });
        set.end(a);
        thread.join().unwrap();
        assert_eq!(set.ids.horizon(), 3);
    });
}

/// A transaction that depends on another begins when that one has ended: a snapshot that sees the second sees
/// the first.
#[test]
fn a_snapshot_is_of_one_moment() {
    explore(|| {
        let set = Set::new();
        let a = set.ids.begin();
        let (other, ended) = (set.clone(), Arc::new(AtomicU64::new(0)));
        let says = ended.clone();
        let thread = thread::spawn(move || {
            other.end(a);
            says.store(1, Ordering::Release);
            let b = other.ids.begin();
            other.end(b);
            says.store(2, Ordering::Release);
        });
        let before = ended.load(Ordering::Acquire);
        let (next, active) = set.snapshot();
        let sees = |id: u64| id < next && !active.contains(&id);
        assert!(before < 1 || sees(1), "it ended before the snapshot");
        assert!(before < 2 || sees(2), "it ended before the snapshot");
        assert!(!sees(2) || sees(1), "what it depends on is not seen");
        thread.join().unwrap();
        assert_eq!(set.ids.horizon(), 3, "nothing is left that holds it back");
    });
}

/// A snapshot sees every id that was seen as ended before it was made; an id without a slot is as active as
/// the rest.
#[test]
fn a_snapshot_does_not_go_back() {
    explore(|| {
        let set = Set::new();
        let ids: Vec<u64> = (0..3).map(|_| set.ids.begin()).collect();
        assert!(ids.iter().all(|&id| set.ids.is_active(id)));
        let last = ids[2];
        let other = set.clone();
        let thread = thread::spawn(move || other.end(last));
        let gone = !set.ids.is_active(last);
        let (_, active) = set.snapshot();
        assert!(!gone || !active.contains(&last));
        assert!(active.contains(&ids[0]) && active.contains(&ids[1]));
        thread.join().unwrap();
    });
}

/// Two threads commit in the order of an outside log, the second when the first is done: a view that sees the
/// second sees the first. What a view sees is in the log by then, so a transaction that saw it and commits
/// comes after it.
#[test]
fn commits_in_order_are_seen_in_order() {
    explore(|| {
        let (set, log) = (Set::new(), Arc::new(AtomicU64::new(0)));
        let ids = [0, 1].map(|nth| sync::as_thread(nth, || set.ids.begin()));
        let commit = |nth: usize| {
            let (set, log) = (set.clone(), log.clone());
            move || {
                // As `Txn::commit_ordered`: logged, then out of the active set. A view relies on that order
                // alone.
                log.store(nth as u64 + 1, Ordering::Relaxed);
                sync::as_thread(nth, || set.end(ids[nth]));
            }
        };
        let (first, second) = (thread::spawn(commit(0)), commit(1));
        let both = thread::spawn(move || {
            first.join().unwrap();
            second();
        });
        let (next, active) = set.snapshot();
        let logged = log.load(Ordering::Relaxed);
        let sees = ids.map(|id| id < next && !active.contains(&id));
        assert!(sees[0] || !sees[1], "the second commit is seen without the first");
        let in_log = (1..).zip(sees).all(|(position, sees)| !sees || logged >= position);
        assert!(in_log, "a commit is seen that is not in the log");
        both.join().unwrap();
        let (_, active) = set.snapshot();
        assert_eq!((active, log.load(Ordering::Relaxed)), (vec![], 2));
    });
}
