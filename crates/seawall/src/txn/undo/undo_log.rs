//! An undo log as its owner holds it, and the state that the owner shares with purge.
//!
//! 1. An [`UndoLog`] mirrors the header of its tail page, which only its owner changes. The mirror is read
//!    again after each change of that page. A call that stops ([`Stop`](crate::error::Stop)) does not change
//!    it.

use super::page::{self, State, TailState};
use crate::error::{Error, Result};
use crate::format::{PageId, TxnId, UndoPtr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Release};

/// The in-memory state that purge and the undo log's owner share. The pages agree with it, once their latches
/// are released.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Slot {
    /// Its first page; moved by purge.
    pub(super) head: AtomicU32,
    /// Its last page; moved by its owner.
    pub(super) tail: AtomicU32,
    /// The transaction that has not ended. Set before its first record is visible, cleared while the page of
    /// its last record is latched.
    pub(super) active: AtomicU64,
    /// Committed transactions that purge has not finished.
    pub(super) waiting: AtomicU64,
}

impl Slot {
    pub(super) fn new(head: PageId, tail: PageId, active: TxnId, waiting: u64) -> Arc<Self> {
        Arc::new(Self {
            head: AtomicU32::new(head.0),
            tail: AtomicU32::new(tail.0),
            active: AtomicU64::new(active.0),
            waiting: AtomicU64::new(waiting),
        })
    }

    pub(super) fn head(&self) -> PageId {
        PageId(self.head.load(Acquire))
    }

    pub(super) fn set_active(&self, txn: TxnId) {
        self.active.store(txn.0, Release);
    }
}

/// An undo log that a transaction owns.
#[derive(Debug)]
#[must_use = "an undo log that is not released is lost until the database is opened again"]
pub struct UndoLog {
    pub(super) number: u32,
    pub(super) slot: Arc<Slot>,
    pub(super) tail: PageId,
    pub(super) end: u16,
    pub(super) state: TailState,
    /// The transaction, from `begin` to its end; [`TxnId::NONE`] otherwise.
    pub(super) txn: TxnId,
    /// The buffer where records are encoded; kept for its capacity.
    pub(super) body: Vec<u8>,
}

impl UndoLog {
    pub(super) fn found(number: u32, slot: Arc<Slot>, tail: PageId, end: u16, state: TailState) -> Self {
        let txn = if state.state == State::Idle { TxnId::NONE } else { state.txn };
        Self { number, slot, tail, end, state, txn, body: Vec::new() }
    }

    /// Its number.
    #[must_use]
    #[cfg(test)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its transaction; [`TxnId::NONE`] when it has none.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        self.txn
    }

    /// The transaction's last record, [`UndoPtr::NONE`] before the first change. A savepoint stores it: a
    /// rollback to it restores the state of that moment.
    #[must_use]
    pub fn last(&self) -> UndoPtr {
        if self.state.last == self.state.begin { UndoPtr::NONE } else { self.state.last }
    }

    /// Returns whether the transaction has written anything.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.state.state != State::Idle
    }

    /// Ends the use of the undo log by a transaction that never wrote to it: nothing is left to commit or to
    /// roll back.
    pub(super) fn disown_unused(&mut self) {
        if !self.has_begun() {
            self.txn = TxnId::NONE;
        }
    }

    /// Reads the tail's header again.
    pub(super) fn mirror(&mut self, tail: &[u8]) {
        self.end = page::end(tail);
        self.state =
            TailState::of(tail).expect("its state was checked when it was latched, and a record changed it since");
    }

    pub(super) fn must_be_open(&self) -> Result<()> {
        if self.txn == TxnId::NONE {
            return Err(Error::Usage(format!("undo log {} has no transaction", self.number)));
        }
        Ok(())
    }
}
