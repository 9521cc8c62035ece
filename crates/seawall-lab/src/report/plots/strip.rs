//! Rate over time as strips: one small plot per cell, each scaled from zero to its own maximum.
//!
//! - The rounds of a cell are joined in time order; a gap marks where other cells ran in between.
//! - The last tenth of a round is dropped when the round did not fill it: it would look like a dip.
//! - Long series are drawn as the mean of neighbours; the printed range is of the drawn values.

use super::Plot;
use super::canvas::{Align, Ink, picture, text_width};
use crate::report::format::count;

/// One cell.
#[derive(Debug, Clone)]
pub(crate) struct StripRow {
    pub(crate) label: String,
    pub(crate) ink: Ink,
    /// Rates (operations per second) of each round's tenths of a second.
    pub(crate) rounds: Vec<Vec<f64>>,
}

/// Strips below each other.
#[derive(Debug, Clone)]
pub(crate) struct Strip {
    pub(crate) rows: Vec<StripRow>,
}

const GAP: f64 = 5.0;

impl Plot for Strip {
    fn draw(&self, width: u32, label: &str) -> String {
        let rows: Vec<&StripRow> = self.rows.iter().filter(|r| r.rounds.iter().flatten().any(|v| *v > 0.0)).collect();
        if rows.is_empty() {
            return String::new();
        }
        let full = f64::from(width);
        let names = rows.iter().map(|r| text_width(&r.label, 13.0)).fold(0.0, f64::max) + 14.0;
        let beside = full >= 900.0 && names < full * 0.42;
        let (left, right) = if beside { (names, full - 170.0) } else { (0.0, full) };
        let (name, hill, gap) = if beside { (0.0, 30.0, 12.0) } else { (34.0, 28.0, 12.0) };
        let row = name + hill + gap;
        picture(width, row * rows.len() as f64, label, |c| {
            for (i, r) in rows.iter().enumerate() {
                let base = row * i as f64 + name + hill + 2.0;
                let rounds: Vec<&Vec<f64>> = r.rounds.iter().filter(|v| !v.is_empty()).collect();
                let room = right - left - GAP * rounds.len().saturating_sub(1) as f64;
                let each = (room / rounds.len() as f64).max(2.0);
                let drawn: Vec<Vec<f64>> = rounds.iter().map(|v| thin(v, each as usize)).collect();
                let values = || drawn.iter().flatten().copied().filter(|v| v.is_finite());
                let max = values().fold(f64::MIN_POSITIVE, f64::max);
                let min = values().fold(f64::INFINITY, f64::min);
                for (j, round) in drawn.iter().enumerate() {
                    let start = left + j as f64 * (each + GAP);
                    let step = each / round.len() as f64;
                    // Stairs: a tenth of a second has one rate, not a slope.
                    let line: Vec<(f64, f64)> = round
                        .iter()
                        .enumerate()
                        .flat_map(|(k, v)| {
                            let y = base - (v / max).clamp(0.0, 1.0) * hill;
                            [(start + k as f64 * step, y), (start + (k + 1) as f64 * step, y)]
                        })
                        .collect();
                    let mut hull = vec![(start, base)];
                    hull.extend(&line);
                    hull.push((start + each, base));
                    c.shape(&hull, r.ink, 0.22)?;
                    c.line(&line, r.ink, 1.5)?;
                    c.line(&[(start, base), (start + each, base)], Ink::Axis, 1.0)?;
                }
                let figures = format!("{} to {} /s", count(min), count(max));
                if beside {
                    let middle = base - hill / 2.0;
                    c.text((left - 12.0, middle), &r.label, 13.0, Ink::Text, Align::Right)?;
                    c.text((right + 12.0, middle), &figures, 12.0, Ink::Muted, Align::Left)?;
                } else {
                    c.text((0.0, base - hill - 25.0), &r.label, 12.5, Ink::Text, Align::Left)?;
                    c.text((0.0, base - hill - 9.0), &figures, 11.5, Ink::Muted, Align::Left)?;
                }
            }
            Ok(())
        })
    }
}

/// At most `most` values, each the mean of its neighbours.
pub(crate) fn thin(values: &[f64], most: usize) -> Vec<f64> {
    let size = values.len().div_ceil(most.max(1)).max(1);
    values.chunks(size).map(|c| c.iter().sum::<f64>() / c.len() as f64).collect()
}
