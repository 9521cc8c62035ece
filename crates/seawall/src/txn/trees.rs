//! The trees that this process knows by id, and who may write them while one is dropped.
//!
//! 1. A tree's root page and id are fixed for its life; names live in the catalog tree, versioned like any other row.
//! 2. A dropper locks the whole tree exclusively, so nobody else has a lock or a change in it, and says that it drops it before it ends: no
//!    undo record of a live transaction names a dropped tree but the dropper's own. Whoever waited for its lock looks here again.
//! 3. A view that sees the drop must not use the tree: its pages go when every view sees it.
//! 4. The rows of a tree that was built bear no writer, so a view that does not see the tree's creation must not use it. The creator is known from
//!    before the first row until every view sees it.
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

/// What a catalog row's value says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogRow {
    /// The tree.
    pub tree: TreeId,
    /// Its root page.
    pub root: PageId,
}

impl CatalogRow {
    /// As stored.
    pub fn encode(self) -> [u8; 8] {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.tree.0.to_le_bytes());
        out[4..].copy_from_slice(&self.root.0.to_le_bytes());
        out
    }

    /// From what is stored.
    ///
    /// # Errors
    /// When it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        Ok(Self { tree: TreeId(reader.u32()?), root: PageId(reader.u32()?) })
    }
}

/// Whether a snapshot may read a tree: see [`crate::Transaction::may_read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    /// The tree was there when the snapshot was taken, or is this transaction's own.
    Yes,
    /// The tree was created after the snapshot was taken. As of the snapshot it has no rows; one that was built refuses to be read.
    CreatedLater,
    /// The tree is dropped.
    Dropped,
}

/// Set in [`TreeState::dropper`] when the tree is gone for everybody.
const GONE: u64 = u64::MAX;

/// What all handles of a tree share.
#[derive(Debug)]
pub struct TreeState {
    /// Where it is.
    pub at: Btree,
    /// The number of the opening whose tree it is ([`super::engine::Instance`]).
    pub owner: u64,
    /// Who drops it: a transaction's id, 0 for nobody, or [`GONE`].
    dropper: AtomicU64,
    /// Who has made it: a transaction's id, 0 for one that every view sees.
    creator: AtomicU64,
    /// It was built from sorted rows, which bear no writer.
    built: AtomicBool,
    /// Where dead rows lie.
    pub(super) dead: Dead,
    /// Who is told of its changes.
    pub(super) rows: RowLogs,
}

impl TreeState {
    fn new(owner: u64, row: CatalogRow) -> Self {
        let at = Btree { id: row.tree, root: row.root };
        let (dropper, creator, built) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { at, owner, dropper, creator, built, dead: Dead::default(), rows: RowLogs::default() }
    }

    /// Says that `txn`, which has locked the whole tree, makes it. Before the first row.
    pub fn created_by(&self, txn: TxnId) {
        self.creator.store(txn.0, Ordering::SeqCst);
    }

    /// Says that its rows will bear no writer. Before the first row.
    pub fn is_built(&self) {
        self.built.store(true, Ordering::SeqCst);
    }

    /// What a reader with `view` and own id `me` may do with it.
    pub fn readable(&self, me: TxnId, view: &View) -> Readable {
        if self.usable(me, view).is_err_and(|error| matches!(error, Error::TreeDropped { .. })) {
            return Readable::Dropped;
        }
        let creator = TxnId(self.creator.load(Ordering::SeqCst));
        if creator == me || view.sees(creator) { Readable::Yes } else { Readable::CreatedLater }
    }

    /// Whether rows without a writer may be younger than a view. `horizon`: every id below is seen by every view.
    #[inline]
    pub fn is_young(&self, horizon: TxnId) -> bool {
        let creator = self.creator.load(Ordering::SeqCst);
        if creator == 0 {
            return false;
        }
        if creator < horizon.0 {
            // It stays so: nobody asks any more.
            self.creator.store(0, Ordering::SeqCst);
            return false;
        }
        self.built.load(Ordering::SeqCst)
    }

    /// Whether a view of `me` sees what the tree was built from.
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

    /// Says that `txn`, which has locked the whole tree, drops it.
    pub fn dropped_by(&self, txn: TxnId) {
        self.dropper.store(txn.0, Ordering::SeqCst);
    }

    /// Lets writers in again after a drop was rolled back.
    pub fn reopen(&self) {
        self.dropper.store(0, Ordering::SeqCst);
    }

    /// Its pages are not a tree any more.
    pub fn gone(&self) {
        self.dropper.store(GONE, Ordering::SeqCst);
    }

    /// Whether a reader with `view` and own id `me` may use it.
    ///
    /// # Errors
    /// [`Error::TreeDropped`], [`Error::TreeTooNew`].
    pub fn usable(&self, me: TxnId, view: &View) -> Result<()> {
        self.is_old_enough(me, view)?;
        self.stands(me, view)
    }

    /// Whether its pages may be looked at, whatever rows `view` sees in them: for what moves and counts pages.
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

    /// Whether somebody has begun to drop it.
    pub fn may_be_dropped(&self) -> bool {
        self.dropper.load(Ordering::SeqCst) != 0
    }

    /// Whether its latest state may be used by `me`, which has just got the lock it needs: a dropper holds all of them until it has ended.
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
    /// Of the opening with this number.
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

    /// The shared state, if anybody uses the tree.
    pub fn known(&self, tree: TreeId) -> Option<Arc<TreeState>> {
        self.by_id.read().get(&tree).cloned()
    }

    /// Forgets a tree whose pages are freed.
    pub fn forget(&self, tree: TreeId) {
        let forgotten = self.by_id.write().remove(&tree);
        if let Some(state) = forgotten {
            state.gone();
        }
    }
}
