//! Estimates the size of a range from branch pages.
//!
//! 1. Branch pages name the children of a range exactly, so a scan prefetches exactly these children.
//! 2. An estimate counts the leaves of a range in branch pages: in the branches at the ends of the range, and in a few
//!    spread between them, because regions of a tree differ. It counts the entries of a few leaves of these branches
//!    that are spread over the range and are in memory. It reads leaves, concurrently, only if the range has at most
//!    three leaves, or if fewer than [`SAMPLES_MIN`] of the chosen leaves are in memory. The leaves at the ends are
//!    counted separately: the last leaf of a growing tree is fuller or emptier than the others.
//! 3. Two descents may see different states of the tree. That is precise enough for an estimate, and never an
//!    error.

use super::Tree;
use super::node::Node;
use super::sample::still_in_file;
use super::search::Toward;
use crate::buffer::{Pool, Prefetcher};
use crate::error::{Error, Result, Stop};
use crate::format::PageId;
use std::ops::Bound;

/// Leaves between the ends that are counted if they are in memory.
const SAMPLES_MAX: usize = 32;
/// Leaves that are counted even if they have to be read.
const SAMPLES_MIN: usize = 8;
/// Branches between the ends that are counted, and read if needed.
const BRANCHES_MAX: usize = 6;

/// Leaves of a range that one branch just above them names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Level1 {
    /// The leaves, in the order of their keys. Empty when the root is the only leaf.
    pub children: Vec<PageId>,
    /// The key at which the next branch continues: upward the range's new lower end, downward its new upper
    /// end, excluded. `None` when this branch named all.
    pub beyond: Option<Vec<u8>>,
}

/// The approximate contents of a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Entries, including those marked deleted.
    pub entries: u64,
    /// Leaves that a scan of the range reads.
    pub leaves: u64,
}

/// A branch on the path of a descent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Passed {
    page: PageId,
    slot: usize,
    count: usize,
}

fn toward_high(high: Bound<&[u8]>) -> Toward<'_> {
    match high {
        Bound::Included(key) => Toward::Key(key),
        Bound::Excluded(key) => Toward::Below(key),
        Bound::Unbounded => Toward::Last,
    }
}

fn is_empty_range(low: &[u8], high: Bound<&[u8]>) -> bool {
    match high {
        Bound::Included(key) => key < low,
        Bound::Excluded(key) => key <= low,
        Bound::Unbounded => false,
    }
}

impl Tree {
    /// Returns the leaves of the range from `low` (included) to `high` that one branch names: the first
    /// branch of the range, or the last with `from_high`. No latch may be held.
    ///
    /// # Errors
    /// Those of reading branch pages.
    pub fn level1_children(&self, pool: &Pool, low: &[u8], high: Bound<&[u8]>, from_high: bool) -> Result<Level1> {
        pool.retry(|| self.try_level1_children(pool, low, high, from_high))
    }

    /// Like [`Tree::level1_children`], without reading.
    pub(super) fn try_level1_children(
        &self,
        pool: &Pool,
        low: &[u8],
        high: Bound<&[u8]>,
        from_high: bool,
    ) -> Result<Level1, Stop> {
        if is_empty_range(low, high) {
            return Ok(Level1::default());
        }
        let toward = if from_high { toward_high(high) } else { Toward::Key(low) };
        let Some((page, opened)) = self.descend(pool, toward, 1, |_, _| ())? else { return Ok(Level1::default()) };
        let node = Node::again(&page, opened);
        let first = node.child_slot(low)?;
        let last = toward_high(high).child_slot(&node)?;
        let children = (first..=last).map(|slot| node.child(slot)).collect::<Result<_, _>>()?;
        let beyond = if from_high {
            // Like `Node::upper_above`: a walk that continues at the lower fence ends.
            if is_empty_range(node.lower(), high) {
                return Err(node.damaged("it begins at or above the key that led to it").into());
            }
            Some(node.lower()).filter(|&lower| lower > low)
        } else {
            node.upper_above(low)?.filter(|upper| !is_empty_range(upper, high))
        };
        Ok(Level1 { children, beyond: beyond.map(<[u8]>::to_vec) })
    }

    /// Returns the lower fence of the last leaf. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn last_fence(&self, pool: &Pool) -> Result<Vec<u8>> {
        pool.retry(|| {
            let last = self.descend(pool, toward_high(Bound::Unbounded), 0, |_, _| ())?;
            Ok(last.map_or_else(Vec::new, |(page, opened)| Node::again(&page, opened).lower().to_vec()))
        })
    }

    /// Estimates the contents of the range from `low` (included) to `high`. No latch may be held.
    ///
    /// # Errors
    /// Those of reading.
    pub fn estimate(&self, pool: &Pool, low: &[u8], high: Bound<&[u8]>) -> Result<Estimate> {
        if is_empty_range(low, high) {
            return Ok(Estimate::default());
        }
        let first = self.path(pool, Toward::Key(low))?;
        let last = self.path(pool, toward_high(high))?;
        let (mut between, mut apart) = (0.0f64, false);
        let mut middle = Vec::new();
        for (depth, (a, b)) in first.iter().zip(&last).enumerate() {
            if apart {
                let mut fan_out = (a.count + b.count) as f64 / 2.0;
                if depth + 1 == first.len() && !middle.is_empty() {
                    fan_out = middle.iter().map(Vec::len).sum::<usize>() as f64 / middle.len() as f64;
                }
                between = between * fan_out + (a.count - a.slot - 1) as f64 + b.slot as f64;
            } else if a.page != b.page || a.slot != b.slot {
                apart = true;
                between = b.slot.saturating_sub(a.slot + 1) as f64;
                if depth + 1 < first.len() {
                    middle = self.branches_between(pool, a.page, a.slot + 1..b.slot)?;
                }
            }
        }
        let leaves = between as u64 + if apart { 2 } else { 1 };
        let must_read = leaves <= 3;
        let from_first = self.count_in(pool, Toward::Key(low), must_read, |node| {
            let end = if apart { node.count() } else { end_slot(node, high)? };
            Ok(end.saturating_sub(node.search(low)?.slot))
        })?;
        if !apart {
            let (_, entries) = from_first.unwrap_or_default();
            return Ok(Estimate { entries: entries as u64, leaves });
        }
        let from_last = self.count_in(pool, toward_high(high), must_read, |node| end_slot(node, high))?;
        let mut samples = Vec::new();
        if between > 0.0 {
            self.sample(pool, low, high, &middle, &mut samples)?;
        }
        if samples.is_empty() {
            samples.extend([from_first, from_last].into_iter().flatten().map(|(count, _)| count));
        }
        let mean = samples.iter().sum::<usize>() as f64 / samples.len().max(1) as f64;
        let ends: f64 =
            [from_first, from_last].map(|end| end.map_or(mean / 2.0, |(_, inside)| inside as f64)).iter().sum();
        Ok(Estimate { entries: (between * mean + ends).round() as u64, leaves })
    }

    /// Returns the leaves of a few level-1 branches spread over these slots of a higher branch.
    fn branches_between(&self, pool: &Pool, branch: PageId, slots: std::ops::Range<usize>) -> Result<Vec<Vec<PageId>>> {
        let keys = pool.retry(|| -> Result<Vec<Vec<u8>>, Stop> {
            let page = pool.shared(branch)?;
            let Ok(node) = Node::open(&page) else { return Ok(Vec::new()) };
            let (n, len) = (slots.len().min(BRANCHES_MAX), slots.len());
            let picked = (0..n).map(|i| slots.start + (2 * i + 1) * len / (2 * n));
            // The page may be another tree's by now, or another branch: then it is ignored.
            let ours = node.tree() == self.id && node.level() > 1;
            let picked = picked.filter(|&slot| ours && slot < node.count());
            Ok(picked.map(|slot| node.key(slot)).collect::<Result<_, _>>()?)
        });
        let keys = still_in_file(pool, branch, keys)?.unwrap_or_default();
        keys.iter().map(|key| Ok(self.level1_children(pool, key, Bound::Unbounded, false)?.children)).collect()
    }

    /// Adds the entry counts of leaves between the ends, some of which `middle` names.
    fn sample(
        &self,
        pool: &Pool,
        low: &[u8],
        high: Bound<&[u8]>,
        middle: &[Vec<PageId>],
        samples: &mut Vec<usize>,
    ) -> Result<()> {
        let near = self.level1_children(pool, low, high, false)?.children;
        let far = self.level1_children(pool, low, high, true)?.children;
        let mut inside: Vec<PageId> = near;
        inside.extend(middle.iter().flatten());
        if !inside.contains(far.first().unwrap_or(&PageId::NONE)) {
            inside.extend(far);
        }
        // The ends have already been counted.
        let inside = inside.get(1..inside.len().saturating_sub(1)).unwrap_or_default();
        let spread = |n: usize| (0..n).map(move |i| inside[(2 * i + 1) * inside.len() / (2 * n)]);
        let mut looked = 0;
        for page in spread(inside.len().min(SAMPLES_MAX)) {
            if let Some(held) = pool.peek(page) {
                samples.extend(self.open_child(&held, page, 0).ok().map(|node| node.count()));
            }
            looked += 1;
        }
        if samples.len() >= SAMPLES_MIN.min(looked) {
            return Ok(());
        }
        samples.clear();
        let wanted: Vec<PageId> = spread(inside.len().min(SAMPLES_MIN)).collect();
        let mut prefetcher = Prefetcher::of(wanted.iter().copied());
        for page in wanted {
            prefetcher.next_is_due(pool, usize::MAX);
            let held = still_in_file(pool, page, pool.retry(|| pool.shared(page)))?;
            // The page may be another tree's by now: then it is ignored.
            samples.extend(held.and_then(|held| self.open_child(&held, page, 0).ok().map(|node| node.count())));
            prefetcher.came_to(page);
        }
        Ok(())
    }

    fn path(&self, pool: &Pool, toward: Toward<'_>) -> Result<Vec<Passed>> {
        let mut passed = Vec::new();
        pool.retry(|| {
            passed.clear();
            let page = self.descend(pool, toward, 1, |node, slot| {
                passed.push(Passed { page: node.id(), slot, count: node.count() });
            })?;
            if let Some((page, opened)) = page {
                let node = Node::again(&page, opened);
                passed.push(Passed { page: node.id(), slot: toward.child_slot(&node)?, count: node.count() });
            }
            Ok(())
        })?;
        Ok(passed)
    }

    /// Returns the number of entries of a leaf, and how many of these `inside` counts. `None` if the leaf is
    /// not in memory and need not be read.
    fn count_in(
        &self,
        pool: &Pool,
        toward: Toward<'_>,
        must_read: bool,
        inside: impl Fn(&Node<'_>) -> Result<usize, super::Damaged>,
    ) -> Result<Option<(usize, usize)>> {
        let count = || {
            let leaf = self.leaf(pool, toward)?;
            let node = Node::open(&leaf)?;
            Ok((node.count(), inside(&node)?))
        };
        if must_read {
            return pool.retry(count).map(Some);
        }
        match count() {
            Ok(counted) => Ok(Some(counted)),
            Err(Stop::Load(_) | Stop::Frames | Stop::Loading(_)) => Ok(None),
            Err(Stop::Fail(error)) => Err::<_, Error>(error),
        }
    }
}

/// Returns the first slot of a leaf that is beyond the range.
fn end_slot(node: &Node<'_>, high: Bound<&[u8]>) -> Result<usize, super::Damaged> {
    match high {
        Bound::Included(key) => node.search(key).map(|at| at.slot + usize::from(at.found)),
        Bound::Excluded(key) => node.search(key).map(|at| at.slot),
        Bound::Unbounded => Ok(node.count()),
    }
}
