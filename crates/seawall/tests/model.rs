//! One transaction at a time, the whole interface, against `BTreeMap`: without crashes and concurrency the
//! database is a map of maps.
//!
//! 1. Every answer is compared, scans entry by entry, in both directions.
//! 2. The database is reopened occasionally, with tiny pages, a tiny pool and a tiny log, so that pages are
//!    constantly split, evicted, purged and reused. Background work runs between operations, a step at a
//!    time.

use proptest::prelude::*;
use seawall::{
    Background, BuildOptions, CompactOptions, CursorOptions, Database, Env, Error, LockMode, Options, Position,
    Savepoint, Seek, Transaction, Tree, Xid,
};
use seawall_io::SystemClock;
use seawall_sim::{SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Trees = BTreeMap<u8, Rows>;

#[derive(Debug, Clone)]
enum Step {
    Insert(u8, Vec<u8>, Vec<u8>),
    InsertUniquePrefix(u8, usize, Vec<u8>),
    Put(u8, Vec<u8>, Vec<u8>),
    Fill(u8, u16, usize),
    InsertMany(u8, Vec<(Vec<u8>, Vec<u8>)>),
    Build(u8, Rows, u16, u32),
    Update(u8, Vec<u8>, Vec<u8>),
    Delete(u8, Vec<u8>),
    DeleteRange(u8, Bound<Vec<u8>>, Bound<Vec<u8>>),
    Get(u8, Vec<u8>),
    MultiGet(u8, Vec<Vec<u8>>),
    LockingGet(u8, Vec<u8>, bool),
    LockInVain(u8, Vec<u8>, bool),
    Interrupted(u8, Vec<u8>, Vec<u8>),
    Range(u8, Bound<Vec<u8>>, Bound<Vec<u8>>, Vec<bool>),
    Prefix(u8, Vec<u8>),
    Cursor(u8, bool, Vec<Move>),
    Pop(u8, bool, bool, u8),
    Sweep(u8, bool, Vec<(Move, bool)>),
    Savepoint,
    RollBackTo(usize),
    CreateTree(u8),
    DropTree(u8),
    RenameTree(u8, u8),
    Commit,
    Rollback,
    Prepare(bool, bool),
    Reopen,
    Background(u8),
    Checkpoint,
    Check,
    Compact(u8, u32, u8),
}

#[derive(Debug, Clone)]
enum Move {
    First,
    Last,
    AtLeast(Vec<u8>),
    After(Vec<u8>),
    AtMost(Vec<u8>),
    Before(Vec<u8>),
    Next,
    Prev,
    Interrupted,
    Remember,
    Restore,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        10 => (0..60u8).prop_map(|number| format!("key-{number:02}").into_bytes()),
        3 => (0..8u8, 0..800usize).prop_map(|(head, len)| [vec![b'k', head], vec![b'x'; len]].concat()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![2 => Just(0usize), 12 => 1..80usize, 4 => 80..1500usize, 1 => 1500..30_000usize];
    (any::<u8>(), len).prop_map(|(fill, len)| (0..len).map(|at| fill.wrapping_add(at as u8)).collect())
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        2 => key().prop_map(Move::AtLeast),
        1 => key().prop_map(Move::After),
        2 => key().prop_map(Move::AtMost),
        1 => key().prop_map(Move::Before),
        6 => Just(Move::Next),
        6 => Just(Move::Prev),
        1 => Just(Move::Interrupted),
        1 => Just(Move::Remember),
        1 => Just(Move::Restore),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let tree = || 0..3u8;
    prop_oneof![
        6 => (tree(), key(), value()).prop_map(|(tree, key, value)| Step::Insert(tree, key, value)),
        1 => (tree(), 0..8usize, key()).prop_map(|(tree, len, key)| Step::InsertUniquePrefix(tree, len, key)),
        12 => (tree(), key(), value()).prop_map(|(tree, key, value)| Step::Put(tree, key, value)),
        1 => (tree(), 1..200u16, 0..300usize).prop_map(|(tree, count, len)| Step::Fill(tree, count, len)),
        1 => (tree(), prop::collection::vec((key(), value()), 0..30)).prop_map(|(tree, rows)| Step::InsertMany(tree, rows)),
        1 => (0..5u8, prop::collection::btree_map(key(), value(), 0..40), 0..600u16, 50..=100u32)
            .prop_map(|(tree, rows, more, fill)| Step::Build(tree, rows, more, fill)),
        4 => (tree(), key(), value()).prop_map(|(tree, key, value)| Step::Update(tree, key, value)),
        6 => (tree(), key()).prop_map(|(tree, key)| Step::Delete(tree, key)),
        1 => (tree(), bound(), bound()).prop_map(|(tree, from, to)| Step::DeleteRange(tree, from, to)),
        4 => (tree(), key()).prop_map(|(tree, key)| Step::Get(tree, key)),
        1 => (tree(), prop::collection::vec(key(), 0..8)).prop_map(|(tree, keys)| Step::MultiGet(tree, keys)),
        2 => (tree(), key(), any::<bool>()).prop_map(|(tree, key, update)| Step::LockingGet(tree, key, update)),
        1 => (tree(), key(), any::<bool>()).prop_map(|(tree, key, update)| Step::LockInVain(tree, key, update)),
        1 => (tree(), key(), value()).prop_map(|(tree, key, value)| Step::Interrupted(tree, key, value)),
        4 => (tree(), bound(), bound(), prop::collection::vec(any::<bool>(), 0..40))
            .prop_map(|(tree, from, to, ways)| Step::Range(tree, from, to, ways)),
        1 => (tree(), prop_oneof![Just(b"key-".to_vec()), Just(b"k".to_vec()), key()])
            .prop_map(|(tree, prefix)| Step::Prefix(tree, prefix)),
        4 => (tree(), any::<bool>(), prop::collection::vec(moves(), 1..20))
            .prop_map(|(tree, locked, moves)| Step::Cursor(tree, locked, moves)),
        2 => (tree(), any::<bool>(), any::<bool>(), 1..60u8)
            .prop_map(|(tree, front, locked, count)| Step::Pop(tree, front, locked, count)),
        2 => (tree(), any::<bool>(), prop::collection::vec((moves(), any::<bool>()), 1..40))
            .prop_map(|(tree, locked, moves)| Step::Sweep(tree, locked, moves)),
        2 => Just(Step::Savepoint),
        2 => (0..4usize).prop_map(Step::RollBackTo),
        2 => (0..5u8).prop_map(Step::CreateTree),
        1 => (0..5u8).prop_map(Step::DropTree),
        1 => (0..5u8, 0..5u8).prop_map(|(from, to)| Step::RenameTree(from, to)),
        5 => Just(Step::Commit),
        2 => Just(Step::Rollback),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(commit, reopen)| Step::Prepare(commit, reopen)),
        1 => Just(Step::Reopen),
        8 => (1..10u8).prop_map(Step::Background),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Check),
        2 => (tree(), 50..=100u32, 1..20u8).prop_map(|(tree, fill, calls)| Step::Compact(tree, fill, calls)),
    ]
}

fn options() -> Options {
    let mut options = Options::default();
    for (name, value) in [
        ("page_size", "4K"),
        ("pool_size", "256K"),
        ("data_initial_size", "1M"),
        ("data_growth_step", "1M"),
        ("log_segment_size", "64K"),
        ("log_capacity", "2M"),
        ("log_buffer_size", "1M"),
    ] {
        options.set(name, value).unwrap();
    }
    options
}

fn open(disk: &Arc<SimDisk>) -> Database {
    let clock = Arc::new(SystemClock::default());
    let env = Env { disk: disk.clone(), clock, seed: 7, background: Background::Steps };
    Database::open_in(env, "/db", options()).unwrap()
}

fn tree_name(number: u8) -> String {
    format!("tree {number}")
}

fn inside(rows: &Rows, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    use std::ops::RangeBounds;
    let range = (from.clone(), to.clone());
    rows.iter().filter(|(key, _)| range.contains(*key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The database, the current transaction, and the contents that both must have.
struct Run {
    disk: Arc<SimDisk>,
    db: Option<Database>,
    tx: Option<Transaction>,
    committed: Trees,
    now: Trees,
    savepoints: Vec<(Savepoint, Trees)>,
    xids: u64,
}

impl Run {
    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open")
    }

    fn tx(&mut self) -> &mut Transaction {
        if self.tx.is_none() {
            self.tx = Some(self.db().begin().unwrap());
        }
        self.tx.as_mut().expect("just begun")
    }

    /// A tree and its expected contents; created if it does not exist.
    fn tree(&mut self, number: u8) -> Tree {
        let made = !self.now.contains_key(&number);
        let name = tree_name(number);
        if made {
            self.now.insert(number, Rows::new());
            return self.tx().create_tree(&name).unwrap();
        }
        self.tx().open_tree(&name).unwrap()
    }

    fn rows(&mut self, number: u8) -> &mut Rows {
        self.now.get_mut(&number).expect("the tree is there")
    }

    fn end(&mut self, commit: bool) {
        self.savepoints.clear();
        let tx = self.tx.take();
        if commit {
            tx.map_or(Ok(()), Transaction::commit).unwrap();
            self.committed = self.now.clone();
        } else {
            tx.map_or(Ok(()), Transaction::rollback).unwrap();
            self.now = self.committed.clone();
        }
    }

    fn reopen(&mut self) {
        self.end(false);
        self.db.take().expect("it is open").close().unwrap();
        self.db = Some(open(&self.disk));
        self.compare();
    }

    /// Compares everything, in both directions.
    fn compare(&mut self) {
        let names: Vec<String> = self.now.keys().map(|number| tree_name(*number)).collect();
        assert_eq!(self.tx().trees().unwrap(), names);
        for (number, rows) in self.now.clone() {
            let tree = self.tx().open_tree(&tree_name(number)).unwrap();
            let found: Vec<_> = self.tx().iter(&tree).map(Result::unwrap).collect();
            assert!(found.iter().map(|(key, value)| (key, value)).eq(rows.iter()), "tree {number}");
            let found: Vec<_> = self.tx().iter(&tree).rev().map(Result::unwrap).collect();
            assert!(found.iter().map(|(key, value)| (key, value)).eq(rows.iter().rev()), "tree {number} backwards");
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert(number, key, value) => {
                let tree = self.tree(number);
                match self.tx().insert(&tree, &key, &value) {
                    Ok(()) => assert!(self.rows(number).insert(key, value).is_none()),
                    Err(Error::KeyExists { .. }) => assert!(self.rows(number).contains_key(&key)),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::InsertUniquePrefix(number, len, key) => {
                let tree = self.tree(number);
                let len = len.min(key.len());
                let there = self.rows(number).keys().any(|known| known.starts_with(&key[..len]));
                match self.tx().insert_unique_prefix(&tree, len, &key, b"unique") {
                    Ok(()) => {
                        assert!(!there);
                        self.rows(number).insert(key, b"unique".to_vec());
                    }
                    Err(Error::KeyExists { .. }) => assert!(there),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Put(number, key, value) => {
                let tree = self.tree(number);
                self.tx().put(&tree, &key, &value).unwrap();
                self.rows(number).insert(key, value);
            }
            Step::Fill(number, count, len) => {
                let tree = self.tree(number);
                for at in 0..count {
                    let key = format!("fill-{at:05}").into_bytes();
                    self.tx().put(&tree, &key, &vec![at as u8; len]).unwrap();
                    self.rows(number).insert(key, vec![at as u8; len]);
                }
            }
            Step::InsertMany(number, rows) => {
                let tree = self.tree(number);
                let known = self.rows(number);
                let mut there = None;
                for (index, (key, value)) in rows.iter().enumerate() {
                    if known.contains_key(key) {
                        there = Some(index as u64);
                        break;
                    }
                    known.insert(key.clone(), value.clone());
                }
                match self.tx().insert_many(&tree, rows) {
                    Ok(()) => assert_eq!(there, None),
                    Err(Error::DuplicateRow { index, .. }) => assert_eq!(Some(index), there),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Build(number, mut rows, more, fill_percent) => {
                rows.extend((0..more).map(|at| (format!("fill-{at:05}").into_bytes(), vec![at as u8; 20])));
                match self.tx().build_tree(&tree_name(number), BuildOptions { fill_percent }, &rows) {
                    Ok(tree) => {
                        assert!(self.now.insert(number, rows.clone()).is_none());
                        // A build that fails leaves nothing.
                        let twice = rows.iter().chain(rows.iter().next());
                        let again = self.tx().build_tree("again", BuildOptions { fill_percent }, twice);
                        match again {
                            Ok(_) => {
                                assert!(rows.is_empty());
                                self.tx().drop_tree("again").unwrap();
                            }
                            Err(Error::RowsOutOfOrder { index } | Error::DuplicateRow { index, .. }) => {
                                assert_eq!(index as usize, rows.len());
                            }
                            Err(error) => panic!("{error}"),
                        }
                        let found: Rows = self.tx().iter(&tree).map(Result::unwrap).collect();
                        assert_eq!(found, rows);
                    }
                    Err(Error::TreeExists { .. }) => assert!(self.now.contains_key(&number)),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Update(number, key, value) => {
                let tree = self.tree(number);
                let there = self.rows(number).contains_key(&key);
                assert_eq!(self.tx().update(&tree, &key, &value).unwrap(), there);
                self.rows(number).entry(key).and_modify(|old| *old = value);
            }
            Step::Delete(number, key) => {
                let tree = self.tree(number);
                let there = self.rows(number).remove(&key).is_some();
                assert_eq!(self.tx().delete(&tree, &key).unwrap(), there);
            }
            Step::DeleteRange(number, from, to) => {
                let tree = self.tree(number);
                let gone = inside(self.rows(number), &from, &to);
                let count = self.tx().delete_range::<Vec<u8>>(&tree, (from, to)).unwrap();
                assert_eq!(count, gone.len() as u64);
                self.rows(number).retain(|key, _| !gone.iter().any(|(gone, _)| gone == key));
            }
            Step::Get(number, key) => {
                let tree = self.tree(number);
                let expected = self.rows(number).get(&key).cloned();
                assert_eq!(self.tx().get(&tree, &key).unwrap(), expected);
                assert_eq!(self.tx().contains(&tree, &key).unwrap(), expected.is_some());
                assert_eq!(self.tx().get_with(&tree, &key, <[u8]>::len).unwrap(), expected.map(|value| value.len()));
            }
            Step::MultiGet(number, keys) => {
                let tree = self.tree(number);
                let expected: Vec<_> = keys.iter().map(|key| self.now[&number].get(key).cloned()).collect();
                assert_eq!(self.tx().multi_get(&tree, &keys).unwrap(), expected);
            }
            Step::LockingGet(number, key, update) => {
                let tree = self.tree(number);
                let expected = self.rows(number).get(&key).cloned();
                let tx = self.tx();
                let found = if update { tx.get_for_update(&tree, &key) } else { tx.get_for_share(&tree, &key) };
                assert_eq!(found.unwrap(), expected);
            }
            Step::LockInVain(number, key, update) => {
                let tree = self.tree(number);
                let expected = self.rows(number).get(&key).cloned();
                let mode = if update { LockMode::Exclusive } else { LockMode::Shared };
                let row = self.tx().lock_row(&tree, &key, mode, None).unwrap();
                assert_eq!(row.value, expected);
                let gone = self.tx().unlock_row(&tree, &key).unwrap();
                assert_eq!(gone, row.newly_locked);
                // A released lock is free, and a kept one is not new.
                assert_eq!(self.tx().lock_row(&tree, &key, mode, None).unwrap().newly_locked, gone);
            }
            Step::Interrupted(number, key, value) => {
                let tree = self.tree(number);
                let handle = self.tx().interrupt_handle();
                handle.interrupt();
                fn interrupted<T>(answer: &Result<T, Error>) -> bool {
                    matches!(answer, Err(Error::Interrupted { .. }))
                }
                assert!(interrupted(&self.tx().iter(&tree).next().expect("it is told")));
                assert!(interrupted(&self.tx().prefix(&tree, &key).next_back().expect("it is told")));
                assert!(interrupted(&self.tx().delete_range::<&[u8]>(&tree, ..)));
                // A call that need not wait succeeds.
                self.tx().put(&tree, &key, &value).unwrap();
                assert_eq!(self.tx().get(&tree, &key).unwrap().as_ref(), Some(&value));
                self.rows(number).insert(key, value);
                handle.clear();
            }
            Step::Range(number, from, to, ways) => {
                let tree = self.tree(number);
                let mut expected: std::collections::VecDeque<_> = inside(self.rows(number), &from, &to).into();
                let mut range = self.tx().range::<Vec<u8>>(&tree, (from, to));
                for forward in ways {
                    let (found, expected) = if forward {
                        (range.next(), expected.pop_front())
                    } else {
                        (range.next_back(), expected.pop_back())
                    };
                    assert_eq!(found.map(Result::unwrap), expected);
                }
                assert_eq!(range.map(Result::unwrap).collect::<Vec<_>>(), Vec::from(expected));
            }
            Step::Prefix(number, prefix) => {
                let tree = self.tree(number);
                let rows = self.rows(number).clone();
                let found: Vec<_> = self.tx().prefix(&tree, &prefix).map(Result::unwrap).collect();
                let expected: Vec<_> = rows.into_iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
                assert_eq!(found, expected);
            }
            Step::Cursor(number, locked, moves) => {
                let tree = self.tree(number);
                let rows = self.rows(number).clone();
                let lock = locked.then_some(LockMode::Shared);
                walk(self.tx(), &tree, &rows, CursorOptions { lock, ..CursorOptions::default() }, moves);
            }
            Step::Pop(number, front, locked, count) => {
                let tree = self.tree(number);
                let options = CursorOptions { lock: locked.then_some(LockMode::Exclusive), ..CursorOptions::default() };
                for _ in 0..count {
                    let rows = self.rows(number);
                    let expected = if front { rows.pop_first() } else { rows.pop_last() };
                    let mut cursor = self.tx().cursor_mut(&tree, options);
                    let found = cursor.seek(if front { Seek::First } else { Seek::Last }).unwrap();
                    let found = found.then(|| (cursor.key().to_vec(), cursor.value().unwrap().to_vec()));
                    assert_eq!(found, expected);
                    if found.is_some() {
                        assert!(cursor.delete().unwrap());
                    }
                }
            }
            Step::Sweep(number, locked, moves) => {
                let tree = self.tree(number);
                let options = CursorOptions { lock: locked.then_some(LockMode::Exclusive), ..CursorOptions::default() };
                let mut rows = self.rows(number).clone();
                sweep(self.tx(), &tree, &mut rows, options, moves);
                *self.rows(number) = rows;
            }
            Step::Savepoint => {
                let savepoint = self.tx().savepoint();
                self.savepoints.push((savepoint, self.now.clone()));
            }
            Step::RollBackTo(which) => {
                if which < self.savepoints.len() {
                    self.savepoints.truncate(which + 1);
                    let (savepoint, trees) = self.savepoints.last().expect("which is inside").clone();
                    self.tx().rollback_to(&savepoint).unwrap();
                    self.now = trees;
                    self.compare();
                }
            }
            Step::CreateTree(number) => match self.tx().create_tree(&tree_name(number)) {
                Ok(_) => assert!(self.now.insert(number, Rows::new()).is_none()),
                Err(Error::TreeExists { .. }) => assert!(self.now.contains_key(&number)),
                Err(error) => panic!("{error}"),
            },
            Step::DropTree(number) => match self.tx().drop_tree(&tree_name(number)) {
                Ok(()) => assert!(self.now.remove(&number).is_some()),
                Err(Error::NoSuchTree { .. }) => assert!(!self.now.contains_key(&number)),
                Err(error) => panic!("{error}"),
            },
            Step::RenameTree(from, to) => match self.tx().rename_tree(&tree_name(from), &tree_name(to)) {
                Ok(()) => {
                    let rows = self.now.remove(&from).expect("it had that name");
                    assert!(from == to || !self.now.contains_key(&to));
                    self.now.insert(to, rows);
                }
                Err(Error::NoSuchTree { .. }) => assert!(!self.now.contains_key(&from)),
                Err(Error::TreeExists { .. }) => assert!(self.now.contains_key(&to)),
                Err(error) => panic!("{error}"),
            },
            Step::Commit => self.end(true),
            Step::Rollback => self.end(false),
            Step::Prepare(commit, reopen) => {
                self.tx();
                self.savepoints.clear();
                self.xids += 1;
                let xid = Xid(self.xids.to_be_bytes().to_vec());
                let after = self.now.clone();
                self.tx.take().expect("just begun").prepare(&xid).unwrap();
                if reopen {
                    self.now = self.committed.clone();
                    self.db.take().expect("it is open").close().unwrap();
                    self.db = Some(open(&self.disk));
                    self.compare();
                    self.end(false);
                }
                // A transaction that changed nothing may have nothing to prepare.
                let known = self.db().prepared().contains(&xid);
                assert!(known || after == self.committed);
                match (known, commit) {
                    (false, _) => {}
                    (true, true) => self.db().commit_prepared(&xid).unwrap(),
                    (true, false) => self.db().rollback_prepared(&xid).unwrap(),
                }
                if commit {
                    self.committed = after;
                }
                self.now = self.committed.clone();
                self.compare();
                self.end(false);
            }
            Step::Reopen => self.reopen(),
            Step::Background(steps) => {
                for _ in 0..steps {
                    self.db().step().unwrap();
                }
            }
            Step::Checkpoint => self.db().checkpoint().unwrap(),
            Step::Compact(number, fill_percent, mut calls) => {
                let tree = self.tree(number);
                let options = CompactOptions { fill_percent, ..CompactOptions::default() };
                let done = self.db().compact_with(&tree, options, |_| {
                    calls -= 1;
                    if calls == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                match done {
                    Ok(done) => assert!(done.broken_off || calls > 0),
                    // The current transaction created it.
                    Err(Error::NoSuchTree { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Check => {
                let findings = self.db().check().unwrap();
                assert!(findings.is_empty(), "{findings:?}");
            }
        }
    }
}

/// Moves a cursor, and in parallel a position in the rows.
fn walk(tx: &Transaction, tree: &Tree, rows: &Rows, options: CursorOptions, moves: Vec<Move>) {
    let rows: Vec<(&Vec<u8>, &Vec<u8>)> = rows.iter().collect();
    let first_at = |key: &[u8]| rows.partition_point(|(known, _)| known.as_slice() < key);
    let first_after = |key: &[u8]| rows.partition_point(|(known, _)| known.as_slice() <= key);
    let mut cursor = tx.cursor(tree, options);
    // The cursor's position; `None` before the first positioning on an entry.
    let mut at: Option<usize> = None;
    let mut remembered: Option<(Position, usize)> = None;
    for step in moves {
        let (found, expected) = match step {
            Move::First => (cursor.seek(Seek::First), Some(0)),
            Move::Last => (cursor.seek(Seek::Last), rows.len().checked_sub(1)),
            Move::AtLeast(key) => (cursor.seek(Seek::AtLeast(&key)), Some(first_at(&key))),
            Move::After(key) => (cursor.seek(Seek::After(&key)), Some(first_after(&key))),
            Move::AtMost(key) => (cursor.seek(Seek::AtMost(&key)), first_after(&key).checked_sub(1)),
            Move::Before(key) => (cursor.seek(Seek::Before(&key)), first_at(&key).checked_sub(1)),
            Move::Next if at.is_some() => (cursor.next(), at.map(|at| at + 1)),
            Move::Prev if at.is_some() => (cursor.prev(), at.and_then(|at| at.checked_sub(1))),
            Move::Interrupted => {
                // It stays at its position.
                tx.interrupt_handle().interrupt();
                assert!(matches!(cursor.next(), Err(Error::Interrupted { .. })));
                assert!(matches!(cursor.prev(), Err(Error::Interrupted { .. })));
                tx.interrupt_handle().clear();
                continue;
            }
            Move::Remember => {
                remembered = at.map(|at| (cursor.position(), at));
                continue;
            }
            Move::Restore => match &remembered {
                Some((position, there)) => (cursor.restore(position), Some(*there)),
                None => continue,
            },
            Move::Next | Move::Prev => continue,
        };
        at = expected.filter(|at| *at < rows.len());
        assert_eq!(found.unwrap(), at.is_some());
        if let Some(at) = at {
            assert_eq!(cursor.key(), &rows[at].0[..]);
            assert_eq!(cursor.value().unwrap(), &rows[at].1[..]);
        }
    }
}

/// Moves a cursor and deletes some of the entries it reaches.
fn sweep(tx: &mut Transaction, tree: &Tree, rows: &mut Rows, options: CursorOptions, moves: Vec<(Move, bool)>) {
    let mut cursor = tx.cursor_mut(tree, options);
    // Its position, or that of the entry it deleted; `None` when it has none.
    let mut at: Option<Vec<u8>> = None;
    for (step, delete) in moves {
        let within = |from: Bound<&Vec<u8>>, to: Bound<&Vec<u8>>, rows: &Rows| {
            let (from, to) = (from.cloned(), to.cloned());
            inside(rows, &from, &to).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        use Bound::{Excluded, Included, Unbounded};
        let (found, mut keys, forward) = match (&step, &at) {
            (Move::First, _) => (cursor.seek(Seek::First), within(Unbounded, Unbounded, rows), true),
            (Move::Last, _) => (cursor.seek(Seek::Last), within(Unbounded, Unbounded, rows), false),
            (Move::AtLeast(key), _) => (cursor.seek(Seek::AtLeast(key)), within(Included(key), Unbounded, rows), true),
            (Move::After(key), _) => (cursor.seek(Seek::After(key)), within(Excluded(key), Unbounded, rows), true),
            (Move::AtMost(key), _) => (cursor.seek(Seek::AtMost(key)), within(Unbounded, Included(key), rows), false),
            (Move::Before(key), _) => (cursor.seek(Seek::Before(key)), within(Unbounded, Excluded(key), rows), false),
            (Move::Next, Some(key)) => (cursor.next(), within(Excluded(key), Unbounded, rows), true),
            (Move::Prev, Some(key)) => (cursor.prev(), within(Unbounded, Excluded(key), rows), false),
            _ => continue,
        };
        at = if forward { keys.drain(..).next() } else { keys.pop() };
        assert_eq!(found.unwrap(), at.is_some());
        if let Some(key) = &at {
            assert_eq!(cursor.key(), &key[..]);
            assert_eq!(cursor.value().unwrap(), &rows[key][..]);
            if delete {
                assert!(cursor.delete().unwrap());
                rows.remove(key);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_database_is_a_map_of_maps(steps in prop::collection::vec(step(), 1..120)) {
        let disk = SimDisk::new(SimOptions { trace_entries_max: 10, ..SimOptions::default() });
        let db = Some(open(&disk));
        let (committed, now) = (Trees::new(), Trees::new());
        let mut run = Run { disk, db, tx: None, committed, now, savepoints: Vec::new(), xids: 0 };
        for step in steps {
            run.step(step);
        }
        run.compare();
        run.end(true);
        run.reopen();
        let findings = run.db().check().unwrap();
        prop_assert!(findings.is_empty(), "{findings:?}");
    }
}
