//! Finds the dirty pages, and the positions since which they have been dirty, without a scan of the frames.
//!
//! ```text
//!   mark (first change of a clean page) ──push──> stripe of the thread ──drain──> ordered by rec_lsn ──written home──> gone
//! ```
//!
//! 1. A change of a page that is already dirty touches nothing here. The first change pushes the frame onto a stripe:
//!    two writes to the stripe, which few threads share, and two to the frame's own [`Dirt`]. No mutex, no allocation.
//! 2. A frame is on at most one stripe: [`Dirt::listed`] tells whether it is on one, and `link` belongs to the thread
//!    that set `listed`.
//! 3. *Nothing dirty is missed.* For each frame and each of its two positions (`rec_lsn`, `writing`) that is not 0, one
//!    of these holds: the frame is on a stripe; the thread that marks it is between `mark` and the end of
//!    [`Stripes::push`], under the page's exclusive latch; or the pair of position and frame is in [`Ordered`]. A drain
//!    clears `listed` before it reads the positions, and both sides change `listed` by a read-modify-write: a mark that
//!    found it set happened before the drain read the positions, and a mark that found it clear pushes the frame again.
//! 4. A mini-transaction marks and pushes before it publishes. So a checkpoint that first finds the oldest unpublished
//!    mini-transaction, and then drains, misses no published one (`checkpoint.rs`, 2).
//! 5. A pair is removed when neither position of the frame equals it. This is checked under the mutex that drains take:
//!    a mark after the check is on a stripe, and the next drain adds its pair.
//! 6. The mutex around [`Ordered`] is for cleaning and checkpoints. Reading or changing a page does not take it.

use super::frame::Dirt;
use super::sync::{AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeSet;

/// Number of stripes, a power of two: enough that concurrent threads seldom share one.
const STRIPES: usize = 16;
/// Fewer pairs are not swept.
const SWEEP_LEAST: usize = 4096;

/// Alone on its two cache lines, because the processor fetches lines in pairs.
#[repr(align(128))]
struct Stripe {
    /// The frame pushed last + 1; 0 when there is none.
    top: AtomicU32,
    /// How often a page became dirty through this stripe.
    marked: AtomicU64,
}

/// Frames that became dirty since the last drain.
pub(super) struct Stripes(Vec<Stripe>);

impl std::fmt::Debug for Stripes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stripes")
    }
}

impl Stripes {
    pub(super) fn new() -> Self {
        Self::with(STRIPES)
    }

    /// Makes this many stripes, a power of two.
    pub(super) fn with(stripes: usize) -> Self {
        Self((0..stripes).map(|_| Stripe { top: AtomicU32::new(0), marked: AtomicU64::new(0) }).collect())
    }

    /// Pushes a frame that a mark has made dirty, under its page's exclusive latch. `row`: the thread's number, which
    /// selects the stripe.
    pub(super) fn push(&self, row: usize, frame: u32, dirt: &Dirt) {
        let stripe = &self.0[row & (self.0.len() - 1)];
        stripe.marked.fetch_add(1, Ordering::Relaxed);
        if dirt.listed.swap(1, Ordering::AcqRel) != 0 {
            return;
        }
        let mut top = stripe.top.load(Ordering::Relaxed);
        loop {
            dirt.link.store(top, Ordering::Relaxed);
            match stripe.top.compare_exchange_weak(top, frame + 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Returns how often a page has become dirty since the pool was made.
    pub(super) fn marked(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.marked.load(Ordering::Relaxed)).sum()
    }
}

/// The dirty frames ordered by position, as of the last drain.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    pairs: BTreeSet<(u64, u32)>,
    /// Pairs that were left after the last sweep.
    kept: usize,
    /// Frames examined.
    looked: usize,
}

/// State of a pair of position and frame.
enum Stands {
    /// The page has been dirty since the position (`rec_lsn`).
    Dirty,
    /// The page is being written (`writing`).
    InFlight,
    /// Neither: the change is no longer pending in this frame.
    Gone,
}

fn stands(dirt: &Dirt, lsn: u64) -> Stands {
    // In this order: `writing` is set before `rec_lsn` is cleared.
    if dirt.rec_lsn.load(Ordering::Acquire) == lsn {
        Stands::Dirty
    } else if dirt.writing.load(Ordering::Acquire) == lsn {
        Stands::InFlight
    } else {
        Stands::Gone
    }
}

impl Ordered {
    /// Adds the frames that became dirty since the last drain to the ordered pairs.
    pub(super) fn drain<'d>(&mut self, stripes: &Stripes, dirt: impl Fn(u32) -> &'d Dirt) {
        for stripe in &stripes.0 {
            // Most stripes are empty, and this check writes nothing. If a frame is pushed after it, the change was not
            // published when the caller made its own check.
            if stripe.top.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut next = stripe.top.swap(0, Ordering::AcqRel);
            while let Some(frame) = next.checked_sub(1) {
                let dirt = dirt(frame);
                next = dirt.link.load(Ordering::Relaxed);
                dirt.listed.swap(0, Ordering::AcqRel);
                let rec_lsn = dirt.rec_lsn.load(Ordering::Acquire);
                let writing = dirt.writing.load(Ordering::Acquire);
                self.pairs.extend([rec_lsn, writing].into_iter().filter(|&lsn| lsn != 0).map(|lsn| (lsn, frame)));
                self.looked += 1;
            }
        }
        self.sweep(dirt);
    }

    /// Removes the pairs of pages that have left their frames without a write, once there are as many of them as of
    /// others. They grow with the reads of deferred pages, not with the number of frames.
    fn sweep<'d>(&mut self, dirt: impl Fn(u32) -> &'d Dirt) {
        if self.pairs.len() > 2 * self.kept.max(SWEEP_LEAST) {
            self.looked += self.pairs.len();
            self.pairs.retain(|&(lsn, frame)| !matches!(stands(dirt(frame), lsn), Stands::Gone));
            self.kept = self.pairs.len();
        }
    }

    /// Returns the start of the oldest change in a frame that is not in the data file.
    pub(super) fn oldest<'d>(&mut self, dirt: impl Fn(u32) -> &'d Dirt) -> Option<u64> {
        while let Some(&(lsn, frame)) = self.pairs.first() {
            self.looked += 1;
            if !matches!(stands(dirt(frame), lsn), Stands::Gone) {
                return Some(lsn);
            }
            self.pairs.pop_first();
        }
        None
    }

    /// Calls `visit` with the frames that have been dirty since before `lsn`, oldest first, until `visit` returns
    /// `false`. Returns whether other pages are being written.
    pub(super) fn dirty_before<'d>(
        &mut self,
        lsn: u64,
        dirt: impl Fn(u32) -> &'d Dirt,
        mut visit: impl FnMut(u32) -> bool,
    ) -> bool {
        let (mut gone, mut in_flight) = (Vec::new(), false);
        for &(since, frame) in self.pairs.range(..(lsn, 0)) {
            self.looked += 1;
            match stands(dirt(frame), since) {
                Stands::Dirty => {
                    if !visit(frame) {
                        break;
                    }
                }
                Stands::InFlight => in_flight = true,
                Stands::Gone => gone.push((since, frame)),
            }
        }
        for pair in gone {
            self.pairs.remove(&pair);
        }
        in_flight
    }

    /// Removes those of the pairs whose write has ended.
    pub(super) fn written<'d>(&mut self, pairs: &[(u64, u32)], dirt: impl Fn(u32) -> &'d Dirt) {
        for pair in pairs {
            if matches!(stands(dirt(pair.1), pair.0), Stands::Gone) {
                self.pairs.remove(pair);
            }
        }
    }

    /// Frames examined since the last call.
    pub(super) fn take_looked(&mut self) -> usize {
        std::mem::take(&mut self.looked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that is read and sent away again and again leaves no pair each time, though a page that stays dirty in
    /// its frame is older than all of them.
    #[test]
    fn pairs_of_pages_that_went_away_do_not_collect() {
        if module_path!().contains("model") {
            // There its atomics are loom's, which work only in a model.
            return;
        }
        let frames: Vec<Dirt> = (0..16).map(|_| Dirt::new()).collect();
        let (stripes, mut ordered) = (Stripes::new(), Ordered::default());
        let dirt = |frame: u32| &frames[frame as usize];
        let comes = |frame: u32, since: u64| {
            dirt(frame).rec_lsn.store(since, Ordering::Release);
            stripes.push(0, frame, dirt(frame));
        };
        comes(0, 1);
        for since in 2..100_000 {
            let frame = 1 + (since % 15) as u32;
            comes(frame, since);
            ordered.drain(&stripes, dirt);
            assert_eq!(ordered.oldest(dirt), Some(1));
            if since % 7 != 0 {
                dirt(frame).rec_lsn.store(0, Ordering::Release);
            }
        }
        assert!(ordered.pairs.len() <= 2 * SWEEP_LEAST, "{}", ordered.pairs.len());
        let mut found = 0;
        ordered.dirty_before(u64::MAX, dirt, |_| {
            found += 1;
            true
        });
        assert_eq!(found, frames.iter().filter(|dirt| dirt.rec_lsn.load(Ordering::Acquire) != 0).count());
    }
}
