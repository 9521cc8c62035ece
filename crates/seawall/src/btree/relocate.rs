//! Moves nodes to lower pages of the file, one at a time.
//!
//! 1. A step is one mini-transaction: it builds the same node in a fresh page, points the parent to it, and
//!    frees the old page. Parent and node are latched exclusively, as in a split. So the tree is whole before
//!    and after, and no thread reaches the old page through the parent.
//! 2. No reference to a node by number outlives its move (`compact.rs`, 4). The root never moves.
//! 3. The tree must not be dropped during a step, as for a compaction (`compact.rs`, 7).

use super::Tree;
use super::edit::{Packed, prefix_between};
use super::node::Node;
use super::redo::{Build, Replace};
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Result, Stop};
use crate::format::PageId;
use crate::space::{Fence, Reserved, Space};

/// Children of a branch, with the keys that lead to them.
#[derive(Debug, Default)]
pub struct Children {
    /// Each child's lower fence and page.
    pub nodes: Vec<(Vec<u8>, PageId)>,
    /// Where the next branch of the level begins.
    pub beyond: Option<Vec<u8>>,
}

impl Tree {
    /// Returns the nodes of `level` under the branch on the path to `key`; `None` if the tree has no branch
    /// above that level. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn children_at(&self, space: &Space, key: &[u8], level: u8) -> Result<Option<Children>> {
        space.pool().retry(|| {
            let toward = super::search::Toward::Key(key);
            let Some((page, opened)) = self.descend(space.pool(), toward, level + 1, |_, _| ())? else {
                return Ok(None);
            };
            let node = Node::again(&page, opened);
            let mut children = Children::default();
            for slot in 0..node.count() {
                children.nodes.push((node.child_lower(slot)?, node.child(slot)?));
            }
            children.beyond = node.upper_above(key)?.map(<[u8]>::to_vec);
            Ok(Some(children))
        })
    }

    /// Moves the node of `level` on the path to `key` to a page below the fence, close to `near`, unless it already
    /// lies below the fence. Returns the node's page, or [`PageId::NONE`] if the tree no longer has a branch above that
    /// level. Returns `None` if no page below the fence is free. No latch may be held.
    ///
    /// # Errors
    /// [`crate::Error::TreeDropped`], those of reading, [`crate::Error::Poisoned`]. The tree is then whole.
    pub fn relocate(
        &self,
        space: &Space,
        fence: &Fence<'_>,
        key: &[u8],
        level: u8,
        near: PageId,
    ) -> Result<Option<PageId>> {
        let Some(mut reserved) = space.reserve_below(self.id, near)? else { return Ok(None) };
        if reserved.peek().is_none_or(|page| page >= fence.page()) {
            return Ok(None);
        }
        space.pool().retry(|| self.try_relocate(space, &mut reserved, fence.page(), key, level)).map(Some)
    }

    fn try_relocate(
        &self,
        space: &Space,
        reserved: &mut Reserved<'_>,
        fence: PageId,
        key: &[u8],
        level: u8,
    ) -> Result<PageId, Stop> {
        let pool = space.pool();
        let mut mtr = Mtr::begin(pool, MtrSize::Large)?;
        let Some(parent) = self.latch_on_path(pool, &mut mtr, key, level + 1)? else { return Ok(PageId::NONE) };
        let above = Node::open(mtr.page(parent))?;
        let slot = above.child_slot(key)?;
        let old = above.child(slot)?;
        if old < fence {
            return Ok(old);
        }
        let held = mtr.latch(old)?;
        let node = self.open_child(mtr.page(held), old, level)?;
        node.validate()?;
        let (lower, upper) = (node.lower().to_vec(), node.upper().map(<[u8]>::to_vec));
        let packed = Packed::of(&node, 0..node.count(), prefix_between(&lower, upper.as_deref()), level > 0)?;
        space.ready_to_free(&mut mtr, self.id, &[old])?;
        let (id, new) = reserved.take(&mut mtr)?;
        let (count, entries) = (packed.count, &packed.bytes[..]);
        mtr.run(new, &Build { id, tree: self.id, level, lower: &lower, upper: upper.as_deref(), count, entries });
        mtr.run(parent, &Replace::new(slot, &id.0.to_le_bytes()));
        space.free_many(&mut mtr, self.id, &[old])?;
        mtr.commit();
        Ok(id)
    }
}
