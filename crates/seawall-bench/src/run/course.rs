//! How a run proceeds, for any workload.

use super::drive::Limit;
use std::path::PathBuf;
use std::time::Duration;

/// The longest default warm-up.
const WARM_UP: Duration = Duration::from_secs(2);

/// Where, how long, and with what settings.
#[derive(Debug, Clone)]
pub struct Course {
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
