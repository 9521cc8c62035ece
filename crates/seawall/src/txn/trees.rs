//! The trees that this process knows by id, and which transactions may use one that is created or dropped.
//!
//! 1. A tree's root page and id are fixed for its life; names are in the catalog tree, versioned like any
//!    other row.
//! 2. A dropper locks the whole tree exclusively, so no other transaction has a lock or a change in it. It
//!    sets `dropper` before it ends. No undo record of a live transaction names a dropped tree, except the
//!    dropper's own. A transaction that waited for the dropper's lock checks `dropper` again.
//! 3. A view that sees the drop must not use the tree: its pages are freed once every view sees the drop.
//! 4. The rows of a built tree have no writer, so a view that does not see the tree's creation must not read
//!    it. `creator` is set from before the first row until every view sees the creation.
//!
//! ```text
//!   open ──drop──> being dropped ──commit──> dropped (for ever)
//!    ^──────reopen (rollback)──┘
//! ```

use super::dead::Dead;
use super::rowlog::RowLogs;
use super::views::{ActiveSet, View};
use crate::btree::Tree as Btree;
use crate::counted::RwLock;
use crate::error::{Error, Result};
use crate::format::{Malformed, PageId, Reader, TreeId, TxnId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The value of a catalog row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogRow {
    /// The tree.
    pub tree: TreeId,
    /// Its root page.
    pub root: PageId,
}

impl CatalogRow {
    /// Its stored form.
    pub fn encode(self) -> [u8; 8] {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.tree.0.to_le_bytes());
        out[4..].copy_from_slice(&self.root.0.to_le_bytes());
        out
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    /// If it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        Ok(Self { tree: TreeId(reader.u32()?), root: PageId(reader.u32()?) })
    }
}

/// Whether a snapshot may read a tree: see [`crate::Transaction::may_read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    /// The tree existed when the snapshot was taken, or is this transaction's own.
    Yes,
    /// The tree was created after the snapshot was taken. As of the snapshot it has no rows; reads of a built
    /// tree are refused.
    CreatedLater,
    /// The tree is dropped.
    Dropped,
}

/// The value of [`TreeState::dropper`] when the tree is gone for every transaction.
const GONE: u64 = u64::MAX;

/// The state that all handles of a tree share.
#[derive(Debug)]
pub struct TreeState {
    /// Its id and root page.
    pub at: Btree,
    /// The number of the opening that the tree belongs to ([`super::engine::Instance`]).
    pub owner: u64,
    /// The transaction that drops it: its id, 0 for none, or [`GONE`].
    dropper: AtomicU64,
    /// The transaction that created it: its id, 0 if every view sees the creation.
    creator: AtomicU64,
    /// Whether it was built from sorted rows, which have no writer.
    built: AtomicBool,
    /// The known runs of dead rows.
    pub(super) dead: Dead,
    /// The row logs that record its changes.
    pub(super) rows: RowLogs,
}

impl TreeState {
    fn new(owner: u64, row: CatalogRow) -> Self {
        let at = Btree { id: row.tree, root: row.root };
        let (dropper, creator, built) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { at, owner, dropper, creator, built, dead: Dead::default(), rows: RowLogs::default() }
    }

    /// Sets `txn`, which locks the whole tree, as its creator. Called before the first row is inserted.
    pub fn created_by(&self, txn: TxnId) {
        self.creator.store(txn.0, Ordering::SeqCst);
    }

    /// Marks the tree as built: its rows have no writers. Called before the first row is added.
    pub fn is_built(&self) {
        self.built.store(true, Ordering::SeqCst);
    }

    /// Whether a reader with `view` and own id `me` may read the tree.
    pub fn readable(&self, me: TxnId, view: &View) -> Readable {
        if self.usable(me, view).is_err_and(|error| matches!(error, Error::TreeDropped { .. })) {
            return Readable::Dropped;
        }
        let creator = TxnId(self.creator.load(Ordering::SeqCst));
        if creator == me || view.sees(creator) { Readable::Yes } else { Readable::CreatedLater }
    }

    /// Whether rows without a writer may be younger than a view. Every view sees every id below `horizon`.
    #[inline]
    pub fn is_young(&self, horizon: TxnId) -> bool {
        let creator = self.creator.load(Ordering::SeqCst);
        if creator == 0 {
            return false;
        }
        if creator < horizon.0 {
            // Every view sees the creator from now on: the check is not needed again.
            self.creator.store(0, Ordering::SeqCst);
            return false;
        }
        self.built.load(Ordering::SeqCst)
    }

    /// Checks that a view of `me` sees the rows that the tree was built from.
    ///
    /// # Errors
    /// [`Error::TreeTooNew`].
    #[inline]
    pub fn is_old_enough(&self, me: TxnId, view: &View) -> Result<()> {
        let creator = TxnId(self.creator.load(Ordering::SeqCst));
        if creator == TxnId::NONE || creator == me || view.sees(creator) || !self.built.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::TreeTooNew { tree: self.at.id })
    }

    /// Sets `txn`, which has locked the whole tree, as its dropper.
    pub fn dropped_by(&self, txn: TxnId) {
        self.dropper.store(txn.0, Ordering::SeqCst);
    }

    /// Whether `me` has created or dropped it, and so keeps it locked whole.
    pub fn is_kept_by(&self, me: TxnId) -> bool {
        [&self.creator, &self.dropper].iter().any(|id| id.load(Ordering::SeqCst) == me.0)
    }

    /// Makes the tree usable again, after a drop was rolled back.
    pub fn reopen(&self) {
        self.dropper.store(0, Ordering::SeqCst);
    }

    /// Marks the tree as gone for every transaction.
    pub fn gone(&self) {
        self.dropper.store(GONE, Ordering::SeqCst);
    }

    /// Checks that a reader with `view` and own id `me` may use the tree.
    ///
    /// # Errors
    /// [`Error::TreeDropped`], [`Error::TreeTooNew`].
    pub fn usable(&self, me: TxnId, view: &View) -> Result<()> {
        self.is_old_enough(me, view)?;
        self.stands(me, view)
    }

    /// Checks that its pages may be read, regardless of the rows that `view` sees in them: for operations
    /// that move and count pages.
    ///
    /// # Errors
    /// [`Error::TreeDropped`].
    pub fn stands(&self, me: TxnId, view: &View) -> Result<()> {
        match self.dropper.load(Ordering::SeqCst) {
            0 => Ok(()),
            dropper if dropper != GONE && TxnId(dropper) != me && !view.sees(TxnId(dropper)) => Ok(()),
            _ => Err(Error::TreeDropped { tree: self.at.id }),
        }
    }

    /// Whether a transaction has begun to drop it.
    pub fn may_be_dropped(&self) -> bool {
        self.dropper.load(Ordering::SeqCst) != 0
    }

    /// Checks that `me`, which has just got the lock it needs, may use the tree's latest state: a dropper
    /// holds every lock of the tree until it has ended.
    ///
    /// # Errors
    /// [`Error::TreeDropped`].
    pub fn is_there(&self, me: TxnId, active: &ActiveSet) -> Result<()> {
        match self.dropper.load(Ordering::SeqCst) {
            0 => Ok(()),
            dropper if dropper != GONE && TxnId(dropper) != me && active.is_active(TxnId(dropper)) => Ok(()),
            _ => Err(Error::TreeDropped { tree: self.at.id }),
        }
    }
}

/// All trees in use, by id.
#[derive(Debug)]
pub struct Trees {
    owner: u64,
    by_id: RwLock<HashMap<TreeId, Arc<TreeState>>>,
}

impl Trees {
    /// The trees of the opening with this number.
    pub fn new(owner: u64) -> Self {
        Self { owner, by_id: RwLock::default() }
    }

    /// The shared state of a tree.
    pub fn state(&self, row: CatalogRow) -> Arc<TreeState> {
        if let Some(state) = self.by_id.read().get(&row.tree) {
            return state.clone();
        }
        self.by_id.write().entry(row.tree).or_insert_with(|| Arc::new(TreeState::new(self.owner, row))).clone()
    }

    /// The shared state, if the tree is in use.
    pub fn known(&self, tree: TreeId) -> Option<Arc<TreeState>> {
        self.by_id.read().get(&tree).cloned()
    }

    /// Removes a tree whose pages are being freed.
    pub fn forget(&self, tree: TreeId) {
        let forgotten = self.by_id.write().remove(&tree);
        if let Some(state) = forgotten {
            state.gone();
        }
    }
}
