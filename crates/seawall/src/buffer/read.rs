//! Bringing pages into memory.
//!
//! 1. The thread that turns a page's entry from nowhere to "loading" reads the page; the others wait for it. If the
//!    read fails, the entry is nowhere again, only the reader gets the error, and each waiting thread tries to read the
//!    page itself. A panic of the reader has the same effect ([`Loading`]).
//! 2. No latch is held during a read. The frame that is read into holds no page and belongs to the reader.
//! 3. A page is checked after it is read: its checksum, its page number, and that its log exists (a page newer than the
//!    log's head means that flushed log was lost).
//! 4. A thread that finds no frame, or that loads more pages than it can keep pinned, drops the pins it has gathered
//!    and takes the *allocation token*. Until it releases the token, only this thread gets frames. Threads that wait
//!    for the token hold no gathered pins, so its holder always gets the frames that it needs, however small the pool
//!    is.

use super::frame::{REFERENCED, Where};
use super::guard::{Owned, PageWrite, Pin};
use super::lend::may_latch;
use super::loads::{Loads, TokenGuard};
use super::pool::{Patience, Pool};
use super::stats::count;
use crate::blocking::{Blocked, Blocking};
use crate::error::{Corruption, Error, Result, Stop};
use crate::format::{PageId, page};
use crate::mutants::Mutant;
use seawall_io::{AlignedBuf, Cause};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU32, Ordering};

/// Pages that a thread may keep pinned without the token before it drops the oldest pin; also bounded by the pool's
/// size.
const WARM_PAGES: usize = 64;
/// Pages that a thread may load without the token, as a multiple of those that it may keep pinned.
const LOADED_MAX: usize = 4;

/// Counts a demand read for as long as it lasts.
struct Demanded<'l>(&'l AtomicU32);

impl<'l> Demanded<'l> {
    fn begin(loads: &'l Loads) -> Self {
        loads.demanded.fetch_add(1, Ordering::Relaxed);
        Self(&loads.demanded)
    }
}

impl Drop for Demanded<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A page that this thread loads. If this is dropped before the page is published, the page is nowhere again. Threads
/// that wait for the page are woken in both cases.
pub(super) struct Loading<'p> {
    pool: &'p Pool,
    page: PageId,
    published: bool,
}

impl<'p> Loading<'p> {
    /// Begins a load. Returns `None` if the page is resident or another thread loads it.
    pub(super) fn begin(pool: &'p Pool, page: PageId) -> Option<Self> {
        // Not `then_some`: it would make a value and drop it.
        pool.map.entry(page).begin_load().then(|| Self { pool, page, published: false })
    }

    /// Continues the load of a page whose prefetch this thread finishes.
    pub(super) fn of_prefetch(pool: &'p Pool, page: PageId) -> Self {
        Self { pool, page, published: false }
    }

    pub(super) fn publish(mut self, owned: Owned<'p>, flags: u32) -> Pin<'p> {
        self.published = true;
        owned.publish(self.page, flags)
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.published {
            self.pool.map.entry(self.page).abandon_load();
        }
        self.pool.loads.wake(self.page);
    }
}

/// Pages pinned for latched code that is run again until it finds all pages that it needs: [`Pool::retry`] step by
/// step.
#[derive(Debug)]
pub struct Warm<'p> {
    pool: &'p Pool,
    pins: SmallVec<[Pin<'p>; 8]>,
    token: Option<TokenGuard<'p>>,
    /// The number of requests for frames.
    frames_asked: u32,
    /// The number of pages loaded.
    loaded: usize,
}

impl<'p> Warm<'p> {
    /// Provides what latched code stopped for. No latch may be held.
    ///
    /// # Errors
    /// [`Stop::Fail`]: the error in it. Otherwise as [`Pool::load`].
    pub fn satisfy(&mut self, stop: Stop) -> Result<()> {
        match stop {
            Stop::Load(page) => self.load(page),
            Stop::Frames => self.free_frames(),
            Stop::Loading(page) => {
                self.pool.wait_for(page);
                Ok(())
            }
            Stop::Fail(error) => Err(error),
        }
    }

    fn load(&mut self, page: PageId) -> Result<()> {
        let pool = self.pool;
        let most = WARM_PAGES.min(pool.frames.limit() as usize / 4);
        // A thread that loads more than `LOADED_MAX` times as many pages as it may keep needs more pages at once than
        // it may keep, and would read again what it dropped. With the token it keeps all of them.
        self.loaded += 1;
        if self.token.is_none() && pool.token.may_take() && self.loaded <= LOADED_MAX * most {
            if self.pins.len() >= most {
                self.pins.remove(0);
            }
            if let Some(pin) = pool.try_load(page)? {
                self.pins.push(pin);
                return Ok(());
            }
        }
        self.take_turn();
        let pin = pool.load_patiently(page)?;
        self.pins.push(pin);
        Ok(())
    }

    fn free_frames(&mut self) -> Result<()> {
        let pool = self.pool;
        // More frames each time: latched code may need several at once.
        self.frames_asked += 1;
        let wanted = (2 * self.frames_asked).min(pool.frames.limit() / 2) as usize;
        // The requested page may be in flight.
        pool.finish_prefetches(true);
        let mut owned: Vec<Owned<'_>> = Vec::with_capacity(wanted);
        if self.token.is_none() && pool.token.may_take() && self.frames_asked <= 4 {
            while owned.len() < wanted {
                let Some(one) = pool.obtain_frame()? else { break };
                owned.push(one);
            }
            if !owned.is_empty() {
                // When dropped, the frames go to the free list, where latched code finds them.
                return Ok(());
            }
        }
        self.take_turn();
        let patience = Patience::new(pool);
        while owned.len() < wanted {
            match pool.obtain_frame()? {
                Some(one) => owned.push(one),
                None if !owned.is_empty() => break,
                None if patience.nap() => {}
                None => return Err(pool.too_small()),
            }
        }
        Ok(())
    }

    fn take_turn(&mut self) {
        if self.token.is_none() {
            count(&self.pool.counters.frame_waits, 1);
            // Releases the pins first: the holder of the token may need their frames.
            self.pins.clear();
            self.token = self.pool.token.take();
        }
    }
}

impl Pool {
    /// Runs latched code until it no longer stops for a page or a frame. `f` starts over each time, and holds no latch
    /// when it returns `Stop`. Pages loaded for it stay pinned until it succeeds.
    ///
    /// # Errors
    /// [`Stop::Fail`]: the error of `f`. Otherwise as [`Pool::load`]. [`Error::Usage`] within [`lend`].
    pub fn retry<T>(&self, mut f: impl FnMut() -> Result<T, Stop>) -> Result<T> {
        may_latch()?;
        // The usual case: everything is in memory.
        let mut stop = match f() {
            Ok(done) => return Ok(done),
            Err(stop) => stop,
        };
        let mut warm = self.warm();
        let mut gone = None;
        loop {
            let page = if let Stop::Load(page) = stop { Some(page) } else { None };
            match warm.satisfy(stop) {
                // The page was moved after `f` named it, and its old place was cut off with the end of the file.
                Err(Error::Corrupt(_) | Error::Io(_)) if page != gone && page.is_some_and(|p| self.is_vacant(p)) => {
                    gone = page;
                }
                outcome => outcome?,
            }
            stop = match f() {
                Ok(done) => return Ok(done),
                Err(stop) => stop,
            };
        }
    }

    /// Returns whether the data file has no page at this place: it ends before it, or has grown since and holds zeroes
    /// there.
    pub fn is_vacant(&self, page: PageId) -> bool {
        let mut bytes = AlignedBuf::zeroed(self.page_bytes());
        let mut read = || self.data.read_at(self.offset_of(page), &mut bytes, Cause::Other);
        page.0 >= self.file_pages() || (read().is_ok() && bytes.iter().all(|&byte| byte == 0))
    }

    /// Runs latched code once, for a caller that can do without the result if `f` stops.
    ///
    /// # Errors
    /// The errors of `f`; [`Error::Usage`] within [`lend`].
    pub fn attempt<T>(&self, f: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
        may_latch().map_err(Stop::Fail)?;
        f()
    }

    /// Begins a [`Pool::retry`] whose steps the caller does itself.
    pub fn warm(&self) -> Warm<'_> {
        Warm { pool: self, pins: SmallVec::new(), token: None, frames_asked: 0, loaded: 0 }
    }

    /// Makes a page resident, and reads it if needed. No latch may be held.
    ///
    /// # Errors
    /// An error of the disk; [`Corruption`] if the bytes read are not the page; [`Error::InvalidOption`] if all frames
    /// stay pinned for longer than the pool's patience; a failed write of another page that had to be evicted, which
    /// poisons.
    pub fn load(&self, page: PageId) -> Result<Pin<'_>> {
        if let Some(pin) = self.try_load(page)? {
            return Ok(pin);
        }
        count(&self.counters.frame_waits, 1);
        let _token = self.token.take();
        self.load_patiently(page)
    }

    /// Loads a page as soon as a frame becomes free. The caller has the token.
    fn load_patiently(&self, page: PageId) -> Result<Pin<'_>> {
        let patience = Patience::new(self);
        loop {
            if let Some(pin) = self.try_load(page)? {
                return Ok(pin);
            }
            if !patience.nap() {
                return Err(self.too_small());
            }
        }
    }

    fn too_small(&self) -> Error {
        Error::InvalidOption {
            name: "pool_size".into(),
            value: self.bytes().to_string(),
            why: format!("all {} pages of the pool are in use at once: raise pool_size", self.frames.limit()),
        }
    }

    /// Loads a page; `None` if there is no frame for it.
    fn try_load(&self, page: PageId) -> Result<Option<Pin<'_>>> {
        loop {
            match self.map.get(page) {
                Where::In(_) => {
                    // Not counted as a use: the caller is about to use the page.
                    if let Some(latched) = self.shared_untouched(page) {
                        return Ok(Some(latched.pin()));
                    }
                }
                Where::Loading => self.wait_for(page),
                Where::Nowhere => {
                    if page.0 >= self.file_pages() {
                        let pages = self.file_pages();
                        return Err(self.file_damage(format!(
                            "page {page} is asked for, but the file has only {pages} pages: was it truncated or copied \
                             in part? Restore the database from a backup; `seawall dump --skip-damaged` saves \
                             everything that can still be read"
                        )));
                    }
                    // Gets the frame first: a page that is being loaded must not wait for a frame.
                    let Some(owned) = self.obtain_frame()? else { return Ok(None) };
                    if let Some(loaded) = self.read_into(owned, page, Cause::DemandRead) {
                        return loaded.map(Some);
                    }
                }
            }
        }
    }

    /// Reads a page into a frame; `None` if the page is resident or another thread loads it.
    fn read_into<'p>(&'p self, mut owned: Owned<'p>, page: PageId, cause: Cause) -> Option<Result<Pin<'p>>> {
        let loading = Loading::begin(self, page)?;
        let demanded = (Demanded::begin(&self.loads), Blocked::on(Blocking::Page));
        let read = self.data.read_at(self.offset_of(page), owned.bytes_mut(), cause);
        drop(demanded);
        let read = match read {
            Ok(()) => self.check_read(owned.bytes_mut(), page).and_then(|()| self.bring_back(&mut owned, page)),
            Err(e) => Err(e.into()),
        };
        count(&self.counters.misses, 1);
        self.deferred.note_miss(page);
        Some(read.map(|()| loading.publish(owned, REFERENCED)))
    }

    /// Checks that these bytes are the page.
    pub(super) fn check_read(&self, bytes: &[u8], page: PageId) -> Result<()> {
        if !self.health().has(Mutant::PageUnchecked) {
            page::verify(bytes, page, self.data.path())?;
        }
        let (page_lsn, log_end) = (page::lsn(bytes), self.log().head());
        if page_lsn > log_end {
            return Err(Corruption::LogBehindPage { page, page_lsn, log_end }.into());
        }
        Ok(())
    }

    /// Waits until a page is no longer being loaded. If a prefetch loads it, finishes that prefetch.
    pub(super) fn wait_for(&self, page: PageId) {
        let mut blocked = None;
        loop {
            let (mutex, changed) = self.loads.shard(page);
            let mut waiting = mutex.lock();
            if self.map.get(page) != Where::Loading {
                return;
            }
            if blocked.is_none() {
                drop(waiting);
                blocked = Some(Blocked::on(Blocking::Page));
                continue;
            }
            // Under the shard's mutex, so that a prefetch that is added to the list after this check wakes this thread.
            if let Some(prefetch) = self.take_prefetch(page) {
                drop(waiting);
                self.finish(prefetch);
                continue;
            }
            changed.wait(&mut waiting);
        }
    }

    /// Latches a page for recovery to change. If the record `initialises` the page, the page is not read: unless it is
    /// resident, its header is zeroes, with LSN 0, and it is dropped with the guard unless it was changed and marked
    /// ([`PageWrite::redone`]). No latch may be held.
    ///
    /// # Errors
    /// As [`Pool::load`]. Redo records from before the page got its last owner can lead to a page that was never
    /// written. Recovery decides whether that is damage.
    pub fn redo_page(&self, page: PageId, initialises: bool) -> Result<PageWrite<'_>> {
        self.retry(|| match self.exclusive(page) {
            Err(Stop::Load(_)) if initialises => self.fresh_page(page),
            latched => latched,
        })
    }

    /// Returns a page under an exclusive latch: with a header of zeroes, or unchanged if it is resident.
    pub(super) fn fresh_page(&self, page: PageId) -> Result<PageWrite<'_>, Stop> {
        loop {
            match self.map.get(page) {
                Where::In(_) => match self.exclusive(page) {
                    Err(Stop::Load(_)) => {}
                    latched => return latched,
                },
                // Another thread loads the page's previous contents. That ends soon, but latched code must not wait for
                // it.
                Where::Loading => return Err(Stop::Loading(page)),
                Where::Nowhere => {
                    let owned = self.frame_at_once().ok_or(Stop::Frames)?;
                    if let Ok(made) = owned.make(page) {
                        return Ok(made);
                    }
                }
            }
        }
    }
}
