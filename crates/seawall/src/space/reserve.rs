//! Setting pages aside for a tree, and taking them.
//!
//! 1. A page is set aside under a shared latch of its map, and becomes owned under an exclusive one: a thread may set
//!    aside a page that is free in the map and not yet set aside.
//! 2. Pages that are not taken are freed when the reservation is dropped.
//! 3. Allocations for new data leave a reserve of free pages for rollback (trap 14), and deletions leave half of it: a
//!    deletion can split a full leaf, and it needs space for undo. Rollback may use any free page of the file.

use super::index::{Claims, Reach};
use super::map::{self, SetOwner};
use super::{Space, header};
use crate::buffer::{LatchedPage, Mtr};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TreeId};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// The most pages that one mini-transaction can take. It needs a frame for each at the same time: a caller that takes
/// more than a few must check how many frames the pool has.
pub const TAKEN_AT_ONCE_MAX: usize = 32;

/// The purpose of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// New data: cannot use the reserve for rollback.
    Grow,
    /// A deletion, or the beginning or preparation of a transaction: may use half of the reserve for rollback.
    Delete,
    /// Rollback, purge or recovery: may use the reserve.
    Undo,
}

/// Pages set aside for one tree, in memory only. Dropping it frees the pages that were not taken.
#[derive(Debug)]
pub struct Reserved<'s> {
    pub(super) space: &'s Space,
    pub(super) tree: TreeId,
    pub(super) pages: VecDeque<PageId>,
}

impl Space {
    /// Sets `pages` pages aside for `tree`, close to `near` if possible. May grow the file. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Io`] and [`Error::Corrupt`] if a map cannot be read. Then nothing is set aside.
    pub fn reserve(&self, tree: TreeId, near: PageId, pages: usize, purpose: Purpose) -> Result<Reserved<'_>> {
        let mut reserved = Reserved { space: self, tree, pages: VecDeque::with_capacity(pages) };
        let claims = self.claim(tree, near, pages, purpose)?;
        for (done, &(extent, count)) in claims.iter().enumerate() {
            if let Err(error) = self.pick(extent, count, near, &mut reserved) {
                // The picked pages are freed with `reserved`, the others here.
                self.index.lock().give_back(tree, &claims[done..]);
                return Err(error);
            }
        }
        Ok(reserved)
    }

    /// Claims pages in the index; grows the file if needed.
    fn claim(&self, tree: TreeId, near: PageId, pages: usize, purpose: Purpose) -> Result<Claims> {
        let claim = |reach| {
            let keep = match purpose {
                Purpose::Grow => self.kept_for_rollback(),
                Purpose::Delete => self.kept_for_rollback() / 2,
                Purpose::Undo => 0,
            };
            self.index.lock().claim(tree, near, pages, keep, reach)
        };
        loop {
            let seen = self.pages.load(Relaxed);
            if let Some(claims) = claim(Reach::Own) {
                return Ok(claims);
            }
            // The file does not grow while its end is free: the fence is lifted first.
            if self.index.lock().lift_fence() {
                continue;
            }
            match self.grow_for(pages, seen) {
                Ok(()) => {}
                Err(no_space @ Error::NoSpace { .. }) => return claim(Reach::Any).ok_or(no_space),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets aside `count` claimed pages of an extent, first those from `near` on. Sets aside all or none.
    pub(super) fn pick(&self, extent: u32, count: u16, near: PageId, reserved: &mut Reserved<'_>) -> Result<()> {
        let first = self.shape.first_of_extent(extent);
        let number = self.shape.map_of(first);
        let begin = if self.shape.extent_of(near) == extent { near.0 - first.0 } else { 0 };
        let picked = self.pool.retry(|| {
            let map = self.pool.shared(number)?;
            map::verify(&map).map_err(|why| Error::bad_page(number, why))?;
            let around = (begin..self.shape.extent_pages).chain(0..begin).map(|i| PageId(first.0 + i));
            let mut index = self.index.lock();
            let picked: Vec<_> = around
                .filter(|&page| map::owner(&map, self.shape.index_of(page)) == TreeId::FREE && index.set_aside(page))
                .take(usize::from(count))
                .collect();
            if picked.len() < usize::from(count) {
                picked.iter().for_each(|&page| index.forget(page));
                let why = format!("its extent {extent} has fewer free pages than the {count} claimed");
                return Err(Error::bad_page(number, why).into());
            }
            Ok(picked)
        })?;
        reserved.pages.extend(picked);
        Ok(())
    }

    /// Returns the number of pages that allocations for new data leave free.
    pub(super) fn kept_for_rollback(&self) -> u64 {
        u64::from((self.pages.load(Relaxed) / 64).clamp(16, 1024))
    }
}

impl Reserved<'_> {
    /// Pages that can still be taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns whether all pages are taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the page that the next `take` will return.
    #[must_use]
    pub fn peek(&self) -> Option<PageId> {
        self.pages.front().copied()
    }

    /// Makes one of the pages the tree's: latches the space map, logs the owner, and returns the page's number and its
    /// fresh frame. Call it after all other latches are taken.
    ///
    /// The first `take` of a mini-transaction makes all remaining pages ready (up to [`TAKEN_AT_ONCE_MAX`]): if it does
    /// not stop, none of the following does. A page must be used in the mini-transaction that took it.
    ///
    /// # Errors
    /// [`Stop::Load`] and [`Stop::Frames`], with nothing changed. [`Error::Usage`] if all pages are taken.
    pub fn take(&mut self, mtr: &mut Mtr<'_>) -> Result<(PageId, LatchedPage), Stop> {
        let held = self.make_ready(mtr, self.pages.len().min(TAKEN_AT_ONCE_MAX))?;
        let page = self.pages.pop_front();
        let page = page.ok_or_else(|| Error::Usage("more pages are taken than were reserved".into()))?;
        self.own(mtr, page)?;
        Ok((page, held[0]))
    }

    /// Takes `count` pages, or stops with nothing changed; for a mini-transaction that takes only a part of a
    /// reservation.
    ///
    /// # Errors
    /// As [`Reserved::take`].
    pub fn take_many(&mut self, mtr: &mut Mtr<'_>, count: usize) -> Result<Vec<(PageId, LatchedPage)>, Stop> {
        if count > self.pages.len().min(TAKEN_AT_ONCE_MAX) {
            return Err(Error::Usage(format!("{count} pages are taken of {} reserved", self.pages.len())).into());
        }
        let held = self.make_ready(mtr, count)?;
        let mut taken = Vec::with_capacity(count);
        for held in held {
            let page = self.pages.pop_front().expect("counted above");
            self.own(mtr, page)?;
            taken.push((page, held));
        }
        Ok(taken)
    }

    /// Does everything that can stop: latches the header and the maps, and gets frames for `count` pages.
    fn make_ready(&self, mtr: &mut Mtr<'_>, count: usize) -> Result<Vec<LatchedPage>, Stop> {
        let pages = || self.pages.iter().copied().take(count);
        self.space.latch_maps(mtr, pages())?;
        pages().map(|page| mtr.fresh(page)).collect()
    }

    /// Logs the tree as the owner of the page. The maps are latched, so this cannot stop.
    fn own(&self, mtr: &mut Mtr<'_>, page: PageId) -> Result<(), Stop> {
        let map = self.space.latch_map(mtr, page)?;
        debug_assert_ne!(page, header::PAGE, "the header is never free");
        mtr.run(map, &SetOwner { index: self.space.shape.index_of(page), count: 1, owner: self.tree });
        self.space.index.lock().taken(page);
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.pages.is_empty() {
            return;
        }
        let mut index = self.space.index.lock();
        for page in self.pages.drain(..) {
            index.untaken(self.tree, page);
        }
    }
}
