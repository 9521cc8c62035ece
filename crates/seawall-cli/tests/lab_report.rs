//! `seawall lab report` and `seawall lab diff`: the output for earlier runs.

mod common;

use common::{Ran, lab, names, read_json, scratch, seawall};
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;

/// A run that all tests here use; written as `a.json` into a fresh directory.
fn with_run() -> TempDir {
    static RUN: OnceLock<String> = OnceLock::new();
    let text = RUN.get_or_init(|| {
        let (work, disk) = (scratch(), scratch());
        lab(work.path(), disk.path(), &["--only", "baseline,E1", "--json", "-"]).exits(0).out
    });
    let dir = scratch();
    std::fs::write(dir.path().join("a.json"), text).unwrap();
    dir
}

fn report(dir: &Path, args: &[&str]) -> Ran {
    seawall(dir, [&["lab", "report"], args].concat())
}

fn is_page(text: &str) -> bool {
    text.to_lowercase().starts_with("<!doctype html>")
}

#[test]
fn a_report_writes_what_is_asked_for() {
    let dir = with_run();
    report(dir.path(), &["a.json", "--html", "r.html", "--table"])
        .exits(0)
        .shows("E1 direct-sync")
        .says("wrote r.html");
    assert!(is_page(&std::fs::read_to_string(dir.path().join("r.html")).unwrap()));
    assert_eq!(names(dir.path()), ["a.json", "r.html"]);
    report(dir.path(), &["a.json", "--out", "all"]).exits(0);
    assert_eq!(read_json(&dir.path().join("all/results.json")), read_json(&dir.path().join("a.json")));
    // A run's directory stands for its results.
    assert_eq!(report(dir.path(), &["all"]).exits(0).out, report(dir.path(), &["a.json"]).exits(0).out);
    seawall(dir.path(), ["lab", "diff", "all", "a.json"]).exits(0).shows("1.00x");
    let page = report(dir.path(), &["a.json", "--html", "-"]).exits(0);
    assert!(is_page(&page.out));
    assert_eq!(report(dir.path(), &["a.json", "--json", "-"]).exits(0).json(), read_json(&dir.path().join("a.json")));
}

#[test]
fn a_report_is_held_against_requirements() {
    let dir = with_run();
    report(dir.path(), &["a.json", "--require", "flush.p99<1000s"]).exits(0).says("met: ");
    report(dir.path(), &["a.json", "--require", "flush.p99<1ns"]).exits(1).says("short: ");
    report(dir.path(), &["a.json", "--require", "append.p99<1s"]).exits(2).says("--only append-overwrite");
    report(dir.path(), &["a.json", "--require", "p99"]).exits(2).says("is not a requirement");
}

#[test]
fn the_users_option_file_is_shown_changed_and_left_alone() {
    let dir = with_run();
    let mine = "# ours since 2014\n[mysqld]\ninnodb_flush_method = \
        littlesync\ninnodb-io-capacity=100\n\n[client]\nport=3306\n";
    let path = dir.path().join("my.cnf");
    std::fs::write(&path, mine).unwrap();
    let before = path.metadata().unwrap().modified().unwrap();
    for server in ["mariadb-10.11", "mariadb-11", "mysql-8.0", "mysql-8.4"] {
        let ran = report(dir.path(), &["a.json", "--my-cnf", "my.cnf", "--my-cnf-for", server]).exits(0);
        assert!(ran.out.lines().any(|l| l.starts_with("--- ")), "no diff for {server}: {}", ran.out);
        // MariaDB 11 has other variables for it.
        let replaced = ran.out.contains("-innodb_flush_method = littlesync");
        assert!(replaced || server == "mariadb-11", "{server}: {}", ran.out);
    }
    // With JSON, standard output contains only JSON.
    let ran = report(dir.path(), &["a.json", "--my-cnf", "my.cnf", "--json", "-"]).exits(0).says("littlesync");
    ran.json();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), mine);
    assert_eq!(path.metadata().unwrap().modified().unwrap(), before);
}

#[test]
fn files_that_are_no_results_are_refused_with_what_to_do() {
    let dir = with_run();
    let text = std::fs::read_to_string(dir.path().join("a.json")).unwrap();
    for (name, content) in [
        ("truncated.json", &text.as_bytes()[..text.len() / 2]),
        ("empty.json", b""),
        ("words.json", b"hello"),
        ("other.json", b"{\"format\": 1, \"cells\": 5}"),
        ("list.json", b"[]"),
        ("binary.json", b"\xff\xfe\x00"),
    ] {
        std::fs::write(dir.path().join(name), content).unwrap();
        for args in [&["report", name][..], &["diff", "a.json", name], &["diff", name, "a.json"]] {
            let ran = seawall(dir.path(), [&["lab"], args].concat()).exits(2).says(name).says("give the results.json");
            assert!(ran.out.is_empty());
        }
    }
    let newer = text.replacen("\"format\":2", "\"format\":99", 1);
    std::fs::write(dir.path().join("newer.json"), newer).unwrap();
    report(dir.path(), &["newer.json"]).exits(2).says("format 99").says("use a newer seawall");
    report(dir.path(), &["missing.json"]).exits(2).says("missing.json").says("give the results.json");
    report(dir.path(), &["."]).exits(2).says("give the results.json");
}

#[test]
fn a_diff_compares_cell_by_cell() {
    let dir = with_run();
    let mut other = read_json(&dir.path().join("a.json"));
    let cells = other["cells"].as_array_mut().unwrap();
    let gone = cells.remove(0);
    std::fs::write(dir.path().join("b.json"), other.to_string()).unwrap();
    let ran = seawall(dir.path(), ["lab", "diff", "a.json", "b.json"]).exits(0);
    assert!(ran.out.contains("only in A") && ran.out.contains("1.00x"), "{}", ran.out);
    let text = seawall(dir.path(), ["lab", "diff", "a.json", "b.json", "--json"]).exits(0).json().to_string();
    assert!(text.contains(gone["id"].as_str().unwrap()), "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let dir = with_run();
    let mut command = common::command(dir.path());
    command.args(["lab", "report", "a.json", "--require", "flush.p99<1ns"]);
    let mut child = common::spawn(command);
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(1), "the requirement is short, with or without a listener");
}
