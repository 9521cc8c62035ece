//! The public transaction API.

use super::durable::LogPosition;
use super::inner::Inner;
use super::prepared::Xid;
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::format::TxnId;
use crate::log::Durability;
use crate::txn::{Change, Committing, Mode, SavepointAt, Txn};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A transaction. Dropping it without [`Transaction::commit`] rolls it back.
///
/// Reads take `&self`, changes take `&mut self`. A transaction can move between threads, but only one thread
/// can use it at a time.
///
/// ```
/// # let db = seawall::Database::in_memory()?;
/// let users = db.create_tree("users")?;
/// let mut tx = db.begin()?;
/// tx.put(&users, b"ada", b"1815")?;
/// assert_eq!(tx.get(&users, b"ada")?.as_deref(), Some(&b"1815"[..]));
/// drop(tx); // rolled back
/// assert_eq!(db.begin()?.get(&users, b"ada")?, None);
/// # Ok::<(), seawall::Error>(())
/// ```
#[derive(Debug)]
pub struct Transaction {
    // Declared before `inner`, so dropped before it: the last `inner` closes the database, and nothing may be
    // logged after that.
    pub(super) txn: Txn,
    pub(super) inner: Arc<Inner>,
    /// `None`: the database's option, whatever it is at the commit.
    pub(super) durability: Option<Durability>,
    /// Identifies this transaction's savepoints: unique in this process, 0 before the first savepoint.
    pub(super) number: u64,
}

/// A point to which a transaction can be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    /// [`Transaction::number`].
    of: u64,
    at: SavepointAt,
}

/// Returns a number that no other transaction of this process has. The only state that threads share for it is
/// a counter of threads.
fn next_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NEXT: Cell<u64> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) << 40);
    }
    NEXT.with(|next| {
        next.set(next.get() + 1);
        next.get()
    })
}

/// A submitted commit; see [`Transaction::commit_start`]. Dropping it waits for the commit, and loses its result.
#[derive(Debug)]
#[must_use = "a failure of the commit is only reported by `wait` and `poll`"]
pub struct Commit {
    // Before `inner`, as in [`Transaction`].
    committing: Committing,
    inner: Arc<Inner>,
    /// When the commit began, by the database's clock; `None` if the transaction wrote nothing, or the commit
    /// is already counted.
    begun: Option<Duration>,
}

impl Transaction {
    pub(super) fn new(inner: Arc<Inner>, txn: Txn, durability: Option<Durability>) -> Self {
        Self { inner, txn, durability, number: 0 }
    }

    /// Counts errors.
    pub(super) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.inner.counts.failed(error);
        }
        result
    }

    fn change(&mut self, tree: &Tree, key: &[u8], value: &[u8], change: Change) -> Result<bool> {
        self.txn.admit_change(&tree.state)?;
        let changed = self.txn.change(&tree.state, key, value, change);
        self.noted(changed)
    }

    pub(super) fn txn(&self) -> &Txn {
        &self.txn
    }

    pub(super) fn txn_mut(&mut self) -> &mut Txn {
        &mut self.txn
    }

    /// Returns the transaction's id; `None` before its first change.
    #[must_use]
    pub fn id(&self) -> Option<TxnId> {
        Some(self.txn.id()).filter(|&id| id != TxnId::NONE)
    }

    /// Takes the snapshot now, instead of at the first read without a lock. All later reads without a lock see
    /// the data committed at this moment. With [`OnConflict::Fail`](crate::OnConflict::Fail), a change to a row
    /// whose latest version was committed later is a conflict; at serializable every read is one, too. Does
    /// nothing if the snapshot exists, at read committed, and at serializable with
    /// [`OnConflict::Latest`](crate::OnConflict::Latest).
    ///
    /// # Errors
    /// [`Error::Usage`] in a forked process; [`Error::ShutDown`].
    pub fn take_snapshot(&self) -> Result<()> {
        self.txn.here()?;
        self.txn.take_snapshot();
        Ok(())
    }

    /// Returns the value of `key`. A key is a reference to bytes: `b"ada"`, `"ada"`, `&vec`,
    /// `&7u32.to_be_bytes()`, `&(7u32, "ada").encode()` ([`keys`](crate::keys)).
    ///
    /// # Errors
    /// [`Error::TreeDropped`]; [`Error::TreeTooNew`] if the snapshot is older than the tree; [`Error::Io`] and
    /// [`Error::Corrupt`] if a page cannot be read; [`Error::InvalidOption`] (`pool_size`) if all of the pool stays in
    /// use for 10 s; lock errors at the serializable level; [`Error::Usage`] for a tree of another database;
    /// [`Error::ShutDown`].
    pub fn get(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Vec<u8>>> {
        self.txn.admit(&tree.state)?;
        self.txn.get(&tree.state, key.as_ref())
    }

    /// Calls `f` with the value of `key`, without copying it. The page is latched while `f` runs: `f` must be
    /// short, and must not call the database: a call that reads, changes or shuts down fails with [`Error::Usage`].
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn get_with<T>(
        &self,
        tree: &Tree,
        key: &(impl AsRef<[u8]> + ?Sized),
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.txn.admit(&tree.state)?;
        self.txn.get_with(&tree.state, key.as_ref(), f)
    }

    /// Returns whether `key` exists.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn contains(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool> {
        Ok(self.get_with(tree, key, |_| ())?.is_some())
    }

    /// Returns the values of many keys, in the order of `keys`. Pages that are not in memory are read in
    /// parallel, each once.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        self.txn.admit(&tree.state)?;
        self.txn.get_many(&tree.state, keys)
    }

    /// Returns the latest value of `key`, and locks the key exclusively until the transaction ends. Changes and
    /// locking reads by other transactions wait. A missing key is locked too.
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::Deadlock`], [`Error::WriteConflict`], [`Error::TooManyLocks`] at read
    /// committed, and those of [`Transaction::get`].
    pub fn get_for_update(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Vec<u8>>> {
        self.txn.admit_change(&tree.state)?;
        self.noted(self.txn.lock_row(&tree.state, key.as_ref(), Mode::Exclusive))
    }

    /// Returns the latest value of `key`, and locks the key for share until the transaction ends. Changes by
    /// other transactions wait. A missing key is locked too.
    ///
    /// # Errors
    /// Those of [`Transaction::get_for_update`].
    pub fn get_for_share(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Vec<u8>>> {
        self.txn.admit_change(&tree.state)?;
        self.noted(self.txn.lock_row(&tree.state, key.as_ref(), Mode::Shared))
    }

    /// Inserts an entry.
    ///
    /// # Errors
    /// [`Error::KeyExists`]; the errors of every change: [`Error::ReadOnly`], [`Error::KeyTooLong`],
    /// [`Error::ValueTooLong`], [`Error::TreeDropped`], [`Error::TreeTooNew`], [`Error::Usage`],
    /// [`Error::LockTimeout`], [`Error::Interrupted`], [`Error::TooManyLocks`], [`Error::TooManyTransactions`],
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Corrupt`], [`Error::Poisoned`]: the change did not happen, and the
    /// transaction can continue. After [`Error::Deadlock`] and [`Error::WriteConflict`], too, but roll it back: the
    /// others wait for it, or it works with rows that have changed since. [`Error::TransactionEnded`] if the
    /// transaction is prepared in place, or a rollback of it has failed in the middle: roll it back.
    pub fn insert(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<()> {
        self.change(tree, key.as_ref(), value, Change::Insert).map(|_| ())
    }

    /// Inserts an entry, unless a live key begins with the same first `prefix_bytes` bytes as `key`. This is
    /// for unique indexes whose entries end with a unique suffix. (In SQL, NULLs never collide: use
    /// [`Transaction::insert`] for a key whose prefix contains one.) At serializable, no other key with that prefix
    /// appears until the transaction ends, as long as all of them are inserted with this function.
    ///
    /// # Errors
    /// [`Error::KeyExists`], and those of [`Transaction::insert`].
    pub fn insert_unique_prefix(
        &mut self,
        tree: &Tree,
        prefix_bytes: usize,
        key: &(impl AsRef<[u8]> + ?Sized),
        value: &[u8],
    ) -> Result<()> {
        let key = key.as_ref();
        if prefix_bytes > key.len() {
            return Err(Error::Usage(format!("a prefix of {prefix_bytes} bytes of a key of {} bytes", key.len())));
        }
        self.txn.admit_change(&tree.state)?;
        let inserted = self.txn.insert_unique_prefix(&tree.state, prefix_bytes, key, value);
        self.noted(inserted)
    }

    /// Inserts an entry, or overwrites its value.
    ///
    /// # Errors
    /// Those of [`Transaction::insert`], except [`Error::KeyExists`].
    pub fn put(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<()> {
        self.change(tree, key.as_ref(), value, Change::Put).map(|_| ())
    }

    /// Inserts or overwrites many rows, in key order. Of two rows with the same key, the later one wins. Reads
    /// the needed pages in parallel: much faster than single puts if the tree is larger than the pool.
    ///
    /// # Errors
    /// Those of [`Transaction::put`]. The rows before the one that failed, in key order, are changed in this
    /// transaction: use a savepoint to undo them.
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let users = db.create_tree("users")?;
    /// db.transact(|tx| tx.put_many(&users, &[("grace", "1906"), ("ada", "1815")]))?;
    /// assert_eq!(db.get(&users, b"ada")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, tree: &Tree, rows: &[(K, V)]) -> Result<()> {
        self.txn.admit_change(&tree.state)?;
        let put = self.txn.put_many(&tree.state, rows);
        self.noted(put)
    }

    /// Overwrites the value of an existing key. Returns false, without effect, if the key does not exist.
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn update(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<bool> {
        self.change(tree, key.as_ref(), value, Change::Update { indexed: true })
    }

    /// Like [`Transaction::update`], for a change that alters none of the row's entries in the indexes that are
    /// being built over the tree ([`crate::Database::index_builder`]): the build then does not read the row
    /// again. If an entry does change, the index will be wrong.
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn update_unindexed(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<bool> {
        self.change(tree, key.as_ref(), value, Change::Update { indexed: false })
    }

    /// Deletes an entry; returns false if the key does not exist.
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn delete(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool> {
        self.change(tree, key.as_ref(), &[], Change::Delete)
    }

    /// Creates a tree.
    ///
    /// # Errors
    /// [`Error::TreeExists`], [`Error::NameTooLong`], and those of [`Transaction::insert`].
    pub fn create_tree(&mut self, name: &str) -> Result<Tree> {
        self.txn.here()?;
        Ok(Tree::new(self.txn.create_tree(name)?, name))
    }

    /// Opens the tree of that name, as this transaction sees it.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; [`Error::Io`] and [`Error::Corrupt`] if a page cannot be read; lock errors at the
    /// serializable level.
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        self.txn.here()?;
        Ok(Tree::new(self.txn.open_tree(name)?, name))
    }

    /// Drops a tree. Older snapshots can still read it; its pages are freed when the last of them is gone.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; [`Error::LockTimeout`] if another transaction that has written to it does not
    /// end in time.
    pub fn drop_tree(&mut self, name: &str) -> Result<()> {
        self.txn.here()?;
        self.txn.drop_tree(name)
    }

    /// Renames a tree. Its handles stay valid.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], [`Error::TreeExists`], [`Error::NameTooLong`], and those of [`Transaction::insert`].
    pub fn rename_tree(&mut self, from: &str, to: &str) -> Result<()> {
        self.txn.here()?;
        self.txn.rename_tree(from, to)
    }

    /// Returns the names of all trees, in order.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn trees(&self) -> Result<Vec<String>> {
        self.txn.here()?;
        Ok(self.txn.trees()?.into_iter().map(|(name, _)| name).collect())
    }

    /// Sets a savepoint, for [`Transaction::rollback_to`].
    pub fn savepoint(&mut self) -> Savepoint {
        if self.number == 0 {
            self.number = next_number();
        }
        Savepoint { of: self.number, at: self.txn.savepoint() }
    }

    /// Undoes the changes made after the savepoint. The savepoint stays valid. All locks stay, except that at read
    /// committed the lock on a row may be released with the undone change.
    ///
    /// # Errors
    /// [`Error::Usage`] if the savepoint belongs to another transaction, or is invalid because the transaction
    /// was rolled back to an earlier one; read errors; [`Error::Poisoned`]. After an error that stops the rollback, the
    /// transaction can only be rolled back, to that savepoint, an earlier one, or as a whole.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.txn.here()?;
        if savepoint.of != self.number {
            return Err(Error::Usage("the savepoint belongs to another transaction".into()));
        }
        self.txn.roll_back_to(savepoint.at)
    }

    /// Begins a statement: [`Transaction::unlock_row`] will release no lock taken before it. At read committed,
    /// all reads of the statement see the data committed now.
    pub fn begin_statement(&mut self) {
        self.txn.begin_statement();
    }

    /// Ends the statement. At read committed, each later read sees the data committed at the time of that read.
    pub fn end_statement(&mut self) {
        self.txn.end_statement();
    }

    /// Commits with the transaction's durability.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::NoSpace`]: the transaction is not committed. [`Error::OutcomeUnknown`]:
    /// the next opening shows whether it is committed.
    pub fn commit(mut self) -> Result<()> {
        self.commit_counted(Txn::commit)
    }

    /// Commits with `commit`, and counts its duration if the transaction wrote anything.
    pub(super) fn commit_counted(&mut self, commit: impl FnOnce(&mut Txn, Durability) -> Result<()>) -> Result<()> {
        self.txn.here()?;
        let begun = (self.txn.id() != TxnId::NONE).then(|| self.inner.counts.now());
        let durability = self.durability.unwrap_or_else(|| self.inner.work.durability());
        commit(&mut self.txn, durability)?;
        if let Some(begun) = begun {
            self.inner.counts.committed(self.inner.counts.now().saturating_sub(begun));
        }
        Ok(())
    }

    /// Commits with this durability.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`].
    pub fn commit_with(mut self, durability: Durability) -> Result<()> {
        self.durability = Some(durability);
        self.commit()
    }

    /// Submits the commit without waiting for it. Snapshots see the changes once [`Commit::poll`] or [`Commit::wait`]
    /// has reported that the commit is done, or a transaction that has locked its rows meanwhile has ended.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::NoSpace`]: the transaction is not committed.
    pub fn commit_start(self) -> Result<Commit> {
        let Self { inner, txn, durability, .. } = self;
        txn.here()?;
        let durability = durability.unwrap_or_else(|| inner.work.durability());
        let begun = (txn.id() != TxnId::NONE).then(|| inner.counts.now());
        Ok(Commit { committing: txn.commit_start(durability)?, begun, inner })
    }

    /// Rolls the transaction back: undoes all its changes.
    ///
    /// # Errors
    /// The error that stopped the rollback; background work, or the next opening, completes it. A transaction that is
    /// prepared in place stays prepared if its rollback cannot begin: end it by name. [`Error::OutcomeUnknown`] (the
    /// log failed during its rollback): the next opening finds it prepared again, or gone.
    pub fn rollback(self) -> Result<()> {
        self.txn.here()?;
        self.txn.rollback()
    }

    /// First phase of two-phase commit: records the transaction in the log under the name `xid`, flushed. It
    /// survives any crash until [`super::Database::commit_prepared`] or [`super::Database::rollback_prepared`]
    /// ends it. Its shared locks and its locks on ranges of keys end now; the rows that it changed or locked
    /// exclusively stay locked.
    ///
    /// # Errors
    /// [`Error::Usage`] if the name is taken or too long, [`Error::NoSpace`], [`Error::ReadOnly`],
    /// [`Error::TooManyTransactions`], [`Error::TransactionEnded`] and [`Error::Poisoned`]: the transaction is rolled
    /// back; [`Error::OutcomeUnknown`].
    pub fn prepare(self, xid: &Xid) -> Result<()> {
        let Self { inner, mut txn, .. } = self;
        txn.here()?;
        inner.prepare(xid, move || {
            txn.prepare(&xid.0)?;
            Ok(txn)
        })
    }
}

impl Transaction {
    /// First phase of two-phase commit, for a transaction whose outcome an outside log decides. The transaction
    /// survives a crash under the name `xid`, at the given level of durability, and stays open for
    /// [`Transaction::commit_ordered`]; [`Transaction::commit`] and [`Transaction::rollback`] also end it. It
    /// accepts no more changes and locks, and drops its snapshot. If the object is dropped, the transaction stays
    /// prepared, and [`super::Database::prepared`] lists it.
    ///
    /// Returns the log position where the preparation ends. Below [`Durability::Flushed`], flush the log up to
    /// that position ([`super::Database::flush_log_to`]) before the outside log records the commit.
    ///
    /// From now on the transaction holds what its commit needs: log space, and one page of the pool. So the
    /// number of transactions that are prepared in place at one time is at most an eighth of the pool's pages,
    /// and at most 4096.
    ///
    /// # Errors
    /// [`Error::Usage`] if the name is taken or too long, or the transaction is already prepared;
    /// [`Error::TooManyPrepared`], [`Error::NoSpace`]: the transaction is unchanged. [`Error::Poisoned`];
    /// [`Error::OutcomeUnknown`]: the next opening finds it prepared, or not at all.
    pub fn prepare_in_place(&mut self, xid: &Xid, durability: Durability) -> Result<LogPosition> {
        self.txn.here()?;
        let prepare = |txn: &mut Txn, names| txn.prepare_in_place(&xid.0, durability, names);
        let prepared = self.inner.prepare_in_place(xid, &mut self.txn, prepare).map(LogPosition::from);
        self.noted(prepared)
    }

    /// Second phase: commits a transaction that was prepared in place, and makes it visible to others at once.
    /// Call it in the order of the outside log, after the transaction is durable there; any thread may call it.
    /// The call puts the commit into the log buffer, removes the transaction from the active set and releases
    /// its locks. It does no I/O and does not wait for log space. A snapshot that sees one such commit also
    /// sees all earlier ones.
    ///
    /// Returns the log position where the commit ends. The commit is durable when
    /// [`super::Database::flush_log_to`] for that position has returned, or [`super::Database::on_durable`] has
    /// called its callback. A crash before that leaves the transaction prepared; the outside log then decides
    /// that it must be committed (docs/transactions.md, "Beside an outside log").
    ///
    /// Afterwards this object is a new transaction with the same options.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is not prepared in place. [`Error::Poisoned`]: it stays prepared and invisible.
    ///
    /// ```
    /// # use seawall::{Durability, Xid};
    /// # let db = seawall::Database::in_memory()?;
    /// # let rows = db.create_tree("rows")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&rows, b"k", b"v")?;
    /// tx.prepare_in_place(&Xid(b"7".to_vec()), Durability::Flushed)?;
    /// // ... the outside log is written and flushed: it says that 7 is committed ...
    /// let position = tx.commit_ordered()?;
    /// assert!(db.get(&rows, b"k")?.is_some());
    /// db.flush_log_to(position)?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn commit_ordered(&mut self) -> Result<LogPosition> {
        self.txn.here()?;
        let life = self.txn.life();
        let ordered = self.txn.commit_ordered();
        if self.txn.life() != life {
            self.number = 0;
        }
        let end = ordered?;
        self.inner.counts.committed(Duration::ZERO);
        Ok(end.into())
    }
}

impl Commit {
    /// Returns the result of the commit; `None` while the commit is not done. Writes, and at `Flushed` flushes, a
    /// group of the log if no other thread does. Until the commit is done, one at `Deferred` keeps its locks.
    pub fn poll(&mut self) -> Option<Result<()>> {
        if let Err(error) = self.inner.engine().instance.here() {
            return Some(Err(error));
        }
        let done = self.committing.poll();
        if let (Some(Ok(())), Some(begun)) = (&done, self.begun) {
            self.inner.counts.committed(self.inner.counts.now().saturating_sub(begun));
            self.begun = None;
        }
        done
    }

    /// Waits until the commit is done.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`].
    pub fn wait(self) -> Result<()> {
        let Self { committing, inner, begun } = self;
        inner.engine().instance.here()?;
        committing.wait()?;
        if let Some(begun) = begun {
            inner.counts.committed(inner.counts.now().saturating_sub(begun));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Database, Error};
    use rand::{Rng as _, SeedableRng as _};

    #[test]
    fn rollbacks_that_take_no_savepoint_with_them_are_not_remembered() {
        let db = Database::in_memory().unwrap();
        let tree = db.create_tree("t").unwrap();
        let mut tx = db.begin().unwrap();
        for n in 0..16_000u32 {
            let savepoint = tx.savepoint();
            tx.put(&tree, b"k", &n.to_le_bytes()).unwrap();
            tx.rollback_to(&savepoint).unwrap();
        }
        assert_eq!(tx.txn.remembered_rollbacks(), 0, "pairs");
        // A statement that skips rows: every other row stays.
        let before = tx.savepoint();
        for n in 0..2000u32 {
            let row = tx.savepoint();
            tx.put(&tree, &n.to_be_bytes(), b"v").unwrap();
            if n % 2 == 0 {
                tx.rollback_to(&row).unwrap();
            }
        }
        assert_eq!(tx.txn.remembered_rollbacks(), 0, "rows");
        // Statements with their own savepoints; every other statement fails.
        for n in 0..2000u32 {
            let statement = tx.savepoint();
            tx.put(&tree, &n.to_be_bytes(), b"w").unwrap();
            let within = tx.savepoint();
            tx.put(&tree, b"within", &n.to_le_bytes()).unwrap();
            if n % 2 == 0 {
                tx.rollback_to(&statement).unwrap();
                assert!(matches!(tx.rollback_to(&within), Err(Error::Usage(_))));
            }
        }
        assert!(tx.txn.remembered_rollbacks() <= 1000, "one each for those that took a savepoint with them");
        tx.rollback_to(&before).unwrap();
        assert!(tx.txn.remembered_rollbacks() <= 1, "and none for what is gone with an earlier one");
        assert_eq!(tx.iter(&tree).count(), 0);
    }

    /// A savepoint stays valid as long as all changes that existed when it was made.
    #[test]
    fn a_savepoint_is_gone_exactly_when_the_transaction_went_back_beyond_it() {
        for seed in 0..60 {
            let mut dice = rand_pcg::Pcg64::seed_from_u64(seed);
            let db = Database::in_memory().unwrap();
            let tree = db.create_tree("t").unwrap();
            let mut tx = db.begin().unwrap();
            let (mut now, mut given): (Vec<u32>, Vec<_>) = (Vec::new(), Vec::new());
            for n in 0..300u32 {
                match dice.random_range(0..10) {
                    0..=3 => {
                        tx.put(&tree, &n.to_be_bytes(), b"").unwrap();
                        now.push(n);
                    }
                    4..=6 => given.push((tx.savepoint(), now.clone())),
                    7 => {
                        // A change of several steps that fails and undoes itself.
                        assert!(matches!(tx.create_tree("t"), Err(Error::TreeExists { .. })));
                    }
                    _ if given.is_empty() => {}
                    _ => {
                        let late = given.len() - 1 - dice.random_range(0..given.len().min(4));
                        let at = if dice.random_range(0..4) == 0 { dice.random_range(0..given.len()) } else { late };
                        let (savepoint, then) = &given[at];
                        let is_there = now.starts_with(then);
                        let back = tx.rollback_to(savepoint);
                        assert_eq!(back.is_ok(), is_there, "seed {seed}, step {n}: {back:?}");
                        if is_there {
                            now.truncate(then.len());
                        }
                    }
                }
            }
            let keys: Vec<u32> =
                tx.iter(&tree).map(|entry| u32::from_be_bytes(entry.unwrap().0.try_into().unwrap())).collect();
            assert_eq!(keys, now, "seed {seed}");
        }
    }
}
