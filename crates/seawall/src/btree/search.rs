//! Descends from the root to a leaf.
//!
//! 1. A descent holds at most two latches: it releases a page once it has latched the child. Only its last
//!    page may be latched exclusively.
//! 2. While its parent is latched, a child is what the parent says. A child of another tree or level, or with
//!    fences that do not hold the key, means damage, never a race.
//! 3. A mini-transaction must not hold a page of the tree when it descends: it would wait for itself.

use super::node::{Node, Opened};
use super::redo::{Build, Retire};
use super::{Damaged, Tree};
use crate::buffer::{LatchedPage, Mtr, PageRead, Pool};
use crate::error::{Error, Result, Stop};
use crate::format::page::{self, PageKind};
use crate::format::{PageId, TreeId};
use crate::space::Reserved;

/// The target of a descent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Toward<'k> {
    /// The leaf whose range contains the key.
    Key(&'k [u8]),
    /// The leaf that holds the largest keys below this one.
    Below(&'k [u8]),
    /// The last leaf.
    Last,
}

impl Toward<'_> {
    /// Returns the slot of the child to go to from a node on the path, whose range contains the key.
    pub(super) fn step(self, node: &Node<'_>) -> Result<usize, Damaged> {
        match self {
            Self::Key(key) => node.child_slot_inside(key),
            _ => self.child_slot(node),
        }
    }

    /// Returns the slot of the child to go to from any node of the level.
    pub(super) fn child_slot(self, node: &Node<'_>) -> Result<usize, Damaged> {
        match self {
            Self::Key(key) => node.child_slot(key),
            Self::Below(key) => node.child_slot_below(key),
            Self::Last => node.count().checked_sub(1).ok_or_else(|| node.damaged("a branch without children")),
        }
    }
}

impl Tree {
    /// Creates an empty tree. Takes its root page, which is its only leaf. The mini-transaction must latch no
    /// page of a tree afterwards.
    ///
    /// # Errors
    /// Those of [`Reserved::take`]; nothing is changed then.
    pub fn create(id: TreeId, mtr: &mut Mtr<'_>, reserved: &mut Reserved<'_>) -> Result<Self, Stop> {
        let (root, held) = reserved.take(mtr)?;
        let leaf = Build { id: root, tree: id, level: 0, lower: &[], upper: None, count: 0, entries: &[] };
        mtr.run(held, &leaf);
        Ok(Self { id, root })
    }

    /// Marks the root of a dropped tree, so that a stale handle cannot enter it. [`super::Dismantling`] frees
    /// its pages.
    ///
    /// # Errors
    /// [`Stop::Load`]; nothing is changed then.
    pub fn retire(&self, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        let held = mtr.latch(self.root)?;
        self.open_root(mtr.page(held))?;
        mtr.run(held, &Retire);
        Ok(())
    }

    /// Reads the root as a node.
    pub(super) fn open_root<'a>(&self, bytes: &'a [u8]) -> Result<Node<'a>, Error> {
        // Roots never move and ids are never reused: if the page is another tree's, this tree was dropped.
        if page::kind(bytes) == Some(PageKind::Freed) || page::tree(bytes) != self.id {
            return Err(Error::TreeDropped { tree: self.id });
        }
        let node = Node::open(bytes)?;
        if !node.lower().is_empty() || node.has_upper() {
            return Err(node.damaged("it is not this tree's root").into());
        }
        Ok(node)
    }

    /// Reads a page as the node of `level` to which its parent led.
    pub(super) fn open_child<'a>(&self, bytes: &'a [u8], id: PageId, level: u8) -> Result<Node<'a>, Error> {
        let node = Node::open(bytes)?;
        if node.tree() != self.id || node.level() != level || node.id() != id {
            let why = format!(
                "tree {} leads to it as to a node of level {level}, but its header says: page {}, tree {}, level {}",
                self.id,
                node.id(),
                node.tree(),
                node.level()
            );
            return Err(Error::bad_page(id, why));
        }
        Ok(node)
    }

    /// Takes a shared latch on the node of `level` on the path to the target. Calls `visit` for each branch
    /// above it with the slot taken. Returns the node's page, opened; `None` if the tree is not that high.
    pub(super) fn descend<'p>(
        &self,
        pool: &'p Pool,
        toward: Toward<'_>,
        level: u8,
        mut visit: impl FnMut(&Node<'_>, usize),
    ) -> Result<Option<(PageRead<'p>, Opened)>, Stop> {
        let mut page = pool.shared(self.root)?;
        let mut node = self.open_root(&page)?;
        if node.level() < level {
            return Ok(None);
        }
        while node.level() > level {
            let slot = toward.step(&node)?;
            visit(&node, slot);
            let (child, child_level) = (node.child(slot)?, node.level() - 1);
            let below = pool.shared(child)?;
            page = below;
            node = self.open_child(&page, child, child_level)?;
        }
        let opened = node.opened();
        Ok(Some((page, opened)))
    }

    pub(super) fn leaf<'p>(&self, pool: &'p Pool, toward: Toward<'_>) -> Result<PageRead<'p>, Stop> {
        let leaf = self.descend(pool, toward, 0, |_, _| ())?;
        Ok(leaf.expect("every tree is at least one level high").0)
    }

    /// Takes a shared latch on the leaf whose range contains `key`.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::TreeDropped`]; [`Error::Corrupt`].
    pub fn leaf_shared<'p>(&self, pool: &'p Pool, key: &[u8]) -> Result<PageRead<'p>, Stop> {
        self.leaf(pool, Toward::Key(key))
    }

    /// Returns the upper end of the keys that were lost with the abandoned page on the path to `key`; `None` if that
    /// is the end of the tree. No latch may be held.
    ///
    /// # Errors
    /// Those of reading the branches above that page.
    pub fn end_of_abandoned(&self, pool: &Pool, key: &[u8]) -> Result<Option<Vec<u8>>> {
        for level in 1..=u8::MAX {
            let end = pool.retry(|| {
                let Some((page, opened)) = self.descend(pool, Toward::Key(key), level, |_, _| ())? else {
                    return Ok(None);
                };
                let node = Node::again(&page, opened);
                let next = node.child_slot_inside(key)? + 1;
                if next < node.count() {
                    return Ok(Some(node.key(next)?));
                }
                Ok(node.upper_above(key)?.map(<[u8]>::to_vec))
            });
            match end {
                Err(error) if error.is_abandoned() => {}
                end => return end,
            }
        }
        Ok(None)
    }

    /// Latches exclusively, in `mtr`, the leaf whose range contains `key`. `mtr` must not have latched a page
    /// of this tree yet.
    ///
    /// # Errors
    /// [`Stop::Load`], with nothing changed; [`Error::TreeDropped`]; [`Error::Corrupt`].
    pub fn leaf_for_change(&self, pool: &Pool, mtr: &mut Mtr<'_>, key: &[u8]) -> Result<LatchedPage, Stop> {
        let held = self.latch_on_path(pool, mtr, key, 0)?;
        Ok(held.expect("every tree is at least one level high"))
    }

    /// Latches exclusively, in `mtr`, the node of `level` on the path to `key`. Returns `None` if the tree is
    /// not that high.
    pub(super) fn latch_on_path(
        &self,
        pool: &Pool,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        level: u8,
    ) -> Result<Option<LatchedPage>, Stop> {
        loop {
            if let Some((parent, opened)) = self.descend(pool, Toward::Key(key), level + 1, |_, _| ())? {
                let node = Node::again(&parent, opened);
                let child = node.child(node.child_slot_inside(key)?)?;
                let held = mtr.latch(child)?;
                self.open_child(mtr.page(held), child, level)?;
                return Ok(Some(held));
            }
            // The root was not above that level, but it may have grown before this latch.
            let held = mtr.latch(self.root)?;
            match self.open_root(mtr.page(held))?.level().cmp(&level) {
                std::cmp::Ordering::Equal => return Ok(Some(held)),
                std::cmp::Ordering::Less => {
                    mtr.release(held);
                    return Ok(None);
                }
                std::cmp::Ordering::Greater => mtr.release(held),
            }
        }
    }
}
