//! The first 32 bytes of every page, and its checksum.
//!
//! 1. The checksum covers everything after the checksum itself, and the page number of the place in the file. So a page
//!    that was written to the wrong place never passes the check there.
//! 2. It is computed on the copy that is written ([`seal`]) and checked on every read from disk ([`verify`]).
//! 3. A page of zeroes was never written, and does not pass the check.

use super::{Lsn, PageId, TreeId};
use crate::error::Corruption;
use std::path::Path;

/// Offset of the CRC-32C, `u32`.
pub const CRC: usize = 0;
/// Offset of the page number, `u32`.
pub const NUMBER: usize = 4;
/// Offset of the LSN, `u64`: the end of the last mini-transaction that changed the page.
pub const LSN: usize = 8;
/// Offset of the owning tree, `u32`.
pub const TREE: usize = 16;
/// Offset of the [`PageKind`], `u8`.
pub const KIND: usize = 20;
/// Offset of the level above the leaves, `u8`.
pub const LEVEL: usize = 21;
/// Bytes before the part that the page's kind defines.
pub const HEADER_BYTES: usize = 32;
/// Smallest page, bytes.
pub const PAGE_BYTES_MIN: usize = 4 << 10;
/// Largest page, bytes.
pub const PAGE_BYTES_MAX: usize = 32 << 10;

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Page 0.
    Header = 1,
    /// The owners of a group's pages.
    SpaceMap = 2,
    /// An inner node of a tree.
    Branch = 3,
    /// A leaf of a tree.
    Leaf = 4,
    /// A piece of a long value, or a list of its pieces.
    Overflow = 5,
    /// Where the undo logs begin.
    UndoDirectory = 6,
    /// A piece of an undo log.
    Undo = 7,
    /// A page that belonged to something that no longer exists.
    Freed = 8,
    /// A page that recovery could not read and gave up. Its contents are lost.
    Abandoned = 9,
}

impl PageKind {
    /// Returns the kind with this number.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Self> {
        use PageKind::{Abandoned, Branch, Freed, Header, Leaf, Overflow, SpaceMap, Undo, UndoDirectory};
        let all = [Header, SpaceMap, Branch, Leaf, Overflow, UndoDirectory, Undo, Freed, Abandoned];
        all.into_iter().find(|&k| k as u8 == byte)
    }
}

/// Returns the `u16` at `at`.
#[must_use]
pub fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}
/// Returns the `u32` at `at`.
#[must_use]
pub fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"))
}
/// Returns the `u64` at `at`.
#[must_use]
pub fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}
/// Sets the `u16` at `at`.
pub fn set_u16(page: &mut [u8], at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}
/// Sets the `u32` at `at`.
pub fn set_u32(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
/// Sets the `u64` at `at`.
pub fn set_u64(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Returns the page's own number.
#[must_use]
pub fn number(page: &[u8]) -> PageId {
    PageId(u32_at(page, NUMBER))
}
/// Returns the end of the last mini-transaction that changed the page.
#[must_use]
pub fn lsn(page: &[u8]) -> Lsn {
    Lsn(u64_at(page, LSN))
}
/// Returns the tree that owns the page.
#[must_use]
pub fn tree(page: &[u8]) -> TreeId {
    TreeId(u32_at(page, TREE))
}
/// Returns the page's kind; `None` when the number is not a kind.
#[must_use]
pub fn kind(page: &[u8]) -> Option<PageKind> {
    PageKind::from_u8(page[KIND])
}
/// Returns the page's level above the leaves.
#[must_use]
pub fn level(page: &[u8]) -> u8 {
    page[LEVEL]
}

/// Makes a page of zeroes with a header. The LSN is set by the mini-transaction.
pub fn init(page: &mut [u8], number: PageId, tree: TreeId, kind: PageKind, level: u8) {
    page.fill(0);
    set_u32(page, NUMBER, number.0);
    set_u32(page, TREE, tree.0);
    page[KIND] = kind as u8;
    page[LEVEL] = level;
}

/// In a debug build, the bytes after a page's header before the record that initialises the page.
const NOTHING: u8 = 0xa5;

/// Zeroes the header of a page whose next record sets every byte ([`init`]). The rest of the page need not be zeroes.
pub fn clear_header(page: &mut [u8]) {
    let (header, rest) = page.split_at_mut(HEADER_BYTES);
    header.fill(0);
    if cfg!(debug_assertions) {
        rest.fill(NOTHING);
    }
}

fn checksum(page: &[u8], number: PageId) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.0.to_le_bytes()), &page[NUMBER..])
}

/// Sets the checksum of a copy about to be written as page `number`.
pub fn seal(page: &mut [u8], number: PageId) {
    debug_assert_eq!(self::number(page), number, "a page knows its number");
    let crc = checksum(page, number);
    set_u32(page, CRC, crc);
}

/// Checks the bytes read from `path` as page `number`.
///
/// # Errors
/// [`Corruption::Misdirected`] when another page's intact contents are there, [`Corruption::Abandoned`] when recovery
/// gave the page up, otherwise [`Corruption::ChecksumMismatch`].
pub fn verify(page: &[u8], number: PageId, path: &Path) -> Result<(), Corruption> {
    let found = u32_at(page, CRC);
    let expected = checksum(page, number);
    if found == expected && self::number(page) == number {
        if page[KIND] == PageKind::Abandoned as u8 {
            return Err(Corruption::Abandoned { path: path.into(), page: number });
        }
        return Ok(());
    }
    let claimed = self::number(page);
    if claimed != number && found == checksum(page, claimed) {
        return Err(Corruption::Misdirected { path: path.into(), page: number, found: claimed });
    }
    Err(Corruption::ChecksumMismatch { path: path.into(), page: number, expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_seen() {
        let mut page = vec![0; PAGE_BYTES_MIN];
        init(&mut page, PageId(7), TreeId(16), PageKind::Leaf, 0);
        seal(&mut page, PageId(7));
        assert_eq!(verify(&page, PageId(7), Path::new("data")), Ok(()));
        for bit in 0..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(&page, PageId(7), Path::new("data")).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_page_in_the_wrong_place_is_named() {
        let mut page = vec![0; PAGE_BYTES_MIN];
        init(&mut page, PageId(7), TreeId(16), PageKind::Leaf, 0);
        seal(&mut page, PageId(7));
        let found = verify(&page, PageId(8), Path::new("data"));
        assert_eq!(found, Err(Corruption::Misdirected { path: "data".into(), page: PageId(8), found: PageId(7) }));
    }

    #[test]
    fn zeroes_are_no_page() {
        assert!(verify(&[0; PAGE_BYTES_MIN], PageId(0), Path::new("data")).is_err());
    }
}
