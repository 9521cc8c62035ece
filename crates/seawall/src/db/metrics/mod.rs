//! The public statistics of the engine.
//!
//! 1. A number is defined once, below, with its kind and help: the typed statistics and the Prometheus text
//!    come from there.
//! 2. *Counters* only grow while the database is open; *gauges* are current values. [`Stats::since`]
//!    subtracts counters and keeps gauges.
//! 3. There is no field for a number that is not counted: a value that is always 0 would be misread. Pool
//!    hits are such a number: counting each would cost more than the look-up.
//! 4. Names carry their unit: `_bytes`, `_ns` (seconds in Prometheus). Collecting never waits for a mutex
//!    that a commit needs.

pub(super) mod json;

use seawall_io::{CellSnapshot, EffectiveMode, FileClass, IoSnapshot};

/// Whether a number only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// It grows while the database is open.
    Counter,
    /// It is a current value.
    Gauge,
}

/// One number with its description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The part of the engine.
    pub group: &'static str,
    /// The field's name, with its unit.
    pub name: &'static str,
    /// Whether it only grows.
    pub meaning: Meaning,
    /// What it is, as a sentence.
    pub help: &'static str,
    /// Its value.
    pub value: u64,
}

macro_rules! numbers {
    ($($(#[$meta:meta])* $name:ident, $group:literal { $($field:ident $meaning:ident $help:literal,)+ })+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
            #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
            #[cfg_attr(feature = "serde", serde(default))]
            pub struct $name {
                $(#[doc = $help] pub $field: u64,)+
            }

            impl $name {
                /// Returns each number with its description.
                #[must_use]
                pub fn metrics(&self) -> Vec<Metric> {
                    vec![$(Metric {
                        group: $group,
                        name: stringify!($field),
                        meaning: Meaning::$meaning,
                        help: $help,
                        value: self.$field,
                    },)+]
                }

                fn since(&self, earlier: &Self) -> Self {
                    Self { $($field: match Meaning::$meaning {
                        Meaning::Counter => self.$field.saturating_sub(earlier.$field),
                        Meaning::Gauge => self.$field,
                    },)+ }
                }
            }
        )+
    };
}

numbers! {
    /// The buffer pool.
    PoolStats, "pool" {
        page_bytes Gauge "The size of a page, bytes.",
        frames Gauge "Frames in the pool.",
        frames_free Gauge "Frames that hold no page.",
        frames_dirty Gauge "Frames with a dirty page that must be written before it is evicted.",
        frames_deferrable Gauge "Frames with a dirty page that can be evicted as it is: its changes would be deferred.",
        frames_dirty_max Gauge "The limit of dirty frames, by max_dirty_percent.",
        metadata_bytes Gauge "Memory of the page table and the frame states, bytes.",
        misses Counter "Pages read while a thread waited for them.",
        reads Counter "Pages read, for whatever reason.",
        prefetched Counter "Pages prefetched.",
        prefetch_wasted Counter "Of these, pages evicted before their first use.",
        prefetch_failed Counter "Of these, pages that could not be read; a thread that needs one reads it again.",
        prefetch_reads Counter "Prefetch reads; one read fetches contiguous pages.",
        prefetch_depth_sum Counter "Sum of the prefetch reads in flight when each began; divided by their number: the \
            depth reached.",
        prefetch_waits Counter "Times a reader waited for a prefetched page that was still in flight.",
        scan_leaves Counter "Leaves that scans reached from the previous leaf.",
        scan_leaves_apart Counter "Of these, leaves that are not adjacent to it in the file: a high share means that \
            trees are fragmented (`seawall compact`).",
        evictions Counter "Pages evicted.",
        evictions_deferred Counter "Of these, dirty pages that were not written: their changes are deferred, in memory as \
            redo records.",
        deferred_read_again Counter "Of these, pages that were read again before they were merged: writes saved.",
        deferred_pages Gauge "Pages on disk that lack deferred changes.",
        deferred_bytes Gauge "Memory of deferred changes, bytes.",
        deferred_bytes_max Gauge "The limit of that memory, by deferred_percent and what saves most I/O.",
        evict_waits Counter "Times a thread waited because no frame was free.",
        pages_written Counter "Pages written home.",
        pages_merged Counter "Of these, pages that were read to apply their deferred changes.",
        merge_failed Counter "Attempts to do that with a page that could not be read, or is damaged.",
        merged_records Counter "Redo records applied to these.",
        doublewrite_pages Counter "Pages written to the doublewrite area first.",
    }

    /// The log.
    LogStats, "log" {
        groups Counter "Writes of the log, each for all waiting commits.",
        entries Counter "Log entries in them, one a mini-transaction.",
        bytes Counter "Bytes of log made by mini-transactions.",
        written_bytes Counter "Bytes written, including rewrites of the last block.",
        flushes Counter "Times the log was made durable.",
        commits Counter "Commits that were made durable or written.",
        commit_waits Counter "Commits that waited for the log.",
        commit_wait_ns Counter "Total time that they waited, ns.",
        checkpoints Counter "Checkpoints.",
        checkpoint_waits Counter "Times a change waited for a checkpoint because the log was full.",
        buffer_waits Counter "Times a change waited because the log buffer was full.",
        capacity_bytes Gauge "The most log that is kept, bytes (log_capacity).",
        checkpoint_age_bytes Gauge "Log that recovery would read now, bytes.",
        unflushed_bytes Gauge "Log that is not yet durable, bytes.",
        segments Gauge "Log files.",
        head_lsn Gauge "Where the next mini-transaction begins, a position in the log.",
        durable_lsn Gauge "Everything before this position of the log is durable.",
    }

    /// Transactions.
    TxnStats, "txn" {
        active Gauge "Transactions that have written and not ended.",
        prepared Gauge "Prepared transactions that wait for a decision.",
        losers Gauge "Transactions of an earlier opening that are still being rolled back.",
        views Gauge "Snapshots in use.",
        begun Counter "Transactions that wrote.",
        commits Counter "Transactions committed.",
        rollbacks Counter "Transactions rolled back.",
        conflicts Counter "Write conflicts.",
    }

    /// Row and range locks.
    LockStats, "locks" {
        held Gauge "Explicit locks held.",
        waiting Gauge "Transactions that wait for a lock.",
        waits Counter "Times a transaction waited for a lock.",
        taken_over Counter "Times a transaction took over the locks of one whose commit was not yet flushed.",
        wait_ns Counter "Total time that they waited, ns; sampled ten times a second.",
        timeouts Counter "Waits that ended by time-out.",
        deadlocks Counter "Deadlocks found.",
    }

    /// Purge: the removal of undo and deleted rows that no snapshot sees.
    PurgeStats, "purge" {
        history Gauge "Committed transactions whose undo is kept.",
        undo_bytes Gauge "Undo kept, bytes.",
        purged Counter "Committed transactions whose undo was purged.",
        oldest_view_age_ns Gauge "Age of the oldest snapshot in use, ns.",
    }

    /// The data file.
    SpaceStats, "space" {
        data_bytes Gauge "The size of the data file, bytes.",
        free_bytes Gauge "Space in it that belongs to no tree, as far as its space maps have been read, bytes.",
        unread_bytes Gauge "Space in it whose maps have not been read since the opening, bytes: counted as in use.",
        disk_free_bytes Gauge "Space left on its file system, bytes; 2^64 - 1 when that is unknown.",
        growths Counter "Times the data file grew.",
        growth_ns Counter "Total time of growing, ns.",
    }
}

/// How the files of one class are open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FileState {
    /// The class.
    pub class: FileClass,
    /// The mode in effect, and the requested one.
    pub mode: EffectiveMode,
    /// Bytes of its files in the kernel's page cache; `None` if the kernel does not report it.
    pub page_cache_bytes: Option<u64>,
}

/// All statistics of the engine, at one moment or between two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Stats {
    /// The time since the database was opened, or between two moments, ns.
    pub elapsed_ns: u64,
    /// I/O by class, operation and cause.
    pub io: IoSnapshot,
    /// The buffer pool.
    pub pool: PoolStats,
    /// The log.
    pub log: LogStats,
    /// Transactions.
    pub txn: TxnStats,
    /// Locks.
    pub locks: LockStats,
    /// Purge.
    pub purge: PurgeStats,
    /// The data file.
    pub space: SpaceStats,
    /// The files, by class.
    pub files: Vec<FileState>,
    /// The I/O backend, and why it was chosen.
    pub backend: String,
}

impl Stats {
    /// Returns the statistics since `earlier`: counters are differences, gauges are current values.
    ///
    /// ```
    /// use seawall::metrics::Stats;
    /// let mut earlier = Stats { elapsed_ns: 1_000, ..Stats::default() };
    /// earlier.log.commits = 10;
    /// earlier.pool.frames_free = 9;
    /// let mut now = Stats { elapsed_ns: 3_000, ..earlier.clone() };
    /// now.log.commits = 25;
    /// now.pool.frames_free = 4;
    /// let window = now.since(&earlier);
    /// assert_eq!((window.elapsed_ns, window.log.commits, window.pool.frames_free), (2_000, 15, 4));
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            elapsed_ns: self.elapsed_ns.saturating_sub(earlier.elapsed_ns),
            io: IoSnapshot { cells: self.io.cells.iter().map(|cell| cell_since(cell, &earlier.io)).collect() },
            pool: self.pool.since(&earlier.pool),
            log: self.log.since(&earlier.log),
            txn: self.txn.since(&earlier.txn),
            locks: self.locks.since(&earlier.locks),
            purge: self.purge.since(&earlier.purge),
            space: self.space.since(&earlier.space),
            files: self.files.clone(),
            backend: self.backend.clone(),
        }
    }

    /// Returns each number of all groups with its description.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        [
            self.pool.metrics(),
            self.log.metrics(),
            self.txn.metrics(),
            self.locks.metrics(),
            self.purge.metrics(),
            self.space.metrics(),
        ]
        .concat()
    }
}

fn cell_since(cell: &CellSnapshot, earlier: &IoSnapshot) -> CellSnapshot {
    let mut out = cell.clone();
    if let Some(before) = earlier.get(cell.class, cell.op, cell.cause) {
        // Counts of another database cannot be subtracted; then the full count is used.
        if let Some(latency) = cell.latency.since(&before.latency) {
            out.latency = latency;
        }
        out.bytes = cell.bytes.saturating_sub(before.bytes);
        out.errors = cell.errors.saturating_sub(before.errors);
    }
    out
}

/// Returns the total time of a cell's operations, ns, as exactly as its buckets allow.
#[must_use]
pub fn total_ns(cell: &CellSnapshot) -> u64 {
    let sum: f64 = cell.latency.iter().map(|b| (b.start() as f64 + b.end() as f64) / 2.0 * b.count() as f64).sum();
    sum as u64
}

/// Returns the latency that `percent` of a cell's operations did not exceed, ns; 0 if there were none.
#[must_use]
pub fn percentile_ns(cell: &CellSnapshot, percent: f64) -> u64 {
    let rank = ((cell.count() as f64 * percent / 100.0).ceil() as u64).max(1);
    let mut below = 0;
    for bucket in &cell.latency {
        below += bucket.count();
        if below >= rank {
            return bucket.end();
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_io::{Cause, IoStats, Op};
    use std::time::Duration;

    #[test]
    fn io_is_subtracted_cell_by_cell() {
        let io = IoStats::new();
        let of = |io: &IoStats| Stats { io: io.snapshot(), ..Stats::default() };
        io.record(FileClass::Redo, Op::Sync, Cause::Commit, Duration::from_micros(50), 0);
        let earlier = of(&io);
        io.record(FileClass::Redo, Op::Sync, Cause::Commit, Duration::from_micros(90), 0);
        io.record(FileClass::Data, Op::Read, Cause::DemandRead, Duration::from_micros(90), 4096);
        let window = of(&io).since(&earlier);
        assert_eq!(window.io.get(FileClass::Redo, Op::Sync, Cause::Commit).unwrap().count(), 1);
        assert_eq!(window.io.get(FileClass::Data, Op::Read, Cause::DemandRead).unwrap().bytes, 4096);
        assert_eq!(earlier.since(&of(&io)).pool, PoolStats::default(), "an order turned round gives no huge numbers");
    }

    #[test]
    fn statistics_survive_json_and_older_writers() {
        let mut stats = Stats { backend: "io_uring".into(), ..Stats::default() };
        stats.log.bytes = u64::MAX;
        let json = serde_json::to_string(&stats).unwrap();
        assert_eq!(serde_json::from_str::<Stats>(&json).unwrap(), stats);
        let older: Stats = serde_json::from_str("{\"log\": {\"commits\": 3}}").unwrap();
        assert_eq!(older.log.commits, 3);
    }
}
