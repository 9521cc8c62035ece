//! Changing rows.
//!
//! One change is one mini-transaction: it latches the leaf, checks locks, appends the undo record to the undo
//! log, and changes the leaf. So after a crash either both the row and its undo record exist, or neither
//! does. What cannot be done under the latch (waiting for a lock, splitting the leaf, making room for undo,
//! reading a page) is done with no latch held, and the change is retried from the beginning.
//!
//! One mini-transaction can change several rows of one leaf. It can end after any of them, because an attempt
//! that ends early has not changed its row.
//!
//! A long value is written first, page by page, under an undo record that names its first page: a crash or
//! rollback frees it. A value that fits one page is written by the mini-transaction that logs that record.

use super::engine::Engine;
use super::locking::{LOG_ROOM, Writer};
use super::locks::Mode;
use super::options::{Isolation, OnConflict, TxOptions};
use super::read::RowLock;
use super::transaction::Txn;
use super::trees::TreeState;
use super::undo::{OldValue, Previous, UndoRecord};
use super::writing::Writing;
use crate::btree::{
    self, DELETED, ENTRY_HEADER_BYTES, Entry, HEADER, Insert, Node, OVERFLOW, Opened, OverflowRef, OverflowWriter,
    Patch, Replace, Rewrite, inline_value_max, one_page_value_max, write_one_page,
};
use crate::buffer::{LatchedPage, Mtr, MtrSize};
use crate::error::{Error, LockedOn, Result, Stop};
use crate::format::edits::Difference;
use crate::format::{PageId, TxnId, UndoPtr};
use crate::space::Purpose;
use std::sync::Arc;

/// What to do with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Insert, or fail if it is there.
    Insert,
    /// Insert or overwrite.
    Put,
    /// Overwrite if it is there. `indexed` is false if the row's entries stay the same in the indexes that are being
    /// built over the tree.
    Update { indexed: bool },
    /// Remove if it is there.
    Delete,
}

/// How an attempt under the latch ended.
enum Attempt {
    /// It is done; `was_there`: the key existed before.
    Done { was_there: bool },
    /// The key exists.
    Exists,
    /// Another transaction holds the key.
    Blocked,
    /// Another transaction has written it, and this one does not wait.
    Busy(TxnId),
    /// It is about to give an answer that no lock of this transaction keeps true, but follows others, and cannot wait
    /// for them under the latch.
    Follows,
    /// The snapshot does not see the latest version, whose writer this is.
    Stale(TxnId),
    /// The leaf has no room for a payload of this many bytes.
    NoRoom(usize),
    /// The old row is longer than the room made for it in the undo log and the redo log.
    LongRow,
}

/// The value a change writes, as it will be stored.
#[derive(Clone, Copy)]
struct NewValue<'a> {
    flags: u8,
    bytes: &'a [u8],
}

/// One change of one row.
struct RowChange<'c> {
    engine: &'c Engine,
    tree: &'c TreeState,
    key: &'c [u8],
    new: NewValue<'c>,
    change: Change,
    /// The longest old row, with its key and header, for which there is room in the undo log and the redo
    /// log.
    row_bytes: usize,
}

/// The slot of a latched leaf where a row is or would be, and the mini-transaction that changes it.
struct LeafEdit<'e, 'p> {
    mtr: &'e mut Mtr<'p>,
    leaf: LatchedPage,
    opened: Opened,
    slot: usize,
}

/// Bytes of one change's redo records besides keys and values: those for the leaf, for the undo record, and
/// for the transaction's `Begin`.
const RECORD_BYTES: usize = 128;

/// The most that one change of a row logs, if the old row has at most `row_bytes`: an undo record with the
/// old row, and the leaf's record with the new one.
fn logged_max(key_bytes: usize, payload_bytes: usize, row_bytes: usize) -> usize {
    UndoRecord::room_for_row(key_bytes, row_bytes) + key_bytes + payload_bytes + RECORD_BYTES
}

/// The longest old row, with its key and header, for which room is made in both logs before the row is read:
/// a quarter of a page. If the old row is longer, the change is retried with room for the longest
/// ([`Attempt::LongRow`]). Room for half a page before every change would leave undo pages half empty. If the
/// new row is longer than a quarter of a page, the old one probably is, too.
fn row_bytes_expected(new_bytes: usize, page_bytes: usize) -> usize {
    if new_bytes > page_bytes / 4 { btree::entry_bytes_max(page_bytes) } else { page_bytes / 4 }
}

/// The most rows that one mini-transaction changes. They share two pages, so even the largest rows stay below
/// the log limit of a mini-transaction.
const RUN_ROWS_MAX: usize = 64;

/// The longest value, bytes.
pub const VALUE_BYTES_MAX: u64 = 1 << 30;

impl Txn {
    /// Changes the row of `key`; returns whether it was there before.
    ///
    /// # Errors
    /// [`Error::KeyExists`], [`Error::KeyTooLong`], [`Error::ValueTooLong`], lock errors,
    /// [`Error::WriteConflict`], [`Error::NoSpace`], [`Error::Poisoned`].
    pub fn change(&mut self, tree: &Arc<TreeState>, key: &[u8], value: &[u8], change: Change) -> Result<bool> {
        self.check_lengths(key, value)?;
        let page_bytes = self.engine.pool().page_bytes();
        self.start()?;
        if value.len() <= inline_value_max(page_bytes, key.len()) {
            return self.change_stored(tree, key, NewValue { flags: 0, bytes: value }, change);
        }
        self.change_long(tree, key, value, change)
    }

    /// Checks that key and value are short enough.
    pub(super) fn check_lengths(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let key_max = btree::key_bytes_max(self.engine.pool().page_bytes());
        if key.len() > key_max {
            return Err(Error::KeyTooLong { len_bytes: key.len(), max_bytes: key_max });
        }
        if value.len() as u64 > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { len_bytes: value.len() as u64, max_bytes: VALUE_BYTES_MAX });
        }
        Ok(())
    }

    /// Inserts a row, unless that needs a wait for another transaction: then it returns `false`, with nothing
    /// changed. The caller has checked the lengths of key and value.
    ///
    /// # Errors
    /// As [`Txn::change`].
    pub(super) fn try_insert(&mut self, tree: &Arc<TreeState>, key: &[u8], value: &[u8]) -> Result<bool> {
        if value.len() > inline_value_max(self.engine.pool().page_bytes(), key.len()) {
            // The caller has locked the row.
            self.change_long(tree, key, value, Change::Insert)?;
            return Ok(true);
        }
        let new = NewValue { flags: 0, bytes: value };
        Ok(self.change_unless_blocked(tree, key, new, Change::Insert)?.is_some())
    }

    fn change_long(&mut self, tree: &Arc<TreeState>, key: &[u8], value: &[u8], change: Change) -> Result<bool> {
        // The row is locked before pages are allocated, so that none are allocated for a tree that is dropped
        // and purged meanwhile. The answer also shows whether the change is refused: then the value is not
        // written, and the row is not locked, as for a short value.
        let (stored, newly_locked) =
            self.lock_stored(tree, key, Mode::Exclusive, RowLock::ForChange, self.options.wait)?;
        let there = stored.is_some();
        if (there && change == Change::Insert) || (!there && matches!(change, Change::Update { .. })) {
            self.see_followed();
            self.tells();
            self.unlock_unwritten(tree, key, newly_locked, there);
            let exists = || Error::KeyExists { on: LockedOn::row(tree.at.id, key) };
            return if there { Err(exists()) } else { Ok(false) };
        }
        // If a step fails, no entry refers to the written pages.
        let changed = self.wait_for_log_room(MtrSize::Large).and_then(|()| {
            self.atomically(|txn| {
                let reference = txn.write_overflow(tree, value)?.encode();
                txn.change_stored(tree, key, NewValue { flags: OVERFLOW, bytes: &reference }, change)
            })
        });
        // The last step writes the row.
        changed.inspect_err(|_| self.unlock_unwritten(tree, key, newly_locked, false))
    }

    /// A change that did not happen has locked the row: the lock was not counted, and nothing was told. If the row
    /// `exists`, an upsert locks it next, and would have to queue behind those that wait for it: they wait for its end.
    fn unlock_unwritten(&self, tree: &TreeState, key: &[u8], newly_locked: bool, exists: bool) {
        if !newly_locked || self.options.isolation == Isolation::Serializable {
            return;
        }
        if exists {
            self.engine.locks.give_back_unless_awaited(&self.owner, tree.at.id, key);
        } else {
            self.engine.locks.give_back(&self.owner, tree.at.id, key);
        }
    }

    fn change_stored(&mut self, tree: &Arc<TreeState>, key: &[u8], new: NewValue<'_>, change: Change) -> Result<bool> {
        let mut newly_locked = false;
        let changed = loop {
            match self.change_unless_blocked(tree, key, new, change) {
                Ok(Some(was_there)) => break Ok(was_there),
                Ok(None) => match self.wait_for_row(tree, key, Mode::Exclusive) {
                    Ok(new) => newly_locked |= new,
                    Err(error) => break Err(error),
                },
                Err(error) => break Err(error),
            }
        };
        let has_effect = |&was_there: &bool| was_there || matches!(change, Change::Insert | Change::Put);
        if !changed.as_ref().is_ok_and(has_effect) {
            let exists = matches!(changed, Err(Error::KeyExists { .. }));
            self.unlock_unwritten(tree, key, newly_locked, exists);
        }
        changed
    }

    /// Like [`Txn::change_stored`], but returns `None`, with nothing changed, if another transaction blocks
    /// it.
    fn change_unless_blocked(
        &mut self,
        tree: &Arc<TreeState>,
        key: &[u8],
        new: NewValue<'_>,
        change: Change,
    ) -> Result<Option<bool>> {
        let engine = self.engine.clone();
        let page_bytes = engine.pool().page_bytes();
        let row_bytes = row_bytes_expected(key.len() + ENTRY_HEADER_BYTES + new.bytes.len(), page_bytes);
        let mut row = RowChange { engine: &engine, tree, key, new, change, row_bytes };
        let purpose = if change == Change::Delete { Purpose::Delete } else { Purpose::Grow };
        loop {
            self.ensure_undo_room(&engine, UndoRecord::room_for_row(key.len(), row.row_bytes), purpose)?;
            let attempt = engine.pool().retry(|| self.attempt(&row));
            // A descent through a tree whose pages are being freed can meet any content.
            let attempt = attempt.map_err(|error| tree.is_there(self.id(), &engine.active).err().unwrap_or(error))?;
            match attempt {
                Attempt::Done { was_there } => {
                    self.count_changes(tree.at.id, 1);
                    self.owner.add_weight(1);
                    return Ok(Some(was_there));
                }
                Attempt::Exists => {
                    return Err(Error::KeyExists { on: LockedOn::row(tree.at.id, key) });
                }
                Attempt::Stale(writer) => return Err(self.conflict(writer, tree, key)),
                Attempt::Blocked => return Ok(None),
                Attempt::Follows => self.stop_following()?,
                Attempt::Busy(writer) => return Err(engine.locks.refused(writer, tree.at.id, key)),
                Attempt::LongRow => row.row_bytes = btree::entry_bytes_max(page_bytes),
                Attempt::NoRoom(payload_bytes) => {
                    self.wait_for_log_room(MtrSize::Large)?;
                    engine.make_room(tree.at, key, payload_bytes, purpose)?;
                }
            }
        }
    }

    /// Makes room for `bytes` of undo. If that has to write to the redo log, it first waits for room there;
    /// an interrupt can end this wait.
    fn ensure_undo_room(&mut self, engine: &Engine, bytes: usize, purpose: Purpose) -> Result<()> {
        if engine.undo.has_room(&Writing::of(&mut self.writing).undo_log, bytes) {
            return Ok(());
        }
        self.wait_for_log_room(MtrSize::Small)?;
        engine.undo.ensure_room(&mut Writing::of(&mut self.writing).undo_log, bytes, purpose)
    }

    /// Inserts or puts the leading `rows` that belong to the first one's leaf, up to the first that needs more than the
    /// leaf's latch. `rows` are in key order; insertions have no equal keys. Returns the number of rows changed. Zero
    /// is no error.
    pub(super) fn change_run(
        &mut self,
        tree: &Arc<TreeState>,
        rows: &[(&[u8], &[u8])],
        change: Change,
    ) -> Result<usize> {
        let engine = self.engine.clone();
        let page_bytes = engine.pool().page_bytes();
        let is_plain = |(key, value): &(&[u8], &[u8])| {
            key.len() <= btree::key_bytes_max(page_bytes) && value.len() <= inline_value_max(page_bytes, key.len())
        };
        let Some(first) = rows.first().filter(|row| is_plain(row)) else { return Ok(0) };
        self.start()?;
        let row_bytes = row_bytes_expected(first.0.len() + ENTRY_HEADER_BYTES + first.1.len(), page_bytes);
        self.ensure_undo_room(&engine, UndoRecord::room_for_row(first.0.len(), row_bytes), Purpose::Grow)?;
        // All undo records go into one page, so the old rows take at most one page.
        let new_bytes = |(key, value): &(&[u8], &[u8])| 2 * key.len() + ENTRY_HEADER_BYTES + value.len() + RECORD_BYTES;
        let run = rows.iter().take(RUN_ROWS_MAX).take_while(|row| is_plain(row));
        let size = MtrSize::Bytes(page_bytes + run.map(new_bytes).sum::<usize>());
        let attempt = engine.pool().retry(|| {
            let mut mtr = Mtr::begin_while(engine.pool(), size, || self.go_on(LOG_ROOM))?;
            let leaf = tree.at.leaf_for_change_by(&engine.space, &mut mtr, first.0, &self.leaves)?;
            let mut done = 0;
            for (key, value) in rows.iter().take(RUN_ROWS_MAX).take_while(|row| is_plain(row)) {
                if !Node::open(mtr.page(leaf))?.covers(key) {
                    break;
                }
                let new = NewValue { flags: 0, bytes: value };
                let row = RowChange { engine: &engine, tree, key, new, change, row_bytes };
                match self.attempt_at(&row, &mut mtr, leaf) {
                    Ok(Attempt::Done { .. }) => done += 1,
                    // This row is unchanged: the caller tries it again.
                    Ok(_) => break,
                    Err(_) if done > 0 => break,
                    Err(stop) => return Err(stop),
                }
            }
            mtr.commit();
            Ok(done)
        });
        let done = attempt.map_err(|error| tree.is_there(self.id(), &engine.active).err().unwrap_or(error))?;
        self.count_changes(tree.at.id, done as u64);
        self.owner.add_weight(done as u64);
        Ok(done)
    }

    /// One attempt, under the leaf's exclusive latch.
    fn attempt(&mut self, row: &RowChange<'_>) -> Result<Attempt, Stop> {
        let &RowChange { engine, tree, key, .. } = row;
        let payload_bytes = match row.change {
            // The delete mark may give the entry its first header: then the whole entry is logged.
            Change::Delete => row.row_bytes,
            Change::Insert | Change::Put | Change::Update { .. } => row.new.payload_bytes(),
        };
        let size = MtrSize::Bytes(logged_max(key.len(), payload_bytes, row.row_bytes));
        let mut mtr = Mtr::begin_while(engine.pool(), size, || self.go_on(LOG_ROOM))?;
        let leaf = tree.at.leaf_for_change_by(&engine.space, &mut mtr, key, &self.leaves)?;
        let attempt = self.attempt_at(row, &mut mtr, leaf)?;
        mtr.commit();
        Ok(attempt)
    }

    /// One attempt in a mini-transaction that has latched the leaf. Nothing is changed unless the answer is
    /// `Done`.
    fn attempt_at(&mut self, row: &RowChange<'_>, mtr: &mut Mtr<'_>, leaf: LatchedPage) -> Result<Attempt, Stop> {
        let &RowChange { engine, tree, key, ref new, change, row_bytes } = row;
        let node = Node::open(mtr.page(leaf))?;
        let opened = node.opened();
        let at = node.search_inside(key)?;
        let slot = at.slot;
        if matches!(change, Change::Insert | Change::Put) {
            tree.dead.revive(key);
        }
        if !at.found {
            let Ok(has_point) = engine.locks.check_write(&self.owner, tree.at.id, key) else {
                return Ok(Attempt::Blocked);
            };
            tree.is_there(self.id(), &engine.active)?;
            if matches!(change, Change::Update { .. } | Change::Delete) {
                return Ok(self.told(tree, key, false, Attempt::Done { was_there: false }));
            }
            if !node.fits_insert(key.len(), new.payload_bytes())? {
                return Ok(Attempt::NoRoom(new.payload_bytes()));
            }
            return self.insert(row, LeafEdit { mtr, leaf, slot, opened }, has_point);
        }
        let entry = node.entry(slot)?;
        let may = match self.writer_of(tree, key, &entry, self.options.wait) {
            Writer::Me => Some(false),
            Writer::Other => None,
            Writer::Busy(writer) => return Ok(Attempt::Busy(writer)),
            Writer::None => engine.locks.check_write(&self.owner, tree.at.id, key).ok(),
        };
        let Some(has_point) = may else { return Ok(Attempt::Blocked) };
        let mine = entry.writer == self.id();
        tree.is_there(self.id(), &engine.active)?;
        if let Some(writer) = self.stale(&entry) {
            return Ok(Attempt::Stale(writer));
        }
        let there = entry.flags & DELETED == 0;
        if key.len() + ENTRY_HEADER_BYTES + entry.value.len() > row_bytes {
            if row_bytes >= btree::entry_bytes_max(node.page_bytes()) {
                return Err(node.damaged("an entry is longer than a leaf keeps").into());
            }
            return Ok(Attempt::LongRow);
        }
        let done = match change {
            Change::Insert if there => Ok(self.told(tree, key, mine, Attempt::Exists)),
            Change::Update { .. } | Change::Delete if !there => {
                Ok(self.told(tree, key, mine, Attempt::Done { was_there: false }))
            }
            Change::Delete => {
                tree.rows.changed(self.id(), key, true);
                self.mark_deleted(row, LeafEdit { mtr, leaf, slot, opened })
            }
            Change::Insert | Change::Put | Change::Update { .. } => {
                if !node.fits_replace(slot, new.payload_bytes())? {
                    return Ok(Attempt::NoRoom(new.payload_bytes()));
                }
                tree.rows.changed(self.id(), key, change != Change::Update { indexed: false });
                self.overwrite(row, LeafEdit { mtr, leaf, slot, opened }, there)
            }
        }?;
        if has_point && self.bears_its_id(mtr, leaf, slot)? {
            engine.locks.written(&self.owner, tree.at.id, key);
        }
        Ok(done)
    }

    fn insert(&mut self, row: &RowChange<'_>, edit: LeafEdit<'_, '_>, has_point: bool) -> Result<Attempt, Stop> {
        let &RowChange { engine, tree, key, ref new, .. } = row;
        let LeafEdit { mtr, leaf, slot, opened } = edit;
        tree.rows.changed(self.id(), key, true);
        let Writing { id, undo_log, inserts, payload, .. } = Writing::of(&mut self.writing);
        let at = tree.at;
        let last = undo_log.last();
        let undo = if let Some(undo) = inserts.covering(last, at.id, key) {
            undo
        } else {
            let room = UndoRecord::room_for_row(key.len(), row.row_bytes);
            let record = inserts.record(last, (at.id, at.root), &Node::again(mtr.page(leaf), opened), key, room);
            let is_range = matches!(record, UndoRecord::InsertRange { .. });
            let undo = engine.undo.append(undo_log, mtr, &record)?;
            inserts.inserted(undo, (at.id, mtr.id(leaf)), key, is_range);
            undo
        };
        new.encode(*id, undo, payload);
        let prefix_len = Node::again(mtr.page(leaf), opened).prefix_len();
        mtr.run(leaf, &Insert::new(slot, prefix_len, key, payload));
        if has_point {
            engine.locks.written(&self.owner, tree.at.id, key);
        }
        Ok(Attempt::Done { was_there: false })
    }

    /// Called before a change without effect reports whether the row exists. That answer is a read: with
    /// [`OnConflict::Fail`] it has to match the snapshot, so the snapshot is taken now if there is none; not if the
    /// transaction is to be `like_innodb`.
    pub(super) fn tells(&self) {
        if self.needs_snapshot_to_tell() {
            self.take_snapshot_for_read();
        }
    }

    pub(super) fn needs_snapshot_to_tell(&self) -> bool {
        let TxOptions { on_conflict, isolation, like_innodb, .. } = self.options;
        let matters = on_conflict == OnConflict::Fail && isolation == Isolation::RepeatableRead && !like_innodb;
        matters && self.view.borrow().is_none()
    }

    /// Whether the entry bears this transaction's id: other transactions that find it wait for this one.
    fn bears_its_id(&self, mtr: &Mtr<'_>, leaf: LatchedPage, slot: usize) -> Result<bool, Stop> {
        Ok(Node::open(mtr.page(leaf))?.entry(slot)?.writer == self.id())
    }

    /// Returns the answer of a change without effect. In a serializable transaction the answer has to stay true, so the
    /// row is locked shared unless it is `mine`.
    fn told(&self, tree: &TreeState, key: &[u8], mine: bool, answer: Attempt) -> Attempt {
        let serializable = self.options.isolation == Isolation::Serializable;
        if self.owner.is_follower() && (!(mine || serializable) || self.needs_snapshot_to_tell()) {
            return Attempt::Follows;
        }
        self.tells();
        let stays =
            mine || !serializable || self.engine.locks.try_point(&self.owner, tree.at.id, key, Mode::Shared).is_ok();
        if stays { answer } else { Attempt::Blocked }
    }

    fn mark_deleted(&mut self, row: &RowChange<'_>, edit: LeafEdit<'_, '_>) -> Result<Attempt, Stop> {
        let &RowChange { engine, tree, key, .. } = row;
        let LeafEdit { mtr, leaf, slot, opened } = edit;
        let node = Node::again(mtr.page(leaf), opened);
        let entry = node.entry(slot)?;
        let headed = entry.flags & HEADER != 0;
        if !headed && !node.fits_replace(slot, ENTRY_HEADER_BYTES + entry.value.len())? {
            return Ok(Attempt::NoRoom(ENTRY_HEADER_BYTES + entry.value.len()));
        }
        let previous = Previous { flags: entry.flags, writer: entry.writer, undo: entry.undo };
        let Writing { id, undo_log, payload, old, .. } = Writing::of(&mut self.writing);
        let is_long = previous.flags & OVERFLOW != 0;
        old.clear();
        if is_long || !headed {
            old.extend_from_slice(entry.value);
        }
        let overflow: &[u8] = if is_long { old } else { &[] };
        let record = UndoRecord::Delete { tree: tree.at.id, root: tree.at.root, key, previous, overflow };
        let undo = engine.undo.append(undo_log, mtr, &record)?;
        let flags = previous.flags | DELETED | HEADER;
        if headed {
            let head = Entry::header_bytes(flags, *id, undo);
            mtr.run(leaf, &Patch::new(slot, 0, &head));
        } else {
            NewValue { flags, bytes: old }.encode(*id, undo, payload);
            mtr.run(leaf, &Replace::new(slot, payload));
        }
        Ok(Attempt::Done { was_there: true })
    }

    fn overwrite(&mut self, row: &RowChange<'_>, edit: LeafEdit<'_, '_>, there: bool) -> Result<Attempt, Stop> {
        let &RowChange { engine, tree, key, ref new, .. } = row;
        let LeafEdit { mtr, leaf, slot, opened } = edit;
        let node = Node::again(mtr.page(leaf), opened);
        let entry = node.entry(slot)?;
        let previous = Previous { flags: entry.flags, writer: entry.writer, undo: entry.undo };
        let Writing { id, undo_log, payload, old, .. } = Writing::of(&mut self.writing);
        let is_inline = (previous.flags | new.flags) & OVERFLOW == 0;
        let difference = if is_inline { Difference::find(entry.value, new.bytes) } else { None };
        old.clear();
        let value = if let Some(difference) = &difference {
            difference.back(entry.value, old);
            OldValue::Edits(old)
        } else {
            old.extend_from_slice(entry.value);
            OldValue::Whole(old)
        };
        let record = UndoRecord::Update { tree: tree.at.id, root: tree.at.root, key, previous, value };
        let undo = engine.undo.append(undo_log, mtr, &record)?;
        if let Some(difference) = difference {
            payload.clear();
            difference.forward(new.bytes, payload);
            let header = Entry::header_bytes(new.flags | HEADER, *id, undo);
            mtr.run(leaf, &Rewrite::new(slot, header, payload));
        } else {
            new.encode(*id, undo, payload);
            mtr.run(leaf, &Replace::new(slot, payload));
        }
        Ok(Attempt::Done { was_there: there })
    }

    /// Writes a long value. The undo record that names its first page is logged with that page.
    fn write_overflow(&mut self, tree: &Arc<TreeState>, value: &[u8]) -> Result<OverflowRef> {
        let engine = self.engine.clone();
        let space = &*engine.space;
        let writing = Writing::of(&mut self.writing);
        let id = tree.at.id;
        let record = |head| UndoRecord::OverflowWritten { tree: id, head };
        engine.undo.ensure_room(&mut writing.undo_log, record(PageId::NONE).room_max(), Purpose::Grow)?;
        let mut reserved = space.reserve(id, PageId::NONE, 1, Purpose::Grow)?;
        if value.len() <= one_page_value_max(engine.pool().page_bytes()) {
            return engine.pool().retry(|| {
                let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
                engine.undo.latch_tail(&writing.undo_log, &mut mtr)?;
                let reference = write_one_page(id, &mut mtr, &mut reserved, value)?;
                engine.undo.append(&mut writing.undo_log, &mut mtr, &record(reference.head))?;
                mtr.commit();
                Ok(reference)
            });
        }
        let mut writer = engine.pool().retry(|| {
            let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
            engine.undo.latch_tail(&writing.undo_log, &mut mtr)?;
            let writer = OverflowWriter::begin(id, &mut mtr, &mut reserved)?;
            engine.undo.append(&mut writing.undo_log, &mut mtr, &record(writer.head()))?;
            mtr.commit();
            Ok(writer)
        })?;
        writer.append(space, value, Purpose::Grow)?;
        writer.finish(space, Purpose::Grow)
    }
}

impl NewValue<'_> {
    /// Bytes of the entry with this value, besides its key.
    fn payload_bytes(&self) -> usize {
        ENTRY_HEADER_BYTES + self.bytes.len()
    }

    /// Encodes into `payload` an entry with this value: flags, writer, undo pointer, value.
    fn encode(&self, writer: TxnId, undo: UndoPtr, payload: &mut Vec<u8>) {
        payload.clear();
        payload.extend_from_slice(&Entry::header_bytes(self.flags | HEADER, writer, undo));
        payload.extend_from_slice(self.bytes);
    }
}
