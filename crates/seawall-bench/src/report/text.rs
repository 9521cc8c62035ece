//! The table for the terminal.

use crate::observe::{FOREIGN_CORES, Usage};
use crate::results::{CellResult, Load};
use crate::tpcc;
use seawall_lab::report::count;
use seawall_lab::results::Machine;

/// Lines of a label and a value.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, label: &str, value: impl std::fmt::Display) {
        self.0 += &format!("{label:<42} {value}\n");
    }

    /// A line that only some results have.
    fn line_if(&mut self, shown: bool, label: &str, value: impl std::fmt::Display) {
        if shown {
            self.line(label, value);
        }
    }
}

/// A line for each figure; each label is a phrase that needs no explanation.
pub fn table(result: &CellResult) -> String {
    let mut lines = Lines::default();
    setting(&mut lines, result);
    figures(&mut lines, result);
    resources(&mut lines, result);
    for (name, value) in result.extra.iter().filter(|(_, value)| value.is_number() || value.is_string()) {
        let text = value.as_f64().filter(|_| value.is_f64()).map_or_else(|| value.to_string(), number);
        lines.line(&name.replace('_', " "), value.as_str().map_or(text, str::to_owned));
    }
    origin(&mut lines, result);
    let mut text = lines.0;
    if let Some(transactions) = tpcc::run::table(result) {
        text += &format!("\n{transactions}");
    }
    text
}

/// What was run.
fn setting(lines: &mut Lines, result: &CellResult) {
    let cell = &result.cell;
    let (workload, store, version) = (&cell.workload, &cell.store, &result.origin.version);
    let threads = if cell.threads == 1 { "1 thread".into() } else { format!("{} threads", cell.threads) };
    let durability = format!("{:?}", cell.durability).to_lowercase();
    lines.line("Measured", format!("{workload} on {store} {version}, {threads}, durability {durability}"));
    let data = format!("{} keys, values of {} bytes", count(cell.keys as f64), cell.value_size);
    lines.line_if(cell.keys > 0, "Data", data);
    lines.line("Memory for the store's cache", bytes(cell.pool_bytes));
    if let Some(limit) = cell.memory_limit_bytes {
        lines.line("Memory of the process, page cache included", format!("at most {}", bytes(limit)));
    }
    let batch = format!("of up to {} threads", cell.client_batch);
    lines.line_if(cell.client_batch > 1, "Puts written as one transaction", batch);
    lines.line_if(cell.flush_delay_ms > 0.0, "Added to each flush", format!("{} ms", cell.flush_delay_ms));
    if let Some(load) = &result.load {
        let Load { rows_per_s, seconds, settle_seconds } = load;
        let rate = count(rows_per_s.trunc());
        lines.line("Loaded before", format!("{rate} rows/s, {seconds:.1} s, then {settle_seconds:.1} s to settle"));
    }
}

/// How fast it was.
fn figures(lines: &mut Lines, result: &CellResult) {
    let m = &result.measured;
    let (rate, done) = (rate(m.ops_per_s), count(m.ops as f64));
    lines.line("Operations per second", format!("{rate} ({done} in {:.2} s)", m.duration_s));
    let [p50, p95, p99, p999] = [m.p50_us, m.p95_us, m.p99_us, m.p999_us].map(us);
    lines.line("Half of them took at most", format!("{p50}; 95%: {p95}; 99%: {p99}; 99.9%: {p999}"));
    lines.line("The longest took", us(m.max_us));
    lines.line("Longest time in which none completed", us(m.longest_gap_ms * 1e3));
    lines.line_if(m.conflicts > 0, "Tried again because of another", count(m.conflicts as f64));
    lines.line_if(m.errors > 0, "Threads that ended with an error", count(m.errors as f64));
}

/// What it used of the machine.
fn resources(lines: &mut Lines, result: &CellResult) {
    let m = &result.measured;
    let known = |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or_else(|| "unknown".into(), show);
    let size = |value: Option<f64>| known(value, &|n| bytes(n.round() as u64));
    let (read, wrote) = (size(m.device_read_bytes_per_op), size(m.device_written_bytes_per_op));
    lines.line("The device read and wrote per operation", format!("{read} and {wrote}"));
    let (reads, writes) = (known(m.device_reads_per_s, &rate), known(m.device_writes_per_s, &rate));
    lines.line("The device read and wrote per second", format!("{reads} and {writes} times"));
    lines.line("Flushes of the device per operation", known(m.flushes_per_op, &|n| format!("{n:.3}")));
    let Usage { cpu_cores, foreign_cpu_cores, rss_bytes, rss_peak_bytes, page_cache_bytes } = result.used;
    let [end, peak, cached] = [rss_bytes, rss_peak_bytes, page_cache_bytes].map(|n| size(n.map(|n| n as f64)));
    lines.line("Resident memory at the end, at most", format!("{end}, {peak}"));
    lines.line("Page cache of the store's files", cached);
    lines.line("Processors used, in cores", format!("{cpu_cores:.2}"));
    let again = format!("{foreign_cpu_cores:.2}; more than {FOREIGN_CORES}: measure again on a quiet machine");
    lines.line_if(foreign_cpu_cores > FOREIGN_CORES, "DISTURBED: others used, in cores", again);
}

/// Where the figures come from: machine, disk, seed, commit.
fn origin(lines: &mut Lines, result: &CellResult) {
    let Machine { cpu_model, cpus, memory_bytes, kernel, .. } = &result.origin.machine;
    let memory = bytes(*memory_bytes);
    lines.line("Machine", format!("{cpu_model}, {cpus} cores, {memory}, Linux {kernel}"));
    lines.line("Disk", &result.origin.disk);
    lines.line("Seed, commit", format!("{}, {}", result.cell.seed, result.origin.commit));
}

/// A figure with its significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        a if a >= 1000.0 => count(value.round()),
        a if a >= 100.0 => format!("{value:.0}"),
        a if a >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn rate(n: f64) -> String {
    if n < 100.0 { format!("{n:.1}") } else { count(n.round()) }
}

/// Microseconds as `840 ns`, `84.0 us`, `1.24 ms`, `2.50 s`.
fn us(us: f64) -> String {
    match us {
        us if us < 1.0 => format!("{:.0} ns", us * 1e3),
        us if us < 1e3 => format!("{us:.1} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// A number of bytes: `12.3 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    // Every unit is 10 bits more than the one before.
    match (n.max(1).ilog2() / 10).min(4) {
        0 => format!("{n} B"),
        unit => format!("{:.1} {}", n as f64 / f64::from(10 * unit).exp2(), UNITS[unit as usize - 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_a_person_would_write_them() {
        assert_eq!([us(0.84), us(84.0), us(1240.0), us(2.5e6)], ["840 ns", "84.0 us", "1.24 ms", "2.50 s"]);
        assert_eq!([bytes(12), bytes(1536), bytes(5 << 40)], ["12 B", "1.5 KiB", "5.0 TiB"]);
        assert_eq!([rate(3.06), rate(12_345.6)], ["3.1", "12,346"]);
        let numbers = [1_234_567.8, -1234.0, 345.6, 12.345, 0.0123].map(number);
        assert_eq!(numbers, ["1,234,568", "-1,234", "346", "12.35", "0.0123"]);
    }
}
