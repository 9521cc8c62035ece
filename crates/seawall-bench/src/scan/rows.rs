//! The scanned rows, how they get their places in the file, and how Seawall is opened over them.
//!
//! 1. In order, a leaf's neighbour in key order is its neighbour in the file. Fragmented, rows are inserted
//!    in random order: splits place neighbouring leaves anywhere.
//! 2. The layout of a tree does not depend on the pool it is scanned with: the order of inserts decides where
//!    leaves are.

use crate::observe::drop_page_cache;
use crate::results::Load;
use crate::run::load::{Loader, fill};
use crate::store::{Error, Result, Settings, Store};
use crate::workload::{KEY_BYTES, Permutation};
use seawall_io::FlushMethod;
use seawall_lab::run::Progress;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

/// The data is at least this many times the memory that may hold it.
pub const COLD_FACTOR: u64 = 10;

/// The order in which rows were inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By key.
    Ordered,
    /// At random.
    Fragmented,
}

impl Order {
    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Fragmented => "fragmented",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Ordered, Self::Fragmented].into_iter().find(|order| order.name() == text);
        found.ok_or_else(|| format!("{text:?} is no order of inserts: use ordered or fragmented"))
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

/// Opens a closed store so that its rows come from the device: no page of its files is in the page cache, and
/// its own cache is empty.
///
/// # Errors
/// Those of opening; or the page cache cannot be dropped.
pub fn cold(settings: &Settings, open: impl FnOnce(&Settings) -> Result<Box<dyn Store>>) -> Result<Box<dyn Store>> {
    let drop_all = || drop_page_cache(&settings.dir).map_err(|why| Error::failed("bench", why));
    drop_all()?;
    let store = open(settings)?;
    drop_all()?;
    Ok(store)
}

/// Options that make Seawall read its data file by `method`, with at most `prefetch_depth` reads ahead for one scan: 0
/// for none, `None` for its default.
#[must_use]
pub fn options(method: FlushMethod, prefetch_depth: Option<u32>) -> Vec<(String, String)> {
    let depth = prefetch_depth.map(|depth| ("prefetch_depth".to_owned(), depth.to_string()));
    [("data_flush_method".to_owned(), method.name().to_owned())].into_iter().chain(depth).collect()
}
