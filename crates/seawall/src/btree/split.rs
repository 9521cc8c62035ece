//! Makes room for an entry: by eliding headers, or by a split.
//!
//! 1. One mini-transaction splits one node: the right half goes to a new page, and its lower fence into the
//!    parent. A parent without room for it is split first, in the same way; a root without room first moves
//!    its contents into a child.
//! 2. After a split between any two entries, each half has room for its entries: the separator is no longer
//!    than the bytes that the half loses, and the prefixes of the halves are no shorter. For a split at an
//!    end, where the separator depends on the new key, the bytes are counted.
//! 3. Splitting ends: each step leaves the node on the path to the key with fewer entries, and if it has few
//!    enough, there is always room (proof below).
//! 4. Appending leaves full pages behind, and so does prepending. The last leaf has no upper fence and so no
//!    prefix: when its keys share one, it gets a fence beyond the new key and an empty last leaf after it. So
//!    it fills up like any other leaf. The same holds for the first leaf.
//! 5. Pages are reserved before anything is latched, and every call that can stop ([`Stop`]) precedes the
//!    first change.
//!
//! Why a split succeeds. K is the longest key, E the longest entry ([`entry_bytes_max`], half a page), S a
//! slot, C the capacity of a page for all of these. Fences, separators and keys are at most K long, suffixes
//! no longer than keys.
//!
//! ```text
//!   (a)  2 K + S + E <= C                                      a leaf with one entry, between any fences
//!   (b)  2 K + (S + child) + 2 (S + K + child) <= C            a branch with three children, between any fences
//! ```
//!
//! - Between entries (2): the left half loses at least the slot and suffix of the first entry on the right.
//!   The separator replaces its upper fence: it is no longer than the common prefix and that suffix together,
//!   and the old fence is no shorter than the prefix. The right half loses the last entry on the left. The
//!   separator replaces its lower fence: it is at most one byte longer than that entry's key, and the lost
//!   slot makes up for the byte. In a branch the separator is the key of the right half's first slot, which
//!   no longer stores it.
//! - If a leaf has no room for a new key between two of its entries, it is split between two entries, and the
//!   half to which the key belongs has fewer. So in the end there is room, or the key lies before the first
//!   or after the last entry.
//! - Then the cut is between the key and all entries: the key's leaf is empty and has room by (a). The other
//!   half keeps all entries and gets the separator as a fence. With one entry it has room by (a). With more
//!   entries the bytes are counted; if they do not fit, the cut is one entry further inside. So a large row
//!   between two large rows costs two splits, each of which leaves a whole tree: one leaf becomes three.
//! - A row that grows is in the end alone in its leaf, and has room by (a).
//! - A branch without room for a separator has at least three children by (b): it is split between two of
//!   them.

use super::Damaged;
use super::Tree;
use super::edit::{Packed, elidable_bytes, prefix_between};
use super::entry::{ENTRY_HEADER_BYTES, entry_bytes_max};
use super::node::{Node, SLOT_BYTES, capacity, common_prefix, key_bytes_max, separator};
use super::redo::{Build, Elide, Insert, Truncate};
use crate::buffer::{LatchedPage, Mtr, MtrSize, Pool};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TxnId};
use crate::log::MTR_BYTES_MAX;
use crate::space::{Purpose, Reserved, Space};

/// Bytes of a branch's payload.
pub(super) const CHILD_BYTES: usize = 4;

/// (a) and (b) of the proof above, at each page size.
const _: () = {
    let mut page_bytes = crate::format::page::PAGE_BYTES_MIN;
    while page_bytes <= crate::format::page::PAGE_BYTES_MAX {
        let left = capacity(page_bytes) - 2 * key_bytes_max(page_bytes);
        assert!(SLOT_BYTES + entry_bytes_max(page_bytes) <= left, "one entry");
        let children = 2 * (SLOT_BYTES + key_bytes_max(page_bytes) + CHILD_BYTES);
        assert!(SLOT_BYTES + CHILD_BYTES + children <= left, "three children");
        assert!(key_bytes_max(page_bytes) + ENTRY_HEADER_BYTES < entry_bytes_max(page_bytes));
        // A merge or a growing root logs a page's contents once, with lengths of up to three bytes for each
        // of an entry's two parts.
        assert!(2 * page_bytes + (64 << 10) <= MTR_BYTES_MAX);
        page_bytes *= 2;
    }
};

/// The result of a split at one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// There is room; nothing was changed.
    Room,
    /// The node was split or the root grew, here or by another thread: check again.
    Changed,
    /// The parent needs room for a separator of this many bytes.
    ParentFull(usize),
}

/// What a node needs room for.
#[derive(Debug, Clone, Copy)]
enum Need {
    /// An entry with a payload of this many bytes, in a leaf.
    Payload(usize),
    /// A separator of this many bytes, in a branch.
    Separator(usize),
}

impl Need {
    fn is_met(self, node: &Node<'_>, key: &[u8]) -> Result<bool, Damaged> {
        match self {
            Self::Payload(len) => node.fits(node.search(key)?, key.len(), len),
            Self::Separator(len) => node.fits_insert(len, CHILD_BYTES),
        }
    }
}

/// Where a node is split.
#[derive(Debug)]
pub(super) struct Cut {
    /// The first slot of the right half.
    pub at: usize,
    /// The right half's lower fence.
    pub separator: Vec<u8>,
}

impl Tree {
    /// Makes room for an entry of `key` with a payload of `payload_len` bytes, whether the key exists or not:
    /// elides headers that no view needs (those of entries that are not deleted and whose writer is below
    /// `horizon`), or splits. Another thread may take the room: the caller checks again, and calls again if
    /// needed. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Usage`] when the entry is larger than [`entry_bytes_max`]; those of
    /// reading.
    pub fn make_room(
        &self,
        space: &Space,
        key: &[u8],
        payload_len: usize,
        purpose: Purpose,
        horizon: TxnId,
    ) -> Result<()> {
        let pool = space.pool();
        let page_bytes = pool.page_bytes();
        if key.len() > key_bytes_max(page_bytes) {
            return Err(Error::KeyTooLong { len_bytes: key.len(), max_bytes: key_bytes_max(page_bytes) });
        }
        if key.len() + payload_len > entry_bytes_max(page_bytes) {
            let why = format!("an entry of {} + {payload_len} bytes is too large for a leaf", key.len());
            return Err(Error::Usage(why));
        }
        while let Some(leaf) = pool.retry(|| self.elide_for(pool, key, payload_len, horizon))? {
            self.split_for(space, key, (0, Need::Payload(payload_len)), leaf, purpose)?;
        }
        Ok(())
    }

    /// Returns `None` if the leaf of `key` has room, perhaps after eliding headers; otherwise the page of
    /// that leaf.
    fn elide_for(&self, pool: &Pool, key: &[u8], payload_len: usize, horizon: TxnId) -> Result<Option<PageId>, Stop> {
        let need = Need::Payload(payload_len);
        {
            let leaf = self.leaf_shared(pool, key)?;
            let node = Node::open(&leaf)?;
            if need.is_met(&node, key)? {
                return Ok(None);
            }
            if !is_worth_eliding(&node, key.len() + payload_len, horizon)? {
                return Ok(Some(node.id()));
            }
        }
        let mut mtr = Mtr::begin(pool, MtrSize::Small)?;
        let held = self.leaf_for_change(pool, &mut mtr, key)?;
        let node = Node::open(mtr.page(held))?;
        if need.is_met(&node, key)? {
            return Ok(None);
        }
        if is_worth_eliding(&node, key.len() + payload_len, horizon)? {
            node.validate()?;
            mtr.run(held, &Elide { horizon });
        }
        let node = Node::open(mtr.page(held))?;
        let full = if need.is_met(&node, key)? { None } else { Some(node.id()) };
        mtr.commit();
        Ok(full)
    }

    /// Makes room for a separator of `bytes` bytes in the branch just above the leaf of `key`. No latch may
    /// be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; those of reading.
    pub(super) fn make_room_for_child(&self, space: &Space, key: &[u8], bytes: usize) -> Result<()> {
        self.split_for(space, key, (1, Need::Separator(bytes)), self.root, Purpose::Grow)
    }

    /// Splits the node of the level `lowest`, or finds that it has room. If its parent is full, that is split before,
    /// from as far up as needed.
    fn split_for(&self, space: &Space, key: &[u8], lowest: (u8, Need), near: PageId, purpose: Purpose) -> Result<()> {
        let (mut level, mut need) = lowest;
        loop {
            let mut reserved = space.reserve(self.id, near, 1, purpose)?;
            let outcome = space.pool().retry(|| self.try_split(space.pool(), &mut reserved, key, level, need))?;
            match outcome {
                // The caller looks again. Another page must not be needed for that: there may be none.
                Outcome::Room | Outcome::Changed if level == lowest.0 => return Ok(()),
                Outcome::Room | Outcome::Changed => (level, need) = lowest,
                Outcome::ParentFull(bytes) => (level, need) = (level + 1, Need::Separator(bytes)),
            }
        }
    }

    fn try_split(
        &self,
        pool: &Pool,
        reserved: &mut Reserved<'_>,
        key: &[u8],
        level: u8,
        need: Need,
    ) -> Result<Outcome, Stop> {
        let mut mtr = Mtr::begin(pool, MtrSize::Large)?;
        let Some(parent) = self.latch_on_path(pool, &mut mtr, key, level + 1)? else {
            return self.grow_root(pool, mtr, reserved, key, level, need);
        };
        let above = Node::open(mtr.page(parent))?;
        let slot = above.child_slot(key)?;
        let child = above.child(slot)?;
        let left = mtr.latch(child)?;
        let node = self.open_child(mtr.page(left), child, level)?;
        if need.is_met(&node, key)? {
            return Ok(Outcome::Room);
        }
        node.validate()?;
        let Cut { at, separator } = choose(&node, key)?;
        let above = Node::open(mtr.page(parent))?;
        if !above.fits_insert(separator.len(), CHILD_BYTES)? {
            return Ok(Outcome::ParentFull(separator.len()));
        }
        let above_prefix = above.prefix_len();
        let upper = node.upper().map(<[u8]>::to_vec);
        let prefix_len = prefix_between(&separator, upper.as_deref());
        let packed = Packed::of(&node, at..node.count(), prefix_len, level > 0)?;

        let (id, right) = reserved.take(&mut mtr)?;
        let build = Build {
            id,
            tree: self.id,
            level,
            lower: &separator,
            upper: upper.as_deref(),
            count: packed.count,
            entries: &packed.bytes,
        };
        mtr.run(right, &build);
        mtr.run(left, &Truncate { keep: at as u16, upper: &separator });
        mtr.run(parent, &Insert::new(slot + 1, above_prefix, &separator, &id.0.to_le_bytes()));
        mtr.commit();
        Ok(Outcome::Changed)
    }

    /// Moves the root's contents into a new child, if the root is the node of `level` and the need is not
    /// met.
    fn grow_root(
        &self,
        pool: &Pool,
        mut mtr: Mtr<'_>,
        reserved: &mut Reserved<'_>,
        key: &[u8],
        level: u8,
        need: Need,
    ) -> Result<Outcome, Stop> {
        let held = self.latch_on_path(pool, &mut mtr, key, level)?;
        let Some(root) = held.filter(|&held| mtr.id(held) == self.root) else {
            return Ok(Outcome::Changed);
        };
        let node = Node::open(mtr.page(root))?;
        if need.is_met(&node, key)? {
            return Ok(Outcome::Room);
        }
        node.validate()?;
        let packed = Packed::of(&node, 0..node.count(), 0, level > 0)?;
        let (id, child) = reserved.take(&mut mtr)?;
        self.build_whole(&mut mtr, child, level, packed.count, &packed.bytes);
        let mut only = Packed::default();
        only.push(&[], &id.0.to_le_bytes());
        self.build_whole(&mut mtr, root, level + 1, only.count, &only.bytes);
        mtr.commit();
        Ok(Outcome::Changed)
    }

    /// Makes a page the only node of its level.
    pub(super) fn build_whole(&self, mtr: &mut Mtr<'_>, held: LatchedPage, level: u8, count: usize, entries: &[u8]) {
        let id = mtr.id(held);
        mtr.run(held, &Build { id, tree: self.id, level, lower: &[], upper: None, count, entries });
    }
}

/// Returns whether eliding headers is worth a mini-transaction: it makes room for this entry and some more.
fn is_worth_eliding(node: &Node<'_>, entry_bytes: usize, horizon: TxnId) -> Result<bool, Damaged> {
    let gain = elidable_bytes(node, horizon)?;
    Ok(gain >= node.page_bytes() / 32 && node.free_bytes() + gain >= SLOT_BYTES + entry_bytes)
}

/// Chooses where to split a node that lacks room for `key`, or for a separator on the path to it.
pub(super) fn choose(node: &Node<'_>, key: &[u8]) -> Result<Cut, Damaged> {
    let count = node.count();
    if !node.is_leaf() {
        if count < 2 {
            return Err(node.damaged("a branch of one child without room"));
        }
        let at = match node.child_slot(key)? {
            0 => 1,
            // The last may be the empty leaf that is kept ahead of appends.
            slot if slot + 2 >= count => slot,
            _ => middle(node)?,
        };
        return Ok(Cut { at, separator: node.key(at)? });
    }
    if count == 0 {
        return Err(node.damaged("an empty leaf without room"));
    }
    let position = node.search(key)?;
    if !position.found && position.slot == count {
        if let Some(ahead) = fence_ahead(node, key) {
            return Ok(Cut { at: count, separator: ahead });
        }
        let separator = separator(&node.key(count - 1)?, key).to_vec();
        if left_bytes(node, &separator)? <= capacity(node.page_bytes()) {
            return Ok(Cut { at: count, separator });
        }
        return between(node, count - 1);
    }
    if !position.found && position.slot == 0 {
        if let Some(ahead) = fence_before(node, key) {
            return Ok(Cut { at: 0, separator: ahead });
        }
        let first = node.key(0)?;
        let separator = separator(key, &first).to_vec();
        if right_bytes(node, &separator)? <= capacity(node.page_bytes()) {
            return Ok(Cut { at: 0, separator });
        }
        return between(node, 1);
    }
    between(node, middle(node)?)
}

/// A new fence is so far away that this many leaves as dense as the present one fit before it.
const LEAVES_AHEAD: u64 = 16;

/// Returns whether a prefix of this many bytes saves so much in the leaf that it is worth an empty leaf
/// beside it.
fn is_worth_a_fence(node: &Node<'_>, prefix_len: usize) -> bool {
    node.count() * prefix_len >= node.page_bytes() / 64
}

/// Eight bytes of a key as a number with the same order; missing bytes count as zeroes.
fn window(key: &[u8], from: usize) -> u64 {
    let mut bytes = [0; 8];
    let part = key.get(from..).unwrap_or_default();
    let len = part.len().min(8);
    bytes[..len].copy_from_slice(&part[..len]);
    u64::from_be_bytes(bytes)
}

/// Returns, for the last leaf, a fence beyond `key` that shares with the lower fence most of what the leaf's
/// keys share.
fn fence_ahead(node: &Node<'_>, key: &[u8]) -> Option<Vec<u8>> {
    if node.has_upper() {
        return None;
    }
    let shared = common_prefix(node.lower(), key);
    let from = shared.saturating_sub(6);
    let here = window(key, from);
    let span = here.saturating_sub(window(node.lower(), from));
    let at = (from..shared).rev().find(|&at| {
        let shift = 56 - 8 * (at - from);
        key[at] < 0xff && (((here >> shift) + 1) << shift).wrapping_sub(here) / LEAVES_AHEAD >= span
    })?;
    let mut fence = key[..=at].to_vec();
    fence[at] += 1;
    is_worth_a_fence(node, at).then_some(fence)
}

/// Returns, for the first leaf, a fence not beyond `key` that shares with the upper fence most of what the
/// leaf's keys share.
fn fence_before(node: &Node<'_>, key: &[u8]) -> Option<Vec<u8>> {
    let upper = node.upper().filter(|_| node.lower().is_empty())?;
    let shared = common_prefix(upper, key);
    let from = shared.saturating_sub(6);
    let here = window(key, from);
    let span = window(upper, from).saturating_sub(here);
    // A fence at `from` or before would be at least 2^48 keys away, or share nothing.
    let end = (from + 1..=shared).rev().find(|&end| {
        let beyond = 64 - 8 * (end - from);
        (here & ((1 << beyond) - 1)) / LEAVES_AHEAD >= span
    })?;
    is_worth_a_fence(node, end).then(|| key[..end].to_vec())
}

/// Returns the cut of a leaf before slot `at`, which is not the first.
fn between(node: &Node<'_>, at: usize) -> Result<Cut, Damaged> {
    if at == 0 || at >= node.count() {
        return Err(node.damaged("a leaf of one entry without room"));
    }
    let (left, right) = (node.key(at - 1)?, node.key(at)?);
    Ok(Cut { at, separator: separator(&left, &right).to_vec() })
}

/// Returns a slot near the middle, by bytes, with a short separator before it.
fn middle(node: &Node<'_>) -> Result<usize, Damaged> {
    let count = node.count();
    let bytes = |slot| node.slot(slot).map(|slot| SLOT_BYTES + slot.heap_bytes());
    let mut half = 0;
    for slot in 0..count {
        half += bytes(slot)?;
    }
    half /= 2;
    let (mut at, mut before) = (0, 0);
    while at + 1 < count && before + bytes(at)? / 2 < half {
        before += bytes(at)?;
        at += 1;
    }
    let at = at.clamp(1, (count - 1).max(1));
    let (from, to) = ((at - at / 8).max(1), (at + (count - at) / 8).min(count - 1));
    let (mut best, mut best_len) = (at, usize::MAX);
    // The nearest of the shortest: separators in a branch are read on every descent.
    for distance in 0..=(at - from).max(to.saturating_sub(at)) {
        for slot in [at.wrapping_sub(distance), at + distance] {
            if (from..=to).contains(&slot) {
                let len = if node.is_leaf() {
                    common_prefix(node.suffix(slot - 1)?, node.suffix(slot)?) + 1
                } else {
                    node.suffix(slot)?.len()
                };
                if len < best_len {
                    (best, best_len) = (slot, len);
                }
            }
        }
    }
    Ok(best)
}

/// Bytes that all entries take in a node with these fences.
fn packed_bytes(node: &Node<'_>, lower: &[u8], upper: Option<&[u8]>) -> Result<usize, Damaged> {
    let cut = prefix_between(lower, upper).saturating_sub(node.prefix_len());
    let mut bytes = lower.len() + upper.map_or(0, <[u8]>::len);
    for slot in 0..node.count() {
        let slot = node.slot(slot)?;
        bytes += SLOT_BYTES + slot.heap_bytes() - cut.min(slot.key_len);
    }
    Ok(bytes)
}

fn left_bytes(node: &Node<'_>, separator: &[u8]) -> Result<usize, Damaged> {
    packed_bytes(node, node.lower(), Some(separator))
}

fn right_bytes(node: &Node<'_>, separator: &[u8]) -> Result<usize, Damaged> {
    packed_bytes(node, separator, node.upper())
}
