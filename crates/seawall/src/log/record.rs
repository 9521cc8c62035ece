//! Redo records: the body of an entry.
//!
//! A body is a sequence of records: `tag u8, page u32, len varint, len bytes`. An entry with an empty body
//! marks the beginning of an opening of the database. The layer that owns the tag (`format::tag`) defines the
//! bytes.

use crate::format::{Malformed, PageId, Reader, put_varint};

/// One redo record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Which layer replays it, and how.
    pub tag: u8,
    /// The page it changes.
    pub page: PageId,
    /// The change.
    pub body: &'a [u8],
}

/// Bytes reserved for a record's length before it is known.
const SHORT: usize = 1;

/// Appends a record; `body` appends its bytes.
///
/// ```
/// use seawall::PageId;
/// use seawall::internals::log::{Record, Records, push_record};
/// let mut out = Vec::new();
/// push_record(&mut out, 0x21, PageId(7), |out| out.extend_from_slice(b"change"));
/// let record = Records::new(&out).next().unwrap().unwrap();
/// assert_eq!(record, Record { tag: 0x21, page: PageId(7), body: b"change" });
/// ```
#[inline]
pub fn push_record(out: &mut Vec<u8>, tag: u8, page: PageId, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    out.extend_from_slice(&page.0.to_le_bytes());
    // Most bodies are shorter than 128 bytes, so one byte is reserved for the length; the few longer bodies are moved
    // up.
    let len_at = out.len();
    out.push(0);
    body(out);
    let len = out.len() - len_at - SHORT;
    if len < 0x80 {
        out[len_at] = len as u8;
        return;
    }
    let end = out.len();
    put_varint(out, len as u64);
    let wide = out.len() - end;
    let mut number = [0; 10];
    number[..wide].copy_from_slice(&out[end..]);
    // The varint lengthened the vector by `wide` bytes, one more than needed because one byte was reserved.
    out.copy_within(len_at + SHORT..end, len_at + wide);
    out[len_at..len_at + wide].copy_from_slice(&number[..wide]);
    out.truncate(end + wide - SHORT);
}

/// The records of a body, in order. An error ends the iteration.
#[derive(Debug, Clone)]
pub struct Records<'a>(Reader<'a>);

impl<'a> Records<'a> {
    /// Reads `body`.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self(Reader::new(body))
    }

    fn read(&mut self) -> Result<Record<'a>, Malformed> {
        let tag = self.0.u8()?;
        let page = PageId(self.0.u32()?);
        Ok(Record { tag, page, body: self.0.bytes()? })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_pushed_is_read(records in proptest::collection::vec(
            (any::<u8>(), any::<u32>(), prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..300), proptest::collection::vec(any::<u8>(), 16380..16390),
            ]), 0..5,
        )) {
            let mut out = Vec::new();
            for (tag, page, body) in &records {
                push_record(&mut out, *tag, PageId(*page), |out| out.extend_from_slice(body));
            }
            let read: Vec<_> =
                Records::new(&out).map(Result::unwrap).map(|r| (r.tag, r.page.0, r.body.to_vec())).collect();
            prop_assert_eq!(read, records);
        }

        #[test]
        fn garbage_ends_in_an_error_and_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut errors = 0;
            for record in Records::new(&bytes) {
                prop_assert_eq!(errors, 0, "nothing after an error");
                errors += usize::from(record.is_err());
            }
        }
    }
}
