//! Which cells a run measures: those of every experiment, in order.
//!
//! - The default run contains only the cells that a verdict or a setting needs (two minutes for the disk, two
//!   and a half for the engine on it); `--full` contains the whole grid.
//! - Every cell that a verdict or a setting uses is made by one function, so that plan and verdict cannot
//!   disagree.

use crate::cell::{CellSpec, Experiment};
use crate::experiment::definition;
use crate::stats::distinct;

pub use crate::experiment::append_overwrite::{beside_fill, extend};
pub use crate::experiment::baseline::{random_read, sequential_read, sequential_write};
pub use crate::experiment::commit_levels::{COMMIT_THREADS, commit_levels};
pub use crate::experiment::direct_sync::direct_sync;
pub use crate::experiment::log_memory::log;
pub use crate::experiment::parallel_direct::{flush_under_writes, parallel};
pub use crate::experiment::range_prefetch::range_prefetch;
pub use crate::experiment::settings::under_settings;

/// The cells of the default run.
///
/// ```
/// use seawall_lab::{experiment, plan, sample, verdict};
/// let experiments = [plan::random_read(1), plan::beside_fill()];
/// assert!(experiments.iter().all(|spec| plan::decisive().contains(spec)));
/// // Enough for every verdict except the one on a power cut.
/// let verdicts = experiment::verdicts(&sample::of_plan(&plan::decisive()));
/// assert!(verdicts.iter().any(|v| v.level == verdict::Level::NotTested));
/// ```
pub fn decisive() -> Vec<CellSpec> {
    cells(false)
}

/// The cells of `--full`: the decisive ones and the rest of each grid.
///
/// ```
/// use seawall_lab::plan;
/// let (full, decisive) = (plan::full(), plan::decisive());
/// assert!(full.len() > 2 * decisive.len());
/// assert!(decisive.iter().all(|spec| full.contains(spec)), "what is decided is in both");
/// ```
pub fn full() -> Vec<CellSpec> {
    cells(true)
}

fn cells(full: bool) -> Vec<CellSpec> {
    // An experiment may name a cell of its default run in its grid again.
    distinct(Experiment::ALL.into_iter().flat_map(|experiment| (definition(experiment).cells)(full)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_unique_and_the_full_plan_holds_the_decisive_one() {
        let full = full();
        let ids: HashSet<String> = full.iter().map(CellSpec::id).collect();
        assert_eq!(ids.len(), full.len(), "two cells with the same id");
        for cell in decisive() {
            assert!(full.contains(&cell), "{} is decisive but not in the full plan", cell.id());
        }
    }

    #[test]
    fn default_plan_stays_small() {
        let disk = decisive().iter().filter(|c| c.engine.is_none()).count();
        assert!(disk <= 24, "the disk's part of the default run must stay near two minutes");
        assert_eq!(decisive().len() - disk, 27 + 24 + 4, "and the engine's a minute for each experiment");
    }
}
