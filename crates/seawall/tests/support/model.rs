//! The expected contents of the database: a naive model with which every read and every recovery is compared.
//!
//! 1. The order of commits is the order of the calls: the rig runs on one thread, and a commit is one record
//!    in one log. So the contents after a crash are a *prefix* of [`Model::log`], and the promises of
//!    acknowledged commits only limit how short it may be.
//! 2. All versions since the last opening are kept, so any snapshot can be read. A recovery discards lost
//!    versions and makes the rest the new base.
//! 3. Trees are identified by numbers that are never reused; names are versioned as rows are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Key = Vec<u8>;
pub(crate) type Value = Arc<[u8]>;
pub(crate) type Uid = u32;
/// A number of events.
pub(crate) type Seq = usize;

/// The changes of a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) rows: BTreeMap<(Uid, Key), Option<Value>>,
    pub(crate) names: BTreeMap<Uid, Option<String>>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.names.is_empty()
    }
}

/// An event of the log, in its order.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Commit(Changes),
    Prepare(Vec<u8>, Changes),
    CommitPrepared(Vec<u8>),
    RollbackPrepared(Vec<u8>),
}

/// The promise to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Nothing: the event may be there or not.
    Nothing,
    /// Can be lost at any crash, but only within the flush window.
    Deferred,
    /// Survives a crash of the process; can be lost with the power, but only within the flush window.
    Written,
    /// Survives every crash.
    Flushed,
}

#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub(crate) event: Event,
    pub(crate) promise: Promise,
    /// Virtual time of the call and of its acknowledgement.
    pub(crate) asked: Duration,
    pub(crate) acknowledged: Duration,
    /// The end of the log at that time, if the rig has queried it.
    pub(crate) end: u64,
    /// Events with the same number may have become durable by one flush; 0 while none is promised.
    pub(crate) flush: u64,
}

#[derive(Debug, Clone, Default)]
struct Versions<T> {
    of: Vec<(Seq, T)>,
}

impl<T: Clone> Versions<T> {
    fn at(&self, seq: Seq) -> Option<&T> {
        self.of.iter().rev().find(|(since, _)| *since <= seq).map(|(_, version)| version)
    }
    fn newest(&self) -> Seq {
        self.of.last().map_or(0, |(since, _)| *since)
    }
}

#[derive(Debug, Clone, Default)]
struct Tree {
    rows: BTreeMap<Key, Versions<Option<Value>>>,
    name: Versions<Option<String>>,
}

/// The whole state at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) trees: BTreeMap<String, BTreeMap<Key, Value>>,
    pub(crate) prepared: BTreeSet<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    trees: BTreeMap<Uid, Tree>,
    pub(crate) log: Vec<Logged>,
    base_prepared: BTreeMap<Vec<u8>, Changes>,
    pub(crate) prepared: BTreeMap<Vec<u8>, Changes>,
    uids: Uid,
    flushes: u64,
}

impl Model {
    pub(crate) fn seq(&self) -> Seq {
        self.log.len()
    }

    pub(crate) fn new_uid(&mut self) -> Uid {
        self.uids += 1;
        self.uids
    }

    /// Adds an event at the end, visible to all later snapshots.
    pub(crate) fn push(&mut self, event: Event, promise: Promise, asked: Duration, acknowledged: Duration) {
        let seq = self.log.len() + 1;
        self.apply(&event, seq);
        let flush = if promise == Promise::Flushed { self.next_flush() } else { 0 };
        self.log.push(Logged { event, promise, asked, acknowledged, end: 0, flush });
    }

    fn next_flush(&mut self) -> u64 {
        self.flushes += 1;
        self.flushes
    }

    /// Everything up to `seq` is durable: at the latest by the flush of the next event that was flushed by
    /// itself.
    pub(crate) fn durable(&mut self, seq: Seq) {
        let later = self.log[seq..].iter().find(|logged| logged.promise == Promise::Flushed).map(|logged| logged.flush);
        let mut flush = later.unwrap_or_else(|| self.next_flush());
        for logged in self.log[..seq].iter_mut().rev() {
            if logged.promise == Promise::Flushed {
                flush = logged.flush;
            }
            (logged.promise, logged.flush) = (Promise::Flushed, flush);
        }
    }

    fn apply(&mut self, event: &Event, seq: Seq) {
        match event {
            Event::Commit(changes) => self.change(changes, seq),
            Event::Prepare(xid, changes) => {
                self.prepared.insert(xid.clone(), changes.clone());
            }
            Event::CommitPrepared(xid) => {
                let changes = self.prepared.remove(xid).expect("it is prepared");
                self.change(&changes, seq);
            }
            Event::RollbackPrepared(xid) => {
                self.prepared.remove(xid);
            }
        }
    }

    fn change(&mut self, changes: &Changes, seq: Seq) {
        for (uid, name) in &changes.names {
            self.trees.entry(*uid).or_default().name.of.push((seq, name.clone()));
        }
        for ((uid, key), value) in &changes.rows {
            let tree = self.trees.entry(*uid).or_default();
            tree.rows.entry(key.clone()).or_default().of.push((seq, value.clone()));
        }
    }

    /// The value of a row as of `seq`.
    pub(crate) fn row(&self, uid: Uid, key: &[u8], seq: Seq) -> Option<Value> {
        self.trees.get(&uid)?.rows.get(key)?.at(seq)?.clone()
    }

    /// The last event that wrote the row; 0: none since the base.
    pub(crate) fn row_newest(&self, uid: Uid, key: &[u8]) -> Seq {
        self.trees.get(&uid).and_then(|tree| tree.rows.get(key)).map_or(0, Versions::newest)
    }

    /// All rows of a tree as of `seq` within bounds.
    pub(crate) fn rows(&self, uid: Uid, from: Bound<&[u8]>, to: Bound<&[u8]>, seq: Seq) -> BTreeMap<Key, Value> {
        let Some(tree) = self.trees.get(&uid).filter(|_| !is_empty(from, to)) else { return BTreeMap::new() };
        let range = tree.rows.range::<[u8], _>((from, to));
        range.filter_map(|(key, versions)| Some((key.clone(), versions.at(seq)?.clone()?))).collect()
    }

    /// Whether a row within bounds was written after `seq`.
    pub(crate) fn newer(&self, uid: Uid, from: Bound<&[u8]>, to: Bound<&[u8]>, seq: Seq) -> bool {
        let Some(tree) = self.trees.get(&uid).filter(|_| !is_empty(from, to)) else { return false };
        tree.rows.range::<[u8], _>((from, to)).any(|(_, versions)| versions.newest() > seq)
    }

    /// The trees that have a name as of `seq`.
    pub(crate) fn names(&self, seq: Seq) -> BTreeMap<String, Uid> {
        let named = self.trees.iter().filter_map(|(uid, tree)| Some((tree.name.at(seq)?.clone()?, *uid)));
        named.collect()
    }

    /// The whole state as of `seq`.
    pub(crate) fn state(&self, seq: Seq) -> State {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let trees = self.names(seq).into_iter().map(|(name, uid)| (name, self.rows(uid, all.0, all.1, seq))).collect();
        State { trees, prepared: self.prepared_at(seq).into_keys().collect() }
    }

    fn prepared_at(&self, seq: Seq) -> BTreeMap<Vec<u8>, Changes> {
        let mut prepared = self.base_prepared.clone();
        for logged in &self.log[..seq] {
            match &logged.event {
                Event::Prepare(xid, changes) => {
                    prepared.insert(xid.clone(), changes.clone());
                }
                Event::CommitPrepared(xid) | Event::RollbackPrepared(xid) => {
                    prepared.remove(xid);
                }
                Event::Commit(_) => {}
            }
        }
        prepared
    }

    /// How many events must have survived: all up to the last one whose promise covers the crash.
    pub(crate) fn least(&self, powerless: bool, window: Duration) -> Seq {
        let mut newest_asked = Duration::ZERO;
        let mut least = 0;
        for (index, logged) in self.log.iter().enumerate().rev() {
            let by_promise = match logged.promise {
                Promise::Nothing => false,
                Promise::Deferred => newest_asked > logged.acknowledged + window,
                Promise::Written => !powerless || newest_asked > logged.acknowledged + window,
                Promise::Flushed => true,
            };
            if by_promise {
                least = index + 1;
                break;
            }
            // A rollback by the owner of a prepared transaction does not look at the log's age.
            if logged.promise != Promise::Nothing && !matches!(logged.event, Event::RollbackPrepared(_)) {
                newest_asked = newest_asked.max(logged.asked);
            }
        }
        least
    }

    /// The prefix of the log that equals `found`, longest first, with at least `least` events. Otherwise the
    /// differences from the nearest one.
    pub(crate) fn find(&self, found: &State, least: Seq) -> Result<Seq, String> {
        let fits = |seq: &Seq| self.state(*seq) == *found;
        if let Some(seq) = (least..=self.seq()).rev().find(fits) {
            return Ok(seq);
        }
        if let Some(seq) = (0..least).rev().find(fits) {
            let lost = &self.log[seq..least];
            let promises: Vec<Promise> = lost.iter().map(|logged| logged.promise).collect();
            return Err(format!(
                "lost: the state is that after event {seq} of {}, and the first {least} had to survive; promises of \
                 those that are gone: {promises:?}",
                self.seq()
            ));
        }
        let nearest = (0..=self.seq()).rev().min_by_key(|seq| self.state(*seq).differences(found, usize::MAX).len());
        let nearest = nearest.expect("the base is one");
        let differences = self.state(nearest).differences(found, 12);
        let near = format!("no prefix fits; the nearest is {nearest} of {} (at least {least})", self.seq());
        Err(format!("{near}; expected and found there:\n  {}", differences.join("\n  ")))
    }

    /// Discards everything after `seq` and all older versions, as a recovery does.
    pub(crate) fn settle(&mut self, seq: Seq) {
        self.prepared = self.prepared_at(seq);
        self.base_prepared = self.prepared.clone();
        let touched: BTreeSet<Uid> = self.prepared.values().flat_map(touched).collect();
        self.trees.retain(|uid, tree| {
            let name = tree.name.at(seq).cloned().flatten();
            let keep = name.is_some() || touched.contains(uid);
            tree.name.of = vec![(0, name)];
            tree.rows.retain(|_, versions| match versions.at(seq).cloned().flatten() {
                Some(value) => {
                    versions.of = vec![(0, Some(value))];
                    true
                }
                None => false,
            });
            keep
        });
        self.log.clear();
    }
}

fn touched(changes: &Changes) -> impl Iterator<Item = Uid> {
    changes.rows.keys().map(|(uid, _)| *uid).chain(changes.names.keys().copied())
}

/// Ranges that `BTreeMap::range` panics on.
pub(crate) fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}

/// A key or value for messages.
pub(crate) fn show(bytes: &[u8]) -> String {
    let head = bytes[..bytes.len().min(24)].escape_ascii();
    if bytes.len() > 24 { format!("\"{head}\"... ({} bytes)", bytes.len()) } else { format!("\"{head}\"") }
}

impl State {
    /// The differences, at most `most` of them.
    pub(crate) fn differences(&self, found: &State, most: usize) -> Vec<String> {
        let mut all = Vec::new();
        if self.prepared != found.prepared {
            all.push(format!("prepared {:?} / {:?}", self.prepared, found.prepared));
        }
        let none = BTreeMap::new();
        for name in self.trees.keys().chain(found.trees.keys()).collect::<BTreeSet<_>>() {
            if self.trees.contains_key(name) != found.trees.contains_key(name) {
                all.push(format!("tree {name} {} / {}", self.trees.contains_key(name), found.trees.contains_key(name)));
            }
            let (ours, theirs) = (self.trees.get(name).unwrap_or(&none), found.trees.get(name).unwrap_or(&none));
            for key in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
                let (one, other) = (ours.get(key), theirs.get(key));
                if one != other && all.len() < most {
                    let text = |value: Option<&Value>| value.map_or_else(|| "nothing".into(), |value| show(value));
                    all.push(format!("{name} {}: {} / {}", show(key), text(one), text(other)));
                }
            }
        }
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(uid: Uid, key: &str, value: Option<&str>) -> Changes {
        let value = value.map(|value| Value::from(value.as_bytes()));
        Changes { rows: BTreeMap::from([((uid, key.into()), value)]), names: BTreeMap::new() }
    }

    fn model(promises: &[Promise]) -> Model {
        let mut model = Model::default();
        let uid = model.new_uid();
        let named = Changes { names: BTreeMap::from([(uid, Some("t".into()))]), ..Changes::default() };
        let at = |index: usize| Duration::from_millis(index as u64);
        model.push(Event::Commit(named), Promise::Flushed, at(0), at(0));
        for (index, promise) in promises.iter().enumerate() {
            let changes = put(uid, &format!("k{index}"), Some("v"));
            model.push(Event::Commit(changes), *promise, at(index + 1), at(index + 1));
        }
        model
    }

    #[test]
    fn promises_say_how_much_must_survive() {
        use Promise::{Deferred, Flushed, Nothing, Written};
        let hour = Duration::from_secs(3600);
        let model = model(&[Deferred, Written, Flushed, Written, Deferred, Nothing]);
        assert_eq!(model.least(true, hour), 4);
        assert_eq!(model.least(false, hour), 5);
        // A commit older than the window when a later commit is called may not be lost.
        assert_eq!(model.least(true, Duration::from_micros(100)), 5);
        let mut last = model.log[5].clone();
        last.asked += hour;
        let mut with = |event| {
            last.event = event;
            let mut later = model.clone();
            later.log.push(last.clone());
            later.least(true, Duration::from_secs(60))
        };
        assert_eq!(with(Event::Commit(Changes::default())), 6);
        assert_eq!(with(Event::RollbackPrepared(vec![])), 4, "a rollback does not count as a commit");
        assert_eq!(model.least(true, Duration::from_millis(1)), 4);
    }

    #[test]
    fn only_prefixes_are_found() {
        let model = model(&[Promise::Flushed, Promise::Nothing, Promise::Nothing]);
        for seq in 0..=4 {
            assert_eq!(model.find(&model.state(seq), 2).is_ok(), seq >= 2, "{seq}");
        }
        let mut torn = model.state(4);
        torn.trees.get_mut("t").unwrap().remove(&b"k1"[..]);
        assert!(model.find(&torn, 2).unwrap_err().contains("no prefix fits"));
    }

    #[test]
    fn a_prepared_transaction_is_neither_there_nor_gone() {
        let mut model = model(&[]);
        let (xid, zero) = (b"x".to_vec(), Duration::ZERO);
        model.push(Event::Prepare(xid.clone(), put(1, "p", Some("v"))), Promise::Flushed, zero, zero);
        model.settle(2);
        assert_eq!(model.state(0).prepared, BTreeSet::from([xid.clone()]));
        assert_eq!(model.row(1, b"p", 0), None);
        model.push(Event::CommitPrepared(xid), Promise::Nothing, zero, zero);
        assert_eq!(model.row(1, b"p", 1).as_deref(), Some(&b"v"[..]));
        assert_eq!(model.state(0).prepared.len(), 1);
        model.settle(0);
        assert_eq!(model.prepared.len(), 1);
    }

    /// A flush makes earlier events durable: with the next event that was flushed by itself at the latest,
    /// else with all others of that flush.
    #[test]
    fn events_that_one_flush_made_durable_have_its_number() {
        let mut model =
            model(&[Promise::Flushed, Promise::Deferred, Promise::Flushed, Promise::Nothing, Promise::Deferred]);
        model.durable(3);
        let flushes: Vec<u64> = model.log.iter().map(|logged| logged.flush).collect();
        assert_eq!(flushes, [1, 2, 3, 3, 0, 0]);
        model.durable(6);
        let flushes: Vec<u64> = model.log.iter().map(|logged| logged.flush).collect();
        assert_eq!(flushes, [1, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn old_snapshots_stay() {
        let mut model = model(&[Promise::Flushed]);
        let seq = model.seq();
        model.push(Event::Commit(put(1, "k0", None)), Promise::Flushed, Duration::ZERO, Duration::ZERO);
        assert!(model.row(1, b"k0", seq).is_some() && model.row(1, b"k0", model.seq()).is_none());
        assert!(model.newer(1, Bound::Unbounded, Bound::Unbounded, seq));
        assert_eq!(model.rows(1, Bound::Excluded(&b"z"[..]), Bound::Included(&b"a"[..]), seq), BTreeMap::new());
    }
}
