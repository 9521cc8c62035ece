//! The content of writes: blocks in which every 512-byte sector identifies itself and can be checked on its
//! own.
//!
//! 1. A sector is a function of (run, seed, stream, sequence, offset) and nothing else, so the verifier
//!    regenerates it and compares all 512 bytes; the checksum only distinguishes damage from a sector that
//!    belongs elsewhere.
//! 2. Two writes never have an equal sector, so the verifier distinguishes an old version, a misdirected
//!    sector and one of another run.
//! 3. An all-zero sector is never valid.
//!
//! ```text
//! offset  size
//!      0     4  magic "SWSC"
//!      4     4  crc32c of bytes 8..512
//!      8     8  run id
//!     16     8  sequence; 0 is the preparation of the file
//!     24     4  stream
//!     28     4  zero
//!     32     8  offset of the sector in the file, bytes
//!     40   472  noise drawn from (seed, stream, sequence, offset)
//! ```

use super::RunId;

/// The unit that a drive writes atomically, bytes: tears are detected between sectors, and inside one by
/// its checksum.
pub const SECTOR_BYTES: usize = 512;
const MAGIC: [u8; 4] = *b"SWSC";
const NOISE: usize = 40;
const _: () = assert!((SECTOR_BYTES - NOISE) % 8 == 0);

/// The common part of all sectors of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Author {
    pub(super) run: RunId,
    pub(super) seed: u64,
    pub(super) stream: u32,
}

/// The kind of a sector that was read.
///
/// ```
/// use seawall_tools::witness::Sector;
/// // After a tear: the first sector is new, the second is still the old one.
/// let found = [Sector::Version(12), Sector::Version(11)];
/// assert!(found.contains(&Sector::Version(12)) && found.iter().any(|s| *s != Sector::Version(12)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sector {
    /// This version of exactly this place.
    Version(u64),
    /// All zeroes.
    Zeroes,
    /// Beyond the end of the file, or the file does not exist.
    Missing,
    /// A read error of the disk.
    Unreadable,
    /// A valid sector of another place, stream or run: stale or misdirected.
    Foreign,
    /// Bytes that no run wrote.
    Damaged,
}

/// A well-mixed 64-bit function (Steele et al., "Fast splittable pseudorandom number generators", the
/// finaliser of SplitMix64).
pub(super) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Author {
    /// Fills `block`, which goes to `offset`, with version `sequence`.
    pub(super) fn write(&self, sequence: u64, offset: u64, block: &mut [u8]) {
        for (i, sector) in block.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            self.write_sector(sequence, offset + (i * SECTOR_BYTES) as u64, sector);
        }
    }

    fn write_sector(&self, sequence: u64, offset: u64, sector: &mut [u8]) {
        sector[0..4].copy_from_slice(&MAGIC);
        sector[8..16].copy_from_slice(&self.run.0.to_le_bytes());
        sector[16..24].copy_from_slice(&sequence.to_le_bytes());
        sector[24..28].copy_from_slice(&self.stream.to_le_bytes());
        sector[28..32].fill(0);
        sector[32..40].copy_from_slice(&offset.to_le_bytes());
        let mut noise = mix(self.seed ^ mix(u64::from(self.stream) ^ mix(sequence ^ mix(offset))));
        for word in sector[NOISE..].chunks_exact_mut(8) {
            noise = mix(noise);
            word.copy_from_slice(&noise.to_le_bytes());
        }
        let crc = crc32c::crc32c(&sector[8..]);
        sector[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the kind of the sector `found`, read at `offset`.
    pub(super) fn read(&self, offset: u64, found: &[u8]) -> Sector {
        if found.iter().all(|&b| b == 0) {
            return Sector::Zeroes;
        }
        let u64_at = |at: usize| u64::from_le_bytes(found[at..at + 8].try_into().expect("eight bytes"));
        let mut expected = [0; SECTOR_BYTES];
        let sequence = u64_at(16);
        self.write_sector(sequence, offset, &mut expected);
        if found == expected {
            return Sector::Version(sequence);
        }
        let crc = u32::from_le_bytes(found[4..8].try_into().expect("four bytes"));
        if found[0..4] == MAGIC && crc == crc32c::crc32c(&found[8..]) { Sector::Foreign } else { Sector::Damaged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_is_known_by_its_place_and_version_only() {
        let author = Author { run: RunId(7), seed: 1, stream: 2 };
        let mut block = vec![0; 2048];
        author.write(5, 8192, &mut block);
        for (i, sector) in block.chunks(SECTOR_BYTES).enumerate() {
            assert_eq!(author.read(8192 + 512 * i as u64, sector), Sector::Version(5));
            assert_eq!(author.read(512 * i as u64, sector), Sector::Foreign, "misdirected");
            assert_eq!(Author { run: RunId(8), ..author }.read(8192 + 512 * i as u64, sector), Sector::Foreign);
            assert_eq!(Author { stream: 3, ..author }.read(8192 + 512 * i as u64, sector), Sector::Foreign);
        }
        assert_eq!(author.read(0, &[0; 512]), Sector::Zeroes);
        for bit in [0, 37, 130, 200, 4000, 4095] {
            let mut rotten = block[..512].to_vec();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(author.read(8192, &rotten), Sector::Damaged, "bit {bit}");
        }
    }
}
