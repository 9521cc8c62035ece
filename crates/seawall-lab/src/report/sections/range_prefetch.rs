//! E6: queries per second with and without read-ahead, by number of concurrent queries, and the device's work
//! for them.
//!
//! - Published and own figures are relative to direct reads without prefetch, because the ranges differ in
//!   size.
//! - The table compares pages with the disk's own random reads at depth 32 of the same run.

use super::{doubling, log2, point};
use crate::cell::{Access, Ahead, Experiment, KeyOrder};
use crate::plan::{WINDOWS, range_prefetch};
use crate::published;
use crate::report::format::{MISSING, bytes, count, escape, percent, tick, times};
use crate::report::plots::{Bar, Bars, Curve, Curves, Ink, Mark, Panel, Span, YScale, panel, write_html};
use crate::results::{CellResult, Results};
use crate::verdict::share_of_disk;

const TREES: [KeyOrder; 2] = [KeyOrder::Fragmented, KeyOrder::InOrder];
/// The published lines, in their order, with the names of [`published::FIGURES`].
const WAYS: [(Access, Ahead, &str, &str); 3] = [
    (Access::Buffered, Ahead::None, "buffered, no prefetch", "buffered, no prefetch"),
    (Access::Direct, Ahead::None, "direct, no prefetch", "O_DIRECT, no prefetch"),
    (Access::Direct, Ahead::Adaptive, "direct, adaptive prefetch", "O_DIRECT, prefetch"),
];

pub(super) fn panels(results: &Results) -> Vec<String> {
    let mut panels = Vec::new();
    panels.extend(TREES.iter().map(|tree| one_query(results, *tree)));
    panels.extend(TREES.iter().map(|tree| by_queries(results, *tree)));
    panels.extend(TREES.iter().map(|tree| windows(results, *tree)));
    panels.push(at_the_device(results));
    panels
}

fn tree_words(tree: KeyOrder) -> &'static str {
    match tree {
        KeyOrder::InOrder => "tree loaded in key order",
        KeyOrder::Fragmented => "fragmented tree",
    }
}

fn published_rate(name: &str) -> Option<f64> {
    published::figures(Experiment::RangePrefetch).find(|p| p.what == name).map(|p| p.rate)
}

/// One query at a time, relative to direct reads without prefetch.
fn one_query(results: &Results, tree: KeyOrder) -> String {
    let base = range_prefetch(tree, Access::Direct, Ahead::None, 1);
    let Some(base_published) = published_rate(WAYS[1].3) else { return String::new() };
    let base_rate = results.cell(&base).and_then(CellResult::rate).map(|r| r.median).filter(|m| *m > 0.0);
    let Some(base_rate) = base_rate else { return String::new() };
    let mut rows = Vec::new();
    for (i, (access, ahead, name, published)) in WAYS.into_iter().enumerate() {
        let Some(rate) = results.cell(&range_prefetch(tree, access, ahead, 1)).and_then(CellResult::rate) else {
            continue;
        };
        let text = format!("{} · {} queries/s", times(rate.median / base_rate), count(rate.median));
        let published = published_rate(published).map(|rate| {
            (rate / base_published, format!("{} · {} queries/s", times(rate / base_published), count(rate)))
        });
        rows.push(Bar {
            low: rate.low / base_rate,
            high: rate.high / base_rate,
            published,
            ..Bar::new(name, rate.median / base_rate, text, Ink::series(i))
        });
    }
    let words = Panel {
        title: format!("One query at a time, {}", tree_words(tree)),
        subtitle: "Queries per second relative to direct reads without prefetch = 1; whiskers: interval of the median"
            .into(),
        legend: vec![(Mark::Block, Ink::Published, "published 2010: 6 disks".into())],
        note: String::new(),
        span: Span::Half,
    };
    panel(&words, &Bars { rows, reference: Some(1.0), tick })
}

fn by_queries(results: &Results, tree: KeyOrder) -> String {
    let cells: Vec<&CellResult> = results
        .cells_of(Experiment::RangePrefetch)
        .filter(|c| c.spec.engine.is_some_and(|e| e.tree == Some(tree) && !matches!(e.ahead, Some(Ahead::Window(_)))))
        .collect();
    let mut words = Panel {
        title: format!("Queries per second by queries at a time, {}", tree_words(tree)),
        subtitle: "Each query reads one range of rows; interval of the median".into(),
        legend: vec![],
        note: String::new(),
        span: Span::Half,
    };
    let mut curves = Vec::new();
    for (i, (access, ahead, name, _)) in WAYS.into_iter().enumerate() {
        let points: Vec<_> = cells
            .iter()
            .filter(|c| c.spec.access == access && c.spec.engine.is_some_and(|e| e.ahead == Some(ahead)))
            .filter_map(|c| point(c, log2(c.spec.threads), 1.0))
            .collect();
        if !points.is_empty() {
            words.legend.push((Mark::nth(i), Ink::series(i), name.into()));
            curves.push(Curve { ink: Ink::series(i), mark: Mark::nth(i), points, joined: true });
        }
    }
    if cells.iter().map(|c| c.spec.threads).collect::<std::collections::HashSet<_>>().len() < 3 {
        return String::new();
    }
    panel(
        &words,
        &Curves {
            curves,
            x_ticks: doubling(cells.iter().map(|c| c.spec.threads)),
            x_title: "queries at a time".into(),
            y_scale: YScale::Linear,
            y_tick: tick,
        },
    )
}

/// Fixed windows, with the adaptive one as a level line over them.
fn windows(results: &Results, tree: KeyOrder) -> String {
    let cell = |pages: u32| results.cell(&range_prefetch(tree, Access::Direct, Ahead::Window(pages), 1));
    let points: Vec<_> = WINDOWS.iter().filter_map(|p| point(cell(*p)?, log2(*p), 1.0)).collect();
    if points.len() < 3 {
        return String::new();
    }
    let mut words = Panel {
        title: format!("By window, {}", tree_words(tree)),
        subtitle: "Queries per second of one query that keeps so many pages asked for ahead".into(),
        legend: vec![(Mark::Dot, Ink::series(1), "fixed window".into())],
        note: String::new(),
        span: Span::Half,
    };
    let mut curves = vec![Curve { ink: Ink::series(1), mark: Mark::Dot, points, joined: true }];
    if let Some(adaptive) = results.cell(&range_prefetch(tree, Access::Direct, Ahead::Adaptive, 1)) {
        let across = [WINDOWS[0], WINDOWS[WINDOWS.len() - 1]].into_iter().filter_map(|p| point(adaptive, log2(p), 1.0));
        words.legend.push((Mark::Line, Ink::series(2), "adaptive".into()));
        curves.push(Curve { ink: Ink::series(2), mark: Mark::Line, points: across.collect(), joined: true });
    }
    let x_ticks = doubling(WINDOWS.into_iter());
    let x_title = "pages asked for ahead".into();
    panel(&words, &Curves { curves, x_ticks, x_title, y_scale: YScale::Linear, y_tick: tick })
}

/// Every cell with its queries, device reads, and share of the disk's rate.
fn at_the_device(results: &Results) -> String {
    let mut rows = String::new();
    for cell in results.cells_of(Experiment::RangePrefetch) {
        let shown = |v: Option<String>| v.unwrap_or_else(|| MISSING.into());
        let device = cell.device_reads_per_second();
        let cells = [
            shown(cell.rate().map(|r| format!("{} ±{}", count(r.median), percent(r.spread())))),
            shown(device.map(|(reads, _)| count(reads))),
            shown(device.map(|(_, read)| format!("{}/s", bytes(read)))),
            shown(share_of_disk(results, cell).map(percent)),
        ];
        let cells: String = cells.iter().map(|c| format!(r#"<td class="n">{c}</td>"#)).collect();
        write_html(&mut rows, format_args!("<tr><th>{}</th>{cells}</tr>", escape(&cell.spec.title())));
    }
    if rows.is_empty() {
        return String::new();
    }
    let sizes = results.engine.as_ref().map_or_else(String::new, |e| {
        format!(
            " A query reads {} rows of a tree of about {}, through a pool of {}.",
            count(f64::from(e.range_rows)),
            bytes(e.tree_bytes as f64),
            bytes(e.pool_bytes as f64)
        )
    });
    format!(
        r#"<figure class="panel full"><figcaption><h3>What the device did for it</h3>
<p class="sub">Share of the disk: 16 KiB pages read, over its random 16 KiB reads a second at depth 32 in this run</p>
</figcaption><div class="scroll"><table class="facts"><thead><tr><th>queries</th><th class="n">queries/s</th>
<th class="n">device reads/s</th><th class="n">read</th><th class="n">share of the disk</th></tr></thead>
<tbody>{rows}</tbody></table></div><p class="note">More than 100% means that neighbouring pages were read by one request, as
they are in a tree in key order.{sizes}</p></figure>"#
    )
}
