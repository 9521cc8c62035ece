//! Directories that are kept open so that they can be synced, or because they are pinned.
//!
//! 1. Syncing a directory that was synced before needs no new descriptor: a process without free descriptors
//!    can still make a rename durable.
//! 2. A kept descriptor is used only while the path still leads to its directory.
//! 3. At most [`KEPT`] are kept; the least recently used one is closed first. No mutex is held while a
//!    directory is synced.
//! 4. The names in a pinned directory are those in the directory to which its path led when it was pinned, wherever it
//!    is moved and whatever takes its place.

use crate::class::Op;
use crate::error::IoError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Maximum number of directories kept open: a database needs those of its data and its log, and their
/// parents while it is created.
const KEPT: usize = 6;

type ByPath = Vec<(PathBuf, Arc<OwnedFd>)>;

#[derive(Debug, Default)]
pub(super) struct Dirs {
    /// The most recently used at the end.
    kept: Mutex<ByPath>,
    pinned: RwLock<ByPath>,
}

/// A name, and the pinned directory that it is in.
pub(super) struct Place<'a> {
    dir: Option<Arc<OwnedFd>>,
    pub(super) name: &'a Path,
}

impl Place<'_> {
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, |dir| dir.as_fd())
    }

    /// The owner of a file that root creates here, if that is another user: the owner of the directory, who must be
    /// able to open what a command of root's has made.
    pub(super) fn owner_of_new(&self) -> Option<(Uid, Gid)> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let stat = match &self.dir {
            Some(dir) => rustix::fs::fstat(dir),
            None => rustix::fs::stat(self.name.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."))),
        };
        let stat = stat.ok().filter(|stat| stat.st_uid != 0)?;
        Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)))
    }
}

/// Makes the directory `path`. One that root makes belongs to the owner of the directory that it is in.
///
/// # Errors
/// The kernel's refusal.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// seawall_io::create_dir(&dir.path().join("new"))?;
/// assert!(seawall_io::create_dir(&dir.path().join("new")).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn create_dir(path: &Path) -> crate::error::Result<()> {
    let mode = Mode::from_raw_mode(0o777);
    rustix::fs::mkdir(path, mode).map_err(|e| IoError::os(Op::Directory, path, e.raw_os_error()))?;
    if let Some((user, group)) = (Place { dir: None, name: path }).owner_of_new() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::open(path, flags, Mode::empty());
        // Where it cannot be changed, the directory is root's.
        made.and_then(|dir| rustix::fs::fchown(&dir, Some(user), Some(group))).unwrap_or_default();
    }
    Ok(())
}

/// As [`create_dir`], with the directories above it that are missing. One that is there is left as it is.
///
/// # Errors
/// The kernel's refusal.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// seawall_io::create_dir_all(&dir.path().join("a/b"))?;
/// seawall_io::create_dir_all(&dir.path().join("a/b"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn create_dir_all(path: &Path) -> crate::error::Result<()> {
    match create_dir(path) {
        Err(_) if path.is_dir() => Ok(()),
        Err(e) if e.errno() == Some(libc::ENOENT) => {
            let Some(above) = path.parent().filter(|above| *above != Path::new("")) else { return Err(e) };
            create_dir_all(above)?;
            // Another process may have made it meanwhile.
            create_dir_all(path)
        }
        made => made,
    }
}

pub(super) fn open_dir(path: &Path) -> Result<Arc<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    super::uninterrupted(|| rustix::fs::open(path, flags, Mode::empty())).map(Arc::new)
}

impl Dirs {
    /// Pins a directory, again if it was pinned before.
    pub(super) fn pin(&self, path: &Path) -> Result<(), Errno> {
        let dir = open_dir(path)?;
        let mut pinned = self.pinned.write().unwrap_or_else(PoisonError::into_inner);
        pinned.retain(|(known, _)| known != path);
        pinned.push((path.into(), dir));
        Ok(())
    }

    pub(super) fn pinned(&self, path: &Path) -> Option<Arc<OwnedFd>> {
        let pinned = self.pinned.read().unwrap_or_else(PoisonError::into_inner);
        pinned.iter().find(|(known, _)| known == path).map(|(_, dir)| dir.clone())
    }

    /// Where the file `path` is.
    pub(super) fn place<'a>(&self, path: &'a Path) -> Place<'a> {
        match (path.parent().and_then(|dir| self.pinned(dir)), path.file_name()) {
            (Some(dir), Some(name)) => Place { dir: Some(dir), name: Path::new(name) },
            _ => Place { dir: None, name: path },
        }
    }

    /// Returns the kept or pinned descriptor of a directory, or opens it.
    pub(super) fn open(&self, path: &Path) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(dir) = self.pinned(path) {
            return Ok(dir);
        }
        let is_there = super::uninterrupted(|| rustix::fs::stat(path))?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| known == path) {
            let (name, dir) = kept.remove(at);
            let is_kept = rustix::fs::fstat(&*dir)?;
            if (is_there.st_dev, is_there.st_ino) == (is_kept.st_dev, is_kept.st_ino) {
                kept.push((name, dir.clone()));
                return Ok(dir);
            }
        }
        let dir = open_dir(path)?;
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((path.into(), dir.clone()));
        Ok(dir)
    }
}
