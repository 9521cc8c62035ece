//! The experiments: one Rust file each, with its cells, verdicts and evidence, and one TOML file with its
//! publication, published figures and words.
//!
//! - To add one: a variant of `Experiment` (`cell.rs`) with its stable ids, two files here, of
//!   which one defines `EXPERIMENT`, and an arm in `definition`. The compiler demands the arm; plan, table,
//!   report, summary and `--only` follow.
//! - A file imports other experiments' cells if its verdict needs them, and of this registry only [`published`].

pub(crate) mod append_overwrite;
pub(crate) mod baseline;
pub(crate) mod commit_levels;
mod definition;
pub(crate) mod direct_sync;
pub(crate) mod log_memory;
pub(crate) mod parallel_direct;
pub(crate) mod range_prefetch;
pub(crate) mod settings;

use crate::cell::Experiment;
use crate::results::Results;
use crate::verdict::{Verdict, Writer, data, device, run};
pub(crate) use definition::{Definition, Texts};
pub use definition::{Published, Source};
use std::sync::LazyLock;

/// The registry.
pub(crate) fn definition(experiment: Experiment) -> &'static Definition {
    match experiment {
        Experiment::Baseline => &baseline::EXPERIMENT,
        Experiment::DirectSync => &direct_sync::EXPERIMENT,
        Experiment::LogMemory => &log_memory::EXPERIMENT,
        Experiment::ParallelDirect => &parallel_direct::EXPERIMENT,
        Experiment::AppendOverwrite => &append_overwrite::EXPERIMENT,
        Experiment::CommitLevels => &commit_levels::EXPERIMENT,
        Experiment::RangePrefetch => &range_prefetch::EXPERIMENT,
        Experiment::Settings => &settings::EXPERIMENT,
    }
}

/// The text of an experiment.
pub(crate) fn texts(experiment: Experiment) -> &'static Texts {
    static TEXTS: LazyLock<[Texts; Experiment::ALL.len()]> =
        LazyLock::new(|| Experiment::ALL.map(|experiment| data(definition(experiment).toml)));
    &TEXTS[experiment as usize]
}

/// The publication that an experiment repeats.
pub fn source(experiment: Experiment) -> Option<&'static Source> {
    texts(experiment).source.as_ref()
}

/// The published rates of an experiment.
pub fn published(experiment: Experiment) -> &'static [Published] {
    &texts(experiment).figures
}

/// Every verdict the results allow: about the run and the device first, then in the order of the experiments.
///
/// ```
/// use seawall_lab::{experiment::verdicts, plan, sample, verdict};
/// let results = sample::of_plan(&plan::decisive());
/// let all = verdicts(&results);
/// let append = all.iter().find(|v| v.id == "append-overwrite.append").unwrap();
/// assert!(append.sentence.starts_with("appending costs 2.5x overwriting on this ext4"), "{}", append.sentence);
/// assert_eq!(append.level, verdict::Level::Warning);
/// // Without measurements there is no verdict, except that durability has not been tested.
/// let none = verdicts(&sample::results(vec![]));
/// assert!(none.iter().all(|v| v.experiment.is_none()));
/// assert!(none.iter().any(|v| v.sentence == "durability under power loss: not tested"));
/// ```
pub fn verdicts(results: &Results) -> Vec<Verdict> {
    let mut out = Vec::new();
    run::conclude(results, &mut Writer { out: &mut out, experiment: None, says: &run::SAYS });
    device::conclude(results, &mut Writer { out: &mut out, experiment: None, says: &device::SAYS });
    for experiment in Experiment::ALL {
        let mut writer = Writer { out: &mut out, experiment: Some(experiment), says: &texts(experiment).says };
        definition(experiment).conclude.iter().for_each(|conclude| conclude(results, &mut writer));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::testing::noisy;
    use crate::{plan, sample};
    use std::collections::HashSet;

    #[test]
    fn ids_are_unique_sentences_are_short_and_json_round_trips() {
        let mut runs = vec![sample::of_plan(&plan::full()), sample::of_plan(&plan::decisive())];
        // Every answer: each cell much faster, much slower, noisy, in turn.
        for turn in 0..3 {
            let mut results = sample::of_plan(&plan::full());
            for (i, cell) in results.cells.iter_mut().enumerate() {
                match (i + turn) % 3 {
                    0 => *cell = sample::cell(cell.spec, 50_000.0 + i as f64 * 100.0),
                    1 => *cell = noisy(cell.spec, 3000.0),
                    _ => *cell = sample::cell(cell.spec, 90.0),
                }
            }
            runs.push(results);
        }
        for results in runs {
            let all = verdicts(&results);
            let ids: HashSet<&str> = all.iter().map(|v| v.id.as_str()).collect();
            assert_eq!(ids.len(), all.len());
            for v in &all {
                assert!(!v.sentence.is_empty() && !v.reason.is_empty(), "{v:?}");
                assert!(v.sentence.split_whitespace().count() <= 15, "too long: {}", v.sentence);
                assert!(!v.sentence.contains("NaN") && !v.sentence.contains('?'), "{v:?}");
            }
            let json = serde_json::to_string(&all).unwrap();
            assert_eq!(serde_json::from_str::<Vec<Verdict>>(&json).unwrap(), all);
        }
    }

    #[test]
    fn odd_cells_do_not_panic() {
        let mut results = sample::of_plan(&plan::full());
        for (i, cell) in results.cells.iter_mut().enumerate() {
            match i % 4 {
                0 => cell.rounds.clear(),
                1 => cell.rounds.iter_mut().for_each(|r| {
                    r.operations = 0;
                    r.latency = histogram::SparseHistogram::new(6, 40).unwrap();
                    r.device = None;
                    r.cached_bytes = None;
                }),
                2 => cell.rounds.iter_mut().for_each(|r| r.seconds = f64::NAN),
                _ => cell.rounds.truncate(1),
            }
        }
        let _all = verdicts(&results);
    }

    #[test]
    fn nothing_old_is_quoted_without_what_is_known_today() {
        for experiment in Experiment::ALL {
            let d = texts(experiment);
            assert!(
                d.source.as_ref().is_none_or(|s| !s.caveat.is_empty()) && (d.figures.is_empty() || d.source.is_some())
            );
        }
    }
}
