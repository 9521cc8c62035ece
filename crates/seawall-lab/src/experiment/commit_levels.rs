//! E5: the cost of a level of commit durability, by load and flush method, beside the published cost.
//!
//! - A read-only load commits nothing, so neither level nor `O_DSYNC` can affect it: its differences are the noise of
//!   these cells. It gets one verdict, on the noise. A difference elsewhere counts only if it exceeds the noise.
//! - For every gain of a level, the reason states the possible loss.

use super::definition::Definition;
use crate::cell::{CellSpec, EngineShape, Experiment, FlushMethod, Level, Pattern};
use crate::evidence::{Bar, Evidence, Panel};
use crate::results::{CellResult, Results};
use crate::stats::Estimate;
use crate::text::{self, vars};
use crate::verdict::{Answer, Pair, Writer, pair};

pub(crate) static EXPERIMENT: Definition =
    Definition { toml: include_str!("commit_levels.toml"), cells, conclude: &[conclude], evidence };

/// Threads of the cells of E5, and of the commits under settings.
pub const COMMIT_THREADS: u32 = 4;
/// The loads, as published: sysbench simple, sysbench complex, DBT-2.
pub(crate) const LOADS: [Pattern; 3] = [Pattern::ReadOnly, Pattern::Transactional, Pattern::Tpcc];
/// The published flush methods: fdatasync, `O_DSYNC`, `O_DIRECT`; and the one of the full run.
const METHODS: [FlushMethod; 4] =
    [FlushMethod::Fsync, FlushMethod::ODsync, FlushMethod::ODirect, FlushMethod::ODirectDsync];
/// The method used to judge levels: the engine's own default family.
const METHOD: FlushMethod = FlushMethod::ODirect;
/// From this many device writes per transaction on, a read-only load was not alone on the device.
const WRITES_MIN: f64 = 0.01;

/// A load on the engine at a level of commit durability, with a flush method for data and log.
///
/// ```
/// use seawall_lab::{cell::{FlushMethod, Level, Pattern}, plan};
/// let cell = plan::commit_levels(Pattern::Tpcc, FlushMethod::ODirect, Level::Written);
/// assert_eq!(cell.id(), "e5/tpcc/o_direct/written/t4");
/// assert_eq!(cell.title(), "TPC-C, o_direct, Written (2), 4 threads");
/// ```
pub fn commit_levels(load: Pattern, method: FlushMethod, level: Level) -> CellSpec {
    CellSpec {
        pattern: load,
        block_bytes: 16 << 10,
        threads: COMMIT_THREADS,
        access: method.access(),
        engine: Some(EngineShape { level: Some(level), method: Some(method), ..EngineShape::default() }),
        ..CellSpec::new(Experiment::CommitLevels)
    }
}

fn cells(full: bool) -> Vec<CellSpec> {
    let methods = if full { &METHODS[..] } else { &METHODS[..3] };
    let of = |load| methods.iter().flat_map(move |m| Level::ALL.map(|level| commit_levels(load, *m, level)));
    LOADS.into_iter().flat_map(of).collect()
}

/// The published gain of level 2 over level 1 under a load.
pub(crate) fn published_gain(load: Pattern) -> &'static str {
    match load {
        Pattern::Tpcc => "under 10%",
        Pattern::Transactional => "over 40%",
        _ => "none",
    }
}

fn conclude(results: &Results, w: &mut Writer<'_>) {
    let noise = noise(results);
    for load in [Pattern::Transactional, Pattern::Tpcc] {
        for level in [Level::Written, Level::Deferred] {
            level_against_flushed(results, load, level, noise, w);
        }
        for method in [FlushMethod::ODsync, FlushMethod::ODirect] {
            method_against_fsync(results, load, method, noise, w);
        }
    }
    confounder(results, noise, w);
}

/// Pairs of read-only cells that cannot differ: two levels with one flush method, or `O_DSYNC` and fdatasync, which
/// both use the page cache, at one level.
fn alike() -> Vec<[CellSpec; 2]> {
    let cell = |method, level| commit_levels(Pattern::ReadOnly, method, level);
    let weaker = |method: FlushMethod| {
        [Level::Written, Level::Deferred].map(|level| [level, Level::Flushed].map(|level| cell(method, level)))
    };
    let o_dsync = Level::ALL.map(|level| [FlushMethod::ODsync, FlushMethod::Fsync].map(|method| cell(method, level)));
    METHODS[..3].iter().flat_map(|method| weaker(*method)).chain(o_dsync).collect()
}

/// The noise of these cells: how far apart read-only cells are that cannot differ, as a share; the median over their
/// pairs. `None` when no such pair was measured.
fn noise(results: &Results) -> Option<f64> {
    let off: Vec<f64> = alike().into_iter().filter_map(|specs| Some(apart(&pair(results, specs)?))).collect();
    Estimate::of(&off).map(|off| off.median)
}

/// How far two cells are apart, as a share, in either direction.
fn apart(p: &Pair<'_>) -> f64 {
    p.ratio.median.max(1.0 / p.ratio.median) - 1.0
}

/// Explains why a difference does not count because it does not exceed the noise; `None` if it counts.
fn hidden(p: &Pair<'_>, noise: Option<f64>) -> Option<String> {
    let noise = noise.filter(|noise| p.answer != Answer::Same && apart(p) <= *noise)?;
    Some(format!("{} the rate, and read-only cells that cannot differ are {} apart", p.times(), text::percent(noise)))
}

fn level_against_flushed(results: &Results, load: Pattern, level: Level, noise: Option<f64>, w: &mut Writer<'_>) {
    let specs = [level, Level::Flushed].map(|level| commit_levels(load, METHOD, level));
    let Some(p) = pair(results, specs) else { return };
    let published = match level {
        Level::Written => format!("published: {}", published_gain(load)),
        _ => "level 0 was not measured there".to_owned(),
    };
    let vars = vars![level, load, name = level.name(), load_is = load.words(), loss = level.loss(), published];
    w.compare_as("level", &p, p.answer.word(), hidden(&p, noise), vars);
}

fn method_against_fsync(results: &Results, load: Pattern, method: FlushMethod, noise: Option<f64>, w: &mut Writer<'_>) {
    let specs = [method, FlushMethod::Fsync].map(|method| commit_levels(load, method, Level::Flushed));
    let Some(p) = pair(results, specs) else { return };
    let published = if method == FlushMethod::ODsync { "slower" } else { "equal" };
    let vars = vars![method, load, load_is = load.words(), published];
    w.compare_as("method", &p, p.answer.word(), hidden(&p, noise), vars);
}

/// `O_DSYNC` under a read-only load: the publication found it slower, which it cannot be.
fn confounder(results: &Results, noise: Option<f64>, w: &mut Writer<'_>) {
    let specs = [FlushMethod::ODsync, FlushMethod::Fsync].map(|m| commit_levels(Pattern::ReadOnly, m, Level::Flushed));
    let (Some(p), Some(noise)) = (pair(results, specs), noise) else { return };
    let writes = |c: &CellResult| {
        let issued: u64 = c.rounds.iter().map(|r| r.writes_issued).sum();
        if c.operations() == 0 { 0.0 } else { issued as f64 / c.operations() as f64 }
    };
    let read_only = results.cells_of(Experiment::CommitLevels).filter(|c| c.spec.pattern == Pattern::ReadOnly);
    let issued = read_only.map(writes).fold(0.0, f64::max);
    let (apart, rates, times) = (text::percent(noise), p.reason(), p.times());
    let [most, writes] = [format!("{issued:.4}"), format!("{issued:.2}")];
    let outcome = match p.answer {
        _ if issued >= WRITES_MIN => "writes",
        Answer::Same => "same",
        _ => "noise",
    };
    w.say("confounder", outcome, vars![rates, apart, most, writes, times]);
}

/// Describes the gain of `level` (2 or 0) over level 1 under the transactional load, for a user who has chosen that
/// level.
pub(crate) fn measured_gain(results: &Results, level: Level) -> Option<String> {
    let p = pair(results, [level, Level::Flushed].map(|l| commit_levels(Pattern::Transactional, METHOD, l)))?;
    Some(format!("in this engine on this disk it made {} the transactions of level 1 ({})", p.times(), p.reason()))
}

fn evidence(e: &Evidence<'_>) -> Vec<Option<Panel>> {
    let mut panels: Vec<Option<Panel>> = LOADS.iter().map(|load| rates(e, *load)).collect();
    panels.push(gains(e));
    if panels.iter().any(Option::is_some) {
        let losses = Level::ALL.map(|level| vec![level.name(), level.loss().to_owned()]);
        panels.push(e.table("losses", &[], losses.into()));
    }
    panels
}

fn rates(e: &Evidence<'_>, load: Pattern) -> Option<Panel> {
    let bars = e.cells().filter(|c| c.spec.pattern == load).filter_map(|cell| {
        let (method, level) = cell.spec.engine.and_then(|e| e.method.zip(e.level))?;
        let series = Level::ALL.iter().position(|l| *l == level).unwrap_or_default();
        Bar::rate(cell, format!("{}, level {}", method.word(), level.number()), series)
    });
    let apart = noise(e.results).map(text::percent);
    let key = match load {
        Pattern::ReadOnly if apart.is_none() => "read-only-once",
        Pattern::ReadOnly => "read-only",
        Pattern::Transactional => "transactional",
        _ => "tpcc",
    };
    e.bars(key, vars![apart = apart.unwrap_or_default()], bars.collect())
}

/// The gains of levels 2 and 0 over 1 under each load, beside the published gain.
fn gains(e: &Evidence<'_>) -> Option<Panel> {
    let gain = |load: Pattern, method: FlushMethod, level: Level| {
        let [weaker, flushed] = [level, Level::Flushed].map(|level| commit_levels(load, method, level));
        let ratio = e.results.compare(&weaker, &flushed).filter(|r| r.median.is_finite())?;
        let [gain, low, high] =
            [ratio.median, ratio.low, ratio.high].map(|ratio| format!("{:+.0}%", (ratio - 1.0) * 100.0));
        Some(format!("{gain} ({low} to {high})"))
    };
    let mut rows = Vec::new();
    for load in [Pattern::Transactional, Pattern::Tpcc] {
        for method in METHODS {
            let gains = [Level::Written, Level::Deferred].map(|level| gain(load, method, level));
            if gains.iter().any(Option::is_some) {
                let name = format!("{}, {}", load.words(), method.word());
                let [written, deferred] = gains.map(|gain| text::or_missing(gain, |gain| gain));
                rows.push(vec![name, written, published_gain(load).into(), deferred, "not measured".into()]);
            }
        }
    }
    e.table("gains", &[], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, cell};
    use crate::verdict::Level as Judged;
    use crate::verdict::testing::{noisy, said, verdict};

    fn of(load: Pattern, method: FlushMethod, level: Level, rate: f64) -> CellResult {
        cell(commit_levels(load, method, level), rate)
    }

    /// Read-only cells that differ because the machine is noisy.
    fn scattered(off: f64) -> Vec<CellResult> {
        let mut cells = Vec::new();
        for method in [FlushMethod::Fsync, FlushMethod::ODsync, FlushMethod::ODirect] {
            for (level, rate) in Level::ALL.into_iter().zip([1e5, 1e5 * off, 1e5 / off]) {
                cells.push(of(Pattern::ReadOnly, method, level, rate));
            }
        }
        cells
    }

    /// Read-only cells that are alike except for `off`.
    fn read_only(off: f64) -> Vec<CellResult> {
        let mut cells = Vec::new();
        for method in [FlushMethod::Fsync, FlushMethod::ODsync, FlushMethod::ODirect] {
            for level in Level::ALL {
                let apart = method == FlushMethod::ODsync && level == Level::Flushed;
                cells.push(of(Pattern::ReadOnly, method, level, 1e5 * if apart { off } else { 1.0 }));
            }
        }
        cells
    }

    #[test]
    fn levels_each_way_with_what_may_be_lost() {
        for (load, published) in [(Pattern::Transactional, "over 40%"), (Pattern::Tpcc, "under 10%")] {
            let run = |rate| {
                let mut cells = read_only(1.0);
                cells.push(of(load, METHOD, Level::Flushed, 1e4));
                cells.push(of(load, METHOD, Level::Written, rate));
                cells.push(of(load, METHOD, Level::Deferred, rate));
                sample::results(cells)
            };
            let says = |rate, level: Level| {
                let v = verdict(&run(rate), &format!("commit-levels.{}.{}", level.word(), load.word())).unwrap();
                (v.level, v.sentence, v.reason)
            };
            let (judged, sentence, reason) = says(1.8e4, Level::Written);
            assert_eq!(judged, Judged::Note);
            assert!(sentence.contains("1.80x") && reason.contains(published), "{sentence}");
            assert!(reason.contains("nothing when the process dies, at most the last second"), "{reason}");
            let (_, _, reason) = says(1.8e4, Level::Deferred);
            assert!(reason.contains("level 0 was not measured there"), "{reason}");
            assert!(reason.contains("at most the last second (flush_interval), when the process dies"), "{reason}");
            assert_eq!(says(1e4, Level::Written).0, Judged::Good);
            assert_eq!(says(5e3, Level::Written).0, Judged::Warning);
        }
    }

    #[test]
    fn a_difference_within_the_noise_of_read_only_cells_is_none() {
        let mut cells = scattered(0.6);
        cells.push(of(Pattern::Tpcc, METHOD, Level::Flushed, 1e4));
        cells.push(of(Pattern::Tpcc, METHOD, Level::Written, 1.3e4));
        let v = verdict(&sample::results(cells), "commit-levels.written.tpcc").unwrap();
        assert_eq!(v.level, Judged::CannotTell);
        assert!(v.reason.contains("1.30x the rate") && v.reason.contains("are 67% apart"), "{}", v.reason);
        let noisy_cells = vec![
            noisy(commit_levels(Pattern::Tpcc, METHOD, Level::Written), 1e4),
            of(Pattern::Tpcc, METHOD, Level::Flushed, 1e4),
        ];
        assert_eq!(said(&sample::results(noisy_cells), "commit-levels.written.tpcc").0, Judged::CannotTell);
    }

    #[test]
    fn methods_each_way() {
        for (method, id, published) in
            [(FlushMethod::ODsync, "o_dsync", "slower"), (FlushMethod::ODirect, "o_direct", "equal")]
        {
            let says = |rate| {
                let cells = vec![
                    of(Pattern::Transactional, method, Level::Flushed, rate),
                    of(Pattern::Transactional, FlushMethod::Fsync, Level::Flushed, 1e4),
                ];
                let v = verdict(&sample::results(cells), &format!("commit-levels.{id}.transactional")).unwrap();
                format!("{}; {}", v.sentence, v.reason)
            };
            assert!(says(2e4).contains("makes 2.0x the transactions of fsync"), "{}", says(2e4));
            assert!(says(5e3).contains("2.0x slower than fsync"));
            assert!(says(1e4).contains("as fast as fsync") && says(1e4).contains(published));
        }
    }

    #[test]
    fn o_dsync_is_never_said_to_slow_reads() {
        let (judged, sentence) = said(&sample::results(read_only(1.0)), "commit-levels.confounder");
        assert_eq!(judged, Judged::Good);
        assert!(sentence.contains("does not slow a read-only load"), "{sentence}");
        let (judged, sentence) = said(&sample::results(read_only(0.5)), "commit-levels.confounder");
        assert_eq!(judged, Judged::CannotTell);
        assert!(sentence.contains("0.50x") && sentence.contains("that is noise"), "{sentence}");
        let mut r = sample::results(read_only(0.5));
        r.cells[0].rounds.iter_mut().for_each(|round| round.writes_issued = round.operations);
        assert_eq!(said(&r, "commit-levels.confounder").0, Judged::Warning, "something wrote");
        assert!(verdict(&r, "commit-levels.o_dsync.read-only").is_none(), "said once");
        assert!(verdict(&r, "commit-levels.written.read-only").is_none(), "a level cannot matter to reads");
        assert!(verdict(&sample::results(vec![]), "commit-levels.confounder").is_none());
    }
}
