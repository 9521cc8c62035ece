//! Making segments: background work keeps some ready, and an admission makes the one that it needs.

use super::{Broken, Job, Segments, State, files_min, window};
use crate::error::{Error, Result};
use crate::log::segment_file::{no_space, path_of};
use crate::log::shelf::is_not_now;
use crate::log::stats::{Counters, count};
use crate::mutants::Mutant;
use parking_lot::MutexGuard;
use seawall_io::{File, FileClass, Fill, FillOptions, FillStep, IoError, Op, STEP_BYTES, errno};
use std::sync::Arc;
use std::time::Duration;

/// Whole segments that background work keeps ready ahead of the log's head.
const AHEAD: u64 = 2;
/// After a full disk, at least this time passes before the next try to make a file.
const FULL_AGAIN: Duration = Duration::from_secs(1);
/// An admission that cannot open a file tries again this many times, after this pause.
const NOT_NOW_TRIES: u32 = 50;
const NOT_NOW_PAUSE: Duration = Duration::from_millis(10);
/// Files removed by one step, and by one sync of the directory.
const REMOVED_AT_ONCE: usize = 8;

impl State {
    /// Returns whether the disk was full and it is time for the next try.
    pub(super) fn may_have_space(&self, now: Duration) -> bool {
        self.full_since.is_some_and(|since| now.saturating_sub(since) >= FULL_AGAIN)
    }
}

impl Segments {
    /// Makes the next file ready, whole and open; or waits while another thread does so, checking after each
    /// of its steps.
    pub(super) fn make_one<'s>(&'s self, mut state: MutexGuard<'s, State>, counters: &Counters) -> Result<()> {
        let number = state.open_end;
        let mut tries = 0;
        while state.open_end == number {
            if matches!(state.job, Job::Busy) {
                self.job_put_back.wait(&mut state);
                continue;
            }
            drop(state);
            match self.step_job(counters) {
                Err(e) if is_not_now(&e) && tries < NOT_NOW_TRIES => {
                    tries += 1;
                    self.clock.sleep(NOT_NOW_PAUSE);
                }
                done => done?,
            }
            state = self.state.lock();
        }
        Ok(())
    }

    /// Does one bounded step towards the next file. Does nothing while another thread is working on it.
    fn step_job(&self, counters: &Counters) -> Result<()> {
        let (job, number, spare, total, closed) = {
            let mut state = self.state.lock();
            if matches!(state.job, Job::Busy) {
                return Ok(());
            }
            let job = std::mem::replace(&mut state.job, Job::Busy);
            // An existing file only has to be opened.
            let closed = (matches!(job, Job::Idle) && state.open_end < state.next_number()).then_some(state.open_end);
            // A spare that is still in use (a group's last handle) is left for the next time (3).
            let spare = match (&job, closed) {
                (Job::Idle, None) => state.spares.iter().copied().find(|spare| self.shelf.close(*spare)),
                _ => None,
            };
            if let Some(spare) = spare {
                state.spares.remove(&spare);
            }
            (job, state.next_number(), spare, state.total() + u64::from(spare.is_some()), closed)
        };
        let named = if let Job::Named { filled } = job { Some(filled) } else { None };
        let done = match closed {
            Some(number) => self.shelf.get(number).map(|file| Step::Open(number, file)),
            None => self.advance_job(job, number, spare, total),
        };
        let mut state = self.state.lock();
        state.job = Job::Idle;
        let result = match done {
            Ok(Step::Open(number, file)) => {
                state.files.insert(number, Some(file));
                state.open_end = number + 1;
                state.note_use(self.clock.now());
                Ok(())
            }
            Ok(Step::Durable { filled }) => {
                state.files.insert(number, None);
                state.full_since = None;
                count(if filled { &counters.segments_made } else { &counters.segments_recycled }, 1);
                Ok(())
            }
            Ok(Step::More(job)) => {
                // A file that already has the next name has not used up this spare.
                state.spares.extend(spare.filter(|_| matches!(job, Job::Named { filled: true })));
                state.job = job;
                Ok(())
            }
            Err(e) => {
                // A spare that could not be renamed remains a spare, unless its file is gone.
                let gone = matches!(&e, Error::Io(e) if e.errno() == Some(errno::ENOENT));
                state.spares.extend(spare.filter(|_| !gone));
                if let Some(filled) = named {
                    // The file has its name already: the next try makes the name durable.
                    state.job = Job::Named { filled };
                }
                // The files of a hold are used first: the next try takes one of them.
                if matches!(e, Error::NoSpace { .. }) && state.break_hold(Broken::NoSpace) {
                    Ok(())
                } else {
                    if matches!(e, Error::NoSpace { .. }) {
                        state.full_since = Some(self.clock.now());
                    }
                    Err(e)
                }
            }
        };
        self.set_limit(&state);
        drop(state);
        self.job_put_back.notify_all();
        result
    }

    /// Does the step itself, with no mutex held.
    fn advance_job(&self, job: Job, number: u64, spare: Option<u64>, total: u64) -> Result<Step> {
        let target = path_of(&self.dir, number);
        let how = self.shelf.how();
        let no_space = |e| no_space(&target, &how, e);
        let exists = |e: &IoError| e.errno() == Some(errno::EEXIST);
        // An earlier step gave the file its name, although it was reported as failed.
        let is_named = |e: &IoError| exists(e) && e.path == target;
        match job {
            Job::Idle => {
                if let Some(spare) = spare {
                    return match self.disk.rename_new(&path_of(&self.dir, spare), &target) {
                        Ok(()) => Ok(Step::More(Job::Named { filled: false })),
                        Err(e) if is_named(&e) => Ok(Step::More(Job::Named { filled: true })),
                        Err(e) => Err(e.into()),
                    };
                }
                // With fewer files the log cannot rotate, and nothing can be changed or deleted: the file may use the
                // reserve.
                let reserve = if total < files_min(self.bytes) { 0 } else { how.reserve_bytes };
                let usual = FillOptions::new(FileClass::Redo, how.segment_bytes);
                let options = FillOptions { stats: how.io.clone(), reserve, written: how.written, ..usual };
                match Fill::begin(self.disk.clone(), &target, options) {
                    Ok(fill) => Ok(Step::More(Job::Filling(Box::new(fill)))),
                    Err(e) if is_named(&e) => Ok(Step::More(Job::Named { filled: true })),
                    // An earlier fill failed, and its file could not be removed. There is no other fill.
                    Err(e) if exists(&e) => {
                        self.disk.remove(&e.path)?;
                        Ok(Step::More(Job::Idle))
                    }
                    Err(e) => Err(no_space(e)),
                }
            }
            Job::Filling(fill) if fill.progress().0 < fill.progress().1 => match fill.step().map_err(no_space)? {
                FillStep::Filling(fill) => Ok(Step::More(Job::Filling(Box::new(fill)))),
                FillStep::Ready(_) => unreachable!("a fill with bytes to write is not ready"),
            },
            // A file that fails before it has its name is removed: it holds nothing.
            Job::Filling(fill) => match fill.name() {
                Ok(()) => Ok(Step::More(Job::Named { filled: true })),
                Err(e) if is_named(&e) => Ok(Step::More(Job::Named { filled: true })),
                Err(e) => Err(no_space(e)),
            },
            Job::Named { filled } => {
                // The name must be durable before the first byte is written under it.
                if !self.health.has(Mutant::DirectoryUnsynced) {
                    self.sync_dir()?;
                }
                Ok(Step::Durable { filled })
            }
            Job::Busy => unreachable!("a busy job is not taken"),
        }
    }

    /// Makes names durable. A failed sync is not repeated: the second result could be wrong (6).
    fn sync_dir(&self) -> Result<()> {
        let sorted = |e: IoError| if e.op == Op::Sync { self.health.poison(e.into()) } else { e.into() };
        self.disk.sync_dir(&self.dir).map_err(sorted)
    }

    /// Does one bounded step of background work: makes a file ahead, or removes some. Returns whether there is more to
    /// do now.
    pub(in crate::log) fn tend(&self, promised: u64, counters: &Counters) -> Result<bool> {
        enum Need {
            Nothing,
            Make,
            Remove,
        }
        let need = {
            let mut state = self.state.lock();
            let now = self.clock.now();
            state.note_use(now);
            let files_max = (state.capacity_bytes / self.bytes).max(files_min(self.bytes));
            let ahead = state.open_end.saturating_sub(promised / self.bytes + 1);
            let is_there = !state.spares.is_empty() || state.open_end < state.next_number();
            // Log that is promised and not written yet keeps its files open: no more are opened before it is written.
            let many = state.open_end >= state.writing + window(self.bytes);
            let short = ahead < AHEAD && !many;
            if matches!(state.job, Job::Busy) {
                Need::Nothing
            } else if short && !matches!(state.job, Job::Idle) {
                // A job in progress continues, paced as long as there is a file ahead.
                if ahead > 0 && matches!(state.job, Job::Filling(..)) {
                    if now < state.due {
                        return Ok(false);
                    }
                    let delay = state.pace.delay(now, STEP_BYTES as f64);
                    state.due = now + delay;
                }
                Need::Make
            } else if short && (is_there || state.total() < files_max) {
                let is_full = state.full_since.is_some() && !state.may_have_space(now);
                if is_full && !is_there { Need::Nothing } else { Need::Make }
            } else {
                Need::Remove
            }
        };
        match need {
            Need::Nothing => Ok(false),
            Need::Make => self.step_job(counters).map(|()| true),
            Need::Remove => self.remove_surplus(counters),
        }
    }

    /// Removes some of the files that are not needed. Returns whether there were any.
    fn remove_surplus(&self, counters: &Counters) -> Result<bool> {
        let spares = {
            let mut state = self.state.lock();
            let surplus = state.total().saturating_sub(state.files_wanted()).min(REMOVED_AT_ONCE as u64) as usize;
            let closed = state.spares.iter().copied().filter(|spare| self.shelf.close(*spare));
            let remove: Vec<u64> = closed.take(surplus).collect();
            state.spares.retain(|spare| !remove.contains(spare));
            remove
        };
        if spares.is_empty() {
            return Ok(false);
        }
        for (i, spare) in spares.iter().enumerate() {
            match self.disk.remove(&path_of(&self.dir, *spare)) {
                Err(e) if e.errno() != Some(errno::ENOENT) => {
                    self.state.lock().spares.extend(&spares[i..]);
                    return Err(e.into());
                }
                _ => {}
            }
            count(&counters.segments_removed, 1);
        }
        self.sync_dir()?;
        Ok(true)
    }

    /// Breaks the hold and removes files that are not needed, so that another file can use the space. Returns `false`
    /// if there are none. Does not wait for a file that is being made.
    pub(in crate::log) fn give_way(&self, counters: &Counters) -> bool {
        self.state.lock().break_hold(Broken::NoSpace);
        let mut removed = false;
        // An error occurs again where the log needs a file.
        while self.remove_surplus(counters).is_ok_and(|some| some) {
            removed = true;
        }
        removed
    }

    /// Makes files until the log has the fewest among which it can rotate.
    pub(in crate::log) fn make_least(&self, counters: &Counters) -> Result<()> {
        loop {
            let state = self.state.lock();
            if state.total() >= files_min(self.bytes) {
                return Ok(());
            }
            self.make_one(state, counters)?;
        }
    }

    /// Makes files until `lsn` has its place, whatever the capacity. For an opening.
    pub(in crate::log) fn make_up_to(&self, lsn: u64, counters: &Counters) -> Result<()> {
        loop {
            let state = self.state.lock();
            if lsn <= state.open_end * self.bytes {
                return Ok(());
            }
            self.make_one(state, counters)?;
        }
    }
}

enum Step {
    More(Job),
    /// The file is whole and its name is durable.
    Durable {
        filled: bool,
    },
    /// The segment of this number is open.
    Open(u64, Arc<File>),
}
