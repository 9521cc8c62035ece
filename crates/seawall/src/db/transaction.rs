//! The transaction as its user sees it.

use super::cursor::{Cursor, CursorMut, CursorOptions, Range};
use super::database::{Inner, Tree, Xid};
use super::outside::LogPosition;
use super::ranges::{RangeEstimate, RangeOrder, Ranges};
use crate::btree::LookAhead;
use crate::error::{Error, Result};
use crate::format::TxnId;
use crate::log::Durability;
use crate::txn::{Change, Committing, Mode, SavepointAt, Txn};
use std::cell::Cell;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A transaction. Dropped without [`Transaction::commit`], it is rolled back.
///
/// Reads take `&self`, changes `&mut self`; a transaction can move between threads, and is used by one at a time.
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
    // Before `inner`, and so dropped before it: the last one closes the database, and nothing may be logged after that.
    pub(super) txn: Txn,
    pub(super) inner: Arc<Inner>,
    pub(super) durability: Durability,
    /// Whose savepoints they are: unique in this process, 0 before the first.
    pub(super) number: u64,
}

/// A point that a transaction can be rolled back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    /// [`Transaction::number`].
    of: u64,
    at: SavepointAt,
}

/// A number that no other transaction of this process has. Threads share nothing for it but one count of themselves.
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

/// A commit that was submitted; see [`Transaction::commit_start`]. Dropped, it is waited for.
#[derive(Debug)]
pub struct Commit {
    // Before `inner`, as in [`Transaction`].
    committing: Committing,
    inner: Arc<Inner>,
    /// When it was begun, by the database's clock; `None` when nothing was written, or its end is counted.
    begun: Option<Duration>,
}

impl Transaction {
    pub(super) fn new(inner: Arc<Inner>, txn: Txn, durability: Durability) -> Self {
        Self { inner, txn, durability, number: 0 }
    }

    /// Counts what went wrong.
    pub(super) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.inner.counts.failed(error);
        }
        result
    }

    fn change(&mut self, tree: &Tree, key: &[u8], value: &[u8], change: Change) -> Result<bool> {
        self.txn.admit(&tree.state)?;
        let changed = self.txn.change(&tree.state, key, value, change);
        self.noted(changed)
    }

    pub(super) fn txn(&self) -> &Txn {
        &self.txn
    }

    pub(super) fn txn_mut(&mut self) -> &mut Txn {
        &mut self.txn
    }

    /// Its id; `None` before its first change.
    #[must_use]
    pub fn id(&self) -> Option<TxnId> {
        Some(self.txn.id()).filter(|&id| id != TxnId::NONE)
    }

    /// Takes the snapshot now, where the first read without a lock would: all later reads without a lock see what is committed at this moment, and
    /// with [`OnConflict::Fail`](crate::OnConflict::Fail) a change of what is committed after it conflicts. Does nothing if the snapshot is taken, and at the other isolation
    /// levels, which have none.
    ///
    /// # Errors
    /// None today; the result leaves room for limits.
    pub fn take_snapshot(&self) -> Result<()> {
        self.txn.here()?;
        self.txn.take_snapshot();
        Ok(())
    }

    /// The value of `key`. A key is a reference to bytes: `b"ada"`, `"ada"`, `&vec`, `&7u32.to_be_bytes()`, `&(7u32, "ada").encode()` ([`keys`](crate::keys)).
    ///
    /// # Errors
    /// [`Error::TreeDropped`]; [`Error::Io`] and [`Error::Corrupt`] when a page cannot be read; when serializable also lock errors.
    pub fn get(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Vec<u8>>> {
        self.txn.admit(&tree.state)?;
        self.txn.get(&tree.state, key.as_ref())
    }

    /// Lends the value of `key` to `f` without copying it. The page it lies in is latched while `f` runs: `f` must be short, and what it asks of
    /// a database is refused with [`Error::Usage`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_with<T>(
        &self,
        tree: &Tree,
        key: &(impl AsRef<[u8]> + ?Sized),
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.txn.admit(&tree.state)?;
        self.txn.get_with(&tree.state, key.as_ref(), f)
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool> {
        Ok(self.get_with(tree, key, |_| ())?.is_some())
    }

    /// The values of many keys, in the order of `keys`. Pages that are not in memory are read side by side, each once.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        self.txn.admit(&tree.state)?;
        self.txn.get_many(&tree.state, keys)
    }

    /// The latest value of `key`, locked against readers for share and writers until the transaction ends. A key that is not there is locked too.
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::Deadlock`], [`Error::WriteConflict`], [`Error::TooManyLocks`] at read committed, and as
    /// [`Transaction::get`].
    pub fn get_for_update(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Vec<u8>>> {
        self.txn.admit(&tree.state)?;
        self.noted(self.txn.lock_row(&tree.state, key.as_ref(), Mode::Exclusive))
    }

    /// The latest value of `key`, locked against writers until the transaction ends. A key that is not there is locked too.
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`].
    pub fn get_for_share(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Vec<u8>>> {
        self.txn.admit(&tree.state)?;
        self.noted(self.txn.lock_row(&tree.state, key.as_ref(), Mode::Shared))
    }

    /// The entries whose keys lie in `range`, in order; from both ends.
    pub fn range<'t, K: AsRef<[u8]>>(&'t self, tree: &Tree, range: impl RangeBounds<K>) -> Range<'t> {
        let own = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Range::new(self, tree, own(range.start_bound()), own(range.end_bound()))
    }

    /// All entries in order; from both ends.
    pub fn iter<'t>(&'t self, tree: &Tree) -> Range<'t> {
        self.range::<&[u8]>(tree, ..)
    }

    /// The entries whose keys begin with `prefix`.
    pub fn prefix<'t>(&'t self, tree: &Tree, prefix: &[u8]) -> Range<'t> {
        let (start, end) = super::keys::prefix_range(prefix);
        Range::new(self, tree, start, end)
    }

    /// What a range holds, about: rows (those that are deleted and not yet purged included) and pages. Reads branch pages, and a few leaves when
    /// the range has few or almost none is in memory. Meant to be within a factor of two.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn estimate_range<K: AsRef<[u8]>>(&self, tree: &Tree, range: impl RangeBounds<K>) -> Result<RangeEstimate> {
        let own = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        super::ranges::estimate(self, tree, &(own(range.start_bound()), own(range.end_bound())))
    }

    /// The entries of many ranges, each with the number of its range in `ranges`. What is not in memory is read side by side: the leaves of the
    /// ranges that come next are asked for while one is gone through. A range is given from its first entry to its last before another begins.
    pub fn scan_ranges<'t, K: AsRef<[u8]>, R: RangeBounds<K>>(
        &'t self,
        tree: &Tree,
        ranges: &[R],
        order: RangeOrder,
    ) -> Ranges<'t> {
        let own = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let ranges = ranges.iter().map(|range| (own(range.start_bound()), own(range.end_bound()))).collect();
        Ranges::new(self, tree, ranges, order)
    }

    /// A cursor over a tree.
    pub fn cursor<'t>(&'t self, tree: &Tree, options: CursorOptions) -> Cursor<'t> {
        Cursor::new(self, tree, options)
    }

    /// A cursor over a tree that can delete the entry it stands on. No other call uses the transaction while there is one.
    pub fn cursor_mut<'t>(&'t mut self, tree: &Tree, options: CursorOptions) -> CursorMut<'t> {
        CursorMut::new(&mut self.txn, &self.inner, tree, options)
    }

    /// Inserts.
    ///
    /// # Errors
    /// [`Error::KeyExists`]; the errors of every change: [`Error::ReadOnly`], [`Error::KeyTooLong`], [`Error::ValueTooLong`],
    /// [`Error::LockTimeout`], [`Error::Deadlock`], [`Error::WriteConflict`], [`Error::NoSpace`], [`Error::Poisoned`]. After any of them the
    /// transaction is as it was before, and can go on.
    pub fn insert(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<()> {
        self.change(tree, key.as_ref(), value, Change::Insert).map(|_| ())
    }

    /// Inserts unless another live key begins with the first `prefix_bytes` bytes of `key`: a unique index whose entries end in
    /// something unique. (SQL's rule that NULLs never collide: use [`Transaction::insert`] for a key whose prefix holds one.)
    ///
    /// # Errors
    /// [`Error::KeyExists`], and as [`Transaction::insert`].
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
        self.txn.admit(&tree.state)?;
        let inserted = self.txn.insert_unique_prefix(&tree.state, prefix_bytes, key, value);
        self.noted(inserted)
    }

    /// Inserts or overwrites.
    ///
    /// # Errors
    /// As [`Transaction::insert`], but for the key that exists.
    pub fn put(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<()> {
        self.change(tree, key.as_ref(), value, Change::Put).map(|_| ())
    }

    /// Inserts or overwrites many rows, of two with one key the later one: in key order, with the pages that they need read side by side. Much
    /// faster than one after the other where the tree is larger than the pool.
    ///
    /// # Errors
    /// As [`Transaction::put`]. The rows before the one that failed, in key order, are changed in this transaction: use a savepoint to take
    /// them back.
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let users = db.create_tree("users")?;
    /// db.transact(|tx| tx.put_many(&users, &[("grace", "1906"), ("ada", "1815")]))?;
    /// assert_eq!(db.get(&users, b"ada")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, tree: &Tree, rows: &[(K, V)]) -> Result<()> {
        self.txn.admit(&tree.state)?;
        let put = self.txn.put_many(&tree.state, rows);
        self.noted(put)
    }

    /// Overwrites; false, and nothing done, when the key is not there.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn update(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<bool> {
        self.change(tree, key.as_ref(), value, Change::Update)
    }

    /// Removes; false when the key is not there.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool> {
        self.change(tree, key.as_ref(), &[], Change::Delete)
    }

    /// Removes the entries in `range`; returns how many.
    ///
    /// # Errors
    /// As [`Transaction::put`]. What was removed before the error is removed in this transaction: use a savepoint to take it back.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, tree: &Tree, range: impl RangeBounds<K>) -> Result<u64> {
        let own = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (mut start, end) = (own(range.start_bound()), own(range.end_bound()));
        let mut deleted = 0;
        let mut ahead = LookAhead::default();
        ahead.within(&start, &end);
        ahead.long();
        loop {
            // In pieces: the scan borrows what the deletions change.
            let mut keys = Vec::new();
            let mut piece = Range::keys_only(self, tree, start.clone(), end.clone()).led_by(ahead);
            for entry in piece.by_ref().take(256) {
                keys.push(entry?.0);
            }
            ahead = piece.take_ahead();
            drop(piece);
            let Some(last) = keys.last().cloned() else { return Ok(deleted) };
            for key in &keys {
                deleted += u64::from(self.delete(tree, key)?);
            }
            start = std::ops::Bound::Excluded(last);
        }
    }

    /// Makes a tree.
    ///
    /// # Errors
    /// [`Error::TreeExists`], and as [`Transaction::insert`].
    pub fn create_tree(&mut self, name: &str) -> Result<Tree> {
        self.txn.here()?;
        Ok(Tree::new(self.txn.create_tree(name)?, name))
    }

    /// The tree of that name, as this transaction sees it.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`].
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        self.txn.here()?;
        Ok(Tree::new(self.txn.open_tree(name)?, name))
    }

    /// Drops a tree. Older snapshots go on reading it; its pages are given back when the last of them is gone.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; [`Error::LockTimeout`] while another transaction has written to it and not ended.
    pub fn drop_tree(&mut self, name: &str) -> Result<()> {
        self.txn.here()?;
        self.txn.drop_tree(name)
    }

    /// Gives a tree another name. Handles stay good.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], [`Error::TreeExists`].
    pub fn rename_tree(&mut self, from: &str, to: &str) -> Result<()> {
        self.txn.here()?;
        self.txn.rename_tree(from, to)
    }

    /// The names of all trees, in order.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn trees(&self) -> Result<Vec<String>> {
        self.txn.here()?;
        Ok(self.txn.trees()?.into_iter().map(|(name, _)| name).collect())
    }

    /// A point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        if self.number == 0 {
            self.number = next_number();
        }
        Savepoint { of: self.number, at: self.txn.savepoint() }
    }

    /// Takes back what was changed after the savepoint, which stays. Locks stay too.
    ///
    /// # Errors
    /// [`Error::Usage`] when the savepoint is another transaction's, or gone because the transaction was rolled back to an earlier one since. Reading
    /// errors, [`Error::Poisoned`].
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.txn.here()?;
        if savepoint.of != self.number {
            return Err(Error::Usage("the savepoint is of another transaction".into()));
        }
        self.txn.roll_back_to(savepoint.at)
    }

    /// Forgets a savepoint. It costs nothing to keep one.
    pub fn release(&mut self, _savepoint: Savepoint) {}

    /// A statement begins: [`Transaction::unlock_row`] gives back no lock from before it. Read committed: all its reads see what is committed now.
    pub fn begin_statement(&mut self) {
        self.txn.begin_statement();
    }

    /// The statement ends. Read committed: each read sees what is committed when it is made.
    pub fn end_statement(&mut self) {
        self.txn.end_statement();
    }

    /// Commits at the transaction's durability.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: it is not committed. [`Error::OutcomeUnknown`]: the next opening will tell.
    pub fn commit(mut self) -> Result<()> {
        self.commit_counted(Txn::commit)
    }

    /// Commits in this way, and counts how long it took if anything was written.
    pub(super) fn commit_counted(&mut self, commit: impl FnOnce(&mut Txn, Durability) -> Result<()>) -> Result<()> {
        self.txn.here()?;
        let begun = (self.txn.id() != TxnId::NONE).then(|| self.inner.counts.now());
        commit(&mut self.txn, self.durability)?;
        if let Some(begun) = begun {
            self.inner.counts.committed(self.inner.counts.now().saturating_sub(begun));
        }
        Ok(())
    }

    /// Commits at this durability.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(mut self, durability: Durability) -> Result<()> {
        self.durability = durability;
        self.commit()
    }

    /// Submits the commit and returns at once. Others see the changes when it is done: when [`Commit::poll`] or [`Commit::wait`] said so.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn commit_start(self) -> Result<Commit> {
        let Self { inner, txn, durability, .. } = self;
        txn.here()?;
        let begun = (txn.id() != TxnId::NONE).then(|| inner.counts.now());
        Ok(Commit { committing: txn.commit_start(durability)?, begun, inner })
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// What stopped it; the next opening completes it.
    pub fn rollback(self) -> Result<()> {
        self.txn.here()?;
        self.txn.rollback()
    }

    /// First phase of two: makes the transaction survive any crash under `xid`, flushed, until [`super::Database::commit_prepared`] or
    /// [`super::Database::rollback_prepared`].
    ///
    /// # Errors
    /// [`Error::Usage`] when the name is taken or too long, [`Error::Poisoned`], [`Error::OutcomeUnknown`].
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
    /// First phase of two, for a transaction that is decided in an outside log: makes it survive under `xid` at the level asked for, and keeps it open
    /// for [`Transaction::commit_ordered`]. It changes nothing any more; [`Transaction::commit`] and [`Transaction::rollback`] end it, too. Dropped, it
    /// stays prepared: [`super::Database::prepared`] names it then. Its snapshot is given up. Returns where the preparation ends in the log: below
    /// [`Durability::Flushed`], flush up to there ([`super::Database::flush_log_to`]) before the outside log says that it is committed.
    ///
    /// What the commit needs is kept from here on: room in the log, and one page of the pool. So at most an eighth of the pool's pages, and 4096,
    /// are prepared in place at one time.
    ///
    /// # Errors
    /// [`Error::Usage`] when the name is taken or too long, or it is prepared already; [`Error::TooManyPrepared`], [`Error::NoSpace`]: it is as it was.
    /// [`Error::Poisoned`]; [`Error::OutcomeUnknown`]: the next opening finds it prepared, or not at all.
    pub fn prepare_in_place(&mut self, xid: &Xid, durability: Durability) -> Result<LogPosition> {
        self.txn.here()?;
        let prepare = |txn: &mut Txn, names| txn.prepare_in_place(&xid.0, durability, names);
        let prepared = self.inner.prepare_in_place(xid, &mut self.txn, prepare).map(LogPosition::from);
        self.noted(prepared)
    }

    /// Second phase: commits what was prepared in place, and lets others see it at once. To be called in the order of the outside log, once that has the
    /// transaction durably; by any thread. Puts the commit into the log's buffer, leaves the active set and releases the locks: no flush and no other
    /// I/O, no wait for room. No snapshot sees what is committed later in this way without what is committed earlier.
    ///
    /// Returns where the commit ends in the log: it is durable when [`super::Database::flush_log_to`] that position has returned, or
    /// [`super::Database::on_durable`] has called. A crash before that leaves the transaction prepared, and the outside log says that it is to be committed
    /// (docs/transactions.md, "Beside an outside log").
    ///
    /// Afterwards this is a new transaction with the same options.
    ///
    /// # Errors
    /// [`Error::Usage`] when it is not prepared in place; [`Error::Poisoned`]: it stays prepared, and nobody sees it.
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
        let end = self.txn.commit_ordered()?;
        self.number = 0;
        self.inner.counts.committed(Duration::ZERO);
        Ok(end.into())
    }
}

impl Commit {
    /// Whether it is done: `None` while nobody knows.
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

    /// Waits until it is done.
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
        // A statement that passes over rows: every other row stays.
        let before = tx.savepoint();
        for n in 0..2000u32 {
            let row = tx.savepoint();
            tx.put(&tree, &n.to_be_bytes(), b"v").unwrap();
            if n % 2 == 0 {
                tx.rollback_to(&row).unwrap();
            }
        }
        assert_eq!(tx.txn.remembered_rollbacks(), 0, "rows");
        // Statements, each with savepoints of its own, of which every other fails.
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

    /// A savepoint is there as long as everything that was there when it was made.
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
                        // One of several steps that fails, and takes itself back.
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
