//! The map from page number to frame: a two-level array, no hash table. A look-up is two loads; nothing moves when the
//! array grows.
//!
//! 1. A chunk is allocated when the first of its pages comes into memory, and stays.
//! 2. A page without a chunk is not in memory.
#![allow(unsafe_code)]

use super::arena::Mapping;
use super::frame::{Entry, Where};
use crate::error::Result;
use crate::format::PageId;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Number of pages of a chunk.
const CHUNK: usize = 1 << 16;
/// Number of chunks.
const CHUNKS: usize = 1 << 16;

/// Where every page is.
#[derive(Debug)]
pub(super) struct Translation {
    /// `CHUNKS` pointers to `[Entry; CHUNK]`, null at first.
    top: Mapping,
    /// No chunk from this one on has been allocated.
    used: AtomicUsize,
}

impl Translation {
    pub(super) fn new() -> Result<Self> {
        let top = Mapping::reserve(CHUNKS * size_of::<AtomicPtr<Entry>>(), "pool_size_max")?;
        Ok(Self { top, used: AtomicUsize::new(0) })
    }

    #[inline]
    fn slot(&self, chunk: usize) -> &AtomicPtr<Entry> {
        assert!(chunk < CHUNKS, "a chunk of the array");
        // SAFETY: inside the mapping, as just checked.
        let slot = unsafe { self.top.base().cast::<AtomicPtr<Entry>>().add(chunk) };
        // SAFETY: zeroes are a null pointer; the mapping is aligned to pages, and slots are only borrowed shared.
        unsafe { slot.as_ref() }
    }

    #[inline]
    fn existing(&self, page: PageId) -> Option<&Entry> {
        let chunk = self.slot(page.0 as usize / CHUNK).load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a chunk has CHUNK entries.
        let entry = unsafe { chunk.add(page.0 as usize % CHUNK) };
        // SAFETY: chunks are leaked boxes of initialised entries, freed only with `self`.
        Some(unsafe { &*entry })
    }

    /// Returns where the page is.
    #[inline]
    pub(super) fn get(&self, page: PageId) -> Where {
        self.existing(page).map_or(Where::Nowhere, Entry::get)
    }

    /// Memory of the chunks, bytes.
    pub(super) fn bytes(&self) -> usize {
        let there = |&chunk: &usize| !self.slot(chunk).load(Ordering::Acquire).is_null();
        (0..self.used.load(Ordering::Acquire)).filter(there).count() * CHUNK * size_of::<Entry>()
    }

    /// Returns the page's entry, and allocates its chunk if needed.
    pub(super) fn entry(&self, page: PageId) -> &Entry {
        if let Some(entry) = self.existing(page) {
            return entry;
        }
        let chunk = page.0 as usize / CHUNK;
        let new: Box<[Entry]> = (0..CHUNK).map(|_| Entry::new()).collect();
        let new = Box::into_raw(new).cast::<Entry>();
        self.used.fetch_max(chunk + 1, Ordering::AcqRel);
        let null = std::ptr::null_mut();
        if self.slot(chunk).compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: made above by Box::into_raw, with this length; no other thread has seen it.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(new, CHUNK)) });
        }
        self.existing(page).expect("the chunk was just put there")
    }
}

impl Drop for Translation {
    fn drop(&mut self) {
        for chunk in 0..self.used.load(Ordering::Acquire) {
            let entries = self.slot(chunk).load(Ordering::Acquire);
            if !entries.is_null() {
                // SAFETY: made by Box::into_raw with this length; a value that is dropped has no borrows.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(entries, CHUNK)) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_far_apart_have_entries_of_their_own() {
        let map = Translation::new().unwrap();
        for page in [0, 1, 65535, 65536, 1 << 31, u32::MAX] {
            assert_eq!(map.get(PageId(page)), Where::Nowhere);
            assert!(map.entry(PageId(page)).begin_load());
            assert_eq!(map.get(PageId(page)), Where::Loading);
        }
        assert_eq!(map.get(PageId(2)), Where::Nowhere);
        map.entry(PageId(0)).abandon_load();
        assert_eq!(map.get(PageId(0)), Where::Nowhere);
        assert_eq!(map.bytes(), 4 * CHUNK * size_of::<Entry>(), "pages 0 to 65535 share a chunk");
    }
}
