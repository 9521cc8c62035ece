//! What a store must do to be measured.
//!
//! A [`Store`] is opened with [`Settings`] and shared by the threads; each thread works through a [`Session`] of its own. The operations of
//! key-value workloads are methods of the session, so that each store can do them the way its own documentation advises; TPC-C works
//! through [`Tx`], a transaction over several tables.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use seawall::Durability;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its directory; made when it is not there.
    pub dir: PathBuf,
    /// Memory for its cache, bytes. A store that lives in the page cache is bounded by a memory cgroup instead, by whoever starts the process.
    pub pool_bytes: u64,
    /// What a change outside an explicit load waits for.
    pub durability: Durability,
    /// The tables; key-value workloads use the first. At least one.
    pub tables: Vec<String>,
    /// The most sessions at a time.
    pub threads: usize,
    /// Options of the store by its own names, set last.
    pub options: Vec<(String, String)>,
    /// Added to each flush, where the store's I/O is ours; other stores get it from a library loaded before theirs.
    pub flush_delay: Duration,
    /// About the size of the data to come, bytes: for stores that want to be told their greatest size (LMDB's map).
    pub data_bytes: u64,
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another transaction was in the way (deadlock, conflict, time-out): roll back and try again.
    #[error("another transaction was in the way: {0}")]
    Conflict(String),
    /// The store does not offer it.
    #[error("{store} does not offer {what}")]
    Unsupported {
        /// The store.
        store: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// Anything else: the run ends.
    #[error("{store}: {what}")]
    Failed {
        /// The store.
        store: &'static str,
        /// What it said.
        what: String,
    },
}

/// A result of a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Any other error.
    pub fn failed(store: &'static str, what: impl fmt::Display) -> Self {
        Self::Failed { store, what: what.to_string() }
    }
}

/// What a store says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Its version, as the library itself says it.
    pub version: String,
    /// The settings that matter for the comparison, by the store's own names.
    pub settings: Vec<(String, String)>,
}

/// A key and its value, as they are read.
pub type Visit<'f> = dyn FnMut(&[u8], &[u8]) + 'f;

/// An open store.
pub trait Store: Send + Sync {
    /// Version and settings.
    fn about(&self) -> About;

    /// Work for one thread.
    ///
    /// # Errors
    /// Those of the store.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// What it has counted since it was opened, by name: numbers that only grow, to be read at both ends of a window.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Waits until background work that a load left behind is done (compaction, checkpoint), so that the next workload is not charged for it.
    ///
    /// # Errors
    /// Those of the store.
    fn settle(&self) -> Result<()>;

    /// Copies it into `to`, a new directory, while it is worked on, with the store's defaults; `go_on` is told how many bytes were read since it was
    /// last called, and false ends the copy.
    ///
    /// # Errors
    /// Those of the store; [`Error::Unsupported`].
    fn back_up(&self, _to: &Path, _go_on: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        Err(Error::Unsupported { store: "this store", what: "backups" })
    }

    /// Closes it. What was acknowledged is durable afterwards.
    ///
    /// # Errors
    /// Those of the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What one thread does in a store. Each method is a transaction of its own at the durability of the settings, but for
/// [`Session::load`] and reads.
pub trait Session {
    /// Lends the value of `key` to `visit`; false when the key is not there.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Gives `key` a value, durably.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Reads `key` under a lock, lets `change` make a new value of the old one (empty when there is none), and writes that.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn read_modify_write(&mut self, key: &[u8], change: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()>;

    /// Writes `rows` as one batch; `durable`: at the durability of the settings, else as cheaply as the store can and still find the rows after a clean close.
    ///
    /// # Errors
    /// Those of the store.
    fn load(&mut self, rows: &[(Vec<u8>, Vec<u8>)], durable: bool) -> Result<()>;

    /// Visits up to `rows` entries from `from` on in key order; returns how many there were.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(&mut self, from: &[u8], rows: u64, visit: &mut Visit<'_>) -> Result<u64>;

    /// Visits the entries from `from` (included) up to `to` (excluded; `None`: to the last one) in key order; returns how many there were.
    ///
    /// # Errors
    /// Those of the store.
    fn range(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<u64>;

    /// Visits the entries of `keys` that are there, in any order, as one request where the store offers it; returns how many there were.
    ///
    /// # Errors
    /// Those of the store.
    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        let mut found = 0;
        for key in keys {
            found += u64::from(self.get(key, &mut |value| visit(key, value))?);
        }
        Ok(found)
    }

    /// Begins a transaction over several tables.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; those of the store.
    fn begin(&mut self) -> Result<Box<dyn Tx + '_>>;
}

/// A transaction. Dropped, it is rolled back. A table is its place in [`Settings::tables`].
pub trait Tx {
    /// The value of `key` in the transaction's snapshot, its own changes included.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The latest value of `key`, locked until the transaction ends.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn get_for_update(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Gives `key` a value.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key`.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()>;

    /// Visits entries from `from` (included) up to `to` (excluded) in key order, or from the last one back; ends when `visit` answers false. Its own changes are seen.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        backward: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    /// Commits at the durability of the settings.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn commit(self: Box<Self>) -> Result<()>;
}
