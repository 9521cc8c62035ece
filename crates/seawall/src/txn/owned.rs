//! A scan that outlives a borrow: each call takes the transaction.
//!
//! 1. A seek binds it to one life of one transaction ([`Txn::life`]). In any other life it continues by key,
//!    in that life's view; no value that it read before is returned there.
//! 2. It has no view of its own. At repeatable read each call uses the transaction's view. At read committed
//!    a seek puts a view in a slot, which the transaction empties when it or its statement ends, so that an
//!    idle cursor does not hold back purge. A cursor that locks needs no view between calls: what it has
//!    locked cannot be dropped.
//! 3. It never stands on an entry outside its range.

use super::locks::Mode;
use super::options::{Isolation, LockWait};
use super::scan::{By, ScanLock, ScanState, is_beyond};
use super::transaction::{LentView, Txn};
use super::trees::TreeState;
use crate::btree::{KeyBound, ReadAhead, Seek};
use crate::error::{Error, Result};
use crate::format::TreeId;
use std::ops::Bound;
use std::sync::Arc;

/// A scan that outlives a borrow.
#[derive(Debug, Default)]
pub struct OwnedScan {
    /// `None` before the first reset.
    state: Option<ScanState>,
    bounds: (KeyBound, KeyBound),
    /// The requested lock, and how to wait.
    lock: Option<Mode>,
    wait: Option<LockWait>,
    /// The life that its position belongs to; 0 for none.
    life: u64,
    /// Read committed: the slot of its view. Made once.
    view: Option<Arc<LentView>>,
}

impl Drop for OwnedScan {
    fn drop(&mut self) {
        self.give_up_view();
    }
}

fn no_tree() -> Error {
    Error::Usage("the cursor has no tree: reset it to one first".into())
}

#[cold]
fn gone() -> Error {
    Error::Usage(
        "the cursor was moved by another transaction, or by one or a statement that has ended: seek again".into(),
    )
}

/// Replaces a seek that lies beyond an end of the range by a seek to that end.
fn inside<'k>(to: Seek<'k>, start: Bound<&'k [u8]>, end: Bound<&'k [u8]>) -> Seek<'k> {
    let (start, end) = (
        match start {
            Bound::Included(key) => Seek::AtLeast(key),
            Bound::Excluded(key) => Seek::After(key),
            Bound::Unbounded => Seek::First,
        },
        match end {
            Bound::Included(key) => Seek::AtMost(key),
            Bound::Excluded(key) => Seek::Before(key),
            Bound::Unbounded => Seek::Last,
        },
    );
    match (to, start, end) {
        (Seek::First, start, _) => start,
        (Seek::Last, _, end) => end,
        (Seek::AtLeast(key), Seek::AtLeast(first), _) if key < first => start,
        (Seek::AtLeast(key), Seek::After(first), _) if key <= first => start,
        (Seek::After(key), Seek::AtLeast(first) | Seek::After(first), _) if key < first => start,
        (Seek::AtMost(key), _, Seek::AtMost(last)) if key > last => end,
        (Seek::AtMost(key), _, Seek::Before(last)) if key >= last => end,
        (Seek::Before(key), _, Seek::AtMost(last) | Seek::Before(last)) if key > last => end,
        (to, _, _) => to,
    }
}

/// Whether `to` can only find keys outside the range, which must not be locked.
fn is_past(to: Seek<'_>, start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    let key_of = |bound| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    };
    match to {
        Seek::First | Seek::Last => false,
        Seek::AtLeast(key) => is_beyond(key, end, true),
        Seek::After(key) => key_of(end).is_some_and(|end: &[u8]| key >= end),
        Seek::AtMost(key) => is_beyond(key, start, false),
        Seek::Before(key) => key_of(start).is_some_and(|start: &[u8]| key <= start),
    }
}

impl OwnedScan {
    /// Makes it a scan of `tree` within these bounds, without a position. Keeps its memory.
    pub fn reset(
        &mut self,
        tree: &Arc<TreeState>,
        (lock, wait): (Option<Mode>, Option<LockWait>),
        (start, end): (Bound<&[u8]>, Bound<&[u8]>),
    ) {
        self.give_up_view();
        let state = match &mut self.state {
            Some(state) => {
                state.reset(tree);
                state
            }
            None => self.state.insert(ScanState::new(tree, ScanLock::None, LockWait::Wait)),
        };
        state.keep_to(start, end);
        self.bounds.0.set(start);
        self.bounds.1.set(end);
        (self.lock, self.wait, self.life) = (lock, wait, 0);
    }

    /// Gives up its position and its view until the next seek.
    pub fn release(&mut self) {
        self.give_up_view();
        if let Some(state) = &mut self.state {
            state.leave();
        }
    }

    fn give_up_view(&mut self) {
        if let Some(lent) = &self.view {
            let view = lent.lock().view.take();
            drop(view);
        }
    }

    /// Its read-ahead; `None` before the first reset.
    pub fn read_ahead(&mut self) -> Option<&mut ReadAhead> {
        self.state.as_mut().map(ScanState::read_ahead)
    }

    /// The tree's id, and the number of its opening; `None` before the first reset.
    #[must_use]
    pub fn tree(&self) -> Option<(TreeId, u64)> {
        self.state.as_ref().map(ScanState::tree)
    }

    /// Whether it stands on an entry.
    #[must_use]
    pub fn is_on_entry(&self) -> bool {
        self.state.as_ref().is_some_and(ScanState::is_on_entry)
    }

    /// Whether it took a new lock on the row it stands on, not on a range.
    #[must_use]
    pub fn newly_locked(&self) -> bool {
        self.state.as_ref().is_some_and(ScanState::newly_locked)
    }

    /// The key it stands on. If it stands on none: any key that it has passed.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.state.as_ref().map_or(&[], ScanState::key)
    }

    /// Calls `f` with the scan, its view in the transaction, and its bounds. `anew`: the call is a seek, which sets the
    /// kind of lock and, at read committed, takes a new view.
    fn with<T>(
        &mut self,
        txn: &Txn,
        anew: bool,
        f: impl FnOnce(&mut ScanState, By<'_>, &(KeyBound, KeyBound)) -> Result<T>,
    ) -> Result<T> {
        let (state, bounds) = (self.state.as_mut().ok_or_else(no_tree)?, &self.bounds);
        txn.admit(state.tree_state())?;
        let mut anew = anew;
        let lock = self.lock.map_or(ScanLock::None, ScanLock::Rows).of(txn, self.wait);
        // The level of isolation may have changed since the last call.
        if std::mem::replace(&mut self.life, txn.life()) != txn.life() || (lock.0 != state.lock() && !anew) {
            state.is_outdated();
            anew = true;
        }
        if anew {
            state.set_lock(lock);
        }
        match (state.lock(), txn.options.isolation) {
            (ScanLock::None, Isolation::RepeatableRead) => {
                let mut view = txn.view.borrow();
                if view.is_none() {
                    drop(view);
                    txn.take_snapshot_for_read();
                    view = txn.view.borrow();
                }
                let view = view.as_ref().expect("it was taken just now");
                f(state, By { txn, view }, bounds)
            }
            (ScanLock::None, _) => {
                let slot = txn.lend(&mut self.view);
                if txn.owner.is_follower() && (anew || slot.lock().view.is_none()) {
                    txn.see_followed();
                }
                let mut lent = slot.lock();
                if lent.view.is_none() {
                    state.is_outdated();
                }
                if anew || lent.view.is_none() {
                    lent.view = Some(txn.pin());
                }
                let view = lent.view.as_ref().expect("it was put there just now");
                f(state, By { txn, view }, bounds)
            }
            (ScanLock::Rows(_), _) => {
                let view = txn.pin();
                f(state, By { txn, view: &view }, bounds)
            }
        }
    }

    /// Moves to an entry of the range; returns whether there is one.
    ///
    /// # Errors
    /// [`Error::Usage`] before the first reset, and for a tree of another database; otherwise as
    /// [`super::Scan::seek`].
    pub fn seek(&mut self, txn: &Txn, to: Seek<'_>) -> Result<bool> {
        let sought = self.with(txn, true, |state, by, (start, end)| {
            state.leave();
            let to = inside(to, start.get(), end.get());
            Ok(!is_past(to, start.get(), end.get()) && state.seek(by, to)?)
        })?;
        Ok(sought && self.is_inside(to.is_forward()))
    }

    /// Moves to the next entry of the range, or backward to the previous one; returns whether there is one.
    /// After a restart of the transaction it continues beyond the key on which it stood.
    ///
    /// # Errors
    /// As [`OwnedScan::seek`].
    pub fn step(&mut self, txn: &Txn, forward: bool) -> Result<bool> {
        Ok(self.with(txn, false, |state, by, _| state.step(by, forward))? && self.is_inside(forward))
    }

    /// Steps, and calls `visit` with the key and the value of each entry, until it returns `false` or the range ends.
    /// Returns how many entries it visited.
    ///
    /// # Errors
    /// As [`OwnedScan::step`] and [`OwnedScan::entry`]. The entries before have been visited; the next step comes to
    /// the one that could not be.
    pub fn step_while(&mut self, txn: &Txn, forward: bool, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<usize> {
        self.with(txn, false, |state, by, (start, end)| {
            let limit = if forward { end } else { start };
            state.step_while(by, forward, limit.get(), visit)
        })
    }

    /// Returns whether it stands inside its range. If not, it leaves its entry.
    fn is_inside(&mut self, forward: bool) -> bool {
        let limit = if forward { self.bounds.1.get() } else { self.bounds.0.get() };
        let inside = !is_beyond(self.key(), limit, forward);
        if let Some(state) = self.state.as_mut().filter(|_| !inside) {
            state.leave();
        }
        inside
    }

    /// Key and value of the entry it stands on.
    ///
    /// # Errors
    /// [`Error::Usage`] if it stands on none, if the entry was read in another transaction or in one that has
    /// ended, and if a rollback to a savepoint has undone its long value; reading errors.
    pub fn entry(&mut self, txn: &Txn) -> Result<(&[u8], &[u8])> {
        let state = self.state.as_mut().ok_or_else(no_tree)?;
        txn.admit(state.tree_state())?;
        if self.life != txn.life() {
            return Err(gone());
        }
        let lock = state.lock();
        // At read committed the view may have been released since the cursor came here.
        if lock == ScanLock::None && txn.options.isolation != Isolation::RepeatableRead {
            if let Some(lent) = &self.view {
                let lent = lent.lock();
                return match &lent.view {
                    Some(view) => state.entry(By { txn, view }),
                    None => Err(gone()),
                };
            }
        }
        if state.has_value() {
            return state.lend();
        }
        let view = if lock == ScanLock::None { txn.view() } else { txn.pin() };
        state.entry(By { txn, view: &view })
    }

    /// Deletes the entry it stands on; as [`super::Scan::delete`].
    ///
    /// # Errors
    /// As [`OwnedScan::entry`], and as [`Txn::change`].
    pub fn delete(&mut self, txn: &mut Txn) -> Result<bool> {
        let state = self.state.as_mut().ok_or_else(no_tree)?;
        txn.admit(state.tree_state())?;
        if self.life != txn.life() {
            let why = "the cursor was moved by another transaction, or by one that has ended: seek again";
            return Err(Error::Usage(why.into()));
        }
        state.delete(txn)
    }
}

impl Txn {
    /// Returns the slot where a cursor keeps its view, and enters it in the list of this transaction. The
    /// transaction empties the slot when it or its statement ends.
    fn lend<'c>(&self, slot: &'c mut Option<Arc<LentView>>) -> &'c Arc<LentView> {
        let to = slot.as_ref().map_or(0, |lent| lent.lock().to);
        if to != self.life() {
            if to != 0 {
                // The slot stays in the list of another transaction, without the view.
                if let Some(lent) = slot.take() {
                    lent.lock().view = None;
                }
            }
            let lent = slot.get_or_insert_with(Arc::default);
            lent.lock().to = self.life();
            let mut list = self.lent.borrow_mut();
            if list.len() == list.capacity() {
                // Removes the slots of cursors that were dropped, or went to other transactions.
                list.retain(|lent| Arc::strong_count(lent) > 1);
                let few = list.len().max(4);
                list.reserve(few);
            }
            list.push(lent.clone());
        }
        slot.get_or_insert_with(Arc::default)
    }
}
