//! The guards on frames: the existence of a guard proves that its holder may touch the frame's bytes.
//! docs/invariants.md, "Latches".
//!
//! 1. [`PageRead`]: a page under a shared latch. [`PageWrite`]: a page under an exclusive latch. [`Pin`]: a page that
//!    is kept resident, and nothing else.
//! 2. [`Owned`]: a frame that holds no page and belongs to the holder of this guard. Dropping the guard frees the
//!    frame.
//! 3. A page that was made and not initialised is dropped when its latch is released: no other thread ever sees it.
#![allow(unsafe_code)]

use super::bravo::ReaderSlot;
use super::deferred::Change;
use super::frame::{COLD, Frame, NEVER_LOGGED, Parked, REMADE, UNINITIALISED, Where};
use super::pool::Pool;
use super::stats::count;
use crate::error::Stop;
use crate::format::page::PageKind;
use crate::format::{Lsn, PageId, page};
use seawall_io::IoBuf;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A page under a shared latch.
pub struct PageRead<'p> {
    pool: &'p Pool,
    frame: u32,
    /// Set if the page is read beside the latch (`bravo.rs`).
    slot: Option<ReaderSlot>,
}

/// A page under an exclusive latch. It is changed only through an [`super::Mtr`], or by recovery.
pub struct PageWrite<'p> {
    pool: &'p Pool,
    frame: u32,
}

/// A resident page that cannot be evicted. It is not latched.
pub struct Pin<'p> {
    pool: &'p Pool,
    frame: u32,
    page: PageId,
}

/// A frame that holds no page.
pub(super) struct Owned<'p> {
    pool: &'p Pool,
    frame: u32,
}

thread_local! {
    /// The thread's number: selects its row of reader slots (`bravo.rs`) and its stripe of dirty frames (`dirty.rs`).
    static ROW: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl Pool {
    /// Latches a resident page for reading. May wait for a latch, but not for the disk.
    ///
    /// # Errors
    /// [`Stop::Load`] when it is not resident.
    #[inline]
    pub fn shared(&self, page: PageId) -> Result<PageRead<'_>, Stop> {
        loop {
            let Where::In(frame) = self.map.get(page) else { return Err(Stop::Load(page)) };
            let known = self.frames.get(frame);
            let slot = if known.is_biased() { self.readers.enter(ROW.with(|row| *row), frame, known) } else { None };
            let held = if slot.is_some() { known.holds(page.0) } else { known.latch_shared(page.0) };
            if !held {
                // The frame has changed hands since the entry was read.
                if let Some(slot) = slot {
                    self.readers.leave(slot);
                }
                continue;
            }
            known.touch();
            let read = PageRead { pool: self, frame, slot };
            if read.slot.is_none() && read[page::KIND] == PageKind::Branch as u8 {
                known.lean();
            }
            return Ok(read);
        }
    }

    /// Latches a page for reading if it is in memory. Does not count as a use. May wait for a latch, but not for the
    /// disk.
    pub fn peek(&self, page: PageId) -> Option<PageRead<'_>> {
        super::lend::may_latch().ok()?;
        self.shared_untouched(page)
    }

    /// Like [`Pool::shared`], but does not count as a use. Returns `None` when the page is not resident.
    pub(super) fn shared_untouched(&self, page: PageId) -> Option<PageRead<'_>> {
        loop {
            let Where::In(frame) = self.map.get(page) else { return None };
            if self.frames.get(frame).latch_shared(page.0) {
                return Some(PageRead { pool: self, frame, slot: None });
            }
        }
    }

    /// Like [`Pool::shared`], but does not wait. Returns `None` when the page is latched exclusively.
    ///
    /// # Errors
    /// [`Stop::Load`] when it is not resident.
    #[inline]
    pub fn try_shared(&self, page: PageId) -> Result<Option<PageRead<'_>>, Stop> {
        loop {
            let Where::In(frame) = self.map.get(page) else { return Err(Stop::Load(page)) };
            let known = self.frames.get(frame);
            if !known.latch.try_lock_shared() {
                return Ok(None);
            }
            let read = PageRead { pool: self, frame, slot: None };
            if known.holds(page.0) {
                known.touch();
                return Ok(Some(read));
            }
        }
    }

    /// Latches a resident page for changes. May wait for a latch, but not for the disk.
    ///
    /// # Errors
    /// [`Stop::Load`] when it is not resident.
    #[inline]
    pub fn exclusive(&self, page: PageId) -> Result<PageWrite<'_>, Stop> {
        loop {
            let Where::In(frame) = self.map.get(page) else { return Err(Stop::Load(page)) };
            let known = self.frames.get(frame);
            if known.latch_exclusive(page.0) {
                self.readers.wait_for_readers(frame, known);
                known.touch();
                return Ok(PageWrite { pool: self, frame });
            }
        }
    }

    /// Like [`Pool::exclusive`], but does not wait. Returns `None` when the page is latched.
    ///
    /// # Errors
    /// [`Stop::Load`] when it is not resident.
    #[inline]
    pub fn try_exclusive(&self, page: PageId) -> Result<Option<PageWrite<'_>>, Stop> {
        loop {
            let Where::In(frame) = self.map.get(page) else { return Err(Stop::Load(page)) };
            let known = self.frames.get(frame);
            if !known.latch.try_lock_exclusive() {
                return Ok(None);
            }
            let holds = known.holds(page.0);
            if holds && self.readers.has_no_readers(frame, known) {
                known.touch();
                return Ok(Some(PageWrite { pool: self, frame }));
            }
            // SAFETY: taken above, and no guard was made.
            unsafe { known.latch.unlock_exclusive() };
            if holds {
                return Ok(None);
            }
        }
    }

    /// Latches the page of a frame shared, for the cleaner. Returns `None` if the frame holds no page, or if `wait` is
    /// false and it is latched exclusively.
    pub(super) fn shared_frame(&self, frame: u32, wait: bool) -> Option<PageRead<'_>> {
        let known = self.frames.get(frame);
        if wait {
            known.latch.lock_shared();
        } else if !known.latch.try_lock_shared() {
            return None;
        }
        if known.page().is_none() {
            // SAFETY: latched above.
            unsafe { known.latch.unlock_shared() };
            return None;
        }
        Some(PageRead { pool: self, frame, slot: None })
    }

    /// Evicts a clean unused page. The caller then owns its frame.
    pub(super) fn claim(&self, frame: u32) -> Option<Owned<'_>> {
        let known = self.frames.get(frame);
        let page = known.claim(self.frames.dirt(frame), || self.readers.has_no_readers(frame, known))?;
        self.count_wasted(known);
        // SAFETY: `claim` has just latched it for this thread.
        unsafe { known.vacate(self.map.entry(PageId(page))) };
        Some(Owned { pool: self, frame })
    }

    /// Evicts an unused page that may be dirty. `ready` checks whether it can be evicted. `keep` is called under the
    /// page's exclusive latch, and returns whether it took over the changes that are not in the data file.
    pub(super) fn claim_dirty(
        &self,
        frame: u32,
        ready: impl Fn() -> bool,
        keep: impl FnOnce(PageId) -> bool,
    ) -> Option<Owned<'_>> {
        let known = self.frames.get(frame);
        let page = PageId(known.claim_if(ready, || self.readers.has_no_readers(frame, known))?);
        if !keep(page) {
            // SAFETY: `claim_if` has just latched it for this thread.
            unsafe { known.latch.unlock_exclusive() };
            return None;
        }
        self.count_wasted(known);
        // SAFETY: as above.
        unsafe { known.vacate(self.map.entry(page)) };
        Some(Owned { pool: self, frame })
    }

    fn count_wasted(&self, evicted: &Frame) {
        if evicted.flags.load(Ordering::Relaxed) & COLD != 0 {
            count(&self.counters.prefetch_wasted, 1);
        }
    }

    /// Adds a frame that has just become dirty to the thread's stripe.
    pub(super) fn push_dirty(&self, frame: u32) {
        self.dirtied.push(ROW.with(|row| *row), frame, self.frames.dirt(frame));
    }

    /// Takes a free frame, if there is one.
    pub(super) fn pop_free(&self) -> Option<Owned<'_>> {
        self.frames.pop().map(|frame| Owned { pool: self, frame })
    }

    /// Makes a parked frame of this pool an owned one again.
    pub(super) fn unpark(&self, Parked(frame): Parked) -> Owned<'_> {
        Owned { pool: self, frame }
    }
}

impl<'p> PageRead<'p> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> PageId {
        PageId(self.pool.frames.get(self.frame).page().expect("a latched page stays in its frame"))
    }

    /// Keeps the page resident beyond the latch.
    #[must_use]
    pub fn pin(&self) -> Pin<'p> {
        self.pool.frames.get(self.frame).pin();
        Pin { pool: self.pool, frame: self.frame, page: self.id() }
    }
}

impl Deref for PageRead<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame's bytes are initialised (zeroed or read), and no thread changes them under the
        // shared latch that self holds, or while self reads beside it in a biased frame.
        unsafe { std::slice::from_raw_parts(self.pool.frames.bytes(self.frame).as_ptr(), self.pool.page_bytes()) }
    }
}

impl Drop for PageRead<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.slot {
            Some(slot) => self.pool.readers.leave(slot),
            // SAFETY: self holds the latch, and is gone after this.
            None => unsafe { self.pool.frames.get(self.frame).latch.unlock_shared() },
        }
    }
}

impl<'p> PageWrite<'p> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> PageId {
        PageId(self.pool.frames.get(self.frame).page().expect("a latched page stays in its frame"))
    }

    /// Keeps the page resident beyond the latch.
    #[must_use]
    pub fn pin(&self) -> Pin<'p> {
        self.pool.frames.get(self.frame).pin();
        Pin { pool: self.pool, frame: self.frame, page: self.id() }
    }

    /// Returns the bytes, for recovery to apply records to. [`PageWrite::redone`] marks the change.
    ///
    /// Several records of one mini-transaction, which all end at one LSN, may change a page: recovery reads
    /// [`page::lsn`] once for all of them.
    pub fn redo_bytes(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }

    /// Marks the page as changed by the mini-transaction from `start` to `end` in the log, which recovery has applied.
    pub fn redone(&mut self, start: Lsn, end: Lsn) {
        self.mark_changed(start, end, false, None);
    }

    /// Marks the page as changed by the mini-transaction from `start` to `end` in the log. `remade`: its first record
    /// for the page initialised the whole page. `records`: the records of the mini-transaction, or `None` if recovery
    /// applied them.
    pub(super) fn mark_changed(&mut self, start: Lsn, end: Lsn, remade: bool, records: Option<&[u8]>) {
        let before = page::lsn(self);
        page::set_u64(self.bytes_mut(), page::LSN, end.0);
        let known = self.pool.frames.get(self.frame);
        let flags = known.flags.load(Ordering::Relaxed);
        if flags & UNINITIALISED != 0 {
            known.flags.fetch_and(!(UNINITIALISED | NEVER_LOGGED), Ordering::Relaxed);
            if remade && flags & NEVER_LOGGED != 0 {
                known.flags.fetch_or(REMADE, Ordering::Relaxed);
            }
        }
        let first = self.pool.frames.dirt(self.frame).mark(start.0);
        if first {
            self.pool.push_dirty(self.frame);
        }
        let records = records.filter(|_| !remade);
        self.pool.list_change(self.frame, self.id(), Change { start, end, before, first, records });
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let (bytes, len) = (self.pool.frames.bytes(self.frame), self.pool.page_bytes());
        // SAFETY: the frame's bytes are initialised. self holds the exclusive latch, so no other thread touches them;
        // &mut self excludes other borrows through this guard.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr(), len) }
    }
}

impl Deref for PageWrite<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: as in `bytes_mut`, for reading.
        unsafe { std::slice::from_raw_parts(self.pool.frames.bytes(self.frame).as_ptr(), self.pool.page_bytes()) }
    }
}

impl Drop for PageWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        let known = self.pool.frames.get(self.frame);
        if known.flags.load(Ordering::Relaxed) & UNINITIALISED == 0 {
            // SAFETY: self holds the latch, and is gone after this.
            unsafe { known.latch.unlock_exclusive() };
            return;
        }
        let entry = self.pool.map.entry(self.id());
        // SAFETY: self holds the latch, and is gone after this. A page that was never initialised was never
        // unlatched, so never pinned.
        unsafe { known.vacate(entry) };
        drop(Owned { pool: self.pool, frame: self.frame });
    }
}

impl Pin<'_> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> PageId {
        self.page
    }
}

/// A [`Pin`] without its borrow of the pool. [`Pool::unkeep`] makes it a pin again.
#[derive(Debug)]
#[must_use = "a pin that is not given back keeps its page in memory until the database is closed"]
pub struct KeptPin {
    frame: u32,
    page: PageId,
}

impl Pin<'_> {
    /// Keeps the page in memory beyond the borrow of the pool.
    pub fn keep(self) -> KeptPin {
        let pin = std::mem::ManuallyDrop::new(self);
        KeptPin { frame: pin.frame, page: pin.page }
    }
}

impl Pool {
    /// Makes a kept pin a [`Pin`] again. When that is dropped, the page may be evicted.
    pub fn unkeep(&self, KeptPin { frame, page }: KeptPin) -> Pin<'_> {
        Pin { pool: self, frame, page }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.pool.frames.get(self.frame).unpin();
    }
}

impl<'p> Owned<'p> {
    pub(super) fn frame(&self) -> u32 {
        self.frame
    }

    /// Returns the frame's bytes, which still have the contents of its last page.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let (bytes, len) = (self.pool.frames.bytes(self.frame), self.pool.page_bytes());
        // SAFETY: the bytes are initialised; the frame holds no page, so by the protocol's rule (3) no other thread
        // touches them, and &mut self excludes other borrows through this guard.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr(), len) }
    }

    /// Publishes the page that was read into the frame. The caller has begun the load. The returned pin keeps the page
    /// resident.
    pub(super) fn publish(self, page: PageId, flags: u32) -> Pin<'p> {
        let (pool, frame) = self.into_parts();
        pool.frames.get(frame).publish(pool.map.entry(page), frame, page.0, flags);
        Pin { pool, frame, page }
    }

    /// Makes a page under an exclusive latch. Its header is zeroes, and its first record must set every byte. A page
    /// that is not changed is dropped with the latch. Returns `self` as the error if the page is resident or being
    /// loaded.
    pub(super) fn make(mut self, page: PageId) -> Result<PageWrite<'p>, Self> {
        page::clear_header(self.bytes_mut());
        let known = self.pool.frames.get(self.frame);
        known.wait_for_stale_waiters();
        // Waits only for a thread that is about to find that the frame's last page is gone.
        known.latch.lock_exclusive();
        if known.publish_new(self.pool.map.entry(page), self.frame, page.0) {
            let (pool, frame) = self.into_parts();
            return Ok(PageWrite { pool, frame });
        }
        // SAFETY: latched above.
        unsafe { known.latch.unlock_exclusive() };
        Err(self)
    }

    /// Makes the frame's bytes a buffer for a read.
    ///
    /// # Safety
    /// The frame is [un-parked](Pool::unpark) only after the buffer has been dropped.
    pub(super) unsafe fn lend(self) -> (Parked, IoBuf) {
        let (start, keeper) = (self.pool.frames.bytes(self.frame), self.pool.frames.keeper());
        // SAFETY: the bytes are initialised, and `keeper` keeps them; the frame holds no page, so by the protocol's
        // rule (3) only its owner may touch them, and by the caller's promise the owner does not do so while the buffer
        // exists.
        let buf = unsafe { IoBuf::lent(start, self.pool.page_bytes(), keeper) };
        (self.park(), buf)
    }

    /// Removes the borrow of the pool. [`Pool::unpark`] makes the frame an owned one again.
    pub(super) fn park(self) -> Parked {
        Parked(self.into_parts().1)
    }

    fn into_parts(self) -> (&'p Pool, u32) {
        let this = std::mem::ManuallyDrop::new(self);
        (this.pool, this.frame)
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.pool.frames.release(self.frame);
    }
}

impl fmt::Debug for PageRead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageRead({})", self.id())
    }
}

impl fmt::Debug for PageWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageWrite({})", self.id())
    }
}

impl fmt::Debug for Pin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({})", self.page)
    }
}

impl fmt::Debug for Owned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({})", self.frame)
    }
}
