//! The loops that do a round's operations.
//!
//! - A thread does one operation after the other and measures the time of each; the threads share only the
//!   next offset of sequential patterns.
//! - A round lasts its time, and longer until it has its minimum number of operations, but never longer than
//!   five times its time.
//! - At depth 1 operations are plain system calls on the measuring thread; deeper ones go through the I/O
//!   layer's backend.

use super::log::GroupLog;
use super::prepare::{Prepared, noise};
use super::record::Recorder;
use super::{LabError, Limits};
use crate::cell::{Access, Beside, CellSpec, Pattern, Sync};
use crate::results::Round;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use seawall_io::{
    AlignedBuf, Arena, Backend, Disk, Handle, IoError, IoErrorKind, Op, OsDisk, Pace, Request, RequestKind, SyncHow,
    Ticket, WriteHow,
};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When a thread of a round stops.
pub(super) struct Until<'a> {
    pub(super) start: Instant,
    soft: Duration,
    hard: Duration,
    operations_min: u64,
    stop: &'a AtomicBool,
}

impl<'a> Until<'a> {
    pub(super) fn new(start: Instant, limits: &Limits, threads: u32, stop: &'a AtomicBool) -> Self {
        Self {
            start,
            soft: limits.round,
            hard: limits.round * 5,
            operations_min: limits.operations_min.div_ceil(u64::from(threads.max(1))),
            stop,
        }
    }

    pub(super) fn over(&self, now: Instant, operations: u64) -> bool {
        let elapsed = now.duration_since(self.start);
        self.stop.load(Ordering::Relaxed)
            || (elapsed >= self.soft && operations >= self.operations_min)
            || elapsed >= self.hard
    }
}

/// When a thread may do its next operation: at once, or at the rate of `--rate`.
pub(super) struct Turns<'a> {
    pub(super) until: &'a Until<'a>,
    /// One pace for all threads: with one each, all threads would begin at once, and a short round would
    /// exceed the rate.
    pub(super) pace: Option<&'a Mutex<Pace>>,
}

impl Turns<'_> {
    /// When `--rate` permits the next operation, since the start of the round; `None` without a rate.
    fn due(&self) -> Option<Duration> {
        let mut pace = self.pace?.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.until.start.elapsed();
        Some(now + pace.delay(now, 1.0))
    }

    /// Waits as `--rate` requires; false when the round is over before the next operation is due.
    pub(super) fn paced(&self, operations: u64) -> bool {
        self.due().is_none_or(|due| self.wait_until(due, operations))
    }

    /// Waits in short naps: a slow rate must neither delay Ctrl-C nor extend the round.
    fn wait_until(&self, due: Duration, operations: u64) -> bool {
        loop {
            let left = due.saturating_sub(self.until.start.elapsed());
            if left.is_zero() {
                return true;
            }
            if self.until.over(Instant::now(), operations) {
                return false;
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

/// Runs one round of a cell.
pub(super) fn round(
    spec: &CellSpec,
    file: &Prepared,
    limits: &Limits,
    backend: Backend,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Round, LabError> {
    // Cells of one pass must not touch the same blocks in the same order: the second would find them in the
    // device's cache.
    let seed = seed ^ u64::from(crc32c::crc32c(spec.id().as_bytes()));
    let start = Instant::now();
    let until = Until::new(start, limits, spec.threads, stop);
    let next = AtomicU64::new(0);
    let log = (spec.pattern == Pattern::Log).then(|| GroupLog::new(spec, file));
    let background_stop = AtomicBool::new(false);
    let pace = limits.rate.map(|rate| Mutex::new(Pace::new(rate)));
    let results: Vec<Result<Recorder, LabError>> = std::thread::scope(|scope| {
        let background = (spec.beside == Beside::ContinuousWriter)
            .then(|| scope.spawn(|| overwrite_without_pause(spec, file, seed, &background_stop)));
        let threads: Vec<_> = (0..spec.threads)
            .map(|thread| {
                let worker = Worker {
                    spec,
                    file,
                    turns: Turns { until: &until, pace: pace.as_ref() },
                    next: &next,
                    seed: seed ^ (u64::from(thread) << 32),
                };
                let log = log.as_ref();
                scope.spawn(move || match log {
                    Some(log) => worker.commit(log),
                    None if spec.queue_depth > 1 => worker.deep(backend),
                    None => worker.shallow(),
                })
            })
            .collect();
        let mut results: Vec<_> = threads.into_iter().map(joined).collect();
        background_stop.store(true, Ordering::Relaxed);
        if let Some(Err(e)) = background.map(joined) {
            results.push(Err(e));
        }
        results
    });
    let elapsed = start.elapsed();
    let records = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut round = Recorder::round(records, elapsed, limits.rate.is_some()).ok_or(LabError::Interrupted)?;
    if let Some(log) = log {
        (round.writes_issued, round.syncs_issued) = log.issued();
    }
    Ok(round)
}

pub(super) fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Worker<'a> {
    spec: &'a CellSpec,
    file: &'a Prepared,
    turns: Turns<'a>,
    next: &'a AtomicU64,
    seed: u64,
}

impl Worker<'_> {
    fn write_how(&self) -> WriteHow {
        WriteHow { dsync: self.spec.sync == Sync::RwfDsync, dontcache: self.spec.access == Access::DontCache }
    }

    /// The next offset; `None` when a file that must not be overwritten is used up.
    fn offset(&self, rng: &mut Pcg64Mcg) -> Option<u64> {
        let block = u64::from(self.spec.block_bytes);
        let blocks = (self.file.span / block).max(1);
        let random = matches!(self.spec.pattern, Pattern::RandomRead | Pattern::RandomWrite)
            && self.spec.beside != Beside::BeyondEof;
        let index = if random { rng.random_range(0..blocks) } else { self.next.fetch_add(1, Ordering::Relaxed) };
        if index >= blocks && !self.file.circular {
            return None;
        }
        Some(self.file.from + index % blocks * block)
    }

    /// One system call after the other.
    fn shallow(&self) -> Result<Recorder, LabError> {
        let disk = OsDisk::synchronous();
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut record = Recorder::new(self.turns.until.start);
        let mut block = AlignedBuf::zeroed(self.spec.block_bytes as usize);
        noise(&mut block, self.seed);
        let reads = self.spec.reads();
        let how = self.write_how();
        let flush_only = self.spec.beside == Beside::ContinuousWriter;
        loop {
            if !self.turns.paced(record.operations()) {
                break;
            }
            let Some(at) = self.offset(&mut rng) else { break };
            let mut started = Instant::now();
            if reads {
                whole(Op::Read, self.file, at, block.len(), disk.read_at(&self.file.file, at, &mut block)?)?;
            } else {
                block[..8].copy_from_slice(&record.operations().to_le_bytes());
                let n = disk.write_at(&self.file.file, at, &[IoSlice::new(&block)], how)?;
                whole(Op::Write, self.file, at, block.len(), n)?;
                record.writes += 1;
                if flush_only {
                    // This cell measures the flush: the write before it only gives the flush something to do.
                    started = Instant::now();
                }
                match self.spec.sync {
                    Sync::Fdatasync => disk.sync(&self.file.file, SyncHow::Data)?,
                    Sync::Fsync => disk.sync(&self.file.file, SyncHow::All)?,
                    Sync::None | Sync::RwfDsync | Sync::ODsync => {}
                }
                record.syncs += u64::from(self.spec.sync != Sync::None);
            }
            let end = Instant::now();
            record.add(end - started, end);
            if self.turns.until.over(end, record.operations()) {
                break;
            }
        }
        Ok(record)
    }

    /// `queue_depth` requests in flight.
    fn deep(&self, backend: Backend) -> Result<Recorder, LabError> {
        let depth = self.spec.queue_depth;
        let arena = Arena::new(self.spec.block_bytes as usize, depth);
        let disk = OsDisk::for_one_thread(backend, Some(arena.clone())).map_err(LabError::Backend)?;
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut record = Recorder::new(self.turns.until.start);
        let mut flying: Vec<(Ticket, Instant)> = Vec::with_capacity(depth as usize);
        let mut over = false;
        // When `--rate` permits the next request, since the start of the round.
        let mut due: Option<Duration> = None;
        let kind = if self.spec.reads() { RequestKind::Read } else { RequestKind::Write(self.write_how()) };
        loop {
            while !over && flying.len() < depth as usize {
                due = due.or_else(|| self.turns.due());
                if let Some(at) = due {
                    if at > self.turns.until.start.elapsed() && !flying.is_empty() {
                        // Waiting here would add the pause to the latency of requests in flight.
                        break;
                    }
                    if !self.turns.wait_until(at, record.operations()) {
                        over = true;
                        break;
                    }
                    due = None;
                }
                let (Some(at), Some(buf)) = (self.offset(&mut rng), arena.claim()) else {
                    over = true;
                    break;
                };
                record.writes += u64::from(kind != RequestKind::Read);
                let request = Request { file: self.file.file.clone(), kind, offset: at, bufs: vec![buf], done: 0 };
                let started = Instant::now();
                // One by one, as a database's readers and fio submit: the device stays at `queue_depth`.
                flying.extend(disk.submit(vec![request]).into_iter().map(|ticket| (ticket, started)));
            }
            if flying.is_empty() {
                break;
            }
            disk.drive(true);
            let end = Instant::now();
            let mut failed = None;
            flying.retain(|(ticket, started)| match ticket.take() {
                None => true,
                Some(completion) => {
                    if let Err(e) = completion.result {
                        failed.get_or_insert(e);
                    }
                    record.add(end.duration_since(*started), end);
                    false
                }
            });
            if let Some(e) = failed {
                return Err(e.into());
            }
            over = over || self.turns.until.over(end, record.operations());
        }
        Ok(record)
    }

    /// One commit after the other into the shared log.
    fn commit(&self, log: &GroupLog<'_>) -> Result<Recorder, LabError> {
        let mut record = Recorder::new(self.turns.until.start);
        let shape = log.shape();
        let mut records = vec![0; (shape.records_per_commit * shape.record_bytes) as usize];
        noise(&mut records, self.seed);
        loop {
            if !self.turns.paced(record.operations()) {
                return Ok(record);
            }
            let started = Instant::now();
            log.commit(&records)?;
            let end = Instant::now();
            record.add(end - started, end);
            if self.turns.until.over(end, record.operations()) {
                return Ok(record);
            }
        }
    }
}

/// A short transfer in a measurement means that the file was not prepared as intended.
fn whole(op: Op, file: &Prepared, at: u64, len: usize, n: usize) -> Result<(), IoError> {
    if n == len {
        return Ok(());
    }
    let kind = if op == Op::Read { IoErrorKind::UnexpectedEof { got: n as u64 } } else { IoErrorKind::NoProgress };
    Err(IoError::new(op, file.file.path(), kind).at(at, len as u64))
}

/// The other thread of the flush cell.
fn overwrite_without_pause(spec: &CellSpec, file: &Prepared, seed: u64, stop: &AtomicBool) -> Result<(), LabError> {
    let disk = OsDisk::synchronous();
    let handle: &Handle = &file.file;
    let mut rng = Pcg64Mcg::seed_from_u64(!seed);
    let mut block = AlignedBuf::zeroed(spec.block_bytes as usize);
    noise(&mut block, !seed);
    let blocks = (file.span / u64::from(spec.block_bytes)).max(1);
    while !stop.load(Ordering::Relaxed) {
        let at = file.from + rng.random_range(0..blocks) * u64::from(spec.block_bytes);
        disk.write_at(handle, at, &[IoSlice::new(&block)], WriteHow::default())?;
    }
    Ok(())
}
