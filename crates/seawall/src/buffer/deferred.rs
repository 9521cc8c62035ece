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
//! 7. The memory of lists is counted and bounded by a share of the pool (`share.rs`), which the frames do not get. The
//!    fuller that share, the shorter a list may become: pages with longer ones go home, so that each write carries many
//!    changes, and the pages that are listed can leave at once.

mod away;
mod pool;
mod share;

use crate::counted::Mutex;
use crate::format::{Lsn, PageId};
use away::{Away, List};
use parking_lot::MutexGuard;
use share::Share;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Shards of the frames' lists.
const SHARDS: usize = 64;
/// Memory of a list beside the room for its records, bytes: the entries of the maps, and what the allocator adds (198
/// to 253, measured with records of 60 to 460 bytes).
const LIST_BYTES: usize = 232;

/// Lists of the pages in frames and of those that are away.
#[derive(Debug)]
pub(super) struct Deferred {
    /// Of pages in frames, by frame.
    listed: Vec<Mutex<HashMap<u32, List>>>,
    away: Mutex<Away>,
    /// Frames with a list.
    frames: AtomicUsize,
    /// Pages that are away.
    pages: AtomicUsize,
    /// Bytes of all lists, and the most.
    bytes: AtomicUsize,
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
    pub(super) fn new(page_bytes: usize, least_percent: u32, most_percent: u32) -> Self {
        Self {
            listed: (0..SHARDS).map(|_| Mutex::default()).collect(),
            away: Mutex::default(),
            frames: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(0),
            list_max: page_bytes / 4,
            share: Share::new(least_percent, most_percent),
            forced: AtomicU64::new(0),
            unfit: AtomicBool::new(false),
        }
    }

    pub(super) fn away(&self) -> MutexGuard<'_, Away> {
        self.away.lock()
    }

    /// Memory of a list with room for so many bytes of records.
    fn bytes_of(room: usize) -> usize {
        room + LIST_BYTES
    }

    /// A list is no more.
    fn freed(&self, list: &List) {
        self.bytes.fetch_sub(Self::bytes_of(list.records.capacity()), Ordering::Relaxed);
    }

    /// Whether pages with lists must go home, because the share was made smaller.
    pub(super) fn is_over(&self) -> bool {
        let most = self.bytes_max.load(Ordering::Relaxed);
        self.bytes.load(Ordering::Relaxed) > most + most / 8
    }

    /// Frames with a list, at most so many.
    pub(super) fn some_listed(&self, most: usize) -> Vec<u32> {
        let mut frames = Vec::new();
        for shard in &self.listed {
            frames.extend(shard.lock().keys().take(most - frames.len()));
        }
        frames
    }

    /// Dirty pages that can leave without a write, about.
    pub(super) fn listed_frames(&self) -> u64 {
        if self.is_on() { self.frames.load(Ordering::Relaxed) as u64 } else { 0 }
    }

    fn take_listed(&self, frame: u32) -> Option<List> {
        let list = self.shard(frame).lock().remove(&frame)?;
        self.frames.fetch_sub(1, Ordering::Relaxed);
        Some(list)
    }

    fn shard(&self, frame: u32) -> &Mutex<HashMap<u32, List>> {
        &self.listed[frame as usize % SHARDS]
    }

    /// Whether new changes are listed.
    fn is_on(&self) -> bool {
        self.bytes_max.load(Ordering::Relaxed) > 0
    }

    /// How long a list may become now (7).
    fn longest(&self) -> usize {
        let (most, used) = (self.bytes_max.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let free = most.saturating_sub(used);
        // All of it while an eighth is free.
        if free >= most / 8 { self.list_max } else { self.list_max * free * 8 / most }
    }

    /// Gives up the list of a frame, under a latch of its page.
    pub(super) fn forget(&self, frame: u32) {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            if let Some(list) = self.take_listed(frame) {
                self.freed(&list);
            }
        }
    }

    /// Pages away, bytes of all lists, and the most.
    pub(super) fn sizes(&self) -> [u64; 3] {
        [&self.pages, &self.bytes, &self.bytes_max].map(|size| size.load(Ordering::Relaxed) as u64)
    }

    /// The limits of its share of the pool, percent, from now on.
    pub(super) fn set_share(&self, least: u32, most: u32) {
        if self.share.set_limits(least, most) {
            self.unfit.store(true, Ordering::Release);
        }
    }

    /// Whether the pool must be divided anew.
    pub(super) fn is_unfit(&self) -> bool {
        self.unfit.load(Ordering::Acquire)
    }

    /// The caller divides it by the share as it is after this.
    pub(super) fn fit(&self) {
        self.unfit.store(false, Ordering::Release);
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
            self.unfit.store(true, Ordering::Release);
        }
    }

    pub(super) fn note_miss(&self, page: PageId) {
        self.share.note_miss(page);
    }
}
