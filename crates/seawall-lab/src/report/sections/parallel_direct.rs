//! E3: speed-up of parallel direct writers to one file.
//!
//! - Speed-up is relative to one writer into a clean file if that was measured, so that a slow start stays
//!   visible; else to the series' own first point.
//! - The published rates are of a 16-disk array and are shown separately, as rates.

use super::{doubling, log2, point, threads_word};
use crate::cell::{Beside, Experiment, Pattern};
use crate::plan;
use crate::published;
use crate::report::format::{count, tick, times};
use crate::report::plots::{Bar, Bars, Curve, Curves, Ink, Mark, Panel, Point, Ridge, RidgeRow, Span, YScale, panel};
use crate::results::{CellResult, Results};

const SERIES: [(Beside, &str); 4] = [
    (Beside::Nothing, "clean file"),
    (Beside::CachedPages, "its pages in the cache"),
    (Beside::DroppedPages, "pages dropped first"),
    (Beside::BeyondEof, "beyond the end of the file"),
];

pub(super) fn panels(results: &Results) -> Vec<String> {
    let mut cells: Vec<&CellResult> = results
        .cells_of(Experiment::ParallelDirect)
        .filter(|c| c.spec.pattern == Pattern::RandomWrite && c.spec.beside != Beside::ContinuousWriter)
        .collect();
    cells.sort_by_key(|c| (SERIES.iter().position(|s| s.0 == c.spec.beside), c.spec.threads));
    let speed_up = speed_up(&cells);
    let published = if speed_up.is_empty() { String::new() } else { published_rates() };
    vec![speed_up, published, flush(results)]
}

fn speed_up(cells: &[&CellResult]) -> String {
    let one = |c: &CellResult| c.spec.beside == Beside::Nothing && c.spec.threads == 1;
    let of = |beside: Beside| cells.iter().filter(move |c| c.spec.beside == beside);
    let clean = cells.iter().find(|c| one(c)).and_then(|c| c.rate()).map(|r| r.median).filter(|m| *m > 0.0);
    let base = |beside: Beside| {
        clean.or_else(|| of(beside).find_map(|c| c.rate()).map(|r| r.median)).filter(|m| *m > 0.0).unwrap_or(f64::NAN)
    };
    let relative = if clean.is_some() { "one writer into a clean file = 1×" } else { "fewest threads measured = 1×" };
    let mut words = Panel {
        title: "Speed-up by writers to one file".into(),
        subtitle: format!("Random 16 KiB direct writes; {relative}; whiskers: interval of the median"),
        legend: vec![],
        note:
            "Flat at 1× means the file system lets one direct writer in at a time, as ext2, ext3 and jfs did in 2008."
                .into(),
        span: Span::Half,
    };
    if SERIES.iter().all(|s| of(s.0).count() < 3) {
        let rows: Vec<Bar> = cells
            .iter()
            .filter_map(|c| {
                let series = SERIES.iter().position(|s| s.0 == c.spec.beside)?;
                let p = point(c, 0.0, base(c.spec.beside))?;
                let label = format!("{}, {}", SERIES[series].1, threads_word(c.spec.threads));
                let text = format!("{} ({}/s)", times(p.y), count(c.rate()?.median));
                let ideal = (c.spec.threads > 1).then(|| f64::from(c.spec.threads));
                Some(Bar { low: p.low, high: p.high, ideal, ..Bar::new(label, p.y, text, Ink::series(series)) })
            })
            .collect();
        if rows.iter().any(|r| r.ideal.is_some()) {
            words.legend.push((Mark::Tick, Ink::Text, "ideal: as many times as threads".into()));
        }
        return panel(&words, &Bars { rows, reference: None, tick: |v| format!("{}×", tick(v)) });
    }
    let x_ticks = doubling(cells.iter().map(|c| c.spec.threads));
    let mut curves = Vec::new();
    let most = cells.iter().map(|c| c.spec.threads).max().unwrap_or(1);
    let ideal = [1, most].map(|t| Point { x: log2(t), y: f64::from(t), low: f64::from(t), high: f64::from(t) });
    curves.push(Curve { ink: Ink::Dashed, mark: Mark::Dashed, points: ideal.into(), joined: true });
    for (i, (beside, name)) in SERIES.iter().enumerate() {
        let points: Vec<Point> = of(*beside).filter_map(|c| point(c, log2(c.spec.threads), base(*beside))).collect();
        if !points.is_empty() {
            words.legend.push((Mark::nth(i), Ink::series(i), (*name).into()));
            curves.push(Curve { ink: Ink::series(i), mark: Mark::nth(i), points, joined: true });
        }
    }
    words.legend.push((Mark::Dashed, Ink::Published, "ideal".into()));
    panel(
        &words,
        &Curves {
            curves,
            x_ticks,
            x_title: "threads".into(),
            y_scale: YScale::Doubling,
            y_tick: |v| format!("{}×", tick(v)),
        },
    )
}

fn published_rates() -> String {
    let rows = published::figures(Experiment::ParallelDirect)
        .map(|f| {
            Bar::new(
                f.series.replace(": any number of threads", ", any threads"),
                f.rate,
                format!("{}/s", count(f.rate)),
                Ink::Published,
            )
        })
        .collect();
    let words = Panel {
        title: "Published in 2008: writes per second".into(),
        subtitle: "Random direct writes by many threads to one file on 16 disks; middles of the published ranges"
            .into(),
        legend: vec![],
        note: "xfs fell back when the file had cached pages or was being extended; dropping the cache restored it."
            .into(),
        span: Span::Half,
    };
    panel(&words, &Bars { rows, reference: None, tick })
}

fn flush(results: &Results) -> String {
    let busy = plan::flush_under_writes();
    let alone = plan::direct_sync(1, 4096, crate::cell::Sync::Fdatasync);
    let row = |cell: Option<&CellResult>, label: &str, ink: Ink| {
        let cell = cell?;
        RidgeRow::of(label.into(), ink, &cell.latency()?, cell.latency_ns(0.5)?, cell.latency_ns(0.99)?)
    };
    let Some(first) = row(results.cell(&busy), "fdatasync, another thread writing", Ink::series(1)) else {
        return String::new();
    };
    let rows: Vec<RidgeRow> =
        [Some(first), row(results.cell(&alone), "4K write + fdatasync, nothing beside", Ink::series(0))]
            .into_iter()
            .flatten()
            .collect();
    let words = Panel {
        title: "How long a flush takes while others write".into(),
        subtitle: "Share of flushes by latency, logarithmic; line: median, dot: 99th percentile".into(),
        legend: vec![],
        note: "A flush may wait for writes that were issued after it. A log that shares the file system with busy \
               data files waits this long at each commit."
            .into(),
        span: Span::Full,
    };
    panel(&words, &Ridge { rows })
}
