//! Runs queries on some threads for some time, with concurrent point reads if requested, and derives the figures.
//!
//! 1. Rates count rows visited inside the window, also of a query that crosses an edge of the window.
//! 2. A figure that this machine or store cannot provide is `null`.

use super::query::{Client, Query};
use super::run::ScanRun;
use crate::observe::Observer;
use crate::results::named;
use crate::run::drive::{Driven, Spec, drive};
use crate::store::Store;
use seawall_lab::run::Progress;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A scanning thread that is limited only by its processor uses at least this much of it.
const CPU_BOUND_CORES: f64 = 0.9;

/// The class of queries, and that of point reads.
const QUERIES: usize = 0;
const POINTS: usize = 1;

impl ScanRun {
    /// Threads that scan; 0 when only point reads are measured.
    fn scanning(&self) -> usize {
        self.cell.threads.saturating_sub(self.readers)
    }

    /// Measures an open store with files in `dir`. Returns what was driven, and the figures by the names of
    /// docs/bench.md. An error of the store is in [`Driven::error`].
    pub(super) fn measure(
        &self,
        store: &dyn Store,
        dir: &Path,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> (Driven, BTreeMap<String, Value>) {
        let scanning = self.scanning();
        let done: Vec<AtomicU64> = (0..self.cell.threads).map(|_| AtomicU64::new(0)).collect();
        let counters: Vec<&str> = store.counters().into_iter().map(|(name, _)| name).collect();
        let count = || {
            let rows = done[..scanning].iter().map(|rows| rows.load(Ordering::Relaxed));
            rows.chain(store.counters().into_iter().map(|(_, value)| value)).collect()
        };
        let mut observer = Observer::new(dir);
        observer.counters = Box::new(count);
        let spec = Spec { warm_up: self.config.warm_up(), ..Spec::new(self.cell.threads, self.config.limit, stop) };
        let driven = drive(&spec, &mut observer, progress, &self.query.to_string(), |thread| {
            // A point reader's request is one key.
            let query = if thread < scanning { (self.query, QUERIES) } else { (Query::Gets(1), POINTS) };
            Ok(Client::new(query, self.rows(), store.session()?, &done[thread], thread))
        });
        let figures = self.figures(&driven, &counters);
        (driven, figures)
    }

    /// The figures of a window in which `counters` of the store were read.
    fn figures(&self, driven: &Driven, counters: &[&str]) -> BTreeMap<String, Value> {
        let (seconds, observed) = (driven.window.as_secs_f64().max(1e-9), &driven.observed);
        let (rows_by_thread, counted) = observed.counted.split_at(self.scanning());
        let rows: u64 = rows_by_thread.iter().sum();
        let (rows_per_s, rows_per_query) = (rows as f64 / seconds, self.query.rows(self.cell.keys));
        let counter = |name: &str| Some(counted[counters.iter().position(|counter| *counter == name)?]);
        let share = |part: &str, whole: &str| {
            let (part, whole) = (counter(part)?, counter(whole)?);
            (whole > 0).then(|| part as f64 / whole as f64)
        };
        // The slowest scan beside the mean of all.
        let least = rows_by_thread.iter().min().filter(|_| rows > 0 && rows_by_thread.len() > 1);
        let threads = rows_by_thread.len() as f64;
        let cpu_bound = rows > 0 && observed.used.cpu_cores >= CPU_BOUND_CORES * threads;
        let queries = &driven.classes[QUERIES];
        let points = Some(&driven.classes[POINTS]).filter(|points| points.count() > 0);
        let figures: [(&str, Value); 19] = [
            ("tree", self.order.word().into()),
            ("point_readers", self.readers.into()),
            ("data_bytes", self.cell.data_bytes().into()),
            ("rows_by_thread", rows_by_thread.into()),
            ("queries_per_s", (rows_per_s / rows_per_query.max(1) as f64).into()),
            ("rows_per_s", rows_per_s.into()),
            ("rows_per_query", rows_per_query.into()),
            ("scan_device_reads_per_s", observed.device.map(|device| device.reads as f64 / seconds).into()),
            ("device_read_mb_per_s", observed.device.map(|device| device.read_bytes as f64 / 1e6 / seconds).into()),
            ("device_queue_depth", observed.device_reads_in_flight.into()),
            ("prefetch_depth_reached", share("prefetch_depth_sum", "prefetch_reads").into()),
            ("prefetch_waste", share("prefetch_wasted", "prefetched").into()),
            ("fairness", least.map(|least| *least as f64 * threads / rows as f64).into()),
            ("cpu_bound_rows_per_s", cpu_bound.then(|| rows_per_s / observed.used.cpu_cores).into()),
            ("query_p50_us", queries.quantile_us(0.5).into()),
            ("query_p99_us", queries.quantile_us(0.99).into()),
            ("points_per_s", points.map(|points| points.count() as f64 / seconds).into()),
            ("point_p50_us", points.map(|points| points.quantile_us(0.5)).into()),
            ("point_p99_us", points.map(|points| points.quantile_us(0.99)).into()),
        ];
        named(figures).collect()
    }
}
