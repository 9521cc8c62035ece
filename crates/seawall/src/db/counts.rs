//! Collects the statistics of the layers, and counts what only this layer can count.
//!
//! 1. Collecting takes only short mutexes, none that a commit waits for, and reads no page.
//! 2. Counters never decrease. A counter that is derived from gauges reports the highest value seen.
//! 3. Lock waits are not timed individually: the number of waiters is sampled ten times a second and summed.

use super::background::Work;
use super::calibrate;
use super::metrics::{FileState, LockStats, LogStats, PoolStats, PurgeStats, SpaceStats, Stats, TxnStats, total_ns};
use super::options::FlushChoice;
use super::prepared::Prepared;
use crate::buffer::{DOUBLEWRITE_FILE, Pool};
use crate::counted::{Padded, thread_number};
use crate::error::{Error, Result};
use crate::format::TreeId;
use crate::format::control::Torn;
use seawall_io::{CellSnapshot, Disk, File, FileClass, FileOptions, FlushMethod, IoSnapshot, Op};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How often waiting transactions are counted.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The most log files whose page cache is queried; for more files the cost exceeds the benefit.
const FILES_LOOKED_AT_MAX: usize = 256;

/// Stripes of the commit counters.
const STRIPES: usize = 16;

/// The commits of the threads of one stripe.
#[derive(Debug, Default)]
struct Commits {
    all: AtomicU64,
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

/// The counters of this layer, and references to the others.
#[derive(Debug)]
pub(super) struct Counts {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    log_dir: PathBuf,
    work: Arc<Work>,
    prepared: Prepared,
    opened: Duration,
    history_at_open: u64,
    /// Striped by thread, so that commits share no counter.
    commits: Vec<Padded<Commits>>,
    conflicts: AtomicU64,
    lock_wait_ns: AtomicU64,
    purged: AtomicU64,
}

impl Counts {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: &Path, log_dir: PathBuf, work: Arc<Work>, prepared: Prepared) -> Self {
        let engine = &work.engine;
        Self {
            disk,
            dir: dir.into(),
            log_dir,
            opened: engine.clock.now(),
            history_at_open: engine.undo.history_length(),
            commits: (0..STRIPES).map(|_| Padded::default()).collect(),
            conflicts: AtomicU64::new(0),
            lock_wait_ns: AtomicU64::new(0),
            purged: AtomicU64::new(0),
            work,
            prepared,
        }
    }

    /// Counts the commit of a transaction that wrote; it waited for the log if `waited` is not zero.
    pub(super) fn committed(&self, waited: Duration) {
        let commits = &self.commits[thread_number() % STRIPES].0;
        commits.all.fetch_add(1, Relaxed);
        if !waited.is_zero() {
            commits.waits.fetch_add(1, Relaxed);
            commits.wait_ns.fetch_add(ns(waited), Relaxed);
        }
    }

    fn commits(&self, of: impl Fn(&Commits) -> &AtomicU64) -> u64 {
        self.commits.iter().map(|some| of(&some.0).load(Relaxed)).sum()
    }

    /// Counts an error on its way to the user.
    pub(super) fn failed(&self, error: &Error) {
        if matches!(error, Error::WriteConflict { .. }) {
            self.conflicts.fetch_add(1, Relaxed);
        }
    }

    /// Counts each current lock waiter as having waited since the last sample, `since` ago.
    pub(super) fn sample(&self, since: Duration) {
        let waiting = self.work.engine.locks.stats().waiting as u64;
        self.lock_wait_ns.fetch_add(waiting.saturating_mul(ns(since)), Relaxed);
    }

    /// Returns the flush method that `choice` means for the log.
    pub(super) fn log_method(&self, choice: FlushChoice) -> FlushMethod {
        match choice.method() {
            Some(method) => method,
            // With `Background::Steps` nothing is measured.
            None if !self.work.engine.may_wait => FlushMethod::ODirect,
            None => calibrate::method(&*self.disk, &self.log_dir),
        }
    }

    /// Returns the free bytes on the file system.
    pub(super) fn disk_free_bytes(&self) -> Result<u64> {
        Ok(self.disk.free_bytes(&self.dir)?)
    }

    /// Returns the interval of publishing the statistics; zero for never.
    pub(super) fn publish_every(&self) -> Duration {
        self.work.stats_interval()
    }

    /// Returns the time of the database's clock.
    pub(super) fn now(&self) -> Duration {
        self.work.engine.clock.now()
    }

    pub(super) fn gather(&self) -> Stats {
        let engine = &self.work.engine;
        let pool = engine.pool();
        let io = pool.config().stats.snapshot();
        let page_bytes = pool.page_bytes() as u64;
        Stats {
            elapsed_ns: ns(self.now().saturating_sub(self.opened)),
            pool: Self::pool(pool, &io),
            log: self.log(pool),
            txn: self.txn(),
            locks: {
                let locks = engine.locks.stats();
                LockStats {
                    held: (locks.points + locks.ranges) as u64,
                    waiting: locks.waiting as u64,
                    waits: locks.waits,
                    taken_over: locks.taken_over,
                    wait_ns: self.lock_wait_ns.load(Relaxed),
                    timeouts: locks.timeouts,
                    deadlocks: locks.deadlocks,
                }
            },
            purge: self.purge(page_bytes),
            space: self.space(page_bytes, &io),
            files: self.files(pool),
            backend: self.backend(),
            io,
        }
    }

    fn pool(pool: &Pool, io: &IoSnapshot) -> PoolStats {
        let (stats, config) = (pool.stats(), pool.config());
        let doublewrite = config.torn != Torn::Off;
        PoolStats {
            page_bytes: pool.page_bytes() as u64,
            frames: stats.frames,
            frames_free: stats.free,
            frames_dirty: stats.dirty.saturating_sub(stats.deferrable),
            frames_deferrable: stats.deferrable,
            frames_dirty_max: stats.frames * u64::from(pool.max_dirty_percent()) / 100,
            metadata_bytes: stats.metadata_bytes,
            misses: stats.misses,
            reads: of(io, FileClass::Data, Op::Read).map(CellSnapshot::count).sum(),
            prefetched: stats.prefetched,
            prefetch_wasted: stats.prefetch_wasted,
            prefetch_failed: stats.prefetch_failed,
            prefetch_reads: stats.prefetch_reads,
            prefetch_depth_sum: stats.prefetch_depth_sum,
            prefetch_waits: stats.prefetch_waits,
            scan_leaves: stats.scan_leaves,
            scan_leaves_apart: stats.scan_leaves_apart,
            evictions: stats.evictions,
            evictions_deferred: stats.pages_deferred,
            deferred_read_again: stats.deferred_read_again,
            deferred_pages: stats.deferred_pages,
            deferred_bytes: stats.deferred_bytes,
            deferred_bytes_max: stats.deferred_bytes_max,
            evict_waits: stats.frame_waits,
            pages_written: stats.pages_written,
            pages_merged: stats.pages_merged,
            merge_failed: stats.merge_failed,
            merged_records: stats.merged_records,
            doublewrite_pages: if doublewrite {
                stats.pages_written.saturating_sub(stats.pages_written_bare)
            } else {
                0
            },
        }
    }

    fn log(&self, pool: &Pool) -> LogStats {
        let (log, stats) = (pool.log(), pool.log().stats());
        let (head, durable) = (log.head().0, log.durable().0);
        LogStats {
            groups: stats.groups,
            entries: stats.entries,
            bytes: stats.bytes,
            written_bytes: stats.bytes_written,
            flushes: stats.flushes,
            commits: self.commits(|some| &some.all),
            commit_waits: self.commits(|some| &some.waits),
            commit_wait_ns: self.commits(|some| &some.wait_ns),
            checkpoints: pool.stats().checkpoints,
            checkpoint_waits: stats.waits_for_checkpoint,
            buffer_waits: stats.waits_for_buffer,
            capacity_bytes: log.capacity(),
            checkpoint_age_bytes: head.saturating_sub(pool.checkpoint_lsn().0),
            unflushed_bytes: head.saturating_sub(durable),
            segments: self.log_files().len() as u64,
            head_lsn: head,
            durable_lsn: durable,
        }
    }

    fn txn(&self) -> TxnStats {
        let active_set = &self.work.engine.active;
        let begun = active_set.next_id().0.saturating_sub(self.work.engine.first_txn.0);
        let (active, prepared) = (active_set.active_len() as u64, self.prepared.lock().len() as u64);
        let (commits, losers) = (self.commits(|some| &some.all), self.work.losers() as u64);
        TxnStats {
            active: active.saturating_sub(prepared + losers),
            prepared,
            losers,
            views: active_set.views() as u64,
            begun,
            commits,
            rollbacks: self.work.engine.rollbacks.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
        }
    }

    fn purge(&self, page_bytes: u64) -> PurgeStats {
        let engine = &self.work.engine;
        // In this order, as above.
        let ever = self.history_at_open + self.commits(|some| &some.all);
        let history = engine.undo.history_length();
        self.purged.fetch_max(ever.saturating_sub(history), Relaxed);
        PurgeStats {
            history,
            undo_bytes: u64::from(engine.space.pages_of(TreeId::UNDO)) * page_bytes,
            purged: self.purged.load(Relaxed),
            oldest_view_age_ns: engine.active.oldest_view_age().map_or(0, ns),
        }
    }

    fn space(&self, page_bytes: u64, io: &IoSnapshot) -> SpaceStats {
        let engine = &self.work.engine;
        let (space, pool) = (&engine.space, engine.pool());
        // The file's space beyond the pages that may be owned was added by `grow`.
        let ahead = u64::from(pool.file_pages().saturating_sub(space.pages()));
        let grown = || of(io, FileClass::Data, Op::Grow);
        SpaceStats {
            data_bytes: u64::from(pool.file_pages()) * page_bytes,
            free_bytes: (space.free_pages() + ahead) * page_bytes,
            unread_bytes: space.unread_pages() * page_bytes,
            // An unknown value is shown as the maximum, so that it raises no alarm.
            disk_free_bytes: self.disk_free_bytes().unwrap_or(u64::MAX),
            growths: grown().map(CellSnapshot::count).sum(),
            growth_ns: grown().map(total_ns).fold(0, u64::saturating_add),
        }
    }

    fn log_files(&self) -> Vec<PathBuf> {
        let mut files = self.disk.list(&self.log_dir).unwrap_or_default();
        files.retain(|file| {
            let number = file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("redo."));
            number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        });
        files
    }

    /// Returns how each file is open, and how much of it is in the page cache. A file that is gone or fails is
    /// omitted: it may just have been recycled.
    fn files(&self, pool: &Pool) -> Vec<FileState> {
        let data = pool.data_file();
        let cached = |file: &File| file.cached().ok().map(|cached| cached.resident);
        let mut states = vec![FileState { class: FileClass::Data, mode: data.mode(), page_cache_bytes: cached(data) }];
        let open = |path: &Path, class: FileClass, method: FlushMethod| {
            File::open(self.disk.clone(), path, FileOptions::new(class, method)).ok()
        };
        let (log, mode) = (self.log_files(), pool.log().mode());
        let few = log.len() <= FILES_LOOKED_AT_MAX;
        let held = || log.iter().filter_map(|path| cached(&open(path, FileClass::Redo, mode.requested)?)).sum();
        let page_cache_bytes = few.then(held);
        states.push(FileState { class: FileClass::Redo, mode, page_cache_bytes });
        let config = pool.config();
        if config.torn != Torn::Off {
            let path = self.dir.join(DOUBLEWRITE_FILE);
            if let Some(file) = open(&path, FileClass::Doublewrite, config.doublewrite_method) {
                let page_cache_bytes = cached(&file);
                states.push(FileState { class: FileClass::Doublewrite, mode: file.mode(), page_cache_bytes });
            }
        }
        states
    }

    fn backend(&self) -> String {
        let info = self.disk.backend();
        format!("{} ({})", info.name, info.reason)
    }
}

fn of(io: &IoSnapshot, class: FileClass, op: Op) -> impl Iterator<Item = &CellSnapshot> {
    io.cells.iter().filter(move |cell| cell.class == class && cell.op == op)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
