//! The database's record of the backups taken of it.
//!
//! 1. An increment is accepted only on a backup in the record. Files that were put back (from a snapshot of the file
//!    system, or with `cp`) have the record of their own moment: later backups, which may contain changes that these
//!    files never had, are not in it. A restored database has no record.
//! 2. A backup is recorded when the log up to its end is durable, and before its manifest is written. So files that
//!    have it in their record have all its changes, and each backup with a manifest was recorded.
//! 3. The file is one block of names, written in place, the latest first. A write that a crash tears mixes old and new
//!    names, all of them valid. A name that it loses costs a full backup.

use super::manifest::{Name, read_small};
use crate::error::Result;
use seawall_io::{Create, Disk, IoError, IoErrorKind, Op, OpenHow, SyncHow, WriteHow};
use std::io::IoSlice;
use std::path::Path;

/// The record, in the database's directory.
const FILE: &str = "backup.history";
/// The number of backups that it has room for: those taken, or used as a base, the longest ago are dropped.
const NAMES: usize = 256;
const NAME_BYTES: usize = 16;

/// The backups taken of a database, the latest first.
#[derive(Debug)]
pub(super) struct Taken(Vec<Name>);

impl Taken {
    /// Reads the record of the database in `dir`.
    ///
    /// # Errors
    /// Disk errors.
    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Self> {
        let bytes = read_small(disk, &dir.join(FILE))?.unwrap_or_default();
        let names = bytes.chunks_exact(NAME_BYTES).map(|name| Name(name.try_into().expect("as long as a name")));
        Ok(Self(names.filter(|name| *name != Name::default()).collect()))
    }

    pub(super) fn has(&self, name: Name) -> bool {
        self.0.contains(&name)
    }

    /// Records a backup, and that its base is in use, durably.
    ///
    /// # Errors
    /// Disk errors.
    pub(super) fn note(&mut self, disk: &dyn Disk, dir: &Path, name: Name, base: Option<Name>) -> Result<()> {
        self.0.retain(|known| *known != name && Some(*known) != base);
        self.0.splice(0..0, [name].into_iter().chain(base));
        self.0.truncate(NAMES);
        let mut block = [0; NAMES * NAME_BYTES];
        for (slot, name) in block.chunks_exact_mut(NAME_BYTES).zip(&self.0) {
            slot.copy_from_slice(&name.0);
        }
        let path = dir.join(FILE);
        let file = disk.open(&path, OpenHow { write: true, create: Create::IfMissing, ..OpenHow::default() })?;
        if disk.write_at(&file, 0, &[IoSlice::new(&block)], WriteHow::default())? < block.len() {
            return Err(IoError::new(Op::Write, &path, IoErrorKind::NoProgress).into());
        }
        disk.sync(&file, SyncHow::All)?;
        Ok(disk.sync_dir(dir)?)
    }
}
