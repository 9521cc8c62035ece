//! A drawing area in CSS pixels whose colours are CSS variables.
//!
//! - `plotters` works in whole units: one pixel is [`UNIT`] of them, so that curves are smooth.
//! - Colours are [`Ink`]s: a sentinel colour while drawing, `var(--...)` afterwards. Only attributes written
//!   by this module's own drawing can match a sentinel, because `plotters` escapes quotes in text.
//! - Coordinates that are not finite are dropped; the rest is clamped to the drawing, so a wild value cannot overflow.

use super::super::format::escape;
use plotters::coord::Shift;
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, ShapeStyle, TextStyle};

/// Drawing units per CSS pixel.
const UNIT: f64 = 10.0;

/// The result of drawing; drawing into a string does not fail, and a failure would leave out the plot.
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A colour by its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// One of the eight series colours.
    Series(u8),
    /// Published figures, and marks for orientation.
    Published,
    /// A published or ideal line: dashed.
    Dashed,
    /// Labels.
    Text,
    /// Ticks and secondary words.
    Muted,
    /// Grid lines.
    Grid,
    /// The axis line.
    Axis,
    /// Whiskers, drawn over bars.
    Whisker,
    /// The panel's ground.
    Ground,
}

/// Inks other than the series.
const ROLES: [Ink; 8] =
    [Ink::Published, Ink::Dashed, Ink::Text, Ink::Muted, Ink::Grid, Ink::Axis, Ink::Whisker, Ink::Ground];

impl Ink {
    /// The series colours, cyclically.
    pub(crate) fn series(index: usize) -> Self {
        Self::Series((index % 8) as u8)
    }

    /// The CSS value.
    pub(crate) fn css(self) -> String {
        match self {
            Self::Series(n) => format!("var(--series-{})", n % 8 + 1),
            Self::Published | Self::Dashed => "var(--published)".into(),
            Self::Text => "var(--ink)".into(),
            Self::Muted => "var(--muted)".into(),
            Self::Grid => "var(--grid)".into(),
            Self::Axis => "var(--axis)".into(),
            Self::Whisker => "var(--whisker)".into(),
            Self::Ground => "var(--card)".into(),
        }
    }

    fn sentinel(self) -> RGBColor {
        match self {
            Self::Series(n) => RGBColor(0xFE, 0x01, n % 8),
            role => {
                let index = ROLES.iter().position(|r| *r == role).unwrap_or_default();
                RGBColor(0xFE, 0x02, index as u8)
            }
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        (0..8).map(Self::Series).chain(ROLES)
    }
}

/// The position of a text's anchor point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Middle,
    Right,
}

/// An area to draw on, in CSS pixels from the top left.
pub(crate) struct Canvas<'a> {
    root: DrawingArea<SVGBackend<'a>, Shift>,
    width: f64,
    height: f64,
}

impl Canvas<'_> {
    fn at(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let x = if x.is_finite() { x.clamp(-50.0, self.width + 50.0) } else { 0.0 };
        let y = if y.is_finite() { y.clamp(-50.0, self.height + 50.0) } else { 0.0 };
        ((x * UNIT).round() as i32, (y * UNIT).round() as i32)
    }

    fn all_at(&self, points: &[(f64, f64)]) -> Vec<(i32, i32)> {
        points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).map(|p| self.at(*p)).collect()
    }

    /// A filled rectangle.
    pub(crate) fn rect(&self, from: (f64, f64), to: (f64, f64), ink: Ink, alpha: f64) -> Drawn {
        let style = ShapeStyle::from(ink.sentinel().mix(alpha)).filled();
        self.root.draw(&Rectangle::new([self.at(from), self.at(to)], style))
    }

    /// A line through `points`.
    pub(crate) fn line(&self, points: &[(f64, f64)], ink: Ink, width: f64) -> Drawn {
        let points = self.all_at(points);
        if points.len() < 2 {
            return Ok(());
        }
        let style = ShapeStyle::from(ink.sentinel()).stroke_width((width * UNIT).round() as u32);
        self.root.draw(&PathElement::new(points, style))
    }

    /// A filled shape.
    pub(crate) fn shape(&self, points: &[(f64, f64)], ink: Ink, alpha: f64) -> Drawn {
        let points = self.all_at(points);
        if points.len() < 3 {
            return Ok(());
        }
        self.root.draw(&Polygon::new(points, ink.sentinel().mix(alpha)))
    }

    /// A filled circle.
    pub(crate) fn dot(&self, at: (f64, f64), radius: f64, ink: Ink) -> Drawn {
        if !(at.0.is_finite() && at.1.is_finite()) {
            return Ok(());
        }
        let style = ShapeStyle::from(ink.sentinel()).filled();
        self.root.draw(&Circle::new(self.at(at), (radius * UNIT) as u32, style))
    }

    /// Text whose vertical middle is at `at`.
    pub(crate) fn text(&self, at: (f64, f64), text: &str, size: f64, ink: Ink, align: Align) -> Drawn {
        let h = match align {
            Align::Left => HPos::Left,
            Align::Middle => HPos::Center,
            Align::Right => HPos::Right,
        };
        // The SVG backend divides by 1.24; the style sheet sets the family.
        let font = ("sans-serif", size * UNIT * 1.24).into_font();
        let colour = ink.sentinel();
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(h, VPos::Center));
        self.root.draw(&Text::new(text.to_owned(), self.at(at), style))
    }
}

/// Draws a picture of the given size and returns its SVG; empty when drawing failed.
pub(crate) fn picture(width: u32, height: f64, label: &str, draw: impl FnOnce(&Canvas<'_>) -> Drawn) -> String {
    let height = if height.is_finite() { height.clamp(1.0, 20_000.0) } else { 1.0 };
    let size = ((f64::from(width) * UNIT) as u32, (height * UNIT) as u32);
    let mut svg = String::new();
    {
        let canvas = Canvas {
            root: SVGBackend::with_string(&mut svg, size).into_drawing_area(),
            width: f64::from(width),
            height,
        };
        if draw(&canvas).and_then(|()| canvas.root.present()).is_err() {
            return String::new();
        }
    }
    themed(&svg, width, height, label)
}

/// Replaces the sentinels by CSS variables, and the fixed size by a scalable one.
fn themed(svg: &str, width: u32, height: f64, label: &str) -> String {
    let mut svg = svg.replace('\n', "");
    for ink in Ink::all() {
        let RGBColor(r, g, b) = ink.sentinel();
        let found = format!("=\"#{r:02X}{g:02X}{b:02X}\"");
        let dash = if ink == Ink::Dashed { " stroke-dasharray=\"50 40\"" } else { "" };
        svg = svg.replace(&found, &format!("=\"{}\"{dash}", ink.css()));
    }
    svg = svg.replace(" opacity=\"1\"", "").replace(" font-family=\"sans-serif\"", "").replace(" stroke=\"none\"", "");
    svg = svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    let body = svg.find("viewBox").map_or("", |start| &svg[start..]);
    format!(
        "<svg class=\"plot\" role=\"img\" aria-label=\"{}\" \
         style=\"max-width:{}px;aspect-ratio:{width}/{height:.0}\" {body}",
        escape(label),
        width * 7 / 5,
    )
}

/// Roughly how wide `text` will be in a proportional font of `size`.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let units: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'l' | 'j' | 't' | 'f' | 'r' | ' ' | '\u{a0}' | ',' | '.' | '/' | '(' | ')' => 0.37,
            'm' | 'w' | 'M' | 'W' | '%' => 0.94,
            c if c.is_uppercase() => 0.71,
            _ => 0.615,
        })
        .sum();
    units * size
}

/// Round steps from zero to at least `max`: the ticks, the last of which ends the axis.
pub(crate) fn ticks(max: f64, about: usize) -> Vec<f64> {
    if !(max.is_finite() && max > f64::MIN_POSITIVE * 1e20) {
        return vec![0.0, 1.0];
    }
    let rough = max / about.max(1) as f64;
    let base = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|f| f * base).find(|s| *s >= rough * 0.999).unwrap_or(base * 10.0);
    let steps = (max / step * 0.999).ceil().clamp(1.0, 50.0) as u32;
    (0..=steps).map(|i| f64::from(i) * step).collect()
}

/// Decades and, where there are few, their 2 and 5, that span `min..=max` on a logarithmic axis.
pub(crate) fn log_ticks(min: f64, max: f64) -> Vec<f64> {
    let (low, high) = (min.max(1e-12).log10(), max.clamp(1e-12, 1e300).log10());
    if !(low.is_finite() && high.is_finite()) {
        return vec![1.0, 10.0];
    }
    let factors: &[f64] = if high - low <= 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = ((high - low) / 7.0).ceil().max(1.0) as i32;
    let all: Vec<f64> = ((low.floor() as i32)..=(high.ceil() as i32))
        .step_by(every as usize)
        .flat_map(|d| factors.iter().map(move |f| f * 10f64.powi(d)))
        .collect();
    let first = all.iter().rposition(|t| *t <= min * 1.0001).unwrap_or(0);
    let last = all.iter().position(|t| *t >= max * 0.9999).unwrap_or(all.len() - 1);
    all[first..=last.max(first)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        assert_eq!(ticks(93.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.0, 5), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN, 5), [0.0, 1.0]);
        assert_eq!(log_ticks(30.0, 4000.0), [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0]);
        assert_eq!(log_ticks(30.0, 1e6), [10.0, 1e2, 1e3, 1e4, 1e5, 1e6]);
        for (min, max) in [(0.0, 0.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (5.0, 1.0), (1e300, 1e300)] {
            assert!(!log_ticks(min, max).is_empty());
        }
    }

    #[test]
    fn colours_become_variables_and_text_stays_text() {
        let svg = picture(100, 50.0, "a \"label\"", |c| {
            c.rect((0.0, 0.0), (10.0, f64::NAN), Ink::Series(1), 0.5)?;
            c.line(&[(0.0, 0.0), (1e300, 9.0)], Ink::Dashed, 1.0)?;
            c.text((5.0, 5.0), "</svg>=\"#FE0100\"", 12.0, Ink::Text, Align::Left)
        });
        assert!(svg.contains("fill=\"var(--series-2)\"") && svg.contains("stroke-dasharray"), "{svg}");
        assert!(svg.contains("&lt;/svg&gt;") && !svg.contains("#FE01\"") && !svg.contains("=\"#"), "{svg}");
        assert!(svg.contains("aria-label=\"a &quot;label&quot;\""));
    }
}
