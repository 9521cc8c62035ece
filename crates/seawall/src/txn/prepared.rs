//! Transactions that are prepared, and decided elsewhere: in an outside log, or by a coordinator.
//!
//! 1. A transaction that is prepared in place accepts no more changes and locks. It stays with its user, who commits it
//!    or rolls it back. If it is dropped, it stays prepared, and is ended by its name.
//! 2. What its commit needs is kept from the preparation on ([`KeptCommit`]): [`Txn::commit_ordered`] does no
//!    I/O and cannot run out of room.
//! 3. *Visible before durable.* [`Txn::commit_ordered`] leaves the active set and releases the locks when the commit is
//!    in the log's buffer. If the preparation is durable, a crash can take such a commit back to "prepared", but never
//!    further; the outside log, which decided it, then commits it again. The commits of transactions that saw it follow
//!    it in the log: a crash that loses the commit loses theirs, too (trap 28).
//! 4. If two are committed one after the other, no view sees the later one without the earlier one: the first
//!    has left the active set before the second is logged.

use super::savepoint::SavepointAt;
use super::transaction::{InPlace, Names, State, Txn};
use super::undo::UndoRecord;
use super::writing::Writing;
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::log::Durability;
use crate::mutants::Mutant;
use crate::space::Purpose;
use std::sync::Arc;

/// The name of a transaction, and its registry.
type Named = (Box<[u8]>, Arc<dyn Names>);

impl Txn {
    /// Whether it is prepared in place.
    pub fn is_prepared(&self) -> bool {
        matches!(self.state, State::Prepared(_))
    }

    /// Prepares the transaction under the name `xid`, durable at `level`, and keeps what its commit needs.
    /// Returns the end of the preparation in the log.
    ///
    /// # Errors
    /// Those of a first change; [`Error::TooManyPrepared`]. The transaction is unchanged then.
    /// [`Error::OutcomeUnknown`]: the database is poisoned, and the next opening finds the transaction
    /// prepared or not at all.
    pub fn prepare_in_place(&mut self, xid: &[u8], mut level: Durability, names: Arc<dyn Names>) -> Result<Lsn> {
        self.start()?;
        if self.engine.health().has(Mutant::EarlyAcknowledgement) {
            level = level.min(Durability::Written);
        }
        let (engine, writing) = (&self.engine, Writing::of(&mut self.writing));
        engine.undo.ensure_room(&mut writing.undo_log, UndoRecord::Prepared { xid }.room_max(), Purpose::Delete)?;
        let commit = engine.undo.keep_commit(&writing.undo_log)?;
        let prepared = engine.pool().retry(|| {
            let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
            engine.undo.prepare(&mut writing.undo_log, &mut mtr, xid)?;
            Ok(mtr.commit())
        });
        let end = match prepared {
            Ok(end) => end,
            Err(error) => {
                engine.undo.give_back(commit);
                return Err(error);
            }
        };
        self.state = State::Prepared(Box::new(InPlace { xid: xid.into(), commit, names }));
        self.give_up_snapshot();
        self.wait_for(end, level).map_err(|cause| Error::OutcomeUnknown { cause: Arc::new(cause) })?;
        Ok(end)
    }

    /// Commits a transaction that is prepared in place, and makes it visible at once: before it is durable.
    /// Does no I/O. Returns the end of the commit in the log. Afterwards this object is a new transaction.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is not prepared, [`Error::Poisoned`], [`Error::Corrupt`]: nothing has happened.
    pub fn commit_ordered(&mut self) -> Result<Lsn> {
        if !self.is_prepared() {
            return Err(Error::Usage("a transaction that is committed in order is prepared in place before".into()));
        }
        self.engine.health().check()?;
        let end = self.log_prepared_commit()?;
        self.end();
        self.renew(self.options);
        Ok(end)
    }

    /// Logs the commit of a transaction that is prepared in place, or returns why it cannot be committed.
    #[cold]
    pub(super) fn log_prepared_commit(&mut self) -> Result<Lsn> {
        let place = match std::mem::replace(&mut self.state, State::Kept) {
            State::Prepared(place) => place,
            other => {
                self.state = other;
                self.check_takes_changes()?;
                return Err(Error::Usage("the transaction is not prepared".into()));
            }
        };
        let InPlace { xid, commit, names } = *place;
        let logged = self.engine.undo.commit_kept(&mut Writing::of(&mut self.writing).undo_log, commit);
        if logged.is_err() {
            // Its page is damaged: it stays prepared, and can be ended by name.
            self.hand_over(&xid, &*names);
        } else {
            self.state = State::Open;
            names.ended(&xid);
        }
        logged
    }

    /// Decides against a prepared transaction, before any of its changes is undone: cuts the record of its preparation
    /// from the undo log. Not durable until the log is flushed.
    ///
    /// # Errors
    /// As [`Txn::undo_one`]: it is still prepared.
    pub fn revoke(&mut self) -> Result<()> {
        self.undo_one(SavepointAt::BEGIN).map(drop)
    }

    /// Undoes everything, prepared or not, and ends.
    ///
    /// # Errors
    /// As [`Txn::rollback`]. [`Error::OutcomeUnknown`] if the log of a prepared transaction's rollback failed: the next
    /// opening finds it prepared, or gone.
    pub(super) fn decide_against(&mut self) -> Result<()> {
        let prepared = self.take_prepared(State::Open);
        let Some((xid, names)) = prepared else { return self.rollback_all() };
        let stopped_before = self.engine.health().check().is_err();
        let rolled_back = match self.revoke() {
            Ok(()) => {
                let rolled_back = self.rollback_all();
                // The name is free even if the rollback stopped midway: background work completes it.
                names.ended(&xid);
                rolled_back
            }
            // The log has the record of its preparation: it stays prepared, and can be ended by name.
            Err(error) => {
                self.hand_over(&xid, &*names);
                Err(error)
            }
        };
        rolled_back.map_err(|error| match error {
            cause @ Error::Poisoned { .. } if !stopped_before => Error::OutcomeUnknown { cause: Arc::new(cause) },
            error => error,
        })
    }

    /// Sets the state to `then`, unless the transaction has ended. If it was prepared in place, releases what
    /// was kept for its commit, and returns its name and the registry to notify.
    fn take_prepared(&mut self, then: State) -> Option<Named> {
        if matches!(self.state, State::Ended) {
            return None;
        }
        let State::Prepared(place) = std::mem::replace(&mut self.state, then) else { return None };
        let InPlace { xid, commit, names } = *place;
        self.engine.undo.give_back(commit);
        Some((xid, names))
    }

    /// Called when its user drops it. If it is prepared in place, hands it over to the registry of names.
    pub(super) fn leave_prepared(&mut self) {
        if let Some((xid, names)) = self.take_prepared(State::Kept) {
            self.hand_over(&xid, &*names);
        }
    }

    /// Releases the locks on what it has only read: it is prepared, and the next opening would not bring them back.
    pub(super) fn release_reads(&self) {
        let keeps = |tree| self.engine.trees.known(tree).is_some_and(|tree| tree.is_kept_by(self.id()));
        self.engine.locks.release_reads(&self.owner, keeps);
    }

    fn hand_over(&mut self, xid: &[u8], names: &dyn Names) {
        // It is handed over with the locks that it keeps and its runs of dead rows, and is not its user's any more. An
        // empty transaction takes its place here.
        self.give_up_views();
        self.release_reads();
        let mut prepared = std::mem::replace(self, Self::begin(self.engine.clone(), self.options));
        self.interrupt = std::mem::take(&mut prepared.interrupt);
        prepared.state = State::Kept;
        prepared.owner.set_tag(0);
        names.left(xid, prepared);
    }
}
