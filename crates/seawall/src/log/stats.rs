//! The log's counters, beside the latencies that the I/O layer counts.
//!
//! Counters are added to once per group, wait or segment, never per mini-transaction: the number of
//! mini-transactions is summed from the slots they were published through.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        #[derive(Debug, Default)]
        #[repr(C)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64),+ }

        /// Counters of a log since it was opened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct LogStats {
            /// Mini-transactions published.
            pub entries: u64,
            $($(#[$meta])* pub $name: u64),+
        }

        impl Counters {
            pub(super) fn snapshot(&self, entries: u64) -> LogStats {
                LogStats { entries, $($name: self.$name.load(Ordering::Relaxed)),+ }
            }
        }
    };
}

counters! {
    /// Groups written.
    groups,
    /// Flushes of the device.
    flushes,
    /// Bytes of log written, each counted once.
    bytes,
    /// Bytes of blocks written; every group that begins in the tail block writes it again.
    bytes_written,
    /// Waits in which the waiting thread wrote the group itself.
    led,
    /// Waits that another thread's group ended. `(led + followed) / groups` is how many commits share a
    /// write.
    followed,
    /// Admissions refused because the buffer was full.
    waits_for_buffer,
    /// Admissions refused because a checkpoint had to come first.
    waits_for_checkpoint,
    /// Admissions that found no segment prepared and waited for one, or made it.
    waits_for_segment,
    /// Segments filled.
    segments_made,
    /// Segments used again.
    segments_recycled,
    /// Segments removed.
    segments_removed,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
