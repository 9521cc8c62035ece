//! Freeing pages.
//!
//! 1. The owner is cleared in the mini-transaction that makes the page unreachable: a crash neither loses the page nor
//!    frees it early.
//! 2. The index is updated while the map is still latched: a thread that reserves the page has to wait for the map.
//! 3. A dropped tree whose pages cannot be read is freed by a *sweep*, which finds its pages by the owners in the maps,
//!    a bounded number of pages at a time. The sweep has no cursor on disk: after a crash it begins anew and finds the
//!    pages that are left. Other trees are freed by following their pages (`btree/dismantle.rs`).

use super::Space;
use super::map::{self, MarkFreed, SetOwner};
use crate::buffer::{LatchedPage, Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TreeId};
use std::sync::atomic::Ordering;

/// The most maps that one step of a sweep reads.
const SWEPT_GROUPS_MAX: u32 = 64;

/// The most pages that one [`Space::free_many`] frees.
const SWEPT_AT_ONCE_MAX: usize = 2048;

impl Space {
    /// Latches what [`Space::free`] and [`Space::free_many`] need for these pages of `tree`: after this, they do not
    /// fail in this mini-transaction, so it may change other pages before it calls them. Call it after all other
    /// latches are taken.
    ///
    /// # Errors
    /// [`Stop::Load`], or [`Error::Corrupt`] if one of the pages is not the tree's; nothing is changed.
    pub fn ready_to_free(&self, mtr: &mut Mtr<'_>, tree: TreeId, pages: &[PageId]) -> Result<(), Stop> {
        self.latch_maps(mtr, pages.iter().copied())?;
        pages.iter().try_for_each(|&page| self.owner_to_free(mtr, page, Some(tree)).map(drop))
    }

    /// Frees a page that `mtr` has latched: latches the space map (after all other latches), logs the owner, and makes
    /// the page [`crate::format::page::PageKind::Freed`]. The page cannot be allocated again before this
    /// mini-transaction has released the map.
    ///
    /// # Errors
    /// [`Stop::Load`], or [`Error::Corrupt`] if the page has no owner. Then nothing is changed.
    pub fn free(&self, mtr: &mut Mtr<'_>, held: LatchedPage) -> Result<(), Stop> {
        let page = mtr.id(held);
        self.latch_maps(mtr, std::iter::once(page))?;
        self.disown(mtr, &[page], None)?;
        mtr.run(held, &MarkFreed { number: page });
        Ok(())
    }

    /// Frees pages of `tree` by number alone: at most 2048 at once, in any order. Nothing may refer to the pages any
    /// more; they are neither read nor written.
    ///
    /// # Errors
    /// [`Stop::Load`], or [`Error::Corrupt`] if one of the pages is not the tree's. Then nothing is changed.
    pub fn free_many(&self, mtr: &mut Mtr<'_>, tree: TreeId, pages: &[PageId]) -> Result<(), Stop> {
        if pages.len() > SWEPT_AT_ONCE_MAX {
            return Err(Error::Usage(format!("{} pages are freed in one mini-transaction", pages.len())).into());
        }
        let mut sorted = pages.to_vec();
        sorted.sort_unstable();
        self.latch_maps(mtr, sorted.iter().copied())?;
        self.freed_by_number.fetch_add(1, Ordering::AcqRel);
        self.disown(mtr, &sorted, Some(tree))
    }

    /// Returns a count that grows whenever pages are freed without a change of their contents. If it is the same at two
    /// latches of a page, then no caller of [`Space::free_many`] that held the page's latch freed the page in between.
    #[inline]
    #[must_use]
    pub fn freed_by_number(&self) -> u64 {
        self.freed_by_number.load(Ordering::Acquire)
    }

    /// Clears the owners of pages, which are sorted and whose maps are latched. Checks all pages before the first
    /// change.
    fn disown(&self, mtr: &mut Mtr<'_>, pages: &[PageId], expected: Option<TreeId>) -> Result<(), Stop> {
        let mut owners = Vec::with_capacity(pages.len());
        for (i, &page) in pages.iter().enumerate() {
            if i > 0 && pages[i - 1] == page {
                return Err(Error::bad_page(page, "it is freed twice in one call").into());
            }
            owners.push(self.owner_to_free(mtr, page, expected)?);
        }
        let mut done = 0;
        while done < pages.len() {
            let first = pages[done];
            let mut count = 1;
            while pages
                .get(done + count)
                .is_some_and(|p| p.0 == first.0 + count as u32 && self.shape.group_of(*p) == self.shape.group_of(first))
            {
                count += 1;
            }
            let map = self.latch_map(mtr, first)?;
            mtr.run(map, &SetOwner { index: self.shape.index_of(first), count: count as u16, owner: TreeId::FREE });
            let mut index = self.index.lock();
            for (&page, &owner) in pages[done..done + count].iter().zip(&owners[done..]) {
                index.release(owner, self.shape.extent_of(page), 1);
            }
            done += count;
        }
        Ok(())
    }

    /// Returns the owner of a page whose map is latched. Fails if the page cannot be freed, or has another owner than
    /// `expected`.
    fn owner_to_free(&self, mtr: &mut Mtr<'_>, page: PageId, expected: Option<TreeId>) -> Result<TreeId, Stop> {
        let map = self.latch_map(mtr, page)?;
        let owner = map::owner(mtr.page(map), self.shape.index_of(page));
        if owner == TreeId::FREE || owner == TreeId::SYSTEM || expected.is_some_and(|tree| tree != owner) {
            let whose = expected.map_or_else(String::new, |tree| format!("tree {tree} "));
            return Err(Error::bad_page(page, format!("{whose}frees it, but its owner is {owner}")).into());
        }
        Ok(owner)
    }

    /// Frees up to `upto` pages that a damaged tree still owns, except `spare`, in its own mini-transaction. Returns
    /// whether none is left. Finds the pages by their owner, so it can be called again after a crash, or for a tree
    /// without pages. Reads a bounded number of maps. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`], [`Error::Poisoned`]; what was freed stays freed.
    pub fn free_tree_step(&self, tree: TreeId, spare: PageId, upto: usize) -> Result<bool> {
        if tree < TreeId::FIRST_USER {
            return Err(Error::Usage(format!("tree {tree} is part of the database and cannot be freed")));
        }
        let begin = self.sweeps.lock().get(&tree).copied().unwrap_or(0);
        let groups = self.shape.groups(self.pages());
        for group in begin..groups {
            if group >= begin.saturating_add(SWEPT_GROUPS_MAX) {
                self.sweeps.lock().insert(tree, group);
                return Ok(false);
            }
            let mut owned = self.owned_of(tree, group)?;
            owned.retain(|&page| page != spare);
            if owned.is_empty() {
                continue;
            }
            owned.truncate(upto.clamp(1, SWEPT_AT_ONCE_MAX));
            self.pool.retry(|| {
                let mut mtr = Mtr::begin(&self.pool, MtrSize::Small)?;
                self.free_many(&mut mtr, tree, &owned)?;
                mtr.commit();
                Ok(())
            })?;
            self.sweeps.lock().insert(tree, group);
            return Ok(false);
        }
        // A dropped tree takes no more pages, so the groups already swept have none.
        self.sweeps.lock().remove(&tree);
        Ok(true)
    }

    fn owned_of(&self, tree: TreeId, group: u32) -> Result<Vec<PageId>> {
        let mut owned = Vec::new();
        self.with_owners(group, |owners| {
            let all = (group * self.shape.group_pages..).zip(owners);
            owned.extend(all.filter(|&(_, &owner)| owner == tree).map(|(page, _)| PageId(page)));
        })?;
        Ok(owned)
    }
}
