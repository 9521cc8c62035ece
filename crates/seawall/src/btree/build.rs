//! Builds a tree from sorted rows: leaves are written once, from left to right, full up to a limit.
//!
//! 1. The tree is whole after each mini-transaction: its last leaf is empty and takes the next rows. A step
//!    builds that leaf and the ones after it, the last of them empty again, and adds them to their parent. So
//!    a check always finds a valid tree, and a rollback can free it from its root.
//! 2. Rows have no headers: every view that may use the tree sees them. The caller keeps other transactions
//!    out until its own has committed, and older views out for ever ([`crate::txn::TreeState`]).
//! 3. A leaf ends at the last fence up to which its rows fit the limit, or at one of the shorter fences just
//!    before it. A single row always fits.
//! 4. Building has no redo record kind of its own. A step logs each leaf once, and latches as a split does:
//!    the parent, its last child, then space pages. Every call that can stop ([`Stop`]) precedes the first
//!    change.
//! 5. Branches are filled by inserting at their end; a full one is split there, so the ones left behind are
//!    full.

use super::Tree;
use super::edit::{Packed, prefix_between};
use super::entry::{OVERFLOW, OverflowRef, inline_value_max};
use super::node::{Node, SLOT_BYTES, capacity, key_bytes_max, separator};
use super::overflow::{OverflowWriter, one_page_value_max, write_one_page};
use super::redo::{Build, Insert};
use super::split::CHILD_BYTES;
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::PageId;
use crate::log::MTR_BYTES_MAX;
use crate::space::{Purpose, Reserved, Space, TAKEN_AT_ONCE_MAX};
use std::ops::Range;

/// Leaves that one step writes, bytes.
const STEP_BYTES: usize = 160 << 10;
/// A leaf may leave up to one in this many of its rows to the next leaf if that gives a shorter fence.
const CUT_EARLIER: usize = 8;
/// Pages that a step needs in memory besides leaves and their space maps.
const OTHERS_LATCHED: usize = 8;

const fn leaves_at_once(page_bytes: usize) -> usize {
    if STEP_BYTES / page_bytes < TAKEN_AT_ONCE_MAX { STEP_BYTES / page_bytes } else { TAKEN_AT_ONCE_MAX }
}

/// Rule 4: leaves, an empty one, and their keys in the parent fit a mini-transaction.
const _: () = {
    let mut page_bytes = crate::format::page::PAGE_BYTES_MIN;
    while page_bytes <= crate::format::page::PAGE_BYTES_MAX {
        let keys = 2 * (leaves_at_once(page_bytes) + 1) * (key_bytes_max(page_bytes) + 64);
        assert!(leaves_at_once(page_bytes) >= 4);
        assert!(leaves_at_once(page_bytes) * (page_bytes + 64) + keys + (4 << 10) <= MTR_BYTES_MAX);
        page_bytes *= 2;
    }
};

/// A row that waits for its leaf. Its key and then its payload lie in [`Builder::bytes`].
#[derive(Debug, Clone, Copy)]
struct Row {
    at: usize,
    key_len: usize,
    payload_len: usize,
    /// Bytes that all rows before it take in leaves, with whole keys.
    before: usize,
}

impl Row {
    fn leaf_bytes(self) -> usize {
        SLOT_BYTES + self.key_len + self.payload_len
    }
}

/// A leaf that is to be written: rows between two fences.
#[derive(Debug)]
struct Piece {
    rows: Range<usize>,
    lower: Vec<u8>,
    /// `None` is infinite.
    upper: Option<Vec<u8>>,
}

/// A piece with its entries packed for its fences.
struct Leaf<'b> {
    lower: &'b [u8],
    upper: Option<&'b [u8]>,
    packed: Packed,
}

/// The result of a step.
enum Step {
    /// This many leaves are written.
    Wrote { leaves: usize, last: PageId },
    /// The root is the only leaf.
    RootIsLeaf,
    /// The parent has no room for a separator of this many bytes.
    ParentFull(usize),
}

/// Fills an empty tree.
#[derive(Debug)]
pub struct Builder {
    tree: Tree,
    /// Bytes up to which a leaf is filled.
    limit: usize,
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// Leaves that are cut and not yet written.
    pieces: Vec<Piece>,
    /// The next leaf: its first row, its lower fence, the largest end up to which its rows are known to fit,
    /// and the next end to try.
    start: usize,
    lower: Vec<u8>,
    fits: usize,
    next_end: usize,
    /// The page written last.
    last: PageId,
}

impl Builder {
    /// Prepares to fill a tree that is empty and not in use by others. Leaves are filled up to
    /// `fill_percent`, 50 to 100.
    #[must_use]
    pub fn new(tree: Tree, page_bytes: usize, fill_percent: u32) -> Self {
        Self {
            tree,
            limit: capacity(page_bytes) * fill_percent.clamp(50, 100) as usize / 100,
            bytes: Vec::new(),
            rows: Vec::new(),
            pieces: Vec::new(),
            start: 0,
            lower: Vec::new(),
            fits: 0,
            next_end: 1,
            last: tree.root,
        }
    }

    /// Compares `key` with the last row's key; greater if there is no row yet.
    #[must_use]
    pub fn is_behind(&self, key: &[u8]) -> std::cmp::Ordering {
        // A step does not drop the last row.
        self.rows.len().checked_sub(1).map_or(std::cmp::Ordering::Greater, |last| key.cmp(self.key(last)))
    }

    /// Adds a row whose key is greater than all others and short enough ([`key_bytes_max`]). Writes leaves
    /// from time to time. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ValueTooLong`], those of reading, [`Error::Poisoned`]. The tree is then
    /// whole and holds some of the rows: roll it back.
    pub fn push(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        let page_bytes = space.pool().page_bytes();
        if value.len() <= inline_value_max(page_bytes, key.len()) {
            self.add(key, 0, value);
        } else {
            let reference = self.write_value(space, value)?;
            self.add(key, OVERFLOW, &reference.encode());
        }
        self.cut();
        if self.pieces.len() >= self.at_once(space) {
            self.write(space, false)?;
        }
        Ok(())
    }

    /// Writes the remaining rows.
    ///
    /// # Errors
    /// Those of [`Builder::push`].
    pub fn finish(&mut self, space: &Space) -> Result<()> {
        self.cut_rest();
        self.write(space, true)
    }

    fn key(&self, row: usize) -> &[u8] {
        let Row { at, key_len, .. } = self.rows[row];
        &self.bytes[at..at + key_len]
    }

    fn add(&mut self, key: &[u8], flags: u8, value: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.push(flags);
        self.bytes.extend_from_slice(value);
        let before = self.rows.last().map_or(0, |last| last.before + last.leaf_bytes());
        self.rows.push(Row { at, key_len: key.len(), payload_len: 1 + value.len(), before });
    }

    /// Writes a long value. No undo record names it: the undo record of the tree's creation frees all pages
    /// of the tree.
    fn write_value(&self, space: &Space, value: &[u8]) -> Result<OverflowRef> {
        let mut reserved = space.reserve(self.tree.id, PageId::NONE, 1, Purpose::Grow)?;
        if value.len() <= one_page_value_max(space.pool().page_bytes()) {
            return space.pool().retry(|| {
                let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
                let reference = write_one_page(self.tree.id, &mut mtr, &mut reserved, value)?;
                mtr.commit();
                Ok(reference)
            });
        }
        let mut writer = space.pool().retry(|| {
            let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
            let writer = OverflowWriter::begin(self.tree.id, &mut mtr, &mut reserved)?;
            mtr.commit();
            Ok(writer)
        })?;
        writer.append(space, value, Purpose::Grow)?;
        writer.finish(space, Purpose::Grow)
    }

    // --- where leaves end ----------------------------------------------------------------------------------

    /// Returns the fence before row `end`.
    fn fence(&self, end: usize) -> &[u8] {
        separator(self.key(end - 1), self.key(end))
    }

    /// Bytes that the rows of the next leaf take, up to row `end`, with whole keys.
    fn whole_bytes(&self, end: usize) -> usize {
        self.rows[end - 1].before + self.rows[end - 1].leaf_bytes() - self.rows[self.start].before
    }

    /// Bytes of the next leaf if it ends before row `end`: its rows without the common prefix, and its
    /// fences.
    fn leaf_bytes(&self, end: usize, upper: Option<&[u8]>) -> usize {
        let prefix_bytes = (end - self.start) * prefix_between(&self.lower, upper);
        self.whole_bytes(end) + self.lower.len() + upper.map_or(0, <[u8]>::len) - prefix_bytes
    }

    /// Cuts off leaves while the rows after the last cut do not fit one leaf.
    fn cut(&mut self) {
        while self.next_end < self.rows.len() {
            let end = self.next_end;
            // The fence is no longer than the key after it.
            let at_most = self.whole_bytes(end) + self.lower.len() + self.rows[end].key_len;
            let fits = end == self.start + 1
                || at_most <= self.limit
                || self.leaf_bytes(end, Some(self.fence(end))) <= self.limit;
            if fits {
                self.fits = end;
                self.next_end = end + 1;
            } else {
                self.cut_at(self.fits);
            }
        }
    }

    /// Ends the next leaf at row `end` or before.
    fn cut_at(&mut self, end: usize) {
        // Every descent reads a fence: a shorter one is worth a few rows.
        let earliest = (end - (end - self.start) / CUT_EARLIER).max(self.start + 1);
        let end = (earliest..=end).rev().min_by_key(|&end| self.fence(end).len()).unwrap_or(end);
        let fence = self.fence(end).to_vec();
        self.piece(end, Some(fence));
    }

    fn piece(&mut self, end: usize, upper: Option<Vec<u8>>) {
        let lower = std::mem::replace(&mut self.lower, upper.clone().unwrap_or_default());
        self.pieces.push(Piece { rows: self.start..end, lower, upper });
        (self.start, self.fits, self.next_end) = (end, end, end + 1);
    }

    /// Cuts off the last leaves. The last one has no upper fence, so its keys share no prefix. If they do not
    /// fit without one, it gets a fence after them, and the tree ends in an empty leaf.
    fn cut_rest(&mut self) {
        while self.start < self.rows.len() {
            let all = self.rows.len();
            if all == self.start + 1 || self.leaf_bytes(all, None) <= self.limit {
                return self.piece(all, None);
            }
            match fence_behind(&self.lower, self.key(all - 1)) {
                Some(fence) if self.leaf_bytes(all, Some(&fence)) <= self.limit => self.piece(all, Some(fence)),
                // There is more than one row, so they fit up to some end before the last.
                _ => {
                    self.cut_at(self.fits);
                    self.cut();
                }
            }
        }
        // The empty leaf, or the only one of an empty tree.
        self.piece(self.rows.len(), None);
    }

    // --- writing -------------------------------------------------------------------------------------------

    /// Returns the most leaves that one step can hold in memory, each with a space map.
    fn at_once(&self, space: &Space) -> usize {
        let pool = space.pool();
        let frames = pool.frames() as usize;
        let gathered = (frames / 4).saturating_sub(OTHERS_LATCHED) / 2;
        leaves_at_once(pool.page_bytes()).min(gathered).max(1)
    }

    fn pack(&self, piece: &Piece) -> Packed {
        let prefix_len = prefix_between(&piece.lower, piece.upper.as_deref());
        let rows = &self.rows[piece.rows.clone()];
        let bytes = rows.iter().map(|row| row.leaf_bytes()).sum();
        let mut packed = Packed { count: 0, bytes: Vec::with_capacity(bytes) };
        for row in rows {
            let (key, payload) = self.bytes[row.at..row.at + row.key_len + row.payload_len].split_at(row.key_len);
            packed.push(&key[prefix_len..], payload);
        }
        packed
    }

    /// Writes the leaves that are cut. `ends`: they are the last of the tree.
    fn write(&mut self, space: &Space, ends: bool) -> Result<()> {
        let mut done = 0;
        while done < self.pieces.len() {
            let some = &self.pieces[done..self.pieces.len().min(done + self.at_once(space))];
            let ends = ends && done + some.len() == self.pieces.len();
            let leaves: Vec<Leaf<'_>> = some
                .iter()
                .map(|piece| Leaf { lower: &piece.lower, upper: piece.upper.as_deref(), packed: self.pack(piece) })
                .collect();
            let mut reserved = self.reserve(space, leaves.len())?;
            let step = space.pool().retry(|| self.tree.try_build(space, &mut reserved, &leaves, ends))?;
            drop(reserved);
            match step {
                Step::Wrote { leaves, last } => {
                    done += leaves;
                    self.last = last;
                }
                Step::RootIsLeaf => self.raise_root(space)?,
                Step::ParentFull(bytes) => {
                    let lower = leaves[0].lower.to_vec();
                    drop(leaves);
                    self.tree.make_room_for_child(space, &lower, bytes)?;
                }
            }
        }
        self.pieces.clear();
        self.forget_written();
        Ok(())
    }

    /// Drops the written rows except the last one.
    fn forget_written(&mut self) {
        let keep_from = self.start.min(self.rows.len().saturating_sub(1));
        let Some(&first) = self.rows.get(keep_from) else { return };
        self.bytes.drain(..first.at);
        self.rows.drain(..keep_from);
        for row in &mut self.rows {
            row.at -= first.at;
            row.before -= first.before;
        }
        self.start -= keep_from;
        self.fits -= keep_from;
        self.next_end -= keep_from;
    }

    /// Reserves pages that follow the last one, or any pages if there are none.
    fn reserve<'s>(&self, space: &'s Space, pages: usize) -> Result<Reserved<'s>> {
        match space.reserve_run(self.tree.id, self.last, pages) {
            Err(Error::NoSpace { .. }) => space.reserve(self.tree.id, self.last, pages, Purpose::Grow),
            reserved => reserved,
        }
    }

    /// Makes the root a branch above an empty leaf.
    fn raise_root(&mut self, space: &Space) -> Result<()> {
        let (tree, pool) = (self.tree, space.pool());
        let mut reserved = self.reserve(space, 1)?;
        self.last = pool.retry(|| {
            let mut mtr = Mtr::begin(pool, MtrSize::Small)?;
            let root = mtr.latch(tree.root)?;
            let node = tree.open_root(mtr.page(root))?;
            if node.level() > 0 || node.count() > 0 {
                return Err(node.damaged("a tree that is being built has rows already").into());
            }
            let (id, leaf) = reserved.take(&mut mtr)?;
            tree.build_whole(&mut mtr, leaf, 0, 0, &[]);
            let mut only = Packed::default();
            only.push(&[], &id.0.to_le_bytes());
            tree.build_whole(&mut mtr, root, 1, only.count, &only.bytes);
            mtr.commit();
            Ok(id)
        })?;
        Ok(())
    }
}

/// Returns a key greater than `last` that keeps the prefix that `last` shares with `lower`.
fn fence_behind(lower: &[u8], last: &[u8]) -> Option<Vec<u8>> {
    let shared = super::node::common_prefix(lower, last);
    let at = (shared..last.len()).find(|&at| last[at] < 0xff)?;
    let mut fence = last[..=at].to_vec();
    fence[at] += 1;
    Some(fence)
}

impl Tree {
    /// Writes leaves into the empty last leaf and after it. With `ends` the last of them ends the tree;
    /// otherwise an empty one does.
    fn try_build(
        &self,
        space: &Space,
        reserved: &mut Reserved<'_>,
        leaves: &[Leaf<'_>],
        ends: bool,
    ) -> Result<Step, Stop> {
        let pool = space.pool();
        let mut mtr = Mtr::begin(pool, MtrSize::Large)?;
        if let ([only], true) = (leaves, ends) {
            let root = mtr.latch(self.root)?;
            let node = self.open_root(mtr.page(root))?;
            if node.level() == 0 && node.count() == 0 && only.lower.is_empty() {
                self.build_whole(&mut mtr, root, 0, only.packed.count, &only.packed.bytes);
                mtr.commit();
                return Ok(Step::Wrote { leaves: 1, last: self.root });
            }
            mtr.release(root);
        }
        let at = leaves[0].lower;
        let Some(parent) = self.latch_on_path(pool, &mut mtr, at, 1)? else { return Ok(Step::RootIsLeaf) };
        let above = Node::open(mtr.page(parent))?;
        let slot = above.child_slot(at)?;
        let child = above.child(slot)?;
        let first = mtr.latch(child)?;
        let node = self.open_child(mtr.page(first), child, 0)?;
        if node.count() > 0 || node.has_upper() || node.lower() != at {
            return Err(node.damaged("a tree that is being built does not end where it was left").into());
        }
        let above = Node::open(mtr.page(parent))?;
        let above_prefix = above.prefix_len();
        // As many separators as fit, each with a reserved page.
        let (mut fit, mut free) = (0, above.free_bytes());
        for fence in leaves.iter().filter_map(|leaf| leaf.upper) {
            let bytes = SLOT_BYTES + fence.len() - above_prefix + CHILD_BYTES;
            if bytes > free || fit == reserved.len() {
                break;
            }
            free -= bytes;
            fit += 1;
        }
        let whole = ends && fit + 1 == leaves.len();
        if fit == 0 && !whole {
            return Ok(Step::ParentFull(leaves[0].upper.map_or(0, <[u8]>::len)));
        }
        // A compaction of the parent, if needed, cannot fail.
        above.check_heap()?;
        let pages = reserved.take_many(&mut mtr, fit)?;
        let (empty, none) = (Packed::default(), &[][..]);
        for (i, held) in std::iter::once(first).chain(pages.iter().map(|page| page.1)).enumerate() {
            // After the last leaf with a fence in the parent comes the empty leaf, or the tree's last.
            let is_written = i < fit || whole;
            let lower = if i == 0 { at } else { leaves[i - 1].upper.unwrap_or(none) };
            let upper = if is_written { leaves[i].upper } else { None };
            let packed = if is_written { &leaves[i].packed } else { &empty };
            let id = mtr.id(held);
            let build =
                Build { id, tree: self.id, level: 0, lower, upper, count: packed.count, entries: &packed.bytes };
            mtr.run(held, &build);
        }
        for (i, (id, _)) in pages.iter().enumerate() {
            let fence = leaves[i].upper.unwrap_or(none);
            mtr.run(parent, &Insert::new(slot + 1 + i, above_prefix, fence, &id.0.to_le_bytes()));
        }
        let last = pages.last().map_or(child, |page| page.0);
        mtr.commit();
        Ok(Step::Wrote { leaves: fit + usize::from(whole), last })
    }
}
