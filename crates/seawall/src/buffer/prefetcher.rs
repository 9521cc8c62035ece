//! Prefetches a reader's pages, in the order in which it will need them.
//!
//! ```text
//!   named ──begin_prefetch──> ahead (in flight, or resident) ──the reader comes to it──> gone
//! ```
//!
//! 1. A page named wrongly, or changed since, costs a wasted read but never a wrong result: the reader itself reads
//!    what it needs, and reports the pages that it has reached.
//! 2. *The window*, the most pages ahead, doubles whenever the reader has to wait for a page, and shrinks slowly while
//!    pages arrive long before they are needed. Until the reader has reached some pages, the window is small.
//! 3. *The device is shared*: a prefetcher has at most `prefetch_depth` reads in flight, and at most its equal share of
//!    `prefetch_depth_total`, or half of the unused remainder if that is more. One read is always permitted. While a
//!    demand read is in flight, a prefetcher is limited to a quarter of this, because the demand read queues behind the
//!    prefetches.
//! 4. Pages are requested in batches of a quarter of the window, so that neighbours are read together. Contiguous pages
//!    are requested in batches of the largest read, with a window of several of these.
//! 5. A window fixed by [`Pool::set_prefetch_window`] does not change with shares, memory or the reader's progress.
//! 6. Dropping the prefetcher stops it. Reads in flight still bring their pages into memory, cold.

use super::pool::Pool;
use super::stats::count;
use crate::format::PageId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Initial window, pages.
const WINDOW_MIN: usize = 2;
/// Initial window when the reader will need the pages unless it stops early.
const WINDOW_LIKELY: usize = 16;
/// Initial window when the reader is known to need the pages.
const WINDOW_LONG: usize = 32;
/// The largest window, as a multiple of the depth: contiguous pages need few reads, and pages that arrive out of order
/// wait for the pages before them.
const WINDOW_READS: usize = 8;

/// Pages that a reader is about to need.
#[derive(Debug)]
pub struct Prefetcher {
    /// Not yet requested.
    named: VecDeque<PageId>,
    /// Requested or found in memory, and not yet reached by the reader.
    ahead: VecDeque<PageId>,
    window: usize,
    /// Pages that the reader reached without waiting since the window last changed.
    calm: usize,
    /// Pages that the reader reached.
    seen: usize,
    /// Whether the reader is known to need all named pages.
    sure: bool,
    /// The number of its reads in flight; `None` before the first.
    in_flight: Option<Arc<AtomicU32>>,
    /// Counts it among the sharing prefetchers, once it has requested something.
    sharing: Option<Sharing>,
}

/// While a demand read is in flight, a prefetcher's reads are divided by this.
const YIELDS: usize = 4;
/// The largest window at any depth, pages.
const WINDOW_MAX: usize = 1 << 13;
/// Window for contiguous pages, as a multiple of the largest read.
const WINDOW_RUNS: usize = 4;

/// Counts one prefetcher that shares the device.
#[derive(Debug)]
struct Sharing(Arc<AtomicU32>);

impl Drop for Sharing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Default for Prefetcher {
    fn default() -> Self {
        Self {
            named: VecDeque::new(),
            ahead: VecDeque::new(),
            window: WINDOW_MIN,
            calm: 0,
            seen: 0,
            sure: false,
            in_flight: None,
            sharing: None,
        }
    }
}

impl Prefetcher {
    /// For a reader that needs every page it names: begins with a large window.
    #[must_use]
    pub fn sure(self) -> Self {
        Self { window: WINDOW_LONG, sure: true, ..self }
    }

    /// For a reader that will need all pages that it names unless it stops early: begins with a medium window.
    pub fn is_likely(&mut self) {
        self.window = self.window.max(WINDOW_LIKELY);
        self.seen = self.seen.max(WINDOW_LIKELY / 2);
    }

    /// Makes a prefetcher of these pages, all of which the reader needs.
    pub fn of(pages: impl IntoIterator<Item = PageId>) -> Self {
        let mut prefetcher = Self::default().sure();
        prefetcher.name(pages);
        prefetcher
    }

    /// Adds pages after those named before. A page that repeats the last one is left out.
    pub fn name(&mut self, pages: impl IntoIterator<Item = PageId>) {
        for page in pages {
            if self.named.back().or(self.ahead.back()) != Some(&page) {
                self.named.push_back(page);
            }
        }
    }

    /// Forgets the pages that are named and not yet reached.
    pub fn clear(&mut self) {
        self.named.clear();
        self.ahead.clear();
        self.sharing = None;
        if !self.sure {
            (self.window, self.calm, self.seen) = (WINDOW_MIN, 0, 0);
        }
    }

    /// Returns whether more pages should be named, so that requests do not pause.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.named.len() < self.window
    }

    /// Reports that the reader needs the next page now, and at most `most` pages in all. Adapts the window and requests
    /// more pages. Never waits, never fails.
    pub fn next_is_due(&mut self, pool: &Pool, most: usize) {
        pool.fetch_completions();
        if let Some(&next) = self.ahead.front() {
            self.adapt(pool, next);
        }
        self.refill(pool, most);
        // After the requests: the device should not be idle while pages are checked. Many reads complete at the same
        // time.
        pool.finish_prefetches(false);
    }

    fn adapt(&mut self, pool: &Pool, next: PageId) {
        if pool.is_in_flight(next) {
            count(&pool.counters.prefetch_waits, 1);
            self.window = (2 * self.window).min(WINDOW_MAX);
            self.calm = 0;
            return;
        }
        self.calm += 1;
        let far = self.ahead.get(self.ahead.len() / 2);
        if self.calm >= 2 * self.window && far.is_some_and(|&page| pool.is_resident(page)) {
            self.window -= self.window / 8;
            self.calm = 0;
        }
    }

    /// Requests as many pages as the window and the share permit.
    fn refill(&mut self, pool: &Pool, most: usize) {
        let depth = pool.prefetch_depth.load(Ordering::Relaxed) as usize;
        if depth == 0 || self.named.is_empty() {
            return;
        }
        let total = pool.prefetch_depth_total.load(Ordering::Relaxed) as usize;
        let sharers = pool.loads.prefetches.prefetchers.load(Ordering::Acquire).max(1) as usize;
        let part = |all: usize, used: usize| (all / sharers).max(all.saturating_sub(used) / 2).max(1);
        let mut reads_max = depth.min(part(total, pool.loads.prefetches.reads()));
        if pool.loads.are_demanded() {
            reads_max = reads_max.div_ceil(YIELDS);
        }
        let in_memory_max = (pool.frames() as usize / 8 / sharers).max(1);
        let contiguous = self.named.len() > 1 && self.named[0].0.abs_diff(self.named[1].0) == 1;
        let run = pool.loads.prefetches.run_pages();
        if contiguous {
            self.window = self.window.max(WINDOW_RUNS * run);
        }
        let shown = if self.sure { usize::MAX } else { (2 * self.seen).max(WINDOW_MIN) };
        self.window = self.window.clamp(1, (WINDOW_READS * depth).min(WINDOW_MAX)).min(in_memory_max);
        let fixed = pool.prefetch_window.load(Ordering::Relaxed) as usize;
        let window = if fixed > 0 {
            self.window = fixed.min(WINDOW_MAX);
            self.window
        } else {
            self.window.min(shown)
        };
        let room = window.min(most).saturating_sub(self.ahead.len());
        let batch = if contiguous { run.min(window / 2) } else { window / 4 };
        if room == 0 || room < batch.min(self.named.len()).min(most) {
            return;
        }
        if self.ahead.is_empty() && room.min(self.named.len()) == 1 {
            // Only the page that is needed now is left: the reader reads it itself.
            return;
        }
        let in_flight = self.in_flight.get_or_insert_default();
        if 2 * pool.loads.prefetches.pages() > pool.prefetch_pages_max() {
            // Completed reads count as in flight until they are finished, and the next reads need their room.
            pool.finish_prefetches(false);
        }
        let flying = (in_flight.load(Ordering::Acquire) as usize).saturating_sub(pool.arrived_of(in_flight));
        // A prefetcher that had the device to itself before others came keeps more than its share until its reads have
        // completed.
        let left_over = total.saturating_sub(pool.loads.prefetches.reads()).max(usize::from(flying == 0));
        let reads = reads_max.saturating_sub(flying).min(left_over);
        if reads == 0 || (reads < reads_max / 4 && !self.ahead.is_empty()) {
            return;
        }
        if self.sharing.is_none() {
            let prefetchers = pool.loads.prefetches.prefetchers.clone();
            prefetchers.fetch_add(1, Ordering::AcqRel);
            self.sharing = Some(Sharing(prefetchers));
        }
        let pages_max = part(pool.prefetch_pages_max(), pool.loads.prefetches.pages());
        let next = self.named.iter().copied().take(room);
        let done = pool.begin_prefetch(next, reads, pages_max, Some(in_flight));
        self.ahead.extend(self.named.drain(..done));
    }

    /// Reports that the reader has reached this page. Returns whether it was expected. The pages before it are
    /// forgotten.
    pub fn came_to(&mut self, page: PageId) -> bool {
        self.seen += 1;
        if let Some(at) = self.ahead.iter().position(|&ahead| ahead == page) {
            self.ahead.drain(..=at);
        } else if self.named.front() == Some(&page) {
            // The reader was faster than the requests.
            self.ahead.clear();
            self.named.pop_front();
        } else {
            return false;
        }
        if self.named.is_empty() && self.ahead.is_empty() {
            self.sharing = None;
        }
        true
    }

    /// Reports that a reader which takes pages as they arrive has taken this page. The pages before it stay.
    pub fn took(&mut self, page: PageId) {
        if let Some(at) = self.ahead.iter().position(|&ahead| ahead == page) {
            self.ahead.remove(at);
        } else if let Some(at) = self.named.iter().position(|&named| named == page) {
            self.named.remove(at);
        }
    }

    /// Returns a requested page that is resident; for a reader that takes pages as they arrive.
    #[must_use]
    pub fn arrived(&self, pool: &Pool) -> Option<PageId> {
        self.ahead.iter().copied().find(|&page| pool.is_resident(page))
    }
}
