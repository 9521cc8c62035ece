//! One cell of a scan, from an empty directory to its result.
//!
//! ```text
//!   data directory ──open with much memory──> loaded, closed (or there already) ──bound memory──> opened cold ──measure──> closed ──fio──> result
//! ```
//!
//! 1. The memory of the load does not affect where rows are placed, and a random load beyond memory takes
//!    hours in some stores: so the load gets a pool of twice the data, if the machine has that; bounds apply
//!    afterwards.
//! 2. fio reads the file after the store is closed, while nothing else runs.

use super::fio::{self, Pattern};
use super::query::{COLD_FACTOR, Order, Query, Rows};
use crate::cgroup::MemoryGroup;
use crate::process;
use crate::run::cell::{Cell, Open, Ran, cold};
use crate::run::{Limit, RunConfig};
use crate::store::{Result, Settings};
use seawall_lab::run::{Progress, this_machine};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The load's pool as a multiple of the data.
const LOAD_POOL_FACTOR: u64 = 2;
/// The load's pool is at most one part in this many of the machine's memory.
const LOAD_POOL_PART: u64 = 4;
/// The longest time for one fio pattern.
const FIO_TIME: Duration = Duration::from_secs(3);

/// One cell to run.
#[derive(Debug, Clone)]
pub struct ScanRun {
    /// The request; [`Cell::workload`] is the query's name, [`Cell::threads`] all threads.
    pub cell: Cell,
    /// The order in which rows were inserted.
    pub order: Order,
    /// The query of the scanning threads.
    pub query: Query,
    /// How many of the threads read single random keys.
    pub readers: usize,
    /// Whether fio reads the file afterwards.
    pub fio: bool,
    /// Where, how long, and with what settings.
    pub config: RunConfig,
}

impl ScanRun {
    /// The table.
    pub(super) fn rows(&self) -> Rows {
        let Cell { keys, value_size, seed, .. } = self.cell;
        Rows { keys, value_size, order: self.order, seed }
    }

    /// Checks the request before anything is written.
    ///
    /// # Errors
    /// What to give instead.
    pub fn check(&self) -> Result<(), String> {
        if self.cell.threads == 0 {
            return Err("neither scans nor point reads: give at least one thread of either".into());
        }
        self.cell.check()?;
        let Cell { keys, value_size, pool_bytes, .. } = self.cell;
        let (data, least) = (self.cell.data_bytes(), Rows::keys_for(pool_bytes, value_size));
        if keys < least {
            return Err(format!(
                "{keys} keys are {data} bytes, less than {COLD_FACTOR} times the pool of {pool_bytes} bytes, so that \
                 scans would find pages in memory: give --keys {least} or more, or a smaller --pool"
            ));
        }
        let rows = self.query.rows(keys);
        if matches!(self.query, Query::Range(_)) && rows > keys {
            return Err(format!("ranges of {rows} rows in a table of {keys}: give at most as many, or more rows"));
        }
        Ok(())
    }

    /// Runs the cell.
    ///
    /// # Errors
    /// [`crate::Error`]; an error inside the window is in [`Ran::error`] instead, together with the result so far.
    pub fn run(&self, open: &Open<'_>, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<Ran> {
        self.check()?;
        let bound = || self.cell.memory_limit_bytes.map(MemoryGroup::enter).transpose();
        // A bound that cannot be set is refused before the load.
        drop(bound()?);
        let (cell, marker) = (&self.cell, self.cell.marker(self.order.word()));
        let (mut data_dir, settings) = self.config.prepare(cell, marker, &["rows"], cell.data_bytes())?;
        let mut ran = Ran::default();
        let fill = || {
            let wanted = self.cell.data_bytes().saturating_mul(LOAD_POOL_FACTOR);
            let pool_bytes = wanted.min(this_machine().memory_bytes / LOAD_POOL_PART).max(self.cell.pool_bytes);
            let store = open(&Settings { pool_bytes, ..settings.clone() })?;
            let load = self.rows().fill(&*store, progress, stop)?;
            store.close().map(|()| load)
        };
        if !self.config.load(&mut data_dir, &mut ran, fill)? {
            return Ok(ran);
        }
        let bounded = bound()?;
        let store = cold(&settings, open)?;
        let (driven, figures) = self.measure(&*store, data_dir.dir(), progress, stop);
        let about = store.about();
        store.close()?;
        drop(bounded);
        let mut result = self.cell.result(&driven, about, data_dir.dir(), ran.load.clone());
        ran.error = driven.error;
        result.extra = figures;
        if self.fio && ran.error.is_none() {
            ran.error = self.beside_fio(&data_dir.data(), &mut result.extra, progress, stop).err();
        }
        Ok(Ran { result: Some(result), ..ran })
    }

    /// Adds fio's reads of the same file, and the scan's figures relative to them.
    fn beside_fio(
        &self,
        dir: &Path,
        extra: &mut BTreeMap<String, Value>,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<()> {
        let file = match fio::data_file(dir, self.cell.data_bytes()) {
            _ if !process::is_installed("fio") => Err("not measured: fio is missing; on Debian: apt-get install fio"),
            found => found.ok_or("not measured: no single file holds the data"),
        };
        let file = match file {
            Ok(file) => file,
            Err(why) => {
                extra.insert("fio".into(), why.into());
                return Ok(());
            }
        };
        let time = if let Limit::For(time) = self.config.limit { time.min(FIO_TIME) } else { FIO_TIME };
        progress.begin("fio on the same file", Pattern::ALL.len() as u64);
        for (done, pattern) in Pattern::ALL.into_iter().enumerate() {
            progress.at(done as u64, &pattern.to_string());
            let reads = fio::measure(pattern, &file, time, stop)?;
            let (unit, figure, theirs) = match pattern {
                Pattern::Random(_) => ("reads_per_s", "scan_device_reads_per_s", reads.reads_per_s),
                Pattern::Sequential => ("mb_per_s", "device_read_mb_per_s", reads.mb_per_s),
            };
            let ratio = extra.get(figure).and_then(Value::as_f64).map(|ours| ours / theirs);
            extra.insert(format!("beside_{pattern}"), ratio.into());
            extra.insert(format!("{pattern}_{unit}"), theirs.into());
        }
        Ok(())
    }
}
