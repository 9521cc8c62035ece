//! What `seawall lab` measures of the engine: E5, E6, and the effect of the lab's recommended settings.
//!
//! 1. The lab measures time and counts; this module creates databases, brings them into the state that a cell
//!    needs, and runs the work.
//! 2. Cells of E5 differ only in what their specs name: each flush method has its own database, which stays open and in
//!    memory, and a checkpoint ends each round, so that no round pays for the previous one.
//! 3. Queries read data that is only on the disk: each round opens its database anew, none of it is in the
//!    page cache, and no query reads what another query of the round has read.

mod levels;
mod rounds;
#[cfg(test)]
mod tests;

use crate::results::named;
use crate::store::{Error, Settings};
use crate::stores::Seawall;
use levels::Levels;
use rounds::Rounds;
use seawall_io::Op;
use seawall_lab::cell::{CellSpec, Experiment, Level, Origin};
use seawall_lab::run::{Engine, EngineSizes, EngineWork, Issued, LabError, Progress, Ready, Worker};
use std::path::PathBuf;
use std::time::Duration;

/// The databases of one run.
#[derive(Debug, Default)]
pub struct EngineCells {
    levels: Vec<Levels>,
    rounds: Vec<Rounds>,
    seawall_toml: String,
}

impl From<Error> for LabError {
    fn from(error: Error) -> Self {
        if let Error::Interrupted = error { Self::Interrupted } else { Self::Engine(error.to_string()) }
    }
}

/// A worker that repeats a closure.
struct Repeat<F>(F);

impl<F: FnMut() -> crate::Result<bool>> Worker for Repeat<F> {
    fn operation(&mut self) -> Result<bool, LabError> {
        Ok((self.0)()?)
    }
}

/// The common settings for opening a database.
fn settings(dir: PathBuf, pool_bytes: u64, sizes: EngineSizes, tables: &[&str]) -> Settings {
    // Small log files: a small log is then reused in small pieces.
    let log = [("log_capacity", sizes.log_bytes.to_string()), ("log_segment_size", (4 << 20).to_string())];
    Settings {
        dir,
        pool_bytes,
        durability: seawall::Durability::Flushed,
        tables: tables.iter().map(|t| (*t).to_owned()).collect(),
        threads: 64,
        options: named(log).collect(),
        flush_delay: Duration::ZERO,
        data_bytes: sizes.disk_bytes(),
    }
}

/// Writes and syncs that the engine has issued since it was opened.
fn issued(store: &Seawall) -> Issued {
    let mut sum = Issued::default();
    for cell in store.database().stats().io.cells {
        match cell.op {
            Op::Write => sum.writes += cell.count(),
            Op::DurableWrite => {
                sum.writes += cell.count();
                sum.syncs += cell.count();
            }
            Op::Sync => sum.syncs += cell.count(),
            _ => {}
        }
    }
    sum
}

impl Engine for EngineCells {
    fn make(&mut self, work: &EngineWork<'_>, progress: &mut dyn Progress) -> Result<(), LabError> {
        self.seawall_toml = work.seawall_toml.to_owned();
        for spec in work.specs {
            let Some(shape) = spec.engine else { continue };
            match (spec.experiment, shape.method) {
                (Experiment::CommitLevels, Some(method)) if self.levels.iter().all(|l| l.method != method) => {
                    self.levels.push(Levels::make(work, method, progress)?);
                }
                (Experiment::RangePrefetch | Experiment::Settings, _)
                    if self.rounds.iter().all(|r| r.order != shape.tree) =>
                {
                    self.rounds.push(Rounds::make(work, shape.tree, progress)?);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn prepare<'e>(&'e mut self, spec: &CellSpec, seed: u64) -> Result<Box<dyn Ready + 'e>, LabError> {
        let lacking = || LabError::Engine(format!("there is no database for {}", spec.id()));
        let shape = spec.engine.ok_or_else(lacking)?;
        let under = (shape.settings == Some(Origin::Recommended)).then_some(self.seawall_toml.as_str());
        match (spec.experiment, shape.method) {
            (Experiment::CommitLevels, Some(method)) => {
                let levels = self.levels.iter().find(|l| l.method == method).ok_or_else(lacking)?;
                levels.ready(spec.pattern, shape.level.unwrap_or(Level::Flushed), seed)
            }
            (Experiment::RangePrefetch | Experiment::Settings, _) => {
                let rounds = self.rounds.iter().find(|r| r.order == shape.tree).ok_or_else(lacking)?;
                Ok(rounds.ready(spec, under, seed)?)
            }
            _ => Err(LabError::Unavailable(format!("this version does not know the cell {}", spec.id()))),
        }
    }
}
