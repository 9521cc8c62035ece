//! An undo page, and the redo records that change it.
//!
//! 1. Records grow upward from [`RECORDS`] to `end`, without gaps. They are cut only from the top, and only
//!    those of a transaction that has not ended.
//! 2. The header of the undo log's last page, its *tail*, has the state of the undo log's transaction. In
//!    other pages those fields are what they were when the next page was linked, and mean nothing.
//! 3. The header of the undo log's first page, its *head*, has the purge position. Purge never passes the
//!    beginning of a transaction that has not ended, so `purged_to` never exceeds `end`.

use super::record::{END_RECORD, RECORD_HEAD, UndoRecord, kind};
use crate::btree::{entry_bytes_max, key_bytes_max};
use crate::buffer::Redo;
use crate::error::Error;
use crate::format::page::{self, HEADER_BYTES, PageKind, set_u16, set_u32, set_u64, u16_at, u32_at, u64_at};
use crate::format::{Malformed, PageId, Reader, TreeId, TxnId, UndoPtr, put_u48, tag};

const NEXT: usize = HEADER_BYTES;
const PREV: usize = 36;
const UNDO_LOG: usize = 40;
const END: usize = 44;
const PURGED_TO: usize = 46;
const STATE: usize = 48;
const TXN: usize = 56;
const BEGIN: usize = 64;
const LAST: usize = 72;
const COMMITS: usize = 80;
const PURGE_TXN: usize = 88;
const PURGED: usize = 96;

/// Offset of the first record.
pub(super) const RECORDS: usize = 104;

// A page has room for a Begin, for the longest record (of the longest row that a leaf keeps) and for the
// Commit that must always fit. So a change of a row needs one undo page, and one mini-transaction.
const _: () = {
    let mut page_bytes = page::PAGE_BYTES_MIN;
    while page_bytes <= page::PAGE_BYTES_MAX {
        let record = RECORD_HEAD + 31 + entry_bytes_max(page_bytes);
        assert!(RECORDS + 2 * END_RECORD + record <= page_bytes);
        assert!(key_bytes_max(page_bytes) <= entry_bytes_max(page_bytes));
        page_bytes *= 2;
    }
};

/// The state of an undo log's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(super) enum State {
    /// There is no transaction.
    #[default]
    Idle = 0,
    /// It can still make changes.
    Active = 1,
    /// It waits for its coordinator's decision.
    Prepared = 2,
}

/// The part of a tail's header that describes its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TailState {
    pub(super) state: State,
    /// The transaction; the last one, if there is none now.
    pub(super) txn: TxnId,
    /// Its first record.
    pub(super) begin: UndoPtr,
    /// Its last record.
    pub(super) last: UndoPtr,
    /// Transactions that were committed in this undo log.
    pub(super) commits: u64,
}

impl TailState {
    pub(super) fn of(page: &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            state: state(page[STATE])?,
            txn: TxnId(u64_at(page, TXN)),
            begin: UndoPtr(u64_at(page, BEGIN)),
            last: UndoPtr(u64_at(page, LAST)),
            commits: u64_at(page, COMMITS),
        })
    }

    /// Returns whether a tail that was verified has this state.
    pub(super) fn is_in(&self, page: &[u8]) -> bool {
        page[STATE] == self.state as u8 && u64_at(page, TXN) == self.txn.0 && u64_at(page, LAST) == self.last.0
    }

    fn put(&self, page: &mut [u8]) {
        page[STATE] = self.state as u8;
        set_u64(page, TXN, self.txn.0);
        set_u64(page, BEGIN, self.begin.0);
        set_u64(page, LAST, self.last.0);
        set_u64(page, COMMITS, self.commits);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.state as u8);
        put_u48(out, self.txn.0);
        put_u48(out, self.begin.0);
        put_u48(out, self.last.0);
        out.extend_from_slice(&self.commits.to_le_bytes());
    }

    fn decode(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            state: state(body.u8()?)?,
            txn: TxnId(body.u48()?),
            begin: UndoPtr(body.u48()?),
            last: UndoPtr(body.u48()?),
            commits: body.u64()?,
        })
    }
}

fn state(byte: u8) -> Result<State, Malformed> {
    let known = [State::Idle, State::Active, State::Prepared].into_iter().find(|&s| s as u8 == byte);
    known.ok_or(Malformed("an undo page in no known state"))
}

/// The next page of its undo log.
pub(super) fn next(page: &[u8]) -> PageId {
    PageId(u32_at(page, NEXT))
}
/// The previous page of its undo log.
pub(super) fn prev(page: &[u8]) -> PageId {
    PageId(u32_at(page, PREV))
}
/// Its undo log.
pub(super) fn undo_log(page: &[u8]) -> u32 {
    u32_at(page, UNDO_LOG)
}
/// The end of its records.
pub(super) fn end(page: &[u8]) -> u16 {
    u16_at(page, END)
}
/// The purge position.
pub(super) fn purged_to(page: &[u8]) -> u16 {
    u16_at(page, PURGED_TO)
}
/// The transaction whose records purge has reached.
pub(super) fn purge_txn(page: &[u8]) -> TxnId {
    TxnId(u64_at(page, PURGE_TXN))
}
/// Committed transactions that purge has finished.
pub(super) fn purged(page: &[u8]) -> u64 {
    u64_at(page, PURGED)
}

/// Checks that `page` is an undo page that can be processed.
pub(super) fn verify(page: &[u8]) -> Result<(), Malformed> {
    if page::kind(page) != Some(PageKind::Undo) {
        return Err(Malformed("it is not an undo page"));
    }
    let (end, purged_to) = (usize::from(end(page)), usize::from(purged_to(page)));
    if !(RECORDS..=page.len()).contains(&end) || !(RECORDS..=end).contains(&purged_to) {
        return Err(Malformed("an undo page with impossible ends"));
    }
    state(page[STATE]).map(|_| ())
}

/// The error of an inconsistent undo page.
pub(super) fn bad(page: PageId, why: Malformed) -> Error {
    Error::bad_page(page, why.0)
}

/// A record in a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) kind: u8,
    /// The previous record of the same transaction.
    pub(super) prev: UndoPtr,
    pub(super) body: &'a [u8],
    /// The offset of the next record.
    pub(super) next: u16,
}

/// The record at `offset` of a page that passes [`verify`].
pub(super) fn record_at(page: &[u8], offset: u16) -> Result<Raw<'_>, Malformed> {
    let (from, end) = (usize::from(offset), usize::from(end(page)));
    if from < RECORDS || from + RECORD_HEAD > end {
        return Err(Malformed("no undo record is there"));
    }
    let len = usize::from(u16_at(page, from));
    if len < RECORD_HEAD || from + len > end {
        return Err(Malformed("an undo record of an impossible length"));
    }
    let mut head = Reader::new(&page[from + 2..from + RECORD_HEAD]);
    let (kind, prev) = (head.u8()?, UndoPtr(head.u48()?));
    Ok(Raw { kind, prev, body: &page[from + RECORD_HEAD..from + len], next: (from + len) as u16 })
}

/// Initializes an undo page at the end of an undo log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InitUndo {
    pub(super) number: PageId,
    pub(super) undo_log: u32,
    pub(super) prev: PageId,
    pub(super) tail: TailState,
}

impl Redo for InitUndo {
    const TAG: u8 = tag::INITIALISES | 0x43;

    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.number.0, self.undo_log, self.prev.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        self.tail.encode(out);
    }

    fn apply(&self, page: &mut [u8]) {
        page::init(page, self.number, TreeId::UNDO, PageKind::Undo, 0);
        set_u32(page, UNDO_LOG, self.undo_log);
        set_u32(page, PREV, self.prev.0);
        set_u16(page, END, RECORDS as u16);
        set_u16(page, PURGED_TO, RECORDS as u16);
        self.tail.put(page);
    }
}

impl InitUndo {
    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::new(body);
        let (number, undo_log, prev) = (PageId(body.u32()?), body.u32()?, PageId(body.u32()?));
        Ok(Self { number, undo_log, prev, tail: TailState::decode(&mut body)? })
    }
}

/// Links the next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SetNext {
    pub(super) next: PageId,
}

impl Redo for SetNext {
    const TAG: u8 = 0x44;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.next.0.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        set_u32(page, NEXT, self.next.0);
    }
}

impl SetNext {
    pub(super) fn decode(body: &[u8], page: &[u8]) -> Result<Self, Malformed> {
        verify(page)?;
        Ok(Self { next: PageId(Reader::new(body).u32()?) })
    }
}

/// Appends a record to the tail. Its kind decides how the transaction's state changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Append<'a> {
    pub(super) kind: u8,
    pub(super) body: &'a [u8],
}

impl Redo for Append<'_> {
    const TAG: u8 = 0x45;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind);
        out.extend_from_slice(self.body);
    }

    fn apply(&self, page: &mut [u8]) {
        let at = end(page);
        let (from, len) = (usize::from(at), RECORD_HEAD + self.body.len());
        let ptr = UndoPtr::new(page::number(page), at);
        let last = if self.kind == kind::BEGIN { 0 } else { u64_at(page, LAST) };
        set_u16(page, from, len as u16);
        page[from + 2] = self.kind;
        page[from + 3..from + RECORD_HEAD].copy_from_slice(&last.to_le_bytes()[..6]);
        page[from + RECORD_HEAD..from + len].copy_from_slice(self.body);
        set_u16(page, END, (from + len) as u16);
        set_u64(page, LAST, ptr.0);
        match self.kind {
            kind::BEGIN => {
                set_u64(page, TXN, txn_of(self.body));
                set_u64(page, BEGIN, ptr.0);
                page[STATE] = State::Active as u8;
            }
            kind::COMMIT => {
                set_u64(page, COMMITS, u64_at(page, COMMITS) + 1);
                set_idle(page);
            }
            kind::PREPARED => page[STATE] = State::Prepared as u8,
            _ => {}
        }
    }
}

impl<'a> Append<'a> {
    pub(super) fn decode(body: &'a [u8], page: &[u8]) -> Result<Self, Malformed> {
        verify(page)?;
        let (&kind, body) = body.split_first().ok_or(Malformed("too short"))?;
        UndoRecord::decode(kind, body)?;
        if usize::from(end(page)) + RECORD_HEAD + body.len() > page.len() {
            return Err(Malformed("an undo record that does not fit its page"));
        }
        Ok(Self { kind, body })
    }
}

/// The transaction that a `Begin` names. The record was checked before.
fn txn_of(body: &[u8]) -> u64 {
    Reader::new(body).u48().unwrap_or_default()
}

fn set_idle(page: &mut [u8]) {
    set_u64(page, BEGIN, 0);
    set_u64(page, LAST, 0);
    page[STATE] = State::Idle as u8;
}

/// Cuts the transaction's last record off the tail. Cutting its first record ends the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut;

impl Redo for Cut {
    const TAG: u8 = 0x46;

    fn encode(&self, _: &mut Vec<u8>) {}

    fn apply(&self, page: &mut [u8]) {
        let at = UndoPtr(u64_at(page, LAST)).offset();
        let from = usize::from(at);
        let mut prev = [0; 8];
        prev[..6].copy_from_slice(&page[from + 3..from + RECORD_HEAD]);
        let kind = page[from + 2];
        set_u16(page, END, at);
        set_u64(page, LAST, u64::from_le_bytes(prev));
        match kind {
            kind::BEGIN => set_idle(page),
            kind::PREPARED => page[STATE] = State::Active as u8,
            _ => {}
        }
    }
}

impl Cut {
    /// Checks that the transaction's last record can be cut off this page.
    pub(super) fn check(page: &[u8]) -> Result<Self, Malformed> {
        verify(page)?;
        let last = UndoPtr(u64_at(page, LAST));
        if last.page() != page::number(page) {
            return Err(Malformed("the record to cut is not in this page"));
        }
        let raw = record_at(page, last.offset())?;
        if raw.next != end(page) || purged_to(page) > last.offset() || raw.kind == kind::COMMIT {
            return Err(Malformed("the record to cut is not the last, or is over"));
        }
        Ok(Self)
    }
}

/// Makes a page the tail again when the page after it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BecomeTail {
    pub(super) tail: TailState,
}

impl Redo for BecomeTail {
    const TAG: u8 = 0x47;

    fn encode(&self, out: &mut Vec<u8>) {
        self.tail.encode(out);
    }

    fn apply(&self, page: &mut [u8]) {
        set_u32(page, NEXT, 0);
        self.tail.put(page);
    }
}

impl BecomeTail {
    pub(super) fn decode(body: &[u8], page: &[u8]) -> Result<Self, Malformed> {
        verify(page)?;
        Ok(Self { tail: TailState::decode(&mut Reader::new(body))? })
    }
}

/// Makes a page the head, in place of the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BecomeHead {
    pub(super) purge_txn: TxnId,
    pub(super) purged: u64,
}

impl Redo for BecomeHead {
    const TAG: u8 = 0x48;

    fn encode(&self, out: &mut Vec<u8>) {
        put_u48(out, self.purge_txn.0);
        out.extend_from_slice(&self.purged.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        set_u32(page, PREV, 0);
        set_u64(page, PURGE_TXN, self.purge_txn.0);
        set_u64(page, PURGED, self.purged);
    }
}

impl BecomeHead {
    pub(super) fn decode(body: &[u8], page: &[u8]) -> Result<Self, Malformed> {
        verify(page)?;
        let mut body = Reader::new(body);
        Ok(Self { purge_txn: TxnId(body.u48()?), purged: body.u64()? })
    }
}

/// Moves purge past the next records of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Advance {
    /// The number of records, at least one.
    records: u16,
}

impl Redo for Advance {
    const TAG: u8 = 0x49;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.records.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        for _ in 0..self.records {
            let from = usize::from(purged_to(page));
            let (len, body) = (u16_at(page, from), &page[from + RECORD_HEAD..]);
            match page[from + 2] {
                kind::BEGIN => {
                    let txn = txn_of(body);
                    set_u64(page, PURGE_TXN, txn);
                }
                kind::COMMIT => set_u64(page, PURGED, purged(page) + 1),
                _ => {}
            }
            set_u16(page, PURGED_TO, from as u16 + len);
        }
    }
}

impl Advance {
    /// Decodes and checks a record from the log.
    pub(super) fn decode(body: &[u8], page: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let records = reader.u16()?;
        if !reader.is_empty() || records == 0 {
            return Err(Malformed("a bad step of purge"));
        }
        Self::check(page, records)
    }

    /// Checks that the page has this many records to pass.
    pub(super) fn check(page: &[u8], records: u16) -> Result<Self, Malformed> {
        verify(page)?;
        let mut at = purged_to(page);
        for _ in 0..records {
            let raw = record_at(page, at)?;
            UndoRecord::decode(raw.kind, raw.body)?;
            at = raw.next;
        }
        Ok(Self { records })
    }
}
