//! The evidence of an experiment as data: tables, bars and lines. The terminal and the report show the same.
//!
//! - A panel without data is omitted: no empty axes, no zero for "unknown".
//! - Two kinds of plot: bars for single figures, lines for a figure over threads, depth, percentile or time.

use crate::cell::{CellSpec, Experiment};
use crate::results::{CellResult, Results};
use crate::text::{self, Var, fill};
use askama::Template;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The words of an experiment's panels, by the panel.
pub(crate) type Words = BTreeMap<String, PanelWords>;

/// The words of one panel; `{name}` is a variable.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PanelWords {
    title: String,
    /// How to read it.
    #[serde(default)]
    note: String,
    /// The columns of a table.
    #[serde(default)]
    head: Vec<String>,
    /// What rates are shown over, as one and as more: `["thread", "threads"]`.
    #[serde(default)]
    over: [String; 2],
}

/// Makes the panels of one experiment.
pub(crate) struct Evidence<'a> {
    pub(crate) results: &'a Results,
    pub(crate) experiment: Experiment,
    pub(crate) words: &'a Words,
}

/// Something to show below an experiment's heading.
#[derive(Debug, Clone, Template)]
#[template(path = "panel.html")]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// How to read it; empty if the title says it.
    pub(crate) note: String,
    pub(crate) body: Body,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Table(Table),
    Bars(Vec<Bar>),
    Lines(Lines),
}

/// A table; the first column holds names, the others figures.
#[derive(Debug, Clone, Template)]
#[template(path = "table.html")]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// One bar.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// Interval of the value.
    pub(crate) interval: (f64, f64),
    /// The figure printed beside it.
    pub(crate) text: String,
    /// Its colour.
    pub(crate) series: usize,
    /// The published value on the same scale, and its figure.
    pub(crate) published: Option<(f64, String)>,
}

/// A line plot.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    pub(crate) x_title: String,
    pub(crate) x_ticks: Vec<(f64, String)>,
    pub(crate) y_tick: fn(f64) -> String,
    pub(crate) y_logarithmic: bool,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Interval of `y`.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Point {
    pub(crate) fn bare(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }
}

impl Bar {
    /// A cell's rate: `12,330/s ±2%`.
    pub(crate) fn rate(cell: &CellResult, label: impl Into<String>, series: usize) -> Option<Self> {
        let rate = cell.rate().filter(|r| r.median.is_finite())?;
        Some(Self {
            label: label.into(),
            value: rate.median,
            interval: (rate.low, rate.high),
            text: format!("{}/s ±{}", text::count(rate.median), text::spread(rate.spread())),
            series,
            published: None,
        })
    }

    /// Adds the bar's share of `base`, if there is one, and optionally a published figure: its rate, the base of that
    /// rate, and its unit.
    pub(crate) fn relative(
        self,
        base: Option<f64>,
        show: fn(f64) -> String,
        published: Option<(f64, f64, &str)>,
    ) -> Self {
        let Some(base) = base.filter(|base| *base > 0.0) else { return self };
        let published = published.map(|(rate, published_base, unit)| {
            let share = rate / published_base;
            (share * base, format!("published: {} · {}{unit}", show(share), text::count(rate)))
        });
        Self { text: format!("{} · {}", show(self.value / base), self.text), published, ..self }
    }
}

impl<'a> Evidence<'a> {
    /// The measured cells.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &'a CellResult> {
        self.results.cells_of(self.experiment)
    }

    /// A table, unless it has no rows.
    pub(crate) fn table(&self, key: &str, vars: &[Var<'_>], rows: Vec<Vec<String>>) -> Option<Panel> {
        let PanelWords { title, note, head, .. } = &self.words[key];
        Panel::table(&fill(title, vars), &fill(note, vars), head, rows)
    }

    /// Bars, unless there are none.
    pub(crate) fn bars(&self, key: &str, vars: &[Var<'_>], bars: Vec<Bar>) -> Option<Panel> {
        let PanelWords { title, note, .. } = &self.words[key];
        Panel::some(&fill(title, vars), &fill(note, vars), Body::Bars(bars))
    }

    /// Rates over a number such as threads: a line for each series if one has three points, else bars. `place` gives
    /// the series of a cell and its number, if it is shown.
    pub(crate) fn rates_over(
        &self,
        key: &str,
        vars: &[Var<'_>],
        place: impl Fn(&CellSpec) -> Option<(String, u32)>,
    ) -> Option<Panel> {
        let PanelWords { title, note, over: [one, more], .. } = &self.words[key];
        let mut series: Vec<(String, Vec<(u32, &CellResult)>)> = Vec::new();
        for cell in self.cells() {
            let Some((name, n)) = place(&cell.spec) else { continue };
            match series.iter_mut().find(|series| series.0 == name) {
                Some((_, cells)) => cells.push((n, cell)),
                None => series.push((name, vec![(n, cell)])),
            }
        }
        series.iter_mut().for_each(|(_, cells)| cells.sort_by_key(|cell| cell.0));
        if series.iter().all(|(_, cells)| cells.len() < 3) {
            let bars = series.iter().enumerate().flat_map(|(i, (name, cells))| {
                let aside = if name.is_empty() { "" } else { ", " };
                let label = move |n| format!("{name}{aside}{}", text::many(n, one, more));
                cells.iter().filter_map(move |(n, cell)| Bar::rate(cell, label(*n), i))
            });
            return self.bars(key, vars, bars.collect());
        }
        let log2 = |n: u32| f64::from(n.max(1)).log2();
        let point = |(n, cell): &(u32, &CellResult)| {
            let rate = cell.rate()?;
            Some(Point { x: log2(*n), y: rate.median, low: rate.low, high: rate.high })
        };
        let ticks: BTreeSet<u32> = series.iter().flat_map(|(_, cells)| cells).map(|cell| cell.0).collect();
        let lines = series
            .iter()
            .map(|(name, cells)| Line { name: name.clone(), points: cells.iter().filter_map(point).collect() });
        let lines = Lines {
            x_title: more.clone(),
            x_ticks: ticks.into_iter().map(|n| (log2(n), n.to_string())).collect(),
            y_tick: text::count,
            y_logarithmic: false,
            lines: lines.collect(),
        };
        Panel::lines(&fill(title, vars), &fill(note, vars), lines)
    }
}

impl Panel {
    /// A table, unless it has no rows.
    pub(crate) fn table(title: &str, note: &str, head: &[impl ToString], rows: Vec<Vec<String>>) -> Option<Self> {
        Self::some(title, note, Body::Table(Table { head: head.iter().map(ToString::to_string).collect(), rows }))
    }

    /// Lines, unless no line has two points.
    pub(crate) fn lines(title: &str, note: &str, mut lines: Lines) -> Option<Self> {
        for line in &mut lines.lines {
            line.points.retain(|p| [p.x, p.y, p.low, p.high].iter().all(|v| v.is_finite()));
        }
        lines.lines.retain(|line| line.points.len() >= 2);
        Self::some(title, note, Body::Lines(lines))
    }

    fn some(title: &str, note: &str, body: Body) -> Option<Self> {
        let empty = match &body {
            Body::Table(table) => table.rows.is_empty(),
            Body::Bars(bars) => !bars.iter().any(|b| b.value > 0.0),
            Body::Lines(lines) => lines.lines.is_empty(),
        };
        (!empty).then(|| Self { title: title.into(), note: note.into(), body })
    }
}
