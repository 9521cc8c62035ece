//! Writing pages home.
//!
//! ```text
//!   dirty ──copy (shared latch): rec_lsn -> writing──> in flight ──log flushed, copy doublewritten, written home──>
//!   clean
//!     ^                                                   │
//!     └────────────── changed meanwhile: rec_lsn set anew ┘ (dirty again when the write has returned: trap 17)
//! ```
//!
//! 1. A write carries a copy made under a shared latch: the page may change while the copy is in flight.
//! 2. Before any page of a batch is written, the log is *flushed* up to the newest of its pages (trap 10).
//! 3. There is one batch at a time ([`super::role::Role`]), so at most one write in flight per page. No latch and no
//!    mutex is held during its I/O.
//! 4. A failed write or flush poisons the database: its pages stay in flight for ever, and no checkpoint passes them. A
//!    panic between the beginning and the end of a write poisons it, too ([`Unfinished`]).
//! 5. A page needs no doublewrite if a record initialises it and no earlier record since the checkpoint changes it: if
//!    its write tears, recovery does not read the page. The page's `rec_lsn` is in flight and holds back the checkpoint
//!    until the page is written. There is certainly no earlier record if the checkpoint lies in the log of this opening
//!    and the page was not in memory earlier in this opening.
//! 6. The cleaner may wait for a latch, because it holds no other: threads that hold latches never wait for the
//!    cleaner.
//! 7. A batch is small, because the log's writes wait behind it in the disk's queue. If even the quickest flushes take
//!    long, a batch is larger ([`super::doublewrite::Doublewrite::batch`]). An explicit checkpoint uses the largest
//!    batches.

use super::cleaner::Old;
use super::dirty::Ordered;
use super::doublewrite::BATCH;
use super::frame::{REMADE, RETIRED, WHOLE};
use super::pool::Pool;
use super::read::Loading;
use super::stats::count;
use super::unfinished::Unfinished;
use crate::error::Result;
use crate::format::{Lsn, PageId, page};
use crate::log::Durability;
use crate::mutants::Mutant;
use seawall_io::{Cause, FileRequest, IoBuf};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Cleaning rests while both the checkpoint age and the dirty pages are below this share of their limits, percent. The
/// larger the share, the fewer writes: a page that changes all the time is written once for each stretch of log that
/// lies between this share and the part of the age that a round writes.
const CALM_PERCENT: u64 = 50;
/// From this share on, cleaning writes at the burst rate.
const URGENT_PERCENT: u64 = 80;
/// A round writes the pages whose oldest change lies in this part of the age: `1 / AGE_PARTS`.
const AGE_PARTS: u64 = 4;

/// The most away pages that are listed at a time: meanwhile, threads that load pages wait for the `Away` mutex.
const AWAY_MOST: usize = 1 << 16;

/// Frames ahead of the clock hand that are searched for dirty pages before any others.
const NEAR_HAND: u64 = 8192;

/// The result of a step of cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Pages written home.
    pub written: usize,
    /// Frames made free.
    pub freed: usize,
    /// Whether another step would find work now.
    pub more: bool,
    /// How long the step and the pause after it should take together, so that cleaning stays within its capacity
    /// ([`Pool::set_io_capacity`]).
    pub pause: Duration,
}

/// A page that is being written home.
struct Copied {
    /// Its frame, and the frame's `rec_lsn` when the write began; `None` for a page that is merged without one.
    frame: Option<(u64, u32)>,
    page: PageId,
    /// The page needs no doublewrite (5).
    bare: bool,
    bytes: IoBuf,
}

impl Pool {
    /// Does one step of background work: evicts pages when free frames are short, and writes old pages when the
    /// checkpoint falls behind or many pages are dirty. No latch may be held.
    ///
    /// # Errors
    /// A failed write or flush, which poisons; or the first failure, if there was one. The error of a page with
    /// deferred changes that cannot be read does not poison: the other pages of its batch are written.
    pub fn clean_step(&self) -> Result<Progress> {
        self.health().check()?;
        self.finish_prefetches(false);
        self.frames.touch_ahead();
        self.adapt_deferred();
        // A frame whose page is in use cannot be retired yet: the rest of cleaning does not wait for it.
        let retired = self.fit_frames()?;
        if retired.written > 0 && retired.frames > 0 {
            let written = retired.written;
            return Ok(Progress { written, freed: 0, more: true, pause: self.pause_after(written, None) });
        }
        let short = self.free_wanted().saturating_sub(self.frames.free_count());
        if short > 0 {
            let freed = self.evict(short, false);
            let written = if freed < short { self.clean_near_hand(self.free_wanted(), false)? } else { 0 };
            let freed = freed + if written > 0 { self.evict(short, false) } else { 0 };
            if freed > 0 || written > 0 {
                return Ok(Progress { written, freed, more: true, pause: self.pause_after(written, None) });
            }
        }
        if self.deferred.is_over() {
            let written = self.shorten_lists()?;
            if written > 0 {
                return Ok(Progress { written, freed: 0, more: true, pause: self.pause_after(written, None) });
            }
        }
        let (aged, dirty) = self.pressure_percent();
        let pressure = aged.max(dirty);
        if pressure < CALM_PERCENT {
            return Ok(Progress::default());
        }
        let written = self.clean_oldest(aged >= CALM_PERCENT)?;
        // The share of the capacity: from a tenth to all of it.
        let share = (pressure - CALM_PERCENT).max(3) as f64 / (URGENT_PERCENT - CALM_PERCENT) as f64;
        let pause = self.pause_after(written, (pressure < URGENT_PERCENT).then_some(share));
        Ok(Progress { written, freed: 0, more: written > 0, pause })
    }

    /// Returns the least time for `written` pages: at the burst rate, or at a share of the normal rate.
    fn pause_after(&self, written: usize, share: Option<f64>) -> Duration {
        let rate = |capacity: &AtomicU32| f64::from(capacity.load(Ordering::Relaxed).max(1));
        let burst = rate(&self.io_capacity_burst);
        let pages_a_second = share.map_or(burst, |share| burst.min(rate(&self.io_capacity) * share));
        Duration::from_secs_f64(written as f64 / pages_a_second)
    }

    /// The number of pages that cleaning writes at a time: [`BATCH`] without doublewrite, because then no flush is
    /// measured.
    pub(super) fn batch(&self) -> usize {
        let doublewrite = self.doublewrite.as_ref().filter(|_| self.protects());
        doublewrite.map_or(BATCH, |doublewrite| doublewrite.batch(self.log().quickest_flush()))
    }

    /// The number of frames that should be free, so that a thread that reads a page finds one.
    fn free_wanted(&self) -> usize {
        (self.frames.limit() as usize / 16).clamp(1, 1024)
    }

    /// Returns the checkpoint age, and the number of dirty pages that cannot be evicted without a write, as percent of
    /// their limits.
    fn pressure_percent(&self) -> (u64, u64) {
        let age = self.log().head().0.saturating_sub(self.checkpoint_lsn().0);
        let dirty_max = u64::from(self.frames.limit()) * u64::from(self.max_dirty_percent()) / 100;
        let age_max = self.log().capacity() * u64::from(self.max_checkpoint_age_percent.load(Ordering::Relaxed)) / 100;
        let aged = age.saturating_mul(100) / age_max.max(1);
        let dirty = self.dirty_count().saturating_sub(self.deferred.listed_frames());
        (aged, dirty * 100 / dirty_max.max(1))
    }

    /// Writes a batch of the oldest dirty pages, in file order. If `aged`, the aim is to let the checkpoint advance.
    /// Otherwise the aim is fewer dirty frames, and pages that can be evicted with their lists are left alone.
    fn clean_oldest(&self, aged: bool) -> Result<usize> {
        let _role = self.cleaner.role.take();
        {
            let mut round = self.cleaner.round.lock();
            if round.is_empty() {
                let (checkpoint, head) = (self.checkpoint_lsn().0, self.log().head().0);
                let oldest = checkpoint + head.saturating_sub(checkpoint).div_ceil(AGE_PARTS);
                let stuck = |lsn| {
                    let mut frames = self.frames_older_than(Lsn(lsn)).0;
                    frames.retain(|&frame| !self.may_leave(frame));
                    frames
                };
                if aged {
                    round.frames = self.frames_older_than(Lsn(oldest)).0;
                    round.away = self.away_older_than(Lsn(oldest));
                } else {
                    round.frames = stuck(oldest);
                }
                if round.is_empty() {
                    round.frames = stuck(u64::MAX);
                }
            }
        }
        loop {
            let (batch, away) = self.cleaner.round.lock().take_some(self.batch());
            let written = match (batch.is_empty(), away.is_empty()) {
                (true, true) => return Ok(0),
                (true, false) => self.merge(&away, Cause::Clean)?,
                (false, _) => self.write_batch(&batch, false, Cause::Clean)?,
            };
            // If all pages of a batch were written since the round began, this step continues with the next batch.
            if written > 0 {
                return Ok(written);
            }
        }
    }

    /// Writes home a batch of the away pages with the oldest changes. If no page is away, writes home pages in frames
    /// with lists.
    fn shorten_lists(&self) -> Result<usize> {
        let _role = self.cleaner.role.take();
        let most = self.batch();
        let mut pages = self.deferred.away().older_than(u64::MAX, most);
        pages.sort_unstable();
        if pages.is_empty() {
            return self.write_batch(&self.some_listed(most), false, Cause::Clean);
        }
        let before = self.counters.pages_merged.load(Ordering::Relaxed);
        // A page that cannot be read must not stop the rest of cleaning.
        let merged = self.merge(&pages, Cause::Clean);
        self.health().check()?;
        // The role is held: no other thread merges.
        let written = self.counters.pages_merged.load(Ordering::Relaxed) - before;
        self.deferred.forced.fetch_add(written, Ordering::Relaxed);
        Ok(merged.unwrap_or(written as usize))
    }

    /// Runs `work` on the frames that are dirty now, ordered by position.
    pub(super) fn ordered<T>(&self, work: impl FnOnce(&mut Ordered) -> T) -> T {
        let mut ordered = self.cleaner.ordered.lock();
        ordered.drain(&self.dirtied, |frame| self.frames.dirt(frame));
        let done = work(&mut ordered);
        let looked = ordered.take_looked();
        if looked > 0 {
            count(&self.counters.dirty_looked, looked);
        }
        done
    }

    /// Returns the frames whose `rec_lsn` lies before `lsn`, in ascending order of page number, and whether there are
    /// other such frames that have not published their page yet.
    fn frames_older_than(&self, lsn: Lsn) -> (Vec<u32>, bool) {
        let (mut old, mut in_transit): (Vec<(u32, u32)>, bool) = (Vec::new(), false);
        let visit = |frame| {
            match self.frames.get(frame).page() {
                Some(page) => old.push((page, frame)),
                None => in_transit = true,
            }
            true
        };
        self.ordered(|ordered| ordered.dirty_before(lsn.0, |frame| self.frames.dirt(frame), visit));
        old.sort_unstable();
        (old.into_iter().map(|(_, frame)| frame).collect(), in_transit)
    }

    /// Returns the away pages whose oldest change lies before `lsn`, in ascending order of page number. If there are
    /// more than [`AWAY_MOST`], returns those with the oldest changes.
    fn away_older_than(&self, lsn: Lsn) -> Vec<PageId> {
        let mut pages = self.deferred.away().older_than(lsn.0, AWAY_MOST);
        pages.sort_unstable();
        pages
    }

    /// Returns pages with changes before `lsn` that are not in the data file, except writes in flight. Empty only if
    /// there are none. Called with the cleaner's role.
    fn older_than(&self, lsn: Lsn) -> Old {
        let away = self.away_older_than(lsn);
        let (frames, in_transit) = self.frames_older_than(lsn);
        let old = Old { frames, away, in_transit };
        if !old.is_empty() {
            return old;
        }
        // A page may have moved from a frame to `Away` between the two searches: searches both again, under the `Away`
        // mutex, so that no page can move.
        let guard = self.deferred.away();
        let (frames, in_transit) = self.frames_older_than(lsn);
        let mut away = guard.older_than(lsn.0, BATCH);
        drop(guard);
        away.sort_unstable();
        Old { frames, away, in_transit }
    }

    /// Writes home every page whose oldest change lies before `lsn`. No latch may be held.
    pub(super) fn clean_before(&self, lsn: Lsn, cause: Cause) -> Result<()> {
        loop {
            // With the role held, no write is in flight: a page that is not found here has been written.
            let role = self.cleaner.role.take();
            let old = self.older_than(lsn);
            drop(role);
            if old.is_empty() {
                return Ok(());
            }
            for batch in old.frames.chunks(BATCH) {
                let _role = self.cleaner.role.take();
                self.write_batch(batch, true, cause)?;
            }
            let mut failed = None;
            for batch in old.away.chunks(BATCH) {
                let role = self.cleaner.role.take();
                let merged = self.merge(batch, cause);
                drop(role);
                match merged {
                    // Other threads are loading them, perhaps by prefetches that are not finished.
                    Ok(0) => {
                        batch.iter().for_each(|&page| self.wait_for(page));
                        std::thread::yield_now();
                    }
                    Ok(_) => {}
                    // The other pages are still written.
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if old.in_transit {
                std::thread::yield_now();
            }
        }
    }

    /// Writes dirty pages that eviction will reach next. Returns how many, or 1 if `enough` frames are already free.
    /// `wait`: waits for pages that are latched exclusively.
    pub(super) fn clean_near_hand(&self, enough: usize, wait: bool) -> Result<usize> {
        let _role = self.cleaner.role.take();
        if self.frames.free_count() >= enough {
            return Ok(1);
        }
        if self.dirty_count() == 0 {
            return Ok(0);
        }
        let span = u64::from(self.frames.span());
        let hand = self.cleaner.hand.load(Ordering::Relaxed);
        let most = self.batch();
        let mut batch: Vec<(u32, u32)> = Vec::with_capacity(most);
        let mut take = |frame: u32| {
            let known = self.frames.get(frame);
            let dirty = self.frames.dirt(frame).rec_lsn.load(Ordering::Acquire) != 0;
            if dirty && !known.is_pinned() && !self.may_leave(frame) {
                batch.extend(known.page().map(|page| (page, frame)));
            }
            batch.len()
        };
        let mut found = 0;
        let (mut looked, looks) = (0, span.min(NEAR_HAND));
        while looked < looks && found < most {
            found = take(((hand + looked) % span) as u32);
            looked += 1;
        }
        count(&self.counters.dirty_looked, looked as usize);
        if found == 0 && self.dirty_count() > self.deferred.listed_frames() {
            // No dirty page is near the hand: any dirty page will do.
            self.ordered(|ordered| {
                ordered.dirty_before(u64::MAX, |frame| self.frames.dirt(frame), |frame| take(frame) < most)
            });
        }
        batch.sort_unstable();
        let batch: Vec<u32> = batch.into_iter().map(|(_, frame)| frame).collect();
        self.write_batch(&batch, wait, Cause::Clean)
    }

    /// Writes at most `most` of the dirty pages in these frames. Returns how many were written.
    pub(super) fn clean_frames(&self, frames: Range<u32>, most: usize) -> Result<usize> {
        let all: Vec<u32> = frames.filter(|&f| !self.frames.dirt(f).is_clean()).take(most).collect();
        let mut written = 0;
        for batch in all.chunks(BATCH) {
            let _role = self.cleaner.role.take();
            written += self.write_batch(batch, true, Cause::Clean)?;
        }
        Ok(written)
    }

    /// Writes home the dirty pages in these frames, at most [`BATCH`]. Skips pages that are latched exclusively, unless
    /// it may `wait`. Called with the cleaner's role. Returns how many were written.
    fn write_batch(&self, frames: &[u32], wait: bool, cause: Cause) -> Result<usize> {
        debug_assert!(frames.len() <= BATCH, "a batch");
        self.health().check()?;
        let mut newest = Lsn::ZERO;
        let mut batch: Vec<Copied> = Vec::with_capacity(frames.len());
        let unfinished = Unfinished::begin(self.health(), "writing pages home");
        for &frame in frames {
            if let Some((lsn, copied)) = self.copy_out(frame, wait) {
                newest = newest.max(lsn);
                batch.push(copied);
            }
        }
        if batch.is_empty() {
            unfinished.done();
            return Ok(0);
        }
        // A mini-transaction that was dropped half-way poisons before it unlatches: if one of its pages was copied,
        // this check fails.
        self.health().check()?;
        let written = self.write_out(batch, newest, cause)?;
        unfinished.done();
        Ok(written)
    }

    /// Writes copies of pages home, none newer than `newest`. Called with the cleaner's role. Returns how many were
    /// written.
    fn write_out(&self, mut batch: Vec<Copied>, newest: Lsn, cause: Cause) -> Result<usize> {
        batch.sort_unstable_by_key(|copied| copied.page);
        let early = self.health().has(Mutant::PageBeforeLog);
        let level = if self.health().has(Mutant::WrittenIsFlushed) { Durability::Written } else { Durability::Flushed };
        if !early {
            self.log().wait(newest, level).map_err(|e| self.failed_log(e))?;
        }
        let flushed = early || level != Durability::Flushed || self.log().durable() >= newest;
        debug_assert!(flushed, "no page is written before its log is flushed");
        if let Some(doublewrite) = self.doublewrite.as_ref().filter(|_| self.protects()) {
            let protected: Vec<(PageId, &[u8])> =
                batch.iter().filter(|copied| !copied.bare).map(|copied| (copied.page, &*copied.bytes)).collect();
            count(&self.counters.pages_written_bare, batch.len() - protected.len());
            if !protected.is_empty() {
                doublewrite.write(self, &protected).map_err(|e| self.failed(e))?;
                count(&self.counters.doublewrite_flushes, 1);
            }
        }
        let (mut frames, mut merged, mut home) = (Vec::new(), Vec::new(), Vec::with_capacity(batch.len()));
        for Copied { frame, page, bytes, .. } in batch {
            match frame {
                Some(frame) => frames.push(frame),
                None => merged.push(page),
            }
            home.push((page, bytes));
        }
        self.write_home(home, cause)?;
        for &(_, frame) in &frames {
            self.frames.dirt(frame).end_write();
        }
        self.ordered(|ordered| ordered.written(&frames, |frame| self.frames.dirt(frame)));
        merged.iter().for_each(|&page| self.merged(page));
        self.cleaned.fetch_add(frames.len() as u64, Ordering::Release);
        let written = frames.len() + merged.len();
        count(&self.counters.pages_written, written);
        count(&self.counters.batches, 1);
        Ok(written)
    }

    /// Writes home pages that are away, at most [`BATCH`]: reads them all at once, and applies their records. Skips
    /// pages that are no longer away, or that another thread loads. Called with the cleaner's role. Returns how many
    /// were written.
    ///
    /// # Errors
    /// The error of a page that cannot be read or is damaged: its records stay, and the other pages are written first.
    /// A failed write, which poisons.
    fn merge(&self, pages: &[PageId], cause: Cause) -> Result<usize> {
        debug_assert!(pages.len() <= BATCH, "a batch");
        self.health().check()?;
        let (mut loading, mut wanted) = (Vec::new(), Vec::new());
        for &page in pages {
            let Some(bytes) = self.cleaner.copies.claim() else { break };
            let Some(load) = Loading::begin(self, page) else { continue };
            // If the page was written home since it was listed, it may also have been freed and the file cut and grown
            // again: there is nothing to read.
            if !self.deferred.away().has(page) {
                continue;
            }
            wanted.push((page, bytes));
            loading.push((page, load));
        }
        if wanted.is_empty() {
            return Ok(0);
        }
        let read = self.read_away(wanted, cause)?;
        let unfinished = Unfinished::begin(self.health(), "merging deferred changes");
        let (mut batch, mut newest, mut failed) = (Vec::with_capacity(read.len()), Lsn::ZERO, None);
        for (&(page, _), read) in loading.iter().zip(read) {
            let merged = read.and_then(|mut bytes| {
                self.check_read(&bytes, page)?;
                Ok(self.merge_into(page, &mut bytes)?.then_some(bytes))
            });
            match merged {
                Ok(Some(mut bytes)) => {
                    newest = newest.max(page::lsn(&bytes));
                    page::seal(&mut bytes, page);
                    batch.push(Copied { frame: None, page, bare: false, bytes });
                }
                Ok(None) => {}
                Err(error) => {
                    self.note_unmerged(page, &error);
                    failed = Some(error);
                }
            }
        }
        let written = if batch.is_empty() { 0 } else { self.write_out(batch, newest, cause)? };
        unfinished.done();
        // Wakes the threads that wait for one of the pages: they read what was written.
        drop(loading);
        failed.map_or(Ok(written), Err)
    }

    /// Reads pages, which are sorted: contiguous pages in one read, and all reads at once. Returns a result for each
    /// page, in the same order.
    fn read_away(&self, wanted: Vec<(PageId, IoBuf)>, cause: Cause) -> Result<Vec<Result<IoBuf>>> {
        let pages: Vec<PageId> = wanted.iter().map(|&(page, _)| page).collect();
        let requests = self.joined(wanted, false, cause);
        let together: Vec<usize> = requests.iter().map(|request| request.bufs.len()).collect();
        let pending = self.data.submit(requests)?;
        let mut read = Vec::with_capacity(pages.len());
        for (pending, together) in pending.into_iter().zip(together) {
            match self.data.wait(pending) {
                Ok(bufs) => read.extend(bufs.into_iter().map(Ok)),
                Err(error) if together == 1 => read.push(Err(error.into())),
                // One of the pages may be unreadable: reads each by itself.
                Err(error) => {
                    for &page in &pages[read.len()..][..together] {
                        let alone = match self.cleaner.copies.claim() {
                            Some(mut bytes) => {
                                self.data.read_at(self.offset_of(page), &mut bytes, cause).map(|()| bytes)
                            }
                            None => Err(error.clone()),
                        };
                        read.push(alone.map_err(crate::Error::from));
                    }
                }
            }
        }
        Ok(read)
    }

    /// Returns one request for each run of contiguous pages, or one for each page if writes are atomic. The pages are
    /// sorted.
    fn joined(&self, pages: Vec<(PageId, IoBuf)>, write: bool, cause: Cause) -> Vec<FileRequest> {
        let mut requests: Vec<FileRequest> = Vec::new();
        let mut next = None;
        for (page, bytes) in pages {
            match requests.last_mut() {
                Some(request) if next == Some(page.0) => request.bufs.push(bytes),
                _ => requests.push(FileRequest { write, offset: self.offset_of(page), bufs: vec![bytes], cause }),
            }
            next = if write && self.config.atomic_writes { None } else { page.0.checked_add(1) };
        }
        requests
    }

    /// Counts a page that could not be merged. Warns of the first, the second, the fourth and so on.
    fn note_unmerged(&self, page: PageId, why: &crate::Error) {
        let failed = self.counters.merge_failed.fetch_add(1, Ordering::Relaxed) + 1;
        if failed.is_power_of_two() {
            ::log::warn!(
                "page {page} has deferred changes and could not be read ({failed} attempts since the opening): {why}. \
                 The log that has its changes is kept, and changes fail when the log is full"
            );
        }
    }

    /// Begins the write of one page. Returns its LSN and a sealed copy.
    fn copy_out(&self, frame: u32, wait: bool) -> Option<(Lsn, Copied)> {
        // Gets the buffer first: a write that has begun cannot be undone.
        let mut bytes = self.cleaner.copies.claim()?;
        let latched = self.shared_frame(frame, wait)?;
        let since = self.frames.dirt(frame).begin_write()?;
        self.deferred.forget(self.frames.dirt(frame));
        bytes.copy_from_slice(&latched);
        let number = latched.id();
        let flags = self.frames.get(frame).flags.fetch_and(!(REMADE | WHOLE), Ordering::AcqRel);
        debug_assert!(flags & RETIRED == 0, "a retired frame holds no page");
        drop(latched);
        page::seal(&mut bytes, number);
        let bare = flags & REMADE != 0 && self.checkpoint_lsn() >= self.opened_at;
        Some((page::lsn(&bytes), Copied { frame: Some((since, frame)), page: number, bare, bytes }))
    }

    /// Writes home a batch, sorted by page: contiguous pages in one write, or each page in an atomic write; all writes
    /// at once.
    fn write_home(&self, batch: Vec<(PageId, IoBuf)>, cause: Cause) -> Result<()> {
        let requests = self.joined(batch, true, cause);
        count(&self.counters.home_writes, requests.len());
        let atomic = self.config.atomic_writes && !self.health().has(Mutant::AtomicUnasked);
        let submitted = if atomic { self.data.submit_atomic(requests) } else { self.data.submit(requests) };
        let pending = submitted.map_err(|e| self.failed(e))?;
        // Waits for all writes, even after an error: none may be in flight when this returns.
        let written: Vec<_> = pending.into_iter().map(|pending| self.data.wait(pending)).collect();
        for result in written {
            result.map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    /// Returns whether pages go through the doublewrite file. (It is opened to restore pages even if new writes do not
    /// use it.)
    pub(super) fn protects(&self) -> bool {
        self.config.torn == crate::format::control::Torn::Doublewrite && !self.health().has(Mutant::NoDoublewrite)
    }

    /// Poisons because the log could not be flushed: the pages in flight can never be written. Keeps the first error.
    pub(super) fn failed_log(&self, error: crate::Error) -> crate::Error {
        match error {
            crate::Error::Poisoned { .. } | crate::Error::ShutDown => error,
            other => self.failed(other),
        }
    }
}
