//! A leaf's payload: flags, version, value.
//!
//! 1. `flags u8, [writer u48, undo pointer u48 when HEADER], value`; the value is the bytes themselves, or an
//!    [`OverflowRef`] when OVERFLOW.
//! 2. An entry without a header is visible to every view. One that is marked deleted always has a header:
//!    purge needs its writer.
//! 3. Flags, writer and undo pointer are contiguous at the front, so that one patch of [`ENTRY_HEADER_BYTES`]
//!    marks an entry that has a header.

use crate::format::{Malformed, PageId, Reader, TxnId, UndoPtr, put_u48};

/// The largest entry of a leaf, key and payload together, bytes. Such an entry always fits beside two fences
/// of the longest keys.
#[must_use]
pub const fn entry_bytes_max(page_bytes: usize) -> usize {
    page_bytes / 2
}

/// Flag: the key is deleted for views that see the writer.
pub const DELETED: u8 = 1;
/// Flag: writer and undo pointer are present.
pub const HEADER: u8 = 2;
/// Flag: the value is an [`OverflowRef`].
pub const OVERFLOW: u8 = 4;
/// Bytes of flags, writer and undo pointer.
pub const ENTRY_HEADER_BYTES: usize = 13;
/// Bytes of a version: writer and undo pointer.
pub(super) const VERSION_BYTES: usize = ENTRY_HEADER_BYTES - 1;

const SHORT: Malformed = Malformed("an entry that ends too soon");

const ALL: u8 = DELETED | HEADER | OVERFLOW;

/// The longest value that is kept in the leaf, bytes; a longer one goes to overflow pages. Leaves room for a
/// header.
#[must_use]
pub const fn inline_value_max(page_bytes: usize, key_len: usize) -> usize {
    entry_bytes_max(page_bytes) - ENTRY_HEADER_BYTES - key_len
}

/// Reference to a long value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverflowRef {
    /// Its only page, or the first page of the list that names its pages.
    pub head: PageId,
    /// Its length, bytes.
    pub len: u32,
}

impl OverflowRef {
    /// Bytes of an encoded reference.
    pub const BYTES: usize = 8;

    /// Its encoded form.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.head.0.to_le_bytes());
        out[4..].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    /// Decodes a reference.
    ///
    /// # Errors
    /// When the length is wrong or no page is named.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let reference = Self { head: PageId(reader.u32()?), len: reader.u32()? };
        if !reader.is_empty() || reference.head == PageId::NONE {
            return Err(Malformed("a bad overflow reference"));
        }
        Ok(reference)
    }
}

/// A leaf's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// [`DELETED`], [`HEADER`], [`OVERFLOW`].
    pub flags: u8,
    /// Its writer; [`TxnId::NONE`] without a header.
    pub writer: TxnId,
    /// Its undo record; [`UndoPtr::NONE`] without a header.
    pub undo: UndoPtr,
    /// The value's bytes, or an encoded [`OverflowRef`].
    pub value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// An entry with a header.
    #[must_use]
    pub fn written(writer: TxnId, undo: UndoPtr, value: &'a [u8]) -> Self {
        Self { flags: HEADER, writer, undo, value }
    }

    /// Decodes a payload.
    ///
    /// # Errors
    /// When it is too short or has unknown flags.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let Some((&flags, rest)) = payload.split_first() else { return Err(SHORT) };
        if flags & !ALL != 0 || flags & (DELETED | HEADER) == DELETED {
            return Err(Malformed("an entry with impossible flags"));
        }
        let (mut writer, mut undo, mut value) = (TxnId::NONE, UndoPtr::NONE, rest);
        if flags & HEADER != 0 {
            let Some((version, behind)) = rest.split_first_chunk::<VERSION_BYTES>() else { return Err(SHORT) };
            let [w0, w1, w2, w3, w4, w5, u0, u1, u2, u3, u4, u5] = *version;
            writer = TxnId(u64::from_le_bytes([w0, w1, w2, w3, w4, w5, 0, 0]));
            undo = UndoPtr(u64::from_le_bytes([u0, u1, u2, u3, u4, u5, 0, 0]));
            value = behind;
        }
        if flags & OVERFLOW != 0 && value.len() != OverflowRef::BYTES {
            return Err(Malformed("an entry with a bad overflow reference"));
        }
        Ok(Self { flags, writer, undo, value })
    }

    /// Returns the value in a payload that is known to decode.
    #[inline]
    pub(super) fn value_in(payload: &'a [u8]) -> &'a [u8] {
        payload.get(if Self::has_header_in(payload) { ENTRY_HEADER_BYTES } else { 1 }..).unwrap_or_default()
    }

    /// Returns whether a payload has a header.
    #[inline]
    pub(super) fn has_header_in(payload: &[u8]) -> bool {
        payload.len() >= ENTRY_HEADER_BYTES && payload[0] & HEADER != 0
    }

    /// Bytes of its payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        1 + if self.has_header() { VERSION_BYTES } else { 0 } + self.value.len()
    }

    /// Encodes the entry into `payload`.
    pub fn encode_into(&self, payload: &mut Vec<u8>) {
        payload.clear();
        payload.push(self.flags);
        if self.has_header() {
            put_u48(payload, self.writer.0);
            put_u48(payload, self.undo.0);
        }
        payload.extend_from_slice(self.value);
    }

    /// Returns the first bytes of an entry with a header, which a patch at offset 0 of its payload writes.
    #[must_use]
    pub fn header_bytes(flags: u8, writer: TxnId, undo: UndoPtr) -> [u8; ENTRY_HEADER_BYTES] {
        debug_assert!(flags & HEADER != 0 && writer.0 >> 48 == 0 && undo.0 >> 48 == 0, "a header of 48-bit numbers");
        let mut out = [flags; ENTRY_HEADER_BYTES];
        out[1..7].copy_from_slice(&writer.0.to_le_bytes()[..6]);
        out[7..13].copy_from_slice(&undo.0.to_le_bytes()[..6]);
        out
    }

    /// Returns whether writer and undo pointer are present.
    #[must_use]
    pub fn has_header(&self) -> bool {
        self.flags & HEADER != 0
    }

    /// Returns whether the key is deleted for views that see the writer.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    /// Returns the reference to the value, if the value is not in the entry.
    ///
    /// # Errors
    /// When the reference does not decode.
    pub fn overflow(&self) -> Result<Option<OverflowRef>, Malformed> {
        if self.flags & OVERFLOW == 0 { Ok(None) } else { OverflowRef::decode(self.value).map(Some) }
    }

    /// Returns whether the entry's header can be left out: every view sees the writer, and the entry is not
    /// deleted.
    #[must_use]
    pub fn is_elidable(&self, horizon: TxnId) -> bool {
        self.flags & (HEADER | DELETED) == HEADER && self.writer < horizon
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            deleted: bool, header: bool, writer in 0u64..1 << 48, undo in 0u64..1 << 48,
            value in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let header = header || deleted;
            let flags = if deleted { DELETED } else { 0 } | if header { HEADER } else { 0 };
            let (writer, undo) = if header { (TxnId(writer), UndoPtr(undo)) } else { (TxnId::NONE, UndoPtr::NONE) };
            let entry = Entry { flags, writer, undo, value: &value };
            let mut payload = Vec::new();
            entry.encode_into(&mut payload);
            prop_assert_eq!(payload.len(), entry.payload_len());
            prop_assert_eq!(Entry::decode(&payload), Ok(entry));
            if header {
                prop_assert_eq!(&Entry::header_bytes(flags, writer, undo)[..], &payload[..ENTRY_HEADER_BYTES]);
            }
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            if let Ok(entry) = Entry::decode(&bytes) {
                prop_assert_eq!(entry.payload_len(), bytes.len());
                prop_assert!(entry.overflow().is_ok() || entry.value.len() == OverflowRef::BYTES);
            }
        }
    }

    #[test]
    fn the_smallest_page_has_room_for_an_overflow_reference_beside_the_longest_key() {
        for shift in 12..=15 {
            let page_bytes = 1 << shift;
            assert!(inline_value_max(page_bytes, super::super::key_bytes_max(page_bytes)) >= OverflowRef::BYTES);
        }
    }
}
