//! Plots: `plotters` draws, the page's style sheet colours.
//!
//! - Every plot is a function of its width. It is drawn for a wide screen, for a tablet or paper, and for a
//!   phone; the style sheet shows one of them, so that text keeps its size on all.
//! - Colours are sentinels while `plotters` draws and CSS variables afterwards: one drawing works in light,
//!   dark and print.
//! - Legends and captions are HTML, where text wraps; a drawing contains only ticks, labels and values.
//! - A plot without data is an empty string, not an empty frame.

mod bars;
mod canvas;
mod curves;
mod ridge;
mod strip;
mod sustain;

pub(crate) use bars::{Bar, Bars};
pub(crate) use canvas::Ink;
pub(crate) use curves::{Curve, Curves, Point, YScale};
pub(crate) use ridge::{Ridge, RidgeRow};
pub(crate) use strip::{Strip, StripRow};
pub(crate) use sustain::sustain;

use super::format::escape;
use std::fmt::Write as _;

/// Something that can be drawn at a width.
pub(crate) trait Plot {
    /// The drawing as SVG, `width` CSS pixels wide at its natural size; empty when there is nothing to draw.
    fn draw(&self, width: u32, label: &str) -> String;
}

/// How much of the page's width a panel takes on a wide screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Half,
    Full,
}

/// A plot with its texts.
#[derive(Debug)]
pub(crate) struct Panel {
    /// What the plot shows, as a heading.
    pub(crate) title: String,
    /// Axis and unit, in a sentence below the heading.
    pub(crate) subtitle: String,
    /// Legend entries.
    pub(crate) legend: Vec<(Mark, Ink, String)>,
    /// A note to show beside it.
    pub(crate) note: String,
    /// Width on a wide screen.
    pub(crate) span: Span,
}

/// The shape of a series in legend and plot, so that colour is never the only difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Block,
    Line,
    Dashed,
    Dot,
    Square,
    Triangle,
    Diamond,
    Cross,
    Tick,
}

impl Mark {
    /// The marks of curves, in the order of their series.
    pub(crate) fn nth(index: usize) -> Self {
        [Self::Dot, Self::Square, Self::Triangle, Self::Diamond, Self::Cross][index % 5]
    }

    fn swatch(self, ink: Ink) -> String {
        let colour = ink.css();
        let line = format!(r#"<path d="M0 6H22" stroke="{colour}" stroke-width="2"/>"#);
        let inner = match self {
            Self::Block => format!(r#"<rect width="14" height="12" rx="2" fill="{colour}"/>"#),
            Self::Line => line,
            Self::Dashed => {
                format!(r#"<path d="M0 6H22" stroke="{colour}" stroke-width="2" stroke-dasharray="5 3.5"/>"#)
            }
            Self::Dot => format!(r#"{line}<circle cx="11" cy="6" r="4" fill="{colour}"/>"#),
            Self::Square => format!(r#"{line}<rect x="7.2" y="2.2" width="7.6" height="7.6" fill="{colour}"/>"#),
            Self::Triangle => format!(r#"{line}<path d="M11 1L15.6 9.6H6.4Z" fill="{colour}"/>"#),
            Self::Diamond => format!(r#"{line}<path d="M11 1L16 6L11 11L6 6Z" fill="{colour}"/>"#),
            Self::Cross => {
                format!(r#"{line}<path d="M7.5 2.5L14.5 9.5M14.5 2.5L7.5 9.5" stroke="{colour}" stroke-width="2"/>"#)
            }
            Self::Tick => format!(r#"<path d="M11 0V12" stroke="{colour}" stroke-width="2.5"/>"#),
        };
        let width = if self == Self::Block { 14 } else { 22 };
        format!(
            r#"<svg class="swatch" width="{width}" height="12" viewBox="0 0 {width} 12"
aria-hidden="true">{inner}</svg>"#
        )
    }
}

/// A panel as HTML; empty when its plot is empty.
pub(crate) fn panel(panel: &Panel, plot: &dyn Plot) -> String {
    let (width, class) = match panel.span {
        Span::Half => (500, "half"),
        Span::Full => (1040, "full"),
    };
    let label = format!("{}. {}", panel.title, panel.subtitle);
    let wide = plot.draw(width, &label);
    if wide.is_empty() {
        return String::new();
    }
    let narrow = plot.draw(330, &label);
    let mut out = format!(r#"<figure class="panel {class}"><figcaption><h3>{}</h3>"#, escape(&panel.title));
    if !panel.subtitle.is_empty() {
        write_html(&mut out, format_args!(r#"<p class="sub">{}</p>"#, escape(&panel.subtitle)));
    }
    out.push_str("</figcaption>");
    if !panel.legend.is_empty() {
        out.push_str(r#"<ul class="legend">"#);
        for (mark, ink, name) in &panel.legend {
            write_html(&mut out, format_args!("<li>{}{}</li>", mark.swatch(*ink), escape(name)));
        }
        out.push_str("</ul>");
    }
    match panel.span {
        // Half a wide screen is as wide as a tablet or a sheet of paper.
        Span::Half => write_html(&mut out, format_args!(r#"<div class="wide mid">{wide}</div>"#)),
        Span::Full => {
            let mid = plot.draw(640, &label);
            write_html(&mut out, format_args!(r#"<div class="wide">{wide}</div><div class="mid">{mid}</div>"#));
        }
    }
    write_html(&mut out, format_args!(r#"<div class="narrow">{narrow}</div>"#));
    if !panel.note.is_empty() {
        write_html(&mut out, format_args!(r#"<p class="note">{}</p>"#, escape(&panel.note)));
    }
    out.push_str("</figure>");
    out
}

/// Appends to a page under construction.
pub(crate) fn write_html(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a String cannot fail");
}
