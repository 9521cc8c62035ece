//! What all transactions of an open database share.

use super::locks::LockTable;
use super::purge::Purge;
use super::transaction::Unfinished;
use super::trees::Trees;
use super::undo::UndoStore;
use super::views::ActiveSet;
use crate::buffer::Pool;
use crate::error::{Health, Result};
use crate::format::PageId;
use crate::log::Log;
use crate::space::Space;
use parking_lot::Mutex;
use seawall_io::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What all transactions share.
#[derive(Debug)]
pub struct Engine {
    /// Pages and their owners.
    pub space: Arc<Space>,
    /// Undo records.
    pub undo: UndoStore,
    /// Explicit locks.
    pub locks: LockTable,
    /// Who is active, and who sees whom.
    pub active: ActiveSet,
    /// Trees in use.
    pub trees: Trees,
    /// The root of the tree of names.
    pub catalog_root: PageId,
    /// Transactions taken over from an earlier opening that have not ended.
    pub resumed: AtomicU64,
    /// Rollbacks that stopped on the way, for background work to take up.
    pub unfinished: Mutex<Vec<Unfinished>>,
    /// Where purge is.
    pub purge: Mutex<Purge>,
    /// Held for one step of a compaction, and by a check for as long as it looks.
    pub compacting: Mutex<()>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How long a lock is waited for, ns.
    pub lock_wait_timeout_ns: AtomicU64,
    /// Whether waiting is possible at all: not where one thread does everything in turn.
    pub may_wait: bool,
}

impl Engine {
    /// The pool.
    pub fn pool(&self) -> &Pool {
        self.space.pool()
    }

    /// The log.
    pub fn log(&self) -> &Log {
        self.pool().log()
    }

    /// Whether the database may write.
    pub fn health(&self) -> &Health {
        self.pool().health()
    }

    /// How long a lock is waited for.
    pub fn lock_wait_timeout(&self) -> Duration {
        Duration::from_nanos(self.lock_wait_timeout_ns.load(Ordering::Relaxed))
    }

    /// Writers help purge along when it has fallen behind. What a view pins cannot be purged, and holds nobody up.
    pub(super) fn help_purge(&self) -> Result<()> {
        if self.undo.history_length() < HISTORY_LONG {
            return Ok(());
        }
        // Whoever is at it already does the work.
        let Some(mut purge) = self.purge.try_lock() else { return Ok(()) };
        purge.step(self, HELP_RECORDS).map(drop)
    }
}

/// Committed transactions that wait for purge before writers help.
const HISTORY_LONG: u64 = 20_000;
/// One transaction in this many helps.
pub(super) const HELP_EVERY: u64 = 16;
/// Records that a helper purges: more than that many transactions make, as a rule.
const HELP_RECORDS: usize = 256;
