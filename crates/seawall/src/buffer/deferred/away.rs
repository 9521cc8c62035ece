//! Pages that are in no frame and not at home, and the redo records that their copies on the disk lack.
//!
//! Every method runs under the mutex around [`Away`], beside the change of the frame's `rec_lsn` that goes with it
//! ([`super`], 3).

use crate::format::{Lsn, PageId};
use std::collections::{BTreeSet, HashMap};

/// Lists grow by so many bytes at least, and by an eighth of a power of two when they are longer: with few sizes, room
/// that one list leaves fits another.
const STEP: usize = 64;

/// Bytes of a record in a list beside its body: its tag and the length of the body.
pub(in crate::buffer) const RECORD_BYTES: usize = 1 + size_of::<u32>();

/// The records that a page on the disk lacks.
#[derive(Debug, Default)]
pub(in crate::buffer) struct List {
    /// Start of the oldest.
    pub(in crate::buffer) since: u64,
    /// The page's LSN before it.
    pub(in crate::buffer) base: Lsn,
    /// The page's LSN after the newest.
    pub(in crate::buffer) end: Lsn,
    /// Tag, length of the body, body.
    pub(in crate::buffer) records: Vec<u8>,
    /// The page has changed since it last came back: without the list, the next eviction would write it.
    pub(in crate::buffer) changed: bool,
}

impl List {
    pub(in crate::buffer) fn push(&mut self, tag: u8, body: &[u8]) {
        let len = self.records.len() + RECORD_BYTES + body.len();
        if len > self.records.capacity() {
            let step = STEP.max(len.next_power_of_two() / 8);
            self.records.reserve_exact(len.next_multiple_of(step) - self.records.len());
        }
        self.changed = true;
        self.records.push(tag);
        self.records.extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.records.extend_from_slice(body);
    }

    /// Tags and bodies.
    pub(in crate::buffer) fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = &self.records[..];
        std::iter::from_fn(move || {
            let (&tag, after) = rest.split_first()?;
            let (len, after) = after.split_first_chunk()?;
            let (body, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rest = after;
            Some((tag, body))
        })
    }
}

/// Pages in no frame whose changes are not at home.
#[derive(Debug, Default)]
pub(in crate::buffer) struct Away {
    /// Without those that a thread brings back.
    lists: HashMap<PageId, List>,
    by_age: BTreeSet<(u64, PageId)>,
}

impl Away {
    /// The page leaves its frame.
    pub(in crate::buffer) fn send(&mut self, page: PageId, list: List) {
        self.by_age.insert((list.since, page));
        self.put_back(page, list);
    }

    /// The list of a page that the caller loads: the page counts as away until [`Away::arrived`].
    pub(in crate::buffer) fn take(&mut self, page: PageId) -> Option<List> {
        self.lists.remove(&page)
    }

    /// Whether the page is away, and no thread brings it back.
    pub(in crate::buffer) fn has(&self, page: PageId) -> bool {
        self.lists.contains_key(&page)
    }

    /// The caller did not load it.
    pub(in crate::buffer) fn put_back(&mut self, page: PageId, list: List) {
        let none = self.lists.insert(page, list);
        debug_assert!(none.is_none(), "a page leaves once");
    }

    /// The page is in a frame that is dirty since then, or at home.
    pub(in crate::buffer) fn arrived(&mut self, page: PageId, since: u64) {
        let known = self.by_age.remove(&(since, page));
        debug_assert!(known, "the page was away");
    }

    /// The list of a page whose changes no longer matter.
    pub(in crate::buffer) fn forget(&mut self, page: PageId) -> Option<List> {
        let list = self.take(page)?;
        self.arrived(page, list.since);
        Some(list)
    }

    /// The oldest change.
    pub(in crate::buffer) fn oldest(&self) -> Option<u64> {
        self.by_age.first().map(|&(since, _)| since)
    }

    /// Pages whose oldest change lies before `lsn`, those with the oldest changes first, at most so many.
    pub(in crate::buffer) fn older_than(&self, lsn: u64, most: usize) -> Vec<PageId> {
        self.by_age.range(..(lsn, PageId(0))).take(most).map(|&(_, page)| page).collect()
    }
}
