//! Invalid requests give one clear, typed error each, and lose nothing.

use seawall::{Background, Database, Env, Error, Options, Task};
use seawall_io::{Op, SystemClock};
use seawall_sim::{Fault, Process, SimDisk, SimOptions};
use std::path::Path;
use std::sync::Arc;

fn small() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
        .with_log_dir("log".into())
}

fn disk(capacity_bytes: u64) -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed: 11, capacity_bytes, ..SimOptions::default() })
}

fn open_with(sim: &Arc<SimDisk>, options: Options) -> seawall::Result<Database> {
    let env = Env {
        disk: Arc::new(Process::new(sim)),
        clock: Arc::new(SystemClock::default()),
        seed: 1,
        background: Background::Steps,
    };
    Database::open_in(env, "/db", options)
}

fn open(sim: &Arc<SimDisk>) -> Database {
    open_with(sim, small()).unwrap()
}

fn put(db: &Database, key: u32, value: &[u8]) -> seawall::Result<()> {
    let tree = db.create_tree("t")?;
    db.transact(|tx| tx.put(&tree, &key.to_be_bytes(), value))
}

fn get(db: &Database, key: u32) -> seawall::Result<Option<Vec<u8>>> {
    db.begin()?.get(&db.open_tree("t")?, &key.to_be_bytes())
}

#[test]
fn what_a_database_was_made_with_stays() {
    let sim = disk(1 << 30);
    open(&sim).close().unwrap();
    for (name, value) in [("page_size", "8K"), ("log_segment_size", "512K")] {
        let mut options = small();
        options.set(name, value).unwrap();
        match open_with(&sim, options) {
            Err(Error::InvalidOption { name: named, why, .. }) => {
                assert!(named == name && why.contains("made with"), "{named}: {why}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    open(&sim);
}

#[test]
fn a_pool_too_small_is_refused_before_anything_is_made() {
    let sim = disk(1 << 30);
    match open_with(&sim, small().with_page_size(32 << 10).with_pool_size(512 << 10)) {
        Err(Error::InvalidOption { name, why, .. }) => {
            assert!(name == "pool_size" && why.contains("64 pages"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(sim.seen("/db/data").is_none());
    open(&sim);
}

#[test]
fn what_is_no_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("data"), "another program's data").unwrap();
    match Database::open_with(&path, small()) {
        Err(Error::NotADatabase { why, .. }) => assert!(why.contains("control"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(path.join("data")).unwrap(), b"another program's data");
    std::fs::write(path.join("control"), vec![b'x'; 20_480]).unwrap();
    match Database::open_with(&path, small()) {
        Err(Error::NotADatabase { why, .. }) => assert!(why.contains("control file"), "{why}"),
        other => panic!("{other:?}"),
    }
    // A file in place of the directory.
    assert!(matches!(Database::open_with(path.join("data"), small()), Err(Error::Io(_))));
}

#[test]
fn a_newer_format_names_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    Database::open_with(dir.path(), small()).unwrap().close().unwrap();
    set_version(&dir.path().join("control"), 9);
    match Database::open_with(dir.path(), small()) {
        Err(error @ Error::OtherFormat { found: 9, supported: 6, .. }) => {
            assert!(error.to_string().contains("a newer one"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// Sets the format version of both slots of a control file.
fn set_version(control: &Path, version: u32) {
    let mut bytes = std::fs::read(control).unwrap();
    for slot in bytes.chunks_mut(16 << 10).filter(|slot| slot.len() >= 4096 && slot.starts_with(b"SEAWALL\n")) {
        slot[12..16].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&slot[..8]), &slot[12..4096]);
        slot[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(control, bytes).unwrap();
}

fn versions(control: &Path) -> Vec<u32> {
    let bytes = std::fs::read(control).unwrap();
    [0, 16 << 10].map(|slot| u32::from_le_bytes(bytes[slot + 12..slot + 16].try_into().unwrap())).to_vec()
}

#[test]
fn a_database_of_the_format_before_opens_and_is_of_this_format_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let db = Database::open_with(dir.path(), small()).unwrap();
    (0..500).for_each(|i| put(&db, i, b"written before").unwrap());
    db.close().unwrap();
    for older in [3, 4, 5] {
        set_version(&control, older);
        assert_eq!(versions(&control), [older, older]);
        let db = Database::open_with(dir.path(), small()).unwrap();
        assert_eq!(versions(&control), [6, 6], "an older program is refused before anything else is written");
        (400..600).for_each(|i| put(&db, i, &[7; 30_000]).unwrap());
        assert_eq!(get(&db, 399).unwrap().as_deref(), Some(&b"written before"[..]));
        assert_eq!(get(&db, 400).unwrap(), Some(vec![7; 30_000]));
        db.close().unwrap();
    }
    set_version(&control, 2);
    match Database::open_with(dir.path(), small()) {
        Err(Error::OtherFormat { found: 2, supported: 6, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_opener_is_kept_out_and_disturbs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path(), small()).unwrap();
    put(&db, 1, b"v").unwrap();
    match Database::open_with(dir.path(), small()) {
        Err(Error::Locked { path, .. }) => assert!(path.starts_with(dir.path())),
        other => panic!("{other:?}"),
    }
    put(&db, 2, b"v").unwrap();
    db.close().unwrap();
    let db = Database::open_with(dir.path(), small()).unwrap();
    assert!(get(&db, 1).unwrap().is_some() && get(&db, 2).unwrap().is_some());
}

#[test]
fn a_log_that_cannot_be_written_stops_all_commits() {
    for op in [Op::Write, Op::Sync] {
        let sim = disk(1 << 30);
        let db = open(&sim);
        put(&db, 1, b"kept").unwrap();
        sim.inject(Fault::eio().on(op).path("/db/log"));
        // The flush method determines which of the two a commit needs.
        let stopped = put(&db, 2, b"unknown");
        assert!(matches!(stopped, Err(Error::OutcomeUnknown { .. })), "{op}: {stopped:?}");
        sim.clear_faults();
        match put(&db, 3, b"never") {
            Err(Error::Poisoned { first_error }) => assert!(matches!(*first_error, Error::Io(_)), "{first_error}"),
            other => panic!("{op}: {other:?}"),
        }
        assert_eq!(get(&db, 1).unwrap().as_deref(), Some(&b"kept"[..]), "reading goes on");
        assert!(db.close().is_err());
        let db = open(&sim);
        assert_eq!(get(&db, 1).unwrap().as_deref(), Some(&b"kept"[..]));
        assert_eq!(get(&db, 3).unwrap(), None);
        put(&db, 3, b"again").unwrap();
        assert_eq!(db.check().unwrap(), []);
    }
}

#[test]
fn a_wait_for_a_lock_ends_when_the_log_has_failed() {
    let sim = disk(1 << 30);
    let env = Env {
        disk: Arc::new(Process::new(&sim)),
        clock: Arc::new(SystemClock::default()),
        seed: 1,
        background: Background::Threads,
    };
    let db = Database::open_in(env, "/db", small()).unwrap();
    put(&db, 1, b"kept").unwrap();
    let tree = db.open_tree("t").unwrap();
    let mut holder = db.begin().unwrap();
    holder.put(&tree, &1u32.to_be_bytes(), b"held").unwrap();
    let waiter = std::thread::spawn({
        let (db, tree) = (db.clone(), tree.clone());
        move || db.begin().unwrap().get_for_update(&tree, &1u32.to_be_bytes())
    });
    while db.stats().locks.waiting == 0 {
        std::thread::yield_now();
    }
    sim.inject(Fault::eio().path("/db/log"));
    assert!(matches!(put(&db, 2, b"unknown"), Err(Error::OutcomeUnknown { .. })));
    // The holder keeps its lock. The waiter would sleep for 50 s.
    let ended = waiter.join().unwrap();
    assert!(matches!(ended, Err(Error::Poisoned { .. })), "{ended:?}");
}

#[test]
fn a_page_that_cannot_be_read_is_the_readers_error() {
    let sim = disk(1 << 30);
    let db = open(&sim);
    for key in 0..200 {
        put(&db, key, &[7; 300]).unwrap();
    }
    db.close().unwrap();
    let db = open(&sim);
    db.open_tree("t").unwrap();
    sim.inject(Fault::eio().on(Op::Read).path("/db/data"));
    match get(&db, 150) {
        Err(Error::Io(error)) => assert_eq!(error.errno(), Some(5)),
        other => panic!("{other:?}"),
    }
    sim.clear_faults();
    assert!(get(&db, 150).unwrap().is_some(), "and no other row");
    put(&db, 1, b"goes on").unwrap();
}

#[test]
fn a_full_disk_refuses_more_and_keeps_what_is_there() {
    let sim = disk(1 << 30);
    let db = open(&sim);
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.put(&tree, &u32::MAX.to_be_bytes(), &vec![3; 40_000])).unwrap();
    // From now on the data file cannot grow.
    sim.inject(Fault::enospc().on(Op::Grow).path("/db/data"));
    let mut kept = 1u32;
    let refused = loop {
        let mut tx = db.begin().unwrap();
        match tx.put(&tree, &kept.to_be_bytes(), &vec![3; 40_000]).and_then(|()| tx.commit()) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        for &task in Task::ALL {
            // Growth ahead of need hits the full disk first; its failure harms no transaction.
            let _met_again = db.step_task(task).is_err();
        }
        assert!(kept < 5000, "the disk never fills");
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(refused.to_string().contains("Free space"), "{refused}");
    assert!(kept > 10, "{kept}: {refused}");
    assert_eq!(db.begin().unwrap().iter(&tree).count() as u32, kept, "what was refused is rolled back");
    assert!(matches!(db.grow(1 << 30), Err(Error::NoSpace { .. })));
    assert_eq!(db.check().unwrap(), []);
    drop(tree);
    db.close().unwrap();
    let db = open(&sim);
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.begin().unwrap().iter(&tree).count() as u32, kept, "it opens on the full disk");
    db.transact(|tx| tx.delete(&tree, &0u32.to_be_bytes())).unwrap();
}

#[test]
fn a_flipped_bit_is_named_by_file_and_page() {
    let sim = disk(1 << 30);
    let db = open(&sim);
    put(&db, 1, b"a value to be looked for").unwrap();
    db.close().unwrap();
    let data = sim.seen("/db/data").unwrap();
    let at = data.windows(24).position(|w| w == b"a value to be looked for").unwrap() as u64;
    sim.flip_bit("/db/data", at, 3).unwrap();
    let db = open(&sim);
    match get(&db, 1) {
        Err(error @ Error::Corrupt(_)) => {
            let said = error.to_string();
            assert!(said.contains("/db/data") && said.contains(&format!("page {}", at / 4096)), "{said}");
        }
        other => panic!("{other:?}"),
    }
    put(&db, 2, b"v").unwrap_err();
    let other = db.create_tree("other").unwrap();
    db.transact(|tx| tx.put(&other, b"k", b"v")).unwrap();
}

#[test]
fn damaged_log_is_told_from_its_end() {
    let sim = disk(1 << 30);
    let process = Arc::new(Process::new(&sim));
    let env =
        Env { disk: process.clone(), clock: Arc::new(SystemClock::default()), seed: 1, background: Background::Steps };
    let db = Database::open_in(env, "/db", small()).unwrap();
    put(&db, 1, b"a value to be looked for").unwrap();
    put(&db, 2, b"behind it").unwrap();
    process.crash_by(SimDisk::process_crash);
    drop(db);
    let names = seawall_io::Disk::list(&*sim, "/db/log".as_ref()).unwrap();
    let (path, at) = names
        .into_iter()
        .find_map(|path| {
            let at = sim.seen(&path)?.windows(24).position(|w| w == b"a value to be looked for")?;
            Some((path, at as u64))
        })
        .expect("the log has it");
    sim.flip_bit(path, at, 0).unwrap();
    match open_with(&sim, small()) {
        Err(error @ Error::Corrupt(_)) => assert!(error.to_string().contains("log"), "{error}"),
        other => panic!("{other:?}"),
    }
}
