//! After a run the page cache holds none of the engine's files, except those listed here.
//!
//! 1. The default mode on a real directory, as chosen by the probe: the promise is for that mode.
//! 2. What may stay is small and on no path of a commit or a page: files read or written once per opening, as
//!    text.

#[path = "../../seawall-io/tests/common/skip.rs"]
mod skip;

use seawall::{BackupOptions, Database, Options, Task};
use seawall_io::{Disk, OpenHow, OsDisk};
use std::path::Path;

/// Files of a directory that are written through the page cache, once per opening or less.
const SMALL: [&str; 6] = ["seawall.toml", "calibration", "creating", "stats", "backup", "backup.history"];
/// The most bytes that one of those may leave there.
const SMALL_BYTES: u64 = 64 << 10;

/// Whether files of this directory can be opened for direct I/O: otherwise there is no promise.
fn is_direct(dir: &Path) -> bool {
    let path = dir.join("direct");
    let how = OpenHow { write: true, direct: true, create: seawall_io::Create::New, ..OpenHow::default() };
    let opened = OsDisk::synchronous().open(&path, how);
    if let Err(error) = &opened {
        skip::skipped(format_args!("no direct I/O in {}: {error}", dir.display()));
    }
    opened.is_ok() && std::fs::remove_file(&path).is_ok()
}

/// Bytes in the page cache, by file.
fn cached(dir: &Path) -> Vec<(String, u64, u64)> {
    let disk = OsDisk::synchronous();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_type().unwrap().is_file() {
            // The socket has no contents.
            continue;
        }
        let len = entry.metadata().unwrap().len();
        let file = disk.open(&entry.path(), OpenHow::default()).unwrap();
        let resident = disk.cached(&file, len).unwrap().resident;
        found.push((entry.file_name().to_string_lossy().into_owned(), len, resident));
    }
    found.sort();
    found
}

fn holds_nothing(dir: &Path, when: &str) {
    let files = cached(dir);
    for name in ["data", "control", "doublewrite"] {
        assert!(files.iter().any(|file| file.0 == name), "{name} is there {when}: {files:?}");
    }
    holds_none_of(&files, when);
}

fn holds_none_of(files: &[(String, u64, u64)], when: &str) {
    assert!(files.iter().any(|file| file.0.starts_with("redo.")), "a log is there {when}: {files:?}");
    for (name, len, resident) in files {
        let small = SMALL.iter().any(|known| name.starts_with(known));
        let allowed = if small { SMALL_BYTES } else { 0 };
        assert!(
            *resident <= allowed,
            "{when}, {resident} bytes of {name} ({len} bytes) are in the page cache: {files:?}"
        );
    }
}

#[test]
fn the_page_cache_holds_none_of_the_files() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !is_direct(scratch.path()) {
        return;
    }
    let dir = scratch.path().join("db");
    // The defaults, except for sizes that make the pool overflow and the files grow and be recycled.
    let options = || {
        Options::default()
            .with_pool_size(2 << 20)
            .with_data_initial_size(1 << 20)
            .with_data_growth_step(2 << 20)
            .with_log_segment_size(256 << 10)
            .with_log_capacity(4 << 20)
            .with_log_buffer_size(1 << 20)
    };
    let db = Database::open_with(&dir, options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    for round in 0..60u32 {
        db.transact(|tx| {
            (0..100u32).try_for_each(|i| {
                let key = (i * 7919 + round * 31) % 4000;
                tx.put(&tree, &key.to_be_bytes(), &vec![round as u8; if i == 50 { 40_000 } else { 900 }])
            })
        })
        .unwrap();
    }
    holds_nothing(&dir, "after commits");
    db.checkpoint().unwrap();
    assert!(db.begin().unwrap().iter(&tree).count() > 1000);
    while db.step_task(Task::Purge).unwrap() {}
    holds_nothing(&dir, "after a checkpoint, a scan and purge");
    db.close().unwrap();
    holds_nothing(&dir, "after closing");
    let db = Database::open_with(&dir, options()).unwrap();
    let tree = db.open_tree("t").unwrap();
    assert!(db.begin().unwrap().iter(&tree).count() > 1000);
    db.transact(|tx| tx.put(&tree, b"again", b"opened")).unwrap();
    holds_nothing(&dir, "after it was opened again");
    db.close().unwrap();
    holds_nothing(&dir, "at the end");
}

#[test]
fn a_backup_leaves_no_page_cache_of_either_side() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !is_direct(scratch.path()) {
        return;
    }
    let at = |name: &str| scratch.path().join(name);
    let options = || {
        Options::default()
            .with_pool_size(2 << 20)
            .with_data_initial_size(1 << 20)
            .with_log_segment_size(256 << 10)
            .with_log_capacity(4 << 20)
            .with_log_buffer_size(1 << 20)
    };
    let db = Database::open_with(at("db"), options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    let mut last = None;
    for round in 0..3u8 {
        db.transact(|tx| (0..4000u32).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[round; 600]))).unwrap();
        db.checkpoint().unwrap();
        let options = BackupOptions { rate: 0, incremental_from: last, ..BackupOptions::default() };
        let to = at(&format!("backup-{round}"));
        let report = db.backup_to(&to, &options).unwrap();
        assert!(report.pages > 100, "{report:?}");
        holds_nothing(&at("db"), "after a backup");
        holds_none_of(&cached(&to), "in a backup");
        last = Some(to);
    }
    let chain: Vec<_> = (0..3).map(|round| at(&format!("backup-{round}"))).collect();
    Database::restore(&chain, at("restored")).unwrap();
    holds_none_of(&cached(&at("restored")), "in what was restored");
    chain.iter().for_each(|dir| holds_none_of(&cached(dir), "in a backup that was restored from"));
    let copy = Database::open_with(at("restored"), options()).unwrap();
    let tree = copy.open_tree("t").unwrap();
    assert_eq!(copy.begin().unwrap().iter(&tree).count(), 4000);
    db.close().unwrap();
}
