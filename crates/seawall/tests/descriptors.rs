//! A database in a process with a low limit of open files.

use seawall::{Database, Options, Result};
use std::path::Path;

const KEY: &str = "SEAWALL_TEST_DESCRIPTORS";

/// Runs a part of the test `name` in a process that may have 64 files open; returns its standard output.
fn in_child(name: &str, part: &str, dir: &Path) -> String {
    let this = std::env::current_exe().unwrap();
    let out = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(this)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(KEY, part)
        .env("SEAWALL_TEST_DIR", dir)
        .output()
        .unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let said = text(&out.stdout);
    assert!(said.contains("everything was right"), "{part}: {}\n{said}{}", out.status, text(&out.stderr));
    said
}

fn options() -> Options {
    let mut options = Options::default();
    for (name, value) in [
        ("log_segment_size", "64K"),
        ("log_capacity", "64M"),
        ("io_capacity", "10"),
        ("pool_size", "128M"),
        ("log_flush_method", "o_direct"),
        ("data_flush_method", "o_direct"),
        // The durability of these files does not matter: only their number does.
        ("durability", "written"),
    ] {
        options.set(name, value).unwrap();
    }
    options
}

fn value(i: u32) -> Vec<u8> {
    let mut value = vec![(i % 251) as u8; 5000];
    value[..4].copy_from_slice(&i.to_be_bytes());
    value
}

fn segments(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("redo.")).count()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

const COMMITS: u32 = 10_500;
const KEYS: u32 = 8000;

fn commit_all(dir: &Path) -> Result<()> {
    let db = Database::open_with(dir, options())?;
    let tree = db.create_tree("t")?;
    let mut most = 0;
    for i in 0..COMMITS {
        let mut tx = db.begin()?;
        tx.put(&tree, &(i % KEYS).to_be_bytes(), &value(i))?;
        tx.commit()?;
        if i % 100 == 0 {
            most = most.max(open_files());
        }
    }
    let log = db.stats().log;
    assert!(log.bytes > u64::from(COMMITS) * 5000, "{log:?}");
    assert!(segments(dir) > 100, "{} segments: the log was to be long", segments(dir));
    assert!(most < 60, "{most} descriptors were open");
    println!("everything was right: {most} descriptors, {} segments", segments(dir));
    // No clean end: the next opening reads the whole log.
    std::process::abort();
}

fn find_all(dir: &Path) -> Result<()> {
    assert!(segments(dir) > 100);
    for _ in 0..2 {
        let db = Database::open_with(dir, options())?;
        let tree = db.open_tree("t")?;
        for i in COMMITS - KEYS..COMMITS {
            assert_eq!(db.get(&tree, &(i % KEYS).to_be_bytes())?.as_deref(), Some(&value(i)[..]), "{i}");
        }
        assert!(db.check()?.is_empty());
        assert!(open_files() < 60, "{}", open_files());
        db.close()?;
    }
    println!("everything was right");
    Ok(())
}

#[test]
fn sixty_four_descriptors_are_enough_for_any_log() {
    let dir = || std::path::PathBuf::from(std::env::var_os("SEAWALL_TEST_DIR").unwrap()).join("db");
    match std::env::var(KEY).as_deref() {
        Ok("commit") => commit_all(&dir()).unwrap(),
        Ok("find") => find_all(&dir()).unwrap(),
        _ => {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            for part in ["commit", "find"] {
                print!("{}", in_child("sixty_four_descriptors_are_enough_for_any_log", part, dir.path()));
            }
        }
    }
}
