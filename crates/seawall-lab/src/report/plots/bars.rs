//! Horizontal bars: a value per row with its interval, and the published value below it.
//!
//! - Bars start at zero; every row's figure is printed at its end, so the axis is only a visual aid.
//! - The published bar is thinner and grey, with the same scale as the user's.
//! - Names are left of the bars on a wide screen and above them on a phone.

use super::Plot;
use super::canvas::{Align, Canvas, Drawn, Ink, picture, text_width, ticks};

/// One row.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    /// Its name.
    pub(crate) label: String,
    /// Its length.
    pub(crate) value: f64,
    /// Interval of the value.
    pub(crate) low: f64,
    /// Interval of the value.
    pub(crate) high: f64,
    /// The figure printed at its end.
    pub(crate) text: String,
    /// Its colour.
    pub(crate) ink: Ink,
    /// The published value and its figure.
    pub(crate) published: Option<(f64, String)>,
    /// The end of the ideal bar.
    pub(crate) ideal: Option<f64>,
}

impl Bar {
    /// A bar without interval or companions.
    pub(crate) fn new(label: impl Into<String>, value: f64, text: impl Into<String>, ink: Ink) -> Self {
        Self {
            label: label.into(),
            value,
            low: value,
            high: value,
            text: text.into(),
            ink,
            published: None,
            ideal: None,
        }
    }

    fn is_drawable(&self) -> bool {
        self.value.is_finite() && self.value >= 0.0
    }
}

/// A bar plot.
#[derive(Debug, Clone)]
pub(crate) struct Bars {
    /// The rows, from the top.
    pub(crate) rows: Vec<Bar>,
    /// Position of a vertical reference line, such as 100%.
    pub(crate) reference: Option<f64>,
    /// Formats a tick.
    pub(crate) tick: fn(f64) -> String,
}

const SIZE: f64 = 13.0;
const BAR: f64 = 16.0;
const THIN: f64 = 9.0;

impl Plot for Bars {
    fn draw(&self, width: u32, label: &str) -> String {
        let rows: Vec<&Bar> = self.rows.iter().filter(|r| r.is_drawable()).collect();
        if rows.is_empty() || rows.iter().all(|r| r.value == 0.0) {
            return String::new();
        }
        let full = f64::from(width);
        let names = rows.iter().map(|r| text_width(&r.label, SIZE)).fold(0.0, f64::max) + 12.0;
        let beside = width >= 450 && names < full * 0.46;
        let left = if beside { names } else { 0.0 };
        let figures = rows
            .iter()
            .flat_map(|r| [text_width(&r.text, SIZE), r.published.as_ref().map_or(0.0, |p| text_width(&p.1, 11.5))])
            .fold(0.0, f64::max);
        let room = (full - left - figures - 16.0).max(60.0);
        let most = rows
            .iter()
            .flat_map(|r| [r.value, r.high, r.published.as_ref().map_or(0.0, |p| p.0), r.ideal.unwrap_or(0.0)])
            .filter(|v| v.is_finite())
            .fold(self.reference.unwrap_or(0.0), f64::max);
        let x = |value: f64| left + (value / most).clamp(0.0, 1.0) * room;
        let row_height = |r: &Bar| {
            let name = if beside { 0.0 } else { 19.0 };
            let published = if r.published.is_some() { THIN + 3.0 } else { 0.0 };
            name + BAR + published + if beside { 13.0 } else { 15.0 }
        };
        let top = 6.0;
        let bottom = top + rows.iter().map(|r| row_height(r)).sum::<f64>() - 6.0;
        picture(width, bottom + 26.0, label, |c| {
            for t in ticks(most, if room > 320.0 { 5 } else { 3 }).into_iter().filter(|t| *t <= most * 1.0001) {
                c.line(&[(x(t), top - 4.0), (x(t), bottom)], Ink::Grid, 1.0)?;
                let align = if t == 0.0 && !beside { Align::Left } else { Align::Middle };
                c.text((x(t), bottom + 13.0), &(self.tick)(t), 11.5, Ink::Muted, align)?;
            }
            if let Some(reference) = self.reference {
                c.line(&[(x(reference), top - 4.0), (x(reference), bottom)], Ink::Dashed, 1.2)?;
            }
            let mut y = top;
            for row in &rows {
                let start = y;
                if !beside {
                    // The name covers the grid lines.
                    c.rect((0.0, y - 2.0), (text_width(&row.label, SIZE), y + 17.0), Ink::Ground, 1.0)?;
                    c.text((0.0, y + 7.0), &row.label, SIZE, Ink::Text, Align::Left)?;
                    y += 19.0;
                }
                let end = x(row.value).max(left + 1.5);
                c.rect((left, y), (end, y + BAR), row.ink, 1.0)?;
                let mut free = end;
                if row.high > row.low && row.low.is_finite() && row.high.is_finite() {
                    let middle = y + BAR / 2.0;
                    c.line(&[(x(row.low), middle), (x(row.high), middle)], Ink::Whisker, 1.4)?;
                    for edge in [row.low, row.high] {
                        c.line(&[(x(edge), middle - 3.5), (x(edge), middle + 3.5)], Ink::Whisker, 1.4)?;
                    }
                    free = free.max(x(row.high));
                }
                if let Some(ideal) = row.ideal.filter(|i| i.is_finite()) {
                    c.line(&[(x(ideal), y - 3.0), (x(ideal), y + BAR + 3.0)], Ink::Text, 2.0)?;
                    if x(ideal) < free + text_width(&row.text, SIZE) + 10.0 {
                        free = free.max(x(ideal));
                    }
                }
                let figure = free + 7.0;
                backing(c, figure, y, BAR, text_width(&row.text, SIZE))?;
                c.text((figure, y + BAR / 2.0), &row.text, SIZE, Ink::Text, Align::Left)?;
                y += BAR;
                if let Some((value, text)) = row.published.as_ref().filter(|p| p.0.is_finite()) {
                    c.rect((left, y + 3.0), (x(*value), y + 3.0 + THIN), Ink::Published, 1.0)?;
                    let figure = x(*value) + 7.0;
                    backing(c, figure, y + 3.0, THIN, text_width(text, 11.5))?;
                    c.text((figure, y + 3.5 + THIN / 2.0), text, 11.5, Ink::Muted, Align::Left)?;
                    y += THIN + 3.0;
                }
                if beside {
                    let middle = f64::midpoint(start, y);
                    c.text((left - 10.0, middle), &row.label, SIZE, Ink::Text, Align::Right)?;
                }
                y = start + row_height(row);
            }
            if beside {
                c.line(&[(left, top - 4.0), (left, bottom)], Ink::Axis, 1.2)?;
            }
            Ok(())
        })
    }
}

/// Background behind a figure, so that grid lines do not cross it.
fn backing(c: &Canvas<'_>, left: f64, top: f64, height: f64, width: f64) -> Drawn {
    c.rect((left - 2.0, top), (left + width * 0.97, top + height), Ink::Ground, 0.9)
}
