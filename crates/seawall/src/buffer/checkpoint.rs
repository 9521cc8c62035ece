//! Checkpoints: the position from which recovery has to read the log.
//!
//! 1. A checkpoint is no later than the start of any mini-transaction whose changes are not all in the data file.
//! 2. It is computed in this order: the oldest unpublished mini-transaction; then the oldest dirty page (`dirty.rs`),
//!    where a page's `rec_lsn` is read before its `writing`. Clean frames are not scanned. A mini-transaction marks its
//!    pages before it publishes: if the first step finds it published, the second finds its pages. (Trap 2: in the
//!    other order, neither step finds a mini-transaction that marks and publishes between them.) `writing` is set
//!    before `rec_lsn` is cleared, so a page that is being written is found in one of the two, or its write has
//!    returned. Dirty pages and deferred changes are searched under one mutex (`deferred.rs`, 3).
//! 3. Then comes the data file's barrier, which covers every write that had returned; then the write of the control
//!    block. Only then may the log before the checkpoint be reused.
//! 4. There is one checkpoint at a time. It holds no latch and blocks no other thread.

use super::pool::Pool;
use super::stats::count;
use super::unfinished::Unfinished;
use crate::blocking::{Blocked, Blocking};
use crate::error::Result;
use crate::format::{Lsn, TxnId};
use crate::mutants::Mutant;
use seawall_io::Cause;
use std::sync::atomic::Ordering;

impl Pool {
    /// Writes the latest possible checkpoint, and lets the log reuse the space before it. Returns its position; writes
    /// nothing if the position has not advanced. No latch may be held.
    ///
    /// # Errors
    /// A failed barrier, log flush or control write, which poisons the database; or the first failure, if there was
    /// one.
    pub fn checkpoint(&self) -> Result<Lsn> {
        let _role = self.checkpointing.take();
        self.health().check()?;
        let mut lsn = self.oldest_needed();
        if self.health().has(Mutant::CheckpointTooNew) {
            lsn = self.log().oldest_unpublished();
        }
        let current = self.checkpoint_lsn();
        if lsn <= current {
            return Ok(current);
        }
        self.write_checkpoint(lsn, false)?;
        Ok(lsn)
    }

    /// Returns the start of the oldest mini-transaction that recovery would need now (2).
    fn oldest_needed(&self) -> Lsn {
        let unpublished = self.log().oldest_unpublished();
        let away = self.deferred.away();
        let dirty = self.ordered(|ordered| ordered.oldest(|frame| self.frames.dirt(frame)));
        let away = away.oldest().filter(|_| !self.health().has(Mutant::CheckpointPassesDeferred));
        dirty.into_iter().chain(away).map(Lsn).fold(unpublished, Lsn::min)
    }

    fn write_checkpoint(&self, lsn: Lsn, clean: bool) -> Result<()> {
        // After a panic in a control write it is unknown what is durable.
        let unfinished = Unfinished::begin(self.health(), "writing a checkpoint");
        if !self.health().has(Mutant::CheckpointUnflushed) {
            self.flush_data(|data| {
                let barrier = data.checkpoint_barrier();
                let again = barrier.is_err() && self.health().has(Mutant::FlushRetried);
                if again { data.checkpoint_barrier() } else { barrier }.map(drop)
            })?;
        }
        // Recovery starts to read at `lsn`: the log on the disk must reach at least this far.
        self.log().flush_to(lsn).map_err(|e| self.failed_log(e))?;
        // Not the durable position: it can lie inside an entry, and after a crash that entry may not be whole (trap
        // 23).
        let log_end = self.log().durable_whole();
        debug_assert!(log_end >= lsn, "a checkpoint is the start of an entry, and so the end of the one before");
        let log_buffer = self.log().config().buffer_bytes as u64;
        // Read after the position was found: a transaction that logged before the position noted its id before it
        // logged.
        let next_txn = TxnId(self.next_txn.load(Ordering::Acquire));
        self.control
            .update(|block| {
                block.checkpoint = lsn;
                block.log_end = log_end;
                block.next_txn = next_txn;
                block.torn = self.config.torn;
                block.clean = clean;
                // From this opening's first entry on, only this opening has written the log. It has read all log before
                // that, so that log has no ghost entries; but it may have been written through other buffers.
                let own = lsn >= self.opened_at;
                block.log_incarnation = if own { block.incarnation } else { block.log_incarnation };
                block.log_buffer = if own { log_buffer } else { block.log_buffer.max(log_buffer) };
            })
            .map_err(|e| self.failed(e))?;
        self.checkpoint.store(lsn.0, Ordering::Release);
        self.log().release_before(lsn);
        count(&self.counters.checkpoints, 1);
        unfinished.done();
        Ok(())
    }

    /// Writes home every page that is dirty now, then writes a checkpoint.
    ///
    /// # Errors
    /// As [`Pool::checkpoint`].
    pub fn flush_all(&self) -> Result<Lsn> {
        super::lend::may_latch()?;
        let head = self.log().head();
        self.clean_before(head, Cause::Checkpoint)?;
        self.checkpoint()
    }

    /// Does the last step of closing: writes every dirty page, a checkpoint, and a control block which says that there
    /// is nothing to recover. No other thread uses the pool any more, and nothing is changed afterwards.
    ///
    /// # Errors
    /// As [`Pool::checkpoint`]. If another thread changes something during the call, the block does not say that the
    /// database is clean, and recovery finds the change.
    pub fn close(&self) -> Result<()> {
        self.finish_prefetches(true);
        self.flush_all()?;
        let _role = self.checkpointing.take();
        self.health().check()?;
        let lsn = self.oldest_needed();
        if lsn == self.log().head() {
            self.write_checkpoint(lsn, true)?;
            self.log().forget_ring();
        }
        Ok(())
    }

    /// Makes space in the log for a mini-transaction that cannot begin: the checkpoint must reach at least `lsn`. One
    /// thread does the work, and the others wait for it. No latch may be held.
    pub(super) fn make_log_room(&self, lsn: Lsn) -> Result<()> {
        count(&self.counters.log_waits, 1);
        let Some(_role) = self.making_room.try_take() else {
            let _blocked = Blocked::on(Blocking::Log);
            self.making_room.wait();
            return self.health().check();
        };
        // More than was asked for, so that the next mini-transactions do not all have to come here.
        let (checkpoint, head) = (self.checkpoint_lsn(), self.log().head());
        let target = lsn.max(Lsn(checkpoint.0 + head.0.saturating_sub(checkpoint.0) / 8));
        let cleaned = self.clean_before(target, Cause::Checkpoint);
        // An unreadable page may hold back the checkpoint from `target` but not from `lsn`. Then its error is ignored.
        let reached = self.checkpoint()?;
        if reached < lsn {
            cleaned?;
        }
        if reached < lsn || reached == checkpoint {
            // Other threads must first publish, or use the log space that they have; they do not wait for any thread.
            std::thread::yield_now();
        }
        Ok(())
    }
}
