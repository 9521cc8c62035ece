//! Each fault happens where it was injected and only there, and has the documented effect.

mod common;

use common::*;
use seawall_io::{Allocate, Create, Disk as _, IoErrorKind, Op, OpenHow, SyncHow, WriteHow};
use seawall_sim::{Fault, FaultKind, FaultPlan, SimDisk, SimOptions};
use std::time::Duration;

#[test]
fn a_script_hits_the_nth_write_of_a_path() {
    let disk = disk(1);
    let (log, data) = (open(&disk, "/db/log", RW), open(&disk, "/db/data", RW));
    disk.inject(Fault::eio().on(Op::Write).path("/db/log").nth(3));
    let results: Vec<bool> = (0..5)
        .flat_map(|i| [&log, &data].map(|file| try_write(&disk, file, i * 10, &[1; 10], PLAIN).is_ok()))
        .collect();
    assert_eq!(results, [true, true, true, true, false, true, true, true, true, true]);
    let failed: Vec<_> = disk.trace().entries().filter(|entry| entry.fault.is_some()).cloned().collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].outcome, Err(libc::EIO));
}

#[test]
fn a_script_hits_one_operation_by_number_and_a_directory_by_prefix() {
    let plan = FaultPlan::new().with(Fault::eio().at_op(2)).with(Fault::enospc().on(Op::Grow).path("/small").once());
    let disk = SimDisk::new(SimOptions { faults: plan, ..SimOptions::default() });
    let file = open(&disk, "/small/f", RW);
    assert_eq!(disk.len(&file).unwrap_err().errno(), Some(libc::EIO));
    assert_eq!(disk.set_len(&file, 10).unwrap_err().errno(), Some(libc::ENOSPC));
    disk.set_len(&file, 10).unwrap();
}

#[test]
fn probabilities_hold_roughly() {
    let disk = disk(1);
    let file = settled(&disk, "/f", RW, 1, 100);
    disk.inject(Fault::eio().on(Op::Read).probability(0.25));
    let failures = (0..1000).filter(|_| disk.read_at(&file, 0, &mut [0; 10]).is_err()).count();
    assert!((180..320).contains(&failures), "{failures}");
    disk.clear_faults();
    assert_eq!(read(&disk, &file, 0, 10), [1; 10]);
}

#[test]
fn after_a_failed_sync_the_second_one_lies() {
    let (mut lost, mut partly) = (0, 0);
    for seed in 0..200 {
        let disk = disk(seed);
        let file = settled(&disk, "/f", RW, 1, 16384);
        write(&disk, &file, 0, &[2; 16384], PLAIN);
        disk.inject(Fault::eio().on(Op::Sync).once());
        assert_eq!(disk.sync(&file, SyncHow::Data).unwrap_err().errno(), Some(libc::EIO));
        assert_eq!(disk.cached(&file, 16384).unwrap().dirty, Some(0), "the pages are clean");
        disk.sync(&file, SyncHow::Data).unwrap();
        assert_eq!(read(&disk, &file, 0, 16384), [2; 16384], "the cache still shows them");
        let dropped = disk.fork(seed);
        let again = open(&dropped, "/f", RW);
        dropped.drop_cache(&again, 0, 0).unwrap();
        assert_eq!(read(&dropped, &again, 0, 4096), [1; 4096], "until they leave it");
        disk.power_cut();
        let new = disk.seen("/f").unwrap().iter().filter(|&&b| b == 2).count();
        assert!(new < 16384, "seed {seed}: something was lost");
        lost += u32::from(new == 0);
        partly += u32::from(new > 0);
    }
    assert!(lost > 0 && partly > 0, "lost {lost}, partly {partly}");
}

/// Without the page cache, nothing still shows data that the device lost.
#[test]
fn after_a_failed_sync_direct_reads_show_what_the_device_holds() {
    for seed in 0..50 {
        let disk = disk(seed);
        let file = settled(&disk, "/f", DIRECT, 1, 16384);
        write(&disk, &file, 0, &[2; 16384], PLAIN);
        disk.inject(Fault::eio().on(Op::Sync).once());
        assert_eq!(disk.sync(&file, SyncHow::Data).unwrap_err().errno(), Some(libc::EIO));
        let seen = read(&disk, &file, 0, 16384);
        assert_eq!(&seen[..4096], &[1; 4096], "the first page is always lost");
        disk.sync(&file, SyncHow::Data).unwrap();
        disk.power_cut();
        assert_eq!(disk.seen("/f").unwrap(), seen, "a flush that succeeds keeps what is read");
    }
}

#[test]
fn every_open_handle_learns_of_a_failed_sync_once() {
    let disk = disk(1);
    let (a, b) = (settled(&disk, "/f", RW, 1, 4096), open(&disk, "/f", RW));
    disk.inject(Fault::eio().on(Op::Sync).once());
    assert!(disk.sync(&a, SyncHow::Data).is_err());
    let late = open(&disk, "/f", RW);
    assert!(disk.sync(&b, SyncHow::Data).is_err());
    for file in [&a, &b, &late] {
        disk.sync(file, SyncHow::Data).unwrap();
    }
}

#[test]
fn a_page_written_again_after_a_failed_sync_is_saved_whole() {
    let disk = disk(1);
    let file = settled(&disk, "/f", RW, 1, 4096);
    write(&disk, &file, 0, &[2; 4096], PLAIN);
    disk.inject(Fault::eio().on(Op::Sync).once());
    disk.sync(&file, SyncHow::Data).unwrap_err();
    write(&disk, &file, 4000, &[3; 10], PLAIN);
    sync(&disk, &file);
    assert_eq!(disk.stable("/f").unwrap()[..4000], [2; 4000]);
}

#[test]
fn a_failed_write_leaves_a_mixture() {
    let mut mixed = 0;
    for seed in 0..100 {
        let disk = disk(seed);
        let file = settled(&disk, "/f", DIRECT, 1, 4096);
        disk.inject(Fault::eio().on(Op::Write).once());
        assert_eq!(try_write(&disk, &file, 0, &[2; 4096], PLAIN).unwrap_err().errno(), Some(libc::EIO));
        let new = read(&disk, &file, 0, 4096).iter().filter(|&&b| b == 2).count();
        assert_eq!(new % 512, 0);
        mixed += u32::from(new != 0 && new != 4096);
    }
    assert!(mixed > 50, "{mixed}");
}

#[test]
fn short_transfers_are_short_and_aligned() {
    let disk = disk(5);
    let file = settled(&disk, "/f", DIRECT, 1, 8192);
    disk.inject(Fault::short());
    for _ in 0..50 {
        let moved = disk.read_at(&file, 0, &mut [0; 4096]).unwrap();
        assert!(moved > 0 && moved < 4096 && moved % 512 == 0, "{moved}");
        let moved = try_write(&disk, &file, 0, &[2; 4096], PLAIN).unwrap();
        assert!(moved > 0 && moved < 4096 && moved % 512 == 0, "{moved}");
    }
    assert_eq!(disk.read_at(&file, 0, &mut [0; 512]).unwrap(), 512, "one sector cannot be short");
}

#[test]
fn a_short_direct_write_cuts_no_physical_sector_that_it_covers() {
    let disk = SimDisk::new(SimOptions { seed: 6, physical_sector_bytes: 4096, ..SimOptions::default() });
    let file = settled(&disk, "/f", DIRECT, 1, 32768);
    disk.inject(Fault::short().on(Op::Write));
    let mut within = 0;
    for _ in 0..200 {
        let moved = try_write(&disk, &file, 1024, &[2; 16384], PLAIN).unwrap();
        assert!(moved < 3072 || (1024 + moved) % 4096 == 0, "{moved}");
        within += u32::from(moved < 3072);
    }
    assert!(within > 0, "the first one is not covered, and may be cut");
    for _ in 0..50 {
        assert_eq!(try_write(&disk, &file, 4096, &[3; 4096], PLAIN).unwrap(), 4096);
        let moved = try_write(&disk, &file, 8192, &[4; 8192], PLAIN).unwrap();
        assert!(moved == 4096 || moved == 8192, "{moved}");
    }
}

#[test]
fn slow_operations_take_virtual_time_only() {
    let disk = disk(1);
    disk.inject(Fault::slow(Duration::from_secs(3600)).on(Op::Open).once());
    open(&disk, "/f", RW);
    assert!(disk.now() >= Duration::from_secs(3600));
}

#[test]
fn a_rotten_bit_survives_everything_but_the_page_cache_hides_it() {
    for how in [RW, DIRECT] {
        let disk = disk(9);
        let file = settled(&disk, "/f", how, 1, 4096);
        disk.inject(Fault::bit_rot().once());
        let found = read(&disk, &file, 0, 4096);
        assert_eq!(found == [1; 4096], !how.direct, "cached pages still read well");
        disk.power_cut();
        let found = disk.seen("/f").unwrap();
        assert_eq!(found.iter().map(|b| (b ^ 1).count_ones()).sum::<u32>(), 1, "one bit");
    }
    let disk = disk(1);
    settled(&disk, "/f", DIRECT, 0, 512);
    disk.flip_bit("/f", 3, 2).unwrap();
    assert_eq!(disk.stable("/f").unwrap()[3], 4);
    assert_eq!(disk.flip_bit("/f", 512, 2).unwrap_err().errno(), Some(libc::EINVAL));
    assert_eq!(disk.flip_bit("/none", 0, 2).unwrap_err().errno(), Some(libc::ENOENT));
}

#[test]
fn a_lost_write_is_acknowledged_and_flushed_and_not_there() {
    let disk = disk(2);
    let file = settled(&disk, "/f", DIRECT, 1, 4096);
    disk.inject(Fault::lost_write().once());
    write(&disk, &file, 0, &[2; 512], DSYNC);
    disk.sync(&file, SyncHow::All).unwrap();
    assert_eq!(read(&disk, &file, 0, 512), [1; 512]);

    let disk = common::disk(2);
    let file = settled(&disk, "/f", RW, 1, 4096);
    disk.inject(Fault::lost_write().once());
    write(&disk, &file, 0, &[2; 512], PLAIN);
    disk.sync(&file, SyncHow::All).unwrap();
    assert_eq!(read(&disk, &file, 0, 512), [2; 512], "the page cache hides it");
    disk.power_cut();
    assert_eq!(disk.seen("/f").unwrap()[..512], [1; 512]);
}

#[test]
fn a_misdirected_write_hits_another_place() {
    for seed in 0..50 {
        let disk = disk(seed);
        let file = settled(&disk, "/f", DIRECT, 1, 65536);
        disk.inject(Fault::misdirected_write().once());
        write(&disk, &file, 4096, &[2; 4096], PLAIN);
        sync(&disk, &file);
        disk.power_cut();
        let found = disk.seen("/f").unwrap();
        assert_eq!(found.iter().filter(|&&b| b == 2).count(), 4096, "seed {seed}");
        assert_ne!(found[4096..8192], [2; 4096], "seed {seed}");
    }
}

#[test]
fn a_full_disk_says_so_and_recovers_its_room() {
    let disk = SimDisk::new(SimOptions { capacity_bytes: 8 * 4096, ..SimOptions::default() });
    let (a, b) = (open(&disk, "/a", RW), open(&disk, "/b", RW));
    disk.set_len(&a, 1 << 40).unwrap();
    assert_eq!(disk.free_bytes("/".as_ref()).unwrap(), 8 * 4096, "a hole costs nothing");
    disk.allocate(&a, Allocate::KeepSize, 0, 6 * 4096).unwrap();
    assert_eq!(disk.allocate(&b, Allocate::Unwritten, 0, 3 * 4096).unwrap_err().errno(), Some(libc::ENOSPC));
    assert_eq!(disk.len(&b).unwrap(), 0);
    assert_eq!(try_write(&disk, &b, 0, &[1; 3 * 4096], PLAIN).unwrap(), 2 * 4096, "what fits");
    assert_eq!(try_write(&disk, &b, 2 * 4096, &[1; 10], PLAIN).unwrap_err().errno(), Some(libc::ENOSPC));
    write(&disk, &a, 0, &[1; 6 * 4096], PLAIN);
    assert_eq!(try_write(&disk, &a, 1 << 30, &[1], PLAIN).unwrap_err().errno(), Some(libc::ENOSPC), "into the hole");
    disk.remove("/a".as_ref()).unwrap();
    assert_eq!(disk.free_bytes("/".as_ref()).unwrap(), 0, "an open file keeps its blocks");
    drop(a);
    assert_eq!(disk.free_bytes("/".as_ref()).unwrap(), 6 * 4096);
    disk.set_len(&b, 0).unwrap();
    assert_eq!(disk.free_bytes("/".as_ref()).unwrap(), 8 * 4096);
}

#[test]
fn bad_requests_get_the_kernels_answers() {
    let disk = disk(1);
    let errno = |error: seawall_io::IoError| error.errno();
    let direct = open(&disk, "/d/f", DIRECT);
    for (offset, len) in [(1, 512), (0, 100), (512, 513)] {
        let error = try_write(&disk, &direct, offset, &vec![0; len], PLAIN).unwrap_err();
        assert_eq!((error.errno(), error.offset, error.len), (Some(libc::EINVAL), Some(offset), Some(len as u64)));
        assert_eq!(errno(disk.read_at(&direct, offset, &mut vec![0; len]).unwrap_err()), Some(libc::EINVAL));
    }
    let reader = open(&disk, "/d/f", OpenHow { write: false, ..RW });
    assert_eq!(errno(try_write(&disk, &reader, 0, &[1], PLAIN).unwrap_err()), Some(libc::EBADF));
    assert_eq!(errno(disk.set_len(&reader, 1).unwrap_err()), Some(libc::EINVAL));
    let refused = |path: &str, create| disk.open(path.as_ref(), OpenHow { create, ..RW }).unwrap_err().errno();
    assert_eq!(refused("/none", Create::No), Some(libc::ENOENT));
    assert_eq!(refused("/d/f", Create::New), Some(libc::EEXIST));
    assert_eq!(refused("/d", Create::IfMissing), Some(libc::EISDIR));
    assert_eq!(refused("/d/f/g", Create::IfMissing), Some(libc::ENOTDIR));
    assert_eq!(errno(disk.remove("/none".as_ref()).unwrap_err()), Some(libc::ENOENT));
    assert_eq!(errno(disk.rename("/none".as_ref(), "/x".as_ref()).unwrap_err()), Some(libc::ENOENT));
    assert_eq!(errno(disk.set_len(&direct, u64::MAX).unwrap_err()), Some(libc::EINVAL));
    assert_eq!(errno(try_write(&disk, &direct, u64::MAX - 511, &[0; 512], PLAIN).unwrap_err()), Some(libc::EINVAL));
    assert_eq!(errno(disk.allocate(&direct, Allocate::Unwritten, 0, 0).unwrap_err()), Some(libc::EINVAL));
    assert_eq!(errno(disk.allocate(&direct, Allocate::Unwritten, 0, 1 << 62).unwrap_err()), Some(libc::ENOSPC));
    let os = seawall_io::Handle::simulated("/d/f".as_ref(), u64::MAX);
    assert_eq!(errno(disk.len(&os).unwrap_err()), Some(libc::ENXIO));
}

#[test]
fn locks_belong_to_handles() {
    let disk = disk(1);
    let (a, b) = (open(&disk, "/f", RW), open(&disk, "/f", RW));
    disk.lock(&a).unwrap();
    disk.lock(&a).unwrap();
    assert_eq!(disk.lock(&b).unwrap_err().kind, IoErrorKind::Locked);
    let clone = a.clone();
    drop(a);
    assert_eq!(disk.lock(&b).unwrap_err().kind, IoErrorKind::Locked);
    drop(clone);
    disk.lock(&b).unwrap();
}

#[test]
fn the_page_cache_is_what_buffered_io_touched() {
    let disk = disk(1);
    let (buffered, direct) = (open(&disk, "/f", RW), open(&disk, "/f", DIRECT));
    write(&disk, &direct, 0, &[1; 16384], PLAIN);
    assert_eq!(disk.cached(&buffered, 16384).unwrap().resident, 0);
    read(&disk, &buffered, 5000, 10);
    write(&disk, &buffered, 8192, &[2; 100], PLAIN);
    let cached = disk.cached(&buffered, 16384).unwrap();
    assert_eq!((cached.resident, cached.dirty), (8192, Some(4096)));
    disk.drop_cache(&buffered, 0, 0).unwrap();
    let cached = disk.cached(&buffered, 16384).unwrap();
    assert_eq!((cached.resident, cached.dirty, cached.evicted), (4096, Some(4096), Some(0)));
    sync(&disk, &buffered);
    disk.drop_cache(&buffered, 8193, 0).unwrap();
    assert_eq!(disk.cached(&buffered, 16384).unwrap().resident, 4096, "a page only in part inside the range stays");
    disk.drop_cache(&buffered, 8192, 4096).unwrap();
    assert_eq!(disk.cached(&buffered, 16384).unwrap().resident, 0);
    write(&disk, &buffered, 0, &[3; 4096], WriteHow { dontcache: true, ..PLAIN });
    assert_eq!(disk.cached(&buffered, 16384).unwrap().resident, 0);
    write(&disk, &buffered, 0, &[4; 4096], PLAIN);
    write(&disk, &direct, 0, &[5; 512], PLAIN);
    assert_eq!(disk.cached(&buffered, 16384).unwrap().resident, 0, "a direct write throws pages out");
    assert_eq!(read(&disk, &buffered, 0, 4096)[..1024], [[5; 512], [4; 512]].concat());
}

#[test]
fn hidden_reads_of_partial_pages_are_counted() {
    let disk = disk(1);
    let file = settled(&disk, "/log", RW, 1, 8192);
    disk.drop_cache(&file, 0, 0).unwrap();
    let before = disk.trace().len();
    write(&disk, &file, 0, &[2; 4096], PLAIN);
    write(&disk, &file, 4096, &[2; 512], PLAIN);
    write(&disk, &file, 4608, &[2; 512], PLAIN);
    let reads: Vec<u64> = disk.trace().since(before).map(|entry| entry.device_read).collect();
    assert_eq!(reads, [0, 4096, 0], "trap 19");
}

#[test]
fn legality_is_stated() {
    use seawall_sim::Legality::{Illegal, Legal};
    for (fault, legality) in [
        (Fault::eio(), Legal),
        (Fault::enospc(), Legal),
        (Fault::short(), Legal),
        (Fault::cancelled(), Legal),
        (Fault::slow(Duration::ZERO), Legal),
        (Fault::bit_rot(), Illegal),
        (Fault::lost_write(), Illegal),
        (Fault::misdirected_write(), Illegal),
    ] {
        assert_eq!(fault.kind().legality(), legality);
    }
    assert_eq!(Fault::eio().kind(), FaultKind::Errno(libc::EIO));
}
