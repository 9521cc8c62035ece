//! Key ranges of the public API.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b`, or a pair of bounds, of any type that
/// converts to bytes: `&[u8]`, `&str`, `Vec<u8>`, `[u8; 4]`.
pub trait KeyRange {
    /// Returns the lower bound.
    fn lower_bound(&self) -> Bound<&[u8]>;
    /// Returns the upper bound.
    fn upper_bound(&self) -> Bound<&[u8]>;
}

impl<R: KeyRange + ?Sized> KeyRange for &R {
    fn lower_bound(&self) -> Bound<&[u8]> {
        (**self).lower_bound()
    }
    fn upper_bound(&self) -> Bound<&[u8]> {
        (**self).upper_bound()
    }
}

impl KeyRange for RangeFull {
    fn lower_bound(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
    fn upper_bound(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

impl<K: AsRef<[u8]>> KeyRange for Range<K> {
    fn lower_bound(&self) -> Bound<&[u8]> {
        Bound::Included(self.start.as_ref())
    }
    fn upper_bound(&self) -> Bound<&[u8]> {
        Bound::Excluded(self.end.as_ref())
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {
    fn lower_bound(&self) -> Bound<&[u8]> {
        Bound::Included(self.start().as_ref())
    }
    fn upper_bound(&self) -> Bound<&[u8]> {
        Bound::Included(self.end().as_ref())
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {
    fn lower_bound(&self) -> Bound<&[u8]> {
        Bound::Included(self.start.as_ref())
    }
    fn upper_bound(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {
    fn lower_bound(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
    fn upper_bound(&self) -> Bound<&[u8]> {
        Bound::Excluded(self.end.as_ref())
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {
    fn lower_bound(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
    fn upper_bound(&self) -> Bound<&[u8]> {
        Bound::Included(self.end.as_ref())
    }
}

fn borrowed<K: AsRef<[u8]>>(bound: &Bound<K>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key.as_ref()),
        Bound::Excluded(key) => Bound::Excluded(key.as_ref()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn lower_bound(&self) -> Bound<&[u8]> {
        borrowed(&self.0)
    }
    fn upper_bound(&self) -> Bound<&[u8]> {
        borrowed(&self.1)
    }
}
