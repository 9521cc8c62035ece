//! Going through a tree in key order, both ways.
//!
//! 1. A snapshot scan copies a leaf once, under its shared latch, and goes through the copy with no latch. What its view sees never
//!    changes, so the copy is as good as the leaf; only the transaction's own changes make it old, and those are counted.
//! 2. An entry that is not seen as it is in the copy is looked up in the live tree, where its older versions are reached under the latch.
//! 3. There are no sibling links: the next leaf is the one with the upper fence, the previous one lies below the lower fence. Splits and
//!    merges in between lose and repeat nothing, because the scan goes on by key.
//! 4. A locking scan reads the live tree row by row. It locks the interval up to the next key, looks again whether that is still the
//!    next key, and only then locks the row: from then on nothing can appear in the interval.

use super::locks::Mode;
use super::read::RowLock;
use super::transaction::{Isolation, LockWait, Txn, ViewRef};
use super::trees::TreeState;
use super::version::{Reader, Stored};
use crate::btree::{Entry, Node, Tree as Btree};
use crate::buffer::{PageRead, Pool};
use crate::error::{Error, Result, Stop};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// What a scan locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanLock {
    /// Nothing: it reads a snapshot.
    None,
    /// The rows it comes to, and, unless the transaction is read committed, what lies between them.
    Rows(Mode),
}

/// Where to begin, or to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek<'k> {
    /// The first entry.
    First,
    /// The last entry.
    Last,
    /// The first whose key is not less.
    AtLeast(&'k [u8]),
    /// The first whose key is greater.
    After(&'k [u8]),
    /// The last whose key is not greater.
    AtMost(&'k [u8]),
    /// The last whose key is less.
    Before(&'k [u8]),
}

impl Seek<'_> {
    fn is_forward(&self) -> bool {
        matches!(self, Self::First | Self::AtLeast(_) | Self::After(_))
    }

    /// The leaf it lies in.
    fn leaf<'p>(&self, tree: &Btree, pool: &'p Pool) -> Result<PageRead<'p>, Stop> {
        match *self {
            // Nothing is before the empty key: the first leaf says so.
            Self::First | Self::Before([]) => tree.leaf_shared(pool, &[]),
            Self::Last => tree.leaf_last(pool),
            Self::AtLeast(key) | Self::After(key) | Self::AtMost(key) => tree.leaf_shared(pool, key),
            Self::Before(key) => tree.leaf_below(pool, key),
        }
    }

    /// Where in that leaf: the first slot to look at going forward, or the one after the first to look at going backward.
    fn slot(&self, node: &Node<'_>) -> Result<usize> {
        Ok(match *self {
            Self::First => 0,
            Self::Last => node.count(),
            Self::AtLeast(key) | Self::Before(key) => node.search(key)?.slot,
            Self::After(key) | Self::AtMost(key) => {
                let found = node.search(key)?;
                found.slot + usize::from(found.found)
            }
        })
    }

    /// Where a step that begins here begins, and whether it goes forward.
    fn bound(&self) -> (Bound<Vec<u8>>, bool) {
        let bound = match self {
            Self::First | Self::Last => Bound::Unbounded,
            Self::AtLeast(key) | Self::AtMost(key) => Bound::Included(key.to_vec()),
            Self::After(key) | Self::Before(key) => Bound::Excluded(key.to_vec()),
        };
        (bound, self.is_forward())
    }
}

/// The value of the entry a scan stands on.
#[derive(Debug)]
enum Value {
    /// In the copy of the leaf.
    InLeaf(Range<usize>),
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
    /// Where a locking scan ends: it locks nothing beyond.
    limit: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    leaf: Vec<u8>,
    slot: usize,
    /// The transaction's changes when the leaf was copied.
    changes: u64,
    on_entry: bool,
    /// After an error: from where to go on.
    lost: Option<Lost>,
    key: Vec<u8>,
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
        Scan {
            txn: self,
            tree: tree.clone(),
            lock,
            wait,
            view: self.view(),
            limit: (Bound::Unbounded, Bound::Unbounded),
            leaf: Vec::new(),
            slot: 0,
            changes: 0,
            on_entry: false,
            lost: None,
            key: Vec::new(),
            value: Value::Bytes(Vec::new()),
        }
    }
}

impl<'t> Scan<'t> {
    /// Says that nothing outside these bounds will be asked for.
    pub fn within(mut self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Self {
        self.limit = (start, end);
        self
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

    /// Whether it stands on an entry.
    pub fn is_on_entry(&self) -> bool {
        self.on_entry
    }

    /// The key it stands on, or stood on last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value of the entry it stands on.
    ///
    /// # Errors
    /// [`Error::Usage`] when it stands on none; reading errors.
    pub fn value(&mut self) -> Result<&[u8]> {
        if !self.on_entry {
            return Err(Error::Usage("the cursor stands on no entry".into()));
        }
        if let Value::Stored(Stored::Overflow(reference)) = &self.value {
            // If it cannot be read now, it can be asked for again.
            self.value = Value::Bytes(self.txn.fetch(&self.tree, Stored::Overflow(*reference))?);
        }
        Ok(match &self.value {
            Value::InLeaf(range) => &self.leaf[range.clone()],
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
        self.tree.usable(self.txn.id(), &self.view)?;
        (self.on_entry, self.lost) = (false, None);
        if let ScanLock::Rows(mode) = self.lock {
            let (bound, forward) = to.bound();
            return self.step_locked(mode, bound, forward);
        }
        self.position(to)?;
        if to.is_forward() { self.forward() } else { self.backward() }
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
        if !self.on_entry && self.lost.is_none() {
            return Ok(false);
        }
        let old = self.changes != self.txn.changes;
        let moved = if old || self.lock != ScanLock::None || self.lost.is_some() {
            let (key, lost) = (std::mem::take(&mut self.key), self.lost);
            let moved = self.seek(match (lost, forward) {
                (Some(Lost::At), true) => Seek::AtLeast(&key),
                (Some(Lost::At), false) => Seek::AtMost(&key),
                (_, true) => Seek::After(&key),
                (_, false) => Seek::Before(&key),
            });
            if moved.is_err() && self.lost.is_none() {
                (self.key, self.lost) = (key, lost);
            }
            moved
        } else if forward {
            self.slot += 1;
            self.forward()
        } else {
            self.backward()
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

    /// Copies the leaf that `to` lies in. Afterwards `slot` is the first to look at going forward, or the one after the first to look at going
    /// backward.
    fn position(&mut self, to: Seek<'_>) -> Result<()> {
        let engine = self.txn.engine.clone();
        self.changes = self.txn.changes;
        let (tree, leaf) = (&self.tree.at, &mut self.leaf);
        engine.pool().retry(|| {
            let page = to.leaf(tree, engine.pool())?;
            leaf.clear();
            leaf.extend_from_slice(&page);
            Ok(())
        })?;
        self.slot = to.slot(&Node::open(&self.leaf)?)?;
        Ok(())
    }

    fn forward(&mut self) -> Result<bool> {
        self.on_entry = false;
        loop {
            let node = Node::open(&self.leaf)?;
            if self.slot < node.count() {
                if self.take_if_seen()? {
                    return Ok(true);
                }
                self.slot += 1;
                continue;
            }
            let Some(upper) = node.upper().map(<[u8]>::to_vec) else { return Ok(false) };
            self.position(Seek::AtLeast(&upper))?;
        }
    }

    /// Looks at the slots before `slot`.
    fn backward(&mut self) -> Result<bool> {
        self.on_entry = false;
        loop {
            if self.slot > 0 {
                self.slot -= 1;
                if self.take_if_seen()? {
                    return Ok(true);
                }
                continue;
            }
            let lower = Node::open(&self.leaf)?.lower().to_vec();
            if lower.is_empty() {
                return Ok(false);
            }
            self.position(Seek::Before(&lower))?;
        }
    }

    /// Stands on the entry of `slot` if the reader sees a version of it.
    fn take_if_seen(&mut self) -> Result<bool> {
        let reader = Reader { me: self.txn.id(), view: &self.view };
        let node = Node::open(&self.leaf)?;
        let entry = node.entry(self.slot)?;
        if reader.sees_entry(&entry) {
            if entry.is_deleted() {
                return Ok(false);
            }
            self.value = if entry.overflow().map_err(|e| node.damaged(e.0))?.is_some() {
                Value::Stored(Stored::of(entry.flags, entry.value)?)
            } else {
                // The value is the end of the payload, which lies in the copy.
                let start = entry.value.as_ptr() as usize - self.leaf.as_ptr() as usize;
                Value::InLeaf(start..start + entry.value.len())
            };
            node.key_into(self.slot, &mut self.key)?;
        } else {
            node.key_into(self.slot, &mut self.key)?;
            match self.txn.stored_version(&self.tree, &self.key, reader) {
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

    /// To an entry of the live tree, whatever its version; only its key can be asked for.
    pub(super) fn seek_raw(&mut self, to: Seek<'_>) -> Result<bool> {
        let (from, forward) = to.bound();
        self.on_entry = false;
        let found = self.neighbour(&from, forward)?;
        let there = found.is_some();
        self.key = found.unwrap_or_default();
        Ok(there)
    }

    // --- with locks ----------------------------------------------------------------------------------------------------

    /// The key beyond `from` in the live tree, whatever its version. Read under the latch: no leaf is copied.
    fn neighbour(&self, from: &Bound<Vec<u8>>, forward: bool) -> Result<Option<Vec<u8>>> {
        enum Met {
            Key(Vec<u8>),
            Edge(Vec<u8>),
            End,
        }
        let pool = self.txn.engine.pool();
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
            let met = pool.retry(|| {
                let page = to.leaf(&self.tree.at, pool)?;
                let node = Node::open(&page)?;
                let slot = to.slot(&node)?;
                Ok(match (forward, slot) {
                    (true, _) if slot < node.count() => Met::Key(node.key(slot)?),
                    (true, _) => node.upper().map_or(Met::End, |upper| Met::Edge(upper.to_vec())),
                    (false, 0) if node.lower().is_empty() => Met::End,
                    (false, 0) => Met::Edge(node.lower().to_vec()),
                    (false, _) => Met::Key(node.key(slot - 1)?),
                })
            })?;
            match met {
                Met::Key(key) => return Ok(Some(key)),
                Met::End => return Ok(None),
                Met::Edge(next) => edge = Some(next),
            }
        }
    }

    fn step_locked(&mut self, mode: Mode, mut from: Bound<Vec<u8>>, forward: bool) -> Result<bool> {
        // Who skips rows does not ask that no others appear between them, and must not wait for those that lie between.
        let ranges = self.txn.options.isolation != Isolation::ReadCommitted && self.wait != LockWait::SkipLocked;
        loop {
            let mut next = self.neighbour(&from, forward)?;
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
                let again = self.neighbour(&from, forward)?;
                if again != next {
                    continue;
                }
            }
            if beyond {
                return Ok(false);
            }
            let key = next.take().expect("it is not beyond");
            let how = if ranges { RowLock::InRange } else { RowLock::Point };
            match self.txn.lock_row_how(&self.tree, &key, mode, how, self.wait) {
                Ok(Some(value)) => {
                    self.value = Value::Bytes(value);
                    self.key = key;
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
