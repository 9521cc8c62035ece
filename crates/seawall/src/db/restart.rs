//! A transaction object that is kept: ended in place, begun anew, and set for each statement.

use super::transaction::Transaction;
use crate::error::Result;
use crate::log::Durability;
use crate::txn::{Isolation, LockWait, TxOptions, Txn};

/// A transaction object that is kept, as a server keeps one per connection. After each of these ends it is a new transaction: without a snapshot,
/// an id, a lock or a savepoint, and at no cost until it is used.
impl Transaction {
    /// Commits at the transaction's durability, and begins anew with the same options.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::NoSpace`](crate::Error::NoSpace): it is not committed, and goes on as before; roll it
    /// back, or try again. [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown): the next opening will tell; this object has begun anew without
    /// what it changed.
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

    /// Undoes everything, and begins anew with the same options.
    ///
    /// # Errors
    /// What stopped it; the next opening completes it. This object has begun anew all the same.
    pub fn rollback_in_place(&mut self) -> Result<()> {
        self.txn.here()?;
        self.number = 0;
        self.txn.restart(self.txn.options())
    }

    /// Begins anew with these options. What was changed and not committed is rolled back.
    ///
    /// # Errors
    /// As [`Transaction::rollback_in_place`].
    pub fn restart(&mut self, options: TxOptions) -> Result<()> {
        self.txn.here()?;
        self.number = 0;
        self.durability = options.durability.unwrap_or_else(|| self.inner.work.durability());
        self.txn.restart(options)
    }

    /// The options it runs with.
    #[must_use]
    pub fn options(&self) -> TxOptions {
        TxOptions { durability: Some(self.durability), ..self.txn.options() }
    }

    /// From the next statement on: what others may do to what it reads. A change of the level gives up the snapshot and no lock; what was read before
    /// it at a weaker level is not protected afterwards. A transaction that was read committed for one statement keeps a lock for each row
    /// to its end, and can meet [`Error::TooManyLocks`](crate::Error::TooManyLocks).
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.txn.set_isolation(isolation);
    }

    /// From the next statement on: what it does about others' locks.
    pub fn set_lock_wait(&mut self, wait: LockWait) {
        self.txn.set_wait(wait);
    }

    /// What its commit waits for; the database's option when `None`.
    pub fn set_durability(&mut self, durability: Option<Durability>) {
        self.durability = durability.unwrap_or_else(|| self.inner.work.durability());
    }
}
