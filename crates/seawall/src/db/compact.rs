//! Compacting a tree while others read and write it, and how much it needs that.
//!
//! 1. The work is done step by step by whoever asks for it (`btree/compact.rs`); between two steps it holds no latch, no lock and no view.
//! 2. A step has a view: a drop of the tree that comes meanwhile is not purged before the step is over. The next step sees the drop and ends
//!    with [`Error::TreeDropped`]. The tree's creation is committed, so it is not rolled back either.
//! 3. It never waits for a lock, and nobody's lock for it: locks are on keys, and keys stay.
//! 4. What was done stays, also after an error or when it is broken off.

use super::database::{Database, Tree};
use crate::btree::{Compaction, Fragmentation, Moved};
use crate::error::{Error, Result};
use crate::format::TxnId;
use crate::txn::Engine;
use std::ops::ControlFlow;
use std::time::Duration;

/// The longest rest between two steps without asking whether to go on.
const REST_MAX: Duration = Duration::from_millis(100);

/// How a tree is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactOptions {
    /// How full leaves are made, percent, 50 to 100. Full leaves are fewer to scan, and split at the next insert. 90 unless set.
    pub fill_percent: u32,
    /// Leaves a second that are read and written at most; 0, unless set, is as many as the disk gives.
    pub leaves_per_second: u32,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { fill_percent: 90, leaves_per_second: 0 }
    }
}

/// How far a compaction has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactProgress {
    /// Leaves that the tree had when it began; others come and go.
    pub leaves: u64,
    /// Leaves that were come to: moved, merged, or left as they were.
    pub looked: u64,
    /// Leaves that were written to another place.
    pub moved: u64,
    /// Leaves that are no more, because others took up their rows.
    pub merged: u64,
    /// Pages that were freed: those moved from, and those merged.
    pub freed: u64,
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// How the tree lay before.
    pub before: Fragmentation,
    /// How it lies now.
    pub after: Fragmentation,
    /// What was done.
    pub done: CompactProgress,
    /// Whether it was broken off before the tree's end.
    pub broken_off: bool,
}

impl Database {
    /// How well a tree lies in its file: how many neighbouring leaves do not follow each other, and how full leaves are. Reads the branch
    /// pages above all leaves, about one page in some hundreds of the tree's, and at most 32 leaves.
    ///
    /// # Errors
    /// [`Error::TreeDropped`]; reading errors.
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

    /// Brings the leaves of a tree into the order of their keys in the file and fills them up, while others go on reading and writing it.
    /// What is in order and full stays. Long values and branch pages stay where they are.
    ///
    /// The file grows by up to what is moved, since pages that lie about singly are no place for leaves in a row; what is freed is there
    /// for whatever comes next. Every leaf that moves is in the log once.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`] when the tree's creation is not committed; [`Error::TreeDropped`], also when it is dropped meanwhile;
    /// [`Error::NoSpace`]; [`Error::Poisoned`]; reading errors. What was done until then stays, and the tree is whole.
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

    /// The same, with options. `go_on` is called between steps, at least ten times a second but for waits for the disk: `Break` ends the
    /// compaction.
    ///
    /// # Errors
    /// As [`Database::compact`]; [`Error::Usage`] for options that make no sense.
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
        let began = engine.clock.now();
        let mut broken_off = go_on(&progress(&compaction)).is_break();
        while !broken_off && step(engine, tree, &mut compaction)? {
            let done = progress(&compaction);
            let due = match options.leaves_per_second {
                0 => Duration::ZERO,
                rate => Duration::from_secs_f64(done.freed as f64 / f64::from(rate)),
            };
            broken_off = go_on(&done).is_break() || rest(engine, began + due, || go_on(&done).is_break());
        }
        let done = progress(&compaction);
        // Pages that were set aside go back before anything is counted.
        drop(compaction);
        Ok(Compacted { before, after: self.fragmentation(tree)?, done, broken_off })
    }

    /// The tree is one that cannot be rolled back any more.
    fn must_be_committed(&self, tree: &Tree) -> Result<()> {
        self.inner.engine().admit(&tree.state)?;
        let tx = self.begin()?;
        match tx.open_tree(tree.name()) {
            Ok(found) if found.id() == tree.id() => return Ok(()),
            Ok(_) | Err(Error::NoSuchTree { .. }) => {}
            Err(error) => return Err(error),
        }
        tree.state.stands(TxnId::NONE, &self.inner.engine().active.view())?;
        // It may have another name by now.
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

/// Lets others work, and rests until `due`; true when it is broken off.
fn rest(engine: &Engine, due: Duration, mut is_broken_off: impl FnMut() -> bool) -> bool {
    // Where one thread does everything in turn, nothing waits.
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
