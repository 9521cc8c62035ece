//! The protocol of frames: which thread may touch a frame's page, and how a frame changes hands. docs/invariants.md
//! gives the reasons.
//!
//! ```text
//!            pop                    publish
//!   FREE ───────────> OWNED ──────────────────────> RESIDENT
//!     ^                 │ ^                             │
//!     └──── release ────┘ └── claim + vacate (evict, discard) ─┘
//!                       │
//!                       └─ retire (pool shrinks) ─> RETIRED ─ revive (pool grows) ─> FREE
//!
//!   entry of a page:  nowhere ──begin_load──> LOADING ──publish──> frame ──vacate──> nowhere
//!                        │ ^                     │ (failed)          ^
//!                        │ └────── abandon ──────┘                   │
//!                        └─────────────── publish_new ───────────────┘
//! ```
//!
//! 1. A resident frame records which page it holds ([`Frame::holds`]). A thread that finds it through an entry latches
//!    it and checks this; if the frame holds another page or none, the entry has changed since, and the thread reads it
//!    again.
//! 2. Under a shared latch and after check (1) the page's bytes may be read; under an exclusive latch and
//!    after check (1) they may be changed. "Latched shared" includes reading beside the latch of a biased
//!    frame (`bravo.rs`).
//! 3. An owned frame belongs to one thread, latched or not: it holds no page, so by (1) no other thread
//!    touches its bytes.
//! 4. A pin is taken under a latch after check (1), or by the owner before it publishes. It may be released at any
//!    time. It keeps the page resident and permits nothing else.
//! 5. A frame is claimed only under its exclusive latch, with no pin, and with nothing to write unless its changes are
//!    deferred (`deferred.rs`). By (4) no pin can be added while it is latched.
//! 6. The entry is cleared before the frame's page, and set after it: a thread that sees the entry but not the page
//!    reads the entry again and finds it changed. Between the two steps the page is pinned or its latch is held, so
//!    that no thread claims the frame before the entry leads to it.
//! 7. A thread that waits for a frame's latch may hold other latches. Latches are taken in an order of pages, so the
//!    thread must wait only for the latch of its own page: waiting for the latch of another page could deadlock. Before
//!    it waits, it adds itself to the frame's pin count and checks (1). The frame can still be claimed if the check of
//!    (5) came before that count. So the owner publishes a page in the frame only when the count is 0
//!    ([`Frame::wait_for_stale_waiters`]): the counted threads soon find that the frame holds no page.
//! 8. A page is marked dirty (`rec_lsn`) under its exclusive latch. The thread that copies it for a write moves the
//!    mark to `writing` under the shared latch, and clears `writing` when the write has returned. The page is clean
//!    when neither is set.

#![allow(unsafe_code)]

use super::sync::{AtomicU32, AtomicU64, Latch, Ordering, pause};

/// Used since the clock hand last passed.
pub(super) const REFERENCED: u32 = 1;
/// Prefetched and not used since.
pub(super) const COLD: u32 = 2;
/// Made by [`super::Mtr::fresh`] and not yet initialised: the page is dropped when its latch is released.
pub(super) const UNINITIALISED: u32 = 4;
/// The log since the checkpoint initialises the whole page, so its next write home needs no protection against tearing.
pub(super) const REMADE: u32 = 8;
/// The log since the checkpoint can hold no change of the page: the page is in memory for the first time
/// since the database was opened.
pub(super) const NEVER_LOGGED: u32 = 32;
/// No longer part of the pool, which shrank.
pub(super) const RETIRED: u32 = 16;
/// Read beside the latch (`bravo.rs`).
pub(super) const BIASED: u32 = 64;
/// The list does not have all changes since the page was last written (`deferred.rs`).
pub(super) const WHOLE: u32 = 128;
/// A frame becomes biased after this many shared latches since its last exclusive latch.
const READS_TO_BIAS: u32 = 32;

/// An owned frame without a borrow of the pool, so that the pool's own structures can hold it. `Pool::unpark` makes it
/// an `Owned` again.
#[derive(Debug)]
pub(super) struct Parked(pub(super) u32);

/// Descriptor of a frame; one cache line.
#[repr(align(64))]
pub(super) struct Frame {
    pub(super) latch: Latch,
    pins: AtomicU32,
    /// The page's number + 1; 0 when it holds none.
    page: AtomicU32,
    pub(super) flags: AtomicU32,
    /// The next free frame + 1, while this one is free.
    pub(super) next_free: AtomicU32,
    /// Shared latches since the last exclusive one, approximately.
    reads: AtomicU32,
}

/// The positions since which a page differs from the data file.
pub(super) struct Dirt {
    /// Start of the oldest change for which no write has begun; 0 when there is none.
    pub(super) rec_lsn: AtomicU64,
    /// The `rec_lsn` of the write in flight; 0 when there is none.
    pub(super) writing: AtomicU64,
    /// 1 while the frame is on a stripe of newly dirty frames (`dirty.rs`).
    pub(super) listed: AtomicU32,
    /// The next frame down that stripe + 1.
    pub(super) link: AtomicU32,
    /// The list of the page's changes (`deferred.rs`); 0 when it has none.
    pub(super) list: AtomicU32,
}

impl Dirt {
    /// For the model; in the pool, a `Dirt` begins as zeroed memory.
    #[cfg(test)]
    #[allow(dead_code)]
    pub(super) fn new() -> Self {
        Self {
            rec_lsn: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            listed: AtomicU32::new(0),
            link: AtomicU32::new(0),
            list: AtomicU32::new(0),
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        // In this order, as in every such check: `writing` is set before `rec_lsn` is cleared.
        self.rec_lsn.load(Ordering::Acquire) == 0 && self.writing.load(Ordering::Acquire) == 0
    }

    /// Returns the start of the oldest change that is not in the data file, if any. For the model: a checkpoint uses
    /// `dirty.rs`.
    #[cfg(test)]
    #[allow(dead_code)]
    pub(super) fn oldest(&self) -> Option<u64> {
        let rec_lsn = self.rec_lsn.load(Ordering::Acquire);
        let writing = self.writing.load(Ordering::Acquire);
        [rec_lsn, writing].into_iter().filter(|&lsn| lsn != 0).min()
    }

    /// Marks a page as changed from `start` on, under its exclusive latch. Returns whether `rec_lsn` was
    /// clear.
    pub(super) fn mark(&self, start: u64) -> bool {
        let was_clean = self.rec_lsn.load(Ordering::Relaxed) == 0;
        if was_clean {
            self.rec_lsn.store(start, Ordering::Release);
        }
        was_clean
    }

    /// Begins a write, under the page's shared latch; only the one cleaner calls it. Returns the page's
    /// `rec_lsn`, or `None` if there is nothing to write or a write is in flight.
    pub(super) fn begin_write(&self) -> Option<u64> {
        let rec_lsn = self.rec_lsn.load(Ordering::Acquire);
        if rec_lsn == 0 || self.writing.load(Ordering::Acquire) != 0 {
            return None;
        }
        self.writing.store(rec_lsn, Ordering::Release);
        self.rec_lsn.store(0, Ordering::Release);
        Some(rec_lsn)
    }

    /// Ends the write after it has returned: the copy is in the data file.
    pub(super) fn end_write(&self) {
        self.writing.store(0, Ordering::Release);
    }
}

impl Frame {
    pub(super) fn new() -> Self {
        Self {
            latch: Latch::new(),
            pins: AtomicU32::new(0),
            page: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            next_free: AtomicU32::new(0),
            reads: AtomicU32::new(0),
        }
    }

    /// Returns whether the frame holds `page`; to be checked under its latch (1).
    #[inline]
    pub(super) fn holds(&self, page: u32) -> bool {
        self.page.load(Ordering::Acquire) == page.wrapping_add(1) && page != u32::MAX
    }

    /// Returns the page that the frame holds, if any.
    #[inline]
    pub(super) fn page(&self) -> Option<u32> {
        self.page.load(Ordering::Acquire).checked_sub(1)
    }

    /// Notes a use. Reads the flags first: most uses are already noted, and write nothing.
    #[inline]
    pub(super) fn touch(&self) {
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & COLD != 0 {
            // The use that the page was prefetched for: it makes the page no warmer than others.
            self.flags.fetch_and(!COLD, Ordering::Relaxed);
        } else if flags & REFERENCED == 0 {
            self.flags.fetch_or(REFERENCED, Ordering::Relaxed);
        }
    }

    /// Pins the page; only as (4) permits.
    pub(super) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until no thread waits for the latch because of a page that the frame held before (7). The caller owns the
    /// frame and does not hold its latch.
    pub(super) fn wait_for_stale_waiters(&self) {
        // A read-modify-write, so that a thread that counts itself later sees that the frame holds no page.
        for turn in 0.. {
            if self.pins.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break;
            }
            pause(turn);
        }
    }

    /// Latches the frame shared and returns true if it holds the page (1). May wait, but not for the latch of another
    /// page (7).
    #[inline]
    pub(super) fn latch_shared(&self, page: u32) -> bool {
        if !self.latch.try_lock_shared() && !self.wait(page, Latch::lock_shared) {
            return false;
        }
        let holds = self.holds(page);
        if !holds {
            // SAFETY: taken above.
            unsafe { self.latch.unlock_shared() };
        }
        holds
    }

    /// Like [`Frame::latch_shared`], but takes the latch exclusively.
    #[inline]
    pub(super) fn latch_exclusive(&self, page: u32) -> bool {
        if !self.latch.try_lock_exclusive() && !self.wait(page, Latch::lock_exclusive) {
            return false;
        }
        let holds = self.holds(page);
        if !holds {
            // SAFETY: taken above.
            unsafe { self.latch.unlock_exclusive() };
        }
        holds
    }

    /// Takes the latch with `lock`, which may wait. Returns `false` without waiting if the frame does not hold the page
    /// (7).
    #[cold]
    fn wait(&self, page: u32, lock: impl FnOnce(&Latch)) -> bool {
        self.pins.fetch_add(1, Ordering::AcqRel);
        let holds = self.holds(page);
        if holds {
            lock(&self.latch);
        }
        self.unpin();
        holds
    }

    /// Releases a pin.
    pub(super) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::Release);
    }

    /// Returns whether the frame is pinned.
    pub(super) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    #[inline]
    pub(super) fn is_biased(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & BIASED != 0
    }

    /// Counts a shared latch, which the caller holds; biases the frame after [`READS_TO_BIAS`] of them.
    #[inline]
    pub(super) fn lean(&self) {
        // Concurrent readers may lose counts: it is an estimate, not a guarantee.
        let reads = self.reads.load(Ordering::Relaxed) + 1;
        self.reads.store(reads, Ordering::Relaxed);
        if reads >= READS_TO_BIAS {
            self.reads.store(0, Ordering::Relaxed);
            self.flags.fetch_or(BIASED, Ordering::SeqCst);
        }
    }

    /// Revokes the bias, under the exclusive latch. Returns whether the frame was biased.
    #[inline]
    pub(super) fn revoke_bias(&self) -> bool {
        self.reads.store(0, Ordering::Relaxed);
        self.is_biased() && self.flags.fetch_and(!BIASED, Ordering::SeqCst) & BIASED != 0
    }

    /// Restores the bias, under the exclusive latch whose holder revoked it and found a reader.
    pub(super) fn restore_bias(&self) {
        self.flags.fetch_or(BIASED, Ordering::SeqCst);
    }

    /// Takes the exclusive latch of a frame if its page is unused (5), and returns the page. `unread` checks under the
    /// latch that no thread reads beside it (`bravo.rs`).
    pub(super) fn claim(&self, dirt: &Dirt, unread: impl FnOnce() -> bool) -> Option<u32> {
        self.claim_if(|| dirt.is_clean(), unread)
    }

    /// Like [`Frame::claim`], but with the condition `ready` instead of a clean page. `ready` is checked twice, the
    /// second time under the latch.
    pub(super) fn claim_if(&self, ready: impl Fn() -> bool, unread: impl FnOnce() -> bool) -> Option<u32> {
        // Checked without the latch first: this rejects most frames cheaply.
        if self.is_pinned() || !ready() || self.page().is_none() || !self.latch.try_lock_exclusive() {
            return None;
        }
        match self.page() {
            Some(page) if unread() && !self.is_pinned() && ready() => Some(page),
            _ => {
                // SAFETY: taken above.
                unsafe { self.latch.unlock_exclusive() };
                None
            }
        }
    }

    /// Takes the page out of a frame that the caller has latched exclusively; afterwards the caller owns the frame. By
    /// (5) the page has no pin, but the pin count may include threads that wait (7).
    ///
    /// # Safety
    /// The caller holds the exclusive latch, which this call releases.
    pub(super) unsafe fn vacate(&self, entry: &Entry) {
        entry.clear();
        self.page.store(0, Ordering::Release);
        self.flags.store(0, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.latch.unlock_exclusive() };
    }

    /// Publishes the page that the owner has put into the frame, and pins it: without the pin another thread could
    /// claim the frame before its entry is set, and the entry would then lead to a frame without the page.
    pub(super) fn publish(&self, entry: &Entry, frame: u32, page: u32, flags: u32) {
        self.wait_for_stale_waiters();
        self.pin();
        self.flags.store(flags, Ordering::Relaxed);
        self.page.store(page + 1, Ordering::Release);
        entry.set(frame);
    }

    /// Like [`Frame::publish`], for a new page whose frame its owner has latched exclusively. Returns
    /// `false`, with the frame still owned, if the page is resident or being loaded.
    pub(super) fn publish_new(&self, entry: &Entry, frame: u32, page: u32) -> bool {
        self.page.store(page + 1, Ordering::Release);
        let Some(never_seen) = entry.leave_nowhere(frame + 1) else {
            self.page.store(0, Ordering::Release);
            return false;
        };
        self.flags.store(if never_seen { UNINITIALISED | NEVER_LOGGED } else { UNINITIALISED }, Ordering::Relaxed);
        true
    }
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// Not in memory.
    Nowhere,
    /// A thread is reading it.
    Loading,
    /// In this frame, or it was when the entry was read.
    In(u32),
}

/// Not in memory since the database was opened.
const NEVER: u32 = 0;
/// No longer in memory.
const GONE: u32 = u32::MAX - 1;
const LOADING: u32 = u32::MAX;

/// Where a page is, in one word: nowhere, being loaded, or a frame + 1.
pub(super) struct Entry(AtomicU32);

impl Entry {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(NEVER))
    }

    #[inline]
    pub(super) fn get(&self) -> Where {
        match self.0.load(Ordering::Acquire) {
            NEVER | GONE => Where::Nowhere,
            LOADING => Where::Loading,
            frame => Where::In(frame - 1),
        }
    }

    /// Changes the entry from nowhere to `to`. Returns `None` if the page is resident or being loaded; otherwise
    /// whether it was never in memory before.
    fn leave_nowhere(&self, to: u32) -> Option<bool> {
        [NEVER, GONE]
            .into_iter()
            .find(|&from| self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok())
            .map(|from| from == NEVER)
    }

    /// Makes the caller the loader of the page. Returns `false` if the page is resident or being loaded.
    pub(super) fn begin_load(&self) -> bool {
        self.leave_nowhere(LOADING).is_some()
    }

    /// Ends a load that has failed: the next thread that needs the page tries again.
    pub(super) fn abandon_load(&self) {
        self.clear();
    }

    fn set(&self, frame: u32) {
        self.0.store(frame + 1, Ordering::Release);
    }

    fn clear(&self) {
        self.0.store(GONE, Ordering::Release);
    }
}
