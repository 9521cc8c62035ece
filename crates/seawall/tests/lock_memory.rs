//! Locks of large transactions: other transactions are blocked on locked rows only.
//!
//! 1. A row that a transaction has written, and a unique prefix with an inserted entry, need no lock of their
//!    own: the entry's writer acts as the lock.
//! 2. At read committed, row locks never become a range: a transaction that needs more of them than
//!    `lock_memory_per_transaction` gets an error, or a range if it is `like_innodb`.
//! 3. A request that does not wait leaves nothing behind in the transaction that holds the lock.

use seawall::{
    CursorOptions, Database, Error, Isolation, LockMode, LockWait, OnConflict, Seek, Transaction, Tree, TxOptions,
};

const MANY: u32 = 5_000;

fn database(settings: &[(&str, &str)]) -> Database {
    let db = Database::in_memory().unwrap();
    for (name, value) in settings {
        db.set(name, value).unwrap();
    }
    db
}

fn begin(db: &Database, isolation: Isolation, wait: LockWait) -> Transaction {
    db.begin_with(TxOptions { isolation, on_conflict: OnConflict::Latest, wait, ..TxOptions::default() }).unwrap()
}

fn read_committed(db: &Database) -> Transaction {
    begin(db, Isolation::ReadCommitted, LockWait::NoWait)
}

fn held(db: &Database) -> u64 {
    db.stats().locks.held
}

/// An entry of an index: the column, then the primary key.
fn entry(column: u32, row: u32) -> Vec<u8> {
    [column.to_be_bytes(), row.to_be_bytes()].concat()
}

fn insert_unique(tx: &mut Transaction, tree: &Tree, column: u32, row: u32) -> seawall::Result<()> {
    tx.insert_unique_prefix(tree, 4, &entry(column, row), b"")
}

#[test]
fn many_unique_inserts_keep_no_other_transaction_out() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let db = database(&[]);
        let tree = db.create_tree("index").unwrap();
        let mut large = begin(&db, isolation, LockWait::NoWait);
        for column in 0..MANY {
            insert_unique(&mut large, &tree, column * 2, 1).unwrap();
        }
        assert_eq!(held(&db), 0, "{isolation:?}: the entries are the locks");
        let mut others = 0;
        for column in 0..1_000 {
            let mut other = begin(&db, isolation, LockWait::NoWait);
            insert_unique(&mut other, &tree, column * 2 + 1, 2).unwrap();
            other.insert(&tree, &entry(column * 2 + 1, 3), b"").unwrap();
            others += 1;
            other.commit().unwrap();
        }
        assert_eq!(others, 1_000);
        // Its inserted entries belong to it until it ends.
        let mut other = begin(&db, isolation, LockWait::NoWait);
        let refused = insert_unique(&mut other, &tree, 2, 9).unwrap_err();
        assert!(matches!(refused, Error::LockTimeout { holder, .. } if Some(holder) == large.id()), "{refused}");
        large.commit().unwrap();
        let taken = insert_unique(&mut read_committed(&db), &tree, 2, 9).unwrap_err();
        assert!(matches!(taken, Error::KeyExists { .. }), "{taken}");
    }
}

#[test]
fn two_large_transactions_go_on_side_by_side() {
    let db = database(&[]);
    let tree = db.create_tree("index").unwrap();
    let (mut a, mut b) = (read_committed(&db), read_committed(&db));
    for column in 0..MANY {
        insert_unique(&mut a, &tree, column * 2, 1).unwrap();
        insert_unique(&mut b, &tree, column * 2 + 1, 1).unwrap();
    }
    a.commit().unwrap();
    b.commit().unwrap();
    assert_eq!(db.begin().unwrap().iter(&tree).count() as u32, 2 * MANY);
    let locks = db.stats().locks;
    assert_eq!((locks.deadlocks, locks.timeouts, locks.held), (0, 0, 0));
}

/// An index entry is changed back and forth in one transaction, while another waits for the same column.
#[test]
fn a_unique_prefix_stays_with_its_writer_while_another_waits_for_it() {
    for back in [false, true] {
        let db = database(&[]);
        let tree = db.create_tree("index").unwrap();
        let mut first = begin(&db, Isolation::ReadCommitted, LockWait::Wait);
        let before = first.savepoint();
        insert_unique(&mut first, &tree, 7, 1).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = begin(&db, Isolation::ReadCommitted, LockWait::Wait);
                let inserted = insert_unique(&mut second, &tree, 7, 2);
                inserted.and_then(|()| second.commit())
            });
            while db.stats().locks.waiting == 0 {
                std::thread::yield_now();
            }
            if back {
                first.rollback_to(&before).unwrap();
            } else {
                assert!(first.delete(&tree, &entry(7, 1)).unwrap());
            }
            insert_unique(&mut first, &tree, 7, 3).unwrap();
            assert!(matches!(insert_unique(&mut first, &tree, 7, 4), Err(Error::KeyExists { .. })));
            first.commit().unwrap();
            let answer = second.join().unwrap();
            assert!(matches!(answer, Err(Error::KeyExists { .. })), "{answer:?}");
        });
        assert_eq!(db.stats().locks.deadlocks, 0);
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 1);
    }
}

/// Two transactions are refused because of one row, and neither keeps a lock on it. Both then change the row, as SQL's
/// INSERT ... ON DUPLICATE KEY UPDATE does, one after the other, and neither is a victim.
#[test]
fn a_refused_insert_under_a_unique_prefix_keeps_no_lock() {
    let db = database(&[]);
    let tree = db.create_tree("index").unwrap();
    db.transact(|tx| [7u32, 8].iter().try_for_each(|&column| insert_unique(tx, &tree, column, 1))).unwrap();
    // The prefix is a part of the key, and the whole of it.
    for (column, prefix_bytes) in [(7, 4), (8, 8)] {
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let mut both = [begin(&db, isolation, LockWait::NoWait), begin(&db, isolation, LockWait::NoWait)];
            for tx in &mut both {
                for value in [&b""[..], &[1; 100_000]] {
                    let refused = tx.insert_unique_prefix(&tree, prefix_bytes, &entry(column, 1), value);
                    assert!(matches!(refused, Err(Error::KeyExists { .. })), "{refused:?}");
                }
            }
            assert_eq!(held(&db), 0, "{isolation:?}");
            let [mut first, mut second] = both;
            assert!(first.update(&tree, &entry(column, 1), b"first").unwrap());
            first.commit().unwrap();
            assert!(second.update(&tree, &entry(column, 1), b"second").unwrap());
            second.commit().unwrap();
        }
    }
}

/// Threads insert, delete and insert again under few columns, roll back to savepoints and at the end: at most one entry
/// for a column.
#[test]
fn columns_stay_unique_under_many_threads() {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 150;
    let db = database(&[]);
    let tree = db.create_tree("index").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, tree) = (&db, &tree);
            scope.spawn(move || {
                let mut dice = 0x9E37_79B9_u64.wrapping_mul(u64::from(thread) + 1);
                let mut roll = |sides: u64| {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (dice >> 33) % sides
                };
                for round in 0..ROUNDS {
                    let level = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
                    let mut tx = begin(db, level[roll(3) as usize], LockWait::Wait);
                    let savepoint = tx.savepoint();
                    let mut give_up = roll(4) == 0;
                    for _ in 0..=roll(4) {
                        let column = roll(3) as u32;
                        let done = match roll(4) {
                            0 => tx.rollback_to(&savepoint),
                            1 => {
                                let there = tx.prefix(tree, &column.to_be_bytes()).next().transpose();
                                there.and_then(|there| {
                                    there.map_or(Ok(false), |(key, _)| tx.delete(tree, &key)).map(drop)
                                })
                            }
                            _ => insert_unique(&mut tx, tree, column, thread * ROUNDS + round),
                        };
                        match done {
                            Ok(()) | Err(Error::KeyExists { .. }) => {}
                            Err(Error::Deadlock { .. }) => {
                                give_up = true;
                                break;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                    if give_up {
                        tx.rollback().unwrap();
                    } else {
                        tx.commit().unwrap();
                    }
                    let seen: Vec<Vec<u8>> =
                        db.begin().unwrap().iter(tree).map(|row| row.unwrap().0[..4].to_vec()).collect();
                    assert!(seen.windows(2).all(|two| two[0] != two[1]), "a column twice: {seen:?}");
                }
            });
        }
    });
    assert_eq!(held(&db), 0);
    assert_eq!(db.check().unwrap(), []);
}

#[test]
fn a_row_that_is_written_needs_its_lock_no_longer() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let db = database(&[]);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| (0..100u32).try_for_each(|row| tx.put(&tree, &row.to_be_bytes(), b"old"))).unwrap();
        let mut tx = begin(&db, isolation, LockWait::NoWait);
        let mut most = 0;
        for row in 0..100u32 {
            tx.get_for_update(&tree, &row.to_be_bytes()).unwrap();
            tx.put(&tree, &row.to_be_bytes(), b"new").unwrap();
            most = most.max(held(&db));
        }
        assert_eq!(most, 0, "{isolation:?}");
        let mut other = read_committed(&db);
        for row in 0..100u32 {
            assert!(matches!(other.put(&tree, &row.to_be_bytes(), b"x"), Err(Error::LockTimeout { .. })));
            assert!(matches!(other.get_for_share(&tree, &row.to_be_bytes()), Err(Error::LockTimeout { .. })));
        }
        assert_eq!(held(&db), 0, "who does not wait leaves nothing behind");
        tx.commit().unwrap();
        other.put(&tree, &5u32.to_be_bytes(), b"x").unwrap();
    }
}

/// A row locked before a savepoint stays locked after the rollback to it, whether written in between or not.
#[test]
fn a_lock_from_before_a_savepoint_outlives_the_rollback_to_it() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let db = database(&[]);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| ["a", "b", "c"].iter().try_for_each(|key| tx.put(&tree, key.as_bytes(), b"old"))).unwrap();
        let mut tx = begin(&db, isolation, LockWait::NoWait);
        tx.get_for_update(&tree, b"a").unwrap();
        tx.get_for_share(&tree, b"b").unwrap();
        tx.get_for_update(&tree, b"absent").unwrap();
        let savepoint = tx.savepoint();
        tx.put(&tree, b"a", b"new").unwrap();
        tx.delete(&tree, b"b").unwrap();
        tx.insert(&tree, b"absent", b"new").unwrap();
        tx.rollback_to(&savepoint).unwrap();
        for key in [&b"a"[..], b"b", b"absent"] {
            let refused = read_committed(&db).put(&tree, key, b"x");
            assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{isolation:?}: {refused:?}");
        }
        tx.commit().unwrap();
        read_committed(&db).put(&tree, b"a", b"x").unwrap();
    }
}

/// At read committed a row that was only written, and whose write is rolled back, is unlocked. At the other
/// levels its lock stays.
#[test]
fn a_write_taken_back_leaves_a_lock_but_at_read_committed() {
    for (isolation, stays) in [(Isolation::ReadCommitted, false), (Isolation::RepeatableRead, true)] {
        let db = database(&[]);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put(&tree, b"a", b"old")).unwrap();
        let mut tx = begin(&db, isolation, LockWait::NoWait);
        let savepoint = tx.savepoint();
        tx.put(&tree, b"a", b"new").unwrap();
        tx.insert(&tree, b"b", b"new").unwrap();
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(held(&db), if stays { 2 } else { 0 }, "{isolation:?}");
        let mut other = read_committed(&db);
        assert_eq!(other.put(&tree, b"a", b"x").is_ok(), !stays);
        assert_eq!(other.put(&tree, b"b", b"x").is_ok(), !stays);
    }
}

/// A row that it has read with a lock stays locked, though it had changed the row before.
#[test]
fn a_write_taken_back_leaves_the_lock_of_a_read_after_it() {
    for by_cursor in [false, true] {
        let db = database(&[]);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put(&tree, b"a", b"old")).unwrap();
        let mut tx = begin(&db, Isolation::ReadCommitted, LockWait::NoWait);
        let savepoint = tx.savepoint();
        tx.put(&tree, b"a", b"new").unwrap();
        if by_cursor {
            let options = CursorOptions { lock: Some(LockMode::Exclusive), ..Default::default() };
            assert!(tx.cursor(&tree, options).seek(Seek::First).unwrap());
        } else {
            tx.get_for_update(&tree, b"a").unwrap();
        }
        tx.rollback_to(&savepoint).unwrap();
        assert!(matches!(read_committed(&db).put(&tree, b"a", b"x"), Err(Error::LockTimeout { .. })), "{by_cursor}");
    }
}

#[test]
fn read_committed_is_told_when_its_locks_need_too_much_memory() {
    let db = database(&[("lock_memory_per_transaction", "64K")]);
    let tree = db.create_tree("t").unwrap();
    let rows = 2_000u32;
    db.transact(|tx| (0..rows).try_for_each(|row| tx.put(&tree, &row.to_be_bytes(), b"old"))).unwrap();
    let mut tx = read_committed(&db);
    let refused =
        (0..rows).find_map(|row| tx.get_for_update(&tree, &row.to_be_bytes()).err().map(|error| (row, error)));
    let (at, refused) = refused.expect("64 KiB do not hold 2000 locks");
    assert!(matches!(refused, Error::TooManyLocks { max_bytes: 65_536, .. }), "{refused}");
    assert!(at >= 100, "it has some hundred locks by then: {at}");
    let text = refused.to_string();
    assert!(text.contains("lock_memory_per_transaction") && text.contains("commit"), "{text}");
    assert_eq!(held(&db), u64::from(at));
    // A change needs no memory for its lock, however long the value is.
    tx.put(&tree, &rows.to_be_bytes(), &[1; 100_000]).unwrap();
    assert_eq!(held(&db), u64::from(at));
    // It keeps its locks, and no other row is locked.
    tx.get_for_update(&tree, &0u32.to_be_bytes()).unwrap();
    assert!(matches!(read_committed(&db).put(&tree, &0u32.to_be_bytes(), b"x"), Err(Error::LockTimeout { .. })));
    for row in at..rows {
        read_committed(&db).put(&tree, &row.to_be_bytes(), b"x").unwrap();
    }
    // Writing needs no lock, and releases the locks that it makes unnecessary.
    for row in 0..rows {
        tx.put(&tree, &row.to_be_bytes(), b"new").unwrap();
    }
    assert_eq!(held(&db), 0);
    insert_unique(&mut tx, &tree, 1 << 20, 1).unwrap();
    tx.commit().unwrap();

    db.set("lock_memory_per_transaction", "1M").unwrap();
    let tx = read_committed(&db);
    for row in 0..rows {
        tx.get_for_update(&tree, &row.to_be_bytes()).unwrap();
    }
}

/// A SQL server's transaction goes on instead: it locks a range, as at the other levels.
#[test]
fn read_committed_like_innodb_locks_a_range_instead() {
    let db = database(&[("lock_memory_per_transaction", "64K")]);
    let tree = db.create_tree("t").unwrap();
    let rows = 2_000u32;
    db.transact(|tx| (0..rows).try_for_each(|row| tx.put(&tree, &row.to_be_bytes(), b"old"))).unwrap();
    let options = TxOptions { isolation: Isolation::ReadCommitted, like_innodb: true, ..TxOptions::default() };
    let mut tx = db.begin_with(TxOptions { isolation: Isolation::RepeatableRead, ..options }).unwrap();
    for turn in 0..2 {
        // Also in a transaction that has become read committed, and in one that begins anew.
        tx.set_isolation(Isolation::ReadCommitted);
        for row in 0..rows {
            tx.get_for_update(&tree, &row.to_be_bytes()).unwrap();
            assert!(held(&db) <= 300, "{turn} {row}: {}", held(&db));
        }
        assert!(read_committed(&db).put(&tree, &(rows / 2).to_be_bytes(), b"x").is_err());
        read_committed(&db).put(&tree, &rows.to_be_bytes(), b"x").unwrap();
        tx.restart(options).unwrap();
    }
}

/// At repeatable read, locks beyond the limit become a range: more is locked, memory stays bounded, nothing
/// fails.
#[test]
fn repeatable_read_locks_a_range_instead() {
    let db = database(&[("lock_memory_per_transaction", "64K")]);
    let tree = db.create_tree("t").unwrap();
    let rows = 2_000u32;
    db.transact(|tx| (0..rows).try_for_each(|row| tx.put(&tree, &row.to_be_bytes(), b"old"))).unwrap();
    let tx = begin(&db, Isolation::RepeatableRead, LockWait::NoWait);
    for row in 0..rows {
        tx.get_for_update(&tree, &row.to_be_bytes()).unwrap();
        assert!(held(&db) <= 300, "{row}: {}", held(&db));
    }
    for row in 0..rows {
        assert!(read_committed(&db).put(&tree, &row.to_be_bytes(), b"x").is_err(), "{row}");
    }
    read_committed(&db).put(&tree, &rows.to_be_bytes(), b"x").unwrap();
}

/// A queue whose rows a large transaction has locked: readers that skip them leave nothing behind.
#[test]
fn who_skips_locked_rows_adds_no_locks() {
    let db = database(&[]);
    let tree = db.create_tree("queue").unwrap();
    db.transact(|tx| (0..1_001u32).try_for_each(|row| tx.put(&tree, &row.to_be_bytes(), b"job"))).unwrap();
    let mut writer = read_committed(&db);
    for row in 0..1_000u32 {
        writer.delete(&tree, &row.to_be_bytes()).unwrap();
    }
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let tx = begin(&db, isolation, LockWait::Wait);
        let options =
            CursorOptions { lock: Some(LockMode::Exclusive), wait: Some(LockWait::SkipLocked), ..Default::default() };
        let mut cursor = tx.cursor(&tree, options);
        assert!(cursor.seek(Seek::First).unwrap());
        assert_eq!(cursor.key(), 1_000u32.to_be_bytes());
        assert_eq!(held(&db), 1, "{isolation:?}: the row it has taken");
    }
    writer.commit().unwrap();
}
