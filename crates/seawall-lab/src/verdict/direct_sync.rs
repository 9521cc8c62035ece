//! E1: the cost of a flush, whether that cost is believable, and which published drive this one resembles.
//!
//! - The cost of a flush is a difference of medians of two cells measured alternately (write + fdatasync,
//!   write alone).
//! - An unknown write cache counts as volatile: it never softens a verdict.

use super::{Answer, Level, Verdict, Writer, flush_cost_ns, p50_ns, pair, rotates};
use crate::cell::{Experiment, Sync};
use crate::plan::direct_sync;
use crate::published;
use crate::results::Results;
use crate::text;
use seawall_io::probe::WriteCache;

const BLOCK: u32 = 4096;

/// A faster flush programs no NAND page: single-level-cell programs take about 100 us or more, today's TLC
/// 300 us to 2 ms.
const NAND_PROGRAM_NS: f64 = 100e3;
/// A faster flush does not wait for a platter: at 15,000 rpm half a turn is 2 ms.
const HALF_TURN_NS: f64 = 2e6;

pub(super) fn verdicts(results: &Results, out: &mut Vec<Verdict>) {
    let mut w = Writer { out, experiment: Some(Experiment::DirectSync) };
    flush_cost(results, &mut w);
    flush_plausible(results, &mut w);
    flush_sent(results, &mut w);
    rwf_dsync(results, &mut w);
    published_column(results, &mut w);
    scaling(results, &mut w);
}

fn flush_cost(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = pair(results, &direct_sync(1, BLOCK, Sync::None), &direct_sync(1, BLOCK, Sync::Fdatasync)) else {
        return;
    };
    let (Some(without), Some(with), Some(cost)) = (p50_ns(p.a), p50_ns(p.b), flush_cost_ns(results)) else { return };
    let medians = format!("median {} with, {} without", text::latency(with), text::latency(without));
    let reason = format!("{medians}; {}", p.reason());
    match p.answer {
        Answer::More => w.add(
            "flush-cost",
            Level::Note,
            format!(
                "a flush after each write costs {}: one thread makes {} as many writes without it",
                text::latency(cost),
                p.times()
            ),
            reason,
            &p.cells(),
        ),
        Answer::Less => w.add(
            "flush-cost",
            Level::Note,
            format!("writes are {} slower without a flush each: the drive's cache is no help here", p.times_slower()),
            reason,
            &p.cells(),
        ),
        Answer::Same => w.add(
            "flush-cost",
            Level::Good,
            "a flush after each write costs nothing measurable (cannot tell it from none: under 10%)",
            reason,
            &p.cells(),
        ),
        Answer::Unclear => w.add(
            "flush-cost",
            Level::CannotTell,
            p.cannot_tell("a flush after each write", "none"),
            reason,
            &p.cells(),
        ),
    }
}

fn flush_plausible(results: &Results, w: &mut Writer<'_>) {
    let Some(cost) = flush_cost_ns(results) else { return };
    let cells: Vec<_> =
        [Sync::None, Sync::Fdatasync].iter().filter_map(|s| results.cell(&direct_sync(1, BLOCK, *s))).collect();
    let cache = results.probe.device.known().and_then(|d| d.write_cache.known()).copied();
    let unclear = pair(results, &direct_sync(1, BLOCK, Sync::None), &direct_sync(1, BLOCK, Sync::Fdatasync))
        .is_none_or(|p| p.answer == Answer::Unclear && !p.limited);
    let rotates = rotates(results) == Some(true);
    let (least, why) = if rotates {
        (HALF_TURN_NS, "half a turn of a 15,000 rpm platter takes 2 ms")
    } else {
        (NAND_PROGRAM_NS, "programming a NAND page takes 100 us or more")
    };
    let told = match cache {
        Some(cache) => format!("write cache reported: {cache}"),
        None => "write cache not known, so taken for volatile".into(),
    };
    let reason = format!(
        "flush cost {} (median of write + fdatasync less median of write alone); {why}; {told}",
        text::latency(cost)
    );
    match cache {
        Some(WriteCache::Through) => w.add(
            "flush-plausible",
            Level::Note,
            "the drive says that it has no volatile cache, so the kernel sends it no flushes: durability rests on the drive's word",
            reason,
            &cells,
        ),
        _ if unclear => w.add(
            "flush-plausible",
            Level::CannotTell,
            "cannot tell whether a flush reaches the medium: its cost is inside the noise",
            reason,
            &cells,
        ),
        _ if cost < least => w.add(
            "flush-plausible",
            Level::Warning,
            format!(
                "flush returns faster than any medium could ({}): the cache is volatile, or protected; check for power-loss protection \
                 (capacitors, battery, a host that flushes for you), and test it with `seawall witness`",
                text::latency(cost)
            ),
            reason,
            &cells,
        ),
        _ => w.add(
            "flush-plausible",
            Level::Good,
            format!("a flush takes {}, long enough to have reached the medium", text::latency(cost)),
            reason,
            &cells,
        ),
    }
}

/// A write-back cache that receives no flush: mounted without barriers, or a layer between drops them.
fn flush_sent(results: &Results, w: &mut Writer<'_>) {
    let Some(cell) = results.cell(&direct_sync(1, BLOCK, Sync::Fdatasync)) else { return };
    let Some(flushes) = cell.device_per_operation().and_then(|per| per.flushes) else { return };
    let Some(device) = results.probe.device.known() else { return };
    let Some(WriteCache::Back) = device.write_cache.known() else { return };
    // The kernel counts flushes where requests are queued: device-mapper and md pass them on and count none.
    let stacked = !device.below.is_empty() && !device.name.starts_with("loop");
    let reason = format!("{}: {:.2} flushes per write at the device, by /proc/diskstats", cell.spec.title(), flushes);
    if flushes >= 0.9 {
        w.add("flush-sent", Level::Good, "every fdatasync reaches the drive as a flush", reason, &[cell]);
    } else if flushes < 0.1 && stacked {
        w.add(
            "flush-sent",
            Level::CannotTell,
            format!(
                "cannot tell whether fdatasync reaches the drive: {} lies above {}, and such devices do not count flushes",
                device.name,
                device.below.join(", ")
            ),
            reason,
            &[cell],
        );
    } else if flushes < 0.1 {
        w.add(
            "flush-sent",
            Level::Warning,
            "fdatasync sends no flush to a drive with a volatile cache: mounted without barriers, or a layer in between drops flushes; \
             a power cut loses commits",
            reason,
            &[cell],
        );
    } else {
        w.add(
            "flush-sent",
            Level::CannotTell,
            format!("cannot tell whether every fdatasync reaches the drive: it counted {flushes:.2} flushes each"),
            reason,
            &[cell],
        );
    }
}

fn rwf_dsync(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = pair(results, &direct_sync(1, BLOCK, Sync::RwfDsync), &direct_sync(1, BLOCK, Sync::Fdatasync)) else {
        return;
    };
    let fua = match results.probe.device.known().map(|d| d.fua.known()) {
        Some(Some(true)) => "the drive takes FUA writes",
        Some(Some(false)) => "the drive takes no FUA writes, so the kernel sends write and flush either way",
        _ => "FUA support is not known",
    };
    let reason = format!("{}; {fua}", p.reason());
    let (level, sentence) = match p.answer {
        Answer::More => (
            Level::Note,
            format!(
                "this drive's O_DSYNC is {} faster than write + fdatasync: use it for the log (o_direct_dsync)",
                p.times()
            ),
        ),
        Answer::Less => (
            Level::Warning,
            format!(
                "this drive's O_DSYNC is slower than write + fdatasync ({}): stay with fdatasync",
                p.times_slower()
            ),
        ),
        Answer::Same | Answer::Unclear => (Level::CannotTell, p.cannot_tell("O_DSYNC", "write + fdatasync")),
    };
    w.add("rwf-dsync", level, sentence, reason, &p.cells());
}

/// The published drive gained 2.2x without the flush when its cache was off (49 -> 109 w/s, one thread), and
/// almost nothing when it was on (503 and 532). A gain between 1.2x and 1.6x resembles neither.
fn published_column(results: &Results, w: &mut Writer<'_>) {
    const ON_MAX: f64 = 1.2;
    const OFF_MIN: f64 = 1.6;
    let Some(p) = pair(results, &direct_sync(1, BLOCK, Sync::None), &direct_sync(1, BLOCK, Sync::Fdatasync)) else {
        return;
    };
    let Some(rate) = p.b.rate().map(|r| r.median).filter(|r| *r > 0.0) else { return };
    let figure = |series: &str| {
        published::figures(Experiment::DirectSync)
            .find(|f| f.series == series && f.threads == Some(1))
            .map_or(0.0, |f| f.rate)
    };
    let (off, off_free) = (figure("cache off, fsync each"), figure("cache off, no fsync"));
    let (on, on_second) = (figure("cache on, first column"), figure("cache on, second column"));
    let best = published::figures(Experiment::DirectSync).map(|f| f.rate).fold(0.0, f64::max);
    let reason = format!(
        "without against with a flush each: {} here; published {} with the cache off ({} and {} writes/s), {} and {} with it on; {}",
        p.times(),
        text::ratio(off_free / off),
        text::count(off_free),
        text::count(off),
        text::count(on),
        text::count(on_second),
        p.reason()
    );
    // The distance of this drive from the one measured in 2009, shown with the resemblance.
    let against = |base: f64| {
        if rate > 2.0 * best {
            format!(
                ", though {} as fast: {} flushed writes per second, against {}",
                text::ratio(rate / base),
                text::count(rate),
                text::count(base)
            )
        } else {
            format!(": {} flushed writes per second, against {}", text::count(rate), text::count(base))
        }
    };
    let (level, sentence) = match p.answer {
        Answer::More if p.ratio.median >= OFF_MIN && p.ratio.low > ON_MAX => (
            Level::Note,
            format!("this drive is like the published one with its cache off (each flush is paid for){}", against(off)),
        ),
        Answer::Unclear => (
            Level::CannotTell,
            if p.limited {
                "cannot tell which published column this drive is like: the run was held to a rate".into()
            } else {
                "cannot tell which published column this drive is like: the rounds scatter too widely".into()
            },
        ),
        _ if p.ratio.median <= ON_MAX && p.ratio.high < OFF_MIN => (
            Level::Note,
            format!("this drive is like the published one with its cache on (flushes are nearly free){}", against(on)),
        ),
        _ => (
            Level::CannotTell,
            format!(
                "cannot tell which published column this drive is like: leaving out the flush gains {}, between cache on (none) and cache off ({}){}",
                p.times(),
                text::ratio(off_free / off),
                if rate > 2.0 * best { ", and it is far faster than any of them" } else { "" }
            ),
        ),
    };
    w.add("published", level, sentence, reason, &p.cells());
}

fn scaling(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = pair(results, &direct_sync(16, BLOCK, Sync::Fdatasync), &direct_sync(1, BLOCK, Sync::Fdatasync))
    else {
        return;
    };
    let (level, sentence) = match p.answer {
        Answer::More if p.ratio.median >= 1.5 => (
            Level::Good,
            format!("flushes from many threads overlap: 16 threads make {} the durable writes of one", p.times()),
        ),
        Answer::More => (
            Level::Note,
            format!(
                "flushes from many threads hardly overlap ({} from 1 to 16 threads): group commit is what scales here",
                p.times()
            ),
        ),
        Answer::Less => (
            Level::Warning,
            format!(
                "16 threads make fewer durable writes than one ({} fewer): flushes get in each other's way; group commit matters",
                p.times_slower()
            ),
        ),
        Answer::Same => (
            Level::Note,
            "flushes do not overlap: cannot tell 16 threads from one (under 10%); group commit is what scales here"
                .into(),
        ),
        Answer::Unclear => (Level::CannotTell, p.cannot_tell("durable writes by 16 threads", "those by one")),
    };
    w.add("durable-scaling", level, sentence, p.reason(), &p.cells());
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noisy, said, verdict};
    use super::*;
    use crate::sample::{self, cell};
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
        assert!(verdict(&r, "direct-sync.flush-sent").is_none(), "a kernel that does not count flushes accuses nobody");
        device(&mut r).write_cache = Finding::Known(WriteCache::Through);
        assert!(verdict(&r, "direct-sync.flush-sent").is_none());
    }

    #[test]
    fn dsync_each_way() {
        let says = |dsync| said(&run(20_000.0, 10_000.0, dsync, 1.0), "direct-sync.rwf-dsync");
        assert!(says(20_000.0).1.starts_with("this drive's O_DSYNC is 2.0x faster"));
        assert_eq!(
            says(5_000.0).1,
            "this drive's O_DSYNC is slower than write + fdatasync (2.0x): stay with fdatasync"
        );
        assert_eq!(says(10_000.0).0, Level::CannotTell);
    }

    #[test]
    fn published_column_each_way() {
        let says = |none, with| said(&run(none, with, 1.0, 1.0), "direct-sync.published");
        let (_, off) = says(18_900.0, 10_800.0);
        assert!(off.contains("cache off") && off.contains("222x as fast"), "{off}");
        let (_, on) = says(10_500.0, 10_000.0);
        assert!(on.contains("cache on") && on.contains("as fast"), "{on}");
        let (_, old) = says(110.0, 50.0);
        assert!(old.contains("cache off") && !old.contains("as fast"), "{old}");
        assert_eq!(says(14_000.0, 10_000.0).0, Level::CannotTell);
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
