//! Removing what no view can see any more.
//!
//! 1. A transaction's records are purged when every view, now and in future, sees it.
//! 2. A delete-marked entry is removed only if its writer and undo pointer are still those of the record (trap 12).
//! 3. The purge position moves past a record after all its work is done; work that takes many steps is resumable. So after a crash purge
//!    may do a record's work again, and finds it done. The last page of a long value is freed by the mini-transaction that moves the position:
//!    its number may be given to another value at once.
//! 4. The value of a row's version is freed by the record that superseded it: an update's, or a deletion's. A revival's record frees
//!    nothing, for the deletion before it does.
//! 5. A record may be of a tree that was dropped and freed since. Ids are never reused, and a freed root says so.

use super::engine::Engine;
use super::undo::{UndoRecord, Unpurged};
use crate::btree::{DELETED, HEADER, Node, OVERFLOW, OverflowRef, Remove, Tree, free_overflow_body};
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TxnId, UndoPtr, page};
use crate::mutants::Mutant;

/// Where purge goes on: one stream after the other.
#[derive(Debug, Default)]
pub struct Purge {
    next_stream: u32,
}

/// Pages of a dropped tree freed by one mini-transaction.
pub(super) const PAGES_A_STEP: usize = 512;

impl Purge {
    /// Purges up to `records` records of the next stream that has some; false when nothing can be purged now.
    ///
    /// # Errors
    /// What stopped it.
    pub fn step(&mut self, engine: &Engine, records: usize) -> Result<bool> {
        engine.health().check()?;
        let oldest = engine.active.oldest_view();
        let streams = engine.undo.streams();
        for _ in 0..streams {
            let stream = self.next_stream % streams;
            self.next_stream = (stream + 1) % streams;
            if engine.undo.pass(stream, is_idle, |txn| oldest.sees(txn))? {
                return Ok(true);
            }
            let found = engine.undo.heads(stream, records)?;
            let sees = |record: &Unpurged| oldest.sees(record.txn);
            let early = found.iter().find(|record| !sees(record)).map(|record| record.txn);
            let early = early.filter(|_| engine.health().has(Mutant::PurgeEarly));
            let seen = found.iter().take_while(|record| sees(record) || Some(record.txn) == early).count();
            if seen > 0 {
                engine.purge_records(&found[..seen])?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Engine {
    /// Purges records of one page of a stream, in order.
    fn purge_records(&self, records: &[Unpurged]) -> Result<()> {
        let mut rest = records;
        while let Some(first) = rest.first() {
            // What asks for nothing is passed together.
            let idle = rest.iter().take_while(|record| is_idle(&record.record.get())).count();
            if idle > 0 {
                self.move_past(&rest[..idle], None)?;
                rest = &rest[idle..];
                continue;
            }
            let freed = self.purge_record(first)?;
            self.move_past(&rest[..1], freed)?;
            rest = &rest[1..];
        }
        Ok(())
    }

    /// Does the work of a record; returns the last page of a long value, still to be freed.
    fn purge_record(&self, record: &Unpurged) -> Result<Option<PageId>> {
        match record.record.get() {
            UndoRecord::Delete { tree, root, key, overflow, .. } => {
                let tree = Tree { id: tree, root };
                if !self.is_tree(tree)? {
                    return Ok(None);
                }
                self.remove_marked(tree, key, record.txn, record.ptr)?;
                if overflow.is_empty() { Ok(None) } else { self.free_overflow(tree, record.ptr, overflow) }
            }
            UndoRecord::Update { tree, root, value, .. } => {
                let tree = Tree { id: tree, root };
                if self.is_tree(tree)? { self.free_overflow(tree, record.ptr, value) } else { Ok(None) }
            }
            UndoRecord::DropTree { tree, root } => {
                self.retire(Tree { id: tree, root })?;
                self.trees.forget(tree);
                while !self.space.free_tree_step(tree, PAGES_A_STEP)? {}
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn free_overflow(&self, tree: Tree, at: UndoPtr, reference: &[u8]) -> Result<Option<PageId>> {
        let reference = OverflowRef::decode(reference);
        let head = reference.map_err(|why| Error::bad_page(at.page(), why.to_string()))?.head;
        free_overflow_body(&self.space, tree.id, head)?;
        Ok(Some(head))
    }

    /// Moves the purge position past records of one page, and frees `page` with it.
    fn move_past(&self, records: &[Unpurged], page: Option<PageId>) -> Result<()> {
        self.pool().retry(|| {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            let held = page.map(|page| mtr.latch(page)).transpose()?;
            if let Some(first) = records.first() {
                mtr.latch(first.ptr.page())?;
            }
            if let Some(held) = held {
                self.space.free(&mut mtr, held)?;
            }
            for record in records {
                self.undo.advance(&mut mtr, record)?;
            }
            mtr.commit();
            Ok(())
        })
    }

    /// Whether the tree is still one.
    fn is_tree(&self, tree: Tree) -> Result<bool> {
        self.pool().retry(|| {
            let root = self.pool().shared(tree.root)?;
            let node = matches!(page::kind(&root), Some(page::PageKind::Leaf | page::PageKind::Branch));
            Ok(node && page::tree(&root) == tree.id)
        })
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

    /// A stale handle finds no way into the tree any more.
    fn retire(&self, tree: Tree) -> Result<()> {
        if !self.is_tree(tree)? {
            return Ok(());
        }
        self.pool().retry(|| {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            tree.retire(&mut mtr)?;
            mtr.commit();
            Ok(())
        })
    }
}

/// Whether purge has nothing to do for a record but to pass it.
fn is_idle(record: &UndoRecord<'_>) -> bool {
    match record {
        UndoRecord::Delete { .. } | UndoRecord::DropTree { .. } => false,
        UndoRecord::Update { previous, .. } => previous.flags & (DELETED | OVERFLOW) != OVERFLOW,
        UndoRecord::Begin { .. }
        | UndoRecord::Commit { .. }
        | UndoRecord::Prepared { .. }
        | UndoRecord::Insert { .. }
        | UndoRecord::OverflowWritten { .. }
        | UndoRecord::CreateTree { .. } => true,
    }
}
