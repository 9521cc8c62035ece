//! The target of a seek: the leaf, and the slot in it.

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
    /// Returns whether the seek continues with larger keys if the first leaf has no match.
    #[must_use]
    pub fn is_forward(&self) -> bool {
        matches!(self, Self::First | Self::AtLeast(_) | Self::After(_))
    }

    /// Takes a shared latch on the first leaf to search.
    ///
    /// # Errors
    /// `Stop::Load`; those of a damaged tree.
    pub fn leaf<'p>(&self, tree: &Tree, pool: &'p Pool) -> Result<PageRead<'p>, Stop> {
        tree.leaf(
            pool,
            match *self {
                // No key is before the empty one: the first leaf shows that.
                Self::First | Self::Before([]) => Toward::Key(&[]),
                Self::Last => Toward::Last,
                Self::AtLeast(key) | Self::After(key) | Self::AtMost(key) => Toward::Key(key),
                // The leaf of `key` may begin with `key` itself.
                Self::Before(key) => Toward::Below(key),
            },
        )
    }

    /// Returns where in that leaf to begin: the first slot going forward, or the slot after the first one
    /// going backward.
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
