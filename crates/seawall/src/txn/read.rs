//! Reading rows: by snapshot, without locks; or the latest version, locked.

use super::engine::Engine;
use super::locking::Writer;
use super::locks::{KeySpan, LockRequest, Mode};
use super::options::{Isolation, LockWait, TxOptions};
use super::transaction::Txn;
use super::trees::TreeState;
use super::version::{Image, Reader, Stored};
use super::views::View;
use crate::btree::{DELETED, Node, OVERFLOW, read_overflow_into};
use crate::buffer::lend;
use crate::error::Result;
use crate::format::TxnId;
use std::ops::Bound;
use std::sync::Arc;

/// How a row is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowLock {
    /// As a point.
    Point,
    /// As a point if it exists; a row that does not exist is not locked.
    IfThere,
    /// As a range of this key alone, present or not.
    Range,
    /// As a point until it is written, which takes the lock over: it needs no memory.
    ForChange,
    /// Not at all; the read still waits for the locks of others. The answer need not stay true.
    None,
}

/// A row as a locking read found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedRow {
    /// Its latest value; `None` when it is not there.
    pub value: Option<Vec<u8>>,
    /// The transaction had no lock of its own on the key before, and has one now:
    /// [`Transaction::unlock_row`](crate::Transaction::unlock_row) can give it back in this statement. False
    /// for a row that it wrote, and for a row in a range that it had locked.
    pub newly_locked: bool,
}

/// What [`Transaction::lock_or_committed`](crate::Transaction::lock_or_committed) found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockOrCommitted {
    /// The row was free, and is locked exclusively now.
    Locked(LockedRow),
    /// Another transaction holds the row. This is the row's committed version, `None` if there is none. The
    /// row is not locked, and may change at any time.
    Committed(Option<Vec<u8>>),
}

/// How the latest version of a row was found.
pub(super) enum Latest {
    Absent,
    There(Stored),
    /// Another transaction blocks it: wait.
    Blocked,
    /// Another transaction has written it, and the request does not wait.
    Busy(TxnId),
    Stale(TxnId),
}

impl Txn {
    /// The value of `key` for this transaction's isolation.
    ///
    /// # Errors
    /// [`Error::TreeDropped`], reading errors, and lock errors when serializable.
    pub fn get(&self, tree: &Arc<TreeState>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(tree, key, <[u8]>::to_vec)
    }

    /// Like [`Txn::get`]; calls `f` with the value in its page, without a copy, if possible. The page is
    /// latched while `f` runs: calls from `f` to the database are refused.
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn get_with<T>(&self, tree: &Arc<TreeState>, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        if self.options.isolation == Isolation::Serializable {
            return Ok(self.lock_row(tree, key, Mode::Shared)?.map(|value| f(&value)));
        }
        self.get_seen_by(&self.view(), tree, key, f)
    }

    /// The value of `key` as `view` sees it.
    pub(super) fn get_seen_by<T>(
        &self,
        view: &View,
        tree: &Arc<TreeState>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let mut f = Some(f);
        let reader = Reader { me: self.id(), view };
        tree.usable(reader.me, reader.view)?;
        let engine = &*self.engine;
        let stored = engine.pool().retry(|| {
            let leaf = tree.at.leaf_shared(engine.pool(), key)?;
            let node = Node::open(&leaf)?;
            let at = node.search_inside(key)?;
            if !at.found {
                return Ok(Lookup::Absent);
            }
            let entry = node.entry(at.slot)?;
            if reader.sees_entry(&entry) {
                return Ok(match entry.flags & (DELETED | OVERFLOW) {
                    0 => Lookup::Done(lend(|| (f.take().expect("called once"))(entry.value))),
                    OVERFLOW => Lookup::Stored(Stored::of(entry.flags, entry.value)?),
                    _ => Lookup::Absent,
                });
            }
            let image = Image::of(&entry);
            Ok(engine.older_version(leaf, image, reader)?.map_or(Lookup::Absent, Lookup::Stored))
        })?;
        Ok(match stored {
            Lookup::Absent => None,
            Lookup::Done(value) => Some(value),
            Lookup::Stored(stored) => Some((f.take().expect("called once"))(&self.fetch(tree, stored)?)),
        })
    }

    /// The bytes of a stored value of `tree`. The pages of a long value stay while the view or lock that
    /// found it lives.
    pub(super) fn fetch(&self, tree: &TreeState, stored: Stored) -> Result<Vec<u8>> {
        match stored {
            Stored::Inline(bytes) => Ok(bytes),
            Stored::Overflow(reference) => {
                let mut value = Vec::new();
                read_overflow_into(self.engine.pool(), tree.at.id, reference, &mut value)?;
                Ok(value)
            }
        }
    }

    /// Locks the row of `key`, present or not, and returns its latest version.
    ///
    /// # Errors
    /// Lock errors, [`Error::WriteConflict`], reading errors.
    pub fn lock_row(&self, tree: &Arc<TreeState>, key: &[u8], mode: Mode) -> Result<Option<Vec<u8>>> {
        Ok(self.lock_row_how(tree, key, mode, RowLock::Point, self.options.wait)?.value)
    }

    /// Like [`Txn::lock_row`], with a policy for locks of others. Also returns whether the lock is new.
    ///
    /// # Errors
    /// As [`Txn::lock_row`].
    pub fn lock_row_with(
        &self,
        tree: &Arc<TreeState>,
        key: &[u8],
        mode: Mode,
        wait: Option<LockWait>,
    ) -> Result<LockedRow> {
        self.lock_row_how(tree, key, mode, RowLock::Point, wait.unwrap_or(self.options.wait))
    }

    /// At read committed, locks the row exclusively if no other transaction holds it; otherwise returns its
    /// committed version without waiting, and locks nothing. At the other levels it waits as
    /// [`Txn::lock_row`] does.
    ///
    /// # Errors
    /// As [`Txn::lock_row`].
    pub fn lock_or_committed(&self, tree: &Arc<TreeState>, key: &[u8]) -> Result<LockOrCommitted> {
        if self.options.isolation != Isolation::ReadCommitted {
            return self.lock_row_with(tree, key, Mode::Exclusive, None).map(LockOrCommitted::Locked);
        }
        let view = self.engine.active.view();
        tree.usable(self.id(), &view)?;
        let (latest, newly_locked) =
            self.lock_latest(tree, key, Mode::Exclusive, RowLock::Point, LockWait::NoWait, false)?;
        match latest {
            Latest::Absent => Ok(LockOrCommitted::Locked(LockedRow { value: None, newly_locked })),
            Latest::There(stored) => {
                let value = Some(self.fetch(tree, stored)?);
                Ok(LockOrCommitted::Locked(LockedRow { value, newly_locked }))
            }
            Latest::Stale(writer) => Err(self.conflict(writer, tree, key)),
            Latest::Blocked | Latest::Busy(_) => {
                // As of now: a locking read would also find what was committed since the statement began.
                let view = self.view_of_now();
                self.get_seen_by(&view, tree, key, <[u8]>::to_vec).map(LockOrCommitted::Committed)
            }
        }
    }

    /// Releases the lock that a locking read of this statement newly took on a key, unless this transaction
    /// has requested or needed it again since. Returns whether it released the lock. At serializable all
    /// locks stay: what was read has to stay true.
    pub fn unlock_row(&self, tree: &TreeState, key: &[u8]) -> bool {
        if self.options.isolation == Isolation::Serializable {
            return false;
        }
        self.see_followed();
        self.release_row(tree, key)
    }

    /// As [`Txn::unlock_row`], at every isolation level, for a row whose value says nothing about others.
    pub fn release_row(&self, tree: &TreeState, key: &[u8]) -> bool {
        self.engine.locks.give_back_of_statement(&self.owner, tree.at.id, key)
    }

    /// Like [`Txn::lock_row`], with what to lock and a policy for locks of others.
    ///
    /// # Errors
    /// As [`Txn::lock_row`].
    pub(super) fn lock_row_how(
        &self,
        tree: &Arc<TreeState>,
        key: &[u8],
        mode: Mode,
        how: RowLock,
        wait: LockWait,
    ) -> Result<LockedRow> {
        let (stored, newly_locked) = self.lock_stored(tree, key, mode, how, wait)?;
        let value = stored.map(|stored| self.fetch(tree, stored)).transpose()?;
        Ok(LockedRow { value, newly_locked })
    }

    /// Called when it locks a row that it has written, which at read committed its change alone keeps locked: from now
    /// on a rollback to a savepoint leaves all rows locked.
    pub(super) fn keeps_written_rows(&self) {
        if self.options.isolation == Isolation::ReadCommitted {
            self.owner.note_gave_back();
        }
    }

    /// As [`Txn::lock_row_how`], without the bytes of a long value.
    pub(super) fn lock_stored(
        &self,
        tree: &Arc<TreeState>,
        key: &[u8],
        mode: Mode,
        how: RowLock,
        wait: LockWait,
    ) -> Result<(Option<Stored>, bool)> {
        self.check_not_prepared()?;
        // The view is kept to the end: the pages of a tree that is dropped meanwhile stay until this call has
        // the lock, or returns that the tree is dropped.
        let view = self.pin();
        tree.stands(self.id(), &view)?;
        // Whether it had no lock there before it waited.
        let mut was_new = None;
        loop {
            let (latest, new) = self.lock_latest(tree, key, mode, how, wait, was_new.is_some())?;
            // After a wait the row may be in a range, which is not given back.
            let held = || self.engine.locks.holds(&self.owner, tree.at.id, key);
            let newly_locked = || was_new.map_or(new, |was_new: bool| was_new && how != RowLock::Range && held());
            match latest {
                Latest::Absent => return Ok((None, newly_locked())),
                Latest::There(stored) => return Ok((Some(stored), newly_locked())),
                Latest::Blocked => {
                    was_new.get_or_insert_with(|| !held());
                    self.wait_to_lock(tree, key, mode, wait)?;
                }
                Latest::Busy(writer) => return Err(self.engine.locks.refused(writer, tree.at.id, key)),
                Latest::Stale(writer) => return Err(self.conflict(writer, tree, key)),
            }
        }
    }

    /// Makes one attempt to lock and find the latest version, without waiting. Also returns whether it took a
    /// lock where this transaction had none. The caller has a view, which keeps the pages of a dropped tree.
    /// `again`: after a wait for the lock.
    pub(super) fn lock_latest(
        &self,
        tree: &TreeState,
        key: &[u8],
        mode: Mode,
        how: RowLock,
        wait: LockWait,
        again: bool,
    ) -> Result<(Latest, bool)> {
        let engine = &*self.engine;
        engine.pool().retry(|| {
            let leaf = tree.at.leaf_shared_by(&engine.space, key, &self.leaves)?;
            let node = Node::open(&leaf)?;
            let at = node.search_inside(key)?;
            let entry = if at.found { Some(node.entry(at.slot)?) } else { None };
            let there = entry.as_ref().is_some_and(|entry| !entry.is_deleted());
            let writer = entry.as_ref().map_or(Writer::None, |entry| self.writer_of(tree, key, entry, wait));
            let (locks, id) = (&engine.locks, tree.at.id);
            let locked = match writer {
                Writer::Me => {
                    if how == RowLock::Range {
                        locks.add_own_row(&self.owner, id, key, mode);
                    }
                    if matches!(how, RowLock::Point | RowLock::IfThere | RowLock::Range) {
                        self.keeps_written_rows();
                    }
                    Ok(false)
                }
                Writer::Other => return Ok((Latest::Blocked, false)),
                Writer::Busy(writer) => return Ok((Latest::Busy(writer), false)),
                Writer::None
                    if matches!(how, RowLock::Point | RowLock::ForChange) || (how == RowLock::IfThere && there) =>
                {
                    if how != RowLock::ForChange {
                        locks.room(&self.owner, id, key)?;
                    }
                    match again {
                        false => locks.try_new_point(&self.owner, id, key, mode),
                        true => locks.try_point_again(&self.owner, id, key, mode),
                    }
                }
                Writer::None if how == RowLock::Range => {
                    let place = Bound::Included(key);
                    KeySpan::with(place, place, |place| {
                        locks.add_range_to(&LockRequest::span(&self.owner, id, place, mode), key).map(|()| false)
                    })
                }
                Writer::None => locks.check_point(&self.owner, id, key, mode).map(|()| false),
            };
            let Ok(new) = locked else { return Ok((Latest::Blocked, false)) };
            tree.is_there(self.id(), &engine.active)?;
            let Some(entry) = entry else { return Ok((Latest::Absent, new)) };
            if let Some(writer) = self.stale(&entry) {
                return Ok((Latest::Stale(writer), new));
            }
            if !there {
                return Ok((Latest::Absent, new));
            }
            Ok((Latest::There(Stored::of(entry.flags, entry.value)?), new))
        })
    }
}

impl Engine {
    /// Calls `f` with the committed value of `key` as of now, like [`Txn::get_with`] in a transaction of one
    /// read. Begins no transaction if the entry alone decides: every view sees its writer, or there is no
    /// entry.
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn get_with<T>(
        self: &Arc<Self>,
        tree: &Arc<TreeState>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let mut f = Some(f);
        let plain = || {
            let leaf = tree.at.leaf_shared(self.pool(), key)?;
            let node = Node::open(&leaf)?;
            let at = node.search_inside(key)?;
            if !at.found {
                return Ok(Plain::Absent);
            }
            let entry = node.entry(at.slot)?;
            Ok(match entry.flags & (DELETED | OVERFLOW) {
                _ if entry.writer != TxnId::NONE && entry.writer >= self.active.horizon() => Plain::No,
                0 => Plain::Done(lend(|| (f.take().expect("called once"))(entry.value))),
                // The pages of a long value stay only for a view.
                OVERFLOW => Plain::No,
                _ => Plain::Absent,
            })
        };
        // Without a view, the pages of a tree that is dropped meanwhile can be freed during the descent:
        // after any error the read is repeated with a view.
        let must_have_view = tree.may_be_dropped() || tree.is_young(self.active.horizon());
        let looked = if must_have_view { Ok(Plain::No) } else { self.pool().retry(plain) };
        match (looked, f) {
            (Ok(Plain::Absent), _) => Ok(None),
            (Ok(Plain::Done(value)), _) => Ok(Some(value)),
            (_, Some(f)) => Txn::begin(self.clone(), TxOptions::default()).get_with(tree, key, f),
            (Err(error), None) => Err(error),
            (Ok(Plain::No), None) => unreachable!("only a value was lent"),
        }
    }
}

/// The result of reading an entry without a view.
enum Plain<T> {
    Absent,
    Done(T),
    /// The answer needs a view.
    No,
}

enum Lookup<T> {
    Absent,
    Done(T),
    Stored(Stored),
}
