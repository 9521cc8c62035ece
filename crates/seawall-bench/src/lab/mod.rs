//! What `seawall lab` measures of the engine: E5, E6, and the effect of the lab's recommended settings.
//!
//! 1. The lab measures time and counts; this module creates databases, brings them into the state that a cell
//!    needs, and runs the work.
//! 2. Cells of E5 differ only in what their specs name: each flush method has its own database, which stays open and in
//!    memory, and a checkpoint ends each round, so that no round pays for the previous one.
//! 3. Queries read data that is only on the disk: each round opens its database anew, none of it is in the
//!    page cache, and no query reads what another query of the round has read.

mod commits;
mod levels;
mod queries;
#[cfg(test)]
mod tests;

use crate::results::named;
use crate::scan::Rows;
use crate::store::{Error, Settings, Store};
use crate::stores::Seawall;
use commits::Commits;
use levels::Levels;
use queries::Trees;
use seawall_io::Op;
use seawall_lab::cell::{CellSpec, Experiment, Origin, Pattern};
use seawall_lab::run::{Engine, EngineSizes, EngineWork, Issued, LabError, Progress, Ready, Worker};
use std::path::{Path, PathBuf};
use std::time::Duration;

type Result<T, E = LabError> = std::result::Result<T, E>;

/// The databases of one run.
#[derive(Debug, Default)]
pub struct EngineCells {
    levels: Vec<Levels>,
    trees: Vec<Trees>,
    commits: Option<Commits>,
    seawall_toml: String,
}

impl From<Error> for LabError {
    fn from(error: Error) -> Self {
        Self::Engine(error.to_string())
    }
}

/// A worker that repeats a closure.
struct Repeat<F>(F);

impl<F: FnMut() -> Result<bool>> Worker for Repeat<F> {
    fn operation(&mut self) -> Result<bool> {
        (self.0)()
    }
}

/// Converts an error of the engine for the lab.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` takes")]
fn failed(error: seawall::Error) -> LabError {
    LabError::Engine(error.to_string())
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

/// Writes the `seawall.toml` to be measured, or removes it.
fn put_settings(dir: &Path, seawall_toml: Option<&str>) -> Result<()> {
    let path = dir.join(seawall::options::FILE_NAME);
    let put = match seawall_toml {
        Some(text) => std::fs::write(&path, text),
        None => std::fs::remove_file(&path).or_else(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        }),
    };
    put.map_err(|e| LabError::Engine(format!("cannot change {}: {e}", path.display())))
}

/// Fills a new database with rows.
fn fill(rows: &Rows, settings: &Settings, work: &EngineWork<'_>, progress: &mut dyn Progress) -> Result<()> {
    let store = Seawall::open(settings)?;
    let filled = rows.fill(&store, progress, work.stop);
    close(store)?;
    filled?.map(drop).ok_or(LabError::Interrupted)
}

fn close(store: Seawall) -> Result<()> {
    Ok(Box::new(store).close()?)
}

impl Engine for EngineCells {
    fn make(&mut self, work: &EngineWork<'_>, progress: &mut dyn Progress) -> Result<()> {
        self.seawall_toml = work.seawall_toml.to_owned();
        for spec in work.specs {
            let Some(shape) = spec.engine else { continue };
            match (spec.experiment, shape.method, shape.tree) {
                (Experiment::CommitLevels, Some(method), _) if self.levels.iter().all(|l| l.method != method) => {
                    self.levels.push(Levels::make(work, method, progress)?);
                }
                (Experiment::RangePrefetch | Experiment::Settings, _, Some(order))
                    if self.trees.iter().all(|t| t.order != order) =>
                {
                    self.trees.push(Trees::make(work, order, progress)?);
                }
                (Experiment::Settings, _, None) if self.commits.is_none() => {
                    self.commits = Some(Commits::make(work, progress)?);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn prepare<'e>(&'e mut self, spec: &CellSpec, seed: u64) -> Result<Box<dyn Ready + 'e>> {
        let lacking = || LabError::Engine(format!("there is no database for {}", spec.id()));
        let shape = spec.engine.ok_or_else(lacking)?;
        let under = match shape.settings {
            Some(Origin::Recommended) => Some(self.seawall_toml.as_str()),
            _ => None,
        };
        match (spec.experiment, shape.method, shape.tree) {
            (Experiment::CommitLevels, Some(method), _) => {
                let levels = self.levels.iter().find(|l| l.method == method).ok_or_else(lacking)?;
                levels.ready(spec.pattern, shape.level.unwrap_or(seawall_lab::cell::Level::Flushed), seed)
            }
            (Experiment::RangePrefetch | Experiment::Settings, _, Some(order)) => {
                let trees = self.trees.iter().find(|t| t.order == order).ok_or_else(lacking)?;
                trees.ready(spec, under, seed)
            }
            (Experiment::Settings, _, None) if spec.pattern == Pattern::Update => {
                self.commits.as_ref().ok_or_else(lacking)?.ready(under, seed)
            }
            _ => Err(LabError::Unavailable(format!("this version does not know the cell {}", spec.id()))),
        }
    }
}
