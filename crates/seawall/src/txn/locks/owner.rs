//! Lock owners, and the lists to find them.
//!
//! 1. One thread at a time calls the table for an owner. Other threads access the owner for three purposes only: to
//!    lock a row on its behalf (`convert`), which is refused once the owner has begun to release (`HeldLocks::ended`,
//!    under its mutex); to make it the victim of a deadlock while it waits; and to read `used`.
//! 2. `used` has every tree in which the owner has, or has just asked for, a point or a change. An owner
//!    enters a tree *before* it checks the tree for ranges. A range over a whole tree is entered *before* its
//!    owner checks for users of the tree. So one of the two sees the other. All of these are sequentially
//!    consistent.
//! 3. An owner is in a list before its first entry in `used`: in the list of writers if it has an id by then,
//!    otherwise in the other. It is in the list of writers before a page bears its id. The owner's serial
//!    number selects the shard, so that owners of different threads rarely share one. A search for a writer
//!    by its id visits the shards that have writers.
//! 4. Most owners never hold a lock here: `phase` says so without the mutex of `held`. It changes from
//!    [`UNUSED`] to [`USED`] with the mutex locked, to [`ENDED`] without it.
//! 5. `contended` is never false while another owner waits for this one, directly or because of a lock that
//!    grew. It may stay true without a waiter.
//! 6. `decided` is set once, after the owner's last request. `follows` grows only while the owner is not decided, and
//!    only by owners that are: so it leads to no circle. It is emptied by the owner's own thread alone, when all in it
//!    have left the active set.

use super::{Mode, hash_map::ByHash};
use crate::counted::{Mutex, Padded, thread_number};
use crate::format::{Lsn, TreeId, TxnId};
use crate::log::Durability;
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

const USED_SLOTS: usize = 6;

/// Nothing was ever held.
const UNUSED: u8 = 0;
/// [`HeldLocks`] has what is held.
const USED: u8 = 1;
/// Releasing began before anything was held.
const ENDED: u8 = 2;

/// [`LockOwner::decided`] of an owner that has left the active set, but has not released its locks yet.
const VISIBLE: u64 = u64::MAX;

/// What a commit in the log waits for, before other transactions may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// The end of the commit in the log.
    pub end: Lsn,
    /// Others take over its locks if this is `Written` or `Flushed`; at `Deferred` it does not wait long.
    pub level: Durability,
}

impl Decided {
    /// Of a level above `Deferred`. Not 0, and below [`VISIBLE`].
    fn to_bits(self) -> u64 {
        self.end.0 << 1 | u64::from(self.level == Durability::Flushed)
    }

    fn from_bits(bits: u64) -> Option<Self> {
        let level = if bits & 1 == 1 { Durability::Flushed } else { Durability::Written };
        (![0, VISIBLE].contains(&bits)).then_some(Self { end: Lsn(bits >> 1), level })
    }

    /// What includes both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { end: self.end.max(other.end), level: self.level.max(other.level) }
    }
}

/// One transaction, as the lock table knows it. [`super::LockTable::release_all`], which must be called,
/// releases all its locks.
#[derive(Debug)]
pub struct LockOwner {
    pub(super) serial: u64,
    /// The caller's number for it, for reports.
    tag: AtomicU64,
    /// Counts statements: identifies the statement that took a lock.
    statement: AtomicU32,
    txn: AtomicU64,
    weight: AtomicU64,
    doomed: AtomicBool,
    contended: AtomicBool,
    listed: AtomicBool,
    /// Its points never become a range.
    points_only: AtomicBool,
    /// Whether `held` has granted keys, or had.
    was_granted: AtomicBool,
    /// See [`LockOwner::gave_back`].
    gave_back: AtomicBool,
    /// What its commit waits for ([`Decided`]), from when others may take over its locks; 0 before, and [`VISIBLE`]
    /// once it has left the active set.
    decided: AtomicU64,
    /// It waits for the end of owners that have decided, and does not take over their locks.
    patient: AtomicBool,
    /// Whether `follows` may have entries.
    is_follower: AtomicBool,
    /// The owners whose locks it has taken over.
    follows: Mutex<Vec<Arc<LockOwner>>>,
    /// How many points it has, in all trees. Written with `held` locked.
    points: AtomicUsize,
    used: [AtomicU32; USED_SLOTS],
    used_more: Mutex<Vec<TreeId>>,
    phase: AtomicU8,
    held: Mutex<HeldLocks>,
}

/// What an owner has to release.
#[derive(Debug, Default)]
pub(super) struct HeldLocks {
    /// Releasing has begun: nothing may be added.
    pub(super) ended: bool,
    pub(super) trees: Vec<TreePoints>,
    /// Points become a range when they exceed both this and the table's limit.
    pub(super) limit: usize,
    /// Trees with ranges of this owner.
    pub(super) ranged: Vec<TreeId>,
    /// Keys that waits behind the ranges of others have granted, as ranges of one key.
    pub(super) granted: Vec<GrantedKey>,
}

/// A key that a wait in a tree's queue has granted, as a range.
#[derive(Debug)]
pub(super) struct GrantedKey {
    pub(super) tree: TreeId,
    pub(super) key: Vec<u8>,
    pub(super) mode: Mode,
    /// The statement that waited for it; 0 once another call has needed it.
    pub(super) since: u32,
}

/// The points of one owner in one tree.
#[derive(Debug)]
pub(super) struct TreePoints {
    pub(super) tree: TreeId,
    /// Their hashes.
    pub(super) hashes: HashSet<u64, BuildHasherDefault<ByHash>>,
    /// The lowest and highest key of each mode since points last became a range, or since the tree had no
    /// points. Not kept for points that never become a range.
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
            // Reuses the allocation: a scan moves one end with every row.
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

impl HeldLocks {
    /// Enters a point; `true` if it is new. Keeps the ends only if points may `grow` into a range.
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

    /// Removes a point; `true` if it was there.
    pub(super) fn remove(&mut self, tree: TreeId, hash: u64) -> bool {
        let Some(points) = self.trees.iter_mut().find(|points| points.tree == tree) else { return false };
        let there = points.hashes.remove(&hash);
        if points.hashes.is_empty() {
            (points.shared, points.exclusive) = (None, None);
        }
        there
    }

    /// The key, if a wait has granted it as a range.
    pub(super) fn granted(&mut self, tree: TreeId, key: &[u8]) -> Option<(usize, &mut GrantedKey)> {
        self.granted.iter_mut().enumerate().find(|(_, one)| one.tree == tree && one.key == key)
    }

    /// Notes a range in the tree. It may cover granted keys, which are not given back then.
    pub(super) fn add_ranged(&mut self, tree: TreeId) {
        self.granted.retain(|one| one.tree != tree);
        self.note_ranged(tree);
    }

    fn note_ranged(&mut self, tree: TreeId) {
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
            was_granted: AtomicBool::new(false),
            gave_back: AtomicBool::new(false),
            decided: AtomicU64::new(0),
            patient: AtomicBool::new(false),
            is_follower: AtomicBool::new(false),
            follows: Mutex::default(),
            points: AtomicUsize::new(0),
            used: std::array::from_fn(|_| AtomicU32::new(0)),
            used_more: Mutex::default(),
            phase: AtomicU8::new(UNUSED),
            held: Mutex::default(),
        }
    }

    /// What it holds, to read or to add to.
    pub(super) fn held(&self) -> MutexGuard<'_, HeldLocks> {
        let mut held = self.held.lock();
        let phase = self.phase.compare_exchange(UNUSED, USED, Ordering::AcqRel, Ordering::Acquire);
        held.ended |= phase == Err(ENDED);
        held
    }

    /// Begins to release: takes what is held. Nothing more can be added.
    pub(super) fn take_held(&self) -> HeldLocks {
        if self.phase.compare_exchange(UNUSED, ENDED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return HeldLocks::default();
        }
        std::mem::replace(&mut *self.held.lock(), HeldLocks { ended: true, ..HeldLocks::default() })
    }

    /// Its serial number: no other owner of this table has or had it.
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

    /// Sets the caller's number for it.
    pub fn set_tag(&self, tag: u64) {
        self.tag.store(tag, Ordering::Relaxed);
    }

    /// Begins another statement: locks taken from now on belong to it.
    pub fn next_statement(&self) {
        // Only its own thread calls this.
        let next = self.statement().checked_add(1).unwrap_or(1);
        self.statement.store(next, Ordering::Relaxed);
    }

    /// The number of its statement, not 0.
    pub(super) fn statement(&self) -> u32 {
        self.statement.load(Ordering::Relaxed)
    }

    /// Counts changes made: the victim of a deadlock is the owner with the least.
    pub fn add_weight(&self, changes: u64) {
        self.weight.fetch_add(changes, Ordering::Relaxed);
    }

    /// Enters a key that a wait has granted it as a range.
    pub(super) fn add_granted(&self, tree: TreeId, key: &[u8], mode: Mode) {
        self.was_granted.store(true, Ordering::Relaxed);
        let since = self.statement();
        let mut held = self.held();
        held.note_ranged(tree);
        match held.granted(tree, key) {
            Some((_, one)) => one.mode = one.mode.max(mode),
            None => held.granted.push(GrantedKey { tree, key: key.to_vec(), mode, since }),
        }
    }

    /// Whether a wait has granted it any key as a range.
    pub(super) fn was_granted(&self) -> bool {
        self.was_granted.load(Ordering::Relaxed)
    }

    /// Keeps its points from becoming a range: when there are too many, further ones are refused.
    pub fn keep_points(&self) {
        self.points_only.store(true, Ordering::Relaxed);
    }

    /// Whether its points may become a range.
    pub(super) fn may_grow(&self) -> bool {
        !self.points_only.load(Ordering::Relaxed)
    }

    /// Whether it has given back the lock of a row that it wrote, or was of a stronger isolation level: a row whose
    /// change is undone may have been locked before, or may have to stay locked.
    #[must_use]
    pub fn gave_back(&self) -> bool {
        self.gave_back.load(Ordering::Relaxed)
    }

    /// Makes [`Self::gave_back`] true.
    pub fn note_gave_back(&self) {
        self.gave_back.store(true, Ordering::Relaxed);
    }

    /// How many points it has.
    pub(super) fn points(&self) -> usize {
        self.points.load(Ordering::Relaxed)
    }

    /// The caller has locked `held`.
    pub(super) fn set_points(&self, points: usize) {
        self.points.store(points, Ordering::Relaxed);
    }

    /// Changes made.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Whether it is the victim of a deadlock: it can only roll back.
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        self.doomed.load(Ordering::Relaxed)
    }

    pub(super) fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
    }

    /// Sequentially consistent with `decided`: of an owner that decides and another that begins to wait for it, one
    /// sees the other.
    pub(super) fn is_contended(&self) -> bool {
        self.contended.load(Ordering::SeqCst)
    }

    /// Notes that other owners may wait for it from now on.
    pub(super) fn contend(&self) {
        if !self.contended.load(Ordering::SeqCst) {
            self.contended.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that its commit is in the log.
    pub(super) fn decide(&self, decided: Decided) {
        self.decided.store(decided.to_bits(), Ordering::SeqCst);
    }

    /// Notes that it has left the active set: those that take over its locks need not follow it.
    pub fn set_visible(&self) {
        if self.decided().is_some() {
            self.decided.store(VISIBLE, Ordering::SeqCst);
        }
    }

    /// What its commit waits for, if others may take over its locks and have to follow it.
    #[must_use]
    pub fn decided(&self) -> Option<Decided> {
        Decided::from_bits(self.decided.load(Ordering::SeqCst))
    }

    /// Sets whether it waits for the end of owners that have decided.
    pub fn set_patient(&self, patient: bool) {
        self.patient.store(patient, Ordering::Relaxed);
    }

    pub(super) fn is_patient(&self) -> bool {
        self.patient.load(Ordering::Relaxed)
    }

    /// Whether `other` need not wait for it.
    pub(super) fn gives_way_to(&self, other: &Self) -> bool {
        match self.decided.load(Ordering::SeqCst) {
            0 => false,
            VISIBLE => true,
            _ => !other.is_patient(),
        }
    }

    /// Whether `other` need not wait for it. If so, `other` follows it from now on: it must not end before this owner
    /// has.
    pub(super) fn is_taken_over_by(self: &Arc<Self>, other: &Self) -> bool {
        match self.decided.load(Ordering::SeqCst) {
            0 => return false,
            VISIBLE => return true,
            _ if other.is_patient() => return false,
            _ => {}
        }
        let mut gone = Vec::new();
        let mut follows = other.follows.lock();
        if !follows.iter().any(|known| Arc::ptr_eq(known, self)) {
            if follows.len() >= 8 && follows.len().is_power_of_two() {
                // A long transaction does not keep all that it has met.
                let (ended, left) = follows.drain(..).partition(|known| known.decided().is_none());
                (gone, *follows) = (ended, left);
            }
            follows.push(self.clone());
            other.is_follower.store(true, Ordering::Relaxed);
        }
        drop(follows);
        drop(gone);
        true
    }

    /// Whether it has taken over a lock, since [`Self::unfollow`].
    #[must_use]
    pub fn is_follower(&self) -> bool {
        self.is_follower.load(Ordering::Relaxed)
    }

    /// What all commits that it follows wait for; `None` if they have ended.
    #[must_use]
    pub fn followed(&self) -> Option<Decided> {
        self.follows.lock().iter().filter_map(|owner| owner.decided()).reduce(Decided::and)
    }

    /// The owners whose locks it has taken over, except some that have ended. All have decided.
    #[must_use]
    pub fn follows(&self) -> Vec<Arc<Self>> {
        self.follows.lock().clone()
    }

    /// Returns those of `owners` that are decided, and all that they follow, in the order of the log. Each comes after
    /// those that it follows, also if it has logged nothing and waits for the same position as the last of them.
    #[must_use]
    pub fn with_followed(owners: &[Arc<Self>]) -> Vec<Arc<Self>> {
        // An owner is visited twice: between the two, those that it follows are put in the list.
        let mut stack: Vec<(Arc<Self>, Option<Lsn>)> = owners.iter().map(|owner| (owner.clone(), None)).collect();
        let (mut known, mut list) = (HashSet::new(), Vec::new());
        while let Some((owner, end)) = stack.pop() {
            if let Some(end) = end {
                list.push((end, owner));
                continue;
            }
            // One that has ended did so after those that it followed.
            let Some(decided) = owner.decided().filter(|_| known.insert(owner.serial())) else { continue };
            let follows = owner.follows();
            stack.push((owner, Some(decided.end)));
            stack.extend(follows.into_iter().map(|owner| (owner, None)));
        }
        // Stable: an owner waits for no earlier position than those that it follows.
        list.sort_by_key(|(end, _)| *end);
        list.into_iter().map(|(_, owner)| owner).collect()
    }

    /// Forgets the owners that it follows: they have ended. Only its own thread calls this, while it does not wait.
    pub fn unfollow(&self) {
        let gone = std::mem::take(&mut *self.follows.lock());
        self.is_follower.store(false, Ordering::Relaxed);
        drop(gone);
    }

    /// Whether it has, or has just asked for, a lock or a change in the tree.
    #[must_use]
    pub fn uses(&self, tree: TreeId) -> bool {
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

    /// Undoes the latest `use_tree`.
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
        let mut trees: SmallVec<[TreeId; USED_SLOTS]> = slots.collect();
        if trees.len() == USED_SLOTS {
            trees.extend(self.used_more.lock().iter().copied());
        }
        trees
    }
}

impl Drop for LockOwner {
    /// A failed log leaves chains of owners, each of which follows the next: they are freed in a loop.
    fn drop(&mut self) {
        if self.follows.get_mut().is_empty() {
            return;
        }
        let mut left = std::mem::take(self.follows.get_mut());
        while let Some(owner) = left.pop() {
            if let Some(mut owner) = Arc::into_inner(owner) {
                left.append(owner.follows.get_mut());
            }
        }
    }
}

type OwnerMap = HashMap<u64, Arc<LockOwner>, BuildHasherDefault<ByHash>>;

const SHARDS: usize = 64;
/// Stripes of the serial numbers, and how many numbers one takes at a time.
const STRIPES: usize = 16;
const BLOCK: u64 = 64;

#[derive(Debug, Default)]
struct Shard {
    /// The number of writers in it. Written with the mutex locked.
    writers: AtomicUsize,
    maps: Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    /// Owners that had a lock, or asked for one, before they had an id.
    by_serial: OwnerMap,
    by_txn: OwnerMap,
}

/// All owners that have locks, and those that write.
#[derive(Debug)]
pub(super) struct Owners {
    /// Where the next block of serial numbers begins.
    blocks: AtomicU64,
    /// Per stripe the next number of its block. A multiple of [`BLOCK`] means that the stripe has no number
    /// left.
    serials: [Padded<AtomicU64>; STRIPES],
    shards: Box<[Padded<Shard>]>,
}

impl Owners {
    pub(super) fn new() -> Self {
        Self {
            blocks: AtomicU64::new(BLOCK),
            serials: std::array::from_fn(|_| Padded::default()),
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
        }
    }

    /// A number that no other owner has. Later owners of a thread have higher ones; across threads the order
    /// is approximate.
    fn next_serial(&self) -> u64 {
        let mine = &self.serials[thread_number() % STRIPES].0;
        loop {
            let now = mine.load(Ordering::Relaxed);
            let serial = if now % BLOCK == 0 { self.blocks.fetch_add(BLOCK, Ordering::Relaxed) } else { now };
            if mine.compare_exchange(now, serial + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return serial;
            }
        }
    }

    fn shard(&self, owner: &LockOwner) -> &Shard {
        &self.shards[(owner.serial / BLOCK) as usize % SHARDS].0
    }

    pub(super) fn create(&self, tag: u64) -> Arc<LockOwner> {
        Arc::new(LockOwner::new(self.next_serial(), tag))
    }

    /// Puts a new owner in the place of one that has released everything. Reuses its memory if no other
    /// reference to it is left.
    pub(super) fn renew(&self, owner: &mut Arc<LockOwner>, tag: u64) {
        match Arc::get_mut(owner) {
            Some(owner) => *owner = LockOwner::new(self.next_serial(), tag),
            None => *owner = self.create(tag),
        }
    }

    pub(super) fn register(&self, owner: &Arc<LockOwner>, txn: TxnId) {
        owner.txn.store(txn.0, Ordering::Relaxed);
        let shard = self.shard(owner);
        let mut maps = shard.maps.lock();
        if maps.by_txn.insert(txn.0, owner.clone()).is_none() {
            shard.writers.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn writer(&self, txn: TxnId) -> Option<Arc<LockOwner>> {
        // The caller has seen the id in a page: it was registered before.
        let shards = self.shards.iter().filter(|shard| shard.0.writers.load(Ordering::SeqCst) > 0);
        shards.into_iter().find_map(|shard| shard.0.maps.lock().by_txn.get(&txn.0).cloned())
    }

    /// Enters that `owner` uses `tree`; `true` if it did not before.
    pub(super) fn use_tree(&self, owner: &Arc<LockOwner>, tree: TreeId) -> bool {
        if owner.uses(tree) {
            return false;
        }
        self.list(owner);
        owner.use_tree(tree);
        true
    }

    /// Enters an owner that has no id yet.
    pub(super) fn list(&self, owner: &Arc<LockOwner>) {
        let has_neither = owner.txn() == TxnId::NONE && !owner.listed.load(Ordering::Relaxed);
        if has_neither && !owner.listed.swap(true, Ordering::Relaxed) {
            self.shard(owner).maps.lock().by_serial.insert(owner.serial, owner.clone());
        }
    }

    /// All owners that write, or have or had locks or changes in a tree; some of them twice.
    pub(super) fn all(&self) -> Vec<Arc<LockOwner>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let maps = shard.0.maps.lock();
            all.extend(maps.by_serial.values().chain(maps.by_txn.values()).cloned());
        }
        all
    }

    /// Removes it from the lists; returns whether it was there.
    pub(super) fn delist(&self, owner: &LockOwner) -> bool {
        let (txn, listed) = (owner.txn(), owner.listed.load(Ordering::Relaxed));
        if txn == TxnId::NONE && !listed {
            return false;
        }
        let shard = self.shard(owner);
        let mut maps = shard.maps.lock();
        let wrote = txn != TxnId::NONE && maps.by_txn.remove(&txn.0).is_some();
        if wrote {
            shard.writers.fetch_sub(1, Ordering::SeqCst);
        }
        wrote | (listed && maps.by_serial.remove(&owner.serial).is_some())
    }

    /// Calls `each` with every owner except `but` that uses `tree`, until it returns `false`.
    pub(super) fn users(&self, tree: TreeId, but: &LockOwner, each: &mut dyn FnMut(&Arc<LockOwner>) -> bool) -> bool {
        self.shards.iter().all(|shard| {
            let maps = shard.0.maps.lock();
            let wrote = maps.by_txn.values().filter(|owner| !owner.listed.load(Ordering::Relaxed));
            let all = maps.by_serial.values().chain(wrote);
            all.filter(|owner| owner.serial != but.serial && owner.uses(tree)).all(&mut *each)
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| {
            let maps = shard.0.maps.lock();
            maps.by_serial.is_empty() && maps.by_txn.is_empty() && shard.0.writers.load(Ordering::SeqCst) == 0
        })
    }
}
