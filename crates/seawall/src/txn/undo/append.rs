//! The records of one transaction in its undo log.
//!
//! 1. Linking and unlinking a tail page are mini-transactions of their own, begun with no latch held. A crash
//!    can leave a tail that has no record yet, or none any more: both are valid.
//! 2. A tail page is unlinked only while the last record of the undo log's transaction is in an earlier page.
//!    Purge stops at that transaction's beginning, so it never frees the page before the tail.

use super::page::{self, Append, BecomeTail, Cut, InitUndo, RECORDS, SetNext, State};
use super::record::{END_RECORD, OwnedRecord, RECORD_HEAD, UndoRecord, XID_BYTES_MAX};
use super::store::UndoStore;
use super::undo_log::UndoLog;
use crate::buffer::{LatchedPage, Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::{Malformed, PageId, TreeId, TxnId, UndoPtr};
use crate::space::Purpose;
use std::sync::atomic::Ordering::{Relaxed, Release};

impl UndoStore {
    /// Gives the undo log to a transaction. Nothing is written before the transaction's first record.
    ///
    /// # Errors
    /// [`Error::Usage`] if the undo log has a transaction.
    pub fn begin(&self, undo_log: &mut UndoLog, txn: TxnId) -> Result<()> {
        if undo_log.txn != TxnId::NONE || txn == TxnId::NONE {
            return Err(Error::Usage(format!(
                "undo log {} is given to {txn}, but has {}",
                undo_log.number, undo_log.txn
            )));
        }
        undo_log.txn = txn;
        Ok(())
    }

    /// Makes sure that records of `bytes` bytes in total (see [`UndoRecord::room_max`]) fit the undo log's
    /// last page. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`]; [`Error::Usage`] when they would not fit an
    /// empty page.
    pub fn ensure_room(&self, undo_log: &mut UndoLog, bytes: usize, purpose: Purpose) -> Result<()> {
        if self.has_room(undo_log, bytes) {
            return Ok(());
        }
        let needed = Self::needed(undo_log, bytes);
        let page_bytes = self.space.pool().page_bytes();
        if RECORDS + needed > page_bytes {
            return Err(Error::Usage(format!("undo records of {bytes} bytes fit no page of {page_bytes}")));
        }
        self.link_tail(undo_log, purpose)
    }

    /// Returns whether the undo log's last page has room for records of `bytes` bytes.
    #[inline]
    pub fn has_room(&self, undo_log: &UndoLog, bytes: usize) -> bool {
        usize::from(undo_log.end) + Self::needed(undo_log, bytes) <= self.space.pool().page_bytes()
    }

    /// The room for records of `bytes` bytes, for the `Begin` if it is still to come, and for the `Commit`.
    fn needed(undo_log: &UndoLog, bytes: usize) -> usize {
        bytes + END_RECORD + if undo_log.has_begun() { 0 } else { END_RECORD }
    }

    pub(super) fn link_tail(&self, undo_log: &mut UndoLog, purpose: Purpose) -> Result<()> {
        let directory = self.directory_page(undo_log.number);
        let mut reserved = self.space.reserve(TreeId::UNDO, undo_log.tail, 1, purpose)?;
        let new = self.space.pool().retry(|| {
            let mut mtr = Mtr::begin(self.space.pool(), MtrSize::Small)?;
            let old = Self::tail(undo_log, &mut mtr)?;
            let slots = mtr.latch(directory)?;
            let (new, held) = reserved.take(&mut mtr)?;
            let (undo_log, prev, tail) = (undo_log.number, undo_log.tail, undo_log.state);
            mtr.run(held, &InitUndo { number: new, undo_log, prev, tail });
            mtr.run(old, &SetNext { next: new });
            let end = self.set_end(mtr.page(slots), undo_log, None, Some(new));
            mtr.run(slots, &end);
            mtr.commit();
            Ok(new)
        })?;
        undo_log.tail = new;
        undo_log.end = RECORDS as u16;
        undo_log.slot.tail.store(new.0, Release);
        Ok(())
    }

    /// Appends a record in the caller's mini-transaction, after the transaction's `Begin` if it is the first.
    /// Latches the tail: call it after latching the leaf and before changing anything else. Returns the
    /// record's position.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Usage`] when there is no room. Nothing is changed then.
    pub fn append(&self, undo_log: &mut UndoLog, mtr: &mut Mtr<'_>, record: &UndoRecord<'_>) -> Result<UndoPtr, Stop> {
        undo_log.must_be_open()?;
        if matches!(record, UndoRecord::Begin { .. } | UndoRecord::Commit { .. } | UndoRecord::Prepared { .. }) {
            return Err(Error::Usage("the records of a transaction's end are not appended but committed".into()).into());
        }
        self.put(undo_log, mtr, record)
    }

    /// Latches what [`UndoStore::append`] needs. Then `append` does not stop in this mini-transaction, which
    /// may change other pages before it appends.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Corrupt`].
    pub fn latch_tail(&self, undo_log: &UndoLog, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        Self::tail(undo_log, mtr).map(drop)
    }

    /// Latches the tail, which must be as its owner left it. It may have been evicted and read again: if the disk had
    /// lost its last write, records of this transaction are missing.
    fn tail(undo_log: &UndoLog, mtr: &mut Mtr<'_>) -> Result<LatchedPage, Stop> {
        let held = mtr.latch(undo_log.tail)?;
        let page = mtr.page(held);
        page::verify(page).map_err(|why| page::bad(undo_log.tail, why))?;
        if page::end(page) != undo_log.end || !undo_log.state.is_in(page) {
            let why = Malformed("it is not as its transaction left it: the disk lost a write of it");
            return Err(page::bad(undo_log.tail, why).into());
        }
        Ok(held)
    }

    fn put(&self, undo_log: &mut UndoLog, mtr: &mut Mtr<'_>, record: &UndoRecord<'_>) -> Result<UndoPtr, Stop> {
        let mut body = std::mem::take(&mut undo_log.body);
        body.clear();
        record.encode(&mut body);
        let result = self.put_body(undo_log, mtr, record.kind(), &body);
        undo_log.body = body;
        result
    }

    fn put_body(&self, undo_log: &mut UndoLog, mtr: &mut Mtr<'_>, kind: u8, body: &[u8]) -> Result<UndoPtr, Stop> {
        let held = Self::tail(undo_log, mtr)?;
        let commit = kind == super::record::kind::COMMIT;
        let len = RECORD_HEAD + body.len();
        let needed = if commit { len } else { Self::needed(undo_log, len) };
        if usize::from(page::end(mtr.page(held))) + needed > mtr.page(held).len() {
            return Err(
                Error::Usage("room for an undo record was not made before its latches were taken".into()).into()
            );
        }
        if !undo_log.has_begun() {
            // Before the record is visible: purge must not take its transaction for a committed one.
            undo_log.slot.set_active(undo_log.txn);
            let txn = undo_log.txn.0.to_le_bytes();
            mtr.run(held, &Append { kind: super::record::kind::BEGIN, body: &txn[..6] });
        }
        let ptr = UndoPtr::new(undo_log.tail, page::end(mtr.page(held)));
        mtr.run(held, &Append { kind, body });
        undo_log.mirror(mtr.page(held));
        Ok(ptr)
    }

    /// Commits the undo log's transaction: it is committed unless a crash loses this mini-transaction. The
    /// undo log may be released once the commit is durable at its level (exception: `txn/prepared.rs`, 3).
    /// Writes nothing for a transaction that has written nothing.
    ///
    /// # Errors
    /// [`Stop::Load`]; nothing is changed then.
    pub fn commit(&self, undo_log: &mut UndoLog, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        undo_log.must_be_open()?;
        if undo_log.has_begun() {
            let txn = undo_log.txn;
            self.put(undo_log, mtr, &UndoRecord::Commit { txn })?;
            undo_log.slot.waiting.fetch_add(1, Relaxed);
        }
        Self::over(undo_log);
        Ok(())
    }

    fn over(undo_log: &mut UndoLog) {
        undo_log.slot.set_active(TxnId::NONE);
        undo_log.txn = TxnId::NONE;
    }

    /// Prepares the undo log's transaction in the caller's mini-transaction, after a call of
    /// [`UndoStore::ensure_room`]. It then survives a crash.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Usage`] when the XID is too long, or there is no room. Nothing is changed
    /// then.
    pub fn prepare(&self, undo_log: &mut UndoLog, mtr: &mut Mtr<'_>, xid: &[u8]) -> Result<UndoPtr, Stop> {
        undo_log.must_be_open()?;
        if undo_log.state.state == State::Prepared || xid.len() > XID_BYTES_MAX {
            let why = format!("{} is prepared already, or its XID is over {XID_BYTES_MAX} bytes", undo_log.txn);
            return Err(Error::Usage(why).into());
        }
        self.put(undo_log, mtr, &UndoRecord::Prepared { xid })
    }

    // --- rolling back --------------------------------------------------------------------------------------

    /// Returns the record to undo next; [`None`] if only the transaction's `Begin` is left. Frees empty pages
    /// at the undo log's end, so it may be slow. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`], [`Error::Poisoned`].
    pub fn last_record(&self, undo_log: &mut UndoLog) -> Result<Option<(UndoPtr, OwnedRecord)>> {
        self.trim(undo_log)?;
        let last = undo_log.last();
        if last == UndoPtr::NONE {
            return Ok(None);
        }
        let record = self.space.pool().retry(|| {
            let bytes = self.space.pool().shared(last.page())?;
            let record = page::verify(&bytes)
                .and_then(|()| page::record_at(&bytes, last.offset()))
                .and_then(|raw| OwnedRecord::new(raw.kind, raw.body));
            Ok(record.map_err(|why| page::bad(last.page(), why))?)
        })?;
        Ok(Some((last, record)))
    }

    /// Cuts the record that [`UndoStore::last_record`] returned off the undo log, in the mini-transaction
    /// that undoes it. Latches the tail: call it after latching the leaf and before changing anything else.
    /// Needs no space.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Usage`] when there is none. Nothing is changed then.
    pub fn cut(&self, undo_log: &mut UndoLog, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        if undo_log.last() == UndoPtr::NONE || undo_log.last().page() != undo_log.tail {
            return Err(Error::Usage("a record is cut that was not asked for before".into()).into());
        }
        self.cut_any(undo_log, mtr)
    }

    /// Latches the tail and checks that its last record can be cut off: for a mini-transaction that changes other
    /// pages before it calls [`UndoStore::cut`]. (Since the record was read, the page may have been evicted, and a
    /// write of it lost.)
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Corrupt`]. Nothing is changed then.
    pub fn check_cut(&self, undo_log: &UndoLog, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        Self::latch_cut(undo_log, mtr).map(drop)
    }

    fn latch_cut(undo_log: &UndoLog, mtr: &mut Mtr<'_>) -> Result<(LatchedPage, Cut), Stop> {
        let held = Self::tail(undo_log, mtr)?;
        let cut = Cut::check(mtr.page(held)).map_err(|why| page::bad(undo_log.tail, why))?;
        Ok((held, cut))
    }

    fn cut_any(&self, undo_log: &mut UndoLog, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        let (held, cut) = Self::latch_cut(undo_log, mtr)?;
        mtr.run(held, &cut);
        undo_log.mirror(mtr.page(held));
        Ok(())
    }

    /// Ends a transaction that is rolled back to its `Begin`. The undo log may be released then.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Usage`] if records are left ([`UndoStore::last_record`] must have returned
    /// `None`). Nothing is changed then.
    pub fn finish_rollback(&self, undo_log: &mut UndoLog, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        undo_log.must_be_open()?;
        if undo_log.has_begun() {
            if undo_log.last() != UndoPtr::NONE || undo_log.state.begin.page() != undo_log.tail {
                return Err(Error::Usage(format!("{} is not rolled back yet", undo_log.txn)).into());
            }
            self.cut_any(undo_log, mtr)?;
        }
        Self::over(undo_log);
        Ok(())
    }

    /// Frees the pages after the transaction's last record.
    fn trim(&self, undo_log: &mut UndoLog) -> Result<()> {
        while undo_log.has_begun() && undo_log.state.last.page() != undo_log.tail {
            self.unlink_tail(undo_log)?;
        }
        Ok(())
    }

    fn unlink_tail(&self, undo_log: &mut UndoLog) -> Result<()> {
        let directory = self.directory_page(undo_log.number);
        let tail = undo_log.tail;
        let (before, end) = self.space.pool().retry(|| {
            // While the transaction has records before the tail, only trimming changes which page is before
            // the tail.
            let before = page::prev(&self.space.pool().shared(tail)?);
            if before == PageId::NONE {
                return Err(page::bad(tail, Malformed("an undo log ends before its transaction's last record")).into());
            }
            let mut mtr = Mtr::begin(self.space.pool(), MtrSize::Small)?;
            let (older, newer) = (mtr.latch(before)?, Self::tail(undo_log, &mut mtr)?);
            page::verify(mtr.page(older)).map_err(|why| page::bad(before, why))?;
            if page::next(mtr.page(older)) != tail || usize::from(page::end(mtr.page(newer))) != RECORDS {
                return Err(page::bad(tail, Malformed("an undo log's last page is not linked, or not empty")).into());
            }
            let slots = mtr.latch(directory)?;
            self.space.free(&mut mtr, newer)?;
            mtr.run(older, &BecomeTail { tail: undo_log.state });
            let end = self.set_end(mtr.page(slots), undo_log.number, None, Some(before));
            mtr.run(slots, &end);
            let end = page::end(mtr.page(older));
            mtr.commit();
            Ok((before, end))
        })?;
        (undo_log.tail, undo_log.end) = (before, end);
        undo_log.slot.tail.store(before.0, Release);
        Ok(())
    }
}
