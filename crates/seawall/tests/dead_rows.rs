//! Rows that are deleted but not purged: they cost a scan nothing after the first time, and rows inserted
//! among them are found.

use seawall::{
    Background, CursorOptions, Database, Env, Error, Isolation, LockMode, LockWait, OnConflict, Options, Seek,
    Transaction, Tree, TxOptions,
};
use seawall_io::SystemClock;
use seawall_sim::{SimDisk, SimOptions};
use std::collections::BTreeSet;
use std::sync::Arc;

const LEVELS: [(Isolation, OnConflict); 4] = [
    (Isolation::ReadCommitted, OnConflict::Latest),
    (Isolation::RepeatableRead, OnConflict::Fail),
    (Isolation::RepeatableRead, OnConflict::Latest),
    (Isolation::Serializable, OnConflict::Fail),
];

/// A database without automatic purge.
fn unpurged() -> Database {
    let disk = SimDisk::new(SimOptions::default());
    let env = Env { disk, clock: Arc::new(SystemClock::default()), seed: 7, background: Background::Steps };
    let mut options = Options::default();
    for (name, value) in
        [("page_size", "4K"), ("pool_size", "32M"), ("data_initial_size", "4M"), ("log_capacity", "64M")]
    {
        options.set(name, value).unwrap();
    }
    Database::open_in(env, "/db", options).unwrap()
}

fn begin(db: &Database, (isolation, on_conflict): (Isolation, OnConflict)) -> Transaction {
    let wait = LockWait::Wait;
    db.begin_with(TxOptions { isolation, on_conflict, wait, ..TxOptions::default() }).unwrap()
}

fn fill(db: &Database, tree: &Tree, rows: u32) {
    db.transact(|tx| (0..rows).try_for_each(|row| tx.put(tree, &row.to_be_bytes(), b"twenty bytes of value"))).unwrap();
}

fn first(tx: &Transaction, tree: &Tree, lock: Option<LockMode>, wait: Option<LockWait>) -> Option<Vec<u8>> {
    let mut cursor = tx.cursor(tree, CursorOptions { lock, wait, ..CursorOptions::default() });
    cursor.seek(Seek::First).unwrap().then(|| cursor.key().to_vec())
}

fn last(tx: &Transaction, tree: &Tree, lock: Option<LockMode>) -> Option<Vec<u8>> {
    let mut cursor = tx.cursor(tree, CursorOptions { lock, ..CursorOptions::default() });
    cursor.seek(Seek::Last).unwrap().then(|| cursor.key().to_vec())
}

fn leaves(db: &Database) -> u64 {
    db.stats().pool.scan_leaves
}

fn key(row: u32) -> Option<Vec<u8>> {
    Some(row.to_be_bytes().to_vec())
}

/// In one transaction, from either end, with or without locks: each read at the end visits few leaves,
/// however many dead rows come first.
#[test]
fn rows_are_popped_one_by_one() {
    const ROWS: u32 = 1_500;
    for level in LEVELS {
        for lock in [None, Some(LockMode::Exclusive)] {
            for front in [true, false] {
                let db = unpurged();
                let tree = db.create_tree("t").unwrap();
                fill(&db, &tree, ROWS);
                let mut tx = begin(&db, level);
                let before = leaves(&db);
                for row in 0..ROWS {
                    let (found, row) = if front {
                        (first(&tx, &tree, lock, None), row)
                    } else {
                        (last(&tx, &tree, lock), ROWS - 1 - row)
                    };
                    assert_eq!(found, key(row), "{level:?}");
                    assert!(tx.delete(&tree, &row.to_be_bytes()).unwrap());
                }
                let visited = leaves(&db) - before;
                assert!(visited < 5 * u64::from(ROWS), "{level:?} {lock:?} {front}: {visited} leaves");
                assert_eq!((first(&tx, &tree, lock, None), last(&tx, &tree, lock)), (None, None));
                assert_eq!(tx.iter(&tree).count(), 0);
            }
        }
    }
}

/// Like the test above, but with a transaction for each row, while a snapshot keeps purge from removing any.
#[test]
fn rows_are_popped_by_many_transactions() {
    const ROWS: u32 = 1_500;
    for level in LEVELS {
        for lock in [None, Some(LockMode::Exclusive)] {
            let db = unpurged();
            let tree = db.create_tree("t").unwrap();
            fill(&db, &tree, ROWS);
            let old = db.begin().unwrap();
            assert_eq!(old.iter(&tree).count() as u32, ROWS);
            let before = leaves(&db);
            for row in 0..ROWS {
                let mut tx = begin(&db, level);
                assert_eq!(first(&tx, &tree, lock, lock.map(|_| LockWait::SkipLocked)), key(row));
                tx.delete(&tree, &row.to_be_bytes()).unwrap();
                tx.commit().unwrap();
                if row % 100 == 0 {
                    db.step().unwrap();
                }
            }
            let visited = leaves(&db) - before;
            assert!(visited < 6 * u64::from(ROWS), "{level:?} {lock:?}: {visited} leaves");
            assert_eq!(first(&old, &tree, None, None), key(0), "an old snapshot sees what it saw");
            assert_eq!(old.iter(&tree).count() as u32, ROWS);
        }
    }
}

/// Transactions that each pop the rows of several leaves: the dead rows of all leaves become one run. Runs
/// with gaps between the leaves would be too many to keep, and each pop would visit all leaves again.
#[test]
fn rows_are_popped_by_long_transactions() {
    const ROWS: u32 = 10_000;
    for level in LEVELS {
        for front in [true, false] {
            let db = unpurged();
            let tree = db.create_tree("t").unwrap();
            fill(&db, &tree, ROWS);
            let before = leaves(&db);
            for batch in 0..ROWS / 1_000 {
                let mut tx = begin(&db, level);
                for row in batch * 1_000..(batch + 1) * 1_000 {
                    let popped = if front { tx.pop_first(&tree) } else { tx.pop_last(&tree) };
                    let row = if front { row } else { ROWS - 1 - row };
                    assert_eq!(popped.unwrap().map(|(key, _)| key), key(row), "{level:?} {front}");
                }
                tx.commit().unwrap();
            }
            let visited = leaves(&db) - before;
            assert!(visited < 2 * u64::from(ROWS), "{level:?} {front}: {visited} leaves");
        }
    }
}

/// A transaction that has popped a row has locked all keys before it: no row can appear there, although rows
/// are inserted among the dead ones at the same moment.
#[test]
fn nothing_appears_before_a_popped_row() {
    const ROWS: u32 = 3_000;
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, ROWS);
    std::thread::scope(|scope| {
        let inserter = scope.spawn(|| {
            let mut seed = 1u32;
            let mut inserted = 0;
            for _ in 0..2_000 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let mut tx = db.begin_with(TxOptions { wait: LockWait::NoWait, ..TxOptions::default() }).unwrap();
                let first = tx.first(&tree).unwrap().map_or(0, |(key, _)| u32::from_be_bytes(key.try_into().unwrap()));
                match tx.insert(&tree, &(seed % (first + 1)).to_be_bytes(), b"among the dead") {
                    Ok(()) => {
                        tx.commit().unwrap();
                        inserted += 1;
                    }
                    Err(Error::LockTimeout { .. } | Error::KeyExists { .. } | Error::WriteConflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            inserted
        });
        let level = (Isolation::RepeatableRead, OnConflict::Latest);
        let mut popped = 0;
        loop {
            let mut tx = begin(&db, level);
            let mut row = None;
            for _ in 0..5 {
                row = tx.pop_first(&tree).unwrap();
                popped += u64::from(row.is_some());
            }
            let Some((last, _)) = row else {
                tx.commit().unwrap();
                break;
            };
            let rest = first(&tx, &tree, Some(LockMode::Exclusive), None);
            assert!(rest.as_ref().is_none_or(|rest| *rest > last), "{rest:?} appeared before {last:?}");
            tx.commit().unwrap();
        }
        let inserted: u64 = inserter.join().unwrap();
        let left = db.begin().unwrap().count(&tree, ..).unwrap();
        assert_eq!(popped + left, u64::from(ROWS) + inserted);
    });
}

/// A row inserted among dead rows is found by every transaction that sees it, and by no other.
#[test]
fn what_comes_to_lie_among_dead_rows_is_found() {
    for level in LEVELS {
        let db = unpurged();
        let tree = db.create_tree("t").unwrap();
        fill(&db, &tree, 1_000);
        db.transact(|tx| tx.delete_range(&tree, ..900u32.to_be_bytes()).map(drop)).unwrap();
        let old = db.begin().unwrap();
        assert_eq!(first(&old, &tree, None, None), key(900));
        for (at, row) in [500u32, 10, 899, 0, 700].into_iter().enumerate() {
            let mut tx = begin(&db, level);
            assert_eq!(first(&tx, &tree, None, None), if at == 0 { key(900) } else { key([500, 10, 10, 0][at - 1]) });
            tx.insert(&tree, &row.to_be_bytes(), b"again").unwrap();
            let least = [500u32, 10, 899, 0, 700][..=at].iter().min().copied().unwrap();
            assert_eq!(first(&tx, &tree, None, None), key(least), "its own");
            assert_eq!(first(&tx, &tree, Some(LockMode::Shared), None), key(least), "its own, locked");
            tx.commit().unwrap();
        }
        assert_eq!(first(&old, &tree, None, None), key(900), "not for an older snapshot");
        let tx = begin(&db, level);
        let rows: Vec<_> = tx.iter(&tree).map(|row| row.unwrap().0).collect();
        let expected: Vec<_> =
            [0u32, 10, 500, 700, 899].into_iter().chain(900..1000).map(|row| row.to_be_bytes().to_vec()).collect();
        assert_eq!(rows, expected);
        let rows: Vec<_> = tx.iter(&tree).rev().map(|row| row.unwrap().0).collect();
        assert!(rows.iter().rev().eq(expected.iter()));
    }
}

/// A rollback restores rows: to a savepoint, of everything, and after a failed statement.
#[test]
fn a_rollback_brings_rows_back() {
    for level in LEVELS {
        for lock in [None, Some(LockMode::Exclusive)] {
            let db = unpurged();
            let tree = db.create_tree("t").unwrap();
            fill(&db, &tree, 500);
            let mut tx = begin(&db, level);
            let pop = |tx: &mut Transaction, rows: u32| {
                for _ in 0..rows {
                    let key = first(tx, &tree, lock, None).unwrap();
                    tx.delete(&tree, &key).unwrap();
                }
            };
            pop(&mut tx, 100);
            let savepoint = tx.savepoint();
            pop(&mut tx, 200);
            assert_eq!(first(&tx, &tree, lock, None), key(300));
            tx.rollback_to(&savepoint).unwrap();
            assert_eq!(first(&tx, &tree, lock, None), key(100));
            pop(&mut tx, 200);
            tx.rollback().unwrap();
            let tx = begin(&db, level);
            assert_eq!((first(&tx, &tree, lock, None), tx.iter(&tree).count()), (key(0), 500));
        }
    }
}

/// A locking read acts on the latest version, a plain one on the snapshot: a row may be dead for one and not
/// for the other.
#[test]
fn what_is_dead_for_a_locking_scan_lives_in_an_older_snapshot() {
    let db = unpurged();
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 300);
    let mut tx = begin(&db, (Isolation::RepeatableRead, OnConflict::Latest));
    assert_eq!(tx.iter(&tree).count(), 300);
    db.transact(|tx| tx.delete_range(&tree, 50u32.to_be_bytes()..250u32.to_be_bytes()).map(drop)).unwrap();
    for row in 0..50u32 {
        assert_eq!(first(&tx, &tree, Some(LockMode::Exclusive), None), key(row));
        tx.delete(&tree, &row.to_be_bytes()).unwrap();
    }
    assert_eq!(first(&tx, &tree, Some(LockMode::Exclusive), None), key(250));
    assert_eq!(first(&tx, &tree, None, None), key(50), "the snapshot");
    assert_eq!(tx.iter(&tree).count(), 250);
    // Where conflicts fail, a row deleted after the snapshot is a conflict.
    fill(&db, &tree, 0);
    let strict = begin(&db, (Isolation::RepeatableRead, OnConflict::Fail));
    assert_eq!(strict.iter(&tree).count(), 100);
    tx.commit().unwrap();
    let mut cursor = strict.cursor(&tree, CursorOptions { lock: Some(LockMode::Shared), ..CursorOptions::default() });
    let conflict = cursor.seek(Seek::First);
    assert!(matches!(conflict, Err(Error::WriteConflict { .. })), "{conflict:?}");
}

#[test]
fn a_cursor_deletes_what_it_stands_on() {
    for level in LEVELS {
        for lock in [None, Some(LockMode::Exclusive)] {
            let db = unpurged();
            let tree = db.create_tree("t").unwrap();
            fill(&db, &tree, 600);
            let mut tx = begin(&db, level);
            let mut cursor = tx.cursor_mut(&tree, CursorOptions { lock, ..CursorOptions::default() });
            assert!(matches!(cursor.delete(), Err(Error::Usage(_))), "it stands on nothing");
            let mut there = cursor.seek(Seek::First).unwrap();
            let mut seen = 0u32;
            while there {
                assert_eq!(cursor.key(), seen.to_be_bytes());
                if seen % 3 != 0 {
                    assert!(cursor.delete().unwrap());
                    assert!(cursor.value().is_err() && matches!(cursor.delete(), Err(Error::Usage(_))));
                }
                seen += 1;
                there = cursor.next().unwrap();
            }
            assert_eq!(seen, 600);
            // Back and forth around its deletions: 300 and 303 exist, the rows between are deleted.
            assert!(cursor.seek(Seek::AtLeast(&300u32.to_be_bytes())).unwrap() && cursor.delete().unwrap());
            assert!(cursor.prev().unwrap());
            assert_eq!(cursor.key(), 297u32.to_be_bytes());
            assert!(cursor.next().unwrap());
            assert_eq!(cursor.key(), 303u32.to_be_bytes(), "not what it has deleted");
            assert!(cursor.delete().unwrap() && cursor.prev().unwrap() && cursor.delete().unwrap());
            assert!(cursor.next().unwrap());
            assert_eq!(cursor.key(), 306u32.to_be_bytes());
            assert!(cursor.seek(Seek::Last).unwrap() && cursor.delete().unwrap());
            assert!(!cursor.next().unwrap());
            drop(cursor);
            let rows: Vec<_> = tx.iter(&tree).map(|row| row.unwrap().0).collect();
            let expected = (0..597u32).step_by(3).filter(|row| ![297, 300, 303].contains(row));
            assert_eq!(rows, expected.map(|row| row.to_be_bytes().to_vec()).collect::<Vec<_>>());
            tx.commit().unwrap();
            assert_eq!(db.check().unwrap(), []);
        }
    }
}

/// Threads add jobs, take the first one, return some and roll some back, at every level, in any order of
/// keys: each job is done once.
#[test]
fn a_queue_loses_nothing_and_gives_nothing_twice() {
    const THREADS: u64 = 4;
    const JOBS: u32 = 250;
    for seed in 0..4u64 {
        let db = Database::in_memory().unwrap();
        let (jobs, done) = (db.create_tree("jobs").unwrap(), db.create_tree("done").unwrap());
        let pinned = db.begin().unwrap();
        assert_eq!(pinned.iter(&jobs).count(), 0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, jobs, done) = (&db, &jobs, &done);
                scope.spawn(move || {
                    let mut dice = (seed * THREADS + thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    let mut roll = |sides: u64| {
                        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        (dice >> 33) % sides
                    };
                    let mut made = 0;
                    while made < JOBS {
                        let mut tx = begin(db, LEVELS[roll(4) as usize]);
                        let before = made;
                        let worked = (|| -> seawall::Result<()> {
                            for _ in 0..=roll(6) {
                                if made < JOBS && roll(2) == 0 {
                                    // A job's key: its urgency, then the thread that created it.
                                    let key =
                                        [&[roll(40) as u8][..], &thread.to_be_bytes(), &made.to_be_bytes()].concat();
                                    tx.insert(jobs, &key, b"to do")?;
                                    made += 1;
                                    continue;
                                }
                                let savepoint = tx.savepoint();
                                let wait = if roll(2) == 0 { LockWait::SkipLocked } else { LockWait::Wait };
                                let lock = Some(LockMode::Exclusive);
                                let options = CursorOptions { lock, wait: Some(wait), ..CursorOptions::default() };
                                let to = if roll(4) == 0 { Seek::Last } else { Seek::First };
                                let mut cursor = tx.cursor_mut(jobs, options);
                                if !cursor.seek(to)? {
                                    continue;
                                }
                                let key = cursor.key().to_vec();
                                cursor.delete()?;
                                tx.insert(done, &key, b"done")?;
                                if roll(5) == 0 {
                                    tx.rollback_to(&savepoint)?;
                                }
                            }
                            Ok(())
                        })();
                        let kept = match worked {
                            Ok(()) if roll(5) != 0 => tx.commit().map(|()| true),
                            Ok(()) | Err(Error::Deadlock { .. } | Error::WriteConflict { .. }) => {
                                tx.rollback().map(|()| false)
                            }
                            Err(error) => panic!("{error}"),
                        };
                        if !kept.unwrap() {
                            made = before;
                        }
                    }
                });
            }
        });
        assert_eq!(pinned.iter(&jobs).count(), 0, "its snapshot");
        let tx = db.begin().unwrap();
        let keys = |tree: &Tree| tx.iter(tree).map(|row| row.unwrap().0).collect::<BTreeSet<_>>();
        let (open, finished) = (keys(&jobs), keys(&done));
        assert!(open.is_disjoint(&finished));
        assert_eq!(open.len() + finished.len(), THREADS as usize * JOBS as usize, "seed {seed}");
        assert_eq!(db.check().unwrap(), []);
    }
}

/// A cursor stands before dead rows while compaction moves its leaf: the cursor's copy says nothing about the leaf that
/// is there now.
#[test]
fn a_moved_leaf_is_not_taken_for_the_copy_of_a_cursor() {
    const ROWS: u32 = 6_000;
    for locking in [false, true] {
        let db = unpurged();
        let tree = db.create_tree("t").unwrap();
        for row in (0..ROWS).map(|row| row * 2_477 % ROWS) {
            db.transact(|tx| tx.put(&tree, &row.to_be_bytes(), b"twenty bytes of value")).unwrap();
        }
        let starts: Vec<u32> = (100..ROWS - 100).step_by(200).collect();
        db.transact(|tx| {
            for row in starts.iter().flat_map(|start| start + 1..=start + 40) {
                tx.delete(&tree, &row.to_be_bytes())?;
            }
            Ok(())
        })
        .unwrap();
        let reader = db.begin().unwrap();
        let mut cursors = Vec::new();
        for start in &starts {
            let mut cursor = reader.cursor(&tree, CursorOptions::default());
            assert!(cursor.seek(Seek::AtLeast(&start.to_be_bytes())).unwrap());
            cursors.push(cursor);
        }
        let done = db.compact(&tree).unwrap().done;
        assert!(done.moved > 20, "{done:?}");
        db.transact(|tx| starts.iter().try_for_each(|start| tx.insert(&tree, &(start + 20).to_be_bytes(), b"new")))
            .unwrap();
        for (cursor, start) in cursors.iter_mut().zip(&starts) {
            assert!(cursor.next().unwrap());
            assert_eq!(cursor.key(), (start + 41).to_be_bytes(), "deleted in its snapshot, and inserted after it");
        }
        let tx = db.begin().unwrap();
        let lock = locking.then_some(LockMode::Shared);
        for start in &starts {
            let mut cursor = tx.cursor(&tree, CursorOptions { lock, ..CursorOptions::default() });
            assert!(cursor.seek(Seek::After(&start.to_be_bytes())).unwrap());
            assert_eq!(cursor.key(), (start + 20).to_be_bytes(), "locking {locking}, from {start}");
        }
        let (key, end) = (starts[0].to_be_bytes(), (starts[0] + 41).to_be_bytes());
        assert_eq!(tx.range(&tree, &key[..]..&end[..]).count(), 2);
    }
}

/// A transaction at read committed has several views: what one of them finds dead next to the transaction's own
/// deletions can be alive in an older one.
#[test]
fn dead_rows_beside_ones_own_are_not_passed_over_by_an_older_view() {
    let db = unpurged();
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 300);
    let mut tx = begin(&db, LEVELS[0]);
    tx.delete(&tree, &201u32.to_be_bytes()).unwrap();
    let mut kept = tx.cursor(&tree, CursorOptions::default());
    assert!(kept.seek(Seek::AtLeast(&99u32.to_be_bytes())).unwrap());
    db.transact(|tx| (100..=200u32).try_for_each(|row| tx.delete(&tree, &row.to_be_bytes()).map(drop))).unwrap();
    let mut newer = tx.cursor(&tree, CursorOptions::default());
    assert!(newer.seek(Seek::AtLeast(&100u32.to_be_bytes())).unwrap());
    assert_eq!(newer.key(), 202u32.to_be_bytes());
    for row in 100..=200u32 {
        assert!(kept.seek(Seek::AtLeast(&row.to_be_bytes())).unwrap());
        assert_eq!(kept.key(), row.to_be_bytes(), "in the view of the cursor");
    }
}
