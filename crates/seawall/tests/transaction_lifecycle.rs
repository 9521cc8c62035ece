//! Defects between transactions: each test is a scenario that once failed.

use seawall::{
    Background, CursorOptions, Database, Env, Error, Isolation, LockMode, LockWait, OnConflict, Options, Seek, Task,
    Transaction, Tree, TxOptions, Xid,
};
use seawall_io::Op;
use seawall_sim::{Fault, Process, SimDisk, SimOptions};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[path = "support/dying_process.rs"]
#[allow(dead_code)] // shared with tests that need more of it
mod dying_process;
use dying_process::{DyingProcess, End};

fn small() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
}

fn disk() -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed: 11, ..SimOptions::default() })
}

fn open(disk: &Arc<SimDisk>) -> (Arc<Process>, Database) {
    let process = Arc::new(Process::new(disk));
    let db = open_on(process.clone()).unwrap();
    (process, db)
}

fn open_on(disk: Arc<dyn seawall_io::Disk>) -> Result<Database, Error> {
    let clock = Arc::new(seawall_io::SystemClock::default());
    Database::open_in(Env { disk, clock, seed: 1, background: Background::Steps }, "/db", small())
}

fn settle(db: &Database) {
    while db.step_task(Task::Rollback).unwrap() || db.step_task(Task::Purge).unwrap() {}
}

fn at(isolation: Isolation) -> TxOptions {
    TxOptions { isolation, on_conflict: OnConflict::Latest, ..TxOptions::default() }
}

fn fill(db: &Database, tree: &Tree, keys: std::ops::Range<u32>, value: &[u8]) {
    db.transact(|tx| keys.clone().try_for_each(|key| tx.put(tree, &key.to_be_bytes(), value))).unwrap();
}

#[expect(clippy::needless_pass_by_value, reason = "it is made to be asserted")]
fn is_blocked<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::LockTimeout { .. })), "{result:?}");
}

/// The last handle of the database is dropped before a transaction: the rollback must come before the clean
/// end.
#[test]
fn a_transaction_may_outlive_the_last_handle() {
    let disk = disk();
    {
        let (_process, db) = open(&disk);
        let tree = db.create_tree("t").unwrap();
        fill(&db, &tree, 0..4000, &[1; 400]);
        let mut tx = db.begin().unwrap();
        for key in 0..4000u32 {
            tx.put(&tree, &key.to_be_bytes(), &[2; 400]).unwrap();
        }
        drop(db);
        drop(tx);
    }
    let (_process, db) = open(&disk);
    assert!(!db.step_task(Task::Rollback).unwrap(), "it was rolled back before the database was closed");
    let tree = db.open_tree("t").unwrap();
    let tx = db.begin().unwrap();
    assert!(tx.iter(&tree).all(|entry| entry.unwrap().1 == [1; 400]));
}

/// Like the test above, for a commit without waiting.
#[test]
fn a_commit_may_outlive_the_last_handle() {
    let disk = disk();
    {
        let (_process, db) = open(&disk);
        let tree = db.create_tree("t").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&tree, b"k", b"v").unwrap();
        let commit = tx.commit_start().unwrap();
        drop(db);
        drop(commit);
    }
    let (_process, db) = open(&disk);
    let tree = db.open_tree("t").unwrap();
    assert!(db.begin().unwrap().get(&tree, b"k").unwrap().is_some());
}

/// A prepared transaction that drops a tree excludes others from it after a restart, too: otherwise the
/// commit would free pages that a live transaction has changed, and that transaction could never be rolled
/// back.
#[test]
fn a_prepared_drop_keeps_writers_out_after_a_restart() {
    let disk = disk();
    let (process, db) = open(&disk);
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 0..10, b"x");
    let mut tx = db.begin().unwrap();
    tx.drop_tree("t").unwrap();
    tx.prepare(&Xid(b"x".to_vec())).unwrap();
    process.crash_by(SimDisk::power_cut);
    drop(db);

    let (_process, db) = open(&disk);
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.begin().unwrap().iter(&tree).count(), 10);
    let mut tx = db.begin().unwrap();
    is_blocked(tx.put(&tree, b"new", b"y"));
    is_blocked(tx.get_for_update(&tree, &1u32.to_be_bytes()));
    tx.rollback().unwrap();
    db.commit_prepared(&Xid(b"x".to_vec())).unwrap();
    settle(&db);
    let mut tx = db.begin().unwrap();
    assert!(matches!(tx.put(&tree, b"new", b"y"), Err(Error::TreeDropped { .. })));
    tx.rollback().unwrap();
    settle(&db);
}

#[test]
fn a_prepared_drop_that_is_rolled_back_after_a_restart_lets_writers_in() {
    let disk = disk();
    let (process, db) = open(&disk);
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 0..10, b"x");
    let mut tx = db.begin().unwrap();
    tx.drop_tree("t").unwrap();
    tx.prepare(&Xid(b"x".to_vec())).unwrap();
    process.crash_by(SimDisk::power_cut);
    drop(db);

    let (_process, db) = open(&disk);
    db.rollback_prepared(&Xid(b"x".to_vec())).unwrap();
    let tree = db.open_tree("t").unwrap();
    fill(&db, &tree, 5..20, b"y");
    assert_eq!(db.begin().unwrap().iter(&tree).count(), 20);
}

/// A prepared transaction may wait for days: it delays the dropping of trees that it changed, and of no
/// others.
#[test]
fn a_prepared_transaction_after_a_restart_holds_up_only_its_own_trees() {
    let disk = disk();
    let (process, db) = open(&disk);
    let (mine, other) = (db.create_tree("mine").unwrap(), db.create_tree("other").unwrap());
    fill(&db, &other, 0..10, b"x");
    let mut tx = db.begin().unwrap();
    tx.put(&mine, b"k", b"v").unwrap();
    tx.prepare(&Xid(b"x".to_vec())).unwrap();
    process.crash_by(SimDisk::power_cut);
    drop(db);

    let (_process, db) = open(&disk);
    db.drop_tree("other").unwrap();
    is_blocked(db.drop_tree("mine"));
    db.commit_prepared(&Xid(b"x".to_vec())).unwrap();
    db.drop_tree("mine").unwrap();
    settle(&db);
}

/// The coordinator has been told that the transaction is rolled back, and forgets it.
#[test]
fn what_was_prepared_and_rolled_back_does_not_come_back() {
    let disk = disk();
    let (process, db) = open(&disk);
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"k", b"v").unwrap();
    tx.prepare(&Xid(b"x".to_vec())).unwrap();
    db.rollback_prepared(&Xid(b"x".to_vec())).unwrap();
    process.crash_by(SimDisk::power_cut);
    drop(db);
    let (_process, db) = open(&disk);
    assert_eq!(db.prepared(), []);
}

/// Another transaction uses the handle of a tree that is not committed yet.
#[test]
fn no_other_transaction_writes_to_a_tree_before_it_is_committed() {
    let (_process, db) = open(&disk());
    let mut maker = db.begin().unwrap();
    let tree = maker.create_tree("t").unwrap();
    maker.put(&tree, b"mine", b"1").unwrap();
    let mut tx = db.begin().unwrap();
    is_blocked(tx.put(&tree, b"k", b"v"));
    assert_eq!(tx.get(&tree, b"mine").unwrap(), None);
    maker.rollback().unwrap();
    assert!(matches!(tx.put(&tree, b"k", b"v"), Err(Error::TreeDropped { .. })));
    tx.rollback().unwrap();

    let mut maker = db.begin().unwrap();
    let tree = maker.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    is_blocked(tx.put(&tree, b"k", b"v"));
    maker.commit().unwrap();
    tx.put(&tree, b"k", b"v").unwrap();
    tx.commit().unwrap();
}

fn keys(tx: &Transaction, tree: &Tree, options: CursorOptions) -> Vec<u32> {
    let mut cursor = tx.cursor(tree, options);
    let (mut keys, mut there) = (Vec::new(), cursor.seek(Seek::First).unwrap());
    while there {
        keys.push(u32::from_be_bytes(cursor.key().try_into().unwrap()));
        there = cursor.next().unwrap();
    }
    keys
}

#[test]
fn a_cursor_that_skips_locked_rows_skips_them_at_every_level() {
    let (_process, db) = open(&disk());
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 0..5, b"x");
    let mut writer = db.begin().unwrap();
    writer.put(&tree, &1u32.to_be_bytes(), b"y").unwrap();
    assert!(writer.get_for_update(&tree, &3u32.to_be_bytes()).unwrap().is_some());
    let skipping =
        CursorOptions { lock: Some(LockMode::Exclusive), wait: Some(LockWait::SkipLocked), ..CursorOptions::default() };
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let tx = db.begin_with(at(isolation)).unwrap();
        assert_eq!(keys(&tx, &tree, skipping), [0, 2, 4], "{isolation:?}");
    }
    // A plain read of a serializable transaction skips no row, whatever its options say about locks.
    let tx = db.begin_with(TxOptions { wait: LockWait::SkipLocked, ..at(Isolation::Serializable) }).unwrap();
    let read: Result<Vec<_>, _> = tx.iter(&tree).collect();
    is_blocked(read);
    // Nor does one that is asked to skip, without a lock of its own.
    let mut plain = tx.cursor(&tree, CursorOptions { wait: Some(LockWait::SkipLocked), ..CursorOptions::default() });
    is_blocked((0..5u32).try_for_each(|row| plain.seek(Seek::AtLeast(&row.to_be_bytes())).map(drop)));
}

/// A change that did nothing, or failed, reveals what was there: a serializable transaction has read it.
#[test]
fn what_a_serializable_change_tells_stays_true() {
    let (_process, db) = open(&disk());
    let tree = db.create_tree("t").unwrap();
    let insert = |key: &[u8]| db.transact(|tx| tx.put(&tree, key, b"x"));
    insert(b"there").unwrap();
    let mut tx = db.begin_with(at(Isolation::Serializable)).unwrap();
    assert!(!tx.delete(&tree, b"absent 1").unwrap());
    assert!(!tx.update(&tree, b"absent 2", b"v").unwrap());
    assert!(matches!(tx.insert(&tree, b"there", b"v"), Err(Error::KeyExists { .. })));
    is_blocked(insert(b"absent 1"));
    is_blocked(insert(b"absent 2"));
    is_blocked(db.transact(|tx| tx.delete(&tree, b"there")));
    tx.commit().unwrap();
    insert(b"absent 1").unwrap();
}

/// Write skew through the answers of changes that are rolled back.
#[test]
fn rolling_back_to_a_savepoint_keeps_the_locks_of_what_is_taken_back() {
    let (_process, db) = open(&disk());
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| ["u", "d"].iter().try_for_each(|key| tx.put(&tree, key.as_bytes(), b"x"))).unwrap();
    let mut tx = db.begin_with(at(Isolation::Serializable)).unwrap();
    let savepoint = tx.savepoint();
    tx.insert(&tree, b"i", b"v").unwrap();
    tx.put(&tree, b"u", b"v").unwrap();
    tx.delete(&tree, b"d").unwrap();
    tx.rollback_to(&savepoint).unwrap();
    for key in [b"i", b"u", b"d"] {
        is_blocked(db.transact(|tx| tx.put(&tree, key, b"other")));
    }
    tx.insert(&tree, b"i", b"v").unwrap();
    tx.commit().unwrap();
    db.transact(|tx| tx.put(&tree, b"u", b"other")).unwrap();
}

/// A step that met a lock can be repeated: it neither ends the scan nor skips a row.
#[test]
fn a_cursor_goes_on_after_a_lock_timeout() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let (_process, db) = open(&disk());
        let tree = db.create_tree("t").unwrap();
        fill(&db, &tree, 0..4, b"x");
        let mut writer = db.begin().unwrap();
        writer.put(&tree, &2u32.to_be_bytes(), b"y").unwrap();
        let tx = db.begin_with(at(isolation)).unwrap();
        let mut cursor = tx.cursor(&tree, CursorOptions { lock: Some(LockMode::Shared), ..CursorOptions::default() });
        assert!(cursor.seek(Seek::First).unwrap());
        assert!(cursor.next().unwrap());
        is_blocked(cursor.next());
        is_blocked(cursor.next());
        writer.commit().unwrap();
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), 2u32.to_be_bytes());
        assert_eq!(cursor.value().unwrap(), b"y");
        assert!(cursor.next().unwrap());
        assert!(!cursor.next().unwrap());
    }
}

/// A closure called with a page must not request another one: it would wait for itself.
#[test]
fn a_closure_that_calls_the_database_is_refused() {
    let (_process, db) = open(&disk());
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 0..3, b"x");
    let tx = db.begin().unwrap();
    let key = 1u32.to_be_bytes();
    let inner = tx.get_with(&tree, &key, |_| {
        let mut other = db.begin().unwrap();
        let written = other.put(&tree, &key, b"y");
        let more = [
            tx.get(&tree, &key).map(drop),
            db.set("pool_size", "512K"),
            db.step_task(Task::Clean).map(drop),
            db.check().map(drop),
            db.checkpoint(),
        ];
        (more, written)
    });
    let (more, written) = inner.unwrap().unwrap();
    for refused in more.iter().chain([&written]) {
        assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
    }
    settle(&db);
    assert_eq!(tx.get(&tree, &key).unwrap().as_deref(), Some(&b"x"[..]));
    db.transact(|tx| tx.put(&tree, &key, b"z")).unwrap();
}

/// Its rollback fails, too, because the log has failed.
#[test]
fn the_error_of_a_closure_is_returned_whatever_its_rollback_says() {
    let disk = disk();
    let (_process, db) = open(&disk);
    let tree = db.create_tree("t").unwrap();
    let refused = db.transact(|tx| -> Result<(), Error> {
        tx.put(&tree, b"k", b"v")?;
        disk.inject(Fault::eio().on(Op::Write));
        assert!(db.flush_log().is_err());
        Err(Error::Usage("refused by the program".into()))
    });
    assert!(matches!(&refused, Err(Error::Usage(why)) if why == "refused by the program"), "{refused:?}");
}

/// The first changes are rolled back, and later ones are in another undo page than the transaction's
/// beginning.
#[test]
fn a_transaction_whose_records_all_lie_behind_its_first_page_can_be_rolled_back() {
    let (_process, db) = open(&disk());
    let tree = db.create_tree("t").unwrap();
    let keys: Vec<[u8; 4]> = (0..40u32).map(u32::to_be_bytes).collect();
    db.transact(|tx| keys.iter().try_for_each(|key| tx.put(&tree, key, &[1; 900]))).unwrap();
    for key in &keys {
        let mut tx = db.begin().unwrap();
        let savepoint = tx.savepoint();
        // Its first record is a short one.
        tx.put(&tree, b"new", &[3; 5000]).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        tx.put(&tree, key, b"y").unwrap();
        tx.rollback().unwrap();
        // Advances the end of the undo page.
        db.transact(|tx| tx.put(&tree, b"filler", &[2; 50])).unwrap();
    }
    assert!(db.begin().unwrap().iter(&tree).take(40).all(|entry| entry.unwrap().1 == [1; 900]));
    settle(&db);
    assert_eq!(db.stats().txn.active, 0);
    assert_eq!(db.check().unwrap(), []);
}

/// A long value takes pages before its row is changed: not from a dropped tree, where they would never be
/// freed.
#[test]
fn a_long_value_takes_no_page_of_a_dropped_tree() {
    let (_process, db) = open(&disk());
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 0..10, &[1; 3000]);
    db.drop_tree("t").unwrap();
    settle(&db);
    let mut tx = db.begin().unwrap();
    assert!(matches!(tx.put(&tree, b"k", &[1; 30_000]), Err(Error::TreeDropped { .. })));
    assert!(matches!(tx.insert_unique_prefix(&tree, 1, b"k", b"v"), Err(Error::TreeDropped { .. })));
    tx.rollback().unwrap();
    assert_eq!(db.check().unwrap(), []);
}

/// Rolling back to a savepoint invalidates later savepoints. They must not be taken for others, or for the
/// beginning.
#[test]
fn a_savepoint_goes_with_the_rollback_to_an_earlier_one() {
    let (_process, db) = open(&disk());
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"first", b"1").unwrap();
    let early = tx.savepoint();
    tx.put(&tree, b"a", b"1").unwrap();
    tx.put(&tree, b"b", b"1").unwrap();
    let late = tx.savepoint();
    tx.put(&tree, b"c", b"1").unwrap();
    tx.rollback_to(&late).unwrap();
    tx.rollback_to(&late).unwrap();
    tx.rollback_to(&early).unwrap();
    assert!(matches!(tx.rollback_to(&late), Err(Error::Usage(_))));
    for key in [b"d", b"e", b"f"] {
        tx.put(&tree, key, &[7; 100]).unwrap();
    }
    let new = tx.savepoint();
    tx.delete(&tree, b"d").unwrap();
    assert!(matches!(tx.rollback_to(&late), Err(Error::Usage(_))));
    tx.rollback_to(&new).unwrap();
    assert_eq!(tx.iter(&tree).count(), 4);
    tx.rollback_to(&early).unwrap();
    assert!(matches!(tx.rollback_to(&new), Err(Error::Usage(_))));
    tx.commit().unwrap();
    assert_eq!(db.begin().unwrap().iter(&tree).count(), 1);
}

/// Creates, drops and renames trees with long values in them, undoes some of it, and leaves the transaction
/// prepared.
fn prepare_everything(db: &Database) -> Result<(), Error> {
    let (kept, dropped) = (db.create_tree("kept")?, db.create_tree("dropped")?);
    db.transact(|tx| {
        for key in 0..12u32 {
            tx.put(&kept, &key.to_be_bytes(), &vec![1; 500 * key as usize])?;
            tx.put(&dropped, &key.to_be_bytes(), &vec![1; 700 * key as usize])?;
        }
        Ok(())
    })?;
    let mut tx = db.begin()?;
    let made = tx.create_tree("made")?;
    for key in 0..12u32 {
        tx.put(&made, &key.to_be_bytes(), &vec![2; 600 * key as usize])?;
        tx.put(&kept, &key.to_be_bytes(), &vec![2; 6000 - 500 * key as usize])?;
    }
    let savepoint = tx.savepoint();
    tx.delete(&kept, &11u32.to_be_bytes())?;
    tx.create_tree("undone")?;
    tx.rollback_to(&savepoint)?;
    tx.put(&dropped, b"last", &[3; 9000])?;
    tx.drop_tree("dropped")?;
    tx.rename_tree("made", "renamed")?;
    tx.prepare(&Xid(b"x".to_vec()))
}

fn end(db: &Database, commit: bool) -> Result<(), Error> {
    let xid = Xid(b"x".to_vec());
    if db.prepared().is_empty() {
        return Ok(());
    }
    if commit {
        db.commit_prepared(&xid)?;
    } else {
        db.rollback_prepared(&xid)?;
    }
    while db.step_task(Task::Rollback)? || db.step_task(Task::Purge)? {}
    db.checkpoint()
}

/// Power fails at regular numbers of operations, twice; prepared transactions are ended after the second
/// time, completely, and nothing is left over.
#[test]
fn two_phases_over_trees_survive_a_power_cut_anywhere() {
    for commit in [true, false] {
        let mut after = 1;
        loop {
            let disk = disk();
            drop(open(&disk));
            let dying = DyingProcess::new(&disk, End::PowerCut, Some(after));
            if let Ok(db) = open_on(dying.clone()) {
                if prepare_everything(&db).and_then(|()| end(&db, commit)).is_ok() && !dying.is_dead() {
                    break;
                }
            }
            dying.dies_now();
            let how = if after % 2 == 0 { End::PowerCut } else { End::Killed };
            let dying = DyingProcess::new(&disk, how, Some(after % 53));
            if let Ok(db) = open_on(dying.clone()) {
                // Power may fail meanwhile.
                drop(end(&db, commit));
            }
            dying.dies_now();
            let (_process, db) = open(&disk);
            end(&db, commit).unwrap();
            settle(&db);
            let trees = db.trees().unwrap();
            let has = |name: &str| trees.iter().any(|tree| tree == name);
            assert!(
                !has("made") && !has("undone") && has("renamed") as usize + has("dropped") as usize <= 1,
                "{trees:?}"
            );
            if has("renamed") {
                let kept = db.open_tree("kept").unwrap();
                let tx = db.begin().unwrap();
                assert!(tx.iter(&kept).all(|entry| entry.unwrap().1.iter().all(|byte| *byte == 2)), "after {after}");
            }
            assert_eq!(db.check().unwrap(), [], "after {after}");
            drop(db);
            after += if cfg!(debug_assertions) { 3 } else { 1 };
        }
        assert!(after > 30, "{after}");
        println!("{after} operations");
    }
}

/// A rollback to a savepoint stopped halfway: what is left of the statement must not be committed.
#[test]
fn a_rollback_to_a_savepoint_that_stopped_halfway_is_ended_first() {
    let disk = disk();
    let (_process, db) = open(&disk);
    let (tree, other) = (db.create_tree("t").unwrap(), db.create_tree("other").unwrap());
    let row = |key: u32, byte: u8| (key.to_be_bytes(), vec![byte; 900]);
    db.transact(|tx| tx.put_rows(&tree, (0..200).map(|key| row(key, 1)))).unwrap();
    db.transact(|tx| tx.put_rows(&other, (0..2_000).map(|key| row(key, 1)))).unwrap();
    let rows =
        |value: &[u8]| db.begin().unwrap().iter(&tree).filter(|entry| entry.as_ref().unwrap().1[..] == *value).count();
    for again in [false, true] {
        let mut tx = db.begin().unwrap();
        tx.put(&tree, b"first", b"f").unwrap();
        let savepoint = tx.savepoint();
        for key in 0..200u32 {
            tx.put(&tree, &key.to_be_bytes(), &[2; 900]).unwrap();
        }
        // The leaves leave the pool.
        db.checkpoint().unwrap();
        assert_eq!(db.begin().unwrap().iter(&other).count(), 2_000);
        disk.inject(Fault::eio().on(Op::Read).path("/db/data").nth(6).once());
        let error = tx.rollback_to(&savepoint).unwrap_err();
        assert!(error.is_damage(), "{error}");
        disk.clear_faults();
        // A later savepoint does not help.
        let late = tx.savepoint();
        tx.rollback_to(&late).unwrap();
        let refused = tx.put(&tree, b"second", b"s");
        assert!(matches!(refused, Err(Error::TransactionEnded { .. })), "{refused:?}");
        if again {
            tx.rollback_to(&savepoint).unwrap();
            tx.put(&tree, b"third", b"t").unwrap();
            tx.commit().unwrap();
        } else {
            let refused = tx.commit();
            assert!(matches!(refused, Err(Error::TransactionEnded { .. })), "{refused:?}");
        }
        settle(&db);
        let kept = usize::from(again);
        assert_eq!((rows(&[1; 900]), rows(&[2; 900]), rows(b"f"), rows(b"t")), (200, 0, kept, kept));
    }
}

thread_local! {
    static LEFT: RefCell<Option<Transaction>> = const { RefCell::new(None) };
}

/// The thread's memory for transactions is gone when a destructor drops its last one.
#[test]
fn a_transaction_may_outlive_the_memory_of_its_thread() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    let no_wait = || TxOptions { wait: LockWait::NoWait, ..TxOptions::default() };
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            // Destructors run in the opposite order of the first uses.
            LEFT.with(|left| assert!(left.borrow().is_none()));
            let mut tx = db.begin().unwrap();
            tx.put(&tree, b"k", b"v").unwrap();
            tx.get_for_update(&tree, b"l").unwrap();
            is_blocked(db.transact_with(no_wait(), |tx| tx.put(&tree, b"k", b"w")));
            LEFT.set(Some(tx));
        });
        ended.join().unwrap();
    });
    db.transact_with(no_wait(), |tx| tx.put(&tree, b"k", b"w").and_then(|()| tx.put(&tree, b"l", b"w"))).unwrap();
}

/// A refused insertion tells that the other entry is there; a read of the same transaction agrees.
#[test]
fn an_entry_with_the_same_prefix_is_in_the_snapshot_that_its_refusal_takes() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.put(&tree, b"p0", b"")).unwrap();
    let done = AtomicBool::new(false);
    let (mut refused, mut inserted, mut wrong) = (0, 0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let deleted = db.transact(|tx| tx.delete(&tree, b"p0"));
                let there = db.transact(|tx| tx.put(&tree, b"p0", b""));
                assert!(deleted.is_ok() && there.is_ok(), "{deleted:?} {there:?}");
            }
        });
        let begun = Instant::now();
        while (refused < 2_000 || inserted < 100) && begun.elapsed() < Duration::from_secs(60) {
            let Ok(mut tx) = db.begin() else { break };
            match tx.insert_unique_prefix(&tree, 1, b"p1", b"") {
                Ok(()) => inserted += 1,
                Err(Error::KeyExists { .. }) => {
                    refused += 1;
                    let found = tx.get(&tree, b"p0");
                    if !matches!(found, Ok(Some(_))) {
                        wrong.push(found);
                    }
                }
                Err(error) if error.is_retryable() => {}
                Err(error) => wrong.push(Err(error)),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(wrong.is_empty(), "{} of {refused} are wrong: {:?}", wrong.len(), wrong[0]);
    assert!(refused >= 2_000 && inserted >= 100, "{refused} refused, {inserted} inserted");
}
