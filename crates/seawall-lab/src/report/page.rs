//! The page's frame: the most important parts come first.
//!
//! - Order: the measured machine, whether the run is complete, key figures, the verdicts (warnings first),
//!   evidence, settings, tables, sources.
//! - A level is shown by word, mark and colour, never by colour alone.

use super::format::{count, duration, escape, moment, percent, size, times};
use super::plots::write_html;
use super::sections::{self, Section, menu};
use super::table;
use crate::cell::{Access, Preparation, Sync};
use crate::plan;
use crate::published::SOURCES;
use crate::results::Results;
use crate::verdict::{Level, Verdict};
use seawall_io::probe::Finding;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The page; `files` are settings to offer, as (name, text).
pub(super) fn page(results: &Results, said: &[Verdict], files: &[(String, String)]) -> String {
    let sections = sections::all(results);
    let host = escape(&results.machine.host);
    let mut out = format!(
        r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Seawall lab: {host}</title><style>{STYLE}</style></head><body>"#
    );
    out.push_str(&header(results));
    out.push_str("<main>");
    out.push_str(&nav(&sections, results, files));
    out.push_str(&banners(results));
    out.push_str(&key_figures(results));
    out.push_str(&verdicts(said, &sections));
    for section in &sections {
        out.push_str(&section.html);
    }
    out.push_str(&settings(files));
    write_html(
        &mut out,
        format_args!(
            r#"<section id="probe"><h2>What the disk and the file system say of themselves</h2>
<p class="question">Found by asking the kernel and by trial on <code>{}</code>.</p>{}</section>"#,
            escape(&results.probe.path.display().to_string()),
            table::probe(&results.probe)
        ),
    );
    let cells = table::cells(results);
    if !cells.is_empty() {
        write_html(
            &mut out,
            format_args!(
                r#"<section id="cells"><h2>Every cell</h2><p class="question">Per second: reads, writes, commits or
flushes, median over the rounds. Spread: half the interval that holds the true median, relative to it. Percentiles:
over all operations.</p>{cells}</section>"#
            ),
        );
    }
    let skipped = table::skipped(results);
    if !skipped.is_empty() {
        write_html(&mut out, format_args!(r#"<section id="skipped">{skipped}</section>"#));
    }
    out.push_str(&sources(results));
    write_html(
        &mut out,
        format_args!(
            "</main><footer>Measured and written by <code>seawall lab</code> {}. This page needs no \
             network.</footer><script>{SCRIPT}</script></body></html>\n",
            escape(&results.seawall_version)
        ),
    );
    out
}

fn header(results: &Results) -> String {
    let m = &results.machine;
    let (device, file_system) = (&results.probe.device, &results.probe.file_system);
    let device = match device {
        Finding::Known(d) => match d.model.known() {
            Some(model) => format!("{model} ({})", d.volume),
            None => d.volume.clone(),
        },
        Finding::Unknown(why) => format!("unknown: {why}"),
    };
    let file_system = match file_system {
        Finding::Known(f) => format!("{} on {}", f.kind, f.mount_point.display()),
        Finding::Unknown(why) => format!("unknown: {why}"),
    };
    let facts = [
        ("Machine", format!("{}, {} CPUs, {}", m.cpu_model, m.cpus, size(m.memory_bytes as f64))),
        ("Device", device),
        ("File system", file_system),
        ("Kernel", m.kernel.clone()),
        (
            "Run",
            format!(
                "{}, {} file, {}",
                if results.run.full { "full plan" } else { "default plan" },
                size(results.run.file_bytes as f64),
                results.run.io_backend
            ),
        ),
        ("Started", moment(&results.started)),
    ];
    let facts: String =
        facts.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(value))).collect();
    format!(
        r#"<header class="top"><div class="inner"><div class="brand">
<svg width="30" height="22" viewBox="0 0 30 22" aria-hidden="true">
<path d="M1 6c4.7 0 4.7 4 9.3 4S15 6 19.7 6 24.3 10 29 10M1 13c4.7 0 4.7 4 9.3 4s4.7-4 9.4-4 4.6 4 9.3 4"
fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round"/>
</svg>Seawall lab<button id="theme" type="button" hidden>Light / dark</button></div><h1>{}</h1><p class="path">
<code>{}</code></p><dl class="machine">{facts}</dl></div></header>"#,
        escape(&m.host),
        escape(&results.probe.path.display().to_string()),
    )
}

fn nav(sections: &[Section], results: &Results, files: &[(String, String)]) -> String {
    let mut out = String::from(r##"<nav aria-label="Sections"><a href="#verdicts">Verdicts</a>"##);
    for s in sections {
        write_html(&mut out, format_args!(r##"<a href="#{}">{}</a>"##, s.id, escape(s.menu)));
    }
    if !files.is_empty() {
        out.push_str(r##"<a href="#settings">Settings</a>"##);
    }
    out.push_str(r##"<a href="#probe">Disk</a>"##);
    if results.cells.iter().any(|c| !c.rounds.is_empty()) {
        out.push_str(r##"<a href="#cells">All cells</a>"##);
    }
    out.push_str(r##"<a href="#sources">Sources</a></nav>"##);
    out
}

fn banners(results: &Results) -> String {
    let mut out = String::new();
    let measured = results.cells.iter().filter(|c| !c.rounds.is_empty()).count();
    if !results.complete {
        let cells = if measured == 1 { "cell" } else { "cells" };
        write_html(
            &mut out,
            format_args!(
                r#"<p class="banner warn"><b>Incomplete run.</b> It was interrupted with {measured} {cells}
measured; what is here is valid, what is missing was not measured.</p>"#
            ),
        );
    } else if measured == 0 && results.sustain.is_none() {
        out.push_str(r#"<p class="banner warn"><b>Nothing was measured.</b> No cell of this run has a round.</p>"#);
    }
    let disturbed = results.cells.iter().filter(|c| c.disturbed()).count();
    if disturbed > 0 {
        let (cells, are) = if disturbed == 1 { ("cell", "was") } else { ("cells", "were") };
        write_html(
            &mut out,
            format_args!(
                r#"<p class="banner"><b>{disturbed} {cells} {are} disturbed</b> by other work on this machine even
after a repetition; <a href="{}">the table</a> marks them.</p>"#,
                "#cells"
            ),
        );
    }
    if let Some(rate) = results.run.rate {
        write_html(
            &mut out,
            format_args!(
                r#"<p class="banner"><b>Rate-limited</b> to {} operations per second: rates here are not what the
disk can do.</p>"#,
                count(rate)
            ),
        );
    }
    out
}

fn level_words(level: Level) -> (&'static str, &'static str, &'static str) {
    match level {
        Level::Warning => ("warning", "!", "Act on this"),
        Level::Note => ("info", "i", "Worth knowing"),
        Level::CannotTell => ("unsure", "≈", "Cannot tell"),
        Level::NotTested => ("untested", "?", "Not tested"),
        Level::Good => ("good", "✓", "Good"),
    }
}

fn card(level: Level, sentence: &str, reason: &str, evidence: Option<(&str, &str)>) -> String {
    let (class, mark, word) = level_words(level);
    let link = evidence.map_or(String::new(), |(id, name)| format!(r##"<a href="#{id}">{}</a>"##, escape(name)));
    let reason = if reason.is_empty() { String::new() } else { format!("<p>{}</p>", escape(reason)) };
    format!(
        r#"<li class="card {class}"><div class="level"><span class="icon"
aria-hidden="true">{mark}</span>{word}{link}</div><h3>{}</h3>{reason}</li>"#,
        escape(sentence)
    )
}

fn verdicts(said: &[Verdict], sections: &[Section]) -> String {
    // Good news last: it needs no action.
    let order = |level| match level {
        Level::Warning => 0,
        Level::Note => 1,
        Level::CannotTell => 2,
        Level::NotTested => 3,
        Level::Good => 4,
    };
    let mut sorted: Vec<&Verdict> = said.iter().collect();
    sorted.sort_by_key(|v| (order(v.level), v.experiment));
    let cards: String = sorted
        .into_iter()
        .map(|v| {
            let evidence =
                v.experiment.and_then(|e| sections.iter().any(|s| s.id == e.short()).then_some((e.short(), menu(e))));
            card(v.level, &capitalised(&v.sentence), &v.reason, evidence)
        })
        .collect();
    format!(r#"<section id="verdicts"><h2>Verdicts</h2><ul class="cards">{cards}</ul></section>"#)
}

/// Capitalises a verdict, which begins with a small letter in a terminal's list, for a card's heading.
fn capitalised(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Four figures that answer most questions; each only if it was measured.
fn key_figures(results: &Results) -> String {
    let mut tiles: Vec<(String, &str, String)> = Vec::new();
    let durable = plan::direct_sync(1, 4096, Sync::Fdatasync);
    if let Some(cell) = results.cell(&durable) {
        if let Some(r) = cell.rate() {
            let p99 = cell.latency_ns(0.99).map_or(String::new(), |ns| format!(", 99% within {}", duration(ns as f64)));
            tiles.push((count(r.median), "durable writes/s", format!("4 KiB + fdatasync, one thread{p99}")));
        }
    }
    let free = plan::direct_sync(1, 4096, Sync::None);
    if let Some(r) = results.compare(&durable, &free).ratio() {
        tiles.push((
            percent(r.median),
            "of the rate left by a flush",
            "4 KiB direct writes, fdatasync after each".into(),
        ));
    }
    let written = plan::extend(Preparation::Written, Access::Buffered, Sync::Fdatasync);
    let append = plan::extend(Preparation::Append, Access::Buffered, Sync::Fdatasync);
    if let Some(r) = results.compare(&written, &append).ratio() {
        tiles.push((times(r.median), "overwrite over append", "8 KiB + fdatasync; published 4.0× in 2009".into()));
    }
    let read = plan::random_read(32);
    if let Some(r) = results.cell(&read).and_then(crate::results::CellResult::rate) {
        tiles.push((count(r.median), "random reads/s", "16 KiB direct, 32 in flight".into()));
    }
    if tiles.is_empty() {
        return String::new();
    }
    let tiles: String = tiles
        .iter()
        .map(|(figure, unit, how)| format!("<li><b>{figure}</b><span>{unit}</span><small>{}</small></li>", escape(how)))
        .collect();
    format!(r#"<ul class="tiles" aria-label="Key figures">{tiles}</ul>"#)
}

fn settings(files: &[(String, String)]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        r#"<section id="settings"><h2>Settings</h2><p class="question">What follows from the measurements, ready to
copy; each line names the measurement behind it.</p>"#,
    );
    for (name, text) in files {
        write_html(
            &mut out,
            format_args!(
                r#"<figure class="file"><figcaption><b>{}</b><button type="button" class="copy"
hidden>Copy</button></figcaption><pre tabindex="0">{}</pre></figure>"#,
                escape(name),
                escape(text)
            ),
        );
    }
    out.push_str("</section>");
    out
}

fn sources(results: &Results) -> String {
    let mut list = String::new();
    for s in &SOURCES {
        write_html(
            &mut list,
            format_args!(
                "<li><b>{}</b> {}.<br>{}.<br><i>Read with care:</i> {}</li>",
                escape(&s.experiment.short().to_uppercase()),
                escape(s.citation),
                escape(s.setup),
                escape(s.caveat)
            ),
        );
    }
    format!(
        r#"<section id="sources"><h2>Sources and how to reproduce this</h2><ul class="sources">{list}</ul>
<p>Figures marked as published are the publications' own. Their hardware is ten to twenty years older: compare
shapes and ratios, not rates.</p><pre tabindex="0">{}

# seawall {}, seed {}, results format {}, started {}</pre></section>"#,
        escape(&results.run.command),
        escape(&results.seawall_version),
        results.run.seed,
        results.format,
        escape(&results.started)
    )
}
