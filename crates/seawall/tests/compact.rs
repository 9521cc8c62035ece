//! Compactions of a whole database during transactions and drops, on full disks, and with callers that stop them.

use seawall::{
    Background, CompactOptions, Compacted, Database, Durability, Env, Error, Options, Task, Transaction, Tree,
};
use seawall_io::{Clock as _, Op, SystemClock};
use seawall_sim::{Fault, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dice;
}
use support::dice::Dice;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(8 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(disk: &Arc<SimDisk>, background: Background) -> Database {
    let env = Env { disk: disk.clone(), clock: Arc::new(SystemClock::default()), seed: 1, background };
    Database::open_in(env, "/db", options()).unwrap()
}

fn disk() -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed: 1, trace_entries_max: 0, ..SimOptions::default() })
}

fn tend(db: &Database) {
    for &task in Task::ALL {
        while db.step_task(task).unwrap() {}
    }
}

/// Rows in random order, some of them with long values.
fn fill(db: &Database, tree: &Tree, rows: u32, seed: u64) -> Model {
    let (mut dice, mut model) = (Dice::new(seed), Model::new());
    let mut keys: Vec<u32> = (0..rows).collect();
    for i in (1..keys.len()).rev() {
        keys.swap(i, dice.index(i + 1));
    }
    for some in keys.chunks(200) {
        let mut tx = db.begin().unwrap();
        for key in some {
            let len = if dice.percent(1) { 5000 } else { 40 + dice.below(60) };
            let value = vec![dice.below(256) as u8; len as usize];
            tx.put(tree, &key.to_be_bytes(), &value).unwrap();
            model.insert(key.to_be_bytes().to_vec(), value);
        }
        tx.commit_with(Durability::Written).unwrap();
    }
    model
}

fn rows(tx: &Transaction, tree: &Tree) -> Model {
    tx.iter(tree).map(Result::unwrap).collect()
}

fn whole(db: &Database) {
    let findings = db.check().unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

/// Always continues.
fn on(_: &seawall::CompactProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn rows_snapshots_and_long_values_stay_and_the_order_comes() {
    let disk = disk();
    let db = open(&disk, Background::Steps);
    let tree = db.create_tree("t").unwrap();
    let mut model = fill(&db, &tree, 6000, 1);
    tend(&db);
    let old = db.begin().unwrap();
    let before = rows(&old, &tree);
    assert!(before == model);
    // Newer versions, deletions, and open changes that will be rolled back.
    let mut tx = db.begin().unwrap();
    for key in (0..6000u32).step_by(3) {
        tx.delete(&tree, &key.to_be_bytes()).unwrap();
        model.remove(&key.to_be_bytes()[..]);
    }
    for key in (1..6000u32).step_by(30) {
        tx.put(&tree, &key.to_be_bytes(), &[1; 9000]).unwrap();
        model.insert(key.to_be_bytes().to_vec(), vec![1; 9000]);
    }
    tx.commit().unwrap();
    let mut open_one = db.begin().unwrap();
    for key in (2..6000u32).step_by(15) {
        open_one.put(&tree, &key.to_be_bytes(), b"never").unwrap();
    }
    let done = db.compact(&tree).unwrap();
    assert!(done.before.share() > 0.5 && done.after.share() < 0.05, "{done:?}");
    assert!(done.done.moved > 0 && done.done.freed == done.done.moved + done.done.merged && !done.broken_off);
    assert!(rows(&old, &tree) == before, "the old snapshot");
    assert!(rows(&db.begin().unwrap(), &tree) == model);
    open_one.rollback().unwrap();
    assert!(rows(&db.begin().unwrap(), &tree) == model, "after the rollback");
    drop(old);
    tend(&db);
    whole(&db);
    let again = db.compact(&tree).unwrap();
    assert!(again.after.leaves < done.after.leaves, "what was purged is merged: {done:?}, then {again:?}");
    assert!(rows(&db.begin().unwrap(), &tree) == model);
    whole(&db);
    drop(tree);
    db.close().unwrap();
    let db = open(&disk, Background::Steps);
    let tree = db.open_tree("t").unwrap();
    assert!(rows(&db.begin().unwrap(), &tree) == model);
    assert!(db.fragmentation(&tree).unwrap().share() < 0.05);
    whole(&db);
}

#[test]
fn empty_trees_and_trees_of_one_leaf_are_done_at_once() {
    let db = open(&disk(), Background::Steps);
    let tree = db.create_tree("t").unwrap();
    for _ in 0..2 {
        let Compacted { before, after, done, broken_off } = db.compact(&tree).unwrap();
        assert_eq!((before.leaves, before.apart, before), (1, 0, after));
        assert_eq!((done.moved, done.merged, done.freed, broken_off), (0, 0, 0, false));
        db.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
        // The next round compacts with this row.
        assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    for fill_percent in [0, 49, 101] {
        let options = CompactOptions { fill_percent, ..CompactOptions::default() };
        let error = db.compact_with(&tree, options, on).unwrap_err();
        assert!(error.to_string().contains("50 to 100"), "{error}");
    }
}

#[test]
fn it_can_be_broken_off_after_any_step_and_taken_up_again() {
    let db = open(&disk(), Background::Steps);
    let tree = db.create_tree("t").unwrap();
    let model = fill(&db, &tree, 3000, 2);
    let mut calls = 0;
    let none = db.compact_with(&tree, CompactOptions::default(), |_| {
        calls += 1;
        ControlFlow::Break(())
    });
    let done = none.unwrap();
    assert!(done.broken_off && done.done.moved == 0 && calls == 1);
    let mut rounds = 0;
    loop {
        let mut left = 4;
        let done = db.compact_with(&tree, CompactOptions::default(), |progress| {
            assert!(progress.freed == progress.moved + progress.merged);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let done = done.unwrap();
        whole(&db);
        assert!(rows(&db.begin().unwrap(), &tree) == model);
        rounds += 1;
        if !done.broken_off {
            assert!(done.after.share() < 0.05, "{done:?}");
            break;
        }
        assert!(rounds < 1000);
    }
    assert!(rounds > 1);
}

#[test]
fn a_drop_meanwhile_ends_it_and_no_page_is_lost() {
    for when in 0..8 {
        let db = open(&disk(), Background::Steps);
        let (tree, other) = (db.create_tree("t").unwrap(), db.create_tree("other").unwrap());
        fill(&db, &tree, 6000, 3);
        let model = fill(&db, &other, 300, 4);
        let mut calls = 0;
        let error = db.compact_with(&tree, CompactOptions::default(), |_| {
            calls += 1;
            if calls == when + 1 {
                db.drop_tree("t").unwrap();
                // With and without its pages being freed before the next step.
                if when % 2 == 0 {
                    tend(&db);
                }
            }
            ControlFlow::Continue(())
        });
        assert!(matches!(error, Err(Error::TreeDropped { .. })), "{error:?}");
        assert!(matches!(db.compact(&tree), Err(Error::TreeDropped { .. } | Error::NoSuchTree { .. })));
        assert!(matches!(db.fragmentation(&tree), Err(Error::TreeDropped { .. })));
        tend(&db);
        whole(&db);
        assert_eq!(db.tree_bytes(&tree), 0);
        assert!(rows(&db.begin().unwrap(), &other) == model);
    }
}

#[test]
fn a_drop_that_is_taken_back_ends_nothing_and_another_name_neither() {
    let db = open(&disk(), Background::Steps);
    let tree = db.create_tree("t").unwrap();
    let model = fill(&db, &tree, 3000, 5);
    db.rename_tree("t", "u").unwrap();
    let (mut calls, mut dropper) = (0, None);
    let done = db.compact_with(&tree, CompactOptions::default(), |_| {
        calls += 1;
        if calls == 3 {
            let mut tx = db.begin().unwrap();
            tx.drop_tree("u").unwrap();
            dropper = Some(tx);
        } else if let Some(tx) = dropper.take() {
            tx.rollback().unwrap();
        }
        ControlFlow::Continue(())
    });
    assert!(done.unwrap().after.share() < 0.05);
    assert!(rows(&db.begin().unwrap(), &tree) == model);
    whole(&db);
}

#[test]
fn a_tree_that_may_yet_vanish_is_refused() {
    let db = open(&disk(), Background::Steps);
    let mut tx = db.begin().unwrap();
    let tree = tx.create_tree("t").unwrap();
    tx.put(&tree, b"k", b"v").unwrap();
    assert!(matches!(db.compact(&tree), Err(Error::NoSuchTree { name }) if name == "t"));
    tx.rollback().unwrap();
    assert!(matches!(db.compact(&tree), Err(Error::NoSuchTree { .. } | Error::TreeDropped { .. })));
    whole(&db);
}

#[test]
fn locks_are_neither_waited_for_nor_taken() {
    let db = open(&disk(), Background::Steps);
    let tree = db.create_tree("t").unwrap();
    let model = fill(&db, &tree, 2000, 6);
    let mut tx = db.begin().unwrap();
    // Everything is locked exclusively, by rows and as a range.
    assert_eq!(tx.delete_range::<Vec<u8>>(&tree, ..).unwrap(), 2000);
    let held = db.stats().locks.held;
    let done = db.compact_with(&tree, CompactOptions::default(), |_| {
        assert_eq!(db.stats().locks.held, held);
        ControlFlow::Continue(())
    });
    assert!(done.unwrap().done.moved > 0);
    tx.rollback().unwrap();
    assert!(rows(&db.begin().unwrap(), &tree) == model);
    whole(&db);
}

#[test]
fn a_full_disk_stops_it_and_the_tree_is_whole() {
    let disk = disk();
    let db = open(&disk, Background::Steps);
    let tree = db.create_tree("t").unwrap();
    let mut model = fill(&db, &tree, 8000, 7);
    tend(&db);
    disk.inject(Fault::enospc().on(Op::Grow).path("/db/data"));
    // Another tree takes all extents that are wholly free.
    let other = db.create_tree("other").unwrap();
    let full = (0..100_000u32).find_map(|key| db.transact(|tx| tx.put(&other, &key.to_be_bytes(), &[1; 900])).err());
    assert!(matches!(full, Some(Error::NoSpace { .. })), "{full:?}");
    let error = db.compact(&tree).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    whole(&db);
    assert!(rows(&db.begin().unwrap(), &tree) == model);
    // Other transactions work: the space set aside is free again.
    db.transact(|tx| tx.put(&tree, b"after", b"all")).unwrap();
    model.insert(b"after".to_vec(), b"all".to_vec());
    disk.clear_faults();
    assert!(db.compact(&tree).unwrap().after.share() < 0.05);
    assert!(rows(&db.begin().unwrap(), &tree) == model);
    whole(&db);
}

#[test]
fn a_check_meanwhile_finds_nothing() {
    let db = open(&disk(), Background::Steps);
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 1500, 8);
    let mut calls = 0;
    db.compact_with(&tree, CompactOptions::default(), |_| {
        calls += 1;
        whole(&db);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(calls > 3);
}

#[test]
fn it_keeps_to_a_rate_and_can_be_broken_off_while_it_rests() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 20_000, 9);
    // Hundreds of leaves would take minutes: it is stopped while it waits after the first ones.
    let options = CompactOptions { leaves_per_second: 1, ..CompactOptions::default() };
    let mut rests = 0;
    let done = db.compact_with(&tree, options, |progress| {
        rests += u32::from(progress.freed > 0);
        if rests > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let done = done.unwrap();
    assert!(done.broken_off && done.done.freed > 0 && done.done.freed <= 16, "{done:?}");
}

/// Who appends as fast as it moves leaves keeps no compaction from its end.
#[test]
fn a_compaction_does_not_follow_who_appends() {
    let db = open(&disk(), Background::Steps);
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 1500, 9);
    let (mut calls, mut next) = (0, 1_000_000u32);
    let done = db.compact_with(&tree, CompactOptions::default(), |_| {
        calls += 1;
        db.transact(|tx| (next..next + 600).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[7; 200]))).unwrap();
        next += 600;
        if calls < 300 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(!done.unwrap().broken_off, "after {calls} steps");
    assert_eq!(db.check().unwrap(), []);
}

/// A caller that was away for hours has saved nothing up.
#[test]
fn idle_time_earns_no_burst() {
    let disk = disk();
    let env = Env { disk: disk.clone(), clock: disk.clone(), seed: 1, background: Background::Threads };
    let db = Database::open_in(env, "/db", options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    fill(&db, &tree, 20_000, 9);
    let options = CompactOptions { leaves_per_second: 1000, ..CompactOptions::default() };
    let (began, mut slept) = (disk.now(), false);
    let done = db.compact_with(&tree, options, |_| {
        if !std::mem::replace(&mut slept, true) {
            disk.sleep(Duration::from_secs(10_000));
        }
        ControlFlow::Continue(())
    });
    let (done, took) = (done.unwrap().done, disk.now() - began - Duration::from_secs(10_000));
    // The last step is not waited for.
    assert!(took >= Duration::from_millis(done.freed.saturating_sub(16)), "{took:?}: {done:?}");
}

/// Rows move between two places by transactions, so that every snapshot holds the same sum, while two threads compact.
#[test]
fn writers_and_scans_race_compactions() {
    const ROWS: u32 = 3000;
    const SUM: u64 = ROWS as u64 * 100;
    let db = open(&disk(), Background::Threads);
    let tree = db.create_tree("t").unwrap();
    let mut keys: Vec<u32> = (0..ROWS).collect();
    let mut dice = Dice::new(10);
    for i in (1..keys.len()).rev() {
        keys.swap(i, dice.index(i + 1));
    }
    let value = |number: u64, pad: u64| [&number.to_be_bytes()[..], &vec![7; pad as usize]].concat();
    let number = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().unwrap());
    for some in keys.chunks(200) {
        db.transact(|tx| some.iter().try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &value(100, 60)))).unwrap();
    }
    let (stop, scans, moved) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (db, tree, stop, moved) = (&db, &tree, &stop, &moved);
            scope.spawn(move || {
                let mut fill_percent = 50 + seed * 40;
                while !stop.load(Ordering::Relaxed) {
                    let options = CompactOptions { fill_percent, ..CompactOptions::default() };
                    let done = db.compact_with(tree, options, |_| match stop.load(Ordering::Relaxed) {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    });
                    moved.fetch_add(done.unwrap().done.moved, Ordering::Relaxed);
                    fill_percent = 140 - fill_percent;
                }
            });
        }
        for backward in [false, true] {
            let (db, tree, stop, scans) = (&db, &tree, &stop, &scans);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let tx = db.begin().unwrap();
                    let all = tx.iter(tree);
                    let found: Vec<(Vec<u8>, Vec<u8>)> = if backward {
                        all.rev().map(Result::unwrap).collect()
                    } else {
                        all.long().map(Result::unwrap).collect()
                    };
                    assert!(found.windows(2).all(|pair| (pair[0].0 < pair[1].0) != backward), "in order, once each");
                    assert_eq!(found.iter().map(|(_, value)| number(value)).sum::<u64>(), SUM);
                    scans.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let writers: Vec<_> = (0..2u64)
            .map(|seed| {
                let (db, tree) = (&db, &tree);
                scope.spawn(move || {
                    let mut dice = Dice::new(100 + seed);
                    for _ in 0..600 {
                        let (from, to) = (dice.below(ROWS.into()) as u32, dice.below(u64::from(ROWS) * 2) as u32);
                        let pad = dice.below(300);
                        db.transact(|tx| {
                            if from == to {
                                return Ok(());
                            }
                            let Some(old) = tx.get_for_update(tree, &from.to_be_bytes())? else { return Ok(()) };
                            let there = tx.get_for_update(tree, &to.to_be_bytes())?.map_or(0, |value| number(&value));
                            tx.put(tree, &to.to_be_bytes(), &value(there + number(&old), pad))?;
                            tx.delete(tree, &from.to_be_bytes()).map(drop)
                        })
                        .unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        while scans.load(Ordering::Relaxed) < 4 || moved.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let sum: u64 = rows(&db.begin().unwrap(), &tree).values().map(|value| number(value)).sum();
    assert_eq!(sum, SUM);
    whole(&db);
}
