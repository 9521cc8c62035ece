//! Page 0: the size of the file, and the root pages.
//!
//! 1. `pages` counts the pages that may be owned. It is raised after the growth of the file is durable, so a crash
//!    between the two only leaves a file that is longer than needed.
//! 2. `next_tree` only rises: a tree id is never allocated twice (trap 15).
//! 3. The header is latched before any space map, so it orders mini-transactions that change several maps.

use super::map::Shape;
use crate::buffer::Redo;
use crate::format::page::{self, HEADER_BYTES, PageKind, set_u32, u32_at};
use crate::format::{Malformed, PageId, Reader, TreeId, tag};

/// The header page.
pub(super) const PAGE: PageId = PageId(0);

/// A `u32` of the header page, by its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Field {
    /// Pages that may be owned; a multiple of the pages of an extent.
    Pages = HEADER_BYTES as u8,
    /// The next tree id to allocate.
    NextTree = HEADER_BYTES as u8 + 4,
    /// Root page of the catalog; 0 until it is set.
    CatalogRoot = HEADER_BYTES as u8 + 8,
    /// First page of the undo directory; 0 until it is set.
    UndoDirectory = HEADER_BYTES as u8 + 12,
    /// Bytes of a page, set when the file is created.
    PageBytes = HEADER_BYTES as u8 + 16,
}

const _: () = assert!(Field::PageBytes as usize + 4 <= page::PAGE_BYTES_MIN);

impl Field {
    fn from_u8(byte: u8) -> Option<Self> {
        use Field::{CatalogRoot, NextTree, PageBytes, Pages, UndoDirectory};
        [Pages, NextTree, CatalogRoot, UndoDirectory, PageBytes].into_iter().find(|&f| f as u8 == byte)
    }

    /// Returns the field's value in a header page.
    pub(super) fn get(self, page: &[u8]) -> u32 {
        u32_at(page, self as usize)
    }
}

/// Checks a header page for consistency.
pub(super) fn verify(page: &[u8]) -> Result<(), String> {
    if page::kind(page) != Some(PageKind::Header) {
        return Err(format!("it is not a header page: its kind is {}", page[page::KIND]));
    }
    let page_bytes = Field::PageBytes.get(page) as usize;
    if page_bytes != page.len() {
        return Err(format!("it says pages have {page_bytes} bytes where they are read with {}", page.len()));
    }
    let (pages, extent) = (Field::Pages.get(page), Shape::of(page.len()).extent_pages);
    if pages == 0 || pages % extent != 0 {
        return Err(format!("it says {pages} pages, which is not whole extents of {extent}"));
    }
    Ok(())
}

/// Initializes the header page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InitHeader {
    /// [`Field::Pages`].
    pub(super) pages: u32,
}

impl Redo for InitHeader {
    const TAG: u8 = tag::INITIALISES | 0x10;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.pages.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        page::init(page, PAGE, TreeId::SYSTEM, PageKind::Header, 0);
        set_u32(page, Field::Pages as usize, self.pages);
        set_u32(page, Field::NextTree as usize, TreeId::FIRST_USER.0);
        let page_bytes = page.len() as u32;
        set_u32(page, Field::PageBytes as usize, page_bytes);
    }
}

impl InitHeader {
    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        Ok(Self { pages: Reader::new(body).u32()? })
    }
}

/// Sets one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SetHeaderField {
    pub(super) field: Field,
    pub(super) value: u32,
}

impl Redo for SetHeaderField {
    const TAG: u8 = 0x11;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.field as u8);
        out.extend_from_slice(&self.value.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        set_u32(page, self.field as usize, self.value);
    }
}

impl SetHeaderField {
    pub(super) fn decode(body: &[u8], page: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::new(body);
        let field = Field::from_u8(body.u8()?).ok_or(Malformed("no such field of the header page"))?;
        if page::kind(page) != Some(PageKind::Header) {
            return Err(Malformed("the page is not a header page"));
        }
        Ok(Self { field, value: body.u32()? })
    }
}
