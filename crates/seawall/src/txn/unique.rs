//! Unique prefixes: a secondary index whose entries are its columns followed by the primary key.
//!
//! The prefix itself is locked as a point, so that of two transactions that insert entries with one prefix the second waits for the
//! first. Then every entry that begins with it is locked for share and looked at in its latest version: those of unended transactions
//! are waited for.

use super::locks::Mode;
use super::transaction::Txn;
use super::trees::TreeState;
use super::write::Change;
use crate::error::{Error, LockedOn, Result};
use std::ops::Bound;
use std::sync::Arc;

impl Txn {
    /// Inserts unless another live key begins with the first `prefix_bytes` of `key`.
    ///
    /// # Errors
    /// [`Error::KeyExists`] with the key that is there; lock errors.
    pub fn insert_unique_prefix(
        &mut self,
        tree: &Arc<TreeState>,
        prefix_bytes: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.start()?;
        let prefix = &key[..prefix_bytes];
        self.lock_point(tree, prefix, Mode::Exclusive)?;
        // Who drops it waits for that lock from now on, or has ended.
        tree.is_there(self.id(), &self.engine.active)?;
        let mut from = Bound::Included(prefix.to_vec());
        while let Some(there) = self.neighbour(tree, &from, true)?.filter(|there| there.starts_with(prefix)) {
            if self.lock_row(tree, &there, Mode::Shared)?.is_some() {
                return Err(Error::KeyExists { on: LockedOn { tree: tree.at.id, key: there } });
            }
            from = Bound::Excluded(there);
        }
        self.change(tree, key, value, Change::Insert).map(|_| ())
    }
}
