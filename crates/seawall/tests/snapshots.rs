//! A snapshot held through heavy updates keeps showing its moment; after it ends, purge catches up, and all
//! space kept for it is freed.
//!
//! 1. Every snapshot is compared completely with a copy of the model of its moment, forwards, backwards and
//!    by key.
//! 2. "Caught up" means that a step of purge finds nothing to do; space proves it: repeating the work does
//!    not lengthen the file.

use seawall::{Background, Database, Env, Options, Task, Transaction, Tree, TxOptions};
use seawall_sim::{SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dice;
    pub(crate) mod dying_process;
}
use support::dice::Dice;
use support::dying_process::{DyingProcess, End};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(128 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn shows(tx: &Transaction, tree: &Tree, model: &Model, what: &str) {
    let forwards: Vec<_> = tx.iter(tree).map(Result::unwrap).collect();
    assert!(forwards.iter().map(|(k, v)| (k, v)).eq(model.iter()), "{what}: forwards");
    let backwards: Vec<_> = tx.iter(tree).rev().map(Result::unwrap).collect();
    assert!(backwards.iter().map(|(k, v)| (k, v)).eq(model.iter().rev()), "{what}: backwards");
    for key in (0u32..400).step_by(7).map(u32::to_be_bytes) {
        assert_eq!(tx.get(tree, &key).unwrap().as_ref(), model.get(&key[..]), "{what}: by key");
    }
}

/// A transaction with some changes: mostly updates, long values among them.
fn change(db: &Database, tree: &Tree, model: &mut Model, dice: &mut Dice) {
    let mut tx = db.begin().unwrap();
    for _ in 0..6 {
        let key = (dice.below(400) as u32).to_be_bytes();
        if dice.percent(15) {
            assert_eq!(tx.delete(tree, &key).unwrap(), model.remove(&key[..]).is_some());
        } else {
            let len = if dice.percent(3) { 6000 } else { 8 + dice.below(120) as usize };
            let value = vec![dice.below(256) as u8; len];
            tx.put(tree, &key, &value).unwrap();
            model.insert(key.to_vec(), value);
        }
    }
    tx.commit().unwrap();
}

fn purge(db: &Database) -> u64 {
    let mut steps = 0;
    while db.step_task(Task::Purge).unwrap() {
        steps += 1;
    }
    steps
}

fn tend(db: &Database) {
    for &task in Task::ALL {
        db.step_task(task).unwrap();
    }
}

#[test]
fn snapshots_show_their_moment_and_purge_catches_up() {
    let sim = SimDisk::new(SimOptions { seed: 3, trace_entries_max: 0, ..SimOptions::default() });
    let env = Env {
        disk: DyingProcess::new(&sim, End::PowerCut, None),
        clock: sim.clone(),
        seed: 5,
        background: Background::Steps,
    };
    let db = Database::open_in(env, "/db", options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    let (mut model, mut dice) = (Model::new(), Dice::new(9));
    let mut lengths = Vec::new();
    for cycle in 0..5 {
        for _ in 0..40 {
            change(&db, &tree, &mut model, &mut dice);
        }
        purge(&db);
        let mut held: Vec<(Transaction, Model, &str)> = Vec::new();
        for round in 0..160 {
            if let Some(name) = match round {
                0 => Some("first"),
                50 => Some("second"),
                110 => Some("third"),
                _ => None,
            } {
                held.push((db.begin().unwrap(), model.clone(), name));
                // Its snapshot is of its beginning, whenever it is first used.
                shows(&held.last().unwrap().0, &tree, &model, name);
            }
            change(&db, &tree, &mut model, &mut dice);
            tend(&db);
            if round % 40 == 39 {
                for (tx, of_then, name) in &held {
                    shows(tx, &tree, of_then, &format!("cycle {cycle}, round {round}, {name}"));
                }
            }
        }
        purge(&db);
        assert!(!db.step_task(Task::Purge).unwrap(), "what a snapshot pins is not purged, and no task spins over it");
        // The middle one ends first, then the oldest: the third still needs the later versions.
        for index in [1, 0, 0] {
            let (tx, of_then, name) = held.remove(index);
            shows(&tx, &tree, &of_then, &format!("cycle {cycle}, {name}, before it goes"));
            drop(tx);
            purge(&db);
            for (tx, of_then, name) in &held {
                shows(tx, &tree, of_then, &format!("cycle {cycle}, {name}, after another has gone"));
            }
        }
        shows(&db.begin().unwrap(), &tree, &model, "now");
        lengths.push(sim.seen("/db/data").unwrap().len());
    }
    assert!(lengths[4] <= lengths[2], "what was kept for the snapshots is given back: the file's lengths {lengths:?}");
    db.close().unwrap();
}

/// Like the test above, but with threads: a reader that holds its snapshot through many commits, and short-lived
/// others.
#[test]
fn a_snapshot_is_held_while_threads_write() {
    const KEYS: u64 = 200;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = Database::open_with(dir.path(), options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    // Each transaction moves an amount between two rows: every snapshot sees the same sum.
    db.transact(|tx| (0..KEYS).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &1000u64.to_le_bytes()))).unwrap();
    let all = |tx: &Transaction| -> Vec<u64> {
        tx.iter(&tree).map(|entry| u64::from_le_bytes(entry.unwrap().1.try_into().unwrap())).collect()
    };
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let held = db.begin().unwrap();
    let of_then = all(&held);
    std::thread::scope(|scope| {
        for seed in 0..3u64 {
            let (db, tree, stop, commits) = (&db, &tree, &stop, &commits);
            scope.spawn(move || {
                let mut dice = Dice::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    let (from, to) = (dice.below(KEYS), dice.below(KEYS));
                    let moved = db.transact(|tx| {
                        let read = |tx: &Transaction, key: u64| tx.get_for_update(tree, &key.to_be_bytes());
                        let number = |value: Option<Vec<u8>>| u64::from_le_bytes(value.unwrap().try_into().unwrap());
                        let a = number(read(tx, from)?);
                        tx.put(tree, &from.to_be_bytes(), &a.wrapping_sub(1).to_le_bytes())?;
                        let b = number(read(tx, to)?);
                        tx.put(tree, &to.to_be_bytes(), &b.wrapping_add(1).to_le_bytes())
                    });
                    moved.unwrap();
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let enough = if cfg!(debug_assertions) { 600 } else { 5000 };
        while commits.load(Ordering::Relaxed) < enough {
            let now = db.begin_with(TxOptions::default()).unwrap();
            let sum = all(&now).into_iter().fold(0, u64::wrapping_add);
            assert_eq!(sum, KEYS * 1000, "a snapshot sees whole transactions");
            assert_eq!(all(&held), of_then, "and the one that is held sees none of them");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(all(&held), of_then);
    drop(held);
    while db.step_task(Task::Purge).unwrap() {}
    assert_eq!(all(&db.begin().unwrap()).into_iter().fold(0, u64::wrapping_add), KEYS * 1000);
}
