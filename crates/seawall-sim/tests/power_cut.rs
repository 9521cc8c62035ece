//! What a power cut may lose and what it may not, over many seeds.

mod common;

use common::*;
use seawall_io::{Allocate, Create, Disk as _, OpenHow, SyncHow, WriteHow};
use seawall_sim::{SimDisk, SimOptions};
use std::collections::BTreeSet;

const SEEDS: u64 = 500;

#[test]
fn synced_data_always_survives() {
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = settled(&disk, "/f", if seed % 2 == 0 { RW } else { DIRECT }, 1, 8192);
        write(&disk, &file, 4096, &[2; 4096], PLAIN);
        sync(&disk, &file);
        write(&disk, &file, 8192, &[3; 4096], PLAIN);
        disk.power_cut();
        let found = disk.seen("/f").unwrap();
        assert!(found[..4096].iter().all(|&b| b == 1) && found[4096..8192].iter().all(|&b| b == 2), "seed {seed}");
        // Unsynced blocks hold new data or zeroes, never anything else.
        assert!(found[8192..].iter().all(|&b| b == 3 || b == 0), "seed {seed}");
    }
}

#[test]
fn unsynced_data_is_kept_lost_and_torn_at_sectors() {
    for (physical, sectors) in [(512, 8), (4096, 1)] {
        let (mut kept, mut lost, mut torn, mut hole_in_the_middle) = (0, 0, 0, 0);
        for seed in 0..SEEDS {
            let disk = SimDisk::new(SimOptions { seed, physical_sector_bytes: physical, ..SimOptions::default() });
            let file = settled(&disk, "/f", DIRECT, 1, 4096);
            write(&disk, &file, 0, &[2; 4096], PLAIN);
            disk.power_cut();
            let found = disk.seen("/f").unwrap();
            let units: Vec<u8> = found.chunks(4096 / sectors).map(|unit| unit[0]).collect();
            assert!(found.chunks(4096 / sectors).all(|unit| unit.iter().all(|&b| b == unit[0])), "seed {seed}");
            match units.iter().filter(|&&b| b == 2).count() {
                0 => lost += 1,
                n if n == sectors => kept += 1,
                _ => torn += 1,
            }
            hole_in_the_middle += u32::from(units.windows(3).any(|w| w == [2, 1, 2]));
        }
        assert!(kept > 50 && lost > 50, "{physical}: kept {kept}, lost {lost}");
        assert_eq!(torn > 50, physical == 512, "{physical}: torn {torn}");
        assert_eq!(hole_in_the_middle > 10, physical == 512, "trap 1 needs first and third block without the second");
    }
}

/// Whole pages of atomic writes: by direct calls and by requests, in flight or done, overlapping.
#[test]
fn atomic_writes_are_kept_or_lost_as_a_whole() {
    const PAGE: usize = 16384;
    let atomic = WriteHow { atomic: true, ..PLAIN };
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(SimOptions { seed, atomic_write_bytes: PAGE as u32, ..SimOptions::default() });
        let file = settled(&disk, "/f", DIRECT, 1, 2 * PAGE);
        for round in 2..5 {
            if (seed + round) % 2 == 0 {
                write(&disk, &file, PAGE as u64, &[round as u8; PAGE], atomic);
            } else {
                let tickets = disk.submit(vec![write_request(&file, PAGE as u64, &[round as u8; PAGE], atomic)]);
                if seed % 3 > 0 {
                    disk.wait(&tickets[0]).result.unwrap();
                }
            }
        }
        disk.power_cut();
        let found = disk.seen("/f").unwrap();
        assert!(found[..PAGE].iter().all(|&b| b == 1), "seed {seed}");
        assert!(found[PAGE..].iter().all(|&b| b == found[PAGE]), "seed {seed}");
        outcomes.insert(found[PAGE]);
    }
    assert_eq!(outcomes, BTreeSet::from([1, 2, 3, 4]), "every one is the last of some");
    let disk = SimDisk::new(SimOptions { atomic_write_bytes: PAGE as u32, ..SimOptions::default() });
    let (direct, cached) = (settled(&disk, "/f", DIRECT, 1, 4 * PAGE), settled(&disk, "/c", RW, 1, PAGE));
    for (file, offset, len) in
        [(&direct, 0, 3 * 4096), (&direct, 4096, 8192), (&direct, 0, 2 * PAGE), (&cached, 0, PAGE)]
    {
        let refused = try_write(&disk, file, offset, &vec![9; len], atomic).unwrap_err();
        assert_eq!(refused.errno(), Some(22), "{len} bytes at {offset}");
    }
}

#[test]
fn of_overlapping_writes_any_may_be_the_last() {
    let outcomes: BTreeSet<u8> = (0..SEEDS)
        .map(|seed| {
            let disk = disk(seed);
            let file = settled(&disk, "/f", DIRECT, 1, 512);
            write(&disk, &file, 0, &[2; 512], PLAIN);
            write(&disk, &file, 0, &[3; 512], PLAIN);
            disk.power_cut();
            disk.seen("/f").unwrap()[0]
        })
        .collect();
    assert_eq!(outcomes, BTreeSet::from([1, 2, 3]));
}

#[test]
fn a_durable_write_covers_its_own_bytes_and_nothing_else() {
    let mut neighbour = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = settled(&disk, "/f", DIRECT, 1, 8192);
        write(&disk, &file, 0, &[2; 512], PLAIN);
        write(&disk, &file, 512, &[2; 512], PLAIN);
        write(&disk, &file, 512, &[3; 512], DSYNC);
        disk.power_cut();
        let found = disk.seen("/f").unwrap();
        assert!(found[512..1024].iter().all(|&b| b == 3), "seed {seed}");
        neighbour.insert(found[0]);
    }
    assert_eq!(neighbour, BTreeSet::from([1, 2]), "a FUA write is no barrier for others");
}

#[test]
fn an_o_dsync_handle_and_a_growing_durable_write_are_durable() {
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = open(&disk, "/f", OpenHow { dsync: true, ..RW });
        sync_dir(&disk, "/");
        write(&disk, &file, 0, &[7; 700], PLAIN);
        disk.power_cut();
        assert_eq!(disk.seen("/f"), Some(vec![7; 700]), "seed {seed}");
    }
}

#[test]
fn a_file_without_directory_sync_may_vanish_or_appear_empty() {
    let (mut gone, mut whole) = (0, 0);
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = open(&disk, "/f", RW);
        write(&disk, &file, 0, b"data", PLAIN);
        disk.sync(&file, SyncHow::All).unwrap();
        disk.power_cut();
        match disk.seen("/f") {
            None => gone += 1,
            Some(found) => {
                assert_eq!(found, b"data", "seed {seed}: the file itself was synced");
                whole += 1;
            }
        }
    }
    assert!(gone > 50 && whole > 50, "gone {gone}, whole {whole}");
}

#[test]
fn renames_are_atomic_and_pending_until_the_directory_is_synced() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        settled(&disk, "/new", RW, 2, 4);
        settled(&disk, "/old", RW, 1, 4);
        disk.rename("/new".as_ref(), "/old".as_ref()).unwrap();
        disk.power_cut();
        let found = (disk.seen("/old").unwrap()[0], disk.seen("/new").is_some());
        assert!(found == (1, true) || found == (2, false), "seed {seed}: {found:?}");
        outcomes.insert(found);

        let disk = common::disk(seed);
        settled(&disk, "/new", RW, 2, 4);
        settled(&disk, "/old", RW, 1, 4);
        disk.rename("/new".as_ref(), "/old".as_ref()).unwrap();
        sync_dir(&disk, "/");
        disk.power_cut();
        assert_eq!((disk.seen("/old").unwrap()[0], disk.seen("/new")), (2, None), "seed {seed}");
    }
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn a_rename_between_directories_needs_both_synced() {
    let run = |seed, dirs: &[&str]| {
        let disk = disk(seed);
        let file = open(&disk, "/a/f", RW);
        write(&disk, &file, 0, b"x", PLAIN);
        sync(&disk, &file);
        sync_dir(&disk, "/a");
        disk.rename("/a/f".as_ref(), "/b/f".as_ref()).unwrap();
        dirs.iter().for_each(|dir| sync_dir(&disk, dir));
        disk.power_cut();
        assert_ne!(disk.seen("/a/f").is_some(), disk.seen("/b/f").is_some(), "seed {seed}: one name");
        disk.seen("/b/f").is_some()
    };
    assert!((0..SEEDS).all(|seed| run(seed, &["/a", "/b"])));
    for half in [["/a"], ["/b"]] {
        let moved = (0..SEEDS).filter(|&seed| run(seed, &half)).count();
        assert!(moved > 50 && moved < 450, "{moved}");
    }
}

#[test]
fn a_removal_may_be_undone() {
    let back = (0..SEEDS)
        .filter(|&seed| {
            let disk = disk(seed);
            drop(settled(&disk, "/f", RW, 1, 4096));
            disk.remove("/f".as_ref()).unwrap();
            assert_eq!(disk.free_bytes("/".as_ref()).unwrap(), 1 << 30);
            disk.power_cut();
            disk.seen("/f").inspect(|found| assert_eq!(found, &[1; 4096])).is_some()
        })
        .count();
    assert!(back > 50 && back < 450, "{back}");
}

#[test]
fn data_in_unwritten_extents_may_read_as_zeroes_until_synced() {
    let run = |seed, durable: bool, how: Option<Allocate>| {
        let disk = disk(seed);
        let file = open(&disk, "/f", DIRECT);
        match how {
            Some(how) => disk.allocate(&file, how, 0, 4096).unwrap(),
            None => disk.set_len(&file, 4096).unwrap(),
        }
        disk.sync(&file, SyncHow::All).unwrap();
        sync_dir(&disk, "/");
        write(&disk, &file, 0, &[5; 512], PLAIN);
        if durable {
            sync(&disk, &file);
        }
        disk.power_cut();
        disk.seen("/f").unwrap().first().copied()
    };
    for how in [Some(Allocate::Unwritten), Some(Allocate::WriteZeroes), None] {
        assert!((0..SEEDS).all(|seed| run(seed, true, how) == Some(5)), "{how:?}");
        let kept = (0..SEEDS).filter(|&seed| run(seed, false, how) == Some(5)).count();
        // One random decision for the data; where the extent was not written, a second one for its
        // conversion.
        let expected = if how == Some(Allocate::WriteZeroes) { 190..330 } else { 100..220 };
        assert!(expected.contains(&kept), "{how:?}: {kept}");
    }
}

#[test]
fn fdatasync_keeps_the_length_that_data_needs_and_fsync_any() {
    let mut bare = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = settled(&disk, "/f", RW, 1, 100);
        disk.set_len(&file, 5000).unwrap();
        disk.sync(&file, if seed % 2 == 0 { SyncHow::Data } else { SyncHow::All }).unwrap();
        let synced = disk.fork(seed);
        synced.power_cut();
        let len = synced.seen("/f").unwrap().len();
        if seed % 2 == 0 {
            bare.insert(len);
        } else {
            assert_eq!(len, 5000, "seed {seed}");
        }
        // Data inside the grown but not yet stable length, and data beyond it, both need that length.
        write(&disk, &file, 4000, &[2; 10], PLAIN);
        sync(&disk, &file);
        let synced = disk.fork(seed);
        synced.power_cut();
        assert_eq!(synced.seen("/f").unwrap()[4000..4010], [2; 10], "seed {seed}");
        write(&disk, &file, 6000, &[2; 10], PLAIN);
        sync(&disk, &file);
        disk.power_cut();
        assert_eq!(disk.seen("/f").unwrap()[6000..], [2; 10], "seed {seed}");
    }
    assert_eq!(bare, BTreeSet::from([100, 5000]), "growth without data is not fdatasync's business");
}

#[test]
fn a_truncation_that_does_not_persist_takes_later_writes_along() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = settled(&disk, "/f", DIRECT, 1, 4096);
        disk.set_len(&file, 0).unwrap();
        write(&disk, &file, 0, &[2; 512], PLAIN);
        disk.power_cut();
        let found = disk.seen("/f").unwrap();
        if found.len() == 4096 {
            assert!(found.iter().all(|&b| b == 1), "seed {seed}: new bytes in the old blocks");
        } else {
            assert!(found.iter().all(|&b| b == 2 || b == 0), "seed {seed}: old bytes after the truncation");
        }
        outcomes.insert((found.len(), found.first().copied()));
    }
    assert!(outcomes.is_superset(&BTreeSet::from([(4096, Some(1)), (0, None), (512, Some(2)), (512, Some(0))])));
}

#[test]
fn a_synced_truncation_stays() {
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = settled(&disk, "/f", RW, 1, 9000);
        disk.set_len(&file, 5000).unwrap();
        disk.set_len(&file, 9000).unwrap();
        sync(&disk, &file);
        disk.power_cut();
        let found = disk.seen("/f").unwrap();
        assert!(found.len() == 9000 && found[..5000].iter().all(|&b| b == 1), "seed {seed}");
        assert!(found[5000..].iter().all(|&b| b == 0), "seed {seed}");
    }
}

#[test]
fn writes_in_flight_may_persist_in_part() {
    let mut torn = 0;
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = settled(&disk, "/f", DIRECT, 1, 4096);
        let ticket = disk.submit(vec![write_request(&file, 0, &[2; 4096], DSYNC)]).remove(0);
        disk.power_cut();
        assert_eq!(disk.wait(&ticket).result.unwrap_err().errno(), Some(libc::ENXIO));
        let new = disk.seen("/f").unwrap().iter().filter(|&&b| b == 2).count();
        torn += u32::from(new % 4096 != 0);
    }
    assert!(torn > 50, "{torn}");
}

#[test]
fn everything_is_usable_again_after_the_restart() {
    let disk = disk(3);
    let file = settled(&disk, "/f", RW, 1, 10);
    disk.lock(&file).unwrap();
    disk.power_cut();
    assert_eq!(disk.len(&file).unwrap_err().errno(), Some(libc::ENXIO));
    assert_eq!(disk.sync(&file, SyncHow::All).unwrap_err().errno(), Some(libc::ENXIO));
    let again = open(&disk, "/f", RW);
    disk.lock(&again).unwrap();
    write(&disk, &again, 0, &[2; 10], PLAIN);
    assert_eq!(read(&disk, &again, 0, 10), [2; 10]);
}

#[test]
fn a_lying_flush_loses_what_was_acknowledged() {
    let lost = (0..SEEDS)
        .filter(|&seed| {
            let disk = disk(seed);
            let file = settled(&disk, "/f", DIRECT, 1, 4096);
            disk.lying_flush(true);
            write(&disk, &file, 0, &[2; 512], PLAIN);
            sync(&disk, &file);
            write(&disk, &file, 512, &[2; 512], DSYNC);
            let honest = disk.fork(seed);
            honest.lying_flush(false);
            let again = open(&honest, "/f", DIRECT);
            sync(&honest, &again);
            honest.power_cut();
            assert_eq!(honest.seen("/f").unwrap()[..1024], [2; 1024], "seed {seed}: a true flush covers it all");
            disk.power_cut();
            disk.seen("/f").unwrap()[..1024] != [2; 1024]
        })
        .count();
    assert!(lost > 200, "{lost}");
}

#[test]
fn clone_stable_is_the_worst_that_can_happen() {
    let disk = disk(1);
    let file = settled(&disk, "/f", RW, 1, 100);
    write(&disk, &file, 0, &[2; 100], PLAIN);
    open(&disk, "/g", RW);
    let worst = disk.clone_stable();
    assert_eq!(worst.seen("/f"), Some(vec![1; 100]));
    assert_eq!(disk.stable("/f"), Some(vec![1; 100]));
    assert_eq!((worst.seen("/g"), disk.stable("/g")), (None, None));
    assert_eq!(disk.seen("/f"), Some(vec![2; 100]), "the original goes on undisturbed");
    sync(&disk, &file);
}

/// A file and its name are durable; the directory that holds it is found only if its own name is.
#[test]
fn a_directory_is_lost_with_all_in_it_until_its_name_is_synced() {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(SimOptions { seed, lose_directories: true, ..SimOptions::default() });
        let file = disk.open("/a/b/f".as_ref(), OpenHow { create: Create::New, ..RW }).unwrap();
        sync(&disk, &file);
        disk.sync_dir("/a/b".as_ref()).unwrap();
        assert_eq!(disk.clone_stable().seen("/a/b/f"), None);
        disk.sync_dir("/a".as_ref()).unwrap();
        assert_eq!(disk.clone_stable().seen("/a/b/f"), None, "its directory is durable in one that is not");
        let cut = disk.fork(seed);
        cut.power_cut();
        found.insert(cut.seen("/a/b/f").is_some());
        disk.sync_dir("/".as_ref()).unwrap();
        disk.power_cut();
        assert!(disk.seen("/a/b/f").is_some(), "seed {seed}");
    }
    assert_eq!(found, BTreeSet::from([false, true]));
}
