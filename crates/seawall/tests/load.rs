//! A tree built from sorted rows contains these rows and is valid, appears only at commit, and leaves only
//! free pages if it does not commit. Many rows inserted at once equal rows inserted one after the other, and
//! an error names the row.

mod support {
    #[allow(dead_code)]
    pub(crate) mod dying_process;
}

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use seawall::{
    Background, BuildOptions, Database, Durability, Env, Error, Isolation, OnConflict, Options, Readable, Tree,
    TxOptions,
};
use seawall_io::SystemClock;
use seawall_sim::{SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::dying_process::{DyingProcess, End};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(256 << 10)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(sim: &Arc<SimDisk>) -> Database {
    let clock = Arc::new(SystemClock::default());
    Database::open_in(Env { disk: sim.clone(), clock, seed: 3, background: Background::Steps }, "/db", options())
        .unwrap()
}

fn contents(db: &Database, tree: &Tree) -> Rows {
    db.begin().unwrap().iter(tree).collect::<seawall::Result<_>>().unwrap()
}

fn filled(percent: u32) -> BuildOptions {
    BuildOptions { fill_percent: percent }
}

/// Runs background work until all freed pages are free again.
fn settle(db: &Database) {
    while db.step().unwrap() {}
}

/// Keys of all lengths with long common prefixes, values from empty to long ones on pages of their own.
fn rows() -> impl Strategy<Value = Rows> {
    let key = prop_oneof![
        6 => (0u32..100_000).prop_map(|n| n.to_be_bytes().to_vec()),
        3 => (0u16..500, 0usize..700).prop_map(|(n, len)| [&vec![b'k'; len][..], &n.to_be_bytes()[..]].concat()),
        1 => (0u8..5, 0usize..700).prop_map(|(n, len)| [&[n][..], &vec![0xff; len][..]].concat()),
        1 => vec(any::<u8>(), 0..819),
    ];
    let value = (any::<u8>(), prop_oneof![20 => 0usize..120, 3 => 120usize..1100, 1 => 1100usize..20_000])
        .prop_map(|(byte, len)| vec![byte; len]);
    prop_oneof![1 => btree_map(key.clone(), value.clone(), 0..4), 4 => btree_map(key, value, 0..1500)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_tree_holds_what_it_was_built_from(rows in rows(), percent in 50u32..=100, changes in rows()) {
        let sim = SimDisk::new(SimOptions::default());
        let db = open(&sim);
        let mut tx = db.begin().unwrap();
        let tree = tx.build_tree("t", filled(percent), &rows).unwrap();
        let own: Rows = tx.iter(&tree).collect::<seawall::Result<_>>().unwrap();
        prop_assert_eq!(&own, &rows, "its own transaction sees it");
        prop_assert!(db.open_tree("t").is_err(), "others do not, before the commit");
        tx.commit().unwrap();
        prop_assert_eq!(db.check().unwrap(), []);
        let back: Vec<_> = db.begin().unwrap().iter(&tree).rev().map(Result::unwrap).collect();
        prop_assert!(back.into_iter().eq(rows.clone().into_iter().rev()), "backwards");
        for (key, value) in rows.iter().step_by(7) {
            let found = db.get(&tree, key).unwrap();
            prop_assert_eq!(found.as_ref(), Some(value));
        }
        // It is an ordinary tree: rows are inserted, changed and deleted.
        let mut model = rows.clone();
        let before = db.begin().unwrap();
        before.take_snapshot().unwrap();
        let mut tx = db.begin().unwrap();
        for (at, (key, value)) in changes.iter().enumerate() {
            if at % 3 == 0 {
                prop_assert_eq!(tx.delete(&tree, key).unwrap(), model.remove(key).is_some());
            } else {
                tx.put(&tree, key, value).unwrap();
                model.insert(key.clone(), value.clone());
            }
        }
        tx.commit().unwrap();
        let old: Rows = before.iter(&tree).collect::<seawall::Result<_>>().unwrap();
        prop_assert_eq!(&old, &rows, "an older snapshot");
        drop(before);
        prop_assert_eq!(&contents(&db, &tree), &model);
        settle(&db);
        prop_assert_eq!(db.check().unwrap(), []);
        db.close().unwrap();
        let db = open(&sim);
        let tree = db.open_tree("t").unwrap();
        prop_assert_eq!(&contents(&db, &tree), &model);
        prop_assert_eq!(db.check().unwrap(), []);
    }
}

fn numbers(count: u32, len: usize) -> impl Iterator<Item = ([u8; 4], Vec<u8>)> {
    (0..count).map(move |i| (i.to_be_bytes(), vec![i as u8; len]))
}

#[test]
fn leaves_are_as_full_as_asked_for_and_lie_in_order() {
    let sim = SimDisk::new(SimOptions::default());
    let db = open(&sim);
    for (name, percent) in [("half", 50), ("most", 90), ("full", 100)] {
        let tree = db.transact(|tx| tx.build_tree(name, filled(percent), numbers(20_000, 40))).unwrap();
        let found = db.fragmentation(&tree).unwrap();
        assert!((percent - 4..=percent).contains(&found.fill_percent), "{percent}: {found:?}");
        assert!(found.share() < 0.05, "{found:?}");
    }
}

#[test]
fn rows_that_are_not_sorted_are_named_and_leave_nothing() {
    let sim = SimDisk::new(SimOptions::default());
    let db = open(&sim);
    let used = |db: &Database| db.stats().space.data_bytes - db.stats().space.free_bytes;
    let before = used(&db);
    let mut tx = db.begin().unwrap();
    let kept = tx.create_tree("kept").unwrap();
    tx.put(&kept, b"a", b"1").unwrap();
    let swapped = numbers(5000, 50).chain([(17u32.to_be_bytes(), Vec::new())]);
    let error = tx.build_tree("t", filled(90), swapped).unwrap_err();
    assert!(matches!(error, Error::RowsOutOfOrder { index: 5000 }), "{error}");
    let twice = numbers(5000, 50).chain([(4999u32.to_be_bytes(), vec![0; 9000])]);
    let error = tx.build_tree("t", filled(90), twice).unwrap_err();
    assert!(matches!(&error, Error::DuplicateRow { index: 5000, on } if on.key == 4999u32.to_be_bytes()), "{error}");
    let long = numbers(3000, 50).map(|(key, value)| (key.to_vec(), value)).chain([(vec![1; 4000], Vec::new())]);
    let error = tx.build_tree("t", filled(90), long).unwrap_err();
    assert!(matches!(error, Error::KeyTooLong { len_bytes: 4000, .. }), "{error}");
    assert!(matches!(tx.build_tree("t", filled(49), numbers(1, 1)).unwrap_err(), Error::Usage(_)));
    assert!(matches!(tx.build_tree("kept", filled(90), numbers(1, 1)).unwrap_err(), Error::TreeExists { .. }));
    // The transaction continues unchanged.
    assert_eq!(tx.trees().unwrap(), ["kept"]);
    let tree = tx.build_tree("t", filled(90), numbers(100, 50)).unwrap();
    assert_eq!(tx.iter(&tree).count(), 100);
    tx.commit().unwrap();
    assert_eq!(db.get(&kept, b"a").unwrap().as_deref(), Some(&b"1"[..]));
    settle(&db);
    assert_eq!(db.check().unwrap(), []);
    assert!(used(&db) < before + (200 << 10), "{before} {}", used(&db));
}

#[test]
fn a_builder_that_is_dropped_or_rolled_back_leaves_nothing() {
    let sim = SimDisk::new(SimOptions::default());
    let db = open(&sim);
    db.create_tree("other").unwrap();
    settle(&db);
    let used = |db: &Database| {
        settle(db);
        let space = db.stats().space;
        space.data_bytes - space.free_bytes
    };
    let before = used(&db);
    let value = vec![7; 10_000];
    let mut tx = db.begin().unwrap();
    let savepoint = tx.savepoint();
    let mut builder = tx.tree_builder("t", filled(90)).unwrap();
    for i in 0..2000u32 {
        builder.push(&i.to_be_bytes(), if i % 100 == 0 { &value } else { b"short" }).unwrap();
    }
    assert_eq!(builder.rows(), 2000);
    // Pages of long values that no leaf refers to yet are freed, too.
    drop(builder);
    assert!(tx.trees().unwrap() == ["other"]);
    let tree = tx.build_tree("t", filled(90), (0..2000u32).map(|i| (i.to_be_bytes(), &value[..]))).unwrap();
    tx.put(&tree, b"more", b"rows").unwrap();
    tx.rollback_to(&savepoint).unwrap();
    assert!(matches!(tx.get(&tree, b"more"), Err(Error::TreeDropped { .. })));
    tx.build_tree("t", filled(90), numbers(2000, 100)).unwrap();
    tx.rollback().unwrap();
    assert_eq!(db.trees().unwrap(), ["other"]);
    assert_eq!(db.check().unwrap(), []);
    assert!(used(&db) < before + (100 << 10), "{before} {}", used(&db));
}

/// A builder that is forgotten, not dropped, leaves a transaction that cannot commit a part of the rows.
#[test]
fn a_part_of_the_rows_is_not_committed() {
    let db = Database::in_memory().unwrap();
    let mut tx = db.begin().unwrap();
    let mut builder = tx.tree_builder("t", filled(90)).unwrap();
    builder.push(b"a", b"1").unwrap();
    std::mem::forget(builder);
    assert!(matches!(tx.commit(), Err(Error::TransactionEnded { .. })));
    assert!(db.trees().unwrap().is_empty());
    assert_eq!(db.check().unwrap(), []);
}

#[test]
fn older_snapshots_and_other_transactions_are_kept_out() {
    let db = Database::in_memory().unwrap();
    let mut builds = db.begin().unwrap();
    let (old, later) = (db.begin().unwrap(), db.begin().unwrap());
    old.take_snapshot().unwrap();
    let tree = builds.build_tree("t", filled(90), numbers(1000, 10)).unwrap();
    let key = 5u32.to_be_bytes();
    // Its handle is used by another transaction before the commit.
    let early = db.begin().unwrap();
    assert!(matches!(early.get(&tree, &key), Err(Error::TreeTooNew { .. })));
    assert!(matches!(db.get(&tree, &key), Err(Error::TreeTooNew { .. })));
    assert_eq!(early.may_read(&tree).unwrap(), Readable::CreatedLater);
    let mut writes = db.begin_with(TxOptions { wait: seawall::LockWait::NoWait, ..TxOptions::default() }).unwrap();
    assert!(matches!(writes.put(&tree, &key, b""), Err(Error::LockTimeout { .. })));
    drop((early, writes));
    assert_eq!(builds.may_read(&tree).unwrap(), Readable::Yes);
    builds.commit().unwrap();
    // A snapshot from before the commit: no read meets rows that it must not see. A change is of the latest version,
    // and refused only where that is a conflict.
    assert_eq!(old.may_read(&tree).unwrap(), Readable::CreatedLater);
    let too_new = |tree: &Tree, error: Error| {
        assert!(matches!(error, Error::TreeTooNew { tree: at } if at == tree.id()), "{error}");
    };
    too_new(&tree, old.get(&tree, &key).unwrap_err());
    too_new(&tree, old.iter(&tree).next().unwrap().unwrap_err());
    too_new(&tree, old.multi_get(&tree, &[key, key]).unwrap_err());
    for on_conflict in [OnConflict::Fail, OnConflict::Latest] {
        let mut old = db.begin_with(TxOptions { on_conflict, ..TxOptions::default() }).unwrap();
        old.take_snapshot().unwrap();
        let name = format!("{on_conflict:?}");
        let tree = db.transact(|tx| tx.build_tree(&name, filled(90), numbers(10, 10))).unwrap();
        let rows = [("new-1", "1"), ("new-2", "2")];
        let changes = [
            old.put(&tree, &key, b"").map(drop),
            old.delete(&tree, &key).map(drop),
            old.insert(&tree, b"new", b""),
            old.insert_unique_prefix(&tree, 3, b"one-1", b""),
            old.insert_many(&tree, rows),
            old.put_many(&tree, &rows),
            old.get_for_update(&tree, &key).map(|row| assert_eq!(row, None, "deleted")),
        ];
        for result in changes {
            let refused = matches!(result, Err(Error::TreeTooNew { .. }));
            assert_eq!(refused, on_conflict == OnConflict::Fail, "{result:?}");
        }
        too_new(&tree, old.delete_range(&tree, key..).unwrap_err());
        too_new(&tree, old.get(&tree, b"new").unwrap_err());
        old.commit().unwrap();
        let added = if on_conflict == OnConflict::Latest { 3 } else { 0 };
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 10 + added);
        assert_eq!(db.check().unwrap(), []);
    }
    // A transaction without a snapshot, begun before: it sees the latest commits.
    assert_eq!(later.get(&tree, &key).unwrap(), Some(vec![5; 10]));
    assert_eq!(later.may_read(&tree).unwrap(), Readable::Yes);
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let tx = db.begin_with(TxOptions { isolation, ..TxOptions::default() }).unwrap();
        assert_eq!(tx.iter(&tree).count(), 1000);
    }
    drop((old, later));
    db.drop_tree("t").unwrap();
    assert_eq!(db.begin().unwrap().may_read(&tree).unwrap(), Readable::Dropped);
}

/// A crash at any operation of the build: afterwards the tree is complete if it is there, it is there if its
/// commit was acknowledged, and no page is lost.
#[test]
fn a_crash_leaves_the_whole_tree_or_nothing() {
    let base = SimDisk::new(SimOptions { seed: 11, ..SimOptions::default() });
    open(&base).close().unwrap();
    let rows: Rows = (0..3000u32)
        .map(|i| (i.to_be_bytes().to_vec(), vec![i as u8; if i % 90 == 3 { 12_000 } else { (i % 200) as usize }]))
        .collect();
    let (mut died, mut absent, mut there) = (0, 0, 0);
    for (at, after) in (0..24u64).map(|i| (i, i * i / 3)).chain([(24, u64::MAX)]) {
        let sim = base.fork(at);
        let how = if at % 3 == 0 { End::Killed } else { End::PowerCut };
        let disk = DyingProcess::tearing(&sim, how, None, at % 2 == 0);
        let clock = sim.clone();
        let env = Env { disk: disk.clone(), clock, seed: at, background: Background::Steps };
        let db = Database::open_in(env, "/db", options()).unwrap();
        disk.dies_after(after);
        let built = db.begin().and_then(|mut tx| {
            let mut builder = tx.tree_builder("t", filled(90))?;
            for (i, (key, value)) in rows.iter().enumerate() {
                builder.push(key, value)?;
                if i % 500 == 0 {
                    db.step()?;
                }
            }
            builder.finish()?;
            tx.commit_with(Durability::Flushed)
        });
        assert!(built.is_ok() || disk.is_dead(), "{built:?}");
        died += usize::from(disk.is_dead());
        disk.dies_now();
        drop(db);
        let db = open(&sim);
        settle(&db);
        match db.open_tree("t") {
            Ok(tree) => {
                there += 1;
                assert_eq!(contents(&db, &tree), rows, "crash after {after}");
            }
            Err(error) => {
                absent += 1;
                assert!(built.is_err() && matches!(error, Error::NoSuchTree { .. }), "crash after {after}: {error}");
            }
        }
        assert_eq!(db.check().unwrap(), [], "crash after {after}");
        // The pages of a lost tree are free: it can be built again.
        db.transact(|tx| tx.build_tree("again", filled(100), &rows)).unwrap();
        assert_eq!(db.check().unwrap(), []);
    }
    assert!(died > 16 && absent > 12 && there > 0, "{died} {absent} {there}");
}

#[test]
fn an_insertion_of_many_says_which_row_was_there() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.insert_many(&tree, numbers(3000, 20))).unwrap();
    assert_eq!(contents(&db, &tree).len(), 3000);
    let mut tx = db.begin().unwrap();
    let savepoint = tx.savepoint();
    let fresh = (5000..9000u32).map(|i| (i.to_be_bytes(), vec![1; 5]));
    let error = tx.insert_many(&tree, fresh.chain(numbers(2, 2))).unwrap_err();
    assert!(matches!(&error, Error::DuplicateRow { index: 4000, on } if on.key == [0; 4]), "{error}");
    assert_eq!(tx.iter(&tree).count(), 7000, "those before it are there");
    tx.rollback_to(&savepoint).unwrap();
    // Between existing rows, in any order, with long values.
    let rows = [("c", 3usize), ("a", 9000), ("b", 0), ("a", 1)].map(|(key, len)| (key, vec![7; len]));
    let error = tx.insert_many(&tree, rows).unwrap_err();
    assert!(matches!(error, Error::DuplicateRow { index: 3, .. }), "{error}");
    assert_eq!(tx.get(&tree, b"a").unwrap(), Some(vec![7; 9000]));
    tx.rollback().unwrap();
    // An iterator over many rows: each is inserted as it arrives.
    db.transact(|tx| tx.put_rows(&tree, (0..10_000u32).rev().map(|i| (i.to_be_bytes(), [9; 3])))).unwrap();
    assert_eq!(contents(&db, &tree).len(), 10_000);
    assert_eq!(db.check().unwrap(), []);
}
