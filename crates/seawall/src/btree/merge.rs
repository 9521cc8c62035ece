//! Merges nodes that have become small.
//!
//! 1. An underfull node and a sibling under the same parent become one, if the result leaves room to grow:
//!    the left one takes the entries of the right one, which is freed in the same mini-transaction. Siblings
//!    are latched from left to right, under their parent's exclusive latch.
//! 2. A root with a single child takes the child's contents and frees the child.
//! 3. Every call that can stop ([`Stop`]) precedes the first change. Doing nothing is always correct.

use super::edit::{Packed, prefix_between};
use super::node::{Node, SLOT_BYTES, capacity};
use super::redo::{Append, Remove};
use super::search::Toward;
use super::{Damaged, Tree};
use crate::buffer::{Mtr, MtrSize, Pool};
use crate::error::{Result, Stop};
use crate::space::Space;

/// The result of an attempt to merge a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It was merged with a sibling.
    Merged,
    /// It is underfull, and its parent has no other child.
    Alone,
    /// It is full enough, the root, or no longer there; or no sibling has room.
    Nothing,
}

impl Tree {
    /// Merges the leaf of `key` with a sibling if it is underfull ([`Node::is_underfull`]), likewise its
    /// parents, and lowers the tree if its root has only one child. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn tidy(&self, space: &Space, key: &[u8]) -> Result<()> {
        if self.merge_from(space, key, 0)? {
            self.shrink(space)?;
        }
        Ok(())
    }

    /// Like [`Tree::tidy`], for branches only. Always tries to lower the tree.
    pub(super) fn tidy_branches(&self, space: &Space, key: &[u8]) -> Result<()> {
        self.merge_from(space, key, 1)?;
        self.shrink(space)
    }

    fn shrink(&self, space: &Space) -> Result<()> {
        while space.pool().retry(|| self.try_shrink(space))? {}
        Ok(())
    }

    /// Merges the nodes on the path to `key` from level `lowest` upward. Returns whether the root may have
    /// lost children.
    fn merge_from(&self, space: &Space, key: &[u8], lowest: u8) -> Result<bool> {
        let mut lowered = false;
        loop {
            let mut merged = false;
            for level in lowest..u8::MAX {
                match space.pool().retry(|| self.try_merge(space, key, level))? {
                    Outcome::Merged => merged = true,
                    Outcome::Alone => {}
                    Outcome::Nothing => break,
                }
                lowered = true;
            }
            // A parent with an only child may have been merged: the child then has a sibling.
            if !merged {
                return Ok(lowered);
            }
        }
    }

    /// Merges the node of `level` on the path to `key` with a sibling, if it is underfull.
    fn try_merge(&self, space: &Space, key: &[u8], level: u8) -> Result<Outcome, Stop> {
        let pool: &Pool = space.pool();
        {
            let Some((page, opened)) = self.descend(pool, Toward::Key(key), level, |_, _| ())? else {
                return Ok(Outcome::Nothing);
            };
            if !Node::again(&page, opened).is_underfull() {
                return Ok(Outcome::Nothing);
            }
        }
        let mut mtr = Mtr::begin(pool, MtrSize::Large)?;
        let Some(parent) = self.latch_on_path(pool, &mut mtr, key, level + 1)? else { return Ok(Outcome::Nothing) };
        let above = Node::open(mtr.page(parent))?;
        let (slot, count) = (above.child_slot(key)?, above.count());
        if count == 1 {
            return Ok(Outcome::Alone);
        }
        // Try the right sibling, then the left one.
        for left_slot in [Some(slot), slot.checked_sub(1)].into_iter().flatten() {
            if left_slot + 1 >= count {
                continue;
            }
            let above = Node::open(mtr.page(parent))?;
            let (left_id, right_id) = (above.child(left_slot)?, above.child(left_slot + 1)?);
            let left = mtr.latch(left_id)?;
            let right = mtr.latch(right_id)?;
            let (a, b) =
                (self.open_child(mtr.page(left), left_id, level)?, self.open_child(mtr.page(right), right_id, level)?);
            let own = if left_slot == slot { &a } else { &b };
            if !own.is_underfull() {
                return Ok(Outcome::Nothing);
            }
            if a.upper() != Some(b.lower()) {
                return Err(b.damaged("its lower fence is not its left sibling's upper").into());
            }
            if !are_mergeable(&a, &b)? {
                mtr.release(right);
                mtr.release(left);
                continue;
            }
            a.validate()?;
            b.validate()?;
            let upper = b.upper().map(<[u8]>::to_vec);
            let prefix_len = prefix_between(a.lower(), upper.as_deref());
            let packed = Packed::of(&b, 0..b.count(), prefix_len, false)?;
            Node::open(mtr.page(parent))?.check_heap()?;

            space.ready_to_free(&mut mtr, self.id, &[right_id])?;
            let append = Append { upper: upper.as_deref(), count: packed.count, entries: &packed.bytes };
            mtr.run(left, &append);
            mtr.run(parent, &Remove::new(left_slot + 1));
            space.free(&mut mtr, right)?;
            mtr.commit();
            return Ok(Outcome::Merged);
        }
        Ok(Outcome::Nothing)
    }

    /// Moves the contents of the root's only child into the root. Returns whether it did.
    fn try_shrink(&self, space: &Space) -> Result<bool, Stop> {
        let pool: &Pool = space.pool();
        {
            let root = pool.shared(self.root)?;
            let node = self.open_root(&root)?;
            if node.is_leaf() || node.count() != 1 {
                return Ok(false);
            }
        }
        let mut mtr = Mtr::begin(pool, MtrSize::Large)?;
        let root = mtr.latch(self.root)?;
        let node = self.open_root(mtr.page(root))?;
        if node.is_leaf() || node.count() != 1 {
            return Ok(false);
        }
        let (child_id, level) = (node.child(0)?, node.level() - 1);
        let child = mtr.latch(child_id)?;
        let node = self.open_child(mtr.page(child), child_id, level)?;
        if !node.lower().is_empty() || node.has_upper() {
            return Err(node.damaged("the root's only child does not hold everything").into());
        }
        node.validate()?;
        let packed = Packed::of(&node, 0..node.count(), 0, level > 0)?;

        space.ready_to_free(&mut mtr, self.id, &[child_id])?;
        self.build_whole(&mut mtr, root, level, packed.count, &packed.bytes);
        space.free(&mut mtr, child)?;
        mtr.commit();
        Ok(true)
    }
}

/// Returns whether two neighbours fit into one page and leave a quarter of it free. An empty leaf, or a
/// branch with one child, is merged whenever it fits.
pub(super) fn are_mergeable(left: &Node<'_>, right: &Node<'_>) -> Result<bool, Damaged> {
    let prefix_len = prefix_between(left.lower(), right.upper());
    let mut bytes = left.lower().len() + right.upper().map_or(0, <[u8]>::len);
    for node in [left, right] {
        for slot in 0..node.count() {
            let slot = node.slot(slot)?;
            bytes += SLOT_BYTES + slot.heap_bytes() + node.prefix_len().saturating_sub(prefix_len);
        }
    }
    if !right.is_leaf() {
        // The separator of the right node's first child is stored again.
        bytes += right.lower().len();
    }
    let all = capacity(left.page_bytes());
    let least = left.count().min(right.count());
    let no_more_to_lose = least == usize::from(!left.is_leaf());
    Ok(bytes <= if no_more_to_lose { all } else { all / 4 * 3 })
}
