//! Backups taken during other work, and the databases restored from them.
//!
//! 1. A restored database has exactly the rows that were committed when the backup ended: nothing of a transaction that
//!    was open then, and no later change. Its `check` finds no damage.
//! 2. A seed is one run, the same on every machine: splits, merges, long values, trees that are created and
//!    dropped, checkpoints, compaction, growth and shrinking happen between the steps of a backup. `SEEDS=n`
//!    runs more, `SEED=n` replays one.

use seawall::{
    Background, BackupOptions, CompactOptions, Corruption, Database, Durability, Env, Error, Options, Task, Transaction,
};
use seawall_io::{
    BackendInfo, Cached, Completion, Disk, Handle, Op, OpenHow, Request, Result as IoResult, SyncHow, SystemClock,
    Ticket, WriteHow,
};
use seawall_sim::{Fault, Process, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod support {
    pub(crate) mod dice;
}
use support::dice::Dice;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = BTreeMap<String, Rows>;

fn options(page_kib: u64) -> Options {
    Options::default()
        .with_page_size(page_kib << 10)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn env(disk: Arc<dyn Disk>) -> Env {
    Env { disk, clock: Arc::new(SystemClock::default()), seed: 5, background: Background::Steps }
}

fn sim(seed: u64) -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed, trace_entries_max: 0, ..SimOptions::default() })
}

fn unlimited() -> BackupOptions {
    BackupOptions { rate: 0, ..BackupOptions::default() }
}

fn since(base: impl Into<PathBuf>) -> BackupOptions {
    BackupOptions { incremental_from: Some(base.into()), ..unlimited() }
}

fn contents(db: &Database) -> Model {
    let tx = db.begin().unwrap();
    let rows = |name: &String| tx.iter(&tx.open_tree(name).unwrap()).map(Result::unwrap).collect();
    tx.trees().unwrap().into_iter().map(|name| (name.clone(), rows(&name))).collect()
}

#[track_caller]
fn same(found: &Model, expected: &Model, when: &str) {
    let names = |model: &Model| model.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{when}: trees");
    for (name, rows) in expected {
        let other = &found[name];
        let missing: Vec<_> = rows.iter().filter(|(key, value)| other.get(*key) != Some(value)).map(|r| r.0).collect();
        let more: Vec<_> = other.keys().filter(|key| !rows.contains_key(*key)).collect();
        assert!(
            missing.is_empty() && more.is_empty(),
            "{when}: tree {name}: {} rows are missing or of another moment, {} are too many: {:?} {:?}",
            missing.len(),
            more.len(),
            missing.first(),
            more.first()
        );
    }
}

/// Restores, opens, compares.
#[track_caller]
fn restores(disk: &Arc<dyn Disk>, page_kib: u64, from: &[PathBuf], to: &str, expected: &Model, when: &str) {
    let restored = Database::restore_in(&env(disk.clone()), from, to).unwrap_or_else(|e| panic!("{when}: {e}"));
    assert!(restored.pages > 0);
    let db = Database::open_in(env(disk.clone()), to, options(page_kib)).unwrap_or_else(|e| panic!("{when}: {e}"));
    same(&contents(&db), expected, when);
    while db.step().unwrap() {}
    same(&contents(&db), expected, when);
    assert_eq!(db.check().unwrap(), [], "{when}");
    // The restored database is usable.
    let tree = db.create_tree("later").unwrap();
    db.transact(|tx| tx.put(&tree, b"more", &[1; 9000])).unwrap();
    db.close().unwrap();
}

/// A database under load, and its committed contents.
struct Load {
    db: Database,
    dice: Dice,
    model: Model,
    /// Changes rows that no other transaction uses, and stays open for a long time.
    open: Option<Transaction>,
    opened: u64,
    made: u64,
}

impl Load {
    fn new(db: Database, seed: u64) -> Self {
        Self { db, dice: Dice::new(seed), model: Model::new(), open: None, opened: 0, made: 0 }
    }

    fn value(dice: &mut Dice) -> Vec<u8> {
        let len = if dice.below(25) == 0 { dice.below(30_000) } else { dice.below(400) };
        let byte = dice.below(256) as u8;
        (0..len).map(|i| byte.wrapping_add((i / 7) as u8)).collect()
    }

    fn key(dice: &mut Dice) -> Vec<u8> {
        let n = dice.below(1500) as u32;
        [&b"key of a row "[..], &n.wrapping_mul(0x9e37_79b1).to_be_bytes()].concat()
    }

    fn commit(&mut self) {
        let Some(name) = self.some_tree() else { return self.make_tree() };
        let mut tx = self.db.begin().unwrap();
        let tree = tx.open_tree(&name).unwrap();
        let mut rows = self.model[&name].clone();
        for _ in 0..=self.dice.below(30) {
            let key = Self::key(&mut self.dice);
            if self.dice.below(3) == 0 {
                tx.delete(&tree, &key).unwrap();
                rows.remove(&key);
            } else {
                let value = Self::value(&mut self.dice);
                tx.put(&tree, &key, &value).unwrap();
                rows.insert(key, value);
            }
        }
        if self.dice.below(8) == 0 {
            return tx.rollback().unwrap();
        }
        let level = [Durability::Flushed, Durability::Written, Durability::Deferred][self.dice.below(3) as usize];
        tx.commit_with(level).unwrap();
        self.model.insert(name, rows);
    }

    fn some_tree(&mut self) -> Option<String> {
        let names: Vec<&String> = self.model.keys().collect();
        if names.is_empty() { None } else { Some(names[self.dice.below(names.len() as u64) as usize].clone()) }
    }

    fn make_tree(&mut self) {
        self.made += 1;
        let name = format!("tree {}", self.made);
        self.db.create_tree(&name).unwrap();
        self.model.insert(name, Rows::new());
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..50 => self.commit(),
            50..54 if self.model.len() < 5 => self.make_tree(),
            54..56 if self.model.len() > 2 && self.open.is_none() => {
                let name = self.some_tree().expect("there are three");
                self.db.drop_tree(&name).unwrap();
                self.model.remove(&name);
            }
            56..60 => match self.open.take() {
                // Never committed: it must be in no backup.
                Some(tx) => tx.rollback().unwrap(),
                None => {
                    let Some(name) = self.some_tree() else { return };
                    let mut tx = self.db.begin().unwrap();
                    let tree = tx.open_tree(&name).unwrap();
                    for i in 0..=self.dice.below(20) {
                        self.opened += 1;
                        let key = [&b"open "[..], &self.opened.to_be_bytes(), &i.to_be_bytes()].concat();
                        tx.put(&tree, &key, &Self::value(&mut self.dice)).unwrap();
                    }
                    self.open = Some(tx);
                }
            },
            60..64 => {
                let Some(name) = self.some_tree() else { return };
                let tree = self.db.open_tree(&name).unwrap();
                let mut steps = self.dice.below(20);
                let options = CompactOptions::default();
                let go_on = |_: &_| {
                    steps = steps.saturating_sub(1);
                    if steps == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                self.db.compact_with(&tree, options, go_on).unwrap();
            }
            64..66 => drop(self.db.shrink().unwrap()),
            66 => drop(self.db.grow(self.db.stats().space.data_bytes + (300 << 10)).unwrap()),
            67..70 => self.db.checkpoint().unwrap(),
            _ => {
                let task = Task::ALL[self.dice.below(Task::ALL.len() as u64) as usize];
                for _ in 0..=self.dice.below(4) {
                    self.db.step_task(task).unwrap();
                }
            }
        }
    }

    fn steps(&mut self, most: u64) {
        for _ in 0..self.dice.below(most) {
            self.step();
        }
    }

    /// Takes a backup while the load runs; returns the contents that it must restore.
    fn backup(&mut self, to: &Path, options: &BackupOptions) -> (seawall::BackupReport, Model) {
        let mut backup = self.db.backup_begin(to, options).unwrap();
        let most = 1 + self.dice.below(40);
        self.steps(most);
        while !backup.step(1).unwrap().done {
            self.steps(most);
        }
        self.steps(most);
        let report = backup.end().unwrap();
        (report, self.model.clone())
    }
}

fn seed(seed: u64) {
    let page_kib = [4, 8, 16][seed as usize % 3];
    let sim = sim(seed);
    let process = Arc::new(Process::new(&sim));
    let disk: Arc<dyn Disk> = process.clone();
    let db = Database::open_in(env(disk.clone()), "/db", options(page_kib)).unwrap();
    let mut load = Load::new(db, seed);
    load.steps(400);
    let mut chain: Vec<PathBuf> = Vec::new();
    let mut expected = Vec::new();
    for nth in 0..3 {
        let to = PathBuf::from(format!("/backup-{nth}"));
        let options = chain.last().map_or_else(unlimited, since);
        let (report, model) = load.backup(&to, &options);
        assert_eq!(report.incremental, nth > 0);
        chain.push(to);
        expected.push(model);
        load.steps(100);
    }
    // An increment may also skip a backup.
    let (_, model) = load.backup(Path::new("/backup-late"), &since("/backup-0"));
    let late = [chain[0].clone(), "/backup-late".into()];
    // An unfinished backup.
    let mut left = load.db.backup_begin("/backup-left", &unlimited()).unwrap();
    left.step(1).unwrap();
    load.steps(30);
    let restored = |disk: &Arc<dyn Disk>, round: &str| {
        for (nth, model) in expected.iter().enumerate() {
            let when = format!("seed {seed}, backup {nth}, {round}");
            restores(disk, page_kib, &chain[..=nth], &format!("/restored-{round}-{nth}"), model, &when);
        }
        restores(
            disk,
            page_kib,
            &late,
            &format!("/restored-{round}-late"),
            &model,
            &format!("seed {seed}, late {round}"),
        );
    };
    restored(&disk, "live");
    // A backup that was reported as finished is durable, one without an end is refused.
    process.crash_by(if seed % 2 == 0 { SimDisk::power_cut } else { SimDisk::process_crash });
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    restored(&disk, "dead");
    for result in [
        Database::restore_in(&env(disk.clone()), &["/backup-left"], "/not").map(drop),
        Database::open_in(env(disk.clone()), "/backup-left", options(page_kib)).map(drop),
    ] {
        assert!(matches!(result, Err(Error::UnfinishedBackup { .. })), "seed {seed}: {result:?}");
    }
    // Dropping the handles of a dead process changes nothing.
    drop((left, load));
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

#[test]
fn a_backup_under_load_restores_to_what_was_committed_at_its_end() {
    if let Some(one) = number("SEED") {
        return seed(one);
    }
    for one in 0..number("SEEDS").unwrap_or(if cfg!(debug_assertions) { 6 } else { 200 }) {
        seed(one);
    }
}

// --- pages caught half-written -----------------------------------------------------------------------------

/// A disk on which some reads of a data page return a part of the next version.
#[derive(Debug)]
struct Tearing {
    below: Arc<dyn Disk>,
    /// One of this many reads; 0 for none.
    every: AtomicU64,
    reads: AtomicU64,
    torn: AtomicU64,
}

impl Disk for Tearing {
    fn backend(&self) -> &BackendInfo {
        self.below.backend()
    }
    fn open(&self, path: &Path, how: OpenHow) -> IoResult<Handle> {
        self.below.open(path, how)
    }
    fn rename(&self, from: &Path, to: &Path) -> IoResult<()> {
        self.below.rename(from, to)
    }
    fn remove(&self, path: &Path) -> IoResult<()> {
        self.below.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> IoResult<()> {
        self.below.sync_dir(path)
    }
    fn list(&self, path: &Path) -> IoResult<Vec<PathBuf>> {
        self.below.list(path)
    }
    fn free_bytes(&self, path: &Path) -> IoResult<u64> {
        self.below.free_bytes(path)
    }
    fn lock(&self, file: &Handle) -> IoResult<()> {
        self.below.lock(file)
    }
    fn len(&self, file: &Handle) -> IoResult<u64> {
        self.below.len(file)
    }
    fn set_len(&self, file: &Handle, len: u64) -> IoResult<()> {
        self.below.set_len(file, len)
    }
    fn allocate(&self, file: &Handle, how: seawall_io::Allocate, offset: u64, len: u64) -> IoResult<()> {
        self.below.allocate(file, how, offset, len)
    }
    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> IoResult<usize> {
        let n = self.below.read_at(file, offset, buf)?;
        let every = self.every.load(Ordering::SeqCst);
        if every > 0 && file.path() == Path::new("/db/data") {
            let nth = self.reads.fetch_add(1, Ordering::SeqCst);
            let page = (nth % (n as u64 / 4096)) as usize * 4096;
            if nth % every == 0 && buf[page..page + 4096].iter().any(|byte| *byte != 0) {
                buf[page + 2048..page + 4096].fill(nth as u8);
                self.torn.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(n)
    }
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> IoResult<usize> {
        self.below.write_at(file, offset, bufs, how)
    }
    fn sync(&self, file: &Handle, how: SyncHow) -> IoResult<()> {
        self.below.sync(file, how)
    }
    fn cached(&self, file: &Handle, len: u64) -> IoResult<Cached> {
        self.below.cached(file, len)
    }
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> IoResult<()> {
        self.below.drop_cache(file, offset, len)
    }
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        self.below.submit(batch)
    }
    fn drive(&self, block: bool) -> usize {
        self.below.drive(block)
    }
    fn wait(&self, ticket: &Ticket) -> Completion {
        self.below.wait(ticket)
    }
}

/// A database with rows, all written back.
fn filled(disk: &Arc<dyn Disk>, rows: u32) -> Database {
    let db = Database::open_in(env(disk.clone()), "/db", options(4)).unwrap();
    let tree = db.create_tree("t").unwrap();
    for first in (0..rows).step_by(100) {
        db.transact(|tx| (first..first + 100).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[7; 300])))
            .unwrap();
        while db.step().unwrap() {}
    }
    db.checkpoint().unwrap();
    db
}

#[test]
fn a_page_that_is_caught_half_written_is_read_again() {
    let tearing = Arc::new(Tearing {
        below: Arc::new(Process::new(&sim(1))),
        every: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        torn: AtomicU64::new(0),
    });
    let disk: Arc<dyn Disk> = tearing.clone();
    let db = filled(&disk, 3000);
    let expected = contents(&db);
    tearing.every.store(2, Ordering::SeqCst);
    let report = db.backup_to("/copy", &unlimited()).unwrap();
    assert!(report.read_again > 1 && tearing.torn.load(Ordering::SeqCst) >= report.read_again, "{report:?}");
    tearing.every.store(0, Ordering::SeqCst);
    restores(&disk, 4, &["/copy".into()], "/restored", &expected, "torn");
    // It ends even if a page never reads consistently.
    tearing.every.store(1, Ordering::SeqCst);
    let error = db.backup_to("/never", &unlimited()).unwrap_err();
    let named = matches!(&error, Error::Corrupt(why) if matches!(**why, Corruption::ChecksumMismatch { .. }));
    assert!(named, "{error}");
    tearing.every.store(0, Ordering::SeqCst);
    // The failed backup holds nothing any more.
    db.backup_to("/after", &unlimited()).unwrap();
}

#[test]
fn a_damaged_page_is_named_and_a_free_one_is_not_needed() {
    let sim = sim(2);
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let db = filled(&disk, 3000);
    let tree = db.open_tree("t").unwrap();
    let expected = contents(&db);
    // Freed pages still have bytes, but belong to no tree.
    let gone = db.create_tree("gone").unwrap();
    db.transact(|tx| (0..2000u32).try_for_each(|key| tx.put(&gone, &key.to_be_bytes(), &[9; 300]))).unwrap();
    db.checkpoint().unwrap();
    db.drop_tree("gone").unwrap();
    for _ in 0..50 {
        while db.step().unwrap() {}
        db.checkpoint().unwrap();
    }
    let (gone, owned) = (gone.id().0, tree.id().0);
    let data = sim.seen("/db/data").unwrap();
    let of = |page: usize| u32::from_le_bytes(data[page * 4096 + 16..page * 4096 + 20].try_into().unwrap());
    let free = (0..data.len() / 4096).rev().find(|&page| of(page) == gone).expect("the dropped tree left pages");
    sim.flip_bit("/db/data", free as u64 * 4096 + 3000, 1).unwrap();
    db.backup_to("/copy", &unlimited()).unwrap();
    restores(&disk, 4, &["/copy".into()], "/restored", &expected, "a free page is damaged");
    let used = (0..data.len() / 4096).rev().find(|&page| of(page) == owned).unwrap();
    sim.flip_bit("/db/data", used as u64 * 4096 + 3000, 1).unwrap();
    let error = db.backup_to("/damaged", &unlimited()).unwrap_err();
    assert!(error.to_string().contains(&format!("page {used} ")), "{error}");
}

/// Zeroes where a page is in use are damage, as for `check`; pages that are new since the backup began are none.
#[test]
fn a_page_that_is_lost_is_named() {
    let sim = sim(4);
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let db = filled(&disk, 300);
    let tree = db.open_tree("t").unwrap();
    db.checkpoint().unwrap();
    db.backup_to("/full", &unlimited()).unwrap();
    let data = sim.seen("/db/data").unwrap();
    let of = |page: usize| u32::from_le_bytes(data[page * 4096 + 16..page * 4096 + 20].try_into().unwrap());
    let used = (0..data.len() / 4096).rev().find(|&page| of(page) == tree.id().0).unwrap();
    let file = disk.open(Path::new("/db/data"), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let at = used as u64 * 4096;
    disk.write_at(&file, at, &[IoSlice::new(&[0; 4096])], WriteHow::default()).unwrap();
    disk.sync(&file, SyncHow::All).unwrap();
    // Also if it is changed in memory, so that it is written again during the backup.
    for (to, options, changed) in [
        ("/lost", unlimited(), false),
        ("/lost-since", since("/full"), false),
        ("/changed", unlimited(), true),
        ("/changed-since", since("/full"), true),
    ] {
        disk.write_at(&file, at, &[IoSlice::new(&[0; 4096])], WriteHow::default()).unwrap();
        disk.sync(&file, SyncHow::All).unwrap();
        if changed {
            db.transact(|tx| (0..300u32).step_by(7).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), b"changed")))
                .unwrap();
        }
        let error = db.backup_to(to, &options).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)) && error.to_string().contains(&format!("page {used} ")), "{error}");
    }
    disk.write_at(&file, at, &[IoSlice::new(&data[used * 4096..][..4096])], WriteHow::default()).unwrap();
    // New pages that are not written back yet, and pages that are created during the copy.
    let more = db.create_tree("more").unwrap();
    let rows = |from: u32| (from..from + 500).map(|key| (key.to_be_bytes(), [9; 300]));
    db.transact(|tx| tx.put_rows(&more, rows(0))).unwrap();
    let mut backup = db.backup_begin("/new", &unlimited()).unwrap();
    for round in 1.. {
        db.transact(|tx| tx.put_rows(&more, rows(500 * round))).unwrap();
        if backup.step(64 << 10).unwrap().done {
            break;
        }
    }
    let expected = contents(&db);
    backup.end().unwrap();
    restores(&disk, 4, &["/new".into()], "/restored", &expected, "pages are new");
}

#[test]
fn a_backup_of_a_database_whose_disk_is_full_succeeds() {
    let sim = sim(6);
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let db = filled(&disk, 300);
    sim.inject(Fault::enospc().on(Op::Write).path("/db/backup.history"));
    db.backup_to("/full", &unlimited()).unwrap();
    restores(&disk, 4, &["/full".into()], "/restored", &contents(&db), "its disk was full");
    let error = db.backup_to("/since", &since("/full")).unwrap_err();
    assert!(error.to_string().contains("no record of it"), "{error}");
}

// --- what is held ------------------------------------------------------------------------------------------

fn write_much(db: &Database, rounds: u32) {
    let tree = db.open_tree("much").or_else(|_| db.create_tree("much")).unwrap();
    for round in 0..rounds {
        db.transact(|tx| (0..40u32).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[round as u8; 900])))
            .unwrap();
        while db.step().unwrap() {}
        if round % 10 == 9 {
            db.checkpoint().unwrap();
        }
    }
}

#[test]
fn writers_go_on_and_a_backup_that_is_too_slow_ends() {
    let sim = sim(3);
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let db = filled(&disk, 2000);
    let options = BackupOptions { held_log_max: 3 << 20, ..unlimited() };
    let mut backup = db.backup_begin("/copy", &options).unwrap();
    assert!(backup.files().iter().any(|file| file.path == Path::new("/db/data") && file.len_bytes > 0));
    assert!(matches!(db.backup_begin("/second", &options), Err(Error::Usage(_))), "one at a time");
    backup.step(1).unwrap();
    let segments =
        || disk.list(Path::new("/db")).unwrap().iter().filter(|p| p.to_string_lossy().contains("redo.")).count();
    let before = segments();
    // More than the log's capacity and the bound together: no writer waits.
    let head = db.stats().log.head_lsn;
    write_much(&db, 40);
    assert!(segments() > before, "log is held");
    while db.stats().log.head_lsn < head + (12 << 20) {
        write_much(&db, 40);
    }
    let error = backup.step(1).unwrap_err();
    assert!(matches!(error, Error::BackupTooSlow { max_bytes, .. } if max_bytes == 3 << 20), "{error}");
    assert!(error.to_string().contains("held_log_max"), "{error}");
    drop(backup);
    write_much(&db, 100);
    // The log kept beyond the capacity is released.
    assert!(segments() <= 9, "{} segments", segments());
    let expected = contents(&db);
    db.backup_to("/again", &options).unwrap();
    restores(&disk, 4, &["/again".into()], "/restored", &expected, "after one that was too slow");
}

#[test]
fn on_a_full_disk_writers_come_before_the_backup() {
    let sim =
        SimDisk::new(SimOptions { seed: 4, trace_entries_max: 0, capacity_bytes: 12 << 20, ..SimOptions::default() });
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let options = || options(4).with_log_space_reserve(0);
    let db = Database::open_in(env(disk.clone()), "/db", options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| (0..500u32).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[7; 300]))).unwrap();
    let mut backup = db.backup_begin("/copy", &unlimited()).unwrap();
    let head = db.stats().log.head_lsn;
    while db.stats().log.head_lsn < head + (20 << 20) {
        write_much(&db, 40);
    }
    let error = backup.step(1).unwrap_err();
    assert!(matches!(error, Error::BackupTooSlow { disk_full: true, .. }), "{error}");
}

/// Like the test above, but the data file has to grow: the log that the backup holds yields its space to the rows.
#[test]
fn on_a_full_disk_rows_come_before_the_log_that_a_backup_holds() {
    let sim =
        SimDisk::new(SimOptions { seed: 4, trace_entries_max: 0, capacity_bytes: 12 << 20, ..SimOptions::default() });
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let db = Database::open_in(env(disk.clone()), "/db", options(4).with_log_space_reserve(0)).unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| (0..500u32).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[7; 300]))).unwrap();
    let mut backup = db.backup_begin("/copy", &unlimited()).unwrap();
    while disk.free_bytes(Path::new("/db")).unwrap() > 900 << 10 {
        write_much(&db, 1);
        db.checkpoint().unwrap();
    }
    let before = db.stats().space.data_bytes;
    for i in 0.. {
        if db.stats().space.data_bytes > before {
            break;
        }
        let key = |key: u32| [i + 1000, key].map(u32::to_be_bytes).concat();
        db.transact(|tx| tx.put_rows(&tree, (0..20).map(|i| (key(i), [1; 900])))).unwrap();
        db.checkpoint().unwrap();
    }
    let error = backup.step(1).unwrap_err();
    assert!(matches!(error, Error::BackupTooSlow { disk_full: true, .. }), "{error}");
}

#[test]
fn the_file_does_not_become_shorter_under_a_backup() {
    let sim = sim(5);
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let db = filled(&disk, 6000);
    let tree = db.open_tree("t").unwrap();
    let mut backup = db.backup_begin("/copy", &unlimited()).unwrap();
    let before = sim.seen("/db/data").unwrap().len();
    db.transact(|tx| tx.delete_range(&tree, 100u32.to_be_bytes()..).map(drop)).unwrap();
    let shrinks = || {
        for _ in 0..20 {
            while db.step().unwrap() {}
            db.checkpoint().unwrap();
        }
        db.compact(&tree).unwrap();
        while db.step().unwrap() {}
        db.shrink().unwrap();
        sim.seen("/db/data").unwrap().len()
    };
    assert_eq!(shrinks(), before);
    while !backup.step(1).unwrap().done {}
    let expected = contents(&db);
    backup.end().unwrap();
    restores(&disk, 4, &["/copy".into()], "/restored", &expected, "shrunk");
    let after = shrinks();
    assert!(after <= before * 3 / 4, "afterwards it does: {before} bytes, then {after}");
}

// --- a target that fails, is full, or lies -----------------------------------------------------------------

/// Runs backups on a disk that fails one operation on the target, each in turn, or all operations from one on: each
/// failure is typed, the source is unchanged, and the remains cannot be restored. If only the last step failed, the
/// backup may be complete: then it restores the right contents.
fn refuses(op: Op, fault: &dyn Fn(u64) -> Fault, full: bool, incremental: bool) -> u64 {
    let sim = sim(7);
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let db = filled(&disk, 1500);
    let tree = db.open_tree("t").unwrap();
    let chain = |to: &str| [&["/base".into()][..usize::from(incremental)], &[PathBuf::from(to)]].concat();
    let options = if incremental { since("/base") } else { unlimited() };
    db.backup_to("/base", &unlimited()).unwrap();
    let (mut failed, mut passed) = (0, 0);
    for nth in 1u64.. {
        // The source remains usable.
        db.transact(|tx| tx.put(&tree, &nth.to_be_bytes(), &[nth as u8; 900])).unwrap();
        let (expected, to) = (contents(&db), format!("/copy-{nth}"));
        sim.inject(fault(nth).on(op).path(&to));
        let taken = db.backup_to(&to, &options);
        sim.clear_faults();
        assert!(contents(&db) == expected, "{op} {nth}");
        let restored = format!("/restored-{nth}");
        let Err(error) = taken else {
            passed += 1;
            if passed == 3 {
                restores(&disk, 4, &chain(&to), &restored, &expected, &format!("{op} {nth}"));
                break;
            }
            continue;
        };
        (failed, passed) = (failed + 1, 0);
        let typed = match &error {
            Error::NoSpace { path, .. } => full && path.starts_with(&to),
            Error::Io(error) => !full && error.path.starts_with(&to),
            _ => false,
        };
        assert!(typed, "{op} {nth}: {error} ({error:?})");
        match Database::restore_in(&env(disk.clone()), &chain(&to), &restored) {
            Ok(_) => {
                assert!(disk.list(Path::new(&to)).unwrap().contains(&Path::new(&to).join("backup")), "{op} {nth}");
                let again = format!("{restored}-again");
                restores(&disk, 4, &chain(&to), &again, &expected, &format!("{op} {nth}: whole"));
            }
            Err(Error::UnfinishedBackup { .. } | Error::BadBackup { .. }) => {
                // An empty directory contains nothing of a backup.
                if !disk.list(Path::new(&to)).unwrap().is_empty() {
                    let opened = Database::open_in(env(disk.clone()), &to, self::options(4)).map(drop);
                    assert!(matches!(opened, Err(Error::UnfinishedBackup { .. })), "{op} {nth}: {opened:?}");
                }
            }
            Err(error) => panic!("{op} {nth}: {error}"),
        }
    }
    assert_eq!(db.check().unwrap(), [], "{op}");
    db.close().unwrap();
    failed
}

#[test]
fn a_target_that_fails_leaves_no_backup_and_the_source_as_it_was() {
    for (op, least) in [(Op::Open, 5), (Op::Write, 6), (Op::Grow, 2), (Op::Sync, 6), (Op::Directory, 3)] {
        for incremental in [false, true] {
            let failed = refuses(op, &|nth| Fault::eio().nth(nth).once(), false, incremental);
            assert!(failed >= least - u64::from(incremental), "{op}, {incremental}: {failed} failures");
        }
    }
}

#[test]
fn a_target_that_is_full_leaves_no_backup_and_the_source_as_it_was() {
    for (op, least) in [(Op::Open, 5), (Op::Write, 6), (Op::Grow, 2)] {
        for incremental in [false, true] {
            let failed = refuses(op, &|nth| Fault::enospc().nth(nth).once(), true, incremental);
            assert!(failed >= least - u64::from(incremental), "{op}, {incremental}: {failed} failures");
        }
    }
}

/// Writes that a disk acknowledges but loses, misplaces or alters: the damage is either reported or harmless.
#[test]
fn a_target_that_lies_is_named_or_restores_to_the_same() {
    let (mut named, mut same) = (0, 0);
    for fault in [Fault::lost_write, Fault::misdirected_write] {
        for incremental in [false, true] {
            for nth in 1..=16 {
                let sim = sim(nth);
                let process = Arc::new(Process::new(&sim));
                let disk: Arc<dyn Disk> = process.clone();
                let db = filled(&disk, 600);
                let tree = db.open_tree("t").unwrap();
                db.backup_to("/base", &unlimited()).unwrap();
                db.transact(|tx| (0..300u32).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[9; 200]))).unwrap();
                let expected = contents(&db);
                sim.inject(fault().on(Op::Write).path("/copy").nth(nth).once());
                let taken = db.backup_to("/copy", &if incremental { since("/base") } else { unlimited() });
                sim.clear_faults();
                // Only what was flushed counts from here on.
                process.crash_by(SimDisk::power_cut);
                drop((tree, db));
                let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
                let chain = [&["/base".into()][..usize::from(incremental)], &[PathBuf::from("/copy")]].concat();
                let when = format!("{:?} {nth}, incremental {incremental}", fault().kind());
                let refused = |error: &Error| {
                    let known =
                        matches!(error, Error::BadBackup { .. } | Error::Corrupt(_) | Error::UnfinishedBackup { .. });
                    assert!(known, "{when}: {error} ({error:?})");
                };
                if let Err(error) = &taken {
                    refused(error);
                }
                match Database::restore_in(&env(disk.clone()), &chain, "/restored") {
                    Ok(_) => {
                        restores(&disk, 4, &chain, "/again", &expected, &when);
                        same += 1;
                    }
                    Err(error) => {
                        refused(&error);
                        named += 1;
                    }
                }
                // The source is unchanged.
                let db = Database::open_in(env(disk.clone()), "/db", options(4)).unwrap();
                assert!(contents(&db) == expected, "{when}");
            }
        }
    }
    assert!(named > 10 && same > 0, "{named} are named, {same} are of no matter");
}

// --- what is refused ---------------------------------------------------------------------------------------

#[test]
fn chains_and_places_that_do_not_fit_are_refused() {
    let sim = sim(6);
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let restore = |from: &[&str], to: &str| Database::restore_in(&env(disk.clone()), from, to);
    let refused = |result: seawall::Result<()>, why: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::BadBackup { .. }) && error.to_string().contains(why), "{why}: {error}");
    };
    let db = filled(&disk, 1000);
    let tree = db.open_tree("t").unwrap();
    let change = |db: &Database| db.transact(|tx| tx.put(&tree, b"changed", &[1; 100])).unwrap();
    db.backup_to("/full", &unlimited()).unwrap();
    change(&db);
    db.backup_to("/one", &since("/full")).unwrap();
    change(&db);
    db.backup_to("/two", &since("/one")).unwrap();
    refused(restore(&["/one"], "/r").map(drop), "name the full backup");
    refused(restore(&["/full", "/two"], "/r").map(drop), "not an increment on /full");
    refused(restore(&["/full", "/full"], "/r").map(drop), "name it first");
    refused(restore(&["/db"], "/r").map(drop), "it is not a backup");
    refused(restore(&["/full"], "/db").map(drop), "new or empty");
    refused(db.backup_to("/db", &unlimited()).map(drop), "new or empty");
    refused(db.backup_to("/three", &since("/db")).map(drop), "it is not a backup");
    assert!(matches!(restore(&[], "/r"), Err(Error::Usage(_))));
    // Backups are not opened as databases: that would change them.
    for dir in ["/full", "/one"] {
        let error = Database::open_in(env(disk.clone()), dir, options(4)).unwrap_err();
        assert!(matches!(error, Error::IsABackup { .. }) && error.to_string().contains("restore"), "{error}");
    }
    // A restored database has a history of its own, and so has a database moved into its place.
    restore(&["/full", "/one", "/two"], "/r").unwrap();
    let copy = Database::open_in(env(disk.clone()), "/r", options(4)).unwrap();
    refused(copy.backup_to("/three", &since("/two")).map(drop), "restored");
    copy.backup_to("/own", &unlimited()).unwrap();
    copy.backup_to("/own-one", &since("/own")).unwrap();
    refused(restore(&["/full", "/own-one"], "/r2").map(drop), "not an increment");
    refused(db.backup_to("/three", &since("/own")).map(drop), "restored");
    let other = Database::open_in(Env { seed: 6, ..env(disk.clone()) }, "/other", options(4)).unwrap();
    refused(other.backup_to("/three", &since("/two")).map(drop), "another database");
    other.backup_to("/of-other", &unlimited()).unwrap();
}

#[test]
fn a_backup_that_is_damaged_is_not_restored() {
    let sim = sim(7);
    let disk: Arc<dyn Disk> = Arc::new(Process::new(&sim));
    let db = filled(&disk, 1000);
    let mut backup = db.backup_begin("/full", &unlimited()).unwrap();
    while !backup.step(1).unwrap().done {}
    let tree = db.open_tree("t").unwrap();
    db.transact(|tx| tx.put(&tree, b"in the log", &[1; 2000])).unwrap();
    let report = backup.end().unwrap();
    db.transact(|tx| tx.put(&tree, b"in an increment", &[1; 2000])).unwrap();
    db.checkpoint().unwrap();
    db.backup_to("/one", &since("/full")).unwrap();
    let files = |dir: &str| disk.list(Path::new(dir)).unwrap();
    let mut damaged = 0;
    for file in files("/full").into_iter().chain(files("/one")) {
        let bytes = sim.seen(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let places: Vec<u64> = match name.as_str() {
            // The first page, the log's last entry, the manifest's first lines. One slot of a control file
            // may be bad.
            "data" | "pages" => vec![100, 4096 - 1],
            "backup" => vec![3, 60, 100, bytes.len() as u64 - 3],
            "control" => continue,
            _ if file.starts_with("/full") => {
                let of = |lsn: u64| lsn % (256 << 10);
                let last = u64::from_str_radix(&name[5..], 16).unwrap() == report.end / (256 << 10);
                if last { vec![of(report.end - 1), of(report.end - 900)] } else { continue }
            }
            _ => continue,
        };
        let handle = disk.open(&file, OpenHow::default()).unwrap();
        for at in places {
            // The page cache may differ from the disk.
            disk.drop_cache(&handle, 0, 1 << 20).unwrap();
            sim.flip_bit(&file, at, 2).unwrap();
            damaged += 1;
            let to = format!("/r-{damaged}");
            // The log of an increment replaces the previous one.
            let from: &[&str] = if file.starts_with("/full") { &["/full"] } else { &["/full", "/one"] };
            let result = Database::restore_in(&env(disk.clone()), from, &to);
            assert!(result.is_err(), "{} at {at}", file.display());
            disk.drop_cache(&handle, 0, 1 << 20).unwrap();
            sim.flip_bit(&file, at, 2).unwrap();
        }
        disk.drop_cache(&handle, 0, 1 << 20).unwrap();
    }
    assert!(damaged >= 12, "{damaged}");
    Database::restore_in(&env(disk.clone()), &["/full", "/one"], "/well").unwrap();
}
