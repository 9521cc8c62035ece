//! Reading and writing the elements of redo bodies, undo records and entries.

use std::fmt;

/// Bytes that do not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed: {}", self.0)
    }
}

/// Reads elements from the front of a slice; never panics.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that are left.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the next `n` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        if n > self.0.len() {
            return Err(Malformed("too short"));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    /// Reads the next `N` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// When nothing is left.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads two bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads four bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads six bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn u48(&mut self) -> Result<u64, Malformed> {
        let low: [u8; 6] = self.array()?;
        let mut all = [0; 8];
        all[..6].copy_from_slice(&low);
        Ok(u64::from_le_bytes(all))
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a number of one to ten bytes, seven bits each, low bits first.
    ///
    /// # Errors
    /// When it does not end, or is larger than a `u64`.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Malformed("number too large"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("number too long"))
    }

    /// Reads bytes preceded by their length.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }
}

/// Appends the low six bytes of `value`.
pub fn put_u48(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value >> 48 == 0, "a 48-bit number");
    out.extend_from_slice(&value.to_le_bytes()[..6]);
}

/// Appends a number as [`Reader::varint`] reads it.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends bytes as [`Reader::bytes`] reads them.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_read(number in any::<u64>(), small in 0u64..1 << 48, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            put_u48(&mut out, small);
            put_bytes(&mut out, &bytes);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(number));
            prop_assert_eq!(reader.u48(), Ok(small));
            prop_assert_eq!(reader.bytes(), Ok(&bytes[..]));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let mut reader = Reader::new(&bytes);
            while reader.varint().is_ok() && reader.bytes().is_ok() {}
        }
    }
}
