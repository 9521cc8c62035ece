//! Deferred changes: a dirty page is evicted, and the redo records that its copy on the disk lacks stay in memory. Such
//! a page is *away*.
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
//!    them. The list is changed under the page's exclusive latch. The thread that copies the page for a write home
//!    frees the list under the shared latch: from then on that write is responsible for the changes. A thread that
//!    works on a list has taken it out of its frame ([`Dirt::list`]) or out of [`Away`].
//! 2. The entry of a page that is AWAY is nowhere or loading. Only the thread that made it loading touches the page's
//!    records, so they are applied once. If that thread fails or panics, the next loader finds them again
//!    (`pool::Taken`).
//! 3. A change that is not in the data file is at every moment in a frame (`rec_lsn`, `writing`) or in `Away::by_age`.
//!    It moves from one to the other under the mutex of [`Away`]. Checkpoints and cleaners search both under the same
//!    mutex, so they miss no such change. This mutex is taken before that of the ordered dirty pages (`dirty.rs`).
//!    Under it no thread waits for a latch or does I/O.
//! 4. Recovery needs no lists: for a page that is AWAY, as for any dirty page, it applies the log from the checkpoint
//!    on to the copy on the disk. The lists are not in any file.
//! 5. The page that is read must have exactly the LSN from which the list begins. An older page means a lost write, a
//!    newer one a defect of the engine: records are applied to neither.
//! 6. A page that a record initialises is WHOLE until it is written: there may be nothing on the disk to apply records
//!    to. Pages that recovery changes are WHOLE, too.
//! 7. The memory of lists (`lists.rs`) is bounded by a share of the pool (`share.rs`). Frames get only the memory that
//!    lists have given back. Threads that add records at the same moment can exceed the bound, and when the pool is
//!    made smaller, lists give back memory later than frames do. The fuller the share, the shorter a list may be: pages
//!    with longer lists are written home, so that each write carries many changes, and pages with lists can be evicted
//!    at once.

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

/// The lists of pages in frames and of pages away.
#[derive(Debug)]
pub(super) struct Deferred {
    lists: Lists,
    away: Mutex<Away<List>>,
    /// Number of frames with a list.
    frames: AtomicUsize,
    /// Number of pages away.
    pages: AtomicUsize,
    /// The most bytes of all lists.
    bytes_max: AtomicUsize,
    /// The most bytes of one list.
    list_max: usize,
    share: Share,
    /// Pages merged because the share was made smaller.
    pub(super) forced: AtomicU64,
    /// The share has changed since the pool was last divided between frames and lists.
    unfit: AtomicBool,
}

/// A change of a page by a mini-transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    /// The page's LSN before the change.
    pub(super) before: Lsn,
    /// The page was not dirty before, except for a write in flight.
    pub(super) first: bool,
    /// The records of the mini-transaction; `None` if the change cannot be deferred.
    pub(super) records: Option<&'a [u8]>,
}

impl Deferred {
    /// Reserves memory for the lists of a pool of at most `pool_bytes_max`.
    pub(super) fn new(pool_bytes_max: u64, page_bytes: usize, least_percent: u32, most_percent: u32) -> Result<Self> {
        Ok(Self {
            // The largest share that the options allow.
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

    /// Returns whether pages with lists must be written home because the share was made smaller: lists use more than
    /// the share plus an eighth, or they hold more than that in blocks that are less than half used, and frames wait
    /// for that memory.
    pub(super) fn is_over(&self) -> bool {
        let (used, held) = (self.lists.bytes(), self.lists.held());
        let most = self.bytes_max.load(Ordering::Relaxed);
        let most = most + most / 8;
        used > most || (held > most && held / 2 > used)
    }

    /// Returns the number of dirty pages that can be evicted without a write, approximately.
    pub(super) fn listed_frames(&self) -> u64 {
        if self.is_on() { self.frames.load(Ordering::Relaxed) as u64 } else { 0 }
    }

    /// Takes the list out of a frame. The caller holds a latch of the page, or owns the frame.
    fn take_listed(&self, dirt: &Dirt) -> Option<List> {
        // Reads first: most frames have no list.
        let listed = dirt.list.load(Ordering::Acquire) != 0;
        let list = List::of(if listed { dirt.list.swap(0, Ordering::AcqRel) } else { 0 })?;
        self.frames.fetch_sub(1, Ordering::Relaxed);
        Some(list)
    }

    /// Puts a list into a frame that has none. The caller holds the page's exclusive latch, or owns the frame.
    fn put_listed(&self, dirt: &Dirt, list: List) {
        let before = dirt.list.swap(list.number(), Ordering::AcqRel);
        debug_assert_eq!(before, 0, "a frame has one list");
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether new changes are listed.
    fn is_on(&self) -> bool {
        self.bytes_max.load(Ordering::Relaxed) > 0
    }

    /// Returns how long a list may be now, bytes (7).
    fn longest(&self) -> usize {
        let (most, used) = (self.bytes_max.load(Ordering::Relaxed), self.lists.bytes());
        let free = most.saturating_sub(used);
        // The full length while an eighth of the share is free.
        if free >= most / 8 { self.list_max } else { self.list_max * free * 8 / most }
    }

    /// Frees the list of a frame, if it has one. The caller holds a latch of the page.
    pub(super) fn forget(&self, dirt: &Dirt) {
        if let Some(list) = self.take_listed(dirt) {
            self.lists.free(list);
        }
    }

    /// Returns the number of pages away, the bytes of all lists, and their limit.
    pub(super) fn sizes(&self) -> [u64; 3] {
        let (pages, most) = (self.pages.load(Ordering::Relaxed), self.bytes_max.load(Ordering::Relaxed));
        [pages, self.lists.bytes(), most].map(|size| size as u64)
    }

    /// Sets the limits of the share of the pool, percent.
    pub(super) fn set_share(&self, least: u32, most: u32) {
        if self.share.set_limits(least, most) {
            self.set_unfit();
        }
    }

    /// Returns whether the pool must be divided anew: the share has changed, or lists hold more than the share and have
    /// empty blocks.
    pub(super) fn is_unfit(&self) -> bool {
        let most = self.bytes_max.load(Ordering::Relaxed);
        self.unfit.load(Ordering::Acquire) || (self.lists.held() > most && self.lists.has_empty_blocks())
    }

    /// Notes that the pool must be divided anew.
    pub(super) fn set_unfit(&self) {
        self.unfit.store(true, Ordering::Release);
    }

    /// Clears that note. The caller then divides the pool by the current share.
    pub(super) fn fit(&self) {
        self.unfit.store(false, Ordering::Release);
    }

    /// Returns the memory that lists hold, bytes. If it is more than `wanted`, first gives back what they do not use.
    pub(super) fn held_after_trim(&self, wanted: u64) -> u64 {
        if self.lists.held() as u64 > wanted {
            self.lists.trim();
            self.away.lock().trim();
        }
        self.lists.held() as u64
    }

    /// Returns how many bytes of a pool of `pool_bytes` are kept for lists: none before the pool has had to evict.
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
