//! The database's record of the backups taken of it.
//!
//! 1. An increment is accepted only on a backup in the record. A restored database has none.
//! 2. A backup is recorded with its end, when the log up to there is durable, and before its manifest is written. So
//!    every backup that has a manifest was recorded, unless the database's disk was full.
//! 3. An opening removes the backups that end after its log, before it writes to the log. The files that it found were
//!    put back (from a snapshot of the file system, or with `cp`) and never had the changes of these backups; once the
//!    log is longer, they could not be told from others any more. After a crash there are none.
//! 4. The file is one block of entries, written in place, the latest first; no entry crosses a sector. A write that a
//!    crash tears mixes old and new entries, all of them valid. An entry that it loses costs a full backup.

use super::manifest::{Name, read_small};
use crate::error::Result;
use crate::format::Lsn;
use seawall_io::{Create, Disk, IoError, IoErrorKind, Op, OpenHow, SyncHow, WriteHow};
use std::io::IoSlice;
use std::path::Path;

/// The record, in the database's directory.
pub(in crate::db) const FILE: &str = "backup.history";
/// The number of backups that it has room for: those taken, or used as a base, the longest ago are dropped.
const ENTRIES: usize = 128;
/// A name, the position of the end, and zeroes.
const ENTRY_BYTES: usize = 32;
const END: usize = 16;

/// The backups taken of a database, and their ends, the latest first.
#[derive(Debug)]
pub(in crate::db) struct Taken(Vec<(Name, Lsn)>);

impl Taken {
    /// Reads the record of the database in `dir`.
    ///
    /// # Errors
    /// Disk errors.
    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Self> {
        let bytes = read_small(disk, &dir.join(FILE))?.unwrap_or_default();
        let entries = bytes.chunks_exact(ENTRY_BYTES).map(|entry| {
            let (name, end) = (entry[..END].try_into(), entry[END..END + 8].try_into());
            (Name(name.expect("as long as a name")), Lsn(u64::from_le_bytes(end.expect("eight bytes"))))
        });
        Ok(Self(entries.filter(|(name, _)| *name != Name::default()).collect()))
    }

    pub(super) fn has(&self, name: Name) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    /// Records a backup, and that its base is in use, durably.
    ///
    /// # Errors
    /// Disk errors.
    pub(super) fn note(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        (name, end): (Name, Lsn),
        base: Option<Name>,
    ) -> Result<()> {
        self.0.retain(|(known, _)| *known != name);
        // The base becomes the second.
        self.0.sort_by_key(|(known, _)| Some(*known) != base);
        self.0.insert(0, (name, end));
        self.0.truncate(ENTRIES);
        self.write(disk, dir)
    }

    /// Removes the backups of the database in `dir` that end after its log, durably.
    ///
    /// # Errors
    /// Disk errors.
    pub(in crate::db) fn forget_abandoned(disk: &dyn Disk, dir: &Path, log_end: Lsn) -> Result<()> {
        let mut taken = Self::read(disk, dir)?;
        let before = taken.0.len();
        taken.0.retain(|(_, end)| *end <= log_end);
        if taken.0.len() == before { Ok(()) } else { taken.write(disk, dir) }
    }

    fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        let mut block = [0; ENTRIES * ENTRY_BYTES];
        for (entry, (name, end)) in block.chunks_exact_mut(ENTRY_BYTES).zip(&self.0) {
            entry[..END].copy_from_slice(&name.0);
            entry[END..END + 8].copy_from_slice(&end.0.to_le_bytes());
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
