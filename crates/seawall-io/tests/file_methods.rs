//! Every flush method on a real file system and in memory: the same contents, the reported mode, the
//! resulting page cache.

mod common;

use common::skip::skipped;
use common::{Rng, dir, dir_in_memory};
use seawall_io::{
    AlignedBuf, Backend, Barrier, Cause, Create, Disk, File, FileClass, FileOptions, FileRequest, FlushMethod,
    IoErrorKind, IoStats, Op, OsDisk,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: usize = 4096;

fn open(path: &Path, method: FlushMethod, create: Create) -> File {
    let disk = Arc::new(OsDisk::new(Backend::Auto, None).unwrap());
    File::open(disk, path, FileOptions::new(FileClass::Redo, method).create(create)).unwrap()
}

/// Directories to try, with the file system's name where the test depends on it.
fn places() -> Vec<tempfile::TempDir> {
    std::iter::once(dir()).chain(dir_in_memory()).collect()
}

/// The `O_*` flags of this process's descriptors that are open on `path`.
fn open_flags(path: &Path) -> Vec<i32> {
    let path = path.canonicalize().unwrap();
    let mut flags = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if std::fs::read_link(entry.path()).is_ok_and(|to| to == path) {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let text = std::fs::read_to_string(info).unwrap_or_default();
            let line = text.lines().find_map(|l| l.strip_prefix("flags:")).unwrap_or("0").trim().to_owned();
            flags.push(i32::from_str_radix(&line, 8).unwrap());
        }
    }
    flags
}

#[test]
fn all_methods_give_the_same_contents() {
    for place in places() {
        let mut contents = Vec::new();
        for method in FlushMethod::ALL {
            let path = place.path().join(method.name());
            let file = open(&path, method, Create::New);
            let mut rng = Rng::new(1);
            let mut block = AlignedBuf::zeroed(4 * BLOCK);
            for i in 0..24u64 {
                rng.fill(&mut block);
                let at = rng.below(64) * BLOCK as u64;
                match i % 4 {
                    0 => file.write_at(at, &block, Cause::Clean).unwrap(),
                    1 => file.write_durable_at(at, &block[..BLOCK], Cause::Commit).unwrap(),
                    2 => {
                        file.write_vectored_at(at, &[&block[BLOCK..2 * BLOCK], &block[..BLOCK]], Cause::Clean).unwrap();
                    }
                    _ => {
                        let bufs = vec![AlignedBuf::copy_of(&block).into()];
                        let request = FileRequest { write: true, offset: at, bufs, cause: Cause::Clean };
                        let pending = file.submit(vec![request]).unwrap().remove(0);
                        assert_eq!(file.wait(pending).unwrap()[0][..], block[..]);
                    }
                }
                file.barrier(Cause::Checkpoint).unwrap();
            }
            let mut whole = AlignedBuf::zeroed(usize::try_from(file.len()).unwrap());
            file.read_at(0, &mut whole, Cause::Recovery).unwrap();
            assert!(std::fs::read(&path).unwrap() == whole[..], "{method}");
            contents.push(whole.to_vec());
        }
        assert!(contents.iter().all(|c| *c == contents[0]), "{}", place.path().display());
    }
}

#[test]
fn the_mode_reported_is_the_mode_in_effect() {
    for place in places() {
        for method in FlushMethod::ALL {
            let path = place.path().join(method.name());
            let file = open(&path, method, Create::New);
            let mode = file.mode();
            let flags = open_flags(&path);
            assert_eq!(flags.len(), 1);
            assert_eq!(mode.direct, flags[0] & libc::O_DIRECT != 0, "{mode} {flags:x?}");
            assert_eq!(method == FlushMethod::ODsync, flags[0] & libc::O_DSYNC != 0, "{mode} {flags:x?}");
            let data = AlignedBuf::copy_of(&[1; 16 * BLOCK]);
            file.write_at(0, &data, Cause::Other).unwrap();
            file.sync(Cause::Other).unwrap();
            let resident = file.cached().unwrap().resident;
            // "Direct" means that the page cache holds nothing; an accepted flag is not enough.
            assert_eq!(mode.direct, resident == 0, "{mode}: {resident} bytes in the page cache");
            assert_eq!(mode.degraded.is_some(), method.is_direct() && !mode.direct, "{mode}");
            if mode.degraded.is_some() {
                assert!(mode.to_string().contains("buffered"), "{mode}");
                file.write_at(1, b"any offset will do", Cause::Other).unwrap();
            }
        }
    }
}

#[test]
fn misaligned_direct_requests_are_named_before_the_disk_is_asked() {
    let dir = dir();
    let path = dir.path().join("f");
    let file = open(&path, FlushMethod::ODirect, Create::New);
    let mode = file.mode();
    if !mode.direct {
        skipped(format_args!("no direct I/O: {mode}"));
        return;
    }
    let needed = mode.align_bytes;
    let align = needed as usize;
    let data = AlignedBuf::zeroed(2 * BLOCK);
    let check = |result: Result<(), seawall_io::IoError>, op, expected: &str| {
        let e = result.unwrap_err();
        assert_eq!(e.op, op);
        assert!(
            matches!(e.kind, IoErrorKind::Misaligned { needed: n, what } if n == needed && what == expected),
            "{e}"
        );
        assert!(!e.is_fatal() && e.path == path && e.offset.is_some() && e.len.is_some(), "{e}");
    };
    let half = align / 2;
    check(file.write_at(half as u64, &data[..align], Cause::Other), Op::Write, "offset");
    check(file.write_at(0, &data[..half], Cause::Other), Op::Write, "length");
    check(file.write_at(0, &data[half..half + align], Cause::Other), Op::Write, "buffer address");
    check(file.write_durable_vectored_at(0, &[&data[..align], &data[..1]], Cause::Other), Op::DurableWrite, "length");
    let mut buf = AlignedBuf::zeroed(2 * BLOCK);
    check(file.read_at(half as u64, &mut buf[..align], Cause::Other), Op::Read, "offset");
    check(file.read_at(0, &mut buf[half..half + align], Cause::Other), Op::Read, "buffer address");
    let good =
        FileRequest { write: true, offset: 0, bufs: vec![AlignedBuf::zeroed(BLOCK).into()], cause: Cause::Other };
    let bad = FileRequest { write: true, offset: 0, bufs: vec![AlignedBuf::zeroed(half).into()], cause: Cause::Other };
    check(file.submit(vec![good, bad]).map(drop), Op::Write, "length");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "nothing of a refused batch was submitted");
    // The smallest transfer that the mode promises works.
    file.write_at(needed.into(), &data[..align], Cause::Other).unwrap();
}

#[test]
fn an_unaligned_tail_ends_the_read() {
    for place in places() {
        for method in FlushMethod::ALL {
            let path = place.path().join(method.name());
            std::fs::write(&path, vec![3u8; 3 * BLOCK + 1000]).unwrap();
            let file = open(&path, method, Create::No);
            let mut buf = AlignedBuf::zeroed(2 * BLOCK);
            let e = file.read_at(2 * BLOCK as u64, &mut buf, Cause::DemandRead).unwrap_err();
            assert_eq!(e.kind, IoErrorKind::UnexpectedEof { got: BLOCK as u64 + 1000 }, "{method}: {e}");
            assert!(buf[..BLOCK + 1000].iter().all(|&b| b == 3));
            let e = file.read_at(8 * BLOCK as u64, &mut buf, Cause::DemandRead).unwrap_err();
            assert_eq!(e.kind, IoErrorKind::UnexpectedEof { got: 0 }, "{method}: {e}");
            let read = FileRequest {
                write: false,
                offset: 2 * BLOCK as u64,
                bufs: vec![AlignedBuf::zeroed(2 * BLOCK).into()],
                cause: Cause::Prefetch,
            };
            let pending = file.submit(vec![read]).unwrap().remove(0);
            let e = file.wait(pending).unwrap_err();
            assert_eq!(e.kind, IoErrorKind::UnexpectedEof { got: BLOCK as u64 + 1000 }, "{method}: {e}");
        }
    }
}

#[test]
fn impossible_offsets_are_errors_not_panics() {
    let dir = dir();
    let file = open(&dir.path().join("f"), FlushMethod::Fsync, Create::New);
    for offset in [u64::MAX, u64::MAX - 3, 1 << 63] {
        assert_eq!(file.write_at(offset, &[1; 16], Cause::Other).unwrap_err().errno(), Some(libc::EINVAL));
        assert_eq!(file.read_at(offset, &mut [1; 16], Cause::Other).unwrap_err().errno(), Some(libc::EINVAL));
        let write = FileRequest { write: true, offset, bufs: vec![AlignedBuf::zeroed(16).into()], cause: Cause::Other };
        let refused = file.submit(vec![write]).and_then(|mut p| file.wait(p.remove(0)));
        assert_eq!(refused.unwrap_err().errno(), Some(libc::EINVAL));
    }
    assert_eq!(file.len(), 0, "a refused write is no growth");
}

#[test]
fn many_small_parts_make_one_write() {
    let dir = dir();
    let file = open(&dir.path().join("f"), FlushMethod::Fsync, Create::New);
    let whole: Vec<u8> = (0..5000u32).flat_map(|i| vec![i as u8; (i % 7) as usize]).collect();
    let (mut parts, mut at): (Vec<&[u8]>, usize) = (Vec::new(), 0);
    for i in 0..5000usize {
        parts.push(&whole[at..at + i % 7]);
        at += i % 7;
    }
    file.write_durable_vectored_at(5, &parts, Cause::Commit).unwrap();
    let mut back = vec![0; whole.len()];
    file.read_at(5, &mut back, Cause::Other).unwrap();
    assert!(back == whole);
}

#[test]
fn a_method_changes_under_writers() {
    let dir = dir();
    let path = dir.path().join("f");
    let file = open(&path, FlushMethod::Fsync, Create::New);
    file.grow(seawall_io::Allocate::Unwritten, 1 << 20, Cause::Other).unwrap();
    let stop = AtomicBool::new(false);
    let model: Vec<u8> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|t| {
                let (file, stop) = (&file, &stop);
                scope.spawn(move || {
                    let mut rng = Rng::new(t);
                    let mut model = vec![0; 64 * BLOCK];
                    let mut rounds = 0;
                    while !stop.load(Ordering::Relaxed) || rounds < 20 {
                        rounds += 1;
                        let at = rng.below(63) as usize * BLOCK;
                        let mut buf = AlignedBuf::zeroed(2 * BLOCK);
                        rng.fill(&mut buf);
                        model[at..at + 2 * BLOCK].copy_from_slice(&buf);
                        let offset = t * 64 * BLOCK as u64 + at as u64;
                        if rng.below(2) == 0 {
                            file.write_durable_at(offset, &buf, Cause::Commit).unwrap();
                        } else {
                            let bufs = vec![buf.into()];
                            let pending =
                                file.submit(vec![FileRequest { write: true, offset, bufs, cause: Cause::Clean }]);
                            file.wait(pending.unwrap().remove(0)).unwrap();
                            file.barrier(Cause::Clean).unwrap();
                        }
                    }
                    model
                })
            })
            .collect();
        for i in 0..25 {
            let method = FlushMethod::ALL[i % FlushMethod::ALL.len()];
            let mode = file.set_method(method).unwrap();
            assert_eq!((mode.requested, mode.direct), (method, file.mode().direct));
        }
        file.set_method(FlushMethod::ODirect).unwrap();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    if file.mode().direct {
        assert_eq!(file.cached().unwrap().resident, 0, "buffered to direct leaves no pages behind");
    }
    assert_eq!(open_flags(&path).len(), 1, "old descriptors are closed");
    assert!(std::fs::read(&path).unwrap() == model);
}

#[test]
fn a_lock_outlives_a_change_of_method() {
    let dir = dir();
    let path = dir.path().join("f");
    let file = open(&path, FlushMethod::Fsync, Create::New);
    file.lock().unwrap();
    file.lock().unwrap();
    let other = open(&path, FlushMethod::Fsync, Create::No);
    assert_eq!(other.lock().unwrap_err().kind, IoErrorKind::Locked);
    for method in [FlushMethod::ODirect, FlushMethod::ODsync, FlushMethod::Fsync] {
        file.set_method(method).unwrap();
        let e = other.lock().expect_err("a change of method must not give the file to others");
        assert_eq!(e.kind, IoErrorKind::Locked, "{method}");
    }
    file.lock().unwrap();
    drop(file);
    other.lock().unwrap();
}

#[test]
fn a_method_change_never_lands_on_another_file() {
    let dir = dir();
    let (path, moved) = (dir.path().join("f"), dir.path().join("g"));
    let file = open(&path, FlushMethod::Fsync, Create::New);
    file.write_at(0, b"mine", Cause::Other).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    std::fs::write(&path, b"other").unwrap();
    let e = file.set_method(FlushMethod::ODsync).unwrap_err();
    assert_eq!(e.errno(), Some(libc::ESTALE), "{e}");
    assert_eq!(file.mode().requested, FlushMethod::Fsync, "nothing has changed");
    file.write_at(0, b"MINE", Cause::Other).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"other");
    assert_eq!(std::fs::read(&moved).unwrap(), b"MINE");
}

#[test]
fn everything_is_counted_and_errors_apart() {
    let dir = dir();
    let stats = Arc::new(IoStats::new());
    let disk = Arc::new(OsDisk::synchronous());
    let options = FileOptions::new(FileClass::Data, FlushMethod::Fsync).create(Create::New).stats(&stats);
    let file = File::open(disk.clone(), &dir.path().join("f"), options.clone()).unwrap();
    assert!(File::open(disk, &dir.path().join("f"), options).is_err());
    file.write_at(0, &[1; 100], Cause::Clean).unwrap();
    file.write_durable_at(0, &[1; 50], Cause::Commit).unwrap();
    assert_eq!(file.barrier(Cause::Checkpoint).unwrap(), Barrier::Flushed);
    assert!(file.read_at(90, &mut [0; 20], Cause::DemandRead).is_err());
    let snapshot = stats.snapshot();
    let cell = |op, cause| {
        let c = snapshot.get(FileClass::Data, op, cause).unwrap();
        (c.count(), c.bytes, c.errors)
    };
    assert_eq!(cell(Op::Open, Cause::Other), (1, 0, 1));
    assert_eq!(cell(Op::Write, Cause::Clean), (1, 100, 0));
    assert_eq!(cell(Op::DurableWrite, Cause::Commit), (1, 50, 0));
    assert_eq!(cell(Op::Sync, Cause::Checkpoint), (1, 0, 0));
    assert_eq!(cell(Op::Read, Cause::DemandRead), (0, 0, 1));
}

#[test]
fn files_open_new_or_existing_as_asked() {
    let dir = dir();
    let path: PathBuf = dir.path().join("f");
    let disk = Arc::new(OsDisk::synchronous());
    for method in FlushMethod::ALL {
        let open = |create| File::open(disk.clone(), &path, FileOptions::new(FileClass::Data, method).create(create));
        assert_eq!(open(Create::No).unwrap_err().errno(), Some(libc::ENOENT));
        drop(open(Create::New).unwrap());
        assert_eq!(open(Create::New).unwrap_err().errno(), Some(libc::EEXIST));
        drop(open(Create::IfMissing).unwrap());
        disk.remove(&path).unwrap();
    }
}
