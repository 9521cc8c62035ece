//! The report: one HTML file that explains a run to a reader who did not make it.
//!
//! - Self-contained: loads nothing, readable without scripts; light, dark, narrow (420 px), and on paper.
//! - Order: the four figures, what to act on, the settings, what is worth knowing; folded: the other
//!   verdicts, every cell; then the evidence by experiment, the probe's findings and the sources.
//! - Every figure is computed from [`Results`] or quoted from a publication, every judgement is a verdict's;
//!   the report itself measures and judges nothing.
//! - The HTML is in the templates beside this file. A template escapes every text; `|safe` is only for HTML of other
//!   templates. Odd numbers never panic.

mod plot;
#[cfg(test)]
mod tests;

use crate::cell::{Access, Experiment, Preparation, Sync};
use crate::evidence::{Line, Lines, Panel, Point, Table};
use crate::experiment::{Published, published, source, texts, verdicts};
use crate::plan;
use crate::results::{CellResult, Plateau, Results};
use crate::settings::recommend;
use crate::summary;
use crate::table::{self, CELLS_NOTE, panels};
use crate::text;
pub use crate::text::{count, latency};
use crate::verdict::{Level, Verdict};
use askama::Template;

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

/// A page in the report's style: `title` is text, `body` is HTML. Control characters are dropped.
///
/// ```
/// let page = seawall_lab::report::frame("A benchmark", "<main><h1>A benchmark</h1></main>");
/// assert!(page.starts_with("<!doctype html>") && page.contains("<title>A benchmark</title>"));
/// ```
pub fn frame(title: &str, body: &str) -> String {
    #[derive(Template)]
    #[template(path = "frame.html")]
    struct Frame<'a> {
        title: &'a str,
        body: &'a str,
    }
    let page = Frame { title, body }.to_string() + "\n";
    page.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
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
    Panel::lines(title, "", lines).map_or_else(String::new, |panel| panel.to_string())
}

/// The page; `files` are settings to offer, as (name, text).
fn page(results: &Results, said: &[Verdict], files: &[(String, String)]) -> String {
    let body = Page { results, said, files }.to_string();
    frame(&format!("Seawall lab: {}", results.machine.host), &body)
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    results: &'a Results,
    said: &'a [Verdict],
    files: &'a [(String, String)],
}

/// Panels under a heading; never without one.
struct Section {
    id: &'static str,
    title: String,
    question: &'static str,
    panels: Vec<Panel>,
}

impl Page<'_> {
    /// What was measured on which machine.
    fn facts(&self) -> [(&'static str, String); 5] {
        let (m, run) = (&self.results.machine, &self.results.run);
        let plan = if run.full { "full plan" } else { "default plan" };
        let [memory, file] = [m.memory_bytes, run.file_bytes].map(|bytes| text::bytes(bytes as f64));
        [
            ("Measured", summary::subject(self.results)),
            ("Machine", format!("{}, {}, {memory}", m.cpu_model, text::many(m.cpus, "CPU", "CPUs"))),
            ("Kernel", m.kernel.clone()),
            ("Run", format!("{plan}, {file} file, {}", run.io_backend)),
            ("Started", text::moment(&self.results.started)),
        ]
    }

    /// The verdicts of one level.
    fn of(&self, level: Level) -> Vec<&Verdict> {
        self.said.iter().filter(|v| v.level == level).collect()
    }

    /// The cells by experiment, with its name in menus.
    fn cells(&self) -> Vec<(&'static str, Table)> {
        let cells = |e| Some((texts(e).menu.as_str(), table::cells(self.results, e)?));
        Experiment::ALL.into_iter().filter_map(cells).collect()
    }

    /// The evidence by experiment, and that across experiments.
    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = Experiment::ALL.map(|e| experiment(self.results, e)).into();
        sections.push(Section {
            id: "time",
            title: "How long one operation takes, and whether the rate holds".into(),
            question: "A rate hides the slow ones. Drives slow down when a cache fills or burst credit is spent.",
            panels: [percentiles(self.results), sustained(self.results)].into_iter().flatten().collect(),
        });
        sections.retain(|section| !section.panels.is_empty());
        sections
    }
}

fn capitalised(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The evidence of an experiment, and its publication; no panel if nothing was measured.
fn experiment(results: &Results, experiment: Experiment) -> Section {
    let mut panels = panels(results, experiment);
    let (id, d) = (experiment.short(), texts(experiment));
    let mut title = d.title.clone();
    if let Some(source) = source(experiment).filter(|_| !panels.is_empty()) {
        let note = format!("{}. {}. Read with care: {}", source.citation, source.setup, source.caveat);
        let figures = published_table(experiment, &note);
        // A publication that gives relations without rates is shown in words only.
        panels.extend(figures.or_else(|| Panel::table("Published", "", &[""], vec![vec![note]])));
        title = format!("{} · {title}", id.to_uppercase());
    }
    Section { id, title, question: &d.question, panels }
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
fn chosen(results: &Results) -> impl Iterator<Item = &CellResult> {
    let buffered = |p| plan::extend(p, Access::Buffered, Sync::Fdatasync);
    [
        plan::random_read(1),
        plan::direct_sync(1, 4096, Sync::None),
        plan::direct_sync(1, 4096, Sync::Fdatasync),
        plan::direct_sync(1, 4096, Sync::RwfDsync),
        buffered(Preparation::Append),
        buffered(Preparation::Written),
        plan::log(16, Access::Direct, 4096, true),
        plan::flush_under_writes(),
    ]
    .into_iter()
    .filter_map(|spec| results.cell(&spec))
}

/// Latency by percentile. A percentile is drawn only if at least ten operations lie beyond it.
fn percentiles(results: &Results) -> Option<Panel> {
    const NINES: [(f64, &str); 6] =
        [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (0.99999, "p99.999")];
    let x = |share: f64| -(1.0 - share).log10();
    let lines = chosen(results).map(|cell| {
        let total = cell.operations() as f64;
        let steps = (0..=60).map(|step| x(0.5) + f64::from(step) / 60.0 * (x(0.99999) - x(0.5)));
        let points = steps
            .map(|at| (at, 10f64.powf(-at)))
            .take_while(|(_, beyond)| total * beyond >= 10.0)
            .filter_map(|(at, beyond)| Some(Point::bare(at, cell.latency_ns(1.0 - beyond)?)));
        Line { name: cell.spec.title(), points: points.collect() }
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
        &format!("Sustained: {}, operations per second", run.title),
        &format!("Vertical lines: slowest to fastest second. Steady stretches: {}.", found.join("; ")),
        Lines {
            x_title: "minutes".into(),
            x_ticks: (0..=4).map(|i| f64::from(i) * minutes / 4.0).map(|m| (m, format!("{m:.1}"))).collect(),
            y_tick: text::count,
            y_logarithmic: false,
            lines: vec![Line { name: String::new(), points: points.collect() }],
        },
    )
}
