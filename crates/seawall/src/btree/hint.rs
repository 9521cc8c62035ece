//! Returns to a leaf without a descent.
//!
//! 1. A hint names the page of a leaf that its owner has latched before. When the owner latches the page
//!    again, it is the leaf of a key if it is a leaf of the same tree, its fences hold the key, and no page
//!    of a tree was freed by number since ([`Space::freed_by_number`]). All of this is checked under the
//!    latch.
//! 2. These checks are sufficient. A split or a merge changes fences, and marks a freed page, under the
//!    page's latch. A compaction or a relocation keeps the old page's contents, but frees the page by number
//!    while it holds the page's latch: a thread that latches the page afterwards sees the new count. A page
//!    that was given to another tree has that tree's id, and ids are never reused.
//! 3. A hint never reads a page from disk: it fails if its page is not resident.
//! 4. The pages of a dropped tree may be free. As after a descent, the caller checks under the latch that the
//!    tree exists.
//! 5. A hint is tried only if it is likely to lead to the leaf (`trust`), so that access in random order does
//!    not pay for failed hints.

use super::Tree;
use super::node::Node;
use crate::buffer::{LatchedPage, Mtr, PageRead};
use crate::error::Stop;
use crate::format::page::{self, PageKind};
use crate::format::{PageId, TreeId};
use crate::space::Space;
use std::cell::Cell;

/// A hint that is tried for changes.
const LIKELY: u8 = 1;
/// A hint that is tried for reads, too: the last two descents led to this leaf.
pub(super) const SURE: u8 = 2;

/// The leaf that an owner reached last.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafHint {
    tree: TreeId,
    pub(super) page: PageId,
    /// [`Space::freed_by_number`] when the page was latched.
    freed: u64,
    trust: u8,
}

/// Number of separate hints. It is small because a transaction, with its hints, is moved in memory at each of its
/// steps.
const TREES: usize = 2;

/// The hints of an owner. Trees with the same id modulo `TREES` share one.
#[derive(Debug)]
pub struct LeafHints([Cell<LeafHint>; TREES]);

impl Default for LeafHints {
    fn default() -> Self {
        let none = LeafHint { tree: TreeId::FREE, page: PageId::NONE, freed: 0, trust: 0 };
        Self(std::array::from_fn(|_| Cell::new(none)))
    }
}

impl LeafHints {
    #[inline]
    fn of(&self, tree: TreeId) -> &Cell<LeafHint> {
        &self.0[tree.0 as usize % TREES]
    }

    /// Returns the hint for a leaf of `tree`, if its trust is at least `at_least`.
    #[inline]
    pub(super) fn likely(&self, tree: TreeId, at_least: u8) -> Option<LeafHint> {
        Some(self.of(tree).get()).filter(|hint| hint.trust >= at_least && hint.tree == tree)
    }

    /// Lowers the trust in a hint that did not lead to the leaf.
    fn misled(&self, tree: TreeId) {
        let hint = self.of(tree);
        let known = hint.get();
        hint.set(LeafHint { trust: known.trust.saturating_sub(1), ..known });
    }

    /// Records the leaf to which a descent led and which is latched. `expected`: the owner is likely to
    /// return to it.
    #[inline]
    fn came_to(&self, space: &Space, tree: TreeId, page: PageId, expected: bool) {
        let hint = self.of(tree);
        let known = hint.get();
        let trust = match known.tree == tree {
            true if known.page == page => SURE,
            true if expected => known.trust.max(LIKELY),
            true => known.trust,
            false => u8::from(expected) * LIKELY,
        };
        hint.set(LeafHint { tree, page, freed: space.freed_by_number(), trust });
    }
}

impl LeafHint {
    /// Returns whether this latched page is the leaf of `key` (1).
    #[inline]
    fn leads_to(self, space: &Space, bytes: &[u8], key: &[u8]) -> bool {
        bytes[page::KIND] == PageKind::Leaf as u8
            && page::tree(bytes) == self.tree
            && self.freed == space.freed_by_number()
            && Node::open(bytes).is_ok_and(|node| node.covers(key))
    }
}

impl Tree {
    /// Like [`Tree::leaf_for_change`], but tries the owner's hint first. The caller checks that the tree
    /// exists.
    ///
    /// # Errors
    /// Those of [`Tree::leaf_for_change`].
    #[inline]
    pub fn leaf_for_change_by(
        &self,
        space: &Space,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        hints: &LeafHints,
    ) -> Result<LatchedPage, Stop> {
        if let Some(hint) = hints.likely(self.id, LIKELY) {
            if let Ok(held) = mtr.latch(hint.page) {
                if hint.leads_to(space, mtr.page(held), key) {
                    return Ok(held);
                }
                mtr.release(held);
            }
            hints.misled(self.id);
        }
        let held = self.leaf_for_change(space.pool(), mtr, key)?;
        hints.came_to(space, self.id, mtr.id(held), false);
        Ok(held)
    }

    /// Like [`Tree::leaf_shared`], but tries the owner's hint first, for an owner that is likely to return to
    /// the leaf. The caller checks that the tree exists.
    ///
    /// # Errors
    /// Those of [`Tree::leaf_shared`].
    #[inline]
    pub fn leaf_shared_by<'p>(&self, space: &'p Space, key: &[u8], hints: &LeafHints) -> Result<PageRead<'p>, Stop> {
        if let Some(hint) = hints.likely(self.id, SURE) {
            if let Ok(leaf) = space.pool().shared(hint.page) {
                if hint.leads_to(space, &leaf, key) {
                    return Ok(leaf);
                }
            }
            hints.misled(self.id);
        }
        let leaf = self.leaf_shared(space.pool(), key)?;
        hints.came_to(space, self.id, page::number(&leaf), true);
        Ok(leaf)
    }
}
