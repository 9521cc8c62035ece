//! Tables: every cell, the cells left out, and the probe's findings.
//!
//! - The table of cells is complete: it contains everything that a plot or a verdict uses.
//! - Each finding of the probe says what it means for a database, and an unknown one says why it is unknown.

use super::format::{MISSING, bytes, count, duration, escape, percent};
use super::plots::write_html;
use super::sections::menu;
use crate::cell::Experiment;
use crate::results::{CellResult, Results};
use seawall_io::probe::{DirectIo, Finding, Probe, WriteCache};
use std::fmt::Display;

/// All measured cells, grouped by experiment; empty when there are none.
pub(crate) fn cells(results: &Results) -> String {
    let mut out = String::new();
    for experiment in Experiment::ALL {
        let rows: String = results.cells_of(experiment).map(row).collect();
        if !rows.is_empty() {
            let name = match experiment {
                Experiment::Baseline | Experiment::Settings => menu(experiment).to_owned(),
                _ => format!("{} · {}", experiment.short().to_uppercase(), menu(experiment)),
            };
            write_html(
                &mut out,
                format_args!(r#"<tbody><tr class="group"><th colspan="11">{}</th></tr>{rows}</tbody>"#, escape(&name)),
            );
        }
    }
    if out.is_empty() {
        return out;
    }
    let head = r#"<thead><tr><th rowspan="2">cell</th><th class="n" rowspan="2">per second</th>
<th class="n" rowspan="2">spread</th><th class="over" colspan="3">latency</th>
<th class="over" colspan="4">at the device, per operation</th><th class="n" rowspan="2">page cache</th></tr><tr>
<th class="n">p50</th><th class="n">p99</th><th class="n">max</th><th class="n">written</th>
<th class="n">writes</th><th class="n">reads</th><th class="n">flushes</th></tr></thead>"#;
    format!(r#"<div class="scroll"><table class="cells">{head}{out}</table></div>"#)
}

fn row(cell: &CellResult) -> String {
    let rate = cell.rate();
    let shown = |v: Option<String>| v.unwrap_or_else(|| MISSING.into());
    let quantile = |q| shown(cell.latency_ns(q).map(|ns| duration(ns as f64)));
    let device = cell.device_per_operation();
    let mut remarks = String::new();
    if cell.disturbed() {
        remarks.push_str(r#"<span class="mark warn">disturbed</span>"#);
    }
    match rate {
        Some(r) if r.samples < 3 => write_html(
            &mut remarks,
            format_args!(r#"<span class="mark">{} round{}</span>"#, r.samples, if r.samples == 1 { "" } else { "s" }),
        ),
        Some(r) if r.spread() > 0.15 => remarks.push_str(r#"<span class="mark">wide spread</span>"#),
        Some(_) => {}
        None => remarks.push_str(r#"<span class="mark warn">no rate</span>"#),
    }
    let title = cell.spec.title();
    let figures = [
        shown(rate.map(|r| count(r.median))),
        shown(rate.map(|r| format!("±{}", percent(r.spread())))),
        quantile(0.5),
        quantile(0.99),
        shown(cell.latency_ns_max().map(|ns| duration(ns as f64))),
        shown(device.map(|d| bytes(d.written_bytes))),
        shown(device.map(|d| count(d.writes))),
        shown(device.map(|d| count(d.reads))),
        shown(device.and_then(|d| d.flushes).map(count)),
        shown(cell.cached_bytes_max().map(|b| bytes(b as f64))),
    ];
    let figures: String = figures.iter().map(|f| format!(r#"<td class="n">{f}</td>"#)).collect();
    format!(r#"<tr><th>{} {remarks}<code>{}</code></th>{figures}</tr>"#, escape(&title), escape(&cell.id))
}

/// The cells that could not be measured; empty when there are none.
pub(crate) fn skipped(results: &Results) -> String {
    if results.skipped.is_empty() {
        return String::new();
    }
    let rows: String = results
        .skipped
        .iter()
        .map(|s| {
            format!(
                "<tr><th>{}<code>{}</code></th><td>{}</td></tr>",
                escape(&s.title),
                escape(&s.id),
                escape(&s.reason)
            )
        })
        .collect();
    format!(
        r#"<h3>Not measured here</h3><div class="scroll"><table class="facts"><thead><tr><th>cell</th><th>why</th>
</tr></thead><tbody>{rows}</tbody></table></div>"#
    )
}

/// The probe's findings, and the meaning of each.
pub(crate) fn probe(probe: &Probe) -> String {
    let mut rows = String::new();
    let mut row = |name: &str, value: &str, meaning: &str| {
        write_html(
            &mut rows,
            format_args!("<tr><th>{name}</th><td>{}</td><td>{}</td></tr>", escape(value), escape(meaning)),
        );
    };
    match &probe.file_system {
        Finding::Known(fs) => {
            row(
                "file system",
                &format!("{} on {}", fs.kind, fs.mount_point.display()),
                &format!("mounted {}", fs.options),
            );
            row(
                "overwrites in place",
                &known(&fs.copy_on_write, |v| yes(!v)),
                match fs.copy_on_write.known() {
                    Some(true) => "copy-on-write: preallocation promises nothing",
                    Some(false) => "preallocated blocks stay where they are",
                    None => "treated as copy-on-write",
                },
            );
            row("journal", &known(&fs.journal, |v| yes(*v)), "a sync of a file that grew may have to commit it");
        }
        Finding::Unknown(why) => row("file system", &format!("unknown ({why})"), "nothing is assumed about it"),
    }
    match &probe.device {
        Finding::Known(d) => {
            let below = if d.below.is_empty() { String::new() } else { format!(", on {}", d.below.join(", ")) };
            row("device", &format!("{}{below}", d.volume), &format!("model: {}", d.model));
            row("spinning", &known(&d.rotational, |v| yes(*v)), "as the kernel was told");
            row(
                "write cache",
                &d.write_cache.to_string(),
                match d.write_cache.known() {
                    Some(WriteCache::Back) => {
                        "a completed write may be in volatile memory: only a flush makes it durable"
                    }
                    Some(WriteCache::Through) => "the drive says completed means stable; the kernel sends no flushes",
                    None => "treated as volatile",
                },
            );
            row(
                "FUA writes",
                &known(&d.fua, |v| yes(*v)),
                match d.fua.known() {
                    Some(true) => "one durable write need not flush the whole cache",
                    Some(false) => "each durable write is a write and a flush",
                    None => "not relied on",
                },
            );
            let logical = known(&d.logical_block_bytes, ToString::to_string);
            let physical = known(&d.physical_block_bytes, ToString::to_string);
            row(
                "block bytes",
                &format!("{logical} logical, {physical} physical"),
                "smaller writes than the physical block may be read-modify-write",
            );
            row("scheduler", &d.scheduler.to_string(), "none or mq-deadline suit a database on solid-state drives");
        }
        Finding::Unknown(why) => row("device", &format!("unknown ({why})"), "its writes and flushes cannot be counted"),
    }
    row(
        "direct I/O",
        &probe.direct_io.to_string(),
        match probe.direct_io.known() {
            Some(DirectIo::Yes) => "bypasses the page cache",
            Some(DirectIo::SilentlyBuffered) => "the flag is taken, but data still passes through the page cache",
            Some(DirectIo::Refused) => "buffered I/O is used instead",
            None => "not relied on",
        },
    );
    let align =
        known(&probe.direct_align, |a| format!("{} B in the file, {} B in memory", a.offset_bytes, a.memory_bytes));
    let tried = known(&probe.direct_align_tried_bytes, |b| format!("{b} B accepted by trial"));
    row("alignment", &align, &tried);
    row(
        "untorn writes",
        &known(&probe.atomic_writes, |a| format!("{} to {} B", a.unit_bytes_min, a.unit_bytes_max)),
        match probe.atomic_writes.known() {
            Some(_) => "a page of this size need not be written twice",
            None => "pages need protection from being torn (doublewrite)",
        },
    );
    let flags = [
        ("RWF_DSYNC", &probe.rwf_dsync, "a write that is durable when it returns"),
        ("RWF_DONTCACHE", &probe.rwf_dontcache, "buffered writes that leave no pages behind (Linux 6.14)"),
        ("fallocate", &probe.fallocate, "space reserved ahead; its extents stay unwritten"),
        ("WRITE_ZEROES", &probe.write_zeroes, "written extents without writing them (Linux 6.17)"),
        ("cachestat", &probe.cachestat, "what is cached can be asked exactly (Linux 6.5)"),
    ];
    for (name, finding, meaning) in flags {
        row(name, &known(finding, |v| yes(*v)), meaning);
    }
    row("io_uring", &known(&probe.io_uring, |v| yes(*v)), &probe.io_uring_reason);
    let memlock = probe.memlock_bytes.map_or("unlimited".into(), |b| bytes(b as f64));
    row("locked memory", &memlock, "limits registered buffers");
    row("free space", &bytes(probe.free_bytes as f64), "for an unprivileged process");
    format!(
        r#"<div class="scroll"><table class="facts"><thead><tr><th>asked</th><th>found</th><th>what it means</th>
</tr></thead><tbody>{rows}</tbody></table></div>"#
    )
}

fn known<T>(finding: &Finding<T>, show: impl FnOnce(&T) -> String) -> String {
    match finding {
        Finding::Known(value) => show(value),
        Finding::Unknown(why) => unknown(why),
    }
}

fn unknown(why: &dyn Display) -> String {
    format!("unknown ({why})")
}

fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.into()
}
