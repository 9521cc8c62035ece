//! The difference between two values: the bytes in which they differ, and where.
//!
//! 1. Edits are a sequence of `keep varint, drop varint, length varint, bytes`: keep the next `keep` bytes of the base,
//!    skip the next `drop` bytes, and insert the following `length` bytes in their place. The rest of the base is kept.
//! 2. In values of one length, a word of eight equal bytes ends a change. In values of different lengths, everything
//!    between the common beginning and the common end is one change.
//! 3. [`apply`] trusts neither the edits nor the base.

use super::{Malformed, Reader, put_varint};
use smallvec::SmallVec;
use std::ops::Range;

/// The most bytes that the three numbers of an edit take, for a value in a leaf.
const NUMBERS_BYTES: usize = 9;
/// The least number of bytes to save.
const SAVED_MIN: usize = 16;

/// Where two values differ: each change's range in the old and in the new value.
#[derive(Debug)]
pub struct Difference(SmallVec<[(Range<usize>, Range<usize>); 4]>);

impl Difference {
    /// Compares two values. Returns `None` unless the edits are enough shorter than the values to be worthwhile.
    pub fn find(old: &[u8], new: &[u8]) -> Option<Self> {
        let mut changes = SmallVec::new();
        let shorter = old.len().min(new.len());
        let mut bytes = SAVED_MIN;
        if old.len() != new.len() {
            let begin = common_prefix(old, new);
            let end = common_suffix(&old[begin..], &new[begin..]);
            changes.push((begin..old.len() - end, begin..new.len() - end));
            bytes += NUMBERS_BYTES + old.len().max(new.len()) - begin - end;
        } else {
            let mut at = 0;
            loop {
                let start = at + common_prefix(&old[at..], &new[at..]);
                if start == shorter {
                    break;
                }
                at = end_of_changed_words(old, new, start);
                let change = start..at - common_suffix(&old[start..at], &new[start..at]);
                bytes += NUMBERS_BYTES + change.len();
                if bytes > shorter {
                    return None;
                }
                changes.push((change.clone(), change));
            }
        }
        (bytes <= shorter).then_some(Self(changes))
    }

    /// Appends the edits that turn the old value into `new`.
    pub fn forward(&self, new: &[u8], out: &mut Vec<u8>) {
        put(self.0.iter().map(|(from, to)| (from.clone(), &new[to.clone()])), out);
    }

    /// Appends the edits that turn the new value back into `old`.
    pub fn back(&self, old: &[u8], out: &mut Vec<u8>) {
        put(self.0.iter().map(|(to, from)| (from.clone(), &old[to.clone()])), out);
    }
}

fn put<'a>(changes: impl Iterator<Item = (Range<usize>, &'a [u8])>, out: &mut Vec<u8>) {
    let mut kept = 0;
    for (range, bytes) in changes {
        put_varint(out, (range.start - kept) as u64);
        put_varint(out, range.len() as u64);
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
        kept = range.end;
    }
}

/// Appends the value that results from applying `edits` to `base`.
///
/// # Errors
/// If the edits do not decode or do not fit the base. `out` may then hold a part of the value.
pub fn apply(base: &[u8], edits: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut base = Reader::new(base);
    each(edits, |keep, drop, bytes| {
        out.extend_from_slice(base.take(keep)?);
        base.take(drop)?;
        out.extend_from_slice(bytes);
        Ok(())
    })?;
    out.extend_from_slice(base.rest());
    Ok(())
}

/// Changes a value in place. Returns false, with nothing changed, if an edit changes its length.
///
/// # Errors
/// As [`apply`]. A part of the value may then be changed.
pub fn apply_in_place(value: &mut [u8], edits: &[u8]) -> Result<bool, Malformed> {
    let mut same_length = true;
    each(edits, |_, drop, bytes| {
        same_length &= drop == bytes.len();
        Ok(())
    })?;
    if !same_length {
        return Ok(false);
    }
    let mut at = 0usize;
    each(edits, |keep, drop, bytes| {
        at = at.checked_add(keep).ok_or(BEYOND)?;
        let end = at.checked_add(drop).ok_or(BEYOND)?;
        value.get_mut(at..end).ok_or(BEYOND)?.copy_from_slice(bytes);
        at = end;
        Ok(())
    })?;
    Ok(true)
}

const BEYOND: Malformed = Malformed("an edit beyond the value");

fn each<'a>(
    edits: &'a [u8],
    mut edit: impl FnMut(usize, usize, &'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut edits = Reader::new(edits);
    while !edits.is_empty() {
        let number = |n: u64| usize::try_from(n).ok().ok_or(BEYOND);
        let (keep, drop) = (number(edits.varint()?)?, number(edits.varint()?)?);
        edit(keep, drop, edits.bytes()?)?;
    }
    Ok(())
}

/// Bytes compared at once.
const WORD: usize = size_of::<u64>();

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + WORD].try_into().expect("it has the length of a word"))
}

/// Compares two values of one length. Returns the end of the run of differing words that begins with the word of the
/// byte at `start`.
fn end_of_changed_words(old: &[u8], new: &[u8], start: usize) -> usize {
    let mut at = start - start % WORD;
    while at + WORD <= old.len() {
        if word(old, at) == word(new, at) {
            return at;
        }
        at += WORD;
    }
    if old[at..] == new[at..] { at } else { old.len() }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let mut at = 0;
    while at + WORD <= len {
        let different = word(a, at) ^ word(b, at);
        if different != 0 {
            return at + different.trailing_zeros() as usize / 8;
        }
        at += WORD;
    }
    at + a[at..len].iter().zip(&b[at..len]).take_while(|(x, y)| x == y).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[a.len() - len..], &b[b.len() - len..]);
    let mut at = len;
    while at >= WORD {
        let different = word(a, at - WORD) ^ word(b, at - WORD);
        if different != 0 {
            return len - at + different.leading_zeros() as usize / 8;
        }
        at -= WORD;
    }
    len - at + a[..at].iter().rev().zip(b[..at].iter().rev()).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edits_lead_there_and_back(
            mut old in vec(0u8..3, 0..300),
            changes in vec((any::<prop::sample::Index>(), vec(any::<u8>(), 0..40), any::<bool>()), 0..20),
        ) {
            let mut new = old.clone();
            for (at, bytes, same_length) in changes {
                let at = at.index(new.len() + 1);
                let end = if same_length { at + bytes.len() } else { at + bytes.len() / 2 }.min(new.len());
                let bytes = if same_length { &bytes[..end - at] } else { &bytes[..] };
                new.splice(at..end, bytes.iter().copied());
            }
            for _ in 0..2 {
                if let Some(difference) = Difference::find(&old, &new) {
                    let (mut forward, mut back, mut made) = (Vec::new(), Vec::new(), Vec::new());
                    difference.forward(&new, &mut forward);
                    difference.back(&old, &mut back);
                    prop_assert!(forward.len() < new.len() && back.len() < old.len());
                    apply(&old, &forward, &mut made).unwrap();
                    prop_assert_eq!(&made, &new);
                    let in_place = apply_in_place(&mut made, &back).unwrap();
                    prop_assert_eq!(in_place, old.len() == new.len());
                    prop_assert_eq!(&made, if in_place { &old } else { &new });
                    made.clear();
                    apply(&new, &back, &mut made).unwrap();
                    prop_assert_eq!(&made, &old);
                }
                std::mem::swap(&mut old, &mut new);
            }
        }

        #[test]
        fn garbage_is_refused(mut base in vec(any::<u8>(), 0..40), edits in vec(any::<u8>(), 0..40)) {
            let mut made = Vec::new();
            let applied = apply(&base, &edits, &mut made);
            match apply_in_place(&mut base, &edits) {
                Ok(true) => prop_assert_eq!((applied, base), (Ok(()), made)),
                Ok(false) => {}
                Err(_) => prop_assert!(applied.is_err()),
            }
        }
    }

    #[test]
    fn few_changes_are_short_and_many_are_none() {
        let old = vec![7; 200];
        let mut new = old.clone();
        (new[3], new[90], new[91], new[199]) = (1, 2, 3, 4);
        let edits = |new: &[u8]| {
            let mut edits = Vec::new();
            Difference::find(&old, new).map(|difference| difference.forward(new, &mut edits))?;
            Some(edits)
        };
        assert_eq!(edits(&new), Some(vec![3, 1, 1, 1, 86, 2, 2, 2, 3, 107, 1, 1, 4]));
        assert_eq!(edits(&old), Some(vec![]), "nothing changed");
        assert_eq!(edits(&[1; 200]), None);
        assert_eq!(edits(&[&old[..50], &[8; 3], &old[50..]].concat()), Some(vec![50, 0, 3, 8, 8, 8]));
        assert_eq!(edits(b"short"), None);
        (0..200).step_by(10).for_each(|at| new[at] = 9);
        assert_eq!(edits(&new), None);
    }
}
