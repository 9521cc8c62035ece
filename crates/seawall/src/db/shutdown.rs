//! Closing a database while others hold handles.
//!
//! 1. *Drain.* No new transaction begins; shutdown waits for open transactions to end. Transactions and
//!    handles each hold a reference to the shared state ([`Inner`]): references beyond the number of handles
//!    belong to running transactions. A handle counts itself after it takes its reference and uncounts itself
//!    before it drops the reference, and both counts are read under the handles' mutex. So the number of
//!    running transactions is never underestimated. This costs a transaction nothing.
//! 2. *Refuse.* From then on every call fails. A call that passed the check earlier can still read, but the
//!    next step prevents changes.
//! 3. *Seal.* Background work has stopped and the log admits no more mini-transactions, so nothing is logged
//!    after the last checkpoint.
//! 4. *Close*, as the last handle would. Afterwards the database is poisoned, which ends all waits for log
//!    space.
//!
//! A transaction that began between the check and the drain is as harmless as in (2): it can read pages in
//! memory, and change nothing. The files stay open and locked until the last handle is gone.

use super::database::Database;
use super::inner::Inner;
use crate::buffer::may_latch;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The interval between two counts of running transactions.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Database {
    /// For a call without a transaction: counts as running until the result is dropped.
    pub(super) fn running(&self) -> Result<Arc<Inner>> {
        self.here()?;
        may_latch()?;
        let running = self.inner.clone();
        self.inner.shutdown.admit()?;
        Ok(running)
    }

    /// Closes the database although other handles exist. No new transaction begins. The call waits for open
    /// transactions and writes all dirty pages; every later call on any handle fails with [`Error::ShutDown`].
    /// The next opening has nothing to recover. Prepared transactions whose objects are gone stay prepared. The
    /// files stay locked until the last handle is dropped.
    ///
    /// Waits as long as a transaction is open; see [`Database::shutdown_within`]. Does nothing if the
    /// database is already shut down.
    ///
    /// # Errors
    /// The error that stopped closing. The database is shut down nevertheless; no committed change is lost, and
    /// the next opening recovers. [`Error::Usage`] in a closure that [`Transaction::get_with`] runs.
    ///
    /// [`Transaction::get_with`]: crate::Transaction::get_with
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let other = db.clone();
    /// db.shutdown()?;
    /// assert!(matches!(other.begin(), Err(seawall::Error::ShutDown)));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn shutdown(&self) -> Result<()> {
        self.shutdown_within(Duration::MAX)
    }

    /// Like [`Database::shutdown`], but waits at most `patience` for open transactions.
    ///
    /// # Errors
    /// [`Error::StillRunning`], also while another thread shuts down: no new transaction begins, open transactions go
    /// on, and the call can be repeated; those of [`Database::shutdown`].
    pub fn shutdown_within(&self, patience: Duration) -> Result<()> {
        let engine = self.inner.engine();
        if engine.instance.is_here() && engine.instance.is_shut() {
            return Ok(());
        }
        self.here()?;
        // It would wait for the transaction whose closure calls it.
        may_latch()?;
        let begun = engine.clock.now();
        // Transactions, commits and calls that hold the shared state (1).
        let running = || {
            let handles = self.inner.shutdown.handles.lock();
            Arc::strong_count(&self.inner) - *handles
        };
        let wait = || {
            if !engine.may_wait || engine.clock.now().saturating_sub(begun) >= patience {
                return Err(Error::StillRunning { running: running() });
            }
            engine.clock.sleep(LOOK_EVERY);
            Ok(())
        };
        let _role = loop {
            match self.inner.shutdown.shutting.try_take() {
                Some(role) => break role,
                None => wait()?,
            }
        };
        if engine.instance.is_shut() {
            return Ok(());
        }
        self.inner.shutdown.draining.store(true, Ordering::SeqCst);
        while running() > 0 {
            wait()?;
        }
        engine.instance.shut();
        let closed = self.inner.close_after(|| {
            // Admitted mini-transactions wait only for latches.
            while !engine.log().seal() {
                std::thread::yield_now();
            }
        });
        drop(engine.health().poison(Error::ShutDown));
        closed
    }
}
