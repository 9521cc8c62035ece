//! The engine with its defaults and with the recommended settings, and which lines differ.

use crate::cell::{Experiment, Origin, Pattern};
use crate::report::format::{escape, tick};
use crate::report::plots::{Bars, Ink, Panel, Span, panel};
use crate::results::Results;

pub(super) fn panels(results: &Results) -> Vec<String> {
    let mut panels = vec![
        rates(
            results,
            Pattern::Update,
            "Small commits per second",
            "A row of 100 bytes changed and flushed, 4 threads",
        ),
        rates(
            results,
            Pattern::RangeQuery,
            "Cold queries per second",
            "One range query at a time over a fragmented tree",
        ),
    ];
    panels.push(measured(results));
    panels
}

fn rates(results: &Results, load: Pattern, title: &str, subtitle: &str) -> String {
    let rows = results
        .cells_of(Experiment::Settings)
        .filter(|c| c.spec.pattern == load)
        .filter_map(|c| {
            let origin = c.spec.engine?.settings?;
            let ink = Ink::series(usize::from(origin == Origin::Recommended));
            super::rate_bar(c, format!("{} settings", origin.word()), ink)
        })
        .collect();
    let words = Panel {
        title: title.into(),
        subtitle: format!("{subtitle}; whiskers: interval of the median"),
        legend: vec![],
        note: String::new(),
        span: Span::Half,
    };
    panel(&words, &Bars { rows, reference: None, tick })
}

/// The recommended settings that were measured.
fn measured(results: &Results) -> String {
    let Some(engine) = &results.engine else { return String::new() };
    if results.cells_of(Experiment::Settings).next().is_none() {
        return String::new();
    }
    format!(
        r#"<figure class="file"><figcaption><b>the recommended settings, as they were measured</b></figcaption>
<pre tabindex="0">{}</pre></figure>"#,
        escape(&engine.settings_line().replace("; ", "\n"))
    )
}
