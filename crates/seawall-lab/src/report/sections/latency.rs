//! Latency of the cells that verdicts use: as a ridge of densities, and by percentile.
//!
//! - A percentile is drawn only if at least ten operations lie beyond it: fewer are not evidence.

use crate::cell::{Access, Preparation, Sync};
use crate::plan;
use crate::report::format::{count, duration, whole};
use crate::report::plots::{Curve, Curves, Ink, Mark, Panel, Point, Ridge, RidgeRow, Span, YScale, panel};
use crate::results::{CellResult, Results};

/// Percentiles of the axis, as shares.
const NINES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (0.99999, "p99.999")];

pub(super) fn panels(results: &Results) -> Vec<String> {
    let chosen: Vec<(&CellResult, &str)> = [
        (plan::random_read(1), "random 16K read"),
        (plan::direct_sync(1, 4096, Sync::None), "4K direct write, no sync"),
        (plan::direct_sync(1, 4096, Sync::Fdatasync), "4K direct write + fdatasync"),
        (plan::direct_sync(1, 4096, Sync::RwfDsync), "4K direct write, RWF_DSYNC"),
        (plan::extend(Preparation::Append, Access::Buffered, Sync::Fdatasync), "8K append + fdatasync"),
        (plan::extend(Preparation::Written, Access::Buffered, Sync::Fdatasync), "8K overwrite + fdatasync"),
        (plan::log(16, Access::Direct, 4096, true), "log commit, direct, 16 threads"),
        (plan::flush_under_writes(), "fdatasync under writes"),
    ]
    .into_iter()
    .filter_map(|(spec, name)| Some((results.cell(&spec)?, name)))
    .collect();
    let rows = chosen
        .iter()
        .enumerate()
        .filter_map(|(i, (c, name))| {
            RidgeRow::of((*name).into(), Ink::series(i), &c.latency()?, c.latency_ns(0.5)?, c.latency_ns(0.99)?)
        })
        .collect();
    let ridge = Panel {
        title: "Distribution of latency".into(),
        subtitle:
            "Share of operations by latency, logarithmic, each scaled to its peak; line: median, dot: 99th percentile"
                .into(),
        legend: vec![],
        note: "Two hills mean two kinds of operation: a cache hit and a miss, or a write that waited for the journal."
            .into(),
        span: Span::Full,
    };
    vec![panel(&ridge, &Ridge { rows }), percentiles(&chosen)]
}

fn percentiles(chosen: &[(&CellResult, &str)]) -> String {
    let mut words = Panel {
        title: "Latency by percentile".into(),
        subtitle: "Each step to the right is ten times rarer; latency logarithmic".into(),
        legend: vec![],
        note: String::new(),
        span: Span::Full,
    };
    let mut curves = Vec::new();
    let mut furthest: f64 = 0.0;
    for (i, (cell, name)) in chosen.iter().enumerate() {
        let Some(latency) = cell.latency() else { continue };
        let total: f64 = latency.iter().map(|b| b.count() as f64).sum();
        let mut points: Vec<Point> = Vec::new();
        for step in 0..=64 {
            // From the median to 99.999%, evenly in nines.
            let nines = -(0.5f64.log10()) + f64::from(step) / 64.0 * (5.0 + 0.5f64.log10());
            let beyond = 10f64.powf(-nines);
            if total * beyond < 10.0 {
                break;
            }
            if let Some(ns) = cell.latency_ns(1.0 - beyond) {
                let y = ns as f64;
                points.push(Point { x: nines, y, low: y, high: y });
            }
        }
        if points.len() >= 3 {
            furthest = furthest.max(points[points.len() - 1].x);
            // Colours alone do not distinguish eight lines: each has its mark at the nines.
            let mark = Mark::nth(i);
            let reached = points[points.len() - 1].x;
            let nines =
                NINES.iter().map(|(share, _)| (share, -(1.0 - share).log10())).filter(|n| n.1 <= reached + 1e-6);
            let marks = nines
                .filter_map(|(share, x)| {
                    cell.latency_ns(*share).map(|ns| Point { x, y: ns as f64, low: ns as f64, high: ns as f64 })
                })
                .collect();
            words.legend.push((mark, Ink::series(i), (*name).into()));
            curves.push(Curve { ink: Ink::series(i), mark, points: marks, joined: false });
            curves.push(Curve { ink: Ink::series(i), mark: Mark::Line, points, joined: true });
        }
    }
    let x_ticks = NINES
        .iter()
        .map(|(share, name)| (-(1.0 - share).log10(), (*name).to_owned()))
        .filter(|(x, _)| *x <= furthest + 1e-6)
        .collect();
    let most = chosen.iter().map(|(c, _)| c.operations()).max().unwrap_or(0);
    words.note = format!(
        "A line ends where fewer than ten operations lie beyond it; the busiest of these cells made {} operations.",
        count(most as f64)
    );
    panel(
        &words,
        &Curves {
            curves,
            x_ticks,
            x_title: "percentile of operations".into(),
            y_scale: YScale::Log,
            y_tick: tick_duration,
        },
    )
}

fn tick_duration(ns: f64) -> String {
    whole(&duration(ns))
}
