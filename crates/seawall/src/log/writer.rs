//! Groups: everything published is written in one contiguous write of whole blocks, followed by one flush if
//! a waiter needs it.
//!
//! 1. Only the thread that has the [`LeaderState`] writes to the segments, erases or flushes them: two writes
//!    never overlap, and the tail block is never in flight twice.
//! 2. A group is cut at the end of its segment; the next one follows at once if a thread waits for it.
//!    `written` and `durable` then lie inside an entry, so recovery trusts only [`Log::durable_whole`] (trap
//!    23).
//! 3. The tail block is written whole from memory, with the prefix it had before: a write torn at a sector
//!    leaves every earlier entry in it intact (trap 6), and the device is never read (trap 19).
//! 4. `durable` advances only after a flush that covers everything before it: segments written without a
//!    flush are remembered, and synced with the next one (a durable write by `RWF_DSYNC` covers itself only).
//! 5. A group is flushed after at most half a buffer of unflushed log, even if no thread asks for a flush. So a reader
//!    can tell damage from the end of the log after it has read a bounded distance beyond this end.
//! 6. Before it writes a group, the leader waits for the threads of the last group that are about to commit again, at
//!    most as long as the last write took. Otherwise the committing threads split into two halves, each of which just
//!    misses the other's group and waits for two writes. If writes are slow, the leader waits for only a fraction of a
//!    write's time: a thread that has not arrived by then is waiting for a lock that an arrived thread holds. If
//!    threads do other work between two commits and do not arrive, the leader does not wait ([`Gathering`]).
//! 7. The state is always put back; a leader that panics poisons the database first. If the thread was
//!    already unwinding before it led, that panic does not count.

use super::ring::GroupReader;
use super::ring_file::RingFile;
use super::stats::count;
use super::waiters::{Entered, Waiter};
use super::{Durability, Log};
use crate::blocking::{Blocked, Blocking};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::mutants::Mutant;
use seawall_io::{AlignedBuf, BUFFER_ALIGN, Cause, File, FlushMethod, STEP_BYTES};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest wait for other threads before a write...
const GATHER_NS: u64 = 200_000;
/// ... or the last write's time divided by this, if that is more.
const GATHER_SHARE: u64 = 8;
/// Segments with unflushed writes, at most.
const DIRTY_SEGMENTS_MAX: usize = 8;

/// Records whether the awaited threads came. If they do not, because they do other work between two commits, the leader
/// stops waiting, and tries again now and then.
#[derive(Debug, Default)]
struct Gathering {
    /// Falls below 0 when most waits were useless.
    score: i32,
    /// Groups to go until the next try.
    rest: u32,
}

impl Gathering {
    fn is_worth_it(&mut self) -> bool {
        self.rest = self.rest.saturating_sub(1);
        self.rest == 0
    }

    fn note(&mut self, came: bool) {
        self.score = (self.score + if came { 1 } else { -2 }).clamp(-1, 8);
        if self.score < 0 {
            (self.score, self.rest) = (0, 64);
        }
    }
}

/// Updates how long a flush takes by itself: about the least that one of the last thousand took. The other flushes also
/// wait for what the device has cached and for the writes of other threads, so they say little about the device.
pub fn quickest(before: Option<Duration>, took: Duration) -> Duration {
    before.map_or(took, |before| took.min(before + before / 1024 + Duration::from_nanos(1)))
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) lsn: u64,
    pub(super) need: Need,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Level(Durability),
    /// Written to the segments, even if the ring outlives the process: then the ring has space.
    Room,
}

impl Wanted {
    pub(super) fn of(lsn: Lsn, level: Durability) -> Self {
        Self { lsn: lsn.0, need: Need::Level(level) }
    }
}

/// The part of a new database's first segment that is not written yet.
#[derive(Debug)]
pub(super) struct Blank {
    number: u64,
    /// Written up to here, bytes of the stream.
    next: u64,
    end: u64,
    /// Kept open while zeroes are written to it without a flush.
    file: Option<Arc<File>>,
}

impl Blank {
    pub(super) fn new(number: u64, segment_bytes: u64) -> Self {
        Self { number, next: number * segment_bytes, end: (number + 1) * segment_bytes, file: None }
    }
}

/// The right to write the log, and the writer's state between groups.
#[derive(Debug)]
pub(super) struct LeaderState {
    reader: GroupReader,
    /// The segment being written, with its number; only while it is not full.
    file: Option<(u64, Arc<File>)>,
    /// Segments with unflushed writes.
    dirty: Vec<Arc<File>>,
    /// A time, and the position of the log's head at that time or later. Once everything before that position is
    /// durable, nothing unflushed is older than that time.
    sample: Option<(u64, u64)>,
    blank: Option<Blank>,
    /// How long the last write took, with its flush.
    write_ns: u64,
    gathering: Gathering,
}

impl LeaderState {
    pub(super) fn new(reader: GroupReader, blank: Option<Blank>) -> Self {
        Self {
            reader,
            file: None,
            dirty: Vec::new(),
            sample: None,
            blank,
            write_ns: 0,
            gathering: Gathering::default(),
        }
    }
}

/// The log's positions, read once for many waiters.
#[derive(Debug, Clone, Copy)]
struct Progress {
    durable: u64,
    written: u64,
    /// Everything before this survives the death of the process.
    survives: u64,
    poisoned: bool,
}

impl Progress {
    /// Returns whether the wait is over; in a poisoned database it always is. `young` returns whether everything
    /// unflushed is younger than the flush interval.
    fn is_over(&self, wanted: Wanted, young: impl FnOnce() -> bool) -> bool {
        self.poisoned
            || wanted.lsn <= self.durable
            || match wanted.need {
                Need::Level(Durability::Flushed) => false,
                Need::Level(Durability::Written) => wanted.lsn <= self.survives && young(),
                Need::Level(Durability::Deferred) => young(),
                Need::Room => wanted.lsn <= self.written,
            }
    }
}

/// A leader, from taking the state to putting it back.
struct Leading<'l> {
    log: &'l Log,
    state: Option<Box<LeaderState>>,
    /// The thread was unwinding before it led, because a `Drop` waits for a commit or rolls a transaction
    /// back. That panic is not the leader's.
    unwinding: bool,
}

impl<'l> Leading<'l> {
    fn new(log: &'l Log, state: Box<LeaderState>) -> Self {
        Self { log, state: Some(state), unwinding: std::thread::panicking() }
    }

    fn state(&mut self) -> &mut LeaderState {
        self.state.as_mut().expect("the state is there until the leader is dropped")
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        if std::thread::panicking() && !self.unwinding {
            drop(
                self.log
                    .health
                    .poison(Error::Usage("the log's writer panicked: this is a bug, please report it".into())),
            );
        }
        // Only this thread could have moved the positions. A waiter that is woken as done checks for itself.
        let progress = self.log.progress();
        let young = std::cell::LazyCell::new(|| self.log.is_younger_than(self.log.interval_ns()));
        let left = self.log.waiters.leave(state, |wanted| progress.is_over(wanted, || *young));
        self.log.led.0.committers.store((1 + left.done + left.rest) as u32, Ordering::Relaxed);
        count(&self.log.led.0.counters.followed, left.done as u64);
        self.log.watch.look(progress.durable, progress.poisoned);
    }
}

thread_local! {
    static WAITER: Arc<Waiter> = Waiter::new();
}

/// Calls `f` with the thread's waiter; with a new one if the thread is ending.
fn with_waiter<T>(f: impl FnOnce(&Arc<Waiter>) -> T) -> T {
    let mut f = Some(f);
    let mut call = |waiter: &Arc<Waiter>| f.take().map(|f| f(waiter));
    let done = WAITER.try_with(&mut call).ok().flatten();
    done.or_else(|| call(&Waiter::new())).expect("it is called once")
}

impl Log {
    fn is_poisoned(&self) -> bool {
        self.health.check().is_err()
    }

    /// Returns whether everything unflushed is younger than `interval_ns`.
    fn is_younger_than(&self, interval_ns: u64) -> bool {
        self.now_ns().saturating_sub(self.led.0.fresh_since_ns.load(Ordering::Acquire)) < interval_ns
    }

    fn interval_ns(&self) -> u64 {
        self.flush_interval_ns.load(Ordering::Relaxed)
    }

    fn progress(&self) -> Progress {
        Progress {
            poisoned: self.is_poisoned(),
            written: self.ring.written(),
            survives: self.survives(),
            durable: self.led.0.durable.load(Ordering::Acquire),
        }
    }

    /// Returns whether `wanted` is reached. Checks only what the level needs: the clock is not read for `Flushed`.
    pub(super) fn is_done(&self, wanted: Wanted) -> bool {
        if wanted.lsn <= self.led.0.durable.load(Ordering::Acquire) {
            return true;
        }
        let young = || self.is_younger_than(self.interval_ns()) && !self.is_poisoned();
        match wanted.need {
            Need::Level(Durability::Flushed) => false,
            Need::Level(Durability::Written) => wanted.lsn <= self.survives() && young(),
            Need::Level(Durability::Deferred) => young(),
            Need::Room => wanted.lsn <= self.ring.written() && !self.is_poisoned(),
        }
    }

    /// Returns the position before which everything survives the death of the process.
    fn survives(&self) -> u64 {
        if self.ring_outlives_us() { self.ring.oldest_unpublished() } else { self.ring.written() }
    }

    fn ring_outlives_us(&self) -> bool {
        self.ring_file.as_ref().is_some_and(RingFile::is_there)
    }

    /// Waits until `wanted` is reached: the slow path of [`Log::wait`].
    pub(super) fn wait_for(&self, wanted: Wanted) -> Result<()> {
        if wanted.need == Need::Level(Durability::Written) && self.ring_outlives_us() {
            self.until_published(wanted.lsn)?;
            if self.is_done(wanted) {
                return Ok(());
            }
        }
        let _blocked = Blocked::on(Blocking::Log);
        loop {
            let over = || self.is_done(wanted) || self.is_poisoned();
            match with_waiter(|waiter| self.waiters.enter(wanted, waiter, over)) {
                Entered::Recheck => {}
                Entered::Lead(state) => {
                    let mut leading = Leading::new(self, state);
                    self.lead(leading.state(), wanted)?;
                    count(&self.led.0.counters.led, 1);
                }
            }
            if self.is_done(wanted) {
                return Ok(());
            }
            self.health.check()?;
        }
    }

    /// Writes groups until `wanted` is done.
    fn lead(&self, state: &mut LeaderState, wanted: Wanted) -> Result<()> {
        while !self.is_done(wanted) {
            self.until_published(wanted.lsn)?;
            let flush = wanted.need == Need::Level(Durability::Flushed) || !self.is_younger_than(self.interval_ns());
            self.gather(state);
            self.write_one(state, flush)?;
        }
        Ok(())
    }

    /// Waits for the threads of the last group that are about to commit again (6).
    fn gather(&self, state: &mut LeaderState) {
        let expected = self.led.0.committers.load(Ordering::Relaxed) as usize;
        if expected < 2 || !state.gathering.is_worth_it() {
            return;
        }
        let patience = state.write_ns.min(GATHER_NS.max(state.write_ns / GATHER_SHARE));
        let (before, until) = (self.waiters.waiting(), self.now_ns() + patience);
        let mut now = before;
        while now + 1 < expected && self.now_ns() < until {
            std::thread::yield_now();
            now = self.waiters.waiting();
        }
        state.gathering.note(now + 1 >= expected || now > before);
    }

    /// Waits for the threads whose places lie before `lsn`. They are copying bytes, without I/O.
    fn until_published(&self, lsn: u64) -> Result<()> {
        for turn in 0u32.. {
            if self.ring.oldest_unpublished() >= lsn {
                break;
            }
            if turn < 64 {
                std::hint::spin_loop();
            } else {
                // One of the places may have been abandoned, or its thread may wait for memory of the ring's file.
                self.health.check()?;
                if turn < 1_000 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(50)) }
            }
        }
        Ok(())
    }

    /// Writes one group unless another thread is writing: for tests that drive the log step by step, and for
    /// background work. Returns whether anything was written or flushed.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn write_group(&self, flush: bool) -> Result<bool> {
        let Some(state) = self.waiters.try_lead() else { return Ok(false) };
        let mut leading = Leading::new(self, state);
        self.write_one(leading.state(), flush)
    }

    /// Runs `work` while no thread writes; waits for the current leader.
    pub(super) fn while_no_thread_writes<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // This position is never reached: the wait ends only when the thread is called or finds the state.
        let never = Wanted { lsn: u64::MAX, need: Need::Level(Durability::Flushed) };
        loop {
            if let Entered::Lead(state) = with_waiter(|waiter| self.waiters.enter(never, waiter, || self.is_poisoned()))
            {
                let _leading = Leading::new(self, state);
                return work();
            }
            self.health.check()?;
        }
    }

    fn write_one(&self, state: &mut LeaderState, flush: bool) -> Result<bool> {
        self.health.check()?;
        // The time is read first: everything reserved at or beyond this head was reserved later.
        let now = self.now_ns();
        let head = self.ring.head();
        let durable = self.led.0.durable.load(Ordering::Acquire);
        let written = self.ring.written();
        let cut = (written / self.config.segment_bytes + 1) * self.config.segment_bytes;
        let poisoned = |e: seawall_io::IoError| self.health.poison(e.into());
        let end = match self.ring.group(&mut state.reader, cut) {
            None if !flush || durable == written => return Ok(false),
            None => {
                self.sync_all(&mut state.dirty).map_err(poisoned)?;
                written
            }
            Some(group) => {
                let end = group.end;
                // A segment with unflushed writes stays open, so their number is bounded.
                let flush = flush
                    || end - durable > self.config.buffer_bytes as u64 / 2
                    || state.dirty.len() + 1 >= DIRTY_SEGMENTS_MAX;
                let number = group.from / self.config.segment_bytes;
                if state.file.as_ref().is_none_or(|(known, _)| *known != number) {
                    state.file = Some((number, self.segments.file_at(group.from)));
                }
                let (_, file) = state.file.as_ref().expect("just opened");
                let offset = group.from % self.config.segment_bytes;
                let bytes: usize = group.parts.iter().map(|part| part.len()).sum();
                let filled = group.parts.iter().filter(|part| !part.is_empty());
                let parts: smallvec::SmallVec<[&[u8]; 3]> = filled.copied().collect();
                if flush && state.dirty.is_empty() {
                    let done = file.write_durable_vectored_at(offset, &parts, Cause::Commit);
                    self.or_again(done, || file.sync(Cause::Commit)).map_err(poisoned)?;
                } else {
                    file.write_vectored_at(offset, &parts, Cause::Commit).map_err(poisoned)?;
                    mark_dirty(&mut state.dirty, file);
                    if flush {
                        self.sync_all(&mut state.dirty).map_err(poisoned)?;
                    }
                }
                drop(parts);
                state.write_ns = self.now_ns().saturating_sub(now);
                self.ring.advance(&mut state.reader);
                if end == cut {
                    state.file = None;
                    self.segments.written_to(end);
                }
                count(&self.led.0.counters.groups, 1);
                count(&self.led.0.counters.bytes, end - written);
                count(&self.led.0.counters.bytes_written, bytes as u64);
                if !flush {
                    return Ok(true);
                }
                self.note_flush(state.write_ns);
                end
            }
        };
        count(&self.led.0.counters.flushes, 1);
        // Stored first: a thread that reads `end` from `durable` also finds the last whole entry before it.
        self.led.0.durable_whole.store(state.reader.whole(), Ordering::Release);
        self.led.0.durable.store(end, Ordering::Release);
        self.note_age(state, end, (now, head));
        Ok(true)
    }

    /// Makes the unflushed writes of these files durable.
    fn sync_all(&self, dirty: &mut Vec<Arc<File>>) -> seawall_io::Result<()> {
        let done = sync_all(dirty);
        self.or_again(done, || sync_all(dirty))
    }

    /// Returns the result of a flush; a planted defect retries a failed flush.
    fn or_again(
        &self,
        done: seawall_io::Result<()>,
        again: impl FnOnce() -> seawall_io::Result<()>,
    ) -> seawall_io::Result<()> {
        match done {
            Err(e) if self.health.has(Mutant::FlushRetried) && e.op == seawall_io::Op::Sync => again(),
            done => done,
        }
    }

    /// Only the leader calls this.
    fn note_flush(&self, took_ns: u64) {
        let known = self.led.0.flush_ns.load(Ordering::Relaxed);
        let before = (known > 0).then(|| Duration::from_nanos(known.into()));
        let ns = quickest(before, Duration::from_nanos(took_ns)).as_nanos();
        self.led.0.flush_ns.store(u32::try_from(ns).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Returns how long a flush of the log takes by itself ([`quickest`]); zero before the first.
    pub fn quickest_flush(&self) -> Duration {
        Duration::from_nanos(self.led.0.flush_ns.load(Ordering::Relaxed).into())
    }

    /// Bounds the age of the log after `end`; everything before `end` is durable.
    fn note_age(&self, state: &mut LeaderState, end: u64, sample: (u64, u64)) {
        let covered = |sample: &(u64, u64)| sample.1 <= end;
        let since = if covered(&sample) {
            state.sample = None;
            sample.0
        } else {
            // Something was published after a place that is not published yet. The older sample will be covered first.
            let before = state.sample.take_if(|before| covered(before));
            state.sample.get_or_insert(sample);
            let Some(before) = before else { return };
            before.0
        };
        self.led.0.fresh_since_ns.fetch_max(since, Ordering::AcqRel);
    }

    /// Does one step of the writing part of [`Log::tend`]. Returns whether it did anything.
    pub(super) fn tend_writing(&self) -> Result<bool> {
        self.health.check()?;
        if let Some(ring) = &self.ring_file {
            ring.look(self.now_ns(), self.interval_ns() / 2);
        }
        let unflushed = self.ring.oldest_unpublished() > self.led.0.durable.load(Ordering::Acquire);
        // Flushed well before the interval ends, so that the interval is kept although this is called only now and
        // then.
        if unflushed && !self.is_younger_than(self.interval_ns() / 2) {
            return self.write_group(true);
        }
        // No thread waits for deferred commits. If they are written before the buffer is full, they never make a thread
        // wait for space.
        if self.ring.oldest_unpublished().saturating_sub(self.ring.written()) > self.config.buffer_bytes as u64 / 4 {
            return self.write_group(false);
        }
        let Some(state) = self.waiters.try_lead() else { return Ok(false) };
        let mut leading = Leading::new(self, state);
        self.whiten(leading.state())
    }

    /// Writes zeroes over a part of the first segment that lies ahead of the log (`segments.rs`, 4).
    fn whiten(&self, state: &mut LeaderState) -> Result<bool> {
        let Some(blank) = &mut state.blank else { return Ok(false) };
        let block = self.config.block_bytes as u64;
        // Everything up to the end of the tail block has been written by groups.
        let from = blank.next.max(self.ring.written().next_multiple_of(block)).min(blank.end);
        let to = (from + STEP_BYTES as u64).min(blank.end);
        let poisoned = |e: seawall_io::IoError| self.health.poison(e.into());
        if from / self.config.segment_bytes == blank.number {
            let file = match &blank.file {
                Some(file) => file.clone(),
                None => self.segments.open_at(from)?,
            };
            let file = blank.file.insert(file);
            let zeroes = AlignedBuf::zeroed((to - from) as usize);
            file.write_at(from % self.config.segment_bytes, &zeroes, Cause::Preallocate).map_err(poisoned)?;
            if to == blank.end {
                file.sync(Cause::Preallocate).map_err(poisoned)?;
                file.declare_written();
            }
        }
        blank.next = to;
        if to == blank.end {
            state.blank = None;
        }
        Ok(true)
    }

    /// Reads the blocks of `again` and writes them again, durably. A flush alone is not enough: after a failed one
    /// the bytes may be readable but lost, and the next flush does not report them.
    pub(super) fn write_again(&self, checkpoint: u64, again: Range<u64>) -> Result<()> {
        if again.is_empty() {
            return Ok(());
        }
        let mut at = again.start & !(self.config.block_bytes as u64 - 1);
        self.for_blocks(at, again.end, |file, offset, buf| {
            // Nothing is read beyond the end, nor before the checkpoint: the disk may be unable to read there
            // (reader.rs, 6), and zeroes do no harm there.
            let align = BUFFER_ALIGN as u64;
            let [from, to] = [checkpoint & !(align - 1), again.end.next_multiple_of(align)]
                .map(|lsn| lsn.saturating_sub(at).min(buf.len() as u64));
            at += buf.len() as u64;
            file.read_at(offset + from, &mut buf[from as usize..to as usize], Cause::Recovery)?;
            file.write_durable_at(offset, buf, Cause::Recovery)
        })
    }

    /// Overwrites with zeroes, durably, what an earlier opening left between the block of `end` and
    /// `ghosts_end`. This opening has written nothing here yet.
    pub(super) fn erase(&self, end: u64, ghosts_end: u64) -> Result<()> {
        self.for_blocks(end.next_multiple_of(self.config.block_bytes as u64), ghosts_end, |file, offset, buf| {
            file.write_durable_at(offset, buf, Cause::Recovery)
        })
    }

    /// Visits the blocks from `at` (where one begins) to the one that holds the byte before `end`, in bounded pieces.
    /// `visit` gets the file, the offset and a buffer of zeroes.
    fn for_blocks(
        &self,
        mut at: u64,
        end: u64,
        mut visit: impl FnMut(&File, u64, &mut [u8]) -> seawall_io::Result<()>,
    ) -> Result<()> {
        let end = end.next_multiple_of(self.config.block_bytes as u64);
        while at < end {
            let offset = at % self.config.segment_bytes;
            let len = (end - at).min(STEP_BYTES as u64).min(self.config.segment_bytes - offset);
            let mut buf = AlignedBuf::zeroed(len as usize);
            let file = self.segments.open_at(at)?;
            visit(&file, offset, &mut buf).map_err(|e| self.health.poison(e.into()))?;
            at += len;
        }
        Ok(())
    }
}

fn mark_dirty(dirty: &mut Vec<Arc<File>>, file: &Arc<File>) {
    if !dirty.iter().any(|known| Arc::ptr_eq(known, file)) {
        dirty.push(file.clone());
    }
}

/// Makes the unflushed writes of these files durable.
fn sync_all(dirty: &mut Vec<Arc<File>>) -> seawall_io::Result<()> {
    for file in dirty.iter() {
        if file.mode().requested == FlushMethod::ODsync {
            // Each write was durable by itself.
            file.barrier(Cause::Commit)?;
        } else {
            file.sync(Cause::Commit)?;
        }
    }
    dirty.clear();
    Ok(())
}
