//! Shortening the data file.
//!
//! ```text
//!   fence set ──pages above it are moved down by others──> tail free ──cut: header says fewer pages──> known as shorter
//!     ──checkpoint after the cut──> file made shorter, durably
//! ```
//!
//! 1. While there is a *fence*, no page of an extent at or above it is allocated. It is policy: it is lifted if the
//!    pages below it do not suffice.
//! 2. A tail that is cut is wholly free: no tree owns a page of it, and no page of it is set aside. It is removed from
//!    the index before the header changes, under the role of growing, so no page of it can be allocated.
//! 3. The file is shortened only when the checkpoint lies after the mini-transaction that changed the header
//!    (trap 5), in both slots of the control file. Then no page of the tail is dirty or being written, recovery
//!    meets no older record of one, and copies in the doublewrite file are older than the checkpoint and not used.
//!    Until then the file is longer than the header says, which is always allowed.
//! 4. The file is shortened under the role of growing, to what the header says then: since the last cut that value has
//!    only grown, so no page behind it was in use after that cut. A later cut may have written a value again that an
//!    earlier one wrote, so the checkpoint must lie after the last cut.
//! 5. While a backup holds the file's length ([`FileHold`]), nothing is cut: the log that the backup replays may name a
//!    page of the tail.
//! 6. A page that returns when the file grows again is initialized like any free page. A prefetch of a page that no
//!    longer exists fails; no caller gets that error.

use super::Space;
use super::grow::Growth;
use super::header::{Field, SetHeaderField};
use super::index::Reach;
use super::reserve::Reserved;
use crate::buffer::{Mtr, MtrSize};
use crate::error::Result;
use crate::format::{Lsn, PageId, TreeId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Extents that stay free at the end, so that the file does not grow again at once.
const SPARE_EXTENTS: u64 = 2;

/// While it exists, pages from [`Fence::page`] on are not allocated, as long as the pages below suffice.
#[derive(Debug)]
pub struct Fence<'s> {
    space: &'s Space,
    page: PageId,
    number: u64,
}

impl Fence<'_> {
    /// The first page that is not allocated.
    #[must_use]
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Returns whether the fence still stands: an allocation that needs more pages than are free below it lifts it.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.space.index.lock().is_fenced_by(self.number)
    }

    /// Returns the number of free pages below the fence.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.space.index.lock().free_below_fence()
    }
}

impl Drop for Fence<'_> {
    fn drop(&mut self) {
        let mut index = self.space.index.lock();
        // If it was lifted, another shrink may have set one since.
        if index.is_fenced_by(self.number) {
            index.lift_fence();
        }
    }
}

/// While it exists, the data file is not shortened (5).
#[derive(Debug)]
pub struct FileHold {
    space: Arc<Space>,
}

impl Drop for FileHold {
    fn drop(&mut self) {
        self.space.file_holds.fetch_sub(1, Relaxed);
    }
}

impl Space {
    /// Keeps the data file from being shortened. No latch may be held.
    #[must_use]
    pub fn hold_file(self: &Arc<Self>) -> FileHold {
        // A cut in progress ends first; the next cut finds the hold.
        let _role = self.growing.take();
        self.file_holds.fetch_add(1, Relaxed);
        FileHold { space: self.clone() }
    }

    /// Returns whether `page` has no owner, or is beyond the header's count of pages. No latch may be held.
    ///
    /// # Errors
    /// Those of reading a map.
    pub fn is_free(&self, page: PageId) -> Result<bool> {
        if page.0 >= self.pages() {
            return Ok(true);
        }
        let (group, mut free) = (self.shape.group_of(page), true);
        let index = (page.0 - group * self.shape.group_pages) as usize;
        self.with_owners(group, |owners| free = owners.get(index).is_none_or(|owner| *owner == TreeId::FREE))?;
        Ok(free)
    }

    /// Returns the number of pages that the file needs: the owned pages, and some spare pages.
    #[must_use]
    pub fn pages_needed(&self) -> u32 {
        self.pages_needed_with(self.free_pages())
    }

    fn pages_needed_with(&self, free: u64) -> u32 {
        let used = u64::from(self.pages()).saturating_sub(free);
        let spare = (used / 64).clamp(16, 1024) + SPARE_EXTENTS * u64::from(self.shape.extent_pages);
        // One map for each group.
        let maps = used / u64::from(self.shape.group_pages) + 1;
        let needed = self.shape.whole_extents(used + spare + maps).unwrap_or(u32::MAX);
        needed.min(self.pages())
    }

    /// Sets the fence after the pages that are needed. Returns `None` if there is a fence already, or if the file is
    /// not longer than that.
    #[must_use]
    pub fn fence(&self) -> Option<Fence<'_>> {
        let page = PageId(self.pages_needed());
        if page.0 >= self.pages() {
            return None;
        }
        let number = self.index.lock().set_fence(self.shape.extent_of(page))?;
        *self.growth.lock() = Growth::default();
        Some(Fence { space: self, page, number })
    }

    /// Sets a page below the fence aside for `tree`, even in an extent that policy would give to another tree. Returns
    /// `None` if there is no such page, or no fence. No latch may be held.
    ///
    /// # Errors
    /// Those of reading a map.
    pub fn reserve_below(&self, tree: TreeId, near: PageId) -> Result<Option<Reserved<'_>>> {
        let claims = {
            let mut index = self.index.lock();
            if !index.is_fenced() {
                return Ok(None);
            }
            let own = index.claim(tree, near, 1, 0, Reach::Own);
            own.or_else(|| index.claim(tree, near, 1, 0, Reach::Any))
        };
        let Some(&(extent, count)) = claims.as_ref().and_then(|claims| claims.first()) else { return Ok(None) };
        let mut reserved = Reserved { space: self, tree, pages: VecDeque::new() };
        if let Err(error) = self.pick(extent, count, near, &mut reserved) {
            self.index.lock().give_back(tree, &[(extent, count)]);
            return Err(error);
        }
        Ok(Some(reserved))
    }

    /// Returns the trees that own pages from `page` on. No latch may be held.
    ///
    /// # Errors
    /// Those of reading maps.
    pub fn owners_from(&self, page: PageId) -> Result<BTreeSet<TreeId>> {
        let mut found = BTreeSet::new();
        self.each_group_from(page, |mut owners| {
            owners.dedup();
            found.extend(owners.into_iter().filter(|owner| ![TreeId::FREE, TreeId::SYSTEM].contains(owner)));
            true
        })?;
        Ok(found)
    }

    /// Returns whether `tree` owns a page from `page` on. No latch may be held.
    ///
    /// # Errors
    /// Those of reading maps.
    pub fn owns_from(&self, tree: TreeId, page: PageId) -> Result<bool> {
        let mut owns = false;
        self.each_group_from(page, |owners| {
            owns = owners.contains(&tree);
            !owns
        })?;
        Ok(owns)
    }

    /// Calls `visit` with the owners of the pages from `page` on, group by group, until it returns `false`.
    fn each_group_from(&self, page: PageId, mut visit: impl FnMut(Vec<TreeId>) -> bool) -> Result<()> {
        for group in self.shape.group_of(page)..self.shape.groups(self.pages()) {
            let (before, mut owners) = (page.0.saturating_sub(group * self.shape.group_pages) as usize, Vec::new());
            self.with_owners(group, |all| owners.extend_from_slice(all.get(before..).unwrap_or_default()))?;
            if !visit(owners) {
                break;
            }
        }
        Ok(())
    }

    /// Removes the free extents at the file's end that are not needed ([`Space::pages_needed`]) from the pages that the
    /// header counts. Returns whether the file is now longer than the header says; `false` also if a backup holds the
    /// file. No latch may be held.
    ///
    /// # Errors
    /// The error that stopped the mini-transaction. Then nothing is changed.
    pub fn cut_tail(&self) -> Result<bool> {
        let _role = self.growing.take();
        if self.file_holds.load(Relaxed) > 0 {
            return Ok(false);
        }
        let (before, pages) = {
            let mut index = self.index.lock();
            // Under the mutex: what others have claimed since the fence was set must not cost the reserve for rollback.
            let least = self.pages_needed_with(index.free()).max(self.pages_least());
            let extents = index.cut_tail(self.shape.extent_of(PageId(least)));
            let before = self.pages();
            let pages = extents * self.shape.extent_pages;
            self.pages.store(pages, Relaxed);
            (before, pages)
        };
        if pages < before {
            let logged = self.pool.retry(|| {
                let mut mtr = Mtr::begin(&self.pool, MtrSize::Small)?;
                let header = self.latch_header(&mut mtr)?;
                mtr.run(header, &SetHeaderField { field: Field::Pages, value: pages });
                mtr.commit();
                Ok(())
            });
            if let Err(error) = logged {
                self.index_new(before);
                return Err(error);
            }
        }
        // A tail that was cut before may not have been given back, because of a backup or a crash.
        let longer = self.pool.file_pages() > pages;
        if longer {
            self.cut_at.store(self.pool.log().head().0, Relaxed);
        }
        Ok(longer)
    }

    /// Shortens the file to the length that the header says, if a checkpoint lies after the last cut. Otherwise returns
    /// `false`, and the file stays longer. No latch may be held.
    ///
    /// # Errors
    /// [`crate::Error::Io`]; a failed flush poisons.
    pub fn shorten(&self) -> Result<bool> {
        let _role = self.growing.take();
        let passed = self.pool.checkpoint_lsn() >= Lsn(self.cut_at.load(Relaxed));
        if self.file_holds.load(Relaxed) > 0 || !passed {
            return Ok(false);
        }
        // The other slot of the control block may have a checkpoint before the cut.
        self.pool.control().update(|_| ()).map_err(|error| self.pool.health().poison(error))?;
        self.pool.cut_file(self.pages())?;
        Ok(true)
    }

    /// Returns the fewest pages of a file: one extent.
    fn pages_least(&self) -> u32 {
        self.shape.extent_pages
    }

    /// Returns the most bytes that a compaction of the whole file would free.
    #[must_use]
    pub fn reclaimable_bytes(&self) -> u64 {
        let pages = self.pool.file_pages().saturating_sub(self.pages_needed());
        u64::from(pages) * self.pool.page_bytes() as u64
    }
}
