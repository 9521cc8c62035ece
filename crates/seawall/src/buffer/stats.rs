//! Counters and gauges of the pool.
//!
//! Hits are not counted: a counter that every look-up writes would cost more than the look-up. Misses are
//! counted, and `IoStats` counts reads too.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        /// Live counters.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64),+ }

        /// The pool at one moment.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub struct PoolStats {
            /// Frames of the pool.
            pub frames: u64,
            /// Free frames, approximately.
            pub free: u64,
            /// Pages that differ from the data file, approximately.
            pub dirty: u64,
            /// The position at which recovery would begin.
            pub checkpoint: u64,
            /// Memory of the frames' descriptors and of the array from pages to frames, bytes; grows with the
            /// pool and the data.
            pub metadata_bytes: u64,
            /// How far the checkpoint is behind the log's head, bytes.
            pub checkpoint_age: u64,
            /// Of these, pages that can leave without a write, approximately.
            pub deferrable: u64,
            /// Pages that are in no frame and have deferred changes.
            pub deferred_pages: u64,
            /// Memory of deferred changes, those of pages in frames included, bytes; and the most.
            pub deferred_bytes: u64,
            pub deferred_bytes_max: u64,
            $($(#[$meta])* pub $name: u64),+
        }

        impl PoolStats {
            pub(super) fn count(&mut self, counters: &Counters) { $(self.$name = counters.$name.load(Ordering::Relaxed);)+ }
        }
    };
}

counters! {
    /// Pages read on demand: a thread waited for them.
    misses,
    /// Pages requested ahead of need.
    prefetched,
    /// Of these, those that could not be read.
    prefetch_failed,
    /// Of these, those evicted before their first use.
    prefetch_wasted,
    /// Prefetches; one reads up to half a mebibyte of contiguous pages.
    prefetch_reads,
    /// Sum over all prefetches of the number in flight when each began, itself included. Divided by their
    /// number it is the depth that was reached.
    prefetch_depth_sum,
    /// Times a reader needed a page whose prefetch was still in flight.
    prefetch_waits,
    /// Leaves that scans reached from the leaf before.
    scan_leaves,
    /// Of these, those not adjacent to it in the file: their share is the fragmentation of the scanned trees.
    scan_leaves_apart,
    /// Pages dropped from memory to make room.
    evictions,
    /// Of these, dirty ones whose changes stayed in memory as redo records.
    pages_deferred,
    /// Of these, pages that were read again before they were merged.
    deferred_read_again,
    /// Pages that were read, given their deferred changes and written home without a frame.
    pages_merged,
    /// Records applied to these.
    merged_records,
    /// Attempts to merge a page that could not be read, or is damaged.
    merge_failed,
    /// Pages written home.
    pages_written,
    /// Of these, those that needed no copy in the doublewrite area.
    pages_written_bare,
    /// Batches of such writes.
    batches,
    /// Home writes after joining contiguous pages.
    home_writes,
    /// Durable writes of the doublewrite area.
    doublewrite_flushes,
    /// Checkpoints written.
    checkpoints,
    /// Frames examined by checkpoints and the cleaner to find dirty pages.
    dirty_looked,
    /// Times a thread had to wait for a frame while all were pinned.
    frame_waits,
    /// Times a mini-transaction had to wait for a checkpoint.
    log_waits,
    /// Torn pages restored when the database was opened.
    pages_restored,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}
