//! Finding a frame for a page: a clock with a second chance.
//!
//! 1. Eviction takes unpinned, unlatched pages that are clean ([`super::frame::Frame::claim`]) or whose changes stay in
//!    memory (`deferred.rs`). It does no I/O, so latched code may call it.
//! 2. The hand passes over a page once if the page was used since the hand last passed. A prefetched page arrives
//!    without that mark, and its first use does not set it: so a scan does not displace pages that are used twice.
//! 3. Several threads can evict at once: each takes a different stretch of the clock.
//! 4. While a thread has the allocation token (see [`super::read`]), only that thread gets frames.

use super::frame::REFERENCED;
use super::guard::Owned;
use super::pool::Pool;
use super::stats::count;
use crate::error::Result;
use crate::format::PageId;
use std::sync::atomic::Ordering;

/// The most frames that an eviction takes from the clock at once.
const STRETCH: u64 = 16;
/// Frames examined before eviction gives up on a large pool, unless it has to be thorough.
const LOOK_MAX: u64 = 4096;

impl Pool {
    /// Evicts up to `wanted` unused pages and returns how many. If `thorough`, the hand goes round twice before
    /// eviction gives up.
    pub(super) fn evict(&self, wanted: usize, thorough: bool) -> usize {
        let span = u64::from(self.frames.span());
        let limit = self.frames.limit();
        let look_max = if thorough { 2 * span + STRETCH } else { (2 * span + STRETCH).min(LOOK_MAX) };
        let (mut freed, mut looked) = (0, 0);
        while freed < wanted && looked < look_max {
            // Not more frames than needed: every frame that the hand passes over loses its mark.
            let stretch = ((wanted - freed) as u64).min(STRETCH);
            let start = self.cleaner.hand.fetch_add(stretch, Ordering::Relaxed);
            for step in 0..stretch {
                let frame = ((start + step) % span) as u32;
                let known = self.frames.get(frame);
                // A frame beyond the limit is being retired: it gets no second chance.
                if frame < limit && known.flags.load(Ordering::Relaxed) & REFERENCED != 0 {
                    known.flags.fetch_and(!REFERENCED, Ordering::Relaxed);
                    continue;
                }
                let page = known.page();
                if let Some(owned) = self.claim(frame).or_else(|| self.send_away(frame)) {
                    drop(owned);
                    freed += 1;
                    page.into_iter().for_each(|page| self.deferred.note_eviction(PageId(page), limit.into()));
                }
            }
            looked += stretch;
        }
        count(&self.counters.evictions, freed);
        freed
    }

    /// Evicts every page that is not pinned, after writing it home.
    #[cfg(test)]
    pub(crate) fn chill(&self) {
        self.flush_all().unwrap();
        self.evict(usize::MAX, true);
    }

    /// The number of prefetchers that share the device.
    #[cfg(test)]
    pub(crate) fn prefetchers(&self) -> u32 {
        self.loads.prefetches.prefetchers.load(Ordering::Acquire)
    }

    /// Returns a frame if one is available without I/O; latched code may call this.
    pub(super) fn frame_at_once(&self) -> Option<Owned<'_>> {
        if !self.token.may_take() {
            return None;
        }
        self.pop_free().or_else(|| {
            self.evict(1, false);
            self.pop_free()
        })
    }

    /// Returns a frame for a page that is about to be read; `None` if all are pinned, latched, or reserved for another
    /// thread. No latch may be held.
    ///
    /// # Errors
    /// A failed write of a dirty page, which poisons.
    pub(super) fn obtain_frame(&self) -> Result<Option<Owned<'_>>> {
        let batch = (self.frames.limit() as usize / 64).clamp(1, 64);
        // Other threads may take the frames that this thread frees. Then they make progress, but this thread must not
        // try for ever.
        for round in 0..64 {
            if !self.token.may_take() {
                return Ok(None);
            }
            if let Some(owned) = self.pop_free() {
                return Ok(Some(owned));
            }
            if self.evict(batch, round > 0) > 0 {
                continue;
            }
            if self.finish_prefetches(round > 0) == 0 && self.clean_near_hand(1, round > 0)? == 0 && round > 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }
}
