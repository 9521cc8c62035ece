//! The report: one HTML file that explains a run to someone who was not there.
//!
//! - Self-contained: no network, no external fonts, readable without scripts; light, dark, narrow, and on paper.
//! - Every figure is computed from [`Results`] or quoted from [`crate::published`]; the report measures and judges
//!   nothing.
//! - Published figures are drawn in grey and dashed, everywhere; colours belong to the user's own disk.
//! - What was not measured is left out or said to be missing: no empty axes, no zeros that stand for "unknown".
//! - Text from a results file reaches the page only through `format::escape`; odd numbers (none, zero, NaN) never
//!   panic.

mod format;
mod page;
mod plots;
mod sections;
mod table;
#[cfg(test)]
mod tests;

use crate::cell::Experiment;
use crate::results::Results;

/// What the report is made of.
#[derive(Debug, Clone, Copy)]
pub struct ReportInput<'a> {
    /// The run.
    pub results: &'a Results,
    /// What follows from it, in plain words.
    pub verdicts: &'a [Line<'a>],
    /// Settings to offer, in the order shown.
    pub settings: &'a [File<'a>],
}

/// One verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// How much it matters.
    pub level: Level,
    /// Where its evidence is.
    pub experiment: Experiment,
    /// The verdict in one sentence.
    pub sentence: &'a str,
    /// Why: the measurement behind it.
    pub reason: &'a str,
}

/// How much a verdict matters; warnings are shown first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something to act on.
    Warning,
    /// Worth knowing.
    Note,
    /// The difference is inside the noise.
    CannotTell,
    /// Nothing was measured that could say.
    NotTested,
    /// As it should be.
    Good,
}

/// A settings file to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File<'a> {
    /// Its name or purpose: `seawall.toml`, `MariaDB`.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// The report as one HTML document.
///
/// ```
/// use seawall_lab::report::{ReportInput, html};
/// use seawall_lab::{plan, sample};
/// let results = sample::of_plan(&plan::decisive());
/// let page = html(&ReportInput { results: &results, verdicts: &[], settings: &[] });
/// assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
/// ```
#[must_use]
pub fn html(input: &ReportInput<'_>) -> String {
    page::page(input)
}
