//! Scans of a small table on Seawall: their results, counters and refusals.

use super::*;
use crate::run::Limit;
use crate::run::cell::cold;
use crate::store::{Durability, Settings, Store};
use crate::stores;
use seawall_io::FlushMethod;
use seawall_lab::run::Silent;
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
        data_bytes: ROWS.data_bytes(),
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
    let load = rows.fill(&*store, &mut Silent, &AtomicBool::new(false)).unwrap().unwrap();
    assert!(load.rows_per_s > 0.0);
    store.close().unwrap();
}

fn scans(query: Query, threads: usize, readers: usize) -> Scans {
    Scans { rows: ROWS, query, threads, readers, limit: Limit::Ops(12), warm_up: Duration::ZERO }
}

#[test]
fn every_query_on_either_tree_by_either_method_finds_its_rows() {
    for order in [Order::Ordered, Order::Fragmented] {
        let dir = tempfile::tempdir().unwrap();
        let rows = Rows { order, ..ROWS };
        made(dir.path(), rows);
        for (method, depth) in
            [(FlushMethod::ODirect, None), (FlushMethod::Fsync, Some(0)), (FlushMethod::ODirect, Some(8))]
        {
            let settings = settings(dir.path(), options(method, depth));
            let store = cold(&settings, open).unwrap();
            for query in [Query::Range(100), Query::All, Query::MultiGet(20), Query::Gets(20)] {
                let scanned = Scans { rows, ..scans(query, 2, 0) }.measure(
                    &*store,
                    dir.path(),
                    &mut Silent,
                    &AtomicBool::new(false),
                );
                assert!(scanned.driven.error.is_none(), "{query}: {:?}", scanned.driven.error);
                let figures = scanned.figures();
                let found: u64 = scanned.rows_by_thread.iter().sum();
                assert_eq!((scanned.driven.ops, found), (12, 12 * query.rows(ROWS.keys)), "{query}");
                assert!(figures.queries_per_s > 0.0 && figures.query_p99_us >= figures.query_p50_us);
                assert!(
                    figures.fairness.is_some_and(|share| share > 0.0 && share <= 1.0) && figures.points_per_s.is_none()
                );
                assert_eq!(scanned.counter("prefetched").unwrap() == 0, depth == Some(0) || query == Query::Gets(20));
                assert_eq!(figures.prefetch_waste.is_none(), figures.prefetch_depth_reached.is_none());
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
        let scans =
            Scans { limit: Limit::For(Duration::from_millis(100)), ..scans(Query::Range(500), threads, readers) };
        scans.measure(&*store, dir.path(), &mut Silent, &AtomicBool::new(false))
    };
    let both = measured(1, 1);
    let figures = both.figures();
    assert!(figures.rows_per_s > 0.0 && figures.points_per_s.unwrap() > 0.0 && figures.fairness.is_none());
    assert!(figures.point_p99_us.unwrap() >= figures.point_p50_us.unwrap());
    assert!(both.points.count() + both.queries.count() >= both.driven.ops);
    assert!(both.driven.latencies.max_us() > 0.0);
    let alone = measured(0, 2).figures();
    assert!(alone.rows_per_s == 0.0 && alone.point_p99_us.is_some() && alone.cpu_bound_rows_per_s.is_none());
}

#[test]
fn rows_that_are_not_what_was_loaded_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), ROWS);
    let store = open(&settings(dir.path(), Vec::new())).unwrap();
    for (rows, says) in [(Rows { keys: 3001, ..ROWS }, "3000 rows"), (Rows { value_size: 185, ..ROWS }, "184 bytes")] {
        let scans = Scans { rows, ..scans(Query::All, 1, 0) };
        let scanned = scans.measure(&*store, dir.path(), &mut Silent, &AtomicBool::new(false));
        let error = scanned.driven.error.unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(scans(Query::Range(3000), 1, 0).check().is_ok() && scans(Query::All, 0, 1).check().is_ok());
    assert!(scans(Query::Range(3001), 1, 0).check().unwrap_err().contains("3001"));
    assert!(scans(Query::All, 0, 0).check().is_err());
    assert_eq!(Rows::keys_for(2000, 184), 100);
}

#[test]
fn names_are_read_back() {
    for query in [Query::Range(30_000), Query::All, Query::MultiGet(100), Query::Gets(7)] {
        assert_eq!(query.to_string().parse(), Ok(query));
    }
    for wrong in ["range-0", "range-", "get-5", "ALL"] {
        assert!(wrong.parse::<Query>().unwrap_err().contains("range-N"), "{wrong}");
    }
    for order in [Order::Ordered, Order::Fragmented] {
        assert_eq!(order.word().parse(), Ok(order));
    }
    assert!("random".parse::<Order>().unwrap_err().contains("fragmented"));
}
