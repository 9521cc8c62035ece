//! The result of one cell: one workload on one store. docs/bench.md documents the JSON, field by field.
//!
//! 1. A field holds a measured value, or `null` if this machine cannot measure it: zero never stands for
//!    "unknown".
//! 2. Per operation means per operation completed inside the measured window.

use crate::run::recorder::Latencies;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The duration of one entry of [`CellResult::timeline`].
pub const TIMELINE_STEP: Duration = Duration::from_millis(100);

/// What was requested, the machine, and the figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Workload, such as `point-read` or `tpcc`.
    pub workload: String,
    /// Store.
    pub store: String,
    /// The store's version, as reported by its library.
    pub version: String,
    /// Threads that worked.
    pub threads: usize,
    /// Keys loaded; 0 when the workload has rows of its own (TPC-C).
    pub keys: u64,
    /// Bytes of a value; 0 likewise.
    pub value_size: u64,
    /// `flushed`, `written` or `deferred`.
    pub durability: String,
    /// Memory given to the store's cache, bytes.
    pub pool_bytes: u64,
    /// The puts of up to this many threads were written as one transaction; 1: each had its own.
    pub client_batch: usize,
    /// Added to each flush, ms.
    pub flush_delay_ms: f64,
    /// Figures of the measured window.
    #[serde(flatten)]
    pub measured: Measured,
    /// Resident memory of the process at the end of the window, bytes.
    pub rss_bytes: Option<u64>,
    /// Its maximum in the window, bytes.
    pub rss_peak_bytes: Option<u64>,
    /// What the page cache held of the store's files at the end, bytes.
    pub page_cache_bytes: Option<u64>,
    /// Processors this process used, user and system, in cores.
    pub cpu_cores: f64,
    /// Processors that other processes used meanwhile, in cores.
    pub foreign_cpu_cores: f64,
    /// The memory cgroup's limit of the process and its page cache, bytes; `null`: this program set no bound.
    pub memory_limit_bytes: Option<u64>,
    /// Settings that matter for the comparison, by the store's own names.
    pub settings: BTreeMap<String, String>,
    /// The machine.
    pub machine: Machine,
    /// `git describe` of the source, or `unknown`.
    pub commit: String,
    /// The seed of keys, values and order.
    pub seed: u64,
    /// How the data was loaded; `null` when it existed already, or when the load was measured.
    pub load: Option<Load>,
    /// Operations completed in each 100 ms.
    pub timeline: Vec<u64>,
    /// Upper edge of the bucket (us), operations in it; empty buckets are left out.
    pub histogram: Vec<(f64, u64)>,
    /// Figures that only some workloads have.
    #[serde(flatten)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// Figures of the measured window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Length of the window, s.
    pub duration_s: f64,
    /// Operations completed in it.
    pub ops: u64,
    /// Threads that ended with an error; the others were stopped too.
    pub errors: u64,
    /// How often an operation was tried again because of a conflict with another transaction.
    pub conflicts: u64,
    /// Rate.
    pub ops_per_s: f64,
    /// Median latency, us.
    pub p50_us: f64,
    /// 95th percentile, us.
    pub p95_us: f64,
    /// 99th percentile, us.
    pub p99_us: f64,
    /// 99.9th percentile, us.
    pub p999_us: f64,
    /// Longest, us.
    pub max_us: f64,
    /// The longest time in which no operation of any thread completed, ms.
    pub longest_gap_ms: f64,
    /// Bytes the device read, per operation. I/O of other processes on the same device is included.
    pub device_read_bytes_per_op: Option<f64>,
    /// Bytes the device wrote, per operation.
    pub device_written_bytes_per_op: Option<f64>,
    /// Reads of the device per second.
    pub device_reads_per_s: Option<f64>,
    /// Writes of the device per second.
    pub device_writes_per_s: Option<f64>,
    /// Flush requests of the device per operation.
    pub flushes_per_op: Option<f64>,
}

impl Measured {
    /// The latencies, with everything else at zero or unknown.
    #[must_use]
    pub fn of(latencies: &Latencies) -> Self {
        Self {
            duration_s: 0.0,
            ops: 0,
            errors: 0,
            conflicts: 0,
            ops_per_s: 0.0,
            p50_us: latencies.quantile_us(0.5),
            p95_us: latencies.quantile_us(0.95),
            p99_us: latencies.quantile_us(0.99),
            p999_us: latencies.quantile_us(0.999),
            max_us: latencies.max_us(),
            longest_gap_ms: 0.0,
            device_read_bytes_per_op: None,
            device_written_bytes_per_op: None,
            device_reads_per_s: None,
            device_writes_per_s: None,
            flushes_per_op: None,
        }
    }
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub cpu_model: String,
    /// Processors available to the process.
    pub cores: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// `uname -r`.
    pub kernel: String,
    /// The file system of the data, such as `ext4`.
    pub file_system: String,
    /// The block device under it, or why it is not known.
    pub device: String,
}

/// How the data was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Rows per second.
    pub rows_per_s: f64,
    /// Duration in seconds, without settling.
    pub seconds: f64,
    /// Seconds the store needed afterwards for postponed work.
    pub settle_seconds: f64,
}

impl CellResult {
    /// As JSON, for people too.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Maps with text keys and finite numbers: this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Reads what [`CellResult::to_json`] wrote.
    ///
    /// # Errors
    /// When it is not such a result.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}
