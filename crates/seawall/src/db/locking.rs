//! The public lock API: row locks, early release, interrupts, and reports of lock waits.

use super::cursor::LockMode;
use super::database::Database;
use super::transaction::Transaction;
use super::tree::Tree;
use crate::error::Result;
use crate::txn::{DeadlockInfo, Interrupt, LockOrCommitted, LockWait, LockedRow, TransactionInfo, WaitInfo};
use std::sync::Arc;

/// Interrupts a transaction from another thread: [`Transaction::interrupt_handle`].
///
/// An interrupt is pending from [`InterruptHandle::interrupt`] until it is cleared. While it is pending, each
/// of these calls of the transaction ends with [`Error::Interrupted`](crate::Error::Interrupted), even if the
/// call is already running:
///
/// - a wait for a lock;
/// - a change's wait for log space, after the current step of making space;
/// - a step of a scan, iterator or cursor, even while it skips many deleted rows; `multi_get` and `put_many`,
///   at the next leaf.
///
/// Other calls succeed. Commits, rollbacks, rollbacks to a savepoint, and reads of the disk are never
/// interrupted.
///
/// An interrupted call fails like one with [`Error::LockTimeout`](crate::Error::LockTimeout): its own change is
/// undone; the transaction's earlier changes and its locks stay. The transaction can be rolled back or
/// committed as it is; before further calls that wait, clear the interrupt. A cursor keeps its position, or
/// continues from the point where it was interrupted; an iterator has ended.
#[derive(Debug, Clone)]
pub struct InterruptHandle(Arc<Interrupt>);

impl InterruptHandle {
    /// Interrupts the transaction. Does nothing if it has ended.
    pub fn interrupt(&self) {
        self.0.raise();
    }

    /// Returns whether an interrupt is pending.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.0.is_pending()
    }

    /// Clears a pending interrupt, so that the transaction can go on. A later interrupt takes effect again.
    pub fn clear(&self) {
        self.0.clear();
    }
}

impl Transaction {
    /// Returns a handle with which other threads can interrupt this transaction while it waits or scans. All
    /// handles of a transaction object share one state, which a restart keeps: a pending interrupt stays
    /// pending until it is cleared.
    ///
    /// ```
    /// use seawall::Error;
    /// # let db = seawall::Database::in_memory()?;
    /// let rows = db.create_tree("rows")?;
    /// let mut first = db.begin()?;
    /// first.put(&rows, b"k", b"1")?;
    ///
    /// let mut second = db.begin()?;
    /// let handle = second.interrupt_handle();
    /// let other_thread = std::thread::spawn(move || handle.interrupt());
    /// // Waits for `first`, until it is interrupted.
    /// assert!(matches!(second.put(&rows, b"k", b"2"), Err(Error::Interrupted { .. })));
    /// # other_thread.join().unwrap();
    ///
    /// first.commit()?;
    /// second.interrupt_handle().clear();
    /// second.put(&rows, b"k", b"2")?;
    /// second.commit()?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    #[must_use]
    pub fn interrupt_handle(&self) -> InterruptHandle {
        InterruptHandle(self.txn().interrupt().clone())
    }

    /// Replaces the tag in the transaction's [`TxOptions`](crate::TxOptions). In-place commits and rollbacks
    /// keep the tag.
    pub fn set_tag(&mut self, tag: u64) {
        self.txn.set_tag(tag);
    }

    /// Locks `key`, whether it exists or not, until the transaction ends, and returns its latest value. Like
    /// [`Transaction::get_for_update`] and [`Transaction::get_for_share`], with a wait mode for this call. The
    /// result tells whether the lock is new.
    ///
    /// # Errors
    /// Those of [`Transaction::get_for_update`].
    ///
    /// ```
    /// use seawall::{Isolation, LockMode, LockWait, TxOptions};
    /// use std::time::Duration;
    /// # let db = seawall::Database::in_memory()?;
    /// # let stock = db.create_tree("stock")?;
    /// # db.transact(|tx| tx.put(&stock, b"apples", b"0"))?;
    /// let tx = db.begin_with(TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() })?;
    /// let wait = LockWait::For(Duration::from_millis(100));
    /// let row = tx.lock_row(&stock, b"apples", LockMode::Exclusive, Some(wait))?;
    /// if row.value.as_deref() == Some(b"0") && row.newly_locked {
    ///     // Not needed: release the lock for others.
    ///     assert!(tx.unlock_row(&stock, b"apples")?);
    /// }
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn lock_row(
        &self,
        tree: &Tree,
        key: &(impl AsRef<[u8]> + ?Sized),
        mode: LockMode,
        wait: Option<LockWait>,
    ) -> Result<LockedRow> {
        self.txn().admit_change(&tree.state)?;
        self.noted(self.txn().lock_row_with(&tree.state, key.as_ref(), mode, wait))
    }

    /// Releases the lock on a row that the statement does not need; returns whether it did. It releases only a
    /// lock that a locking read ([`Transaction::lock_row`], [`Transaction::get_for_update`], a cursor that
    /// locks single rows) has newly taken in this statement (since [`Transaction::begin_statement`],
    /// [`Transaction::end_statement`] or the transaction's beginning), and that no other call has requested or
    /// needed since. These rows stay locked: rows that the transaction wrote, rows that were locked before, and
    /// every row at [`Isolation::Serializable`](crate::Isolation::Serializable). After the release other
    /// transactions may change the row: discard the value that was read.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) for a tree of another database.
    pub fn unlock_row(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool> {
        self.txn().admit_change(&tree.state)?;
        Ok(self.txn().unlock_row(&tree.state, key.as_ref()))
    }

    /// Like [`Transaction::unlock_row`], but also at
    /// [`Isolation::Serializable`](crate::Isolation::Serializable). For a row that stands for something else,
    /// such as a counter outside the transaction, and whose value the transaction does not use.
    ///
    /// # Errors
    /// Those of [`Transaction::unlock_row`].
    pub fn release_row(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool> {
        self.txn().admit_change(&tree.state)?;
        Ok(self.txn().release_row(&tree.state, key.as_ref()))
    }

    /// Locks a whole tree exclusively until the transaction ends. Waits until no other transaction, prepared
    /// ones included, has locks or unfinished changes in the tree, and excludes both from then on. Snapshot
    /// reads continue.
    ///
    /// # Errors
    /// Lock errors; [`Error::TreeDropped`](crate::Error::TreeDropped); [`Error::Usage`](crate::Error::Usage) for a tree
    /// of another database.
    pub fn lock_tree(&mut self, tree: &Tree) -> Result<()> {
        let txn = self.txn();
        txn.admit_change(&tree.state)?;
        txn.lock_tree(&tree.state)
    }

    /// Locks a free row, or returns the committed version of a row that another transaction holds: a
    /// semi-consistent read. It is for a statement at read committed that changes the rows that meet a
    /// condition. If no other transaction holds the row, the call locks it exclusively; otherwise it returns
    /// the committed version at once, without a lock. If that version does not meet the condition, the
    /// statement need not wait for the row. If it does, lock the row with [`Transaction::lock_row`], which
    /// waits, and check again. At the other isolation levels the call waits like
    /// [`Transaction::get_for_update`], because there a skipped row must be locked, or seen in the snapshot.
    ///
    /// # Errors
    /// Those of [`Transaction::get_for_update`].
    ///
    /// ```
    /// use seawall::{Isolation, LockOrCommitted, TxOptions};
    /// # let db = seawall::Database::in_memory()?;
    /// # let jobs = db.create_tree("jobs")?;
    /// # db.transact(|tx| tx.put(&jobs, b"1", b"done"))?;
    /// let mut other = db.begin()?;
    /// other.put(&jobs, b"1", b"again")?;
    /// let tx = db.begin_with(TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() })?;
    /// // Locked by `other`; the committed value shows that there is nothing to do.
    /// assert_eq!(tx.lock_or_committed(&jobs, b"1")?, LockOrCommitted::Committed(Some(b"done".to_vec())));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn lock_or_committed(&self, tree: &Tree, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<LockOrCommitted> {
        self.txn().admit_change(&tree.state)?;
        self.noted(self.txn().lock_or_committed(&tree.state, key.as_ref()))
    }
}

impl Database {
    /// Returns the transactions that write, or hold or request locks, in the order in which they began. A
    /// transaction that only reads a snapshot is not listed: it blocks no other. Empty in a forked process, and after a
    /// shutdown.
    #[must_use]
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        if self.here().is_err() {
            return Vec::new();
        }
        let mut all = self.inner.engine().locks.transactions();
        let prepared = self.inner.prepared_ids();
        all.iter_mut().for_each(|one| one.is_prepared = prepared.contains(&one.who.id));
        all
    }

    /// Returns the transactions that wait for a lock now, each with the transactions that block it. Empty in a
    /// forked process, and after a shutdown.
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// for wait in db.lock_waits() {
    ///     println!("{wait}");
    /// }
    /// # Ok::<(), seawall::Error>(())
    /// ```
    #[must_use]
    pub fn lock_waits(&self) -> Vec<WaitInfo> {
        if self.here().is_err() {
            return Vec::new();
        }
        self.inner.engine().locks.lock_waits()
    }

    /// Returns the last deadlock since the database was opened, with all its transactions and their lock
    /// requests; `None` in a forked process, and after a shutdown.
    #[must_use]
    pub fn last_deadlock(&self) -> Option<DeadlockInfo> {
        self.here().ok()?;
        self.inner.engine().locks.last_deadlock()
    }

    /// Registers a callback for lock waits; it replaces an earlier one. Whenever a transaction begins to wait
    /// for a lock, `told` is called on the thread that is about to wait, with the transactions that block it. A
    /// program that must end transactions in its own order interrupts or rolls back the one that blocks. It is not
    /// told of a transaction that comes to block a wait later, by raising a lock that it holds.
    ///
    /// No latch or mutex is held while `told` runs. It must be short: the thread notices a granted lock only
    /// after `told` returns. It may use the database and interrupt any transaction, including the waiting one,
    /// but it must not wait for the waiting one. A handle of the database in `told` keeps the database open until
    /// [`Database::forget_on_wait`].
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// db.on_wait(|wait| eprintln!("{wait}"))?;
    /// # db.forget_on_wait()?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) in a forked process.
    pub fn on_wait(&self, told: impl Fn(&WaitInfo) + Send + Sync + 'static) -> Result<()> {
        self.here()?;
        self.inner.engine().locks.set_on_wait(Some(Arc::new(told)));
        Ok(())
    }

    /// Removes the callback of [`Database::on_wait`]. Running callbacks may continue for a moment.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) in a forked process.
    pub fn forget_on_wait(&self) -> Result<()> {
        self.here()?;
        self.inner.engine().locks.set_on_wait(None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::{CursorOptions, Database, Seek};

    /// Unused reservations fill the log's buffer: a change waits for log space until it is interrupted.
    #[test]
    fn a_wait_for_room_in_the_log_is_interrupted() {
        let db = Database::in_memory().expect("it opens");
        let tree = db.create_tree("t").expect("a tree");
        let log = db.inner.engine().log();
        let mut tx = db.begin().expect("it begins");
        tx.put(&tree, b"before", b"1").expect("there is room");
        let mut credits = Vec::new();
        let mut bytes = crate::log::MTR_BYTES_MAX;
        while bytes > 0 {
            match log.try_admit(bytes).expect("nothing fails") {
                Ok(credit) => credits.push(credit),
                Err(_) => bytes /= 2,
            }
        }
        let handle = tx.interrupt_handle();
        let waits = || log.stats().waits_for_buffer;
        let before = waits();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while waits() == before {
                    std::thread::yield_now();
                }
                handle.interrupt();
            });
            for (key, value) in [(&b"k"[..], &b"2"[..]), (&b"long"[..], &[7; 20_000][..])] {
                let put = tx.put(&tree, key, value);
                assert!(matches!(put, Err(Error::Interrupted { .. })), "{put:?}");
            }
        });
        drop(credits);
        tx.interrupt_handle().clear();
        tx.put(&tree, b"after", b"3").expect("there is room again");
        tx.commit().expect("it commits");
        let keys: Vec<_> = db.begin().expect("it begins").iter(&tree).map(|row| row.expect("a row").0).collect();
        assert_eq!(keys, [b"after".to_vec(), b"before".to_vec()]);
    }

    /// Invisible rows delay a scan's first step. It is interrupted inside that step, and later continues from
    /// there.
    #[test]
    fn one_step_over_many_rows_is_interrupted_and_goes_on() {
        let db = Database::in_memory().expect("it opens");
        let tree = db.create_tree("t").expect("a tree");
        let rows = 3000u32;
        db.transact(|tx| tx.put(&tree, b"\0first", b"")).expect("a row");
        let reader = db.begin().expect("it begins");
        reader.take_snapshot().expect("its snapshot");
        db.transact(|tx| (0..rows).try_for_each(|row| tx.put(&tree, &row.to_be_bytes(), b""))).expect("rows");
        db.transact(|tx| tx.put(&tree, b"last", b"")).expect("a row");
        let mut cursor = reader.cursor(&tree, CursorOptions::default());
        assert!(cursor.seek(Seek::First).expect("it reads"));
        let handle = reader.interrupt_handle();
        handle.interrupt();
        for _ in 0..3 {
            assert!(matches!(cursor.next(), Err(Error::Interrupted { .. })));
            assert!(matches!(cursor.prev(), Err(Error::Interrupted { .. })));
            assert_eq!(cursor.key(), b"\0first");
            assert_eq!(cursor.value().expect("it stands there"), b"");
        }
        assert!(reader.get(&tree, b"\0first").expect("a read that waits for nothing").is_some());
        handle.clear();
        assert!(!cursor.next().expect("it goes on"), "the rows came after the snapshot");
    }
}
