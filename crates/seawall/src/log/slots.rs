//! The order of the log: which mini-transaction owns which bytes of the stream, and up to where everything is
//! published.
//!
//! A mini-transaction gets its place by one `fetch_add` on `head`. A small array of slots tracks the places
//! that are still being filled: each slot is free or holds a lower bound of one place's start.
//!
//! ```text
//!   claim:    lower := head.load            publish:  (bytes are in the buffer)
//!             slot  := lower   (was free)             slot := FREE
//!             used  |= slot
//!             start := head.fetch_add(bytes)
//!             slot  := start
//!
//!   oldest_unpublished:   h := head.load;   min(h, every used slot)       -- head first, then `used` and the slots
//! ```
//!
//! 1. No unpublished place begins before `oldest_unpublished()`, under any interleaving. A place with `start >= h` does
//!    not matter. A place with `start < h` made its `fetch_add` before `h` was read, so its slot's first store is
//!    visible to the scan (`fetch_add` releases, the load of `head` acquires, and an unbroken sequence of `fetch_add`s
//!    keeps every earlier release visible), and so is its bit of `used`, which its thread has set or seen. The scan
//!    reads a bound of the place, or a value stored later in that slot; in the second case the place was published.
//! 2. A thread that reads that a place is published sees its bytes: publishing releases, the scan acquires,
//!    and a thread that takes the slot again acquires before it releases.
//! 3. Every bound is a value that `head` had, so it is the boundary of two entries.
//! 4. A thread waits here only for a free slot. A slot is held only from reservation to publication, without
//!    I/O in between.
//!
//! 5. An abandoned place ends the log: its start remains a bound of `oldest_unpublished`, although its slot is free
//!    again. The bound is stored before the slot is freed, and read after the slots.
//! 6. `oldest_unpublished` may go back for a moment: a thread that has read `lower` may store it after other threads
//!    have claimed and published places. The position is too low then, never too high. A caller that has acted on a
//!    position keeps it.
//!
//! The model tests check 1, 2 and 5 under every interleaving (`log/model.rs`).

use super::sync::{AtomicU64, Ordering, Padded, SLOTS, slot_hint, yield_now};
use std::sync::atomic::AtomicU64 as Counter;

/// The slot tracks no unpublished place.
const FREE: u64 = u64::MAX;

const _: () = assert!(SLOTS <= u64::BITS as usize, "`used` has a bit for each slot");

#[derive(Debug)]
pub(super) struct Slots {
    head: Padded<AtomicU64>,
    slots: [Padded<Slot>; SLOTS],
    /// A bit for each slot that was ever taken: few threads use few slots.
    used: AtomicU64,
    /// The lowest start of an abandoned place; `u64::MAX` without one.
    abandoned: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    /// A lower bound of the start of the place being filled, or [`FREE`].
    start: AtomicU64,
    /// Places published through this slot, for statistics. Counted here because the owner has this cache line
    /// anyway.
    published: Counter,
}

/// A place in the stream that is not published yet. It must be passed to [`Slots::publish`] or [`Slots::abandon`].
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
            used: AtomicU64::new(0),
            abandoned: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns where the next place will begin.
    pub(super) fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Claims the next `bytes` of the stream.
    pub(super) fn claim(&self, bytes: u64) -> Claim {
        let (slot, lower) = self.take_slot();
        if self.used.load(Ordering::Relaxed) & (1 << slot) == 0 {
            self.used.fetch_or(1 << slot, Ordering::Relaxed);
        }
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
                // Acquires from the thread that published here before (2).
                if slot.compare_exchange(FREE, lower, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return (index, lower);
                }
            }
            yield_now();
        }
    }

    /// Publishes the place: its bytes are in the buffer.
    pub(super) fn publish(&self, claim: &Claim) {
        let slot = &self.slots[claim.slot].0;
        slot.published.fetch_add(1, Ordering::Relaxed);
        slot.start.store(FREE, Ordering::Release);
    }

    /// Abandons the place: nothing at or after it ever counts as published.
    pub(super) fn abandon(&self, claim: &Claim) {
        self.abandoned.fetch_min(claim.start, Ordering::AcqRel);
        self.slots[claim.slot].0.start.store(FREE, Ordering::Release);
    }

    /// Returns the number of places published so far.
    pub(super) fn published(&self) -> u64 {
        self.slots.iter().map(|slot| slot.0.published.load(Ordering::Relaxed)).sum()
    }

    /// Returns a position before which no unpublished place begins.
    pub(super) fn oldest_unpublished(&self) -> u64 {
        let mut oldest = self.head();
        let mut used = self.used.load(Ordering::Relaxed);
        while used != 0 {
            let slot = &self.slots[used.trailing_zeros() as usize % SLOTS].0.start;
            oldest = oldest.min(slot.load(Ordering::Acquire));
            used &= used - 1;
        }
        oldest.min(self.abandoned.load(Ordering::Acquire))
    }
}
