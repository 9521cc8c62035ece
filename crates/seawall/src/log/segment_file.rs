//! One segment of the log: its name, and how it is opened.

use super::LogConfig;
use super::ring_file::POINTER;
use crate::error::{Corruption, Error, Result};
use seawall_io::{Disk, File, FileClass, FileOptions, FlushMethod, IoError, IoErrorKind, IoStats};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "redo.";

/// Returns the path of segment `number`.
pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{number:016x}"))
}

/// Returns the number in the name of a segment.
pub(super) fn number_of(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let ours = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    ours.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Lists all segments in the log's directory, by number.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    Ok(disk.list(dir)?.into_iter().filter_map(|path| Some((number_of(&path)?, path))).collect())
}

/// Returns whether a file belongs to the log, by its name.
pub fn is_of_log(path: &Path) -> bool {
    number_of(path).is_some() || path.file_name() == Some(POINTER.as_ref())
}

/// Returns whether an opening with `log_dir` would not read this file of the log.
pub(super) fn is_passed_over(disk: &Arc<dyn Disk>, found: &Path, log_dir: &Path) -> Result<bool> {
    if found.parent() == Some(log_dir) {
        return Ok(false);
    }
    let identity =
        |path: &Path| File::open(disk.clone(), path, FileOptions::new(FileClass::Redo, FlushMethod::Fsync))?.identity();
    // The two directories may be names of one.
    let (here, other) = (identity(found)?, identity(&log_dir.join(found.file_name().unwrap_or_default())));
    Ok(!other.is_ok_and(|other| (other.device, other.inode) == (here.device, here.inode)))
}

/// Removes all segments, finished or not.
pub(super) fn discard(disk: &dyn Disk, dir: &Path) -> Result<()> {
    remove_unfinished(disk, dir)?;
    for path in list(disk, dir)?.into_values() {
        disk.remove(&path)?;
    }
    Ok(disk.sync_dir(dir)?)
}

/// Removes the files of interrupted fills; none may be in progress.
pub(super) fn remove_unfinished(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for path in disk.list(dir)? {
        let filling = path.extension().is_some_and(|e| e == seawall_io::FILLING);
        if filling && number_of(&path.with_extension("")).is_some() {
            disk.remove(&path)?;
        }
    }
    Ok(())
}

/// Opens a segment and locks it through the handle that will write it.
pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path, how: &SegmentOptions, written: bool) -> Result<File> {
    let options =
        FileOptions { known_written: written, ..FileOptions::new(FileClass::Redo, how.method).stats(&how.io) };
    let file = File::open(disk.clone(), path, options)?;
    lock(&file)?;
    let (found, expected) = (file.len(), how.segment_bytes);
    if found != expected {
        let why = format!(
            "this segment of the log has {found} bytes where {expected} were expected: it was truncated or copied only \
             in part. Restore it from a backup"
        );
        return Err(Corruption::File { path: path.into(), why }.into());
    }
    let needed = file.mode().align_bytes as usize;
    if how.block_bytes % needed != 0 {
        return Err(Error::InvalidOption {
            name: "log_block_bytes".into(),
            value: how.block_bytes.to_string(),
            why: format!("direct I/O on {} needs a multiple of {needed}", path.display()),
        });
    }
    Ok(file)
}

pub(super) fn lock(file: &File) -> Result<()> {
    file.lock().map_err(|e| match e.kind {
        IoErrorKind::Locked => Error::Locked { path: file.path().into(), in_this_process: false },
        _ => e.into(),
    })
}

/// How segment files are opened.
#[derive(Debug, Clone)]
pub(super) struct SegmentOptions {
    pub(super) method: FlushMethod,
    pub(super) io: Arc<IoStats>,
    pub(super) segment_bytes: u64,
    pub(super) block_bytes: usize,
    /// Free space to leave once there are enough files for the log to rotate, bytes.
    pub(super) reserve_bytes: u64,
    pub(super) written: bool,
}

impl SegmentOptions {
    pub(super) fn of(config: &LogConfig) -> Self {
        Self {
            method: config.method,
            io: config.stats.clone(),
            segment_bytes: config.segment_bytes,
            block_bytes: config.block_bytes,
            reserve_bytes: config.reserve_bytes,
            written: config.written,
        }
    }
}

/// Converts a full disk to [`Error::NoSpace`], and any other error unchanged.
pub(super) fn no_space(path: &Path, how: &SegmentOptions, error: IoError) -> Error {
    if !error.is_full() {
        return error.into();
    }
    let kept_free_bytes = if let IoErrorKind::Reserve { reserve, .. } = error.kind { reserve } else { 0 };
    Error::NoSpace { path: path.into(), needed_bytes: how.segment_bytes, kept_free_bytes }
}
