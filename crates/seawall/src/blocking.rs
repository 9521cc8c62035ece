//! Which threads block now, for a program that schedules its threads itself.
//!
//! A pool of threads that runs few at a time must know when one of them blocks: the work that ends the wait may be
//! queued behind it. The engine says so where a call waits for a lock, for the log, or for a page; waits for latches
//! and for free frames are not told. One wait is told at a time of a thread: nothing that waits is called inside.

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// A lock that another transaction holds.
    Lock,
    /// The log: a commit that becomes durable, or space for a change.
    Log,
    /// A page that is read from the data file.
    Page,
}

/// A scheduler of threads that is told when one of them blocks.
///
/// Both calls come from the thread itself, also from the engine's own threads. They must be short and must not call
/// the engine.
pub trait BlockObserver: Send + Sync {
    /// The thread is about to wait.
    fn begins(&self, on: Blocking);
    /// It has waited. Called once for each call of [`BlockObserver::begins`], also if the wait failed.
    fn ended(&self);
}

static OBSERVER: OnceLock<Box<dyn BlockObserver>> = OnceLock::new();

/// Sets the scheduler that is told of the waits of all databases of this process, until the process ends.
///
/// # Errors
/// [`Error::Usage`] if there is one already.
pub fn observe_blocking(observer: impl BlockObserver + 'static) -> Result<()> {
    if OBSERVER.set(Box::new(observer)).is_err() {
        return Err(Error::Usage("the process has an observer of blocking threads already".into()));
    }
    Ok(())
}

/// Told as a wait for as long as it exists.
pub(crate) struct Blocked(Option<&'static dyn BlockObserver>);

impl Blocked {
    pub(crate) fn on(what: Blocking) -> Self {
        let observer = OBSERVER.get().map(|observer| &**observer);
        if let Some(observer) = observer {
            observer.begins(what);
        }
        Self(observer)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(observer) = self.0 {
            observer.ended();
        }
    }
}
