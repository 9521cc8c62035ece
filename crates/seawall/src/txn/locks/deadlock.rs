//! Cycles of waits.
//!
//! 1. Only waits and reports take this mutex: a waiter enters, searches, and leaves under it. No latch is
//!    held then, so it may come before every other lock here.
//! 2. The edges are not stored: they lead from a waiter to the owners that block it *now*, as its queue
//!    shows. An owner that does not wait has no edge. So only a wait that begins can close a cycle, and it
//!    searches for one. An edge that appears later between two waiters (a lock granted to an owner ahead of
//!    waiting ones) repeats an earlier edge. The one exception is a row lock that is made explicit at a point
//!    where waiters queue for another key with the same hash: then the next search begins from every waiter.
//! 3. A waiter that has its answer does not wait, though it may not have left yet.
//! 4. The victim of a cycle is the owner with the least weight, among equals the youngest. If it was answered
//!    in between, the search starts over. The shortest cycle is broken first: owners that only queue for a lock,
//!    ahead of one that also waits for the lock's holder, lie on longer cycles, which end with it.

use super::LockTable;
use super::cell::Outcome;
use super::owner::LockOwner;
use super::report::DeadlockInfo;
use super::wait::Waiter;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The waiters, by the serial number of their owner.
#[derive(Debug, Default)]
pub(super) struct Graph {
    waiting: HashMap<u64, Arc<Waiter>>,
    pub(super) last_deadlock: Option<DeadlockInfo>,
}

impl Graph {
    pub(super) fn enter(&mut self, waiter: &Arc<Waiter>) {
        let before = self.waiting.insert(waiter.owner.serial, waiter.clone());
        debug_assert!(before.is_none(), "an owner waits for one thing at a time");
    }

    pub(super) fn leave(&mut self, owner: &LockOwner) {
        self.waiting.remove(&owner.serial);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn waiters(&self) -> Vec<Arc<Waiter>> {
        self.waiting.values().cloned().collect()
    }
}

impl LockTable {
    /// Breaks every cycle that `start`, which has just entered, has closed.
    pub(super) fn break_cycles(&self, graph: &mut Graph, start: &Arc<Waiter>) {
        let blockers = self.blockers(start);
        // One that has decided meanwhile is not among them, or decides before it can see that it is contended.
        let mut may_go_on = blockers.is_empty();
        for blocker in blockers {
            blocker.contend();
            may_go_on |= blocker.gives_way_to(&start.owner);
        }
        if may_go_on {
            self.look_again(start);
        }
        if self.search_all.swap(false, Ordering::AcqRel) {
            for waiter in graph.waiters() {
                self.break_cycles_of(graph, &waiter);
            }
        } else if start.owner.is_contended() {
            self.break_cycles_of(graph, start);
        }
        // Otherwise no owner waits for `start`, and it is in no cycle. The common case costs no search:
        // owners that hold nothing queue for one row.
    }

    fn break_cycles_of(&self, graph: &mut Graph, start: &Arc<Waiter>) {
        while start.cell.is_waiting() {
            let Some(cycle) = self.find_cycle(graph, start) else { return };
            if !cycle.iter().all(|waiter| waiter.cell.is_waiting()) {
                continue;
            }
            let weakest =
                (0..cycle.len()).min_by_key(|&at| (cycle[at].owner.weight(), u64::MAX - cycle[at].owner.serial));
            let Some(at) = weakest else { return };
            let victim = &cycle[at];
            let waits_for = cycle[(at + 1) % cycle.len()].owner.txn();
            if victim.cell.settle(Outcome::DeadlockVictim { waits_for }) {
                victim.owner.doom();
                let parties = cycle.iter().map(|waiter| (waiter.owner.party(), waiter.wanted())).collect();
                graph.last_deadlock = Some(DeadlockInfo { parties, victim: at });
                self.deadlocks.fetch_add(1, Ordering::Relaxed);
                victim.cell.wake();
            }
        }
    }

    /// A shortest cycle through `start` (breadth-first search): each waiter waits for the next, the last for the first.
    fn find_cycle(&self, graph: &Graph, start: &Arc<Waiter>) -> Option<Vec<Arc<Waiter>>> {
        let mut seen = HashSet::new();
        // Each with the place of the one that waits for it.
        let mut reached = vec![(start.clone(), 0)];
        let mut at = 0;
        while at < reached.len() {
            for owner in self.blockers(&reached[at].0) {
                if owner.serial == start.owner.serial {
                    let mut cycle = vec![reached[at].0.clone()];
                    while at > 0 {
                        at = reached[at].1;
                        cycle.push(reached[at].0.clone());
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if seen.insert(owner.serial) {
                    let next = graph.waiting.get(&owner.serial).filter(|next| next.cell.is_waiting());
                    reached.extend(next.map(|next| (next.clone(), at)));
                }
            }
            at += 1;
        }
        None
    }
}
