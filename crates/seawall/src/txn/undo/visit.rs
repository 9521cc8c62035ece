//! Visits all records that purge has not finished, for a check of the whole database, and all records of one
//! transaction, for taking it over.

use super::page;
use super::record::{OwnedRecord, UndoRecord, kind};
use super::store::UndoStore;
use super::undo_log::UndoLog;
use crate::error::{Error, Result};
use crate::format::{Malformed, PageId, TxnId, UndoPtr};

impl UndoStore {
    /// Calls `visit` with the records of the undo log's transaction, last first, without its `Begin`. No
    /// latch may be held; none is held while `visit` runs.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; that of `visit`.
    pub fn for_each_of(&self, undo_log: &UndoLog, mut visit: impl FnMut(UndoRecord<'_>) -> Result<()>) -> Result<()> {
        let mut at = undo_log.last();
        while let Some((record, before)) = self.record_of(at)? {
            visit(record.get())?;
            at = before;
        }
        Ok(())
    }

    /// Returns the record at `at` of a transaction that has not ended, and the position of the record before
    /// it; [`None`] at the transaction's `Begin`. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn record_of(&self, at: UndoPtr) -> Result<Option<(OwnedRecord, UndoPtr)>> {
        if at == UndoPtr::NONE {
            return Ok(None);
        }
        let (record, before) = self.space.pool().retry(|| {
            let bytes = self.space.pool().shared(at.page())?;
            let raw = page::verify(&bytes).and_then(|()| page::record_at(&bytes, at.offset()));
            let raw = raw.map_err(|why| page::bad(at.page(), why))?;
            let record = OwnedRecord::new(raw.kind, raw.body).map_err(|why| page::bad(at.page(), why))?;
            Ok((record, raw.prev))
        })?;
        if record.get().kind() == kind::BEGIN {
            return Ok(None);
        }
        if before == at {
            return Err(page::bad(at.page(), Malformed("an undo record that follows itself")));
        }
        Ok(Some((record, before)))
    }

    /// Calls `visit` with every record that purge has not finished, and its transaction: undo log by undo
    /// log, in order. No transaction may write meanwhile. No latch may be held; none is held while `visit`
    /// runs.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn for_each_record(
        &self,
        mut visit: impl FnMut(TxnId, UndoRecord<'_>),
        ended: impl Fn() -> bool,
    ) -> Result<()> {
        // Bounds the loop, in case a transaction writes nevertheless.
        let most = self.space.pages();
        for undo_log in 0..self.undo_logs() {
            let mut at = self.slot(undo_log)?.head();
            let (mut txn, mut pages) = (TxnId::NONE, 0);
            while at != PageId::NONE && !ended() {
                let bytes = self.space.pool().retry(|| {
                    let bytes = self.space.pool().shared(at)?;
                    page::verify(&bytes).map_err(|why| page::bad(at, why))?;
                    Ok(bytes.to_vec())
                })?;
                let mut offset = page::RECORDS as u16;
                if pages == 0 {
                    (offset, txn) = (page::purged_to(&bytes), page::purge_txn(&bytes));
                }
                while offset < page::end(&bytes) {
                    let raw = page::record_at(&bytes, offset).map_err(|why| page::bad(at, why))?;
                    let record = UndoRecord::decode(raw.kind, raw.body).map_err(|why| page::bad(at, why))?;
                    if raw.kind == kind::BEGIN {
                        if let UndoRecord::Begin { txn: begun } = record {
                            txn = begun;
                        }
                    }
                    visit(txn, record);
                    offset = raw.next;
                }
                pages += 1;
                if pages > most {
                    return Err(Error::bad_page(at, format!("undo log {undo_log} runs in a circle")));
                }
                at = page::next(&bytes);
            }
        }
        Ok(())
    }
}
