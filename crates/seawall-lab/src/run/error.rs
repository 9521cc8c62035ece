//! Why a run, or a cell of it, could not be measured.

use super::options::FILE_BYTES_MIN;
use crate::results::Results;
use seawall_io::{BackendUnavailable, IoError, Op};
use std::path::{Path, PathBuf};

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
    #[error("{} is not a directory: give a directory on the disk to measure, such as the database's data \
             directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The path is on a file system without a disk.
    #[error("{} is on {kind}, which shows kernel state and stores nothing: give a directory on the disk to \
             measure", path.display())]
    NoStorage {
        /// The path.
        path: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// Too little space.
    #[error(
        "{} has {} MiB free above the reserve of {} MiB, and this run may need {} MiB; free some space, or give a \
         smaller --size or --reserve",
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
    #[error("{0}")]
    Unavailable(String),
    /// The run stopped after some cells had been measured.
    #[error("{cause}")]
    Cut {
        /// The measurements so far.
        results: Box<Results>,
        /// The cause.
        cause: Box<LabError>,
    },
}

/// Checks that `needed` of the `free` bytes below `path` can be used above the reserve.
pub(super) fn check_space(path: &Path, free: u64, needed: u64, reserve: u64) -> Result<(), LabError> {
    let available = free.saturating_sub(reserve);
    let space = LabError::NoSpace { path: path.into(), needed, available, reserve };
    if available < needed { Err(space) } else { Ok(()) }
}

/// The error of creating a directory.
pub(super) fn directory_error(dir: &Path, error: &std::io::Error) -> LabError {
    IoError::os(Op::Directory, dir, error.raw_os_error().unwrap_or(5)).into()
}

/// Why the engine did not run a cell.
///
/// ```
/// use seawall_lab::run::{EngineError, LabError};
/// let error: LabError = EngineError::Failed("no space".into()).into();
/// assert_eq!(error.to_string(), "the engine failed: no space");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine does not offer this here: the cell is left out.
    #[error("{0}")]
    Unavailable(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// An error that ends the run.
    #[error("the engine failed: {0}")]
    Failed(String),
}

impl From<EngineError> for LabError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Unavailable(reason) => Self::Unavailable(reason),
            EngineError::Interrupted => Self::Interrupted,
            failed @ EngineError::Failed(_) => Self::Engine(failed),
        }
    }
}
