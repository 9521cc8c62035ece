//! Measures how well a tree's leaves are ordered in the file: the cost of a full scan.
//!
//! 1. The branch pages just above the leaves give the order of the leaves. All of them are read, one after
//!    the other: about one in some hundreds of the tree's pages. No leaf is read for this.
//! 2. The fill of the leaves is measured in at most [`SAMPLES_MAX`] leaves, spread evenly over the tree and read
//!    concurrently.
//! 3. The tree may change meanwhile. The counts are then of several moments: good enough for a decision. A change is
//!    never an error.

use super::edit::elidable_bytes;
use super::node::{Node, capacity};
use super::sample::still_in_file;
use super::{Damaged, Tree};
use crate::buffer::{Pool, Prefetcher};
use crate::error::Result;
use crate::format::{PageId, TxnId};
use std::ops::Bound;

/// Leaves whose fill is measured.
const SAMPLES_MAX: usize = 32;

/// The order of a tree's leaves in the file, and their fill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Leaves.
    pub leaves: u64,
    /// Pairs of neighbours in key order whose second leaf does not follow the first in the file. At each of them, an
    /// upward scan begins another read.
    pub apart: u64,
    /// Branch pages just above the leaves: all were read.
    pub branches: u64,
    /// Leaves whose fill was measured.
    pub sampled: u64,
    /// The fill of those leaves with slots, entries and fences, percent of a page's capacity.
    pub fill_percent: u32,
}

impl Fragmentation {
    /// The share of pairs of neighbours that do not follow each other in the file, 0 to 1; 0 for a tree of
    /// one leaf.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.apart as f64 / self.leaves.saturating_sub(1).max(1) as f64
    }
}

/// Number of pairs of neighbours of which the second does not follow the first.
pub(super) fn apart(leaves: &[PageId]) -> usize {
    leaves.windows(2).filter(|pair| !follows(pair[0], pair[1])).count()
}

/// Returns whether `second` comes directly after `first` in the file.
pub(super) fn follows(first: PageId, second: PageId) -> bool {
    first.0.checked_add(1) == Some(second.0)
}

/// The contents of some leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fill {
    /// Leaves measured.
    pub leaves: usize,
    /// Bytes in use, without the headers that no view needs.
    pub used_bytes: usize,
    /// Entries.
    pub entries: usize,
}

/// Pages spread evenly over a sequence whose length is known only at its end.
#[derive(Debug)]
struct Spread {
    every: u64,
    seen: u64,
    pages: Vec<PageId>,
}

impl Spread {
    fn push(&mut self, page: PageId) {
        if self.seen % self.every == 0 {
            if self.pages.len() == SAMPLES_MAX {
                // Drops every second page; the next ones are as far apart as those that stay.
                let mut at = 0;
                self.pages.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.every *= 2;
            }
            if self.seen % self.every == 0 {
                self.pages.push(page);
            }
        }
        self.seen += 1;
    }
}

/// Returns up to `most` of `pages`, spread evenly.
pub(super) fn spread(pages: &[PageId], most: usize) -> Vec<PageId> {
    let count = pages.len().min(most);
    (0..count).map(|i| pages[(2 * i + 1) * pages.len() / (2 * count)]).collect()
}

impl Tree {
    /// Measures the order of all leaves and the fill of some. No latch may be held.
    ///
    /// # Errors
    /// Those of reading; [`crate::Error::TreeDropped`].
    pub fn fragmentation(&self, pool: &Pool) -> Result<Fragmentation> {
        let mut found = Fragmentation::default();
        let mut sample = Spread { every: 1, seen: 0, pages: Vec::new() };
        let (mut low, mut last) = (Some(Vec::new()), PageId::NONE);
        while let Some(key) = low {
            let level1 = self.level1_children(pool, &key, Bound::Unbounded, false)?;
            let Some(&first) = level1.children.first() else { break };
            found.branches += 1;
            found.leaves += level1.children.len() as u64;
            found.apart += apart(&level1.children) as u64 + u64::from(last != PageId::NONE && !follows(last, first));
            last = level1.children[level1.children.len() - 1];
            level1.children.iter().for_each(|&leaf| sample.push(leaf));
            low = level1.beyond;
        }
        if found.leaves == 0 {
            found.leaves = 1;
            sample.push(self.root);
        }
        let fill = self.fill_of(pool, &sample.pages, TxnId::NONE)?;
        let all = fill.leaves * capacity(pool.page_bytes());
        found.sampled = fill.leaves as u64;
        found.fill_percent = (100 * fill.used_bytes).checked_div(all).unwrap_or(0) as u32;
        Ok(found)
    }

    /// Measures the contents of these leaves, which are read concurrently if they are not in memory. Pages
    /// that are no longer leaves of this tree are left out.
    pub(super) fn fill_of(&self, pool: &Pool, leaves: &[PageId], horizon: TxnId) -> Result<Fill> {
        let mut fill = Fill::default();
        let mut prefetcher = Prefetcher::of(leaves.iter().copied());
        for &leaf in leaves {
            prefetcher.next_is_due(pool, usize::MAX);
            let looked = pool.retry(|| {
                let page = pool.shared(leaf)?;
                let Ok(node) = self.open_child(&page, leaf, 0) else { return Ok(None) };
                Ok(Some((used(&node, horizon)?, node.count())))
            });
            prefetcher.came_to(leaf);
            if let Some((used, entries)) = still_in_file(pool, leaf, looked)?.flatten() {
                fill.leaves += 1;
                fill.used_bytes += used;
                fill.entries += entries;
            }
        }
        Ok(fill)
    }
}

fn used(leaf: &Node<'_>, horizon: TxnId) -> Result<usize, Damaged> {
    Ok(leaf.used_bytes().saturating_sub(elidable_bytes(leaf, horizon)?))
}
