//! Long values: too long for a leaf.
//!
//! 1. A leaf's entry holds the number of a value's *head*. A value that fits one data page has that page as
//!    its head ([`write_one_page`]). A longer one lies in data pages, all full except the last. List pages
//!    name them in order and are chained from the head, so the pages can be prefetched. The level of the head
//!    tells the two apart. Databases of format 3 have lists for short values too.
//! 2. A list names a data page in the mini-transaction that takes the page. So everything can be freed by the
//!    head, however little of the value was written: an undo record that names the head goes into the
//!    mini-transaction that takes the head. A value of one page is written whole by that mini-transaction.
//! 3. Once written, a value never changes in place. It is freed when no view can see it, so it can be read
//!    whatever happens to its leaf.
//! 4. Freeing empties and frees the lists after the head one by one, then empties the head. What a list names
//!    and who owns it change in the same mini-transaction, so freeing can stop after any step and be started
//!    again. The head goes last, in a mini-transaction of the caller, which also forgets the head.

use super::entry::OverflowRef;
use super::redo::{TryApply, redo_record, rest, slot};
use crate::buffer::{LatchedPage, MTR_BYTES_SMALL, Mtr, MtrSize, PageRead, Pool, Prefetcher, Redo};
use crate::error::{Error, Result, Stop};
use crate::format::page::{self, HEADER_BYTES, PageKind, set_u32, u32_at};
use crate::format::tag::INITIALISES;
use crate::format::{Malformed, PageId, Reader, TreeId, put_varint};
use crate::log::MTR_BYTES_MAX;
use crate::space::{Purpose, Reserved, Space, TAKEN_AT_ONCE_MAX};
use std::ops::ControlFlow;

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
/// Values of which the lists are read before the first data page.
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

// --- redo
// ----------------------------------------------------------------------------------------------------------------

/// An empty list page.
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

/// A data page.
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

/// More pages for a list.
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

/// Fewer pages for a list: the first `keep` stay.
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

/// Another next list for a list, or none.
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

// --- reading
// -------------------------------------------------------------------------------------------------------------

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
            return Err(Malformed("it is no list of a long value"));
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
        return Err(Error::bad_page(id, format!("a long value of tree {tree} leads to it, but it is no piece of one")));
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

/// Bytes of a value whose head is its only page; `None` when the head is a list. No latch may be held.
pub(super) fn one_page_len(pool: &Pool, tree: TreeId, head: PageId) -> Result<Option<u64>> {
    pool.retry(|| {
        Ok(match Head::of(&pool.shared(head)?, head, tree)? {
            Head::Page(bytes) => Some(bytes.len() as u64),
            Head::List(_) => None,
        })
    })
}

/// Reads the head of a value. If it is the only page, calls `whole` with its bytes; otherwise returns what
/// the list names.
fn read_head(
    pool: &Pool,
    tree: TreeId,
    reference: OverflowRef,
    mut whole: impl FnMut(&[u8]),
) -> Result<Option<ListRead>> {
    let id = reference.head;
    pool.retry(|| {
        let held = pool.shared(id)?;
        match Head::of(&held, id, tree)? {
            Head::Page(bytes) if bytes.len() == reference.len as usize => {
                whole(bytes);
                Ok(None)
            }
            Head::Page(bytes) => {
                let why = format!("a long value of {} bytes has {} bytes in its page", reference.len, bytes.len());
                Err(Error::bad_page(id, why).into())
            }
            Head::List(list) => Ok(Some((list.pages(), list.next()))),
        }
    })
}

/// Reads a long value of `tree` piece by piece, with prefetching, until `piece` breaks. A shared latch is
/// held on the piece's page meanwhile: `piece` must not call the database. No latch may be held.
///
/// # Errors
/// Those of reading; [`Error::Corrupt`] when the pieces do not add up.
pub fn read_overflow(
    pool: &Pool,
    tree: TreeId,
    reference: OverflowRef,
    mut piece: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let only = |bytes: &[u8]| {
        let _done_either_way = piece(bytes);
    };
    let Some(list) = read_head(pool, tree, reference, only)? else { return Ok(()) };
    let mut prefetcher = Prefetcher::default().sure();
    name_list(&mut prefetcher, &list);
    read_from(pool, tree, reference, list, &mut prefetcher, &mut piece)
}

/// The pages that a list names, and the next list.
type ListRead = (Vec<PageId>, Option<PageId>);

fn name_list(prefetcher: &mut Prefetcher, (pages, next): &ListRead) {
    prefetcher.name(pages.iter().chain(next).copied());
}

/// Reads a value whose head has been read; `prefetcher` already names its first pages.
fn read_from(
    pool: &Pool,
    tree: TreeId,
    reference: OverflowRef,
    mut list: ListRead,
    prefetcher: &mut Prefetcher,
    piece: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let mut left = reference.len as usize;
    let mut list_id = reference.head;
    loop {
        let (pages, next) = list;
        for page_id in pages {
            if left == 0 {
                return Ok(());
            }
            prefetcher.next_is_due(pool, usize::MAX);
            let held: PageRead<'_> = pool.retry(|| pool.shared(page_id))?;
            prefetcher.came_to(page_id);
            let bytes = data(&held, page_id, tree)?;
            if bytes.is_empty() || bytes.len() > left {
                return Err(Error::bad_page(page_id, "a piece of a long value of the wrong length"));
            }
            left -= bytes.len();
            if piece(bytes).is_break() {
                return Ok(());
            }
        }
        list_id = match next {
            _ if left == 0 => return Ok(()),
            Some(next) => next,
            None => return Err(Error::bad_page(list_id, format!("a long value ends {left} bytes early"))),
        };
        prefetcher.next_is_due(pool, usize::MAX);
        list = read_list(pool, tree, list_id)?;
        prefetcher.came_to(list_id);
        name_list(prefetcher, &list);
    }
}

/// Reads many long values of `tree`, prefetching their pages, and passes each to `value`. No latch may be
/// held.
///
/// # Errors
/// As [`read_overflow`]; the values before the unreadable one have been passed.
pub fn read_overflow_many(
    pool: &Pool,
    tree: TreeId,
    references: &[OverflowRef],
    mut value: impl FnMut(Vec<u8>),
) -> Result<()> {
    let mut heads = Prefetcher::of(references.iter().map(|reference| reference.head));
    // Few enough that their lists do not evict each other from a small pool before they are used.
    for some in references.chunks(TOGETHER) {
        let mut pages = Prefetcher::default().sure();
        let mut lists = Vec::with_capacity(some.len());
        for reference in some {
            heads.next_is_due(pool, usize::MAX);
            let mut bytes = Vec::new();
            let list = read_head(pool, tree, *reference, |whole| bytes.extend_from_slice(whole))?;
            heads.came_to(reference.head);
            pages.name(list.iter().flat_map(|list| list.0.iter().copied()));
            lists.push((bytes, list));
        }
        for (reference, (mut bytes, list)) in some.iter().zip(lists) {
            let Some(list) = list else {
                value(bytes);
                continue;
            };
            bytes.reserve((reference.len as usize).min(1 << 20));
            read_from(pool, tree, *reference, list, &mut pages, &mut |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                ControlFlow::Continue(())
            })?;
            value(bytes);
        }
    }
    Ok(())
}

/// Reads a long value of `tree` into `value`. No latch may be held.
///
/// # Errors
/// As [`read_overflow`].
pub fn read_overflow_into(pool: &Pool, tree: TreeId, reference: OverflowRef, value: &mut Vec<u8>) -> Result<()> {
    value.clear();
    // A damaged length must not allocate a gigabyte before anything was read.
    value.reserve((reference.len as usize).min(1 << 20));
    read_overflow(pool, tree, reference, |piece| {
        value.extend_from_slice(piece);
        ControlFlow::Continue(())
    })
}

/// The pages that a list names, and the next list. No latch may be held.
pub(super) fn read_list(pool: &Pool, tree: TreeId, id: PageId) -> Result<(Vec<PageId>, Option<PageId>)> {
    pool.retry(|| {
        let held = pool.shared(id)?;
        let list = List::of(&held, id, tree)?;
        Ok((list.pages(), list.next()))
    })
}

// --- writing
// -------------------------------------------------------------------------------------------------------------

/// Writes a value of at most [`one_page_value_max`] bytes into a page of its own, in a mini-transaction of
/// the caller that also records the page for the cleanup after a crash.
///
/// # Errors
/// As [`Reserved::take`]; nothing is changed then.
pub fn write_one_page(
    tree: TreeId,
    mtr: &mut Mtr<'_>,
    reserved: &mut Reserved<'_>,
    value: &[u8],
) -> Result<OverflowRef, Stop> {
    let (head, held) = reserved.take(mtr)?;
    mtr.run(held, &NewData { id: head, tree, bytes: value });
    Ok(OverflowRef { head, len: value.len() as u32 })
}

/// A long value being written.
#[derive(Debug)]
pub struct OverflowWriter {
    tree: TreeId,
    head: PageId,
    /// The list that takes the next pages, and how many more it can name.
    tail: PageId,
    tail_room: usize,
    /// The page last taken.
    last: PageId,
    /// Bytes that do not fill a page yet.
    partial: Vec<u8>,
    len: u64,
}

impl OverflowWriter {
    /// Takes the head, in a mini-transaction of the caller that also records the head for the cleanup after a
    /// crash.
    ///
    /// # Errors
    /// As [`Reserved::take`]; nothing is changed then.
    pub fn begin(tree: TreeId, mtr: &mut Mtr<'_>, reserved: &mut Reserved<'_>) -> Result<Self, Stop> {
        let (head, held) = reserved.take(mtr)?;
        mtr.run(held, &NewList { id: head, tree });
        let tail_room = list_pages(mtr.page(held).len());
        Ok(Self { tree, head, tail: head, tail_room, last: head, partial: Vec::new(), len: 0 })
    }

    /// The head.
    #[must_use]
    pub fn head(&self) -> PageId {
        self.head
    }

    /// Appends bytes, in mini-transactions of its own. No latch may be held.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`], [`Error::NoSpace`], those of reading. What was written stays; it can be freed
    /// by the head.
    pub fn append(&mut self, space: &Space, mut bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.len += bytes.len() as u64;
        if self.len > OVERFLOW_VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { len_bytes: self.len, max_bytes: OVERFLOW_VALUE_BYTES_MAX });
        }
        let full = data_bytes(space.pool().page_bytes());
        if !self.partial.is_empty() {
            let taken = bytes.len().min(full - self.partial.len());
            self.partial.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.partial.len() < full {
                return Ok(());
            }
            let partial = std::mem::take(&mut self.partial);
            self.write(space, &[&partial], purpose)?;
        }
        let whole = bytes.len() / full * full;
        let pieces: Vec<&[u8]> = bytes[..whole].chunks(full).collect();
        // A small pool must not be filled by one mini-transaction.
        let frames = space.pool().bytes() as usize / space.pool().page_bytes();
        let at_once = pages_at_once(space.pool().page_bytes()).min(frames / 8).max(1);
        for pieces in pieces.chunks(at_once) {
            self.write(space, pieces, purpose)?;
        }
        self.partial.extend_from_slice(&bytes[whole..]);
        Ok(())
    }

    /// Writes the remaining bytes. No latch may be held.
    ///
    /// # Errors
    /// As [`OverflowWriter::append`].
    pub fn finish(mut self, space: &Space, purpose: Purpose) -> Result<OverflowRef> {
        if !self.partial.is_empty() {
            let partial = std::mem::take(&mut self.partial);
            self.write(space, &[&partial], purpose)?;
        }
        let len = u32::try_from(self.len).expect("the length was checked against its most");
        Ok(OverflowRef { head: self.head, len })
    }

    /// Writes a page for each piece, in one mini-transaction or, if a list ends between them, in two.
    fn write(&mut self, space: &Space, mut pieces: &[&[u8]], purpose: Purpose) -> Result<()> {
        while !pieces.is_empty() {
            if self.tail_room == 0 {
                self.add_list(space, purpose)?;
            }
            let (now, later) = pieces.split_at(pieces.len().min(self.tail_room));
            let mut reserved = space.reserve(self.tree, self.last, now.len(), purpose)?;
            self.last = space.pool().retry(|| {
                let mut mtr = Mtr::begin(space.pool(), MtrSize::Large)?;
                let tail = self.latch_list(&mut mtr, self.tail)?;
                let mut ids = Vec::with_capacity(4 * now.len());
                let mut last = self.last;
                for (page_id, (held, bytes)) in
                    reserved.take_many(&mut mtr, now.len())?.into_iter().zip(now).map(|((id, held), b)| (id, (held, b)))
                {
                    mtr.run(held, &NewData { id: page_id, tree: self.tree, bytes });
                    ids.extend_from_slice(&page_id.0.to_le_bytes());
                    last = page_id;
                }
                mtr.run(tail, &ListPush { ids: &ids });
                mtr.commit();
                Ok(last)
            })?;
            self.tail_room -= now.len();
            pieces = later;
        }
        Ok(())
    }

    fn add_list(&mut self, space: &Space, purpose: Purpose) -> Result<()> {
        let mut reserved = space.reserve(self.tree, self.last, 1, purpose)?;
        let next = space.pool().retry(|| {
            let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
            let tail = self.latch_list(&mut mtr, self.tail)?;
            let (next, held) = reserved.take(&mut mtr)?;
            mtr.run(held, &NewList { id: next, tree: self.tree });
            mtr.run(tail, &SetNext { next });
            mtr.commit();
            Ok(next)
        })?;
        self.tail = next;
        self.last = next;
        self.tail_room = list_pages(space.pool().page_bytes());
        Ok(())
    }

    fn latch_list(&self, mtr: &mut Mtr<'_>, id: PageId) -> Result<LatchedPage, Stop> {
        latch_list(mtr, self.tree, id)
    }
}

fn latch_list(mtr: &mut Mtr<'_>, tree: TreeId, id: PageId) -> Result<LatchedPage, Stop> {
    let held = mtr.latch(id)?;
    List::of(mtr.page(held), id, tree)?;
    Ok(held)
}

// --- freeing
// -------------------------------------------------------------------------------------------------------------

/// Frees everything of a long value of `tree` except its head, in mini-transactions of its own. May be called
/// again, also after a crash: it does what is left. No latch may be held.
///
/// # Errors
/// Those of reading.
pub fn free_overflow_body(space: &Space, tree: TreeId, head: PageId) -> Result<()> {
    while !space.pool().retry(|| free_step(space, tree, head))? {}
    Ok(())
}

/// The same in at most `budget` mini-transactions, which it counts down. Returns whether only the head is
/// left.
///
/// # Errors
/// Those of reading.
pub fn free_overflow_some(space: &Space, tree: TreeId, head: PageId, budget: &mut usize) -> Result<bool> {
    while *budget > 0 {
        if space.pool().retry(|| free_step(space, tree, head))? {
            return Ok(true);
        }
        *budget -= 1;
    }
    Ok(false)
}

/// Frees the head of a long value whose body is freed, in a mini-transaction of the caller that also forgets
/// the head. Call it after all other latches are taken.
///
/// # Errors
/// [`Stop::Load`]; [`Error::Corrupt`] when the body is not freed. Nothing is changed then.
pub fn free_overflow_head(space: &Space, mtr: &mut Mtr<'_>, tree: TreeId, head: PageId) -> Result<(), Stop> {
    let held = mtr.latch(head)?;
    let is_body_freed = match Head::of(mtr.page(held), head, tree)? {
        Head::Page(_) => true,
        Head::List(list) => list.count == 0 && list.next().is_none(),
    };
    if !is_body_freed {
        return Err(Error::bad_page(head, "the head of a long value is freed before its body").into());
    }
    space.free(mtr, held)
}

/// Frees some pages. Returns whether only the head is left: an empty list, or the only page.
fn free_step(space: &Space, tree: TreeId, head: PageId) -> Result<bool, Stop> {
    let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
    let head_held = mtr.latch(head)?;
    let next = match Head::of(mtr.page(head_held), head, tree)? {
        Head::Page(_) => return Ok(true),
        Head::List(list) => list.next(),
    };
    let (id, held) = match next {
        Some(next) => (next, latch_list(&mut mtr, tree, next)?),
        None => (head, head_held),
    };
    let list = List::of(mtr.page(held), id, tree)?;
    let (pages, behind) = (list.pages(), list.next());
    if pages.is_empty() {
        if next.is_none() {
            return Ok(true);
        }
        space.ready_to_free(&mut mtr, &[id])?;
        mtr.run(head_held, &SetNext { next: behind.unwrap_or(PageId::NONE) });
        space.free(&mut mtr, held)?;
    } else {
        let keep = pages.len() - pages.len().min(PAGES_AT_ONCE_MAX);
        space.free_many(&mut mtr, tree, &pages[keep..])?;
        mtr.run(held, &ListCut { keep: keep as u16 });
    }
    mtr.commit();
    Ok(false)
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
