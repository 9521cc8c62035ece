//! `--sustain`: constant load, counted by the second.

use super::{LabError, Limits, Run, work};
use crate::cell::{CellSpec, Sync};
use crate::plan;
use crate::results::Sustain;
use crate::sustain::plateaus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Run<'_> {
    pub(super) fn sustain(&mut self, duration: Duration) -> Result<(), LabError> {
        let (preparer, options) = (&self.preparer, &self.lab.options);
        let spec = CellSpec { queue_depth: 16, ..plan::direct_sync(1, 16 << 10, Sync::None) };
        let file = preparer.prepare(&spec)?;
        self.progress.begin("sustained load", duration.as_secs().max(1));
        let mut per_second: Vec<u32> = Vec::new();
        let mut measured = 0.0;
        let start = Instant::now();
        let limits = Limits { round: Duration::from_secs(1), operations_min: 1, rate: options.rate };
        let stopped = || preparer.stop.load(Ordering::Relaxed);
        let mut ended = Ok(());
        while ended.is_ok() && start.elapsed() < duration && !stopped() {
            let seed = options.seed ^ per_second.len() as u64;
            match work::round(&spec, &file, &limits, options.backend, seed, preparer.stop) {
                // A second cut short by Ctrl-C would look like a drop of the rate.
                Ok(_) if stopped() => {}
                Ok(round) => {
                    // A round that took five seconds (a stalled disk) counts as five seconds with a fifth of its
                    // operations each. A fraction is carried over.
                    measured += round.seconds;
                    let whole = (measured.round() as usize).saturating_sub(per_second.len());
                    let rate = (round.operations as f64 / round.seconds.max(1e-3)).round() as u32;
                    per_second.extend(std::iter::repeat_n(rate, whole));
                    self.progress.at(per_second.len() as u64, &format!("{rate} writes/s"));
                }
                Err(e) => ended = Err(e),
            }
        }
        if !per_second.is_empty() {
            let (title, plateaus) = ("random 16K direct writes, depth 16".into(), plateaus(&per_second));
            self.results.sustain = Some(Sustain { title, plateaus, per_second });
        }
        if stopped() { Err(LabError::Interrupted) } else { ended }
    }
}
