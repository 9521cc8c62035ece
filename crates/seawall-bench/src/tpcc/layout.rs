//! The encoding of TPC-C's rows.
//!
//! 1. A key is a tuple of [`seawall::keys`]: its bytes compare as its columns do.
//! 2. A row is its columns of fixed size, then texts with length prefixes, then at most one text that fills
//!    the rest. Columns that transactions change have fixed places, so that they are changed in place,
//!    without decoding and encoding the row.
//! 3. Money is in cents, taxes and discounts are in hundredths of a percent, times are microseconds since
//!    1970; the time 0 is null.

use crate::store::{Error, Result};
use seawall::keys::prefix_range;
use std::ops::Bound;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The store name in errors about the benchmark's own rows.
pub(super) const NAME: &str = "tpcc";

fn malformed(len: usize, at: usize) -> Error {
    let why = "the data is not of this benchmark, or damaged; load it anew";
    Error::failed(NAME, format_args!("a row of {len} bytes has no column at byte {at}: {why}"))
}

/// The fixed columns of a row.
pub(super) fn columns<T: FromBytes + Immutable + KnownLayout>(row: &[u8]) -> Result<&T> {
    let found = T::ref_from_prefix(row).ok();
    found.map(|(columns, _)| columns).ok_or_else(|| malformed(row.len(), size_of::<T>()))
}

/// The same, to be changed in place.
pub(super) fn columns_mut<T: FromBytes + IntoBytes + KnownLayout>(row: &mut [u8]) -> Result<&mut T> {
    let len = row.len();
    let found = T::mut_from_prefix(row).ok();
    found.map(|(columns, _)| columns).ok_or_else(|| malformed(len, size_of::<T>()))
}

/// The offset of the rest of `row`, after `texts` texts from byte `at` on.
pub(super) fn skip_texts(row: &[u8], mut at: usize, texts: usize) -> Result<usize> {
    for _ in 0..texts {
        at += 1 + usize::from(*row.get(at).ok_or_else(|| malformed(row.len(), at))?);
    }
    if at > row.len() { Err(malformed(row.len(), at)) } else { Ok(at) }
}

/// The text that begins at `at`.
pub(super) fn text(row: &[u8], at: usize) -> Result<&[u8]> {
    let end = skip_texts(row, at, 1)?;
    Ok(&row[at + 1..end])
}

/// The first key after all keys with this prefix.
pub(super) fn after(prefix: &[u8]) -> Vec<u8> {
    match prefix_range(prefix).1 {
        Bound::Excluded(end) => end,
        Bound::Included(_) | Bound::Unbounded => Vec::new(),
    }
}

/// The number at `at` of a key.
pub(super) fn u32_of(key: &[u8], at: usize) -> Result<u32> {
    let bytes = key.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(|| malformed(key.len(), at))
}

/// The last number of a key.
pub(super) fn last_u32_of(key: &[u8]) -> Result<u32> {
    u32_of(key, key.len().saturating_sub(4))
}

#[cfg(test)]
mod tests {
    use super::super::schema::{Item, key};
    use super::*;

    #[test]
    fn keys_compare_as_their_columns() {
        let name = |w: u16, name: &[u8], c: u32| key::customer_name(w, 1, name, b"F", c);
        let sorted = [name(1, b"A", 9), name(1, b"AB", 1), name(1, b"AB", 300), name(1, b"B", 0), name(256, b"A", 0)];
        assert!(sorted.is_sorted());
        let (from, to) = (key::warehouse(1), after(&key::warehouse(1)));
        assert!(sorted[..4].iter().all(|k| *k >= from && *k < to) && sorted[4] >= to);
        assert_eq!(after(&key::warehouse(255)), [1]);
        assert_eq!(last_u32_of(&sorted[2]).unwrap(), 300);
    }

    #[test]
    fn rows_that_are_too_short_are_errors() {
        let mut row = vec![0; 8];
        columns_mut::<Item>(&mut row).unwrap().im_id.set(5);
        assert_eq!(columns::<Item>(&row).unwrap().im_id.get(), 5);
        assert!(columns::<Item>(&row[..7]).err().unwrap().to_string().contains("7 bytes"));
        assert!(columns_mut::<Item>(&mut row[..7]).is_err());
        assert!(text(&[3, b'a', b'b'], 0).is_err() && text(&[], 0).is_err());
        assert_eq!(text(&[2, b'a', b'b'], 0).unwrap(), b"ab");
    }
}
