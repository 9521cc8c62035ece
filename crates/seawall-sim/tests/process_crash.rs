//! A crash of the process is not a power cut: the page cache stays, and writes in flight may land under the
//! successor.

mod common;

use common::*;
use seawall_io::{
    AlignedBuf, Allocate, Cause, Create, Disk as _, File, FileClass, FileOptions, FlushMethod, IoErrorKind,
};
use seawall_sim::{Call, SimDisk, SimOptions};
use std::path::Path;

#[test]
fn completed_writes_stay_visible_and_pending() {
    for seed in 0..100 {
        let disk = disk(seed);
        let file = settled(&disk, "/f", RW, 1, 4096);
        write(&disk, &file, 0, &[2; 4096], PLAIN);
        open(&disk, "/g", RW);
        disk.process_crash();
        assert_eq!(disk.len(&file).unwrap_err().errno(), Some(libc::ENXIO));
        assert_eq!(disk.seen("/f"), Some(vec![2; 4096]));
        assert_eq!(disk.seen("/g"), Some(vec![]));
        assert_eq!(disk.stable("/f"), Some(vec![1; 4096]));
        let again = open(&disk, "/f", RW);
        assert_eq!(disk.cached(&again, 4096).unwrap().dirty, Some(4096));
        sync(&disk, &again);
        assert_eq!(disk.stable("/f"), Some(vec![2; 4096]));
    }
}

/// What the successor reads at once and later, after the predecessor died with a write in flight.
fn late(seed: u64, before: bool, after: bool, refuses: bool) -> (u8, u8) {
    let disk = SimDisk::new(SimOptions { seed, late_lock_refuses: refuses, ..SimOptions::default() });
    let file = settled(&disk, "/f", DIRECT, 1, 512);
    if before {
        disk.lock(&file).unwrap();
    }
    drop(disk.submit(vec![write_request(&file, 0, &[2; 512], PLAIN)]));
    disk.process_crash();
    let successor = open(&disk, "/f", DIRECT);
    if after {
        while let Err(error) = disk.lock(&successor) {
            assert!(refuses && error.kind == IoErrorKind::Locked);
        }
    }
    let first = read(&disk, &successor, 0, 512)[0];
    for _ in 0..100 {
        disk.len(&successor).unwrap();
    }
    assert_eq!(disk.late_writes(), 0);
    assert!(disk.trace().count(Call::LateWrite) <= 1);
    (first, read(&disk, &successor, 0, 512)[0])
}

#[test]
fn without_locks_a_write_lands_under_the_successor() {
    for locks in [(false, false), (false, true), (true, false)] {
        let surprised = (0..200).filter(|&seed| late(seed, locks.0, locks.1, false) == (1, 2)).count();
        assert!(surprised > 100, "{locks:?}: {surprised}");
    }
    assert!((0..200).any(|seed| late(seed, false, false, false) == (1, 1)), "some never land");
}

#[test]
fn a_lock_held_by_both_makes_the_successor_wait() {
    for refuses in [false, true] {
        let outcomes: Vec<_> = (0..200).map(|seed| late(seed, true, true, refuses)).collect();
        assert!(outcomes.iter().all(|(first, later)| first == later));
        assert!(outcomes.contains(&(2, 2)) && outcomes.contains(&(1, 1)));
    }
}

#[test]
fn a_power_cut_ends_late_writes_too() {
    let disk = disk(4);
    let file = settled(&disk, "/f", DIRECT, 1, 512);
    drop(disk.submit(vec![write_request(&file, 0, &[2; 512], PLAIN)]));
    disk.process_crash();
    disk.power_cut();
    assert_eq!(disk.late_writes(), 0);
}

/// A process that is killed has grown a file and not synced it. What the next process makes durable in the new
/// part survives a power cut.
#[test]
fn what_a_killed_process_allocated_is_synced_by_the_next() {
    for method in FlushMethod::ALL {
        for seed in 0..100 {
            let disk = disk(seed);
            let open = |create| {
                let options = FileOptions::new(FileClass::Data, method).create(create);
                File::open(disk.clone(), Path::new("/f"), options).unwrap()
            };
            let file = open(Create::New);
            file.write_at(0, &AlignedBuf::zeroed(4096), Cause::Other).unwrap();
            file.sync(Cause::Other).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            file.grow(Allocate::Unwritten, 8 * 4096, Cause::Preallocate).unwrap();
            disk.process_crash();
            drop(file);
            let file = open(Create::No);
            assert_eq!(file.len(), 8 * 4096);
            let mut block = AlignedBuf::zeroed(4096);
            block.fill(7);
            file.write_at(4096, &block, Cause::Other).unwrap();
            file.barrier(Cause::Other).unwrap();
            disk.power_cut();
            assert_eq!(disk.seen("/f").unwrap().len(), 8 * 4096, "{method}, seed {seed}");
            assert_eq!(&disk.seen("/f").unwrap()[4096..2 * 4096], &block[..], "{method}, seed {seed}");
        }
    }
}
