//! A request for a lock, from the caller down to the queues.

use super::Mode;
use super::owner::LockOwner;
use super::span::{KeySpan, Keys};
use crate::error::LockedOn;
use crate::format::TreeId;
use std::sync::Arc;

/// An owner's request to lock a key or a span of keys of a tree. To change a key is to lock it exclusively.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    pub(super) owner: &'a Arc<LockOwner>,
    pub(super) tree: TreeId,
    pub(super) keys: Keys<'a>,
    pub(super) mode: Mode,
    /// The owner used the tree before this request.
    pub(super) uses: bool,
}

impl<'a> LockRequest<'a> {
    /// For one key.
    #[must_use]
    pub fn key(owner: &'a Arc<LockOwner>, tree: TreeId, key: &'a [u8], mode: Mode) -> Self {
        Self { owner, tree, keys: Keys::One(key), mode, uses: owner.uses(tree) }
    }

    /// For all keys of a span, present or not. The span of all keys, exclusively, is the tree itself.
    #[must_use]
    pub fn span(owner: &'a Arc<LockOwner>, tree: TreeId, span: &'a KeySpan, mode: Mode) -> Self {
        Self { owner, tree, keys: Keys::Span(span), mode, uses: owner.uses(tree) }
    }

    /// Whether the request excludes every other user of the tree.
    pub(super) fn whole(&self) -> bool {
        self.mode == Mode::Exclusive && matches!(self.keys, Keys::Span(span) if span.is_whole())
    }

    /// What it names in an error: its key, the first key of its span, or the whole tree.
    pub(super) fn on(&self) -> LockedOn {
        let key = match self.keys {
            Keys::One(key) => key.to_vec(),
            Keys::Span(span) if span.is_whole() => return LockedOn::whole(self.tree),
            Keys::Span(span) => span.lo.clone(),
        };
        LockedOn::row(self.tree, key)
    }
}
