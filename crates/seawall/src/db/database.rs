//! The open database: trees by name, transactions, two-phase commits, background work, statistics.
//!
//! 1. Handles and transactions share [`Inner`]. Background threads use [`Work`], which holds no reference to
//!    `Inner`. So the database closes when the last handle and transaction are dropped, whatever the threads
//!    are doing.
//! 2. Closing stops the threads, writes all pages and a checkpoint, and marks the shutdown clean. A crash
//!    before that loses nothing.

use super::background::Task;
use super::durable::LogPosition;
use super::handle::Handle;
use super::inner::Inner;
use super::prepared::Xid;
use super::transaction::Transaction;
use super::tree::Tree;
use crate::buffer::may_latch;
use crate::error::{Error, Result};
use crate::txn::{TxOptions, Txn};
use std::sync::Arc;
use std::time::Duration;

/// An open database. Clones are handles of the same database; it closes when the last handle and transaction
/// are dropped.
///
/// The database belongs to the process that opened it. After a `fork`, each call on the child's copies of the
/// handles fails with [`Error::Usage`] (or returns an empty value, if it returns no `Result`). Dropping these
/// copies has no effect.
#[derive(Debug)]
pub struct Database {
    // Before `inner`: see [`super::shutdown`].
    handle: Handle,
    pub(super) inner: Arc<Inner>,
}

impl Clone for Database {
    fn clone(&self) -> Self {
        let inner = self.inner.clone();
        Self { handle: self.handle.clone(), inner }
    }
}

/// The limit of attempts in [`Database::transact`].
const ATTEMPTS_MAX: u32 = 1000;
impl Database {
    pub(super) fn new(inner: Inner) -> Self {
        Self { handle: inner.shutdown.handle(), inner: Arc::new(inner) }
    }

    /// Fails in a process that was forked from the one that opened the database, and after a shutdown.
    #[inline]
    pub(super) fn here(&self) -> Result<()> {
        self.inner.engine().instance.here()
    }

    /// Creates a tree, or opens it if it exists.
    ///
    /// # Errors
    /// [`Error::NameTooLong`]; [`Error::LockTimeout`] if another transaction that creates the tree does not end;
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Poisoned`].
    pub fn create_tree(&self, name: &str) -> Result<Tree> {
        self.transact(|tx| match tx.open_tree(name) {
            Err(Error::NoSuchTree { .. }) => tx.create_tree(name),
            opened => opened,
        })
        .or_else(|error| match error {
            // Another thread created it meanwhile.
            Error::TreeExists { .. } => self.open_tree(name),
            error => Err(error),
        })
    }

    /// Opens a tree.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`].
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        self.begin()?.open_tree(name)
    }

    /// Drops a tree. Older snapshots can still read it.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; [`Error::LockTimeout`] if a transaction that has written to the tree does not end
    /// in time.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.transact(|tx| tx.drop_tree(name))
    }

    /// Renames a tree.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], [`Error::TreeExists`].
    pub fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        self.transact(|tx| tx.rename_tree(from, to))
    }

    /// Returns the names of all trees, in order.
    ///
    /// # Errors
    /// Read errors.
    pub fn trees(&self) -> Result<Vec<String>> {
        self.begin()?.trees()
    }

    /// Returns the latest committed value of `key`. Acts as a transaction of one read, and is cheaper than
    /// [`Database::begin`].
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let users = db.create_tree("users")?;
    /// db.transact(|tx| tx.put(&users, b"ada", b"1815"))?;
    /// assert_eq!(db.get(&users, "ada")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn get(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Vec<u8>>> {
        self.get_with(tree, key, <[u8]>::to_vec)
    }

    /// Calls `f` with the latest committed value of `key`, without copying it: see [`Transaction::get_with`].
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn get_with<T>(
        &self,
        tree: &Tree,
        key: &(impl AsRef<[u8]> + ?Sized),
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let engine = self.inner.engine();
        engine.admit(&tree.state)?;
        engine.get_with(&tree.state, key.as_ref(), f)
    }

    /// Begins a transaction with the default options. It is repeatable read, on a snapshot that its first read
    /// without a lock takes (or [`Transaction::take_snapshot`]). A change to a row that another transaction has
    /// changed since that snapshot fails.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(TxOptions::default())
    }

    /// Begins a transaction with these options.
    ///
    /// # Errors
    /// Those of [`Database::begin`].
    pub fn begin_with(&self, options: TxOptions) -> Result<Transaction> {
        self.here()?;
        self.inner.shutdown.admit()?;
        let durability = options.durability;
        let txn = Txn::begin(self.inner.engine_refs.get(), options);
        Ok(Transaction::new(self.inner.clone(), txn, durability))
    }

    /// Runs `f` in a transaction and commits it. If `f` returns a deadlock or a write conflict, the transaction
    /// is rolled back and, after a short random wait, `f` runs again in a new one. So `f` may run more than
    /// once.
    ///
    /// # Errors
    /// The first other error of `f` or of the commit; [`Error::Deadlock`] or [`Error::WriteConflict`] if a
    /// thousand attempts fail with one of these.
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let counters = db.create_tree("counters")?;
    /// db.transact(|tx| {
    ///     let n = tx.get_for_update(&counters, b"visits")?.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
    ///     tx.put(&counters, b"visits", &(n + 1).to_le_bytes())
    /// })?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn transact<T>(&self, f: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.attempts(TxOptions::default(), f, |error, _| error.is_retryable())
    }

    /// Like [`Database::transact`], with options for the transaction and any error type that converts from
    /// [`Error`]. `f` runs again if it returns an error after one of the transaction's operations failed with a
    /// deadlock or a write conflict.
    ///
    /// # Errors
    /// Those of [`Database::transact`].
    ///
    /// ```
    /// use seawall::{Isolation, TxOptions};
    /// #[derive(Debug)]
    /// enum Refused {
    ///     NotEnough,
    ///     Store(seawall::Error),
    /// }
    /// impl From<seawall::Error> for Refused {
    ///     fn from(error: seawall::Error) -> Self {
    ///         Self::Store(error)
    ///     }
    /// }
    /// # let db = seawall::Database::in_memory()?;
    /// let stock = db.create_tree("stock")?;
    /// let options = TxOptions { isolation: Isolation::Serializable, ..TxOptions::default() };
    /// let taken = db.transact_with(options, |tx| {
    ///     let left = tx.get(&stock, b"apples")?.map_or(0, |v| v[0]);
    ///     let left = left.checked_sub(1).ok_or(Refused::NotEnough)?;
    ///     Ok(tx.put(&stock, b"apples", &[left])?)
    /// });
    /// assert!(matches!(taken, Err(Refused::NotEnough)));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn transact_with<T, E: From<Error>>(
        &self,
        options: TxOptions,
        f: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.attempts(options, f, |_, tx| tx.txn().gave_way())
    }

    fn attempts<T, E: From<Error>>(
        &self,
        options: TxOptions,
        mut f: impl FnMut(&mut Transaction) -> Result<T, E>,
        may_retry: impl Fn(&E, &Transaction) -> bool,
    ) -> Result<T, E> {
        for attempt in 1.. {
            let mut tx = self.begin_with(options)?;
            let error = match f(&mut tx) {
                Ok(value) => {
                    tx.commit()?;
                    return Ok(value);
                }
                Err(error) => error,
            };
            let retry = attempt < ATTEMPTS_MAX && may_retry(&error, &tx);
            // What a failed rollback leaves is undone by background work or the next opening.
            let rolled_back = tx.rollback();
            if !retry {
                return Err(error);
            }
            rolled_back?;
            self.inner.back_off(attempt);
        }
        unreachable!("the last attempt returns")
    }

    /// Returns the names of the prepared transactions, in order; none in a forked process, nor after a
    /// shutdown: a coordinator calls it right after opening.
    #[must_use]
    pub fn prepared(&self) -> Vec<Xid> {
        if self.here().is_err() {
            return Vec::new();
        }
        let prepared = self.inner.prepared.lock();
        prepared.iter().filter(|(_, txn)| txn.is_some()).map(|(xid, _)| xid.clone()).collect()
    }

    /// Second phase of two-phase commit: commits the prepared transaction `xid` and flushes the log.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Poisoned`] and [`Error::NoSpace`] (the transaction stays prepared),
    /// [`Error::OutcomeUnknown`].
    pub fn commit_prepared(&self, xid: &Xid) -> Result<()> {
        let _running = self.running()?;
        self.inner.engine().health().check()?;
        let txn = self.inner.take_prepared(xid)?;
        let begun = self.inner.counts.now();
        match txn.commit_prepared() {
            Ok(()) => {
                self.inner.counts.committed(self.inner.counts.now().saturating_sub(begun));
                self.inner.prepared.lock().remove(xid);
                Ok(())
            }
            Err((Some(still), error)) => {
                self.inner.prepared.lock().insert(xid.clone(), Some(still));
                Err(error)
            }
            Err((None, error)) => Err(error),
        }
    }

    /// As [`Database::commit_prepared`], in the order of an outside log: like [`Transaction::commit_ordered`], makes
    /// the commit visible at once, and returns the position up to which the log must be flushed to make it durable.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Poisoned`] and [`Error::NoSpace`]: the transaction stays prepared.
    ///
    /// ```
    /// # use seawall::Xid;
    /// # let db = seawall::Database::in_memory()?;
    /// # let rows = db.create_tree("rows")?;
    /// # let mut tx = db.begin()?;
    /// # tx.put(&rows, b"k", b"v")?;
    /// # let xid = Xid(b"7".to_vec());
    /// tx.prepare(&xid)?;
    /// // ... the outside log says that 7 is committed ...
    /// let position = db.commit_prepared_ordered(&xid)?;
    /// assert!(db.get(&rows, b"k")?.is_some());
    /// db.flush_log_to(position)?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn commit_prepared_ordered(&self, xid: &Xid) -> Result<LogPosition> {
        let _running = self.running()?;
        self.inner.engine().health().check()?;
        let committed = self.inner.take_prepared(xid)?.commit_prepared_ordered();
        let mut prepared = self.inner.prepared.lock();
        match committed {
            Ok(end) => {
                prepared.remove(xid);
                self.inner.counts.committed(Duration::ZERO);
                Ok(end.into())
            }
            Err((still, error)) => {
                prepared.insert(xid.clone(), Some(still));
                Err(error)
            }
        }
    }

    /// Second phase of two-phase commit: rolls the prepared transaction `xid` back and flushes the log.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Poisoned`]. [`Error::NoSpace`] or a read error: if [`Database::prepared`] still has
    /// the transaction, nothing has happened; otherwise it is decided, and background work completes the rollback.
    /// After [`Error::OutcomeUnknown`] (the log failed during the rollback), the next opening finds the transaction
    /// prepared again, or gone.
    pub fn rollback_prepared(&self, xid: &Xid) -> Result<()> {
        let _running = self.running()?;
        self.inner.engine().health().check()?;
        let mut taken = self.inner.take_prepared(xid)?;
        let told = |cause| match cause {
            // It is unknown whether the log records of the rollback are durable.
            cause @ Error::Poisoned { .. } => Error::OutcomeUnknown { cause: Arc::new(cause) },
            cause => cause,
        };
        if let Err(error) = taken.revoke() {
            // The name stays with it: in the log it is prepared.
            self.inner.prepared.lock().insert(xid.clone(), Some(taken));
            return Err(told(error));
        }
        let rolled_back = taken.rollback();
        // Also after a rollback that stopped midway, which background work or the next opening completes: the
        // coordinator forgets the transaction and must not find it prepared again after a crash.
        let log = self.inner.engine().log();
        let flushed = log.flush_to(log.head());
        self.inner.prepared.lock().remove(xid);
        flushed.and(rolled_back).map_err(told)
    }

    /// Writes all dirty pages and then a checkpoint: recovery will not need the log before it.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<()> {
        let _running = self.running()?;
        self.inner.work.engine.pool().flush_all().map(drop)
    }

    /// Runs one step of background work; returns false if none is due. For tests that open with
    /// `Background::Steps`.
    ///
    /// # Errors
    /// The error that stopped the step.
    pub fn step(&self) -> Result<bool> {
        for &task in Task::ALL {
            if self.step_task(task)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs one step of this background task; returns false if none is due.
    ///
    /// # Errors
    /// The error that stopped the step.
    pub fn step_task(&self, task: Task) -> Result<bool> {
        self.here()?;
        may_latch()?;
        let stepped = self.inner.work.step(task);
        // If there are background threads, one of them calls the callbacks.
        let told = task == Task::Log && !self.inner.has_threads() && self.inner.engine().log().tell();
        stepped.map(|more| more || told)
    }

    /// Returns whether the database was opened by [`Database::open_read_only`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.engine().health().is_read_only()
    }

    /// Returns the database's directory.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.inner.path
    }

    /// Closes the database: waits until all dirty pages are written, so that the next opening has nothing to
    /// recover.
    ///
    /// # Errors
    /// [`Error::Usage`] while another handle or transaction exists (see [`Database::shutdown`]); otherwise the
    /// error that stopped closing. No committed change is lost.
    pub fn close(self) -> Result<()> {
        self.here()?;
        let Self { handle, inner } = self;
        drop(handle);
        match Arc::try_unwrap(inner) {
            Ok(inner) => inner.close(),
            Err(_) => {
                Err(Error::Usage("the database is still in use: drop its transactions and other handles first".into()))
            }
        }
    }
}
