//! Shared by the stores: options by name, and a thread that flushes once a second.
//!
//! An option that a store does not know is an error that lists the known ones. The drop of a [`Flusher`]
//! waits for its thread, so that no flush uses a handle that is being closed; the thread's first error is
//! kept and returned by [`Flusher::end`].

use seawall_bench::{Error, Result, Settings};
use std::fmt::Display;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a commit at the level `deferred` stays unflushed.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The options of a store, which takes them one by one.
pub(crate) struct Options<'s> {
    store: &'static str,
    left: Vec<&'s (String, String)>,
    known: Vec<&'static str>,
}

impl<'s> Options<'s> {
    pub(crate) fn new(store: &'static str, settings: &'s Settings) -> Self {
        Self { store, left: settings.options.iter().collect(), known: Vec::new() }
    }

    /// The last value given for `name`, if any.
    pub(crate) fn take<T: FromStr<Err: Display>>(&mut self, name: &'static str) -> Result<Option<T>> {
        self.known.push(name);
        let given = self.left.iter().rev().find(|(key, _)| key == name).copied();
        self.left.retain(|(key, _)| key != name);
        let Some((_, value)) = given else { return Ok(None) };
        let refused = |error| Error::failed(self.store, format!("option {name}: {value:?} is not understood: {error}"));
        value.parse().map(Some).map_err(refused)
    }

    /// The options not taken yet, for a store that reads options itself.
    pub(crate) fn rest(self) -> Vec<&'s (String, String)> {
        self.left
    }

    /// Refuses options that were not taken.
    pub(crate) fn end(self) -> Result<()> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let known = self.known.join(", ");
        Err(Error::failed(self.store, format!("there is no option {name:?}; there are: {known}")))
    }
}

/// `name` and `value` as a setting to display.
pub(crate) fn setting(name: &str, value: impl Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// Waits until `busy` has returned 0 for a while: a due compaction starts at once.
pub(crate) fn until_idle(busy: impl Fn() -> Result<u64>) -> Result<()> {
    let mut idle = 0;
    while idle < 10 {
        std::thread::sleep(Duration::from_millis(20));
        idle = if busy()? == 0 { idle + 1 } else { 0 };
    }
    Ok(())
}

/// Bounds of keys.
pub(crate) type Bounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// The bounds of a range, unless it is empty.
pub(crate) fn bounds<'k>(from: &'k [u8], to: Option<&'k [u8]>) -> Option<Bounds<'k>> {
    let bounds = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
    to.is_none_or(|to| from < to).then_some(bounds)
}

/// Consumes `visits`, from the front or from the back, until one is false.
pub(crate) fn while_true(mut visits: impl DoubleEndedIterator<Item = Result<bool>>, backward: bool) -> Result<()> {
    while let Some(goes_on) = if backward { visits.next_back() } else { visits.next() } {
        if !goes_on? {
            break;
        }
    }
    Ok(())
}

/// A thread that flushes each [`FLUSH_INTERVAL`], for stores whose commits do not flush.
pub(crate) struct Flusher {
    store: &'static str,
    /// The sender that keeps the thread running, and the thread, if there is one.
    thread: Option<(Sender<()>, JoinHandle<Result<()>>)>,
}

impl Flusher {
    /// Starts the thread if it is `needed`; it calls `flush` until that fails or the flusher ends.
    pub(crate) fn new(store: &'static str, needed: bool, flush: impl Fn() -> Result<()> + Send + 'static) -> Self {
        let start = || {
            let (going_on, ended) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                while ended.recv_timeout(FLUSH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    flush()?;
                }
                Ok(())
            });
            (going_on, thread)
        };
        Self { store, thread: needed.then(start) }
    }

    /// Ends the thread, and returns its error.
    pub(crate) fn end(&mut self) -> Result<()> {
        let Some((going_on, thread)) = self.thread.take() else { return Ok(()) };
        drop(going_on);
        let died = || Error::failed(self.store, "the thread that flushes each second died");
        thread.join().unwrap_or_else(|_| Err(died()))
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // A drop cannot report the error; `end` would have.
        drop(self.end());
    }
}
