//! Compaction of a tree while others read and write it, and its fragmentation.
//!
//! 1. The calling thread does the work step by step (`btree/compact.rs`); between two steps it holds no
//!    latch, no lock and no view.
//! 2. A step has a view, so purge does not free a concurrently dropped tree before the step is over. The next
//!    step sees the drop and ends with [`Error::TreeDropped`]. The tree's creation is committed, so it is not
//!    rolled back either.
//! 3. A compaction never waits for a lock, and no lock request waits for a compaction: locks are on keys, and
//!    keys stay.
//! 4. Finished steps stay, even after an error or an early end.

use super::database::Database;
use super::tree::Tree;
use crate::btree::{Compaction, Fragmentation, Moved};
use crate::error::{Error, Result};
use crate::format::TxnId;
use crate::txn::Engine;
use std::ops::ControlFlow;
use std::time::Duration;

/// The longest pause between two steps without a call of `go_on`.
const REST_MAX: Duration = Duration::from_millis(100);

/// Options of [`Database::compact_with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactOptions {
    /// Fill of the leaves, percent, 50 to 100. Fuller leaves mean fewer leaves to scan, but they split at the
    /// next insert. Default 90.
    pub fill_percent: u32,
    /// The most leaves to read and write a second; 0, the default, means no limit.
    pub leaves_per_second: u32,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { fill_percent: 90, leaves_per_second: 0 }
    }
}

/// The progress of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactProgress {
    /// Leaves of the tree at the start of the compaction; concurrent changes add and remove leaves.
    pub leaves: u64,
    /// Leaves processed: moved, merged, or left unchanged.
    pub looked: u64,
    /// Leaves written to another page.
    pub moved: u64,
    /// Leaves removed because their rows moved to other leaves.
    pub merged: u64,
    /// Pages freed: the old pages of moved and merged leaves.
    pub freed: u64,
}

/// The result of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// The fragmentation before.
    pub before: Fragmentation,
    /// The fragmentation now.
    pub after: Fragmentation,
    /// What was done.
    pub done: CompactProgress,
    /// Whether the compaction was stopped before the tree's end.
    pub broken_off: bool,
}

impl Database {
    /// Measures the fragmentation of a tree: how many neighbouring leaves do not follow each other in the file,
    /// and how full leaves are. Reads all branch pages just above the leaves (about one in some hundreds of the
    /// tree's pages), and at most 32 leaves.
    ///
    /// # Errors
    /// [`Error::TreeDropped`]; read errors.
    ///
    /// ```
    /// let db = seawall::Database::in_memory()?;
    /// let tree = db.create_tree("t")?;
    /// assert_eq!(db.fragmentation(&tree)?.share(), 0.0);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn fragmentation(&self, tree: &Tree) -> Result<Fragmentation> {
        let engine = self.inner.engine();
        engine.admit(&tree.state)?;
        let view = engine.active.view();
        tree.state.stands(TxnId::NONE, &view)?;
        tree.state.at.fragmentation(engine.pool())
    }

    /// Moves the leaves of a tree into key order in the file and fills them, while others read and write the
    /// tree. Leaves that are in order and full stay where they are. Long values and branch pages are not moved.
    ///
    /// The file grows by at most the amount moved, because consecutive leaves do not fit into single free
    /// pages. The old pages are freed and can be used afterwards. Every moved leaf is logged once.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`] if the tree's creation is not committed; [`Error::TreeDropped`], also if the tree
    /// is dropped during the call; [`Error::NoSpace`]; [`Error::Poisoned`]; read errors. Finished steps stay,
    /// and the tree is intact.
    ///
    /// ```
    /// let db = seawall::Database::in_memory()?;
    /// let tree = db.create_tree("t")?;
    /// db.transact(|tx| (0..5000u32).try_for_each(|i| tx.put(&tree, &i.wrapping_mul(0x9e37_79b1).to_be_bytes(), &[7; 100])))?;
    /// let done = db.compact(&tree)?;
    /// assert!(done.after.share() < done.before.share() && done.after.leaves < done.before.leaves);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn compact(&self, tree: &Tree) -> Result<Compacted> {
        self.compact_with(tree, CompactOptions::default(), |_| ControlFlow::Continue(()))
    }

    /// Like [`Database::compact`], with options. `go_on` is called between steps, at least ten times a second
    /// except while a step waits for the disk; `Break` ends the compaction.
    ///
    /// # Errors
    /// Those of [`Database::compact`]; [`Error::Usage`] for invalid options.
    pub fn compact_with(
        &self,
        tree: &Tree,
        options: CompactOptions,
        mut go_on: impl FnMut(&CompactProgress) -> ControlFlow<()>,
    ) -> Result<Compacted> {
        if !(50..=100).contains(&options.fill_percent) {
            let percent = options.fill_percent;
            return Err(Error::Usage(format!("leaves are to be filled to {percent} percent: 50 to 100 are allowed")));
        }
        self.must_be_committed(tree)?;
        let engine = &**self.inner.engine();
        let before = self.fragmentation(tree)?;
        let mut compaction = Compaction::new(tree.state.at, &engine.space, options.fill_percent);
        let progress = |compaction: &Compaction<'_>| {
            let Moved { looked, written: moved, freed } = compaction.moved();
            CompactProgress { leaves: before.leaves, looked, moved, merged: freed - moved, freed }
        };
        let mut broken_off = go_on(&progress(&compaction)).is_break();
        let (mut due, mut freed) = (Duration::ZERO, 0);
        while !broken_off {
            // Time in which it moved nothing earns no burst.
            due = due.max(engine.clock.now());
            if !step(engine, tree, &mut compaction)? {
                break;
            }
            let done = progress(&compaction);
            if options.leaves_per_second > 0 {
                due += Duration::from_secs_f64((done.freed - freed) as f64 / f64::from(options.leaves_per_second));
            }
            freed = done.freed;
            broken_off = go_on(&done).is_break() || rest(engine, due, || go_on(&done).is_break());
        }
        let done = progress(&compaction);
        // Returns reserved pages before anything is counted.
        drop(compaction);
        Ok(Compacted { before, after: self.fragmentation(tree)?, done, broken_off })
    }

    /// Fails unless the tree's creation is committed, so that no rollback can free it.
    fn must_be_committed(&self, tree: &Tree) -> Result<()> {
        self.inner.engine().admit(&tree.state)?;
        let tx = self.begin()?;
        match tx.open_tree(tree.name()) {
            Ok(found) if found.id() == tree.id() => return Ok(()),
            Ok(_) | Err(Error::NoSuchTree { .. }) => {}
            Err(error) => return Err(error),
        }
        tree.state.stands(TxnId::NONE, &self.inner.engine().active.view())?;
        // The tree may have been renamed.
        if tx.txn().trees()?.iter().any(|(_, row)| row.tree == tree.id()) {
            return Ok(());
        }
        Err(Error::NoSuchTree { name: tree.name().into() })
    }
}

fn step(engine: &Engine, tree: &Tree, compaction: &mut Compaction<'_>) -> Result<bool> {
    let _step = engine.compacting.lock();
    engine.health().check()?;
    let view = engine.active.view();
    tree.state.stands(TxnId::NONE, &view)?;
    compaction.step(engine.active.horizon())
}

/// Pauses until `due`, so that other threads can work; returns true if the compaction is stopped meanwhile.
fn rest(engine: &Engine, due: Duration, mut is_broken_off: impl FnMut() -> bool) -> bool {
    // With `Background::Steps` nothing waits.
    if !engine.may_wait {
        return false;
    }
    std::thread::yield_now();
    loop {
        let left = due.saturating_sub(engine.clock.now());
        if left.is_zero() {
            return false;
        }
        engine.clock.sleep(left.min(REST_MAX));
        if is_broken_off() {
            return true;
        }
    }
}
