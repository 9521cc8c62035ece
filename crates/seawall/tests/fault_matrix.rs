//! Every kind of fault, at every operation, on every class of file, and its outcome. This test generates the
//! table in docs/recovery.md.
//!
//! 1. A cell is one fault, once, at exactly one operation: the first, the last, and some between of those
//!    with the cell's operation and class.
//! 2. Each cell runs in three phases: while a database is created, while it works (commits, cleaning,
//!    checkpoints, growth, recycling of log files), and while it is opened after a power cut. Afterwards the
//!    power is cut, and the database is opened without a fault.
//! 3. After every fault each acknowledged commit is there, and each transaction is complete or absent; a
//!    poisoned database answered every later commit with its first error. After rot, the contents are right
//!    or the damage is reported.
//! 4. A cell that cannot exist also runs, and must hit no operation.
//!
//! `SEAWALL_WRITE_DOCS=1 cargo test -p seawall --test fault_matrix` writes the table; `CELL=log/flush/EIO`
//! runs one cell with output.

use seawall::{Background, Database, Durability, Env, Error, Options, Task};
use seawall_io::{
    Allocate, BackendInfo, Cached, Disk, Handle, Op, OpenHow, Request, RequestKind, Result as IoResult, SyncHow,
    Ticket, WriteHow,
};
use seawall_sim::{Fault, FaultKind, Process, SimDisk, SimOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DIR: &str = "/db";
const LOG_DIR: &str = "/log";
const ENOSPC: i32 = 28;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Eio,
    Enospc,
    Short,
    Cancelled,
    Slow,
    Torn,
    Rot,
}

impl Kind {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Eio, "EIO"),
        (Self::Enospc, "ENOSPC"),
        (Self::Short, "short"),
        (Self::Cancelled, "cancelled"),
        (Self::Slow, "slow"),
        (Self::Torn, "torn"),
        (Self::Rot, "rot"),
    ];

    /// The fault of the simulated disk; `None` for the power cut.
    fn fault(self) -> Option<Fault> {
        Some(match self {
            Self::Eio => Fault::eio(),
            Self::Enospc => Fault::new(FaultKind::Errno(ENOSPC)),
            Self::Short => Fault::short(),
            Self::Cancelled => Fault::cancelled(),
            Self::Slow => Fault::slow(Duration::from_secs(30)),
            Self::Rot => Fault::bit_rot(),
            Self::Torn => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Control,
    Data,
    Doublewrite,
    Log,
    Directory,
}

impl Class {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Control, "control"),
        (Self::Data, "data"),
        (Self::Doublewrite, "doublewrite"),
        (Self::Log, "log"),
        (Self::Directory, "directory"),
    ];

    fn of(path: &Path) -> Option<Self> {
        if [DIR, LOG_DIR].iter().any(|dir| path == Path::new(dir)) {
            return Some(Self::Directory);
        }
        match path.file_name()?.to_str()? {
            "control" => Some(Self::Control),
            "data" => Some(Self::Data),
            "doublewrite" => Some(Self::Doublewrite),
            name if name.starts_with("redo.") => Some(Self::Log),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Open,
    Read,
    Write,
    Flush,
    Allocate,
    Rename,
}

impl Asked {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Open, "open"),
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Flush, "flush"),
        (Self::Allocate, "allocate"),
        (Self::Rename, "rename"),
    ];
}

/// Why a cell cannot exist.
fn impossible(kind: Kind, class: Class, asked: Asked) -> Option<usize> {
    use Asked::*;
    use Class::*;
    Some(match (kind, class, asked) {
        (_, Directory, Open | Write | Allocate | Rename) => 1,
        (_, Control | Data | Doublewrite, Rename) => 2,
        (_, Control, Allocate) => 3,
        (Kind::Torn, _, Open | Read | Flush | Allocate | Rename) => 4,
        (Kind::Short, _, Open | Flush | Allocate | Rename) | (Kind::Short, Directory, _) => 5,
        (Kind::Rot, _, Open | Write | Flush | Allocate | Rename) | (Kind::Rot, Directory, _) => 6,
        (Kind::Enospc, _, Read) => 7,
        (Kind::Cancelled, _, Open | Flush | Allocate | Rename)
        | (Kind::Cancelled, Control | Directory, _)
        | (Kind::Cancelled, Doublewrite | Log, Write)
        | (Kind::Cancelled, Doublewrite, Read) => 8,
        _ => return None,
    })
}

const REASONS: [&str; 8] = [
    "a directory is listed and synced; what happens to a name in it is the row of the file",
    "this file is never renamed",
    "the control file grows by its first two writes",
    "only a write can be cut by a power cut",
    "only a read or a write of bytes can be short",
    "rot shows itself to reads of bytes; which write it followed makes no difference",
    "a read takes no space",
    "made by a synchronous call, which nothing cancels",
];

/// The operation to hit.
#[derive(Debug, Clone, Copy)]
struct Target {
    kind: Kind,
    class: Class,
    asked: Asked,
    /// Which of the matching operations, from 0; `None`: they are only counted.
    nth: Option<u64>,
}

#[derive(Debug, Default)]
struct Aim {
    target: Option<Target>,
    fitted: u64,
    hit: bool,
    /// All operations since it was armed, by kind and by whether they were asynchronous.
    counts: Counts,
}

type Counts = BTreeMap<(Class, Asked, bool), u64>;

/// A process whose disk fails at one operation.
#[derive(Debug)]
struct Saboteur {
    sim: Arc<SimDisk>,
    process: Process,
    aim: Mutex<Aim>,
}

impl Saboteur {
    fn new(sim: &Arc<SimDisk>, target: Option<Target>) -> Arc<Self> {
        let aim = Mutex::new(Aim { target, ..Aim::default() });
        Arc::new(Self { sim: sim.clone(), process: Process::new(sim), aim })
    }

    /// Returns whether an operation was hit, and the counted operations.
    fn seen(&self) -> (bool, Counts) {
        let aim = self.aim.lock().unwrap();
        (aim.hit, aim.counts.clone())
    }

    fn disarm(&self) {
        self.aim.lock().unwrap().target = None;
        self.sim.clear_faults();
    }

    /// Injects the fault into the next operation of this kind, if it is the target; returns whether to cut
    /// the power after it.
    fn before(&self, asked: Asked, op: Op, path: &Path, is_async: bool) -> bool {
        let mut aim = self.aim.lock().unwrap();
        let Some(target) = aim.target else { return false };
        if let Some(class) = Class::of(path) {
            *aim.counts.entry((class, asked, is_async)).or_default() += 1;
        }
        let fits = target.asked == asked && Class::of(path) == Some(target.class);
        // A synchronous call is never cancelled: the simulated disk does not apply the fault either, and
        // would apply it to the next call.
        if !fits || (target.kind == Kind::Cancelled && !is_async) {
            return false;
        }
        let nth = aim.fitted;
        aim.fitted += 1;
        if target.nth != Some(nth) {
            return false;
        }
        aim.hit = true;
        match target.kind.fault() {
            Some(fault) => self.sim.inject(fault.on(op).exactly(path).once()),
            None => return true,
        }
        false
    }

    fn at<T>(&self, asked: Asked, op: Op, path: &Path, work: impl FnOnce(&Process) -> IoResult<T>) -> IoResult<T> {
        let cut = self.before(asked, op, path, false);
        let done = work(&self.process);
        if cut {
            self.process.crash_by(SimDisk::power_cut);
        }
        done
    }
}

impl Disk for Saboteur {
    fn backend(&self) -> &BackendInfo {
        self.process.backend()
    }
    fn open(&self, path: &Path, how: OpenHow) -> IoResult<Handle> {
        self.at(Asked::Open, Op::Open, path, |disk| disk.open(path, how))
    }
    fn rename(&self, from: &Path, to: &Path) -> IoResult<()> {
        self.at(Asked::Rename, Op::Directory, from, |disk| disk.rename(from, to))
    }
    fn remove(&self, path: &Path) -> IoResult<()> {
        self.process.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> IoResult<()> {
        self.at(Asked::Flush, Op::Sync, path, |disk| disk.sync_dir(path))
    }
    fn list(&self, path: &Path) -> IoResult<Vec<PathBuf>> {
        self.at(Asked::Read, Op::Directory, path, |disk| disk.list(path))
    }
    fn free_bytes(&self, path: &Path) -> IoResult<u64> {
        self.process.free_bytes(path)
    }
    fn lock(&self, file: &Handle) -> IoResult<()> {
        self.process.lock(file)
    }
    fn len(&self, file: &Handle) -> IoResult<u64> {
        self.process.len(file)
    }
    fn set_len(&self, file: &Handle, len: u64) -> IoResult<()> {
        self.at(Asked::Allocate, Op::Grow, file.path(), |disk| disk.set_len(file, len))
    }
    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> IoResult<()> {
        self.at(Asked::Allocate, Op::Grow, file.path(), |disk| disk.allocate(file, how, offset, len))
    }
    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> IoResult<usize> {
        self.at(Asked::Read, Op::Read, file.path(), |disk| disk.read_at(file, offset, buf))
    }
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> IoResult<usize> {
        self.at(Asked::Write, Op::Write, file.path(), |disk| disk.write_at(file, offset, bufs, how))
    }
    fn sync(&self, file: &Handle, how: SyncHow) -> IoResult<()> {
        self.at(Asked::Flush, Op::Sync, file.path(), |disk| disk.sync(file, how))
    }
    fn cached(&self, file: &Handle, len: u64) -> IoResult<Cached> {
        self.process.cached(file, len)
    }
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> IoResult<()> {
        self.process.drop_cache(file, offset, len)
    }
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let mut cut = false;
        for request in &batch {
            let (asked, op) = match request.kind {
                RequestKind::Read => (Asked::Read, Op::Read),
                RequestKind::Write(_) => (Asked::Write, Op::Write),
                RequestKind::Sync(_) => (Asked::Flush, Op::Sync),
            };
            cut |= self.before(asked, op, request.file.path(), true);
        }
        let tickets = self.process.submit(batch);
        if cut {
            // Requests in flight: the next flush has not begun.
            while self.sim.in_flight() > 0 {
                self.process.drive(true);
            }
            self.process.crash_by(SimDisk::power_cut);
        }
        tickets
    }
    fn drive(&self, block: bool) -> usize {
        self.process.drive(block)
    }
}

/// The outcome of a fault; the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Harmless,
    Retried,
    Error,
    NoSpace,
    Poisoned,
    Named,
}

impl Outcome {
    fn letter(self) -> char {
        match self {
            Self::Harmless => 'H',
            Self::Retried => 'R',
            Self::Error => 'E',
            Self::NoSpace => 'S',
            Self::Poisoned => 'P',
            Self::Named => 'N',
        }
    }

    fn of(error: &Error) -> Self {
        match error {
            // The engine stopped because of a read, not of a write.
            Error::Poisoned { .. } | Error::OutcomeUnknown { .. } => match first(error) {
                Error::Corrupt(_) => Self::Named,
                _ => Self::Poisoned,
            },
            Error::NoSpace { .. } => Self::NoSpace,
            Error::Corrupt(_) | Error::NotADatabase { .. } => Self::Named,
            _ => Self::Error,
        }
    }
}

/// The cause behind errors that only report it.
fn first(error: &Error) -> &Error {
    match error {
        Error::Poisoned { first_error: cause } | Error::OutcomeUnknown { cause } => first(cause),
        error => error,
    }
}

/// The allowed contents: for each key its value, or several where an outcome is unknown.
type Model = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

fn options() -> Options {
    let mut options = Options::default();
    for (name, value) in [
        ("page_size", "4K"),
        ("pool_size", "256K"),
        ("data_initial_size", "1M"),
        ("data_growth_step", "1M"),
        ("log_segment_size", "64K"),
        ("log_capacity", "1280K"),
        ("log_buffer_size", "1M"),
        ("log_dir", LOG_DIR),
        ("log_flush_method", "o_direct"),
        ("data_flush_method", "o_direct"),
    ] {
        options.set(name, value).unwrap();
    }
    options
}

fn open(disk: &Arc<Saboteur>) -> Result<Database, Error> {
    let env = Env { disk: disk.clone(), clock: disk.sim.clone(), seed: 1, background: Background::Steps };
    Database::open_in(env, DIR, options())
}

/// The events of one run.
#[derive(Debug, Default)]
struct Met {
    outcomes: BTreeSet<Outcome>,
    /// The process died, as intended.
    dead: bool,
}

impl Met {
    /// Records an error of a caller, or of background work, which retries.
    fn note(&mut self, error: &Error, background: bool) {
        let outcome = Outcome::of(error);
        let dead = matches!(first(error), Error::Io(e) if e.errno() == Some(6));
        if dead {
            self.dead = true;
        } else if background && matches!(outcome, Outcome::Error | Outcome::NoSpace) {
            self.outcomes.insert(Outcome::Retried);
        } else {
            self.outcomes.insert(outcome);
        }
    }

    fn is_over(&self) -> bool {
        self.dead || self.outcomes.contains(&Outcome::Poisoned)
    }
}

/// Commits that overwrite, add, remove and read; every kind of background work between them.
fn work(db: &Database, model: &mut Model, commits: std::ops::Range<u32>, met: &mut Met) {
    let tree = match db.create_tree("t") {
        Ok(tree) => tree,
        Err(error) => return met.note(&error, false),
    };
    for i in commits {
        if met.is_over() {
            return;
        }
        // Spread over more pages than the pool holds, so that pages are read again.
        let key = |n: u32| (n.wrapping_mul(7919) % 1500).to_be_bytes().to_vec();
        let changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..3u32)
            .map(|part| {
                let n = i * 3 + part;
                let len = if n % 97 == 0 { 30_000 } else { 300 + (n as usize * 37) % 1500 };
                (key(n), (n % 11 != 5).then(|| [&n.to_be_bytes()[..], &vec![n as u8; len]].concat()))
            })
            .collect();
        let result = (|| {
            let mut tx = db.begin()?;
            for (key, value) in &changes {
                match value {
                    Some(value) => tx.put(&tree, key, value)?,
                    None => drop(tx.delete(&tree, key)?),
                }
            }
            tx.commit()
        })();
        let last = changes.into_iter().collect::<BTreeMap<_, _>>();
        match &result {
            Ok(()) => {
                for (key, value) in last {
                    model.insert(key, vec![value]);
                }
            }
            Err(Error::OutcomeUnknown { .. }) => {
                for (key, value) in last {
                    model.entry(key).or_insert_with(|| vec![None]).push(value);
                }
            }
            Err(_) => {}
        }
        if let Err(error) = &result {
            met.note(error, false);
        }
        if let Err(error) = db.get(&tree, &key(i * 17)) {
            met.note(&error, false);
        }
        if i % 3 == 0 {
            for &task in Task::ALL {
                for _ in 0..4 {
                    match db.step_task(task) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => met.note(&error, true),
                    }
                }
            }
        }
    }
}

/// A poisoned database stays poisoned even when the disk works again.
fn assert_sticky(db: &Database, what: &str) {
    for _ in 0..3 {
        let tree = db.open_tree("t");
        let answer = tree.and_then(|tree| {
            let mut tx = db.begin()?;
            tx.put(&tree, b"after", b"the end")?;
            tx.commit_with(Durability::Flushed)
        });
        assert!(answer.is_err(), "{what}: a poisoned database commits");
    }
    assert!(db.step_task(Task::Log).is_err() && db.step_task(Task::Clean).is_err(), "{what}: and it writes");
}

/// Opens after a power cut, without faults, and compares.
fn judge(sim: &Arc<SimDisk>, model: &Model, rot: bool, what: &str) -> BTreeSet<Outcome> {
    let mut found = BTreeSet::new();
    let db = match open(&Saboteur::new(sim, None)) {
        Ok(db) => db,
        Err(error) if rot && Outcome::of(&error) == Outcome::Named => return BTreeSet::from([Outcome::Named]),
        Err(error) => panic!("{what}: it does not open: {error}"),
    };
    let tree = match db.open_tree("t") {
        Ok(tree) => tree,
        Err(Error::NoSuchTree { .. }) if model.values().all(|values| values.contains(&None)) => return found,
        Err(error) if rot && Outcome::of(&error) == Outcome::Named => return BTreeSet::from([Outcome::Named]),
        Err(error) => panic!("{what}: {error}"),
    };
    for (key, values) in model {
        match db.get(&tree, key) {
            Ok(value) => assert!(
                values.contains(&value),
                "{what}: key {key:?} has {:?}, not what was committed",
                value.map(|value| value[..4].to_vec())
            ),
            Err(error) if rot && Outcome::of(&error) == Outcome::Named => {
                found.insert(Outcome::Named);
            }
            Err(error) => panic!("{what}: key {key:?}: {error}"),
        }
    }
    if !rot {
        let findings = db.check().unwrap();
        assert!(findings.is_empty(), "{what}: {findings:?}");
    }
    found
}

const PHASES: [&str; 3] = ["making", "work", "opening"];

/// Runs one phase with one fault; returns whether it was hit, the counted operations, and the outcomes.
fn run(
    phase: &str,
    seed: u64,
    target: Target,
    before: Option<(&Arc<SimDisk>, &Model)>,
) -> (bool, Counts, BTreeSet<Outcome>) {
    let what = format!("{phase}, seed {seed}, {target:?}");
    let (sim, mut model) = match before {
        Some((sim, model)) => (sim.fork(seed), model.clone()),
        None => (SimDisk::new(SimOptions { seed, ..SimOptions::default() }), Model::new()),
    };
    let mut met = Met::default();
    let is_work = phase == "work";
    // In the middle phase the fault is armed after the opening.
    let disk = Saboteur::new(&sim, (!is_work).then_some(target));
    let commits = match phase {
        "making" => 0..5,
        "work" => 60..200,
        _ => 60..100,
    };
    let db = match open(&disk) {
        Ok(db) => Some(db),
        Err(error) if is_work => panic!("{what}: {error}"),
        Err(error) => {
            met.note(&error, false);
            None
        }
    };
    let mut seen = disk.seen();
    disk.aim.lock().unwrap().target = is_work.then_some(target);
    if let Some(db) = &db {
        work(db, &mut model, commits, &mut met);
    }
    if is_work {
        seen = disk.seen();
    }
    finish(&sim, &disk, db, seen, met, (&model, target, &what))
}

/// Ends the process by a power cut and judges what it leaves.
fn finish(
    sim: &Arc<SimDisk>,
    disk: &Arc<Saboteur>,
    db: Option<Database>,
    (hit, counts): (bool, Counts),
    met: Met,
    (model, target, what): (&Model, Target, &str),
) -> (bool, Counts, BTreeSet<Outcome>) {
    disk.disarm();
    let mut outcomes = met.outcomes;
    if outcomes.contains(&Outcome::Poisoned) && !met.dead {
        if let Some(db) = &db {
            assert_sticky(db, what);
        }
    }
    disk.process.crash_by(SimDisk::power_cut);
    drop(db);
    outcomes.extend(judge(sim, model, target.kind == Kind::Rot, what));
    if outcomes.is_empty() {
        outcomes.insert(Outcome::Harmless);
    }
    // An error of the call that poisoned the database is the same event.
    if outcomes.contains(&Outcome::Poisoned) {
        outcomes.retain(|outcome| *outcome == Outcome::Poisoned || *outcome == Outcome::Named);
    }
    (hit, counts, outcomes)
}

/// The operations of a run without a fault in each phase.
fn counted(worked: (&Arc<SimDisk>, &Model)) -> [Counts; 3] {
    PHASES.map(|phase| {
        let nothing = Target { kind: Kind::Eio, class: Class::Control, asked: Asked::Rename, nth: None };
        let (hit, counts, outcomes) = run(phase, 1, nothing, (phase != "making").then_some(worked));
        assert!(!hit && outcomes == BTreeSet::from([Outcome::Harmless]), "{phase}: {outcomes:?}");
        counts
    })
}

/// The outcomes of a cell in a phase with this many matching operations.
fn cell(
    phase: &str,
    (kind, class, asked): (Kind, Class, Asked),
    fitted: u64,
    worked: (&Arc<SimDisk>, &Model),
) -> String {
    let mut outcomes = BTreeSet::new();
    let between = if matches!(kind, Kind::Slow | Kind::Cancelled) { 0 } else { fitted / 2 };
    for nth in BTreeSet::from([0, between, fitted - 1]) {
        let seeds = if kind == Kind::Torn { 1..3 } else { 1..2 };
        for seed in seeds {
            let target = Target { kind, class, asked, nth: Some(nth) };
            let (hit, _, found) = run(phase, seed, target, (phase != "making").then_some(worked));
            assert!(
                hit || seed > 1,
                "{phase} {target:?}: there are {fitted} such operations, and this one does not happen"
            );
            if std::env::var_os("CELL").is_some() {
                println!("{phase} {target:?} of {fitted}: {found:?}");
            }
            outcomes.extend(found);
        }
    }
    outcomes.into_iter().map(Outcome::letter).collect()
}

/// A database that worked and lost power, and its contents.
fn worked() -> (Arc<SimDisk>, Model) {
    let sim = SimDisk::new(SimOptions { seed: 1, ..SimOptions::default() });
    let disk = Saboteur::new(&sim, None);
    let (mut model, mut met) = (Model::new(), Met::default());
    let db = open(&disk).unwrap();
    work(&db, &mut model, 0..70, &mut met);
    assert!(met.outcomes.is_empty() && !met.dead, "{met:?}");
    // More pages than the pool holds, changed since the last checkpoint, so that the opening has to write.
    let tree = db.open_tree("t").unwrap();
    for n in 0..100u32 {
        let (key, value) = ((n * 15).to_be_bytes().to_vec(), vec![n as u8; 700]);
        db.transact(|tx| tx.put(&tree, &key, &value)).unwrap();
        model.insert(key, vec![Some(value)]);
    }
    // A page being written back, so that the opening has a page to restore.
    disk.process.crash_by(SimDisk::power_cut);
    drop(db);
    (sim, model)
}

fn table() -> String {
    let only = std::env::var("CELL").ok();
    let (sim, model) = worked();
    let counts = counted((&sim, &model));
    let mut out = String::from("| class | operation |");
    for (_, name) in Kind::ALL {
        write!(out, " {name} |").expect("a string takes all");
    }
    out.push_str("\n|---|---|");
    out.push_str(&"---|".repeat(Kind::ALL.len()));
    out.push('\n');
    let rows: Vec<_> = Class::ALL.iter().flat_map(|class| Asked::ALL.iter().map(move |asked| (class, asked))).collect();
    let done = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let row = |at: usize| {
        let &((class, class_name), (asked, asked_name)) = rows.get(at)?;
        let mut line = format!("| {class_name} | {asked_name} |");
        for (kind, kind_name) in Kind::ALL {
            let name = format!("{class_name}/{asked_name}/{kind_name}");
            if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
                write!(line, " {} |", phases(&name, (kind, *class, *asked), &counts, (&sim, &model)))
                    .expect("a string takes all");
            }
        }
        Some(line + "\n")
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get().min(8)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(line) = row(at) else { return };
                    done.lock().unwrap().insert(at, line);
                }
            });
        }
    });
    out.extend(done.into_inner().unwrap().into_values());
    out.push_str("\nn/a: ");
    for (reason, number) in REASONS.iter().zip(1..) {
        write!(out, "{}{number}: {reason}", if number == 1 { "" } else { "; " }).expect("a string takes all");
    }
    out.push_str(".\n");
    out
}

/// The text of a cell: the outcomes of each phase, or why it cannot exist.
fn phases(
    name: &str,
    (kind, class, asked): (Kind, Class, Asked),
    counts: &[Counts; 3],
    worked: (&Arc<SimDisk>, &Model),
) -> String {
    let impossible = impossible(kind, class, asked);
    if let Some(reason @ 4..=7) = impossible {
        // The operation may exist, but not with this fault.
        return format!("n/a {reason}");
    }
    let fitting = |counts: &Counts| {
        let of = |in_flight| counts.get(&(class, asked, in_flight)).copied().unwrap_or(0);
        // A synchronous call is never cancelled.
        of(true) + if kind == Kind::Cancelled { 0 } else { of(false) }
    };
    let happens = counts.iter().any(|counts| fitting(counts) > 0);
    if let Some(reason) = impossible {
        assert!(!happens, "{name} is said not to exist");
        return format!("n/a {reason}");
    }
    assert!(happens, "{name} never happens, and no reason is given");
    let found = PHASES.iter().zip(counts).map(|(phase, counts)| match fitting(counts) {
        0 => "-".to_owned(),
        fitted => cell(phase, (kind, class, asked), fitted, worked),
    });
    found.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_table_in_the_documentation_is_what_is_measured() {
    const BEGIN: &str = "<!-- fault matrix: made by tests/fault_matrix.rs -->\n";
    const END: &str = "<!-- fault matrix: end -->";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recovery.md");
    let measured = table();
    if std::env::var_os("CELL").is_some() {
        return println!("{measured}");
    }
    // The published crate has no docs directory.
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let begin = text.find(BEGIN).expect("the beginning's marker") + BEGIN.len();
    let end = text.find(END).expect("the end's marker");
    if std::env::var_os("SEAWALL_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{}{measured}{}", &text[..begin], &text[end..])).unwrap();
        return;
    }
    let differ: Vec<String> = text[begin..end]
        .lines()
        .zip(measured.lines())
        .filter(|(written, measured)| written != measured)
        .map(|(written, measured)| format!("\n  written:  {written}\n  measured: {measured}"))
        .collect();
    assert!(
        text[begin..end] == measured,
        "docs/recovery.md is out of date: see what has changed and why, then SEAWALL_WRITE_DOCS=1 cargo test -p \
         seawall --test fault_matrix{}",
        differ.concat()
    );
}
