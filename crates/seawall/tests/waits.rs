//! Waits as a server sees them: bounded, interrupted, reported; released locks, and rows that are read as
//! committed instead of waited for.

use seawall::{
    CursorOptions, Database, Durability, Error, InterruptHandle, Isolation, LockMode, LockOrCommitted, LockWait,
    OnConflict, OwnedCursor, Seek, Transaction, Tree, TxOptions, Xid,
};
use std::sync::Mutex;
use std::time::Duration;

const ALL: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
/// Longer than a test takes: only a wait that fails to end takes so long.
const LONG: LockWait = LockWait::For(Duration::from_secs(600));

fn database() -> (Database, Tree) {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| (0..10u8).try_for_each(|row| tx.put(&tree, &[row], b"old"))).unwrap();
    (db, tree)
}

fn begin(db: &Database, isolation: Isolation, wait: LockWait, tag: u64) -> Transaction {
    db.begin_with(TxOptions { isolation, on_conflict: OnConflict::Latest, wait, tag, ..TxOptions::default() }).unwrap()
}

/// Returns when this many transactions wait.
fn until_waiting(db: &Database, count: usize) {
    while db.lock_waits().len() != count {
        std::thread::yield_now();
    }
}

/// Returns when the callback was told of this many waits: it is not told of a wait that has already ended.
fn until_told<T>(told: &Mutex<Vec<T>>, count: usize) {
    while told.lock().unwrap().len() < count {
        std::thread::yield_now();
    }
}

fn interrupted<T: std::fmt::Debug>(answer: &Result<T, Error>) {
    assert!(matches!(answer, Err(Error::Interrupted { .. })), "{answer:?}");
}

#[test]
fn a_wait_is_as_long_as_the_call_or_the_cursor_says() {
    let (db, tree) = database();
    // A call that used the database's option would wait too long.
    db.set("lock_wait_timeout", "600s").unwrap();
    for isolation in ALL {
        let mut writer = begin(&db, isolation, LockWait::Wait, 0);
        writer.put(&tree, &[3], b"new").unwrap();
        for wait in [LockWait::For(Duration::from_millis(1)), LockWait::For(Duration::ZERO)] {
            let waited = |answer: Result<(), Error>| match answer {
                Err(Error::LockTimeout { on, waited_ms, .. }) => {
                    assert_eq!(on.key, [3]);
                    assert_eq!(waited_ms == 0, wait == LockWait::For(Duration::ZERO), "{wait:?}: {waited_ms} ms");
                }
                other => panic!("{wait:?}: {other:?}"),
            };
            let mut tx = begin(&db, isolation, wait, 0);
            waited(tx.put(&tree, &[3], b"mine"));
            waited(tx.get_for_share(&tree, &[3]).map(drop));
            tx.set_lock_wait(LockWait::Wait);
            waited(tx.lock_row(&tree, &[3], LockMode::Exclusive, Some(wait)).map(drop));
            let options = CursorOptions { lock: Some(LockMode::Shared), wait: Some(wait), ..CursorOptions::default() };
            waited(tx.cursor(&tree, options).seek(Seek::AtLeast(&[3])).map(drop));
        }
    }
}

/// One wait of every kind, with the interrupt before it begins and while it lasts.
#[test]
fn every_wait_for_a_lock_is_interrupted_and_the_transaction_goes_on() {
    type Wait = fn(&mut Transaction, &Tree) -> Result<(), Error>;
    let waits: [(&str, Wait); 6] = [
        ("put", |tx, tree| tx.put(tree, &[3], b"mine")),
        ("long value", |tx, tree| tx.put(tree, &[3], &[1; 30_000])),
        ("lock_row", |tx, tree| tx.lock_row(tree, &[3], LockMode::Shared, None).map(drop)),
        ("cursor", |tx, tree| {
            let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
            let mut cursor = tx.cursor(tree, options);
            let mut there = cursor.seek(Seek::First)?;
            while there {
                there = cursor.next()?;
            }
            Ok(())
        }),
        ("unique", |tx, tree| tx.insert_unique_prefix(tree, 1, &[3], b"mine")),
        ("drop", |tx, _| tx.drop_tree("t")),
    ];
    for isolation in ALL {
        for (name, wait) in waits {
            for before in [true, false] {
                let (db, tree) = database();
                let mut writer = begin(&db, isolation, LONG, 1);
                writer.put(&tree, &[3], b"new").unwrap();
                let mut tx = begin(&db, isolation, LONG, 2);
                tx.put(&tree, &[0], b"kept").unwrap();
                let handle = tx.interrupt_handle();
                std::thread::scope(|scope| {
                    if before {
                        handle.interrupt();
                    } else {
                        scope.spawn(|| {
                            until_waiting(&db, 1);
                            handle.interrupt();
                        });
                    }
                    let answer = wait(&mut tx, &tree);
                    assert!(matches!(answer, Err(Error::Interrupted { .. })), "{name} at {isolation:?}: {answer:?}");
                });
                assert!(db.lock_waits().is_empty() && tx.interrupt_handle().is_interrupted());
                // Its changes stay, calls that need not wait succeed, and when the interrupt is cleared it
                // waits again.
                tx.put(&tree, &[1], b"kept").unwrap();
                writer.commit().unwrap();
                handle.clear();
                assert_eq!(tx.get_for_update(&tree, &[3]).unwrap().as_deref(), Some(&b"new"[..]), "{name}");
                tx.put(&tree, &[3], b"mine").unwrap();
                tx.commit().unwrap();
                let values: Vec<_> = db.begin().unwrap().iter(&tree).take(4).map(|row| row.unwrap().1).collect();
                assert_eq!(values, [&b"kept"[..], b"kept", b"old", b"mine"], "{name}");
            }
        }
    }
}

#[test]
fn an_interrupt_outlives_a_restart_and_ends_an_iterator() {
    let (db, tree) = database();
    let mut tx = begin(&db, Isolation::RepeatableRead, LONG, 0);
    fn is_shared<T: Send + Sync + Clone>(_: &T) {}
    let handle: InterruptHandle = tx.interrupt_handle();
    is_shared(&handle);
    let mut rows = tx.iter(&tree);
    rows.next().unwrap().unwrap();
    handle.interrupt();
    interrupted(&rows.next().unwrap());
    assert!(rows.next().is_none(), "an iterator that has failed has ended");
    drop(rows);
    interrupted(&tx.delete_range::<&[u8]>(&tree, ..));
    interrupted(&tx.put_many(&tree, &[([1u8], b"1"), ([2u8], b"2")]));
    tx.restart(TxOptions { tag: 7, ..TxOptions::default() }).unwrap();
    interrupted(&tx.iter(&tree).next().unwrap());
    tx.commit_in_place().unwrap();
    assert!(tx.interrupt_handle().is_interrupted());
    handle.clear();
    // A cursor that outlives the call keeps its position.
    let mut cursor = OwnedCursor::new();
    cursor.reset(&tree, CursorOptions::default(), ..);
    assert!(cursor.seek(&tx, Seek::AtLeast(&[5])).unwrap());
    handle.interrupt();
    interrupted(&cursor.next(&tx));
    interrupted(&cursor.seek(&tx, Seek::First));
    handle.clear();
    // A step would leave rows out.
    for step in [OwnedCursor::next, OwnedCursor::prev] {
        assert!(matches!(step(&mut cursor, &tx), Err(Error::Usage(_))));
    }
    let mut borrowing = tx.cursor(&tree, CursorOptions::default());
    assert!(borrowing.seek(Seek::AtLeast(&[5])).unwrap());
    handle.interrupt();
    interrupted(&borrowing.seek(Seek::First));
    handle.clear();
    assert!(matches!(borrowing.next(), Err(Error::Usage(_))), "it stood elsewhere before the seek");
    drop(borrowing);
    assert!(cursor.seek(&tx, Seek::AtLeast(&[5])).unwrap());
    handle.interrupt();
    interrupted(&cursor.prev(&tx));
    handle.clear();
    assert!(cursor.next(&tx).unwrap() && cursor.key() == [6]);
    assert_eq!(tx.iter(&tree).count(), 10);
    assert_eq!(tx.delete_range::<&[u8]>(&tree, ..).unwrap(), 10);
    tx.rollback().unwrap();
    // Its transaction has ended: nothing happens.
    handle.interrupt();
}

#[test]
fn a_row_that_is_locked_in_vain_is_given_back() {
    let (db, tree) = database();
    for isolation in ALL {
        let serializable = isolation == Isolation::Serializable;
        let may_lock = |key: u8| {
            let other = begin(&db, isolation, LockWait::NoWait, 0);
            other.get_for_update(&tree, &[key]).is_ok()
        };
        let mut tx = begin(&db, isolation, LockWait::NoWait, 0);
        let lock = |tx: &Transaction, key: u8| tx.lock_row(&tree, &[key], LockMode::Exclusive, None).unwrap();
        // Existing and missing rows.
        for key in [1, 77] {
            assert!(lock(&tx, key).newly_locked && !may_lock(key));
            assert_eq!(tx.unlock_row(&tree, &[key]).unwrap(), !serializable);
            assert_eq!(may_lock(key), !serializable, "{isolation:?}");
        }
        // Locked twice.
        assert!(lock(&tx, 2).newly_locked && !lock(&tx, 2).newly_locked);
        assert!(!tx.unlock_row(&tree, &[2]).unwrap() && !may_lock(2));
        // Written before or after, and undone by a rollback to a savepoint.
        assert!(lock(&tx, 3).newly_locked);
        let savepoint = tx.savepoint();
        tx.put(&tree, &[3], b"new").unwrap();
        assert!(!tx.unlock_row(&tree, &[3]).unwrap() && !lock(&tx, 3).newly_locked && !may_lock(3));
        tx.rollback_to(&savepoint).unwrap();
        assert!(!tx.unlock_row(&tree, &[3]).unwrap() && !may_lock(3), "{isolation:?}: it was locked before");
        // Locked by an earlier statement.
        assert!(lock(&tx, 4).newly_locked);
        tx.begin_statement();
        assert!(!tx.unlock_row(&tree, &[4]).unwrap() && !may_lock(4));
        assert!(!tx.unlock_row(&tree, &[5]).unwrap(), "never locked");
        tx.end_statement();
        // By a cursor that locks only rows.
        let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
        let mut cursor = tx.cursor(&tree, options).within([6u8]..=[8u8]);
        let mut there = cursor.seek(Seek::AtLeast(&[6])).unwrap();
        while there {
            let alone = isolation == Isolation::ReadCommitted;
            assert_eq!(cursor.newly_locked(), alone);
            if cursor.key() == [7] {
                assert_eq!(tx.unlock_row(&tree, &[7]).unwrap(), alone);
            }
            there = cursor.next().unwrap();
        }
        assert_eq!([6, 7, 8].map(may_lock), [false, isolation == Isolation::ReadCommitted, false]);
        tx.commit().unwrap();
        assert!((0..9).all(may_lock));
        assert_eq!(db.stats().locks.held, 0);
    }
}

/// A prepared transaction reads no more: it keeps the rows that it changed or locked exclusively, and no ranges, as
/// after a restart.
#[test]
fn what_was_only_read_is_released_when_it_is_prepared() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        for in_place in [false, true] {
            let (db, tree) = database();
            let mut tx = begin(&db, isolation, LockWait::NoWait, 0);
            tx.lock_row(&tree, &[1], LockMode::Shared, None).unwrap();
            tx.lock_row(&tree, &[2], LockMode::Exclusive, None).unwrap();
            let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
            let mut cursor = tx.cursor(&tree, options).within([4u8]..[9u8]);
            let mut there = cursor.seek(Seek::AtLeast(&[4])).unwrap();
            while there {
                there = cursor.next().unwrap();
            }
            drop(cursor);
            tx.put(&tree, &[5], b"new").unwrap();
            let xid = Xid(b"X".to_vec());
            let writes = |key: &[u8]| {
                let mut other = begin(&db, isolation, LockWait::NoWait, 0);
                other.put(&tree, key, b"other").is_ok()
            };
            assert!(!writes(&[1]) && !writes(&[2]) && !writes(&[4]) && !writes(&[5]) && !writes(&[6, 6]));
            if in_place {
                tx.prepare_in_place(&xid, Durability::Flushed).unwrap();
                assert!(!writes(&[1]), "its user may still hold it");
                drop(tx);
            } else {
                tx.prepare(&xid).unwrap();
            }
            assert_eq!([&[1][..], &[2], &[4], &[5], &[6, 6]].map(writes), [true, false, true, false, true]);
            db.commit_prepared(&xid).unwrap();
            assert!(writes(&[2]) && writes(&[5]));
            assert_eq!(db.stats().locks.held, 0);
        }
    }
}

/// The row of a long value is locked before the value is written.
#[test]
fn a_refused_change_locks_nothing() {
    let (db, tree) = database();
    for (isolation, bytes) in ALL.into_iter().flat_map(|isolation| [5, 100_000].map(|bytes| (isolation, bytes))) {
        let value = vec![7; bytes];
        let mut tx = begin(&db, isolation, LockWait::NoWait, 0);
        assert!(matches!(tx.insert(&tree, &[1], &value), Err(Error::KeyExists { .. })));
        assert!(!tx.update(&tree, &[77], &value).unwrap());
        tx.get_for_update(&tree, &[2]).unwrap();
        assert!(matches!(tx.insert(&tree, &[2], &value), Err(Error::KeyExists { .. })));
        let other = begin(&db, isolation, LockWait::NoWait, 0);
        let locked = [1, 77, 2].map(|key| other.get_for_update(&tree, &[key]).is_err());
        let serializable = isolation == Isolation::Serializable;
        assert_eq!(locked, [serializable, serializable, true], "{isolation:?}, {bytes} bytes");
    }
}

/// A row lock released while another transaction waits for it is granted to that one before the transaction
/// ends.
#[test]
fn who_waits_for_a_row_that_is_given_back_gets_it() {
    let (db, tree) = database();
    let tx = begin(&db, Isolation::ReadCommitted, LONG, 0);
    tx.lock_row(&tree, &[1], LockMode::Exclusive, None).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut other = begin(&db, Isolation::ReadCommitted, LONG, 0);
            let row = other.lock_row(&tree, &[1], LockMode::Exclusive, None).unwrap();
            assert!(row.newly_locked, "it waited for it");
            other.put(&tree, &[1], b"other").unwrap();
            other.commit().unwrap();
        });
        until_waiting(&db, 1);
        assert!(tx.unlock_row(&tree, &[1]).unwrap());
        other.join().unwrap();
    });
    assert_eq!(tx.get(&tree, &[1]).unwrap().as_deref(), Some(&b"other"[..]));
    assert_eq!(db.stats().locks.held, 0);
}

#[test]
fn a_row_that_another_has_is_looked_at_as_it_is_committed() {
    let (db, tree) = database();
    let committed = |value: Option<&[u8]>| LockOrCommitted::Committed(value.map(<[u8]>::to_vec));
    let mut other = begin(&db, Isolation::RepeatableRead, LONG, 0);
    other.put(&tree, &[1], b"new").unwrap();
    other.delete(&tree, &[2]).unwrap();
    other.insert(&tree, &[50], b"new").unwrap();
    other.get_for_update(&tree, &[4]).unwrap();
    other.get_for_update(&tree, &[51]).unwrap();

    let mut tx = begin(&db, Isolation::ReadCommitted, LONG, 0);
    // The current version, whatever the statement's snapshot shows.
    tx.begin_statement();
    assert!(tx.get(&tree, &[9]).unwrap().is_some());
    db.transact(|tx| tx.put(&tree, &[1 + 4], b"later")).unwrap();
    for (key, value) in [(1, Some(&b"old"[..])), (2, Some(b"old")), (50, None), (4, Some(b"old")), (51, None)] {
        assert_eq!(tx.lock_or_committed(&tree, &[key]).unwrap(), committed(value), "{key}");
    }
    assert_eq!(db.stats().locks.waits, 0);
    let LockOrCommitted::Locked(row) = tx.lock_or_committed(&tree, &[5]).unwrap() else { panic!("it is free") };
    assert!(row.newly_locked && row.value.as_deref() == Some(b"later"));
    assert!(tx.unlock_row(&tree, &[5]).unwrap());
    // Its own change.
    tx.put(&tree, &[6], b"mine").unwrap();
    let LockOrCommitted::Locked(row) = tx.lock_or_committed(&tree, &[6]).unwrap() else { panic!("it is its own") };
    assert!(!row.newly_locked && row.value.as_deref() == Some(b"mine"));
    other.commit().unwrap();
    let LockOrCommitted::Locked(row) = tx.lock_or_committed(&tree, &[1]).unwrap() else { panic!("it is free now") };
    assert_eq!(row.value.as_deref(), Some(&b"new"[..]));
    tx.commit().unwrap();

    // At other levels it waits.
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let mut other = begin(&db, isolation, LONG, 0);
        other.put(&tree, &[1], b"newer").unwrap();
        let tx = begin(&db, isolation, LockWait::NoWait, 0);
        assert!(matches!(tx.lock_or_committed(&tree, &[1]), Err(Error::LockTimeout { .. })));
    }
}

/// On a replica, transactions must give way to the one that is to commit first: the callback must be told of the lock's
/// holder too, and not only of the transaction that waits just ahead, which may give up.
#[test]
fn a_wait_is_told_with_all_that_are_ahead() {
    let (db, tree) = database();
    let mut holder = begin(&db, Isolation::ReadCommitted, LONG, 1);
    holder.put(&tree, &[1], b"new").unwrap();
    let told = std::sync::Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    db.on_wait(move |wait| {
        let mut holders: Vec<u64> = wait.holders.iter().map(|holder| holder.tag).collect();
        holders.sort_unstable();
        heard.lock().unwrap().push((wait.waiter.tag, holders));
    })
    .unwrap();
    std::thread::scope(|scope| {
        for (tag, waiting) in [(2, 1), (3, 2)] {
            let (db, tree) = (&db, &tree);
            scope.spawn(move || {
                let mut tx = begin(db, Isolation::ReadCommitted, LONG, tag);
                tx.put(tree, &[1], b"newer").unwrap();
                tx.commit().unwrap();
            });
            until_told(&told, waiting);
        }
        holder.commit().unwrap();
    });
    let told = told.lock().unwrap();
    assert!(told.contains(&(2, vec![1])) && told.contains(&(3, vec![1, 2])), "{told:?}");
}

#[test]
fn who_waits_for_whom_is_known_while_it_waits_and_after_a_deadlock() {
    let (db, tree) = database();
    let mut first = begin(&db, Isolation::ReadCommitted, LONG, 100);
    let second = begin(&db, Isolation::ReadCommitted, LONG, 200);
    first.put(&tree, &[1], b"new").unwrap();
    second.get_for_share(&tree, &[2]).unwrap();
    assert!(db.last_deadlock().is_none() && db.lock_waits().is_empty());
    let told = std::sync::Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    db.on_wait(move |wait| heard.lock().unwrap().push((wait.waiter.tag, wait.holders.clone()))).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let answer = second.get_for_update(&tree, &[1]);
            (second, answer)
        });
        until_told(&told, 1);
        let wait = db.lock_waits().remove(0);
        assert_eq!((wait.waiter.tag, wait.wanted.mode), (200, LockMode::Exclusive));
        assert_eq!((wait.wanted.on.tree, wait.wanted.on.key.as_slice()), (tree.id(), &[1][..]));
        assert_eq!((wait.holders.len(), wait.holders[0].tag, Some(wait.holders[0].id)), (1, 100, first.id()));
        assert_eq!(wait.modes, [Some(LockMode::Exclusive)], "a row that was changed");
        let transactions = db.transactions();
        let all: Vec<_> = transactions.iter().map(|one| (one.who.tag, one.changes, one.waits_for.is_some())).collect();
        assert_eq!(all, [(100, 1, false), (200, 0, true)]);
        // The second has changed nothing: it is the victim.
        let granted = scope.spawn(|| first.put(&tree, &[2], b"new"));
        let (second, answer) = waits.join().unwrap();
        assert!(matches!(answer, Err(Error::Deadlock { .. })), "{answer:?}");
        drop(second);
        granted.join().unwrap().unwrap();
    });
    let deadlock = db.last_deadlock().unwrap();
    assert_eq!(deadlock.parties[deadlock.victim].0.tag, 200);
    let mut wanted: Vec<_> =
        deadlock.parties.iter().map(|(who, wanted)| (who.tag, wanted.on.key.clone(), wanted.on.tree)).collect();
    wanted.sort();
    assert_eq!(wanted, [(100, vec![2], tree.id()), (200, vec![1], tree.id())]);
    let said = deadlock.to_string();
    assert!(said.contains("tag 100") && said.contains("tag 200") && said.contains("gave way"), "{said}");
    first.commit().unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told[0].0, 200);
    assert_eq!(told[0].1.iter().map(|holder| holder.tag).collect::<Vec<_>>(), [100]);
}

/// Two transactions want each other's rows; others queue for one of the rows, ahead of one of the two.
#[test]
fn a_deadlock_has_one_victim_and_none_of_those_that_only_queue() {
    let (db, tree) = database();
    let mut first = begin(&db, Isolation::RepeatableRead, LONG, 1);
    let mut second = begin(&db, Isolation::RepeatableRead, LONG, 2);
    first.put(&tree, &[1], b"first").unwrap();
    second.put(&tree, &[2], b"second").unwrap();
    std::thread::scope(|scope| {
        let queued: Vec<_> = (0..5)
            .map(|n| {
                let (db, tree) = (&db, &tree);
                let queued = scope.spawn(move || {
                    let mut tx = begin(db, Isolation::RepeatableRead, LONG, 10 + n);
                    tx.put(tree, &[1], b"queued").and_then(|()| tx.commit().map(drop))
                });
                until_waiting(db, 1 + n as usize);
                queued
            })
            .collect();
        let tree = &tree;
        let waits = scope.spawn(move || second.put(tree, &[1], b"second").and_then(|()| second.commit().map(drop)));
        until_waiting(&db, 6);
        let closed = first.put(tree, &[2], b"first").and_then(|()| first.commit().map(drop));
        let ended = [closed, waits.join().unwrap()];
        assert_eq!(ended.iter().filter(|end| matches!(end, Err(Error::Deadlock { .. }))).count(), 1, "{ended:?}");
        for queued in queued {
            queued.join().unwrap().unwrap();
        }
    });
    assert_eq!(db.stats().locks.deadlocks, 1);
}

/// A program with an order of its own: a transaction that blocks an earlier one is interrupted.
#[test]
fn a_callback_interrupts_the_transaction_in_the_way() {
    let (db, tree) = database();
    let mut later = begin(&db, Isolation::ReadCommitted, LONG, 2);
    let mut earlier = begin(&db, Isolation::ReadCommitted, LONG, 1);
    let mut third = begin(&db, Isolation::ReadCommitted, LONG, 3);
    later.put(&tree, &[1], b"later").unwrap();
    third.put(&tree, &[2], b"third").unwrap();
    let handle = later.interrupt_handle();
    db.on_wait(move |wait| {
        if wait.waiter.tag == 1 && wait.holders.iter().any(|holder| holder.tag == 2) {
            handle.interrupt();
        }
    })
    .unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            interrupted(&later.put(&tree, &[2], b"later"));
            later.rollback().unwrap();
        });
        until_waiting(&db, 1);
        earlier.put(&tree, &[1], b"earlier").unwrap();
        waits.join().unwrap();
    });
    earlier.commit().unwrap();
    db.forget_on_wait().unwrap();
    third.commit().unwrap();
    assert_eq!(db.get(&tree, &[1]).unwrap().as_deref(), Some(&b"earlier"[..]));
}

/// Several wait for the place of one entry: the first that gets it inserts, and the lock is not passed round among
/// them.
#[test]
fn the_place_of_an_entry_is_kept_until_it_is_inserted() {
    for isolation in ALL {
        let (db, tree) = database();
        let holder = begin(&db, isolation, LONG, 0);
        assert!(holder.get_for_update(&tree, b"pk").unwrap().is_none());
        let inserted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| {
                        let mut tx = begin(&db, isolation, LONG, 0);
                        let inserted = tx.insert_unique_prefix(&tree, 1, b"pk", b"");
                        assert!(matches!(inserted, Ok(()) | Err(Error::KeyExists { .. })), "{inserted:?}");
                        tx.commit().unwrap();
                        inserted.is_ok()
                    })
                })
                .collect();
            until_waiting(&db, 6);
            let before = db.stats().locks.waits;
            holder.rollback().unwrap();
            let inserted = threads.into_iter().map(|thread| thread.join().unwrap());
            let inserted = inserted.filter(|inserted| *inserted).count();
            let waits = db.stats().locks.waits - before;
            assert!(waits <= 3 * 6, "{isolation:?}: {waits} waits");
            inserted
        });
        assert_eq!(inserted, 1, "{isolation:?}");
        assert_eq!(db.stats().locks.held, 0);
    }
}

/// Who waited for a key behind another's range has that key alone, and can give it back: a refused insertion keeps no
/// lock, and a row that a locking read took in vain is free again.
#[test]
fn a_key_that_was_waited_for_behind_a_range_is_given_back() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let (db, tree) = database();
        db.transact(|tx| tx.put(&tree, b"pk", b"")).unwrap();
        for what in ["insertion", "row"] {
            let holder = begin(&db, Isolation::RepeatableRead, LONG, 0);
            let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
            assert!(holder.cursor(&tree, options).seek(Seek::AtLeast(b"p")).unwrap());
            let mut tx = begin(&db, isolation, LONG, 0);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    if what == "insertion" {
                        let refused = tx.insert_unique_prefix(&tree, 1, b"pq", b"");
                        assert!(matches!(refused, Err(Error::KeyExists { .. })), "{refused:?}");
                    } else {
                        let row = tx.lock_row(&tree, b"pk", LockMode::Exclusive, None).unwrap();
                        assert!(row.newly_locked && tx.unlock_row(&tree, b"pk").unwrap(), "{isolation:?}");
                    }
                });
                until_waiting(&db, 1);
                holder.rollback().unwrap();
                waits.join().unwrap();
            });
            let mut other = begin(&db, isolation, LockWait::NoWait, 0);
            let refused = other.insert_unique_prefix(&tree, 1, b"pr", b"");
            assert!(matches!(refused, Err(Error::KeyExists { .. })), "{isolation:?} {what}: {refused:?}");
            other.delete(&tree, b"pk").unwrap();
            other.rollback().unwrap();
            tx.commit().unwrap();
            assert_eq!(db.stats().locks.held, 0);
        }
    }
}

#[test]
fn a_key_that_was_waited_for_behind_a_range_and_then_written_stays_locked() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let (db, tree) = database();
        let holder = begin(&db, Isolation::RepeatableRead, LONG, 0);
        let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
        assert!(holder.cursor(&tree, options).seek(Seek::AtLeast(&[3])).unwrap());
        assert_eq!(db.transactions().len(), 1, "it has a range only");
        let mut tx = begin(&db, isolation, LONG, 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let tx = &mut tx;
                assert!(tx.lock_row(&tree, &[3], LockMode::Exclusive, None).unwrap().newly_locked);
            });
            until_waiting(&db, 1);
            holder.rollback().unwrap();
            waits.join().unwrap();
        });
        let savepoint = tx.savepoint();
        tx.put(&tree, &[3], b"new").unwrap();
        assert!(!tx.unlock_row(&tree, &[3]).unwrap());
        tx.rollback_to(&savepoint).unwrap();
        let refused = begin(&db, isolation, LockWait::NoWait, 0).put(&tree, &[3], b"other");
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{isolation:?}: {refused:?}");
    }
}

/// It waits for another's change, whose outcome then refuses it. At serializable this answer has to stay true.
#[test]
fn a_change_that_is_refused_after_a_wait_leaves_no_lock() {
    type Step = fn(&mut Transaction, &Tree) -> Result<(), Error>;
    let cases: [(u8, Step, Step); 3] = [
        (
            77,
            |tx, tree| tx.put(tree, &[77], b"new"),
            |tx, tree| match tx.insert(tree, &[77], b"mine") {
                Err(Error::KeyExists { .. }) => Ok(()),
                other => panic!("{other:?}"),
            },
        ),
        (
            3,
            |tx, tree| tx.delete(tree, &[3]).map(drop),
            |tx, tree| tx.update(tree, &[3], b"mine").map(|was| assert!(!was)),
        ),
        (3, |tx, tree| tx.delete(tree, &[3]).map(drop), |tx, tree| tx.delete(tree, &[3]).map(|was| assert!(!was))),
    ];
    for isolation in ALL {
        for (key, change, refused) in cases {
            let (db, tree) = database();
            let mut holder = begin(&db, isolation, LONG, 0);
            change(&mut holder, &tree).unwrap();
            let mut tx = begin(&db, isolation, LONG, 0);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| refused(&mut tx, &tree).unwrap());
                until_waiting(&db, 1);
                holder.commit().unwrap();
                waits.join().unwrap();
            });
            let free = begin(&db, isolation, LockWait::NoWait, 0).put(&tree, &[key], b"other");
            assert_eq!(free.is_err(), isolation == Isolation::Serializable, "{isolation:?}: {free:?}");
            tx.commit().unwrap();
        }
    }
}

/// At read committed it then locks nothing there; at the other levels a range, which is not given back.
#[test]
fn a_locking_scan_that_waited_has_what_it_would_have_without() {
    for (isolation, deletes) in [(Isolation::ReadCommitted, true), (Isolation::RepeatableRead, false)] {
        let (db, tree) = database();
        let mut holder = begin(&db, isolation, LONG, 0);
        if deletes { holder.delete(&tree, &[3]).map(drop) } else { holder.put(&tree, &[3], b"new") }.unwrap();
        let mut tx = begin(&db, isolation, LONG, 0);
        let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let tx = &mut tx;
                let mut cursor = tx.cursor(&tree, options);
                assert!(cursor.seek(Seek::AtLeast(&[3])).unwrap());
                (cursor.key().to_vec(), cursor.newly_locked())
            });
            until_waiting(&db, 1);
            holder.commit().unwrap();
            let is_at = if deletes { ([4].to_vec(), true) } else { ([3].to_vec(), false) };
            assert_eq!(waits.join().unwrap(), is_at);
        });
        let free = begin(&db, isolation, LockWait::NoWait, 0).put(&tree, &[3], b"other");
        assert_eq!(free.is_ok(), deletes, "{free:?}");
    }
}

const RANGES: [Isolation; 2] = [Isolation::RepeatableRead, Isolation::Serializable];

/// All keys that a locking cursor of `tx` reaches.
fn lock_all(tx: &Transaction, tree: &Tree, mode: LockMode, forward: bool) -> Result<Vec<u8>, Error> {
    let mut cursor = tx.cursor(tree, CursorOptions { lock: Some(mode), ..CursorOptions::default() });
    let mut found = cursor.seek(if forward { Seek::First } else { Seek::Last })?;
    let mut keys = Vec::new();
    while found {
        keys.push(cursor.key()[0]);
        found = if forward { cursor.next()? } else { cursor.prev()? };
    }
    Ok(keys)
}

/// A scan that waits for a row has not locked that row's place yet: the row's owner can still change it.
#[test]
fn who_has_a_row_changes_it_while_a_scan_waits_for_it() {
    type Step = fn(&mut Transaction, &Tree) -> Result<(), Error>;
    let cases: [(Step, Step); 4] = [
        (|tx, tree| tx.get_for_update(tree, &[3]).map(drop), |tx, tree| tx.put(tree, &[3], b"new")),
        (|tx, tree| tx.get_for_update(tree, &[3]).map(drop), |tx, tree| tx.delete(tree, &[3]).map(drop)),
        (
            |tx, tree| tx.put(tree, &[3], b"new"),
            |tx, tree| match tx.insert(tree, &[3], b"newer") {
                Err(Error::KeyExists { .. }) => Ok(()),
                other => panic!("{other:?}"),
            },
        ),
        (
            |tx, tree| tx.delete(tree, &[3]).map(drop),
            |tx, tree| {
                assert!(!tx.delete(tree, &[3])?);
                tx.put(tree, &[3], b"new")
            },
        ),
    ];
    for isolation in RANGES {
        for forward in [true, false] {
            for (lock, change) in cases {
                let (db, tree) = database();
                let mut owner = begin(&db, isolation, LONG, 1);
                lock(&mut owner, &tree).unwrap();
                std::thread::scope(|scope| {
                    let scan = scope.spawn(|| {
                        let tx = begin(&db, isolation, LONG, 2);
                        lock_all(&tx, &tree, LockMode::Exclusive, forward)
                    });
                    until_waiting(&db, 1);
                    change(&mut owner, &tree).unwrap();
                    owner.commit().unwrap();
                    let there = db.get(&tree, &[3]).unwrap().is_some();
                    let expected = (0..10).filter(|&key| there || key != 3);
                    let mut expected: Vec<u8> = expected.collect();
                    if !forward {
                        expected.reverse();
                    }
                    assert_eq!(scan.join().unwrap().unwrap(), expected);
                });
                assert_eq!(db.stats().locks.deadlocks, 0);
            }
        }
    }
}

/// As above, where the owner of a shared lock waits for another one before it changes the row.
#[test]
fn one_of_two_readers_changes_a_row_while_a_scan_waits_for_both() {
    for isolation in RANGES {
        let (db, tree) = database();
        let mut owner = begin(&db, isolation, LONG, 1);
        let other = begin(&db, isolation, LONG, 2);
        owner.get_for_share(&tree, &[3]).unwrap();
        other.get_for_share(&tree, &[3]).unwrap();
        std::thread::scope(|scope| {
            let scan = scope.spawn(|| {
                let tx = begin(&db, isolation, LONG, 3);
                lock_all(&tx, &tree, LockMode::Exclusive, true)
            });
            until_waiting(&db, 1);
            let change = scope.spawn(|| {
                owner.put(&tree, &[3], b"new").unwrap();
                owner.commit().unwrap();
            });
            until_waiting(&db, 2);
            other.commit().unwrap();
            change.join().unwrap();
            assert_eq!(scan.join().unwrap().unwrap().len(), 10);
        });
        assert_eq!(db.stats().locks.deadlocks, 0);
    }
}

/// A scan that has passed a row holds its place, also that of a row which it waited for and which is gone.
#[test]
fn a_scan_holds_the_place_of_every_row_that_it_has_passed() {
    for isolation in RANGES {
        for (mode, forward) in [(LockMode::Shared, true), (LockMode::Exclusive, true), (LockMode::Exclusive, false)] {
            for deleted in [false, true] {
                let (db, tree) = database();
                let mut owner = begin(&db, isolation, LONG, 1);
                if deleted {
                    owner.delete(&tree, &[3]).unwrap();
                } else {
                    owner.get_for_update(&tree, &[3]).unwrap();
                }
                let scan = std::thread::scope(|scope| {
                    let scan = scope.spawn(|| {
                        let tx = begin(&db, isolation, LONG, 2);
                        assert_eq!(lock_all(&tx, &tree, mode, forward).unwrap().len(), 10 - usize::from(deleted));
                        tx
                    });
                    until_waiting(&db, 1);
                    owner.commit().unwrap();
                    scan.join().unwrap()
                });
                for key in 0..=10 {
                    for key in [&[key][..], &[key, 0]] {
                        let mut late = begin(&db, Isolation::ReadCommitted, LockWait::NoWait, 3);
                        let answer = late.put(&tree, key, b"phantom");
                        assert!(matches!(answer, Err(Error::LockTimeout { .. })), "{key:?}: {answer:?}");
                    }
                }
                scan.rollback().unwrap();
            }
        }
    }
}

/// A scan's own rows are covered too: they may be as before after a rollback to a savepoint.
#[test]
fn a_scan_holds_the_place_of_its_own_rows() {
    let (db, tree) = database();
    for forward in [true, false] {
        let mut tx = begin(&db, Isolation::RepeatableRead, LONG, 1);
        let savepoint = tx.savepoint();
        tx.put(&tree, &[3], b"mine").unwrap();
        assert_eq!(lock_all(&tx, &tree, LockMode::Exclusive, forward).unwrap().len(), 10);
        tx.rollback_to(&savepoint).unwrap();
        let mut late = begin(&db, Isolation::ReadCommitted, LockWait::NoWait, 3);
        assert!(matches!(late.put(&tree, &[3], b"late"), Err(Error::LockTimeout { .. })));
        drop(late);
        tx.rollback().unwrap();
    }
}
