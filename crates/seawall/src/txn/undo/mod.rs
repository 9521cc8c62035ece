//! Undo logs. See DESIGN.md, "Transactions".
//!
//! 1. An undo log is a chain of undo pages. It belongs to one transaction at a time, from
//!    [`UndoStore::acquire`] to [`UndoStore::release`], and holds `begin record* commit` of one transaction
//!    after the other. Purge follows at its head.
//! 2. A record is appended in the mini-transaction that makes its change, and cut in the one that undoes it
//!    (trap 13).
//! 3. The whole state of a transaction is in its undo log's last page: the state that [`UndoStore::open`]
//!    reads there is valid, whatever a crash interrupted.
//! 4. Every page keeps room for a `Commit`, so neither commit nor rollback ever needs space (trap 14).
//! 5. Latch order: leaf, undo pages of one undo log from older to newer, directory page, space pages.
//! 6. Each undo log has one purger at a time. The purger and the undo log's transaction share only pages,
//!    under their latches, and the atomics of `undo_log::Slot`.
//!
//! ```text
//!           begin, append             prepare               commit
//!   idle ─────────────────> active ─────────────> prepared ────────> idle (waits for purge)
//!     <──── cut, finish_rollback ──┘ <──── cut ───────┘
//! ```

mod append;
mod check;
mod directory;
mod kept;
mod page;
mod purge;
mod record;
mod store;
#[cfg(test)]
mod tests;
mod undo_log;
mod visit;

pub use kept::KeptCommit;
pub use purge::Unpurged;
pub use record::{OldValue, Previous, UndoRecord};
pub use store::{OpenState, OpenUndoLog, UndoStore};
pub use undo_log::UndoLog;

use crate::buffer::Redo;
use crate::format::{Malformed, TxnId};
use directory::{InitDirectory, SetDirectoryNext, SetSlot};
use page::{Advance, Append, BecomeHead, BecomeTail, Cut, InitUndo, SetNext};

/// Replays a record of this layer.
///
/// # Errors
/// When the body does not decode, or does not fit the page.
pub fn redo(tag: u8, body: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    match tag {
        InitDirectory::TAG => InitDirectory::decode(body)?.apply(page),
        SetSlot::TAG => SetSlot::decode(body, page)?.apply(page),
        SetDirectoryNext::TAG => SetDirectoryNext::decode(body, page)?.apply(page),
        InitUndo::TAG => InitUndo::decode(body)?.apply(page),
        SetNext::TAG => SetNext::decode(body, page)?.apply(page),
        Append::TAG => Append::decode(body, page)?.apply(page),
        Cut::TAG => Cut::check(page)?.apply(page),
        BecomeTail::TAG => BecomeTail::decode(body, page)?.apply(page),
        BecomeHead::TAG => BecomeHead::decode(body, page)?.apply(page),
        Advance::TAG => Advance::decode(body, page)?.apply(page),
        _ => return Err(Malformed("no record of undo has this tag")),
    }
    Ok(())
}

/// Returns the transaction whose `Begin` this redo record appends. Recovery learns from it which ids were
/// assigned.
#[must_use]
pub fn begun(tag: u8, body: &[u8]) -> Option<TxnId> {
    let (&kind, body) = body.split_first().filter(|(kind, _)| tag == Append::TAG && **kind == record::kind::BEGIN)?;
    match UndoRecord::decode(kind, body) {
        Ok(UndoRecord::Begin { txn }) => Some(txn),
        _ => None,
    }
}

/// Decodes an undo page, or a page of the undo directory; returns its number of records or undo logs. For
/// tests that pass damaged pages.
///
/// # Errors
/// The first inconsistency.
#[doc(hidden)]
#[cfg(feature = "internals")]
pub fn read_page(page: &[u8]) -> Result<usize, Malformed> {
    if crate::format::page::kind(page) != Some(crate::format::page::PageKind::Undo) {
        directory::verify(page)?;
        return Ok((0..directory::slots(page.len())).filter(|&i| directory::slot(page, i).0.0 != 0).count());
    }
    page::verify(page)?;
    page::TailState::of(page)?;
    let (mut at, mut records) = (page::RECORDS as u16, 0);
    while at < page::end(page) {
        let raw = page::record_at(page, at)?;
        UndoRecord::decode(raw.kind, raw.body)?;
        at = raw.next;
        records += 1;
    }
    Ok(records)
}
