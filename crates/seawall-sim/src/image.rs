//! The bytes and extents of one file, as one observer sees them.
//!
//! 1. An absent block is a hole; a hole and an unwritten block read as zeroes, even if they hold bytes.
//! 2. Bytes at and beyond `len` are zeroes after a shrink.
//! 3. Cloning is cheap: bytes are shared until one side writes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Size of a file-system block and of a page of the page cache, bytes.
pub(crate) const BLOCK: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Bytes reached the medium, but no extent points to them.
    Unlinked,
    Unwritten,
    Written,
}

#[derive(Debug, Clone)]
struct Block {
    extent: Extent,
    bytes: Option<Arc<[u8; BLOCK as usize]>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    pub(crate) len: u64,
    blocks: BTreeMap<u64, Block>,
}

/// Returns the blocks that `len` bytes at `offset` touch; `None` if `len` is 0.
pub(crate) fn blocks_of(offset: u64, len: u64) -> Option<RangeInclusive<u64>> {
    (len > 0).then(|| offset / BLOCK..=(offset + len - 1) / BLOCK)
}

impl Image {
    /// Fills `buf`, even beyond the length of the file.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        for (block, inside, part) in pieces(offset, buf.len()) {
            let out = &mut buf[part];
            match self.blocks.get(&block) {
                Some(Block { extent: Extent::Written, bytes: Some(bytes) }) => {
                    out.copy_from_slice(&bytes[inside..inside + out.len()]);
                }
                _ => out.fill(0),
            }
        }
    }

    /// Stores bytes (`None`: zeroes) without changing extents or length.
    pub(crate) fn put(&mut self, offset: u64, len: usize, bytes: Option<&[u8]>) {
        for (number, inside, part) in pieces(offset, len) {
            let block = self.blocks.entry(number).or_insert(Block { extent: Extent::Unlinked, bytes: None });
            let whole = part.len() == BLOCK as usize;
            match bytes {
                None if whole => block.bytes = None,
                None if block.bytes.is_none() => {}
                None => content(block)[inside..inside + part.len()].fill(0),
                Some(bytes) => content(block)[inside..inside + part.len()].copy_from_slice(&bytes[part]),
            }
        }
    }

    /// Makes blocks written; those that were holes or unwritten keep what was put there.
    pub(crate) fn convert(&mut self, blocks: RangeInclusive<u64>) {
        for number in blocks {
            self.blocks.entry(number).or_insert(Block { extent: Extent::Written, bytes: None }).extent =
                Extent::Written;
        }
    }

    /// Gives holes unwritten extents.
    pub(crate) fn allocate(&mut self, blocks: RangeInclusive<u64>) {
        for number in blocks {
            let block = self.blocks.entry(number).or_insert(Block { extent: Extent::Unwritten, bytes: None });
            if block.extent == Extent::Unlinked {
                block.extent = Extent::Unwritten;
            }
        }
    }

    pub(crate) fn shrink(&mut self, to: u64) {
        self.len = to;
        self.blocks.split_off(&to.div_ceil(BLOCK));
        let inside = (to % BLOCK) as usize;
        let cut = (inside > 0).then(|| self.blocks.get_mut(&(to / BLOCK))).flatten();
        if let Some(block) = cut.filter(|block| block.bytes.is_some()) {
            content(block)[inside..].fill(0);
        }
    }

    /// Discards bytes that no written extent points to, as after a restart.
    pub(crate) fn settle(&mut self) {
        self.blocks.retain(|_, block| block.extent != Extent::Unlinked);
        for block in self.blocks.values_mut().filter(|block| block.extent == Extent::Unwritten) {
            block.bytes = None;
        }
    }

    pub(crate) fn extent(&self, block: u64) -> Option<Extent> {
        self.blocks.get(&block).map(|block| block.extent)
    }

    /// Counts the blocks of the range that have an extent.
    pub(crate) fn allocated_in(&self, blocks: RangeInclusive<u64>) -> u64 {
        self.blocks.range(blocks).count() as u64
    }

    pub(crate) fn allocated_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).unwrap_or(0)];
        self.read(0, &mut bytes);
        bytes
    }
}

fn content(block: &mut Block) -> &mut [u8; BLOCK as usize] {
    Arc::make_mut(block.bytes.get_or_insert_with(|| Arc::new([0; BLOCK as usize])))
}

/// Cuts a range at block boundaries. Yields the block number, the first byte inside the block, and the
/// part of the buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let at = offset + done as u64;
            let inside = (at % BLOCK) as usize;
            let part = done..len.min(done + BLOCK as usize - inside);
            done = part.end;
            (at / BLOCK, inside, part)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_without_a_written_extent_read_as_zeroes() {
        let mut image = Image { len: 8192, ..Image::default() };
        image.put(4000, 200, Some(&[7; 200]));
        let mut buf = [1; 200];
        image.read(4000, &mut buf);
        assert_eq!(buf, [0; 200]);
        image.convert(0..=1);
        image.read(4000, &mut buf);
        assert_eq!(buf, [7; 200]);
    }

    #[test]
    fn a_shrink_leaves_zeroes_behind() {
        let mut image = Image { len: 8192, ..Image::default() };
        image.put(0, 8192, Some(&[7; 8192]));
        image.convert(0..=1);
        image.shrink(100);
        image.len = 8192;
        assert!(image.to_bytes()[..100].iter().all(|&b| b == 7));
        assert!(image.to_bytes()[100..].iter().all(|&b| b == 0));
        assert_eq!(image.allocated_blocks(), 1);
    }
}
