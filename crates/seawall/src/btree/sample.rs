//! Samples leaves of a tree, for statistics.
//!
//! 1. Leaves are picked at positions spread evenly over the tree, by descending by slots. A leaf below
//!    branches with few children is picked more often than its share: its weight compensates, so that sums
//!    over weighted leaves are unbiased estimates.
//! 2. A tree with no more leaves than requested is visited whole.
//! 3. Only the branches on the paths to these leaves are read; the leaves themselves are read concurrently.
//!    Each is copied: no latch is held while the caller examines it.
//! 4. The tree may change meanwhile: the leaves are of several moments. A page that belongs to another tree
//!    by then, or was cut off with the end of the file, is left out, also if the file has grown again since.

use super::Tree;
use super::node::Node;
use crate::buffer::{Pool, Prefetcher};
use crate::error::{Error, Result, Stop};
use crate::format::PageId;
use std::ops::Bound;

/// Returns the result of reading a page that was named a moment ago; `None` if the page was cut off with the
/// end of the file meanwhile.
pub(super) fn still_in_file<T>(pool: &Pool, page: PageId, read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(Error::Corrupt(_) | Error::Io(_)) if pool.is_vacant(page) => Ok(None),
        read => read.map(Some),
    }
}

impl Tree {
    /// Calls `visit` for up to about `count` leaves in key order, each with the number of leaves that it
    /// represents. Returns the approximate number of leaves of the tree. No latch may be held, and none is
    /// while `visit` runs.
    ///
    /// # Errors
    /// Those of reading; [`crate::Error::TreeDropped`]; those of `visit`.
    pub fn sample_leaves(
        &self,
        pool: &Pool,
        count: usize,
        mut visit: impl FnMut(&Node<'_>, f64) -> Result<()>,
    ) -> Result<f64> {
        let count = count.max(1);
        let mut picked = match self.all_leaves(pool, count)? {
            Some(all) => all.into_iter().map(|leaf| (leaf, 1.0)).collect(),
            None => self.pick(pool, count)?,
        };
        picked.dedup_by(|later, first| {
            let same = later.0 == first.0;
            first.1 += if same { later.1 } else { 0.0 };
            same
        });
        let mut prefetcher = Prefetcher::of(picked.iter().map(|&(leaf, _)| leaf));
        let mut copy = Vec::new();
        for &(leaf, weight) in &picked {
            prefetcher.next_is_due(pool, usize::MAX);
            let is_ours = pool.retry(|| {
                let page = pool.shared(leaf)?;
                copy.clear();
                copy.extend_from_slice(&page);
                Ok(self.open_child(&page, leaf, 0).is_ok())
            });
            prefetcher.came_to(leaf);
            if still_in_file(pool, leaf, is_ours)?.unwrap_or(false) {
                visit(&Node::open(&copy)?, weight)?;
            }
        }
        Ok(picked.iter().map(|&(_, weight)| weight).sum())
    }

    /// Returns all leaves, if there are no more than `most`.
    fn all_leaves(&self, pool: &Pool, most: usize) -> Result<Option<Vec<PageId>>> {
        let (mut leaves, mut low) = (Vec::new(), Vec::new());
        loop {
            let mut level1 = self.level1_children(pool, &low, Bound::Unbounded, false)?;
            leaves.append(&mut level1.children);
            match level1.beyond {
                _ if leaves.len() > most => return Ok(None),
                Some(beyond) => low = beyond,
                None => break,
            }
        }
        if leaves.is_empty() {
            leaves.push(self.root);
        }
        Ok(Some(leaves))
    }

    /// Picks leaves at evenly spread positions.
    fn pick(&self, pool: &Pool, count: usize) -> Result<Vec<(PageId, f64)>> {
        let mut picked = Vec::with_capacity(count);
        for i in 0..count {
            let position = (i as f64 + 0.5) / count as f64;
            let (leaf, leaves) = pool.retry(|| self.leaf_at(pool, position))?;
            picked.push((leaf, leaves / count as f64));
        }
        Ok(picked)
    }

    /// Returns the leaf at a position from 0 to 1, and the number of leaves if all branches are like those
    /// above it.
    fn leaf_at(&self, pool: &Pool, mut position: f64) -> Result<(PageId, f64), Stop> {
        let mut leaves = 1.0;
        let mut page = pool.shared(self.root)?;
        let mut node = self.open_root(&page)?;
        while node.level() > 0 {
            let count = node.count();
            let at = position * count as f64;
            let slot = (at as usize).min(count.saturating_sub(1));
            position = (at - slot as f64).clamp(0.0, 1.0);
            leaves *= count as f64;
            let (child, level) = (node.child(slot)?, node.level() - 1);
            if level == 0 {
                // The leaf is not read here: leaves are read concurrently.
                return Ok((child, leaves));
            }
            let below = pool.shared(child)?;
            page = below;
            node = self.open_child(&page, child, level)?;
        }
        Ok((self.root, 1.0))
    }
}
