//! A result in readable form: a short table for the terminal, and one HTML page with plots that needs no network.
//!
//! 1. Both are functions of [`CellResult`] and measure nothing.
//! 2. Unknown figures are shown as unknown, or left out; the template escapes the text of a result.

mod text;

pub use text::{bytes, number, table};

use crate::results::{CellResult, TIMELINE_STEP};
use askama::Template;
use seawall_lab::report::{frame, latency, line_plot};
use std::collections::BTreeMap;

/// More points than this are drawn as sums of neighbours: single ones could not be told apart.
const POINTS: usize = 600;

/// The result as one HTML document in the style of the lab's report, with its rate over time and its latencies drawn.
pub fn html(result: &CellResult) -> String {
    #[derive(Template)]
    #[template(path = "report.html")]
    struct Page<'a> {
        title: &'a str,
        table: String,
        plots: [String; 2],
        settings: &'a BTreeMap<String, String>,
    }
    let title = &format!("{} on {}", result.cell.workload, result.cell.store);
    let plots = [rate(result), percentiles(result)];
    frame(title, &Page { title, table: table(result), plots, settings: &result.origin.settings }.to_string())
}

/// Operations per second over the window; empty when nothing completed.
fn rate(result: &CellResult) -> String {
    let width = result.timeline.len().div_ceil(POINTS).max(1);
    let step = TIMELINE_STEP.as_secs_f64();
    // A last step cut short by the window would look like a collapse.
    let whole = (result.measured.duration_s / step + 1e-6) as usize;
    let steps = &result.timeline[..whole.min(result.timeline.len())];
    let points: Vec<(f64, f64)> = steps
        .chunks(width)
        .enumerate()
        .map(|(i, chunk)| {
            let seconds = chunk.len() as f64 * step;
            ((i * width) as f64 * step + seconds / 2.0, chunk.iter().sum::<u64>() as f64 / seconds)
        })
        .collect();
    if points.iter().all(|point| point.1 == 0.0) {
        return String::new();
    }
    let ticks = (0..=4).map(|i| f64::from(i) * result.measured.duration_s / 4.0).map(|s| (s, format!("{s:.0}")));
    line_plot("Operations per second over time", "seconds", ticks.collect(), |v| format!("{v:.0}"), false, &points)
}

/// Latency against the share of operations that took longer, both on log axes; empty when nothing completed.
fn percentiles(result: &CellResult) -> String {
    let all: u64 = result.histogram.iter().map(|bucket| bucket.1).sum();
    if all == 0 {
        return String::new();
    }
    let mut below = 0;
    let mut points = Vec::new();
    for (upper_us, count) in &result.histogram {
        // One in this many operations took at least this bucket's time.
        points.push(((all as f64 / (all - below) as f64).log10(), upper_us.max(0.001) * 1e3));
        below += count;
    }
    points.push(((all as f64).log10(), result.measured.max_us.max(0.001) * 1e3));
    let percentile = |nines: u32| {
        let digits = (nines as usize).saturating_sub(2);
        (f64::from(nines), format!("{:.digits$}%", 100.0 - 100.0 / 10f64.powi(nines as i32)))
    };
    let ticks = (0..=(all as f64).log10() as u32).map(percentile).collect();
    line_plot("Latency", "share of operations at most this slow", ticks, latency, true, &points)
}
