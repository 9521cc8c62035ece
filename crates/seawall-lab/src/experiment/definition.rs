//! The definition of an experiment. A Rust file in this folder defines the cells and decides the verdicts; the TOML
//! file of the same name holds the text: headings, publication, published figures, and the words of the verdicts,
//! tables and plots.

use crate::cell::CellSpec;
use crate::evidence::{Evidence, Panel, Words};
use crate::results::Results;
use crate::verdict::{Says, Writer};
use serde::Deserialize;

/// One experiment.
pub(crate) struct Definition {
    /// The TOML file with its text: [`Texts`].
    pub(crate) toml: &'static str,
    /// The cells of the default run, or of the full run, which includes them.
    pub(crate) cells: fn(full: bool) -> Vec<CellSpec>,
    /// Each adds the verdicts on one subject that the results allow.
    pub(crate) conclude: &'static [fn(&Results, &mut Writer<'_>)],
    /// The tables and plots behind the verdicts, in addition to the table of all cells.
    pub(crate) evidence: fn(&Evidence<'_>) -> Vec<Option<Panel>>,
}

/// The TOML file of an experiment. A panel has a title, a note on how to read it, and the head of its table or the
/// number that rates are shown over:
///
/// ```toml
/// [panels.rates]
/// title = "Random {block} direct writes per second"
/// over = ["thread", "threads"]
/// ```
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Texts {
    /// Its short name in menus.
    pub(crate) menu: String,
    /// The heading of its evidence.
    pub(crate) title: String,
    /// The question it answers.
    pub(crate) question: String,
    /// The publication it repeats.
    pub(crate) source: Option<Source>,
    /// The published rates.
    #[serde(default)]
    pub(crate) figures: Vec<Published>,
    /// The words of its verdicts.
    pub(crate) says: Says,
    /// The words of its tables and plots.
    #[serde(default)]
    pub(crate) panels: Words,
}

/// A publication.
///
/// ```
/// use seawall_lab::{cell::Experiment, experiment::source};
/// assert!(source(Experiment::AppendOverwrite).unwrap().citation.starts_with("Y. Matsunobu"));
/// assert_eq!(source(Experiment::Baseline), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Source {
    /// Author, title, year.
    pub citation: String,
    /// Its address on the web, where one is known.
    pub address: Option<String>,
    /// The hardware and software of the measurement.
    pub setup: String,
    /// A caveat to show beside the figures.
    pub caveat: String,
}

/// A published figure, or a series of them over threads.
///
/// ```
/// use seawall_lab::{cell::Experiment, experiment::published};
/// let rate = |what| published(Experiment::AppendOverwrite).iter().find(|p| p.what == what).unwrap().rates[0];
/// let ratio = rate("overwrite a full file") / rate("append to an empty file");
/// assert!((3.9..4.1).contains(&ratio), "overwriting was four times as fast");
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Published {
    /// What was measured.
    pub what: String,
    /// Operations per second: one rate, or one for each of [`Published::THREADS`] if published by threads; the middle
    /// of a published range.
    pub rates: Vec<f64>,
}

impl Published {
    /// The threads of a series.
    pub const THREADS: [u32; 5] = [1, 2, 4, 8, 16];
}
