//! Long values, which do not fit a leaf: their pages, and the redo records that change these. `overflow/`
//! reads, writes and frees values.
//!
//! 1. A leaf's entry holds the number of a value's *head*. A value that fits one data page has that page as
//!    its head ([`write_one_page`]). A longer one lies in data pages, all full except the last. List pages
//!    name them in order and are chained from the head, so the pages can be prefetched. The level of the head
//!    tells the two apart. Databases of format 3 have lists for short values too.
//! 2. The mini-transaction that takes a data page also adds it to a list. The one that takes the head also
//!    writes an undo record that names the head (none while a tree is built: rollback frees all pages of the
//!    tree). So the whole value can be freed by its head, however little of it was written. A value of one
//!    page is written completely by the mini-transaction that takes its head.
//! 3. Once written, a value never changes in place. It is freed only when no view can see it, so it can be
//!    read whatever happens to its leaf.
//! 4. Freeing empties and frees the lists after the head one by one, then empties the head. Pages are removed
//!    from a list and freed in the same mini-transaction, so freeing can stop after any step and be started
//!    again. The head is freed last, in a mini-transaction of the caller that, except in a dropped tree, also
//!    removes the reference to it.

mod free;
mod read;
mod write;

use super::record::{TryApply, redo_record, rest, slot};
use crate::buffer::{LatchedPage, MTR_BYTES_SMALL, Mtr, Redo};
use crate::error::{Error, Stop};
use crate::format::page::{self, HEADER_BYTES, PageKind, set_u32, u32_at};
use crate::format::tag::INITIALISES;
use crate::format::{Malformed, PageId, Reader, TreeId, put_varint};
use crate::log::MTR_BYTES_MAX;
use crate::space::TAKEN_AT_ONCE_MAX;

pub use free::{VALUE_MTRS_A_STEP, free_overflow_head, free_overflow_some};
pub(super) use read::{one_page_len, read_list};
pub use read::{read_overflow, read_overflow_into, read_overflow_many};
pub use write::{OverflowWriter, write_one_page};

/// The longest value, bytes.
pub const OVERFLOW_VALUE_BYTES_MAX: u64 = 1 << 30;

/// Of a list page: offset of the next list page, `u32`; 0 is none.
const NEXT: usize = HEADER_BYTES;
/// Of a list page: offset of the number of pages it names, `u32`. Of a data page: offset of the number of its
/// bytes, `u32`.
const COUNT: usize = HEADER_BYTES + 4;
/// Offset of the page numbers, `u32` each, or of the bytes.
const BODY: usize = HEADER_BYTES + 8;
/// [`page::LEVEL`] of a list page; of a data page it is 0.
const LIST_LEVEL: u8 = 1;
/// Most data pages that one mini-transaction frees.
const PAGES_AT_ONCE_MAX: usize = 16;
/// Values whose lists are read together, before their first data page.
const TOGETHER: usize = 64;

/// Bytes of a value in a data page.
const fn data_bytes(page_bytes: usize) -> usize {
    page_bytes - BODY
}

/// Pages that a list page names.
const fn list_pages(page_bytes: usize) -> usize {
    (page_bytes - BODY) / 4
}

/// Data pages that one mini-transaction can log.
const fn pages_at_once(page_bytes: usize) -> usize {
    let logged = (MTR_BYTES_MAX - (32 << 10)) / (page_bytes + 64);
    if logged < TAKEN_AT_ONCE_MAX { logged } else { TAKEN_AT_ONCE_MAX }
}

const _: () = assert!(pages_at_once(page::PAGE_BYTES_MAX) >= 4);
// A value of one page goes into a small mini-transaction with the record that names it.
const _: () = assert!(page::PAGE_BYTES_MAX + (4 << 10) <= MTR_BYTES_SMALL);

/// The longest value that takes one page, bytes.
#[must_use]
pub const fn one_page_value_max(page_bytes: usize) -> usize {
    data_bytes(page_bytes)
}

fn init(bytes: &mut [u8], id: PageId, tree: TreeId, level: u8) {
    let (crc, lsn) = (u32_at(bytes, page::CRC), page::lsn(bytes));
    page::init(bytes, id, tree, PageKind::Overflow, level);
    set_u32(bytes, page::CRC, crc);
    page::set_u64(bytes, page::LSN, lsn.0);
}

// --- redo --------------------------------------------------------------------------------------------------

/// Makes an empty list page.
#[derive(Debug)]
pub(super) struct NewList {
    id: PageId,
    tree: TreeId,
}

redo_record!(NewList, 0x30 | INITIALISES, |self, out| {
    out.extend_from_slice(&self.id.0.to_le_bytes());
    out.extend_from_slice(&self.tree.0.to_le_bytes());
});

impl TryApply<'_> for NewList {
    fn decode(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { id: PageId(body.u32()?), tree: TreeId(body.u32()?) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        init(page, self.id, self.tree, LIST_LEVEL);
        Ok(())
    }
}

/// Makes a data page.
#[derive(Debug)]
pub(super) struct NewData<'a> {
    id: PageId,
    tree: TreeId,
    bytes: &'a [u8],
}

redo_record!(NewData<'_>, 0x31 | INITIALISES, |self, out| {
    out.extend_from_slice(&self.id.0.to_le_bytes());
    out.extend_from_slice(&self.tree.0.to_le_bytes());
    out.extend_from_slice(self.bytes);
});

impl<'a> TryApply<'a> for NewData<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { id: PageId(body.u32()?), tree: TreeId(body.u32()?), bytes: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        if self.bytes.len() > data_bytes(page.len()) {
            return Err(Malformed("more than fits a data page"));
        }
        init(page, self.id, self.tree, 0);
        set_u32(page, COUNT, self.bytes.len() as u32);
        page[BODY..BODY + self.bytes.len()].copy_from_slice(self.bytes);
        Ok(())
    }
}

/// Adds pages to a list.
#[derive(Debug)]
pub(super) struct ListPush<'a> {
    /// Page numbers, four bytes each.
    ids: &'a [u8],
}

redo_record!(ListPush<'_>, 0x32, |self, out| {
    out.extend_from_slice(self.ids);
});

impl<'a> TryApply<'a> for ListPush<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { ids: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        let count = List::open(page)?.ids().len();
        let from = BODY + count;
        if self.ids.len() % 4 != 0 || from + self.ids.len() > BODY + 4 * list_pages(page.len()) {
            return Err(Malformed("more pages than a list holds"));
        }
        page[from..from + self.ids.len()].copy_from_slice(self.ids);
        set_u32(page, COUNT, ((count + self.ids.len()) / 4) as u32);
        Ok(())
    }
}

/// Removes pages from a list: the first `keep` stay.
#[derive(Debug)]
pub(super) struct ListCut {
    keep: u16,
}

redo_record!(ListCut, 0x33, |self, out| {
    put_varint(out, self.keep.into());
});

impl TryApply<'_> for ListCut {
    fn decode(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { keep: slot(body)? })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        if 4 * usize::from(self.keep) > List::open(page)?.ids().len() {
            return Err(Malformed("a list is cut longer than it is"));
        }
        set_u32(page, COUNT, self.keep.into());
        Ok(())
    }
}

/// Sets a list's next list, or none.
#[derive(Debug)]
pub(super) struct SetNext {
    next: PageId,
}

redo_record!(SetNext, 0x34, |self, out| {
    out.extend_from_slice(&self.next.0.to_le_bytes());
});

impl TryApply<'_> for SetNext {
    fn decode(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { next: PageId(body.u32()?) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        List::open(page)?;
        set_u32(page, NEXT, self.next.0);
        Ok(())
    }
}

// --- reading -----------------------------------------------------------------------------------------------

/// A page read as a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'a> {
    page: &'a [u8],
    count: usize,
}

impl<'a> List<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let count = u32_at(bytes, COUNT) as usize;
        if page::kind(bytes) != Some(PageKind::Overflow) || page::level(bytes) != LIST_LEVEL {
            return Err(Malformed("it is not a list of a long value"));
        }
        if count > list_pages(bytes.len()) {
            return Err(Malformed("a list of more pages than it holds"));
        }
        Ok(Self { page: bytes, count })
    }

    /// Reads a page as a list of a value of `tree`.
    pub(super) fn of(bytes: &'a [u8], id: PageId, tree: TreeId) -> Result<Self, Error> {
        let list = Self::open(bytes).map_err(|why| Error::bad_page(id, why.0))?;
        if page::tree(bytes) != tree || page::number(bytes) != id {
            return Err(Error::bad_page(
                id,
                format!("tree {tree} leads to it, but it says: tree {}", page::tree(bytes)),
            ));
        }
        Ok(list)
    }

    fn ids(&self) -> &'a [u8] {
        &self.page[BODY..BODY + 4 * self.count]
    }

    /// The pages it names.
    pub(super) fn pages(&self) -> Vec<PageId> {
        self.ids().chunks_exact(4).map(|id| PageId(u32_at(id, 0))).collect()
    }

    /// The next list.
    pub(super) fn next(&self) -> Option<PageId> {
        let next = PageId(u32_at(self.page, NEXT));
        (next != PageId::NONE).then_some(next)
    }
}

/// The bytes of a data page of a value of `tree`.
pub(super) fn data(bytes: &[u8], id: PageId, tree: TreeId) -> Result<&[u8], Error> {
    let is_data = page::kind(bytes) == Some(PageKind::Overflow) && page::level(bytes) == 0;
    if !is_data || page::tree(bytes) != tree || page::number(bytes) != id {
        return Err(Error::bad_page(
            id,
            format!("a long value of tree {tree} leads to it, but it is not a piece of one"),
        ));
    }
    let len = u32_at(bytes, COUNT) as usize;
    bytes.get(BODY..BODY + len).ok_or_else(|| Error::bad_page(id, "a piece of a long value longer than its page"))
}

/// A page read as the head of a value.
enum Head<'a> {
    /// The only page: all bytes of the value.
    Page(&'a [u8]),
    /// The first list.
    List(List<'a>),
}

impl<'a> Head<'a> {
    /// Reads a page as the head of a value of `tree`.
    fn of(bytes: &'a [u8], id: PageId, tree: TreeId) -> Result<Self, Error> {
        if page::kind(bytes) == Some(PageKind::Overflow) && page::level(bytes) == 0 {
            return data(bytes, id, tree).map(Self::Page);
        }
        List::of(bytes, id, tree).map(Self::List)
    }
}

/// Latches a list for a change.
fn latch_list(mtr: &mut Mtr<'_>, tree: TreeId, id: PageId) -> Result<LatchedPage, Stop> {
    let held = mtr.latch(id)?;
    List::of(mtr.page(held), id, tree)?;
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::super::redo::redo;
    use super::*;
    use proptest::prelude::*;

    fn logged<R: Redo>(change: &R) -> Vec<u8> {
        let mut body = Vec::new();
        change.encode(&mut body);
        body
    }

    proptest! {
        #[test]
        fn lists_grow_and_shrink_alike_in_replay(steps in proptest::collection::vec((any::<bool>(), 0usize..300), 1..30)) {
            let (mut page, mut replayed) = (vec![0; 4096], vec![0xa5; 4096]);
            replayed[..16].fill(0);
            let (id, tree) = (PageId(9), TreeId(16));
            NewList { id, tree }.apply(&mut page);
            redo(NewList::TAG, &logged(&NewList { id, tree }), &mut replayed).unwrap();
            let mut model: Vec<PageId> = Vec::new();
            for (push, n) in steps {
                if push {
                    let more: Vec<_> = (0..n as u32).map(|i| PageId(i * 7 + 1)).collect();
                    let ids: Vec<u8> = more.iter().flat_map(|id| id.0.to_le_bytes()).collect();
                    let fits = model.len() + n <= list_pages(4096);
                    let replay = redo(ListPush::<'_>::TAG, &logged(&ListPush { ids: &ids }), &mut replayed);
                    prop_assert_eq!(replay.is_ok(), fits);
                    if fits {
                        ListPush { ids: &ids }.apply(&mut page);
                        model.extend(more);
                    }
                } else {
                    let keep = n.min(model.len()) as u16;
                    ListCut { keep }.apply(&mut page);
                    redo(ListCut::TAG, &logged(&ListCut { keep }), &mut replayed).unwrap();
                    model.truncate(keep.into());
                }
                prop_assert_eq!(&page, &replayed);
                prop_assert_eq!(List::open(&page).unwrap().pages(), &model[..]);
            }
        }

        #[test]
        fn lying_lists_and_bodies_never_panic(
            tag in prop_oneof![0x30u8..0x36, 0xb0u8..0xb3],
            body in proptest::collection::vec(any::<u8>(), 0..5000),
            level in 0u8..3,
            count: u32,
        ) {
            let mut page = vec![0; 4096];
            page::init(&mut page, PageId(9), TreeId(16), PageKind::Overflow, level);
            set_u32(&mut page, COUNT, count >> (count % 32));
            let replayed = redo(tag, &body, &mut page.clone()).is_ok();
            let read = data(&page, PageId(9), TreeId(16)).is_ok() || List::open(&page).is_ok();
            prop_assert!(!replayed || tag & INITIALISES != 0 || read, "only a list changes as a list");
        }
    }
}
