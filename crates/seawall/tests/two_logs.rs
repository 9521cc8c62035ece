//! Two logs: a program decides its transactions in its own log, in addition to the engine's log.
//!
//! 1. The program prepares the transactions of a group in place, appends their names to its log and flushes that, and
//!    commits them in that log's order. A run is cut between every pair of steps, before every operation of the disk,
//!    and during a write or flush.
//! 2. After a crash it commits the prepared transactions that are in its log, and rolls back the rest. Then
//!    both logs agree, for durability 1. At lower levels, the engine may lack the last transactions of the
//!    outside log, those prepared within the flush interval, and never has one that the outside log lacks.
//! 3. A transaction that saw a commit before it was durable, and wrote something durable, is later in the
//!    log: a crash that loses the commit loses that transaction too.
//! 4. Each rule of the program is broken once on purpose, and the checks notice.

use seawall::{
    Background, Database, Durability, Env, Error, LogPosition, Options, Task, Transaction, Tree, TxOptions, Xid,
};
use seawall_io::{Clock, Create, Disk, Handle, OpenHow, SyncHow, WriteHow};
use seawall_sim::{Latency, SimDisk, SimOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dice;
    pub(crate) mod dying_process;
}
use support::dice::Dice;
use support::dying_process::{DyingProcess, End};

const INTERVAL: Duration = Duration::from_millis(1000);
/// A background thread checks this often, and the disk takes some time itself.
const SLACK: Duration = Duration::from_millis(50);
/// The restart time of the simulated machine.
const RESTART: Duration = Duration::from_secs(30);
const RECORD_BYTES: u64 = 16;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(128 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
        .with_flush_interval(INTERVAL)
}

fn sim(seed: u64) -> Arc<SimDisk> {
    let latency = Latency { spikes_per_million: 0, ..Latency::default() };
    SimDisk::new(SimOptions { seed, latency, trace_entries_max: 64, ..SimOptions::default() })
}

/// The disk's time, which remembers when the process died: later drops wait for a disk that does not answer.
#[derive(Debug)]
struct MortalClock {
    clock: Arc<SimDisk>,
    process: Arc<DyingProcess>,
    restarted_at: OnceLock<Duration>,
}

impl MortalClock {
    fn died_at(&self) -> Duration {
        let restarted = *self.restarted_at.get_or_init(|| self.clock.now());
        restarted.saturating_sub(if self.process.how() == End::PowerCut { RESTART } else { Duration::ZERO })
    }
}

impl Clock for MortalClock {
    fn now(&self) -> Duration {
        self.clock.now()
    }
    fn sleep(&self, duration: Duration) {
        if self.process.is_dead() {
            self.restarted_at.get_or_init(|| self.clock.now());
        }
        self.clock.sleep(duration);
    }
}

fn open(clock: &Arc<MortalClock>) -> seawall::Result<Database> {
    let (disk, clock) = (clock.process.clone(), clock.clone());
    Database::open_in(Env { disk, clock, seed: 1, background: Background::Steps }, "/db", options())
}

fn clock(sim: &Arc<SimDisk>, process: Arc<DyingProcess>) -> Arc<MortalClock> {
    Arc::new(MortalClock { clock: sim.clone(), process, restarted_at: OnceLock::new() })
}

/// The outside log: names of transactions, each with a checksum.
struct Outside {
    disk: Arc<DyingProcess>,
    file: Handle,
    end: u64,
}

fn record(id: u64) -> [u8; RECORD_BYTES as usize] {
    let mut record = [0; RECORD_BYTES as usize];
    record[..8].copy_from_slice(&id.to_le_bytes());
    record[8..].copy_from_slice(&(id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5ea_3a11).to_le_bytes());
    record
}

impl Outside {
    fn open(disk: &Arc<DyingProcess>) -> seawall_io::Result<Self> {
        let how = OpenHow { write: true, create: Create::IfMissing, ..OpenHow::default() };
        let file = disk.open(Path::new("/outside/log"), how)?;
        disk.sync_dir(Path::new("/outside"))?;
        Ok(Self { disk: disk.clone(), file, end: 0 })
    }

    fn append(&mut self, ids: &[u64]) -> seawall_io::Result<()> {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| record(*id)).collect();
        let done = self.disk.write_at(&self.file, self.end, &[IoSlice::new(&bytes)], WriteHow::default())?;
        assert_eq!(done, bytes.len(), "no short writes are injected here");
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn flush(&self) -> seawall_io::Result<()> {
        self.disk.sync(&self.file, SyncHow::All)
    }

    /// Its contents up to the first incomplete record, in order.
    fn read(sim: &SimDisk) -> Vec<u64> {
        let bytes = sim.seen("/outside/log").unwrap_or_default();
        let whole = bytes.chunks_exact(RECORD_BYTES as usize).map(|found| {
            let id = u64::from_le_bytes(found[..8].try_into().unwrap());
            (found == record(id) && id != 0).then_some(id)
        });
        whole.take_while(Option::is_some).flatten().collect()
    }
}

/// The correct program, and wrong variants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Right,
    /// Treats a preparation that is not flushed as flushed.
    PreparedTooLow,
    /// Appends a group to its log before it is prepared.
    LogFirst,
    /// Commits before its log contains the group.
    CommitFirst,
    /// Commits before its log is flushed.
    LogUnflushed,
    /// Rolls back every prepared transaction it finds.
    ForgetsItsLog,
}

/// The program's knowledge when it dies.
#[derive(Default)]
struct Known {
    /// When each preparation was acknowledged.
    prepared_at: BTreeMap<u64, Duration>,
    /// In a flushed outside log.
    decided: BTreeSet<u64>,
    /// The position of the commit in the engine's log, and the highest durable position known.
    committed: BTreeMap<u64, LogPosition>,
    durable: Option<LogPosition>,
    steps: usize,
}

/// Where a run ends.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// Before this step.
    Step(usize),
    /// Before the operation of the disk this many after the trees are created; or with it in flight.
    Operation(u64, bool),
}

/// A run: it ends by itself, or at a cut.
struct Run {
    sim: Arc<SimDisk>,
    process: Arc<DyingProcess>,
    clock: Arc<MortalClock>,
    program: Program,
    level: Durability,
    cut: Cut,
    known: Known,
}

fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

fn xid(id: u64) -> Xid {
    Xid(id.to_le_bytes().to_vec())
}

fn id_of(xid: &Xid) -> u64 {
    u64::from_le_bytes(xid.0.as_slice().try_into().unwrap())
}

/// Why a run ends: the process is dead.
struct Dead;

impl<E: std::error::Error> From<E> for Dead {
    fn from(_: E) -> Self {
        Self
    }
}

impl Run {
    /// A step begins; the process can die between two steps.
    fn step(&mut self) -> Result<(), Dead> {
        if matches!(self.cut, Cut::Step(step) if step == self.known.steps) {
            self.process.dies_now();
        }
        self.known.steps += 1;
        if self.process.is_dead() { Err(Dead) } else { Ok(()) }
    }

    fn begin(&mut self, db: &Database, trees: &[Tree; 3], id: u64) -> Result<Transaction, Dead> {
        self.step()?;
        let mut tx = db.begin_with(TxOptions { durability: Some(self.level), ..TxOptions::default() })?;
        tx.put(&trees[0], &key(id), &[7; 60])?;
        tx.put(&trees[1], &key(id), &[8; 60])?;
        Ok(tx)
    }

    fn prepare(&mut self, tx: &mut Transaction, id: u64) -> Result<(), Dead> {
        self.step()?;
        let level = if self.program == Program::PreparedTooLow { Durability::Deferred } else { self.level };
        tx.prepare_in_place(&xid(id), level)?;
        self.known.prepared_at.insert(id, self.sim.now());
        Ok(())
    }

    fn decide(&mut self, outside: &mut Outside, ids: &[u64]) -> Result<(), Dead> {
        self.step()?;
        outside.append(ids)?;
        self.step()?;
        if self.program != Program::LogUnflushed {
            outside.flush()?;
        }
        self.known.decided.extend(ids);
        Ok(())
    }

    fn commit(&mut self, txs: &mut [Transaction], ids: &[u64]) -> Result<(), Dead> {
        for (tx, id) in txs.iter_mut().zip(ids) {
            self.step()?;
            let operations = self.sim.trace().len();
            let position = tx.commit_ordered()?;
            assert_eq!(self.sim.trace().len(), operations, "a commit in order does no I/O");
            self.known.committed.insert(*id, position);
        }
        Ok(())
    }

    fn group(&mut self, db: &Database, outside: &mut Outside, trees: &[Tree; 3], ids: &[u64]) -> Result<(), Dead> {
        let mut txs = Vec::new();
        for id in ids {
            txs.push(self.begin(db, trees, *id)?);
        }
        if self.program == Program::LogFirst {
            self.decide(outside, ids)?;
        }
        for (tx, id) in txs.iter_mut().zip(ids) {
            self.prepare(tx, *id)?;
        }
        if self.program == Program::CommitFirst {
            self.commit(&mut txs, ids)?;
            // Another transaction's commit can flush the log at any time.
            db.flush_log()?;
        }
        if self.program != Program::LogFirst {
            self.decide(outside, ids)?;
        }
        if self.program != Program::CommitFirst {
            self.commit(&mut txs, ids)?;
        }
        for tree in &trees[..2] {
            for id in ids {
                assert!(db.get(tree, &key(*id))?.is_some(), "what is committed is seen");
            }
        }
        Ok(())
    }

    fn all(&mut self, seed: u64, groups: u64) -> Result<(), Dead> {
        let mut dice = Dice::new(seed);
        let db = open(&self.clock)?;
        let mut outside = Outside::open(&self.process)?;
        let trees = [db.create_tree("a")?, db.create_tree("b")?, db.create_tree("after")?];
        if let Cut::Operation(after, _) = self.cut {
            self.process.dies_after(after);
        }
        let mut next = 1;
        for _ in 0..groups {
            let ids: Vec<u64> = (next..next + 1 + dice.below(3)).collect();
            next += ids.len() as u64;
            self.group(&db, &mut outside, &trees, &ids)?;
            let last = next - 1;
            match dice.below(4) {
                0 => {
                    self.step()?;
                    self.known.durable = Some(db.flush_log()?);
                }
                // Reads a commit that may not be durable, and commits a durable write.
                1 => {
                    self.step()?;
                    db.transact(|tx| {
                        let seen = tx.get_for_update(&trees[0], &key(last))?;
                        tx.put(&trees[2], &key(last), &seen.expect("it is committed"))
                    })?;
                }
                _ => {}
            }
            self.known.durable = self.known.durable.max(Some(db.durable_position()));
            // Up to several intervals, with background work.
            let until = self.sim.now() + Duration::from_micros(dice.log_uniform(1_500_000));
            while self.sim.now() < until {
                self.sim.advance(Duration::from_millis(20).min(until - self.sim.now()));
                while db.step_task(Task::Log)? {}
            }
        }
        Ok(())
    }
}

fn keys(db: &Database, tree: &str) -> BTreeSet<u64> {
    let Ok(tree) = db.open_tree(tree) else { return BTreeSet::new() };
    let tx = db.begin().unwrap();
    tx.iter(&tree).map(|entry| u64::from_be_bytes(entry.unwrap().0.try_into().unwrap())).collect()
}

/// What is wrong after the run's process died and the program was restarted; else the number of transactions
/// lost legally.
fn judge(run: &Run, died_at: Duration) -> Result<usize, String> {
    let logged: Vec<u64> = Outside::read(&run.sim);
    let in_log: BTreeSet<u64> = logged.iter().copied().collect();
    let process = DyingProcess::new(&run.sim, End::PowerCut, None);
    let db = open(&clock(&run.sim, process)).map_err(|error| format!("does not open: {error}"))?;
    // Before any decision: durable commits are there, and a transaction that saw a commit is not there
    // without it.
    let (committed, after) = (keys(&db, "a"), keys(&db, "after"));
    let prepared: BTreeSet<u64> = db.prepared().iter().map(id_of).collect();
    if !after.is_subset(&committed) {
        return Err(format!("{after:?} were written by who saw them, and of these only {committed:?} are committed"));
    }
    for (id, position) in &run.known.committed {
        if Some(*position) <= run.known.durable && !committed.contains(id) {
            return Err(format!("{id} was durably committed, at {position}"));
        }
    }
    for name in db.prepared() {
        let decided = in_log.contains(&id_of(&name)) && run.program != Program::ForgetsItsLog;
        let ended = if decided { db.commit_prepared(&name) } else { db.rollback_prepared(&name) };
        ended.map_err(|error| format!("{name}: {error}"))?;
    }
    while db.step().map_err(|error| error.to_string())? {}
    let rows = keys(&db, "a");
    if rows != keys(&db, "b") {
        return Err("a transaction is there in part".into());
    }
    if !run.known.decided.is_subset(&in_log) {
        return Err("the outside log lost what it had flushed: the test is wrong".into());
    }
    let about = || format!("the engine has {rows:?}, the outside log {logged:?}; {prepared:?} were prepared");
    if !rows.is_subset(&in_log) {
        return Err(format!("the engine has what the outside log has not: {}", about()));
    }
    let missing: Vec<u64> = in_log.difference(&rows).copied().collect();
    let may_miss = match run.level {
        Durability::Flushed => false,
        Durability::Written => run.process.how() == End::PowerCut,
        Durability::Deferred => true,
    };
    if !missing.is_empty() && !may_miss {
        return Err(format!("the engine lost {missing:?}: {}", about()));
    }
    for id in &missing {
        // Ids are assigned in order, so the missing ones are the last.
        if rows.iter().any(|there| there > id) {
            return Err(format!("{id} is missing and later ones are there: {}", about()));
        }
        let age = died_at.saturating_sub(run.known.prepared_at[id]);
        if age > INTERVAL + SLACK {
            return Err(format!("{id} was prepared {age:?} before the end, and is lost"));
        }
    }
    Ok(missing.len())
}

/// One run and its verdict; `None`: it ended by itself.
fn run(program: Program, level: Durability, how: End, seed: u64, cut: Cut) -> Option<Result<usize, String>> {
    let sim = sim(seed);
    let process = match cut {
        Cut::Step(_) => DyingProcess::new(&sim, how, None),
        Cut::Operation(_, tears) => DyingProcess::tearing(&sim, how, None, tears),
    };
    let clock = clock(&sim, process.clone());
    let mut run = Run { sim: sim.clone(), process, clock: clock.clone(), program, level, cut, known: Known::default() };
    let ended = run.all(seed, 3);
    let by_itself = ended.is_ok();
    run.process.dies_now();
    let died_at = clock.died_at();
    let verdict = judge(&run, died_at);
    let about = |error| format!("{program:?}, {level:?}, {how:?}, seed {seed}, {cut:?}: {error}");
    let verdict = verdict.map_err(about);
    // A failure at a run's own end counts, too.
    (!by_itself || verdict.is_err()).then_some(verdict)
}

/// All cuts of a seed's run: the number of lost transactions, or the first failure.
fn every_cut(program: Program, level: Durability, how: End, seed: u64, stride: u64) -> Result<usize, String> {
    let mut lost = 0;
    for step in 0.. {
        match run(program, level, how, seed, Cut::Step(step)) {
            Some(verdict) => lost += verdict?,
            None => break,
        }
    }
    for tears in [false, true] {
        for n in 0.. {
            match run(program, level, how, seed, Cut::Operation(n * stride + seed % stride, tears)) {
                Some(verdict) => lost += verdict?,
                None => break,
            }
        }
    }
    Ok(lost)
}

const ENDS: [End; 2] = [End::PowerCut, End::Killed];

#[test]
fn both_logs_agree_after_a_cut_anywhere() {
    for seed in 0..2 {
        for how in ENDS {
            let lost = every_cut(Program::Right, Durability::Flushed, how, seed, 1).unwrap();
            assert_eq!(lost, 0);
        }
    }
}

#[test]
fn below_that_the_engine_lacks_the_last_interval_at_most() {
    let mut lost = 0;
    for level in [Durability::Written, Durability::Deferred] {
        for seed in 10..12 {
            for how in ENDS {
                lost += every_cut(Program::Right, level, how, seed, 3).unwrap();
            }
        }
    }
    assert!(lost > 0, "else nothing was tested");
}

/// Each rule of the program is needed: the checks notice when it is broken.
#[test]
fn a_program_that_breaks_a_rule_is_noticed() {
    let wrong = [
        (Program::PreparedTooLow, "the engine lost"),
        (Program::LogFirst, "the engine lost"),
        (Program::CommitFirst, "the engine has what the outside log has not"),
        (Program::LogUnflushed, "the outside log"),
        (Program::ForgetsItsLog, "the engine lost"),
    ];
    for (program, what) in wrong {
        let found = (0..20).find_map(|seed| every_cut(program, Durability::Flushed, End::PowerCut, seed, 3).err());
        let found = found.unwrap_or_else(|| panic!("{program:?} was not noticed"));
        assert!(found.contains(what), "{found}");
    }
}

/// A transaction prepared in place and then dropped stays prepared, is ended by its name, and its name is
/// free afterwards.
#[test]
fn a_prepared_transaction_that_is_dropped_is_known_by_its_name() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    let prepare = |n: u64| {
        let mut tx = db.begin().unwrap();
        tx.put(&tree, &key(n), b"v").unwrap();
        tx.prepare_in_place(&xid(n), Durability::Flushed).unwrap();
        tx
    };
    let first = prepare(1);
    assert_eq!(db.prepared(), [], "it has an owner");
    assert!(matches!(db.commit_prepared(&xid(1)), Err(Error::Unknown { .. })));
    let mut other = db.begin().unwrap();
    other.put(&tree, b"o", b"v").unwrap();
    assert!(matches!(other.prepare_in_place(&xid(1), Durability::Flushed), Err(Error::Usage(_))), "the name is taken");
    other.put(&tree, b"p", b"v").unwrap();
    other.commit().unwrap();
    // A read after the preparation does not hold purge back.
    first.get(&tree, b"o").unwrap();
    drop(first);
    assert_eq!(db.prepared(), [xid(1)]);
    assert_eq!(db.stats().txn.views, 0);
    assert!(db.get(&tree, &key(1)).unwrap().is_none());
    db.commit_prepared(&xid(1)).unwrap();
    assert!(db.get(&tree, &key(1)).unwrap().is_some());
    drop(prepare(2));
    db.rollback_prepared(&xid(2)).unwrap();
    assert!(db.get(&tree, &key(2)).unwrap().is_none());
    // Both commit and rollback of the transaction free the name.
    for _ in 0..2 {
        prepare(3).rollback().unwrap();
        assert!(db.get(&tree, &key(3)).unwrap().is_none());
    }
    prepare(3).commit().unwrap();
    assert!(db.get(&tree, &key(3)).unwrap().is_some());
    assert_eq!(db.prepared(), []);
}

#[test]
fn what_is_prepared_takes_no_changes_and_what_is_not_is_not_committed_in_order() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    assert!(matches!(tx.commit_ordered(), Err(Error::Usage(_))));
    let savepoint = tx.savepoint();
    tx.put(&tree, b"k", b"v").unwrap();
    assert!(matches!(tx.commit_ordered(), Err(Error::Usage(_))));
    tx.prepare_in_place(&xid(1), Durability::Flushed).unwrap();
    let ended = |done: seawall::Result<()>| assert!(matches!(done, Err(Error::TransactionEnded { .. })), "{done:?}");
    ended(tx.put(&tree, b"l", b"v"));
    ended(tx.delete(&tree, b"k").map(drop));
    ended(tx.put_many(&tree, &[(b"l", b"v")]));
    ended(tx.create_tree("u").map(drop));
    ended(tx.drop_tree("t"));
    ended(tx.rollback_to(&savepoint));
    assert!(matches!(tx.prepare_in_place(&xid(2), Durability::Flushed), Err(Error::Usage(_))));
    assert_eq!(tx.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    tx.commit_ordered().unwrap();
    // It is a new transaction now.
    assert_eq!(tx.id(), None);
    assert!(matches!(tx.commit_ordered(), Err(Error::Usage(_))));
    assert!(matches!(tx.rollback_to(&savepoint), Err(Error::Usage(_))), "of another transaction");
    tx.put(&tree, b"m", b"v").unwrap();
    tx.prepare_in_place(&xid(1), Durability::Flushed).unwrap();
    tx.commit_ordered().unwrap();
    tx.put(&tree, b"n", b"v").unwrap();
    tx.rollback().unwrap();
    let there: Vec<_> = db.begin().unwrap().iter(&tree).map(|entry| entry.unwrap().0).collect();
    assert_eq!(there, [b"k", b"m"]);
}

/// Commits in the order of the outside log, by another thread than the transaction's; a waiter for a lock
/// continues at once.
#[test]
fn another_thread_commits_in_order() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    let (send, prepared) = std::sync::mpsc::channel::<(u64, Transaction)>();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (db, tree, send) = (&db, &tree, send.clone());
            scope.spawn(move || {
                for n in 0..25 {
                    let id = thread * 100 + n + 1;
                    let mut tx = db.begin().unwrap();
                    // All need this lock, which is granted after the previous commit.
                    let count = tx.get_for_update(tree, b"count").unwrap().map_or(0, |count| count[0]);
                    tx.put(tree, b"count", &[count + 1]).unwrap();
                    tx.put(tree, &key(id), b"v").unwrap();
                    tx.prepare_in_place(&xid(id), Durability::Deferred).unwrap();
                    send.send((id, tx)).unwrap();
                }
            });
        }
        drop(send);
        let mut last = LogPosition::START;
        for (id, mut tx) in prepared {
            let position = tx.commit_ordered().unwrap();
            assert!(position > last);
            last = position;
            assert!(db.get(&tree, &key(id)).unwrap().is_some());
        }
    });
    assert_eq!(db.get(&tree, b"count").unwrap(), Some(vec![100]));
    let end = db.flush_log().unwrap();
    assert!(db.durable_position() >= end);
    assert!(matches!(db.flush_log_to(LogPosition::from_u64(u64::MAX)), Err(Error::Usage(_))));
}

/// The object of a connection: each end in place frees the name and what is stored with it.
#[test]
fn what_is_prepared_in_place_ends_in_place() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    for n in 0..4u64 {
        tx.put(&tree, &key(n), b"v").unwrap();
        tx.prepare_in_place(&xid(1), Durability::Flushed).unwrap();
        match n {
            0 => tx.commit_in_place().unwrap(),
            1 => tx.rollback_in_place().unwrap(),
            2 => tx.restart(TxOptions::default()).unwrap(),
            _ => drop(tx.commit_ordered().unwrap()),
        }
    }
    drop(tx);
    assert_eq!(db.prepared(), []);
    let there: Vec<_> = db.begin().unwrap().iter(&tree).map(|entry| entry.unwrap().0).collect();
    assert_eq!(there, [key(0), key(3)]);
}

/// No snapshot sees a later commit without an earlier one, with any concurrent readers.
#[test]
fn snapshots_see_commits_in_order() {
    const COMMITS: u64 = 300;
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut seen = 0;
                while seen < COMMITS {
                    let tx = db.begin().unwrap();
                    // From the last to the first: a missing one was not there when the snapshot was taken.
                    let ids = tx.iter(&tree).rev().map(|row| u64::from_be_bytes(row.unwrap().0.try_into().unwrap()));
                    let ids: Vec<u64> = ids.collect();
                    assert!(ids.iter().copied().eq((1..=ids.len() as u64).rev()), "{ids:?}");
                    assert!(ids.len() as u64 >= seen, "what was seen stays");
                    seen = ids.len() as u64;
                }
            });
        }
        let mut prepared = Vec::new();
        for id in 1..=COMMITS {
            let mut tx = db.begin().unwrap();
            tx.put(&tree, &key(id), b"v").unwrap();
            tx.prepare_in_place(&xid(id), Durability::Deferred).unwrap();
            prepared.push(tx);
            if prepared.len() == 10 {
                for mut tx in prepared.drain(..) {
                    tx.commit_ordered().unwrap();
                }
            }
        }
    });
}
