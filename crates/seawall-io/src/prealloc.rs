//! Files prepared ahead of need: written extents, synced, under their final name, before the first commit
//! into them.
//!
//! ```text
//!   begin ──reserve checked, NAME.filling created, blocks allocated──> filling
//!   filling ──step──> filling ──last step: fsync, rename, directory fsync──> ready
//!   any ──error or drop──> NAME.filling removed
//! ```
//!
//! 1. The final name exists only when every byte is written and synced, so a crash leaves a `.filling` file
//!    (removed by [`sweep`]) or a complete file.
//! 2. Where the file system has fallocate, all blocks are allocated before the first zero is written. The
//!    reserve is checked before that: a full disk is found here and not on the commit path.
//! 3. Where the file system has direct I/O, the zeroes are direct writes at the stated rate. The page cache
//!    then holds none of them, and no sync finds a backlog (an unsynced buffered fill stalls the first commit
//!    by hundreds of milliseconds).
//! 4. Filling is a sequence of steps: a thread drives it in production ([`Fill::run`]), a simulator one step
//!    at a time.

use crate::buf::AlignedBuf;
use crate::class::{Cause, FileClass, Op};
use crate::clock::{Clock, Pace};
use crate::disk::{Allocate, Create, Disk};
use crate::error::{IoError, IoErrorKind, Result};
use crate::file::{File, FileOptions};
use crate::method::FlushMethod;
use crate::stats::IoStats;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Name extension of a file that is not ready.
pub const FILLING: &str = "filling";
/// While [`Fill::run`] waits for its rate, it checks for a stop this often.
const NAP_MAX: Duration = Duration::from_millis(100);
/// Bytes written by one step.
pub const STEP_BYTES: usize = 256 << 10;

/// The file to make, and how.
///
/// ```
/// use seawall_io::{FileClass, FillOptions};
/// // Gentle on the commits beside it, and never the last gigabyte of the disk.
/// let usual = FillOptions::new(FileClass::Redo, 64 << 20);
/// let options = FillOptions { bytes_per_second: 20e6, reserve: 1 << 30, ..usual };
/// assert_eq!(options.len, 64 << 20);
/// ```
#[derive(Debug, Clone)]
pub struct FillOptions {
    /// Length, bytes; rounded up to 4096.
    pub len: u64,
    /// Bytes of free space to leave.
    pub reserve: u64,
    /// Maximum bytes a second that [`Fill::run`] writes.
    pub bytes_per_second: f64,
    /// What the file is for.
    pub class: FileClass,
    /// Counters to add to.
    pub stats: Arc<IoStats>,
    /// Use `FALLOC_FL_WRITE_ZEROES` where it works: written extents without writing.
    pub write_zeroes: bool,
    /// Without, the blocks are only allocated, where the file system can: for those that copy on write.
    pub written: bool,
}

impl FillOptions {
    /// Returns options for a file of `len` bytes, filled at 100 MB/s, that leave 64 MiB free.
    ///
    /// ```
    /// # use seawall_io::{FileClass, FillOptions};
    /// assert_eq!(FillOptions::new(FileClass::Redo, 1 << 20).reserve, 64 << 20);
    /// ```
    #[must_use]
    pub fn new(class: FileClass, len: u64) -> Self {
        let (stats, bytes_per_second) = (Arc::default(), 100e6);
        Self { len, reserve: 64 << 20, bytes_per_second, class, stats, write_zeroes: true, written: true }
    }
}

/// A file being filled.
///
/// ```
/// use seawall_io::{Backend, Fill, FillOptions, FileClass, OsDisk, SystemClock};
/// use std::sync::{Arc, atomic::AtomicBool};
/// # let dir = tempfile::tempdir()?;
/// let disk = Arc::new(OsDisk::new(Backend::Auto, None)?);
/// let fill = Fill::begin(disk, &dir.path().join("log.000001"), FillOptions::new(FileClass::Redo, 1 << 20))?;
/// let segment = fill.run(&SystemClock::default(), &AtomicBool::new(false))?;
/// assert_eq!(segment.len(), 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Fill {
    disk: Arc<dyn Disk>,
    file: File,
    /// The file has its final name.
    renamed: bool,
    target: PathBuf,
    filling: PathBuf,
    options: FillOptions,
    done: u64,
    zeroes: AlignedBuf,
}

/// The state after a step.
///
/// ```
/// use seawall_io::{FileClass, Fill, FillOptions, FillStep, OsDisk};
/// # let dir = tempfile::tempdir()?;
/// # let disk = std::sync::Arc::new(OsDisk::synchronous());
/// let target = dir.path().join("log.000002");
/// let mut fill = Fill::begin(disk, &target, FillOptions::new(FileClass::Redo, 1 << 20))?;
/// let segment = loop {
///     assert!(!target.exists(), "not before it is whole");
///     match fill.step()? {
///         FillStep::Filling(more) => fill = more,
///         FillStep::Ready(file) => break file,
///     }
/// };
/// assert_eq!(segment.path(), target);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum FillStep {
    /// More to do.
    Filling(Fill),
    /// The file, complete, synced and under its final name.
    Ready(File),
}

impl Fill {
    /// Creates `target`'s `.filling` file and allocates its blocks.
    ///
    /// # Errors
    /// [`IoErrorKind::Reserve`] when there is too little free space, `EEXIST` when `target` or its `.filling`
    /// file exists (another fill is in progress, or was interrupted and awaits [`sweep`]), or the kernel's
    /// refusal. Nothing is left behind.
    ///
    /// ```
    /// use seawall_io::{FileClass, Fill, FillOptions, IoErrorKind, OsDisk};
    /// # let dir = tempfile::tempdir()?;
    /// # let disk = std::sync::Arc::new(OsDisk::synchronous());
    /// let huge = FillOptions { reserve: u64::MAX, ..FillOptions::new(FileClass::Redo, 4096) };
    /// let error = Fill::begin(disk, &dir.path().join("log.000003"), huge).unwrap_err();
    /// assert!(matches!(error.kind, IoErrorKind::Reserve { needed: 4096, available: 0, .. }));
    /// assert_eq!(std::fs::read_dir(dir.path())?.count(), 0, "nothing is left behind");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn begin(disk: Arc<dyn Disk>, target: &Path, options: FillOptions) -> Result<Self> {
        let options = FillOptions { len: options.len.next_multiple_of(4096), ..options };
        let dir = directory(target);
        if disk.list(dir)?.iter().any(|p| p.file_name() == target.file_name()) {
            return Err(IoError::os(Op::Directory, target, libc::EEXIST));
        }
        let available = disk.free_bytes(dir)?.saturating_sub(options.reserve);
        if available < options.len {
            let kind = IoErrorKind::Reserve { needed: options.len, available, reserve: options.reserve };
            return Err(IoError::new(Op::Grow, target, kind));
        }
        let mut filling = target.as_os_str().to_owned();
        filling.push(".");
        filling.push(FILLING);
        let filling = PathBuf::from(filling);
        let file_options =
            FileOptions::new(options.class, FlushMethod::ODirect).create(Create::New).stats(&options.stats);
        let file = File::open(disk.clone(), &filling, file_options).inspect_err(|e| {
            // An open that failed half-way may have created the file. `EEXIST`: the file belongs to another
            // fill.
            if e.errno() != Some(libc::EEXIST) {
                drop(disk.remove(&filling));
            }
        })?;
        let mut this = Self {
            disk,
            file,
            renamed: false,
            target: target.into(),
            filling,
            options,
            done: 0,
            zeroes: AlignedBuf::zeroed(STEP_BYTES),
        };
        this.allocate()?;
        Ok(this)
    }

    fn allocate(&mut self) -> Result<()> {
        let file = &self.file;
        if self.options.write_zeroes && self.options.written {
            match file.grow(Allocate::WriteZeroes, self.options.len, Cause::Preallocate) {
                Ok(()) => {
                    self.done = self.options.len;
                    return Ok(());
                }
                Err(e) if e.is_unsupported() => {}
                Err(e) => return Err(e),
            }
        }
        match file.grow(Allocate::Unwritten, self.options.len, Cause::Preallocate) {
            // No fallocate here: writing the zeroes allocates the blocks.
            Err(e) if e.is_unsupported() => return Ok(()),
            grown => grown?,
        }
        if !self.options.written {
            self.done = self.options.len;
        }
        Ok(())
    }

    /// Returns the bytes written and the total.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.options.len)
    }

    /// Writes the next [`STEP_BYTES`], or finishes the file.
    ///
    /// # Errors
    /// The kernel's refusal, or `EEXIST` when `target` has been created meanwhile; the `.filling` file is
    /// then removed. When the directory's sync or the last open fails, the complete and synced file is under
    /// its final name, but that name may be lost in a power cut.
    pub fn step(mut self) -> Result<FillStep> {
        if self.done < self.options.len {
            let len = usize::try_from(self.options.len - self.done).map_or(STEP_BYTES, |left| left.min(STEP_BYTES));
            self.file.write_at(self.done, &self.zeroes[..len], Cause::Preallocate)?;
            self.done += len as u64;
            return Ok(FillStep::Filling(self));
        }
        self.take_name()?;
        self.disk.sync_dir(directory(&self.target))?;
        let options = FileOptions {
            known_written: self.options.written,
            ..FileOptions::new(self.options.class, FlushMethod::ODirect).stats(&self.options.stats)
        };
        File::open(self.disk.clone(), &self.target, options).map(FillStep::Ready)
    }

    /// Ends a fill whose bytes are all written ([`Fill::progress`]): syncs the file and gives it its final
    /// name, which is durable only after the next [`Disk::sync_dir`] of its directory. It is for callers that
    /// open the file themselves and must distinguish a failure before the rename from one after it.
    ///
    /// # Errors
    /// [`IoErrorKind::Cancelled`] when bytes are missing; otherwise as [`Fill::step`]. After any error the
    /// final name does not lead to this file, and the `.filling` file is removed.
    ///
    /// ```
    /// use seawall_io::{Disk, FileClass, Fill, FillOptions, FillStep, OsDisk};
    /// # let dir = tempfile::tempdir()?;
    /// # let disk = std::sync::Arc::new(OsDisk::synchronous());
    /// let target = dir.path().join("log.000004");
    /// let mut fill = Fill::begin(disk.clone(), &target, FillOptions::new(FileClass::Redo, 1 << 20))?;
    /// while fill.progress().0 < fill.progress().1 {
    ///     let FillStep::Filling(more) = fill.step()? else { unreachable!("the last step is left to us") };
    ///     fill = more;
    /// }
    /// fill.name()?;
    /// disk.sync_dir(dir.path())?;
    /// assert!(target.exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(mut self) -> Result<()> {
        if self.done < self.options.len {
            return Err(IoError::new(Op::Directory, &self.target, IoErrorKind::Cancelled));
        }
        self.take_name()
    }

    fn take_name(&mut self) -> Result<()> {
        self.file.sync(Cause::Preallocate)?;
        if !self.file.mode().direct {
            // The zeroes went through the page cache. Pages that stay there (all of them, in a memory file
            // system) do no harm.
            drop(self.file.drop_cache());
        }
        self.disk.rename_new(&self.filling, &self.target)?;
        // From here on there is no `.filling` file to remove.
        self.renamed = true;
        Ok(())
    }

    /// Drives the fill to its end at the stated rate.
    ///
    /// # Errors
    /// As [`Fill::step`]; [`IoErrorKind::Cancelled`] when `stop` is set (checked before every step, and ten
    /// times a second during a wait for the rate).
    pub fn run(self, clock: &dyn Clock, stop: &AtomicBool) -> Result<File> {
        let mut pace = Pace::new(self.options.bytes_per_second);
        let mut fill = self;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(IoError::new(Op::Write, &fill.target, IoErrorKind::Cancelled));
            }
            if fill.done < fill.options.len {
                let delay = pace.delay(clock.now(), STEP_BYTES as f64);
                let mut left = delay;
                while !left.is_zero() && !stop.load(Ordering::Relaxed) {
                    let nap = left.min(NAP_MAX);
                    clock.sleep(nap);
                    left -= nap;
                }
                if !left.is_zero() {
                    continue;
                }
            }
            match fill.step()? {
                FillStep::Ready(file) => return Ok(file),
                FillStep::Filling(rest) => fill = rest,
            }
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if !self.renamed {
            // Best effort: `sweep` removes it at the next start.
            drop(self.disk.remove(&self.filling));
        }
    }
}

/// Durably renames a used file to `target`, the next file, which is then overwritten in place and allocates
/// nothing. A [`File`] open on the used file remains usable but cannot change its flush method: reopen it by
/// its new name.
///
/// # Errors
/// The kernel's refusal; `EEXIST` when `target` exists.
///
/// ```
/// use seawall_io::{Disk, OsDisk, recycle};
/// # let dir = tempfile::tempdir()?;
/// let (used, next) = (dir.path().join("log.000001"), dir.path().join("log.000009"));
/// std::fs::write(&used, [1; 4096])?;
/// let disk = OsDisk::synchronous();
/// recycle(&disk, &used, &next)?;
/// assert_eq!(disk.list(dir.path())?, [next]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recycle(disk: &dyn Disk, used: &Path, target: &Path) -> Result<()> {
    let dir = directory(target);
    disk.rename_new(used, target)?;
    disk.sync_dir(dir)?;
    if directory(used) != dir { disk.sync_dir(directory(used)) } else { Ok(()) }
}

/// Returns the directory that holds `path`.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes the files of interrupted fills from a directory; returns the files removed. Call it at start,
/// before the first fill.
///
/// # Errors
/// The kernel's refusal.
///
/// ```
/// use seawall_io::{OsDisk, sweep};
/// # let dir = tempfile::tempdir()?;
/// let leftover = dir.path().join("log.000007.filling");
/// std::fs::write(&leftover, [0; 100])?;
/// assert_eq!(sweep(&OsDisk::synchronous(), dir.path())?, [leftover]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sweep(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for path in disk.list(dir)? {
        if path.extension().is_some_and(|e| e == FILLING) {
            match disk.remove(&path) {
                Ok(()) => removed.push(path),
                // Skip a directory (POSIX lets unlink report one as EPERM).
                Err(e) if matches!(e.errno(), Some(libc::EISDIR | libc::EPERM)) && path.is_dir() => {}
                Err(e) => return Err(e),
            }
        }
    }
    if !removed.is_empty() {
        disk.sync_dir(dir)?;
    }
    Ok(removed)
}
