//! Locks on single keys.
//!
//! 1. A key is known by a 64-bit hash of tree and key. Keys that share one share their lock: more is locked than asked for, never less. So even
//!    who holds a point exclusively asks whether anybody else holds it.
//! 2. Whoever is not yet a holder comes behind all that wait for what excludes it: no shared lock overtakes a waiting exclusive one. Who holds
//!    the point already and wants more goes ahead of those who hold nothing: they wait for it anyway.
//! 3. After every change of its holders or its queue a point is granted on, from the front, as far as it goes; nobody who could have it waits.
//! 4. A point that nobody holds and nobody waits for is not in the map.
//! 5. A holder goes before its owner ends only if it holds the point for one key ([`KeyMark`]), and that key needs it no longer.
//! 6. `entries` of a shard is at least the number of points in its map, and is raised before ranges are looked at on behalf of a new point: who adds a
//!    range and then finds `entries` zero has no point there to fear.

use super::hash_map::ByHash;
use super::owner::LockOwner;
use super::wait::{Place, Waiter};
use super::{Mode, cell::Outcome};
use crate::counted::Mutex;
use crate::format::TreeId;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Those who were granted and are to be woken once the shard is let go.
pub(super) type Wakes = SmallVec<[Arc<Waiter>; 4]>;

#[derive(Debug)]
struct Holder {
    owner: Arc<LockOwner>,
    mode: Mode,
    /// The key that it holds.
    mark: KeyMark,
    /// The statement of the owner whose locking read has taken it, and that alone: it may be given back in that statement. 0 otherwise.
    since: u32,
}

/// The hash of a key in a tree. XXH3 adds its seed to a constant and combines the sum with a short key by exclusive or, so that seeds near each other
/// give short keys of different trees the same hash. The tree's id is therefore multiplied by `factor`, an odd number that reaches all bits.
pub(super) fn hash(tree: TreeId, key: &[u8], factor: u64) -> u64 {
    xxh3_64_with_seed(key, u64::from(tree.0).wrapping_mul(factor))
}

/// A second hash, by which a holder knows its key: a point is given back for a key only if no other key with the same hash needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyMark(pub(super) u64);

impl KeyMark {
    /// Two keys or more: never given back before the end.
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

/// What [`Point::hold`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The owner is a holder now.
    New,
    /// It was one, and has more now.
    More,
    /// It had that already.
    Had,
}

impl Point {
    fn own(&self, owner: &LockOwner) -> Option<Mode> {
        self.holders.iter().find(|holder| holder.owner.serial == owner.serial).map(|holder| holder.mode)
    }

    /// Somebody for whom `owner` has to wait before it may have the point in `mode`.
    pub(super) fn blocker(&self, owner: &LockOwner, mode: Mode) -> Option<&Arc<LockOwner>> {
        let holder =
            self.holders.iter().find(|holder| holder.owner.serial != owner.serial && holder.mode.excludes(mode));
        if holder.is_some() || self.own(owner).is_some() {
            return holder.map(|holder| &holder.owner);
        }
        self.queue
            .iter()
            .find(|waiter| waiter.mode.excludes(mode) && waiter.cell.is_waiting())
            .map(|waiter| &waiter.owner)
    }

    /// Makes `owner` a holder, whoever else is one, for a locking read.
    pub(super) fn hold(&mut self, owner: &Arc<LockOwner>, mode: Mode, mark: KeyMark) -> Taken {
        self.hold_since(owner, mode, mark, owner.statement())
    }

    /// The same for good: it is not given back by [`Point::give_back_of`].
    pub(super) fn hold_for_good(&mut self, owner: &Arc<LockOwner>, mode: Mode, mark: KeyMark) -> Taken {
        self.hold_since(owner, mode, mark, 0)
    }

    fn hold_since(&mut self, owner: &Arc<LockOwner>, mode: Mode, mark: KeyMark, since: u32) -> Taken {
        match self.holders.iter_mut().find(|holder| holder.owner.serial == owner.serial) {
            Some(holder) => {
                if holder.mark != mark {
                    holder.mark = KeyMark::SEVERAL;
                }
                // It has a second use.
                holder.since = 0;
                if holder.mode >= mode {
                    return Taken::Had;
                }
                holder.mode = mode;
                Taken::More
            }
            None => {
                self.holders.push(Holder { owner: owner.clone(), mode, mark, since });
                // It may be waiting here for another key with the same hash, behind somebody who waits for it now.
                if let Some(at) = self.queue.iter().position(|waiter| waiter.owner.serial == owner.serial) {
                    if let Some(waiter) = self.queue.remove(at) {
                        self.enqueue(&waiter);
                    }
                }
                Taken::New
            }
        }
    }

    /// Makes exclusive what `owner` holds here, if it holds anything. Returns what it held.
    pub(super) fn raise(&mut self, owner: &LockOwner) -> Option<Mode> {
        let own = self.holders.iter_mut().find(|holder| holder.owner.serial == owner.serial)?;
        own.since = 0;
        Some(std::mem::replace(&mut own.mode, Mode::Exclusive))
    }

    /// Takes `owner` off the point if it holds it for this key alone.
    fn give_back(&mut self, owner: &LockOwner, mark: KeyMark) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.owner.serial != owner.serial || holder.mark != mark);
        self.holders.len() < before
    }

    /// What `owner` holds here, if anything, has one more use: it stays.
    pub(super) fn use_again(&mut self, owner: &LockOwner) {
        if let Some(own) = self.holders.iter_mut().find(|holder| holder.owner.serial == owner.serial) {
            own.since = 0;
        }
    }

    /// Whether `owner` holds the point already, as it was granted it a moment ago: its second look is no second use.
    pub(super) fn was_granted(&self, owner: &LockOwner, mode: Mode, mark: KeyMark) -> bool {
        let own = self.holders.iter().find(|holder| holder.owner.serial == owner.serial);
        own.is_some_and(|own| own.mode >= mode && own.mark == mark)
    }

    /// Takes `owner` off the point if a locking read of its statement has taken it, for this key alone, and nothing else has used it since.
    fn give_back_of(&mut self, owner: &LockOwner, mark: KeyMark) -> bool {
        let statement = owner.statement();
        let own = self.holders.iter().find(|holder| holder.owner.serial == owner.serial);
        own.is_some_and(|own| own.since == statement) && self.give_back(owner, mark)
    }

    /// Somebody waits here.
    pub(super) fn is_awaited(&self) -> bool {
        !self.queue.is_empty()
    }

    fn enqueue(&mut self, waiter: &Arc<Waiter>) {
        let upgrades = self.own(&waiter.owner).is_some();
        let ahead = |other: &Arc<Waiter>| !upgrades || self.own(&other.owner).is_some();
        let at = self.queue.iter().position(|other| !ahead(other)).unwrap_or(self.queue.len());
        if at < self.queue.len() {
            // Those behind it wait for it from now on, also those who wanted to share the point with it and waited for another.
            waiter.owner.contend();
        }
        self.queue.insert(at, waiter.clone());
    }

    /// Grants from the front of the queue.
    fn grant(&mut self, wakes: &mut Wakes) {
        while let Some(first) = self.queue.front() {
            let blocked = || {
                self.holders
                    .iter()
                    .any(|holder| holder.owner.serial != first.owner.serial && holder.mode.excludes(first.mode))
            };
            if first.cell.is_waiting() && blocked() {
                return;
            }
            let Some(first) = self.queue.pop_front() else { return };
            // Who was doomed or timed out in between is gone for good.
            if first.cell.settle(Outcome::Granted) {
                self.hold(&first.owner, first.mode, KeyMark::of(first.tree, &first.key));
                wakes.push(first);
            }
        }
    }

    /// For whom `waiter` waits, as far as a search for cycles needs it: those further ahead are found through those nearer.
    fn blockers(&self, waiter: &Arc<Waiter>, into: &mut Vec<Arc<LockOwner>>) {
        let Some(at) = self.queue.iter().position(|one| Arc::ptr_eq(one, waiter)) else { return };
        for other in self.queue.iter().take(at).rev() {
            if other.mode.excludes(waiter.mode) && other.cell.is_waiting() {
                into.push(other.owner.clone());
                if other.mode == Mode::Exclusive {
                    // It waits for everything before it. What it holds itself is between it and us, and it is in `into`.
                    return;
                }
            }
        }
        let holders = self.holders.iter().filter(|holder| holder.owner.serial != waiter.owner.serial);
        into.extend(holders.filter(|holder| holder.mode.excludes(waiter.mode)).map(|holder| holder.owner.clone()));
    }
}

pub(super) type PointMap = HashMap<u64, Point, BuildHasherDefault<ByHash>>;

/// One of the parts of the table that threads do not share.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) entries: AtomicUsize,
    pub(super) map: Mutex<PointMap>,
}

impl Shard {
    /// No lock is held here, nor waited for.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.load(Ordering::SeqCst) == 0
    }

    /// Runs `change` on the point (made if need be), grants on, drops the point when it is empty, and keeps count.
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
        // Bits that the maps inside do not depend on alone.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// Takes `owner` off a point.
    pub(super) fn release(&self, owner: &LockOwner, hash: u64) {
        self.shard(hash).change(hash, |point| point.holders.retain(|holder| holder.owner.serial != owner.serial));
    }

    /// Takes `owner` off a point that is covered by its range by now, unless somebody waits there: who waits for this owner must not be
    /// granted before it ends; and unless it holds the point for several keys, of which one may be another tree's. Says whether it did.
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

    /// Whether `owner` holds a point.
    pub(super) fn holds(&self, owner: &LockOwner, hash: u64) -> bool {
        let shard = self.shard(hash);
        !shard.is_empty() && shard.map.lock().get(&hash).is_some_and(|point| point.own(owner).is_some())
    }

    /// Takes `owner` off a point that it holds for one key, which needs the lock no longer. If the lock `stays_if_awaited` and another owner waits
    /// for it, nothing is done. Says whether it was given back.
    pub(super) fn give_back(&self, owner: &LockOwner, hash: u64, mark: KeyMark, stays_if_awaited: bool) -> bool {
        self.shard(hash).change(hash, |point| !(stays_if_awaited && point.is_awaited()) && point.give_back(owner, mark))
    }

    /// Takes `owner` off a point that a locking read of its statement has newly taken. Says whether it was given back.
    pub(super) fn give_back_of(&self, owner: &LockOwner, hash: u64, mark: KeyMark) -> bool {
        self.shard(hash).change(hash, |point| point.give_back_of(owner, mark))
    }

    /// Puts `waiter` in the queue of its point if it has to wait there. Says whether it has.
    pub(super) fn enqueue(&self, hash: u64, waiter: &Arc<Waiter>) -> bool {
        self.shard(hash).change(hash, |point| {
            let blocked = point.blocker(&waiter.owner, waiter.mode).is_some();
            if blocked {
                point.enqueue(waiter);
            }
            blocked
        })
    }

    /// Takes a waiter that gave up out of its queue.
    pub(super) fn dequeue(&self, hash: u64, waiter: &Arc<Waiter>) {
        self.shard(hash).change(hash, |point| point.queue.retain(|one| !Arc::ptr_eq(one, waiter)));
    }

    pub(super) fn blockers(&self, waiter: &Arc<Waiter>, into: &mut Vec<Arc<LockOwner>>) {
        let Place::Point { hash } = waiter.place else { return };
        let map = self.shard(hash).map.lock();
        if let Some(point) = map.get(&hash) {
            point.blockers(waiter, into);
        }
    }

    /// How many points are locked.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.map.lock().len()).sum()
    }

    /// Everybody in a waiter's way, with no short cut.
    #[cfg(test)]
    pub(super) fn all_blockers(&self, waiter: &Arc<Waiter>) -> Vec<u64> {
        let Place::Point { hash } = waiter.place else { return Vec::new() };
        let map = self.shard(hash).map.lock();
        let Some(point) = map.get(&hash) else { return Vec::new() };
        let Some(at) = point.queue.iter().position(|one| Arc::ptr_eq(one, waiter)) else { return Vec::new() };
        let holders =
            point.holders.iter().filter(|holder| holder.mode.excludes(waiter.mode)).map(|holder| &holder.owner);
        let ahead =
            point.queue.iter().take(at).filter(|other| other.mode.excludes(waiter.mode) && other.cell.is_waiting());
        let all = holders.chain(ahead.map(|other| &other.owner)).map(|owner| owner.serial);
        all.filter(|&serial| serial != waiter.owner.serial).collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(Shard::is_empty)
    }
}
