//! One test body for every backend: bytes read equal bytes written, with any submitting thread, any waiting
//! thread, and any number of requests in flight.

mod common;

use common::skip::skipped;
use common::{Rng, backends, dir};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seawall_io::probe::Finding;
use seawall_io::{
    AlignedBuf, Arena, Backend, Create, Disk, IoBuf, IoErrorKind, Op, OpenHow, OsDisk, Request, SyncHow, Ticket,
    WriteHow, create_dir_all,
};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, mpsc};

const BLOCK: usize = 4096;

fn writable(direct: bool) -> OpenHow {
    OpenHow { write: true, create: Create::IfMissing, direct, ..OpenHow::default() }
}

/// Whether direct I/O works in `dir`.
fn direct_works(dir: &Path) -> bool {
    let works = OsDisk::synchronous().open(&dir.join("direct?"), writable(true)).is_ok();
    if !works {
        skipped(format_args!("{} has no direct I/O", dir.display()));
    }
    works
}

/// Memory for `blocks` blocks, one buffer a block; the generator chooses arena or allocator for each.
fn parts(rng: &mut Rng, arena: &Arc<Arena>, blocks: usize) -> Vec<IoBuf> {
    let one = |rng: &mut Rng, blocks: usize| match (blocks == 1 && rng.below(2) == 0).then(|| arena.claim()).flatten() {
        Some(slot) => slot,
        None => AlignedBuf::zeroed(blocks * BLOCK).into(),
    };
    if rng.below(2) == 0 { vec![one(rng, blocks)] } else { (0..blocks).map(|_| one(rng, 1)).collect() }
}

fn joined(bufs: &[IoBuf]) -> Vec<u8> {
    let parts: Vec<&[u8]> = bufs.iter().map(|b| &**b).collect();
    parts.concat()
}

/// Each thread owns a stripe of the file, so that its part of the model is exact while all share disk and
/// handle.
fn random_batches_against_a_model(backend: Backend, direct: bool, registered: bool, seed: u64) {
    const THREADS: usize = 4;
    const STRIPE_BLOCKS: usize = 64;
    let dir = dir();
    let arena = Arena::new(BLOCK, 96);
    let disk = OsDisk::new(backend, registered.then(|| arena.clone())).unwrap();
    let path = dir.path().join("f");
    let file = disk.open(&path, writable(direct)).unwrap();
    disk.set_len(&file, (THREADS * STRIPE_BLOCKS * BLOCK) as u64).unwrap();
    let model: Vec<u8> = std::thread::scope(|scope| {
        let stripes: Vec<_> = (0..THREADS)
            .map(|t| {
                let (disk, file, arena) = (&disk, &file, &arena);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 31 + t as u64);
                    let mut model = vec![0u8; STRIPE_BLOCKS * BLOCK];
                    let base = (t * STRIPE_BLOCKS * BLOCK) as u64;
                    for _ in 0..12 {
                        // The blocks of one batch are disjoint: concurrent requests have no order.
                        let mut at = 0;
                        let (mut batch, mut expected) = (Vec::new(), Vec::new());
                        while at < STRIPE_BLOCKS {
                            at += rng.below(6) as usize;
                            let blocks = (1 + rng.below(4) as usize).min(STRIPE_BLOCKS.saturating_sub(at));
                            if blocks == 0 {
                                break;
                            }
                            let range = at * BLOCK..(at + blocks) * BLOCK;
                            let offset = base + range.start as u64;
                            let mut bufs = parts(&mut rng, arena, blocks);
                            match rng.below(5) {
                                0 => {
                                    batch.push(Request::sync(
                                        file,
                                        if at % 2 == 0 { SyncHow::Data } else { SyncHow::All },
                                    ));
                                    expected.push(None);
                                }
                                1 | 2 => {
                                    bufs.iter_mut().for_each(|b| rng.fill(b));
                                    model[range.clone()].copy_from_slice(&joined(&bufs));
                                    let how = WriteHow { dsync: rng.below(8) == 0, ..WriteHow::default() };
                                    batch.push(Request::write(file, offset, bufs, how));
                                    expected.push(Some(range));
                                }
                                _ => {
                                    let mut read = Request::read(file, offset, AlignedBuf::zeroed(BLOCK).into());
                                    read.bufs = bufs;
                                    batch.push(read);
                                    expected.push(Some(range));
                                }
                            }
                            at += blocks;
                        }
                        let tickets = disk.submit(batch);
                        assert_eq!(tickets.len(), expected.len());
                        let mut order: Vec<usize> = (0..tickets.len()).collect();
                        for i in (1..order.len()).rev() {
                            order.swap(i, rng.below(i as u64 + 1) as usize);
                        }
                        for i in order {
                            let completion = disk.wait(&tickets[i]);
                            completion.result.unwrap();
                            if let Some(range) = expected[i].clone() {
                                assert!(
                                    joined(&completion.bufs) == model[range],
                                    "seed {seed}, thread {t}, request {i}"
                                );
                            }
                        }
                    }
                    model
                })
            })
            .collect();
        stripes.into_iter().flat_map(|s| s.join().unwrap()).collect()
    });
    disk.sync(&file, SyncHow::Data).unwrap();
    assert!(std::fs::read(&path).unwrap() == model, "seed {seed}");
    disk.drive(true);
    assert_eq!(disk.drive(true), 0, "nothing is in flight, so nothing is waited for");
    // Every slot was returned.
    assert_eq!(std::iter::from_fn(|| arena.claim()).collect::<Vec<_>>().len(), 96);
}

#[test]
fn threads_share_a_disk_buffered() {
    for backend in backends() {
        for seed in 0..2 {
            random_batches_against_a_model(backend, false, seed % 2 == 0, seed);
        }
    }
}

#[test]
fn threads_share_a_disk_direct() {
    if !direct_works(dir().path()) {
        return;
    }
    for backend in backends() {
        for seed in 10..12 {
            random_batches_against_a_model(backend, true, seed % 2 == 0, seed);
        }
    }
}

/// Atomic writes succeed where statx reports them, and are refused elsewhere, on every backend.
#[test]
fn atomic_writes_work_where_they_are_offered() {
    let dir = dir();
    if !direct_works(dir.path()) {
        return;
    }
    let offered =
        matches!(OsDisk::synchronous().atomic_write_bytes(dir.path()), Finding::Known(bytes) if bytes >= 4096);
    let atomic = WriteHow { atomic: true, ..WriteHow::default() };
    for backend in backends() {
        let disk = OsDisk::new(backend, None).unwrap();
        let path = dir.path().join("atomic");
        let file = disk.open(&path, writable(true)).unwrap();
        assert_eq!(disk.atomic_write_bytes(&path), disk.atomic_write_bytes(dir.path()), "a file and its directory");
        let block = || AlignedBuf::copy_of(&[7; BLOCK]).into();
        disk.wait(&disk.submit(vec![Request::write(&file, 0, vec![block()], WriteHow::default())])[0]).result.unwrap();
        let written = disk.wait(&disk.submit(vec![Request::write(&file, 0, vec![block()], atomic)])[0]).result;
        match written {
            Ok(()) => assert!(offered, "an atomic write where none is offered"),
            Err(e) => assert!(!offered && matches!(e.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)), "{e}"),
        }
    }
}

#[test]
fn more_requests_than_the_queue_holds() {
    const MANY: usize = 10_000;
    for backend in backends() {
        let dir = dir();
        let disk = OsDisk::new(backend, None).unwrap();
        let path = dir.path().join("f");
        let file = disk.open(&path, writable(false)).unwrap();
        let one = |i: usize| AlignedBuf::copy_of(&(i as u64).to_le_bytes()).into();
        let writes =
            (0..MANY).map(|i| Request::write(&file, i as u64 * 8, vec![one(i)], WriteHow::default())).collect();
        let tickets = disk.submit(writes);
        // Latest first: everything else is completed on the way.
        for ticket in tickets.iter().rev() {
            disk.wait(ticket).result.unwrap();
        }
        let reads = (0..MANY).map(|i| Request::read(&file, i as u64 * 8, one(0))).collect();
        for (i, ticket) in disk.submit(reads).iter().enumerate() {
            let completion = disk.wait(ticket);
            completion.result.unwrap();
            assert_eq!(completion.bufs[0][..], (i as u64).to_le_bytes(), "{backend}");
        }
    }
}

#[test]
fn more_buffers_than_one_call_takes() {
    const PARTS: usize = 2500;
    let arena = Arena::new(BLOCK, 300);
    for backend in backends() {
        let dir = dir();
        let disk = OsDisk::new(backend, Some(arena.clone())).unwrap();
        let direct = direct_works(dir.path());
        let file = disk.open(&dir.path().join("f"), writable(direct)).unwrap();
        let mut rng = Rng::new(5);
        let mut bufs: Vec<IoBuf> =
            (0..PARTS).map(|_| arena.claim().unwrap_or_else(|| AlignedBuf::zeroed(BLOCK).into())).collect();
        bufs.iter_mut().for_each(|b| rng.fill(b));
        let expected = joined(&bufs);
        let done = disk.wait(&disk.submit(vec![Request::write(&file, 0, bufs, WriteHow::default())])[0]);
        done.result.unwrap();
        let mut read = Request::read(&file, 0, AlignedBuf::zeroed(BLOCK).into());
        read.bufs = done.bufs;
        read.bufs.iter_mut().for_each(|b| b.fill(0));
        let done = disk.wait(&disk.submit(vec![read])[0]);
        done.result.unwrap();
        assert!(joined(&done.bufs) == expected, "{backend}");
    }
}

#[test]
fn a_submitter_ends_before_its_requests_do() {
    for backend in backends() {
        let dir = dir();
        let direct = direct_works(dir.path());
        let disk = OsDisk::new(backend, None).unwrap();
        let file = disk.open(&dir.path().join("f"), writable(direct)).unwrap();
        let (send, receive) = mpsc::channel::<(usize, Ticket)>();
        std::thread::scope(|scope| {
            let reaper = scope.spawn(|| {
                for (i, ticket) in receive {
                    let completion = disk.wait(&ticket);
                    completion.result.unwrap_or_else(|e| panic!("{backend}, request {i}: {e}"));
                    assert!(completion.bufs.iter().all(|b| b.iter().all(|&x| x == i as u8)));
                }
            });
            for round in 0..40 {
                let (disk, file, send) = (&disk, &file, send.clone());
                scope.spawn(move || {
                    let mut batch = Vec::new();
                    for i in 0..16 {
                        let at = ((round * 16 + i) * 16 * BLOCK) as u64;
                        let buf = AlignedBuf::copy_of(&vec![(round * 16 + i) as u8; 16 * BLOCK]);
                        batch.push(Request::write(file, at, vec![buf.into()], WriteHow::default()));
                    }
                    batch.push(Request::sync(file, SyncHow::Data));
                    for (i, ticket) in disk.submit(batch).into_iter().enumerate() {
                        send.send((round * 16 + i, ticket)).unwrap();
                    }
                });
            }
            drop(send);
            reaper.join().unwrap();
        });
    }
}

#[test]
fn dropped_tickets_and_a_dropped_disk_lose_nothing() {
    for backend in backends() {
        let dir = dir();
        let arena = Arena::new(BLOCK, 64);
        let path = dir.path().join("f");
        let disk = OsDisk::new(backend, Some(arena.clone())).unwrap();
        let file = disk.open(&path, writable(false)).unwrap();
        let batch = (0..500usize)
            .map(|i| {
                let mut buf: IoBuf = arena.claim().unwrap_or_else(|| AlignedBuf::zeroed(BLOCK).into());
                buf.fill((i % 200) as u8 + 1);
                Request::write(&file, (i * BLOCK) as u64, vec![buf], WriteHow::default())
            })
            .collect();
        drop(disk.submit(batch));
        drop(disk);
        assert!(!file.is_shared(), "{backend}: a request still holds the file");
        let contents = std::fs::read(&path).unwrap();
        assert_eq!(contents.len(), 500 * BLOCK);
        assert!(
            contents.chunks(BLOCK).enumerate().all(|(i, c)| c.iter().all(|&b| b == (i % 200) as u8 + 1)),
            "{backend}"
        );
        assert_eq!(std::iter::from_fn(|| arena.claim()).collect::<Vec<_>>().len(), 64, "{backend}");
    }
}

#[test]
fn reads_at_the_end_of_the_file_say_what_was_there() {
    for backend in backends() {
        let dir = dir();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7u8; 10_000]).unwrap();
        let disk = OsDisk::new(backend, None).unwrap();
        for direct in [false, direct_works(dir.path())] {
            let file = disk.open(&path, OpenHow { direct, ..OpenHow::default() }).unwrap();
            for (offset, got) in [(8192, 10_000 - 8192), (4096, 10_000 - 4096), (16384, 0), (1 << 40, 0)] {
                let many = (0..3).map(|_| AlignedBuf::zeroed(BLOCK).into()).collect();
                let mut vectored = Request::read(&file, offset, AlignedBuf::zeroed(BLOCK).into());
                vectored.bufs = many;
                let single = Request::read(&file, offset, AlignedBuf::zeroed(3 * BLOCK).into());
                for ticket in disk.submit(vec![single, vectored]) {
                    let e = disk.wait(&ticket).result.unwrap_err();
                    assert_eq!(e.kind, IoErrorKind::UnexpectedEof { got }, "{backend}, direct {direct}: {e}");
                    assert_eq!((e.op, e.offset, e.len), (Op::Read, Some(offset), Some(3 * BLOCK as u64)));
                    assert_eq!(e.path, path);
                }
            }
        }
    }
}

#[test]
fn a_refused_write_names_everything() {
    for backend in backends() {
        let dir = dir();
        let path = dir.path().join("read-only");
        std::fs::write(&path, [0; 16]).unwrap();
        let disk = OsDisk::new(backend, None).unwrap();
        let file = disk.open(&path, OpenHow::default()).unwrap();
        let buf = || vec![AlignedBuf::copy_of(&[1; 100]).into()];
        let write = disk.submit(vec![Request::write(&file, 77, buf(), WriteHow::default())]);
        let e = disk.wait(&write[0]).result.unwrap_err();
        assert_eq!(
            (e.errno(), e.op, e.offset, e.len),
            (Some(libc::EBADF), Op::Write, Some(77), Some(100)),
            "{backend}"
        );
        assert!(
            e.to_string()
                .starts_with(&format!("write of 100 bytes at offset 77 of {} failed: Bad file", path.display())),
            "{e}"
        );
        let e = disk.write_at(&file, 77, &[std::io::IoSlice::new(&[1; 100])], WriteHow::default()).unwrap_err();
        assert_eq!((e.errno(), e.op, e.offset, e.len), (Some(libc::EBADF), Op::Write, Some(77), Some(100)));
    }
}

#[test]
fn offsets_beyond_what_the_kernel_takes_are_refused() {
    for backend in backends() {
        let dir = dir();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![9u8; 8192]).unwrap();
        let disk = OsDisk::new(backend, None).unwrap();
        let file = disk.open(&path, writable(false)).unwrap();
        for offset in [u64::MAX, u64::MAX - 7, 1 << 63, (1 << 63) - 1] {
            // io_uring takes the offset -1 for "the current position": the write would land at the start of
            // the file.
            let buf = || vec![AlignedBuf::copy_of(&[1; 64]).into()];
            let batch = vec![
                Request::write(&file, offset, buf(), WriteHow::default()),
                Request::read(&file, offset, AlignedBuf::zeroed(64).into()),
            ];
            for ticket in disk.submit(batch) {
                let e = disk.wait(&ticket).result.unwrap_err();
                let errno = e.errno();
                let eof = matches!(e.kind, IoErrorKind::UnexpectedEof { got: 0 });
                assert!(
                    eof || matches!(errno, Some(libc::EINVAL | libc::EFBIG | libc::EOVERFLOW)),
                    "{backend} {offset}: {e}"
                );
            }
        }
        assert_eq!(std::fs::read(&path).unwrap(), vec![9u8; 8192], "{backend}");
    }
}

#[test]
fn empty_and_overfull_requests_end_at_once() {
    for backend in backends() {
        let dir = dir();
        let disk = OsDisk::new(backend, None).unwrap();
        let file = disk.open(&dir.path().join("f"), writable(false)).unwrap();
        let mut done_already = Request::write(&file, 0, vec![AlignedBuf::zeroed(64).into()], WriteHow::default());
        done_already.done = 1000;
        let mut none = Request::read(&file, 0, AlignedBuf::zeroed(64).into());
        none.bufs.clear();
        for ticket in disk.submit(vec![Request::write(&file, 0, Vec::new(), WriteHow::default()), none, done_already]) {
            disk.wait(&ticket).result.unwrap();
        }
        assert!(disk.submit(Vec::new()).is_empty());
        disk.drive(true);
        assert_eq!(disk.drive(true), 0, "{backend}: nothing is left to wait for");
    }
}

#[test]
fn a_file_of_another_disk_is_refused_and_no_thread_is_left_waiting() {
    for backend in backends() {
        let dir = dir();
        let disk = OsDisk::new(backend, None).unwrap();
        let file = disk.open(&dir.path().join("f"), writable(false)).unwrap();
        let foreign = seawall_io::Handle::simulated(Path::new("/nowhere"), 1);
        let stop = &std::sync::atomic::AtomicBool::new(false);
        let disk = &disk;
        std::thread::scope(|scope| {
            // Another thread drives while requests fail that never reach the kernel.
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    disk.drive(true);
                }
            });
            for _ in 0..2000 {
                let tickets = disk.submit(vec![Request::sync(&foreign, SyncHow::Data)]);
                assert_eq!(disk.wait(&tickets[0]).result.unwrap_err().errno(), Some(libc::EBADF));
            }
            let tickets = disk.submit(vec![
                Request::sync(&foreign, SyncHow::Data),
                Request::write(&file, 0, vec![AlignedBuf::zeroed(64).into()], WriteHow::default()),
            ]);
            assert!(disk.wait(&tickets[0]).result.is_err());
            disk.wait(&tickets[1]).result.unwrap();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

#[test]
fn a_completion_is_taken_once() {
    for backend in backends() {
        let dir = dir();
        let disk = OsDisk::new(backend, None).unwrap();
        let file = disk.open(&dir.path().join("f"), writable(false)).unwrap();
        let ticket = disk.submit(vec![Request::sync(&file, SyncHow::Data)]).remove(0);
        assert!(disk.wait(&ticket).result.is_ok());
        assert!(ticket.is_done() && ticket.take().is_none());
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| disk.wait(&ticket)));
        assert!(again.is_err(), "{backend}: waiting twice is a mistake of the caller and panics");
        // The disk still works.
        let ticket = disk.submit(vec![Request::sync(&file, SyncHow::Data)]).remove(0);
        assert!(disk.wait(&ticket).result.is_ok());
    }
}

#[test]
fn waiting_twice_panics_with_the_trait_s_own_wait_too() {
    let disk = common::FaultyDisk::new(|_| common::Verdict::Pass);
    let dir = dir();
    let file = disk.open(&dir.path().join("f"), writable(false)).unwrap();
    let ticket = disk.submit(vec![Request::sync(&file, SyncHow::Data)]).remove(0);
    assert!(disk.wait(&ticket).result.is_ok());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| disk.wait(&ticket))).is_err());
}

/// Many threads wait, each for one request, repeatedly: a lost wake-up hangs this test.
#[test]
fn no_waiter_is_left_asleep() {
    for backend in backends() {
        let dir = dir();
        let path = dir.path().join("f");
        let disk = OsDisk::new(backend, None).unwrap();
        let file = disk.open(&path, writable(false)).unwrap();
        disk.set_len(&file, 1 << 20).unwrap();
        std::thread::scope(|scope| {
            for t in 0..8u64 {
                let (disk, file) = (&disk, &file);
                scope.spawn(move || {
                    for i in 0..250u64 {
                        let at = (t * 31 + i) % 256 * 4096;
                        let tickets = disk.submit(vec![Request::read(file, at, AlignedBuf::zeroed(4096).into())]);
                        disk.wait(&tickets[0]).result.unwrap();
                        if i % 16 == 0 {
                            disk.drive(false);
                        }
                    }
                });
            }
        });
        let outside = std::fs::File::open(&path).unwrap();
        outside.read_exact_at(&mut [0; 16], 0).unwrap();
    }
}

/// A kernel that can start no thread for a request cancels it, each time.
#[test]
#[allow(unsafe_code)]
fn a_request_is_run_though_the_kernel_can_start_no_thread_for_it() {
    let dir = dir();
    let disk = match OsDisk::new(Backend::IoUring, None) {
        Ok(disk) => disk,
        Err(e) => return skipped(format_args!("io_uring: {e}")),
    };
    let file = disk.open(&dir.path().join("f"), writable(false)).unwrap();
    let asked = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the bare system call changes the user of the calling thread alone, which ends here.
            if unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, libc::uid_t::MAX) } != 0 {
                return None;
            }
            // Threads that are still root's are exempt.
            let before = getrlimit(Resource::Nproc);
            setrlimit(Resource::Nproc, Rlimit { current: Some(0), ..before }).unwrap();
            let tickets = disk.submit(vec![Request::sync(&file, SyncHow::All)]);
            let done = disk.wait(&tickets[0]).result;
            setrlimit(Resource::Nproc, before).unwrap();
            Some(done)
        });
        thread.join().unwrap()
    });
    match asked {
        None => skipped(format_args!("only root can be another user")),
        Some(done) => done.unwrap(),
    }
}

/// What root creates in another user's directory is that user's; a link that the user has put there is not followed.
#[test]
fn what_root_creates_belongs_to_the_owner_of_the_directory() {
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};
    let (dir, disk) = (dir(), OsDisk::synchronous());
    let owner = |path: &Path| std::fs::metadata(path).map(|meta| (meta.uid(), meta.gid())).unwrap();
    let (theirs, target) = (dir.path().join("theirs"), dir.path().join("target"));
    std::fs::create_dir(&theirs).unwrap();
    if owner(&theirs).0 != 0 || chown(&theirs, Some(65_534), Some(65_533)).is_err() {
        return skipped(format_args!("only root can give a directory away"));
    }
    std::fs::write(&target, "").unwrap();
    symlink(&target, theirs.join("link")).unwrap();
    for (name, create) in [("new", Create::New), ("missing", Create::IfMissing), ("missing", Create::IfMissing)] {
        let how = OpenHow { write: true, create, ..OpenHow::default() };
        disk.open(&theirs.join(name), how).unwrap();
        disk.open(&theirs.join("link"), OpenHow { create: Create::IfMissing, ..how }).unwrap();
        assert_eq!((owner(&theirs.join(name)), owner(&target)), ((65_534, 65_533), owner(dir.path())), "{name}");
    }
    // Some file systems have no direct I/O: their refusal leaves the file there.
    let how = OpenHow { write: true, create: Create::New, direct: true, ..OpenHow::default() };
    drop(disk.open(&theirs.join("direct"), how));
    create_dir_all(&theirs.join("a/b")).unwrap();
    for name in ["direct", "a", "a/b"] {
        assert_eq!(owner(&theirs.join(name)), (65_534, 65_533), "{name}");
    }
    disk.pin(&theirs).unwrap();
    disk.open(&theirs.join("pinned"), OpenHow { write: true, create: Create::New, ..OpenHow::default() }).unwrap();
    assert_eq!(owner(&theirs.join("pinned")), (65_534, 65_533));
}
