//! Cursors and iterators.

use super::inner::Inner;
use super::transaction::Transaction;
use super::tree::Tree;
use crate::btree::ReadAhead;
use crate::error::{Error, Result};
use crate::format::TreeId;
use crate::txn::{LockWait, Mode, Scan, ScanLock, Seek, TreeState, Txn};
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

/// A lock's strength.
pub type LockMode = Mode;

/// How a cursor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CursorOptions {
    /// The lock that the cursor takes on each row it reaches. `None`: it reads without locks (in a serializable
    /// transaction, with shared locks).
    pub lock: Option<LockMode>,
    /// What to do on a lock conflict; `None` uses the transaction's setting.
    pub wait: Option<LockWait>,
    /// A hint: the largest number of rows that will be read, if known. The cursor does not read ahead for more
    /// rows, but it can go further.
    pub limit: Option<u64>,
    /// A hint that many rows will be read: reading ahead starts at once, not after the first leaves.
    pub long: bool,
}

impl CursorOptions {
    fn scan_lock(&self) -> ScanLock {
        self.lock.map_or(ScanLock::None, ScanLock::Rows)
    }

    fn apply<T: Deref<Target = Txn>>(&self, mut scan: Scan<T>) -> Scan<T> {
        if self.long {
            scan.read_ahead().long();
        }
        if let Some(rows) = self.limit {
            scan.read_ahead().limit(rows);
        }
        match self.wait {
            Some(wait) => scan.waiting(wait),
            None => scan,
        }
    }
}

impl Transaction {
    /// Iterates over the entries with keys in `range`, in key order, from either end.
    pub fn range<'t, K: AsRef<[u8]>>(&'t self, tree: &Tree, range: impl RangeBounds<K>) -> RangeIter<'t> {
        let own = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        RangeIter::new(self, tree, own(range.start_bound()), own(range.end_bound()))
    }

    /// Iterates over all entries in key order, from either end.
    pub fn iter<'t>(&'t self, tree: &Tree) -> RangeIter<'t> {
        self.range::<&[u8]>(tree, ..)
    }

    /// Iterates over the entries whose keys begin with `prefix`.
    pub fn prefix<'t>(&'t self, tree: &Tree, prefix: &[u8]) -> RangeIter<'t> {
        let (start, end) = super::keys::prefix_range(prefix);
        RangeIter::new(self, tree, start, end)
    }

    /// Returns a cursor over a tree.
    pub fn cursor<'t>(&'t self, tree: &Tree, options: CursorOptions) -> Cursor<'t> {
        Cursor::new(self, tree, options)
    }

    /// Returns a cursor over a tree that can delete its current entry. It borrows the transaction, so no other
    /// call can use the transaction while the cursor exists.
    pub fn cursor_mut<'t>(&'t mut self, tree: &Tree, options: CursorOptions) -> CursorMut<'t> {
        CursorMut::new(&mut self.txn, &self.inner, tree, options)
    }
}

/// A movable position in a tree.
///
/// ```
/// use seawall::{CursorOptions, Seek};
/// # let db = seawall::Database::in_memory()?;
/// # let tree = db.create_tree("t")?;
/// # db.transact(|tx| { tx.put(&tree, b"a", b"1")?; tx.put(&tree, b"c", b"3") })?;
/// let tx = db.begin()?;
/// let mut cursor = tx.cursor(&tree, CursorOptions::default());
/// assert!(cursor.seek(Seek::AtLeast(b"b"))?);
/// assert_eq!(cursor.key(), b"c");
/// assert_eq!(cursor.value()?, b"3");
/// # Ok::<(), seawall::Error>(())
/// ```
#[derive(Debug)]
pub struct Cursor<'t>(Scan<&'t Txn>);

/// A movable position in a tree, whose current entry can be deleted: [`Transaction::cursor_mut`].
///
/// ```
/// use seawall::{CursorOptions, Seek};
/// # let db = seawall::Database::in_memory()?;
/// # let tree = db.create_tree("t")?;
/// # db.transact(|tx| (0..100u8).try_for_each(|n| tx.put(&tree, &[n], b"job")))?;
/// let mut tx = db.begin()?;
/// let mut cursor = tx.cursor_mut(&tree, CursorOptions::default());
/// let mut there = cursor.seek(Seek::First)?;
/// while there {
///     if cursor.key()[0] % 2 == 0 {
///         cursor.delete()?;
///     }
///     there = cursor.next()?;
/// }
/// drop(cursor);
/// assert_eq!(tx.iter(&tree).count(), 50);
/// tx.commit()?;
/// # Ok::<(), seawall::Error>(())
/// ```
#[derive(Debug)]
pub struct CursorMut<'t> {
    scan: Scan<&'t mut Txn>,
    inner: &'t Inner,
}

/// A cursor's position, to return to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The tree, and the opening of the database.
    pub(super) of: (TreeId, u64),
    pub(super) key: Vec<u8>,
    pub(super) on_entry: bool,
}

impl Position {
    /// Fails unless it is a position in this tree of this opening.
    pub(super) fn check(&self, here: (TreeId, u64)) -> Result<()> {
        if self.of == here {
            return Ok(());
        }
        let ((there, owner), (here, me)) = (self.of, here);
        let whose = if owner == me { "" } else { " of another database, or of an earlier opening of this one" };
        Err(Error::Usage(format!("a position in tree {there}{whose} for a cursor over tree {here}")))
    }
}

impl<'t> Cursor<'t> {
    pub(super) fn new(tx: &'t Transaction, tree: &Tree, options: CursorOptions) -> Self {
        Self(options.apply(tx.txn().scan(&tree.state, options.scan_lock())))
    }

    /// Restricts the cursor to `range`. It reads no leaf beyond the end that it moves towards; whether it finds an
    /// entry there is unspecified. A locking cursor takes no lock beyond that end. Seek to keys in the range.
    #[must_use]
    pub fn within<K: AsRef<[u8]>>(self, range: impl RangeBounds<K>) -> Self {
        Self(self.0.within(range.start_bound().map(AsRef::as_ref), range.end_bound().map(AsRef::as_ref)))
    }

    /// Moves to an entry. Returns false if there is none; the cursor then has no current entry, and a step finds none
    /// in either direction.
    ///
    /// # Errors
    /// Those of [`Transaction::get`]; lock errors if it locks.
    pub fn seek(&mut self, to: Seek<'_>) -> Result<bool> {
        self.0.seek(to)
    }

    /// Moves to the next entry; returns false if there is none.
    ///
    /// # Errors
    /// Those of [`Cursor::seek`]; [`Error::Usage`] before the first seek, and after one that has failed.
    #[expect(clippy::should_implement_trait, reason = "its entries borrow from it")]
    pub fn next(&mut self) -> Result<bool> {
        self.0.next()
    }

    /// Moves to the previous entry; returns false if there is none.
    ///
    /// # Errors
    /// Those of [`Cursor::seek`].
    pub fn prev(&mut self) -> Result<bool> {
        self.0.prev()
    }

    /// Returns the key of the current entry. Without a current entry it is a key that the cursor has passed, perhaps
    /// one whose row this transaction does not see: nothing to continue from in a later transaction.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Returns the value of the current entry.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] without a current entry; read errors for a long value.
    pub fn value(&mut self) -> Result<&[u8]> {
        self.0.value()
    }

    /// Returns the key and the value of the current entry.
    ///
    /// # Errors
    /// Those of [`Cursor::value`].
    pub fn entry(&mut self) -> Result<(&[u8], &[u8])> {
        self.0.entry()
    }

    /// Returns whether the cursor has newly locked the current row, and only that row:
    /// [`Transaction::unlock_row`] can then release the lock. Always false for a cursor that also locks the
    /// intervals between rows.
    #[must_use]
    pub fn newly_locked(&self) -> bool {
        self.0.newly_locked()
    }

    /// Returns the current position. Without a current entry it is that of [`Cursor::key`].
    #[must_use]
    pub fn position(&self) -> Position {
        Position { of: self.0.tree(), key: self.0.key().to_vec(), on_entry: self.0.is_on_entry() }
    }

    /// Moves back to `position`. Returns true if its entry still exists; otherwise the cursor moves to the
    /// first entry after it, if any.
    ///
    /// # Errors
    /// Those of [`Cursor::seek`]; [`Error::Usage`] for a position in another tree or of another database.
    pub fn restore(&mut self, position: &Position) -> Result<bool> {
        position.check(self.0.tree())?;
        let found = self.0.seek(Seek::AtLeast(&position.key))?;
        Ok(found && position.on_entry && self.0.key() == position.key)
    }
}

impl<'t> CursorMut<'t> {
    pub(super) fn new(txn: &'t mut Txn, inner: &'t Inner, tree: &Tree, options: CursorOptions) -> Self {
        let scan = txn.scan_mut(&tree.state, options.scan_lock());
        Self { scan: options.apply(scan), inner }
    }

    /// See [`Cursor::within`].
    #[must_use]
    pub fn within<K: AsRef<[u8]>>(self, range: impl RangeBounds<K>) -> Self {
        let (start, end) = (range.start_bound().map(AsRef::as_ref), range.end_bound().map(AsRef::as_ref));
        Self { scan: self.scan.within(start, end), ..self }
    }

    /// See [`Cursor::seek`].
    ///
    /// # Errors
    /// Those of [`Cursor::seek`].
    pub fn seek(&mut self, to: Seek<'_>) -> Result<bool> {
        self.scan.seek(to)
    }

    /// Moves to the next entry (after a deletion, to the entry after the deleted one); returns false if there
    /// is none.
    ///
    /// # Errors
    /// Those of [`Cursor::seek`].
    #[expect(clippy::should_implement_trait, reason = "its entries borrow from it")]
    pub fn next(&mut self) -> Result<bool> {
        self.scan.next()
    }

    /// Moves to the previous entry (after a deletion, to the entry before the deleted one); returns false if
    /// there is none.
    ///
    /// # Errors
    /// Those of [`Cursor::seek`].
    pub fn prev(&mut self) -> Result<bool> {
        self.scan.prev()
    }

    /// See [`Cursor::key`].
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.scan.key()
    }

    /// See [`Cursor::value`].
    ///
    /// # Errors
    /// Those of [`Cursor::value`].
    pub fn value(&mut self) -> Result<&[u8]> {
        self.scan.value()
    }

    /// See [`Cursor::entry`].
    ///
    /// # Errors
    /// Those of [`Cursor::value`].
    pub fn entry(&mut self) -> Result<(&[u8], &[u8])> {
        self.scan.entry()
    }

    /// Deletes the current entry, in one descent. Afterwards the cursor has no current entry;
    /// [`CursorMut::next`] and [`CursorMut::prev`] continue from the entry's position. Returns false, without
    /// effect, if another transaction has deleted the row since the cursor read it. This cannot happen to a
    /// locking cursor, nor at repeatable read with [`OnConflict::Fail`](crate::OnConflict::Fail).
    ///
    /// # Errors
    /// [`crate::Error::Usage`] without a current entry; those of [`Transaction::delete`], after which the
    /// cursor keeps its current entry.
    pub fn delete(&mut self) -> Result<bool> {
        let deleted = self.scan.delete();
        if let Err(error) = &deleted {
            self.inner.counts.failed(error);
        }
        deleted
    }
}

/// An iterator over the entries of a range, from either end.
#[derive(Debug)]
pub struct RangeIter<'t> {
    front: Scan<&'t Txn>,
    /// Made by the first read from the end.
    back: Option<Scan<&'t Txn>>,
    txn: &'t Txn,
    tree: Arc<TreeState>,
    hints: (bool, Option<u64>),
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    front_began: bool,
    back_began: bool,
    done: bool,
    values: bool,
}

/// A key and its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

impl<'t> RangeIter<'t> {
    pub(super) fn new(tx: &'t Transaction, tree: &Tree, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Self {
        let front = tx.txn().scan(&tree.state, ScanLock::None);
        Self {
            front: front.within(borrowed(&start), borrowed(&end)),
            back: None,
            txn: tx.txn(),
            tree: tree.state.clone(),
            hints: (false, None),
            done: is_empty(&start, &end),
            start,
            end,
            front_began: false,
            back_began: false,
            values: true,
        }
    }

    /// The scan from the end.
    fn back(&mut self) -> &mut Scan<&'t Txn> {
        let Self { front, back, txn, tree, hints: (long, limit), start, end, .. } = self;
        back.get_or_insert_with(|| {
            let mut back = txn.scan(tree, ScanLock::None).within(borrowed(start), borrowed(end)).seeing(front);
            if *long {
                back.read_ahead().long();
            }
            if let Some(rows) = *limit {
                back.read_ahead().limit(rows);
            }
            back
        })
    }

    /// Returns an iterator over keys with empty values, which does not read long values.
    pub(super) fn keys_only(tx: &'t Transaction, tree: &Tree, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Self {
        Self { values: false, ..Self::new(tx, tree, start, end) }
    }

    /// A hint that all or most of the range will be read: reading ahead starts at once, not after the first
    /// leaves.
    #[must_use]
    pub fn long(mut self) -> Self {
        self.front.read_ahead().long();
        self.hints.0 = true;
        self
    }

    /// A hint: read ahead for at most `rows` entries from either end. The iterator can still return more.
    #[must_use]
    pub fn limit(mut self, rows: u64) -> Self {
        self.front.read_ahead().limit(rows);
        self.hints.1 = Some(rows);
        self
    }

    /// Replaces the read-ahead by `ahead`, which already knows the next leaves of the scan.
    pub(super) fn led_by(mut self, ahead: ReadAhead) -> Self {
        *self.front.read_ahead() = ahead;
        self
    }

    /// Takes the read-ahead, for the next range that continues from here.
    pub(super) fn take_ahead(&mut self) -> ReadAhead {
        std::mem::take(self.front.read_ahead())
    }

    fn step(&mut self, forward: bool) -> Result<Option<KeyValue>> {
        let began = std::mem::replace(if forward { &mut self.front_began } else { &mut self.back_began }, true);
        let there = match (began, forward) {
            (true, true) => self.front.next()?,
            (true, false) => self.back().prev()?,
            (false, true) => self.front.seek(match &self.start {
                Bound::Unbounded => Seek::First,
                Bound::Included(key) => Seek::AtLeast(key),
                Bound::Excluded(key) => Seek::After(key),
            })?,
            (false, false) => {
                let end = self.end.clone();
                self.back().seek(match &end {
                    Bound::Unbounded => Seek::Last,
                    Bound::Included(key) => Seek::AtMost(key),
                    Bound::Excluded(key) => Seek::Before(key),
                })?
            }
        };
        let front = self.front.key();
        let back = self.back.as_ref().map_or(&[][..], Scan::key);
        let key = if forward { front } else { back };
        let inside = there && {
            if forward {
                match &self.end {
                    Bound::Unbounded => true,
                    Bound::Included(end) => key <= &end[..],
                    Bound::Excluded(end) => key < &end[..],
                }
            } else {
                match &self.start {
                    Bound::Unbounded => true,
                    Bound::Included(start) => key >= &start[..],
                    Bound::Excluded(start) => key > &start[..],
                }
            }
        };
        // The two ends have met when one reaches an entry that the other has returned.
        let met = inside && if forward { self.back_began && back <= front } else { self.front_began && front >= back };
        if !inside || met {
            self.done = true;
            return Ok(None);
        }
        let values = self.values;
        let scan = if forward { &mut self.front } else { self.back() };
        let key = scan.key().to_vec();
        let value = if values { scan.value()?.to_vec() } else { Vec::new() };
        Ok(Some((key, value)))
    }

    fn give(&mut self, forward: bool) -> Option<Result<KeyValue>> {
        if self.done {
            return None;
        }
        let stepped = self.step(forward);
        // After an error the position is unknown: continuing could silently skip entries.
        self.done |= stepped.is_err();
        stepped.transpose()
    }
}

impl Iterator for RangeIter<'_> {
    type Item = Result<KeyValue>;
    fn next(&mut self) -> Option<Self::Item> {
        self.give(true)
    }
}

impl DoubleEndedIterator for RangeIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.give(false)
    }
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

pub(super) fn is_empty(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
        _ => false,
    }
}
