//! What a transaction has from its first write on, and what is left of it when its rollback stops.

use super::insert_run::InsertRun;
use super::locks::LockOwner;
use super::undo::UndoLog;
use crate::btree::Dismantling;
use crate::format::{TxnId, UndoPtr};
use crate::spare;
use std::cell::Cell;
use std::sync::Arc;

/// What a transaction has from its first write on.
#[derive(Debug)]
pub(super) struct Writing {
    pub id: TxnId,
    pub undo_log: UndoLog,
    /// Taken over from an earlier opening: its changed trees are not known yet.
    pub resumed: bool,
    /// The last record when the lookup of its trees began, and the next record to read.
    pub learning: Option<(UndoPtr, UndoPtr)>,
    /// Its last insertion.
    pub inserts: InsertRun,
    /// The record that is undone in several steps, and where that continues.
    pub undoing: Option<(UndoPtr, Undoing)>,
    /// The buffer where entries are built; kept for its capacity, as `old` is.
    pub payload: Vec<u8>,
    /// The value that a change supersedes.
    pub old: Vec<u8>,
}

/// Where the undoing of a record continues.
#[derive(Debug)]
pub(super) enum Undoing {
    /// A range of insertions: at this key.
    Range(Vec<u8>),
    /// The creation of a tree.
    Tree(Dismantling),
}

/// The largest buffers that a thread keeps, bytes.
const SPARE_BYTES_MAX: usize = 64 << 10;
/// Their initial size, bytes: large enough that the buffer of a small row shares no cache line with another
/// thread's.
const SPARE_BYTES_MIN: usize = 512;

thread_local! {
    /// Buffers of the last transaction that ended here.
    static SPARE: Cell<(Vec<u8>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

impl Writing {
    pub(super) fn new(id: TxnId, undo_log: UndoLog, resumed: bool) -> Box<Self> {
        let (mut payload, mut old) = spare::take(&SPARE);
        if payload.capacity() == 0 {
            payload.reserve_exact(SPARE_BYTES_MIN);
            old.reserve_exact(SPARE_BYTES_MIN);
        }
        let inserts = InsertRun::new();
        Box::new(Self { id, undo_log, resumed, learning: None, inserts, undoing: None, payload, old })
    }

    /// Returns the [`Writing`] of a transaction that has been started ([`super::Txn::start`]).
    pub(super) fn of(writing: &mut Option<Box<Self>>) -> &mut Self {
        writing.as_mut().expect("a change starts its transaction first")
    }

    /// Returns its undo log. The thread keeps the buffers for its next transaction, unless they have become
    /// large.
    pub(super) fn into_undo_log(self: Box<Self>) -> UndoLog {
        let Self { undo_log, mut payload, mut old, .. } = *self;
        if payload.capacity().max(old.capacity()) <= SPARE_BYTES_MAX {
            payload.clear();
            old.clear();
            spare::keep(&SPARE, (payload, old));
        }
        undo_log
    }
}

/// A transaction whose rollback stopped before its end.
#[derive(Debug)]
pub struct Unfinished {
    pub(super) owner: Arc<LockOwner>,
    pub(super) writing: Box<Writing>,
}
