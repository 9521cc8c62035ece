//! E5: the cost of a level of commit durability, by load and flush method, beside the published cost.
//!
//! - A read-only load commits nothing, so neither level nor `O_DSYNC` can affect it: differences there are
//!   the noise of these cells, and a difference elsewhere counts only beyond it.
//! - For every gain of a level, the sentence states the possible loss.

use super::{Answer, Level as Judged, Pair, Verdict, Writer, pair};
use crate::cell::{CellSpec, Experiment, FlushMethod, Level, Pattern};
use crate::plan::{COMMIT_LOADS, PUBLISHED_METHODS, commit_levels};
use crate::published;
use crate::results::{CellResult, Results};
use crate::stats::Estimate;

/// The method used to judge levels: the engine's own default family.
const METHOD: FlushMethod = FlushMethod::ODirect;
/// From this many device writes per transaction on, a read-only load was not alone on the device.
const WRITES_MIN: f64 = 0.01;

pub(super) fn verdicts(results: &Results, out: &mut Vec<Verdict>) {
    let mut w = Writer { out, experiment: Some(Experiment::CommitLevels) };
    let noise = noise(results);
    for load in COMMIT_LOADS {
        for level in [Level::Written, Level::Deferred] {
            level_against_flushed(results, load, level, noise, &mut w);
        }
    }
    for load in COMMIT_LOADS {
        for method in [FlushMethod::ODsync, FlushMethod::ODirect] {
            method_against_fsync(results, load, method, noise, &mut w);
        }
    }
    confounder(results, noise, &mut w);
}

/// The load's name in sentences.
pub(crate) fn load_name(load: Pattern) -> &'static str {
    match load {
        Pattern::ReadOnly => "read-only",
        Pattern::Transactional => "transactional",
        Pattern::Tpcc => "TPC-C",
        other => other.word(),
    }
}

/// Pairs of read-only cells that cannot differ: of one way through the page cache, and of one method.
fn alike() -> Vec<(CellSpec, CellSpec)> {
    let cell = |method, level| commit_levels(Pattern::ReadOnly, method, level);
    let mut pairs = Vec::new();
    for method in PUBLISHED_METHODS {
        for level in [Level::Written, Level::Deferred] {
            pairs.push((cell(method, level), cell(method, Level::Flushed)));
        }
    }
    for level in Level::ALL {
        pairs.push((cell(FlushMethod::ODsync, level), cell(FlushMethod::Fsync, level)));
    }
    pairs
}

/// The noise of these cells: how far read-only cells that cannot differ do so, as a share, in the median over
/// their pairs. `None` when no such pair was measured.
pub(crate) fn noise(results: &Results) -> Option<f64> {
    let pairs = alike();
    let off: Vec<f64> = pairs.iter().filter_map(|(a, b)| pair(results, a, b)).map(|p| apart(&p)).collect();
    Estimate::of(&off).map(|off| off.median)
}

/// How far two cells are apart, as a share, in either direction.
fn apart(p: &Pair<'_>) -> f64 {
    p.ratio.median.max(1.0 / p.ratio.median) - 1.0
}

/// The answer, with differences up to the noise treated as none.
fn beyond(p: &Pair<'_>, noise: Option<f64>) -> Answer {
    match p.answer {
        Answer::More | Answer::Less if noise.is_some_and(|noise| apart(p) <= noise) => Answer::Unclear,
        answer => answer,
    }
}

/// Why there is no answer.
fn unclear(p: &Pair<'_>, noise: Option<f64>, a: &str, b: &str) -> String {
    match noise {
        Some(noise) if matches!(p.answer, Answer::More | Answer::Less) => format!(
            "cannot tell {a} from {b}: {} the rate, and read-only cells that cannot differ are {} apart",
            p.times(),
            percent(noise)
        ),
        _ => p.cannot_tell(a, b),
    }
}

/// A share as `4%`, with a decimal if small.
fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value < 10.0 { format!("{value:.1}%") } else { format!("{value:.0}%") }
}

fn level_against_flushed(results: &Results, load: Pattern, level: Level, noise: Option<f64>, w: &mut Writer<'_>) {
    let Some(p) = pair(results, &commit_levels(load, METHOD, level), &commit_levels(load, METHOD, Level::Flushed))
    else {
        return;
    };
    let published = match published::level_gain(load, level) {
        Some(gain) => format!("published: {gain}"),
        None => "level 0 was not measured there".to_owned(),
    };
    let (name, load_is) = (level.name(), load_name(load));
    let at_stake = format!("may be lost: {}", level.loss());
    let reason = format!("{}; {published}; {at_stake}", p.reason());
    let (judged, sentence) = if load == Pattern::ReadOnly {
        // Nothing is committed: any difference is noise, and the confounder's verdict covers it.
        match beyond(&p, noise) {
            Answer::Same => (Judged::Good, format!("{name} gains a read-only load nothing, as it must ({published})")),
            _ => (
                Judged::CannotTell,
                format!(
                    "{name} cannot matter to a read-only load: {} the rate of level 1 is noise ({published})",
                    p.times()
                ),
            ),
        }
    } else {
        match beyond(&p, noise) {
            Answer::More => (
                Judged::Note,
                format!(
                    "under a {load_is} load {name} makes {} the transactions of level 1 ({published}); for that, {at_stake}",
                    p.times()
                ),
            ),
            Answer::Less => (
                Judged::Warning,
                format!("{name} is {} slower than level 1 under a {load_is} load: keep level 1", p.times_slower()),
            ),
            Answer::Same => {
                (Judged::Good, format!("a {load_is} load gains nothing from {name} here ({published}): keep level 1"))
            }
            Answer::Unclear => (
                Judged::CannotTell,
                format!("{load_is} load: {} ({published})", unclear(&p, noise, name, "level 1 (Flushed)")),
            ),
        }
    };
    w.add(&format!("{}.{}", level.word(), load.word()), judged, sentence, reason, &p.cells());
}

fn method_against_fsync(results: &Results, load: Pattern, method: FlushMethod, noise: Option<f64>, w: &mut Writer<'_>) {
    let (a, b) = (commit_levels(load, method, Level::Flushed), commit_levels(load, FlushMethod::Fsync, Level::Flushed));
    if load == Pattern::ReadOnly && method == FlushMethod::ODsync {
        // Covered by the confounder's verdict.
        return;
    }
    let Some(p) = pair(results, &a, &b) else { return };
    let published = if method == FlushMethod::ODsync { "published: slower" } else { "published: equal" };
    let (name, load_is) = (method.word(), load_name(load));
    let (judged, sentence) = match beyond(&p, noise) {
        Answer::More => (
            Judged::Note,
            format!("under a {load_is} load {name} makes {} the transactions of fsync ({published})", p.times()),
        ),
        Answer::Less => (
            Judged::Note,
            format!("{name} is {} slower than fsync under a {load_is} load ({published})", p.times_slower()),
        ),
        Answer::Same => {
            (Judged::Note, format!("{name} is as fast as fsync under a {load_is} load, within 10% ({published})"))
        }
        Answer::Unclear => {
            (Judged::CannotTell, format!("{load_is} load: {} ({published})", unclear(&p, noise, name, "fsync")))
        }
    };
    let reason = format!("{}; both at level 1", p.reason());
    w.add(&format!("{name}.{}", load.word()), judged, sentence, reason, &p.cells());
}

/// `O_DSYNC` under a read-only load: the publication found it slower, which it cannot be.
fn confounder(results: &Results, noise: Option<f64>, w: &mut Writer<'_>) {
    let cell = |method| commit_levels(Pattern::ReadOnly, method, Level::Flushed);
    let (Some(p), Some(noise)) = (pair(results, &cell(FlushMethod::ODsync), &cell(FlushMethod::Fsync)), noise) else {
        return;
    };
    let read_only: Vec<&CellResult> =
        results.cells_of(Experiment::CommitLevels).filter(|c| c.spec.pattern == Pattern::ReadOnly).collect();
    let writes = |c: &CellResult| {
        let operations = c.operations();
        let issued: u64 = c.rounds.iter().map(|r| r.writes_issued).sum();
        if operations == 0 { 0.0 } else { issued as f64 / operations as f64 }
    };
    let most = read_only.iter().map(|c| writes(c)).fold(0.0, f64::max);
    let reason = format!(
        "{}; read-only cells that differ only in level or in O_DSYNC are {} apart in the median; the engine issued at most {most:.4} \
         writes per read-only transaction",
        p.reason(),
        percent(noise)
    );
    let (judged, sentence) = if most >= WRITES_MIN {
        (
            Judged::Warning,
            format!(
                "the read-only load was not alone: the engine wrote {most:.2} times per transaction, so its cells do not show what O_DSYNC does to reads"
            ),
        )
    } else {
        match p.answer {
            Answer::Same => (
                Judged::Good,
                format!(
                    "o_dsync does not slow a read-only load, which writes nothing (published: slower there too, so something else differed); cells like these are {} apart in the median",
                    percent(noise)
                ),
            ),
            _ => (
                Judged::CannotTell,
                format!(
                    "o_dsync made {} the read-only transactions of fsync, which it cannot do, since nothing is written: that is noise; cells like these are {} apart in the median",
                    p.times(),
                    percent(noise)
                ),
            ),
        }
    };
    w.add("confounder", judged, sentence, reason, &p.cells());
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noisy, said, verdict};
    use super::*;
    use crate::sample::{self, cell};

    fn of(load: Pattern, method: FlushMethod, level: Level, rate: f64) -> CellResult {
        cell(commit_levels(load, method, level), rate)
    }

    /// Read-only cells that a noisy machine makes differ.
    fn scattered(off: f64) -> Vec<CellResult> {
        let mut cells = Vec::new();
        for method in PUBLISHED_METHODS {
            for (level, rate) in Level::ALL.into_iter().zip([1e5, 1e5 * off, 1e5 / off]) {
                cells.push(of(Pattern::ReadOnly, method, level, rate));
            }
        }
        cells
    }

    /// Read-only cells that are alike except for `off`.
    fn read_only(off: f64) -> Vec<CellResult> {
        let mut cells = Vec::new();
        for method in PUBLISHED_METHODS {
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
            let says =
                |rate, level: Level| said(&run(rate), &format!("commit-levels.{}.{}", level.word(), load.word()));
            let (judged, sentence) = says(1.8e4, Level::Written);
            assert_eq!(judged, Judged::Note);
            assert!(sentence.contains("1.80x") && sentence.contains(published), "{sentence}");
            assert!(sentence.contains("nothing when the process dies, at most the last second"), "{sentence}");
            let (_, sentence) = says(1.8e4, Level::Deferred);
            assert!(sentence.contains("level 0 was not measured there"), "{sentence}");
            assert!(sentence.contains("at most the last second (flush_interval), when the process dies"), "{sentence}");
            assert_eq!(says(1e4, Level::Written).0, Judged::Good);
            assert_eq!(says(5e3, Level::Written).0, Judged::Warning);
        }
    }

    #[test]
    fn a_difference_within_the_noise_of_read_only_cells_is_none() {
        let mut cells = scattered(0.6);
        cells.push(of(Pattern::Tpcc, METHOD, Level::Flushed, 1e4));
        cells.push(of(Pattern::Tpcc, METHOD, Level::Written, 1.3e4));
        let (judged, sentence) = said(&sample::results(cells), "commit-levels.written.tpcc");
        assert_eq!(judged, Judged::CannotTell);
        assert!(sentence.contains("1.30x the rate") && sentence.contains("are 67% apart"), "{sentence}");
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
                said(&sample::results(cells), &format!("commit-levels.{id}.transactional")).1
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
        let (judged, sentence) = said(&r, "commit-levels.written.read-only");
        assert_eq!(judged, Judged::Good);
        assert!(sentence.contains("published: none"), "{sentence}");
        assert!(verdict(&sample::results(vec![]), "commit-levels.confounder").is_none());
    }
}
