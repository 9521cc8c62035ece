//! Openings after crashes at chosen moments, on disks with unreadable bytes.
//!
//! Each test is a defect found by a seed of `tests/crash.rs`, a run on a real file system or a review.

mod support {
    pub(crate) mod dying_process;
    pub(crate) mod unreadable;
}

use seawall::{Background, Corruption, DamagedPages, Database, Durability, Env, Error, Options, Task, TxOptions, Xid};
use seawall_io::{Clock, Create, Disk, Handle, Op, OpenHow, SystemClock, WriteHow};
use seawall_sim::{Fault, Process, SimDisk, SimOptions};
use std::io::IoSlice;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::dying_process::{DyingProcess, End};
use support::unreadable::Unreadable;

const DIR: &str = "/db";
const SLOT_STRIDE: u64 = 16 << 10;
const SEGMENT: u64 = 64 << 10;

fn small() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(SEGMENT)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
        .with_max_checkpoint_age_percent(25)
        .with_max_dirty_percent(45)
}

fn try_open(sim: &Arc<SimDisk>, disk: Arc<dyn Disk>, options: Options) -> seawall::Result<Database> {
    let env = Env { disk, clock: sim.clone(), seed: 1, background: Background::Steps };
    Database::open_in(env, DIR, options)
}

fn sim(seed: u64) -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed, trace_entries_max: 100, ..SimOptions::default() })
}

/// Row `i` and its value.
fn row(i: usize) -> ([u8; 2], Vec<u8>) {
    ((i as u16).to_be_bytes(), vec![i as u8; 50 + (i * 397) % 3000])
}

fn put(db: &Database, i: usize, durability: Durability) {
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin_with(TxOptions { durability: Some(durability), ..TxOptions::default() }).unwrap();
    let (key, value) = row(i);
    tx.put(&tree, &key, &value).unwrap();
    tx.commit().unwrap();
}

fn assert_rows(db: &Database, rows: usize, about: &str) {
    let tree = db.open_tree("t").unwrap();
    let tx = db.begin().unwrap();
    for i in 0..rows {
        let (key, value) = row(i);
        assert!(tx.get(&tree, &key).unwrap().is_some_and(|found| *found == *value), "{about}: row {i} of {rows}");
    }
    drop(tx);
    assert_eq!(db.check().unwrap(), [], "{about}");
}

/// A database with this many flushed rows that lost power; background steps ran between the rows.
fn crashed_with(rows: usize, tasks: &[Task]) -> Arc<SimDisk> {
    let sim = sim(9);
    let process = Arc::new(Process::new(&sim));
    let db = try_open(&sim, process.clone(), small()).unwrap();
    for i in 0..rows {
        put(&db, i, Durability::Flushed);
        if i % 10 == 5 {
            for &task in tasks {
                db.step_task(task).unwrap();
            }
        }
    }
    process.crash_by(SimDisk::power_cut);
    sim
}

/// Trap 23: a group is cut where its segment ends, so that a flush ends inside an entry. A checkpoint at that
/// moment took the durable position for the log's proven end, and a crash that lost the rest of the entry
/// made an intact log look damaged.
#[test]
fn a_flush_that_ends_inside_an_entry_is_no_end_of_the_log() {
    let (mut cuts, mut shorter) = (0, 0);
    for seed in 0..2 {
        let sim = sim(seed);
        let process = Arc::new(Process::new(&sim));
        let options = small().with_flush_interval(Duration::from_millis(10));
        let db = try_open(&sim, process, options.clone()).unwrap();
        let tree = db.create_tree("t").unwrap();
        for step in 0..250u64 {
            let mut tx =
                db.begin_with(TxOptions { durability: Some(Durability::Deferred), ..TxOptions::default() }).unwrap();
            let len = (seed * 7919 + step * 2741) % 6000;
            tx.put(&tree, &(step % 40).to_be_bytes(), &vec![step as u8; len as usize]).unwrap();
            tx.commit().unwrap();
            sim.advance(Duration::from_micros(1 + (seed * 31 + step * 613) % 4000));
            db.step_task(Task::Log).unwrap();
            db.step_task(Task::Checkpoint).unwrap();
            let log = db.stats().log;
            if log.durable_lsn % SEGMENT != 0 || log.durable_lsn == log.head_lsn {
                continue;
            }
            cuts += 1;
            for fork in 0..6 {
                let crashed = sim.fork(fork);
                crashed.power_cut();
                let db = try_open(&crashed, Arc::new(Process::new(&crashed)), options.clone())
                    .unwrap_or_else(|e| panic!("seed {seed}, step {step}, fork {fork}: {e}"));
                shorter += u64::from(db.stats().log.head_lsn < log.durable_lsn);
            }
        }
    }
    assert!(cuts > 5 && shorter > 3, "{cuts} cuts inside an entry, and {shorter} ends before one");
}

/// The creating process is killed when it has written the control block but not flushed it. The next process
/// reads the block, takes the database for complete and removes the marker. Then the power fails: the block
/// is gone, and the marker that would have shown it is gone too.
#[test]
fn a_making_that_is_killed_and_then_loses_power_leaves_a_place_where_it_can_be_made() {
    let mut removed = 0;
    for killed_at in 0..90 {
        let killed = sim(killed_at);
        let maker = DyingProcess::new(&killed, End::Killed, Some(killed_at));
        assert!(maker.how() == End::Killed && !maker.is_dead());
        if try_open(&killed, maker.clone(), small()).is_ok() {
            break;
        }
        for cut_at in (killed_at % 2..14).step_by(2) {
            let sim = killed.fork(cut_at);
            let second = DyingProcess::new(&sim, End::PowerCut, Some(cut_at));
            drop(try_open(&sim, second.clone(), small()));
            removed += u64::from(!sim.list(DIR.as_ref()).unwrap().contains(&PathBuf::from("/db/creating")));
            second.dies_now();
            let db = try_open(&sim, Arc::new(Process::new(&sim)), small())
                .unwrap_or_else(|e| panic!("killed at {killed_at}, power cut at {cut_at}: {e}"));
            put(&db, 0, Durability::Flushed);
        }
    }
    assert!(removed > 0);
}

/// The same block, later in a database's life: whichever slot was read, no crash on the way to the next
/// incarnation loses both.
#[test]
fn a_control_block_that_was_not_flushed_is_made_durable_before_the_other_slot_is_written() {
    for killed_at in (0..40).step_by(3) {
        let first = crashed_with(12, &[Task::Clean]);
        let second = DyingProcess::new(&first, End::Killed, Some(15 + killed_at));
        if let Ok(db) = try_open(&first, second.clone(), small()) {
            drop(db.checkpoint());
        }
        second.dies_now();
        for cut_at in (killed_at % 2..12).step_by(2) {
            let sim = first.fork(cut_at);
            let third = DyingProcess::new(&sim, End::PowerCut, Some(cut_at));
            drop(try_open(&sim, third.clone(), small()));
            third.dies_now();
            let about = format!("killed at {killed_at}, power cut at {cut_at}");
            let db = try_open(&sim, Arc::new(Process::new(&sim)), small()).unwrap_or_else(|e| panic!("{about}: {e}"));
            assert_rows(&db, 12, &about);
        }
    }
}

/// The log cannot be written while a prepared transaction is rolled back: its durable state is unknown, and
/// the answer says so.
#[test]
fn a_rollback_of_a_prepared_transaction_that_cannot_be_logged_has_an_unknown_outcome() {
    let (mut gone, mut there) = (0, 0);
    for seed in 0..40 {
        let sim = sim(seed);
        let process = Arc::new(Process::new(&sim));
        let db = try_open(&sim, process.clone(), small()).unwrap();
        put(&db, 0, Durability::Flushed);
        let tree = db.open_tree("t").unwrap();
        let mut tx = db.begin().unwrap();
        for i in 1..5 {
            tx.put(&tree, &row(i).0, &row(i).1).unwrap();
        }
        tx.prepare(&Xid(b"x".to_vec())).unwrap();
        sim.inject(Fault::eio().on([Op::Write, Op::Sync][seed as usize % 2]));
        let error = db.rollback_prepared(&Xid(b"x".to_vec())).unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "seed {seed}: {error}");
        sim.clear_faults();
        process.crash_by(SimDisk::power_cut);
        drop(db);
        let db = try_open(&sim, Arc::new(Process::new(&sim)), small()).unwrap();
        match db.prepared().pop() {
            Some(xid) => {
                there += 1;
                db.rollback_prepared(&xid).unwrap();
            }
            None => gone += 1,
        }
        while db.step().unwrap() {}
        assert_rows(&db, 1, "after the rollback");
        assert_eq!(db.begin().unwrap().iter(&db.open_tree("t").unwrap()).count(), 1);
    }
    assert!(gone > 0 && there > 0, "{gone} were rolled back, {there} were not");
}

/// Trap 26: some drives answer EIO for a sector whose write was cut.
#[test]
fn a_control_slot_that_cannot_be_read_is_a_torn_one() {
    let control = || PathBuf::from("/db/control");
    let slot = |n: u64| (control(), n * SLOT_STRIDE..n * SLOT_STRIDE + 4096);
    for n in 0..2 {
        let sim = crashed_with(20, &[Task::Clean, Task::Checkpoint]);
        let process = Arc::new(Process::new(&sim));
        let disk = Unreadable::new(process, vec![slot(n)]);
        let db = try_open(&sim, disk.clone(), small()).unwrap_or_else(|e| panic!("slot {n}: {e}"));
        assert_rows(&db, 20, "with one slot");
        assert!(disk.bad.lock().unwrap().is_empty(), "the slot is written again");
    }
    let sim = crashed_with(20, &[]);
    let disk = Unreadable::new(Arc::new(Process::new(&sim)), vec![slot(0), slot(1)]);
    let error = try_open(&sim, disk, small()).unwrap_err();
    assert!(matches!(&error, Error::Io(e) if e.errno() == Some(5)), "no other thread needs either: {error}");
}

/// The pages with copies in the doublewrite file.
fn copies(sim: &SimDisk) -> Vec<u64> {
    let bytes = sim.seen("/db/doublewrite").unwrap();
    let area = bytes.len() / 2;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let of = |at: usize| (0..word(at + 12) as usize).map(move |i| u64::from(word(at + 64 + 4 * i)));
    [0, area].into_iter().filter(|at| bytes[*at..].starts_with(b"SWDOUBLE")).flat_map(of).collect()
}

#[test]
fn a_home_page_that_cannot_be_read_is_restored_from_its_copy() {
    // Pages were written back after the last checkpoint: the crash may have torn any of these writes.
    let sim = crashed_with(60, &[Task::Clean]);
    let pages = copies(&sim);
    assert!(pages.len() > 3, "{pages:?}");
    for page in pages {
        let sim = sim.fork(page);
        let bad = vec![(PathBuf::from("/db/data"), page * 4096..page * 4096 + 512)];
        let disk = Unreadable::new(Arc::new(Process::new(&sim)), bad);
        let db = try_open(&sim, disk.clone(), small()).unwrap_or_else(|e| panic!("page {page}: {e}"));
        assert_rows(&db, 60, "restored");
    }
}

/// A page of a tree that the log changes cannot be read, and has no copy. Without the option that is the end; with it,
/// the rows of the page are lost, and nothing else.
#[test]
fn a_page_that_recovery_cannot_read_is_abandoned_when_that_is_asked_for() {
    // Some pages are changed before the checkpoint, and all after it; the doublewrite file has copies of none.
    let sim = sim(31);
    let process = Arc::new(Process::new(&sim));
    let db = try_open(&sim, process.clone(), small()).unwrap();
    for i in 0..60 {
        put(&db, i, Durability::Flushed);
    }
    let tree = db.open_tree("t").unwrap();
    let between = |i: usize| [0, i as u8, 1];
    db.transact(|tx| (0..60).try_for_each(|i| tx.put(&tree, &between(i), b"committed"))).unwrap();
    db.checkpoint().unwrap();
    let mut leaves = Vec::new();
    db.sample_leaves(&tree, usize::MAX, |leaf| leaves.push(u64::from(leaf.page().0))).unwrap();
    assert!(leaves.len() > 3, "{leaves:?}");
    let mut loser = db.begin().unwrap();
    for i in 0..60 {
        loser.put(&tree, &between(i), b"not committed").unwrap();
    }
    for i in (0..60).rev() {
        put(&db, i, Durability::Flushed);
    }
    process.crash_by(SimDisk::power_cut);
    sim.remove(Path::new("/db/doublewrite")).unwrap();
    let abandons = || small().with_damaged_pages(DamagedPages::Abandon);
    let mut abandoned = 0;
    for leaf in leaves {
        let sim = sim.fork(leaf);
        let bad = vec![(PathBuf::from("/db/data"), leaf * 4096..leaf * 4096 + 512)];
        let process = Arc::new(Process::new(&sim));
        let disk = Unreadable::new(process.clone(), bad);
        if try_open(&sim, disk.clone(), small()).is_ok() {
            // The log initialises it.
            continue;
        }
        abandoned += 1;
        let check = |db: &Database| {
            let tree = db.open_tree("t").unwrap();
            let mut lost = 0;
            for i in 0..60 {
                match db.get(&tree, &between(i)) {
                    Ok(found) => assert_eq!(found.unwrap(), b"committed"),
                    Err(_) => lost += 1,
                }
                let (key, value) = row(i);
                match db.get(&tree, &key) {
                    Ok(found) => assert!(found.is_some_and(|found| *found == *value), "leaf {leaf}, row {i}"),
                    Err(Error::Corrupt(why)) => {
                        assert!(
                            matches!(*why, Corruption::Abandoned { page, .. } if u64::from(page.0) == leaf),
                            "{why}"
                        );
                        lost += 1;
                    }
                    Err(error) => panic!("leaf {leaf}, row {i}: {error}"),
                }
            }
            assert!((1..40).contains(&lost), "leaf {leaf}: {lost}");
            let found: Vec<u64> = db.check().unwrap().iter().map(|damage| u64::from(damage.page.0)).collect();
            assert!(found.contains(&leaf), "{found:?}");
        };
        let disk = Unreadable::new(disk, Vec::new());
        let db = try_open(&sim, disk.clone(), abandons()).unwrap();
        check(&db);
        let other = db.create_tree("other").unwrap();
        db.transact(|tx| tx.put(&other, b"a", b"b")).unwrap();
        // The log is applied again, without the option.
        process.crash_by(SimDisk::power_cut);
        drop((other, db));
        let db = try_open(&sim, Arc::new(Process::new(&sim)), small()).unwrap();
        check(&db);
        // Rows of the page need no rollback any more. The page is freed with its tree.
        while db.step_task(Task::Rollback).unwrap() {}
        check(&db);
        db.drop_tree("t").unwrap();
        while db.step().unwrap() {}
        assert_eq!(db.check().unwrap(), []);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put_rows(&tree, (0..60u8).map(|i| ([i], [i; 300])))).unwrap();
        drop(tree);
        db.close().unwrap();
        drop(try_open(&sim, Arc::new(Process::new(&sim)), small()).unwrap());
    }
    assert!(abandoned > 2, "{abandoned}");
    // One read that fails once is no reason to abandon a page.
    let mut opened = 0;
    for nth in 1..30 {
        let sim = sim.fork(nth);
        sim.inject(Fault::eio().on(Op::Read).path("/db/data").nth(nth).once());
        let Ok(db) = try_open(&sim, Arc::new(Process::new(&sim)), abandons()) else { continue };
        sim.clear_faults();
        while db.step_task(Task::Rollback).unwrap() {}
        assert_rows(&db, 60, "a read failed once");
        opened += 1;
    }
    assert!(opened > 10, "{opened}");
}

/// Rollback of a range of insertions, which have one undo record, passes a leaf that recovery abandoned.
#[test]
fn rollback_of_a_range_of_insertions_passes_an_abandoned_page() {
    let sim = sim(33);
    let process = Arc::new(Process::new(&sim));
    let db = try_open(&sim, process.clone(), small()).unwrap();
    let tree = db.create_tree("t").unwrap();
    let key = |i: u8, n: u8| [9, 9, i, n];
    let mut loser = db.begin().unwrap();
    for i in 0..100 {
        loser.put(&tree, &key(i, 0), &[7; 200]).unwrap();
    }
    db.checkpoint().unwrap();
    let mut leaves = Vec::new();
    db.sample_leaves(&tree, usize::MAX, |leaf| leaves.push(u64::from(leaf.page().0))).unwrap();
    let others = || (0..100).step_by(9);
    db.transact(|tx| others().try_for_each(|i| tx.put(&tree, &key(i, 1), b"committed"))).unwrap();
    process.crash_by(SimDisk::power_cut);
    sim.remove(Path::new("/db/doublewrite")).unwrap();
    let mut abandoned = 0;
    for leaf in leaves {
        let sim = sim.fork(leaf);
        let bad = vec![(PathBuf::from("/db/data"), leaf * 4096..leaf * 4096 + 512)];
        let disk = Unreadable::new(Arc::new(Process::new(&sim)), bad);
        if try_open(&sim, disk.clone(), small()).is_ok() {
            // The log initialises it.
            continue;
        }
        abandoned += 1;
        let db = try_open(&sim, disk, small().with_damaged_pages(DamagedPages::Abandon)).unwrap();
        while db.step_task(Task::Rollback).unwrap() {}
        let tree = db.open_tree("t").unwrap();
        let gone = (0..100).filter(|&i| matches!(db.get(&tree, &key(i, 0)), Ok(None))).count();
        let lost = (0..100).filter(|&i| db.get(&tree, &key(i, 0)).is_err()).count();
        assert!(gone + lost == 100 && gone > 50 && lost > 0, "leaf {leaf}: {gone} are undone, {lost} lost");
        for i in others() {
            assert!(db.get(&tree, &key(i, 1)).map_or(true, |found| found.is_some()), "leaf {leaf}, row {i}");
        }
        drop(tree);
        db.drop_tree("t").unwrap();
        while db.step().unwrap() {}
        assert_eq!(db.check().unwrap(), []);
    }
    assert!(abandoned > 3, "{abandoned}");
}

/// As before, of a transaction that has created the tree: its pages are freed, and its name is free.
#[test]
fn rollback_of_a_new_tree_passes_abandoned_pages() {
    let sim = sim(34);
    let process = Arc::new(Process::new(&sim));
    let db = try_open(&sim, process.clone(), small()).unwrap();
    let other = db.create_tree("other").unwrap();
    let key = |i: u8, n: u8| [9, 9, i, n];
    let mut loser = db.begin().unwrap();
    let tree = loser.create_tree("t").unwrap();
    for i in 0..100 {
        loser.put(&tree, &key(i, 0), &[7; 200]).unwrap();
    }
    db.checkpoint().unwrap();
    for i in 0..100 {
        loser.put(&tree, &key(i, 1), &[7; 200]).unwrap();
    }
    db.transact(|tx| tx.put(&other, b"a", b"b")).unwrap();
    process.crash_by(SimDisk::power_cut);
    sim.remove(Path::new("/db/doublewrite")).unwrap();
    let mut abandoned = 0;
    for page in 0..sim.seen("/db/data").unwrap().len() as u64 / 4096 {
        let sim = sim.fork(page);
        let bad = vec![(PathBuf::from("/db/data"), page * 4096..page * 4096 + 512)];
        let disk = Unreadable::new(Arc::new(Process::new(&sim)), bad);
        if try_open(&sim, disk.clone(), small()).is_ok() {
            // It is not needed.
            continue;
        }
        let Ok(db) = try_open(&sim, disk, small().with_damaged_pages(DamagedPages::Abandon)) else { continue };
        // Neither the catalog nor the other tree is lost.
        let found = db.open_tree("other").and_then(|other| db.get(&other, b"a"));
        if found.is_err() {
            continue;
        }
        abandoned += 1;
        while db.step_task(Task::Rollback).unwrap_or_else(|e| panic!("page {page}: {e}")) {}
        drop(db.create_tree("t").unwrap());
        while db.step().unwrap() {}
        assert_eq!(db.check().unwrap(), [], "page {page}");
    }
    assert!(abandoned > 3, "{abandoned}");
}

/// One read of the doublewrite file that fails once is no reason to lose a page whose copy is there.
#[test]
fn a_copy_is_read_again_before_its_page_is_lost() {
    let crashed = crashed_with(60, &[Task::Clean]);
    for page in copies(&crashed) {
        for nth in 1..4 {
            let sim = crashed.fork(page);
            let bad = vec![(PathBuf::from("/db/data"), page * 4096..page * 4096 + 512)];
            let disk = Unreadable::new(Arc::new(Process::new(&sim)), bad);
            sim.inject(Fault::eio().on(Op::Read).path("/db/doublewrite").nth(nth).once());
            let db = try_open(&sim, disk, small()).unwrap_or_else(|e| panic!("page {page}, read {nth}: {e}"));
            assert_rows(&db, 60, "restored");
        }
    }
}

/// A page was abandoned, and a rollback has passed its changes of the page. Then the page's copy is found.
#[test]
fn an_abandoned_page_stays_abandoned() {
    let sim = sim(41);
    let process = Arc::new(Process::new(&sim));
    let db = try_open(&sim, process.clone(), small().with_max_dirty_percent(10)).unwrap();
    for i in 0..60 {
        put(&db, i, Durability::Flushed);
    }
    db.checkpoint().unwrap();
    let tree = db.open_tree("t").unwrap();
    let mut loser = db.begin().unwrap();
    for i in (0..60).step_by(3) {
        loser.put(&tree, &row(i).0, b"not committed").unwrap();
    }
    put(&db, 1, Durability::Flushed);
    while db.step_task(Task::Clean).unwrap() {}
    process.crash_by(SimDisk::power_cut);
    drop((loser, tree, db));
    let mut lost = 0;
    for page in copies(&sim) {
        let sim = sim.fork(page);
        let bad = vec![
            (PathBuf::from("/db/data"), page * 4096..page * 4096 + 512),
            (PathBuf::from("/db/doublewrite"), 0..u64::MAX),
        ];
        let process = Arc::new(Process::new(&sim));
        let disk = Unreadable::new(process.clone(), bad);
        let Ok(db) = try_open(&sim, disk, small().with_damaged_pages(DamagedPages::Abandon)) else { continue };
        while let Ok(true) = db.step_task(Task::Rollback) {}
        // Flushes the log of the rollback.
        let flushed = db.create_tree("other").is_ok();
        process.crash_by(SimDisk::power_cut);
        drop(db);
        if !flushed {
            continue;
        }
        let db = try_open(&sim, Arc::new(Process::new(&sim)), small()).unwrap();
        while let Ok(true) = db.step_task(Task::Rollback) {}
        let tree = db.open_tree("t").unwrap();
        for i in 0..60 {
            match db.get(&tree, &row(i).0) {
                Ok(found) => assert!(found.is_some_and(|found| *found == *row(i).1), "page {page}, row {i}"),
                Err(_) => lost += 1,
            }
        }
    }
    assert!(lost > 20, "{lost}");
}

/// The file was made shorter after a checkpoint. The other slot has the checkpoint before, with log of pages that were
/// cut off.
#[test]
fn either_control_slot_leads_to_a_file_that_was_made_shorter() {
    let sim = sim(11);
    let process = Arc::new(Process::new(&sim));
    let db = try_open(&sim, process.clone(), small()).unwrap();
    for i in 0..60 {
        put(&db, i, Durability::Flushed);
    }
    let (tree, first) = (db.open_tree("t").unwrap(), db.create_tree("first").unwrap());
    db.transact(|tx| tx.put_rows(&first, (0..3000u16).map(|i| (i.to_be_bytes(), [1; 1000])))).unwrap();
    let more = |i: u16, n: u8| [5, i.to_be_bytes()[0], i.to_be_bytes()[1], n];
    db.transact(|tx| tx.put_rows(&tree, (0..1500).map(|i| (more(i, 0), [1; 1000])))).unwrap();
    drop(first);
    db.drop_tree("first").unwrap();
    while db.step().unwrap() {}
    db.checkpoint().unwrap();
    db.transact(|tx| (0..1500).try_for_each(|i| tx.put(&tree, &more(i, 0), &[2; 1000]))).unwrap();
    let mut leaves = Vec::new();
    db.sample_leaves(&tree, usize::MAX, |leaf| leaves.push(leaf.page().0 as usize)).unwrap();
    db.shrink().unwrap();
    let after = sim.seen("/db/data").unwrap().len() / 4096;
    assert!(leaves.iter().filter(|&&leaf| leaf >= after).count() > 10, "{after} pages; the leaves were {leaves:?}");
    process.crash_by(SimDisk::power_cut);
    for n in 0..2 {
        let sim = sim.fork(n);
        let slot = (PathBuf::from("/db/control"), n * SLOT_STRIDE..n * SLOT_STRIDE + 4096);
        let disk = Unreadable::new(Arc::new(Process::new(&sim)), vec![slot]);
        let db = try_open(&sim, disk, small()).unwrap_or_else(|e| panic!("slot {n}: {e}"));
        assert_rows(&db, 60, "with one slot");
    }
}

/// The last block of the log is read twice: for its entries, and because the log continues in it.
#[test]
fn a_block_of_the_log_that_is_not_read_again_is_not_written_over() {
    let crashed = crashed_with(60, &[Task::Log]);
    let mut refused = 0;
    for nth in 1..40 {
        let sim = crashed.fork(nth);
        // A chunk, and then its first piece. The second fault does not count the read that the first one hits.
        for _ in 0..2 {
            sim.inject(Fault::eio().on(Op::Read).named("redo.????????????????").nth(nth).once());
        }
        refused += u32::from(try_open(&sim, Arc::new(Process::new(&sim)), small()).is_err());
        sim.clear_faults();
        sim.power_cut();
        let db = try_open(&sim, Arc::new(Process::new(&sim)), small()).unwrap_or_else(|e| panic!("read {nth}: {e}"));
        assert_rows(&db, 60, "the log can be read");
    }
    assert!(refused > 0);
}

#[test]
fn a_doublewrite_header_that_cannot_be_read_was_being_written() {
    let sim = crashed_with(60, &[Task::Clean]);
    let len = sim.seen("/db/doublewrite").unwrap().len() as u64;
    for at in [0, len / 2] {
        let sim = sim.fork(at);
        let bad = vec![(PathBuf::from("/db/doublewrite"), at..at + 4096)];
        let db = try_open(&sim, Unreadable::new(Arc::new(Process::new(&sim)), bad), small()).unwrap();
        assert_rows(&db, 60, "without a copy");
    }
}

/// The segments, and the position behind the last byte that is not zero.
fn log_end(sim: &SimDisk) -> (Vec<(PathBuf, u64)>, u64) {
    let names = sim.list(DIR.as_ref()).unwrap().into_iter();
    let segments: Vec<(PathBuf, u64)> = names
        .filter_map(|path| {
            let number = path.file_name()?.to_str()?.strip_prefix("redo.")?.to_owned();
            Some((path, u64::from_str_radix(&number, 16).ok()? * SEGMENT))
        })
        .collect();
    let last = segments.iter().filter_map(|(path, base)| {
        let bytes = sim.seen(path)?;
        Some(base + bytes.iter().rposition(|byte| *byte != 0)? as u64 + 1)
    });
    let end = last.max().unwrap();
    (segments, end)
}

/// All 4096-byte blocks of the log in this range of positions.
fn blocks(segments: &[(PathBuf, u64)], range: Range<u64>) -> Vec<(PathBuf, Range<u64>)> {
    let mut all = Vec::new();
    for (path, base) in segments {
        let at = range.start.max(*base)..range.end.min(base + SEGMENT);
        if !at.is_empty() {
            all.push((path.clone(), at.start - base..at.end - base));
        }
    }
    all
}

#[test]
fn stale_log_beyond_the_end_that_cannot_be_read_is_not_needed() {
    // In the first segment of a new database, and after the log has reached further ones; with blocks of
    // several sectors.
    for (rows, block) in [(5, 4096), (60, 4096), (60, 16 << 10)] {
        let sim = crashed_with(rows, &[Task::Log]);
        let (segments, end) = log_end(&sim);
        let stale = blocks(&segments, end.next_multiple_of(4096)..u64::MAX);
        assert!(!stale.is_empty());
        let options = small().with_log_block_bytes(block);
        let disk = Unreadable::new(Arc::new(Process::new(&sim)), stale);
        let db = try_open(&sim, disk, options.clone()).unwrap_or_else(|e| panic!("{rows} rows: {e}"));
        assert_rows(&db, rows, "beyond the end");
        // And the log continues over these blocks.
        for i in rows..rows + 40 {
            put(&db, i, Durability::Flushed);
        }
        drop(db);
        sim.power_cut();
        let db = try_open(&sim, Arc::new(Process::new(&sim)), options).unwrap();
        assert_rows(&db, rows + 40, "after going on");
    }
}

#[test]
fn log_that_is_needed_and_cannot_be_read_is_named() {
    let sim = crashed_with(40, &[Task::Log]);
    let (segments, end) = log_end(&sim);
    let mut named = 0;
    for at in (4096..end).step_by(4096) {
        let sim = sim.fork(at);
        let bad = blocks(&segments, at..at + 4096);
        let path = bad[0].0.clone();
        match try_open(&sim, Unreadable::new(Arc::new(Process::new(&sim)), bad), small()) {
            Err(Error::Io(e)) => {
                assert!(e.errno() == Some(5) && e.path == path && e.op == Op::Read, "{e}");
                named += 1;
            }
            other => panic!("block at {at} of {end}: {:?}", other.map(|db| db.stats().log.head_lsn)),
        }
    }
    assert!(named > 5);
}

/// The clock of an opening that waits: after some sleeps an event happens.
#[derive(Debug)]
struct Waiting {
    clock: SystemClock,
    slept: Mutex<(Duration, u32)>,
    after: u32,
    held: Mutex<Option<Handle>>,
}

impl Clock for Waiting {
    fn now(&self) -> Duration {
        self.clock.now() + self.slept.lock().unwrap().0
    }
    fn sleep(&self, by: Duration) {
        let mut slept = self.slept.lock().unwrap();
        *slept = (slept.0 + by, slept.1 + 1);
        if slept.1 == self.after {
            drop(self.held.lock().unwrap().take());
        }
    }
}

/// After kill -9 the kernel ends io_uring requests when the process is gone already; until then they hold
/// their files and so the locks.
#[test]
fn a_lock_that_a_killed_process_still_holds_is_waited_for_and_not_for_ever() {
    for name in ["control", "redo.0000000000000000", "data", "doublewrite"] {
        for (after, opens) in [(5, true), (u32::MAX, false)] {
            let sim = crashed_with(3, &[]);
            let killed = Process::new(&sim);
            let file = killed.open(&Path::new(DIR).join(name), OpenHow { write: true, ..OpenHow::default() }).unwrap();
            killed.lock(&file).unwrap();
            let clock = Arc::new(Waiting {
                clock: SystemClock::default(),
                slept: Mutex::default(),
                after,
                held: Mutex::new(Some(file)),
            });
            let disk = Arc::new(Process::new(&sim));
            let env = Env { disk, clock: clock.clone(), seed: 1, background: Background::Steps };
            match Database::open_in(env, DIR, small()) {
                Ok(db) if opens => assert_rows(&db, 3, name),
                Err(Error::Locked { path, .. }) if !opens => {
                    assert_eq!(path, Path::new(DIR).join(name));
                    let waited = clock.slept.lock().unwrap().0;
                    assert!((1..10).contains(&waited.as_secs()), "{name}: waited for {waited:?}");
                }
                other => panic!("{name}, after {after} sleeps: {:?}", other.map(drop)),
            }
        }
    }
}

/// An acknowledged commit is found by its path after any power cut: the names of the directories above are
/// durable too.
#[test]
fn the_name_of_a_new_database_and_of_its_log_is_durable() {
    for seed in 0..60 {
        let sim = SimDisk::new(SimOptions { seed, lose_directories: true, ..SimOptions::default() });
        let open = |process: &Arc<Process>| {
            let clock = sim.clone();
            let env = Env { disk: process.clone(), clock, seed: 1, background: Background::Steps };
            Database::open_in(env, "/srv/of/db", small().with_log_dir("/srv/log/of/db".into()))
        };
        let process = Arc::new(Process::new(&sim));
        // Sometimes the first creating process is killed half-way: its files exist, and need not be durable.
        if seed % 2 == 1 {
            let killed = Arc::new(Process::new(&sim));
            sim.inject(Fault::eio().at_op(seed % 40));
            drop(open(&killed));
            sim.clear_faults();
            killed.crash_by(SimDisk::process_crash);
        }
        let db = open(&process).unwrap();
        put(&db, 0, Durability::Flushed);
        process.crash_by(SimDisk::power_cut);
        let db = open(&Arc::new(Process::new(&sim))).unwrap();
        assert_rows(&db, 1, "found by its name");
    }
}

/// What the closed database is copied to was made by another program, which flushed no directory.
#[test]
fn the_name_of_a_copy_and_of_a_moved_log_is_durable_once_it_was_opened() {
    for seed in 0..60 {
        let sim = SimDisk::new(SimOptions { seed, lose_directories: true, ..SimOptions::default() });
        let open = |process: &Arc<Process>, path: &str, log: &str| {
            let env = Env { disk: process.clone(), clock: sim.clone(), seed: 1, background: Background::Steps };
            Database::open_in(env, path, small().with_log_dir(log.into()))
        };
        let process = Arc::new(Process::new(&sim));
        let db = open(&process, "/db", "/log").unwrap();
        put(&db, 0, Durability::Flushed);
        db.close().unwrap();
        for (from, to) in [("/db", "/srv/of/db"), ("/log", "/srv/log/of/db")] {
            for file in process.list(Path::new(from)).unwrap() {
                let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
                let copy = process.open(&Path::new(to).join(file.file_name().unwrap()), how).unwrap();
                let bytes = sim.seen(&file).unwrap();
                process.write_at(&copy, 0, &[IoSlice::new(&bytes)], WriteHow::default()).unwrap();
            }
        }
        let db = open(&process, "/srv/of/db", "/srv/log/of/db").unwrap();
        put(&db, 1, Durability::Flushed);
        process.crash_by(SimDisk::power_cut);
        let db = open(&Arc::new(Process::new(&sim)), "/srv/of/db", "/srv/log/of/db").unwrap();
        assert_rows(&db, 2, "found by its name");
    }
}

/// A copy of a closed database has continued the log, which lies elsewhere: the entries there are not the original's.
#[test]
fn a_log_that_a_copy_of_the_database_has_continued_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [path, copy, log] = ["db", "copy", "log"].map(|name| dir.path().join(name));
    let options = small().with_log_dir(log);
    let db = Database::open_with(&path, options.clone()).unwrap();
    put(&db, 0, Durability::Flushed);
    db.close().unwrap();
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()).filter(|file| file.is_file()) {
        std::fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
    }
    let db = Database::open_with(&copy, options.clone()).unwrap();
    let (key, value) = row(1);
    db.transact(|tx| tx.put(&tx.open_tree("t")?, &key, &value)).unwrap();
    db.close().unwrap();
    for _ in 0..2 {
        let refused = Database::open_with(&path, options.clone()).unwrap_err();
        let Error::Corrupt(corruption) = &refused else { panic!("{refused}") };
        assert!(matches!(**corruption, Corruption::Log { .. }), "{refused}");
    }
    assert_rows(&Database::open_read_only_with(&path, options.clone()).unwrap(), 1, "it is as it was closed");
    assert_rows(&Database::open_with(&copy, options).unwrap(), 2, "the copy");
}

/// The real disk, with directories created by this opening, and relative paths.
#[test]
fn a_database_can_be_made_where_directories_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/c");
    let options = small().with_log_dir(dir.path().join("x/y"));
    drop(Database::open_with(&path, options.clone()).unwrap());
    assert!(path.join("control").exists() && dir.path().join("x/y").read_dir().unwrap().next().is_some());
    let inside = PathBuf::from(format!("target-of-this-test-{}", std::process::id()));
    let made = Database::open_with(inside.join("db"), small()).and_then(Database::close);
    std::fs::remove_dir_all(&inside).unwrap();
    made.unwrap();
}
