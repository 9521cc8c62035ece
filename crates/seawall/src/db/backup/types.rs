//! How a backup is taken, and what it reports.

use std::path::PathBuf;

/// How a backup is taken.
///
/// ```
/// use seawall::BackupOptions;
/// let full_speed = BackupOptions { rate: 0, ..BackupOptions::default() };
/// assert_eq!(full_speed.incremental_from, None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupOptions {
    /// Bytes a second that it reads at most; 0 is as many as the disk gives.
    pub rate: u64,
    /// Bytes of log before the last checkpoint that it may keep from being reused, beyond `log_capacity`. Writers are
    /// never stopped: when they are so far ahead of the backup, it ends with [`crate::Error::BackupTooSlow`].
    pub held_log_max: u64,
    /// The directory of an earlier backup of this database: only pages that have changed since are copied.
    pub incremental_from: Option<PathBuf>,
    /// The end is decided by [`crate::Database::tell_backup_to_end`] in the process that has the database open. Until
    /// then the log is copied on. For a server whose own log must end at the same place.
    pub ends_when_told: bool,
}

impl Default for BackupOptions {
    /// A full backup at 64 MiB a second, with at most 4 GiB of held log.
    fn default() -> Self {
        Self { rate: 64 << 20, held_log_max: 4 << 30, incremental_from: None, ends_when_told: false }
    }
}

/// How far a backup has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages looked at.
    pub pages_read: u64,
    /// Pages there are to look at.
    pub pages: u64,
    /// Pages copied: those that hold something, and in an increment have changed.
    pub pages_copied: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// Whether all pages are copied, and the end, if it is to be told, is: [`crate::Backup::end`] may come.
    pub done: bool,
    /// Whether all pages are copied and the end is not yet told.
    pub waits: bool,
}

/// A backup that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupReport {
    /// Where recovery of the restored database begins, a position in the log.
    pub begin: u64,
    /// The position in the log of the state that it holds: everything that was committed before is in it, and nothing
    /// that came later.
    pub end: u64,
    /// Pages in it.
    pub pages: u64,
    /// Bytes of log in it.
    pub log_bytes: u64,
    /// Pages that were caught half-written and read again.
    pub read_again: u64,
    /// Whether it needs the backup before it.
    pub incremental: bool,
}

/// A file that a backup copies from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length now, bytes.
    pub len_bytes: u64,
}

/// What became of a backup that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupAnswer {
    /// No process listens there: none has the database open, or the one that has it has no socket (option
    /// `control_socket`).
    NoListener,
    /// It was broken off: what is there is an unfinished backup.
    Aborted,
    /// It was taken.
    Done(BackupReport),
}
