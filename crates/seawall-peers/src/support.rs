//! What the stores share: options by name, and a thread that flushes once a second.
//!
//! An option that no store code asked for is an error that lists those there are. A [`Flusher`] has ended when its drop returns, so that
//! nothing is flushed through a handle that is being closed; the first error it met is kept and returned by [`Flusher::end`].

use parking_lot::{Condvar, Mutex};
use seawall_bench::{Error, Result, Settings};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a commit that nobody waits for stays unflushed.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Makes the store's directory.
pub(crate) fn make_dir(store: &'static str, settings: &Settings) -> Result<()> {
    std::fs::create_dir_all(&settings.dir)
        .map_err(|error| Error::failed(store, format!("cannot make directory {}: {error}", settings.dir.display())))
}

/// The options of a store that it takes one by one.
pub(crate) struct Options<'s> {
    store: &'static str,
    left: Vec<&'s (String, String)>,
    known: Vec<&'static str>,
}

impl<'s> Options<'s> {
    pub(crate) fn new(store: &'static str, settings: &'s Settings) -> Self {
        Self { store, left: settings.options.iter().collect(), known: Vec::new() }
    }

    /// The value given to `name` last, if any.
    pub(crate) fn take<T: FromStr<Err: Display>>(&mut self, name: &'static str) -> Result<Option<T>> {
        self.known.push(name);
        let given = self.left.iter().rev().find(|(key, _)| key == name).copied();
        self.left.retain(|(key, _)| key != name);
        let Some((_, value)) = given else { return Ok(None) };
        let parsed = value.parse();
        parsed
            .map(Some)
            .map_err(|error| Error::failed(self.store, format!("option {name}: {value:?} is not understood: {error}")))
    }

    /// The options nobody took, for a store that reads options itself.
    pub(crate) fn rest(self) -> Vec<&'s (String, String)> {
        self.left
    }

    /// Refuses what nobody took.
    pub(crate) fn end(self) -> Result<()> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let known = self.known.join(", ");
        Err(Error::failed(self.store, format!("there is no option {name:?}; there are: {known}")))
    }
}

/// `name` and `value` as a setting to show.
pub(crate) fn setting(name: &str, value: impl Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}

struct Shared {
    /// Asked to end.
    ended: Mutex<bool>,
    wake: Condvar,
}

/// A thread that flushes each [`FLUSH_INTERVAL`].
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Flusher {
    /// Begins; `flush` is called until it fails or the flusher ends.
    pub(crate) fn start(mut flush: impl FnMut() -> Result<()> + Send + 'static) -> Self {
        let shared = Arc::new(Shared { ended: Mutex::new(false), wake: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut ended = theirs.ended.lock();
            while !*ended {
                if theirs.wake.wait_for(&mut ended, FLUSH_INTERVAL).timed_out() {
                    parking_lot::MutexGuard::unlocked(&mut ended, &mut flush)?;
                }
            }
            Ok(())
        });
        Self { shared, thread: Some(thread) }
    }

    /// Ends it, and says what went wrong in it.
    pub(crate) fn end(mut self, store: &'static str) -> Result<()> {
        self.stop().unwrap_or_else(|| Err(Error::failed(store, "the thread that flushes each second died")))
    }

    fn stop(&mut self) -> Option<Result<()>> {
        *self.shared.ended.lock() = true;
        self.shared.wake.notify_all();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // An error that nobody asked for with `end` has nobody to go to.
        drop(self.stop());
    }
}
