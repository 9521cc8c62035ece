//! E1: rate by threads for each way to make a direct write durable, and the remaining share of the rate.
//!
//! - Absolute rates of 2009 and today do not fit one axis; so only the share that a flush leaves is compared.
//! - The publication's cache-on columns are not labelled, so no share is computed from them.

use super::{doubling, log2, point, rate_bar, threads_word};
use crate::cell::{CellSpec, Experiment, Sync};
use crate::published;
use crate::report::format::{count, percent, size, tick};
use crate::report::plots::{Bar, Bars, Curve, Curves, Ink, Mark, Panel, Point, Span, YScale, panel};
use crate::results::{CellResult, Results};
use crate::stats::Estimate;

const SYNCS: [Sync; 4] = [Sync::None, Sync::Fdatasync, Sync::RwfDsync, Sync::ODsync];

pub(super) fn panels(results: &Results) -> Vec<String> {
    let cells: Vec<&CellResult> = results.cells_of(Experiment::DirectSync).collect();
    if cells.is_empty() {
        return vec![];
    }
    let mut blocks: Vec<u32> = cells.iter().map(|c| c.spec.block_bytes).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let mut panels: Vec<String> = blocks.into_iter().map(|b| rates(&cells, b)).collect();
    panels.push(left_over(results, &cells));
    // Rows of two; a remaining panel takes the full width.
    let span = if panels.iter().filter(|p| !p.is_empty()).count() % 2 == 0 { Span::Full } else { Span::Half };
    panels.push(published_rates(span));
    panels
}

fn word(sync: Sync) -> &'static str {
    match sync {
        Sync::None => "no sync",
        Sync::Fdatasync => "fdatasync each",
        Sync::RwfDsync => "RWF_DSYNC each",
        Sync::ODsync => "O_DSYNC",
    }
}

/// The colour of a sync method, the same in every plot of the experiment.
fn ink(sync: Sync) -> Ink {
    Ink::series(match sync {
        Sync::None => 2,
        Sync::Fdatasync => 0,
        Sync::RwfDsync => 1,
        Sync::ODsync => 4,
    })
}

fn rates(cells: &[&CellResult], block: u32) -> String {
    let mut cells: Vec<&CellResult> = cells.iter().copied().filter(|c| c.spec.block_bytes == block).collect();
    cells.sort_by_key(|c| (SYNCS.iter().position(|s| *s == c.spec.sync), c.spec.threads));
    let mut words = Panel {
        title: format!("Random {} direct writes per second", size(f64::from(block))),
        subtitle: "By threads and by what makes each write durable; whiskers: interval of the median".into(),
        legend: vec![],
        note: String::new(),
        span: Span::Half,
    };
    let of = |sync: Sync| cells.iter().filter(move |c| c.spec.sync == sync);
    if SYNCS.into_iter().all(|s| of(s).count() < 3) {
        let rows = cells
            .iter()
            .filter_map(|c| {
                rate_bar(c, format!("{}, {}", word(c.spec.sync), threads_word(c.spec.threads)), ink(c.spec.sync))
            })
            .collect();
        return panel(&words, &Bars { rows, reference: None, tick });
    }
    let mut curves = Vec::new();
    for sync in SYNCS {
        let points: Vec<Point> = of(sync).filter_map(|c| point(c, log2(c.spec.threads), 1.0)).collect();
        if !points.is_empty() {
            let mark = Mark::nth(curves.len());
            words.legend.push((mark, ink(sync), word(sync).into()));
            curves.push(Curve { ink: ink(sync), mark, points, joined: true });
        }
    }
    panel(
        &words,
        &Curves {
            curves,
            x_ticks: doubling(cells.iter().map(|c| c.spec.threads)),
            x_title: "threads".into(),
            y_scale: YScale::Fitting,
            y_tick: tick,
        },
    )
}

/// The remaining share of the rate without sync, beside the published share with the drive's cache off.
fn left_over(results: &Results, cells: &[&CellResult]) -> String {
    let mut shares: Vec<(Sync, u32, Estimate)> = Vec::new();
    for sync in [Sync::Fdatasync, Sync::RwfDsync] {
        for c in cells.iter().filter(|c| c.spec.sync == sync && c.spec.block_bytes == 4096) {
            let free = CellSpec { sync: Sync::None, ..c.spec };
            if let Some(ratio) = results.compare(&c.spec, &free).ratio() {
                shares.push((sync, c.spec.threads, ratio));
            }
        }
    }
    shares.sort_by_key(|(sync, threads, _)| (SYNCS.iter().position(|s| s == sync), *threads));
    let of = |sync: Sync| shares.iter().filter(move |s| s.0 == sync);
    let as_curves = of(Sync::Fdatasync).count() >= 3;
    let mut legend = Vec::new();
    for (i, sync) in [Sync::Fdatasync, Sync::RwfDsync].into_iter().enumerate().filter(|s| of(s.1).next().is_some()) {
        legend.push((if as_curves { Mark::nth(i + 1) } else { Mark::Block }, ink(sync), word(sync).to_owned()));
    }
    let published_mark = if as_curves { Mark::Dot } else { Mark::Block };
    if shares.iter().any(|s| s.0 == Sync::Fdatasync && published_share(s.1).is_some()) {
        legend.push((published_mark, Ink::Published, "published 2009, drive cache off".into()));
    }
    let words = Panel {
        title: "What a flush per write leaves of the rate".into(),
        subtitle: "Rate with sync as a share of the rate without, same threads, 4 KiB; no sync = 100%".into(),
        legend,
        note: "With the drive's cache on, the two published columns lie within 15% of each other: like a drive \
               whose flush is nearly free. Which column is which was not said."
            .into(),
        span: Span::Half,
    };
    let tick: fn(f64) -> String = |v| format!("{}%", tick(v));
    if as_curves {
        let x_ticks = doubling(shares.iter().map(|s| s.1));
        let mut curves = vec![Curve { ink: Ink::Dashed, mark: Mark::Dot, points: vec![], joined: true }];
        curves[0].points = [1, 2, 4, 8, 16]
            .into_iter()
            .filter_map(|t| published_share(t).map(|s| s * 100.0).map(|y| Point { x: log2(t), y, low: y, high: y }))
            .collect();
        for (i, sync) in [Sync::Fdatasync, Sync::RwfDsync].into_iter().enumerate() {
            let points = of(sync)
                .map(|(_, t, r)| Point { x: log2(*t), y: r.median * 100.0, low: r.low * 100.0, high: r.high * 100.0 })
                .collect();
            curves.push(Curve { ink: ink(sync), mark: Mark::nth(i + 1), points, joined: true });
        }
        let y_scale = YScale::Fitting;
        return panel(&words, &Curves { curves, x_ticks, x_title: "threads".into(), y_scale, y_tick: tick });
    }
    let rows = shares
        .iter()
        .map(|(sync, threads, ratio)| Bar {
            low: ratio.low * 100.0,
            high: ratio.high * 100.0,
            published: published_share(*threads).filter(|_| *sync == Sync::Fdatasync).map(|s| (s * 100.0, percent(s))),
            ..Bar::new(
                format!("{}, {}", word(*sync), threads_word(*threads)),
                ratio.median * 100.0,
                percent(ratio.median),
                ink(*sync),
            )
        })
        .collect();
    panel(&words, &Bars { rows, reference: Some(100.0), tick })
}

fn published_share(threads: u32) -> Option<f64> {
    let rate = |series: &str| {
        published::figures(Experiment::DirectSync)
            .find(|f| f.series == series && f.threads == Some(threads))
            .map(|f| f.rate)
    };
    Some(rate("cache off, fsync each")? / rate("cache off, no fsync")?)
}

fn published_rates(span: Span) -> String {
    let mut series: Vec<&str> = published::figures(Experiment::DirectSync).map(|f| f.series).collect();
    series.dedup();
    let mut legend = Vec::new();
    let mut curves = Vec::new();
    for (i, name) in series.iter().enumerate() {
        let points = published::figures(Experiment::DirectSync)
            .filter(|f| f.series == *name)
            .map(|f| Point { x: log2(f.threads.unwrap_or(1)), y: f.rate, low: f.rate, high: f.rate })
            .collect();
        let mark = Mark::nth(i);
        legend.push((mark, Ink::Published, (*name).to_owned()));
        curves.push(Curve { ink: Ink::Dashed, mark, points, joined: true });
    }
    let x_ticks = doubling(published::figures(Experiment::DirectSync).filter_map(|f| f.threads));
    let words = Panel {
        title: "Published in 2009: writes per second".into(),
        subtitle: "One SATA disk, by threads; the drive's volatile cache off and on".into(),
        legend,
        note: "Compare the shape, not the height. tpcc-mysql with the cache off: 1,294 without fsync, 1,237 with."
            .into(),
        span,
    };
    panel(&words, &Curves { curves, x_ticks, x_title: "threads".into(), y_scale: YScale::Linear, y_tick: |v| count(v) })
}
