//! The keys of `seawall.toml`. One function per key; each returns the default with a reason if there is no
//! evidence.
//!
//! - The defaults are the engine's own; a test in a crate that has the engine compares them.

use super::{Recommendation, advise, finding, physical_block, round_down, write_capacity};
use crate::cell::{Access, Preparation, Sync};
use crate::experiment::append_overwrite::{extend, overwrite_against};
use crate::experiment::baseline::{DEPTHS, random_read};
use crate::experiment::direct_sync::{direct_sync, without_flush};
use crate::experiment::log_memory::log;
use crate::results::Results;
use crate::text::{self, vars};
use crate::verdict::{Answer, Pair, pair};
use seawall_io::probe::{DirectIo, Finding, WriteCache};

pub(super) fn recommend(results: &Results) -> Vec<Recommendation> {
    let others: [fn(&Results) -> Recommendation; 6] =
        [prefetch_depth, preallocate, torn_pages, data_flush_method, log_flush_method, log_block];
    io_capacity(results).into_iter().chain(others.map(|key| key(results))).collect()
}

/// Whether direct I/O may be used, with the reason when not.
pub(super) fn direct_works(results: &Results) -> Result<(), String> {
    match &results.probe.direct_io {
        Finding::Known(DirectIo::Yes) => Ok(()),
        Finding::Known(other) => Err(format!("O_DIRECT is {other} here")),
        Finding::Unknown(why) => Err(format!("it is not known whether O_DIRECT works here ({why})")),
    }
}

/// The comparison that allows skipping flushes of data files: safe by the drive's report, and a measured gain.
///
/// Safe: the kernel reports a write-through cache, the file system overwrites in place. A gain: writes
/// without a flush are faster beyond the noise. An unknown cache is volatile.
pub(super) fn flush_may_be_skipped(results: &Results) -> Option<Pair<'_>> {
    // A drive that lost acknowledged writes in a power cut is not believed.
    if results.witness.as_ref().is_some_and(|w| w.lost + w.torn > 0) {
        return None;
    }
    let device = results.probe.device.known()?;
    let in_place = results.probe.file_system.known()?.copy_on_write.known() == Some(&false);
    let through = device.write_cache.known() == Some(&WriteCache::Through);
    if !in_place || !through || device.below.iter().any(|name| !name.is_empty()) {
        return None;
    }
    without_flush(results).filter(|p| p.answer == Answer::More)
}

/// `RWF_DSYNC`/`O_DSYNC` against write + fdatasync, on the cells most similar to a log.
pub(super) fn dsync_against_fdatasync(results: &Results, access: Access) -> Option<Pair<'_>> {
    let log_like =
        |preparation, sync| pair(results, [sync, Sync::Fdatasync].map(|sync| extend(preparation, access, sync)));
    let random = || pair(results, [Sync::RwfDsync, Sync::Fdatasync].map(|sync| direct_sync(1, 4096, sync)));
    log_like(Preparation::Preallocated, Sync::RwfDsync)
        .or_else(|| log_like(Preparation::Written, Sync::RwfDsync))
        .or_else(|| log_like(Preparation::Written, Sync::ODsync))
        .or_else(|| random().filter(|_| access == Access::Direct))
}

fn data_flush_method(results: &Results) -> Recommendation {
    const KEY: &str = "data.flush_method";
    if let Finding::Unknown(why) = &results.probe.direct_io {
        return advise(None, KEY, "unknown", vars![why]);
    }
    if let Err(why) = direct_works(results) {
        return advise(None, KEY, "buffered", vars![why]);
    }
    match flush_may_be_skipped(results).map(|p| p.times()) {
        Some(times) => advise(None, KEY, "no-flush", vars![times]),
        None => advise(None, KEY, "direct", &[]),
    }
}

fn log_flush_method(results: &Results) -> Recommendation {
    let direct = direct_works(results);
    let unknown = matches!(results.probe.direct_io, Finding::Unknown(_));
    let (access, flushed, through) = if direct.is_ok() || unknown {
        (Access::Direct, "o_direct", "o_direct_dsync")
    } else {
        (Access::Buffered, "fsync", "o_dsync")
    };
    let p = dsync_against_fdatasync(results, access);
    let words = p.map_or_else(|| "O_DSYNC was not measured against write + fdatasync".into(), |p| dsync_words(&p));
    let refused = direct.err().map_or_else(String::new, |why| format!("{why}; "));
    // Without this setting the engine tries both direct methods in the database's own directory.
    let kept = if access == Access::Direct { "kept" } else { "buffered" };
    let finding = finding(p.as_ref(), ["through", "flushed", kept, kept]);
    advise(None, "log.flush_method", finding, vars![through, flushed, refused, words])
}

/// How `O_DSYNC` compares, as a reason.
pub(super) fn dsync_words(p: &Pair<'_>) -> String {
    match p.answer {
        Answer::More => format!("O_DSYNC is {} faster than write + fdatasync ({})", p.times(), p.reason()),
        Answer::Less => format!("O_DSYNC is {} slower than write + fdatasync ({})", p.times_slower(), p.reason()),
        Answer::Same | Answer::Unclear => p.in_words("O_DSYNC", "write + fdatasync"),
    }
}

/// The smallest log block that causes no read-modify-write: the physical block, never below the alignment of
/// direct I/O.
fn log_block(results: &Results) -> Recommendation {
    const KEY: &str = "log.block_bytes";
    let probe = &results.probe;
    let align = probe.direct_align.known().map(|a| a.offset_bytes);
    let align = align.or_else(|| probe.direct_align_tried_bytes.known().copied()).unwrap_or(4096);
    let sane = |b: u32| b.is_power_of_two() && (512..=65536).contains(&b);
    let Some(physical) = physical_block(results).filter(|b| sane(*b)) else { return advise(None, KEY, "unknown", &[]) };
    let bytes = physical.max(align);
    if bytes > 4096 && sane(bytes) {
        return advise(None, KEY, "large", vars![bytes, physical, align]);
    }
    if physical != 512 || align > 512 {
        return advise(None, KEY, "whole", vars![physical]);
    }
    let Some(p) = pair(results, [512, 4096].map(|block| log(16, Access::Direct, block, true))) else {
        return advise(None, KEY, "unmeasured", &[]);
    };
    let finding = finding(Some(&p), ["small-faster", "small-slower", "alike", "unmeasured"]);
    let words = p.in_words("512-byte log blocks", "4096-byte ones");
    advise(None, KEY, finding, vars![times = p.times(), times_slower = p.times_slower(), rates = p.reason(), words])
}

/// Half of the measured rate for steady background work, which leaves the other half for reads and the log; nine tenths
/// under pressure.
fn io_capacity(results: &Results) -> [Recommendation; 2] {
    const KEYS: [&str; 2] = ["io_capacity", "io_capacity_burst"];
    let (low, why) = match write_capacity(results) {
        Ok(measured) => measured,
        Err(why) => return KEYS.map(|key| advise(None, key, "unknown", vars![why])),
    };
    let [half, most] = [0.5, 0.9].map(|share| round_down((low * share).max(100.0)));
    KEYS.map(|key| advise(None, key, "measured", vars![half, most, low = text::count(low), why]))
}

/// The smallest depth that gives nine tenths of the best measured read rate.
fn prefetch_depth(results: &Results) -> Recommendation {
    const KEY: &str = "prefetch_depth";
    let median = |depth| Some((depth, results.cell(&random_read(depth))?.median()?));
    let measured: Vec<(u32, f64)> = DEPTHS.into_iter().filter_map(median).filter(|(_, rate)| *rate > 0.0).collect();
    let best = measured.iter().map(|(_, r)| *r).fold(0.0, f64::max);
    let (Some(&(first, slowest)), Some(&(deepest, _)), Some(&(depth, rate))) =
        (measured.first(), measured.last(), measured.iter().find(|(_, r)| *r >= 0.9 * best))
    else {
        return advise(None, KEY, "unmeasured", &[]);
    };
    if deepest == first {
        return advise(None, KEY, "one-depth", vars![first]);
    }
    let Some(p) = pair(results, [deepest, first].map(random_read)) else {
        return advise(None, KEY, "incomparable", &[]);
    };
    if p.answer != Answer::More {
        let words = p.in_words(&format!("random reads at depth {deepest}"), &format!("those at depth {first}"));
        return advise(None, KEY, "alike", vars![words]);
    }
    let (rate, slowest, times) = (text::count(rate), text::count(slowest), p.times());
    advise(None, KEY, "measured", vars![rate, depth, slowest, first, times, deepest])
}

fn preallocate(results: &Results) -> Recommendation {
    const KEY: &str = "preallocate";
    if let Some(fs) = results.probe.file_system.known().filter(|fs| fs.copy_on_write.is_yes()) {
        return advise(None, KEY, "copies", vars![kind = fs.kind]);
    }
    let Some(p) = overwrite_against(results, Preparation::Append) else { return advise(None, KEY, "unmeasured", &[]) };
    if p.answer != Answer::More {
        return advise(None, KEY, "harmless", vars![words = p.in_words("overwriting", "appending")]);
    }
    let unwritten = match overwrite_against(results, Preparation::Unwritten) {
        Some(u) if u.answer == Answer::More => format!(", and fallocated blocks still cost {}", u.times()),
        _ => String::new(),
    };
    advise(None, KEY, "measured", vars![times = p.times(), unwritten, rates = p.reason()])
}

fn torn_pages(results: &Results) -> Recommendation {
    const KEY: &str = "torn_page_protection";
    let limits = match &results.probe.atomic_writes {
        Finding::Known(limits) => limits,
        Finding::Unknown(why) => return advise(None, KEY, "unknown", vars![why]),
    };
    let (min, max) = (limits.unit_bytes_min, limits.unit_bytes_max);
    let finding = match max {
        16_384.. if min <= 16_384 => "untorn",
        0 => "none",
        _ => "small",
    };
    advise(None, KEY, finding, vars![min, max])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use crate::sample::{self, cell};
    use crate::settings::Confidence;
    use seawall_io::probe::{AtomicWrites, BlockDevice};

    fn device(results: &mut Results) -> &mut BlockDevice {
        match &mut results.probe.device {
            Finding::Known(device) => device,
            Finding::Unknown(_) => panic!("sample knows its device"),
        }
    }

    fn get(results: &Results, key: &str) -> (String, Confidence) {
        let r = recommend(results).into_iter().find(|r| r.key == key).unwrap();
        (r.value, r.confidence)
    }

    fn e1(none: f64, fdatasync: f64, dsync: f64) -> Results {
        sample::results(vec![
            cell(plan::direct_sync(1, 4096, Sync::None), none),
            cell(plan::direct_sync(1, 4096, Sync::Fdatasync), fdatasync),
            cell(plan::direct_sync(1, 4096, Sync::RwfDsync), dsync),
        ])
    }

    #[test]
    fn log_method_follows_the_measurement_and_the_probe() {
        let says = |r: &Results| get(r, "log.flush_method");
        assert_eq!(says(&e1(2e4, 1e4, 2e4)), ("o_direct_dsync".into(), Confidence::Measured));
        assert_eq!(says(&e1(2e4, 1e4, 5e3)), ("o_direct".into(), Confidence::Measured));
        assert_eq!(says(&e1(2e4, 1e4, 1e4)), ("auto".into(), Confidence::DefaultKept));
        let mut r = e1(2e4, 1e4, 2e4);
        r.probe.direct_io = Finding::Known(DirectIo::Refused);
        assert_eq!(says(&r).0, "fsync");
        r.cells.push(cell(extend(Preparation::Written, Access::Buffered, Sync::ODsync), 2e4));
        r.cells.push(cell(extend(Preparation::Written, Access::Buffered, Sync::Fdatasync), 1e4));
        assert_eq!(says(&r).0, "o_dsync");
        r.probe.direct_io = Finding::unknown("no trial");
        assert_eq!(says(&r).0, "o_direct_dsync");
    }

    #[test]
    fn flushes_are_skipped_only_with_a_write_through_cache_and_a_gain() {
        let mut r = e1(2e4, 1e4, 1e4);
        assert_eq!(get(&r, "data.flush_method").0, "o_direct");
        device(&mut r).write_cache = Finding::unknown("sysfs");
        assert_eq!(get(&r, "data.flush_method").0, "o_direct");
        device(&mut r).write_cache = Finding::Known(WriteCache::Through);
        assert_eq!(get(&r, "data.flush_method").0, "o_direct_no_fsync");
        let mut lost = r.clone();
        lost.witness = Some(crate::results::WitnessOutcome {
            acknowledged: 9,
            lost: 1,
            torn: 0,
            reordered: 0,
            verified: String::new(),
        });
        assert_eq!(get(&lost, "data.flush_method").0, "o_direct");
        // On a stack of devices the report is that of the upper device.
        device(&mut r).below = vec!["sda".into()];
        assert_eq!(get(&r, "data.flush_method").0, "o_direct");
        let mut no_gain = e1(1e4, 1e4, 1e4);
        device(&mut no_gain).write_cache = Finding::Known(WriteCache::Through);
        assert_eq!(get(&no_gain, "data.flush_method").0, "o_direct");
        no_gain.probe.direct_io = Finding::Known(DirectIo::SilentlyBuffered);
        assert_eq!(get(&no_gain, "data.flush_method"), ("fsync".into(), Confidence::Probed));
    }

    #[test]
    fn log_block_is_never_smaller_than_the_device_writes() {
        let mut r = sample::results(vec![]);
        assert_eq!(get(&r, "log.block_bytes"), ("4096".into(), Confidence::Probed));
        device(&mut r).physical_block_bytes = Finding::Known(16384);
        assert_eq!(get(&r, "log.block_bytes").0, "16384");
        device(&mut r).physical_block_bytes = Finding::unknown("sysfs");
        assert_eq!(get(&r, "log.block_bytes"), ("4096".into(), Confidence::DefaultKept));
        device(&mut r).physical_block_bytes = Finding::Known(512);
        assert_eq!(get(&r, "log.block_bytes"), ("4096".into(), Confidence::DefaultKept));
        for (rate, expect) in [(2e4, "512"), (5e3, "4096"), (1e4, "4096")] {
            let mut r = r.clone();
            r.cells.push(cell(log(16, Access::Direct, 512, true), rate));
            r.cells.push(cell(log(16, Access::Direct, 4096, true), 1e4));
            assert_eq!(get(&r, "log.block_bytes").0, expect);
        }
    }

    #[test]
    fn capacity_and_depth_follow_the_measurement() {
        let mut r = sample::results(vec![
            cell(plan::parallel(8, crate::cell::Beside::Nothing), 40_000.0),
            cell(plan::random_read(1), 15_000.0),
            cell(plan::random_read(16), 44_000.0),
            cell(plan::random_read(64), 46_000.0),
        ]);
        assert_eq!(get(&r, "io_capacity"), ("19000".into(), Confidence::Measured));
        assert_eq!(get(&r, "io_capacity_burst").0, "34000");
        assert_eq!(get(&r, "prefetch_depth").0, "16");
        let mut series = vec![40_000; 240];
        series.extend(vec![3_000; 240]);
        r.sustain = Some(crate::results::Sustain { title: "writes".into(), per_second: series, plateaus: vec![] });
        assert_eq!(get(&r, "io_capacity").0, "1500");
        // Writes that were called direct and went to memory.
        for buffered in [Finding::Known(DirectIo::SilentlyBuffered), Finding::unknown("no trial")] {
            let mut r = r.clone();
            r.probe.direct_io = buffered;
            assert_eq!(get(&r, "io_capacity"), ("2000".into(), Confidence::DefaultKept));
        }
        r.run.rate = Some(100.0);
        assert_eq!(get(&r, "io_capacity"), ("2000".into(), Confidence::DefaultKept));
        assert_eq!(get(&sample::results(vec![]), "prefetch_depth"), ("32".into(), Confidence::DefaultKept));
        let flat = sample::results(vec![cell(plan::random_read(1), 3_000.0), cell(plan::random_read(32), 3_000.0)]);
        assert_eq!(get(&flat, "prefetch_depth"), ("32".into(), Confidence::DefaultKept));
    }

    #[test]
    fn pages_are_protected_unless_proven() {
        let mut r = sample::results(vec![]);
        assert_eq!(get(&r, "torn_page_protection").0, "doublewrite");
        r.probe.atomic_writes = Finding::Known(AtomicWrites { unit_bytes_min: 4096, unit_bytes_max: 8192 });
        assert_eq!(get(&r, "torn_page_protection").0, "doublewrite");
        r.probe.atomic_writes = Finding::Known(AtomicWrites { unit_bytes_min: 4096, unit_bytes_max: 65536 });
        assert_eq!(get(&r, "torn_page_protection").0, "auto");
    }

    #[test]
    fn preallocation_each_way() {
        let says = |append: f64| {
            let cells = vec![
                cell(extend(Preparation::Written, Access::Buffered, Sync::Fdatasync), 1e4),
                cell(extend(Preparation::Append, Access::Buffered, Sync::Fdatasync), append),
            ];
            get(&sample::results(cells), "preallocate")
        };
        assert_eq!(says(3e3), ("written".into(), Confidence::Measured));
        assert_eq!(says(1e4), ("written".into(), Confidence::DefaultKept));
        let mut r = sample::results(vec![]);
        if let Finding::Known(fs) = &mut r.probe.file_system {
            fs.copy_on_write = Finding::Known(true);
        }
        assert_eq!(get(&r, "preallocate").0, "off");
    }
}
