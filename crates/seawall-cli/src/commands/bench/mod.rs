//! `seawall bench`: a workload on Seawall or on a store that it is compared with, each cell in its own process.
//!
//! 1. Invalid requests are refused before anything is written.
//! 2. The result goes to standard output, as a table or with `--json` as JSON; everything else to standard error.
//! 3. Exit code 1 when the data is not consistent afterwards (TPC-C), 2 for an error. After an error inside the
//!    window, the result until then is still shown.

mod bulk;
mod goals;
mod kv;
mod restart;
mod scan;
mod tpcc;

use crate::{Ended, Failed, Outcome, Stop, interrupted, make_dir, note, pretty, print, units, write_files};
use clap::{Args, Subcommand};
use seawall_bench::cgroup::MemoryGroup;
use seawall_bench::observe::FOREIGN_CORES;
use seawall_bench::report::{html, table};
use seawall_bench::results::CellResult;
use seawall_bench::run::{Cell, Limit, Ran, RunConfig};
use seawall_bench::store::{Durability, Error, Settings, Store};
use seawall_bench::stores;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure bulk work of Seawall: popping rows from the front, building a tree of sorted rows, building an
    /// index beside writers.
    Bulk(bulk::BulkArgs),
    /// Measure a key-value workload.
    Kv(kv::KvArgs),
    /// Measure the goals, Seawall and the other stores in turn: one line per goal, exit code 1 if one is not met.
    Goals(goals::GoalsArgs),
    /// Measure how long opening takes after kill -9, and its lower bound.
    Restart(restart::RestartArgs),
    /// Measure scans and reads of many keys, with and without prefetch, and fio's reads of the same file.
    Scan(scan::ScanArgs),
    /// Measure TPC-C, and check that the data is consistent afterwards.
    Tpcc(tpcc::TpccArgs),
}

pub(crate) fn run(command: &BenchCommand, stop: &Stop) -> Outcome {
    let outcome = match command {
        BenchCommand::Bulk(args) => bulk::run(args, stop),
        BenchCommand::Kv(args) => kv::run(args, stop),
        BenchCommand::Goals(args) => goals::run(args, stop),
        BenchCommand::Restart(args) => restart::run(args, stop),
        BenchCommand::Scan(args) => scan::run(args, stop),
        BenchCommand::Tpcc(args) => tpcc::run(args, stop),
    };
    match outcome {
        Err(error) if matches!(error.downcast_ref(), Some(Error::Interrupted)) => interrupted("interrupted"),
        outcome => outcome,
    }
}

/// Default memory for the store's cache.
const POOL_BYTES: u64 = 512 << 20;

/// Options of every workload.
#[derive(Debug, Args)]
pub(super) struct CommonArgs {
    /// Store: seawall, raw (the disk alone) or, in a build with peers, rocksdb, lmdb, sqlite, redb or fjall
    #[arg(long, value_name = "NAME", default_value = "seawall", value_parser = store_name)]
    pub(super) store: String,
    /// Number of threads that work at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) threads: usize,
    /// What a change waits for: the device's flush (flushed, 1), the kernel (written, 2) or nothing (deferred, 0)
    #[arg(long, value_name = "LEVEL", default_value = "flushed", value_parser = durability)]
    pub(super) durability: Durability,
    /// Memory for the store's cache, with K, M, G or T [default: 512M, for scans 64M]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(super) pool: Option<u64>,
    /// Measured time, with ms, s, m or h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    pub(super) duration: Duration,
    /// Measure this many operations of all threads together, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Warm-up before the measured time
    ///
    /// Unless given, a quarter of the duration and at most 2s; with `--ops`, none.
    #[arg(long, value_name = "TIME", value_parser = warm_up)]
    pub(super) warm_up: Option<Duration>,
    /// After the warm-up, wait at most this long for the store's steady state
    ///
    /// In the steady state, background work keeps up: Seawall's log has wrapped twice, RocksDB has compacted.
    /// Otherwise, the work left after the window counts in the result.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    steady: Option<Duration>,
    /// Start this many operations per second at random times, whether or not earlier ones are done
    #[arg(long, value_name = "N", conflicts_with = "ops", value_parser = units::rate)]
    rate: Option<f64>,
    /// Keep the data in this directory [default: a temporary one below ./target or $TMPDIR]
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Reuse the data that an earlier run left in `--dir`, if it is the same
    #[arg(long, requires = "dir")]
    pub(super) reuse: bool,
    /// Stop after the load, when the store has settled
    #[arg(long, requires = "dir")]
    pub(super) load_only: bool,
    /// Seed for keys, values and their order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Run in a memory cgroup of this size, including the page cache
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(super) memory_limit: Option<u64>,
    /// Set an option of the store by its own name; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Delay each flush of Seawall's own I/O by this time, with ms or s
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    flush_delay: Option<Duration>,
    /// Print the result as JSON; docs/bench.md explains each field
    #[arg(long)]
    pub(super) json: bool,
    /// Write result.json and report.html into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

impl CommonArgs {
    /// Returns the configuration of the run. The options that the workload needs come first, so that the user's
    /// options override them.
    pub(super) fn config(&self, needed: &[(&str, &str)]) -> RunConfig {
        let needed = needed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        RunConfig {
            dir: self.dir.clone(),
            reuse: self.reuse,
            load_only: self.load_only,
            limit: self.ops.map_or(Limit::For(self.duration), Limit::Ops),
            warm_up: self.warm_up,
            steady: self.steady,
            rate: self.rate,
            options: needed.chain(self.set.iter().cloned()).collect(),
        }
    }

    /// Returns the cell, for a workload that takes the number and size of its rows from options.
    pub(super) fn cell(&self, workload: &str, keys: u64, value_size: u64, client_batch: usize) -> Cell {
        Cell {
            workload: workload.to_owned(),
            store: self.store.clone(),
            threads: self.threads,
            keys,
            value_size,
            durability: self.durability,
            pool_bytes: self.pool.unwrap_or(POOL_BYTES),
            client_batch,
            flush_delay_ms: self.flush_delay.unwrap_or_default().as_secs_f64() * 1e3,
            memory_limit_bytes: self.memory_limit,
            seed: self.seed,
        }
    }

    /// Checks the output paths and whether the store supports the request, before any measurement.
    pub(super) fn check(&self) -> Result<(), Failed> {
        let ours = stores::NAMES.contains(&self.store.as_str());
        let preloaded = std::env::var_os("LD_PRELOAD").is_some_and(|value| !value.is_empty());
        if self.flush_delay.is_some() && !ours && !preloaded {
            let hint = "load a library that delays fsync and fdatasync by LD_PRELOAD, and give --flush-delay beside it \
                 for the record";
            return Err(format!("--flush-delay delays Seawall's own I/O: for {} {hint}", self.store).into());
        }
        if let Some(dir) = &self.out {
            make_dir(dir, "--out")?;
            // Only an earlier result may be replaced.
            let earlier = std::fs::read_to_string(dir.join(RESULT))
                .is_ok_and(|text| serde_json::from_str::<CellResult>(&text).is_ok());
            let mut paths = [RESULT, REPORT].map(|name| dir.join(name)).into_iter();
            if let Some(path) = paths.find(|path| !earlier && path.exists()) {
                return Err(format!("{} exists and is not from a benchmark: give another --out", path.display()).into());
            }
        }
        Ok(())
    }

    /// Like `check`, and also limits the memory until the returned value is dropped.
    pub(super) fn prepare(&self) -> Result<Option<MemoryGroup>, Failed> {
        self.check()?;
        Ok(self.memory_limit.map(MemoryGroup::enter).transpose()?)
    }

    /// Shows the result of a run and how it ended.
    pub(super) fn end(&self, ran: Ran) -> Outcome {
        match (&ran.result, &ran.load) {
            // A run that failed at once has only its error to show.
            (Some(result), _) if ran.error.is_some() && result.measured.ops == 0 => {}
            (Some(result), _) => self.show(result)?,
            (None, Some(load)) => note(format_args!(
                "loaded {:.0} rows/s in {:.1} s, settled in {:.1} s",
                load.rows_per_s, load.seconds, load.settle_seconds
            )),
            (None, None) => note("the data is there already"),
        }
        ended(ran.error)
    }

    /// Prints and writes the result.
    fn show(&self, result: &CellResult) -> Result<(), Failed> {
        // Write the files first: the measurement cannot be repeated.
        let json = pretty(result)?;
        if let Some(dir) = &self.out {
            write_files(dir, [(RESULT, json.clone()), (REPORT, html(result))])?;
        }
        print(if self.json { json } else { table(result) })?;
        let foreign = result.used.foreign_cpu_cores;
        if foreign > FOREIGN_CORES {
            note(format_args!("disturbed: others used {foreign:.2} cores meanwhile; measure again on a quiet machine"));
        }
        Ok(())
    }
}

const RESULT: &str = "result.json";
const REPORT: &str = "report.html";

/// Opens the store named `name`.
pub(super) fn open(name: &str, settings: &Settings) -> Result<Box<dyn Store>, Error> {
    let opened = stores::open(name, settings);
    #[cfg(feature = "peers")]
    let opened = opened.or_else(|| seawall_peers::open(name, settings));
    opened.unwrap_or_else(|| Err(Error::failed("bench", format!("there is no store {name:?}"))))
}

/// Stores of a build with `--features peers`.
const PEERS: [&str; 5] = ["rocksdb", "lmdb", "sqlite", "redb", "fjall"];

fn store_name(text: &str) -> Result<String, String> {
    let peer = PEERS.contains(&text);
    if stores::NAMES.contains(&text) || (peer && cfg!(feature = "peers")) {
        return Ok(text.to_owned());
    }
    if peer {
        return Err("this build has no peers: cargo build --release -p seawall-cli --features peers".into());
    }
    Err(format!("use one of {}, {}", stores::NAMES.join(", "), PEERS.join(", ")))
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "1" | "flushed" => Ok(Durability::Flushed),
        "2" | "written" => Ok(Durability::Written),
        "0" | "deferred" => Ok(Durability::Deferred),
        _ => Err("use flushed (1), written (2) or deferred (0)".into()),
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, such as page_size=8K".into()),
    }
}

/// Parses a warm-up time. Unlike other times, it may be zero.
fn warm_up(text: &str) -> Result<Duration, String> {
    if matches!(text.trim(), "0" | "0s" | "0ms") { Ok(Duration::ZERO) } else { units::duration(text) }
}

/// Returns the outcome of a run.
pub(super) fn ended(error: Option<Error>) -> Outcome {
    match error {
        None => Ok(Ended::Well),
        Some(Error::Interrupted) => interrupted("interrupted"),
        Some(error) => Err(format!("the run ended early: {error}").into()),
    }
}
