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
mod error;
mod log;
mod machine;
mod observe;
mod options;
mod prepare;
mod record;
mod rounds;
mod scratch;
mod sustained;
mod work;

use crate::cell::{CellSpec, Preparation};
use crate::results::{CellResult, EngineRun, FORMAT, Results, Round, RunSettings};
pub use engine::{
    Engine, EngineSizes, EngineWork, Issued, ROW_BYTES, Ready, TREE_TO_POOL, Worker, cached_bytes, files_below,
};
pub use error::LabError;
use error::{check_space, directory_error, not_a_directory};
pub use machine::{ForeignReading, device_counters, device_delta, this_machine};
pub use observe::{Observation, observe, pause};
pub use options::{FILE_BYTES_MIN, LabOptions, Limits, Progress, Silent};
use prepare::{Preparer, unavailable};
pub use rounds::{FOREIGN_CORES_MAX, FOREIGN_IO_MAX};
use scratch::Scratch;
use seawall_io::probe::{Probe, probe};
use seawall_io::{Backend, Disk as _, OsDisk};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A disk busier than this before the run is not measured without `force`.
const BUSY_MAX: f64 = 0.20;

/// A prepared run: the path is probed and checked, and nothing is written yet.
///
/// ```
/// use seawall_lab::run::{FILE_BYTES_MIN, Lab, LabOptions};
/// # let dir = tempfile::tempdir()?;
/// let options = LabOptions { file_bytes: FILE_BYTES_MIN, ..LabOptions::new(dir.path()) };
/// match Lab::new(options) {
///     Ok(lab) => println!("needs {} MiB", lab.bytes_needed() >> 20),
///     Err(error) => assert!(error.to_string().contains("free above the reserve"), "{error}"),
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
    /// use seawall_lab::run::{Lab, LabOptions};
    /// let this_program = std::env::current_exe()?;
    /// let error = Lab::new(LabOptions::new(&this_program)).unwrap_err();
    /// assert!(error.to_string().contains("is not a directory"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(mut options: LabOptions) -> Result<Self, LabError> {
        // Whole chunks, so that every write of the preparation is aligned.
        options.file_bytes -= options.file_bytes % (1 << 20);
        if !options.path.is_dir() && options.path.exists() {
            return Err(not_a_directory(&options.path));
        }
        if options.file_bytes < FILE_BYTES_MIN {
            return Err(LabError::Refused(format!("--size must be at least {} MiB", FILE_BYTES_MIN >> 20)));
        }
        if let Some(kind) = without_storage(&options.path) {
            let why = format!("{} is on {kind}, which shows kernel state and stores nothing", options.path.display());
            return Err(LabError::Refused(format!("{why}: give a directory on the disk to measure")));
        }
        let disk = OsDisk::new(options.backend, None).map_err(|e| LabError::Refused(e.to_string()))?;
        let backend = format!("{} ({})", disk.backend().name, disk.backend().reason);
        let probe = probe(&options.path)?;
        let device = probe.device.known().map(|d| d.name.clone());
        let lab = Self { options, probe, backend, device };
        check_space(&lab.probe.path, lab.probe.free_bytes, lab.bytes_needed(), lab.options.reserve_bytes)?;
        Ok(lab)
    }

    /// The most bytes that the run uses at one time: the big file, and the larger of what a round adds and the engine's
    /// databases.
    pub fn bytes_needed(&self) -> u64 {
        let sizes = EngineSizes::of(self.options.file_bytes);
        let needs_engine = self.options.sustain.is_none() && self.options.plan().iter().any(|c| c.engine.is_some());
        let engine = if needs_engine { sizes.disk_bytes() } else { 0 };
        self.options.file_bytes + self.round_bytes().max(engine)
    }

    /// The most bytes that one round uses in addition to the big file: a file growing as large, the concurrent fill,
    /// and the files that wait after their zero-fill.
    fn round_bytes(&self) -> u64 {
        let waits = |cell: &&CellSpec| cell.preparation == Preparation::ZeroFilledWait;
        let waiting = self.options.plan().iter().filter(waits).count() as u64;
        self.options.file_bytes + (192 << 20) + waiting * prepare::FRESH_BYTES
    }

    /// Waits up to half a minute for other disk use to end (recent writes of other programs may still be
    /// written back).
    fn wait_for_quiet(&self, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<(), LabError> {
        const TRIES: u64 = 30;
        let Some(device) = self.device.as_deref().filter(|_| !self.options.force) else { return Ok(()) };
        progress.begin("waiting for a quiet disk", TRIES);
        let (mut tries, mut busy) = (0, None);
        let known = observe(device, Duration::from_secs(1), None, stop, |second| {
            let (share, bytes) = (second.busy(), second.delta.read_bytes + second.delta.written_bytes);
            let bytes_per_s = bytes as f64 / second.seconds;
            busy = (share > BUSY_MAX || bytes_per_s > FOREIGN_IO_MAX)
                .then(|| format!("{:.0}% busy with {:.1} MB/s of others' I/O", share * 100.0, bytes_per_s / 1e6));
            tries += 1;
            if let Some(busy) = &busy {
                progress.at(tries, &format!("{device} is {busy}"));
            }
            busy.is_some() && tries < TRIES
        });
        if stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let Some(busy) = busy.filter(|_| known) else { return Ok(()) };
        let hint = "what is measured now would say little; stop the other work, wait, or give --force";
        Err(LabError::Refused(format!("the disk {device} is {busy}: {hint}")))
    }

    /// Runs the plan without an engine: engine cells are left out and listed as skipped. Otherwise like
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
        let results = self.empty_results();
        let disk = Arc::new(OsDisk::synchronous());
        let LabOptions { file_bytes: base_bytes, seed, reserve_bytes, .. } = self.options;
        let scratch = Scratch::create(&disk, &self.probe.path, self.bytes_needed(), reserve_bytes)?;
        let (dir, base) = (scratch.dir.clone(), scratch.dir.join("base"));
        let preparer = Preparer { disk, dir, base, base_bytes, seed, stop, filled_ahead: Default::default() };
        let mut run = Run { lab: self, preparer, results, progress };
        let ended = run.measure(engine);
        let mut results = run.results;
        results.cells.retain(|c| !c.rounds.is_empty());
        let empty = results.cells.is_empty() && results.sustain.is_none();
        match ended {
            Ok(()) => Ok(Results { complete: true, ..results }),
            Err(e) if empty => Err(e),
            Err(LabError::Interrupted) => Ok(results),
            Err(e) => Err(LabError::Cut { results: Box::new(results), cause: e.to_string() }),
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
}

/// A run under way.
struct Run<'a> {
    lab: &'a Lab,
    preparer: Preparer<'a>,
    results: Results,
    progress: &'a mut dyn Progress,
}

impl Run<'_> {
    fn measure(&mut self, engine: Option<&mut dyn Engine>) -> Result<(), LabError> {
        let Self { preparer, progress, .. } = self;
        progress.begin("writing the scratch file", preparer.base_bytes >> 20);
        let written = |bytes| progress.at(bytes >> 20, "MiB written");
        preparer.write_file(&preparer.base, preparer.base_bytes, written)?;
        match self.lab.options.sustain {
            Some(duration) => self.sustain(duration),
            None => self.phases(engine),
        }
    }

    /// The disk's cells, then the engine's.
    fn phases(&mut self, engine: Option<&mut dyn Engine>) -> Result<(), LabError> {
        const NO_ENGINE: &str = "this program runs the lab without the engine; `seawall lab` has it";
        let Lab { options, probe, .. } = self.lab;
        for spec in options.plan() {
            let lacking = (spec.engine.is_some() && engine.is_none()).then(|| NO_ENGINE.to_owned());
            match lacking.or_else(|| unavailable(&spec, probe)) {
                Some(reason) => self.results.skip(&spec, reason),
                None => self.results.cells.push(CellResult { id: spec.id(), spec, rounds: Vec::new() }),
            }
        }
        let specs = self.results.cells.iter().map(|c| c.spec);
        let (cells, disk): (Vec<CellSpec>, Vec<CellSpec>) = specs.partition(|spec| spec.engine.is_some());
        if !disk.is_empty() {
            self.rounds(None)?;
        }
        let Some(engine) = engine.filter(|_| !cells.is_empty()) else { return Ok(()) };
        let seawall_toml = crate::settings::recommend(&self.results).to_toml();
        let dir = self.preparer.dir.join("engine");
        std::fs::create_dir(&dir).map_err(|e| directory_error(&dir, &e))?;
        let (sizes, seed, stop) = (EngineSizes::of(options.file_bytes), options.seed, self.preparer.stop);
        let work = EngineWork { dir: &dir, specs: &cells, sizes, seed, seawall_toml: &seawall_toml, stop };
        engine.make(&work, self.progress)?;
        let EngineSizes { tree_bytes, range_rows, rows, warehouses, customers, .. } = sizes;
        let pool_bytes = sizes.pool_bytes();
        self.results.engine =
            Some(EngineRun { tree_bytes, pool_bytes, range_rows, rows, warehouses, customers, seawall_toml });
        self.rounds(Some(engine))
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
    work::round(spec, &file, limits, backend, seed, &AtomicBool::new(false))
}
