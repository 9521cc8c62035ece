//! Which transactions wait for which, for operators and for programs that order transactions themselves.
//!
//! 1. A report is a snapshot: it is built from what the table keeps anyway. It costs nothing to transactions that do
//!    not wait.
//! 2. The thread that is about to wait calls the callback of waits, with no mutex and no latch held, after
//!    the wait has begun: what the callback does about the holders can end the wait at once.
//! 3. The last deadlock is recorded under the graph's mutex, when a victim is chosen.

use super::LockTable;
use super::Mode;
use super::owner::LockOwner;
use super::wait::{WaitQueue, Waiter};
use crate::error::LockedOn;
use crate::format::TxnId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A transaction, as reports name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Party {
    /// Unique among the transactions since the database was opened, including those without an id.
    pub serial: u64,
    /// The tag that its caller gave it; 0 if none.
    pub tag: u64,
    /// Its id; [`TxnId::NONE`] before its first change.
    pub id: TxnId,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.id.0)?;
        if self.tag == 0 { Ok(()) } else { write!(f, " (tag {})", self.tag) }
    }
}

/// A transaction that writes, or holds or wants locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionInfo {
    /// The transaction.
    pub who: Party,
    /// The changes that it has made: the victim of a deadlock is the transaction with the fewest.
    pub changes: u64,
    /// The keys that it has locked. Not included: ranges, and rows that it wrote and no other transaction
    /// asked for.
    pub locked_keys: usize,
    /// What it waits for now.
    pub waits_for: Option<Wanted>,
    /// Whether it is the victim of a deadlock, which has to be rolled back.
    pub is_victim: bool,
    /// Whether it is prepared, and belongs to no handle: an outside log decides it.
    pub is_prepared: bool,
}

/// What a transaction waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The key, or the first key of a range.
    pub on: LockedOn,
    /// The requested mode; a change is exclusive.
    pub mode: Mode,
}

/// A transaction that waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitInfo {
    /// The transaction that waits.
    pub waiter: Party,
    /// What it waits for.
    pub wanted: Wanted,
    /// The transactions it waits for: those that hold the lock, and all that are ahead of it in the queue.
    pub holders: Vec<Party>,
    /// How each of the holders has locked what is waited for; `None` if it has not: it is ahead in the queue,
    /// or it uses a tree that is wanted whole.
    pub modes: Vec<Option<Mode>>,
    /// How long it has waited.
    pub waited: Duration,
}

impl fmt::Display for WaitInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {} ({:?}), held by ", self.waiter, self.wanted.on, self.wanted.mode)?;
        for (at, holder) in self.holders.iter().enumerate() {
            write!(f, "{}{holder}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A deadlock that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadlockInfo {
    /// Each waits for what the next one holds, the last for what the first holds.
    pub parties: Vec<(Party, Wanted)>,
    /// The index of the victim in `parties`.
    pub victim: usize,
}

impl fmt::Display for DeadlockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (who, wanted)) in self.parties.iter().enumerate() {
            let gave_way = if at == self.victim { ", and gave way" } else { "" };
            let end = if at + 1 == self.parties.len() { "" } else { "; " };
            write!(f, "{who} waited for {} ({:?}){gave_way}{end}", wanted.on, wanted.mode)?;
        }
        Ok(())
    }
}

/// Called with each wait that begins.
pub type OnWait = Arc<dyn Fn(&WaitInfo) + Send + Sync>;

/// The callback, if there is one.
#[derive(Default)]
pub(super) struct WaitObserver(pub(super) Option<OnWait>);

impl fmt::Debug for WaitObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "WaitObserver" } else { "None" })
    }
}

impl LockOwner {
    pub(super) fn party(&self) -> Party {
        Party { serial: self.serial, tag: self.tag(), id: self.txn() }
    }
}

impl Waiter {
    pub(super) fn wanted(&self) -> Wanted {
        Wanted { on: self.on(), mode: self.mode }
    }
}

impl LockTable {
    /// Sets the callback that is called with each wait from now on; `None` removes it.
    pub fn set_on_wait(&self, told: Option<OnWait>) {
        let before = std::mem::replace(&mut *self.observer.write(), WaitObserver(told));
        // Its drop may run any code: not with the lock held.
        drop(before);
    }

    /// Calls the callback with a wait that has begun, unless it has ended by now. No mutex is held.
    pub(super) fn tell_of(&self, waiter: &Arc<Waiter>) {
        let told = self.observer.read().0.clone();
        let Some(told) = told else { return };
        if let Some(info) = self.wait_info(waiter) {
            told(&info);
        }
    }

    /// Describes a wait; `None` if it has ended.
    fn wait_info(&self, waiter: &Arc<Waiter>) -> Option<WaitInfo> {
        let (mut holders, mut modes): (Vec<Party>, Vec<Option<Mode>>) = (Vec::new(), Vec::new());
        // A server that must know who waits for whom is told only once, so it gets all blockers, not only the
        // nearest.
        let blockers = match waiter.queue {
            WaitQueue::Point { .. } => self.points.all_blockers(waiter),
            WaitQueue::Tree { .. } => self.blockers(waiter),
        };
        for holder in blockers {
            let party = holder.party();
            if !holders.contains(&party) {
                holders.push(party);
                modes.push(self.mode_held(&holder, waiter));
            }
        }
        let waited = self.config.clock.now().saturating_sub(waiter.since);
        let info = WaitInfo { waiter: waiter.owner.party(), wanted: waiter.wanted(), holders, modes, waited };
        (waiter.cell.is_waiting() && !info.holders.is_empty()).then_some(info)
    }

    /// How `owner` has locked what `waiter` waits for; `None` if it has not.
    fn mode_held(&self, owner: &LockOwner, waiter: &Waiter) -> Option<Mode> {
        match waiter.queue {
            WaitQueue::Point { hash } => self.points.mode_of(owner, hash),
            WaitQueue::Tree { .. } => self.ranges.mode_of(owner, &waiter.request()?),
        }
    }

    /// The transactions that wait for a lock now, roughly in the order in which they began.
    #[must_use]
    pub fn lock_waits(&self) -> Vec<WaitInfo> {
        let waiters = self.graph.lock().waiters();
        let mut waits: Vec<WaitInfo> = waiters.iter().filter_map(|waiter| self.wait_info(waiter)).collect();
        waits.sort_by_key(|wait| wait.waiter.serial);
        waits
    }

    /// The transactions that write, or have or want locks now, roughly in the order in which they began.
    #[must_use]
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        let waiters = self.graph.lock().waiters();
        let wanted = |owner: &LockOwner| {
            let waiter = waiters.iter().find(|waiter| waiter.owner.serial == owner.serial);
            waiter.filter(|waiter| waiter.cell.is_waiting()).map(|waiter| waiter.wanted())
        };
        let mut owners = self.owners.all();
        owners.extend(waiters.iter().map(|waiter| waiter.owner.clone()));
        owners.sort_by_key(|owner| owner.serial);
        owners.dedup_by_key(|owner| owner.serial);
        let info = |owner: &Arc<LockOwner>| TransactionInfo {
            who: owner.party(),
            changes: owner.weight(),
            locked_keys: owner.points(),
            waits_for: wanted(owner),
            is_victim: owner.is_doomed(),
            is_prepared: false,
        };
        owners.iter().map(info).collect()
    }

    /// The last deadlock that was broken.
    #[must_use]
    pub fn last_deadlock(&self) -> Option<DeadlockInfo> {
        self.graph.lock().last_deadlock.clone()
    }
}
