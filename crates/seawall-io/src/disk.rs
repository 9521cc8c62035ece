//! The seam to the disk: one trait, implemented by the operating system's backends and by the simulated disk.
//!
//! 1. Synchronous calls act on borrowed memory and may be short; [`crate::File`] completes them.
//! 2. Asynchronous requests own their buffers until they complete: dropping a [`Ticket`] early frees no
//!    memory that the kernel may still write to, and the submitting thread may end before the request does.
//! 3. Any thread may drive completions; a completion never depends on the thread that submitted the request.
//! 4. A [`Handle`] closes when its last clone is dropped, and every request in flight holds one.
//!
//! ```text
//!   submit ──> in flight ──drive──> short ──resubmit──> in flight
//!                        └─drive──> done (Ticket::take)
//! ```

mod request;

use crate::class::Op;
use crate::errno::{EACCES, EINVAL, ENOENT, EPERM, EROFS};
use crate::error::{IoError, Result};
use crate::probe::finding::Finding;
use crate::shared::SharedMemory;
pub use request::{Completer, Completion, Request, RequestKind, Ticket};
use std::any::Any;
use std::fmt;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A disk: a namespace of files and positioned I/O on them.
///
/// Code written against the trait runs on the operating system's disk and on the simulated one:
///
/// ```
/// use seawall_io::{Create, Disk, OpenHow, OsDisk, Result, SyncHow, WriteHow};
/// use std::{io::IoSlice, path::Path};
/// /// Replaces a small file so that a crash leaves the old contents or the new, and nothing else.
/// fn replace(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
///     let (new, name) = (dir.join("new"), dir.join(name));
///     let file = disk.open(&new, OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
///     let written = disk.write_at(&file, 0, &[IoSlice::new(bytes)], WriteHow::default())?;
///     assert_eq!(written, bytes.len(), "a real program goes on after a short write, as `File` does");
///     disk.sync(&file, SyncHow::All)?;
///     disk.rename(&new, &name)?;
///     disk.sync_dir(dir)
/// }
/// # let dir = tempfile::tempdir()?;
/// replace(&OsDisk::synchronous(), dir.path(), "CURRENT", b"checkpoint 7")?;
/// assert_eq!(std::fs::read(dir.path().join("CURRENT"))?, b"checkpoint 7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Disk: Send + Sync + fmt::Debug {
    /// Returns which backend this is and why it was chosen.
    fn backend(&self) -> &BackendInfo;

    // --- names ---------------------------------------------------------------------------------------------

    /// Opens a file.
    ///
    /// # Errors
    /// The kernel's refusal; `EINVAL` when `how.direct` and the file system has no direct I/O.
    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle>;
    /// Renames a file over any existing one; durable after [`Disk::sync_dir`] of both directories.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Renames a file unless the new name exists; durable after [`Disk::sync_dir`] of both directories. This default
    /// checks for the name first, so the rename overwrites a file that is created in between. The operating system's
    /// disk renames atomically where the file system can.
    ///
    /// # Errors
    /// `EEXIST` when `to` exists, or the kernel's refusal.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let dir = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if self.list(dir)?.iter().any(|p| p.file_name() == to.file_name()) {
            return Err(IoError::os(Op::Directory, to, libc::EEXIST));
        }
        self.rename(from, to)
    }
    /// Removes a file; durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// The kernel's refusal.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Makes creations, renames and removals in a directory durable. After its first successful sync of a
    /// directory, a disk can sync it again without a new descriptor.
    ///
    /// # Errors
    /// [`Op::Sync`] when the sync failed: like [`Disk::sync`], it must not be retried. [`Op::Open`] when the directory
    /// could not be opened: no sync was attempted.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Makes the path of a directory durable: its name, and the names of the directories above it. Any of them may be
    /// new, created by this process or by one that was killed before it made the name durable.
    ///
    /// # Errors
    /// As [`Disk::sync_dir`].
    fn make_name_durable(&self, dir: &Path) -> Result<()> {
        // This process may lack the permission to open a directory, or the directory may be on a read-only file system.
        // Then no name in it is new.
        for (above, parent) in dir.ancestors().skip(1).enumerate() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            match self.sync_dir(parent) {
                Err(e) if matches!(e.errno(), Some(EPERM | EACCES | EINVAL | EROFS)) => {}
                // Only further up: another process may have removed a directory there and created it again.
                Err(e) if above > 0 && e.errno() == Some(ENOENT) => {}
                done => done?,
            }
        }
        Ok(())
    }
    /// Lists everything in a directory, sorted by name.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn list(&self, path: &Path) -> Result<Vec<PathBuf>>;
    /// From now on takes the names in this directory to be those in the directory to which the path leads now, wherever
    /// it is moved and whatever takes its place. This default does nothing.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn pin(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }
    /// Returns the bytes that this process can still allocate on the file system of `path`.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
    /// Returns the size, bytes, of the largest write that a power cut leaves either complete or not done at all, in a
    /// file of the directory `path`, at an offset that is a multiple of the size. This default returns unknown.
    fn untorn_write_bytes(&self, _path: &Path) -> Finding<u32> {
        Finding::unknown("this kind of disk does not tell what a power cut leaves whole")
    }
    /// Returns the size, bytes, of the largest write with [`WriteHow::atomic`] to the file `path` or to a file of the
    /// directory `path`. This default returns unknown.
    fn atomic_write_bytes(&self, _path: &Path) -> Finding<u32> {
        Finding::unknown("this kind of disk has no atomic writes")
    }

    // --- an open file, synchronously -----------------------------------------------------------------------

    /// Locks the file itself against other processes and other handles, without waiting.
    ///
    /// # Errors
    /// [`crate::IoErrorKind::Locked`] when another process or handle holds the lock.
    fn lock(&self, file: &Handle) -> Result<()>;
    /// Takes a shared lock on the file, without waiting. It excludes [`Disk::lock`] but no other shared lock. This
    /// default, for a disk without shared locks, locks the file exclusively.
    ///
    /// # Errors
    /// [`crate::IoErrorKind::Locked`] when another process or handle holds the exclusive lock.
    fn lock_shared(&self, file: &Handle) -> Result<()> {
        self.lock(file)
    }
    /// Returns the length, bytes.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn len(&self, file: &Handle) -> Result<u64>;
    /// Sets the length, bytes. Growth leaves a hole.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn set_len(&self, file: &Handle, len: u64) -> Result<()>;
    /// Allocates blocks for a range of bytes.
    ///
    /// # Errors
    /// `EOPNOTSUPP` when this way of allocating does not exist here, `ENOSPC` when there is no room.
    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()>;
    /// Reads into `buf`. Returns the number of bytes read: it may be less than the buffer's length, and is 0 at the end
    /// of the file.
    ///
    /// # Errors
    /// The kernel's refusal; never `EINTR`.
    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Writes `bufs` in order. Returns the number of bytes written, which may be less than their total length.
    ///
    /// # Errors
    /// The kernel's refusal; never `EINTR`.
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize>;
    /// Makes completed writes durable.
    ///
    /// # Errors
    /// The first error of any write-back since the last sync through this handle. It must not be retried.
    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()>;
    /// Returns what the page cache holds of the first `len` bytes, in whole pages.
    ///
    /// # Errors
    /// The kernel's refusal. `EPERM` where the kernel has no cachestat and the caller neither owns the file nor may
    /// write it: mincore does not answer then.
    fn cached(&self, file: &Handle, len: u64) -> Result<Cached>;
    /// Drops clean pages of a range from the page cache (`len` 0: to the end). Dirty pages stay: call
    /// [`Disk::sync`] first. Pages and large folios (several pages cached as one unit) that lie only partly
    /// inside the range stay too.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()>;

    /// Maps the first `len` bytes of a file as memory. A store to this memory changes the file at once: reads through
    /// the page cache see it, even after this process has died. Nothing makes it durable. The caller must have written
    /// all of these bytes and must not shorten the file.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where a store to such memory could need new space (file systems that do not overwrite in place),
    /// and from this default; or the kernel's refusal.
    fn map_shared(&self, file: &Handle, _len: usize) -> Result<SharedMemory> {
        Err(IoError::os(Op::Inspect, file.path(), libc::EOPNOTSUPP))
    }

    /// Returns the identity of the file, which does not depend on its name.
    ///
    /// # Errors
    /// The kernel's refusal; `EBADF` from this default if the handle has no descriptor.
    fn identity(&self, file: &Handle) -> Result<FileIdentity> {
        let stat = rustix::fs::fstat(file.fd(Op::Inspect)?);
        let stat = stat.map_err(|e| IoError::os(Op::Inspect, file.path(), e.raw_os_error()))?;
        // (The types of these fields differ by architecture.)
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
        Ok(FileIdentity { device: stat.st_dev.into(), inode: stat.st_ino.into(), names: stat.st_nlink as u64 })
    }

    // --- asynchronously ------------------------------------------------------------------------------------

    /// Submits a batch with as few system calls as the backend can. Returns one ticket for each request, in order. The
    /// completion of a request reports its error. May wait for requests in flight when the backend's queue is full.
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket>;
    /// Processes ready completions; with `block`, waits for at least one if anything is in flight. Returns
    /// how many requests this call completed (0 when another thread completed them).
    ///
    /// For a thread that serves all requests. A thread that needs one request must use [`Disk::wait`] instead: another
    /// thread may complete that request between the check of its ticket and this call, which would then wait for a
    /// different request.
    fn drive(&self, block: bool) -> usize;
    /// Waits for one request of this disk, completing others on the way.
    ///
    /// # Panics
    /// When the completion was already taken, by an earlier `wait` or by [`Ticket::take`]: it can be taken
    /// once.
    fn wait(&self, ticket: &Ticket) -> Completion {
        while !ticket.is_done() {
            self.drive(true);
        }
        ticket.take().expect("a completion is taken once")
    }
}

/// Which backend a disk uses.
///
/// ```
/// use seawall_io::{Disk, OsDisk};
/// let disk = OsDisk::synchronous();
/// let info = disk.backend();
/// assert_eq!((info.name, info.reason.as_str()), ("sync", "asked for"));
/// assert!(info.registered_buffers.is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendInfo {
    /// `io_uring`, `threads`, `sync` or `simulated`.
    pub name: &'static str,
    /// Why this backend was chosen, such as `asked for` or `io_uring_setup: Operation not permitted`.
    pub reason: String,
    /// Whether buffers of the arena are registered with the kernel, or why not.
    pub registered_buffers: Result<(), String>,
}

/// How to open a file.
///
/// ```
/// use seawall_io::{Create, Disk, OpenHow, OsDisk};
/// # let dir = tempfile::tempdir()?;
/// let disk = OsDisk::synchronous();
/// let path = dir.path().join("log");
/// disk.open(&path, OpenHow { write: true, create: Create::New, dsync: true, ..OpenHow::default() })?;
/// // The default is read-only, of a file that is there.
/// let reader = disk.open(&path, OpenHow::default())?;
/// assert!(disk.set_len(&reader, 4096).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenHow {
    /// Open for writing too.
    pub write: bool,
    /// What to do if the file exists or is missing.
    pub create: Create,
    /// `O_DIRECT`.
    pub direct: bool,
    /// `O_DSYNC`.
    pub dsync: bool,
}

/// What to do if the file exists or is missing.
///
/// ```
/// use seawall_io::{Create, Disk, OpenHow, OsDisk};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("log");
/// let disk = OsDisk::synchronous();
/// let how = |create| OpenHow { write: true, create, ..OpenHow::default() };
/// assert_eq!(disk.open(&path, how(Create::No)).unwrap_err().errno(), Some(2), "ENOENT");
/// disk.open(&path, how(Create::IfMissing))?;
/// assert_eq!(disk.open(&path, how(Create::New)).unwrap_err().errno(), Some(17), "EEXIST");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Create {
    /// The file must exist.
    #[default]
    No,
    /// The file must not exist: no file is ever overwritten by accident.
    New,
    /// Creates the file if it is missing.
    IfMissing,
}

/// The identity of a file, independent of its name: [`Disk::identity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// The device of its file system.
    pub device: u64,
    /// Its inode number on that device.
    pub inode: u64,
    /// Number of hard links; 0 for a file that was removed but is still open.
    pub names: u64,
}

/// Ways of allocating blocks.
///
/// ```
/// use seawall_io::{Allocate, Disk};
/// # use seawall_io::{Create, OpenHow, OsDisk};
/// # let dir = tempfile::tempdir()?;
/// # let disk = OsDisk::synchronous();
/// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
/// # let file = disk.open(&dir.path().join("f"), how)?;
/// match disk.allocate(&file, Allocate::KeepSize, 0, 1 << 20) {
///     Ok(()) => assert_eq!(disk.len(&file)?, 0, "blocks beyond the end"),
///     Err(e) => println!("not here: {e}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Unwritten extents; the length grows.
    Unwritten,
    /// Unwritten extents beyond the end; the length stays.
    KeepSize,
    /// Written extents of zeroes (`FALLOC_FL_WRITE_ZEROES`); the length grows.
    WriteZeroes,
}

/// How a write is issued.
///
/// ```
/// use seawall_io::{Handle, Op, Request, WriteHow};
/// # let file = Handle::simulated("log".as_ref(), 1);
/// let durable = WriteHow { dsync: true, ..WriteHow::default() };
/// assert_eq!(Request::write(&file, 0, vec![], durable).op(), Op::DurableWrite);
/// assert_eq!(Request::write(&file, 0, vec![], WriteHow::default()).op(), Op::Write);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteHow {
    /// `RWF_DSYNC`: durable when it returns.
    pub dsync: bool,
    /// `RWF_DONTCACHE` (Linux 6.14): a buffered write whose pages leave the page cache once they are written back. A
    /// hint: on ext4 of Linux 6.18 the pages of an append leave the cache, those of an overwrite in place stay.
    /// [`Disk::cached`] reports them.
    pub dontcache: bool,
    /// `RWF_ATOMIC` (Linux 6.11): a crash leaves the write either complete or not done at all. Allowed only for direct
    /// I/O from one buffer whose length is a power of two and at most [`Disk::atomic_write_bytes`], at an offset that
    /// is a multiple of the length; otherwise `EINVAL`.
    pub atomic: bool,
}

/// How completed writes become durable.
///
/// ```
/// use seawall_io::{Disk, SyncHow};
/// # use seawall_io::{Create, OpenHow, OsDisk};
/// # let dir = tempfile::tempdir()?;
/// # let disk = OsDisk::synchronous();
/// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
/// # let file = disk.open(&dir.path().join("log"), how)?;
/// // After growth by `set_len` all metadata is owed once; overwriting needs only the data.
/// disk.set_len(&file, 1 << 20)?;
/// disk.sync(&file, SyncHow::All)?;
/// disk.sync(&file, SyncHow::Data)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncHow {
    /// `fdatasync`: data, and the metadata needed to read it.
    Data,
    /// `fsync`: all metadata.
    All,
}

/// What the page cache holds of a file, bytes.
///
/// ```
/// use seawall_io::Disk;
/// # use seawall_io::{OpenHow, OsDisk};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// std::fs::write(&path, [1; 8192])?;
/// let disk = OsDisk::synchronous();
/// let cached = disk.cached(&disk.open(&path, OpenHow::default())?, 8192)?;
/// assert!(cached.resident <= 8192);
/// assert!(cached.dirty.unwrap_or(0) <= cached.resident);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cached {
    /// Resident. Estimated for more than 4 GiB on a kernel without `cachestat` (before Linux 6.5).
    pub resident: u64,
    /// Resident and not yet written back; `None` when the kernel cannot tell (mincore).
    pub dirty: Option<u64>,
    /// Under write-back; `None` when the kernel cannot tell.
    pub writeback: Option<u64>,
    /// Evicted, as far as the kernel remembers; `None` when the kernel cannot tell.
    pub evicted: Option<u64>,
}

/// An open file of a [`Disk`].
///
/// ```
/// use seawall_io::Handle;
/// let file = Handle::simulated("redo/log.000001".as_ref(), 7);
/// let in_flight = file.clone();
/// assert!(file.is_shared(), "the file stays open while a request holds it");
/// drop(in_flight);
/// assert!(!file.is_shared());
/// ```
#[derive(Debug, Clone)]
pub struct Handle(Arc<HandleInner>);

#[derive(Debug)]
struct HandleInner {
    path: PathBuf,
    file: HandleFile,
}

#[derive(Debug)]
enum HandleFile {
    Os(std::os::fd::OwnedFd),
    Simulated { id: u64, _guard: Option<Box<dyn Any + Send + Sync>> },
}

impl Handle {
    /// Creates a handle of the operating system's disk.
    ///
    /// ```
    /// use seawall_io::{Handle, Op};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// let file = Handle::os(&path, std::fs::File::create(&path)?.into());
    /// assert!(file.fd(Op::Inspect).is_ok());
    /// assert_eq!(file.simulated_id(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn os(path: &Path, fd: std::os::fd::OwnedFd) -> Self {
        Self(Arc::new(HandleInner { path: path.into(), file: HandleFile::Os(fd) }))
    }

    /// Creates a handle of another kind of disk, which chooses `id`.
    ///
    /// ```
    /// use seawall_io::{Handle, Op};
    /// let file = Handle::simulated("data".as_ref(), 42);
    /// assert_eq!(file.simulated_id(), Some(42));
    /// assert_eq!(file.fd(Op::Read).unwrap_err().errno(), Some(9), "EBADF: the kernel knows no such file");
    /// ```
    #[must_use]
    pub fn simulated(path: &Path, id: u64) -> Self {
        Self(Arc::new(HandleInner { path: path.into(), file: HandleFile::Simulated { id, _guard: None } }))
    }

    /// Like [`Handle::simulated`]; `guard` is dropped with the last clone, so that the disk learns that the
    /// file was closed.
    ///
    /// ```
    /// use seawall_io::Handle;
    /// use std::sync::Arc;
    /// let open_files = Arc::new(());
    /// let file = Handle::simulated_guarded("data".as_ref(), 1, Box::new(open_files.clone()));
    /// assert_eq!(Arc::strong_count(&open_files), 2);
    /// drop(file);
    /// assert_eq!(Arc::strong_count(&open_files), 1, "closed");
    /// ```
    #[must_use]
    pub fn simulated_guarded(path: &Path, id: u64, guard: Box<dyn Any + Send + Sync>) -> Self {
        Self(Arc::new(HandleInner { path: path.into(), file: HandleFile::Simulated { id, _guard: Some(guard) } }))
    }

    /// Returns whether other clones exist: requests in flight, or other owners.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Returns the number of other clones.
    pub(crate) fn others(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Returns whether both are clones of one handle.
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the path by which the file was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the id given to [`Handle::simulated`].
    #[must_use]
    pub fn simulated_id(&self) -> Option<u64> {
        match self.0.file {
            HandleFile::Simulated { id, .. } => Some(id),
            HandleFile::Os(_) => None,
        }
    }

    /// Returns the file descriptor.
    ///
    /// # Errors
    /// `EBADF` when the handle belongs to another kind of disk.
    pub fn fd(&self, op: Op) -> Result<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd as _;
        match &self.0.file {
            HandleFile::Os(fd) => Ok(fd.as_fd()),
            HandleFile::Simulated { .. } => Err(IoError::os(op, self.path(), libc::EBADF)),
        }
    }
}
