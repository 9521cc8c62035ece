//! Reading and writing many rows at once.
//!
//! 1. The answers are those of single reads in one statement: all from one snapshot.
//! 2. The leaves are prefetched in parallel, in the order in which the rows are visited: key order, except for
//!    insertions, whose order is visible to callers. Long values are read after the rows, in the same way.

use super::locking::MANY_ROWS;
use super::locks::Mode;
use super::options::Isolation;
use super::transaction::Txn;
use super::trees::{Readable, TreeState};
use super::version::{Reader, Stored};
use super::write::Change;
use crate::btree::{Estimate, OverflowRef, read_overflow_many};
use crate::buffer::{Pool, Prefetcher};
use crate::error::{Error, Result};
use crate::format::PageId;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Prefetches the leaves of rows that are visited one after the other.
struct LeafPrefetch {
    /// The leaf of each row; [`PageId::NONE`] if it is not known.
    leaves: Vec<PageId>,
    prefetcher: Prefetcher,
    /// The leaf of the last row that was passed.
    last: PageId,
}

impl LeafPrefetch {
    /// For rows with these keys, in the order of the visits. The leaf of a single key is not prefetched.
    fn of(tx: &Txn, tree: &TreeState, keys: &[&[u8]]) -> Result<Self> {
        let mut leaves = vec![PageId::NONE; keys.len()];
        if keys.is_sorted() {
            if keys.len() > 1 {
                leaves = tx.leaves_of(tree, keys)?;
            }
        } else {
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_unstable_by_key(|&i| keys[i]);
            let sorted: Vec<&[u8]> = order.iter().map(|&i| keys[i]).collect();
            for (i, leaf) in order.into_iter().zip(tx.leaves_of(tree, &sorted)?) {
                leaves[i] = leaf;
            }
        }
        let prefetcher = Prefetcher::of(leaves.iter().copied().filter(|&leaf| leaf != PageId::NONE));
        Ok(Self { leaves, prefetcher, last: PageId::NONE })
    }

    fn is_new(&self, at: usize) -> bool {
        self.leaves[at] != self.last && self.leaves[at] != PageId::NONE
    }

    /// Called before a row is visited.
    fn before(&mut self, tx: &Txn, at: usize) -> Result<()> {
        if self.is_new(at) {
            tx.go_on(MANY_ROWS)?;
            self.prefetcher.next_is_due(tx.pool(), usize::MAX);
        }
        Ok(())
    }

    /// Called after these rows were visited.
    fn passed(&mut self, rows: Range<usize>) {
        for at in rows {
            if self.is_new(at) {
                self.last = self.leaves[at];
                self.prefetcher.came_to(self.last);
            }
        }
    }
}

impl Txn {
    /// The pool, for callers that prefetch pages.
    pub fn pool(&self) -> &Pool {
        self.engine.pool()
    }

    /// Inserts or overwrites rows, in key order (of two rows with the same key the later one stays).
    /// Prefetches their leaves in parallel.
    ///
    /// # Errors
    /// As a single change. The rows before the one that failed, in key order, are changed.
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, tree: &Arc<TreeState>, rows: &[(K, V)]) -> Result<()> {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // Stable: rows with one key stay in their order.
        order.sort_by(|&a, &b| rows[a].0.as_ref().cmp(rows[b].0.as_ref()));
        let rows: Vec<(&[u8], &[u8])> = order.iter().map(|&i| (rows[i].0.as_ref(), rows[i].1.as_ref())).collect();
        self.change_rows(tree, &rows, Change::Put).map_err(|(_, error)| error)
    }

    /// Inserts rows in the given order, as [`Txn::change_rows`] does.
    ///
    /// # Errors
    /// As a single insertion, with the index of the row that failed; those before it are inserted.
    pub fn insert_run<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Arc<TreeState>,
        rows: &[(K, V)],
    ) -> Result<(), (usize, Error)> {
        let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        self.change_rows(tree, &rows, Change::Insert)
    }

    /// Inserts or puts rows in the given order. Prefetches their leaves in parallel; ascending rows that belong to one
    /// leaf are changed under one latch.
    ///
    /// # Errors
    /// As a single change, with the index of the row that failed; those before it are changed.
    fn change_rows(
        &mut self,
        tree: &Arc<TreeState>,
        rows: &[(&[u8], &[u8])],
        change: Change,
    ) -> Result<(), (usize, Error)> {
        let keys: Vec<&[u8]> = rows.iter().map(|row| row.0).collect();
        let mut ahead = LeafPrefetch::of(self, tree, &keys).map_err(|error| (0, error))?;
        let mut at = 0;
        while at < rows.len() {
            // Equal keys may follow each other only if the later one overwrites.
            let in_order = |pair: &[(&[u8], &[u8])]| match change {
                Change::Put => pair[0].0 <= pair[1].0,
                _ => pair[0].0 < pair[1].0,
            };
            let end = at + 1 + rows[at..].windows(2).take_while(|pair| in_order(pair)).count();
            while at < end {
                ahead.before(self, at).map_err(|error| (at, error))?;
                let mut done = 0;
                // A single row gains nothing, and its own change reports its errors.
                if end - at > 1 {
                    done = self.change_run(tree, &rows[at..end], change).map_err(|error| (at, error))?;
                }
                if done == 0 {
                    let (key, value) = rows[at];
                    self.change(tree, key, value, change).map_err(|error| (at, error))?;
                    done = 1;
                }
                ahead.passed(at..at + done);
                at += done;
            }
        }
        Ok(())
    }

    /// Whether this transaction can read the tree's contents as of its snapshot.
    ///
    /// # Errors
    /// [`Error::Usage`] for a tree of another database.
    pub fn may_read(&self, tree: &TreeState) -> Result<Readable> {
        self.engine.admit(tree)?;
        Ok(tree.readable(self.id(), &self.pin()))
    }

    /// The leaves of sorted keys, as far as they are known without reading leaves. At every isolation level a
    /// view keeps the tree's pages meanwhile: without it, the pages of a dropped tree could be freed during
    /// the descent.
    ///
    /// # Errors
    /// [`Error::TreeDropped`](crate::Error::TreeDropped); reading errors.
    pub fn leaves_of(&self, tree: &TreeState, keys: &[&[u8]]) -> Result<Vec<PageId>> {
        let view = self.pin();
        tree.stands(self.id(), &view)?;
        tree.at.leaves_of(self.pool(), keys)
    }

    /// Estimates what lies between two keys. Holds a view meanwhile, as [`Txn::leaves_of`] does.
    ///
    /// # Errors
    /// [`Error::TreeDropped`](crate::Error::TreeDropped); reading errors.
    pub fn estimate(&self, tree: &TreeState, low: &[u8], end: Bound<&[u8]>) -> Result<Estimate> {
        let view = self.pin();
        tree.usable(self.id(), &view)?;
        tree.at.estimate(self.pool(), low, end)
    }

    /// Calls `each` with the position of every sorted key, in order; prefetches the leaves in parallel.
    ///
    /// # Errors
    /// Those of `each`, and of reading.
    pub fn visit(&self, tree: &TreeState, keys: &[&[u8]], mut each: impl FnMut(usize) -> Result<()>) -> Result<()> {
        let mut ahead = LeafPrefetch::of(self, tree, keys)?;
        for at in 0..keys.len() {
            ahead.before(self, at)?;
            each(at)?;
            ahead.passed(at..at + 1);
        }
        Ok(())
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
        let mut values = vec![None; keys.len()];
        let mut long: Vec<(usize, OverflowRef)> = Vec::new();
        self.visit(tree, &sorted, |at| {
            let (i, key) = (order[at], sorted[at]);
            if self.options.isolation == Isolation::Serializable {
                values[i] = self.lock_row(tree, key, Mode::Shared)?;
                return Ok(());
            }
            match self.stored_version(tree, key, reader)? {
                None => {}
                Some(Stored::Inline(bytes)) => values[i] = Some(bytes),
                Some(Stored::Overflow(reference)) => long.push((i, reference)),
            }
            Ok(())
        })?;
        let references: Vec<OverflowRef> = long.iter().map(|&(_, reference)| reference).collect();
        let mut places = long.into_iter().map(|(i, _)| i);
        read_overflow_many(self.pool(), tree.at.id, &references, |value| {
            if let Some(i) = places.next() {
                values[i] = Some(value);
            }
        })?;
        Ok(values)
    }
}
