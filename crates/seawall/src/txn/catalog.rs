//! Creating, dropping, renaming and finding trees: rows of the catalog tree, written like any others.
//!
//! 1. A new tree's undo record is logged before its root is allocated; rolling it back frees every page that the tree
//!    id owns by then. The creator locks the whole tree until it has ended: no undo record of another transaction names
//!    a tree whose creation may be rolled back.
//! 2. A dropped tree's pages are freed when its undo record is purged: every view sees the drop, and no live
//!    transaction has a record of the tree (see `trees`). Rolling a drop back only reopens the tree (trap
//!    15).

use super::locks::Mode;
use super::options::{Isolation, LockWait};
use super::transaction::Txn;
use super::trees::{CatalogRow, TreeState};
use super::undo::UndoRecord;
use super::write::Change;
use super::writing::Writing;
use crate::btree::Tree;
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, LockedOn, Result};
use crate::format::{PageId, TreeId, TxnId};
use crate::space::Purpose;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest name of a tree, bytes. A name is a key, and fits the smallest page size, too.
pub const TREE_NAME_BYTES_MAX: usize = 512;

impl Txn {
    fn catalog(&self) -> Arc<TreeState> {
        self.engine.trees.state(CatalogRow { tree: TreeId::CATALOG, root: self.engine.catalog_root })
    }

    /// The tree with that name, as this transaction sees it. This does not count as a read: it takes no
    /// snapshot.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`].
    pub fn open_tree(&self, name: &str) -> Result<Arc<TreeState>> {
        let (catalog, name_bytes) = (self.catalog(), name.as_bytes());
        // Kept to the end: while it is there, a tree that is dropped is not forgotten.
        let view = self.pin();
        let row = match self.options.isolation {
            Isolation::Serializable => self.get(&catalog, name_bytes)?,
            _ => {
                // No lock keeps the answer true.
                self.see_followed();
                self.get_seen_by(&view, &catalog, name_bytes, <[u8]>::to_vec)?
            }
        };
        let row = row.ok_or_else(|| Error::NoSuchTree { name: name.into() })?;
        Ok(self.engine.trees.state(self.row(&row)?))
    }

    fn row(&self, value: &[u8]) -> Result<CatalogRow> {
        CatalogRow::decode(value).map_err(|e| Error::bad_page(self.engine.catalog_root, e.to_string()))
    }

    /// Names and trees, in order of their names.
    ///
    /// # Errors
    /// Reading errors.
    pub fn trees(&self) -> Result<Vec<(String, CatalogRow)>> {
        let mut out = Vec::new();
        let mut scan = self.scan(&self.catalog(), super::scan::ScanLock::None);
        let mut there = scan.seek_first()?;
        while there {
            let row = self.row(scan.value()?)?;
            out.push((String::from_utf8_lossy(scan.key()).into_owned(), row));
            there = scan.next()?;
        }
        Ok(out)
    }

    /// The tree with this id, and its name; not by its name, which it may have given up since.
    ///
    /// # Errors
    /// Reading errors.
    pub fn tree_by_id(&self, id: TreeId) -> Result<Option<(String, Arc<TreeState>)>> {
        // As in `open_tree`.
        let _view = self.pin();
        let found = self.trees()?.into_iter().find(|(_, row)| row.tree == id);
        Ok(found.map(|(name, row)| (name, self.engine.trees.state(row))))
    }

    /// Creates a tree.
    ///
    /// # Errors
    /// [`Error::TreeExists`], [`Error::NoSpace`], lock errors.
    pub fn create_tree(&mut self, name: &str) -> Result<Arc<TreeState>> {
        self.atomically(|txn| txn.create_tree_in_steps(name))
    }

    fn create_tree_in_steps(&mut self, name: &str) -> Result<Arc<TreeState>> {
        if name.len() > TREE_NAME_BYTES_MAX {
            return Err(Error::NameTooLong { len_bytes: name.len(), max_bytes: TREE_NAME_BYTES_MAX });
        }
        let catalog = self.catalog();
        self.start()?;
        if self.lock_row(&catalog, name.as_bytes(), Mode::Exclusive)?.is_some() {
            return Err(Error::TreeExists { name: name.into() });
        }
        let engine = self.engine.clone();
        let id = engine.pool().retry(|| {
            let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
            let id = engine.space.new_tree_id(&mut mtr)?;
            mtr.commit();
            Ok(id)
        })?;
        let mut reserved = engine.space.reserve(id, PageId::NONE, 1, Purpose::Grow)?;
        // A rollback checks the owner of the root: if it is not the tree, the root was not created yet.
        self.log_undo(UndoRecord::CreateTree { tree: id, root: reserved.peek().unwrap_or(PageId::NONE) })?;
        let root = engine.pool().retry(|| {
            let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
            let root = Tree::create(id, &mut mtr, &mut reserved)?.root;
            mtr.commit();
            Ok(root)
        })?;
        let row = CatalogRow { tree: id, root };
        let tree = engine.trees.state(row);
        tree.created_by(self.id());
        // The whole tree stays locked until this transaction has ended: its handle can be passed on, and
        // another transaction's changes in the tree could not be rolled back once this creation is.
        self.lock_range(&tree, Bound::Unbounded, Bound::Unbounded, Mode::Exclusive, LockWait::NoWait)?;
        self.change(&catalog, name.as_bytes(), &row.encode(), Change::Insert)?;
        Ok(tree)
    }

    /// Drops a tree. Older snapshots can still read it.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; [`Error::LockTimeout`] while another transaction that has a lock or a change in
    /// it has not ended.
    pub fn drop_tree(&mut self, name: &str) -> Result<()> {
        self.atomically(|txn| txn.drop_tree_in_steps(name))
    }

    fn drop_tree_in_steps(&mut self, name: &str) -> Result<()> {
        let catalog = self.catalog();
        self.start()?;
        let row = self.lock_row(&catalog, name.as_bytes(), Mode::Exclusive)?;
        let row = self.row(&row.ok_or_else(|| Error::NoSuchTree { name: name.into() })?)?;
        let tree = self.engine.trees.state(row);
        self.wait_for_resumed(&tree)?;
        self.lock_range(&tree, Bound::Unbounded, Bound::Unbounded, Mode::Exclusive, self.options.wait)?;
        self.log_undo(UndoRecord::DropTree { tree: row.tree, root: row.root })?;
        // The record is logged: its rollback opens the tree again.
        tree.dropped_by(self.id());
        self.change(&catalog, name.as_bytes(), &[], Change::Delete)?;
        Ok(())
    }

    /// Requests a lookup of the trees that the transactions of an earlier opening have written to, and waits until
    /// these are known. Called before a whole tree is locked: the lock then waits for the transactions that wrote to
    /// the tree, as for any other user of it.
    pub(super) fn wait_for_resumed(&self, tree: &TreeState) -> Result<()> {
        let (engine, begun) = (&self.engine, self.engine.clock.now());
        // A read-only database rolls nothing back: the rows that losers have changed stay locked one by one.
        let are_there = || engine.resumed.load(Ordering::SeqCst) > 0 && !engine.health().is_read_only();
        if are_there() {
            engine.resumed_asked.store(true, Ordering::SeqCst);
        }
        while are_there() {
            engine.health().check()?;
            let waited = engine.clock.now().saturating_sub(begun);
            if waited >= self.longest_wait(self.options.wait) {
                let holder = engine.active.active().first().copied().unwrap_or(TxnId::NONE);
                let on = LockedOn::whole(tree.at.id);
                return Err(Error::LockTimeout { holder, on, waited_ms: waited.as_millis() as u64 });
            }
            self.go_on("a wait for transactions of an earlier opening")?;
            engine.clock.sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Renames a tree.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], [`Error::TreeExists`], lock errors.
    pub fn rename_tree(&mut self, from: &str, to: &str) -> Result<()> {
        self.atomically(|txn| txn.rename_tree_in_steps(from, to))
    }

    fn rename_tree_in_steps(&mut self, from: &str, to: &str) -> Result<()> {
        if to.len() > TREE_NAME_BYTES_MAX {
            return Err(Error::NameTooLong { len_bytes: to.len(), max_bytes: TREE_NAME_BYTES_MAX });
        }
        let catalog = self.catalog();
        self.start()?;
        let row = self.lock_row(&catalog, from.as_bytes(), Mode::Exclusive)?;
        let row = row.ok_or_else(|| Error::NoSuchTree { name: from.into() })?;
        match self.change(&catalog, to.as_bytes(), &row, Change::Insert) {
            Err(Error::KeyExists { .. }) => return Err(Error::TreeExists { name: to.into() }),
            done => done?,
        };
        self.change(&catalog, from.as_bytes(), &[], Change::Delete)?;
        Ok(())
    }

    /// Logs an undo record that belongs to no row.
    pub(super) fn log_undo(&mut self, record: UndoRecord<'_>) -> Result<()> {
        let engine = self.engine.clone();
        let writing = Writing::of(&mut self.writing);
        let purpose = if matches!(record, UndoRecord::DropTree { .. }) { Purpose::Delete } else { Purpose::Grow };
        engine.undo.ensure_room(&mut writing.undo_log, record.room_max(), purpose)?;
        engine.pool().retry(|| {
            let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
            engine.undo.append(&mut writing.undo_log, &mut mtr, &record)?;
            mtr.commit();
            Ok(())
        })
    }
}
