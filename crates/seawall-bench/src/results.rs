//! The result of one cell: one workload on one store. docs/bench.md documents the JSON, field by field.
//!
//! 1. A field holds a measured value, or `null` if this machine cannot measure it: zero never stands for
//!    "unknown".
//! 2. Per operation means per operation completed inside the measured window.

use crate::observe::Usage;
use crate::store::Durability;
use seawall_lab::results::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The duration of one entry of [`CellResult::timeline`].
pub const TIMELINE_STEP: Duration = Duration::from_millis(100);

/// What was requested, the machine, and the figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// What was requested.
    #[serde(flatten)]
    pub cell: Cell,
    /// Figures of the measured window.
    #[serde(flatten)]
    pub measured: Measured,
    /// What the process used meanwhile.
    #[serde(flatten)]
    pub used: Usage,
    /// Where the figures come from.
    #[serde(flatten)]
    pub origin: Origin,
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

/// The request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Workload, such as `point-read` or `tpcc`.
    pub workload: String,
    /// Store, as on the command line.
    pub store: String,
    /// Threads that work.
    pub threads: usize,
    /// Keys loaded; 0 when the workload has rows of its own (TPC-C).
    pub keys: u64,
    /// Bytes of a value; 0 in that case too.
    pub value_size: u64,
    /// What a change waits for.
    pub durability: Durability,
    /// Memory given to the store's cache, bytes.
    pub pool_bytes: u64,
    /// The puts of up to this many threads are written as one transaction; 1: each has its own.
    pub client_batch: usize,
    /// Added to each flush, ms.
    pub flush_delay_ms: f64,
    /// The memory cgroup's limit of the process and its page cache, bytes; `null`: this program sets no bound.
    pub memory_limit_bytes: Option<u64>,
    /// The seed of keys, values and order.
    pub seed: u64,
}

/// Figures of the measured window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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

/// Where figures come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The store's version, as reported by its library.
    pub version: String,
    /// Settings that matter for the comparison, by the store's own names.
    pub settings: BTreeMap<String, String>,
    /// The machine.
    pub machine: Machine,
    /// The block device and the file system of the data, or why they are not known.
    pub disk: String,
    /// `git describe` of the source, or `unknown`.
    pub commit: String,
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

/// Names with their values, for a map or a list.
pub(crate) fn named<'n, T>(values: impl IntoIterator<Item = (&'n str, T)>) -> impl Iterator<Item = (String, T)> {
    values.into_iter().map(|(name, value)| (name.to_owned(), value))
}
