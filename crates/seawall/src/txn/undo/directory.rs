//! The undo directory: the first and the last page of each undo log.
//!
//! 1. Slot `n` of the chain of directory pages is undo log `n`. Undo logs are created in order and never
//!    removed, so the first empty slot is the end.
//! 2. A slot changes only when a page is linked to the end of its undo log, or freed at its beginning or end,
//!    so most transactions change no slot.

use crate::buffer::Redo;
use crate::format::page::{self, HEADER_BYTES, PageKind, set_u32, u32_at};
use crate::format::{Malformed, PageId, Reader, TreeId, tag};

const NEXT: usize = HEADER_BYTES;
const SLOTS: usize = 64;
const SLOT_BYTES: usize = 8;

/// Slots of a directory page.
pub(super) fn slots(page_bytes: usize) -> u32 {
    ((page_bytes - SLOTS) / SLOT_BYTES) as u32
}

/// The next page of the directory.
pub(super) fn next(page: &[u8]) -> PageId {
    PageId(u32_at(page, NEXT))
}

/// First and last page of the undo log at `index`; zero if there is none.
pub(super) fn slot(page: &[u8], index: u32) -> (PageId, PageId) {
    let at = SLOTS + index as usize * SLOT_BYTES;
    (PageId(u32_at(page, at)), PageId(u32_at(page, at + 4)))
}

/// Checks that `page` is a directory page.
pub(super) fn verify(page: &[u8]) -> Result<(), Malformed> {
    if page::kind(page) == Some(PageKind::UndoDirectory) {
        return Ok(());
    }
    Err(Malformed("it is not a page of the undo directory"))
}

/// Initializes a directory page without undo logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InitDirectory {
    pub(super) number: PageId,
}

impl Redo for InitDirectory {
    const TAG: u8 = tag::INITIALISES | 0x40;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.0.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        page::init(page, self.number, TreeId::UNDO, PageKind::UndoDirectory, 0);
    }
}

impl InitDirectory {
    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        Ok(Self { number: PageId(Reader::new(body).u32()?) })
    }
}

/// Sets the first and the last page of an undo log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SetSlot {
    pub(super) index: u32,
    pub(super) head: PageId,
    pub(super) tail: PageId,
}

impl Redo for SetSlot {
    const TAG: u8 = 0x41;

    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.index, self.head.0, self.tail.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn apply(&self, page: &mut [u8]) {
        let at = SLOTS + self.index as usize * SLOT_BYTES;
        set_u32(page, at, self.head.0);
        set_u32(page, at + 4, self.tail.0);
    }
}

impl SetSlot {
    pub(super) fn decode(body: &[u8], page: &[u8]) -> Result<Self, Malformed> {
        verify(page)?;
        let mut body = Reader::new(body);
        let new = Self { index: body.u32()?, head: PageId(body.u32()?), tail: PageId(body.u32()?) };
        if new.index < slots(page.len()) { Ok(new) } else { Err(Malformed("a slot beyond the directory page")) }
    }
}

/// Links the next directory page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SetDirectoryNext {
    pub(super) next: PageId,
}

impl Redo for SetDirectoryNext {
    const TAG: u8 = 0x42;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.next.0.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        set_u32(page, NEXT, self.next.0);
    }
}

impl SetDirectoryNext {
    pub(super) fn decode(body: &[u8], page: &[u8]) -> Result<Self, Malformed> {
        verify(page)?;
        Ok(Self { next: PageId(Reader::new(body).u32()?) })
    }
}
