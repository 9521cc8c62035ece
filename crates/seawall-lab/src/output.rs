//! The files a run leaves: everything in them is computed from the results alone.

use crate::report::{self, File, Line, ReportInput};
use crate::results::Results;
use crate::settings::{Server, recommend};
use crate::verdict::{self, verdicts};

/// The HTML report of a run: one self-contained file.
///
/// ```
/// use seawall_lab::{output, plan, sample};
/// let html = output::html(&sample::of_plan(&plan::decisive()));
/// assert!(html.starts_with("<!doctype html>"));
/// ```
#[must_use]
pub fn html(results: &Results) -> String {
    let verdicts = verdicts(results);
    let lines: Vec<Line<'_>> = verdicts
        .iter()
        .map(|v| Line {
            level: match v.level {
                verdict::Level::Good => report::Level::Good,
                verdict::Level::Note => report::Level::Note,
                verdict::Level::Warning => report::Level::Warning,
                verdict::Level::CannotTell => report::Level::CannotTell,
                verdict::Level::NotTested => report::Level::NotTested,
            },
            experiment: v.experiment.unwrap_or(crate::cell::Experiment::Baseline),
            sentence: &v.sentence,
            reason: &v.reason,
        })
        .collect();
    let files = settings_files(results);
    let files: Vec<File<'_>> = files.iter().map(|(name, text)| File { name, text }).collect();
    report::html(&ReportInput { results, verdicts: &lines, settings: &files })
}

/// The settings that follow from a run: `seawall.toml`, and an option file for each server, as (name, text).
#[must_use]
pub fn settings_files(results: &Results) -> Vec<(String, String)> {
    let settings = recommend(results);
    let texts = std::iter::once(settings.to_toml()).chain(Server::ALL.into_iter().map(|s| settings.option_file(s)));
    settings_names().zip(texts).collect()
}

/// The names of [`settings_files`], in order.
///
/// ```
/// assert_eq!(seawall_lab::output::settings_names().next().as_deref(), Some("seawall.toml"));
/// ```
pub fn settings_names() -> impl Iterator<Item = String> {
    std::iter::once("seawall.toml".to_owned()).chain(Server::ALL.into_iter().map(|s| format!("{}.cnf", s.word())))
}
