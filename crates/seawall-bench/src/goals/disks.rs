//! The directories of the cells, on disks of every kind, and the means that slow a disk down.
//!
//! 1. Mounts, limits and files made here are removed on drop, after errors too.
//! 2. The limit is lifted while rows are created: it applies to measurements only.

use super::plan::{Cell, DiskKind, FLUSH_DELAY_MS, IOPS_MAX};
use crate::process;
use crate::store::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const SLOW_DISK: &str = include_str!("../../../../scripts/slow-disk");
const FLUSH_DELAY: &str = include_str!("../../../../scripts/flush_delay.c");
/// Size of the limited disk, MiB.
const IMAGE_MIB: u64 = 8192;
const SCRIPT_TIME: Duration = Duration::from_secs(300);

/// The disks.
#[derive(Debug)]
pub struct Disks<'r> {
    base: PathBuf,
    stop: &'r AtomicBool,
    /// Where the limited disk is mounted, if it is.
    few_iops: Option<PathBuf>,
    library: Option<PathBuf>,
}

impl<'r> Disks<'r> {
    /// Disks with all their files below `base`, which must exist.
    ///
    /// # Errors
    /// When the path cannot be resolved.
    pub fn new(base: &Path, stop: &'r AtomicBool) -> Result<Self, String> {
        let base = base.canonicalize().map_err(|e| format!("cannot use {}: {e}", base.display()))?;
        Ok(Self { base, stop, few_iops: None, library: None })
    }

    /// The directory of a cell's rows. Creates and mounts its disk if needed, and lifts its limit.
    ///
    /// # Errors
    /// Why this disk is not available here.
    pub fn dir(&mut self, cell: &Cell) -> Result<PathBuf> {
        let parent = match cell.disk {
            DiskKind::Plain | DiskKind::SlowFlush => self.base.clone(),
            DiskKind::FewIops => self.few_iops()?,
        };
        Ok(parent.join(&cell.rows))
    }

    fn few_iops(&mut self) -> Result<PathBuf> {
        if let Some(dir) = &self.few_iops {
            self.script("free", dir, self.stop, None)?;
            return Ok(dir.clone());
        }
        let dir = self.base.join("few-iops");
        let theirs = dir.with_extension("img").exists();
        if let Err(error) = self.script("up", &dir, self.stop, Some(IMAGE_MIB)) {
            // An interrupted script leaves parts of the disk. One that another process made stays.
            if !theirs {
                self.script("down", &dir, &AtomicBool::new(false), None).unwrap_or_default();
            }
            return Err(error);
        }
        Ok(self.few_iops.insert(dir).clone())
    }

    /// Applies the limit of a cell's disk.
    ///
    /// # Errors
    /// Why the limit cannot be applied.
    pub fn limit(&self, cell: &Cell) -> Result<()> {
        let (DiskKind::FewIops, Some(dir)) = (cell.disk, &self.few_iops) else { return Ok(()) };
        let said = self.script("limit", dir, self.stop, Some(IOPS_MAX))?;
        if said.trim().is_empty() {
            return Ok(());
        }
        let why = "a device is limited for all processes only by cgroup v1, whose blkio controller is not mounted here";
        Err(Error::Other(why.into()))
    }

    fn script(&self, command: &str, dir: &Path, stop: &AtomicBool, more: Option<u64>) -> Result<String> {
        let path = self.base.join("slow-disk.sh");
        std::fs::write(&path, SLOW_DISK).map_err(cannot_write(&path))?;
        let mut bash = Command::new("bash");
        bash.arg(&path).arg(command).arg(dir).args(more.map(|number| number.to_string()));
        Ok(process::run(bash, SCRIPT_TIME, stop)?.out)
    }

    /// The environment of a cell's process: the library that delays flushes, for stores that do their own
    /// I/O.
    ///
    /// # Errors
    /// When the library cannot be built.
    pub fn environment(&mut self, cell: &Cell) -> Result<Vec<(&'static str, String)>> {
        if cell.disk != DiskKind::SlowFlush || !cell.is_peer() {
            return Ok(Vec::new());
        }
        let library = match &self.library {
            Some(library) => library.clone(),
            None => {
                let (source, library) = (self.base.join("flush_delay.c"), self.base.join("flush_delay.so"));
                std::fs::write(&source, FLUSH_DELAY).map_err(cannot_write(&source))?;
                let mut cc = Command::new("cc");
                cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).args(["-ldl", "-pthread"]);
                process::run(cc, SCRIPT_TIME, self.stop)?;
                self.library.insert(library).clone()
            }
        };
        let us = FLUSH_DELAY_MS * 1000;
        Ok(vec![("LD_PRELOAD", library.display().to_string()), ("FLUSH_DELAY_US", us.to_string())])
    }

    /// Unmounts and removes the limited disk.
    pub fn release(&mut self) -> Result<()> {
        let Some(dir) = self.few_iops.take() else { return Ok(()) };
        // Also after Ctrl-C: the mount must be removed.
        self.script("down", &dir, &AtomicBool::new(false), None).map(drop)
    }
}

impl Drop for Disks<'_> {
    fn drop(&mut self) {
        // A drop cannot report an error; `mount` shows what remained.
        self.release().unwrap_or(());
        for name in ["slow-disk.sh", "flush_delay.c", "flush_delay.so"] {
            std::fs::remove_file(self.base.join(name)).unwrap_or(());
        }
    }
}

fn cannot_write(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |why| format!("cannot write {}: {why}; give another place with --dir", path.display()).into()
}
