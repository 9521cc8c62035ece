//! The statistics as Prometheus text (exposition format 0.0.4).
//!
//! 1. Every family has HELP and TYPE before its samples, and its samples are contiguous.
//! 2. Base units: seconds and bytes. Counters end in `_total`.
//! 3. A latency is counted in the first bucket that certainly includes it: the histogram's own buckets are
//!    1.6% wide, so `le` overestimates by at most that; `_sum` is an estimate with the same error.

use seawall::metrics::Meaning;
use seawall::{Published, Stats};
use seawall_io::{CellSnapshot, EffectiveMode};
use std::fmt::Write;

/// Upper bounds of the latency buckets, ns: 1, 2, 5 per decade.
const BOUNDS_NS: [u64; 19] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Formats the statistics as Prometheus text.
///
/// ```
/// use seawall::Stats;
/// use seawall_tools::prometheus;
/// let mut stats = Stats::default();
/// stats.log.commits = 7;
/// let text = prometheus::text(&stats);
/// assert!(text.contains("# TYPE seawall_log_commits_total counter\nseawall_log_commits_total 7\n"));
/// ```
#[must_use]
pub fn text(stats: &Stats) -> String {
    let mut out = Text(String::with_capacity(16 << 10));
    out.family("seawall_elapsed_seconds", "gauge", "Time since the database was opened.");
    out.sample("seawall_elapsed_seconds", &[], seconds(stats.elapsed_ns));
    for metric in stats.metrics() {
        let (stem, value) = match metric.name.strip_suffix("_ns") {
            Some(stem) => (format!("{stem}_seconds"), seconds(metric.value)),
            None => (metric.name.to_owned(), metric.value.to_string()),
        };
        let (kind, suffix) = match metric.meaning {
            Meaning::Counter => ("counter", "_total"),
            Meaning::Gauge => ("gauge", ""),
        };
        let name = format!("seawall_{}_{stem}{suffix}", metric.group);
        // The field's unit is ns, the sample's is seconds.
        out.family(&name, kind, &metric.help.replace(", ns", ", seconds"));
        out.sample(&name, &[], value);
    }
    io(&mut out, &stats.io.cells);
    files(&mut out, stats);
    out.0
}

/// Formats published statistics as Prometheus text, with whether a process has the database open (`up`) and the time
/// of the publication: the numbers themselves do not show that they are old.
#[must_use]
pub fn published(published: &Published, up: bool) -> String {
    let mut out = Text(text(&published.stats));
    out.family("seawall_up", "gauge", "Whether a process has the database open.");
    out.sample("seawall_up", &[], u8::from(up));
    out.family("seawall_published_timestamp_seconds", "gauge", "When these numbers were published, since 1970.");
    let at = seconds(published.at_unix_ms.saturating_mul(1_000_000));
    out.sample("seawall_published_timestamp_seconds", &[], at);
    out.0
}

fn io(out: &mut Text, cells: &[CellSnapshot]) {
    const LATENCY: &str = "seawall_io_latency_seconds";
    out.family(
        LATENCY,
        "histogram",
        "Latency of successful I/O by file class, operation and cause; the sum is estimated.",
    );
    for cell in cells {
        let labels = labels(cell);
        let mut below = [0u64; BOUNDS_NS.len()];
        let (mut count, mut sum_ns) = (0u64, 0f64);
        for bucket in &cell.latency {
            count += bucket.count();
            let middle = (bucket.start() as f64 + bucket.end() as f64) / 2.0;
            sum_ns += middle * bucket.count() as f64;
            let at = BOUNDS_NS.partition_point(|bound| *bound < bucket.end());
            if let Some(below) = below.get_mut(at) {
                *below += bucket.count();
            }
        }
        let mut cumulative = 0;
        for (bound, below) in BOUNDS_NS.iter().zip(below) {
            cumulative += below;
            out.bucket(LATENCY, &labels, &seconds(*bound), cumulative);
        }
        out.bucket(LATENCY, &labels, "+Inf", count);
        out.sample(&format!("{LATENCY}_sum"), &labels, sum_ns / 1e9);
        out.sample(&format!("{LATENCY}_count"), &labels, count);
    }
    out.family("seawall_io_bytes_total", "counter", "Bytes moved by file class, operation and cause.");
    for cell in cells {
        out.sample("seawall_io_bytes_total", &labels(cell), cell.bytes);
    }
    out.family("seawall_io_errors_total", "counter", "Failed I/O by file class, operation and cause.");
    for cell in cells {
        out.sample("seawall_io_errors_total", &labels(cell), cell.errors);
    }
}

fn files(out: &mut Text, stats: &Stats) {
    out.family("seawall_file_mode", "gauge", "How each class of files is open: 1 for the mode in effect.");
    for file in &stats.files {
        let EffectiveMode { requested, direct, degraded, .. } = &file.mode;
        let access = if *direct { "direct" } else { "buffered" };
        let reason = degraded.as_deref().unwrap_or_default();
        let labels =
            [("class", file.class.name()), ("requested", requested.name()), ("access", access), ("degraded", reason)];
        out.sample("seawall_file_mode", &labels, 1);
    }
    out.family("seawall_page_cache_bytes", "gauge", "Bytes of the files in the kernel's page cache.");
    for file in &stats.files {
        if let Some(bytes) = file.page_cache_bytes {
            out.sample("seawall_page_cache_bytes", &[("class", file.class.name())], bytes);
        }
    }
    out.family("seawall_backend", "gauge", "How requests reach the kernel: 1 for the backend in use.");
    if !stats.backend.is_empty() {
        out.sample("seawall_backend", &[("backend", stats.backend.as_str())], 1);
    }
}

fn labels(cell: &CellSnapshot) -> [(&'static str, &'static str); 3] {
    [("class", cell.class.name()), ("op", cell.op.name()), ("cause", cell.cause.name())]
}

/// Formats ns as seconds, exactly: a division in binary floating point would print 0.30000000000000004.
fn seconds(ns: u64) -> String {
    let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:09}").trim_end_matches('0').to_owned()
}

struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.write_fmt(line).expect("writing to a String cannot fail");
        self.0.push('\n');
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n")));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        if labels.is_empty() {
            return self.line(format_args!("{name} {value}"));
        }
        self.line(format_args!("{name}{{{}}} {value}", label_list(labels)));
    }

    fn bucket(&mut self, name: &str, labels: &[(&str, &str)], le: &str, count: u64) {
        self.line(format_args!("{name}_bucket{{{},le=\"{le}\"}} {count}", label_list(labels)));
    }
}

fn label_list(labels: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
