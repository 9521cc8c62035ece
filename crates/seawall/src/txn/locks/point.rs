//! Locks on single keys.
//!
//! 1. A key is identified by a 64-bit hash of tree and key. Keys with the same hash share one lock: more is
//!    locked than asked for, never less. So even an exclusive holder checks for other holders.
//! 2. An owner that is not yet a holder queues behind every waiter whose mode excludes its own: no shared
//!    lock overtakes a waiting exclusive one. A holder that wants a stronger mode goes ahead of the waiters
//!    that hold nothing: they wait for it anyway.
//! 3. After every change of its holders or its queue a point grants its waiters from the front, as far as it
//!    can: no waiter that could be granted stays in the queue.
//! 4. A point without holders and waiters is not in the map.
//! 5. A holder is removed before its owner ends only if it holds the point for one key ([`KeyMark`]), and
//!    that key no longer needs it.
//! 6. `entries` of a shard is at least the number of points in its map, and is raised before the ranges are
//!    checked for a new point: a thread that adds a range and then reads zero from `entries` need not check
//!    the shard's points.

use super::hash_map::ByHash;
use super::owner::LockOwner;
use super::wait::{WaitQueue, Waiter};
use super::{Mode, cell::Outcome};
use crate::counted::Mutex;
use crate::format::TreeId;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Granted waiters, to be woken once the shard is unlocked.
pub(super) type Wakes = SmallVec<[Arc<Waiter>; 4]>;

#[derive(Debug)]
struct Holder {
    owner: Arc<LockOwner>,
    mode: Mode,
    /// The key that it is held for.
    mark: KeyMark,
    /// The statement of the owner whose locking read took the point, if nothing else has used it since: that
    /// statement may give it back. 0 otherwise.
    since: u32,
}

/// The hash of a key in a tree. XXH3 adds its seed to a constant and combines the sum with a short key by
/// exclusive or, so that seeds near each other give short keys of different trees the same hash. The tree's
/// id is therefore multiplied by `factor`, an odd number that reaches all bits.
pub(super) fn hash(tree: TreeId, key: &[u8], factor: u64) -> u64 {
    xxh3_64_with_seed(key, u64::from(tree.0).wrapping_mul(factor))
}

/// A second hash, which identifies the key of a holder: a point is given back for a key only if no other key
/// with the same hash needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyMark(pub(super) u64);

impl KeyMark {
    /// Two keys or more: never given back before the owner ends.
    const SEVERAL: Self = Self(0);

    pub(super) fn of(tree: TreeId, key: &[u8]) -> Self {
        Self(hash(tree, key, 0xD1B5_4A32_D192_ED03).max(1))
    }
}

/// One locked key.
#[derive(Debug, Default)]
pub(super) struct Point {
    holders: SmallVec<[Holder; 2]>,
    queue: VecDeque<Arc<Waiter>>,
}

/// The result of [`Point::hold`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The owner is a holder now.
    New,
    /// It was one, and has a stronger mode now.
    More,
    /// It had that mode already.
    Had,
}

impl Point {
    fn own(&self, owner: &LockOwner) -> Option<Mode> {
        self.holders.iter().find(|holder| holder.owner.serial == owner.serial).map(|holder| holder.mode)
    }

    /// An owner that `owner` has to wait for before it can have the point in `mode`.
    pub(super) fn blocker(&self, owner: &LockOwner, mode: Mode) -> Option<&Arc<LockOwner>> {
        let excludes = |holder: &&Holder| holder.owner.serial != owner.serial && holder.mode.excludes(mode);
        let holder = self.holders.iter().filter(excludes).find(|holder| !holder.owner.is_taken_over_by(owner));
        if holder.is_some() || self.own(owner).is_some() {
            return holder.map(|holder| &holder.owner);
        }
        self.queue
            .iter()
            .find(|waiter| waiter.mode.excludes(mode) && waiter.cell.is_waiting())
            .map(|waiter| &waiter.owner)
    }

    /// Makes `owner` a holder for a locking read. Does not check the other holders.
    pub(super) fn hold(&mut self, owner: &Arc<LockOwner>, mode: Mode, mark: KeyMark) -> Taken {
        self.hold_since(owner, mode, mark, owner.statement())
    }

    /// Like [`Point::hold`], but [`Point::give_back_of`] does not remove the holder.
    pub(super) fn hold_for_good(&mut self, owner: &Arc<LockOwner>, mode: Mode, mark: KeyMark) -> Taken {
        self.hold_since(owner, mode, mark, 0)
    }

    fn hold_since(&mut self, owner: &Arc<LockOwner>, mode: Mode, mark: KeyMark, since: u32) -> Taken {
        match self.holders.iter_mut().find(|holder| holder.owner.serial == owner.serial) {
            Some(holder) => {
                if holder.mark != mark {
                    holder.mark = KeyMark::SEVERAL;
                }
                // The point has a second use.
                holder.since = 0;
                if holder.mode >= mode {
                    return Taken::Had;
                }
                holder.mode = mode;
                self.contend(owner);
                Taken::More
            }
            None => {
                self.holders.push(Holder { owner: owner.clone(), mode, mark, since });
                // The owner may wait here for another key with the same hash, behind a waiter that now waits
                // for it.
                if let Some(at) = self.queue.iter().position(|waiter| waiter.owner.serial == owner.serial) {
                    if let Some(waiter) = self.queue.remove(at) {
                        self.enqueue(&waiter);
                    }
                }
                Taken::New
            }
        }
    }

    /// Makes what `owner` holds here exclusive, if it holds anything. Returns the mode it held.
    pub(super) fn raise(&mut self, owner: &LockOwner) -> Option<Mode> {
        let own = self.holders.iter_mut().find(|holder| holder.owner.serial == owner.serial)?;
        own.since = 0;
        let had = std::mem::replace(&mut own.mode, Mode::Exclusive);
        self.contend(owner);
        Some(had)
    }

    /// Called when the lock of a holder has become stronger: a patient waiter that could share the point with it waits
    /// for it from now on.
    fn contend(&self, owner: &LockOwner) {
        if !self.queue.is_empty() {
            owner.contend();
        }
    }

    /// Removes `owner` from the holders if it holds the point for this key alone.
    fn give_back(&mut self, owner: &LockOwner, mark: KeyMark) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.owner.serial != owner.serial || holder.mark != mark);
        self.holders.len() < before
    }

    /// Marks what `owner` holds here, if anything, as used once more: it is not given back.
    pub(super) fn use_again(&mut self, owner: &LockOwner) {
        if let Some(own) = self.holders.iter_mut().find(|holder| holder.owner.serial == owner.serial) {
            own.since = 0;
        }
    }

    /// Whether `owner` already holds the point, because its wait was granted: asking again is not a second
    /// use.
    pub(super) fn was_granted(&self, owner: &LockOwner, mode: Mode, mark: KeyMark) -> bool {
        let own = self.holders.iter().find(|holder| holder.owner.serial == owner.serial);
        own.is_some_and(|own| own.mode >= mode && own.mark == mark)
    }

    /// Removes `owner` from the holders if a locking read of its current statement took the point, for this
    /// key alone, and nothing else has used it since.
    fn give_back_of(&mut self, owner: &LockOwner, mark: KeyMark) -> bool {
        let statement = owner.statement();
        let own = self.holders.iter().find(|holder| holder.owner.serial == owner.serial);
        own.is_some_and(|own| own.since == statement) && self.give_back(owner, mark)
    }

    /// Whether an owner waits here.
    pub(super) fn is_awaited(&self) -> bool {
        !self.queue.is_empty()
    }

    fn enqueue(&mut self, waiter: &Arc<Waiter>) {
        let upgrades = self.own(&waiter.owner).is_some();
        let ahead = |other: &Arc<Waiter>| !upgrades || self.own(&other.owner).is_some();
        let at = self.queue.iter().position(|other| !ahead(other)).unwrap_or(self.queue.len());
        if at < self.queue.len() {
            // From now on the waiters behind it wait for it, including those that could share the point with
            // it and waited for another owner.
            waiter.owner.contend();
        }
        self.queue.insert(at, waiter.clone());
    }

    /// Grants from the front of the queue.
    fn grant(&mut self, wakes: &mut Wakes) {
        // Shared locks may overtake a patient owner that waits for one, too.
        let mut passed = 0;
        while let Some(next) = self.queue.get(passed) {
            let excludes =
                |holder: &&Holder| holder.owner.serial != next.owner.serial && holder.mode.excludes(next.mode);
            let mut others = self.holders.iter().filter(excludes);
            let overtakes = passed > 0 && next.mode == Mode::Exclusive;
            if next.cell.is_waiting() && (overtakes || others.any(|holder| !holder.owner.is_taken_over_by(&next.owner)))
            {
                if next.mode == Mode::Exclusive || !next.owner.is_patient() {
                    return;
                }
                passed += 1;
                continue;
            }
            let Some(next) = self.queue.remove(passed) else { return };
            // A waiter that already has another answer (doomed, timed out, interrupted) is only removed.
            if next.cell.settle(Outcome::Granted) {
                self.hold(&next.owner, next.mode, KeyMark::of(next.tree, &next.key));
                wakes.push(next);
            }
        }
    }

    /// The owners that `waiter` waits for, as far as a search for cycles needs them: all holders, and the nearest
    /// waiters, through which those further ahead are found.
    fn blockers(&self, waiter: &Arc<Waiter>, into: &mut Vec<Arc<LockOwner>>) {
        let Some(at) = self.queue.iter().position(|one| Arc::ptr_eq(one, waiter)) else { return };
        let holders = self.holders.iter().filter(|holder| holder.owner.serial != waiter.owner.serial);
        let holders = holders.filter(|holder| holder.mode.excludes(waiter.mode));
        into.extend(holders.map(|holder| holder.owner.clone()).filter(|owner| !owner.gives_way_to(&waiter.owner)));
        for other in self.queue.iter().take(at).rev() {
            if other.mode.excludes(waiter.mode) && other.cell.is_waiting() {
                into.push(other.owner.clone());
                if other.mode == Mode::Exclusive {
                    // It waits for everything ahead of it.
                    return;
                }
            }
        }
    }
}

pub(super) type PointMap = HashMap<u64, Point, BuildHasherDefault<ByHash>>;

/// A shard of the points, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) entries: AtomicUsize,
    pub(super) map: Mutex<PointMap>,
}

impl Shard {
    /// No lock is held or waited for in this shard.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.load(Ordering::SeqCst) == 0
    }

    /// Runs `change` on the point (created if needed), grants its waiters, removes the point from the map if
    /// it is empty, and keeps count.
    pub(super) fn change<T>(&self, hash: u64, change: impl FnOnce(&mut Point) -> T) -> T {
        let mut wakes = Wakes::new();
        let mut map = self.map.lock();
        self.entries.fetch_add(1, Ordering::SeqCst);
        let before = map.len();
        let point = map.entry(hash).or_default();
        let answer = change(point);
        point.grant(&mut wakes);
        if point.holders.is_empty() && point.queue.is_empty() {
            map.remove(&hash);
        }
        let surplus = before + 1 - map.len();
        self.entries.fetch_sub(surplus, Ordering::SeqCst);
        drop(map);
        for waiter in wakes {
            waiter.cell.wake();
        }
        answer
    }
}

const SHARDS: usize = 64;

/// All points.
#[derive(Debug)]
pub(super) struct Points {
    shards: Box<[Shard]>,
}

impl Points {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    pub(super) fn shard(&self, hash: u64) -> &Shard {
        // The position in a shard's map depends on other bits, too.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// Removes `owner` from the holders of a point.
    pub(super) fn release(&self, owner: &LockOwner, hash: u64) {
        self.shard(hash).change(hash, |point| point.holders.retain(|holder| holder.owner.serial != owner.serial));
    }

    /// Grants the waiters of a point that need not wait any more.
    pub(super) fn look_again(&self, hash: u64) {
        self.shard(hash).change(hash, |_| ());
    }

    /// Removes `owner` from the holders of a point that its range covers by now. Does nothing if an owner
    /// waits there: a waiter for this owner must not be granted before this owner ends. Does nothing if the
    /// point is held for several keys: one may be in another tree. Returns whether it removed the holder.
    pub(super) fn release_quiet(&self, owner: &LockOwner, hash: u64) -> bool {
        self.shard(hash).change(hash, |point| {
            let goes = |holder: &Holder| holder.owner.serial == owner.serial && holder.mark != KeyMark::SEVERAL;
            let before = point.holders.len();
            if point.queue.is_empty() {
                point.holders.retain(|holder| !goes(holder));
            }
            point.holders.len() < before
        })
    }

    /// Whether `owner` holds the point.
    pub(super) fn holds(&self, owner: &LockOwner, hash: u64) -> bool {
        let shard = self.shard(hash);
        !shard.is_empty() && shard.map.lock().get(&hash).is_some_and(|point| point.own(owner).is_some())
    }

    /// The mode in which `owner` holds the point.
    pub(super) fn mode_of(&self, owner: &LockOwner, hash: u64) -> Option<Mode> {
        self.shard(hash).map.lock().get(&hash)?.own(owner)
    }

    /// Removes `owner` from the holders of a point that it holds for one key, which no longer needs the lock.
    /// Does nothing if the lock `stays_if_awaited` and another owner waits for it. Returns whether the point
    /// was given back.
    pub(super) fn give_back(&self, owner: &LockOwner, hash: u64, mark: KeyMark, stays_if_awaited: bool) -> bool {
        self.shard(hash).change(hash, |point| !(stays_if_awaited && point.is_awaited()) && point.give_back(owner, mark))
    }

    /// Removes `owner` from the holders of a point that a locking read of its statement took new. Returns
    /// whether it did.
    pub(super) fn give_back_of(&self, owner: &LockOwner, hash: u64, mark: KeyMark) -> bool {
        self.shard(hash).change(hash, |point| point.give_back_of(owner, mark))
    }

    /// Puts `waiter` in the queue of its point if it has to wait there. Returns whether it has.
    pub(super) fn enqueue(&self, hash: u64, waiter: &Arc<Waiter>) -> bool {
        self.shard(hash).change(hash, |point| {
            let blocked = point.blocker(&waiter.owner, waiter.mode).is_some();
            if blocked {
                point.enqueue(waiter);
            }
            blocked
        })
    }

    /// Removes a waiter that gave up from its queue.
    pub(super) fn dequeue(&self, hash: u64, waiter: &Arc<Waiter>) {
        self.shard(hash).change(hash, |point| point.queue.retain(|one| !Arc::ptr_eq(one, waiter)));
    }

    pub(super) fn blockers(&self, waiter: &Arc<Waiter>, into: &mut Vec<Arc<LockOwner>>) {
        let WaitQueue::Point { hash } = waiter.queue else { return };
        let map = self.shard(hash).map.lock();
        if let Some(point) = map.get(&hash) {
            point.blockers(waiter, into);
        }
    }

    /// How many points are locked.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.map.lock().len()).sum()
    }

    /// Returns every owner that blocks a waiter, including those that [`Self::blockers`] leaves out: an owner further
    /// ahead still blocks it when a nearer one has given up.
    pub(super) fn all_blockers(&self, waiter: &Arc<Waiter>) -> Vec<Arc<LockOwner>> {
        let WaitQueue::Point { hash } = waiter.queue else { return Vec::new() };
        let map = self.shard(hash).map.lock();
        let Some(point) = map.get(&hash) else { return Vec::new() };
        let Some(at) = point.queue.iter().position(|one| Arc::ptr_eq(one, waiter)) else { return Vec::new() };
        let holders =
            point.holders.iter().filter(|holder| holder.mode.excludes(waiter.mode)).map(|holder| &holder.owner);
        let ahead =
            point.queue.iter().take(at).filter(|other| other.mode.excludes(waiter.mode) && other.cell.is_waiting());
        let all = holders.chain(ahead.map(|other| &other.owner));
        all.filter(|owner| owner.serial != waiter.owner.serial && !owner.gives_way_to(&waiter.owner)).cloned().collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(Shard::is_empty)
    }
}
