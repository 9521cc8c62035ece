//! A transaction object that outlives its transactions.
//!
//! 1. What ends in place has ended as one that is consumed ends ([`super::transaction`]); then the object begins anew, with the same options, no
//!    snapshot, no id and no lock. So there is no state in between, and no call has to ask whether the transaction is over.
//! 2. Each life has a lock owner with a serial number of its own ([`Txn::life`]): savepoints, views and cursors of an earlier life are told by it.
//! 3. A commit whose outcome is unknown is left behind as it is: it gives up nothing, and the object goes on without it.

use super::transaction::{Isolation, LockWait, TxOptions, Txn};
use crate::error::{Error, Result};
use crate::log::Durability;

impl Txn {
    /// A number that no other transaction of this opening has, and no earlier one of this object.
    pub fn life(&self) -> u64 {
        self.owner.serial()
    }

    /// How it runs.
    pub fn options(&self) -> TxOptions {
        self.options
    }

    /// Does this about others' locks from now on.
    pub fn set_wait(&mut self, wait: LockWait) {
        self.options.wait = wait;
    }

    /// Commits, waits for it, and begins anew.
    ///
    /// # Errors
    /// Poisoned, no room in the log, or a change that is half done: it is not committed, and open as before. [`Error::OutcomeUnknown`]: it has begun
    /// anew, without what it changed.
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

    /// Undoes everything, and begins anew with these options.
    ///
    /// # Errors
    /// What stopped the rollback, which is completed in the background or by the next opening. It has begun anew all the same.
    pub fn restart(&mut self, options: TxOptions) -> Result<()> {
        let undone = self.decide_against();
        if undone.is_err() {
            // Dropped, it goes to where rollbacks are that stopped on the way.
            let mut stopped = std::mem::replace(self, Self::begin(self.engine.clone(), options));
            self.interrupt = std::mem::take(&mut stopped.interrupt);
            return undone;
        }
        self.renew(options);
        Ok(())
    }

    /// Begins anew what has ended.
    pub(super) fn renew(&mut self, options: TxOptions) {
        debug_assert!(self.ended && self.writing.is_none(), "only what has ended begins anew");
        self.engine.locks.renew(&mut self.owner, options.tag);
        if options.isolation == Isolation::ReadCommitted {
            self.owner.keep_points();
        }
        self.options = options;
        self.gave_way.set(false);
        self.gone = super::rollback::Gone::default();
        (self.changes, self.undone) = (0, 0);
        self.changed.fill(0);
        (self.ended, self.halted, self.kept) = (false, None, false);
    }

    /// Reads and locks as this level says from now on. Another level has no use for the snapshot: it is given up.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        if std::mem::replace(&mut self.options.isolation, isolation) == isolation {
            return;
        }
        if isolation == Isolation::ReadCommitted {
            // For the rest of its life: where its points lie is not known from now on, and a range could not cover them.
            self.owner.keep_points();
        }
        self.give_up_snapshot();
        // What was locked to stay locked is not given back at the weaker level.
        self.owner.next_statement();
    }
}
