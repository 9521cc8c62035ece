//! Torn pages, and their repair from the doublewrite file.

use super::hook::Hook;
use super::*;
use crate::error::{Corruption, Error};
use seawall_io::{Create, Op, OpenHow, SyncHow, WriteHow};
use seawall_sim::{Call, Fault, Latency};
use std::io::IoSlice;
use std::path::PathBuf;

fn data() -> PathBuf {
    Path::new(DIR).join(DATA_FILE)
}

fn doublewrite() -> PathBuf {
    Path::new(DIR).join(DOUBLEWRITE_FILE)
}

/// A database with 20 pages, written home and checkpointed.
fn twenty_pages(machine: &Machine) -> Db {
    let db = machine.create();
    db.grow_file(20).unwrap();
    for number in 0..20 {
        db.make(number, 1);
    }
    db.flush_all().unwrap();
    db
}

/// Writes these bytes to a file durably, as a crash may have left them.
fn put(disk: &SimDisk, path: &Path, offset: u64, bytes: &[u8]) {
    let file = disk.open(path, OpenHow { write: true, create: Create::No, ..OpenHow::default() }).unwrap();
    disk.write_at(&file, offset, &[IoSlice::new(bytes)], WriteHow::default()).unwrap();
    disk.sync(&file, SyncHow::All).unwrap();
}

/// Crashes just before the home writes of a batch. Page 7 is torn: its first `sectors` sectors are new.
fn torn_at(machine: &Machine, sectors: usize) -> (Arc<SimDisk>, Lsn) {
    let process = machine.process();
    let hook = Hook::new(process.clone());
    let db = machine.create_through(hook.clone(), process).unwrap();
    db.grow_file(20).unwrap();
    for number in 0..20 {
        db.make(number, 1);
    }
    db.flush_all().unwrap();
    let mut end = Lsn::ZERO;
    for at in 0..CELLS {
        end = db.set(7, at, 77);
    }
    db.log().flush_to(end).unwrap();
    let crashed: Arc<std::sync::Mutex<Option<Arc<SimDisk>>>> = Arc::default();
    let (machine_disk, forked) = (machine.disk.clone(), crashed.clone());
    hook.before_page_write(move || *forked.lock().unwrap() = Some(machine_disk.clone_stable()));
    db.flush_all().unwrap();
    let new = machine.disk.seen(data()).unwrap();
    let crashed = crashed.lock().unwrap().take().expect("page 7 was written");
    let at = 7 * PAGE_BYTES;
    put(&crashed, &data(), at as u64, &new[at..at + sectors * 512]);
    (crashed, end)
}

#[test]
fn a_page_torn_anywhere_is_restored() {
    for sectors in 0..=PAGE_BYTES / 512 {
        let (crashed, _) = torn_at(&Machine::new(1), sectors);
        let db = Machine::on(crashed).open().unwrap();
        let whole = sectors == 0 || sectors == PAGE_BYTES / 512;
        assert_eq!(db.restored.is_empty(), whole, "{sectors} sectors of the new page: {:?}", db.restored);
        assert!((0..CELLS).all(|at| db.get(7, at) == 77), "{sectors}");
    }
}

#[test]
fn without_doublewrite_a_torn_page_is_named() {
    for sectors in 0..=PAGE_BYTES / 512 {
        let machine = Machine { torn: Torn::Off, ..Machine::new(2) };
        let (crashed, _) = torn_at(&machine, sectors);
        let opened = Machine { torn: Torn::Off, ..Machine::on(crashed.clone()) }.open();
        if sectors == 0 || sectors == PAGE_BYTES / 512 {
            assert_eq!(opened.unwrap().get(7, 1), 77);
            continue;
        }
        match opened.unwrap_err() {
            Error::Corrupt(found) => {
                assert!(matches!(*found, Corruption::ChecksumMismatch { page: PageId(7), .. }), "{found}");
            }
            other => panic!("{other}"),
        }
        assert!(crashed.seen(doublewrite()).is_none(), "no doublewrite, no file");
    }
}

/// Trap 4, as seen by the disk: between two batches in one area, the data file is flushed after the home writes of the
/// first.
#[test]
fn an_area_is_reused_only_after_its_pages_are_flushed() {
    for method in [FlushMethod::ODirect, FlushMethod::ODirectDsync, FlushMethod::ODirectNoFsync, FlushMethod::Fsync] {
        let machine = Machine { method, ..Machine::new(3) };
        let db = twenty_pages(&machine);
        for round in 0..9 {
            for number in round..round + 4 {
                db.set(number, 0, u64::from(round));
            }
            assert_eq!(db.clean_frames(0..64, usize::MAX).unwrap(), 4);
        }
        assert_eq!(db.stats().pages_written - db.stats().pages_written_bare, 9 * 4);
        let (mut batches, mut owed) = (0, [false; 2]);
        for entry in machine.disk.trace().entries() {
            let write = matches!(entry.call, Call::Write | Call::DurableWrite);
            if write && entry.path == doublewrite() {
                let area = usize::from(entry.offset > 0);
                assert!(!owed[area], "{method}: batch {batches} overwrites copies of pages that are not flushed");
                owed[area] = true;
                batches += 1;
            }
            if entry.call == Call::Sync && entry.path == data() {
                owed = [false; 2];
            }
        }
        assert_eq!(batches, 9);
    }
}

#[test]
fn pages_made_anew_need_no_copy_and_survive_every_crash() {
    for seed in 0..40 {
        let machine = Machine::new(seed);
        let db = machine.create();
        db.grow_file(20).unwrap();
        let mut end = Lsn::ZERO;
        for number in 0..20 {
            db.make(number, 1);
            end = db.set(number, 9, 99);
        }
        db.log().flush_to(end).unwrap();
        assert_eq!(db.clean_frames(0..64, usize::MAX).unwrap(), 20);
        let stats = db.stats();
        assert_eq!((stats.pages_written_bare, stats.doublewrite_flushes), (20, 0));
        // Some pages are changed again and written with a copy. Either of their writes may be torn.
        for number in 5..15 {
            end = db.set(number, 9, 100);
        }
        db.log().flush_to(end).unwrap();
        if seed % 2 == 0 {
            machine.disk.inject(Fault::eio().on(Op::Write).path(data()).once());
            assert!(db.clean_frames(0..64, usize::MAX).is_err());
        } else {
            assert_eq!(db.clean_frames(0..64, usize::MAX).unwrap(), 10);
        }
        db.process.crash_by(SimDisk::power_cut);
        drop(db);
        let db = machine.open().unwrap();
        for number in 0..20 {
            let expected = if (5..15).contains(&number) { 100 } else { 99 };
            assert_eq!(
                (db.get(number, 9), db.get(number, 8)),
                (expected, made(number, 1)),
                "seed {seed}, page {number}"
            );
        }
    }
}

/// A copy older than the checkpoint would bring back a page whose later changes are no longer in the log.
#[test]
fn a_stale_copy_is_not_used() {
    let machine = Machine::new(5);
    let db = twenty_pages(&machine);
    db.set(7, 0, 1);
    db.flush_all().unwrap();
    // From now on pages are written without doublewrite, so that the copy stays in its area.
    db.process.crash_by(SimDisk::process_crash);
    drop(db);
    let off = Machine { torn: Torn::Off, ..Machine::on(machine.disk.clone()) };
    let db = off.open().unwrap();
    db.set(7, 0, 2);
    db.flush_all().unwrap();
    db.process.crash_by(SimDisk::power_cut);
    drop(db);
    put(&machine.disk, &data(), 7 * PAGE_BYTES as u64 + 100, b"rot");
    let db = machine.open().unwrap();
    assert!(db.restored.is_empty());
    match db.load(PageId(7)).unwrap_err() {
        Error::Corrupt(found) => assert!(matches!(*found, Corruption::ChecksumMismatch { page: PageId(7), .. })),
        other => panic!("{other}"),
    }
}

#[test]
fn making_a_database_writes_nothing_into_the_doublewrite_file() {
    let machine = Machine::new(6);
    let db = machine.create();
    let tally = machine.disk.trace().tally(doublewrite(), Call::Write);
    assert_eq!(tally.calls, 0);
    assert_eq!(machine.disk.seen(doublewrite()).unwrap().len(), 2 * (4096 + 128 * PAGE_BYTES));
    drop(db);
}

#[test]
fn contiguous_pages_are_written_together() {
    let machine = Machine::new(7);
    let db = twenty_pages(&machine);
    let before = db.stats();
    for number in [3, 4, 5, 6, 9, 12, 13] {
        db.set(number, 0, 1);
    }
    db.flush_all().unwrap();
    let after = db.stats();
    assert_eq!(after.pages_written - before.pages_written, 7);
    assert_eq!(after.home_writes - before.home_writes, 3);
    assert_eq!((after.batches - before.batches, after.doublewrite_flushes - before.doublewrite_flushes), (1, 1));
}

/// A batch is small if a flush is fast, so that commits do not wait for it, and large if a flush is slow. Most flushes
/// of a fast disk are slow while much is written: they do not make a batch large, which would make them slower.
#[test]
fn a_batch_is_as_large_as_the_quickest_flushes_are_slow() {
    let latency = Latency { sync: Duration::from_micros(20), spikes_per_million: 0, ..Latency::default() };
    let mut machine = Machine::with(SimOptions { seed: 9, latency, ..SimOptions::default() });
    machine.clock = machine.disk.clone();
    let db = twenty_pages(&machine);
    let clean = |rounds: std::ops::Range<u64>| {
        for round in rounds {
            db.set(7, 0, round);
            assert_eq!(db.clean_frames(0..64, usize::MAX).unwrap(), 1);
        }
    };
    let slow = || machine.disk.inject(Fault::slow(Duration::from_millis(8)).on(Op::Sync).path(data()));
    slow();
    clean(0..10);
    assert_eq!(db.batch(), 128);
    machine.disk.clear_faults();
    clean(10..12);
    assert_eq!(db.batch(), 32);
    slow();
    clean(12..100);
    assert_eq!(db.batch(), 32, "the disk is busy");
    clean(100..9000);
    assert_eq!(db.batch(), 128, "the disk has become slow");
}
