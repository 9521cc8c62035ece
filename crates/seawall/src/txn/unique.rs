//! Unique prefixes: a secondary index whose entries are its columns followed by the primary key.
//!
//! 1. An attempt locks the prefix itself as a point: of two transactions that insert entries with the same prefix, the
//!    second begins when the first has inserted its entry. Then the attempt reads the latest version of every entry
//!    that begins with the prefix, and waits for entries whose writers have not ended. It locks an existing entry,
//!    shared, only at serializable: two transactions that are both refused because of the entry, and then change it,
//!    would deadlock.
//! 2. When the entry is inserted, the lock of the prefix is released: another transaction that inserts under the prefix
//!    finds the entry, and waits for its writer. A rollback removes the entry and this protection together. At
//!    serializable the prefix stays locked: the answer that no entry was there must stay true after a rollback to a
//!    savepoint. It does so while all entries with this prefix are inserted in this way.
//! 3. Except at serializable, an attempt that locked the prefix releases it before it waits for a row. Otherwise the
//!    row's writer would close a cycle by requesting the same prefix again. After a wait for another entry, the lock of
//!    that entry is released and a new attempt begins. After a wait for the place of the new entry, that lock is kept
//!    for the next attempt: if several transactions each released it before they tried again, they would pass it round.
//!    It is released before a wait for another entry, for the reason above.

use super::locks::Mode;
use super::options::Isolation;
use super::read::{Latest, RowLock};
use super::transaction::Txn;
use super::trees::TreeState;
use crate::btree::inline_value_max;
use crate::error::{Error, LockedOn, Result};
use std::ops::Bound;
use std::sync::Arc;

/// How an attempt ended.
enum Attempt {
    Inserted,
    /// Another transaction blocks this key: an entry that the attempt has to read, or the place of the new
    /// one.
    Blocked(Vec<u8>, Mode),
    /// This key exists.
    Exists(Vec<u8>),
}

impl Txn {
    /// Inserts unless another live key begins with the first `prefix_bytes` of `key`.
    ///
    /// # Errors
    /// [`Error::KeyExists`] with the existing key; lock errors.
    pub fn insert_unique_prefix(
        &mut self,
        tree: &Arc<TreeState>,
        prefix_bytes: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.check_lengths(key, value)?;
        self.start()?;
        let prefix = &key[..prefix_bytes];
        // The lock of the new entry's place, if it is taken before the entry is inserted.
        let mut place = false;
        if value.len() > inline_value_max(self.engine.pool().page_bytes(), key.len()) {
            // A long value takes many steps, none of which may wait: the row is locked first.
            (_, place) = self.lock_stored(tree, key, Mode::Exclusive, RowLock::ForChange, self.options.wait)?;
        }
        let inserted = self.insert_in_place(tree, prefix, key, value, &mut place);
        if inserted.is_err() && place && self.options.isolation != Isolation::Serializable {
            self.engine.locks.give_back(&self.owner, tree.at.id, key);
        }
        inserted
    }

    /// `place`: whether this call has locked the new entry's place, as an attempt does that has waited for it (3).
    fn insert_in_place(
        &mut self,
        tree: &Arc<TreeState>,
        prefix: &[u8],
        key: &[u8],
        value: &[u8],
        place: &mut bool,
    ) -> Result<()> {
        let long = *place;
        let gives_back = self.options.isolation != Isolation::Serializable;
        loop {
            // The view is kept to the end of the attempt, as for every locking read.
            let view = self.pin();
            tree.stands(self.id(), &view)?;
            let new = self.lock_point(tree, prefix, Mode::Exclusive)?;
            let attempt = self.insert_under(tree, prefix, key, value);
            let give_back = |at: &[u8]| self.engine.locks.give_back(&self.owner, tree.at.id, at);
            if new && gives_back {
                match &attempt {
                    // A waiter for the prefix would only find the entry, and wait for it.
                    Ok(Attempt::Inserted) => {
                        self.engine.locks.give_back_unless_awaited(&self.owner, tree.at.id, prefix);
                    }
                    _ => give_back(prefix),
                }
            }
            if *place && !long && gives_back && !matches!(attempt, Ok(Attempt::Inserted)) {
                give_back(key);
                *place = false;
            }
            match attempt? {
                Attempt::Inserted => return Ok(()),
                // The entry is not locked.
                Attempt::Exists(_) if self.owner.is_follower() && gives_back => self.stop_following()?,
                // Nor need it be there any more: the snapshot decides, and the answer has to match it.
                Attempt::Exists(_) if self.needs_snapshot_to_tell() => self.tells(),
                Attempt::Exists(key) => {
                    self.tells();
                    return Err(Error::KeyExists { on: LockedOn::row(tree.at.id, key) });
                }
                Attempt::Blocked(at, mode) => {
                    let new = self.wait_for_row(tree, &at, mode)?;
                    if at == key {
                        *place |= new;
                    } else if new {
                        give_back(&at);
                    }
                }
            }
        }
    }

    /// One attempt, with the prefix locked. Does not wait for another transaction.
    fn insert_under(&mut self, tree: &Arc<TreeState>, prefix: &[u8], key: &[u8], value: &[u8]) -> Result<Attempt> {
        // A dropper of the tree waits for the prefix lock from now on, or has ended.
        tree.is_there(self.id(), &self.engine.active)?;
        let how = if self.options.isolation == Isolation::Serializable { RowLock::Point } else { RowLock::None };
        let mut from = Bound::Included(prefix.to_vec());
        while let Some(there) = self.neighbour(tree, &from, true)?.filter(|there| there.starts_with(prefix)) {
            match self.lock_latest(tree, &there, Mode::Shared, how, self.options.wait, false)?.0 {
                Latest::Absent => {}
                Latest::There(_) => return Ok(Attempt::Exists(there)),
                Latest::Blocked => return Ok(Attempt::Blocked(there, Mode::Shared)),
                Latest::Busy(writer) => return Err(self.engine.locks.refused(writer, tree.at.id, &there)),
                Latest::Stale(writer) => return Err(self.conflict(writer, tree, &there)),
            }
            from = Bound::Excluded(there);
        }
        if self.try_insert(tree, key, value)? {
            return Ok(Attempt::Inserted);
        }
        Ok(Attempt::Blocked(key.to_vec(), Mode::Exclusive))
    }
}
