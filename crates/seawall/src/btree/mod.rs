//! The B+tree: ordered entries in pages.
//!
//! 1. A tree is its id and its root page, both fixed for its life: a root that splits moves its contents into
//!    a child; a root with one child takes the child's contents back.
//! 2. Leaves have no sibling links. A thread that needs a neighbour descends with a fence.
//! 3. Latch order: tree pages from the root down and from left to right, then undo pages, then space pages. A
//!    descent couples shared latches: it releases a page once it has latched the child. So a page reached
//!    under its parent's latch is what the parent says.
//! 4. A structure change is a mini-transaction of its own and leaves the tree whole (consistent): one node
//!    splits, two merge, or the root grows or shrinks. It latches parent and children exclusively, and never
//!    waits for the disk while it holds these latches.
//! 5. This layer knows nothing of visibility: it treats an entry that is marked deleted like any other.

mod bound;
mod build;
mod check;
mod compact;
mod cursor;
mod dismantle;
mod edit;
mod entry;
mod estimate;
mod find_leaves;
mod fragmentation;
mod hint;
mod merge;
mod node;
mod overflow;
mod reach;
mod read_ahead;
mod record;
mod redo;
mod relocate;
mod repack;
mod sample;
mod search;
mod seek;
mod split;
mod temporary;
#[cfg(test)]
mod tests;
mod verify;

pub use bound::KeyBound;
pub use build::Builder;
pub use check::{TreeDefect, check, check_overflow};
pub use compact::{Compaction, Moved};
pub use cursor::Cursor;
pub use dismantle::Dismantling;
pub use entry::{DELETED, ENTRY_HEADER_BYTES, Entry, HEADER, OVERFLOW, OverflowRef, entry_bytes_max, inline_value_max};
pub use estimate::Estimate;
pub use fragmentation::Fragmentation;
pub use hint::LeafHints;
pub use node::{Node, Opened, common_prefix, key_bytes_max};
pub use overflow::{
    OverflowWriter, VALUE_MTRS_A_STEP, free_overflow_some, one_page_value_max, read_overflow_into, read_overflow_many,
    write_one_page,
};
pub use reach::Reach;
pub use read_ahead::ReadAhead;
pub use redo::{Insert, Patch, Remove, Replace, Rewrite, redo};
pub use seek::Seek;
pub use temporary::{Found as TemporaryFound, Rows as TemporaryRows, Temporary};
pub use verify::Verify;

use crate::error::{Corruption, Error, Stop};
use crate::format::{PageId, TreeId};

/// A tree's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tree {
    /// Its id.
    pub id: TreeId,
    /// Its root page.
    pub root: PageId,
}

/// A page whose contents contradict themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged {
    /// The page's number, as the page itself says.
    pub page: PageId,
    /// The evidence.
    pub why: &'static str,
}

impl From<Damaged> for Corruption {
    fn from(damaged: Damaged) -> Self {
        Self::Page { page: damaged.page, why: damaged.why.into() }
    }
}

impl From<Damaged> for Error {
    fn from(damaged: Damaged) -> Self {
        Corruption::from(damaged).into()
    }
}

impl From<Damaged> for Stop {
    fn from(damaged: Damaged) -> Self {
        Self::Fail(damaged.into())
    }
}
