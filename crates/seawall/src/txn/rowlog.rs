//! Logs of the changed rows of a tree, for a concurrent build of an index over it.
//!
//! 1. Every change of a row is logged, as key and transaction, under the leaf's latch before it can be committed. It
//!    may be logged more than once, but is never missed. A change that does not alter the row's entries in the index is
//!    only counted.
//! 2. A new log misses the earlier changes of transactions that are active when it begins. So its creator
//!    locks the whole tree for a moment, or waits until these transactions have ended.
//! 3. A change in a tree without a log costs one load. The mutexes are taken under a latch; no other lock is
//!    taken under them, and they are held only to push a key.

use crate::counted::{Mutex, RwLock};
use crate::format::TxnId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shards of a log, so that threads that change rows at once rarely share a mutex.
const SHARDS: usize = 16;

/// A change: its transaction, and the row's key.
pub type Noted = (TxnId, Vec<u8>);

/// The changes that were not drained yet.
#[derive(Debug, Default)]
pub struct RowLog {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    rows: Vec<Noted>,
    /// The number of changes that were ever logged or counted here.
    noted: u64,
}

impl RowLog {
    fn note(&self, writer: TxnId, key: Option<&[u8]>) {
        let noted = key.map(|key| (writer, key.to_vec()));
        let mut shard = self.shards[writer.0 as usize % SHARDS].lock();
        shard.rows.extend(noted);
        shard.noted += 1;
    }

    /// How many changes have been logged or counted so far.
    pub(super) fn noted(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().noted).sum()
    }

    /// Takes the changes logged so far.
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
    /// Called before a change of a row is visible to others, under the leaf's exclusive latch. `indexed` is false if
    /// the change does not alter the row's index entries.
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
