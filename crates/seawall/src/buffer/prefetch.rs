//! Prefetching: brings pages into memory before a thread needs them.
//!
//! ```text
//!   nowhere ──begin_prefetch: frame set aside and lent, submitted──> on the list ──taken by the first finisher──> published, cold
//!                                                                                └── could not be read ──> nowhere
//! ```
//!
//! 1. Any thread may finish a prefetch: a thread that needs one of its pages, that needs a frame, or that requests more
//!    reads, or a background worker. The first of them finishes it. A prefetch never depends on the thread that
//!    requested it (trap 8).
//! 2. A failed prefetch is counted and logged; no caller gets an error. A thread that needs the page reads it again,
//!    and then gets the error.
//! 3. Pages that are contiguous in the file, upward or downward, and consecutive in the request are one read
//!    of at most `RUN_BYTES`. Reads are submitted a few at a time, so that the device works on the first
//!    while the others are prepared.
//! 4. Prefetches take only frames that are available without I/O, and never more than an eighth of the pool, so that a
//!    demand read always finds a frame.
//! 5. A read goes directly into the frame that was set aside. No thread touches the frame before the read has ended and
//!    its buffer was dropped. If a panic leaves unknown whether it has ended, the frame is never used again, and the
//!    page is nowhere again ([`Abandon`], [`Run`]).
//! 6. No prefetch outlives the pool: one in flight keeps the data file open, and so locked.
//! 7. A page arrives cold: its first use makes it no warmer than others. A page that is evicted without a use is
//!    counted as wasted.
#![allow(unsafe_code)]

use super::frame::{COLD, Parked, Where};
use super::loads::PrefetchRead;
use super::pool::Pool;
use super::read::Loading;
use super::stats::count;
use crate::format::PageId;
use seawall_io::{Cause, FileRequest, IoBuf, IoError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Reads submitted together.
const READS_AT_ONCE: usize = 4;
/// A read to be submitted. If a panic drops it before that, its pages are nowhere again and its frames are free.
struct Run<'p> {
    pool: &'p Pool,
    /// The page requested first.
    from: PageId,
    /// Whether the other pages come before it.
    down: bool,
    frames: Vec<Parked>,
    bufs: Vec<IoBuf>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        // The read was not submitted, so the device does not write to the frames.
        self.bufs.clear();
        drop(Abandon {
            pool: self.pool,
            first: self.first(),
            frames: std::mem::take(&mut self.frames),
            lent: false,
            owner: None,
        });
    }
}

/// Pages being prefetched that are not yet published. If a panic drops it with frames in it, their pages are nowhere
/// again, and the threads that wait for them read them.
struct Abandon<'p> {
    pool: &'p Pool,
    first: PageId,
    frames: Vec<Parked>,
    /// The disk may still write to the frames: they cannot be used again.
    lent: bool,
    owner: Option<Arc<AtomicU32>>,
}

impl Abandon<'_> {
    fn release_owner(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.release_owner();
        let frames = std::mem::take(&mut self.frames);
        self.pool.loads.prefetches.pages.fetch_sub(frames.len(), Ordering::AcqRel);
        for (i, frame) in frames.into_iter().enumerate() {
            let page = PageId(self.first.0 + i as u32);
            if !self.lent {
                drop(self.pool.unpark(frame));
            }
            self.pool.map.entry(page).abandon_load();
            self.pool.loads.wake(page);
        }
    }
}

/// Reads that a thread has taken off the list, to finish them. If a panic drops it, those that are left go back, for
/// the threads that wait for their pages.
struct Taken<'p> {
    pool: &'p Pool,
    reads: Vec<PrefetchRead>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let pages: Vec<_> =
            self.reads.iter().map(|read| read.first.0..read.first.0 + read.frames.len() as u32).collect();
        let prefetches = &self.pool.loads.prefetches;
        let mut list = prefetches.list.lock();
        list.append(&mut self.reads);
        prefetches.count.store(list.len(), Ordering::Release);
        drop(list);
        pages.into_iter().flatten().for_each(|page| self.pool.loads.wake(PageId(page)));
    }
}

impl Run<'_> {
    /// Returns the lowest page.
    fn first(&self) -> PageId {
        if self.down { PageId(self.from.0 + 1 - self.frames.len() as u32) } else { self.from }
    }

    /// Returns `None` if `page` does not continue the run, and otherwise whether it does so downward. The second page
    /// fixes the direction.
    fn goes_on_to(&self, page: PageId) -> Option<bool> {
        let len = self.frames.len() as u32;
        let up = self.from.0.checked_add(len) == Some(page.0) && !self.down;
        let down = self.from.0.checked_sub(len) == Some(page.0) && (self.down || len == 1);
        (up || down).then_some(down)
    }
}

/// A reservation for one page in flight. It is released when this is dropped, unless it was kept.
struct Room<'a>(&'a AtomicUsize);

impl<'a> Room<'a> {
    fn take(pages: &'a AtomicUsize, most: usize) -> Option<Self> {
        let more = |now: usize| (now < most).then_some(now + 1);
        pages.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Self(pages))
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pool {
    /// Returns the most pages that may be in flight at one time.
    pub(super) fn prefetch_pages_max(&self) -> usize {
        self.loads.prefetches.pages_max.min(self.frames.limit() as usize / 8).max(1)
    }

    /// Requests pages that will be needed soon, as many as there is room for. Never fails, never waits for the disk.
    pub fn prefetch(&self, pages: &[PageId]) {
        self.finish_prefetches(false);
        let depth = self.prefetch_depth.load(Ordering::Relaxed) as usize;
        let total = self.prefetch_depth_total.load(Ordering::Relaxed) as usize;
        let room = depth.min(total.saturating_sub(self.loads.prefetches.reads()));
        self.begin_prefetch(pages.iter().copied(), room, self.prefetch_pages_max(), None);
    }

    /// Begins at most `reads_max` reads of at most `pages_max` of these pages. Returns how many pages it has processed:
    /// requested, already in memory or being loaded, or beyond the end of the file. Counts the reads in `owner`.
    pub(super) fn begin_prefetch(
        &self,
        pages: impl IntoIterator<Item = PageId>,
        reads_max: usize,
        pages_max: usize,
        owner: Option<&Arc<AtomicU32>>,
    ) -> usize {
        let prefetches = &self.loads.prefetches;
        let all_max = self.prefetch_pages_max();
        let (file_pages, mut runs) = (self.file_pages(), Vec::<Run<'_>>::new());
        let (mut asked, mut begun, mut done) = (0, 0, 0);
        for page in pages {
            if page.0 >= file_pages || self.map.get(page) != Where::Nowhere {
                done += 1;
                continue;
            }
            if asked >= pages_max {
                break;
            }
            let short = runs.last().filter(|run| run.frames.len() < prefetches.run_pages);
            let joins = short.and_then(|run| run.goes_on_to(page));
            if joins.is_none() {
                if begun + runs.len() >= reads_max {
                    break;
                }
                if runs.len() >= READS_AT_ONCE {
                    begun += runs.len();
                    self.submit_runs(std::mem::take(&mut runs), owner);
                }
            }
            let Some(room) = Room::take(&prefetches.pages, all_max) else { break };
            let Some(owned) = self.frame_at_once() else { break };
            if !self.map.entry(page).begin_load() {
                // Another thread has just begun to load it.
                done += 1;
                continue;
            }
            room.keep();
            (asked, done) = (asked + 1, done + 1);
            // SAFETY: un-parked by `finish_pages`, after the read has ended and its buffer was dropped, or by the drop
            // of a `Run` whose read was not submitted, after the buffers were dropped.
            let (frame, buf) = unsafe { owned.lend() };
            match (joins, runs.last_mut()) {
                (Some(down), Some(run)) => {
                    run.down = down;
                    run.frames.push(frame);
                    run.bufs.push(buf);
                }
                _ => runs.push(Run { pool: self, from: page, down: false, frames: vec![frame], bufs: vec![buf] }),
            }
        }
        if !runs.is_empty() {
            self.submit_runs(runs, owner);
        }
        done
    }

    fn submit_runs(&self, runs: Vec<Run<'_>>, owner: Option<&Arc<AtomicU32>>) {
        let prefetches = &self.loads.prefetches;
        let pages = runs.iter().map(|run| run.frames.len()).sum();
        count(&self.counters.prefetched, pages);
        let (mut requests, mut parts) = (Vec::with_capacity(runs.len()), Vec::with_capacity(runs.len()));
        for mut run in runs {
            let first = run.first();
            let (mut frames, mut bufs) = (std::mem::take(&mut run.frames), std::mem::take(&mut run.bufs));
            if run.down {
                frames.reverse();
                bufs.reverse();
            }
            // From the submission on, it is unknown whether the device still uses the memory.
            parts.push(Abandon { pool: self, first, frames, lent: true, owner: None });
            requests.push(FileRequest { write: false, offset: self.offset_of(first), bufs, cause: Cause::Prefetch });
        }
        let named: Vec<(PageId, u32)> = parts.iter().map(|part| (part.first, part.frames.len() as u32)).collect();
        let reads = parts.len();
        count(&self.counters.prefetch_reads, reads);
        match self.data.submit(requests) {
            Ok(pending) => {
                if let Some(owner) = owner {
                    owner.fetch_add(reads as u32, Ordering::AcqRel);
                }
                let mut list = prefetches.list.lock();
                list.extend(parts.into_iter().zip(pending).map(|(mut part, pending)| PrefetchRead {
                    first: part.first,
                    frames: std::mem::take(&mut part.frames),
                    pending,
                    owner: owner.cloned(),
                }));
                prefetches.count.store(list.len(), Ordering::Release);
                // Reads that are done but not finished no longer occupy the device.
                let now = list.iter().filter(|flight| !flight.pending.is_done()).count().max(reads);
                drop(list);
                count(&self.counters.prefetch_depth_sum, reads * now - reads * (reads - 1) / 2);
            }
            Err(error) => {
                for part in parts {
                    self.finish_pages(part, Err(error.clone()));
                }
            }
        }
        // From now on, a thread that waits for one of the pages can finish the read.
        for (first, len) in named {
            for page in first.0..first.0 + len {
                self.loads.wake(PageId(page));
            }
        }
    }

    /// Takes the read that brings `page` off the list, if there is one. The caller must finish it.
    pub(super) fn take_prefetch(&self, page: PageId) -> Option<PrefetchRead> {
        let prefetches = &self.loads.prefetches;
        if prefetches.reads() == 0 {
            return None;
        }
        let mut list = prefetches.list.lock();
        let at = list.iter().position(|flight| flight.holds(page))?;
        let taken = list.swap_remove(at);
        prefetches.count.store(list.len(), Ordering::Release);
        Some(taken)
    }

    /// Collects completions from the device without finishing any read.
    pub(super) fn fetch_completions(&self) {
        if self.loads.prefetches.reads() > 0 {
            self.disk.drive(false);
        }
    }

    /// Returns the number of reads of this owner that are done and not yet finished.
    pub(super) fn arrived_of(&self, owner: &Arc<AtomicU32>) -> usize {
        if self.loads.prefetches.reads() == 0 {
            return 0;
        }
        let own = |flight: &&PrefetchRead| flight.owner.as_ref().is_some_and(|of| Arc::ptr_eq(of, owner));
        self.loads.prefetches.list.lock().iter().filter(own).filter(|flight| flight.pending.is_done()).count()
    }

    /// Finishes the prefetches that are done, or, with `wait`, all of them. Returns how many.
    pub(crate) fn finish_prefetches(&self, wait: bool) -> usize {
        let prefetches = &self.loads.prefetches;
        if prefetches.reads() == 0 {
            return 0;
        }
        self.disk.drive(false);
        let taken = prefetches.take_all(|flight| wait || flight.pending.is_done());
        let (finished, mut taken) = (taken.len(), Taken { pool: self, reads: taken });
        while let Some(flight) = taken.reads.pop() {
            self.finish(flight);
        }
        finished
    }

    pub(super) fn finish(&self, flight: PrefetchRead) {
        let PrefetchRead { first, frames, pending, owner } = flight;
        let mut part = Abandon { pool: self, first, frames, lent: true, owner };
        let bufs = self.data.wait(pending);
        part.release_owner();
        self.finish_pages(part, bufs);
    }

    /// Publishes the pages that pass their checks, and frees the frames of the others.
    fn finish_pages(&self, mut part: Abandon<'_>, bufs: Result<Vec<IoBuf>, IoError>) {
        let first = part.first;
        let check = |i: usize| match &bufs {
            Ok(bufs) => {
                let page = PageId(first.0 + i as u32);
                bufs.get(i).map_or_else(
                    || Err("it was not read".into()),
                    |buf| self.check_read(buf, page).map_err(|e| e.to_string()),
                )
            }
            Err(error) => Err(error.to_string()),
        };
        let checked: Vec<Result<(), String>> = (0..part.frames.len()).map(check).collect();
        // From here on, the device no longer uses the frames' memory.
        drop(bufs);
        part.lent = false;
        for (i, checked) in checked.into_iter().enumerate().rev() {
            let Some(frame) = part.frames.pop() else { break };
            self.loads.prefetches.pages.fetch_sub(1, Ordering::AcqRel);
            let page = PageId(first.0 + i as u32);
            let loading = Loading::of_prefetch(self, page);
            let mut owned = self.unpark(frame);
            self.deferred.note_miss(page);
            match checked.and_then(|()| self.bring_back(&mut owned, page).map_err(|e| e.to_string())) {
                Ok(()) => drop(loading.publish(owned, COLD)),
                Err(error) => {
                    drop(owned);
                    self.note_failed(page, &error);
                }
            }
        }
    }

    /// Counts a page that could not be prefetched. Logs the first, the second, the fourth and so on, so that
    /// a bad disk does not flood the log.
    fn note_failed(&self, page: PageId, why: &str) {
        let failed = self.counters.prefetch_failed.fetch_add(1, Ordering::Relaxed) + 1;
        if failed.is_power_of_two() {
            ::log::warn!(
                "page {page} could not be prefetched ({failed} pages since the opening): {why}. A thread that needs \
                 it reads it again"
            );
        }
    }

    /// Returns whether the page is in memory. Does not count as a use.
    pub fn is_resident(&self, page: PageId) -> bool {
        matches!(self.map.get(page), Where::In(_))
    }

    /// Returns whether the page is being loaded and its read is not known to be done.
    pub(super) fn is_in_flight(&self, page: PageId) -> bool {
        self.map.get(page) == Where::Loading
            && !self.loads.prefetches.list.lock().iter().any(|flight| flight.holds(page) && flight.pending.is_done())
    }
}
