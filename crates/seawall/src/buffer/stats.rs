//! Counters and gauges of the pool.
//!
//! Hits are not counted: a counter that every look-up writes would cost more than the look-up. Misses are counted, and
//! `IoStats` also counts reads.

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
            /// Pages in frames that differ from the data file, approximately.
            pub dirty: u64,
            /// The position at which recovery would begin.
            pub checkpoint: u64,
            /// Memory of the frames' descriptors and of the map from pages to frames, bytes; grows with the pool and
            /// the data.
            pub metadata_bytes: u64,
            /// How far the checkpoint is behind the log's head, bytes.
            pub checkpoint_age: u64,
            /// Dirty pages that can be evicted without a write, approximately.
            pub deferrable: u64,
            /// Pages that are in no frame and have deferred changes.
            pub deferred_pages: u64,
            /// Memory of deferred changes, including those of pages in frames, bytes; and its limit.
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
    /// Of the prefetched pages, those that could not be read.
    prefetch_failed,
    /// Of the prefetched pages, those evicted before their first use.
    prefetch_wasted,
    /// Prefetch reads; one reads up to 512 KiB of contiguous pages.
    prefetch_reads,
    /// Sum, over all prefetch reads, of the reads in flight when each began, including itself. Divided by
    /// `prefetch_reads`, it is the average depth.
    prefetch_depth_sum,
    /// Times a reader needed a page whose prefetch was still in flight.
    prefetch_waits,
    /// Leaves that scans reached from the previous leaf.
    scan_leaves,
    /// Of these, leaves not adjacent to the previous leaf in the file: their share is the fragmentation of the scanned
    /// trees.
    scan_leaves_apart,
    /// Pages evicted to make room.
    evictions,
    /// Of these, dirty pages whose changes stayed in memory as redo records.
    pages_deferred,
    /// Of these, pages that had new changes and were read again before they were merged.
    deferred_read_again,
    /// Pages with deferred changes that were read, changed and written to the data file without a frame.
    pages_merged,
    /// Records applied to these pages.
    merged_records,
    /// Attempts to merge a page that could not be read or was damaged.
    merge_failed,
    /// Pages written to the data file.
    pages_written,
    /// Of these, pages that needed no copy in the doublewrite area.
    pages_written_bare,
    /// Batches of pages written to the data file.
    batches,
    /// Writes to the data file, after joining contiguous pages.
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
