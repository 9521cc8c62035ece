//! Small convenience calls on top of a cursor.

use super::cursor::{CursorOptions, KeyValue, LockMode};
use super::key_range::KeyRange;
use super::owned_cursor::OwnedCursor;
use super::transaction::Transaction;
use super::tree::Tree;
use crate::error::Result;
use crate::txn::Seek;

/// Counts, first and last entries, and deletion by a condition.
impl Transaction {
    /// Counts the entries in `range`. Reads no values; [`Transaction::estimate_range`] estimates the number
    /// without a scan.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let users = db.create_tree("users")?;
    /// db.transact(|tx| tx.put_many(&users, &[("ada", "1815"), ("alan", "1912"), ("grace", "1906")]))?;
    /// let mut tx = db.begin()?;
    /// assert_eq!(tx.count(&users, ..)?, 3);
    /// assert_eq!(tx.count(&users, "a".."b")?, 2);
    /// assert_eq!(tx.retain(&users, .., |_, born| born > &b"1900"[..])?, 1);
    /// assert_eq!(tx.first(&users)?, Some((b"alan".to_vec(), b"1912".to_vec())));
    /// assert_eq!(tx.pop_last(&users)?, Some((b"grace".to_vec(), b"1906".to_vec())));
    /// assert_eq!(tx.count(&users, ..)?, 1);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn count(&self, tree: &Tree, range: impl KeyRange) -> Result<u64> {
        let mut cursor = OwnedCursor::new();
        cursor.reset(tree, CursorOptions { long: true, ..CursorOptions::default() }, range);
        let (mut rows, mut there) = (0, cursor.seek(self, Seek::First)?);
        while there {
            rows += 1;
            there = cursor.next(self)?;
        }
        Ok(rows)
    }

    /// Returns the first entry.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn first(&self, tree: &Tree) -> Result<Option<KeyValue>> {
        self.at_end(tree, Seek::First)
    }

    /// Returns the last entry.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn last(&self, tree: &Tree) -> Result<Option<KeyValue>> {
        self.at_end(tree, Seek::Last)
    }

    fn at_end(&self, tree: &Tree, end: Seek<'_>) -> Result<Option<KeyValue>> {
        let mut cursor = OwnedCursor::new();
        cursor.reset(tree, CursorOptions { limit: Some(1), ..CursorOptions::default() }, ..);
        if !cursor.seek(self, end)? {
            return Ok(None);
        }
        let (key, value) = cursor.entry(self)?;
        Ok(Some((key.to_vec(), value.to_vec())))
    }

    /// Deletes the first entry and returns it. Locks the entry before reading it and, except at read committed,
    /// also the interval before it. With [`LockWait::SkipLocked`](crate::LockWait::SkipLocked) it takes the
    /// first entry that no other transaction has locked.
    ///
    /// # Errors
    /// Those of [`Transaction::get_for_update`] and [`Transaction::delete`].
    pub fn pop_first(&mut self, tree: &Tree) -> Result<Option<KeyValue>> {
        self.pop(tree, Seek::First)
    }

    /// Deletes the last entry and returns it, like [`Transaction::pop_first`].
    ///
    /// # Errors
    /// Those of [`Transaction::pop_first`].
    pub fn pop_last(&mut self, tree: &Tree) -> Result<Option<KeyValue>> {
        self.pop(tree, Seek::Last)
    }

    fn pop(&mut self, tree: &Tree, end: Seek<'_>) -> Result<Option<KeyValue>> {
        let mut cursor = OwnedCursor::new();
        let lock = Some(LockMode::Exclusive);
        cursor.reset(tree, CursorOptions { lock, limit: Some(1), ..CursorOptions::default() }, ..);
        let sought = cursor.seek(self, end);
        if !self.noted(sought)? {
            return Ok(None);
        }
        let (key, value) = cursor.entry(self)?;
        let popped = (key.to_vec(), value.to_vec());
        cursor.delete(self)?;
        Ok(Some(popped))
    }

    /// Deletes the entries of `range` for which `keep` returns false; returns their number. Each entry is
    /// locked before `keep` is called with it.
    ///
    /// # Errors
    /// Those of [`Transaction::pop_first`]. Entries deleted before the error are deleted in this transaction: use a
    /// savepoint to undo that.
    pub fn retain(
        &mut self,
        tree: &Tree,
        range: impl KeyRange,
        mut keep: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<u64> {
        let mut cursor = OwnedCursor::new();
        let lock = Some(LockMode::Exclusive);
        cursor.reset(tree, CursorOptions { lock, long: true, ..CursorOptions::default() }, range);
        let sought = cursor.seek(self, Seek::First);
        let (mut removed, mut there) = (0, self.noted(sought)?);
        while there {
            let (key, value) = cursor.entry(self)?;
            if !keep(key, value) {
                removed += u64::from(cursor.delete(self)?);
            }
            let moved = cursor.next(self);
            there = self.noted(moved)?;
        }
        Ok(removed)
    }
}
