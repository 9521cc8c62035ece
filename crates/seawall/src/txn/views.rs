//! Read views: which transactions a read sees.
//!
//! 1. Ids are assigned in ascending order, each one once. A transaction is active from its begin (or restore)
//!    to its end (`views/ids.rs`, which takes no lock). An end takes the lock of the views only if it is the
//!    first after a snapshot was made, if a snapshot is being made, or if it ends the id at the horizon while
//!    there is a snapshot.
//! 2. A snapshot is `next` and the active ids of one moment. It sees `id` iff `id < next` and `id` is not
//!    among them. A begin does not change what it sees (the new id is not below its `next`), so one snapshot
//!    serves all views until the next *end*.
//! 3. `low` of a snapshot is its lowest active id, or `next`. Later snapshots never have a lower one: the
//!    lowest active id only rises.
//! 4. `live` holds the snapshots that may have views, in the order of their creation; the current one, if
//!    `fresh`, is its last. A snapshot whose only reference is this list has no view and, unless it is
//!    current, will never have one: views are made under the lock.
//! 5. `horizon` is the `low` of the oldest live snapshot or of now, as of some earlier moment. By (3) it
//!    never falls, so an outdated value is still safe: every view that exists or will be made sees every id
//!    below it.

mod ids;
#[cfg(test)]
mod model;
mod sync;

use crate::counted::RwLock;
use crate::format::TxnId;
use ids::{Ended, Ids};
use seawall_io::{Clock, Process};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The transactions that have an id and have not ended, and the views of them. Clones share it.
#[derive(Debug, Clone)]
pub struct ActiveSet {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ids: Ids,
    state: RwLock<State>,
    clock: Arc<dyn Clock>,
    /// In a process forked from this one a view holds back nothing, and the lock may be held by a thread that
    /// does not exist there.
    process: Process,
}

#[derive(Debug)]
struct State {
    live: VecDeque<Arc<Snapshot>>,
    /// The last of `live` is current: views may be made of it.
    fresh: bool,
    /// Snapshots made so far.
    made: u64,
    /// When `live` has this many snapshots, those without views are removed from its middle, too.
    sweep_at: usize,
}

/// The active set at one moment, for the views made of it.
#[derive(Debug)]
struct Snapshot {
    ids: Arc<[u64]>,
    low: u64,
    next: u64,
    /// Its number, in the order of creation.
    serial: u64,
    /// No new view will be made of it.
    stale: AtomicBool,
    /// The time since which it has always had a view, microseconds of the clock.
    since_us: AtomicU64,
    set: Weak<Shared>,
}

/// The transactions that one statement or transaction sees. Cheap to make and to clone; holds back purge
/// until dropped.
///
/// A view does not know its own transaction: a reader first checks whether the writer is itself.
#[derive(Debug, Clone)]
pub struct View {
    low: u64,
    next: u64,
    snapshot: Arc<Snapshot>,
}

/// What every view sees, including future ones. Stays true for ever, and does not hold back purge.
#[derive(Debug, Clone)]
pub struct OldestView {
    low: u64,
    next: u64,
    ids: Arc<[u64]>,
}

fn sees(low: u64, next: u64, ids: &[u64], id: u64) -> bool {
    if id < low {
        return true;
    }
    id < next && ids.binary_search(&id).is_err()
}

impl View {
    /// A view that sees nothing, made without access to the active set and without its lock.
    #[must_use]
    pub fn of_nothing() -> Self {
        let (ids, stale) = (Arc::from([]), AtomicBool::new(false));
        let snapshot =
            Snapshot { ids, low: 0, next: 0, serial: 0, stale, since_us: AtomicU64::new(0), set: Weak::new() };
        Self { low: 0, next: 0, snapshot: Arc::new(snapshot) }
    }

    /// Whether the view sees what `id` wrote. Every view of the active set sees [`TxnId::NONE`], the writer
    /// of what every view sees.
    #[inline]
    #[must_use]
    pub fn sees(&self, id: TxnId) -> bool {
        if id.0 < self.low {
            return true;
        }
        id.0 < self.next && self.snapshot.ids.binary_search(&id.0).is_err()
    }

    /// The first id it cannot see because it was not assigned yet.
    #[must_use]
    #[cfg(test)]
    pub fn next(&self) -> TxnId {
        TxnId(self.next)
    }

    /// The view sees every id below this one.
    #[must_use]
    #[cfg(test)]
    pub fn low(&self) -> TxnId {
        TxnId(self.low)
    }

    /// Of two views the one with the larger number sees all that the other sees.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.snapshot.serial
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Most views are not the last of an outdated snapshot, and their drop changes nothing. Two that are
        // dropped at once may each count the other as remaining: then the horizon moves at the next end, or
        // when purge asks.
        if Arc::strong_count(&self.snapshot) <= 2 && self.snapshot.stale.load(Ordering::Acquire) {
            // A snapshot above the horizon is not the oldest: its drop changes nothing either.
            let shared = self.snapshot.set.upgrade().filter(|shared| shared.ids.horizon() >= self.low);
            let shared = shared.filter(|shared| shared.process.is_current());
            if let Some(shared) = shared {
                let gone = shared.state.write().prune(Some(&self.snapshot), &shared.ids);
                // Freed with no lock held.
                drop(gone);
            }
        }
    }
}

impl OldestView {
    /// Whether every view, now and later, sees what `id` wrote.
    #[inline]
    #[must_use]
    pub fn sees(&self, id: TxnId) -> bool {
        sees(self.low, self.next, &self.ids, id.0)
    }

    /// Every view sees every id below this one.
    #[must_use]
    #[cfg(test)]
    pub fn low(&self) -> TxnId {
        TxnId(self.low)
    }

    /// Whether it sees exactly what `other` sees.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.low, self.next) == (other.low, other.next) && self.ids == other.ids
    }
}

/// Returns `next` and the active ids, in ascending order, of one moment. The caller holds the lock of the
/// views. Leaves the gate closed.
fn moment(ids: &Ids) -> (u64, SmallVec<[u64; 64]>) {
    let mut active = SmallVec::new();
    let next = ids.close(|id| active.push(id));
    active.sort_unstable();
    (next, active)
}

impl State {
    fn snapshot(&mut self, set: &Arc<Shared>, now_us: u64) -> Arc<Snapshot> {
        self.made += 1;
        let (next, active) = moment(&set.ids);
        let snapshot = Arc::new(Snapshot {
            serial: self.made,
            ids: active.as_slice().into(),
            low: active.first().copied().unwrap_or(next),
            next,
            stale: AtomicBool::new(false),
            since_us: AtomicU64::new(now_us),
            set: Arc::downgrade(set),
        });
        self.live.push_back(snapshot.clone());
        self.fresh = true;
        set.ids.open(true);
        if self.live.len() >= self.sweep_at {
            self.live.retain(|one| Arc::strong_count(one) > 1);
            self.sweep_at = (self.live.len() * 2).max(64);
        }
        snapshot
    }

    /// Removes snapshots without views (`leaving` is about to lose its last) from the old end, up to the
    /// first that has one; then raises the horizon. Returns one of those removed, for the caller to free
    /// without the lock.
    fn prune(&mut self, leaving: Option<&Arc<Snapshot>>, ids: &Ids) -> Option<Arc<Snapshot>> {
        let mut gone = None;
        while let Some(front) = self.live.front() {
            let others = if leaving.is_some_and(|leaving| Arc::ptr_eq(leaving, front)) { 2 } else { 1 };
            let current = self.fresh && self.live.len() == 1;
            if current || Arc::strong_count(front) > others {
                break;
            }
            gone = self.live.pop_front();
        }
        // The reads of the views that are gone happen before everything that follows from the higher horizon.
        fence(Ordering::Acquire);
        match self.live.front() {
            Some(oldest) => ids.raise_to(oldest.low),
            None => {
                ids.none_is_live();
                // No snapshot is made while the lock is held.
                ids.raise();
            }
        }
        gone
    }

    /// Stops making views of the newest snapshot.
    fn give_up_newest(&mut self, ids: &Ids) {
        if std::mem::take(&mut self.fresh) {
            ids.none_is_fresh();
            if let Some(current) = self.live.back() {
                current.stale.store(true, Ordering::Release);
            }
        }
    }
}

impl ActiveSet {
    /// An empty set, whose first id is 1.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State { live: VecDeque::new(), fresh: false, made: 0, sweep_at: 64 };
        Self {
            shared: Arc::new(Shared { ids: Ids::new(), state: RwLock::new(state), clock, process: Process::current() }),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.shared.clock.now().as_micros()).unwrap_or(u64::MAX)
    }

    /// Sets the state after a restart, before any other call: `next` is the first id that was never assigned,
    /// `unended` are the losers and the prepared transactions.
    pub fn restore(&self, next: TxnId, unended: &[TxnId]) {
        let mut state = self.shared.state.write();
        let mut active: Vec<u64> = unended.iter().map(|id| id.0).collect();
        active.sort_unstable();
        active.dedup();
        let next = next.0.max(active.last().map_or(1, |last| last + 1)).max(self.shared.ids.next());
        state.live.clear();
        state.fresh = false;
        self.shared.ids.restore(next, &active);
    }

    /// The next id, active from now on.
    #[must_use]
    pub fn begin(&self) -> TxnId {
        TxnId(self.shared.ids.begin())
    }

    /// Ends `id`, which is committed and durable at its level (but see `txn/prepared.rs`, 3), or completely
    /// undone: views made from now on see what it wrote. Ending it twice does nothing.
    pub fn end(&self, id: TxnId) {
        let Shared { ids, state, .. } = &*self.shared;
        let ended = ids.end(id.0);
        if ended == Ended::Done {
            return;
        }
        let mut state = state.write();
        if ended == Ended::Locked {
            // In this order: once an id is seen as ended, every view made afterwards sees it.
            state.give_up_newest(ids);
            ids.free(id.0);
        }
        let gone = state.prune(None, ids);
        drop(state);
        // Freed with no lock held.
        drop(gone);
    }

    /// Whether `id` was begun and has not ended.
    #[must_use]
    pub fn is_active(&self, id: TxnId) -> bool {
        // Nothing below the horizon is active (5).
        id.0 >= self.shared.ids.horizon() && self.shared.ids.is_active(id.0)
    }

    /// The ids that are active now, ascending.
    #[must_use]
    pub fn active(&self) -> Vec<TxnId> {
        let state = self.shared.state.write();
        let (_, active) = moment(&self.shared.ids);
        self.shared.ids.open(false);
        drop(state);
        active.into_iter().map(TxnId).collect()
    }

    /// A view of this moment. Allocates only when a transaction has ended since the last one.
    #[must_use]
    pub fn view(&self) -> View {
        {
            let state = self.shared.state.read();
            if state.fresh {
                if let Some(current) = state.live.back() {
                    if Arc::strong_count(current) == 1 {
                        current.since_us.store(self.now_us(), Ordering::Relaxed);
                    }
                    return View { low: current.low, next: current.next, snapshot: current.clone() };
                }
            }
        }
        let now_us = self.now_us();
        let mut state = self.shared.state.write();
        let snapshot = match state.live.back() {
            Some(current) if state.fresh => current.clone(),
            _ => state.snapshot(&self.shared, now_us),
        };
        View { low: snapshot.low, next: snapshot.next, snapshot }
    }

    /// Views with this serial number and later ones see all transactions that have ended by now.
    #[must_use]
    pub fn next_serial(&self) -> u64 {
        self.shared.state.read().made + 1
    }

    /// Every view that exists or will be made sees every id below this one. It may lag after a view is
    /// dropped, and is never too high.
    #[must_use]
    pub fn horizon(&self) -> TxnId {
        TxnId(self.shared.ids.horizon())
    }

    /// What every view sees, exactly as of now; for purge. Updates [`Self::horizon`].
    #[must_use]
    pub fn oldest_view(&self) -> OldestView {
        let mut state = self.shared.state.write();
        let gone = state.prune(None, &self.shared.ids);
        // The current snapshot stays in front even without a view: a new view would see the same.
        let oldest = match state.live.front() {
            Some(oldest) => OldestView { low: oldest.low, next: oldest.next, ids: oldest.ids.clone() },
            None => {
                let (next, active) = moment(&self.shared.ids);
                self.shared.ids.open(false);
                OldestView { low: active.first().copied().unwrap_or(next), next, ids: active.as_slice().into() }
            }
        };
        drop(state);
        drop(gone);
        oldest
    }

    /// The id the next transaction gets.
    #[must_use]
    pub fn next_id(&self) -> TxnId {
        TxnId(self.shared.ids.next())
    }

    /// How many transactions are active.
    #[must_use]
    pub fn active_len(&self) -> usize {
        let mut active = 0;
        self.shared.ids.for_each(|_| active += 1);
        active
    }

    /// How many views there are.
    #[must_use]
    pub fn views(&self) -> usize {
        self.shared.state.read().live.iter().map(|one| Arc::strong_count(one) - 1).sum()
    }

    /// How long the oldest snapshot that has views has had them without interruption. `None` if there are no views.
    #[must_use]
    pub fn oldest_view_age(&self) -> Option<Duration> {
        let now_us = self.now_us();
        let state = self.shared.state.read();
        let oldest = state.live.iter().find(|one| Arc::strong_count(one) > 1)?;
        Some(Duration::from_micros(now_us.saturating_sub(oldest.since_us.load(Ordering::Relaxed))))
    }
}

#[cfg(test)]
mod tests;
