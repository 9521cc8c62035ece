//! The files of the log.
//!
//! ```text
//!   spares (before the checkpoint)      live: checkpoint .. promised      ahead: whole, synced, locked, not yet reached
//!        └──────────────────── tend: renamed to the next number ─────────────────^
//!                                 or, while there are fewer than the capacity: newly filled ───^
//! ```
//!
//! 1. `limit` is never beyond the end of the last file that is whole, synced under its name, open and locked, without a
//!    gap after the file being written. So admitted log already has its place on disk, and no commit creates, extends,
//!    renames, opens or waits for a file. A full disk or a process without descriptors fails an admission (before any
//!    latch) and never a write. `limit` is at most the capacity less one segment beyond the checkpoint, and at most
//!    [`window`] beyond what is written.
//! 2. Live files and those ahead have consecutive numbers: they are made in order, each durable before the
//!    next is begun, and only spares are removed. So a hole in the numbers after the checkpoint is damage.
//! 3. Files from the one being written to the last that is ready are open; all others are closed (`shelf.rs`
//!    says what protects those). A spare is renamed only when it is not open.
//! 4. Files are filled with real zeroes and synced before they get their name (`seawall_io::Fill`): commits
//!    overwrite written extents. The one exception is the first file of a new database, which is only
//!    allocated, so that creating one is quick. Commits into it are correct but pay for converting unwritten
//!    extents (trap 5: it is opened as not known to be written, and durable writes cover the conversion)
//!    until background work has written zeroes ahead of the log (`Log::whiten`). From then on nothing on the
//!    commit path grows, allocates or converts.
//! 5. One thread at a time makes files. It takes the job out of the state; no thread holds the mutex across I/O.
//! 6. A failed sync of the directory is final: it poisons the database, whichever thread called it. If a directory or a
//!    file could not be opened (no descriptor, no memory), the step is tried again later, from the state that was
//!    reached (trap 24).
//! 7. There are as many files as were recently needed ([`Recent`]): spares beyond that are removed.
//! 8. A hold ([`super::LogHold`]) keeps files before the checkpoint as they are. They are neither live nor
//!    spares and do not count in the capacity, so a hold stops no writer. The hold is broken, and its files
//!    become spares, when the log it holds before the checkpoint exceeds its bound, or when a file is needed
//!    and the disk is full.

mod make;

use super::entry::ENTRY_BYTES_MAX;
use super::segment_file::{SegmentOptions, lock, no_space, path_of};
use super::shelf::Shelf;
use super::stats::{Counters, count};
use super::{LogConfig, MTR_BYTES_MAX, NoRoom};
use crate::counted::Mutex;
use crate::error::{Error, Health, Result};
use crate::format::Lsn;
use parking_lot::Condvar;
use seawall_io::{
    Allocate, Cause, Create, Disk, EffectiveMode, File, FileClass, FileOptions, Fill, FlushMethod, Pace, STEP_BYTES,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Rate at which segments are filled while there is one ready ahead, bytes a second.
const FILL_BYTES_PER_SECOND: f64 = 100e6;
/// The fewest files of any log.
pub(super) const SEGMENTS_MIN: u64 = 3;

/// Returns the fewest files among which a log of such segments can rotate, whatever is logged next: the one that is
/// being written, and room for the largest entry.
pub(super) fn files_min(segment_bytes: u64) -> u64 {
    SEGMENTS_MIN.max((ENTRY_BYTES_MAX as u64).div_ceil(segment_bytes) + 1)
}

/// The most segments with admitted and unwritten log: each is open.
const WINDOW: u64 = 20;
/// The log keeps the size that it needed within the last one to two such periods.
pub(super) const RECENT: Duration = Duration::from_secs(300);

/// Returns how many segments may be open, from the one being written on. Four of the largest mini-transactions always
/// fit.
fn window(segment_bytes: u64) -> u64 {
    WINDOW.max(4 * MTR_BYTES_MAX as u64 / segment_bytes + 2)
}

/// State of the job that makes files.
#[derive(Debug)]
enum Job {
    Idle,
    Filling(Box<Fill>),
    /// The file has its name, which is not durable yet.
    Named {
        filled: bool,
    },
    /// A thread has taken the job out and works on it.
    Busy,
}

/// The most segments in use in this period, and in the one before.
#[derive(Debug)]
struct Recent {
    since: Duration,
    now: u64,
    before: u64,
}

impl Recent {
    fn note(&mut self, now: Duration, used: u64) {
        match now.saturating_sub(self.since).as_nanos() / RECENT.as_nanos() {
            0 => {}
            1 => (self.since, self.before, self.now) = (now, self.now, 0),
            _ => (self.since, self.before, self.now) = (now, 0, 0),
        }
        self.now = self.now.max(used);
    }
}

/// Why a hold is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// It held more log than its bound: this many bytes.
    Bound(u64),
    /// Its files were needed on a full disk.
    NoSpace,
}

/// Who decides where the copy of the held log ends.
///
/// ```text
///   Own              Outside --pages_are_copied--> Ready --fix_hold_end--> At
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldEnd {
    /// The backup itself, when everything is copied.
    Own,
    /// Another part of the program; pages are still being copied.
    Outside,
    /// Another part of the program; all pages are copied.
    Ready,
    /// The end is decided.
    At(u64),
}

#[derive(Debug)]
struct Hold {
    /// The log from here on is kept.
    from: u64,
    /// Log before the checkpoint that it may keep, bytes.
    max_bytes: u64,
    broken: Option<Broken>,
    end: HoldEnd,
}

#[derive(Debug)]
struct State {
    /// Live files and those ahead, by number, without holes; with their descriptors from `writing` up to
    /// `open_end`.
    files: BTreeMap<u64, Option<Arc<File>>>,
    /// Files before the checkpoint.
    spares: BTreeSet<u64>,
    /// Files before the checkpoint that a hold keeps (8).
    held: BTreeSet<u64>,
    hold: Option<Hold>,
    /// The segment that the next group begins in.
    writing: u64,
    /// The first segment at or after `writing` that is not open.
    open_end: u64,
    segment_bytes: u64,
    checkpoint: u64,
    capacity_bytes: u64,
    recent: Recent,
    job: Job,
    pace: Pace,
    /// When the next fill step is due.
    due: Duration,
    /// When the disk was full: until the next try the log rotates among the existing files.
    full_since: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    bytes: u64,
    clock: Arc<dyn seawall_io::Clock>,
    health: Arc<Health>,
    shelf: Arc<Shelf>,
    state: Mutex<State>,
    job_put_back: Condvar,
    limit: AtomicU64,
}

impl State {
    /// Returns the number after the last file's.
    fn next_number(&self) -> u64 {
        self.files.last_key_value().map_or(self.checkpoint / self.segment_bytes, |(last, _)| last + 1)
    }

    fn total(&self) -> u64 {
        (self.files.len() + self.spares.len()) as u64
    }

    /// Returns the most log to keep: the capacity, or what the existing files hold if the disk is full.
    fn capacity(&self) -> u64 {
        let there = self.total() * self.segment_bytes;
        if self.full_since.is_some() && self.total() >= SEGMENTS_MIN {
            self.capacity_bytes.min(there)
        } else {
            self.capacity_bytes
        }
    }

    /// Notes how many segments are in use: from the checkpoint's to the last ready one.
    fn note_use(&mut self, now: Duration) {
        let used = self.open_end.saturating_sub(self.checkpoint / self.segment_bytes);
        self.recent.note(now, used);
    }

    /// Breaks the hold and releases its files. Returns `false` and changes nothing if the hold has no files.
    fn break_hold(&mut self, why: Broken) -> bool {
        let Some(hold) = self.hold.as_mut().filter(|_| !self.held.is_empty()) else { return false };
        hold.broken.get_or_insert(why);
        self.spares.append(&mut self.held);
        true
    }

    /// Returns the most files worth keeping: the recent maximum in use, and one more.
    fn files_wanted(&self) -> u64 {
        let min = files_min(self.segment_bytes);
        let max = (self.capacity_bytes / self.segment_bytes).max(min);
        (self.recent.now.max(self.recent.before) + 1).clamp(min, max)
    }
}

impl Segments {
    /// Makes the state for the files of a log whose checkpoint is `checkpoint` and that is written from `at` on:
    /// `numbers` has the files from the checkpoint's on, and spares before it.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        config: &LogConfig,
        health: Arc<Health>,
        (checkpoint, at): (u64, u64),
        shelf: Arc<Shelf>,
        mut numbers: BTreeSet<u64>,
    ) -> Self {
        let live = numbers.split_off(&(checkpoint / config.segment_bytes));
        let writing = at / config.segment_bytes;
        let all = (live.len() + numbers.len()) as u64;
        let state = State {
            files: live.into_iter().map(|number| (number, None)).collect(),
            spares: numbers,
            held: BTreeSet::new(),
            hold: None,
            writing,
            open_end: writing,
            segment_bytes: config.segment_bytes,
            checkpoint,
            capacity_bytes: config.capacity_bytes,
            // Assume at first that every existing file was needed.
            recent: Recent { since: config.clock.now(), now: all, before: 0 },
            job: Job::Idle,
            pace: Pace::new(FILL_BYTES_PER_SECOND),
            due: Duration::ZERO,
            full_since: None,
        };
        let this = Self {
            disk,
            dir: config.dir.clone(),
            bytes: config.segment_bytes,
            clock: config.clock.clone(),
            health,
            shelf,
            state: Mutex::new(state),
            job_put_back: Condvar::new(),
            limit: AtomicU64::new(0),
        };
        this.set_limit(&this.state.lock());
        this
    }

    /// Makes the first file of a new database: allocated, not filled (4). Returns whether the file is already written
    /// with zeroes, which some kernels can do.
    pub(super) fn create_first(disk: &Arc<dyn Disk>, config: &LogConfig, number: u64) -> Result<bool> {
        let path = path_of(&config.dir, number);
        let how = SegmentOptions::of(config);
        let options = FileOptions::new(FileClass::Redo, how.method).create(Create::New).stats(&how.io);
        let file = File::open(disk.clone(), &path, options)?;
        lock(&file)?;
        let mut written = false;
        match file.grow(Allocate::WriteZeroes, how.segment_bytes, Cause::Preallocate) {
            Ok(()) => written = true,
            Err(e) if e.is_unsupported() => match file.grow(Allocate::Unwritten, how.segment_bytes, Cause::Preallocate)
            {
                Ok(()) => {}
                // Writing is the only way to allocate.
                Err(e) if e.is_unsupported() => {
                    let zeroes = seawall_io::AlignedBuf::zeroed(STEP_BYTES);
                    for at in (0..how.segment_bytes).step_by(STEP_BYTES) {
                        let len = (how.segment_bytes - at).min(STEP_BYTES as u64) as usize;
                        file.write_at(at, &zeroes[..len], Cause::Preallocate).map_err(|e| no_space(&path, &how, e))?;
                    }
                    written = true;
                }
                Err(e) => return Err(no_space(&path, &how, e)),
            },
            Err(e) => return Err(no_space(&path, &how, e)),
        }
        file.sync(Cause::Preallocate)?;
        disk.sync_dir(&config.dir)?;
        // It is opened again when it is needed: then alignment and length are checked as at every opening.
        drop(file);
        Ok(written)
    }

    /// Returns the position up to which space may be promised.
    pub(super) fn limit(&self) -> &AtomicU64 {
        &self.limit
    }

    fn set_limit(&self, state: &State) {
        let ready = state.open_end * self.bytes;
        let ring = state.checkpoint + state.capacity() - self.bytes;
        self.limit.store(ready.min(ring), Ordering::Release);
    }

    /// Returns the file that holds `lsn`, for the writer.
    ///
    /// # Panics
    /// When it is not open: admitted log has its place (1).
    pub(super) fn file_at(&self, lsn: u64) -> Arc<File> {
        let state = self.state.lock();
        state.files.get(&(lsn / self.bytes)).cloned().flatten().expect("what was admitted has its place on disk")
    }

    /// Like [`Segments::file_at`], but for any `lsn` that has a file; opens the file if need be.
    pub(super) fn open_at(&self, lsn: u64) -> Result<Arc<File>> {
        self.shelf.get(lsn / self.bytes)
    }

    /// Notes that the next group begins at `written`: files before it are no longer written.
    pub(super) fn written_to(&self, written: u64) {
        let mut state = self.state.lock();
        let writing = (written / self.bytes).max(state.writing);
        let before = std::mem::replace(&mut state.writing, writing);
        state.open_end = state.open_end.max(writing);
        for (_, file) in state.files.range_mut(before..writing) {
            *file = None;
        }
        drop(state);
        self.shelf.trim();
    }

    /// Releases the log before `checkpoint`.
    pub(super) fn release_before(&self, checkpoint: u64) {
        let mut state = self.state.lock();
        // The number in use is highest just before.
        state.note_use(self.clock.now());
        state.checkpoint = state.checkpoint.max(checkpoint);
        let first = state.checkpoint / self.bytes;
        let keep = state.files.split_off(&first);
        let released = std::mem::replace(&mut state.files, keep);
        let checkpoint = state.checkpoint;
        let (held, too_much) = match &state.hold {
            Some(Hold { from, max_bytes, broken: None, .. }) => {
                let behind = checkpoint.saturating_sub(*from);
                (from / self.bytes, (behind > *max_bytes).then_some(behind))
            }
            _ => (u64::MAX, None),
        };
        for number in released.into_keys() {
            if number >= held {
                state.held.insert(number)
            } else {
                state.spares.insert(number)
            };
        }
        if let Some(bytes) = too_much {
            state.break_hold(Broken::Bound(bytes));
        }
        self.set_limit(&state);
    }

    /// Keeps the log from the current checkpoint on, even when the checkpoint moves (8). Returns that checkpoint, or
    /// `None` if there is a hold already.
    pub(super) fn hold(&self, max_bytes: u64) -> Option<u64> {
        let mut state = self.state.lock();
        if state.hold.is_some() {
            return None;
        }
        let from = state.checkpoint;
        state.hold = Some(Hold { from, max_bytes, broken: None, end: HoldEnd::Own });
        Some(from)
    }

    /// Releases the held log before `lsn`. Returns why the hold was broken earlier, if it was.
    pub(super) fn hold_from(&self, lsn: u64) -> Option<Broken> {
        let mut state = self.state.lock();
        let hold = state.hold.as_mut()?;
        if hold.broken.is_some() {
            return hold.broken;
        }
        hold.from = hold.from.max(lsn);
        let held = state.held.split_off(&(lsn / self.bytes));
        let free = std::mem::replace(&mut state.held, held);
        state.spares.extend(free);
        None
    }

    /// Lets `change` change who decides the end of the held log, and returns the result. Returns `None` if there is no
    /// hold.
    pub(super) fn hold_end(&self, change: impl FnOnce(&mut HoldEnd)) -> Option<HoldEnd> {
        let mut state = self.state.lock();
        let end = &mut state.hold.as_mut()?.end;
        change(end);
        Some(*end)
    }

    /// Ends the hold.
    pub(super) fn hold_ends(&self) {
        let mut state = self.state.lock();
        let held = std::mem::take(&mut state.held);
        state.spares.extend(held);
        state.hold = None;
    }

    /// Returns the path of the segment that `lsn` lies in.
    pub(super) fn path_at(&self, lsn: u64) -> PathBuf {
        path_of(&self.dir, lsn / self.bytes)
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.capacity_bytes = bytes;
        self.set_limit(&state);
    }

    pub(super) fn set_reserve(&self, bytes: u64) {
        self.shelf.set_reserve(bytes);
        // The next try finds out again whether the disk is full.
        let mut state = self.state.lock();
        state.full_since = None;
        self.set_limit(&state);
    }

    pub(super) fn capacity(&self) -> u64 {
        self.state.lock().capacity_bytes
    }

    /// Changes how existing and later files are flushed. No thread may be writing to them.
    pub(super) fn set_method(&self, method: FlushMethod) -> Result<()> {
        // Earlier writes are lost only if their last sync failed.
        self.shelf.set_method(method).map_err(|e| if e.is_fatal() { self.health.poison(e.into()) } else { e.into() })
    }

    /// Returns the flush mode in effect for the file that holds `lsn`, if it is open.
    pub(super) fn mode(&self, lsn: u64) -> Option<EffectiveMode> {
        Some(self.state.lock().files.get(&(lsn / self.bytes))?.as_ref()?.mode())
    }

    /// Returns the numbers of the spares, and of the live files and those ahead.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> (Vec<u64>, Vec<u64>) {
        let state = self.state.lock();
        (state.spares.iter().copied().collect(), state.files.keys().copied().collect())
    }

    /// Returns how many segments are open.
    #[cfg(test)]
    pub(super) fn open_count(&self) -> usize {
        self.shelf.count()
    }

    /// Handles an admission of `need` bytes up to `after` that exceeded the limit: makes the file that it needs, or
    /// returns what must happen first. Returns `None` when the admission can be tried again.
    pub(super) fn make_room(&self, need: u64, after: u64, head: u64, counters: &Counters) -> Result<Option<NoRoom>> {
        let mut counted = false;
        loop {
            let state = self.state.lock();
            if after <= self.limit.load(Ordering::Acquire) {
                return Ok(None);
            }
            // At most the head: no checkpoint can go beyond that.
            let checkpoint = |lsn: u64| NoRoom::Checkpoint(Lsn(lsn.min(head)));
            let ring = state.checkpoint + state.capacity() - self.bytes;
            if after > ring {
                let mut state = state;
                // The disk was found full before the hold had any files: they are used now.
                if state.full_since.is_some() && state.break_hold(Broken::NoSpace) {
                    self.set_limit(&state);
                    continue;
                }
                // The existing files cannot hold such a mini-transaction, not even after a checkpoint at the head and
                // with nothing else admitted. (Mini-transactions that are admitted already end without waiting for it.)
                if need > state.capacity() - self.bytes {
                    if state.may_have_space(self.clock.now()) {
                        state.full_since = None;
                        self.set_limit(&state);
                        continue;
                    }
                    let path = path_of(&self.dir, state.next_number());
                    let kept_free_bytes = self.shelf.how().reserve_bytes;
                    return Err(Error::NoSpace { path, needed_bytes: self.bytes, kept_free_bytes });
                }
                count(&counters.waits_for_checkpoint, 1);
                return Ok(Some(checkpoint(after - (ring - state.checkpoint))));
            }
            if after > (state.writing + window(self.bytes)) * self.bytes {
                // Admitted log has to be written first: no more files may be open at once.
                count(&counters.waits_for_buffer, 1);
                return Ok(Some(NoRoom::Buffer));
            }
            let first = state.checkpoint / self.bytes;
            if !std::mem::replace(&mut counted, true) {
                count(&counters.waits_for_segment, 1);
            }
            match self.make_one(state, counters) {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) if self.goes_round(first, head, after) => {
                    count(&counters.waits_for_checkpoint, 1);
                    return Ok(Some(checkpoint((first + 1) * self.bytes)));
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Returns whether a checkpoint, at best at the head, frees space up to `after` without a new file.
    fn goes_round(&self, first: u64, head: u64, after: u64) -> bool {
        let total = self.state.lock().total();
        let fits = after.div_ceil(self.bytes) <= head / self.bytes + total;
        total >= SEGMENTS_MIN && head >= (first + 1) * self.bytes && fits
    }
}
