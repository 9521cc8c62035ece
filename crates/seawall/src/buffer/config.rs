//! The configuration of a pool.

use crate::format::Malformed;
use crate::format::control::Torn;
use seawall_io::{Clock, FlushMethod, IoStats};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The fewest frames a pool can work with.
pub const FRAMES_MIN: u64 = 16;

/// Applies a redo record, given by its tag and body, to the bytes of its page.
pub type ApplyRecord = fn(u8, &[u8], &mut [u8]) -> std::result::Result<(), Malformed>;

/// The configuration of a pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The directory of the files.
    pub dir: PathBuf,
    /// Bytes of a page; a power of two. Fixed when the database is created.
    pub page_bytes: usize,
    /// Size of the pool, bytes; at least [`FRAMES_MIN`] pages.
    pub pool_bytes: u64,
    /// The largest size that [`super::Pool::set_bytes`] can set, bytes. Costs only address space.
    pub pool_bytes_max: u64,
    /// How the data file is flushed.
    pub method: FlushMethod,
    /// How the doublewrite file is flushed.
    pub doublewrite_method: FlushMethod,
    /// The protection against torn pages.
    pub torn: Torn,
    /// Whether each page is written by one atomic write ([`seawall_io::WriteHow::atomic`]), so that none can tear.
    pub atomic_writes: bool,
    /// Counters.
    pub stats: Arc<IoStats>,
    /// The clock that paces cleaning and measures `patience`.
    pub clock: Arc<dyn Clock>,
    /// Pages a second that cleaning may write while nothing is urgent.
    pub io_capacity: u32,
    /// Pages a second that cleaning may write at most.
    pub io_capacity_burst: u32,
    /// The largest share of the pool that may be dirty, percent. Cleaning begins at half of it, and writes at the burst
    /// rate from 80% of it on.
    pub max_dirty_percent: u32,
    /// The largest share of the log's capacity by which the checkpoint may lag behind the head, percent. Cleaning
    /// begins at half of it, and writes at the burst rate from 80% of it on. The rest of the log is for what is written
    /// until cleaning catches up.
    pub max_checkpoint_age_percent: u32,
    /// Limits, percent, of the share of the pool that is kept for deferred changes once the pool has had to evict.
    pub deferred_percent_min: u32,
    pub deferred_percent: u32,
    /// How a redo record changes a page, by its tag.
    pub redo: ApplyRecord,
    /// The most prefetches that one [`super::Pool::prefetch`] begins.
    pub prefetch_depth: u32,
    /// The most prefetches in flight at one time.
    pub prefetch_depth_total: u32,
    /// How long a thread waits for a frame while all are pinned. Zero if no other thread could release one.
    pub patience: Duration,
}
