//! Every flush method of data and log, with and without protection of torn pages: the same workload leaves the same
//! contents.
//!
//! 1. The contents are compared with a model that the workload computes in parallel, not only with each other.
//! 2. On the simulated disk the power is cut with everything acknowledged; on a real directory, where that is
//!    impossible, half of the runs are closed and half are dropped without closing.

use seawall::{Background, Database, Env, FlushChoice, Options, Task, TornPages};
use seawall_io::FlushMethod;
use seawall_sim::{SimDisk, SimOptions};
use std::collections::BTreeMap;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dying_process;
}
use support::dying_process::{DyingProcess, End};

/// Fewer where a simulated disk is slow.
const ROUNDS: u32 = if cfg!(debug_assertions) { 20 } else { 60 };

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(data: FlushMethod, log: FlushMethod, torn: TornPages) -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(256 << 10)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(1200 << 10)
        .with_log_buffer_size(1 << 20)
        .with_data_flush_method(FlushChoice::Method(data))
        .with_log_flush_method(FlushChoice::Method(log))
        .with_torn_page_protection(torn)
}

/// Puts, updates, deletions, long values, a rollback; more than the pool holds, and the log is recycled.
fn work(db: &Database, rounds: u32, mut between: impl FnMut()) -> Contents {
    let tree = db.create_tree("t").unwrap();
    let mut model = Contents::new();
    for round in 0..rounds {
        let mut tx = db.begin().unwrap();
        let mut changed = model.clone();
        for i in 0..24u32 {
            let key = ((round * 97 + i * 61) % 600).to_be_bytes().to_vec();
            if (round + i) % 5 == 0 {
                assert_eq!(tx.delete(&tree, &key).unwrap(), changed.remove(&key).is_some());
            } else {
                let len = if (round + i) % 40 == 7 { 9000 } else { 300 + (i * 40) as usize };
                let value = vec![(round + i) as u8; len];
                tx.put(&tree, &key, &value).unwrap();
                changed.insert(key, value);
            }
        }
        if round % 9 == 4 {
            tx.rollback().unwrap();
        } else {
            tx.commit().unwrap();
            model = changed;
        }
        between();
    }
    model
}

fn contents(db: &Database) -> Contents {
    let tree = db.open_tree("t").unwrap();
    let tx = db.begin().unwrap();
    tx.iter(&tree).map(Result::unwrap).collect()
}

fn combinations() -> Vec<(FlushMethod, FlushMethod, TornPages)> {
    let mut all = Vec::new();
    for data in FlushMethod::ALL {
        for log in FlushMethod::ALL {
            all.push((data, log, TornPages::Doublewrite));
            if !cfg!(debug_assertions) || data == log {
                all.extend([(data, log, TornPages::Auto), (data, log, TornPages::Off)]);
            }
        }
    }
    all
}

#[test]
fn all_methods_leave_the_same_on_a_simulated_disk() {
    for (number, (data, log, torn)) in (0u64..).zip(combinations()) {
        let what = format!("data {data:?}, log {log:?}, {torn:?}");
        // `auto` writes pages once there.
        let physical_sector_bytes = if torn == TornPages::Auto { 4096 } else { 512 };
        let sim = SimDisk::new(SimOptions {
            seed: number,
            physical_sector_bytes,
            trace_entries_max: 0,
            ..SimOptions::default()
        });
        let open = |how: End| {
            let process = DyingProcess::new(&sim, how, None);
            let env = Env { disk: process.clone(), clock: sim.clone(), seed: number, background: Background::Steps };
            let db = Database::open_in(env, "/db", options(data, log, torn));
            (process, db.unwrap_or_else(|error| panic!("{what}: {error}")))
        };
        // Without protection a torn page is lost in a power cut: the process is killed instead.
        let how = if torn == TornPages::Off { End::Killed } else { End::PowerCut };
        let (process, db) = open(how);
        let model = work(&db, ROUNDS, || {
            for &task in Task::ALL {
                db.step_task(task).unwrap();
            }
        });
        assert_eq!(contents(&db), model, "{what}");
        process.dies_now();
        drop(db);
        let (_process, db) = open(how);
        assert_eq!(contents(&db), model, "{what}, after the crash");
        db.close().unwrap();
        let (_process, db) = open(how);
        assert_eq!(contents(&db), model, "{what}, after closing");
    }
}

#[test]
fn all_methods_leave_the_same_in_a_directory() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (number, (data, log, torn)) in combinations().into_iter().enumerate() {
        let what = format!("data {data:?}, log {log:?}, {torn:?}");
        let dir = scratch.path().join(number.to_string());
        let open = || Database::open_with(&dir, options(data, log, torn));
        let db = open().unwrap_or_else(|error| panic!("{what}: {error}"));
        let model = work(&db, 12, || {});
        assert_eq!(contents(&db), model, "{what}");
        if number % 2 == 0 {
            db.close().unwrap();
        } else {
            drop(db);
        }
        let db = open().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(contents(&db), model, "{what}, opened again");
        drop(db);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
