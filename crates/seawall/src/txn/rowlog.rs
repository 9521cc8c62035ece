//! Logs of the rows of a tree that change, for a build of an index over the tree meanwhile.
//!
//! 1. A change of a row is noted under the leaf's latch, before it can be committed: key and transaction. It
//!    may be noted too often, never too seldom. A change that leaves the row's entries in the index as they are
//!    is only counted.
//! 2. A log that begins misses the earlier changes of transactions that are active then. Its creator locks
//!    the whole tree for a moment, or waits until these transactions have ended.
//! 3. A tree without a log pays one load for it. The mutexes are taken under a latch, are innermost, and are
//!    held to push a key.

use crate::counted::{Mutex, RwLock};
use crate::format::TxnId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// All that were ever noted or counted here.
    noted: u64,
}

impl RowLog {
    fn note(&self, writer: TxnId, key: Option<&[u8]>) {
        let noted = key.map(|key| (writer, key.to_vec()));
        let mut shard = self.shards[writer.0 as usize % SHARDS].lock();
        shard.rows.extend(noted);
        shard.noted += 1;
    }

    /// How many changes have been noted or counted so far.
    pub(super) fn noted(&self) -> u64 {
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
    /// Called before a change of a row is visible to others, under the leaf's exclusive latch. Not `indexed`: it leaves
    /// the row's entries as they are.
    #[inline]
    pub(super) fn changed(&self, writer: TxnId, key: &[u8], indexed: bool) {
        if self.on.load(Ordering::SeqCst) {
            self.note(writer, indexed.then_some(key));
        }
    }

    #[cold]
    fn note(&self, writer: TxnId, key: Option<&[u8]>) {
        for log in &*self.logs.read() {
            log.note(writer, key);
        }
    }

    pub(super) fn begin(&self) -> Arc<RowLog> {
        let log = Arc::new(RowLog::default());
        self.logs.write().push(log.clone());
        self.on.store(true, Ordering::SeqCst);
        log
    }

    pub(super) fn end(&self, log: &Arc<RowLog>) {
        let mut logs = self.logs.write();
        logs.retain(|one| !Arc::ptr_eq(one, log));
        if logs.is_empty() {
            self.on.store(false, Ordering::SeqCst);
        }
    }
}
