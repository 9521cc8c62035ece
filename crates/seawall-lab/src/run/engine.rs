//! Measuring the engine: the lab measures time, counts and judges; an implementation of [`Engine`] creates
//! the databases and does the work.
//!
//! ```text
//!   make ──databases filled──> prepare ──before each round──> worker, one a thread ──round over──> finish
//! ```
//!
//! 1. The lab does not depend on the engine: the crate with the workloads (`seawall-bench`) implements
//!    [`Engine`]. A run without one leaves these cells out and reports them as skipped.
//! 2. Creating, preparing and finishing are outside the timing; an operation is timed as a whole.
//! 3. All files are below the directory given to [`Engine::make`], which is removed with the lab's scratch
//!    directory.

use super::error::LabError;
use super::options::{Limits, Progress};
use super::work::on_threads;
use crate::cell::CellSpec;
use crate::results::Round;
use seawall_io::{Disk as _, OpenHow, OsDisk};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use walkdir::{DirEntry, WalkDir};

/// Approximate bytes of a row of a tree of E6, with its key and the engine's own bytes.
pub const ROW_BYTES: u64 = 200;
/// The largest tree of E6, bytes: a tree is built in memory, and its queries are cold whatever the size of the scratch
/// file.
const TREE_BYTES_MAX: u64 = 1 << 30;
/// A tree of E6 is this many times as large as the pool through which it is read.
pub const TREE_TO_POOL: u64 = 8;

/// The sizes of the engine's databases.
///
/// ```
/// use seawall_lab::run::EngineSizes;
/// let sizes = EngineSizes::of(512 << 20);
/// assert_eq!(sizes.tree_bytes, 256 << 20);
/// assert!(sizes.disk_bytes() < 4 << 30);
/// // A tree is built in memory, however large the scratch file is.
/// assert_eq!(EngineSizes::of(64 << 30).tree_bytes, 1 << 30);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSizes {
    /// Approximate bytes of each tree of E6.
    pub tree_bytes: u64,
    /// Rows of each range that a query reads.
    pub range_rows: u32,
    /// Rows of the table of E5's read-only and transactional loads.
    pub rows: u32,
    /// Customers of a TPC-C district; 3,000 are the specification's.
    pub customers: u32,
    /// TPC-C's items, scaled in proportion; the specification has 100,000.
    pub items: u32,
    /// TPC-C's warehouses: one per thread.
    pub warehouses: u16,
    /// The most log of a database of E5, bytes.
    pub log_bytes: u64,
}

impl EngineSizes {
    /// Scales the databases to the scratch file: for 512 MiB, trees of 256 MiB and TPC-C at a tenth.
    pub fn of(file_bytes: u64) -> Self {
        let tree_bytes = (file_bytes / 2).min(TREE_BYTES_MAX);
        let customers = (300 * (file_bytes >> 20) / 512).clamp(30, 3000) as u32;
        Self {
            tree_bytes,
            range_rows: (tree_bytes / ROW_BYTES / 100).clamp(100, 30_000) as u32,
            rows: (100_000 * (file_bytes >> 20) / 512).clamp(2000, 1_000_000) as u32,
            customers,
            items: customers * 100 / 3,
            warehouses: crate::plan::COMMIT_THREADS as u16,
            log_bytes: (file_bytes / 4).clamp(32 << 20, 128 << 20),
        }
    }

    /// Rows of each tree of E6.
    pub fn tree_rows(&self) -> u32 {
        u32::try_from(self.tree_bytes / ROW_BYTES).unwrap_or(u32::MAX)
    }

    /// The pool through which the trees of E6 are read, bytes.
    pub fn pool_bytes(&self) -> u64 {
        (self.tree_bytes / TREE_TO_POOL).max(1 << 20)
    }

    /// The most that all databases take together, bytes: trees with half-full leaves, and four databases of
    /// E5 that grow.
    pub fn disk_bytes(&self) -> u64 {
        let levels = u64::from(self.rows) * 1000 + self.log_bytes + (96 << 20);
        3 * self.tree_bytes + 5 * levels
    }
}

/// The input of [`Engine::make`].
///
/// ```no_run
/// # fn make(work: &seawall_lab::run::EngineWork<'_>) {
/// for spec in work.specs {
///     println!("{} below {}", spec.title(), work.dir.display());
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct EngineWork<'a> {
    /// An empty directory that is removed at the end of the run.
    pub dir: &'a Path,
    /// The cells to come.
    pub specs: &'a [CellSpec],
    /// The sizes.
    pub sizes: EngineSizes,
    /// Seed of every random choice.
    pub seed: u64,
    /// The recommended settings: a `seawall.toml`.
    pub seawall_toml: &'a str,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
}

/// Creates databases and runs work on them.
pub trait Engine {
    /// Creates what the cells need; called once, before the other methods.
    ///
    /// # Errors
    /// [`LabError::Interrupted`], [`LabError::Engine`].
    fn make(&mut self, work: &EngineWork<'_>, progress: &mut dyn Progress) -> Result<(), LabError>;

    /// Brings a database into the state that the cell needs.
    ///
    /// # Errors
    /// [`LabError`].
    fn prepare<'e>(&'e mut self, spec: &CellSpec, seed: u64) -> Result<Box<dyn Ready + 'e>, LabError>;
}

/// A database ready for one round.
pub trait Ready: Sync {
    /// The worker of one thread, created on that thread.
    ///
    /// # Errors
    /// [`LabError::Engine`].
    fn worker(&self, thread: u32) -> Result<Box<dyn Worker + '_>, LabError>;

    /// The database's directory.
    fn dir(&self) -> PathBuf;

    /// Writes and syncs that the engine issued since the database was ready.
    fn issued(&self) -> Issued;

    /// Ends the round and leaves no work that would run into the next one.
    ///
    /// # Errors
    /// [`LabError::Engine`].
    fn finish(self: Box<Self>) -> Result<(), LabError>;
}

/// The I/O that the engine issued.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Issued {
    /// Writes.
    pub writes: u64,
    /// Syncs, and writes that were durable when they returned.
    pub syncs: u64,
}

/// One thread's work.
pub trait Worker {
    /// Does one whole operation; returns whether there are more.
    ///
    /// # Errors
    /// [`LabError::Engine`].
    fn operation(&mut self) -> Result<bool, LabError>;
}

/// One round on a prepared database; observations of the machine are added by the caller.
pub(super) fn round(spec: &CellSpec, ready: &dyn Ready, limits: &Limits, stop: &AtomicBool) -> Result<Round, LabError> {
    let before = ready.issued();
    let mut round = on_threads(spec, limits, stop, |thread, turns| {
        let mut worker = ready.worker(thread)?;
        turns.repeat(|_| {
            let started = Instant::now();
            Ok(worker.operation()?.then_some(started))
        })
    })?;
    let after = ready.issued();
    round.writes_issued = after.writes.saturating_sub(before.writes);
    round.syncs_issued = after.syncs.saturating_sub(before.syncs);
    Ok(round)
}

/// Every file at or below `dir`; what cannot be listed is skipped.
///
/// ```
/// assert!(seawall_lab::run::files_below("src".as_ref()).iter().any(|file| file.ends_with("run/engine.rs")));
/// ```
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = WalkDir::new(dir).into_iter().flatten();
    entries.filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path).collect()
}

/// Bytes of the files below `dir` that are in the page cache; `None` when the kernel cannot report it for one of them.
///
/// ```
/// assert_eq!(seawall_lab::run::cached_bytes("no-such-directory".as_ref()), Some(0));
/// ```
pub fn cached_bytes(dir: &Path) -> Option<u64> {
    let (disk, mut sum) = (OsDisk::synchronous(), 0);
    for path in files_below(dir) {
        // Files can be removed at any time: a removed file takes no memory.
        let Ok(file) = disk.open(&path, OpenHow::default()) else { continue };
        sum += disk.cached(&file, disk.len(&file).ok()?).ok()?.resident;
    }
    Some(sum)
}
