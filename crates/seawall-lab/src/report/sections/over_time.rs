//! Rate over time: the rounds of the decisive cells, and the sustained run where there was one.

use super::menu;
use crate::cell::Experiment;
use crate::plan;
use crate::report::format::count;
use crate::report::plots::{Ink, Mark, Panel, Span, Strip, StripRow, panel, sustain};
use crate::results::{CellResult, Results};

/// Most strips to show; more would be unreadable.
const STRIPS_MAX: usize = 24;

pub(super) fn panels(results: &Results) -> Vec<String> {
    vec![sustained(results), strips(results)]
}

fn sustained(results: &Results) -> String {
    let Some(run) = &results.sustain else { return String::new() };
    let minutes = run.per_second.len() as f64 / 60.0;
    let found: Vec<String> = run
        .plateaus
        .iter()
        .map(|p| format!("{}/s from {} to {}", count(p.rate), clock(p.from_s), clock(p.to_s)))
        .collect();
    let words = Panel {
        title: format!("Sustained: {}", run.title),
        subtitle: format!(
            "Operations per second over {} minutes of constant load; band: slowest and fastest second",
            count(minutes)
        ),
        legend: vec![
            (Mark::Line, Ink::series(0), "mean".into()),
            (Mark::Line, Ink::Text, "steady stretch found".into()),
        ],
        note: if found.is_empty() {
            "No steady stretch was found.".into()
        } else {
            format!("Steady stretches: {}.", found.join("; "))
        },
        span: Span::Full,
    };
    panel(&words, &sustain(run))
}

fn clock(seconds: u32) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn strips(results: &Results) -> String {
    let rows: Vec<StripRow> = plan::decisive()
        .iter()
        .filter(|spec| spec.engine.is_none())
        .filter_map(|spec| results.cell(spec))
        .filter_map(row)
        .take(STRIPS_MAX)
        .collect();
    let words = Panel {
        title: "Rate within and between rounds".into(),
        subtitle: "Each step is a tenth of a second, each strip starts at zero; gaps are where other cells ran".into(),
        legend: Experiment::ALL
            .into_iter()
            .filter(|e| rows.iter().any(|r| r.ink == ink(*e)))
            .map(|e| (Mark::Block, ink(e), menu(e).to_owned()))
            .collect(),
        note: String::new(),
        span: Span::Full,
    };
    panel(&words, &Strip { rows })
}

fn row(cell: &CellResult) -> Option<StripRow> {
    let rounds: Vec<Vec<f64>> = cell
        .rounds
        .iter()
        .map(|r| {
            let whole = if r.seconds.is_finite() { (r.seconds * 10.0 + 1e-6).floor().max(0.0) as usize } else { 0 };
            r.per_tenth.iter().take(whole).map(|n| f64::from(*n) * 10.0).collect()
        })
        .filter(|r: &Vec<f64>| !r.is_empty())
        .collect();
    let ink = ink(cell.spec.experiment);
    (!rounds.is_empty()).then(|| StripRow { label: short(&cell.spec.title()), ink, rounds })
}

fn ink(experiment: Experiment) -> Ink {
    Ink::series(Experiment::ALL.iter().position(|e| *e == experiment).unwrap_or_default())
}

/// A cell's title without the parts common to all strips; the table has the full title.
fn short(title: &str) -> String {
    let words = [
        (", fdatasync each", " + fdatasync"),
        (", fdatasync per group", " + fdatasync"),
        (", RWF_DSYNC each", ", RWF_DSYNC"),
        (", 1 thread", ""),
        (" by Seawall", ""),
        ("another thread writing without pause", "others writing"),
        ("beside a rate-limited fill", "fill beside"),
    ];
    words.iter().fold(title.to_owned(), |text, (long, short)| text.replace(long, short))
}
