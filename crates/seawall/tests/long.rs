//! Transactions far larger than the pool: they commit, are rolled back, and are rolled back after a crash, in
//! bounded memory.
//!
//! 1. Each phase is a process of its own, so that its peak of resident memory is its own too.
//! 2. The contents are compared by one pass over all entries in order: its memory does not grow with them.
//! 3. A phase that dies calls `exit` without closing the engine, like a killed process.
//!
//! Small by default. `make long ROWS=10000000`, or:
//!
//! ```text
//! ROWS=10000000 cargo test --release -p seawall --test long -- --nocapture
//! ```

#[path = "../../seawall-io/tests/common/skip.rs"]
mod skip;

use seawall::{Database, Durability, Options, Transaction, Tree};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// From this many rows on a run uses the sizes of a server.
const LARGE: u64 = 1_000_000;
/// Memory in addition to the pool and the log buffer: program, stacks, buffers of the recovery and the cleaner,
/// translation. Memory that grew with the rows would be far above it: 10 million times 16 bytes are 152 MiB.
const BESIDE_BYTES: u64 = 48 << 20;
/// The exit code of a process that dies as intended.
const DIED: i32 = 77;

fn rows() -> u64 {
    match std::env::var("ROWS") {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("ROWS={text}: {error}")),
        Err(_) if cfg!(debug_assertions) => 6_000,
        Err(_) => 60_000,
    }
}

fn options() -> Options {
    // A request for a row of the dead transaction waits until it is undone, however long that takes.
    let options = Options::default().with_lock_wait_timeout(Duration::from_secs(6 * 3600));
    if rows() >= LARGE {
        return options.with_pool_size(64 << 20).with_pool_size_max(64 << 20).with_log_capacity(512 << 20);
    }
    options
        .with_page_size(4096)
        .with_pool_size(64 * 4096)
        .with_pool_size_max(64 * 4096)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(4 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(dir: &Path) -> Database {
    Database::open_with(dir, options()).unwrap()
}

/// The key of row `i`: shuffled within some hundred pages, so that successive rows are not neighbours in the
/// tree, but the run is not limited by the device's random reads.
fn key(i: u64) -> [u8; 8] {
    const BLOCK: u64 = 1 << 14;
    // An odd factor permutes the numbers of a block: the keys stay distinct.
    (i / BLOCK * BLOCK + i.wrapping_mul(0x5deece66d) % BLOCK).to_be_bytes()
}

fn value(i: u64, version: u8) -> Vec<u8> {
    let mut value = vec![version; 16 + (i % 24) as usize];
    value[..8].copy_from_slice(&i.to_le_bytes());
    value
}

/// The contents of the tree: the number of entries, and a sum over them in order.
fn contents(tx: &Transaction, tree: &Tree) -> (u64, u64) {
    let (mut count, mut sum) = (0u64, 0xcbf2_9ce4_8422_2325u64);
    for entry in tx.iter(tree) {
        let (key, value) = entry.unwrap();
        count += 1;
        for byte in key.iter().chain(&value) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    (count, sum)
}

/// One transaction of `rows()` changes on a table with the rows `0..rows() / 2`: these are all updated, a
/// quarter of them is deleted and inserted again, and the rest are new rows.
fn change_everything(tx: &mut Transaction, tree: &Tree) {
    let rows = rows();
    let (there, begun) = (rows / 2, Instant::now());
    let mut changes = 0;
    for i in 0..there {
        if i % 4 == 0 {
            assert!(tx.delete(tree, &key(i)).unwrap(), "row {i} was there");
        } else {
            assert!(tx.update(tree, &key(i), &value(i, 2)).unwrap(), "row {i} was there");
        }
        changes += 1;
    }
    let mut next = there;
    while changes < rows {
        if changes % 8 == 0 {
            let again = (changes - there) / 8 % there / 4 * 4;
            tx.put(tree, &key(again), &value(again, 3)).unwrap();
        } else {
            tx.insert(tree, &key(next), &value(next, 2)).unwrap();
            next += 1;
        }
        changes += 1;
    }
    println!("  {changes} changes in {:.1?}", begun.elapsed());
}

fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

fn is_bounded(phase: &str) {
    let bound = options().pool_size() + options().log_buffer_size() + BESIDE_BYTES;
    match peak_bytes() {
        Some(peak) => {
            println!("{phase}: peak of memory {} MiB, at most {} allowed", peak >> 20, bound >> 20);
            assert!(peak <= bound, "{phase} took {} MiB, more than {} MiB", peak >> 20, bound >> 20);
        }
        None => skip::skipped(format_args!("{phase}: /proc/self/status does not say the peak of memory")),
    }
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    println!("  {what}: {:.1?}", begun.elapsed());
    done
}

fn remembered(dir: &Path) -> PathBuf {
    dir.with_extension("contents")
}

fn remember(dir: &Path, contents: (u64, u64)) {
    std::fs::write(remembered(dir), format!("{} {}", contents.0, contents.1)).unwrap();
}

fn recall(dir: &Path) -> (u64, u64) {
    let text = std::fs::read_to_string(remembered(dir)).unwrap();
    let (count, sum) = text.split_once(' ').unwrap();
    (count.parse().unwrap(), sum.parse().unwrap())
}

/// Loads rows `0..rows() / 2` in one commit of that many changes.
fn load(dir: &Path) {
    let db = open(dir);
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    timed("load", || (0..rows() / 2).for_each(|i| tx.insert(&tree, &key(i), &value(i, 1)).unwrap()));
    timed("its commit", || tx.commit().unwrap());
    let found = contents(&db.begin().unwrap(), &tree);
    assert_eq!(found.0, rows() / 2);
    remember(dir, found);
    timed("close", || db.close().unwrap());
}

fn roll_back(dir: &Path) {
    let db = open(dir);
    let tree = db.open_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    change_everything(&mut tx, &tree);
    assert_ne!(contents(&tx, &tree), recall(dir), "it sees its own changes");
    timed("roll back", || tx.rollback().unwrap());
    assert_eq!(contents(&db.begin().unwrap(), &tree), recall(dir), "nothing of it is left");
    timed("close", || db.close().unwrap());
}

fn die(dir: &Path) {
    let db = open(dir);
    let tree = db.open_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    change_everything(&mut tx, &tree);
    // A later commit makes the whole log durable.
    let marks = db.create_tree("marks").unwrap();
    db.transact(|other| other.put(&marks, b"after", b"it")).unwrap();
    is_bounded("die");
    std::process::exit(DIED);
}

fn recover(dir: &Path) {
    let db = timed("open after the crash", || open(dir));
    let tree = db.open_tree("t").unwrap();
    let marks = db.open_tree("marks").unwrap();
    let tx = db.begin().unwrap();
    assert!(tx.contains(&marks, b"after").unwrap());
    timed("read it while it is rolled back", || {
        assert_eq!(contents(&tx, &tree), recall(dir), "it was never committed");
    });
    drop(tx);
    // Its rows are locked until it is undone. The first row it changed is undone last: that lock is granted
    // when everything is undone.
    timed("rolled back", || {
        let mut tx = db.begin().unwrap();
        tx.put(&tree, &key(0), &value(0, 1)).unwrap();
        tx.rollback().unwrap();
    });
    assert_eq!(contents(&db.begin().unwrap(), &tree), recall(dir), "nothing of it is left");
    timed("close", || db.close().unwrap());
}

fn commit(dir: &Path) {
    let db = open(dir);
    let tree = db.open_tree("t").unwrap();
    let before = db.begin().unwrap();
    before.take_snapshot().unwrap();
    let mut tx = db.begin().unwrap();
    change_everything(&mut tx, &tree);
    let own = contents(&tx, &tree);
    timed("commit", || tx.commit_with(Durability::Flushed).unwrap());
    timed("read it", || assert_eq!(contents(&db.begin().unwrap(), &tree), own));
    timed("read what was before", || assert_eq!(contents(&before, &tree), recall(dir)));
    drop(before);
    remember(dir, own);
    timed("close", || db.close().unwrap());
}

fn reopen(dir: &Path) {
    let db = timed("open", || open(dir));
    let tree = db.open_tree("t").unwrap();
    assert_eq!(contents(&db.begin().unwrap(), &tree), recall(dir), "what was committed is there");
    timed("purge", || while db.step_task(seawall::Task::Purge).unwrap() {});
    assert_eq!(contents(&db.begin().unwrap(), &tree), recall(dir), "and stays after purge");
    timed("close", || db.close().unwrap());
}

type Phase = (&'static str, fn(&Path));

const PHASES: [Phase; 6] = [
    ("load", load),
    ("roll_back", roll_back),
    ("die", die),
    ("recover", recover),
    ("commit", commit),
    ("reopen", reopen),
];

#[test]
#[ignore = "a phase of the other test, which runs it in a process of its own"]
fn phase() {
    let name = std::env::var("LONG_PHASE").expect("LONG_PHASE names the phase");
    let dir = std::env::var_os("LONG_DIR").expect("LONG_DIR is the database's directory");
    let (_, run) = PHASES.iter().find(|(known, _)| *known == name).expect("a phase of that name");
    // The test runner's line is unfinished.
    println!();
    run(Path::new(&dir));
    is_bounded(&name);
}

#[test]
fn a_transaction_far_larger_than_the_pool() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = scratch.path().join("db");
    println!("{} rows, a pool of {} KiB", rows(), options().pool_size() >> 10);
    for (name, _) in PHASES {
        let begun = Instant::now();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "phase", "--ignored", "--nocapture", "--test-threads=1"]);
        let output = child.env("LONG_PHASE", name).env("LONG_DIR", &dir).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let ended = if name == "die" { output.status.code() == Some(DIED) } else { output.status.success() };
        assert!(ended, "{name} ended with {}\n{out}\n{err}", output.status);
        let told = out.lines().filter(|line| line.starts_with("  ") || line.starts_with(name));
        println!("{name} ({:.1?})", begun.elapsed());
        told.for_each(|line| println!("{line}"));
    }
}
