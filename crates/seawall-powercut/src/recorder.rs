//! A disk with a volatile cache: what reads return, what is durable, and the pending writes between the two.
//!
//! 1. A write is pending from its arrival until a flush covers it. A flush covers the writes that were
//!    completed when the flush arrived, and makes them durable when the flush itself completes.
//! 2. A power cut keeps what is durable and any subset of the pending writes, each whole or torn at the
//!    disk's unit of atomicity. The kept writes are applied in the order of their arrival: a drive never
//!    replaces a newer completed write by an older one.
//! 3. Reads see every write that has arrived.

use crate::rng::SeededRng;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// The unit of sharing between images.
const BLOCK: usize = 4096;
type Block = Arc<[u8; BLOCK]>;

/// The contents of a disk. A clone shares all blocks until one of the two is written.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// `None` is a block of zeroes.
    blocks: Vec<Option<Block>>,
}

impl Image {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { blocks: vec![None; bytes.div_ceil(BLOCK as u64) as usize] }
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK) as u64
    }

    /// Returns whether the range lies on the disk.
    pub(crate) fn contains(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.bytes())
    }

    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        for (block, at, range) in pieces(offset, out.len()) {
            let len = range.len();
            match &self.blocks[block] {
                Some(bytes) => out[range].copy_from_slice(&bytes[at..at + len]),
                None => out[range].fill(0),
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (block, at, range) in pieces(offset, data.len()) {
            let piece = &data[range];
            let zero = piece.iter().all(|byte| *byte == 0);
            let place = &mut self.blocks[block];
            match place {
                None if zero => {}
                Some(_) if zero && piece.len() == BLOCK => *place = None,
                _ => {
                    let block = place.get_or_insert_with(|| Arc::new([0; BLOCK]));
                    Arc::make_mut(block)[at..at + piece.len()].copy_from_slice(piece);
                }
            }
        }
    }

    /// Writes the image to a sparse file.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.bytes())?;
        for (number, block) in self.blocks.iter().enumerate() {
            if let Some(bytes) = block {
                file.write_all_at(&bytes[..], (number * BLOCK) as u64)?;
            }
        }
        Ok(())
    }
}

/// Yields the blocks that a range touches: number, offset in the block, and the part of the range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let place = offset as usize + done;
            let at = place % BLOCK;
            let range = done..len.min(done + BLOCK - at);
            done = range.end;
            (place / BLOCK, at, range)
        })
    })
}

#[derive(Debug)]
struct Write {
    id: u64,
    offset: u64,
    data: Vec<u8>,
    completed: bool,
}

impl Write {
    fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset + other.data.len() as u64 && other.offset < self.offset + self.data.len() as u64
    }
}

/// What a power cut did to the pending writes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub pending: u64,
    pub whole: u64,
    pub torn: u64,
    pub lost: u64,
}

/// How the disk treats flushes. All but the default are planted defects of the disk, which the comparison
/// must find.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushBehaviour {
    #[default]
    Honest,
    /// Flushes are acknowledged without effect.
    Ignores,
}

/// A recorded disk.
#[derive(Debug)]
pub(crate) struct Disk {
    image: Image,
    durable: Image,
    /// In the order of arrival.
    pending: Vec<Write>,
    /// The writes that each flush in progress covers.
    flushing: HashMap<u64, Vec<u64>>,
    flush_behaviour: FlushBehaviour,
    pub writes: u64,
    pub flushes: u64,
    /// After a power cut: every request fails.
    pub dead: bool,
}

impl Disk {
    pub(crate) fn new(image: Image) -> Self {
        Self {
            durable: image.clone(),
            image,
            pending: Vec::new(),
            flushing: HashMap::new(),
            flush_behaviour: FlushBehaviour::Honest,
            writes: 0,
            flushes: 0,
            dead: false,
        }
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn lie(&mut self, behaviour: FlushBehaviour) {
        self.flush_behaviour = behaviour;
    }

    /// Records that a write has arrived.
    pub(crate) fn write(&mut self, id: u64, offset: u64, data: &[u8]) {
        self.writes += 1;
        self.image.write(offset, data);
        self.pending.push(Write { id, offset, data: data.to_vec(), completed: false });
    }

    /// Records that the write is acknowledged.
    pub(crate) fn write_done(&mut self, id: u64) {
        // A flush may already have covered it, see `flush_began`.
        if let Some(write) = self.pending.iter_mut().rev().find(|write| write.id == id) {
            write.completed = true;
        }
    }

    /// Records that a flush has arrived.
    pub(crate) fn flush_began(&mut self, id: u64) {
        self.flushes += 1;
        if self.flush_behaviour == FlushBehaviour::Ignores {
            return;
        }
        let covered = |(at, write): (usize, &Write)| {
            // A write in flight that is followed by a completed write of the same range must become durable
            // first, or it could later overwrite the newer one.
            let below = || self.pending[at + 1..].iter().any(|newer| newer.completed && newer.overlaps(write));
            (write.completed || below()).then_some(write.id)
        };
        let ids = self.pending.iter().enumerate().filter_map(covered).collect();
        self.flushing.insert(id, ids);
    }

    /// Records that the flush is acknowledged.
    pub(crate) fn flush_done(&mut self, id: u64) {
        let Some(ids) = self.flushing.remove(&id) else { return };
        let durable = &mut self.durable;
        self.pending.retain(|write| {
            let covered = ids.binary_search(&write.id).is_ok();
            if covered {
                durable.write(write.offset, &write.data);
            }
            !covered
        });
    }

    /// Returns a possible state of the disk after a power cut now.
    pub(crate) fn cut(&self, rng: &mut SeededRng, unit: usize) -> (Image, Kept) {
        let mut image = self.durable.clone();
        let count = self.pending.len() as u64;
        let mut kept = Kept { pending: count, ..Kept::default() };
        let manner = rng.below(6);
        let border = rng.below(count + 1);
        let share = rng.pick(&[1, 8, 15]);
        let torn_in_8 = rng.pick(&[0, 1, 8]);
        for (at, write) in (0..).zip(&self.pending) {
            let keep = match manner {
                0 => false,
                1 => true,
                // The oldest writes, or the newest: reordered.
                2 => at < border,
                3 => at >= border,
                _ => rng.below(16) < share,
            };
            if !keep {
                kept.lost += 1;
            } else if write.data.len() > unit && rng.below(8) < torn_in_8 {
                kept.torn += 1;
                tear(&mut image, write, rng, unit);
            } else {
                kept.whole += 1;
                image.write(write.offset, &write.data);
            }
        }
        (image, kept)
    }
}

/// Keeps a beginning, an end, or any subset of a write.
fn tear(image: &mut Image, write: &Write, rng: &mut SeededRng, unit: usize) {
    let units = write.data.len().div_ceil(unit);
    let (manner, border) = (rng.below(3), rng.below(units as u64 + 1) as usize);
    for (number, part) in write.data.chunks(unit).enumerate() {
        let keep = match manner {
            0 => number < border,
            1 => number >= border,
            _ => rng.one_in(2),
        };
        if keep {
            image.write(write.offset + (number * unit) as u64, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk::new(Image::new(1 << 20))
    }

    fn bytes(image: &Image, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0xee; len];
        image.read(offset, &mut out);
        out
    }

    #[test]
    fn an_image_reads_what_was_written_at_any_sector() {
        let mut image = Image::new(64 << 10);
        let data: Vec<u8> = (0..9000).map(|i| (i % 251) as u8 + 1).collect();
        image.write(3584, &data);
        assert_eq!(bytes(&image, 3584, 9000), data);
        assert_eq!(bytes(&image, 0, 3584), vec![0; 3584]);
        let shared = image.clone();
        image.write(4096, &[0; 4096]);
        assert_eq!(bytes(&image, 4096, 4096), vec![0; 4096]);
        assert_eq!(bytes(&shared, 3584, 9000), data, "a clone is not touched");
        assert!(image.contains(0, 64 << 10) && !image.contains(1, 64 << 10) && !image.contains(u64::MAX, 1));
    }

    #[test]
    fn a_flush_keeps_what_was_completed_before_it_began() {
        let mut disk = disk();
        disk.write(1, 0, &[1; 4096]);
        disk.write_done(1);
        disk.write(2, 4096, &[2; 4096]);
        disk.flush_began(3);
        disk.write_done(2);
        let mut lost = 0;
        for seed in 0..100 {
            lost += u64::from(bytes(&disk.cut(&mut SeededRng::new(seed), 512).0, 0, 1) == [0]);
        }
        assert!(lost > 0, "a flush that is not acknowledged promises nothing");
        disk.flush_done(3);
        let mut second = [0; 2];
        for seed in 0..100 {
            let (image, kept) = disk.cut(&mut SeededRng::new(seed), 512);
            assert_eq!(bytes(&image, 0, 4096), vec![1; 4096]);
            assert_eq!(kept.pending, 1);
            second[usize::from(bytes(&image, 4096, 1)[0] == 2)] += 1;
        }
        assert!(second[0] > 10 && second[1] > 10, "the other may be there or not: {second:?}");
    }

    #[test]
    fn every_subset_and_every_tear_occurs() {
        let mut disk = disk();
        for id in 0..3 {
            disk.write(id, id * 8192, &[id as u8 + 1; 8192]);
            disk.write_done(id);
        }
        let (mut subsets, mut tears) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for seed in 0..3000 {
            let (image, kept) = disk.cut(&mut SeededRng::new(seed), 4096);
            assert_eq!(kept.whole + kept.torn + kept.lost, 3);
            let seen: Vec<u8> = (0..6).map(|block| bytes(&image, block * 4096, 1)[0]).collect();
            assert!(seen.iter().zip([1, 1, 2, 2, 3, 3]).all(|(seen, whole)| *seen == 0 || *seen == whole), "{seen:?}");
            if kept.torn == 0 {
                subsets.insert(seen);
            } else {
                tears.insert(seen);
            }
        }
        assert_eq!(subsets.len(), 8);
        assert_eq!(tears.len(), 64, "each half of each write, kept or not");
    }

    #[test]
    fn an_older_write_never_comes_back_over_a_newer_one() {
        let mut disk = disk();
        disk.write(1, 0, &[1; 4096]);
        disk.write(2, 0, &[2; 4096]);
        disk.write_done(2);
        disk.flush_began(3);
        disk.flush_done(3);
        disk.write_done(1);
        for seed in 0..50 {
            assert_eq!(bytes(&disk.cut(&mut SeededRng::new(seed), 512).0, 0, 4096), vec![2; 4096]);
        }
    }

    #[test]
    fn a_disk_that_lies_keeps_nothing_for_sure() {
        let mut disk = disk();
        disk.lie(FlushBehaviour::Ignores);
        disk.write(1, 0, &[1; 4096]);
        disk.write_done(1);
        disk.flush_began(2);
        disk.flush_done(2);
        let lost = (0..50).filter(|seed| bytes(&disk.cut(&mut SeededRng::new(*seed), 512).0, 0, 1) == [0]).count();
        assert!(lost > 0 && disk.flushes == 1);
    }

    #[test]
    fn a_saved_image_is_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let mut image = Image::new(1 << 20);
        image.write(512 * 9, &[7; 1024]);
        image.save(&dir.path().join("image")).unwrap();
        let saved = std::fs::read(dir.path().join("image")).unwrap();
        assert_eq!(saved, bytes(&image, 0, 1 << 20));
    }
}
