//! What an experiment consists of: each file of this folder defines one.

use crate::cell::CellSpec;
use crate::evidence::Panel;
use crate::results::Results;
use crate::verdict::Writer;

/// One experiment.
pub(crate) struct Definition {
    /// Its short name in menus.
    pub(crate) menu: &'static str,
    /// The heading of its evidence.
    pub(crate) title: &'static str,
    /// The question it answers.
    pub(crate) question: &'static str,
    /// The publication it repeats.
    pub(crate) source: Option<Source>,
    /// The published rates.
    pub(crate) figures: &'static [Published],
    /// The cells of the default run, or of the full one, which holds the former.
    pub(crate) cells: fn(full: bool) -> Vec<CellSpec>,
    /// Each adds the verdicts on one subject that the results allow.
    pub(crate) conclude: &'static [fn(&Results, &mut Writer<'_>)],
    /// The tables and plots behind the verdicts, beside the table of all cells.
    pub(crate) evidence: fn(&Results) -> Vec<Option<Panel>>,
}

/// A publication.
///
/// ```
/// use seawall_lab::{cell::Experiment, experiment::source};
/// assert!(source(Experiment::AppendOverwrite).unwrap().citation.starts_with("Y. Matsunobu"));
/// assert_eq!(source(Experiment::Baseline), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Author, title, year.
    pub citation: &'static str,
    /// Its address on the web, where one is known.
    pub address: Option<&'static str>,
    /// The hardware and software of the measurement.
    pub setup: &'static str,
    /// A caveat to show beside the figures.
    pub caveat: &'static str,
}

/// A published figure, or a series of them over threads.
///
/// ```
/// use seawall_lab::{cell::Experiment, experiment::published};
/// let rate = |what| published(Experiment::AppendOverwrite).iter().find(|p| p.what == what).unwrap().rates[0];
/// let ratio = rate("overwrite a full file") / rate("append to an empty file");
/// assert!((3.9..4.1).contains(&ratio), "overwriting was four times as fast");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// What was measured.
    pub what: &'static str,
    /// Operations per second, by [`Published::THREADS`] where they were published so; the middle of a published
    /// range.
    pub rates: &'static [f64],
}

impl Published {
    /// The threads of a series.
    pub const THREADS: [u32; 5] = [1, 2, 4, 8, 16];
}
