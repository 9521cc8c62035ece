//! Databases that are opened anew for each round, under settings to be measured (a `seawall.toml` in the database's
//! directory, as in production), and closed after it.
//!
//! 1. [`Ranges`] (E6) reads ranges of rows from a tree that is only on the disk: with nothing in the page cache. The
//!    ranges of a round do not overlap, and each is read once: when all are read, the round is over.
//! 2. [`Commits`] makes small flushed commits on a tree in memory, so that a commit waits for the log only.

use super::{Repeat, issued, settings};
use crate::run::cell::cold;
use crate::scan::{Order, Rows};
use crate::store::{Error, Result, Settings, Store};
use crate::stores::Seawall;
use crate::workload::{Permutation, Values, key, thread_rng};
use rand::Rng as _;
use seawall_lab::cell::{Access, Ahead, CellSpec, FlushMethod, KeyOrder};
use seawall_lab::run::{EngineWork, Issued, LabError, Progress, ROW_BYTES, Ready, Worker};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The only table.
const TABLE: &str = "rows";
/// Bytes stored with a row's value: its key, and the engine's own bytes.
const BESIDE_VALUE_BYTES: u64 = 20;
/// The small database of commits.
const COMMIT_ROWS: u64 = 10_000;
const COMMIT_VALUE_BYTES: u64 = 100;
const COMMIT_POOL_BYTES: u64 = 32 << 20;

/// A database with one tree; `order` is that of a tree to be read cold.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) order: Option<KeyOrder>,
    settings: Settings,
    rows: Rows,
    range_rows: u64,
}

impl Rounds {
    /// Creates and fills the database.
    pub(super) fn make(
        work: &EngineWork<'_>,
        order: Option<KeyOrder>,
        progress: &mut dyn Progress,
    ) -> Result<Self, LabError> {
        let (sizes, seed) = (work.sizes, work.seed);
        let rows = match order {
            Some(order) => {
                let order = if order == KeyOrder::InOrder { Order::Ordered } else { Order::Fragmented };
                Rows { keys: sizes.tree_rows().into(), value_size: ROW_BYTES - BESIDE_VALUE_BYTES, order, seed }
            }
            None => Rows { keys: COMMIT_ROWS, value_size: COMMIT_VALUE_BYTES, order: Order::Ordered, seed },
        };
        let (name, pool_bytes) =
            order.map_or(("commits", COMMIT_POOL_BYTES), |order| (order.word(), sizes.pool_bytes()));
        let settings = settings(work.dir.join(name), pool_bytes, sizes, &[TABLE]);
        // Filled in memory: with the small pool, inserts in random order would take many times as long and
        // place rows the same way.
        let pool_bytes = if order.is_some() { 2 * sizes.tree_bytes.max(8 << 20) } else { pool_bytes };
        let store = Seawall::open(&Settings { pool_bytes, ..settings.clone() })?;
        let filled = rows.fill(&store, progress, work.stop);
        Box::new(store).close()?;
        filled?;
        Ok(Self { order, settings, rows, range_rows: sizes.range_rows.into() })
    }

    /// Opens the database for a round, with the cell's settings; where the cell has none, with `seawall_toml` or the
    /// engine's defaults.
    pub(super) fn ready(&self, spec: &CellSpec, seawall_toml: Option<&str>, seed: u64) -> Result<Box<dyn Ready + '_>> {
        let mut settings = self.settings.clone();
        if let Some(ahead) = spec.engine.and_then(|e| e.ahead) {
            let method = if spec.access == Access::Direct { FlushMethod::ODirect } else { FlushMethod::Fsync };
            let mut set = |name: &str, value: String| settings.options.push((name.to_owned(), value));
            set("data_flush_method", method.word().to_owned());
            match ahead {
                Ahead::None => set("prefetch_depth", "0".to_owned()),
                Ahead::Adaptive => {}
                Ahead::Window(pages) => {
                    set("prefetch_window", pages.to_string());
                    set("prefetch_depth", pages.to_string());
                }
            }
        }
        put_settings(&settings.dir, seawall_toml)?;
        let dir = settings.dir.clone();
        if self.order.is_none() {
            let store = Seawall::open(&settings)?;
            store.session()?.range(&[], Some(&key(COMMIT_ROWS)), &mut |_, _| ())?;
            return Ok(Box::new(Round { dir, store, work: Commits { seed } }));
        }
        let store = cold(&settings, Seawall::open)?;
        let ranges = (self.rows.keys / self.range_rows).max(1);
        let (order, rows) = (Permutation::new(ranges, seed), self.range_rows.min(self.rows.keys));
        let work = Ranges { order, ranges, rows, value_size: self.rows.value_size, next: AtomicU64::new(0) };
        Ok(Box::new(Round { dir, store, work }))
    }
}

/// Writes the `seawall.toml` to be measured, or removes it.
fn put_settings(dir: &Path, seawall_toml: Option<&str>) -> Result<()> {
    let path = dir.join(seawall::options::FILE_NAME);
    let put = match seawall_toml {
        Some(text) => std::fs::write(&path, text),
        None => std::fs::remove_file(&path),
    };
    match put {
        Err(e) if seawall_toml.is_some() || e.kind() != ErrorKind::NotFound => {
            Err(Error::failed("lab", format!("cannot change {}: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

/// The database, open for one round.
struct Round<W> {
    dir: PathBuf,
    store: Seawall,
    work: W,
}

/// What the threads of a round do.
trait Work: Sync {
    fn worker<'r>(&'r self, store: &'r Seawall, thread: u32) -> Result<Box<dyn Worker + 'r>>;
}

impl<W: Work> Ready for Round<W> {
    fn worker(&self, thread: u32) -> Result<Box<dyn Worker + '_>, LabError> {
        Ok(self.work.worker(&self.store, thread)?)
    }

    fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    fn issued(&self) -> Issued {
        issued(&self.store)
    }

    fn finish(self: Box<Self>) -> Result<(), LabError> {
        self.store.settle()?;
        Box::new(self.store).close()?;
        Ok(put_settings(&self.dir, None)?)
    }
}

/// Small commits.
struct Commits {
    seed: u64,
}

impl Work for Commits {
    fn worker<'r>(&'r self, store: &'r Seawall, thread: u32) -> Result<Box<dyn Worker + 'r>> {
        let values = Values::new(COMMIT_VALUE_BYTES as usize, self.seed);
        let (mut rng, mut value) = (thread_rng(self.seed, thread as usize), Vec::new());
        let mut session = store.session()?;
        Ok(Box::new(Repeat(move || {
            values.fill(&mut value, &mut rng);
            session.put(&key(rng.random_range(0..COMMIT_ROWS)), &value)?;
            Ok(true)
        })))
    }
}

/// Cold reads of `ranges` ranges of `rows` rows, in a random order.
struct Ranges {
    order: Permutation,
    ranges: u64,
    rows: u64,
    value_size: u64,
    next: AtomicU64,
}

impl Work for Ranges {
    fn worker<'r>(&'r self, store: &'r Seawall, _thread: u32) -> Result<Box<dyn Worker + 'r>> {
        let (mut session, rows) = (store.session()?, self.rows);
        Ok(Box::new(Repeat(move || {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.ranges {
                return Ok(false);
            }
            let (first, mut bytes) = (self.order.at(n) * rows, 0);
            let mut visit = |_: &[u8], value: &[u8]| bytes += std::hint::black_box(value).len() as u64;
            let found = session.range(&key(first), Some(&key(first + rows)), &mut visit)?;
            if (found, bytes) == (rows, rows * self.value_size) {
                return Ok(true);
            }
            let what = format!("a query from row {first} found {found} rows, {bytes} bytes, and not {rows}");
            Err(Error::failed("lab", what))
        })))
    }
}
