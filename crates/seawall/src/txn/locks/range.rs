//! Locks on intervals of keys, per tree.
//!
//! 1. A range protects what was read in it, and what was not found there: others may not write, insert or
//!    lock exclusively any key inside. An exclusive range also excludes shared locks. It is an interval of
//!    keys, not a gap between entries: no change of the entries changes it.
//! 2. A request waits for every earlier waiter that excludes it, except one that waits for the requesting
//!    owner: that waiter cannot go on before the owner does.
//! 3. After every change of a tree's holders or queue, and when a user of a tree ends (a range over the whole tree
//!    waits for it), all waiters that can be granted are granted, in order. Who waited here for one key is granted it
//!    as a range, so that no other owner takes the key before the write is done. It can be given back like a point
//!    ([`GrantedKey`](super::owner::GrantedKey)).
//! 4. The spans of one owner may grow over what others hold (points that became a range, ranges that were
//!    joined). Such growth blocks others from then on, but gives the owner nothing: the owner still requests
//!    each key.
//! 5. A tree without ranges and waiters is not in the map. `busy` of a shard is the number of its trees, and
//!    is raised before a new range is checked against anything else.

use super::hash_map::ByHash;
use super::owner::{LockOwner, Owners};
use super::point::Wakes;
use super::span::{KeySpan, Keys, Spans};
use super::wait::{WaitQueue, Waiter};
use super::{LockRequest, Mode, cell::Outcome};
use crate::counted::RwLock;
use crate::format::TreeId;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
struct Holder {
    owner: Arc<LockOwner>,
    shared: Spans,
    exclusive: Spans,
}

impl Holder {
    fn spans(&mut self, mode: Mode) -> &mut Spans {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }

    fn excludes(&self, keys: Keys<'_>, mode: Mode) -> bool {
        self.exclusive.meets(keys) || (mode == Mode::Exclusive && self.shared.meets(keys))
    }

    fn covers(&self, keys: Keys<'_>, mode: Mode) -> bool {
        self.exclusive.covers(keys) || (mode == Mode::Shared && self.shared.covers(keys))
    }
}

/// The ranges of one tree.
#[derive(Debug, Default)]
struct TreeRanges {
    holders: Vec<Holder>,
    queue: VecDeque<Arc<Waiter>>,
}

impl TreeRanges {
    fn holder(&mut self, owner: &Arc<LockOwner>) -> &mut Holder {
        let at = self.holders.iter().position(|holder| holder.owner.serial == owner.serial).unwrap_or_else(|| {
            let (shared, exclusive) = (Spans::default(), Spans::default());
            self.holders.push(Holder { owner: owner.clone(), shared, exclusive });
            self.holders.len() - 1
        });
        &mut self.holders[at]
    }

    fn add(&mut self, owner: &Arc<LockOwner>, span: &KeySpan, mode: Mode, range_max: usize) {
        let spans = self.holder(owner).spans(mode);
        spans.add(span);
        // An owner that keeps its points has only single keys here, for which it waited: no other keys may be
        // locked.
        if owner.may_grow() && spans.join_to(range_max) {
            // Others may already wait for keys between the joined spans: from now on they wait for this
            // owner.
            owner.contend();
        }
    }

    /// Calls `each` with every owner that `request` has to wait for: holders, the first `ahead` of the queue
    /// and, if `request` is for the whole tree, the tree's users. Stops when `each` returns `false`. Users of the
    /// tree are not taken over: the owner of a whole tree may read it by a view, which has to see their changes.
    fn blockers(
        &self,
        request: &LockRequest<'_>,
        ahead: usize,
        owners: &Owners,
        each: &mut dyn FnMut(&Arc<LockOwner>) -> bool,
    ) {
        let me = request.owner.serial;
        let mut own = None;
        for holder in &self.holders {
            if holder.owner.serial == me {
                own = Some(holder);
            } else if holder.excludes(request.keys, request.mode)
                && !holder.owner.is_taken_over_by(request.owner)
                && !each(&holder.owner)
            {
                return;
            }
        }
        for waiter in self.queue.iter().take(ahead) {
            if waiter.owner.serial == me || !waiter.cell.is_waiting() {
                continue;
            }
            let WaitQueue::Tree { span, .. } = &waiter.queue else { continue };
            let theirs = Keys::Span(span);
            let for_me = own.is_some_and(|own| own.excludes(theirs, waiter.mode))
                || (request.uses && waiter.mode == Mode::Exclusive && span.is_whole());
            if waiter.mode.excludes(request.mode) && request.keys.meets(span) && !for_me && !each(&waiter.owner) {
                return;
            }
        }
        if request.whole() {
            owners.users(request.tree, request.owner, each);
        }
    }

    fn first_blocker(&self, request: &LockRequest<'_>, ahead: usize, owners: &Owners) -> Option<Arc<LockOwner>> {
        let mut first = None;
        self.blockers(request, ahead, owners, &mut |owner| {
            first = Some(owner.clone());
            false
        });
        first
    }

    /// Grants every waiter that can be granted, in order.
    fn grant(&mut self, owners: &Owners, range_max: usize, wakes: &mut Wakes) {
        let mut at = 0;
        while let Some(waiter) = self.queue.get(at).cloned() {
            let request = waiter.request();
            if waiter.cell.is_waiting() && request.is_some_and(|one| self.first_blocker(&one, at, owners).is_some()) {
                at += 1;
                continue;
            }
            self.queue.remove(at);
            if let WaitQueue::Tree { span, .. } = &waiter.queue {
                if waiter.cell.settle(Outcome::Granted) {
                    self.add(&waiter.owner, span, waiter.mode, range_max);
                    wakes.push(waiter);
                }
            }
        }
    }
}

type TreeMap = HashMap<u64, TreeRanges, BuildHasherDefault<ByHash>>;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    busy: AtomicUsize,
    trees: RwLock<TreeMap>,
}

const SHARDS: usize = 64;

/// All ranges.
#[derive(Debug)]
pub(super) struct Ranges {
    shards: Box<[Shard]>,
    range_max: usize,
}

impl Ranges {
    pub(super) fn new(range_max: usize) -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect(), range_max }
    }

    fn shard(&self, tree: TreeId) -> &Shard {
        &self.shards[tree.0 as usize % SHARDS]
    }

    /// Whether no owner has or wants a range in this tree. May be false because of another tree of the shard.
    pub(super) fn is_quiet(&self, tree: TreeId) -> bool {
        self.shard(tree).busy.load(Ordering::SeqCst) == 0
    }

    /// Runs `change` on the tree, grants its waiters, removes the tree from the map if it is empty, and keeps
    /// count.
    fn change<T>(&self, tree: TreeId, owners: &Owners, change: impl FnOnce(&mut TreeRanges) -> T) -> T {
        let mut wakes = Wakes::new();
        let shard = self.shard(tree);
        let mut trees = shard.trees.write();
        shard.busy.fetch_add(1, Ordering::SeqCst);
        let before = trees.len();
        let key = u64::from(tree.0);
        let ranges = trees.entry(key).or_default();
        let answer = change(ranges);
        ranges.grant(owners, self.range_max, &mut wakes);
        if ranges.holders.is_empty() && ranges.queue.is_empty() {
            trees.remove(&key);
        }
        let surplus = before + 1 - trees.len();
        shard.busy.fetch_sub(surplus, Ordering::SeqCst);
        drop(trees);
        for waiter in wakes {
            waiter.cell.wake();
        }
        answer
    }

    /// Checks that no other owner blocks `request`; `Ok(true)` if a range of its owner already covers it.
    pub(super) fn check(&self, request: &LockRequest<'_>, owners: &Owners) -> Result<bool, Arc<LockOwner>> {
        if self.is_quiet(request.tree) {
            return Ok(false);
        }
        let trees = self.shard(request.tree).trees.read();
        let Some(ranges) = trees.get(&u64::from(request.tree.0)) else { return Ok(false) };
        match ranges.first_blocker(request, ranges.queue.len(), owners) {
            Some(blocker) => Err(blocker),
            None => Ok(ranges.holders.iter().any(|holder| {
                holder.owner.serial == request.owner.serial && holder.covers(request.keys, request.mode)
            })),
        }
    }

    /// Checks that [`Self::try_add`] would succeed.
    pub(super) fn check_new(&self, request: &LockRequest<'_>, owners: &Owners) -> Result<(), Arc<LockOwner>> {
        let trees = self.shard(request.tree).trees.read();
        let nothing = TreeRanges::default();
        let ranges = trees.get(&u64::from(request.tree.0)).unwrap_or(&nothing);
        ranges.first_blocker(request, ranges.queue.len(), owners).map_or(Ok(()), Err)
    }

    /// Adds a range, unless another owner blocks it.
    pub(super) fn try_add(&self, request: &LockRequest<'_>, owners: &Owners) -> Result<(), Arc<LockOwner>> {
        self.change(request.tree, owners, |ranges| match ranges.first_blocker(request, ranges.queue.len(), owners) {
            Some(blocker) => Err(blocker),
            None => {
                ranges.add(request.owner, &request.keys.to_span(), request.mode, self.range_max);
                Ok(())
            }
        })
    }

    /// Adds a range even if other owners block it (4).
    pub(super) fn add(&self, owner: &Arc<LockOwner>, tree: TreeId, span: &KeySpan, mode: Mode, owners: &Owners) {
        self.change(tree, owners, |ranges| {
            owner.contend();
            ranges.add(owner, span, mode, self.range_max);
        });
    }

    /// Removes a range of one key, unless it has grown into another. Returns whether it was there.
    pub(super) fn forget_key(
        &self,
        owner: &LockOwner,
        tree: TreeId,
        span: &KeySpan,
        mode: Mode,
        owners: &Owners,
    ) -> bool {
        self.change(tree, owners, |ranges| {
            let of_owner = |holder: &Holder| holder.owner.serial == owner.serial;
            let Some(at) = ranges.holders.iter().position(of_owner) else { return false };
            let holder = &mut ranges.holders[at];
            let removed = holder.spans(mode).remove(span);
            if holder.shared.len() + holder.exclusive.len() == 0 {
                ranges.holders.swap_remove(at);
            }
            removed
        })
    }

    /// Removes all ranges of `owner` from a tree.
    pub(super) fn release(&self, owner: &LockOwner, tree: TreeId, owners: &Owners) {
        self.change(tree, owners, |ranges| ranges.holders.retain(|holder| holder.owner.serial != owner.serial));
    }

    /// Grants waiters of the tree, after an owner has stopped using it.
    pub(super) fn look_again(&self, tree: TreeId, owners: &Owners) {
        if !self.is_quiet(tree) {
            self.change(tree, owners, |_| ());
        }
    }

    /// Puts `waiter` in the queue of its tree if it has to wait there. Returns whether it has.
    pub(super) fn enqueue(&self, waiter: &Arc<Waiter>, owners: &Owners) -> bool {
        self.change(waiter.tree, owners, |ranges| {
            let ahead = ranges.queue.len();
            let request = waiter.request();
            let blocked = request.is_some_and(|request| ranges.first_blocker(&request, ahead, owners).is_some());
            if blocked {
                ranges.queue.push_back(waiter.clone());
            }
            blocked
        })
    }

    /// Removes a waiter that gave up from its queue.
    pub(super) fn dequeue(&self, waiter: &Arc<Waiter>, owners: &Owners) {
        self.change(waiter.tree, owners, |ranges| ranges.queue.retain(|one| !Arc::ptr_eq(one, waiter)));
    }

    pub(super) fn blockers(&self, waiter: &Arc<Waiter>, owners: &Owners, into: &mut Vec<Arc<LockOwner>>) {
        let trees = self.shard(waiter.tree).trees.read();
        let Some(ranges) = trees.get(&u64::from(waiter.tree.0)) else { return };
        let Some(at) = ranges.queue.iter().position(|one| Arc::ptr_eq(one, waiter)) else { return };
        if let Some(request) = waiter.request() {
            ranges.blockers(&request, at, owners, &mut |owner| {
                into.push(owner.clone());
                true
            });
        }
    }

    /// The strongest mode in which `owner` has a range that meets the request.
    pub(super) fn mode_of(&self, owner: &LockOwner, request: &LockRequest<'_>) -> Option<Mode> {
        let trees = self.shard(request.tree).trees.read();
        let ranges = trees.get(&u64::from(request.tree.0))?;
        let held = ranges.holders.iter().find(|holder| holder.owner.serial == owner.serial)?;
        let meets = |spans: &Spans| spans.meets(request.keys);
        meets(&held.exclusive).then_some(Mode::Exclusive).or_else(|| meets(&held.shared).then_some(Mode::Shared))
    }

    /// How many ranges are held.
    pub(super) fn len(&self) -> usize {
        let of_holder = |holder: &Holder| holder.shared.len() + holder.exclusive.len();
        let of_tree = |tree: &TreeRanges| tree.holders.iter().map(of_holder).sum::<usize>();
        self.shards.iter().map(|shard| shard.trees.read().values().map(of_tree).sum::<usize>()).sum()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.busy.load(Ordering::SeqCst) == 0 && shard.trees.read().is_empty())
    }
}
