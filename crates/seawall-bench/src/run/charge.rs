//! The work that a store has postponed beyond the window of a workload that writes, and to whom it counts.
//!
//! 1. A store in its steady state does postponed work during the window: nothing more is charged.
//! 2. Otherwise the store settles after the window. That time is added to the window for the sustained rate,
//!    and what the device reads and writes meanwhile is added to the window's.

use super::drive::Driven;
use crate::observe::Observer;
use crate::results::CellResult;
use crate::store::{Result, Store};
use seawall_lab::run::Progress;
use std::time::Instant;

/// What was charged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charged {
    steady_after_s: Option<f64>,
    settle_seconds: f64,
}

impl Charged {
    /// Settles the store, unless it was steady during the window.
    pub(crate) fn settle(
        store: &dyn Store,
        driven: &mut Driven,
        observer: &mut Observer<'_>,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let steady_after_s = driven.steady_after.map(|time| time.as_secs_f64());
        let mut settle_seconds = 0.0;
        if steady_after_s.is_none() {
            progress.begin("settling", 1);
            observer.begin();
            let began = Instant::now();
            store.settle()?;
            settle_seconds = began.elapsed().as_secs_f64();
            if let (Some(device), Some(more)) = (&mut driven.observed.device, observer.end().device) {
                device.read_bytes += more.read_bytes;
                device.written_bytes += more.written_bytes;
            }
        }
        Ok(Self { steady_after_s, settle_seconds })
    }

    /// Adds it to the result.
    pub(crate) fn describe(self, result: &mut CellResult) {
        let seconds = result.measured.duration_s + self.settle_seconds;
        let sustained = if seconds > 0.0 { result.measured.ops as f64 / seconds } else { 0.0 };
        let extra = [
            ("steady_after_s", self.steady_after_s.into()),
            ("settle_seconds", self.settle_seconds.into()),
            ("sustained_per_s", sustained.into()),
        ];
        result.extra.extend(extra.map(|(name, value)| (name.to_owned(), value)));
    }
}
