//! Computes verdicts from measured figures.
//!
//! 1. A goal whose figure is missing is not met; it is never left out of the count.
//! 2. Medians first, then the ratio.
//! 3. A goal against a store whose library lacks the operation is reported as not offered and does not count.

use super::plan::{Goal, Source, Take, Threshold};
use crate::report::number;
use seawall_lab::stats::median;
use seawall_lab::words;
use serde::Serialize;

words! {
    /// The verdict on a goal.
    pub enum Verdict {
        /// It reached its threshold.
        Met = "met",
        /// It did not.
        Short = "short",
        /// It has no threshold.
        Reported = "reported",
        /// The other store does not offer the operation.
        NotOffered = "not offered",
        /// One of its figures could not be measured.
        NotMeasured = "not measured",
    }
}

impl Verdict {
    /// Whether the goal is missed, or not known to be met.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Short | Self::NotMeasured)
    }
}

/// The text of a store's error for an operation that it does not have.
const NOT_OFFERED: &str = " does not offer ";

/// A goal with its figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The goal's name.
    pub id: String,
    /// What was measured.
    pub text: String,
    /// Seawall's figure.
    pub figure: Option<f64>,
    /// The other side's figure.
    pub peer: Option<f64>,
    /// Ours / theirs.
    pub ratio: Option<f64>,
    /// The threshold in words.
    pub goal: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether other processes disturbed one of its rounds, despite repetitions.
    pub disturbed: bool,
    /// Why it was not measured.
    pub why: Option<String>,
}

/// The figures of a cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// One for each round.
    pub values: Vec<f64>,
    /// Whether a round was disturbed.
    pub disturbed: bool,
    /// Why a round has no result.
    pub failed: Option<String>,
}

fn taken(take: Take, values: &[f64]) -> Option<f64> {
    match take {
        Take::Median => median(values),
        Take::Max => values.iter().copied().max_by(f64::total_cmp),
    }
}

/// Evaluates a goal from its figures.
pub fn evaluate(goal: &Goal, figures: impl Fn(&Source) -> Figures) -> Outcome {
    let ours = figures(&goal.ours);
    let theirs = goal.theirs.as_ref().map(&figures);
    let figure = taken(goal.take, &ours.values);
    let peer = theirs.as_ref().and_then(|theirs| taken(goal.take, &theirs.values));
    let ratio = if goal.growth {
        growth(goal, &figures)
    } else {
        figure.zip(peer).map(|(figure, peer)| figure / peer).filter(|ratio| ratio.is_finite())
    };
    let other = goal.or.as_ref().is_some_and(|other| {
        let of = Source { cell: goal.ours.cell.clone(), figure: other.figure.clone() };
        // A round without this figure does not count for it.
        let mut values = figures(&of).values;
        values.resize(values.len().max(ours.values.len()), 0.0);
        taken(goal.take, &values).is_some_and(|value| value >= other.at_least)
    });
    let other = other || goal.or_at_most.zip(figure).is_some_and(|(limit, figure)| figure <= limit);
    let disturbed = ours.disturbed || theirs.as_ref().is_some_and(|theirs| theirs.disturbed);
    let failed = ours.failed.or(theirs.and_then(|theirs| theirs.failed));
    let measured = figure.is_some() && (goal.theirs.is_none() || peer.is_some());
    let held = if goal.theirs.is_some() { ratio } else { figure };
    // After a failure, the rounds that are left would be a selection.
    let verdict = match held.filter(|_| failed.is_none()) {
        _ if goal.threshold == Threshold::Reported && measured && failed.is_none() => Verdict::Reported,
        Some(held) if goal.threshold.holds(held) || other => Verdict::Met,
        Some(_) => Verdict::Short,
        None if figure.is_some() && failed.as_ref().is_some_and(|why| why.contains(NOT_OFFERED)) => Verdict::NotOffered,
        None => Verdict::NotMeasured,
    };
    let why = matches!(verdict, Verdict::NotMeasured | Verdict::NotOffered)
        .then(|| failed.unwrap_or_else(|| "the result does not have the figure".into()));
    Outcome {
        id: goal.id.clone(),
        text: goal.text.clone(),
        figure,
        peer,
        ratio,
        goal: goal.in_words(),
        verdict,
        disturbed,
        why,
    }
}

/// How much more the figure grows than the pool, from theirs to ours, as a share of the pool's growth.
fn growth(goal: &Goal, figures: impl Fn(&Source) -> Figures) -> Option<f64> {
    let value = |source: &Source, figure: &str| {
        median(&figures(&Source { figure: figure.to_owned(), cell: source.cell.clone() }).values)
    };
    let theirs = goal.theirs.as_ref()?;
    let by = |figure: &str| Some(value(&goal.ours, figure)? - value(theirs, figure)?);
    let pool = by("pool_bytes").filter(|bytes| *bytes > 0.0)?;
    Some(by(&goal.ours.figure)? / pool - 1.0)
}

impl Threshold {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::MoreThan(bound) => value > bound,
            Self::AtMost(most) => value <= most,
            Self::Reported => true,
        }
    }
}

impl Goal {
    /// The threshold in words.
    pub fn in_words(&self) -> String {
        let bound = match self.threshold {
            Threshold::AtLeast(least) => format!(">= {least}"),
            Threshold::MoreThan(bound) => format!("> {bound}"),
            Threshold::AtMost(most) => format!("<= {most}"),
            Threshold::Reported => return "reported".into(),
        };
        let times = if self.theirs.is_some() && !self.growth { "x" } else { "" };
        let or_at_most = self.or_at_most.map(|limit| format!(" or <= {limit}")).unwrap_or_default();
        let or = self.or.as_ref().map(|other| format!(" or {} >= {}", other.figure, number(other.at_least)));
        bound + times + &or_at_most + &or.unwrap_or_default()
    }
}

impl Outcome {
    /// The figure, the other side's, and the ratio, as text.
    pub(super) fn shown(&self) -> [String; 3] {
        [self.figure, self.peer, self.ratio].map(|value| value.map_or("-".into(), number))
    }

    /// One line for a terminal.
    pub fn line(&self) -> String {
        let (Self { id, goal, .. }, [figure, peer, ratio]) = (self, self.shown());
        let word = self.verdict.word();
        let verdict = if self.verdict.is_bad() { word.to_uppercase() } else { word.to_owned() };
        let disturbed = if self.disturbed { " (disturbed by others' work)" } else { "" };
        let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("{id:<34} {figure:>12} {peer:>12} {ratio:>8}  {goal:<18} {verdict}{disturbed}{why}")
    }

    /// The heading over such lines.
    pub const HEADING: &'static str =
        "goal                                     seawall  beside this    ratio  must be            outcome";
}

/// How many goals have a threshold, and how many of these are met.
pub fn tally(outcomes: &[Outcome]) -> (usize, usize) {
    let met = outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Met).count();
    let counted = |outcome: &&Outcome| {
        !matches!(outcome.verdict, Verdict::Reported | Verdict::NotOffered) && outcome.goal != "reported"
    };
    (met, outcomes.iter().filter(counted).count())
}

/// Whether every goal was met, or measured if it is only reported.
pub fn all_well(outcomes: &[Outcome]) -> bool {
    !outcomes.is_empty() && !outcomes.iter().any(|outcome| outcome.verdict.is_bad())
}
