//! The end of a transaction: commit, rollback, drop.
//!
//! 1. A commit is logged first. It ends the transaction when it is durable at the requested level: only then
//!    do other transactions see it.
//! 2. If the log fails in between, the transaction releases nothing: the next opening determines its outcome.
//! 3. A rollback that cannot continue leaves the transaction active, for background work to complete
//!    ([`Unfinished`]).
//! 4. *Locks are not held across a write or flush of the log.* When the commit is in the log's buffer and has to wait,
//!    other transactions may take over its locks (`locks/mod.rs`, 3): the transaction is *decided*. A transaction that
//!    does *follows* it. What the follower logs comes after the commit, so a crash that loses the commit loses the
//!    follower's, too. A follower waits until those that it follows are durable at their levels ([`Txn::catch_up`]):
//!    before it commits, whatever its level and even if it has changed nothing; before it takes a view; and before a
//!    lock that protects what it has read is gone, or an answer that no lock protects (a rollback, a lock that is given
//!    back, a change without effect). Then it takes them out of the active set if they are still there, in the order of
//!    the log: no view sees it, or one that changes what it has read, without them, and it does not wait for their
//!    threads. A transaction whose snapshot makes later versions a conflict does not follow, but waits for the end: it
//!    would fail at once, and again after its restart. A change of the catalog is not taken over: what reads the
//!    catalog relies on views. Nor does a lock of a whole tree take over its users' changes.

use super::engine::Engine;
use super::locks::{Decided, LockOwner};
use super::options::{Isolation, TxOptions};
use super::savepoint::SavepointAt;
use super::transaction::{State, Txn};
use super::undo::UndoRecord;
use super::writing::{Unfinished, Writing};
use crate::buffer::{Mtr, MtrSize};
use crate::counted::Ref;
use crate::error::{Error, Result};
use crate::format::{Lsn, TreeId, TxnId};
use crate::log::Durability;
use crate::mutants::Mutant;
use crate::space::Purpose;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A commit that is in the log but perhaps not yet durable.
#[derive(Debug)]
pub struct Committing {
    txn: Txn,
    end: Lsn,
    level: Durability,
    /// Why its outcome is unknown.
    failed: Option<Arc<Error>>,
}

/// The largest log record of a commit, bytes.
const COMMIT_BYTES: usize = 128;

impl Txn {
    /// Writes the commit to the log.
    ///
    /// # Errors
    /// Poisoned, or no room in the log: nothing of the commit is in the log, and the transaction is rolled
    /// back.
    pub fn commit_start(mut self, level: Durability) -> Result<Committing> {
        let Decided { end, level } = self.submit(level)?;
        Ok(Committing { txn: self, end, level, failed: None })
    }

    /// Logs the commit, and lets others take over the locks if it has to wait for the log (4). Returns what it waits
    /// for: as a follower, for what it follows, too.
    fn submit(&mut self, level: Durability) -> Result<Decided> {
        let mut waits_for = Decided { end: self.log_commit()?, level };
        if self.owner.is_follower() {
            waits_for = self.owner.followed().map_or(waits_for, |followed| waits_for.and(followed));
        }
        if self.engine.health().has(Mutant::EarlyAcknowledgement) {
            waits_for.level = waits_for.level.min(Durability::Written);
        }
        let Decided { end, level } = waits_for;
        let waits = end != Lsn::ZERO && level != Durability::Deferred && !self.engine.log().reached(end, level);
        if waits && !self.owner.uses(TreeId::CATALOG) {
            self.engine.locks.decide(&self.owner, waits_for);
        }
        Ok(waits_for)
    }

    /// Waits until the log up to `end` is durable at `level`, and for those that this transaction follows.
    pub(super) fn wait_for(&self, end: Lsn, level: Durability) -> Result<()> {
        if end != Lsn::ZERO {
            self.engine.log().wait(end, level)?;
        }
        self.catch_up()
    }

    /// Waits until the transactions that this one follows are durable at their level, and makes them visible (4).
    ///
    /// # Errors
    /// Poisoned.
    #[inline]
    pub(super) fn catch_up(&self) -> Result<()> {
        if self.owner.is_follower() { self.end_followed() } else { Ok(()) }
    }

    #[cold]
    fn end_followed(&self) -> Result<()> {
        if let Some(Decided { end, level }) = self.owner.followed() {
            self.engine.log().wait(end, level)?;
        }
        let followed = self.owner.follows();
        self.engine.reveal(&followed);
        // Only now: one that follows this transaction may end it at any time, and finds here what comes before.
        self.owner.unfollow();
        self.engine.locks.count_taken_over(followed.len());
        Ok(())
    }

    /// Catches up, and from now on waits for the end of those whose locks it meets: before an answer that no lock of
    /// this transaction keeps true (4).
    ///
    /// # Errors
    /// Poisoned.
    pub(super) fn stop_following(&self) -> Result<()> {
        self.catch_up()?;
        self.owner.set_patient(true);
        Ok(())
    }

    /// Commits, and waits until the commit is durable at `level`.
    ///
    /// # Errors
    /// Poisoned, or no room in the log: it is not committed, and stays open. [`Error::OutcomeUnknown`]: it
    /// has ended, and the next opening determines the outcome. Its changes are neither made visible nor
    /// undone, but may have been seen by those that took over its locks, which cannot commit either.
    pub fn commit(&mut self, level: Durability) -> Result<()> {
        let Decided { end, level } = self.submit(level)?;
        if let Err(cause) = self.wait_for(end, level) {
            self.state = State::Ended;
            return Err(Error::OutcomeUnknown { cause: Arc::new(cause) });
        }
        self.end();
        Ok(())
    }

    /// Commits a prepared transaction, and waits until the commit is flushed.
    ///
    /// # Errors
    /// The transaction, which stays prepared, and the cause; or [`Error::OutcomeUnknown`] without the
    /// transaction.
    #[expect(clippy::result_large_err, reason = "the error is the transaction itself")]
    pub fn commit_prepared(mut self) -> std::result::Result<(), (Option<Self>, Error)> {
        match self.log_commit() {
            Ok(end) => Committing { txn: self, end, level: Durability::Flushed, failed: None }
                .wait()
                .map_err(|error| (None, error)),
            Err(error) => Err((Some(self), error)),
        }
    }

    /// Commits a prepared transaction, and makes it visible before it is durable (`prepared`, 3). Returns the end of
    /// the commit in the log.
    ///
    /// # Errors
    /// The transaction, which stays prepared, and the cause.
    #[expect(clippy::result_large_err, reason = "the error is the transaction itself")]
    pub fn commit_prepared_ordered(mut self) -> std::result::Result<Lsn, (Self, Error)> {
        match self.log_commit() {
            Ok(end) => {
                self.end();
                Ok(end)
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Logs the commit. Returns the end of its record, 0 if there was nothing to commit.
    pub(super) fn log_commit(&mut self) -> Result<Lsn> {
        let Some(writing) = &mut self.writing else { return Ok(Lsn::ZERO) };
        let engine = &self.engine;
        engine.health().check()?;
        if matches!(self.state, State::HalfDone | State::HalfUndone(_) | State::Prepared(_)) {
            return self.log_prepared_commit();
        }
        if !writing.undo_log.has_begun() {
            return Ok(Lsn::ZERO);
        }
        engine.pool().retry(|| {
            let mut mtr = Mtr::begin(engine.pool(), MtrSize::Bytes(COMMIT_BYTES))?;
            engine.undo.commit(&mut writing.undo_log, &mut mtr)?;
            Ok(mtr.commit())
        })
    }

    /// Makes the transaction survive under `xid` until it is committed or rolled back by name.
    ///
    /// # Errors
    /// Poisoned, or [`Error::OutcomeUnknown`].
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        self.start()?;
        let (engine, writing) = (&self.engine, Writing::of(&mut self.writing));
        engine.undo.ensure_room(&mut writing.undo_log, UndoRecord::Prepared { xid }.room_max(), Purpose::Delete)?;
        let end = engine.pool().retry(|| {
            let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
            engine.undo.prepare(&mut writing.undo_log, &mut mtr, xid)?;
            Ok(mtr.commit())
        })?;
        // Flushed, not only written: the coordinator relies on the record.
        let flushed = self.wait_for(end, Durability::Flushed);
        flushed.map_err(|cause| Error::OutcomeUnknown { cause: Arc::new(cause) })?;
        self.give_up_views();
        self.release_reads();
        self.state = State::Kept;
        Ok(())
    }

    /// Makes a later drop leave the transaction unchanged: it stays prepared, or the next opening rolls it back.
    pub fn keep(&mut self) {
        if matches!(self.state, State::Open | State::HalfDone | State::HalfUndone(_)) {
            self.state = State::Kept;
        }
    }

    /// Undoes everything and ends.
    ///
    /// # Errors
    /// The error that stopped the rollback; background work, or the next opening, completes it.
    pub fn rollback(mut self) -> Result<()> {
        self.decide_against()
    }

    pub(super) fn rollback_all(&mut self) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        // Also if it stops: cursors that stay behind do not hold back purge.
        self.give_up_views();
        // An undo frees a row, and no lock keeps true what was read there.
        self.see_followed();
        while self.undo_one(SavepointAt::BEGIN)? {}
        if let Some(writing) = &mut self.writing {
            let engine = &self.engine;
            if writing.undo_log.has_begun() {
                engine.pool().retry(|| {
                    let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
                    engine.undo.finish_rollback(&mut writing.undo_log, &mut mtr)?;
                    Ok(mtr.commit())
                })?;
            }
        }
        if self.id() >= self.engine.first_txn {
            self.engine.rollbacks.fetch_add(1, Ordering::Relaxed);
        }
        self.end();
        Ok(())
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Makes the outcome visible to all transactions.
    pub(super) fn end(&mut self) {
        debug_assert!(!self.owner.is_follower() || self.owner.decided().is_none(), "it has caught up");
        self.state = State::Ended;
        self.give_up_views();
        if let Some(writing) = self.writing.take() {
            self.engine.active.end(writing.id);
            self.owner.set_visible();
            // After a rollback the list is empty.
            for tree in self.dead_in.get_mut().drain(..) {
                tree.dead.committed(writing.id, self.engine.active.next_serial());
            }
            if writing.resumed {
                self.engine.resumed.fetch_sub(1, Ordering::SeqCst);
            }
            self.engine.locks.release_all(&self.owner);
            let released = self.engine.undo.release(writing.into_undo_log());
            debug_assert!(released.is_ok(), "its transaction has ended");
        } else {
            self.owner.set_visible();
            self.engine.locks.release_all(&self.owner);
        }
    }
}

impl Engine {
    /// Makes decided transactions visible, whose commits are durable, and those that they follow. Their own threads do
    /// the rest of the end.
    fn reveal(&self, owners: &[Arc<LockOwner>]) {
        for owner in LockOwner::with_followed(owners) {
            if owner.txn() != TxnId::NONE {
                self.active.end(owner.txn());
            }
            self.locks.reveal(&owner);
        }
    }
}

impl Txn {
    /// In a forked process: leaves everything unchanged. What a drop would release or close is leaked.
    fn leave(&mut self) {
        std::mem::forget((
            self.writing.take(),
            self.view.take(),
            self.lent.take(),
            self.owner.clone(),
            self.engine.clone(),
        ));
        std::mem::forget(std::mem::replace(&mut self.state, State::Ended));
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        if !self.engine.instance.is_here() {
            return self.leave();
        }
        match self.state {
            State::Ended => return,
            State::Kept | State::Prepared(_) => return self.leave_prepared(),
            State::Open | State::HalfDone | State::HalfUndone(_) => {}
        }
        if self.rollback_all().is_ok() {
            return;
        }
        // The rollback stopped, for example because the log has no room or a page cannot be read now. The transaction
        // stays active and invisible, keeps its locks, and background work tries again. If the database is poisoned,
        // the next opening rolls it back.
        if let Some(writing) = self.writing.take() {
            self.engine.unfinished.lock().push(Unfinished { owner: self.owner.clone(), writing });
        }
    }
}

impl Txn {
    /// Continues a rollback that stopped before its end.
    pub fn take_up(engine: impl Into<Ref<Engine>>, unfinished: Unfinished) -> Self {
        let Unfinished { owner, writing } = unfinished;
        let options = TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() };
        Self::new(engine.into(), options, owner, Some(writing))
    }
}

impl Committing {
    /// Returns the outcome of the commit, `None` if it is not known yet. If no other thread is writing the
    /// log, this call writes one group.
    pub fn poll(&mut self) -> Option<Result<()>> {
        if self.txn.has_ended() {
            return Some(self.outcome());
        }
        let engine = self.txn.engine.clone();
        let log = engine.log();
        let done = |txn: &Self| txn.end == Lsn::ZERO || log.reached(txn.end, txn.level);
        if !done(self) && self.level != Durability::Deferred {
            if let Err(cause) = log.write_group(self.level == Durability::Flushed) {
                return Some(Err(self.unknown(cause)));
            }
        }
        if done(self) {
            if let Err(cause) = self.txn.catch_up() {
                return Some(Err(self.unknown(cause)));
            }
            self.txn.end();
            return Some(Ok(()));
        }
        engine.health().check().err().map(|cause| Err(self.unknown(cause)))
    }

    /// Waits until the commit is done.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`].
    pub fn wait(mut self) -> Result<()> {
        if !self.txn.has_ended() {
            self.txn.wait_for(self.end, self.level).map_err(|cause| self.unknown(cause))?;
            self.txn.end();
        }
        self.outcome()
    }

    /// The outcome of a commit that has ended.
    fn outcome(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |cause| Err(Error::OutcomeUnknown { cause: cause.clone() }))
    }

    /// Leaves the outcome to the next opening: the changes are neither made visible nor undone.
    fn unknown(&mut self, cause: Error) -> Error {
        self.txn.state = State::Ended;
        let cause = Arc::new(cause);
        self.failed = Some(cause.clone());
        Error::OutcomeUnknown { cause }
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        if !self.txn.has_ended() && self.txn.engine.instance.is_here() {
            // A commit in the log cannot be undone. The caller that dropped it does not ask for the outcome.
            if self.txn.wait_for(self.end, self.level).is_ok() {
                self.txn.end();
            } else {
                self.txn.state = State::Ended;
            }
        }
    }
}
