//! Scans and look-ups with prefetch, of a whole database whose pool holds a small part of it: their results
//! match a model.
//!
//! 1. The disk is simulated: reads complete in any order, some are slow, and in one test some fail.
//! 2. What one transaction sees does not depend on concurrent changes: trees grow, shrink and are dropped
//!    under its scans.

use seawall::{
    Background, CursorOptions, Database, Env, Error, Isolation, LockMode, Options, RangeOrder, Seek, Task, Transaction,
    Tree, TxOptions,
};
use seawall_io::Op;
use seawall_sim::{Fault, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dice;
    pub(crate) mod dying_process;
}
use support::dice::Dice;
use support::dying_process::{DyingProcess, End};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 3000;

fn key(i: u64) -> Vec<u8> {
    (i as u32).to_be_bytes().to_vec()
}

fn value(dice: &mut Dice) -> Vec<u8> {
    let len = if dice.percent(2) { 3000 + dice.below(12_000) } else { 60 + dice.below(100) };
    vec![dice.below(256) as u8; len as usize]
}

/// A database four times its pool, and the contents of its tree.
fn filled(seed: u64) -> (Arc<SimDisk>, Database, Tree, Model) {
    let sim = SimDisk::new(SimOptions { seed, trace_entries_max: 0, ..SimOptions::default() });
    let env = Env {
        disk: DyingProcess::new(&sim, End::PowerCut, None),
        clock: sim.clone(),
        seed,
        background: Background::Steps,
    };
    let options = Options::default()
        .with_page_size(4096)
        .with_pool_size(256 << 10)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(128 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
        // The tests need all frames of such a small pool.
        .with_deferred_percent(0);
    let db = Database::open_in(env, "/db", options).unwrap();
    let tree = db.create_tree("t").unwrap();
    let (mut model, mut dice) = (Model::new(), Dice::new(seed));
    let mut order: Vec<u64> = (0..KEYS).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, dice.below(i as u64 + 1) as usize);
    }
    for some in order.chunks(100) {
        let mut tx = db.begin().unwrap();
        for &i in some {
            let value = value(&mut dice);
            tx.put(&tree, &key(i), &value).unwrap();
            model.insert(key(i), value);
        }
        tx.commit().unwrap();
        tend(&db);
    }
    (sim, db, tree, model)
}

fn tend(db: &Database) {
    for &task in Task::ALL {
        while db.step_task(task).unwrap() {}
    }
}

fn bounds(dice: &mut Dice) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let one = |dice: &mut Dice| {
        let key = key(dice.below(KEYS));
        match dice.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    };
    (one(dice), one(dice))
}

/// The model's rows between bounds that may be in the wrong order.
fn between(model: &Model, (start, end): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |key: &Vec<u8>| {
        (match start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        }) && match end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        }
    };
    model.iter().filter(|(key, _)| inside(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn all(tx: &Transaction, tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    tx.iter(tree).long().map(Result::unwrap).collect()
}

#[test]
fn many_keys_are_what_single_ones_are() {
    let (_sim, db, tree, model) = filled(1);
    let mut dice = Dice::new(2);
    for many in [0, 1, 2, 10, 100, 500] {
        // Some twice, some not there.
        let mut keys: Vec<_> = (0..many).map(|_| key(dice.below(KEYS + KEYS / 5))).collect();
        keys.extend(keys.first().cloned());
        let before = db.stats().pool;
        let found = db.begin().unwrap().multi_get(&tree, &keys).unwrap();
        assert!(found.iter().zip(&keys).all(|(found, key)| found.as_ref() == model.get(key)), "{many} keys");
        let pool = db.stats().pool;
        if many == 500 {
            let ahead = pool.prefetched - before.prefetched;
            assert!(ahead > 100 && pool.misses - before.misses < ahead / 2, "{ahead} ahead, of {pool:?}");
        }
    }
    let none = db.create_tree("none").unwrap();
    assert_eq!(db.begin().unwrap().multi_get(&none, &[key(1), key(2)]).unwrap(), [None, None]);
}

#[test]
fn rows_whose_pages_were_requested_are_read_from_memory() {
    let (_sim, db, tree, model) = filled(3);
    let mut dice = Dice::new(4);
    let tx = db.begin().unwrap();
    let (mut absent, mut alone) = (0, 0);
    for _ in 0..20 {
        // Short values: long ones have pages of their own.
        let keys: Vec<_> = (0..8).map(|_| key(dice.below(KEYS))).collect();
        let short = |key: &&Vec<u8>| model.get(*key).is_none_or(|value| value.len() < 1000);
        let keys: Vec<_> = keys.iter().filter(short).collect();
        absent += tx.prefetch(&tree, &keys).unwrap();
        let (_, on_demand) = reads_of(&db, || {
            for key in &keys {
                assert_eq!(tx.get(&tree, *key).unwrap().as_ref(), model.get(*key));
            }
        });
        alone += on_demand;
        assert_eq!(tx.prefetch(&tree, &keys).unwrap(), 0, "all are in memory now");
    }
    // The pool permits 8 prefetched pages at a time.
    assert!(absent > 60 && alone < 10, "{absent} pages were not in memory, {alone} were read on demand");
    let empty: [&[u8]; 0] = [];
    assert_eq!(tx.prefetch(&tree, &empty).unwrap(), 0);
    let other = filled(5);
    assert!(tx.prefetch(&other.2, &[key(1)]).is_err(), "a tree of another database");
}

/// The leaves that a scan prefetches, and those it reads on demand.
fn reads_of(db: &Database, scan: impl FnOnce()) -> (u64, u64) {
    let before = db.stats().pool;
    scan();
    let after = db.stats().pool;
    (after.prefetched - before.prefetched, after.misses - before.misses)
}

#[test]
fn batches_of_changes_read_ahead_in_the_order_given() {
    let (_sim, db, tree, mut model) = filled(7);
    let mut dice = Dice::new(8);
    let between = |dice: &mut Dice| {
        let mut rows: Vec<(Vec<u8>, [u8; 20])> = Vec::new();
        while rows.len() < 300 {
            // Behind a key of the model, so that no two are equal.
            let new = [key(dice.below(KEYS)), vec![dice.below(256) as u8; 3]].concat();
            if rows.iter().all(|(key, _)| *key != new) {
                rows.push((new, [rows.len() as u8; 20]));
            }
        }
        rows
    };
    for way in ["insert_many", "put_many", "put_rows"] {
        let mut rows = between(&mut dice);
        rows.retain(|(key, _)| !model.contains_key(key));
        let mut tx = db.begin().unwrap();
        let (ahead, alone) = reads_of(&db, || match way {
            "insert_many" => tx.insert_many(&tree, rows.iter().map(|(key, value)| (key, value))).unwrap(),
            "put_many" => tx.put_many(&tree, &rows).unwrap(),
            _ => tx.put_rows(&tree, rows.iter().map(|(key, value)| (key, value))).unwrap(),
        });
        assert!(ahead > 60 && alone < ahead / 4, "{way}: {ahead} ahead, {alone} by itself");
        tx.commit().unwrap();
        model.extend(rows.into_iter().map(|(key, value)| (key, value.to_vec())));
        tend(&db);
    }
    // One that exists, in the middle: those before it are inserted, in the order given.
    let mut rows = between(&mut dice);
    rows.retain(|(key, _)| !model.contains_key(key));
    rows[150].0 = key(17);
    let mut tx = db.begin().unwrap();
    let refused = tx.insert_many(&tree, rows.iter().map(|(key, value)| (key, value))).unwrap_err();
    assert!(matches!(refused, Error::DuplicateRow { index: 150, .. }), "{refused:?}");
    for (i, (key, value)) in rows.iter().enumerate() {
        let found = tx.get(&tree, key).unwrap();
        assert_eq!(found.is_some_and(|found| found[..] == value[..]), i < 150, "row {i}");
    }
    drop(tx);
    let tx = db.begin().unwrap();
    assert_eq!(all(&tx, &tree), model.into_iter().collect::<Vec<_>>());
}

#[test]
fn scans_that_lock_read_ahead_too() {
    let (_sim, db, tree, model) = filled(31);
    let short = |value: &[u8]| value.len() < 1000;
    // Long values are read one by one, and are not counted here.
    let long = model.values().filter(|value| !short(value)).map(|value| value.len() as u64 / 3000).sum::<u64>();
    let serializable = TxOptions { isolation: Isolation::Serializable, ..TxOptions::default() };
    let read_committed = TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() };
    for (options, lock) in [(serializable, None), (read_committed, Some(LockMode::Exclusive))] {
        for forward in [true, false] {
            let tx = db.begin_with(options).unwrap();
            let mut found = Vec::new();
            let (ahead, alone) = reads_of(&db, || {
                let mut cursor = tx.cursor(&tree, CursorOptions { lock, ..CursorOptions::default() });
                let mut there = cursor.seek(if forward { Seek::First } else { Seek::Last }).unwrap();
                while there {
                    found.push(cursor.key().to_vec());
                    there = if forward { cursor.next() } else { cursor.prev() }.unwrap();
                }
            });
            if !forward {
                found.reverse();
            }
            assert!(found.iter().eq(model.keys()), "{options:?}");
            assert!(ahead > 100 && alone < ahead / 4 + long, "{ahead} ahead, {alone} by itself");
        }
    }
    // A limit is respected.
    let tx = db.begin_with(serializable).unwrap();
    let (ahead, _) = reads_of(&db, || {
        let mut cursor = tx.cursor(&tree, CursorOptions { limit: Some(10), ..CursorOptions::default() });
        assert!(cursor.seek(Seek::AtLeast(&key(KEYS / 2))).unwrap());
        for _ in 1..10 {
            assert!(cursor.next().unwrap());
        }
    });
    assert!(ahead < 10, "{ahead} pages ahead for 10 rows");
}

#[test]
fn many_ranges_give_what_each_alone_gives() {
    let (_sim, db, tree, model) = filled(3);
    let mut dice = Dice::new(4);
    for round in 0..4 {
        let ranges: Vec<_> = (0..dice.below(40)).map(|_| bounds(&mut dice)).collect();
        let tx = db.begin().unwrap();
        for order in [RangeOrder::Key, RangeOrder::Arrival] {
            let mut found = vec![Vec::new(); ranges.len()];
            let mut numbers = Vec::new();
            for entry in tx.scan_ranges(&tree, &ranges, order) {
                let (number, entry) = entry.unwrap();
                if numbers.last() != Some(&number) {
                    numbers.push(number);
                }
                found[number].push(entry);
            }
            for (range, found) in ranges.iter().zip(&found) {
                assert_eq!(found, &between(&model, range), "round {round}, {range:?}");
            }
            let mut once = numbers.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), numbers.len(), "a range comes in one piece");
        }
        tend(&db);
    }
}

#[test]
fn ranges_from_both_ends_meet() {
    let (_sim, db, tree, model) = filled(5);
    let mut dice = Dice::new(6);
    for _ in 0..30 {
        let range = bounds(&mut dice);
        let tx = db.begin().unwrap();
        let mut rows = tx.range(&tree, range.clone());
        if dice.percent(50) {
            rows = rows.long();
        }
        if dice.percent(30) {
            rows = rows.limit(dice.below(50));
        }
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let forward = dice.percent(60);
            match if forward { rows.next() } else { rows.next_back() } {
                Some(row) if forward => front.push(row.unwrap()),
                Some(row) => back.push(row.unwrap()),
                None => break,
            }
        }
        front.extend(back.into_iter().rev());
        assert_eq!(front, between(&model, &range), "{range:?}");
    }
}

#[test]
fn a_scan_shows_its_moment_while_the_tree_grows_shrinks_and_goes() {
    let (_sim, db, tree, mut model) = filled(7);
    let mut dice = Dice::new(8);
    let old = db.begin().unwrap();
    let then = model.clone();
    let mut rows = old.iter(&tree);
    let mut seen = Vec::new();
    for step in 0..12 {
        seen.extend(rows.by_ref().take(150).map(Result::unwrap));
        let mut tx = db.begin().unwrap();
        let from = dice.below(KEYS);
        if step % 2 == 0 {
            let (start, end) = (key(from), key(from + 400));
            let gone = tx.delete_range(&tree, start.clone()..end.clone()).unwrap();
            let keys: Vec<_> = model.range(start..end).map(|(key, _)| key.clone()).collect();
            assert_eq!(gone, keys.len() as u64);
            keys.iter().for_each(|key| drop(model.remove(key)));
        } else {
            for i in from..from + 120 {
                let (key, value) = ([&key(i)[..], b"+"].concat(), value(&mut dice));
                tx.put(&tree, &key, &value).unwrap();
                model.insert(key, value);
            }
        }
        tx.commit().unwrap();
        tend(&db);
        assert!(all(&db.begin().unwrap(), &tree).iter().map(|(k, v)| (k, v)).eq(model.iter()));
    }
    db.drop_tree("t").unwrap();
    tend(&db);
    seen.extend(rows.by_ref().map(Result::unwrap));
    assert!(seen.iter().map(|(k, v)| (k, v)).eq(then.iter()), "the snapshot's tree is whole to its end");
    assert!(
        old.multi_get(&tree, &[key(1), key(2)]).unwrap().iter().eq([
            then.get(&key(1)).cloned(),
            then.get(&key(2)).cloned()
        ]
        .iter())
    );
    drop(rows);
    drop(old);
    tend(&db);
    let late = db.begin().unwrap();
    assert!(late.iter(&tree).next().unwrap().is_err() && late.multi_get(&tree, &[key(1)]).is_err());
    drop(late);
    assert_eq!(db.check().unwrap(), []);
    db.close().unwrap();
}

/// The log messages of all tests.
static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logged;

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LOGGED.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[test]
fn reads_that_fail_are_errors_of_those_who_need_them_alone() {
    log::set_logger(&Logged).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let (sim, db, tree, model) = filled(9);
    sim.inject(Fault::slow(Duration::from_millis(1)).on(Op::Read).probability(0.2));
    sim.inject(Fault::eio().on(Op::Read).path("/db/data").probability(0.05).times(200));
    let (mut good, mut failed) = (0, 0);
    for _ in 0..60 {
        let tx = db.begin().unwrap();
        match tx.iter(&tree).long().collect::<Result<Vec<_>, _>>() {
            Ok(rows) => {
                good += 1;
                assert!(rows.iter().map(|(k, v)| (k, v)).eq(model.iter()));
            }
            Err(error) => {
                failed += 1;
                assert!(matches!(error, seawall::Error::Io(_)), "{error}");
            }
        }
    }
    assert!(good > 0 && failed > 0, "{good} good, {failed} failed");
    assert!(db.stats().pool.prefetch_failed > 0);
    let logged = LOGGED.lock().unwrap().iter().filter(|line| line.contains("could not be prefetched")).count();
    let failures = u64::from(u64::BITS - db.stats().pool.prefetch_failed.leading_zeros());
    assert!(logged as u64 >= failures, "{logged} lines about {failures} doublings");
    sim.clear_faults();
    assert!(all(&db.begin().unwrap(), &tree).iter().map(|(k, v)| (k, v)).eq(model.iter()));
    assert_eq!(db.check().unwrap(), []);
}

#[test]
fn hints_of_a_cursor_bound_what_is_read() {
    let (_sim, db, tree, model) = filled(10);
    let tx = db.begin().unwrap();
    let read = |options: CursorOptions, rows: usize| {
        // Reads the whole tree first, so that the pool evicts the pages in question.
        assert_eq!(all(&db.begin().unwrap(), &tree).len(), model.len());
        let before = db.stats().pool;
        let mut cursor = tx.cursor(&tree, options);
        assert!(cursor.seek(Seek::AtLeast(&key(100))).unwrap());
        for _ in 1..rows {
            assert!(cursor.next().unwrap());
        }
        drop(cursor);
        let pool = db.stats().pool;
        pool.prefetched + pool.misses - before.prefetched - before.misses
    };
    let few = read(CursorOptions { limit: Some(10), ..CursorOptions::default() }, 10);
    assert!(few <= 4, "{few} pages for ten rows");
    let eager = read(CursorOptions { long: true, ..CursorOptions::default() }, 1);
    assert!(eager > few, "{eager} pages at once when hinted");
    let estimate = tx.estimate_range(&tree, key(100)..key(1100)).unwrap();
    assert!((500..=2000).contains(&estimate.rows) && estimate.pages > 20, "{estimate:?}");
    assert_eq!(tx.estimate_range(&tree, key(5)..key(5)).unwrap().rows, 0);
}

/// Scans of all kinds during changes that preserve the sum of all rows, in a pool of some dozen pages.
#[test]
fn eviction_and_changes_race_reads_ahead() {
    const ROWS: u64 = 4000;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = Options::default().with_page_size(4096).with_pool_size(256 << 10).with_log_capacity(8 << 20);
    let db = Database::open_with(dir.path().join("db"), options).unwrap();
    let tree = db.create_tree("t").unwrap();
    let row = |amount: u64| [&amount.to_be_bytes()[..], &[7; 80]].concat();
    let amount = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().unwrap());
    for first in (0..ROWS).step_by(500) {
        let mut tx = db.begin().unwrap();
        for i in first..first + 500 {
            tx.put(&tree, &key(i * 7919 % ROWS), &row(100)).unwrap();
        }
        tx.commit_with(seawall::Durability::Written).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, tree) = (&db, &tree);
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                for _ in 0..150 {
                    let (a, b) = (key(dice.below(ROWS)), key(dice.below(ROWS)));
                    db.transact(|tx| {
                        let (from, to) = (tx.get_for_update(tree, &a)?, tx.get_for_update(tree, &b)?);
                        let (from, to) = (amount(&from.unwrap()), amount(&to.unwrap()));
                        if a != b && from > 0 {
                            tx.put(tree, &a, &row(from - 1))?;
                            tx.put(tree, &b, &row(to + 1))?;
                        }
                        Ok(())
                    })
                    .unwrap();
                }
            });
        }
        for thread in 0..4u64 {
            let (db, tree) = (&db, &tree);
            scope.spawn(move || {
                for round in 0..6 {
                    let tx = db.begin().unwrap();
                    let sum: u64 = match (thread + round) % 4 {
                        0 => tx.iter(tree).map(|row| amount(&row.unwrap().1)).sum(),
                        1 => tx.iter(tree).long().rev().map(|row| amount(&row.unwrap().1)).sum(),
                        2 => {
                            let keys: Vec<_> = (0..ROWS).map(key).collect();
                            tx.multi_get(tree, &keys).unwrap().iter().flatten().map(|value| amount(value)).sum()
                        }
                        _ => {
                            let ranges: Vec<_> = (0..ROWS).step_by(100).map(|i| key(i)..key(i + 100)).collect();
                            tx.scan_ranges(tree, &ranges, RangeOrder::Arrival)
                                .map(|row| amount(&row.unwrap().1.1))
                                .sum()
                        }
                    };
                    assert_eq!(sum, 100 * ROWS);
                }
            });
        }
    });
    db.close().unwrap();
}
