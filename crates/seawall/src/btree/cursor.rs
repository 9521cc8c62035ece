//! Scans.
//!
//! 1. A cursor copies a leaf under its shared latch and goes on in the copy: it holds no latch and pins nothing between two calls, and its
//!    entries are those of one moment of that leaf ([`Cursor::leaf_lsn`]).
//! 2. The next leaf is the one that holds the copy's upper fence, the previous one the one that ends at its lower fence: found by descending, so
//!    splits and merges in between neither hide nor repeat a key.
//! 3. Before it goes on to the next leaf it looks ahead ([`LookAhead`]), which changes nothing about what it finds.
//! 4. It knows nothing of visibility: entries marked deleted are entries.

use super::entry::Entry;
use super::lookahead::LookAhead;
use super::node::Node;
use super::seek::Seek;
use super::{Damaged, Tree};
use crate::buffer::Pool;
use crate::error::{Result, Stop};
use crate::format::page;
use crate::format::{Lsn, PageId};

/// A place in a tree.
#[derive(Debug)]
pub struct Cursor {
    tree: Tree,
    /// The leaf as it was; empty before the first seek.
    copy: Vec<u8>,
    /// Where it stands; `None` when on no entry.
    slot: Option<usize>,
    /// The key it stands on.
    key: Vec<u8>,
    /// The fence it goes on from.
    fence: Vec<u8>,
    /// Where it came into the leaf.
    entered_at: usize,
    ahead: LookAhead,
}

impl Cursor {
    /// A cursor that stands nowhere.
    #[must_use]
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            copy: Vec::new(),
            slot: None,
            key: Vec::new(),
            fence: Vec::new(),
            entered_at: 0,
            ahead: LookAhead::default(),
        }
    }

    /// The tree it is in.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// How it looks ahead, and where it ends: it goes to no leaf that lies beyond the bounds set here.
    pub fn look_ahead(&mut self) -> &mut LookAhead {
        &mut self.ahead
    }

    /// Stands on the entry that is asked for. False when there is none. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn seek(&mut self, pool: &Pool, to: Seek<'_>) -> Result<bool> {
        self.slot = None;
        self.ahead.before_seek(pool, &self.tree, to);
        self.fill(pool, to)?;
        self.ahead.sought(page::number(&self.copy));
        let slot = to.slot(&Node::open(&self.copy)?)?;
        self.entered_at = slot;
        if to.is_forward() { self.settle_up(pool, slot) } else { self.settle_down(pool, slot) }
    }

    /// Goes to the next entry. False at the end, and from then on. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next(&mut self, pool: &Pool) -> Result<bool> {
        match self.slot {
            Some(slot) => self.settle_up(pool, slot + 1),
            None => Ok(false),
        }
    }

    /// Goes to the previous entry. False at the beginning, and from then on. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn prev(&mut self, pool: &Pool) -> Result<bool> {
        match self.slot {
            Some(slot) => self.settle_down(pool, slot),
            None => Ok(false),
        }
    }

    /// Whether it stands on an entry.
    #[must_use]
    pub fn is_on_entry(&self) -> bool {
        self.slot.is_some()
    }

    /// Its slot in the leaf that it last copied.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        self.slot
    }

    /// The key it stands on; empty when it stands on none.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        if self.slot.is_some() { &self.key } else { &[] }
    }

    /// The key it stands on, or stood on last.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.key
    }

    /// The payload it stands on; empty when it stands on none.
    ///
    /// # Errors
    /// [`Damaged`] when the leaf's slot lies.
    pub fn payload(&self) -> Result<&[u8], Damaged> {
        match self.slot {
            Some(slot) => Node::open(&self.copy)?.payload(slot),
            None => Ok(&[]),
        }
    }

    /// The entry it stands on; `None` when it stands on none.
    ///
    /// # Errors
    /// [`Damaged`] when the leaf's slot lies.
    pub fn entry(&self) -> Result<Option<Entry<'_>>, Damaged> {
        match self.slot {
            Some(slot) => Node::open(&self.copy)?.entry(slot).map(Some),
            None => Ok(None),
        }
    }

    /// The leaf it last copied; `None` before the first seek.
    ///
    /// # Errors
    /// [`Damaged`] when that is no node.
    pub fn leaf(&self) -> Result<Option<Node<'_>>, Damaged> {
        if self.copy.is_empty() { Ok(None) } else { Node::open(&self.copy).map(Some) }
    }

    /// The page of the leaf it last copied.
    #[must_use]
    pub fn leaf_page(&self) -> PageId {
        if self.copy.is_empty() { PageId::NONE } else { page::number(&self.copy) }
    }

    /// The LSN of that leaf when it was copied.
    #[must_use]
    pub fn leaf_lsn(&self) -> Lsn {
        if self.copy.is_empty() { Lsn::ZERO } else { page::lsn(&self.copy) }
    }

    /// Copies the leaf to look in first.
    fn fill(&mut self, pool: &Pool, to: Seek<'_>) -> Result<()> {
        let (tree, copy) = (self.tree, &mut self.copy);
        pool.retry(|| {
            let leaf = to.leaf(&tree, pool)?;
            copy.clear();
            copy.extend_from_slice(&leaf);
            Ok::<_, Stop>(())
        })
    }

    /// Stands on `slot`, or on the first entry of the leaves behind.
    fn settle_up(&mut self, pool: &Pool, mut slot: usize) -> Result<bool> {
        loop {
            let node = Node::open(&self.copy)?;
            if slot < node.count() {
                node.key_into(slot, &mut self.key)?;
                self.slot = Some(slot);
                return Ok(true);
            }
            self.slot = None;
            let Some(upper) = node.upper().filter(|upper| !self.ahead.ends_at(true, upper)) else { return Ok(false) };
            let mut fence = std::mem::take(&mut self.fence);
            fence.clear();
            fence.extend_from_slice(upper);
            let (rows, leaf_rows) = (node.count().saturating_sub(self.entered_at), node.count());
            self.ahead.leave(pool, &self.tree, true, &fence, rows, leaf_rows);
            let filled = self.fill(pool, Seek::AtLeast(&fence));
            self.fence = fence;
            filled?;
            self.ahead.came_to(pool, page::number(&self.copy));
            let node = Node::open(&self.copy)?;
            // Where the disk has lost a write, an old version of a page may lead to itself: the scan would not end.
            if !node.covers(&self.fence) {
                return Err(node.damaged("the key that led to it is not one of its own").into());
            }
            // A merge may have put smaller keys before those that are next.
            slot = node.search(&self.fence)?.slot;
            self.entered_at = slot;
        }
    }

    /// Stands on the slot before `slot`, or on the last entry of the leaves before.
    fn settle_down(&mut self, pool: &Pool, mut slot: usize) -> Result<bool> {
        loop {
            let node = Node::open(&self.copy)?;
            if slot > 0 {
                node.key_into(slot - 1, &mut self.key)?;
                self.slot = Some(slot - 1);
                return Ok(true);
            }
            self.slot = None;
            let lower = node.lower();
            if lower.is_empty() || self.ahead.ends_at(false, lower) {
                return Ok(false);
            }
            let mut fence = std::mem::take(&mut self.fence);
            fence.clear();
            fence.extend_from_slice(lower);
            let (rows, leaf_rows) = (self.entered_at, node.count());
            self.ahead.leave(pool, &self.tree, false, &fence, rows, leaf_rows);
            let filled = self.fill(pool, Seek::Before(&fence));
            self.fence = fence;
            filled?;
            self.ahead.came_to(pool, page::number(&self.copy));
            let node = Node::open(&self.copy)?;
            if node.lower() >= self.fence.as_slice() {
                return Err(node.damaged("the keys that led to it are not its own").into());
            }
            // A merge may have put larger keys behind those that are next.
            slot = node.search(&self.fence)?.slot;
            self.entered_at = slot;
        }
    }
}
