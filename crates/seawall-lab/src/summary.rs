//! The short answer of a run: four figures, shown first in the terminal and in the report.

use crate::cell::{Access, Ahead, Experiment, KeyOrder, Origin, Pattern, Sync};
use crate::experiment::direct_sync::flush_cost_ns;
use crate::plan::{direct_sync, random_read, range_prefetch, sequential_read, sequential_write, under_settings};
use crate::results::{CellResult, Results};
use crate::settings::{Recommendation, recommend};
use crate::text;

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
    let rate = |spec| results.cell(&spec).and_then(CellResult::rate).map(|r| r.median);
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
    let changed: Vec<String> = changed(&advice).map(|r| format!("{} = {}", r.key, r.value)).collect();
    let tile = |name, figure, unit, details: Vec<Option<String>>| {
        let details: Vec<String> = details.into_iter().flatten().collect();
        let detail = if details.is_empty() { "not measured".into() } else { details.join("; ") };
        Tile { name, figure, unit, detail }
    };
    [
        tile(
            "disk",
            figure(random_read(32)),
            "random 16 KiB reads/s",
            vec![megabytes(sequential_read(), "read"), megabytes(sequential_write(), "written")],
        ),
        tile(
            "flush",
            figure(durable),
            "durable 4 KiB writes/s",
            vec![
                flush_cost_ns(results).map(|ns| format!("a flush costs {}", text::latency(ns))),
                p99.map(|ns| format!("99% within {}", text::latency(ns as f64))),
            ],
        ),
        tile(
            "engine",
            figure(under_settings(Pattern::Update, Origin::Recommended)),
            "flushed commits/s, 4 threads",
            vec![ahead.map(|(with, without)| {
                format!("range query: {}/s, {} by read-ahead", text::count(with), text::ratio(with / without))
            })],
        ),
        tile(
            "settings",
            format!("{} of {}", changed.len(), advice.len()),
            "differ from the defaults",
            if changed.is_empty() {
                vec![Some("the defaults fit".into())]
            } else {
                changed.into_iter().map(Some).collect()
            },
        ),
    ]
}

/// The recommendations that are not the default.
pub(crate) fn changed(advice: &[Recommendation]) -> impl Iterator<Item = &Recommendation> {
    advice.iter().filter(|r| r.changes_default())
}

/// Where, on what, how much was measured: one line.
pub(crate) fn subject(results: &Results) -> String {
    let probe = &results.probe;
    let fs = probe.file_system.known().map_or("unknown file system", |fs| fs.kind.as_str());
    let device = probe.device.known().map_or_else(
        || "no block device".to_owned(),
        |d| d.model.known().map_or_else(|| d.name.clone(), |m| format!("{m} ({})", d.name)),
    );
    let measured = results.cells.iter().filter(|c| !c.rounds.is_empty()).count();
    let experiments = Experiment::ALL.into_iter().filter(|e| results.cells_of(*e).next().is_some()).count();
    format!(
        "{}, {fs} on {device}: {} of {}",
        probe.path.display(),
        text::many(measured as u32, "cell", "cells"),
        text::many(experiments as u32, "experiment", "experiments")
    )
}
