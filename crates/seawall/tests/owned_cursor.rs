//! Cursors that outlive a borrow.
//!
//! 1. Thousands of cursors over few trees are reused while their transactions change rows, roll back to savepoints, end
//!    and restart, during other writes, purge, compaction and drops: each is where a plain map says, at every isolation
//!    level.
//! 2. An idle cursor holds back nothing after its transaction, and changes of other trees do not move it.
//! 3. A long value removed by a rollback to a savepoint is refused, not read from pages that belong to
//!    another value.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;
use seawall::{
    Background, CursorOptions, Database, Durability, Env, Error, Isolation, LockMode, LockWait, OnConflict, Options,
    OwnedCursor, Savepoint, Seek, Task, Transaction, Tree, TxOptions,
};
use seawall_sim::{Process, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn open(seed: u64) -> Database {
    open_on(&SimDisk::new(SimOptions { seed, trace_entries_max: 0, ..SimOptions::default() }), seed)
}

fn open_on(disk: &Arc<SimDisk>, seed: u64) -> Database {
    let clock = Arc::new(seawall_io::SystemClock::default());
    let env = Env { disk: Arc::new(Process::new(disk)), clock, seed, background: Background::Steps };
    let options = Options::default()
        .with_page_size(4096)
        .with_pool_size(2 << 20)
        .with_data_initial_size(1 << 20)
        .with_durability(Durability::Deferred);
    Database::open_in(env, "/db", options).unwrap()
}

const TREES: usize = 3;
const CURSORS: usize = 1500;
const TRANSACTIONS: usize = 4;

/// A cursor, and its position in the model.
struct Kept {
    cursor: OwnedCursor,
    tree: usize,
    bounds: Bounds,
    lock: Option<LockMode>,
    by: usize,
    /// It had a seek since its last reset: before that a step is refused.
    sought: bool,
    /// The key it is on, or from which it continues; with the transaction's life in which it came there.
    at: Option<(Vec<u8>, u64)>,
    /// Its value when it came there.
    value: Vec<u8>,
    /// Read committed: the state that its seek saw.
    seen: Option<Arc<Vec<Rows>>>,
}

/// A transaction object, and the state that it sees.
struct Client {
    tx: Transaction,
    isolation: Isolation,
    life: u64,
    /// Repeatable read: the state committed when its snapshot was taken.
    snapshot: Option<Arc<Vec<Rows>>>,
    /// Its own changes, in order.
    changes: Vec<(usize, Vec<u8>, Option<Vec<u8>>)>,
    savepoints: Vec<(Savepoint, usize)>,
}

struct World {
    db: Database,
    trees: Vec<Tree>,
    committed: Arc<Vec<Rows>>,
    clients: Vec<Client>,
    cursors: Vec<Kept>,
    dice: Pcg64,
    lives: u64,
}

fn seeks(key: &[u8], which: u32) -> Seek<'_> {
    match which {
        0 => Seek::First,
        1 => Seek::Last,
        2 => Seek::AtLeast(key),
        3 => Seek::After(key),
        4 => Seek::AtMost(key),
        _ => Seek::Before(key),
    }
}

/// The entry that a step from here reaches.
fn expected(rows: &Rows, bounds: &Bounds, to: Seek<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let inside = |key: &Vec<u8>| {
        (match &bounds.0 {
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
            Bound::Unbounded => true,
        }) && (match &bounds.1 {
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
            Bound::Unbounded => true,
        })
    };
    let mut all = rows.iter().filter(|(key, _)| inside(key));
    let found = match to {
        Seek::First => all.next(),
        Seek::Last => all.next_back(),
        Seek::AtLeast(from) => all.find(|(key, _)| &key[..] >= from),
        Seek::After(from) => all.find(|(key, _)| &key[..] > from),
        Seek::AtMost(from) => all.rfind(|(key, _)| &key[..] <= from),
        Seek::Before(from) => all.rfind(|(key, _)| &key[..] < from),
    };
    found.map(|(key, value)| (key.clone(), value.clone()))
}

impl World {
    fn new(seed: u64) -> Self {
        let db = open(seed);
        let trees: Vec<_> = (0..TREES).map(|n| db.create_tree(&format!("t{n}")).unwrap()).collect();
        let mut world = Self {
            committed: Arc::new(vec![Rows::new(); TREES]),
            clients: Vec::new(),
            cursors: Vec::new(),
            dice: Pcg64::seed_from_u64(seed),
            lives: 0,
            db,
            trees,
        };
        for tree in 0..TREES {
            for _ in 0..120 {
                let (key, value) = (world.key(), world.value());
                world.db.transact(|tx| tx.put(&world.trees[tree], &key, &value)).unwrap();
                Arc::make_mut(&mut world.committed)[tree].insert(key, value);
            }
        }
        for _ in 0..TRANSACTIONS {
            let isolation = world.isolation();
            let tx = world.db.begin_with(options(isolation)).unwrap();
            world.lives += 1;
            let life = world.lives;
            world.clients.push(Client {
                tx,
                isolation,
                life,
                snapshot: None,
                changes: Vec::new(),
                savepoints: Vec::new(),
            });
        }
        for _ in 0..CURSORS {
            let kept = Kept {
                cursor: OwnedCursor::new(),
                tree: 0,
                bounds: (Bound::Unbounded, Bound::Unbounded),
                lock: None,
                by: 0,
                sought: false,
                at: None,
                value: Vec::new(),
                seen: None,
            };
            world.cursors.push(kept);
            let last = world.cursors.len() - 1;
            world.reset(last);
        }
        world
    }

    fn isolation(&mut self) -> Isolation {
        [Isolation::RepeatableRead, Isolation::RepeatableRead, Isolation::ReadCommitted, Isolation::Serializable]
            [self.dice.random_range(0..4)]
    }

    fn key(&mut self) -> Vec<u8> {
        // Few keys, some of them long and with a long common prefix.
        let n = self.dice.random_range(0..300u32);
        let mut key = if n % 3 == 0 { vec![b'k'; 40] } else { vec![b'j'] };
        key.extend_from_slice(format!("{n:04}").as_bytes());
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.dice.random_range(0..20) {
            0 => self.dice.random_range(1200..6000), // on pages of its own
            1..=4 => self.dice.random_range(200..700),
            _ => self.dice.random_range(0..30),
        };
        vec![self.dice.random(); len]
    }

    fn bounds(&mut self) -> Bounds {
        let bound = |world: &mut Self| match world.dice.random_range(0..4) {
            0 => Bound::Included(world.key()),
            1 => Bound::Excluded(world.key()),
            _ => Bound::Unbounded,
        };
        (bound(self), bound(self))
    }

    fn reset(&mut self, n: usize) {
        let bounds = self.bounds();
        let tree = self.dice.random_range(0..TREES);
        let lock = (self.dice.random_range(0..12) == 0).then_some(LockMode::Shared);
        let options = CursorOptions {
            lock,
            limit: (self.dice.random_range(0..4) == 0).then_some(3),
            long: self.dice.random_range(0..8) == 0,
            ..CursorOptions::default()
        };
        let kept = &mut self.cursors[n];
        kept.cursor.reset(&self.trees[tree], options, &bounds);
        (kept.tree, kept.bounds, kept.lock, kept.at, kept.seen) = (tree, bounds, lock, None, None);
        kept.sought = false;
        assert!(kept.cursor.key().is_empty() && !kept.cursor.is_on_entry());
    }

    /// The state that a transaction sees of a tree, in this base.
    fn seen(&self, base: &[Rows], client: usize, tree: usize) -> Rows {
        let mut rows = base[tree].clone();
        for (_, key, value) in self.clients[client].changes.iter().filter(|(of, ..)| *of == tree) {
            match value {
                Some(value) => drop(rows.insert(key.clone(), value.clone())),
                None => drop(rows.remove(key)),
            }
        }
        rows
    }

    /// Picks a cursor: mostly one of a few, which are moved often within one transaction.
    fn cursor(&mut self) -> usize {
        let few = self.dice.random_range(0..4) > 0;
        self.dice.random_range(0..if few { 12 } else { CURSORS })
    }

    fn move_cursor(&mut self) {
        let n = self.cursor();
        if self.dice.random_range(0..6) == 0 {
            self.reset(n);
        }
        let by = self.cursors[n].by;
        // Occasionally another transaction continues with it.
        let by = if self.dice.random_range(0..20) == 0 { self.dice.random_range(0..TRANSACTIONS) } else { by };
        let key = self.key();
        for step in 0..self.dice.random_range(1..14) {
            let which = self.dice.random_range(0..10u32);
            // Mostly continues from its position.
            let on = step > 0 || self.dice.random_range(0..3) > 0;
            self.step(n, by, &key, if on { which.max(4) } else { which });
        }
        if self.dice.random_range(0..3) == 0 {
            let forward = self.dice.random_range(0..3) > 0;
            self.walk(n, by, forward);
        }
    }

    fn locks(&self, n: usize, by: usize) -> bool {
        self.cursors[n].lock.is_some() || self.clients[by].isolation == Isolation::Serializable
    }

    /// The state in which a cursor moves, and the rows of its tree that its transaction sees there.
    fn base(&mut self, n: usize, by: usize, seeks: bool) -> (Arc<Vec<Rows>>, Rows) {
        let (isolation, life) = (self.clients[by].isolation, self.clients[by].life);
        let locks = self.locks(n, by);
        if isolation == Isolation::RepeatableRead && !locks && self.clients[by].snapshot.is_none() {
            self.clients[by].snapshot = Some(self.committed.clone());
        }
        let kept = &self.cursors[n];
        let goes_on = kept.at.as_ref().is_some_and(|(_, came)| *came == life);
        let base = match isolation {
            _ if locks => self.committed.clone(),
            Isolation::RepeatableRead => self.clients[by].snapshot.clone().unwrap(),
            _ if !seeks && goes_on && kept.seen.is_some() => kept.seen.clone().unwrap(),
            _ => self.committed.clone(),
        };
        let rows = self.seen(&base, by, kept.tree);
        (base, rows)
    }

    /// Another transaction's lock is in the way, for which these do not wait.
    fn start_over(&mut self, n: usize) {
        let kept = &mut self.cursors[n];
        let options = CursorOptions { lock: kept.lock, ..CursorOptions::default() };
        kept.cursor.reset(&self.trees[kept.tree], options, &kept.bounds);
        (kept.at, kept.seen, kept.sought) = (None, None, false);
    }

    /// Several steps in one call.
    fn walk(&mut self, n: usize, by: usize, forward: bool) {
        let most = self.dice.random_range(1..40);
        let locks = self.locks(n, by);
        let (base, rows) = self.base(n, by, false);
        let kept = &mut self.cursors[n];
        let mut at = kept.at.as_ref().map(|(key, _)| key.clone());
        let mut want = Vec::new();
        while let Some(from) = at.take().filter(|_| want.len() < most) {
            let next = expected(&rows, &kept.bounds, if forward { Seek::After(&from) } else { Seek::Before(&from) });
            at = next.as_ref().map(|(key, _)| key.clone());
            want.extend(next);
        }
        let mut found = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < most
        };
        let tx = &self.clients[by].tx;
        let visited = if forward { kept.cursor.next_while(tx, visit) } else { kept.cursor.prev_while(tx, visit) };
        kept.by = by;
        match visited {
            Ok(visited) => assert_eq!(visited, found.len()),
            Err(Error::LockTimeout { .. } | Error::WriteConflict { .. }) if locks => {
                assert!(want.starts_with(&found));
                return self.start_over(n);
            }
            Err(Error::Usage(_)) if !kept.sought => return,
            Err(error) => panic!("{error}"),
        }
        assert!(found == want, "{} entries, and not {}", found.len(), want.len());
        let on = (found.len() == most).then(|| found.pop().expect("it has visited some"));
        assert_eq!(kept.cursor.is_on_entry(), on.is_some());
        kept.seen = Some(base);
        kept.value = on.as_ref().map_or_else(Vec::new, |(_, value)| value.clone());
        kept.at = on.map(|(key, _)| (key, self.clients[by].life));
    }

    /// A seek when `which` is below 6, else a step.
    fn step(&mut self, n: usize, by: usize, key: &[u8], which: u32) {
        let (isolation, life) = (self.clients[by].isolation, self.clients[by].life);
        let locks = self.locks(n, by);
        let (base, rows) = self.base(n, by, which < 6);
        let kept = &self.cursors[n];
        let from = kept.at.as_ref().map(|(key, _)| key.clone());
        let forward = which < 9;
        let want = match (&from, which) {
            (_, 0..6) => expected(&rows, &kept.bounds, seeks(key, which)),
            (None, _) => None,
            (Some(from), _) => {
                expected(&rows, &kept.bounds, if forward { Seek::After(from) } else { Seek::Before(from) })
            }
        };
        let (tx, kept) = (&self.clients[by].tx, &mut self.cursors[n]);
        let moved = match which {
            0..6 => kept.cursor.seek(tx, seeks(key, which)),
            6..9 => kept.cursor.next(tx),
            _ => kept.cursor.prev(tx),
        };
        kept.by = by;
        kept.sought |= which < 6;
        let there = match moved {
            Ok(there) => there,
            Err(Error::LockTimeout { .. } | Error::WriteConflict { .. }) if locks => {
                return self.start_over(n);
            }
            Err(Error::Usage(_)) if !kept.sought => return,
            Err(error) => panic!("{error}"),
        };
        let found = there.then(|| {
            let (key, value) = kept.cursor.entry(tx).unwrap();
            (key.to_vec(), value.to_vec())
        });
        assert_eq!(
            found.as_ref().map(|(key, value)| (key.escape_ascii().to_string(), value.len())),
            want.as_ref().map(|(key, value)| (key.escape_ascii().to_string(), value.len())),
            "{isolation:?}, {which}, from {from:?}, locks {locks}"
        );
        assert!(found == want);
        (kept.seen, kept.value) = (Some(base), found.as_ref().map_or_else(Vec::new, |(_, value)| value.clone()));
        kept.at = found.map(|(key, _)| (key, life));
    }

    /// The entry under a cursor changes only at its transaction's end.
    fn look(&mut self) {
        let n = self.cursor();
        let kept = &mut self.cursors[n];
        let client = &self.clients[kept.by];
        let value = kept.cursor.value(&client.tx).map(<[u8]>::to_vec);
        match &kept.at {
            Some((key, life)) if *life == client.life => {
                assert_eq!(kept.cursor.key(), key);
                assert_eq!(value.unwrap(), kept.value);
            }
            _ => assert!(matches!(value, Err(Error::Usage(_))), "{value:?}"),
        }
    }

    fn change(&mut self) {
        let by = self.dice.random_range(0..TRANSACTIONS);
        let tree = self.dice.random_range(0..TREES);
        // A run of changes splits leaves or empties them.
        let (run, delete) = (self.dice.random_range(1..12), self.dice.random_range(0..2) == 0);
        for _ in 0..run {
            let (key, value) = (self.key(), self.value());
            let tx = &mut self.clients[by].tx;
            let changed = if delete {
                tx.delete(&self.trees[tree], &key).map(|was_there| was_there.then_some(None))
            } else {
                tx.put(&self.trees[tree], &key, &value).map(|()| Some(Some(value)))
            };
            match changed {
                Ok(None) => {}
                Ok(Some(value)) => self.clients[by].changes.push((tree, key, value)),
                Err(Error::LockTimeout { .. } | Error::WriteConflict { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn delete_at_cursor(&mut self) {
        let n = self.cursor();
        let kept = &mut self.cursors[n];
        let client = &mut self.clients[kept.by];
        let deleted = kept.cursor.delete(&mut client.tx);
        match (&kept.at, deleted) {
            (Some((key, life)), Ok(was_there)) => {
                assert_eq!(*life, client.life);
                if was_there {
                    client.changes.push((kept.tree, key.clone(), None));
                }
                // It is on no entry; a step checks where it continues.
                let (key, life) = (key.clone(), *life);
                assert!(!kept.cursor.is_on_entry());
                kept.at = Some((key, life));
                let by = kept.by;
                self.step(n, by, &[], 6);
            }
            (Some((_, life)), Err(Error::Usage(_))) => assert_ne!(*life, client.life),
            (None, Err(Error::Usage(_))) => {}
            (Some(_), Err(Error::LockTimeout { .. } | Error::WriteConflict { .. })) => {}
            (at, deleted) => panic!("{at:?}: {deleted:?}"),
        }
    }

    fn end(&mut self) {
        let by = self.dice.random_range(0..TRANSACTIONS);
        let isolation = if self.dice.random_range(0..2) == 0 { self.isolation() } else { self.clients[by].isolation };
        self.lives += 1;
        let client = &mut self.clients[by];
        match self.dice.random_range(0..3) {
            0 => {
                client.tx.commit_in_place().unwrap();
                let committed = Arc::make_mut(&mut self.committed);
                for (tree, key, value) in client.changes.drain(..) {
                    match value {
                        Some(value) => drop(committed[tree].insert(key, value)),
                        None => drop(committed[tree].remove(&key)),
                    }
                }
                if isolation != client.isolation {
                    client.tx.set_isolation(isolation);
                }
            }
            1 => {
                client.tx.rollback_in_place().unwrap();
                client.tx.set_isolation(isolation);
            }
            _ => client.tx.restart(options(isolation)).unwrap(),
        }
        (client.isolation, client.life, client.snapshot) = (isolation, self.lives, None);
        client.changes.clear();
        client.savepoints.clear();
    }

    fn savepoint(&mut self) {
        let by = self.dice.random_range(0..TRANSACTIONS);
        let client = &mut self.clients[by];
        if self.dice.random_range(0..2) == 0 || client.savepoints.is_empty() {
            client.savepoints.push((client.tx.savepoint(), client.changes.len()));
            return;
        }
        let at = self.dice.random_range(0..client.savepoints.len());
        let (savepoint, changes) = client.savepoints[at];
        client.savepoints.truncate(at + 1);
        client.tx.rollback_to(&savepoint).unwrap();
        client.changes.truncate(changes);
    }

    /// Background work, and trees that come and go.
    fn tend(&mut self) {
        match self.dice.random_range(0..4) {
            0 => while self.db.step_task(Task::Purge).unwrap() {},
            1 => drop(self.db.step_task(Task::Clean).unwrap()),
            2 => {
                let tree = self.dice.random_range(0..TREES);
                self.db.compact(&self.trees[tree]).unwrap();
            }
            _ => {
                // A tree with a cursor that is no longer moved.
                let name = "dropped";
                let tree = self.db.create_tree(name).unwrap();
                self.db.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
                let mut cursor = OwnedCursor::new();
                cursor.reset(&tree, CursorOptions::default(), ..);
                let mut tx = self.db.begin().unwrap();
                assert!(cursor.seek(&tx, Seek::First).unwrap());
                self.db.drop_tree(name).unwrap();
                assert!(cursor.seek(&tx, Seek::First).unwrap(), "it is older than the drop");
                tx.commit_in_place().unwrap();
                assert!(matches!(cursor.next(&tx), Err(Error::TreeDropped { .. })));
                assert!(matches!(cursor.seek(&tx, Seek::First), Err(Error::TreeDropped { .. })));
            }
        }
    }
}

fn options(isolation: Isolation) -> TxOptions {
    TxOptions { isolation, wait: LockWait::NoWait, on_conflict: OnConflict::Latest, ..TxOptions::default() }
}

#[test]
fn cursors_and_transactions_that_are_kept_do_what_the_model_does() {
    let seeds: u64 = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4);
    let from: u64 = std::env::var("FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(0);
    for seed in from..from + seeds {
        let ran = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..2500 {
                match world.dice.random_range(0..60) {
                    0..20 => world.move_cursor(),
                    20..24 => world.look(),
                    24..32 => world.change(),
                    32..34 => world.delete_at_cursor(),
                    34..36 => world.savepoint(),
                    36 => world.end(),
                    37 => world.tend(),
                    _ => world.move_cursor(),
                }
            }
        });
        if let Err(why) = ran {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(why);
        }
    }
}

/// A row for each way in which its long value can be removed.
#[test]
fn a_long_value_that_was_taken_back_is_refused() {
    let db = open(1);
    let (tree, other) = (db.create_tree("t").unwrap(), db.create_tree("o").unwrap());
    let long = |n: u8| vec![n; 20_000];
    db.transact(|tx| tx.put(&tree, b"a", &long(1))).unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let mut tx = db.begin_with(options(isolation)).unwrap();
        let seek = |tx: &Transaction, key: &'static [u8]| {
            let mut cursor = OwnedCursor::new();
            cursor.reset(&tree, CursorOptions::default(), ..);
            assert!(cursor.seek(tx, Seek::AtLeast(key)).unwrap());
            assert_eq!(cursor.key(), key);
            cursor
        };
        let first = tx.savepoint();
        tx.put(&tree, b"b", &long(2)).unwrap();
        let second = tx.savepoint();
        let (mut a, mut b) = (seek(&tx, b"a"), seek(&tx, b"b"));
        tx.put(&tree, b"b", &long(3)).unwrap();
        let mut changed = seek(&tx, b"b");
        // The transaction's own later change does not alter the entry that a cursor reached.
        assert!(b.value(&tx).unwrap() == long(2));
        let mut b = seek(&tx, b"b");
        tx.rollback_to(&second).unwrap();
        // Other values take the freed pages.
        tx.put(&other, b"x", &long(9)).unwrap();
        assert!(matches!(changed.value(&tx), Err(Error::Usage(_))));
        assert!(matches!(b.value(&tx), Err(Error::Usage(_))), "it stood on the value that was taken back");
        let mut b = seek(&tx, b"b");
        assert!(a.value(&tx).unwrap() == long(1), "another's, and there all the time");
        let mut a = seek(&tx, b"a");
        tx.rollback_to(&first).unwrap();
        tx.put(&other, b"y", &long(9)).unwrap();
        assert!(matches!(b.value(&tx), Err(Error::Usage(_))));
        assert!(a.value(&tx).unwrap() == long(1));
        assert!(!b.next(&tx).unwrap(), "nothing is behind it");
        tx.rollback_in_place().unwrap();
        assert!(matches!(a.value(&tx), Err(Error::Usage(_))));
        assert!(a.seek(&tx, Seek::Last).unwrap());
        assert!(a.value(&tx).unwrap() == long(1));
    }
}

/// A snapshot that the transaction releases keeps no long value: another value can have its pages.
#[test]
fn a_long_value_of_a_snapshot_that_was_given_up_is_looked_for_again() {
    let db = open(1);
    let tree = db.create_tree("t").unwrap();
    let long = |n: u8| vec![n; 20_000];
    db.transact(|tx| tx.put(&tree, b"a", &long(1))).unwrap();
    let mut tx = db.begin_with(options(Isolation::ReadCommitted)).unwrap();
    tx.set_isolation(Isolation::RepeatableRead);
    let mut cursor = OwnedCursor::new();
    cursor.reset(&tree, CursorOptions::default(), ..);
    assert!(cursor.seek(&tx, Seek::First).unwrap());
    tx.set_isolation(Isolation::ReadCommitted);
    db.transact(|tx| tx.put(&tree, b"a", b"short")).unwrap();
    while db.step().unwrap() {}
    db.transact(|tx| tx.put(&tree, b"b", &long(2))).unwrap();
    match cursor.value(&tx) {
        Err(Error::Usage(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// A cursor follows the level of its transaction without a seek.
#[test]
fn a_cursor_locks_from_the_step_on_at_which_its_transaction_is_serializable() {
    let db = open(1);
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.put_rows(&tree, (0..9u8).map(|i| ([i], [i])))).unwrap();
    let mut tx = db.begin_with(options(Isolation::RepeatableRead)).unwrap();
    let mut cursor = OwnedCursor::new();
    cursor.reset(&tree, CursorOptions::default(), ..);
    assert!(cursor.seek(&tx, Seek::First).unwrap());
    tx.set_isolation(Isolation::Serializable);
    assert!(cursor.next(&tx).unwrap());
    assert_eq!(cursor.key(), [1]);
    let no_wait = || TxOptions { wait: LockWait::NoWait, ..TxOptions::default() };
    let refused = db.transact_with(no_wait(), |tx| tx.put(&tree, &[1], b"rival"));
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
}

/// Its transaction is over, but the cursor is kept: purge continues.
#[test]
fn an_idle_cursor_holds_back_nothing() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let db = open(2);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put(&tree, b"a", b"1")).unwrap();
        let mut tx = db.begin_with(options(isolation)).unwrap();
        let mut other = db.begin_with(options(isolation)).unwrap();
        let mut cursors: Vec<_> = (0..50).map(|_| OwnedCursor::new()).collect();
        for (n, cursor) in cursors.iter_mut().enumerate() {
            cursor.reset(&tree, CursorOptions::default(), ..);
            assert!(cursor.seek(&tx, Seek::First).unwrap());
            if n % 3 == 0 {
                assert!(cursor.seek(&other, Seek::First).unwrap(), "with another transaction");
            }
        }
        match isolation {
            Isolation::ReadCommitted => tx.begin_statement(),
            _ => tx.commit_in_place().unwrap(),
        }
        other.rollback_in_place().unwrap();
        let of_statement = u64::from(isolation == Isolation::ReadCommitted);
        assert_eq!(db.stats().txn.views, of_statement, "{isolation:?}");
        tx.end_statement();
        for cursor in &mut cursors {
            assert!(cursor.value(&tx).is_err());
            assert!(!cursor.next(&tx).unwrap());
        }
        drop(tx);
        drop(cursors);
    }
}

/// What is called for each entry may read with the same transaction, and other cursors with it.
#[test]
fn a_visit_may_read() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let db = open(7);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| (0..90u8).try_for_each(|n| tx.put(&tree, &[n], &[n]))).unwrap();
        let tx = db.begin_with(options(isolation)).unwrap();
        let (mut cursor, mut other) = (OwnedCursor::new(), OwnedCursor::new());
        cursor.reset(&tree, CursorOptions::default(), ..);
        other.reset(&tree, CursorOptions::default(), ..);
        assert!(cursor.seek(&tx, Seek::First).unwrap());
        let visited = cursor.next_while(&tx, |key, value| {
            assert_eq!(tx.get(&tree, key).unwrap().as_deref(), Some(value));
            assert!(other.seek(&tx, Seek::AtLeast(key)).unwrap() && other.key() == key);
            other.next_while(&tx, |_, _| false).unwrap() == 1
        });
        assert_eq!((visited.unwrap(), cursor.key()), (89, &[89][..]), "{isolation:?}");
    }
}

/// Each further walk fails at it. A single step does not read the value, and passes.
#[test]
fn an_unreadable_value_is_not_passed_over() {
    let disk = SimDisk::new(SimOptions::default());
    let db = open_on(&disk, 1);
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| {
        tx.put(&tree, b"a", b"1")?;
        tx.put(&tree, b"b", &[0xB7; 20_000])?;
        tx.put(&tree, b"c", b"3")
    })
    .unwrap();
    drop(tree);
    db.close().unwrap();
    let data = disk.seen("/db/data").unwrap();
    let page = data.chunks(4096).rposition(|page| page.iter().filter(|&&byte| byte == 0xB7).count() > 100).unwrap();
    disk.flip_bit("/db/data", page as u64 * 4096 + 100, 5).unwrap();
    let db = open_on(&disk, 2);
    let tree = db.open_tree("t").unwrap();
    let (tx, mut cursor) = (db.begin().unwrap(), OwnedCursor::new());
    cursor.reset(&tree, CursorOptions::default(), ..);
    let mut keys = Vec::new();
    assert!(cursor.seek(&tx, Seek::First).unwrap());
    for _ in 0..3 {
        let walked = cursor.next_while(&tx, |key, _| {
            keys.push(key.to_vec());
            true
        });
        assert!(matches!(walked, Err(Error::Corrupt(_))), "{walked:?}");
        assert!(keys.is_empty());
    }
    assert!(cursor.next(&tx).unwrap());
    assert_eq!(cursor.key(), b"b");
    assert_eq!(cursor.next_while(&tx, |key, value| (key, value) != (b"c", b"3")).unwrap(), 1);
    assert!(cursor.is_on_entry());
}

#[test]
fn misuse_is_refused() {
    let (db, other) = (open(4), open(5));
    let (tree, foreign) = (db.create_tree("t").unwrap(), other.create_tree("t").unwrap());
    let mut tx = db.begin().unwrap();
    let mut cursor = OwnedCursor::new();
    let usage = |result: seawall::Result<bool>| assert!(matches!(result, Err(Error::Usage(_))), "{result:?}");
    usage(cursor.seek(&tx, Seek::First));
    usage(cursor.next(&tx));
    usage(cursor.value(&tx).map(|_| true));
    usage(cursor.delete(&mut tx));
    assert_eq!(cursor.position(), None);
    cursor.reset(&foreign, CursorOptions::default(), ..);
    usage(cursor.seek(&tx, Seek::First));
    cursor.reset(&tree, CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() }, "b".."a");
    assert!(!cursor.seek(&tx, Seek::First).unwrap(), "an empty range");
    usage(cursor.delete(&mut tx));
    cursor.reset(&tree, CursorOptions::default(), "a"..);
    usage(cursor.next(&tx));
    usage(cursor.prev_while(&tx, |_, _| true).map(|_| true));
    tx.put(&tree, b"a", b"1").unwrap();
    assert!(cursor.seek(&tx, Seek::First).unwrap());
    let position = cursor.position().unwrap();
    cursor.release();
    assert!(!cursor.next(&tx).unwrap());
    assert!(cursor.restore(&tx, &position).unwrap());
    let mut elsewhere = OwnedCursor::new();
    elsewhere.reset(&foreign, CursorOptions::default(), ..);
    usage(elsewhere.restore(&other.begin().unwrap(), &position));
    fn is_kept<T: Send + 'static>(_: &T) {}
    is_kept(&cursor);
}
