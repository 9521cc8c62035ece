//! How a backup is taken, and what it reports.

use std::path::PathBuf;

/// Options of a backup.
///
/// ```
/// use seawall::BackupOptions;
/// let full_speed = BackupOptions { rate: 0, ..BackupOptions::default() };
/// assert_eq!(full_speed.incremental_from, None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupOptions {
    /// The most bytes to read a second; 0 for no limit.
    pub rate: u64,
    /// The most bytes of log before the last checkpoint that the backup may keep from being reused, beyond
    /// `log_capacity`. Writers are never stopped: if they get so far ahead of the backup, it ends with
    /// [`crate::Error::BackupTooSlow`].
    pub held_log_max: u64,
    /// The directory of an earlier backup of this database: only pages that have changed since are copied.
    pub incremental_from: Option<PathBuf>,
    /// [`crate::Database::tell_backup_to_end`] decides the end, in the process that has the database open. The backup
    /// copies log until then. For a server whose own log must end at the same place.
    pub ends_when_told: bool,
}

impl Default for BackupOptions {
    /// A full backup at 64 MiB a second, with at most 4 GiB of held log.
    fn default() -> Self {
        Self { rate: 64 << 20, held_log_max: 4 << 30, incremental_from: None, ends_when_told: false }
    }
}

/// The progress of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages read.
    pub pages_read: u64,
    /// Pages to read.
    pub pages: u64,
    /// Pages copied: those that are not empty and, in an increment, have changed.
    pub pages_copied: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// Whether all pages are copied and, with [`BackupOptions::ends_when_told`], the end is decided:
    /// [`crate::Backup::end`] can be called.
    pub done: bool,
    /// Whether all pages are copied and the end is not yet decided.
    pub waits: bool,
}

/// The report of a finished backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BackupReport {
    /// Where recovery of the restored database begins, a position in the log.
    pub begin: u64,
    /// The position in the log of the backup's state: it has everything that was committed before, and nothing that
    /// came later.
    pub end: u64,
    /// Pages in the backup.
    pub pages: u64,
    /// Bytes of log in the backup.
    pub log_bytes: u64,
    /// Pages that were caught half-written and read again.
    pub read_again: u64,
    /// Whether it is an increment, which needs the backup before it.
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

/// The outcome of a backup that another process was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupAnswer {
    /// No process listens: none has the database open, or the process that has it open has no socket (option
    /// `control_socket`).
    NoListener,
    /// The backup was stopped, and is unfinished.
    Aborted,
    /// The backup was taken.
    Done(BackupReport),
}
