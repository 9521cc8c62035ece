//! The work that a store has postponed beyond the window of a workload that writes, and to whom it counts.
//!
//! 1. A store in its steady state does postponed work during the window: nothing more is charged.
//! 2. Otherwise the store settles after the window. That time is added to the window for the sustained rate,
//!    and what the device reads and writes meanwhile is added to the window's.

use super::drive::Driven;
use super::load::settle;
use crate::observe::Observer;
use crate::store::{Result, Store};
use seawall_lab::run::Progress;
use serde_json::Value;

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
