//! What a life of the engine consists of: one random operation after another, each judged by the model.
//!
//! 1. What must fail is known exactly: writing over another's uncommitted row, into what a serializable transaction has read, over what a
//!    snapshot does not see. An operation that succeeds all the same is a failure of the engine.
//! 2. What may fail is known roughly: locks may be coarser than rows, so a lock error needs another open transaction and no more.
//! 3. A tree under an uncommitted change of its name is left alone by all others.

use crate::api::{Durability, Error, Isolation, LockWait, OnConflict, Task, TxOptions, Xid};
use crate::support::model::{Changes, Event, Key, Promise, Seq, Uid, Value, is_empty, show};
use crate::support::rig::{Live, May, Open, Rig, Step, Stop, fail, value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

const TXS_MAX: usize = 5;
const TREES_MAX: usize = 6;
const PREPARED_MAX: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Insert,
    Put,
    Update,
    Delete,
}

impl Open {
    fn repeatable(&self) -> bool {
        self.options.isolation == Isolation::RepeatableRead
    }
    fn serializable(&self) -> bool {
        self.options.isolation == Isolation::Serializable
    }
    fn strict(&self) -> bool {
        self.repeatable() && self.options.on_conflict == OnConflict::Fail
    }
    fn sees(&self, now: Seq) -> Seq {
        if self.repeatable() { self.snapshot } else { now }
    }
}

fn as_slice(bound: &Bound<Key>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn contains(from: &Bound<Key>, to: &Bound<Key>, key: &[u8]) -> bool {
    let behind_from = match from {
        Bound::Included(from) => key >= from.as_slice(),
        Bound::Excluded(from) => key > from.as_slice(),
        Bound::Unbounded => true,
    };
    let before_to = match to {
        Bound::Included(to) => key <= to.as_slice(),
        Bound::Excluded(to) => key < to.as_slice(),
        Bound::Unbounded => true,
    };
    behind_from && before_to
}

impl Rig {
    pub(crate) fn step(&mut self, live: &mut Live) -> Step {
        #[derive(Clone, Copy)]
        enum Do {
            Begin,
            Write,
            Many,
            DeleteRange,
            Get,
            Scan,
            LockingGet,
            Savepoint,
            RollBackTo,
            Commit,
            RollBack,
            Prepare,
            EndPrepared,
            Tree,
            TreeInside,
            Background,
            Checkpoint,
            Set,
            Clock,
            Names,
            Check,
            Compact,
        }
        let open = live.txs.len();
        if live.trees.is_empty() && open == 0 {
            return self.make_tree(live);
        }
        let choices = [
            (if open < TXS_MAX { 10 } else { 0 }, Do::Begin),
            (40, Do::Write),
            (4, Do::Many),
            (2, Do::DeleteRange),
            (20, Do::Get),
            (8, Do::Scan),
            (5, Do::LockingGet),
            (3, Do::Savepoint),
            (3, Do::RollBackTo),
            (12, Do::Commit),
            (3, Do::RollBack),
            (2, Do::Prepare),
            (2, Do::EndPrepared),
            (3, Do::Tree),
            (2, Do::TreeInside),
            (20, Do::Background),
            (1, Do::Checkpoint),
            (1, Do::Set),
            (2, Do::Clock),
            (1, Do::Names),
            (1, Do::Check),
            (self.compactions, Do::Compact),
        ];
        let action = self.dice.weighted(&choices);
        let at = if open == 0 { 0 } else { self.dice.index(open) };
        match action {
            Do::Begin => self.begin(live),
            Do::Tree => self.tree(live),
            Do::EndPrepared => self.end_prepared(live),
            Do::Background => self.background(live),
            Do::Checkpoint => {
                self.say(|| "checkpoint".into());
                let done = live.db.checkpoint();
                self.explained(live, done.err(), May::default())
            }
            Do::Set => self.set(live),
            Do::Clock => {
                let by = Duration::from_micros(self.dice.log_uniform(4_000_000));
                self.sim.advance(by);
                Ok(())
            }
            Do::Names => self.names(live),
            Do::Compact => self.compact(live),
            Do::Check if self.dice.percent(30) => {
                self.say(|| "check".into());
                self.check(live)
            }
            Do::Check => Ok(()),
            _ if open == 0 => self.begin(live),
            Do::Savepoint => self.savepoint(live, at),
            Do::RollBackTo => self.roll_back_to(live, at),
            Do::Commit => self.commit(live, at),
            Do::RollBack => self.roll_back(live, at),
            Do::Prepare => self.prepare(live, at),
            Do::TreeInside => self.tree_inside(live, at),
            Do::Write | Do::Many | Do::DeleteRange | Do::Get | Do::Scan | Do::LockingGet => {
                let Some(uid) = self.some_tree(live, at) else { return self.make_tree(live) };
                match action {
                    Do::Write => self.write(live, at, uid),
                    Do::Many => {
                        for _ in 0..self.dice.log_uniform(60) {
                            if self.write_one(live, at, uid)?.is_some() {
                                return self.after_refusal(live, at);
                            }
                        }
                        Ok(())
                    }
                    Do::DeleteRange => self.delete_range(live, at, uid),
                    Do::Get => self.get(live, at, uid),
                    Do::Scan => self.scan(live, at, uid),
                    _ => self.locking_get(live, at, uid),
                }
            }
        }
    }

    // --- what others have ----------------------------------------------------------------------------------------------------

    fn others(live: &Live, me: u64) -> impl Iterator<Item = &Open> {
        live.txs.iter().filter(move |open| open.number != me)
    }

    /// Whether anybody else may hold a lock.
    fn company(&self, live: &Live, me: u64) -> bool {
        live.losers
            || self.faulty
            || self.full
            || Self::others(live, me).next().is_some()
            || !self.model.prepared.is_empty()
    }

    fn written_by_other(&self, live: &Live, me: u64, uid: Uid, key: &[u8]) -> bool {
        let row = (uid, key.to_vec());
        Self::others(live, me).any(|open| open.own.rows.contains_key(&row))
            || self.model.prepared.values().any(|changes| changes.rows.contains_key(&row))
    }

    /// Whether another has locked the row by reading it; `exclusively`: in a way that keeps readers for share out.
    fn read_by_other(live: &Live, me: u64, uid: Uid, key: &[u8], exclusively: bool) -> bool {
        Self::others(live, me).any(|open| {
            let point =
                |(of, at, exclusive): &(Uid, Key, bool)| *of == uid && at == key && (*exclusive || !exclusively);
            let range = |(of, from, to): &(Uid, Bound<Key>, Bound<Key>)| *of == uid && contains(from, to, key);
            open.points.iter().any(point) || (!exclusively && open.ranges.iter().any(range))
        })
    }

    /// Trees whose name is being changed by somebody else.
    fn in_change(&self, live: &Live, me: u64) -> BTreeSet<Uid> {
        let open = Self::others(live, me).flat_map(|open| open.own.names.keys());
        open.chain(self.model.prepared.values().flat_map(|changes| changes.names.keys())).copied().collect()
    }

    /// A tree that this transaction may use: there now, or in its snapshot, or made by itself.
    fn some_tree(&mut self, live: &Live, at: usize) -> Option<Uid> {
        let me = &live.txs[at];
        let taken = self.in_change(live, me.number);
        let mut usable: BTreeSet<Uid> = self.model.names(self.model.seq()).into_values().collect();
        usable.extend(self.model.names(me.sees(self.model.seq())).into_values().filter(|_| self.dice.percent(10)));
        for (uid, name) in &me.own.names {
            match name {
                Some(_) => usable.insert(*uid),
                None => usable.remove(uid),
            };
        }
        let usable: Vec<Uid> =
            usable.into_iter().filter(|uid| !taken.contains(uid) && live.trees.contains_key(uid)).collect();
        (!usable.is_empty()).then(|| self.dice.pick(&usable))
    }

    fn expected(&self, open: &Open, uid: Uid, key: &[u8], seq: Seq) -> Option<Value> {
        match open.own.rows.get(&(uid, key.to_vec())) {
            Some(own) => own.clone(),
            None => self.model.row(uid, key, seq),
        }
    }

    fn expected_rows(
        &self,
        open: &Open,
        uid: Uid,
        from: &Bound<Key>,
        to: &Bound<Key>,
        seq: Seq,
    ) -> BTreeMap<Key, Value> {
        let mut rows = self.model.rows(uid, as_slice(from), as_slice(to), seq);
        for ((of, key), own) in &open.own.rows {
            if *of == uid && contains(from, to, key) {
                match own {
                    Some(own) => rows.insert(key.clone(), own.clone()),
                    None => rows.remove(key),
                };
            }
        }
        rows
    }

    /// Whether the tree is there now (or made by this transaction), and whether it is in what this transaction sees.
    fn there(&self, open: &Open, uid: Uid) -> (bool, bool) {
        let named = |seq: Seq| self.model.names(seq).values().any(|known| *known == uid);
        let own = open.own.names.get(&uid).is_some_and(Option::is_some);
        (own || named(self.model.seq()), own || named(open.sees(self.model.seq())))
    }

    // --- drawing -------------------------------------------------------------------------------------------------------------

    fn key(&mut self) -> Key {
        let number = if self.dice.percent(70) { self.dice.below(40) } else { self.dice.below(1000) };
        let mut key = format!("{number:03}").into_bytes();
        let longest = (self.page_bytes / 5).min(3072) as usize;
        match number % 23 {
            0 => key.extend(std::iter::repeat_n(b'x', longest - key.len())),
            1 => key.extend(std::iter::repeat_n(0xff, (number as usize * 7) % (longest - 8))),
            2 => key.insert(0, 0),
            3 if number < 5 => key.clear(),
            _ => {}
        }
        key
    }

    fn new_value(&mut self) -> Value {
        let len = match self.dice.below(200) {
            0..=9 => 0,
            10..=129 => self.dice.below(100),
            130..=179 => self.dice.below(2000),
            180..=197 => self.dice.below(20_000),
            198 => self.dice.below(60_000),
            _ => self.dice.below(200_000),
        };
        self.stamps += 1;
        value(self.stamps, len as usize)
    }

    fn bound(&mut self) -> Bound<Key> {
        match self.dice.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(self.key()),
            _ => Bound::Included(self.key()),
        }
    }

    /// Bounds in order.
    fn bounds(&mut self) -> (Bound<Key>, Bound<Key>) {
        let (from, to) = (self.bound(), self.bound());
        let swap = match (&from, &to) {
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a > b,
            _ => false,
        };
        if swap { (to, from) } else { (from, to) }
    }

    // --- transactions ------------------------------------------------------------------------------------------------------------

    fn begin(&mut self, live: &mut Live) -> Step {
        let isolation = self.dice.weighted(&[
            (3, Isolation::ReadCommitted),
            (5, Isolation::RepeatableRead),
            (1, Isolation::Serializable),
        ]);
        let on_conflict = self.dice.pick(&[OnConflict::Fail, OnConflict::Latest]);
        let durability =
            self.dice.weighted(&[(6, None), (1, Some(Durability::Written)), (1, Some(Durability::Deferred))]);
        let options = TxOptions { isolation, on_conflict, durability, wait: LockWait::NoWait, ..TxOptions::default() };
        self.stamps += 1;
        let number = self.stamps;
        self.say(|| format!("T{number} begin {isolation:?} {on_conflict:?}"));
        let tx = live.db.begin_with(options);
        let tx = match tx {
            Ok(tx) => tx,
            Err(error) => return self.explained(live, Some(error), May::default()),
        };
        let snapshot = self.model.seq();
        live.txs.push(Open {
            number,
            tx: Some(tx),
            options,
            snapshot,
            own: Changes::default(),
            savepoints: Vec::new(),
            ranges: Vec::new(),
            points: Vec::new(),
            used: BTreeSet::new(),
        });
        self.alive(live)
    }

    fn level(&self, open: &Open) -> Durability {
        open.options.durability.unwrap_or(self.durability)
    }

    fn commit(&mut self, live: &mut Live, at: usize) -> Step {
        let mut open = live.txs.swap_remove(at);
        let tx = open.tx.take().expect("it is open");
        let asked = self.sim.now();
        let other = self.dice.pick(&[Durability::Flushed, Durability::Written, Durability::Deferred]);
        let way = self.dice.weighted(&[(6, 0), (2, 1), (2, 2)]);
        let level = if way == 1 { other } else { self.level(&open) };
        self.say(|| format!("T{} commit {level:?} of {} rows", open.number, open.own.rows.len()));
        let answer = match way {
            0 => tx.commit(),
            1 => tx.commit_with(other),
            _ => match tx.commit_start() {
                Err(error) => Err(error),
                Ok(mut commit) => {
                    let mut answer = None;
                    for _ in 0..self.dice.below(6) {
                        answer = commit.poll();
                        if answer.is_some() {
                            break;
                        }
                        let task = self.dice.pick(Task::ALL);
                        if let Err(Stop::Failed(why)) = {
                            let done = live.db.step_task(task).err();
                            self.explained(live, done, May::default())
                        } {
                            return fail(why);
                        }
                    }
                    answer.unwrap_or_else(|| commit.wait())
                }
            },
        };
        if open.own.is_empty() {
            return self.explained(live, answer.err(), May::default());
        }
        self.file(live, Event::Commit(open.own), level, asked, answer).map(drop)
    }

    fn roll_back(&mut self, live: &mut Live, at: usize) -> Step {
        let mut open = live.txs.swap_remove(at);
        let tx = open.tx.take().expect("it is open");
        self.say(|| format!("T{} rollback of {} rows", open.number, open.own.rows.len()));
        if self.dice.percent(30) {
            drop(tx);
            return self.alive(live);
        }
        match tx.rollback() {
            Err(error) => {
                if matches!(error, Error::NoSpace { .. } | Error::ReadOnly { .. }) && !live.process.is_dead() {
                    self.tally.stuck += 1;
                }
                live.losers = true;
                self.explained(live, Some(error), May::default())
            }
            Ok(()) => self.alive(live),
        }
    }

    /// After an error that left the transaction as it was: roll back, or go on.
    fn after_refusal(&mut self, live: &mut Live, at: usize) -> Step {
        if self.dice.percent(40) { self.roll_back(live, at) } else { Ok(()) }
    }

    fn prepare(&mut self, live: &mut Live, at: usize) -> Step {
        if live.txs[at].own.is_empty() || self.model.prepared.len() >= PREPARED_MAX {
            return Ok(());
        }
        let mut open = live.txs.swap_remove(at);
        let tx = open.tx.take().expect("it is open");
        self.stamps += 1;
        let len = if self.dice.percent(10) { 140 } else { 8 };
        let xid: Vec<u8> = value(self.stamps, len).to_vec();
        self.say(|| format!("T{} prepare as {}", open.number, show(&xid)));
        let asked = self.sim.now();
        let answer = tx.prepare(&Xid(xid.clone()));
        self.file(live, Event::Prepare(xid, open.own), Durability::Flushed, asked, answer).map(drop)
    }

    fn end_prepared(&mut self, live: &mut Live) -> Step {
        let known: BTreeSet<Vec<u8>> = self.model.prepared.keys().cloned().collect();
        let listed: BTreeSet<Vec<u8>> = live.db.prepared().into_iter().map(|xid| xid.0).collect();
        if listed != known {
            return fail(format!("prepared are {known:?}, listed are {listed:?}"));
        }
        if known.is_empty() {
            return Ok(());
        }
        let xids: Vec<Vec<u8>> = known.into_iter().collect();
        let xid = self.dice.pick(&xids);
        let asked = self.sim.now();
        let commit = self.dice.percent(60);
        self.say(|| format!("{} {}", if commit { "commit" } else { "rollback" }, show(&xid)));
        // The end of a rollback is not waited for: the coordinator presumes that what it does not know was rolled back.
        let level = if commit { Durability::Flushed } else { Durability::Deferred };
        let (event, answer) = if commit {
            (Event::CommitPrepared(xid.clone()), live.db.commit_prepared(&Xid(xid)))
        } else {
            (Event::RollbackPrepared(xid.clone()), live.db.rollback_prepared(&Xid(xid)))
        };
        let known: Vec<Changes> = self.model.prepared.values().cloned().collect();
        if self.file(live, event.clone(), level, asked, answer)? {
            return self.open_missing(live, &known);
        }
        // It failed for want of room: the next opening tells what became of it.
        let now = self.sim.now();
        self.model.push(event, Promise::Nothing, asked, now);
        Err(Stop::Poisoned)
    }

    /// Handles of trees that a prepared transaction made.
    fn open_missing(&mut self, live: &mut Live, of: &[Changes]) -> Step {
        let made: Vec<Uid> = of.iter().flat_map(|changes| changes.names.keys().copied()).collect();
        for (name, uid) in self.model.names(self.model.seq()) {
            if made.contains(&uid) && !live.trees.contains_key(&uid) {
                let tree = live.db.open_tree(&name);
                let tree = self.answer(live, tree, May::default())?;
                live.trees.insert(uid, tree);
            }
        }
        Ok(())
    }

    fn savepoint(&mut self, live: &mut Live, at: usize) -> Step {
        let open = &mut live.txs[at];
        let savepoint = open.tx.as_mut().expect("it is open").savepoint();
        open.savepoints.push((savepoint, open.own.clone()));
        let number = open.number;
        self.say(|| format!("T{number} savepoint"));
        self.alive(live)
    }

    fn roll_back_to(&mut self, live: &mut Live, at: usize) -> Step {
        let open = &mut live.txs[at];
        if open.savepoints.is_empty() {
            return Ok(());
        }
        let which = self.dice.index(open.savepoints.len());
        open.savepoints.truncate(which + 1);
        let (savepoint, own) = open.savepoints.last().expect("which is inside").clone();
        let answer = open.tx.as_mut().expect("it is open").rollback_to(&savepoint);
        let number = open.number;
        self.say(|| format!("T{number} back to savepoint {which}"));
        if let Err(error) = answer {
            self.explained(live, Some(error), May::default())?;
            return self.roll_back(live, at);
        }
        let open = &mut live.txs[at];
        // Declared: a row that it had written is locked by that alone, and so the lock goes with the write.
        let gone = |uid: Uid, key: &Key| {
            let row = (uid, key.clone());
            open.own.rows.contains_key(&row) && !own.rows.contains_key(&row)
        };
        open.points.retain(|(uid, key, _)| !gone(*uid, key));
        open.own = own;
        self.alive(live)
    }

    // --- rows ------------------------------------------------------------------------------------------------------------------

    fn write(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        match self.write_one(live, at, uid)? {
            Some(_) => self.after_refusal(live, at),
            None => Ok(()),
        }
    }

    /// One change of one row. `Some`: it was refused, as it had to be or may be.
    fn write_one(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step<Option<()>> {
        let kind = self.dice.weighted(&[(3, Write::Insert), (8, Write::Put), (3, Write::Update), (3, Write::Delete)]);
        let (key, new) = (self.key(), self.new_value());
        let open = &live.txs[at];
        let me = open.number;
        let now = self.model.seq();
        let own = open.own.rows.contains_key(&(uid, key.clone()));
        let there = self.expected(open, uid, &key, now).is_some();
        let effective = match kind {
            Write::Insert => !there,
            Write::Put => true,
            Write::Update | Write::Delete => there,
        };
        let blocked = self.written_by_other(live, me, uid, &key)
            || (effective && Self::read_by_other(live, me, uid, &key, false));
        let stale = open.strict() && !own && self.model.row_newest(uid, &key) > open.snapshot;
        let (tree_there, tree_seen) = self.there(open, uid);
        let company = self.company(live, me);
        self.say(|| format!("T{me} {kind:?} {} of tree {uid}, {} bytes", show(&key), new.len()));

        let tree = live.trees[&uid].clone();
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        let answer = match kind {
            Write::Insert => match tx.insert(&tree, &key, &new) {
                Ok(()) => Ok(false),
                Err(Error::KeyExists { .. }) => Ok(true),
                Err(error) => Err(error),
            },
            Write::Put => tx.put(&tree, &key, &new).map(|()| there),
            Write::Update => tx.update(&tree, &key, &new),
            Write::Delete => tx.delete(&tree, &key),
        };
        match answer {
            Ok(found) => {
                if blocked {
                    return fail("another transaction's lock went unnoticed");
                }
                if stale {
                    return fail("a newer version went unnoticed");
                }
                if !tree_there {
                    return fail("the tree is dropped");
                }
                if found != there {
                    return fail(format!("it says the key was there: {found}, and it was: {there}"));
                }
                if effective {
                    let value = (kind != Write::Delete).then_some(new);
                    live.txs[at].own.rows.insert((uid, key), value);
                    live.txs[at].used.insert(uid);
                }
                self.alive(live)?;
                Ok(None)
            }
            Err(error) => {
                let may = May { lock: company, conflict: stale || !tree_seen, no_tree: !tree_there || !tree_seen };
                self.explained(live, Some(error), may)?;
                Ok(Some(()))
            }
        }
    }

    fn delete_range(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let (from, to) = self.bounds();
        let open = &live.txs[at];
        let me = open.number;
        let now = self.model.seq();
        let (tree_there, tree_seen) = self.there(open, uid);
        // The rows that are found are those it sees; what is removed is their latest version.
        let seen = self.expected_rows(open, uid, &from, &to, open.sees(now));
        let gone: Vec<Key> = seen.into_keys().filter(|key| self.expected(open, uid, key, now).is_some()).collect();
        let blocked = gone
            .iter()
            .any(|key| self.written_by_other(live, me, uid, key) || Self::read_by_other(live, me, uid, key, false));
        let strict = open.strict();
        let newer = strict && self.model.newer(uid, as_slice(&from), as_slice(&to), open.snapshot);
        let stale = strict
            && gone.iter().any(|key| {
                !open.own.rows.contains_key(&(uid, key.clone())) && self.model.row_newest(uid, key) > open.snapshot
            });
        let company = self.company(live, me);
        self.say(|| format!("T{me} delete {from:?}..{to:?} of tree {uid}: {} rows", gone.len()));

        let tree = live.trees[&uid].clone();
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        let savepoint = tx.savepoint();
        match tx.delete_range::<Key>(&tree, (from.clone(), to.clone())) {
            Ok(count) => {
                let drop = !tree_there && !gone.is_empty();
                if blocked || stale || drop {
                    return fail(format!("unnoticed: a lock {blocked}, a newer version {stale}, a drop {drop}"));
                }
                if count != gone.len() as u64 {
                    return fail(format!("it removed {count}, and there were {}", gone.len()));
                }
                let open = &mut live.txs[at];
                if open.serializable() {
                    open.ranges.push((uid, from, to));
                }
                open.own.rows.extend(gone.into_iter().map(|key| ((uid, key), None)));
                open.used.insert(uid);
                self.alive(live)
            }
            Err(error) => {
                let may = May { lock: company, conflict: newer, no_tree: !tree_there || !tree_seen };
                self.explained(live, Some(error), may)?;
                let back = live.txs[at].tx.as_mut().expect("it is open").rollback_to(&savepoint);
                if let Err(error) = back {
                    self.explained(live, Some(error), May::default())?;
                    return self.roll_back(live, at);
                }
                self.after_refusal(live, at)
            }
        }
    }

    /// What a read may answer with when it fails.
    fn may_read(&self, live: &Live, at: usize, uid: Uid) -> May {
        let open = &live.txs[at];
        let (there, seen) = self.there(open, uid);
        let lock = open.serializable() && self.company(live, open.number);
        May { lock, conflict: false, no_tree: !seen || (open.serializable() && !there) }
    }

    fn get(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let keys: Vec<Key> = (0..if self.dice.percent(20) { 4 } else { 1 }).map(|_| self.key()).collect();
        let open = &live.txs[at];
        let me = open.number;
        let seq = open.sees(self.model.seq());
        let expected: Vec<Option<Value>> = keys.iter().map(|key| self.expected(open, uid, key, seq)).collect();
        let serializable = open.serializable();
        let blocked = serializable
            && keys
                .iter()
                .any(|key| self.written_by_other(live, me, uid, key) || Self::read_by_other(live, me, uid, key, true));
        let may = self.may_read(live, at, uid);
        let exists = self.dice.percent(15) && keys.len() == 1;
        self.say(|| format!("T{me} get {} of tree {uid}, expecting {}", show(&keys[0]), shown(&expected[0])));
        let tx = live.txs[at].tx.as_ref().expect("it is open");
        let tree = &live.trees[&uid];
        let answer = if exists {
            match tx.contains(tree, &keys[0]) {
                Ok(there) if there == expected[0].is_some() => Ok(vec![expected[0].as_deref().map(Vec::from)]),
                Ok(there) => return fail(format!("contains says {there}")),
                Err(error) => Err(error),
            }
        } else if keys.len() > 1 {
            tx.multi_get(tree, &keys)
        } else {
            tx.get(tree, &keys[0]).map(|value| vec![value])
        };
        match answer {
            Ok(found) => {
                if blocked {
                    return fail("a serializable read goes through another's lock");
                }
                for ((key, found), expected) in keys.iter().zip(&found).zip(&expected) {
                    if found.as_deref() != expected.as_deref() {
                        let found = found.as_deref().map(Value::from);
                        return fail(format!("{} is {}, and must be {}", show(key), shown(&found), shown(expected)));
                    }
                }
                if serializable {
                    live.txs[at].points.extend(keys.into_iter().map(|key| (uid, key, false)));
                    live.txs[at].used.insert(uid);
                }
                self.alive(live)
            }
            Err(error) => {
                self.explained(live, Some(error), may)?;
                self.after_refusal(live, at)
            }
        }
    }

    fn scan(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let (from, to) = self.bounds();
        let limit = if self.dice.percent(50) { usize::MAX } else { 1 + self.dice.below(20) as usize };
        let open = &live.txs[at];
        let (me, serializable) = (open.number, open.serializable());
        let way = self.dice.below(if serializable { 2 } else { 3 });
        let rows = self.expected_rows(open, uid, &from, &to, open.sees(self.model.seq()));
        let may = self.may_read(live, at, uid);
        self.say(|| format!("T{me} scan {from:?}..{to:?} of tree {uid}, way {way}: {} rows", rows.len()));
        let mut left: VecDeque<(Key, Value)> = rows.into_iter().collect();
        let open = &live.txs[at];
        let mut range =
            open.tx.as_ref().expect("it is open").range::<Key>(&live.trees[&uid], (from.clone(), to.clone()));
        let mut last: Option<Key> = None;
        let mut exhausted = false;
        let mut wrong = None;
        for _ in 0..limit {
            let forward = way == 0 || (way == 2 && self.dice.percent(50));
            let found = if forward { range.next() } else { range.next_back() };
            let expected = if forward { left.pop_front() } else { left.pop_back() };
            let found = match found {
                Some(Err(error)) => {
                    drop(range);
                    self.explained(live, Some(error), may)?;
                    return self.after_refusal(live, at);
                }
                Some(Ok(found)) => Some(found),
                None => None,
            };
            let same = match (&found, &expected) {
                (Some((key, value)), Some((other, expected))) => key == other && **value == **expected,
                (None, None) => true,
                _ => false,
            };
            if !same {
                let found = found.map(|(key, value)| format!("{} = {}", show(&key), show(&value)));
                let expected = expected.map(|(key, value)| format!("{} = {}", show(&key), show(&value)));
                wrong = Some(format!("the scan gives {found:?}, and must give {expected:?}"));
                break;
            }
            match found {
                Some((key, _)) => last = Some(key),
                None => {
                    exhausted = true;
                    break;
                }
            }
        }
        drop(range);
        if let Some(wrong) = wrong {
            return fail(wrong);
        }
        if serializable {
            let (from, to) = match (exhausted, last) {
                (true, _) | (_, None) => (from, to),
                (_, Some(last)) if way == 0 => (from, Bound::Included(last)),
                (_, Some(last)) => (Bound::Included(last), to),
            };
            let inside = |changes: &Changes| {
                !is_empty(as_slice(&from), as_slice(&to))
                    && changes.rows.keys().any(|(of, key)| *of == uid && contains(&from, &to, key))
            };
            if Self::others(live, me).any(|open| inside(&open.own)) || self.model.prepared.values().any(inside) {
                return fail("a serializable scan goes over another's uncommitted row");
            }
            if !is_empty(as_slice(&from), as_slice(&to)) {
                live.txs[at].ranges.push((uid, from, to));
            }
            live.txs[at].used.insert(uid);
        }
        self.alive(live)
    }

    fn locking_get(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let key = self.key();
        let exclusive = self.dice.percent(60);
        let open = &live.txs[at];
        let me = open.number;
        let expected = self.expected(open, uid, &key, self.model.seq());
        let own = open.own.rows.contains_key(&(uid, key.clone()));
        let stale = open.strict() && !own && self.model.row_newest(uid, &key) > open.snapshot;
        let blocked =
            self.written_by_other(live, me, uid, &key) || Self::read_by_other(live, me, uid, &key, !exclusive);
        let (there, seen) = self.there(open, uid);
        let may = May { lock: self.company(live, me), conflict: stale || !seen, no_tree: !there || !seen };
        self.say(|| format!("T{me} get {} of tree {uid} locked, exclusive {exclusive}", show(&key)));
        let tx = live.txs[at].tx.as_ref().expect("it is open");
        let tree = &live.trees[&uid];
        let answer = if exclusive { tx.get_for_update(tree, &key) } else { tx.get_for_share(tree, &key) };
        match answer {
            Ok(found) => {
                if blocked || stale || !(there || seen) {
                    return fail(format!("unnoticed: a lock {blocked}, a newer version {stale}, a drop {}", !there));
                }
                if found.as_deref() != expected.as_deref() {
                    let found = found.map(Value::from);
                    return fail(format!("{} is {}, and must be {}", show(&key), shown(&found), shown(&expected)));
                }
                live.txs[at].points.push((uid, key, exclusive));
                live.txs[at].used.insert(uid);
                self.alive(live)
            }
            Err(error) => {
                self.explained(live, Some(error), may)?;
                self.after_refusal(live, at)
            }
        }
    }

    // --- trees -----------------------------------------------------------------------------------------------------------------

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("tree-{}", self.names)
    }

    fn make_tree(&mut self, live: &mut Live) -> Step {
        let name = self.new_name();
        self.say(|| format!("create {name}"));
        let asked = self.sim.now();
        let company = self.company(live, 0);
        let (uid, answer) = (self.model.new_uid(), live.db.create_tree(&name));
        let changes = Changes { names: BTreeMap::from([(uid, Some(name))]), ..Changes::default() };
        self.ddl(live, company, changes, asked, answer.map(|tree| Some((uid, tree))))
    }

    fn ddl(
        &mut self,
        live: &mut Live,
        company: bool,
        changes: Changes,
        asked: Duration,
        answer: Result<Option<(Uid, crate::api::Tree)>, Error>,
    ) -> Step {
        if let Err(error @ (Error::LockTimeout { .. } | Error::Deadlock { .. } | Error::WriteConflict { .. })) = answer
        {
            return self.explained(live, Some(error), May { lock: company, conflict: company, no_tree: false });
        }
        let (made, answer) = match answer {
            Ok(made) => (made, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let level = self.durability;
        let done = self.file(live, Event::Commit(changes), level, asked, answer);
        live.trees.extend(made);
        done.map(drop)
    }

    /// Trees that nobody else uses.
    fn idle_tree(&mut self, live: &Live, me: u64) -> Option<(String, Uid)> {
        let taken = self.in_change(live, me);
        let used = |uid: &Uid| {
            Self::others(live, me).any(|open| open.used.contains(uid))
                || self.model.prepared.values().any(|changes| changes.rows.keys().any(|(of, _)| of == uid))
        };
        let names = self.model.names(self.model.seq()).into_iter();
        let idle: Vec<_> = names.filter(|(_, uid)| !taken.contains(uid) && !used(uid)).collect();
        (!idle.is_empty()).then(|| self.dice.pick(&idle))
    }

    fn tree(&mut self, live: &mut Live) -> Step {
        let trees = self.model.names(self.model.seq()).len();
        let company = self.company(live, 0);
        let asked = self.sim.now();
        match self.dice.below(4) {
            0 | 1 if trees < TREES_MAX => self.make_tree(live),
            0 => {
                // A tree that is there is opened, not made.
                let Some((name, uid)) = self.idle_tree(live, 0) else { return Ok(()) };
                let answer = live.db.create_tree(&name);
                match answer {
                    Ok(tree) if tree.id() != live.trees[&uid].id() => fail(format!("{name} is another tree now")),
                    answer => {
                        self.explained(live, answer.err(), May { lock: company, conflict: company, no_tree: false })
                    }
                }
            }
            1 | 2 => {
                let Some((from, uid)) = self.idle_tree(live, 0) else { return Ok(()) };
                let to = self.new_name();
                self.say(|| format!("rename {from} to {to}"));
                let answer = live.db.rename_tree(&from, &to).map(|()| None);
                let changes = Changes { names: BTreeMap::from([(uid, Some(to))]), ..Changes::default() };
                self.ddl(live, company, changes, asked, answer)
            }
            _ => {
                let Some((name, uid)) = self.idle_tree(live, 0).filter(|_| trees > 1) else { return Ok(()) };
                self.say(|| format!("drop {name}, tree {uid}"));
                let answer = live.db.drop_tree(&name).map(|()| None);
                let changes = Changes { names: BTreeMap::from([(uid, None)]), ..Changes::default() };
                self.ddl(live, company, changes, asked, answer)
            }
        }
    }

    /// A change of names inside a transaction.
    fn tree_inside(&mut self, live: &mut Live, at: usize) -> Step {
        let me = live.txs[at].number;
        let company = self.company(live, me);
        // Its snapshot may not know the names as they are now.
        let old = live.txs[at].snapshot < self.model.seq();
        let may = May { lock: company, conflict: old, no_tree: old };
        let pick = self.idle_tree(live, me).filter(|(_, uid)| !live.txs[at].own.names.contains_key(uid));
        let trees = self.model.names(self.model.seq()).len();
        let fresh = self.new_name();
        let what = self.dice.below(3);
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        let (uid, name, answer) = match (what, pick) {
            (0, _) if trees < TREES_MAX => match tx.create_tree(&fresh) {
                Ok(tree) => {
                    let uid = self.model.new_uid();
                    live.trees.insert(uid, tree);
                    (uid, Some(fresh), Ok(()))
                }
                Err(error) => (0, Some(fresh), Err(error)),
            },
            (1, Some((from, uid))) => {
                let answer = tx.rename_tree(&from, &fresh);
                (uid, Some(fresh), answer)
            }
            (2, Some((name, uid))) if trees > 1 => (uid, None, tx.drop_tree(&name)),
            _ => return Ok(()),
        };
        self.say(|| format!("T{me} makes, renames or drops tree {uid}: {name:?}"));
        match answer {
            Ok(()) => {
                let open = &mut live.txs[at];
                open.own.names.insert(uid, name);
                open.used.insert(uid);
                self.alive(live)
            }
            Err(error) => {
                self.explained(live, Some(error), may)?;
                self.roll_back(live, at)
            }
        }
    }

    /// The names of all trees, as committed.
    fn names(&mut self, live: &mut Live) -> Step {
        match live.db.trees() {
            Ok(found) => {
                let expected: Vec<String> = self.model.names(self.model.seq()).into_keys().collect();
                let found: Vec<String> = found.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
                if found != expected {
                    return fail(format!("the trees are {found:?}, and must be {expected:?}"));
                }
                self.alive(live)
            }
            Err(error) => self.explained(live, Some(error), May::default()),
        }
    }

    // --- the engine's own business ---------------------------------------------------------------------------------------------

    fn background(&mut self, live: &mut Live) -> Step {
        for _ in 0..self.dice.log_uniform(8) {
            let answer = if self.dice.percent(60) {
                let task = self.dice.pick(Task::ALL);
                self.say(|| format!("step {task:?}"));
                live.db.step_task(task)
            } else {
                let answer = live.db.step();
                self.say(|| format!("step: {answer:?}"));
                // Nothing is left to do, so no rollback either.
                live.losers &= !matches!(answer, Ok(false));
                answer
            };
            self.explained(live, answer.err(), May::default())?;
        }
        Ok(())
    }

    /// Compacts a tree, to its end or for some steps; rows, locks and snapshots do not notice.
    fn compact(&mut self, live: &mut Live) -> Step {
        let names: Vec<(String, Uid)> = self.model.names(self.model.seq()).into_iter().collect();
        // Sometimes a tree of which only old snapshots know, or one that is being made.
        let uid = if self.dice.percent(90) && !names.is_empty() {
            self.dice.pick(&names).1
        } else {
            let known: Vec<Uid> = live.trees.keys().copied().collect();
            if known.is_empty() {
                return Ok(());
            }
            self.dice.pick(&known)
        };
        let there = names.iter().any(|(_, known)| *known == uid);
        let Some(tree) = live.trees.get(&uid) else { return Ok(()) };
        let fill_percent = self.dice.pick(&[50, 70, 90, 100]);
        let mut calls = if self.dice.percent(50) { u64::MAX } else { 1 + self.dice.log_uniform(30) };
        let mut dice = self.dice.split();
        self.say(|| format!("compact tree {uid} to {fill_percent}%, at most {calls} calls"));
        // Between two steps pages are written, what was deleted is purged, the checkpoint moves: and there it may crash.
        let answer = crate::api::compact(&live.db, tree, fill_percent, || {
            calls -= 1;
            for _ in 0..dice.below(3) {
                live.db.step_task(dice.pick(Task::ALL))?;
            }
            Ok(calls > 0)
        });
        self.say(|| format!("  moved {answer:?}"));
        match answer {
            Ok(moved) if there => {
                self.tally.moved += moved;
                self.alive(live)
            }
            Ok(_) => fail("it compacts a tree that is not there"),
            Err(error) => {
                self.tally.cut_off += u64::from(live.process.is_dead() || self.faulty || self.full);
                self.explained(live, Some(error), May { no_tree: !there, ..May::default() })
            }
        }
    }

    fn set(&mut self, live: &mut Live) -> Step {
        let (name, value) = match self.dice.below(4) {
            0 => ("pool_size", (self.page_bytes * self.dice.pick(&[64, 100, 128, 256])).max(256 << 10).to_string()),
            1 => ("redo_capacity", ((1 << 20) + self.segment_bytes * self.dice.pick(&[1, 2, 4, 12])).to_string()),
            2 => ("io_capacity", self.dice.pick(&["100", "2000"]).into()),
            _ => ("data_growth_step", self.dice.pick(&["1M", "3M"]).into()),
        };
        self.say(|| format!("set {name} = {value}"));
        match crate::api::set(&live.db, name, &value) {
            // No more than four times what it was at the opening.
            Err(Error::InvalidOption { .. }) if name == "pool_size" => self.alive(live),
            answer => self.explained(live, answer.err(), May::default()),
        }
    }
}

fn shown(value: &Option<Value>) -> String {
    value.as_ref().map_or_else(|| "nothing".into(), |value| show(value))
}
