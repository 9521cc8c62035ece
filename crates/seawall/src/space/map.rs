//! Space maps: the owner of each page of a group.
//!
//! 1. Page 1 of every group is its map. The owner of the map itself, and of page 0 of the file, is [`TreeId::SYSTEM`].
//! 2. A page with owner 0 is free. A page beyond the header's count has no owner.
//! 3. A group is whole extents, and an extent never spans two groups.

use crate::buffer::Redo;
use crate::format::page::{self, PageKind, set_u32, u32_at};
use crate::format::{Malformed, PageId, Reader, TreeId, tag};

/// Offset of the owner of the group's first page.
const OWNERS: usize = 64;

/// Bytes of an extent.
pub(super) const EXTENT_BYTES: usize = 1 << 20;

/// The division of a data file into extents and groups. It depends only on the page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Pages of an extent.
    pub(super) extent_pages: u32,
    /// Pages of a group.
    pub(super) group_pages: u32,
}

impl Shape {
    pub(super) fn of(page_bytes: usize) -> Self {
        let extent_pages = (EXTENT_BYTES / page_bytes) as u32;
        let owners = ((page_bytes - OWNERS) / 4) as u32;
        Self { extent_pages, group_pages: owners - owners % extent_pages }
    }

    /// Returns the map that has the owner of `page`.
    pub(super) fn map_of(self, page: PageId) -> PageId {
        self.map_of_group(self.group_of(page))
    }

    /// The map of a group.
    pub(super) fn map_of_group(self, group: u32) -> PageId {
        PageId(group * self.group_pages + 1)
    }

    /// The group of a page.
    pub(super) fn group_of(self, page: PageId) -> u32 {
        page.0 / self.group_pages
    }

    /// A page's index in its map.
    pub(super) fn index_of(self, page: PageId) -> u16 {
        (page.0 % self.group_pages) as u16
    }

    /// The extent of a page.
    pub(super) fn extent_of(self, page: PageId) -> u32 {
        page.0 / self.extent_pages
    }

    /// The first page of an extent.
    pub(super) fn first_of_extent(self, extent: u32) -> PageId {
        PageId(extent * self.extent_pages)
    }

    /// Whether an extent begins with a map.
    pub(super) fn has_map(self, extent: u32) -> bool {
        (extent * self.extent_pages) % self.group_pages == 0
    }

    /// Returns the number of pages of an extent that trees can own: all but a map and the header page.
    pub(super) fn usable(self, extent: u32) -> u32 {
        self.extent_pages - u32::from(self.has_map(extent)) - u32::from(extent == 0)
    }

    /// Returns the longest run of usable pages of an extent: the pages after its map, or all pages if it has none.
    pub(super) fn run_max(self, extent: u32) -> u16 {
        (if self.has_map(extent) { self.extent_pages - 2 } else { self.extent_pages }) as u16
    }

    /// Returns the number of groups with at least one page among the first `pages`.
    pub(super) fn groups(self, pages: u32) -> u32 {
        pages.div_ceil(self.group_pages)
    }

    /// Rounds `pages` up to whole extents. Returns `None` beyond the range of page numbers.
    pub(super) fn whole_extents(self, pages: u64) -> Option<u32> {
        u32::try_from(pages.next_multiple_of(u64::from(self.extent_pages))).ok()
    }
}

/// The owner of the page at `index` of the map.
pub(super) fn owner(map: &[u8], index: u16) -> TreeId {
    TreeId(u32_at(map, OWNERS + 4 * usize::from(index)))
}

/// Checks that `page` is a space map.
pub(super) fn verify(page: &[u8]) -> Result<(), String> {
    if page::kind(page) == Some(PageKind::SpaceMap) {
        return Ok(());
    }
    Err(format!("it is not a space map: its kind is {}", page[page::KIND]))
}

/// Initializes the map of a group. Only the map itself, and the header page in group 0, have an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InitMap {
    /// The map's own page.
    pub(super) number: PageId,
}

impl Redo for InitMap {
    const TAG: u8 = tag::INITIALISES | 0x12;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.0.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        page::init(page, self.number, TreeId::SYSTEM, PageKind::SpaceMap, 0);
        if self.number == PageId(1) {
            set_u32(page, OWNERS, TreeId::SYSTEM.0);
        }
        set_u32(page, OWNERS + 4, TreeId::SYSTEM.0);
    }
}

impl InitMap {
    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        Ok(Self { number: PageId(Reader::new(body).u32()?) })
    }
}

/// Sets the owner of consecutive pages of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SetOwner {
    /// Index of the first page in the map.
    pub(super) index: u16,
    /// The number of pages.
    pub(super) count: u16,
    pub(super) owner: TreeId,
}

impl Redo for SetOwner {
    const TAG: u8 = 0x13;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.owner.0.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        for index in self.index..self.index + self.count {
            set_u32(page, OWNERS + 4 * usize::from(index), self.owner.0);
        }
    }
}

impl SetOwner {
    pub(super) fn decode(body: &[u8], page: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::new(body);
        let new = Self { index: body.u16()?, count: body.u16()?, owner: TreeId(body.u32()?) };
        if page::kind(page) != Some(PageKind::SpaceMap) {
            return Err(Malformed("the page is not a space map"));
        }
        if u32::from(new.index) + u32::from(new.count) > Shape::of(page.len()).group_pages {
            return Err(Malformed("an owner beyond the group"));
        }
        Ok(new)
    }
}

/// Initializes a page that was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MarkFreed {
    /// The page.
    pub(super) number: PageId,
}

impl Redo for MarkFreed {
    const TAG: u8 = tag::INITIALISES | 0x14;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.0.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        page::init(page, self.number, TreeId::FREE, PageKind::Freed, 0);
    }
}

impl MarkFreed {
    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        Ok(Self { number: PageId(Reader::new(body).u32()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_whole_extents_at_all_page_sizes() {
        for page_bytes in [4 << 10, 8 << 10, 16 << 10, 32 << 10] {
            let shape = Shape::of(page_bytes);
            assert_eq!(shape.extent_pages as usize * page_bytes, EXTENT_BYTES);
            assert!(shape.group_pages >= shape.extent_pages && shape.group_pages % shape.extent_pages == 0);
            assert!(OWNERS + 4 * shape.group_pages as usize <= page_bytes);
            let later = PageId(5 * shape.group_pages + 7);
            assert_eq!(shape.map_of(later), PageId(5 * shape.group_pages + 1));
            assert_eq!(shape.index_of(later), 7);
            assert!(shape.has_map(shape.extent_of(later)));
            assert_eq!(shape.whole_extents(1), Some(shape.extent_pages));
            assert_eq!(shape.whole_extents(u64::from(u32::MAX)), None);
        }
    }

    #[test]
    fn owners_are_what_was_set() {
        let mut map = vec![0xaa; 4096];
        InitMap { number: PageId(1) }.apply(&mut map);
        assert_eq!([0, 1, 2].map(|i| owner(&map, i)), [TreeId::SYSTEM, TreeId::SYSTEM, TreeId::FREE]);
        SetOwner { index: 5, count: 3, owner: TreeId(77) }.apply(&mut map);
        assert_eq!([4, 5, 7, 8].map(|i| owner(&map, i).0), [0, 77, 77, 0]);
        InitMap { number: PageId(769) }.apply(&mut map);
        assert_eq!([0, 1, 5].map(|i| owner(&map, i)), [TreeId::FREE, TreeId::SYSTEM, TreeId::FREE]);
    }
}
