//! `transact`, and when the snapshot of a repeatable-read transaction is taken.
//!
//! 1. The first read without a lock, or `take_snapshot`, takes the snapshot. Locking reads and changes before
//!    that meet no conflict.
//! 2. Where conflicts fail, a change that reveals something without changing it is a read.
//! 3. `transact` ends in an error only if its closure does, whatever the number of threads.

use seawall::{
    Background, CursorOptions, Database, Durability, Env, Error, Isolation, LockMode, OnConflict, Options, Seek, Tree,
    TxOptions,
};
use seawall_sim::{SimDisk, SimOptions};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[path = "support/dying_process.rs"]
#[allow(dead_code)] // shared with tests that need more of it
mod dying_process;
use dying_process::{DyingProcess, End};

fn with_row() -> (Database, Tree) {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.put(&tree, b"k", b"1")).unwrap();
    (db, tree)
}

fn put(db: &Database, tree: &Tree, key: &[u8], value: &[u8]) {
    db.transact(|tx| tx.put(tree, key, value)).unwrap();
}

fn conflicts<T: std::fmt::Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::WriteConflict { .. }))
}

#[test]
fn a_locking_read_as_the_first_statement_has_nothing_to_conflict_with() {
    let (db, tree) = with_row();
    let mut tx = db.begin().unwrap();
    put(&db, &tree, b"k", b"2");
    assert_eq!(tx.get_for_update(&tree, b"k").unwrap().unwrap(), b"2");
    tx.put(&tree, b"k", b"3").unwrap();
    put(&db, &tree, b"other", b"x");
    // A change without a read, of a row that another transaction has committed since.
    tx.put(&tree, b"other", b"y").unwrap();
    tx.commit().unwrap();
    assert_eq!(db.get(&tree, b"k").unwrap().unwrap(), b"3");

    let locking = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
    let tx = db.begin().unwrap();
    put(&db, &tree, b"k", b"4");
    let mut cursor = tx.cursor(&tree, locking);
    assert!(cursor.seek(Seek::First).unwrap());
    assert_eq!(cursor.value().unwrap(), b"4");
}

#[test]
fn the_first_read_without_a_lock_takes_the_snapshot() {
    let (db, tree) = with_row();
    type Read = fn(&seawall::Transaction, &Tree);
    let reads: [(&str, Read); 8] = [
        ("get", |tx, tree| drop(tx.get(tree, b"absent").unwrap())),
        ("multi_get", |tx, tree| drop(tx.multi_get(tree, &[b"a", b"b"]).unwrap())),
        ("iter", |tx, tree| assert!(tx.iter(tree).next().is_some())),
        ("a range that is made and not read", |tx, tree| drop(tx.range::<&[u8]>(tree, ..))),
        ("cursor", |tx, tree| assert!(tx.cursor(tree, CursorOptions::default()).seek(Seek::Last).unwrap())),
        ("trees", |tx, _| drop(tx.trees().unwrap())),
        ("take_snapshot", |tx, _| tx.take_snapshot().unwrap()),
        ("take_snapshot twice", |tx, _| {
            tx.take_snapshot().unwrap();
            tx.take_snapshot().unwrap();
        }),
    ];
    for (name, read) in reads {
        put(&db, &tree, b"k", b"1");
        let mut tx = db.begin().unwrap();
        put(&db, &tree, b"k", b"2");
        read(&tx, &tree);
        put(&db, &tree, b"k", b"3");
        assert_eq!(tx.get(&tree, b"k").unwrap().unwrap(), b"2", "{name}");
        assert!(conflicts(&tx.get_for_update(&tree, b"k")), "{name}");
        assert!(conflicts(&tx.put(&tree, b"k", b"4")), "{name}");
    }
    // Looking up the current name of a tree takes no snapshot.
    let tx = db.begin().unwrap();
    tx.open_tree("t").unwrap();
    put(&db, &tree, b"k", b"5");
    assert_eq!(tx.get_for_update(&tree, b"k").unwrap().unwrap(), b"5");
}

#[test]
fn a_serializable_transaction_with_a_snapshot_refuses_what_is_newer() {
    let (db, tree) = with_row();
    for key in [&b"changed"[..], b"deleted"] {
        put(&db, &tree, key, b"1");
    }
    type Act = fn(&mut seawall::Transaction, &Tree) -> Result<(), Error>;
    let acts: [(&str, Act); 10] = [
        ("get", |tx, tree| tx.get(tree, b"changed").map(drop)),
        ("get of a deleted row", |tx, tree| tx.get(tree, b"deleted").map(drop)),
        ("get of a new row", |tx, tree| tx.get(tree, b"new").map(drop)),
        ("multi_get", |tx, tree| tx.multi_get(tree, &["k", "changed"]).map(drop)),
        ("iter", |tx, tree| tx.iter(tree).try_for_each(|row| row.map(drop))),
        ("rev", |tx, tree| tx.range(tree, &b"d"[..]..&b"j"[..]).rev().try_for_each(|row| row.map(drop))),
        ("get_for_update", |tx, tree| tx.get_for_update(tree, b"changed").map(drop)),
        ("put", |tx, tree| tx.put(tree, b"changed", b"mine")),
        ("delete", |tx, tree| tx.delete(tree, b"deleted").map(drop)),
        ("insert", |tx, tree| tx.insert(tree, b"deleted", b"mine")),
    ];
    for (name, act) in acts {
        for (on_conflict, takes) in [(OnConflict::Fail, true), (OnConflict::Fail, false), (OnConflict::Latest, true)] {
            put(&db, &tree, b"deleted", b"1");
            db.transact(|tx| tx.delete(&tree, b"new")).unwrap();
            let options = TxOptions { isolation: Isolation::Serializable, on_conflict, ..TxOptions::default() };
            let mut tx = db.begin_with(options).unwrap();
            if takes {
                tx.take_snapshot().unwrap();
            }
            put(&db, &tree, b"changed", b"2");
            put(&db, &tree, b"new", b"2");
            db.transact(|tx| tx.delete(&tree, b"deleted")).unwrap();
            assert_eq!(tx.get(&tree, b"k").unwrap().unwrap(), b"1", "{name}: an older row");
            let acted = act(&mut tx, &tree);
            let refused = takes && on_conflict == OnConflict::Fail;
            assert_eq!(conflicts(&acted), refused, "{name}, {on_conflict:?}, {takes}: {acted:?}");
            assert!(refused || acted.is_ok(), "{name}, {on_conflict:?}, {takes}: {acted:?}");
        }
    }
}

#[test]
fn what_a_change_tells_is_a_read_where_conflicts_fail() {
    let (db, tree) = with_row();
    type Tell = fn(&mut seawall::Transaction, &Tree);
    let long = [7; 9000];
    let tells: [(&str, Tell); 5] = [
        ("insert", |tx, tree| assert!(matches!(tx.insert(tree, b"k", b"x"), Err(Error::KeyExists { .. })))),
        ("update", |tx, tree| assert!(!tx.update(tree, b"absent", b"x").unwrap())),
        ("delete", |tx, tree| assert!(!tx.delete(tree, b"absent").unwrap())),
        ("long insert", |tx, tree| assert!(matches!(tx.insert(tree, b"k", &[7; 9000]), Err(Error::KeyExists { .. })))),
        ("long update", |tx, tree| assert!(!tx.update(tree, b"absent", &[7; 9000]).unwrap())),
    ];
    assert!(db.transact(|tx| tx.put(&tree, b"long", &long)).is_ok());
    for (name, tell) in tells {
        let cases =
            [(OnConflict::Fail, false, &b"1"[..]), (OnConflict::Fail, true, b"2"), (OnConflict::Latest, false, b"2")];
        for (on_conflict, like_innodb, sees) in cases {
            put(&db, &tree, b"row", b"1");
            let mut tx = db.begin_with(TxOptions { on_conflict, like_innodb, ..TxOptions::default() }).unwrap();
            tell(&mut tx, &tree);
            put(&db, &tree, b"row", b"2");
            assert_eq!(tx.get(&tree, b"row").unwrap().unwrap(), sees, "{name}, {on_conflict:?}, {like_innodb}");
        }
    }
}

#[test]
fn a_transaction_that_has_not_read_holds_back_no_purge() {
    let (db, tree) = with_row();
    let age = |db: &Database| db.stats().purge.oldest_view_age_ns;
    let tx = db.begin().unwrap();
    tx.get_for_update(&tree, b"k").unwrap();
    assert_eq!(age(&db), 0, "no view");
    tx.take_snapshot().unwrap();
    std::thread::sleep(Duration::from_millis(2));
    assert!(age(&db) > 0);
}

/// The example of the documentation, with many threads.
#[test]
fn many_threads_count_on_one_key() {
    let (threads, each) = if cfg!(debug_assertions) { (48, 20) } else { (200, 50) };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = Database::open_with(dir.path(), Options::default().with_pool_size(4 << 20)).unwrap();
    let counters = db.create_tree("counters").unwrap();
    let together = Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                together.wait();
                for _ in 0..each {
                    db.transact(|tx| {
                        let n = tx.get_for_update(&counters, b"visits")?;
                        let n = n.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
                        tx.put(&counters, b"visits", &(n + 1).to_le_bytes())
                    })
                    .unwrap();
                }
            });
        }
    });
    let counted = db.get(&counters, b"visits").unwrap().unwrap();
    assert_eq!(u64::from_le_bytes(counted.try_into().unwrap()), (threads * each) as u64);
    db.close().unwrap();
}

#[derive(Debug)]
enum Mine {
    Store,
    Own,
}

impl From<Error> for Mine {
    fn from(_: Error) -> Self {
        Self::Store
    }
}

/// The closure's error type hides the cause: the transaction knows it.
#[test]
fn transact_with_retries_whatever_the_error_type() {
    let (db, tree) = with_row();
    let runs = AtomicU64::new(0);
    let ran: Result<u64, Mine> = db.transact_with(TxOptions::default(), |tx| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        tx.get(&tree, b"k")?;
        if run < 5 {
            put(&db, &tree, b"k", b"theirs");
        }
        tx.put(&tree, b"k", b"mine")?;
        Ok(run)
    });
    assert!(matches!(ran, Ok(5)), "{ran:?}");
    assert_eq!(db.get(&tree, b"k").unwrap().unwrap(), b"mine");

    runs.store(0, Ordering::Relaxed);
    let refused: Result<(), Mine> = db.transact_with(TxOptions::default(), |tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        tx.put(&tree, b"k", b"not kept")?;
        Err(Mine::Own)
    });
    assert!(matches!(refused, Err(Mine::Own)));
    assert_eq!(runs.load(Ordering::Relaxed), 1, "its own error is final");
    assert_eq!(db.get(&tree, b"k").unwrap().unwrap(), b"mine");
}

#[test]
fn transact_gives_up_at_last() {
    // Its clock moves only by sleeping: the test waits for nothing, and the waited time is known.
    let sim = SimDisk::new(SimOptions { seed: 2, ..SimOptions::default() });
    let clock = sim.clone();
    let disk = DyingProcess::new(&sim, End::PowerCut, None);
    let env = Env { disk, clock: clock.clone(), seed: 5, background: Background::Steps };
    let small = Options::default().with_pool_size(1 << 20).with_data_initial_size(1 << 20);
    let db = Database::open_in(env, "/db", small.with_durability(Durability::Deferred)).unwrap();
    let tree = db.create_tree("t").unwrap();
    let (runs, begun) = (AtomicU64::new(0), clock.now());
    let ran = db.transact(|tx| -> seawall::Result<()> {
        tx.get(&tree, b"k")?;
        put(&db, &tree, b"k", &runs.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        tx.put(&tree, b"k", b"mine")
    });
    assert!(conflicts(&ran), "{ran:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 1000);
    let waited = clock.now() - begun;
    let (least, most) = (Duration::from_secs(2), Duration::from_secs(10));
    assert!(waited > least && waited < most, "a random time, 10 ms at most, before each of 999: {waited:?}");
}
