//! The whole run: group by group, round by round, with a record of every cell on disk as soon as it is measured.
//!
//! 1. Rows that no later group needs are removed. At the end of a run in its own directory, all are removed.
//! 2. Ctrl-C ends the child, the mounts and the run; measurements made so far stay recorded.

use super::evaluate::{Outcome, evaluate};
use super::measure::Bench;
use super::plan::{Cell, DiskKind, Group, Plan};
use super::records::{Record, Records};
use crate::run::data_dir::remove;
use crate::store::{Error, Result};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// At most one in this many cells of the whole run is measured again because other processes disturbed it: on
/// a machine that is never quiet, repeating does not help.
const ONE_REPEAT_IN: usize = 5;
/// A cell that takes longer than this is not repeated.
const REPEAT_WITHIN: Duration = Duration::from_secs(60);

/// Progress reports of a run.
pub trait Listener {
    /// A cell is about to be measured: its name, the number of cells done, the number of all cells.
    fn at(&mut self, name: &str, done: usize, total: usize);
    /// The outcome of a goal.
    fn outcome(&mut self, outcome: &Outcome);
    /// Another message.
    fn note(&mut self, text: &str);
}

/// Measures every cell of `plan` that `records` lacks; `seed` decides their order. Returns an outcome for each goal,
/// and whether Ctrl-C ended the run.
///
/// # Errors
/// When records cannot be written. The failure of a cell is in its record.
pub fn run(
    plan: &Plan,
    seed: u64,
    bench: Bench<'_>,
    records: &mut Records,
    listener: &mut dyn Listener,
) -> Result<(Vec<Outcome>, bool)> {
    let total = plan.groups.iter().map(|group| turns(seed, group).len()).sum::<usize>();
    let (failed, repeats_left) = (BTreeSet::new(), total.div_ceil(ONE_REPEAT_IN));
    let mut run = Run { plan, seed, bench, records, listener, done: 0, total, failed, repeats_left };
    let mut outcomes = Vec::new();
    match run.all(&mut outcomes) {
        Ok(()) => Ok((outcomes, false)),
        Err(Error::Interrupted) => Ok((outcomes, true)),
        Err(why) => Err(why),
    }
}

/// The cells of a group in the order in which they are measured, each with the name of its turn.
pub(super) fn turns(seed: u64, group: &Group) -> Vec<(String, Cell)> {
    let (outer, mut inner): (Vec<Cell>, Vec<Cell>) = group.cells().into_iter().partition(|cell| group.is_around(cell));
    let mut turns = Vec::new();
    for round in 0..group.rounds {
        if round % 2 == 0 {
            inner.shuffle(&mut Pcg64Mcg::seed_from_u64(seed.wrapping_add(u64::from(round))));
        } else {
            // Reverses the order of the previous round.
            inner.reverse();
        }
        turns.extend(outer.iter().map(|cell| (format!("{round} before"), cell.clone())));
        turns.extend(inner.iter().map(|cell| (round.to_string(), cell.clone())));
        turns.extend(outer.iter().map(|cell| (format!("{round} after"), cell.clone())));
    }
    turns
}

struct Run<'r> {
    plan: &'r Plan,
    seed: u64,
    bench: Bench<'r>,
    records: &'r mut Records,
    listener: &'r mut dyn Listener,
    done: usize,
    total: usize,
    /// Rows that could not be created.
    failed: BTreeSet<(bool, String)>,
    /// How often disturbed cells may still be measured again.
    repeats_left: usize,
}

/// The directory of a cell's rows: plain and slow-flush cells share it; the limited disk has its own.
fn rows_of(cell: &Cell) -> (bool, String) {
    (cell.disk == DiskKind::FewIops, cell.rows.clone())
}

impl Run<'_> {
    fn all(&mut self, outcomes: &mut Vec<Outcome>) -> Result<()> {
        let plan = self.plan;
        for (at, group) in plan.groups.iter().enumerate() {
            let ended = self.group(group);
            if ended.is_ok() {
                for goal in &group.goals {
                    let outcome = evaluate(goal, |source| self.records.figures(&group.id, source));
                    self.listener.outcome(&outcome);
                    outcomes.push(outcome);
                }
            }
            let needed: BTreeSet<_> =
                plan.groups[at + 1..].iter().flat_map(Group::cells).map(|c| rows_of(&c)).collect();
            for cell in group.cells().iter().filter(|cell| !needed.contains(&rows_of(cell))) {
                // For a disk that could not be created there is nothing to remove.
                let Ok(dir) = self.bench.disks.dir(cell) else { continue };
                remove(&dir).unwrap_or_else(|why| self.listener.note(&why));
            }
            ended?;
        }
        if let Err(why) = self.bench.disks.release() {
            self.listener.note(&why.to_string());
        }
        Ok(())
    }

    fn group(&mut self, group: &Group) -> Result<()> {
        for (turn, cell) in turns(self.seed, group) {
            if !self.records.has(&group.id, &turn, &cell) {
                self.listener.at(&cell.name(), self.done, self.total);
                let record = self.turn(group, turn, &cell)?;
                if let Some(error) = &record.error {
                    self.listener.note(&format!("{}: {error}", cell.name()));
                }
                self.records.add(record)?;
            }
            self.done += 1;
        }
        Ok(())
    }

    /// Measures a cell, and once more if other processes disturbed it.
    fn turn(&mut self, group: &Group, turn: String, cell: &Cell) -> Result<Record> {
        let (group, cell) = (group.id.clone(), cell.clone());
        let mut record = Record { binary: String::new(), cell, group, turn, result: None, error: None, attempts: 0 };
        let rows = rows_of(&record.cell);
        if self.failed.contains(&rows) {
            record.error = Some("its rows could not be made".into());
            return Ok(record);
        }
        if let Err(error) = self.bench.prepare(&record.cell) {
            self.failed.insert(rows);
            record.error = Some(format!("loading: {}", words(error)?));
            return Ok(record);
        }
        let began = Instant::now();
        loop {
            record.attempts += 1;
            match self.bench.measure(&record.cell) {
                Ok(result) => record.result = Some(result),
                Err(error) => {
                    record.result = None;
                    let why = words(error)?;
                    // The kernel does not report a kill for lack of memory to the process.
                    let limited = record.cell.command.iter().any(|word| word == "--memory-limit");
                    let killed = limited && why.contains("SIGKILL");
                    let limit = if killed { "killed, probably for more memory than its limit: " } else { "" };
                    record.error = Some(format!("{limit}{why}"));
                }
            }
            // The loop device's own work counts as that of others.
            let repeatable = record.cell.disk != DiskKind::FewIops && began.elapsed() < REPEAT_WITHIN;
            if !record.is_disturbed() || record.attempts > 1 || self.repeats_left == 0 || !repeatable {
                return Ok(record);
            }
            self.repeats_left -= 1;
        }
    }
}

/// The error in words; Ctrl-C ends the run.
fn words(error: Error) -> Result<String> {
    if let Error::Interrupted = error { Err(error) } else { Ok(error.to_string()) }
}
