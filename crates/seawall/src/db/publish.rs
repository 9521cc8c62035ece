//! Publishes the statistics of an open database for other processes, in a small file in its directory.
//!
//! 1. The file is written under another name and renamed: a reader sees the old or the new contents, never a
//!    mix.
//! 2. Nothing waits for it and nothing depends on it. If it cannot be written (a full disk), the database
//!    goes on, and the file's age shows it.
//! 3. A reader must check its age: a killed process leaves its last statistics behind.

use super::counts::{Counts, SAMPLE_EVERY};
use super::metrics::{Stats, json};
use crate::counted::Mutex;
#[cfg(feature = "serde")]
use crate::error::{Corruption, Error, Result};
use parking_lot::Condvar;
#[cfg(feature = "serde")]
use seawall_io::{IoError, Op, errno::EIO};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The name of the file in the directory of a database.
pub const STATS_FILE: &str = "stats.json";

const VERSION: u32 = 1;

/// The last statistics that a process published about the database it has, or had, open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Published {
    /// The version of this format.
    pub version: u32,
    /// The id of the process.
    pub pid: u32,
    /// The time of the publication, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Whether the database was open then; otherwise these are the last numbers of a clean shutdown.
    pub open: bool,
    /// The time until the next publication, milliseconds; 0 for never.
    #[cfg_attr(feature = "serde", serde(default = "second"))]
    pub every_ms: u64,
    /// The statistics.
    pub stats: Stats,
}

impl Published {
    fn now(stats: Stats, open: bool, every: Duration) -> Self {
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        Self { version: VERSION, pid: std::process::id(), at_unix_ms: unix_ms(), open, every_ms, stats }
    }

    /// The contents of the file.
    fn to_json(&self) -> String {
        let Self { version, pid, at_unix_ms, open, every_ms, stats } = self;
        let mut out = String::with_capacity(16 << 10);
        json::put(&mut out, format_args!("{{\"version\":{version},\"pid\":{pid},\"at_unix_ms\":{at_unix_ms},"));
        json::put(&mut out, format_args!("\"open\":{open},\"every_ms\":{every_ms},\"stats\":"));
        json::stats(&mut out, stats);
        out.push('}');
        out
    }

    /// Reads the last publication for the database in `dir`; `None` if there was none.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::OtherFormat`]; [`Error::Corrupt`] if the file holds something else.
    #[cfg(feature = "serde")]
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(STATS_FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(IoError::os(Op::Open, &path, e.raw_os_error().unwrap_or(EIO)).into()),
        };
        let damaged = |e: serde_json::Error| Error::from(Corruption::File { path: path.clone(), why: e.to_string() });
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(damaged)?;
        match value["version"].as_u64().and_then(|version| u32::try_from(version).ok()) {
            Some(found) if found > VERSION => Err(Error::OtherFormat { path, found, supported: VERSION }),
            _ => serde_json::from_value(value).map(Some).map_err(damaged),
        }
    }

    /// Returns the age of this publication, by the machine's clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_millis(unix_ms().saturating_sub(self.at_unix_ms))
    }

    /// Returns whether the database still seems to be open: it was open a moment ago.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let late = Duration::from_millis(self.every_ms.saturating_mul(2).saturating_add(3000));
        self.open && self.age() < late
    }
}

/// The interval before it became an option, ms.
#[cfg(feature = "serde")]
fn second() -> u64 {
    1000
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The thread that publishes.
#[derive(Debug)]
pub(super) struct Publisher {
    state: Arc<State>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    path: PathBuf,
    counts: Arc<Counts>,
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Publisher {
    /// # Errors
    /// If the system cannot start another thread.
    pub(super) fn start(dir: &Path, counts: Arc<Counts>) -> std::io::Result<Self> {
        let path = dir.join(STATS_FILE);
        let state = Arc::new(State { path, counts, stop: Mutex::new(false), wake: Condvar::new() });
        let worker = state.clone();
        let thread = std::thread::Builder::new().name("seawall-stats".into()).spawn(move || worker.run())?;
        Ok(Self { state, thread })
    }

    /// Publishes a last time; returns when the thread has ended.
    pub(super) fn stop(self) {
        *self.state.stop.lock() = true;
        self.state.wake.notify_all();
        if self.thread.join().is_err() {
            // The thread has panicked, and the panic hook has reported that; closing continues.
        }
        // A reader sees from the age of the numbers that this failed (2).
        let _its_age_tells = self.state.write(false).is_err();
    }
}

impl State {
    fn run(&self) {
        let mut sampled = Instant::now();
        let mut published: Option<Instant> = None;
        let mut stop = self.stop.lock();
        while !*stop {
            let every = self.counts.publish_every();
            if !every.is_zero() && published.is_none_or(|at| at.elapsed() >= every) {
                parking_lot::MutexGuard::unlocked(&mut stop, || {
                    let _its_age_tells = self.write(true).is_err();
                });
                // After the write: an interval that is shorter than that does not keep a processor busy.
                published = Some(Instant::now());
                if *stop {
                    break;
                }
            }
            self.wake.wait_for(&mut stop, SAMPLE_EVERY);
            self.counts.sample(sampled.elapsed());
            sampled = Instant::now();
        }
    }

    fn write(&self, open: bool) -> std::io::Result<()> {
        let text = Published::now(self.counts.gather(), open, self.counts.publish_every()).to_json();
        let new = self.path.with_extension("json.new");
        // One that another user's process has left there may not be writable.
        std::fs::write(&new, &text)
            .or_else(|_| std::fs::remove_file(&new).and_then(|()| std::fs::write(&new, &text)))?;
        std::fs::rename(&new, &self.path)
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;
    use crate::{Database, Options};

    #[test]
    fn another_process_finds_the_numbers() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Published::read(dir.path()).unwrap(), None);
        let small = Options::default().with_log_capacity(4 << 20).with_data_initial_size(1 << 20);
        let db = Database::open_with(dir.path(), small).unwrap();
        let found = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(2));
            Published::read(dir.path()).unwrap()
        });
        let found = found.take(10_000).flatten().next().unwrap();
        assert!(found.is_live() && found.pid == std::process::id() && found.stats.pool.frames > 0);
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
        db.close().unwrap();
        let last = Published::read(dir.path()).unwrap().unwrap();
        assert!(!last.is_live() && last.stats.log.commits == 2, "{last:?}");
    }

    #[test]
    fn the_interval_is_an_option_and_a_reader_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let small = Options::default().with_log_capacity(4 << 20).with_data_initial_size(1 << 20);
        let db = Database::open_with(dir.path(), small.with_stats_interval(Duration::ZERO)).unwrap();
        std::thread::sleep(2 * SAMPLE_EVERY);
        assert_eq!(Published::read(dir.path()).unwrap(), None);
        db.set("stats_interval", "1h").unwrap();
        let found = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(2));
            Published::read(dir.path()).unwrap()
        });
        let mut found = found.take(10_000).flatten().next().unwrap();
        found.at_unix_ms -= 60_000;
        assert!(found.is_live(), "an old word of one who speaks seldom");
        found.every_ms = second();
        assert!(!found.is_live());
        db.close().unwrap();
        assert!(!Published::read(dir.path()).unwrap().unwrap().is_live());
    }

    #[test]
    fn what_is_no_statistics_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(STATS_FILE);
        std::fs::write(&path, "{\"version\": 1").unwrap();
        assert!(matches!(Published::read(dir.path()), Err(Error::Corrupt(_))));
        std::fs::write(&path, "{\"version\": 9}").unwrap();
        assert!(matches!(Published::read(dir.path()), Err(Error::OtherFormat { found: 9, .. })));
        std::fs::write(&path, "[]").unwrap();
        assert!(matches!(Published::read(dir.path()), Err(Error::Corrupt(_))));
    }
}
