//! The terminal output below the cells of E5 and E6: the published comparison, with this machine's results.

use crate::cell::{CellSpec, Experiment, Level};
use crate::plan::{COMMIT_LOADS, PUBLISHED_METHODS, commit_levels};
use crate::published::{figures, level_gain};
use crate::results::Results;
use crate::text;
use crate::verdict::{load_name, share_of_disk};

/// A ratio as a gain, as published: `+76%`.
fn gain(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:+.0}%", (ratio - 1.0) * 100.0) } else { "?".into() }
}

/// The gains of levels 2 and 0 over level 1, by load and flush method, and the possible loss of each.
pub(super) fn levels(results: &Results) -> String {
    let ratio = |a: CellSpec, b: CellSpec| results.compare(&a, &b).ratio();
    let mut rows = String::new();
    for load in COMMIT_LOADS {
        for method in PUBLISHED_METHODS {
            let against =
                |level| ratio(commit_levels(load, method, level), commit_levels(load, method, Level::Flushed));
            let (written, deferred) = (against(Level::Written), against(Level::Deferred));
            if written.is_none() && deferred.is_none() {
                continue;
            }
            let shown = |r: Option<crate::stats::Estimate>| {
                r.map_or_else(
                    || "-".to_owned(),
                    |r| format!("{} ({} to {})", gain(r.median), gain(r.low), gain(r.high)),
                )
            };
            let name = format!("{}, {}", load_name(load), method.word());
            let published = level_gain(load, Level::Written).unwrap_or("-");
            rows += &format!("  {name:26} {:24} {published:10} {:24} not measured\n", shown(written), shown(deferred));
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let mut out = format!(
        "\n  {:26} {:24} {:10} {:24} {}\n{rows}",
        "gain over level 1", "level 2 (interval)", "published", "level 0 (interval)", "published"
    );
    for level in Level::ALL {
        out += &format!("  {} may lose {}\n", level.name(), level.loss());
    }
    out
}

/// Queries and device reads a second, and the share of the disk's rate.
pub(super) fn queries(results: &Results) -> String {
    let mut rows = String::new();
    for cell in results.cells_of(Experiment::RangePrefetch) {
        let dash = || "-".to_owned();
        let device = cell.device_reads_per_second();
        rows += &format!(
            "  {:50} {:>9} {:>12} {:>10} {:>9}\n",
            cell.spec.title(),
            cell.rate().map_or_else(dash, |r| text::count(r.median)),
            device.map_or_else(dash, |(reads, _)| text::count(reads)),
            device.map_or_else(dash, |(_, bytes)| text::bytes(bytes)),
            share_of_disk(results, cell).map_or_else(dash, |share| format!("{:.0}%", share * 100.0))
        );
    }
    if rows.is_empty() {
        return rows;
    }
    let published: Vec<String> = figures(Experiment::RangePrefetch).map(|p| format!("{} {}", p.what, p.rate)).collect();
    let mut out =
        format!("\n  {:50} {:>9} {:>12} {:>10} {:>9}\n{rows}", "", "queries/s", "reads/s", "read/s", "of disk");
    out += &text::wrap(
        &format!(
            "of disk: 16K pages read, over the random 16K reads a second that the disk gave at depth 32; above 100% neighbours were read by \
             one request. Published, queries/s: {}.",
            published.join(", ")
        ),
        super::WIDTH_MAX,
        "  ",
        "  ",
    );
    out.push('\n');
    if let Some(engine) = &results.engine {
        out += &format!(
            "  A query reads {} rows of a tree of about {}, through a pool of {}.\n",
            text::count(f64::from(engine.range_rows)),
            text::bytes(engine.tree_bytes as f64),
            text::bytes(engine.pool_bytes as f64)
        );
    }
    out
}
