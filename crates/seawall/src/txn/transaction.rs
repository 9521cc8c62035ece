//! A transaction: its state, its beginning, its snapshot. Its end is in [`super::end`].
//!
//! 1. A transaction gets an id, an undo log and a place in the active set at its first write. It releases
//!    them only when its commit is durable at the requested level (exception: [`super::prepared`], 3), or its
//!    rollback is complete. Until then no view sees what it wrote, and no other transaction reads it under a
//!    lock or overwrites it (trap 9; exception: a transaction that takes over its locks, [`super::end`], 4).
//! 2. The order at the end is: log durable; out of the active set; locks released; undo log released. A
//!    waiter that is then granted a lock finds that the row's writer has ended, or takes over its locks.
//! 3. If the log fails during a commit, the outcome is unknown and nothing is released: the database is
//!    poisoned, and the transaction's changes in memory stay invisible.
//!
//! ```text
//!   reading ──start──> writing ──log_commit──> committing ──end──> ended
//!                        │  └──prepare──> prepared ──commit/rollback──^        see [`super::prepared`]
//!                        └──rollback_all──────────────────────────────^
//! ```

use super::engine::Engine;
use super::locks::{Conflict, Interrupt, KeySpan, LockOwner, LockRequest, Mode};
use super::options::{Access, Isolation, OnConflict, TxOptions};
use super::purge::HELP_EVERY;
use super::savepoint::{Gone, SavepointAt};
use super::trees::{CatalogRow, TreeState};
use super::undo::{KeptCommit, UndoLog, UndoRecord};
use super::version::Reader;
use super::views::View;
use super::writing::Writing;
use crate::btree::{Entry, LeafHints};
use crate::counted::Ref;
use crate::error::{Error, Result};
use crate::format::{TreeId, TxnId, UndoPtr};
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a transaction permits, and what happens when it is dropped.
#[derive(Debug)]
pub(super) enum State {
    /// It accepts changes. It is rolled back when dropped.
    Open,
    /// A tree is being built, or its build failed and could not be undone: it can only be rolled back.
    HalfDone,
    /// A rollback to the point with this label, a savepoint or the beginning of a change, stopped halfway: it can only
    /// be rolled back, to that point, an earlier one, or as a whole.
    HalfUndone(u64),
    /// It is prepared in place: it can only be committed or rolled back. If dropped, it stays prepared and is
    /// ended by its name.
    Prepared(Box<InPlace>),
    /// A drop leaves it as it is: prepared, or to be rolled back by the next opening.
    Kept,
    /// It has ended, or the next opening determines its outcome.
    Ended,
}

/// The registry of the names of prepared transactions.
pub trait Names: fmt::Debug + Send + Sync {
    /// Reports that the outcome of the transaction named `xid` is decided.
    fn ended(&self, xid: &[u8]);
    /// Takes over the transaction named `xid`: its user has dropped it, and it is still prepared.
    fn left(&self, xid: &[u8], txn: Txn);
}

/// The data of a transaction that is prepared in place.
#[derive(Debug)]
pub(super) struct InPlace {
    pub(super) xid: Box<[u8]>,
    pub(super) commit: KeptCommit,
    pub(super) names: Arc<dyn Names>,
}

/// A transaction.
#[derive(Debug)]
pub struct Txn {
    pub(super) engine: Ref<Engine>,
    pub(super) options: TxOptions,
    pub(super) owner: Arc<LockOwner>,
    /// The snapshot. At repeatable read it lasts from the first read without a lock to the end of the
    /// transaction; at read committed, for one statement.
    pub(super) view: RefCell<Option<Arc<View>>>,
    /// An operation failed with a retryable error (deadlock or write conflict): roll back and run the
    /// transaction again.
    pub(super) gave_way: Cell<bool>,
    pub(super) writing: Option<Box<Writing>>,
    /// Trees that have runs of dead rows for this transaction alone.
    pub(super) dead_in: RefCell<SmallVec<[Arc<TreeState>; 1]>>,
    /// Counts changes.
    pub(super) changes: u64,
    /// The count at the last change of each tree, so that a cursor detects that its copy of a leaf is old.
    /// Trees whose ids are equal modulo the array's length share an element.
    pub(super) changed: [u64; CHANGED],
    /// Counts changes that were undone.
    pub(super) undone: u64,
    /// The slots where cursors that outlive a borrow keep their views. The transaction empties them.
    pub(super) lent: RefCell<Vec<Arc<LentView>>>,
    /// The savepoints that no longer exist, and the current position: see [`Gone`].
    pub(super) gone: Gone,
    pub(super) state: State,
    /// The interrupt, if a handle was requested.
    pub(super) interrupt: OnceCell<Arc<Interrupt>>,
    /// The leaves that it last changed, or read under a lock.
    pub(super) leaves: LeafHints,
}

/// The length of the array `Txn::changed`.
const CHANGED: usize = 8;

/// The slot where a cursor keeps a view. The transaction empties it.
pub(super) type LentView = crate::counted::Mutex<Lent>;

/// A view that a cursor keeps while its transaction, or its statement, lives.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// The life of the transaction that has this slot in its list; 0 for none.
    pub(super) to: u64,
    pub(super) view: Option<ViewRef>,
}

/// The view of a transaction or statement, or one made for a single read.
#[derive(Debug, Clone)]
pub(super) enum ViewRef {
    /// Shared with the transaction: cloning it changes no counter that other threads use.
    Kept(Arc<View>),
    /// Owned by the reader alone, without an allocation.
    New(View),
}

impl std::ops::Deref for ViewRef {
    type Target = View;
    fn deref(&self) -> &View {
        match self {
            Self::Kept(view) => view,
            Self::New(view) => view,
        }
    }
}

impl Txn {
    /// Begins a transaction, without a snapshot.
    pub fn begin(engine: impl Into<Ref<Engine>>, options: TxOptions) -> Self {
        let engine = engine.into();
        let owner = engine.locks.tagged_owner(options.tag);
        if options.keeps_points() {
            owner.keep_points();
        }
        Self::new(engine, options, owner, None)
    }

    #[inline]
    pub(super) fn new(
        engine: Ref<Engine>,
        options: TxOptions,
        owner: Arc<LockOwner>,
        writing: Option<Box<Writing>>,
    ) -> Self {
        Self {
            engine,
            options,
            owner,
            view: RefCell::new(None),
            gave_way: Cell::new(false),
            writing,
            dead_in: RefCell::default(),
            changes: 0,
            changed: [0; CHANGED],
            undone: 0,
            lent: RefCell::default(),
            gone: Gone::default(),
            state: State::Open,
            interrupt: OnceCell::new(),
            leaves: LeafHints::default(),
        }
    }

    /// Takes over a transaction that was open when the last process ended.
    pub fn resume(engine: impl Into<Ref<Engine>>, id: TxnId, undo_log: UndoLog) -> Self {
        let mut txn = Self::begin(engine, TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() });
        txn.engine.locks.register(&txn.owner, id);
        txn.engine.resumed.fetch_add(1, Ordering::SeqCst);
        txn.writing = Some(Writing::new(id, undo_log, true));
        // If opening the database fails from here on, the next opening finds the transaction unchanged.
        txn.state = State::Kept;
        txn
    }

    /// Reads up to `records` more undo records of a transaction taken over from an earlier opening, and
    /// enters it as a user of the trees they name. Returns `false` if all its trees are known, and for any
    /// other transaction.
    ///
    /// # Errors
    /// Reading errors. Its trees stay unknown until it has ended.
    pub fn learn_trees(&mut self, records: usize) -> Result<bool> {
        let Some(writing) = self.writing.as_mut().filter(|writing| writing.resumed) else { return Ok(false) };
        let last = writing.undo_log.last();
        // A rollback since the lookup began may have removed the record to continue from.
        let mut at = writing.learning.filter(|(begun_at, _)| *begun_at == last).map_or(last, |(_, next)| next);
        let mut known: Option<TreeId> = None;
        for _ in 0..records {
            let Some((record, before)) = self.engine.undo.record_of(at)? else {
                (writing.resumed, writing.learning) = (false, None);
                self.engine.resumed.fetch_sub(1, Ordering::SeqCst);
                return Ok(true);
            };
            if let Some(tree) = record.get().tree().filter(|tree| known != Some(*tree)) {
                self.engine.locks.use_tree(&self.owner, tree);
                known = Some(tree);
            }
            at = before;
        }
        writing.learning = Some((last, at));
        Ok(true)
    }

    /// Takes over a transaction that was prepared when the last process ended, and keeps it. It may stay
    /// prepared for days. Its undo records show what other transactions must not do meanwhile: drop the trees
    /// that it has changed, or change the trees that it drops.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn resume_prepared(engine: impl Into<Ref<Engine>>, id: TxnId, undo_log: UndoLog) -> Result<Self> {
        let mut txn = Self::begin(engine, TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() });
        txn.state = State::Kept;
        let engine = txn.engine.clone();
        engine.locks.register(&txn.owner, id);
        let mut trees: Vec<TreeId> = Vec::new();
        // Only other prepared transactions have locks yet, and they did not conflict with this one.
        let in_the_way = |other: Conflict| {
            let why = format!("prepared {id} and {} have changed and dropped one tree", other.holder());
            Error::bad_page(engine.catalog_root, why)
        };
        engine.undo.for_each_of(&undo_log, |record| {
            match record {
                UndoRecord::DropTree { tree, root } => {
                    let whole = KeySpan::default();
                    let request = LockRequest::span(&txn.owner, tree, &whole, Mode::Exclusive);
                    engine.locks.add_range(&request).map_err(in_the_way)?;
                    engine.trees.state(CatalogRow { tree, root }).dropped_by(id);
                }
                // It is no longer known whether the tree was built, so it is treated as built: a snapshot
                // taken before the commit is refused in any case.
                UndoRecord::CreateTree { tree, root } => {
                    let state = engine.trees.state(CatalogRow { tree, root });
                    state.is_built();
                    state.created_by(id);
                }
                UndoRecord::Insert { tree, key, .. }
                | UndoRecord::InsertRange { tree, low: key, .. }
                | UndoRecord::Update { tree, key, .. }
                | UndoRecord::Delete { tree, key, .. }
                    if !trees.contains(&tree) =>
                {
                    // A request for the whole tree then finds that the tree is in use.
                    engine.locks.check_write(&txn.owner, tree, key).map_err(in_the_way)?;
                    trees.push(tree);
                }
                _ => {}
            }
            Ok(())
        })?;
        txn.writing = Some(Writing::new(id, undo_log, false));
        Ok(txn)
    }

    /// Its id, 0 before its first write.
    pub fn id(&self) -> TxnId {
        self.writing.as_ref().map_or(TxnId::NONE, |w| w.id)
    }

    /// Takes the snapshot if there is none: at repeatable read, and with [`OnConflict::Fail`] at serializable, too.
    pub fn take_snapshot(&self) {
        if self.is_strict() {
            self.keep_view();
        } else {
            self.take_snapshot_for_read();
        }
    }

    /// At repeatable read, takes the snapshot if there is none.
    pub(super) fn take_snapshot_for_read(&self) {
        if self.options.isolation == Isolation::RepeatableRead {
            self.keep_view();
        }
    }

    fn keep_view(&self) {
        // While a cursor visits entries, it borrows the view.
        if self.view.borrow().is_none() {
            *self.view.borrow_mut() = Some(Arc::new(self.view_of_now()));
            if self.is_strict() {
                // It would meet versions that its snapshot does not see.
                self.owner.set_patient(true);
            }
        }
    }

    /// A view for reads without locks. It sees all that this transaction has seen under locks.
    pub(super) fn view_of_now(&self) -> View {
        self.see_followed();
        self.engine.active.view()
    }

    /// Makes views taken from now on see all that this transaction has seen under locks.
    pub(super) fn see_followed(&self) {
        if self.catch_up().is_err() {
            // The log has failed: this transaction cannot commit what it reads.
        }
    }

    /// Whether a version that the snapshot does not see is a conflict.
    pub(super) fn is_strict(&self) -> bool {
        self.options.isolation != Isolation::ReadCommitted && self.options.on_conflict == OnConflict::Fail
    }

    /// The view of a read without a lock. At repeatable read this takes the snapshot.
    pub(super) fn view(&self) -> ViewRef {
        self.take_snapshot_for_read();
        match &*self.view.borrow() {
            Some(view) => ViewRef::Kept(view.clone()),
            None => ViewRef::New(self.view_of_now()),
        }
    }

    /// The snapshot if there is one, else a view of now, which need not see all that this transaction has seen under
    /// locks. While it lives, the pages of a dropped tree are not freed.
    pub(super) fn pin(&self) -> ViewRef {
        match &*self.view.borrow() {
            Some(view) => ViewRef::Kept(view.clone()),
            None => ViewRef::New(self.engine.active.view()),
        }
    }

    /// The serial number of the snapshot, if a later version would be a conflict.
    pub(super) fn strict_serial(&self) -> Option<u64> {
        let view = self.view.borrow();
        view.as_ref().filter(|_| self.is_strict()).map(|view| view.serial())
    }

    /// Whether the snapshot, if there is one, was taken before the entry's latest version was committed.
    /// Without a snapshot no later version can conflict.
    pub(super) fn snapshot_misses(&self, entry: &Entry<'_>) -> bool {
        let me = self.id();
        self.view.borrow().as_ref().is_some_and(|view| !Reader { me, view }.sees_entry(entry))
    }

    /// Notes that it gave way to another transaction, if the error is retryable.
    pub(super) fn note(&self, error: Error) -> Error {
        if error.is_retryable() {
            self.gave_way.set(true);
        }
        error
    }

    /// Checks that this process may use the transaction.
    ///
    /// # Errors
    /// [`Error::Usage`] in a forked process.
    #[inline]
    pub fn here(&self) -> Result<()> {
        self.engine.instance.here()
    }

    /// Checks that this transaction may use the tree, in this process.
    ///
    /// # Errors
    /// [`Error::Usage`] for a tree of another database or opening, and in a forked process.
    /// [`Error::TreeTooNew`].
    #[inline]
    pub fn admit(&self, tree: &TreeState) -> Result<()> {
        self.engine.admit(tree)?;
        if tree.is_young(self.engine.active.horizon()) { self.admit_young(tree) } else { Ok(()) }
    }

    /// Like [`Txn::admit`], for a change or a lock of a row. They act on the latest version, so a snapshot that does
    /// not see the tree is no obstacle, unless a version that it does not see is a conflict.
    ///
    /// # Errors
    /// As [`Txn::admit`].
    #[inline]
    pub fn admit_change(&self, tree: &TreeState) -> Result<()> {
        if self.is_strict() { self.admit(tree) } else { self.engine.admit(tree) }
    }

    /// Refuses a built tree to a snapshot that does not see the tree's creation (`trees`, 4).
    #[cold]
    fn admit_young(&self, tree: &TreeState) -> Result<()> {
        self.view.borrow().as_ref().map_or(Ok(()), |view| tree.is_old_enough(self.id(), view))
    }

    /// Whether one of its operations failed with an error after which it has to be rolled back and run again.
    pub fn gave_way(&self) -> bool {
        self.gave_way.get()
    }

    /// Begins a statement, for [`Txn::unlock_row`]. At read committed, takes a snapshot that lasts until the
    /// next call of this function or of [`Txn::end_statement`].
    pub fn begin_statement(&mut self) {
        self.owner.next_statement();
        if self.options.isolation == Isolation::ReadCommitted && self.engine.instance.is_here() {
            // Cursors of the previous statement no longer hold back purge.
            self.give_up_views();
            *self.view.get_mut() = Some(Arc::new(self.view_of_now()));
        }
    }

    /// Ends the statement. At read committed, releases its snapshot.
    pub fn end_statement(&mut self) {
        self.owner.next_statement();
        if self.options.isolation == Isolation::ReadCommitted {
            self.give_up_views();
        }
    }

    /// Releases the snapshot, and the cursors' references to it.
    pub(super) fn give_up_views(&mut self) {
        *self.view.get_mut() = None;
        if self.options.isolation == Isolation::ReadCommitted {
            // The answers of the statement that has ended need not stay true.
            self.owner.set_patient(false);
        }
        let all = self.lent.get_mut();
        for lent in &*all {
            *lent.lock() = Lent::default();
        }
        all.clear();
    }

    /// Releases the snapshot before the transaction ends. The leaf copies of its cursors become invalid,
    /// because the next view is a different one.
    pub(super) fn give_up_snapshot(&mut self) {
        self.give_up_views();
        // Purge may free the long values that the cursors have reached.
        self.undone += 1;
        self.changes += 1;
        self.changed.fill(self.changes);
    }

    /// Counts changes of a tree.
    pub(super) fn count_changes(&mut self, tree: TreeId, changes: u64) {
        self.changes += changes;
        self.changed[tree.0 as usize % CHANGED] = self.changes;
    }

    /// A count that grows when the tree changes, or when another tree that shares its element does.
    pub(super) fn changes_of(&self, tree: TreeId) -> u64 {
        self.changed[tree.0 as usize % CHANGED]
    }

    /// Starts writing: gets an id and an undo log, unless the transaction has them.
    ///
    /// # Errors
    /// Read-only, poisoned, or too many writers.
    pub(super) fn start(&mut self) -> Result<()> {
        if self.writing.is_some() {
            return self.check_takes_changes();
        }
        if self.options.access == Access::ReadOnly {
            return Err(Error::ReadOnly { why: "the transaction was begun read-only".into() });
        }
        self.engine.health().check()?;
        let undo_log = self.engine.undo.acquire()?;
        let id = self.engine.active.begin();
        self.engine.pool().note_next_txn(id.0 + 1);
        self.engine.locks.register(&self.owner, id);
        let mut writing = Writing::new(id, undo_log, false);
        self.engine.undo.begin(&mut writing.undo_log, id)?;
        self.writing = Some(writing);
        if id.0 % HELP_EVERY == 0 && self.engine.help_purge().is_err() {
            // Not this transaction's error: background work meets it again, and a failed write has poisoned
            // the database.
        }
        Ok(())
    }

    /// Refuses to continue a transaction that accepts no more changes.
    pub(super) fn check_takes_changes(&self) -> Result<()> {
        match &self.state {
            State::Open | State::Kept | State::Ended => Ok(()),
            State::HalfDone | State::HalfUndone(_) | State::Prepared(_) => Err(self.refusal()),
        }
    }

    /// Checks that the transaction may lock more.
    pub(super) fn check_not_prepared(&self) -> Result<()> {
        if self.is_prepared() { Err(self.refusal()) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> Error {
        let why = match &self.state {
            State::Prepared(place) => {
                format!("it is prepared as \"{}\": it can only be committed or rolled back", place.xid.escape_ascii())
            }
            State::HalfUndone(_) => {
                let why = "a rollback to a savepoint, or of one change, failed: roll back to that savepoint or an \
                           earlier one, or all of it";
                why.to_owned()
            }
            _ => "a tree is being built, or its build could not be taken back: it can only be rolled back".to_owned(),
        };
        Error::TransactionEnded { why }
    }

    /// Its id; assigns one if it has none. No other transaction of this database has ever had it.
    ///
    /// # Errors
    /// Read-only, poisoned, or too many writers.
    pub fn started(&mut self) -> Result<TxnId> {
        self.start()?;
        Ok(self.id())
    }

    /// A savepoint for the user of the transaction. After a rollback to an earlier savepoint it no longer
    /// exists, and a rollback to it is refused.
    pub fn savepoint(&mut self) -> SavepointAt {
        let savepoint = self.savepoint_within();
        self.gone.give_out(savepoint.changes);
        savepoint
    }

    /// A savepoint for an internal change of several steps. The user does not get it.
    pub(super) fn savepoint_within(&self) -> SavepointAt {
        let last = self.writing.as_ref().map_or(UndoPtr::NONE, |writing| {
            writing.inserts.end();
            writing.undo_log.last()
        });
        SavepointAt { last, changes: self.gone.label(self.changes) }
    }

    /// How many rollbacks to savepoints are remembered.
    #[cfg(test)]
    pub fn remembered_rollbacks(&self) -> usize {
        self.gone.len()
    }
}
