//! Log that a backup still needs: files before the checkpoint that are not recycled.
//!
//! 1. The bytes read from a segment are those of that segment only if the hold was unbroken *after* the read:
//!    a broken hold releases its files, which are then renamed and overwritten.
//! 2. A hold never makes a writer wait: it has a bound, and exceeding the bound breaks the hold and does not
//!    stop the writers (`segments.rs`, 8).

use super::Log;
use super::segments::Broken;
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
}

impl LogHold {
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
