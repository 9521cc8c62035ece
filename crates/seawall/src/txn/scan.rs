//! Scans of a tree in key order, both ways.
//!
//! 1. A snapshot scan copies what it needs of a leaf, under its shared latch, and reads the copy with no
//!    latch. What its view sees never changes, so the copy stays valid. Only the transaction's own changes of
//!    the tree make it outdated; these are counted.
//! 2. An entry whose version in the copy is not visible is looked up in the live tree, where its older
//!    versions are reached under the latch.
//! 3. There are no sibling links: the scan finds the next leaf by the upper fence key, and the previous one
//!    by the lower fence key. Splits and merges in between make it neither skip nor repeat a row, because it
//!    continues by key.
//! 4. Rows that are dead for the scan are skipped together where a run of them is known ([`super::dead`]);
//!    otherwise the scan records the run. It takes its view before it reads the runs of dead rows, so it
//!    would not see rows put there later.
//! 5. A locking scan reads the live tree row by row. It locks the interval before the next key, checks that
//!    this still is the next key, and only then locks the row, with its key as part of the range: from then
//!    on no row can appear in the interval. While the scan waits for the row, the row's owner can still
//!    change it. Within a leaf the scan does all of this under one shared latch, which excludes insertions,
//!    so it need not check again (`scan/locked.rs`). The next key is the next that is not dead: a row whose
//!    deletion is committed counts as purged, and gets no lock of its own. The scan prefetches when it goes
//!    from leaf to leaf, as a snapshot scan does.

mod locked;

use super::dead::Sight;
use super::dead::{Beyond, For, stretch};
use super::locking::SCAN;
use super::locks::Mode;
use super::options::{Isolation, LockWait};
use super::transaction::{Txn, ViewRef};
use super::trees::TreeState;
use super::version::{Reader, Stored};
use super::views::View;
use super::write::Change;
use crate::btree::{Cursor, Entry, KeyBound, OVERFLOW, OverflowRef, ReadAhead, Seek};
use crate::error::{Error, Result};
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
    /// Elsewhere; fetched when requested.
    Stored(Stored),
    /// Fetched.
    Bytes(Vec<u8>),
}

impl Value {
    /// Takes the buffer of this value, for another value.
    fn take_memory(&mut self) -> Vec<u8> {
        match std::mem::replace(self, Self::InLeaf) {
            Self::Bytes(bytes) | Self::Stored(Stored::Inline(bytes)) => bytes,
            Self::InLeaf | Self::Stored(Stored::Overflow(_)) => Vec::new(),
        }
    }
}

/// The fewest consecutive dead rows whose run a snapshot scan records at a leaf's end, and a locking scan
/// anywhere.
pub(super) const DEAD_MIN: usize = 4;
/// Consecutive dead rows after which a snapshot scan records their run within a leaf.
const DEAD_ROWS: usize = 16;
/// Entries that it skips in one step between two checks for an interrupt.
const PASSED_ROWS: usize = 64;

/// A scan that borrows its transaction: shared, to read; or exclusively, also to delete the entry it stands on.
#[derive(Debug)]
pub struct Scan<T> {
    /// The lock that the caller requested, without what the isolation level adds.
    asked: ScanLock,
    txn: T,
    view: ViewRef,
    /// The error of [`Txn::admit`], which every call returns.
    refused: Option<Box<Error>>,
    state: ScanState,
}

/// The transaction that moves a scan, and its view. Both stay the same from one seek to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct By<'a> {
    pub(super) txn: &'a Txn,
    pub(super) view: &'a View,
}

/// The position and the settings of a scan: everything except the transaction.
#[derive(Debug)]
pub(super) struct ScanState {
    tree: Arc<TreeState>,
    lock: ScanLock,
    wait: LockWait,
    /// Where a locking scan ends: it locks nothing beyond.
    limit: (KeyBound, KeyBound),
    /// The position of a snapshot scan, also on entries that it does not see.
    cursor: Cursor,
    /// The transaction's count of changes of the tree when the scan last moved.
    changes: u64,
    /// Its count of undone changes at that time.
    undone: u64,
    on_entry: bool,
    /// After an error, or a change of its view: where to continue.
    lost: Option<Lost>,
    /// Set if its copy of the leaf is valid except for entries that it deleted itself. They are behind it as
    /// long as it continues in one direction.
    deleted: Option<Deleted>,
    /// It stands nowhere, because its last seek failed or it had none.
    adrift: bool,
    /// The key at which a locking scan stands.
    locked_key: Vec<u8>,
    /// The buffer for the next key.
    next_key: Vec<u8>,
    /// Whether it took a new lock on the row itself, not on a range.
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
        let wait = match wait.unwrap_or(txn.options.wait) {
            // A plain read skips no row.
            LockWait::SkipLocked if implied => LockWait::NoWait,
            wait => wait,
        };
        (lock, wait)
    }
}

impl<T: Deref<Target = Txn>> Scan<T> {
    fn new(txn: T, tree: &Arc<TreeState>, lock: ScanLock) -> Self {
        let asked = lock;
        let (lock, wait) = asked.of(&txn, None);
        let refused = txn.admit(tree).err().map(Box::new);
        let view = match lock {
            _ if refused.is_some() => ViewRef::New(View::of_nothing()),
            ScanLock::None => txn.view(),
            ScanLock::Rows(_) => txn.pin(),
        };
        Self { state: ScanState::new(tree, lock, wait), asked, view, refused, txn }
    }

    /// Limits the scan to these bounds: the caller requests nothing outside.
    pub fn within(mut self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Self {
        self.state.keep_to(start, end);
        self
    }

    /// Its read-ahead.
    pub fn read_ahead(&mut self) -> &mut ReadAhead {
        self.state.read_ahead()
    }

    /// Uses the view of `other`.
    pub fn seeing(mut self, other: &Self) -> Self {
        self.view = other.view.clone();
        self
    }

    /// Sets the policy for locks of others, instead of the transaction's.
    pub fn waiting(mut self, wait: LockWait) -> Self {
        self.state.wait = self.asked.of(&self.txn, Some(wait)).1;
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

    /// Whether it took a new lock on the row it stands on, not on a range.
    pub fn newly_locked(&self) -> bool {
        self.state.newly_locked()
    }

    /// The key it stands on. If it stands on none: any key that it has passed.
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
    /// Deletes the entry it stands on. Returns `false` if it is already gone, which can only happen to a scan
    /// without locks. Afterwards it stands on no entry, and continues from where the entry was.
    ///
    /// # Errors
    /// [`Error::Usage`] when it stands on none; those of [`Txn::change`], after which it still stands on the
    /// entry.
    pub fn delete(&mut self) -> Result<bool> {
        self.admitted()?;
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
            adrift: true,
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
        self.leave();
        self.adrift = true;
        self.keep_to(Bound::Unbounded, Bound::Unbounded);
    }

    pub(super) fn keep_to(&mut self, start: Bound<&[u8]>, end: Bound<&[u8]>) {
        self.cursor.read_ahead().keep_to(start, end);
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

    pub(super) fn read_ahead(&mut self) -> &mut ReadAhead {
        self.cursor.read_ahead()
    }

    pub(super) fn is_on_entry(&self) -> bool {
        self.on_entry
    }

    pub(super) fn newly_locked(&self) -> bool {
        self.on_entry && self.newly_locked && self.lock != ScanLock::None
    }

    /// Leaves its entry, and forgets where to continue.
    pub(super) fn leave(&mut self) {
        (self.on_entry, self.lost, self.deleted, self.adrift) = (false, None, None, false);
    }

    /// Called when its view changes: it drops what it has read, and continues by key.
    pub(super) fn is_outdated(&mut self) {
        if self.on_entry || self.deleted.is_some_and(|deleted| deleted.here) {
            self.lost = Some(Lost::Beyond);
        }
        (self.on_entry, self.deleted) = (false, None);
    }

    pub(super) fn key(&self) -> &[u8] {
        if self.lock == ScanLock::None { self.cursor.last_key() } else { &self.locked_key }
    }

    /// Whether the value needs no fetching. Only a long value that was not requested yet must be fetched.
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

    /// Like [`ScanState::entry`], for a value that needs no fetching.
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

    /// Checks that the pages of a long value are still its own: a rollback to a savepoint frees the long
    /// values of the changes it undoes.
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
                let why = "the transaction was rolled back to a savepoint or has released its snapshot, and the \
                    cursor's entry may no longer exist: seek again";
                Err(Error::Usage(why.into()))
            }
        }
    }

    pub(super) fn seek(&mut self, by: By<'_>, to: Seek<'_>) -> Result<bool> {
        self.leave();
        let sought = self.begin_at(by, to);
        self.adrift = sought.is_err() && !self.stands();
        sought
    }

    /// Whether it has a place from which it can step.
    fn stands(&self) -> bool {
        self.on_entry || self.lost.is_some() || self.deleted.is_some_and(|deleted| deleted.here)
    }

    fn begin_at(&mut self, by: By<'_>, to: Seek<'_>) -> Result<bool> {
        by.txn.go_on(SCAN)?;
        if self.lock != ScanLock::None {
            self.tree.usable(by.txn.id(), by.view)?;
            self.rows_in_leaf = 0;
            self.cursor.read_ahead().before_seek(by.txn.engine.pool(), &self.tree.at, to);
        }
        self.go(by, to)
    }

    /// Like [`ScanState::seek`], also for a later step of a scan.
    fn go(&mut self, by: By<'_>, to: Seek<'_>) -> Result<bool> {
        self.tree.usable(by.txn.id(), by.view)?;
        (self.on_entry, self.lost, self.deleted) = (false, None, None);
        self.undone = by.txn.undone;
        if let ScanLock::Rows(mode) = self.lock {
            self.prepare_to_lock(by)?;
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
        if !self.stands() {
            // Where nothing was found there is no next entry; where nothing could be read there may be one.
            let nowhere = "the cursor stands nowhere, because its last seek failed or it had none: seek first";
            return if self.adrift { Err(Error::Usage(nowhere.into())) } else { Ok(false) };
        }
        if let ScanLock::Rows(mode) = self.lock {
            if self.on_entry {
                self.prepare_to_lock(by)?;
                let from = std::mem::take(&mut self.locked_key);
                let moved = self.lock_in_leaf(by, mode, Bound::Excluded(&from), forward);
                // The two buffers are swapped, or stay.
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
            self.undone = by.txn.undone;
            if let Some(deleted) = &mut self.deleted {
                (deleted.here, deleted.forward) = (false, Some(forward));
            }
            self.step_in_copy(by, forward)
        };
        self.keeps_position(moved)
    }

    /// Goes on in the copy of the leaf, which is valid.
    fn step_in_copy(&mut self, by: By<'_>, forward: bool) -> Result<bool> {
        self.on_entry = false;
        let (cursor, pool) = (&mut self.cursor, by.txn.engine.pool());
        let there = if forward { cursor.next(pool) } else { cursor.prev(pool) };
        there.and_then(|there| self.settle(by, there, forward))
    }

    /// After an error the next step tries again: a scan that ended there would leave entries out.
    fn keeps_position<T>(&mut self, moved: Result<T>) -> Result<T> {
        if moved.is_err() {
            self.lost = self.lost.or(Some(Lost::Beyond));
        }
        moved
    }

    /// Steps, and calls `visit` with the key and the value of each entry, until it returns `false` or no entry is left
    /// up to `limit`. Returns how many entries it visited. After an error the next step comes to the entry that could
    /// not be visited.
    pub(super) fn step_while(
        &mut self,
        by: By<'_>,
        forward: bool,
        limit: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<usize> {
        let mut visited = 0;
        let mut there = self.step(by, forward)?;
        while there {
            if is_beyond(self.key(), limit, forward) {
                self.leave();
                break;
            }
            match self.entry(by) {
                Ok((key, value)) => {
                    visited += 1;
                    if !visit(key, value) {
                        break;
                    }
                }
                Err(error) => {
                    (self.on_entry, self.lost) = (false, Some(Lost::At));
                    return Err(error);
                }
            }
            there = if self.lock == ScanLock::None {
                by.txn.go_on(SCAN)?;
                // The transaction cannot have changed anything since the last step.
                let moved = self.step_in_copy(by, forward);
                self.keeps_position(moved)?
            } else {
                self.step(by, forward)?
            };
        }
        Ok(visited)
    }

    // --- by snapshot ---------------------------------------------------------------------------------------

    /// Where a seek to `to` continues, if it starts in a known run of dead rows.
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

    /// Stops at the cursor's entry, or at the next one of which the reader sees a version.
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

    /// Records the run of dead entries around the cursor's, if the leaf has not changed since it was copied.
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
        // Found by a descent, which reads nothing from disk here: if the leaf was moved, its former page
        // still looks like the copy.
        let Ok(leaf) = self.tree.at.leaf_shared(pool, self.cursor.key()) else { return Ok(()) };
        if page::number(&leaf) == page && page::lsn(&leaf) == lsn {
            if own {
                by.txn.note_dead_in(&self.tree);
            }
            let serves = if own { For::Only(me, view.serial()) } else { For::Views(view.serial()) };
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
