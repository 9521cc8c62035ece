//! From what a crash left to a database that can be used.
//!
//! 1. Nothing is appended before the new incarnation is durable (trap 1), and nothing is read before the
//!    files are locked: the last writes of a killed process cannot land under its successor (trap 7).
//! 2. Torn pages are repaired from the doublewrite area before any page is read.
//! 3. Redo applies to a page what a mini-transaction did to it, all or nothing, unless the page's LSN says
//!    that it has it. It is the same code that made the change, and doing it twice is the same as once: a
//!    crash during recovery is just another crash.
//! 4. The log that is redone is made durable before any page changed by it can be written: `Log::open`
//!    flushes what it found.
//! 5. Open transactions are taken over as they are: prepared ones wait for their coordinator, losers are
//!    rolled back in the background, and until then are active: invisible, and their rows locked.
//!
//! ```text
//!   locked ─► incarnation ─► log's end ─► torn pages ─► redo ─► space, undo ─► open ─► losers rolled back
//! ```
//!
//! The log is read in batches, by a thread that is a batch ahead. A batch is sorted by page, the pages it
//! needs are asked for together, and threads apply it page by page: records of one page stay in order, those
//! of different pages need none. Batches are applied one after the other.

mod batch;

use crate::buffer::Pool;
use crate::error::Result;
use crate::format::Lsn;
use crate::log::LogReader;
use batch::Batch;
pub use batch::apply;
use std::sync::mpsc;

/// What redo did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Redone {
    /// Mini-transactions read.
    pub mini_transactions: u64,
    /// Records that their page did not have yet.
    pub applied: u64,
    /// Records that their page had.
    pub skipped: u64,
    /// The highest transaction id that the log names.
    pub last_txn: u64,
}

/// Applies the log up to `end` to the pages, with this many threads.
///
/// # Errors
/// Reading errors; [`crate::Corruption`] of log or pages.
pub fn redo(pool: &Pool, reader: &mut LogReader, end: Lsn, threads: usize) -> Result<Redone> {
    let mut done = Redone::default();
    if threads <= 1 {
        let mut batch = Batch::new();
        while batch.fill(reader, end)? {
            batch.apply(pool, threads, &mut done)?;
        }
        return Ok(done);
    }
    std::thread::scope(|scope| {
        let (filled, next) = mpsc::sync_channel::<Batch>(0);
        let (applied, spare) = mpsc::channel();
        for _ in 0..2 {
            applied.send(Batch::new()).expect("its other end is below");
        }
        let read = scope.spawn(move || -> Result<()> {
            // Ends with the log, or with the thread that applies it.
            while let Ok(mut batch) = spare.recv() {
                if !batch.fill(reader, end)? || filled.send(batch).is_err() {
                    break;
                }
            }
            Ok(())
        });
        for mut batch in next {
            batch.apply(pool, threads, &mut done)?;
            if applied.send(batch).is_err() {
                // The log has ended, and no thread waits for it.
            }
        }
        match read.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    Ok(done)
}
