//! Synchronous reads and writes, which complete short transfers.

use super::{File, Open};
use crate::class::{Cause, Op};
use crate::disk::{SyncHow, WriteHow};
use crate::error::{IoError, IoErrorKind, Result};
use crate::method::{EffectiveMode, FlushMethod};
use std::io::IoSlice;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// How often a direct read that the kernel cuts short inside a block is repeated.
const SHORT_READS_MAX: u32 = 64;

impl File {
    /// Fills `buf` from `offset` (bytes).
    ///
    /// # Errors
    /// [`IoErrorKind::Misaligned`], or `EINVAL` if the range exceeds the largest file offset, both before the
    /// disk is called; [`IoErrorKind::UnexpectedEof`] when the file is shorter; or the kernel's refusal.
    ///
    /// ```
    /// use seawall_io::{Cause, IoErrorKind};
    /// # use seawall_io::{File, FileClass, FileOptions, FlushMethod, OsDisk};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("short");
    /// std::fs::write(&path, b"abc")?;
    /// # let options = FileOptions::new(FileClass::Scratch, FlushMethod::Fsync);
    /// # let file = File::open(std::sync::Arc::new(OsDisk::synchronous()), &path, options)?;
    /// let mut five = [0; 5];
    /// let error = file.read_at(0, &mut five, Cause::DemandRead).unwrap_err();
    /// assert_eq!(error.kind, IoErrorKind::UnexpectedEof { got: 3 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_at(&self, offset: u64, buf: &mut [u8], cause: Cause) -> Result<()> {
        let open = self.current();
        check_alignment(&self.path, Op::Read, &open.mode, offset, [&*buf])?;
        let len = buf.len();
        self.counted(Op::Read, cause, len as u64, || {
            let (mut done, mut cut_short) = (0, 0);
            while done < len {
                let n = self.disk.read_at(&open.handle, offset + done as u64, &mut buf[done..])?;
                let next = whole_blocks(done + n, len, &open.mode);
                if next == done {
                    // A direct read cut short inside a block, before the end of the file: repeat it.
                    let inside = offset + ((done + n) as u64) < self.len();
                    if n > 0 && cut_short < SHORT_READS_MAX && inside {
                        cut_short += 1;
                        continue;
                    }
                    // The file is longer: this is an I/O error, not the end of the file.
                    let kind = if n > 0 && inside {
                        IoErrorKind::Os(libc::EIO)
                    } else {
                        IoErrorKind::UnexpectedEof { got: (done + n) as u64 }
                    };
                    return Err(IoError::new(Op::Read, &self.path, kind).at(offset, len as u64));
                }
                done = next;
            }
            Ok(())
        })
    }

    /// Writes `bytes` at `offset` (bytes). Not durable before a barrier, except under `o_dsync`.
    ///
    /// # Errors
    /// [`IoErrorKind::Misaligned`], or `EINVAL` if the range exceeds the largest file offset, both before the
    /// disk is called; [`IoErrorKind::NoProgress`]; or the kernel's refusal. Some of the bytes may have been
    /// written.
    pub fn write_at(&self, offset: u64, bytes: &[u8], cause: Cause) -> Result<()> {
        self.write_vectored_at(offset, &[bytes], cause)
    }

    /// Writes `parts` one after the other from `offset` (bytes), in one system call if the kernel accepts all
    /// bytes at once.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, offset: u64, parts: &[&[u8]], cause: Cause) -> Result<()> {
        let open = self.current();
        let len = check_alignment(&self.path, Op::Write, &open.mode, offset, parts.iter().copied())?;
        self.counted(Op::Write, cause, len, || self.write_parts(&open, offset, parts, len, WriteHow::default()))
    }

    /// Writes `bytes` at `offset` (bytes) and returns when they are durable.
    ///
    /// # Errors
    /// As [`File::write_at`]. After a disk error it is unknown what is durable; a retry that succeeds proves
    /// nothing.
    pub fn write_durable_at(&self, offset: u64, bytes: &[u8], cause: Cause) -> Result<()> {
        self.write_durable_vectored_at(offset, &[bytes], cause)
    }

    /// Writes `parts` one after the other from `offset` (bytes) and returns when they are durable.
    ///
    /// # Errors
    /// As [`File::write_durable_at`].
    ///
    /// ```
    /// use seawall_io::Cause;
    /// # use seawall_io::{Create, File, FileClass, FileOptions, FlushMethod, OsDisk};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("log");
    /// # let options = FileOptions::new(FileClass::Redo, FlushMethod::Fsync).create(Create::New);
    /// # let log = File::open(std::sync::Arc::new(OsDisk::synchronous()), &path, options)?;
    /// // A group of commits: three records, one write, one sync.
    /// log.write_durable_vectored_at(0, &[b"one ", b"two ", b"three"], Cause::Commit)?;
    /// assert_eq!(std::fs::read(&path)?, b"one two three");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_durable_vectored_at(&self, offset: u64, parts: &[&[u8]], cause: Cause) -> Result<()> {
        let open = self.current();
        let len = check_alignment(&self.path, Op::DurableWrite, &open.mode, offset, parts.iter().copied())?;
        let how = WriteHow { dsync: open.mode.rwf_dsync, ..WriteHow::default() };
        self.counted(Op::DurableWrite, cause, len, || {
            match self.write_parts(&open, offset, parts, len, how) {
                // The kernel or file system has no RWF_DSYNC: report that from now on, and sync after this
                // write instead.
                Err(e) if how.dsync && e.errno() == Some(libc::EOPNOTSUPP) => {
                    let mut current = self.open.write().unwrap_or_else(PoisonError::into_inner);
                    // Another thread may have changed the method, or reported it already.
                    if std::mem::take(&mut current.mode.rwf_dsync) {
                        let mut why = current.mode.degraded.take().map_or(String::new(), |before| before + "; ");
                        why.push_str("no RWF_DSYNC here: each durable write is followed by fdatasync");
                        current.mode.degraded = Some(why);
                    }
                    drop(current);
                    self.write_parts(&open, offset, parts, len, WriteHow::default())?;
                    self.sync_handle(&open.handle, SyncHow::Data)
                }
                Ok(()) if !how.dsync && open.mode.requested != FlushMethod::ODsync => {
                    self.sync_handle(&open.handle, SyncHow::Data)
                }
                written => written,
            }
        })
    }

    fn write_parts(&self, open: &Open, offset: u64, parts: &[&[u8]], len: u64, how: WriteHow) -> Result<()> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (mut done, mut cut_short) = (0, 0);
        while done < len {
            let mut skip = done;
            let slices: Vec<IoSlice<'_>> = parts
                .iter()
                .filter_map(|part| {
                    let here = skip.min(part.len());
                    skip -= here;
                    (here < part.len()).then(|| IoSlice::new(&part[here..]))
                })
                .collect();
            let n = self.disk.write_at(&open.handle, offset + done as u64, &slices, how)?;
            let next = whole_blocks(done + n, len, &open.mode);
            if next == done {
                // Cut short inside the first block: write the whole block again.
                if n > 0 && cut_short < 3 {
                    cut_short += 1;
                    continue;
                }
                return Err(IoError::new(Op::Write, &self.path, IoErrorKind::NoProgress).at(offset, len as u64));
            }
            done = next;
        }
        // Under `o_dsync` the growth by a write is durable with the write.
        if self.note_end(offset, offset + len as u64) && open.mode.requested != FlushMethod::ODsync {
            self.growth.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// Checks the alignment for direct I/O, to report a better error than the kernel's `EINVAL`. Returns the
/// total length, bytes.
pub(super) fn check_alignment<'a>(
    path: &Path,
    op: Op,
    mode: &EffectiveMode,
    offset: u64,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> Result<u64> {
    let needed = mode.align_bytes;
    let mut total = 0;
    let mut wrong = (offset % u64::from(needed) != 0).then_some("offset");
    for part in parts {
        total += part.len() as u64;
        if part.len() % needed as usize != 0 {
            wrong = wrong.or(Some("length"));
        } else if part.as_ptr() as usize % needed as usize != 0 {
            wrong = wrong.or(Some("buffer address"));
        }
    }
    let end = offset.checked_add(total).and_then(|end| i64::try_from(end).ok());
    if end.is_none() {
        return Err(IoError::os(op, path, libc::EINVAL).at(offset, total));
    }
    match wrong {
        Some(what) => Err(IoError::new(op, path, IoErrorKind::Misaligned { needed, what }).at(offset, total)),
        None => Ok(total),
    }
}

/// Returns how much of a short transfer counts: direct I/O must continue at a block boundary.
fn whole_blocks(done: usize, len: usize, mode: &EffectiveMode) -> usize {
    if done >= len { len } else { done - done % mode.align_bytes as usize }
}
