//! The records of one transaction in its stream.
//!
//! 1. A [`Stream`] mirrors the header of its tail page, which only its owner changes. The mirror is read
//!    again after each change of that page; a call that stops does not change it.
//! 2. Linking and unlinking a tail page are mini-transactions of their own, made with no latch held. A crash
//!    after one leaves a stream whose tail has no record yet, or none any more: both are valid.
//! 3. A page is cut off the end only while the stream's transaction has its last record before it; so purge,
//!    which stops at that transaction's beginning, never frees the page before it.

use super::page::{self, Append, BecomeTail, Cut, InitUndo, RECORDS, SetNext, State, TailState};
use super::record::{END_RECORD, OwnedRecord, RECORD_HEAD, UndoRecord, XID_BYTES_MAX};
use super::store::{Slot, UndoStore};
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::{Malformed, PageId, TreeId, TxnId, UndoPtr};
use crate::space::Purpose;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// A stream that a transaction owns.
#[derive(Debug)]
#[must_use = "a stream that is not released is lost until the database is opened again"]
pub struct Stream {
    number: u32,
    slot: Arc<Slot>,
    pub(super) tail: PageId,
    end: u16,
    state: TailState,
    /// The transaction, from `begin` to its end; [`TxnId::NONE`] otherwise.
    txn: TxnId,
    /// The buffer where records are encoded; kept for its capacity.
    body: Vec<u8>,
}

impl Stream {
    pub(super) fn found(number: u32, slot: Arc<Slot>, tail: PageId, end: u16, state: TailState) -> Self {
        let txn = if state.state == State::Idle { TxnId::NONE } else { state.txn };
        Self { number, slot, tail, end, state, txn, body: Vec::new() }
    }

    /// Its number.
    #[must_use]
    #[cfg(test)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its transaction; [`TxnId::NONE`] when it has none.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        self.txn
    }

    /// The transaction's last record, [`UndoPtr::NONE`] before the first change. A rollback to it restores
    /// that state: a savepoint keeps it.
    #[must_use]
    pub fn last(&self) -> UndoPtr {
        if self.state.last == self.state.begin { UndoPtr::NONE } else { self.state.last }
    }

    /// Whether the transaction has written anything.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.state.state != State::Idle
    }

    /// Ends the use of the stream by a transaction that never wrote to it: nothing is left to commit or to
    /// roll back.
    pub(super) fn disown_unused(&mut self) {
        if !self.has_begun() {
            self.txn = TxnId::NONE;
        }
    }

    /// Reads the tail's header again.
    fn mirror(&mut self, tail: &[u8]) {
        self.end = page::end(tail);
        self.state =
            TailState::of(tail).expect("its state was checked when it was latched, and a record changed it since");
    }

    fn must_be_open(&self) -> Result<()> {
        if self.txn == TxnId::NONE {
            return Err(Error::Usage(format!("undo stream {} has no transaction", self.number)));
        }
        Ok(())
    }
}

impl UndoStore {
    /// Gives the stream to a transaction. Nothing is written before its first record.
    ///
    /// # Errors
    /// [`Error::Usage`] if the stream has a transaction.
    pub fn begin(&self, stream: &mut Stream, txn: TxnId) -> Result<()> {
        if stream.txn != TxnId::NONE || txn == TxnId::NONE {
            return Err(Error::Usage(format!(
                "undo stream {} is given to {txn}, but has {}",
                stream.number, stream.txn
            )));
        }
        stream.txn = txn;
        Ok(())
    }

    /// Makes sure that records of `bytes` altogether (see [`UndoRecord::room_max`]) fit the stream's last page. No
    /// latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`]; [`Error::Usage`] when they would not fit an empty page.
    pub fn ensure_room(&self, stream: &mut Stream, bytes: usize) -> Result<()> {
        if self.has_room(stream, bytes) {
            return Ok(());
        }
        let needed = Self::needed(stream, bytes);
        let page_bytes = self.space.pool().page_bytes();
        if RECORDS + needed > page_bytes {
            return Err(Error::Usage(format!("undo records of {bytes} bytes fit no page of {page_bytes}")));
        }
        self.link_tail(stream)
    }

    /// Whether the stream's last page has room for records of `bytes`.
    #[inline]
    pub fn has_room(&self, stream: &Stream, bytes: usize) -> bool {
        usize::from(stream.end) + Self::needed(stream, bytes) <= self.space.pool().page_bytes()
    }

    /// The room for records of `bytes`, for the `Begin` if it is still to come, and for the `Commit`.
    fn needed(stream: &Stream, bytes: usize) -> usize {
        bytes + END_RECORD + if stream.has_begun() { 0 } else { END_RECORD }
    }

    pub(super) fn link_tail(&self, stream: &mut Stream) -> Result<()> {
        let directory = self.directory_page(stream.number);
        let mut reserved = self.space.reserve(TreeId::UNDO, stream.tail, 1, Purpose::Grow)?;
        let new = self.space.pool().retry(|| {
            let mut mtr = Mtr::begin(self.space.pool(), MtrSize::Small)?;
            let old = mtr.latch(stream.tail)?;
            let tail = page::verify(mtr.page(old)).and_then(|()| TailState::of(mtr.page(old)));
            let tail = tail.map_err(|why| page::bad(stream.tail, why))?;
            let slots = mtr.latch(directory)?;
            let (new, held) = reserved.take(&mut mtr)?;
            mtr.run(held, &InitUndo { number: new, stream: stream.number, prev: stream.tail, tail });
            mtr.run(old, &SetNext { next: new });
            let end = self.set_end(mtr.page(slots), stream.number, None, Some(new));
            mtr.run(slots, &end);
            mtr.commit();
            Ok(new)
        })?;
        stream.tail = new;
        stream.end = RECORDS as u16;
        stream.slot.tail.store(new.0, Release);
        Ok(())
    }

    /// Appends a record in the caller's mini-transaction, after the transaction's `Begin` if it is the first.
    /// Latches the tail: after the leaf, before anything else is changed. Returns the record's position.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Usage`] when there is no room. Nothing is changed then.
    pub fn append(&self, stream: &mut Stream, mtr: &mut Mtr<'_>, record: &UndoRecord<'_>) -> Result<UndoPtr, Stop> {
        stream.must_be_open()?;
        if matches!(record, UndoRecord::Begin { .. } | UndoRecord::Commit { .. } | UndoRecord::Prepared { .. }) {
            return Err(Error::Usage("the records of a transaction's end are not appended but committed".into()).into());
        }
        self.put(stream, mtr, record)
    }

    /// Latches what [`UndoStore::append`] needs: afterwards it does not stop in this mini-transaction, which
    /// may change other pages before it appends.
    ///
    /// # Errors
    /// [`Stop::Load`].
    pub fn latch_tail(&self, stream: &Stream, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        mtr.latch(stream.tail).map(|_| ())
    }

    fn put(&self, stream: &mut Stream, mtr: &mut Mtr<'_>, record: &UndoRecord<'_>) -> Result<UndoPtr, Stop> {
        let mut body = std::mem::take(&mut stream.body);
        body.clear();
        record.encode(&mut body);
        let result = self.put_body(stream, mtr, record.kind(), &body);
        stream.body = body;
        result
    }

    fn put_body(&self, stream: &mut Stream, mtr: &mut Mtr<'_>, kind: u8, body: &[u8]) -> Result<UndoPtr, Stop> {
        let held = mtr.latch(stream.tail)?;
        page::verify(mtr.page(held)).map_err(|why| page::bad(stream.tail, why))?;
        let commit = kind == super::record::kind::COMMIT;
        let len = RECORD_HEAD + body.len();
        let needed = if commit { len } else { Self::needed(stream, len) };
        if usize::from(page::end(mtr.page(held))) + needed > mtr.page(held).len() {
            return Err(
                Error::Usage("room for an undo record was not made before its latches were taken".into()).into()
            );
        }
        if !stream.has_begun() {
            // Before the record is visible: purge must not take its transaction for a committed one.
            stream.slot.set_active(stream.txn);
            let txn = stream.txn.0.to_le_bytes();
            mtr.run(held, &Append { kind: super::record::kind::BEGIN, body: &txn[..6] });
        }
        let ptr = UndoPtr::new(stream.tail, page::end(mtr.page(held)));
        mtr.run(held, &Append { kind, body });
        stream.mirror(mtr.page(held));
        Ok(ptr)
    }

    /// Commits the stream's transaction: it is committed unless this mini-transaction is lost. The stream may
    /// be released once the commit is durable. Writes nothing for a transaction that has written nothing.
    ///
    /// # Errors
    /// [`Stop::Load`]; nothing is changed then.
    pub fn commit(&self, stream: &mut Stream, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        stream.must_be_open()?;
        if stream.has_begun() {
            let txn = stream.txn;
            self.put(stream, mtr, &UndoRecord::Commit { txn })?;
            stream.slot.waiting.fetch_add(1, Relaxed);
        }
        Self::over(stream);
        Ok(())
    }

    fn over(stream: &mut Stream) {
        stream.slot.set_active(TxnId::NONE);
        stream.txn = TxnId::NONE;
    }

    /// Prepares the stream's transaction in the caller's mini-transaction, after a call of
    /// [`UndoStore::ensure_room`]. It then survives a crash.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Usage`] when the XID is too long, or there is no room. Nothing is changed then.
    pub fn prepare(&self, stream: &mut Stream, mtr: &mut Mtr<'_>, xid: &[u8]) -> Result<UndoPtr, Stop> {
        stream.must_be_open()?;
        if stream.state.state == State::Prepared || xid.len() > XID_BYTES_MAX {
            let why = format!("{} is prepared already, or its XID is over {XID_BYTES_MAX} bytes", stream.txn);
            return Err(Error::Usage(why).into());
        }
        self.put(stream, mtr, &UndoRecord::Prepared { xid })
    }

    // --- rolling back
    // ----------------------------------------------------------------------------------------------------

    /// The record to undo next, [`None`] if the transaction has none left but its `Begin`. Frees empty pages
    /// at the stream's end, so it may be slow. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`], [`Error::Poisoned`].
    pub fn last_record(&self, stream: &mut Stream) -> Result<Option<(UndoPtr, OwnedRecord)>> {
        self.trim(stream)?;
        let last = stream.last();
        if last == UndoPtr::NONE {
            return Ok(None);
        }
        let record = self.space.pool().retry(|| {
            let bytes = self.space.pool().shared(last.page())?;
            let record = page::record_at(&bytes, last.offset()).and_then(|raw| OwnedRecord::new(raw.kind, raw.body));
            Ok(record.map_err(|why| page::bad(last.page(), why))?)
        })?;
        Ok(Some((last, record)))
    }

    /// Cuts the record that [`UndoStore::last_record`] returned off the stream, in the mini-transaction that
    /// undoes it. Latches the tail: after the leaf, before anything else is changed. Needs no space.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Usage`] when there is none. Nothing is changed then.
    pub fn cut(&self, stream: &mut Stream, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        if stream.last() == UndoPtr::NONE || stream.last().page() != stream.tail {
            return Err(Error::Usage("a record is cut that was not asked for before".into()).into());
        }
        self.cut_any(stream, mtr)
    }

    fn cut_any(&self, stream: &mut Stream, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        let held = mtr.latch(stream.tail)?;
        let cut = Cut::check(mtr.page(held)).map_err(|why| page::bad(stream.tail, why))?;
        mtr.run(held, &cut);
        stream.mirror(mtr.page(held));
        Ok(())
    }

    /// Ends a transaction that is rolled back as far as its `Begin`; the stream may be released then.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Usage`] if records are left ([`UndoStore::last_record`] must have returned
    /// `None`). Nothing is changed then.
    pub fn finish_rollback(&self, stream: &mut Stream, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        stream.must_be_open()?;
        if stream.has_begun() {
            if stream.last() != UndoPtr::NONE || stream.state.begin.page() != stream.tail {
                return Err(Error::Usage(format!("{} is not rolled back yet", stream.txn)).into());
            }
            self.cut_any(stream, mtr)?;
        }
        Self::over(stream);
        Ok(())
    }

    /// Frees the pages after the transaction's last record.
    fn trim(&self, stream: &mut Stream) -> Result<()> {
        while stream.has_begun() && stream.state.last.page() != stream.tail {
            self.unlink_tail(stream)?;
        }
        Ok(())
    }

    fn unlink_tail(&self, stream: &mut Stream) -> Result<()> {
        let directory = self.directory_page(stream.number);
        let tail = stream.tail;
        let (before, end) = self.space.pool().retry(|| {
            // While the transaction has records before the tail, only trimming changes which page that is.
            let before = page::prev(&self.space.pool().shared(tail)?);
            if before == PageId::NONE {
                return Err(page::bad(tail, Malformed("a stream ends before its transaction's last record")).into());
            }
            let mut mtr = Mtr::begin(self.space.pool(), MtrSize::Small)?;
            let (older, newer) = (mtr.latch(before)?, mtr.latch(tail)?);
            page::verify(mtr.page(older)).map_err(|why| page::bad(before, why))?;
            page::verify(mtr.page(newer)).map_err(|why| page::bad(tail, why))?;
            if page::next(mtr.page(older)) != tail || usize::from(page::end(mtr.page(newer))) != RECORDS {
                return Err(page::bad(tail, Malformed("a stream's last page is not linked, or not empty")).into());
            }
            let state = TailState::of(mtr.page(newer)).map_err(|why| page::bad(tail, why))?;
            let slots = mtr.latch(directory)?;
            self.space.free(&mut mtr, newer)?;
            mtr.run(older, &BecomeTail { tail: state });
            let end = self.set_end(mtr.page(slots), stream.number, None, Some(before));
            mtr.run(slots, &end);
            let end = page::end(mtr.page(older));
            mtr.commit();
            Ok((before, end))
        })?;
        (stream.tail, stream.end) = (before, end);
        stream.slot.tail.store(before.0, Release);
        Ok(())
    }
}
