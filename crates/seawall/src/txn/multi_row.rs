//! Reading and writing many rows at once.
//!
//! 1. The answers are those of single reads in one statement: all from one snapshot.
//! 2. The leaves are prefetched side by side, and read in key order; then the long values in the same way.

use super::locking::MANY_ROWS;
use super::locks::Mode;
use super::transaction::{Isolation, Txn};
use super::trees::{Readable, TreeState};
use super::version::{Reader, Stored};
use super::write::Change;
use crate::btree::{Estimate, OverflowRef, read_overflow_many};
use crate::buffer::{Pool, Prefetcher};
use crate::error::{Error, Result};
use crate::format::PageId;
use std::ops::Bound;
use std::sync::Arc;

impl Txn {
    /// The pool, for callers that prefetch pages.
    pub fn pool(&self) -> &Pool {
        self.engine.pool()
    }

    /// Inserts or overwrites rows, in key order (of two with one key the later one stays). Prefetches their
    /// leaves side by side.
    ///
    /// # Errors
    /// As a single change; the rows before it, in key order, are changed then.
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, tree: &Arc<TreeState>, rows: &[(K, V)]) -> Result<()> {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // Stable: rows with one key stay in their order.
        order.sort_by(|&a, &b| rows[a].0.as_ref().cmp(rows[b].0.as_ref()));
        let sorted: Vec<&[u8]> = order.iter().map(|&i| rows[i].0.as_ref()).collect();
        let engine = self.engine.clone();
        let pool = engine.pool();
        let leaves = self.leaves_of(tree, &sorted)?;
        let mut prefetcher = Prefetcher::of(leaves.iter().copied().filter(|&leaf| leaf != PageId::NONE));
        let rows: Vec<(&[u8], &[u8])> = order.iter().map(|&i| (rows[i].0.as_ref(), rows[i].1.as_ref())).collect();
        let (mut at, mut last) = (0, PageId::NONE);
        while at < rows.len() {
            let leaf = leaves[at];
            let is_new = leaf != last && leaf != PageId::NONE;
            if is_new {
                self.go_on(MANY_ROWS)?;
                prefetcher.next_is_due(pool, usize::MAX);
            }
            let done = self.put_run(tree, &rows[at..])?;
            if done == 0 {
                self.change(tree, rows[at].0, rows[at].1, Change::Put)?;
            }
            // The prefetcher has passed every leaf that was expected for the run.
            for &passed in &leaves[at..at + done.max(1)] {
                if passed != last && passed != PageId::NONE {
                    prefetcher.came_to(passed);
                    last = passed;
                }
            }
            at += done.max(1);
        }
        Ok(())
    }

    /// Inserts rows in the given order. Ascending rows that belong to one leaf are inserted under one latch.
    ///
    /// # Errors
    /// As a single insertion, with the index of the row that failed; those before it are inserted.
    pub fn insert_run<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Arc<TreeState>,
        rows: &[(K, V)],
    ) -> Result<(), (usize, Error)> {
        let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        let mut at = 0;
        while at < rows.len() {
            let ascending = 1 + rows[at..].windows(2).take_while(|pair| pair[0].0 < pair[1].0).count();
            let end = at + ascending;
            while at < end {
                let mut done = 0;
                // A single row gains nothing, and its own change reports its errors.
                if end - at > 1 {
                    done = self.change_run(tree, &rows[at..end], Change::Insert).map_err(|error| (at, error))?;
                }
                if done == 0 {
                    let (key, value) = rows[at];
                    self.change(tree, key, value, Change::Insert).map_err(|error| (at, error))?;
                    done = 1;
                }
                at += done;
            }
        }
        Ok(())
    }

    /// Whether a read of the tree by this transaction finds its contents as of the snapshot.
    ///
    /// # Errors
    /// [`Error::Usage`] for a tree of another database.
    pub fn may_read(&self, tree: &TreeState) -> Result<Readable> {
        self.engine.admit(tree)?;
        Ok(tree.readable(self.id(), &self.pin()))
    }

    /// The leaves of sorted keys, as far as they are known without reading leaves. At every isolation a view
    /// keeps the tree's pages meanwhile: without it, those of a dropped tree could be freed under the
    /// descent.
    ///
    /// # Errors
    /// [`Error::TreeDropped`](crate::Error::TreeDropped); reading errors.
    pub fn leaves_of(&self, tree: &TreeState, keys: &[&[u8]]) -> Result<Vec<PageId>> {
        let view = self.pin();
        tree.usable(self.id(), &view)?;
        tree.at.leaves_of(self.pool(), keys)
    }

    /// An estimate of what lies between two keys; with a view, as [`Txn::leaves_of`].
    ///
    /// # Errors
    /// [`Error::TreeDropped`](crate::Error::TreeDropped); reading errors.
    pub fn estimate(&self, tree: &TreeState, low: &[u8], end: Bound<&[u8]>) -> Result<Estimate> {
        let view = self.pin();
        tree.usable(self.id(), &view)?;
        tree.at.estimate(self.pool(), low, end)
    }

    /// The values of many keys, in the order of `keys`.
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, tree: &Arc<TreeState>, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by(|&a, &b| keys[a].as_ref().cmp(keys[b].as_ref()));
        let sorted: Vec<&[u8]> = order.iter().map(|&i| keys[i].as_ref()).collect();
        let view = self.view();
        let reader = Reader { me: self.id(), view: &view };
        tree.usable(reader.me, reader.view)?;
        let pool = self.engine.pool();
        // The leaf of a single key is not prefetched.
        let leaves = if keys.len() > 1 { tree.at.leaves_of(pool, &sorted)? } else { vec![PageId::NONE; keys.len()] };
        let mut prefetcher = Prefetcher::of(leaves.iter().copied().filter(|&leaf| leaf != PageId::NONE));
        let mut values = vec![None; keys.len()];
        let mut long: Vec<(usize, OverflowRef)> = Vec::new();
        let mut last = PageId::NONE;
        for ((&i, key), leaf) in order.iter().zip(sorted).zip(leaves) {
            let is_new = leaf != last && leaf != PageId::NONE;
            if is_new {
                self.go_on(MANY_ROWS)?;
                prefetcher.next_is_due(pool, usize::MAX);
            }
            if self.options.isolation == Isolation::Serializable {
                values[i] = self.lock_row(tree, key, Mode::Shared)?;
            } else {
                match self.stored_version(tree, key, reader)? {
                    None => {}
                    Some(Stored::Inline(bytes)) => values[i] = Some(bytes),
                    Some(Stored::Overflow(reference)) => long.push((i, reference)),
                }
            }
            if is_new {
                prefetcher.came_to(leaf);
                last = leaf;
            }
        }
        let references: Vec<OverflowRef> = long.iter().map(|&(_, reference)| reference).collect();
        let mut places = long.into_iter().map(|(i, _)| i);
        read_overflow_many(pool, tree.at.id, &references, |value| {
            if let Some(i) = places.next() {
                values[i] = Some(value);
            }
        })?;
        Ok(values)
    }
}
