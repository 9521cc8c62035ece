//! Recovery: makes a usable database from what a crash left.
//!
//! 1. Nothing is appended before the new incarnation is durable (trap 1), and nothing is read before the files are
//!    locked: so the last writes of a killed process cannot land while its successor runs (trap 7).
//! 2. Torn pages are repaired from the doublewrite area before any page is read.
//! 3. Redo applies all changes of a mini-transaction to a page, unless the page's LSN shows that it has them. It runs
//!    the code that made the change, and is idempotent: a crash during recovery is just another crash.
//! 4. The log that is redone is made durable before a page that it changed can be written: `Log::open` makes durable
//!    what it found.
//! 5. A page that is needed and cannot be read ends the opening. With option `damaged_pages = abandon`, a page of a
//!    tree is abandoned instead: recovery writes a page over it that every reader refuses
//!    ([`crate::Corruption::Abandoned`]) and that is never loaded into the pool, and skips its records. A page whose
//!    old contents the log replaces as a whole is not needed.
//! 6. Open transactions stay open: prepared ones wait for their coordinator, and losers are rolled back in the
//!    background. Until they end, they are active: their changes are invisible and their rows are locked.
//!
//! ```text
//!   locked ─► incarnation ─► log's end ─► torn pages ─► redo ─► space, undo ─► open ─► losers rolled back
//! ```
//!
//! A thread reads the log in batches, one batch ahead. A batch is sorted by page, the pages it needs are prefetched
//! together, and threads apply it page by page: records of one page stay in order, those of different pages need no
//! order. Batches are applied one after the other.

mod batch;

use crate::buffer::Pool;
use crate::error::Result;
use crate::format::Lsn;
use crate::log::LogReader;
use batch::Batch;
pub use batch::apply;
use seawall_io::Clock;
use std::sync::mpsc;
use std::time::Duration;

/// A long redo says how far it is whenever this has passed.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What redo did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Redone {
    /// Mini-transactions read.
    pub mini_transactions: u64,
    /// Records that the page did not have yet.
    pub applied: u64,
    /// Records that the page had already.
    pub skipped: u64,
    /// The highest transaction id that the log names.
    pub last_txn: u64,
}

/// How redo works.
#[derive(Debug, Clone, Copy)]
pub struct RedoConfig<'c> {
    /// Threads that apply records.
    pub threads: usize,
    /// Whether pages of trees that cannot be read are abandoned (5).
    pub abandons: bool,
    /// The clock of the reports.
    pub clock: &'c dyn Clock,
}

/// Applies the log up to `end` to the pages. Reports its progress, and what was missing in the pages, as
/// messages of level `info`.
///
/// # Errors
/// Read errors; [`crate::Corruption`] of the log or of pages.
pub fn redo(pool: &Pool, reader: &mut LogReader, end: Lsn, config: RedoConfig<'_>) -> Result<Redone> {
    let mut done = Redone::default();
    if reader.at() >= end {
        return Ok(done);
    }
    let mut report = Report::begin(config.clock, reader.at(), end);
    if config.threads <= 1 || !redo_ahead(pool, reader, end, config, &mut report, &mut done)? {
        let mut batch = Batch::new();
        while batch.fill(reader, end)? {
            report.note(batch.start());
            batch.apply(pool, config.threads, config.abandons, &mut done)?;
        }
    }
    if done.applied > 0 {
        report.finish(&done);
    }
    Ok(done)
}

/// Reports the progress of redo, and its result.
struct Report<'c> {
    clock: &'c dyn Clock,
    from: Lsn,
    end: Lsn,
    began: Duration,
    last: Duration,
}

impl<'c> Report<'c> {
    fn begin(clock: &'c dyn Clock, from: Lsn, end: Lsn) -> Self {
        let now = clock.now();
        Self { clock, from, end, began: now, last: now }
    }

    fn megabytes(&self) -> f64 {
        (self.end.0 - self.from.0) as f64 / 1e6
    }

    /// Everything before `at` is done.
    fn note(&mut self, at: Lsn) {
        let now = self.clock.now();
        if now.saturating_sub(self.last) >= REPORT_EVERY {
            self.last = now;
            let percent = at.0.saturating_sub(self.from.0) * 100 / (self.end.0 - self.from.0);
            ::log::info!("recovering: {percent}% of {:.1} MB of log done", self.megabytes());
        }
    }

    fn finish(self, done: &Redone) {
        let (megabytes, seconds) = (self.megabytes(), self.clock.now().saturating_sub(self.began).as_secs_f64());
        let (end, applied) = (self.end, done.applied);
        ::log::info!("recovered: {megabytes:.1} MB of log up to {end}, {applied} changes of pages, in {seconds:.2} s");
    }
}

/// Redoes with another thread that reads the log. Returns `false`, with nothing done, if the system has no thread for
/// that.
fn redo_ahead(
    pool: &Pool,
    reader: &mut LogReader,
    end: Lsn,
    config: RedoConfig<'_>,
    report: &mut Report<'_>,
    done: &mut Redone,
) -> Result<bool> {
    std::thread::scope(|scope| {
        let (filled, next) = mpsc::sync_channel::<Batch>(0);
        let (applied, spare) = mpsc::channel();
        for _ in 0..2 {
            applied.send(Batch::new()).expect("its other end is below");
        }
        let read = move || -> Result<()> {
            // Ends with the log, or when the applying thread fails.
            while let Ok(mut batch) = spare.recv() {
                if !batch.fill(reader, end)? || filled.send(batch).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let Ok(read) = std::thread::Builder::new().spawn_scoped(scope, read) else { return Ok(false) };
        for mut batch in next {
            report.note(batch.start());
            batch.apply(pool, config.threads, config.abandons, done)?;
            if applied.send(batch).is_err() {
                // The log has ended, and no thread waits for the batch.
            }
        }
        match read.join() {
            Ok(result) => result.map(|()| true),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
