//! What a commit of each durability level can lose, and how much, measured by a clock that only the test
//! moves.
//!
//! 1. `Flushed` loses nothing. `Written` loses nothing when the process dies, and on power loss at most the flush
//!    interval. `Deferred` loses at most the interval on either.
//! 2. Commits are lost from the end only: if a commit is found, so are all that were acknowledged before it,
//!    at any level.
//! 3. Time: while background work runs, the interval counts from the acknowledgement to the crash. Without
//!    background work it counts between acknowledgements: then the next commit waits.

use seawall::{Background, Database, Durability, Env, Options, Task, Tree};
use seawall_sim::{Latency, SimDisk, SimOptions};
use std::sync::Arc;
use std::time::Duration;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dice;
    pub(crate) mod dying_process;
}
use support::dice::Dice;
use support::dying_process::{DyingProcess, End};

const INTERVAL: Duration = Duration::from_millis(1000);
/// A background thread checks this often, and the disk takes some time itself.
const TICK: Duration = Duration::from_millis(20);
const SLACK: Duration = Duration::from_millis(30);

struct Ack {
    level: Durability,
    at: Duration,
}

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(256 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(128 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
        .with_flush_interval(INTERVAL)
}

fn disk(seed: u64) -> Arc<SimDisk> {
    let latency = Latency { spikes_per_million: 0, ..Latency::default() };
    SimDisk::new(SimOptions { seed, latency, trace_entries_max: 0, ..SimOptions::default() })
}

fn open(sim: &Arc<SimDisk>, how: End) -> (Arc<DyingProcess>, Database) {
    let process = DyingProcess::new(sim, how, None);
    let env = Env { disk: process.clone(), clock: sim.clone(), seed: 1, background: Background::Steps };
    (process.clone(), Database::open_in(env, "/db", options()).unwrap())
}

fn commit(db: &Database, tree: &Tree, number: usize, level: Durability) {
    let mut tx = db.begin().unwrap();
    tx.put(tree, &(number as u32).to_be_bytes(), &[level as u8; 40]).unwrap();
    tx.commit_with(level).unwrap();
}

/// How many of the commits are found; these must be the first ones.
fn found(sim: &Arc<SimDisk>, acks: &[Ack]) -> usize {
    let (_process, db) = open(sim, End::PowerCut);
    let Ok(tree) = db.open_tree("t") else { return 0 };
    let tx = db.begin().unwrap();
    let keys: Vec<_> = tx.iter(&tree).map(|entry| entry.unwrap().0).collect();
    let expected: Vec<_> = (0..keys.len()).map(|number| (number as u32).to_be_bytes().to_vec()).collect();
    assert_eq!(keys, expected, "of {} commits a later one is there without an earlier one", acks.len());
    keys.len()
}

/// Whether this end may lose a commit of this level at all.
fn may_be_lost(level: Durability, how: End) -> bool {
    match level {
        Durability::Flushed => false,
        Durability::Written => how == End::PowerCut,
        Durability::Deferred => true,
    }
}

fn run(seed: u64, levels: &[Durability], how: End, with_background: bool) -> (usize, usize) {
    let sim = disk(seed);
    let mut dice = Dice::new(seed);
    let (process, db) = open(&sim, how);
    let tree = db.create_tree("t").unwrap();
    let mut acks = Vec::new();
    let commits = 1 + dice.below(80) as usize;
    for number in 0..commits {
        let level = dice.pick(levels);
        commit(&db, &tree, number, level);
        acks.push(Ack { level, at: sim.now() });
        // From many commits in an interval to some intervals without one.
        let pause = Duration::from_micros(dice.log_uniform(2_500_000));
        if with_background {
            let until = sim.now() + pause;
            while sim.now() < until {
                sim.advance(TICK.min(until - sim.now()));
                while db.step_task(Task::Log).unwrap() {}
            }
        } else {
            sim.advance(pause);
        }
    }
    let at = sim.now();
    process.dies_now();
    drop(db);
    let there = found(&sim, &acks);
    let what =
        format!("seed {seed}, {levels:?}, {how:?}, background {with_background}: {there} of {commits} are there");
    let lost = &acks[there..];
    for (number, ack) in acks.iter().enumerate().skip(there) {
        assert!(may_be_lost(ack.level, how), "{what}; commit {number} was {:?}", ack.level);
    }
    if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
        let end = if with_background { at } else { last.at };
        let window = end.saturating_sub(first.at);
        assert!(window <= INTERVAL + TICK + SLACK, "{what}: what {window:?} took is lost");
    }
    (commits, there)
}

/// Runs seeds; returns whether any commit was lost.
fn all(levels: &[Durability], how: End) -> bool {
    let mut lost = false;
    for seed in 0..16 {
        for with_background in [true, false] {
            let (commits, there) = run(seed, levels, how, with_background);
            lost |= there < commits;
        }
    }
    lost
}

#[test]
fn flushed_loses_nothing() {
    for how in [End::PowerCut, End::Killed] {
        assert!(!all(&[Durability::Flushed], how));
    }
}

#[test]
fn written_survives_the_process_and_loses_the_interval_on_power_loss() {
    assert!(!all(&[Durability::Written], End::Killed));
    assert!(all(&[Durability::Written], End::PowerCut), "else nothing was tested");
}

#[test]
fn deferred_loses_the_interval_on_either() {
    assert!(all(&[Durability::Deferred], End::Killed), "else nothing was tested");
    assert!(all(&[Durability::Deferred], End::PowerCut), "else nothing was tested");
}

#[test]
fn levels_can_be_mixed() {
    let levels = [Durability::Flushed, Durability::Written, Durability::Deferred];
    for how in [End::PowerCut, End::Killed] {
        all(&levels, how);
        all(&levels[1..], how);
    }
}

/// A prepared transaction is flushed at every level, and with it everything acknowledged before.
#[test]
fn prepare_flushes() {
    for seed in 0..20 {
        let sim = disk(seed);
        let (process, db) = open(&sim, End::PowerCut);
        let tree = db.create_tree("t").unwrap();
        for number in 0..5 {
            commit(&db, &tree, number, Durability::Deferred);
        }
        let mut tx = db.begin().unwrap();
        tx.put(&tree, b"prepared", b"value").unwrap();
        tx.prepare(&seawall::Xid(b"xid".to_vec())).unwrap();
        process.dies_now();
        drop(db);
        let (_process, db) = open(&sim, End::PowerCut);
        assert_eq!(db.prepared(), [seawall::Xid(b"xid".to_vec())]);
        db.commit_prepared(&seawall::Xid(b"xid".to_vec())).unwrap();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 6);
    }
}
