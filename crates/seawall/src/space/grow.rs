//! Growth of the data file.
//!
//! 1. The file grows first, durably; then the header and the maps of new groups are logged; then the index is extended.
//!    A failure or a crash in between only leaves a longer file, which the next growth uses.
//! 2. A thread that finds free pages does not wait. Growth is a role: a thread that takes the role second finds the
//!    pages that the first one added. No mutex is held while the file grows.
//! 3. The prediction depends on the number of pages used since the last step, not on a clock, so that a run can be
//!    replayed. It begins anew when the file is to be shortened.

use super::Space;
use super::header::{self, Field, InitHeader, SetHeaderField};
use super::map::InitMap;
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TreeId};
use std::sync::atomic::Ordering::Relaxed;

/// The default maximum size of one step of growth, bytes.
pub(super) const GROW_BYTES_MAX: u64 = 64 << 20;

/// Growth ahead of need is at most the file's pages divided by this, or [`GROW_BYTES_MIN`] if that is more.
const GROW_ONE_IN: u32 = 64;

/// The bound of growth ahead of need for a small file, bytes.
const GROW_BYTES_MIN: u64 = 4 << 20;

/// Groups that one mini-transaction adds.
const GROUPS_AT_ONCE: u32 = 4;

/// Steps of background work for which pages are kept ready.
const STEPS_AHEAD: u64 = 4;

/// The history of page use.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Pages in use at the last step.
    used: Option<u64>,
    /// Pages used up between two steps: a recent average.
    rate: u64,
}

impl Growth {
    /// Updates the rate from the pages in use now. Returns how many pages to expect until the next step.
    fn expect(&mut self, used: u64) -> u64 {
        let went = used.saturating_sub(self.used.replace(used).unwrap_or(used));
        // The rate rises to a burst at once, and falls only gradually.
        self.rate = went.max(self.rate - self.rate.div_ceil(4));
        self.rate
    }
}

impl Space {
    /// Sets the most bytes by which one step grows the file ahead of need; rounded up to an extent.
    pub fn set_grow_step(&self, bytes_max: u64) {
        let pages = self.shape.whole_extents((bytes_max / self.pool.page_bytes() as u64).max(1));
        self.grow_pages_max.store(pages.unwrap_or(u32::MAX), Relaxed);
    }

    /// Grows the data file to `pages` pages, durably, for pages that are added later; never makes it shorter. No latch
    /// may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`].
    pub fn grow_file(&self, pages: u32) -> Result<()> {
        let _role = self.growing.take();
        self.pool.grow_file(pages)
    }

    /// Does one step of background work: reads some unread maps or, if there are none, grows the file if the free pages
    /// will not last for the next steps. Returns whether it did anything. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`]; nothing is changed then.
    pub fn grow_step(&self) -> Result<bool> {
        let _role = self.growing.take();
        if self.learn_some()? {
            return Ok(true);
        }
        let (free, open_to_all) = {
            let index = self.index.lock();
            (index.free(), index.open_to_all())
        };
        let ahead = STEPS_AHEAD * self.growth.lock().expect(u64::from(self.pages()) - free);
        let (ahead, extent) =
            (ahead.min(u64::from(self.step_pages_max(self.pages()))), u64::from(self.shape.extent_pages));
        let short = (self.kept_for_rollback() + extent + ahead).saturating_sub(free);
        // A tree that needs an extent next cannot use the free pages in extents of other trees.
        let short = short.max(ahead.saturating_sub(open_to_all));
        if short == 0 {
            return Ok(false);
        }
        self.grow_by(short.max(ahead))?;
        Ok(true)
    }

    /// Returns the most pages by which a file of `pages` grows ahead of need: a small file does not grow by half at
    /// once.
    fn step_pages_max(&self, pages: u32) -> u32 {
        let least = (GROW_BYTES_MIN / self.pool.page_bytes() as u64) as u32;
        self.grow_pages_max.load(Relaxed).min((pages / GROW_ONE_IN).max(least))
    }

    /// Grows the file for a caller that found too few free pages among `seen` pages. Unread maps are read
    /// first: they may have free pages.
    pub(super) fn grow_for(&self, needed: usize, seen: u32) -> Result<()> {
        let _role = self.growing.take();
        if self.pages() > seen || self.learn_some()? {
            return Ok(());
        }
        // One extent more than needed: the caller may need a whole one.
        let short = (needed as u64 + self.kept_for_rollback()).saturating_sub(self.free_pages());
        let needed = short.max(needed as u64) + u64::from(self.shape.extent_pages);
        let ample = needed.max(u64::from(self.step_pages_max(seen)));
        match self.grow_by(ample) {
            Err(Error::NoSpace { .. }) => {}
            grown => return grown,
        }
        match self.grow_by(needed) {
            // Writers have priority over a backup, which holds log files.
            Err(Error::NoSpace { .. }) if self.pool.log().give_way() => self.grow_by(needed),
            grown => grown,
        }
    }

    /// Grows by at least `more` pages. The caller has the role of growing.
    fn grow_by(&self, more: u64) -> Result<()> {
        let target = self.shape.whole_extents(u64::from(self.pages()) + more);
        let target = target.ok_or_else(|| self.no_more_pages(more as usize))?;
        // The log gets its least size first: if data took that disk space, nothing could be deleted, because that needs
        // log.
        self.pool.log().make_least()?;
        self.pool.grow_file(target)?;
        self.extend_to(target)
    }

    /// Makes the header page of a new file.
    pub(super) fn make_header(&self, wanted: u32) -> Result<()> {
        let _role = self.growing.take();
        self.pool.grow_file(wanted)?;
        let pages = wanted.min(self.shape.group_pages);
        self.pool.retry(|| {
            let mut mtr = Mtr::begin(&self.pool, MtrSize::Small)?;
            let number = self.shape.map_of_group(0);
            let (header, map) = (mtr.fresh(header::PAGE)?, mtr.fresh(number)?);
            mtr.run(header, &InitHeader { pages });
            mtr.run(map, &InitMap { number });
            mtr.commit();
            Ok(())
        })?;
        self.index_new(pages);
        self.extend_to(wanted)
    }

    /// Adds the pages up to `target`, which the file already has, to the header, the maps and the index.
    fn extend_to(&self, target: u32) -> Result<()> {
        let group_pages = self.shape.group_pages;
        while self.pages() < target {
            let known = self.shape.groups(self.pages());
            let pages = u64::from(known + GROUPS_AT_ONCE) * u64::from(group_pages);
            let pages = u32::try_from(pages).unwrap_or(u32::MAX).min(target);
            self.pool.retry(|| {
                let mut mtr = Mtr::begin(&self.pool, MtrSize::Small)?;
                let header = self.latch_header(&mut mtr)?;
                let new = (known..self.shape.groups(pages)).map(|group| self.shape.map_of_group(group));
                let maps =
                    new.map(|number| mtr.fresh(number).map(|held| (number, held))).collect::<Result<Vec<_>, Stop>>()?;
                for (number, map) in maps {
                    mtr.run(map, &InitMap { number });
                }
                mtr.run(header, &SetHeaderField { field: Field::Pages, value: pages });
                mtr.commit();
                Ok(())
            })?;
            self.index_new(pages);
        }
        Ok(())
    }

    /// Adds new extents to the index. Only the header page and maps in them have an owner.
    pub(super) fn index_new(&self, pages: u32) {
        let mut index = self.index.lock();
        let first = index.extents();
        for extent in first..pages / self.shape.extent_pages {
            index.add(self.new_owners(extent));
        }
        let end = index.extents();
        index.settle(first..end);
        // Raised before the mutex is released: a thread that claims one of the new pages finds it counted.
        self.pages.store(pages, Relaxed);
    }

    fn new_owners(&self, extent: u32) -> impl Iterator<Item = TreeId> + use<> {
        let shape = self.shape;
        let first = shape.first_of_extent(extent);
        (first.0..first.0 + shape.extent_pages).map(PageId).map(move |page| {
            let system = page == header::PAGE || page == shape.map_of(page);
            if system { TreeId::SYSTEM } else { TreeId::FREE }
        })
    }

    /// Returns the error for a file that has as many pages as page numbers allow.
    pub(super) fn no_more_pages(&self, more: usize) -> Error {
        let needed_bytes = more as u64 * self.pool.page_bytes() as u64;
        Error::NoSpace {
            path: "the data file, which has as many pages as page numbers reach and".into(),
            needed_bytes,
            kept_free_bytes: 0,
        }
    }
}
