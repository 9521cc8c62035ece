//! Keys made of integers, strings and tuples, whose bytes sort like the values.
//!
//! 1. `a.encode() < b.encode()` (as bytes) exactly when `a < b`, where floats compare by `total_cmp`.
//! 2. No encoding is a prefix of another of the same type. So a tuple sorts by its first element, then the
//!    second, and so on.
//! 3. Decoding accepts exactly the bytes that encoding produces; other bytes are an error, never a panic.
//!    Each value has one encoding.
//!
//! | type | bytes |
//! |---|---|
//! | `u8`..`u128` | big-endian |
//! | `i8`..`i128` | big-endian, sign bit flipped |
//! | `bool` | `00` or `01` |
//! | `f32`, `f64` | bits, big-endian; all flipped when negative, else the sign bit |
//! | `str`, `String`, `[u8]`, `Vec<u8>` | the bytes, each `00` as `00 ff`, then `00 01` |
//! | `Option<T>` | `00`, or `01` and the value: `None` sorts first |
//! | `[T; N]` | its elements; so a `[u8; 16]` is 16 bytes, but a `[u8]` is a byte string |
//! | tuples of 1 to 8 | their elements |
//!
//! Integers of different widths have different encodings: a key written with a `u32` must be looked up with a
//! `u32`.

use std::fmt;
use std::ops::Bound;

/// A value whose encoding sorts like the value.
///
/// ```
/// use seawall::keys::{DecodeKey, Key};
/// let key = (42u64, "name").encode();
/// assert!(key < (42u64, "name2").encode() && key < (43u64, "").encode());
/// assert_eq!(<(u64, String)>::decode(&key)?, (42, "name".to_owned()));
/// # Ok::<(), seawall::keys::KeyError>(())
/// ```
pub trait Key {
    /// Appends the encoding to `out`.
    fn encode_to(&self, out: &mut Vec<u8>);

    /// Returns the encoding.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        self.encode_to(&mut out);
        out
    }
}

/// A value that can be decoded from its encoding.
pub trait DecodeKey: Sized {
    /// Decodes a value from the front of `bytes` and advances `bytes` past it. On error `bytes` may have
    /// advanced.
    ///
    /// # Errors
    /// [`KeyError`] if `bytes` does not begin with an encoding.
    fn decode_from(bytes: &mut &[u8]) -> Result<Self, KeyError>;

    /// Decodes the whole of `bytes`.
    ///
    /// # Errors
    /// [`KeyError`] if `bytes` is not an encoding, or other bytes follow it.
    fn decode(mut bytes: &[u8]) -> Result<Self, KeyError> {
        let value = Self::decode_from(&mut bytes)?;
        if bytes.is_empty() { Ok(value) } else { Err(KeyError::TooLong { left: bytes.len() }) }
    }
}

/// Bytes that are not a key of the requested type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// They end too early.
    TooShort,
    /// Bytes follow the key.
    TooLong {
        /// How many bytes.
        left: usize,
    },
    /// A byte that is invalid at this place.
    Unexpected {
        /// The type to be decoded.
        wanted: &'static str,
        /// The byte.
        byte: u8,
    },
    /// A string that is not UTF-8.
    NotUtf8,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => f.write_str("the key ends too early: it was written as another type, or cut"),
            Self::TooLong { left } => write!(f, "{left} bytes follow the key: it was written as another type"),
            Self::Unexpected { wanted, byte } => {
                write!(f, "the key has byte {byte:#04x} where a {wanted} has none such: it was written as another type")
            }
            Self::NotUtf8 => f.write_str("the key's string is not UTF-8"),
        }
    }
}

impl std::error::Error for KeyError {}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], KeyError> {
    let (head, tail) = bytes.split_first_chunk::<N>().ok_or(KeyError::TooShort)?;
    *bytes = tail;
    Ok(*head)
}

macro_rules! numbers {
    ($($type:ty, $bits:ty, $to:expr, $from:expr;)+) => {
        $(
            impl Key for $type {
                fn encode_to(&self, out: &mut Vec<u8>) {
                    let to: fn($type) -> $bits = $to;
                    out.extend_from_slice(&to(*self).to_be_bytes());
                }
            }
            impl DecodeKey for $type {
                fn decode_from(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                    let from: fn($bits) -> $type = $from;
                    Ok(from(<$bits>::from_be_bytes(take(bytes)?)))
                }
            }
        )+
    };
}

macro_rules! signed {
    ($($type:ty, $bits:ty;)+) => {
        numbers! { $($type, $bits,
            |v| v as $bits ^ (1 << (<$bits>::BITS - 1)),
            |b| (b ^ (1 << (<$bits>::BITS - 1))) as $type;
        )+ }
    };
}

macro_rules! floats {
    ($($type:ty, $bits:ty;)+) => {
        numbers! { $($type, $bits,
            |v| {
                let bits = v.to_bits();
                let sign = 1 << (<$bits>::BITS - 1);
                if bits & sign == 0 { bits | sign } else { !bits }
            },
            |b| {
                let sign = 1 << (<$bits>::BITS - 1);
                <$type>::from_bits(if b & sign == 0 { !b } else { b & !sign })
            };
        )+ }
    };
}

numbers! {
    u8, u8, |v| v, |b| b;
    u16, u16, |v| v, |b| b;
    u32, u32, |v| v, |b| b;
    u64, u64, |v| v, |b| b;
    u128, u128, |v| v, |b| b;
}
signed! { i8, u8; i16, u16; i32, u32; i64, u64; i128, u128; }
floats! { f32, u32; f64, u64; }

impl Key for bool {
    fn encode_to(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl DecodeKey for bool {
    fn decode_from(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        match take(bytes)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => Err(KeyError::Unexpected { wanted: "bool", byte }),
        }
    }
}

const ESCAPED: u8 = 0xff;
const END: u8 = 0x01;

fn escape(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(zero) = bytes.iter().position(|b| *b == 0) {
        out.extend_from_slice(&bytes[..=zero]);
        out.push(ESCAPED);
        bytes = &bytes[zero + 1..];
    }
    out.extend_from_slice(bytes);
}

impl Key for [u8] {
    fn encode_to(&self, out: &mut Vec<u8>) {
        escape(self, out);
        out.extend_from_slice(&[0, END]);
    }
}

impl DecodeKey for Vec<u8> {
    fn decode_from(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        let mut out = Self::new();
        loop {
            let zero = bytes.iter().position(|b| *b == 0).ok_or(KeyError::TooShort)?;
            let (plain, rest) = bytes.split_at(zero);
            out.extend_from_slice(plain);
            *bytes = rest;
            match take(bytes)? {
                [_, END] => return Ok(out),
                [_, ESCAPED] => out.push(0),
                [_, byte] => return Err(KeyError::Unexpected { wanted: "string", byte }),
            }
        }
    }
}

impl Key for Vec<u8> {
    fn encode_to(&self, out: &mut Vec<u8>) {
        self.as_slice().encode_to(out);
    }
}

impl Key for str {
    fn encode_to(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode_to(out);
    }
}

impl Key for String {
    fn encode_to(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode_to(out);
    }
}

impl DecodeKey for String {
    fn decode_from(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        Self::from_utf8(Vec::decode_from(bytes)?).map_err(|_not_utf8| KeyError::NotUtf8)
    }
}

impl<K: Key + ?Sized> Key for &K {
    fn encode_to(&self, out: &mut Vec<u8>) {
        (**self).encode_to(out);
    }
}

impl<K: Key> Key for Option<K> {
    fn encode_to(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.encode_to(out);
            }
        }
    }
}

impl<K: DecodeKey> DecodeKey for Option<K> {
    fn decode_from(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        match take(bytes)? {
            [0] => Ok(None),
            [1] => K::decode_from(bytes).map(Some),
            [byte] => Err(KeyError::Unexpected { wanted: "option", byte }),
        }
    }
}

impl<K: Key, const N: usize> Key for [K; N] {
    fn encode_to(&self, out: &mut Vec<u8>) {
        for element in self {
            element.encode_to(out);
        }
    }
}

impl<K: DecodeKey, const N: usize> DecodeKey for [K; N] {
    fn decode_from(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        let mut first_error = None;
        let elements: [Option<K>; N] = std::array::from_fn(|_| {
            if first_error.is_some() {
                return None;
            }
            K::decode_from(bytes).map_err(|error| first_error = Some(error)).ok()
        });
        match first_error {
            Some(error) => Err(error),
            None => Ok(elements.map(|element| element.expect("no element failed"))),
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),+);)+) => {
        $(
            impl<$($name: Key),+> Key for ($($name,)+) {
                fn encode_to(&self, out: &mut Vec<u8>) {
                    $(self.$at.encode_to(out);)+
                }
            }
            impl<$($name: DecodeKey),+> DecodeKey for ($($name,)+) {
                fn decode_from(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                    Ok(($($name::decode_from(bytes)?,)+))
                }
            }
        )+
    };
}

tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
}

/// Returns the common prefix of the encodings of all strings that begin with `start`. Pass it to
/// [`prefix_range`], alone or after the encoding of the preceding elements.
///
/// ```
/// use seawall::keys::{Key, prefix_range, string_prefix};
/// use std::ops::RangeBounds;
/// // Everything of user 7 whose name begins with "an".
/// let mut prefix = 7u32.encode();
/// prefix.extend(string_prefix("an"));
/// let range = prefix_range(&prefix);
/// assert!(range.contains(&(7u32, "anna").encode()) && range.contains(&(7u32, "an").encode()));
/// assert!(!range.contains(&(7u32, "bo").encode()) && !range.contains(&(8u32, "anna").encode()));
/// ```
#[must_use]
pub fn string_prefix(start: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    escape(start.as_ref(), &mut out);
    out
}

/// Returns the range of all keys that begin with `prefix`; all keys if it is empty.
///
/// ```
/// use seawall::keys::{Key, prefix_range};
/// use std::{collections::BTreeMap, ops::Bound};
/// let mut orders = BTreeMap::new();
/// for (user, order) in [(1u32, 10u64), (2, 5), (2, 6), (3, 1)] {
///     orders.insert((user, order).encode(), ());
/// }
/// assert_eq!(orders.range::<Vec<u8>, _>(prefix_range(&2u32.encode())).count(), 2);
/// assert_eq!(prefix_range(b"a\xff").1, Bound::Excluded(b"b".to_vec()));
/// assert_eq!(prefix_range(b"\xff\xff").1, Bound::Unbounded);
/// ```
#[must_use]
pub fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // The smallest key greater than all keys with the prefix: a trailing ff cannot be incremented, so the
    // byte before it is.
    let end = match prefix.iter().rposition(|byte| *byte != 0xff) {
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;
    use std::fmt::Debug;
    use std::ops::RangeBounds;

    fn holds<K: Key + DecodeKey + Debug>(
        a: &K,
        b: &K,
        order: impl Fn(&K, &K) -> Ordering,
    ) -> Result<(), TestCaseError> {
        let (x, y) = (a.encode(), b.encode());
        prop_assert_eq!(x.cmp(&y), order(a, b), "{:?} {:?}", a, b);
        for (value, bytes) in [(a, &x), (b, &y)] {
            let back = K::decode(bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(order(&back, value), Ordering::Equal);
            for cut in 0..bytes.len() {
                prop_assert!(K::decode(&bytes[..cut]).is_err(), "prefix-free");
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            prop_assert!(K::decode(&longer).is_err());
        }
        Ok(())
    }

    fn ordered<K: Key + DecodeKey + Debug + Ord>(a: &K, b: &K) -> Result<(), TestCaseError> {
        holds(a, b, K::cmp)
    }

    /// Short strings of the special bytes, so that one is often a prefix of another.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, b'a', 0xfe, 0xff]), 0..6)
    }

    fn text() -> impl Strategy<Value = String> {
        "[\0\u{1}ab\u{ff}]{0,4}"
    }

    fn float() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            prop::sample::select(vec![
                0.0,
                -0.0,
                1.0,
                -1.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                -f64::NAN,
                5e-324
            ])
        ]
    }

    proptest! {
        #[test]
        fn integers_keep_their_order(a in any::<i128>(), b in any::<i128>(), shift in 0u32..128) {
            // Shifted, so that small, equal and negative values of every width occur.
            let (a, b) = (a >> shift, b >> shift);
            ordered(&a, &b)?;
            ordered(&(a as u128), &(b as u128))?;
            ordered(&(a as i64), &(b as i64))?;
            ordered(&(a as u64), &(b as u64))?;
            ordered(&(a as i32), &(b as i32))?;
            ordered(&(a as u32), &(b as u32))?;
            ordered(&(a as i16), &(b as i16))?;
            ordered(&(a as u16), &(b as u16))?;
            ordered(&(a as i8), &(b as i8))?;
            ordered(&(a as u8), &(b as u8))?;
            ordered(&(a & 1 == 0), &(b & 1 == 0))?;
        }

        #[test]
        fn floats_keep_their_total_order(a in float(), b in float()) {
            holds(&a, &b, f64::total_cmp)?;
            holds(&(a as f32), &(b as f32), f32::total_cmp)?;
        }

        #[test]
        fn strings_and_what_is_made_of_them_keep_their_order(
            a in (bytes(), prop::option::of(bytes()), any::<i8>(), text()),
            b in (bytes(), prop::option::of(bytes()), any::<i8>(), text()),
        ) {
            ordered(&a.0, &b.0)?;
            ordered(&a.3, &b.3)?;
            ordered(&a, &b)?;
            ordered(&(a.2, a.1.clone(), a.0.clone()), &(b.2, b.1.clone(), b.0.clone()))?;
            ordered(&Some((a.0.clone(), a.2)), &Some((b.0.clone(), b.2)))?;
            ordered(&[a.0.clone(), a.1.unwrap_or_default()], &[b.0.clone(), b.1.unwrap_or_default()])?;
        }

        #[test]
        fn wide_tuples_keep_their_order(a in any::<[u8; 8]>(), b in any::<[u8; 8]>(), equal in 0usize..=8) {
            let mut b = b;
            b[..equal].copy_from_slice(&a[..equal]);
            let wide = |x: [u8; 8]| {
                (x[0], x[1] as i8, u16::from(x[2]), x[3] > 127, [x[4]], Some(x[5]), vec![x[6]], x[7])
            };
            ordered(&wide(a), &wide(b))?;
            ordered(&a, &b)?;
        }

        #[test]
        fn prefixes_find_all_and_only_theirs(prefix in bytes(), key in bytes()) {
            prop_assert_eq!(prefix_range(&prefix).contains(&key), key.starts_with(&prefix));
            let range = prefix_range(&string_prefix(&prefix));
            prop_assert_eq!(range.contains(&key.encode()), key.starts_with(&prefix));
        }

        #[test]
        fn what_decodes_is_the_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            type All = (Option<bool>, String, Vec<u8>, [i16; 2], Option<f64>);
            if let Ok(key) = All::decode(&bytes) {
                prop_assert_eq!(key.encode(), bytes.clone());
            }
            if let Ok(key) = Vec::<u8>::decode(&bytes) {
                prop_assert_eq!(key.encode(), bytes);
            }
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        assert_eq!((1u16, -1i8, true).encode(), [0, 1, 0x7f, 1]);
        assert_eq!("a\0b".encode(), b"a\x00\xffb\x00\x01");
        assert_eq!((None::<u8>, Some(7u8)).encode(), [0, 1, 7]);
        assert_eq!([1u8, 2].encode(), [1, 2]);
        assert_eq!(1.0f64.encode(), [0xbf, 0xf0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((-1.0f64).encode(), [0x40, 0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn wrong_bytes_are_named() {
        assert_eq!(u32::decode(&[1, 2]), Err(KeyError::TooShort));
        assert_eq!(u8::decode(&[1, 2, 3]), Err(KeyError::TooLong { left: 2 }));
        assert_eq!(bool::decode(&[2]), Err(KeyError::Unexpected { wanted: "bool", byte: 2 }));
        assert_eq!(Option::<u8>::decode(&[9]), Err(KeyError::Unexpected { wanted: "option", byte: 9 }));
        assert_eq!(Vec::<u8>::decode(&[b'a', 0, 2]), Err(KeyError::Unexpected { wanted: "string", byte: 2 }));
        assert_eq!(String::decode(&[b'a', 0]), Err(KeyError::TooShort));
        assert_eq!(String::decode(&[0xff, 0, 1]), Err(KeyError::NotUtf8));
        assert_eq!(<[u8; 3]>::decode(&[1, 2]), Err(KeyError::TooShort));
    }
}
