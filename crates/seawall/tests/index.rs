//! An index built while its base changes contains exactly the entries of the base's rows, when it becomes visible and
//! afterwards; a crash or an error before that leaves no trace of it.

mod support {
    #[allow(dead_code)]
    pub(crate) mod dying_process;
}

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;
use seawall::{
    Background, Database, Durability, Env, Error, IndexEntries, IndexOptions, Options, Result, Transaction, Tree, Xid,
};
use seawall_sim::{SimDisk, SimOptions};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::dying_process::{DyingProcess, End};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(sim: &Arc<SimDisk>) -> (Arc<DyingProcess>, Database) {
    let disk = DyingProcess::new(sim, End::PowerCut, None);
    let clock = sim.clone();
    let env = Env { disk: disk.clone(), clock, seed: 1, background: Background::Steps };
    (disk, Database::open_in(env, "/db", options()).unwrap())
}

/// No index has the last byte of a value.
fn indexed(value: &[u8]) -> &[u8] {
    &value[..value.len() - 1]
}

/// Up to three entries: by value, by length, and none for some rows.
fn entries(key: &[u8], value: &[u8], index: &mut IndexEntries) {
    let value = indexed(value);
    if value.first().is_some_and(|first| first % 7 == 0) {
        return;
    }
    index.push([b"v", &value[..value.len().min(8)], key].concat(), value);
    index.push([b"l", &(value.len() as u32).to_be_bytes()[..], key].concat(), key);
    if value.len() > 100 {
        index.push([b"x", key].concat(), []);
    }
}

fn contents(db: &Database, tree: &Tree) -> Rows {
    db.begin().unwrap().iter(tree).collect::<Result<_>>().unwrap()
}

/// The index of these rows.
fn index_of(rows: &Rows) -> Rows {
    // Entries can be computed only through an index: one built without concurrent changes.
    let db = Database::in_memory().unwrap();
    let base = db.create_tree("base").unwrap();
    let mut all = Rows::new();
    db.transact(|tx| tx.put_rows(&base, rows)).unwrap();
    let index = db.build_index(&base, "index", IndexOptions::default(), entries, |_| Ok(())).unwrap();
    for entry in db.begin().unwrap().iter(&index) {
        let (key, value) = entry.unwrap();
        all.insert(key, value);
    }
    let mut count = 0;
    for value in rows.values().filter(|value| value.first().is_none_or(|first| first % 7 != 0)) {
        count += if value.len() > 100 { 3 } else { 2 };
    }
    assert_eq!(all.len(), count, "each row has its entries");
    for (key, value) in rows.iter().filter(|(_, value)| value.first().is_none_or(|first| first % 7 != 0)) {
        let value = indexed(value);
        assert_eq!(all.get(&[b"v", &value[..value.len().min(8)], key].concat()).map(Vec::as_slice), Some(value));
    }
    all
}

fn key(dice: &mut Pcg64) -> Vec<u8> {
    dice.random_range(0..700u32).to_be_bytes().to_vec()
}

fn value(dice: &mut Pcg64) -> Vec<u8> {
    let len = [5, 20, 150, 1500, 9000][(dice.random_range(0..40u32).trailing_zeros() as usize).min(4)];
    vec![dice.random(); len]
}

/// Some changes in a transaction, half of which are rolled back.
fn change(dice: &mut Pcg64, tx: &mut Transaction, base: &Tree) -> Result<()> {
    let savepoint = tx.savepoint();
    for _ in 0..dice.random_range(1..6) {
        let key = key(dice);
        match dice.random_range(0..6) {
            0 | 1 => tx.put(base, &key, &value(dice))?,
            5 => {
                if let Some(mut value) = tx.get_for_update(base, &key)? {
                    *value.last_mut().unwrap() = dice.random();
                    assert!(tx.update_unindexed(base, &key, &value)?);
                }
            }
            2 => drop(tx.update(base, &key, &value(dice))?),
            3 => drop(tx.delete(base, &key)?),
            _ => tx.put_many(base, &[(key, value(dice)), (self::key(dice), value(dice))])?,
        }
    }
    if dice.random_range(0..4) == 0 {
        tx.rollback_to(&savepoint)?;
    }
    Ok(())
}

/// Changes between any two rows of the build, by transactions that commit, roll back, and stay open over many
/// rows.
#[test]
fn an_index_is_what_the_rows_give_whatever_changed_meanwhile() {
    for seed in 0..12u64 {
        let sim = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
        let (_, db) = open(&sim);
        let base = db.create_tree("base").unwrap();
        let mut drawn = Pcg64::seed_from_u64(seed);
        let rows: Rows = (0..600).map(|_| (key(&mut drawn), value(&mut drawn))).collect();
        let dice = RefCell::new(drawn);
        db.transact(|tx| tx.put_rows(&base, &rows)).unwrap();
        let (open, changes) = (RefCell::new(None::<Transaction>), RefCell::new(0));
        // Some sorts exceed the memory.
        let sort_bytes = if seed % 2 == 0 { 20_000 } else { 64 << 20 };
        let options = IndexOptions { sort_bytes, last_round_rows: 3, ..IndexOptions::default() };
        let meanwhile = || {
            let (mut dice, mut open) = (dice.borrow_mut(), open.borrow_mut());
            // Changes stop after a while, so that the rounds end.
            if *changes.borrow() > 400 || dice.random_range(0..6) > 0 {
                return;
            }
            *changes.borrow_mut() += 1;
            let tx = open.get_or_insert_with(|| db.begin().unwrap());
            change(&mut dice, tx, &base).unwrap();
            match dice.random_range(0..8) {
                0 | 1 => open.take().map_or(Ok(()), Transaction::commit).unwrap(),
                2 => open.take().map_or(Ok(()), Transaction::rollback).unwrap(),
                3 => drop(db.step().unwrap()),
                _ => {}
            }
        };
        let index = db
            .build_index(
                &base,
                "index",
                options,
                |key, value, index| {
                    meanwhile();
                    entries(key, value, index);
                },
                |_| {
                    // From here on the base is locked.
                    *changes.borrow_mut() += 1000;
                    open.borrow_mut().take().map_or(Ok(()), Transaction::commit)
                },
            )
            .unwrap();
        assert!(*changes.borrow() > 1060, "seed {seed}: {}", changes.borrow());
        drop(open.take());
        let expected = index_of(&contents(&db, &base));
        assert_eq!(contents(&db, &index), expected, "seed {seed}");
        while db.step().unwrap() {}
        assert_eq!(db.trees().unwrap(), ["base", "index"]);
        assert_eq!(db.check_tree(&index).unwrap(), []);
        assert_eq!(db.check().unwrap(), [], "seed {seed}");
    }
}

/// A change of a part of a row that no index has is not read again.
#[test]
fn a_build_reads_a_row_again_only_if_its_entries_can_have_changed() {
    for indexed in [false, true] {
        let (_, db) = open(&SimDisk::new(SimOptions::default()));
        let base = db.create_tree("base").unwrap();
        let rows = (0..100u32).map(|i| (i.to_be_bytes(), [1u8, 2, 3]));
        db.transact(|tx| tx.put_rows(&base, rows.clone())).unwrap();
        let mut versions = 0u32;
        let options = IndexOptions { last_round_rows: 0, ..IndexOptions::default() };
        let of_row = |key: &[u8], value: &[u8], index: &mut IndexEntries| {
            if versions < 100 {
                let key = versions.to_be_bytes();
                let there = db.transact(|tx| match indexed {
                    true => tx.update(&base, &key, &[1, 2, 4]),
                    false => tx.update_unindexed(&base, &key, &[1, 2, 4]),
                });
                assert!(there.unwrap());
            }
            versions += 1;
            entries(key, value, index);
        };
        let index = db.build_index(&base, "index", options, of_row, |_| Ok(())).unwrap();
        assert_eq!(versions, if indexed { 300 } else { 100 }, "each row once, then both versions of a changed one");
        assert_eq!(contents(&db, &index), index_of(&contents(&db, &base)));
    }
}

#[test]
fn a_crash_leaves_the_whole_index_or_nothing() {
    let base_disk = SimDisk::new(SimOptions { seed: 5, ..SimOptions::default() });
    let (_, db) = open(&base_disk);
    let base = db.create_tree("base").unwrap();
    let mut dice = Pcg64::seed_from_u64(5);
    let rows: Rows = (0..2000u32).map(|i| (i.to_be_bytes().to_vec(), value(&mut dice))).collect();
    db.transact(|tx| tx.put_rows(&base, &rows)).unwrap();
    db.close().unwrap();
    let (mut died, mut absent) = (0, 0);
    for at in 0..16u64 {
        let sim = base_disk.fork(at);
        let (disk, db) = open(&sim);
        let base = db.open_tree("base").unwrap();
        disk.dies_after(if at == 15 { u64::MAX } else { at * at * 2 });
        let dice = RefCell::new(Pcg64::seed_from_u64(at));
        let built = db.build_index(
            &base,
            "index",
            IndexOptions { sort_bytes: 100_000, ..IndexOptions::default() },
            |key, value, index| {
                let mut dice = dice.borrow_mut();
                if dice.random_range(0..20) == 0 && !disk.is_dead() {
                    let changed = db.begin().and_then(|mut tx| {
                        change(&mut dice, &mut tx, &base)?;
                        tx.commit_with(Durability::Flushed)
                    });
                    // In the last round the base is locked.
                    let locked = matches!(changed, Err(Error::LockTimeout { .. }));
                    assert!(changed.is_ok() || locked || disk.is_dead(), "{changed:?}");
                }
                entries(key, value, index);
            },
            |_| Ok(()),
        );
        assert!(built.is_ok() || disk.is_dead(), "{:?}", built.err());
        died += u32::from(disk.is_dead());
        disk.dies_now();
        let was_built = built.is_ok();
        drop((built, base, db));
        let (_, db) = open(&sim);
        while db.step().unwrap() {}
        match db.open_tree("index") {
            Ok(index) => {
                let base = db.open_tree("base").unwrap();
                assert_eq!(contents(&db, &index), index_of(&contents(&db, &base)), "crash {at}");
            }
            Err(error) => {
                absent += 1;
                assert!(!was_built && matches!(error, Error::NoSuchTree { .. }), "{error}");
                assert_eq!(db.trees().unwrap(), ["base"]);
            }
        }
        assert_eq!(db.check().unwrap(), [], "crash {at}");
    }
    assert!(died >= 8 && absent >= 6, "{died} {absent}");
}

/// A writer that maintains an index, if there is one: it looks for the index with a lock, for which the build
/// waits before it makes the index visible.
fn put(tx: &mut Transaction, base: &Tree, dictionary: &Tree, key: &[u8], value: Option<&[u8]>) -> Result<()> {
    if tx.get_for_share(dictionary, b"base")?.is_some() {
        let index = tx.open_tree("index")?;
        if let Some(old) = tx.get_for_update(base, key)? {
            for (entry, _) in of(key, &old) {
                assert!(tx.delete(&index, &entry)?, "an entry is missing");
            }
        }
        for (entry, value) in value.map_or_else(Vec::new, |value| of(key, value)) {
            tx.insert(&index, &entry, &value)?;
        }
    }
    match value {
        Some(value) => tx.put(base, key, value),
        None => tx.delete(base, key).map(drop),
    }
}

/// One entry for each row.
fn of(key: &[u8], value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    vec![([&value[..1], key].concat(), value.to_vec())]
}

#[test]
fn writers_go_on_and_keep_the_index_from_its_first_moment() {
    const WRITERS: u32 = 16;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().with_pool_size(16 << 20).with_durability(Durability::Written);
    let db = Database::open_with(dir.path(), options).unwrap();
    let (base, dictionary) = (db.create_tree("base").unwrap(), db.create_tree("dictionary").unwrap());
    let rows = (0..WRITERS * 1000).map(|i| (i.to_be_bytes(), vec![i as u8; 30]));
    db.transact(|tx| tx.put_rows(&base, rows.clone())).unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let index = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, base, dictionary, stop, done) = (&db, &base, &dictionary, &stop, &done);
            scope.spawn(move || {
                let mut dice = Pcg64::seed_from_u64(writer.into());
                while !stop.load(Ordering::Relaxed) {
                    let key = (writer * 1000 + dice.random_range(0..1200)).to_be_bytes();
                    let value = [dice.random::<u8>(); 20];
                    let value = (dice.random_range(0..5) > 0).then_some(&value[..]);
                    let take_back = dice.random_range(0..6) == 0;
                    let changed = db.transact(|tx| {
                        put(tx, base, dictionary, &key, value)?;
                        if take_back { Err(Error::Usage("taken back".into())) } else { Ok(()) }
                    });
                    assert!(changed.is_ok() || take_back, "{changed:?}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let entries = |key: &[u8], value: &[u8], index: &mut IndexEntries| {
            of(key, value).into_iter().for_each(|(key, value)| index.push(key, value));
        };
        let built = db
            .build_index(&base, "index", IndexOptions::default(), entries, |tx| tx.put(&dictionary, b"base", b"index"));
        // The writers maintain it now.
        let then = done.load(Ordering::Relaxed);
        while built.is_ok() && done.load(Ordering::Relaxed) < then + 500 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        built.unwrap()
    });
    let expected: Rows = contents(&db, &base).iter().flat_map(|(key, value)| of(key, value)).collect();
    assert_eq!(contents(&db, &index), expected);
    assert_eq!(db.check_tree(&index).unwrap(), []);
    assert_eq!(db.check().unwrap(), []);
}

#[test]
fn a_unique_index_has_no_two_entries_with_the_same_unique_part() {
    let db = Database::in_memory().unwrap();
    let base = db.create_tree("base").unwrap();
    db.transact(|tx| tx.put_rows(&base, (0..1000u32).map(|i| (i.to_be_bytes(), i.to_le_bytes())))).unwrap();
    let unique = |key: &[u8], value: &[u8], index: &mut IndexEntries| match value {
        b"none" => index.push([value, key].concat(), []),
        _ => index.push_unique([value, key].concat(), value.len(), key),
    };
    let none = |_: &mut Transaction| Ok(());
    let in_memory = IndexOptions::default();
    for options in [in_memory, IndexOptions { sort_bytes: 4096, ..in_memory }] {
        let index = db.build_index(&base, "i", options, unique, none).unwrap();
        db.transact(|tx| tx.drop_tree("i")).unwrap();
        drop(index);
        // A duplicate, from the start and from a change during the build; rows without a unique part may be equal.
        db.transact(|tx| tx.put_rows(&base, [(b"one", b"none"), (b"two", b"none")])).unwrap();
        db.transact(|tx| tx.put(&base, b"again", &77u32.to_le_bytes())).unwrap();
        let error = db.build_index(&base, "i", options, unique, none).unwrap_err();
        let expected = [&77u32.to_le_bytes()[..], &77u32.to_be_bytes()].concat();
        assert!(matches!(&error, Error::KeyExists { on } if on.key == expected), "{error}");
        db.transact(|tx| tx.delete(&base, b"again").map(drop)).unwrap();
        let mut changed = false;
        let later = |key: &[u8], value: &[u8], index: &mut IndexEntries| {
            if !std::mem::replace(&mut changed, true) {
                db.transact(|tx| tx.put(&base, b"again", &77u32.to_le_bytes())).unwrap();
            }
            unique(key, value, index);
        };
        let error = db.build_index(&base, "i", options, later, none).unwrap_err();
        assert!(matches!(error, Error::KeyExists { .. }), "{error}");
        // Values that two rows exchange meanwhile collide at no time.
        db.transact(|tx| tx.delete(&base, b"again").map(drop)).unwrap();
        let mut changed = false;
        let exchange = |key: &[u8], value: &[u8], index: &mut IndexEntries| {
            if !std::mem::replace(&mut changed, true) {
                db.transact(|tx| {
                    let (one, two) = (0u32.to_be_bytes(), 1u32.to_be_bytes());
                    let values = (tx.get(&base, &one)?.unwrap(), tx.get(&base, &two)?.unwrap());
                    tx.put(&base, &one, &values.1)?;
                    tx.put(&base, &two, &values.0)
                })
                .unwrap();
            }
            unique(key, value, index);
        };
        let index = db.build_index(&base, "i", options, exchange, none).unwrap();
        assert_eq!(contents(&db, &index).len(), 1002);
        db.transact(|tx| tx.drop_tree("i")).unwrap();
        db.transact(|tx| tx.delete(&base, b"one").and_then(|_| tx.delete(&base, b"two")).map(drop)).unwrap();
        // Two entries with the same key, next to each other in one sort.
        let same = |key: &[u8], _: &[u8], index: &mut IndexEntries| index.push(&key[..3], key);
        let error = db.build_index(&base, "i", options, same, none).unwrap_err();
        assert!(matches!(&error, Error::KeyExists { on } if on.key == [0; 3]), "{error}");
    }
}

#[test]
fn indexes_are_built_together_and_from_the_moment_that_the_builder_is_made() {
    let db = Database::in_memory().unwrap();
    let base = db.create_tree("base").unwrap();
    let put = |from: u32, to: u32| {
        db.transact(|tx| tx.put_rows(&base, (from..to).map(|i| (i.to_be_bytes(), (i * 7 % 64).to_be_bytes()))))
            .unwrap();
    };
    put(0, 3000);
    let builder = db.index_builder(&base).unwrap();
    put(2000, 4000);
    // The build does not wait for a transaction that is open on another tree.
    let mut other = db.begin().unwrap();
    other.put(&db.create_tree("other").unwrap(), b"k", b"v").unwrap();
    let mut changed = false;
    let entries = |index: usize, key: &[u8], value: &[u8], entries: &mut IndexEntries| {
        if !std::mem::replace(&mut changed, true) {
            put(3500, 4500);
        }
        match index {
            0 => entries.push([value, key].concat(), []),
            _ => entries.push_unique([key, value].concat(), key.len(), value),
        }
    };
    let options = IndexOptions { sort_bytes: 20_000, ..IndexOptions::default() };
    let built = builder.build(&["by value", "by key"], options, entries, |_| Ok(())).unwrap();
    drop(other);
    let rows = contents(&db, &base);
    assert_eq!(rows.len(), 4500);
    let by_value: Rows = rows.iter().map(|(key, value)| ([&value[..], key].concat(), vec![])).collect();
    let by_key: Rows = rows.iter().map(|(key, value)| ([&key[..], value].concat(), value.clone())).collect();
    assert!(contents(&db, &built[0]) == by_value && contents(&db, &built[1]) == by_key);
    assert_eq!(db.check().unwrap(), []);
}

/// The function may keep what it has read of a row for the other indexes of the same row: here the second column is
/// read with the first.
#[test]
fn the_indexes_of_one_version_of_a_row_come_together() {
    let db = Database::in_memory().unwrap();
    let base = db.create_tree("base").unwrap();
    let put_all =
        |second: u8| db.transact(|tx| (0..50).try_for_each(|key| tx.put(&base, &[key], &[7, second]))).unwrap();
    put_all(1);
    let (mut kept, mut changed) = (Vec::new(), false);
    let of_row = |at: usize, key: &[u8], value: &[u8], index: &mut IndexEntries| {
        if at == 0 {
            kept = value.to_vec();
        }
        if at == 1 && !std::mem::replace(&mut changed, true) {
            put_all(2);
        }
        assert_eq!(kept, value, "another version of the row");
        index.push([&kept[at..=at], key].concat(), []);
    };
    let builder = db.index_builder(&base).unwrap();
    let indexes = builder.build(&["first", "second"], IndexOptions::default(), of_row, |_| Ok(())).unwrap();
    for (index, column) in indexes.iter().zip([7, 2]) {
        let expected: Rows = (0..50).map(|key| (vec![column, key], Vec::new())).collect();
        assert_eq!(contents(&db, index), expected);
    }
}

/// Changes of an earlier opening are in no log of changed rows: a build waits for the prepared transaction that made
/// them, and for the rollback of those that were open.
#[test]
fn a_build_waits_for_the_changes_of_an_earlier_opening() {
    let sim = SimDisk::new(SimOptions::default());
    let xid = Xid(b"xid".to_vec());
    let (process, db) = open(&sim);
    let (base, other) = (db.create_tree("base").unwrap(), db.create_tree("other").unwrap());
    db.transact(|tx| tx.put(&base, b"1", b"one")).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&base, b"2", b"two").unwrap();
    tx.prepare(&xid).unwrap();
    let mut loser = db.begin().unwrap();
    loser.put(&other, b"3", b"three").unwrap();
    db.transact(|tx| tx.put(&base, b"4", b"four")).unwrap();
    process.dies_now();
    drop((loser, base, other, db));
    let (_process, db) = open(&sim);
    let (base, other) = (db.open_tree("base").unwrap(), db.open_tree("other").unwrap());
    let build = |base| db.build_index(base, "index", IndexOptions::default(), entries, |_| Ok(()));
    for tree in [&base, &other] {
        assert!(matches!(db.begin().unwrap().lock_tree(tree), Err(Error::LockTimeout { .. })));
        assert!(matches!(build(tree), Err(Error::LockTimeout { .. })));
    }
    while db.step().unwrap() {}
    assert!(matches!(db.begin().unwrap().lock_tree(&base), Err(Error::LockTimeout { .. })));
    assert!(matches!(build(&base), Err(Error::LockTimeout { .. })));
    db.begin().unwrap().lock_tree(&other).unwrap();
    db.commit_prepared(&xid).unwrap();
    let index = build(&base).unwrap();
    assert_eq!(contents(&db, &index), index_of(&contents(&db, &base)));
}

#[test]
fn what_cannot_be_an_index_is_told_and_leaves_nothing() {
    let db = Database::in_memory().unwrap();
    let base = db.create_tree("base").unwrap();
    db.transact(|tx| tx.put_rows(&base, (0..100u32).map(|i| (i.to_be_bytes(), [i as u8])))).unwrap();
    let by_value = |_: &[u8], value: &[u8], index: &mut IndexEntries| index.push(value, []);
    let none = |_: &mut Transaction| Ok(());
    // Two rows with one entry: from the start, or added later.
    db.transact(|tx| tx.put(&base, b"one more", &[7])).unwrap();
    let error = db.build_index(&base, "i", IndexOptions::default(), by_value, none).unwrap_err();
    assert!(matches!(error, Error::KeyExists { .. }), "{error}");
    db.transact(|tx| tx.delete(&base, b"one more").map(drop)).unwrap();
    let mut changed = false;
    let later = |key: &[u8], value: &[u8], index: &mut IndexEntries| {
        if !std::mem::replace(&mut changed, true) {
            db.transact(|tx| tx.put(&base, b"one more", &[7])).unwrap();
        }
        by_value(key, value, index);
    };
    let error = db.build_index(&base, "i", IndexOptions::default(), later, none).unwrap_err();
    assert!(matches!(error, Error::KeyExists { .. }), "{error}");
    db.transact(|tx| tx.delete(&base, b"one more").map(drop)).unwrap();
    let refuses = |_: &[u8], _: &[u8], index: &mut IndexEntries| index.fail(Error::Usage("no".into()));
    let error = db.build_index(&base, "i", IndexOptions::default(), refuses, none).unwrap_err();
    assert!(matches!(&error, Error::Usage(why) if why == "no"), "{error}");
    // A function that gives different entries for the same row.
    let mut calls = 0u32;
    let moody = |key: &[u8], _: &[u8], index: &mut IndexEntries| {
        calls += 1;
        if calls == 1 {
            db.transact(|tx| tx.put(&base, &0u32.to_be_bytes(), &[200])).unwrap();
        }
        index.push([&calls.to_be_bytes()[..], key].concat(), []);
    };
    let error = db.build_index(&base, "i", IndexOptions::default(), moody, none).unwrap_err();
    assert!(matches!(&error, Error::Usage(why) if why.contains("different entries")), "{error}");
    // The base is changed where that is not allowed; the error of `switch`.
    let error =
        db.build_index(&base, "i", IndexOptions::default(), by_value, |tx| tx.put(&base, b"x", &[250])).unwrap_err();
    assert!(matches!(&error, Error::Usage(why) if why.contains("switch")), "{error}");
    let error =
        db.build_index(&base, "i", IndexOptions::default(), by_value, |_| Err(Error::Usage("no".into()))).unwrap_err();
    assert!(matches!(&error, Error::Usage(why) if why == "no"), "{error}");
    let error = db.build_index(&base, "base", IndexOptions::default(), by_value, none).unwrap_err();
    assert!(matches!(error, Error::TreeExists { .. }), "{error}");
    assert_eq!(db.trees().unwrap(), ["base"]);
    db.build_index(&base, "i", IndexOptions::default(), by_value, none).unwrap();
    assert_eq!(db.check().unwrap(), []);
}

#[test]
fn a_build_is_interrupted_in_any_step() {
    let db = Database::in_memory().unwrap();
    let base = db.create_tree("base").unwrap();
    let rows = (0..5000u32).map(|n| (n.to_be_bytes(), [7; 10]));
    db.transact(|tx| tx.put_rows(&base, rows.clone())).unwrap();
    for (at, sort_bytes) in [(0, 1 << 20), (4999, 1 << 20), (4999, 20_000)] {
        let builder = db.index_builder(&base).unwrap();
        let (handle, mut calls) = (builder.interrupt_handle(), 0);
        let options = IndexOptions { sort_bytes, ..IndexOptions::default() };
        let built = builder.build(
            &["index"],
            options,
            |_, key, value, index| {
                if calls == at {
                    handle.interrupt();
                }
                calls += 1;
                index.push([value, key].concat(), key);
            },
            |_| unreachable!("it is not switched to"),
        );
        assert!(matches!(built, Err(Error::Interrupted { .. })), "{built:?}");
        assert!(calls <= at + 300);
        assert!(matches!(db.open_tree("index"), Err(Error::NoSuchTree { .. })));
    }
}
