//! E2: commits per second by log write path, and each path's cost in memory and at the device.

use super::{doubling, log2, point, rate_bar};
use crate::cell::{Access, CellSpec, Experiment};
use crate::plan;
use crate::report::format::{MISSING, bytes, count, escape, tick};
use crate::report::plots::{Bars, Curve, Curves, Ink, Mark, Panel, Point, Span, YScale, panel, write_html};
use crate::results::{CellResult, Results};

pub(super) fn panels(results: &Results) -> Vec<String> {
    let cells: Vec<&CellResult> = results.cells_of(Experiment::LogMemory).collect();
    vec![rates(&cells), relative(results, &cells), costs(&cells)]
}

fn mode(spec: &CellSpec) -> String {
    let path = match spec.access {
        Access::Buffered => "buffered",
        Access::Uncached => "buffered, cache dropped",
        Access::DontCache => "RWF_DONTCACHE",
        Access::Direct => "direct",
    };
    let merged = if spec.log.is_some_and(|l| l.merged) { "one write per group" } else { "a write per record" };
    format!("{path}, {}, {merged}", bytes_short(spec.block_bytes))
}

fn bytes_short(block: u32) -> String {
    if block % 1024 == 0 { format!("{} KiB", block / 1024) } else { format!("{block} B") }
}

/// The log modes in the order of the plan.
fn modes(cells: &[&CellResult]) -> Vec<String> {
    let mut modes: Vec<String> = Vec::new();
    for c in cells {
        let mode = mode(&c.spec);
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

fn rates(cells: &[&CellResult]) -> String {
    let modes = modes(cells);
    let threads = doubling(cells.iter().map(|c| c.spec.threads));
    let mut words = Panel {
        title: "Commits per second by log write path".into(),
        subtitle: "Each group of commits made durable by one fdatasync; whiskers: interval of the median".into(),
        legend: vec![],
        note: "Published as relations: a direct log about 10% faster with one thread; 10-20% slower with many \
               threads and group commit, because the writes of a group were not merged."
            .into(),
        span: Span::Full,
    };
    if threads.len() < 3 {
        let one = threads.len() == 1;
        let rows = cells
            .iter()
            .filter_map(|c| {
                let ink = Ink::series(modes.iter().position(|m| *m == mode(&c.spec)).unwrap_or_default());
                let name = mode(&c.spec);
                rate_bar(c, if one { name } else { format!("{name}, {} threads", c.spec.threads) }, ink)
            })
            .collect();
        if let (true, Some((_, threads))) = (one, threads.first()) {
            words.subtitle = format!("{threads} committing threads. {}", words.subtitle);
        }
        return panel(&words, &Bars { rows, reference: None, tick });
    }
    words.span = Span::Half;
    let mut curves = Vec::new();
    for (i, name) in modes.iter().enumerate() {
        let mark = Mark::nth(i);
        words.legend.push((mark, Ink::series(i), name.clone()));
        let points = cells
            .iter()
            .filter(|c| mode(&c.spec) == *name)
            .filter_map(|c| point(c, log2(c.spec.threads), 1.0))
            .collect();
        curves.push(Curve { ink: Ink::series(i), mark, points, joined: true });
    }
    panel(
        &words,
        &Curves {
            curves,
            x_ticks: threads,
            x_title: "committing threads".into(),
            y_scale: YScale::Fitting,
            y_tick: tick,
        },
    )
}

/// Each mode as a share of the buffered, merged one: the publication's own comparison.
fn relative(results: &Results, cells: &[&CellResult]) -> String {
    let threads = doubling(cells.iter().map(|c| c.spec.threads));
    if threads.len() < 3 {
        return String::new();
    }
    let base = |spec: &CellSpec| plan::log(spec.threads, Access::Buffered, 512, true);
    let mut legend = Vec::new();
    let mut curves = Vec::new();
    for (i, name) in modes(cells).iter().enumerate() {
        let of_mode = cells.iter().filter(|c| mode(&c.spec) == *name && c.spec != base(&c.spec));
        let points: Vec<Point> = of_mode
            .filter_map(|c| Some((log2(c.spec.threads), results.compare(&c.spec, &base(&c.spec)).ratio()?)))
            .map(|(x, r)| Point { x, y: r.median * 100.0, low: r.low * 100.0, high: r.high * 100.0 })
            .collect();
        if !points.is_empty() {
            legend.push((Mark::nth(i), Ink::series(i), name.clone()));
            curves.push(Curve { ink: Ink::series(i), mark: Mark::nth(i), points, joined: true });
        }
    }
    let words = Panel {
        title: "The same, relative to buffered and merged".into(),
        subtitle: "Buffered log, 512 B blocks, one write per group = 100% at each number of threads".into(),
        legend,
        note: String::new(),
        span: Span::Half,
    };
    let y_tick = |v| format!("{}%", tick(v));
    let y_scale = YScale::Linear;
    panel(&words, &Curves { curves, x_ticks: threads, x_title: "committing threads".into(), y_scale, y_tick })
}

/// A column of the table of costs: its name, a value per log mode, and its format.
type Column = (&'static str, Vec<Option<f64>>, fn(f64) -> String);

/// Memory and device work per commit, at the largest number of threads measured in each mode.
fn costs(cells: &[&CellResult]) -> String {
    let rows: Vec<&CellResult> = modes(cells)
        .iter()
        .filter_map(|m| cells.iter().filter(|c| mode(&c.spec) == *m).max_by_key(|c| c.spec.threads).copied())
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let device = |c: &CellResult, f: fn(crate::results::DevicePerOperation) -> f64| c.device_per_operation().map(f);
    let columns: [Column; 5] = [
        ("page cache held", rows.iter().map(|c| c.cached_bytes_max().map(|b| b as f64)).collect(), bytes),
        ("written per commit", rows.iter().map(|c| device(c, |d| d.written_bytes)).collect(), bytes),
        ("device writes per commit", rows.iter().map(|c| device(c, |d| d.writes)).collect(), count),
        ("device reads per commit", rows.iter().map(|c| device(c, |d| d.reads)).collect(), count),
        ("flushes per commit", rows.iter().map(|c| c.device_per_operation().and_then(|d| d.flushes)).collect(), count),
    ];
    let mut out = String::from(
        r#"<figure class="panel full"><figcaption><h3>What a commit costs in memory and at the device</h3>
<p class="sub">At the largest number of threads measured; the bar in a cell compares within its column</p>
</figcaption><div class="scroll"><table class="meters"><thead><tr><th>log write path</th><th class="n">threads</th>"#,
    );
    for (name, ..) in &columns {
        write_html(&mut out, format_args!(r#"<th class="n">{name}</th>"#));
    }
    out.push_str("</tr></thead><tbody>");
    for (i, c) in rows.iter().enumerate() {
        let name = escape(&mode(&c.spec));
        write_html(&mut out, format_args!(r#"<tr><th>{name}</th><td class="n">{}</td>"#, c.spec.threads));
        for (_, values, show) in &columns {
            let most = values.iter().flatten().copied().fold(0.0, f64::max);
            match values[i].filter(|v| v.is_finite()) {
                Some(v) => {
                    let share = if most > 0.0 { (v / most * 100.0).clamp(0.0, 100.0) } else { 0.0 };
                    write_html(
                        &mut out,
                        format_args!(
                            r#"<td class="n meter" style="--share:{share:.1}%"><span>{}</span></td>"#,
                            show(v)
                        ),
                    );
                }
                None => write_html(&mut out, format_args!(r#"<td class="n">{MISSING}</td>"#)),
            }
        }
        out.push_str("</tr>");
    }
    out.push_str(
        r#"</tbody></table></div><p class="note">A device read per commit is a partial block read back before it
could be written. Memory that the log holds is memory the buffer pool cannot have.</p></figure>"#,
    );
    out
}
