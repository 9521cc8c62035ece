//! Target of a seek: which leaf, and which slot of it.

use super::Tree;
use super::node::Node;
use super::search::Toward;
use crate::buffer::{PageRead, Pool};
use crate::error::{Result, Stop};

/// Where to position a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek<'k> {
    /// On the first entry.
    First,
    /// On the last entry.
    Last,
    /// On the first entry with this key or a larger one.
    AtLeast(&'k [u8]),
    /// On the first entry with a larger key.
    After(&'k [u8]),
    /// On the last entry with this key or a smaller one.
    AtMost(&'k [u8]),
    /// On the last entry with a smaller key.
    Before(&'k [u8]),
}

impl Seek<'_> {
    /// Whether it continues with larger keys if the first leaf has no match.
    #[must_use]
    pub fn is_forward(&self) -> bool {
        matches!(self, Self::First | Self::AtLeast(_) | Self::After(_))
    }

    /// The first leaf to search, under a shared latch.
    ///
    /// # Errors
    /// `Stop::Load`; those of a damaged tree.
    pub fn leaf<'p>(&self, tree: &Tree, pool: &'p Pool) -> Result<PageRead<'p>, Stop> {
        tree.leaf(
            pool,
            match *self {
                // Nothing is before the empty key: the first leaf says so.
                Self::First | Self::Before([]) => Toward::Key(&[]),
                Self::Last => Toward::Last,
                Self::AtLeast(key) | Self::After(key) | Self::AtMost(key) => Toward::Key(key),
                // The leaf of the key itself may begin with it.
                Self::Before(key) => Toward::Below(key),
            },
        )
    }

    /// Where in that leaf to begin: the first slot going forward, or the slot after the first one going
    /// backward.
    ///
    /// # Errors
    /// `Damaged`, as an error.
    pub fn slot(&self, node: &Node<'_>) -> Result<usize> {
        Ok(match *self {
            Self::First => 0,
            Self::Last => node.count(),
            Self::AtLeast(key) | Self::Before(key) => node.search(key)?.slot,
            Self::After(key) | Self::AtMost(key) => {
                let at = node.search(key)?;
                at.slot + usize::from(at.found)
            }
        })
    }
}
