//! The handle of a tree.

use crate::format::TreeId;
use crate::txn::TreeState;
use std::sync::Arc;

/// A tree of a database.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(super) state: Arc<TreeState>,
    name: Arc<str>,
}

impl Tree {
    pub(super) fn new(state: Arc<TreeState>, name: &str) -> Self {
        Self { state, name: name.into() }
    }

    /// Returns the tree's name at the time this handle was made.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tree's id, which is never reused.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.state.at.id
    }
}
