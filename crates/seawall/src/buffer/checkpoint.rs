//! Checkpoints: from where recovery has to read the log.
//!
//! 1. A checkpoint is no later than the start of any mini-transaction whose pages are not all in the data file.
//! 2. It is found in this order: the oldest unpublished mini-transaction; then the oldest of what is dirty (`dirty.rs`), where a page's
//!    dirt is read before its write in flight. Frames that are clean are not looked at. A mini-transaction marks its pages before it
//!    publishes, so one that the first look finds published is seen by the second (trap 2: the other way round, one that marks and
//!    publishes between the two looks is seen by neither). A write in flight is set before the dirt is cleared, so a page on its way home
//!    is seen as one or the other, or its write has returned.
//! 3. Only then the data file's barrier: it covers every write that had returned. Only then the control block; only
//!    then may the log before it be reused.
//! 4. One checkpoint at a time. It holds no latch and stops nobody.

use super::pool::Pool;
use super::stats::count;
use super::unfinished::Unfinished;
use crate::error::Result;
use crate::format::{Lsn, TxnId};
use crate::mutants::Mutant;
use seawall_io::Cause;
use std::sync::atomic::Ordering;

impl Pool {
    /// Writes a checkpoint as late as can be, and lets the log reuse what lies before. Returns where it is; writes
    /// nothing when that is where it was. No latch may be held.
    ///
    /// # Errors
    /// A failed barrier or control write, which poisons; or the first failure, when there was one.
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

    /// The start of the oldest mini-transaction that recovery would need now (2).
    fn oldest_needed(&self) -> Lsn {
        let unpublished = self.log().oldest_unpublished();
        let dirty = self.ordered(|ordered| ordered.oldest(|frame| self.frames.dirt(frame)));
        dirty.map_or(unpublished, |dirty| unpublished.min(Lsn(dirty)))
    }

    fn write_checkpoint(&self, lsn: Lsn, clean: bool) -> Result<()> {
        // After a panic in a flush or a control write nobody knows what is durable.
        let unfinished = Unfinished::begin(self.health(), "writing a checkpoint");
        if !self.health().has(Mutant::CheckpointUnflushed) {
            let barrier = self.data.checkpoint_barrier();
            let again = barrier.is_err() && self.health().has(Mutant::FlushRetried);
            if again { self.data.checkpoint_barrier() } else { barrier }.map_err(|e| self.failed(e))?;
        }
        // Recovery begins to read here: what it finds must not be shorter than that.
        self.log().flush_to(lsn).map_err(|e| self.failed_log(e))?;
        // Not the durable position: that can lie inside an entry, of which a crash may leave nothing whole (trap 23).
        let log_end = self.log().durable_whole();
        debug_assert!(log_end >= lsn, "a checkpoint is the start of an entry, and so the end of the one before");
        let log_buffer = self.log().config().buffer_bytes as u64;
        // Read after the position was found: a transaction that logged before it has told its id before that.
        let next_txn = TxnId(self.next_txn.load(Ordering::Acquire));
        self.control
            .update(|block| {
                block.checkpoint = lsn;
                block.log_end = log_end;
                block.next_txn = next_txn;
                block.torn = self.config.torn;
                block.clean = clean;
                // From its own first entry on the log is this opening's alone. What lies before was read whole by this opening, so that no ghost
                // is in it; but other buffers may have written it.
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

    /// Writes every page home that is dirty now, and a checkpoint.
    ///
    /// # Errors
    /// As [`Pool::checkpoint`].
    pub fn flush_all(&self) -> Result<Lsn> {
        super::read::may_latch()?;
        let head = self.log().head();
        self.clean_before(head, Cause::Checkpoint)?;
        self.checkpoint()
    }

    /// The last step of closing: everything is written and checkpointed, and the control block says that there is
    /// nothing to recover. Nobody else uses the pool any more; nothing is changed afterwards.
    ///
    /// # Errors
    /// As [`Pool::checkpoint`]. When somebody did change something meanwhile, the block does not say so; recovery then
    /// finds it.
    pub fn close(&self) -> Result<()> {
        self.finish_prefetches(true);
        self.flush_all()?;
        let _role = self.checkpointing.take();
        self.health().check()?;
        let lsn = self.oldest_needed();
        if lsn == self.log().head() {
            self.write_checkpoint(lsn, true)?;
        }
        Ok(())
    }

    /// Makes room in the log for whoever cannot begin a mini-transaction: the checkpoint must come to at least `lsn`.
    /// One does the work, the others wait for it. No latch may be held.
    pub(super) fn make_log_room(&self, lsn: Lsn) -> Result<()> {
        count(&self.counters.log_waits, 1);
        let Some(_role) = self.making_room.try_take() else {
            self.making_room.wait();
            return self.health().check();
        };
        // Some more than asked for, so that not every mini-transaction from now on has to come here.
        let (checkpoint, head) = (self.checkpoint_lsn(), self.log().head());
        let target = lsn.max(Lsn(checkpoint.0 + head.0.saturating_sub(checkpoint.0) / 8));
        self.clean_before(target, Cause::Checkpoint)?;
        if self.checkpoint()? < lsn {
            // A mini-transaction older than that is about to publish: it waits for nobody.
            std::thread::yield_now();
        }
        Ok(())
    }
}
