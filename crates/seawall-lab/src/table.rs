//! The terminal output at the end of a run: the table of cells, and the verdicts.
//!
//! - No line of the table is wider than [`WIDTH_MAX`] columns; a long title continues on the next line.
//! - An unknown figure is `-`, never 0.

mod engine;

use crate::cell::Experiment;
use crate::results::{CellResult, Results, Sustain, operation_word};
use crate::text;
use crate::verdict::{Level, verdicts};

/// The widest line of [`table`], columns.
pub const WIDTH_MAX: usize = 130;

const TITLE: usize = 50;

/// The cells of a run, by experiment.
///
/// ```
/// use seawall_lab::{plan, sample, table};
/// let text = table::table(&sample::of_plan(&plan::decisive()));
/// assert!(text.lines().all(|line| line.chars().count() <= table::WIDTH_MAX));
/// assert!(text.contains("random 16K reads, direct, depth 32, 1 thread"));
/// ```
#[must_use]
pub fn table(results: &Results) -> String {
    let mut out = String::new();
    for experiment in Experiment::ALL {
        let cells: Vec<&CellResult> = results.cells_of(experiment).collect();
        if cells.is_empty() {
            continue;
        }
        let what = crate::published::source(experiment).map_or_else(String::new, |s| format!("  {}", s.citation));
        if !out.is_empty() {
            out.push('\n');
        }
        out += &format!("{} {experiment}{what}\n", experiment.short().to_uppercase());
        out += &header();
        for cell in cells {
            out += &row(cell);
        }
        match experiment {
            Experiment::CommitLevels => out += &engine::levels(results),
            Experiment::RangePrefetch => out += &engine::queries(results),
            _ => {}
        }
    }
    if let Some(sustain) = results.sustain.as_ref().filter(|s| !s.per_second.is_empty()) {
        out += &sustained(sustain);
    }
    if results.cells.iter().any(CellResult::disturbed) {
        out += "\n* other load on the machine disturbed some rounds of this cell\n";
    }
    if !results.skipped.is_empty() {
        out += "\nnot measured here:\n";
        for s in &results.skipped {
            out += &text::wrap(&format!("{}: {}", s.title, s.reason), WIDTH_MAX, "  ", "    ");
            out.push('\n');
        }
    }
    out
}

/// The rate over time, in numbers: the report has the curve.
fn sustained(sustain: &Sustain) -> String {
    let mut seconds = sustain.per_second.clone();
    seconds.sort_unstable();
    let rate = |i: usize| text::count(f64::from(seconds[i]));
    let (last, middle) = (seconds.len() - 1, seconds.len() / 2);
    let mut out = format!("{}, for {} s\n", sustain.title, seconds.len());
    out += &format!("  median {}/s; slowest second {}, fastest {}\n", rate(middle), rate(0), rate(last));
    for plateau in sustain.plateaus.iter().filter(|_| sustain.plateaus.len() > 1) {
        out += &format!("  from {} s to {} s: {}/s\n", plateau.from_s, plateau.to_s, text::count(plateau.rate));
    }
    out
}

fn header() -> String {
    format!(
        "{:TITLE$} {:>9} {:>5} {:>7} {:>7} {:>7}  {:>8} {:>8} {:>8} {:>8}\n{:TITLE$} {:>9} {:>5} {:>7} {:>7} {:>7}  {:>8} {:>8} {:>8} {:>8}\n",
        "",
        "per",
        "",
        "",
        "",
        "",
        "bytes",
        "flushes",
        "reads",
        "page",
        "",
        "second",
        "+-",
        "p50",
        "p99",
        "max",
        "per op",
        "per op",
        "per op",
        "cache"
    )
}

fn row(cell: &CellResult) -> String {
    let dash = || "-".to_owned();
    let rate = cell.rate();
    let latency = |ns: Option<u64>| ns.map_or_else(dash, |ns| text::latency(ns as f64));
    let device = cell.device_per_operation();
    let per = |value: f64| match value {
        v if !v.is_finite() => dash(),
        v if v < 0.005 => "0".into(),
        v if v < 100.0 => format!("{v:.2}"),
        v => text::count(v),
    };
    let mut lines = Vec::new();
    let title = text::wrap(&cell.spec.title(), TITLE, "", "  ");
    let mut titles = title.lines();
    lines.push(format!(
        "{:TITLE$} {:>9}{:1}{:>5} {:>7} {:>7} {:>7}  {:>8} {:>8} {:>8} {:>8}",
        titles.next().unwrap_or(""),
        rate.map_or_else(dash, |r| text::count(r.median)),
        if cell.disturbed() { "*" } else { "" },
        rate.map_or_else(dash, |r| spread(r.spread())),
        latency(cell.latency_ns(0.5)),
        latency(cell.latency_ns(0.99)),
        latency(cell.latency_ns_max().filter(|_| cell.operations() > 0)),
        device.map_or_else(dash, |d| text::bytes(d.written_bytes)),
        device.and_then(|d| d.flushes).map_or_else(dash, per),
        device.map_or_else(dash, |d| per(d.reads)),
        cell.cached_bytes_max().map_or_else(dash, |b| if b == 0 { "0".into() } else { text::bytes(b as f64) }),
    ));
    lines.extend(titles.map(str::to_owned));
    lines.iter().map(|l| l.trim_end().to_owned() + "\n").collect()
}

fn spread(spread: f64) -> String {
    match spread * 100.0 {
        s if !s.is_finite() => "-".into(),
        s if s >= 999.0 => ">999%".into(),
        s => format!("{s:.0}%"),
    }
}

/// The verdicts of a run, the most urgent first, wrapped for a terminal of 100 columns.
///
/// ```
/// use seawall_lab::{plan, sample, table};
/// let text = table::summary(&sample::of_plan(&plan::decisive()));
/// assert!(text.contains("! appending costs 2.5x overwriting on this ext4"));
/// assert!(text.lines().all(|line| line.chars().count() <= 100));
/// ```
#[must_use]
pub fn summary(results: &Results) -> String {
    let mut all = verdicts(results);
    // Stable: within a level the order of the experiments stays.
    all.sort_by_key(|v| v.level);
    let mut out = String::new();
    let mut last = None;
    for v in &all {
        if last != Some(v.level) {
            if last.is_some() {
                out.push('\n');
            }
            out += match v.level {
                Level::Warning => "act on\n",
                Level::Note => "worth knowing\n",
                Level::Good => "good\n",
                Level::CannotTell => "cannot tell\n",
                Level::NotTested => "not tested\n",
            };
            last = Some(v.level);
        }
        let mark = match v.level {
            Level::Warning => "  ! ",
            Level::Note => "  - ",
            Level::Good => "  + ",
            Level::CannotTell | Level::NotTested => "  ? ",
        };
        out += &text::wrap(&v.sentence, 100, mark, "    ");
        out.push('\n');
    }
    out
}

/// One line about a cell, for progress output: its title and median rate.
#[must_use]
pub fn line(cell: &CellResult) -> String {
    let rate = cell.rate().map_or_else(|| "-".to_owned(), |r| text::count(r.median));
    format!("{}: {rate} {}/s", cell.spec.title(), operation_word(&cell.spec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Skipped;
    use crate::{plan, sample};

    #[test]
    fn columns_stay_aligned_and_within_the_width() {
        let mut r = sample::of_plan(&plan::full());
        r.cells[3].rounds[0].foreign.disturbed = true;
        r.cells[4].rounds[0].latency_ns_max = 912_000_000_000;
        r.skipped.push(Skipped {
            id: "x".into(),
            title: "WRITE_ZEROES".into(),
            reason: "needs Linux 6.17 ".repeat(12),
        });
        let text = table(&r);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH_MAX, "{line}");
        }
        assert!(text.contains("disturbed some rounds") && text.contains("not measured here"));
        // Every row with figures ends at the header's last column.
        let width = header().lines().last().unwrap().chars().count();
        for line in text.lines().filter(|l| l.contains("%") && l.contains(" us ")) {
            assert_eq!(line.chars().count(), width, "{line}");
        }
    }

    #[test]
    fn unknown_figures_are_dashes() {
        let mut r = sample::results(vec![sample::cell(plan::random_read(1), 1e4)]);
        for round in &mut r.cells[0].rounds {
            round.device = None;
            round.cached_bytes = None;
            round.operations = 0;
            round.latency = histogram::SparseHistogram::new(6, 40).unwrap();
        }
        let text = table(&r);
        assert!(text.lines().last().unwrap().matches(" -").count() >= 6, "{text}");
        assert_eq!(table(&sample::results(vec![])), "");
    }

    #[test]
    fn warnings_come_first_and_levels_have_headings() {
        let mut r = sample::of_plan(&plan::decisive());
        let text = summary(&r);
        assert!(text.starts_with("act on\n"), "{text}");
        assert!(text.contains("\nnot tested\n  ? durability under power loss: not tested\n"), "{text}");
        r.cells.clear();
        assert!(!summary(&r).contains("act on"));
    }
}
