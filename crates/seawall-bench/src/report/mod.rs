//! A result for people: a short table for the terminal, and one HTML page with plots that needs no network.
//!
//! 1. Both are functions of [`CellResult`] and measure nothing.
//! 2. Unknown figures are shown as unknown, or left out; text from a result enters the page only through
//!    `escape`.

mod plot;
mod text;

pub use text::{number, table};

use crate::results::CellResult;
use seawall_lab::report::{escape, frame};

/// The result as one HTML document in the look of the lab's report, with its rate over time and its latencies drawn.
#[must_use]
pub fn html(result: &CellResult) -> String {
    let title = format!("{} on {}", result.cell.workload, result.cell.store);
    let drawn =
        |plot: Option<String>| plot.unwrap_or_else(|| "<p>Nothing completed: there is nothing to draw.</p>".into());
    let rows = result
        .settings
        .iter()
        .map(|(name, value)| format!("<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value)));
    let body = format!(
        r#"<header><div class="brand">Seawall bench<button id="theme" type="button" hidden>Light / dark</button></div>
<h1>{}</h1></header><main><section><pre tabindex="0">{}</pre></section><section class="panels">{}{}</section>
<section><h2>Settings of the store</h2><div class="scroll"><table class="facts"><tbody>{}</tbody></table></div></section></main>"#,
        escape(&title),
        escape(&table(result)),
        drawn(plot::rate(result)),
        drawn(plot::percentiles(result)),
        rows.collect::<String>()
    );
    frame(&title, &body)
}
