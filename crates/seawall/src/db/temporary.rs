//! Temporary trees, for intermediate results and temporary tables: volatile, without a log, gone at close.
//!
//! 1. *Owner.* A temporary tree has no name and only one handle, so only the owner of the handle can use it: a
//!    transaction, a connection or a thread, one at a time. The tree outlives the owner's transactions, and ends when
//!    the handle is dropped. Hence it needs no locks, no versions and no snapshots: the owner sees each change at once.
//! 2. *Isolation from the database.* It is in no catalogue, checkpoint, log, backup or dump, and its pages are not in
//!    the data file ([`crate::buffer::Spill`]). So `check`, `compact` and `shrink` never see it, no commit and no
//!    checkpoint waits for it, and a crash leaves nothing of it. A failed write of its file is an error of the call and
//!    does not poison the database.
//! 3. A transaction's rollback does not undo changes of the tree. The owner can undo them by a rollback to a savepoint
//!    of the tree, set when the transaction began or set its own savepoint.
//! 4. It does not keep the database open. When the database is closed or shut down, each call fails with
//!    [`Error::ShutDown`]; in a forked process, with [`Error::Usage`]. The file's blocks are freed with the handle.
//! 5. Calls with `&self` can load and evict pages, so a mutex serialises them. It is held for one call: only threads
//!    that share the handle wait for each other, at most for one read or some writes of pages, never for a flush.

use super::cursor::KeyValue;
use super::database::Database;
use super::inner::Temporaries;
use super::key_range::KeyRange;
use crate::btree::{Temporary, TemporaryFound, TemporaryRows};
use crate::buffer::SpillPlace;
use crate::counted::Mutex;
use crate::error::{Error, LockedOn, Result};
use crate::format::TreeId;
use seawall_io::FlushMethod;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The options of a temporary tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemporaryOptions {
    /// Memory for the tree's pages, bytes; at least 32 pages. It is allocated on demand. Pages that do not fit are in a
    /// file in the database's directory; the file has no name and ends with the tree.
    pub memory_bytes: u64,
}

impl Default for TemporaryOptions {
    /// 16 MiB.
    fn default() -> Self {
        Self { memory_bytes: 16 << 20 }
    }
}

/// A temporary tree and the only handle to it: see [`Database::temporary_tree`].
#[derive(Debug)]
pub struct TemporaryTree {
    of: Arc<Temporaries>,
    tree: Mutex<Temporary>,
}

/// A point to which a [`TemporaryTree`] can be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemporarySavepoint {
    /// The opening, and the tree in it.
    of: (u64, TreeId),
    number: u64,
}

impl Database {
    /// Creates a temporary tree: an ordered map that belongs to the owner of the handle. It is not logged, not durable
    /// and not locked, and can be larger than memory. It ends when the handle is dropped, the database is closed, or
    /// the process ends.
    ///
    /// It is independent of transactions, and outlives those of its owner. It can be rolled back to savepoints of its
    /// own.
    ///
    /// # Errors
    /// [`Error::ShutDown`]; [`Error::ReadOnly`] if the database was opened read-only: it cannot create the file.
    ///
    /// ```
    /// use seawall::TemporaryOptions;
    /// # let db = seawall::Database::in_memory()?;
    /// let mut sorted = db.temporary_tree(TemporaryOptions::default())?;
    /// sorted.put("pear", b"3")?;
    /// sorted.put("apple", b"1")?;
    /// let before = sorted.savepoint()?;
    /// sorted.delete("apple")?;
    /// sorted.rollback_to(&before)?;
    /// let keys: Vec<_> = sorted.range(..)?.map(|row| Ok(row?.0)).collect::<seawall::Result<_>>()?;
    /// assert_eq!(keys, [&b"apple"[..], b"pear"]);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn temporary_tree(&self, options: TemporaryOptions) -> Result<TemporaryTree> {
        self.here()?;
        self.inner.shutdown.admit()?;
        let pool = self.inner.engine().pool();
        if pool.health().is_read_only() {
            pool.health().check()?;
        }
        let of = self.inner.temporaries.clone();
        let number = of.made.fetch_add(1, Ordering::Relaxed);
        let config = pool.config();
        // The file is never flushed; the method only decides whether writes use the page cache, as for the
        // data file.
        let method = if config.method.is_direct() { FlushMethod::ODirect } else { FlushMethod::Fsync };
        let (disk, dir, stats) = (pool.disk().clone(), config.dir.clone(), config.stats.clone());
        // A file on a disk in memory saves no memory.
        let memory_bytes = if disk.backend().name == "memory" { u64::MAX } else { options.memory_bytes };
        let place = SpillPlace { disk, dir, number, method, stats };
        // From the end of the id range, which no tree of the catalogue reaches.
        let id = TreeId(u32::MAX - (number % (1 << 30)) as u32);
        let tree = Mutex::new(Temporary::new(id, place, pool.page_bytes(), memory_bytes)?);
        Ok(TemporaryTree { of, tree })
    }
}

impl TemporaryTree {
    fn here(&mut self) -> Result<&mut Temporary> {
        self.of.here()?;
        Ok(self.tree.get_mut())
    }

    fn look<T>(&self, look: impl FnOnce(&mut Temporary) -> Result<T>) -> Result<T> {
        self.of.here()?;
        look(&mut self.tree.lock())
    }

    /// Returns the tree's id, for messages. No other existing tree has this id.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.look(|tree| Ok(tree.id())).unwrap_or(TreeId::FREE)
    }

    /// Returns the number of rows.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn len(&self) -> Result<u64> {
        self.look(|tree| Ok(tree.rows()))
    }

    /// Returns whether the tree has no rows.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the bytes that the tree uses in memory and in its file.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn bytes(&self) -> Result<(u64, u64)> {
        self.look(|tree| Ok((tree.pages().memory_bytes(), tree.pages().file_bytes())))
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`Error::ShutDown`]; [`Error::Io`] and [`Error::Corrupt`] when its file cannot be read.
    pub fn get(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Vec<u8>>> {
        self.look(|tree| match tree.get(key.as_ref())? {
            Some(found) => tree.read(found).map(Some),
            None => Ok(None),
        })
    }

    /// Returns whether `key` exists.
    ///
    /// # Errors
    /// Those of [`TemporaryTree::get`].
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool> {
        self.look(|tree| Ok(tree.get(key.as_ref())?.is_some()))
    }

    /// Inserts or overwrites a row; returns true if `key` existed.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::NoSpace`] for its file, [`Error::Io`],
    /// [`Error::ShutDown`]: the row is unchanged.
    pub fn put(&mut self, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<bool> {
        let max_bytes = crate::txn::VALUE_BYTES_MAX;
        if value.len() as u64 > max_bytes {
            return Err(Error::ValueTooLong { len_bytes: value.len() as u64, max_bytes });
        }
        self.here()?.put(key.as_ref(), value)
    }

    /// Inserts a row.
    ///
    /// # Errors
    /// [`Error::KeyExists`]; those of [`TemporaryTree::put`].
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized), value: &[u8]) -> Result<()> {
        let tree = self.here()?;
        if tree.get(key.as_ref())?.is_some() {
            return Err(Error::KeyExists { on: LockedOn::row(tree.id(), key.as_ref()) });
        }
        self.put(key, value).map(drop)
    }

    /// Deletes a row; returns true if it existed.
    ///
    /// # Errors
    /// Those of [`TemporaryTree::get`]: the row is unchanged.
    pub fn delete(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool> {
        self.here()?.delete(key.as_ref())
    }

    /// Deletes all rows: at once if there is no savepoint, otherwise one by one.
    ///
    /// # Errors
    /// Those of [`TemporaryTree::delete`]: rows that were not deleted are unchanged.
    pub fn clear(&mut self) -> Result<()> {
        self.here()?.clear()
    }

    /// Iterates over the rows of a range in key order, from either end.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn range(&self, range: impl KeyRange) -> Result<TemporaryRangeIter<'_>> {
        self.of.here()?;
        Ok(TemporaryRangeIter {
            tree: self,
            lower: range.lower_bound().map(<[u8]>::to_vec),
            upper: range.upper_bound().map(<[u8]>::to_vec),
            done: false,
            front: VecDeque::new(),
            back: VecDeque::new(),
        })
    }

    /// Returns the row with the smallest key.
    ///
    /// # Errors
    /// Those of [`TemporaryTree::get`].
    pub fn first(&self) -> Result<Option<KeyValue>> {
        self.range(..)?.next().transpose()
    }

    /// Returns the row with the largest key.
    ///
    /// # Errors
    /// Those of [`TemporaryTree::get`].
    pub fn last(&self) -> Result<Option<KeyValue>> {
        self.range(..)?.next_back().transpose()
    }

    /// Sets a savepoint. While one exists, the old data of each change is kept in memory: the key, and the value unless
    /// it is long.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn savepoint(&mut self) -> Result<TemporarySavepoint> {
        let opening = self.of.opening;
        let tree = self.here()?;
        Ok(TemporarySavepoint { of: (opening, tree.id()), number: tree.savepoint() })
    }

    fn number(&mut self, savepoint: &TemporarySavepoint) -> Result<u64> {
        let opening = self.of.opening;
        if (opening, self.here()?.id()) != savepoint.of {
            return Err(Error::Usage("the savepoint belongs to another temporary tree".into()));
        }
        Ok(savepoint.number)
    }

    /// Undoes the changes made after the savepoint. The savepoint stays valid; later ones become invalid.
    ///
    /// # Errors
    /// [`Error::Unknown`] if the savepoint is invalid; [`Error::Usage`] if it belongs to another tree. After
    /// [`Error::Io`] a part is undone; another call undoes the rest.
    pub fn rollback_to(&mut self, savepoint: &TemporarySavepoint) -> Result<()> {
        let number = self.number(savepoint)?;
        self.here()?.rollback_to(number)
    }

    /// Discards the savepoint and later ones; the changes stay. Without a savepoint no old data is kept.
    ///
    /// # Errors
    /// [`Error::Unknown`] and [`Error::Usage`], as for [`TemporaryTree::rollback_to`].
    pub fn release(&mut self, savepoint: TemporarySavepoint) -> Result<()> {
        let number = self.number(&savepoint)?;
        self.here()?.release(number)
    }

    /// Verifies the consistency of the whole tree. Returns the damage found, which is none unless memory or the tree's
    /// file was damaged.
    ///
    /// # Errors
    /// Those of [`TemporaryTree::get`].
    pub fn check(&self) -> Result<Vec<String>> {
        self.look(Temporary::check)
    }
}

/// An iterator over the rows of a range of a [`TemporaryTree`]. It ends at the first error.
#[derive(Debug)]
pub struct TemporaryRangeIter<'t> {
    tree: &'t TemporaryTree,
    /// The part of the range for which no leaf has been requested.
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    done: bool,
    /// Rows of the last requested leaves, from either end.
    front: VecDeque<(Vec<u8>, TemporaryFound)>,
    back: VecDeque<(Vec<u8>, TemporaryFound)>,
}

impl TemporaryRangeIter<'_> {
    fn has(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Included(lower) => key >= &lower[..],
            Bound::Excluded(lower) => key > &lower[..],
            Bound::Unbounded => true,
        };
        let below = match &self.upper {
            Bound::Included(upper) => key <= &upper[..],
            Bound::Excluded(upper) => key < &upper[..],
            Bound::Unbounded => true,
        };
        above && below
    }

    /// Returns whether the remaining range is empty.
    fn is_passed(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
                lower >= upper
            }
            _ => false,
        }
    }

    /// Requests the next leaf from the front.
    fn fill_front(&mut self) -> Result<()> {
        let key = match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => Some(&key[..]),
            Bound::Unbounded => None,
        };
        let TemporaryRows { mut rows, upper, .. } = self.tree.look(|tree| tree.rows_at(key, false))?;
        rows.retain(|(key, _)| self.has(key));
        self.front.extend(rows);
        match upper {
            Some(upper) => self.lower = Bound::Included(upper),
            None => self.done = true,
        }
        self.done |= self.is_passed();
        Ok(())
    }

    /// Requests the next leaf from the back.
    fn fill_back(&mut self) -> Result<()> {
        // The leaf just below an included key does not contain that key.
        let beyond = match &self.upper {
            Bound::Included(key) => Some([&key[..], &[0]].concat()),
            Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        let TemporaryRows { mut rows, lower, .. } = self.tree.look(|tree| tree.rows_at(beyond.as_deref(), true))?;
        rows.retain(|(key, _)| self.has(key));
        for row in rows.into_iter().rev() {
            self.back.push_front(row);
        }
        self.done |= lower.is_empty();
        self.upper = Bound::Excluded(lower);
        self.done |= self.is_passed();
        Ok(())
    }

    fn give(&mut self, row: Option<(Vec<u8>, TemporaryFound)>) -> Option<Result<KeyValue>> {
        let (key, found) = row?;
        let value = self.tree.look(|tree| tree.read(found));
        if value.is_err() {
            self.end();
        }
        Some(value.map(|value| (key, value)))
    }

    fn end(&mut self) {
        self.done = true;
        self.front.clear();
        self.back.clear();
    }
}

impl Iterator for TemporaryRangeIter<'_> {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        self.done |= self.is_passed();
        while self.front.is_empty() && !self.done {
            if let Err(error) = self.fill_front() {
                self.end();
                return Some(Err(error));
            }
        }
        let row = self.front.pop_front().or_else(|| self.back.pop_front());
        self.give(row)
    }
}

impl DoubleEndedIterator for TemporaryRangeIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.done |= self.is_passed();
        while self.back.is_empty() && !self.done {
            if let Err(error) = self.fill_back() {
                self.end();
                return Some(Err(error));
            }
        }
        let row = self.back.pop_back().or_else(|| self.front.pop_back());
        self.give(row)
    }
}
