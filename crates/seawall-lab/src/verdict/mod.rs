//! What a verdict is, and how two cells are compared. The verdicts themselves are in `experiment/`, one file per
//! experiment; those about the run and the device are in this folder. Their words are in the TOML files beside them
//! (`says.rs`).
//!
//! - A verdict is a pure function of [`Results`]; without a measured cell there is no verdict on it.
//! - A sentence has at most 15 words; the numbers are in the reason.
//! - A difference inside the noise is never reported as one: [`Level::CannotTell`] is an answer.
//! - "Does no harm" is claimed only when the whole interval of the ratio lies within 10% of 1
//!   (`Answer::Same`).
//! - Ids are stable, `experiment.subject[.variant]`: the report links to them and scripts read them from
//!   JSON.

pub(crate) mod device;
pub(crate) mod run;
mod says;

use crate::cell::{CellSpec, Experiment};
use crate::results::{CellResult, Results, operation_word};
use crate::stats::{Estimate, ROUNDS_MIN};
use crate::{text, words};
use serde::{Deserialize, Serialize};

pub(crate) use says::{Says, Writer, data};

words! {
    /// The level of a verdict, and the heading above the verdicts of that level.
    ///
    /// ```
    /// use seawall_lab::verdict::Level;
    /// let mut levels = [Level::Good, Level::NotTested, Level::Warning];
    /// levels.sort();
    /// assert_eq!(levels[0], Level::Warning, "what to act on comes first");
    /// assert_eq!(Level::CannotTell.to_string(), "cannot tell");
    /// ```
    #[derive(PartialOrd, Ord)]
    pub enum Level {
        /// Needs action.
        Warning = "warning" | "act on",
        /// Worth knowing; neither good nor bad.
        Note = "note" | "worth knowing",
        /// As it should be.
        Good = "good",
        /// The measurement does not decide.
        CannotTell = "cannot tell",
        /// Not tested.
        NotTested = "not tested",
    }
}

/// One conclusion.
///
/// ```
/// use seawall_lab::{experiment, plan, sample};
/// let results = sample::of_plan(&plan::decisive());
/// for verdict in experiment::verdicts(&results) {
///     println!("{}: {} ({})", verdict.level, verdict.sentence, verdict.reason);
///     assert!(verdict.sentence.split_whitespace().count() <= 15);
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
}

words! {
    /// How one rate compares with another. Its word is the name of the outcome in the data files.
    pub(crate) enum Answer {
        /// The first is higher, beyond the noise.
        More = "more",
        /// The first is lower, beyond the noise.
        Less = "less",
        /// The whole interval lies within 10% of 1.
        Same = "same",
        /// The noise hides it.
        Unclear = "unclear",
    }
}

/// Two measured cells and how their rates compare.
#[derive(Clone, Copy)]
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
pub(crate) fn pair(results: &Results, [a, b]: [CellSpec; 2]) -> Option<Pair<'_>> {
    let ratio = results.compare(&a, &b)?;
    let limited = results.run.rate.is_some();
    let close = ratio.samples >= ROUNDS_MIN && ratio.low >= 0.9 && ratio.high <= 1.1;
    let answer = match ratio.is_difference() {
        // First: a real difference under 10% needs no action either.
        _ if close && !limited => Answer::Same,
        true if !close && ratio.median > 1.0 => Answer::More,
        true if !close => Answer::Less,
        _ => Answer::Unclear,
    };
    Some(Pair { a: results.cell(&a)?, b: results.cell(&b)?, answer, ratio, limited })
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

    /// The answer in words, for the reason of a setting.
    pub(crate) fn in_words(&self, a: &str, b: &str) -> String {
        match self.answer {
            Answer::More => format!("{a}: {} the rate of {b}", self.times()),
            Answer::Less => format!("{a}: only {} the rate of {b}", self.times()),
            Answer::Same => format!("cannot tell {a} from {b}: any difference is under 10%"),
            Answer::Unclear => format!("cannot tell {a} from {b}: {}", self.why_unclear()),
        }
    }

    /// Why there is no answer.
    fn why_unclear(&self) -> String {
        let Estimate { low, high, samples, .. } = self.ratio;
        if self.limited {
            "the run was held to a rate that both may have met".into()
        } else if samples < ROUNDS_MIN {
            format!("only {}", text::many(samples as u32, "round", "rounds"))
        } else {
            format!("the difference is inside the noise ({} to {})", text::ratio(low), text::ratio(high))
        }
    }

    /// Both rates, the ratio and its interval.
    pub(crate) fn reason(&self) -> String {
        let (a, b) = (cell_rate(self.a), cell_rate(self.b));
        let [ratio, low, high] = [self.ratio.median, self.ratio.low, self.ratio.high].map(text::ratio);
        let rounds = text::many(self.ratio.samples as u32, "round", "rounds");
        let disturbed = self.a.disturbed() || self.b.disturbed();
        let aside = if disturbed { "; other load disturbed some of these rounds" } else { "" };
        format!("{a}; {b}; ratio {ratio} ({low} to {high} over {rounds}){aside}")
    }

    pub(crate) fn cells(&self) -> [&'a CellResult; 2] {
        [self.a, self.b]
    }
}

/// `overwrite 8K, buffered, fdatasync each, 1 thread: 12,330 writes/s`.
pub(crate) fn cell_rate(cell: &CellResult) -> String {
    let rate = cell.median().map_or_else(|| "?".into(), text::count);
    format!("{}: {rate} {}/s", cell.spec.title(), operation_word(&cell.spec))
}

/// The cell that held the most page cache, and how many bytes.
pub(crate) fn most_cached<'a>(cells: impl Iterator<Item = &'a CellResult>) -> Option<(&'a CellResult, u64)> {
    cells.filter_map(|c| Some((c, c.cached_bytes_max()?))).max_by_key(|(_, bytes)| *bytes)
}

/// The file system's name for sentences: `ext4`, or `file system` when unknown.
pub(crate) fn file_system_word(results: &Results) -> &str {
    results.probe.file_system.known().map_or("file system", |fs| fs.kind.as_str())
}

/// The device's model and name, such as `Imaginary SSD 1TB (nvme0n1)`.
pub(crate) fn device_words(results: &Results) -> String {
    results.probe.device.known().map_or_else(
        || "no block device".to_owned(),
        |d| d.model.known().map_or_else(|| d.name.clone(), |m| format!("{m} ({})", d.name)),
    )
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::experiment::verdicts;

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

    #[test]
    fn small_limited_and_disturbed_differences() {
        let (a, b) = (plan::random_read(1), plan::random_read(2));
        let run = |times: f64| sample::results(vec![sample::cell(a, 1e4 * times), sample::cell(b, 1e4)]);
        let answer = |r: &Results| pair(r, [a, b]).unwrap().answer;
        // Real, but needs no action.
        assert_eq!(answer(&run(1.05)), Answer::Same);
        assert_eq!(answer(&run(1.2)), Answer::More);
        // Under --rate two cells are alike because of the limit; a cell that cannot reach the limit is still
        // slower.
        let mut limited = run(1.0);
        limited.run.rate = Some(1e4);
        assert_eq!(answer(&limited), Answer::Unclear);
        assert!(pair(&limited, [a, b]).unwrap().in_words("a", "b").contains("held to a rate"));
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
        assert_eq!(pair(&r, [a, b]).unwrap().ratio.samples, 5);
    }
}
