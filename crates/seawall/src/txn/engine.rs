//! The state that all transactions of an open database share.

use super::locks::LockTable;
use super::trees::{TreeState, Trees};
use super::undo::UndoStore;
use super::views::{ActiveSet, OldestView};
use super::writing::Unfinished;
use crate::btree::Dismantling;
use crate::buffer::Pool;
use crate::counted::Mutex;
use crate::error::{Error, Health, Result};
use crate::format::{PageId, TreeId, TxnId};
use crate::log::Log;
use crate::space::Space;
use seawall_io::{Clock, Process, ProcessGate};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One opening of a database by one process. Handles belong to it.
#[derive(Debug)]
pub struct Instance {
    number: u64,
    /// Random: no other opening of the database has it.
    pub token: [u8; 16],
    process: Process,
    /// Closed when the database is shut down, though handles may still exist.
    gate: ProcessGate,
}

impl Instance {
    /// A new opening.
    pub fn new(token: [u8; 16]) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let process = Process::current();
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), token, process, gate: ProcessGate::new(process) }
    }

    /// Unique in this process.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether this process opened the database. A forked process must not touch the files, the log,
    /// or any lock: the threads that held the locks do not exist there.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.process.is_current()
    }

    /// # Errors
    /// [`Error::Usage`] in a process other than the one that opened it; [`Error::ShutDown`].
    #[inline]
    pub fn here(&self) -> Result<()> {
        if self.gate.is_open() { Ok(()) } else { Err(self.elsewhere()) }
    }

    /// Refuses every call from now on.
    pub fn shut(&self) {
        self.gate.close();
    }

    /// Returns whether the database was shut down.
    pub fn is_shut(&self) -> bool {
        self.gate.is_closed()
    }

    #[cold]
    fn elsewhere(&self) -> Error {
        if self.is_here() && self.is_shut() { Error::ShutDown } else { elsewhere() }
    }
}

#[cold]
fn elsewhere() -> Error {
    let why = "the database was opened by another process, from which this one was forked: its handles cannot be used \
        here. Fork before \
               the database is opened, or execute a program in the child";
    Error::Usage(why.into())
}

#[cold]
fn foreign(tree: &TreeState) -> Error {
    Error::Usage(format!(
        "the handle of tree {} is of another database, or of an earlier opening of this one: open the tree by its \
         name here",
        tree.at.id
    ))
}

/// The state of purge: it visits one undo log after the other.
#[derive(Debug, Default)]
pub struct Purge {
    pub(super) next_undo_log: u32,
    /// Dropped trees that are being freed.
    pub(super) drops: HashMap<TreeId, Dismantling>,
    /// What every view saw, and how many tails had been moved, when purge last found nothing to do. While
    /// neither changes, there is still nothing to purge: a transaction writes all its undo records before it
    /// ends.
    pub(super) done_for: Option<(OldestView, u64)>,
    /// Undo logs visited.
    #[cfg(test)]
    pub looked: u64,
}

/// The state that all transactions share.
#[derive(Debug)]
pub struct Engine {
    /// Which opening this is.
    pub instance: Instance,
    /// Pages and their owners.
    pub space: Arc<Space>,
    /// Undo records.
    pub undo: UndoStore,
    /// Explicit locks.
    pub locks: LockTable,
    /// The active transactions and their visibility.
    pub active: ActiveSet,
    /// Trees in use.
    pub trees: Trees,
    /// The root of the tree of names.
    pub catalog_root: PageId,
    /// The first transaction of this opening.
    pub first_txn: TxnId,
    /// How many of its transactions were rolled back.
    pub rollbacks: AtomicU64,
    /// The number of transactions taken over from an earlier opening that have not ended and whose changed
    /// trees are not known yet.
    pub resumed: AtomicU64,
    /// Set while a request for a whole tree waits for the `resumed` transactions: background work looks up
    /// their changed trees before it rolls back anything more.
    pub resumed_asked: AtomicBool,
    /// Rollbacks that stopped before their end; background work continues them.
    pub unfinished: Mutex<Vec<Unfinished>>,
    /// The state of purge.
    pub purge: Mutex<Purge>,
    /// Held for one step of a compaction, and for the whole duration of a check.
    pub compacting: Mutex<()>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The lock wait time-out, ns.
    pub lock_wait_timeout_ns: AtomicU64,
    /// Whether calls may wait. False if a single thread does all the work.
    pub may_wait: bool,
}

impl Engine {
    /// Checks that this process may use the tree with this database.
    ///
    /// # Errors
    /// [`Error::Usage`] for a tree of another database or opening, and in a forked process.
    #[inline]
    pub fn admit(&self, tree: &TreeState) -> Result<()> {
        self.instance.here()?;
        if tree.owner == self.instance.number { Ok(()) } else { Err(foreign(tree)) }
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        self.space.pool()
    }

    /// The log.
    pub fn log(&self) -> &Log {
        self.pool().log()
    }

    /// The health: whether the database may write.
    pub fn health(&self) -> &Health {
        self.pool().health()
    }

    /// The lock wait time-out.
    pub fn lock_wait_timeout(&self) -> Duration {
        Duration::from_nanos(self.lock_wait_timeout_ns.load(Ordering::Relaxed))
    }
}
