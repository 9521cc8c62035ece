//! Creates and loads rows, before a workload or as one, and settles the store.
//!
//! 1. The same numbers, order, size, seed and thread give the same rows.
//! 2. A load before a workload uses one thread and batches of [`BATCH`] rows, not durable one by one; then
//!    the store settles.
//! 3. After a workload that writes, the store's postponed work is charged to the workload. A store in its steady state
//!    did such work during the window, so nothing more is charged. Otherwise the store settles after the window: that
//!    time is added to the window for the sustained rate, and the device's reads and writes meanwhile are added to the
//!    window's.

use super::drive::Driven;
use crate::observe::Observer;
use crate::process::go_on;
use crate::results::Load;
use crate::store::{Result, Store};
use crate::workload::{Permutation, Values, key, thread_rng};
use rand_pcg::Pcg64Mcg;
use seawall_lab::run::Progress;
use serde_json::Value;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Rows of one batch of a load.
pub const BATCH: u64 = 1000;

/// Makes the batches of one thread.
pub(crate) struct Loader {
    numbers: Range<u64>,
    order: Option<Permutation>,
    values: Values,
    rng: Pcg64Mcg,
    /// The current batch.
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    first: u64,
}

impl Loader {
    /// Rows with the keys of `numbers`, or of their permutation by `order`, and values of `size` bytes.
    pub(crate) fn new(numbers: Range<u64>, order: Option<Permutation>, size: u64, seed: u64, thread: usize) -> Self {
        let (first, values) = (numbers.start, Values::new(size as usize, seed));
        Self { numbers, order, values, rng: thread_rng(!seed, thread), rows: Vec::new(), first }
    }

    pub(crate) fn next_batch(&mut self) -> Option<&[(Vec<u8>, Vec<u8>)]> {
        let count = BATCH.min(self.numbers.end - self.numbers.start) as usize;
        // Reuses the memory of the last batch.
        self.rows.resize_with(count, Default::default);
        for ((row_key, value), number) in self.rows.iter_mut().zip(self.numbers.by_ref()) {
            row_key.clear();
            row_key.extend_from_slice(&key(self.order.map_or(number, |order| order.at(number))));
            self.values.fill(value, &mut self.rng);
        }
        (count > 0).then_some(&self.rows[..])
    }

    /// The last batch.
    pub(crate) fn batch(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.rows
    }

    pub(crate) fn done(&self) -> u64 {
        self.numbers.start - self.first
    }
}

/// Loads all rows of `loader` and settles.
pub(crate) fn fill(
    store: &dyn Store,
    mut loader: Loader,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Load> {
    let mut session = store.session()?;
    progress.begin("loading", loader.numbers.end - loader.numbers.start);
    let began = Instant::now();
    while let Some(rows) = loader.next_batch() {
        session.load(rows, false)?;
        go_on(stop)?;
        let rate = loader.done() as f64 / began.elapsed().as_secs_f64();
        progress.at(loader.done(), &format!("{rate:.0} rows/s"));
    }
    drop(session);
    let seconds = began.elapsed().as_secs_f64();
    Load::settled(store, loader.done(), seconds, progress)
}

/// Settles the store; returns how long that took, s.
pub(crate) fn settle(store: &dyn Store, progress: &mut dyn Progress) -> Result<f64> {
    progress.begin("settling", 1);
    let began = Instant::now();
    store.settle()?;
    Ok(began.elapsed().as_secs_f64())
}

impl Load {
    /// Settles the store after `rows` were loaded.
    pub(crate) fn settled(store: &dyn Store, rows: u64, seconds: f64, progress: &mut dyn Progress) -> Result<Self> {
        let settle_seconds = settle(store, progress)?;
        Ok(Self { rows_per_s: rows as f64 / seconds.max(1e-9), seconds, settle_seconds })
    }
}

/// Settles the store, unless it was steady during the window. Returns the figures for the result.
pub(crate) fn charge(
    store: &dyn Store,
    driven: &mut Driven,
    observer: &mut Observer<'_>,
    progress: &mut dyn Progress,
) -> Result<[(&'static str, Value); 3]> {
    let steady = driven.steady_after.map(|time| time.as_secs_f64());
    let mut settled = 0.0;
    if steady.is_none() {
        observer.begin();
        settled = settle(store, progress)?;
        if let (Some(device), Some(more)) = (&mut driven.observed.device, observer.end().device) {
            device.read_bytes += more.read_bytes;
            device.written_bytes += more.written_bytes;
        }
    }
    let seconds = driven.window.as_secs_f64() + settled;
    let sustained = if seconds > 0.0 { driven.ops as f64 / seconds } else { 0.0 };
    Ok([("steady_after_s", steady.into()), ("settle_seconds", settled.into()), ("sustained_per_s", sustained.into())])
}
