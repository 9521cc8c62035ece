//! The keys of `seawall.toml`. One function per key; each returns the default with a reason if there is no
//! evidence.

use super::{Key, Recommendation, round_down, write_capacity};
use crate::cell::{Access, Preparation, Sync};
use crate::experiment::append_overwrite::{extend, overwrite_against};
use crate::experiment::baseline::{DEPTHS, random_read};
use crate::experiment::direct_sync::{direct_sync, without_flush};
use crate::experiment::log_memory::log;
use crate::results::Results;
use crate::text;
use crate::verdict::{Answer, Pair, pair};
use seawall_io::probe::{DirectIo, Finding, WriteCache};

/// The engine's own defaults; a test in a crate that has the engine compares them.
const IO_CAPACITY: Key = Key("io_capacity", "2000");
const IO_CAPACITY_BURST: Key = Key("io_capacity_burst", "20000");
const PREFETCH_DEPTH: Key = Key("prefetch_depth", "32");
const PREALLOCATE: Key = Key("preallocate", "written");
const TORN_PAGES: Key = Key("torn_page_protection", "doublewrite");
const DATA_FLUSH_METHOD: Key = Key("data.flush_method", "auto");
const LOG_FLUSH_METHOD: Key = Key("log.flush_method", "auto");
const LOG_BLOCK: Key = Key("log.block_bytes", "4096");

pub(super) fn recommend(results: &Results) -> Vec<Recommendation> {
    let (capacity, burst) = io_capacity(results);
    vec![
        capacity,
        burst,
        prefetch_depth(results),
        preallocate(results),
        torn_pages(results),
        data_flush_method(results),
        log_flush_method(results),
        log_block(results),
    ]
}

/// Whether direct I/O may be used, with the reason when not.
pub(super) fn direct_works(results: &Results) -> Result<(), String> {
    match &results.probe.direct_io {
        Finding::Known(DirectIo::Yes) => Ok(()),
        Finding::Known(other) => Err(format!("O_DIRECT is {other} here")),
        Finding::Unknown(why) => Err(format!("it is not known whether O_DIRECT works here ({why})")),
    }
}

/// Whether skipping flushes of data files is both safe by the drive's report and a measured gain.
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
    let log_like = |preparation, sync| {
        pair(results, &extend(preparation, access, sync), &extend(preparation, access, Sync::Fdatasync))
    };
    log_like(Preparation::Preallocated, Sync::RwfDsync)
        .or_else(|| log_like(Preparation::Written, Sync::RwfDsync))
        .or_else(|| log_like(Preparation::Written, Sync::ODsync))
        .or_else(|| {
            (access == Access::Direct).then_some(())?;
            pair(results, &direct_sync(1, 4096, Sync::RwfDsync), &direct_sync(1, 4096, Sync::Fdatasync))
        })
}

fn data_flush_method(results: &Results) -> Recommendation {
    const KEY: Key = DATA_FLUSH_METHOD;
    if let Finding::Unknown(why) = &results.probe.direct_io {
        return KEY
            .kept(format!("whether O_DIRECT works here is not known ({why}); the engine reports the mode in effect"));
    }
    if let Err(why) = direct_works(results) {
        return KEY.probed("fsync", format!("{why}: buffered writes and fdatasync are honest about it"));
    }
    if let Some(p) = flush_may_be_skipped(results) {
        let because = format!(
            "the drive reports a write-through cache, and leaving out the flush gains {}; growth and checkpoints are \
             still flushed",
            p.times()
        );
        return KEY.measured("o_direct_no_fsync", because);
    }
    let because = "direct I/O works and leaves no pages in the page cache; one fdatasync covers a batch of pages";
    KEY.probed("o_direct", because)
}

fn log_flush_method(results: &Results) -> Recommendation {
    const KEY: Key = LOG_FLUSH_METHOD;
    let direct = direct_works(results);
    let unknown = matches!(results.probe.direct_io, Finding::Unknown(_));
    let prefix = direct.as_ref().err().map_or_else(String::new, |why| format!("{why}; "));
    let (access, flushed, through) = if direct.is_ok() || unknown {
        (Access::Direct, "o_direct", "o_direct_dsync")
    } else {
        (Access::Buffered, "fsync", "o_dsync")
    };
    // Without this setting the engine tries both direct methods in the database's own directory.
    let otherwise = |why: String| {
        let because = format!("{prefix}{why}");
        if access == Access::Direct { KEY.kept(because) } else { KEY.probed(flushed, because) }
    };
    match dsync_against_fdatasync(results, access) {
        None => otherwise("O_DSYNC was not measured against write + fdatasync".into()),
        Some(p) => match (p.answer, dsync_words(&p)) {
            (Answer::More, words) => KEY.measured(through, prefix + &words),
            (Answer::Less, words) => KEY.measured(flushed, prefix + &words),
            (Answer::Same | Answer::Unclear, words) => otherwise(words),
        },
    }
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
    const KEY: Key = LOG_BLOCK;
    let physical = results.probe.device.known().and_then(|d| d.physical_block_bytes.known()).copied();
    let align = results
        .probe
        .direct_align
        .known()
        .map(|a| a.offset_bytes)
        .or_else(|| results.probe.direct_align_tried_bytes.known().copied())
        .unwrap_or(4096);
    let sane = |b: u32| b.is_power_of_two() && (512..=65536).contains(&b);
    let Some(physical) = physical.filter(|b| sane(*b)) else {
        return KEY.kept("the device's physical block is not known");
    };
    let bytes = physical.max(align);
    if bytes > 4096 && sane(bytes) {
        return KEY.probed(
            &bytes.to_string(),
            format!("the device writes blocks of {physical} bytes and takes direct writes aligned to {align}"),
        );
    }
    if physical != 512 || align > 512 {
        return KEY.probed(
            KEY.1,
            format!(
                "the device writes blocks of {physical} bytes: 4096-byte log blocks are never read back to be completed"
            ),
        );
    }
    let Some(p) = pair(results, &log(16, Access::Direct, 512, true), &log(16, Access::Direct, 4096, true)) else {
        return KEY.kept(
            "the device reports 512-byte blocks; whether it means it was not measured (`--full --only log-memory`)",
        );
    };
    let times =
        |times: String, more: &str, less: &str| format!("{more} commit {times} as much as {less} ({})", p.reason());
    match p.answer {
        Answer::More => KEY.measured("512", times(p.times(), "512-byte blocks", "4096-byte ones")),
        Answer::Less => {
            KEY.measured(KEY.1, times(p.times_slower(), "4096-byte blocks", "512-byte ones, whatever the device says,"))
        }
        Answer::Same | Answer::Unclear => KEY.kept(p.in_words("512-byte log blocks", "4096-byte ones")),
    }
}

/// Half of the measured rate for steady background work, so that as much stays for reads and the log; nine
/// tenths under pressure.
fn io_capacity(results: &Results) -> (Recommendation, Recommendation) {
    match write_capacity(results) {
        Ok((low, why)) => {
            let part = |share: f64| round_down((low * share).max(100.0)).to_string();
            let pressed =
                format!("nine tenths of the same when a checkpoint presses ({} writes per second)", text::count(low));
            (
                IO_CAPACITY.measured(&part(0.5), format!("half of it for background writes: {why}")),
                IO_CAPACITY_BURST.measured(&part(0.9), pressed),
            )
        }
        Err(why) => (IO_CAPACITY.kept(why.clone()), IO_CAPACITY_BURST.kept(why)),
    }
}

/// The smallest depth that gives nine tenths of the best measured read rate.
fn prefetch_depth(results: &Results) -> Recommendation {
    const KEY: Key = PREFETCH_DEPTH;
    let measured: Vec<(u32, f64)> = DEPTHS
        .into_iter()
        .filter_map(|d| Some((d, results.cell(&random_read(d))?.rate()?.median)))
        .filter(|(_, rate)| *rate > 0.0)
        .collect();
    let best = measured.iter().map(|(_, r)| *r).fold(0.0, f64::max);
    let (Some(&(first, slowest)), Some(&(deepest, _)), Some(&(depth, rate))) =
        (measured.first(), measured.last(), measured.iter().find(|(_, r)| *r >= 0.9 * best))
    else {
        return KEY.kept("random reads by depth were not measured (run baseline)");
    };
    if deepest == first {
        return KEY.kept(format!("random reads were measured at depth {first} only"));
    }
    match pair(results, &random_read(deepest), &random_read(first)) {
        None => KEY.kept("random reads by depth cannot be compared"),
        Some(p) if p.answer == Answer::More => KEY.measured(
            &depth.to_string(),
            format!(
                "16K random reads: {} per second at depth {depth}, {} at depth {first} ({} from {first} to {deepest})",
                text::count(rate),
                text::count(slowest),
                p.times()
            ),
        ),
        Some(p) => {
            KEY.kept(p.in_words(&format!("random reads at depth {deepest}"), &format!("those at depth {first}")))
        }
    }
}

fn preallocate(results: &Results) -> Recommendation {
    const KEY: Key = PREALLOCATE;
    if let Some(fs) = results.probe.file_system.known().filter(|fs| fs.copy_on_write.is_yes()) {
        let because = format!("{} copies on write: written blocks are given away at the first overwrite", fs.kind);
        return KEY.probed("off", because);
    }
    let Some(p) = overwrite_against(results, Preparation::Append) else {
        return KEY.kept("appending was not measured (run append-overwrite)");
    };
    if p.answer != Answer::More {
        return KEY.kept(format!("{}; preallocating does no harm", p.in_words("overwriting", "appending")));
    }
    let unwritten = match overwrite_against(results, Preparation::Unwritten) {
        Some(u) if u.answer == Answer::More => format!(", and fallocated blocks still cost {}", u.times()),
        _ => String::new(),
    };
    KEY.measured(KEY.1, format!("appending costs {} overwriting{unwritten} ({})", p.times(), p.reason()))
}

fn torn_pages(results: &Results) -> Recommendation {
    const KEY: Key = TORN_PAGES;
    match &results.probe.atomic_writes {
        Finding::Known(limits) if limits.unit_bytes_min <= 16384 && limits.unit_bytes_max >= 16384 => KEY.probed(
            "auto",
            format!(
                "statx reports untorn writes of {} to {} bytes: the engine tries them per file and keeps \
                 doublewrite where they fail",
                limits.unit_bytes_min, limits.unit_bytes_max
            ),
        ),
        Finding::Known(limits) if limits.unit_bytes_max == 0 => KEY.safety("no write here is promised not to tear"),
        Finding::Known(limits) => {
            KEY.safety(format!("untorn writes of at most {} bytes do not hold a 16 KiB page", limits.unit_bytes_max))
        }
        Finding::Unknown(why) => KEY.safety(format!("no proof that a 16 KiB write cannot tear ({why})")),
    }
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
