//! The terminal output: a screenful at the end of a run, and everything with `--table`.
//!
//! - No line is wider than [`WIDTH_MAX`] columns; a long name continues on the next line.
//! - An unknown figure is `-`, never 0.

use crate::cell::Experiment;
use crate::evidence::{Body, Evidence, Panel, Table};
use crate::experiment::{definition, source, texts, verdicts};
use crate::results::{CellResult, Results};
use crate::settings::recommend;
use crate::summary;
use crate::text::{self, or_missing};
use crate::verdict::Level;

/// The widest line of [`table`], columns.
pub const WIDTH_MAX: usize = 130;
/// The widest line of [`screen`] and [`conclusions`], columns.
const SCREEN: usize = 100;
/// The widest name of a row.
const NAME: usize = 48;

/// Styles of the terminal output; [`PLAIN`] for files and pipes.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    bold: &'static str,
    warning: &'static str,
    dim: &'static str,
    end: &'static str,
}

/// No styles.
pub const PLAIN: Style = Style { bold: "", warning: "", dim: "", end: "" };
/// ANSI colours.
pub const COLOUR: Style = Style { bold: "\x1b[1m", warning: "\x1b[1;31m", dim: "\x1b[2m", end: "\x1b[0m" };

/// The end of a run on one screen: four figures, what to act on, the settings that differ from the defaults,
/// and where the rest is.
///
/// ```
/// use seawall_lab::{plan, sample, table};
/// let text = table::screen(&sample::of_plan(&plan::decisive()), table::PLAIN);
/// assert!(text.lines().count() <= 40 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
/// assert!(text.contains("! appending costs 2.5x overwriting on this ext4"));
/// ```
pub fn screen(results: &Results, style: Style) -> String {
    const INDENT: &str = "                     ";
    let Style { bold, warning, dim, end } = style;
    let mut out = text::wrap(&summary::subject(results), SCREEN, "", "  ") + "\n\n";
    // A sustained load measures none of them.
    let only_sustained = results.sustain.is_some() && results.cells.is_empty();
    for tile in summary::tiles(results).into_iter().filter(|_| !only_sustained) {
        let detail = text::wrap(&tile.detail, SCREEN, INDENT, INDENT);
        out += &format!("  {:8} {bold}{:>9}{end} {}\n{dim}{detail}{end}\n", tile.name, tile.figure, tile.unit);
    }
    out += &sustained(results);
    let all = verdicts(results);
    let of = |level| all.iter().filter(move |v| v.level == level);
    if of(Level::Warning).next().is_some() {
        out += &format!("\n{bold}act on{end}\n");
        for v in of(Level::Warning) {
            out += &format!("{warning}{}{end}\n", text::wrap(&v.sentence, SCREEN, "  ! ", "    "));
        }
    }
    let advice = recommend(results).seawall;
    if summary::changed(&advice).next().is_some() {
        out += &format!("\n{bold}settings{end} (seawall.toml; for MariaDB and MySQL in the report)\n");
        for r in summary::changed(&advice) {
            out += &format!("  {} = {} {dim}(default {}){end}\n", r.key, r.value, r.default);
        }
    }
    let counted = |level| Some(of(level).count()).filter(|n| *n > 0).map(|n| format!("{n} {}", level.words()));
    let others = [Level::Note, Level::Good, Level::CannotTell, Level::NotTested];
    let counts: Vec<String> = others.into_iter().filter_map(counted).collect();
    let rest = format!("{}; --table shows them and every cell, the report explains them", counts.join(", "));
    out + "\n" + &text::wrap(&rest, SCREEN, "", "") + "\n"
}

/// Every cell and table, by experiment.
///
/// ```
/// use seawall_lab::{plan, sample, table};
/// let text = table::table(&sample::of_plan(&plan::decisive()));
/// assert!(text.lines().all(|line| line.chars().count() <= table::WIDTH_MAX));
/// assert!(text.contains("random 16K reads, direct, depth 32, 1 thread"));
/// ```
pub fn table(results: &Results) -> String {
    let mut out = String::new();
    for experiment in Experiment::ALL {
        let Some(cells) = cells(results, experiment) else { continue };
        let citation = source(experiment).map_or_else(String::new, |s| format!("  {}", s.citation));
        out += if out.is_empty() { "" } else { "\n" };
        out += &format!("{} {experiment}{citation}\n{}", experiment.short().to_uppercase(), lines(&cells));
        for panel in panels(results, experiment) {
            if let Body::Table(table) = &panel.body {
                out += &format!("\n{}\n{}", panel.title, lines(table));
                if !panel.note.is_empty() {
                    out += &(text::wrap(&panel.note, WIDTH_MAX, "  ", "  ") + "\n");
                }
            }
        }
    }
    if !out.is_empty() {
        out += &format!("\n{}\n", text::wrap(CELLS_NOTE, WIDTH_MAX, "", ""));
    }
    out += &sustained(results);
    out += if results.skipped.is_empty() { "" } else { "\nnot measured here:\n" };
    for s in &results.skipped {
        out += &(text::wrap(&format!("{}: {}", s.title, s.reason), WIDTH_MAX, "  ", "    ") + "\n");
    }
    out
}

/// How to read [`cells`].
pub(crate) const CELLS_NOTE: &str = "+-: half the interval of the median, relative. written, flushes, reads: at the \
    device, for each operation. cached: page cache of the cell's files. *: other load on the machine disturbed some \
    rounds of this cell.";

/// The cells of an experiment; `None` if none was measured.
pub(crate) fn cells(results: &Results, experiment: Experiment) -> Option<Table> {
    let rows: Vec<Vec<String>> = results.cells_of(experiment).map(row).collect();
    let head = ["", "per s", "+-", "MB/s", "p50", "p99", "max", "written", "flushes", "reads", "cached"];
    (!rows.is_empty()).then(|| Table { head: head.map(str::to_owned).into(), rows })
}

fn row(cell: &CellResult) -> Vec<String> {
    let rate = cell.rate();
    let latency = |ns: Option<f64>| or_missing(ns, text::latency);
    let bytes = |b: f64| if b < 0.5 { "0".into() } else { text::bytes(b) };
    vec![
        cell.spec.title(),
        format!("{}{}", or_missing(rate, |r| text::count(r.median)), if cell.disturbed() { "*" } else { "" }),
        or_missing(rate, |r| text::spread(r.spread())),
        or_missing(cell.bytes_per_second(), |b| text::count((b / 1e6).round())),
        latency(cell.latency_ns(0.5)),
        latency(cell.latency_ns(0.99)),
        latency(cell.latency_ns_max().filter(|_| cell.operations() > 0)),
        or_missing(cell.per_operation(|d| Some(d.written_bytes)), bytes),
        or_missing(cell.per_operation(|d| d.flushes), text::count),
        or_missing(cell.per_operation(|d| Some(d.reads)), text::count),
        or_missing(cell.cached_bytes_max(), |b| bytes(b as f64)),
    ]
}

/// A table with aligned columns.
pub(crate) fn lines(table: &Table) -> String {
    let head = &table.head;
    let headed = head.iter().any(|h| !h.is_empty());
    let rows: Vec<&Vec<String>> = headed.then_some(head).into_iter().chain(&table.rows).collect();
    let width = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).map(|i| width(i).unwrap_or(0)).collect();
    let (name, last) = (widths[0].min(NAME), widths.len() - 1);
    // A last column of sentences is wrapped, the others are right-aligned figures.
    let text_last = last > 0 && widths[last] > NAME;
    let mut out = String::new();
    for cells in rows {
        let names = text::wrap(&cells[0], name, "", "  ");
        let mut names = names.lines();
        let mut line = format!("  {:name$}", names.next().unwrap_or(""));
        for (i, value) in cells.iter().enumerate().skip(1) {
            let pad = if text_last && i == last { 0 } else { widths[i] };
            line += &format!("  {value:>pad$}");
        }
        out += &match text_last {
            true => text::wrap(line.trim_start(), WIDTH_MAX, "  ", "    "),
            false => line.trim_end().to_owned(),
        };
        out.push('\n');
        out.extend(names.map(|rest| format!("  {rest}\n")));
    }
    out
}

/// The rate over time, in numbers: the report has the curve. Empty if it was not measured.
fn sustained(results: &Results) -> String {
    let Some(sustain) = results.sustain.as_ref().filter(|s| !s.per_second.is_empty()) else { return String::new() };
    let mut seconds = sustain.per_second.clone();
    seconds.sort_unstable();
    let [slowest, median, fastest] =
        [0, seconds.len() / 2, seconds.len() - 1].map(|i| text::count(f64::from(seconds[i])));
    let mut out = format!("\n{}, for {} s\n", sustain.title, seconds.len());
    out += &format!("  median {median}/s; slowest second {slowest}, fastest {fastest}\n");
    for plateau in sustain.plateaus.iter().filter(|_| sustain.plateaus.len() > 1) {
        out += &format!("  from {} s to {} s: {}/s\n", plateau.from_s, plateau.to_s, text::count(plateau.rate));
    }
    out
}

/// The mark of a level, which is never shown by colour alone.
fn mark(level: Level) -> char {
    match level {
        Level::Warning => '!',
        Level::Note => '-',
        Level::Good => '+',
        Level::CannotTell | Level::NotTested => '?',
    }
}

/// Every verdict with its reason, the most urgent first.
///
/// ```
/// use seawall_lab::{plan, sample, table};
/// let text = table::conclusions(&sample::of_plan(&plan::decisive()));
/// assert!(text.contains("! appending costs 2.5x overwriting on this ext4"));
/// assert!(text.lines().all(|line| line.chars().count() <= 100));
/// ```
pub fn conclusions(results: &Results) -> String {
    let all = verdicts(results);
    let mut out = String::new();
    for level in Level::ALL {
        let mark = mark(level);
        let mut of_level = all.iter().filter(|v| v.level == level).peekable();
        if of_level.peek().is_some() {
            out += &format!("{}{}\n", if out.is_empty() { "" } else { "\n" }, level.words());
        }
        for v in of_level {
            out += &(text::wrap(&v.sentence, SCREEN, &format!("  {mark} "), "    ") + "\n");
            out += &(text::wrap(&v.reason, SCREEN, "      ", "      ") + "\n");
        }
    }
    out
}

/// The panels of an experiment that have something to show.
pub(crate) fn panels(results: &Results, experiment: Experiment) -> Vec<Panel> {
    let evidence = Evidence { results, experiment, words: &texts(experiment).panels };
    (definition(experiment).evidence)(&evidence).into_iter().flatten().collect()
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
        assert!(text.contains("* ") && text.contains("not measured here"), "{text}");
        let first: Vec<usize> = text.lines().skip(1).take(4).map(|l| l.chars().count()).collect();
        assert!(first.windows(2).all(|w| w[0] == w[1]), "{text}");
        for shown in ["open_datasync", "may lose", "over 40%", "of disk", "MB/s"] {
            assert!(text.contains(shown), "{shown} is missing");
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
        assert!(table(&r).lines().nth(2).unwrap().matches(" -").count() >= 6, "{}", table(&r));
        assert_eq!(table(&sample::results(vec![])), "");
    }

    #[test]
    fn warnings_come_first_and_a_screen_holds_the_summary() {
        let mut r = sample::of_plan(&plan::full());
        let text = conclusions(&r);
        assert!(text.starts_with("act on\n"), "{text}");
        assert!(text.contains("\nnot tested\n  ? durability under power loss: not tested\n"), "{text}");
        let shown = screen(&r, COLOUR);
        assert!(
            shown.contains("\x1b[1;31m  ! ") && shown.contains("settings") && shown.contains("1 not tested"),
            "{shown}"
        );
        assert!(!screen(&r, PLAIN).contains('\x1b'));
        r.cells.clear();
        assert!(!conclusions(&r).contains("act on") && !screen(&r, PLAIN).contains("act on"));
        assert!(screen(&r, PLAIN).contains("not measured"));
    }
}
