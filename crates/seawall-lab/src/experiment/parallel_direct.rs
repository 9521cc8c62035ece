//! E3: whether direct writers to one file run in parallel, what prevents it, and whether a flush is bounded while
//! another thread writes.
//!
//! - "Serialises" is stated of a file system only if the device is known to do more in parallel: reads scale
//!   with depth and one writer leaves it idle. Otherwise one thread may have saturated the device, and the
//!   verdict is "cannot tell".

use super::baseline::random_read;
use super::definition::Definition;
use super::direct_sync::direct_sync;
use crate::cell::{Beside, CellSpec, Experiment, Sync};
use crate::evidence::{Evidence, Panel};
use crate::results::Results;
use crate::text::{self, vars};
use crate::verdict::{Answer, Writer, cell_rate, file_system_word, pair};

pub(crate) static EXPERIMENT: Definition = Definition {
    toml: include_str!("parallel_direct.toml"),
    cells,
    conclude: &[serialised, beside_pages, flush_under_load],
    evidence,
};

/// A speed-up from here on counts as parallel.
const PARALLEL_MIN: f64 = 1.5;
/// The device has capacity left when reads scale at least this far with depth ...
const READ_SCALING_MIN: f64 = 2.0;
/// ... and one writer takes no more than this part of the best read rate.
const SATURATED: f64 = 0.5;
const SERIES: [(Beside, &str); 4] = [
    (Beside::Nothing, "clean file"),
    (Beside::CachedPages, "its pages in the cache"),
    (Beside::DroppedPages, "pages dropped first"),
    (Beside::BeyondEof, "beyond the end of the file"),
];

/// 16 KiB random direct writes by `threads` to one file, with `beside` as the concurrent work.
///
/// ```
/// use seawall_lab::{cell::Beside, plan};
/// let beside_cache = plan::parallel(8, Beside::CachedPages);
/// assert_eq!(beside_cache.title(), "random 16K writes, direct, 8 threads, file's pages cached");
/// ```
pub fn parallel(threads: u32, beside: Beside) -> CellSpec {
    CellSpec { threads, block_bytes: 16 << 10, beside, ..CellSpec::new(Experiment::ParallelDirect) }
}

/// Latency of fdatasync while another thread overwrites without pause.
///
/// ```
/// use seawall_lab::{plan, results::operation_word};
/// assert_eq!(operation_word(&plan::flush_under_writes()), "flushes");
/// ```
pub fn flush_under_writes() -> CellSpec {
    CellSpec { sync: Sync::Fdatasync, ..parallel(1, Beside::ContinuousWriter) }
}

fn cells(full: bool) -> Vec<CellSpec> {
    let mut cells = vec![parallel(1, Beside::Nothing), parallel(8, Beside::Nothing), parallel(8, Beside::CachedPages)];
    if full {
        cells = [1, 2, 4, 8, 16].into_iter().flat_map(|t| SERIES.map(|(beside, _)| parallel(t, beside))).collect();
    }
    cells.push(flush_under_writes());
    cells
}

fn serialised(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = pair(results, [8, 1].map(|threads| parallel(threads, Beside::Nothing))) else { return };
    let fs = file_system_word(results);
    if p.answer == Answer::Unclear || (p.answer == Answer::More && p.ratio.median >= PARALLEL_MIN) {
        return w.compare("serialised", p, vars![fs]);
    }
    // Below 1.5x: does the file system serialise, or does one writer saturate the device?
    let depth = pair(results, [32, 1].map(random_read));
    let idle = depth.is_some_and(|d| {
        let best = d.a.median().unwrap_or(0.0);
        let one = p.b.median().unwrap_or(f64::INFINITY);
        d.answer == Answer::More && d.ratio.median >= READ_SCALING_MIN && one <= SATURATED * best
    });
    let outcome = match depth {
        _ if idle => "serialises",
        Some(_) => "unclear",
        None => "unknown",
    };
    let depth = depth.map_or_else(String::new, |d| d.reason());
    w.say("serialised", outcome, vars![fs, times = p.times(), rates = p.reason(), depth]);
}

/// Eight writers with cached pages, after these were dropped, and beyond the end, each against eight alone.
fn beside_pages(results: &Results, w: &mut Writer<'_>) {
    let against_alone = |beside| pair(results, [beside, Beside::Nothing].map(|beside| parallel(8, beside)));
    let cached = against_alone(Beside::CachedPages);
    w.compare("cached-pages", cached, &[]);
    if let Some(p) = against_alone(Beside::DroppedPages) {
        let restored = p.answer == Answer::Same && cached.is_some_and(|c| c.answer == Answer::Less);
        w.compare_as("dropped-pages", &p, if restored { "restored" } else { p.answer.word() }, None, &[]);
    }
    w.compare("beyond-eof", against_alone(Beside::BeyondEof), &[]);
}

/// A flush is bounded when its 99th percentile stays within ten times an undisturbed write + fdatasync and
/// its maximum within a second; without an undisturbed one to compare with, within 100 ms.
fn flush_under_load(results: &Results, w: &mut Writer<'_>) {
    const TIMES_MAX: f64 = 10.0;
    const WORST_NS_MAX: f64 = 1e9;
    const ALONE_NS: f64 = 100e6;
    let Some(cell) = results.cell(&flush_under_writes()) else { return };
    let (Some(p50), Some(p99), Some(worst)) = (cell.latency_ns(0.5), cell.latency_ns(0.99), cell.latency_ns_max())
    else {
        return;
    };
    let quiet = results.cell(&direct_sync(1, 4096, Sync::Fdatasync));
    let quiet_p99 = quiet.and_then(|q| q.latency_ns(0.99));
    let limit = quiet_p99.map_or(ALONE_NS, |q| TIMES_MAX * q);
    let figures = format!("p99 {}, longest {}", text::latency(p99), text::latency(worst));
    let undisturbed = match quiet_p99.filter(|q| *q > 0.0) {
        Some(q) => {
            let (alone, times) = (text::latency(q), text::ratio(p99 / q));
            format!("undisturbed write + fdatasync p99 {alone}, so {times} an undisturbed one")
        }
        None => "the undisturbed write + fdatasync was not measured".into(),
    };
    let outcome = match worst <= WORST_NS_MAX {
        true if cell.operations() < 100 => "few",
        true if p99 <= limit => "bounded",
        _ => "held-up",
    };
    let (flushes, rate, median) = (cell.operations(), cell_rate(cell), text::latency(p50));
    w.say("flush-under-writes", outcome, vars![flushes, rate, median, figures, undisturbed]);
}

fn evidence(e: &Evidence<'_>) -> Vec<Option<Panel>> {
    let series = |spec: &CellSpec| {
        let (_, name) = SERIES.iter().find(|(beside, _)| *beside == spec.beside)?;
        Some(((*name).to_owned(), spec.threads))
    };
    vec![e.rates_over("rates", &[], series)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, cell};
    use crate::verdict::Level;
    use crate::verdict::testing::{noisy, said, verdict};

    #[test]
    fn serialisation_each_way() {
        let run = |one: f64, eight: f64, read1: f64, read32: f64| {
            sample::results(vec![
                cell(parallel(1, Beside::Nothing), one),
                cell(parallel(8, Beside::Nothing), eight),
                cell(random_read(1), read1),
                cell(random_read(32), read32),
            ])
        };
        let says = |r: &Results| said(r, "parallel-direct.serialised");
        assert_eq!(says(&run(15_000.0, 44_000.0, 15_000.0, 45_000.0)).0, Level::Good);
        let (level, sentence) = says(&run(15_000.0, 15_000.0, 15_000.0, 45_000.0));
        assert_eq!(level, Level::Warning);
        assert!(sentence.starts_with("this ext4 serialises direct writers"), "{sentence}");
        // One writer saturates the device.
        assert_eq!(says(&run(40_000.0, 42_000.0, 15_000.0, 45_000.0)).0, Level::CannotTell);
        // Nothing scales on this device: a limit of the device, not of the file system.
        assert_eq!(says(&run(3_000.0, 3_000.0, 3_000.0, 3_000.0)).0, Level::CannotTell);
        let mut r = run(15_000.0, 15_000.0, 15_000.0, 45_000.0);
        r.cells.truncate(2);
        assert!(verdict(&r, "parallel-direct.serialised").unwrap().reason.contains("was not measured"));
        r.cells[1] = noisy(parallel(8, Beside::Nothing), 15_000.0);
        assert_eq!(says(&r).0, Level::CannotTell);
        r.cells.truncate(1);
        assert!(verdict(&r, "parallel-direct.serialised").is_none());
    }

    #[test]
    fn cache_and_growth_each_way() {
        for (beside, id) in [
            (Beside::CachedPages, "parallel-direct.cached-pages"),
            (Beside::DroppedPages, "parallel-direct.dropped-pages"),
            (Beside::BeyondEof, "parallel-direct.beyond-eof"),
        ] {
            let says = |rate: f64| {
                said(
                    &sample::results(vec![
                        cell(parallel(8, Beside::Nothing), 40_000.0),
                        cell(parallel(8, beside), rate),
                    ]),
                    id,
                )
            };
            assert_eq!(says(4_000.0).0, Level::Warning, "{id}");
            assert_eq!(says(40_000.0).0, Level::Good, "{id}");
            assert_eq!(says(80_000.0).0, Level::Note, "{id}");
            let r = sample::results(vec![
                cell(parallel(8, Beside::Nothing), 40_000.0),
                noisy(parallel(8, beside), 40_000.0),
            ]);
            assert_eq!(said(&r, id).0, Level::CannotTell, "{id}");
        }
        let r = sample::results(vec![
            cell(parallel(8, Beside::Nothing), 40_000.0),
            cell(parallel(8, Beside::CachedPages), 4_000.0),
            cell(parallel(8, Beside::DroppedPages), 40_000.0),
        ]);
        assert!(said(&r, "parallel-direct.dropped-pages").1.contains("restores"));
    }

    #[test]
    fn flush_latency_each_way() {
        let quiet = cell(direct_sync(1, 4096, Sync::Fdatasync), 10_000.0);
        let says = |rate: f64| {
            said(
                &sample::results(vec![quiet.clone(), cell(flush_under_writes(), rate)]),
                "parallel-direct.flush-under-writes",
            )
        };
        assert_eq!(says(5_000.0).0, Level::Good);
        let (level, sentence) = says(200.0);
        assert_eq!(level, Level::Warning);
        assert!(sentence.starts_with("flushes are held up"), "{sentence}");
        assert_eq!(says(10.0).0, Level::CannotTell);
        let alone = sample::results(vec![cell(flush_under_writes(), 500.0)]);
        assert_eq!(said(&alone, "parallel-direct.flush-under-writes").0, Level::Good);
        let mut stalled = sample::results(vec![cell(flush_under_writes(), 5_000.0)]);
        stalled.cells[0].rounds[2].latency_ns_max = 4_000_000_000;
        assert!(said(&stalled, "parallel-direct.flush-under-writes").1.contains("longest 4.0 s"));
    }
}
