//! One seed: a disk, a configuration, and rounds of work, crash, recovery and judgement.
//!
//! 1. A seed determines everything; the rig runs on one thread, and background work runs only when the rig
//!    calls a step.
//! 2. The answer of an operation counts even if the process died meanwhile: an acknowledgement is a promise.
//! 3. After an opening, everything found has been made durable: a later crash may not lose it.
//! 4. Every wrong answer is a failure, and so is every unexplained error.
//!
//! ```text
//!   open ──(crash: again, at most 3 times)──> judge: a permitted prefix of the commits? ──> work ──> crash, kill, close, or poisoned ──> open
//! ```
//!
//! Damage by a disk that breaks its promise ([`Mode::Rot`], [`Mode::Wild`]) must be *reported* by an error of
//! the engine or be *harmless*: then every answer is judged as in the other modes. Damage that is neither
//! (*undetectable*) is accepted only if the recorded faults of the disk explain it, byte by byte (`damage`):
//! an old but valid page was read, or the log ends at the damage and nothing after it proves that more was
//! flushed.

mod opening;

use crate::api::{
    Background, Database, Durability, Env, Error, Isolation, Options, OwnedCursor, Savepoint, Transaction, Tree,
    TxOptions,
};
use crate::support::dice::{Choice, Dice};
use crate::support::dying_process::{DyingProcess, End};
use crate::support::model::{Changes, Event, Key, Model, Promise, Seq, State, Uid, Value, show};
use crate::support::tally::Tally;
use crate::support::workload::outside::{Copied, InPlace};
use crate::support::workload::temporary::Temporary;
use seawall_io::{Disk as _, Op, OpenHow};
use seawall_sim::{Fault, SimDisk, SimOptions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, Range};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const DIR: &str = "/db";
pub(crate) const LOG_DIR: &str = "/log";
const OPS_KEPT: usize = 60;
/// The flush methods.
pub(crate) const METHODS: [&str; 5] = ["fsync", "o_dsync", "o_direct", "o_direct_no_fsync", "o_direct_dsync"];

/// The faults that a seed may inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Crashes only.
    Crashes,
    /// Also EIO, ENOSPC and short transfers.
    Faults,
    /// Bits of flushed writes flip on the medium, during work and while the database is closed.
    #[allow(dead_code)] // the rig's own tests have honest disks
    Rot,
    /// Writes are acknowledged and flushed, but are lost or reach another place of their file.
    #[allow(dead_code)]
    Wild,
}

impl Mode {
    /// Whether the disk breaks its promise.
    pub(crate) fn is_illegal(self) -> bool {
        matches!(self, Self::Rot | Self::Wild)
    }
}

/// Why a round ends.
#[derive(Debug)]
pub(crate) enum Stop {
    Dead,
    /// The engine gave up after an I/O error, as it must.
    Poisoned,
    /// The engine reported damage, as it must.
    Named(String),
    /// Undetectable damage had a visible effect.
    Undetectable(Undetectable),
    Failed(String),
}

/// Why damage could not be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undetectable {
    /// An old but valid page was read.
    OldPage,
    /// The log ends early, at the damage, and nothing proves that it was longer.
    EndOfLog,
}

pub(crate) type Step<T = ()> = Result<T, Stop>;

pub(crate) fn fail<T>(why: impl Into<String>) -> Step<T> {
    Err(Stop::Failed(why.into()))
}

/// The errors that an operation may answer with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct May {
    pub(crate) lock: bool,
    pub(crate) conflict: bool,
    pub(crate) no_tree: bool,
}

/// An open transaction and its state in the model.
pub(crate) struct Open {
    pub(crate) number: u64,
    pub(crate) tx: Option<Transaction>,
    pub(crate) options: TxOptions,
    /// Repeatable read: set by the first read without a lock.
    pub(crate) snapshot: Option<Seq>,
    pub(crate) own: Changes,
    pub(crate) savepoints: Vec<(Savepoint, Changes)>,
    /// The ranges read by a serializable transaction.
    pub(crate) ranges: Vec<(Uid, Bound<Key>, Bound<Key>)>,
    /// Rows locked by reads; whether exclusively.
    pub(crate) points: Vec<(Uid, Key, bool)>,
    /// Trees in which it wrote or locked rows.
    pub(crate) used: BTreeSet<Uid>,
}

/// One life of the engine.
pub(crate) struct Live {
    pub(crate) process: Arc<DyingProcess>,
    pub(crate) txs: Vec<Open>,
    /// Prepared in place, and neither committed nor rolled back.
    pub(crate) in_place: Vec<InPlace>,
    /// The numbers of events that callbacks reported as durable.
    pub(crate) told: Arc<Mutex<Vec<Seq>>>,
    /// A backup is in progress.
    pub(crate) copies: bool,
    /// Cursors, which outlive transactions; each with its tree and current key.
    pub(crate) cursors: Vec<(OwnedCursor, Option<(Uid, Key)>)>,
    /// Temporary trees, which are independent of transactions.
    pub(crate) temporaries: Vec<Temporary>,
    pub(crate) trees: BTreeMap<Uid, Tree>,
    /// Trees built from rows: an older snapshot refuses them.
    pub(crate) built: BTreeSet<Uid>,
    /// Transactions that never ended may still be waiting for their rollback, and hold their locks.
    pub(crate) losers: bool,
    /// Transactions of a shrinking have written rows again: older snapshots conflict with them.
    pub(crate) rewritten: bool,
    pub(crate) db: Database,
}

pub(crate) struct Rig {
    pub(crate) dice: Dice,
    pub(crate) mode: Mode,
    pub(crate) sim: Arc<SimDisk>,
    pub(crate) model: Model,
    pub(crate) tally: Tally,
    pub(crate) said: VecDeque<String>,
    pub(crate) aloud: bool,
    /// Faults are being injected now.
    pub(crate) faulty: bool,
    /// The disk is so small that it fills up.
    pub(crate) full: bool,
    /// Fixed when the database is created.
    pub(crate) fixed: Vec<(&'static str, String)>,
    pub(crate) base: Options,
    pub(crate) page_bytes: u64,
    pub(crate) durability: Durability,
    flush_interval: Duration,
    log_dir: bool,
    /// The log's ring is in a file, mostly.
    ring: bool,
    pub(crate) segment_bytes: u64,
    /// A power cut, or an I/O error that acts like one, has happened since the last judgement.
    powerless: bool,
    pub(crate) names: u64,
    pub(crate) stamps: u64,
    rounds: u64,
    steps: u64,
    pub(crate) compactions: u64,
    pub(crate) bursts: u64,
    /// The weight of taking rows from an end of a tree among the operations.
    pub(crate) pops: u64,
    pub(crate) kept: bool,
    pub(crate) newer: bool,
    pub(crate) wider: bool,
    /// An interrupt is pending for the current transaction.
    pub(crate) interrupted: bool,
    /// Temporary trees are used together with everything else.
    pub(crate) temporaries: bool,
    /// The transactions durably in the outside log: they must be committed.
    pub(crate) decided: BTreeSet<Vec<u8>>,
    /// Finished backups and their contents.
    pub(crate) copied: Vec<Copied>,
    pub(crate) copies: u64,
    /// Additions to the rig draw from this generator, so that kept seeds stay unchanged.
    pub(crate) beside: Dice,
    /// Operations of the disk before and after the last opening.
    pub(crate) opening: (u64, u64),
    /// The end of the log when it was last queried.
    pub(crate) head: u64,
    /// A bit flips after this many steps.
    rots_after: Option<u64>,
    /// Decides on faults during openings, if there are any.
    openings_fail: Option<Dice>,
    /// The ranges of the log, by position, that differed from what was written when it was opened, since the
    /// last judgement.
    pub(crate) log_damage: Vec<Range<u64>>,
}

/// From this seed on rows are taken from the ends of trees. Earlier seeds stay unchanged.
const POPS_FROM: u64 = 100_000;

/// From this seed on openings meet faults, and are repeated without a restart of the machine. Earlier seeds stay
/// unchanged.
const OPENINGS_FAIL_FROM: u64 = 182_913_000_000;

/// A seventh of the seeds has the log's ring in a file; none of those that were kept before it could be.
const RINGS_AT: u64 = 1;

/// A third of the seeds has temporary trees; none of those that were kept before there were any.
const TEMPORARIES_AT: u64 = 2;

/// The amount of work of one seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rounds: u64,
    pub(crate) steps: u64,
    /// The weight of compactions among the operations. 0 keeps seeds older than compactions unchanged.
    pub(crate) compactions: u64,
    /// The weight of bursts of deferred commits, with single steps of background work between them, among the
    /// operations. 0 keeps seeds older than bursts unchanged.
    pub(crate) bursts: u64,
    /// A kept seed: a crash tears no write, and no second fault is injected.
    pub(crate) kept: bool,
    /// Whether transactions are interrupted, and whether backups are incremental and also run on a disk that
    /// fills up. False keeps older seeds unchanged.
    pub(crate) newer: bool,
    /// Whether there are large pages, batches of puts, unique prefixes, names of prepared transactions that come
    /// again, and more options that change while the database is open. False keeps older seeds unchanged.
    pub(crate) wider: bool,
}

/// Runs one seed. Returns its counts, and a hash of all disk operations and their answers.
///
/// # Errors
/// What went wrong, and the last operations.
pub(crate) fn run(seed: u64, mode: Mode, size: Size, base: &Options, aloud: bool) -> Result<(Tally, u64), String> {
    let mut rig = Rig::new(seed, mode, size, base, aloud);
    let done = rig.rounds();
    rig.count_damage();
    match done {
        Ok(()) => Ok((rig.tally, rig.sim.trace().hash())),
        Err(why) => {
            let said: Vec<String> = rig.said.into();
            Err(format!("{why}\n  seed {seed}, {mode:?}; last operations:\n    {}", said.join("\n    ")))
        }
    }
}

impl Rig {
    fn new(seed: u64, mode: Mode, size: Size, base: &Options, aloud: bool) -> Self {
        let mut dice = Dice::new(seed);
        let sector_bytes = dice.pick(&[512, 512, 4096]);
        let physical = dice.pick(&[sector_bytes, 4096]);
        let full = mode == Mode::Faults && dice.percent(30);
        // Pages are written once where the simulated device writes them whole, in half of these when it is asked to.
        // (A full disk has no room for a doublewrite file that another way of flushing needs.)
        let writes = Choice::AtomicWrites.of(seed);
        let once = size.newer && !full && writes / 11 % 3 == 1;
        let refuses = Choice::Refusals.later(seed) % 8;
        let sim = SimDisk::new(SimOptions {
            seed: dice.next(),
            refuses_direct: !once && refuses & 3 == 1,
            // Without allocation a full disk is only found by the write of a page, which poisons.
            refuses_allocation: !full && refuses & 6 == 2,
            sector_bytes,
            physical_sector_bytes: physical,
            atomic_write_bytes: if once && writes / 33 % 2 == 1 { 16 << 10 } else { 0 },
            capacity_bytes: if full { (8 + dice.below(8)) << 20 } else { 1 << 30 },
            trace_entries_max: 200,
            ..SimOptions::default()
        });
        let mut page_bytes = dice.pick(&[4096, 4096, 8192, 16384]);
        let mut segment_bytes: u64 = dice.pick(&[64 << 10, 128 << 10, 256 << 10]);
        if size.wider && dice.percent(10) {
            page_bytes = 32768;
        }
        if size.bursts > 0 {
            // Segments end as often as possible.
            (page_bytes, segment_bytes) = (4096, 64 << 10);
        }
        // Half of the seeds clean early, as all seeds did when the first ones were kept.
        let (age, dirty) = if size.kept || Choice::EarlyCleaning.of(seed) % 2 == 0 { (25, 45) } else { (75, 90) };
        // A third of the seeds has a share that adapts, the others a fixed one.
        let share = [(1, 50), (20, 20), (60, 60)][(Choice::DeferredShare.of(seed) / 2 % 3) as usize];
        let (least, most) = if size.kept { (0, 0) } else { share };
        let fixed = vec![
            ("deferred_percent_min", least.to_string()),
            ("deferred_percent", most.to_string()),
            ("max_checkpoint_age_percent", age.to_string()),
            ("max_dirty_percent", dirty.to_string()),
            ("page_size", page_bytes.to_string()),
            ("torn_page_protection", if once { "auto" } else { "doublewrite" }.to_string()),
            ("log_segment_size", segment_bytes.to_string()),
            ("data_initial_size", "1M".to_string()),
        ];
        let log_dir = dice.percent(25);
        let (durability, flush_interval) = (Durability::Flushed, Duration::from_millis(1));
        let names = 0;
        let Size { rounds, steps, compactions, bursts, kept, newer, wider } = size;
        Self {
            dice,
            mode,
            sim,
            model: Model::default(),
            tally: Tally::default(),
            said: VecDeque::new(),
            aloud,
            faulty: false,
            full,
            fixed,
            base: base.clone(),
            page_bytes,
            durability,
            flush_interval,
            log_dir,
            ring: size.newer && Choice::Ring.of(seed) % 7 == RINGS_AT,
            segment_bytes,
            powerless: false,
            names,
            stamps: 0,
            rounds,
            steps,
            compactions,
            bursts,
            pops: if seed >= POPS_FROM { 4 } else { 0 },
            openings_fail: (mode == Mode::Faults && seed >= OPENINGS_FAIL_FROM).then(|| Dice::new(seed ^ 0x09e1_1f00)),
            kept,
            newer,
            wider,
            interrupted: false,
            temporaries: !kept && !mode.is_illegal() && Choice::Temporaries.of(seed) % 3 == TEMPORARIES_AT,
            decided: BTreeSet::new(),
            copied: Vec::new(),
            copies: 0,
            beside: Dice::new(seed ^ 0xbe51_de00),
            opening: (0, 0),
            head: 0,
            rots_after: None,
            log_damage: Vec::new(),
        }
    }

    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        let what = what();
        if self.aloud {
            println!("{what}");
        }
        if self.said.len() == OPS_KEPT {
            self.said.pop_front();
        }
        self.said.push_back(what);
    }

    /// Options that may differ from one opening to the next.
    fn options(&mut self) -> Result<Options, String> {
        // From one opening to the next, the ring is in memory, in the log's directory or in another.
        let ring = if self.ring { self.beside.pick(&["", ".", "/ring", "/ring"]) } else { "" };
        let dice = &mut self.dice;
        self.durability =
            dice.weighted(&[(5, Durability::Flushed), (1, Durability::Written), (1, Durability::Deferred)]);
        let level = match self.durability {
            Durability::Flushed => "flushed",
            Durability::Written => "written",
            Durability::Deferred => "deferred",
        };
        self.flush_interval = Duration::from_millis(dice.pick(&[1, 10, 100, 1000]));
        if self.bursts > 0 {
            self.flush_interval = self.flush_interval.min(Duration::from_millis(10));
        }
        let pool = (self.page_bytes * dice.pick(&[64, 64, 80, 128, 512])).max(256 << 10);
        let mut pairs = self.fixed.clone();
        pairs.extend([
            ("pool_size", pool.to_string()),
            ("data_growth_step", dice.pick(&["1M", "2M"]).to_string()),
            ("data_flush_method", dice.pick(&METHODS).to_string()),
            ("log_flush_method", dice.pick(&METHODS).to_string()),
            // A simulated file does not report its alignment, so direct I/O uses blocks of 4 KiB.
            ("log_block_bytes", (4096 << dice.below(3)).to_string()),
            ("log_capacity", ((1 << 20) + self.segment_bytes * dice.pick(&[1, 2, 4, 12])).to_string()),
            ("log_buffer_size", "1M".into()),
            ("log_ring_dir", ring.into()),
            ("durability", level.into()),
            ("flush_interval", format!("{}ms", self.flush_interval.as_millis())),
            ("preallocate", dice.pick(&["written", "written", "off"]).to_string()),
        ]);
        if self.log_dir {
            pairs.push(("log_dir", LOG_DIR.into()));
        }
        let mut options = self.base.clone();
        for (name, value) in &pairs {
            options.set(name, value).map_err(|error| format!("option {name} = {value} is refused: {error}"))?;
        }
        self.say(|| {
            let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("open {}", pairs.join(" "))
        });
        Ok(options)
    }

    fn rounds(&mut self) -> Result<(), String> {
        let rounds = 1 + self.dice.below(self.rounds) + if self.mode.is_illegal() { 2 } else { 0 };
        for round in 0..=rounds {
            let last = round == rounds;
            if self.mode == Mode::Wild && self.beside.percent(if self.is_damaged() { 20 } else { 60 }) {
                self.lose_a_write();
            }
            let Some(mut live) = self.open(last)? else { return Ok(()) };
            let mut stop = self.judge_opening(&mut live).err();
            if stop.is_none() && !last {
                self.inject();
                stop = self.work(&mut live).err();
            }
            let stop = self.excused(stop);
            if !self.end(live, stop, last)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The age up to which unflushed commits may be lost: the interval, and as much again for the flush
    /// itself and the disk.
    fn window(&self) -> Duration {
        2 * self.flush_interval + Duration::from_secs(1)
    }

    pub(crate) fn check(&mut self, live: &Live) -> Step {
        // A page that the disk temporarily cannot read is rightly reported as unreadable.
        let refused = |finding: &String| self.mode == Mode::Faults && finding.contains("(os error ");
        let found = crate::api::check(&live.db);
        match found.map(|all| all.into_iter().filter(|one| !refused(one)).collect::<Vec<_>>()) {
            Ok(findings) if findings.is_empty() => self.alive(live),
            Ok(findings) if self.is_damaged() => Err(Stop::Named(format!("{findings:?}"))),
            Ok(findings) if !live.process.is_dead() => fail(format!("check finds {findings:?}")),
            Ok(_) => Err(Stop::Dead),
            Err(error) => self.explained(live, Some(error), May::default()),
        }
    }

    pub(crate) fn alive(&self, live: &Live) -> Step {
        if live.process.is_dead() { Err(Stop::Dead) } else { Ok(()) }
    }

    pub(crate) fn read_all(&mut self, live: &mut Live) -> Step<State> {
        let names = live.db.trees();
        let names = self.answer(live, names, May::default())?;
        let options = TxOptions { isolation: Isolation::RepeatableRead, ..TxOptions::default() };
        let begun = live.db.begin_with(options);
        let tx = self.answer(live, begun, May::default())?;
        let mut state = State::default();
        for name in names {
            let tree = tx.open_tree(&name);
            let tree = self.answer(live, tree, May::default())?;
            let mut rows = BTreeMap::new();
            let mut before: Option<Key> = None;
            for row in tx.range::<Key>(&tree, ..) {
                let (key, value) = self.answer(live, row, May::default())?;
                if before.as_ref().is_some_and(|before| *before >= key) {
                    return fail(format!(
                        "a scan of {name} goes from {} to {}",
                        show(&before.expect("it is")),
                        show(&key)
                    ));
                }
                if self.mode.is_illegal() && !genuine(&value) {
                    return fail(format!("{name} {} holds {}, which was never written", show(&key), show(&value)));
                }
                before = Some(key.clone());
                rows.insert(key, Value::from(value));
            }
            state.trees.insert(name, rows);
        }
        state.prepared = live.db.prepared().into_iter().map(|xid| xid.0).collect();
        Ok(state)
    }

    /// The answer; or why the round ends; or that the error is unexplained.
    pub(crate) fn answer<T>(&mut self, live: &Live, answer: Result<T, Error>, may: May) -> Step<T> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let text = format!("{error}");
                self.explained(live, Some(error), may)?;
                // The operation failed for a known reason: the caller needs an answer and gets none, but the
                // run continues elsewhere.
                Err(if self.faulty || self.full { Stop::Poisoned } else { Stop::Failed(format!("unexpected: {text}")) })
            }
        }
    }

    /// Whether an error is permitted. `Ok`: the operation failed legally, and the run continues.
    pub(crate) fn explained(&mut self, live: &Live, error: Option<Error>, may: May) -> Step {
        let Some(error) = error else { return self.alive(live) };
        if live.process.is_dead() {
            return Err(Stop::Dead);
        }
        self.say(|| format!("    -> {error}"));
        if self.names_damage(&error) {
            return Err(Stop::Named(error.to_string()));
        }
        match error {
            Error::LockTimeout { .. } | Error::Deadlock { .. } if may.lock => {
                self.tally.conflicts += 1;
                Ok(())
            }
            Error::Interrupted { .. } if self.interrupted => {
                self.tally.interrupted += 1;
                Ok(())
            }
            Error::WriteConflict { .. } if may.conflict || live.rewritten => {
                self.tally.conflicts += 1;
                Ok(())
            }
            // Too new: built by a transaction that was prepared, found by an opening, and committed after the
            // snapshot was taken.
            Error::TreeDropped { .. } | Error::NoSuchTree { .. } | Error::TreeTooNew { .. } if may.no_tree => Ok(()),
            Error::Poisoned { .. } | Error::OutcomeUnknown { .. } if self.faulty => Err(Stop::Poisoned),
            Error::NoSpace { .. } | Error::ReadOnly { .. } if self.faulty || self.full => Ok(()),
            // For lack of space a change was neither done nor undone.
            Error::TransactionEnded { .. } if self.faulty || self.full => Ok(()),
            // A disk that was full during the backup may have space again when its next step reports the
            // error.
            Error::BackupTooSlow { disk_full: true, .. } if self.mode == Mode::Faults => Ok(()),
            // The disk was full when its base should have been recorded.
            Error::BadBackup { why, .. } if self.mode == Mode::Faults && why.contains("no record of it") => Ok(()),
            Error::Io(_) if self.faulty => Ok(()),
            error => fail(format!("unexpected error: {error} ({error:?})")),
        }
    }

    /// Commits or adds another event: records the answer with its promise. False: it failed and changed
    /// nothing.
    pub(crate) fn file(
        &mut self,
        live: &Live,
        event: Event,
        level: Durability,
        asked: Duration,
        answer: Result<(), Error>,
    ) -> Step<bool> {
        let promise = match level {
            Durability::Flushed => Promise::Flushed,
            Durability::Written => Promise::Written,
            Durability::Deferred => Promise::Deferred,
        };
        match answer {
            Ok(()) => {
                self.tally.commits += 1;
                self.model.push(event, promise, asked, self.sim.now());
                self.note_head(live);
                self.alive(live)?;
                Ok(true)
            }
            Err(error) => {
                if live.process.is_dead() || matches!(error, Error::OutcomeUnknown { .. }) {
                    self.model.push(event, Promise::Nothing, asked, self.sim.now());
                    self.note_head(live);
                }
                self.explained(live, Some(error), May { lock: true, conflict: true, no_tree: false })?;
                Ok(false)
            }
        }
    }

    /// The faults of this round.
    fn inject(&mut self) {
        match self.mode {
            Mode::Wild if !self.is_damaged() || self.beside.percent(50) => self.lose_a_write(),
            Mode::Rot if self.beside.percent(70) => self.rots_after = Some(self.beside.log_uniform(self.steps / 4)),
            _ => {}
        }
        self.faulty = self.mode == Mode::Faults && self.dice.percent(70);
        if self.mode == Mode::Faults && !self.kept && self.beside.percent(50) {
            // A failed flush of the log: rare among all operations, and essential for a database to handle.
            let file = self.beside.pick(&["redo.????????????????", "redo.????????????????", "data", "doublewrite"]);
            let nth = self.beside.log_uniform(60);
            self.say(|| format!("  the {nth}th flush of {file} will fail"));
            self.sim.inject(Fault::eio().on(Op::Sync).named(file).nth(nth).once());
            self.faulty = true;
            return;
        }
        if !self.faulty {
            return;
        }
        let op = self.dice.pick(&[Op::Write, Op::DurableWrite, Op::Sync, Op::Read, Op::Grow, Op::Directory, Op::Open]);
        let rare = self.dice.pick(&[0.05, 0.01, 0.002]);
        let fault = match self.dice.below(4) {
            0 => Fault::eio().on(op).probability(rare),
            1 => Fault::enospc().on(self.dice.pick(&[Op::Grow, Op::Write, Op::Open])).probability(rare),
            2 => Fault::eio().on(op).nth(self.dice.log_uniform(500)).once(),
            _ => Fault::short().probability(0.2),
        };
        self.say(|| format!("  faults from now on: {fault:?}"));
        self.sim.inject(fault);
    }

    /// No opening leaves files of temporary trees, whose names a power cut may have brought back.
    fn nothing_temporary_is_left(&self) -> Result<(), String> {
        if !self.temporaries || self.mode != Mode::Crashes {
            return Ok(());
        }
        let names = self.sim.list(DIR.as_ref()).map_err(|error| error.to_string())?;
        match names.iter().find(|name| name.to_string_lossy().contains("temporary")) {
            Some(name) => Err(format!("{} was left by the opening", name.display())),
            None => Ok(()),
        }
    }

    fn work(&mut self, live: &mut Live) -> Step {
        let steps = self.dice.log_uniform(self.steps);
        for step in 0..steps {
            self.tally.ops += 1;
            if self.rots_after == Some(step) {
                self.flip_a_bit();
            }
            self.step(live)?;
        }
        if !self.kept && self.beside.percent(25) {
            return self.dies_undoing(live);
        }
        Ok(())
    }

    /// Rolls back a transaction of its own, which the model need not know, and dies during the write of its
    /// log: a rollback logs one step after the other, and the log may end after any of them.
    fn dies_undoing(&mut self, live: &mut Live) -> Step {
        let free: Vec<Uid> = live.trees.keys().copied().collect();
        if free.is_empty() {
            return Ok(());
        }
        let uid = self.beside.pick(&free);
        let rows = self.beside.log_uniform(200);
        let len = self.beside.pick(&[0, 0, 10, 100]);
        self.say(|| format!("{rows} rows are inserted in tree {uid} and rolled back, and the log is written"));
        let begun = live.db.begin_with(TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() });
        let Ok(mut tx) = begun else { return self.alive(live) };
        for row in 0..rows {
            // The tree may have been dropped, or be locked by another transaction.
            if tx.insert(&live.trees[&uid], format!("~{row}").as_bytes(), &value(row, len)).is_err() {
                break;
            }
        }
        if self.beside.percent(50) {
            // So that the next group contains only the rollback.
            let flushed = live.db.checkpoint();
            self.explained(live, flushed.err(), May::default())?;
        }
        let rolled_back = tx.rollback();
        self.explained(live, rolled_back.err(), May::default())?;
        live.process.dies_after(0);
        let written = live.db.checkpoint();
        self.explained(live, written.err(), May::default())
    }

    /// Ends a life of the engine. False: the seed is over.
    fn end(&mut self, mut live: Live, stop: Option<Stop>, last: bool) -> Result<bool, String> {
        self.sim.clear_faults();
        self.faulty = false;
        self.hear(&live);
        self.tally.deferred += crate::api::pages_deferred(&live.db);
        let goes_on = match stop {
            Some(Stop::Failed(why)) => return Err(why),
            Some(Stop::Named(what)) => {
                self.say(|| format!("  named: {what}"));
                self.named();
                false
            }
            Some(Stop::Undetectable(why)) => {
                self.undetectable(why);
                false
            }
            Some(Stop::Poisoned) => {
                self.say(|| "  poisoned: closed and opened again".into());
                self.tally.poisoned += 1;
                // Unflushed writes may be lost, as after a power cut.
                self.powerless = true;
                live.txs.clear();
                live.in_place.clear();
                drop(live.db);
                return Ok(true);
            }
            Some(Stop::Dead) => true,
            None if last || self.dice.percent(25) => {
                let Live { db, txs, in_place, process, .. } = live;
                let shuts = !self.kept && self.beside.percent(50);
                self.say(|| if shuts { "shut down".into() } else { "close".into() });
                drop((txs, in_place));
                let closed = if shuts {
                    self.tally.shutdowns += 1;
                    crate::api::shut_down(&db)
                } else {
                    db.close()
                };
                match closed {
                    Ok(()) => self.model.log.iter_mut().for_each(|logged| logged.promise = logged.promise.kept()),
                    Err(_) if process.is_dead() => self.crashed_of(&process),
                    Err(error) if self.names_damage(&error) => {
                        self.say(|| format!("  named: {error}"));
                        self.named();
                        return Ok(false);
                    }
                    Err(error) if self.mode == Mode::Faults => {
                        self.say(|| format!("    -> {error}"));
                        self.powerless = true;
                    }
                    Err(error) => {
                        let failed = Stop::Failed(format!("it does not close: {error}"));
                        let Some(Stop::Failed(why)) = self.excused(Some(failed)) else { return Ok(false) };
                        return Err(why);
                    }
                }
                self.rot();
                return Ok(true);
            }
            None => {
                live.process.dies_now();
                true
            }
        };
        if goes_on {
            self.crashed_of(&live.process);
        }
        // The dead engine cleans up on a disk that fails every call; it must not panic.
        live.process.dies_now();
        live.txs.clear();
        live.in_place.clear();
        drop(live.db);
        if goes_on {
            self.rot();
        }
        Ok(goes_on)
    }

    fn crashed_of(&mut self, process: &DyingProcess) {
        let how = process.how();
        self.say(|| format!("{how:?}"));
        self.crashed(how);
    }

    /// A bit flips while the database is closed.
    fn rot(&mut self) {
        self.rots_after = None;
        let percent = match (self.mode, self.is_damaged()) {
            (Mode::Rot, false) => 80,
            (Mode::Rot, true) => 30,
            // The write chosen for loss has not happened.
            (Mode::Wild, false) => 30,
            _ => 0,
        };
        if percent > 0 && self.beside.percent(percent) {
            self.flip_a_bit();
        }
    }
}

impl Promise {
    /// After a clean end all acknowledged commits are flushed.
    fn kept(self) -> Self {
        if self == Self::Nothing { self } else { Self::Flushed }
    }
}

/// A value that identifies itself: a stamp, and the rest follows from it. Two of three values are mostly alike, counted
/// from their ends.
pub(crate) fn value(stamp: u64, len: usize) -> Value {
    const WORD: usize = size_of::<u64>();
    let mixed = |word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ (word >> 7);
    let is_whole = stamp % 3 == 0;
    let mut bytes = vec![0; len];
    for (from_end, word) in bytes.rchunks_mut(WORD).enumerate() {
        let own = is_whole || mixed(stamp ^ from_end as u64) % 16 == 0;
        let filled = mixed((from_end as u64 + 1).wrapping_add(if own { mixed(stamp) } else { 0 }));
        let width = word.len();
        word.copy_from_slice(&filled.to_le_bytes()[..width]);
    }
    let width = len.min(WORD);
    bytes[..width].copy_from_slice(&stamp.to_le_bytes()[..width]);
    bytes.into()
}

/// Whether the rig may have written this.
pub(crate) fn genuine(bytes: &[u8]) -> bool {
    match bytes.first_chunk::<8>() {
        Some(stamp) => *value(u64::from_le_bytes(*stamp), bytes.len()) == *bytes,
        None => true,
    }
}
