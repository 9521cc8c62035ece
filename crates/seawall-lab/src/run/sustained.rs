//! `--sustain`: constant load, counted by the second.

use super::options::{Limits, Progress};
use super::prepare::Preparer;
use super::{Lab, LabError, work};
use crate::cell::{CellSpec, Sync};
use crate::plan;
use crate::results::{Results, Sustain};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

impl Lab {
    /// Constant random direct writes, one long round at a time, counted per second.
    pub(super) fn sustain(
        &self,
        preparer: &Preparer,
        duration: Duration,
        results: &mut Results,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        let spec = CellSpec { queue_depth: 16, ..plan::direct_sync(1, 16 << 10, Sync::None) };
        let file = preparer.prepare(&spec, stop)?;
        let seconds = duration.as_secs().max(1);
        progress.begin("sustained load", seconds);
        let mut per_second: Vec<u32> = Vec::new();
        let start = Instant::now();
        let limits = Limits { round: Duration::from_secs(1), operations_min: 1, rate: self.options.rate };
        let mut ended = Ok(());
        while start.elapsed() < duration && !stop.load(Ordering::Relaxed) {
            let n = per_second.len() as u64;
            match work::round(&spec, &file, &limits, self.options.backend, self.options.seed ^ n, stop) {
                // A second cut short by Ctrl-C would look like a drop of the rate.
                Ok(_) if stop.load(Ordering::Relaxed) => {}
                Ok(round) => {
                    // A second that took five (a stalled disk) counts as five seconds with a fifth of its
                    // operations each.
                    let whole = (round.seconds.round() as u32).max(1);
                    let rate = (round.operations as f64 / f64::from(whole)).round() as u32;
                    per_second.extend(std::iter::repeat_n(rate, whole as usize));
                    progress.at(per_second.len() as u64, &format!("{rate} writes/s"));
                }
                Err(e) => {
                    ended = Err(e);
                    break;
                }
            }
        }
        if !per_second.is_empty() {
            let plateaus = crate::sustain::plateaus(&per_second);
            results.sustain =
                Some(Sustain { title: "random 16K direct writes, depth 16".into(), plateaus, per_second });
        }
        if stop.load(Ordering::Relaxed) { Err(LabError::Interrupted) } else { ended }
    }
}
