//! The meaning of a run in plain words: a sentence, and the numbers behind it.
//!
//! - A verdict is a pure function of [`Results`]; without a measured cell there is no verdict on it.
//! - A difference inside the noise is never reported as one: [`Level::CannotTell`] is an answer.
//! - "Does no harm" is claimed only when the whole interval of the ratio lies within 10% of 1
//!   (`Answer::Same`).
//! - Ids are stable, `experiment.subject[.variant]`: the report links to them and scripts read them from JSON.

mod append_overwrite;
mod commit_levels;
mod device;
mod direct_sync;
mod log_memory;
mod parallel_direct;
mod range_prefetch;
mod run;
mod settings;

pub(crate) use append_overwrite::overwrite_against;
pub(crate) use commit_levels::{load_name, noise};
pub(crate) use log_memory::direct_and_buffered;
pub(crate) use range_prefetch::share_of_disk;

use crate::cell::{CellSpec, Experiment};
use crate::results::{CellResult, Results, operation_word};
use crate::stats::{Comparison, Estimate, ROUNDS_MIN};
use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The level of a verdict.
///
/// ```
/// use seawall_lab::verdict::Level;
/// let mut levels = [Level::Good, Level::NotTested, Level::Warning];
/// levels.sort();
/// assert_eq!(levels[0], Level::Warning, "what to act on comes first");
/// assert_eq!(Level::CannotTell.to_string(), "cannot tell");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Needs action.
    Warning,
    /// Worth knowing; neither good nor bad.
    Note,
    /// As it should be.
    Good,
    /// The measurement does not decide.
    CannotTell,
    /// Not tested.
    NotTested,
}

impl Level {
    /// `warning`, `note`, `good`, `cannot tell`, `not tested`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Good => "good",
            Self::CannotTell => "cannot tell",
            Self::NotTested => "not tested",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One conclusion.
///
/// ```
/// use seawall_lab::{plan, sample, verdict};
/// let results = sample::of_plan(&plan::decisive());
/// for verdict in verdict::verdicts(&results) {
///     println!("{}: {} ({})", verdict.level, verdict.sentence, verdict.reason);
///     assert!(verdict.cells.iter().all(|id| results.cells.iter().any(|cell| cell.id == *id)));
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Stable id, such as `append-overwrite.append`.
    pub id: String,
    /// The experiment it belongs to; `None` for verdicts about the machine or the run.
    pub experiment: Option<Experiment>,
    /// Its level.
    pub level: Level,
    /// The conclusion.
    pub sentence: String,
    /// The numbers behind it.
    pub reason: String,
    /// Ids of the cells the numbers come from.
    pub cells: Vec<String>,
}

/// Every verdict the results allow: about the run and the device first, then in the order of the experiments.
///
/// ```
/// use seawall_lab::{plan, sample, verdict};
/// let results = sample::of_plan(&plan::decisive());
/// let all = verdict::verdicts(&results);
/// let append = all.iter().find(|v| v.id == "append-overwrite.append").unwrap();
/// assert!(append.sentence.starts_with("appending costs 2.5x overwriting on this ext4"), "{}", append.sentence);
/// assert_eq!(append.level, verdict::Level::Warning);
/// // Without measurements there is no verdict, except that durability has not been tested.
/// let none = verdict::verdicts(&sample::results(vec![]));
/// assert!(none.iter().all(|v| v.cells.is_empty()));
/// assert!(none.iter().any(|v| v.sentence == "durability under power loss: not tested"));
/// ```
#[must_use]
pub fn verdicts(results: &Results) -> Vec<Verdict> {
    let mut out = Vec::new();
    run::verdicts(results, &mut out);
    device::verdicts(results, &mut out);
    direct_sync::verdicts(results, &mut out);
    log_memory::verdicts(results, &mut out);
    parallel_direct::verdicts(results, &mut out);
    append_overwrite::verdicts(results, &mut out);
    commit_levels::verdicts(results, &mut out);
    range_prefetch::verdicts(results, &mut out);
    settings::verdicts(results, &mut out);
    out
}

/// How one rate compares with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The first is higher, beyond the noise.
    More,
    /// The first is lower, beyond the noise.
    Less,
    /// The whole interval lies within 10% of 1.
    Same,
    /// The noise hides it.
    Unclear,
}

/// Two measured cells and how their rates compare.
pub(crate) struct Pair<'a> {
    pub(crate) a: &'a CellResult,
    pub(crate) b: &'a CellResult,
    pub(crate) answer: Answer,
    /// `a` over `b`.
    pub(crate) ratio: Estimate,
    /// The run was limited by `--rate`: two cells that look alike may both have reached the limit.
    pub(crate) limited: bool,
}

/// Compares two cells; `None` unless both were measured.
pub(crate) fn pair<'a>(results: &'a Results, a: &CellSpec, b: &CellSpec) -> Option<Pair<'a>> {
    let comparison = results.compare(a, b);
    let ratio = comparison.ratio()?;
    let limited = results.run.rate.is_some();
    let answer = match comparison {
        // First: a real difference under 10% needs no action either.
        _ if ratio.samples >= ROUNDS_MIN && ratio.low >= 0.9 && ratio.high <= 1.1 => {
            if limited {
                Answer::Unclear
            } else {
                Answer::Same
            }
        }
        Comparison::Higher(_) => Answer::More,
        Comparison::Lower(_) => Answer::Less,
        _ => Answer::Unclear,
    };
    Some(Pair { a: results.cell(a)?, b: results.cell(b)?, answer, ratio, limited })
}

impl<'a> Pair<'a> {
    /// How many times faster `a` is.
    pub(crate) fn times(&self) -> String {
        text::ratio(self.ratio.median)
    }

    /// How many times slower `a` is.
    pub(crate) fn times_slower(&self) -> String {
        text::ratio(1.0 / self.ratio.median)
    }

    /// The answer in words: "cannot tell ..." unless it is clear.
    pub(crate) fn cannot_tell(&self, a: &str, b: &str) -> String {
        match self.answer {
            Answer::More => format!("{a}: {} the rate of {b}", self.times()),
            Answer::Less => format!("{a}: only {} the rate of {b}", self.times()),
            Answer::Same => format!("cannot tell {a} from {b}: any difference is under 10%"),
            _ if self.limited => format!("cannot tell {a} from {b}: the run was held to a rate that both may have met"),
            _ if self.ratio.samples < ROUNDS_MIN => {
                format!("cannot tell {a} from {b}: only {}", rounds(self.ratio.samples))
            }
            Answer::Unclear => format!(
                "cannot tell {a} from {b}: the difference is inside the noise ({} to {})",
                text::ratio(self.ratio.low),
                text::ratio(self.ratio.high)
            ),
        }
    }

    /// Both rates, the ratio and its interval.
    pub(crate) fn reason(&self) -> String {
        let mut out = format!(
            "{}; {}; ratio {} ({} to {} over {})",
            cell_rate(self.a),
            cell_rate(self.b),
            text::ratio(self.ratio.median),
            text::ratio(self.ratio.low),
            text::ratio(self.ratio.high),
            rounds(self.ratio.samples)
        );
        if self.a.disturbed() || self.b.disturbed() {
            out.push_str("; other load disturbed some of these rounds");
        }
        out
    }

    pub(crate) fn cells(&self) -> [&'a CellResult; 2] {
        [self.a, self.b]
    }
}

fn rounds(n: usize) -> String {
    if n == 1 { "one round".into() } else { format!("{n} rounds") }
}

/// `overwrite 8K, buffered, fdatasync each, 1 thread: 12,330 writes/s`.
pub(crate) fn cell_rate(cell: &CellResult) -> String {
    let rate = cell.rate().map_or_else(|| "?".into(), |r| text::count(r.median));
    format!("{}: {rate} {}/s", cell.spec.title(), operation_word(&cell.spec))
}

/// Median latency, ns.
pub(crate) fn p50_ns(cell: &CellResult) -> Option<f64> {
    cell.latency_ns(0.5).map(|ns| ns as f64)
}

/// Collects verdicts of one experiment.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut Vec<Verdict>,
    pub(crate) experiment: Option<Experiment>,
}

impl Writer<'_> {
    pub(crate) fn add(
        &mut self,
        subject: &str,
        level: Level,
        sentence: impl Into<String>,
        reason: impl Into<String>,
        cells: &[&CellResult],
    ) {
        let scope = self.experiment.map_or("run", Experiment::name);
        self.out.push(Verdict {
            id: format!("{scope}.{subject}"),
            experiment: self.experiment,
            level,
            sentence: sentence.into(),
            reason: reason.into(),
            cells: cells.iter().map(|c| c.id.clone()).collect(),
        });
    }
}

/// The file system's name for sentences: `ext4`, or `file system` when unknown.
pub(crate) fn file_system_word(results: &Results) -> &str {
    results.probe.file_system.known().map_or("file system", |fs| fs.kind.as_str())
}

/// The rate of single random reads if it is beyond any spinning disk (about 200 per second), regardless of
/// the kernel's information: virtual disks are announced as rotating by default.
pub(crate) fn too_fast_to_rotate(results: &Results) -> Option<f64> {
    let rate = results.cell(&crate::plan::random_read(1))?.rate()?.median;
    (rate > 1_000.0).then_some(rate)
}

/// Whether this is a spinning disk: the kernel says so and the read rate does not contradict it.
pub(crate) fn rotates(results: &Results) -> Option<bool> {
    let said = *results.probe.device.known()?.rotational.known()?;
    Some(said && too_fast_to_rotate(results).is_none())
}

/// The time that a flush adds to a 4 KiB direct write by one thread: the median of write + fdatasync less the
/// median of the write alone, ns, never below zero. Both medians come from cells measured alternately.
pub(crate) fn flush_cost_ns(results: &Results) -> Option<f64> {
    use crate::cell::Sync;
    let with = p50_ns(results.cell(&crate::plan::direct_sync(1, 4096, Sync::Fdatasync))?)?;
    let without = p50_ns(results.cell(&crate::plan::direct_sync(1, 4096, Sync::None))?)?;
    Some((with - without).max(0.0))
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// The verdict with this id.
    pub(crate) fn verdict(results: &Results, id: &str) -> Option<Verdict> {
        verdicts(results).into_iter().find(|v| v.id == id)
    }

    /// Level and sentence of the verdict with this id.
    #[track_caller]
    pub(crate) fn said(results: &Results, id: &str) -> (Level, String) {
        let all = verdicts(results);
        let ids: Vec<&str> = all.iter().map(|v| v.id.as_str()).collect();
        let v = all.iter().find(|v| v.id == id).unwrap_or_else(|| panic!("no {id} among {ids:?}"));
        (v.level, v.sentence.clone())
    }

    /// A cell whose rounds scatter too widely for any conclusion.
    pub(crate) fn noisy(spec: CellSpec, rate: f64) -> CellResult {
        let mut cell = crate::sample::cell(spec, rate);
        for (i, round) in cell.rounds.iter_mut().enumerate() {
            round.operations = (rate * [0.4, 1.9, 0.7, 1.6, 0.5, 1.4][i % 6]) as u64;
        }
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, sample};
    use std::collections::HashSet;

    #[test]
    fn ids_are_unique_sentences_are_whole_and_json_round_trips() {
        let results = sample::of_plan(&plan::full());
        let all = verdicts(&results);
        let ids: HashSet<&str> = all.iter().map(|v| v.id.as_str()).collect();
        assert_eq!(ids.len(), all.len());
        for v in &all {
            assert!(!v.sentence.is_empty() && !v.reason.is_empty(), "{v:?}");
            assert!(!v.sentence.contains("NaN") && !v.sentence.contains('?'), "{v:?}");
            for id in &v.cells {
                assert!(results.cells.iter().any(|c| &c.id == id), "{v:?} names a cell that is not there");
            }
        }
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Verdict>>(&json).unwrap(), all);
    }

    #[test]
    fn small_limited_and_disturbed_differences() {
        let (a, b) = (plan::random_read(1), plan::random_read(2));
        let run = |times: f64| sample::results(vec![sample::cell(a, 1e4 * times), sample::cell(b, 1e4)]);
        let answer = |r: &Results| pair(r, &a, &b).unwrap().answer;
        // Real, but needs no action.
        assert_eq!(answer(&run(1.05)), Answer::Same);
        assert_eq!(answer(&run(1.2)), Answer::More);
        // Under --rate two cells are alike because of the limit; a cell that cannot reach the limit is still
        // slower.
        let mut limited = run(1.0);
        limited.run.rate = Some(1e4);
        assert_eq!(answer(&limited), Answer::Unclear);
        assert!(pair(&limited, &a, &b).unwrap().cannot_tell("a", "b").contains("held to a rate"));
        limited = run(0.5);
        limited.run.rate = Some(1e4);
        assert_eq!(answer(&limited), Answer::Less);
        // One disturbed round of six is left out; with two there are too few quiet ones, and all count.
        let mut r = run(2.0);
        for (n, expected) in [(0, Answer::More), (1, Answer::Unclear)] {
            r.cells[0].rounds[n].operations = 10;
            r.cells[0].rounds[n].foreign.disturbed = true;
            assert_eq!(answer(&r), expected, "{n}");
        }
        // A round without a rate takes its partner with it, and does not shift the others.
        let mut r = run(2.0);
        r.cells[0].rounds[0].seconds = 0.0;
        assert_eq!(pair(&r, &a, &b).unwrap().ratio.samples, 5);
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
}
