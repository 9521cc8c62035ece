//! Temporary trees equal a plain map: with savepoints, larger than memory, on a disk that fails. No trace of them is
//! left.

use seawall::{Background, Database, Env, Error, Options, TemporaryOptions, TemporarySavepoint, TemporaryTree};
use seawall_io::{Clock, Disk, Op};
use seawall_sim::{Fault, FaultKind, Process, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

const DIR: &str = "/db";
/// The file of a database's first temporary tree.
const FILE: &str = "/db/temporary.0000000000000000";
/// 32 pages.
const SMALL: TemporaryOptions = TemporaryOptions { memory_bytes: 128 << 10 };

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn env(sim: &Arc<SimDisk>) -> (Arc<Process>, Env) {
    let process = Arc::new(Process::new(sim));
    let clock: Arc<dyn Clock> = sim.clone();
    (process.clone(), Env { disk: process, clock, seed: 1, background: Background::Steps })
}

fn open(sim: &Arc<SimDisk>) -> (Arc<Process>, Database) {
    let (process, env) = env(sim);
    (process, Database::open_in(env, DIR, options()).unwrap())
}

fn names(sim: &Arc<SimDisk>) -> Vec<PathBuf> {
    let all = sim.list(DIR.as_ref()).unwrap();
    all.into_iter().filter(|path| path.to_string_lossy().contains("temporary")).collect()
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn key(&mut self) -> Vec<u8> {
        let n = self.below(3000) as u32;
        match self.below(10) {
            0 => [&n.to_be_bytes()[..], &[b'k'; 900]].concat(),
            1 => [&[b'p'; 60], &n.to_be_bytes()[..]].concat(),
            _ => n.to_be_bytes().to_vec(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(20) {
            0 => self.below(30_000),
            1 => 1900 + self.below(300),
            2..=5 => self.below(900),
            _ => self.below(60),
        };
        let byte = self.below(256) as u8;
        (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A tree and what it is to hold, now and at each savepoint.
struct Pair {
    tree: TemporaryTree,
    map: Map,
    savepoints: Vec<(TemporarySavepoint, Map)>,
    /// A savepoint to which a rollback has begun and failed: the tree's contents are unknown until a rollback to it
    /// succeeds.
    half_way: Option<usize>,
}

impl Pair {
    /// One random operation. An error of the disk has changed nothing.
    fn step(&mut self, dice: &mut Dice) -> seawall::Result<()> {
        if let Some(at) = self.half_way {
            self.tree.rollback_to(&self.savepoints[at].0)?;
            self.map = self.savepoints[at].1.clone();
            self.half_way = None;
        }
        match dice.below(100) {
            0..55 => {
                let (key, value) = (dice.key(), dice.value());
                let was_there = self.tree.put(&key, &value)?;
                assert_eq!(self.map.insert(key, value).is_some(), was_there);
            }
            55..60 => {
                let (key, value) = (dice.key(), dice.value());
                match self.tree.insert(&key, &value) {
                    Err(Error::KeyExists { .. }) => assert!(self.map.contains_key(&key)),
                    done => {
                        done?;
                        assert!(self.map.insert(key, value).is_none());
                    }
                }
            }
            60..75 => {
                let key = dice.key();
                assert_eq!(self.tree.delete(&key)?, self.map.remove(&key).is_some());
            }
            75 if dice.below(8) == 0 => {
                // Enough to merge leaves.
                let from = dice.key();
                let keys: Vec<_> = self.map.range(from..).take(200).map(|(key, _)| key.clone()).collect();
                for key in keys {
                    assert!(self.tree.delete(&key)?);
                    self.map.remove(&key);
                }
            }
            75..85 => {
                let key = dice.key();
                assert_eq!(self.tree.get(&key)?.as_ref(), self.map.get(&key));
            }
            85..90 => self.scan(dice)?,
            90..94 if self.savepoints.len() < 6 => {
                let savepoint = self.tree.savepoint()?;
                self.savepoints.push((savepoint, self.map.clone()));
            }
            90..97 if !self.savepoints.is_empty() => {
                let at = dice.below(self.savepoints.len() as u64) as usize;
                let gone: Vec<_> = self.savepoints.drain(at + 1..).collect();
                self.half_way = Some(at);
                self.tree.rollback_to(&self.savepoints[at].0)?;
                self.map = self.savepoints[at].1.clone();
                self.half_way = None;
                for (savepoint, _) in gone {
                    assert!(matches!(self.tree.rollback_to(&savepoint), Err(Error::Unknown { .. })));
                }
            }
            97..99 if !self.savepoints.is_empty() => {
                let at = dice.below(self.savepoints.len() as u64) as usize;
                let (savepoint, _) = self.savepoints[at];
                self.savepoints.truncate(at);
                self.tree.release(savepoint)?;
            }
            99 if dice.below(30) == 0 && self.savepoints.is_empty() => {
                self.tree.clear()?;
                self.map.clear();
            }
            _ => {
                assert_eq!(self.tree.len()?, self.map.len() as u64);
                let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
                assert_eq!(self.tree.first()?, self.map.first_key_value().map(pair));
                assert_eq!(self.tree.last()?, self.map.last_key_value().map(pair));
            }
        }
        Ok(())
    }

    /// A range from both ends.
    fn scan(&self, dice: &mut Dice) -> seawall::Result<()> {
        let bound = |dice: &mut Dice| match dice.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(dice.key()),
            _ => Bound::Included(dice.key()),
        };
        let (mut lower, mut upper) = (bound(dice), bound(dice));
        if let (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) = (&lower, &upper) {
            if a == b {
                upper = Bound::Unbounded;
            } else if a > b {
                std::mem::swap(&mut lower, &mut upper);
            }
        }
        let mut expected = self.map.range((lower.clone(), upper.clone()));
        let mut found = self.tree.range((lower, upper))?;
        let steps = dice.below(300);
        for _ in 0..steps {
            let (found, expected) = if dice.below(3) == 0 {
                (found.next_back(), expected.next_back())
            } else {
                (found.next(), expected.next())
            };
            let found = found.transpose()?;
            assert_eq!(found.as_ref().map(|(key, value)| (key, value)), expected);
            if expected.is_none() {
                return Ok(());
            }
        }
        if steps % 2 == 0 {
            let rest = found.collect::<seawall::Result<Vec<_>>>()?;
            assert!(rest.iter().map(|(key, value)| (key, value)).eq(expected));
        }
        Ok(())
    }

    fn compare(&self) {
        assert_eq!(self.tree.check().unwrap(), Vec::<String>::new());
        let rows = self.tree.range(..).unwrap().collect::<seawall::Result<Vec<_>>>().unwrap();
        assert!(rows.iter().map(|(key, value)| (key, value)).eq(&self.map));
        let mut back = self.tree.range(..).unwrap().rev().collect::<seawall::Result<Vec<_>>>().unwrap();
        back.reverse();
        assert!(back == rows);
    }
}

/// Many operations on a tree that is larger than its memory; `fails`: on a disk on which some operations on the tree's
/// file fail.
fn run(seed: u64, operations: usize, fails: bool) -> (usize, u64) {
    let sim = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
    let (_process, db) = open(&sim);
    let mut dice = Dice(seed);
    let tree = db.temporary_tree(SMALL).unwrap();
    let mut pair = Pair { tree, map: Map::new(), savepoints: Vec::new(), half_way: None };
    let (mut failed, mut largest) = (0, 0);
    for operation in 0..operations {
        if fails && operation % 50 == 0 {
            let errno = [5, 28, 24][dice.below(3) as usize];
            sim.inject(Fault::new(FaultKind::Errno(errno)).exactly(FILE).probability(0.5).times(dice.below(30)));
        }
        match pair.step(&mut dice) {
            Ok(()) => {}
            Err(Error::Io(_) | Error::NoSpace { .. }) if fails => failed += 1,
            Err(error) => panic!("seed {seed}, operation {operation}: {error}"),
        }
        largest = largest.max(pair.tree.bytes().map_or(0, |(_, file)| file));
        let (memory, _) = pair.tree.bytes().unwrap();
        assert!(memory < 2 * SMALL.memory_bytes, "{memory} bytes");
        if operation % 500 == 499 {
            sim.clear_faults();
            while pair.half_way.is_some() {
                pair.step(&mut dice).unwrap();
            }
            pair.compare();
        }
    }
    sim.clear_faults();
    // The database is not affected.
    assert!(db.check().unwrap().is_empty());
    db.create_tree("still healthy").unwrap();
    (failed, largest)
}

#[test]
fn a_temporary_tree_is_what_a_plain_map_says() {
    for seed in 0..2 {
        let (_, largest) = run(seed, 3000, false);
        assert!(largest > 4 * SMALL.memory_bytes, "seed {seed}: its file had {largest} bytes");
    }
}

#[test]
fn an_error_of_the_disk_changes_nothing() {
    let failed: usize = (100..102).map(|seed| run(seed, 3000, true).0).sum();
    assert!(failed > 50, "{failed} operations failed");
}

/// Sorted, reverse and random insertion of more than memory and more than the pool; then everything goes.
#[test]
fn it_may_be_larger_than_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let options = options();
    let env = Env { background: Background::Steps, ..Env::system(options.io_backend()).unwrap() };
    std::fs::create_dir(dir.path().join("db")).unwrap();
    let db = Database::open_in(env, dir.path().join("db"), options).unwrap();
    let base = db.create_tree("base").unwrap();
    db.transact(|tx| tx.put(&base, b"k", b"v")).unwrap();
    let (head, data) = (db.stats().log.head_lsn, db.stats().space.data_bytes);
    for order in ["up", "down", "mixed"] {
        let mut tree = db.temporary_tree(SMALL).unwrap();
        let number = |i: u32| match order {
            "up" => i,
            "down" => 19_999 - i,
            _ => i.wrapping_mul(7919) % 20_000,
        };
        for i in 0..20_000 {
            assert!(!tree.put(&number(i).to_be_bytes(), &[i as u8; 100]).unwrap());
        }
        let (memory, file) = tree.bytes().unwrap();
        assert!(memory <= SMALL.memory_bytes + (64 << 10) && file > 2 << 20, "{order}: {memory} {file}");
        assert_eq!(tree.check().unwrap(), Vec::<String>::new());
        assert_eq!(tree.range(..).unwrap().map(Result::unwrap).count(), 20_000);
        for i in 0..20_000 {
            assert!(tree.delete(&number(i).to_be_bytes()).unwrap());
        }
        assert!(tree.is_empty().unwrap() && tree.first().unwrap().is_none());
        assert_eq!(tree.check().unwrap(), Vec::<String>::new());
    }
    assert_eq!((db.stats().log.head_lsn, db.stats().space.data_bytes), (head, data), "nothing was logged or grown");
    assert_eq!(db.trees().unwrap(), ["base"]);
    assert!(db.check().unwrap().is_empty());
}

#[test]
fn its_file_has_no_name_and_ends_with_it() {
    let sim = SimDisk::new(SimOptions::default());
    let (_process, db) = open(&sim);
    let free = || sim.free_bytes(DIR.as_ref()).unwrap();
    let before = free();
    let mut tree = db.temporary_tree(SMALL).unwrap();
    for i in 0..5000u32 {
        tree.put(&i.to_be_bytes(), &[1; 200]).unwrap();
    }
    assert!(tree.bytes().unwrap().1 > 0 && free() < before);
    assert_eq!(names(&sim), Vec::<PathBuf>::new());
    drop(tree);
    assert_eq!(free(), before);
    // The same holds for a tree that is cleared at once.
    let mut tree = db.temporary_tree(SMALL).unwrap();
    for i in 0..5000u32 {
        tree.put(&i.to_be_bytes(), &[1; 200]).unwrap();
    }
    tree.clear().unwrap();
    assert_eq!(free(), before);
    tree.put(b"again", b"1").unwrap();
    assert_eq!(tree.len().unwrap(), 1);
}

/// A name that was removed and comes back with a power cut goes with the next opening, and so does the space.
#[test]
fn a_power_cut_leaves_nothing_of_it() {
    let mut came_back = 0;
    for seed in 0..60 {
        let sim = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
        let (process, db) = open(&sim);
        let base = db.create_tree("base").unwrap();
        db.transact(|tx| tx.put(&base, b"k", b"v")).unwrap();
        let mut trees: Vec<_> = (0..3).map(|_| db.temporary_tree(SMALL).unwrap()).collect();
        for i in 0..2000u32 {
            for tree in &mut trees {
                tree.put(&i.to_be_bytes(), &[1; 200]).unwrap();
            }
        }
        process.crash_by(if seed % 2 == 0 { SimDisk::power_cut } else { SimDisk::process_crash });
        drop((trees, db));
        came_back += names(&sim).len();
        let (_process, db) = open(&sim);
        assert_eq!(names(&sim), Vec::<PathBuf>::new(), "seed {seed}");
        assert_eq!(db.trees().unwrap(), ["base"]);
        assert!(db.check().unwrap().is_empty());
        let mut tree = db.temporary_tree(SMALL).unwrap();
        assert!(tree.is_empty().unwrap());
        for i in 0..2000u32 {
            tree.put(&i.to_be_bytes(), &[1; 200]).unwrap();
        }
    }
    assert!(came_back > 0, "the disk never brings a name back");
}

/// A name that cannot be removed does not keep the database from being opened, nor the next tree from having
/// a file.
#[test]
fn a_name_that_cannot_be_removed_is_passed_over() {
    let sim = SimDisk::new(SimOptions::default());
    open(&sim).1.close().unwrap();
    let how = seawall_io::OpenHow { write: true, create: seawall_io::Create::New, ..seawall_io::OpenHow::default() };
    sim.open(FILE.as_ref(), how).unwrap();
    sim.inject(Fault::new(FaultKind::Errno(1)).exactly(FILE).on(seawall_io::Op::Directory));
    let (_process, db) = open(&sim);
    assert_eq!(names(&sim).len(), 1);
    let mut tree = db.temporary_tree(SMALL).unwrap();
    for i in 0..5000u32 {
        tree.put(&i.to_be_bytes(), &[1; 200]).unwrap();
    }
    assert!(tree.bytes().unwrap().1 > 0);
    assert_eq!(tree.check().unwrap(), Vec::<String>::new());
}

/// A read of the file returns what was written, or the call reports an error.
#[test]
fn rot_in_its_file_is_named() {
    let sim = SimDisk::new(SimOptions::default());
    let (_process, db) = open(&sim);
    let mut tree = db.temporary_tree(SMALL).unwrap();
    for i in 0..5000u32 {
        tree.put(&i.to_be_bytes(), &[1; 200]).unwrap();
    }
    sim.inject(Fault::bit_rot().exactly(FILE));
    let failed = tree.range(..).unwrap().find_map(Result::err);
    assert!(matches!(&failed, Some(Error::Corrupt(_))), "{failed:?}");
    sim.clear_faults();
    db.create_tree("still healthy").unwrap();
}

/// A full disk refuses what is new. What is there can be read, deleted and rolled back.
#[test]
fn a_full_disk_refuses_only_what_is_new() {
    let sim = SimDisk::new(SimOptions::default());
    let (_process, db) = open(&sim);
    let mut tree = db.temporary_tree(SMALL).unwrap();
    let put = |tree: &mut TemporaryTree, i: u32| tree.put(&i.wrapping_mul(7919).to_be_bytes(), &[1; 200]);
    assert!((0..1000).all(|i| !put(&mut tree, i).unwrap()));
    let savepoint = tree.savepoint().unwrap();
    assert!((1000..2000).all(|i| !put(&mut tree, i).unwrap()));
    sim.inject(Fault::enospc().on(Op::Write).exactly(FILE));
    let refused = (2000..4000).find_map(|i| put(&mut tree, i).err());
    assert!(matches!(&refused, Some(Error::NoSpace { .. })), "{refused:?}");
    let rows = tree.len().unwrap();
    assert_eq!(tree.range(..).unwrap().map(Result::unwrap).count() as u64, rows);
    for i in 0..100u32 {
        assert!(tree.delete(&i.wrapping_mul(7919).to_be_bytes()).unwrap());
    }
    tree.rollback_to(&savepoint).unwrap();
    assert_eq!(tree.range(..).unwrap().map(Result::unwrap).count(), 1000);
    sim.clear_faults();
    put(&mut tree, 5000).unwrap();
    assert_eq!(tree.check().unwrap(), Vec::<String>::new());
    assert!(tree.bytes().unwrap().0 <= SMALL.memory_bytes + (64 << 10));
}

#[test]
fn it_ends_with_the_database() {
    for shut_down in [false, true] {
        let db = Database::in_memory().unwrap();
        let mut tree = db.temporary_tree(TemporaryOptions::default()).unwrap();
        tree.put("k", b"v").unwrap();
        let savepoint = tree.savepoint().unwrap();
        // A temporary tree does not delay the end of the database.
        if shut_down {
            let other = db.clone();
            db.shutdown().unwrap();
            assert!(matches!(other.temporary_tree(SMALL), Err(Error::ShutDown)));
        } else {
            db.close().unwrap();
        }
        assert!(matches!(tree.get("k"), Err(Error::ShutDown)));
        assert!(matches!(tree.put("k", b"w"), Err(Error::ShutDown)));
        assert!(matches!(tree.delete("k"), Err(Error::ShutDown)));
        assert!(matches!(tree.clear(), Err(Error::ShutDown)));
        assert!(matches!(tree.range(..), Err(Error::ShutDown)));
        assert!(matches!(tree.len(), Err(Error::ShutDown)));
        assert!(matches!(tree.rollback_to(&savepoint), Err(Error::ShutDown)));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let db = Database::in_memory().unwrap();
    let (mut one, mut other) = (db.temporary_tree(SMALL).unwrap(), db.temporary_tree(SMALL).unwrap());
    assert_ne!(one.id(), other.id());
    let savepoint = one.savepoint().unwrap();
    assert!(matches!(other.rollback_to(&savepoint), Err(Error::Usage(_))));
    assert!(matches!(other.release(savepoint), Err(Error::Usage(_))));
    let elsewhere = Database::in_memory().unwrap();
    let mut namesake = elsewhere.temporary_tree(SMALL).unwrap();
    assert_eq!((namesake.id(), namesake.savepoint().is_ok()), (one.id(), true));
    assert!(matches!(namesake.rollback_to(&savepoint), Err(Error::Usage(_))), "of another database");
    one.release(savepoint).unwrap();
    assert!(matches!(one.rollback_to(&savepoint), Err(Error::Unknown { .. })));
    assert!(matches!(one.put(&[1; 5000], b""), Err(Error::KeyTooLong { .. })));
    assert!(!one.contains(&[1; 5000]).unwrap());
    assert!(!one.delete(&[1; 5000]).unwrap());
    one.put("", b"the empty key").unwrap();
    assert_eq!(one.get("").unwrap().as_deref(), Some(&b"the empty key"[..]));
    assert!(matches!(one.insert("", b"again"), Err(Error::KeyExists { .. })));
    // A database that is opened read-only has no place for a temporary tree.
    let sim = SimDisk::new(SimOptions::default());
    open(&sim).1.close().unwrap();
    let db = Database::open_read_only_in(env(&sim).1, DIR, options()).unwrap();
    assert!(matches!(db.temporary_tree(SMALL), Err(Error::ReadOnly { .. })));
}

/// A temporary tree can move from thread to thread, and stays across transactions.
#[test]
fn its_owner_is_who_has_the_handle() {
    let db = Database::in_memory().unwrap();
    let base = db.create_tree("base").unwrap();
    let mut tree = db.temporary_tree(TemporaryOptions::default()).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&base, b"k", b"v").unwrap();
    tree.put("seen", b"by its owner").unwrap();
    tx.rollback().unwrap();
    let tree = std::thread::spawn(move || {
        assert!(tree.contains("seen").unwrap());
        tree.put("more", b"1").unwrap();
        tree
    });
    let tree = tree.join().unwrap();
    assert_eq!(tree.len().unwrap(), 2);
    // Threads that share the handle read one after the other.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(tree.range(..).unwrap().map(Result::unwrap).count(), 2));
        }
    });
}

/// The last leaf has no upper fence and so no common prefix: what its left sibling holds may not fit into a
/// merged leaf, and it stays empty.
#[test]
fn it_is_cleared_under_a_savepoint_though_its_last_leaf_cannot_be_merged() {
    let sim = SimDisk::new(SimOptions::default());
    let (_process, db) = open(&sim);
    let mut tree = db.temporary_tree(SMALL).unwrap();
    let key = |i: u32| [&[b'p'; 600][..], &i.to_be_bytes()].concat();
    for i in 0..2000 {
        tree.put(&key(i), b"").unwrap();
    }
    let before = tree.savepoint().unwrap();
    tree.clear().unwrap();
    assert!(tree.is_empty().unwrap());
    assert_eq!(tree.check().unwrap(), Vec::<String>::new());
    tree.rollback_to(&before).unwrap();
    assert_eq!(tree.len().unwrap(), 2000);
    assert_eq!(tree.check().unwrap(), Vec::<String>::new());
}
