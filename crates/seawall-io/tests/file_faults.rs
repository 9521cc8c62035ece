//! A file on a disk that transfers short, is interrupted, refuses flags or fails a sync; and which barriers
//! may be skipped.

mod common;

use common::skip::skipped;
use common::{Call, FaultyDisk, Rng, Verdict, dir};
use seawall_io::{
    AlignedBuf, Allocate, Barrier, Cause, Create, Disk as _, File, FileClass, FileOptions, FileRequest, FlushMethod,
    IoErrorKind, IoStats, Op, OsDisk,
};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

fn passing() -> Arc<FaultyDisk> {
    FaultyDisk::new(|_| Verdict::Pass)
}

fn open(disk: &Arc<FaultyDisk>, dir: &tempfile::TempDir, method: FlushMethod, known_written: bool) -> File {
    let options = FileOptions::new(FileClass::Redo, method).create(Create::IfMissing);
    File::open(disk.clone(), &dir.path().join("f"), FileOptions { known_written, ..options }).unwrap()
}

fn block(byte: u8) -> AlignedBuf {
    AlignedBuf::copy_of(&[byte; BLOCK])
}

fn write_async(file: &File, offset: u64) -> seawall_io::Pending {
    let request = FileRequest { write: true, offset, bufs: vec![block(9).into()], cause: Cause::Clean };
    file.submit(vec![request]).unwrap().remove(0)
}

#[test]
fn a_latency_ends_with_the_operation_not_when_it_is_waited_for() {
    let (dir, stats) = (dir(), Arc::new(IoStats::new()));
    let options = FileOptions::new(FileClass::Data, FlushMethod::ODirect).create(Create::IfMissing).stats(&stats);
    let file = File::open(Arc::new(OsDisk::synchronous()), &dir.path().join("f"), options).unwrap();
    let begun = Instant::now();
    let pending = write_async(&file, 0);
    assert!(pending.is_done());
    let most = begun.elapsed();
    std::thread::sleep(Duration::from_millis(20));
    file.wait(pending).unwrap();
    let snapshot = stats.snapshot();
    let cell = snapshot.cells.iter().find(|cell| cell.cause == Cause::Clean && cell.op == Op::Write).unwrap();
    let bucket = cell.latency.iter().find(|bucket| bucket.count() > 0).unwrap();
    assert!(u128::from(bucket.start()) <= most.as_nanos(), "{} ns recorded, {most:?} passed", bucket.start());
}

#[test]
fn short_transfers_are_completed_under_every_method() {
    for method in FlushMethod::ALL {
        let (disk, dir) = (passing(), dir());
        let file = open(&disk, &dir, method, false);
        let step = file.mode().align_bytes.max(512) as usize;
        let mut rng = Rng::new(3);
        disk.script(move |call| match call.op {
            Op::Read | Op::Write | Op::DurableWrite => {
                // Not always whole blocks: the file then reads the rest of the block again.
                let extra = if call.op == Op::Read { rng.below(step as u64) as usize } else { 0 };
                Verdict::Short(step * (1 + rng.below(20) as usize) + extra)
            }
            _ => Verdict::Pass,
        });
        let mut data = AlignedBuf::zeroed(16 * BLOCK);
        Rng::new(4).fill(&mut data);
        let cut = 3 * BLOCK;
        file.write_durable_vectored_at(0, &[&data[..cut], &data[cut..cut], &data[cut..]], Cause::Commit).unwrap();
        let mut back = AlignedBuf::zeroed(16 * BLOCK);
        file.read_at(0, &mut back, Cause::Other).unwrap();
        assert!(back[..] == data[..], "{method}");
    }
}

#[test]
fn interruptions_and_cancelled_submitters_are_no_errors() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::Fsync, false);
    let mut n = 0;
    disk.script(move |call| {
        n += 1;
        match (call.is_async, n % 4) {
            (true, 0) => Verdict::Fail(libc::EINTR),
            (true, 1) => Verdict::Fail(libc::EAGAIN),
            (true, 2) => Verdict::Fail(libc::ECANCELED),
            (true, _) => Verdict::Short(1000),
            (false, _) => Verdict::Pass,
        }
    });
    let pending = write_async(&file, 0);
    file.wait(pending).unwrap();
    let mut back = block(0);
    file.read_at(0, &mut back, Cause::Other).unwrap();
    assert!(back.iter().all(|&b| b == 9));
}

/// The kernel may cut a direct read short repeatedly: that does not move the end of the file.
#[test]
fn a_direct_read_that_is_cut_short_inside_a_block_is_no_end_of_the_file() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::ODirect, false);
    file.write_at(0, &block(7), Cause::Other).unwrap();
    let mut reads = 0;
    disk.script(move |call| {
        reads += u32::from(call.op == Op::Read);
        if call.op == Op::Read && reads < 9 { Verdict::Short(100) } else { Verdict::Pass }
    });
    let mut back = block(0);
    file.read_at(0, &mut back, Cause::Other).unwrap();
    assert_eq!(back[..], block(7)[..]);
    if file.mode().align_bytes == 1 {
        // No direct I/O here: every byte is progress.
        return;
    }
    disk.script(|call| if call.op == Op::Read { Verdict::Short(100) } else { Verdict::Pass });
    let e = file.read_at(0, &mut back, Cause::Other).unwrap_err();
    assert_eq!(e.errno(), Some(libc::EIO), "it gives up, and does not say that the file is too short: {e}");
}

#[test]
fn a_write_without_progress_ends() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::Fsync, false);
    disk.script(|_| Verdict::Short(0));
    let e = file.write_at(0, &[1; 10], Cause::Other).unwrap_err();
    assert_eq!(e.kind, IoErrorKind::NoProgress);
    assert!(e.is_fatal());
    let pending = write_async(&file, 0);
    assert_eq!(file.wait(pending).unwrap_err().kind, IoErrorKind::NoProgress);
}

#[test]
fn without_rwf_dsync_a_durable_write_is_followed_by_a_sync() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::ODirectDsync, false);
    assert!(file.mode().rwf_dsync && file.mode().degraded.is_none());
    disk.ops();
    file.write_durable_at(0, &block(1), Cause::Commit).unwrap();
    assert_eq!(disk.ops(), [Op::DurableWrite]);
    disk.script(|call| {
        if call.dsync && call.op == Op::DurableWrite { Verdict::Fail(libc::EOPNOTSUPP) } else { Verdict::Pass }
    });
    file.write_durable_at(0, &block(2), Cause::Commit).unwrap();
    assert_eq!(disk.ops(), [Op::DurableWrite, Op::Write, Op::Sync]);
    assert!(!file.mode().rwf_dsync);
    assert!(file.mode().to_string().contains("RWF_DSYNC"), "{}", file.mode());
    // Tried only once.
    file.write_durable_at(0, &block(3), Cause::Commit).unwrap();
    assert_eq!(disk.ops(), [Op::Write, Op::Sync]);
    let mut back = block(0);
    file.read_at(0, &mut back, Cause::Other).unwrap();
    assert!(back.iter().all(|&b| b == 3));
}

#[test]
fn a_durable_write_is_one_write_and_what_its_method_says() {
    use FlushMethod::{Fsync, ODirect, ODirectDsync, ODirectNoFsync, ODsync};
    for (method, expected) in [
        (Fsync, &[Op::Write, Op::Sync][..]),
        (ODsync, &[Op::Write]),
        (ODirect, &[Op::Write, Op::Sync]),
        (ODirectNoFsync, &[Op::Write, Op::Sync]),
        (ODirectDsync, &[Op::DurableWrite]),
    ] {
        let (disk, dir) = (passing(), dir());
        let file = open(&disk, &dir, method, true);
        disk.ops();
        file.write_durable_vectored_at(0, &[&block(1), &block(2)], Cause::Commit).unwrap();
        assert_eq!(disk.ops(), expected, "{method}");
    }
}

/// A file of `blocks` written and synced blocks, open by `o_direct_no_fsync`; `None` where direct I/O does
/// not exist.
fn no_fsync_file(disk: &Arc<FaultyDisk>, dir: &tempfile::TempDir, blocks: usize) -> Option<File> {
    std::fs::write(dir.path().join("f"), vec![0; blocks * BLOCK]).unwrap();
    let file = open(disk, dir, FlushMethod::ODirectNoFsync, true);
    if !file.mode().direct {
        skipped(format_args!("o_direct_no_fsync: {}", file.mode()));
        return None;
    }
    disk.calls();
    Some(file)
}

#[test]
fn only_overwrites_of_written_blocks_skip_the_barrier() {
    let (disk, dir) = (passing(), dir());
    let Some(file) = no_fsync_file(&disk, &dir, 8) else { return };
    file.write_at(0, &block(1), Cause::Clean).unwrap();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Skipped);
    assert_eq!(disk.ops(), [Op::Write]);
    // Growth by a write, synchronous or not.
    file.write_at(8 * BLOCK as u64, &block(1), Cause::Clean).unwrap();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed);
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Skipped);
    let pending = write_async(&file, 9 * BLOCK as u64);
    file.wait(pending).unwrap();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed);
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Skipped);
    // Unwritten extents: every barrier syncs until the caller declares them written.
    file.grow(Allocate::Unwritten, 12 * BLOCK as u64, Cause::Clean).unwrap();
    for _ in 0..2 {
        assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed);
    }
    file.declare_written();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Skipped);
    // Growing never shortens.
    file.grow(Allocate::Unwritten, BLOCK as u64, Cause::Clean).unwrap();
    assert_eq!(file.len(), 12 * BLOCK as u64);
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Skipped);
}

#[test]
fn a_write_into_a_hole_is_an_allocation() {
    let (disk, dir) = (passing(), dir());
    let Some(file) = no_fsync_file(&disk, &dir, 1) else { return };
    file.write_at(16 * BLOCK as u64, &block(1), Cause::Clean).unwrap();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed);
    // Below the end but without blocks: this write allocates, and only a flush makes that durable.
    file.write_at(4 * BLOCK as u64, &block(2), Cause::Clean).unwrap();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed);
}

#[test]
fn an_unknown_file_skips_no_barrier() {
    let (disk, dir) = (passing(), dir());
    std::fs::write(dir.path().join("f"), vec![0; BLOCK]).unwrap();
    let file = open(&disk, &dir, FlushMethod::ODirectNoFsync, false);
    file.write_at(0, &block(1), Cause::Clean).unwrap();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed);
}

#[test]
fn a_checkpoint_skips_only_on_a_stable_cache() {
    for (stable, expected) in [(false, Barrier::Flushed), (true, Barrier::Skipped)] {
        let (disk, dir) = (passing(), dir());
        let Some(file) = no_fsync_file(&disk, &dir, 1) else { return };
        drop(file);
        let options = FileOptions::new(FileClass::Data, FlushMethod::ODirectNoFsync);
        let options = FileOptions { known_written: true, cache_is_stable: stable, ..options };
        let file = File::open(disk.clone(), &dir.path().join("f"), options).unwrap();
        file.write_at(0, &block(1), Cause::Clean).unwrap();
        assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Skipped);
        assert_eq!(file.checkpoint_barrier().unwrap(), expected);
    }
}

#[test]
fn growth_in_flight_during_a_sync_needs_another() {
    let (disk, dir) = (passing(), dir());
    let Some(file) = no_fsync_file(&disk, &dir, 1) else { return };
    // The write is submitted; another caller's sync runs and ends; then the write ends.
    let pending = write_async(&file, BLOCK as u64);
    file.sync(Cause::Checkpoint).unwrap();
    file.wait(pending).unwrap();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed);
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Skipped);
    // A caller that drops the pending operation never learns when it grew the file.
    drop(write_async(&file, 2 * BLOCK as u64));
    for _ in 0..2 {
        assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed);
    }
}

#[test]
fn a_barrier_does_not_lean_on_a_sync_that_is_still_under_way() {
    let (disk, dir) = (passing(), dir());
    let Some(file) = no_fsync_file(&disk, &dir, 1) else { return };
    let (started, has_started) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let mut first = true;
    disk.script(move |call| {
        if call.op == Op::Sync && std::mem::take(&mut first) {
            started.send(()).unwrap();
            // The fake calls the judge under a lock, so the slow sync must end in failure: it proves nothing
            // durable.
            released.recv_timeout(Duration::from_secs(10)).unwrap();
            return Verdict::Fail(libc::EIO);
        }
        Verdict::Pass
    });
    file.write_at(BLOCK as u64, &block(1), Cause::Clean).unwrap();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| file.barrier(Cause::Checkpoint));
        has_started.recv().unwrap();
        let quick = scope.spawn(|| file.barrier(Cause::Commit));
        release.send(()).unwrap();
        assert_eq!(slow.join().unwrap().unwrap_err().errno(), Some(libc::EIO));
        assert_eq!(quick.join().unwrap().unwrap(), Barrier::Flushed);
    });
}

#[test]
fn o_dsync_makes_writes_durable_but_not_growth_by_allocation() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::ODsync, false);
    file.write_at(0, &block(1), Cause::Commit).unwrap();
    assert_eq!(file.barrier(Cause::Commit).unwrap(), Barrier::Skipped);
    file.grow(Allocate::Unwritten, 1 << 20, Cause::Preallocate).unwrap();
    assert_eq!(file.barrier(Cause::Commit).unwrap(), Barrier::Flushed, "grow is not durable before a barrier");
    assert_eq!(file.barrier(Cause::Commit).unwrap(), Barrier::Skipped);
}

#[test]
fn a_failed_sync_is_reported_and_fatal() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::Fsync, false);
    disk.script(|call| if call.op == Op::Sync { Verdict::Fail(libc::EIO) } else { Verdict::Pass });
    for result in [file.write_durable_at(0, &block(1), Cause::Commit), file.barrier(Cause::Clean).map(drop)] {
        let e = result.unwrap_err();
        assert!(e.is_fatal() && e.errno() == Some(libc::EIO), "{e}");
    }
}

#[test]
fn a_pending_error_of_the_old_descriptor_is_not_swallowed() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::Fsync, false);
    file.write_at(0, &block(1), Cause::Clean).unwrap();
    let old: Call = disk.calls().into_iter().find(|c| c.op == Op::Write).unwrap();
    let mut failed = false;
    disk.script(move |call| {
        let fail = call.op == Op::Sync && call.fd == old.fd && !std::mem::replace(&mut failed, true);
        if fail { Verdict::Fail(libc::EIO) } else { Verdict::Pass }
    });
    let e = file.set_method(FlushMethod::ODsync).unwrap_err();
    assert_eq!((e.errno(), e.op), (Some(libc::EIO), Op::Sync));
    assert!(e.is_fatal());
    assert_eq!(file.mode().requested, FlushMethod::ODsync, "the new method is in effect");
    // The new descriptor was open before the old one was synced.
    let calls = disk.calls();
    let position = |op| calls.iter().position(|c| c.op == op).unwrap();
    assert!(position(Op::Open) < position(Op::Sync), "{calls:?}");
}

#[test]
fn no_barrier_is_skipped_before_the_old_descriptor_is_synced() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::Fsync, true);
    file.write_at(0, &block(1), Cause::Clean).unwrap();
    file.sync(Cause::Clean).unwrap();
    let (started, has_started) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let mut first = true;
    disk.script(move |call| {
        if call.op == Op::Sync && std::mem::take(&mut first) {
            started.send(()).unwrap();
            released.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        Verdict::Pass
    });
    // An overwrite, not durable yet; under o_dsync a barrier would do nothing.
    file.write_at(0, &block(2), Cause::Clean).unwrap();
    std::thread::scope(|scope| {
        let change = scope.spawn(|| file.set_method(FlushMethod::ODsync));
        has_started.recv().unwrap();
        assert_eq!(file.mode().requested, FlushMethod::ODsync, "the new method is in effect while the old is synced");
        let barrier = scope.spawn(|| file.barrier(Cause::Commit));
        // Gives a barrier that skips time to return; one that syncs waits for the fake's lock anyway.
        std::thread::sleep(Duration::from_millis(50));
        release.send(()).unwrap();
        change.join().unwrap().unwrap();
        assert_eq!(barrier.join().unwrap().unwrap(), Barrier::Flushed);
    });
    assert_eq!(file.barrier(Cause::Commit).unwrap(), Barrier::Skipped);
}

#[test]
fn a_method_that_cannot_be_had_changes_nothing() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::Fsync, false);
    disk.script(|call| if call.op == Op::Open { Verdict::Fail(libc::EMFILE) } else { Verdict::Pass });
    let e = file.set_method(FlushMethod::ODirect).unwrap_err();
    assert!(e.to_string().contains("ulimit -n"), "{e}");
    assert_eq!(file.mode().requested, FlushMethod::Fsync);
    file.write_durable_at(0, &block(1), Cause::Commit).unwrap();
}

#[test]
fn a_file_system_without_direct_io_steps_down_and_says_so() {
    let (disk, dir) = (passing(), dir());
    let opens = Arc::new(Mutex::new(0));
    let count = opens.clone();
    disk.script(move |call| {
        let mut n = count.lock().unwrap();
        *n += u32::from(call.op == Op::Open);
        if call.op == Op::Open && *n % 2 == 1 { Verdict::Fail(libc::EINVAL) } else { Verdict::Pass }
    });
    let file = open(&disk, &dir, FlushMethod::ODirectNoFsync, true);
    let mode = file.mode();
    assert!(!mode.direct && mode.align_bytes == 1 && mode.degraded.is_some(), "{mode}");
    file.write_at(3, b"unaligned", Cause::Other).unwrap();
    drop(file);
    let file = open(&disk, &dir, FlushMethod::ODirectNoFsync, true);
    file.write_at(3, b"unaligned", Cause::Other).unwrap();
    assert_eq!(file.barrier(Cause::Clean).unwrap(), Barrier::Flushed, "buffered pages are only in memory");
    disk.script(|_| Verdict::Pass);
    assert_eq!(disk.len(&disk.open(file.path(), seawall_io::OpenHow::default()).unwrap()).unwrap(), 12);
}

#[test]
fn growth_by_allocation_takes_a_whole_fsync_once() {
    let (disk, dir) = (passing(), dir());
    let file = open(&disk, &dir, FlushMethod::Fsync, false);
    // For a sync, `dsync` distinguishes fdatasync from fsync; fdatasync need not make a length without data
    // durable.
    let whole =
        |disk: &FaultyDisk| disk.calls().iter().filter(|c| c.op == Op::Sync).map(|c| c.dsync).collect::<Vec<_>>();
    file.grow(Allocate::Unwritten, 1 << 20, Cause::Preallocate).unwrap();
    file.barrier(Cause::Preallocate).unwrap();
    assert_eq!(whole(&disk), [true]);
    file.write_durable_at(0, &block(1), Cause::Commit).unwrap();
    file.barrier(Cause::Clean).unwrap();
    assert_eq!(whole(&disk), [false, false]);
    // A failed sync settles nothing.
    file.grow(Allocate::KeepSize, 2 << 20, Cause::Preallocate).unwrap();
    disk.script(|call| if call.op == Op::Sync { Verdict::Fail(libc::EIO) } else { Verdict::Pass });
    assert!(file.barrier(Cause::Preallocate).is_err());
    disk.script(|_| Verdict::Pass);
    file.barrier(Cause::Preallocate).unwrap();
    assert_eq!(whole(&disk), [true, true]);
}
