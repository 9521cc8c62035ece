//! One transaction object for many transactions.
//!
//! 1. After a commit or rollback in place, or `restart`, the object is a new transaction: it contains and
//!    holds nothing of the previous one.
//! 2. Isolation, waiting and durability can be set for each statement.
//! 3. A failed commit leaves the transaction unchanged; one with an unknown outcome is abandoned.

use seawall::{
    Background, Database, Durability, Env, Error, Isolation, LockWait, OnConflict, Options, Tree, TxOptions,
};
use seawall_io::{Disk as _, Op, SystemClock};
use seawall_sim::{Fault, Process, SimDisk, SimOptions};
use std::sync::Arc;

fn with_row() -> (Database, Tree) {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    put(&db, &tree, b"k", b"1");
    (db, tree)
}

fn put(db: &Database, tree: &Tree, key: &[u8], value: &[u8]) {
    db.transact(|tx| tx.put(tree, key, value)).unwrap();
}

fn get(tx: &seawall::Transaction, tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    tx.get(tree, key).unwrap()
}

const NO_WAIT: TxOptions = TxOptions {
    isolation: Isolation::RepeatableRead,
    access: seawall::Access::ReadWrite,
    durability: None,
    on_conflict: OnConflict::Fail,
    wait: LockWait::NoWait,
    tag: 0,
    like_innodb: false,
};

#[test]
fn a_level_that_is_set_holds_for_transactions_that_are_reused() {
    let sim = SimDisk::new(SimOptions { seed: 3, trace_entries_max: 0, ..SimOptions::default() });
    let process = Arc::new(Process::new(&sim));
    let env = |disk| Env { disk, clock: Arc::new(SystemClock::default()), seed: 5, background: Background::Steps };
    let options = || Options::default().with_data_initial_size(1 << 20).with_log_segment_size(256 << 10);
    let db = Database::open_in(env(process.clone()), "/db", options().with_durability(Durability::Deferred)).unwrap();
    let tree = db.create_tree("t").unwrap();
    let (mut tx, mut started) = (db.begin().unwrap(), db.begin().unwrap());
    tx.put(&tree, b"deferred", b"1").unwrap();
    tx.commit_in_place().unwrap();
    started.put(&tree, b"started", b"1").unwrap();
    db.set("durability", "flushed").unwrap();
    started.commit_start().unwrap().wait().unwrap();
    tx.put(&tree, b"flushed", b"1").unwrap();
    tx.commit_in_place().unwrap();
    process.crash_by(SimDisk::power_cut);
    drop((tx, db));
    let db = Database::open_in(env(Arc::new(Process::new(&sim))), "/db", options()).unwrap();
    let (tx, tree) = (db.begin().unwrap(), db.open_tree("t").unwrap());
    assert_eq!((get(&tx, &tree, b"started"), get(&tx, &tree, b"flushed")), (Some(b"1".into()), Some(b"1".into())));
}

#[test]
fn each_life_is_a_transaction_of_its_own() {
    let (db, tree) = with_row();
    let mut tx = db.begin_with(NO_WAIT).unwrap();
    for n in 0..20u8 {
        let before = get(&tx, &tree, b"k");
        // A change of another transaction: invisible before the restart, visible after it.
        put(&db, &tree, b"other", &[n]);
        assert_ne!(get(&tx, &tree, b"other"), Some(vec![n]));
        let savepoint = tx.savepoint();
        tx.put(&tree, b"k", &[n]).unwrap();
        tx.get_for_update(&tree, b"locked").unwrap();
        let id = tx.id().unwrap();
        let mut rival = db.begin_with(NO_WAIT).unwrap();
        assert!(matches!(rival.put(&tree, b"k", b"rival"), Err(Error::LockTimeout { .. })));
        assert!(matches!(rival.put(&tree, b"locked", b"rival"), Err(Error::LockTimeout { .. })));
        let after = match n % 4 {
            0 => tx.commit_in_place().map(|()| Some(vec![n])),
            1 => tx.rollback_in_place().map(|()| before),
            2 => tx.restart(NO_WAIT).map(|()| before),
            _ => {
                tx.rollback_to(&savepoint).unwrap();
                tx.commit_in_place().map(|()| before)
            }
        };
        // No lock, no id, no savepoint, no snapshot is left.
        rival.get_for_update(&tree, b"k").unwrap();
        rival.put(&tree, b"locked", b"rival").unwrap();
        rival.rollback().unwrap();
        assert_eq!(tx.id(), None);
        assert!(matches!(tx.rollback_to(&savepoint), Err(Error::Usage(_))));
        assert_eq!(get(&tx, &tree, b"other"), Some(vec![n]));
        assert_eq!(get(&tx, &tree, b"k"), after.unwrap());
        // That read's snapshot is released.
        tx.restart(NO_WAIT).unwrap();
        tx.get_for_update(&tree, b"k").unwrap();
        tx.put(&tree, b"mine", &[n]).unwrap();
        assert_ne!(tx.id().unwrap(), id);
        tx.commit_in_place().unwrap();
    }
    assert_eq!(db.get(&tree, b"mine").unwrap(), Some(vec![19]));
    drop(tx);
    assert_eq!(db.stats().locks.held, 0);
}

#[test]
fn a_restart_rolls_back_and_takes_other_options() {
    let (db, tree) = with_row();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"k", b"2").unwrap();
    tx.restart(TxOptions { access: seawall::Access::ReadOnly, ..TxOptions::default() }).unwrap();
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"1");
    assert!(matches!(tx.put(&tree, b"k", b"2"), Err(Error::ReadOnly { .. })));
    let read_committed = TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() };
    tx.restart(read_committed).unwrap();
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"1");
    put(&db, &tree, b"k", b"3");
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"3");
    tx.restart(TxOptions { durability: Some(Durability::Deferred), ..TxOptions::default() }).unwrap();
    assert_eq!(tx.options().durability, Some(Durability::Deferred));
    tx.put(&tree, b"k", b"4").unwrap();
    drop(tx);
    assert_eq!(db.get(&tree, b"k").unwrap().unwrap(), b"3");
}

#[test]
fn a_level_for_each_statement() {
    let (db, tree) = with_row();
    let mut tx = db.begin_with(NO_WAIT).unwrap();
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"1");
    put(&db, &tree, b"k", b"2");
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"1");
    tx.set_isolation(Isolation::RepeatableRead);
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"1", "the same level keeps the snapshot");
    tx.set_isolation(Isolation::ReadCommitted);
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"2");
    put(&db, &tree, b"k", b"3");
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"3");
    tx.set_isolation(Isolation::RepeatableRead);
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"3");
    put(&db, &tree, b"k", b"4");
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"3");
    tx.set_isolation(Isolation::Serializable);
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"4");
    let mut rival = db.begin_with(NO_WAIT).unwrap();
    assert!(
        matches!(rival.put(&tree, b"k", b"5"), Err(Error::LockTimeout { .. })),
        "it was read by a serializable one"
    );
    // Locks stay to the end, at whatever level it then is.
    tx.set_isolation(Isolation::ReadCommitted);
    assert!(matches!(rival.put(&tree, b"k", b"5"), Err(Error::LockTimeout { .. })));
    tx.rollback_in_place().unwrap();
    rival.put(&tree, b"k", b"5").unwrap();
    // Waiting.
    tx.set_lock_wait(LockWait::SkipLocked);
    assert_eq!(tx.options().wait, LockWait::SkipLocked);
    assert!(matches!(tx.get_for_update(&tree, b"k"), Err(Error::LockTimeout { .. })));
    tx.set_durability(Some(Durability::Deferred));
    assert_eq!(tx.options().durability, Some(Durability::Deferred));
    tx.set_durability(None);
    assert_eq!(tx.options().durability, None);
}

/// A savepoint set at one level and rolled back to at another: a row locked by a read stays locked, even if
/// it was written meanwhile.
#[test]
fn rows_that_were_locked_at_one_level_stay_locked_when_another_takes_changes_back() {
    let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
    for (first, then) in levels.iter().flat_map(|first| levels.iter().map(move |then| (*first, *then))) {
        let (db, tree) = with_row();
        let mut tx = db.begin_with(TxOptions { isolation: first, ..NO_WAIT }).unwrap();
        tx.get_for_update(&tree, b"k").unwrap();
        let savepoint = tx.savepoint();
        tx.put(&tree, b"k", b"2").unwrap();
        tx.set_isolation(then);
        tx.put(&tree, b"k", b"3").unwrap();
        tx.rollback_to(&savepoint).unwrap();
        let mut rival = db.begin_with(NO_WAIT).unwrap();
        let refused = rival.put(&tree, b"k", b"4");
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{first:?}, then {then:?}: {refused:?}");
        tx.commit_in_place().unwrap();
        rival.put(&tree, b"k", b"4").unwrap();
    }
}

/// The answer of a change at serializable has to stay true, although the change is undone at read committed.
#[test]
fn a_change_that_told_something_leaves_its_lock_when_it_is_undone_at_a_weaker_level() {
    let (db, tree) = with_row();
    let mut tx = db.begin_with(TxOptions { isolation: Isolation::Serializable, ..NO_WAIT }).unwrap();
    let savepoint = tx.savepoint();
    assert!(tx.delete(&tree, b"k").unwrap());
    tx.set_isolation(Isolation::ReadCommitted);
    tx.rollback_to(&savepoint).unwrap();
    let mut rival = db.begin_with(NO_WAIT).unwrap();
    let refused = rival.put(&tree, b"k", b"4");
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
}

fn open(disk: &Arc<SimDisk>) -> (Arc<Process>, Database) {
    let process = Arc::new(Process::new(disk));
    let clock = Arc::new(seawall_io::SystemClock::default());
    let env = Env { disk: process.clone(), clock, seed: 1, background: Background::Steps };
    let options = Options::default().with_pool_size(1 << 20).with_data_initial_size(1 << 20);
    (process, Database::open_in(env, "/db", options).unwrap())
}

#[test]
fn a_commit_of_unknown_outcome_is_left_behind() {
    for op in [Op::Write, Op::Sync] {
        let sim = SimDisk::new(SimOptions::default());
        let (process, db) = open(&sim);
        let tree = db.create_tree("t").unwrap();
        put(&db, &tree, b"k", b"before");
        let mut tx = db.begin().unwrap();
        let savepoint = tx.savepoint();
        tx.put(&tree, b"k", b"after").unwrap();
        let log =
            sim.list("/db".as_ref()).unwrap().into_iter().find(|p| p.to_string_lossy().contains("redo.")).unwrap();
        sim.inject(Fault::eio().on(op).exactly(log));
        let error = tx.commit_in_place().unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error}");
        sim.clear_faults();
        // It no longer sees its earlier writes: they may be lost.
        assert_eq!(get(&tx, &tree, b"k").unwrap(), b"before");
        assert!(matches!(tx.rollback_to(&savepoint), Err(Error::Usage(_))));
        assert!(matches!(tx.put(&tree, b"other", b"x"), Err(Error::Poisoned { .. })));
        tx.rollback_in_place().unwrap();
        drop(tx);
        process.crash_by(SimDisk::power_cut);
        drop(db);
        let (_process, db) = open(&sim);
        let found = db.get(&db.open_tree("t").unwrap(), b"k").unwrap().unwrap();
        assert!(found == b"before" || found == b"after");
    }
}

/// A commit that failed once has failed: asked again, it does not become durable.
#[test]
fn a_commit_of_unknown_outcome_stays_unknown() {
    for again in [true, false] {
        let sim = SimDisk::new(SimOptions::default());
        let (_process, db) = open(&sim);
        let tree = db.create_tree("t").unwrap();
        put(&db, &tree, b"k", b"before");
        let mut tx = db.begin().unwrap();
        tx.put(&tree, b"k", b"after").unwrap();
        let mut commit = tx.commit_start().unwrap();
        sim.inject(Fault::eio().on(Op::Sync));
        let unknown = |result| assert!(matches!(result, Err(Error::OutcomeUnknown { .. })), "{result:?}");
        unknown(commit.poll().expect("it has failed"));
        if again {
            unknown(commit.poll().expect("it has failed"));
        }
        unknown(commit.wait());
    }
}

/// The commit is refused before any of it is in the log: the transaction is unchanged.
#[test]
fn a_commit_that_is_refused_leaves_the_transaction_open() {
    let sim = SimDisk::new(SimOptions::default());
    let (process, db) = open(&sim);
    let tree = db.create_tree("t").unwrap();
    put(&db, &tree, b"k", b"before");
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"k", b"after").unwrap();
    let mut other = db.begin().unwrap();
    other.put(&tree, b"o", b"after").unwrap();
    sim.inject(Fault::eio().on(Op::Sync));
    assert!(matches!(other.commit(), Err(Error::OutcomeUnknown { .. })));
    sim.clear_faults();
    assert!(matches!(tx.commit_in_place(), Err(Error::Poisoned { .. })));
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"after");
    assert!(tx.rollback_in_place().is_err(), "nor can it be rolled back");
    assert_eq!(get(&tx, &tree, b"k").unwrap(), b"before");
    drop(tx);
    process.crash_by(SimDisk::power_cut);
    drop(db);
    let (_process, db) = open(&sim);
    assert_eq!(db.get(&db.open_tree("t").unwrap(), b"k").unwrap().unwrap(), b"before");
}
