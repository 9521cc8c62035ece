//! Between rows and the lock table: who stands in the way, and waiting for it.

use super::locks::{Converted, Interrupt, Mode, Request, WaitPolicy};
use super::transaction::{Isolation, LockWait, OnConflict, Txn};
use super::trees::TreeState;
use crate::btree::Entry;
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, LockedOn, Result};
use crate::format::TxnId;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Names what [`Error::Interrupted`] broke.
pub(super) const LOG_ROOM: &str = "a wait for room in the log";
/// The same.
pub(super) const SCAN: &str = "a scan";
/// The same.
pub(super) const MANY_ROWS: &str = "an operation on many rows";

/// What a scan sees, as far as dead rows go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    /// Its transaction, which sees its own deletions.
    pub(super) me: TxnId,
    /// The serial number of its view; `None` when it looks at the latest versions.
    pub(super) view: Option<u64>,
    /// It locks what it finds.
    pub(super) locks: bool,
}

/// Who a row's latest version belongs to, as far as locks go.
pub(super) enum Writer {
    /// This transaction: it has the row.
    Me,
    /// Another active one, which holds it explicitly now: wait for it.
    Other,
    /// Another active one, and the request does not wait: its lock was left as it is.
    Busy(TxnId),
    /// Nobody any more.
    Nobody,
}

impl Txn {
    /// Who holds the row of an entry through having written it. Under the latch of its leaf.
    pub(super) fn writer_of(&self, tree: &TreeState, key: &[u8], entry: &Entry<'_>, wait: LockWait) -> Writer {
        if !entry.has_header() || entry.writer == TxnId::NONE {
            return Writer::Nobody;
        }
        if entry.writer == self.id() {
            return Writer::Me;
        }
        if !self.engine.active.is_active(entry.writer) {
            return Writer::Nobody;
        }
        if !self.waits(wait) {
            let busy = self.engine.locks.is_held_by(entry.writer);
            return if busy { Writer::Busy(entry.writer) } else { Writer::Nobody };
        }
        match self.engine.locks.convert(entry.writer, tree.at.id, key) {
            Converted::Held(_) => Writer::Other,
            // It left the active set before it began to release: its outcome is decided, and is what the entry says.
            Converted::Gone => Writer::Nobody,
        }
    }

    /// Who wrote the entry's latest version, when this transaction may not act on it.
    pub(super) fn stale(&self, entry: &Entry<'_>) -> Option<TxnId> {
        let strict =
            self.options.isolation == Isolation::RepeatableRead && self.options.on_conflict == OnConflict::Fail;
        (strict && self.snapshot_misses(entry)).then_some(entry.writer)
    }

    /// Whether the entry is dead for a locking read: its deletion is committed, or this transaction's own.
    pub(super) fn is_dead(&self, entry: &Entry<'_>) -> bool {
        entry.is_deleted()
            && (entry.writer == self.id()
                || (!self.engine.active.is_active(entry.writer) && self.stale(entry).is_none()))
    }

    /// What a locking scan sees.
    pub(super) fn locking_sight(&self) -> Sight {
        Sight { me: self.id(), view: self.strict_serial(), locks: true }
    }

    /// Remembers that this transaction has runs of its own in the tree.
    pub(super) fn note_dead_in(&self, tree: &Arc<TreeState>) {
        let mut dead_in = self.dead_in.borrow_mut();
        if !dead_in.iter().any(|known| Arc::ptr_eq(known, tree)) {
            dead_in.push(tree.clone());
        }
    }

    /// Whether a request waits at all.
    fn waits(&self, wait: LockWait) -> bool {
        !self.longest_wait(wait).is_zero()
    }

    /// How long a request may wait: zero when not at all.
    pub(super) fn longest_wait(&self, wait: LockWait) -> Duration {
        match wait {
            _ if !self.engine.may_wait => Duration::ZERO,
            LockWait::Wait => self.engine.lock_wait_timeout(),
            LockWait::For(most) => most,
            LockWait::NoWait | LockWait::SkipLocked => Duration::ZERO,
        }
    }

    fn wait(&self, request: &Request<'_>, wait: LockWait) -> Result<()> {
        let policy = WaitPolicy::WaitFor(self.longest_wait(wait));
        let interrupt = self.interrupt.get().map(|interrupt| &**interrupt);
        let waited = self.engine.locks.wait_or_interrupt(&self.owner, request, policy, interrupt);
        waited.map_err(|error| self.note(error))
    }

    /// What other threads interrupt this transaction by.
    pub fn interrupt(&self) -> &Arc<Interrupt> {
        self.interrupt.get_or_init(Arc::default)
    }

    /// Gives it another tag.
    pub fn set_tag(&mut self, tag: u64) {
        self.options.tag = tag;
        self.owner.set_tag(tag);
    }

    /// Refuses to go on with what takes long, or waits, once the transaction was interrupted.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    #[inline]
    pub(super) fn go_on(&self, during: &'static str) -> Result<()> {
        match self.interrupt.get() {
            Some(interrupt) if interrupt.is_pending() => Err(Error::Interrupted { during, on: None }),
            _ => Ok(()),
        }
    }

    /// Waits until the log has room for a mini-transaction of this size, before one begins that cannot be interrupted. The room may be gone again.
    pub(super) fn wait_for_log_room(&self, size: MtrSize) -> Result<()> {
        Mtr::begin_while(self.engine.pool(), size, || self.go_on(LOG_ROOM)).map(drop)
    }

    /// The error of acting on a version that the snapshot does not see.
    pub(super) fn conflict(&self, writer: TxnId, tree: &TreeState, key: &[u8]) -> Error {
        self.note(Error::WriteConflict { writer, on: LockedOn { tree: tree.at.id, key: key.into() } })
    }

    /// Waits, with no latch held, until the row could be changed.
    pub(super) fn wait_to_write(&self, tree: &TreeState, key: &[u8]) -> Result<()> {
        let request = Request::Write { tree: tree.at.id, key };
        self.wait(&request, self.options.wait)
    }

    /// Waits, with no latch held, until the key could be locked.
    pub(super) fn wait_to_lock(&self, tree: &TreeState, key: &[u8], mode: Mode, wait: LockWait) -> Result<()> {
        let request = Request::Point { tree: tree.at.id, key, mode };
        self.wait(&request, wait)
    }

    /// Locks a key that is no row's. Whether this transaction had no lock there before: then it may give it back.
    pub(super) fn lock_point(&self, tree: &TreeState, key: &[u8], mode: Mode) -> Result<bool> {
        let (locks, id) = (&self.engine.locks, tree.at.id);
        if let Ok(new) = locks.try_new_point(&self.owner, id, key, mode) {
            return Ok(new);
        }
        let new = !locks.holds(&self.owner, id, key);
        loop {
            self.wait_to_lock(tree, key, mode, self.options.wait)?;
            if locks.try_point(&self.owner, id, key, mode).is_ok() {
                return Ok(new);
            }
        }
    }

    /// Waits, with no latch held, until the row could be locked, and holds nothing of it afterwards: the caller looks at it again.
    pub(super) fn wait_for_row(&self, tree: &TreeState, key: &[u8], mode: Mode) -> Result<()> {
        let locks = &self.engine.locks;
        let new = !locks.holds(&self.owner, tree.at.id, key);
        self.wait_to_lock(tree, key, mode, self.options.wait)?;
        if new {
            locks.give_back(&self.owner, tree.at.id, key);
        }
        Ok(())
    }

    /// Locks an interval of keys, there or not.
    pub(super) fn lock_range(
        &self,
        tree: &TreeState,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        mode: Mode,
        wait: LockWait,
    ) -> Result<()> {
        let locks = &self.engine.locks;
        while locks.add_range(&self.owner, tree.at.id, lo, hi, mode).is_err() {
            self.wait(&Request::Range { tree: tree.at.id, lo, hi, mode }, wait)?;
        }
        tree.is_there(self.id(), &self.engine.active)
    }
}
