//! Finds what the device, file system and kernel under a path really offer: queried through sysfs, statx and /proc,
//! and tried on a small file.
//!
//! - What can be tried is tried, not inferred from a name. Only two facts follow from the file system's name alone:
//!   whether it overwrites in place, and whether it has a journal. For unknown names they are unknown.
//! - Unknown is a value, with its reason ([`Finding`]).
//! - The trial file has a fresh name, is never larger than a mebibyte, and is always removed.

pub(crate) mod device;
mod explain;
pub(crate) mod finding;
mod trial;

use crate::class::Op;
use crate::disk::Handle;
use crate::error::{IoError, Result};
use crate::os::sys;
pub use device::{block_device_of, file_system_of, untorn_write_bytes};
pub use explain::{Explained, explain};
pub use finding::*;
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use std::path::Path;

/// Probes the directory `path` (or the directory that holds the file `path`).
///
/// # Errors
/// When `path` does not exist or no file can be created there; everything else is a finding.
///
/// ```
/// use seawall_io::probe::{probe, DirectIo, Finding};
/// # let dir = tempfile::tempdir()?;
/// let found = probe(dir.path())?;
/// match found.direct_io {
///     Finding::Known(DirectIo::Yes) => println!("direct I/O works"),
///     other => println!("direct I/O: {other}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn probe(path: &Path) -> Result<Probe> {
    let found = |e: std::io::Error| IoError::os(Op::Inspect, path, e.raw_os_error().unwrap_or(libc::EIO));
    let path = std::fs::canonicalize(path).map_err(found)?;
    let dir = if path.is_dir() { path.as_path() } else { path.parent().unwrap_or(Path::new("/")) };
    let file_system = file_system_of(dir);
    let device = block_device_of(dir);
    let trial = trial::run(dir)?;
    let stat = rustix::fs::statvfs(dir).map_err(|e| IoError::os(Op::Inspect, dir, e.raw_os_error()))?;
    let memlock = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    Ok(Probe {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        file_system,
        device,
        direct_io: trial.direct_io,
        direct_align: trial.direct_align,
        direct_align_tried_bytes: trial.direct_align_tried,
        atomic_writes: trial.atomic_writes,
        rwf_dsync: trial.rwf_dsync,
        rwf_dontcache: trial.rwf_dontcache,
        fallocate: trial.fallocate,
        write_zeroes: trial.write_zeroes,
        cachestat: trial.cachestat,
        io_uring: trial.io_uring,
        io_uring_reason: trial.io_uring_reason,
        memlock_bytes: memlock.current,
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        path: dir.into(),
    })
}

/// Returns what statx reports about direct I/O on an open file.
pub(crate) fn direct_align(file: &Handle) -> Option<DirectAlign> {
    let stat = rustix::fs::statx(file.fd(Op::Inspect).ok()?, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    (stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align > 0)
        .then_some(DirectAlign { memory_bytes: stat.stx_dio_mem_align, offset_bytes: stat.stx_dio_offset_align })
}

/// What direct I/O does on a file that the kernel opened with `O_DIRECT`.
pub(crate) enum DirectSupport {
    /// It bypasses the page cache, in multiples of this many bytes.
    Aligned(u32),
    /// The kernel accepted the flag but ignores it; the reason.
    Ignored(&'static str),
    /// The kernel does not report it.
    Unknown,
}

/// Asks the kernel what direct I/O does on an open file.
pub(crate) fn direct_support(file: &Handle) -> DirectSupport {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    let Ok(fd) = file.fd(Op::Inspect) else { return DirectSupport::Unknown };
    if let Ok(stat) = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
            return match stat.stx_dio_offset_align {
                0 => DirectSupport::Ignored("the file system sends direct I/O on this file through the page cache"),
                align => DirectSupport::Aligned(align.max(stat.stx_dio_mem_align)),
            };
        }
    }
    // A memory file system is the page cache, and reports no alignment. (The type of f_type differs by
    // architecture.)
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    match rustix::fs::fstatfs(fd).map(|s| s.f_type as u64 & 0xffff_ffff) {
        Ok(TMPFS_MAGIC | RAMFS_MAGIC) => DirectSupport::Ignored("a memory file system lives in the page cache"),
        _ => DirectSupport::Unknown,
    }
}

/// Returns what statx reports about untorn writes to an open file.
fn atomic_writes(file: &Handle) -> Finding<AtomicWrites> {
    let Ok(fd) = file.fd(Op::Inspect) else { return Finding::unknown("not a file of the operating system") };
    atomic_units(fd).map_or_else(Finding::Unknown, |[unit_bytes_min, unit_bytes_max, _]| {
        Finding::Known(AtomicWrites { unit_bytes_min, unit_bytes_max })
    })
}

/// Returns the smallest and the largest atomic write, and the largest one that costs no more than an ordinary write
/// (0: all do), bytes; otherwise why they are not known.
fn atomic_units(file: BorrowedFd<'_>) -> Result<[u32; 3], String> {
    let flags = StatxFlags::from_bits_retain(sys::STATX_WRITE_ATOMIC);
    match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, flags) {
        Ok(stat) if stat.stx_mask & sys::STATX_WRITE_ATOMIC == 0 => {
            Err("statx does not report atomic writes here".into())
        }
        Ok(stat) => {
            Ok([stat.stx_atomic_write_unit_min, stat.stx_atomic_write_unit_max, stat.stx_atomic_write_unit_max_opt])
        }
        Err(e) => Err(format!("statx: {e}")),
    }
}

/// Returns the size, bytes, of the largest atomic write (`RWF_ATOMIC`) to the file `path` or to a new file of the
/// directory `path`; 0 means none. Larger writes that XFS makes atomic by copying do not count.
///
/// ```
/// use seawall_io::probe::{Finding, atomic_write_bytes};
/// # let dir = tempfile::tempdir()?;
/// match atomic_write_bytes(dir.path()) {
///     Finding::Known(bytes) => println!("pages of at most {bytes} bytes need not be written twice"),
///     Finding::Unknown(reason) => println!("pages must be written twice: {reason}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn atomic_write_bytes(path: &Path) -> Finding<u32> {
    let found = || -> Result<u32, String> {
        // A file without a name: it leaves nothing behind.
        let flags = if path.is_dir() { OFlags::TMPFILE | OFlags::WRONLY } else { OFlags::RDONLY };
        let file = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        let [min, max, cheap] = atomic_units(file.as_fd())?;
        match min {
            // A page has at least 4 KiB.
            0..=4096 if cheap == 0 => Ok(max),
            0..=4096 => Ok(max.min(cheap)),
            _ => Err(format!("atomic writes have at least {min} bytes here")),
        }
    };
    found().map_or_else(Finding::Unknown, Finding::Known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_is_named() {
        let e = probe(Path::new("/no/such/place")).unwrap_err();
        assert_eq!(e.errno(), Some(libc::ENOENT));
        assert!(e.to_string().contains("/no/such/place"), "{e}");
    }

    #[test]
    fn the_probe_leaves_nothing_behind_and_survives_json() {
        let dir = tempfile::tempdir().unwrap();
        let found = probe(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Probe>(&json).unwrap(), found);
        assert!(explain(&found).len() > 12);
    }

    #[test]
    fn memory_file_systems_are_probed_without_a_device() {
        let shm = Path::new("/dev/shm");
        if !shm.is_dir() {
            return;
        }
        let dir = tempfile::tempdir_in(shm).unwrap();
        let found = probe(dir.path()).unwrap();
        assert_eq!(found.file_system.known().map(|f| f.kind.as_str()), Some("tmpfs"));
        assert!(found.device.known().is_none(), "tmpfs has no block device: {:?}", found.device);
    }
}
