//! The entry: one mini-transaction in the log's stream of bytes.
//!
//! 1. An entry is a header and a body. It begins at any byte of the stream; nothing lies between two entries.
//! 2. The CRC covers the database's identity, the entry's LSN, the header and the body: bytes of another database, of
//!    another position or of an older pass through the segments are never taken for an entry.
//! 3. Every entry carries the incarnation that wrote it, at least 1, so a run of zeroes is not an entry.
//! 4. A header carries its own mark, bound to its position. Recovery checks every byte after the end of the log as the
//!    start of an entry, and in the remains of older passes every few bytes look like a length and an incarnation. Only
//!    one in 4096 of them also bears the mark, and only then the body is checked.
//! 5. `behind` is the distance from the entry's LSN back to what was durable when it was made.
//!    [`BEHIND_UNKNOWN`] proves nothing.

use super::MTR_BYTES_MAX;

/// Offsets in the header, bytes. Little-endian. The length field has the header's mark in its high bits.
const LEN: usize = 0;
const _: () = assert!(LEN == 0, "a header begins with its length: `Header::entry_bytes_of`");
const CRC: usize = 4;
const INCARNATION: usize = 8;
/// Where the incarnation, which is never 0, ends.
pub(super) const INCARNATION_END: usize = INCARNATION + 4;
const BEHIND: usize = INCARNATION_END;
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 16;
const _: () = assert!(BEHIND + size_of::<u32>() == HEADER_BYTES, "the header ends with its last field");
/// Bits of the length; the rest of its field is the mark.
const LEN_BITS: u32 = 20;
const _: () = assert!(MTR_BYTES_MAX < 1 << LEN_BITS, "a length fits its field");

/// The most bytes an entry has.
pub(super) const ENTRY_BYTES_MAX: usize = HEADER_BYTES + MTR_BYTES_MAX;

/// The distance does not fit the field: the entry does not say what was durable.
pub(super) const BEHIND_UNKNOWN: u32 = u32::MAX;

/// The part of every CRC that never changes in a database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seal(u32);

impl Seal {
    pub(super) fn new(database: &[u8; 16]) -> Self {
        Self(crc32c::crc32c(database))
    }

    /// Returns the checksum of everything but the body.
    fn header_crc(self, lsn: u64, header: &Header) -> u32 {
        let mut fixed = [0; 20];
        fixed[..8].copy_from_slice(&lsn.to_le_bytes());
        fixed[8..12].copy_from_slice(&header.len.to_le_bytes());
        fixed[12..16].copy_from_slice(&header.incarnation.to_le_bytes());
        fixed[16..].copy_from_slice(&header.behind.to_le_bytes());
        crc32c::crc32c_append(self.0, &fixed)
    }

    /// Returns the header of an entry at `lsn`.
    pub(super) fn encode(self, lsn: u64, incarnation: u32, durable: u64, body: &[u8]) -> [u8; HEADER_BYTES] {
        debug_assert!(body.len() <= MTR_BYTES_MAX && incarnation > 0 && durable <= lsn);
        let behind = u32::try_from(lsn - durable).unwrap_or(BEHIND_UNKNOWN);
        let header = Header { len: body.len() as u32, mark: 0, crc: 0, incarnation, behind };
        let of_header = self.header_crc(lsn, &header);
        let crc = crc32c::crc32c_append(of_header, body);
        let mut out = [0; HEADER_BYTES];
        out[LEN..LEN + 4].copy_from_slice(&(header.len | mark(of_header) << LEN_BITS).to_le_bytes());
        out[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        out[INCARNATION..INCARNATION + 4].copy_from_slice(&incarnation.to_le_bytes());
        out[BEHIND..BEHIND + 4].copy_from_slice(&behind.to_le_bytes());
        out
    }

    /// Returns whether `header` bears the mark of a header at `lsn` of this database.
    pub(super) fn marked(self, lsn: u64, header: &Header) -> bool {
        mark(self.header_crc(lsn, header)) == header.mark
    }

    /// Returns whether `header` and `body` are an entry at `lsn` of this database.
    pub(super) fn holds(self, lsn: u64, header: &Header, body: &[u8]) -> bool {
        let of_header = self.header_crc(lsn, header);
        header.len as usize == body.len()
            && mark(of_header) == header.mark
            && crc32c::crc32c_append(of_header, body) == header.crc
    }
}

/// Returns the mark of a header with this checksum.
fn mark(of_header: u32) -> u32 {
    of_header >> LEN_BITS
}

/// A header as read: trust none of it before [`Seal::holds`] confirms it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the body.
    pub(super) len: u32,
    /// The high bits of the checksum of the rest of the header.
    mark: u32,
    pub(super) crc: u32,
    pub(super) incarnation: u32,
    pub(super) behind: u32,
}

impl Header {
    /// Decodes the fields. Returns `None` for values that no entry has: a body that is too long, an incarnation outside
    /// `incarnations`.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], incarnations: &std::ops::RangeInclusive<u32>) -> Option<Self> {
        let field = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Self {
            len: field(LEN) & ((1 << LEN_BITS) - 1),
            mark: field(LEN) >> LEN_BITS,
            crc: field(CRC),
            incarnation: field(INCARNATION),
            behind: field(BEHIND),
        };
        let plausible = header.len as usize <= MTR_BYTES_MAX && incarnations.contains(&header.incarnation);
        plausible.then_some(header)
    }

    /// Returns the bytes of the whole entry whose header begins with `first`. Checks nothing: only for entries that are
    /// known to be intact.
    pub(super) fn entry_bytes_of(first: [u8; 4]) -> u64 {
        HEADER_BYTES as u64 + u64::from(u32::from_le_bytes(first) & ((1 << LEN_BITS) - 1))
    }

    /// Bytes of the whole entry.
    pub(super) fn entry_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.len)
    }

    /// Returns the position before which everything was durable when the entry at `lsn` was made, if the entry says so.
    pub(super) fn durable_then(&self, lsn: u64) -> Option<u64> {
        (self.behind != BEHIND_UNKNOWN).then(|| lsn.saturating_sub(u64::from(self.behind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_holds_only_where_and_as_it_was_made(
            lsn in 1u64..1 << 48, back in 0u64..1 << 20, incarnation in 1u32..,
            body in proptest::collection::vec(any::<u8>(), 0..300), bit in any::<prop::sample::Index>(),
        ) {
            let seal = Seal::new(&[7; 16]);
            let durable = lsn.saturating_sub(back);
            let bytes = seal.encode(lsn, incarnation, durable, &body);
            let header = Header::decode(&bytes, &(1..=u32::MAX)).unwrap();
            prop_assert!(seal.holds(lsn, &header, &body));
            prop_assert_eq!(header.durable_then(lsn), Some(durable));
            prop_assert!(!seal.holds(lsn + 1, &header, &body), "another place");
            prop_assert!(!Seal::new(&[8; 16]).holds(lsn, &header, &body), "another database");
            // Any flipped bit is detected.
            let mut all: Vec<u8> = bytes.iter().chain(&body).copied().collect();
            let at = bit.index(all.len() * 8);
            all[at / 8] ^= 1 << (at % 8);
            let (head, tail) = all.split_at(HEADER_BYTES);
            let header = Header::decode(head.try_into().unwrap(), &(1..=u32::MAX));
            prop_assert!(header.is_none_or(|header| !seal.holds(lsn, &header, tail)));
        }
    }

    #[test]
    fn zeroes_and_impossible_fields_are_no_header() {
        assert_eq!(Header::decode(&[0; HEADER_BYTES], &(1..=u32::MAX)), None);
        let mut bytes = Seal::new(&[0; 16]).encode(5000, 3, 5000, &[]);
        assert!(Header::decode(&bytes, &(1..=3)).is_some());
        assert_eq!(Header::decode(&bytes, &(4..=9)), None, "an older incarnation");
        assert_eq!(Header::decode(&bytes, &(1..=2)), None, "one that was never opened");
        bytes[..4].copy_from_slice(&(MTR_BYTES_MAX as u32 + 1).to_le_bytes());
        assert_eq!(Header::decode(&bytes, &(1..=9)), None, "longer than any");
    }

    #[test]
    fn a_distance_that_does_not_fit_proves_nothing() {
        let bytes = Seal::new(&[0; 16]).encode(1 << 40, 1, 0, &[]);
        assert_eq!(Header::decode(&bytes, &(1..=1)).unwrap().durable_then(1 << 40), None);
    }
}
