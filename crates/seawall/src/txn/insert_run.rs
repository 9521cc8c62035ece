//! Insertions that share one undo record.
//!
//! A transaction that inserts many rows into one leaf, or at the end of a tree, needs no undo record for each: one
//! [`UndoRecord::InsertRange`](super::undo::UndoRecord::InsertRange) stands for all rows of a key range whose entries
//! have its position as their undo pointer.
//!
//! 1. A run begins with the second insertion into one leaf. Scattered insertions have short records of their own.
//! 2. The range is the part of that leaf's range whose keys have a common prefix: that of the first two keys, without
//!    its last byte. In a load in key order one record stands for 65,536 integers. The range never grows.
//! 3. A run goes on only while its record is the transaction's last one, and no savepoint has been made since the run
//!    began. So undoing the record undoes nothing from before a savepoint, and never skips a later change.
//! 4. Rollback walks through the range leaf by leaf (`rollback.rs`, 4), past all rows that others have inserted there
//!    meanwhile. The prefix bounds this walk: the last leaf's range is the rest of the tree.

use super::undo::UndoRecord;
use crate::btree::{Node, common_prefix};
use crate::format::{PageId, TreeId, UndoPtr};
use smallvec::SmallVec;
use std::cell::Cell;

/// The last insertion of a transaction.
#[derive(Debug)]
pub(super) struct InsertRun {
    /// Its undo record; [`UndoPtr::NONE`] if the next insertion needs one of its own.
    undo: Cell<UndoPtr>,
    tree: TreeId,
    leaf: PageId,
    /// Whether the record is that of a range, from `low` to below `high`. If not, `low` is the key.
    is_range: bool,
    low: SmallVec<[u8; KEY_BYTES]>,
    high: Option<Vec<u8>>,
}

/// Keys up to this length are kept without an allocation: most transactions insert a few rows.
const KEY_BYTES: usize = 32;

impl InsertRun {
    pub(super) fn new() -> Self {
        let (undo, low) = (Cell::new(UndoPtr::NONE), SmallVec::new());
        Self { undo, tree: TreeId(0), leaf: PageId::NONE, is_range: false, low, high: None }
    }

    /// Ends the run.
    pub(super) fn end(&self) {
        self.undo.set(UndoPtr::NONE);
    }

    /// The record that also stands for the insertion of `key`, if there is one. `last` is the transaction's last
    /// record.
    pub(super) fn covering(&self, last: UndoPtr, tree: TreeId, key: &[u8]) -> Option<UndoPtr> {
        let covers = self.is_range
            && self.follows(last, tree)
            && *self.low <= *key
            && self.high.as_deref().is_none_or(|high| key < high);
        covers.then_some(last)
    }

    fn follows(&self, last: UndoPtr, tree: TreeId) -> bool {
        last != UndoPtr::NONE && self.undo.get() == last && self.tree == tree
    }

    /// Returns the record for the insertion of `key` into `leaf`, which no record covers. It is a record of a range of
    /// the leaf if the last insertion was into this leaf too, the two keys have a common prefix, and that record has at
    /// most `room` bytes; otherwise a record of the key alone. The run is over until the record is written
    /// ([`Self::inserted`]).
    pub(super) fn record<'r>(
        &'r mut self,
        last: UndoPtr,
        (tree, root): (TreeId, PageId),
        leaf: &Node<'_>,
        key: &'r [u8],
        room: usize,
    ) -> UndoRecord<'r> {
        let goes_on = self.follows(last, tree) && self.leaf == leaf.id() && !self.is_range;
        let common = common_prefix(&self.low, key);
        self.end();
        self.low.clear();
        if goes_on && common > 1 {
            let prefix = &key[..common - 1];
            self.low.extend_from_slice(prefix.max(leaf.lower()));
            let above = successor(prefix);
            self.high = match leaf.upper() {
                Some(upper) if above.as_deref().is_none_or(|above| upper < above) => Some(upper.to_vec()),
                _ => above,
            };
            let range = UndoRecord::InsertRange { tree, root, low: &self.low, high: self.high.as_deref() };
            if range.room_max() <= room {
                return range;
            }
        }
        UndoRecord::Insert { tree, root, key }
    }

    /// Notes that the record for the insertion of `key` is at `undo`.
    pub(super) fn inserted(&mut self, undo: UndoPtr, (tree, leaf): (TreeId, PageId), key: &[u8], is_range: bool) {
        self.undo.set(undo);
        (self.tree, self.leaf, self.is_range) = (tree, leaf, is_range);
        if !is_range {
            self.low.clear();
            self.low.extend_from_slice(key);
        }
    }
}

/// The least key above all keys that begin with `prefix`; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let len = prefix.iter().rposition(|&byte| byte < u8::MAX)? + 1;
    let mut above = prefix[..len].to_vec();
    above[len - 1] += 1;
    Some(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_is_above_all_keys_with_the_prefix() {
        assert_eq!(successor(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(successor(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(successor(&[0xff, 0xff]), None);
        assert_eq!(successor(&[]), None);
    }
}
