//! The loops that do a round's operations.
//!
//! - A thread does one operation after the other and measures the time of each; the threads share only the
//!   next offset of sequential patterns.
//! - A round lasts its time, and longer until it has its minimum number of operations, but never longer than
//!   five times its time.
//! - At depth 1 operations are plain system calls on the measuring thread; deeper ones go through the I/O
//!   layer's backend.

use super::log::GroupLog;
use super::prepare::{Prepared, noise, write_how, write_whole};
use super::record::Recorder;
use super::{LabError, Limits};
use crate::cell::{Beside, CellSpec, Pattern, Sync};
use crate::results::Round;
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use seawall_io::{
    AlignedBuf, Arena, Backend, Disk as _, IoError, IoErrorKind, Op, OsDisk, Pace, Request, RequestKind, SyncHow,
    Ticket, WriteHow,
};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Decides when a thread may do its next operation (at once, or at the rate of `--rate`), and when it stops.
pub(super) struct Turns<'a> {
    start: Instant,
    limits: &'a Limits,
    /// The minimum number of operations of each thread.
    operations_min: u64,
    /// One pace for all threads: with one each, all threads would begin at once, and a short round would
    /// exceed the rate.
    pace: Option<Mutex<Pace>>,
    stop: &'a AtomicBool,
}

impl Turns<'_> {
    /// Returns whether a thread that did `operations` stops.
    fn over(&self, now: Instant, operations: u64) -> bool {
        let elapsed = now.duration_since(self.start);
        let enough = elapsed >= self.limits.round && operations >= self.operations_min;
        self.stop.load(Ordering::Relaxed) || enough || elapsed >= self.limits.round * 5
    }

    /// When `--rate` permits the next operation, since the start of the round; `None` without a rate.
    fn due(&self) -> Option<Duration> {
        let mut pace = self.pace.as_ref()?.lock();
        let now = self.start.elapsed();
        Some(now + pace.delay(now, 1.0))
    }

    /// Waits in short naps: a slow rate must neither delay Ctrl-C nor extend the round. False when the round is
    /// over before `due`.
    fn wait_until(&self, due: Duration, operations: u64) -> bool {
        loop {
            let left = due.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                return true;
            }
            if self.over(Instant::now(), operations) {
                return false;
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Repeats `operation` until the round is over or `operation` returns `None`. It returns the instant from which its
    /// time counts.
    pub(super) fn repeat(
        &self,
        mut operation: impl FnMut(&mut Recorder) -> Result<Option<Instant>, LabError>,
    ) -> Result<Recorder, LabError> {
        let mut record = Recorder::new(self.start);
        while self.due().is_none_or(|due| self.wait_until(due, record.operations)) {
            let Some(started) = operation(&mut record)? else { break };
            let end = Instant::now();
            record.add(end - started, end);
            if self.over(end, record.operations) {
                break;
            }
        }
        Ok(record)
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
    let next = AtomicU64::new(0);
    let log = (spec.pattern == Pattern::Log).then(|| GroupLog::new(spec, file));
    let writer = |stop: &AtomicBool| overwrite_without_pause(spec, file, seed, stop);
    let mut round = beside((spec.beside == Beside::ContinuousWriter).then_some(writer), || {
        on_threads(spec, limits, stop, |thread, turns| {
            let worker = Worker { spec, file, turns, next: &next, seed: seed ^ (u64::from(thread) << 32) };
            match &log {
                Some(log) => worker.commit(log),
                None if spec.queue_depth > 1 => worker.deep(backend),
                None => worker.shallow(),
            }
        })
    })?;
    if let Some(log) = log {
        (round.writes_issued, round.syncs_issued) = log.issued();
    }
    Ok(round)
}

/// One round of `worker` on each thread.
pub(super) fn on_threads(
    spec: &CellSpec,
    limits: &Limits,
    stop: &AtomicBool,
    worker: impl Fn(u32, &Turns<'_>) -> Result<Recorder, LabError> + std::marker::Sync,
) -> Result<Round, LabError> {
    let operations_min = limits.operations_min.div_ceil(u64::from(spec.threads.max(1)));
    let pace = limits.rate.map(|rate| Mutex::new(Pace::new(rate)));
    let (worker, turns) = (&worker, &Turns { start: Instant::now(), limits, operations_min, pace, stop });
    let records: Result<Vec<Recorder>, LabError> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..spec.threads).map(|thread| scope.spawn(move || worker(thread, turns))).collect();
        threads.into_iter().map(joined).collect()
    });
    let elapsed = turns.start.elapsed();
    Recorder::round(records?, elapsed, limits.rate.is_some()).ok_or(LabError::Interrupted)
}

/// Runs `measure` while `background` runs on its own thread; then tells `background` to stop.
pub(super) fn beside<T>(
    background: Option<impl FnOnce(&AtomicBool) -> Result<(), LabError> + Send>,
    measure: impl FnOnce() -> Result<T, LabError>,
) -> Result<T, LabError> {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = background.map(|work| scope.spawn(move || work(stop)));
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        background.map_or(Ok(()), joined)?;
        measured
    })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Worker<'a> {
    spec: &'a CellSpec,
    file: &'a Prepared,
    turns: &'a Turns<'a>,
    next: &'a AtomicU64,
    seed: u64,
}

impl Worker<'_> {
    /// The next offset; `None` when a file that must not be overwritten is used up.
    fn offset(&self, rng: &mut Pcg64Mcg) -> Option<u64> {
        let block = u64::from(self.spec.block_bytes);
        let blocks = (self.file.span / block).max(1);
        let random = matches!(self.spec.pattern, Pattern::RandomRead | Pattern::RandomWrite)
            && self.spec.beside != Beside::BeyondEof;
        let index = if random { rng.random_range(0..blocks) } else { self.next.fetch_add(1, Ordering::Relaxed) };
        (index < blocks || self.file.circular).then(|| index % blocks * block)
    }

    /// One system call after the other.
    fn shallow(&self) -> Result<Recorder, LabError> {
        let disk = OsDisk::synchronous();
        let file = &self.file.file;
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut block = AlignedBuf::zeroed(self.spec.block_bytes as usize);
        noise(&mut block, self.seed);
        let (reads, how) = (self.spec.reads(), write_how(self.spec));
        let flush_only = self.spec.beside == Beside::ContinuousWriter;
        self.turns.repeat(|record| {
            let Some(at) = self.offset(&mut rng) else { return Ok(None) };
            let mut started = Instant::now();
            if reads {
                let got = disk.read_at(file, at, &mut block)? as u64;
                if got < block.len() as u64 {
                    // The file was not prepared as intended.
                    let kind = IoErrorKind::UnexpectedEof { got };
                    return Err(IoError::new(Op::Read, file.path(), kind).at(at, block.len() as u64).into());
                }
                return Ok(Some(started));
            }
            block[..8].copy_from_slice(&record.operations.to_le_bytes());
            write_whole(&disk, file, at, &block, how)?;
            record.writes += 1;
            if flush_only {
                // This cell measures the flush: the write before it only gives the flush something to do.
                started = Instant::now();
            }
            match self.spec.sync {
                Sync::Fdatasync => disk.sync(file, SyncHow::Data)?,
                Sync::Fsync => disk.sync(file, SyncHow::All)?,
                Sync::None | Sync::RwfDsync | Sync::ODsync => {}
            }
            record.syncs += u64::from(self.spec.sync != Sync::None);
            Ok(Some(started))
        })
    }

    /// `queue_depth` requests in flight.
    fn deep(&self, backend: Backend) -> Result<Recorder, LabError> {
        let depth = self.spec.queue_depth;
        let arena = Arena::new(self.spec.block_bytes as usize, depth);
        let disk =
            OsDisk::for_one_thread(backend, Some(arena.clone())).map_err(|e| LabError::Refused(e.to_string()))?;
        let mut bufs: Vec<_> = std::iter::from_fn(|| arena.claim()).collect();
        for (buf, n) in bufs.iter_mut().zip(0..) {
            noise(buf, self.seed.wrapping_add(n));
        }
        drop(bufs);
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut record = Recorder::new(self.turns.start);
        let mut flying: Vec<(Ticket, Instant)> = Vec::with_capacity(depth as usize);
        let mut over = false;
        // When `--rate` permits the next request, since the start of the round.
        let mut due: Option<Duration> = None;
        let kind = if self.spec.reads() { RequestKind::Read } else { RequestKind::Write(write_how(self.spec)) };
        loop {
            while !over && flying.len() < depth as usize {
                due = due.or_else(|| self.turns.due());
                if let Some(at) = due {
                    if at > self.turns.start.elapsed() && !flying.is_empty() {
                        // Waiting here would add the pause to the latency of requests in flight.
                        break;
                    }
                    if !self.turns.wait_until(at, record.operations) {
                        over = true;
                        break;
                    }
                    due = None;
                }
                let (Some(at), Some(mut buf)) = (self.offset(&mut rng), arena.claim()) else {
                    over = true;
                    break;
                };
                if kind != RequestKind::Read {
                    // As in `Preparer::write_file`: a disk that finds equal or empty blocks would not write them.
                    for block in buf.chunks_mut(4096).filter(|block| block.len() >= 8) {
                        block[..8].copy_from_slice(&rng.random::<u64>().to_le_bytes());
                    }
                    record.writes += 1;
                }
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
            let mut outcome = Ok(());
            flying.retain(|(ticket, started)| match ticket.take() {
                None => true,
                Some(completion) => {
                    if outcome.is_ok() {
                        outcome = completion.result.map(drop);
                    }
                    record.add(end.duration_since(*started), end);
                    false
                }
            });
            outcome?;
            over = over || self.turns.over(end, record.operations);
        }
        Ok(record)
    }

    /// One commit after the other into the shared log.
    fn commit(&self, log: &GroupLog<'_>) -> Result<Recorder, LabError> {
        let shape = log.shape;
        let mut records = vec![0; (shape.records_per_commit * shape.record_bytes) as usize];
        noise(&mut records, self.seed);
        self.turns.repeat(|_| {
            let started = Instant::now();
            log.commit(&records)?;
            Ok(Some(started))
        })
    }
}

/// The other thread of the flush cell.
fn overwrite_without_pause(spec: &CellSpec, file: &Prepared, seed: u64, stop: &AtomicBool) -> Result<(), LabError> {
    let disk = OsDisk::synchronous();
    let mut rng = Pcg64Mcg::seed_from_u64(!seed);
    let mut block = AlignedBuf::zeroed(spec.block_bytes as usize);
    noise(&mut block, !seed);
    let blocks = (file.span / u64::from(spec.block_bytes)).max(1);
    while !stop.load(Ordering::Relaxed) {
        let at = rng.random_range(0..blocks) * u64::from(spec.block_bytes);
        disk.write_at(&file.file, at, &[IoSlice::new(&block)], WriteHow::default())?;
    }
    Ok(())
}
