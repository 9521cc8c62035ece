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
mod share;

use super::frame::WHOLE;
use super::guard::Owned;
use super::pool::Pool;
use super::stats::count;
use crate::counted::Mutex;
use crate::error::{Corruption, Result};
use crate::format::{Lsn, PageId, page};
use crate::log::Records;
use crate::mutants::Mutant;
use away::{Away, List, RECORD_BYTES};
use parking_lot::MutexGuard;
use share::{Ends, Share, Sizes};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Shards of the frames' lists.
const SHARDS: usize = 64;
/// Memory of a list beside its records, bytes, about: the entries of the maps.
const LIST_BYTES: usize = 160;

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

    /// Memory of a list with room for so many bytes of records, with what the allocator adds: an eighth, measured.
    fn bytes_of(room: usize) -> usize {
        (room + LIST_BYTES) / 8 * 9
    }

    /// A list is no more.
    fn freed(&self, list: &List) {
        self.bytes.fetch_sub(Self::bytes_of(list.records.capacity()), Ordering::Relaxed);
    }

    /// Whether pages that are away must come home, because the share was made smaller.
    pub(super) fn is_over(&self) -> bool {
        let most = self.bytes_max.load(Ordering::Relaxed);
        self.pages.load(Ordering::Relaxed) > 0 && self.bytes.load(Ordering::Relaxed) > most + most / 8
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
        // All of it while a quarter is free.
        if free >= most / 4 { self.list_max } else { self.list_max * free * 4 / most }
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

impl Pool {
    /// Changes the share of deferred changes to what pays (`share.rs`).
    pub(super) fn adapt_deferred(&self) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ends = Ends {
            evicted: read(&self.counters.evictions),
            read_again: read(&self.counters.deferred_read_again),
            merged: read(&self.counters.pages_merged).saturating_sub(self.deferred.forced.load(Ordering::Relaxed)),
        };
        let [_, list_bytes, list_bytes_max] = self.deferred.sizes();
        let sizes = Sizes {
            frames: self.frames.limit().into(),
            page_bytes: self.page_bytes() as u64,
            list_bytes,
            list_bytes_max,
            writes: 1 + u64::from(self.protects()),
            may_grow: self.frames.span() == self.frames.limit(),
        };
        if self.deferred.share.adapt(ends, sizes) {
            self.deferred.unfit.store(true, Ordering::Release);
        }
    }

    /// Notes a change of a page, under its exclusive latch and after it was marked.
    #[inline]
    pub(super) fn list_change(&self, frame: u32, page: PageId, change: Change<'_>) {
        let known = self.frames.get(frame);
        if !change.first && known.flags.load(Ordering::Relaxed) & WHOLE != 0 {
            return;
        }
        let records = change.records.filter(|_| self.deferred.is_on());
        if !records.is_some_and(|records| self.list(frame, page, change, records)) {
            self.deferred.forget(frame);
            known.flags.fetch_or(WHOLE, Ordering::Relaxed);
        }
        if change.records.is_none() && self.deferred.pages.load(Ordering::Acquire) > 0 {
            // A page made anew: its older records no longer matter, but the log from the first of them on does until
            // the page is home. The change that made it anew may not be durable when the others are.
            let mut away = self.deferred.away.lock();
            if let Some(list) = away.forget(page) {
                self.frames.dirt(frame).rec_lsn.store(list.since, Ordering::Release);
                self.push_dirty(frame);
                self.cleaned.fetch_add(1, Ordering::Release);
                self.deferred.pages.fetch_sub(1, Ordering::Release);
                self.deferred.freed(&list);
            }
        }
    }

    /// Appends to the frame's list; `false` if it is now incomplete: it would be too long.
    fn list(&self, frame: u32, page: PageId, change: Change<'_>, records: &[u8]) -> bool {
        let deferred = &self.deferred;
        if deferred.bytes.load(Ordering::Relaxed) >= deferred.bytes_max.load(Ordering::Relaxed) {
            return false;
        }
        let mut shard = deferred.shard(frame).lock();
        let Change { start, end, before, first, .. } = change;
        if first {
            let none = shard.insert(frame, List { since: start.0, base: before, end, records: Vec::new() });
            debug_assert!(none.is_none(), "a clean page has no list");
            deferred.bytes.fetch_add(Deferred::bytes_of(0), Ordering::Relaxed);
            deferred.frames.fetch_add(1, Ordering::Relaxed);
        }
        let Some(list) = shard.get_mut(&frame) else { return false };
        let (before, most) = (Deferred::bytes_of(list.records.capacity()), deferred.longest());
        let mut complete = true;
        for record in Records::new(records) {
            match record {
                Ok(record) if record.page != page => {}
                Ok(record) if list.records.len() + record.body.len() + RECORD_BYTES <= most => {
                    list.push(record.tag, record.body);
                }
                _ => {
                    complete = false;
                    break;
                }
            }
        }
        list.end = end;
        let grown = Deferred::bytes_of(list.records.capacity()) - before;
        if grown > 0 {
            deferred.bytes.fetch_add(grown, Ordering::Relaxed);
        }
        complete
    }

    /// Whether the page of this frame, which is dirty, could leave now with its list.
    pub(super) fn may_leave(&self, frame: u32) -> bool {
        self.deferred.is_on()
            && self.frames.dirt(frame).rec_lsn.load(Ordering::Acquire) != 0
            && self.frames.get(frame).flags.load(Ordering::Relaxed) & WHOLE == 0
            && self.deferred.shard(frame).lock().contains_key(&frame)
    }

    /// Evicts an unused dirty page, whose records stay; the caller owns its frame. No I/O.
    pub(super) fn send_away(&self, frame: u32) -> Option<Owned<'_>> {
        if !self.may_leave(frame) {
            return None;
        }
        let (known, dirt) = (self.frames.get(frame), self.frames.dirt(frame));
        let ready = || {
            dirt.rec_lsn.load(Ordering::Acquire) != 0
                && dirt.writing.load(Ordering::Acquire) == 0
                && known.flags.load(Ordering::Relaxed) & WHOLE == 0
        };
        let owned = self.claim_dirty(frame, ready, |page| {
            let Some(list) = self.deferred.take_listed(frame) else { return false };
            debug_assert_eq!(list.since, dirt.rec_lsn.load(Ordering::Acquire), "the list is complete (1)");
            let mut away = self.deferred.away.lock();
            away.send(page, list);
            self.deferred.pages.fetch_add(1, Ordering::Release);
            dirt.rec_lsn.store(0, Ordering::Release);
            true
        })?;
        self.cleaned.fetch_add(1, Ordering::Release);
        count(&self.counters.pages_deferred, 1);
        Some(owned)
    }

    /// Takes the records of a page that this thread loads (2); `None` if it is not away.
    fn take_list(&self, page: PageId) -> Option<Taken<'_>> {
        if self.deferred.pages.load(Ordering::Acquire) == 0 {
            return None;
        }
        let list = self.deferred.away.lock().take(page)?;
        Some(Taken { pool: self, page, list, kept: false })
    }

    /// Applies a page's list to what was read of it.
    fn apply(&self, page: PageId, list: &List, bytes: &mut [u8]) -> Result<()> {
        let found = page::lsn(bytes);
        if found == list.end && self.health().check().is_err() {
            // It is home, though a later step of its merge has failed.
            return Ok(());
        }
        if found != list.base {
            let why = format!(
                "it was last written at LSN {}, and what was read now has LSN {found}: the device has lost that write, or \
                 another process writes the file",
                list.base
            );
            return Err(Corruption::Page { page, why }.into());
        }
        let has = |mutant| self.health().has(mutant);
        let mut records: Vec<(u8, &[u8])> = list.iter().collect();
        if has(Mutant::DeferredCutOff) {
            records.truncate(1);
        }
        if has(Mutant::DeferredTwice) {
            records.extend_from_within(..);
        }
        if has(Mutant::DeferredBackward) {
            records.reverse();
        }
        for (tag, body) in records {
            (self.config.redo)(tag, body, bytes).map_err(|why| Corruption::Page {
                page,
                why: format!("a deferred change {tag:#04x} does not fit it: {why}"),
            })?;
        }
        page::set_u64(bytes, page::LSN, list.end.0);
        Ok(())
    }

    /// Makes a page current that this thread has read into a frame of its own and checked.
    pub(super) fn bring_back(&self, owned: &mut Owned<'_>, page: PageId) -> Result<()> {
        let Some(taken) = self.take_list(page) else { return Ok(()) };
        self.apply(page, &taken.list, owned.bytes_mut())?;
        let list = taken.keep();
        let (frame, since) = (owned.frame(), list.since);
        let none = self.deferred.shard(frame).lock().insert(frame, list);
        debug_assert!(none.is_none(), "a frame without a page has no list");
        self.deferred.frames.fetch_add(1, Ordering::Relaxed);
        let mut away = self.deferred.away.lock();
        if self.frames.dirt(frame).mark(since) {
            self.push_dirty(frame);
        }
        away.arrived(page, since);
        self.deferred.pages.fetch_sub(1, Ordering::Release);
        drop(away);
        count(&self.counters.deferred_read_again, 1);
        Ok(())
    }

    /// Makes the copy of a page that is away current, for a write home; whether it is away. Its list stays until
    /// [`Pool::merged`].
    pub(super) fn merge_into(&self, page: PageId, bytes: &mut [u8]) -> Result<bool> {
        let Some(taken) = self.take_list(page) else { return Ok(false) };
        self.apply(page, &taken.list, bytes).map(|()| true)
    }

    /// The page, which this thread merged, is home.
    pub(super) fn merged(&self, page: PageId) {
        let Some(list) = self.deferred.away.lock().forget(page) else { return };
        self.deferred.pages.fetch_sub(1, Ordering::Release);
        self.deferred.freed(&list);
        count(&self.counters.pages_merged, 1);
        count(&self.counters.merged_records, list.iter().count());
    }
}

/// The list of a page that this thread loads. Dropped before it is kept, the page is away as before.
struct Taken<'p> {
    pool: &'p Pool,
    page: PageId,
    list: List,
    kept: bool,
}

impl Taken<'_> {
    fn keep(mut self) -> List {
        self.kept = true;
        std::mem::take(&mut self.list)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.pool.deferred.away.lock().put_back(self.page, std::mem::take(&mut self.list));
        }
    }
}
