//! The report: one HTML file that explains a run to a reader who did not make it.
//!
//! - Self-contained: no network, no external fonts, readable without scripts; light, dark, narrow, and on paper.
//! - Every figure is computed from [`Results`] or quoted from [`crate::published`], every judgement is one of
//!   [`crate::verdict`]'s; the report itself measures and judges nothing.
//! - Published figures are drawn in grey and dashed, everywhere; colours belong to the user's own disk.
//! - Missing measurements are left out or shown as missing: no empty axes, no zeros for "unknown".
//! - Text from a results file reaches the page only through `format::escape`; odd numbers (none, zero, NaN) never
//!   panic.

mod format;
mod page;
mod plots;
mod sections;
mod table;
#[cfg(test)]
mod tests;

use crate::results::Results;
use crate::settings::recommend;
use crate::verdict::verdicts;

/// The report as one HTML document.
///
/// ```
/// use seawall_lab::{plan, report, sample};
/// let page = report::html(&sample::of_plan(&plan::decisive()));
/// assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
/// ```
#[must_use]
pub fn html(results: &Results) -> String {
    page::page(results, &verdicts(results), &recommend(results).files())
}
