//! Steps of a locking scan.

use super::{By, ScanState, Value, is_beyond};
use crate::btree::{Node, OVERFLOW};
use crate::error::{Error, Result};
use crate::txn::dead::Beyond;
use crate::txn::locking::Writer;
use crate::txn::locks::{KeySpan, LockRequest, Mode};
use crate::txn::options::{Isolation, LockWait};
use crate::txn::read::{LockedRow, RowLock};
use std::ops::Bound;

/// Whether a run of dead rows reaches `from` or goes beyond it.
fn reaches(beyond: Option<Beyond>, from: &[u8], forward: bool) -> bool {
    match beyond {
        Some(Beyond::End) => true,
        Some(Beyond::Key(key)) if forward => &key[..] >= from,
        Some(Beyond::Key(key)) => &key[..] <= from,
        None => false,
    }
}

impl ScanState {
    /// Whether it locks the intervals between the rows. A scan that skips locked rows does not: new rows may
    /// appear between its rows, and it must not wait there.
    pub(super) fn locks_ranges(&self, by: By<'_>) -> bool {
        by.txn.options.isolation != Isolation::ReadCommitted && self.wait != LockWait::SkipLocked
    }

    /// Called before each step that locks rows.
    pub(super) fn prepare_to_lock(&self, by: By<'_>) -> Result<()> {
        by.txn.check_not_prepared()?;
        // Without ranges it does not lock the keys between the rows.
        if self.locks_ranges(by) { Ok(()) } else { by.txn.stop_following() }
    }

    /// Moves to the next row beyond `near`, if that is in the leaf where the search begins: locks and reads
    /// the row under one latch, without an allocation unless dead rows lie between. Returns `false` at the
    /// end of the leaf or of the scan, for a long value, if a lock is not free, and after an error: then
    /// [`ScanState::step_locked`] does the whole step. The interval up to the row may already be locked then.
    ///
    /// If the search begins beyond a run of dead rows, other leaves may lie between: the run is looked up
    /// again when the interval is locked (rule 2 of [`super::dead`]).
    pub(super) fn lock_in_leaf(&mut self, by: By<'_>, mode: Mode, near: Bound<&[u8]>, forward: bool) -> bool {
        let ranges = self.locks_ranges(by);
        let (txn, tree, wait) = (by.txn, &self.tree, self.wait);
        let (engine, id) = (&*txn.engine, tree.at.id);
        if tree.usable(txn.id(), by.view).is_err() {
            return false;
        }
        let dead = tree.dead.beyond(near, forward, txn.locking_sight());
        let (from, after) = match (&dead, near) {
            (Some(Beyond::End), _) => return false,
            (Some(Beyond::Key(key)), _) => (&key[..], !forward),
            (None, Bound::Included(key)) => (key, false),
            (None, Bound::Excluded(key)) => (key, true),
            (None, Bound::Unbounded) if forward => (&[][..], false),
            (None, Bound::Unbounded) => return false,
        };
        let still_dead = || reaches(tree.dead.beyond(near, forward, txn.locking_sight()), from, forward);
        let limit = if forward { self.limit.1.get() } else { self.limit.0.get() };
        let mut value = self.value.take_memory();
        let key = &mut self.next_key;
        let locked = engine.pool().retry(|| {
            let leaf = tree.at.leaf_shared_by(&engine.space, from, &txn.leaves)?;
            let node = Node::open(&leaf)?;
            let at = node.search_inside(from)?;
            let slot = at.slot + usize::from(at.found && after == forward);
            let slot = match (forward, txn.pass_dead(tree, &node, slot, (forward, dead.is_some()))?) {
                (true, slot) if slot < node.count() => slot,
                (false, slot) if slot > 0 => slot - 1,
                _ => return Ok(None),
            };
            node.key_into(slot, key)?;
            let entry = node.entry(slot)?;
            if is_beyond(key, limit, forward) || entry.is_deleted() || entry.flags & OVERFLOW != 0 {
                return Ok(None);
            }
            let writer = txn.writer_of(tree, key, &entry, wait);
            let mine = matches!(writer, Writer::Me);
            if !mine && !matches!(writer, Writer::None) {
                return Ok(None);
            }
            let newly_locked = if ranges {
                let place = Bound::Included(&key[..]);
                let (low, high) = if forward { (near, place) } else { (place, near) };
                let locked = KeySpan::with(low, high, |span| {
                    let request = LockRequest::span(&txn.owner, id, span, mode);
                    if mine { engine.locks.add_range(&request) } else { engine.locks.add_range_to(&request, key) }
                });
                if dead.is_some() && !still_dead() {
                    return Ok(None);
                }
                locked.map(|()| false)
            } else if mine {
                txn.keeps_written_rows();
                Ok(false)
            } else {
                engine.locks.room(&txn.owner, id, key)?;
                engine.locks.try_new_point(&txn.owner, id, key, mode)
            };
            let Ok(newly_locked) = newly_locked else { return Ok(None) };
            tree.is_there(txn.id(), &engine.active)?;
            if txn.stale(&entry).is_some() {
                return Ok(None);
            }
            value.clear();
            value.extend_from_slice(entry.value);
            Ok(Some((leaf.id(), newly_locked)))
        });
        self.value = Value::Bytes(value);
        // [`ScanState::step_locked`] meets an error again.
        let Ok(Some((leaf, newly_locked))) = locked else { return false };
        if dead.is_some() {
            self.cursor.read_ahead().came_to(engine.pool(), leaf);
        } else {
            self.cursor.read_ahead().sought(leaf);
        }
        self.rows_in_leaf += 1;
        std::mem::swap(&mut self.locked_key, &mut self.next_key);
        (self.on_entry, self.newly_locked, self.deleted, self.undone) = (true, newly_locked, None, txn.undone);
        true
    }

    pub(super) fn step_locked(
        &mut self,
        by: By<'_>,
        mode: Mode,
        mut from: Bound<Vec<u8>>,
        forward: bool,
    ) -> Result<bool> {
        let ranges = self.locks_ranges(by);
        loop {
            let ahead = Some((self.cursor.read_ahead(), &mut self.rows_in_leaf));
            let mut next = by.txn.next_alive(&self.tree, &from, forward, ahead)?;
            let limit = if forward { self.limit.1.get() } else { self.limit.0.get() };
            let beyond = next.as_ref().is_none_or(|key| is_beyond(key, limit, forward));
            if ranges {
                // The interval excludes the row's own key, which is locked with the row: that may have to
                // wait for the row's owner, which may still change the row.
                let far = match &next {
                    Some(key) if !beyond => Bound::Excluded(&key[..]),
                    _ => limit,
                };
                let near = from.as_ref().map(|key| &key[..]);
                let (low, high) = if forward { (near, far) } else { (far, near) };
                by.txn.lock_range(&self.tree, low, high, mode, self.wait)?;
                let again = by.txn.next_alive(&self.tree, &from, forward, None)?;
                if again != next {
                    continue;
                }
            }
            if beyond {
                return Ok(false);
            }
            self.rows_in_leaf += 1;
            let key = next.take().expect("it is not beyond");
            let how = if ranges { RowLock::Range } else { RowLock::IfThere };
            match by.txn.lock_row_how(&self.tree, &key, mode, how, self.wait) {
                Ok(LockedRow { value: Some(value), newly_locked }) => {
                    self.value = Value::Bytes(value);
                    self.locked_key = key;
                    (self.on_entry, self.newly_locked) = (true, newly_locked);
                    return Ok(true);
                }
                // It waited for a row that is gone.
                Ok(LockedRow { newly_locked: true, .. }) if !ranges => {
                    by.txn.engine.locks.give_back(&by.txn.owner, self.tree.at.id, &key);
                }
                Ok(_) => {}
                Err(Error::LockTimeout { .. }) if self.wait == LockWait::SkipLocked => {}
                Err(error) => return Err(error),
            }
            from = Bound::Excluded(key);
        }
    }
}
