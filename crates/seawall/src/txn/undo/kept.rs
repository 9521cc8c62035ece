//! What a commit needs is kept ready, so that it can be logged later without a wait, without I/O, and whatever the log has room for then.
//!
//! 1. A commit changes one page, the last one of its stream, and logs one record: the page is pinned and the record's room in the log is
//!    promised. Room for the record in the page is there from the first undo record on ([`UndoStore::ensure_room`]).
//! 2. Kept room and pinned pages are missing to others, so there is a most ([`UndoStore::kept_max`]): a share of the pool, and
//!    [`KEPT_MAX`] x [`COMMIT_BYTES`] of the log, less than one large mini-transaction.

use super::store::UndoStore;
use super::stream::Stream;
use crate::buffer::{KeptPin, Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::Lsn;
use crate::log::{KeptRoom, MTR_BYTES_MAX};
use std::sync::atomic::Ordering::Relaxed;

/// The most that the record of a commit takes in a mini-transaction.
const COMMIT_BYTES: usize = 48;
/// Commits that room is kept for at one time, at most.
const KEPT_MAX: usize = 4096;
/// One page of the pool in so many may be pinned for them.
const POOL_SHARE: u64 = 8;

const _: () =
    assert!(KEPT_MAX * (COMMIT_BYTES + 16) <= MTR_BYTES_MAX, "the log's buffer has room for several times that");

/// What is kept for the commit of one transaction. It goes back by [`UndoStore::commit_kept`] or [`UndoStore::give_back`].
#[derive(Debug)]
#[must_use = "what is kept is lost to others until the database is opened again"]
pub struct KeptCommit {
    room: KeptRoom,
    pin: KeptPin,
}

impl UndoStore {
    /// How many commits can be kept ready at one time.
    pub fn kept_max(&self) -> usize {
        let pool = self.space.pool();
        let share = pool.bytes() / pool.page_bytes() as u64 / POOL_SHARE;
        usize::try_from(share).unwrap_or(KEPT_MAX).clamp(1, KEPT_MAX)
    }

    /// Keeps what the commit of the stream's transaction needs. Until it goes back nothing but the commit is logged in the stream. No latch may be
    /// held.
    ///
    /// # Errors
    /// [`Error::TooManyPrepared`]; [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`] when there is no room in the log.
    pub fn keep_commit(&self, stream: &Stream) -> Result<KeptCommit> {
        let max = self.kept_max();
        let one_more = |kept: u32| ((kept as usize) < max).then_some(kept + 1);
        if self.kept.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            return Err(Error::TooManyPrepared { max });
        }
        let pool = self.space.pool();
        let kept = || {
            let pin = pool.retry(|| Ok(pool.shared(stream.tail)?.pin().keep()))?;
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

    /// As [`UndoStore::commit`], with what was kept for it: latches one page that is in memory, waits for nothing else, and does no I/O. Returns
    /// where it ends in the log.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the page does not make sense; nothing is changed then.
    pub fn commit_kept(&self, stream: &mut Stream, kept: KeptCommit) -> Result<Lsn> {
        let KeptCommit { room, pin } = kept;
        let pool = self.space.pool();
        let pin = pool.unkeep(pin);
        debug_assert_eq!(pin.id(), stream.tail, "nothing was written to the stream since");
        let mut mtr = Mtr::begin_kept(pool, MtrSize::Bytes(COMMIT_BYTES), room);
        self.kept.fetch_sub(1, Relaxed);
        match self.commit(stream, &mut mtr) {
            Ok(()) => Ok(mtr.commit()),
            Err(Stop::Fail(error)) => Err(error),
            Err(stop) => Err(Error::bad_page(stream.tail, format!("a pinned page is not there: {stop:?}"))),
        }
    }

    /// Gives back what was kept.
    pub fn give_back(&self, kept: KeptCommit) {
        let KeptCommit { room, pin } = kept;
        let pool = self.space.pool();
        drop(pool.log().credit(room));
        drop(pool.unkeep(pin));
        self.kept.fetch_sub(1, Relaxed);
    }

    /// How many commits are kept ready now.
    pub fn kept(&self) -> u32 {
        self.kept.load(Relaxed)
    }
}
