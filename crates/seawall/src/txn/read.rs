//! Reading rows: by snapshot, without locks; or the latest version, locked.

use super::engine::Engine;
use super::locking::Writer;
use super::locks::Mode;
use super::transaction::{Isolation, LockWait, TxOptions, Txn};
use super::trees::TreeState;
use super::version::{Image, Reader, Stored};
use super::views::View;
use crate::btree::{DELETED, Node, OVERFLOW, read_overflow_into};
use crate::buffer::lend;
use crate::error::Result;
use crate::format::TxnId;
use std::sync::Arc;

/// How a row is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowLock {
    /// By itself.
    Point,
    /// By itself, if it is there: one that is not there is not locked.
    IfThere,
    /// By a range that this transaction holds over it already.
    InRange,
}

/// How the latest version of a row was found.
pub(super) enum Latest {
    Absent,
    There(Stored),
    /// Another transaction is in the way, and is to be waited for.
    Blocked,
    /// Another has written it, and the request does not wait.
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

    /// As [`Txn::get`], lending the value to `f` from the page where it lies when it can. The page is latched while `f` runs: what `f` asks
    /// of the database is refused.
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

    /// The bytes of a stored value of `tree`. What is referred to stays while the view or lock that found it lives.
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

    /// Locks the row of `key`, there or not, and returns its latest version.
    ///
    /// # Errors
    /// Lock errors, [`Error::WriteConflict`], reading errors.
    pub fn lock_row(&self, tree: &Arc<TreeState>, key: &[u8], mode: Mode) -> Result<Option<Vec<u8>>> {
        self.lock_row_how(tree, key, mode, RowLock::Point, self.options.wait)
    }

    /// As [`Txn::lock_row`], with what to lock and what to do about others' locks.
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
    ) -> Result<Option<Vec<u8>>> {
        let stored = self.lock_stored(tree, key, mode, how, wait)?;
        stored.map(|stored| self.fetch(tree, stored)).transpose()
    }

    /// Locks the row of `key`, there or not; whether it is there. A long value is not read.
    ///
    /// # Errors
    /// As [`Txn::lock_row`].
    pub(super) fn lock_key(&self, tree: &Arc<TreeState>, key: &[u8], mode: Mode) -> Result<bool> {
        Ok(self.lock_stored(tree, key, mode, RowLock::Point, self.options.wait)?.is_some())
    }

    fn lock_stored(
        &self,
        tree: &Arc<TreeState>,
        key: &[u8],
        mode: Mode,
        how: RowLock,
        wait: LockWait,
    ) -> Result<Option<Stored>> {
        // Kept to the end: the pages of a tree that is dropped meanwhile stay until the lock is there, or the answer that the tree is not.
        let view = self.pin();
        tree.usable(self.id(), &view)?;
        loop {
            match self.lock_latest(tree, key, mode, how, wait)? {
                Latest::Absent => return Ok(None),
                Latest::There(stored) => return Ok(Some(stored)),
                Latest::Blocked => self.wait_to_lock(tree, key, mode, wait)?,
                Latest::Busy(writer) => return Err(self.engine.locks.refused(writer, tree.at.id, key)),
                Latest::Stale(writer) => return Err(self.conflict(writer, tree, key)),
            }
        }
    }

    /// One attempt at it, which waits for nothing. The caller has a view, which keeps the pages of a tree that is dropped.
    pub(super) fn lock_latest(
        &self,
        tree: &TreeState,
        key: &[u8],
        mode: Mode,
        how: RowLock,
        wait: LockWait,
    ) -> Result<Latest> {
        let engine = &*self.engine;
        engine.pool().retry(|| {
            let leaf = tree.at.leaf_shared(engine.pool(), key)?;
            let node = Node::open(&leaf)?;
            let at = node.search_inside(key)?;
            let entry = if at.found { Some(node.entry(at.slot)?) } else { None };
            let there = entry.as_ref().is_some_and(|entry| !entry.is_deleted());
            let writer = entry.as_ref().map_or(Writer::Nobody, |entry| self.writer_of(tree, key, entry, wait));
            let locked = match writer {
                Writer::Me => true,
                Writer::Other => false,
                Writer::Busy(writer) => return Ok(Latest::Busy(writer)),
                Writer::Nobody if how == RowLock::Point || (how == RowLock::IfThere && there) => {
                    engine.locks.room(&self.owner, tree.at.id, key)?;
                    engine.locks.try_point(&self.owner, tree.at.id, key, mode).is_ok()
                }
                Writer::Nobody => engine.locks.check_point(&self.owner, tree.at.id, key, mode).is_ok(),
            };
            if !locked {
                return Ok(Latest::Blocked);
            }
            tree.is_there(self.id(), &engine.active)?;
            let Some(entry) = entry else { return Ok(Latest::Absent) };
            if let Some(writer) = self.stale(&entry) {
                return Ok(Latest::Stale(writer));
            }
            if !there {
                return Ok(Latest::Absent);
            }
            Ok(Latest::There(Stored::of(entry.flags, entry.value)?))
        })
    }
}

impl Engine {
    /// The committed value of `key` as of now, lent to `f` as [`Txn::get_with`] does: a transaction of one read, for which none is begun where
    /// the entry speaks for itself. It does when every view sees its writer, or when it is not there at all.
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
                // What a reference leads to stays only for a view.
                OVERFLOW => Plain::No,
                _ => Plain::Absent,
            })
        };
        // With no view to hold them, the pages of a tree that is dropped now go away under the descent: any error is looked into below.
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

/// What an entry says without a view.
enum Plain<T> {
    Absent,
    Done(T),
    /// A view is needed to tell.
    No,
}

enum Lookup<T> {
    Absent,
    Done(T),
    Stored(Stored),
}
