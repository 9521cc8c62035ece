//! Creating and opening a database, by several processes at once and with damage.

use seawall::{Background, BackupOptions, Database, Durability, Env, Error, FlushChoice, Options, Task};
use seawall_io::{Create, Disk as _, FlushMethod, Op, OpenHow, WriteHow};
use seawall_sim::{Fault, FaultKind, Process, SimDisk, SimOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn small() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(disk: &Arc<Process>) -> seawall::Result<Database> {
    open_with(disk, small())
}

fn env(disk: &Arc<Process>, seed: u64) -> Env {
    let clock = Arc::new(seawall_io::SystemClock::default());
    Env { disk: disk.clone(), clock, seed, background: Background::Steps }
}

fn open_with(disk: &Arc<Process>, options: Options) -> seawall::Result<Database> {
    Database::open_in(env(disk, 1), "/db", options)
}

#[test]
fn of_several_that_make_one_database_one_has_it() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let opened: Vec<_> = std::thread::scope(|scope| {
            let openers: Vec<_> = (0..4)
                .map(|i: u8| {
                    let path = dir.path();
                    scope.spawn(move || {
                        let db = Database::open_with(path, small())?;
                        let tree = db.create_tree("t")?;
                        db.transact(|tx| tx.put(&tree, &[i], b"here"))?;
                        db.close()?;
                        Ok::<u8, Error>(i)
                    })
                })
                .collect();
            openers.into_iter().map(|opener| opener.join().unwrap()).collect()
        });
        for refused in opened.iter().filter_map(|o| o.as_ref().err()) {
            assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        }
        let db = Database::open_with(dir.path(), small()).unwrap();
        for i in opened.iter().flatten() {
            let tree = db.open_tree("t").unwrap();
            assert!(db.begin().unwrap().contains(&tree, &[*i]).unwrap(), "opener {i} has committed");
        }
        assert!(!dir.path().join("creating").exists());
    }
}

#[test]
fn a_crash_at_any_operation_of_the_making_leaves_a_place_where_it_can_be_made() {
    for operations in (0..400).step_by(3) {
        let sim = SimDisk::new(SimOptions { seed: operations, ..SimOptions::default() });
        let process = Arc::new(Process::new(&sim));
        sim.inject(seawall_sim::Fault::eio().at_op(operations));
        let first = open(&process);
        sim.clear_faults();
        let made = first.is_ok();
        drop(first);
        process.crash_by(SimDisk::power_cut);
        let db = open(&Arc::new(Process::new(&sim))).unwrap_or_else(|e| panic!("operation {operations}: {e}"));
        db.create_tree("t").unwrap();
        drop(db);
        if made && operations > 200 {
            return;
        }
    }
}

#[test]
fn one_rotten_control_slot_loses_no_commit() {
    for slot in 0..2u64 {
        let sim = SimDisk::new(SimOptions { seed: 3, ..SimOptions::default() });
        for round in 0..2u8 {
            let process = Arc::new(Process::new(&sim));
            let db = open(&process).unwrap();
            let tree = db.create_tree("t").unwrap();
            db.transact(|tx| tx.put(&tree, &[round], b"kept")).unwrap();
            process.crash_by(SimDisk::power_cut);
        }
        sim.flip_bit("/db/control", slot * (16 << 10) + 100, 3).unwrap();
        let db = open(&Arc::new(Process::new(&sim))).unwrap();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 2, "slot {slot}");
    }
}

#[test]
fn a_commit_that_is_only_polled_is_done_soon() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path(), small()).unwrap();
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"k", b"v").unwrap();
    let mut commit = tx.commit_start().unwrap();
    let begun = Instant::now();
    while commit.poll().transpose().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "polling moves the log");
        std::thread::yield_now();
    }
    assert!(db.begin().unwrap().contains(&tree, b"k").unwrap());
    // No other call asked for the write.
    let sim = SimDisk::new(SimOptions::default());
    let db = open(&Arc::new(Process::new(&sim))).unwrap();
    let tree = db.create_tree("t").unwrap();
    for level in [Durability::Flushed, Durability::Written] {
        let mut tx = db.begin_with(seawall::TxOptions { durability: Some(level), ..Default::default() }).unwrap();
        tx.put(&tree, b"k", b"v").unwrap();
        let mut commit = tx.commit_start().unwrap();
        assert!(commit.poll().transpose().unwrap().is_some(), "{level:?}: one poll is enough without other writers");
    }
    db.step_task(Task::Log).unwrap();
}

/// The marker of an interrupted creation may name a directory that is gone, or has become another database's.
#[test]
fn an_interrupted_creation_is_cleared_without_touching_another_database() {
    let sim = SimDisk::new(SimOptions::default());
    let process = Arc::new(Process::new(&sim));
    let other = Database::open_in(env(&process, 1), "/other", small()).unwrap();
    let tree = other.create_tree("t").unwrap();
    other.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
    other.close().unwrap();
    for (made, named) in [("/first", "/other"), ("/second", "/gone")] {
        let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
        let marker = process.open(&Path::new(made).join("creating"), how).unwrap();
        process.write_at(&marker, 0, &[std::io::IoSlice::new(named.as_bytes())], WriteHow::default()).unwrap();
        drop(marker);
        Database::open_in(env(&process, 1), made, small()).unwrap().close().unwrap();
    }
    let other = Database::open_in(env(&process, 1), "/other", small()).unwrap();
    let tree = other.open_tree("t").unwrap();
    assert_eq!(other.begin().unwrap().get(&tree, b"k").unwrap().unwrap(), b"v");
}

/// Arguments that are swapped or mistyped name the files of another database: nothing of it is removed, not even by
/// the tries after the one that was refused.
#[test]
fn a_creation_removes_nothing_of_another_database() {
    let sim = SimDisk::new(SimOptions::default());
    let process = Arc::new(Process::new(&sim));
    let open =
        |dir: &str, log_dir: &str| Database::open_in(env(&process, 1), dir, small().with_log_dir(log_dir.into()));
    let make = |dir: &str, log_dir: &str| {
        let db = open(dir, log_dir).unwrap();
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
        drop(tree);
        db.close().unwrap();
    };
    make("/data", "/log");
    make("/whole", "/whole");
    // The directories swapped.
    let refused = |dir: &str, log_dir: &str| {
        let opened = open(dir, log_dir).map(drop);
        assert!(matches!(opened, Err(Error::NotADatabase { .. })), "{dir} with its log in {log_dir}: {opened:?}");
    };
    refused("/log", "/data");
    refused("/log", "/nowhere");
    // A creation that failed once, then with the directory of another log, then again with its own.
    sim.inject(Fault::enospc().on(Op::Grow).path("/new/data"));
    assert!(matches!(open("/new", "/new-log"), Err(Error::NoSpace { .. })));
    sim.clear_faults();
    for foreign in ["/log", "/whole", "/data"] {
        refused("/new", foreign);
        refused("/new", foreign);
        refused("/another", foreign);
    }
    make("/new", "/new-log");
    make("/another", "/another");
    for (dir, log_dir) in [("/data", "/log"), ("/whole", "/whole"), ("/new", "/new-log")] {
        let db = open(dir, log_dir).unwrap();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.get(&tree, b"k").unwrap().unwrap(), b"v", "{dir}");
    }
}

/// A restored database has its log beside its data, whatever the source's log directory was: with that directory, which
/// may still have the source's log, it is refused, and nothing is written.
#[test]
fn a_log_beside_the_data_is_not_passed_over_for_another_directory() {
    let sim = SimDisk::new(SimOptions::default());
    let process = Arc::new(Process::new(&sim));
    let open =
        |dir: &str, log_dir: &str| Database::open_in(env(&process, 1), dir, small().with_log_dir(log_dir.into()));
    let count = |db: &Database| db.begin().unwrap().iter(&db.open_tree("t").unwrap()).count();
    let db = open("/db", "/log").unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.put(&tree, b"1", b"v")).unwrap();
    db.backup_to("/backup", &BackupOptions::default()).unwrap();
    db.transact(|tx| tx.put(&tree, b"2", b"v")).unwrap();
    drop(tree);
    drop(db);
    Database::restore_in(&env(&process, 2), &["/backup"], "/copy").unwrap();
    for _ in 0..2 {
        match open("/copy", "/log") {
            Err(Error::InvalidOption { name, why, .. }) => {
                assert!(name == "log_dir" && why.contains("/copy/redo."), "{name}: {why}");
            }
            other => panic!("{other:?}"),
        }
    }
    for same in ["/copy", "", "."] {
        assert_eq!(count(&open("/copy", same).unwrap()), 1, "{same}");
    }
    assert_eq!(count(&open("/db", "/log").unwrap()), 2);
}

/// Two creations with one log directory end, the second at any operation: the next try of the first does not take the
/// second's log for its own.
#[test]
fn of_two_creations_that_ended_the_first_removes_no_log_of_the_second() {
    let mut complete = 0;
    for operations in 1..400 {
        let sim = SimDisk::new(SimOptions { seed: operations, ..SimOptions::default() });
        let open = |process: &Arc<Process>, dir: &str, seed| {
            Database::open_in(env(process, seed), dir, small().with_log_dir("/log".into()))
        };
        let first = Arc::new(Process::new(&sim));
        sim.inject(Fault::eio().on(Op::Open).path("/log/redo.0000000000000000"));
        assert!(open(&first, "/first", 1).is_err());
        sim.clear_faults();
        first.crash_by(SimDisk::process_crash);
        let second = Arc::new(Process::new(&sim));
        assert!(second.list(Path::new("/log")).unwrap().iter().any(|name| name.ends_with("creating-log")));
        sim.inject(Fault::eio().nth(operations));
        let made = open(&second, "/second", 2).map(drop).is_ok();
        sim.clear_faults();
        second.crash_by(SimDisk::process_crash);
        let process = Arc::new(Process::new(&sim));
        let has_log = process.list(Path::new("/log")).unwrap().iter().any(|name| !name.ends_with("creating-log"));
        let again = open(&process, "/first", 3).map(drop);
        if has_log {
            assert!(matches!(again, Err(Error::NotADatabase { .. })), "operation {operations}: {again:?}");
            let opened = open(&process, "/second", 4);
            opened.unwrap_or_else(|e| panic!("operation {operations}: {e}")).close().unwrap();
            complete += 1;
        }
        if made && operations >= 40 {
            assert!(complete > 5, "{complete} of {operations}");
            return;
        }
    }
}

/// A creation ends at any operation, and its directory is moved: the next try clears what there is.
#[test]
fn a_creation_that_ended_goes_on_in_a_directory_that_was_moved() {
    let mut moved = 0;
    for operations in 0..400 {
        let sim = SimDisk::new(SimOptions { seed: operations, ..SimOptions::default() });
        let ended = Arc::new(Process::new(&sim));
        sim.inject(Fault::eio().at_op(operations));
        let made = open(&ended).is_ok();
        sim.clear_faults();
        if made && operations >= 40 {
            assert!(moved > 20, "{moved} of {operations}");
            return;
        }
        ended.crash_by(SimDisk::process_crash);
        let process = Arc::new(Process::new(&sim));
        let files = process.list(Path::new("/db")).unwrap_or_default();
        moved += usize::from(files.len() > 2);
        for file in files {
            process.rename(&file, &Path::new("/moved").join(file.file_name().unwrap())).unwrap();
        }
        let db = Database::open_in(env(&process, 2), "/moved", small())
            .unwrap_or_else(|e| panic!("operation {operations}: {e}"));
        db.close().unwrap();
    }
}

/// A creation ends at any operation; another database is then made with its log in the same directory. The next try
/// of the first one must not take that log for its own.
#[test]
fn a_creation_that_ended_anywhere_removes_no_later_log_in_its_log_directory() {
    for (power_cut, log_dir) in [(false, "/log"), (true, "/log"), (false, "/first")] {
        let end = if power_cut { SimDisk::power_cut } else { SimDisk::process_crash };
        let (mut cleared, mut shared) = (0, 0);
        for operations in 0..400 {
            let sim = SimDisk::new(SimOptions { seed: operations, ..SimOptions::default() });
            let open = |process: &Arc<Process>, dir: &str, seed| {
                Database::open_in(env(process, seed), dir, small().with_log_dir(log_dir.into()))
            };
            let ended = Arc::new(Process::new(&sim));
            sim.inject(Fault::eio().at_op(operations));
            let made = open(&ended, "/first", 1).map(drop).is_ok();
            sim.clear_faults();
            if made {
                if operations < 40 {
                    continue;
                }
                assert!(cleared > 10 && shared > 2, "{log_dir}: {cleared} {shared} of {operations}");
                break;
            }
            ended.crash_by(end);
            let process = Arc::new(Process::new(&sim));
            let other = open(&process, "/other", 2).map(|db| {
                let tree = db.create_tree("t").unwrap();
                db.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
                drop(tree);
                db.close().unwrap();
            });
            // The first one's log, or other files, may be there by then.
            if let Err(error) = other {
                assert!(matches!(error, Error::NotADatabase { .. }), "operation {operations}: {error}");
                open(&process, "/first", 3).unwrap_or_else(|e| panic!("operation {operations}: {e}")).close().unwrap();
                cleared += 1;
                continue;
            }
            shared += 1;
            let again = open(&process, "/first", 3).map(drop);
            assert!(matches!(again, Err(Error::NotADatabase { .. })), "operation {operations}: {again:?}");
            let other = open(&process, "/other", 4).unwrap_or_else(|e| panic!("operation {operations}: {e}"));
            let tree = other.open_tree("t").unwrap();
            assert_eq!(other.get(&tree, b"k").unwrap().unwrap(), b"v");
            let names = process.list(Path::new(log_dir)).unwrap();
            assert!(names.iter().all(|name| !name.ends_with("creating-log")), "{names:?}");
        }
    }
}

/// A file or directory called `backup` does not make a database a backup.
#[test]
fn a_database_may_have_something_called_backup_in_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path(), small()).unwrap();
    db.backup_to(dir.path().join("backup"), &BackupOptions::default()).unwrap();
    db.close().unwrap();
    Database::open_with(dir.path(), small()).unwrap().close().unwrap();
    Database::open_read_only(dir.path()).unwrap().close().unwrap();
    assert!(matches!(Database::open_with(dir.path().join("backup"), small()), Err(Error::IsABackup { .. })));
    std::fs::remove_dir_all(dir.path().join("backup")).unwrap();
    std::fs::write(dir.path().join("backup"), "a list of things to do").unwrap();
    Database::open_with(dir.path(), small()).unwrap().close().unwrap();
}

/// The kernel writes a cached page while it may be changed again: no sector size makes that write atomic.
#[test]
fn pages_that_go_through_the_page_cache_are_written_twice() {
    use seawall::TornPages::{Atomic, Auto, Doublewrite};
    let buffered =
        |torn| small().with_data_flush_method(FlushChoice::Method(FlushMethod::Fsync)).with_torn_page_protection(torn);
    let open = |refuses_direct_io, options| {
        let sim = SimDisk::new(SimOptions { physical_sector_bytes: 4096, ..SimOptions::default() });
        if refuses_direct_io {
            let einval = FaultKind::Errno(22);
            sim.inject(Fault::new(einval).on(Op::Open).path("/db/data").once());
        }
        open_with(&Arc::new(Process::new(&sim)), options)
    };
    let refused = |opened: Result<Database, Error>| match opened {
        Err(Error::InvalidOption { name, why, .. }) => {
            assert!(name == "torn_page_protection" && why.contains("page cache"), "{name}: {why}");
        }
        opened => panic!("{opened:?}"),
    };
    assert_eq!(open(false, buffered(Auto)).unwrap().options().torn_page_protection(), Doublewrite);
    refused(open(false, buffered(Atomic)));
    // Where direct I/O was asked for and does not work.
    refused(open(true, small().with_torn_page_protection(Auto)));
}

#[test]
fn pages_are_written_once_where_a_power_cut_leaves_them_whole() {
    use seawall::TornPages::{Atomic, Auto, Doublewrite};
    const UNPROVEN: &str = "a power cut leaves writes whole of at most 512 bytes, and a page has 4096; the largest atomic \
                            write (RWF_ATOMIC) has 2048 bytes, and a page has 4096: use doublewrite";
    for (physical, atomic, wanted, used) in [
        (4096, 0, Atomic, Ok(Atomic)),
        (4096, 0, Auto, Ok(Atomic)),
        (4096, 0, Doublewrite, Ok(Doublewrite)),
        (512, 0, Auto, Ok(Doublewrite)),
        (512, 2048, Atomic, Err(UNPROVEN)),
        (512, 16384, Atomic, Ok(Atomic)),
        (512, 16384, Auto, Ok(Atomic)),
        (512, 16384, Doublewrite, Ok(Doublewrite)),
    ] {
        let sim = SimDisk::new(SimOptions {
            physical_sector_bytes: physical,
            atomic_write_bytes: atomic,
            ..SimOptions::default()
        });
        let open = || open_with(&Arc::new(Process::new(&sim)), small().with_torn_page_protection(wanted));
        // Made, then opened again.
        for _ in 0..2 {
            let db = match (open(), used) {
                (Ok(db), Ok(_)) => db,
                (Err(Error::InvalidOption { name, why, .. }), Err(expected)) => {
                    assert_eq!((&*name, &*why), ("torn_page_protection", expected));
                    continue;
                }
                (opened, _) => panic!("{wanted:?} where {physical} or {atomic} bytes are written whole: {opened:?}"),
            };
            assert_eq!(Ok(db.options().torn_page_protection()), used);
            let warned = db.options().warnings(&seawall::MemoryLimit::unknown());
            assert_eq!(warned.iter().any(|warning| warning.option == "torn_page_protection"), used == Ok(Atomic));
            let tree = db.open_tree("t").or_else(|_| db.create_tree("t")).unwrap();
            db.transact(|tx| tx.put_rows(&tree, (0..500u32).map(|i| (i.to_be_bytes(), [7; 100])))).unwrap();
            let before = db.stats().pool;
            while db.step_task(Task::Clean).unwrap() {}
            db.checkpoint().unwrap();
            let after = db.stats().pool;
            assert!(after.pages_written > before.pages_written, "{wanted:?}");
            assert_eq!(after.doublewrite_pages > before.doublewrite_pages, used == Ok(Doublewrite));
            db.close().unwrap();
        }
    }
}

/// `mv db db.old` under a running process, and a new database at the old path: each keeps what it commits.
#[test]
fn a_directory_that_is_moved_while_it_is_open_takes_its_log_along() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, moved) = (dir.path().join("db"), dir.path().join("db.old"));
    let write = |db: &Database, rows: std::ops::Range<u32>| {
        let tree = db.create_tree("t").or_else(|_| db.open_tree("t")).unwrap();
        for row in rows {
            let commit = |tx: &mut seawall::Transaction| tx.put(&tree, &row.to_be_bytes(), &[7; 2000]);
            db.transact(commit).unwrap();
        }
    };
    let first = Database::open_with(&path, small()).unwrap();
    write(&first, 0..300);
    std::fs::rename(&path, &moved).unwrap();
    let second = Database::open_with(&path, small()).unwrap();
    for rows in (0..3000u32).step_by(300) {
        write(&second, rows..rows + 300);
        write(&first, rows + 300..rows + 600);
    }
    first.close().unwrap();
    second.close().unwrap();
    for (path, rows) in [(&moved, 3300), (&path, 3000)] {
        let db = Database::open_with(path, small()).unwrap();
        assert_eq!(db.begin().unwrap().iter(&db.open_tree("t").unwrap()).count(), rows);
        assert_eq!(db.check().unwrap(), []);
    }
}
