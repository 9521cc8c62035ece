//! The configuration of a run, for any workload.

use super::drive::{Limit, Spec, SteadyTest};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The longest default warm-up.
const WARM_UP: Duration = Duration::from_secs(2);

/// Where, how long, and with what settings.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// A directory in which the data stays; without it, the data is removed.
    pub dir: Option<PathBuf>,
    /// Use existing data.
    pub reuse: bool,
    /// End after the load.
    pub load_only: bool,
    /// How long; loads always run to their end.
    pub limit: Limit,
    /// Before the window; the default is a quarter of the duration, at most 2 s.
    pub warm_up: Option<Duration>,
    /// After the warm-up, wait at most this long until the store is in its steady state
    /// ([`crate::Store::steady`]).
    pub steady: Option<Duration>,
    /// Operations of all threads together that arrive a second, whether or not earlier ones are done.
    pub rate: Option<f64>,
    /// Options of the store by its own names.
    pub options: Vec<(String, String)>,
}

impl RunConfig {
    /// What to drive by it, on a store with this test of its steady state.
    pub(crate) fn spec<'a>(&self, threads: usize, steady: &'a SteadyTest<'a>, stop: &'a AtomicBool) -> Spec<'a> {
        let steady = self.steady.map(|within| (steady, within));
        Spec { warm_up: self.warm_up(), steady, rate: self.rate, ..Spec::new(threads, self.limit, stop) }
    }

    /// Time before the window.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        self.warm_up.unwrap_or(match self.limit {
            Limit::For(time) => (time / 4).min(WARM_UP),
            Limit::Ops(_) | Limit::Finished { .. } => Duration::ZERO,
        })
    }
}
