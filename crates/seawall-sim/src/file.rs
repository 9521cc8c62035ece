//! One file: what programs see of it, what is stable, and the pending changes between the two.
//!
//! 1. `seen` is what reads return; `stable` is what a power cut cannot remove; `pending` holds the changes
//!    that lead from `stable` to `seen`.
//! 2. A *divergent* page is one whose cached bytes the device does not hold and never will: its write was
//!    lost after it was acknowledged, or a sync failed and marked it clean. Buffered reads return the cached
//!    bytes until the page leaves the cache.
//! 3. No function here fails or draws random numbers: the caller checks space and permission and draws the
//!    random numbers.

use crate::cache::PageCache;
use crate::image::{BLOCK, Extent, Image, blocks_of};
use crate::pending::{Meta, Pending};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How the bytes of a write reach the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Via {
    /// Bypasses the page cache.
    pub(crate) direct: bool,
    /// Leaves nothing in the page cache.
    pub(crate) dontcache: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SimFile {
    /// Size of a tear unit, bytes.
    unit: u64,
    pub(crate) seen: Image,
    pub(crate) stable: Image,
    pub(crate) pending: Pending,
    pub(crate) cache: PageCache,
    divergent: BTreeSet<u64>,
    /// End of the last byte written.
    data_end: u64,
    /// Counts failed write-backs; a handle that has seen fewer gets an error from its next sync.
    pub(crate) failures: u64,
    /// Bytes read from the device so far. Includes the reads that a buffered write of part of a page needs.
    pub(crate) device_read: u64,
}

impl SimFile {
    pub(crate) fn new(unit: u64) -> Self {
        Self { unit, ..Self::default() }
    }

    // --- reading -------------------------------------------------------------------------------------------

    /// Reads up to the end of the file; returns the number of bytes read.
    pub(crate) fn read(&mut self, offset: u64, buf: &mut [u8], direct: bool) -> usize {
        let len = self.seen.len.saturating_sub(offset).min(buf.len() as u64);
        let Some(pages) = blocks_of(offset, len) else { return 0 };
        let buf = &mut buf[..len as usize];
        self.seen.read(offset, buf);
        if direct {
            self.device_read += len;
            self.cache.clean(pages.clone());
            let divergent: Vec<u64> = self.divergent.range(pages).copied().collect();
            for page in divergent {
                let device = self.device_page(page);
                let start = offset.max(page * BLOCK);
                let end = (offset + len).min((page + 1) * BLOCK);
                buf[(start - offset) as usize..(end - offset) as usize]
                    .copy_from_slice(&device[(start - page * BLOCK) as usize..(end - page * BLOCK) as usize]);
            }
        } else {
            let missing: Vec<u64> = pages.clone().filter(|&page| !self.cache.holds(page)).collect();
            self.device_read += missing.len() as u64 * BLOCK;
            for page in missing {
                self.reload(page);
            }
            self.seen.read(offset, buf);
            self.cache.read(pages);
        }
        buf.len()
    }

    /// Returns what the device holds of a page, including its volatile cache.
    fn device_page(&self, page: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        for (index, out) in bytes.chunks_mut(self.unit as usize).enumerate() {
            self.pending.newest(page * BLOCK / self.unit + index as u64, self.unit, &self.stable, out);
        }
        bytes
    }

    /// Returns what the device holds of a range, including its volatile cache.
    pub(crate) fn device(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len as usize);
        for page in blocks_of(offset, len).into_iter().flatten() {
            let (start, held) = (page * BLOCK, self.device_page(page));
            let from = offset.max(start) - start;
            let to = (offset + len).min(start + BLOCK) - start;
            bytes.extend_from_slice(&held[from as usize..to as usize]);
        }
        bytes
    }

    /// Replaces the seen bytes of a divergent page by what the device holds.
    fn reload(&mut self, page: u64) {
        if self.divergent.remove(&page) {
            let device = self.device_page(page);
            self.seen.put(page * BLOCK, BLOCK as usize, Some(&device));
        }
    }

    // --- writing -------------------------------------------------------------------------------------------

    /// Writes bytes (`None`: `len` zeroes).
    pub(crate) fn write(&mut self, seq: u64, offset: u64, len: u64, bytes: Option<&[u8]>, via: Via) {
        self.touch(seq, offset, len, via);
        self.seen.put(offset, len as usize, bytes);
        self.push_seen(seq, offset, len, bytes.is_none());
        if !via.direct {
            // The kernel writes pages, not bytes: a page dirtied again also carries bytes that an earlier
            // write-back lost.
            let pages = blocks_of(offset, len).into_iter().flatten();
            for page in pages {
                if self.divergent.remove(&page) {
                    self.push_seen(seq, page * BLOCK, BLOCK, false);
                }
            }
        }
    }

    /// Makes a failed or torn write: the device takes only the units for which `keep` returns true, called in
    /// order.
    pub(crate) fn write_in_part(
        &mut self,
        seq: u64,
        offset: u64,
        bytes: &[u8],
        via: Via,
        mut keep: impl FnMut() -> bool,
    ) {
        let mut at = 0;
        while at < bytes.len() {
            let start = offset + at as u64;
            let part = (self.unit - start % self.unit).min((bytes.len() - at) as u64);
            if keep() {
                self.write(seq, start, part, Some(&bytes[at..at + part as usize]), via);
            }
            at += part as usize;
        }
    }

    /// Makes a write that is acknowledged but never reaches the medium.
    pub(crate) fn write_lost(&mut self, seq: u64, offset: u64, bytes: &[u8], via: Via) {
        self.touch(seq, offset, bytes.len() as u64, via);
        if !via.direct {
            self.seen.put(offset, bytes.len(), Some(bytes));
            self.divergent.extend(blocks_of(offset, bytes.len() as u64).into_iter().flatten());
        }
    }

    /// Updates length, extents and page cache for a write.
    fn touch(&mut self, seq: u64, offset: u64, len: u64, via: Via) {
        let Some(blocks) = blocks_of(offset, len) else { return };
        let end = offset + len;
        if via.direct {
            // The kernel first writes dirty pages back and evicts the range; lost pages become what the
            // device holds.
            for page in blocks.clone() {
                self.reload(page);
            }
            self.cache.invalidate(blocks.clone());
        } else {
            let missing: Vec<u64> = blocks.clone().filter(|&page| !self.cache.holds(page)).collect();
            for page in missing {
                let whole = offset <= page * BLOCK && (page + 1) * BLOCK <= end;
                if !whole && page * BLOCK < self.seen.len {
                    self.device_read += BLOCK;
                }
                self.reload(page);
            }
            if !via.dontcache {
                self.cache.write(blocks.clone());
            }
        }
        if end > self.seen.len {
            self.seen.len = end;
            self.pending.push_meta(seq, Meta::Extend { to: end, data: true });
        }
        self.data_end = self.data_end.max(end);
        if blocks.clone().any(|block| self.seen.extent(block) != Some(Extent::Written)) {
            self.seen.convert(blocks.clone());
            self.pending.push_meta(seq, Meta::Convert { blocks });
        }
    }

    /// Makes the units of a range pending with the bytes seen now.
    fn push_seen(&mut self, seq: u64, offset: u64, len: u64, zeroes: bool) {
        if len == 0 {
            return;
        }
        let units = offset / self.unit..(offset + len).div_ceil(self.unit);
        let start = units.start * self.unit;
        let whole = (units.end - units.start) * self.unit;
        let source = if zeroes && offset == start && len == whole {
            None
        } else {
            let mut bytes = vec![0; whole as usize];
            self.seen.read(start, &mut bytes);
            Some(Arc::from(bytes))
        };
        self.pending.push_data(seq, units, self.unit, source.as_ref());
    }

    pub(crate) fn set_len(&mut self, seq: u64, to: u64) {
        if to < self.seen.len {
            self.seen.shrink(to);
            self.pending.push_meta(seq, Meta::Shrink { to });
            self.data_end = self.data_end.min(to);
            self.cache.invalidate(to.div_ceil(BLOCK)..=u64::MAX);
            self.divergent.split_off(&to.div_ceil(BLOCK));
        } else if to > self.seen.len {
            self.seen.len = to;
            self.pending.push_meta(seq, Meta::Extend { to, data: false });
        }
    }

    /// Allocates unwritten extents; extends the length if `grow`.
    pub(crate) fn allocate(&mut self, seq: u64, offset: u64, len: u64, grow: bool) {
        let Some(blocks) = blocks_of(offset, len) else { return };
        self.seen.allocate(blocks.clone());
        self.pending.push_meta(seq, Meta::Allocate { blocks });
        if grow {
            self.set_len(seq, self.seen.len.max(offset + len));
        }
    }

    // --- durability ----------------------------------------------------------------------------------------

    /// Makes everything stable that fdatasync (`all` false) or fsync promises.
    pub(crate) fn sync(&mut self, all: bool) {
        if all || self.pending.has_shrink() || self.data_end > self.stable.len {
            self.pending.settle_all(self.unit, &mut self.stable);
        } else {
            self.pending.settle_needed(self.unit, &mut self.stable);
        }
        self.cache.clean(0..=u64::MAX);
    }

    /// Makes exactly the bytes of a durable write stable, with the length and extents needed to read them.
    pub(crate) fn sync_range(&mut self, offset: u64, len: u64) {
        let Some(blocks) = blocks_of(offset, len) else { return };
        if self.pending.has_shrink() {
            self.pending.settle_all(self.unit, &mut self.stable);
        }
        let mut bytes = vec![0; self.unit as usize];
        for number in offset / self.unit..(offset + len).div_ceil(self.unit) {
            self.pending.newest(number, self.unit, &self.stable, &mut bytes);
            self.stable.put(number * self.unit, bytes.len(), Some(&bytes));
            self.pending.forget_unit(number);
        }
        self.stable.convert(blocks.clone());
        self.stable.len = self.stable.len.max(offset + len);
        self.cache.clean(blocks);
    }

    /// Fails a sync as Linux permits: pages are marked clean, `lose` decides for each page whether its bytes
    /// are lost forever, and the next sync does not write them again.
    pub(crate) fn sync_failed(&mut self, mut lose: impl FnMut() -> bool) {
        self.failures += 1;
        let units: Vec<u64> = self.pending.units().collect();
        let mut outcome = None;
        for number in units {
            let page = number * self.unit / BLOCK;
            let together = self.pending.atomic_write_of(number).map_or((page, 0), |seq| (u64::MAX, seq));
            let lost = match outcome {
                Some((decided, lost)) if decided == together => lost,
                // The first page is always lost: a failed sync without loss would prove nothing.
                None => true,
                Some(_) => lose(),
            };
            outcome = Some((together, lost));
            if lost {
                self.pending.forget_unit(number);
                self.divergent.insert(page);
            }
        }
        self.cache.clean(0..=u64::MAX);
        // Only the page cache still shows data that the device lost. A device that showed it and acknowledged
        // the next flush would lie.
        let uncached: Vec<u64> = self.divergent.iter().copied().filter(|&page| !self.cache.holds(page)).collect();
        for page in uncached {
            self.reload(page);
        }
    }

    /// Makes a device flush that does nothing: pages become clean, but the device's own cache stays volatile.
    pub(crate) fn sync_lied(&mut self, offset: u64, len: u64) {
        self.cache.clean(offset / BLOCK..=offset.saturating_add(len) / BLOCK);
    }

    /// Restarts the machine: only stable data is left.
    pub(crate) fn restart(&mut self) {
        let stable = std::mem::take(&mut self.stable);
        *self = Self { seen: stable.clone(), data_end: stable.len, stable, ..Self::new(self.unit) };
    }

    // --- cache and rot -------------------------------------------------------------------------------------

    pub(crate) fn drop_cache(&mut self, pages: std::ops::RangeInclusive<u64>) {
        for page in self.cache.drop_clean(pages) {
            self.reload(page);
        }
    }

    /// Flips a bit on the medium.
    pub(crate) fn flip_bit(&mut self, offset: u64, bit: u8) {
        let flip = |image: &mut Image| {
            let mut byte = [0];
            image.read(offset, &mut byte);
            image.put(offset, 1, Some(&[byte[0] ^ (1 << (bit % 8))]));
        };
        let page = offset / BLOCK;
        if !self.cache.is_dirty(page) && offset < self.seen.len {
            // Bits rot on the medium: the device first writes its own cache there.
            self.sync_range(offset, 1);
        }
        flip(&mut self.stable);
        if self.cache.holds(page) {
            if !self.cache.is_dirty(page) {
                self.divergent.insert(page);
            }
        } else {
            flip(&mut self.seen);
        }
    }
}
