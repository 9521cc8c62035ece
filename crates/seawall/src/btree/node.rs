//! Reads a node of a tree, which is a slotted page.
//!
//! 1. Every key of a node lies in [lower fence, upper fence); an upper fence may be infinite. The common
//!    prefix of the fences is the prefix of every such key: it is stored once, at the front of the lower
//!    fence, and cut from all keys. With an infinite upper fence the prefix is empty.
//! 2. Slots are sorted by key and grow upward after the hints; keys, payloads and fences lie in the heap, which grows
//!    downward from the page's end. An entry's suffix and payload are contiguous. Unused bytes of the heap are counted
//!    as garbage.
//! 3. A slot's head holds the first four bytes of its suffix, big-endian, zero-filled: comparing heads as
//!    numbers compares the bytes. If heads are equal, the suffixes must be compared.
//! 4. Hint `i` repeats the head of slot `(i + 1) * (count / 17)`; it is in use from 34 entries on.
//! 5. A branch's payload is a child's page number. The key of slot `i` is the lower fence of child `i`; slot
//!    0 stores an empty suffix and stands for the node's own lower fence.
//! 6. [`Node::open`] checks the header once. After that no accessor panics, whatever the slots contain: for a
//!    bad slot it returns [`Damaged`].

use super::Damaged;
use super::entry::Entry;
use crate::format::page::{self, HEADER_BYTES, PageKind, u16_at, u32_at};
use crate::format::{PageId, TreeId};
use std::ops::Range;

/// Offset of the number of slots, `u16`.
pub(super) const COUNT: usize = HEADER_BYTES;
/// Offset of the length of the common prefix, `u16`.
pub(super) const PREFIX_LEN: usize = 34;
/// Offset of the heap's lowest byte, `u16`.
pub(super) const HEAP: usize = 36;
/// Offset of the number of garbage bytes in the heap, `u16`.
pub(super) const GARBAGE: usize = 38;
/// Offset of the lower fence's offset, `u16`; its length follows.
pub(super) const LOWER: usize = 40;
/// Offset of the upper fence's offset, `u16`; its length follows.
pub(super) const UPPER: usize = 44;
/// Offset of the node's flags, `u16`.
pub(super) const FLAGS: usize = 48;
/// Offset of the hints.
pub(super) const HINTS: usize = 52;
/// Number of hints, `u32` each.
pub(super) const HINT_COUNT: usize = 16;
/// Offset of slot 0.
pub(super) const SLOTS: usize = HINTS + 4 * HINT_COUNT;
/// Bytes of a slot: offset `u16`, suffix length `u16`, payload length `u16`, head `u32`.
pub const SLOT_BYTES: usize = 10;
/// Entries are copied in one piece if at most this many other bytes lie between them. That holds for entries
/// inserted in order.
const NEAR_BYTES: usize = 256;
/// Flag: the upper fence is infinite.
pub(super) const UPPER_INFINITE: u16 = 1;

const _: () = assert!(HINTS == FLAGS + 4 && SLOTS == 116, "a format is not changed in passing");
const _: () = assert!(page::PAGE_BYTES_MAX <= u16::MAX as usize, "offsets are u16");

/// The longest key, bytes: 928 in pages of 4 KiB, 1952 in those of 8 KiB, 4000 in those of 16 KiB, 7500 in those of 32
/// KiB. These exceed InnoDB's 768, 1536 and 3072 bytes, so a layer above can add bytes to its keys. A branch has room
/// for four keys of nearly a quarter of a page, so it can have three children, whatever its fences.
#[must_use]
pub const fn key_bytes_max(page_bytes: usize) -> usize {
    if page_bytes / 4 - 96 < 7500 { page_bytes / 4 - 96 } else { 7500 }
}

/// Bytes of a page that slots, entries and fences share.
#[must_use]
pub(super) const fn capacity(page_bytes: usize) -> usize {
    page_bytes - SLOTS
}

/// A decoded slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub at: usize,
    pub key_len: usize,
    pub payload_len: usize,
    pub head: u32,
}

impl Slot {
    /// Bytes that its entry takes in the heap.
    pub(super) fn heap_bytes(self) -> usize {
        self.key_len + self.payload_len
    }
}

/// The slot of a key, or where it would be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The first slot whose key is not less.
    pub slot: usize,
    /// Whether that slot has the key.
    pub found: bool,
}

/// The first four bytes of `suffix` as a number with the same order.
pub(super) fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(first) => u32::from_be_bytes(*first),
        None => {
            let mut bytes = [0; 4];
            bytes[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(bytes)
        }
    }
}

/// Length of the common prefix of two keys.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The shortest key that is greater than `left` and not greater than `right`; `left < right`.
pub(super) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    &right[..(common_prefix(left, right) + 1).min(right.len())]
}

/// Slots between two hints; 0 when hints are not in use.
pub(super) fn hint_distance(count: usize) -> usize {
    if count < 2 * (HINT_COUNT + 1) { 0 } else { count / (HINT_COUNT + 1) }
}

/// The header fields that [`Node::open`] has checked. With them [`Node::again`] reads the same bytes without
/// another check.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opened {
    count: usize,
    prefix_len: usize,
}

/// A page read as a node.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    page: &'a [u8],
    count: usize,
    prefix_len: usize,
}

impl<'a> Node<'a> {
    /// Reads a page as a node.
    ///
    /// # Errors
    /// [`Damaged`] when it is not a node, or its header contradicts itself.
    pub fn open(page: &'a [u8]) -> Result<Self, Damaged> {
        let kind = if page::level(page) == 0 { PageKind::Leaf } else { PageKind::Branch };
        if page[page::KIND] != kind as u8 {
            return Err(Damaged { page: page::number(page), why: "it is not a node of a tree" });
        }
        Self::of(page)
    }

    /// Returns the checked header fields, for [`Node::again`].
    #[must_use]
    pub fn opened(&self) -> Opened {
        Opened { count: self.count, prefix_len: self.prefix_len }
    }

    /// Reads a page without a check: it was opened before with the same header and fences, or is a copy that
    /// has them.
    #[inline]
    #[must_use]
    pub fn again(page: &'a [u8], Opened { count, prefix_len }: Opened) -> Self {
        Self { page, count, prefix_len }
    }

    /// Like [`Node::open`], for a node of a dropped tree, whose root is retired.
    pub(super) fn open_dropped(page: &'a [u8]) -> Result<Self, Damaged> {
        if page[page::KIND] == PageKind::Freed as u8 { Self::of(page) } else { Self::open(page) }
    }

    fn of(page: &'a [u8]) -> Result<Self, Damaged> {
        let node =
            Self { page, count: usize::from(u16_at(page, COUNT)), prefix_len: usize::from(u16_at(page, PREFIX_LEN)) };
        let heap = node.heap();
        if heap > page.len() || SLOTS + node.count * SLOT_BYTES > heap || node.garbage() > page.len() - heap {
            return Err(node.damaged("slots and heap overlap"));
        }
        for fence in [LOWER, UPPER] {
            let (at, len) = node.fence_at(fence);
            if at < heap || at + len > page.len() {
                return Err(node.damaged("a fence lies outside the heap"));
            }
        }
        let shared = if node.has_upper() { node.fence_at(UPPER).1.min(node.fence_at(LOWER).1) } else { 0 };
        if node.prefix_len > shared {
            return Err(node.damaged("the prefix is longer than the fences"));
        }
        Ok(node)
    }

    /// Returns an error about this page.
    #[must_use]
    pub fn damaged(&self, why: &'static str) -> Damaged {
        Damaged { page: page::number(self.page), why }
    }

    /// Its page's number.
    #[must_use]
    pub fn id(&self) -> PageId {
        page::number(self.page)
    }

    /// The tree it belongs to.
    #[must_use]
    pub fn tree(&self) -> TreeId {
        page::tree(self.page)
    }

    /// Levels above the leaves.
    #[must_use]
    pub fn level(&self) -> u8 {
        page::level(self.page)
    }

    /// Returns whether the node is a leaf.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// Number of slots.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes cut from the front of each key.
    #[must_use]
    pub fn prefix_len(&self) -> usize {
        self.prefix_len
    }

    /// The bytes cut from the front of each key.
    #[must_use]
    pub fn prefix(&self) -> &'a [u8] {
        &self.lower()[..self.prefix_len]
    }

    /// The lower fence: the least key of the node's range.
    #[must_use]
    pub fn lower(&self) -> &'a [u8] {
        let (at, len) = self.fence_at(LOWER);
        &self.page[at..at + len]
    }

    /// The upper fence: the least key above the node's range; `None` if it is infinite.
    #[must_use]
    pub fn upper(&self) -> Option<&'a [u8]> {
        let (at, len) = self.fence_at(UPPER);
        self.has_upper().then(|| &self.page[at..at + len])
    }

    /// Returns the upper fence of a node to which `key` has led. It is above `key`, so a walk that continues
    /// there ends.
    ///
    /// # Errors
    /// [`Damaged`] if the fence is not above `key`: the disk lost a write, and the page is a valid old
    /// version.
    pub fn upper_above(&self, key: &[u8]) -> Result<Option<&'a [u8]>, Damaged> {
        match self.upper() {
            Some(upper) if upper <= key => Err(self.damaged("it ends at or below the key that led to it")),
            upper => Ok(upper),
        }
    }

    /// Returns whether the node's range contains `key`.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.lower() <= key && self.upper().is_none_or(|upper| key < upper)
    }

    pub(super) fn has_upper(&self) -> bool {
        u16_at(self.page, FLAGS) & UPPER_INFINITE == 0
    }

    fn fence_at(&self, fence: usize) -> (usize, usize) {
        (usize::from(u16_at(self.page, fence)), usize::from(u16_at(self.page, fence + 2)))
    }

    pub(super) fn heap(&self) -> usize {
        usize::from(u16_at(self.page, HEAP))
    }

    pub(super) fn garbage(&self) -> usize {
        usize::from(u16_at(self.page, GARBAGE))
    }

    /// Free bytes between the slots and the heap.
    pub(super) fn gap(&self) -> usize {
        self.heap() - (SLOTS + self.count * SLOT_BYTES)
    }

    /// Free bytes, including those that only a compaction makes available.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.gap() + self.garbage()
    }

    /// Bytes in use by slots, entries and fences.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        capacity(self.page.len()).saturating_sub(self.free_bytes())
    }

    /// Returns whether the node should be merged with a sibling ([`super::Tree::tidy`]): its entries take
    /// less than a quarter of its capacity, or it is a branch with only one child.
    #[must_use]
    pub fn is_underfull(&self) -> bool {
        let fences = self.fence_at(LOWER).1 + self.fence_at(UPPER).1;
        let entries = self.used_bytes().saturating_sub(fences);
        entries < capacity(self.page.len()) / 4 || (!self.is_leaf() && self.count < 2)
    }

    /// Bytes of the page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page.len()
    }

    pub(super) fn slot(&self, slot: usize) -> Result<Slot, Damaged> {
        if slot >= self.count {
            return Err(self.damaged("a slot beyond the last was asked for"));
        }
        let at = SLOTS + slot * SLOT_BYTES;
        let bytes = &self.page[at..at + SLOT_BYTES];
        Ok(Slot {
            at: usize::from(u16_at(bytes, 0)),
            key_len: usize::from(u16_at(bytes, 2)),
            payload_len: usize::from(u16_at(bytes, 4)),
            head: u32_at(bytes, 6),
        })
    }

    fn head(&self, slot: usize) -> u32 {
        u32_at(self.page, SLOTS + slot * SLOT_BYTES + 6)
    }

    /// The key of a slot without the prefix.
    ///
    /// # Errors
    /// [`Damaged`] when the slot is damaged.
    pub fn suffix(&self, slot: usize) -> Result<&'a [u8], Damaged> {
        let Slot { at, key_len, .. } = self.slot(slot)?;
        self.page.get(at..at + key_len).ok_or_else(|| self.damaged("a slot points outside the page"))
    }

    /// The payload of a slot.
    ///
    /// # Errors
    /// [`Damaged`] when the slot is damaged.
    pub fn payload(&self, slot: usize) -> Result<&'a [u8], Damaged> {
        let Slot { at, key_len, payload_len, .. } = self.slot(slot)?;
        let from = at + key_len;
        self.page.get(from..from + payload_len).ok_or_else(|| self.damaged("a slot points outside the page"))
    }

    /// Sets `key` to the whole key of a slot. For slot 0 of a branch that is the prefix alone; the slot's
    /// separator is [`Node::lower`].
    ///
    /// # Errors
    /// [`Damaged`] when the slot is damaged.
    pub fn key_into(&self, slot: usize, key: &mut Vec<u8>) -> Result<(), Damaged> {
        let suffix = self.suffix(slot)?;
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(suffix);
        Ok(())
    }

    /// The whole key of a slot.
    ///
    /// # Errors
    /// [`Damaged`] when the slot is damaged.
    pub fn key(&self, slot: usize) -> Result<Vec<u8>, Damaged> {
        let mut key = Vec::new();
        self.key_into(slot, &mut key)?;
        Ok(key)
    }

    /// The lower fence of child `slot` of a branch.
    ///
    /// # Errors
    /// [`Damaged`] when the slot is damaged.
    pub fn child_lower(&self, slot: usize) -> Result<Vec<u8>, Damaged> {
        if slot == 0 { Ok(self.lower().to_vec()) } else { self.key(slot) }
    }

    /// The upper fence of child `slot` of a branch; `None` is infinite.
    ///
    /// # Errors
    /// [`Damaged`] when the slot is damaged.
    pub fn child_upper(&self, slot: usize) -> Result<Option<Vec<u8>>, Damaged> {
        if slot + 1 < self.count { Ok(Some(self.key(slot + 1)?)) } else { Ok(self.upper().map(<[u8]>::to_vec)) }
    }

    /// The entry of a leaf's slot.
    ///
    /// # Errors
    /// [`Damaged`] when the slot is damaged or its payload does not decode.
    pub fn entry(&self, slot: usize) -> Result<Entry<'a>, Damaged> {
        Entry::decode(self.payload(slot)?).map_err(|malformed| self.damaged(malformed.0))
    }

    /// Copies these slots to the same positions of `copy`: the header, the fences, the slots and their
    /// entries. All other bytes of `copy` are undefined afterwards. A damaged slot is damaged in the copy,
    /// too.
    ///
    /// # Errors
    /// [`Damaged`] when the node has fewer slots.
    pub(super) fn copy_slots(&self, slots: Range<usize>, copy: &mut Vec<u8>) -> Result<(), Damaged> {
        let page = self.page;
        if slots.end > self.count {
            return Err(self.damaged("a slot beyond the last was asked for"));
        }
        copy.resize(page.len(), 0);
        let mut same = |place: Range<usize>| copy[place.clone()].copy_from_slice(&page[place]);
        same(0..SLOTS);
        for fence in [LOWER, UPPER] {
            let (at, len) = self.fence_at(fence);
            same(at..at + len);
        }
        same(SLOTS + slots.start * SLOT_BYTES..SLOTS + slots.end * SLOT_BYTES);
        let (mut low, mut high, mut bytes) = (page.len(), 0, 0);
        for slot in slots.clone() {
            let slot = self.slot(slot)?;
            (low, high, bytes) = (low.min(slot.at), high.max(slot.at + slot.heap_bytes()), bytes + slot.heap_bytes());
        }
        if high <= page.len() && low < high && high - low <= bytes + NEAR_BYTES {
            same(low..high);
            return Ok(());
        }
        for slot in slots {
            let slot = self.slot(slot)?;
            if slot.at + slot.heap_bytes() <= page.len() {
                same(slot.at..slot.at + slot.heap_bytes());
            }
        }
        Ok(())
    }

    /// The child of a branch's slot.
    ///
    /// # Errors
    /// [`Damaged`] when the slot is damaged or names no page.
    pub fn child(&self, slot: usize) -> Result<PageId, Damaged> {
        match self.payload(slot)?.try_into().map(u32::from_le_bytes) {
            Ok(id) if id != 0 => Ok(PageId(id)),
            _ => Err(self.damaged("a branch's slot names no child")),
        }
    }

    /// Returns the slots to which the hints narrow the search for `head`: the first whose head may be equal,
    /// and one whose head is certainly greater, or the number of slots.
    fn narrow(&self, head: u32) -> (usize, usize) {
        let distance = hint_distance(self.count);
        if distance == 0 {
            return (0, self.count);
        }
        let hints = &self.page[HINTS..SLOTS];
        let (mut less, mut not_greater) = (0, 0);
        for hint in hints.chunks_exact(4) {
            let hint = u32_at(hint, 0);
            less += usize::from(hint < head);
            not_greater += usize::from(hint <= head);
        }
        let from = if less == 0 { 0 } else { less * distance + 1 };
        let to = if not_greater == HINT_COUNT { self.count } else { (not_greater + 1) * distance };
        (from, to)
    }

    fn bound(&self, key: &[u8], first: usize) -> Result<Position, Damaged> {
        match key.strip_prefix(self.prefix()) {
            Some(suffix) => self.bound_of_suffix(suffix, first),
            None => {
                // The key is outside the node's range: comparing it with the prefix shows on which side.
                let slot = if key < self.prefix() { first.min(self.count) } else { self.count };
                Ok(Position { slot, found: false })
            }
        }
    }

    /// Like `bound`, for a key in the node's range. Such a key begins with the prefix, so the prefix, which
    /// lies at the far end of the page, is not read.
    fn bound_inside(&self, key: &[u8], first: usize) -> Result<Position, Damaged> {
        if cfg!(debug_assertions) && !self.covers(key) {
            return Err(self.damaged("the key that led to it is not one of its own"));
        }
        match key.get(self.prefix_len..) {
            Some(suffix) => self.bound_of_suffix(suffix, first),
            None => Err(self.damaged("its prefix is longer than a key that belongs here")),
        }
    }

    fn bound_of_suffix(&self, suffix: &[u8], first: usize) -> Result<Position, Damaged> {
        let head = head_of(suffix);
        let (low, high) = self.narrow(head);
        let (mut low, mut high) = (low.max(first), high);
        while low < high {
            let middle = low.midpoint(high);
            let order = match self.head(middle).cmp(&head) {
                std::cmp::Ordering::Equal => self.suffix(middle)?.cmp(suffix),
                unequal => unequal,
            };
            match order {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(Position { slot: middle, found: true }),
            }
        }
        Ok(Position { slot: low, found: false })
    }

    /// Finds `key`, or where it would be inserted.
    ///
    /// # Errors
    /// [`Damaged`] when a slot that the search reads is damaged.
    pub fn search(&self, key: &[u8]) -> Result<Position, Damaged> {
        self.bound(key, 0)
    }

    /// Finds `key`, which must be in the node's range ([`Node::covers`]), or where it would be inserted.
    ///
    /// # Errors
    /// [`Damaged`] when a slot that the search reads is damaged.
    pub fn search_inside(&self, key: &[u8]) -> Result<Position, Damaged> {
        self.bound_inside(key, 0)
    }

    /// The slot of the child of a branch whose range contains `key`; the first or the last if none does.
    ///
    /// # Errors
    /// [`Damaged`] when a slot that the search reads is damaged, or the branch is empty.
    pub fn child_slot(&self, key: &[u8]) -> Result<usize, Damaged> {
        if self.count == 0 {
            return Err(self.damaged("a branch without children"));
        }
        let at = self.bound(key, 1)?;
        Ok(if at.found { at.slot } else { at.slot.max(1) - 1 })
    }

    /// Like [`Node::child_slot`], for a key in the node's range.
    ///
    /// # Errors
    /// Those of [`Node::child_slot`].
    pub fn child_slot_inside(&self, key: &[u8]) -> Result<usize, Damaged> {
        if self.count == 0 {
            return Err(self.damaged("a branch without children"));
        }
        let at = self.bound_inside(key, 1)?;
        Ok(if at.found { at.slot } else { at.slot.max(1) - 1 })
    }

    /// The slot of the child of a branch whose range contains the largest keys below `key`.
    ///
    /// # Errors
    /// [`Damaged`] when a slot that the search reads is damaged, or the branch is empty.
    pub fn child_slot_below(&self, key: &[u8]) -> Result<usize, Damaged> {
        if self.count == 0 {
            return Err(self.damaged("a branch without children"));
        }
        Ok(self.bound(key, 1)?.slot.max(1) - 1)
    }

    /// Returns whether `bytes` more bytes fit. If they fit only after a compaction, checks the slots first,
    /// so that the compaction cannot fail.
    fn has_room(&self, bytes: usize) -> Result<bool, Damaged> {
        if bytes <= self.gap() {
            return Ok(true);
        }
        if bytes > self.free_bytes() {
            return Ok(false);
        }
        self.check_heap()?;
        Ok(true)
    }

    /// Returns whether a new entry fits. `key_len` is the length of the whole key, bytes.
    ///
    /// # Errors
    /// [`Damaged`] when a slot is damaged.
    pub fn fits_insert(&self, key_len: usize, payload_len: usize) -> Result<bool, Damaged> {
        self.has_room(SLOT_BYTES + key_len.saturating_sub(self.prefix_len) + payload_len)
    }

    /// Returns whether a slot's payload can be replaced by one of this length.
    ///
    /// # Errors
    /// [`Damaged`] when a slot is damaged.
    pub fn fits_replace(&self, slot: usize, payload_len: usize) -> Result<bool, Damaged> {
        let old = self.slot(slot)?;
        self.payload(slot)?;
        if payload_len <= old.payload_len || old.key_len + payload_len <= self.gap() {
            return Ok(true);
        }
        if payload_len - old.payload_len > self.free_bytes() {
            return Ok(false);
        }
        self.check_heap()?;
        Ok(true)
    }

    /// Returns whether a payload of `payload_len` bytes fits for a key of `key_len` bytes for which
    /// [`Node::search`] returned `at`.
    ///
    /// # Errors
    /// [`Damaged`] when a slot is damaged.
    pub fn fits(&self, at: Position, key_len: usize, payload_len: usize) -> Result<bool, Damaged> {
        if at.found { self.fits_replace(at.slot, payload_len) } else { self.fits_insert(key_len, payload_len) }
    }

    /// Checks that slots, fences and garbage add up to the heap. If they do, a compaction cannot fail.
    pub(super) fn check_heap(&self) -> Result<(), Damaged> {
        let heap = self.heap();
        let mut live = self.fence_at(LOWER).1 + self.fence_at(UPPER).1;
        for slot in 0..self.count {
            let slot = self.slot(slot)?;
            if slot.heap_bytes() > 0 && (slot.at < heap || slot.at + slot.heap_bytes() > self.page.len()) {
                return Err(self.damaged("a slot points outside the heap"));
            }
            live += slot.heap_bytes();
        }
        if live + self.garbage() != self.page.len() - heap {
            return Err(self.damaged("the heap does not add up"));
        }
        Ok(())
    }

    /// Checks everything that can be checked in the page alone: bounds, order, heads, hints, payloads.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn validate(&self) -> Result<(), Damaged> {
        self.check_heap()?;
        let (lower, upper) = (self.lower(), self.upper());
        if upper.is_some_and(|upper| lower >= upper) {
            return Err(self.damaged("the fences are not in order"));
        }
        if self.prefix_len != upper.map_or(0, |upper| common_prefix(lower, upper)) {
            return Err(self.damaged("the prefix is not what the fences share"));
        }
        self.validate_places()?;
        let (mut key, mut previous) = (Vec::new(), Vec::new());
        for slot in 0..self.count {
            if self.head(slot) != head_of(self.suffix(slot)?) {
                return Err(self.damaged("a head is not its key's"));
            }
            self.key_into(slot, &mut key)?;
            if slot > 0 && key <= previous {
                return Err(self.damaged("keys are not in order"));
            }
            if self.is_leaf() {
                self.entry(slot)?;
            } else {
                self.child(slot)?;
                if slot == 0 {
                    if key.len() != self.prefix_len {
                        return Err(self.damaged("a branch's first slot has a key"));
                    }
                    key.clear();
                    key.extend_from_slice(lower);
                } else if key == lower {
                    return Err(self.damaged("a child without a range"));
                }
            }
            if !self.covers(&key) {
                return Err(self.damaged("a key outside the fences"));
            }
            std::mem::swap(&mut key, &mut previous);
        }
        if !self.is_leaf() && self.count == 0 {
            return Err(self.damaged("a branch without children"));
        }
        let distance = hint_distance(self.count);
        if distance > 0 && (0..HINT_COUNT).any(|i| u32_at(self.page, HINTS + 4 * i) != self.head((i + 1) * distance)) {
            return Err(self.damaged("a hint is not its slot's head"));
        }
        Ok(())
    }

    /// Checks that no two entries or fences share bytes of the heap.
    fn validate_places(&self) -> Result<(), Damaged> {
        let mut places = vec![self.fence_at(LOWER), self.fence_at(UPPER)];
        for slot in 0..self.count {
            let slot = self.slot(slot)?;
            places.push((slot.at, slot.heap_bytes()));
        }
        places.retain(|place| place.1 > 0);
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return Err(self.damaged("two entries share bytes"));
        }
        Ok(())
    }
}
