//! Shrinking the data file while others work.
//!
//! ```text
//!   purge ─► fence ─► nodes above it are moved ─► rows with long values above it are written again
//!     ─► undo logs continue below ─► purge ─► the free end is cut off, checkpointed, truncated
//! ```
//!
//! 1. Each step is bounded and crash-safe by itself: moved pages stay moved, and the file is never shorter than
//!    the header says (`space/shrink.rs`). Between two steps a shrink holds no latch, no lock and no view. Its purge
//!    ends: it takes no transaction that began after it.
//! 2. Nodes are moved under the rules of a compaction (`db/compact.rs`, 2). Roots and the pages of the undo
//!    directory stay, so the file does not become shorter than the highest of them.
//! 3. A long value is read without its leaf, so it cannot be moved under its readers. Instead, a separate
//!    transaction writes its row again; that transaction gives up if another one holds the row, or if the
//!    value does not fit below the fence. Purge frees the old value when no view needs it.

use super::database::Database;
use super::tree::Tree;
use crate::btree::{self, Cursor, Seek};
use crate::error::{Error, Result};
use crate::format::{PageId, TreeId, TxnId};
use crate::log::Durability;
use crate::space::Fence;
use crate::txn::{Engine, LockWait, TxOptions};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Rows whose long values are examined in one step.
const ROWS_A_STEP: usize = 256;
/// Purge steps between two calls of `go_on`.
const PURGE_STEPS: u32 = 64;
/// Attempts to make a checkpoint after the cut: a running mini-transaction can hold the checkpoint back.
const CHECKPOINTS: usize = 4;
/// The most passes over the pages that are still above the fence.
const PASSES: usize = 3;

/// The progress of a shrink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShrinkProgress {
    /// Nodes of trees that were moved down.
    pub moved: u64,
    /// Rows written again because their long values were above the fence.
    pub rewritten: u64,
}

/// The result of a shrink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shrunk {
    /// Size of the data file before, bytes.
    pub before_bytes: u64,
    /// Its size now, bytes.
    pub after_bytes: u64,
    /// What was done.
    pub done: ShrinkProgress,
    /// Whether the shrink was stopped early.
    pub broken_off: bool,
}

impl Database {
    /// Shrinks the data file while others read and write: moves pages from its end to free pages before it, and
    /// returns the end to the file system. Versions that no snapshot needs are purged first. Pages that cannot be
    /// moved now (a root page, a row that another transaction holds, versions that a snapshot needs) stay, and the
    /// file keeps its length up to them.
    /// Compact trees first: half-empty leaves are moved as they are.
    ///
    /// A row whose long value is near the end is written again by a separate transaction. A transaction with an
    /// older snapshot that changes the row afterwards gets [`Error::WriteConflict`], unless it runs with
    /// [`OnConflict::Latest`](crate::OnConflict::Latest).
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`], read errors. Finished steps stay.
    ///
    /// ```
    /// let db = seawall::Database::in_memory()?;
    /// let tree = db.create_tree("t")?;
    /// db.transact(|tx| (0..20_000u32).try_for_each(|i| tx.put(&tree, &i.to_be_bytes(), &[7; 400])))?;
    /// db.transact(|tx| tx.delete_range::<&[u8]>(&tree, ..).map(drop))?;
    /// let done = db.shrink()?;
    /// assert!(done.after_bytes <= done.before_bytes);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn shrink(&self) -> Result<Shrunk> {
        self.shrink_with(|_| ControlFlow::Continue(()))
    }

    /// Like [`Database::shrink`]. `go_on` is called between steps; `Break` ends the shrink.
    ///
    /// # Errors
    /// Those of [`Database::shrink`].
    pub fn shrink_with(&self, mut go_on: impl FnMut(&ShrinkProgress) -> ControlFlow<()>) -> Result<Shrunk> {
        let _running = self.running()?;
        let engine = &**self.inner.engine();
        engine.health().check()?;
        let before_bytes = engine.pool().data_file().len();
        let mut work = Shrinking { db: self, engine, done: ShrinkProgress::default(), broken_off: false };
        work.run(&mut |done| go_on(done).is_break())?;
        let after_bytes = engine.pool().data_file().len();
        Ok(Shrunk { before_bytes, after_bytes, done: work.done, broken_off: work.broken_off })
    }
}

type Broken<'f> = &'f mut dyn FnMut(&ShrinkProgress) -> bool;

struct Shrinking<'d> {
    db: &'d Database,
    engine: &'d Engine,
    done: ShrinkProgress,
    broken_off: bool,
}

impl Shrinking<'_> {
    fn run(&mut self, is_broken: Broken<'_>) -> Result<()> {
        self.engine.space.learn_all()?;
        let moved = self.move_down(is_broken);
        // Also after an early end or an error.
        let cut = self.cut();
        moved.and(cut)
    }

    fn move_down(&mut self, is_broken: Broken<'_>) -> Result<()> {
        let space = &self.engine.space;
        self.purge(is_broken)?;
        for _ in 0..PASSES {
            if self.broken_off {
                break;
            }
            let Some(fence) = space.fence() else { break };
            let owners = space.owners_from(fence.page())?;
            if owners.is_empty() || !self.pass(&fence, &owners, is_broken)? {
                break;
            }
        }
        Ok(())
    }

    /// Called between two steps. Returns whether the shrink goes on.
    ///
    /// # Errors
    /// [`Error::ShutDown`]: the database closes.
    fn goes_on(&mut self, is_broken: Broken<'_>) -> Result<bool> {
        self.db.inner.shutdown.admit()?;
        self.broken_off = is_broken(&self.done);
        Ok(!self.broken_off)
    }

    /// Moves the pages of `owners` above the fence; returns true if any moved.
    fn pass(&mut self, fence: &Fence<'_>, owners: &BTreeSet<TreeId>, is_broken: Broken<'_>) -> Result<bool> {
        let before = self.done;
        let mut undo_moved = 0;
        let catalog = btree::Tree { id: TreeId::CATALOG, root: self.engine.catalog_root };
        if owners.contains(&TreeId::CATALOG) {
            self.nodes(fence, catalog, None, is_broken)?;
        }
        for name in self.db.trees()? {
            let tree = match self.db.open_tree(&name) {
                Ok(tree) if owners.contains(&tree.id()) => tree,
                Ok(_) | Err(Error::NoSuchTree { .. }) => continue,
                Err(error) => return Err(error),
            };
            match self.tree(fence, &tree, is_broken) {
                Ok(()) | Err(Error::TreeDropped { .. } | Error::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
            if self.broken_off || !fence.stands() {
                break;
            }
        }
        if owners.contains(&TreeId::UNDO) && fence.stands() {
            undo_moved = match self.engine.undo.move_idle_tails(fence.page()) {
                Err(Error::NoSpace { .. }) => 0,
                moved => moved?,
            };
        }
        self.purge(is_broken)?;
        Ok(self.done != before || undo_moved > 0)
    }

    fn tree(&mut self, fence: &Fence<'_>, tree: &Tree, is_broken: Broken<'_>) -> Result<()> {
        self.nodes(fence, tree.state.at, Some(tree), is_broken)?;
        if self.broken_off || !self.engine.space.owns_from(tree.id(), fence.page())? {
            return Ok(());
        }
        self.long_values(fence, tree, is_broken)
    }

    /// Moves leaves, then branches, of a tree.
    fn nodes(
        &mut self,
        fence: &Fence<'_>,
        at: btree::Tree,
        handle: Option<&Tree>,
        is_broken: Broken<'_>,
    ) -> Result<()> {
        let (engine, space) = (self.engine, &self.engine.space);
        for level in 0..u8::MAX {
            let (mut key, mut near) = (Vec::new(), PageId::NONE);
            loop {
                let Some(children) = at.children_at(space, &key, level)? else { return Ok(()) };
                for (lower, page) in children.nodes {
                    if page < fence.page() {
                        near = page;
                        continue;
                    }
                    let step = engine.compacting.lock();
                    engine.health().check()?;
                    let view = engine.active.view();
                    if let Some(handle) = handle {
                        handle.state.stands(TxnId::NONE, &view)?;
                    }
                    let Some(new) = at.relocate(space, fence, &lower, level, near)? else { return Ok(()) };
                    drop((view, step));
                    near = new;
                    self.done.moved += 1;
                    if !self.goes_on(is_broken)? {
                        return Ok(());
                    }
                }
                match children.beyond {
                    Some(beyond) => key = beyond,
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Writes rows again whose long values have pages above the fence.
    fn long_values(&mut self, fence: &Fence<'_>, tree: &Tree, is_broken: Broken<'_>) -> Result<()> {
        let pool = self.engine.pool();
        let mut from = Some(Vec::new());
        while let Some(key) = from {
            let mut high = Vec::new();
            {
                let view = self.engine.active.view();
                tree.state.stands(TxnId::NONE, &view)?;
                let mut cursor = Cursor::new(tree.state.at);
                let mut there = cursor.seek(pool, Seek::AtLeast(&key))?;
                let mut rows = 0;
                while there && rows < ROWS_A_STEP {
                    if let Some(entry) = cursor.entry()? {
                        let reference = entry.overflow().map_err(|why| Error::bad_page(cursor.leaf_page(), why.0))?;
                        high.extend(reference.map(|reference| (cursor.key().to_vec(), reference.head)));
                    }
                    rows += 1;
                    there = cursor.next(pool)?;
                }
                from = if there { Some(cursor.key().to_vec()) } else { None };
                // The view prevents purge from freeing the values while their lists are read.
                let mut kept = BTreeSet::new();
                for (key, head) in &high {
                    let mut is_high = false;
                    match btree::check_overflow(pool, tree.id(), *head, |page| is_high |= page >= fence.page()) {
                        Ok(()) if is_high => drop(kept.insert(key.clone())),
                        // The value was replaced and freed since its leaf was read, or it is damaged, which a
                        // check reports.
                        Ok(()) | Err(Error::Corrupt(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                high.retain(|(key, _)| kept.contains(key));
            }
            for (key, _) in high {
                self.write_again(fence, tree, &key)?;
                if !self.goes_on(is_broken)? || !fence.stands() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn write_again(&mut self, fence: &Fence<'_>, tree: &Tree, key: &[u8]) -> Result<()> {
        let mut tx = self.db.begin_with(TxOptions { wait: LockWait::NoWait, ..TxOptions::default() })?;
        // A page holds a little less than its size.
        let page_bytes = self.engine.pool().page_bytes();
        let fits = |value: &[u8]| (value.len() / page_bytes * 65 / 64 + 2) as u64 <= fence.room();
        let again = match tx.get_for_update(tree, key) {
            Ok(Some(value)) if fits(&value) => tx.put(tree, key, &value),
            Ok(_) => return tx.rollback(),
            Err(error) => Err(error),
        };
        match again {
            Ok(()) => {
                self.done.rewritten += 1;
                tx.commit_with(Durability::Deferred)
            }
            // Another transaction holds the row, or the disk is full: its value stays.
            Err(error)
                if error.is_retryable() || matches!(error, Error::LockTimeout { .. } | Error::NoSpace { .. }) =>
            {
                tx.rollback()
            }
            Err(error) => {
                tx.rollback()?;
                Err(error)
            }
        }
    }

    /// Purges what can be purged now of the transactions that have begun.
    fn purge(&mut self, is_broken: Broken<'_>) -> Result<()> {
        let next = self.engine.active.next_id();
        while !self.broken_off {
            for _ in 0..PURGE_STEPS {
                if !self.db.inner.work.purge_before(next)? {
                    return Ok(());
                }
            }
            self.goes_on(is_broken)?;
        }
        Ok(())
    }

    /// Cuts off the free end that is not needed, and truncates the file.
    fn cut(&self) -> Result<()> {
        let engine = self.engine;
        let longer = {
            let _step = engine.compacting.lock();
            engine.space.cut_tail()?
        };
        if !longer {
            return Ok(());
        }
        // Flushes the log: the checkpoint must pass the cut.
        engine.log().flush_to(engine.log().head())?;
        for _ in 0..CHECKPOINTS {
            engine.pool().flush_all()?;
            let _step = engine.compacting.lock();
            if engine.space.shorten()? {
                break;
            }
        }
        Ok(())
    }
}
