//! The open segments: a bounded number of descriptors, however many segments there are.
//!
//! 1. A segment is open at most once, and one thread at a time opens it: a second descriptor would conflict
//!    with the lock of the first.
//! 2. Beyond [`KEPT`] open segments, the least recently used ones that are not in use are closed. The writer
//!    uses a segment until its writes are flushed (`writer.rs`, `LeaderState::dirty`), so no descriptor is closed
//!    that could still report a failed write (trap 18).
//! 3. A segment that is not open is not locked itself (trap 7), but protected: the control file is locked as
//!    long as the database is open; no write to the segment is in flight, because the log is written by
//!    synchronous calls; and the segment that is written to is open and locked, so that another database with
//!    the same log directory is refused.
//! 4. At an opening every segment is locked once before the first byte is read (`reader.rs`), so a killed
//!    process's writes have completed.

use super::segment_file::{self, SegmentOptions};
use crate::counted::Mutex;
use crate::error::{Error, Result};
use parking_lot::Condvar;
use seawall_io::{Disk, File, FlushMethod};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Unused segments kept open.
pub(super) const KEPT: usize = 4;

#[derive(Debug, Default)]
struct Open {
    /// By number, the most recently used at the end.
    files: Vec<(u64, Arc<File>)>,
    /// Numbers of the segments that are being opened.
    opening: BTreeSet<u64>,
}

impl Open {
    /// Takes out the unused segments that must be closed so that at most `keep` remain, if enough are unused.
    fn surplus(&mut self, keep: usize) -> Vec<Arc<File>> {
        let mut more = self.files.len().saturating_sub(keep);
        let mut closed = Vec::new();
        self.files.retain(|(_, file)| {
            // Clones are made under the mutex, from this list: a file that is not in use now cannot come into
            // use.
            let close = more > 0 && Arc::strong_count(file) == 1;
            if close {
                more -= 1;
                closed.push(file.clone());
            }
            !close
        });
        closed
    }
}

#[derive(Debug)]
pub(super) struct Shelf {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    how: Mutex<SegmentOptions>,
    open: Mutex<Open>,
    opened: Condvar,
}

impl Shelf {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: &Path, how: SegmentOptions) -> Self {
        Self { disk, dir: dir.into(), how: Mutex::new(how), open: Mutex::default(), opened: Condvar::new() }
    }

    pub(super) fn how(&self) -> SegmentOptions {
        self.how.lock().clone()
    }

    /// Returns the segment of this number; opens and locks it if it is not open.
    ///
    /// # Errors
    /// Those of [`segment_file::open`].
    pub(super) fn get(&self, number: u64) -> Result<Arc<File>> {
        let closed = {
            let mut open = self.open.lock();
            loop {
                if let Some(at) = open.files.iter().position(|(known, _)| *known == number) {
                    let one = open.files.remove(at);
                    let file = one.1.clone();
                    open.files.push(one);
                    return Ok(file);
                }
                if !open.opening.contains(&number) {
                    break;
                }
                self.opened.wait(&mut open);
            }
            open.opening.insert(number);
            open.surplus(KEPT - 1)
        };
        // First close the descriptors that are not needed: the process may have no other left.
        drop(closed);
        let file =
            segment_file::open(&self.disk, &segment_file::path_of(&self.dir, number), &self.how(), false).map(Arc::new);
        let mut open = self.open.lock();
        open.opening.remove(&number);
        if let Ok(file) = &file {
            open.files.push((number, file.clone()));
        }
        drop(open);
        self.opened.notify_all();
        file
    }

    /// Closes the segment, which is about to be renamed or removed. Returns `false` when it is in use.
    pub(super) fn close(&self, number: u64) -> bool {
        let mut open = self.open.lock();
        if open.opening.contains(&number) {
            return false;
        }
        let Some(at) = open.files.iter().position(|(known, _)| *known == number) else { return true };
        if Arc::strong_count(&open.files[at].1) > 1 {
            return false;
        }
        let one = open.files.remove(at);
        drop(open);
        drop(one);
        true
    }

    /// Closes surplus segments.
    pub(super) fn trim(&self) {
        let closed = self.open.lock().surplus(KEPT);
        drop(closed);
    }

    /// Changes how open segments, and those opened later, are flushed. No thread may be writing to them.
    ///
    /// # Errors
    /// Those of [`File::set_method`]: a fatal error means that earlier writes may be lost. After another error segments
    /// are flushed as before, except an open one that cannot be changed back either.
    pub(super) fn set_method(&self, method: FlushMethod) -> seawall_io::Result<()> {
        let before = std::mem::replace(&mut self.how.lock().method, method);
        let files: Vec<Arc<File>> = {
            let mut open = self.open.lock();
            // A segment that is being opened may have begun with the old method.
            while !open.opening.is_empty() {
                self.opened.wait(&mut open);
            }
            open.files.iter().map(|(_, file)| file.clone()).collect()
        };
        let Err(refused) = files.iter().try_for_each(|file| file.set_method(method).map(drop)) else { return Ok(()) };
        self.how.lock().method = before;
        // Each change flushes what was written before. A failed flush is more important than the reason why the change
        // was refused.
        let back = files.iter().filter(|file| file.mode().requested != before).map(|file| file.set_method(before));
        let lost = back.filter_map(Result::err).find(seawall_io::IoError::is_fatal);
        Err(lost.unwrap_or(refused))
    }

    pub(super) fn set_reserve(&self, bytes: u64) {
        self.how.lock().reserve_bytes = bytes;
    }

    /// Returns how many segments are open now.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.open.lock().files.len()
    }
}

/// Returns whether the failed operation did nothing and lost nothing, so that it can be tried again later (trap 24).
pub(super) fn is_not_now(error: &Error) -> bool {
    match error {
        Error::Io(e) => e.is_not_now(),
        Error::Locked { .. } => true,
        _ => false,
    }
}
