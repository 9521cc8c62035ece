//! `seawall bench scan`: every kind of query on either tree by every access method, what it refuses, and the
//! files it leaves.

mod common;

use common::{Ran, names, scratch, seawall};
use std::path::Path;

/// Small and quick; the figures mean nothing.
const TINY: [&str; 8] = ["--pool", "256K", "--set", "page_size=4K", "--duration", "100ms", "--warm-up", "20ms"];

fn scan(dir: &Path, more: &[&str]) -> Ran {
    seawall(dir, [&["bench", "scan"][..], &TINY, more].concat())
}

/// The result of a run in which each thread has ended a query, and point readers have read. A disk may stall for the
/// whole 100 ms: then it is run again.
fn measured(dir: &Path, more: &[&str]) -> serde_json::Value {
    let ended = |result: &serde_json::Value| {
        let by_thread = result["rows_by_thread"].as_array().expect("rows by thread");
        by_thread.iter().all(|rows| rows.as_f64().unwrap() > 0.0) && result["points_per_s"] != 0.0
    };
    (0..10).map(|_| scan(dir, more).exits(0).json()).find(ended).expect("ten runs without a query of each thread")
}

/// A directory in which `./target` exists, so that temporary data is created there.
fn work() -> tempfile::TempDir {
    let dir = scratch();
    std::fs::create_dir(dir.path().join("target")).unwrap();
    dir
}

#[test]
fn each_query_on_each_tree_gives_a_whole_result_and_leaves_nothing() {
    let dir = work();
    for tree in ["ordered", "fragmented"] {
        for (query, name, rows) in [
            (&["--rows-per-range", "100"][..], "range-100", 100),
            (&["--rows-per-range", "all"], "all", 13_108),
            (&["--multi-get", "10"], "multi-get-10", 10),
            (&["--gets", "10"], "gets-10", 10),
        ] {
            for prefetch in ["on", "off"] {
                let ways = ["--tree", tree, "--prefetch", prefetch, "--threads", "2", "--no-fio", "--json"];
                let result = measured(dir.path(), &[&ways[..], query].concat());
                assert_eq!((result["workload"].as_str(), result["tree"].as_str()), (Some(name), Some(tree)));
                let figure = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("{name}: {result}"));
                assert!(figure("rows_per_s") > 0.0 && figure("queries_per_s") > 0.0, "{result}");
                assert_eq!((result["rows_per_query"].as_u64(), result["keys"].as_u64()), (Some(rows), Some(13_108)));
                assert_eq!(result["rows_by_thread"].as_array().unwrap().len(), 2);
                assert!(figure("fairness") > 0.0 && figure("query_p99_us") >= figure("query_p50_us"));
                assert_eq!(result["settings"]["prefetch_depth"], if prefetch == "on" { "32" } else { "0" });
                assert_eq!(result["settings"]["data_flush_method"], "o_direct");
                let ahead = prefetch == "on" && !name.starts_with("gets");
                assert_eq!(result["prefetch_depth_reached"].is_number(), ahead, "{result}");
            }
        }
    }
    assert!(names(&dir.path().join("target")).is_empty());
}

#[test]
fn point_reads_beside_scans_and_alone() {
    let dir = work();
    let both = measured(dir.path(), &["--rows-per-range", "500", "--point-readers", "1", "--no-fio", "--json"]);
    assert!(both["point_p99_us"].as_f64().unwrap() > 0.0 && both["rows_per_s"].as_f64().unwrap() > 0.0, "{both}");
    assert_eq!((both["threads"].as_u64(), both["point_readers"].as_u64()), (Some(2), Some(1)));
    let only_points = ["--rows-per-range", "500", "--threads", "0", "--point-readers", "1", "--no-fio", "--json"];
    let alone = measured(dir.path(), &only_points);
    assert!(alone["points_per_s"].as_f64().unwrap() > 0.0 && alone["rows_per_s"] == 0.0, "{alone}");
}

#[test]
fn buffered_reads_are_bounded_or_refused() {
    let dir = work();
    let ran = scan(
        dir.path(),
        &["--rows-per-range", "500", "--method", "buffered", "--prefetch", "off", "--no-fio", "--json"],
    );
    if ran.code == 2 {
        // Without permission to create a group.
        ran.says("--memory-limit");
    } else {
        let result = ran.exits(0).json();
        assert_eq!(result["settings"]["data_flush_method"], "fsync");
        assert_eq!(result["memory_limit_bytes"], (256 << 10) + (80 << 20));
    }
}

#[test]
fn kept_rows_are_used_again_and_fio_is_run_or_said_to_be_missing() {
    let dir = work();
    let dir = dir.path();
    scan(dir, &["--rows-per-range", "500", "--dir", "d", "--load-only"]).exits(0).says("loaded");
    assert_eq!(names(&dir.join("d")), ["bench.json", "data"]);
    let ran = scan(dir, &["--rows-per-range", "500", "--dir", "d", "--reuse", "--json"]).exits(0).json();
    assert!(ran["load"].is_null());
    match ran["fio"].as_str() {
        Some(why) => assert!(why.contains("apt-get install fio") || why.contains("no single file"), "{why}"),
        None => {
            for name in ["fio_random_1_reads_per_s", "fio_random_8_reads_per_s", "fio_random_32_reads_per_s"] {
                assert!(ran[name].as_f64().unwrap() > 0.0, "{ran}");
            }
            assert!(ran["fio_sequential_mb_per_s"].as_f64().unwrap() > 0.0 && !ran["beside_fio_random_32"].is_string());
        }
    }
    scan(dir, &["--rows-per-range", "500", "--dir", "d", "--reuse", "--tree", "ordered"])
        .exits(2)
        .says("loaded fragmented");
}

#[test]
fn the_table_has_every_cell() {
    let dir = work();
    let ran = scan(dir.path(), &["--table", "--threads-max", "1", "--no-fio"]).exits(0);
    let buffered = !ran.err.contains("left out");
    let lines = |what: &str| ran.out.lines().filter(|line| line.contains(what)).count();
    // Two trees, six queries (30,000 rows are more than there are), with and without reading ahead.
    assert_eq!((lines(" direct "), lines(" buffered ")), (24, if buffered { 24 } else { 0 }));
    assert_eq!((lines("ordered ") > 0, lines("fragmented ") > 0), (true, true));
    assert!(names(&dir.path().join("target")).is_empty());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_done() {
    let dir = work();
    for (args, says) in [
        (&["--keys", "2000"][..], "give --keys 13108 or more"),
        (&["--rows-per-range", "20000"], "at most as many"),
        (&["--rows-per-range", "0"], "or all"),
        (&["--tree", "random"], "use one of ordered, fragmented"),
        (&["--rows-per-range", "500", "--threads", "0"], "at least one thread"),
        (&["--multi-get", "10", "--rows-per-range", "10"], "cannot be used with"),
        (&["--prefetch", "maybe"], "possible values: on, off"),
        (&["--value-size", "0"], "--value-size"),
        (&["--store", "raw"], "no rows to scan"),
        (&["--reuse"], "--dir"),
    ] {
        scan(dir.path(), args).exits(2).says(says);
    }
    assert!(names(&dir.path().join("target")).is_empty());
}
