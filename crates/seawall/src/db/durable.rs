//! Positions in the log, and the thread that calls callbacks when positions are durable.

use crate::counted::Mutex;
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::txn::Engine;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A position in the engine's log. Later positions are larger. A position stays valid when the database is
/// opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub(super) u64);

impl LogPosition {
    /// The start of the log, which is always durable.
    pub const START: Self = Self(0);

    /// Returns the position as a number, to be stored elsewhere.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// Makes a position from the number of [`LogPosition::as_u64`].
    #[must_use]
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }
}

impl From<Lsn> for LogPosition {
    fn from(lsn: Lsn) -> Self {
        Self(lsn.0)
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The thread that calls callbacks, if it has started.
#[derive(Debug, Default)]
pub(super) struct CallbackThread(Mutex<Option<JoinHandle<()>>>);

impl CallbackThread {
    pub(super) fn start(&self, engine: &Arc<Engine>, path: &Path) -> Result<()> {
        let mut thread = self.0.lock();
        if thread.is_none() {
            let engine = engine.clone();
            let run = move || engine.log().tell_until_ended();
            let started = std::thread::Builder::new().name("seawall-durable".into()).spawn(run);
            let failed = |error: std::io::Error| Error::NoThread { path: path.into(), why: error.to_string() };
            *thread = Some(started.map_err(failed)?);
        }
        Ok(())
    }

    /// Waits until all callbacks have been called.
    pub(super) fn join(&self) {
        let Some(thread) = self.0.lock().take() else { return };
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            // The thread has panicked, and the panic hook has reported that; closing continues.
        }
    }

    /// Forgets the thread, which a forked process does not have.
    pub(super) fn leave(&mut self) {
        std::mem::forget(self.0.get_mut().take());
    }
}
