//! Pages that are in no frame and not at home, and the redo records that their copies on the disk lack.
//!
//! Every method runs under the mutex around [`Away`], beside the change of the frame's `rec_lsn` that goes with it
//! ([`super`], 3).

use crate::format::PageId;
use std::collections::{BTreeSet, HashMap};

/// Pages in no frame whose changes are not at home, each with its list (`lists.rs`).
#[derive(Debug)]
pub(in crate::buffer) struct Away<L> {
    /// Without those that a thread brings back.
    lists: HashMap<PageId, L>,
    by_age: BTreeSet<(u64, PageId)>,
}

impl<L> Default for Away<L> {
    fn default() -> Self {
        Self { lists: HashMap::new(), by_age: BTreeSet::new() }
    }
}

impl<L> Away<L> {
    /// The page leaves its frame; its oldest change begins at `since`.
    pub(in crate::buffer) fn send(&mut self, page: PageId, since: u64, list: L) {
        self.by_age.insert((since, page));
        self.put_back(page, list);
    }

    /// The list of a page that the caller loads: the page counts as away until [`Away::arrived`].
    pub(in crate::buffer) fn take(&mut self, page: PageId) -> Option<L> {
        self.lists.remove(&page)
    }

    /// Whether the page is away, and no thread brings it back.
    pub(in crate::buffer) fn has(&self, page: PageId) -> bool {
        self.lists.contains_key(&page)
    }

    /// The caller did not load it.
    pub(in crate::buffer) fn put_back(&mut self, page: PageId, list: L) {
        let none = self.lists.insert(page, list);
        debug_assert!(none.is_none(), "a page leaves once");
    }

    /// The page is in a frame that is dirty since then, or at home, or made anew.
    pub(in crate::buffer) fn arrived(&mut self, page: PageId, since: u64) {
        let known = self.by_age.remove(&(since, page));
        debug_assert!(known, "the page was away");
    }

    /// The oldest change.
    pub(in crate::buffer) fn oldest(&self) -> Option<u64> {
        self.by_age.first().map(|&(since, _)| since)
    }

    /// Pages whose oldest change lies before `lsn`, those with the oldest changes first, at most so many.
    pub(in crate::buffer) fn older_than(&self, lsn: u64, most: usize) -> Vec<PageId> {
        self.by_age.range(..(lsn, PageId(0))).take(most).map(|&(_, page)| page).collect()
    }

    /// Gives memory back that far fewer pages than before do not need.
    pub(in crate::buffer) fn trim(&mut self) {
        if self.lists.capacity() / 4 > self.lists.len() {
            self.lists.shrink_to(2 * self.lists.len());
        }
    }
}
