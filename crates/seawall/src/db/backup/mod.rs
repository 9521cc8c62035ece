//! Backups of an open database, while others write.
//!
//! ```text
//!   begin: log held from the checkpoint C, file not cut ──step: log and pages──> ... ──step──> end: log up to E ──manifest──> a backup at E
//! ```
//!
//! 1. A page of the copy is the page as it was on disk at some moment after C, whole: its checksum was verified, and it
//!    was read again when it was caught half-written. Everything that changed it before C is in it, because C is a
//!    checkpoint that was there before the first page was read.
//! 2. The copy has the log from C to E, and nothing behind E but zeroes. E is durable and lies at or behind the LSN of
//!    every page that was copied: a page is written only after its log. So redo from C makes exactly the state at E.
//! 3. The log from C on is held until it is copied (`log/hold.rs`). What is held is bounded: who writes faster than the
//!    backup copies is not stopped, the backup is.
//! 4. The file does not become shorter meanwhile (`space/shrink.rs`, 5). Pages that it grew by are made by the log.
//! 5. An increment has the pages whose LSN lies behind the *begin* of the backup before it, not behind its end: what
//!    changed between the two is in the log of that backup, which the restored database does not replay.
//! 6. Files are read by direct I/O where the file system has it: a backup leaves no page cache, whatever the flush
//!    methods are.
//! 7. E is the log's end when all is copied, or, with `ends_when_told`, when the process says so: then the copier goes
//!    on copying log until that moment, and copies nothing behind it.
//! 8. No latch, lock or mutex is held across its I/O, and it takes part in no commit.

mod client;
mod copy;
pub(super) mod manifest;
mod restore;
pub(super) mod socket;
mod types;

pub use restore::Restored;
pub use types::{BackupAnswer, BackupFile, BackupOptions, BackupProgress, BackupReport};

use super::database::Database;
use crate::error::{Error, Result};
use copy::{Copying, Subject, take};
use std::ops::ControlFlow;
use std::path::Path;

/// A backup under way: the three steps that a server's hooks call. Dropped before its end, it leaves an unfinished
/// backup that no opening takes for a database, and lets go of what it held.
#[derive(Debug)]
pub struct Backup {
    copying: Copying,
}

impl Database {
    /// Begins a backup into `dir`, which must be new or empty: a checkpoint, from which on the log is held. One at a
    /// time.
    ///
    /// # Errors
    /// [`Error::BadBackup`] when `dir` is not empty or `incremental_from` does not fit; [`Error::Usage`] while another
    /// backup is under way; [`Error::NoSpace`] when the file system of `dir` is full; [`Error::Poisoned`];
    /// [`Error::Io`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, copy, again) = (dir.path().join("db"), dir.path().join("copy"), dir.path().join("again"));
    /// use seawall::{BackupOptions, Database};
    /// let db = Database::open(&path)?;
    /// let tree = db.create_tree("t")?;
    /// let mut backup = db.backup_begin(&copy, &BackupOptions::default())?;
    /// while !backup.step(1 << 20)?.done {}
    /// db.transact(|tx| tx.put(&tree, b"before", b"the end"))?;
    /// let report = backup.end()?;
    /// assert!(report.begin < report.end && report.end <= db.stats().log.head_lsn);
    /// Database::restore(&[&copy], &again)?;
    /// assert!(Database::open(&again)?.begin()?.open_tree("t").is_ok());
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn backup_begin(&self, dir: impl AsRef<Path>, options: &BackupOptions) -> Result<Backup> {
        self.here()?;
        Ok(Backup { copying: Copying::begin(self.subject(), dir.as_ref(), options)? })
    }

    /// Takes a backup into `dir`, which must be new or empty, while others read and write. All of it is durable when
    /// this returns.
    ///
    /// # Errors
    /// As [`Database::backup_begin`] and [`Backup::step`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use seawall::{BackupOptions, Database};
    /// # let db = Database::open(dir.path().join("db"))?;
    /// let report = db.backup_to(dir.path().join("monday"), &BackupOptions::default())?;
    /// let since = BackupOptions { incremental_from: Some(dir.path().join("monday")), ..BackupOptions::default() };
    /// db.backup_to(dir.path().join("tuesday"), &since)?;
    /// Database::restore(&[dir.path().join("monday"), dir.path().join("tuesday")], dir.path().join("restored"))?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn backup_to(&self, dir: impl AsRef<Path>, options: &BackupOptions) -> Result<BackupReport> {
        let done = self.backup_to_with(dir, options, |_| ControlFlow::Continue(()))?;
        done.ok_or_else(|| Error::Usage("a backup that is not broken off has an end".into()))
    }

    /// The same; `go_on` is called after each step: `Break` ends it, and what is there is an unfinished backup. `None`
    /// then.
    ///
    /// # Errors
    /// As [`Database::backup_to`].
    pub fn backup_to_with(
        &self,
        dir: impl AsRef<Path>,
        options: &BackupOptions,
        go_on: impl FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<Option<BackupReport>> {
        self.here()?;
        take(self.subject(), dir.as_ref(), options, go_on)
    }

    /// Itself, which the backup keeps open.
    fn subject(&self) -> Subject {
        Subject::of(self.inner.engine(), &self.inner.path, Box::new(self.clone()))
    }

    /// Decides the end of the backup under way, if it was begun with [`BackupOptions::ends_when_told`] and has copied
    /// all pages: everything that was committed before this call is in it, and nothing whose commit begins after this
    /// has returned. Flushes the log; the backup copies the rest of it by itself. Returns the position, or `None` when
    /// no backup waits for it.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::ShutDown`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    /// use seawall::{BackupOptions, Database};
    /// let db = Database::open(&path)?;
    /// let told = BackupOptions { ends_when_told: true, ..BackupOptions::default() };
    /// let mut backup = db.backup_begin(&copy, &told)?;
    /// while !backup.step(1 << 20)?.waits {}
    /// let end = db.tell_backup_to_end()?;
    /// while !backup.step(1 << 20)?.done {}
    /// assert_eq!(Some(backup.end()?.end), end);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn tell_backup_to_end(&self) -> Result<Option<u64>> {
        let _running = self.running()?;
        Ok(self.inner.engine().log().fix_hold_end()?.map(|end| end.0))
    }
}

impl Backup {
    /// The files that are copied from, as they are now: the data file, and the log from the begin on.
    #[must_use]
    pub fn files(&self) -> Vec<BackupFile> {
        self.copying.files()
    }

    /// Copies about `bytes_max` bytes of log and pages, at most; waits as `rate` demands. More than nothing, if there
    /// is more.
    ///
    /// # Errors
    /// [`Error::BackupTooSlow`]; [`Error::Corrupt`] for a page that is damaged on disk, and not only half-written;
    /// [`Error::NoSpace`] when the file system of the backup is full; [`Error::Poisoned`]; [`Error::Io`]. After an
    /// error the backup is to be dropped.
    pub fn step(&mut self, bytes_max: u64) -> Result<BackupProgress> {
        self.copying.step(bytes_max)
    }

    /// Ends the backup at the log's present end: everything that is committed when this is called is in it. The log
    /// that is not yet copied is copied without regard to `rate`; then the copy of the log is read through, and all is
    /// made durable.
    ///
    /// # Errors
    /// [`Error::Usage`] when not all pages are copied; else as [`Backup::step`].
    pub fn end(self) -> Result<BackupReport> {
        self.copying.end()
    }
}
