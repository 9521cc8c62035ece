//! The order of the log: who owns which bytes of the stream, and up to where everything is published.
//!
//! A mini-transaction gets its place by one `fetch_add` on `head`. Which places are still being filled is kept in a
//! small array of slots, each free or holding a lower bound of one place's start.
//!
//! ```text
//!   claim:    lower := head.load            publish:  (bytes are in the buffer)
//!             slot  := lower   (was free)             slot := FREE
//!             start := head.fetch_add(bytes)
//!             slot  := start
//!
//!   oldest_unpublished:   h := head.load;   min(h, every slot)       -- head first, then the slots
//! ```
//!
//! 1. No unpublished place begins before `oldest_unpublished()`, whatever the interleaving. A place with `start >= h`
//!    is no matter. One with `start < h` made its `fetch_add` before `h` was read, so (`fetch_add` releases, the load
//!    of `head` acquires, and an unbroken run of `fetch_add`s carries every earlier release) its slot's first store is
//!    visible to the scan: the scan reads a bound of it, or something stored later in that slot, which means that it
//!    was published.
//! 2. Who reads that a place is published sees its bytes: publishing releases, the scan acquires, and whoever takes the
//!    slot again acquires before releasing.
//! 3. Every bound is a value that `head` had, so it is the boundary of two frames.
//! 4. Nobody waits here for anything but a free slot; slots are held only from reservation to publication, without I/O
//!    in between.
//!
//! The model test checks 1 and 2 under every interleaving (`log/model.rs`).

use super::sync::{AtomicU64, Ordering, Padded, SLOTS, slot_hint, yield_now};
use std::sync::atomic::AtomicU64 as Counter;

/// No place is unpublished here.
const FREE: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Slots {
    head: Padded<AtomicU64>,
    slots: [Padded<Slot>; SLOTS],
}

#[derive(Debug)]
struct Slot {
    /// A lower bound of the start of the place that is being filled, or [`FREE`].
    start: AtomicU64,
    /// Places published through this slot, for statistics: here because the cache line is the owner's anyway.
    published: Counter,
}

/// A place in the stream that is not published yet. It must come back to [`Slots::publish`]; lost, it holds up the log
/// for good.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) start: u64,
    pub(super) end: u64,
    slot: usize,
}

impl Slots {
    pub(super) fn new(head: u64) -> Self {
        Self {
            head: Padded(AtomicU64::new(head)),
            slots: std::array::from_fn(|_| Padded(Slot { start: AtomicU64::new(FREE), published: Counter::new(0) })),
        }
    }

    /// Where the next place will begin.
    pub(super) fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// The next `bytes` of the stream.
    pub(super) fn claim(&self, bytes: u64) -> Claim {
        let (slot, lower) = self.take_slot();
        let start = self.head.0.fetch_add(bytes, Ordering::AcqRel);
        debug_assert!(start >= lower, "head never goes back");
        self.slots[slot].0.start.store(start, Ordering::Release);
        Claim { start, end: start + bytes, slot }
    }

    fn take_slot(&self) -> (usize, u64) {
        let first = slot_hint();
        loop {
            for i in 0..SLOTS {
                let index = (first + i) % SLOTS;
                let slot = &self.slots[index].0.start;
                if slot.load(Ordering::Relaxed) != FREE {
                    continue;
                }
                let lower = self.head.0.load(Ordering::Acquire);
                // Acquires from whoever published here before (2).
                if slot.compare_exchange(FREE, lower, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return (index, lower);
                }
            }
            yield_now();
        }
    }

    /// The bytes of the place are where they belong.
    pub(super) fn publish(&self, claim: &Claim) {
        let slot = &self.slots[claim.slot].0;
        slot.published.fetch_add(1, Ordering::Relaxed);
        slot.start.store(FREE, Ordering::Release);
    }

    /// Places published so far.
    pub(super) fn published(&self) -> u64 {
        self.slots.iter().map(|slot| slot.0.published.load(Ordering::Relaxed)).sum()
    }

    /// No unpublished place begins before this.
    pub(super) fn oldest_unpublished(&self) -> u64 {
        let head = self.head();
        self.slots.iter().fold(head, |oldest, slot| oldest.min(slot.0.start.load(Ordering::Acquire)))
    }
}
