//! Closing a database while others hold handles.
//!
//! 1. *Drain.* No transaction begins any more; those that are open go on to their end, and are waited for. A transaction holds the shared state
//!    ([`Inner`]) as handles do: what is held beside the handles is running. A handle counts itself after it holds the state and stops counting before
//!    it lets go, and both counts are taken under the mutex of the handles, so never too few are seen to be running. This costs a transaction nothing.
//! 2. *Refuse.* Every call is an error from then on. What has passed that check before can read, and changes nothing: the next step makes sure.
//! 3. *Seal.* Background work has stopped and no mini-transaction is admitted: none comes any more, so nothing is logged behind the last checkpoint.
//! 4. *Close*, as the last handle would. Afterwards the database is poisoned, which ends what waits for room in the log.
//!
//! A transaction that began between the check and the drain is as harmless as (2): it can read what is in memory, and change nothing. The files stay
//! open and locked until the last handle is gone.

use super::database::{Database, Inner};
use crate::buffer::role::Role;
use crate::counted::Mutex;
use crate::error::{Error, Result};
use seawall_io::Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often those that are waited for are counted.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How far a shutdown has come.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    draining: AtomicBool,
    handles: Arc<Mutex<usize>>,
    /// One thread at a time shuts down.
    shutting: Role,
}

/// Counts a [`Database`].
#[derive(Debug)]
pub(super) struct Handle {
    handles: Arc<Mutex<usize>>,
    process: Process,
}

impl Handle {
    fn of(handles: &Arc<Mutex<usize>>, process: Process) -> Self {
        if process.is_current() {
            *handles.lock() += 1;
        }
        Self { handles: handles.clone(), process }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::of(&self.handles, self.process)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A thread that is not in a forked process may have held the mutex.
        if self.process.is_current() {
            *self.handles.lock() -= 1;
        }
    }
}

impl Shutdown {
    pub(super) fn handle(&self) -> Handle {
        Handle::of(&self.handles, Process::current())
    }

    /// Whether something may begin.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    #[inline]
    pub(super) fn admit(&self) -> Result<()> {
        if self.draining.load(Ordering::Relaxed) { Err(Error::ShutDown) } else { Ok(()) }
    }

    /// Transactions, commits and calls that hold the shared state (1).
    fn running(&self, inner: &Arc<Inner>) -> usize {
        let handles = self.handles.lock();
        Arc::strong_count(inner) - *handles
    }
}

impl Database {
    /// For a call that is no transaction's: runs until what is returned is dropped.
    pub(super) fn running(&self) -> Result<Arc<Inner>> {
        self.here()?;
        let running = self.inner.clone();
        self.inner.shutdown.admit()?;
        Ok(running)
    }

    /// Closes the database though others hold handles of it: no transaction begins any more, those that are open are waited for, all pages are written,
    /// and every later call on any handle is [`Error::ShutDown`]. The next opening has nothing to recover. Prepared transactions that were let go of
    /// stay prepared. The files stay locked until the last handle is dropped.
    ///
    /// Waits as long as a transaction is open; see [`Database::shutdown_within`]. Does nothing when the database is shut down already.
    ///
    /// # Errors
    /// What stopped the closing: the database is shut down, nothing committed is lost, and the next opening recovers.
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

    /// The same, but waits no longer than `patience` for transactions that are open.
    ///
    /// # Errors
    /// [`Error::StillRunning`]: no transaction begins any more, those that are open go on, and it can be called again. As [`Database::shutdown`].
    pub fn shutdown_within(&self, patience: Duration) -> Result<()> {
        let engine = self.inner.engine();
        if engine.instance.is_here() && engine.instance.is_shut() {
            return Ok(());
        }
        self.here()?;
        let _role = self.inner.shutdown.shutting.take();
        if engine.instance.is_shut() {
            return Ok(());
        }
        self.inner.shutdown.draining.store(true, Ordering::SeqCst);
        let begun = engine.clock.now();
        loop {
            let running = self.inner.shutdown.running(&self.inner);
            if running == 0 {
                break;
            }
            if !engine.may_wait || engine.clock.now().saturating_sub(begun) >= patience {
                return Err(Error::StillRunning { running });
            }
            engine.clock.sleep(LOOK_EVERY);
        }
        engine.instance.shut();
        let closed = self.inner.close_after(|| {
            // Those that are admitted wait for nothing but latches.
            while !engine.log().seal() {
                std::thread::yield_now();
            }
        });
        drop(engine.health().poison(Error::ShutDown));
        closed
    }
}
