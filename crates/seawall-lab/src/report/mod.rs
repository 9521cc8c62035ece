//! The report: one HTML file that explains a run to a reader who did not make it.
//!
//! - Self-contained: loads nothing, readable without scripts; light, dark, narrow (420 px), and on paper.
//! - Order: the four figures, what to act on, the settings, what is worth knowing; folded: the other
//!   verdicts, every cell; then the evidence by experiment, the probe's findings and the sources.
//! - Every figure is computed from [`Results`] or quoted from a publication, every judgement is a verdict's;
//!   the report itself measures and judges nothing.
//! - The HTML is in pieces in `parts.html`. Text from a results file reaches the page only through
//!   `text::escape`, which `part` applies to every `{name}` of a piece; odd numbers never panic.

mod plot;
#[cfg(test)]
mod tests;

use crate::cell::{Access, Experiment, Preparation, Sync};
use crate::evidence::{Line, Lines, Panel, Point};
use crate::experiment::{Published, Source, published, source, texts, verdicts};
use crate::plan;
use crate::results::{CellResult, Plateau, Results, RunSettings, Skipped};
use crate::settings::recommend;
use crate::summary::{self, Tile};
use crate::table::{self, Shown, panels, shown};
use crate::text::{self, Var, fill_html, vars};
pub use crate::text::{count, escape, latency};
use crate::verdict::{Level, Verdict};
use seawall_io::probe::{Explained, explain};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The pieces of the page by name.
static PARTS: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let parts = include_str!("parts.html").split("<!-- ").skip(1);
    parts.filter_map(|part| part.split_once(" -->")).map(|(name, html)| (name, html.trim())).collect()
});

/// A piece of the page with these values.
fn part(name: &str, vars: &[Var<'_>]) -> String {
    fill_html(PARTS[name], vars)
}

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The report as one HTML document.
///
/// ```
/// use seawall_lab::{plan, report, sample};
/// let page = report::html(&sample::of_plan(&plan::decisive()));
/// assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
/// ```
pub fn html(results: &Results) -> String {
    page(results, &verdicts(results), &recommend(results).files())
}

/// A page in the report's style: `title` is text, `body` is HTML.
///
/// ```
/// let page = seawall_lab::report::frame("A benchmark", "<main><h1>A benchmark</h1></main>");
/// assert!(page.starts_with("<!doctype html>") && page.contains("<title>A benchmark</title>"));
/// ```
pub fn frame(title: &str, body: &str) -> String {
    part("frame", vars![title, style = STYLE, body, script = SCRIPT]) + "\n"
}

/// A line through `points` in a panel of the report's style; empty without two points. `y_tick` formats a value of the
/// axis, which starts at zero unless it is logarithmic.
///
/// ```
/// use seawall_lab::report::line_plot;
/// let ticks = vec![(0.0, "0".to_owned()), (60.0, "60".to_owned())];
/// let plot = line_plot("Rate over time", "seconds", ticks, |v| format!("{v:.0}"), false, &[(0.0, 10.0), (60.0, 12.0)]);
/// assert!(plot.contains("<svg") && plot.contains("seconds"));
/// ```
pub fn line_plot(
    title: &str,
    x_title: &str,
    x_ticks: Vec<(f64, String)>,
    y_tick: fn(f64) -> String,
    y_logarithmic: bool,
    points: &[(f64, f64)],
) -> String {
    let line = Line { name: String::new(), points: points.iter().map(|(x, y)| Point::bare(*x, *y)).collect() };
    let lines = Lines { x_title: x_title.into(), x_ticks, y_tick, y_logarithmic, lines: vec![line] };
    Panel::lines(title, "", lines).map_or_else(String::new, |panel| plot::panel(&panel))
}

/// The page; `files` are settings to offer, as (name, text).
fn page(results: &Results, said: &[Verdict], files: &[(String, String)]) -> String {
    let sections: String = Experiment::ALL.into_iter().map(|e| experiment(results, e)).collect();
    let over_time = [percentiles(results), sustained(results)].into_iter().flatten();
    let across = section(
        "time",
        "How long one operation takes, and whether the rate holds",
        "A rate hides the slow ones. Drives slow down when a cache fills or burst credit is spent.",
        &over_time.collect::<Vec<_>>(),
    );
    let main = [
        banners(results),
        tiles(results),
        list(said, Level::Warning, false),
        settings(files),
        list(said, Level::Note, false),
        [Level::CannotTell, Level::NotTested, Level::Good].map(|level| list(said, level, true)).concat(),
        every_cell(results),
        sections,
        across,
        probe(results),
        skipped(results),
        sources(results),
    ];
    let (header, main, version) = (header(results), main.concat(), &results.seawall_version);
    frame(&format!("Seawall lab: {}", results.machine.host), &part("body", vars![header, main, version]))
}

fn header(results: &Results) -> String {
    let (m, run) = (&results.machine, &results.run);
    let plan = if run.full { "full plan" } else { "default plan" };
    let [memory, file] = [m.memory_bytes, run.file_bytes].map(|bytes| text::bytes(bytes as f64));
    let facts = [
        ("Measured", summary::subject(results)),
        ("Machine", format!("{}, {}, {memory}", m.cpu_model, text::many(m.cpus, "CPU", "CPUs"))),
        ("Kernel", m.kernel.clone()),
        ("Run", format!("{plan}, {file} file, {}", run.io_backend)),
        ("Started", text::moment(&results.started)),
    ];
    let facts = facts.map(|(name, value)| part("fact", vars![name, value])).concat();
    part("header", vars![host = m.host, facts])
}

fn banners(results: &Results) -> String {
    if !results.complete {
        part("incomplete", &[])
    } else if results.measured() == 0 && results.sustain.is_none() {
        part("nothing-measured", &[])
    } else {
        String::new()
    }
}

fn tiles(results: &Results) -> String {
    let tiles = summary::tiles(results);
    let tiles = tiles.map(|Tile { name, figure, unit, detail }| part("tile", vars![name, figure, unit, detail]));
    part("tiles", vars![tiles = tiles.concat()])
}

/// The verdicts of one level; empty if there are none.
fn list(said: &[Verdict], level: Level, folded: bool) -> String {
    let Shown { class, icon, .. } = shown(level);
    // Verdicts to act on are shown whole; the others show their reason on a click.
    let card = if level == Level::Warning { "card" } else { "folded-card" };
    let cards = said.iter().filter(|v| v.level == level).map(|v| {
        let link = v.experiment.map_or_else(String::new, |e| {
            format!(" {}", part("experiment-link", vars![short = e.short(), menu = texts(e).menu]))
        });
        part(card, vars![class, icon, sentence = capitalised(&v.sentence), reason = v.reason, link])
    });
    let cards: Vec<String> = cards.collect();
    let (title, n, cards) = (capitalised(level.words()), cards.len(), cards.concat());
    match n {
        0 => String::new(),
        _ => part(if folded { "folded-cards" } else { "cards" }, vars![title, n, cards]),
    }
}

fn capitalised(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// One box with a tab for each server; works without scripts.
fn settings(files: &[(String, String)]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let (mut tabs, mut texts) = (String::new(), String::new());
    for (i, (name, text)) in files.iter().enumerate() {
        let checked = if i == 0 { " checked" } else { "" };
        tabs += &part("tab", vars![i, checked, name]);
        texts += &part("tab-text", vars![text]);
    }
    part("settings", vars![tabs, texts])
}

fn section(id: &str, title: &str, question: &str, panels: &[Panel]) -> String {
    let panels: String = panels.iter().map(plot::panel).collect();
    if panels.is_empty() {
        return panels;
    }
    part("section", vars![id, title, question, panels])
}

/// The evidence of an experiment, and its publication; empty if nothing was measured.
fn experiment(results: &Results, experiment: Experiment) -> String {
    let mut shown = panels(results, experiment);
    let (short, d) = (experiment.short(), texts(experiment));
    let mut title = d.title.clone();
    if let Some(source) = source(experiment).filter(|_| !shown.is_empty()) {
        let note = format!("{}. {}. Read with care: {}", source.citation, source.setup, source.caveat);
        let figures = published_table(experiment, &note);
        // A publication that gives relations without rates is shown in words only.
        shown.extend(figures.or_else(|| Panel::table("Published", "", &[""], vec![vec![note]])));
        title = format!("{} · {title}", short.to_uppercase());
    }
    section(short, &title, &d.question, &shown)
}

/// The published rates, by threads where they were published so.
fn published_table(experiment: Experiment, note: &str) -> Option<Panel> {
    let figures = published(experiment);
    let row = |p: &Published, n: usize| {
        let rates = (0..n).map(|i| text::or_missing(p.rates.get(i), |rate| text::count(*rate)));
        std::iter::once(p.what.clone()).chain(rates).collect()
    };
    let (head, n): (&[_], _) = match figures.iter().any(|p| p.rates.len() > 1) {
        true => (&["per second, by threads", "1", "2", "4", "8", "16"], Published::THREADS.len()),
        false => (&["", "per second"], 1),
    };
    Panel::table("Published", note, head, figures.iter().map(|p| row(p, n)).collect())
}

/// The cells whose latency is shown.
fn chosen(results: &Results) -> Vec<(&CellResult, &'static str)> {
    let buffered = |p| plan::extend(p, Access::Buffered, Sync::Fdatasync);
    [
        (plan::random_read(1), "random 16K read"),
        (plan::direct_sync(1, 4096, Sync::None), "4K direct write, no sync"),
        (plan::direct_sync(1, 4096, Sync::Fdatasync), "4K direct write + fdatasync"),
        (plan::direct_sync(1, 4096, Sync::RwfDsync), "4K direct write, RWF_DSYNC"),
        (buffered(Preparation::Append), "8K append + fdatasync"),
        (buffered(Preparation::Written), "8K overwrite + fdatasync"),
        (plan::log(16, Access::Direct, 4096, true), "log commit, direct, 16 threads"),
        (plan::flush_under_writes(), "fdatasync beside a busy writer"),
    ]
    .into_iter()
    .filter_map(|(spec, name)| Some((results.cell(&spec)?, name)))
    .collect()
}

/// Latency by percentile. A percentile is drawn only if at least ten operations lie beyond it.
fn percentiles(results: &Results) -> Option<Panel> {
    const NINES: [(f64, &str); 6] =
        [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (0.99999, "p99.999")];
    let x = |share: f64| -(1.0 - share).log10();
    let lines = chosen(results).into_iter().map(|(cell, name)| {
        let total = cell.operations() as f64;
        let steps = (0..=60).map(|step| x(0.5) + f64::from(step) / 60.0 * (x(0.99999) - x(0.5)));
        let points = steps
            .map(|at| (at, 10f64.powf(-at)))
            .take_while(|(_, beyond)| total * beyond >= 10.0)
            .filter_map(|(at, beyond)| Some(Point::bare(at, cell.latency_ns(1.0 - beyond)?)));
        Line { name: name.to_owned(), points: points.collect() }
    });
    let lines: Vec<Line> = lines.collect();
    let furthest = lines.iter().flat_map(|l| &l.points).map(|p| p.x).fold(0.0, f64::max);
    Panel::lines(
        "Latency by percentile",
        "Each step to the right is ten times rarer. A line ends where fewer than ten operations lie beyond it.",
        Lines {
            x_title: "percentile of operations".into(),
            x_ticks: NINES.iter().map(|(s, n)| (x(*s), (*n).to_owned())).filter(|t| t.0 <= furthest + 1e-6).collect(),
            y_tick: text::latency,
            y_logarithmic: true,
            lines,
        },
    )
}

fn sustained(results: &Results) -> Option<Panel> {
    let run = results.sustain.as_ref()?;
    let size = run.per_second.len().div_ceil(400).max(1);
    let points = run.per_second.chunks(size).enumerate().map(|(i, chunk)| {
        let rates = || chunk.iter().map(|n| f64::from(*n));
        let seconds = chunk.len() as f64;
        let (x, y) = (((i * size) as f64 + seconds / 2.0) / 60.0, rates().sum::<f64>() / seconds);
        Point { x, y, low: rates().fold(f64::INFINITY, f64::min), high: rates().fold(0.0, f64::max) }
    });
    let minutes = run.per_second.len() as f64 / 60.0;
    let clock = |s: u32| format!("{}:{:02}", s / 60, s % 60);
    let stretch = |p: &Plateau| format!("{}/s from {} to {}", text::count(p.rate), clock(p.from_s), clock(p.to_s));
    let found: Vec<String> = run.plateaus.iter().map(stretch).collect();
    Panel::lines(
        format!("Sustained: {}, operations per second", run.title),
        format!("Vertical lines: slowest to fastest second. Steady stretches: {}.", found.join("; ")),
        Lines {
            x_title: "minutes".into(),
            x_ticks: (0..=4).map(|i| f64::from(i) * minutes / 4.0).map(|m| (m, format!("{m:.1}"))).collect(),
            y_tick: text::count,
            y_logarithmic: false,
            lines: vec![Line { name: String::new(), points: points.collect() }],
        },
    )
}

fn every_cell(results: &Results) -> String {
    let table = |e: Experiment| {
        let table = plot::table(&table::cells(results, e)?);
        Some(part("cells-of-experiment", vars![menu = texts(e).menu, table]))
    };
    let tables: String = Experiment::ALL.into_iter().filter_map(table).collect();
    if tables.is_empty() { tables } else { part("cells", vars![note = table::CELLS_NOTE, tables]) }
}

fn probe(results: &Results) -> String {
    let row = |Explained { name, value, meaning, .. }| part("probe-row", vars![name, value, meaning]);
    let rows: String = explain(&results.probe).into_iter().map(row).collect();
    part("probe", vars![rows])
}

fn skipped(results: &Results) -> String {
    let n = results.skipped.len();
    let row = |Skipped { title, reason, .. }: &Skipped| part("skipped-row", vars![title, reason]);
    let rows: String = results.skipped.iter().map(row).collect();
    if n == 0 { rows } else { part("skipped", vars![n, rows]) }
}

fn sources(results: &Results) -> String {
    let item = |e: Experiment| {
        let Source { citation, address, .. } = source(e)?;
        let link = address.as_ref().map(|address| format!(" {}", part("source-link", vars![address])));
        Some(part("source", vars![name = e.short().to_uppercase(), citation, link = link.unwrap_or_default()]))
    };
    let list: String = Experiment::ALL.into_iter().filter_map(item).collect();
    let Results { seawall_version: version, started, format, run: RunSettings { command, seed, .. }, .. } = results;
    part("sources", vars![list, command, version, seed, format, started])
}
