//! `results.json`: the measurements of one run of the lab. The report, the verdicts and the settings are
//! computed from this file alone, so that a later version, or another machine, can compute them again.
//!
//! - `format` changes only when a reader of the old format would misread the file; readers ignore unknown
//!   fields.
//! - Latencies are nanoseconds, sizes bytes, rates operations per second, times seconds, unless the name says
//!   otherwise.

use crate::cell::{CellSpec, Experiment, Pattern};
use crate::stats::{Estimate, ROUNDS_MIN};
use histogram::SparseHistogram;
use seawall_io::probe::Probe;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version this program writes and reads.
pub const FORMAT: u32 = 2;

/// The name of the results file in a run's directory.
pub const RESULTS: &str = "results.json";

/// Grouping power and maximum value power of every latency histogram of the lab: 1.6% wide buckets up to 18
/// minutes.
pub const LATENCY_CONFIG: (u8, u8) = (seawall_io::GROUPING_POWER, seawall_io::MAX_VALUE_POWER);

/// One run of `seawall lab`.
///
/// ```
/// use seawall_lab::{cell::{Beside, Experiment}, plan, sample};
/// let results = sample::of_plan(&plan::decisive());
/// let eight = results.cell(&plan::parallel(8, Beside::Nothing)).unwrap();
/// assert_eq!(eight.spec.threads, 8);
/// assert!(results.cells_of(Experiment::ParallelDirect).any(|cell| cell.id == eight.id));
/// assert!(results.complete && results.witness.is_none());
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program that measured.
    pub seawall_version: String,
    /// RFC 3339 time of the start, UTC.
    pub started: String,
    /// The machine.
    pub machine: Machine,
    /// What the probe found about the path.
    pub probe: Probe,
    /// The options of the run.
    pub run: RunSettings,
    /// The cells, in the order they were planned.
    pub cells: Vec<CellResult>,
    /// How the engine's cells were measured; `None` if none were.
    #[serde(default)]
    pub engine: Option<EngineRun>,
    /// `--sustain`: rate over time.
    pub sustain: Option<Sustain>,
    /// Whether data survived a power cut under `seawall witness`; `None` means not tested.
    pub witness: Option<WitnessOutcome>,
    /// False when the run was interrupted: the cells so far are included.
    pub complete: bool,
    /// Cells that could not be measured here, with the reason.
    pub skipped: Vec<Skipped>,
}

/// The machine a run was made on.
///
/// ```
/// let machine = seawall_lab::run::this_machine();
/// println!("{} with {} processors, {} GiB", machine.host, machine.cpus, machine.memory_bytes >> 30);
/// assert!(!machine.kernel.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors available to the process.
    pub cpus: u32,
    /// Processor model.
    pub cpu_model: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// `uname -r`.
    pub kernel: String,
    /// Host name.
    pub host: String,
}

/// The options of a run.
///
/// ```
/// let run = seawall_lab::sample::results(vec![]).run;
/// assert_eq!((run.command.as_str(), run.seed), ("seawall lab /srv/db", 1), "enough to run it again");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// `--full`.
    pub full: bool,
    /// Size of the scratch file, bytes.
    pub file_bytes: u64,
    /// Seed of every random choice.
    pub seed: u64,
    /// The I/O backend and why it was chosen, such as `io_uring (probed)`.
    pub io_backend: String,
    /// `--rate`, operations per second, when limited.
    pub rate: Option<f64>,
    /// The command line.
    pub command: String,
}

/// How the engine's cells were measured.
///
/// ```
/// use seawall_lab::{plan, sample};
/// let engine = sample::of_plan(&plan::decisive()).engine.unwrap();
/// assert!(engine.seawall_toml.contains("flush_method"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineRun {
    /// Approximate bytes of each tree of E6.
    pub tree_bytes: u64,
    /// Bytes of the pool through which E6 reads a tree.
    pub pool_bytes: u64,
    /// Rows of each range that a query of E6 reads.
    pub range_rows: u32,
    /// Rows of the table of E5's read-only and transactional loads.
    pub rows: u32,
    /// TPC-C's warehouses.
    pub warehouses: u16,
    /// Customers of a TPC-C district; 3,000 are the specification's.
    pub customers: u32,
    /// The recommended settings that were measured, as derived at the time, even if a later version would
    /// recommend others.
    pub seawall_toml: String,
}

impl EngineRun {
    /// The recommended settings without their reasons, on one line.
    pub(crate) fn settings_line(&self) -> String {
        let lines = self.seawall_toml.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
        lines.collect::<Vec<_>>().join("; ")
    }
}

/// One cell with all its rounds.
///
/// ```
/// use seawall_lab::{plan, sample};
/// let cell = sample::cell(plan::random_read(1), 10_000.0);
/// let rate = cell.rate().unwrap();
/// assert!(rate.low <= rate.median && rate.median <= rate.high);
/// assert!(cell.latency_ns(0.5) <= cell.latency_ns(0.99));
/// assert!(cell.latency_ns(0.99).unwrap() <= cell.latency_ns_max().unwrap());
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellResult {
    /// [`CellSpec::id`].
    pub id: String,
    /// The measured combination.
    pub spec: CellSpec,
    /// The rounds, in time order; rounds of different cells are interleaved.
    pub rounds: Vec<Round>,
}

/// One round of one cell.
///
/// ```
/// let round = seawall_lab::sample::round(5000, 1);
/// assert_eq!(round.operations as f64 / round.seconds, 5000.0);
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// Operations completed (commits, in log cells).
    pub operations: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Latency of each operation, ns.
    pub latency: SparseHistogram,
    /// Longest operation, ns.
    pub latency_ns_max: u64,
    /// The device's work meanwhile; `None` without a block device.
    pub device: Option<DeviceDelta>,
    /// Work of other processes meanwhile.
    pub foreign: Foreign,
    /// Bytes of the files in the page cache at the end, by cachestat or mincore.
    pub cached_bytes: Option<u64>,
    /// Writes issued by the lab (in log cells fewer or more than commits).
    pub writes_issued: u64,
    /// Syncs issued by the lab (RWF_DSYNC and O_DSYNC writes count).
    pub syncs_issued: u64,
}

/// Deltas of `/proc/diskstats` over a round.
///
/// ```
/// let delta = seawall_lab::results::DeviceDelta { writes: 100, written_bytes: 819_200, ..Default::default() };
/// assert_eq!(delta.written_bytes / delta.writes, 8192, "bytes of a device write");
/// assert_eq!(delta.flushes, None, "not counted is not zero");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceDelta {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes completed; `None` before Linux 5.5, which does not count them.
    pub flushes: Option<u64>,
    /// Time that the device was busy, ms.
    pub busy_ms: u64,
}

/// Load by other processes.
///
/// ```
/// use seawall_lab::{plan, results::Foreign, sample};
/// let mut cell = sample::cell(plan::random_read(1), 10_000.0);
/// cell.rounds[2].foreign = Foreign { cpu_cores: 1.4, io_bytes_per_s: None, disturbed: true };
/// assert!(cell.disturbed(), "one such round marks the cell");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Foreign {
    /// Processors used by other processes, in cores.
    pub cpu_cores: f64,
    /// Bytes read and written by other processes per second; `None` when they are not visible.
    pub io_bytes_per_s: Option<f64>,
    /// Whether either was above the limit even after repeating the round.
    pub disturbed: bool,
}

/// A cell that could not be measured.
///
/// ```
/// use seawall_lab::{plan, results::Skipped, sample, table};
/// let mut results = sample::of_plan(&plan::decisive());
/// let spec = plan::beside_fill();
/// let reason = "fallocate is refused".to_owned();
/// results.skipped.push(Skipped { id: spec.id(), title: spec.title(), reason });
/// assert!(table::table(&results).contains("not measured here:"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// [`CellSpec::id`].
    pub id: String,
    /// Its title.
    pub title: String,
    /// The reason, in a sentence.
    pub reason: String,
}

/// Rate over time under constant load.
///
/// ```
/// use seawall_lab::{results::Sustain, sustain};
/// let per_second = vec![9_000; 120];
/// let plateaus = sustain::plateaus(&per_second);
/// let long = Sustain { title: "random 16K writes".into(), per_second, plateaus };
/// assert_eq!(long.plateaus.len(), 1, "it held");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sustain {
    /// Description.
    pub title: String,
    /// Operations in each second.
    pub per_second: Vec<u32>,
    /// Stretches of steady rate in it.
    pub plateaus: Vec<Plateau>,
}

/// A stretch of steady rate.
///
/// ```
/// use seawall_lab::{results::Plateau, sustain::{Shape, shape}};
/// let held = Plateau { from_s: 0, to_s: 600, rate: 9_000.0 };
/// assert_eq!(shape(&[held]), Shape::Held);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    /// First second.
    pub from_s: u32,
    /// One past the last second.
    pub to_s: u32,
    /// Median rate in it, operations per second.
    pub rate: f64,
}

/// The result of `seawall witness verify` after a power cut.
///
/// ```
/// use seawall_lab::{experiment, results::WitnessOutcome, sample, verdict};
/// let mut results = sample::results(vec![]);
/// let verified = "2026-11-20T12:00:00Z".into();
/// results.witness = Some(WitnessOutcome { acknowledged: 90_000, lost: 3, torn: 0, reordered: 1, verified });
/// let all = experiment::verdicts(&results);
/// assert!(all.iter().any(|v| v.level == verdict::Level::Warning), "three writes are gone");
/// assert!(all.iter().all(|v| v.level != verdict::Level::NotTested));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessOutcome {
    /// Writes acknowledged before the cut.
    pub acknowledged: u64,
    /// Acknowledged writes that are missing.
    pub lost: u64,
    /// Acknowledged writes that are only partly there.
    pub torn: u64,
    /// Writes that survived although an earlier acknowledged one did not.
    pub reordered: u64,
    /// RFC 3339 time of the verification.
    pub verified: String,
}

impl Round {
    /// Operations per second; `None` for a round that took no time.
    pub fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.operations as f64 / self.seconds)
    }
}

impl CellResult {
    /// Operations per second of each round.
    pub fn rates(&self) -> Vec<f64> {
        self.rounds.iter().filter_map(Round::rate).collect()
    }

    /// Median rate with its interval, operations per second.
    pub fn rate(&self) -> Option<Estimate> {
        Estimate::of(&self.rates())
    }

    /// The median of the rounds' rates.
    pub(crate) fn median(&self) -> Option<f64> {
        Some(self.rate()?.median)
    }

    /// Bytes read or written a second; `None` for cells whose operations are not of one size.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let sized = self.spec.engine.is_none() && self.spec.pattern != Pattern::Log;
        let rate = self.rate().filter(|_| sized && operation_word(&self.spec) != "flushes")?;
        Some(rate.median * f64::from(self.spec.block_bytes))
    }

    /// The latency at `quantile` (0.5, 0.99, ...) over all rounds, ns: the upper edge of its histogram
    /// bucket.
    pub fn latency_ns(&self, quantile: f64) -> Option<f64> {
        let found = self.latency()?.quantile(quantile).ok()??;
        found.get(&histogram::Quantile::new(quantile).ok()?).map(|bucket| bucket.end() as f64)
    }

    /// All rounds' latencies merged.
    pub fn latency(&self) -> Option<SparseHistogram> {
        let mut rounds = self.rounds.iter();
        let first = rounds.next()?.latency.clone();
        rounds.try_fold(first, |all, round| all.checked_add(&round.latency).ok())
    }

    /// Longest operation of all rounds, ns.
    pub fn latency_ns_max(&self) -> Option<f64> {
        self.rounds.iter().map(|r| r.latency_ns_max as f64).reduce(f64::max)
    }

    /// Operations over all rounds.
    pub fn operations(&self) -> u64 {
        self.rounds.iter().fold(0, |sum, r| sum.saturating_add(r.operations))
    }

    /// One figure of the device's work, for each operation over all rounds.
    ///
    /// ```
    /// use seawall_lab::{plan, sample};
    /// let cell = sample::cell(plan::random_read(1), 10_000.0);
    /// assert_eq!(cell.per_operation(|device| Some(device.written_bytes)), Some(8192.0));
    /// ```
    pub fn per_operation(&self, of: fn(&DeviceDelta) -> Option<u64>) -> Option<f64> {
        let operations = self.operations() as f64;
        let all: Option<f64> = self.rounds.iter().map(|round| Some(of(round.device.as_ref()?)? as f64)).sum();
        all.filter(|_| operations > 0.0).map(|all| all / operations)
    }

    /// The device's work per second, median over the rounds: reads, and bytes read.
    pub fn device_reads_per_second(&self) -> Option<(f64, f64)> {
        let per_second = |of: fn(&DeviceDelta) -> u64| {
            let rates = self.rounds.iter().filter(|r| r.seconds > 0.0);
            let rates: Option<Vec<f64>> = rates.map(|r| Some(of(r.device.as_ref()?) as f64 / r.seconds)).collect();
            Some(Estimate::of(&rates?)?.median)
        };
        Some((per_second(|d| d.reads)?, per_second(|d| d.read_bytes)?))
    }

    /// Largest amount of page cache held by the cell's files, bytes.
    pub fn cached_bytes_max(&self) -> Option<u64> {
        self.rounds.iter().filter_map(|r| r.cached_bytes).max()
    }

    /// Whether any round was disturbed by other load.
    pub fn disturbed(&self) -> bool {
        self.rounds.iter().any(|r| r.foreign.disturbed)
    }
}

impl Results {
    /// The cell with exactly this spec.
    pub fn cell(&self, spec: &CellSpec) -> Option<&CellResult> {
        self.cell_by_id(&spec.id())
    }

    /// The measured cell with this id.
    pub(crate) fn cell_by_id(&self, id: &str) -> Option<&CellResult> {
        self.cells.iter().find(|c| c.id == id && !c.rounds.is_empty())
    }

    /// Records why a cell was not measured.
    pub(crate) fn skip(&mut self, spec: &CellSpec, reason: String) {
        self.skipped.push(Skipped { id: spec.id(), title: spec.title(), reason });
    }

    /// The number of measured cells.
    pub(crate) fn measured(&self) -> usize {
        self.cells.iter().filter(|c| !c.rounds.is_empty()).count()
    }

    /// Cells of one experiment, in plan order.
    pub fn cells_of(&self, experiment: Experiment) -> impl Iterator<Item = &CellResult> {
        self.cells.iter().filter(move |c| c.spec.experiment == experiment && !c.rounds.is_empty())
    }

    /// `a`'s rate over `b`'s, round by round: round n of both ran in the same pass over the cells. Pairs with
    /// a disturbed round are left out while enough others remain. `None` if one of the two was not measured.
    ///
    /// ```
    /// use seawall_lab::{cell::{Access, Preparation, Sync}, plan, sample};
    /// let results = sample::of_plan(&plan::decisive());
    /// let write = |preparation| plan::extend(preparation, Access::Buffered, Sync::Fdatasync);
    /// let against = results.compare(&write(Preparation::Append), &write(Preparation::Written));
    /// assert!(against.is_some_and(|ratio| ratio.is_difference() && ratio.high < 0.5));
    /// let never = results.compare(&write(Preparation::Recycled), &write(Preparation::Written));
    /// assert_eq!(never, None);
    /// ```
    pub fn compare(&self, a: &CellSpec, b: &CellSpec) -> Option<Estimate> {
        let (a, b) = (self.cell(a)?, self.cell(b)?);
        let pairs = a.rounds.iter().zip(&b.rounds);
        let pairs = pairs.filter_map(|(a, b)| {
            let rates = (a.rate()?, b.rate().filter(|rate| *rate > 0.0)?);
            Some((rates, a.foreign.disturbed || b.foreign.disturbed))
        });
        let pairs: Vec<((f64, f64), bool)> = pairs.collect();
        let few = pairs.iter().filter(|(_, disturbed)| !disturbed).count() < ROUNDS_MIN;
        let (a, b): (Vec<f64>, Vec<f64>) =
            pairs.into_iter().filter(|(_, disturbed)| few || !disturbed).map(|(rates, _)| rates).unzip();
        Estimate::of_ratio(&a, &b)
    }

    /// Reads a results file; for a directory, the [`RESULTS`] file in it.
    ///
    /// # Errors
    /// A sentence that names the file, and says whether it could not be read, is not a results file, or has a
    /// newer format.
    ///
    /// ```
    /// use seawall_lab::{plan, results::Results, sample};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("results.json");
    /// let measured = sample::of_plan(&plan::decisive());
    /// std::fs::write(&path, measured.to_json())?;
    /// assert_eq!(Results::read(&path)?.cells.len(), measured.cells.len());
    /// std::fs::write(&path, r#"{"format": 99}"#)?;
    /// assert!(Results::read(&path).unwrap_err().contains("format 99"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(path: &Path) -> Result<Self, String> {
        let path = if path.is_dir() { path.join(RESULTS) } else { path.into() };
        let name = path.display();
        let text = std::fs::read_to_string(&path).map_err(|e| {
            format!("cannot read results file {name}: {e}; give the results.json that a run wrote, or its directory")
        })?;
        let not_results = |e| {
            let hint = "give the results.json that a run wrote, or run `seawall lab PATH --json FILE` again";
            format!("{name} is not a results file of `seawall lab` ({e}); {hint}")
        };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(not_results)?;
        let format = value.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if format > u64::from(FORMAT) {
            let known = format!("this program reads up to {FORMAT}: use a newer seawall");
            return Err(format!("{name} has results format {format}, {known}"));
        }
        serde_json::from_value(value).map_err(not_results)
    }

    /// The results as JSON.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("every field of Results has a JSON form")
    }
}

/// The noun for the operations of a cell: reads, writes, commits or flushes.
///
/// ```
/// use seawall_lab::{cell::Access, plan, results::operation_word};
/// assert_eq!(operation_word(&plan::random_read(1)), "reads");
/// assert_eq!(operation_word(&plan::log(4, Access::Direct, 4096, true)), "commits");
/// ```
pub fn operation_word(spec: &CellSpec) -> &'static str {
    match spec.pattern {
        Pattern::RandomRead | Pattern::SequentialRead => "reads",
        Pattern::Log | Pattern::Update => "commits",
        Pattern::ReadOnly | Pattern::Transactional | Pattern::Tpcc => "transactions",
        Pattern::RangeQuery => "queries",
        _ if spec.beside == crate::cell::Beside::ContinuousWriter => "flushes",
        _ => "writes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, sample, table};

    #[test]
    fn a_file_from_before_the_engine_was_measured_is_read() {
        let disk: Vec<CellSpec> = plan::decisive().into_iter().filter(|c| c.engine.is_none()).collect();
        let results = sample::of_plan(&disk);
        let mut value: serde_json::Value = serde_json::from_str(&results.to_json()).unwrap();
        value["format"] = 1.into();
        value.as_object_mut().unwrap().remove("engine");
        let text = value.to_string();
        assert!(!text.contains("engine"), "nothing of it is in a cell of the disk");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        std::fs::write(&path, text).unwrap();
        let read = Results::read(&path).unwrap();
        assert_eq!(table::table(&read), table::table(&results));
    }

    #[test]
    fn cells_of_the_engine_survive_the_trip() {
        let results = sample::of_plan(&plan::full());
        let read: Results = serde_json::from_str(&results.to_json()).unwrap();
        assert!(read.cells.iter().zip(&results.cells).all(|(a, b)| a.spec == b.spec && a.id == a.spec.id()));
        assert_eq!(read.engine, results.engine);
    }
}
