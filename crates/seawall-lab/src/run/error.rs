//! Why a run, or a cell of it, could not be measured.

use crate::results::Results;
use seawall_io::{IoError, Op};
use std::path::Path;

/// Why a run, or a cell of it, could not be measured.
///
/// ```
/// use seawall_lab::run::{Lab, LabOptions};
/// # let dir = tempfile::tempdir()?;
/// let tiny = LabOptions { file_bytes: 4096, ..LabOptions::new(dir.path()) };
/// assert_eq!(Lab::new(tiny).unwrap_err().to_string(), "--size must be at least 16 MiB");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The run cannot start or go on: the reason, and what to do about it.
    #[error("{0}")]
    Refused(String),
    /// An error of the disk.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The engine failed.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// A cell cannot be measured here.
    #[error("{0}")]
    Unavailable(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The run stopped after some cells had been measured.
    #[error("{cause}")]
    Cut {
        /// The measurements so far.
        results: Box<Results>,
        /// The cause.
        cause: String,
    },
}

/// Checks that `needed` of the `free` bytes below `path` can be used above the reserve.
pub(super) fn check_space(path: &Path, free: u64, needed: u64, reserve: u64) -> Result<(), LabError> {
    let available = free.saturating_sub(reserve);
    if available >= needed {
        return Ok(());
    }
    let [available, reserve, needed] = [available, reserve, needed].map(|bytes| bytes >> 20);
    Err(LabError::Refused(format!(
        "{} has {available} MiB free above the reserve of {reserve} MiB, and this run may need {needed} MiB; free some \
         space, or give a smaller --size or --reserve",
        path.display()
    )))
}

/// The error of creating a directory.
pub(super) fn directory_error(dir: &Path, error: &std::io::Error) -> LabError {
    IoError::os(Op::Directory, dir, error.raw_os_error().unwrap_or(5)).into()
}

/// Refuses a path that is not a directory.
pub(super) fn not_a_directory(path: &Path) -> LabError {
    let hint = "give a directory on the disk to measure, such as the database's data directory";
    LabError::Refused(format!("{} is not a directory: {hint}", path.display()))
}
