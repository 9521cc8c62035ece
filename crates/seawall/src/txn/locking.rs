//! Row locks: which owner blocks a row, and the wait for it.

use super::dead::Sight;
use super::locks::{Converted, Interrupt, KeySpan, LockRequest, Mode};
use super::options::LockWait;
use super::transaction::Txn;
use super::trees::TreeState;
use crate::btree::Entry;
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, LockedOn, Result};
use crate::format::TxnId;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// The operation that [`Error::Interrupted`] names.
pub(super) const LOG_ROOM: &str = "a wait for room in the log";
/// As [`LOG_ROOM`].
pub(super) const SCAN: &str = "a scan";
/// As [`LOG_ROOM`].
pub(super) const MANY_ROWS: &str = "an operation on many rows";

/// The writer of a row's latest version, as it matters for locks.
pub(super) enum Writer {
    /// This transaction: it has the row.
    Me,
    /// Another active one, which now holds the row explicitly: wait for it.
    Other,
    /// Another active one, and the request does not wait: its lock was not made explicit.
    Busy(TxnId),
    /// No transaction that has the row.
    None,
}

impl Txn {
    /// The writer of an entry, which holds the row by having written it. Called under the latch of its leaf.
    pub(super) fn writer_of(&self, tree: &TreeState, key: &[u8], entry: &Entry<'_>, wait: LockWait) -> Writer {
        if !entry.has_header() || entry.writer == TxnId::NONE {
            return Writer::None;
        }
        if entry.writer == self.id() {
            return Writer::Me;
        }
        if !self.engine.active.is_active(entry.writer) {
            return Writer::None;
        }
        if !self.waits(wait) {
            let busy = self.engine.locks.is_held_by(entry.writer, &self.owner);
            return if busy { Writer::Busy(entry.writer) } else { Writer::None };
        }
        match self.engine.locks.convert(entry.writer, &self.owner, tree.at.id, key) {
            Converted::Held(_) => Writer::Other,
            // Its outcome is decided, and the entry shows it.
            Converted::Gone => Writer::None,
        }
    }

    /// The writer of the entry's latest version, if this transaction may not act on that version.
    pub(super) fn stale(&self, entry: &Entry<'_>) -> Option<TxnId> {
        (self.is_strict() && self.snapshot_misses(entry)).then_some(entry.writer)
    }

    /// Whether the entry is dead for a locking read: its deletion is committed, or this transaction's own.
    pub(super) fn is_dead(&self, entry: &Entry<'_>) -> bool {
        entry.is_deleted()
            && (entry.writer == self.id()
                || (!self.engine.active.is_active(entry.writer) && self.stale(entry).is_none()))
    }

    /// What a locking scan sees of dead rows.
    pub(super) fn locking_sight(&self) -> Sight {
        Sight { me: self.id(), view: self.strict_serial(), locks: true }
    }

    /// Remembers that the tree has runs of dead rows for this transaction alone.
    pub(super) fn note_dead_in(&self, tree: &Arc<TreeState>) {
        let mut dead_in = self.dead_in.borrow_mut();
        if !dead_in.iter().any(|known| Arc::ptr_eq(known, tree)) {
            dead_in.push(tree.clone());
        }
    }

    /// Whether a request may wait.
    fn waits(&self, wait: LockWait) -> bool {
        !self.longest_wait(wait).is_zero()
    }

    /// How long a request may wait: zero if it must not wait.
    pub(super) fn longest_wait(&self, wait: LockWait) -> Duration {
        match wait {
            _ if !self.engine.may_wait => Duration::ZERO,
            LockWait::Wait => self.engine.lock_wait_timeout(),
            LockWait::For(most) => most,
            LockWait::NoWait | LockWait::SkipLocked => Duration::ZERO,
        }
    }

    fn wait(&self, request: &LockRequest<'_>, wait: LockWait) -> Result<()> {
        let interrupt = self.interrupt.get().map(|interrupt| &**interrupt);
        let waited = self.engine.locks.wait(request, self.longest_wait(wait), interrupt);
        waited.map_err(|error| self.note(error))
    }

    /// The handle by which other threads interrupt this transaction.
    pub fn interrupt(&self) -> &Arc<Interrupt> {
        self.interrupt.get_or_init(Arc::default)
    }

    /// Sets the tag of the transaction.
    pub fn set_tag(&mut self, tag: u64) {
        self.options.tag = tag;
        self.owner.set_tag(tag);
    }

    /// Fails if the transaction was interrupted. Long operations and waits call it.
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

    /// Waits until the log has room for a mini-transaction of this size. Called before one that cannot be
    /// interrupted; another thread may take the room in between.
    pub(super) fn wait_for_log_room(&self, size: MtrSize) -> Result<()> {
        Mtr::begin_while(self.engine.pool(), size, || self.go_on(LOG_ROOM)).map(drop)
    }

    /// The error for acting on a version that the snapshot does not see.
    pub(super) fn conflict(&self, writer: TxnId, tree: &TreeState, key: &[u8]) -> Error {
        self.note(Error::WriteConflict { writer, on: LockedOn::row(tree.at.id, key) })
    }

    /// Waits, with no latch held, until the key can be locked.
    pub(super) fn wait_to_lock(&self, tree: &TreeState, key: &[u8], mode: Mode, wait: LockWait) -> Result<()> {
        self.wait(&LockRequest::key(&self.owner, tree.at.id, key, mode), wait)
    }

    /// Locks a key that belongs to no row. Returns whether this transaction had no lock there before: then it
    /// may release this one.
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

    /// Waits, with no latch held, until the row can be locked; the caller reads the row again. Returns whether this
    /// transaction had no lock there before: then it may release the lock that the wait may have granted.
    pub(super) fn wait_for_row(&self, tree: &TreeState, key: &[u8], mode: Mode) -> Result<bool> {
        let new = !self.engine.locks.holds(&self.owner, tree.at.id, key);
        self.wait_to_lock(tree, key, mode, self.options.wait).map(|()| new)
    }

    /// Locks an interval of keys, present or not.
    pub(super) fn lock_range(
        &self,
        tree: &TreeState,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        mode: Mode,
        wait: LockWait,
    ) -> Result<()> {
        self.check_not_prepared()?;
        KeySpan::with(lo, hi, |span| {
            let request = LockRequest::span(&self.owner, tree.at.id, span, mode);
            while self.engine.locks.add_range(&request).is_err() {
                self.wait(&request, wait)?;
            }
            Ok::<(), Error>(())
        })?;
        tree.is_there(self.id(), &self.engine.active)
    }
}
