//! `seawall bench tpcc`: from an empty directory to its result, on kept data, and on damaged data.

mod common;

use common::{Ran, names, scratch, seawall};
use std::path::Path;

/// Small and quick; the figures mean nothing.
const TINY: [&str; 10] =
    ["--scale-down", "100", "--pool", "16M", "--warehouses", "2", "--threads", "3", "--durability", "written"];

fn tpcc(dir: &Path, more: &[&str]) -> Ran {
    seawall(dir, [&["bench", "tpcc"][..], &TINY, more].concat())
}

#[test]
fn all_five_transactions_run_and_the_data_is_consistent() {
    let dir = scratch();
    let dir = dir.path();
    std::fs::create_dir(dir.join("target")).unwrap();
    let result = tpcc(dir, &["--ops", "600", "--json"]).exits(0).says("all consistency conditions hold").json();
    assert_eq!((result["workload"].as_str(), result["ops"].as_u64()), (Some("tpcc"), Some(600)));
    let figure = |of: &serde_json::Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name}: {result}"));
    let (mut ops, transactions) = (0.0, &result["transactions"]);
    for name in ["new-order", "payment", "order-status", "delivery", "stock-level"] {
        let of_kind = &transactions[name];
        ops += figure(of_kind, "ops");
        assert!(figure(of_kind, "p50_us") <= figure(of_kind, "p99_us"));
        assert!(figure(of_kind, "p99_us") <= figure(of_kind, "max_us"));
    }
    let (tpmc, total) = (figure(&result, "tpmc"), figure(&result, "tpm_total"));
    assert!((tpmc / total - figure(&transactions["new-order"], "ops") / 600.0).abs() < 1e-6, "{result}");
    assert_eq!((ops, result["violations"].as_u64(), result["warehouses"].as_u64()), (600.0, Some(0), Some(2)));
    assert!(result["load"]["rows_per_s"].as_f64().unwrap() > 0.0);
    assert!(names(&dir.join("target")).is_empty());
}

#[test]
fn kept_data_is_used_again_and_damage_to_it_is_named() {
    let dir = scratch();
    let dir = dir.path();
    tpcc(dir, &["--dir", "d", "--load-only"]).exits(0).says("loaded");
    let again = ["--dir", "d", "--reuse", "--ops", "100"];
    tpcc(dir, &again).exits(0).shows("stock-level").says("all consistency conditions hold");
    tpcc(dir, &["--dir", "d"]).exits(2).says("--reuse");
    seawall(dir, ["bench", "tpcc", "--dir", "d", "--reuse", "--warehouses", "3"]).exits(2).says("warehouses 3");
    // The first payment of customer 1 of district 1 of warehouse 1.
    seawall(dir, ["del", "d/data", "history", "--hex", "000100000001000000010000"]).exits(0);
    tpcc(dir, &again).exits(1).says("condition 3.3.2.8 does not hold: warehouse 1: W_YTD").says("3.3.2.10");
}

#[test]
fn what_cannot_be_is_refused() {
    let dir = scratch();
    tpcc(dir.path(), &["--store", "raw"]).exits(2).says("does not offer");
    seawall(dir.path(), ["bench", "tpcc", "--warehouses", "0"]).exits(2).says("1..=65534");
    seawall(dir.path(), ["bench", "tpcc", "--threads", "0"]).exits(2).says("1 to 4096");
}
