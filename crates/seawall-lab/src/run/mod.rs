//! Running the experiments.
//!
//! ```text
//!   check path ──probe──> quiet? ──scratch directory, big file──> rounds ──> results
//!                           └─busy──> wait, then refuse without --force
//! ```
//!
//! 1. Rounds of different cells are interleaved (every cell once, in shuffled order, then every cell again),
//!    so that drift of the machine affects all alike and rounds can be compared pair by pair.
//! 2. A round disturbed by other processes' use of processors or disk is repeated; if it is disturbed again,
//!    it is marked.
//! 3. The scratch directory is always removed, and the measurements are always returned, also with an error
//!    ([`LabError::Cut`]).
//! 4. The reserve of free space is checked before each round, not only before the first: other processes fill
//!    disks too.
//! 5. All rounds of the disk's cells come first, then the engine's: the settings used for the engine are
//!    derived from the disk's cells.

mod engine;
mod log;
mod machine;
mod observe;
mod prepare;
mod record;
mod scratch;
mod work;

use crate::cell::{Beside, CellSpec, Experiment, Pattern, Preparation};
use crate::plan;
use crate::results::{CellResult, EngineRun, FORMAT, Foreign, Results, Round, RunSettings, Skipped, Sustain};
pub use engine::{Engine, EngineError, EngineSizes, EngineWork, Issued, ROW_BYTES, Ready, TREE_TO_POOL, Worker};
pub use machine::{ForeignReading, device_counters, device_delta, this_machine};
pub use observe::{Observation, observe};
use prepare::{Preparer, unavailable};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64Mcg;
use scratch::Scratch;
use seawall_io::probe::{Probe, probe};
use seawall_io::{Backend, BackendUnavailable, Disk as _, FileClass, Fill, FillOptions, IoError, OsDisk, SystemClock};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A round is disturbed if other processes use more than this, cores.
pub const FOREIGN_CORES_MAX: f64 = 0.15;
/// A round is disturbed if other processes move more than this, bytes a second.
pub const FOREIGN_IO_MAX: f64 = 4e6;
/// A disk busier than this before the run is not measured without `force`.
const BUSY_MAX: f64 = 0.20;
/// How often a disturbed round is repeated.
const REPEATS_MAX: u32 = 2;
/// A round continues until it has this many operations (up to five times its time): six rounds then support a
/// 99th percentile.
const OPERATIONS_MIN: u64 = 50;
/// The engine's cells are many and steady: their rounds are this many times shorter than a disk cell's.
const ENGINE_ROUND_PART: u32 = 2;
/// Growth of the engine's databases in a round, bytes, at most; they were created before.
const ENGINE_ROUND_BYTES: u64 = 64 << 20;
/// A range query is hundreds of reads: a round continues until each thread has done this many.
const QUERIES_MIN: u64 = 3;
/// The smallest scratch file, bytes.
pub const FILE_BYTES_MIN: u64 = 16 << 20;

/// Options of a run.
///
/// ```
/// use seawall_lab::{cell::Experiment, run::LabOptions};
/// let only = vec![Experiment::AppendOverwrite];
/// let options = LabOptions { only, rounds: 3, ..LabOptions::new("/srv/db".as_ref()) };
/// assert!(options.plan().iter().all(|cell| cell.experiment == Experiment::AppendOverwrite));
/// ```
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// Directory on the disk to measure.
    pub path: PathBuf,
    /// Only these experiments; empty means all.
    pub only: Vec<Experiment>,
    /// The whole grid instead of the decisive cells.
    pub full: bool,
    /// Size of the scratch file, bytes.
    pub file_bytes: u64,
    /// Time of one round.
    pub round: Duration,
    /// Rounds of each cell.
    pub rounds: u32,
    /// Seed of every random choice.
    pub seed: u64,
    /// Backend for requests in flight.
    pub backend: Backend,
    /// Most operations a second in each cell.
    pub rate: Option<f64>,
    /// Bytes of free space to leave untouched.
    pub reserve_bytes: u64,
    /// Measure a busy disk anyway.
    pub force: bool,
    /// Instead of cells: constant load for this long.
    pub sustain: Option<Duration>,
    /// The command line, for the record.
    pub command: String,
}

impl LabOptions {
    /// The default run on `path`: about five minutes, two of them for the disk alone.
    ///
    /// ```
    /// let options = seawall_lab::run::LabOptions::new("/srv/db".as_ref());
    /// assert_eq!(options.rounds, 6);
    /// ```
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.into(),
            only: Vec::new(),
            full: false,
            file_bytes: 512 << 20,
            round: Duration::from_millis(800),
            rounds: 6,
            seed: 1,
            backend: Backend::Auto,
            rate: None,
            reserve_bytes: 1 << 30,
            force: false,
            sustain: None,
            command: String::new(),
        }
    }

    /// The whole grid on `path`: about half an hour.
    ///
    /// ```
    /// use seawall_lab::{plan, run::LabOptions};
    /// assert_eq!(LabOptions::full("/srv/db".as_ref()).plan(), plan::full());
    /// ```
    #[must_use]
    pub fn full(path: &Path) -> Self {
        Self { full: true, round: Duration::from_millis(1100), rounds: 5, file_bytes: 1 << 30, ..Self::new(path) }
    }

    /// The cells that these options select. E6 includes the disk's random reads, with which it is compared.
    ///
    /// ```
    /// use seawall_lab::{cell::Experiment, plan, run::LabOptions};
    /// let only = vec![Experiment::RangePrefetch];
    /// let cells = LabOptions { only, ..LabOptions::new("/srv/db".as_ref()) }.plan();
    /// assert!(cells.contains(&plan::random_read(32)) && !cells.contains(&plan::parallel(1, seawall_lab::cell::Beside::Nothing)));
    /// ```
    #[must_use]
    pub fn plan(&self) -> Vec<CellSpec> {
        let all = if self.full { plan::full() } else { plan::decisive() };
        let asked = |e: Experiment| self.only.is_empty() || self.only.contains(&e);
        let reads = [1, 32].map(plan::random_read);
        let beside = |c: &CellSpec| reads.contains(c) && asked(Experiment::RangePrefetch);
        all.into_iter().filter(|c| asked(c.experiment) || beside(c)).collect()
    }

    /// Whether any cell needs the engine.
    fn needs_engine(&self) -> bool {
        self.sustain.is_none() && self.plan().iter().any(|c| c.engine.is_some())
    }
}

/// Limits of one round.
///
/// ```
/// use seawall_lab::run::Limits;
/// use std::time::Duration;
/// let limits = Limits { round: Duration::from_millis(800), operations_min: 20, rate: Some(500.0) };
/// assert_eq!(limits.round.as_secs_f64() * limits.rate.unwrap(), 400.0, "operations in a round, at most");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Its time.
    pub round: Duration,
    /// Minimum number of operations; a round continues for them up to five times its time.
    pub operations_min: u64,
    /// Most operations a second.
    pub rate: Option<f64>,
}

/// Receives the progress of a run.
///
/// ```
/// use seawall_lab::run::Progress;
/// /// Keeps a line for a status bar.
/// struct Line(String, u64);
/// impl Progress for Line {
///     fn begin(&mut self, phase: &str, total: u64) { *self = Line(phase.into(), total) }
///     fn at(&mut self, done: u64, now: &str) { self.0 = format!("{done}/{} {now}", self.1) }
/// }
/// let mut line = Line(String::new(), 0);
/// line.begin("measuring", 114);
/// line.at(3, "append 8K");
/// assert_eq!(line.0, "3/114 append 8K");
/// ```
pub trait Progress {
    /// A phase of `total` steps begins.
    fn begin(&mut self, phase: &str, total: u64);
    /// `done` of the phase's steps are done; `now` names the current one.
    fn at(&mut self, done: u64, now: &str);
}

/// Ignores progress.
///
/// ```
/// use seawall_lab::run::{Progress, Silent};
/// let progress: &mut dyn Progress = &mut Silent;
/// progress.begin("measuring", 114);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _phase: &str, _total: u64) {}
    fn at(&mut self, _done: u64, _now: &str) {}
}

/// Why a run could not start or continue.
///
/// ```
/// use seawall_lab::run::{Lab, LabError, LabOptions};
/// # let dir = tempfile::tempdir()?;
/// let tiny = LabOptions { file_bytes: 4096, ..LabOptions::new(dir.path()) };
/// let error = Lab::new(tiny).unwrap_err();
/// assert!(matches!(error, LabError::TooSmall));
/// assert_eq!(error.to_string(), "--size must be at least 16 MiB");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The path is not a directory.
    #[error("{} is not a directory: give a directory on the disk to measure, such as the database's data directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The path is on a file system without a disk.
    #[error("{} is on {kind}, which shows state of the kernel and stores nothing: give a directory on the disk to measure", path.display())]
    NoStorage {
        /// The path.
        path: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// Too little space.
    #[error(
        "{} has {} MiB free above the reserve of {} MiB, and this run may need {} MiB; free some space, or give a smaller --size or --reserve",
        path.display(), available >> 20, reserve >> 20, needed >> 20
    )]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free above the reserve.
        available: u64,
        /// The reserve, bytes.
        reserve: u64,
    },
    /// Other processes use the disk.
    #[error(
        "the disk {device} is {:.0}% busy with {:.1} MB/s of others' I/O: what is measured now would say little; \
         stop the other work, wait, or give --force",
        share * 100.0, bytes_per_s / 1e6
    )]
    Busy {
        /// The device.
        device: String,
        /// Share of the time that it was busy.
        share: f64,
        /// Bytes read and written a second.
        bytes_per_s: f64,
    },
    /// The scratch file is too small for useful results.
    #[error("--size must be at least {} MiB", FILE_BYTES_MIN >> 20)]
    TooSmall,
    /// The requested backend does not work.
    #[error(transparent)]
    Backend(BackendUnavailable),
    /// An error of the disk.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The engine's cells could not be measured.
    #[error(transparent)]
    Engine(EngineError),
    /// A cell cannot be measured here.
    #[error("{}", .0.0)]
    Unavailable(Unavailable),
    /// The run stopped after some cells had been measured.
    #[error("{cause}")]
    Cut {
        /// The measurements so far.
        results: Box<Results>,
        /// The cause.
        cause: Box<LabError>,
    },
}

/// Why a cell cannot be measured here.
///
/// ```
/// use seawall_lab::run::{LabError, Unavailable};
/// let error = LabError::Unavailable(Unavailable("the kernel has no RWF_DONTCACHE".into()));
/// assert_eq!(error.to_string(), "the kernel has no RWF_DONTCACHE");
/// ```
#[derive(Debug)]
pub struct Unavailable(pub String);

/// A prepared run: the path is probed and checked, and nothing is written yet.
///
/// ```
/// use seawall_lab::run::{FILE_BYTES_MIN, Lab, LabError, LabOptions};
/// # let dir = tempfile::tempdir()?;
/// let options = LabOptions { file_bytes: FILE_BYTES_MIN, ..LabOptions::new(dir.path()) };
/// match Lab::new(options) {
///     Ok(lab) => println!("direct I/O: {}; needs {} MiB", lab.probe().direct_io, lab.bytes_needed() >> 20),
///     Err(LabError::NoSpace { needed, available, .. }) => assert!(available < needed),
///     Err(other) => return Err(other.into()),
/// }
/// assert_eq!(std::fs::read_dir(dir.path())?.count(), 0, "nothing has been written yet");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lab {
    options: LabOptions,
    probe: Probe,
    backend: String,
    device: Option<String>,
}

impl Lab {
    /// Probes and checks the path.
    ///
    /// # Errors
    /// When the path is not a directory in which a file can be created, has too little space, or the
    /// requested backend does not work.
    ///
    /// ```
    /// use seawall_lab::run::{Lab, LabError, LabOptions};
    /// let this_program = std::env::current_exe()?;
    /// assert!(matches!(Lab::new(LabOptions::new(&this_program)), Err(LabError::NotADirectory { .. })));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(mut options: LabOptions) -> Result<Self, LabError> {
        // Whole chunks, so that every write of the preparation is aligned.
        options.file_bytes -= options.file_bytes % (1 << 20);
        if !options.path.is_dir() && options.path.exists() {
            return Err(LabError::NotADirectory { path: options.path });
        }
        if options.file_bytes < FILE_BYTES_MIN {
            return Err(LabError::TooSmall);
        }
        if let Some(kind) = without_storage(&options.path) {
            return Err(LabError::NoStorage { path: options.path, kind });
        }
        let disk = OsDisk::new(options.backend, None).map_err(LabError::Backend)?;
        let backend = format!("{} ({})", disk.backend().name, disk.backend().reason);
        let probe = probe(&options.path)?;
        let device = probe.device.known().map(|d| d.name.clone());
        let lab = Self { options, probe, backend, device };
        let (needed, reserve) = (lab.bytes_needed(), lab.options.reserve_bytes);
        let available = lab.probe.free_bytes.saturating_sub(reserve);
        if available < needed {
            return Err(LabError::NoSpace { path: lab.probe.path, needed, available, reserve });
        }
        Ok(lab)
    }

    /// The options of the run.
    #[must_use]
    pub fn options(&self) -> &LabOptions {
        &self.options
    }

    /// The probe's findings.
    #[must_use]
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// The most bytes that the run takes at one time: the big file, and one growing as large beside it; the
    /// engine's databases.
    #[must_use]
    pub fn bytes_needed(&self) -> u64 {
        let engine = if self.options.needs_engine() { self.engine_sizes().disk_bytes() } else { 0 };
        self.options.file_bytes + self.round_bytes().max(engine)
    }

    fn engine_sizes(&self) -> EngineSizes {
        EngineSizes::of(self.options.file_bytes)
    }

    /// The most bytes that one round takes beside the big file: one growing as large, and the fill beside it.
    fn round_bytes(&self) -> u64 {
        let waiting =
            self.options.plan().iter().filter(|c| c.preparation == Preparation::ZeroFilledWait).count() as u64;
        self.options.file_bytes + (192 << 20) + waiting * prepare::FRESH_BYTES
    }

    /// Waits up to half a minute for other disk use to end (recent writes of other programs may still be
    /// written back).
    fn wait_for_quiet(&self, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<(), LabError> {
        let Some(device) = self.device.as_deref().filter(|_| !self.options.force) else { return Ok(()) };
        const TRIES: u64 = 30;
        progress.begin("waiting for a quiet disk", TRIES);
        let mut last = LabError::Interrupted;
        for n in 0..TRIES {
            let Some(before) = device_counters(device) else { return Ok(()) };
            let start = Instant::now();
            std::thread::sleep(Duration::from_secs(1));
            if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let delta = device_counters(device).map(|after| device_delta(before, after)).unwrap_or_default();
            let seconds = start.elapsed().as_secs_f64();
            let share = delta.busy_ms as f64 / 1000.0 / seconds;
            let bytes_per_s = (delta.read_bytes + delta.written_bytes) as f64 / seconds;
            if share <= BUSY_MAX && bytes_per_s <= FOREIGN_IO_MAX {
                return Ok(());
            }
            let now = format!("{device} {:.0}% busy, {:.1} MB/s of others' I/O", share * 100.0, bytes_per_s / 1e6);
            progress.at(n + 1, &now);
            last = LabError::Busy { device: device.into(), share, bytes_per_s };
        }
        Err(last)
    }

    /// Runs the plan without an engine: engine cells are left out and listed as skipped. Otherwise as
    /// [`Lab::run_with`].
    ///
    /// # Errors
    /// As [`Lab::run_with`].
    pub fn run(&self, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<Results, LabError> {
        self.run_with(None, progress, stop)
    }

    /// Runs the plan. When `stop` is set, returns the results so far with `complete` false.
    ///
    /// # Errors
    /// When nothing could be measured, or, as [`LabError::Cut`] with the results so far, when the run could
    /// not continue. The scratch directory is removed in any case.
    pub fn run_with(
        &self,
        engine: Option<&mut dyn Engine>,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<Results, LabError> {
        self.wait_for_quiet(progress, stop)?;
        let mut results = self.empty_results();
        let disk = Arc::new(OsDisk::synchronous());
        let scratch = Scratch::create(&disk, &self.probe.path, self.bytes_needed(), self.options.reserve_bytes)?;
        let preparer = Preparer {
            base: scratch.dir.join("base"),
            dir: scratch.dir.clone(),
            base_bytes: self.options.file_bytes,
            seed: self.options.seed,
            filled_ahead: Mutex::default(),
            disk,
        };
        progress.begin("writing the scratch file", self.options.file_bytes >> 20);
        preparer.make_base(stop, |bytes| progress.at(bytes >> 20, "MiB written"))?;
        let ended = match self.options.sustain {
            Some(duration) => self.sustain(&preparer, duration, &mut results, progress, stop),
            None => self.phases(&preparer, engine, &mut results, progress, stop),
        };
        results.cells.retain(|c| !c.rounds.is_empty());
        let empty = results.cells.is_empty() && results.sustain.is_none();
        match ended {
            Ok(()) => {
                results.complete = true;
                Ok(results)
            }
            Err(e) if empty => Err(e),
            Err(LabError::Interrupted) => Ok(results),
            Err(e) => Err(LabError::Cut { results: Box::new(results), cause: Box::new(e) }),
        }
    }

    fn empty_results(&self) -> Results {
        Results {
            format: FORMAT,
            seawall_version: env!("CARGO_PKG_VERSION").into(),
            started: jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
            machine: this_machine(),
            // JSON cannot hold a path that is not UTF-8; the measurement is kept with a lossy path.
            probe: Probe { path: self.probe.path.to_string_lossy().into_owned().into(), ..self.probe.clone() },
            run: RunSettings {
                full: self.options.full,
                file_bytes: self.options.file_bytes,
                seed: self.options.seed,
                io_backend: self.backend.clone(),
                rate: self.options.rate,
                command: self.options.command.clone(),
            },
            cells: Vec::new(),
            engine: None,
            sustain: None,
            witness: None,
            complete: false,
            skipped: Vec::new(),
        }
    }

    /// The disk's cells, then the engine's.
    fn phases(
        &self,
        preparer: &Preparer,
        engine: Option<&mut dyn Engine>,
        results: &mut Results,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        for spec in self.options.plan() {
            let lacking = (spec.engine.is_some() && engine.is_none())
                .then(|| "this program runs the lab without the engine; `seawall lab` has it".to_owned());
            match lacking.or_else(|| unavailable(&spec, &self.probe)) {
                Some(reason) => results.skipped.push(Skipped { id: spec.id(), title: spec.title(), reason }),
                None => results.cells.push(CellResult { id: spec.id(), spec, rounds: Vec::new() }),
            }
        }
        let specs = |results: &Results, engine: bool| -> Vec<CellSpec> {
            results.cells.iter().map(|c| c.spec).filter(|spec| spec.engine.is_some() == engine).collect()
        };
        if !specs(results, false).is_empty() {
            let mut one = |spec: &CellSpec, seed: u64| self.one_round(preparer, spec, seed, stop);
            self.rounds(preparer, false, &mut one, results, progress, stop)?;
        }
        let cells = specs(results, true);
        let Some(engine) = engine.filter(|_| !cells.is_empty()) else { return Ok(()) };
        let seawall_toml = crate::settings::recommend(results).to_toml();
        let dir = preparer.dir.join("engine");
        std::fs::create_dir(&dir)
            .map_err(|e| seawall_io::IoError::os(seawall_io::Op::Directory, &dir, e.raw_os_error().unwrap_or(5)))?;
        let (sizes, seed) = (self.engine_sizes(), self.options.seed);
        let work = EngineWork { dir: &dir, specs: &cells, sizes, seed, seawall_toml: &seawall_toml, stop };
        engine.make(&work, progress)?;
        let EngineSizes { tree_bytes, range_rows, rows, warehouses, customers, .. } = sizes;
        let pool_bytes = sizes.pool_bytes();
        results.engine =
            Some(EngineRun { tree_bytes, pool_bytes, range_rows, rows, warehouses, customers, seawall_toml });
        let mut one = |spec: &CellSpec, seed: u64| self.engine_round(preparer, engine, spec, seed, stop);
        self.rounds(preparer, true, &mut one, results, progress, stop)
    }

    /// All rounds of the cells that measure the engine, or of those that do not.
    fn rounds(
        &self,
        preparer: &Preparer,
        of_engine: bool,
        one: &mut dyn FnMut(&CellSpec, u64) -> Result<Round, LabError>,
        results: &mut Results,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        let cells = results.cells.iter().filter(|c| c.spec.engine.is_some() == of_engine).count();
        let total = cells as u64 * u64::from(self.options.rounds);
        progress.begin(if of_engine { "measuring the engine" } else { "measuring" }, total);
        let mut done = 0;
        for n in 0..self.options.rounds {
            let seed = self.options.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(n));
            for index in pass_order(&results.cells, seed) {
                let CellResult { id, spec, .. } = results.cells[index].clone();
                if spec.engine.is_some() != of_engine {
                    continue;
                }
                progress.at(done, &spec.title());
                done += 1;
                if results.skipped.iter().any(|s| s.id == id) {
                    continue;
                }
                if spec.preparation == Preparation::ZeroFilledWait && !preparer.is_filled_ahead(&spec) {
                    // Without cells found unavailable: their files would never be used up.
                    let waits = |c: &&CellResult| {
                        c.spec.preparation == spec.preparation && !results.skipped.iter().any(|s| s.id == c.id)
                    };
                    let waiting: Vec<CellSpec> = results.cells.iter().filter(waits).map(|c| c.spec).collect();
                    preparer.fill_ahead(&waiting, stop)?;
                }
                match self.quiet_round(preparer, &spec, seed, one, stop) {
                    Ok(round) => results.cells[index].rounds.push(round),
                    Err(LabError::Unavailable(Unavailable(reason))) => {
                        results.skipped.push(Skipped { id, title: spec.title(), reason });
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        progress.at(total, "done");
        Ok(())
    }

    /// One round, repeated while other processes disturb it.
    fn quiet_round(
        &self,
        preparer: &Preparer,
        spec: &CellSpec,
        seed: u64,
        one: &mut dyn FnMut(&CellSpec, u64) -> Result<Round, LabError>,
        stop: &AtomicBool,
    ) -> Result<Round, LabError> {
        let mut repeats = 0;
        loop {
            self.check_reserve(preparer, if spec.engine.is_some() { ENGINE_ROUND_BYTES } else { self.round_bytes() })?;
            let mut round = one(spec, seed ^ (u64::from(repeats) << 56))?;
            if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let foreign = &mut round.foreign;
            foreign.disturbed = foreign.cpu_cores > FOREIGN_CORES_MAX
                || foreign.io_bytes_per_s.is_some_and(|bytes| bytes > FOREIGN_IO_MAX);
            // A file that waited 20 s cannot be created again at once.
            let repeats_max = match spec.preparation {
                Preparation::ZeroFilledWait => 0,
                // Many cells: on a busy machine the run would take three times as long.
                _ if spec.engine.is_some() => REPEATS_MAX / 2,
                _ => REPEATS_MAX,
            };
            if !foreign.disturbed || repeats >= repeats_max {
                return Ok(round);
            }
            repeats += 1;
        }
    }

    /// Other processes may have filled the disk since the run began.
    fn check_reserve(&self, preparer: &Preparer, needed: u64) -> Result<(), LabError> {
        let reserve = self.options.reserve_bytes;
        let available = preparer.disk.free_bytes(&preparer.dir)?.saturating_sub(reserve);
        if available < needed {
            return Err(LabError::NoSpace { path: self.probe.path.clone(), needed, available, reserve });
        }
        Ok(())
    }

    fn one_round(&self, preparer: &Preparer, spec: &CellSpec, seed: u64, stop: &AtomicBool) -> Result<Round, LabError> {
        let file = preparer.prepare(spec, stop)?;
        let limits = Limits { round: self.options.round, operations_min: OPERATIONS_MIN, rate: self.options.rate };
        let counters = || self.device.as_deref().and_then(device_counters);
        let (device_before, foreign_before) = (counters(), machine::ForeignReading::take());
        let fill_stop = AtomicBool::new(false);
        let measured = std::thread::scope(|scope| {
            let fill = (spec.beside == Beside::PacedFill).then(|| scope.spawn(|| fill_beside(preparer, &fill_stop)));
            let measured = work::round(spec, &file, &limits, self.options.backend, seed, stop);
            fill_stop.store(true, Ordering::Relaxed);
            match fill.map(|f| f.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))) {
                Some(Err(e)) => Err(e),
                _ => measured,
            }
        });
        let (merged, seconds) = measured?;
        let (cpu_cores, io_bytes_per_s) = foreign_before.since();
        let device = device_before.zip(counters()).map(|(before, after)| device_delta(before, after));
        let len = preparer.disk.len(&file.file)?;
        Ok(Round {
            device,
            foreign: Foreign { cpu_cores, io_bytes_per_s, disturbed: false },
            cached_bytes: preparer.disk.cached(&file.file, len).ok().map(|c| c.resident),
            ..merged.into_round(seconds)
        })
    }

    /// One round of a cell that measures the engine.
    fn engine_round(
        &self,
        preparer: &Preparer,
        engine: &mut dyn Engine,
        spec: &CellSpec,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Round, LabError> {
        let ready = engine.prepare(spec, seed)?;
        let queries = spec.pattern == Pattern::RangeQuery;
        let operations_min = if queries { QUERIES_MIN * u64::from(spec.threads) } else { OPERATIONS_MIN };
        let limits = Limits { round: self.options.round / ENGINE_ROUND_PART, operations_min, rate: self.options.rate };
        let counters = || self.device.as_deref().and_then(device_counters);
        let (device_before, foreign_before) = (counters(), machine::ForeignReading::take());
        let round = engine::round(spec, &*ready, &limits, stop)?;
        let (cpu_cores, io_bytes_per_s) = foreign_before.since();
        let device = device_before.zip(counters()).map(|(before, after)| device_delta(before, after));
        let cached_bytes = engine::cached_bytes(&preparer.disk, &ready.dir());
        ready.finish()?;
        let foreign = Foreign { cpu_cores, io_bytes_per_s, disturbed: false };
        Ok(Round { device, foreign, cached_bytes, ..round })
    }

    /// Constant random direct writes, one long round at a time, counted per second.
    fn sustain(
        &self,
        preparer: &Preparer,
        duration: Duration,
        results: &mut Results,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        let spec = CellSpec { queue_depth: 16, ..plan::direct_sync(1, 16 << 10, crate::cell::Sync::None) };
        let file = preparer.prepare(&spec, stop)?;
        let seconds = duration.as_secs().max(1);
        progress.begin("sustained load", seconds);
        let mut per_second: Vec<u32> = Vec::new();
        let start = Instant::now();
        let limits = Limits { round: Duration::from_secs(1), operations_min: 1, rate: self.options.rate };
        let mut ended = Ok(());
        while start.elapsed() < duration && !stop.load(Ordering::Relaxed) {
            let n = per_second.len() as u64;
            match work::round(&spec, &file, &limits, self.options.backend, self.options.seed ^ n, stop) {
                // A second cut short by Ctrl-C would look like a drop of the rate.
                Ok(_) if stop.load(Ordering::Relaxed) => {}
                Ok((merged, took)) => {
                    // A second that took five (a stalled disk) counts as five seconds with a fifth of its
                    // operations each.
                    let whole = (took.round() as u32).max(1);
                    let rate = (merged.operations as f64 / f64::from(whole)).round() as u32;
                    per_second.extend(std::iter::repeat_n(rate, whole as usize));
                    progress.at(per_second.len() as u64, &format!("{rate} writes/s"));
                }
                Err(e) => {
                    ended = Err(e);
                    break;
                }
            }
        }
        if !per_second.is_empty() {
            let plateaus = crate::sustain::plateaus(&per_second);
            results.sustain =
                Some(Sustain { title: "random 16K direct writes, depth 16".into(), plateaus, per_second });
        }
        if stop.load(Ordering::Relaxed) { Err(LabError::Interrupted) } else { ended }
    }
}

/// The kernel's file systems that store nothing.
fn without_storage(path: &Path) -> Option<&'static str> {
    // The type of f_type differs by architecture.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let magic = rustix::fs::statfs(path).ok()?.f_type as u64 & 0xffff_ffff;
    match magic {
        0x9fa0 => Some("proc"),
        0x6265_6572 => Some("sysfs"),
        0x0027_e0eb | 0x6367_7270 => Some("cgroup"),
        0x6462_6720 => Some("debugfs"),
        0x1cd1 => Some("devpts"),
        _ => None,
    }
}

/// The order of one pass: shuffled, so that no cell always follows the same cell and its dirty caches; the
/// files that have to wait come last, together.
fn pass_order(cells: &[CellResult], seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    order.sort_by_key(|&i| cells[i].spec.preparation == Preparation::ZeroFilledWait);
    order
}

/// The fill that runs beside a measurement: one preallocated file after the other, rate-limited, until
/// stopped.
fn fill_beside(preparer: &Preparer, stop: &AtomicBool) -> Result<(), LabError> {
    let path = preparer.dir.join("filled-beside");
    while !stop.load(Ordering::Relaxed) {
        let options = FillOptions {
            bytes_per_second: prepare::BESIDE_FILL_BYTES_PER_S,
            // The cell needs zeroes written at a rate; WRITE_ZEROES would be a series of unpaced calls.
            write_zeroes: false,
            // Small enough that a round contains whole files: zeroes, fsync, rename, directory fsync.
            ..FillOptions::new(FileClass::Scratch, 24 << 20)
        };
        match Fill::begin(preparer.disk.clone(), &path, options)?.run(&SystemClock::default(), stop) {
            Ok(_) => preparer.disk.remove(&path)?,
            Err(e) if e.kind == seawall_io::IoErrorKind::Cancelled => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Measures one cell on an existing file, unchanged: for comparing the lab with another program on the same
/// file.
///
/// # Errors
/// When the file cannot be opened as the cell requires, or on an error of the disk.
pub fn measure_on(
    path: &Path,
    spec: &CellSpec,
    limits: &Limits,
    backend: Backend,
    seed: u64,
) -> Result<Round, LabError> {
    let disk = OsDisk::synchronous();
    let file = prepare::Prepared::existing(&disk, path, spec)?;
    let (merged, seconds) = work::round(spec, &file, limits, backend, seed, &AtomicBool::new(false))?;
    Ok(merged.into_round(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

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
