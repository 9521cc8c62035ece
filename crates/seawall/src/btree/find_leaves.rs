//! Finds the leaves of many keys.
//!
//! 1. Branch pages name the leaves. Branch pages that are not in memory are read concurrently, one level at a
//!    time for all keys.
//! 2. By the time a leaf is read, its page may belong to another tree. A caller that prefetches the leaves
//!    then only wastes a read.

use super::Tree;
use super::node::Node;
use super::sample::still_in_file;
use super::search::Toward;
use crate::buffer::{Pool, Prefetcher};
use crate::error::{Error, Result, Stop};
use crate::format::PageId;

/// No tree has more levels.
const LEVELS_MAX: usize = 16;

impl Tree {
    /// Returns the leaf of each of these sorted keys; [`PageId::NONE`] where it was not found, for example
    /// because the tree was changing. No latch may be held.
    ///
    /// # Errors
    /// Those of reading branch pages; [`Error::TreeDropped`].
    pub fn leaves_of(&self, pool: &Pool, keys: &[&[u8]]) -> Result<Vec<PageId>> {
        let mut leaves = vec![PageId::NONE; keys.len()];
        for _ in 0..LEVELS_MAX {
            let missing = self.name_leaves(pool, keys, &mut leaves)?;
            if missing.is_empty() {
                break;
            }
            let mut prefetcher = Prefetcher::of(missing.iter().copied());
            for branch in missing {
                prefetcher.next_is_due(pool, usize::MAX);
                drop(still_in_file(pool, branch, pool.load(branch))?);
                prefetcher.came_to(branch);
            }
        }
        Ok(leaves)
    }

    /// Fills in the leaves that branch pages in memory name. Returns the branch pages that are missing.
    fn name_leaves(&self, pool: &Pool, keys: &[&[u8]], leaves: &mut [PageId]) -> Result<Vec<PageId>> {
        let (mut missing, mut at) = (Vec::new(), 0);
        while at < keys.len() {
            if leaves[at] != PageId::NONE {
                at += 1;
                continue;
            }
            let named = pool.attempt(|| {
                let Some((page, opened)) = self.descend(pool, Toward::Key(keys[at]), 1, |_, _| ())? else {
                    // The root is the only leaf.
                    leaves[at..].fill(self.root);
                    return Ok(keys.len());
                };
                let node = Node::again(&page, opened);
                let mut end = at;
                while end < keys.len() && (end == at || node.covers(keys[end])) {
                    leaves[end] = node.child(node.child_slot(keys[end])?)?;
                    end += 1;
                }
                Ok(end)
            });
            match named {
                Ok(end) => at = end,
                Err(Stop::Load(branch)) => {
                    if missing.last() != Some(&branch) {
                        missing.push(branch);
                    }
                    at += 1;
                }
                Err(Stop::Frames | Stop::Loading(_)) => at += 1,
                Err(Stop::Fail(error)) => return Err::<_, Error>(error),
            }
        }
        Ok(missing)
    }
}
