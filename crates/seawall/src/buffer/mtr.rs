//! Mini-transactions.
//!
//! ```text
//!   begin ──room in the log reserved, nothing latched──> open ──latch, adopt, fresh──> open
//!   open ──run──> changed ──run──> changed ──commit──> done
//!   open ──commit or drop──> done (nothing happened)        changed ──drop──> poisoned
//! ```
//!
//! 1. [`Mtr::begin`] reserves log space before the first latch (trap 3). The records fit into that space.
//! 2. [`Mtr::commit`], with every page still latched: reserves the position; sets the LSN of every changed page and
//!    marks it dirty from the position's start; publishes; unlatches. It marks before it publishes, so that a
//!    checkpoint finds either the dirty page or the unpublished position (trap 2).
//! 3. It publishes before it unlatches, although marking alone would suffice for the checkpoint. So all log of a page
//!    that another thread can see is published, and a thread that flushes up to the page's LSN never waits for a thread
//!    that was descheduled between the two steps. The cost: the latch is held while some hundred bytes are copied.
//! 4. A page that was made and not changed is dropped. A page that was only latched is released unchanged.

use super::Redo;
use super::guard::PageWrite;
use super::pool::Pool;
use crate::error::{Error, Result, Stop};
use crate::format::{Lsn, PageId, page, tag};
use crate::log::{Credit, KeptRoom, MTR_BYTES_MAX, NoRoom, push_record};
use crate::spare;
use smallvec::SmallVec;
use std::cell::Cell;

/// The most bytes that a small mini-transaction may log.
pub const MTR_BYTES_SMALL: usize = 96 << 10;

/// The most that a mini-transaction may log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtrSize {
    /// A change of one or two pages: at most [`MTR_BYTES_SMALL`].
    Small,
    /// A split or merge: at most [`crate::log::MTR_BYTES_MAX`].
    Large,
    /// At most this many bytes, if the caller knows the number. The sum of these bounds limits how many concurrent
    /// mini-transactions the log's buffer has room for.
    Bytes(usize),
}

impl MtrSize {
    /// The most it may log, bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Small => MTR_BYTES_SMALL,
            Self::Large => MTR_BYTES_MAX,
            Self::Bytes(bytes) => bytes.min(MTR_BYTES_MAX),
        }
    }
}

/// A page latched by an [`Mtr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatchedPage(pub(crate) u8);

/// A mini-transaction: pages under exclusive latches, and the redo records that change them.
///
/// If it is dropped unchanged, it releases its latches. If it is dropped after a change and without [`Mtr::commit`], it
/// poisons the database: pages in memory would differ from the log. So everything that can fail (latching, loading,
/// allocating pages) comes before the first [`Mtr::run`].
#[derive(Debug)]
pub struct Mtr<'p> {
    pool: &'p Pool,
    credit: Option<Credit<'p>>,
    size: MtrSize,
    pages: SmallVec<[Slot<'p>; 6]>,
    /// The records so far. The thread reuses the memory.
    body: Vec<u8>,
}

#[derive(Debug)]
struct Slot<'p> {
    page: Option<PageWrite<'p>>,
    /// The page's next change initialises it.
    fresh: bool,
    changed: bool,
    /// The page's first change initialised it.
    remade: bool,
}

thread_local! {
    /// The body of the thread's last mini-transaction, emptied.
    static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<'p> Mtr<'p> {
    /// Begins a mini-transaction. Waits for log space if needed, so no latch may be held.
    ///
    /// # Errors
    /// The first failure, if the database is poisoned; a failed write of pages or of the log while space is made.
    pub fn begin(pool: &'p Pool, size: MtrSize) -> Result<Self> {
        Self::begin_while(pool, size, || Ok(()))
    }

    /// Like [`Mtr::begin`], but calls `go_on` before each step of waiting for log space, and returns its error. If
    /// there is space, `go_on` is not called.
    ///
    /// # Errors
    /// As [`Mtr::begin`]; the error of `go_on`.
    #[inline]
    pub fn begin_while(pool: &'p Pool, size: MtrSize, go_on: impl Fn() -> Result<()>) -> Result<Self> {
        pool.health().check()?;
        let credit = loop {
            match pool.log().try_admit(size.bytes())? {
                Ok(credit) => break credit,
                Err(no_room) => {
                    go_on()?;
                    match no_room {
                        NoRoom::Checkpoint(lsn) => pool.make_log_room(lsn)?,
                        NoRoom::Buffer => pool.log().make_room(size.bytes())?,
                    }
                }
            }
        };
        Ok(Self::with(pool, size, credit))
    }

    /// Begins a mini-transaction of `size` in log space kept by [`Mtr::keep_room`]: neither waits nor does I/O.
    #[must_use]
    pub fn begin_kept(pool: &'p Pool, size: MtrSize, kept: KeptRoom) -> Self {
        Self::with(pool, size, pool.log().credit(kept))
    }

    #[inline]
    fn with(pool: &'p Pool, size: MtrSize, credit: Credit<'p>) -> Self {
        let body = spare::take(&BODY);
        debug_assert!(body.is_empty(), "put back empty");
        Self { pool, credit: Some(credit), size, pages: SmallVec::new(), body }
    }

    /// Keeps the log space of a mini-transaction that has logged nothing, for [`Mtr::begin_kept`] with the same size.
    pub fn keep_room(mut self) -> KeptRoom {
        assert!(self.body.is_empty(), "what was changed is logged");
        self.credit.take().expect("it is not committed").keep()
    }

    fn hold(&mut self, page: PageWrite<'p>, fresh: bool) -> LatchedPage {
        let held = LatchedPage(u8::try_from(self.pages.len()).expect("a mini-transaction has at most 256 pages"));
        self.pages.push(Slot { page: Some(page), fresh, changed: false, remade: false });
        held
    }

    /// Returns the page if this mini-transaction has already latched it.
    fn find(&self, page: PageId) -> Option<LatchedPage> {
        let at = self.pages.iter().position(|slot| slot.page.as_ref().is_some_and(|held| held.id() == page))?;
        Some(LatchedPage(at as u8))
    }

    /// Latches a resident page, unless this mini-transaction has already latched it.
    ///
    /// # Errors
    /// [`Stop::Load`] when it is not resident.
    pub fn latch(&mut self, page: PageId) -> Result<LatchedPage, Stop> {
        if let Some(held) = self.find(page) {
            return Ok(held);
        }
        let latched = self.pool.exclusive(page)?;
        Ok(self.hold(latched, false))
    }

    /// Takes over a page latched elsewhere.
    pub fn adopt(&mut self, page: PageWrite<'p>) -> LatchedPage {
        self.hold(page, false)
    }

    /// Releases a page that was not changed. Its `LatchedPage` must not be used again.
    ///
    /// # Panics
    /// If the page was changed: it stays latched until its change is logged.
    pub fn release(&mut self, page: LatchedPage) {
        let slot = &mut self.pages[usize::from(page.0)];
        assert!(!slot.changed, "a changed page stays latched until its change is logged");
        slot.page = None;
    }

    /// Latches a page that its next record initialises completely. The page is not read from disk. (If it is still
    /// resident from an earlier use, its bytes stay until that record.)
    ///
    /// # Errors
    /// [`Stop::Frames`] when no frame is free; [`Stop::Loading`] when another thread loads the page.
    pub fn fresh(&mut self, page: PageId) -> Result<LatchedPage, Stop> {
        if let Some(held) = self.find(page) {
            self.pages[usize::from(held.0)].fresh = true;
            return Ok(held);
        }
        let latched = self.pool.fresh_page(page)?;
        Ok(self.hold(latched, true))
    }

    fn slot(&self, page: LatchedPage) -> &PageWrite<'p> {
        self.pages[usize::from(page.0)].page.as_ref().expect("a released page is not used again")
    }

    /// Returns the page's bytes, with the changes so far.
    #[must_use]
    pub fn page(&self, page: LatchedPage) -> &[u8] {
        self.slot(page)
    }

    /// Its number.
    #[must_use]
    pub fn id(&self, page: LatchedPage) -> PageId {
        self.slot(page).id()
    }

    /// The pool of the pages.
    #[must_use]
    pub fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// Bytes logged so far.
    #[must_use]
    pub fn logged_bytes(&self) -> usize {
        self.body.len()
    }

    /// Changes a page and logs the change.
    pub fn run<R: Redo>(&mut self, page: LatchedPage, change: &R) {
        let slot = &mut self.pages[usize::from(page.0)];
        let latched = slot.page.as_mut().expect("a released page is not used again");
        if std::mem::take(&mut slot.fresh) {
            debug_assert!(tag::initialises(R::TAG), "the first record of a fresh page makes it from nothing");
            page::clear_header(latched.bytes_mut());
        }
        slot.remade |= !slot.changed && tag::initialises(R::TAG);
        slot.changed = true;
        push_record(&mut self.body, R::TAG, latched.id(), |out| change.encode(out));
        change.apply(latched.bytes_mut());
    }

    /// Logs the changes. Returns the LSN at which they end, or [`Lsn::ZERO`] if there are none. They are durable only
    /// when the log is flushed up to that LSN.
    pub fn commit(mut self) -> Lsn {
        if self.body.is_empty() {
            return Lsn::ZERO;
        }
        debug_assert!(self.body.len() <= self.size.bytes(), "a mini-transaction of {} bytes", self.body.len());
        if self.body.len() > self.size.bytes() {
            // The drop after a change poisons the database: the log has no space reserved for this change, and may
            // never have.
            return Lsn::ZERO;
        }
        let credit = self.credit.take().expect("it is committed once");
        let reservation = self.pool.log().reserve(credit, self.body.len());
        let (start, end) = (reservation.start, reservation.end);
        debug_assert!(start > Lsn::ZERO, "position 0 means never");
        for slot in &mut self.pages {
            if let Slot { page: Some(page), changed: true, remade, .. } = slot {
                page.mark_changed(start, end, *remade, Some(&self.body));
            }
        }
        reservation.publish(&self.body);
        self.body.clear();
        // Dropping `self` unlatches.
        end
    }
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        if !self.body.is_empty() {
            // Poisons before the latches are released: a thread that sees one of the pages finds the database poisoned.
            let why = format!("a change of {} bytes was begun and not logged", self.body.len());
            drop(self.pool.health().poison(Error::Usage(why)));
        }
        self.pages.clear();
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        spare::keep(&BODY, body);
    }
}
