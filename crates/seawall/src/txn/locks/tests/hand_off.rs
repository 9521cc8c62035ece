//! Every interleaving of those who answer a wait and the one who waits: the very file `cell.rs`, under the model checker's mutex and condition
//! variable. A lost wake-up would leave a thread blocked for ever, which the checker reports.

use crate::format::TxnId;
use cell::{Outcome, WaitCell};
use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    pub(super) use std::time::Instant;

    /// The checker's mutex, locked as the real one is.
    #[derive(Debug)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(super) use loom::sync::{Condvar, MutexGuard};

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("nobody panics")
        }
    }

    /// Never late: the tests have a thread that settles the time-out.
    pub(super) fn wait_until<'a, T>(
        woken: &Condvar,
        guard: MutexGuard<'a, T>,
        _: Instant,
    ) -> (MutexGuard<'a, T>, bool) {
        (woken.wait(guard).expect("nobody panics"), false)
    }
}

// On purpose: the same source against two sets of primitives.
#[allow(clippy::duplicate_mod)]
#[path = "../cell.rs"]
mod cell;

fn deadline() -> sync::Instant {
    sync::Instant::now()
}

#[test]
fn one_answer_reaches_the_one_who_waits() {
    loom::model(|| {
        let cell = Arc::new(WaitCell::new());
        let answers = [Outcome::Granted, Outcome::Doomed { waits_for: TxnId(2) }];
        let threads = answers.map(|answer| {
            let cell = cell.clone();
            thread::spawn(move || {
                let first = cell.settle(answer);
                if first {
                    cell.wake();
                }
                first.then_some(answer)
            })
        });
        let outcome = cell.wait(deadline());
        assert!(!cell.is_waiting());
        let given: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(given, [outcome], "answered once");
    });
}

/// A queue of one before a lock that is released while somebody may give up: the lock is granted or given up, and never lost.
#[test]
fn a_lock_is_handed_on_or_given_up() {
    #[derive(Default)]
    struct Queue {
        held: bool,
        waiting: Option<Arc<WaitCell>>,
    }
    loom::model(|| {
        let queue = Arc::new(Mutex::new(Queue { held: true, waiting: None }));
        let cell = Arc::new(WaitCell::new());
        let releases = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut woken = None;
                {
                    let mut queue = queue.lock().expect("nobody panics");
                    queue.held = false;
                    if let Some(waiter) = queue.waiting.take() {
                        if waiter.settle(Outcome::Granted) {
                            queue.held = true;
                            woken = Some(waiter);
                        }
                    }
                }
                if let Some(waiter) = woken {
                    waiter.wake();
                }
            })
        };
        let gives_up = {
            let cell = cell.clone();
            thread::spawn(move || {
                if cell.settle(Outcome::TimedOut) {
                    cell.wake();
                }
            })
        };
        let waits = {
            let mut queue = queue.lock().expect("nobody panics");
            if queue.held {
                queue.waiting = Some(cell.clone());
            }
            queue.held
        };
        if waits {
            let outcome = cell.wait(deadline());
            let mut queue = queue.lock().expect("nobody panics");
            match outcome {
                Outcome::Granted => assert!(queue.held && queue.waiting.is_none()),
                _ => queue.waiting = None,
            }
        }
        releases.join().expect("no panic");
        gives_up.join().expect("no panic");
        assert!(queue.lock().expect("nobody panics").waiting.is_none());
    });
}
