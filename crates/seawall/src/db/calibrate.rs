//! Measures which way of making a log write durable is faster in a directory: `fdatasync` after the write, or
//! `RWF_DSYNC` with it. No drive is trusted by its name.
//!
//! It writes one block up to 64 times each way, in turn, in a scratch file that it removes. After three writes
//! each way it stops when [`BUDGET`] is spent, so that opening stays fast on slow disks too. The result is
//! stored in the directory, so it is measured once.

use seawall_io::{AlignedBuf, Allocate, Create, Disk, FlushMethod, IoError, OpenHow, SyncHow, WriteHow};
use std::io::IoSlice;
use std::path::Path;
use std::time::{Duration, Instant};

const REMEMBERED: &str = "calibration";
const SCRATCH: &str = "calibration.scratch";
const BUDGET: Duration = Duration::from_millis(15);
const BLOCK: usize = 4096;

/// Returns the faster of the two methods; `fdatasync` if there is no clear difference, or nothing could be
/// measured.
pub(super) fn method(disk: &dyn Disk, dir: &Path) -> FlushMethod {
    if disk.backend().name == "memory" {
        return FlushMethod::Fsync;
    }
    if let Some(known) = remembered(disk, dir) {
        return known;
    }
    let measured = measure(disk, dir);
    let scratch = disk.remove(&dir.join(SCRATCH));
    match (measured, scratch) {
        (Ok(method), Ok(())) => {
            // If the result cannot be stored, the next opening measures again.
            let _measured_again = remember(disk, dir, method).is_err();
            method
        }
        _ => FlushMethod::ODirect,
    }
}

fn remembered(disk: &dyn Disk, dir: &Path) -> Option<FlushMethod> {
    let file = disk.open(&dir.join(REMEMBERED), OpenHow::default()).ok()?;
    let mut bytes = [0; 32];
    let len = disk.read_at(&file, 0, &mut bytes).ok()?;
    std::str::from_utf8(&bytes[..len]).ok()?.trim().parse().ok()
}

fn remember(disk: &dyn Disk, dir: &Path, method: FlushMethod) -> Result<(), IoError> {
    let how = OpenHow { write: true, create: Create::IfMissing, ..OpenHow::default() };
    let file = disk.open(&dir.join(REMEMBERED), how)?;
    let line = format!("{:<31}\n", method.name());
    disk.write_at(&file, 0, &[IoSlice::new(line.as_bytes())], WriteHow::default())?;
    disk.sync(&file, SyncHow::All)?;
    disk.sync_dir(dir)
}

fn measure(disk: &dyn Disk, dir: &Path) -> Result<FlushMethod, IoError> {
    const BLOCKS: usize = 16;
    let how = OpenHow { write: true, create: Create::IfMissing, direct: true, dsync: false };
    let file = disk.open(&dir.join(SCRATCH), how)?;
    if disk.allocate(&file, Allocate::Unwritten, 0, (BLOCK * BLOCKS) as u64).is_err() {
        disk.set_len(&file, (BLOCK * BLOCKS) as u64)?;
    }
    let zeroes = AlignedBuf::zeroed(BLOCK * BLOCKS);
    disk.write_at(&file, 0, &[IoSlice::new(&zeroes)], WriteHow::default())?;
    disk.sync(&file, SyncHow::All)?;
    let block = &zeroes[..BLOCK];
    let (mut flushed, mut dsync) = (Vec::new(), Vec::new());
    let started = Instant::now();
    while flushed.len() < 64 && (flushed.len() < 3 || started.elapsed() < BUDGET) {
        let offset = (flushed.len() % BLOCKS * BLOCK) as u64;
        let began = Instant::now();
        disk.write_at(&file, offset, &[IoSlice::new(block)], WriteHow::default())?;
        disk.sync(&file, SyncHow::Data)?;
        flushed.push(began.elapsed());
        let began = Instant::now();
        let how = WriteHow { dsync: true, ..WriteHow::default() };
        if disk.write_at(&file, offset, &[IoSlice::new(block)], how).is_err() {
            return Ok(FlushMethod::ODirect);
        }
        dsync.push(began.elapsed());
    }
    flushed.sort_unstable();
    dsync.sort_unstable();
    // A difference of a tenth is noise on a shared machine; without a clear winner the plain flush is the
    // safer choice.
    let clear = dsync[dsync.len() / 2] * 10 < flushed[flushed.len() / 2] * 9;
    Ok(if clear { FlushMethod::ODirectDsync } else { FlushMethod::ODirect })
}
