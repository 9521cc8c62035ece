//! The work of one life of the engine: one random operation after another, each judged by the model.
//!
//! 1. It is known exactly what must fail: writing over another transaction's uncommitted row, into a range
//!    read by a serializable transaction, over a version that a snapshot does not see. If such an operation
//!    succeeds, the engine has failed.
//! 2. It is known roughly what may fail: locks may be coarser than rows, so any other open transaction
//!    excuses a lock error.
//! 3. Other transactions do not touch a tree under an uncommitted change of its name.

pub(crate) mod outside;
mod rows;
pub(crate) mod temporary;
mod transactions;
mod trees;

use crate::api::{Durability, Error, Isolation, LockWait, OnConflict, Savepoint, Task, Transaction, TxOptions, Xid};
use crate::support::model::{Changes, Event, Key, Promise, Seq, Uid, Value, is_empty, show};
use crate::support::rig::{Live, METHODS, May, Open, Rig, Step, Stop, fail, value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

const TXS_MAX: usize = 5;
const TREES_MAX: usize = 6;
const PREPARED_MAX: usize = 3;
const CURSORS_MAX: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Insert,
    Put,
    Update,
    Delete,
}

impl Open {
    fn new(number: u64, tx: Transaction, options: TxOptions) -> Self {
        Self {
            number,
            tx: Some(tx),
            options,
            snapshot: None,
            own: Changes::default(),
            savepoints: Vec::new(),
            ranges: Vec::new(),
            points: Vec::new(),
            used: BTreeSet::new(),
        }
    }
    fn repeatable(&self) -> bool {
        self.options.isolation == Isolation::RepeatableRead
    }
    fn serializable(&self) -> bool {
        self.options.isolation == Isolation::Serializable
    }
    fn strict(&self) -> bool {
        self.options.isolation != Isolation::ReadCommitted && self.options.on_conflict == OnConflict::Fail
    }
    /// When the rows were committed that a read returns. A serializable one with a snapshot returns no newer ones.
    fn sees(&self, now: Seq) -> Seq {
        if self.serializable() { now } else { self.knows(now) }
    }
    fn knows(&self, now: Seq) -> Seq {
        self.snapshot.unwrap_or(now)
    }
    fn takes_snapshot(&mut self, now: Seq) {
        if self.strict() {
            self.snapshot.get_or_insert(now);
        }
        self.reads(now);
    }
    /// A read without a lock: repeatable read takes its snapshot, if it has none.
    fn reads(&mut self, now: Seq) {
        if self.repeatable() {
            self.snapshot.get_or_insert(now);
        }
    }
    /// Whether a commit at `seq` came after the snapshot, so that a change of the row would conflict.
    fn misses(&self, seq: Seq) -> bool {
        self.strict() && self.snapshot.is_some_and(|snapshot| seq > snapshot)
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
        self.hear(live);
        if self.temporaries && self.beside.percent(8) {
            self.temporary(live)?;
        }
        #[derive(Clone, Copy)]
        enum Do {
            Begin,
            Write,
            Many,
            DeleteRange,
            Pop,
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
            Burst,
            Outside,
            Backup,
            InsertMany,
            PutMany,
            InsertUnique,
            Look,
            Walk,
            Interrupt,
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
            (self.pops, Do::Pop),
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
            (self.bursts, Do::Burst),
            // Kept seeds stay unchanged.
            (if self.kept { 0 } else { 8 }, Do::Outside),
            (u64::from(self.may_copy(live)), Do::Backup),
            (if self.kept { 0 } else { 2 }, Do::InsertMany),
            (if self.kept { 0 } else { 3 }, Do::Look),
            (if self.kept { 0 } else { 5 }, Do::Walk),
            (if self.newer { 3 } else { 0 }, Do::Interrupt),
            (if self.wider { 2 } else { 0 }, Do::PutMany),
            (if self.wider { 3 } else { 0 }, Do::InsertUnique),
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
            Do::Burst => self.burst(live),
            Do::Outside => self.outside(live),
            Do::Backup => self.backup(live),
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
            Do::Write
            | Do::Many
            | Do::DeleteRange
            | Do::Pop
            | Do::Get
            | Do::Scan
            | Do::LockingGet
            | Do::InsertMany
            | Do::PutMany
            | Do::InsertUnique
            | Do::Look
            | Do::Walk
            | Do::Interrupt => {
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
                    // A serializable transaction locks the rows it searches: other operations cover that.
                    Do::Pop if live.txs[at].serializable() => self.delete_range(live, at, uid),
                    Do::Pop => self.pop(live, at, uid),
                    Do::Get => self.get(live, at, uid),
                    Do::InsertMany => self.insert_many(live, at, uid),
                    Do::PutMany => self.put_many(live, at, uid),
                    Do::InsertUnique => self.insert_unique(live, at, uid),
                    Do::Look => self.look(live, at, uid),
                    // A serializable transaction locks the rows it reaches: scans cover that.
                    Do::Walk if live.txs[at].serializable() => self.scan(live, at, uid),
                    Do::Walk => self.walk(live, at, uid),
                    Do::Interrupt => self.interrupt(live, at, uid),
                    Do::Scan => self.scan(live, at, uid),
                    _ => self.locking_get(live, at, uid),
                }
            }
        }
    }

    // --- other transactions ----------------------------------------------------------------------------

    fn others(live: &Live, me: u64) -> impl Iterator<Item = &Open> {
        live.txs.iter().filter(move |open| open.number != me)
    }

    /// Whether another transaction may hold a lock.
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

    /// Whether another transaction has locked the row by reading it; `exclusively`: with a lock that excludes
    /// shared readers.
    fn read_by_other(live: &Live, me: u64, uid: Uid, key: &[u8], exclusively: bool) -> bool {
        Self::others(live, me).any(|open| {
            let point =
                |(of, at, exclusive): &(Uid, Key, bool)| *of == uid && at == key && (*exclusive || !exclusively);
            let range = |(of, from, to): &(Uid, Bound<Key>, Bound<Key>)| *of == uid && contains(from, to, key);
            open.points.iter().any(point) || (!exclusively && open.ranges.iter().any(range))
        })
    }

    /// Trees whose name another transaction is changing.
    fn in_change(&self, live: &Live, me: u64) -> BTreeSet<Uid> {
        let open = Self::others(live, me).flat_map(|open| open.own.names.keys());
        open.chain(self.model.prepared.values().flat_map(|changes| changes.names.keys())).copied().collect()
    }

    /// A tree that this transaction may use: a current one, or one in its snapshot, or one it created.
    fn some_tree(&mut self, live: &Live, at: usize) -> Option<Uid> {
        let me = &live.txs[at];
        let taken = self.in_change(live, me.number);
        let mut usable: BTreeSet<Uid> = self.model.names(self.model.seq()).into_values().collect();
        usable.extend(self.model.names(me.knows(self.model.seq())).into_values().filter(|_| self.dice.percent(10)));
        for (uid, name) in &me.own.names {
            match name {
                Some(_) => usable.insert(*uid),
                None => usable.remove(uid),
            };
        }
        // A built tree is refused to an older snapshot.
        let seen: BTreeSet<Uid> = self.model.names(me.knows(self.model.seq())).into_values().collect();
        // Except one that it created itself, which has no name for others yet; one that it renamed has.
        let named: BTreeSet<Uid> = self.model.names(self.model.seq()).into_values().collect();
        let refused = |uid: &Uid| live.built.contains(uid) && !seen.contains(uid) && named.contains(uid);
        let usable: Vec<Uid> = usable
            .into_iter()
            .filter(|uid| !taken.contains(uid) && live.trees.contains_key(uid) && !refused(uid))
            .collect();
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

    /// Whether the tree exists now (or was created by this transaction), and whether it is in what this
    /// transaction sees.
    fn there(&self, open: &Open, uid: Uid) -> (bool, bool) {
        let named = |seq: Seq| self.model.names(seq).values().any(|known| *known == uid);
        let own = open.own.names.get(&uid).is_some_and(Option::is_some);
        (own || named(self.model.seq()), own || named(open.knows(self.model.seq())))
    }

    // --- drawing ---------------------------------------------------------------------------------------

    fn key(&mut self) -> Key {
        let number = if self.dice.percent(70) { self.dice.below(40) } else { self.dice.below(1000) };
        let mut key = format!("{number:03}").into_bytes();
        let longest = self.longest_key();
        match number % 23 {
            0 => key.extend(std::iter::repeat_n(b'x', longest - key.len())),
            1 => key.extend(std::iter::repeat_n(0xff, (number as usize * 7) % (longest - 8))),
            2 => key.insert(0, 0),
            // Alike except at their ends: fences and separators are as long as the keys.
            4 => key.splice(0..0, std::iter::repeat_n(b'p', longest - 3)).for_each(drop),
            3 if number < 5 => key.clear(),
            _ => {}
        }
        key
    }

    fn longest_key(&self) -> usize {
        (self.page_bytes / 4 - 96).min(4000) as usize
    }

    fn new_value(&mut self) -> Value {
        let len = match self.dice.below(200) {
            0..=9 => 0,
            // Often of one length, so that a new value differs from the old one in parts.
            10..=129 => match self.dice.below(100) {
                n @ 0..=59 => [40, 90, 300][n as usize % 3],
                n => n,
            },
            130..=179 => self.dice.below(2000),
            180..=191 => self.dice.below(20_000),
            // Around the longest rows that stay in their leaf (most keys have three bytes), and the longest
            // values of one page.
            192..=195 => self.page_bytes / 2 - 20 + self.dice.below(10),
            196..=197 => self.page_bytes - 42 + self.dice.below(5),
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
}

fn shown(value: &Option<Value>) -> String {
    value.as_ref().map_or_else(|| "nothing".into(), |value| show(value))
}
