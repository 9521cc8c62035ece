//! A result for people: a short table for the terminal, and one HTML page with plots that needs no network.
//!
//! 1. Both are functions of [`CellResult`] and measure nothing.
//! 2. Unknown figures are shown as unknown, or left out; text from a result enters the page only through
//!    `escape`.

mod plot;
mod text;

pub use text::{FOREIGN_CORES, table};

use crate::results::CellResult;

/// Text made safe for an element's content.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The result as one HTML document, with its rate over time and its latencies drawn.
#[must_use]
pub fn html(result: &CellResult) -> String {
    let title = escape(&format!("{} on {}", result.workload, result.store));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>\
         body{{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}}\
         pre{{background:#f4f6f8;padding:1rem;overflow-x:auto}}svg{{max-width:100%;height:auto}}\
         td,th{{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}}</style></head><body><h1>{title}</h1><pre>{}</pre>",
        escape(&table(result))
    );
    for (heading, plot) in
        [("Rate over time", plot::rate(result)), ("Latency by percentile", plot::percentiles(result))]
    {
        page.push_str(&format!("<h2>{heading}</h2>"));
        page.push_str(&plot.unwrap_or_else(|| "<p>Nothing completed: there is nothing to draw.</p>".into()));
    }
    page.push_str("<h2>Settings of the store</h2><table>");
    for (name, value) in &result.settings {
        page.push_str(&format!("<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value)));
    }
    page.push_str("</table></body></html>\n");
    page
}
