//! Interrupted waits, locks that are given back early, and reports of waits.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn wait_broken_by(
    table: &Arc<LockTable>,
    owner: &Arc<LockOwner>,
    key: &'static str,
    mode: Mode,
    interrupt: &Arc<Interrupt>,
) -> Wait {
    let (table, owner, interrupt) = (table.clone(), owner.clone(), interrupt.clone());
    let before = table.graph.lock().len();
    let handle = {
        let table = table.clone();
        thread::spawn(move || {
            let request = LockRequest::key(&owner, TREE, key.as_bytes(), mode);
            table.wait(&request, LONG, Some(&*interrupt))
        })
    };
    table.until_waiting(before + 1);
    handle
}

#[test]
fn an_interrupted_wait_leaves_the_queue_and_those_behind_go_on() {
    let table = table();
    let (a, b, c) = (table.txn(1), table.txn(2), table.txn(3));
    table.try_point(&a, TREE, b"k", S).expect("free");
    let interrupt = Arc::new(Interrupt::default());
    let broken = wait_broken_by(&table, &b, "k", X, &interrupt);
    let behind = wait_point(&table, &c, "k", S);
    interrupt.raise();
    let error = ended(broken).expect_err("it was interrupted");
    assert!(matches!(&error, Error::Interrupted { on: Some(on), .. } if on.key == b"k"), "{error:?}");
    ended(behind).expect("the exclusive request before it is gone");
    assert!(!table.holds(&b, TREE, b"k") && !b.is_doomed());
    // Pending: the next wait is interrupted as it begins, but a request that needs no wait is granted.
    let request = LockRequest::key(&b, TREE, b"k", X);
    let again = table.wait(&request, LONG, Some(&*interrupt));
    assert!(matches!(again, Err(Error::Interrupted { .. })));
    table.try_point(&b, TREE, b"other", X).expect("free");
    interrupt.clear();
    let granted = wait_broken_by(&table, &b, "k", X, &interrupt);
    table.release_all(&a);
    table.release_all(&c);
    ended(granted).expect("all others have ended");
    interrupt.raise();
    table.release_all(&b);
    assert_eq!(table.stats().timeouts, 0, "an interrupt is no time-out");
    table.assert_empty();
}

#[test]
fn what_a_statement_newly_locked_it_can_give_back() {
    let table = table();
    let (a, b) = (table.txn(1), table.txn(2));
    assert!(table.try_new_point(&a, TREE, b"k", X).expect("free"));
    assert!(!table.give_back_of_statement(&b, TREE, b"k"), "another's");
    assert!(table.give_back_of_statement(&a, TREE, b"k"));
    assert!(!table.give_back_of_statement(&a, TREE, b"k"), "it is gone");
    table.try_point(&b, TREE, b"k", X).expect("it was given back");
    table.release_all(&b);

    // Requested twice, raised, written or of an earlier statement: it stays.
    let b = table.txn(3);
    assert!(table.try_new_point(&a, TREE, b"twice", S).expect("free"));
    assert!(!table.try_new_point(&a, TREE, b"twice", S).expect("its own"));
    assert!(table.try_new_point(&a, TREE, b"more", S).expect("free"));
    assert!(!table.try_new_point(&a, TREE, b"more", X).expect("its own"));
    assert!(table.try_new_point(&a, TREE, b"written", X).expect("free"));
    let held = wait_point(&table, &b, "written", X);
    assert!(table.check_write(&a, TREE, b"written").expect("its own"));
    table.written(&a, TREE, b"written");
    assert!(table.try_new_point(&a, TREE, b"earlier", X).expect("free"));
    a.next_statement();
    for key in ["twice", "more", "written", "earlier"] {
        assert!(!table.give_back_of_statement(&a, TREE, key.as_bytes()), "{key}");
        assert!(table.check_point(&b, TREE, key.as_bytes(), X).is_err(), "{key}");
    }
    // A wait that was granted is a new lock, also after the request is repeated.
    let c = table.txn(4);
    table.try_point(&c, TREE, b"waited", X).expect("free");
    let granted = wait_point(&table, &a, "waited", X);
    table.release_all(&c);
    ended(granted).expect("c has ended");
    assert!(!table.try_point_again(&a, TREE, b"waited", X).expect("it was granted"));
    assert!(table.give_back_of_statement(&a, TREE, b"waited"));
    table.release_all(&a);
    ended(held).expect("a has ended");
    table.release_all(&b);
    table.assert_empty();
}

#[test]
fn who_waits_for_whom_is_told() {
    let table = table();
    let (a, b) = (table.tagged_owner(11), table.tagged_owner(22));
    table.register(&a, TxnId(1));
    table.try_point(&a, TREE, b"k", S).expect("free");
    table.try_point(&b, TREE, b"other", X).expect("free");
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = {
        let (table, told) = (Arc::downgrade(&table), told.clone());
        move |wait: &WaitInfo| {
            // No mutex is held: the table can be called.
            let table = table.upgrade().expect("it is there");
            assert_eq!(table.lock_waits().len(), table.stats().waiting);
            told.lock().push(wait.clone());
        }
    };
    table.set_on_wait(Some(Arc::new(heard)));
    let waits = wait_point(&table, &b, "k", X);
    while told.lock().is_empty() {
        thread::yield_now();
    }
    let wait = told.lock()[0].clone();
    assert_eq!((wait.waiter.tag, wait.waiter.id), (22, TxnId::NONE));
    assert_eq!(wait.holders, [a.party()]);
    assert_eq!((wait.wanted.mode, wait.wanted.on.clone()), (X, LockedOn::row(TREE, b"k")));
    let now = table.lock_waits();
    assert_eq!((now.len(), now[0].waiter, &now[0].holders), (1, wait.waiter, &wait.holders));
    let transactions = table.transactions();
    let tags: Vec<_> = transactions.iter().map(|one| (one.who.tag, one.locked_keys, one.waits_for.is_some())).collect();
    assert_eq!(tags, [(11, 1, false), (22, 1, true)]);

    // b has changed nothing and is younger: it is the victim.
    assert_eq!(table.last_deadlock(), None);
    table.set_on_wait(None);
    let circle = wait_point_of(&table, &a, "other", S);
    let error = ended(waits).expect_err("a circle");
    assert!(matches!(error, Error::Deadlock { .. }), "{error}");
    let deadlock = table.last_deadlock().expect("there was one");
    let (victim, wanted) = &deadlock.parties[deadlock.victim];
    assert_eq!((victim.tag, wanted.on.key.as_slice(), wanted.mode), (22, &b"k"[..], X));
    let (other, wanted) = &deadlock.parties[1 - deadlock.victim];
    assert_eq!((other.tag, other.id, wanted.on.key.as_slice(), wanted.mode), (11, TxnId(1), &b"other"[..], S));
    assert!(table.transactions()[1].is_victim);
    table.release_all(&b);
    ended(circle).expect("b has ended");
    assert_eq!(told.lock().len(), 1, "the callback was removed");
    table.release_all(&a);
    assert!(table.transactions().is_empty() && table.lock_waits().is_empty());
    table.assert_empty();
}

/// As [`wait_point`], for a wait that may end as soon as it has begun.
fn wait_point_of(table: &Arc<LockTable>, owner: &Arc<LockOwner>, key: &'static str, mode: Mode) -> Wait {
    let (table, owner) = (table.clone(), owner.clone());
    thread::spawn(move || table.wait(&LockRequest::key(&owner, TREE, key.as_bytes(), mode), LONG, None))
}

/// The callback interrupts the blocking transaction, or panics: in both cases no waiter is left in a queue.
#[test]
fn a_callback_may_interrupt_and_one_that_panics_leaves_no_wait() {
    let table = table();
    let (a, b) = (table.txn(1), table.txn(2));
    table.try_point(&a, TREE, b"k", X).expect("free");
    let interrupt = Arc::new(Interrupt::default());
    let raised = interrupt.clone();
    table.set_on_wait(Some(Arc::new(move |_: &WaitInfo| raised.raise())));
    let request = LockRequest::key(&b, TREE, b"k", S);
    let broken = table.wait(&request, LONG, Some(&*interrupt));
    assert!(matches!(broken, Err(Error::Interrupted { .. })));
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    table.set_on_wait(Some(Arc::new(move |_: &WaitInfo| {
        called.fetch_add(1, Ordering::Relaxed);
        panic!("the caller's");
    })));
    let panicked = {
        let (table, b) = (table.clone(), b.clone());
        thread::spawn(move || table.wait(&LockRequest::key(&b, TREE, b"k", S), LONG, None))
    };
    assert!(panicked.join().is_err() && calls.load(Ordering::Relaxed) == 1);
    assert_eq!(table.stats().waiting, 0);
    table.release_all(&a);
    table.release_all(&b);
    table.assert_empty();
}
