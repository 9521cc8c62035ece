//! E1: the cost of a flush, whether that cost is believable, which way to sync is fastest, and which
//! published drive this one resembles.
//!
//! - The cost of a flush is a difference of medians of two cells measured alternately (write + fdatasync,
//!   write alone).
//! - An unknown write cache counts as volatile: it never softens a verdict.
//! - The publication's cache-on columns are not labelled, so no share is computed from them.

use super::baseline::rotates;
use super::definition::{Definition, Published};
use super::published;
use crate::cell::{CellSpec, Experiment, Sync};
use crate::evidence::{Evidence, Panel};
use crate::results::Results;
use crate::text::{self, vars};
use crate::verdict::{Answer, Pair, Writer, pair};
use seawall_io::probe::WriteCache;
use std::collections::BTreeSet;

pub(crate) static EXPERIMENT: Definition = Definition {
    toml: include_str!("direct_sync.toml"),
    cells,
    conclude: &[flush_cost, flush_plausible, flush_sent, rwf_dsync, published_column, scaling],
    evidence,
};

const BLOCK: u32 = 4096;
/// The ways to make a write durable, with PostgreSQL's name (`wal_sync_method`).
const METHODS: [(Sync, &str, &str); 4] = [
    (Sync::ODsync, "O_DSYNC", "open_datasync"),
    (Sync::Fdatasync, "fdatasync", "fdatasync"),
    (Sync::Fsync, "fsync", "fsync"),
    (Sync::RwfDsync, "RWF_DSYNC", "-"),
];

/// A faster flush programs no NAND page: single-level-cell programs take about 100 us or more, today's TLC
/// 300 us to 2 ms.
const NAND_PROGRAM_NS: f64 = 100e3;
/// The width of a histogram's bucket, as a part of its value.
const BUCKET: f64 = 1.0 / 64.0;
/// A faster flush does not wait for a platter: at 15,000 rpm half a turn is 2 ms.
const HALF_TURN_NS: f64 = 2e6;

/// Random direct writes of `block_bytes` by `threads`, made durable by `sync`.
///
/// ```
/// use seawall_lab::{cell::Sync, plan};
/// // What one commit waits for, and the rate of sixteen in parallel.
/// assert_eq!(plan::direct_sync(1, 4096, Sync::Fdatasync).id(), "e1/overwrite/randwrite/4k/direct/fdatasync/t1");
/// assert_eq!(plan::direct_sync(16, 4096, Sync::Fdatasync).threads, 16);
/// ```
pub fn direct_sync(threads: u32, block_bytes: u32, sync: Sync) -> CellSpec {
    CellSpec { threads, block_bytes, sync, ..CellSpec::new(Experiment::DirectSync) }
}

fn cells(full: bool) -> Vec<CellSpec> {
    let mut cells = vec![direct_sync(1, BLOCK, Sync::None)];
    cells.extend(METHODS.map(|(sync, ..)| direct_sync(1, BLOCK, sync)));
    cells.push(direct_sync(16, BLOCK, Sync::Fdatasync));
    if full {
        for block_bytes in [BLOCK, 16 << 10] {
            for sync in [Sync::None, Sync::Fdatasync, Sync::RwfDsync] {
                cells.extend([1, 2, 4, 8, 16].map(|threads| direct_sync(threads, block_bytes, sync)));
            }
        }
    }
    cells
}

/// Compares writes by one thread without and with an fdatasync each.
pub(crate) fn without_flush(results: &Results) -> Option<Pair<'_>> {
    pair(results, [Sync::None, Sync::Fdatasync].map(|sync| direct_sync(1, BLOCK, sync)))
}

/// The time that a flush adds to a 4 KiB direct write by one thread: the median of write + fdatasync less the
/// median of the write alone, ns, never below zero. Both medians come from cells measured alternately.
pub(crate) fn flush_cost_ns(results: &Results) -> Option<f64> {
    let median = |sync| results.cell(&direct_sync(1, BLOCK, sync))?.latency_ns(0.5);
    Some((median(Sync::Fdatasync)? - median(Sync::None)?).max(0.0))
}

fn flush_cost(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = without_flush(results) else { return };
    let (Some(without), Some(with), Some(cost)) = (p.a.latency_ns(0.5), p.b.latency_ns(0.5), flush_cost_ns(results))
    else {
        return;
    };
    let [without, with, cost] = [without, with, cost].map(text::latency);
    w.compare("flush-cost", p, vars![without, with, cost]);
}

fn flush_plausible(results: &Results, w: &mut Writer<'_>) {
    let Some(cost) = flush_cost_ns(results) else { return };
    let cache = results.probe.device.known().and_then(|d| d.write_cache.known());
    let unclear = without_flush(results).is_none_or(|p| {
        // The medians are those of buckets, which are wide where writes are slow.
        let told_apart = p.a.latency_ns(0.5).is_none_or(|without| without * 2.0 * BUCKET < NAND_PROGRAM_NS);
        !p.limited && (p.answer == Answer::Unclear || (p.answer == Answer::Same && !told_apart))
    });
    let (least, why) = match rotates(results) {
        Some(true) => (HALF_TURN_NS, "half a turn of a 15,000 rpm platter takes 2 ms"),
        _ => (NAND_PROGRAM_NS, "programming a NAND page takes 100 µs or more"),
    };
    let told = match cache {
        Some(cache) => format!("write cache reported: {cache}"),
        None => "write cache not known, so taken for volatile".into(),
    };
    let outcome = match cache {
        _ if results.probe.device.known().is_none() => "elsewhere",
        Some(WriteCache::Through) => "through",
        _ if unclear => "unclear",
        _ if cost < least => "fast",
        _ => "long",
    };
    w.say("flush-plausible", outcome, vars![takes = text::latency(cost), why, told]);
}

/// Warns of a write-back cache that receives no flush: mounted without barriers, or a layer between drops flushes.
fn flush_sent(results: &Results, w: &mut Writer<'_>) {
    let Some(cell) = results.cell(&direct_sync(1, BLOCK, Sync::Fdatasync)) else { return };
    let Some(flushes) = cell.per_operation(|device| device.flushes) else { return };
    let Some(device) = results.probe.device.known() else { return };
    let Some(WriteCache::Back) = device.write_cache.known() else { return };
    // The kernel counts flushes where requests are queued: device-mapper and md pass them on and count none.
    let stacked = !device.below.is_empty() && !device.name.starts_with("loop");
    let outcome = match flushes {
        0.9.. => "each",
        _ if stacked => "stacked",
        ..0.1 => "none",
        _ => "some",
    };
    let (flushes, below) = (format!("{flushes:.2}"), device.below.join(", "));
    w.say("flush-sent", outcome, vars![title = cell.spec.title(), flushes, name = device.name, below]);
}

fn rwf_dsync(results: &Results, w: &mut Writer<'_>) {
    let fua = match results.probe.device.known().and_then(|d| d.fua.known()) {
        Some(true) => "the drive takes FUA writes",
        Some(false) => "the drive takes no FUA writes, so the kernel sends write and flush either way",
        None => "FUA support is not known",
    };
    let p = pair(results, [Sync::RwfDsync, Sync::Fdatasync].map(|sync| direct_sync(1, BLOCK, sync)));
    w.compare("rwf-dsync", p, vars![fua]);
}

/// The published drive gained 2.2x without the flush when its cache was off (49 -> 109 w/s, one thread), and
/// almost nothing when it was on (503 and 532). A gain between 1.2x and 1.6x resembles neither.
fn published_column(results: &Results, w: &mut Writer<'_>) {
    const ON_MAX: f64 = 1.2;
    const OFF_MIN: f64 = 1.6;
    let Some(p) = without_flush(results) else { return };
    let Some(rate) = p.b.median().filter(|r| *r > 0.0) else { return };
    let figures = published(Experiment::DirectSync);
    let [off_each, off_none, on_first, on_second] = [0, 1, 2, 3].map(|i: usize| figures[i].rates[0]);
    let (outcome, base) = match p.answer {
        Answer::More if p.ratio.median >= OFF_MIN && p.ratio.low > ON_MAX => ("off", off_each),
        Answer::More | Answer::Less | Answer::Same if p.ratio.median <= ON_MAX && p.ratio.high < OFF_MIN => {
            ("on", on_first)
        }
        _ => ("unclear", on_first),
    };
    let (here, off, rates) = (p.times(), text::ratio(off_none / off_each), p.reason());
    let (flushed, relative, base) = (text::count(rate), text::ratio(rate / base), text::count(base));
    let vars = vars![here, off, on_first, on_second, rates, flushed, relative, base];
    w.say("published", outcome, vars);
}

fn scaling(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = pair(results, [16, 1].map(|threads| direct_sync(threads, BLOCK, Sync::Fdatasync))) else { return };
    let much = p.answer == Answer::More && p.ratio.median >= 1.5;
    w.compare_as("durable-scaling", &p, if much { "much-more" } else { p.answer.word() }, None, &[]);
}

fn evidence(e: &Evidence<'_>) -> Vec<Option<Panel>> {
    let blocks: BTreeSet<u32> = e.cells().map(|c| c.spec.block_bytes).collect();
    let rates = blocks.into_iter().map(|block| {
        let of_block =
            |spec: &CellSpec| (spec.block_bytes == block).then(|| (word(spec.sync).to_owned(), spec.threads));
        e.rates_over("rates", vars![block = text::bytes(f64::from(block))], of_block)
    });
    [methods(e)].into_iter().chain(rates).chain([left_over(e)]).collect()
}

fn word(sync: Sync) -> &'static str {
    METHODS.iter().find(|m| m.0 == sync).map_or("no sync", |m| m.1)
}

/// The ways to sync a write, the fastest first, as users of `pg_test_fsync` expect.
fn methods(e: &Evidence<'_>) -> Option<Panel> {
    let measured = METHODS.iter().filter_map(|(sync, name, postgres)| {
        let cell = e.results.cell(&direct_sync(1, BLOCK, *sync))?;
        let rate = cell.median().filter(|rate| *rate > 0.0)?;
        let p99 = text::or_missing(cell.latency_ns(0.99), text::latency);
        Some((rate, vec![(*name).into(), (*postgres).into(), text::count(rate), text::latency(1e9 / rate), p99]))
    });
    let mut measured: Vec<(f64, Vec<String>)> = measured.collect();
    measured.sort_by(|a, b| b.0.total_cmp(&a.0));
    e.table("methods", &[], measured.into_iter().map(|(_, row)| row).collect())
}

/// The remaining share of the rate without sync, beside the published share with the drive's cache off.
fn left_over(e: &Evidence<'_>) -> Option<Panel> {
    let rows = Published::THREADS.into_iter().enumerate().filter_map(|(i, threads)| {
        let [none, fdatasync, dsync] =
            [Sync::None, Sync::Fdatasync, Sync::RwfDsync].map(|sync| direct_sync(threads, BLOCK, sync));
        let [fdatasync, dsync] = [fdatasync, dsync].map(|spec| e.results.compare(&spec, &none));
        let rate = |figure: usize| published(Experiment::DirectSync)[figure].rates.get(i);
        let published = rate(0).zip(rate(1)).map(|(each, none)| each / none);
        fdatasync.or(dsync)?;
        Some(vec![
            text::many(threads, "thread", "threads"),
            text::or_missing(fdatasync, |ratio| text::percent(ratio.median)),
            text::or_missing(dsync, |ratio| text::percent(ratio.median)),
            text::or_missing(published, text::percent),
        ])
    });
    e.table("left-over", &[], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, cell};
    use crate::verdict::Level;
    use crate::verdict::testing::{noisy, said, verdict};
    use seawall_io::probe::{BlockDevice, Finding};

    fn run(none: f64, fdatasync: f64, dsync: f64, sixteen: f64) -> Results {
        sample::results(vec![
            cell(direct_sync(1, BLOCK, Sync::None), none),
            cell(direct_sync(1, BLOCK, Sync::Fdatasync), fdatasync),
            cell(direct_sync(1, BLOCK, Sync::RwfDsync), dsync),
            cell(direct_sync(16, BLOCK, Sync::Fdatasync), sixteen),
        ])
    }

    fn device(results: &mut Results) -> &mut BlockDevice {
        match &mut results.probe.device {
            Finding::Known(device) => device,
            Finding::Unknown(_) => panic!("sample knows its device"),
        }
    }

    #[test]
    fn flush_cost_each_way() {
        let (level, sentence) = said(&run(20_000.0, 10_000.0, 10_000.0, 1.0), "direct-sync.flush-cost");
        assert_eq!(level, Level::Note);
        assert!(sentence.contains("2.0x as many"), "{sentence}");
        assert_eq!(said(&run(10_000.0, 10_000.0, 1.0, 1.0), "direct-sync.flush-cost").0, Level::Good);
        assert!(said(&run(5_000.0, 10_000.0, 1.0, 1.0), "direct-sync.flush-cost").1.contains("slower without"));
        let mut r = run(10_000.0, 10_000.0, 1.0, 1.0);
        r.cells[0] = noisy(direct_sync(1, BLOCK, Sync::None), 10_000.0);
        assert_eq!(said(&r, "direct-sync.flush-cost").0, Level::CannotTell);
        r.cells.remove(0);
        assert!(verdict(&r, "direct-sync.flush-cost").is_none());
        assert!(verdict(&r, "direct-sync.flush-plausible").is_none());
    }

    #[test]
    fn an_impossible_flush_is_called_so() {
        // About 40 us for the flush.
        let mut fast = run(20_000.0, 11_000.0, 1.0, 1.0);
        assert!(said(&fast, "direct-sync.flush-plausible").1.starts_with("flush returns faster than any medium could"));
        device(&mut fast).write_cache = Finding::Known(WriteCache::Through);
        assert_eq!(said(&fast, "direct-sync.flush-plausible").0, Level::Note);
        device(&mut fast).write_cache = Finding::unknown("sysfs");
        assert_eq!(said(&fast, "direct-sync.flush-plausible").0, Level::Warning);
        let mut noise = run(20_000.0, 11_000.0, 1.0, 1.0);
        noise.cells[1] = noisy(direct_sync(1, BLOCK, Sync::Fdatasync), 11_000.0);
        noise.cells[1].rounds[0].operations = 40_000;
        assert_eq!(said(&noise, "direct-sync.flush-plausible").0, Level::CannotTell);
        // About 900 us: possible for NAND, too fast for a platter.
        let mut slow = run(20_000.0, 1_000.0, 1.0, 1.0);
        assert_eq!(said(&slow, "direct-sync.flush-plausible").0, Level::Good);
        device(&mut slow).rotational = Finding::Known(true);
        assert_eq!(said(&slow, "direct-sync.flush-plausible").0, Level::Warning);
        // The time of a network is not that of a medium.
        slow.probe.device = Finding::unknown("nfs4 mounted from elsewhere:/export has no block device in sysfs");
        assert_eq!(said(&slow, "direct-sync.flush-plausible").0, Level::CannotTell);
        // Medians of 10 ms, one bucket apart.
        let coarse = run(100.0, 99.0, 1.0, 1.0);
        assert_eq!(said(&coarse, "direct-sync.flush-plausible").0, Level::CannotTell);
    }

    #[test]
    fn flushes_that_never_arrive() {
        let mut r = run(20_000.0, 11_000.0, 1.0, 1.0);
        assert_eq!(said(&r, "direct-sync.flush-sent").0, Level::Good);
        for (flushes, level) in [(0, Level::Warning), (5_000, Level::CannotTell)] {
            for round in &mut r.cells[1].rounds {
                round.device.as_mut().unwrap().flushes = Some(flushes);
            }
            assert_eq!(said(&r, "direct-sync.flush-sent").0, level);
        }
        for round in &mut r.cells[1].rounds {
            round.device.as_mut().unwrap().flushes = Some(0);
        }
        device(&mut r).below = vec!["sda".into()];
        assert_eq!(said(&r, "direct-sync.flush-sent").0, Level::CannotTell, "a logical volume does not count flushes");
        for round in &mut r.cells[1].rounds {
            round.device.as_mut().unwrap().flushes = None;
        }
        assert!(
            verdict(&r, "direct-sync.flush-sent").is_none(),
            "a kernel that does not count flushes accuses no drive"
        );
        device(&mut r).write_cache = Finding::Known(WriteCache::Through);
        assert!(verdict(&r, "direct-sync.flush-sent").is_none());
    }

    #[test]
    fn dsync_each_way() {
        let says = |dsync| said(&run(20_000.0, 10_000.0, dsync, 1.0), "direct-sync.rwf-dsync");
        assert!(says(20_000.0).1.starts_with("RWF_DSYNC is 2.0x as fast"));
        assert_eq!(says(5_000.0).1, "RWF_DSYNC is 2.0x slower than write + fdatasync: stay with fdatasync");
        assert_eq!(says(10_000.0).0, Level::CannotTell);
    }

    #[test]
    fn published_column_each_way() {
        let says = |none, with| verdict(&run(none, with, 1.0, 1.0), "direct-sync.published").unwrap();
        let off = says(18_900.0, 10_800.0);
        assert!(off.sentence.contains("cache off") && off.reason.contains("222x as fast"), "{off:?}");
        let on = says(10_500.0, 10_000.0);
        assert!(on.sentence.contains("cache on") && on.reason.contains("as fast"), "{on:?}");
        assert_eq!(says(14_000.0, 10_000.0).level, Level::CannotTell);
    }

    #[test]
    fn sync_methods_are_ranked_by_rate() {
        let mut r = run(20_000.0, 10_000.0, 12_000.0, 1.0);
        r.cells.push(cell(direct_sync(1, BLOCK, Sync::Fsync), 4_000.0));
        let panel = crate::table::panels(&r, Experiment::DirectSync).swap_remove(0);
        let crate::evidence::Body::Table(table) = panel.body else { panic!("not a table") };
        let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names, ["RWF_DSYNC", "fdatasync", "fsync"]);
        assert_eq!(table.rows[1][1..4], ["fdatasync", "10,050", "100 µs"]);
    }

    #[test]
    fn durable_scaling_each_way() {
        let says = |sixteen| said(&run(20_000.0, 10_000.0, 1.0, sixteen), "direct-sync.durable-scaling").0;
        assert_eq!(says(31_000.0), Level::Good);
        assert_eq!(says(12_000.0), Level::Note);
        assert_eq!(says(10_000.0), Level::Note);
        assert_eq!(says(4_000.0), Level::Warning);
    }
}
