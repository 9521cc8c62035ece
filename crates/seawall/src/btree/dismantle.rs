//! Frees a dropped tree, a bounded piece at a time.
//!
//! ```text
//!   counting ──all branches seen──> freeing ──the root has no children──> done
//!       └────────────┴──a page is damaged or cannot be read──> sweeping ──no map has a page of it──> done
//! ```
//!
//! 1. The root is retired ([`Tree::retire`]): no other thread can enter or change the tree. The root's
//!    contents stay, so a crash leaves a tree with fewer children, and freeing starts again from there. No
//!    progress is kept on disk.
//! 2. Children are freed from right to left. One mini-transaction frees the last children of a branch by
//!    number and removes them from the branch. A branch that has lost all children is freed as the last child
//!    of its parent. Branches name their children, so leaves are not read.
//! 3. Leaves are read only in a tree that may have long values. Branches are counted first: if the tree owns
//!    no more pages than they name, it has no long values. Otherwise each leaf is read, and its long values
//!    are freed before the leaf. The owner of a value's head page shows whether the value is already freed:
//!    tree ids are never reused.
//! 4. The root goes last, by number, in a mini-transaction of the caller that also passes or cuts the tree's
//!    undo record.
//! 5. Long values that only undo records refer to are freed with those records.
//! 6. In a damaged tree, all pages except the root are freed according to the space maps.

use super::node::Node;
use super::overflow::{VALUE_MTRS_A_STEP, free_overflow_head, free_overflow_some};
use super::redo::Shed;
use super::{OverflowRef, Tree};
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, Result};
use crate::format::PageId;
use crate::space::Space;

/// Branches that one step counts.
const COUNTED_A_STEP: usize = 64;
/// The most pages that one mini-transaction frees.
const FREED_AT_ONCE_MAX: usize = 512;
/// The most space maps that one mini-transaction latches.
const MAPS_AT_ONCE_MAX: usize = 8;
/// Mini-transactions of one step that free leaves and branches.
const MTRS_A_STEP: usize = 32;
/// Leaves with long values that one mini-transaction frees.
const READ_AT_ONCE_MAX: usize = 8;

#[derive(Debug)]
enum State {
    /// Branches still to be counted, and pages named so far.
    Counting {
        todo: Vec<Named>,
        pages: u64,
    },
    /// Whether leaves may have long values.
    Freeing {
        values: bool,
    },
    Sweeping,
    Done,
}

/// A node, and a level above its own: the level of the branch that names it.
#[derive(Debug, Clone, Copy)]
struct Named {
    page: PageId,
    below: u8,
}

impl Named {
    fn root(tree: Tree) -> Self {
        Self { page: tree.root, below: u8::MAX }
    }
}

/// A dropped tree whose pages are being freed.
#[derive(Debug)]
pub struct Dismantling {
    tree: Tree,
    state: State,
}

/// What a node of the tree names.
struct Look {
    level: u8,
    children: Vec<PageId>,
    values: Vec<OverflowRef>,
}

impl Dismantling {
    /// Prepares to free a tree whose root is retired.
    #[must_use]
    pub fn new(tree: Tree) -> Self {
        Self { tree, state: State::Counting { todo: vec![Named::root(tree)], pages: 1 } }
    }

    /// Does a bounded piece of work: some tens of mini-transactions at most. Returns whether only the root is
    /// left, which the caller frees by number. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Poisoned`], and errors that stop a mini-transaction. The step may be called again. A page
    /// that cannot be read is no error.
    pub fn step(&mut self, space: &Space) -> Result<bool> {
        let swept = matches!(self.state, State::Sweeping);
        let stepped = match &self.state {
            State::Counting { .. } => self.count(space),
            &State::Freeing { values } => self.free(space, values),
            State::Sweeping => self.sweep(space),
            State::Done => return Ok(true),
        };
        match stepped {
            Ok(()) => {}
            Err(Error::Corrupt(_) | Error::Io(_)) if !swept => {
                space.pool().health().check()?;
                self.state = State::Sweeping;
            }
            Err(error) => return Err(error),
        }
        Ok(matches!(self.state, State::Done))
    }

    fn count(&mut self, space: &Space) -> Result<()> {
        let State::Counting { mut todo, mut pages } = std::mem::replace(&mut self.state, State::Sweeping) else {
            return Ok(());
        };
        for _ in 0..COUNTED_A_STEP {
            let Some(branch) = todo.pop() else {
                self.state = State::Freeing { values: space.may_own_more(self.tree.id, pages) };
                return Ok(());
            };
            let look = match self.look(space, branch, false) {
                Ok(look) => look,
                Err(error) => {
                    todo.push(branch);
                    self.state = State::Counting { todo, pages };
                    return Err(error);
                }
            };
            pages += look.children.len() as u64;
            if look.level > 1 {
                space.pool().prefetch(&look.children);
                todo.extend(look.children.iter().rev().map(|&page| Named { page, below: look.level }));
            }
        }
        self.state = State::Counting { todo, pages };
        Ok(())
    }

    fn free(&mut self, space: &Space, values: bool) -> Result<()> {
        let mut budget = VALUE_MTRS_A_STEP;
        for _ in 0..MTRS_A_STEP {
            // Descend by last children to level 1, or to a branch that has no children left.
            let (mut parent, mut at) = (None, Named::root(self.tree));
            let mut look = self.look(space, at, values)?;
            while look.level > 1 {
                let Some(&last) = look.children.last() else { break };
                parent = Some((at.page, look.children.len()));
                at = Named { page: last, below: look.level };
                look = self.look(space, at, values)?;
            }
            if look.children.is_empty() {
                let Some((parent, children)) = parent else {
                    // The root, which may be a leaf.
                    if self.free_values(space, &look.values, &mut budget)? {
                        self.state = State::Done;
                    }
                    return Ok(());
                };
                self.shed(space, parent, children - 1, &[at.page])?;
                continue;
            }
            let count = look.children.len();
            let most = if values { READ_AT_ONCE_MAX } else { FREED_AT_ONCE_MAX };
            let (mut last, mut maps) = (Vec::new(), Vec::new());
            for &leaf in look.children.iter().rev().take(most) {
                let map = space.map_of(leaf)?;
                if !maps.contains(&map) {
                    maps.push(map);
                }
                if maps.len() > MAPS_AT_ONCE_MAX {
                    break;
                }
                last.push(leaf);
            }
            if values {
                space.pool().prefetch(&last);
                for &leaf in &last {
                    let leaf = self.look(space, Named { page: leaf, below: look.level }, true)?;
                    if !self.free_values(space, &leaf.values, &mut budget)? {
                        return Ok(());
                    }
                }
            }
            self.shed(space, at.page, count - last.len(), &last)?;
        }
        Ok(())
    }

    /// Frees long values; `false` if the budget was not enough.
    fn free_values(&self, space: &Space, values: &[OverflowRef], budget: &mut usize) -> Result<bool> {
        let tree = self.tree.id;
        let mut heads = Vec::new();
        for value in values {
            // A value that it does not own was freed when the row's history was purged, and it may have been cut off
            // with the end of the file since.
            if heads.len() <= *budget && space.is_owner(tree, value.head)? {
                heads.push(value.head);
            }
        }
        space.pool().prefetch(&heads[..heads.len().min(*budget)]);
        for head in heads {
            if !free_overflow_some(space, tree, head, budget)? || *budget == 0 {
                return Ok(false);
            }
            *budget -= 1;
            space.pool().retry(|| {
                let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
                free_overflow_head(space, &mut mtr, tree, head)?;
                mtr.commit();
                Ok(())
            })?;
        }
        Ok(true)
    }

    /// Removes the children after the first `keep` from a branch, and frees them.
    fn shed(&self, space: &Space, branch: PageId, keep: usize, children: &[PageId]) -> Result<()> {
        space.pool().retry(|| {
            let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
            let held = mtr.latch(branch)?;
            let count = Node::open_dropped(mtr.page(held))?.count();
            if count != keep + children.len() {
                let why = format!("it has {count} children where {} were to go and {keep} to stay", children.len());
                return Err(Error::bad_page(branch, why).into());
            }
            space.free_many(&mut mtr, self.tree.id, children)?;
            mtr.run(held, &Shed { keep: keep as u16 });
            mtr.commit();
            Ok(())
        })
    }

    /// Copies what a node names; a leaf's values only if `values`.
    fn look(&self, space: &Space, Named { page: id, below }: Named, values: bool) -> Result<Look> {
        let tree = self.tree;
        space.pool().retry(|| {
            let page = space.pool().shared(id)?;
            let node = Node::open_dropped(&page)?;
            if node.tree() != tree.id || node.id() != id {
                return Err(node.damaged("a dropped tree leads to it, but it is another's").into());
            }
            // An old version of a page, left by a lost write, could lead back to a branch above it.
            if node.level() >= below {
                return Err(node.damaged("a dropped tree leads to it, but its level is not below its parent's").into());
            }
            let mut look = Look { level: node.level(), children: Vec::new(), values: Vec::new() };
            for slot in 0..node.count() {
                if !node.is_leaf() {
                    look.children.push(node.child(slot)?);
                } else if values {
                    look.values.extend(node.entry(slot)?.overflow().map_err(|why| node.damaged(why.0))?);
                }
            }
            Ok(look)
        })
    }

    fn sweep(&mut self, space: &Space) -> Result<()> {
        if space.free_tree_step(self.tree.id, self.tree.root, FREED_AT_ONCE_MAX)? {
            self.state = State::Done;
        }
        Ok(())
    }
}
