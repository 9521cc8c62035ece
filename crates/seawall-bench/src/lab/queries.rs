//! E6: ranges of rows read from a tree that is only on the disk.
//!
//! 1. The ranges of a round do not overlap, and each is read once: when all are read, the round is over.
//! 2. A database is opened for one round, with nothing in the page cache, and closed after it.

use super::{Repeat, Result, close, failed, fill, issued, put_settings, settings};
use crate::run::cell::cold;
use crate::scan::{Order, Rows};
use crate::store::{Session, Settings, Store};
use crate::stores::Seawall;
use crate::workload::{Permutation, key};
use seawall_lab::cell::{Access, Ahead, CellSpec, FlushMethod, KeyOrder};
use seawall_lab::run::{EngineSizes, EngineWork, Issued, LabError, Progress, ROW_BYTES, Ready, Worker};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The only table.
const TABLE: &str = "rows";
/// Bytes stored with a row's value: its key, and the engine's own bytes.
const BESIDE_VALUE_BYTES: u64 = 20;

/// A database with one tree.
#[derive(Debug)]
pub(super) struct Trees {
    pub(super) order: KeyOrder,
    settings: Settings,
    rows: Rows,
    range_rows: u64,
}

fn rows(order: KeyOrder, sizes: EngineSizes, seed: u64) -> Rows {
    let order = match order {
        KeyOrder::InOrder => Order::Ordered,
        KeyOrder::Fragmented => Order::Fragmented,
    };
    Rows { keys: sizes.tree_rows().into(), value_size: ROW_BYTES - BESIDE_VALUE_BYTES, order, seed }
}

impl Trees {
    /// Creates and fills the database.
    pub(super) fn make(work: &EngineWork<'_>, order: KeyOrder, progress: &mut dyn Progress) -> Result<Self> {
        let sizes = work.sizes;
        let settings = settings(work.dir.join(order.word()), sizes.pool_bytes(), sizes, &[TABLE]);
        let rows = rows(order, sizes, work.seed);
        // Filled in memory: with the small pool, inserts in random order would take many times as long and
        // place rows the same way.
        let filling = Settings { pool_bytes: 2 * sizes.tree_bytes.max(8 << 20), ..settings.clone() };
        fill(&rows, &filling, work, progress)?;
        Ok(Self { order, settings, rows, range_rows: sizes.range_rows.into() })
    }

    /// Opens the database for a round, with the cell's settings; where the cell has none, with `seawall_toml` or the
    /// engine's defaults.
    pub(super) fn ready(&self, spec: &CellSpec, seawall_toml: Option<&str>, seed: u64) -> Result<Box<dyn Ready + '_>> {
        let dir = self.settings.dir.clone();
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
        put_settings(&dir, seawall_toml)?;
        let store = cold(&settings, Seawall::open)?;
        let ranges = (self.rows.keys / self.range_rows).max(1);
        let order = Permutation::new(ranges, seed);
        Ok(Box::new(Cold { trees: self, store, order, ranges, next: AtomicU64::new(0) }))
    }
}

/// The database, open for one round.
struct Cold<'t> {
    trees: &'t Trees,
    store: Seawall,
    order: Permutation,
    ranges: u64,
    next: AtomicU64,
}

impl Cold<'_> {
    /// Reads the next range; false when all are read.
    fn query(&self, session: &mut dyn Session) -> Result<bool> {
        let Rows { keys, value_size, .. } = self.trees.rows;
        let rows = self.trees.range_rows.min(keys);
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        if n >= self.ranges {
            return Ok(false);
        }
        let (first, mut bytes) = (self.order.at(n) * rows, 0);
        let mut visit = |_: &[u8], value: &[u8]| bytes += std::hint::black_box(value).len() as u64;
        let found = session.range(&key(first), Some(&key(first + rows)), &mut visit)?;
        if (found, bytes) == (rows, rows * value_size) {
            return Ok(true);
        }
        Err(LabError::Engine(format!("a query from row {first} found {found} rows, {bytes} bytes, and not {rows}")))
    }
}

impl Ready for Cold<'_> {
    fn worker(&self, _thread: u32) -> Result<Box<dyn Worker + '_>> {
        let mut session = self.store.session()?;
        Ok(Box::new(Repeat(move || self.query(&mut *session))))
    }

    fn dir(&self) -> PathBuf {
        self.trees.settings.dir.clone()
    }

    fn issued(&self) -> Issued {
        issued(&self.store)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.store.database().checkpoint().map_err(failed)?;
        close(self.store)?;
        put_settings(&self.trees.settings.dir, None)
    }
}
