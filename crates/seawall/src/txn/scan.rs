//! Going through a tree in key order, both ways.
//!
//! 1. A snapshot scan copies a leaf once, under its shared latch, and goes through the copy with no latch. What its view sees never
//!    changes, so the copy is as good as the leaf; only the transaction's own changes make it old, and those are counted.
//! 2. An entry that is not seen as it is in the copy is looked up in the live tree, where its older versions are reached under the latch.
//! 3. There are no sibling links: the next leaf is the one with the upper fence, the previous one lies below the lower fence. Splits and
//!    merges in between lose and repeat nothing, because the scan goes on by key.
//! 4. A locking scan reads the live tree row by row. It locks the interval up to the next key, looks again whether that is still the
//!    next key, and only then locks the row: from then on nothing can appear in the interval. It looks ahead where it crosses from
//!    leaf to leaf, as a snapshot scan does.

use super::locks::Mode;
use super::read::RowLock;
use super::transaction::{Isolation, LockWait, Txn, ViewRef};
use super::trees::TreeState;
use super::version::{Reader, Stored};
use super::views::View;
use crate::btree::{Cursor, Entry, LookAhead, Node, OVERFLOW, Seek};
use crate::error::{Error, Result, Stop};
use crate::format::TreeId;
use std::ops::Bound;
use std::sync::Arc;

/// What a scan locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanLock {
    /// Nothing: it reads a snapshot.
    None,
    /// The rows it comes to, and, unless the transaction is read committed, what lies between them.
    Rows(Mode),
}

/// Where a step that begins at `to` begins.
fn bound_of(to: Seek<'_>) -> Bound<Vec<u8>> {
    match to {
        Seek::First | Seek::Last => Bound::Unbounded,
        Seek::AtLeast(key) | Seek::AtMost(key) => Bound::Included(key.to_vec()),
        Seek::After(key) | Seek::Before(key) => Bound::Excluded(key.to_vec()),
    }
}

/// The value of the entry a scan stands on.
#[derive(Debug)]
enum Value {
    /// In the copy of the leaf, at the cursor.
    InLeaf,
    /// Elsewhere, and fetched when asked for.
    Stored(Stored),
    /// Fetched.
    Bytes(Vec<u8>),
}

/// A scan.
#[derive(Debug)]
pub struct Scan<'t> {
    txn: &'t Txn,
    tree: Arc<TreeState>,
    lock: ScanLock,
    wait: LockWait,
    view: ViewRef,
    /// Why it cannot be moved: its tree is not of this database, or the process is another.
    refused: Option<Box<Error>>,
    /// Where a locking scan ends: it locks nothing beyond.
    limit: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Where a snapshot scan is: on entries seen or not.
    cursor: Cursor,
    /// The transaction's changes when the scan last moved.
    changes: u64,
    on_entry: bool,
    /// After an error: from where to go on.
    lost: Option<Lost>,
    /// Where a locking scan stands.
    locked_key: Vec<u8>,
    /// Rows a locking scan came to since it last left a leaf.
    rows_in_leaf: usize,
    value: Value,
}

/// Where a step that failed is taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// Beyond the key.
    Beyond,
    /// At the key: its entry could not be read.
    At,
}

impl Txn {
    /// A scan of `tree`, which stands on nothing yet.
    pub fn scan(&self, tree: &Arc<TreeState>, lock: ScanLock) -> Scan<'_> {
        let implied = lock == ScanLock::None && self.options.isolation == Isolation::Serializable;
        let lock = if implied { ScanLock::Rows(Mode::Shared) } else { lock };
        let wait = match self.options.wait {
            // A plain read leaves nothing out.
            LockWait::SkipLocked if implied => LockWait::NoWait,
            wait => wait,
        };
        let refused = self.admit(tree).err().map(Box::new);
        let view = match lock {
            _ if refused.is_some() => ViewRef::New(View::of_nothing()),
            ScanLock::None => self.view(),
            ScanLock::Rows(_) => self.pin(),
        };
        Scan {
            txn: self,
            tree: tree.clone(),
            lock,
            wait,
            view,
            refused,
            limit: (Bound::Unbounded, Bound::Unbounded),
            cursor: Cursor::new(tree.at),
            changes: 0,
            on_entry: false,
            lost: None,
            locked_key: Vec::new(),
            rows_in_leaf: 0,
            value: Value::Bytes(Vec::new()),
        }
    }
}

impl<'t> Scan<'t> {
    /// Says that nothing outside these bounds will be asked for.
    pub fn within(mut self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Self {
        self.cursor.look_ahead().within(&start, &end);
        self.limit = (start, end);
        self
    }

    /// How it looks ahead.
    pub fn look_ahead(&mut self) -> &mut LookAhead {
        self.cursor.look_ahead()
    }

    /// Sees what the other sees.
    pub fn seeing(mut self, other: &Self) -> Self {
        self.view = other.view.clone();
        self
    }

    /// Does this about locks instead of what the transaction does.
    pub fn waiting(mut self, wait: LockWait) -> Self {
        self.wait = wait;
        self
    }

    fn admitted(&self) -> Result<()> {
        match &self.refused {
            Some(why) => Err((**why).clone()),
            None => self.txn.here(),
        }
    }

    /// The tree, and the opening that it is of.
    pub fn tree(&self) -> (TreeId, u64) {
        (self.tree.at.id, self.tree.owner)
    }

    /// Whether it stands on an entry.
    pub fn is_on_entry(&self) -> bool {
        self.on_entry
    }

    /// The key it stands on, or stood on last.
    pub fn key(&self) -> &[u8] {
        if self.lock == ScanLock::None { self.cursor.last_key() } else { &self.locked_key }
    }

    /// The value of the entry it stands on.
    ///
    /// # Errors
    /// [`Error::Usage`] when it stands on none; reading errors.
    pub fn value(&mut self) -> Result<&[u8]> {
        self.admitted()?;
        if !self.on_entry {
            return Err(Error::Usage("the cursor stands on no entry".into()));
        }
        if let Value::Stored(Stored::Overflow(reference)) = &self.value {
            // If it cannot be read now, it can be asked for again.
            self.value = Value::Bytes(self.txn.fetch(&self.tree, Stored::Overflow(*reference))?);
        }
        Ok(match &self.value {
            Value::InLeaf => self.cursor.entry()?.map_or(&[], |entry| entry.value),
            Value::Bytes(bytes) | Value::Stored(Stored::Inline(bytes)) => bytes,
            Value::Stored(Stored::Overflow(_)) => unreachable!("fetched above"),
        })
    }

    /// To the first entry.
    ///
    /// # Errors
    /// As [`Scan::seek`].
    pub fn seek_first(&mut self) -> Result<bool> {
        self.seek(Seek::First)
    }

    /// To an entry; whether there is one.
    ///
    /// # Errors
    /// Reading errors; lock errors when it locks; [`Error::TreeDropped`].
    pub fn seek(&mut self, to: Seek<'_>) -> Result<bool> {
        self.admitted()?;
        if self.lock != ScanLock::None {
            self.tree.usable(self.txn.id(), &self.view)?;
            self.rows_in_leaf = 0;
            self.cursor.look_ahead().before_seek(self.txn.engine.pool(), &self.tree.at, to);
        }
        self.go(to)
    }

    /// The same, as a step of a scan that is under way or its beginning.
    fn go(&mut self, to: Seek<'_>) -> Result<bool> {
        self.tree.usable(self.txn.id(), &self.view)?;
        (self.on_entry, self.lost) = (false, None);
        if let ScanLock::Rows(mode) = self.lock {
            return self.step_locked(mode, bound_of(to), to.is_forward());
        }
        self.changes = self.txn.changes;
        let there = self.cursor.seek(self.txn.engine.pool(), to)?;
        self.settle(there, to.is_forward())
    }

    /// To the next entry; whether there is one.
    ///
    /// # Errors
    /// As [`Scan::seek`].
    #[expect(clippy::should_implement_trait, reason = "its entries borrow from it")]
    pub fn next(&mut self) -> Result<bool> {
        self.step(true)
    }

    fn step(&mut self, forward: bool) -> Result<bool> {
        self.admitted()?;
        if !self.on_entry && self.lost.is_none() {
            return Ok(false);
        }
        let old = self.changes != self.txn.changes;
        let moved = if old || self.lock != ScanLock::None || self.lost.is_some() {
            let (key, lost) = (self.key().to_vec(), self.lost);
            let moved = self.go(match (lost, forward) {
                (Some(Lost::At), true) => Seek::AtLeast(&key),
                (Some(Lost::At), false) => Seek::AtMost(&key),
                (_, true) => Seek::After(&key),
                (_, false) => Seek::Before(&key),
            });
            if moved.is_err() && self.lost.is_none() {
                self.lost = lost;
            }
            moved
        } else {
            self.on_entry = false;
            let (cursor, pool) = (&mut self.cursor, self.txn.engine.pool());
            let there = if forward { cursor.next(pool) } else { cursor.prev(pool) };
            there.and_then(|there| self.settle(there, forward))
        };
        if moved.is_err() {
            // The next step tries again: a scan that ended here without a word would leave entries out.
            self.lost = self.lost.or(Some(Lost::Beyond));
        }
        moved
    }

    /// To the previous entry; whether there is one.
    ///
    /// # Errors
    /// As [`Scan::seek`].
    pub fn prev(&mut self) -> Result<bool> {
        self.step(false)
    }

    // --- by snapshot ---------------------------------------------------------------------------------------------------

    /// Stands on the cursor's entry, or the next one of which the reader sees a version.
    fn settle(&mut self, mut there: bool, forward: bool) -> Result<bool> {
        let pool = self.txn.engine.pool();
        while there {
            if self.take_if_seen()? {
                return Ok(true);
            }
            there = if forward { self.cursor.next(pool)? } else { self.cursor.prev(pool)? };
        }
        Ok(false)
    }

    /// Stands on the cursor's entry if the reader sees a version of it.
    fn take_if_seen(&mut self) -> Result<bool> {
        let reader = Reader { me: self.txn.id(), view: &self.view };
        let Some(entry) = self.cursor.entry()? else { return Ok(false) };
        if reader.sees_entry(&entry) {
            if entry.is_deleted() {
                return Ok(false);
            }
            self.value = match entry.flags & OVERFLOW {
                0 => Value::InLeaf,
                _ => Value::Stored(Stored::of(entry.flags, entry.value)?),
            };
        } else {
            match self.txn.stored_version(&self.tree, self.cursor.key(), reader) {
                Ok(Some(stored)) => self.value = Value::Stored(stored),
                Ok(None) => return Ok(false),
                Err(error) => {
                    self.lost = Some(Lost::At);
                    return Err(error);
                }
            }
        }
        self.on_entry = true;
        Ok(true)
    }

    // --- with locks ----------------------------------------------------------------------------------------------------

    fn step_locked(&mut self, mode: Mode, mut from: Bound<Vec<u8>>, forward: bool) -> Result<bool> {
        // Who skips rows does not ask that no others appear between them, and must not wait for those that lie between.
        let ranges = self.txn.options.isolation != Isolation::ReadCommitted && self.wait != LockWait::SkipLocked;
        loop {
            let ahead = Some((self.cursor.look_ahead(), &mut self.rows_in_leaf));
            let mut next = self.txn.neighbour_ahead(&self.tree, &from, forward, ahead)?;
            let limit = if forward { &self.limit.1 } else { &self.limit.0 };
            let beyond = next.as_ref().is_none_or(|key| is_beyond(key, limit, forward));
            if ranges {
                let far = match &next {
                    Some(key) if !beyond => Bound::Included(&key[..]),
                    _ => limit.as_ref().map(|key| &key[..]),
                };
                let near = from.as_ref().map(|key| &key[..]);
                let (low, high) = if forward { (near, far) } else { (far, near) };
                self.txn.lock_range(&self.tree, low, high, mode, self.wait)?;
                let again = self.txn.neighbour(&self.tree, &from, forward)?;
                if again != next {
                    continue;
                }
            }
            if beyond {
                return Ok(false);
            }
            self.rows_in_leaf += 1;
            let key = next.take().expect("it is not beyond");
            let how = if ranges { RowLock::InRange } else { RowLock::Point };
            match self.txn.lock_row_how(&self.tree, &key, mode, how, self.wait) {
                Ok(Some(value)) => {
                    self.value = Value::Bytes(value);
                    self.locked_key = key;
                    self.on_entry = true;
                    return Ok(true);
                }
                Ok(None) => {}
                Err(Error::LockTimeout { .. }) if self.wait == LockWait::SkipLocked => {}
                Err(error) => return Err(error),
            }
            from = Bound::Excluded(key);
        }
    }
}

fn is_beyond(key: &[u8], limit: &Bound<Vec<u8>>, forward: bool) -> bool {
    match limit {
        Bound::Unbounded => false,
        Bound::Included(limit) => {
            if forward {
                key > &limit[..]
            } else {
                key < &limit[..]
            }
        }
        Bound::Excluded(limit) => {
            if forward {
                key >= &limit[..]
            } else {
                key <= &limit[..]
            }
        }
    }
}

impl Txn {
    /// The key beyond `from` in the live tree, whatever its version. Read under the latch: no leaf is copied.
    pub(super) fn neighbour(&self, tree: &TreeState, from: &Bound<Vec<u8>>, forward: bool) -> Result<Option<Vec<u8>>> {
        self.neighbour_ahead(tree, from, forward, None)
    }

    /// The same for a scan, which looks ahead and has come to so many rows of its leaf.
    fn neighbour_ahead(
        &self,
        tree: &TreeState,
        from: &Bound<Vec<u8>>,
        forward: bool,
        mut scan: Option<(&mut LookAhead, &mut usize)>,
    ) -> Result<Option<Vec<u8>>> {
        enum Met {
            Key(Vec<u8>),
            Edge(Vec<u8>),
            End,
        }
        let pool = self.engine.pool();
        let mut edge: Option<Vec<u8>> = None;
        loop {
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
