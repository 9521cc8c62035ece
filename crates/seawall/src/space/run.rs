//! Setting aside consecutive pages (a *run*), for leaves that are read in order.
//!
//! 1. A run lies in one extent. The extent is wholly free, so that no other tree's pages come between; or the run
//!    continues where another ended, as long as pages are free there. A small tree, which has no extents of its own,
//!    takes consecutive free pages of a shared extent if there are any.
//! 2. If no extent is wholly free, the file grows. Single free pages are not a run, however many there are.
//! 3. A run cannot use the reserve for rollback.

use super::Space;
use super::map;
use super::reserve::Reserved;
use crate::error::{Error, Result};
use crate::format::{PageId, TreeId};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// The number of shared extents that are searched for a run.
const TRIED_MAX: usize = 8;
/// Free pages directly after `after` are used only if there are at least this many, or as many as are wanted.
const BEHIND_MIN: u16 = 8;
/// The number of extents in which other threads may take the pages first. If more fail, the index and the maps
/// contradict each other.
const FAILED_MAX: usize = 64;

impl Space {
    /// Sets up to `pages` consecutive pages aside for `tree`: those directly after `after` if enough are free there;
    /// otherwise as many as requested, or as an extent has in a row (two fewer if it has a map). May grow the file. No
    /// latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`], even if there are single free pages; [`Error::Io`] and [`Error::Corrupt`] if a map cannot be
    /// read. Then nothing is set aside.
    pub fn reserve_run(&self, tree: TreeId, after: PageId, pages: usize) -> Result<Reserved<'_>> {
        let wanted = pages.clamp(1, self.shape.extent_pages as usize) as u16;
        if after != PageId::NONE {
            let behind = self.reserve_behind(tree, after, wanted)?;
            if behind.len() >= usize::from(wanted.min(BEHIND_MIN)) {
                return Ok(behind);
            }
        }
        let mut tried = Vec::new();
        loop {
            let (seen, keep) = (self.pages.load(Relaxed), self.kept_for_rollback());
            let shared = (tried.len() < TRIED_MAX).then_some(&tried[..]);
            let claimed = self.index.lock().claim_run(tree, after, wanted, keep, shared);
            let Some((extent, wanted)) = claimed else {
                if self.index.lock().lift_fence() {
                    continue;
                }
                self.grow_for(usize::from(wanted), seen)?;
                continue;
            };
            let begin = self.shape.first_of_extent(extent);
            let picked = self.pick_run(begin, wanted, wanted);
            if let Ok(pages @ [_, ..]) = picked.as_deref() {
                return Ok(Reserved { space: self, tree, pages: pages.iter().copied().collect() });
            }
            self.index.lock().give_back(tree, &[(extent, wanted)]);
            picked?;
            tried.push(extent);
            if tried.len() > FAILED_MAX {
                let why = format!("its extent {extent} has no {wanted} free pages in a row, though it is free");
                return Err(Error::bad_page(self.shape.map_of(begin), why));
            }
        }
    }

    /// Sets aside the free pages directly after `after`, if there are any.
    fn reserve_behind(&self, tree: TreeId, after: PageId, wanted: u16) -> Result<Reserved<'_>> {
        let mut reserved = Reserved { space: self, tree, pages: VecDeque::new() };
        let begin = PageId(after.0 + 1);
        let claimed = self.index.lock().claim_in(tree, begin, wanted, self.kept_for_rollback());
        let Some((extent, count)) = claimed else { return Ok(reserved) };
        let picked = self.pick_run(begin, 0, count);
        let found = picked.as_ref().map_or(0, |pages| pages.len() as u16);
        if found < count {
            self.index.lock().give_back(tree, &[(extent, count - found)]);
        }
        reserved.pages.extend(picked?);
        Ok(reserved)
    }

    /// Sets aside the first run of at least `least` and at most `most` free pages of an extent, from `begin` on; with a
    /// `least` of 0, the free pages that begin at `begin` itself. Returns no pages if there is no such run.
    fn pick_run(&self, begin: PageId, least: u16, most: u16) -> Result<Vec<PageId>> {
        let number = self.shape.map_of(begin);
        let end = self.shape.first_of_extent(self.shape.extent_of(begin)).0 + self.shape.extent_pages;
        self.pool.retry(|| {
            let map = self.pool.shared(number)?;
            map::verify(&map).map_err(|why| Error::bad_page(number, why))?;
            let mut index = self.index.lock();
            let mut run = Vec::new();
            for page in (begin.0..end).map(PageId) {
                if map::owner(&map, self.shape.index_of(page)) == TreeId::FREE && !index.is_aside(page) {
                    run.push(page);
                } else if run.len() < usize::from(least) {
                    run.clear();
                } else {
                    break;
                }
                if run.len() == usize::from(most) {
                    break;
                }
            }
            if run.len() < usize::from(least) {
                run.clear();
            }
            for &page in &run {
                index.set_aside(page);
            }
            Ok(run)
        })
    }
}
