//! The data file is not much larger than its contents, and releases space it does not need.

use seawall::{Background, Database, Durability, Env, Error, Options, Task, Tree};
use seawall_io::{Allocate, Create, Disk, OpenHow, SystemClock};
use seawall_sim::{Process, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dying_process;
}
use support::dying_process::{DyingProcess, End};

fn options(page_kib: u64) -> Options {
    Options::default()
        .with_page_size(page_kib << 10)
        .with_pool_size(4 << 20)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(1 << 20)
        .with_log_capacity(16 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(sim: &Arc<SimDisk>, options: Options) -> Database {
    let env = Env {
        disk: Arc::new(Process::new(sim)),
        clock: Arc::new(SystemClock::default()),
        seed: 5,
        background: Background::Steps,
    };
    Database::open_in(env, "/db", options).unwrap()
}

/// Background work, as its threads would do it between commits.
fn background(db: &Database) {
    for _ in 0..20 {
        let mut busy = false;
        for &task in Task::ALL {
            busy |= db.step_task(task).unwrap();
        }
        if !busy {
            return;
        }
    }
}

#[test]
fn after_a_load_in_order_the_file_is_hardly_larger_than_the_tree() {
    for page_kib in [4, 8, 16, 32] {
        let sim = SimDisk::new(SimOptions { seed: page_kib, trace_entries_max: 0, ..SimOptions::default() });
        let db = open(&sim, options(page_kib));
        let tree = db.create_tree("t").unwrap();
        for first in (0..60_000u64).step_by(1000) {
            db.transact(|tx| (first..first + 1000).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[7; 200])))
                .unwrap();
            background(&db);
        }
        let (file, own) = (db.stats().space.data_bytes, db.tree_bytes(&tree));
        assert!(own > 12 << 20, "{own}");
        // A few MiB are kept ahead, for any size of the file.
        let most = own + own / 25 + (4 << 20);
        assert!(file <= most, "pages of {page_kib}K: a file of {file} bytes for a tree of {own}: {most} are allowed");
    }
}

fn tend(db: &Database) {
    for &task in Task::ALL {
        while db.step_task(task).unwrap() {}
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn value(key: u32) -> Vec<u8> {
    vec![key as u8; if key % 60 == 0 { 5000 + key as usize % 3000 } else { 150 }]
}

/// Two trees with interleaved pages, half of whose rows are deleted.
fn half_gone(db: &Database, rows: u32) -> (Vec<Tree>, Vec<Model>) {
    let trees: Vec<Tree> = ["a", "b"].map(|name| db.create_tree(name).unwrap()).into();
    let mut models = vec![Model::new(), Model::new()];
    for first in (0..rows).step_by(100) {
        let mut tx = db.begin().unwrap();
        for key in first..first + 100 {
            for (tree, model) in trees.iter().zip(&mut models) {
                let name = key.wrapping_mul(0x9e37_79b1).to_be_bytes();
                tx.put(tree, &name, &value(key)).unwrap();
                model.insert(name.into(), value(key));
            }
        }
        tx.commit_with(Durability::Written).unwrap();
        background(db);
    }
    for (tree, model) in trees.iter().zip(&mut models) {
        // In several transactions: rows spread over the tree.
        let gone: Vec<Vec<u8>> = model.keys().filter(|key| key[3] % 2 == 0).cloned().collect();
        for some in gone.chunks(200) {
            let mut tx = db.begin().unwrap();
            for key in some {
                assert!(tx.delete(tree, key).unwrap());
                model.remove(key);
            }
            tx.commit_with(Durability::Written).unwrap();
        }
    }
    tend(db);
    (trees, models)
}

fn holds(db: &Database, trees: &[Tree], models: &[Model]) {
    let tx = db.begin().unwrap();
    for (tree, model) in trees.iter().zip(models) {
        let found: Model = tx.iter(tree).map(Result::unwrap).collect();
        assert!(found == *model, "{} rows, {} are expected", found.len(), model.len());
    }
}

#[test]
fn after_half_of_the_rows_went_half_of_the_file_goes() {
    for page_kib in [4, 16] {
        let sim = SimDisk::new(SimOptions { seed: 31, trace_entries_max: 0, ..SimOptions::default() });
        let db = open(&sim, options(page_kib));
        let (trees, models) = half_gone(&db, 16_000);
        let file = || sim.seen("/db/data").unwrap().len() as u64;
        let before = file();
        for tree in &trees {
            db.compact(tree).unwrap();
        }
        tend(&db);
        let done = db.shrink().unwrap();
        assert_eq!((done.before_bytes >= before, done.after_bytes), (true, file()));
        let own: u64 = trees.iter().map(|tree| db.tree_bytes(tree)).sum();
        assert!(file() <= before * 65 / 100, "{before} bytes became {} for trees of {own}: {done:?}", file());
        assert!(file() <= own + own / 8 + (4 << 20), "{} bytes for trees of {own}: {done:?}", file());
        holds(&db, &trees, &models);
        assert_eq!(db.check().unwrap(), []);
        db.close().unwrap();
        let db = open(&sim, options(page_kib));
        let trees: Vec<Tree> = ["a", "b"].map(|name| db.open_tree(name).unwrap()).into();
        holds(&db, &trees, &models);
        assert_eq!(db.check().unwrap(), []);
        // The released space is available again when needed.
        for key in 0..6_000u32 {
            db.transact(|tx| tx.put(&trees[0], &[&b"more"[..], &key.to_be_bytes()].concat(), &[9; 300])).unwrap();
            if key % 100 == 0 {
                background(&db);
            }
        }
        assert_eq!(db.check().unwrap(), []);
    }
}

/// A process that dies at every operation of a shrinking, and the state that the next one finds.
#[test]
fn a_crash_at_any_operation_of_shrinking_loses_nothing() {
    let base = SimDisk::new(SimOptions { seed: 32, trace_entries_max: 0, ..SimOptions::default() });
    let db = open(&base, options(4));
    let (trees, models) = half_gone(&db, 2_500);
    for tree in &trees {
        db.compact(tree).unwrap();
    }
    tend(&db);
    db.close().unwrap();
    let before = base.seen("/db/data").unwrap().len();
    let (mut shrunk, mut crashes) = (0, 0);
    for how in [End::PowerCut, End::Killed] {
        // Returns whether it died at that operation.
        let mut dies_at = |after: u64| {
            let sim = base.fork(after);
            let dying = DyingProcess::new(&sim, how, Some(after));
            let env = Env {
                disk: dying.clone(),
                clock: Arc::new(SystemClock::default()),
                seed: 5,
                background: Background::Steps,
            };
            if let Ok(db) = Database::open_in(env, "/db", options(4)) {
                if db.shrink().is_ok() {
                    // A later change that recovery has to redo.
                    drop(db.transact(|tx| tx.put(&db.open_tree("a")?, b"later", &[1; 2000])));
                }
            }
            let died = dying.is_dead();
            dying.dies_now();
            shrunk += u32::from(sim.seen("/db/data").unwrap().len() < before);
            let db = open(&sim, options(4));
            let trees: Vec<Tree> = ["a", "b"].map(|name| db.open_tree(name).unwrap()).into();
            assert_eq!(db.check().unwrap(), [], "{how:?} at {after}");
            let mut models = models.clone();
            if db.begin().unwrap().get(&trees[0], b"later").unwrap().is_some() {
                models[0].insert(b"later".to_vec(), vec![1; 2000]);
            }
            holds(&db, &trees, &models);
            db.shrink().unwrap();
            assert!(sim.seen("/db/data").unwrap().len() < before, "{how:?} at {after}: cut, and not given back");
            holds(&db, &trees, &models);
            assert_eq!(db.check().unwrap(), [], "{how:?} at {after}, shrunk again");
            crashes += u32::from(died);
            died
        };
        let (mut dead, mut alive) = (0, 1);
        while dies_at(alive) {
            (dead, alive) = (alive, alive + 1 + alive / 3);
        }
        while alive - dead > 1 {
            let middle = u64::midpoint(dead, alive);
            if dies_at(middle) { dead = middle } else { alive = middle }
        }
        // The end, with the checkpoint and the shorter file, operation by operation.
        for after in dead.saturating_sub(30).max(1)..dead {
            assert!(dies_at(after));
        }
    }
    assert!(shrunk > 2 && crashes > 40, "{shrunk} were shrunk, {crashes} died");
    drop(trees);
}

/// The second moves nothing, and ends.
#[test]
fn a_shrink_beside_another_ends_and_leaves_it_its_fence() {
    let sim = SimDisk::new(SimOptions { seed: 34, trace_entries_max: 0, ..SimOptions::default() });
    let db = open(&sim, options(4));
    let (trees, models) = half_gone(&db, 8_000);
    let mut beside = None;
    let done = db.shrink_with(|_| {
        beside.get_or_insert_with(|| db.shrink().unwrap());
        std::ops::ControlFlow::Continue(())
    });
    let (done, beside) = (done.unwrap(), beside.expect("pages are moved"));
    assert!(done.done.moved > 1 && beside.done.moved == 0, "{done:?}, {beside:?}");
    assert!(done.after_bytes < done.before_bytes, "{done:?}");
    holds(&db, &trees, &models);
    assert_eq!(db.check().unwrap(), []);
}

/// The rows are deleted at once, purge has not seen them, and the growth ahead of need expects more of the load.
#[test]
fn a_shrink_right_after_a_delete_returns_the_space_and_growth_ahead_does_not_take_it_back() {
    let sim = SimDisk::new(SimOptions { seed: 33, trace_entries_max: 0, ..SimOptions::default() });
    let db = open(&sim, options(16).with_data_growth_step(64 << 20));
    let file = || sim.seen("/db/data").unwrap().len() as u64;
    let (first, last) = (db.create_tree("first").unwrap(), db.create_tree("last").unwrap());
    background(&db);
    for rows in 0..10 {
        for (tree, rows) in [(&first, rows * 2000..rows * 2000 + 2000), (&last, rows * 200..rows * 200 + 200u32)] {
            db.transact(|tx| rows.clone().try_for_each(|key| tx.put(tree, &key.to_be_bytes(), &[7; 400]))).unwrap();
        }
    }
    db.transact(|tx| tx.delete_range::<&[u8]>(&first, ..).map(drop)).unwrap();
    let (before, mut during) = (file(), 0);
    let done = db.shrink_with(|done| {
        if done.moved == 1 {
            db.step_task(Task::Grow).unwrap();
            during = file();
        }
        std::ops::ControlFlow::Continue(())
    });
    let done = done.unwrap();
    assert_eq!((during, done.before_bytes), (before, before), "{done:?}");
    assert!(done.after_bytes < before / 2, "{done:?}");
    background(&db);
    assert_eq!(file(), done.after_bytes, "grown ahead of a need that has passed");
    assert_eq!(db.begin().unwrap().iter(&last).count(), 2000);
    assert_eq!(db.check().unwrap(), []);
}

/// A tree with long values that is dropped: one undo record, and many steps of purge.
fn long_values_dropped(seed: u64) -> Database {
    let sim = SimDisk::new(SimOptions { seed, trace_entries_max: 0, ..SimOptions::default() });
    let db = open(&sim, options(4));
    let tree = db.create_tree("t").unwrap();
    for first in (0..14_000u32).step_by(200) {
        let rows = first..first + 200;
        db.transact(|tx| rows.clone().try_for_each(|row| tx.put(&tree, &row.to_be_bytes(), &[7; 4500]))).unwrap();
        background(&db);
    }
    drop(tree);
    db.drop_tree("t").unwrap();
    db
}

#[test]
fn a_shrink_that_purges_holds_no_view_and_ends_for_a_shutdown() {
    let db = long_values_dropped(36);
    let (other, mut views) = (db.clone(), Vec::new());
    let ended = db.shrink_with(|_| {
        views.push(other.stats().txn.views);
        drop(other.shutdown_within(Duration::ZERO));
        std::ops::ControlFlow::Continue(())
    });
    assert!(matches!(ended, Err(Error::ShutDown)), "{ended:?}");
    assert_eq!(views, [0]);
}

/// A long value near the end that fits nowhere else on a full disk stays; the free pages behind it are returned.
#[test]
fn a_long_value_that_cannot_move_does_not_keep_the_end_of_the_file() {
    for kib in (6000..14_000).step_by(2000) {
        let sim = SimDisk::new(SimOptions { seed: kib, trace_entries_max: 0, ..SimOptions::default() });
        let db = open(&sim, options(4));
        let file = || sim.seen("/db/data").unwrap().len() as u64;
        let [first, value, last] = ["first", "value", "last"].map(|name| db.create_tree(name).unwrap());
        let fill = |tree: &Tree, rows: u32| {
            db.transact(|tx| (0..rows).try_for_each(|key| tx.put(tree, &key.to_be_bytes(), &[7; 900]))).unwrap();
            background(&db);
        };
        fill(&first, 3000);
        db.transact(|tx| tx.put(&value, b"v", &vec![1; (kib << 10) as usize])).unwrap();
        background(&db);
        fill(&last, 1000);
        for tree in [&first, &last] {
            db.transact(|tx| tx.delete_range::<&[u8]>(tree, ..).map(drop)).unwrap();
        }
        tend(&db);
        let (before, disk) = (file(), Process::new(&sim));
        let full =
            disk.open("/full".as_ref(), OpenHow { create: Create::New, write: true, ..OpenHow::default() }).unwrap();
        let free = disk.free_bytes("/db".as_ref()).unwrap();
        disk.allocate(&full, Allocate::Unwritten, 0, free).unwrap();
        let done = db.shrink().unwrap();
        assert!(done.after_bytes < before, "{kib}: {done:?}");
        assert_eq!(db.begin().unwrap().get(&value, b"v").unwrap().unwrap().len() as u64, kib << 10);
        assert_eq!(db.check().unwrap(), []);
    }
}

#[test]
fn a_shrink_waits_for_the_purge_of_long_values_and_can_be_broken_off_meanwhile() {
    let db = long_values_dropped(35);
    let tree = db.create_tree("other").unwrap();
    let mut calls = 0;
    let broken = db.shrink_with(|_| {
        calls += 1;
        std::ops::ControlFlow::Break(())
    });
    let broken = broken.unwrap();
    assert!(broken.broken_off && calls == 1, "{broken:?}");
    let history = db.stats().purge.history;
    assert!(history > 0, "it was broken off in its first purge");
    let held = db.begin().unwrap();
    held.take_snapshot().unwrap();
    db.transact(|tx| tx.put(&tree, b"later", b"v")).unwrap();
    let done = db.shrink().unwrap();
    assert!(!done.broken_off && done.after_bytes < 4 << 20, "{done:?}");
    drop(held);
    assert_eq!(db.check().unwrap(), []);
}

/// Writers, scans and snapshots go on during a shrinking.
#[test]
fn others_go_on_while_the_file_shrinks() {
    let sim = SimDisk::new(SimOptions { seed: 33, trace_entries_max: 0, ..SimOptions::default() });
    let env = Env {
        disk: Arc::new(Process::new(&sim)),
        clock: Arc::new(SystemClock::default()),
        seed: 5,
        background: Background::Threads,
    };
    let db = Database::open_in(env, "/db", options(4)).unwrap();
    let tree = db.create_tree("t").unwrap();
    for key in 0..6000u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&tree, &key.to_be_bytes(), &value(key)).unwrap();
        tx.commit_with(Durability::Deferred).unwrap();
    }
    db.transact(|tx| {
        (0..6000u32).filter(|key| key % 4 > 1).try_for_each(|key| tx.delete(&tree, &key.to_be_bytes()).map(drop))
    })
    .unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u32.. {
                if stopped() {
                    break;
                }
                let key = round.wrapping_mul(0x9e37_79b1) % 6000 / 4 * 4;
                db.transact(|tx| tx.put(&tree, &key.to_be_bytes(), &value(key))).unwrap();
            }
        });
        scope.spawn(|| {
            while !stopped() {
                let tx = db.begin().unwrap();
                for row in tx.iter(&tree) {
                    let (key, found) = row.unwrap();
                    let key = u32::from_be_bytes(key.try_into().unwrap());
                    assert!(found == value(key), "row {key}");
                }
            }
        });
        for round in 0..6 {
            db.compact(&tree).unwrap();
            db.shrink().unwrap();
            if round % 4 == 0 {
                db.transact(|tx| {
                    (0..3000u32).try_for_each(|key| tx.put(&tree, &(key * 4 + 1).to_be_bytes(), &value(key * 4 + 1)))
                })
                .unwrap();
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(db.check().unwrap(), []);
}
