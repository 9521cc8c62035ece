//! A file of a class, opened with a flush method: the interface through which the engine and the lab write.
//!
//! 1. Reads and writes are complete: `File` finishes short transfers. A read past the end of the file is an error
//!    that reports how many bytes there were.
//! 2. A durable write is durable when it returns, under every method. A barrier makes all completed writes
//!    durable. It is skipped only under `o_dsync`, if no change of the file's length or allocation awaits a sync,
//!    and under `o_direct_no_fsync`, if in addition no asynchronous write is growing the file and no write can
//!    have gone into a hole or an unwritten extent (trap 5).
//! 3. No lock is held across a sync: a sync works on a clone of the handle.
//! 4. Changing the method loses no error: the new descriptor is open before the old one is synced, the last sync
//!    of the old one is checked before the change is reported as done (trap 18), and both descriptors see the
//!    write-back errors in between. The lock is kept: the descriptor that holds it stays open as long as the
//!    `File` (trap 7).
//! 5. [`File::mode`] reports the mode in effect, which can differ from the one requested.

mod request;
mod transfer;

use crate::class::{Cause, FileClass, Op};
use crate::disk::{Allocate, Cached, Create, Disk, FileIdentity, Handle, OpenHow, SyncHow};
use crate::error::{IoError, Result};
use crate::method::{EffectiveMode, FlushMethod};
use crate::probe::{DirectSupport, direct_support};
use crate::shared::SharedMemory;
use crate::stats::IoStats;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

pub use request::{FileRequest, Pending};

/// How to open a [`File`].
///
/// ```
/// use seawall_io::{Create, FileClass, FileOptions, FlushMethod, IoStats};
/// use std::sync::Arc;
/// let stats = Arc::new(IoStats::new());
/// let options = FileOptions::new(FileClass::Data, FlushMethod::ODirect).create(Create::IfMissing).stats(&stats);
/// assert_eq!(Arc::strong_count(&stats), 2, "the file counts into the database's statistics");
/// assert!(!options.known_written && !options.cache_is_stable, "nothing is taken for granted");
/// ```
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// What the file is for.
    pub class: FileClass,
    /// How its writes become durable.
    pub method: FlushMethod,
    /// What to do if the file exists or is missing.
    pub create: Create,
    /// Counters to add to.
    pub stats: Arc<IoStats>,
    /// The caller knows that every block below the end is written (it filled and synced the file, and recorded
    /// that). If false, `o_direct_no_fsync` skips no barrier before [`File::declare_written`].
    pub known_written: bool,
    /// The device's cache is proven non-volatile, so that `o_direct_no_fsync` may skip even the checkpoint's
    /// sync.
    pub cache_is_stable: bool,
}

impl FileOptions {
    /// Returns options for an existing file of `class`, flushed by `method`.
    ///
    /// ```
    /// # use seawall_io::{Create, FileClass, FileOptions, FlushMethod};
    /// assert_eq!(FileOptions::new(FileClass::Redo, FlushMethod::Fsync).create, Create::No);
    /// ```
    #[must_use]
    pub fn new(class: FileClass, method: FlushMethod) -> Self {
        Self { class, method, create: Create::No, stats: Arc::default(), known_written: false, cache_is_stable: false }
    }

    /// Sets what to do if the file exists or is missing.
    #[must_use]
    pub fn create(mut self, create: Create) -> Self {
        self.create = create;
        self
    }

    /// Sets the counters to add to.
    #[must_use]
    pub fn stats(mut self, stats: &Arc<IoStats>) -> Self {
        self.stats = stats.clone();
        self
    }
}

/// What a barrier did.
///
/// ```
/// use seawall_io::{Barrier, Cause, Create, File, FileClass, FileOptions, FlushMethod, OsDisk};
/// # use std::sync::Arc;
/// # let dir = tempfile::tempdir()?;
/// let barrier_under = |method: FlushMethod| {
///     let options = FileOptions::new(FileClass::Data, method).create(Create::New);
///     let file = File::open(Arc::new(OsDisk::synchronous()), &dir.path().join(method.name()), options)?;
///     file.write_at(0, b"row", Cause::Clean)?;
///     file.barrier(Cause::Clean)
/// };
/// assert_eq!(barrier_under(FlushMethod::Fsync)?, Barrier::Flushed);
/// assert_eq!(barrier_under(FlushMethod::ODsync)?, Barrier::Skipped, "every write was durable by itself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// The device was flushed.
    Flushed,
    /// This method needed no sync.
    Skipped,
}

/// An open file.
///
/// ```
/// use seawall_io::{AlignedBuf, Backend, Cause, Create, File, FileClass, FileOptions, FlushMethod, OsDisk};
/// use std::sync::Arc;
/// # let dir = tempfile::tempdir()?;
/// let disk = Arc::new(OsDisk::new(Backend::Auto, None)?);
/// let options = FileOptions::new(FileClass::Redo, FlushMethod::ODirect).create(Create::New);
/// let log = File::open(disk, &dir.path().join("log.000001"), options)?;
/// log.write_durable_at(0, &AlignedBuf::copy_of(&[1; 4096]), Cause::Commit)?;
/// println!("in effect: {}", log.mode());
/// // A live file's method can be changed.
/// log.set_method(FlushMethod::Fsync)?;
/// let mut block = AlignedBuf::zeroed(4096);
/// log.read_at(0, &mut block, Cause::Recovery)?;
/// assert!(block.iter().all(|&b| b == 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct File {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    class: FileClass,
    stats: Arc<IoStats>,
    open: RwLock<Open>,
    len: AtomicU64,
    /// Counts growth; growth up to `synced_growth` is durable. Two counters and not a flag: a sync that is still
    /// in progress on another thread would already have cleared the flag, and a barrier would be skipped too
    /// early.
    growth: AtomicU64,
    synced_growth: AtomicU64,
    /// Counts growth by allocation, without data: only a full fsync makes it durable.
    allocations: AtomicU64,
    synced_allocations: AtomicU64,
    /// Asynchronous writes beyond the end that have not been waited for or have failed: they may grow the file at
    /// any moment.
    growing: AtomicU64,
    /// There may be holes or unwritten extents: every barrier must sync.
    unwritten: AtomicBool,
    /// Changes of the flush method in progress.
    switching: AtomicU64,
    /// The handle that holds the lock on the file.
    lock: Mutex<Option<Handle>>,
    cache_is_stable: bool,
}

#[derive(Debug, Clone)]
struct Open {
    handle: Handle,
    mode: EffectiveMode,
}

/// Opens `path` with `method`; falls back to buffered I/O where direct I/O does not work.
fn open_by(disk: &dyn Disk, path: &Path, method: FlushMethod, create: Create) -> Result<Open> {
    let how = OpenHow { write: true, create, direct: method.is_direct(), dsync: method == FlushMethod::ODsync };
    let mut degraded = None;
    let handle = match disk.open(path, how) {
        Err(e) if how.direct && matches!(e.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            degraded = Some("this file system has no direct I/O".to_owned());
            // An O_DIRECT open that is refused may already have created the file.
            let create = if create == Create::New { Create::IfMissing } else { create };
            disk.open(path, OpenHow { direct: false, create, ..how })?
        }
        opened => opened?,
    };
    let mut direct = how.direct && degraded.is_none();
    let mut align_bytes = 1;
    let mut handle = handle;
    if direct {
        match direct_support(&handle) {
            DirectSupport::Aligned(bytes) if bytes as usize <= crate::BUFFER_ALIGN => align_bytes = bytes,
            DirectSupport::Unknown => align_bytes = 4096,
            unusable => {
                let why = match unusable {
                    DirectSupport::Ignored(why) => why,
                    _ => "direct I/O of this file needs larger blocks than 4096 bytes",
                };
                // Reopen it buffered, so that the flag, the alignment and the reported mode agree.
                handle = disk.open(path, OpenHow { direct: false, create: Create::No, ..how })?;
                degraded = Some(why.to_owned());
                direct = false;
            }
        }
    }
    let rwf_dsync = method == FlushMethod::ODirectDsync;
    Ok(Open { handle, mode: EffectiveMode { requested: method, direct, align_bytes, rwf_dsync, degraded } })
}

impl File {
    /// Opens a file. Where the file system has no direct I/O the file is opened buffered, and [`File::mode`]
    /// says so.
    ///
    /// # Errors
    /// As [`Disk::open`] and [`Disk::len`].
    ///
    /// ```
    /// # use seawall_io::{File, FileClass, FileOptions, FlushMethod, OsDisk};
    /// # use std::sync::Arc;
    /// # let dir = tempfile::tempdir()?;
    /// let options = FileOptions::new(FileClass::Data, FlushMethod::ODirect);
    /// let missing = File::open(Arc::new(OsDisk::synchronous()), &dir.path().join("data.sw"), options);
    /// assert!(missing.unwrap_err().to_string().contains("data.sw"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(disk: Arc<dyn Disk>, path: &Path, options: FileOptions) -> Result<Self> {
        let started = Instant::now();
        let FileOptions { class, method, create, stats, known_written, cache_is_stable } = options;
        let opened = open_by(&*disk, path, method, create).and_then(|open| Ok((disk.len(&open.handle)?, open)));
        let (len, open) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                stats.record_error(class, Op::Open, Cause::Other);
                return Err(e);
            }
        };
        stats.record(class, Op::Open, Cause::Other, started.elapsed(), 0);
        // A process that was killed may have grown or cut the file without a sync.
        let inherited = u64::from(len > 0 && !known_written);
        Ok(Self {
            disk,
            path: path.into(),
            class,
            stats,
            open: RwLock::new(open),
            len: AtomicU64::new(len),
            growth: AtomicU64::new(inherited),
            synced_growth: AtomicU64::new(0),
            allocations: AtomicU64::new(inherited),
            synced_allocations: AtomicU64::new(0),
            growing: AtomicU64::new(0),
            switching: AtomicU64::new(0),
            lock: Mutex::default(),
            unwritten: AtomicBool::new(!known_written),
            cache_is_stable,
        })
    }

    fn current(&self) -> Open {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an operation and its outcome.
    fn counted<T>(&self, op: Op, cause: Cause, bytes: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = work();
        match &result {
            Ok(_) => self.stats.record(self.class, op, cause, started.elapsed(), bytes),
            Err(_) => self.stats.record_error(self.class, op, cause),
        }
        result
    }

    /// Returns the file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the mode in effect, with the requested method.
    #[must_use]
    pub fn mode(&self) -> EffectiveMode {
        self.current().mode
    }

    /// Returns the length, bytes, as known to this process.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns whether the file has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the identity of the file: [`Disk::identity`].
    ///
    /// # Errors
    /// As [`Disk::identity`].
    pub fn identity(&self) -> Result<FileIdentity> {
        self.disk.identity(&self.current().handle)
    }

    /// Maps the file's first `len` bytes as memory: [`Disk::map_shared`].
    ///
    /// # Errors
    /// As [`Disk::map_shared`].
    pub fn map_shared(&self, len: usize) -> Result<SharedMemory> {
        self.disk.map_shared(&self.current().handle, len)
    }

    /// Locks the file itself against other processes (trap 7) until this `File` is dropped, without waiting.
    ///
    /// # Errors
    /// [`crate::IoErrorKind::Locked`], or the kernel's refusal.
    ///
    /// ```
    /// use seawall_io::IoErrorKind;
    /// # use seawall_io::{Create, File, FileClass, FileOptions, FlushMethod, OsDisk};
    /// # use std::sync::Arc;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data.sw");
    /// # let options = FileOptions::new(FileClass::Data, FlushMethod::Fsync).create(Create::IfMissing);
    /// # let disk = Arc::new(OsDisk::synchronous());
    /// let mine = File::open(disk.clone(), &path, options.clone())?;
    /// mine.lock()?;
    /// let theirs = File::open(disk, &path, options)?;
    /// assert_eq!(theirs.lock().unwrap_err().kind, IoErrorKind::Locked);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lock(&self) -> Result<()> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            let handle = self.current().handle;
            self.disk.lock(&handle)?;
            *held = Some(handle);
        }
        Ok(())
    }

    /// Records that the bytes from `start` to `end` are written, or are about to be. Returns whether this grows
    /// the file.
    fn note_end(&self, start: u64, end: u64) -> bool {
        // Record the hole before the length: a thread that sees the length must also see that a write below it
        // may allocate.
        if start > self.len() && end > start {
            self.unwritten.store(true, Ordering::Release);
        }
        self.len.fetch_max(end, Ordering::AcqRel) < end
    }

    /// Makes all completed writes durable, unless the flush method needs no sync.
    ///
    /// # Errors
    /// The first error of any write since the last sync. It must not be retried: a second sync may report
    /// success for lost data.
    pub fn barrier(&self, cause: Cause) -> Result<Barrier> {
        let open = self.current();
        // Read in this order: `wait` counts an asynchronous write in `growth` before it removes it from
        // `growing`.
        let nothing_grows = self.growing.load(Ordering::Acquire) == 0;
        let nothing_grew = self.synced_growth.load(Ordering::Acquire) >= self.growth.load(Ordering::Acquire);
        let all_written = !self.unwritten.load(Ordering::Acquire);
        let may_skip = match open.mode.requested {
            FlushMethod::ODsync => nothing_grew,
            FlushMethod::ODirectNoFsync => open.mode.direct && nothing_grows && nothing_grew && all_written,
            FlushMethod::Fsync | FlushMethod::ODirect | FlushMethod::ODirectDsync => false,
        };
        // While the method changes, writes under the old method may not be durable yet.
        if may_skip && self.switching.load(Ordering::SeqCst) == 0 {
            return Ok(Barrier::Skipped);
        }
        self.sync(cause)?;
        Ok(Barrier::Flushed)
    }

    /// Like [`File::barrier`], but for a checkpoint: `o_direct_no_fsync` skips it only if the device's cache is
    /// proven stable.
    ///
    /// # Errors
    /// As [`File::barrier`].
    pub fn checkpoint_barrier(&self) -> Result<Barrier> {
        if self.mode().requested == FlushMethod::ODirectNoFsync && !self.cache_is_stable {
            self.sync(Cause::Checkpoint)?;
            return Ok(Barrier::Flushed);
        }
        self.barrier(Cause::Checkpoint)
    }

    /// Makes all completed writes durable, under every method.
    ///
    /// # Errors
    /// As [`File::barrier`].
    pub fn sync(&self, cause: Cause) -> Result<()> {
        let open = self.current();
        self.counted(Op::Sync, cause, 0, || self.sync_handle(&open.handle, SyncHow::Data))
    }

    fn sync_handle(&self, handle: &Handle, how: SyncHow) -> Result<()> {
        // Read before the sync: concurrent growth is left to the next sync.
        let growth = self.growth.load(Ordering::Acquire);
        let allocations = self.allocations.load(Ordering::Acquire);
        let allocated = self.synced_allocations.load(Ordering::Acquire) < allocations;
        self.disk.sync(handle, if allocated { SyncHow::All } else { how })?;
        self.synced_growth.fetch_max(growth, Ordering::AcqRel);
        if allocated || how == SyncHow::All {
            self.synced_allocations.fetch_max(allocations, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Grows the file to `len` bytes by allocating blocks; never shrinks. Not durable before a barrier.
    ///
    /// # Errors
    /// `ENOSPC` before anything is written; `EOPNOTSUPP` when this way of allocating does not exist here.
    ///
    /// ```
    /// use seawall_io::{Allocate, Cause};
    /// # use seawall_io::{Create, File, FileClass, FileOptions, FlushMethod, OsDisk};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = FileOptions::new(FileClass::Data, FlushMethod::Fsync).create(Create::New);
    /// # let file = File::open(std::sync::Arc::new(OsDisk::synchronous()), &dir.path().join("data"), options)?;
    /// match file.grow(Allocate::Unwritten, 1 << 20, Cause::Preallocate) {
    ///     Ok(()) => assert_eq!(file.len(), 1 << 20),
    ///     Err(e) => assert_eq!(e.op.name(), "grow"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow(&self, how: Allocate, len: u64, cause: Cause) -> Result<()> {
        let from = self.len();
        if len <= from {
            return Ok(());
        }
        let open = self.current();
        self.counted(Op::Grow, cause, len - from, || self.disk.allocate(&open.handle, how, from, len - from))?;
        if how != Allocate::WriteZeroes {
            self.unwritten.store(true, Ordering::Release);
        }
        self.allocations.fetch_add(1, Ordering::AcqRel);
        // Counted before the new length can be seen, so that no barrier after a write into the new part is
        // skipped.
        self.growth.fetch_add(1, Ordering::AcqRel);
        if how != Allocate::KeepSize {
            self.len.fetch_max(len, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Shortens the file to `len` bytes; never lengthens it. Not durable before a barrier. The caller ensures
    /// that no write beyond `len` runs at the same time.
    ///
    /// # Errors
    /// The kernel's refusal: the length is unchanged.
    ///
    /// ```
    /// use seawall_io::{Allocate, Cause};
    /// # use seawall_io::{Create, File, FileClass, FileOptions, FlushMethod, OsDisk};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = FileOptions::new(FileClass::Data, FlushMethod::Fsync).create(Create::New);
    /// # let file = File::open(std::sync::Arc::new(OsDisk::synchronous()), &dir.path().join("data"), options)?;
    /// file.write_at(0, &seawall_io::AlignedBuf::zeroed(8192), Cause::Other)?;
    /// file.cut(4096, Cause::Other)?;
    /// assert_eq!(file.len(), 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cut(&self, len: u64, cause: Cause) -> Result<()> {
        if len >= self.len() {
            return Ok(());
        }
        let open = self.current();
        self.counted(Op::Grow, cause, 0, || self.disk.set_len(&open.handle, len))?;
        // The next barrier must make the new length durable.
        self.allocations.fetch_add(1, Ordering::AcqRel);
        self.growth.fetch_add(1, Ordering::AcqRel);
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Declares that the caller has overwritten and synced every block below the end, and that no write is in
    /// progress. Called too early, it makes `o_direct_no_fsync` skip a barrier that was needed.
    pub fn declare_written(&self) {
        self.unwritten.store(false, Ordering::Release);
    }

    /// Changes the flush method while the file is in use. Returns the mode in effect afterwards.
    ///
    /// # Errors
    /// When the file cannot be opened with the new method, or the path now leads to another file (`ESTALE`),
    /// nothing changes. When the last sync of the old descriptor fails (`op` is [`Op::Sync`]), the new method
    /// is in effect but earlier writes may be lost: the error must poison whatever depends on the file. When
    /// only dropping the page cache fails (`op` is [`Op::Inspect`]), the new method is in effect and nothing
    /// is lost.
    ///
    /// ```
    /// use seawall_io::FlushMethod;
    /// # use seawall_io::{Create, File, FileClass, FileOptions, OsDisk};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = FileOptions::new(FileClass::Data, FlushMethod::Fsync).create(Create::New);
    /// # let path = dir.path().join("data");
    /// # let file = File::open(std::sync::Arc::new(OsDisk::synchronous()), &path, options)?;
    /// assert_eq!(file.set_method(FlushMethod::ODsync)?.requested, FlushMethod::ODsync);
    /// std::fs::remove_file(&path)?;
    /// assert!(file.set_method(FlushMethod::Fsync).is_err(), "the path leads nowhere");
    /// assert_eq!(file.mode().requested, FlushMethod::ODsync, "and nothing has changed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_method(&self, method: FlushMethod) -> Result<EffectiveMode> {
        // Open first (4): from here on both descriptors see every write-back error.
        let new = open_by(&*self.disk, &self.path, method, Create::No)?;
        // On a disk without identities, a path always leads to the same file.
        let identities = (self.disk.identity(&new.handle), self.identity());
        if matches!(identities, (Ok(a), Ok(b)) if (a.device, a.inode) != (b.device, b.inode)) {
            return Err(IoError::os(Op::Open, &self.path, libc::ESTALE));
        }
        let mode = new.mode.clone();
        self.switching.fetch_add(1, Ordering::SeqCst);
        let switched = self.switch_to(new);
        // Also after an error, which poisons whatever depends on the file: no barrier can repair that.
        self.switching.fetch_sub(1, Ordering::SeqCst);
        switched.map(|()| mode)
    }

    /// Replaces the current descriptor with `new` and makes everything written through the old one durable.
    fn switch_to(&self, new: Open) -> Result<()> {
        let direct = new.mode.direct;
        let old = {
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *open, new)
        };
        // Wait for the requests in flight, which hold clones of the old handle; new requests use the new one. If
        // the old handle holds the lock, that clone stays.
        let holds_lock = || {
            let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            lock.as_ref().is_some_and(|handle| handle.is_clone_of(&old.handle))
        };
        while old.handle.others() > usize::from(holds_lock()) {
            self.disk.drive(false);
            std::thread::sleep(Duration::from_micros(100));
        }
        self.counted(Op::Sync, Cause::Other, 0, || self.sync_handle(&old.handle, SyncHow::All))?;
        if direct && !old.mode.direct {
            self.disk.drop_cache(&old.handle, 0, 0)?;
        }
        Ok(())
    }

    /// Returns what the page cache holds of the file.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn cached(&self) -> Result<Cached> {
        self.disk.cached(&self.current().handle, self.len())
    }

    /// Makes durable what an earlier process wrote or copied here, and makes later reads return what is on the disk.
    /// Without direct I/O, the page cache may hold pages that were never written: a sync that fails leaves them there,
    /// clean. So the file's pages are dropped after the sync. On a read-only disk, they are only dropped.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn distrust_cache(&self) -> Result<()> {
        // Not counted: the refusal of a read-only disk is no I/O error.
        match self.sync_handle(&self.current().handle, SyncHow::Data) {
            Err(e) if e.errno() == Some(libc::EROFS) => {}
            synced => synced?,
        }
        if self.mode().direct { Ok(()) } else { self.drop_cache() }
    }

    /// Drops the file's clean pages from the page cache. Dirty pages stay: call [`File::sync`] first.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn drop_cache(&self) -> Result<()> {
        self.disk.drop_cache(&self.current().handle, 0, 0)
    }
}
