//! A cursor that outlives a borrow.

use super::cursor::{CursorOptions, Position};
use super::key_range::KeyRange;
use super::transaction::Transaction;
use super::tree::Tree;
use crate::error::Result;
use crate::txn::{OwnedScan, Seek};

/// A cursor that borrows nothing: each call takes the transaction as an argument. So it can live beside the
/// transaction, across statements and transactions, and move to another thread. It keeps its memory: a reset
/// and a seek allocate nothing.
///
/// The cursor sees what the transaction sees, including the transaction's own changes, and keeps its position
/// whatever the transaction changes. After a restart of the transaction, a seek uses the new view. Without a
/// seek, `next` and `prev` continue from the current entry's key in that view. A cursor that has found no entry has
/// none to continue from: `next` and `prev` find none either, until the next seek.
///
/// At read committed a seek sees the data committed at that moment, or the view of the open statement
/// ([`Transaction::begin_statement`]). The entries that follow come from the same view.
///
/// ```
/// use seawall::{CursorOptions, OwnedCursor, Seek};
/// # let db = seawall::Database::in_memory()?;
/// let (orders, lines) = (db.create_tree("orders")?, db.create_tree("lines")?);
/// db.transact(|tx| {
///     tx.put_many(&orders, &[("1", "ada"), ("2", "grace")])?;
///     tx.put_many(&lines, &[("1/a", "tea"), ("1/b", "milk"), ("2/a", "sugar")])
/// })?;
/// let (mut outer, mut inner) = (OwnedCursor::new(), OwnedCursor::new());
/// outer.reset(&orders, CursorOptions::default(), ..);
/// inner.reset(&lines, CursorOptions::default(), ..);
/// let mut tx = db.begin()?;
/// let mut found = Vec::new();
/// let mut there = outer.seek(&tx, Seek::First)?;
/// while there {
///     let mut line = inner.seek(&tx, Seek::AtLeast(outer.key()))?;
///     while line && inner.key().starts_with(outer.key()) {
///         found.push(inner.value(&tx)?.to_vec());
///         tx.update(&orders, outer.key(), b"done")?; // while both are open
///         line = inner.next(&tx)?;
///     }
///     there = outer.next(&tx)?;
/// }
/// tx.commit_in_place()?; // both stay usable
/// assert_eq!(found, [&b"tea"[..], b"milk", b"sugar"]);
/// assert!(inner.seek(&tx, Seek::Last)?);
/// assert_eq!(inner.entry(&tx)?, (&b"2/a"[..], &b"sugar"[..]));
/// # Ok::<(), seawall::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct OwnedCursor {
    scan: OwnedScan,
}

impl OwnedCursor {
    /// Creates a cursor without a tree; [`OwnedCursor::reset`] sets one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes this a cursor over the entries of `range` in `tree`, without a current entry. It never moves
    /// outside the range, and takes no lock beyond it.
    pub fn reset(&mut self, tree: &Tree, options: CursorOptions, range: impl KeyRange) {
        self.scan.reset(&tree.state, (options.lock, options.wait), (range.lower_bound(), range.upper_bound()));
        if let Some(ahead) = self.scan.read_ahead() {
            if options.long {
                ahead.long();
            }
            if let Some(rows) = options.limit {
                ahead.limit(rows);
            }
        }
    }

    /// Drops the current entry and releases the view, until the next seek. Without this call, a cursor at read
    /// committed holds its view until the statement or the transaction ends.
    pub fn release(&mut self) {
        self.scan.release();
    }

    /// Moves to an entry of the range. Returns false if there is none; the cursor then has no current entry.
    /// [`Seek::First`] and [`Seek::Last`] refer to the range.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) before the first reset, or if the transaction belongs to another
    /// database; those of [`Transaction::get`]; lock errors if it locks.
    pub fn seek(&mut self, tx: &Transaction, to: Seek<'_>) -> Result<bool> {
        self.scan.seek(&tx.txn, to)
    }

    /// Moves to the next entry of the range; returns false if there is none.
    ///
    /// # Errors
    /// Those of [`OwnedCursor::seek`].
    pub fn next(&mut self, tx: &Transaction) -> Result<bool> {
        self.scan.step(&tx.txn, true)
    }

    /// Moves to the previous entry of the range; returns false if there is none.
    ///
    /// # Errors
    /// Those of [`OwnedCursor::seek`].
    pub fn prev(&mut self, tx: &Transaction) -> Result<bool> {
        self.scan.step(&tx.txn, false)
    }

    /// Moves to the next entries of the range, one after the other, and calls `visit` with the key and the value of
    /// each, until it returns false or there are no more. Returns how many entries it visited. The last one is then
    /// the current entry; there is none if the range has ended. Faster than [`OwnedCursor::next`] and
    /// [`OwnedCursor::entry`] for each.
    ///
    /// # Errors
    /// Those of [`OwnedCursor::seek`] and [`OwnedCursor::value`]. The entries before have been visited; the next move
    /// comes to the one that could not be.
    ///
    /// ```
    /// # use seawall::{CursorOptions, OwnedCursor, Seek};
    /// # let db = seawall::Database::in_memory()?;
    /// # let tree = db.create_tree("t")?;
    /// # db.transact(|tx| (1..=9u8).try_for_each(|n| tx.put(&tree, &[n], &[n])))?;
    /// let (tx, mut cursor, mut sum) = (db.begin()?, OwnedCursor::new(), 0);
    /// cursor.reset(&tree, CursorOptions::default(), ..);
    /// if cursor.seek(&tx, Seek::First)? {
    ///     sum = cursor.value(&tx)?[0];
    ///     let visited = cursor.next_while(&tx, |_, value| {
    ///         sum += value[0];
    ///         sum < 10
    ///     })?;
    ///     assert_eq!((sum, visited, cursor.key()), (10, 3, &[4][..]));
    /// }
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn next_while(&mut self, tx: &Transaction, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<usize> {
        self.scan.step_while(&tx.txn, true, visit)
    }

    /// Like [`OwnedCursor::next_while`], backward.
    ///
    /// # Errors
    /// Those of [`OwnedCursor::next_while`].
    pub fn prev_while(&mut self, tx: &Transaction, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<usize> {
        self.scan.step_while(&tx.txn, false, visit)
    }

    /// Returns whether the cursor has a current entry.
    #[must_use]
    pub fn is_on_entry(&self) -> bool {
        self.scan.is_on_entry()
    }

    /// See [`Cursor::newly_locked`](crate::Cursor::newly_locked).
    #[must_use]
    pub fn newly_locked(&self) -> bool {
        self.scan.newly_locked()
    }

    /// Returns the key of the current entry. Without a current entry it is a key that the cursor has passed, perhaps
    /// one whose row this transaction does not see: nothing to continue from in a later transaction.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.scan.key()
    }

    /// Returns the value of the current entry, as it was when the cursor reached it.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) without a current entry; if the cursor reached the entry in
    /// another transaction, or before a restart; or for a long value that was not read before
    /// [`Transaction::rollback_to`] undid it. Read errors for a long value.
    pub fn value(&mut self, tx: &Transaction) -> Result<&[u8]> {
        Ok(self.entry(tx)?.1)
    }

    /// Returns the key and the value of the current entry.
    ///
    /// # Errors
    /// Those of [`OwnedCursor::value`].
    pub fn entry(&mut self, tx: &Transaction) -> Result<(&[u8], &[u8])> {
        self.scan.entry(&tx.txn)
    }

    /// Deletes the current entry, in one descent, like [`CursorMut::delete`](super::CursorMut::delete). `next`
    /// and `prev` continue from there.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) as for [`OwnedCursor::value`]; those of [`Transaction::delete`],
    /// after which the cursor keeps its current entry.
    pub fn delete(&mut self, tx: &mut Transaction) -> Result<bool> {
        let deleted = self.scan.delete(&mut tx.txn);
        tx.noted(deleted)
    }

    /// Returns the current position; `None` before the first reset. Without a current entry it is that of
    /// [`OwnedCursor::key`].
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        let of = self.scan.tree()?;
        Some(Position { of, key: self.scan.key().to_vec(), on_entry: self.scan.is_on_entry() })
    }

    /// Moves to a position of this or another cursor over the tree. Returns true if its entry still exists;
    /// otherwise the cursor moves to the first entry after it, if any.
    ///
    /// # Errors
    /// Those of [`OwnedCursor::seek`]; [`Error::Usage`](crate::Error::Usage) for a position in another tree or of
    /// another database.
    pub fn restore(&mut self, tx: &Transaction, position: &Position) -> Result<bool> {
        if let Some(here) = self.scan.tree() {
            position.check(here)?;
        }
        let found = self.seek(tx, Seek::AtLeast(&position.key))?;
        Ok(found && position.on_entry && self.scan.key() == position.key)
    }
}
