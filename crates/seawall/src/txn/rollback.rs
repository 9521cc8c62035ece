//! Rollback: undoing changes, last first.
//!
//! 1. One record is undone and cut off the undo log in one mini-transaction: a crash between the two cannot
//!    undo it twice (trap 13).
//! 2. Work of many steps (freeing a long value, a tree) is resumable, and its record is cut only after the
//!    last step.
//! 3. Nothing here waits for a lock: the rows are this transaction's until it ends. Space comes from the
//!    reserve kept for it (trap 14).
//! 4. The record of a range of insertions is undone leaf by leaf, in key order, in mini-transactions that remove the
//!    entries which point to it, and is cut by the last one. After a crash between two of them the walk begins again:
//!    removed entries are not missed, and no other record can have this one's position yet.
//! 5. A row in a page that recovery abandoned is lost, with this transaction's change of it: the record of that change
//!    is cut. A range of insertions is undone after the keys of that page.

use super::engine::Engine;
use super::locks::{LockOwner, Mode};
use super::options::Isolation;
use super::savepoint::SavepointAt;
use super::transaction::{State, Txn};
use super::undo::{OldValue, Previous, UndoLog, UndoRecord};
use super::writing::{Undoing, Writing};
use crate::btree::{
    DELETED, Dismantling, Entry, HEADER, Node, Patch, Remove, Replace, Rewrite, Tree, VALUE_MTRS_A_STEP,
    free_overflow_some,
};
use crate::buffer::{Mtr, MtrSize, Redo};
use crate::error::{Error, Result, Stop};
use crate::format::{Malformed, TreeId, TxnId, UndoPtr};
use crate::mutants::Mutant;
use crate::space::Purpose;
use smallvec::SmallVec;
use std::sync::Arc;

impl Txn {
    /// Undoes the changes after `savepoint`; the transaction continues. The rows stay locked, because what the
    /// transaction learned by changing them has to stay true. At read committed this need not stay true, and locks may
    /// be released.
    ///
    /// # Errors
    /// [`Error::Usage`] if the transaction was rolled back to an earlier savepoint since: `savepoint` no
    /// longer exists. The error that stopped the rollback: the transaction can then only be rolled back, to that
    /// savepoint, an earlier one, or as a whole.
    pub fn roll_back_to(&mut self, savepoint: SavepointAt) -> Result<()> {
        self.check_not_prepared()?;
        if savepoint.changes > self.changes || self.gone.contains(savepoint.changes) {
            let why = "the savepoint is invalid: the transaction has since been rolled back to an earlier one";
            return Err(Error::Usage(why.into()));
        }
        let before = self.changes;
        if self.options.isolation != Isolation::Serializable {
            // At read committed locks may be released; and it may have been told that there was no entry with a
            // prefix, which is not locked any more.
            self.see_followed();
        }
        // Locks taken before the savepoint stay. At read committed the lock of a row that was only written
        // ends when the write is undone. If the transaction has released locks of rows because it wrote them,
        // the two cases cannot be told apart, and all rows stay locked.
        let read_committed = self.options.isolation == Isolation::ReadCommitted;
        let rows = if read_committed && !self.owner.gave_back() { Rows::GoWithTheChange } else { Rows::StayLocked };
        let undone = loop {
            match self.undo_last(savepoint, rows) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if undone.is_err() {
            // It may have failed before it counted a change. A savepoint that is set from now on must not have the
            // label of `savepoint`: it is no way back.
            self.changes += 1;
        }
        if self.changes > before {
            self.gone.rolled_back(savepoint.changes, self.changes, undone.is_ok());
        }
        // A part of what was to be undone must not be committed.
        let to = savepoint.changes;
        self.state = match std::mem::replace(&mut self.state, State::Open) {
            State::Open if undone.is_err() => State::HalfUndone(to),
            State::HalfUndone(before) if undone.is_err() => State::HalfUndone(before.min(to)),
            State::HalfUndone(before) if to <= before => State::Open,
            state => state,
        };
        undone
    }

    /// Runs a change of several steps: all of it is done, or nothing. If its steps cannot be undone, the
    /// transaction can only be rolled back, to a savepoint before it or as a whole.
    pub(super) fn atomically<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check_takes_changes()?;
        let before = self.savepoint_within();
        let changed = change(self);
        if changed.is_err() {
            self.roll_back_to(before)?;
        }
        changed
    }

    /// Undoes the last change after `savepoint`, or does a step of that; `false` if there is none.
    ///
    /// # Errors
    /// As [`Txn::roll_back_to`].
    pub fn undo_one(&mut self, savepoint: SavepointAt) -> Result<bool> {
        self.undo_last(savepoint, Rows::GoWithTheChange)
    }

    /// Returns whether the last change is being undone in steps, each of which takes as long as the undoing of many
    /// other changes.
    pub fn is_freeing_a_tree(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| matches!(writing.undoing, Some((_, Undoing::Tree(_)))))
    }

    fn undo_last(&mut self, savepoint: SavepointAt, rows: Rows) -> Result<bool> {
        let engine = self.engine.clone();
        let Some(Writing { id, undo_log, inserts, undoing, .. }) = self.writing.as_deref_mut() else {
            return Ok(false);
        };
        inserts.end();
        // Rows that it had deleted come back.
        for tree in self.dead_in.get_mut().drain(..) {
            tree.dead.forget(*id);
        }
        // A full rollback calls `last_record` even without a record: there may be pages to free before the
        // transaction can end.
        if undo_log.last() == savepoint.last && savepoint != SavepointAt::BEGIN {
            return Ok(false);
        }
        engine.health().check()?;
        let Some((at, record)) = engine.undo.last_record(undo_log)? else { return Ok(false) };
        self.changes += 1;
        self.undone += 1;
        self.changed.fill(self.changes);
        let begun = undoing.take().filter(|(of, _)| *of == at).map(|(_, begun)| begun);
        if let UndoRecord::InsertRange { tree, root, low, high } = record.get() {
            let from = if let Some(Undoing::Range(from)) = begun { from } else { low.to_vec() };
            let keeps = (rows == Rows::StayLocked).then_some(&self.owner);
            let range = Range { tree: Tree { id: tree, root }, from: &from, high };
            let next = match engine.undo_range(&range, (*id, at), undo_log, keeps) {
                Err(error) if error.is_abandoned() => engine.after_abandoned(&range, undo_log)?,
                undone => undone?,
            };
            *undoing = next.map(|next| (at, Undoing::Range(next)));
            return Ok(true);
        }
        if let UndoRecord::CreateTree { tree, root } = record.get() {
            let tree = Tree { id: tree, root };
            let begun = if let Some(Undoing::Tree(begun)) = begun { Some(begun) } else { None };
            let left = engine.undo_create(tree, begun, undo_log)?;
            *undoing = left.map(|left| (at, Undoing::Tree(left)));
            return Ok(true);
        }
        if rows == Rows::StayLocked {
            let row = match record.get() {
                UndoRecord::Insert { tree, key, .. } => Some((tree, key)),
                // A row that it changed before stays locked by that change.
                UndoRecord::Update { tree, key, previous, .. } | UndoRecord::Delete { tree, key, previous, .. } => {
                    Some((tree, key)).filter(|_| previous.writer != *id)
                }
                _ => None,
            };
            if let Some((tree, key)) = row {
                engine.keep_locked(&self.owner, *id, tree, key);
            }
        }
        match engine.undo_record(*id, undo_log, at, record.get()) {
            Err(error) if error.is_abandoned() => engine.cut(undo_log)?,
            undone => undone?,
        }
        Ok(true)
    }
}

/// What happens to the lock of a row whose change is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    StayLocked,
    GoWithTheChange,
}

/// What is left of a range of insertions that is undone.
struct Range<'r> {
    tree: Tree,
    /// Where the next step begins.
    from: &'r [u8],
    high: Option<&'r [u8]>,
}

/// The most rows that one step of undoing a range of insertions removes.
const STEP_ROWS: usize = 64;

impl Engine {
    /// Locks a row whose insertion or change is about to be undone. Called while the row still bears the transaction's
    /// id, so that it is locked at every moment.
    fn keep_locked(&self, owner: &Arc<LockOwner>, me: TxnId, tree: TreeId, key: &[u8]) {
        if self.locks.try_point(owner, tree, key, Mode::Exclusive).is_err() {
            // Other owners wait for the row. `convert` locks it in spite of them; it succeeds, because only this
            // transaction ends its own lock owner.
            drop(self.locks.convert(me, owner, tree, key));
        }
    }

    /// One step of undoing the record of a range of insertions, at most one leaf. Returns the key where the next step
    /// begins; `None` after the last, which cuts the record. `keeps` locks the removed rows.
    fn undo_range(
        &self,
        &Range { tree, from, high }: &Range<'_>,
        (me, at): (TxnId, UndoPtr),
        undo_log: &mut UndoLog,
        keeps: Option<&Arc<LockOwner>>,
    ) -> Result<Option<Vec<u8>>> {
        let (removed, next) = self.pool().retry(|| {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            let leaf = tree.leaf_for_change(self.pool(), &mut mtr, from)?;
            let node = Node::open(mtr.page(leaf))?;
            let upper = node.upper_above(from)?;
            let mut next = upper.filter(|upper| high.is_none_or(|high| *upper < high)).map(<[u8]>::to_vec);
            let mut slots: SmallVec<[usize; STEP_ROWS]> = SmallVec::new();
            for slot in node.search(from)?.slot..node.count() {
                let entry = node.entry(slot)?;
                if entry.writer != me || entry.undo != at {
                    continue;
                }
                if slots.len() == STEP_ROWS {
                    next = Some(node.key(slot)?);
                    break;
                }
                slots.push(slot);
                if let Some(owner) = keeps {
                    self.keep_locked(owner, me, tree.id, &node.key(slot)?);
                }
            }
            if next.is_none() {
                self.undo.cut(undo_log, &mut mtr)?;
            }
            for &slot in slots.iter().rev() {
                mtr.run(leaf, &Remove::new(slot));
            }
            mtr.commit();
            Ok((!slots.is_empty(), next))
        })?;
        if removed {
            self.tidy(tree, from)?;
        }
        Ok(next)
    }

    /// The step of undoing a range of insertions when the page of its first keys is abandoned: passes the keys of that
    /// page. Returns as [`Engine::undo_range`].
    #[cold]
    fn after_abandoned(&self, range: &Range<'_>, undo_log: &mut UndoLog) -> Result<Option<Vec<u8>>> {
        let next = range.tree.end_of_abandoned(self.pool(), range.from)?;
        let next = next.filter(|next| range.high.is_none_or(|high| **next < *high));
        if next.is_none() {
            self.cut(undo_log)?;
        }
        Ok(next)
    }

    fn undo_record(&self, me: TxnId, undo_log: &mut UndoLog, at: UndoPtr, record: UndoRecord<'_>) -> Result<()> {
        match record {
            UndoRecord::Insert { tree, root, key } => self.undo_insert(Tree { id: tree, root }, key, me, undo_log, at),
            UndoRecord::Update { tree, root, key, previous, value } => {
                self.undo_update(Tree { id: tree, root }, key, (previous, value), me, undo_log, at)
            }
            UndoRecord::Delete { tree, root, key, previous, .. } => {
                // The entry keeps its length. A header that the deletion added stays, with no writer: every view
                // sees the entry.
                let head = Entry::header_bytes(previous.flags | HEADER, previous.writer, previous.undo);
                let undo = |slot| Patch::new(slot, 0, &head);
                self.undo_entry(Tree { id: tree, root }, key, (me, at), undo_log, undo)
            }
            UndoRecord::OverflowWritten { tree, head } => {
                let mut budget = VALUE_MTRS_A_STEP;
                if !free_overflow_some(&self.space, tree, head, &mut budget)? {
                    return Ok(());
                }
                self.pool().retry(|| {
                    let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
                    let held = mtr.latch(head)?;
                    self.undo.check_cut(undo_log, &mut mtr)?;
                    self.space.free(&mut mtr, held)?;
                    self.undo.cut(undo_log, &mut mtr)?;
                    mtr.commit();
                    Ok(())
                })
            }
            UndoRecord::DropTree { tree, .. } => {
                self.cut(undo_log)?;
                if let Some(state) = self.trees.known(tree) {
                    state.reopen();
                }
                Ok(())
            }
            UndoRecord::Prepared { .. } => self.cut(undo_log),
            UndoRecord::Begin { .. }
            | UndoRecord::Commit { .. }
            | UndoRecord::InsertRange { .. }
            | UndoRecord::CreateTree { .. } => {
                let why =
                    format!("offset {}: a rollback found a record that cannot be undone in one step", at.offset());
                Err(Error::bad_page(at.page(), why))
            }
        }
    }

    fn undo_insert(&self, tree: Tree, key: &[u8], me: TxnId, undo_log: &mut UndoLog, at: UndoPtr) -> Result<()> {
        self.undo_entry(tree, key, (me, at), undo_log, Remove::new)?;
        self.tidy(tree, key)
    }

    /// Changes the entry that `me` wrote with the record at `at` by the record that `undo` makes for its slot, and cuts
    /// the undo record.
    fn undo_entry<R: Redo>(
        &self,
        tree: Tree,
        key: &[u8],
        (me, at): (TxnId, UndoPtr),
        undo_log: &mut UndoLog,
        undo: impl Fn(usize) -> R,
    ) -> Result<()> {
        let apart = self.health().has(Mutant::UndoTwice);
        self.pool().retry(|| {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            let (leaf, slot) = self.own_entry(&mut mtr, tree, key, me, at)?;
            if !apart {
                self.undo.cut(undo_log, &mut mtr)?;
            }
            mtr.run(leaf, &undo(slot));
            mtr.commit();
            Ok(())
        })?;
        if apart { self.cut_apart(undo_log) } else { Ok(()) }
    }

    /// The defect [`Mutant::UndoTwice`], with a wide window for a crash.
    #[cold]
    fn cut_apart(&self, undo_log: &mut UndoLog) -> Result<()> {
        self.log().flush_to(self.log().head())?;
        self.cut(undo_log)
    }

    /// Puts the previous version back: its header and its value.
    fn undo_update(
        &self,
        tree: Tree,
        key: &[u8],
        (previous, value): (Previous, OldValue<'_>),
        me: TxnId,
        undo_log: &mut UndoLog,
        at: UndoPtr,
    ) -> Result<()> {
        let header = Entry::header_bytes(previous.flags | HEADER, previous.writer, previous.undo);
        let mut payload = Vec::new();
        loop {
            let fitted = self.pool().retry(|| {
                let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
                let (leaf, slot) = self.own_entry(&mut mtr, tree, key, me, at)?;
                // If this update revived a deleted row, and every view sees that deletion, purge may have
                // passed the deletion already, and does not come back: the entry is removed. Checked under
                // the latch: if some view does not see the deletion, purge has not reached this leaf for it
                // yet.
                let purged = previous.flags & DELETED != 0 && self.active.oldest_view().sees(previous.writer);
                let node = Node::open(mtr.page(leaf))?;
                payload.clear();
                payload.extend_from_slice(&header);
                let put = value.put(node.entry(slot)?.value, &mut payload);
                put.map_err(|Malformed(why)| Error::bad_page(at.page(), why))?;
                if !purged && !node.fits_replace(slot, payload.len())? {
                    return Ok(None);
                }
                self.undo.cut(undo_log, &mut mtr)?;
                if purged {
                    mtr.run(leaf, &Remove::new(slot));
                } else if let OldValue::Edits(changes) = value {
                    mtr.run(leaf, &Rewrite::new(slot, header, changes));
                } else {
                    mtr.run(leaf, &Replace::new(slot, &payload));
                }
                mtr.commit();
                Ok(Some(purged))
            })?;
            if let Some(purged) = fitted {
                return if purged { self.tidy(tree, key) } else { Ok(()) };
            }
            self.make_room(tree, key, payload.len(), Purpose::Undo)?;
        }
    }

    /// One step of undoing the creation of a tree, whose rows that have undo records are already undone: frees pages of
    /// it, as of a dropped one. Returns what the next step needs; `None` after the last, which cuts the record.
    fn undo_create(
        &self,
        tree: Tree,
        begun: Option<Dismantling>,
        undo_log: &mut UndoLog,
    ) -> Result<Option<Dismantling>> {
        let mut dismantling = if let Some(begun) = begun {
            begun
        } else {
            self.trees.forget(tree.id);
            self.retire(tree)?;
            Dismantling::new(tree)
        };
        let there = self.space.is_owner(tree.id, tree.root)?;
        // A build that was stopped leaves pages of a long value that no leaf refers to.
        if there
            && (!dismantling.step(&self.space)?
                || self.space.may_own_more(tree.id, 1) && !self.space.free_tree_step(tree.id, tree.root, 512)?)
        {
            return Ok(Some(dismantling));
        }
        self.pool().retry(|| {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            self.undo.check_cut(undo_log, &mut mtr)?;
            if there {
                self.space.free_many(&mut mtr, tree.id, &[tree.root])?;
            }
            self.undo.cut(undo_log, &mut mtr)?;
            mtr.commit();
            Ok(())
        })?;
        Ok(None)
    }

    /// Merges the leaf of `key` with a neighbour if it has become too empty. If a page for that cannot be read, the
    /// merge is left out, which is no error.
    pub(super) fn tidy(&self, tree: Tree, key: &[u8]) -> Result<()> {
        match tree.tidy(&self.space, key) {
            Err(error) if error.is_damage() => self.health().check(),
            done => done,
        }
    }

    /// Makes room for a payload in the leaf of `key`.
    pub(super) fn make_room(&self, tree: Tree, key: &[u8], payload_bytes: usize, purpose: Purpose) -> Result<()> {
        tree.make_room(&self.space, key, payload_bytes, purpose, self.active.horizon())
    }

    fn cut(&self, undo_log: &mut UndoLog) -> Result<()> {
        self.pool().retry(|| {
            let mut mtr = Mtr::begin(self.pool(), MtrSize::Small)?;
            self.undo.cut(undo_log, &mut mtr)?;
            mtr.commit();
            Ok(())
        })
    }

    /// Latches the leaf with the entry that `me` wrote with the record at `undo`.
    fn own_entry(
        &self,
        mtr: &mut Mtr<'_>,
        tree: Tree,
        key: &[u8],
        me: TxnId,
        undo: UndoPtr,
    ) -> Result<(crate::buffer::LatchedPage, usize), Stop> {
        let leaf = tree.leaf_for_change(self.pool(), mtr, key)?;
        let node = Node::open(mtr.page(leaf))?;
        let at = node.search(key)?;
        if at.found {
            let slot = at.slot;
            let entry = node.entry(slot)?;
            if entry.writer == me && entry.undo == undo {
                return Ok((leaf, slot));
            }
        }
        let why = format!("key \"{}\" is not as {me} left it when it is rolled back", key.escape_ascii());
        Err(Error::bad_page(mtr.id(leaf), why).into())
    }
}
