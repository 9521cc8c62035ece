//! The files of `seawall-io` on a disk that loses unsynced data: names lead to whole files only, barriers
//! hold.

use seawall_io::{
    AlignedBuf, Allocate, Barrier, Cause, Create, Disk, File, FileClass, FileOptions, Fill, FillOptions, FillStep,
    FlushMethod, SyncHow, recycle, sweep,
};
use seawall_sim::{SimDisk, SimOptions};
use std::path::Path;
use std::sync::Arc;

const LEN: u64 = 1 << 20;
const BLOCK: usize = 4096;

fn disk(seed: u64) -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed, ..SimOptions::default() })
}

fn names(disk: &SimDisk) -> Vec<String> {
    let list = disk.list(Path::new("/db")).unwrap_or_default();
    list.iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// A power cut after every number of steps, and one after the end.
#[test]
fn a_final_name_shows_a_whole_synced_file() {
    for seed in 0..15 {
        for write_zeroes in [true, false] {
            for steps in 0..8 {
                let disk = disk(seed);
                let target = Path::new("/db/log.000001");
                let options = FillOptions { reserve: 0, write_zeroes, ..FillOptions::new(FileClass::Redo, LEN) };
                let mut fill = Some(Fill::begin(disk.clone(), target, options).unwrap());
                let mut ready = None;
                for _ in 0..steps {
                    match fill.take().map(|f| f.step().unwrap()) {
                        Some(FillStep::Filling(rest)) => fill = Some(rest),
                        Some(FillStep::Ready(file)) => ready = Some(file),
                        None => {}
                    }
                }
                disk.power_cut();
                let after = names(&disk);
                let whole = after.iter().any(|n| n == "log.000001");
                assert!(!whole || ready.is_some(), "seed {seed}, {steps} steps: {after:?}");
                if ready.is_some() {
                    assert!(whole, "seed {seed}: ready, and then gone: {after:?}");
                    assert!(
                        disk.seen(target) == Some(vec![0; LEN as usize]),
                        "seed {seed}, write_zeroes {write_zeroes}"
                    );
                }
                drop(ready);
                drop(fill);
                sweep(&*disk, Path::new("/db")).unwrap();
                assert_eq!(names(&disk).len(), usize::from(whole), "seed {seed}");
            }
        }
    }
}

/// Dies inside the last step: between the file's sync, the rename and the directory's sync.
#[test]
fn a_cut_inside_the_last_step_leaves_a_whole_file_or_none() {
    use seawall_io::Op;
    use seawall_sim::Fault;
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..30 {
        for nth in 1..4 {
            let disk = disk(seed);
            let target = Path::new("/db/log.000001");
            let options = FillOptions { reserve: 0, write_zeroes: false, ..FillOptions::new(FileClass::Redo, LEN) };
            let mut fill = Fill::begin(disk.clone(), target, options).unwrap();
            while fill.progress().0 < LEN {
                match fill.step().unwrap() {
                    FillStep::Filling(rest) => fill = rest,
                    FillStep::Ready(_) => unreachable!("all is written, nothing is synced"),
                }
            }
            // The rename, the directory's sync, or neither fails; then the power goes.
            disk.inject(match nth {
                1 => Fault::eio().on(Op::Directory).nth(2).once(),
                // The file's own sync comes first.
                2 => Fault::eio().on(Op::Sync).nth(2).once(),
                _ => Fault::eio().on(Op::Sync).nth(3).once(),
            });
            drop(fill.step());
            disk.power_cut();
            match disk.seen(target) {
                Some(contents) => {
                    kept += 1;
                    assert!(contents == vec![0; LEN as usize], "seed {seed}, fault {nth}");
                }
                None => lost += 1,
            }
        }
    }
    assert!(kept > 0 && lost > 0, "both ends were met: {kept} and {lost}");
}

#[test]
fn a_recycled_file_is_there_once_and_whole() {
    for seed in 0..30 {
        let disk = disk(seed);
        let (used, next) = (Path::new("/db/log.1"), Path::new("/db/log.2"));
        let options = FillOptions { reserve: 0, ..FillOptions::new(FileClass::Redo, 64 << 10) };
        let mut fill = Fill::begin(disk.clone(), used, options).unwrap();
        let file = loop {
            match fill.step().unwrap() {
                FillStep::Filling(rest) => fill = rest,
                FillStep::Ready(file) => break file,
            }
        };
        file.write_durable_at(0, &AlignedBuf::copy_of(&[7; BLOCK]), Cause::Commit).unwrap();
        drop(file);
        let half_way = seed % 2 == 0;
        if half_way {
            disk.rename_new(used, next).unwrap();
        } else {
            recycle(&*disk, used, next).unwrap();
        }
        disk.power_cut();
        let after = names(&disk);
        assert!(after == ["log.2"] || (half_way && after == ["log.1"]), "seed {seed}: {after:?}");
        let contents = disk.seen(Path::new("/db").join(&after[0])).unwrap();
        assert!(contents.len() == 64 << 10 && contents[..BLOCK].iter().all(|&b| b == 7), "seed {seed}");
    }
}

/// Random writes, growth and barriers; bytes covered by a barrier or a durable write survive the cut.
#[test]
fn barriers_and_durable_writes_keep_their_word() {
    for method in FlushMethod::ALL {
        for seed in 0..30u64 {
            let disk = disk(seed);
            let path = Path::new("/db/data");
            let options = FileOptions::new(FileClass::Data, method).create(Create::New);
            let file = File::open(disk.clone(), path, options).unwrap();
            disk.sync_dir(Path::new("/db")).unwrap();
            // Per block: its content at the last barrier, and whether it was written since.
            let mut covered: Vec<(u8, bool)> = vec![(0, false); 48];
            let mut now = [0u8; 48];
            let mut covered_len = 0;
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut below = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % n
            };
            for round in 0..30u8 {
                let at = usize::try_from(below(48)).unwrap();
                let data = AlignedBuf::copy_of(&[round + 1; BLOCK]);
                let offset = (at * BLOCK) as u64;
                match below(6) {
                    0 => {
                        file.write_durable_at(offset, &data, Cause::Commit).unwrap();
                        now[at] = round + 1;
                        covered[at] = (round + 1, false);
                        covered_len = covered_len.max(offset + BLOCK as u64);
                    }
                    1 => {
                        if file.barrier(Cause::Clean).unwrap() == Barrier::Flushed || method == FlushMethod::ODsync {
                            covered = now.iter().map(|&b| (b, false)).collect();
                            covered_len = file.len();
                        }
                    }
                    2 => file.grow(Allocate::Unwritten, below(48) * BLOCK as u64, Cause::Preallocate).unwrap(),
                    3 => {
                        let bufs = vec![data.into()];
                        let write = seawall_io::FileRequest { write: true, offset, bufs, cause: Cause::Clean };
                        let pending = file.submit(vec![write]).unwrap().remove(0);
                        file.wait(pending).unwrap();
                        now[at] = round + 1;
                        covered[at].1 = true;
                    }
                    4 if round % 7 == 0 => {
                        file.set_method(method).unwrap();
                        covered = now.iter().map(|&b| (b, false)).collect();
                        covered_len = file.len();
                    }
                    _ => {
                        file.write_at(offset, &data, Cause::Clean).unwrap();
                        now[at] = round + 1;
                        covered[at].1 = true;
                    }
                }
            }
            disk.power_cut();
            let after = disk.seen(path).unwrap();
            assert!(after.len() as u64 >= covered_len, "{method}, seed {seed}: {} of {covered_len} bytes", after.len());
            for (at, &(byte, rewritten)) in covered.iter().enumerate() {
                let block = after.get(at * BLOCK..(at + 1) * BLOCK).unwrap_or_default();
                if !rewritten && byte != 0 {
                    assert!(!block.is_empty() && block.iter().all(|&b| b == byte), "{method}, seed {seed}, block {at}");
                }
            }
        }
    }
}

#[test]
fn a_whole_sync_makes_a_length_without_data_durable() {
    let disk = disk(3);
    let options = FileOptions::new(FileClass::Data, FlushMethod::Fsync).create(Create::New);
    let file = File::open(disk.clone(), Path::new("/db/data"), options).unwrap();
    disk.sync_dir(Path::new("/db")).unwrap();
    file.grow(Allocate::Unwritten, LEN, Cause::Preallocate).unwrap();
    file.barrier(Cause::Preallocate).unwrap();
    let handle = disk.open(Path::new("/db/data"), seawall_io::OpenHow::default()).unwrap();
    assert_eq!(disk.len(&handle).unwrap(), LEN);
    disk.sync(&handle, SyncHow::Data).unwrap();
    disk.power_cut();
    assert_eq!(disk.seen("/db/data").map(|c| c.len() as u64), Some(LEN));
}

/// A direct write may stop inside its first block, and cannot continue there: the block is written again.
#[test]
fn a_write_cut_short_inside_its_first_block_is_completed() {
    use seawall_io::Op;
    use seawall_sim::Fault;
    for seed in 0..20 {
        let disk = disk(seed);
        let path = Path::new("/db/log");
        let options = FileOptions::new(FileClass::Redo, FlushMethod::ODirect).create(Create::New);
        let file = File::open(disk.clone(), path, options).unwrap();
        disk.inject(Fault::short().on(Op::Write).times(2));
        file.write_durable_at(0, &AlignedBuf::copy_of(&[7; BLOCK]), Cause::Commit).unwrap();
        assert_eq!(disk.stable(path).map_or(0, |bytes| bytes.len()), 0, "the name is not stable yet");
        disk.sync_dir("/db".as_ref()).unwrap();
        disk.power_cut();
        assert_eq!(disk.seen(path).unwrap(), [7; BLOCK], "seed {seed}");
    }
}
