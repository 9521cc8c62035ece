//! Rate over a long run at constant load, with the plateaus found in it.
//!
//! - Seconds are grouped into columns; a band shows the lowest and highest second of each, the line their
//!   mean.
//! - The axis starts at zero: a plateau's drop is shown in proportion.

use super::Plot;
use super::canvas::{Align, Ink, picture, text_width, ticks};
use super::strip::thin;
use crate::report::format::{count, tick};
use crate::results::Sustain;

/// The plot of a sustained run.
pub(crate) fn sustain(run: &Sustain) -> impl Plot {
    Sustained { seconds: run.per_second.iter().map(|v| f64::from(*v)).collect(), run: run.clone() }
}

struct Sustained {
    seconds: Vec<f64>,
    run: Sustain,
}

impl Plot for Sustained {
    fn draw(&self, width: u32, label: &str) -> String {
        let max = self.seconds.iter().copied().fold(0.0, f64::max);
        if max <= 0.0 {
            return String::new();
        }
        let full = f64::from(width);
        let height = if full > 600.0 { 340.0 } else { 270.0 };
        let y_ticks = ticks(max, 5);
        let top_value = y_ticks[y_ticks.len() - 1];
        let left = y_ticks.iter().map(|t| text_width(&tick(*t), 12.0)).fold(0.0, f64::max) + 10.0;
        let (right, top, bottom) = (full - 8.0, 12.0, height - 42.0);
        let total = self.seconds.len() as f64;
        let x = |s: f64| left + (s / total).clamp(0.0, 1.0) * (right - left);
        let y = |v: f64| bottom - (v / top_value).clamp(0.0, 1.0) * (bottom - top);
        let columns = ((right - left) / 2.0) as usize;
        let size = self.seconds.len().div_ceil(columns.max(1)).max(1);
        let at = |i: usize| x(((i as f64 + 0.5) * size as f64).min(total));
        picture(width, height, label, |c| {
            for t in &y_ticks {
                c.line(&[(left, y(*t)), (right, y(*t))], Ink::Grid, 1.0)?;
                c.text((left - 7.0, y(*t)), &tick(*t), 12.0, Ink::Muted, Align::Right)?;
            }
            let (unit, unit_name) = if total > 300.0 { (60.0, "minutes") } else { (1.0, "seconds") };
            for t in ticks(total / unit, if full > 600.0 { 8 } else { 4 }).iter().filter(|t| **t * unit <= total) {
                c.line(&[(x(t * unit), bottom), (x(t * unit), bottom + 4.0)], Ink::Axis, 1.2)?;
                c.text((x(t * unit), bottom + 14.0), &tick(*t), 12.0, Ink::Muted, Align::Middle)?;
            }
            c.text((f64::midpoint(left, right), bottom + 32.0), unit_name, 12.0, Ink::Muted, Align::Middle)?;
            let edge = |pick: fn(f64, f64) -> f64, from: f64| -> Vec<(f64, f64)> {
                let chunks = self.seconds.chunks(size);
                chunks.enumerate().map(|(i, v)| (at(i), y(v.iter().copied().fold(from, pick)))).collect()
            };
            let mut band = edge(f64::max, 0.0);
            band.extend(edge(f64::min, f64::INFINITY).into_iter().rev());
            c.shape(&band, Ink::Series(0), 0.25)?;
            let mean: Vec<(f64, f64)> =
                thin(&self.seconds, columns.max(1)).iter().enumerate().map(|(i, v)| (at(i), y(*v))).collect();
            c.line(&mean, Ink::Series(0), 1.4)?;
            c.line(&[(left, bottom), (right, bottom)], Ink::Axis, 1.2)?;
            for p in self.run.plateaus.iter().filter(|p| p.rate.is_finite() && p.to_s > p.from_s) {
                let (from, to) = (x(f64::from(p.from_s)), x(f64::from(p.to_s)));
                c.line(&[(from, y(p.rate)), (to, y(p.rate))], Ink::Text, 2.6)?;
                let text = format!("{} /s", count(p.rate));
                let half = text_width(&text, 13.0) / 2.0;
                let middle = f64::midpoint(from, to).clamp(left + half + 4.0, (right - half).max(left + half + 4.0));
                // Above the line if there is room, else below.
                let beside = if y(p.rate) - 16.0 > top + 10.0 { y(p.rate) - 16.0 } else { y(p.rate) + 18.0 };
                c.rect((middle - half - 5.0, beside - 9.0), (middle + half + 5.0, beside + 9.0), Ink::Ground, 0.85)?;
                c.text((middle, beside), &text, 13.0, Ink::Text, Align::Middle)?;
            }
            Ok(())
        })
    }
}
