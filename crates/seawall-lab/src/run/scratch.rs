//! The scratch directory: the lab writes only into one fresh directory, which is removed when the run ends.
//!
//! 1. The directory is created fresh and holds a locked file; no existing file is ever opened for writing.
//! 2. It is removed when dropped: at the end, on an error, on Ctrl-C. The next run removes the directory of a killed
//!    run, which it recognises by its name and its free lock. Before a new directory's lock is taken, another run can
//!    mistake the directory for that of a killed run and remove it; creation then starts again.
//! 3. Before anything is written, the space it may take is checked against the reserve.

use super::LabError;
use super::error::{check_space, directory_error, not_a_directory};
use seawall_io::{Create, Disk, Handle, OpenHow, OsDisk};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const PREFIX: &str = "seawall-lab-scratch-";
const LOCK: &str = "lock";
/// How often creation is retried after another run removed or locked the directory, before the error is returned.
const ATTEMPTS: u32 = 32;

#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) dir: PathBuf,
    _lock: Handle,
}

impl Scratch {
    /// Creates a fresh directory below `parent` after checking that `needed` bytes fit above `reserve`.
    pub(super) fn create(disk: &OsDisk, parent: &Path, needed: u64, reserve: u64) -> Result<Self, LabError> {
        if !parent.is_dir() {
            return Err(not_a_directory(parent));
        }
        sweep(disk, parent);
        check_space(parent, disk.free_bytes(parent)?, needed, reserve)?;
        let mut attempts = 0;
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
            let dir = dir.map_err(|e| directory_error(&parent.join(PREFIX), &e))?.keep();
            let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
            let locked = disk.open(&dir.join(LOCK), how).and_then(|lock| disk.lock(&lock).map(|()| lock));
            attempts += 1;
            match locked {
                // Another run may have removed the directory before the lock was taken.
                Ok(lock) if dir.join(LOCK).exists() => return Ok(Self { dir, _lock: lock }),
                Err(e) if attempts == ATTEMPTS => return Err(e.into()),
                _ => drop(std::fs::remove_dir_all(&dir)),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.dir) {
            // A closed standard error must not turn the clean-up into a panic.
            let dir = self.dir.display();
            drop(writeln!(std::io::stderr(), "seawall lab: could not remove {dir}: {e}; remove it by hand"));
        }
    }
}

/// Removes the directories of dead runs.
fn sweep(disk: &OsDisk, parent: &Path) {
    for path in disk.list(parent).unwrap_or_default() {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if !name.starts_with(PREFIX) || path.is_symlink() {
            continue;
        }
        // A run killed between creating its directory and its lock left an empty directory, so removing it loses
        // nothing.
        if std::fs::remove_dir(&path).is_ok() {
            continue;
        }
        // Only a directory whose lock file exists and is not locked belongs to a dead run.
        let Ok(lock) = disk.open(&path.join(LOCK), OpenHow { write: true, ..OpenHow::default() }) else { continue };
        if disk.lock(&lock).is_ok() {
            drop(std::fs::remove_dir_all(&path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_runs_directory_goes_and_a_live_ones_stays() {
        let parent = tempfile::tempdir().unwrap();
        let disk = OsDisk::synchronous();
        let dead = parent.path().join("seawall-lab-scratch-1");
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join(LOCK), "").unwrap();
        std::fs::write(dead.join("file"), "x").unwrap();
        let foreign = parent.path().join("seawall-lab-notes");
        std::fs::create_dir(&foreign).unwrap();
        let live = Scratch::create(&disk, parent.path(), 1, 0).unwrap();
        assert!(!dead.exists() && foreign.exists() && live.dir.exists());
        let second = Scratch::create(&disk, parent.path(), 1, 0).unwrap();
        assert!(live.dir.exists() && second.dir != live.dir);
        let (a, b) = (live.dir.clone(), second.dir.clone());
        drop((live, second));
        assert!(!a.exists() && !b.exists());
    }

    #[test]
    fn runs_that_begin_at_once_do_not_sweep_each_other() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::create_dir(parent.path().join("seawall-lab-scratch-7")).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let scratch = Scratch::create(&OsDisk::synchronous(), parent.path(), 1, 0).unwrap();
                        assert!(scratch.dir.join(LOCK).exists());
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_full_disk_is_refused_before_anything_is_made() {
        let parent = tempfile::tempdir().unwrap();
        let disk = OsDisk::synchronous();
        let e = Scratch::create(&disk, parent.path(), 1 << 60, 1 << 30).unwrap_err();
        assert!(e.to_string().contains("MiB free above the reserve of 1024 MiB"), "{e}");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
