//! The options of a run, the limits of a round, and progress.

use crate::cell::{CellSpec, Experiment};
use crate::plan;
use seawall_io::Backend;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    pub fn plan(&self) -> Vec<CellSpec> {
        let all = if self.full { plan::full() } else { plan::decisive() };
        let asked = |e: Experiment| self.only.is_empty() || self.only.contains(&e);
        let reads = [1, 32].map(plan::random_read);
        let beside = |c: &CellSpec| reads.contains(c) && asked(Experiment::RangePrefetch);
        all.into_iter().filter(|c| asked(c.experiment) || beside(c)).collect()
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
    /// Minimum number of operations; to reach it, a round continues for up to five times its time.
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
