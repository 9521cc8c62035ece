//! One cell of TPC-C, from an empty directory to its result.
//!
//! ```text
//!   data directory ──open──> loaded by all threads, settled (or there already) ──drive──> result ──conditions checked──close──>
//! ```
//!
//! 1. Latencies and counts by transaction cover the same window as all other figures.
//! 2. Before the warm-up every row is read once.
//! 3. The conditions are checked after every window that ended by itself, on reused data as well.

use super::check::{Checked, check};
use super::client::{Client, Kind, by_kind};
use super::load::fill;
use super::{Shape, TABLES};
use crate::observe::Observer;
use crate::results::{CellResult, named};
use crate::run::cell::{Open, Ran};
use crate::run::data_dir::Marker;
use crate::run::drive::{Driven, drive};
use crate::run::load::charge;
use crate::run::{Cell, RunConfig};
use crate::store::Store;
use seawall_lab::run::Progress;
use serde_json::json;
use std::sync::atomic::AtomicBool;

/// The most warehouses: their number has two bytes.
pub const WAREHOUSES_MAX: u16 = u16::MAX - 1;
/// Approximate bytes of a warehouse's rows.
const WAREHOUSE_BYTES: u64 = 90 << 20;

/// One cell to run.
#[derive(Debug, Clone)]
pub struct TpccRun {
    /// The request.
    pub cell: Cell,
    /// The database, of up to [`WAREHOUSES_MAX`] warehouses.
    pub shape: Shape,
    /// Where, how long, and with what settings.
    pub config: RunConfig,
}

/// The outcome of a run, and what the consistency checks found; `None` if they were not reached.
pub type Checks = (Ran, Option<Checked>);

impl TpccRun {
    /// Checks the request before anything is written.
    ///
    /// # Errors
    /// What to give instead.
    pub fn check(&self) -> Result<(), String> {
        self.cell.check_threads()?;
        if self.shape.warehouses == 0 || self.shape.warehouses > WAREHOUSES_MAX {
            return Err(format!("--warehouses {}: give 1 to {WAREHOUSES_MAX}", self.shape.warehouses));
        }
        if self.shape.items == 0 || self.shape.customers == 0 {
            return Err("the scale needs at least one item and one customer".into());
        }
        Ok(())
    }

    fn marker(&self) -> Marker {
        named([
            ("store", self.cell.store.clone()),
            ("workload", "tpcc".into()),
            ("warehouses", self.shape.warehouses.to_string()),
            ("items", self.shape.items.to_string()),
            ("customers", self.shape.customers.to_string()),
        ])
        .collect()
    }

    /// Runs the cell, then checks the consistency of the data.
    ///
    /// # Errors
    /// [`crate::Error`]; an error inside the window is in [`Ran::error`] instead, together with the result so far.
    pub fn run(&self, open: &Open<'_>, progress: &mut dyn Progress, stop: &AtomicBool) -> crate::Result<Checks> {
        self.check()?;
        let data_bytes = u64::from(self.shape.warehouses) * WAREHOUSE_BYTES;
        let (mut data_dir, settings) = self.config.prepare(&self.cell, self.marker(), &TABLES, data_bytes)?;
        let store = open(&settings)?;
        let (mut ran, mut checked) = (Ran::default(), None);
        let (shape, threads, seed) = (self.shape, self.cell.threads, self.cell.seed);
        let mut observer = Observer::new(data_dir.dir());
        let fill = || fill(&*store, shape, seed, threads, &mut observer, progress, stop);
        if !self.config.load(&mut data_dir, &mut ran, fill)? {
            store.close()?;
            return Ok((ran, None));
        }
        progress.begin("reading all once", TABLES.len() as u64);
        read_all(&*store, progress)?;
        let steady = store.steady();
        let spec = self.config.spec(threads, &*steady, stop);
        let mut driven =
            drive(&spec, &mut observer, progress, "tpcc", |thread| Client::new(&*store, shape, thread as u16, seed));
        ran.error = driven.error.take();
        let whole = ran.error.is_none();
        let charged = whole.then(|| charge(&*store, &mut driven, &mut observer, progress)).transpose()?;
        let mut result = self.cell.result(&driven, store.about(), data_dir.dir(), ran.load.clone());
        if whole {
            progress.begin("checking consistency", 1);
            match check(&*store, shape) {
                Ok(found) => checked = Some(found),
                Err(error) => ran.error = Some(error),
            }
        }
        self.describe(&mut result, &driven, checked.as_ref());
        result.extra.extend(named(charged.into_iter().flatten()));
        ran.result = Some(result);
        drop(steady);
        let closed = store.close();
        ran.error = ran.error.or(closed.err());
        Ok((ran, checked))
    }

    /// Adds the figures of TPC-C.
    fn describe(&self, result: &mut CellResult, driven: &Driven, checked: Option<&Checked>) {
        let (kinds, rolled_back) = by_kind(driven);
        let minutes = result.measured.duration_s / 60.0;
        let per_minute = |ops: u64| if minutes > 0.0 { ops as f64 / minutes } else { 0.0 };
        let transactions = Kind::ALL.iter().zip(&kinds).map(|(kind, latencies)| {
            let figures = json!({
                "ops": latencies.ops,
                "p50_us": latencies.quantile_us(0.5),
                "p95_us": latencies.quantile_us(0.95),
                "p99_us": latencies.quantile_us(0.99),
                "max_us": latencies.max_us(),
            });
            (kind.word().to_owned(), figures)
        });
        let violations = checked.map(|checked| checked.violations.len() as u64 + checked.more);
        let extra = [
            ("warehouses", self.shape.warehouses.into()),
            ("items", self.shape.items.into()),
            ("customers_per_district", self.shape.customers.into()),
            ("tpmc", per_minute(kinds[Kind::NewOrder as usize].ops).into()),
            ("tpm_total", per_minute(result.measured.ops).into()),
            ("rolled_back", rolled_back.into()),
            ("transactions", transactions.collect::<serde_json::Map<_, _>>().into()),
            ("violations", violations.into()),
        ];
        result.extra = named(extra).collect();
    }
}

/// Reads every row once: all stores begin with the data in memory, whether or not this process loaded it.
fn read_all(store: &dyn Store, progress: &mut dyn Progress) -> crate::Result<()> {
    let mut session = store.session()?;
    for (table, name) in TABLES.iter().enumerate() {
        progress.at(table as u64, name);
        let mut tx = session.begin()?;
        tx.scan(table, &[], &[0xff; 64], false, &mut |_, value| {
            std::hint::black_box(value.first());
            true
        })?;
    }
    Ok(())
}
