//! Removing what no view can see any more.
//!
//! 1. A transaction's records are purged when every view, now and in the future, sees the transaction.
//! 2. A delete-marked entry is removed only if its writer and undo pointer are still those of the record
//!    (trap 12).
//! 3. A step does a bounded piece of work. The purge position moves past records, several at a time, after all their
//!    work is done; work of many steps is resumable. So after a crash purge may do a record's work again, and finds
//!    it done. The last page of a long value is freed by the mini-transaction that moves the position, because the
//!    page may be reallocated at once.
//! 4. The long value of a version is freed with the undo record of the change that superseded it: an update or a
//!    deletion. The record of a revival frees nothing: the value is freed with the record of the deletion before it.
//! 5. A record may belong to a tree that was dropped and freed since. Tree ids are never reused, so the root
//!    page shows whether the tree is gone. A long value that only such a record refers to is freed with the
//!    record, unless it was freed with the tree: the owner of its head page shows that.
//! 6. A drop is a record that takes many steps (`btree/dismantle.rs`); the root is freed by the
//!    mini-transaction that moves past the record. The other undo logs are purged between two steps.

use super::engine::{Engine, Purge};
use super::undo::{OldValue, UndoRecord, Unpurged};
use crate::btree::{
    DELETED, Dismantling, HEADER, Node, OVERFLOW, OverflowRef, Remove, Tree, VALUE_MTRS_A_STEP, free_overflow_some,
};
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, Result, Stop, read_again};
use crate::format::{PageId, TreeId, TxnId, UndoPtr, page};
use crate::mutants::Mutant;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

impl Purge {
    /// Purges up to `records` records of the next undo log that has some. Returns `false` when nothing can be
    /// purged now.
    ///
    /// # Errors
    /// The error that stopped it.
    pub fn step(&mut self, engine: &Engine, records: usize) -> Result<bool> {
        self.step_before(engine, records, TxnId(u64::MAX))
    }

    /// Like [`Purge::step`], but only for transactions whose ids are less than `next`.
    ///
    /// # Errors
    /// The error that stopped it.
    pub fn step_before(&mut self, engine: &Engine, records: usize, next: TxnId) -> Result<bool> {
        engine.health().check()?;
        let (oldest, moved) = (engine.active.oldest_view(), engine.undo.tails_moved());
        if self.done_for.as_ref().is_some_and(|(done, tails)| done.is_same(&oldest) && *tails == moved) {
            return Ok(false);
        }
        self.done_for = None;
        let is_over = |txn: TxnId| txn < next && oldest.sees(txn);
        let undo_logs = engine.undo.undo_logs();
        for _ in 0..undo_logs {
            let undo_log = self.next_undo_log % undo_logs;
            self.next_undo_log = (undo_log + 1) % undo_logs;
            #[cfg(test)]
            {
                self.looked += 1;
            }
            if engine.undo.pass(undo_log, is_idle, is_over)? {
                return Ok(true);
            }
            let early = Cell::new(None);
            let found = engine.undo.heads(undo_log, records, |txn| {
                is_over(txn)
                    || (engine.health().has(Mutant::PurgeEarly) && early.get().is_none_or(|first| first == txn) && {
                        early.set(Some(txn));
                        true
                    })
            })?;
            if !found.is_empty() {
                engine.purge_records(&found, &mut self.drops)?;
                return Ok(true);
            }
        }
        if next.0 == u64::MAX {
            self.done_for = Some((oldest, moved));
        }
        Ok(false)
    }
}

/// Writers help when at least this many committed transactions wait for purge.
const HISTORY_LONG: u64 = 20_000;
/// One transaction in this many helps.
pub(super) const HELP_EVERY: u64 = 16;
/// Records that a helper purges: usually more than [`HELP_EVERY`] transactions write.
const HELP_RECORDS: usize = 256;

impl Engine {
    /// Lets a writer purge some records if purge has fallen behind. Versions that a view pins cannot be
    /// purged, and delay no writer.
    pub(super) fn help_purge(&self) -> Result<()> {
        if self.undo.history_length() < HISTORY_LONG {
            return Ok(());
        }
        // If the lock is taken, another thread already purges.
        let Some(mut purge) = self.purge.try_lock() else { return Ok(()) };
        purge.step(self, HELP_RECORDS).map(drop)
    }

    /// Purges records of one page of an undo log, in order. Skips records that need a page that cannot be read, also
    /// when it is read again: otherwise all later records would wait for them for ever. Their space stays taken.
    fn purge_records(&self, records: &[Unpurged], drops: &mut HashMap<TreeId, Dismantling>) -> Result<()> {
        let mut unreadable = None;
        let purged = self.purge_each(records, drops, &mut unreadable);
        if let Some((passed, error)) = unreadable {
            log::warn!(
                "purge has passed {passed} old versions that need a page which cannot be read: {error}. Their space \
                 stays taken. `seawall check` finds all such pages; restore a backup, or dump what is left"
            );
        }
        purged
    }

    /// Purges records as [`Engine::purge_records`] does. Counts the records that it skips in `unreadable`, which also
    /// keeps the first error.
    fn purge_each(
        &self,
        records: &[Unpurged],
        drops: &mut HashMap<TreeId, Dismantling>,
        unreadable: &mut Option<(u64, Error)>,
    ) -> Result<()> {
        // The first `done` records of `rest` have no work left: they are passed together.
        let (mut rest, mut done) = (records, 0);
        let mut budget = VALUE_MTRS_A_STEP;
        while let Some(next) = rest.get(done) {
            let passed = match next.record.get() {
                record if is_idle(&record) => Ok(Purged::Done),
                UndoRecord::DropTree { tree, root } => {
                    self.move_past(&rest[..done], None)?;
                    (rest, done) = (&rest[done..], 0);
                    let gone = read_again(|| self.purge_drop(Tree { id: tree, root }, next, drops));
                    gone.map(|gone| if gone { Purged::Passed } else { Purged::InPart })
                }
                _ => self.purge_last(&rest[..=done], &mut budget),
            };
            done += 1;
            match passed {
                Ok(Purged::Done) => {}
                Ok(Purged::Passed) => (rest, done) = (&rest[done..], 0),
                Ok(Purged::InPart) => return self.move_past(&rest[..done - 1], None),
                Err(error) if error.is_damage() => {
                    self.health().check()?;
                    unreadable.get_or_insert((0, error)).0 += 1;
                }
                Err(error) => {
                    self.move_past(&rest[..done - 1], None)?;
                    return Err(error);
                }
            }
        }
        self.move_past(&rest[..done], None)
    }

    /// Does the work of the last of `records`; the others have no work left. If a page must be freed together with the
    /// move, moves past all of them.
    fn purge_last(&self, records: &[Unpurged], budget: &mut usize) -> Result<Purged> {
        let last = &records[records.len() - 1];
        read_again(|| match self.purge_record(last, budget)? {
            Left::Nothing => Ok(Purged::Done),
            Left::Body => Ok(Purged::InPart),
            Left::Head(head) => self.move_past(records, Some(head)).map(|()| Purged::Passed),
        })
    }

    /// Does the work of a record, as far as the budget lasts.
    fn purge_record(&self, record: &Unpurged, budget: &mut usize) -> Result<Left> {
        match record.record.get() {
            UndoRecord::Delete { tree, root, key, overflow, .. } => {
                let tree = Tree { id: tree, root };
                let there = self.is_tree(tree)?;
                if there {
                    self.remove_marked(tree, key, record.txn, record.ptr)?;
                }
                if overflow.is_empty() {
                    Ok(Left::Nothing)
                } else {
                    self.free_overflow(tree, there, record.ptr, overflow, budget)
                }
            }
            UndoRecord::Update { tree, root, value: OldValue::Whole(value), .. } => {
                let tree = Tree { id: tree, root };
                self.free_overflow(tree, self.is_tree(tree)?, record.ptr, value, budget)
            }
            _ => Ok(Left::Nothing),
        }
    }

    /// Does one step of a drop. Returns whether the drop is done, and purge has moved past it.
    fn purge_drop(&self, tree: Tree, record: &Unpurged, drops: &mut HashMap<TreeId, Dismantling>) -> Result<bool> {
        if let Entry::Vacant(place) = drops.entry(tree.id) {
            self.retire(tree)?;
            self.trees.forget(tree.id);
            place.insert(Dismantling::new(tree));
        }
        let there = self.space.is_owner(tree.id, tree.root)?;
        let dismantling = drops.get_mut(&tree.id).expect("it is there, or was just put there");
        if there && !dismantling.step(&self.space)? {
            return Ok(false);
        }
        self.pool().retry(|| {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            self.undo.check_advance(&mut mtr, record, 1)?;
            if there {
                self.space.free_many(&mut mtr, tree.id, &[tree.root])?;
            }
            self.undo.advance(&mut mtr, std::slice::from_ref(record))?;
            mtr.commit();
            Ok(())
        })?;
        drops.remove(&tree.id);
        Ok(true)
    }

    /// Frees the body of a long value, unless the tree is gone and the value went with it.
    fn free_overflow(
        &self,
        tree: Tree,
        there: bool,
        at: UndoPtr,
        reference: &[u8],
        budget: &mut usize,
    ) -> Result<Left> {
        let reference = OverflowRef::decode(reference);
        let head = reference.map_err(|why| Error::bad_page(at.page(), why.to_string()))?.head;
        if !there && !self.space.is_owner(tree.id, head)? {
            return Ok(Left::Nothing);
        }
        let freed = free_overflow_some(&self.space, tree.id, head, budget)?;
        Ok(if freed { Left::Head(head) } else { Left::Body })
    }

    /// Moves the purge position past records of one page, and frees `page` with it.
    fn move_past(&self, records: &[Unpurged], page: Option<PageId>) -> Result<()> {
        let Some(first) = records.first() else { return Ok(()) };
        self.pool().retry(|| {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            let held = page.map(|page| mtr.latch(page)).transpose()?;
            self.undo.check_advance(&mut mtr, first, records.len())?;
            if let Some(held) = held {
                self.space.free(&mut mtr, held)?;
            }
            self.undo.advance(&mut mtr, records)?;
            mtr.commit();
            Ok(())
        })
    }

    /// Whether the tree still exists.
    pub(super) fn is_tree(&self, tree: Tree) -> Result<bool> {
        let found = self.pool().retry(|| {
            let root = self.pool().shared(tree.root)?;
            let node = matches!(page::kind(&root), Some(page::PageKind::Leaf | page::PageKind::Branch));
            Ok(node && page::tree(&root) == tree.id)
        });
        match found {
            // A freed page may have been truncated with the end of the file, and need not be readable.
            Err(Error::Corrupt(_)) if !self.space.is_owner(tree.id, tree.root)? => Ok(false),
            found => found,
        }
    }

    fn remove_marked(&self, tree: Tree, key: &[u8], writer: TxnId, undo: UndoPtr) -> Result<()> {
        let removed = self.pool().retry(|| -> Result<bool, Stop> {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            let leaf = tree.leaf_for_change(self.pool(), &mut mtr, key)?;
            let node = Node::open(mtr.page(leaf))?;
            let at = node.search(key)?;
            if !at.found {
                return Ok(false);
            }
            let slot = at.slot;
            let entry = node.entry(slot)?;
            let same =
                entry.flags & (DELETED | HEADER) == DELETED | HEADER && entry.writer == writer && entry.undo == undo;
            if !same && !self.health().has(Mutant::RevivedPurged) {
                return Ok(false);
            }
            mtr.run(leaf, &Remove::new(slot));
            mtr.commit();
            Ok(true)
        })?;
        if removed { self.tidy(tree, key) } else { Ok(()) }
    }

    /// Marks the root, so that a stale handle cannot enter the tree. A root that cannot be read does not let it enter
    /// either.
    pub(super) fn retire(&self, tree: Tree) -> Result<()> {
        let retire = || {
            if !self.is_tree(tree)? {
                return Ok(());
            }
            self.pool().retry(|| {
                let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
                tree.retire(&mut mtr)?;
                mtr.commit();
                Ok(())
            })
        };
        match read_again(retire) {
            Err(error) if error.is_damage() => self.health().check(),
            retired => retired,
        }
    }
}

/// What was done with a record.
enum Purged {
    /// Its work; purge can move past it.
    Done,
    /// Its work, and purge has moved past it.
    Passed,
    /// A part of its work.
    InPart,
}

/// What is left of a record's work.
enum Left {
    Nothing,
    /// Pages of a long value.
    Body,
    /// The last page of a long value, which is freed by the mini-transaction that moves past the record.
    Head(PageId),
}

/// Whether purge has no work for a record except to move past it.
fn is_idle(record: &UndoRecord<'_>) -> bool {
    match record {
        UndoRecord::Delete { .. } | UndoRecord::DropTree { .. } => false,
        UndoRecord::Update { previous, .. } => previous.flags & (DELETED | OVERFLOW) != OVERFLOW,
        UndoRecord::Begin { .. }
        | UndoRecord::Commit { .. }
        | UndoRecord::Prepared { .. }
        | UndoRecord::Insert { .. }
        | UndoRecord::InsertRange { .. }
        | UndoRecord::OverflowWritten { .. }
        | UndoRecord::CreateTree { .. } => true,
    }
}
