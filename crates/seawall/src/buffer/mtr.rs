//! Mini-transactions.
//!
//! ```text
//!   begin ──room in the log reserved, nothing latched──> open ──latch, adopt, fresh──> open
//!   open ──run──> changed ──run──> changed ──commit──> done
//!   open ──commit or drop──> done (nothing happened)        changed ──drop──> poisoned
//! ```
//!
//! 1. Room in the log is reserved before the first latch (trap 3), and the records fit into it.
//! 2. Commit, with every page still latched: reserve the position; set the LSN on every changed page and mark
//!    it dirty from the position's start; publish; unlatch. It marks before it publishes, so that a
//!    checkpoint sees one or the other (trap 2).
//! 3. It publishes before it unlatches, though marking alone would do for the checkpoint. So all log of a
//!    page that another thread can see is published, and a thread that flushes up to the page's LSN never
//!    waits for a thread that was descheduled between the two. This holds the latch for one more copy of some
//!    hundred bytes.
//! 4. A page that was made and not changed is dropped; a page that was only latched is released unchanged.

use super::Redo;
use super::guard::PageWrite;
use super::pool::Pool;
use crate::error::{Error, Result, Stop};
use crate::format::{Lsn, PageId, page, tag};
use crate::log::{Credit, KeptRoom, MTR_BYTES_MAX, NoRoom, push_record};
use smallvec::SmallVec;
use std::cell::Cell;

/// Bytes a small mini-transaction may log.
pub const MTR_BYTES_SMALL: usize = 96 << 10;

/// How much a mini-transaction may log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtrSize {
    /// A change in a page or two: at most [`MTR_BYTES_SMALL`].
    Small,
    /// A split or merge: at most [`crate::log::MTR_BYTES_MAX`].
    Large,
    /// At most this many bytes, where that is known. The log's buffer has room for as many concurrent
    /// mini-transactions as the sum of these bounds permits.
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
/// Dropped unchanged, it releases its latches. Dropped after a change and without [`Mtr::commit`] it poisons
/// the database: pages in memory would differ from the log. So everything that can fail (latching, loading,
/// taking space) comes before the first [`Mtr::run`].
#[derive(Debug)]
pub struct Mtr<'p> {
    pool: &'p Pool,
    credit: Option<Credit<'p>>,
    size: MtrSize,
    pages: SmallVec<[Slot<'p>; 6]>,
    /// The records so far; the thread reuses the memory.
    body: Vec<u8>,
}

#[derive(Debug)]
struct Slot<'p> {
    page: Option<PageWrite<'p>>,
    /// Its next change initialises it.
    fresh: bool,
    changed: bool,
    /// Its first change initialised it.
    remade: bool,
}

thread_local! {
    /// The body of the thread's last mini-transaction, emptied.
    static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<'p> Mtr<'p> {
    /// Begins a mini-transaction; waits for log space if need be, so no latch may be held.
    ///
    /// # Errors
    /// The first failure, when the database was poisoned; a failed write of pages or log while making room.
    pub fn begin(pool: &'p Pool, size: MtrSize) -> Result<Self> {
        Self::begin_while(pool, size, || Ok(()))
    }

    /// The same, but gives up with the error of `go_on`. `go_on` is called before each step of waiting for
    /// log space, and not if there is space.
    ///
    /// # Errors
    /// As [`Mtr::begin`]; that of `go_on`.
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

    /// Begins one of `size` in room that was kept for it: neither waits nor does I/O.
    #[must_use]
    pub fn begin_kept(pool: &'p Pool, size: MtrSize, kept: KeptRoom) -> Self {
        Self::with(pool, size, pool.log().credit(kept))
    }

    #[inline]
    fn with(pool: &'p Pool, size: MtrSize, credit: Credit<'p>) -> Self {
        let body = BODY.take();
        debug_assert!(body.is_empty(), "put back empty");
        Self { pool, credit: Some(credit), size, pages: SmallVec::new(), body }
    }

    /// Keeps the room of a mini-transaction that has logged nothing, for [`Mtr::begin_kept`] with its size.
    pub fn keep_room(mut self) -> KeptRoom {
        assert!(self.body.is_empty(), "what was changed is logged");
        self.credit.take().expect("it is not committed").keep()
    }

    fn hold(&mut self, page: PageWrite<'p>, fresh: bool) -> LatchedPage {
        let held = LatchedPage(u8::try_from(self.pages.len()).expect("a mini-transaction has at most 256 pages"));
        self.pages.push(Slot { page: Some(page), fresh, changed: false, remade: false });
        held
    }

    /// The page, if this mini-transaction has latched it already.
    fn find(&self, page: PageId) -> Option<LatchedPage> {
        let at = self.pages.iter().position(|slot| slot.page.as_ref().is_some_and(|held| held.id() == page))?;
        Some(LatchedPage(at as u8))
    }

    /// Latches a resident page, unless this mini-transaction has latched it already.
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
    /// When it was changed: it stays latched until its change is logged.
    pub fn release(&mut self, page: LatchedPage) {
        let slot = &mut self.pages[usize::from(page.0)];
        assert!(!slot.changed, "a changed page stays latched until its change is logged");
        slot.page = None;
    }

    /// A frame for a page that its first record initialises completely; never read from disk. (If the page is
    /// still resident from an earlier use, its bytes stay until then.)
    ///
    /// # Errors
    /// [`Stop::Frames`] when no frame is free.
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

    /// The page as changed so far.
    #[must_use]
    pub fn page(&self, page: LatchedPage) -> &[u8] {
        self.slot(page)
    }

    /// Its number.
    #[must_use]
    pub fn id(&self, page: LatchedPage) -> PageId {
        self.slot(page).id()
    }

    /// The pool it works in.
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

    /// Logs the changes. Returns the LSN at which they are complete, or [`Lsn::ZERO`] if there are none. They
    /// are durable only when the log is flushed up to it.
    pub fn commit(mut self) -> Lsn {
        if self.body.is_empty() {
            return Lsn::ZERO;
        }
        debug_assert!(self.body.len() <= self.size.bytes(), "a mini-transaction of {} bytes", self.body.len());
        if self.body.len() > self.size.bytes() {
            // Dropping it after a change poisons: the log has no room for it, and may never have.
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
            // Before the latches are released: a thread that sees such a page finds the database poisoned.
            let why = format!("a change of {} bytes was begun and not logged", self.body.len());
            drop(self.pool.health().poison(Error::Usage(why)));
        }
        self.pages.clear();
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        BODY.set(body);
    }
}
