//! The encoding of TPC-C's rows and keys.
//!
//! 1. A key's bytes compare as its columns do: numbers are big-endian, texts end with a zero, which no text contains.
//! 2. A row is its columns of fixed size, then texts with length prefixes, then at most one text that fills
//!    the rest. Columns that transactions change have fixed places, so that they are changed in place,
//!    without decoding and encoding the row.
//! 3. Money is in cents, taxes and discounts are in hundredths of a percent, times are microseconds since
//!    1970; the time 0 is null.

use crate::store::{Error, Result};
use std::marker::PhantomData;
use std::ops::{Add, Range};

/// The store name in errors about the benchmark's own rows.
pub(super) const NAME: &str = "tpcc";

/// A number in a row, or a text whose length is always the same.
pub(super) trait Column: Sized {
    type Bytes: AsRef<[u8]> + for<'a> TryFrom<&'a [u8]>;
    fn bytes(self) -> Self::Bytes;
    fn of(bytes: Self::Bytes) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Column for $number {
            type Bytes = [u8; size_of::<$number>()];
            fn bytes(self) -> Self::Bytes {
                self.to_le_bytes()
            }
            fn of(bytes: Self::Bytes) -> Self {
                Self::from_le_bytes(bytes)
            }
        }

        impl Part for $number {
            fn add_to(self, key: Key) -> Key {
                key.push(&self.to_be_bytes())
            }
        }
    )*};
}
numbers!(u8, u16, i16, u32, i64, u64);

impl<const N: usize> Column for [u8; N] {
    type Bytes = Self;
    fn bytes(self) -> Self {
        self
    }
    fn of(bytes: Self) -> Self {
        bytes
    }
}

fn malformed(row: &[u8], at: usize) -> Error {
    Error::failed(
        NAME,
        format_args!(
            "a row of {} bytes has no column at byte {at}: the data is not of this benchmark, or damaged; load it anew",
            row.len()
        ),
    )
}

/// The place of a column.
#[derive(Debug)]
pub(super) struct Field<T> {
    at: usize,
    of: PhantomData<T>,
}

impl<T: Column> Field<T> {
    pub(super) const fn at(at: usize) -> Self {
        Self { at, of: PhantomData }
    }

    pub(super) const fn end(&self) -> usize {
        self.at + size_of::<T>()
    }

    pub(super) fn get(&self, row: &[u8]) -> Result<T> {
        let bytes = row.get(self.place()).and_then(|bytes| T::Bytes::try_from(bytes).ok());
        bytes.map(T::of).ok_or_else(|| malformed(row, self.at))
    }

    pub(super) const fn place(&self) -> Range<usize> {
        self.at..self.end()
    }

    pub(super) fn set(&self, row: &mut [u8], value: T) -> Result<()> {
        let Some(place) = row.get_mut(self.place()) else { return Err(malformed(row, self.at)) };
        place.copy_from_slice(value.bytes().as_ref());
        Ok(())
    }
}

impl<T: Column + Copy + Add<Output = T>> Field<T> {
    /// Adds to a number; returns the sum.
    pub(super) fn add(&self, row: &mut [u8], more: T) -> Result<T> {
        let sum = self.get(row)? + more;
        self.set(row, sum)?;
        Ok(sum)
    }
}

/// The offset of the rest of `row`, after `texts` texts from byte `at` on.
pub(super) fn skip_texts(row: &[u8], mut at: usize, texts: usize) -> Result<usize> {
    for _ in 0..texts {
        at += 1 + usize::from(*row.get(at).ok_or_else(|| malformed(row, at))?);
    }
    if at > row.len() { Err(malformed(row, at)) } else { Ok(at) }
}

/// The text that begins at `at`.
pub(super) fn text(row: &[u8], at: usize) -> Result<&[u8]> {
    let end = skip_texts(row, at, 1)?;
    Ok(&row[at + 1..end])
}

/// The longest key: a customer's by name, two names of 16 characters at most.
const KEY_BYTES_MAX: usize = 2 + 1 + 17 + 17 + 4;

/// A key, built without allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl Key {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; KEY_BYTES_MAX], len: 0 }
    }

    fn push(mut self, bytes: &[u8]) -> Self {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
        self
    }

    pub(super) fn with(self, part: impl Part) -> Self {
        part.add_to(self)
    }

    /// The first key after all keys with this prefix, unless the prefix is all 255s.
    pub(super) fn after(mut self) -> Self {
        while let Some(last) = self.len.checked_sub(1) {
            let byte = &mut self.bytes[usize::from(last)];
            if *byte < u8::MAX {
                *byte += 1;
                break;
            }
            *byte = 0;
            self.len = last;
        }
        self
    }
}

/// A column in a key.
pub(super) trait Part {
    fn add_to(self, key: Key) -> Key;
}

/// A text of at most 16 characters; a longer one is cut.
impl Part for &[u8] {
    fn add_to(self, key: Key) -> Key {
        key.push(&self[..self.len().min(16)]).push(&[0])
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The number at `at` of a key.
pub(super) fn u32_of(key: &[u8], at: usize) -> Result<u32> {
    let bytes = key.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_be_bytes).ok_or_else(|| malformed(key, at))
}

/// The last number of a key.
pub(super) fn last_u32_of(key: &[u8]) -> Result<u32> {
    u32_of(key, key.len().saturating_sub(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_as_their_columns() {
        let key = |w: u16, name: &[u8], n: u32| Key::new().with(w).with(name).with(n);
        let sorted = [key(1, b"A", 9), key(1, b"AB", 1), key(1, b"AB", 300), key(1, b"B", 0), key(256, b"A", 0)];
        assert!(sorted.windows(2).all(|pair| *pair[0] < *pair[1]));
        let prefix = Key::new().with(1_u16);
        assert!(sorted[..4].iter().all(|k| **k >= *prefix && **k < *prefix.after()) && *sorted[4] >= *prefix.after());
        assert_eq!(*Key::new().with(255_u16).after(), [1]);
        assert_eq!(last_u32_of(&sorted[2]).unwrap(), 300);
    }

    #[test]
    fn rows_that_are_too_short_are_errors() {
        const MONEY: Field<i64> = Field::at(1);
        let mut row = vec![0; 9];
        MONEY.set(&mut row, -5).unwrap();
        assert_eq!(MONEY.get(&row).unwrap(), -5);
        assert!(MONEY.get(&row[..8]).unwrap_err().to_string().contains("8 bytes"));
        assert!(MONEY.set(&mut row[..8], 1).is_err());
        assert!(Field::<[u8; 3]>::at(7).get(&row).is_err());
        assert!(text(&[3, b'a', b'b'], 0).is_err() && text(&[], 0).is_err());
        assert_eq!(text(&[2, b'a', b'b'], 0).unwrap(), b"ab");
    }
}
