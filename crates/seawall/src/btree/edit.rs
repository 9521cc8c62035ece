//! In-place changes of a tree's node. Each change here is the whole effect of one redo record: the forward
//! path and recovery run the same code.
//!
//! 1. The bytes after a change depend only on the bytes before it and the arguments: no clock, no address, no
//!    hash order.
//! 2. Checksum and LSN are never touched.
//! 3. A change that does not fit the page is refused with [`Malformed`] and never panics, whatever the page
//!    holds; the page may then be half changed.
//! 4. Hints in use always agree with the slots.

use super::Damaged;
use super::entry::{ENTRY_HEADER_BYTES, Entry, HEADER, VERSION_BYTES};
use super::node::{
    COUNT, FLAGS, GARBAGE, HEAP, HINT_COUNT, HINTS, LOWER, Node, PREFIX_LEN, SLOT_BYTES, SLOTS, Slot, UPPER,
    UPPER_INFINITE, common_prefix, head_of, hint_distance,
};
use crate::format::page::{self, PageKind, set_u16, set_u32, u32_at};
use crate::format::{Malformed, PageId, Reader, TreeId, TxnId, edits, put_bytes};

impl From<Damaged> for Malformed {
    fn from(damaged: Damaged) -> Self {
        Self(damaged.why)
    }
}

fn number(value: usize) -> Result<u16, Malformed> {
    u16::try_from(value).ok().ok_or(Malformed("a number beyond the page"))
}

fn set_slot(page: &mut [u8], slot: usize, value: Slot) -> Result<(), Malformed> {
    let bytes = page.get_mut(SLOTS + slot * SLOT_BYTES..).and_then(|rest| rest.get_mut(..SLOT_BYTES));
    let bytes = bytes.ok_or(Malformed("a slot beyond the page"))?;
    set_u16(bytes, 0, number(value.at)?);
    set_u16(bytes, 2, number(value.key_len)?);
    set_u16(bytes, 4, number(value.payload_len)?);
    set_u32(bytes, 6, value.head);
    Ok(())
}

/// Updates the hints after the slots from `changed` on have moved and their number has changed from `before`
/// to `count`.
fn refresh_hints(page: &mut [u8], changed: usize, before: usize, count: usize) {
    let distance = hint_distance(count);
    if distance == 0 {
        return;
    }
    let first = if hint_distance(before) == distance { (changed / distance).max(1) - 1 } else { 0 };
    for hint in first..HINT_COUNT {
        let head = u32_at(page, SLOTS + (hint + 1) * distance * SLOT_BYTES + 6);
        set_u32(page, HINTS + 4 * hint, head);
    }
}

/// Writes the header of a node; zeroes everything except checksum and LSN.
fn init(page: &mut [u8], id: PageId, tree: TreeId, kind: PageKind, level: u8) {
    let (crc, lsn) = (u32_at(page, page::CRC), page::lsn(page));
    page::init(page, id, tree, kind, level);
    set_u32(page, page::CRC, crc);
    page::set_u64(page, page::LSN, lsn.0);
}

/// Lays out a node's contents from the page's end downward, in the order of its slots.
struct Layout<'p> {
    page: &'p mut [u8],
    at: usize,
    count: usize,
}

impl<'p> Layout<'p> {
    /// Begins with the fences. The page must have its header. The rest of the page is overwritten or unused.
    fn begin(page: &'p mut [u8], lower: &[u8], upper: Option<&[u8]>) -> Result<Self, Malformed> {
        let end = page.len();
        let mut layout = Self { page, at: end, count: 0 };
        let lower_at = layout.put(&[lower])?;
        let upper_at = layout.put(&[upper.unwrap_or_default()])?;
        let page = &mut *layout.page;
        set_u16(page, LOWER, number(lower_at)?);
        set_u16(page, LOWER + 2, number(lower.len())?);
        set_u16(page, UPPER, number(upper_at)?);
        set_u16(page, UPPER + 2, number(upper.map_or(0, <[u8]>::len))?);
        set_u16(page, FLAGS, if upper.is_none() { UPPER_INFINITE } else { 0 });
        set_u16(page, PREFIX_LEN, number(prefix_between(lower, upper))?);
        Ok(layout)
    }

    fn put(&mut self, parts: &[&[u8]]) -> Result<usize, Malformed> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if SLOTS + self.count * SLOT_BYTES + len > self.at {
            return Err(Malformed("more than fits a page"));
        }
        self.at -= len;
        let mut at = self.at;
        for part in parts {
            self.page[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(self.at)
    }

    /// Adds an entry whose suffix is given in two parts.
    fn push(&mut self, front: &[u8], back: &[u8], payload: &[u8]) -> Result<(), Malformed> {
        self.count += 1;
        let at = self.put(&[front, back, payload])?;
        let key_len = front.len() + back.len();
        let head = head_of(&self.page[at..at + key_len]);
        set_slot(self.page, self.count - 1, Slot { at, key_len, payload_len: payload.len(), head })
    }

    fn finish(self) -> Result<(), Malformed> {
        set_u16(self.page, COUNT, number(self.count)?);
        set_u16(self.page, HEAP, number(self.at)?);
        set_u16(self.page, GARBAGE, 0);
        refresh_hints(self.page, 0, 0, self.count);
        Ok(())
    }
}

/// Length of the prefix of a node with these fences.
pub(super) fn prefix_between(lower: &[u8], upper: Option<&[u8]>) -> usize {
    upper.map_or(0, |upper| common_prefix(lower, upper))
}

/// Entries for a node, encoded as in redo bodies: `suffix, payload`, each preceded by its length.
#[derive(Debug, Clone, Default)]
pub(super) struct Packed {
    /// Number of entries.
    pub count: usize,
    /// The entries.
    pub bytes: Vec<u8>,
}

impl Packed {
    /// Adds an entry.
    pub(super) fn push(&mut self, suffix: &[u8], payload: &[u8]) {
        self.count += 1;
        put_bytes(&mut self.bytes, suffix);
        put_bytes(&mut self.bytes, payload);
    }

    /// Packs slots `slots` of `node` for a node with a prefix of `prefix_len` bytes. With `first_of_branch`,
    /// the first of them becomes slot 0 of a branch.
    pub(super) fn of(
        node: &Node<'_>,
        slots: std::ops::Range<usize>,
        prefix_len: usize,
        first_of_branch: bool,
    ) -> Result<Self, Damaged> {
        let mut packed = Self { count: 0, bytes: Vec::with_capacity(node.page_bytes()) };
        let mut key = Vec::new();
        for slot in slots.clone() {
            if first_of_branch && slot == slots.start {
                packed.push(&[], node.payload(slot)?);
                continue;
            }
            if !node.is_leaf() && slot == 0 {
                key.clear();
                key.extend_from_slice(node.lower());
            } else {
                node.key_into(slot, &mut key)?;
            }
            let suffix = key.get(prefix_len..).ok_or_else(|| node.damaged("a key shorter than its node's prefix"))?;
            packed.push(suffix, node.payload(slot)?);
        }
        Ok(packed)
    }
}

/// A node to be built in a page, whatever the page holds.
pub(super) struct NewNode<'a> {
    pub id: PageId,
    pub tree: TreeId,
    pub level: u8,
    pub lower: &'a [u8],
    pub upper: Option<&'a [u8]>,
    pub count: usize,
    /// Encoded as in [`Packed`].
    pub entries: &'a [u8],
}

/// Builds the node in the page.
pub(super) fn build(page: &mut [u8], new: &NewNode<'_>) -> Result<(), Malformed> {
    let kind = if new.level == 0 { PageKind::Leaf } else { PageKind::Branch };
    init(page, new.id, new.tree, kind, new.level);
    let mut layout = Layout::begin(page, new.lower, new.upper)?;
    push_packed(&mut layout, new.count, new.entries)?;
    layout.finish()
}

/// Marks the root of a dropped tree, so that no descent enters the tree. Its contents stay.
pub(super) fn retire(page: &mut [u8]) -> Result<(), Malformed> {
    if !matches!(page::kind(page), Some(PageKind::Leaf | PageKind::Branch | PageKind::Freed)) {
        return Err(Malformed("the root of a dropped tree is not a node"));
    }
    page[page::KIND] = PageKind::Freed as u8;
    Ok(())
}

/// Removes the children from slot `keep` on from a branch of a dropped tree. The heap is not updated, because
/// no entry is added to the branch any more.
pub(super) fn shed(page: &mut [u8], keep: usize) -> Result<(), Malformed> {
    let node = Node::open_dropped(page).map_err(|damaged| Malformed(damaged.why))?;
    if node.is_leaf() || keep > node.count() {
        return Err(Malformed("more children are kept than a branch has"));
    }
    set_u16(page, COUNT, keep as u16);
    Ok(())
}

fn push_packed(layout: &mut Layout<'_>, count: usize, entries: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(entries);
    for _ in 0..count {
        let suffix = reader.bytes()?;
        let payload = reader.bytes()?;
        layout.push(&[], suffix, payload)?;
    }
    if reader.is_empty() { Ok(()) } else { Err(Malformed("more entries than counted")) }
}

/// Rewrites the heap without garbage, in the order of the slots.
fn compact(page: &mut [u8]) -> Result<(), Malformed> {
    let node = Node::open(page)?;
    let (heap, count) = (node.heap(), node.count());
    let old = page[heap..].to_vec();
    let piece = |at: usize, len: usize| {
        let from = at.checked_sub(heap).ok_or(Malformed("a slot points outside the heap"))?;
        old.get(from..from + len).ok_or(Malformed("a slot points outside the heap"))
    };
    let mut at = page.len();
    let mut place = |page: &mut [u8], bytes: &[u8]| {
        at = at.checked_sub(bytes.len()).filter(|&at| at >= heap).ok_or(Malformed("the heap does not add up"))?;
        page[at..at + bytes.len()].copy_from_slice(bytes);
        Ok::<_, Malformed>(at)
    };
    for fence in [LOWER, UPPER] {
        let (from, len) = (page::u16_at(page, fence), page::u16_at(page, fence + 2));
        let at = place(page, piece(usize::from(from), usize::from(len))?)?;
        set_u16(page, fence, number(at)?);
    }
    for slot in 0..count {
        let mut value = Node::open(page)?.slot(slot)?;
        value.at =
            if value.heap_bytes() == 0 { page.len() } else { place(page, piece(value.at, value.heap_bytes())?)? };
        set_slot(page, slot, value)?;
    }
    set_u16(page, HEAP, number(at)?);
    set_u16(page, GARBAGE, 0);
    Ok(())
}

/// Allocates `bytes` bytes of the heap, compacting it if needed; `slot_bytes` more must stay free for a slot.
/// Returns their offset.
fn allocate(page: &mut [u8], bytes: usize, slot_bytes: usize) -> Result<usize, Malformed> {
    let node = Node::open(page)?;
    if bytes + slot_bytes > node.gap() {
        if bytes + slot_bytes > node.free_bytes() {
            return Err(Malformed("no room in the node"));
        }
        compact(page)?;
    }
    let node = Node::open(page)?;
    if bytes + slot_bytes > node.gap() {
        return Err(Malformed("the heap does not add up"));
    }
    let at = node.heap() - bytes;
    set_u16(page, HEAP, number(at)?);
    Ok(at)
}

fn add_garbage(page: &mut [u8], bytes: usize) -> Result<(), Malformed> {
    let garbage = usize::from(page::u16_at(page, GARBAGE)) + bytes;
    set_u16(page, GARBAGE, number(garbage)?);
    Ok(())
}

/// Inserts a new entry before `slot`.
pub(super) fn insert(page: &mut [u8], slot: usize, suffix: &[u8], payload: &[u8]) -> Result<(), Malformed> {
    let node = Node::open(page)?;
    let count = node.count();
    if slot > count || (slot == 0 && !node.is_leaf()) {
        return Err(Malformed("a slot that cannot be inserted"));
    }
    let at = allocate(page, suffix.len() + payload.len(), SLOT_BYTES)?;
    page[at..at + suffix.len()].copy_from_slice(suffix);
    page[at + suffix.len()..at + suffix.len() + payload.len()].copy_from_slice(payload);
    let from = SLOTS + slot * SLOT_BYTES;
    page.copy_within(from..SLOTS + count * SLOT_BYTES, from + SLOT_BYTES);
    set_slot(page, slot, Slot { at, key_len: suffix.len(), payload_len: payload.len(), head: head_of(suffix) })?;
    set_u16(page, COUNT, number(count + 1)?);
    refresh_hints(page, slot, count, count + 1);
    Ok(())
}

/// Removes an entry.
pub(super) fn remove(page: &mut [u8], slot: usize) -> Result<(), Malformed> {
    let node = Node::open(page)?;
    let (count, old) = (node.count(), node.slot(slot)?);
    if slot == 0 && !node.is_leaf() {
        return Err(Malformed("a branch's first slot cannot be removed"));
    }
    add_garbage(page, old.heap_bytes())?;
    let from = SLOTS + slot * SLOT_BYTES;
    page.copy_within(from + SLOT_BYTES..SLOTS + count * SLOT_BYTES, from);
    set_u16(page, COUNT, number(count - 1)?);
    refresh_hints(page, slot, count, count - 1);
    Ok(())
}

/// Replaces an entry's payload.
pub(super) fn replace(page: &mut [u8], slot: usize, payload: &[u8]) -> Result<(), Malformed> {
    let node = Node::open(page)?;
    let old = node.slot(slot)?;
    if payload.len() <= old.payload_len {
        let from = old.at + old.key_len;
        let place = page.get_mut(from..from + payload.len()).ok_or(Malformed("a slot points outside the page"))?;
        place.copy_from_slice(payload);
        add_garbage(page, old.payload_len - payload.len())?;
        return set_slot(page, slot, Slot { payload_len: payload.len(), ..old });
    }
    let suffix = node.suffix(slot)?.to_vec();
    // The old bytes must count as garbage before a compaction.
    add_garbage(page, old.heap_bytes())?;
    set_slot(page, slot, Slot { key_len: 0, payload_len: 0, ..old })?;
    let at = allocate(page, suffix.len() + payload.len(), 0)?;
    page[at..at + suffix.len()].copy_from_slice(&suffix);
    page[at + suffix.len()..at + suffix.len() + payload.len()].copy_from_slice(payload);
    set_slot(page, slot, Slot { at, key_len: suffix.len(), payload_len: payload.len(), head: old.head })
}

/// Replaces the header of an entry of a leaf, and changes its value by edits ([`edits`]).
pub(super) fn rewrite(
    page: &mut [u8],
    slot: usize,
    header: &[u8; ENTRY_HEADER_BYTES],
    changes: &[u8],
) -> Result<(), Malformed> {
    let old = Node::open(page)?.slot(slot)?;
    let from = old.at + old.key_len;
    let payload = page.get_mut(from..from + old.payload_len).ok_or(Malformed("a slot points outside the page"))?;
    if Entry::has_header_in(payload) {
        let (head, value) = payload.split_at_mut(ENTRY_HEADER_BYTES);
        if edits::apply_in_place(value, changes)? {
            head.copy_from_slice(header);
            return Ok(());
        }
    }
    let mut new = Vec::with_capacity(ENTRY_HEADER_BYTES + payload.len() + changes.len());
    new.extend_from_slice(header);
    edits::apply(Entry::value_in(payload), changes, &mut new)?;
    replace(page, slot, &new)
}

/// Overwrites bytes of an entry's payload.
pub(super) fn patch(page: &mut [u8], slot: usize, at: usize, bytes: &[u8]) -> Result<(), Malformed> {
    let old = Node::open(page)?.slot(slot)?;
    if at + bytes.len() > old.payload_len {
        return Err(Malformed("a patch beyond the payload"));
    }
    let from = old.at + old.key_len + at;
    let place = page.get_mut(from..from + bytes.len()).ok_or(Malformed("a slot points outside the page"))?;
    place.copy_from_slice(bytes);
    Ok(())
}

/// Keeps the slots before `keep` and ends the node at `upper`: the left half of a split.
pub(super) fn truncate(page: &mut [u8], keep: usize, upper: &[u8]) -> Result<(), Malformed> {
    let old = page.to_vec();
    let node = Node::open(&old)?;
    let mut layout = Layout::begin(page, node.lower(), Some(upper))?;
    let cut = prefix_between(node.lower(), Some(upper))
        .checked_sub(node.prefix_len())
        .ok_or(Malformed("a smaller fence that shares less"))?;
    for slot in 0..keep {
        let suffix = if slot == 0 && !node.is_leaf() {
            &[][..]
        } else {
            node.suffix(slot)?.get(cut..).ok_or(Malformed("a key shorter than its node's prefix"))?
        };
        layout.push(&[], suffix, node.payload(slot)?)?;
    }
    layout.finish()
}

/// Ends the node at `upper` and adds the entries of the right sibling, packed for the prefix that the new
/// fences share.
pub(super) fn append(page: &mut [u8], upper: Option<&[u8]>, count: usize, entries: &[u8]) -> Result<(), Malformed> {
    let old = page.to_vec();
    let node = Node::open(&old)?;
    let mut layout = Layout::begin(page, node.lower(), upper)?;
    let prefix_len = prefix_between(node.lower(), upper);
    let back = node.prefix().get(prefix_len..).ok_or(Malformed("a larger fence that shares more"))?;
    for slot in 0..node.count() {
        let front = if slot == 0 && !node.is_leaf() { &[][..] } else { back };
        layout.push(front, node.suffix(slot)?, node.payload(slot)?)?;
    }
    push_packed(&mut layout, count, entries)?;
    layout.finish()
}

/// Strips the header of each entry that can do without it ([`Entry::is_elidable`]).
pub(super) fn elide(page: &mut [u8], horizon: TxnId) -> Result<(), Malformed> {
    let node = Node::open(page)?;
    if !node.is_leaf() {
        return Err(Malformed("headers are elided in leaves only"));
    }
    let mut gained = 0;
    for slot in 0..node.count() {
        let node = Node::open(page)?;
        let old = node.slot(slot)?;
        let entry = node.entry(slot)?;
        if !entry.is_elidable(horizon) {
            continue;
        }
        let flags = entry.flags & !HEADER;
        // Suffix and flags move up over the header; the value stays where it is.
        page.copy_within(old.at..old.at + old.key_len, old.at + VERSION_BYTES);
        let at = old.at + VERSION_BYTES;
        page[at + old.key_len] = flags;
        set_slot(page, slot, Slot { at, payload_len: old.payload_len - VERSION_BYTES, ..old })?;
        gained += VERSION_BYTES;
    }
    add_garbage(page, gained)
}

/// Bytes that [`elide`] would free.
pub(super) fn elidable_bytes(node: &Node<'_>, horizon: TxnId) -> Result<usize, Damaged> {
    let mut gain = 0;
    for slot in 0..node.count() {
        // The first bytes rule out most entries without decoding.
        let payload = node.payload(slot)?;
        if payload.first().is_some_and(|flags| flags & HEADER != 0)
            && Entry::decode(payload).is_ok_and(|e| e.is_elidable(horizon))
        {
            gain += VERSION_BYTES;
        }
    }
    Ok(gain)
}
