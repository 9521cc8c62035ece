//! Curves over an ordered x: rate by threads, speed-up, latency by percentile.
//!
//! - Threads and depths double from tick to tick, so the caller gives x as a position; only its order and
//!   spacing matter.
//! - A linear y axis starts at zero. A logarithmic one is chosen only if the largest value is at least 20
//!   times the smallest.
//! - Each series has its own mark as well as its own colour.

use super::canvas::{Align, Canvas, Drawn, Ink, log_ticks, picture, text_width, ticks};
use super::{Mark, Plot};

/// A measured point with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// One series.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    pub(crate) ink: Ink,
    /// The points' mark; [`Mark::Line`] and [`Mark::Dashed`] draw none.
    pub(crate) mark: Mark,
    pub(crate) points: Vec<Point>,
    /// Whether a line joins the points.
    pub(crate) joined: bool,
}

/// The scale of y.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum YScale {
    /// From zero.
    Linear,
    /// Decades.
    Log,
    /// Powers of two, for values compared with a number of threads.
    Doubling,
    /// Linear unless the values span more than a factor of 20.
    Fitting,
}

/// A plot of curves.
#[derive(Debug, Clone)]
pub(crate) struct Curves {
    pub(crate) curves: Vec<Curve>,
    /// Ticks of the x axis: position and label.
    pub(crate) x_ticks: Vec<(f64, String)>,
    /// Title of the x axis.
    pub(crate) x_title: String,
    pub(crate) y_scale: YScale,
    /// Formats a y tick.
    pub(crate) y_tick: fn(f64) -> String,
}

const LABEL: f64 = 12.0;

impl Curves {
    fn values(&self) -> impl Iterator<Item = &Point> {
        self.curves.iter().flat_map(|c| &c.points).filter(|p| p.x.is_finite() && p.y.is_finite() && p.y >= 0.0)
    }

    fn is_log(&self, min: f64, max: f64) -> bool {
        match self.y_scale {
            YScale::Linear => false,
            YScale::Log | YScale::Doubling => true,
            YScale::Fitting => min > 0.0 && max / min > 20.0,
        }
    }
}

impl Plot for Curves {
    fn draw(&self, width: u32, label: &str) -> String {
        let max = self.values().map(|p| if p.high.is_finite() { p.high.max(p.y) } else { p.y }).fold(0.0, f64::max);
        let min = self.values().map(|p| p.y).filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
        if max <= 0.0 || !min.is_finite() || self.x_ticks.is_empty() {
            return String::new();
        }
        let log = self.is_log(min, max);
        // The axis includes the lowest whisker.
        let min = self.values().map(|p| p.low).filter(|low| *low > 0.0).fold(min, f64::min);
        let y_ticks = match self.y_scale {
            YScale::Doubling => doubling_ticks(min, max),
            _ if log => log_ticks(min, max),
            _ => ticks(max, 5),
        };
        let (bottom_value, top_value) = (y_ticks[0], y_ticks[y_ticks.len() - 1]);
        let full = f64::from(width);
        let height = (full * 0.62).clamp(230.0, 330.0);
        let left = y_ticks.iter().map(|t| text_width(&(self.y_tick)(*t), LABEL)).fold(0.0, f64::max) + 10.0;
        let (right, top, bottom) = (full - 16.0, if log { 26.0 } else { 10.0 }, height - 42.0);
        let xs = self.x_ticks.iter().map(|t| t.0).chain(self.values().map(|p| p.x));
        let (x_min, x_max) = xs.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        let x_span = if x_max > x_min { x_max - x_min } else { 1.0 };
        let x = |v: f64| left + 14.0 + (v - x_min) / x_span * (right - left - 28.0);
        let y = |v: f64| {
            let share = if log {
                (v.max(bottom_value).log10() - bottom_value.log10())
                    / (top_value.log10() - bottom_value.log10()).max(1e-9)
            } else {
                v / top_value
            };
            bottom - share.clamp(0.0, 1.0) * (bottom - top)
        };
        picture(width, height, label, |c| {
            for t in &y_ticks {
                c.line(&[(left, y(*t)), (right, y(*t))], Ink::Grid, 1.0)?;
                c.text((left - 7.0, y(*t)), &(self.y_tick)(*t), LABEL, Ink::Muted, Align::Right)?;
            }
            if log {
                c.text((left, 7.0), "logarithmic", 11.0, Ink::Muted, Align::Left)?;
            }
            c.line(&[(left, bottom), (right, bottom)], Ink::Axis, 1.2)?;
            let mut free = f64::NEG_INFINITY;
            for (position, name) in &self.x_ticks {
                c.line(&[(x(*position), bottom), (x(*position), bottom + 4.0)], Ink::Axis, 1.2)?;
                let half = text_width(name, LABEL) / 2.0;
                if x(*position) - half > free {
                    c.text((x(*position), bottom + 14.0), name, LABEL, Ink::Muted, Align::Middle)?;
                    free = x(*position) + half + 4.0;
                }
            }
            c.text((f64::midpoint(left, right), bottom + 32.0), &self.x_title, LABEL, Ink::Muted, Align::Middle)?;
            // Several whiskers at one x would hide each other: each curve is shifted slightly.
            let whiskered = |c: &&Curve| c.points.iter().any(|p| p.high > p.low);
            let many = self.curves.iter().filter(whiskered).count() > 3;
            let x_on_axis = x;
            for (i, curve) in self.curves.iter().enumerate() {
                let aside = if many && curve.ink != Ink::Dashed {
                    (i as f64 - (self.curves.len() - 1) as f64 / 2.0) * 3.0
                } else {
                    0.0
                };
                let x = |v: f64| x_on_axis(v) + aside;
                let points: Vec<&Point> = curve.points.iter().filter(|p| p.x.is_finite() && p.y.is_finite()).collect();
                if curve.joined {
                    let path: Vec<(f64, f64)> = points.iter().map(|p| (x(p.x), y(p.y))).collect();
                    c.line(&path, curve.ink, if curve.ink == Ink::Dashed { 1.6 } else { 2.2 })?;
                }
                for p in &points {
                    if p.high > p.low && y(p.low) - y(p.high) > 2.0 {
                        c.line(&[(x(p.x), y(p.low)), (x(p.x), y(p.high))], curve.ink, 1.3)?;
                        for edge in [p.low, p.high] {
                            c.line(&[(x(p.x) - 3.0, y(edge)), (x(p.x) + 3.0, y(edge))], curve.ink, 1.3)?;
                        }
                    }
                    mark(c, (x(p.x), y(p.y)), curve.mark, curve.ink)?;
                }
            }
            Ok(())
        })
    }
}

/// Powers of two that span `min..=max`, at most about eight of them.
fn doubling_ticks(min: f64, max: f64) -> Vec<f64> {
    let (low, high) = (min.log2().floor().clamp(-900.0, 900.0) as i32, max.log2().ceil().clamp(-900.0, 900.0) as i32);
    let every = ((high - low) / 8 + 1).max(1);
    (0..=(high - low + every - 1) / every).map(|i| 2f64.powi(low + i * every)).collect()
}

/// A point's mark, on a rim of ground colour that keeps crossing curves apart.
fn mark(c: &Canvas<'_>, (x, y): (f64, f64), mark: Mark, ink: Ink) -> Drawn {
    match mark {
        Mark::Dot => {
            c.dot((x, y), 5.2, Ink::Ground)?;
            c.dot((x, y), 4.0, ink)
        }
        Mark::Square | Mark::Block => c.rect((x - 3.7, y - 3.7), (x + 3.7, y + 3.7), ink, 1.0),
        Mark::Triangle => c.shape(&[(x, y - 4.9), (x + 4.5, y + 3.4), (x - 4.5, y + 3.4)], ink, 1.0),
        Mark::Diamond => c.shape(&[(x, y - 5.2), (x + 5.2, y), (x, y + 5.2), (x - 5.2, y)], ink, 1.0),
        Mark::Cross => {
            c.line(&[(x - 3.6, y - 3.6), (x + 3.6, y + 3.6)], ink, 2.0)?;
            c.line(&[(x - 3.6, y + 3.6), (x + 3.6, y - 3.6)], ink, 2.0)
        }
        Mark::Line | Mark::Dashed | Mark::Tick => Ok(()),
    }
}
