//! The rounds of all cells: their order, their repetition, and what is observed around each.

use super::error::check_space;
use super::machine::{self, device_counters, device_delta};
use super::options::Limits;
use super::prepare::{BESIDE_FILL_BYTES_PER_S, Preparer};
use super::{Engine, LabError, Run, engine, work};
use crate::cell::{Beside, CellSpec, Pattern, Preparation};
use crate::results::{CellResult, Foreign, Round};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64Mcg;
use seawall_io::{Disk as _, FileClass, FillOptions};
use std::sync::atomic::{AtomicBool, Ordering};

/// A round is disturbed if other processes use more than this, cores.
pub const FOREIGN_CORES_MAX: f64 = 0.15;
/// A round is disturbed if other processes move more than this, bytes a second.
pub const FOREIGN_IO_MAX: f64 = 4e6;
/// How often a disturbed round is repeated.
const REPEATS_MAX: u32 = 2;
/// A round continues until it has this many operations (up to five times its time): six rounds then support a
/// 99th percentile.
const OPERATIONS_MIN: u64 = 50;
/// The engine's cells are many and steady: their rounds are this many times shorter than a disk cell's.
const ENGINE_ROUND_PART: u32 = 2;
/// The most that the engine's databases grow in a round, bytes; they were created before.
const ENGINE_ROUND_BYTES: u64 = 64 << 20;
/// A range query is hundreds of reads: a round continues until each thread has done this many.
const QUERIES_MIN: u64 = 3;

impl Run<'_> {
    /// All rounds of the cells that measure the engine, or without one of the others.
    pub(super) fn rounds(&mut self, mut engine: Option<&mut dyn Engine>) -> Result<(), LabError> {
        let (of_engine, options) = (engine.is_some(), &self.lab.options);
        let cells = self.results.cells.iter().filter(|c| c.spec.engine.is_some() == of_engine).count();
        let total = cells as u64 * u64::from(options.rounds);
        self.progress.begin(if of_engine { "measuring the engine" } else { "measuring" }, total);
        let mut done = 0;
        for n in 0..options.rounds {
            let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(n));
            for index in pass_order(&self.results.cells, seed) {
                let CellResult { id, spec, .. } = self.results.cells[index].clone();
                if spec.engine.is_some() != of_engine {
                    continue;
                }
                self.progress.at(done, &spec.title());
                done += 1;
                let skipped = |id: &str| self.results.skipped.iter().any(|s| s.id == id);
                if skipped(&id) {
                    continue;
                }
                if spec.preparation == Preparation::ZeroFilledWait && !self.preparer.is_filled_ahead(&spec) {
                    // Cells found unavailable are left out: their files would never be used up.
                    let waits = |c: &&CellResult| c.spec.preparation == spec.preparation && !skipped(&c.id);
                    let waiting: Vec<CellSpec> = self.results.cells.iter().filter(waits).map(|c| c.spec).collect();
                    self.preparer.fill_ahead(&waiting)?;
                }
                match self.quiet_round(&spec, seed, &mut engine) {
                    Ok(round) => self.results.cells[index].rounds.push(round),
                    Err(LabError::Unavailable(reason)) => self.results.skip(&spec, reason),
                    Err(e) => return Err(e),
                }
            }
        }
        self.progress.at(total, "done");
        Ok(())
    }

    /// One round, repeated while other processes disturb it.
    fn quiet_round(&self, spec: &CellSpec, seed: u64, engine: &mut Option<&mut dyn Engine>) -> Result<Round, LabError> {
        let Self { lab, preparer, .. } = self;
        let needed = if engine.is_some() { ENGINE_ROUND_BYTES } else { lab.round_bytes() };
        let repeats_max = match spec.preparation {
            // A file that waited 20 s cannot be created again at once.
            Preparation::ZeroFilledWait => 0,
            // Many cells: on a busy machine the run would take three times as long.
            _ if engine.is_some() => REPEATS_MAX / 2,
            _ => REPEATS_MAX,
        };
        let mut repeats = 0;
        loop {
            // Other processes may have filled the disk since the run began.
            let free = preparer.disk.free_bytes(&preparer.dir)?;
            let needed = needed.saturating_sub(preparer.filled_ahead_bytes());
            check_space(&lab.probe.path, free, needed, lab.options.reserve_bytes)?;
            let seed = seed ^ (u64::from(repeats) << 56);
            let mut round = match engine {
                Some(engine) => self.engine_round(*engine, spec, seed)?,
                None => self.disk_round(spec, seed)?,
            };
            if preparer.stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let foreign = &mut round.foreign;
            foreign.disturbed = foreign.cpu_cores > FOREIGN_CORES_MAX
                || foreign.io_bytes_per_s.is_some_and(|bytes| bytes > FOREIGN_IO_MAX);
            if !foreign.disturbed || repeats >= repeats_max {
                return Ok(round);
            }
            repeats += 1;
        }
    }

    fn disk_round(&self, spec: &CellSpec, seed: u64) -> Result<Round, LabError> {
        let (preparer, options) = (&self.preparer, &self.lab.options);
        let file = preparer.prepare(spec)?;
        let limits = Limits { round: options.round, operations_min: OPERATIONS_MIN, rate: options.rate };
        let fill = (spec.beside == Beside::PacedFill).then_some(|stop: &AtomicBool| fill_beside(preparer, stop));
        let measure = || work::round(spec, &file, &limits, options.backend, seed, preparer.stop);
        let round = self.observed(|| work::beside(fill, measure))?;
        let len = preparer.disk.len(&file.file)?;
        Ok(Round { cached_bytes: preparer.disk.cached(&file.file, len).ok().map(|c| c.resident), ..round })
    }

    /// Measures a round and adds what the device and other processes did meanwhile.
    fn observed(&self, measure: impl FnOnce() -> Result<Round, LabError>) -> Result<Round, LabError> {
        let counters = || self.lab.device.as_deref().and_then(device_counters);
        let (before, foreign) = (counters(), machine::ForeignReading::take());
        let round = measure()?;
        let (cpu_cores, io_bytes_per_s) = foreign.since();
        let device = before.zip(counters()).map(|(before, after)| device_delta(before, after));
        Ok(Round { device, foreign: Foreign { cpu_cores, io_bytes_per_s, disturbed: false }, ..round })
    }

    /// One round of a cell that measures the engine.
    fn engine_round(&self, engine: &mut dyn Engine, spec: &CellSpec, seed: u64) -> Result<Round, LabError> {
        let options = &self.lab.options;
        let ready = engine.prepare(spec, seed)?;
        let queries = spec.pattern == Pattern::RangeQuery;
        let operations_min = if queries { QUERIES_MIN * u64::from(spec.threads) } else { OPERATIONS_MIN };
        let limits = Limits { round: options.round / ENGINE_ROUND_PART, operations_min, rate: options.rate };
        let round = self.observed(|| engine::round(spec, &*ready, &limits, self.preparer.stop))?;
        let cached_bytes = engine::cached_bytes(&ready.dir());
        ready.finish()?;
        Ok(Round { cached_bytes, ..round })
    }
}

/// The order of one pass: shuffled, so that no cell always follows the same cell and its dirty caches. Cells whose
/// files must wait come last, together.
fn pass_order(cells: &[CellResult], seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    order.sort_by_key(|&i| cells[i].spec.preparation == Preparation::ZeroFilledWait);
    order
}

/// The fill that runs during a measurement: one preallocated file after the other, rate-limited, until stopped.
fn fill_beside(preparer: &Preparer<'_>, stop: &AtomicBool) -> Result<(), LabError> {
    let path = preparer.dir.join("filled-beside");
    while !stop.load(Ordering::Relaxed) {
        let options = FillOptions {
            bytes_per_second: BESIDE_FILL_BYTES_PER_S,
            // The cell needs zeroes written at a rate; WRITE_ZEROES would be a series of unpaced calls.
            write_zeroes: false,
            // Small enough that a round contains whole files: zeroes, fsync, rename, directory fsync.
            ..FillOptions::new(FileClass::Scratch, 24 << 20)
        };
        match preparer.fill(&path, options, stop) {
            Ok(()) => preparer.disk.remove(&path)?,
            Err(LabError::Interrupted) => break,
            failed => return failed,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, sample};

    #[test]
    fn a_pass_visits_every_cell_once_in_an_order_of_its_own_and_waits_last() {
        let cells = sample::of_plan(&plan::full()).cells;
        let orders: Vec<Vec<usize>> = (0..8).map(|seed| pass_order(&cells, seed)).collect();
        for (seed, order) in orders.iter().enumerate() {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..cells.len()).collect::<Vec<_>>(), "seed {seed}");
            let waits = |i: &usize| cells[*i].spec.preparation == Preparation::ZeroFilledWait;
            let first_wait = order.iter().position(waits).unwrap();
            assert!(order[first_wait..].iter().all(waits));
        }
        let firsts: std::collections::HashSet<usize> = orders.iter().map(|o| o[0]).collect();
        assert!(firsts.len() > 4, "the first cell of a pass hardly changes: {firsts:?}");
    }
}
