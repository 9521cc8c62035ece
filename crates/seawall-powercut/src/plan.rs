//! What each transaction does, as a function of the seed, its thread and its number; and the exact contents
//! that result.
//!
//! 1. The engine under test and the driver compute the same plans. A thread writes only its own keys, one
//!    transaction after the other, so that its number `n` determines all its rows.
//! 2. Shared rows hold a version, and the thread and number of the last transaction that changed them. The
//!    version that a transaction writes is not in the plan: the transaction reports it before it commits.
//! 3. A transaction that is rolled back in its second phase changes nothing, not even its counter: it runs
//!    again after a crash.

use crate::rng::{SeededRng, mix};
use seawall::Durability;
use std::collections::BTreeMap;

pub(crate) const ROWS: &str = "rows";
pub(crate) const WIDE: &str = "wide";
pub(crate) const SHARED: &str = "shared";
pub(crate) const COUNTERS: &str = "counters";
/// The initial trees.
pub(crate) const TREES: [&str; 4] = [COUNTERS, ROWS, SHARED, WIDE];
pub(crate) const SHARED_ROWS: u64 = 24;
/// Number of keys of a thread in a tree.
const SLOTS: u64 = 160;
/// A tree that belongs to one thread lives for `SIDE_LIFE` of its transactions; every `SIDE_EVERY`
/// transactions a new one is created.
const SIDE_LIFE: u64 = 9;
const SIDE_EVERY: u64 = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Put { tree: String, key: Vec<u8>, value: Vec<u8> },
    Delete { tree: String, key: Vec<u8> },
    Create { tree: String },
    Drop { tree: String },
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit(Durability),
    /// Prepared, then committed.
    Prepared,
    /// Prepared, then rolled back.
    TakenBack,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    /// Rows whose version the transaction raises, in order.
    pub shared: Vec<u64>,
    pub end: End,
    /// Whether it writes rows and rolls them back to a savepoint.
    pub junk: bool,
}

pub(crate) fn counter_key(thread: u64) -> Vec<u8> {
    thread.to_be_bytes().into()
}

pub(crate) fn xid(thread: u64, n: u64) -> String {
    format!("{thread}.{n}")
}

pub(crate) fn xid_of(text: &str) -> Option<(u64, u64)> {
    let (thread, n) = text.split_once('.')?;
    Some((thread.parse().ok()?, n.parse().ok()?))
}

fn side(thread: u64, n: u64) -> String {
    format!("side.{thread}.{n}")
}

fn key(thread: u64, slot: u64) -> Vec<u8> {
    let mut key = [thread.to_be_bytes(), slot.to_be_bytes()].concat();
    // Keys of several lengths.
    key.resize(16 + (slot * 7 % 40) as usize, b'k');
    key
}

fn value(len: u64, seed: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).flat_map(|i| mix(seed ^ (i << 20)).to_le_bytes());
    words.take(len as usize).collect()
}

pub(crate) fn plan(seed: u64, thread: u64, n: u64) -> Plan {
    let mut rng = SeededRng::new(mix(seed ^ mix(thread << 40 | n)));
    let mut ops = Vec::new();
    let count = match rng.below(30) {
        0 => 60 + rng.below(60),
        _ => 1 + rng.below(6),
    };
    for _ in 0..count {
        let tree = if rng.one_in(3) { WIDE } else { ROWS }.to_owned();
        let key = key(thread, rng.below(SLOTS));
        if rng.one_in(4) {
            ops.push(Op::Delete { tree, key });
            continue;
        }
        let len = match rng.below(if count > 10 { 12 } else { 40 }) {
            0 if tree == WIDE => 2_000 + rng.below(40_000),
            1 => 500 + rng.below(3_000),
            _ => 10 + rng.below(300),
        };
        ops.push(Op::Put { tree, key, value: value(len, rng.next()) });
    }
    let phase = n % SIDE_EVERY;
    if phase == 0 {
        ops.push(Op::Create { tree: side(thread, n) });
    }
    if phase < SIDE_LIFE && n >= SIDE_EVERY {
        let tree = side(thread, n - phase);
        for i in 0..4 {
            ops.push(Op::Put { tree: tree.clone(), key: key(n, i), value: value(100 + i * 50, rng.next()) });
        }
    }
    if phase == SIDE_LIFE && n >= SIDE_EVERY {
        ops.push(Op::Drop { tree: side(thread, n - phase) });
    }
    let mut shared: Vec<u64> = (0..rng.below(3)).map(|_| rng.below(SHARED_ROWS)).collect();
    shared.sort_unstable();
    shared.dedup();
    let has_ddl = phase == 0 || phase == SIDE_LIFE;
    let end = match rng.below(20) {
        0..=8 => End::Commit(Durability::Flushed),
        9..=12 => End::Commit(Durability::Written),
        13..=16 => End::Commit(Durability::Deferred),
        17 | 18 if !has_ddl => End::Prepared,
        19 if !has_ddl => End::TakenBack,
        _ => End::Commit(Durability::Flushed),
    };
    Plan { ops, shared, end, junk: rng.one_in(5) }
}

/// The contents of trees: by tree, by key.
pub(crate) type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The rows of a thread after its transactions up to some number.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    seed: u64,
    thread: u64,
    pub n: u64,
    pub contents: Contents,
}

impl Thread {
    pub(crate) fn new(seed: u64, thread: u64) -> Self {
        Self { seed, thread, n: 0, contents: Contents::new() }
    }

    /// Advances to transaction `n`.
    pub(crate) fn forward(&mut self, n: u64) {
        while self.n < n {
            self.n += 1;
            let plan = plan(self.seed, self.thread, self.n);
            if plan.end == End::TakenBack {
                continue;
            }
            for op in plan.ops {
                match op {
                    Op::Put { tree, key, value } => drop(self.contents.entry(tree).or_default().insert(key, value)),
                    Op::Delete { tree, key } => {
                        if let Some(rows) = self.contents.get_mut(&tree) {
                            rows.remove(&key);
                        }
                    }
                    Op::Create { tree } => drop(self.contents.entry(tree).or_default()),
                    Op::Drop { tree } => drop(self.contents.remove(&tree)),
                }
            }
        }
    }
}
