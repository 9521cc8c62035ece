//! `seawall bench`: every workload from an empty directory to its result, what it refuses, and the files it
//! leaves.

mod common;

use common::{Ran, command, names, scratch, seawall, signal, spawn, wait_until};
use std::path::Path;

/// Small and quick; the figures mean nothing.
const TINY: [&str; 6] = ["--keys", "2000", "--pool", "16M", "--duration", "200ms"];

fn kv(dir: &Path, more: &[&str]) -> Ran {
    seawall(dir, [&["bench", "kv"][..], &TINY, more].concat())
}

/// A directory in which `./target` exists, so that temporary data is created there.
fn work() -> tempfile::TempDir {
    let dir = scratch();
    std::fs::create_dir(dir.path().join("target")).unwrap();
    dir
}

#[test]
fn each_workload_gives_a_whole_result_and_leaves_nothing() {
    let dir = work();
    for workload in [
        "load-sequential",
        "load-random",
        "point-read",
        "update",
        "read-modify-write",
        "commit",
        "commit-beside-backup",
        "mixed",
    ] {
        let result = kv(dir.path(), &["--workload", workload, "--threads", "2", "--json"]).exits(0).json();
        assert_eq!((result["workload"].as_str(), result["store"].as_str()), (Some(workload), Some("seawall")));
        let ops = result["ops"].as_u64().unwrap();
        assert!(ops > 0 && result["errors"] == 0 && result["threads"] == 2, "{workload}: {result}");
        assert!(!workload.starts_with("load-") || ops == 2000, "{workload}: {result}");
        let sum = |name: &str, at: &dyn Fn(&serde_json::Value) -> u64| -> u64 {
            result[name].as_array().unwrap().iter().map(at).sum()
        };
        assert_eq!(sum("timeline", &|step| step.as_u64().unwrap()), ops);
        assert!(sum("histogram", &|bucket| bucket[1].as_u64().unwrap()) > 0);
        let figure = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("{workload}: {name}: {result}"));
        assert!(figure("p50_us") <= figure("p99_us") && figure("p99_us") <= figure("max_us"));
        assert!(figure("rss_peak_bytes") > 0.0 && figure("duration_s") > 0.0 && figure("longest_gap_ms") > 0.0);
        assert!(result["settings"]["pool_size"].is_string() && result["machine"]["kernel"].is_string());
    }
    assert!(names(&dir.path().join("target")).is_empty());
}

#[test]
fn data_that_is_kept_is_used_again_and_never_overwritten() {
    let dir = work();
    let dir = dir.path();
    kv(dir, &["--workload", "update", "--dir", "d", "--load-only"]).exits(0).says("loaded");
    assert_eq!(names(&dir.join("d")), ["bench.json", "data"]);
    kv(dir, &["--workload", "update", "--dir", "d"]).exits(2).says("--reuse");
    let again = kv(dir, &["--workload", "point-read", "--dir", "d", "--reuse", "--json"]).exits(0).json();
    assert!(again["load"].is_null() && again["ops"].as_u64().unwrap() > 0);
    kv(dir, &["--workload", "point-read", "--dir", "d", "--reuse", "--value-size", "50"])
        .exits(2)
        .says("value_size 50");
    kv(dir, &["--workload", "load-random", "--dir", "d", "--reuse"]).exits(2).says("empty directory");
}

#[test]
fn cold_reads_read_the_device_and_need_enough_data() {
    let dir = work();
    let cold =
        ["bench", "kv", "--workload", "point-read-cold", "--pool", "1M", "--duration", "200ms", "--threads", "2"];
    let run = |more: &[&str]| seawall(dir.path(), [&cold[..], more].concat());
    run(&["--keys", "2000"]).exits(2).says("give --keys 20972 or more");
    let result = run(&["--keys", "21000", "--set", "page_size=4K", "--json"]).exits(0).json();
    assert!(result["ops"].as_u64().unwrap() > 0, "{result}");
}

#[test]
fn the_disk_alone_folding_slow_flushes_and_a_number_of_operations() {
    let dir = work();
    let dir = dir.path();
    let raw = kv(dir, &["--store", "raw", "--workload", "commit", "--json"]).exits(0).json();
    assert!(raw["ops"].as_u64().unwrap() > 0 && raw["settings"]["flush_method"].is_string(), "{raw}");
    kv(dir, &["--store", "raw", "--workload", "point-read"]).exits(2).says("does not offer reading");
    let folded = kv(dir, &["--workload", "commit", "--threads", "4", "--client-batch", "4", "--json"]).exits(0).json();
    assert_eq!((folded["client_batch"].as_u64(), folded["errors"].as_u64()), (Some(4), Some(0)));
    let slow = kv(dir, &["--workload", "commit", "--flush-delay", "8ms", "--warm-up", "0", "--json"]).exits(0).json();
    assert!(slow["p50_us"].as_f64().unwrap() >= 8000.0, "{slow}");
    let counted =
        ["bench", "kv", "--keys", "2000", "--pool", "16M", "--workload", "mixed", "--ops", "501", "--threads", "2"];
    let counted = seawall(dir, [&counted[..], &["--json"]].concat()).exits(0).json();
    assert_eq!(counted["ops"], 501);
}

#[test]
fn files_are_written_for_people_and_programs() {
    let dir = work();
    let dir = dir.path();
    let ran =
        kv(dir, &["--workload", "mixed", "--out", "o"]).exits(0).shows("Operations per second").says("report.html");
    assert!(ran.out.contains("99.9%"));
    let page = std::fs::read_to_string(dir.join("o/report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(!page.contains("http://") || page.contains("www.w3.org"), "self-contained");
    kv(dir, &["--workload", "mixed", "--out", "o"]).exits(0);
    std::fs::write(dir.join("o/result.json"), "{}").unwrap();
    kv(dir, &["--workload", "mixed", "--out", "o"]).exits(2).says("is not from a benchmark");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_done() {
    let dir = work();
    for (args, says) in [
        (&["--workload", "scan"][..], "load-sequential"),
        (&["--workload", "commit", "--store", "mysql"], "seawall, raw"),
        (&["--workload", "commit", "--threads", "0"], "1 to 4096"),
        (&["--workload", "point-read", "--client-batch", "4"], "--client-batch"),
        (&["--workload", "commit", "--durability", "3"], "deferred (0)"),
        (&["--workload", "commit", "--set", "page_size"], "NAME=VALUE"),
        (&["--workload", "commit", "--set", "page_sise=4K"], "page_sise"),
        (&["--workload", "commit", "--reuse"], "--dir"),
        (&["--workload", "commit", "--value-size", "0"], "--value-size"),
    ] {
        kv(dir.path(), args).exits(2).says(says);
    }
    assert!(names(&dir.path().join("target")).is_empty());
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_build_without_peers_says_how_to_have_them() {
    let dir = work();
    kv(dir.path(), &["--workload", "commit", "--store", "rocksdb"]).exits(2).says("--features peers");
}

#[test]
fn ctrl_c_ends_at_once_and_cleans_up() {
    let dir = work();
    let target = dir.path().join("target");
    let mut run = command(dir.path());
    run.args(["bench", "kv", "--workload", "update", "--keys", "1000", "--pool", "16M", "--duration", "1h"]);
    let mut child = spawn(run);
    wait_until(&mut child, || {
        let data = names(&target).first().map(|name| target.join(name).join("bench.json"));
        data.is_some_and(|marker| marker.exists())
    });
    signal(child, rustix::process::Signal::INT).exits(130).says("interrupted");
    assert!(names(&target).is_empty());
}

#[test]
fn memory_is_bounded_or_refused() {
    let dir = work();
    let ran = kv(dir.path(), &["--workload", "commit", "--memory-limit", "400M", "--json"]);
    if ran.code == 2 {
        // Without permission to create a group.
        ran.says("--memory-limit");
    } else {
        assert_eq!(ran.exits(0).json()["memory_limit_bytes"], 400 << 20);
    }
}
