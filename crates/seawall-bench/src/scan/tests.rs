//! Scans of a small table on Seawall: their results, counters and refusals.

use super::run::ScanRun;
use super::*;
use crate::run::cell::cold;
use crate::run::{Cell, Driven, Limit, RunConfig};
use crate::store::{Durability, Settings, Store};
use crate::stores;
use seawall_io::FlushMethod;
use seawall_lab::run::Silent;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const ROWS: Rows = Rows { keys: 3000, value_size: 184, order: Order::Fragmented, seed: 7 };

fn settings(dir: &Path, mut options: Vec<(String, String)>) -> Settings {
    options.push(("page_size".into(), "4K".into()));
    Settings {
        dir: dir.join("db"),
        pool_bytes: 256 << 10,
        durability: Durability::Flushed,
        tables: vec!["rows".into()],
        threads: 4,
        options,
        flush_delay: Duration::ZERO,
        data_bytes: ROWS.keys * (ROWS.value_size + 16),
    }
}

/// Reads the data file by `method`, with at most `prefetch_depth` reads ahead for one scan.
fn options(method: FlushMethod, prefetch_depth: Option<u32>) -> Vec<(String, String)> {
    let depth = prefetch_depth.map(|depth| ("prefetch_depth".to_owned(), depth.to_string()));
    [("data_flush_method".to_owned(), method.name().to_owned())].into_iter().chain(depth).collect()
}

fn open(settings: &Settings) -> crate::Result<Box<dyn Store>> {
    stores::open("seawall", settings).unwrap()
}

fn made(dir: &Path, rows: Rows) {
    let store = open(&settings(dir, Vec::new())).unwrap();
    let load = rows.fill(&*store, &mut Silent, &AtomicBool::new(false)).unwrap();
    assert!(load.rows_per_s > 0.0);
    store.close().unwrap();
}

fn scan(query: Query, threads: usize, readers: usize) -> ScanRun {
    let cell = Cell {
        workload: query.to_string(),
        store: "seawall".into(),
        threads: threads + readers,
        keys: ROWS.keys,
        value_size: ROWS.value_size,
        durability: Durability::Flushed,
        pool_bytes: 60_000,
        client_batch: 1,
        flush_delay_ms: 0.0,
        memory_limit_bytes: None,
        seed: ROWS.seed,
    };
    let config = RunConfig {
        dir: None,
        reuse: false,
        load_only: false,
        limit: Limit::Ops(12),
        warm_up: Some(Duration::ZERO),
        steady: None,
        rate: None,
        options: Vec::new(),
    };
    ScanRun { cell, order: ROWS.order, query, readers, fio: false, config }
}

fn measured(scan: &ScanRun, store: &dyn Store, dir: &Path) -> (Driven, BTreeMap<String, Value>) {
    scan.measure(store, dir, &mut Silent, &AtomicBool::new(false))
}

#[test]
fn every_query_on_either_tree_by_either_method_finds_its_rows() {
    for order in [Order::Ordered, Order::Fragmented] {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path(), Rows { order, ..ROWS });
        for (method, depth) in
            [(FlushMethod::ODirect, None), (FlushMethod::Fsync, Some(0)), (FlushMethod::ODirect, Some(8))]
        {
            let settings = settings(dir.path(), options(method, depth));
            let store = cold(&settings, open).unwrap();
            for query in [Query::Range(100), Query::All, Query::MultiGet(20), Query::Gets(20)] {
                let scan = ScanRun { order, ..scan(query, 2, 0) };
                let (driven, figures) = measured(&scan, &*store, dir.path());
                assert!(driven.error.is_none(), "{query}: {:?}", driven.error);
                let found = figures["rows_by_thread"].as_array().unwrap().iter().filter_map(Value::as_u64);
                assert_eq!((driven.ops, found.sum()), (12, 12 * query.rows(ROWS.keys)), "{query}");
                let figure = |name: &str| figures[name].as_f64();
                assert!(figure("queries_per_s") > Some(0.0) && figure("query_p99_us") >= figure("query_p50_us"));
                assert!(figure("fairness").is_some_and(|share| share > 0.0 && share <= 1.0));
                assert_eq!(figure("points_per_s"), None);
                let prefetched = depth != Some(0) && query != Query::Gets(20);
                assert_eq!(figure("prefetch_waste").is_some(), prefetched, "{query}");
                assert_eq!(figure("prefetch_depth_reached").is_some(), prefetched, "{query}");
            }
            store.close().unwrap();
        }
    }
}

#[test]
fn point_reads_beside_a_scan_have_figures_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), ROWS);
    let store = cold(&settings(dir.path(), Vec::new()), open).unwrap();
    let measured = |threads, readers| {
        let mut scan = scan(Query::Range(500), threads, readers);
        scan.config.limit = Limit::For(Duration::from_millis(100));
        let (driven, figures) = measured(&scan, &*store, dir.path());
        (driven, move |name: &str| figures[name].as_f64())
    };
    let (driven, figure) = measured(1, 1);
    assert!(figure("rows_per_s") > Some(0.0) && figure("points_per_s") > Some(0.0) && figure("fairness").is_none());
    assert!(figure("point_p99_us") >= figure("point_p50_us"));
    assert!(driven.latencies.count() >= driven.ops);
    assert!(driven.latencies.max_us() > 0.0);
    let (_, alone) = measured(0, 2);
    assert_eq!(alone("rows_per_s"), Some(0.0));
    assert!(alone("point_p99_us").is_some() && alone("cpu_bound_rows_per_s").is_none());
}

#[test]
fn rows_that_are_not_what_was_loaded_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), ROWS);
    let store = open(&settings(dir.path(), Vec::new())).unwrap();
    for (keys, value_size, says) in [(3001, 184, "3000 rows"), (3000, 185, "184 bytes")] {
        let mut scan = scan(Query::All, 1, 0);
        (scan.cell.keys, scan.cell.value_size) = (keys, value_size);
        let (driven, _) = measured(&scan, &*store, dir.path());
        let error = driven.error.unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(scan(Query::Range(3000), 1, 0).check().is_ok() && scan(Query::All, 0, 1).check().is_ok());
    assert!(scan(Query::Range(3001), 1, 0).check().unwrap_err().contains("3001"));
    assert!(scan(Query::All, 0, 0).check().unwrap_err().contains("at least one thread"));
    assert_eq!(Rows::keys_for(2000, 184), 100);
}

#[test]
fn names_are_read_back() {
    for order in [Order::Ordered, Order::Fragmented] {
        assert_eq!(order.word().parse(), Ok(order));
    }
    assert!("random".parse::<Order>().unwrap_err().contains("fragmented"));
}
