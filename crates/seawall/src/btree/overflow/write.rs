//! Writes long values, page by page.

use super::{
    ListPush, NewData, NewList, OVERFLOW_VALUE_BYTES_MAX, SetNext, data_bytes, latch_list, list_pages, pages_at_once,
};
use crate::btree::entry::OverflowRef;
use crate::buffer::{LatchedPage, Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TreeId};
use crate::space::{Purpose, Reserved, Space};

/// Writes a value of at most [`one_page_value_max`] bytes into a page of its own, in a mini-transaction of
/// the caller that also records the page for cleanup after a crash (`overflow.rs`, 2).
///
/// # Errors
/// Those of [`Reserved::take`]; nothing is changed then.
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
    /// Takes the head, in a mini-transaction of the caller that also records the head for cleanup after a
    /// crash (`overflow.rs`, 2).
    ///
    /// # Errors
    /// Those of [`Reserved::take`]; nothing is changed then.
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
        // One mini-transaction must not fill a small pool.
        let frames = space.pool().frames() as usize;
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
    /// Those of [`OverflowWriter::append`].
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
