//! Page ownership and allocation. See DESIGN.md, "Space".
//!
//! 1. The owner of a page is recorded in the space map of its group. The maps are pages and are changed only through
//!    redo. Everything in memory is rebuilt from them: from the first maps and the last by [`Space::open`], from the
//!    others by `Space::learn_some`, when space is needed or background work has time.
//! 2. Pages are reserved before latches are taken, and taken inside the mini-transaction. A page set aside has no owner
//!    in its map, so a crash frees it.
//! 3. A mini-transaction takes the latches of this layer after all its other latches: the header page first, then maps,
//!    then fresh frames. The header orders mini-transactions that change several maps, so these can latch the maps in
//!    any order.
//! 4. Each call here does everything that can stop (latches, frames) before its first change. A caller that changes
//!    several things in one mini-transaction makes them ready first ([`Space::ready_to_free`], or `take` before
//!    anything else is changed).
//! 5. A page is allocated again only after the mini-transaction that freed it has released its map.
//!
//! ```text
//!   free ──reserve, reserve_run──> set aside ──take──> owned ──free, free_many, free_tree_step──> free
//!                                      └──drop──> free
//! ```

mod check;
mod free;
mod grow;
mod header;
mod index;
mod map;
mod reserve;
mod run;
mod shrink;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use check::Check;
pub use reserve::{Purpose, Reserved, TAKEN_AT_ONCE_MAX};
pub use shrink::{Fence, FileHold};

use crate::buffer::role::Role;
use crate::buffer::{LatchedPage, Mtr, Pool, Prefetcher, Redo};
use crate::counted::Mutex;
use crate::error::{Error, Result, Stop};
use crate::format::{Malformed, PageId, TreeId};
use grow::Growth;
use header::{Field, InitHeader, SetHeaderField};
use index::Index;
use map::{InitMap, MarkFreed, SetOwner, Shape};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The number of maps named together to the prefetcher while the index is built.
const MAPS_NAMED: u32 = 4096;

/// Bytes of maps read before the database is open.
const READ_AT_OPEN: usize = 64 << 20;
/// The number of maps read in one step later.
const READ_LATER: u32 = 256;

/// The pages of the data file and their owners.
#[derive(Debug)]
pub struct Space {
    pool: Arc<Pool>,
    shape: Shape,
    /// The header page's count of pages; raised last when the file grows.
    pages: AtomicU32,
    index: Mutex<Index>,
    /// The role of the thread that grows the file. A thread that finds free pages does not take it.
    growing: Role,
    /// The number of backups in progress: while there are any, the file is not shortened (`shrink.rs`, 5).
    file_holds: AtomicU32,
    /// An LSN after the last cut of the file's tail.
    cut_at: AtomicU64,
    growth: Mutex<Growth>,
    /// The most pages of one step of growth ahead of need.
    grow_pages_max: AtomicU32,
    /// The group where `free_tree_step` continues, by tree; a hint.
    sweeps: Mutex<HashMap<TreeId, u32>>,
    /// See [`Space::freed_by_number`].
    freed_by_number: AtomicU64,
}

/// Replays a record of this layer.
///
/// # Errors
/// If the body does not decode, or does not fit the page.
pub fn redo(tag: u8, body: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    match tag {
        InitHeader::TAG => InitHeader::decode(body)?.apply(page),
        SetHeaderField::TAG => SetHeaderField::decode(body, page)?.apply(page),
        InitMap::TAG => InitMap::decode(body)?.apply(page),
        SetOwner::TAG => SetOwner::decode(body, page)?.apply(page),
        MarkFreed::TAG => MarkFreed::decode(body)?.apply(page),
        _ => return Err(Malformed("no record of space has this tag")),
    }
    Ok(())
}

/// Decodes a space map or the header page. Returns the number of pages with an owner. For tests that pass
/// damaged pages.
///
/// # Errors
/// The first inconsistency.
#[doc(hidden)]
#[cfg(feature = "internals")]
pub fn read_page(page: &[u8]) -> Result<usize, String> {
    if map::verify(page).is_ok() {
        let pages = Shape::of(page.len()).group_pages as u16;
        return Ok((0..pages).filter(|&index| map::owner(page, index) != TreeId::FREE).count());
    }
    header::verify(page).map(|()| 0)
}

impl Space {
    /// Creates the header page and the first maps of the data file, which grows to `initial_pages`, rounded up to whole
    /// extents.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`].
    pub fn create(pool: Arc<Pool>, initial_pages: u32) -> Result<Self> {
        let space = Self::empty(pool, 0);
        let wanted = space.shape.whole_extents(u64::from(initial_pages.max(1)));
        let wanted = wanted.ok_or_else(|| space.no_more_pages(initial_pages as usize))?;
        space.make_header(wanted)?;
        Ok(space)
    }

    /// Opens the space: reads the header page, the first 64 MiB of maps, and the last map.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn open(pool: Arc<Pool>) -> Result<Self> {
        let maps = (READ_AT_OPEN / pool.page_bytes()) as u32;
        Self::open_reading(pool, maps)
    }

    /// Like [`Space::open`], but reads only the first `maps` maps and the last.
    fn open_reading(pool: Arc<Pool>, maps: u32) -> Result<Self> {
        let pages = pool.retry(|| {
            let header = pool.shared(header::PAGE)?;
            header::verify(&header).map_err(|why| Error::bad_page(header::PAGE, why))?;
            Ok(Field::Pages.get(&header))
        })?;
        let space = Self::empty(pool, pages);
        let groups = space.shape.groups(pages);
        let early = groups.min(maps.max(1));
        // The file grows in the last group: its map is read now.
        let last = (groups - 1).max(early);
        for some in [0..early, last..groups] {
            let mut ahead = Prefetcher::default().sure();
            for group in some.clone() {
                if (group - some.start) % MAPS_NAMED == 0 {
                    let named = group..some.end.min(group + MAPS_NAMED);
                    ahead.name(named.map(|group| space.shape.map_of_group(group)));
                }
                ahead.next_is_due(&space.pool, usize::MAX);
                space.with_owners(group, |owners| {
                    let mut index = space.index.lock();
                    for extent in owners.chunks_exact(space.shape.extent_pages as usize) {
                        index.add(extent.iter().copied());
                    }
                })?;
                ahead.came_to(space.shape.map_of_group(group));
            }
            if some.start == 0 {
                let per_group = space.shape.group_pages / space.shape.extent_pages;
                space.index.lock().add_unread((last - early) * per_group);
            }
        }
        {
            let mut index = space.index.lock();
            let extents = index.extents();
            index.settle(0..extents);
        }
        space.nothing_beyond()?;
        Ok(space)
    }

    /// Reads some unread maps. Returns whether there were any. The caller has the role of growing. No latch may be
    /// held.
    fn learn_some(&self) -> Result<bool> {
        let (unread, per_group) = (self.index.lock().unread(), self.shape.group_pages / self.shape.extent_pages);
        let (first, last) = (unread.start / per_group, unread.end / per_group);
        let some = first..last.min(first + READ_LATER);
        if some.is_empty() {
            return Ok(false);
        }
        let mut ahead = Prefetcher::default().sure();
        ahead.name(some.clone().map(|group| self.shape.map_of_group(group)));
        for group in some {
            ahead.next_is_due(&self.pool, usize::MAX);
            self.with_owners(group, |owners| self.index.lock().learn(owners))?;
            ahead.came_to(self.shape.map_of_group(group));
        }
        Ok(true)
    }

    /// Reads all unread maps. Threads that need the file to grow wait for some of them, not for all. No latch may be
    /// held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn learn_all(&self) -> Result<()> {
        while {
            let _role = self.growing.take();
            self.learn_some()?
        } {}
        Ok(())
    }

    /// Returns the number of pages whose maps have not been read since the opening: they count as in use, but for no
    /// tree.
    pub fn unread_pages(&self) -> u64 {
        self.index.lock().unread().len() as u64 * u64::from(self.shape.extent_pages)
    }

    /// Checks that the last map has no owner for a page that the file does not have yet: growth assumes that such pages
    /// are free.
    fn nothing_beyond(&self) -> Result<()> {
        let Some(group) = self.shape.groups(self.pages()).checked_sub(1) else { return Ok(()) };
        let (number, first) = (self.shape.map_of_group(group), group * self.shape.group_pages);
        let beyond = self.pool.retry(|| {
            let map = self.pool.shared(number)?;
            let mut new = (self.pages() - first) as u16..self.shape.group_pages as u16;
            Ok(new.find(|&index| map::owner(&map, index) != TreeId::FREE))
        })?;
        beyond.map_or(Ok(()), |index| {
            let (page, end) = (first + u32::from(index), self.pages());
            Err(Error::bad_page(number, format!("it gives page {page} to a tree, but the file ends before page {end}")))
        })
    }

    fn empty(pool: Arc<Pool>, pages: u32) -> Self {
        let shape = Shape::of(pool.page_bytes());
        Self {
            shape,
            pages: AtomicU32::new(pages),
            index: Mutex::new(Index::new(shape)),
            growing: Role::default(),
            file_holds: AtomicU32::new(0),
            cut_at: AtomicU64::new(0),
            growth: Mutex::default(),
            grow_pages_max: AtomicU32::new((grow::GROW_BYTES_MAX / pool.page_bytes() as u64) as u32),
            sweeps: Mutex::default(),
            freed_by_number: AtomicU64::new(0),
            pool,
        }
    }

    /// The buffer pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Pages of the file that may be owned.
    pub fn pages(&self) -> u32 {
        self.pages.load(Relaxed)
    }

    /// Pages that are neither owned nor set aside, including those kept for rollback.
    pub fn free_pages(&self) -> u64 {
        self.index.lock().free()
    }

    /// Returns the number of pages that a tree owns or has set aside, as far as the maps have been read. Takes a mutex
    /// briefly and reads no page.
    pub fn pages_of(&self, tree: TreeId) -> u32 {
        self.index.lock().pages_of(tree)
    }

    /// Returns whether a tree may own more than `pages` pages. Takes a mutex briefly and reads no page.
    pub fn may_own_more(&self, tree: TreeId, pages: u64) -> bool {
        let index = self.index.lock();
        !index.unread().is_empty() || u64::from(index.pages_of(tree)) > pages
    }

    // --- the header page -----------------------------------------------------------------------------------

    /// Allocates the next tree id. Latches the header page, after all other latches except maps. No two trees ever have
    /// the same id: if a crash loses the mini-transaction, its id is allocated again, but then no tree has that id.
    ///
    /// # Errors
    /// [`Stop::Load`]; nothing is changed then.
    pub fn new_tree_id(&self, mtr: &mut Mtr<'_>) -> Result<TreeId, Stop> {
        let held = self.latch_header(mtr)?;
        let tree = Field::NextTree.get(mtr.page(held));
        let next = tree.checked_add(1).ok_or_else(|| Error::Usage("all ids of trees have been given".into()))?;
        mtr.run(held, &SetHeaderField { field: Field::NextTree, value: next });
        Ok(TreeId(tree))
    }

    /// The root page of the catalog; [`PageId::NONE`] until it is set.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn catalog_root(&self) -> Result<PageId> {
        Ok(PageId(self.header_field(Field::CatalogRoot)?))
    }

    /// Sets the root page of the catalog. Latches the header page.
    ///
    /// # Errors
    /// [`Stop::Load`]; nothing is changed then.
    pub fn set_catalog_root(&self, mtr: &mut Mtr<'_>, root: PageId) -> Result<(), Stop> {
        let held = self.latch_header(mtr)?;
        mtr.run(held, &SetHeaderField { field: Field::CatalogRoot, value: root.0 });
        Ok(())
    }

    /// The first page of the undo directory; [`PageId::NONE`] until it is set.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn undo_directory(&self) -> Result<PageId> {
        Ok(PageId(self.header_field(Field::UndoDirectory)?))
    }

    /// Sets the first page of the undo directory. Latches the header page.
    ///
    /// # Errors
    /// [`Stop::Load`]; nothing is changed then.
    pub fn set_undo_directory(&self, mtr: &mut Mtr<'_>, page: PageId) -> Result<(), Stop> {
        let held = self.latch_header(mtr)?;
        mtr.run(held, &SetHeaderField { field: Field::UndoDirectory, value: page.0 });
        Ok(())
    }

    fn header_field(&self, field: Field) -> Result<u32> {
        self.pool.retry(|| Ok(field.get(&self.pool.shared(header::PAGE)?)))
    }

    fn latch_header(&self, mtr: &mut Mtr<'_>) -> Result<LatchedPage, Stop> {
        mtr.latch(header::PAGE)
    }

    // --- maps ----------------------------------------------------------------------------------------------

    /// Returns the owner of a page. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; [`Error::Usage`] when the file has no such page.
    pub fn owner(&self, page: PageId) -> Result<TreeId> {
        self.known(page)?;
        self.pool.retry(|| {
            let number = self.shape.map_of(page);
            let map = self.pool.shared(number)?;
            map::verify(&map).map_err(|why| Error::bad_page(number, why))?;
            Ok(map::owner(&map, self.shape.index_of(page)))
        })
    }

    /// Returns the map that has the page's owner.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the file has no such page.
    pub fn map_of(&self, page: PageId) -> Result<PageId> {
        self.known(page)?;
        Ok(self.shape.map_of(page))
    }

    /// Returns whether `tree` owns a page. A page that the file does not have has no owner. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn is_owner(&self, tree: TreeId, page: PageId) -> Result<bool> {
        match self.owner(page) {
            Err(_) if page.0 >= self.pages() => Ok(false),
            owner => Ok(owner? == tree),
        }
    }

    /// Calls `visit` with every page that `tree` owns, in order. No latch may be held; none is held while
    /// `visit` runs.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`], or the error of `visit`.
    pub fn for_each_owned(&self, tree: TreeId, mut visit: impl FnMut(PageId) -> Result<()>) -> Result<()> {
        for group in 0..self.shape.groups(self.pages()) {
            let mut owned = Vec::new();
            self.with_owners(group, |owners| {
                let all = (group * self.shape.group_pages..).zip(owners);
                owned.extend(all.filter(|&(_, &owner)| owner == tree).map(|(page, _)| PageId(page)));
            })?;
            owned.into_iter().try_for_each(&mut visit)?;
        }
        Ok(())
    }

    /// Calls `visit` once with the owners of a group's pages, up to the end of the file, under a latch of the map:
    /// `visit` must not wait. Does not call it if the group has been cut off.
    fn with_owners(&self, group: u32, mut visit: impl FnMut(&[TreeId])) -> Result<()> {
        let number = self.shape.map_of_group(group);
        let Some(left) = self.pages().checked_sub(group * self.shape.group_pages).filter(|left| *left > 0) else {
            return Ok(());
        };
        let count = left.min(self.shape.group_pages) as u16;
        let mut owners = Vec::with_capacity(usize::from(count));
        self.pool.retry(|| {
            let map = self.pool.shared(number)?;
            map::verify(&map).map_err(|why| Error::bad_page(number, why))?;
            owners.extend((0..count).map(|index| map::owner(&map, index)));
            visit(&owners);
            Ok(())
        })
    }

    /// Latches the header page, then the maps of `pages`. After this, no call that needs the maps of these pages stops
    /// this mini-transaction.
    fn latch_maps(&self, mtr: &mut Mtr<'_>, pages: impl Iterator<Item = PageId>) -> Result<(), Stop> {
        self.latch_header(mtr)?;
        let mut last = PageId::NONE;
        for page in pages {
            let map = self.shape.map_of(page);
            if map != last {
                self.latch_map(mtr, page)?;
                last = map;
            }
        }
        Ok(())
    }

    fn latch_map(&self, mtr: &mut Mtr<'_>, page: PageId) -> Result<LatchedPage, Stop> {
        self.known(page)?;
        let number = self.shape.map_of(page);
        let held = mtr.latch(number)?;
        map::verify(mtr.page(held)).map_err(|why| Error::bad_page(number, why))?;
        Ok(held)
    }

    /// Checks that the file has the page.
    fn known(&self, page: PageId) -> Result<()> {
        let pages = self.pages();
        if page.0 < pages {
            return Ok(());
        }
        Err(Error::bad_page(page, format!("something refers to it, but the file has {pages} pages")))
    }
}
