//! The index of free pages, in memory: eight bytes for each extent, rebuilt from the maps when the file is opened, or
//! later.
//!
//! 1. `free` of an extent is the number of its pages without an owner in the map, less those claimed or set aside. So a
//!    thread that claimed `k` pages finds at least `k` pages in the map that are neither owned nor set aside by another
//!    thread.
//! 2. An extent belongs to one tree, is shared by small trees, or is wholly free: no tree owns a page of it. The map at
//!    the beginning of an extent belongs to no tree, so an extent with a map is allocated like any other, only with
//!    fewer pages. This is policy: it guides allocation, and code that frees or owns a page never depends on it.
//! 3. `whole` and `headed` hold exactly the wholly free extents, `whole` those without a map and `headed` those with
//!    one. A partial set holds exactly the extents of its owner that have a free page.
//! 4. Only the position of an *unread* extent is known: it has no free page to allocate, its pages count for no tree,
//!    and freeing a page there changes nothing. It is read under a latch of its map, so each change of an owner comes
//!    wholly before or wholly after that. Unread extents are contiguous.
//! 5. Nothing here waits: the mutex around the index is innermost, and no latch is taken and no page is read while it
//!    is held.

use super::map::Shape;
use crate::format::{PageId, TreeId};
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// The most pages of a tree without its own extents.
pub(super) const SMALL_TREE_PAGES: u32 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    owner: Owner,
    free: u16,
}

/// The owner of an extent: a tree's id, or one of the two below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner(u32);

impl Owner {
    const NONE: Self = Self(0);
    const SHARED: Self = Self(u32::MAX);
}

const _: () = assert!(size_of::<Extent>() == 8);

#[derive(Debug, Default)]
struct Tree {
    pages: u32,
    partial: BTreeSet<u32>,
}

/// The claimed `(extent, pages)`.
pub(super) type Claims = SmallVec<[(u32, u16); 4]>;

/// The extents that a claim may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those that policy gives the tree.
    Own,
    /// Every extent with a free page: the file cannot grow.
    Any,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Index {
    shape: Shape,
    extents: Vec<Extent>,
    whole: BTreeSet<u32>,
    headed: BTreeSet<u32>,
    shared: BTreeSet<u32>,
    trees: HashMap<TreeId, Tree>,
    /// Pages set aside and not owned yet.
    aside: HashSet<u32>,
    /// Extents from here on are not allocated.
    fence: u32,
    /// The number of fences so far.
    fences: u64,
    /// The extent where the search for any free page continues.
    rover: u32,
    free: u64,
    /// The extents that are unread.
    unread: Range<u32>,
}

/// Returns the member of `set` below `fence` that is nearest at or after `at`, or else the nearest before `at`.
fn nearest(set: &BTreeSet<u32>, at: u32, fence: u32) -> Option<u32> {
    let at = at.min(fence);
    set.range(at..fence).next().or_else(|| set.range(..at).next_back()).copied()
}

impl Index {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            extents: Vec::new(),
            whole: BTreeSet::new(),
            headed: BTreeSet::new(),
            shared: BTreeSet::new(),
            trees: HashMap::new(),
            aside: HashSet::new(),
            fence: u32::MAX,
            fences: 0,
            rover: 0,
            free: 0,
            unread: 0..0,
        }
    }

    // --- building ------------------------------------------------------------------------------------------

    /// Adds the next extent, with the owners of its pages. [`Index::settle`] follows when all are added.
    pub(super) fn add(&mut self, owners: impl Iterator<Item = TreeId>) {
        let extent = self.look(owners);
        self.extents.push(extent);
    }

    /// Adds unread extents. Called at most once, before extents are added after them.
    pub(super) fn add_unread(&mut self, extents: u32) {
        let first = self.extents();
        self.unread = first..first + extents;
        self.extents.resize(self.unread.end as usize, Extent { owner: Owner::NONE, free: 0 });
    }

    /// Enters the owners of the pages of the next unread extents. The caller holds a latch of their map.
    pub(super) fn learn(&mut self, owners: &[TreeId]) {
        let first = self.unread.start;
        for owners in owners.chunks_exact(self.shape.extent_pages as usize) {
            self.extents[self.unread.start as usize] = self.look(owners.iter().copied());
            self.unread.start += 1;
        }
        debug_assert!(self.unread.start <= self.unread.end, "they were unread");
        self.settle(first..self.unread.start);
    }

    /// The extents that are unread.
    pub(super) fn unread(&self) -> Range<u32> {
        self.unread.clone()
    }

    /// Counts the pages of an extent for their owners.
    fn look(&mut self, owners: impl Iterator<Item = TreeId>) -> Extent {
        let mut extent = Extent { owner: Owner::NONE, free: 0 };
        let (mut last, mut run) = (TreeId::FREE, 0);
        for owner in owners {
            if owner == TreeId::FREE {
                extent.free += 1;
                continue;
            }
            if owner != last {
                self.count(last, run);
                (last, run) = (owner, 0);
            }
            run += 1;
            if owner == TreeId::SYSTEM {
                continue;
            }
            extent.owner = match extent.owner {
                Owner::NONE => Owner(owner.0),
                same if same == Owner(owner.0) => same,
                _ => Owner::SHARED,
            };
        }
        self.count(last, run);
        self.free += u64::from(extent.free);
        extent
    }

    fn count(&mut self, tree: TreeId, pages: u32) {
        if tree != TreeId::FREE && pages > 0 {
            self.trees.entry(tree).or_default().pages += pages;
        }
    }

    /// Decides the owners of these extents, which have been added or read.
    pub(super) fn settle(&mut self, extents: Range<u32>) {
        for number in extents {
            let mut owner = self.extents[number as usize].owner;
            if owner != Owner::NONE && owner != Owner::SHARED {
                let large = self.trees.get(&TreeId(owner.0)).is_some_and(|t| t.pages > SMALL_TREE_PAGES);
                if !large {
                    owner = Owner::SHARED;
                }
            }
            self.extents[number as usize].owner = owner;
            self.file(number);
        }
    }

    pub(super) fn extents(&self) -> u32 {
        self.extents.len() as u32
    }

    // --- claiming ------------------------------------------------------------------------------------------

    /// Returns the number of pages that are neither owned nor claimed.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Returns a lower bound of the free pages that policy gives to any tree: those of wholly free extents.
    pub(super) fn open_to_all(&self) -> u64 {
        (self.whole.len() + self.headed.len()) as u64 * u64::from(self.shape.extent_pages - 2)
    }

    /// Returns the number of pages set aside.
    pub(super) fn aside(&self) -> usize {
        self.aside.len()
    }

    /// Returns the number of pages of a tree, including those claimed or set aside for it.
    pub(super) fn pages_of(&self, tree: TreeId) -> u32 {
        self.trees.get(&tree).map_or(0, |t| t.pages)
    }

    /// Claims `pages` pages for `tree` near `near` if `keep` pages stay free afterwards. Claims all or none.
    pub(super) fn claim(
        &mut self,
        tree: TreeId,
        near: PageId,
        pages: usize,
        keep: u64,
        reach: Reach,
    ) -> Option<Claims> {
        if self.free < pages as u64 + keep {
            return None;
        }
        let mut claims = Claims::new();
        let (mut left, mut at) = (pages, self.shape.extent_of(near));
        while left > 0 {
            let Some(extent) = self.choose(tree, at, left, reach) else {
                self.give_back(tree, &claims);
                return None;
            };
            let count = usize::from(self.extents[extent as usize].free).min(left) as u16;
            if reach == Reach::Any {
                self.rover = extent;
            }
            self.occupy(extent, tree, count);
            claims.push((extent, count));
            (left, at) = (left - usize::from(count), extent);
        }
        Some(claims)
    }

    /// Claims up to `pages` pages for a run, all in one extent, if `keep` pages stay free afterwards. A small tree gets
    /// them in a shared extent that has as many free pages and is not in `tried`, if there is one; with `tried` =
    /// `None`, shared extents are not considered. Otherwise the run lies in the wholly free extent nearest at or after
    /// `after`, or else in the nearest one before it, and is no longer than the longest run of that extent. Returns the
    /// extent and the number of pages.
    pub(super) fn claim_run(
        &mut self,
        tree: TreeId,
        after: PageId,
        pages: u16,
        keep: u64,
        tried: Option<&[u32]>,
    ) -> Option<(u32, u16)> {
        debug_assert!(u32::from(pages) <= self.shape.extent_pages);
        if self.free < u64::from(pages) + keep {
            return None;
        }
        let small = self.pages_of(tree) + u32::from(pages) <= SMALL_TREE_PAGES;
        let has_room =
            |extent: u32, tried: &[u32]| self.extents[extent as usize].free >= pages && !tried.contains(&extent);
        let below = || self.shared.range(..self.fence);
        let shared = || tried.and_then(|tried| below().copied().find(|&extent| has_room(extent, tried)));
        let whole = || self.nearest_whole(self.shape.extent_of(after));
        let extent = if small { shared().or_else(whole) } else { whole() }?;
        let count = pages.min(self.shape.run_max(extent));
        self.occupy(extent, tree, count);
        Some((extent, count))
    }

    /// Returns the wholly free extent that is nearest at or after `at`, or else the nearest before `at`.
    fn nearest_whole(&self, at: u32) -> Option<u32> {
        let at = at.min(self.fence);
        let behind = [&self.whole, &self.headed].into_iter().filter_map(|set| set.range(at..self.fence).next()).min();
        let before = || [&self.whole, &self.headed].into_iter().filter_map(|set| set.range(..at).next_back()).max();
        behind.or_else(before).copied()
    }

    /// Claims up to `pages` pages in the extent of `page`, if the extent is the tree's, wholly free, or shared and the
    /// tree is small, and if `keep` pages stay free afterwards. Returns the extent and the number of pages.
    pub(super) fn claim_in(&mut self, tree: TreeId, page: PageId, pages: u16, keep: u64) -> Option<(u32, u16)> {
        let number = self.shape.extent_of(page);
        let &Extent { owner, free } = self.extents.get(number as usize)?;
        let count = free.min(pages);
        let small = self.pages_of(tree) + u32::from(count) <= SMALL_TREE_PAGES;
        let mine = owner == Owner::NONE || owner == Owner(tree.0) || (owner == Owner::SHARED && small);
        if count == 0 || !mine || number >= self.fence || self.free < u64::from(count) + keep {
            return None;
        }
        self.occupy(number, tree, count);
        Some((number, count))
    }

    /// Returns whether a page is set aside.
    pub(super) fn is_aside(&self, page: PageId) -> bool {
        self.aside.contains(&page.0)
    }

    /// Chooses the extent with a free page that serves `tree`.
    fn choose(&self, tree: TreeId, at: u32, wanted: usize, reach: Reach) -> Option<u32> {
        let own = self.trees.get(&tree);
        let large = own.map_or(0, |t| t.pages as usize) + wanted > SMALL_TREE_PAGES as usize;
        let own = || own.and_then(|t| nearest(&t.partial, at, self.fence));
        let (whole, shared) = (|| self.nearest_whole(at), || nearest(&self.shared, at, self.fence));
        // Small trees first share the extents where a map interrupts a run anyway.
        let headed = || nearest(&self.headed, at, self.fence);
        let chosen = if large { own().or_else(whole) } else { shared().or_else(own).or_else(headed).or_else(whole) };
        match reach {
            Reach::Own => chosen,
            // Only reached on a full disk or with a fence, so a scan does no harm.
            Reach::Any => chosen.or_else(shared).or_else(|| {
                let end = self.extents().min(self.fence);
                let from = self.rover.min(end);
                (from..end).chain(0..from).find(|&number| self.extents[number as usize].free > 0)
            }),
        }
    }

    fn occupy(&mut self, number: u32, tree: TreeId, count: u16) {
        self.unfile(number);
        let own = self.trees.entry(tree).or_default();
        own.pages += u32::from(count);
        let large = own.pages > SMALL_TREE_PAGES;
        let extent = &mut self.extents[number as usize];
        if extent.owner == Owner::NONE {
            extent.owner = if large { Owner(tree.0) } else { Owner::SHARED };
        }
        extent.free -= count;
        self.free -= u64::from(count);
        self.file(number);
    }

    /// Puts an extent into the set of its owner.
    fn file(&mut self, number: u32) {
        let extent = &mut self.extents[number as usize];
        if u32::from(extent.free) == self.shape.usable(number) {
            extent.owner = Owner::NONE;
        }
        if extent.free == 0 {
            return;
        }
        if extent.owner == Owner::NONE {
            if self.shape.has_map(number) { &mut self.headed } else { &mut self.whole }.insert(number);
            return;
        }
        match self.trees.get_mut(&TreeId(extent.owner.0)) {
            Some(tree) if extent.owner != Owner::SHARED => tree.partial.insert(number),
            // The extent is shared, or the tree has no pages left and the owned pages of the extent are another tree's.
            _ => {
                extent.owner = Owner::SHARED;
                self.shared.insert(number)
            }
        };
    }

    /// Removes an extent from its set, before it changes.
    fn unfile(&mut self, number: u32) {
        match self.extents[number as usize].owner {
            Owner::NONE => self.whole.remove(&number) || self.headed.remove(&number),
            Owner::SHARED => self.shared.remove(&number),
            Owner(tree) => self.trees.get_mut(&TreeId(tree)).is_some_and(|t| t.partial.remove(&number)),
        };
    }

    /// Frees `count` pages of `extent` that `tree` owned or that were claimed for it.
    pub(super) fn release(&mut self, tree: TreeId, extent: u32, count: u16) {
        if self.unread.contains(&extent) {
            return;
        }
        self.unfile(extent);
        self.extents[extent as usize].free += count;
        debug_assert!(u32::from(self.extents[extent as usize].free) <= self.shape.usable(extent), "(1)");
        self.free += u64::from(count);
        self.file(extent);
        if let Some(own) = self.trees.get_mut(&tree) {
            debug_assert!(own.pages >= u32::from(count), "a tree gives back no more than it had");
            own.pages = own.pages.saturating_sub(u32::from(count));
            if own.pages == 0 {
                // Extents that are still in the tree's partial set are wholly free or hold pages of other trees.
                let left = self.trees.remove(&tree).expect("it was just there");
                for number in left.partial {
                    self.extents[number as usize].owner = Owner::SHARED;
                    self.file(number);
                }
            }
        }
    }

    /// Undoes claims.
    pub(super) fn give_back(&mut self, tree: TreeId, claims: &[(u32, u16)]) {
        for &(extent, count) in claims {
            self.release(tree, extent, count);
        }
    }

    // --- the file's end ------------------------------------------------------------------------------------

    /// Stops the allocation of extents from `fence` on. Returns the new fence's number, or `None` if there is a fence
    /// already.
    pub(super) fn set_fence(&mut self, fence: u32) -> Option<u64> {
        if self.is_fenced() {
            return None;
        }
        (self.fence, self.rover) = (fence, 0);
        self.fences += 1;
        Some(self.fences)
    }

    /// Returns the number of pages below the fence that are neither owned nor claimed.
    pub(super) fn free_below_fence(&self) -> u64 {
        let above = self.extents.iter().skip(self.fence as usize);
        self.free.saturating_sub(above.map(|extent| u64::from(extent.free)).sum())
    }

    /// Returns whether there is a fence.
    pub(super) fn is_fenced(&self) -> bool {
        self.fence != u32::MAX
    }

    /// Returns whether the fence with this number stands.
    pub(super) fn is_fenced_by(&self, number: u64) -> bool {
        self.is_fenced() && self.fences == number
    }

    /// Removes the fence. Returns whether there was one.
    pub(super) fn lift_fence(&mut self) -> bool {
        std::mem::replace(&mut self.fence, u32::MAX) != u32::MAX
    }

    /// Removes the wholly free extents at the end, down to `least` extents. Returns the number of extents left.
    pub(super) fn cut_tail(&mut self, least: u32) -> u32 {
        while self.extents() > least {
            let (number, last) = (self.extents() - 1, self.extents[self.extents.len() - 1]);
            if u32::from(last.free) != self.shape.usable(number) {
                break;
            }
            self.unfile(number);
            self.extents.pop();
            self.free -= u64::from(last.free);
            // The extent's map was owned by the system.
            let maps = self.shape.extent_pages - self.shape.usable(number);
            if let Some(system) = self.trees.get_mut(&TreeId::SYSTEM) {
                system.pages -= maps;
            }
        }
        self.extents()
    }

    // --- pages set aside -----------------------------------------------------------------------------------

    /// Sets a page aside. Returns `false` if it is set aside already. The caller has claimed a page of the extent, and
    /// latched the map.
    pub(super) fn set_aside(&mut self, page: PageId) -> bool {
        self.aside.insert(page.0)
    }

    /// Undoes [`Index::set_aside`]: the page is only claimed, as before.
    pub(super) fn forget(&mut self, page: PageId) {
        self.aside.remove(&page.0);
    }

    /// Notes that a page set aside is now owned. Its map is latched exclusively.
    pub(super) fn taken(&mut self, page: PageId) {
        let was = self.aside.remove(&page.0);
        debug_assert!(was, "only a page set aside is taken");
    }

    /// Frees a page that was set aside and not taken.
    pub(super) fn untaken(&mut self, tree: TreeId, page: PageId) {
        if self.aside.remove(&page.0) {
            self.release(tree, self.shape.extent_of(page), 1);
        }
    }

    /// Returns the difference from the owners in the maps, if any; for tests.
    #[cfg(test)]
    pub(super) fn differs(&self, owners: &[TreeId]) -> Option<String> {
        let mut compared = Comparison::default();
        let per = self.shape.extent_pages as usize;
        (0..).zip(owners.chunks_exact(per)).for_each(|(number, owners)| compared.extent(self, number, owners));
        compared.end(self)
    }
}

/// Compares the index with the owners in the maps, extent by extent. No page may be set aside during it.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    extents: u32,
    free: u64,
    pages: HashMap<TreeId, u32>,
    sets: [usize; 3],
    wrong: Option<String>,
}

impl Comparison {
    /// Compares the next extent.
    pub(super) fn extent(&mut self, index: &Index, number: u32, owners: &[TreeId]) {
        self.extents += 1;
        let Some(extent) = index.extents.get(number as usize).filter(|_| self.wrong.is_none()) else { return };
        for &owner in owners.iter().filter(|&&o| o != TreeId::FREE) {
            *self.pages.entry(owner).or_default() += 1;
        }
        let count = owners.iter().filter(|&&o| o == TreeId::FREE).count();
        self.free += count as u64;
        if usize::from(extent.free) != count {
            let known = extent.free;
            self.wrong = Some(format!("extent {number} has {count} free pages in the maps and {known} in the index"));
            return;
        }
        let filed = match extent.owner {
            _ if count == 0 => return,
            Owner::NONE if index.shape.has_map(number) => (0, index.headed.contains(&number)),
            Owner::NONE => (1, index.whole.contains(&number)),
            Owner::SHARED => (2, index.shared.contains(&number)),
            Owner(tree) if index.trees.get(&TreeId(tree)).is_some_and(|t| t.partial.contains(&number)) => return,
            Owner(tree) => {
                self.wrong = Some(format!("extent {number} of tree {tree} cannot be found"));
                return;
            }
        };
        self.sets[filed.0] += 1;
        if !filed.1 {
            self.wrong = Some(format!("extent {number} is not in the set where it is looked for"));
        }
    }

    /// Ends the comparison after all extents of the maps. Returns the difference, if any.
    pub(super) fn end(self, index: &Index) -> Option<String> {
        if self.wrong.is_some() {
            return self.wrong;
        }
        if self.extents != index.extents() {
            return Some(format!("the maps have {} extents, the index {}", self.extents, index.extents()));
        }
        let known = index.trees.iter().filter(|(_, t)| t.pages > 0);
        if let Some((tree, t)) = known.clone().find(|(tree, t)| self.pages.get(tree) != Some(&t.pages)) {
            let in_maps = self.pages.get(tree);
            return Some(format!("tree {tree} has {in_maps:?} pages in the maps and {} in the index", t.pages));
        }
        if known.count() != self.pages.len() {
            return Some("the maps know a tree that the index does not".into());
        }
        let sets = [index.headed.len(), index.whole.len(), index.shared.len()];
        (sets != self.sets || self.free != index.free)
            .then(|| "the sets of the index are not those of its extents".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPE: Shape = Shape { extent_pages: 8, group_pages: 24 };

    /// The index and a plain array of owners; calls the index as `Space` does.
    struct Both {
        index: Index,
        owners: Vec<TreeId>,
    }

    impl Both {
        fn new(extents: u32) -> Self {
            let mut both = Self { index: Index::new(SHAPE), owners: Vec::new() };
            both.grow(extents);
            both
        }

        fn grow(&mut self, extents: u32) {
            let first = self.index.extents();
            for extent in first..first + extents {
                let mut owners = vec![TreeId::FREE; 8];
                if SHAPE.has_map(extent) {
                    owners[1] = TreeId::SYSTEM;
                }
                if extent == 0 {
                    owners[0] = TreeId::SYSTEM;
                }
                self.index.add(owners.iter().copied());
                self.owners.extend(owners);
            }
            self.index.settle(first..self.index.extents());
        }

        fn take(&mut self, tree: TreeId, near: PageId, pages: usize, keep: u64, reach: Reach) -> Option<Vec<PageId>> {
            let claims = self.index.claim(tree, near, pages, keep, reach)?;
            let mut taken = Vec::new();
            for (extent, mut count) in claims {
                for page in (extent * 8..extent * 8 + 8).map(PageId) {
                    if count > 0 && self.owners[page.0 as usize] == TreeId::FREE && self.index.set_aside(page) {
                        count -= 1;
                        taken.push(page);
                    }
                }
                assert_eq!(count, 0, "what was claimed is there");
            }
            for &page in &taken {
                self.index.taken(page);
                self.owners[page.0 as usize] = tree;
            }
            Some(taken)
        }

        /// Takes pages in a row, as `Space::reserve_run` does.
        fn take_run(&mut self, tree: TreeId, after: PageId, pages: u16, behind: bool) -> Option<Vec<PageId>> {
            let (extent, count) = if behind {
                self.index.claim_in(tree, PageId(after.0 + 1), pages, 0)?
            } else {
                self.index.claim_run(tree, after, pages, 0, Some(&[]))?
            };
            let pages = if behind { pages } else { count };
            let begin = if behind { after.0 + 1 } else { extent * 8 };
            let free = |page: &u32| self.owners[*page as usize] == TreeId::FREE;
            let run: Vec<PageId> = if behind {
                (begin..extent * 8 + 8).take_while(free).take(count.into()).map(PageId).collect()
            } else {
                let starts = (begin..begin + 9 - u32::from(pages))
                    .find(|&at| (at..at + u32::from(pages)).all(|page| free(&page)));
                starts.map_or_else(Vec::new, |at| (at..at + u32::from(pages)).map(PageId).collect())
            };
            self.index.give_back(tree, &[(extent, count - run.len() as u16)]);
            for &page in &run {
                assert!(self.index.set_aside(page) && self.index.is_aside(page));
                self.index.taken(page);
                self.owners[page.0 as usize] = tree;
            }
            Some(run)
        }

        fn free(&mut self, page: PageId) {
            let tree = std::mem::take(&mut self.owners[page.0 as usize]);
            self.index.release(tree, SHAPE.extent_of(page), 1);
        }
    }

    proptest! {
        #[test]
        fn it_is_what_the_owners_say(
            ops in proptest::collection::vec((0u8..12, 16u32..20, 0u32..400, 1usize..20), 1..150)
        ) {
            let mut both = Both::new(4);
            for (op, tree, near, pages) in ops {
                match op {
                    0 => both.grow(1 + near % 4),
                    1..=3 => {
                        let taken: Vec<_> = (0..).zip(&both.owners).filter(|(_, t)| t.0 == tree).map(|(p, _)| p).collect();
                        if let Some(&page) = taken.get(near as usize % taken.len().max(1)) {
                            both.free(PageId(page));
                        }
                    }
                    10 | 11 => {
                        let after = PageId(near % both.owners.len() as u32);
                        let run = both.take_run(TreeId(tree), after, 1 + pages as u16 % 8, op == 10);
                        let run = run.unwrap_or_default();
                        prop_assert!(run.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
                        prop_assert!(op == 11 || run.first().is_none_or(|first| first.0 == after.0 + 1));
                    }
                    _ => {
                        let reach = if op == 4 { Reach::Any } else { Reach::Own };
                        let (before, keep) = (both.index.free(), u64::from(op == 5) * 8);
                        match both.take(TreeId(tree), PageId(near), pages, keep, reach) {
                            Some(taken) => {
                                prop_assert_eq!(taken.len(), pages);
                                prop_assert!(both.index.free() >= keep);
                            }
                            None => {
                                prop_assert_eq!(both.index.free(), before);
                                prop_assert!(reach == Reach::Own || before < pages as u64 + keep);
                            }
                        }
                    }
                }
                prop_assert_eq!(both.index.differs(&both.owners), None);
            }
            let mut rebuilt = Index::new(SHAPE);
            for owners in both.owners.chunks(8) {
                rebuilt.add(owners.iter().copied());
            }
            rebuilt.settle(0..rebuilt.extents());
            prop_assert_eq!(rebuilt.differs(&both.owners), None);
        }
    }

    #[test]
    fn a_large_tree_gets_contiguous_extents_and_small_ones_share() {
        let mut both = Both::new(30);
        let large = both.take(TreeId(16), PageId(0), 40, 0, Reach::Own).expect("room");
        assert_eq!(large.iter().filter(|p| SHAPE.has_map(SHAPE.extent_of(**p))).count(), 13, "extents 0 and 3 too");
        let next = both.take(TreeId(16), large[39], 1, 0, Reach::Own).expect("room")[0];
        assert!(
            large.windows(2).filter(|w| w[0].0 + 1 != w[1].0).count() <= 2,
            "maps are all that interrupts {large:?}"
        );
        assert!(next.0 > large[39].0 && next.0 - large[39].0 <= 9, "{next} is close to {}", large[39]);
        let one = both.take(TreeId(17), large[0], 1, 0, Reach::Own).expect("room")[0];
        let two = both.take(TreeId(18), large[0], 1, 0, Reach::Own).expect("room")[0];
        assert_eq!(SHAPE.extent_of(one), SHAPE.extent_of(two));
    }

    #[test]
    fn a_full_disk_gives_what_is_left_but_for_the_reserve() {
        let mut both = Both::new(6);
        let small = both.take(TreeId(17), PageId(0), 1, 0, Reach::Own).expect("room")[0];
        assert!(
            both.take(TreeId(16), PageId(0), 40, 0, Reach::Own).is_none(),
            "a large tree leaves shared extents alone"
        );
        both.free(small);
        assert!(both.take(TreeId(16), PageId(0), 42, 4, Reach::Any).is_none());
        assert!(both.take(TreeId(16), PageId(0), 41, 4, Reach::Any).is_some());
        assert!(both.take(TreeId(17), PageId(0), 4, 0, Reach::Any).is_some());
        assert_eq!(both.index.free(), 0);
    }
}
