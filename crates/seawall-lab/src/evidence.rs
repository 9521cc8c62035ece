//! The evidence of an experiment as data: tables, bars and lines. The terminal and the report show the same.
//!
//! - A panel without data is omitted: no empty axes, no zero for "unknown".
//! - Two kinds of plot: bars for single figures, lines for a figure over threads, depth, percentile or time.

use crate::results::CellResult;
use crate::stats::distinct;
use crate::text;
use askama::Template;
use std::collections::BTreeSet;

/// A cell with the name of its series and its x value there, such as its threads: series, x, cell.
pub(crate) type Measured<'a> = (String, u32, &'a CellResult);

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
    pub(crate) head: Vec<&'static str>,
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

impl Panel {
    /// A table, unless it has no rows.
    pub(crate) fn table(
        title: impl Into<String>,
        note: impl Into<String>,
        head: &[&'static str],
        rows: Vec<Vec<String>>,
    ) -> Option<Self> {
        Self::some(title, note, Body::Table(Table { head: head.to_vec(), rows }))
    }

    /// Bars, unless there are none.
    pub(crate) fn bars(title: impl Into<String>, note: impl Into<String>, bars: Vec<Bar>) -> Option<Self> {
        Self::some(title, note, Body::Bars(bars))
    }

    /// Rates over a number such as threads: a line for each series if one has three points, else bars.
    pub(crate) fn rates_over(
        title: impl Into<String>,
        note: impl Into<String>,
        (one, more): (&str, &str),
        cells: &[Measured<'_>],
    ) -> Option<Self> {
        let names = distinct(cells.iter().map(|c| c.0.as_str()));
        let series = names.iter().map(|name| cells.iter().filter(|c| c.0 == *name).collect());
        let series: Vec<Vec<&Measured<'_>>> = series.collect();
        if series.iter().all(|cells| cells.len() < 3) {
            let bars = cells.iter().filter_map(|(name, n, cell)| {
                let label = format!("{name}{}{}", if name.is_empty() { "" } else { ", " }, text::many(*n, one, more));
                Bar::rate(cell, label, names.iter().position(|x| x == name).unwrap_or_default())
            });
            return Self::bars(title, note, bars.collect());
        }
        let log2 = |n: u32| f64::from(n.max(1)).log2();
        let point = |(_, n, cell): &Measured<'_>| {
            let rate = cell.rate()?;
            Some(Point { x: log2(*n), y: rate.median, low: rate.low, high: rate.high })
        };
        let line = |cells: &Vec<&Measured<'_>>| Line {
            name: cells[0].0.clone(),
            points: cells.iter().filter_map(|cell| point(cell)).collect(),
        };
        let ticks: BTreeSet<u32> = cells.iter().map(|c| c.1).collect();
        let lines = Lines {
            x_title: more.into(),
            x_ticks: ticks.into_iter().map(|n| (log2(n), n.to_string())).collect(),
            y_tick: text::count,
            y_logarithmic: false,
            lines: series.iter().map(line).collect(),
        };
        Self::lines(title, note, lines)
    }

    /// Lines, unless no line has two points.
    pub(crate) fn lines(title: impl Into<String>, note: impl Into<String>, mut lines: Lines) -> Option<Self> {
        for line in &mut lines.lines {
            line.points.retain(|p| [p.x, p.y, p.low, p.high].iter().all(|v| v.is_finite()));
        }
        lines.lines.retain(|line| line.points.len() >= 2);
        Self::some(title, note, Body::Lines(lines))
    }

    fn some(title: impl Into<String>, note: impl Into<String>, body: Body) -> Option<Self> {
        let empty = match &body {
            Body::Table(table) => table.rows.is_empty(),
            Body::Bars(bars) => !bars.iter().any(|b| b.value > 0.0),
            Body::Lines(lines) => lines.lines.is_empty(),
        };
        (!empty).then(|| Self { title: title.into(), note: note.into(), body })
    }
}
