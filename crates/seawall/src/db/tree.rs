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

    /// Its name when this handle was made.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id; never reused.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.state.at.id
    }
}
