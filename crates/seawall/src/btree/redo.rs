//! The redo records of trees.
//!
//! 1. A record is made for a page in a known state: the caller has checked that it fits
//!    ([`Node::fits_insert`] and the like). So applying it cannot fail, now or in recovery.
//! 2. [`redo`] trusts neither body nor page: a record that does not fit is [`Malformed`], never a panic.
//! 3. Slots and lengths are written as varints, keys as suffixes: a record is little longer than the bytes
//!    that it changes.

use super::edit::{self, NewNode};
use super::entry::ENTRY_HEADER_BYTES;
use super::overflow;
use super::record::{TryApply, redo_record, rest, slot};
use crate::buffer::Redo;
use crate::format::tag::INITIALISES;
use crate::format::{Malformed, PageId, Reader, TreeId, TxnId, put_bytes, put_u48, put_varint};

#[cfg(doc)]
use super::node::Node;
#[cfg(doc)]
use crate::format::edits;

/// Builds a node in a page, whatever the page holds.
#[derive(Debug)]
pub(super) struct Build<'a> {
    pub id: PageId,
    pub tree: TreeId,
    pub level: u8,
    pub lower: &'a [u8],
    pub upper: Option<&'a [u8]>,
    pub count: usize,
    pub entries: &'a [u8],
}

redo_record!(Build<'_>, 0x20 | INITIALISES, |self, out| {
    out.extend_from_slice(&self.id.0.to_le_bytes());
    out.extend_from_slice(&self.tree.0.to_le_bytes());
    out.push(self.level);
    put_bytes(out, self.lower);
    put_fence(out, self.upper);
    put_varint(out, self.count as u64);
    out.extend_from_slice(self.entries);
});

impl<'a> TryApply<'a> for Build<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (id, tree, level) = (PageId(body.u32()?), TreeId(body.u32()?), body.u8()?);
        let (lower, upper) = (body.bytes()?, fence(body)?);
        let count = usize::from(slot(body)?);
        Ok(Self { id, tree, level, lower, upper, count, entries: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        let &Self { id, tree, level, lower, upper, count, entries } = self;
        edit::build(page, &NewNode { id, tree, level, lower, upper, count, entries })
    }
}

fn put_fence(out: &mut Vec<u8>, fence: Option<&[u8]>) {
    out.push(u8::from(fence.is_some()));
    put_bytes(out, fence.unwrap_or_default());
}

fn fence<'a>(body: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    let finite = body.u8()? != 0;
    let bytes = body.bytes()?;
    Ok(finite.then_some(bytes))
}

/// Inserts an entry before a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insert<'a> {
    slot: u16,
    suffix: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Insert<'a> {
    /// Puts `key` before `slot` of a node whose prefix is `prefix_len` long. The node's range covers the key,
    /// and the entry fits ([`super::Node::fits_insert`]).
    #[must_use]
    pub fn new(slot: usize, prefix_len: usize, key: &'a [u8], payload: &'a [u8]) -> Self {
        Self { slot: slot as u16, suffix: &key[prefix_len..], payload }
    }
}

redo_record!(Insert<'_>, 0x21, |self, out| {
    put_varint(out, self.slot.into());
    put_bytes(out, self.suffix);
    out.extend_from_slice(self.payload);
});

impl<'a> TryApply<'a> for Insert<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { slot: slot(body)?, suffix: body.bytes()?, payload: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::insert(page, self.slot.into(), self.suffix, self.payload)
    }
}

/// Replaces an entry's payload; the new one fits ([`super::Node::fits_replace`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replace<'a> {
    slot: u16,
    payload: &'a [u8],
}

impl<'a> Replace<'a> {
    /// Replaces the payload of the entry of `slot`.
    #[must_use]
    pub fn new(slot: usize, payload: &'a [u8]) -> Self {
        Self { slot: slot as u16, payload }
    }
}

redo_record!(Replace<'_>, 0x22, |self, out| {
    put_varint(out, self.slot.into());
    out.extend_from_slice(self.payload);
});

impl<'a> TryApply<'a> for Replace<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { slot: slot(body)?, payload: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::replace(page, self.slot.into(), self.payload)
    }
}

/// Replaces the header of a leaf's entry and edits its value ([`edits`]); the new payload fits
/// ([`super::Node::fits_replace`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite<'a> {
    slot: u16,
    header: [u8; ENTRY_HEADER_BYTES],
    changes: &'a [u8],
}

impl<'a> Rewrite<'a> {
    /// Changes the entry of `slot` by edits of its value.
    #[must_use]
    pub fn new(slot: usize, header: [u8; ENTRY_HEADER_BYTES], changes: &'a [u8]) -> Self {
        Self { slot: slot as u16, header, changes }
    }
}

redo_record!(Rewrite<'_>, 0x2a, |self, out| {
    put_varint(out, self.slot.into());
    out.extend_from_slice(&self.header);
    out.extend_from_slice(self.changes);
});

impl<'a> TryApply<'a> for Rewrite<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { slot: slot(body)?, header: body.array()?, changes: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::rewrite(page, self.slot.into(), &self.header, self.changes)
    }
}

/// Overwrites a part of an entry's payload in place: delete marks and headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch<'a> {
    slot: u16,
    at: u16,
    bytes: &'a [u8],
}

impl<'a> Patch<'a> {
    /// Overwrites the payload of `slot` from `at` on; it is at least `at + bytes.len()` long.
    #[must_use]
    pub fn new(slot: usize, at: usize, bytes: &'a [u8]) -> Self {
        Self { slot: slot as u16, at: at as u16, bytes }
    }
}

redo_record!(Patch<'_>, 0x23, |self, out| {
    put_varint(out, self.slot.into());
    put_varint(out, self.at.into());
    out.extend_from_slice(self.bytes);
});

impl<'a> TryApply<'a> for Patch<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { slot: slot(body)?, at: slot(body)?, bytes: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::patch(page, self.slot.into(), self.at.into(), self.bytes)
    }
}

/// Removes an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remove {
    slot: u16,
}

impl Remove {
    /// Removes the entry of `slot`.
    #[must_use]
    pub fn new(slot: usize) -> Self {
        Self { slot: slot as u16 }
    }
}

redo_record!(Remove, 0x24, |self, out| {
    put_varint(out, self.slot.into());
});

impl TryApply<'_> for Remove {
    fn decode(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self::new(slot(body)?.into()))
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::remove(page, self.slot.into())
    }
}

/// The left half of a split: keeps the slots before `keep`, and ends at `upper`.
#[derive(Debug)]
pub(super) struct Truncate<'a> {
    pub keep: u16,
    pub upper: &'a [u8],
}

redo_record!(Truncate<'_>, 0x25, |self, out| {
    put_varint(out, self.keep.into());
    out.extend_from_slice(self.upper);
});

impl<'a> TryApply<'a> for Truncate<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { keep: slot(body)?, upper: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::truncate(page, self.keep.into(), self.upper)
    }
}

/// The left node of a merge: takes the entries and the upper fence of the right sibling.
#[derive(Debug)]
pub(super) struct Append<'a> {
    pub upper: Option<&'a [u8]>,
    pub count: usize,
    pub entries: &'a [u8],
}

redo_record!(Append<'_>, 0x26, |self, out| {
    put_fence(out, self.upper);
    put_varint(out, self.count as u64);
    out.extend_from_slice(self.entries);
});

impl<'a> TryApply<'a> for Append<'a> {
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (upper, count) = (fence(body)?, usize::from(slot(body)?));
        Ok(Self { upper, count, entries: rest(body) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::append(page, self.upper, self.count, self.entries)
    }
}

/// Strips the header of each entry in a leaf that is not marked deleted and whose writer is below the
/// horizon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Elide {
    pub horizon: TxnId,
}

redo_record!(Elide, 0x27, |self, out| {
    put_u48(out, self.horizon.0.min((1 << 48) - 1));
});

impl TryApply<'_> for Elide {
    fn decode(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { horizon: TxnId(body.u48()?) })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::elide(page, TxnId(self.horizon.0.min((1 << 48) - 1)))
    }
}

/// Marks the root of a dropped tree: no descent enters the tree any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retire;

redo_record!(Retire, 0x28, |self, _out| {});

impl TryApply<'_> for Retire {
    fn decode(_: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self)
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::retire(page)
    }
}

/// Removes the children after the first `keep` from a branch of a dropped tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shed {
    pub keep: u16,
}

redo_record!(Shed, 0x29, |self, out| {
    put_varint(out, self.keep.into());
});

impl TryApply<'_> for Shed {
    fn decode(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { keep: slot(body)? })
    }

    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed> {
        edit::shed(page, self.keep.into())
    }
}

fn run<'a, R: TryApply<'a>>(body: &'a [u8], page: &mut [u8]) -> Result<(), Malformed> {
    let mut body = Reader::new(body);
    let record = R::decode(&mut body)?;
    if !body.is_empty() {
        return Err(Malformed("a record longer than its contents"));
    }
    record.try_apply(page)
}

/// Replays a record on a page.
///
/// # Errors
/// When the tag is not a tree's, or the body does not decode or does not fit the page, which may then be half
/// changed.
pub fn redo(tag: u8, body: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    match tag {
        Build::TAG => run::<Build<'_>>(body, page),
        Insert::TAG => run::<Insert<'_>>(body, page),
        Replace::TAG => run::<Replace<'_>>(body, page),
        Patch::TAG => run::<Patch<'_>>(body, page),
        Rewrite::TAG => run::<Rewrite<'_>>(body, page),
        Remove::TAG => run::<Remove>(body, page),
        Truncate::TAG => run::<Truncate<'_>>(body, page),
        Append::TAG => run::<Append<'_>>(body, page),
        Elide::TAG => run::<Elide>(body, page),
        Retire::TAG => run::<Retire>(body, page),
        Shed::TAG => run::<Shed>(body, page),
        overflow::NewList::TAG => run::<overflow::NewList>(body, page),
        overflow::NewData::TAG => run::<overflow::NewData<'_>>(body, page),
        overflow::ListPush::TAG => run::<overflow::ListPush<'_>>(body, page),
        overflow::ListCut::TAG => run::<overflow::ListCut>(body, page),
        overflow::SetNext::TAG => run::<overflow::SetNext>(body, page),
        _ => Err(Malformed("not a record of a tree")),
    }
}
