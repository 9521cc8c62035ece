//! Who holds locks, and where to find them.
//!
//! 1. One thread at a time calls the table for an owner. Others reach in only to lock a row on its behalf (`convert`), which `Held::ended` under
//!    its mutex refuses once the owner has begun to release; to doom it while it waits; and to read `used`.
//! 2. `used` has every tree in which the owner has, or has just asked for, a point or a change. A tree is entered *before* it is looked for
//!    ranges there, a range over a whole tree is entered *before* it looks for owners that use the tree: one of the two sees the other. All of
//!    these are sequentially consistent.
//! 3. An owner is in the list of owners before its first entry in `used`, and in the list of writers before a page bears its id.
//! 4. `contended` is never false while somebody waits for the owner, directly or because of a lock that grew. It may stay true for nothing.

use super::{Mode, hash_map::ByHash};
use crate::counted::Mutex;
use crate::format::{TreeId, TxnId};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

const USED_SLOTS: usize = 6;

/// One transaction, as the lock table knows it. All its locks go with [`super::LockTable::release_all`], which must be called.
#[derive(Debug)]
pub struct LockOwner {
    pub(super) serial: u64,
    /// The caller's, for reports.
    tag: AtomicU64,
    /// Counts statements: which one has taken a lock.
    statement: AtomicU32,
    txn: AtomicU64,
    weight: AtomicU64,
    doomed: AtomicBool,
    contended: AtomicBool,
    listed: AtomicBool,
    /// Its points never become a range.
    points_only: AtomicBool,
    /// It has given a point back because it wrote the row.
    gave_back: AtomicBool,
    /// How many points it has, in all trees. Written with `held` locked.
    points: AtomicUsize,
    used: [AtomicU32; USED_SLOTS],
    used_more: Mutex<Vec<TreeId>>,
    pub(super) held: Mutex<Held>,
}

/// What an owner has to give back.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Releasing has begun: nothing may be added.
    pub(super) ended: bool,
    pub(super) trees: SmallVec<[TreePoints; 2]>,
    /// Points become a range when there are more than this, and more than the table allows.
    pub(super) limit: usize,
    /// Trees with ranges of this owner.
    pub(super) ranged: SmallVec<[TreeId; 2]>,
}

/// The points of one owner in one tree.
#[derive(Debug)]
pub(super) struct TreePoints {
    pub(super) tree: TreeId,
    /// Their hashes.
    pub(super) hashes: HashSet<u64, BuildHasherDefault<ByHash>>,
    /// The lowest and highest key of each mode since points last became a range, or since there was none. Not kept for points that never do.
    pub(super) shared: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) exclusive: Option<(Vec<u8>, Vec<u8>)>,
}

impl TreePoints {
    fn cover(&mut self, key: &[u8], mode: Mode) {
        let ends = match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        };
        match ends {
            None => *ends = Some((key.to_vec(), key.to_vec())),
            // Into the room that is there: a scan moves one end with every row.
            Some((lo, _)) if key < lo.as_slice() => {
                lo.clear();
                lo.extend_from_slice(key);
            }
            Some((_, hi)) if key > hi.as_slice() => {
                hi.clear();
                hi.extend_from_slice(key);
            }
            Some(_) => {}
        }
    }
}

impl Held {
    /// Remembers a point. Only an owner whose points may `grow` into a range remembers where they lie.
    pub(super) fn add(&mut self, tree: TreeId, hash: u64, key: &[u8], mode: Mode, grow: bool) -> bool {
        let at = self.trees.iter().position(|points| points.tree == tree).unwrap_or_else(|| {
            self.trees.push(TreePoints { tree, hashes: HashSet::default(), shared: None, exclusive: None });
            self.trees.len() - 1
        });
        let points = &mut self.trees[at];
        if grow {
            points.cover(key, mode);
        }
        points.hashes.insert(hash)
    }

    /// Forgets a point.
    pub(super) fn remove(&mut self, tree: TreeId, hash: u64) -> bool {
        let Some(points) = self.trees.iter_mut().find(|points| points.tree == tree) else { return false };
        let there = points.hashes.remove(&hash);
        if points.hashes.is_empty() {
            (points.shared, points.exclusive) = (None, None);
        }
        there
    }

    pub(super) fn add_ranged(&mut self, tree: TreeId) {
        if !self.ranged.contains(&tree) {
            self.ranged.push(tree);
        }
    }
}

impl LockOwner {
    fn new(serial: u64, tag: u64) -> Self {
        Self {
            serial,
            tag: AtomicU64::new(tag),
            statement: AtomicU32::new(1),
            txn: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            doomed: AtomicBool::new(false),
            contended: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            points_only: AtomicBool::new(false),
            gave_back: AtomicBool::new(false),
            points: AtomicUsize::new(0),
            used: std::array::from_fn(|_| AtomicU32::new(0)),
            used_more: Mutex::default(),
            held: Mutex::default(),
        }
    }

    /// Its number: no other owner of this table has it, nor had.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Its transaction's id: [`TxnId::NONE`] before its first change.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        TxnId(self.txn.load(Ordering::Relaxed))
    }

    /// The caller's number for it.
    pub(super) fn tag(&self) -> u64 {
        self.tag.load(Ordering::Relaxed)
    }

    /// Gives it another number.
    pub fn set_tag(&self, tag: u64) {
        self.tag.store(tag, Ordering::Relaxed);
    }

    /// What its locks are taken for from now on is another statement.
    pub fn next_statement(&self) {
        // By its own thread alone.
        let next = self.statement().checked_add(1).unwrap_or(1);
        self.statement.store(next, Ordering::Relaxed);
    }

    /// The number of its statement, not 0.
    pub(super) fn statement(&self) -> u32 {
        self.statement.load(Ordering::Relaxed)
    }

    /// Counts changes made: of a cycle of waits the owner with the least has to give way.
    pub fn add_weight(&self, changes: u64) {
        self.weight.fetch_add(changes, Ordering::Relaxed);
    }

    /// Says that its points never become a range: it has to be told when they are too many.
    pub fn keep_points(&self) {
        self.points_only.store(true, Ordering::Relaxed);
    }

    /// Whether its points may become a range.
    pub(super) fn may_grow(&self) -> bool {
        !self.points_only.load(Ordering::Relaxed)
    }

    /// Whether it has given back the lock of a row that it wrote: a row whose change is taken back may have been locked before.
    #[must_use]
    pub fn gave_back(&self) -> bool {
        self.gave_back.load(Ordering::Relaxed)
    }

    pub(super) fn note_gave_back(&self) {
        self.gave_back.store(true, Ordering::Relaxed);
    }

    /// How many points it has.
    pub(super) fn points(&self) -> usize {
        self.points.load(Ordering::Relaxed)
    }

    /// With `held` locked.
    pub(super) fn set_points(&self, points: usize) {
        self.points.store(points, Ordering::Relaxed);
    }

    /// Changes made.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Whether it was chosen to give way: all that is left is to roll back.
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        self.doomed.load(Ordering::Relaxed)
    }

    pub(super) fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed)
    }

    /// Somebody may wait for it from now on.
    pub(super) fn contend(&self) {
        self.contended.store(true, Ordering::Relaxed);
    }

    pub(super) fn uses(&self, tree: TreeId) -> bool {
        for slot in &self.used {
            match slot.load(Ordering::SeqCst) {
                0 => return false,
                used if used == tree.0 => return true,
                _ => {}
            }
        }
        self.used_more.lock().contains(&tree)
    }

    fn use_tree(&self, tree: TreeId) {
        match self.used.iter().find(|slot| slot.load(Ordering::Relaxed) == 0) {
            Some(slot) => slot.store(tree.0, Ordering::SeqCst),
            None => self.used_more.lock().push(tree),
        }
    }

    /// Takes back the latest `use_tree`.
    pub(super) fn unuse_tree(&self, tree: TreeId) {
        let mut more = self.used_more.lock();
        if more.last() == Some(&tree) {
            more.pop();
            return;
        }
        drop(more);
        if let Some(slot) = self.used.iter().rev().find(|slot| slot.load(Ordering::Relaxed) != 0) {
            debug_assert_eq!(slot.load(Ordering::Relaxed), tree.0, "only the latest is taken back");
            slot.store(0, Ordering::SeqCst);
        }
    }

    pub(super) fn used_trees(&self) -> SmallVec<[TreeId; USED_SLOTS]> {
        let slots = self.used.iter().map(|slot| TreeId(slot.load(Ordering::Relaxed))).take_while(|tree| tree.0 != 0);
        slots.chain(self.used_more.lock().iter().copied()).collect()
    }
}

type OwnerMap = Mutex<HashMap<u64, Arc<LockOwner>, BuildHasherDefault<ByHash>>>;

const SHARDS: usize = 64;

/// All owners that have locks, by serial number; and those that write, by transaction id. Both numbers ascend: neighbours are in different shards.
#[derive(Debug)]
pub(super) struct Owners {
    next_serial: AtomicU64,
    by_serial: [OwnerMap; SHARDS],
    by_txn: [OwnerMap; SHARDS],
}

impl Owners {
    pub(super) fn new() -> Self {
        Self {
            next_serial: AtomicU64::new(1),
            by_serial: std::array::from_fn(|_| Mutex::default()),
            by_txn: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(super) fn create(&self, tag: u64) -> Arc<LockOwner> {
        Arc::new(LockOwner::new(self.next_serial.fetch_add(1, Ordering::Relaxed), tag))
    }

    /// The same in the place of one that has released everything, if nobody else knows that any more.
    pub(super) fn renew(&self, owner: &mut Arc<LockOwner>, tag: u64) {
        match Arc::get_mut(owner) {
            Some(owner) => *owner = LockOwner::new(self.next_serial.fetch_add(1, Ordering::Relaxed), tag),
            None => *owner = self.create(tag),
        }
    }

    pub(super) fn register(&self, owner: &Arc<LockOwner>, txn: TxnId) {
        owner.txn.store(txn.0, Ordering::Relaxed);
        self.by_txn[txn.0 as usize % SHARDS].lock().insert(txn.0, owner.clone());
    }

    pub(super) fn writer(&self, txn: TxnId) -> Option<Arc<LockOwner>> {
        self.by_txn[txn.0 as usize % SHARDS].lock().get(&txn.0).cloned()
    }

    /// Enters that `owner` uses `tree`; `true` when it did not before.
    pub(super) fn use_tree(&self, owner: &Arc<LockOwner>, tree: TreeId) -> bool {
        if owner.uses(tree) {
            return false;
        }
        if !owner.listed.swap(true, Ordering::Relaxed) {
            self.by_serial[owner.serial as usize % SHARDS].lock().insert(owner.serial, owner.clone());
        }
        owner.use_tree(tree);
        true
    }

    pub(super) fn forget_writer(&self, owner: &LockOwner) {
        let txn = owner.txn();
        if txn != TxnId::NONE {
            self.by_txn[txn.0 as usize % SHARDS].lock().remove(&txn.0);
        }
    }

    /// All that write, or have or had locks or changes in a tree; some of them twice.
    pub(super) fn all(&self) -> Vec<Arc<LockOwner>> {
        let lists = self.by_serial.iter().chain(&self.by_txn);
        lists.flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Takes it off the list of owners; says whether it was there.
    pub(super) fn delist(&self, owner: &LockOwner) -> bool {
        owner.listed.load(Ordering::Relaxed)
            && self.by_serial[owner.serial as usize % SHARDS].lock().remove(&owner.serial).is_some()
    }

    /// Calls `each` with every owner but `but` that uses `tree`, until it says stop (`false`).
    pub(super) fn users(&self, tree: TreeId, but: &LockOwner, each: &mut dyn FnMut(&Arc<LockOwner>) -> bool) -> bool {
        self.by_serial.iter().all(|shard| {
            let shard = shard.lock();
            shard.values().filter(|owner| owner.serial != but.serial && owner.uses(tree)).all(&mut *each)
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_serial.iter().chain(&self.by_txn).all(|shard| shard.lock().is_empty())
    }
}
