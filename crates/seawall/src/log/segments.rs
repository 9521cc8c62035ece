//! The files of the log.
//!
//! ```text
//!   spares (before the checkpoint)      live: checkpoint .. promised      ahead: whole, synced, locked, not yet reached
//!        └──────────────────── tend: renamed to the next number ─────────────────^
//!                                 or, while there are fewer than the capacity: filled anew ──^
//! ```
//!
//! 1. `limit` is never beyond the end of the last file that is whole and synced under its name: what is admitted has
//!    its place on disk already, so no commit creates, extends, renames or waits for a file, and a full disk is met at
//!    admission (before any latch) and never at a write. It is no further than one segment less than the capacity
//!    beyond the checkpoint.
//! 2. Live files and those ahead have consecutive numbers: they are made in order, each durable before the next is
//!    begun, and only spares are removed. So a hole in the numbers after the checkpoint is damage.
//! 3. Every file is locked through the handle that writes it (trap 7), spares too. A spare is renamed only when nobody
//!    else holds its handle.
//! 4. Files are filled with real zeroes and synced before they get their name (`seawall_io::Fill`): commits overwrite
//!    written extents. The one exception is the first file of a new database, which is only allocated, so that creating
//!    one is quick: commits into it are correct but pay for converting unwritten extents (trap 5: it is opened as not
//!    known to be written, and durable writes cover the conversion) until background work has written zeroes over what
//!    lies ahead (`Log::whiten`). From then on nothing on the commit path grows, allocates or converts.
//! 5. One thread at a time makes files. It takes the job out of the mutex; nobody holds the mutex across I/O.

use super::stats::{Counters, count};
use super::{LogConfig, NoRoom};
use crate::error::{Corruption, Error, Health, Result};
use crate::format::Lsn;
use crate::mutants::Mutant;
use parking_lot::{Condvar, Mutex, MutexGuard};
use seawall_io::{
    Allocate, Cause, Create, Disk, EffectiveMode, File, FileClass, FileOptions, Fill, FillOptions, FillStep,
    FlushMethod, IoError, IoErrorKind, IoStats, Op, Pace, STEP_BYTES,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whole segments that background work keeps ready ahead of the log's head.
const AHEAD: u64 = 2;
/// Rate at which segments are filled while there is one ready ahead, bytes a second.
const FILL_BYTES_PER_SECOND: f64 = 100e6;
/// The fewest files a log can go round in.
pub(super) const SEGMENTS_MIN: u64 = 3;
/// After a full disk, making a file is tried again no sooner than this.
const FULL_AGAIN: Duration = Duration::from_secs(1);

const PREFIX: &str = "redo.";

/// The path of segment `number`.
pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{number:016x}"))
}

/// The number in the name of a segment.
pub(super) fn number_of(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let ours = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    ours.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// All segments in the log's directory, by number.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    Ok(disk.list(dir)?.into_iter().filter_map(|path| Some((number_of(&path)?, path))).collect())
}

/// Removes all segments, finished or not.
pub(super) fn discard(disk: &dyn Disk, dir: &Path) -> Result<()> {
    remove_unfinished(disk, dir)?;
    for path in list(disk, dir)?.into_values() {
        disk.remove(&path)?;
    }
    Ok(disk.sync_dir(dir)?)
}

/// Removes what interrupted fills left; none is under way.
pub(super) fn remove_unfinished(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for path in disk.list(dir)? {
        let filling = path.extension().is_some_and(|e| e == seawall_io::FILLING);
        if filling && number_of(&path.with_extension("")).is_some() {
            disk.remove(&path)?;
        }
    }
    Ok(())
}

/// Opens a segment and locks it through the handle that will write it.
pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path, how: &How, written: bool) -> Result<File> {
    let options =
        FileOptions { known_written: written, ..FileOptions::new(FileClass::Redo, how.method).stats(&how.io) };
    let file = File::open(disk.clone(), path, options)?;
    lock(&file)?;
    let (found, expected) = (file.len(), how.segment_bytes);
    if found != expected {
        let why = format!(
            "this segment of the log has {found} bytes where {expected} were expected: it was cut or copied in part. Restore it from a backup"
        );
        return Err(Corruption::File { path: path.into(), why }.into());
    }
    let needed = file.mode().align_bytes as usize;
    if how.block_bytes % needed != 0 {
        return Err(Error::InvalidOption {
            name: "log_block_bytes".into(),
            value: how.block_bytes.to_string(),
            why: format!("direct I/O on {} needs a multiple of {needed}", path.display()),
        });
    }
    Ok(file)
}

fn lock(file: &File) -> Result<()> {
    file.lock().map_err(|e| match e.kind {
        IoErrorKind::Locked => Error::Locked { path: file.path().into() },
        _ => e.into(),
    })
}

/// How files are opened.
#[derive(Debug, Clone)]
pub(super) struct How {
    pub(super) method: FlushMethod,
    pub(super) io: Arc<IoStats>,
    pub(super) segment_bytes: u64,
    pub(super) block_bytes: usize,
}

impl How {
    pub(super) fn of(config: &LogConfig) -> Self {
        Self {
            method: config.method,
            io: config.stats.clone(),
            segment_bytes: config.segment_bytes,
            block_bytes: config.block_bytes,
        }
    }
}

/// What the maker of files is at.
#[derive(Debug)]
enum Job {
    Idle,
    Filling(Box<Fill>),
    /// The file has its name; it is to be opened.
    Named,
    /// Somebody has taken the job out and is at it.
    Busy,
}

#[derive(Debug)]
struct State {
    how: How,
    /// Live files and those ahead, by number, without holes.
    files: BTreeMap<u64, Arc<File>>,
    /// Files before the checkpoint.
    spares: BTreeMap<u64, Arc<File>>,
    checkpoint: u64,
    capacity_bytes: u64,
    job: Job,
    pace: Pace,
    /// The next fill step is due.
    due: Duration,
    /// The disk was full at this time: until it is tried again the log goes round in the files there are.
    full_since: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    bytes: u64,
    clock: Arc<dyn seawall_io::Clock>,
    health: Arc<Health>,
    state: Mutex<State>,
    job_put_back: Condvar,
    limit: AtomicU64,
}

impl State {
    /// One beyond the last file that is ready.
    fn next_number(&self) -> u64 {
        self.files.last_key_value().map_or(self.checkpoint / self.how.segment_bytes, |(last, _)| last + 1)
    }

    fn total(&self) -> u64 {
        (self.files.len() + self.spares.len()) as u64
    }

    /// The most log kept: the capacity, or what the files there are hold when there is no room for more.
    fn capacity(&self) -> u64 {
        let there = self.total() * self.how.segment_bytes;
        if self.full_since.is_some() && self.total() >= SEGMENTS_MIN {
            self.capacity_bytes.min(there)
        } else {
            self.capacity_bytes
        }
    }
}

fn is_full(error: &IoError) -> bool {
    matches!(error.kind, IoErrorKind::Os(errno::ENOSPC | errno::EDQUOT) | IoErrorKind::Reserve { .. })
}

/// Whether this way of allocating does not exist here.
fn is_unsupported(error: &IoError) -> bool {
    matches!(error.errno(), Some(errno::EINVAL | errno::ENOSYS | errno::EOPNOTSUPP))
}

/// Linux's numbers for the refusals that are told apart here.
mod errno {
    pub(super) const EEXIST: i32 = 17;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const ENOSPC: i32 = 28;
    pub(super) const ENOSYS: i32 = 38;
    pub(super) const EOPNOTSUPP: i32 = 95;
    pub(super) const EDQUOT: i32 = 122;
}

impl Segments {
    /// The files of a log whose checkpoint is `checkpoint`: `files` from the checkpoint's on, `spares` before it.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        config: &LogConfig,
        health: Arc<Health>,
        checkpoint: u64,
        mut files: BTreeMap<u64, Arc<File>>,
    ) -> Self {
        let live = files.split_off(&(checkpoint / config.segment_bytes));
        let state = State {
            how: How::of(config),
            files: live,
            spares: files,
            checkpoint,
            capacity_bytes: config.capacity_bytes,
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
            state: Mutex::new(state),
            job_put_back: Condvar::new(),
            limit: AtomicU64::new(0),
        };
        this.set_limit(&this.state.lock());
        this
    }

    /// Makes the first file of a new database: allocated, not filled (4). It is written already where the kernel can do
    /// that.
    pub(super) fn create_first(disk: &Arc<dyn Disk>, config: &LogConfig, number: u64) -> Result<(File, bool)> {
        let path = path_of(&config.dir, number);
        let how = How::of(config);
        let options = FileOptions::new(FileClass::Redo, how.method).create(Create::New).stats(&how.io);
        let file = File::open(disk.clone(), &path, options)?;
        lock(&file)?;
        let mut written = false;
        match file.grow(Allocate::WriteZeroes, how.segment_bytes, Cause::Preallocate) {
            Ok(()) => written = true,
            Err(e) if is_unsupported(&e) => match file.grow(Allocate::Unwritten, how.segment_bytes, Cause::Preallocate)
            {
                Ok(()) => {}
                // No way to allocate but by writing.
                Err(e) if is_unsupported(&e) => {
                    let zeroes = seawall_io::AlignedBuf::zeroed(STEP_BYTES);
                    for at in (0..how.segment_bytes).step_by(STEP_BYTES) {
                        let len = (how.segment_bytes - at).min(STEP_BYTES as u64) as usize;
                        file.write_at(at, &zeroes[..len], Cause::Preallocate)
                            .map_err(|e| no_space(&path, how.segment_bytes, e))?;
                    }
                    written = true;
                }
                Err(e) => return Err(no_space(&path, how.segment_bytes, e)),
            },
            Err(e) => return Err(no_space(&path, how.segment_bytes, e)),
        }
        file.sync(Cause::Preallocate)?;
        disk.sync_dir(&config.dir)?;
        // Opened anew: alignment and length are checked as at every opening.
        drop(file);
        Ok((open(disk, &path, &how, written)?, written))
    }

    /// What may be promised, up to here.
    pub(super) fn limit(&self) -> &AtomicU64 {
        &self.limit
    }

    fn set_limit(&self, state: &State) {
        let ready = state.next_number() * self.bytes;
        let ring = state.checkpoint + state.capacity() - self.bytes;
        self.limit.store(ready.min(ring), Ordering::Release);
    }

    /// The file that holds `lsn`.
    ///
    /// # Panics
    /// When there is none: what was admitted has its place (1).
    pub(super) fn file_at(&self, lsn: u64) -> Arc<File> {
        self.state.lock().files.get(&(lsn / self.bytes)).cloned().expect("what was admitted has its place on disk")
    }

    /// The log before `checkpoint` is not needed any more.
    pub(super) fn release_before(&self, checkpoint: u64) {
        let mut state = self.state.lock();
        state.checkpoint = state.checkpoint.max(checkpoint);
        let first = state.checkpoint / self.bytes;
        let keep = state.files.split_off(&first);
        let released = std::mem::replace(&mut state.files, keep);
        state.spares.extend(released);
        self.set_limit(&state);
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.capacity_bytes = bytes;
        self.set_limit(&state);
    }

    pub(super) fn capacity(&self) -> u64 {
        self.state.lock().capacity_bytes
    }

    /// Changes how the files are flushed: those there are, and those to come. Nobody is writing to them.
    pub(super) fn set_method(&self, method: FlushMethod) -> Result<()> {
        let files: Vec<Arc<File>> = {
            let mut state = self.state.lock();
            state.how.method = method;
            // A spare is opened anew when its turn comes.
            state.files.values().cloned().collect()
        };
        for file in files {
            if let Err(e) = file.set_method(method) {
                // Writes of before are lost only when their last sync failed.
                return Err(if e.is_fatal() { self.health.poison(e.into()) } else { e.into() });
            }
        }
        Ok(())
    }

    /// What is in effect for the file that holds `lsn`.
    pub(super) fn mode(&self, lsn: u64) -> Option<EffectiveMode> {
        Some(self.state.lock().files.get(&(lsn / self.bytes))?.mode())
    }

    /// Files there are, and bytes of each.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> (Vec<u64>, Vec<u64>) {
        let state = self.state.lock();
        (state.spares.keys().copied().collect(), state.files.keys().copied().collect())
    }

    /// An admission up to `after` found the limit: makes the file it needs, or says what has to happen first. `None`:
    /// try again.
    pub(super) fn make_room(&self, after: u64, head: u64, counters: &Counters) -> Result<Option<NoRoom>> {
        let mut counted = false;
        loop {
            let state = self.state.lock();
            if after <= self.limit.load(Ordering::Acquire) {
                return Ok(None);
            }
            // No further than the head: no checkpoint can go beyond that.
            let checkpoint = |lsn: u64| NoRoom::Checkpoint(Lsn(lsn.min(head)));
            let ring = state.checkpoint + state.capacity() - self.bytes;
            if after > ring {
                // Not even a checkpoint at the head would do: the few files that there are hold no such mini-transaction.
                if after.saturating_sub(head) > state.capacity() - self.bytes {
                    let path = path_of(&self.dir, state.next_number());
                    return Err(Error::NoSpace { path, needed_bytes: self.bytes });
                }
                count(&counters.waits_for_checkpoint, 1);
                return Ok(Some(checkpoint(after - (ring - state.checkpoint))));
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

    /// Whether a checkpoint, at best at the head, frees room up to `after` without a new file being made.
    fn goes_round(&self, first: u64, head: u64, after: u64) -> bool {
        let total = self.state.lock().total();
        let fits = after.div_ceil(self.bytes) <= head / self.bytes + total;
        total >= SEGMENTS_MIN && head >= (first + 1) * self.bytes && fits
    }

    /// Makes the next file, whole; or waits while somebody else is at it, and returns at each of their steps.
    fn make_one<'s>(&'s self, mut state: MutexGuard<'s, State>, counters: &Counters) -> Result<()> {
        let number = state.next_number();
        while state.next_number() == number {
            if matches!(state.job, Job::Busy) {
                self.job_put_back.wait(&mut state);
                continue;
            }
            drop(state);
            self.step_job(counters)?;
            state = self.state.lock();
        }
        Ok(())
    }

    /// One bounded step towards the next file. Does nothing while somebody else is at it.
    fn step_job(&self, counters: &Counters) -> Result<()> {
        let (job, number, how, spare) = {
            let mut state = self.state.lock();
            if matches!(state.job, Job::Busy) {
                return Ok(());
            }
            let job = std::mem::replace(&mut state.job, Job::Busy);
            // A spare in use a moment longer (a group's last handle) is left for the next time (3).
            let free = state.spares.iter().find(|(_, file)| Arc::strong_count(file) == 1).map(|(n, _)| *n);
            let spare = match (&job, free) {
                (Job::Idle, Some(n)) => state.spares.remove_entry(&n),
                _ => None,
            };
            (job, state.next_number(), state.how.clone(), spare)
        };
        let named = matches!(job, Job::Named);
        let filling = matches!(job, Job::Filling(..));
        let spare_number = spare.as_ref().map(|(n, _)| *n);
        // The handle goes first: its lock would be in the way of the one that is to come.
        drop(spare);
        let done = self.advance_job(job, number, &how, spare_number);
        // A spare that could not be renamed is a spare still.
        let kept = match (&done, spare_number) {
            (Err(_), Some(n)) => {
                open(&self.disk, &path_of(&self.dir, n), &how, true).ok().map(|file| (n, Arc::new(file)))
            }
            _ => None,
        };
        let mut state = self.state.lock();
        state.job = Job::Idle;
        state.spares.extend(kept);
        let result = match done {
            Ok(Step::Ready(file)) => {
                state.files.insert(number, Arc::new(file));
                state.full_since = None;
                count(if filling { &counters.segments_made } else { &counters.segments_recycled }, 1);
                Ok(())
            }
            Ok(Step::More(job)) => {
                state.job = job;
                Ok(())
            }
            Err(e) => {
                if named {
                    // It has its name already: the next try is to open it.
                    state.job = Job::Named;
                }
                if matches!(e, Error::NoSpace { .. }) {
                    state.full_since = Some(self.clock.now());
                }
                Err(e)
            }
        };
        self.set_limit(&state);
        drop(state);
        self.job_put_back.notify_all();
        result
    }

    /// The step itself, with nothing locked.
    fn advance_job(&self, job: Job, number: u64, how: &How, spare: Option<u64>) -> Result<Step> {
        let target = path_of(&self.dir, number);
        match job {
            Job::Idle => {
                if let Some(spare) = spare {
                    self.disk.rename_new(&path_of(&self.dir, spare), &target)?;
                    return Ok(Step::More(Job::Named));
                }
                let options =
                    FillOptions { stats: how.io.clone(), ..FillOptions::new(FileClass::Redo, how.segment_bytes) };
                match Fill::begin(self.disk.clone(), &target, options) {
                    Ok(fill) => Ok(Step::More(Job::Filling(Box::new(fill)))),
                    // A step before this one gave it its name and could not open it.
                    Err(e) if e.errno() == Some(errno::EEXIST) && e.path == target => Ok(Step::More(Job::Named)),
                    Err(e) => Err(no_space(&target, how.segment_bytes, e)),
                }
            }
            Job::Filling(fill) => match fill.step() {
                Ok(FillStep::Filling(fill)) => Ok(Step::More(Job::Filling(Box::new(fill)))),
                // Filled as a direct file; from here on it is open the way the log is flushed.
                Ok(FillStep::Ready(file)) => {
                    drop(file);
                    Ok(Step::Ready(open(&self.disk, &target, how, true)?))
                }
                Err(e) if e.op == Op::Directory && e.errno() != Some(errno::EEXIST) => {
                    Err(self.health.poison(e.into()))
                }
                Err(e) => Err(no_space(&target, how.segment_bytes, e)),
            },
            Job::Named => {
                // The name is durable before the first byte is written under it. A directory that cannot be synced is
                // not asked again: the second answer could be a lie.
                if !self.health.has(Mutant::DirectoryUnsynced) {
                    self.disk.sync_dir(&self.dir).map_err(|e| self.health.poison(e.into()))?;
                }
                Ok(Step::Ready(open(&self.disk, &target, how, true)?))
            }
            Job::Busy => unreachable!("a job that somebody is at is not taken"),
        }
    }

    /// One bounded step of background work: a file ahead, or one less. Whether there is more to do now.
    pub(super) fn tend(&self, promised: u64, counters: &Counters) -> Result<bool> {
        enum Need {
            Nothing,
            Make,
            Remove(u64),
        }
        let need = {
            let mut state = self.state.lock();
            let files_max = (state.capacity_bytes / self.bytes).max(SEGMENTS_MIN);
            let ahead = state.next_number().saturating_sub(promised / self.bytes + 1);
            let now = self.clock.now();
            if matches!(state.job, Job::Busy) {
                Need::Nothing
            } else if ahead < AHEAD && !matches!(state.job, Job::Idle) {
                // Begun work goes on, at its pace as long as there is something ahead.
                if ahead > 0 && matches!(state.job, Job::Filling(..)) {
                    if now < state.due {
                        return Ok(false);
                    }
                    let delay = state.pace.delay(now, STEP_BYTES as f64);
                    state.due = now + delay;
                }
                Need::Make
            } else if ahead < AHEAD && (!state.spares.is_empty() || state.total() < files_max) {
                let full = state.full_since.is_some_and(|since| now.saturating_sub(since) < FULL_AGAIN);
                if full && state.spares.is_empty() { Need::Nothing } else { Need::Make }
            } else {
                let removable = state.spares.iter().find(|(_, file)| Arc::strong_count(file) == 1).map(|(n, _)| *n);
                match removable {
                    Some(spare) if state.total() > files_max => {
                        state.spares.remove(&spare);
                        Need::Remove(spare)
                    }
                    _ => Need::Nothing,
                }
            }
        };
        match need {
            Need::Nothing => return Ok(false),
            Need::Make => self.step_job(counters)?,
            Need::Remove(spare) => {
                self.disk.remove(&path_of(&self.dir, spare))?;
                self.disk.sync_dir(&self.dir)?;
                count(&counters.segments_removed, 1);
            }
        }
        Ok(true)
    }

    /// Makes files until `lsn` has its place, whatever the capacity. For the opening.
    pub(super) fn make_up_to(&self, lsn: u64, counters: &Counters) -> Result<()> {
        loop {
            let state = self.state.lock();
            if lsn <= state.next_number() * self.bytes {
                return Ok(());
            }
            self.make_one(state, counters)?;
        }
    }
}

enum Step {
    More(Job),
    Ready(File),
}

/// A full disk by its name, anything else as it is.
fn no_space(path: &Path, needed_bytes: u64, error: IoError) -> Error {
    if is_full(&error) { Error::NoSpace { path: path.into(), needed_bytes } } else { error.into() }
}
