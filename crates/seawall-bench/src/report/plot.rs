//! The plots, as SVG text.

use crate::results::{CellResult, TIMELINE_STEP};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 320);
const LINE: RGBColor = RGBColor(16, 98, 166);
/// More points than this are drawn as sums of neighbours: single ones could not be told apart.
const POINTS: usize = 600;

/// Operations per second over the window; `None` when nothing completed.
pub(super) fn rate(result: &CellResult) -> Option<String> {
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
    let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
    if most == 0.0 {
        return None;
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..result.measured.duration_s, 0.0..most * 1.05)
            .ok()?;
        chart.configure_mesh().x_desc("seconds").y_desc("operations per second").light_line_style(WHITE).draw().ok()?;
        chart.draw_series(LineSeries::new(points, LINE.stroke_width(2))).ok()?;
        area.present().ok()?;
    }
    Some(svg)
}

/// Latency against the share of operations that took longer, both on log axes; `None` when nothing completed.
pub(super) fn percentiles(result: &CellResult) -> Option<String> {
    let all: u64 = result.histogram.iter().map(|bucket| bucket.1).sum();
    if all == 0 {
        return None;
    }
    let mut below = 0;
    let mut points = Vec::new();
    for (upper_us, count) in &result.histogram {
        // This many "one in ..." operations took at least this bucket's time.
        points.push((all as f64 / (all - below) as f64, upper_us.max(0.001)));
        below += count;
    }
    let slowest = result.measured.max_us.max(0.001);
    points.push((all as f64, slowest));
    let fastest = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d((1.0..(all as f64).max(10.0)).log_scale(), (fastest * 0.8..slowest * 1.3).log_scale())
            .ok()?;
        let percentile = |one_in: &f64| {
            let percent = 100.0 - 100.0 / one_in;
            let digits = (one_in.log10().round() as usize).saturating_sub(2);
            format!("{percent:.digits$}%")
        };
        chart
            .configure_mesh()
            .x_desc("share of operations at most this slow")
            .y_desc("latency, us")
            .x_label_formatter(&percentile)
            .light_line_style(WHITE)
            .draw()
            .ok()?;
        chart.draw_series(LineSeries::new(points, LINE.stroke_width(2))).ok()?;
        area.present().ok()?;
    }
    Some(svg)
}
