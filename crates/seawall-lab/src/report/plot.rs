//! Panels as HTML. Text is HTML at a fixed size; only lines are SVG, stretched to the panel's width, so that
//! nothing is clipped or shrunk on a phone.
//!
//! - Bars start at zero; every figure is printed beside its bar.
//! - Series differ in colour and dash; published figures are grey.

use super::part;
use crate::evidence::{Bar, Body, Line, Lines, Panel, Point, Table};
use crate::text::{escape, vars};

/// A panel; its table or plot is never empty.
pub(super) fn panel(Panel { title, note, body }: &Panel) -> String {
    let body = match body {
        Body::Table(t) => table(t),
        Body::Bars(bars) => self::bars(bars),
        Body::Lines(lines) => self::lines(lines, title),
    };
    let note = if note.is_empty() { String::new() } else { part("panel-note", vars![note]) };
    part("panel", vars![title, body, note])
}

pub(super) fn table(table: &Table) -> String {
    let figure = |text: &str| if text.chars().count() > 40 { "" } else { r#" class="n""# };
    let row = |cells: &Vec<String>| {
        let figures = cells.iter().skip(1).map(|c| format!("<td{}>{}</td>", figure(c), escape(c)));
        part("table-row", vars![name = cells[0], figures = figures.collect::<String>()])
    };
    let rows: String = table.rows.iter().map(row).collect();
    let rest = table.head.iter().skip(1).map(|h| format!(r#"<th class="n">{}</th>"#, escape(h)));
    let head = format!("<th>{}</th>{}", escape(table.head[0]), rest.collect::<String>());
    part("table", vars![head, rows])
}

fn bars(bars: &[Bar]) -> String {
    let ends = |b: &Bar| [b.value, b.interval.1, b.published.as_ref().map_or(0.0, |p| p.0)];
    let most = bars.iter().flat_map(ends).filter(|v| v.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
    let share = |v: f64| if v.is_finite() { (v / most * 100.0).clamp(0.0, 100.0) } else { 0.0 };
    let percent = |share: f64| format!("{share:.1}");
    let mut all = String::new();
    for Bar { label: name, text: figure, value, interval, series, published } in bars {
        let [value, low, high] = [*value, interval.0, interval.1].map(share);
        let [value, low, width] = [value, low, (high - low).max(0.2)].map(percent);
        all += &part("bar", vars![name, series = series % 8, value, low, width, figure]);
        if let Some((value, text)) = published {
            all += &part("published-bar", vars![value = percent(share(*value)), text]);
        }
    }
    part("bars", vars![bars = all])
}

/// The height of the drawing, in units of a thousandth of its width; the style sheet stretches it.
const HEIGHT: f64 = 400.0;

fn lines(plot: &Lines, title: &str) -> String {
    let points = || plot.lines.iter().flat_map(|l| &l.points);
    let edge = |of: fn(&Point) -> f64, pick: fn(f64, f64) -> f64, from: f64| points().map(of).fold(from, pick);
    let (x_min, x_max) = (edge(|p| p.x, f64::min, f64::INFINITY), edge(|p| p.x, f64::max, f64::NEG_INFINITY));
    let top = edge(|p| p.high.max(p.y), f64::max, f64::MIN_POSITIVE);
    let bottom = if plot.y_logarithmic { edge(|p| p.low.max(1.0), f64::min, top) } else { 0.0 };
    let y_ticks = if plot.y_logarithmic { decades(bottom, top) } else { steps(top) };
    let (low, high) = (bottom.min(y_ticks[0]), top.max(y_ticks[y_ticks.len() - 1]));
    let x = |v: f64| if x_max > x_min { ((v - x_min) / (x_max - x_min)).clamp(0.0, 1.0) } else { 0.5 };
    let y = |v: f64| {
        let part = if plot.y_logarithmic {
            (v.max(1.0) / low).ln() / (high / low).ln().max(f64::MIN_POSITIVE)
        } else {
            (v - low) / (high - low)
        };
        1.0 - part.clamp(0.0, 1.0)
    };
    let at = |px: f64, py: f64| format!("{:.1} {:.1}", x(px) * 1000.0, y(py) * HEIGHT);
    let (mut svg, mut ticks, mut legend) = (String::new(), String::new(), String::new());
    let tick = |axis: &str, side: &str, share: f64, name: &str| {
        part("tick", vars![axis, side, at = format!("{:.1}", share * 100.0), name])
    };
    for t in y_ticks {
        svg += &part("grid", vars![at = format!("{:.1}", y(t) * HEIGHT)]);
        ticks += &tick("y", "top", y(t), &(plot.y_tick)(t));
    }
    for (t, name) in &plot.x_ticks {
        ticks += &tick("x", "left", x(*t), name);
    }
    for (i, Line { name, points }) in plot.lines.iter().enumerate() {
        let series = i % 8;
        let path = points.iter().map(|p| at(p.x, p.y)).collect::<Vec<_>>().join("L");
        let wide = points.iter().filter(|p| p.high > p.low);
        let whiskers: String = wide.map(|p| format!("M{}L{}", at(p.x, p.low), at(p.x, p.high))).collect();
        svg += &part("line", vars![series, whiskers, path]);
        if !name.is_empty() {
            legend += &part("legend-line", vars![series, name]);
        }
    }
    let legend = if legend.is_empty() { legend } else { part("legend", vars![lines = legend]) };
    part("lines", vars![legend, height = HEIGHT, title, svg, ticks, axis = plot.x_title])
}

/// Round steps from zero to at least `top`.
fn steps(top: f64) -> Vec<f64> {
    if !(top.is_finite() && top > 1e-280) {
        return vec![0.0, 1.0];
    }
    let rough = top / 4.0;
    let base = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|f| f * base).into_iter().find(|s| *s >= rough * 0.999).unwrap_or(rough);
    (0..=(top / step * 0.999).ceil().clamp(1.0, 8.0) as u32).map(|i| f64::from(i) * step).collect()
}

/// Powers of ten from below `low` to above `high`.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let exponent = |v: f64| v.clamp(1.0, 1e15).log10();
    let (from, to) = (exponent(low).floor() as i32, exponent(high).ceil() as i32);
    (from..=to.max(from + 1)).map(|e| 10f64.powi(e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks_that_hold_the_values() {
        assert_eq!(steps(46_000.0), [0.0, 20_000.0, 40_000.0, 60_000.0]);
        assert_eq!(decades(30_000.0, 2e6), [1e4, 1e5, 1e6, 1e7]);
        assert_eq!(steps(f64::NAN), [0.0, 1.0]);
        assert_eq!(crate::text::latency(decades(30_000.0, 2e6)[0]), "10 µs");
    }
}
