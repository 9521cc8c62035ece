//! Counts the handles of a database, and refuses new work once a shutdown has begun: see `shutdown.rs`.

use crate::buffer::role::Role;
use crate::counted::Mutex;
use crate::error::{Error, Result};
use seawall_io::Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The progress of a shutdown.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    pub(super) draining: AtomicBool,
    pub(super) handles: Arc<Mutex<usize>>,
    /// One thread at a time shuts down.
    pub(super) shutting: Role,
}

/// Counts one [`Database`] handle.
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
        // In a forked process, a thread that does not exist there may hold the mutex.
        if self.process.is_current() {
            *self.handles.lock() -= 1;
        }
    }
}

impl Shutdown {
    pub(super) fn handle(&self) -> Handle {
        Handle::of(&self.handles, Process::current())
    }

    /// Fails if no new work may begin.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    #[inline]
    pub(super) fn admit(&self) -> Result<()> {
        if self.draining.load(Ordering::Relaxed) { Err(Error::ShutDown) } else { Ok(()) }
    }
}
