//! Who waits for whom, for people and for programs that order transactions themselves.
//!
//! 1. Reports are of one moment, and cost the transactions that do not wait nothing: they are put together from what the table keeps anyway.
//! 2. The callback of waits is called by the thread that is about to wait, with no mutex and no latch held, after the wait has begun: what it does
//!    about the holders can end the wait at once.
//! 3. The last deadlock is remembered with the graph's mutex held, when a victim is chosen.

use super::LockTable;
use super::Mode;
use super::owner::LockOwner;
use super::wait::Waiter;
use crate::error::LockedOn;
use crate::format::TxnId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A transaction, as others know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Party {
    /// Unique among the transactions since the database was opened, those included that have no id.
    pub serial: u64,
    /// The tag that its caller gave it; 0 if none.
    pub tag: u64,
    /// Its id; [`TxnId::NONE`] before its first change.
    pub id: TxnId,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.id)?;
        if self.tag == 0 { Ok(()) } else { write!(f, " (tag {})", self.tag) }
    }
}

/// A transaction that writes, or holds or wants locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionInfo {
    /// Which.
    pub who: Party,
    /// The changes that it has made: of a cycle of waits the transaction with the fewest gives way.
    pub changes: u64,
    /// The keys that it has locked. Rows that it wrote and nobody asked for, and ranges, are not among them.
    pub locked_keys: usize,
    /// What it waits for now.
    pub waits_for: Option<Wanted>,
    /// It was chosen to give way in a deadlock, and is to be rolled back.
    pub is_victim: bool,
}

/// What a transaction waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The key, or the first key of a range.
    pub on: LockedOn,
    /// How it is to be locked; a change wants it exclusively.
    pub mode: Mode,
}

/// A transaction that waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitInfo {
    /// Who waits.
    pub waiter: Party,
    /// For what.
    pub wanted: Wanted,
    /// For whom: those that hold it, and those that came before the waiter and want it too. Of the latter only the nearest is named if it wants it
    /// exclusively: it waits for the rest itself.
    pub holders: Vec<Party>,
    /// How long by now.
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

/// A cycle of waits that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadlockInfo {
    /// Each waits for what the next one holds, the last for what the first holds.
    pub parties: Vec<(Party, Wanted)>,
    /// Which of them gave way.
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

/// What is told of waits that begin.
pub type OnWait = Arc<dyn Fn(&WaitInfo) + Send + Sync>;

/// The callback, if there is one.
#[derive(Default)]
pub(super) struct Told(pub(super) Option<OnWait>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Told" } else { "Nobody" })
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
    /// Has `told` called with each wait that begins from now on; nothing, with `None`.
    pub fn set_on_wait(&self, told: Option<OnWait>) {
        let before = std::mem::replace(&mut *self.told.write(), Told(told));
        // What it owns may be anything: not with the lock held.
        drop(before);
    }

    /// Tells of a wait that has begun, unless it has ended by now. No mutex is held.
    pub(super) fn tell_of(&self, waiter: &Arc<Waiter>) {
        let told = self.told.read().0.clone();
        let Some(told) = told else { return };
        if let Some(info) = self.wait_info(waiter) {
            told(&info);
        }
    }

    /// `None` when it waits no longer.
    fn wait_info(&self, waiter: &Arc<Waiter>) -> Option<WaitInfo> {
        let mut holders: Vec<Party> = Vec::new();
        for holder in self.blockers(waiter) {
            let party = holder.party();
            if !holders.contains(&party) {
                holders.push(party);
            }
        }
        let waited = self.config.clock.now().saturating_sub(waiter.since);
        let info = WaitInfo { waiter: waiter.owner.party(), wanted: waiter.wanted(), holders, waited };
        (waiter.cell.is_waiting() && !info.holders.is_empty()).then_some(info)
    }

    /// Those that wait for a lock now, in the order in which they began their transactions.
    #[must_use]
    pub fn lock_waits(&self) -> Vec<WaitInfo> {
        let waiters = self.graph.lock().waiters();
        let mut waits: Vec<WaitInfo> = waiters.iter().filter_map(|waiter| self.wait_info(waiter)).collect();
        waits.sort_by_key(|wait| wait.waiter.serial);
        waits
    }

    /// Those that write, or have or want locks now, in the order in which they began.
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
        };
        owners.iter().map(info).collect()
    }

    /// The last cycle of waits that was broken.
    #[must_use]
    pub fn last_deadlock(&self) -> Option<DeadlockInfo> {
        self.graph.lock().last_deadlock.clone()
    }
}
