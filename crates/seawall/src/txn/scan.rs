//! Scans of a tree in key order, both ways.
//!
//! 1. A snapshot scan copies what it needs of a leaf, under its shared latch, and reads the copy with no
//!    latch. What its view sees never changes, so the copy is as good as the leaf; only the transaction's own
//!    changes of the tree make it old, and those are counted.
//! 2. An entry whose version in the copy is not visible is looked up in the live tree, where its older
//!    versions are reached under the latch.
//! 3. There are no sibling links: the next leaf is the one with the upper fence, the previous one lies below
//!    the lower fence. Splits and merges in between lose and repeat nothing, because the scan continues by
//!    key.
//! 4. Rows that are dead for the scan are skipped together where a run of them is known ([`super::dead`]);
//!    otherwise the scan records the run. It reads its view first and the runs of dead rows afterwards: it
//!    does not see rows put there later.
//! 5. A locking scan reads the live tree row by row. It locks the interval up to the next key, checks that
//!    this still is the next key, and only then locks the row: from then on nothing can appear in the
//!    interval. Within a leaf it does all of this under one shared latch, which excludes insertions: it need
//!    not check again (`lock_in_leaf`). The next key is the next that is not dead: a row whose deletion is
//!    committed is as good as purged, and is not locked by itself. The scan prefetches when it goes from leaf
//!    to leaf, as a snapshot scan does.

use super::dead::{Beyond, For, stretch};
use super::locking::{SCAN, Sight, Writer};
use super::locks::{KeySpan, LockRequest, Mode};
use super::read::{LockedRow, RowLock};
use super::transaction::{Isolation, LockWait, Txn, ViewRef};
use super::trees::TreeState;
use super::version::{Reader, Stored};
use super::views::View;
use super::write::Change;
use crate::btree::{Cursor, Entry, KeyBound, LookAhead, Node, OVERFLOW, OverflowRef, Seek};
use crate::error::{Error, Result, Stop};
use crate::format::{TreeId, TxnId, page};
use std::ops::{Bound, Deref};
use std::sync::Arc;

/// The locks that a scan takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanLock {
    /// None: it reads a snapshot.
    None,
    /// On the rows it reaches and, unless the transaction is read committed, on the intervals between them.
    Rows(Mode),
}

/// The bound from which a step to `to` starts.
fn bound_of(to: Seek<'_>) -> Bound<&[u8]> {
    match to {
        Seek::First | Seek::Last => Bound::Unbounded,
        Seek::AtLeast(key) | Seek::AtMost(key) => Bound::Included(key),
        Seek::After(key) | Seek::Before(key) => Bound::Excluded(key),
    }
}

/// The value of the entry a scan stands on.
#[derive(Debug)]
enum Value {
    /// In the copy of the leaf, at the cursor.
    InLeaf,
    /// Elsewhere; fetched when asked for.
    Stored(Stored),
    /// Fetched.
    Bytes(Vec<u8>),
}

/// Consecutive dead rows after which a scan looks for a known run, and records theirs at a leaf's end.
const DEAD_MIN: usize = 4;
/// Consecutive dead rows after which it records their run within a leaf.
const DEAD_ROWS: usize = 16;
/// Entries that it skips in one step between two checks for an interrupt.
const PASSED_ROWS: usize = 64;

/// A scan, in a transaction that it borrows: for reading, or for deleting the entry it stands on.
#[derive(Debug)]
pub struct Scan<T> {
    txn: T,
    view: ViewRef,
    /// Why it cannot be moved: its tree belongs to another database, or the process is another.
    refused: Option<Box<Error>>,
    state: ScanState,
}

/// The transaction that moves a scan, and its view. The same from one seek to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct By<'a> {
    pub(super) txn: &'a Txn,
    pub(super) view: &'a View,
}

/// The position and the settings of a scan: all of it but the transaction.
#[derive(Debug)]
pub(super) struct ScanState {
    tree: Arc<TreeState>,
    lock: ScanLock,
    wait: LockWait,
    /// Where a locking scan ends: it locks nothing beyond.
    limit: (KeyBound, KeyBound),
    /// The position of a snapshot scan: on entries seen or not.
    cursor: Cursor,
    /// The transaction's count of changes of the tree when the scan last moved.
    changes: u64,
    /// Its count of undone changes at that time.
    undone: u64,
    on_entry: bool,
    /// After an error, or the deletion of its entry: where to continue.
    lost: Option<Lost>,
    /// Its copy of the leaf is good except for entries that it deleted itself. They are behind it as long as
    /// it continues in one direction.
    deleted: Option<Deleted>,
    /// The key at which a locking scan stands.
    locked_key: Vec<u8>,
    /// The buffer for the key that it goes to.
    next_key: Vec<u8>,
    /// Whether it took a new lock on the row, and on that alone.
    newly_locked: bool,
    /// Rows that a locking scan has reached since it last left a leaf.
    rows_in_leaf: usize,
    value: Value,
}

/// What a scan has deleted from the leaf that it has a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Deleted {
    /// It stands where the last deleted entry was.
    here: bool,
    /// Its direction since the first deletion; `None` before it moved.
    forward: Option<bool>,
}

/// The kind of entry that a scan has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// A row that it sees.
    Row,
    /// A row whose deletion it sees.
    Dead,
    /// A row of which it sees no version.
    Nothing,
}

/// Where a failed step continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// Beyond the key.
    Beyond,
    /// At the key: its entry could not be read.
    At,
}

impl Txn {
    /// A scan of `tree`, which has no position yet.
    pub fn scan(&self, tree: &Arc<TreeState>, lock: ScanLock) -> Scan<&Self> {
        Scan::new(self, tree, lock)
    }

    /// Like [`Txn::scan`]; it can also delete the entry it stands on.
    pub fn scan_mut(&mut self, tree: &Arc<TreeState>, lock: ScanLock) -> Scan<&mut Self> {
        Scan::new(self, tree, lock)
    }
}

impl ScanLock {
    /// The locks that a scan of `txn` takes if these are requested, and its policy for locks of others.
    pub(super) fn of(self, txn: &Txn, wait: Option<LockWait>) -> (Self, LockWait) {
        let implied = self == Self::None && txn.options.isolation == Isolation::Serializable;
        let lock = if implied { Self::Rows(Mode::Shared) } else { self };
        let wait = match (wait, txn.options.wait) {
            (Some(wait), _) => wait,
            // A plain read skips no row.
            (None, LockWait::SkipLocked) if implied => LockWait::NoWait,
            (None, wait) => wait,
        };
        (lock, wait)
    }
}

impl<T: Deref<Target = Txn>> Scan<T> {
    fn new(txn: T, tree: &Arc<TreeState>, lock: ScanLock) -> Self {
        let (lock, wait) = lock.of(&txn, None);
        let refused = txn.admit(tree).err().map(Box::new);
        let view = match lock {
            _ if refused.is_some() => ViewRef::New(View::of_nothing()),
            ScanLock::None => txn.view(),
            ScanLock::Rows(_) => txn.pin(),
        };
        Self { state: ScanState::new(tree, lock, wait), view, refused, txn }
    }

    /// Limits the scan to these bounds: the caller requests nothing outside.
    pub fn within(mut self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Self {
        self.state.keep_to(start, end);
        self
    }

    /// Its prefetch.
    pub fn look_ahead(&mut self) -> &mut LookAhead {
        self.state.look_ahead()
    }

    /// Uses the view of `other`.
    pub fn seeing(mut self, other: &Self) -> Self {
        self.view = other.view.clone();
        self
    }

    /// Sets the policy for locks of others, instead of the transaction's.
    pub fn waiting(mut self, wait: LockWait) -> Self {
        self.state.wait = wait;
        self
    }

    fn admitted(&self) -> Result<()> {
        match &self.refused {
            Some(why) => Err((**why).clone()),
            None => self.txn.here(),
        }
    }

    /// The tree's id, and the number of its opening.
    pub fn tree(&self) -> (TreeId, u64) {
        self.state.tree()
    }

    /// Whether it stands on an entry.
    pub fn is_on_entry(&self) -> bool {
        self.state.on_entry
    }

    /// Whether it has newly locked the row it stands on, by itself.
    pub fn newly_locked(&self) -> bool {
        self.state.newly_locked()
    }

    /// The key it stands on, or stood on last.
    pub fn key(&self) -> &[u8] {
        self.state.key()
    }

    /// The value of the entry it stands on.
    ///
    /// # Errors
    /// [`Error::Usage`] when it stands on none; reading errors.
    pub fn value(&mut self) -> Result<&[u8]> {
        Ok(self.entry()?.1)
    }

    /// Key and value of the entry it stands on.
    ///
    /// # Errors
    /// As [`Scan::value`].
    pub fn entry(&mut self) -> Result<(&[u8], &[u8])> {
        self.admitted()?;
        self.state.entry(By { txn: &self.txn, view: &self.view })
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// As [`Scan::seek`].
    pub fn seek_first(&mut self) -> Result<bool> {
        self.seek(Seek::First)
    }

    /// Moves to an entry; returns whether there is one.
    ///
    /// # Errors
    /// Reading errors; lock errors when it locks; [`Error::TreeDropped`].
    pub fn seek(&mut self, to: Seek<'_>) -> Result<bool> {
        self.admitted()?;
        self.state.seek(By { txn: &self.txn, view: &self.view }, to)
    }

    /// Moves to the next entry; returns whether there is one.
    ///
    /// # Errors
    /// As [`Scan::seek`].
    pub fn next(&mut self) -> Result<bool> {
        self.admitted()?;
        self.state.step(By { txn: &self.txn, view: &self.view }, true)
    }

    /// Moves to the previous entry; returns whether there is one.
    ///
    /// # Errors
    /// As [`Scan::seek`].
    pub fn prev(&mut self) -> Result<bool> {
        self.admitted()?;
        self.state.step(By { txn: &self.txn, view: &self.view }, false)
    }
}

impl Scan<&mut Txn> {
    /// Deletes the entry it stands on. Returns `false` if that is already gone, which only a scan without
    /// locks can find. Afterwards it stands on no entry, and continues from where the entry was.
    ///
    /// # Errors
    /// [`Error::Usage`] when it stands on none; those of [`Txn::change`]: it still stands on the entry then.
    pub fn delete(&mut self) -> Result<bool> {
        self.state.delete(self.txn)
    }
}

impl ScanState {
    pub(super) fn new(tree: &Arc<TreeState>, lock: ScanLock, wait: LockWait) -> Self {
        Self {
            tree: tree.clone(),
            lock,
            wait,
            limit: (KeyBound::default(), KeyBound::default()),
            cursor: Cursor::new(tree.at),
            changes: 0,
            undone: 0,
            on_entry: false,
            lost: None,
            deleted: None,
            locked_key: Vec::new(),
            next_key: Vec::new(),
            newly_locked: false,
            rows_in_leaf: 0,
            value: Value::Bytes(Vec::new()),
        }
    }

    /// Resets it to a scan of `tree` without a position; keeps its memory.
    pub(super) fn reset(&mut self, tree: &Arc<TreeState>) {
        if !Arc::ptr_eq(&self.tree, tree) {
            self.tree = tree.clone();
        }
        self.cursor.reset(tree.at);
        self.locked_key.clear();
        (self.on_entry, self.lost, self.deleted) = (false, None, None);
        self.keep_to(Bound::Unbounded, Bound::Unbounded);
    }

    pub(super) fn keep_to(&mut self, start: Bound<&[u8]>, end: Bound<&[u8]>) {
        self.cursor.look_ahead().keep_to(start, end);
        self.limit.0.set(start);
        self.limit.1.set(end);
    }

    /// Sets what it locks and how it waits. It stays on the same key.
    pub(super) fn set_lock(&mut self, (lock, wait): (ScanLock, LockWait)) {
        match (self.lock, lock) {
            (ScanLock::None, ScanLock::Rows(_)) => {
                self.locked_key.clear();
                self.locked_key.extend_from_slice(self.cursor.last_key());
            }
            (ScanLock::Rows(_), ScanLock::None) => self.cursor.leave_at(&self.locked_key),
            _ => {}
        }
        (self.lock, self.wait) = (lock, wait);
    }

    pub(super) fn lock(&self) -> ScanLock {
        self.lock
    }

    pub(super) fn tree_state(&self) -> &Arc<TreeState> {
        &self.tree
    }

    pub(super) fn tree(&self) -> (TreeId, u64) {
        (self.tree.at.id, self.tree.owner)
    }

    pub(super) fn look_ahead(&mut self) -> &mut LookAhead {
        self.cursor.look_ahead()
    }

    pub(super) fn is_on_entry(&self) -> bool {
        self.on_entry
    }

    pub(super) fn newly_locked(&self) -> bool {
        self.on_entry && self.newly_locked && self.lock != ScanLock::None
    }

    /// Gives up its entry, and the position to continue from.
    pub(super) fn leave(&mut self) {
        (self.on_entry, self.lost, self.deleted) = (false, None, None);
    }

    /// What it has read belongs to another view: it continues by key.
    pub(super) fn is_outdated(&mut self) {
        if self.on_entry || self.deleted.is_some_and(|deleted| deleted.here) {
            self.lost = Some(Lost::Beyond);
        }
        (self.on_entry, self.deleted) = (false, None);
    }

    pub(super) fn key(&self) -> &[u8] {
        if self.lock == ScanLock::None { self.cursor.last_key() } else { &self.locked_key }
    }

    /// Whether the value needs no fetching: none but a long one that was not asked for so far does.
    #[inline]
    pub(super) fn has_value(&self) -> bool {
        !matches!(self.value, Value::Stored(Stored::Overflow(_)))
    }

    pub(super) fn entry(&mut self, by: By<'_>) -> Result<(&[u8], &[u8])> {
        if let (true, Value::Stored(Stored::Overflow(reference))) = (self.on_entry, &self.value) {
            let reference = *reference;
            self.still_there(by, reference)?;
            // If it cannot be read now, the caller can ask again.
            self.value = Value::Bytes(by.txn.fetch(&self.tree, Stored::Overflow(reference))?);
        }
        self.lend()
    }

    /// The same where the value needs no fetching.
    #[inline]
    pub(super) fn lend(&self) -> Result<(&[u8], &[u8])> {
        if !self.on_entry {
            return Err(Error::Usage("the cursor stands on no entry".into()));
        }
        let value = match &self.value {
            Value::InLeaf => self.cursor.value()?,
            Value::Bytes(bytes) | Value::Stored(Stored::Inline(bytes)) => bytes,
            Value::Stored(Stored::Overflow(_)) => unreachable!("fetched before"),
        };
        Ok((self.key(), value))
    }

    /// Checks that the pages of a long value are still its own: a rollback to a savepoint frees those of the
    /// changes it undoes.
    fn still_there(&mut self, by: By<'_>, reference: OverflowRef) -> Result<()> {
        if self.undone == by.txn.undone {
            return Ok(());
        }
        let reader = Reader { me: by.txn.id(), view: by.view };
        match by.txn.stored_version(&self.tree, self.key(), reader)? {
            Some(Stored::Overflow(now)) if now == reference => {
                self.undone = by.txn.undone;
                Ok(())
            }
            _ => {
                let why = "the transaction was rolled back to a savepoint, and what the cursor stands on may be gone with it: seek again";
                Err(Error::Usage(why.into()))
            }
        }
    }

    pub(super) fn seek(&mut self, by: By<'_>, to: Seek<'_>) -> Result<bool> {
        by.txn.go_on(SCAN)?;
        if self.lock != ScanLock::None {
            self.tree.usable(by.txn.id(), by.view)?;
            self.rows_in_leaf = 0;
            self.cursor.look_ahead().before_seek(by.txn.engine.pool(), &self.tree.at, to);
        }
        self.go(by, to)
    }

    /// Like [`ScanState::seek`], also for a later step of a scan.
    fn go(&mut self, by: By<'_>, to: Seek<'_>) -> Result<bool> {
        self.tree.usable(by.txn.id(), by.view)?;
        (self.on_entry, self.lost, self.deleted) = (false, None, None);
        self.undone = by.txn.undone;
        if let ScanLock::Rows(mode) = self.lock {
            let (near, forward) = (bound_of(to), to.is_forward());
            return match self.lock_in_leaf(by, mode, near, forward) {
                true => Ok(true),
                false => self.step_locked(by, mode, near.map(<[u8]>::to_vec), forward),
            };
        }
        self.changes = by.txn.changes_of(self.tree.at.id);
        let there = match self.beyond_dead(by, to) {
            None => self.cursor.seek(by.txn.engine.pool(), to)?,
            Some(beyond) => self.seek_beyond(by, &beyond, to.is_forward())?,
        };
        self.settle(by, there, to.is_forward())
    }

    pub(super) fn step(&mut self, by: By<'_>, forward: bool) -> Result<bool> {
        // Before any move: it stays where it is, and can continue when the interrupt is cleared.
        by.txn.go_on(SCAN)?;
        if !self.on_entry && self.lost.is_none() && !self.deleted.is_some_and(|deleted| deleted.here) {
            return Ok(false);
        }
        if let ScanLock::Rows(mode) = self.lock {
            if self.on_entry {
                let from = std::mem::take(&mut self.locked_key);
                let moved = self.lock_in_leaf(by, mode, Bound::Excluded(&from), forward);
                // The buffers change places, or stay.
                if moved {
                    self.next_key = from;
                    return Ok(true);
                }
                self.locked_key = from;
            }
        }
        let back = self.deleted.is_some_and(|deleted| deleted.forward == Some(!forward));
        let old = self.changes != by.txn.changes_of(self.tree.at.id) || back;
        let moved = if old || self.lock != ScanLock::None || self.lost.is_some() {
            let (key, lost) = (self.key().to_vec(), self.lost);
            let moved = self.go(
                by,
                match (lost, forward) {
                    (Some(Lost::At), true) => Seek::AtLeast(&key),
                    (Some(Lost::At), false) => Seek::AtMost(&key),
                    (_, true) => Seek::After(&key),
                    (_, false) => Seek::Before(&key),
                },
            );
            if moved.is_err() && self.lost.is_none() {
                self.lost = lost;
            }
            moved
        } else {
            self.on_entry = false;
            self.undone = by.txn.undone;
            if let Some(deleted) = &mut self.deleted {
                (deleted.here, deleted.forward) = (false, Some(forward));
            }
            let (cursor, pool) = (&mut self.cursor, by.txn.engine.pool());
            let there = if forward { cursor.next(pool) } else { cursor.prev(pool) };
            there.and_then(|there| self.settle(by, there, forward))
        };
        if moved.is_err() {
            // The next step tries again: a scan that ended here without an error would leave entries out.
            self.lost = self.lost.or(Some(Lost::Beyond));
        }
        moved
    }

    // --- by snapshot
    // ---------------------------------------------------------------------------------------------------

    /// Where a scan from here continues, if it starts among dead rows.
    fn beyond_dead(&self, by: By<'_>, to: Seek<'_>) -> Option<Beyond> {
        self.tree.dead.beyond(bound_of(to), to.is_forward(), sight_of(by))
    }

    fn seek_beyond(&mut self, by: By<'_>, beyond: &Beyond, forward: bool) -> Result<bool> {
        match beyond {
            Beyond::End => Ok(false),
            Beyond::Key(key) if forward => self.cursor.seek(by.txn.engine.pool(), Seek::AtLeast(key)),
            Beyond::Key(key) => self.cursor.seek(by.txn.engine.pool(), Seek::Before(key)),
        }
    }

    /// Moves to the cursor's entry, or the next one of which the reader sees a version.
    fn settle(&mut self, by: By<'_>, mut there: bool, forward: bool) -> Result<bool> {
        let (mut dead, mut passed) = (0, 0);
        while there {
            match self.take_if_seen(by)? {
                Met::Row => return Ok(true),
                Met::Nothing => dead = 0,
                Met::Dead => dead += 1,
            }
            passed += 1;
            if passed % PASSED_ROWS == 0 {
                by.txn.go_on(SCAN)?;
            }
            if dead >= DEAD_MIN && (dead % DEAD_ROWS == 0 || self.is_at_edge(forward)) {
                self.remember_dead(by)?;
                let at = self.cursor.key();
                let to = if forward { Seek::After(at) } else { Seek::Before(at) };
                if let Some(beyond) = self.beyond_dead(by, to) {
                    there = self.seek_beyond(by, &beyond, forward)?;
                    continue;
                }
            }
            let pool = by.txn.engine.pool();
            there = if forward { self.cursor.next(pool)? } else { self.cursor.prev(pool)? };
        }
        Ok(false)
    }

    /// Whether the cursor's entry is the last of its leaf in this direction.
    fn is_at_edge(&self, forward: bool) -> bool {
        let count = self.cursor.leaf_count();
        self.cursor.slot().is_some_and(|slot| if forward { slot + 1 == count } else { slot == 0 })
    }

    /// Records the run of dead entries around the cursor's, if the leaf is still as in the copy.
    fn remember_dead(&mut self, by: By<'_>) -> Result<()> {
        let (me, view, pool) = (by.txn.id(), by.view, by.txn.engine.pool());
        let (page, lsn) = (self.cursor.leaf_page(), self.cursor.leaf_lsn());
        let slot = self.cursor.slot();
        let (Some(node), Some(slot)) = (self.cursor.whole_leaf(pool)?, slot) else { return Ok(()) };
        let reader = Reader { me, view };
        let is_dead = |entry: &Entry<'_>| {
            (entry.is_deleted() && reader.sees_entry(entry)).then_some(me != TxnId::NONE && entry.writer == me)
        };
        let (lo, hi, own) = stretch(&node, slot..slot + 1, true, is_dead)?;
        // No page is read for this.
        let Ok(leaf) = pool.shared(page) else { return Ok(()) };
        if page::lsn(&leaf) == lsn {
            if own {
                by.txn.note_dead_in(&self.tree);
            }
            let serves = if own { For::Only(me) } else { For::Views(view.serial()) };
            self.tree.dead.add(lo, hi, serves);
        }
        Ok(())
    }

    /// Stands on the cursor's entry if the reader sees a version of it.
    fn take_if_seen(&mut self, by: By<'_>) -> Result<Met> {
        let reader = Reader { me: by.txn.id(), view: by.view };
        let Some(entry) = self.cursor.entry()? else { return Ok(Met::Nothing) };
        if reader.sees_entry(&entry) {
            if entry.is_deleted() {
                return Ok(Met::Dead);
            }
            self.value = match entry.flags & OVERFLOW {
                0 => Value::InLeaf,
                _ => Value::Stored(Stored::of(entry.flags, entry.value)?),
            };
        } else {
            match by.txn.stored_version(&self.tree, self.cursor.key(), reader) {
                Ok(Some(stored)) => self.value = Value::Stored(stored),
                Ok(None) => return Ok(Met::Nothing),
                Err(error) => {
                    self.lost = Some(Lost::At);
                    return Err(error);
                }
            }
        }
        self.on_entry = true;
        Ok(Met::Row)
    }

    // --- with locks
    // ----------------------------------------------------------------------------------------------------

    /// Whether it locks the intervals between the rows. A scan that skips locked rows does not require that
    /// no others appear between them, and must not wait for rows between them.
    fn locks_ranges(&self, by: By<'_>) -> bool {
        by.txn.options.isolation != Isolation::ReadCommitted && self.wait != LockWait::SkipLocked
    }

    /// Moves to the next row beyond `near`, if it is in the leaf where the search begins: locks and reads it
    /// under one latch, without an allocation unless dead rows lie between. Returns `false` at the end of the
    /// leaf or of the scan, for a long value, if a lock is not free, and after an error: then
    /// [`ScanState::step_locked`] does the whole step. The interval up to the row may be locked already.
    ///
    /// Where the search begins beyond a run of dead rows, other leaves lie between: the run is looked up
    /// again when the interval is locked (rule 2 of [`super::dead`]).
    fn lock_in_leaf(&mut self, by: By<'_>, mode: Mode, near: Bound<&[u8]>, forward: bool) -> bool {
        let ranges = self.locks_ranges(by);
        let (txn, tree, wait) = (by.txn, &self.tree, self.wait);
        let (engine, id) = (&*txn.engine, tree.at.id);
        if tree.usable(txn.id(), by.view).is_err() {
            return false;
        }
        let dead = tree.dead.beyond(near, forward, txn.locking_sight());
        let (from, after) = match (&dead, near) {
            (Some(Beyond::End), _) => return false,
            (Some(Beyond::Key(key)), _) => (&key[..], !forward),
            (None, Bound::Included(key)) => (key, false),
            (None, Bound::Excluded(key)) => (key, true),
            (None, Bound::Unbounded) if forward => (&[][..], false),
            (None, Bound::Unbounded) => return false,
        };
        let still_dead = || match tree.dead.beyond(near, forward, txn.locking_sight()) {
            Some(Beyond::End) => true,
            Some(Beyond::Key(key)) => {
                if forward {
                    &key[..] >= from
                } else {
                    &key[..] <= from
                }
            }
            None => false,
        };
        let limit = if forward { self.limit.1.get() } else { self.limit.0.get() };
        let mut value = match std::mem::replace(&mut self.value, Value::InLeaf) {
            Value::Bytes(bytes) | Value::Stored(Stored::Inline(bytes)) => bytes,
            Value::InLeaf | Value::Stored(Stored::Overflow(_)) => Vec::new(),
        };
        let key = &mut self.next_key;
        let locked = engine.pool().retry(|| {
            let leaf = tree.at.leaf_shared_by(&engine.space, from, &txn.leaves)?;
            let node = Node::open(&leaf)?;
            let at = node.search_inside(from)?;
            let slot = at.slot + usize::from(at.found && after == forward);
            let slot = match (forward, txn.pass_dead(tree, &node, slot, (forward, dead.is_some()))?) {
                (true, slot) if slot < node.count() => slot,
                (false, slot) if slot > 0 => slot - 1,
                _ => return Ok(None),
            };
            node.key_into(slot, key)?;
            let entry = node.entry(slot)?;
            if is_beyond(key, limit, forward) || entry.is_deleted() || entry.flags & OVERFLOW != 0 {
                return Ok(None);
            }
            if ranges {
                let far = Bound::Included(&key[..]);
                let (low, high) = if forward { (near, far) } else { (far, near) };
                let lock = |span: &_| engine.locks.add_range(&LockRequest::span(&txn.owner, id, span, mode));
                let locked = KeySpan::with(low, high, lock);
                if locked.is_err() || (dead.is_some() && !still_dead()) {
                    return Ok(None);
                }
            }
            let newly_locked = match txn.writer_of(tree, key, &entry, wait) {
                Writer::Me => Ok(false),
                Writer::Other | Writer::Busy(_) => return Ok(None),
                Writer::None if ranges => engine.locks.check_point(&txn.owner, id, key, mode).map(|()| false),
                Writer::None => {
                    engine.locks.room(&txn.owner, id, key)?;
                    engine.locks.try_new_point(&txn.owner, id, key, mode)
                }
            };
            let Ok(newly_locked) = newly_locked else { return Ok(None) };
            tree.is_there(txn.id(), &engine.active)?;
            if txn.stale(&entry).is_some() {
                return Ok(None);
            }
            value.clear();
            value.extend_from_slice(entry.value);
            Ok(Some((leaf.id(), newly_locked)))
        });
        self.value = Value::Bytes(value);
        // The whole step meets an error again.
        let Ok(Some((leaf, newly_locked))) = locked else { return false };
        if dead.is_some() {
            self.cursor.look_ahead().came_to(engine.pool(), leaf);
        } else {
            self.cursor.look_ahead().sought(leaf);
        }
        self.rows_in_leaf += 1;
        std::mem::swap(&mut self.locked_key, &mut self.next_key);
        (self.on_entry, self.newly_locked) = (true, newly_locked);
        (self.deleted, self.undone) = (None, txn.undone);
        true
    }

    fn step_locked(&mut self, by: By<'_>, mode: Mode, mut from: Bound<Vec<u8>>, forward: bool) -> Result<bool> {
        let ranges = self.locks_ranges(by);
        loop {
            let ahead = Some((self.cursor.look_ahead(), &mut self.rows_in_leaf));
            let mut next = by.txn.next_alive(&self.tree, &from, forward, ahead)?;
            let limit = if forward { self.limit.1.get() } else { self.limit.0.get() };
            let beyond = next.as_ref().is_none_or(|key| is_beyond(key, limit, forward));
            if ranges {
                let far = match &next {
                    Some(key) if !beyond => Bound::Included(&key[..]),
                    _ => limit,
                };
                let near = from.as_ref().map(|key| &key[..]);
                let (low, high) = if forward { (near, far) } else { (far, near) };
                by.txn.lock_range(&self.tree, low, high, mode, self.wait)?;
                let again = by.txn.next_alive(&self.tree, &from, forward, None)?;
                if again != next {
                    continue;
                }
            }
            if beyond {
                return Ok(false);
            }
            self.rows_in_leaf += 1;
            let key = next.take().expect("it is not beyond");
            let how = if ranges { RowLock::InRange } else { RowLock::IfThere };
            match by.txn.lock_row_how(&self.tree, &key, mode, how, self.wait) {
                Ok(LockedRow { value: Some(value), newly_locked }) => {
                    self.value = Value::Bytes(value);
                    self.locked_key = key;
                    (self.on_entry, self.newly_locked) = (true, newly_locked);
                    return Ok(true);
                }
                Ok(_) => {}
                Err(Error::LockTimeout { .. }) if self.wait == LockWait::SkipLocked => {}
                Err(error) => return Err(error),
            }
            from = Bound::Excluded(key);
        }
    }

    /// As [`Scan::delete`]. The transaction is the one that last moved it.
    pub(super) fn delete(&mut self, txn: &mut Txn) -> Result<bool> {
        if !self.on_entry {
            return Err(Error::Usage("the cursor stands on no entry".into()));
        }
        let is_copy = self.lock == ScanLock::None;
        let current = is_copy && self.changes == txn.changes_of(self.tree.at.id);
        let key = if is_copy { self.cursor.last_key() } else { &self.locked_key };
        let was_there = txn.change(&self.tree, key, &[], Change::Delete)?;
        self.on_entry = false;
        let forward = self.deleted.and_then(|deleted| deleted.forward);
        self.deleted = Some(Deleted { here: true, forward });
        if current {
            self.changes = txn.changes_of(self.tree.at.id);
        }
        Ok(was_there)
    }
}

/// What a scan without locks sees of dead rows.
fn sight_of(by: By<'_>) -> Sight {
    Sight { me: by.txn.id(), view: Some(by.view.serial()), locks: false }
}

/// Whether a key is beyond the limit of a scan, in its direction.
pub(super) fn is_beyond(key: &[u8], limit: Bound<&[u8]>, forward: bool) -> bool {
    match limit {
        Bound::Unbounded => false,
        Bound::Included(limit) => {
            if forward {
                key > limit
            } else {
                key < limit
            }
        }
        Bound::Excluded(limit) => {
            if forward {
                key >= limit
            } else {
                key <= limit
            }
        }
    }
}

impl Txn {
    /// The next key beyond `from` in the live tree, whatever its version. Read under the latch: no leaf is
    /// copied.
    pub(super) fn neighbour(
        &self,
        tree: &Arc<TreeState>,
        from: &Bound<Vec<u8>>,
        forward: bool,
    ) -> Result<Option<Vec<u8>>> {
        self.neighbour_ahead(tree, from, forward, None, None)
    }

    /// The next key beyond `from` that is not dead for a locking read. A scan passes its prefetch, and the
    /// number of rows it has reached in its leaf.
    fn next_alive(
        &self,
        tree: &Arc<TreeState>,
        from: &Bound<Vec<u8>>,
        forward: bool,
        scan: Option<(&mut LookAhead, &mut usize)>,
    ) -> Result<Option<Vec<u8>>> {
        self.neighbour_ahead(tree, from, forward, scan, Some(self.locking_sight()))
    }

    /// Skips the entries of a latched leaf that are dead for a locking read. Forward, `slot` is the first
    /// entry to check; backward, it is the slot after it. Returns such a slot again. `joins`: the search began
    /// at the end of a known run, which is extended.
    fn pass_dead(
        &self,
        tree: &Arc<TreeState>,
        node: &Node<'_>,
        slot: usize,
        (forward, joins): (bool, bool),
    ) -> Result<usize> {
        let mut at = slot;
        if forward {
            while at < node.count() && self.is_dead(&node.entry(at)?) {
                at += 1;
            }
        } else {
            while at > 0 && self.is_dead(&node.entry(at - 1)?) {
                at -= 1;
            }
        }
        // At the end of a leaf also fewer: a run of every leaf, with a gap before the next leaf, serves nothing.
        let at_end = if forward { at == node.count() } else { at == 0 };
        if at.abs_diff(slot) >= DEAD_MIN || (at_end && at != slot) {
            let me = self.id();
            let is_dead = |entry: &Entry<'_>| self.is_dead(entry).then_some(me != TxnId::NONE && entry.writer == me);
            let slots = at.min(slot)..at.max(slot);
            let (lo, hi, own) = stretch(node, slots, !joins, is_dead)?;
            if own {
                self.note_dead_in(tree);
            }
            // The deleters have ended, or are this transaction: a snapshot taken from now on sees those that
            // have ended.
            let serves = if own { For::OnlyLocking(me) } else { For::Views(self.engine.active.next_serial()) };
            tree.dead.add(lo, hi, serves);
        }
        Ok(at)
    }

    /// The next key beyond `from`; with a `sight`, the next that is not dead.
    fn neighbour_ahead(
        &self,
        tree: &Arc<TreeState>,
        from: &Bound<Vec<u8>>,
        forward: bool,
        mut scan: Option<(&mut LookAhead, &mut usize)>,
        sight: Option<Sight>,
    ) -> Result<Option<Vec<u8>>> {
        enum Met {
            Key(Vec<u8>),
            Edge(Vec<u8>),
            End,
        }
        let pool = self.engine.pool();
        let mut edge: Option<Vec<u8>> = None;
        loop {
            self.go_on(SCAN)?;
            if let Some(sight) = sight {
                let here = match &edge {
                    Some(edge) if forward => Bound::Included(&edge[..]),
                    Some(edge) => Bound::Excluded(&edge[..]),
                    None => from.as_ref().map(|key| &key[..]),
                };
                match tree.dead.beyond(here, forward, sight) {
                    Some(Beyond::End) => return Ok(None),
                    Some(Beyond::Key(key)) => edge = Some(key),
                    None => {}
                }
            }
            let to = match (&edge, from, forward) {
                (Some(edge), _, true) => Seek::AtLeast(edge),
                (Some(edge), _, false) => Seek::Before(edge),
                (None, Bound::Unbounded, true) => Seek::First,
                (None, Bound::Unbounded, false) => Seek::Last,
                (None, Bound::Included(key), true) => Seek::AtLeast(key),
                (None, Bound::Excluded(key), true) => Seek::After(key),
                (None, Bound::Included(key), false) => Seek::AtMost(key),
                (None, Bound::Excluded(key), false) => Seek::Before(key),
            };
            let (leaf, leaf_rows, met) = pool.retry(|| {
                let page = to.leaf(&tree.at, pool)?;
                let node = Node::open(&page)?;
                let slot = to.slot(&node)?;
                let slot =
                    if sight.is_some() { self.pass_dead(tree, &node, slot, (forward, edge.is_some()))? } else { slot };
                let met = match (forward, slot) {
                    (true, _) if slot < node.count() => Met::Key(node.key(slot)?),
                    (true, _) => node.upper().map_or(Met::End, |upper| Met::Edge(upper.to_vec())),
                    (false, 0) if node.lower().is_empty() => Met::End,
                    (false, 0) => Met::Edge(node.lower().to_vec()),
                    (false, _) => Met::Key(node.key(slot - 1)?),
                };
                Ok((page.id(), node.count(), met))
            })?;
            if let Some((ahead, rows)) = &mut scan {
                if edge.is_some() {
                    ahead.came_to(pool, leaf);
                } else {
                    ahead.sought(leaf);
                }
                if let Met::Edge(next) = &met {
                    let rows = std::mem::take(*rows);
                    ahead.leave(pool, &tree.at, forward, next, rows, leaf_rows);
                }
            }
            match met {
                Met::Key(key) => return Ok(Some(key)),
                Met::End => return Ok(None),
                Met::Edge(next) => edge = Some(next),
            }
        }
    }

    /// The version of `key` that `reader` sees, as stored.
    pub(super) fn stored_version(
        &self,
        tree: &Arc<TreeState>,
        key: &[u8],
        reader: Reader<'_>,
    ) -> Result<Option<Stored>> {
        let engine = &*self.engine;
        engine.pool().retry(|| -> Result<_, Stop> {
            let leaf = tree.at.leaf_shared(engine.pool(), key)?;
            let node = Node::open(&leaf)?;
            let position = node.search(key)?;
            if !position.found {
                return Ok(None);
            }
            let entry: Entry<'_> = node.entry(position.slot)?;
            if !reader.sees_entry(&entry) {
                let image = super::version::Image::of(&entry);
                return engine.older_version(leaf, image, reader);
            }
            if entry.is_deleted() {
                return Ok(None);
            }
            Ok(Some(Stored::of(entry.flags, entry.value)?))
        })
    }
}
