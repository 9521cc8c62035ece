//! Runs of dead rows, so that scans do not read each of these rows again.
//!
//! 1. A run is an interval of keys of one tree, `lo <= key < hi`. Every entry in it is marked deleted, and
//!    every reader that the run serves ([`For`]) sees its deletion. So these readers find no row in it.
//! 2. A run is added for keys of one leaf, with that leaf latched. Before a transaction puts a row where there was
//!    none, it cuts the row's key out of all runs, with the leaf latched exclusively; only then does it request locks.
//!    So a scan that has locked an interval and then finds it in a run has missed no row: an insertion that requested
//!    its lock earlier has already cut the run, and a later one is refused. Apart from insertions, only the rollback of
//!    a deletion brings a row back: a transaction removes its own runs before it undoes anything.
//! 3. Purge, splits, merges and compaction do not affect runs: a run is keys, not positions.
//! 4. Runs are hints in memory: removing one costs time, never rows. A tree has at most [`RUNS_MAX`] runs,
//!    and removes those that are no longer used.
//! 5. The mutex is taken under a page latch, and held only to search [`RUNS_MAX`] runs. No other lock is
//!    taken under it.

use crate::btree::{Entry, Node};
use crate::error::Result;
use crate::format::TxnId;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most runs of a tree.
const RUNS_MAX: usize = 32;
/// A run is removed when this many insertions have checked it and no scan has used it in between.
const IDLE_MAX: u32 = 20_000;

/// What a scan sees of dead rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    /// The scan's transaction, which sees its own deletions.
    pub(super) me: TxnId,
    /// The serial number of its view; `None` if it reads the latest versions.
    pub(super) view: Option<u64>,
    /// Whether it locks what it finds.
    pub(super) locks: bool,
}

/// The readers that may skip a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Views with this serial number or a later one, and readers of the latest versions: the deletions are
    /// committed.
    Views(u64),
    /// Views with this serial number or a later one, and reads of the latest versions, of the transaction that made
    /// some of the deletions and has not ended. At read committed it can have several views; the older ones may not see
    /// the other deletions.
    Only(TxnId, u64),
    /// The locking scans of that transaction: its snapshot may be older than the other deletions.
    OnlyLocking(TxnId),
}

impl For {
    fn serves(self, sight: Sight) -> bool {
        match self {
            Self::Views(serial) => sight.view.is_none_or(|view| view >= serial),
            Self::Only(txn, serial) => txn == sight.me && sight.view.is_none_or(|view| view >= serial),
            Self::OnlyLocking(txn) => txn == sight.me && sight.locks,
        }
    }

    fn is_only(self, txn: TxnId) -> bool {
        matches!(self, Self::Only(of, _) | Self::OnlyLocking(of) if of == txn)
    }
}

#[derive(Debug)]
struct Run {
    lo: Vec<u8>,
    /// `None`: no upper bound.
    hi: Option<Vec<u8>>,
    serves: For,
    /// Checks by insertions since it was last used.
    idle: u32,
}

/// Whether `end` is at `key` or above it.
fn reaches(end: Option<&Vec<u8>>, key: &[u8]) -> bool {
    end.is_none_or(|end| end.as_slice() >= key)
}

/// Whether `next` is the least key above `key`.
fn follows(next: &[u8], key: &[u8]) -> bool {
    next.split_last().is_some_and(|(&last, head)| last == 0 && head == key)
}

fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl Run {
    /// Whether a scan that continues from `from` starts inside the run.
    fn holds(&self, from: Bound<&[u8]>, forward: bool) -> bool {
        let (lo, hi) = (self.lo.as_slice(), self.hi.as_ref());
        let above = |key: &[u8]| hi.is_none_or(|hi| hi.as_slice() > key);
        match (forward, from) {
            (true, Bound::Unbounded) => lo.is_empty(),
            (true, Bound::Included(key)) => lo <= key && above(key),
            (true, Bound::Excluded(key)) => {
                (lo <= key || follows(lo, key)) && above(key) && hi.is_none_or(|hi| !follows(hi, key))
            }
            (false, Bound::Unbounded) => hi.is_none(),
            (false, Bound::Included(key)) => lo <= key && above(key),
            (false, Bound::Excluded(key)) => lo < key && reaches(hi, key),
        }
    }

    /// Whether it overlaps or touches an interval.
    fn meets(&self, lo: &[u8], hi: Option<&Vec<u8>>) -> bool {
        reaches(self.hi.as_ref(), lo) && reaches(hi, &self.lo)
    }

    fn covers(&self, lo: &[u8], hi: Option<&Vec<u8>>) -> bool {
        self.lo.as_slice() <= lo
            && match (&self.hi, hi) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(mine), Some(hi)) => mine >= hi,
            }
    }

    fn grow(&mut self, lo: Vec<u8>, hi: Option<Vec<u8>>) {
        if lo < self.lo {
            self.lo = lo;
        }
        self.hi = match (self.hi.take(), hi) {
            (Some(mine), Some(hi)) => Some(mine.max(hi)),
            _ => None,
        };
    }
}

/// The interval of the dead entries at `slots` of a leaf, and whether one of the deletions is the
/// transaction's own. With `grow` it includes the dead entries next to them. `is_dead` returns `None` for an
/// entry that is not dead, otherwise whether its deletion is the transaction's own.
pub(super) fn stretch(
    node: &Node<'_>,
    slots: Range<usize>,
    grow: bool,
    mut is_dead: impl FnMut(&Entry<'_>) -> Option<bool>,
) -> Result<(Vec<u8>, Option<Vec<u8>>, bool)> {
    let (mut first, mut end, mut own) = (slots.start, slots.start, false);
    let most = if grow { node.count() } else { slots.end };
    while end < most {
        let Some(mine) = is_dead(&node.entry(end)?) else { break };
        own |= mine;
        end += 1;
    }
    while grow && first > 0 {
        let Some(mine) = is_dead(&node.entry(first - 1)?) else { break };
        own |= mine;
        first -= 1;
    }
    let lo = if first == 0 { node.lower().to_vec() } else { after(&node.key(first - 1)?) };
    let hi = if end == node.count() { node.upper().map(<[u8]>::to_vec) } else { Some(node.key(end)?) };
    Ok((lo, hi, own))
}

/// Where a scan continues after dead rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Beyond {
    /// Forward: at this key or a larger one. Backward: below this key.
    Key(Vec<u8>),
    /// Nowhere: there are no more rows.
    End,
}

/// The runs of a tree.
#[derive(Debug, Default)]
pub(super) struct Dead {
    count: AtomicUsize,
    /// The least recently used first.
    runs: Mutex<Vec<Run>>,
}

impl Dead {
    /// Whether there are none. With a leaf latched exclusively the answer is exact for its keys: a run over
    /// them is only added under its latch.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Run>) -> T) -> T {
        let mut runs = self.runs.lock();
        let answer = change(&mut runs);
        self.count.store(runs.len(), Ordering::Release);
        answer
    }

    /// Adds a run of keys of one leaf, which is latched.
    pub(super) fn add(&self, lo: Vec<u8>, hi: Option<Vec<u8>>, serves: For) {
        self.change(|runs| insert(runs, lo, hi, serves));
    }

    /// Where a scan that continues from `from` goes next, if it starts in a run.
    pub(super) fn beyond(&self, from: Bound<&[u8]>, forward: bool, sight: Sight) -> Option<Beyond> {
        if self.is_empty() {
            return None;
        }
        let mut runs = self.runs.lock();
        let mut found: Option<Beyond> = None;
        loop {
            let from = match &found {
                None => from,
                Some(Beyond::Key(key)) if forward => Bound::Included(key.as_slice()),
                Some(Beyond::Key(key)) => Bound::Excluded(key.as_slice()),
                Some(Beyond::End) => return found,
            };
            let inside = |run: &Run| run.serves.serves(sight) && run.holds(from, forward);
            let Some(at) = runs.iter().position(inside) else { return found };
            // The run moves to the end, so that the least recently used ones are in front.
            if at + 1 < runs.len() {
                let run = runs.remove(at);
                runs.push(run);
            }
            let run = runs.last_mut().expect("one was found");
            run.idle = 0;
            found = Some(match (forward, &run.hi) {
                (true, Some(hi)) => Beyond::Key(hi.clone()),
                (false, _) if !run.lo.is_empty() => Beyond::Key(run.lo.clone()),
                _ => Beyond::End,
            });
        }
    }

    /// Called before a row is put where there may be none, with its leaf latched exclusively, before locks
    /// are requested.
    #[inline]
    pub(super) fn revive(&self, key: &[u8]) {
        if !self.is_empty() {
            self.cut(key);
        }
    }

    #[cold]
    fn cut(&self, key: &[u8]) {
        self.change(|runs| {
            let mut split: SmallVec<[Run; 2]> = SmallVec::new();
            runs.retain_mut(|run| {
                if !run.holds(Bound::Included(key), true) {
                    run.idle += 1;
                    return run.idle < IDLE_MAX;
                }
                // Of a run without an upper bound, the part above the key is not kept: appended rows would
                // cut it again and again.
                let above = run.hi.take().filter(|hi| !follows(hi, key));
                if let Some(hi) = above {
                    split.push(Run { lo: after(key), hi: Some(hi), serves: run.serves, idle: 0 });
                }
                run.hi = Some(key.to_vec());
                run.lo.as_slice() < key
            });
            for run in split {
                insert(runs, run.lo, run.hi, run.serves);
            }
        });
    }

    /// Removes the runs of `txn`, which undoes some of its changes.
    pub(super) fn forget(&self, txn: TxnId) {
        self.change(|runs| runs.retain(|run| !run.serves.is_only(txn)));
    }

    /// Lets the runs of `txn`, which has committed, serve all views from this serial number on: these see the
    /// commit.
    pub(super) fn committed(&self, txn: TxnId, serial: u64) {
        self.change(|runs| {
            let of_txn = |run: &Run| run.serves.is_only(txn);
            while let Some(at) = runs.iter().position(of_txn) {
                let run = runs.remove(at);
                insert(runs, run.lo, run.hi, For::Views(serial));
            }
        });
    }
}

/// Adds an interval. If it meets a run that serves the same readers or older views, that run is extended, and
/// serves the newer views. Of several such runs the one for the newest views is extended, so that an old view
/// keeps the runs that it has found.
fn insert(runs: &mut Vec<Run>, lo: Vec<u8>, hi: Option<Vec<u8>>, serves: For) {
    if hi.as_ref().is_some_and(|hi| *hi <= lo) {
        return;
    }
    let rank = |run: &Run| match (run.serves, serves) {
        (of, _) if of == serves => Some(u64::MAX),
        (For::Views(of), For::Views(serial)) if of <= serial => Some(of),
        (For::Only(other, of), For::Only(txn, serial)) if other == txn && of <= serial => Some(of),
        _ => None,
    };
    if runs.iter().any(|run| rank(run).is_some() && run.covers(&lo, hi.as_ref())) {
        return;
    }
    let meets = |run: &Run| rank(run).filter(|_| run.meets(&lo, hi.as_ref()));
    let best = runs.iter().enumerate().filter_map(|(at, run)| meets(run).map(|rank| (rank, at))).max();
    let mut run = match best {
        Some((_, at)) => {
            let mut run = runs.remove(at);
            run.grow(lo, hi);
            run.serves = serves;
            run
        }
        None => Run { lo, hi, serves, idle: 0 },
    };
    // It may have closed the gap to another run.
    while let Some(at) = runs.iter().position(|other| other.serves == serves && other.meets(&run.lo, run.hi.as_ref())) {
        let other = runs.remove(at);
        run.grow(other.lo, other.hi);
    }
    if runs.len() >= RUNS_MAX {
        runs.remove(0);
    }
    runs.push(run);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Add(u8, Option<u8>, For),
        Revive(u8),
        Forget(u64),
        Committed(u64, u64),
        Ask(u8, bool, bool, Sight),
    }

    fn serves() -> impl Strategy<Value = For> {
        prop_oneof![
            (0..6u64).prop_map(For::Views),
            (1..3u64, 0..6u64).prop_map(|(txn, serial)| For::Only(TxnId(txn), serial)),
            (1..3u64).prop_map(|txn| For::OnlyLocking(TxnId(txn))),
        ]
    }

    fn sight() -> impl Strategy<Value = Sight> {
        (0..3u64, prop::option::of(0..6u64), any::<bool>()).prop_map(|(me, view, locks)| Sight {
            me: TxnId(me),
            view: view.filter(|_| !locks),
            locks,
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..40u8, prop::option::weighted(0.9, 0..10u8), serves())
                .prop_map(|(lo, len, serves)| Step::Add(lo, len.map(|len| lo + len), serves)),
            2 => (0..50u8).prop_map(Step::Revive),
            1 => (1..3u64).prop_map(Step::Forget),
            1 => (1..3u64, 6..9u64).prop_map(|(txn, serial)| Step::Committed(txn, serial)),
            6 => (0..50u8, any::<bool>(), any::<bool>(), sight())
                .prop_map(|(from, included, forward, sight)| Step::Ask(from, included, forward, sight)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        /// No scan passes over a key that is not known to be dead for it.
        #[test]
        fn only_what_is_dead_is_passed_over(steps in prop::collection::vec(step(), 1..60)) {
            let dead = Dead::default();
            // Keys of one byte, and the readers that each is dead for.
            let mut known: Vec<(u8, For)> = Vec::new();
            for step in steps {
                match step {
                    Step::Add(lo, hi, serves) => {
                        dead.add(vec![lo], hi.map(|hi| vec![hi]), serves);
                        known.extend((lo..hi.unwrap_or(u8::MAX)).map(|key| (key, serves)));
                    }
                    Step::Revive(key) => {
                        dead.revive(&[key]);
                        known.retain(|&(at, _)| at != key);
                    }
                    Step::Forget(txn) => {
                        dead.forget(TxnId(txn));
                        known.retain(|(_, serves)| !serves.is_only(TxnId(txn)));
                    }
                    Step::Committed(txn, serial) => {
                        dead.committed(TxnId(txn), serial);
                        for (_, serves) in known.iter_mut().filter(|(_, serves)| serves.is_only(TxnId(txn))) {
                            *serves = For::Views(serial);
                        }
                    }
                    Step::Ask(from, included, forward, sight) => {
                        let bound = [from];
                        let bound: Bound<&[u8]> = if included { Bound::Included(&bound) } else { Bound::Excluded(&bound) };
                        // A bound of several bytes lies above the key of its first byte.
                        let least = |key: &[u8]| key[0] + u8::from(key.len() > 1);
                        let passed: Vec<u8> = match dead.beyond(bound, forward, sight) {
                            None => continue,
                            Some(Beyond::Key(key)) if forward => (from + u8::from(!included)..least(&key)).collect(),
                            Some(Beyond::End) if forward => (from + u8::from(!included)..60).collect(),
                            Some(Beyond::Key(key)) => (least(&key)..from + u8::from(included)).collect(),
                            Some(Beyond::End) => (0..from + u8::from(included)).collect(),
                        };
                        for key in passed {
                            let is_known = known.iter().any(|&(at, serves)| at == key && serves.serves(sight));
                            prop_assert!(is_known, "{} is not dead for {:?}", key, sight);
                        }
                    }
                }
                prop_assert!(dead.runs.lock().len() <= RUNS_MAX);
                prop_assert_eq!(dead.is_empty(), dead.runs.lock().is_empty());
            }
        }
    }

    #[test]
    fn neighbours_become_one_run() {
        let (dead, sight) = (Dead::default(), Sight { me: TxnId::NONE, view: Some(9), locks: false });
        for leaf in 0..100u8 {
            dead.add(vec![leaf], Some(vec![leaf + 1]), For::Views(u64::from(leaf / 20)));
        }
        assert_eq!(dead.runs.lock().len(), 1);
        assert_eq!(dead.beyond(Bound::Included(&[0]), true, sight), Some(Beyond::Key(vec![100])));
        assert_eq!(dead.beyond(Bound::Excluded(&[100]), false, sight), Some(Beyond::Key(vec![0])));
        assert_eq!(dead.beyond(Bound::Excluded(&[0]), false, sight), None);
        // An insertion beyond the last dead row leaves the run as it is, one in it cuts it.
        dead.revive(&[100]);
        dead.revive(&[50]);
        assert_eq!(dead.beyond(Bound::Included(&[0]), true, sight), Some(Beyond::Key(vec![50])));
        assert_eq!(dead.beyond(Bound::Included(&[50]), true, sight), None, "the key itself lives");
        assert_eq!(dead.beyond(Bound::Excluded(&[50]), true, sight), Some(Beyond::Key(vec![100])), "right behind it");
        assert_eq!(dead.beyond(Bound::Included(&[51]), true, sight), Some(Beyond::Key(vec![100])));
        assert_eq!(dead.beyond(Bound::Included(&[0]), true, Sight { view: Some(3), ..sight }), None);
    }

    #[test]
    fn a_run_that_is_only_looked_at_is_forgotten() {
        let dead = Dead::default();
        dead.add(Vec::new(), Some(vec![1]), For::Views(1));
        for _ in 0..IDLE_MAX {
            dead.revive(&[9]);
        }
        assert!(dead.is_empty());
    }
}
