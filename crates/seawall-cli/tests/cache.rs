//! `seawall cache show|drop|watch`.

mod common;

use common::skip::skipped;
use common::{command, is_memory, scratch, seawall, signal, spawn, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

const KIB: u64 = 1024;

/// Writes a file whose pages are all resident and clean.
fn clean_file(path: &Path, kib: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![7; (kib * KIB) as usize]).unwrap();
    file.sync_all().unwrap();
}

fn show(dir: &Path, args: &[&str]) -> Vec<Value> {
    let ran = seawall(dir, [&["cache", "show", "--json"], args].concat()).exits(0);
    ran.json().as_array().unwrap().clone()
}

fn resident(dir: &Path, file: &str) -> u64 {
    show(dir, &[file])[0]["resident_bytes"].as_u64().unwrap()
}

#[test]
fn show_counts_what_is_resident() {
    let dir = scratch();
    clean_file(&dir.path().join("a"), 1024);
    let held = &show(dir.path(), &["a"])[0];
    assert_eq!((held["path"].as_str(), held["bytes"].as_u64()), (Some("a"), Some(1 << 20)));
    assert_eq!(held["resident_bytes"], 1 << 20);
    let ran = seawall(dir.path(), ["cache", "show", "a"]).exits(0).shows("1.0 MiB").shows("100%");
    assert!(ran.out.lines().next().unwrap().contains("resident") && ran.err.is_empty());
}

#[test]
fn drop_takes_clean_pages_away_and_nothing_else() {
    let dir = scratch();
    clean_file(&dir.path().join("a"), 512);
    let before = std::fs::read(dir.path().join("a")).unwrap();
    if is_memory(dir.path()) {
        skipped("the pages of a memory file system cannot be dropped");
        return;
    }
    seawall(dir.path(), ["cache", "drop", "a"]).exits(0).shows("512.0 KiB dropped of 1 files");
    assert_eq!(resident(dir.path(), "a"), 0);
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), before);
}

#[test]
fn dirty_pages_go_with_sync() {
    let dir = scratch();
    if is_memory(dir.path()) {
        skipped("the pages of a memory file system cannot be dropped");
        return;
    }
    std::fs::write(dir.path().join("dirty"), vec![1; 256 << 10]).unwrap();
    // Without --sync: the kernel only starts write-back, so the number of remaining pages is open; but the
    // sum must be right.
    let pairs = seawall(dir.path(), ["cache", "drop", "--json", "dirty"]).exits(0).json();
    let bytes = |when: &str| pairs[0][when]["resident_bytes"].as_u64().unwrap();
    assert_eq!(bytes("before"), 256 * KIB);
    assert!(bytes("after") <= 256 * KIB);
    std::fs::write(dir.path().join("dirty"), vec![2; 256 << 10]).unwrap();
    let ran = seawall(dir.path(), ["cache", "drop", "--sync", "dirty"]).exits(0);
    assert!(ran.out.contains("256.0 KiB dropped") && !ran.out.contains("stay:"), "{ran:#?}");
    assert_eq!(resident(dir.path(), "dirty"), 0);
}

#[test]
fn what_stays_is_said_to_stay() {
    if !Path::new("/dev/shm").is_dir() {
        skipped("no /dev/shm");
        return;
    }
    // Pages of a memory file system cannot be dropped.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    clean_file(&dir.path().join("a"), 64);
    seawall(dir.path(), ["cache", "drop", "a"]).exits(0).shows("64.0 KiB stay").shows("--sync");
    assert_eq!(resident(dir.path(), "a"), 64 * KIB);
}

#[test]
fn directories_globs_and_names_may_overlap() {
    let dir = scratch();
    std::fs::create_dir_all(dir.path().join("d/below")).unwrap();
    for file in ["d/one", "d/below/two", "binlog.000001", "binlog.000002"] {
        clean_file(&dir.path().join(file), 4);
    }
    std::os::unix::fs::symlink("/", dir.path().join("d/everything")).unwrap();
    let paths = |args: &[&str]| -> Vec<String> {
        show(dir.path(), args).iter().map(|h| h["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&["d"]), ["d/below/two", "d/one"]);
    assert_eq!(paths(&["binlog.*"]), ["binlog.000001", "binlog.000002"]);
    assert_eq!(paths(&["d", "d/one", "d/*", "binlog.000001"]), ["binlog.000001", "d/below/two", "d/one"]);
    let ran = seawall(dir.path(), ["cache", "show", "d"]).exits(0);
    assert!(ran.out.contains("2 files in all"), "{}", ran.out);
}

#[test]
fn an_empty_directory_is_no_error() {
    let dir = scratch();
    assert!(show(dir.path(), &["."]).is_empty());
    seawall(dir.path(), ["cache", "drop", "."]).exits(0).shows("0 B dropped of 0 files");
}

#[test]
fn names_that_match_nothing_exit_with_2() {
    let dir = scratch();
    for verb in ["show", "drop", "watch"] {
        let ran = seawall(dir.path(), ["cache", verb, "binlog.*"]).exits(2).says("\"binlog.*\" matches no file");
        assert!(ran.out.is_empty());
    }
    seawall(dir.path(), ["cache", "show", "a[b"]).exits(2).says("nor a glob");
    seawall(dir.path(), ["cache", "watch", ".", "--interval", "often"]).exits(2).says("30m");
}

#[test]
fn watch_keeps_later_files_out_and_ends_with_totals() {
    let dir = scratch();
    if is_memory(dir.path()) {
        skipped("the pages of a memory file system cannot be dropped");
        return;
    }
    for json in [false, true] {
        clean_file(&dir.path().join("binlog.1"), 64);
        let mut watch = command(dir.path());
        watch.args(["cache", "watch", "binlog.*", "--interval", "20ms"]).args(json.then_some("--json"));
        let mut child = spawn(watch);
        wait_until(&mut child, || resident(dir.path(), "binlog.1") == 0);
        clean_file(&dir.path().join("binlog.2"), 128);
        wait_until(&mut child, || resident(dir.path(), "binlog.2") == 0);
        std::fs::remove_file(dir.path().join("binlog.1")).unwrap();
        let ran = signal(child, Signal::INT).exits(0);
        if json {
            let totals = ran.json();
            let file = |i: usize| (totals["files"][i]["path"].as_str().unwrap(), &totals["files"][i]["dropped_bytes"]);
            assert_eq!(file(0), ("binlog.1", &Value::from(64 * KIB)));
            assert_eq!(file(1), ("binlog.2", &Value::from(128 * KIB)));
            assert_eq!(totals["dropped_bytes"], 192 * KIB);
            assert!(totals["passes"].as_u64().unwrap() >= 2);
        } else {
            assert!(ran.out.contains("192.0 KiB dropped in") && ran.out.contains("binlog.2"), "{ran:#?}");
        }
    }
}

#[test]
fn watch_ends_by_itself_when_told_so() {
    let dir = scratch();
    seawall(dir.path(), ["cache", "watch", ".", "--interval", "10ms", "--duration", "50ms"])
        .exits(0)
        .shows("0 B dropped in");
}
