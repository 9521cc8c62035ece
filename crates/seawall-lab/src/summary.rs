//! The short answer of a run: four figures, shown first in the terminal and in the report.

use crate::cell::{Access, Ahead, Experiment, KeyOrder, Origin, Pattern, Sync};
use crate::experiment::direct_sync::flush_cost_ns;
use crate::plan::{direct_sync, random_read, range_prefetch, sequential_read, sequential_write, under_settings};
use crate::results::{CellResult, Results};
use crate::settings::{Recommendation, recommend};
use crate::text;
use crate::verdict::device_words;

/// One of the four figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) name: &'static str,
    /// [`text::MISSING`] where it was not measured.
    pub(crate) figure: String,
    pub(crate) unit: &'static str,
    pub(crate) detail: String,
}

/// Disk, flush, engine and settings.
pub(crate) fn tiles(results: &Results) -> [Tile; 4] {
    let rate = |spec| results.cell(&spec).and_then(CellResult::median);
    let figure = |spec| text::or_missing(rate(spec), text::count);
    let megabytes = |spec, word: &str| {
        let bytes = results.cell(&spec)?.bytes_per_second()?;
        Some(format!("{} MB/s {word} in order", text::count(bytes / 1e6)))
    };
    let durable = direct_sync(1, 4096, Sync::Fdatasync);
    let p99 = results.cell(&durable).and_then(|c| c.latency_ns(0.99));
    let query = |ahead| rate(range_prefetch(KeyOrder::Fragmented, Access::Direct, ahead, 1));
    let ahead = query(Ahead::Adaptive).zip(query(Ahead::None)).filter(|(_, none)| *none > 0.0);
    let advice = recommend(results).seawall;
    let changed: Vec<_> = changed(&advice).map(|r| Some(format!("{} = {}", r.key, r.value))).collect();
    let settings = format!("{} of {}", changed.len(), advice.len());
    let tile = |name, figure, unit, details: Vec<Option<String>>, nothing: &str| {
        let details: Vec<String> = details.into_iter().flatten().collect();
        let detail = if details.is_empty() { nothing.to_owned() } else { details.join("; ") };
        Tile { name, figure, unit, detail }
    };
    let disk = vec![megabytes(sequential_read(), "read"), megabytes(sequential_write(), "written")];
    let flush = vec![
        flush_cost_ns(results).map(|ns| format!("a flush costs {}", text::latency(ns))),
        p99.map(|ns| format!("99% within {}", text::latency(ns))),
    ];
    let engine = ahead.map(|(with, without)| {
        format!("range query: {}/s, {} by read-ahead", text::count(with), text::ratio(with / without))
    });
    let commits = figure(under_settings(Pattern::Update, Origin::Recommended));
    [
        tile("disk", figure(random_read(32)), "random 16 KiB reads/s", disk, "not measured"),
        tile("flush", figure(durable), "durable 4 KiB writes/s", flush, "not measured"),
        tile("engine", commits, "flushed commits/s, 4 threads", vec![engine], "not measured"),
        tile("settings", settings, "differ from the defaults", changed, "the defaults fit"),
    ]
}

/// The recommendations that are not the default.
pub(crate) fn changed(advice: &[Recommendation]) -> impl Iterator<Item = &Recommendation> {
    advice.iter().filter(|r| r.changes_default())
}

/// Where, on what, how much was measured: one line.
pub(crate) fn subject(results: &Results) -> String {
    let fs = results.probe.file_system.known().map_or("unknown file system", |fs| fs.kind.as_str());
    let (path, device) = (results.probe.path.display(), device_words(results));
    let experiments = Experiment::ALL.into_iter().filter(|e| results.cells_of(*e).next().is_some()).count();
    let cells = text::many(results.measured() as u32, "cell", "cells");
    format!("{path}, {fs} on {device}: {cells} of {}", text::many(experiments as u32, "experiment", "experiments"))
}
