//! Files prepared ahead of need: written, synced, out of the page cache, and named only when whole.

mod common;

use common::skip::skipped;
use common::{FaultyDisk, Verdict, dir};
use seawall_io::{
    Barrier, Cause, Clock, Disk, FILLING, File, FileClass, FileOptions, Fill, FillOptions, FillStep, FlushMethod,
    IoErrorKind, Op, OsDisk, STEP_BYTES, SystemClock, recycle, sweep,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LEN: u64 = 3 << 20;

fn options() -> FillOptions {
    FillOptions { bytes_per_second: 1e12, reserve: 0, ..FillOptions::new(FileClass::Redo, LEN) }
}

fn run(disk: &Arc<dyn Disk>, target: &Path, options: FillOptions) -> seawall_io::Result<File> {
    Fill::begin(disk.clone(), target, options)?.run(&SystemClock::default(), &AtomicBool::new(false))
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The extents of a file as `filefrag -v` reports them: (physical start, flags); `None` where that tool or
/// FIEMAP is missing.
fn extents(path: &Path) -> Option<Vec<(String, String)>> {
    let out = match std::process::Command::new("filefrag").arg("-v").arg(path).output() {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).into_owned(),
        Ok(out) => {
            skipped(format_args!("extents: {}", String::from_utf8_lossy(&out.stderr).trim()));
            return None;
        }
        Err(e) => {
            skipped(format_args!("extents: filefrag: {e}"));
            return None;
        }
    };
    let lines = out.lines().filter(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    Some(
        lines
            .map(|l| {
                let fields: Vec<&str> = l.split(':').map(str::trim).collect();
                (fields[2].to_owned(), fields.last().unwrap_or(&"").to_string())
            })
            .collect(),
    )
}

#[test]
fn a_filled_file_is_written_synced_and_in_no_cache() {
    let dir = dir();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
    for write_zeroes in [true, false] {
        let target = dir.path().join(format!("log.{write_zeroes}"));
        let file = run(&disk, &target, FillOptions { write_zeroes, ..options() }).unwrap();
        assert_eq!((file.len(), file.path()), (LEN, target.as_path()));
        if file.mode().direct {
            assert_eq!(file.cached().unwrap().resident, 0);
            file.set_method(FlushMethod::ODirectNoFsync).unwrap();
            let block = seawall_io::AlignedBuf::zeroed(4096);
            file.write_at(4096, &block, Cause::Commit).unwrap();
            assert_eq!(file.barrier(Cause::Commit).unwrap(), Barrier::Skipped, "all blocks are known to be written");
        }
        if let Some(extents) = extents(&target) {
            assert!(!extents.is_empty());
            let bad = extents.iter().find(|(_, flags)| flags.contains("unwritten") || flags.contains("delalloc"));
            assert!(bad.is_none(), "{extents:?}");
        }
        assert!(std::fs::read(&target).unwrap().iter().all(|&b| b == 0));
    }
    assert_eq!(names(dir.path()), ["log.false", "log.true"]);
}

#[test]
fn lengths_are_rounded_to_blocks() {
    let dir = dir();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
    for (len, expected) in [(1, 4096), (STEP_BYTES as u64 + 1, STEP_BYTES as u64 + 4096)] {
        let file = run(&disk, &dir.path().join(format!("{len}")), FillOptions { len, ..options() }).unwrap();
        assert_eq!(file.len(), expected);
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), expected);
    }
}

#[test]
fn nothing_is_overwritten() {
    let dir = dir();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
    let target = dir.path().join("log");
    std::fs::write(&target, b"precious").unwrap();
    assert_eq!(run(&disk, &target, options()).unwrap_err().errno(), Some(libc::EEXIST));
    let used = dir.path().join("used");
    std::fs::write(&used, b"old").unwrap();
    assert_eq!(recycle(&*disk, &used, &target).unwrap_err().errno(), Some(libc::EEXIST));
    assert_eq!(recycle(&*disk, &target, &target).unwrap_err().errno(), Some(libc::EEXIST));
    // The target's name is taken while the fill runs.
    let late = dir.path().join("late");
    let fill = Fill::begin(disk.clone(), &late, options()).unwrap();
    std::fs::write(&late, b"precious too").unwrap();
    let e = fill.run(&SystemClock::default(), &AtomicBool::new(false)).unwrap_err();
    assert_eq!(e.errno(), Some(libc::EEXIST), "{e}");
    assert_eq!(std::fs::read(&late).unwrap(), b"precious too");
    // A second fill of the same name is refused, and the first keeps its file.
    let twice = dir.path().join("twice");
    let fill = Fill::begin(disk.clone(), &twice, options()).unwrap();
    assert_eq!(run(&disk, &twice, options()).unwrap_err().errno(), Some(libc::EEXIST));
    drop(fill.run(&SystemClock::default(), &AtomicBool::new(false)).unwrap());
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    assert_eq!(names(dir.path()), ["late", "log", "twice", "used"]);
}

#[test]
fn a_filling_file_survives_no_error_no_drop_no_stop() {
    let dir = dir();
    let target = dir.path().join("log");
    let os: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
    // Dropped before and after a step.
    drop(Fill::begin(os.clone(), &target, options()).unwrap());
    assert!(names(dir.path()).is_empty());
    let fill = Fill::begin(os.clone(), &target, FillOptions { write_zeroes: false, ..options() }).unwrap();
    assert_eq!(fill.progress(), (0, LEN));
    match fill.step().unwrap() {
        FillStep::Filling(fill) => assert_eq!(fill.progress(), (STEP_BYTES as u64, LEN)),
        FillStep::Ready(_) => panic!("one step is not the whole"),
    }
    assert!(names(dir.path()).is_empty());
    // A stop was requested.
    let fill = Fill::begin(os, &target, options()).unwrap();
    let e = fill.run(&SystemClock::default(), &AtomicBool::new(true)).unwrap_err();
    assert_eq!(e.kind, IoErrorKind::Cancelled);
    assert!(names(dir.path()).is_empty());
    // Each call in turn fails.
    let mut fail_at = 0;
    loop {
        let mut n = 0;
        let disk = FaultyDisk::new(move |_| {
            n += 1;
            if n == fail_at + 1 { Verdict::Fail(libc::EIO) } else { Verdict::Pass }
        });
        let ended = run(&(disk as Arc<dyn Disk>), &target, FillOptions { write_zeroes: false, ..options() });
        let left = names(dir.path());
        match ended {
            Ok(_) => break,
            Err(e) => {
                assert!(left.iter().all(|n| !n.ends_with(FILLING)), "call {fail_at} failed ({e}) and left {left:?}");
                // The final name, if it is there, is whole.
                if left.iter().any(|n| n == "log") {
                    assert_eq!(std::fs::metadata(&target).unwrap().len(), LEN);
                    std::fs::remove_file(&target).unwrap();
                }
            }
        }
        fail_at += 1;
        assert!(fail_at < 100);
    }
    assert!(fail_at > 12 + 4, "every call was made to fail once: {fail_at}");
}

#[test]
fn an_open_that_fails_half_way_leaves_nothing() {
    let dir = dir();
    let mut opens = 0;
    // The kernel creates the file, then refuses O_DIRECT; then there is no descriptor left.
    let disk = FaultyDisk::new(move |call| {
        opens += u32::from(call.op == Op::Open);
        match (call.op, opens) {
            (Op::Open, 1) => {
                std::fs::write(&call.path, []).unwrap();
                Verdict::Fail(libc::EINVAL)
            }
            (Op::Open, 2) => Verdict::Fail(libc::EMFILE),
            _ => Verdict::Pass,
        }
    });
    let e = Fill::begin(disk, &dir.path().join("log"), options()).unwrap_err();
    assert_eq!(e.errno(), Some(libc::EMFILE));
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}

#[test]
fn a_full_disk_is_met_before_the_first_zero() {
    let dir = dir();
    let disk = FaultyDisk::new(|call| if call.op == Op::Grow { Verdict::Fail(libc::ENOSPC) } else { Verdict::Pass });
    let e = run(&(disk.clone() as Arc<dyn Disk>), &dir.path().join("log"), options()).unwrap_err();
    assert_eq!((e.errno(), e.op), (Some(libc::ENOSPC), Op::Grow));
    assert!(disk.ops().is_empty(), "nothing was written");
    // The reserve is respected, and no file is created.
    let disk = FaultyDisk::new(|_| Verdict::Pass);
    *disk.free_bytes.lock().unwrap() = Some(LEN + 999);
    let asked = FillOptions { reserve: 1000, ..options() };
    let e = run(&(disk.clone() as Arc<dyn Disk>), &dir.path().join("log"), asked.clone()).unwrap_err();
    assert_eq!(e.kind, IoErrorKind::Reserve { needed: LEN, available: LEN - 1, reserve: 1000 });
    assert!(disk.calls().is_empty());
    assert!(names(dir.path()).is_empty());
    *disk.free_bytes.lock().unwrap() = Some(LEN + 1000);
    run(&(disk as Arc<dyn Disk>), &dir.path().join("log"), asked).unwrap();
}

#[test]
fn without_fallocate_the_zeroes_allocate() {
    let dir = dir();
    let disk =
        FaultyDisk::new(|call| if call.op == Op::Grow { Verdict::Fail(libc::EOPNOTSUPP) } else { Verdict::Pass });
    let file = run(&(disk.clone() as Arc<dyn Disk>), &dir.path().join("log"), options()).unwrap();
    assert_eq!(file.len(), LEN);
    let calls = disk.calls();
    // The order that makes the name a promise: write zeroes, sync them, rename, sync the directory.
    let is_name = |path: &Path| path.extension().is_some_and(|e| e == FILLING);
    let last = |op, path: &dyn Fn(&Path) -> bool| calls.iter().rposition(|c| c.op == op && path(&c.path)).unwrap();
    assert!(last(Op::Write, &is_name) < last(Op::Sync, &is_name));
    assert_eq!(calls.iter().filter(|c| c.op == Op::Directory).count(), 1);
    assert!(last(Op::Sync, &is_name) < last(Op::Directory, &is_name));
    assert!(last(Op::Directory, &is_name) < last(Op::Sync, &|path: &Path| path == dir.path()));
}

/// A clock that only sleeping advances, and that sets a flag at a given time.
#[derive(Debug, Default)]
struct FakeClock {
    now_us: AtomicU64,
    slept: Mutex<Vec<Duration>>,
    stop_at: Option<Duration>,
    stop: Arc<AtomicBool>,
}

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.now_us.load(Ordering::Relaxed))
    }
    fn sleep(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap();
        let now = self.now_us.fetch_add(us, Ordering::Relaxed) + us;
        self.slept.lock().unwrap().push(duration);
        if self.stop_at.is_some_and(|at| Duration::from_micros(now) >= at) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn the_rate_is_kept() {
    let dir = dir();
    let clock = FakeClock::default();
    // Four steps a second, twelve steps.
    let slow = FillOptions { bytes_per_second: 4.0 * STEP_BYTES as f64, write_zeroes: false, ..options() };
    let fill = Fill::begin(Arc::new(OsDisk::synchronous()), &dir.path().join("log"), slow).unwrap();
    drop(fill.run(&clock, &AtomicBool::new(false)).unwrap());
    assert_eq!(clock.now(), Duration::from_millis(11 * 250), "the first step waits for nothing");
}

#[test]
fn a_slow_fill_stops_soon() {
    let dir = dir();
    // One byte a second: the first pause alone is three days.
    let clock = FakeClock { stop_at: Some(Duration::from_secs(2)), ..FakeClock::default() };
    let slow = FillOptions { bytes_per_second: 1.0, write_zeroes: false, ..options() };
    let fill = Fill::begin(Arc::new(OsDisk::synchronous()), &dir.path().join("log"), slow).unwrap();
    let e = fill.run(&clock, &clock.stop).unwrap_err();
    assert_eq!(e.kind, IoErrorKind::Cancelled);
    assert!(clock.now() < Duration::from_secs(3), "{:?}", clock.now());
    assert!(names(dir.path()).is_empty());
}

#[test]
fn sweeping_removes_leftovers_only() {
    let dir = dir();
    for name in ["a.filling", "b.filling", "log.000001", "filling", "x.filling.txt"] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    std::fs::create_dir(dir.path().join("keep.filling")).unwrap();
    let disk = OsDisk::synchronous();
    let removed = sweep(&disk, dir.path()).unwrap();
    assert_eq!(removed, [dir.path().join("a.filling"), dir.path().join("b.filling")]);
    assert_eq!(names(dir.path()), ["filling", "keep.filling", "log.000001", "x.filling.txt"]);
    assert!(sweep(&disk, dir.path()).unwrap().is_empty());
    assert_eq!(sweep(&disk, &dir.path().join("none")).unwrap_err().errno(), Some(libc::ENOENT));
}

#[test]
fn recycling_keeps_the_extents_and_syncs_both_directories() {
    let dir = dir();
    let (a, b) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::create_dir_all(&a).unwrap();
    std::fs::create_dir_all(&b).unwrap();
    let os: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
    let (used, target) = (a.join("log.1"), b.join("log.2"));
    drop(run(&os, &used, options()).unwrap());
    let before = extents(&used);
    let disk = FaultyDisk::new(|_| Verdict::Pass);
    recycle(&*disk, &used, &target).unwrap();
    let directories: Vec<_> = disk.calls().into_iter().map(|c| c.path).collect();
    assert_eq!(directories, [used.clone(), b.clone(), a.clone()], "the rename, then both directories");
    assert_eq!(extents(&target), before);
    assert!(names(&a).is_empty());
    let options = FileOptions { known_written: true, ..FileOptions::new(FileClass::Redo, FlushMethod::ODirect) };
    let file = File::open(os.clone(), &target, options).unwrap();
    file.write_durable_at(0, &seawall_io::AlignedBuf::zeroed(4096), Cause::Commit).unwrap();
    assert_eq!(extents(&target), before, "overwritten in place");
    // Within one directory it is synced once.
    recycle(&*disk, &target, &b.join("log.3")).unwrap();
    assert_eq!(disk.calls().len(), 2);
    assert_eq!(recycle(&*os, &target, &b.join("log.4")).unwrap_err().errno(), Some(libc::ENOENT));
}

#[test]
fn a_file_that_is_only_allocated_has_its_length_and_no_writes() {
    for written in [true, false] {
        let dir = dir();
        let options = FillOptions { written, write_zeroes: false, ..options() };
        let (stats, len) = (options.stats.clone(), options.len);
        let disk = Arc::new(OsDisk::synchronous());
        let fill = Fill::begin(disk, &dir.path().join("log"), options).unwrap();
        let file = fill.run(&SystemClock::default(), &AtomicBool::new(false)).unwrap();
        assert!(file.len() >= len);
        let snapshot = stats.snapshot();
        assert_eq!(snapshot.get(FileClass::Redo, Op::Write, Cause::Preallocate).is_some(), written);
    }
}
