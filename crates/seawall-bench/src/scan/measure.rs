//! Runs queries on some threads for some time, with concurrent point reads if requested, and derives the figures.
//!
//! 1. Rates count rows visited inside the window, also of a query that crosses an edge of the window.
//! 2. A figure that this machine or store cannot provide is `None`.

use super::query::{Client, Query, Rows};
use crate::observe::Observer;
use crate::run::drive::{Driven, Limit, Spec, drive};
use crate::run::recorder::Latencies;
use crate::store::Store;
use seawall_lab::run::Progress;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A scanning thread that is limited only by its processor uses at least this much of it.
const CPU_BOUND_CORES: f64 = 0.9;

/// The class of queries, and that of point reads.
const QUERIES: usize = 0;
const POINTS: usize = 1;

/// A measurement.
#[derive(Debug, Clone, Copy)]
pub struct Scans {
    /// The table, which exists.
    pub rows: Rows,
    /// The query of each scanning thread.
    pub query: Query,
    /// Scanning threads; 0 when only point reads are measured.
    pub threads: usize,
    /// Threads that read single random keys at the same time.
    pub readers: usize,
    /// When the window ends.
    pub limit: Limit,
    /// The warm-up before it.
    pub warm_up: Duration,
}

/// The result.
#[derive(Debug)]
pub struct Scanned {
    /// Operations of all threads, scans and point reads, and the observations of the machine.
    pub driven: Driven,
    /// Rows that each scanning thread visited in the window.
    pub rows_by_thread: Vec<u64>,
    /// Latencies of the queries, from the request of the first row to the visit of the last one.
    pub queries: Latencies,
    /// Latencies of the point reads.
    pub points: Latencies,
    /// The store's counters: their growth in the window.
    pub counted: Vec<(&'static str, u64)>,
    rows_per_query: u64,
}

impl Scans {
    /// Checks the request.
    ///
    /// # Errors
    /// What is wrong, and what to give instead.
    pub fn check(&self) -> Result<(), String> {
        let (keys, rows) = (self.rows.keys, self.query.rows(self.rows.keys));
        if self.threads + self.readers == 0 {
            return Err("neither scans nor point reads: give at least one thread of either".into());
        }
        if matches!(self.query, Query::Range(_)) && rows > keys {
            return Err(format!("ranges of {rows} rows in a table of {keys}: give at most as many, or more rows"));
        }
        Ok(())
    }

    /// Measures an open store with files in `dir`. An error of the store is in [`Driven::error`], together with the
    /// figures so far.
    pub fn measure(&self, store: &dyn Store, dir: &Path, progress: &mut dyn Progress, stop: &AtomicBool) -> Scanned {
        let done: Vec<AtomicU64> = (0..self.threads + self.readers).map(|_| AtomicU64::new(0)).collect();
        let names: Vec<&'static str> = store.counters().into_iter().map(|(name, _)| name).collect();
        let count = || {
            let rows = done[..self.threads].iter().map(|rows| rows.load(Ordering::Relaxed));
            rows.chain(store.counters().into_iter().map(|(_, value)| value)).collect()
        };
        let mut observer = Observer::new(dir).counting(count);
        let spec = Spec { warm_up: self.warm_up, ..Spec::new(self.threads + self.readers, self.limit, stop) };
        let mut driven = drive(&spec, &mut observer, progress, &self.query.to_string(), |thread| {
            // A point reader's request is one key.
            let query = if thread < self.threads { (self.query, QUERIES) } else { (Query::Gets(1), POINTS) };
            Ok(Client::new(query, self.rows, store.session()?, &done[thread], thread))
        });
        let mut counted = std::mem::take(&mut driven.observed.counted).into_iter();
        let rows_by_thread = counted.by_ref().take(self.threads).collect();
        Scanned {
            rows_by_thread,
            queries: std::mem::take(&mut driven.classes[QUERIES]),
            points: std::mem::take(&mut driven.classes[POINTS]),
            driven,
            counted: names.into_iter().zip(counted).collect(),
            rows_per_query: self.query.rows(self.rows.keys),
        }
    }
}

/// The figures of a measurement, by the names of docs/bench.md.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Queries a second, fractions included.
    pub queries_per_s: f64,
    /// Rows a second.
    pub rows_per_s: f64,
    /// Rows of one query.
    pub rows_per_query: u64,
    /// Reads of the device a second.
    pub scan_device_reads_per_s: Option<f64>,
    /// Bytes that the device read, 10^6 a second.
    pub device_read_mb_per_s: Option<f64>,
    /// Reads that the device had in flight, on average over the window.
    pub device_queue_depth: Option<f64>,
    /// Average number of prefetches in flight when one of them began.
    pub prefetch_depth_reached: Option<f64>,
    /// Prefetched pages that were evicted before their first use, as a share of all prefetched pages.
    pub prefetch_waste: Option<f64>,
    /// Rows of the slowest scan, divided by the mean of all: 1 is even.
    pub fairness: Option<f64>,
    /// Rows per second and core where the processor is the limit: `None` where a scanning thread used less than 0.9 of
    /// a core.
    pub cpu_bound_rows_per_s: Option<f64>,
    /// Median latency of a query, us.
    pub query_p50_us: f64,
    /// 99th percentile, us.
    pub query_p99_us: f64,
    /// Point reads a second.
    pub points_per_s: Option<f64>,
    /// Median latency of a point read, us.
    pub point_p50_us: Option<f64>,
    /// 99th percentile, us.
    pub point_p99_us: Option<f64>,
}

impl Scanned {
    /// Growth of a counter of the store.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counted.iter().find(|(counter, _)| *counter == name).map(|(_, grown)| *grown)
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        let (seconds, observed) = (self.driven.window.as_secs_f64().max(1e-9), &self.driven.observed);
        let rows: u64 = self.rows_by_thread.iter().sum();
        let rows_per_s = rows as f64 / seconds;
        let share = |part: &str, whole: &str| {
            let (part, whole) = (self.counter(part)?, self.counter(whole)?);
            (whole > 0).then(|| part as f64 / whole as f64)
        };
        let least = self.rows_by_thread.iter().min().filter(|_| rows > 0 && self.rows_by_thread.len() > 1);
        let threads = self.rows_by_thread.len() as f64;
        let cpu_bound = rows > 0 && observed.used.cpu_cores >= CPU_BOUND_CORES * threads;
        let points = (self.points.count() > 0).then_some(&self.points);
        Figures {
            queries_per_s: rows_per_s / self.rows_per_query.max(1) as f64,
            rows_per_s,
            rows_per_query: self.rows_per_query,
            scan_device_reads_per_s: observed.device.map(|device| device.reads as f64 / seconds),
            device_read_mb_per_s: observed.device.map(|device| device.read_bytes as f64 / 1e6 / seconds),
            device_queue_depth: observed.device_reads_in_flight,
            prefetch_depth_reached: share("prefetch_depth_sum", "prefetch_reads"),
            prefetch_waste: share("prefetch_wasted", "prefetched"),
            fairness: least.map(|least| *least as f64 * threads / rows as f64),
            cpu_bound_rows_per_s: cpu_bound.then(|| rows_per_s / observed.used.cpu_cores),
            query_p50_us: self.queries.quantile_us(0.5),
            query_p99_us: self.queries.quantile_us(0.99),
            points_per_s: points.map(|points| points.count() as f64 / seconds),
            point_p50_us: points.map(|points| points.quantile_us(0.5)),
            point_p99_us: points.map(|points| points.quantile_us(0.99)),
        }
    }
}
