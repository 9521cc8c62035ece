//! Which pages are dirty, and since when, without a scan of the frames.
//!
//! ```text
//!   mark (first change of a clean page) ──push──> stripe of the thread ──drain──> ordered by rec_lsn ──written home──> gone
//! ```
//!
//! 1. A change of a page that is already dirty touches nothing here. The first change pushes the frame onto a
//!    stripe: two writes to memory that the thread has nearly for itself, one to the frame's own [`Dirt`]. No
//!    mutex, no allocation.
//! 2. A frame is on one stripe at most: [`Dirt::listed`] says that it is, and `link` belongs to the thread
//!    that set it.
//! 3. *Nothing dirty is missed.* For each frame and each of its two positions (`rec_lsn`, `writing`) that is
//!    not 0, one of these holds: the frame is on a stripe; the thread that marks it is between `mark` and the
//!    end of [`Stripes::push`], under the page's exclusive latch; the pair of position and frame is in
//!    [`Ordered`]. A drain clears `listed` before it reads the positions, and both sides change `listed` by a
//!    read-modify-write: a mark that found it set happened before the drain's read, and one that found it
//!    clear pushes again.
//! 4. A mini-transaction marks and pushes before it publishes. So a checkpoint that first finds the oldest
//!    unpublished one, and drains then, misses none that is published (`checkpoint.rs`, 2).
//! 5. A pair is removed when neither position of the frame equals it. This is checked under the mutex that
//!    drains take: a mark after the check is on a stripe, and comes back with the next drain.
//! 6. The mutex around [`Ordered`] is for cleaners, checkpoints and statistics; no reader or writer of pages
//!    takes it.

use super::frame::Dirt;
use super::sync::{AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeSet;

/// Stripes, a power of two: concurrent threads that dirty pages seldom share one.
const STRIPES: usize = 16;

/// Alone on its cache lines (two, because they are fetched in pairs).
#[repr(align(128))]
struct Stripe {
    /// The frame that was pushed last + 1; 0 when there is none.
    top: AtomicU32,
    /// Pages that became dirty through this stripe.
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

    /// With this many stripes, a power of two.
    pub(super) fn with(stripes: usize) -> Self {
        Self((0..stripes).map(|_| Stripe { top: AtomicU32::new(0), marked: AtomicU64::new(0) }).collect())
    }

    /// Records that a mark has made the frame dirty; under its page's exclusive latch. `row`: a number of the
    /// thread.
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

    /// How often a page became dirty, ever.
    pub(super) fn marked(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.marked.load(Ordering::Relaxed)).sum()
    }
}

/// The dirty frames ordered by position, as of the last drain.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    pairs: BTreeSet<(u64, u32)>,
    /// Frames examined.
    looked: usize,
}

/// State of a pair.
enum Stands {
    /// Dirty since that position.
    Dirty,
    /// On its way home.
    InFlight,
    /// At home.
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
    /// Moves what became dirty since the last drain into the order.
    pub(super) fn drain<'d>(&mut self, stripes: &Stripes, dirt: impl Fn(u32) -> &'d Dirt) {
        for stripe in &stripes.0 {
            // Most are empty, and this check writes nothing. A frame pushed after it was not published before
            // the caller's own check.
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
    }

    /// The oldest change that is not at home.
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

    /// Calls `visit` with the frames that are dirty since before `lsn`, oldest first, until it returns
    /// `false`. Returns whether others are on their way home.
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

    /// Forgets pairs whose write has ended.
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
