//! Where the lines, ticks and bars of a panel are; `panel.html` draws them.

use crate::evidence::{Bar, Lines, Point};

/// A bar at its place: everything in percent of its track.
pub(crate) struct Drawn {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) width: f64,
    pub(crate) published: f64,
}

impl Bar {
    /// Each with its place; the longest fills its track.
    pub(crate) fn drawn(bars: &[Self]) -> impl Iterator<Item = (&Self, Drawn)> {
        let published = |b: &Self| b.published.as_ref().map_or(0.0, |p| p.0);
        let ends = |b: &Self| [b.value, b.interval.1, published(b)];
        let most = bars.iter().flat_map(ends).filter(|v| v.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
        let share = move |v: f64| if v.is_finite() { (v / most * 100.0).clamp(0.0, 100.0) } else { 0.0 };
        bars.iter().map(move |bar| {
            let [value, low, high, published] = [bar.value, bar.interval.0, bar.interval.1, published(bar)].map(share);
            (bar, Drawn { value, low, width: (high - low).max(0.2), published })
        })
    }
}

/// A line plot at its place: ticks with their share of the axis from the left or the top, and paths.
pub(crate) struct Drawing<'a> {
    pub(crate) y_ticks: Vec<(f64, String)>,
    pub(crate) x_ticks: Vec<(f64, &'a str)>,
    /// For each line its path and that of its intervals.
    pub(crate) lines: Vec<(String, String)>,
}

impl Lines {
    /// The height of the drawing, in units of a thousandth of its width; the style sheet stretches it.
    pub(crate) const HEIGHT: f64 = 400.0;

    /// Whether a legend tells the lines apart.
    pub(crate) fn named(&self) -> bool {
        self.lines.iter().any(|line| !line.name.is_empty())
    }

    pub(crate) fn drawing(&self) -> Drawing<'_> {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let edge = |of: fn(&Point) -> f64, pick: fn(f64, f64) -> f64, from: f64| points().map(of).fold(from, pick);
        let (x_min, x_max) = (edge(|p| p.x, f64::min, f64::INFINITY), edge(|p| p.x, f64::max, f64::NEG_INFINITY));
        let top = edge(|p| p.high.max(p.y), f64::max, f64::MIN_POSITIVE);
        let bottom = if self.y_logarithmic { edge(|p| p.low.max(1.0), f64::min, top) } else { 0.0 };
        let y_ticks = if self.y_logarithmic { decades(bottom, top) } else { steps(top) };
        let (low, high) = (bottom.min(y_ticks[0]), top.max(y_ticks[y_ticks.len() - 1]));
        let x = |v: f64| if x_max > x_min { ((v - x_min) / (x_max - x_min)).clamp(0.0, 1.0) } else { 0.5 };
        let y = |v: f64| {
            let part = if self.y_logarithmic {
                (v.max(1.0) / low).ln() / (high / low).ln().max(f64::MIN_POSITIVE)
            } else {
                (v - low) / (high - low)
            };
            1.0 - part.clamp(0.0, 1.0)
        };
        let at = |px: f64, py: f64| format!("{:.1} {:.1}", x(px) * 1000.0, y(py) * Lines::HEIGHT);
        let lines = self.lines.iter().map(|line| {
            let path = line.points.iter().map(|p| at(p.x, p.y)).collect::<Vec<_>>().join("L");
            let wide = line.points.iter().filter(|p| p.high > p.low);
            (format!("M{path}"), wide.map(|p| format!("M{}L{}", at(p.x, p.low), at(p.x, p.high))).collect())
        });
        Drawing {
            y_ticks: y_ticks.into_iter().map(|t| (y(t), (self.y_tick)(t))).collect(),
            x_ticks: self.x_ticks.iter().map(|(t, name)| (x(*t), name.as_str())).collect(),
            lines: lines.collect(),
        }
    }
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
