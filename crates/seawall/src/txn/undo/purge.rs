//! Purges the undo logs from their heads.
//!
//! 1. Only records of committed transactions are returned. The caller checks, by the transaction's id,
//!    whether that commit is durable and visible to all.
//! 2. Purge moves past a record in the mini-transaction that does the record's work, or after it if the work can be
//!    done again.
//! 3. A head page that purge has finished is freed when purge looks for the next record: a crash before that
//!    only delays it.

use super::page::{self, Advance, BecomeHead};
use super::record::{OwnedRecord, UndoRecord, kind};
use super::store::UndoStore;
use super::undo_log::Slot;
use crate::buffer::{LatchedPage, Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TxnId, UndoPtr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The next record of an undo log for purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpurged {
    /// The undo log.
    pub undo_log: u32,
    /// The position of the record.
    pub ptr: UndoPtr,
    /// Its transaction, which is committed.
    pub txn: TxnId,
    /// The record.
    pub record: OwnedRecord,
}

/// What purge finds in the head page.
enum Found {
    Records(Vec<Unpurged>),
    Done(PageId),
}

impl UndoStore {
    /// Returns the next record for purge; [`None`] at the undo log's end, or at a transaction that has not
    /// ended. Frees finished pages. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`], [`Error::Poisoned`].
    #[cfg(test)]
    pub fn head(&self, undo_log: u32) -> Result<Option<Unpurged>> {
        Ok(self.heads(undo_log, 1, |_| true)?.pop())
    }

    /// Returns the next records, in order: at least one if there is any, at most `upto` (but one if `upto` is
    /// 0), all in one page, and all of transactions for which `sees` is true. The list ends before the first
    /// record of any other transaction, or of one that has not ended.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`], [`Error::Poisoned`].
    pub fn heads(&self, undo_log: u32, upto: usize, sees: impl Fn(TxnId) -> bool) -> Result<Vec<Unpurged>> {
        let slot = self.slot(undo_log)?;
        loop {
            let head = slot.head();
            if slot.waiting.load(Relaxed) == 0 && slot.tail.load(Acquire) == head.0 {
                return Ok(Vec::new());
            }
            match self.space.pool().retry(|| self.look(&slot, undo_log, head, upto, &sees))? {
                Found::Records(records) => return Ok(records),
                Found::Done(next) => self.free_head(&slot, undo_log, head, next)?,
            }
        }
    }

    fn look(
        &self,
        slot: &Slot,
        undo_log: u32,
        head: PageId,
        upto: usize,
        sees: &impl Fn(TxnId) -> bool,
    ) -> Result<Found, Stop> {
        let bytes = self.space.pool().shared(head)?;
        page::verify(&bytes).map_err(|why| page::bad(head, why))?;
        let (mut at, mut txn) = (page::purged_to(&bytes), page::purge_txn(&bytes));
        if at == page::end(&bytes) && page::next(&bytes) != PageId::NONE {
            return Ok(Found::Done(page::next(&bytes)));
        }
        let mut records = Vec::new();
        while at < page::end(&bytes) && records.len() < upto.max(1) {
            let raw = page::record_at(&bytes, at).map_err(|why| page::bad(head, why))?;
            if raw.kind != kind::BEGIN && !sees(txn) {
                break;
            }
            let record = OwnedRecord::new(raw.kind, raw.body).map_err(|why| page::bad(head, why))?;
            if let UndoRecord::Begin { txn: new } = record.get() {
                if slot.active.load(Acquire) == new.0 || !sees(new) {
                    break;
                }
                txn = new;
            }
            records.push(Unpurged { undo_log, ptr: UndoPtr::new(head, at), txn, record });
            at = raw.next;
        }
        Ok(Found::Records(records))
    }

    /// Moves purge past the records at the head of the undo log that need no work: those for which `is_idle`
    /// is true, of transactions for which `sees` is true. Passes records of one page, in one
    /// mini-transaction. Returns `false` if the first record is not such a record, or there is none. No latch
    /// may be held.
    ///
    /// # Errors
    /// Those of [`UndoStore::heads`].
    pub fn pass(
        &self,
        undo_log: u32,
        is_idle: impl Fn(&UndoRecord<'_>) -> bool,
        sees: impl Fn(TxnId) -> bool,
    ) -> Result<bool> {
        let slot = self.slot(undo_log)?;
        if slot.waiting.load(Relaxed) == 0 && slot.tail.load(Acquire) == slot.head().0 {
            return Ok(false);
        }
        // One thread at a time purges an undo log: records found under a shared latch can still be passed
        // under the exclusive one.
        let head = slot.head();
        let run = self.space.pool().retry(|| {
            let bytes = self.space.pool().shared(head)?;
            page::verify(&bytes).map_err(|why| page::bad(head, why))?;
            let (mut at, mut txn) = (page::purged_to(&bytes), page::purge_txn(&bytes));
            let (mut records, mut commits) = (0, 0);
            while at < page::end(&bytes) {
                let raw = page::record_at(&bytes, at).map_err(|why| page::bad(head, why))?;
                if raw.kind != kind::BEGIN && !sees(txn) {
                    break;
                }
                let record = UndoRecord::decode(raw.kind, raw.body).map_err(|why| page::bad(head, why))?;
                if let UndoRecord::Begin { txn: new } = record {
                    if slot.active.load(Acquire) == new.0 {
                        break;
                    }
                    txn = new;
                }
                if !sees(txn) || !is_idle(&record) {
                    break;
                }
                records += 1;
                commits += u64::from(raw.kind == kind::COMMIT);
                at = raw.next;
            }
            Ok((page::purged_to(&bytes), records, commits))
        })?;
        let (from, records, commits) = run;
        if records == 0 {
            return Ok(false);
        }
        self.space.pool().retry(|| {
            let mut mtr = Mtr::begin(self.space.pool(), MtrSize::Small)?;
            let held = mtr.latch(head)?;
            let advance = Advance::check(mtr.page(held), records).map_err(|why| page::bad(head, why))?;
            if page::purged_to(mtr.page(held)) != from {
                return Err(
                    Error::Usage(format!("undo log {undo_log} is purged by two threads at the same time")).into()
                );
            }
            mtr.run(held, &advance);
            mtr.commit();
            Ok(())
        })?;
        slot.waiting.fetch_sub(commits, Relaxed);
        Ok(true)
    }

    /// Moves purge past the first of the records that [`UndoStore::heads`] returned, in the caller's mini-transaction.
    /// Latches their page: call it after latching the leaf and before changing anything else, or call
    /// [`UndoStore::check_advance`] then.
    ///
    /// # Errors
    /// As [`UndoStore::check_advance`].
    pub fn advance(&self, mtr: &mut Mtr<'_>, records: &[Unpurged]) -> Result<(), Stop> {
        let Some(first) = records.first() else { return Ok(()) };
        let slot = self.slot(first.undo_log)?;
        let (held, advance) = self.latch_advance(mtr, first, records.len())?;
        mtr.run(held, &advance);
        let commits = records.iter().filter(|record| record.record.get().kind() == kind::COMMIT).count();
        slot.waiting.fetch_sub(commits as u64, Relaxed);
        Ok(())
    }

    /// Latches the page of the record at which purge is, and checks that it can move past this many records.
    ///
    /// # Errors
    /// [`Stop::Load`]; [`Error::Corrupt`]; [`Error::Usage`] if purge is at another record. Nothing is changed then.
    pub fn check_advance(&self, mtr: &mut Mtr<'_>, first: &Unpurged, records: usize) -> Result<(), Stop> {
        self.latch_advance(mtr, first, records).map(drop)
    }

    fn latch_advance(
        &self,
        mtr: &mut Mtr<'_>,
        first: &Unpurged,
        records: usize,
    ) -> Result<(LatchedPage, Advance), Stop> {
        let held = mtr.latch(first.ptr.page())?;
        let advance = Advance::check(mtr.page(held), records as u16);
        let advance = advance.map_err(|why| page::bad(first.ptr.page(), why))?;
        if self.slot(first.undo_log)?.head() != first.ptr.page()
            || page::purged_to(mtr.page(held)) != first.ptr.offset()
        {
            return Err(Error::Usage(format!("purge of undo log {} is not at that record", first.undo_log)).into());
        }
        Ok((held, advance))
    }

    /// Frees a head page that purge has finished, unless it has become the last page.
    fn free_head(&self, slot: &Slot, undo_log: u32, head: PageId, next: PageId) -> Result<()> {
        let directory = self.directory_page(undo_log);
        let freed = self.space.pool().retry(|| {
            let mut mtr = Mtr::begin(self.space.pool(), MtrSize::Small)?;
            let old = mtr.latch(head)?;
            page::verify(mtr.page(old)).map_err(|why| page::bad(head, why))?;
            // The undo log's owner may have trimmed the next page since.
            if page::next(mtr.page(old)) != next || page::purged_to(mtr.page(old)) != page::end(mtr.page(old)) {
                return Ok(false);
            }
            let become_head =
                BecomeHead { purge_txn: page::purge_txn(mtr.page(old)), purged: page::purged(mtr.page(old)) };
            let new = mtr.latch(next)?;
            page::verify(mtr.page(new)).map_err(|why| page::bad(next, why))?;
            if page::prev(mtr.page(new)) != head || page::undo_log(mtr.page(new)) != undo_log {
                let why = format!("it is linked behind page {head} in undo log {undo_log}, but does not say so");
                return Err(Error::bad_page(next, why).into());
            }
            let slots = mtr.latch(directory)?;
            self.space.free(&mut mtr, old)?;
            mtr.run(new, &become_head);
            let end = self.set_end(mtr.page(slots), undo_log, Some(next), None);
            mtr.run(slots, &end);
            mtr.commit();
            Ok(true)
        })?;
        if freed {
            slot.head.store(next.0, Release);
        }
        Ok(())
    }
}
