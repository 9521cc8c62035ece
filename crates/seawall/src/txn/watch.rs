//! Watching a tree: the transaction's side of its logs of changed rows.

use super::locks::Mode;
use super::options::{LockWait, TxOptions};
use super::rowlog::{Noted, RowLog};
use super::transaction::Txn;
use super::trees::TreeState;
use crate::error::{Error, LockedOn, Result};
use crate::format::TxnId;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// A log of a tree's changes; it ends when dropped.
#[derive(Debug)]
pub struct Watching {
    tree: Arc<TreeState>,
    log: Arc<RowLog>,
}

impl Watching {
    /// The changes since the last call.
    pub fn drain(&self) -> Vec<Noted> {
        self.log.drain()
    }

    /// The number of changes since the log began, including those that do not alter index entries.
    #[must_use]
    pub fn noted(&self) -> u64 {
        self.log.noted()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.tree.rows.end(&self.log);
    }
}

impl Txn {
    /// Begins to log the changes of a tree. The log has every change that is not seen by a view made after
    /// this returns. The transaction must have neither a snapshot nor changes.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] if transactions that were active do not end; [`Error::TreeDropped`].
    pub fn watch(&self, tree: &Arc<TreeState>) -> Result<Watching> {
        let engine = &self.engine;
        engine.admit(tree)?;
        // The last step of a build locks the whole tree: better to wait now.
        self.wait_for_resumed(tree)?;
        // With the whole tree locked, every transaction that changed it has ended.
        let alone = Self::begin(engine.clone(), TxOptions::default());
        let locked = alone.lock_range(tree, Bound::Unbounded, Bound::Unbounded, Mode::Exclusive, LockWait::NoWait);
        let watching = Watching { tree: tree.clone(), log: tree.rows.begin() };
        match locked {
            Ok(()) => return Ok(watching),
            Err(Error::LockTimeout { .. }) => drop(alone),
            Err(error) => return Err(error),
        }
        // An id is assigned before the first change: a transaction that is not in this list notes all of its
        // changes.
        let begun = engine.clock.now();
        for holder in engine.active.active() {
            while holder != self.id() && engine.active.is_active(holder) {
                engine.health().check()?;
                let waited = engine.clock.now().saturating_sub(begun);
                if !engine.may_wait || waited >= engine.lock_wait_timeout() {
                    let on = LockedOn::whole(tree.at.id);
                    return Err(Error::LockTimeout { holder, on, waited_ms: waited.as_millis() as u64 });
                }
                engine.clock.sleep(Duration::from_millis(1));
            }
        }
        Ok(watching)
    }

    /// Locks a whole tree exclusively: waits until no other transaction has locks or unended changes in it,
    /// and excludes both.
    ///
    /// # Errors
    /// Lock errors, [`Error::TreeDropped`].
    pub fn lock_tree(&self, tree: &Arc<TreeState>) -> Result<()> {
        self.admit_change(tree)?;
        self.wait_for_resumed(tree)?;
        self.lock_range(tree, Bound::Unbounded, Bound::Unbounded, Mode::Exclusive, self.options.wait)
    }

    /// Whether the transaction's snapshot, or else a view of now, sees the changes of `writer`, or would see them if
    /// `writer` had committed.
    #[must_use]
    pub fn sees(&self, writer: TxnId) -> bool {
        self.pin().sees(writer)
    }
}
