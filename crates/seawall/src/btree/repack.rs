//! Lays out the entries of neighbouring leaves in as many leaves as they need.
//!
//! 1. Nothing here touches a page: rows are borrowed from latched leaves, and the result is fences and packed
//!    entries.
//! 2. The new leaves cover the old ones, from the first lower fence to the last upper one, without a gap.
//! 3. No leaf holds more bytes than the limit, unless it holds a single row: a single row always fits a page.
//! 4. Keys, order and values stay. Headers that no view needs are left out.

use super::Damaged;
use super::edit::{Packed, prefix_between};
use super::entry::{HEADER, VERSION_BYTES};
use super::node::{Node, SLOT_BYTES, separator};
use crate::btree::Entry;
use crate::format::TxnId;
use std::ops::Range;

/// A leaf may leave up to one in this many of its rows to the next leaf if that gives a shorter fence.
const CUT_EARLIER: usize = 8;

#[derive(Debug)]
struct Row<'p> {
    payload: &'p [u8],
    /// Its header is left out.
    bare: bool,
}

/// Rows of neighbouring leaves, in order.
#[derive(Debug, Default)]
pub(super) struct Rows<'p> {
    rows: Vec<Row<'p>>,
    /// All keys, one after the other.
    keys: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
    /// Bytes of all rows before each row, with whole keys; the last is the sum of all.
    sums: Vec<usize>,
}

/// A leaf that is to be written: some rows between two fences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub rows: Range<usize>,
    pub lower: Vec<u8>,
    /// `None` is infinite.
    pub upper: Option<Vec<u8>>,
}

impl Piece {
    fn prefix_len(&self) -> usize {
        prefix_between(&self.lower, self.upper.as_deref())
    }
}

impl<'p> Rows<'p> {
    /// Adds the rows of a leaf after the present ones, without headers that no view needs: those of entries
    /// that are not deleted and whose writer is below `horizon`.
    pub(super) fn add(&mut self, leaf: &Node<'p>, horizon: TxnId) -> Result<Range<usize>, Damaged> {
        let (first, mut key) = (self.len(), Vec::new());
        let mut sum = self.sums.pop().unwrap_or(0);
        for slot in 0..leaf.count() {
            leaf.key_into(slot, &mut key)?;
            let payload = leaf.payload(slot)?;
            let bare = Entry::decode(payload).is_ok_and(|entry| entry.is_elidable(horizon));
            self.sums.push(sum);
            sum += SLOT_BYTES + key.len() + payload.len() - if bare { VERSION_BYTES } else { 0 };
            self.keys.extend_from_slice(&key);
            self.ends.push(self.keys.len());
            self.rows.push(Row { payload, bare });
        }
        self.sums.push(sum);
        Ok(first..self.len())
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    fn key(&self, row: usize) -> &[u8] {
        &self.keys[row.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[row]]
    }

    /// Bytes of these rows in a leaf with these fences, including the fences.
    fn bytes(&self, rows: &Range<usize>, lower: &[u8], upper: Option<&[u8]>) -> usize {
        let whole = self.sums[rows.end] - self.sums[rows.start];
        let prefix_bytes = rows.len() * prefix_between(lower, upper);
        (whole + lower.len() + upper.map_or(0, <[u8]>::len)).saturating_sub(prefix_bytes)
    }

    /// Returns the longest piece from `first` on that keeps to the limit and has at least `least` rows, cut
    /// before a short fence; the last one ends at `upper`. `None` if `least` rows do not fit.
    pub(super) fn piece(
        &self,
        first: usize,
        least: usize,
        lower: &[u8],
        upper: Option<&[u8]>,
        limit: usize,
    ) -> Option<Piece> {
        let all = first..self.len();
        if self.bytes(&all, lower, upper) <= limit {
            return Some(Piece { rows: all, lower: lower.to_vec(), upper: upper.map(<[u8]>::to_vec) });
        }
        let fence = |end: usize| separator(self.key(end - 1), self.key(end));
        let least = first + least.max(1);
        let fits = |&end: &usize| self.bytes(&(first..end), lower, Some(fence(end))) <= limit;
        let end = (least..self.len()).take_while(fits).last()?;
        // Every descent reads a fence: a shorter one is worth a few rows.
        let earliest = (end - (end - first) / CUT_EARLIER).max(least);
        let end = (earliest..=end).rev().min_by_key(|&end| fence(end).len()).unwrap_or(end);
        Some(Piece { rows: first..end, lower: lower.to_vec(), upper: Some(fence(end).to_vec()) })
    }

    /// Returns all pieces from row `first` on, at least one.
    pub(super) fn pieces(&self, first: usize, lower: &[u8], upper: Option<&[u8]>, limit: usize) -> Vec<Piece> {
        let (mut pieces, mut at, mut from) = (Vec::new(), first, lower.to_vec());
        loop {
            let piece = self.piece(at, 1, &from, upper, limit).unwrap_or_else(|| self.single(at, &from, upper));
            at = piece.rows.end;
            let beyond = if at < self.len() { piece.upper.clone() } else { None };
            pieces.push(piece);
            match beyond {
                Some(fence) => from = fence,
                None => return pieces,
            }
        }
    }

    /// Returns a piece of one row of any size.
    fn single(&self, row: usize, lower: &[u8], upper: Option<&[u8]>) -> Piece {
        let end = (row + 1).min(self.len());
        let upper = if end < self.len() { Some(separator(self.key(row), self.key(end))) } else { upper };
        Piece { rows: row..end, lower: lower.to_vec(), upper: upper.map(<[u8]>::to_vec) }
    }

    /// Packs those rows of a piece that are in `rows`, for its fences.
    pub(super) fn pack(&self, piece: &Piece, rows: Range<usize>) -> Packed {
        let (prefix_len, mut packed, mut bare) = (piece.prefix_len(), Packed::default(), Vec::new());
        for at in rows {
            let suffix = &self.key(at)[prefix_len..];
            let Row { payload, bare: is_bare } = self.rows[at];
            if is_bare {
                bare.clear();
                bare.push(payload[0] & !HEADER);
                bare.extend_from_slice(&payload[1 + VERSION_BYTES..]);
                packed.push(suffix, &bare);
            } else {
                packed.push(suffix, payload);
            }
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btree::edit::{NewNode, build};
    use crate::btree::node::capacity;
    use crate::format::{PageId, TreeId, UndoPtr};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PAGE_BYTES: usize = 4096;

    fn leaf(id: u32, lower: &[u8], upper: Option<&[u8]>, rows: &[(&Vec<u8>, &Vec<u8>)]) -> Vec<u8> {
        let mut packed = Packed::default();
        let prefix_len = prefix_between(lower, upper);
        rows.iter().for_each(|(key, payload)| packed.push(&key[prefix_len..], payload));
        let mut page = vec![0; PAGE_BYTES];
        let (count, entries) = (packed.count, &packed.bytes[..]);
        let new = NewNode { id: PageId(id), tree: TreeId(16), level: 0, lower, upper, count, entries };
        build(&mut page, &new).unwrap();
        page
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_between_fences_that_close(
            rows in proptest::collection::btree_map(
                (proptest::collection::vec(0u8..3, 0..12), 0..600usize).prop_map(|(head, len)| [head, vec![9; len]].concat()),
                (1u64..20, 0..300usize), 0..60),
            cuts in proptest::collection::vec(0..60usize, 0..4),
            percent in 50..=100usize,
        ) {
            let rows: BTreeMap<Vec<u8>, Vec<u8>> = rows.into_iter().map(|(key, (writer, len))| {
                let mut payload = Vec::new();
                Entry::written(TxnId(writer), UndoPtr(7), &vec![5; len]).encode_into(&mut payload);
                (key, payload)
            }).collect();
            let all: Vec<_> = rows.iter().collect();
            // Leaves that fit their pages, cut at arbitrary places.
            let (mut leaves, mut from, mut lower) = (Vec::new(), 0, Vec::new());
            for at in 1..=all.len() {
                let bytes: usize = all[from..at.min(all.len())].iter().map(|(k, p)| SLOT_BYTES + k.len() + p.len()).sum();
                if at < all.len() && (cuts.contains(&at) || bytes > 1500) {
                    let fence = separator(all[at - 1].0, all[at].0).to_vec();
                    leaves.push(leaf(leaves.len() as u32 + 1, &lower, Some(&fence), &all[from..at]));
                    (from, lower) = (at, fence);
                }
            }
            leaves.push(leaf(leaves.len() as u32 + 1, &lower, None, &all[from..]));
            let horizon = TxnId(10);
            let mut found = Rows::default();
            for page in &leaves {
                found.add(&Node::open(page).unwrap(), horizon).unwrap();
            }
            let limit = capacity(PAGE_BYTES) * percent / 100;
            let pieces = found.pieces(0, &[], None, limit);
            let (mut next, mut fence) = (0, Some(Vec::new()));
            for piece in &pieces {
                prop_assert_eq!(piece.rows.start, next);
                prop_assert_eq!(Some(&piece.lower), fence.as_ref());
                (next, fence) = (piece.rows.end, piece.upper.clone());
                let packed = found.pack(piece, piece.rows.clone());
                let mut page = vec![0; PAGE_BYTES];
                let new = NewNode {
                    id: PageId(99), tree: TreeId(16), level: 0, lower: &piece.lower, upper: piece.upper.as_deref(),
                    count: packed.count, entries: &packed.bytes,
                };
                prop_assert!(build(&mut page, &new).is_ok());
                let node = Node::open(&page).unwrap();
                node.validate().unwrap();
                prop_assert!(node.used_bytes() <= limit || node.count() == 1);
                prop_assert_eq!(node.used_bytes(), found.bytes(&piece.rows, &piece.lower, piece.upper.as_deref()));
                for (slot, row) in piece.rows.clone().enumerate() {
                    let (old, new) = (Entry::decode(all[row].1).unwrap(), node.entry(slot).unwrap());
                    prop_assert_eq!(&node.key(slot).unwrap(), all[row].0);
                    prop_assert_eq!(old.value, new.value);
                    prop_assert_eq!(new.has_header(), !old.is_elidable(horizon));
                    prop_assert!(!new.has_header() || (old.writer, old.undo) == (new.writer, new.undo));
                }
            }
            prop_assert_eq!((next, fence), (all.len(), None));
        }
    }
}
