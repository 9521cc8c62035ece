//! Log that a backup still needs: files before the checkpoint that are not recycled.
//!
//! 1. The bytes read from a segment are those of that segment only if the hold was unbroken *after* the read:
//!    a broken hold releases its files, which are then renamed and overwritten.
//! 2. A hold never makes a writer wait: it has a bound, and exceeding the bound breaks the hold and does not
//!    stop the writers (`segments.rs`, 8).
//! 3. An end that is decided outside (`Log::fix_hold_end`) is the end of whole entries, durable, and not before
//!    what the copier has copied: the copier reads [`Log::durable_whole`] first and asks for the end afterwards,
//!    and the end is read from the same counter under the mutex that the copier's question takes.

use super::Log;
use super::segments::{Broken, HoldEnd};
use crate::error::{Error, Result};
use crate::format::Lsn;
use std::path::PathBuf;
use std::sync::Arc;

/// Keeps the log from a position on as long as it lives. One at a time.
#[derive(Debug)]
pub struct LogHold {
    log: Arc<Log>,
    max_bytes: u64,
}

impl Log {
    /// Keeps the log from the last checkpoint on. If more than `max_bytes` before later checkpoints would be
    /// kept, the hold is broken. `None` while there is another hold.
    #[must_use]
    pub fn hold(self: &Arc<Self>, max_bytes: u64) -> Option<LogHold> {
        self.segments.hold(max_bytes)?;
        Some(LogHold { log: self.clone(), max_bytes })
    }

    /// Decides the end of the held log, if the copier waits for that: a durable position behind everything that
    /// is published when this is called. `None` if it does not wait.
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
    /// The end of the copy is not decided by the backup but by [`Log::fix_hold_end`].
    pub fn ends_outside(&self) {
        self.log.segments.hold_end(|end| *end = HoldEnd::Outside);
    }

    /// All pages are copied: the end may be decided.
    pub fn pages_are_copied(&self) {
        self.log.segments.hold_end(|end| {
            if *end == HoldEnd::Outside {
                *end = HoldEnd::Ready;
            }
        });
    }

    /// The end, if it was decided outside.
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

    /// Checks that everything was held up to now.
    ///
    /// # Errors
    /// [`Error::BackupTooSlow`] when the hold was broken.
    pub fn check(&self) -> Result<()> {
        self.release_before(Lsn::ZERO)
    }

    /// The path of the segment that `lsn` lies in.
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
