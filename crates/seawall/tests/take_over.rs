//! A transaction takes over the locks of another whose commit is in the log and not yet flushed.
//!
//! 1. It does not wait for the flush, and changes what the other has written.
//! 2. No view sees either before the flush, and none sees the follower without the one that it follows.
//! 3. A follower that ends, takes a view or gives an answer that no lock keeps true waits for the flush, whatever its
//!    level and even if it has changed nothing or is rolled back: what it has seen survives a crash.
//! 4. A crash before the flush loses both.
//! 5. What relies on views is not taken over: whole trees, the catalog, rows that a snapshot would conflict with.

use seawall::{
    Background, Commit, CursorOptions, Database, Durability, Env, Error, Isolation, LockMode, LockWait, OnConflict,
    Options, OwnedCursor, Seek, Transaction, Tree, TxOptions, Xid,
};
use seawall_io::{Op, SystemClock};
use seawall_sim::{Fault, Process, SimDisk, SimOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn open(disk: &Arc<SimDisk>) -> (Arc<Process>, Database) {
    let process = Arc::new(Process::new(disk));
    let env =
        Env { disk: process.clone(), clock: Arc::new(SystemClock::default()), seed: 1, background: Background::Steps };
    let options = Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20);
    let db = Database::open_in(env, "/db", options).unwrap();
    (process, db)
}

fn latest() -> TxOptions {
    TxOptions { on_conflict: OnConflict::Latest, ..TxOptions::default() }
}

/// A database whose tree has the rows `a` to `e`, each "0".
fn with_rows(disk: &Arc<SimDisk>) -> (Arc<Process>, Database, Tree) {
    let (process, db) = open(disk);
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| ["a", "b", "c", "d", "e"].iter().try_for_each(|key| tx.put(&tree, key, b"0"))).unwrap();
    (process, db, tree)
}

fn begin(db: &Database) -> Transaction {
    db.begin_with(latest()).unwrap()
}

/// Commits a put of every key, up to the wait for the flush.
fn decided(db: &Database, tree: &Tree, keys: &[&str], value: &[u8]) -> Commit {
    let mut tx = begin(db);
    keys.iter().for_each(|key| tx.put(tree, key, value).unwrap());
    tx.commit_start().unwrap()
}

fn seen(db: &Database, tree: &Tree, keys: &str) -> String {
    let value =
        |key: char| db.get(tree, &key.to_string()).unwrap().map_or("-".into(), |v| String::from_utf8(v).unwrap());
    keys.chars().map(value).collect()
}

#[test]
fn a_follower_changes_the_row_and_ends_both() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let mut first = decided(&db, &tree, &["a", "b"], b"1");
    let mut tx = begin(&db);
    assert_eq!(tx.get_for_update(&tree, "a").unwrap().unwrap(), b"1");
    tx.put(&tree, "a", b"2").unwrap();
    assert_eq!(seen(&db, &tree, "ab"), "00", "neither is durable");
    tx.commit().unwrap();
    assert_eq!(db.stats().locks.taken_over, 1);
    // The thread of the first has done nothing yet.
    assert_eq!(seen(&db, &tree, "ab"), "21");
    first.poll().expect("it is flushed").unwrap();
    assert_eq!(seen(&db, &tree, "ab"), "21");
}

/// The last of a chain ends all, though the threads of the others have done nothing yet.
#[test]
fn a_chain_of_followers_ends_in_order() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let first = decided(&db, &tree, &["a", "b"], b"1");
    let second = decided(&db, &tree, &["b", "c"], b"2");
    let third = decided(&db, &tree, &["c", "d"], b"3");
    third.wait().unwrap();
    assert_eq!(seen(&db, &tree, "abcd"), "1233");
    second.wait().unwrap();
    first.wait().unwrap();
    assert_eq!(seen(&db, &tree, "abcd"), "1233");
}

#[test]
fn a_crash_before_the_flush_loses_all_that_follow() {
    for flushed in [false, true] {
        let disk = SimDisk::new(SimOptions::default());
        let (process, db, tree) = with_rows(&disk);
        let first = decided(&db, &tree, &["a", "b"], b"1");
        let second = decided(&db, &tree, &["a", "c"], b"2");
        let mut third = begin(&db);
        third.delete(&tree, "a").unwrap();
        third.put(&tree, "d", b"3").unwrap();
        if flushed {
            second.wait().unwrap();
        } else {
            std::mem::forget(second);
        }
        std::mem::forget((first, third));
        process.crash_by(SimDisk::power_cut);
        drop(db);
        let (_process, db) = open(&disk);
        let tree = db.open_tree("t").unwrap();
        assert_eq!(seen(&db, &tree, "abcd"), if flushed { "2120" } else { "0000" });
    }
}

#[test]
fn a_rollback_of_the_follower_leaves_the_first() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let first = decided(&db, &tree, &["a"], b"1");
    let mut tx = begin(&db);
    tx.put(&tree, "a", b"2").unwrap();
    tx.delete(&tree, "a").unwrap();
    tx.rollback().unwrap();
    let tx = begin(&db);
    assert_eq!(tx.get_for_update(&tree, "a").unwrap().unwrap(), b"1");
    tx.rollback().unwrap();
    first.wait().unwrap();
    assert_eq!(seen(&db, &tree, "a"), "1");
}

/// Whatever level the follower commits at, and however it ends, what it has seen under locks survives.
#[test]
fn what_a_follower_has_seen_survives_its_end() {
    type End = fn(Transaction);
    let ends: [End; 7] = [
        |tx| tx.rollback().unwrap(),
        drop,
        |tx| tx.commit().unwrap(),
        |tx| tx.commit_with(Durability::Deferred).unwrap(),
        |tx| tx.commit_with(Durability::Written).unwrap(),
        |tx| tx.commit_start().unwrap().wait().unwrap(),
        |tx| {
            let mut commit = tx.commit_start().unwrap();
            while commit.poll().is_none_or(|result| result.is_err()) {}
        },
    ];
    for end in ends {
        for change in [false, true] {
            let disk = SimDisk::new(SimOptions::default());
            let (process, db, tree) = with_rows(&disk);
            let first = decided(&db, &tree, &["a"], b"1");
            let mut tx = begin(&db);
            assert_eq!(tx.get_for_share(&tree, "a").unwrap().unwrap(), b"1");
            if change {
                tx.put(&tree, "b", b"2").unwrap();
            }
            end(tx);
            assert_eq!(seen(&db, &tree, "a"), "1", "no view sees the follower's end without the first's");
            std::mem::forget(first);
            process.crash_by(SimDisk::power_cut);
            drop(db);
            let (_process, db) = open(&disk);
            assert_eq!(seen(&db, &db.open_tree("t").unwrap(), "a"), "1");
        }
    }
}

/// A snapshot taken by a follower sees all that it has seen under locks; so do the views of single statements.
#[test]
fn a_view_of_a_follower_sees_those_that_it_follows() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        for on_conflict in [OnConflict::Fail, OnConflict::Latest] {
            let disk = SimDisk::new(SimOptions::default());
            let (_process, db, tree) = with_rows(&disk);
            let first = decided(&db, &tree, &["a", "b", "c"], b"1");
            let mut tx = db.begin_with(TxOptions { isolation, on_conflict, ..TxOptions::default() }).unwrap();
            tx.put(&tree, "a", b"2").unwrap();
            assert_eq!(tx.get(&tree, "b").unwrap().unwrap(), b"1");
            let scanned: Vec<_> = tx.iter(&tree).map(|entry| entry.unwrap().1).collect();
            assert_eq!(scanned, [b"2", b"1", b"1", b"0", b"0"]);
            // What it has seen, it may change.
            assert!(tx.update(&tree, "b", b"3").unwrap());
            first.wait().unwrap();
            let second = decided(&db, &tree, &["d"], b"4");
            drop(second);
            tx.commit().unwrap();
            assert_eq!(seen(&db, &tree, "abcde"), "23140");
        }
    }
}

/// A change without effect is a read: its answer and the snapshot that it takes agree.
#[test]
fn the_answer_of_a_change_without_effect_matches_the_snapshot() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let mut first = begin(&db);
    first.delete(&tree, "a").unwrap();
    first.put(&tree, "f", b"1").unwrap();
    first.put(&tree, "ga", b"1").unwrap();
    let first = first.commit_start().unwrap();
    type Answer = fn(&mut Transaction, &Tree);
    let answers: [Answer; 4] = [
        |tx, tree| assert!(!tx.update(tree, "a", b"2").unwrap()),
        |tx, tree| assert!(!tx.delete(tree, "a").unwrap()),
        |tx, tree| assert!(matches!(tx.insert(tree, "f", b"2"), Err(Error::KeyExists { .. }))),
        |tx, tree| assert!(matches!(tx.insert_unique_prefix(tree, 1, "gb", b"2"), Err(Error::KeyExists { .. }))),
    ];
    for answer in answers {
        let mut tx = db.begin().unwrap();
        answer(&mut tx, &tree);
        let found = ["a", "f", "ga"].map(|key| tx.get(&tree, key).unwrap().is_some());
        assert_eq!(found, [false, true, true]);
        tx.rollback().unwrap();
    }
    first.wait().unwrap();
}

#[test]
fn a_snapshot_that_would_conflict_waits_for_the_end() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let mut old = db.begin().unwrap();
    assert!(old.get(&tree, "e").unwrap().is_some());
    let first = decided(&db, &tree, &["a"], b"1");
    let result = old.put(&tree, "a", b"2");
    assert!(matches!(result, Err(Error::LockTimeout { .. })), "{result:?}");
    first.wait().unwrap();
    let result = old.put(&tree, "a", b"2");
    assert!(matches!(result, Err(Error::WriteConflict { .. })), "{result:?}");
}

#[test]
fn a_lock_of_a_whole_tree_waits_for_the_end() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let first = decided(&db, &tree, &["a"], b"1");
    let mut tx = begin(&db);
    let result = tx.lock_tree(&tree);
    assert!(matches!(result, Err(Error::LockTimeout { .. })), "{result:?}");
    first.wait().unwrap();
    tx.lock_tree(&tree).unwrap();
}

#[test]
fn a_change_of_the_catalog_is_not_taken_over() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let mut tx = begin(&db);
    tx.drop_tree("t").unwrap();
    let first = tx.commit_start().unwrap();
    let mut tx = begin(&db);
    let result = tx.put(&tree, "a", b"1");
    assert!(matches!(result, Err(Error::LockTimeout { .. })), "{result:?}");
    first.wait().unwrap();
    let result = tx.put(&tree, "a", b"1");
    assert!(matches!(result, Err(Error::TreeDropped { .. })), "{result:?}");
}

/// Ranges, rows that are not there, and requests that do not wait.
#[test]
fn all_kinds_of_requests_take_over() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let serializable = TxOptions { isolation: Isolation::Serializable, ..latest() };
    let mut tx = db.begin_with(serializable).unwrap();
    assert_eq!(tx.iter(&tree).count(), 5);
    assert!(tx.get(&tree, "x").unwrap().is_none());
    tx.delete(&tree, "b").unwrap();
    tx.put(&tree, "c", b"1").unwrap();
    let first = tx.commit_start().unwrap();

    let mut tx = begin(&db);
    tx.insert(&tree, "x", b"2").unwrap();
    tx.insert(&tree, "b", b"2").unwrap();
    tx.rollback().unwrap();
    let tx = db.begin_with(serializable).unwrap();
    let rows: Vec<_> = tx.iter(&tree).map(|entry| entry.unwrap().1[0]).collect();
    assert_eq!(rows, *b"0100");
    tx.rollback().unwrap();
    let tx = begin(&db);
    let locked = tx.lock_row(&tree, "c", LockMode::Exclusive, Some(LockWait::NoWait)).unwrap();
    assert_eq!(locked.value.unwrap(), b"1");
    tx.rollback().unwrap();
    let tx = begin(&db);
    let skips =
        CursorOptions { lock: Some(LockMode::Exclusive), wait: Some(LockWait::SkipLocked), ..CursorOptions::default() };
    let mut cursor = tx.cursor(&tree, skips);
    let mut keys = Vec::new();
    let mut there = cursor.seek(Seek::First).unwrap();
    while there {
        keys.push(cursor.key()[0]);
        there = cursor.next().unwrap();
    }
    assert_eq!(keys, *b"acde");
    drop(cursor);
    tx.rollback().unwrap();
    first.wait().unwrap();
}

/// As many as may be in flight at a time: a thread with a small stack ends them all.
#[test]
fn a_long_chain_ends_in_a_loop() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    for fails in [false, true] {
        let mut all: Vec<Commit> = (0..3000).map(|_| decided(&db, &tree, &["a"], b"1")).collect();
        let last = all.pop().unwrap();
        if fails {
            disk.inject(Fault::eio().on(Op::Sync));
        }
        let end = || assert_eq!(last.wait().is_err(), fails);
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(256 << 10);
            small.spawn_scoped(scope, end).unwrap().join().unwrap();
            let small = std::thread::Builder::new().stack_size(256 << 10);
            small.spawn_scoped(scope, || drop(all)).unwrap().join().unwrap();
        });
        assert_eq!(seen(&db, &tree, "a"), "1");
    }
}

/// A conflict with a third transaction makes a follower wait for no flush.
#[test]
fn a_follower_does_no_io_for_a_conflict() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let holder = begin(&db);
    assert!(holder.get_for_update(&tree, "e").unwrap().is_some());
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        for on_conflict in [OnConflict::Fail, OnConflict::Latest] {
            let first = decided(&db, &tree, &["a"], b"1");
            let mut tx = db.begin_with(TxOptions { isolation, on_conflict, ..TxOptions::default() }).unwrap();
            let before = disk.trace().len();
            tx.put(&tree, "a", b"2").unwrap();
            let result = tx.put(&tree, "e", b"2");
            assert!(matches!(result, Err(Error::LockTimeout { .. })), "{result:?}");
            assert_eq!(disk.trace().len(), before, "{isolation:?} {on_conflict:?}");
            tx.rollback().unwrap();
            first.wait().unwrap();
        }
    }
}

/// An answer that no lock keeps true: another transaction may change what it is about, and end. Those that were
/// followed are visible before.
#[test]
fn a_follower_waits_before_an_answer_that_no_lock_keeps_true() {
    type Answer = fn(&mut Transaction, &Tree);
    let answers: [(Isolation, Answer); 10] = [
        (Isolation::RepeatableRead, |tx, tree| assert!(!tx.update(tree, "x", b"2").unwrap())),
        (Isolation::RepeatableRead, |tx, tree| assert!(!tx.delete(tree, "x").unwrap())),
        (Isolation::RepeatableRead, |tx, tree| assert!(!tx.update(tree, "x", &[2; 4096]).unwrap())),
        (Isolation::ReadCommitted, |tx, tree| assert!(tx.insert(tree, "e", b"2").is_err())),
        (Isolation::RepeatableRead, |tx, tree| assert!(tx.insert_unique_prefix(tree, 1, "ex", b"2").is_err())),
        (Isolation::RepeatableRead, |tx, tree| {
            tx.begin_statement();
            assert!(tx.get_for_update(tree, "e").unwrap().is_some());
            assert!(tx.unlock_row(tree, "e").unwrap());
        }),
        (Isolation::ReadCommitted, |tx, tree| {
            let savepoint = tx.savepoint();
            tx.put(tree, "e", b"2").unwrap();
            tx.rollback_to(&savepoint).unwrap();
        }),
        (Isolation::RepeatableRead, |tx, tree| {
            // The prefix is not locked any more: there was no entry with it.
            let savepoint = tx.savepoint();
            tx.insert_unique_prefix(tree, 1, "yx", b"2").unwrap();
            tx.rollback_to(&savepoint).unwrap();
        }),
        (Isolation::RepeatableRead, |tx, _| assert!(matches!(tx.open_tree("x"), Err(Error::NoSuchTree { .. })))),
        (Isolation::ReadCommitted, |tx, tree| {
            let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
            let mut cursor = tx.cursor(tree, options);
            assert!(cursor.seek(Seek::AtLeast(b"d")).unwrap());
        }),
    ];
    for (number, (isolation, answer)) in answers.into_iter().enumerate() {
        let disk = SimDisk::new(SimOptions::default());
        let (_process, db, tree) = with_rows(&disk);
        let first = decided(&db, &tree, &["a", "b"], b"1");
        let mut tx = db.begin_with(TxOptions { isolation, ..latest() }).unwrap();
        tx.put(&tree, "a", b"2").unwrap();
        assert_eq!(seen(&db, &tree, "b"), "0");
        answer(&mut tx, &tree);
        assert_eq!(seen(&db, &tree, "b"), "1", "answer {number}");
        tx.rollback().unwrap();
        first.wait().unwrap();
    }
}

/// A cursor that locks no keys between its rows does not follow at a later step either, though the transaction has
/// taken a snapshot or ended a statement since the first.
#[test]
fn a_later_step_of_a_scan_without_ranges_waits_too() {
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let disk = SimDisk::new(SimOptions::default());
        let (_process, db, tree) = with_rows(&disk);
        let mut tx = db.begin_with(TxOptions { isolation, ..latest() }).unwrap();
        let mut cursor = OwnedCursor::new();
        let wait = (isolation == Isolation::RepeatableRead).then_some(LockWait::SkipLocked);
        cursor.reset(&tree, CursorOptions { lock: Some(LockMode::Exclusive), wait, ..CursorOptions::default() }, ..);
        assert!(cursor.seek(&tx, Seek::AtLeast(b"d")).unwrap());
        if isolation == Isolation::RepeatableRead {
            assert!(tx.get(&tree, "c").unwrap().is_some());
        } else {
            tx.end_statement();
        }
        let first = decided(&db, &tree, &["a", "b"], b"1");
        match tx.get_for_update(&tree, "a") {
            // It would wait for the end.
            Err(Error::LockTimeout { .. }) => assert_eq!(isolation, Isolation::RepeatableRead),
            found => {
                assert_eq!(found.unwrap().unwrap(), b"1");
                assert_eq!(seen(&db, &tree, "b"), "0");
                assert!(cursor.next(&tx).unwrap());
                assert_eq!(seen(&db, &tree, "b"), "1", "{isolation:?}");
            }
        }
        drop(tx);
        first.wait().unwrap();
    }
}

/// A prepared transaction locks nothing more, so it follows nothing: its end in an outside log's order does not wait.
#[test]
fn a_prepared_transaction_locks_nothing_more() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let mut tx = begin(&db);
    tx.put(&tree, "e", b"1").unwrap();
    tx.prepare_in_place(&Xid(b"1".to_vec()), Durability::Flushed).unwrap();
    let first = decided(&db, &tree, &["a"], b"1");
    let refused = tx.get_for_update(&tree, "a");
    assert!(matches!(refused, Err(Error::TransactionEnded { .. })), "{refused:?}");
    let refused = tx.lock_tree(&tree);
    assert!(matches!(refused, Err(Error::TransactionEnded { .. })), "{refused:?}");
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        tx.set_isolation(isolation);
        let mut cursor = OwnedCursor::new();
        cursor.reset(&tree, CursorOptions { lock: Some(LockMode::Shared), ..CursorOptions::default() }, ..);
        assert!(matches!(cursor.seek(&tx, Seek::AtLeast(b"a")), Err(Error::TransactionEnded { .. })));
    }
    tx.commit_ordered().unwrap();
    assert_eq!(seen(&db, &tree, "ae"), "01");
    first.wait().unwrap();
}

/// One that has only read does not keep its locks during the flush either.
#[test]
fn a_reader_that_follows_is_taken_over_too() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let first = decided(&db, &tree, &["a"], b"1");
    let tx = begin(&db);
    assert!(tx.get_for_update(&tree, "a").unwrap().is_some());
    assert!(tx.get_for_update(&tree, "b").unwrap().is_some());
    let reader = tx.commit_start().unwrap();
    let mut tx = begin(&db);
    tx.put(&tree, "a", b"2").unwrap();
    tx.put(&tree, "b", b"2").unwrap();
    tx.commit().unwrap();
    assert_eq!(seen(&db, &tree, "ab"), "22");
    reader.wait().unwrap();
    first.wait().unwrap();
}

/// A snapshot that sees the first does not wait for its thread.
#[test]
fn a_snapshot_that_sees_the_first_takes_over_the_rest_of_its_locks() {
    let disk = SimDisk::new(SimOptions::default());
    let (_process, db, tree) = with_rows(&disk);
    let mut tx = begin(&db);
    assert!(tx.get_for_update(&tree, "b").unwrap().is_some());
    tx.put(&tree, "a", b"1").unwrap();
    let first = tx.commit_start().unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, "a", b"2").unwrap();
    assert_eq!(tx.get(&tree, "b").unwrap().unwrap(), b"0");
    tx.put(&tree, "b", b"2").unwrap();
    tx.commit().unwrap();
    first.wait().unwrap();
    assert_eq!(seen(&db, &tree, "ab"), "22");
}

/// If the log fails, neither the first nor its follower is acknowledged.
#[test]
fn a_failed_flush_fails_the_follower_too() {
    for change in [false, true] {
        let disk = SimDisk::new(SimOptions::default());
        let (_process, db, tree) = with_rows(&disk);
        let first = decided(&db, &tree, &["a"], b"1");
        let mut tx = begin(&db);
        assert!(tx.get_for_update(&tree, "a").unwrap().is_some());
        if change {
            tx.put(&tree, "a", b"2").unwrap();
        }
        disk.inject(Fault::eio().on(Op::Sync));
        let result = tx.commit();
        assert!(matches!(result, Err(Error::OutcomeUnknown { .. } | Error::Poisoned { .. })), "{result:?}");
        let result = first.wait();
        assert!(matches!(result, Err(Error::OutcomeUnknown { .. })), "{result:?}");
        assert_eq!(seen(&db, &tree, "a"), "0");
    }
}

/// Threads count in one row, and note each count in a row of its own and in a second counter. No snapshot sees one
/// without the others, no count is lost, and no acknowledged count is ahead of what the snapshots see afterwards.
#[test]
fn no_snapshot_sees_a_follower_without_those_that_it_follows() {
    const THREADS: usize = 8;
    const COUNTS: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path().join("db"), Options::default().with_pool_size(8 << 20)).unwrap();
    let tree = db.create_tree("t").unwrap();
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let of = |tx: &Transaction, key: &[u8]| tx.get(&tree, key).unwrap().map_or(0, |bytes| number(&bytes));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut views = 0;
            while !stop.load(Ordering::Relaxed) {
                let tx = db.begin().unwrap();
                let second = of(&tx, b"second");
                let first = of(&tx, b"first");
                assert_eq!(first, second);
                if first > 0 {
                    assert!(tx.get(&tree, &[b"n", &first.to_be_bytes()[..]].concat()).unwrap().is_some());
                }
                views += 1;
            }
            views
        });
        let counting: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, tree) = (&db, &tree);
                scope.spawn(move || {
                    for _ in 0..COUNTS / THREADS as u64 {
                        let level = [Durability::Flushed, Durability::Flushed, Durability::Deferred][thread % 3];
                        let options = TxOptions { durability: Some(level), ..latest() };
                        let count = db
                            .transact_with(options, |tx| {
                                let next = tx.get_for_update(tree, "first")?.map_or(0, |bytes| number(&bytes)) + 1;
                                tx.put(tree, "first", &next.to_be_bytes())?;
                                tx.put(tree, &[b"n", &next.to_be_bytes()[..]].concat(), b"")?;
                                tx.put(tree, "second", &next.to_be_bytes())?;
                                Ok::<_, Error>(next)
                            })
                            .unwrap();
                        let tx = db.begin().unwrap();
                        assert!(of(&tx, b"second") >= count, "an acknowledged count is visible");
                    }
                })
            })
            .collect();
        counting.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert!(watching.join().unwrap() > 0);
    });
    assert_eq!(of(&db.begin().unwrap(), b"first"), COUNTS);
    db.close().unwrap();
}
