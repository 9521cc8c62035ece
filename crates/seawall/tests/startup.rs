//! What an opening does with missing, truncated or unwritable files: the rows of docs/recovery.md.

use seawall::{Background, Corruption, Database, Env, Error, Options, Task};
use seawall_io::{Create, Disk, Op, OpenHow, SyncHow};
use seawall_sim::{Fault, FaultKind, Process, SimDisk, SimOptions};
use std::sync::Arc;

const DIR: &str = "/db";
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EROFS: i32 = 30;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(disk: &Arc<Process>, sim: &Arc<SimDisk>) -> seawall::Result<Database> {
    let clock = sim.clone();
    let env = Env { disk: disk.clone(), clock, seed: 1, background: Background::Steps };
    Database::open_in(env, DIR, options())
}

fn path(name: &str) -> std::path::PathBuf {
    std::path::Path::new(DIR).join(name)
}

/// A database with 200 rows, closed cleanly or not; its disk.
fn made(closed: bool) -> Arc<SimDisk> {
    let sim = SimDisk::new(SimOptions::default());
    let process = Arc::new(Process::new(&sim));
    let db = open(&process, &sim).unwrap();
    let tree = db.create_tree("t").unwrap();
    for i in 0..200u32 {
        db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), &[i as u8; 1500])).unwrap();
        // A little cleaning at a time: each checkpoint is below the position that is durable by then.
        if i % 10 == 9 {
            db.step_task(Task::Clean).unwrap();
            db.step_task(Task::Checkpoint).unwrap();
        }
    }
    if closed {
        db.close().unwrap();
    } else {
        process.crash_by(SimDisk::power_cut);
    }
    sim
}

fn rows(sim: &Arc<SimDisk>) -> seawall::Result<usize> {
    let db = open(&Arc::new(Process::new(sim)), sim)?;
    let tree = db.open_tree("t")?;
    let tx = db.begin()?;
    let rows = tx.iter(&tree).collect::<seawall::Result<Vec<_>>>()?.len();
    drop(tx);
    assert!(db.check()?.is_empty());
    Ok(rows)
}

fn remove(sim: &Arc<SimDisk>, name: &str) {
    sim.remove(&path(name)).unwrap();
    sim.sync_dir(DIR.as_ref()).unwrap();
}

fn segments(sim: &Arc<SimDisk>) -> Vec<std::path::PathBuf> {
    let names = sim.list(DIR.as_ref()).unwrap();
    names.into_iter().filter(|name| name.to_string_lossy().contains("redo.")).collect()
}

/// All bytes of all files: a refused opening changes nothing.
fn contents(sim: &Arc<SimDisk>) -> Vec<(std::path::PathBuf, Option<Vec<u8>>)> {
    let names = sim.list(DIR.as_ref()).unwrap();
    names.into_iter().map(|name| (name.clone(), sim.seen(&name))).collect()
}

#[test]
fn a_log_that_ends_before_the_checkpoint_of_an_orderly_end_is_not_needed() {
    let sim = made(true);
    // Overwrites the start of the last written segment with zeroes.
    let written = segments(&sim).into_iter().rfind(|name| sim.seen(name).unwrap().iter().any(|byte| *byte != 0));
    let file = sim.open(&written.unwrap(), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    sim.write_at(&file, 0, &[std::io::IoSlice::new(&[0; 64 << 10])], seawall_io::WriteHow::default()).unwrap();
    sim.sync(&file, SyncHow::All).unwrap();
    drop(file);
    assert_eq!(rows(&sim).unwrap(), 200, "all of it is in the data file");
}

#[test]
fn a_log_that_ends_before_what_was_durable_at_the_checkpoint_is_named() {
    let sim = made(false);
    // Overwrites the start of every segment with zeroes: the checkpoint proves that there was more log.
    for name in segments(&sim) {
        let file = sim.open(&name, OpenHow { write: true, ..OpenHow::default() }).unwrap();
        sim.write_at(&file, 0, &[std::io::IoSlice::new(&[0; 64 << 10])], seawall_io::WriteHow::default()).unwrap();
        sim.sync(&file, SyncHow::All).unwrap();
    }
    let refused = rows(&sim).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt(c) if matches!(**c, Corruption::Log { .. })), "{refused}");
}

#[test]
fn missing_data_is_named_and_nothing_is_made() {
    for closed in [false, true] {
        let sim = made(closed);
        remove(&sim, "data");
        let before = segments(&sim);
        let refused = rows(&sim).unwrap_err();
        let Error::Io(e) = &refused else { panic!("{refused}") };
        assert!(e.errno() == Some(ENOENT) && e.path == path("data"), "{refused}");
        assert!(sim.seen(path("data")).is_none() && segments(&sim).starts_with(&before));
    }
}

#[test]
fn data_that_is_too_short_is_named_when_the_page_is_needed() {
    let sim = made(true);
    let file = sim.open(&path("data"), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let whole = sim.seen(path("data")).unwrap();
    // Cut in the middle of a page, within the used part.
    sim.set_len(&file, 20 * 4096 + 100).unwrap();
    sim.sync(&file, SyncHow::All).unwrap();
    let refused = rows(&sim).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt(_) | Error::Io(_)), "{refused}");
    assert!(refused.to_string().contains("/db/data"), "{refused}");
    // After it is restored, everything is there.
    sim.write_at(&file, 0, &[std::io::IoSlice::new(&whole)], seawall_io::WriteHow::default()).unwrap();
    sim.sync(&file, SyncHow::All).unwrap();
    drop(file);
    assert_eq!(rows(&sim).unwrap(), 200);
}

#[test]
fn a_missing_doublewrite_file_is_made_anew() {
    for closed in [false, true] {
        let sim = made(closed);
        let len = sim.seen(path("doublewrite")).unwrap().len();
        remove(&sim, "doublewrite");
        assert_eq!(rows(&sim).unwrap(), 200);
        assert_eq!(sim.seen(path("doublewrite")).unwrap().len(), len);
        // Its name is durable.
        sim.power_cut();
        assert!(sim.seen(path("doublewrite")).is_some());
        assert_eq!(rows(&sim).unwrap(), 200);
    }
}

#[test]
fn a_missing_control_file_is_named_and_nothing_is_touched() {
    for without_data in [false, true] {
        let sim = made(true);
        remove(&sim, "control");
        if without_data {
            remove(&sim, "data");
        }
        let before = contents(&sim);
        let refused = rows(&sim).unwrap_err();
        assert!(matches!(refused, Error::NotADatabase { .. }), "{refused}");
        assert!(contents(&sim) == before, "{refused}");
    }
}

#[test]
fn files_that_may_not_be_written_are_named_and_left_alone() {
    for errno in [EROFS, EACCES] {
        for name in ["control", "data", "doublewrite", "redo."] {
            let sim = made(true);
            let file =
                sim.list(DIR.as_ref()).unwrap().into_iter().find(|p| p.to_string_lossy().contains(name)).unwrap();
            let before = contents(&sim);
            sim.inject(Fault::new(FaultKind::Errno(errno)).on(Op::Open).exactly(&file));
            let refused = rows(&sim).unwrap_err();
            let Error::Io(e) = &refused else { panic!("{refused}") };
            assert!(e.errno() == Some(errno) && e.path == file, "{refused}");
            if name == "control" {
                assert!(contents(&sim) == before, "nothing was written");
            }
            sim.clear_faults();
            assert_eq!(rows(&sim).unwrap(), 200, "{name}");
        }
    }
    // A file system that also refuses new files.
    let sim = SimDisk::new(SimOptions::default());
    sim.inject(Fault::new(FaultKind::Errno(EROFS)).on(Op::Open));
    let refused = open(&Arc::new(Process::new(&sim)), &sim).unwrap_err();
    assert!(matches!(&refused, Error::Io(e) if e.errno() == Some(EROFS)), "{refused}");
    sim.clear_faults();
    let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    assert!(sim.open(&path("control"), how).is_ok(), "nothing was made");
}
