//! Reads long values, with prefetching.

use super::{Head, List, TOGETHER, data};
use crate::btree::entry::OverflowRef;
use crate::buffer::{PageRead, Pool, Prefetcher};
use crate::error::{Error, Result};
use crate::format::{PageId, TreeId};
use std::ops::ControlFlow;

/// Returns the length, in bytes, of a value whose head is its only page; `None` when the head is a list. No
/// latch may be held.
pub(in crate::btree) fn one_page_len(pool: &Pool, tree: TreeId, head: PageId) -> Result<Option<u64>> {
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

/// Reads a long value of `tree` piece by piece, with prefetching, until `piece` breaks. `piece` runs under a
/// shared latch on the page of its bytes: it must not call the database. No latch may be held.
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
/// Those of [`read_overflow`]; the values before the unreadable one have been passed.
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
/// Those of [`read_overflow`].
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
pub(in crate::btree) fn read_list(pool: &Pool, tree: TreeId, id: PageId) -> Result<(Vec<PageId>, Option<PageId>)> {
    pool.retry(|| {
        let held = pool.shared(id)?;
        let list = List::of(&held, id, tree)?;
        Ok((list.pages(), list.next()))
    })
}
