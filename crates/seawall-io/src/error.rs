//! The error of every failed I/O: it names the operation, file, offset, length and errno, as far as they apply, and
//! says what to do.

use crate::class::Op;
use std::fmt;
use std::path::{Path, PathBuf};

/// A failed I/O operation.
///
/// ```
/// use seawall_io::{IoError, IoErrorKind, Op};
/// let error = IoError::os(Op::Write, "/srv/db/data.sw", 28).at(8192, 4096);
/// assert_eq!(error.errno(), Some(28));
/// assert!(error.to_string().starts_with("write of 4096 bytes at offset 8192 of /srv/db/data.sw failed: No space left on device"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoError {
    /// The operation.
    pub op: Op,
    /// The file or directory.
    pub path: PathBuf,
    /// The offset, bytes, where that applies.
    pub offset: Option<u64>,
    /// The length, bytes, where that applies.
    pub len: Option<u64>,
    /// What went wrong.
    pub kind: IoErrorKind,
}

/// What went wrong.
///
/// ```
/// use seawall_io::{IoError, IoErrorKind, Op};
/// let kind = IoErrorKind::Misaligned { needed: 512, what: "offset" };
/// let error = IoError::new(Op::Write, "data.sw", kind);
/// assert!(error.to_string().contains("the offset is not a multiple of 512 bytes"));
/// assert!(!error.is_fatal(), "the request was wrong, not the disk");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// The kernel refused, with this errno.
    Os(i32),
    /// Offset, length or buffer address does not have the alignment that direct I/O needs here, bytes.
    Misaligned {
        /// The alignment needed, bytes.
        needed: u32,
        /// Which of the three is wrong: `offset`, `length` or `buffer address`.
        what: &'static str,
    },
    /// The file ended before all bytes were read.
    UnexpectedEof {
        /// Bytes that were there.
        got: u64,
    },
    /// A write made no progress although the kernel reported no error.
    NoProgress,
    /// The file is locked by another process.
    Locked,
    /// Keeping the stated reserve of free space leaves no room for this.
    Reserve {
        /// Bytes needed.
        needed: u64,
        /// Bytes free for use above the reserve.
        available: u64,
        /// The reserve, bytes.
        reserve: u64,
    },
    /// The caller asked the operation to stop.
    Cancelled,
}

impl IoError {
    /// Creates an error from the kernel's errno.
    ///
    /// ```
    /// # use seawall_io::{IoError, Op};
    /// assert!(IoError::os(Op::Open, "data.sw", 2).advice().contains("spelled right"));
    /// let missing = IoError::os(Op::Directory, "bk", 2).to_string();
    /// assert!(missing.starts_with("change or listing of the directory entry bk failed: No such file"), "{missing}");
    /// ```
    pub fn os(op: Op, path: impl AsRef<Path>, errno: i32) -> Self {
        Self::new(op, path, IoErrorKind::Os(errno))
    }

    /// Creates an error of any kind.
    ///
    /// ```
    /// # use seawall_io::{IoError, IoErrorKind, Op};
    /// assert_eq!(IoError::new(Op::Open, "data.sw", IoErrorKind::Locked).errno(), None);
    /// ```
    pub fn new(op: Op, path: impl AsRef<Path>, kind: IoErrorKind) -> Self {
        Self { op, path: path.as_ref().to_owned(), offset: None, len: None, kind }
    }

    /// Adds offset and length, both in bytes.
    #[must_use]
    pub fn at(mut self, offset: u64, len: u64) -> Self {
        self.offset = Some(offset);
        self.len = Some(len);
        self
    }

    /// Returns the kernel's errno, if the kernel refused.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self.kind {
            IoErrorKind::Os(errno) => Some(errno),
            _ => None,
        }
    }

    /// Returns whether the file cannot grow: the file system or the user's quota is full, the file has its maximum
    /// size, or only the reserve of free space is left. Nothing was lost.
    ///
    /// ```
    /// # use seawall_io::{IoError, Op};
    /// assert!(IoError::os(Op::Grow, "data", 28).is_full()); // ENOSPC
    /// assert!(!IoError::os(Op::Grow, "data", 5).is_full()); // EIO
    /// ```
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.kind, IoErrorKind::Os(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) | IoErrorKind::Reserve { .. })
    }

    /// Returns whether the file system does not support this way of allocating.
    ///
    /// ```
    /// # use seawall_io::{IoError, Op};
    /// assert!(IoError::os(Op::Grow, "data", 95).is_unsupported()); // EOPNOTSUPP
    /// ```
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
    }

    /// Returns whether the device could not return the requested bytes: they are lost on the device, but a copy may
    /// exist elsewhere. Some drives report this for a sector whose write was interrupted by a power failure. Other
    /// errors say nothing about the bytes.
    ///
    /// ```
    /// # use seawall_io::{IoError, Op};
    /// assert!(IoError::os(Op::Read, "data", 5).is_unreadable()); // EIO
    /// assert!(!IoError::os(Op::Read, "data", 24).is_unreadable()); // EMFILE
    /// ```
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        // Besides EIO, the block layer has these errnos for a medium error and for a failed integrity check.
        self.op == Op::Read && matches!(self.errno(), Some(libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EREMOTEIO))
    }

    /// Returns advice for the person who reads the error.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self.kind {
            IoErrorKind::Os(libc::ENOSPC | libc::EDQUOT) => "free some space on this file system, or move the file",
            IoErrorKind::Os(libc::EROFS) => "the file system is mounted read-only: remount it, or give another path",
            IoErrorKind::Os(libc::EACCES | libc::EPERM) => {
                "check the owner and permissions of the file and its directory"
            }
            IoErrorKind::Os(libc::ENOENT) => "check that the path exists and is spelled right",
            IoErrorKind::Os(libc::EEXIST) => "nothing is overwritten: remove the file yourself or give another path",
            IoErrorKind::Os(libc::ENOTDIR) => {
                "something on the path is a file where a directory is needed: check the path"
            }
            IoErrorKind::Os(libc::EISDIR) => {
                "the path is a directory where a file is needed: give another path, or move the directory away"
            }
            IoErrorKind::Os(libc::ELOOP) => "the symbolic links on the path lead in a circle: mend them",
            IoErrorKind::Os(libc::EPIPE) => "the program that reads this has ended: look at its messages",
            IoErrorKind::Os(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
            IoErrorKind::Os(libc::ENOMEM) => "the system has no memory for this now: try again, or give it more",
            IoErrorKind::Os(libc::EIO) => {
                "the device or its path failed: look at the kernel log (dmesg), and do not trust what was written \
                 since the last good sync"
            }
            IoErrorKind::Os(libc::EINVAL) if matches!(self.op, Op::Open | Op::Read | Op::Write | Op::DurableWrite) => {
                "this file system may not support direct I/O with this alignment: `seawall probe` tells, flush method \
                 fsync works anywhere"
            }
            IoErrorKind::Os(libc::ESTALE) => {
                "the file was renamed, replaced or removed since it was opened: open it again"
            }
            IoErrorKind::Os(libc::EFBIG) => {
                "the file would exceed the file system's or the process's limit (ulimit -f)"
            }
            IoErrorKind::Os(_) => "look the error up in the kernel log (dmesg)",
            IoErrorKind::Misaligned { .. } => {
                "round offset and length to blocks and use an aligned buffer, or open the file buffered"
            }
            IoErrorKind::UnexpectedEof { .. } => {
                "the file is shorter than it must be: was it truncated or copied in part?"
            }
            IoErrorKind::NoProgress => "the file system accepts no more bytes: check quota and limits",
            IoErrorKind::Locked => "another process has this file open: stop it, or give another path",
            IoErrorKind::Reserve { .. } => "free some space, or ask for less",
            IoErrorKind::Cancelled => "nothing was lost; run it again when ready",
        }
    }

    /// Returns whether the disk failed, not the request: such an error must poison what depends on the file.
    ///
    /// ```
    /// # use seawall_io::{IoError, Op};
    /// const EIO: i32 = 5;
    /// assert!(IoError::os(Op::Sync, "log", EIO).is_fatal(), "what was written may be gone");
    /// assert!(!IoError::os(Op::Read, "log", EIO).is_fatal(), "nothing was lost by asking");
    /// ```
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self.op, Op::Write | Op::DurableWrite | Op::Sync)
            && !matches!(
                self.kind,
                IoErrorKind::Misaligned { .. } | IoErrorKind::Cancelled | IoErrorKind::Reserve { .. }
            )
    }
}

impl IoError {
    /// Returns whether the disk could not serve the request at the moment (no free descriptor, no memory, interrupted,
    /// locked by another process): nothing was done and nothing is lost, so the caller may retry later. Always false
    /// for writes and syncs.
    ///
    /// ```
    /// # use seawall_io::{IoError, Op};
    /// const EMFILE: i32 = 24;
    /// assert!(IoError::os(Op::Open, "redo.1", EMFILE).is_not_now());
    /// assert!(!IoError::os(Op::Sync, "redo.1", EMFILE).is_not_now(), "a flush has one answer");
    /// ```
    #[must_use]
    pub fn is_not_now(&self) -> bool {
        const NOT_NOW: [i32; 5] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR, libc::EAGAIN];
        let asked = matches!(self.op, Op::Write | Op::DurableWrite | Op::Sync);
        !asked && (self.kind == IoErrorKind::Locked || self.errno().is_some_and(|errno| NOT_NOW.contains(&errno)))
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            // "directory" alone says nothing of what was done: the entry was made, renamed, removed or listed.
            Op::Directory => write!(f, "change or listing of the directory entry")?,
            op => write!(f, "{op}")?,
        }
        if let Some(len) = self.len.filter(|&len| len > 0) {
            write!(f, " of {len} bytes")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        let of = if self.op == Op::Directory { "" } else { "of " };
        write!(f, " {of}{} failed: ", self.path.display())?;
        match &self.kind {
            IoErrorKind::Os(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno))?,
            IoErrorKind::Misaligned { needed, what } => write!(f, "the {what} is not a multiple of {needed} bytes")?,
            IoErrorKind::UnexpectedEof { got } => write!(f, "the file ends after {got} of these bytes")?,
            IoErrorKind::NoProgress => write!(f, "no bytes were accepted")?,
            IoErrorKind::Locked => write!(f, "it is locked by another process")?,
            IoErrorKind::Reserve { needed, available, reserve } => {
                write!(f, "{needed} bytes are needed and {available} are free above the reserve of {reserve}")?;
            }
            IoErrorKind::Cancelled => write!(f, "it was asked to stop")?,
        }
        write!(f, "; {}", self.advice())
    }
}

impl std::error::Error for IoError {}

/// Result of an I/O operation.
///
/// ```
/// fn parse_block(block: &[u8]) -> seawall_io::Result<u8> {
///     Ok(block[0])
/// }
/// assert_eq!(parse_block(&[3]), Ok(3));
/// ```
pub type Result<T, E = IoError> = std::result::Result<T, E>;
