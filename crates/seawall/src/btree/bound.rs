//! A bound that owns its key, and reuses the key's memory when it is set again.

use std::ops::Bound;

/// An end of a range of keys.
#[derive(Debug, Clone, Default)]
pub struct KeyBound {
    key: Vec<u8>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, Default)]
enum Kind {
    Included,
    Excluded,
    #[default]
    Unbounded,
}

impl KeyBound {
    /// Sets the bound.
    pub fn set(&mut self, bound: Bound<&[u8]>) {
        self.key.clear();
        let (kind, key) = match bound {
            Bound::Included(key) => (Kind::Included, key),
            Bound::Excluded(key) => (Kind::Excluded, key),
            Bound::Unbounded => (Kind::Unbounded, &[][..]),
        };
        self.kind = kind;
        self.key.extend_from_slice(key);
    }

    /// The bound, borrowed.
    #[must_use]
    pub fn get(&self) -> Bound<&[u8]> {
        match self.kind {
            Kind::Included => Bound::Included(&self.key),
            Kind::Excluded => Bound::Excluded(&self.key),
            Kind::Unbounded => Bound::Unbounded,
        }
    }
}
