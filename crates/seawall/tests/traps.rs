//! Ways in which engines like this one lose data, each provoked once.

mod support {
    #[allow(dead_code)]
    pub(crate) mod dying_process;
}

use seawall::{Background, Database, Durability, Env, Error, Options, Task};
use seawall_io::{Disk, Op};
use seawall_sim::{Call, Fault, FaultKind, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::dying_process::{DyingProcess, End};

const DIR: &str = "/db";
const EOPNOTSUPP: i32 = 95;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(256 << 10)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
        .with_max_checkpoint_age_percent(25)
        .with_max_dirty_percent(45)
}

fn open_with(disk: &Arc<DyingProcess>, sim: &Arc<SimDisk>, options: Options) -> seawall::Result<Database> {
    let clock = sim.clone();
    Database::open_in(Env { disk: disk.clone(), clock, seed: 1, background: Background::Steps }, DIR, options)
}

fn open(sim: &Arc<SimDisk>) -> (Arc<DyingProcess>, Database) {
    let disk = DyingProcess::new(sim, End::PowerCut, None);
    let db = open_with(&disk, sim, options()).unwrap();
    (disk, db)
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn rows(db: &Database) -> Rows {
    let tree = db.open_tree("t").unwrap();
    let found = db.begin().unwrap().iter(&tree).map(Result::unwrap).collect();
    assert!(db.check().unwrap().is_empty(), "{:?}", db.check().unwrap());
    found
}

fn settle(db: &Database) {
    for &task in Task::ALL {
        while db.step_task(task).unwrap() {}
    }
}

fn key(i: u32) -> Vec<u8> {
    i.to_be_bytes().to_vec()
}

/// Trap 5: a flushed commit into a file that is only allocated survives, under every method; so do pages
/// written into space that was added to the data file.
#[test]
fn commits_into_unwritten_extents_survive() {
    for method in ["fsync", "o_dsync", "o_direct", "o_direct_no_fsync", "o_direct_dsync"] {
        for seed in 0..6 {
            let sim = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
            // This file system cannot create written extents without writing.
            sim.inject(Fault::new(FaultKind::Errno(EOPNOTSUPP)).on(Op::Grow).path("/db/redo.0000000000000000").nth(1));
            let mut options = options();
            options.set("log_flush_method", method).unwrap();
            options.set("data_flush_method", method).unwrap();
            let disk = DyingProcess::new(&sim, End::PowerCut, None);
            let db = open_with(&disk, &sim, options).unwrap();
            assert_eq!(sim.trace().tally("/db/redo.0000000000000000", Call::Allocate).errors, 1, "it was refused");
            let tree = db.create_tree("t").unwrap();
            let mut expected = Rows::new();
            for i in 0..40 + seed as u32 {
                db.transact(|tx| tx.put(&tree, &key(i), &[i as u8; 700])).unwrap();
                expected.insert(key(i), vec![i as u8; 700]);
                if i == 20 {
                    // The data file grows, and pages are written there.
                    db.step_task(Task::Grow).unwrap();
                    while db.step_task(Task::Clean).unwrap() {}
                    db.step_task(Task::Checkpoint).unwrap();
                }
            }
            disk.dies_now();
            drop(db);
            assert_eq!(rows(&open(&sim).1), expected, "{method}, seed {seed}");
        }
    }
}

/// Trap 5: redo from before a drop meets pages that are free, belong to another tree, or are zero.
#[test]
fn redo_older_than_a_drop_meets_what_is_there() {
    for seed in 0..20 {
        let sim = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
        let (disk, db) = open(&sim);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put(&tree, b"kept", b"here")).unwrap();
        settle(&db);
        let dropped = db.create_tree("dropped").unwrap();
        for i in 0..60u32 {
            db.transact(|tx| tx.put(&dropped, &key(i), &[1; 1000])).unwrap();
        }
        db.drop_tree("dropped").unwrap();
        while db.step_task(Task::Purge).unwrap() {}
        // The same pages, with other contents; some of them written back, and no checkpoint.
        for i in 0..60u32 {
            db.transact(|tx| tx.put(&tree, &key(i), &[2; 1000])).unwrap();
        }
        for _ in 0..seed {
            db.step_task(Task::Clean).unwrap();
        }
        disk.dies_now();
        drop(db);
        let (_, db) = open(&sim);
        assert_eq!(rows(&db).len(), 61, "seed {seed}");
        assert!(matches!(db.open_tree("dropped"), Err(Error::NoSuchTree { .. })));
    }
}

/// Trap 7: page writes in flight of a killed process land while its successor is at work, or before.
#[test]
fn late_writes_of_a_killed_process_do_no_harm() {
    let mut late = 0;
    for refuses in [false, true] {
        for after in 0..12u64 {
            let options = SimOptions { seed: after, late_within_ops: 400, ..SimOptions::default() };
            let sim = SimDisk::new(SimOptions { late_lock_refuses: refuses, ..options });
            let (disk, db) = open(&sim);
            let tree = db.create_tree("t").unwrap();
            let mut expected = Rows::new();
            for i in 0..100u32 {
                db.transact(|tx| tx.put(&tree, &key(i), &[1; 500])).unwrap();
                expected.insert(key(i), vec![1; 500]);
            }
            db.close().unwrap();
            drop(disk);
            // Changes every page, and is killed while the pages are being written back.
            let disk = DyingProcess::new(&sim, End::Killed, None);
            let db = open_with(&disk, &sim, self::options()).unwrap();
            let tree = db.open_tree("t").unwrap();
            for i in 0..100u32 {
                db.transact(|tx| tx.put(&tree, &key(i), &[2; 500])).unwrap();
                expected.insert(key(i), vec![2; 500]);
            }
            disk.dies_in_flight(after / 3);
            while !disk.is_dead() && db.step_task(Task::Clean).is_ok_and(|more| more) {}
            disk.dies_now();
            late += sim.late_writes();
            drop(db);
            // A successor configured to wait retries until they have landed.
            let db = (0..1000)
                .find_map(|_| match open_with(&DyingProcess::new(&sim, End::PowerCut, None), &sim, self::options()) {
                    Ok(db) => Some(db),
                    Err(Error::Locked { .. }) => None,
                    Err(error) => panic!("after {after}: {error}"),
                })
                .expect("they land");
            let tree = db.open_tree("t").unwrap();
            for i in 0..100u32 {
                db.transact(|tx| tx.put(&tree, &key(i), &[3; 500])).unwrap();
                expected.insert(key(i), vec![3; 500]);
            }
            while db.step_task(Task::Clean).unwrap() {}
            db.step_task(Task::Checkpoint).unwrap();
            assert_eq!(rows(&db), expected, "after {after}");
            sim.power_cut();
            drop(db);
            assert_eq!(rows(&open(&sim).1), expected, "after {after}");
        }
    }
    assert!(late > 20, "only {late} writes were late");
}

/// Trap 9: a commit whose flush fails is visible to no transaction, and its outcome is reported as unknown.
#[test]
fn what_could_not_be_flushed_is_not_visible() {
    for op in [Op::Write, Op::Sync] {
        let sim = SimDisk::new(SimOptions::default());
        let (disk, db) = open(&sim);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put(&tree, b"k", b"before")).unwrap();
        let snapshot = db.begin().unwrap();
        let mut writer = db.begin().unwrap();
        writer.put(&tree, b"k", b"after").unwrap();
        let log = sim.list(DIR.as_ref()).unwrap().into_iter().find(|p| p.to_string_lossy().contains("redo.")).unwrap();
        sim.inject(Fault::eio().on(op).exactly(log));
        let error = writer.commit_with(Durability::Flushed).unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error}");
        sim.clear_faults();
        // Neither older nor newer readers see it: a reader could act on it, and it may be lost.
        assert_eq!(snapshot.get(&tree, b"k").unwrap().as_deref(), Some(&b"before"[..]));
        assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"before"[..]));
        if let Ok(reader) = db.begin() {
            assert_eq!(reader.get(&tree, b"k").unwrap().as_deref(), Some(&b"before"[..]));
        }
        let refused = db.transact(|tx| tx.put(&tree, b"other", b"x")).unwrap_err();
        assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
        drop(snapshot);
        disk.dies_now();
        drop(db);
        let found = rows(&open(&sim).1);
        assert!([&b"before"[..], b"after"].contains(&&found[&b"k"[..]][..]) && found.len() == 1, "{found:?}");
    }
}

/// Trap 12: a key is deleted and inserted again before its deletion is purged.
#[test]
fn purge_leaves_a_key_that_lives_again() {
    for crash in [false, true] {
        let sim = SimDisk::new(SimOptions::default());
        let (disk, db) = open(&sim);
        let tree = db.create_tree("t").unwrap();
        let mut expected = Rows::new();
        for i in 0..50u32 {
            db.transact(|tx| tx.put(&tree, &key(i), b"first")).unwrap();
        }
        // This snapshot keeps all later versions from being purged.
        let snapshot = db.begin().unwrap();
        assert_eq!(snapshot.iter(&tree).count(), 50);
        for i in 0..50u32 {
            db.transact(|tx| tx.delete(&tree, &key(i)).map(drop)).unwrap();
            if i % 5 < 3 {
                let value = vec![i as u8; if i % 2 == 0 { 10 } else { 9000 }];
                db.transact(|tx| tx.put(&tree, &key(i), &value)).unwrap();
                expected.insert(key(i), value);
            }
            if i % 5 == 1 {
                // Deleted and inserted once more, in one transaction.
                db.transact(|tx| {
                    tx.delete(&tree, &key(i))?;
                    tx.put(&tree, &key(i), b"again")
                })
                .unwrap();
                expected.insert(key(i), b"again".to_vec());
            }
        }
        while db.step_task(Task::Purge).unwrap() {}
        assert_eq!(snapshot.iter(&tree).count(), 50, "the snapshot sees what it saw");
        drop(snapshot);
        let db = if crash {
            disk.dies_now();
            drop(db);
            open(&sim).1
        } else {
            db
        };
        let mut purged = 0;
        while db.step_task(Task::Purge).unwrap() {
            purged += 1;
        }
        assert!(purged > 0);
        assert_eq!(rows(&db), expected);
    }
}

/// Trap 13: a crash at any operation of a rollback, and again at any operation of the rollback that continues
/// it.
#[test]
fn no_undo_record_is_applied_twice() {
    let made = {
        let sim = SimDisk::new(SimOptions::default());
        let (disk, db) = open(&sim);
        let tree = db.create_tree("t").unwrap();
        for i in 0..60u32 {
            db.transact(|tx| tx.put(&tree, &key(i), &i.to_le_bytes())).unwrap();
        }
        let mut loser = db.begin().unwrap();
        for round in 0..4u8 {
            for i in 0..60u32 {
                // Each change once more: a record applied twice would restore the wrong version.
                loser.put(&tree, &key(i), &vec![round; 50 + 300 * usize::from(round)]).unwrap();
            }
            for i in 0..20u32 {
                loser.delete(&tree, &key(i * 3)).unwrap();
            }
        }
        // Its changes are durable, but it is not committed.
        let mut other = db.begin().unwrap();
        other.put(&tree, &key(1000), b"committed").unwrap();
        other.commit_with(Durability::Flushed).unwrap();
        disk.dies_now();
        drop(loser);
        sim
    };
    let mut expected: Rows = (0..60u32).map(|i| (key(i), i.to_le_bytes().to_vec())).collect();
    expected.insert(key(1000), b"committed".to_vec());
    let mut crashes = 0;
    for after in 0..24 {
        let sim = made.fork(after);
        for again in [after, after / 2] {
            let disk = DyingProcess::new(&sim, End::PowerCut, None);
            let db = open_with(&disk, &sim, options()).unwrap();
            disk.dies_after(again);
            // With flushes and cleaning between the steps, so that some of the rollback is durable at the
            // crash.
            for step in 0..10_000 {
                let task = [Task::Rollback, Task::Clean, Task::Rollback, Task::Checkpoint][step % 4];
                let rolled_back = db.step_task(task);
                if disk.is_dead() || (task == Task::Rollback && rolled_back.is_ok_and(|more| !more)) {
                    break;
                }
                if step % 3 == 0 {
                    let flush = db.begin().and_then(|mut tx| {
                        let tree = db.open_tree("t")?;
                        tx.put(&tree, &key(1000), b"committed")?;
                        tx.commit_with(Durability::Flushed)
                    });
                    assert!(flush.is_ok() || disk.is_dead(), "{flush:?}");
                }
            }
            crashes += usize::from(disk.is_dead());
            disk.dies_now();
        }
        let (_, db) = open(&sim);
        while db.step_task(Task::Rollback).unwrap() {}
        assert_eq!(rows(&db), expected, "crash after {after}");
    }
    assert!(crashes > 24, "{crashes}");
}

/// Trap 14: values that shrank grow again while the disk is full and the log cannot grow.
#[test]
fn a_rollback_on_a_full_disk_takes_everything_back() {
    for seed in 0..4u64 {
        // Space for the files of a new database and some growth, and for undo: old rows of up to half a page
        // are in it.
        let sim =
            SimDisk::new(SimOptions { seed, capacity_bytes: (8 << 20) + seed * 300_000, ..SimOptions::default() });
        let mut options = options();
        options.set("log_space_reserve", "0").unwrap();
        let disk = DyingProcess::new(&sim, End::PowerCut, None);
        let db = open_with(&disk, &sim, options.clone()).unwrap();
        let tree = db.create_tree("t").unwrap();
        let mut expected = Rows::new();
        for i in 0..300u32 {
            let value = vec![i as u8; 900 + 40 * (i as usize % 20)];
            db.transact(|tx| tx.put(&tree, &key(i), &value)).unwrap();
            expected.insert(key(i), value);
        }
        settle(&db);
        let mut shrinks = db.begin().unwrap();
        for i in 0..300u32 {
            if i % 3 == 0 {
                shrinks.delete(&tree, &key(i)).unwrap();
            } else {
                shrinks.put(&tree, &key(i), b"small").unwrap();
            }
        }
        settle(&db);
        // Other transactions fill all the freed space.
        let mut n = 1_000_000u32;
        let full = loop {
            n += 1;
            match db.transact(|tx| tx.put(&tree, &key(n), &[9; 1200])) {
                Ok(()) => drop(expected.insert(key(n), vec![9; 1200])),
                Err(error) => break error,
            }
            for &task in Task::ALL {
                drop(db.step_task(task));
            }
            assert!(n < 1_020_000, "the disk is never full");
        };
        assert!(matches!(full, Error::NoSpace { .. }), "{full}");
        if seed % 2 == 0 {
            shrinks.rollback().unwrap();
            assert_eq!(rows(&db), expected, "seed {seed}");
        }
        disk.dies_now();
        drop(db);
        // Or after a crash, by the next opening.
        let disk = DyingProcess::new(&sim, End::PowerCut, None);
        let db = open_with(&disk, &sim, options).unwrap();
        while db.step_task(Task::Rollback).unwrap() {}
        assert_eq!(rows(&db), expected, "seed {seed}, after the crash");
        // And deletes succeed.
        let tree = db.open_tree("t").unwrap();
        for i in 0..300u32 {
            db.transact(|tx| tx.delete(&tree, &key(i)).map(drop)).unwrap();
            expected.remove(&key(i));
            for &task in Task::ALL {
                drop(db.step_task(task));
            }
        }
        assert_eq!(rows(&db), expected, "seed {seed}, with less");
    }
}
