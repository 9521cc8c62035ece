//! A cursor that outlives a borrow.

use super::cursor::{CursorOptions, Position};
use super::database::Tree;
use super::key_range::KeyRange;
use super::transaction::Transaction;
use crate::error::Result;
use crate::txn::{OwnedScan, Seek};

/// A cursor that borrows nothing: it is given the transaction at each call, so it can be kept beside it, from statement to statement and from
/// transaction to transaction, and be moved to another thread. It keeps its memory: a reset and a seek allocate nothing.
///
/// It sees what the transaction sees, its own changes included, and goes on where it was whatever the transaction changes meanwhile. Its seek after
/// the transaction was restarted takes the new one's view; without a seek, `next` and `prev` go on from its key in that view.
///
/// At read committed a seek sees what is committed then, or what the open statement sees ([`Transaction::begin_statement`]), and the entries that
/// follow are of the same moment.
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
/// tx.commit_in_place()?; // both can be used on
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
    /// A cursor over no tree yet: [`OwnedCursor::reset`] it to one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it a cursor over the entries of `range` in `tree`, which stands on none. It goes to none outside, and one that locks locks nothing
    /// beyond.
    pub fn reset(&mut self, tree: &Tree, options: CursorOptions, range: impl KeyRange) {
        self.scan.reset(&tree.state, (options.lock, options.wait), (range.lower_bound(), range.upper_bound()));
        if let Some(ahead) = self.scan.look_ahead() {
            if options.long {
                ahead.long();
            }
            if let Some(rows) = options.limit {
                ahead.limit(rows);
            }
        }
    }

    /// Stands on none until the next seek, and holds back nothing (at read committed it holds its view until the statement or the transaction ends).
    pub fn release(&mut self) {
        self.scan.release();
    }

    /// Goes to an entry of the range; whether there is one. If not, the cursor stands on none. [`Seek::First`] and [`Seek::Last`] are those of the
    /// range.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) before the first reset, or when the transaction is of another database; as [`Transaction::get`]; lock errors when it locks.
    pub fn seek(&mut self, tx: &Transaction, to: Seek<'_>) -> Result<bool> {
        self.scan.seek(&tx.txn, to)
    }

    /// Goes to the next entry of the range; whether there is one.
    ///
    /// # Errors
    /// As [`OwnedCursor::seek`].
    pub fn next(&mut self, tx: &Transaction) -> Result<bool> {
        self.scan.step(&tx.txn, true)
    }

    /// Goes to the previous entry of the range; whether there is one.
    ///
    /// # Errors
    /// As [`OwnedCursor::seek`].
    pub fn prev(&mut self, tx: &Transaction) -> Result<bool> {
        self.scan.step(&tx.txn, false)
    }

    /// Whether it stands on an entry.
    #[must_use]
    pub fn is_on_entry(&self) -> bool {
        self.scan.is_on_entry()
    }

    /// As [`Cursor::newly_locked`](crate::Cursor::newly_locked).
    #[must_use]
    pub fn newly_locked(&self) -> bool {
        self.scan.newly_locked()
    }

    /// The key it stands on, or stood on last.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.scan.key()
    }

    /// The value of the entry it stands on, as it was when the cursor came to it.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) when it stands on no entry, or on one that it came to in another transaction or before a restart; when it is a long value, not
    /// read so far, that [`Transaction::rollback_to`] has taken back. Reading errors for a long value.
    pub fn value(&mut self, tx: &Transaction) -> Result<&[u8]> {
        Ok(self.entry(tx)?.1)
    }

    /// Key and value of the entry it stands on, lent together.
    ///
    /// # Errors
    /// As [`OwnedCursor::value`].
    pub fn entry(&mut self, tx: &Transaction) -> Result<(&[u8], &[u8])> {
        self.scan.entry(&tx.txn)
    }

    /// Deletes the entry it stands on, in one descent; as [`CursorMut::delete`](super::CursorMut::delete). `next` and `prev` go on from there.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) as [`OwnedCursor::value`]; as [`Transaction::delete`], and it stands on the entry as before then.
    pub fn delete(&mut self, tx: &mut Transaction) -> Result<bool> {
        let deleted = self.scan.delete(&mut tx.txn);
        tx.noted(deleted)
    }

    /// Where it stands; `None` before the first reset.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        let of = self.scan.tree()?;
        Some(Position { of, key: self.scan.key().to_vec(), on_entry: self.scan.is_on_entry() })
    }

    /// Goes back to where it, or another cursor over the tree, stood: true when that very entry is there, else it stands on the first one behind, if
    /// any.
    ///
    /// # Errors
    /// As [`OwnedCursor::seek`]; [`Error::Usage`](crate::Error::Usage) for a position in another tree or of another database.
    pub fn restore(&mut self, tx: &Transaction, position: &Position) -> Result<bool> {
        if let Some(here) = self.scan.tree() {
            position.check(here)?;
        }
        let found = self.seek(tx, Seek::AtLeast(&position.key))?;
        Ok(found && position.on_entry && self.scan.key() == position.key)
    }
}
