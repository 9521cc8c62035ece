//! The cost of dropping a tree depends on that tree alone; the work is done in bounded steps and survives a crash at
//! any operation.

use seawall::{Background, BuildOptions, Database, Durability, Env, Error, LockWait, Options, Task, TxOptions};
use seawall_io::SystemClock;
use seawall_sim::{Call, SimDisk, SimOptions};
use std::sync::Arc;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dying_process;
}
use support::dying_process::{DyingProcess, End};

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

fn open(disk: Arc<DyingProcess>, options: Options) -> Database {
    let env = Env { disk, clock: Arc::new(SystemClock::default()), seed: 5, background: Background::Steps };
    Database::open_in(env, "/db", options).unwrap()
}

fn tend(db: &Database) {
    for &task in Task::ALL {
        while db.step_task(task).unwrap() {}
    }
}

fn value(key: u32, long_one_in: u32, round: u8) -> Vec<u8> {
    let len = if key % long_one_in == 0 { 3000 + key as usize % 9000 } else { 60 };
    vec![round; len]
}

fn load(db: &Database, name: &str, rows: u32, long_one_in: u32) -> seawall::Tree {
    let tree = db.create_tree(name).unwrap();
    for first in (0..rows).step_by(100) {
        let mut tx = db.begin().unwrap();
        for key in first..rows.min(first + 100) {
            let key = key.wrapping_mul(0x9e37_79b1);
            tx.put(&tree, &key.to_be_bytes(), &value(key, long_one_in, 1)).unwrap();
        }
        tx.commit_with(Durability::Written).unwrap();
    }
    tree
}

#[test]
fn the_cost_of_a_drop_follows_the_tree_and_not_the_file() {
    let sim = SimDisk::new(SimOptions { seed: 1, trace_entries_max: 10_000, ..SimOptions::default() });
    // 86 groups of pages.
    let db = open(DyingProcess::new(&sim, End::PowerCut, None), options().with_data_initial_size(256 << 20));
    load(&db, "t", 200, 50);
    // Evicts the pages in memory, those of the maps too.
    load(&db, "other", 20_000, u32::MAX);
    tend(&db);
    db.drop_tree("t").unwrap();
    let before = sim.trace().len();
    while db.step_task(Task::Purge).unwrap() {}
    let trace = sim.trace();
    let reads = trace.since(before).filter(|entry| entry.call == Call::Read && entry.path.ends_with("data")).count();
    assert!(reads <= 40, "{reads} pages are read to free a tree of some 30");
    assert_eq!(db.check().unwrap(), []);
}

#[test]
fn a_step_of_purge_frees_a_bounded_piece() {
    let sim = SimDisk::new(SimOptions { seed: 2, trace_entries_max: 0, ..SimOptions::default() });
    let db = open(DyingProcess::new(&sim, End::PowerCut, None), options());
    let plain = load(&db, "plain", 40_000, u32::MAX);
    let long = load(&db, "long", 3_000, 3);
    tend(&db);
    for (tree, name) in [(plain, "plain"), (long, "long")] {
        let own = db.tree_bytes(&tree);
        assert!(own > 3 << 20, "{own}");
        db.drop_tree(name).unwrap();
        let (mut left, mut steps) = (own, 0);
        while db.step_task(Task::Purge).unwrap() {
            let now = db.tree_bytes(&tree);
            assert!(left - now <= 1200 * 4096, "{} pages are freed in one step", (left - now) / 4096);
            steps += u32::from(now < left);
            left = now;
            // Other transactions work meanwhile.
            db.transact(|tx| tx.get(&db.open_tree("x").or_else(|_| db.create_tree("x"))?, b"k").map(drop)).unwrap();
        }
        assert!(left == 0 && steps > 3, "{left} bytes are left after {steps} steps");
    }
    assert_eq!(db.check().unwrap(), []);
}

/// Pages that the steps of a task free, each at most: until nothing is left to do.
fn most_freed(db: &Database, task: Task) -> u64 {
    let (mut free, mut most) = (db.stats().space.free_bytes, 0);
    while db.step_task(task).unwrap() {
        let now = db.stats().space.free_bytes;
        most = most.max(now.saturating_sub(free) / 4096);
        free = now;
    }
    most
}

/// Values of one page each, which are freed one by one, and values of many pages, whose rows are deleted.
#[test]
fn a_step_of_purge_frees_a_bounded_number_of_long_values() {
    let sim = SimDisk::new(SimOptions { seed: 2, trace_entries_max: 0, ..SimOptions::default() });
    let db = open(DyingProcess::new(&sim, End::PowerCut, None), options());
    for (name, rows, len) in [("one page", 5_000u32, 3_000), ("many pages", 20, 2 << 20)] {
        let tree = db.create_tree(name).unwrap();
        for first in (0..rows).step_by(100) {
            let keys = first..rows.min(first + 100);
            db.transact(|tx| keys.clone().try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &vec![7; len])))
                .unwrap();
            tend(&db);
        }
        let own = db.tree_bytes(&tree) / 4096;
        assert!(own > 5_000, "{own}");
        let free = db.stats().space.free_bytes / 4096;
        if len < 4096 {
            db.drop_tree(name).unwrap();
        } else {
            db.transact(|tx| tx.delete_range::<&[u8]>(&tree, ..).map(drop)).unwrap();
        }
        let most = most_freed(&db, Task::Purge);
        assert!(most <= 1200, "{most} pages are freed in one step");
        assert!(db.stats().space.free_bytes / 4096 >= free + own - 10, "all are freed");
    }
    assert_eq!(db.check().unwrap(), []);
}

/// A tree that was built by a transaction which did not end, and another tree.
fn with_unfinished_build() -> Arc<SimDisk> {
    let sim = SimDisk::new(SimOptions { seed: 3, trace_entries_max: 0, ..SimOptions::default() });
    let process = DyingProcess::new(&sim, End::Killed, None);
    let db = open(process.clone(), options());
    db.create_tree("other").unwrap();
    let mut loser = db.begin().unwrap();
    let mut builder = loser.tree_builder("built", BuildOptions::default()).unwrap();
    for key in 0..6_000u32 {
        builder.push(&key.to_be_bytes(), &[7; 3000]).unwrap();
        if key % 200 == 0 {
            tend(&db);
        }
    }
    builder.finish().unwrap();
    db.transact(|tx| tx.put(&db.open_tree("other")?, b"k", b"v")).unwrap();
    process.dies_now();
    sim
}

/// Between two steps of the rollback others can drop other trees, and the database can be closed.
#[test]
fn the_creation_of_a_tree_is_undone_in_bounded_steps() {
    let sim = with_unfinished_build();
    let db = open(DyingProcess::new(&sim, End::PowerCut, None), options());
    for _ in 0..3 {
        assert!(db.step_task(Task::Rollback).unwrap());
    }
    let mut tx = db.begin_with(TxOptions { wait: LockWait::NoWait, ..TxOptions::default() }).unwrap();
    while let Err(error) = tx.drop_tree("other") {
        // The trees that losers have changed are looked up first.
        assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
        assert!(db.step_task(Task::Rollback).unwrap());
        assert!(db.stats().space.free_bytes / 4096 < 3_000, "the tree is freed first");
    }
    tx.commit().unwrap();
    db.close().unwrap();
    let db = open(DyingProcess::new(&sim, End::PowerCut, None), options());
    let most = most_freed(&db, Task::Rollback);
    assert!(most <= 1200, "{most} pages are freed in one step");
    tend(&db);
    assert_eq!(db.check().unwrap(), []);
    assert!(db.stats().space.free_bytes / 4096 > 6_000);
}

/// Whenever the power fails, the dropped pages are eventually freed, and no others.
#[test]
fn a_drop_goes_on_after_a_crash_at_any_operation() {
    for long_one_in in [u32::MAX, 7] {
        let mut crashes = 0;
        let mut after = 3;
        loop {
            let sim = SimDisk::new(SimOptions { seed: after, trace_entries_max: 0, ..SimOptions::default() });
            {
                let db = open(DyingProcess::new(&sim, End::PowerCut, None), options());
                load(&db, "t", 1500, long_one_in);
                let kept = load(&db, "kept", 100, 7);
                // Older versions that only undo records refer to, in another undo log than the drop's.
                let t = db.open_tree("t").unwrap();
                let snapshot = db.begin().unwrap();
                let seen = snapshot.get(&kept, &0u32.to_be_bytes()).unwrap().is_some();
                assert!(seen);
                let mut other = db.begin().unwrap();
                other.put(&kept, &1u32.to_be_bytes(), &[1; 5000]).unwrap();
                for key in (0..700u32).step_by(7) {
                    db.transact(|tx| tx.put(&t, &key.wrapping_mul(0x9e37_79b1).to_be_bytes(), &value(0, 1, 2)))
                        .unwrap();
                }
                other.commit().unwrap();
                drop(snapshot);
                db.drop_tree("t").unwrap();
                db.close().unwrap();
            }
            let dying = DyingProcess::new(&sim, End::PowerCut, Some(after));
            let env = Env {
                disk: dying.clone(),
                clock: Arc::new(SystemClock::default()),
                seed: 5,
                background: Background::Steps,
            };
            if let Ok(db) = Database::open_in(env, "/db", options()) {
                while let Ok(true) = db.step() {}
                drop(db);
            }
            let died = dying.is_dead();
            dying.dies_now();
            let db = open(DyingProcess::new(&sim, End::PowerCut, None), options());
            assert_eq!(db.check().unwrap(), [], "crash at {after}, and nothing done since");
            tend(&db);
            assert_eq!(db.check().unwrap(), [], "crash at {after}");
            assert_eq!(db.stats().purge.history, 0);
            assert_eq!(db.begin().unwrap().iter(&db.open_tree("kept").unwrap()).count(), 101);
            crashes += u32::from(died);
            if !died {
                break;
            }
            after += 1 + after / 4;
        }
        assert!(crashes > 10, "{crashes}");
    }
}
