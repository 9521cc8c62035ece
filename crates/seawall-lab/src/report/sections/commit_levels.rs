//! E5: transactions per second by load, flush method and level of durability, and the possible loss at each
//! level.
//!
//! - Colours are levels; the possible loss at a level is shown beside its gain.
//! - The published percentages are those of level 2 over level 1; level 0 has none, and the table says so.

use crate::cell::{Experiment, FlushMethod, Level, Pattern};
use crate::plan::{COMMIT_LOADS, commit_levels};
use crate::published::level_gain;
use crate::report::format::{MISSING, escape, percent, tick};
use crate::report::plots::{Bars, Ink, Mark, Panel, Span, panel, write_html};
use crate::results::Results;
use crate::verdict::{load_name, noise};

pub(super) fn panels(results: &Results) -> Vec<String> {
    let mut panels: Vec<String> = COMMIT_LOADS.iter().map(|load| rates(results, *load)).collect();
    panels.push(gains(results));
    panels
}

fn title(load: Pattern) -> &'static str {
    match load {
        Pattern::ReadOnly => "Read-only: one row by its key (sysbench simple)",
        Pattern::Transactional => "Transactional: reads and writes (sysbench complex)",
        _ => "TPC-C (DBT-2)",
    }
}

fn ink(level: Level) -> Ink {
    Ink::series(Level::ALL.iter().position(|l| *l == level).unwrap_or_default())
}

fn rates(results: &Results, load: Pattern) -> String {
    let mut rows = Vec::new();
    for cell in results.cells_of(Experiment::CommitLevels).filter(|c| c.spec.pattern == load) {
        let Some((method, level)) = cell.spec.engine.and_then(|e| e.method.zip(e.level)) else { continue };
        rows.extend(super::rate_bar(cell, format!("{}, level {}", method.word(), level.number()), ink(level)));
    }
    let note = match load {
        Pattern::ReadOnly => {
            "Nothing is committed here: levels and O_DSYNC cannot matter, and how far these bars differ is the noise of all three plots."
        }
        _ => "",
    };
    let words = Panel {
        title: title(load).into(),
        subtitle: format!(
            "Transactions per second, {} threads; whiskers: interval of the median",
            crate::plan::COMMIT_THREADS
        ),
        legend: Level::ALL.iter().map(|l| (Mark::Block, ink(*l), l.name().to_owned())).collect(),
        note: note.into(),
        span: if load == Pattern::ReadOnly { Span::Full } else { Span::Half },
    };
    panel(&words, &Bars { rows, reference: None, tick })
}

/// The gains of levels 2 and 0 over 1 under each load, beside the published gain and the possible loss.
fn gains(results: &Results) -> String {
    let gain = |load: Pattern, method: FlushMethod, level: Level| {
        let ratio = results
            .compare(&commit_levels(load, method, level), &commit_levels(load, method, Level::Flushed))
            .ratio()
            .filter(|r| r.median.is_finite())?;
        let sign = |share: f64| format!("{}{}", if share < 0.0 { "\u{2212}" } else { "+" }, percent(share.abs()));
        Some(format!("{} ({} to {})", sign(ratio.median - 1.0), sign(ratio.low - 1.0), sign(ratio.high - 1.0)))
    };
    let mut rows = String::new();
    for load in COMMIT_LOADS {
        for method in [FlushMethod::Fsync, FlushMethod::ODsync, FlushMethod::ODirect, FlushMethod::ODirectDsync] {
            let [written, deferred] = [Level::Written, Level::Deferred].map(|level| gain(load, method, level));
            if written.is_none() && deferred.is_none() {
                continue;
            }
            write_html(
                &mut rows,
                format_args!(
                    r#"<tr><th>{}, {}</th><td class="n">{}</td><td class="n">{}</td><td class="n">{}</td><td>not measured</td></tr>"#,
                    load_name(load),
                    method.word(),
                    escape(written.as_deref().unwrap_or(MISSING)),
                    level_gain(load, Level::Written).unwrap_or(MISSING),
                    escape(deferred.as_deref().unwrap_or(MISSING)),
                ),
            );
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut lost = String::new();
    for level in Level::ALL {
        write_html(&mut lost, format_args!("<li><b>{}</b> may lose {}.</li>", level.name(), level.loss()));
    }
    let noise = noise(results).filter(|n| n.is_finite()).map_or_else(String::new, |noise| {
        format!(
            "Read-only cells that cannot differ are {} apart in the median: take smaller differences for none. ",
            percent(noise)
        )
    });
    format!(
        r#"<figure class="panel full"><figcaption><h3>What a level gains over level 1, and what it may lose</h3>
<p class="sub">Round by round against level 1 with the same flush method; in brackets the interval of the median</p>
</figcaption><div class="scroll"><table class="facts"><thead><tr><th>load, flush method</th><th class="n">level 2</th>
<th class="n">published</th><th class="n">level 0</th><th>published</th></tr></thead><tbody>{rows}</tbody></table></div>
<ul>{lost}</ul><p class="note">{noise}The bounds are tested: see docs/recovery.md.</p></figure>"#
    )
}
