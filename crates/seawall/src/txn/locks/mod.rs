//! Locks between transactions: on keys and on intervals of keys, held to the end of the transaction.
//! docs/invariants.md has the rules.
//!
//! 1. The active writer of a row holds it exclusively without an entry here. A transaction that meets such a
//!    row makes the lock explicit on the writer's behalf (`convert`) and waits for it.
//! 2. A request under a page latch never waits: it is granted or answered with a [`Conflict`]. Waiting is
//!    `wait`, with no latch held.
//! 3. An owner releases all its locks together, at its end. A rollback to a savepoint releases none: one lock
//!    too many keeps others waiting, one too few breaks isolation. When an owner is prepared, it releases what
//!    protected its reads: it requests no more locks, and a restart would not bring these back
//!    (`release_reads`). Three kinds of points are released earlier: the point of a row that its owner has
//!    written (the row's writer is the lock from then on, `written`), a point that a statement needed for one
//!    moment (`give_back`), and the point of a row that a locking read took in vain (`give_back_of_statement`).
//!    An owner whose commit is in the log keeps its locks until the commit is durable, but others may take
//!    them over (`decide`): a flush does not keep a row locked. The follower sees what is not durable yet, so
//!    it must not end, nor take a view, before the owner that it follows has left the active set
//!    ([`super::end`], 4). This is controlled lock violation (Graefe et al., SIGMOD 2013).
//! 4. Memory is bounded per owner: too many points become a range that covers them, too many ranges are
//!    joined. More may be locked than was asked for, never less. An owner that keeps its points
//!    (`LockOwner::keep_points`) gets no range: further points are refused ([`LockTable::room`]).
//! 5. Lock order, each taken only after those before it: page latch | graph, held list of an owner, shard of
//!    points, shard of trees, list of owners, wait cell. The graph's mutex and a latch are never held
//!    together. An interrupt's mutex is taken with none of these held; a wait cell's is taken under it.

mod cell;
mod deadlock;
mod hash_map;
mod interrupt;
mod owner;
mod point;
mod range;
mod report;
mod request;
mod span;
mod wait;

use crate::counted::{Mutex, RwLock};
use crate::error::{Error, Health, LockedOn};
use crate::format::{TreeId, TxnId};
use deadlock::Graph;
use owner::{GrantedKey, HeldLocks, Owners};
use point::{KeyMark, Points, Taken};
use range::Ranges;
use report::WaitObserver;
use seawall_io::Clock;
use span::Keys;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub use interrupt::Interrupt;
pub use owner::{Decided, LockOwner};
pub use report::{DeadlockInfo, Party, TransactionInfo, WaitInfo, Wanted};
pub use request::LockRequest;
pub use span::KeySpan;

/// The synchronization primitives of `cell` and `interrupt`.
mod sync {
    pub(super) use crate::counted::Mutex;
    pub(super) use parking_lot::{Condvar, MutexGuard};
    pub(super) use std::sync::Arc;
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
    pub(super) use std::time::Instant;

    /// Releases the mutex until a wake-up or the deadline. Returns whether the deadline has passed.
    pub(super) fn wait_until<'a, T>(
        woken: &Condvar,
        mut guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> (MutexGuard<'a, T>, bool) {
        let late = woken.wait_until(&mut guard, deadline).timed_out();
        (guard, late)
    }
}

/// How a key or range is locked. Exclusive is stronger than shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Others may also lock it shared; no other owner changes it.
    Shared,
    /// No other owner locks or changes it.
    Exclusive,
}

impl Mode {
    fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// Another owner blocks the request.
#[derive(Debug, Clone)]
pub struct Conflict {
    blocker: Arc<LockOwner>,
}

impl Conflict {
    /// The transaction of the blocking owner; [`TxnId::NONE`] if it has not changed anything yet.
    #[must_use]
    pub fn holder(&self) -> TxnId {
        self.blocker.txn()
    }
}

/// The purpose of a request for a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// The point is kept until the owner ends.
    Good,
    /// For a locking read, which may find that it does not need the point.
    Read,
    /// For a locking read, after it has waited for the point.
    ReadAgain,
}

/// The result of an attempt to make a writer's lock explicit.
#[derive(Debug, Clone)]
pub enum Converted {
    /// The writer holds the row explicitly now: wait for it.
    Held(#[cfg_attr(not(test), expect(dead_code, reason = "what tests look at"))] Conflict),
    /// The writer is ending, or has decided and was taken over: the row is as it has left it.
    Gone,
}

/// How the table behaves.
#[derive(Debug, Clone)]
pub struct LockConfig {
    /// Points of one owner before they become a range, or before further ones are refused. The database sets
    /// it from a size in bytes ([`LockTable::set_point_bytes`]).
    pub point_max: usize,
    /// Ranges of one owner in one tree and mode before neighbours are joined.
    pub range_max: usize,
    /// Measures the duration of a wait, for its error.
    pub clock: Arc<dyn Clock>,
    /// Whether `wait` may block its thread. If not, it fails at once with [`crate::Error::LockTimeout`].
    pub blocking: bool,
    /// Ends the waits when the database stops.
    pub health: Arc<Health>,
}

impl LockConfig {
    /// 4096 points, 128 ranges, blocking, a database that does not stop.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { point_max: 4096, range_max: 128, clock, blocking: true, health: Arc::default() }
    }
}

/// The memory of one point, at most: its slot in the map of a shard, which may be half empty, and in its
/// owner's set.
pub const POINT_BYTES: u64 = 256;

/// Counts since the table was created, and current counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockStats {
    /// Waits begun.
    pub waits: u64,
    /// Owners followed ([`LockTable::count_taken_over`]).
    pub taken_over: u64,
    /// Deadlocks broken.
    pub deadlocks: u64,
    /// Waits that timed out, and requests refused at once.
    pub timeouts: u64,
    /// Keys locked now.
    pub points: usize,
    /// Ranges held now.
    pub ranges: usize,
    /// Owners waiting now.
    pub waiting: usize,
}

/// All locks of a database.
#[derive(Debug)]
pub struct LockTable {
    config: LockConfig,
    points: Points,
    ranges: Ranges,
    owners: Owners,
    graph: Mutex<Graph>,
    /// Called when a wait begins.
    observer: RwLock<WaitObserver>,
    /// Waits that have already begun may have closed a cycle: the next wait searches from all waiters.
    search_all: AtomicBool,
    /// The current limit: `point_max` of the configuration until [`LockTable::set_point_bytes`] changes it.
    point_max: AtomicUsize,
    waits: AtomicU64,
    taken_over: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    /// All ones, except in tests that want keys to collide.
    hash_mask: u64,
}

impl LockTable {
    /// An empty table.
    #[must_use]
    pub fn new(config: LockConfig) -> Self {
        Self {
            points: Points::new(),
            ranges: Ranges::new(config.range_max),
            owners: Owners::new(),
            graph: Mutex::default(),
            observer: RwLock::default(),
            search_all: AtomicBool::new(false),
            point_max: AtomicUsize::new(config.point_max),
            waits: AtomicU64::new(0),
            taken_over: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            hash_mask: u64::MAX,
            config,
        }
    }

    fn hash(&self, tree: TreeId, key: &[u8]) -> u64 {
        point::hash(tree, key, 0x9E37_79B9_7F4A_7C15) & self.hash_mask
    }

    /// Sets the memory that each owner has for locks on keys, in bytes, from now on.
    pub fn set_point_bytes(&self, bytes: u64) {
        let points = usize::try_from(bytes / POINT_BYTES).unwrap_or(usize::MAX);
        self.point_max.store(points.max(1), Ordering::Relaxed);
    }

    fn point_max(&self) -> usize {
        self.point_max.load(Ordering::Relaxed)
    }

    /// Checks that the owner may lock one more key. Always succeeds for an owner whose points become a range
    /// when there are too many. Called before [`Self::try_point`].
    ///
    /// # Errors
    /// [`Error::TooManyLocks`].
    pub fn room(&self, owner: &LockOwner, tree: TreeId, key: &[u8]) -> Result<(), Error> {
        let (points, max) = (owner.points(), self.point_max());
        if points < max || owner.may_grow() || self.holds(owner, tree, key) {
            return Ok(());
        }
        Err(Error::TooManyLocks { locks: points, max_bytes: max as u64 * POINT_BYTES })
    }

    /// Whether the owner has a lock that could be given back: a point for the key, or for another with the same hash,
    /// or the key as a range that a wait has granted.
    #[must_use]
    pub fn holds(&self, owner: &LockOwner, tree: TreeId, key: &[u8]) -> bool {
        self.holds_point(owner, tree, key) || (owner.was_granted() && owner.held().granted(tree, key).is_some())
    }

    fn holds_point(&self, owner: &LockOwner, tree: TreeId, key: &[u8]) -> bool {
        owner.points() > 0 && self.points.holds(owner, self.hash(tree, key))
    }

    /// A new owner, without locks. Costs the table nothing until it asks for one.
    #[must_use]
    #[cfg(test)]
    pub fn owner(&self) -> Arc<LockOwner> {
        self.tagged_owner(0)
    }

    /// Like [`Self::owner`], with the caller's number for it.
    #[must_use]
    pub fn tagged_owner(&self, tag: u64) -> Arc<LockOwner> {
        self.owners.create(tag)
    }

    /// Replaces an owner that has ended and released its locks by a new one.
    pub fn renew(&self, owner: &mut Arc<LockOwner>, tag: u64) {
        self.owners.renew(owner, tag);
    }

    /// Gives the owner its transaction's id. Called before a page bears the id; after a restart, for every
    /// loser and every prepared transaction before other transactions can begin.
    pub fn register(&self, owner: &Arc<LockOwner>, txn: TxnId) {
        self.owners.register(owner, txn);
    }

    /// Enters the owner as a user of the tree: a request for the whole tree waits until the owner has ended.
    pub fn use_tree(&self, owner: &Arc<LockOwner>, tree: TreeId) {
        self.owners.use_tree(owner, tree);
    }

    /// Enters the owner as a user of the tree and calls `ask`. Takes a new entry back if `ask` is refused.
    fn using<T>(
        &self,
        owner: &Arc<LockOwner>,
        tree: TreeId,
        ask: impl FnOnce(bool) -> Result<T, Conflict>,
    ) -> Result<T, Conflict> {
        let new = self.owners.use_tree(owner, tree);
        let answer = ask(!new);
        if new && answer.is_err() {
            owner.unuse_tree(tree);
            self.ranges.look_again(tree, &self.owners);
        }
        answer
    }

    /// Locks a key if that needs no wait. The caller holds the latch of the leaf where the key is or would
    /// be, and has found under it that the row's writer is not active. An owner that is itself the row's
    /// active writer already has the row and must not call this: it could wait for an owner that waits for
    /// it.
    ///
    /// # Errors
    /// [`Conflict`] with an owner that blocks the request.
    pub fn try_point(&self, owner: &Arc<LockOwner>, tree: TreeId, key: &[u8], mode: Mode) -> Result<(), Conflict> {
        self.ask_point(owner, tree, key, mode, For::Good).map(drop)
    }

    /// Like [`Self::try_point`], for a locking read, which may give the point back
    /// ([`Self::give_back_of_statement`]). Returns whether the owner had no point there before and has one
    /// now.
    ///
    /// # Errors
    /// [`Conflict`] with an owner that blocks the request.
    pub fn try_new_point(
        &self,
        owner: &Arc<LockOwner>,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) -> Result<bool, Conflict> {
        self.ask_point(owner, tree, key, mode, For::Read)
    }

    /// Like [`Self::try_new_point`], after [`Self::wait`] for the same key. It is not a second use of a point
    /// that the wait granted: the statement can still give that point back.
    ///
    /// # Errors
    /// [`Conflict`] with an owner that blocks the request.
    pub fn try_point_again(
        &self,
        owner: &Arc<LockOwner>,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) -> Result<bool, Conflict> {
        self.ask_point(owner, tree, key, mode, For::ReadAgain)
    }

    fn ask_point(
        &self,
        owner: &Arc<LockOwner>,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
        purpose: For,
    ) -> Result<bool, Conflict> {
        let hash = self.hash(tree, key);
        let taken = self.using(owner, tree, |uses| {
            self.points.shard(hash).change(hash, |point| {
                if let Some(blocker) = point.blocker(owner, mode) {
                    return Err(Conflict { blocker: blocker.clone() });
                }
                let request = LockRequest { owner, tree, keys: Keys::One(key), mode, uses };
                let mark = KeyMark::of(tree, key);
                match (self.ranges.check(&request, &self.owners), purpose) {
                    (Err(blocker), _) => Err(Conflict { blocker }),
                    (Ok(true), _) => {
                        point.use_again(owner);
                        Ok(None)
                    }
                    (Ok(false), For::ReadAgain) if point.was_granted(owner, mode, mark) => Ok(Some(Taken::Had)),
                    (Ok(false), For::Good) => Ok(Some(point.hold_for_good(owner, mode, mark))),
                    (Ok(false), For::Read | For::ReadAgain) => Ok(Some(point.hold(owner, mode, mark))),
                }
            })
        })?;
        // The owner may have had the point for another key with the same hash: the owner remembers this key,
        // too.
        if taken.is_some() {
            self.remember_point(owner, tree, hash, key, mode);
        } else if purpose != For::ReadAgain {
            Self::use_granted_again(owner, tree, key);
        }
        Ok(taken == Some(Taken::New))
    }

    /// Marks a key that a wait has granted as a range as used once more, like [`Point::use_again`].
    fn use_granted_again(owner: &LockOwner, tree: TreeId, key: &[u8]) {
        if owner.was_granted() {
            if let Some((_, granted)) = owner.held().granted(tree, key) {
                granted.since = 0;
            }
        }
    }

    /// The answer of [`Self::try_point`], without locking. Same conditions.
    ///
    /// # Errors
    /// [`Conflict`] with an owner that blocks the request.
    pub fn check_point(&self, owner: &Arc<LockOwner>, tree: TreeId, key: &[u8], mode: Mode) -> Result<(), Conflict> {
        let hash = self.hash(tree, key);
        let shard = self.points.shard(hash);
        if !shard.is_empty() {
            let map = shard.map.lock();
            if let Some(blocker) = map.get(&hash).and_then(|point| point.blocker(owner, mode)) {
                return Err(Conflict { blocker: blocker.clone() });
            }
        }
        // Checks points first, then ranges: points that become a range are removed only when the range is
        // there.
        let request = LockRequest::key(owner, tree, key, mode);
        self.ranges.check(&request, &self.owners).map(drop).map_err(|blocker| Conflict { blocker })
    }

    /// Checks that a key may be changed. Called under the exclusive latch of the leaf where the key is or
    /// would be, before the change. An owner that is itself the row's active writer already has the row and
    /// must not call this. Leaves no lock of its own: the change is the lock. Returns whether the owner has a
    /// point there; the caller passes that to [`Self::written`] after the change.
    ///
    /// # Errors
    /// [`Conflict`] with an owner that blocks the request.
    pub fn check_write(&self, owner: &Arc<LockOwner>, tree: TreeId, key: &[u8]) -> Result<bool, Conflict> {
        let hash = self.hash(tree, key);
        let had = self.using(owner, tree, |uses| {
            let request = LockRequest { owner, tree, keys: Keys::One(key), mode: Mode::Exclusive, uses };
            let ranges = || self.ranges.check(&request, &self.owners).map(drop).map_err(|blocker| Conflict { blocker });
            let shard = self.points.shard(hash);
            if shard.is_empty() {
                return ranges().map(|()| None);
            }
            let mut map = shard.map.lock();
            let Some(point) = map.get_mut(&hash) else {
                return ranges().map(|()| None);
            };
            if let Some(blocker) = point.blocker(owner, Mode::Exclusive) {
                return Err(Conflict { blocker: blocker.clone() });
            }
            ranges()?;
            // Either the owner is the only holder, or there is no holder and no waiter. A shared lock of the
            // owner becomes exclusive together with the change: otherwise a waiter could be granted a shared
            // lock beside the change.
            Ok(point.raise(owner))
        })?;
        match had {
            Some(Mode::Shared) => self.remember_point(owner, tree, hash, key, Mode::Exclusive),
            Some(Mode::Exclusive) => {}
            None => Self::use_granted_again(owner, tree, key),
        }
        Ok(had.is_some())
    }

    /// Gives back the owner's point of a row that it has changed, while the leaf is still latched: from now
    /// on the row's writer is the lock. Keeps the point if another owner waits for it: that owner would only
    /// find the row's writer and wait again.
    pub fn written(&self, owner: &Arc<LockOwner>, tree: TreeId, key: &[u8]) {
        if self.forget_point(owner, tree, key, true) {
            owner.note_gave_back();
        }
    }

    /// Gives back the point of a key that a statement of this owner has locked and that had no point before.
    /// Grants its waiters. Does nothing if the point also serves another key.
    pub fn give_back(&self, owner: &Arc<LockOwner>, tree: TreeId, key: &[u8]) {
        self.forget_point(owner, tree, key, false);
        self.forget_granted(owner, tree, key, |_| true);
    }

    /// Like [`Self::give_back`], but keeps the point if another owner waits for it: that owner waits until
    /// this one ends.
    pub fn give_back_unless_awaited(&self, owner: &Arc<LockOwner>, tree: TreeId, key: &[u8]) {
        self.forget_point(owner, tree, key, true);
        self.forget_granted(owner, tree, key, |_| true);
    }

    /// Gives back the point of a key that a locking read of the owner's current statement took new, if
    /// nothing else has requested or needed it since. Grants its waiters. Returns whether it gave the point
    /// back.
    pub fn give_back_of_statement(&self, owner: &Arc<LockOwner>, tree: TreeId, key: &[u8]) -> bool {
        let statement = owner.statement();
        self.forget(owner, tree, key, |hash, mark| self.points.give_back_of(owner, hash, mark))
            || (!self.holds_point(owner, tree, key)
                && self.forget_granted(owner, tree, key, |granted| granted.since == statement))
    }

    /// Gives back a key that a wait has granted as a range, if it `goes`. Returns whether it did.
    fn forget_granted(
        &self,
        owner: &LockOwner,
        tree: TreeId,
        key: &[u8],
        goes: impl FnOnce(&GrantedKey) -> bool,
    ) -> bool {
        if !owner.was_granted() {
            return false;
        }
        let mut held = owner.held();
        let at = held.granted(tree, key).filter(|(_, granted)| goes(granted)).map(|(at, _)| at);
        let Some(granted) = at.map(|at| held.granted.swap_remove(at)) else { return false };
        self.ranges.forget_key(owner, tree, &KeySpan::key(key), granted.mode, &self.owners)
    }

    fn forget_point(&self, owner: &Arc<LockOwner>, tree: TreeId, key: &[u8], stays_if_awaited: bool) -> bool {
        self.forget(owner, tree, key, |hash, mark| self.points.give_back(owner, hash, mark, stays_if_awaited))
    }

    fn forget(
        &self,
        owner: &LockOwner,
        tree: TreeId,
        key: &[u8],
        give_back: impl FnOnce(u64, KeyMark) -> bool,
    ) -> bool {
        let hash = self.hash(tree, key);
        let mut held = owner.held();
        let gone = give_back(hash, KeyMark::of(tree, key));
        if gone && held.remove(tree, hash) {
            owner.set_points(owner.points().saturating_sub(1));
        }
        gone
    }

    /// Whether `owner` would have to wait for the writer of a row, for a caller that does not wait: nothing is made
    /// explicit. Same conditions as [`Self::convert`].
    #[must_use]
    pub fn is_held_by(&self, writer: TxnId, owner: &LockOwner) -> bool {
        let writer = self.owners.writer(writer);
        writer.is_some_and(|writer| !writer.is_taken_over_by(owner) && !writer.held().ended)
    }

    /// The error of a request that does not wait, for a row that `holder` has written.
    #[must_use]
    pub fn refused(&self, holder: TxnId, tree: TreeId, key: &[u8]) -> Error {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
        Error::LockTimeout { holder, on: LockedOn::row(tree, key), waited_ms: 0 }
    }

    /// Makes explicit that `writer` holds a row it has changed, unless `owner` can take the row over. Called under the
    /// latch of the leaf, when the row's writer is active and is not the caller's transaction. The point stays until
    /// the writer ends, even if it undoes the change before.
    #[must_use]
    pub fn convert(&self, writer: TxnId, owner: &LockOwner, tree: TreeId, key: &[u8]) -> Converted {
        let Some(blocker) = self.owners.writer(writer) else { return Converted::Gone };
        if blocker.is_taken_over_by(owner) {
            return Converted::Gone;
        }
        let hash = self.hash(tree, key);
        {
            let mut held = blocker.held();
            if held.ended {
                return Converted::Gone;
            }
            let (taken, awaited) = self.points.shard(hash).change(hash, |point| {
                let taken = point.hold_for_good(&blocker, Mode::Exclusive, KeyMark::of(tree, key));
                (taken, point.is_awaited())
            });
            blocker.contend();
            if awaited && taken != Taken::Had {
                // The waiters here wait for another key with the same hash. From now on they also wait for
                // this writer, which may itself be waiting. Once the next wait has searched from all waiters,
                // no more is needed: an owner that is waited for is contended, and searches when it begins to
                // wait.
                self.search_all.store(true, Ordering::Release);
            }
            // This may exceed the limit: the owner's own next point enforces it.
            if held.add(tree, hash, key, Mode::Exclusive, blocker.may_grow()) {
                blocker.set_points(blocker.points() + 1);
            }
        }
        Converted::Held(Conflict { blocker })
    }

    /// Locks all keys of an interval, present or not, if that needs no wait. A scan calls it for the keys
    /// that it is about to read, *before* it reads them. An interval that touches a range of the owner
    /// extends that range. May be called under a latch.
    ///
    /// An exclusive range without bounds locks the tree itself: it is granted when no other owner has a lock
    /// or a change in the tree.
    ///
    /// # Errors
    /// [`Conflict`] with an owner that blocks the request.
    pub fn add_range(&self, request: &LockRequest<'_>) -> Result<(), Conflict> {
        if matches!(request.keys, Keys::Span(span) if span.is_empty()) {
            return Ok(());
        }
        let added = self.ranges.try_add(request, &self.owners);
        added.map(|()| self.note_range(request)).map_err(|blocker| Conflict { blocker })
    }

    fn note_range(&self, request: &LockRequest<'_>) {
        self.owners.list(request.owner);
        request.owner.held().add_ranged(request.tree);
    }

    /// Like [`Self::add_range`], for an interval that ends at a row: also checks that no other owner has or awaits that
    /// key as a point. A scan that has to wait for the row does not hold the row's key: the row's owner may still
    /// change the row. Called under the latch of the row's leaf, as [`Self::try_point`] is.
    ///
    /// # Errors
    /// [`Conflict`] with an owner that blocks the request; nothing is locked then.
    pub fn add_range_to(&self, request: &LockRequest<'_>, row: &[u8]) -> Result<(), Conflict> {
        let hash = self.hash(request.tree, row);
        // The shard stays locked until the range is there: no point is taken in between.
        let map = self.points.shard(hash).map.lock();
        if let Some(blocker) = map.get(&hash).and_then(|point| point.blocker(request.owner, request.mode)) {
            return Err(Conflict { blocker: blocker.clone() });
        }
        self.ranges.try_add(request, &self.owners).map_err(|blocker| Conflict { blocker })?;
        drop(map);
        self.note_range(request);
        Ok(())
    }

    /// Locks the key of a row that the owner has written, as a range, even if another owner blocks that. The
    /// row is the owner's own, which keeps others away; a request could wait for an owner that waits for this
    /// one.
    pub fn add_own_row(&self, owner: &Arc<LockOwner>, tree: TreeId, row: &[u8], mode: Mode) {
        let span = KeySpan::key(row);
        if self.add_range(&LockRequest::span(owner, tree, &span, mode)).is_err() {
            self.ranges.add(owner, tree, &span, mode, &self.owners);
            owner.held().add_ranged(tree);
        }
    }

    /// Checks whether a request could be granted now. Takes no lock.
    fn check(&self, request: &LockRequest<'_>) -> Result<(), Conflict> {
        match request.keys {
            Keys::One(key) => self.check_point(request.owner, request.tree, key, request.mode),
            Keys::Span(span) if span.is_empty() => Ok(()),
            Keys::Span(_) => self.ranges.check_new(request, &self.owners).map_err(|blocker| Conflict { blocker }),
        }
    }

    /// Lets others take over the locks of an owner whose commit is in the log, although it is not durable at its level
    /// yet. The owner requests no more locks.
    pub fn decide(&self, owner: &LockOwner, decided: Decided) {
        owner.decide(decided);
        self.grant_waiters_of(owner);
    }

    /// Notes that an owner that has decided has left the active set, though it has not released its locks yet.
    pub fn reveal(&self, owner: &LockOwner) {
        owner.set_visible();
        self.grant_waiters_of(owner);
    }

    /// Grants those that wait for this owner and need not any more.
    fn grant_waiters_of(&self, owner: &LockOwner) {
        if !owner.is_contended() {
            return;
        }
        let (hashes, ranged): (Vec<u64>, Vec<TreeId>) = {
            let held = owner.held();
            (held.trees.iter().flat_map(|points| points.hashes.iter().copied()).collect(), held.ranged.clone())
        };
        for hash in hashes {
            self.points.look_again(hash);
        }
        for tree in ranged {
            self.ranges.look_again(tree, &self.owners);
        }
    }

    /// Counts owners whose locks were taken over, once their follower knows that they have ended.
    pub fn count_taken_over(&self, owners: usize) {
        self.taken_over.fetch_add(owners as u64, Ordering::Relaxed);
    }

    /// Releases all locks of the owner. Called once, when the owner's transaction has left the active set (or
    /// never had an id).
    pub fn release_all(&self, owner: &Arc<LockOwner>) {
        let HeldLocks { trees, ranged, .. } = owner.take_held();
        for points in trees {
            for hash in points.hashes {
                self.points.release(owner, hash);
            }
        }
        for tree in ranged {
            self.ranges.release(owner, tree, &self.owners);
        }
        if self.owners.delist(owner) {
            for tree in owner.used_trees() {
                self.ranges.look_again(tree, &self.owners);
            }
        }
    }

    /// Releases the locks that protect what the owner has read, once it is prepared and reads no more: shared points,
    /// and ranges except those in trees that it `keeps`. Exclusive points stay, and the rows it has written stay its
    /// own.
    pub fn release_reads(&self, owner: &Arc<LockOwner>, keeps: impl Fn(TreeId) -> bool) {
        let mut held = owner.held();
        let mut released = 0;
        for points in &mut held.trees {
            points.hashes.retain(|&hash| {
                let gone = self.points.mode_of(owner, hash) == Some(Mode::Shared);
                if gone {
                    self.points.release(owner, hash);
                    released += 1;
                }
                !gone
            });
            points.shared = None;
        }
        owner.set_points(owner.points().saturating_sub(released));
        held.ranged.retain(|&tree| {
            let kept = keeps(tree);
            if !kept {
                self.ranges.release(owner, tree, &self.owners);
            }
            kept
        });
    }

    /// Counts. Locks every shard: for reports, not for a hot path.
    #[must_use]
    pub fn stats(&self) -> LockStats {
        LockStats {
            waits: self.waits.load(Ordering::Relaxed),
            taken_over: self.taken_over.load(Ordering::Relaxed),
            deadlocks: self.deadlocks.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            points: self.points.len(),
            ranges: self.ranges.len(),
            waiting: self.graph.lock().len(),
        }
    }

    /// Enters a point in the owner's list. Turns the points of one tree into a range when the owner has too
    /// many.
    fn remember_point(&self, owner: &Arc<LockOwner>, tree: TreeId, hash: u64, key: &[u8], mode: Mode) {
        let mut held = owner.held();
        if held.add(tree, hash, key, mode, owner.may_grow()) {
            owner.set_points(owner.points() + 1);
        }
        let max = self.point_max();
        if owner.points() <= max.max(held.limit) || !owner.may_grow() {
            return;
        }
        // The tree with the most points.
        let Some(points) = held.trees.iter_mut().max_by_key(|points| points.hashes.len()) else { return };
        let tree = points.tree;
        let ends = [(points.shared.take(), Mode::Shared), (points.exclusive.take(), Mode::Exclusive)];
        for (ends, mode) in ends {
            if let Some((lo, hi)) = ends {
                let span = KeySpan::new(Bound::Included(&lo), Bound::Included(&hi));
                self.ranges.add(owner, tree, &span, mode, &self.owners);
            }
        }
        // The range is there before the first point goes: the keys are locked at every moment.
        points.hashes.retain(|&hash| !self.points.release_quiet(owner, hash));
        points.hashes.shrink_to(64);
        let left = held.trees.iter().map(|points| points.hashes.len()).sum();
        owner.set_points(left);
        // Points with waiters stay. The limit grows, so that the next points do not each try all of them
        // again.
        held.limit = if left > max / 2 { left * 2 } else { 0 };
        held.add_ranged(tree);
    }
}

#[cfg(test)]
mod tests;
