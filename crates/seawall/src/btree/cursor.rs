//! Scans.
//!
//! 1. A cursor copies entries of a leaf under its shared latch and works on the copy: it holds no latch and no pin
//!    between two calls. Everything in the copy shows the leaf at one moment ([`Cursor::leaf_lsn`]).
//! 2. At first the cursor copies few entries: as many as were read after the previous seek or, on the first
//!    seek, as many as will be read, if that is known. When more are read, it copies more, and finally the
//!    whole leaf, if the leaf is unchanged (by its LSN) and in memory; otherwise it continues by key. A page
//!    that was freed meanwhile but still has that LSN has the entries of that moment, too.
//! 3. The next leaf is the leaf that holds the copy's upper fence. The previous leaf is the one that ends at the copy's
//!    lower fence. The cursor finds them by descending, so splits and merges in between neither hide nor repeat a key.
//! 4. Before the cursor goes to the next leaf, it prefetches ([`ReadAhead`]). That never changes what it
//!    finds.
//! 5. The cursor knows nothing of visibility: it treats entries marked deleted like any other.
//! 6. A copy is checked when it is made, and not again for each of its entries ([`Opened`]). The bytes of an
//!    entry are located once, when the cursor comes to it.

use super::entry::Entry;
use super::node::{Node, Opened, Slot};
use super::read_ahead::ReadAhead;
use super::seek::Seek;
use super::{Damaged, Tree};
use crate::buffer::Pool;
use crate::error::{Result, Stop};
use crate::format::page;
use crate::format::{Lsn, PageId};
use crate::spare;
use std::cell::Cell;
use std::ops::Range;

/// Entries to copy first when it is unknown how many will be read.
const ROWS_FIRST: usize = 4;
/// Entries to copy if the first ones were not enough.
const ROWS_MORE: usize = 32;
/// If more entries than this are to be copied, the leaf is copied whole.
const ROWS_MAX: usize = 64;

thread_local! {
    /// The copy of the last cursor dropped on this thread, for the next one to reuse.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A position in a tree.
#[derive(Debug)]
pub struct Cursor {
    tree: Tree,
    /// The leaf as it was, as far as it is copied: header, fences, and the slots in `have`. The other bytes
    /// are undefined.
    copy: Vec<u8>,
    /// Whether there is a leaf in `copy`.
    copied: bool,
    have: Range<usize>,
    /// The checked header of the leaf in `copy`.
    opened: Opened,
    /// The cursor's position, a slot in `have`; `None` when it is on no entry.
    slot: Option<usize>,
    /// The place of that slot's payload in `copy`; beyond its end if the slot is damaged.
    payload: Range<usize>,
    /// The key of its position.
    key: Vec<u8>,
    /// Whether `key` begins with the prefix of the leaf in `copy`.
    has_prefix: bool,
    /// The fence from which the cursor continues.
    fence: Vec<u8>,
    /// The slot at which the cursor entered the leaf.
    entered_at: usize,
    /// Entries visited since the last seek; `None` before the first.
    visited: Option<usize>,
    ahead: ReadAhead,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if !self.copy.is_empty() {
            spare::keep(&SPARE, std::mem::take(&mut self.copy));
        }
    }
}

impl Cursor {
    /// A cursor without a position.
    #[must_use]
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            copy: Vec::new(),
            copied: false,
            have: 0..0,
            opened: Opened::default(),
            slot: None,
            payload: 0..0,
            key: Vec::new(),
            has_prefix: false,
            fence: Vec::new(),
            entered_at: 0,
            visited: None,
            ahead: ReadAhead::default(),
        }
    }

    /// Resets the cursor to `tree`, without a position. Keeps its memory.
    pub fn reset(&mut self, tree: Tree) {
        (self.tree, self.copied, self.slot, self.has_prefix) = (tree, false, None, false);
        self.key.clear();
        self.ahead.reset();
    }

    /// Leaves its entry; [`Cursor::last_key`] is then `key`.
    pub fn leave_at(&mut self, key: &[u8]) {
        (self.slot, self.has_prefix) = (None, false);
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// The cursor's read-ahead, whose bounds also limit the cursor: it goes to no leaf beyond them.
    pub fn read_ahead(&mut self) -> &mut ReadAhead {
        &mut self.ahead
    }

    /// Seeks the requested entry; `false` if there is none. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn seek(&mut self, pool: &Pool, to: Seek<'_>) -> Result<bool> {
        self.slot = None;
        self.ahead.before_seek(pool, &self.tree, to);
        let as_last = self.visited.replace(0).map(|rows| rows.max(1));
        let slot = self.fill(pool, to, as_last)?;
        self.ahead.sought(page::number(&self.copy));
        self.entered_at = slot;
        if to.is_forward() { self.settle_up(pool, slot) } else { self.settle_down(pool, slot) }
    }

    /// Goes to the next entry. Returns `false` at the end, and on each later call. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next(&mut self, pool: &Pool) -> Result<bool> {
        match self.slot {
            Some(slot) => self.settle_up(pool, slot + 1),
            None => Ok(false),
        }
    }

    /// Goes to the previous entry. Returns `false` at the beginning, and on each later call. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn prev(&mut self, pool: &Pool) -> Result<bool> {
        match self.slot {
            Some(slot) => self.settle_down(pool, slot),
            None => Ok(false),
        }
    }

    /// Its slot in the leaf it last copied.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        self.slot
    }

    /// Its key; empty when it is on no entry.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        if self.slot.is_some() { &self.key } else { &[] }
    }

    /// Its key, or the last one it had.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.key
    }

    /// Its payload; empty when it is on no entry.
    ///
    /// # Errors
    /// [`Damaged`] when the leaf's slot is damaged.
    #[inline]
    pub fn payload(&self) -> Result<&[u8], Damaged> {
        match (self.slot, self.copy.get(self.payload.clone())) {
            (None, _) => Ok(&[]),
            (Some(_), Some(payload)) => Ok(payload),
            (Some(_), None) => Err(self.node().damaged("a slot points outside the page")),
        }
    }

    /// Its entry; `None` when it is on none.
    ///
    /// # Errors
    /// [`Damaged`] when the leaf's slot is damaged.
    #[inline]
    pub fn entry(&self) -> Result<Option<Entry<'_>>, Damaged> {
        if self.slot.is_none() {
            return Ok(None);
        }
        let entry = Entry::decode(self.payload()?);
        entry.map(Some).map_err(|malformed| self.node().damaged(malformed.0))
    }

    /// The value of an entry that was decoded since the cursor came to it; empty when the cursor is on no
    /// entry.
    ///
    /// # Errors
    /// [`Damaged`] when the leaf's slot is damaged.
    #[inline]
    pub fn value(&self) -> Result<&[u8], Damaged> {
        Ok(Entry::value_in(self.payload()?))
    }

    /// The leaf in the copy, which was opened when it was copied.
    #[inline]
    fn node(&self) -> Node<'_> {
        Node::again(&self.copy, self.opened)
    }

    /// Returns the whole leaf of the cursor; `None` before the first seek, or if the leaf is not yet copied
    /// whole and has changed or is not in memory.
    ///
    /// # Errors
    /// [`Damaged`] when the page is not a node.
    pub fn whole_leaf(&mut self, pool: &Pool) -> Result<Option<Node<'_>>, Damaged> {
        if !self.copied || !(self.have.len() == self.node().count() || self.copy_whole(pool)?) {
            return Ok(None);
        }
        Ok(Some(self.node()))
    }

    /// The number of entries of its leaf; 0 before the first seek.
    #[must_use]
    pub fn leaf_count(&self) -> usize {
        if self.copied { self.node().count() } else { 0 }
    }

    /// The page of the leaf it last copied.
    #[must_use]
    pub fn leaf_page(&self) -> PageId {
        if self.copied { page::number(&self.copy) } else { PageId::NONE }
    }

    /// The LSN of that leaf when it was copied.
    #[must_use]
    pub fn leaf_lsn(&self) -> Lsn {
        if self.copied { page::lsn(&self.copy) } else { Lsn::ZERO }
    }

    /// Copies the needed part of the first leaf of a seek, and returns the slot to begin with. Copies `rows`
    /// entries from there on, fewer if the leaf ends before; with `None`, as many as will be read,
    /// as far as that is known.
    fn fill(&mut self, pool: &Pool, to: Seek<'_>, rows: Option<usize>) -> Result<usize> {
        if self.copy.is_empty() {
            self.copy = spare::take(&SPARE);
        }
        let (tree, forward) = (self.tree, to.is_forward());
        pool.retry(|| {
            let leaf = to.leaf(&tree, pool)?;
            let node = Node::open(&leaf)?;
            let slot = to.slot(&node)?;
            let rows = match rows {
                Some(rows) => rows,
                None => self.ahead.rows_from(&node, slot, forward)?.unwrap_or(ROWS_FIRST).max(1),
            };
            let have = if forward {
                slot..slot.saturating_add(rows).min(node.count())
            } else {
                slot.saturating_sub(rows)..slot
            };
            self.take(&leaf, &node, have)?;
            Ok::<_, Stop>(slot)
        })
    }

    /// Copies these slots of the leaf, or all slots if these are many.
    fn take(&mut self, leaf: &[u8], node: &Node<'_>, slots: Range<usize>) -> Result<(), Damaged> {
        (self.copied, self.has_prefix) = (false, false);
        if slots.len() > ROWS_MAX {
            self.copy.clear();
            self.copy.extend_from_slice(leaf);
            self.have = 0..node.count();
        } else {
            node.copy_slots(slots.clone(), &mut self.copy)?;
            self.have = slots;
        }
        (self.copied, self.opened) = (true, node.opened());
        Ok(())
    }

    /// Copies the slots around `slot` of the current leaf; `false` if the leaf has changed or is not in
    /// memory. Reads no page.
    fn copy_more(&mut self, pool: &Pool, slot: usize, forward: bool) -> Result<bool, Damaged> {
        if self.have.len() >= ROWS_MORE {
            return self.copy_whole(pool);
        }
        let Some(leaf) = pool.peek(self.leaf_page()).filter(|leaf| page::lsn(leaf) == self.leaf_lsn()) else {
            return Ok(false);
        };
        let node = Node::open(&leaf)?;
        let slots = if forward {
            slot..(slot + ROWS_MORE).min(node.count())
        } else {
            (slot + 1).saturating_sub(ROWS_MORE)..slot + 1
        };
        self.take(&leaf, &node, slots)?;
        Ok(true)
    }

    /// Like `copy_more`, with all slots.
    fn copy_whole(&mut self, pool: &Pool) -> Result<bool, Damaged> {
        let Some(leaf) = pool.peek(self.leaf_page()).filter(|leaf| page::lsn(leaf) == self.leaf_lsn()) else {
            return Ok(false);
        };
        let node = Node::open(&leaf)?;
        self.copy.clear();
        self.copy.extend_from_slice(&leaf);
        (self.have, self.opened) = (0..node.count(), node.opened());
        Ok(true)
    }

    /// Predicts how many entries of the next leaf will be read.
    fn rows_next(&self) -> Option<usize> {
        // The number read so far predicts it.
        self.visited.map(|rows| if rows < ROWS_MORE { ROWS_MORE } else { usize::MAX })
    }

    /// Copies `slot`, the next one in the direction of the scan, and the slots after it. Returns its slot in
    /// the new copy going forward, or the slot after it going backward.
    fn go_on(&mut self, pool: &Pool, slot: usize, forward: bool) -> Result<usize> {
        if self.copy_more(pool, slot, forward)? {
            return Ok(slot + usize::from(!forward));
        }
        // The leaf has changed: continue by key.
        self.slot = None;
        let key = std::mem::take(&mut self.key);
        let to = if forward { Seek::After(&key) } else { Seek::Before(&key) };
        let filled = self.fill(pool, to, Some(ROWS_MORE));
        self.key = key;
        let slot = filled?;
        self.ahead.sought(page::number(&self.copy));
        self.entered_at = slot;
        Ok(slot)
    }

    /// Goes to `slot`, which is in the copy.
    #[inline]
    fn stand(&mut self, slot: usize) -> Result<(), Damaged> {
        let node = Node::again(&self.copy, self.opened);
        let Slot { at, key_len, payload_len, .. } = node.slot(slot)?;
        let payload = at + key_len;
        let suffix = self.copy.get(at..payload).ok_or_else(|| node.damaged("a slot points outside the page"))?;
        if self.has_prefix {
            self.key.truncate(node.prefix_len());
        } else {
            self.key.clear();
            self.key.extend_from_slice(node.prefix());
            self.has_prefix = true;
        }
        self.key.extend_from_slice(suffix);
        (self.slot, self.payload) = (Some(slot), payload..payload + payload_len);
        self.visited = self.visited.map(|rows| rows + 1);
        Ok(())
    }

    /// Goes to `slot`, or to the first entry of the next leaves.
    fn settle_up(&mut self, pool: &Pool, mut slot: usize) -> Result<bool> {
        loop {
            if slot < self.node().count() {
                if !self.have.contains(&slot) {
                    slot = self.go_on(pool, slot, true)?;
                    continue;
                }
                self.stand(slot)?;
                return Ok(true);
            }
            self.slot = None;
            let node = Node::again(&self.copy, self.opened);
            let Some(upper) = node.upper().filter(|upper| !self.ahead.ends_at(true, upper)) else { return Ok(false) };
            let mut fence = std::mem::take(&mut self.fence);
            fence.clear();
            fence.extend_from_slice(upper);
            let (rows, leaf_rows) = (node.count().saturating_sub(self.entered_at), node.count());
            self.ahead.leave(pool, &self.tree, true, &fence, rows, leaf_rows);
            // A merge may have put smaller keys before the next ones.
            let filled = self.fill(pool, Seek::AtLeast(&fence), self.rows_next());
            self.fence = fence;
            slot = filled?;
            self.ahead.came_to(pool, page::number(&self.copy));
            let node = self.node();
            // If the disk has lost a write, an old version of a page may lead back to itself: the scan would
            // never end.
            if !node.covers(&self.fence) {
                return Err(node.damaged("the key that led to it is not one of its own").into());
            }
            self.entered_at = slot;
        }
    }

    /// Goes to the slot before `slot`, or to the last entry of the previous leaves.
    fn settle_down(&mut self, pool: &Pool, mut slot: usize) -> Result<bool> {
        loop {
            if slot > 0 {
                if !self.have.contains(&(slot - 1)) {
                    slot = self.go_on(pool, slot - 1, false)?;
                    continue;
                }
                self.stand(slot - 1)?;
                return Ok(true);
            }
            self.slot = None;
            let node = Node::again(&self.copy, self.opened);
            let lower = node.lower();
            if lower.is_empty() || self.ahead.ends_at(false, lower) {
                return Ok(false);
            }
            let mut fence = std::mem::take(&mut self.fence);
            fence.clear();
            fence.extend_from_slice(lower);
            let (rows, leaf_rows) = (self.entered_at, node.count());
            self.ahead.leave(pool, &self.tree, false, &fence, rows, leaf_rows);
            // A merge may have put larger keys after the next ones.
            let filled = self.fill(pool, Seek::Before(&fence), self.rows_next());
            self.fence = fence;
            slot = filled?;
            self.ahead.came_to(pool, page::number(&self.copy));
            let node = self.node();
            if node.lower() >= self.fence.as_slice() {
                return Err(node.damaged("the keys that led to it are not its own").into());
            }
            self.entered_at = slot;
        }
    }
}
