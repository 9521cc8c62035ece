//! The control block: what an opening must know before it can read anything else.
//!
//! 1. It is kept in two slots, [`SLOT_STRIDE`] bytes apart so that no device tears both with one write. The valid slot
//!    with the higher epoch is current.
//! 2. A slot is one block of [`SLOT_BYTES`]. Its CRC covers everything else in the slot. Magic, CRC, version and size
//!    stay where they are in every later format, so that an older program can always tell a newer file from a damaged
//!    one.
//! 3. Bytes that are not named here are zero.

use super::page::{PAGE_BYTES_MAX, PAGE_BYTES_MIN, set_u32, set_u64, u32_at, u64_at};
use super::{FORMAT_VERSION, FORMAT_VERSION_MIN, Lsn, TxnId};

/// What a slot begins with.
pub const MAGIC: [u8; 8] = *b"SEAWALL\n";
/// Bytes of a slot: a multiple of every sector size.
pub const SLOT_BYTES: usize = 4096;
/// Bytes from the beginning of one slot to the beginning of the next.
pub const SLOT_STRIDE: u64 = 16 << 10;
/// The number of slots.
pub const SLOTS: u64 = 2;
/// The largest log buffer, bytes.
const LOG_BUFFER_MAX: u64 = 1 << 40;

const CRC: usize = 8;
const VERSION: usize = 12;
const EPOCH: usize = 16;
const DATABASE: usize = 24;
const PAGE_BYTES: usize = 40;
const BLOCK_BYTES: usize = 44;
const SEGMENT_BYTES: usize = 48;
const INCARNATION: usize = 56;
const TORN: usize = 60;
const CLEAN: usize = 61;
const CHECKPOINT: usize = 64;
const LOG_END: usize = 72;
const NEXT_TXN: usize = 80;
const LOG_INCARNATION: usize = 88;
/// Four bytes of zeroes lie between.
const LOG_BUFFER: usize = 96;
const END: usize = 104;

const _: () = assert!(CRC == MAGIC.len() && VERSION == CRC + 4 && DATABASE + 16 == PAGE_BYTES);
const _: () = assert!(END <= 512, "the part in use fits the smallest sector");
const _: () = assert!(SLOT_BYTES as u64 <= SLOT_STRIDE);

/// Protection of pages against writes that a crash tears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[repr(u8)]
pub enum Torn {
    /// Every page is written to the doublewrite area and flushed there before it is written to the data file.
    #[default]
    Doublewrite = 1,
    /// No protection: the device is known to write pages whole. A torn page is detected and reported, but cannot be
    /// repaired.
    Off = 2,
}

impl Torn {
    fn from_u8(byte: u8) -> Option<Self> {
        [Self::Doublewrite, Self::Off].into_iter().find(|&torn| torn as u8 == byte)
    }
}

/// The contents of the control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlBlock {
    /// The database's identity: part of the CRC of every piece of log.
    pub database: [u8; 16],
    /// Bytes of a page; a power of two.
    pub page_bytes: u32,
    /// Bytes of a log block; a power of two.
    pub block_bytes: u32,
    /// Bytes of a log segment; a multiple of `block_bytes`.
    pub segment_bytes: u64,
    /// The number of the current or last opening; 0 before the first.
    pub incarnation: u32,
    /// The protection against torn pages.
    pub torn: Torn,
    /// Whether the database was closed with nothing left to recover.
    pub clean: bool,
    /// Recovery begins reading the log here.
    pub checkpoint: Lsn,
    /// The end of the last whole log entry that was durable when the checkpoint was made: a log that ends
    /// before it has lost flushed entries. The durable position itself can lie inside the next entry, where a
    /// segment ends.
    pub log_end: Lsn,
    /// Every transaction that wrote before the checkpoint has a lower id.
    pub next_txn: TxnId,
    /// No opening before this one wrote an entry of the log from the checkpoint on.
    pub log_incarnation: u32,
    /// The largest log buffer through which entries from the checkpoint on may have been written, bytes: it bounds how
    /// far beyond the end of the log recovery searches for entries.
    pub log_buffer: u64,
}

/// Why a slot holds no control block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadSlot {
    /// The slot does not begin like a control block.
    NoMagic,
    /// The file ends before the slot.
    Missing,
    /// The disk could not read the slot, for this reason.
    Unreadable(String),
    /// Its checksum does not match.
    Checksum {
        /// Computed.
        expected: u32,
        /// Stored.
        found: u32,
    },
    /// A program of another format version wrote it.
    Version(u32),
    /// The checksum holds, but this field has an invalid value.
    Field(&'static str),
}

impl std::fmt::Display for BadSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoMagic => f.write_str("does not begin as a control block"),
            Self::Missing => f.write_str("is missing"),
            Self::Unreadable(why) => write!(f, "could not be read ({why})"),
            Self::Checksum { expected, found } => {
                write!(f, "has checksum {found:#010x} where {expected:#010x} was expected")
            }
            Self::Version(version) => write!(f, "has format version {version}"),
            Self::Field(name) => write!(f, "has an impossible {name}"),
        }
    }
}

fn checksum(slot: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&slot[..CRC]), &slot[VERSION..SLOT_BYTES])
}

impl ControlBlock {
    /// Writes the block into a slot of [`SLOT_BYTES`].
    pub fn encode(&self, epoch: u64, slot: &mut [u8]) {
        slot.fill(0);
        slot[..CRC].copy_from_slice(&MAGIC);
        set_u32(slot, VERSION, FORMAT_VERSION);
        set_u64(slot, EPOCH, epoch);
        slot[DATABASE..DATABASE + 16].copy_from_slice(&self.database);
        set_u32(slot, PAGE_BYTES, self.page_bytes);
        set_u32(slot, BLOCK_BYTES, self.block_bytes);
        set_u64(slot, SEGMENT_BYTES, self.segment_bytes);
        set_u32(slot, INCARNATION, self.incarnation);
        slot[TORN] = self.torn as u8;
        slot[CLEAN] = u8::from(self.clean);
        set_u64(slot, CHECKPOINT, self.checkpoint.0);
        set_u64(slot, LOG_END, self.log_end.0);
        set_u64(slot, NEXT_TXN, self.next_txn.0);
        set_u32(slot, LOG_INCARNATION, self.log_incarnation);
        set_u64(slot, LOG_BUFFER, self.log_buffer);
        let crc = checksum(slot);
        set_u32(slot, CRC, crc);
    }

    /// Reads a slot of [`SLOT_BYTES`]. Returns its epoch and the block.
    ///
    /// # Errors
    /// What is wrong with the slot.
    pub fn decode(slot: &[u8]) -> Result<(u64, Self), BadSlot> {
        if slot.len() != SLOT_BYTES || slot[..CRC] != MAGIC {
            return Err(BadSlot::NoMagic);
        }
        let (found, expected) = (u32_at(slot, CRC), checksum(slot));
        if found != expected {
            return Err(BadSlot::Checksum { expected, found });
        }
        let version = u32_at(slot, VERSION);
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version) {
            return Err(BadSlot::Version(version));
        }
        let block = Self {
            database: slot[DATABASE..DATABASE + 16].try_into().expect("sixteen bytes"),
            page_bytes: u32_at(slot, PAGE_BYTES),
            block_bytes: u32_at(slot, BLOCK_BYTES),
            segment_bytes: u64_at(slot, SEGMENT_BYTES),
            incarnation: u32_at(slot, INCARNATION),
            torn: Torn::from_u8(slot[TORN]).ok_or(BadSlot::Field("torn-page protection"))?,
            clean: match slot[CLEAN] {
                0 => false,
                1 => true,
                _ => return Err(BadSlot::Field("clean mark")),
            },
            checkpoint: Lsn(u64_at(slot, CHECKPOINT)),
            log_end: Lsn(u64_at(slot, LOG_END)),
            next_txn: TxnId(u64_at(slot, NEXT_TXN)),
            log_incarnation: u32_at(slot, LOG_INCARNATION),
            log_buffer: u64_at(slot, LOG_BUFFER),
        };
        if !page_bytes_are_valid(block.page_bytes as usize) {
            return Err(BadSlot::Field("page size"));
        }
        if !block.block_bytes.is_power_of_two() {
            return Err(BadSlot::Field("log block size"));
        }
        if block.segment_bytes == 0 || block.segment_bytes % u64::from(block.block_bytes) != 0 {
            return Err(BadSlot::Field("log segment size"));
        }
        if !block.log_buffer.is_power_of_two() || block.log_buffer > LOG_BUFFER_MAX {
            return Err(BadSlot::Field("log buffer size"));
        }
        if block.log_incarnation > block.incarnation {
            return Err(BadSlot::Field("incarnation of the log"));
        }
        Ok((u64_at(slot, EPOCH), block))
    }
}

/// Returns whether a database can have pages of this size, bytes.
#[must_use]
pub fn page_bytes_are_valid(page_bytes: usize) -> bool {
    page_bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block() -> ControlBlock {
        ControlBlock {
            database: *b"0123456789abcdef",
            page_bytes: 16384,
            block_bytes: 4096,
            segment_bytes: 1 << 20,
            incarnation: 7,
            torn: Torn::Doublewrite,
            clean: true,
            checkpoint: Lsn(12345),
            log_end: Lsn(23456),
            next_txn: TxnId(99),
            log_incarnation: 5,
            log_buffer: 1 << 20,
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            database in any::<[u8; 16]>(), page in 12u32..=15, incarnation in any::<u32>(), numbers in any::<[u64; 3]>(),
            log_incarnation in any::<u32>(), buffer in 0u32..40, epoch in any::<u64>(), off in any::<bool>(), clean in any::<bool>(),
        ) {
            let torn = if off { Torn::Off } else { Torn::Doublewrite };
            let block = ControlBlock {
                database, page_bytes: 1 << page, incarnation, clean, torn,
                checkpoint: Lsn(numbers[0]), log_end: Lsn(numbers[1]), next_txn: TxnId(numbers[2]),
                log_incarnation: log_incarnation.min(incarnation), log_buffer: 1 << buffer, ..block()
            };
            let mut slot = vec![0xff; SLOT_BYTES];
            block.encode(epoch, &mut slot);
            prop_assert_eq!(ControlBlock::decode(&slot), Ok((epoch, block)));
        }

        #[test]
        fn garbage_is_refused(mut bytes in proptest::collection::vec(any::<u8>(), SLOT_BYTES)) {
            prop_assert!(ControlBlock::decode(&bytes).is_err());
            bytes[..8].copy_from_slice(&MAGIC);
            prop_assert!(ControlBlock::decode(&bytes).is_err());
            prop_assert!(ControlBlock::decode(&bytes[1..]).is_err());
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let mut slot = vec![0; SLOT_BYTES];
        block().encode(3, &mut slot);
        for bit in (0..END * 8).chain(SLOT_BYTES * 8 - 16..SLOT_BYTES * 8) {
            slot[bit / 8] ^= 1 << (bit % 8);
            assert!(ControlBlock::decode(&slot).is_err(), "bit {bit}");
            slot[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let mut slot = vec![0; SLOT_BYTES];
        block().encode(3, &mut slot);
        set_u32(&mut slot, VERSION, FORMAT_VERSION + 1);
        assert!(matches!(ControlBlock::decode(&slot), Err(BadSlot::Checksum { .. })));
        let crc = checksum(&slot);
        set_u32(&mut slot, CRC, crc);
        assert_eq!(ControlBlock::decode(&slot), Err(BadSlot::Version(FORMAT_VERSION + 1)));
    }

    #[test]
    fn the_format_before_is_read_and_the_one_before_that_refused() {
        for (version, is_read) in [(FORMAT_VERSION_MIN - 1, false), (FORMAT_VERSION_MIN, true), (FORMAT_VERSION, true)]
        {
            let mut slot = vec![0; SLOT_BYTES];
            block().encode(3, &mut slot);
            set_u32(&mut slot, VERSION, version);
            let crc = checksum(&slot);
            set_u32(&mut slot, CRC, crc);
            let expected = if is_read { Ok((3, block())) } else { Err(BadSlot::Version(version)) };
            assert_eq!(ControlBlock::decode(&slot), expected);
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (block, field) in [
            (ControlBlock { page_bytes: 5000, ..block() }, "page size"),
            (ControlBlock { block_bytes: 0, ..block() }, "log block size"),
            (ControlBlock { segment_bytes: 4097, ..block() }, "log segment size"),
            (ControlBlock { log_buffer: 3 << 20, ..block() }, "log buffer size"),
            (ControlBlock { log_buffer: 1 << 50, ..block() }, "log buffer size"),
            (ControlBlock { log_incarnation: 8, ..block() }, "incarnation of the log"),
        ] {
            let mut slot = vec![0; SLOT_BYTES];
            block.encode(1, &mut slot);
            assert_eq!(ControlBlock::decode(&slot), Err(BadSlot::Field(field)));
        }
    }
}
