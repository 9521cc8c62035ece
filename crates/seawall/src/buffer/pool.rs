//! The pool: how it is created and opened, its files, its size.
//!
//! 1. The data file is locked for as long as the pool lives (trap 7), and so is the doublewrite file.
//! 2. The data file grows by whole allocations that are durable before the call returns: a full disk is reported here,
//!    as [`Error::NoSpace`], and not when a page is written.
//! 3. The pool can change its size while in use; it gives back memory, but not address space.

mod resize;

use super::arena::Frames;
use super::bravo::VisibleReaders;
use super::cleaner::Cleaner;
use super::config::{FRAMES_MIN, PoolConfig};
use super::control::{Control, open_error};
use super::deferred::Deferred;
use super::dirty::Stripes;
use super::doublewrite::Doublewrite;
use super::loads::{AllocationToken, Loads};
use super::role::Role;
use super::stats::{Counters, PoolStats, count};
use super::translate::Translation;
use super::unfinished::Unfinished;
use crate::error::{Corruption, Error, Health, Result, while_locked};
use crate::format::control::page_bytes_are_valid;
use crate::format::{Lsn, PageId};
use crate::log::Log;
use seawall_io::{Create, Disk, File, FileClass, FileOptions, IoError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How many transaction ids are noted as given out ahead of their use.
const IDS_NOTED: u64 = 63;
/// Name of the data file.
pub const DATA_FILE: &str = "data";

/// The pool: frames, the map from pages to frames, reading and writing of pages.
pub struct Pool {
    pub(super) frames: Frames,
    pub(super) map: Translation,
    pub(super) readers: VisibleReaders,
    pub(super) loads: Loads,
    pub(super) token: AllocationToken,
    pub(super) counters: Counters,
    /// The frames that became dirty.
    pub(super) dirtied: Stripes,
    /// How often a page ceased to be dirty in its frame.
    pub(super) cleaned: AtomicU64,
    pub(super) cleaner: Cleaner,
    pub(super) deferred: Deferred,
    /// The size that was set, bytes: the frames, and what is kept for deferred changes.
    pub(super) given_bytes: AtomicU64,
    pub(super) doublewrite: Option<Doublewrite>,
    pub(super) control: Control,
    pub(super) checkpoint: AtomicU64,
    /// The log's head when the pool was made: everything after it was logged through this pool.
    pub(super) opened_at: Lsn,
    /// See [`Pool::set_io_capacity`].
    pub(super) io_capacity: AtomicU32,
    pub(super) io_capacity_burst: AtomicU32,
    /// See [`Pool::set_cleaning_limits`] and [`Pool::set_prefetch_depths`].
    pub(super) max_dirty_percent: AtomicU32,
    pub(super) max_checkpoint_age_percent: AtomicU32,
    pub(super) prefetch_depth: AtomicU32,
    pub(super) prefetch_depth_total: AtomicU32,
    /// See [`Pool::set_prefetch_window`].
    pub(super) prefetch_window: AtomicU32,
    pub(super) checkpointing: Role,
    flushing: Role,
    pub(super) making_room: Role,
    pub(super) next_txn: AtomicU64,
    pub(super) data: File,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) config: PoolConfig,
    resizing: Role,
    page_bytes: usize,
    log: Arc<Log>,
    health: Arc<Health>,
}

impl Drop for Pool {
    /// Finishes the prefetches, even if opening the database has failed or a poisoned database is dropped: reads in
    /// flight would keep the data file locked.
    fn drop(&mut self) {
        self.finish_prefetches(true);
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("data", &self.data.path()).field("frames", &self.frames.limit()).finish()
    }
}

impl Pool {
    /// Creates the pool of a new database: an empty data file, and a doublewrite file if `config` wants one.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when the sizes are not valid; an error of the disk.
    pub fn create(
        disk: Arc<dyn Disk>,
        config: PoolConfig,
        control: Control,
        log: Arc<Log>,
        health: Arc<Health>,
    ) -> Result<Self> {
        Self::new(disk, config, control, log, health, Create::New)
    }

    /// Opens the pool of an existing database. Call [`Pool::recover_doublewrite`] before anything is read. If `health`
    /// is that of a read-only database, which must have been closed cleanly, nothing is made durable or recovered.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when the sizes are not valid; [`Error::Locked`]; an error of the disk.
    pub fn open(
        disk: Arc<dyn Disk>,
        config: PoolConfig,
        control: Control,
        log: Arc<Log>,
        health: Arc<Health>,
    ) -> Result<Self> {
        Self::new(disk, config, control, log, health, Create::No)
    }

    fn new(
        disk: Arc<dyn Disk>,
        config: PoolConfig,
        control: Control,
        log: Arc<Log>,
        health: Arc<Health>,
        create: Create,
    ) -> Result<Self> {
        let page_bytes = config.page_bytes;
        if !page_bytes_are_valid(page_bytes) {
            let why = "a page has 4, 8, 16 or 32 KiB".to_owned();
            return Err(Error::InvalidOption { name: "page_bytes".into(), value: page_bytes.to_string(), why });
        }
        let max = frames_of(config.pool_bytes_max.max(config.pool_bytes), page_bytes, "pool_size_max")?;
        let now = frames_of(config.pool_bytes, page_bytes, "pool_size")?;
        let frames = Frames::reserve(page_bytes, max)?;
        let map = Translation::new()?;
        frames.grow(now);
        let (bytes_max, least) = (u64::from(max) * page_bytes as u64, config.deferred_percent_min);
        let deferred = Deferred::new(bytes_max, page_bytes, least, config.deferred_percent)?;
        let options = FileOptions::new(FileClass::Data, config.method).create(create).stats(&config.stats);
        let data = File::open(disk.clone(), &config.dir.join(DATA_FILE), options).map_err(open_error)?;
        while_locked(&*config.clock, || data.lock().map_err(open_error))?;
        // The doublewrite file of a closed database has nothing to restore, and a read-only database writes nothing to
        // it.
        let doublewrite = if health.is_read_only() { None } else { Doublewrite::open(&disk, &config, create)? };
        if create == Create::New {
            disk.sync_dir(&config.dir)?;
        } else if !health.is_read_only() {
            // What a killed process wrote can be read but may not be durable: no later barrier of this process would
            // cover it, and the areas of its doublewrite file may still be needed. And redo would take a page that is
            // only in the page cache for current.
            data.distrust_cache()?;
        }
        let block = control.current();
        Ok(Self {
            readers: VisibleReaders::new(),
            loads: Loads::new(page_bytes, max),
            cleaner: Cleaner::new(page_bytes, max),
            deferred,
            given_bytes: AtomicU64::new(config.pool_bytes),
            token: AllocationToken::default(),
            counters: Counters::default(),
            dirtied: Stripes::new(),
            cleaned: AtomicU64::new(0),
            checkpoint: AtomicU64::new(block.checkpoint.0),
            opened_at: log.head(),
            io_capacity: AtomicU32::new(config.io_capacity),
            io_capacity_burst: AtomicU32::new(config.io_capacity_burst),
            max_dirty_percent: AtomicU32::new(config.max_dirty_percent),
            max_checkpoint_age_percent: AtomicU32::new(config.max_checkpoint_age_percent),
            prefetch_depth: AtomicU32::new(config.prefetch_depth),
            prefetch_depth_total: AtomicU32::new(config.prefetch_depth_total),
            prefetch_window: AtomicU32::new(0),
            checkpointing: Role::default(),
            flushing: Role::default(),
            making_room: Role::default(),
            resizing: Role::default(),
            next_txn: AtomicU64::new(block.next_txn.0),
            frames,
            map,
            doublewrite,
            control,
            data,
            disk,
            page_bytes,
            log,
            health,
            config,
        })
    }

    /// Bytes of a page.
    #[inline]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The health of the database: whether it may write.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The control file.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The disk that the files are on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The configuration that it was made with.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The data file's path.
    pub fn data_path(&self) -> &Path {
        self.data.path()
    }

    /// The data file: for changing its flush method, and for reports.
    pub fn data_file(&self) -> &File {
        &self.data
    }

    /// The number of whole pages that the data file has room for.
    pub fn file_pages(&self) -> u32 {
        u32::try_from(self.data.len() / self.page_bytes as u64).unwrap_or(u32::MAX)
    }

    /// Sets how many pages per second cleaning may write: `normal` while nothing is urgent, and at most `burst`.
    pub fn set_io_capacity(&self, normal: u32, burst: u32) {
        self.io_capacity.store(normal, Ordering::Relaxed);
        self.io_capacity_burst.store(burst, Ordering::Relaxed);
    }

    /// Sets [`PoolConfig::max_dirty_percent`] and [`PoolConfig::max_checkpoint_age_percent`] from now on.
    pub fn set_cleaning_limits(&self, dirty_percent: u32, age_percent: u32) {
        self.max_dirty_percent.store(dirty_percent, Ordering::Relaxed);
        self.max_checkpoint_age_percent.store(age_percent, Ordering::Relaxed);
    }

    /// The current value of [`PoolConfig::max_dirty_percent`].
    pub fn max_dirty_percent(&self) -> u32 {
        self.max_dirty_percent.load(Ordering::Relaxed)
    }

    /// Sets the most prefetches that one [`Pool::prefetch`] begins, and that are in flight at one time.
    pub fn set_prefetch_depths(&self, each: u32, total: u32) {
        self.prefetch_depth.store(each, Ordering::Relaxed);
        self.prefetch_depth_total.store(total, Ordering::Relaxed);
    }

    /// Sets the number of pages that a prefetcher keeps requested ahead. With 0, the initial value, each prefetcher
    /// adapts its own number.
    pub fn set_prefetch_window(&self, pages: u32) {
        self.prefetch_window.store(pages, Ordering::Relaxed);
    }

    /// Notes for the checkpoint that every transaction id given out so far is below `next`. Call it before a
    /// transaction with such an id logs anything.
    ///
    /// Notes more ids than were given out, so that only few transactions write the word that all of them read. After a
    /// crash the extra ids are skipped.
    pub fn note_next_txn(&self, next: u64) {
        // A transaction sees its id noted before it logs. A checkpoint that finds the transaction's log published reads
        // the note after that, so it reads this note or a newer one.
        if self.next_txn.load(Ordering::Acquire) < next {
            self.next_txn.fetch_max(next + IDS_NOTED, Ordering::AcqRel);
        }
    }

    /// The position from which recovery would begin now.
    pub fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.checkpoint.load(Ordering::Acquire))
    }

    pub(super) fn offset_of(&self, page: PageId) -> u64 {
        u64::from(page.0) * self.page_bytes as u64
    }

    /// The number of pages in frames that are dirty or being written, approximately.
    pub(super) fn dirty_count(&self) -> u64 {
        // In this order, `cleaned` is never ahead of `marked`.
        let cleaned = self.cleaned.load(Ordering::Acquire);
        self.dirtied.marked().saturating_sub(cleaned)
    }

    /// Counts a scan's step from one leaf to the next.
    pub fn note_scanned(&self, from: PageId, to: PageId) {
        count(&self.counters.scan_leaves, 1);
        if from.0.abs_diff(to.0) != 1 {
            count(&self.counters.scan_leaves_apart, 1);
        }
    }

    /// Returns counters and gauges, each exact at some moment of the call.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let checkpoint = self.checkpoint_lsn().0;
        let [deferred_pages, deferred_bytes, deferred_bytes_max] = self.deferred.sizes();
        let mut stats = PoolStats {
            frames: u64::from(self.frames.limit()),
            free: self.frames.free_count() as u64,
            dirty: self.dirty_count(),
            checkpoint,
            deferrable: self.deferred.listed_frames(),
            deferred_pages,
            deferred_bytes,
            deferred_bytes_max,
            metadata_bytes: (self.frames.descriptor_bytes() + self.map.bytes()) as u64,
            checkpoint_age: self.log().head().0.saturating_sub(checkpoint),
            ..PoolStats::default()
        };
        stats.count(&self.counters);
        stats
    }

    /// Poisons the database with the error of a failed write.
    pub(super) fn failed(&self, error: impl Into<Error>) -> Error {
        self.health().poison(error.into())
    }

    /// Flushes the data file with `flush`, while no other thread does. A failed flush poisons before another one
    /// begins: of several flushes at a time, the kernel reports the failure to one, and the others succeed.
    pub(super) fn flush_data(&self, flush: impl FnOnce(&File) -> Result<(), IoError>) -> Result<()> {
        let _role = self.flushing.take();
        self.health().check()?;
        // After a panic in a flush it is unknown what is durable.
        let unfinished = Unfinished::begin(self.health(), "flushing the data file");
        flush(&self.data).map_err(|e| self.failed(e))?;
        unfinished.done();
        Ok(())
    }

    pub(super) fn file_damage(&self, why: String) -> Error {
        Corruption::File { path: self.data.path().into(), why }.into()
    }
}

/// Returns the number of whole pages in `bytes`, if a pool can have so many frames.
fn frames_of(bytes: u64, page_bytes: usize, name: &'static str) -> Result<u32> {
    let frames = bytes / page_bytes as u64;
    let refused = |why: String| Error::InvalidOption { name: name.into(), value: bytes.to_string(), why };
    if frames < FRAMES_MIN {
        let least = FRAMES_MIN * page_bytes as u64;
        return Err(refused(format!("at least {FRAMES_MIN} pages, {least} bytes")));
    }
    // The two highest values of an entry mean "gone" and "being loaded".
    match u32::try_from(frames) {
        Ok(frames) if frames < u32::MAX - 1 => Ok(frames),
        _ => Err(refused(format!("at most {} pages", u32::MAX - 2))),
    }
}

/// Measures how long a thread has waited for others to release a frame.
pub(super) struct Patience<'p> {
    pool: &'p Pool,
    since: Duration,
}

impl<'p> Patience<'p> {
    pub(super) fn new(pool: &'p Pool) -> Self {
        Self { pool, since: pool.config.clock.now() }
    }

    /// Waits a little. Returns `false`, without waiting, if the pool's patience is used up.
    pub(super) fn nap(&self) -> bool {
        let PoolConfig { clock, patience, .. } = &self.pool.config;
        if clock.now().saturating_sub(self.since) >= *patience {
            return false;
        }
        clock.sleep(Duration::from_micros(200));
        true
    }
}
