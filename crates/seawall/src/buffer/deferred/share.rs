//! Adapts the share of the pool that deferred changes get.
//!
//! A page that was evicted with its records ends in one of two ways. It is *read again* while the records are in
//! memory: that saves a write (with doublewrite, two). Or it is *merged*: that costs a read. But the memory of lists is
//! taken from frames. A page that was evicted a short time ago is called a *ghost*. If a ghost is missed, it would
//! still be in memory if there were more frames.
//!
//! ```text
//!   0 ──first eviction──> least ──it pays──> a quarter more, up to most
//!                           ^                       │
//!                           └── less: it does not ──┘
//! ```
//!
//! 1. A window ends when as many pages have been evicted as there are frames. The share follows the averages of the
//!    last windows, of which the cleaner fills some with merges, and others with none: it merges in rounds, by age.
//! 2. A page of memory for lists saves `(writes * read again - merged) / pages of lists` operations; one more frame
//!    saves `ghosts missed / ghosts`. The use that saves more gets the memory.
//!    A share that shrinks has lists merged, which costs a read for each and spares nothing. So it shrinks slowly,
//!    except when the lists leave half of it free.
//! 3. The share never falls below `least`: the pages in it show when a larger share pays off again.
//! 4. Only one page in 16 is counted as a ghost, so that evictions and misses seldom contend for the mutex.

use crate::counted::Mutex;
use crate::format::PageId;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One page in this many is counted as a ghost.
const SAMPLED: u32 = 16;
/// One ghost is remembered for this many frames (before sampling).
const GHOST_PART: usize = 16;

/// Counts since the pool was opened: pages evicted, read again and merged.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::buffer) struct Ends {
    pub(in crate::buffer) evicted: u64,
    pub(in crate::buffer) read_again: u64,
    pub(in crate::buffer) merged: u64,
}

/// The state of the pool.
#[derive(Debug, Clone, Copy)]
pub(in crate::buffer) struct Sizes {
    pub(in crate::buffer) frames: u64,
    pub(in crate::buffer) page_bytes: u64,
    pub(in crate::buffer) list_bytes: u64,
    pub(in crate::buffer) list_bytes_max: u64,
    /// Whether all frames that the share has taken are retired.
    pub(in crate::buffer) may_grow: bool,
    /// Writes that it costs to write one page home.
    pub(in crate::buffer) writes: u64,
}

#[derive(Debug, Default)]
struct Ghosts {
    /// Each ghost with the number of its eviction.
    order: VecDeque<(PageId, u64)>,
    known: HashMap<PageId, u64>,
    evicted: u64,
}

/// Means over about [`WINDOWS`] windows.
#[derive(Debug, Default)]
struct Means {
    /// Operations that lists saved in a window.
    gained: f64,
    ghosts_missed: f64,
    list_bytes: f64,
    /// The part of the share that lists used.
    full: f64,
}

/// What the last window has left.
#[derive(Debug, Default)]
struct Seen {
    ends: Ends,
    ghosts_missed: u64,
    /// `None` before the first window.
    means: Option<Means>,
}

/// Longer than a round of merges.
const WINDOWS: f64 = 16.0;

#[derive(Debug)]
pub(super) struct Share {
    least: AtomicU32,
    most: AtomicU32,
    /// Percent; 0 before the first eviction.
    now: AtomicU32,
    seen: Mutex<Seen>,
    ghosts: Mutex<Ghosts>,
    ghosts_missed: AtomicU64,
}

fn is_sampled(page: PageId) -> bool {
    page.0.wrapping_mul(0x9E37_79B1) >> 16 & (SAMPLED - 1) == 0
}

impl Share {
    pub(super) fn new(least: u32, most: u32) -> Self {
        Self {
            least: AtomicU32::new(least.min(most)),
            most: AtomicU32::new(most),
            now: AtomicU32::new(0),
            seen: Mutex::default(),
            ghosts: Mutex::default(),
            ghosts_missed: AtomicU64::new(0),
        }
    }

    /// Returns the share, percent.
    pub(super) fn percent(&self) -> u32 {
        self.now.load(Ordering::Relaxed).min(self.most.load(Ordering::Relaxed))
    }

    /// Sets the limits, percent. Returns whether the share has changed.
    pub(super) fn set_limits(&self, least: u32, most: u32) -> bool {
        let (least, now) = (least.min(most), self.percent());
        self.least.store(least, Ordering::Relaxed);
        self.most.store(most, Ordering::Relaxed);
        now > 0 && self.set(now.clamp(least, most).max(u32::from(most > 0)))
    }

    fn set(&self, percent: u32) -> bool {
        self.now.swap(percent, Ordering::Relaxed) != percent
    }

    /// Notes that a page was evicted from a pool of `frames`. Returns whether the share has changed, which it does at
    /// the first eviction.
    pub(super) fn note_eviction(&self, page: PageId, frames: u64) -> bool {
        if is_sampled(page) {
            let most = ghosts_of(frames);
            let Ghosts { order, known, evicted } = &mut *self.ghosts.lock();
            *evicted += 1;
            order.push_back((page, *evicted));
            known.insert(page, *evicted);
            let over = order.len().saturating_sub(most);
            for (oldest, nth) in order.drain(..over) {
                if known.get(&oldest) == Some(&nth) {
                    known.remove(&oldest);
                }
            }
        }
        self.percent() == 0
            && self.set(self.least.load(Ordering::Relaxed).max(1).min(self.most.load(Ordering::Relaxed)))
    }

    pub(super) fn note_miss(&self, page: PageId) {
        if is_sampled(page) {
            let missed = self.ghosts.lock().known.remove(&page);
            self.ghosts_missed.fetch_add(u64::from(missed.is_some()), Ordering::Relaxed);
        }
    }

    /// Adapts the share if a window has ended. Returns whether the share has changed.
    pub(super) fn adapt(&self, ends: Ends, sizes: Sizes) -> bool {
        let mut seen = self.seen.lock();
        let evicted = ends.evicted.saturating_sub(seen.ends.evicted);
        if evicted < sizes.frames {
            return false;
        }
        // A window that was looked at late counts as one.
        let part = sizes.frames as f64 / evicted as f64;
        let before = std::mem::replace(&mut seen.ends, ends);
        let ghosts = self.ghosts_missed.load(Ordering::Relaxed);
        let missed = ghosts - std::mem::replace(&mut seen.ghosts_missed, ghosts);
        let spared = sizes.writes * ends.read_again.saturating_sub(before.read_again);
        let of_window = Means {
            gained: (spared as f64 - ends.merged.saturating_sub(before.merged) as f64) * part,
            ghosts_missed: missed as f64 * part,
            list_bytes: sizes.list_bytes as f64,
            full: sizes.list_bytes as f64 / sizes.list_bytes_max.max(1) as f64,
        };
        let means = of_window.after(seen.means.take());
        let wanted = self.wanted(seen.means.insert(means), sizes);
        drop(seen);
        self.set(wanted.min(self.most.load(Ordering::Relaxed)))
    }

    fn wanted(&self, means: &Means, sizes: Sizes) -> u32 {
        let of_lists = means.gained / (means.list_bytes / sizes.page_bytes as f64).max(1.0);
        let of_frames = means.ghosts_missed / ghosts_of(sizes.frames) as f64;
        let (now, least) = (self.percent(), self.least.load(Ordering::Relaxed).max(1));
        if means.full < 0.5 {
            now.saturating_sub((now / 4).max(1)).max(least)
        } else if of_lists <= of_frames {
            now.saturating_sub((now / 16).max(1)).max(least)
        } else if sizes.may_grow && sizes.list_bytes >= sizes.list_bytes_max / 4 * 3 {
            now + (now / 4).max(1)
        } else {
            now
        }
    }
}

impl Means {
    /// These of one window, as means with those before.
    fn after(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        let mean = |before: f64, now: f64| before + (now - before) / WINDOWS;
        Self {
            gained: mean(before.gained, self.gained),
            ghosts_missed: mean(before.ghosts_missed, self.ghosts_missed),
            list_bytes: mean(before.list_bytes, self.list_bytes),
            full: mean(before.full, self.full),
        }
    }
}

/// Returns the number of sampled ghosts in a pool of `frames`.
fn ghosts_of(frames: u64) -> usize {
    (frames as usize / GHOST_PART / SAMPLED as usize).max(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(list_bytes: u64) -> Sizes {
        Sizes { frames: 1000, page_bytes: 100, list_bytes, list_bytes_max: 10_000, may_grow: true, writes: 2 }
    }

    /// A share after its first eviction.
    fn share(least: u32, most: u32) -> Share {
        let share = Share::new(least, most);
        assert_eq!(share.percent(), 0);
        share.note_eviction(PageId(1), 1000);
        share
    }

    /// Ends 40 windows; in each, this many pages were read again and merged.
    fn windows(share: &Share, from: u64, read_again: u64, merged: u64, list_bytes: u64) -> u64 {
        for nth in from + 1..=from + 40 {
            let ends = Ends { evicted: nth * 1000, read_again: nth * read_again, merged: nth * merged };
            share.adapt(ends, sizes(list_bytes));
        }
        from + 40
    }

    #[test]
    fn it_grows_while_pages_are_read_again_and_shrinks_when_they_are_merged() {
        let share = share(2, 30);
        assert_eq!(share.percent(), 2);
        let at = windows(&share, 0, 400, 100, 9_000);
        assert_eq!(share.percent(), 30, "to the most");
        share.adapt(Ends { evicted: at * 1000 + 999, read_again: 0, merged: 0 }, sizes(9_000));
        assert_eq!(share.percent(), 30, "the window has not ended");
        let at = windows(&share, at, 100, 900, 9_000);
        windows(&share, at, 100, 900, 9_000);
        assert_eq!(share.percent(), 2, "to the least");
    }

    /// The cleaner merges by age, in rounds: windows without merges, then windows with many.
    #[test]
    fn rounds_of_merges_do_not_shake_it() {
        let share = share(1, 30);
        let mut ends = Ends::default();
        for nth in 1..=200u64 {
            ends.evicted += 1000;
            ends.read_again += 300;
            ends.merged += if nth % 8 < 6 { 0 } else { 1500 };
            share.adapt(ends, sizes(9_000));
            assert!(nth < 40 || share.percent() == 30, "window {nth}: {}", share.percent());
        }
    }

    #[test]
    fn frames_that_would_spare_more_misses_get_the_memory() {
        let share = share(1, 30);
        windows(&share, 0, 400, 0, 9_000);
        assert_eq!(share.percent(), 30);
        let ghosts: Vec<PageId> = (0..100).map(PageId).filter(|&page| is_sampled(page)).collect();
        assert!(ghosts.len() > 2);
        for nth in 1000..1040 {
            for _ in 0..100 {
                share.note_eviction(ghosts[0], 1000);
                share.note_miss(ghosts[0]);
            }
            share.adapt(Ends { evicted: nth * 1000, read_again: nth * 400, merged: 0 }, sizes(9_000));
        }
        assert_eq!(share.percent(), 1);
    }

    #[test]
    fn lists_that_are_not_needed_give_their_memory_back() {
        let share = share(5, 30);
        windows(&share, 0, 400, 0, 9_000);
        windows(&share, 100, 400, 0, 4_000);
        assert_eq!(share.percent(), 5);
        assert!(share.set_limits(0, 0));
        assert_eq!(share.percent(), 0);
        share.note_eviction(PageId(2), 1000);
        assert_eq!(share.percent(), 0, "none is allowed");
    }

    #[test]
    fn ghosts_are_bounded_and_counted_once() {
        let share = share(1, 10);
        let ghosts: Vec<PageId> = (0..1000).map(PageId).filter(|&page| is_sampled(page)).collect();
        for &page in &ghosts {
            share.note_eviction(page, 1000);
            share.note_eviction(page, 1000);
        }
        let last = *ghosts.last().unwrap();
        share.note_miss(last);
        share.note_miss(last);
        share.note_miss(ghosts[0]);
        assert_eq!(share.ghosts_missed.load(Ordering::Relaxed), 1);
        assert!(share.ghosts.lock().order.len() <= 4);
    }
}
