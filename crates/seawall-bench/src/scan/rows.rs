//! The scanned rows, how they get their places in the file, and how Seawall is opened over them.
//!
//! 1. In order, a leaf's neighbour in key order is its neighbour in the file. Fragmented, rows are inserted
//!    in random order: splits place neighbouring leaves anywhere.
//! 2. The layout of a tree does not depend on the pool it is scanned with: the order of inserts decides where
//!    leaves are.

use crate::results::Load;
use crate::run::load::{Loader, fill};
use crate::store::{Result, Store};
use crate::workload::{KEY_BYTES, Permutation};
use seawall_lab::run::Progress;
use seawall_lab::words;
use std::sync::atomic::AtomicBool;

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
    /// Bytes of all keys and values.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.keys.saturating_mul(self.value_size + KEY_BYTES as u64)
    }

    /// The fewest rows that are [`COLD_FACTOR`] times a pool.
    #[must_use]
    pub fn keys_for(pool_bytes: u64, value_size: u64) -> u64 {
        pool_bytes.saturating_mul(COLD_FACTOR).div_ceil(value_size + KEY_BYTES as u64)
    }

    /// Loads them into an empty store with one thread, and waits until it has settled; `None` when Ctrl-C
    /// came.
    ///
    /// # Errors
    /// Those of the store.
    pub fn fill(&self, store: &dyn Store, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<Option<Load>> {
        let order = (self.order == Order::Fragmented).then(|| Permutation::new(self.keys, self.seed));
        fill(store, Loader::new(0..self.keys, order, self.value_size, self.seed, 0), progress, stop)
    }
}
