//! Prefetches the next leaves of a scan, which the branch just above them names.
//!
//! ```text
//!   idle ──second leaf left; first leaf left, if the end is known; at once, if announced as long──> running
//!   running ──turned round, sought elsewhere──> idle
//! ```
//!
//! 1. A level-1 branch names the leaves of a range exactly: nothing beyond the range's end is prefetched, and
//!    nothing beyond the rows that the caller wants.
//! 2. The read-ahead itself reads no page and waits for none, except for the branches on the path to the
//!    first leaf of a long scan. A branch page that is not in memory is prefetched like a leaf, before the
//!    scan reaches the last leaf of the branch before; until it has arrived, no more leaves are named.
//! 3. The tree may change meanwhile. When the scan reaches a leaf that was not named as the next one, the
//!    read-ahead starts over from there.
//! 4. Errors are reported by the scan: here they only end the read-ahead.

use super::bound::KeyBound;
use super::node::Node;
use super::seek::Seek;
use super::{Damaged, Tree};
use crate::buffer::{Pool, Prefetcher};
use crate::error::Stop;
use crate::format::PageId;
use std::collections::VecDeque;
use std::ops::Bound;

/// A range of keys whose leaves are still to be named: from the first, included, to the second.
type Span = (Vec<u8>, Bound<Vec<u8>>);

/// Assumed entries of a leaf before one has been seen.
const LEAF_ROWS: usize = 32;

/// The read-ahead of a scan.
#[derive(Debug)]
pub struct ReadAhead {
    prefetcher: Prefetcher,
    /// Ranges still to be named, in the scan's order.
    plan: VecDeque<Span>,
    /// The scan's bounds: from this key, included, ...
    low: Vec<u8>,
    /// ... to this.
    high: KeyBound,
    forward: bool,
    running: bool,
    /// The caller has announced a long scan: the read-ahead begins at once.
    long: bool,
    /// Leaves the scan has left in one direction.
    leaves: u32,
    /// Rows that the caller still wants, if known.
    rows_left: Option<u64>,
    /// Entries of the last leaf.
    leaf_rows: usize,
    /// The leaf in which the scan is.
    at: PageId,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self {
            prefetcher: Prefetcher::default(),
            plan: VecDeque::new(),
            low: Vec::new(),
            high: KeyBound::default(),
            forward: true,
            running: false,
            long: false,
            leaves: 0,
            rows_left: None,
            leaf_rows: LEAF_ROWS,
            at: PageId::NONE,
        }
    }
}

fn key_of(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

impl ReadAhead {
    /// Sets the scan's bounds.
    pub fn within(&mut self, start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) {
        self.keep_to(start.as_ref().map(|key| &key[..]), end.as_ref().map(|key| &key[..]));
    }

    /// Sets the scan's bounds from borrowed keys, reusing memory.
    pub fn keep_to(&mut self, start: Bound<&[u8]>, end: Bound<&[u8]>) {
        self.low.clear();
        if let Bound::Included(key) | Bound::Excluded(key) = start {
            self.low.extend_from_slice(key);
        }
        self.high.set(end);
    }

    /// Resets the read-ahead for another scan; keeps its memory.
    pub fn reset(&mut self) {
        self.stop();
        self.low.clear();
        self.high.set(Bound::Unbounded);
        if std::mem::take(&mut self.long) {
            self.prefetcher = Prefetcher::default();
        }
        (self.forward, self.rows_left, self.leaf_rows, self.at) = (true, None, LEAF_ROWS, PageId::NONE);
    }

    /// Returns how many entries the scan will visit from `slot` on, including the one at which it ends;
    /// `None` if that is unknown.
    pub(super) fn rows_from(&self, node: &Node<'_>, slot: usize, forward: bool) -> Result<Option<usize>, Damaged> {
        if self.long {
            return Ok(Some(usize::MAX));
        }
        let limit = self.rows_left.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let end = match self.high.get() {
            _ if !forward && self.low.is_empty() => None,
            _ if !forward => Some(slot.saturating_sub(node.search(&self.low)?.slot) + 1),
            Bound::Included(end) | Bound::Excluded(end) => Some(node.search(end)?.slot.saturating_sub(slot) + 1),
            Bound::Unbounded => None,
        };
        Ok(limit.into_iter().chain(end).min())
    }

    /// Announces that the caller wants at most `rows` rows.
    pub fn limit(&mut self, rows: u64) {
        self.rows_left = Some(rows);
    }

    /// Announces a scan of all or most of the range: the read-ahead begins at once.
    pub fn long(&mut self) {
        self.long = true;
        self.prefetcher = std::mem::take(&mut self.prefetcher).sure();
    }

    /// Adds this range after the planned ones. The caller scans the ranges upward, one after the other, and
    /// each one completely.
    pub fn then(&mut self, start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) {
        if !self.long {
            self.long();
        }
        self.running = true;
        self.plan.push_back((key_of(start).to_vec(), end.clone()));
    }

    /// Returns whether the scan needs nothing beyond `fence`.
    pub(super) fn ends_at(&self, forward: bool, fence: &[u8]) -> bool {
        match self.high.get() {
            _ if !forward => fence <= &self.low[..],
            Bound::Included(end) => fence > end,
            Bound::Excluded(end) => fence >= end,
            Bound::Unbounded => false,
        }
    }

    /// Must be called before the scan seeks `to`.
    pub fn before_seek(&mut self, pool: &Pool, tree: &Tree, to: Seek<'_>) {
        let forward = to.is_forward();
        if self.running && self.forward != forward {
            self.stop();
        }
        if self.long && !self.running {
            let bound = match to {
                Seek::First | Seek::Last => Bound::Unbounded,
                Seek::AtLeast(key) | Seek::After(key) | Seek::AtMost(key) => Bound::Included(key),
                Seek::Before(key) => Bound::Excluded(key),
            };
            self.start(bound, forward);
        }
        if self.running && self.long {
            // The scan itself reads the branches on the path to the first leaf next.
            if self.prefetcher.is_short() && !self.plan.is_empty() {
                self.name_more(pool, tree, true);
            }
            self.ask(pool, tree);
        }
    }

    /// Must be called after a seek, with the leaf that the scan is in.
    pub fn sought(&mut self, leaf: PageId) {
        if leaf == self.at {
            return;
        }
        self.at = leaf;
        let expected = self.prefetcher.came_to(leaf);
        if !expected && !self.long {
            self.stop();
        }
    }

    /// Must be called before the scan leaves its leaf to continue beyond `fence`. It has visited `rows` of
    /// the leaf's `leaf_rows` entries.
    pub fn leave(&mut self, pool: &Pool, tree: &Tree, forward: bool, fence: &[u8], rows: usize, leaf_rows: usize) {
        if self.forward != forward {
            self.stop();
            self.forward = forward;
        }
        self.leaves = self.leaves.saturating_add(1);
        self.leaf_rows = leaf_rows;
        self.rows_left = self.rows_left.map(|left| left.saturating_sub(rows as u64));
        if !self.running {
            if !self.long && self.rows_left.is_some_and(|left| left <= leaf_rows as u64) {
                // The scan goes to its last leaf now: nothing is left to read ahead.
                return;
            }
            let has_end = if forward { self.high.get() != Bound::Unbounded } else { !self.low.is_empty() };
            let has_end = has_end || self.rows_left.is_some();
            if self.leaves < 2 && !has_end && !self.long {
                return;
            }
            self.start(if forward { Bound::Included(fence) } else { Bound::Excluded(fence) }, forward);
            if has_end {
                self.prefetcher.is_likely();
            }
        }
        self.ask(pool, tree);
    }

    /// Must be called when the scan has reached the next leaf.
    pub fn came_to(&mut self, pool: &Pool, leaf: PageId) {
        pool.note_scanned(self.at, leaf);
        self.at = leaf;
        if self.running && !self.prefetcher.came_to(leaf) {
            // The tree has changed: the named leaves may no longer be the next ones.
            self.prefetcher.clear();
            self.plan.clear();
            self.running = false;
        }
    }

    fn stop(&mut self) {
        self.prefetcher.clear();
        self.plan.clear();
        (self.running, self.leaves) = (false, 0);
    }

    fn start(&mut self, from: Bound<&[u8]>, forward: bool) {
        (self.running, self.forward) = (true, forward);
        self.prefetcher.clear();
        self.plan.clear();
        let low = &self.low;
        self.plan.push_back(if forward {
            let from = match from {
                Bound::Included(key) | Bound::Excluded(key) => key,
                Bound::Unbounded => &[],
            };
            (std::cmp::max(&low[..], from).to_vec(), self.high.get().map(<[u8]>::to_vec))
        } else {
            // The caller promises that a seek stays inside the bounds.
            (low.clone(), from.map(<[u8]>::to_vec))
        });
    }

    fn ask(&mut self, pool: &Pool, tree: &Tree) {
        while self.prefetcher.is_short() && !self.plan.is_empty() {
            if !self.name_more(pool, tree, false) {
                break;
            }
        }
        let most = match self.rows_left {
            Some(rows) => usize::try_from(rows.div_ceil(self.leaf_rows.max(1) as u64)).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        self.prefetcher.next_is_due(pool, most);
    }

    /// Names the leaves of one more branch. Returns `false` if it could not, because of an error or because
    /// the branch is not in memory and `wait` is not set.
    fn name_more(&mut self, pool: &Pool, tree: &Tree, wait: bool) -> bool {
        let Some((low, high)) = self.plan.front_mut() else { return false };
        let bound = high.as_ref().map(|key| &key[..]);
        let named = if wait {
            tree.level1_children(pool, low, bound, !self.forward).map_err(Stop::Fail)
        } else {
            pool.attempt(|| tree.try_level1_children(pool, low, bound, !self.forward))
        };
        match named {
            Ok(level1) => {
                if self.forward {
                    self.prefetcher.name(level1.children);
                } else {
                    self.prefetcher.name(level1.children.into_iter().rev());
                }
                match level1.beyond {
                    Some(beyond) if self.forward => *low = beyond,
                    Some(beyond) => *high = Bound::Excluded(beyond),
                    None => drop(self.plan.pop_front()),
                }
                true
            }
            Err(Stop::Load(branch)) => {
                pool.prefetch(&[branch]);
                false
            }
            Err(Stop::Fail(_)) => {
                self.plan.clear();
                false
            }
            Err(Stop::Frames | Stop::Loading(_)) => false,
        }
    }
}
