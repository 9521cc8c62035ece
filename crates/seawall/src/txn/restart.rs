//! A transaction object that outlives its transactions.
//!
//! 1. A transaction that ends in place ends like one that is consumed ([`super::transaction`]); then the
//!    object begins anew, with the same options, no snapshot, no id and no lock. So there is no state in
//!    between, and no call has to check whether the transaction has ended.
//! 2. Each life has a lock owner with its own serial number ([`Txn::life`]): it identifies the savepoints,
//!    views and cursors of an earlier life.
//! 3. A commit whose outcome is unknown is left behind as it is: it gives up nothing, and the object
//!    continues without it.

use super::options::{Isolation, LockWait, TxOptions};
use super::savepoint::Gone;
use super::transaction::{State, Txn};
use crate::error::{Error, Result};
use crate::log::Durability;

impl Txn {
    /// A number that no other transaction of this opening has, and no earlier one of this object.
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

    /// Commits, waits until the commit is done, and begins anew.
    ///
    /// # Errors
    /// Poisoned, no room in the log, or a change that is half done: it is not committed, and open as before.
    /// [`Error::OutcomeUnknown`]: it has begun anew, without its changes.
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
    /// The error that stopped the rollback; background work or the next opening completes it. The object has
    /// begun anew in this case, too.
    pub fn restart(&mut self, options: TxOptions) -> Result<()> {
        let undone = self.decide_against();
        if undone.is_err() {
            // Dropped, it joins the unfinished rollbacks.
            let mut stopped = std::mem::replace(self, Self::begin(self.engine.clone(), options));
            self.interrupt = std::mem::take(&mut stopped.interrupt);
            return undone;
        }
        self.renew(options);
        Ok(())
    }

    /// Begins anew after the end.
    pub(super) fn renew(&mut self, options: TxOptions) {
        debug_assert!(matches!(self.state, State::Ended) && self.writing.is_none(), "only what has ended begins anew");
        self.engine.locks.renew(&mut self.owner, options.tag);
        if options.isolation == Isolation::ReadCommitted {
            self.owner.keep_points();
        }
        self.options = options;
        self.gave_way.set(false);
        self.gone = Gone::default();
        (self.changes, self.undone) = (0, 0);
        self.changed.fill(0);
        self.state = State::Open;
    }

    /// Reads and locks at this level from now on. Another level cannot use the snapshot: it is given up.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        if std::mem::replace(&mut self.options.isolation, isolation) == isolation {
            return;
        }
        if isolation == Isolation::ReadCommitted {
            // For the rest of its life: the ends of its points are not kept from now on, so a range could not
            // cover them.
            self.owner.keep_points();
        }
        self.give_up_snapshot();
        // Locks that had to be kept are not given back at the weaker level.
        self.owner.next_statement();
    }
}
