//! Reuse of a transaction object: end in place, restart, and settings for each statement.

use super::transaction::Transaction;
use crate::error::Result;
use crate::log::Durability;
use crate::txn::{Isolation, LockWait, TxOptions, Txn};

/// Reuse of a transaction object, as in a server with one per connection. After `commit_in_place`,
/// `rollback_in_place` and `restart` the object is a new transaction. It has no snapshot, id, lock or
/// savepoint, and costs nothing until it is used.
impl Transaction {
    /// Commits with the transaction's durability, and begins a new transaction with the same options.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::NoSpace`](crate::Error::NoSpace): the transaction
    /// is not committed and stays open; roll it back, or try again.
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown): the next opening shows whether it is committed;
    /// this object is a new transaction without the earlier changes.
    ///
    /// ```
    /// use seawall::{Isolation, TxOptions};
    /// # let db = seawall::Database::in_memory()?;
    /// let visits = db.create_tree("visits")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&visits, b"ada", b"1")?;
    /// tx.commit_in_place()?;
    /// tx.put(&visits, b"ada", b"2")?;
    /// tx.rollback_in_place()?;
    /// assert_eq!(tx.get(&visits, b"ada")?.as_deref(), Some(&b"1"[..]));
    /// tx.restart(TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() })?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn commit_in_place(&mut self) -> Result<()> {
        let life = self.txn.life();
        let committed = self.commit_counted(Txn::commit_in_place);
        if self.txn.life() != life {
            self.number = 0;
        }
        committed
    }

    /// Undoes all changes, and begins a new transaction with the same options.
    ///
    /// # Errors
    /// Those of [`Transaction::rollback`]. This object is a new transaction nevertheless.
    pub fn rollback_in_place(&mut self) -> Result<()> {
        self.txn.here()?;
        self.number = 0;
        self.txn.restart(self.txn.options())
    }

    /// Rolls back uncommitted changes, and begins a new transaction with these options.
    ///
    /// # Errors
    /// Those of [`Transaction::rollback_in_place`].
    pub fn restart(&mut self, options: TxOptions) -> Result<()> {
        self.txn.here()?;
        self.number = 0;
        self.durability = options.durability;
        self.txn.restart(options)
    }

    /// Returns the transaction's options.
    #[must_use]
    pub fn options(&self) -> TxOptions {
        TxOptions { durability: self.durability, ..self.txn.options() }
    }

    /// Sets the isolation level from the next statement on. A new level drops the snapshot and keeps all locks.
    /// Earlier reads at a weaker level stay unprotected. Once a transaction has been read committed, even for
    /// one statement, it keeps a separate lock for each row to its end, and can fail with
    /// [`Error::TooManyLocks`](crate::Error::TooManyLocks).
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.txn.set_isolation(isolation);
    }

    /// Sets what the transaction does on a lock conflict, from the next statement on.
    pub fn set_lock_wait(&mut self, wait: LockWait) {
        self.txn.set_wait(wait);
    }

    /// Sets what the commit waits for; `None` uses the database's option at the commit.
    pub fn set_durability(&mut self, durability: Option<Durability>) {
        self.durability = durability;
    }
}
