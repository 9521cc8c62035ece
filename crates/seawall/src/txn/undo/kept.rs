//! Keeps the resources of a commit ready, so that the commit can be logged later without a wait, without I/O,
//! and even if the log has no other room then.
//!
//! 1. A commit changes one page, the last one of its undo log, and logs one record: the page is pinned, and
//!    the record's room in the log is reserved. The page has room for the record from the first undo record
//!    on ([`UndoStore::ensure_room`]).
//! 2. Others cannot use kept room and pinned pages, so both are limited ([`UndoStore::kept_max`]): the pages
//!    to a share of the pool, the room to [`KEPT_MAX`] x [`COMMIT_BYTES`] of the log, less than one large
//!    mini-transaction.

use super::store::UndoStore;
use super::undo_log::UndoLog;
use crate::buffer::{KeptPin, Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::Lsn;
use crate::log::{KeptRoom, MTR_BYTES_MAX};
use std::sync::atomic::Ordering::Relaxed;

/// The most bytes of a commit's record in a mini-transaction.
const COMMIT_BYTES: usize = 48;
/// The most commits for which room is kept at one time.
const KEPT_MAX: usize = 4096;
/// One page of the pool in this many may be pinned for kept commits.
const POOL_SHARE: u64 = 8;

const _: () =
    assert!(KEPT_MAX * (COMMIT_BYTES + 16) <= MTR_BYTES_MAX, "the log's buffer has room for several times that");

/// The resources kept for the commit of one transaction. [`UndoStore::commit_kept`] or
/// [`UndoStore::give_back`] releases them.
#[derive(Debug)]
#[must_use = "what is kept is lost to others until the database is opened again"]
pub struct KeptCommit {
    room: KeptRoom,
    pin: KeptPin,
}

impl UndoStore {
    /// The most commits that can be kept ready at one time.
    pub fn kept_max(&self) -> usize {
        let pool = self.space.pool();
        let share = pool.frames() / POOL_SHARE;
        usize::try_from(share).unwrap_or(KEPT_MAX).clamp(1, KEPT_MAX)
    }

    /// Keeps the resources that the commit of the undo log's transaction needs. Until they are released,
    /// nothing but the commit is written to the undo log. No latch may be held.
    ///
    /// # Errors
    /// [`Error::TooManyPrepared`]; [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`] if there is no room
    /// in the log.
    pub fn keep_commit(&self, undo_log: &UndoLog) -> Result<KeptCommit> {
        let max = self.kept_max();
        let one_more = |kept: u32| ((kept as usize) < max).then_some(kept + 1);
        if self.kept.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            return Err(Error::TooManyPrepared { max });
        }
        let pool = self.space.pool();
        let kept = || {
            let pin = pool.retry(|| Ok(pool.shared(undo_log.tail)?.pin().keep()))?;
            match Mtr::begin(pool, MtrSize::Bytes(COMMIT_BYTES)) {
                Ok(mtr) => Ok(KeptCommit { room: mtr.keep_room(), pin }),
                Err(error) => {
                    drop(pool.unkeep(pin));
                    Err(error)
                }
            }
        };
        kept().inspect_err(|_| {
            self.kept.fetch_sub(1, Relaxed);
        })
    }

    /// Like [`UndoStore::commit`], with the resources kept for it: latches one page that is in memory, waits
    /// for nothing else, and does no I/O. Returns the end of the commit in the log.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the page is inconsistent; nothing is changed then.
    pub fn commit_kept(&self, undo_log: &mut UndoLog, kept: KeptCommit) -> Result<Lsn> {
        let KeptCommit { room, pin } = kept;
        let pool = self.space.pool();
        let pin = pool.unkeep(pin);
        debug_assert_eq!(pin.id(), undo_log.tail, "nothing was written to the undo log since");
        let mut mtr = Mtr::begin_kept(pool, MtrSize::Bytes(COMMIT_BYTES), room);
        self.kept.fetch_sub(1, Relaxed);
        match self.commit(undo_log, &mut mtr) {
            Ok(()) => Ok(mtr.commit()),
            Err(Stop::Fail(error)) => Err(error),
            Err(stop) => Err(Error::bad_page(undo_log.tail, format!("a pinned page is not there: {stop:?}"))),
        }
    }

    /// Releases the kept resources without a commit.
    pub fn give_back(&self, kept: KeptCommit) {
        let KeptCommit { room, pin } = kept;
        let pool = self.space.pool();
        drop(pool.log().credit(room));
        drop(pool.unkeep(pin));
        self.kept.fetch_sub(1, Relaxed);
    }

    /// The number of commits that are kept ready now.
    #[cfg(test)]
    pub fn kept(&self) -> u32 {
        self.kept.load(Relaxed)
    }
}
