//! The evidence: one section per experiment, then latency and rate over time across experiments.
//!
//! - A section without measurements is left out, with its link.
//! - Each section shows its experiment's publication, with its setup and a caveat for today.
//! - Curves need three points of one series; with fewer the same cells are drawn as bars.

mod append_overwrite;
mod baseline;
mod commit_levels;
mod direct_sync;
mod latency;
mod log_memory;
mod over_time;
mod parallel_direct;
mod range_prefetch;
mod settings;

use super::format::{count, escape, percent};
use super::plots::{Bar, Ink, Point, write_html};
use crate::cell::Experiment;
use crate::published;
use crate::results::{CellResult, Results};

/// A section of the page.
#[derive(Debug)]
pub(crate) struct Section {
    /// Anchor.
    pub(crate) id: &'static str,
    /// Entry in the page's menu.
    pub(crate) menu: &'static str,
    /// The section as HTML.
    pub(crate) html: String,
}

/// Every section that has something to show, in order.
pub(crate) fn all(results: &Results) -> Vec<Section> {
    let mut sections = Vec::new();
    for experiment in Experiment::ALL {
        let panels = match experiment {
            Experiment::Baseline => baseline::panels(results),
            Experiment::DirectSync => direct_sync::panels(results),
            Experiment::LogMemory => log_memory::panels(results),
            Experiment::ParallelDirect => parallel_direct::panels(results),
            Experiment::AppendOverwrite => append_overwrite::panels(results),
            Experiment::CommitLevels => commit_levels::panels(results),
            Experiment::RangePrefetch => range_prefetch::panels(results),
            Experiment::Settings => settings::panels(results),
        };
        let (kicker, title, question) = words(experiment);
        sections.push((experiment.short(), menu(experiment), section(experiment, kicker, title, question, &panels)));
    }
    let mut all: Vec<Section> =
        sections.into_iter().filter_map(|(id, menu, html)| html.map(|html| Section { id, menu, html })).collect();
    let across = [
        (
            "latency",
            "Latency",
            "How long one operation takes",
            "A rate hides the slow ones. These are all operations of all rounds, the slowest included.",
            latency::panels(results),
        ),
        (
            "time",
            "Over time",
            "Whether the rate holds",
            "Drives slow down when a cache fills or burst credit is spent; a flat strip is what a median may be \
             trusted on.",
            over_time::panels(results),
        ),
    ];
    for (id, menu, title, question, panels) in across {
        if panels.iter().all(String::is_empty) {
            continue;
        }
        let html = format!(
            r#"<section id="{id}"><h2>{title}</h2><p class="question">{question}</p><div class="panels">{}</div>
</section>"#,
            panels.concat()
        );
        all.push(Section { id, menu, html });
    }
    all
}

fn section(experiment: Experiment, kicker: &str, title: &str, question: &str, panels: &[String]) -> Option<String> {
    if panels.iter().all(String::is_empty) {
        return None;
    }
    let mut out = format!(
        r#"<section id="{}"><p class="kicker">{}</p><h2>{}</h2><p class="question">{}</p>"#,
        experiment.short(),
        escape(kicker),
        escape(title),
        escape(question)
    );
    write_html(&mut out, format_args!(r#"<div class="panels">{}</div>"#, panels.concat()));
    if let Some(source) = published::source(experiment) {
        write_html(
            &mut out,
            format_args!(
                r#"<aside class="source"><p><b>Published:</b> {}. {}.</p><p><b>Read with care:</b> {}</p></aside>"#,
                escape(source.citation),
                escape(source.setup),
                escape(source.caveat)
            ),
        );
    }
    out.push_str("</section>");
    Some(out)
}

fn words(experiment: Experiment) -> (&'static str, &'static str, &'static str) {
    match experiment {
        Experiment::Baseline => {
            ("Baseline", "What the device gives on its own", "How much faster does it read when more is asked at once?")
        }
        Experiment::DirectSync => (
            "E1 · direct-sync",
            "What a flush costs after each direct write",
            "A direct write is not durable while the drive may hold it in a volatile cache. What does making sure \
             cost here?",
        ),
        Experiment::LogMemory => (
            "E2 · log-memory",
            "How a log should be written",
            "Through the page cache, past it, or around it: commits per second, and the memory the log keeps from \
             the database.",
        ),
        Experiment::ParallelDirect => (
            "E3 · parallel-direct",
            "Whether parallel writers to one file get in each other's way",
            "Some file systems let one direct writer in at a time; others do so once pages are cached or the file \
             grows.",
        ),
        Experiment::AppendOverwrite => (
            "E4 · append-overwrite",
            "What it costs to write where nothing was written before",
            "Appending changes the file's size and extents, so each sync commits the file system's journal too.",
        ),
        Experiment::CommitLevels => (
            "E5 · commit-levels",
            "What a weaker commit gains, and what it may lose",
            "The engine on this disk: three levels of commit durability, by flush method, under three loads.",
        ),
        Experiment::RangePrefetch => (
            "E6 · range-prefetch",
            "How much of the disk one query gets",
            "Range queries over trees that do not fit in memory: one page at a time, or as many as the disk can take.",
        ),
        Experiment::Settings => (
            "Settings at work",
            "What following the recommendation changes",
            "The engine on this disk under its own defaults, and under the seawall.toml of this report.",
        ),
    }
}

/// The short name of an experiment in menus and on verdict cards.
pub(crate) fn menu(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Baseline => "Baseline",
        Experiment::DirectSync => "Flush cost",
        Experiment::LogMemory => "Log writes",
        Experiment::ParallelDirect => "Parallel writers",
        Experiment::AppendOverwrite => "Append",
        Experiment::CommitLevels => "Commit levels",
        Experiment::RangePrefetch => "Range queries",
        Experiment::Settings => "Settings at work",
    }
}

/// A cell's rate as a point at `x`.
fn point(cell: &CellResult, x: f64, divide_by: f64) -> Option<Point> {
    let rate = cell.rate()?;
    let [y, low, high] = [rate.median, rate.low, rate.high].map(|v| v / divide_by);
    [y, low, high].iter().all(|v| v.is_finite()).then_some(Point { x, y, low, high })
}

/// A cell's rate as a bar: `12.3k/s ±2%`.
fn rate_bar(cell: &CellResult, label: impl Into<String>, ink: Ink) -> Option<Bar> {
    let rate = cell.rate()?;
    let text = format!("{}/s ±{}", count(rate.median), percent(rate.spread()));
    Some(Bar { low: rate.low, high: rate.high, ..Bar::new(label, rate.median, text, ink) })
}

/// Positions of powers of two and their labels for an x axis over threads or depth.
fn doubling(values: impl Iterator<Item = u32>) -> Vec<(f64, String)> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.into_iter().map(|v| (log2(v), v.to_string())).collect()
}

fn log2(value: u32) -> f64 {
    f64::from(value.max(1)).log2()
}

fn threads_word(threads: u32) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}
