//! E5: three loads on a database in memory, at a durability level.
//!
//! 1. Read-only reads one row by its key, like sysbench simple. Transactional is one transaction with ten rows by key,
//!    four ranges of a hundred rows, two changes, a deletion and an insertion, like sysbench complex. TPC-C has one
//!    warehouse per thread.
//! 2. A transaction that met a conflict runs again, and its latency includes the retries.

use super::{Repeat, issued, settings};
use crate::observe::Observer;
use crate::process::go_on;
use crate::run::load::Loader;
use crate::run::{Operation, Outcome};
use crate::store::{Error, Result, Store};
use crate::stores::Seawall;
use crate::tpcc::client::Client;
use crate::tpcc::load::{fill, rows_about};
use crate::tpcc::{Shape, TABLES};
use crate::workload::{Values, key, thread_rng};
use rand::Rng as _;
use rand_pcg::Pcg64Mcg;
use seawall::Tree;
use seawall_lab::cell::{FlushMethod, Level, Pattern};
use seawall_lab::run::{EngineWork, Issued, LabError, Progress, Ready, Worker};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The table of the read-only and transactional loads.
const ROWS: &str = "rows";
/// Bytes of its values: like sysbench's padding and the other columns of its row.
const VALUE_BYTES: usize = 180;
/// The longest wait for purge at the end of a round.
const PURGE_WAIT: Duration = Duration::from_secs(1);
/// Reads of a transaction of the transactional load, in addition to two changes, a deletion and an insertion.
const POINTS: usize = 10;
const RANGES: usize = 4;
const RANGE_ROWS: u64 = 100;

/// A database with one flush method.
#[derive(Debug)]
pub(super) struct Levels {
    pub(super) method: FlushMethod,
    dir: PathBuf,
    store: Seawall,
    tree: Tree,
    rows: u64,
    shape: Shape,
}

impl Levels {
    /// Creates and fills the database.
    pub(super) fn make(
        work: &EngineWork<'_>,
        method: FlushMethod,
        progress: &mut dyn Progress,
    ) -> Result<Self, LabError> {
        let sizes = work.sizes;
        let dir = work.dir.join(format!("levels-{}", method.word()));
        let tables: Vec<&str> = TABLES.into_iter().chain([ROWS]).collect();
        let shape = Shape { warehouses: sizes.warehouses, items: sizes.items, customers: sizes.customers };
        // Space for all of the data, its growth by the loads, and versions that no transaction needs any more.
        let data_bytes = u64::from(sizes.rows) * 250 + 160 * rows_about(shape);
        let mut settings = settings(dir.clone(), (3 * data_bytes).max(16 << 20), sizes, &tables);
        let methods = ["data_flush_method", "log_flush_method"].map(|name| (name.to_owned(), method.word().to_owned()));
        settings.options.extend(methods);
        settings.durability = seawall::Durability::Deferred;
        let store = Seawall::open(&settings)?;
        let tree = store.database().open_tree(ROWS).map_err(Error::from)?;
        let levels = Self { method, dir, store, tree, rows: sizes.rows.into(), shape };
        if let Err(error) = levels.fill(work, progress) {
            // The first error is the one reported.
            drop(Box::new(levels.store).close());
            return Err(error.into());
        }
        Ok(levels)
    }

    /// Creates the rows of all loads.
    fn fill(&self, work: &EngineWork<'_>, progress: &mut dyn Progress) -> Result<()> {
        progress.begin(&format!("making a database, {}", self.method.word()), self.rows);
        let mut loader = Loader::new(0..self.rows, None, VALUE_BYTES as u64, work.seed, 0);
        while let Some(rows) = loader.next_batch() {
            go_on(work.stop)?;
            self.store.database().transact(|tx| tx.put_many(&self.tree, rows))?;
            progress.at(loader.done(), "rows");
        }
        let observer = &mut Observer::new(&self.dir);
        fill(&self.store, self.shape, work.seed, 1, observer, progress, work.stop).map(drop)
    }

    /// One operation of the read-only load. A missing or changed row means a broken engine, not a fast one.
    fn read(&self, n: u64) -> Result<bool> {
        let db = self.store.database();
        match db.get_with(&self.tree, &key(n), |value| std::hint::black_box(value).len())? {
            Some(VALUE_BYTES) => Ok(true),
            Some(bytes) => Err(Error::failed("lab", format!("row {n} has {bytes} bytes and not {VALUE_BYTES}"))),
            None => Err(Error::failed("lab", format!("row {n} is gone"))),
        }
    }

    /// One operation of the transactional load.
    fn transact(&self, rng: &mut Pcg64Mcg, values: &Values) -> Result<bool> {
        let (tree, rows) = (&self.tree, self.rows);
        let range = RANGE_ROWS.min(rows);
        let points: [u64; POINTS] = std::array::from_fn(|_| rng.random_range(0..rows));
        let ranges: [u64; RANGES] = std::array::from_fn(|_| rng.random_range(0..=rows - range));
        let changed: [u64; 3] = std::array::from_fn(|_| rng.random_range(0..rows));
        let mut value = Vec::new();
        values.fill(&mut value, rng);
        let done = self.store.database().transact(|tx| {
            let mut seen = 0;
            for n in points {
                seen += u64::from(tx.get_with(tree, &key(n), |v| std::hint::black_box(v).len())?.is_some());
            }
            for first in ranges {
                for row in tx.range(tree, key(first)..key(first + range)) {
                    seen += u64::from(!row?.1.is_empty());
                }
            }
            for n in &changed[..2] {
                tx.put(tree, &key(*n), &value)?;
            }
            tx.delete(tree, &key(changed[2]))?;
            tx.insert(tree, &key(changed[2]), &value)?;
            Ok(seen)
        });
        let (seen, expected) = (done?, POINTS as u64 + RANGES as u64 * range);
        if seen == expected {
            return Ok(true);
        }
        Err(Error::failed("lab", format!("a transaction found {seen} rows and not {expected}")))
    }

    /// Prepares a load at a level.
    pub(super) fn ready(&self, load: Pattern, level: Level, seed: u64) -> Result<Box<dyn Ready + '_>, LabError> {
        self.store.database().set("durability", level.word()).map_err(Error::from)?;
        Ok(Box::new(Loaded { levels: self, load, seed }))
    }
}

/// A prepared load.
struct Loaded<'l> {
    levels: &'l Levels,
    load: Pattern,
    seed: u64,
}

impl Ready for Loaded<'_> {
    fn worker(&self, thread: u32) -> Result<Box<dyn Worker + '_>, LabError> {
        let (levels, mut rng) = (self.levels, thread_rng(self.seed, thread as usize));
        match self.load {
            Pattern::ReadOnly => Ok(Box::new(Repeat(move || levels.read(rng.random_range(0..levels.rows))))),
            Pattern::Transactional => {
                let values = Values::new(VALUE_BYTES, self.seed);
                Ok(Box::new(Repeat(move || levels.transact(&mut rng, &values))))
            }
            Pattern::Tpcc => {
                let mut client = Client::new(&levels.store, levels.shape, thread as u16, self.seed)?;
                Ok(Box::new(Repeat(move || {
                    while client.next()? == Outcome::Conflict {}
                    Ok(true)
                })))
            }
            other => Err(LabError::Unavailable(format!("E5 has no load {}", other.word()))),
        }
    }

    fn dir(&self) -> PathBuf {
        self.levels.dir.clone()
    }

    fn issued(&self) -> Issued {
        issued(&self.levels.store)
    }

    fn finish(self: Box<Self>) -> Result<(), LabError> {
        // Purge changes pages: work that it postpones would be written during another round.
        let patience = Instant::now() + PURGE_WAIT;
        while self.levels.store.database().stats().purge.history > 0 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(self.levels.store.settle()?)
    }
}
