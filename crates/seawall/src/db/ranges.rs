//! Scans of many ranges, and the estimate of a range.
//!
//! 1. Each range returns the same entries, in the same order, as a scan of that range alone; only the order
//!    of the ranges differs.
//! 2. By key: one read-ahead covers all ranges, so that the next ranges are prefetched while one is scanned.
//! 3. By arrival: the first leaves of all ranges are prefetched, and a range whose leaf has arrived is next.
//!    If none has, the scan waits for the leaf that was requested first: no range is postponed for ever.

use super::cursor::{KeyValue, RangeIter, is_empty};
use super::transaction::Transaction;
use super::tree::Tree;
use crate::btree::ReadAhead;
use crate::buffer::Prefetcher;
use crate::error::Result;
use crate::format::PageId;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

impl Transaction {
    /// Estimates the size of a range: rows (including deleted rows that are not yet purged) and pages. Reads
    /// branch pages, and a few leaves if the range has few leaves or almost none of them is in memory. The aim
    /// is an error below a factor of two.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn estimate_range<K: AsRef<[u8]>>(&self, tree: &Tree, range: impl RangeBounds<K>) -> Result<RangeEstimate> {
        let own = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        estimate(self, tree, &(own(range.start_bound()), own(range.end_bound())))
    }

    /// Iterates over the entries of many ranges; each comes with the index of its range in `ranges`. Pages that
    /// are not in memory are read in parallel: while one range is scanned, the leaves of the next ranges are
    /// prefetched. All entries of a range come, from first to last, before another range begins. At read
    /// committed each range is a separate read; [`Transaction::begin_statement`] gives all of them one view.
    pub fn scan_ranges<'t, K: AsRef<[u8]>, R: RangeBounds<K>>(
        &'t self,
        tree: &Tree,
        ranges: &[R],
        order: RangeOrder,
    ) -> MultiRangeIter<'t> {
        let own = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let ranges = ranges.iter().map(|range| (own(range.start_bound()), own(range.end_bound()))).collect();
        MultiRangeIter::new(self, tree, ranges, order)
    }

    /// Deletes the entries in `range`; returns their number. At read committed without an open statement,
    /// entries that other transactions commit during the call may be deleted too.
    ///
    /// # Errors
    /// Those of [`Transaction::put`]. Entries deleted before the error are deleted in this transaction: use a
    /// savepoint to undo that.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, tree: &Tree, range: impl RangeBounds<K>) -> Result<u64> {
        let own = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (mut start, end) = (own(range.start_bound()), own(range.end_bound()));
        let mut deleted = 0;
        let mut ahead = ReadAhead::default();
        ahead.within(&start, &end);
        ahead.long();
        loop {
            // In batches: the scan borrows the transaction that the deletions change.
            let mut keys = Vec::new();
            let mut piece = RangeIter::keys_only(self, tree, start.clone(), end.clone()).led_by(ahead);
            for entry in piece.by_ref().take(256) {
                keys.push(entry?.0);
            }
            ahead = piece.take_ahead();
            drop(piece);
            let Some(last) = keys.last().cloned() else { return Ok(deleted) };
            for key in &keys {
                deleted += u64::from(self.delete(tree, key)?);
            }
            start = std::ops::Bound::Excluded(last);
        }
    }
}

/// The order of the ranges in [`Transaction::scan_ranges`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RangeOrder {
    /// By their first keys.
    #[default]
    Key,
    /// As their pages arrive from the disk.
    Arrival,
}

/// The estimated size of a range; see [`Transaction::estimate_range`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RangeEstimate {
    /// Rows, including deleted rows that are not yet purged.
    pub rows: u64,
    /// Pages that a scan of the range reads; long values are not counted.
    pub pages: u64,
}

pub(super) fn estimate(tx: &Transaction, tree: &Tree, (start, end): &Bounds) -> Result<RangeEstimate> {
    tx.txn().admit(&tree.state)?;
    if is_empty(start, end) {
        return Ok(RangeEstimate::default());
    }
    let low = match start {
        // The next key after it.
        Bound::Excluded(key) => [&key[..], &[0]].concat(),
        Bound::Included(key) => key.clone(),
        Bound::Unbounded => Vec::new(),
    };
    let found = tx.txn().estimate(&tree.state, &low, end.as_ref().map(|key| &key[..]))?;
    Ok(RangeEstimate { rows: found.entries, pages: found.leaves })
}

/// The bounds of a range.
pub(super) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A range that is not yet scanned.
#[derive(Debug)]
struct Coming {
    number: usize,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    /// By arrival: its first leaf, if known.
    first_leaf: PageId,
}

/// The entries of many ranges: the number of the range, and the entry.
#[derive(Debug)]
pub struct MultiRangeIter<'t> {
    tx: &'t Transaction,
    tree: Tree,
    order: RangeOrder,
    coming: VecDeque<Coming>,
    current: Option<(usize, RangeIter<'t>)>,
    /// By key: one read-ahead for all ranges.
    ahead: ReadAhead,
    /// By arrival: the first leaves.
    first_leaves: Prefetcher,
    /// An error before the first entry.
    failed: Option<crate::Error>,
}

fn first_key(start: &Bound<Vec<u8>>) -> &[u8] {
    match start {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

impl<'t> MultiRangeIter<'t> {
    pub(super) fn new(tx: &'t Transaction, tree: &Tree, ranges: Vec<Bounds>, order: RangeOrder) -> Self {
        let mut coming: Vec<Coming> = ranges
            .into_iter()
            .enumerate()
            .filter(|(_, (start, end))| !is_empty(start, end))
            .map(|(number, (start, end))| Coming { number, start, end, first_leaf: PageId::NONE })
            .collect();
        coming.sort_by(|a, b| first_key(&a.start).cmp(first_key(&b.start)));
        let mut ranges = Self {
            tx,
            tree: tree.clone(),
            order,
            coming: coming.into(),
            current: None,
            ahead: ReadAhead::default(),
            first_leaves: Prefetcher::default(),
            failed: None,
        };
        ranges.failed = tx.txn().admit(&tree.state).err();
        match order {
            _ if ranges.failed.is_some() => {}
            RangeOrder::Key => {
                for range in &ranges.coming {
                    ranges.ahead.then(&range.start, &range.end);
                }
            }
            RangeOrder::Arrival => ranges.failed = ranges.name_first_leaves().err(),
        }
        ranges
    }

    fn name_first_leaves(&mut self) -> Result<()> {
        let keys: Vec<&[u8]> = self.coming.iter().map(|range| first_key(&range.start)).collect();
        let leaves = self.tx.txn().leaves_of(&self.tree.state, &keys)?;
        for (range, &leaf) in self.coming.iter_mut().zip(&leaves) {
            range.first_leaf = leaf;
        }
        self.first_leaves = Prefetcher::of(leaves.into_iter().filter(|&leaf| leaf != PageId::NONE));
        Ok(())
    }

    /// Takes the next range off the list.
    fn choose(&mut self) -> Option<Coming> {
        if self.order == RangeOrder::Key {
            return self.coming.pop_front();
        }
        let pool = self.tx.txn().pool();
        self.first_leaves.next_is_due(pool, usize::MAX);
        let arrived = self.first_leaves.arrived(pool);
        let at = arrived.and_then(|leaf| self.coming.iter().position(|range| range.first_leaf == leaf)).unwrap_or(0);
        let chosen = self.coming.remove(at)?;
        // Ranges that begin in the same leaf are next, while the leaf is in memory.
        if self.coming.get(at).is_none_or(|next| next.first_leaf != chosen.first_leaf) {
            self.first_leaves.took(chosen.first_leaf);
        }
        Some(chosen)
    }

    fn begin(&mut self, next: &Coming) -> (usize, RangeIter<'t>) {
        let range = RangeIter::new(self.tx, &self.tree, next.start.clone(), next.end.clone());
        if self.order == RangeOrder::Arrival {
            return (next.number, range);
        }
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.within(&next.start, &next.end);
        (next.number, range.led_by(ahead))
    }
}

impl Iterator for MultiRangeIter<'_> {
    type Item = Result<(usize, KeyValue)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            self.coming.clear();
            return Some(Err(error));
        }
        loop {
            if let Some((number, range)) = &mut self.current {
                match range.next() {
                    Some(Ok(entry)) => return Some(Ok((*number, entry))),
                    Some(Err(error)) => {
                        // Continuing with the next range would silently skip entries.
                        self.coming.clear();
                        self.current = None;
                        return Some(Err(error));
                    }
                    None => self.ahead = range.take_ahead(),
                }
            }
            self.current = None;
            let next = self.choose()?;
            self.current = Some(self.begin(&next));
        }
    }
}
