//! Backups of an open database, while others write.
//!
//! ```text
//!   begin: log held from the checkpoint C, file not cut ──step: log and pages──> ... ──step──> end: log up to E ──manifest──> a backup at E
//! ```
//!
//! 1. A page of the copy is whole, as it was on disk at some moment after C: its checksum was verified, and a page that
//!    was caught half-written was read again. It contains every change made before C, because the checkpoint C existed
//!    before the first page was read.
//! 2. The copy has the log from C to E, and only zeroes after E. E is durable and not before the LSN of any copied
//!    page, because a page is written only after its log. So redo from C produces exactly the state at E.
//! 3. The log from C on is held until it is copied (`log/hold.rs`). The amount held is bounded: if writers are faster
//!    than the backup copies, the backup is stopped, not the writers.
//! 4. The data file is not shortened meanwhile (`space/shrink.rs`, 5). Redo creates the pages that it grew by.
//! 5. An increment has the pages whose LSN is after the *begin* of the backup before it, not after its end: the changes
//!    between the two are in the log of that backup, which the restored database does not replay.
//! 6. Files are read with direct I/O where the file system supports it: a backup leaves nothing in the page cache,
//!    whatever the flush methods are.
//! 7. E is the end of the log when everything is copied. With `ends_when_told`, E is its end when the process says so:
//!    the copier copies log until that moment, and none after E.
//! 8. A backup holds no latch, lock or mutex across its I/O, and takes part in no commit.

mod client;
mod copy;
pub(super) mod manifest;
mod restore;
pub(super) mod socket;
pub(super) mod taken;
mod types;

pub use restore::Restored;
pub use types::{BackupAnswer, BackupFile, BackupOptions, BackupProgress, BackupReport};

use super::database::Database;
use crate::error::{Error, Result};
use copy::{Copying, Subject, take};
use std::ops::ControlFlow;
use std::path::Path;

/// A running backup, in three steps that a server's hooks can call. If it is dropped before its end, it releases what
/// it held and leaves an unfinished backup, which no opening takes for a database.
#[derive(Debug)]
#[must_use = "a backup that is dropped before its end is unfinished"]
pub struct Backup {
    copying: Copying,
}

impl Database {
    /// Begins a backup into `dir`, which must be new or empty. Writes a checkpoint; the log is held from there on. Only
    /// one backup can run at a time.
    ///
    /// # Errors
    /// [`Error::BadBackup`] if `dir` is not empty or `incremental_from` does not fit; [`Error::Usage`] while another
    /// backup runs; [`Error::NoSpace`] if the file system of `dir` is full; [`Error::Poisoned`]; [`Error::Io`].
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

    /// Takes a backup into `dir`, which must be new or empty, while others read and write. The backup is durable when
    /// this returns.
    ///
    /// # Errors
    /// Those of [`Database::backup_begin`] and [`Backup::step`].
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

    /// Like [`Database::backup_to`]. `go_on` is called after each step; `Break` stops the backup, which stays
    /// unfinished. The result is then `None`.
    ///
    /// # Errors
    /// Those of [`Database::backup_to`].
    pub fn backup_to_with(
        &self,
        dir: impl AsRef<Path>,
        options: &BackupOptions,
        go_on: impl FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<Option<BackupReport>> {
        self.here()?;
        take(self.subject(), dir.as_ref(), options, go_on)
    }

    /// Returns this database as the subject of a backup, which keeps it open.
    fn subject(&self) -> Subject {
        Subject::of(self.inner.engine(), &self.inner.path, Box::new(self.clone()))
    }

    /// Decides the end of the running backup, if it was begun with [`BackupOptions::ends_when_told`] and has copied all
    /// pages. The backup then has everything that was committed before this call, and nothing whose commit begins after
    /// this has returned. Flushes the log; the backup copies the rest of it by itself. Returns the position of the end,
    /// or `None` if no backup waits for it.
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
    /// Returns the files that are copied, as they are now: the data file, and the log from the begin on.
    #[must_use]
    pub fn files(&self) -> Vec<BackupFile> {
        self.copying.files()
    }

    /// Copies about `bytes_max` bytes of log and pages, or all that is left, and waits as `rate` demands. Less than 512
    /// KiB counts as 512 KiB.
    ///
    /// # Errors
    /// [`Error::BackupTooSlow`]; [`Error::Corrupt`] for a page that is damaged on disk, not just half-written;
    /// [`Error::NoSpace`] if the file system of the backup is full; [`Error::Poisoned`]; [`Error::Io`]. After an error,
    /// drop the backup.
    pub fn step(&mut self, bytes_max: u64) -> Result<BackupProgress> {
        self.copying.step(bytes_max)
    }

    /// Ends the backup at the current end of the log, so that it has everything committed before this call (with
    /// [`BackupOptions::ends_when_told`]: at the end that was decided). Copies the rest of the log without regard to
    /// `rate`, reads the copy of the log through, and makes everything durable.
    ///
    /// # Errors
    /// [`Error::Usage`] if not all pages are copied, or the end is not yet decided; those of [`Backup::step`].
    pub fn end(self) -> Result<BackupReport> {
        self.copying.end()
    }
}
