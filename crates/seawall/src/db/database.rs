//! The open database: trees by name, transactions, two-phase commits, background work, statistics.
//!
//! 1. Handles and transactions share [`Inner`]. Background threads use [`Work`], which does not hold `Inner`:
//!    when the last handle and transaction are dropped, the database closes, whatever the threads do.
//! 2. Closing stops the threads, writes all pages and a checkpoint, and marks the shutdown clean. A crash
//!    before that loses nothing.

use super::background::{Task, Threads, Work};
use super::backup::ControlSocket;
use super::options::Options;
use super::outside::CallbackThread;
use super::publish::Publisher;
use super::shutdown::{Handle, Shutdown};
use super::stats::{Counts, Prepared};
use super::temporary::Temporaries;
use super::transaction::Transaction;
use crate::counted::Mutex;
use crate::error::{Error, Result};
use crate::format::{TreeId, TxnId};
use crate::txn::{Engine, Names, Refs, TreeState, TxOptions, Txn};
use seawall_io::InUse;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// An open database. Clones share it; it closes with the last clone and transaction.
///
/// It belongs to the process that opened it. After a `fork` the child has copies of all handles: each call on
/// them fails with [`Error::Usage`] (or returns an empty value, if it returns no `Result`), and dropping them
/// has no effect.
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

/// A tree of a database.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(super) state: Arc<TreeState>,
    name: Arc<str>,
}

/// The name that a transaction coordinator gives a transaction: at most 140 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub Vec<u8>);

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// The longest [`Xid`], bytes: what X/Open allows, with its format id.
pub const XID_BYTES_MAX: usize = 140;

impl Tree {
    pub(super) fn new(state: Arc<TreeState>, name: &str) -> Self {
        Self { state, name: name.into() }
    }

    /// Its name when this handle was made.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id; never reused.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.state.at.id
    }
}

/// Spreads the bits of a number (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// What handles and transactions share.
#[derive(Debug)]
pub(super) struct Inner {
    pub path: PathBuf,
    pub work: Arc<Work>,
    /// For transactions.
    engine_refs: Refs<Engine>,
    pub options: Mutex<Options>,
    pub counts: Arc<Counts>,
    prepared: Prepared,
    pub callback_thread: CallbackThread,
    threads: Mutex<Option<Threads>>,
    publisher: Mutex<Option<Publisher>>,
    socket: Mutex<Option<ControlSocket>>,
    in_use: Mutex<Option<InUse>>,
    closed: AtomicBool,
    pub temporaries: Arc<Temporaries>,
    pub shutdown: Shutdown,
    /// Counts the waits before a retry: seeds the random length of the next wait.
    backed_off: AtomicU64,
}

impl Names for Mutex<BTreeMap<Xid, Option<Txn>>> {
    fn ended(&self, xid: &[u8]) {
        self.lock().remove(&Xid(xid.to_vec()));
    }

    fn left(&self, xid: &[u8], txn: Txn) {
        self.lock().insert(Xid(xid.to_vec()), Some(txn));
    }
}

/// The limit of attempts of [`Database::transact`].
const ATTEMPTS_MAX: u32 = 1000;
/// The longest wait before the second attempt, us; doubled for each further attempt, ...
const BACK_OFF_US: u64 = 50;
/// ... up to this.
const BACK_OFF_US_MAX: u64 = 10_000;

impl Inner {
    pub(super) fn new(
        path: PathBuf,
        work: Arc<Work>,
        options: Options,
        counts: Arc<Counts>,
        prepared: Prepared,
        threads: Option<Threads>,
        in_use: InUse,
    ) -> Self {
        Self {
            path,
            engine_refs: Refs::new(&work.engine),
            work,
            options: Mutex::new(options),
            counts,
            prepared,
            callback_thread: CallbackThread::default(),
            threads: Mutex::new(threads),
            publisher: Mutex::default(),
            socket: Mutex::default(),
            in_use: Mutex::new(Some(in_use)),
            closed: AtomicBool::new(false),
            temporaries: Arc::new(Temporaries::new()),
            shutdown: Shutdown::default(),
            backed_off: AtomicU64::new(0),
        }
    }

    /// Waits before a retry: a random time up to a bound that doubles with each attempt, so that transactions
    /// that conflicted once do not conflict again. No lock is held meanwhile.
    fn back_off(&self, attempts: u32) {
        let bound_us = (BACK_OFF_US << (attempts - 1).min(16)).min(BACK_OFF_US_MAX);
        let clock = &self.engine().clock;
        let drawn = self.backed_off.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let wait_us = mix(drawn ^ clock.now().as_nanos() as u64) % (bound_us + 1);
        clock.sleep(Duration::from_micros(wait_us));
    }

    /// Publishes the statistics for other processes.
    pub(super) fn publish(&self) -> std::io::Result<()> {
        *self.publisher.lock() = Some(Publisher::start(&self.path, self.counts.clone())?);
        Ok(())
    }

    /// Listens for backup requests of this user's other processes. If the socket cannot be created, the
    /// database runs without it.
    pub(super) fn listen(&self) {
        match ControlSocket::start(&self.path, &self.work) {
            Ok(socket) => *self.socket.lock() = Some(socket),
            Err(error) => ::log::warn!("{} has no control socket: {error}", self.path.display()),
        }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.work.engine
    }

    /// Whether background work has threads of its own.
    pub(super) fn has_threads(&self) -> bool {
        self.threads.lock().is_some()
    }

    /// Reserves the name of a transaction that is about to be prepared.
    fn take_name(&self, xid: &Xid) -> Result<()> {
        if xid.0.is_empty() || xid.0.len() > XID_BYTES_MAX {
            return Err(Error::Usage(format!("an XID of {} bytes: 1 to {XID_BYTES_MAX} are allowed", xid.0.len())));
        }
        let mut prepared = self.prepared.lock();
        if prepared.contains_key(xid) {
            return Err(Error::Usage(format!("a transaction is prepared as {xid} already")));
        }
        prepared.insert(xid.clone(), None);
        Ok(())
    }

    /// Runs `prepare` with the name reserved. If `prepare` leaves the transaction prepared in place, the
    /// transaction keeps the name.
    pub(super) fn prepare_in_place<T>(
        &self,
        xid: &Xid,
        txn: &mut Txn,
        prepare: impl FnOnce(&mut Txn, Arc<dyn Names>) -> Result<T>,
    ) -> Result<T> {
        if txn.is_prepared() {
            return Err(Error::Usage("the transaction is prepared already".into()));
        }
        self.take_name(xid)?;
        let prepared = prepare(txn, self.prepared.clone());
        if !txn.is_prepared() {
            self.prepared.lock().remove(xid);
        }
        prepared
    }

    /// Runs `prepare` with the name reserved.
    pub(super) fn prepare(&self, xid: &Xid, prepare: impl FnOnce() -> Result<Txn>) -> Result<()> {
        self.take_name(xid)?;
        match prepare() {
            Ok(txn) => {
                self.prepared.lock().insert(xid.clone(), Some(txn));
                Ok(())
            }
            Err(error) => {
                self.prepared.lock().remove(xid);
                Err(error)
            }
        }
    }

    /// The transactions that are prepared and belong to no handle.
    pub(super) fn prepared_ids(&self) -> Vec<TxnId> {
        self.prepared.lock().values().flatten().map(Txn::id).collect()
    }

    fn take_prepared(&self, xid: &Xid) -> Result<Txn> {
        let taken = self.prepared.lock().get_mut(xid).and_then(Option::take);
        taken.ok_or_else(|| Error::Unknown { what: "prepared transaction", name: xid.to_string() })
    }

    fn close(&self) -> Result<()> {
        self.close_after(|| {})
    }

    /// Closes the database; `last` is called when background work has stopped.
    pub(super) fn close_after(&self, last: impl FnOnce()) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.temporaries.close();
        // First, so that a backup requested by another process does not delay closing.
        let socket = self.socket.lock().take();
        if let Some(socket) = socket {
            socket.stop();
        }
        let threads = self.threads.lock().take();
        if let Some(threads) = threads {
            threads.stop();
        }
        last();
        let closed = self.work.close();
        self.engine().log().end_watch(closed.as_ref().err());
        self.callback_thread.join();
        // Last, so that the writes of closing are counted, even if closing failed.
        let publisher = self.publisher.lock().take();
        if let Some(publisher) = publisher {
            publisher.stop();
        }
        self.in_use.lock().take();
        closed
    }
}

impl Inner {
    /// In a forked process: leaves everything unchanged. It does not join the threads (the child has none),
    /// closes no file, and leaks the values whose drop would do so.
    fn leave(&mut self) {
        let threads = (self.threads.get_mut().take(), self.publisher.get_mut().take(), self.socket.get_mut().take());
        std::mem::forget(threads);
        self.callback_thread.leave();
        std::mem::forget((self.work.clone(), self.engine_refs.clone(), self.counts.clone(), self.prepared.clone()));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.engine().instance.is_here() {
            return self.leave();
        }
        for txn in self.prepared.lock().values_mut().flatten() {
            txn.keep();
        }
        if self.close().is_err() {
            // Nothing is lost: all commits are in the log, and the next opening recovers them.
        }
    }
}

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
    /// [`Error::NoSuchTree`]; [`Error::LockTimeout`] if a transaction that has written to it does not end in
    /// time.
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

    /// The names of all trees, in order.
    ///
    /// # Errors
    /// Reading errors.
    pub fn trees(&self) -> Result<Vec<String>> {
        self.begin()?.trees()
    }

    /// The latest committed value of `key`: a transaction of one read, and cheaper than [`Database::begin`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
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

    /// Calls `f` with the latest committed value of `key`, without copying it, as [`Transaction::get_with`]
    /// does.
    ///
    /// # Errors
    /// As [`Transaction::get`].
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

    /// Begins a transaction: repeatable read on a snapshot that its first read without a lock takes (or
    /// [`Transaction::take_snapshot`]). A change that conflicts with that snapshot fails.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(TxOptions::default())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub fn begin_with(&self, options: TxOptions) -> Result<Transaction> {
        self.here()?;
        self.inner.shutdown.admit()?;
        let durability = options.durability.unwrap_or_else(|| self.inner.work.durability());
        let txn = Txn::begin(self.inner.engine_refs.get(), options);
        Ok(Transaction::new(self.inner.clone(), txn, durability))
    }

    /// Runs `f` in a transaction and commits it. If `f` returns a deadlock or a write conflict, the
    /// transaction is rolled back, and after a short random wait `f` runs again in a new one: `f` may run
    /// more than once.
    ///
    /// # Errors
    /// The first other error of `f` or of the commit; [`Error::Deadlock`] or [`Error::WriteConflict`] if all
    /// of a thousand attempts fail with one.
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

    /// As [`Database::transact`], with options for the transaction and any error type that can hold an
    /// [`Error`]. `f` runs again if it returns any error after one of the transaction's operations failed
    /// with a deadlock or a write conflict.
    ///
    /// # Errors
    /// As [`Database::transact`].
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
            tx.rollback()?;
            if !retry {
                return Err(error);
            }
            self.inner.back_off(attempt);
        }
        unreachable!("the last attempt returns")
    }

    /// The names of the prepared transactions, in order; none in a forked process.
    #[must_use]
    pub fn prepared(&self) -> Vec<Xid> {
        if self.here().is_err() {
            return Vec::new();
        }
        let prepared = self.inner.prepared.lock();
        prepared.iter().filter(|(_, txn)| txn.is_some()).map(|(xid, _)| xid.clone()).collect()
    }

    /// Second phase of two-phase commit: commits the transaction, flushed.
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

    /// Second phase of two-phase commit: rolls the transaction back, flushed.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Poisoned`]; [`Error::NoSpace`] and reading errors: the rollback is
    /// decided, and completed in the background. [`Error::OutcomeUnknown`] if the log failed meanwhile: after
    /// the next opening the transaction is prepared again, or gone.
    pub fn rollback_prepared(&self, xid: &Xid) -> Result<()> {
        let _running = self.running()?;
        self.inner.engine().health().check()?;
        let taken = self.inner.take_prepared(xid)?;
        let log = self.inner.engine().log();
        // Flushed, because the coordinator forgets the transaction and must not find it prepared again after
        // a crash.
        let rolled_back = taken.rollback().and_then(|()| log.flush_to(log.head())).map_err(|cause| match cause {
            // The log records of the rollback may be durable or not: the next opening finds the transaction
            // prepared, or gone.
            cause @ Error::Poisoned { .. } => Error::OutcomeUnknown { cause: Arc::new(cause) },
            cause => cause,
        });
        // The rollback is decided either way: if it stopped midway, background work or the next opening
        // completes it.
        self.inner.prepared.lock().remove(xid);
        rolled_back
    }

    /// Writes a checkpoint: recovery will not need the log before it.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<()> {
        let _running = self.running()?;
        self.inner.work.engine.pool().flush_all().map(drop)
    }

    /// Runs one step of background work that is due; false if none is due. For tests that open with
    /// `Background::Steps`.
    ///
    /// # Errors
    /// What stopped it.
    pub fn step(&self) -> Result<bool> {
        for &task in Task::ALL {
            if self.step_task(task)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs one step of this background task; false if none is due.
    ///
    /// # Errors
    /// What stopped it.
    pub fn step_task(&self, task: Task) -> Result<bool> {
        self.here()?;
        let stepped = self.inner.work.step(task);
        // If there are background threads, one of them calls the callbacks.
        let told = task == Task::Log && !self.inner.has_threads() && self.inner.engine().log().tell();
        stepped.map(|more| more || told)
    }

    /// Whether it was opened by [`Database::open_read_only`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.engine().health().is_read_only()
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.inner.path
    }

    /// Closes the database: waits until all dirty pages are written, so that the next opening has nothing to
    /// recover.
    ///
    /// # Errors
    /// [`Error::Usage`] while another handle or transaction exists (see [`Database::shutdown`]); otherwise
    /// the error that stopped it: no committed change is lost.
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
