//! How a run is done, whatever it runs.

use super::drive::Limit;
use std::path::PathBuf;
use std::time::Duration;

/// The longest warm-up when none is asked for.
const WARM_UP: Duration = Duration::from_secs(2);

/// Where, how long, and with what settings.
#[derive(Debug, Clone)]
pub struct Course {
    /// Where the data stays; else it goes.
    pub dir: Option<PathBuf>,
    /// Use data that is there.
    pub reuse: bool,
    /// End after the load.
    pub load_only: bool,
    /// How long; loads run to their end whatever this says.
    pub limit: Limit,
    /// Before the window; the default is a quarter of the duration, at most 2 s.
    pub warm_up: Option<Duration>,
    /// Options of the store by its own names.
    pub options: Vec<(String, String)>,
}

impl Course {
    /// Time before the window.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        self.warm_up.unwrap_or(match self.limit {
            Limit::For(time) => (time / 4).min(WARM_UP),
            Limit::Ops(_) | Limit::Finished { .. } => Duration::ZERO,
        })
    }
}
