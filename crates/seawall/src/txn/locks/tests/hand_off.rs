//! Every interleaving of the threads that answer a wait and the one that waits: the same files `cell.rs` and
//! `interrupt.rs`, with the model checker's mutex and condition variable. A lost wake-up would leave a thread
//! blocked for ever, which the checker reports.

use crate::format::TxnId;
use cell::{Outcome, WaitCell};
use interrupt::Interrupt;
use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    pub(super) use std::time::Instant;

    /// The checker's mutex, locked as the real one is.
    #[derive(Debug)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(super) use loom::sync::{Arc, Condvar, MutexGuard};

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no panic")
        }
    }

    /// Never late: in the tests a thread settles the time-out.
    pub(super) fn wait_until<'a, T>(
        woken: &Condvar,
        guard: MutexGuard<'a, T>,
        _: Instant,
    ) -> (MutexGuard<'a, T>, bool) {
        (woken.wait(guard).expect("no panic"), false)
    }
}

// On purpose: the same source with two sets of primitives.
#[allow(clippy::duplicate_mod)]
#[path = "../cell.rs"]
mod cell;

// As above; here nothing outside uses the items that are public in the engine.
#[allow(clippy::duplicate_mod, unreachable_pub)]
#[path = "../interrupt.rs"]
mod interrupt;

fn deadline() -> sync::Instant {
    sync::Instant::now()
}

#[test]
fn one_answer_reaches_the_one_who_waits() {
    loom::model(|| {
        let cell = Arc::new(WaitCell::new());
        let answers = [Outcome::Granted, Outcome::DeadlockVictim { waits_for: TxnId(2) }];
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
        let outcome = cell.wait(deadline(), || false);
        assert!(!cell.is_waiting());
        let given: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(given, [outcome], "answered once");
    });
}

/// One waiter queues for a lock. The lock is released while the waiter may give up: it is granted or stays
/// free, and is never lost.
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
                    let mut queue = queue.lock().expect("no panic");
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
            let mut queue = queue.lock().expect("no panic");
            if queue.held {
                queue.waiting = Some(cell.clone());
            }
            queue.held
        };
        if waits {
            let outcome = cell.wait(deadline(), || false);
            let mut queue = queue.lock().expect("no panic");
            match outcome {
                Outcome::Granted => assert!(queue.held && queue.waiting.is_none()),
                _ => queue.waiting = None,
            }
        }
        releases.join().expect("no panic");
        gives_up.join().expect("no panic");
        assert!(queue.lock().expect("no panic").waiting.is_none());
    });
}

/// An interrupt reaches a wait that begins before or after it; without one the wait is granted. A second wait
/// finds it pending until it is cleared.
#[test]
fn an_interrupt_is_never_lost() {
    loom::model(|| {
        let (interrupt, cell) = (Arc::new(Interrupt::default()), Arc::new(WaitCell::new()));
        let raises = {
            let interrupt = interrupt.clone();
            thread::spawn(move || interrupt.raise())
        };
        // There is no other answer.
        interrupt.enter(&cell);
        assert_eq!(cell.wait(deadline(), || false), Outcome::Interrupted);
        interrupt.leave();
        assert!(interrupt.is_pending());
        let next = Arc::new(WaitCell::new());
        interrupt.enter(&next);
        assert_eq!(next.answer(), Some(Outcome::Interrupted));
        interrupt.leave();
        raises.join().expect("no panic");
    });
}

/// A lock that is granted while the waiting transaction is interrupted: the wait has one answer, and the
/// interrupt is pending either way.
#[test]
fn an_interrupt_and_a_grant_are_one_answer() {
    loom::model(|| {
        let (interrupt, cell) = (Arc::new(Interrupt::default()), Arc::new(WaitCell::new()));
        let raises = {
            let interrupt = interrupt.clone();
            thread::spawn(move || interrupt.raise())
        };
        let grants = {
            let cell = cell.clone();
            thread::spawn(move || {
                let first = cell.settle(Outcome::Granted);
                if first {
                    cell.wake();
                }
                first
            })
        };
        interrupt.enter(&cell);
        let outcome = cell.wait(deadline(), || false);
        interrupt.leave();
        let granted = grants.join().expect("no panic");
        assert_eq!(outcome, if granted { Outcome::Granted } else { Outcome::Interrupted });
        raises.join().expect("no panic");
        assert!(interrupt.is_pending());
    });
}

/// An interrupt is cleared while it is raised: if it is no longer pending, it does not end the next wait,
/// which has another answer.
#[test]
fn a_cleared_interrupt_breaks_no_later_wait() {
    loom::model(|| {
        let interrupt = Arc::new(Interrupt::default());
        let raises = {
            let interrupt = interrupt.clone();
            thread::spawn(move || interrupt.raise())
        };
        interrupt.clear();
        let cell = Arc::new(WaitCell::new());
        interrupt.enter(&cell);
        let broken = !cell.settle(Outcome::Granted);
        let outcome = cell.wait(deadline(), || false);
        interrupt.leave();
        assert_eq!(outcome == Outcome::Interrupted, broken);
        assert!(!broken || interrupt.is_pending(), "what broke the wait came after the clearing");
        raises.join().expect("no panic");
        assert!(interrupt.is_pending() || !broken);
    });
}
