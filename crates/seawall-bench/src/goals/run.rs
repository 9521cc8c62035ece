//! The whole run: group by group, round by round, with a record of every cell on disk as soon as it is measured.
//!
//! 1. A later run uses a record only when the same binary made it (`--resume`).
//! 2. Rows that no later group needs are removed. At the end of a run in its own directory, all are removed.
//! 3. Ctrl-C ends the child, the mounts and the run; measurements made so far stay recorded.

use super::cell::{Cell, DiskKind};
use super::disks::Disks;
use super::evaluate::{Figures, Outcome, evaluate};
use super::measure::{Bench, Measured, QUIET_WITHIN_RUN};
use super::process::ProcessError;
use super::spec::{Curve, Group, Plan, Source};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// How often a cell is measured again when other processes disturbed it.
const REPEATS_MAX: u32 = 2;
/// At most one in this many cells of the whole run is repeated: on a machine that is never quiet, repeating
/// does not help.
const ONE_REPEAT_IN: usize = 5;
/// The file of records.
pub const RECORDS: &str = "cells.json";

/// One cell, measured once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The cell.
    pub cell: Cell,
    /// Which turn, such as `commit 2`: within its group.
    pub turn: String,
    /// The result.
    pub measured: Option<Measured>,
    /// Why there is no result.
    pub error: Option<String>,
    /// How often it was measured because of disturbances; the last attempt counts.
    pub attempts: u32,
}

/// All records, and the binary that made them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Records {
    /// A checksum of the binary.
    pub binary: String,
    /// The records, in the order in which they were made.
    pub records: Vec<Record>,
}

impl Records {
    /// No records yet, for the binary at `exe`.
    ///
    /// # Errors
    /// When the binary cannot be read.
    pub fn of(exe: &Path) -> Result<Self, String> {
        let bytes = fs::read(exe).map_err(|e| format!("cannot read {}: {e}", exe.display()))?;
        Ok(Self { binary: format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)), records: Vec::new() })
    }

    /// Takes over the successful records of an earlier run of the same binary. Returns how many cells they
    /// cover.
    ///
    /// # Errors
    /// When the file holds no records, or those of another binary.
    pub fn resume(&mut self, file: &Path) -> Result<usize, String> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(e) => return Err(format!("cannot read {}: {e}", file.display())),
        };
        let earlier: Self = serde_json::from_str(&text)
            .map_err(|e| format!("{} holds no measured cells: {e}; remove it or leave --resume out", file.display()))?;
        if earlier.binary != self.binary {
            return Err(format!(
                "{} was measured by another binary: figures of two versions make no comparison; leave --resume out",
                file.display()
            ));
        }
        self.records = earlier.records;
        self.records.retain(|record| record.measured.is_some());
        Ok(self.records.len())
    }

    fn has(&self, cell: &Cell, turn: &str) -> bool {
        self.records.iter().any(|record| record.turn == turn && record.cell == *cell)
    }

    /// Replaces the file as a whole: a reader never sees a partial one.
    fn save(&self, file: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).map_err(|e| e.to_string())?;
        let beside = file.with_extension("new");
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, file))
            .map_err(|e| format!("cannot write {}: {e}; give another --out", file.display()))
    }

    /// The records of a cell in a group.
    pub fn of_cell<'r>(&'r self, group: &'r str, cell: &'r Cell) -> impl Iterator<Item = &'r Record> {
        let in_group = move |turn: &str| turn.split(' ').next() == Some(group);
        self.records.iter().filter(move |record| in_group(&record.turn) && record.cell == *cell)
    }

    /// The figures of one cell in a group.
    #[must_use]
    pub fn figures(&self, group: &str, source: &Source) -> Figures {
        let mut figures = Figures::default();
        for record in self.of_cell(group, &source.cell) {
            match &record.measured {
                Some(measured) => {
                    figures.values.extend(measured.figures.get(&source.figure));
                    figures.disturbed |= measured.disturbed();
                }
                None => figures.why.clone_from(&record.error),
            }
        }
        figures
    }
}

/// Progress reports of a run.
pub trait Listener {
    /// A cell is about to be measured: its name, cells done, all of them.
    fn at(&mut self, name: &str, done: usize, total: usize);
    /// The outcome of a goal.
    fn outcome(&mut self, outcome: &Outcome);
    /// Another message.
    fn note(&mut self, text: &str);
}

/// A run.
#[derive(Debug)]
pub struct Runner<'r> {
    /// The measurements to make.
    pub plan: &'r Plan,
    /// Seed of the order.
    pub seed: u64,
    /// Directory for rows meanwhile.
    pub base: PathBuf,
    /// Directory for records.
    pub out: PathBuf,
    /// The `seawall` command.
    pub exe: PathBuf,
}

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    /// One for each goal.
    pub outcomes: Vec<Outcome>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
}

impl Runner<'_> {
    /// Measures every cell that `records` lacks.
    ///
    /// # Errors
    /// When records cannot be written. The failure of a cell is in its record.
    pub fn run(&self, records: &mut Records, listener: &mut dyn Listener, stop: &AtomicBool) -> Result<Ran, String> {
        let disks = Disks::new(&self.base, stop)?;
        let bench = Bench { exe: self.exe.clone(), disks, stop, quiet_left: QUIET_WITHIN_RUN };
        let total = self.plan.groups.iter().map(|group| self.turns(group).len()).sum::<usize>()
            + self.plan.curves.iter().map(|curve| curve.points.len()).sum::<usize>();
        let mut work = Work {
            runner: self,
            bench,
            records,
            listener,
            done: 0,
            total,
            failed: BTreeSet::new(),
            repeats_left: total.div_ceil(ONE_REPEAT_IN),
        };
        let mut ran = Ran { outcomes: Vec::new(), interrupted: false };
        match work.all(&mut ran.outcomes) {
            Ok(()) => {}
            Err(Ended::Interrupted) => ran.interrupted = true,
            Err(Ended::Failed(why)) => return Err(why),
        }
        Ok(ran)
    }

    /// The cells of a group in the order in which they are measured, each with the name of its turn.
    fn turns(&self, group: &Group) -> Vec<(String, Cell)> {
        let around = group.around();
        let (outer, mut inner): (Vec<Cell>, Vec<Cell>) =
            group.cells().into_iter().partition(|cell| around.contains(&cell));
        let mut turns = Vec::new();
        let mut add = |turn: String, cell: &Cell| turns.push((turn, cell.clone()));
        for round in 0..group.rounds {
            if round % 2 == 0 {
                inner.shuffle(&mut Pcg64Mcg::seed_from_u64(self.seed.wrapping_add(u64::from(round))));
            } else {
                // Reverses the order of the previous round.
                inner.reverse();
            }
            outer.iter().for_each(|cell| add(format!("{} {round} before", group.id), cell));
            inner.iter().for_each(|cell| add(format!("{} {round}", group.id), cell));
            outer.iter().for_each(|cell| add(format!("{} {round} after", group.id), cell));
        }
        turns
    }
}

enum Ended {
    Interrupted,
    Failed(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

struct Work<'w> {
    runner: &'w Runner<'w>,
    bench: Bench<'w>,
    records: &'w mut Records,
    listener: &'w mut dyn Listener,
    done: usize,
    total: usize,
    /// Rows that could not be created: disk and directory.
    failed: BTreeSet<String>,
    /// How often disturbed cells may still be measured again.
    repeats_left: usize,
}

impl Work<'_> {
    fn all(&mut self, outcomes: &mut Vec<Outcome>) -> Result<(), Ended> {
        let plan = self.runner.plan;
        for (at, group) in plan.groups.iter().enumerate() {
            let turns = self.runner.turns(group);
            let ended = self.turns(&turns);
            if matches!(ended, Err(Ended::Failed(_))) {
                return ended;
            }
            if ended.is_ok() {
                for goal in &group.goals {
                    let outcome = evaluate(goal, |source| self.records.figures(&group.id, source));
                    self.listener.outcome(&outcome);
                    outcomes.push(outcome);
                }
            }
            let later = plan.groups[at + 1..].iter().flat_map(Group::cells);
            let later = later.chain(plan.curves.iter().flat_map(|c| c.points.iter().map(|(_, cell)| cell.clone())));
            self.free(&group.cells(), &later.collect::<Vec<_>>())?;
            ended?;
        }
        if let Err(ProcessError::Failed(why)) = self.bench.disks.release() {
            self.listener.note(&why);
        }
        for curve in &plan.curves {
            self.curve(curve)?;
        }
        Ok(())
    }

    /// One size after the other, so that the rows of one are removed before those of the next are created.
    fn curve(&mut self, curve: &Curve) -> Result<(), Ended> {
        let mut sizes: Vec<u64> = curve.points.iter().map(|(pools, _)| *pools).collect();
        sizes.dedup();
        for size in sizes {
            let of_size = curve.points.iter().filter(|(pools, _)| *pools == size);
            let turns: Vec<_> = of_size.map(|(_, cell)| (format!("{} 0", curve.id), cell.clone())).collect();
            let ended = self.turns(&turns);
            let cells: Vec<Cell> = turns.into_iter().map(|(_, cell)| cell).collect();
            let later = self.runner.plan.curves.iter().skip_while(|other| other.id != curve.id).skip(1);
            let later: Vec<Cell> = later.flat_map(|c| c.points.iter().map(|(_, cell)| cell.clone())).collect();
            self.free(&cells, &later)?;
            ended?;
        }
        Ok(())
    }

    fn turns(&mut self, turns: &[(String, Cell)]) -> Result<(), Ended> {
        for (turn, cell) in turns {
            if !self.records.has(cell, turn) {
                self.listener.at(&cell.name(), self.done, self.total);
                let record = self.turn(turn, cell)?;
                if let Some(error) = &record.error {
                    self.listener.note(&format!("{}: {error}", cell.name()));
                }
                self.records.records.push(record);
                self.records.save(&self.runner.out.join(RECORDS))?;
            }
            self.done += 1;
        }
        Ok(())
    }

    /// Measures a cell until no other process disturbs it, or the attempts are used up.
    fn turn(&mut self, turn: &str, cell: &Cell) -> Result<Record, Ended> {
        let mut record = Record { cell: cell.clone(), turn: turn.into(), measured: None, error: None, attempts: 0 };
        let rows = format!("{}{}", cell.disk.prefix(), cell.data());
        if self.failed.contains(&rows) {
            record.error = Some("its rows could not be made".into());
            return Ok(record);
        }
        if let Err(error) = self.bench.prepare(cell) {
            self.failed.insert(rows);
            record.error = Some(format!("loading: {}", words(error)?));
            return Ok(record);
        }
        // A cell of minutes is too expensive to repeat, and the loop device's own work counts as that of
        // others.
        let repeats = if cell.seconds > 60.0 || cell.disk == DiskKind::FewIops { 0 } else { REPEATS_MAX };
        while record.attempts <= repeats {
            record.attempts += 1;
            match self.bench.measure(cell) {
                Ok(measured) => {
                    let disturbed = measured.disturbed();
                    record.measured = Some(measured);
                    if !disturbed || self.repeats_left == 0 {
                        break;
                    }
                    self.repeats_left -= usize::from(record.attempts <= repeats);
                }
                Err(error) => {
                    let why = words(error)?;
                    // The kernel does not report a kill for lack of memory to the process.
                    let killed = cell.memory_mib.filter(|_| why.contains("SIGKILL"));
                    let limit =
                        killed.map(|mib| format!("killed, probably for more memory than its limit of {mib} MiB: "));
                    record.error = Some(limit.unwrap_or_default() + &why);
                    break;
                }
            }
        }
        if record.measured.is_some() {
            record.error = None;
        }
        Ok(record)
    }

    /// Removes the rows of `cells` that no later cell needs.
    fn free(&mut self, cells: &[Cell], later: &[Cell]) -> Result<(), Ended> {
        // Plain and slow-flush cells share a directory; the limited disk has its own.
        let rows = |cell: &Cell| (cell.disk == DiskKind::FewIops, cell.data());
        let needed: BTreeSet<_> = later.iter().map(rows).collect();
        for cell in cells.iter().filter(|cell| !needed.contains(&rows(cell))) {
            // For a disk that could not be created there is nothing to remove.
            let Ok(dir) = self.bench.disks.dir(cell) else { continue };
            if let Err(error) = self.bench.disks.remove(&dir) {
                self.listener.note(&words(error)?);
            }
        }
        Ok(())
    }
}

/// The error in words; Ctrl-C ends the run.
fn words(error: ProcessError) -> Result<String, Ended> {
    match error {
        ProcessError::Interrupted => Err(Ended::Interrupted),
        ProcessError::Failed(why) => Ok(why),
    }
}
