//! The page cache of one file, as cachestat(2) reports it.
//!
//! 1. Only buffered reads and writes bring pages in; a direct write evicts the pages it covers.
//! 2. Only clean pages can be dropped.

use crate::image::BLOCK;
use seawall_io::Cached;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

#[derive(Debug, Clone, Default)]
pub(crate) struct PageCache {
    /// Page number to whether the page is dirty.
    pages: BTreeMap<u64, bool>,
}

impl PageCache {
    pub(crate) fn read(&mut self, pages: RangeInclusive<u64>) {
        for page in pages {
            self.pages.entry(page).or_insert(false);
        }
    }

    pub(crate) fn write(&mut self, pages: RangeInclusive<u64>) {
        for page in pages {
            self.pages.insert(page, true);
        }
    }

    pub(crate) fn clean(&mut self, pages: RangeInclusive<u64>) {
        for (_, dirty) in self.pages.range_mut(pages) {
            *dirty = false;
        }
    }

    /// Evicts pages, clean and dirty ones: the device was written behind the cache, or the pages are past
    /// the end.
    pub(crate) fn invalidate(&mut self, pages: RangeInclusive<u64>) {
        let gone: Vec<u64> = self.pages.range(pages).map(|(page, _)| *page).collect();
        for page in gone {
            self.pages.remove(&page);
        }
    }

    /// Drops clean pages and returns their numbers.
    pub(crate) fn drop_clean(&mut self, pages: RangeInclusive<u64>) -> Vec<u64> {
        let gone: Vec<u64> = self.pages.range(pages).filter(|(_, dirty)| !**dirty).map(|(page, _)| *page).collect();
        for page in &gone {
            self.pages.remove(page);
        }
        gone
    }

    pub(crate) fn holds(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    pub(crate) fn is_dirty(&self, page: u64) -> bool {
        self.pages.get(&page) == Some(&true)
    }

    pub(crate) fn cached(&self, pages: RangeInclusive<u64>) -> Cached {
        let resident = self.pages.range(pages.clone()).count() as u64;
        let dirty = self.pages.range(pages.clone()).filter(|(_, dirty)| **dirty).count() as u64;
        Cached {
            resident: resident * BLOCK,
            dirty: Some(dirty * BLOCK),
            writeback: Some(0),
            // This disk never evicts for lack of memory, and Linux does not count what fadvise dropped.
            evicted: Some(0),
        }
    }
}
