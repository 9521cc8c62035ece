//! The interface of a store that is measured.
//!
//! A [`Store`] is opened with [`Settings`] and shared by the threads; each thread uses its own [`Session`].
//! The operations of key-value workloads are methods of the session, so that each store can do them the way
//! its own documentation advises; TPC-C uses [`Tx`], a transaction over several tables.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use seawall::Durability;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its directory; created if it does not exist.
    pub dir: PathBuf,
    /// Memory for its cache, bytes. For a store that lives in the page cache, the parent process sets a
    /// memory cgroup instead.
    pub pool_bytes: u64,
    /// What a change outside an explicit load waits for.
    pub durability: Durability,
    /// The tables; key-value workloads use the first. At least one.
    pub tables: Vec<String>,
    /// The most sessions at a time.
    pub threads: usize,
    /// Options of the store by its own names, set last.
    pub options: Vec<(String, String)>,
    /// Added to each flush of a store whose I/O goes through this crate; other stores get the delay from a
    /// preloaded library.
    pub flush_delay: Duration,
    /// Approximate size of the data to come, bytes: for stores that need to know their maximum size (LMDB's
    /// map).
    pub data_bytes: u64,
}

impl Settings {
    /// Creates the directory, for the store of this name.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn make_dir(&self, store: &'static str) -> Result<()> {
        let failed = |error| Error::failed(store, format!("cannot make directory {}: {error}", self.dir.display()));
        std::fs::create_dir_all(&self.dir).map_err(failed)
    }
}

/// Why an operation of a store, or a run, failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A conflict with another transaction (deadlock, conflict, time-out): roll back and try again.
    #[error("another transaction was in the way: {0}")]
    Conflict(String),
    /// The store does not offer the operation.
    #[error("{store} does not offer {what}")]
    Unsupported {
        /// The store.
        store: &'static str,
        /// The operation.
        what: &'static str,
    },
    /// Any other error of a store: the run ends.
    #[error("{store}: {what}")]
    Failed {
        /// The store.
        store: &'static str,
        /// Its message.
        what: String,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// An impossible request, a directory that cannot be used, a process that failed; in words.
    #[error("{0}")]
    Other(String),
}

impl From<String> for Error {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

/// A result of a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Any other error.
    pub fn failed(store: &'static str, what: impl fmt::Display) -> Self {
        Self::Failed { store, what: what.to_string() }
    }
}

/// A store's description of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Its version, as reported by the library.
    pub version: String,
    /// The settings that matter for the comparison, by the store's own names.
    pub settings: Vec<(String, String)>,
}

/// Called with a key and its value.
pub type Visit<'f> = dyn FnMut(&[u8], &[u8]) + 'f;

/// Called with a key and its value, as long as it returns true.
pub type While<'f> = dyn FnMut(&[u8], &[u8]) -> bool + 'f;

/// The store in the errors of default methods.
const THIS: &str = "this store";

/// An open store.
pub trait Store: Send + Sync {
    /// Version and settings.
    fn about(&self) -> About;

    /// A session for one thread.
    ///
    /// # Errors
    /// Those of the store.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// The store's counters since it was opened, by name: numbers that only grow, to be read at both ends of
    /// a window.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Waits until background work left by a load is done (compaction, checkpoint), so that the next workload is not
    /// charged for it. The default is for a store without such work.
    ///
    /// # Errors
    /// Those of the store.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Returns a test whether the store has reached its steady state since this call: every further change then
    /// includes its share of background work. The default, true at once, is for a store that postpones no work.
    fn steady(&self) -> Box<dyn Fn() -> bool + Sync + '_> {
        Box::new(|| true)
    }

    /// Copies the store into `to`, a new directory, while sessions use it, with the store's defaults. It calls
    /// `go_on` with the bytes read since the previous call; the copy ends when that returns false.
    ///
    /// # Errors
    /// Those of the store; [`Error::Unsupported`].
    fn back_up(&self, _to: &Path, _go_on: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        Err(Error::Unsupported { store: THIS, what: "backups" })
    }

    /// Closes it. Acknowledged changes are durable afterwards.
    ///
    /// # Errors
    /// Those of the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The operations of one thread. Each method is its own transaction at the durability of the settings, except
/// [`Session::load`] and reads. The default methods that change rows are for a store that has transactions.
pub trait Session {
    /// Calls `visit` with the value of `key`; false when the key does not exist.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Sets the value of `key`, durably.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut tx = self.begin()?;
        tx.put(0, key, value)?;
        tx.commit()
    }

    /// Reads `key` under a lock, calls `change` to compute the new value from the old one (empty if there is
    /// none), and writes it.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Unsupported`]; those of the store.
    fn read_modify_write(&mut self, key: &[u8], change: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        let mut tx = self.begin()?;
        let mut value = tx.get_for_update(0, key)?.unwrap_or_default();
        change(&mut value);
        tx.put(0, key, &value)?;
        tx.commit()
    }

    /// Writes `rows` as one batch: if `durable`, at the durability of the settings, otherwise as cheaply as the store
    /// can while a clean close still keeps the rows.
    ///
    /// # Errors
    /// Those of the store.
    fn load(&mut self, rows: &[(Vec<u8>, Vec<u8>)], durable: bool) -> Result<()> {
        let mut tx = self.transaction(durable)?;
        tx.put_many(0, rows)?;
        tx.commit()
    }

    /// Visits the entries from `from` (included) up to `to` (excluded; `None`: to the last one) in key order;
    /// ends when `visit` returns false.
    ///
    /// # Errors
    /// Those of the store.
    fn walk(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut While<'_>) -> Result<()>;

    /// Visits up to `rows` entries from `from` on in key order; returns how many it visited.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(&mut self, from: &[u8], rows: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let mut seen = 0;
        if rows > 0 {
            self.walk(from, None, &mut |key, value| {
                visit(key, value);
                seen += 1;
                seen < rows
            })?;
        }
        Ok(seen)
    }

    /// Visits the entries from `from` (included) up to `to` (excluded; `None`: to the last one) in key order;
    /// returns how many it visited.
    ///
    /// # Errors
    /// Those of the store.
    fn range(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<u64> {
        let mut seen = 0;
        self.walk(from, to, &mut |key, value| {
            visit(key, value);
            seen += 1;
            true
        })?;
        Ok(seen)
    }

    /// Visits the entries of `keys` that exist, in any order, as one request where the store offers it;
    /// returns how many it visited.
    ///
    /// # Errors
    /// Those of the store.
    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        self.gets(keys, visit)
    }

    /// Like [`Session::multi_get`], but with one request per key.
    ///
    /// # Errors
    /// Those of the store.
    fn gets(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        found(keys, |key| self.get(key, &mut |value| visit(key, value)))
    }

    /// Begins a transaction over several tables. `durable` means the same as for [`Session::load`].
    ///
    /// # Errors
    /// [`Error::Unsupported`]; those of the store.
    fn transaction(&mut self, _durable: bool) -> Result<Box<dyn Tx + '_>> {
        Err(Error::Unsupported { store: THIS, what: "transactions" })
    }

    /// Begins a transaction that commits at the durability of the settings.
    ///
    /// # Errors
    /// Those of [`Session::transaction`].
    fn begin(&mut self) -> Result<Box<dyn Tx + '_>> {
        self.transaction(true)
    }
}

/// Counts the `keys` that exist, by a function that visits one key.
///
/// # Errors
/// The first error of the function.
pub fn found(keys: &[Vec<u8>], mut get: impl FnMut(&[u8]) -> Result<bool>) -> Result<u64> {
    keys.iter().try_fold(0, |found, key| Ok(found + u64::from(get(key)?)))
}

/// A transaction. It is rolled back when dropped. A table is an index into [`Settings::tables`].
pub trait Tx {
    /// The value of `key` in the transaction's snapshot, its own changes included.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The latest value of `key`, locked until the transaction ends. A store without row locks uses the default,
    /// [`Tx::get`]: it has one writer at a time, or finds conflicts at the commit.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn get_for_update(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(table, key)
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()>;

    /// Sets the values of many keys.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn put_many(&mut self, table: usize, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        rows.iter().try_for_each(|(key, value)| self.put(table, key, value))
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()>;

    /// Visits entries from `from` (included) up to `to` (excluded) in key order, or in reverse order; ends
    /// when `visit` returns false. Sees the transaction's own changes.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(&mut self, table: usize, from: &[u8], to: &[u8], backward: bool, visit: &mut While<'_>) -> Result<()>;

    /// Commits at the durability of the settings.
    ///
    /// # Errors
    /// [`Error::Conflict`]; those of the store.
    fn commit(self: Box<Self>) -> Result<()>;
}
