//! Baseline: the device on its own. No publication; the other verdicts use it.

use super::definition::Definition;
use crate::cell::{CellSpec, Experiment, Pattern};
use crate::evidence::{Evidence, Panel};
use crate::results::{CellResult, Results};
use crate::text::{self, vars};
use crate::verdict::{Writer, cell_rate};

pub(crate) static EXPERIMENT: Definition =
    Definition { toml: include_str!("baseline.toml"), cells, conclude: &[bandwidth], evidence };

/// Depths of the random reads in the full run.
pub(crate) const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// 16 KiB random direct reads by one thread at `depth`.
///
/// ```
/// let spec = seawall_lab::plan::random_read(32);
/// assert_eq!(spec.id(), "base/overwrite/randread/16k/direct/nosync/t1/d32");
/// ```
pub fn random_read(depth: u32) -> CellSpec {
    CellSpec {
        pattern: Pattern::RandomRead,
        block_bytes: 16 << 10,
        queue_depth: depth,
        ..CellSpec::new(Experiment::Baseline)
    }
}

/// 1 MiB sequential direct reads, eight in flight.
///
/// ```
/// assert_eq!(seawall_lab::plan::sequential_read().title(), "sequential 1M reads, direct, depth 8, 1 thread");
/// ```
pub fn sequential_read() -> CellSpec {
    CellSpec { pattern: Pattern::SequentialRead, ..sequential_write() }
}

/// 1 MiB sequential direct overwrites without sync, eight in flight.
///
/// ```
/// assert_eq!(seawall_lab::plan::sequential_write().title(), "sequential 1M writes, direct, depth 8, 1 thread");
/// ```
pub fn sequential_write() -> CellSpec {
    CellSpec {
        pattern: Pattern::SequentialWrite,
        block_bytes: 1 << 20,
        queue_depth: 8,
        ..CellSpec::new(Experiment::Baseline)
    }
}

fn cells(full: bool) -> Vec<CellSpec> {
    let depths: &[u32] = if full { &DEPTHS } else { &[1, 32] };
    depths.iter().copied().map(random_read).chain([sequential_read(), sequential_write()]).collect()
}

/// The rate of single random reads if it is beyond any spinning disk (about 200 per second), regardless of
/// the kernel's information: virtual disks are announced as rotating by default.
pub(crate) fn too_fast_to_rotate(results: &Results) -> Option<f64> {
    let rate = results.cell(&random_read(1))?.median()?;
    (rate > 1_000.0).then_some(rate)
}

/// Whether this is a spinning disk: the kernel says so and the read rate does not contradict it.
pub(crate) fn rotates(results: &Results) -> Option<bool> {
    let said = *results.probe.device.known()?.rotational.known()?;
    Some(said && too_fast_to_rotate(results).is_none())
}

fn bandwidth(results: &Results, w: &mut Writer<'_>) {
    let specs = [sequential_read(), sequential_write()];
    let cells: Vec<&CellResult> = specs.iter().filter_map(|spec| results.cell(spec)).collect();
    let shown = cells.iter().filter_map(|c| {
        let megabytes = text::count(c.bytes_per_second()? / 1e6);
        Some(format!("{} {megabytes} MB/s", if c.spec.reads() { "reads" } else { "writes" }))
    });
    let shown: Vec<String> = shown.collect();
    if !shown.is_empty() {
        let rates = cells.iter().map(|c| cell_rate(c)).collect::<Vec<_>>().join("; ");
        w.say("bandwidth", "measured", vars![shown = shown.join(" and "), rates]);
    }
}

fn evidence(e: &Evidence<'_>) -> Vec<Option<Panel>> {
    let reads = |spec: &CellSpec| (spec.pattern == Pattern::RandomRead).then(|| (String::new(), spec.queue_depth));
    vec![e.rates_over("reads", &[], reads)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, cell};
    use crate::verdict::testing::said;

    #[test]
    fn bandwidth_is_stated_in_megabytes() {
        let r = sample::results(vec![cell(sequential_read(), 1000.0), cell(sequential_write(), 500.0)]);
        assert_eq!(said(&r, "baseline.bandwidth").1, "in order the device reads 1,054 MB/s and writes 527 MB/s");
    }
}
