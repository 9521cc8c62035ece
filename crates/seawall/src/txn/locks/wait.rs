//! Waiting for a lock.
//!
//! 1. No thread waits under a latch. A conflict found under a latch is passed to `wait` after the latch is
//!    released. If the conflict is gone by then, nothing is taken and the caller checks again: without the
//!    latch, the row may have a new writer.
//! 2. An owner waits for one thing at a time, in one queue. Enqueuing, entering the graph of waits and the
//!    search for a cycle are one step under the graph's mutex: of two waits that together close a cycle, the
//!    later one sees the earlier.
//! 3. The answer comes through the waiter's cell, once. A grant makes the waiter a holder before it unlocks
//!    the queue.
//! 4. A waiter that gives up leaves the queue, and lets the waiters behind it go on.

use super::cell::{Outcome, WaitCell};
use super::owner::LockOwner;
use super::span::{KeySpan, Keys};
use super::{Interrupt, LockRequest, LockTable, Mode, sync::Instant};
use crate::blocking::{Blocked, Blocking};
use crate::error::{Error, LockedOn, Result};
use crate::format::{TreeId, TxnId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A hundred years: an [`Instant`] cannot be arbitrarily late.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Which queue a waiter is in.
#[derive(Debug)]
pub(super) enum WaitQueue {
    Point {
        hash: u64,
    },
    Tree {
        span: KeySpan,
        /// Whether the owner used the tree before it began to wait. It cannot change during the wait.
        uses: bool,
        /// Whether it waits for one key, of which it has no range.
        one: bool,
    },
}

/// One owner waiting for one thing.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) owner: Arc<LockOwner>,
    pub(super) tree: TreeId,
    /// The key, or the first key of the range.
    pub(super) key: Vec<u8>,
    pub(super) mode: Mode,
    pub(super) queue: WaitQueue,
    /// When the wait began, by the table's clock.
    pub(super) since: Duration,
    pub(super) cell: Arc<WaitCell>,
}

impl Waiter {
    /// The request of a waiter in a tree's queue.
    pub(super) fn request(&self) -> Option<LockRequest<'_>> {
        let WaitQueue::Tree { span, uses, .. } = &self.queue else { return None };
        let (owner, tree, mode) = (&self.owner, self.tree, self.mode);
        Some(LockRequest { owner, tree, keys: Keys::Span(span), mode, uses: *uses })
    }

    pub(super) fn on(&self) -> LockedOn {
        match &self.queue {
            WaitQueue::Tree { span, .. } if span.is_whole() => LockedOn::whole(self.tree),
            _ => LockedOn::row(self.tree, self.key.clone()),
        }
    }
}

/// The operation that [`Error::Interrupted`] names.
const LOCK: &str = "a wait for a lock";

/// A wait that has begun. Dropping it ends the wait: with its answer, or given up if the thread unwinds.
#[derive(Debug)]
struct Begun<'a> {
    table: &'a LockTable,
    waiter: &'a Arc<Waiter>,
    interrupt: Option<&'a Interrupt>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Self { table, waiter, interrupt } = self;
        if let Some(interrupt) = interrupt {
            interrupt.leave();
        }
        // Settles only if the callback has panicked: otherwise there is an answer.
        let given_up = waiter.cell.settle(Outcome::TimedOut);
        table.graph.lock().leave(&waiter.owner);
        if !given_up && waiter.cell.answer() == Some(Outcome::Granted) {
            table.keep(waiter);
        } else {
            table.dequeue(waiter);
        }
    }
}

impl LockTable {
    /// Waits until `request` can be granted, at most for `longest`; returns at once if it can be now. The
    /// caller holds no latch. An interrupt of the owner's transaction ends the wait.
    ///
    /// After `Ok` the caller *checks again*: it latches the page anew, reads the row's writer, and requests
    /// the lock as if for the first time. If this call waited, the owner already holds the lock, so that no
    /// other owner takes it in between.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] after `longest`, or at once if that is zero or the table does not wait;
    /// [`Error::Interrupted`]; [`Error::Deadlock`] if this owner is the victim: it has to be rolled back, and
    /// waits for nothing more; [`Error::Poisoned`] or [`Error::ShutDown`] if the database stops during the wait: those
    /// who hold the lock then keep it.
    pub fn wait(&self, request: &LockRequest<'_>, longest: Duration, interrupt: Option<&Interrupt>) -> Result<()> {
        if longest.is_zero() || !self.config.blocking {
            return match self.check(request) {
                Ok(()) => Ok(()),
                Err(conflict) => {
                    self.timeouts.fetch_add(1, Ordering::Relaxed);
                    Err(Error::LockTimeout { holder: conflict.holder(), on: request.on(), waited_ms: 0 })
                }
            };
        }
        // The thread sleeps in real time, whatever the table's clock is.
        let deadline = Instant::now() + longest.min(LONGEST);
        let waiter = {
            let mut graph = self.graph.lock();
            let Some(waiter) = self.enqueue(request) else { return Ok(()) };
            graph.enter(&waiter);
            self.break_cycles(&mut graph, &waiter);
            waiter
        };
        self.waits.fetch_add(1, Ordering::Relaxed);
        let begun = Begun { table: self, waiter: &waiter, interrupt };
        if let Some(interrupt) = interrupt {
            interrupt.enter(&waiter.cell);
        }
        self.tell_of(&waiter);
        let health = &self.config.health;
        let blocked = Blocked::on(Blocking::Lock);
        let outcome = waiter.cell.wait(deadline, || health.check_for_reads().is_err());
        drop(blocked);
        let holder = match outcome {
            Outcome::TimedOut => self.blockers(&waiter).first().map_or(TxnId::NONE, |holder| holder.txn()),
            _ => TxnId::NONE,
        };
        drop(begun);
        match outcome {
            Outcome::Granted => Ok(()),
            Outcome::DeadlockVictim { waits_for } => {
                Err(Error::Deadlock { victim: request.owner.txn(), waits_for, on: waiter.on() })
            }
            Outcome::Interrupted => Err(Error::Interrupted { during: LOCK, on: Some(waiter.on()) }),
            Outcome::TimedOut => {
                health.check_for_reads()?;
                self.timeouts.fetch_add(1, Ordering::Relaxed);
                let waited = self.config.clock.now().saturating_sub(waiter.since);
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                Err(Error::LockTimeout { holder, on: waiter.on(), waited_ms })
            }
        }
    }

    /// Puts the request in the first queue where it has to wait, if any.
    pub(super) fn enqueue(&self, request: &LockRequest<'_>) -> Option<Arc<Waiter>> {
        let LockRequest { owner, tree, keys, mode, uses } = *request;
        let since = self.config.clock.now();
        let waiter = |key: Vec<u8>, queue| {
            let cell = Arc::new(WaitCell::new());
            Arc::new(Waiter { owner: owner.clone(), tree, key, mode, queue, since, cell })
        };
        if let Keys::One(key) = keys {
            let hash = self.hash(tree, key);
            let at_point = waiter(key.to_vec(), WaitQueue::Point { hash });
            if self.points.enqueue(hash, &at_point) {
                return Some(at_point);
            }
        }
        let span = keys.to_span().into_owned();
        if span.is_empty() {
            return None;
        }
        // A key in a range that it has already is not new to it, and must not be given back.
        let one = matches!(keys, Keys::One(_)) && self.ranges.mode_of(owner, request).is_none();
        let in_tree = waiter(span.lo.clone(), WaitQueue::Tree { span, uses, one });
        self.ranges.enqueue(&in_tree, &self.owners).then_some(in_tree)
    }

    pub(super) fn dequeue(&self, waiter: &Arc<Waiter>) {
        match waiter.queue {
            WaitQueue::Point { hash } => self.points.dequeue(hash, waiter),
            WaitQueue::Tree { .. } => self.ranges.dequeue(waiter, &self.owners),
        }
    }

    /// Grants what a waiter waits for, if it need not wait any more.
    pub(super) fn look_again(&self, waiter: &Waiter) {
        match waiter.queue {
            WaitQueue::Point { hash } => self.points.look_again(hash),
            WaitQueue::Tree { .. } => self.ranges.look_again(waiter.tree, &self.owners),
        }
    }

    /// The owners that a waiter waits for, as far as a search for cycles needs them.
    pub(super) fn blockers(&self, waiter: &Arc<Waiter>) -> Vec<Arc<LockOwner>> {
        let mut blockers = Vec::new();
        match waiter.queue {
            WaitQueue::Point { .. } => self.points.blockers(waiter, &mut blockers),
            WaitQueue::Tree { .. } => self.ranges.blockers(waiter, &self.owners, &mut blockers),
        }
        blockers
    }

    /// Enters a granted request in its owner's list.
    pub(super) fn keep(&self, waiter: &Arc<Waiter>) {
        match waiter.queue {
            WaitQueue::Point { hash } => {
                self.remember_point(&waiter.owner, waiter.tree, hash, &waiter.key, waiter.mode);
            }
            WaitQueue::Tree { one: true, .. } => waiter.owner.add_granted(waiter.tree, &waiter.key, waiter.mode),
            WaitQueue::Tree { .. } => waiter.owner.held().add_ranged(waiter.tree),
        }
    }
}
