//! Findings that only a trial can give. Each is tried on a new file in the probed directory.

use super::{AtomicWrites, DirectAlign, DirectIo, DirectSupport, Finding, atomic_writes, direct_align, direct_support};
use crate::buf::AlignedBuf;
use crate::disk::{Allocate, Create, Disk, Handle, OpenHow, SyncHow, WriteHow};
use crate::error::{IoError, Result};
use crate::os::{Backend, OsDisk, sys};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) struct Trial {
    pub(super) direct_io: Finding<DirectIo>,
    pub(super) direct_align: Finding<DirectAlign>,
    pub(super) direct_align_tried: Finding<u32>,
    pub(super) atomic_writes: Finding<AtomicWrites>,
    pub(super) rwf_dsync: Finding<bool>,
    pub(super) rwf_dontcache: Finding<bool>,
    pub(super) fallocate: Finding<bool>,
    pub(super) write_zeroes: Finding<bool>,
    pub(super) cachestat: Finding<bool>,
    pub(super) io_uring: Finding<bool>,
    pub(super) io_uring_reason: String,
}

/// The trial file: removed when dropped.
struct Scratch<'d> {
    disk: &'d OsDisk,
    path: PathBuf,
    file: Handle,
}

impl<'d> Scratch<'d> {
    fn create(disk: &'d OsDisk, dir: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".seawall-probe-{}-{n}", std::process::id()));
        let file = disk.open(&path, OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
        Ok(Self { disk, path, file })
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        drop(self.disk.remove(&self.path));
    }
}

/// Turns the answer of a trial into yes, no or unknown: a full disk or an I/O error does not show whether
/// a feature exists.
fn works<T>(answer: &Result<T>) -> Finding<bool> {
    match answer {
        Ok(_) => Finding::Known(true),
        Err(e) if matches!(e.errno(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::EPERM)) => {
            Finding::Known(false)
        }
        Err(e) => Finding::unknown(e.to_string()),
    }
}

const TRIAL_BYTES: usize = 64 << 10;

pub(super) fn run(dir: &Path) -> Result<Trial> {
    let disk = OsDisk::synchronous();
    let scratch = Scratch::create(&disk, dir)?;
    let data = AlignedBuf::copy_of(&[0x5a; TRIAL_BYTES]);
    let buffered = |how| disk.write_at(&scratch.file, 0, &[IoSlice::new(&data)], how);
    let written = buffered(WriteHow::default()).and_then(|_| disk.sync(&scratch.file, SyncHow::Data));
    let rwf_dsync = works(&buffered(WriteHow { dsync: true, ..WriteHow::default() }));
    let rwf_dontcache = works(&buffered(WriteHow { dontcache: true, ..WriteHow::default() }));
    let cachestat = match sys::cachestat(scratch.file.fd(crate::Op::Inspect)?, 0, TRIAL_BYTES as u64) {
        Ok(_) => Finding::Known(true),
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => Finding::Known(false),
        Err(e) => Finding::unknown(e.to_string()),
    };
    let allocate = |how, from: u64| works(&disk.allocate(&scratch.file, how, from, 64 << 10));
    let fallocate = allocate(Allocate::Unwritten, 256 << 10);
    let write_zeroes = allocate(Allocate::WriteZeroes, 512 << 10);
    let (direct_io, direct_align_tried) = match &written {
        Ok(()) => direct(&disk, &scratch, &data),
        Err(e) => (Finding::unknown(e.to_string()), Finding::unknown("a buffered write already failed")),
    };
    let (io_uring, io_uring_reason) = match OsDisk::new(Backend::IoUring, None) {
        Ok(_) => (Finding::Known(true), "a ring was set up and completed a trial request".to_owned()),
        Err(e) => (Finding::Known(false), format!("{}{}", e.reason, e.hint)),
    };
    Ok(Trial {
        direct_io,
        direct_align: direct_align(&scratch.file).map_or_else(
            || Finding::unknown("statx does not report it: no direct I/O, or a kernel before 6.1"),
            Finding::Known,
        ),
        direct_align_tried,
        atomic_writes: atomic_writes(&scratch.file),
        rwf_dsync,
        rwf_dontcache,
        fallocate,
        write_zeroes,
        cachestat,
        io_uring,
        io_uring_reason,
    })
}

/// What it means that no direct write succeeded, with these errors.
fn no_alignment(errors: [Option<IoError>; 4]) -> (Finding<DirectIo>, Finding<u32>) {
    // A full disk, a quota or a failing device says nothing about direct I/O.
    let other = |error: &IoError| !matches!(error.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP));
    match errors.into_iter().flatten().find(other) {
        Some(error) => (Finding::unknown(error.to_string()), Finding::unknown(error.to_string())),
        None => (Finding::Known(DirectIo::Refused), Finding::unknown("no alignment up to 4096 bytes was accepted")),
    }
}

/// Tries direct writes of 512 to 4096 bytes, then checks whether they bypassed the page cache.
fn direct(disk: &OsDisk, scratch: &Scratch<'_>, data: &AlignedBuf) -> (Finding<DirectIo>, Finding<u32>) {
    let how = OpenHow { write: true, direct: true, ..OpenHow::default() };
    let file = match disk.open(&scratch.path, how) {
        Ok(file) => file,
        Err(e) if matches!(e.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            return (Finding::Known(DirectIo::Refused), Finding::unknown("direct I/O is refused"));
        }
        Err(e) => return (Finding::unknown(e.to_string()), Finding::unknown(e.to_string())),
    };
    let tries = [512u32, 1024, 2048, 4096].map(|align| {
        let at = align as usize;
        let part = IoSlice::new(&data[at..2 * at]);
        (align, disk.write_at(&file, u64::from(align), &[part], WriteHow::default()))
    });
    let accepted = tries.iter().find(|(align, written)| matches!(written, Ok(n) if *n == *align as usize));
    let Some(&(align, _)) = accepted else { return no_alignment(tries.map(|(_, written)| written.err())) };
    let is_shown = disk
        .write_at(&scratch.file, 0, &[IoSlice::new(data)], WriteHow::default())
        .and_then(|_| disk.cached(&scratch.file, TRIAL_BYTES as u64))
        .is_ok_and(|cached| cached.resident > 0);
    let bypassed = disk
        .sync(&file, SyncHow::Data)
        .and_then(|()| disk.drop_cache(&file, 0, 0))
        .and_then(|()| disk.cached(&file, TRIAL_BYTES as u64))
        .and_then(|before| {
            disk.write_at(&file, 0, &[IoSlice::new(data)], WriteHow::default())?;
            let after = disk.cached(&file, TRIAL_BYTES as u64)?;
            Ok((before.resident, after.resident))
        });
    let direct_io = match bypassed {
        // ZFS, for one, keeps files in a cache of its own, and some versions of it ignore O_DIRECT.
        Ok((_, 0)) if !is_shown => {
            Finding::unknown("buffered writes do not appear in the page cache: the file system has a cache of its own")
        }
        Ok((_, 0)) => Finding::Known(DirectIo::Yes),
        Ok((before, after)) if after > before || before == 0 => Finding::Known(DirectIo::SilentlyBuffered),
        Ok(_) if matches!(direct_support(&file), DirectSupport::Ignored(_)) => {
            Finding::Known(DirectIo::SilentlyBuffered)
        }
        Ok((before, _)) => {
            // Mapped or locked by another process, or still being written back: the trial is inconclusive.
            Finding::unknown(format!("{before} bytes of the trial file could not be dropped from the page cache"))
        }
        Err(e) => Finding::unknown(e.to_string()),
    };
    (direct_io, Finding::Known(align))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Op;
    use crate::error::IoErrorKind;

    #[test]
    fn only_a_refusal_is_one() {
        let failed =
            |errno| [errno; 4].map(|errno| Some(IoError::new(Op::Write, Path::new("f"), IoErrorKind::Os(errno))));
        assert!(matches!(no_alignment(failed(libc::EINVAL)).0, Finding::Known(DirectIo::Refused)));
        assert!(matches!(no_alignment(failed(libc::EDQUOT)).0, Finding::Unknown { .. }));
    }
}
