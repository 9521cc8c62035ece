//! Deferred changes: a dirty page leaves memory as the redo records that its copy on the disk lacks.
//!
//! ```text
//!            first change                 evict: the records stay, the frame goes
//!    CLEAN ───────────────> LISTED ───────────────────────────────────────────────> AWAY
//!      ^ ^                   │  │ ^                                                 │  │
//!      │ └─── write home ────┘  │ └────── load, prefetch: read, check, apply ───────┘  │
//!      │                        │ too long, remade, redone                             │
//!      │                        v                                                      │
//!      ├─── write home ────── WHOLE                                                    │
//!      └─── merge: read, check, apply, write home, without a frame ────────────────────┘
//! ```
//!
//! 1. The list of a LISTED page has all its records from `rec_lsn` on, in order, and the LSN that the page had before
//!    them. It is changed under the page's exclusive latch, and given up under its shared latch by the copy that goes
//!    home: from then on that write is responsible.
//!    A thread that works on it has taken it out of its frame ([`Dirt::list`]) or of [`Away`].
//! 2. The entry of a page that is AWAY is nowhere, or loading. Only the thread that made it loading touches the
//!    page's records, so they are applied once. If it fails or panics, they are there for the next ([`Taken`]).
//! 3. A change that is not at home is at every moment in a frame (`rec_lsn`, `writing`) or in `Away::by_age`, and
//!    goes from one to the other under the mutex of [`Away`]. Checkpoints and cleaners look at both under it: none
//!    passes such a change. The mutex comes before that of the ordered dirty pages (`dirty.rs`); no latch is waited for
//!    and no I/O done under it.
//! 4. A page that is AWAY has nothing on the disk that its log does not explain: after a crash recovery reads the log
//!    from the checkpoint, as for any dirty page. Nothing of this is in the files.
//! 5. What is read must have exactly the LSN that the list begins from. An older page is a lost write, a newer one a
//!    defect of ours; neither gets records.
//! 6. A page whose first record since it was written initialises it is WHOLE: there may be nothing on the disk to
//!    apply records to. So are pages that recovery changes.
//! 7. The memory of lists (`lists.rs`) is bounded by a share of the pool (`share.rs`), which the frames do not get:
//!    frames get what lists have given back, and no more. What several threads add at one moment can exceed it, and
//!    in a pool that is made smaller lists give up theirs later than frames do.
//!    The fuller that share, the shorter a list may become: pages with longer ones go home, so that each write carries
//!    many changes, and the pages that are listed can leave at once.

mod away;
mod lists;
mod pool;
mod share;

use super::frame::Dirt;
use crate::counted::Mutex;
use crate::error::Result;
use crate::format::{Lsn, PageId};
use away::Away;
use lists::{List, Lists};
use parking_lot::MutexGuard;
use share::Share;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Lists of the pages in frames and of those that are away.
#[derive(Debug)]
pub(super) struct Deferred {
    lists: Lists,
    away: Mutex<Away<List>>,
    /// Frames with a list.
    frames: AtomicUsize,
    /// Pages that are away.
    pages: AtomicUsize,
    /// The most bytes of all lists.
    bytes_max: AtomicUsize,
    /// The longest list, bytes.
    list_max: usize,
    share: Share,
    /// Pages merged because the share was made smaller.
    pub(super) forced: AtomicU64,
    /// The share has changed since the pool was divided.
    unfit: AtomicBool,
}

/// What a mini-transaction has done to a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    /// The page's LSN before.
    pub(super) before: Lsn,
    /// Nothing of the page was dirty, but for a write in flight.
    pub(super) first: bool,
    /// The records of the mini-transaction; `None` if the change cannot be deferred.
    pub(super) records: Option<&'a [u8]>,
}

impl Deferred {
    /// For a pool of at most so many bytes.
    pub(super) fn new(pool_bytes_max: u64, page_bytes: usize, least_percent: u32, most_percent: u32) -> Result<Self> {
        Ok(Self {
            // The largest share that an option allows.
            lists: Lists::reserve(pool_bytes_max / 5 * 4)?,
            away: Mutex::default(),
            frames: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(0),
            list_max: page_bytes / 4,
            share: Share::new(least_percent, most_percent),
            forced: AtomicU64::new(0),
            unfit: AtomicBool::new(false),
        })
    }

    pub(super) fn away(&self) -> MutexGuard<'_, Away<List>> {
        self.away.lock()
    }

    /// Whether pages with lists must go home, because the share was made smaller: lists use more than it, or hold more
    /// in blocks that are nearly empty, for which frames wait.
    pub(super) fn is_over(&self) -> bool {
        let (used, held) = (self.lists.bytes(), self.lists.held());
        let most = self.bytes_max.load(Ordering::Relaxed);
        let most = most + most / 8;
        used > most || (held > most && held / 2 > used)
    }

    /// Dirty pages that can leave without a write, about.
    pub(super) fn listed_frames(&self) -> u64 {
        if self.is_on() { self.frames.load(Ordering::Relaxed) as u64 } else { 0 }
    }

    /// Takes the list of a frame, under a latch of its page or as its owner.
    fn take_listed(&self, dirt: &Dirt) -> Option<List> {
        // Reads first: most frames have none.
        let listed = dirt.list.load(Ordering::Acquire) != 0;
        let list = List::of(if listed { dirt.list.swap(0, Ordering::AcqRel) } else { 0 })?;
        self.frames.fetch_sub(1, Ordering::Relaxed);
        Some(list)
    }

    /// Gives a frame that has none a list, under the page's exclusive latch or as the frame's owner.
    fn put_listed(&self, dirt: &Dirt, list: List) {
        let before = dirt.list.swap(list.number(), Ordering::AcqRel);
        debug_assert_eq!(before, 0, "a frame has one list");
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether new changes are listed.
    fn is_on(&self) -> bool {
        self.bytes_max.load(Ordering::Relaxed) > 0
    }

    /// How long a list may become now (7).
    fn longest(&self) -> usize {
        let (most, used) = (self.bytes_max.load(Ordering::Relaxed), self.lists.bytes());
        let free = most.saturating_sub(used);
        // All of it while an eighth is free.
        if free >= most / 8 { self.list_max } else { self.list_max * free * 8 / most }
    }

    /// Gives up the list of a frame, under a latch of its page.
    pub(super) fn forget(&self, dirt: &Dirt) {
        if let Some(list) = self.take_listed(dirt) {
            self.lists.free(list);
        }
    }

    /// Pages away, bytes of all lists, and the most.
    pub(super) fn sizes(&self) -> [u64; 3] {
        let (pages, most) = (self.pages.load(Ordering::Relaxed), self.bytes_max.load(Ordering::Relaxed));
        [pages, self.lists.bytes(), most].map(|size| size as u64)
    }

    /// The limits of its share of the pool, percent, from now on.
    pub(super) fn set_share(&self, least: u32, most: u32) {
        if self.share.set_limits(least, most) {
            self.set_unfit();
        }
    }

    /// Whether the pool must be divided anew: the share has changed, or lists hold more than it in empty blocks.
    pub(super) fn is_unfit(&self) -> bool {
        let most = self.bytes_max.load(Ordering::Relaxed);
        self.unfit.load(Ordering::Acquire) || (self.lists.held() > most && self.lists.has_empty_blocks())
    }

    /// Notes that it must.
    pub(super) fn set_unfit(&self) {
        self.unfit.store(true, Ordering::Release);
    }

    /// The caller divides it by the share as it is after this.
    pub(super) fn fit(&self) {
        self.unfit.store(false, Ordering::Release);
    }

    /// The memory that lists hold, bytes, when they need not hold more than so much.
    pub(super) fn held_after_trim(&self, wanted: u64) -> u64 {
        if self.lists.held() as u64 > wanted {
            self.lists.trim();
            self.away.lock().trim();
        }
        self.lists.held() as u64
    }

    /// Bytes of a pool of `pool_bytes` that are kept for lists: none before the pool has had to evict.
    pub(super) fn kept_of(&self, pool_bytes: u64) -> u64 {
        pool_bytes * u64::from(self.share.percent()) / 100
    }

    pub(super) fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(usize::try_from(bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    pub(super) fn note_eviction(&self, page: PageId, frames: u64) {
        if self.share.note_eviction(page, frames) {
            self.set_unfit();
        }
    }

    pub(super) fn note_miss(&self, page: PageId) {
        self.share.note_miss(page);
    }
}
