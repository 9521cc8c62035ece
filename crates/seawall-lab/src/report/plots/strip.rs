//! Rate over time as strips: one small plot per cell, each scaled from zero to its own maximum.
//!
//! - The rounds of a cell are joined in time order; a gap marks where other cells ran in between.
//! - The last tenth of a second of a round is dropped when the round did not fill it: it would look like a
//!   dip.
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
const COLUMN_GAP: f64 = 36.0;
const HILL: f64 = 28.0;

impl Plot for Strip {
    fn draw(&self, width: u32, label: &str) -> String {
        let rows: Vec<&StripRow> = self.rows.iter().filter(|r| r.rounds.iter().flatten().any(|v| *v > 0.0)).collect();
        if rows.is_empty() {
            return String::new();
        }
        let full = f64::from(width);
        let columns = if full >= 900.0 { 2 } else { 1 };
        let room = (full - COLUMN_GAP * (columns - 1) as f64) / columns as f64;
        let one_line = columns > 1;
        let name = if one_line { 20.0 } else { 36.0 };
        let row = name + HILL + 16.0;
        let height = row * rows.len().div_ceil(columns) as f64 - 10.0;
        picture(width, height, label, |c| {
            for (i, r) in rows.iter().enumerate() {
                let per_column = rows.len().div_ceil(columns);
                let left = (i / per_column) as f64 * (room + COLUMN_GAP);
                let base = row * (i % per_column) as f64 + name + HILL + 2.0;
                let rounds: Vec<&Vec<f64>> = r.rounds.iter().filter(|v| !v.is_empty()).collect();
                let drawable = room - GAP * rounds.len().saturating_sub(1) as f64;
                let each = (drawable / rounds.len() as f64).max(2.0);
                let drawn: Vec<Vec<f64>> = rounds.iter().map(|v| thin(v, each as usize)).collect();
                let values = || drawn.iter().flatten().copied().filter(|v| v.is_finite());
                let max = values().fold(f64::MIN_POSITIVE, f64::max);
                let min = values().fold(f64::INFINITY, f64::min);
                for (j, round) in drawn.iter().enumerate() {
                    let start = left + j as f64 * (each + GAP);
                    let step = each / round.len() as f64;
                    // Steps: each tenth of a second has one rate, not a slope.
                    let line: Vec<(f64, f64)> = round
                        .iter()
                        .enumerate()
                        .flat_map(|(k, v)| {
                            let y = base - (v / max).clamp(0.0, 1.0) * HILL;
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
                let taken = if one_line { text_width(&figures, 11.5) + 14.0 } else { 0.0 };
                let name = shorten(&r.label, 12.5, room - taken);
                c.text((left, base - HILL - if one_line { 11.0 } else { 26.0 }), &name, 12.5, Ink::Text, Align::Left)?;
                let (x, align) = if one_line { (left + room, Align::Right) } else { (left, Align::Left) };
                c.text((x, base - HILL - 10.0), &figures, 11.5, Ink::Muted, align)?;
            }
            Ok(())
        })
    }
}

/// At most `most` values, each the mean of neighbouring ones.
pub(crate) fn thin(values: &[f64], most: usize) -> Vec<f64> {
    let size = values.len().div_ceil(most.max(1)).max(1);
    values.chunks(size).map(|c| c.iter().sum::<f64>() / c.len() as f64).collect()
}

/// The text, cut at a word with an ellipsis if it does not fit.
fn shorten(text: &str, size: f64, room: f64) -> String {
    let mut cut = text;
    while text_width(cut, size) > room - 12.0 {
        let Some(end) = cut.trim_end().rfind(' ') else { break };
        cut = cut[..end].trim_end_matches([' ', ',']);
    }
    if cut.len() == text.len() { text.to_owned() } else { format!("{cut} …") }
}
