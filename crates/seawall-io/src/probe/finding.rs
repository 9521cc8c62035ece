//! The findings of the probe, as data. Unknown is a value: every finding that could not be established carries
//! the reason, and no user of a finding may guess it (an unknown cache counts as volatile).

use std::fmt;
use std::path::PathBuf;

/// A fact, or why it is not known.
///
/// ```
/// use seawall_io::probe::Finding;
/// let fua: Finding<bool> = Finding::unknown("no block device behind this path");
/// assert_eq!(fua.known(), None);
/// assert_eq!(Finding::Known(512u32).known(), Some(&512));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Finding<T> {
    /// Established, by asking the kernel or by trial.
    Known(T),
    /// Not established, with the reason.
    Unknown(String),
}

impl<T> Finding<T> {
    /// Creates an unknown finding with its reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(reason.into())
    }

    /// Applies `f` to the value, if known.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Finding<U> {
        match self {
            Self::Known(value) => Finding::Known(f(value)),
            Self::Unknown(reason) => Finding::Unknown(reason),
        }
    }

    /// Returns the value, if known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl Finding<bool> {
    /// Returns true only if the finding is known to be true.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        matches!(self, Self::Known(true))
    }
}

impl<T: fmt::Display> fmt::Display for Finding<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(value) => value.fmt(f),
            Self::Unknown(reason) => write!(f, "unknown ({reason})"),
        }
    }
}

/// The drive's volatile write cache, as reported to the kernel.
///
/// ```
/// use seawall_io::probe::{Finding, WriteCache};
/// let cache = Finding::Known(WriteCache::Through);
/// assert_eq!(cache.to_string(), "write through");
/// // Only a known answer counts: an unknown cache is volatile.
/// let volatile = |cache: &Finding<WriteCache>| cache.known() != Some(&WriteCache::Through);
/// assert!(!volatile(&cache) && volatile(&Finding::unknown("no sysfs here")));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum WriteCache {
    /// Completed writes may sit in volatile memory: only a flush makes them durable.
    Back,
    /// The kernel sends no flushes: the drive claims that completed means stable.
    Through,
}

impl fmt::Display for WriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Back => "write back",
            Self::Through => "write through",
        })
    }
}

/// Alignment that direct I/O needs.
///
/// ```
/// use seawall_io::probe::DirectAlign;
/// let needed = DirectAlign { memory_bytes: 4, offset_bytes: 512 };
/// let block = seawall_io::AlignedBuf::zeroed(512);
/// assert_eq!(block.as_ptr() as usize % needed.memory_bytes as usize, 0);
/// assert_eq!(block.len() % needed.offset_bytes as usize, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DirectAlign {
    /// Alignment of the buffer's address, bytes.
    pub memory_bytes: u32,
    /// Alignment of offset and length, bytes.
    pub offset_bytes: u32,
}

/// Limits of untorn (`RWF_ATOMIC`) writes.
///
/// ```
/// use seawall_io::probe::AtomicWrites;
/// let limits = AtomicWrites { unit_bytes_min: 4096, unit_bytes_max: 65536 };
/// let untorn = |page: u32| (limits.unit_bytes_min..=limits.unit_bytes_max).contains(&page);
/// assert!(untorn(16384), "such a page needs no doublewrite");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AtomicWrites {
    /// Smallest atomic write, bytes.
    pub unit_bytes_min: u32,
    /// Largest atomic write, bytes.
    pub unit_bytes_max: u32,
}

/// The block device under a path.
///
/// ```
/// use seawall_io::probe::{Finding, block_device_of};
/// # let dir = tempfile::tempdir()?;
/// if let Finding::Known(device) = block_device_of(dir.path()) {
///     println!("{} on {}, cache {}", device.volume, device.name, device.write_cache);
///     assert!(!device.name.starts_with("/dev/"), "the kernel's name, not a path");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BlockDevice {
    /// Kernel name of the whole device, such as `nvme0n1`; the row of `/proc/diskstats` to watch.
    pub name: String,
    /// Kernel name of the partition or volume the file system is on, such as `nvme0n1p2`.
    pub volume: String,
    /// Vendor's model string.
    pub model: Finding<String>,
    /// Whether it is a spinning disk, as reported to the kernel.
    pub rotational: Finding<bool>,
    /// Volatile write cache.
    pub write_cache: Finding<WriteCache>,
    /// Whether the device supports Forced Unit Access writes.
    pub fua: Finding<bool>,
    /// Smallest addressable block, bytes.
    pub logical_block_bytes: Finding<u32>,
    /// Smallest block that the device writes without reading first, bytes.
    pub physical_block_bytes: Finding<u32>,
    /// I/O scheduler in use.
    pub scheduler: Finding<String>,
    /// Devices below this one (device mapper, md, loop), nearest first.
    pub below: Vec<String>,
}

/// The file system a path is on.
///
/// ```
/// use seawall_io::probe::probe;
/// # let dir = tempfile::tempdir()?;
/// let found = probe(dir.path())?;
/// if let Some(fs) = found.file_system.known() {
///     assert!(found.path.starts_with(&fs.mount_point));
///     println!("{}: preallocation helps: {}", fs.kind, !fs.copy_on_write.is_yes());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FileSystem {
    /// `ext4`, `xfs`, `btrfs`, `tmpfs`, ... as mounted.
    pub kind: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Mount options.
    pub options: String,
    /// Whether overwriting in place is impossible by design (btrfs, zfs, bcachefs): preallocation then
    /// promises nothing.
    pub copy_on_write: Finding<bool>,
    /// Whether there is a journal that an fsync may have to commit.
    pub journal: Finding<bool>,
}

/// How direct I/O really behaves here, found by writes to a small file.
///
/// ```
/// use seawall_io::probe::DirectIo;
/// assert_eq!(DirectIo::SilentlyBuffered.to_string(), "accepted but silently buffered");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DirectIo {
    /// Works, and leaves no pages in the page cache.
    Yes,
    /// The flag is accepted but the data passed through the page cache (btrfs with checksums, some FUSE and
    /// overlay mounts).
    SilentlyBuffered,
    /// Refused (tmpfs before Linux 6.6, some network file systems).
    Refused,
}

impl fmt::Display for DirectIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "works",
            Self::SilentlyBuffered => "accepted but silently buffered",
            Self::Refused => "refused",
        })
    }
}

/// Everything the probe establishes about a path.
///
/// ```
/// use seawall_io::probe::{Probe, probe};
/// # let dir = tempfile::tempdir()?;
/// let found = probe(dir.path())?;
/// let stored = serde_json::to_string(&found)?;
/// assert_eq!(serde_json::from_str::<Probe>(&stored)?, found, "a report can be made from it elsewhere, later");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Probe {
    /// The directory probed.
    pub path: PathBuf,
    /// `uname -r`.
    pub kernel: String,
    /// The file system.
    pub file_system: Finding<FileSystem>,
    /// The block device, where there is one.
    pub device: Finding<BlockDevice>,
    /// Direct I/O by trial.
    pub direct_io: Finding<DirectIo>,
    /// `STATX_DIOALIGN`.
    pub direct_align: Finding<DirectAlign>,
    /// Smallest offset alignment with which a direct write was accepted, by trial, bytes.
    pub direct_align_tried_bytes: Finding<u32>,
    /// `STATX_WRITE_ATOMIC`.
    pub atomic_writes: Finding<AtomicWrites>,
    /// `RWF_DSYNC` by trial.
    pub rwf_dsync: Finding<bool>,
    /// `RWF_DONTCACHE` by trial (Linux 6.14).
    pub rwf_dontcache: Finding<bool>,
    /// `fallocate` by trial.
    pub fallocate: Finding<bool>,
    /// `FALLOC_FL_WRITE_ZEROES` by trial (Linux 6.17).
    pub write_zeroes: Finding<bool>,
    /// `cachestat(2)` by trial (Linux 6.5).
    pub cachestat: Finding<bool>,
    /// io_uring by trial; when false, [`Probe::io_uring_reason`] says why.
    pub io_uring: Finding<bool>,
    /// Why io_uring is or is not usable.
    pub io_uring_reason: String,
    /// `RLIMIT_MEMLOCK`, bytes; `None` means unlimited.
    pub memlock_bytes: Option<u64>,
    /// Free space that an unprivileged process may use, bytes.
    pub free_bytes: u64,
}
