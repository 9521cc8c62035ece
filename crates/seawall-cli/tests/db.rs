//! Commands on a database: their effects, their output, and what they refuse.

mod common;

use common::{Mount, command, scratch, seawall, signal, spawn, wait_until};
use rustix::process::Signal;
use seawall::{ControlSocketChoice, Database, Options};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Small and quick to create.
const SMALL: [&str; 10] = [
    "--page-size",
    "4K",
    "--pool-size",
    "1M",
    "--log-capacity",
    "4M",
    "--data-initial-size",
    "1M",
    "--log-buffer-size",
    "1M",
];

fn made(dir: &Path) {
    seawall(dir, [&["init", "db"][..], &SMALL].concat()).exits(0).shows("pages of 4.0 KiB");
}

fn put(dir: &Path, tree: &str, key: &str, value: &str) {
    seawall(dir, ["put", "db", tree, key, value, "--create"]).exits(0);
}

/// Commands that only read write nothing into a cleanly closed database, and can run at the same time.
#[test]
fn reading_commands_leave_a_closed_database_as_it_is() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    put(dir, "users", "ada", "1815");
    let seen = || {
        let files = std::fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
        let one = |path: PathBuf| {
            (path.clone(), std::fs::metadata(&path).unwrap().modified().unwrap(), std::fs::read(path).unwrap())
        };
        let mut all: Vec<_> = files.map(one).collect();
        all.sort();
        all
    };
    let before = seen();
    let beside = Database::open_read_only(dir.join("db")).unwrap();
    assert_eq!(seawall(dir, ["get", "db", "users", "ada"]).exits(0).out, "1815\n");
    assert_eq!(seawall(dir, ["scan", "db", "users", "--count"]).exits(0).out, "1\n");
    let number = seawall(dir, ["trees", "db", "--json"]).exits(0).json()[0]["id"].as_u64().unwrap();
    seawall(dir, ["trees", "db"]).exits(0).shows(&format!("  tree {number} ")).shows(" users\n");
    seawall(dir, ["dump", "db", "--out", "dumped"]).exits(0);
    seawall(dir, ["put", "db", "users", "eve", "1"]).exits(2).says("is open in another process");
    drop(beside);
    assert!(seen() == before);
    seawall(dir, ["put", "db", "users", "eve", "1"]).exits(0);
}

#[test]
fn entries_are_put_got_scanned_and_deleted() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    for (key, value) in [("ada", "1815"), ("b\\x00b", "tab\\there"), ("grüße", "ü"), ("zoe", "")] {
        put(dir, "users", key, value);
    }
    assert_eq!(seawall(dir, ["get", "db", "users", "ada"]).exits(0).out, "1815\n");
    assert_eq!(seawall(dir, ["get", "db", "users", "b\\0b"]).exits(0).out, "tab\\there\n");
    assert_eq!(seawall(dir, ["get", "db", "users", "b\\0b", "--raw"]).exits(0).out, "tab\there");
    assert_eq!(seawall(dir, ["get", "db", "users", "616461", "--hex"]).exits(0).out, "31383135\n");
    assert_eq!(seawall(dir, ["get", "db", "users", "ada", "--json"]).exits(0).json()["value"], "1815");
    seawall(dir, ["get", "db", "users", "eve"]).exits(1).says("no key \"eve\"");
    let all = "ada\t1815\nb\\x00b\ttab\\there\ngrüße\tü\nzoe\t\n";
    assert_eq!(seawall(dir, ["scan", "db", "users"]).exits(0).out, all);
    assert_eq!(
        seawall(dir, ["scan", "db", "users", "--from", "b", "--to", "zoe", "--keys"]).exits(0).out,
        "b\\x00b\ngrüße\n"
    );
    assert_eq!(seawall(dir, ["scan", "db", "users", "--reverse", "--limit", "1"]).exits(0).out, "zoe\t\n");
    assert_eq!(seawall(dir, ["scan", "db", "users", "--prefix", "gr", "--json"]).exits(0).json()["key"], "grüße");
    assert_eq!(seawall(dir, ["scan", "db", "users", "--count"]).exits(0).out, "4\n");
    seawall(dir, ["scan", "db", "users", "--from", "b", "--to", "a"]).exits(2).says("--reverse");
    seawall(dir, ["put", "db", "users", "ada", "1", "--new"]).exits(2).says("the key exists");
    seawall(dir, ["del", "db", "users", "ada"]).exits(0);
    seawall(dir, ["del", "db", "users", "ada"]).exits(1).says("no key");
    put(dir, "orders", "1", "x");
    let trees = seawall(dir, ["trees", "db", "--json"]).exits(0).json();
    assert_eq!((trees[0]["name"].as_str(), trees[1]["name"].as_str()), (Some("orders"), Some("users")));
    assert!(trees[0]["bytes"].as_u64().unwrap() >= 4096);
    seawall(dir, ["del", "db", "orders", "--drop-tree"]).exits(0);
    assert_eq!(seawall(dir, ["trees", "db"]).exits(0).out.lines().count(), 1);
    seawall(dir, ["check", "db"]).exits(0).shows("nothing found");
}

#[test]
fn values_come_from_standard_input() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    let mut put = command(dir);
    put.args(["put", "db", "blobs", "k", "-", "--create"]).stdin(Stdio::piped());
    let mut child = spawn(put);
    let blob: Vec<u8> = (0..50_000u32).map(|i| i as u8).collect();
    child.stdin.take().unwrap().write_all(&blob).unwrap();
    assert!(child.wait().unwrap().success());
    let got = command(dir).args(["get", "db", "blobs", "k", "--raw"]).output().unwrap();
    assert_eq!(got.stdout, blob);
}

/// Standard input is a pipe that stays open and silent.
#[test]
fn ctrl_c_on_an_idle_pipe_ends_at_once() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    let idle = |args: &[&str], first: &[u8], said: &str| {
        let mut idle = command(dir);
        idle.args(args).stdin(Stdio::piped());
        let mut child = spawn(idle);
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(first).unwrap();
        // It has its handlers and sleeps: nothing else than the pipe lets it wait.
        let status = format!("/proc/{}/status", child.id());
        wait_until(&mut child, || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
            let caught = u64::from_str_radix(field("SigCgt:"), 16).unwrap_or(0);
            caught & 1 << (Signal::INT.as_raw() - 1) != 0 && field("State:").starts_with('S')
        });
        signal(child, Signal::INT).exits(130).says(said);
        drop(pipe);
    };
    idle(&["put", "db", "blobs", "k", "-", "--create"], b"", "interrupted: nothing was put");
    idle(&["put", "db", "blobs", "k", "-", "--create"], b"half of it", "interrupted: nothing was put");
    idle(&["load", "db"], b"", "interrupted: nothing was loaded");
    let mut dump = seawall::dump::DumpWriter::new(Vec::new()).unwrap();
    dump.tree("t").unwrap();
    dump.entry(b"k", b"v").unwrap();
    dump.tree("u").unwrap();
    let begun = dump.finish().unwrap();
    idle(&["load", "db"], &begun[..begun.len() / 2], "interrupted");
    seawall(dir, ["check", "db"]).exits(0).shows("nothing found");
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    let dir = scratch();
    let dir = dir.path();
    for command in ["trees", "check", "stat", "doctor", "dump"] {
        seawall(dir, [command, "nowhere"]).exits(2).says("is not a Seawall database");
        assert!(!dir.join("nowhere").exists(), "{command} made something");
    }
    std::fs::create_dir(dir.join("empty")).unwrap();
    seawall(dir, ["get", "empty", "t", "k"]).exits(2).says("seawall init");
    assert!(common::names(&dir.join("empty")).is_empty());
    made(dir);
    seawall(dir, ["init", "db"]).exits(2).says("already");
    seawall(dir, ["get", "db", "none", "k"]).exits(2).says("no tree named \"none\"");
    seawall(dir, ["put", "db", "t", "a\\q", "v"]).exits(2).says("backslash");
    seawall(dir, ["put", "db", "t", "abc", "00", "--hex"]).exits(2).says("hexadecimal");
    seawall(dir, ["trees", "db", "--page-size", "16K"]).exits(2).says("made with 4K");
    seawall(dir, ["trees", "db", "--pool-size", "1"]).exits(2).says("option pool_size = 1");
    seawall(dir, ["trees", "db", "--pool-sise", "1"]).exits(2);
    seawall(dir, ["put", "db", "t", &"k".repeat(5000), "v", "--create"]).exits(2).says("too long");
    seawall(dir, ["put", "db", "never", &"k".repeat(5000), "v", "--create"]).exits(2).says("too long");
    seawall(dir, ["scan", "db", "never"]).exits(2).says("no tree");
    seawall(dir, ["dump", "db", "none"]).exits(2).says("no tree named");
    seawall(dir, ["grow", "db", "much"]).exits(2).says("not a size");
    std::fs::write(dir.join("db/seawall.toml"), "pool_sise = 1\n").unwrap();
    seawall(dir, ["trees", "db"]).exits(2).says("did you mean pool_size?");
    std::fs::remove_file(dir.join("db/seawall.toml")).unwrap();
    let control = dir.join("db/control");
    let kept = std::fs::read(&control).unwrap();
    std::fs::write(&control, vec![7; kept.len()]).unwrap();
    let ran = seawall(dir, ["trees", "db"]).exits(2);
    assert!(ran.err.starts_with("seawall: ") && ran.err.contains("control"), "{ran:?}");
    std::fs::write(&control, kept).unwrap();
    seawall(dir, ["check", "db"]).exits(0);
}

#[test]
fn a_second_process_is_kept_out_and_may_look() {
    let dir = scratch();
    let path = dir.path().join("db");
    let options = Options::default().with_log_capacity(4 << 20).with_data_initial_size(1 << 20);
    let db = Database::open_with(&path, options).unwrap();
    let tree = db.create_tree("t").unwrap();
    for i in 0..200u32 {
        db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), b"v")).unwrap();
    }
    for command in [&["trees", "db"][..], &["check", "db"], &["put", "db", "t", "k", "v"], &["grow", "db", "1G"]] {
        seawall(dir.path(), command).exits(2).says("is open in another process");
    }
    seawall(dir.path(), ["stat", "db"]).exits(0).shows("has it open").shows("redo");
    let pid = std::process::id();
    let json = seawall(dir.path(), ["stat", "db", "--json"]).exits(0).json();
    assert_eq!((json["live"].as_bool(), json["pid"].as_u64()), (Some(true), Some(pid.into())));
    assert!(
        json["io"]
            .as_array()
            .unwrap()
            .iter()
            .any(|cell| cell["class"] == "redo" && cell["p99_ns"].as_u64().unwrap() > 0)
    );
    seawall(dir.path(), ["stat", "db", "--prometheus"]).exits(0).shows("seawall_txn_commits_total");
    seawall(dir.path(), ["stat", "db", "--prometheus"]).exits(0).shows("seawall_up 1\n");
    let watched = seawall(dir.path(), ["stat", "db", "--watch", "--count", "2", "--interval", "100ms"]).exits(0);
    assert_eq!(watched.out.matches("commits/s").count(), 2, "{watched:?}");
    let doctor = seawall(dir.path(), ["doctor", "db"]).exits(0).shows("Where the I/O time goes").shows("for commit");
    assert!(doctor.out.contains('%'), "{doctor:?}");
    assert!(
        seawall(dir.path(), ["doctor", "db", "--json", "--window", "100ms"]).exits(0).json()["findings"].is_array()
    );
    db.set("stats_interval", "1h").unwrap();
    seawall(dir.path(), ["doctor", "db"]).exits(0);
    seawall(dir.path(), ["doctor", "db", "--window", "2s"]).exits(2).says("option stats_interval");
    drop(tree);
    db.close().unwrap();
    seawall(dir.path(), ["stat", "db"]).exits(0).shows("closed: the last numbers of process");
    seawall(dir.path(), ["stat", "db", "--prometheus"]).exits(0).shows("seawall_up 0\n");
    seawall(dir.path(), ["doctor", "db", "--window", "1s"]).exits(2).says("no process has the database open");
    let stats = path.join("stats.json");
    let mut old = common::read_json(&stats);
    (old["open"], old["at_unix_ms"]) = (true.into(), 1.into());
    std::fs::write(&stats, old.to_string()).unwrap();
    seawall(dir.path(), ["stat", "db"]).exits(0).shows("NOT CLOSED").shows("the next opening recovers it");
    assert_eq!(seawall(dir.path(), ["stat", "db", "--json"]).exits(0).json()["held"], false);
    let silent = Database::open_with(&path, Options::default().with_stats_interval(Duration::ZERO)).unwrap();
    std::fs::write(&stats, old.to_string()).unwrap();
    seawall(dir.path(), ["stat", "db"]).exits(0).shows("STALE").shows("the process that has it open publishes none");
    seawall(dir.path(), ["doctor", "db", "--window", "1s"]).exits(2).says("no new numbers").says("the disk is full");
    silent.close().unwrap();
    std::fs::remove_file(&stats).unwrap();
    seawall(dir.path(), ["stat", "db"]).exits(2).says("has no stats.json");
}

#[test]
fn a_dump_is_loaded_whole_or_not_at_all() {
    let dir = scratch();
    let dir = dir.path();
    {
        let options =
            Options::default().with_page_size(4096).with_log_capacity(4 << 20).with_data_initial_size(1 << 20);
        let db = Database::open_with(dir.join("db"), options).unwrap();
        for name in ["a", "b"] {
            let tree = db.create_tree(name).unwrap();
            db.transact(|tx| (0..2000u32).try_for_each(|i| tx.put(&tree, &i.to_be_bytes(), &vec![i as u8; 400])))
                .unwrap();
        }
        let tree = db.open_tree("a").unwrap();
        db.transact(|tx| tx.put(&tree, b"long", &vec![5; 700_000])).unwrap();
        drop(tree);
        db.close().unwrap();
    }
    seawall(dir, ["dump", "db", "--out", "all"]).exits(0).says("2 trees written to all");
    seawall(dir, ["dump", "db", "--out", "all"]).exits(2).says("cannot write all");
    seawall(dir, [&["load", "copy", "--in", "all"][..], &["--page-size", "8K"]].concat())
        .exits(0)
        .says("2 trees loaded: 4001 entries");
    seawall(dir, ["check", "copy"]).exits(0);
    let first = command(dir).args(["dump", "copy"]).output().unwrap();
    assert!(first.status.success());
    assert!(first.stdout == std::fs::read(dir.join("all")).unwrap(), "the same dump from another database");
    seawall(dir, ["load", "copy", "--in", "all"]).exits(2).says("a tree named \"a\" exists").says("Nothing was loaded");
    seawall(dir, ["load", "copy", "--in", "all", "--merge", "--batch", "10K"]).exits(0).says("4001 entries");
    seawall(dir, ["load", "copy", "--in", "all", "--batch", "10K"]).exits(2).says("--merge");
    seawall(dir, ["load", "one", "b", "--in", "all"]).exits(0).says("1 trees loaded: 2000 entries");
    assert_eq!(seawall(dir, ["trees", "one"]).exits(0).out.lines().count(), 1);

    // A load that fails leaves no tree, neither in a database that it made nor in one that was there.
    let whole = std::fs::read(dir.join("all")).unwrap();
    std::fs::write(dir.join("cut"), &whole[..whole.len() - 9]).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    std::fs::write(dir.join("flipped"), flipped).unwrap();
    seawall(dir, ["init", "filled"]).exits(0);
    seawall(dir, ["put", "filled", "kept", "k", "v", "--create"]).exits(0);
    std::fs::create_dir(dir.join("mine")).unwrap();
    std::fs::write(dir.join("mine/notes"), "kept").unwrap();
    for (input, tree, said) in [
        ("cut", "a", "without being complete"),
        ("flipped", "a", "is damaged at byte"),
        ("all", "c", "no tree named \"c\""),
    ] {
        for into in ["new.db", "mine"] {
            seawall(dir, ["load", into, tree, "--in", input]).exits(2).says(said).says("Nothing was loaded");
            assert_eq!(seawall(dir, ["trees", into]).exits(0).out, "", "{input}");
        }
        seawall(dir, ["load", "filled", tree, "--in", input]).exits(2).says(said);
        seawall(dir, ["trees", "filled"]).exits(0).shows("kept");
        assert_eq!(seawall(dir, ["trees", "filled"]).exits(0).out.lines().count(), 1);
    }
    seawall(dir, ["load", "new.db", "--in", "all"]).exits(0).says("2 trees loaded");
    assert_eq!(std::fs::read(dir.join("mine/notes")).unwrap(), b"kept");
    // With `--merge`, what was committed stays, and is reported.
    let cut = seawall(dir, ["load", "cut.db", "--in", "cut", "--merge"]).exits(2).says("without being complete");
    assert!(cut.err.contains("4001 entries") && cut.err.contains("can be loaded over them"), "{cut:?}");
    let ran = seawall(dir, ["load", "flipped.db", "--in", "flipped", "--merge", "--batch", "100K"])
        .exits(2)
        .says("is damaged at byte");
    assert!(ran.err.contains("are committed, the last batch up to"), "{ran:?}");
    seawall(dir, ["check", "flipped.db"]).exits(0);
    std::fs::write(dir.join("text"), "hello").unwrap();
    seawall(dir, ["load", "text.db", "--in", "text"]).exits(2).says("dump");
    assert!(!dir.join("text.db").exists(), "nothing is made for what is no dump");
    seawall(dir, ["load", "x.db", "--in", "missing"]).exits(2).says("cannot read missing");
}

#[test]
fn growth_ahead_is_there_afterwards() {
    let dir = scratch();
    made(dir.path());
    seawall(dir.path(), ["grow", "db", "24M"]).exits(0).shows("and has 24.0 MiB");
    assert_eq!(dir.path().join("db/data").metadata().unwrap().len(), 24 << 20);
    seawall(dir.path(), ["grow", "db", "1M"]).exits(0).shows("and has 24.0 MiB");
    seawall(dir.path(), ["grow", "db", "900000T"]).exits(2);
    put(dir.path(), "t", "k", "v");
    seawall(dir.path(), ["check", "db"]).exits(0);
}

#[test]
fn trees_are_compacted_and_say_how_they_lie() {
    let dir = scratch();
    let db = seawall::Database::open(dir.path().join("db")).unwrap();
    for name in ["t", "u"] {
        let tree = db.create_tree(name).unwrap();
        for first in 0..20u32 {
            let keys = (first * 1000..first * 1000 + 1000).map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes());
            db.transact(|tx| keys.clone().try_for_each(|key| tx.put(&tree, &key, &[7; 100]))).unwrap();
        }
    }
    db.close().unwrap();
    let look = |tree: usize| -> serde_json::Value {
        let ran = seawall(dir.path(), ["trees", "db", "--fragmentation", "--json"]).exits(0);
        serde_json::from_str::<serde_json::Value>(&ran.out).unwrap()[tree]["fragmentation"].clone()
    };
    let before = look(0);
    assert!(before["apart_share"].as_f64().unwrap() > 0.5, "{before}");
    seawall(dir.path(), ["trees", "db", "--fragmentation"]).exits(0).shows("of neighbours apart, leaves");
    seawall(dir.path(), ["compact", "db", "t", "--fill", "80"]).exits(0).shows("t: ").shows("pages freed. Before:");
    let (after, other) = (look(0), look(1));
    assert!(after["apart_share"].as_f64().unwrap() < 0.1, "{after}");
    assert!(other["apart_share"].as_f64().unwrap() > 0.5, "only the one that was named: {other}");
    let ran = seawall(dir.path(), ["compact", "db", "--json"]).exits(0);
    let done: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        done[1]["freed"].as_u64(),
        Some(done[1]["moved"].as_u64().unwrap() + done[1]["merged"].as_u64().unwrap())
    );
    assert!(done[1]["after"]["apart_share"].as_f64().unwrap() < 0.1, "{done}");
    seawall(dir.path(), ["check", "db"]).exits(0);
    seawall(dir.path(), ["compact", "db", "--fill", "20"]).exits(2).says("50..=100");
    seawall(dir.path(), ["compact", "db", "none"]).exits(2).says("none");
}

#[test]
fn a_flipped_bit_is_found_with_its_page() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    put(dir, "users", "ada", "a value to be looked for");
    let data = dir.join("db/data");
    let mut bytes = std::fs::read(&data).unwrap();
    let at = bytes.windows(24).position(|w| w == b"a value to be looked for").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    let page = at / 4096;
    let ran =
        seawall(dir, ["check", "db"]).exits(1).shows(&format!("page: page {page} of tree \"users\"")).shows("checksum");
    assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
    let found = seawall(dir, ["check", "db", "--json"]).exits(1).json();
    assert_eq!((found[0]["page"].as_u64(), found[0]["part"].as_str()), (Some(page as u64), Some("page")));
    seawall(dir, ["get", "db", "users", "ada"]).exits(2).says(&format!("page {page}")).says("checksum");
    // A dump of it is refused, or contains the rest.
    put(dir, "other", "k", "v");
    seawall(dir, ["dump", "db", "--out", "rest"]).exits(2).says(&format!("page {page}")).says("--skip-damaged");
    let unfinished = |name: &std::ffi::OsStr| name == "rest" || name.to_string_lossy().starts_with(".seawall-dump");
    assert!(!std::fs::read_dir(dir).unwrap().any(|entry| unfinished(&entry.unwrap().file_name())));
    let left_out = format!("tree \"users\": keys from \"\" to the end left out, page {page}: ");
    seawall(dir, ["dump", "db", "--skip-damaged", "--out", "rest"])
        .exits(1)
        .says("2 trees written")
        .says(&left_out)
        .says("ranges of keys left out: 1");
    seawall(dir, ["load", "rest.db", "--in", "rest"]).exits(0);
    seawall(dir, ["get", "rest.db", "other", "k"]).exits(0).shows("v");
    assert_eq!(seawall(dir, ["scan", "rest.db", "users"]).exits(0).out, "");
    // Without its first page it cannot be opened, but its other pages are still checked.
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    let ran = seawall(dir, ["check", "db"]).exits(1).shows("opening: ").says("cannot be opened");
    let pages: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("page: page ")).collect();
    assert_eq!(pages.len(), 2, "{ran:?}");
    assert!(pages[0].starts_with("page: page 0: ") && pages[1].starts_with(&format!("page: page {page}: ")), "{ran:?}");
}

#[test]
fn a_killed_load_leaves_a_clean_database() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    let mut load = command(dir);
    load.args(["load", "db", "--merge", "--batch", "2K"]).stdin(Stdio::piped());
    let mut child = spawn(load);
    let mut dump = seawall::dump::DumpWriter::new(child.stdin.take().unwrap()).unwrap();
    dump.tree("t").unwrap();
    let mut fed = 0u32;
    let mut feed = || {
        for _ in 0..20_000 {
            dump.entry(&fed.to_be_bytes(), &[7; 50]).unwrap();
            fed += 1;
        }
    };
    feed();
    let data = dir.join("db/data");
    wait_until(&mut child, || data.metadata().is_ok_and(|m| m.len() > 1 << 20));
    wait_until(&mut child, || dir.join("db/stats.json").exists());
    seawall(dir, ["stat", "db"]).exits(0).shows("has it open");
    child.kill().unwrap();
    child.wait().unwrap();
    seawall(dir, ["stat", "db"]).exits(0).shows("has ended without closing it");
    seawall(dir, ["check", "db"]).exits(0).shows("nothing found");
    let count: u32 = seawall(dir, ["scan", "db", "t", "--count"]).exits(0).out.trim().parse().unwrap();
    assert!(count > 0 && count <= fed, "{count} of {fed}");
}

#[test]
fn a_load_that_fills_the_disk_says_how_far_it_came() {
    let Some(mount) = common::Mount::tmpfs("size=84m") else { return };
    let dir = scratch();
    let dir = dir.path();
    let mut dump = seawall::dump::DumpWriter::new(std::fs::File::create(dir.join("all")).unwrap()).unwrap();
    dump.tree("t").unwrap();
    for i in 0..1500u32 {
        dump.entry(&i.to_be_bytes(), &vec![i as u8; 100_000]).unwrap();
    }
    dump.finish().unwrap();
    let db = mount.path.join("db");
    let db = db.to_str().unwrap();
    let ran = seawall(dir, [&["load", db, "--in", "all", "--merge", "--batch", "1M"][..], &SMALL].concat())
        .exits(2)
        .says("no space");
    assert!(ran.err.contains("entries") && ran.err.contains("are committed, the last batch up to"), "{ran:?}");
    let count: u32 = seawall(dir, ["scan", db, "t", "--count"]).exits(0).out.trim().parse().unwrap();
    assert!(count > 50 && ran.err.contains(&format!("{count} entries")), "{count}: {ran:?}");
    seawall(dir, ["check", db]).exits(0);
    std::fs::remove_dir_all(db).unwrap();
    let whole = seawall(dir, [&["load", db, "--in", "all"][..], &SMALL].concat()).exits(2).says("no space");
    assert!(whole.err.contains("Nothing was loaded"), "{whole:?}");
    assert_eq!(seawall(dir, ["trees", db]).exits(0).out, "");
}

/// What `scan` prints, `import` loads: every byte, in every format that both have.
#[test]
fn what_is_scanned_can_be_imported() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    let db = Database::open(dir.join("db")).unwrap();
    let tree = db.create_tree("t").unwrap();
    let every: Vec<u8> = (0..=255).collect();
    db.transact(|tx| {
        tx.put(&tree, &every, b"a\tb\n\\,\"q\"")?;
        tx.put(&tree, "grüße", &every)?;
        (0..200u32).try_for_each(|i| tx.put(&tree, &i.to_be_bytes(), &i.to_le_bytes()))
    })
    .unwrap();
    drop(tree);
    db.close().unwrap();
    let all = seawall(dir, ["scan", "db", "t", "--hex"]).exits(0).out;
    for (to, scan, import) in [
        ("tsv", &["scan", "db", "t"][..], &["--tsv"][..]),
        ("tsv-hex", &["scan", "db", "t", "--hex"], &["--tsv", "--hex"]),
        ("jsonl", &["scan", "db", "t", "--json"], &["--jsonl"]),
    ] {
        std::fs::write(dir.join("rows"), seawall(dir, scan).exits(0).out).unwrap();
        seawall(dir, [&["import", "db", to, "--in", "rows"][..], import].concat()).exits(0).says("202 rows imported");
        assert_eq!(seawall(dir, ["scan", "db", to, "--hex"]).exits(0).out, all, "{to}");
    }
    std::fs::write(dir.join("rows"), "name,born\nada,1815\n\"grace, admiral\",\"say \"\"1906\"\"\"\n").unwrap();
    seawall(dir, ["import", "db", "csv", "--csv", "--header", "--in", "rows"]).exits(0).says("2 rows imported");
    assert_eq!(seawall(dir, ["get", "db", "csv", "grace, admiral"]).exits(0).out, "say \"1906\"\n");
}

#[test]
fn an_import_that_fails_changes_nothing() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    put(dir, "t", "b", "old");
    for (format, text, said) in [
        ("--tsv", "a\t1\nb\t2\n", "line 2: the key exists"),
        ("--tsv", "a\t1\nc\n", "line 2 has 1 columns"),
        ("--tsv", "a\t1\nc\t1\t2\n", "line 2 has 3 columns"),
        ("--tsv", "a\t1\nc\\q\t1\n", "backslash"),
        ("--csv", "a,1\nc,1,2\n", "line 2 has 3 columns"),
        ("--csv", "a,\"1\nc,2\nd,3\n", "a quotation mark is not closed"),
        ("--csv", "a,1\nc,\"cut o", "a quotation mark is not closed"),
        ("--jsonl", "{\"key\":\"a\",\"value\":\"1\"}\nnot JSON\n", "line 2"),
        ("--jsonl", "{\"key\":\"a\",\"valeu\":\"1\"}\n", "unknown field"),
    ] {
        std::fs::write(dir.join("rows"), text).unwrap();
        for tree in ["t", "new"] {
            let ran = seawall(dir, ["import", "db", tree, format, "--in", "rows"]);
            if tree == "new" && said.contains("exists") {
                ran.exits(0);
                seawall(dir, ["del", "db", "new", "--drop-tree"]).exits(0);
            } else {
                ran.exits(2).says(said).says("Nothing was imported");
            }
        }
        assert_eq!(seawall(dir, ["scan", "db", "t"]).exits(0).out, "b\told\n", "{text}");
        assert_eq!(seawall(dir, ["trees", "db"]).exits(0).out.lines().count(), 1, "{text}");
    }
    std::fs::write(dir.join("rows"), "a\t1\nb\t2\n").unwrap();
    seawall(dir, ["import", "db", "t", "--tsv", "--merge", "--in", "rows"]).exits(0);
    assert_eq!(seawall(dir, ["scan", "db", "t"]).exits(0).out, "a\t1\nb\t2\n");
    std::fs::write(dir.join("rows"), "c,\"said \"\"so\"\"\"\n").unwrap();
    seawall(dir, ["import", "db", "t", "--csv", "--in", "rows"]).exits(0);
    assert_eq!(seawall(dir, ["get", "db", "t", "c"]).exits(0).out, "said \"so\"\n");
    seawall(dir, ["import", "db", "t", "--in", "rows"]).exits(2).says("--tsv");
    seawall(dir, ["import", "nowhere", "t", "--tsv", "--in", "rows"]).exits(2).says("is not a Seawall database");
}

#[test]
fn a_database_is_backed_up_and_restored_open_or_closed() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    put(dir, "users", "ada", "1815");
    seawall(dir, ["backup", "db", "monday"]).exits(0).shows("full backup at position");
    put(dir, "users", "ada", "1852");
    let done =
        seawall(dir, ["backup", "db", "tuesday", "--incremental-from", "monday", "--rate", "0", "--json"]).exits(0);
    assert_eq!(done.json()["incremental"], true);
    seawall(dir, ["backup", "db", "monday"]).exits(2).says("new or empty");
    seawall(dir, ["backup", "nothing", "there"]).exits(2).says("there is nothing");
    seawall(dir, ["restore", "monday", "as-of-monday"]).exits(0).shows("a database at position");
    seawall(dir, ["restore", "monday", "tuesday", "as-of-tuesday"]).exits(0);
    for (db, value) in [("as-of-monday", "1815\n"), ("as-of-tuesday", "1852\n")] {
        assert_eq!(seawall(dir, ["get", db, "users", "ada"]).exits(0).out, value);
        seawall(dir, ["check", db]).exits(0);
    }
    seawall(dir, ["restore", "tuesday", "not"]).exits(2).says("name the full backup");
    seawall(dir, ["restore", "monday"]).exits(2);
    seawall(dir, ["get", "monday", "users", "ada"]).exits(2).says("seawall restore");
    // A process that has it open without a control socket, and one with it.
    let off = Options::default().with_control_socket(ControlSocketChoice::Off);
    let db = Database::open_with(dir.join("db"), off).unwrap();
    seawall(dir, ["backup", "db", "wednesday"]).exits(2).says("has no control socket");
    db.close().unwrap();
    let db = Database::open(dir.join("db")).unwrap();
    let users = db.open_tree("users").unwrap();
    db.transact(|tx| tx.put(&users, b"eve", b"not yet on disk")).unwrap();
    seawall(dir, ["backup", "db", "wednesday"]).exits(0).shows("full backup");
    seawall(dir, ["backup", "db", "wednesday"])
        .exits(2)
        .says("the process that has db open made no backup")
        .says("new or empty");
    // A backup that waits for its end: the process ends it.
    std::thread::scope(|threads| {
        let asked = threads.spawn(|| seawall(dir, ["backup", "db", "thursday", "--wait-for-end"]));
        while !asked.is_finished() && db.tell_backup_to_end().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        asked.join().unwrap().exits(0).shows("full backup");
    });
    drop(users);
    db.close().unwrap();
    seawall(dir, ["backup", "db", "friday", "--wait-for-end"]).exits(2).says("leave out --wait-for-end");
    seawall(dir, ["restore", "wednesday", "as-of-wednesday"]).exits(0);
    assert_eq!(seawall(dir, ["get", "as-of-wednesday", "users", "eve"]).exits(0).out, "not yet on disk\n");
}

/// Standard input and output have names in messages, and a dump into a closed pipe ends quietly, as a scan does.
#[test]
fn standard_streams_are_named() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    put(dir, "users", "ada", &"x".repeat(1000));
    let dump = |to: std::fs::File| {
        let mut dump = command(dir);
        common::Ran::from(dump.args(["dump", "db"]).stdout(to).stderr(Stdio::piped()).output().unwrap())
    };
    dump(std::fs::File::create(dir.join("f")).unwrap()).exits(0).says("1 trees written to standard output\n");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    dump(full).exits(2).says(" of standard output failed: No space left");
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(reader);
    let writer = std::os::fd::OwnedFd::from(writer);
    let mut ended = command(dir);
    let ended = ended.args(["dump", "db"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(common::Ran::from(ended).exits(0).err, "");
    // An empty standard input.
    seawall(dir, ["load", "db"]).exits(2).says("standard input");
    let mut import = command(dir);
    let import = import.args(["import", "db", "t", "--tsv"]).stdin(std::fs::File::open(dir.join("f")).unwrap());
    common::Ran::from(import.output().unwrap()).exits(2).says("seawall: standard input: line 1: ");
}

/// A creation that failed, a restore that was interrupted, and a path that cannot be looked into are not called
/// "no database" or "a database".
#[test]
fn what_is_half_made_or_unreadable_is_named() {
    let dir = scratch();
    let dir = dir.path();
    std::os::unix::fs::symlink("loop", dir.join("loop")).unwrap();
    seawall(dir, ["scan", "loop", "t"]).exits(2).says("loop/control").says("symbolic links");
    std::fs::write(dir.join("file"), "").unwrap();
    seawall(dir, ["stat", "file"]).exits(2).says("Not a directory").says("is a file");
    // As a killed restore leaves it.
    std::fs::create_dir(dir.join("rest")).unwrap();
    std::fs::write(dir.join("rest/backup.unfinished"), "").unwrap();
    seawall(dir, ["trees", "rest"]).exits(2).says("rest holds an unfinished backup or restore");
    made(dir);
    seawall(dir, ["backup", "db", "bk"]).exits(0);
    seawall(dir, ["restore", "bk", "rest"]).exits(2).says("remove the directory and start again");
    seawall(dir, ["restore", "nowhere", "r"]).exits(2).says("backup nowhere: there is nothing at this path");
    seawall(dir, ["restore", "bk/data", "r"]).exits(2).says("Not a directory").says("is a file");
    let Some(mount) = Mount::tmpfs("size=30M") else { return };
    let small = &mount.path;
    seawall(small, ["init", "db"]).exits(2).says("no space");
    seawall(small, ["put", "db", "t", "a", "1", "--create"]).exits(2).says("its creation was interrupted");
    seawall(small, [&["init", "db"][..], &SMALL].concat()).exits(0);
    seawall(small, ["init", "db"]).exits(2).says("is a database already");
    seawall(small, ["check", "db"]).exits(0);
}

/// A database that was not closed cleanly and cannot be written: both reasons are named.
#[test]
fn what_needs_recovery_and_cannot_be_written_is_named() {
    let dir = scratch();
    let Some(mount) = Mount::tmpfs("size=30M") else { return };
    made(dir.path());
    let db = Database::open(dir.path().join("db")).unwrap();
    std::fs::create_dir(mount.path.join("db")).unwrap();
    for entry in std::fs::read_dir(dir.path().join("db")).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            match std::fs::copy(entry.path(), mount.path.join("db").join(entry.file_name())) {
                // The database writes its statistics under another name, and renames the file.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
    db.close().unwrap();
    let remount = ["-o", "remount,ro"];
    assert!(std::process::Command::new("mount").args(remount).arg(&mount.path).status().unwrap().success());
    for command in [&["trees", "db"][..], &["scan", "db", "t"], &["dump", "db", "-o", "f"]] {
        seawall(&mount.path, command).exits(2).says("was not closed cleanly").says("Read-only file system");
    }
}

/// A log directory is not stored in the database: `init` says so, and a command without it is told what it lacks.
#[test]
fn a_forgotten_log_directory_is_asked_for() {
    let dir = scratch();
    let dir = dir.path();
    let log_dir = ["--log-dir", "../log"];
    let toml = "write log_dir = \"../log\" into db/seawall.toml";
    seawall(dir, [&["init", "db"][..], &log_dir, &SMALL].concat()).exits(0).says(toml);
    let put = ["put", "db", "t", "a", "1", "--create"];
    seawall(dir, put).exits(2).says("db: there is no log in this directory").says("--log-dir");
    seawall(dir, [&put[..], &["--log-dir", "nonexist"]].concat()).exits(2).says("db/nonexist: there is no log");
    assert!(!dir.join("db/nonexist").exists());
    std::fs::write(dir.join("db/seawall.toml"), "log_dir = \"../log\"\n").unwrap();
    seawall(dir, put).exits(0);
    assert_eq!(seawall(dir, ["get", "db", "t", "a"]).exits(0).out, "1\n");
}
