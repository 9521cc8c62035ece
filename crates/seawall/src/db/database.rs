//! The open database: trees by name, transactions, two-phase commits, background work, statistics.
//!
//! 1. [`Inner`] is shared by the handles and the transactions; what background threads need is in [`Work`], which does not hold `Inner`: when the
//!    last handle and transaction are gone the database closes, whatever the threads do.
//! 2. Closing stops the threads, writes all pages and a checkpoint, and marks the shutdown clean. A crash instead of it loses nothing.

use super::background::{Task, Threads, Work};
use super::backup::ControlSocket;
use super::options::Options;
use super::outside::Teller;
use super::publish::Publisher;
use super::shutdown::{Handle, Shutdown};
use super::stats::{Counts, Prepared};
use super::transaction::Transaction;
use crate::counted::Mutex;
use crate::error::{Error, Result};
use crate::format::TreeId;
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
/// It is of the process that opened it. After a `fork` the child has copies of all handles: each call on them is an [`Error::Usage`] (or empty,
/// where the answer is no `Result`), and dropping them touches nothing.
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

/// The name that a transaction coordinator gave a transaction: at most 140 bytes.
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
    pub teller: Teller,
    threads: Mutex<Option<Threads>>,
    publisher: Mutex<Option<Publisher>>,
    socket: Mutex<Option<ControlSocket>>,
    in_use: Mutex<Option<InUse>>,
    closed: AtomicBool,
    pub shutdown: Shutdown,
    /// Counts waits before a transaction is run again: what the length of the next one is drawn from.
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

/// How often [`Database::transact`] runs a transaction, at most.
const ATTEMPTS_MAX: u32 = 1000;
/// It waits no longer than this before the second attempt, us, doubled for each further one, ...
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
            teller: Teller::default(),
            threads: Mutex::new(threads),
            publisher: Mutex::default(),
            socket: Mutex::default(),
            in_use: Mutex::new(Some(in_use)),
            closed: AtomicBool::new(false),
            shutdown: Shutdown::default(),
            backed_off: AtomicU64::new(0),
        }
    }

    /// Waits before a transaction is run again: a random time up to a bound that doubles from attempt to attempt, so that transactions that met
    /// once do not meet again. Nothing is locked meanwhile.
    fn back_off(&self, attempts: u32) {
        let bound_us = (BACK_OFF_US << (attempts - 1).min(16)).min(BACK_OFF_US_MAX);
        let clock = &self.engine().clock;
        let drawn = self.backed_off.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let wait_us = mix(drawn ^ clock.now().as_nanos() as u64) % (bound_us + 1);
        clock.sleep(Duration::from_micros(wait_us));
    }

    /// Lets other processes see the statistics.
    pub(super) fn publish(&self) -> std::io::Result<()> {
        *self.publisher.lock() = Some(Publisher::start(&self.path, self.counts.clone())?);
        Ok(())
    }

    /// Lets other processes of this user ask for backups. Where the directory takes no socket the database goes on without one.
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

    /// Takes a name for a transaction that is about to be prepared.
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

    /// Runs `prepare` with the name taken. Where the transaction is prepared in place then, the name is its own.
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

    /// Runs `prepare` with the name taken.
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

    fn take_prepared(&self, xid: &Xid) -> Result<Txn> {
        let taken = self.prepared.lock().get_mut(xid).and_then(Option::take);
        taken.ok_or_else(|| Error::Unknown { what: "prepared transaction", name: xid.to_string() })
    }

    fn close(&self) -> Result<()> {
        self.close_after(|| {})
    }

    /// Closes; `last` is called when background work has stopped.
    pub(super) fn close_after(&self, last: impl FnOnce()) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        // First: a backup that others asked for does not hold the closing up.
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
        self.teller.join();
        // Last, so that what closing wrote is counted; whatever became of that.
        let publisher = self.publisher.lock().take();
        if let Some(publisher) = publisher {
            publisher.stop();
        }
        self.in_use.lock().take();
        closed
    }
}

impl Inner {
    /// In a process forked from its own: leaves everything as it is. Threads are not joined (they are not here), files not closed, and what
    /// would do any of that when dropped is kept for ever.
    fn leave(&mut self) {
        let threads = (self.threads.get_mut().take(), self.publisher.get_mut().take(), self.socket.get_mut().take());
        std::mem::forget(threads);
        self.teller.leave();
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
            // Nothing is lost: what is committed is in the log, and the next opening recovers.
        }
    }
}

impl Database {
    pub(super) fn new(inner: Inner) -> Self {
        Self { handle: inner.shutdown.handle(), inner: Arc::new(inner) }
    }

    /// Refuses what is asked for in a process that was forked from the one that opened it, and after a shutdown.
    #[inline]
    pub(super) fn here(&self) -> Result<()> {
        self.inner.engine().instance.here()
    }

    /// Makes a tree, or opens it when it is there.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Poisoned`].
    pub fn create_tree(&self, name: &str) -> Result<Tree> {
        self.transact(|tx| match tx.open_tree(name) {
            Err(Error::NoSuchTree { .. }) => tx.create_tree(name),
            opened => opened,
        })
        .or_else(|error| match error {
            // Another made it meanwhile.
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

    /// Drops a tree. Older snapshots go on reading it.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; [`Error::LockTimeout`] while a transaction has written to it and not ended.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.transact(|tx| tx.drop_tree(name))
    }

    /// Gives a tree another name.
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

    /// The value of `key`, committed and as of now: a transaction of one read, and cheaper than beginning one.
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

    /// The same without copying the value: lends it to `f`, as [`Transaction::get_with`] does.
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

    /// Begins a transaction: repeatable read on a snapshot that is taken at its first read without a lock (or by
    /// [`Transaction::take_snapshot`]), and a conflict with that snapshot fails.
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

    /// Runs `f` in a transaction and commits it. When `f` returns a deadlock or a write conflict, the transaction is rolled back, and after a
    /// short random wait `f` runs again in a new one: it may run more than once.
    ///
    /// # Errors
    /// The first other error of `f` or of the commit; [`Error::Deadlock`] or [`Error::WriteConflict`] when a thousand attempts met one.
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

    /// As [`Database::transact`], with options for the transaction and any error type that can hold an [`Error`]. `f` runs again when it returns
    /// an error after one of the transaction's operations failed with a deadlock or a write conflict, whatever `f` made of that.
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

    /// Second phase: commits, flushed.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Poisoned`] and [`Error::NoSpace`] (it stays prepared), [`Error::OutcomeUnknown`].
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

    /// Second phase: rolls back.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Poisoned`]; [`Error::NoSpace`] and reading errors: it is decided then, and completed in the background.
    /// [`Error::OutcomeUnknown`] when the log failed meanwhile: after the next opening it is prepared, or it is gone.
    pub fn rollback_prepared(&self, xid: &Xid) -> Result<()> {
        let _running = self.running()?;
        self.inner.engine().health().check()?;
        let taken = self.inner.take_prepared(xid)?;
        let log = self.inner.engine().log();
        // Flushed, as all that a coordinator is told: it forgets the transaction, and must not find it prepared again after a crash.
        let rolled_back = taken.rollback().and_then(|()| log.flush_to(log.head())).map_err(|cause| match cause {
            // What of it was logged before that may be durable or not: the transaction is found prepared again, or is gone.
            cause @ Error::Poisoned { .. } => Error::OutcomeUnknown { cause: Arc::new(cause) },
            cause => cause,
        });
        // It is decided either way: a rollback that stopped on the way is completed in the background, or by the next opening.
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

    /// One step of some background work that is due; false when there is none. For tests that opened with `Background::Steps`.
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

    /// One step of this background work; false when nothing is due.
    ///
    /// # Errors
    /// What stopped it.
    pub fn step_task(&self, task: Task) -> Result<bool> {
        self.here()?;
        let stepped = self.inner.work.step(task);
        // Where there are threads, one of them calls.
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

    /// Closes: waits until all pages are written, so that the next opening has nothing to recover.
    ///
    /// # Errors
    /// [`Error::Usage`] while another handle or transaction is alive (see [`Database::shutdown`]); else what stopped it: nothing committed is lost.
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
