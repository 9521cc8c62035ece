//! Pages that were evicted with deferred changes, and the redo records that their copies on the disk lack.
//!
//! Every method runs under the mutex around [`Away`], together with the matching change of the frame's `rec_lsn`
//! ([`super`], 3).

use crate::format::PageId;
use std::collections::{BTreeSet, HashMap};

/// The pages that are away, each with its list (`lists.rs`).
#[derive(Debug)]
pub(in crate::buffer) struct Away<L> {
    /// The lists, except those that a loading thread has taken.
    lists: HashMap<PageId, L>,
    by_age: BTreeSet<(u64, PageId)>,
}

impl<L> Default for Away<L> {
    fn default() -> Self {
        Self { lists: HashMap::new(), by_age: BTreeSet::new() }
    }
}

impl<L> Away<L> {
    /// Adds a page that leaves its frame. Its oldest change begins at `since`.
    pub(in crate::buffer) fn send(&mut self, page: PageId, since: u64, list: L) {
        self.by_age.insert((since, page));
        self.put_back(page, list);
    }

    /// Takes the list of a page that the caller loads. The page counts as away until [`Away::arrived`].
    pub(in crate::buffer) fn take(&mut self, page: PageId) -> Option<L> {
        self.lists.remove(&page)
    }

    /// Returns whether the page is away and no thread has taken its list.
    pub(in crate::buffer) fn has(&self, page: PageId) -> bool {
        self.lists.contains_key(&page)
    }

    /// Puts back the list of a page that the caller took and did not load.
    pub(in crate::buffer) fn put_back(&mut self, page: PageId, list: L) {
        let none = self.lists.insert(page, list);
        debug_assert!(none.is_none(), "a page leaves once");
    }

    /// Removes a page that is no longer away: it is in a frame that is dirty since `since`, was written home, or was
    /// made anew.
    pub(in crate::buffer) fn arrived(&mut self, page: PageId, since: u64) {
        let known = self.by_age.remove(&(since, page));
        debug_assert!(known, "the page was away");
    }

    /// Returns the start of the oldest change.
    pub(in crate::buffer) fn oldest(&self) -> Option<u64> {
        self.by_age.first().map(|&(since, _)| since)
    }

    /// Returns at most `most` pages whose oldest change lies before `lsn`, oldest changes first.
    pub(in crate::buffer) fn older_than(&self, lsn: u64, most: usize) -> Vec<PageId> {
        self.by_age.range(..(lsn, PageId(0))).take(most).map(|&(_, page)| page).collect()
    }

    /// Gives back memory of the map if far fewer pages are away than before.
    pub(in crate::buffer) fn trim(&mut self) {
        if self.lists.capacity() / 4 > self.lists.len() {
            self.lists.shrink_to(2 * self.lists.len());
        }
    }
}
