//! One cell: the request and the configuration, common to key-value workloads, scans and TPC-C, and the result.

use super::data_dir::{DataDir, Marker};
use super::drive::{Driven, Limit, Spec, SteadyTest};
use crate::observe::drop_page_cache;
pub use crate::results::Cell;
use crate::results::{CellResult, Load, Measured, Origin, TIMELINE_STEP, named};
use crate::store::{About, Error, Result, Settings, Store};
use crate::workload::{KEY_BYTES, check_keys};
use seawall_io::probe::{Finding, probe};
use seawall_lab::run::this_machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The longest default warm-up.
const WARM_UP: Duration = Duration::from_secs(2);

/// Where, how long, and with what settings.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// A directory in which the data stays; without it, the data is removed.
    pub dir: Option<PathBuf>,
    /// Use existing data.
    pub reuse: bool,
    /// End after the load.
    pub load_only: bool,
    /// How long; loads always run to their end.
    pub limit: Limit,
    /// The warm-up before the window; the default is a quarter of the duration, at most 2 s.
    pub warm_up: Option<Duration>,
    /// After the warm-up, wait at most this long until the store is in its steady state
    /// ([`crate::Store::steady`]).
    pub steady: Option<Duration>,
    /// Operations of all threads together that arrive a second, whether or not earlier ones are done.
    pub rate: Option<f64>,
    /// Options of the store by its own names.
    pub options: Vec<(String, String)>,
}

impl RunConfig {
    /// What to drive with this configuration, on a store with this test of its steady state.
    pub(crate) fn spec<'a>(&self, threads: usize, steady: &'a SteadyTest<'a>, stop: &'a AtomicBool) -> Spec<'a> {
        let steady = self.steady.map(|within| (steady, within));
        Spec { warm_up: self.warm_up(), steady, rate: self.rate, ..Spec::new(threads, self.limit, stop) }
    }

    /// Prepares the directory of a cell's data, and the settings with which its store is opened there.
    pub(crate) fn prepare(&self, cell: &Cell, marker: Marker, tables: &[&str], data_bytes: u64) -> Prepared {
        let data_dir = DataDir::prepare(self.dir.as_deref(), self.reuse, marker)?;
        if cell.memory_limit_bytes.is_some() {
            // Pages cached earlier belong to another group, and would not count.
            drop_page_cache(data_dir.dir())?;
        }
        let settings = Settings {
            dir: data_dir.data(),
            pool_bytes: cell.pool_bytes,
            durability: cell.durability,
            tables: tables.iter().map(|name| (*name).to_owned()).collect(),
            threads: cell.threads,
            options: self.options.clone(),
            flush_delay: Duration::from_secs_f64(cell.flush_delay_ms / 1e3),
            data_bytes,
        };
        Ok((data_dir, settings))
    }

    /// Makes the rows by `fill`, unless they are there. Returns whether there is more to do than that.
    pub(crate) fn load(
        &self,
        data_dir: &mut DataDir,
        ran: &mut Ran,
        fill: impl FnOnce() -> Result<Load>,
    ) -> Result<bool> {
        if !data_dir.is_loaded() {
            ran.load = Some(fill()?);
            data_dir.set_loaded()?;
        }
        Ok(!self.load_only)
    }

    /// Time before the window.
    pub fn warm_up(&self) -> Duration {
        self.warm_up.unwrap_or(match self.limit {
            Limit::For(time) => (time / 4).min(WARM_UP),
            Limit::Ops(_) | Limit::Finished { .. } => Duration::ZERO,
        })
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Ran {
    /// The result; none with `--load-only`.
    pub result: Option<CellResult>,
    /// The load, if there was one.
    pub load: Option<Load>,
    /// The error that ended the window, or what follows it, early; Ctrl-C is one.
    pub error: Option<Error>,
}

/// The data of a cell, and how its store is opened.
pub(crate) type Prepared = Result<(DataDir, Settings), String>;

/// Opens a store by the cell's name.
pub type Open<'a> = dyn Fn(&Settings) -> Result<Box<dyn Store>> + 'a;

impl Cell {
    /// Checks the numbers of threads and rows.
    ///
    /// # Errors
    /// What to give instead.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { keys, value_size, .. } = *self;
        self.check_threads()?;
        check_keys(keys)?;
        if value_size == 0 || value_size > 16 << 20 {
            return Err(format!("--value-size {value_size}: give 1 byte to 16M"));
        }
        Ok(())
    }

    pub(crate) fn check_threads(&self) -> Result<(), String> {
        match self.threads {
            1..=4096 => Ok(()),
            threads => Err(format!("--threads {threads}: give 1 to 4096")),
        }
    }

    /// Bytes of all keys and values.
    pub fn data_bytes(&self) -> u64 {
        self.keys.saturating_mul(self.value_size + KEY_BYTES as u64)
    }

    /// What identifies rows that were `loaded` this way.
    pub(crate) fn marker(&self, loaded: &str) -> Marker {
        let (keys, value_size) = (self.keys.to_string(), self.value_size.to_string());
        let rows = [("store", &*self.store), ("keys", &keys), ("value_size", &value_size), ("loaded", loaded)];
        named(rows.map(|(name, value)| (name, value.to_owned()))).collect()
    }

    /// The result of a window that was driven, without figures that only some workloads have.
    pub fn result(&self, driven: &Driven, about: About, dir: &Path, load: Option<Load>) -> CellResult {
        CellResult {
            cell: self.clone(),
            measured: measured(driven),
            used: driven.observed.used.clone(),
            origin: Origin::new(about, dir),
            load,
            timeline: driven.timeline.steps(driven.window, TIMELINE_STEP),
            histogram: driven.latencies.buckets(),
            extra: BTreeMap::new(),
        }
    }
}

impl Origin {
    /// Of figures that this program has measured on a store with files in `dir`.
    pub(crate) fn new(about: About, dir: &Path) -> Self {
        let About { version, settings } = about;
        let settings = settings.into_iter().collect();
        Self { version, settings, machine: this_machine(), disk: disk(dir), commit: commit() }
    }
}

/// Opens a closed store so that its rows come from the device: no page of its files is in the page cache, and
/// its own cache is empty.
///
/// # Errors
/// Those of opening; or the page cache cannot be dropped.
pub fn cold<S>(settings: &Settings, open: impl FnOnce(&Settings) -> Result<S>) -> Result<S> {
    drop_page_cache(&settings.dir)?;
    let store = open(settings)?;
    drop_page_cache(&settings.dir)?;
    Ok(store)
}

fn measured(driven: &Driven) -> Measured {
    let seconds = driven.window.as_secs_f64();
    let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    let per_op = |count: u64| (driven.ops > 0).then(|| count as f64 / driven.ops as f64);
    let (device, latencies) = (driven.observed.device, &driven.latencies);
    Measured {
        duration_s: seconds,
        ops: driven.ops,
        errors: driven.errors,
        conflicts: driven.conflicts,
        ops_per_s: per_second(driven.ops as f64),
        longest_gap_ms: driven.timeline.longest_gap(driven.window).as_secs_f64() * 1e3,
        device_read_bytes_per_op: device.and_then(|d| per_op(d.read_bytes)),
        device_written_bytes_per_op: device.and_then(|d| per_op(d.written_bytes)),
        device_reads_per_s: device.map(|d| per_second(d.reads as f64)),
        device_writes_per_s: device.map(|d| per_second(d.writes as f64)),
        flushes_per_op: device.and_then(|d| d.flushes).and_then(per_op),
        p50_us: latencies.quantile_us(0.5),
        p95_us: latencies.quantile_us(0.95),
        p99_us: latencies.quantile_us(0.99),
        p999_us: latencies.quantile_us(0.999),
        max_us: latencies.max_us(),
    }
}

/// The block device and the file system of `dir`.
fn disk(dir: &Path) -> String {
    let found = match probe(dir) {
        Ok(found) => found,
        Err(why) => return format!("unknown: {why}"),
    };
    let device = match found.device {
        Finding::Known(device) => device.name + &device.model.known().map_or(String::new(), |m| format!(" ({m})")),
        Finding::Unknown(why) => format!("unknown: {why}"),
    };
    let file_system = found.file_system.known().map(|fs| format!("{} ({})", fs.kind, fs.options));
    format!("{device}, {}", file_system.as_deref().unwrap_or("unknown"))
}

/// The commit of the source tree around the running program, by git; `unknown` for a program installed
/// elsewhere.
fn commit() -> String {
    let describe = || {
        let program = std::env::current_exe().ok()?;
        let mut git = std::process::Command::new("git");
        git.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(program.parent()?);
        let out = git.stderr(std::process::Stdio::null()).output().ok().filter(|out| out.status.success())?;
        Some(String::from_utf8(out.stdout).ok()?.trim().to_owned())
    };
    describe().unwrap_or_else(|| "unknown".into())
}
