//! The table against plain lists of what each owner has, one step at a time.

use super::super::cell::Outcome;
use super::super::wait::{WaitQueue, Waiter};
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

const OWNERS: usize = 5;

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(S), Just(X)]
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Point(usize, u8, Mode),
    Write(usize, u8),
    Briefly(usize, u8, Mode),
    Range(usize, u8, u8, Mode),
    /// A range that ends at a row.
    RangeTo(usize, u8, u8, Mode),
    Convert(usize),
    Statement(usize),
    Unlock(usize, u8),
    /// Its commit is in the log.
    Decide(usize),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let owner = 0..OWNERS;
    let key = 0..24_u8;
    prop_oneof![
        6 => (owner.clone(), key.clone(), mode()).prop_map(|(owner, key, mode)| Step::Point(owner, key, mode)),
        3 => (owner.clone(), key.clone()).prop_map(|(owner, key)| Step::Write(owner, key)),
        2 => (owner.clone(), key.clone(), mode()).prop_map(|(owner, key, mode)| Step::Briefly(owner, key, mode)),
        3 => (owner.clone(), key.clone(), 0..6_u8, mode()).prop_map(|(owner, lo, len, mode)| Step::Range(owner, lo, lo + len, mode)),
        3 => (owner.clone(), key.clone(), 0..6_u8, mode()).prop_map(|(owner, lo, len, mode)| Step::RangeTo(owner, lo, lo + len, mode)),
        1 => (0..24_usize).prop_map(Step::Convert),
        1 => owner.clone().prop_map(Step::Statement),
        4 => (owner.clone(), key).prop_map(|(owner, key)| Step::Unlock(owner, key)),
        1 => owner.clone().prop_map(Step::Decide),
        1 => owner.prop_map(Step::End),
    ]
}

/// The locks that an owner was granted: keys, and intervals of keys that include both ends.
#[derive(Debug, Default, Clone)]
struct Has {
    points: Vec<(u8, Mode)>,
    ranges: Vec<(u8, u8, Mode)>,
    /// Points that its statement took new, and used for nothing else.
    new: BTreeSet<u8>,
}

fn excludes(a: Mode, b: Mode) -> bool {
    a == X || b == X
}

impl Has {
    fn keeps_point_from(&self, key: u8, mode: Mode) -> bool {
        self.points.iter().any(|&(at, held)| at == key && excludes(held, mode))
            || self.ranges.iter().any(|&(lo, hi, held)| (lo..=hi).contains(&key) && excludes(held, mode))
    }

    fn keeps_range_from(&self, lo: u8, hi: u8, mode: Mode) -> bool {
        self.ranges.iter().any(|&(from, to, held)| from <= hi && lo <= to && excludes(held, mode))
    }
}

/// A table, its owners, and what the model says that they have.
struct Locked {
    table: LockTable,
    owners: Vec<Arc<LockOwner>>,
    has: Vec<Has>,
    /// Rows that an owner has changed: it holds them without an entry.
    rows: BTreeMap<u8, usize>,
    /// Those whose locks others may take over.
    decided: BTreeSet<usize>,
    /// The table refuses nothing that the model grants.
    exact: bool,
    next: u64,
}

type Checked = Result<(), TestCaseError>;

impl Locked {
    fn owner(&mut self) -> Arc<LockOwner> {
        self.next += 1;
        self.table.txn(self.next)
    }

    /// Whether another owner keeps `me` from what `keeps` tells.
    fn is_taken(&self, me: usize, keeps: impl Fn(&Has) -> bool) -> bool {
        let has = |(other, has)| other != me && !self.decided.contains(&other) && keeps(has);
        self.has.iter().enumerate().any(has)
    }

    /// Checks that `me`, which was granted something, follows the decided owners that would have kept it away.
    fn follows(&self, me: usize, keeps: impl Fn(&Has) -> bool) -> Checked {
        let follows = self.owners[me].follows();
        for &other in self.decided.iter().filter(|&&other| other != me && keeps(&self.has[other])) {
            prop_assert!(follows.iter().any(|one| Arc::ptr_eq(one, &self.owners[other])), "it does not follow");
            prop_assert!(self.owners[me].is_follower());
        }
        Ok(())
    }

    /// Checks whether the row's writer keeps `me` away; returns whether it does, or is `me`.
    fn is_written(&mut self, me: usize, key: u8) -> Result<bool, TestCaseError> {
        let Some(&writer) = self.rows.get(&key) else { return Ok(false) };
        if writer == me {
            return Ok(true);
        }
        let converted = self.table.convert(self.owners[writer].txn(), &self.owners[me], TREE, &[key]);
        if self.decided.contains(&writer) {
            prop_assert!(matches!(converted, Converted::Gone));
            prop_assert!(self.owners[me].follows().iter().any(|one| Arc::ptr_eq(one, &self.owners[writer])));
            return Ok(false);
        }
        prop_assert!(matches!(converted, Converted::Held(_)));
        self.has[writer].points.push((key, X));
        Ok(true)
    }

    fn holds(&self, me: usize, key: u8) -> bool {
        self.table.holds(&self.owners[me], TREE, &[key])
    }

    fn step(&mut self, step: &Step) -> Checked {
        if let Step::Point(me, ..)
        | Step::Write(me, ..)
        | Step::Briefly(me, ..)
        | Step::Range(me, ..)
        | Step::RangeTo(me, ..)
        | Step::Unlock(me, ..) = *step
        {
            if self.decided.contains(&me) {
                return Ok(());
            }
        }
        match *step {
            Step::Point(me, key, mode) => self.point(me, key, mode),
            Step::Write(me, key) => self.write(me, key),
            Step::Briefly(me, key, mode) => self.briefly(me, key, mode),
            Step::Range(me, lo, hi, mode) => self.range(me, lo, hi, mode),
            Step::RangeTo(me, lo, hi, mode) => self.range_to(me, lo, hi, mode),
            Step::Convert(pick) => self.convert(pick),
            Step::Statement(me) => {
                self.owners[me].next_statement();
                self.has[me].new.clear();
                Ok(())
            }
            Step::Unlock(me, key) => self.unlock(me, key),
            Step::Decide(me) => {
                self.table.decide(&self.owners[me], FLUSHED);
                self.decided.insert(me);
                Ok(())
            }
            Step::End(me) => {
                self.table.release_all(&self.owners[me]);
                self.rows.retain(|_, writer| *writer != me);
                self.decided.remove(&me);
                self.owners[me] = self.owner();
                self.has[me] = Has::default();
                Ok(())
            }
        }
    }

    fn point(&mut self, me: usize, key: u8, mode: Mode) -> Checked {
        if self.is_written(me, key)? {
            if self.rows[&key] != me {
                prop_assert!(self.table.try_point(&self.owners[me], TREE, &[key], mode).is_err());
            }
            return Ok(());
        }
        let keeps = |has: &Has| has.keeps_point_from(key, mode);
        let (taken, had) = (self.is_taken(me, keeps), self.holds(me, key));
        let answer = self.table.try_new_point(&self.owners[me], TREE, &[key], mode);
        prop_assert!(!(answer.is_ok() && taken), "it was granted");
        prop_assert!(!self.exact || answer.is_ok() != taken, "it was refused");
        if let Ok(new) = answer {
            self.follows(me, keeps)?;
            prop_assert!(!self.exact || new == (self.holds(me, key) && !had), "it took what it had");
            if new {
                self.has[me].new.insert(key);
            } else {
                self.has[me].new.remove(&key);
            }
            self.has[me].points.push((key, mode));
        }
        Ok(())
    }

    fn write(&mut self, me: usize, key: u8) -> Checked {
        if self.is_written(me, key)? {
            return Ok(());
        }
        let keeps = |has: &Has| has.keeps_point_from(key, X);
        let taken = self.is_taken(me, keeps);
        let answer = self.table.check_write(&self.owners[me], TREE, &[key]);
        prop_assert!(!(answer.is_ok() && taken), "it was granted");
        prop_assert!(!self.exact || answer.is_ok() != taken, "it was refused");
        if let Ok(has_point) = answer {
            self.follows(me, keeps)?;
            self.rows.insert(key, me);
            self.has[me].new.remove(&key);
            if has_point {
                self.table.written(&self.owners[me], TREE, &[key]);
                prop_assert!(!self.exact || !self.holds(me, key), "the row is the lock");
            }
        }
        Ok(())
    }

    fn briefly(&mut self, me: usize, key: u8, mode: Mode) -> Checked {
        if self.is_written(me, key)? {
            return Ok(());
        }
        let taken = self.is_taken(me, |has| has.keeps_point_from(key, mode));
        let before = self.table.stats().points;
        let answer = self.table.try_new_point(&self.owners[me], TREE, &[key], mode);
        prop_assert!(!(answer.is_ok() && taken), "it was granted");
        if let Ok(true) = answer {
            self.table.give_back(&self.owners[me], TREE, &[key]);
            prop_assert!(!self.exact || self.table.stats().points == before, "nothing is left");
        } else if answer.is_ok() {
            self.has[me].new.remove(&key);
            self.has[me].points.push((key, mode));
        }
        Ok(())
    }

    fn range(&mut self, me: usize, lo: u8, hi: u8, mode: Mode) -> Checked {
        let keeps = |has: &Has| has.keeps_range_from(lo, hi, mode);
        let taken = self.is_taken(me, keeps);
        let span = KeySpan::new(Included(&[lo]), Included(&[hi]));
        let answer = self.table.add_range(&LockRequest::span(&self.owners[me], TREE, &span, mode)).is_ok();
        prop_assert!(!(answer && taken), "it was granted");
        prop_assert!(!self.exact || answer != taken, "it was refused");
        if answer {
            self.follows(me, keeps)?;
            self.has[me].ranges.push((lo, hi, mode));
        }
        Ok(())
    }

    fn range_to(&mut self, me: usize, lo: u8, row: u8, mode: Mode) -> Checked {
        if self.is_written(me, row)? {
            if self.rows[&row] == me {
                self.table.add_own_row(&self.owners[me], TREE, &[row], mode);
                self.has[me].ranges.push((row, row, mode));
            }
            return Ok(());
        }
        let keeps = |has: &Has| has.keeps_range_from(lo, row, mode) || has.keeps_point_from(row, mode);
        let taken = self.is_taken(me, keeps);
        let (span, before) = (KeySpan::new(Included(&[lo]), Included(&[row])), self.table.stats().ranges);
        let request = LockRequest::span(&self.owners[me], TREE, &span, mode);
        let answer = self.table.add_range_to(&request, &[row]).is_ok();
        prop_assert!(!(answer && taken), "it was granted");
        prop_assert!(!self.exact || answer != taken, "it was refused");
        if answer {
            self.follows(me, keeps)?;
            self.has[me].ranges.push((lo, row, mode));
        } else {
            prop_assert_eq!(self.table.stats().ranges, before, "refused, it has locked something");
        }
        Ok(())
    }

    fn convert(&mut self, pick: usize) -> Checked {
        if let Some((&key, &writer)) = self.rows.iter().nth(pick % self.rows.len().max(1)) {
            let other = self.owner();
            let converted = self.table.convert(self.owners[writer].txn(), &other, TREE, &[key]);
            prop_assert_eq!(matches!(converted, Converted::Gone), self.decided.contains(&writer));
            if matches!(converted, Converted::Held(_)) {
                self.has[writer].points.push((key, X));
            }
            self.table.release_all(&other);
        }
        Ok(())
    }

    fn unlock(&mut self, me: usize, key: u8) -> Checked {
        let gone = self.table.give_back_of_statement(&self.owners[me], TREE, &[key]);
        let may = self.has[me].new.remove(&key);
        prop_assert!(!gone || may, "it gave back what was needed");
        prop_assert!(!self.exact || gone == may, "it kept what it may give back");
        if gone {
            prop_assert!(!self.exact || !self.holds(me, key));
            self.has[me].points.retain(|&(at, _)| at != key);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    /// With room for all points and ranges the answers are exact. Without room, or with colliding keys, the
    /// table may refuse more than the model, never less.
    #[test]
    fn what_is_locked_stays_locked(
        steps in prop::collection::vec(step(), 1..80),
        tight in any::<bool>(),
        point_max in 0..4_usize,
        range_max in 1..3_usize,
        mask in prop_oneof![3 => Just(u64::MAX), 1 => Just(3_u64)],
    ) {
        let mut config = LockConfig::new(Arc::new(SystemClock::default()));
        config.blocking = false;
        if tight {
            (config.point_max, config.range_max) = (point_max, range_max);
        }
        let mut table = LockTable::new(config);
        table.hash_mask = mask;
        let exact = !tight && mask == u64::MAX;
        let has = vec![Has::default(); OWNERS];
        let (rows, decided) = (BTreeMap::new(), BTreeSet::new());
        let mut locked = Locked { table, owners: Vec::new(), has, rows, decided, exact, next: 1 };
        for _ in 0..OWNERS {
            let owner = locked.owner();
            locked.owners.push(owner);
        }
        for step in &steps {
            locked.step(step).map_err(|why| TestCaseError::fail(format!("{step:?}: {why}")))?;
        }
        let stats = locked.table.stats();
        prop_assert!(!tight || stats.ranges <= OWNERS * 2 * range_max, "{:?}", stats);
        for owner in &locked.owners {
            locked.table.release_all(owner);
        }
        locked.table.assert_empty();
    }
}

#[derive(Debug, Clone, Copy)]
enum QueueStep {
    Point(usize, u8, Mode),
    Write(usize, u8),
    Range(usize, u8, u8, Mode),
    Whole(usize),
    GiveUp(usize),
    /// Its commit is in the log: it ends later, and requests nothing more.
    Decide(usize),
    End(usize),
}

fn queue_step() -> impl Strategy<Value = QueueStep> {
    let owner = 0..OWNERS;
    prop_oneof![
        6 => (owner.clone(), 0..4_u8, mode()).prop_map(|(owner, key, mode)| QueueStep::Point(owner, key, mode)),
        3 => (owner.clone(), 0..4_u8, 0..3_u8, mode()).prop_map(|(owner, lo, len, mode)| QueueStep::Range(owner, lo, lo + len, mode)),
        4 => (owner.clone(), 0..4_u8).prop_map(|(owner, key)| QueueStep::Write(owner, key)),
        1 => owner.clone().prop_map(QueueStep::Whole),
        1 => owner.clone().prop_map(QueueStep::GiveUp),
        2 => owner.clone().prop_map(QueueStep::Decide),
        2 => owner.prop_map(QueueStep::End),
    ]
}

/// The table and its owners, each of which may be in a queue, on one thread.
struct Queues {
    table: LockTable,
    owners: Vec<Arc<LockOwner>>,
    waiting: Vec<Option<Arc<Waiter>>>,
    /// Rows that an owner has changed.
    rows: BTreeMap<u8, usize>,
    next: u64,
}

impl Queues {
    fn new(tight: bool, hash_mask: u64) -> Self {
        let mut config = LockConfig::new(Arc::new(SystemClock::default()));
        if tight {
            (config.point_max, config.range_max) = (1, 1);
        }
        let mut table = LockTable::new(config);
        table.hash_mask = hash_mask;
        let owners = (1..=OWNERS as u64).map(|id| table.txn(id)).collect();
        Self { table, owners, waiting: vec![None; OWNERS], rows: BTreeMap::new(), next: OWNERS as u64 + 1 }
    }

    /// Requests as the callers do, `writes` to change the key; returns whether the request was granted.
    fn ask(&mut self, me: usize, request: &LockRequest<'_>, writes: bool) -> bool {
        let &LockRequest { owner, tree, keys, mode, .. } = request;
        let Keys::One(key) = keys else { return self.table.add_range(request).is_ok() };
        if let Some(&writer) = self.rows.get(&key[0]) {
            if writer == me
                || matches!(self.table.convert(self.owners[writer].txn(), owner, TREE, key), Converted::Held(_))
            {
                return writer == me;
            }
        }
        if !writes {
            return self.table.try_point(owner, tree, key, mode).is_ok();
        }
        let may = self.table.check_write(owner, tree, key);
        if let Ok(has_point) = may {
            self.rows.insert(key[0], me);
            if has_point {
                self.table.written(owner, tree, key);
            }
        }
        may.is_ok()
    }

    /// Does what `wait` does, except the waiting.
    fn begin_to_wait(&mut self, me: usize, request: &LockRequest<'_>) {
        let mut graph = self.table.graph.lock();
        if let Some(waiter) = self.table.enqueue(request) {
            graph.enter(&waiter);
            self.table.break_cycles(&mut graph, &waiter);
            self.waiting[me] = Some(waiter);
        }
    }

    fn end(&mut self, me: usize) {
        self.rows.retain(|_, writer| *writer != me);
        self.table.release_all(&self.owners[me]);
        self.owners[me] = self.table.txn(self.next);
        self.owners[me].set_patient(self.next % 3 == 0);
        self.next += 1;
    }

    /// Lets the owners with an answer act on it: the granted continue, the others end.
    fn settle(&mut self) {
        while let Some(me) = (0..OWNERS).find(|&me| self.waiting[me].as_ref().is_some_and(|one| !one.cell.is_waiting()))
        {
            let waiter = self.waiting[me].take().expect("just found");
            self.table.graph.lock().leave(&self.owners[me]);
            match waiter.cell.wait(sync::Instant::now(), || false) {
                Outcome::Granted => self.table.keep(&waiter),
                Outcome::DeadlockVictim { .. } | Outcome::TimedOut | Outcome::Interrupted => {
                    self.table.dequeue(&waiter);
                    self.end(me);
                }
            }
        }
    }

    /// Every blocker of each waiter.
    fn edges(&self) -> BTreeMap<u64, BTreeSet<u64>> {
        let waiters = self.waiting.iter().flatten();
        let all = |waiter: &Arc<Waiter>| match waiter.queue {
            WaitQueue::Point { .. } => {
                self.table.points.all_blockers(waiter).iter().map(|owner| owner.serial).collect()
            }
            WaitQueue::Tree { .. } => self.table.blockers(waiter).iter().map(|owner| owner.serial).collect(),
        };
        waiters.map(|waiter| (waiter.owner.serial, all(waiter))).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    /// After every step each waiter has a blocker that does not give way, and there is no cycle of waits; when all have
    /// ended nothing is left.
    #[test]
    fn no_owner_waits_for_nothing_or_in_a_circle(
        steps in prop::collection::vec(queue_step(), 1..80),
        weights in prop::collection::vec(0..3_u64, OWNERS),
        tight in any::<bool>(),
        mask in prop_oneof![2 => Just(u64::MAX), 1 => Just(1_u64)],
    ) {
        queue_up(steps, weights, tight, mask)?;
    }
}

fn queue_up(steps: Vec<QueueStep>, weights: Vec<u64>, tight: bool, mask: u64) -> Result<(), TestCaseError> {
    let mut queues = Queues::new(tight, mask);
    for (owner, weight) in queues.owners.iter().zip(weights) {
        owner.add_weight(weight);
    }
    for step in steps {
        let (QueueStep::GiveUp(me)
        | QueueStep::Decide(me)
        | QueueStep::End(me)
        | QueueStep::Point(me, ..)
        | QueueStep::Write(me, _)
        | QueueStep::Range(me, ..)
        | QueueStep::Whole(me)) = step;
        let owner = queues.owners[me].clone();
        let span = match &step {
            QueueStep::Range(_, lo, hi, _) => {
                KeySpan::new(Included(slice::from_ref(lo)), Included(slice::from_ref(hi)))
            }
            _ => KeySpan::default(),
        };
        let request = match &step {
            QueueStep::GiveUp(_) | QueueStep::Decide(_) | QueueStep::End(_) => None,
            QueueStep::Point(_, key, mode) => Some(LockRequest::key(&owner, TREE, slice::from_ref(key), *mode)),
            QueueStep::Write(_, key) => Some(LockRequest::key(&owner, TREE, slice::from_ref(key), X)),
            QueueStep::Range(.., mode) => Some(LockRequest::span(&owner, TREE, &span, *mode)),
            QueueStep::Whole(_) => Some(LockRequest::span(&owner, TREE, &span, X)),
        };
        match (&queues.waiting[me], request) {
            (None, None) if matches!(step, QueueStep::Decide(_)) => queues.table.decide(&owner, FLUSHED),
            (None, None) => queues.end(me),
            (None, Some(_)) if owner.decided().is_some() => {}
            (None, Some(request)) => {
                if !queues.ask(me, &request, matches!(step, QueueStep::Write(..))) {
                    queues.begin_to_wait(me, &request);
                    prop_assert!(queues.waiting[me].is_some(), "there was a conflict, and nothing has changed");
                }
            }
            (Some(waiter), None) if matches!(step, QueueStep::GiveUp(_)) => {
                prop_assert!(waiter.cell.settle(Outcome::TimedOut));
            }
            (Some(_), _) => {}
        }
        queues.settle();
        let mut edges = queues.edges();
        prop_assert!(edges.values().all(|to| !to.is_empty()), "an owner waits without a blocker: {:?}", edges);
        // Removes the waiters that wait for no other waiter, until none is left.
        while !edges.is_empty() {
            let serials: BTreeSet<u64> = edges.keys().copied().collect();
            let before = edges.len();
            edges.retain(|_, to| to.iter().any(|to| serials.contains(to)));
            prop_assert!(edges.len() < before, "a cycle: {:?}", edges);
        }
    }
    for _ in 0..OWNERS {
        for me in 0..OWNERS {
            if queues.waiting[me].is_none() {
                queues.table.release_all(&queues.owners[me]);
                queues.owners[me] = queues.table.owner();
            }
        }
        queues.settle();
    }
    prop_assert!(queues.waiting.iter().all(Option::is_none));
    for owner in &queues.owners {
        queues.table.release_all(owner);
    }
    queues.table.assert_empty();
    Ok(())
}

/// Transaction 3 holds a key shared. It wants to write another with the same hash, has to wait for
/// transaction 2, and goes ahead of transaction 1, which waits there too: from then on 1 waits for 3, though
/// nothing of 3 blocked it when it began to wait.
#[test]
fn who_goes_ahead_of_a_waiter_is_waited_for() {
    use QueueStep::{GiveUp, Point, Range, Write};
    let steps = vec![
        Write(2, 2),
        Point(1, 3, S),
        Point(3, 0, S),
        Point(1, 2, S),
        Range(0, 0, 0, S),
        Write(3, 0),
        GiveUp(2),
        Point(3, 3, X),
    ];
    queue_up(steps, vec![0; OWNERS], false, 1).expect("no circle is left");
}

/// Transaction 1 is patient, and waits for the decided 0 to read a key. Transaction 2 reads it beside the waiter, by
/// taking over, and then changes it: from then on 1 waits for 2.
#[test]
fn who_makes_a_lock_stronger_beside_a_waiter_is_waited_for() {
    use QueueStep::{Decide, End, Point, Write};
    for change in [Write(2, 2), Point(2, 2, X)] {
        let steps = vec![
            End(1),
            Point(1, 3, X),
            Write(0, 2),
            Decide(0),
            Point(1, 2, S),
            Point(2, 2, S),
            change,
            End(0),
            Point(2, 3, X),
        ];
        queue_up(steps, vec![0; OWNERS], false, u64::MAX).expect("no circle is left");
    }
}
