//! Asynchronous reads and writes of a file.

use super::File;
use super::transfer::check_alignment;
use crate::class::{Cause, Op};
use crate::disk::{Request, RequestKind, Ticket, WriteHow};
use crate::error::Result;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// An asynchronous read or write of a [`File`].
///
/// ```
/// use seawall_io::{AlignedBuf, Cause, FileRequest};
/// # use seawall_io::{Backend, Create, File, FileClass, FileOptions, FlushMethod, OsDisk};
/// # let dir = tempfile::tempdir()?;
/// # let options = FileOptions::new(FileClass::Data, FlushMethod::ODirect).create(Create::New);
/// # let disk = std::sync::Arc::new(OsDisk::new(Backend::Auto, None)?);
/// # let file = File::open(disk, &dir.path().join("data"), options)?;
/// // Four pages written side by side, and one barrier for all.
/// let write = |i: u8| {
///     let page = AlignedBuf::copy_of(&[i; 4096]);
///     FileRequest { write: true, offset: u64::from(i) * 4096, bufs: vec![page.into()], cause: Cause::Clean }
/// };
/// for pending in file.submit((0..4).map(write).collect())? {
///     file.wait(pending)?;
/// }
/// file.barrier(Cause::Clean)?;
/// assert_eq!(file.len(), 4 * 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileRequest {
    /// Write if true, read if false.
    pub write: bool,
    /// Offset, bytes.
    pub offset: u64,
    /// The buffers, in order.
    pub bufs: Vec<crate::IoBuf>,
    /// Why it is requested.
    pub cause: Cause,
}

/// A submitted operation of a [`File`].
///
/// ```
/// use seawall_io::{AlignedBuf, Cause, FileRequest};
/// # use seawall_io::{Backend, File, FileClass, FileOptions, FlushMethod, OsDisk};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, [7; 4096])?;
/// # let options = FileOptions::new(FileClass::Data, FlushMethod::Fsync);
/// # let file = File::open(std::sync::Arc::new(OsDisk::new(Backend::Threads, None)?), &path, options)?;
/// let bufs = vec![AlignedBuf::zeroed(4096).into()];
/// let ahead = FileRequest { write: false, offset: 0, bufs, cause: Cause::Prefetch };
/// let pending = file.submit(vec![ahead])?.remove(0);
/// // ... other work, until the page is needed ...
/// let page = file.wait(pending)?.remove(0);
/// assert_eq!(page[4095], 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pending {
    ticket: Ticket,
    started: Instant,
    op: Op,
    cause: Cause,
    bytes: u64,
    grows: bool,
}

impl Pending {
    /// Returns whether [`File::wait`] would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }
}

impl File {
    /// Submits reads and writes; `offset` in bytes. Returns one pending operation for each request, in order.
    /// A write is durable after [`File::wait`] and a barrier (under `o_dsync`, without the barrier). Dropping
    /// a pending operation does not cancel its I/O.
    ///
    /// # Errors
    /// [`crate::IoErrorKind::Misaligned`], or `EINVAL` if the range exceeds the largest file offset, before
    /// any request is submitted.
    pub fn submit(&self, batch: Vec<FileRequest>) -> Result<Vec<Pending>> {
        self.submit_how(batch, WriteHow::default())
    }

    /// Like [`File::submit`], but a crash leaves each write either complete or not done at all
    /// ([`WriteHow::atomic`]).
    ///
    /// # Errors
    /// As [`File::submit`].
    pub fn submit_atomic(&self, batch: Vec<FileRequest>) -> Result<Vec<Pending>> {
        self.submit_how(batch, WriteHow { atomic: true, ..WriteHow::default() })
    }

    fn submit_how(&self, batch: Vec<FileRequest>, how: WriteHow) -> Result<Vec<Pending>> {
        let open = self.current();
        for request in &batch {
            let op = if request.write { Op::Write } else { Op::Read };
            check_alignment(&self.path, op, &open.mode, request.offset, request.bufs.iter().map(|b| &**b))?;
        }
        let started = Instant::now();
        let mut pending = Vec::with_capacity(batch.len());
        let requests = batch
            .into_iter()
            .map(|FileRequest { write, offset, bufs, cause }| {
                let kind = if write { RequestKind::Write(how) } else { RequestKind::Read };
                let request = Request { file: open.handle.clone(), kind, offset, bufs, done: 0 };
                let (op, bytes) = (request.op(), request.len() as u64);
                // Before the write: if the caller drops the pending operation, the growth must already be
                // counted.
                let grows = write && self.note_end(offset, offset + bytes);
                if grows {
                    self.growing.fetch_add(1, Ordering::AcqRel);
                }
                pending.push((op, cause, bytes, grows));
                request
            })
            .collect();
        Ok(self
            .disk
            .submit(requests)
            .into_iter()
            .zip(pending)
            .map(|(ticket, (op, cause, bytes, grows))| Pending { ticket, started, op, cause, bytes, grows })
            .collect())
    }

    /// Waits for a pending operation of this file and counts it. Returns its buffers.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn wait(&self, pending: Pending) -> Result<Vec<crate::IoBuf>> {
        let Pending { ticket, started, op, cause, bytes, grows } = pending;
        let completion = self.disk.wait(&ticket);
        match completion.result {
            Ok(()) => {
                if grows {
                    // Growth first (see `barrier`). A failed write stays counted in `growing`: the end of the
                    // file is unknown.
                    self.growth.fetch_add(1, Ordering::AcqRel);
                    self.growing.fetch_sub(1, Ordering::AcqRel);
                }
                let done = ticket.done_at().unwrap_or_else(Instant::now);
                self.stats.record(self.class, op, cause, done.saturating_duration_since(started), bytes);
                Ok(completion.bufs)
            }
            Err(e) => {
                self.stats.record_error(self.class, op, cause);
                Err(e)
            }
        }
    }
}
