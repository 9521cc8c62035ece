//! The scanned rows and their places in the file, one query, and a client that runs queries one after the other.
//!
//! 1. In order, a leaf's neighbour in key order is its neighbour in the file. Fragmented, rows are inserted
//!    in random order: splits place neighbouring leaves anywhere.
//! 2. The layout of a tree does not depend on the pool it is scanned with: the order of inserts decides where
//!    leaves are.
//! 3. A query begins at a uniformly random place in the table, and finds all its rows.
//! 4. Its rows are counted in small steps, in a counter that other threads read.

use crate::results::Load;
use crate::run::load::{Loader, fill};
use crate::run::{Operation, Outcome};
use crate::store::{Error, Result, Session, Store};
use crate::workload::{KEY_BYTES, Permutation, key, thread_rng};
use rand::Rng as _;
use rand_pcg::Pcg64Mcg;
use seawall_lab::run::Progress;
use seawall_lab::words;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rows that are counted in one step.
const STEP: u64 = 256;
/// The data is at least this many times the memory that may hold it.
pub const COLD_FACTOR: u64 = 10;

words! {
    /// The order in which rows were inserted.
    pub enum Order {
        /// By key.
        Ordered = "ordered",
        /// At random.
        Fragmented = "fragmented",
    }
}

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Rows; their keys are those of the numbers below `keys`.
    pub keys: u64,
    /// Bytes of a value.
    pub value_size: u64,
    /// The order of insertion.
    pub order: Order,
    /// The seed of values and of the random order.
    pub seed: u64,
}

impl Rows {
    /// The fewest rows that are [`COLD_FACTOR`] times a pool.
    pub fn keys_for(pool_bytes: u64, value_size: u64) -> u64 {
        pool_bytes.saturating_mul(COLD_FACTOR).div_ceil(value_size + KEY_BYTES as u64)
    }

    /// Loads the rows into an empty store with one thread, and waits until it has settled.
    ///
    /// # Errors
    /// Those of the store.
    pub fn fill(&self, store: &dyn Store, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<Load> {
        let order = (self.order == Order::Fragmented).then(|| Permutation::new(self.keys, self.seed));
        fill(store, Loader::new(0..self.keys, order, self.value_size, self.seed, 0), progress, stop)
    }
}

/// The query that a thread repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// A range of this many rows, given by its first and last key.
    Range(u64),
    /// The whole table.
    All,
    /// This many random keys in one request.
    MultiGet(u64),
    /// The same keys, one request each.
    Gets(u64),
}

impl Query {
    /// Rows that one query finds in a table of `keys`.
    pub fn rows(self, keys: u64) -> u64 {
        match self {
            Self::Range(rows) | Self::MultiGet(rows) | Self::Gets(rows) => rows,
            Self::All => keys,
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(rows) => write!(f, "range-{rows}"),
            Self::All => f.write_str("all"),
            Self::MultiGet(keys) => write!(f, "multi-get-{keys}"),
            Self::Gets(keys) => write!(f, "gets-{keys}"),
        }
    }
}

/// The client of one thread.
pub(super) struct Client<'s> {
    query: Query,
    rows: Rows,
    session: Box<dyn Session + 's>,
    /// Rows visited, for other threads to read.
    done: &'s AtomicU64,
    class: usize,
    rng: Pcg64Mcg,
    keys: Vec<Vec<u8>>,
}

impl<'s> Client<'s> {
    pub(super) fn new(
        (query, class): (Query, usize),
        rows: Rows,
        session: Box<dyn Session + 's>,
        done: &'s AtomicU64,
        thread: usize,
    ) -> Self {
        let keys = if let Query::MultiGet(keys) | Query::Gets(keys) = query { keys as usize } else { 0 };
        let rng = thread_rng(rows.seed, thread);
        Self { query, class, rows, session, done, rng, keys: vec![Vec::new(); keys] }
    }
}

impl Operation for Client<'_> {
    fn next(&mut self) -> Result<Outcome> {
        let (size, done) = (self.rows.value_size as usize, self.done);
        // A visit cannot return an error: a wrong value is kept and reported afterwards.
        let (mut seen, mut wrong) = (0, None);
        let mut visit = |key: &[u8], value: &[u8]| {
            if std::hint::black_box(value).len() != size {
                wrong = Some((key.to_vec(), value.len()));
            }
            seen += 1;
            if seen % STEP == 0 {
                done.fetch_add(STEP, Ordering::Relaxed);
            }
        };
        for key_ in &mut self.keys {
            key_.clear();
            key_.extend_from_slice(&key(self.rng.random_range(0..self.rows.keys)));
        }
        let rows = match self.query {
            Query::Range(rows) => {
                let first = self.rng.random_range(0..=self.rows.keys - rows);
                self.session.range(&key(first), Some(&key(first + rows)), &mut visit)
            }
            Query::All => self.session.range(&[], None, &mut visit),
            Query::MultiGet(_) => self.session.multi_get(&self.keys, &mut visit),
            Query::Gets(_) => self.session.gets(&self.keys, &mut visit),
        }?;
        done.fetch_add(seen % STEP, Ordering::Relaxed);
        let failed =
            |why: String| Err(Error::failed("bench", format!("{}: {why}: the store lost or changed rows", self.query)));
        if let Some((key, len)) = wrong {
            let key = String::from_utf8_lossy(&key).into_owned();
            return failed(format!("the value of key {key} has {len} bytes where {size} were loaded"));
        }
        let expected = self.query.rows(self.rows.keys);
        if (rows, seen) != (expected, expected) {
            return failed(format!("{seen} rows were found where {expected} were loaded"));
        }
        Ok(Outcome::Done(1))
    }

    fn class(&self) -> usize {
        self.class
    }
}
