//! Directories that are kept open so that they can be synced.
//!
//! 1. Syncing a directory that was synced before needs no new descriptor: a process without free descriptors
//!    can still make a rename durable.
//! 2. A kept descriptor is used only while the path still leads to its directory.
//! 3. At most [`KEPT`] are kept; the least recently used one is closed first. No mutex is held while a
//!    directory is synced.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of directories kept open: a database needs those of its data and its log, and their
/// parents while it is created.
const KEPT: usize = 6;

/// Descriptors by path, the most recently used at the end.
#[derive(Debug, Default)]
pub(super) struct Dirs(Mutex<Vec<(PathBuf, Arc<OwnedFd>)>>);

impl Dirs {
    /// Returns the kept descriptor of a directory, or opens it.
    pub(super) fn open(&self, path: &Path) -> Result<Arc<OwnedFd>, Errno> {
        let is_there = super::uninterrupted(|| rustix::fs::stat(path))?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| known == path) {
            let (name, dir) = kept.remove(at);
            let is_kept = rustix::fs::fstat(&*dir)?;
            if (is_there.st_dev, is_there.st_ino) == (is_kept.st_dev, is_kept.st_ino) {
                kept.push((name, dir.clone()));
                return Ok(dir);
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = Arc::new(super::uninterrupted(|| rustix::fs::open(path, flags, Mode::empty()))?);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((path.into(), dir.clone()));
        Ok(dir)
    }
}
