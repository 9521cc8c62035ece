//! A transaction object that outlives its transactions.
//!
//! 1. A transaction that ends in place ends like one that is consumed ([`super::transaction`]); then the
//!    object begins a new transaction, with the same options, no snapshot, no id and no lock. So there is no
//!    state in between, and no call has to check whether the transaction has ended.
//! 2. A life of the object is one transaction. It has its own lock owner, whose serial number ([`Txn::life`])
//!    tells its savepoints, views and cursors from those of an earlier life.
//! 3. A transaction whose commit has an unknown outcome is left as it is: it releases nothing, and the object
//!    begins a new one.

use super::options::{Isolation, LockWait, TxOptions};
use super::savepoint::Gone;
use super::transaction::{State, Txn};
use crate::error::{Error, Result};
use crate::log::Durability;

impl Txn {
    /// A number that no other transaction of this opening has or had.
    pub fn life(&self) -> u64 {
        self.owner.serial()
    }

    /// Its options.
    pub fn options(&self) -> TxOptions {
        self.options
    }

    /// Sets the policy for locks of others from now on.
    pub fn set_wait(&mut self, wait: LockWait) {
        self.options.wait = wait;
    }

    /// Commits, waits until the commit is done, and begins a new transaction.
    ///
    /// # Errors
    /// Poisoned, no room in the log, or a change that is half done: the transaction is not committed, and
    /// stays as it was. [`Error::OutcomeUnknown`]: the object has begun a new transaction, without the
    /// changes of the old one.
    pub fn commit_in_place(&mut self, level: Durability) -> Result<()> {
        let committed = self.commit(level);
        match &committed {
            Ok(()) => self.renew(self.options),
            Err(Error::OutcomeUnknown { .. }) => {
                let mut unknown = std::mem::replace(self, Self::begin(self.engine.clone(), self.options));
                self.interrupt = std::mem::take(&mut unknown.interrupt);
            }
            Err(_) => {}
        }
        committed
    }

    /// Undoes everything, and begins a new transaction with these options.
    ///
    /// # Errors
    /// The error that stopped the rollback; background work or the next opening completes it. The object has
    /// begun a new transaction in this case, too.
    pub fn restart(&mut self, options: TxOptions) -> Result<()> {
        let undone = self.decide_against();
        if undone.is_err() {
            // Its drop adds it to the unfinished rollbacks.
            let mut stopped = std::mem::replace(self, Self::begin(self.engine.clone(), options));
            self.interrupt = std::mem::take(&mut stopped.interrupt);
            return undone;
        }
        self.renew(options);
        Ok(())
    }

    /// Begins a new transaction after the end of the old one.
    pub(super) fn renew(&mut self, options: TxOptions) {
        debug_assert!(matches!(self.state, State::Ended) && self.writing.is_none(), "only what has ended begins anew");
        self.engine.locks.renew(&mut self.owner, options.tag);
        if options.keeps_points() {
            self.owner.keep_points();
        }
        self.options = options;
        self.gave_way.set(false);
        self.gone = Gone::default();
        (self.changes, self.undone) = (0, 0);
        self.changed.fill(0);
        self.state = State::Open;
    }

    /// Sets the isolation level of reads and locks from now on. A change of the level releases the snapshot,
    /// which another level cannot use.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        if std::mem::replace(&mut self.options.isolation, isolation) == isolation {
            return;
        }
        if self.options.keeps_points() {
            // For the rest of its life: the lowest and highest keys of its points are not recorded from now
            // on, so no range could cover the points.
            self.owner.keep_points();
        }
        if isolation == Isolation::ReadCommitted {
            // Locks that had to be kept so far must not be released with a change that is undone.
            if self.writing.is_some() {
                self.owner.note_gave_back();
            }
        }
        self.give_up_snapshot();
        // Nor by [`Txn::unlock_row`].
        self.owner.next_statement();
    }
}
