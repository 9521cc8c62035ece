//! Log that a backup still needs: files before the checkpoint that are not recycled.
//!
//! 1. The bytes read from a segment file belong to that segment only if the hold is still unbroken *after* the read: a
//!    broken hold releases its files, which are then renamed and overwritten.
//! 2. A hold never makes a writer wait: it has a bound, and exceeding the bound breaks the hold and does not
//!    stop the writers (`segments.rs`, 8).
//! 3. An end that is decided outside the backup (`Log::fix_hold_end`) is the end of a whole entry, durable, and not
//!    before what is already copied: the copier reads [`Log::durable_whole`] before it asks for the end, and
//!    `fix_hold_end` reads the same counter under the mutex that [`LogHold::end`] takes.

use super::Log;
use super::segments::{Broken, HoldEnd};
use crate::error::{Error, Result};
use crate::format::Lsn;
use std::path::PathBuf;
use std::sync::Arc;

/// Keeps the log from a position on until it is dropped. There is at most one.
#[derive(Debug)]
pub struct LogHold {
    log: Arc<Log>,
    max_bytes: u64,
}

impl Log {
    /// Keeps the log from the last checkpoint on. If more than `max_bytes` before later checkpoints would be kept, the
    /// hold is broken. Returns `None` while there is another hold.
    #[must_use]
    pub fn hold(self: &Arc<Self>, max_bytes: u64) -> Option<LogHold> {
        self.segments.hold(max_bytes)?;
        Some(LogHold { log: self.clone(), max_bytes })
    }

    /// Decides the end of the held log, if the copier waits for the decision: a durable position after everything that
    /// is published when this is called. Returns `None` if the copier does not wait.
    ///
    /// # Errors
    /// As [`Log::flush_to`].
    pub fn fix_hold_end(&self) -> Result<Option<Lsn>> {
        if !matches!(self.segments.hold_end(|_| {}), Some(HoldEnd::Ready | HoldEnd::At(_))) {
            return Ok(None);
        }
        self.flush_to(self.head())?;
        let fix = |end: &mut HoldEnd| {
            if *end == HoldEnd::Ready {
                *end = HoldEnd::At(self.durable_whole().0);
            }
        };
        match self.segments.hold_end(fix) {
            Some(HoldEnd::At(at)) => Ok(Some(Lsn(at))),
            // The backup has failed meanwhile, and another may have begun.
            _ => Ok(None),
        }
    }
}

impl LogHold {
    /// Makes [`Log::fix_hold_end`], and not the backup, decide the end of the copy.
    pub fn ends_outside(&self) {
        self.log.segments.hold_end(|end| *end = HoldEnd::Outside);
    }

    /// Notes that all pages are copied, so that the end may be decided.
    pub fn pages_are_copied(&self) {
        self.log.segments.hold_end(|end| {
            if *end == HoldEnd::Outside {
                *end = HoldEnd::Ready;
            }
        });
    }

    /// Returns the end, if it was decided outside.
    #[must_use]
    pub fn end(&self) -> Option<Lsn> {
        match self.log.segments.hold_end(|_| {}) {
            Some(HoldEnd::At(at)) => Some(Lsn(at)),
            _ => None,
        }
    }

    /// Releases the log before `lsn`.
    ///
    /// # Errors
    /// As [`LogHold::check`].
    pub fn release_before(&self, lsn: Lsn) -> Result<()> {
        match self.log.segments.hold_from(lsn.0) {
            None => Ok(()),
            Some(Broken::Bound(held_bytes)) => {
                Err(Error::BackupTooSlow { held_bytes, max_bytes: self.max_bytes, disk_full: false })
            }
            Some(Broken::NoSpace) => {
                Err(Error::BackupTooSlow { held_bytes: 0, max_bytes: self.max_bytes, disk_full: true })
            }
        }
    }

    /// Checks that the hold was not broken.
    ///
    /// # Errors
    /// [`Error::BackupTooSlow`] when the hold was broken.
    pub fn check(&self) -> Result<()> {
        self.release_before(Lsn::ZERO)
    }

    /// Returns the path of the segment that `lsn` lies in.
    #[must_use]
    pub fn path_at(&self, lsn: Lsn) -> PathBuf {
        self.log.segments.path_at(lsn.0)
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.log.segments.hold_ends();
    }
}
