//! Logs of the rows of a tree that change, for a build of an index over the tree meanwhile.
//!
//! 1. A change of a row is noted under the leaf's latch, before it can be committed: key and transaction. It
//!    may be noted too often, never too seldom.
//! 2. A log that begins misses the earlier changes of transactions that are active then. Its creator locks
//!    the whole tree for a moment, or waits until these transactions have ended.
//! 3. A tree without a log pays one load for it. The mutexes are taken under a latch, are innermost, and are
//!    held to push a key.

use super::locks::Mode;
use super::transaction::{LockWait, TxOptions, Txn};
use super::trees::TreeState;
use crate::counted::{Mutex, RwLock};
use crate::error::{Error, LockedOn, Result};
use crate::format::TxnId;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Threads that change rows at once mostly share no mutex.
const SHARDS: usize = 16;

/// A change: its transaction, and the row's key.
pub type Noted = (TxnId, Vec<u8>);

/// Rows that changed and were not drained yet.
#[derive(Debug, Default)]
pub struct RowLog {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    rows: Vec<Noted>,
    /// All that were ever noted here.
    noted: u64,
}

impl RowLog {
    fn note(&self, writer: TxnId, key: &[u8]) {
        let noted = (writer, key.to_vec());
        let mut shard = self.shards[writer.0 as usize % SHARDS].lock();
        shard.rows.push(noted);
        shard.noted += 1;
    }

    /// How many changes have been noted so far.
    fn noted(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().noted).sum()
    }

    /// Takes the changes noted so far.
    pub fn drain(&self) -> Vec<Noted> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let noted = std::mem::take(&mut shard.lock().rows);
            all.extend(noted);
        }
        all
    }
}

/// The logs of a tree.
#[derive(Debug, Default)]
pub(super) struct RowLogs {
    on: AtomicBool,
    logs: RwLock<Vec<Arc<RowLog>>>,
}

impl RowLogs {
    /// Called before a change of a row is visible to others, under the leaf's exclusive latch.
    #[inline]
    pub(super) fn changed(&self, writer: TxnId, key: &[u8]) {
        if self.on.load(Ordering::SeqCst) {
            self.note(writer, key);
        }
    }

    #[cold]
    fn note(&self, writer: TxnId, key: &[u8]) {
        for log in &*self.logs.read() {
            log.note(writer, key);
        }
    }

    fn begin(&self) -> Arc<RowLog> {
        let log = Arc::new(RowLog::default());
        self.logs.write().push(log.clone());
        self.on.store(true, Ordering::SeqCst);
        log
    }

    fn end(&self, log: &Arc<RowLog>) {
        let mut logs = self.logs.write();
        logs.retain(|one| !Arc::ptr_eq(one, log));
        if logs.is_empty() {
            self.on.store(false, Ordering::SeqCst);
        }
    }
}

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

    /// How many changes there were since it began.
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
    /// this returns. The transaction has neither a snapshot nor changes.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] if transactions that were active do not end; [`Error::TreeDropped`].
    pub fn watch(&self, tree: &Arc<TreeState>) -> Result<Watching> {
        let engine = &self.engine;
        engine.admit(tree)?;
        // With the whole tree locked, every change in it has ended.
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
                let waited = engine.clock.now().saturating_sub(begun);
                if !engine.may_wait || waited >= engine.lock_wait_timeout() {
                    let on = LockedOn { tree: tree.at.id, key: Vec::new() };
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
        self.admit(tree)?;
        self.lock_range(tree, Bound::Unbounded, Bound::Unbounded, Mode::Exclusive, self.options.wait)
    }

    /// Whether its snapshot, or a view of now, sees the changes of a transaction, or would if that had
    /// committed.
    #[must_use]
    pub fn sees(&self, writer: TxnId) -> bool {
        self.pin().sees(writer)
    }
}
