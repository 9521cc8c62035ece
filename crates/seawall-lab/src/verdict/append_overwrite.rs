//! E4: the cost of growing a file, which kinds of preallocation help, and the cost of preallocating for other
//! work.
//!
//! - Everything is compared with overwriting a file with all blocks written, through the same access and
//!   sync.
//! - The stall of an unsynced zero-fill is one long operation: the maximum shows it, medians hide it.

use super::{Answer, Level, Pair, Verdict, Writer, file_system_word, pair};
use crate::cell::{Access, Experiment, Preparation, Sync};
use crate::plan::{beside_fill, extend};
use crate::results::{CellResult, Results};
use crate::text;

/// An operation longer than this stalls a commit noticeably.
const STALL_NS: u64 = 100_000_000;

pub(super) fn verdicts(results: &Results, out: &mut Vec<Verdict>) {
    let mut w = Writer { out, experiment: Some(Experiment::AppendOverwrite) };
    append(results, &mut w);
    reserved(results, &mut w, Preparation::Unwritten, "unwritten", "writing into fallocate'd space");
    reserved(results, &mut w, Preparation::KeepSize, "keep-size", "appending into space reserved beyond the end");
    zero_fill(results, &mut w, Preparation::ZeroFilledNow, "zero-fill-now", "at once");
    zero_fill(results, &mut w, Preparation::ZeroFilledWait, "zero-fill-wait", "20 s later");
    written(results, &mut w, Preparation::WriteZeroes, "write-zeroes", "space prepared by WRITE_ZEROES");
    written(results, &mut w, Preparation::Recycled, "recycled", "a recycled file");
    preallocated(results, &mut w);
    paced_fill(results, &mut w);
    o_dsync(results, &mut w);
}

/// Overwriting a written file against a file with this preparation: buffered with fdatasync as published,
/// else direct.
pub(crate) fn overwrite_against(results: &Results, preparation: Preparation) -> Option<Pair<'_>> {
    [Access::Buffered, Access::Direct].into_iter().find_map(|access| {
        pair(
            results,
            &extend(Preparation::Written, access, Sync::Fdatasync),
            &extend(preparation, access, Sync::Fdatasync),
        )
    })
}

fn flushes(cell: &CellResult) -> Option<f64> {
    cell.device_per_operation().and_then(|d| d.flushes)
}

fn append(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = overwrite_against(results, Preparation::Append) else { return };
    let name = file_system_word(results);
    let mut reason = format!("{}; published on ext3: 12,330 against 3,086 (4.0x)", p.reason());
    if let (Some(over), Some(append)) = (flushes(p.a), flushes(p.b)) {
        reason += &format!("; device flushes per write: {append:.1} appending, {over:.1} overwriting");
    }
    let (level, sentence) = match p.answer {
        Answer::More => (
            Level::Warning,
            format!("appending costs {} overwriting on this {name}: preallocate, into written blocks", p.times()),
        ),
        Answer::Less => (
            Level::Note,
            format!(
                "appending is {} faster than overwriting on this {name}: preallocation gains nothing",
                p.times_slower()
            ),
        ),
        Answer::Same => (
            Level::Good,
            format!("appending is no dearer than overwriting on this {name}: cannot tell them apart (under 10%)"),
        ),
        Answer::Unclear => (Level::CannotTell, p.cannot_tell("overwriting", "appending")),
    };
    w.add("append", level, sentence, reason, &p.cells());
}

/// `fallocate` in its two forms: the blocks are allocated, but the first write must convert them to written
/// ones.
fn reserved(results: &Results, w: &mut Writer<'_>, preparation: Preparation, subject: &str, doing: &str) {
    let Some(p) = overwrite_against(results, preparation) else { return };
    let (level, sentence) = match p.answer {
        Answer::More => {
            let no_better = overwrite_against(results, Preparation::Append)
                .filter(|a| a.answer == Answer::More && p.ratio.median >= 0.8 * a.ratio.median)
                .map_or("", |_| ", hardly better than appending");
            (
                Level::Warning,
                format!(
                    "{doing} costs {} overwriting{no_better}: fallocate alone does not preallocate, the blocks must be written",
                    p.times()
                ),
            )
        }
        Answer::Less => (Level::Note, format!("{doing} is {} faster than overwriting", p.times_slower())),
        Answer::Same => (Level::Good, format!("{doing} is as good as overwriting: cannot tell them apart (under 10%)")),
        Answer::Unclear => (Level::CannotTell, p.cannot_tell("overwriting", doing)),
    };
    w.add(subject, level, sentence, p.reason(), &p.cells());
}

/// Preparations that should be as good as a written file.
fn written(results: &Results, w: &mut Writer<'_>, preparation: Preparation, subject: &str, what: &str) {
    let Some(p) = overwrite_against(results, preparation) else { return };
    let (level, sentence) = match p.answer {
        Answer::More => {
            (Level::Warning, format!("overwriting {what} is {} slower than a file written before", p.times()))
        }
        Answer::Less => {
            (Level::Good, format!("overwriting {what} is {} faster than a file written before", p.times_slower()))
        }
        Answer::Same => (
            Level::Good,
            format!("overwriting {what} is as good as a file written before: cannot tell them apart (under 10%)"),
        ),
        Answer::Unclear => (Level::CannotTell, p.cannot_tell("a file written before", what)),
    };
    w.add(subject, level, sentence, p.reason(), &p.cells());
}

fn zero_fill(results: &Results, w: &mut Writer<'_>, preparation: Preparation, subject: &str, when: &str) {
    let Some(p) = overwrite_against(results, preparation) else { return };
    let stall = p.b.latency_ns_max().unwrap_or(0);
    let published = if preparation == Preparation::ZeroFilledNow { "6,569" } else { "11,670" };
    let reason = format!(
        "{}; longest write {} (overwriting: {}); published {published} against 12,330",
        p.reason(),
        text::latency(stall as f64),
        text::latency(p.a.latency_ns_max().unwrap_or(0) as f64)
    );
    let stalled = format!("the longest write stalled {}", text::latency(stall as f64));
    let (level, sentence) = match (p.answer, stall >= STALL_NS) {
        (Answer::More, true) => (
            Level::Warning,
            format!(
                "overwriting {when} after a zero-fill is {} slower, and {stalled}: pace the fill and fsync it before use",
                p.times()
            ),
        ),
        (Answer::More, false) => (
            Level::Warning,
            format!(
                "overwriting {when} after a zero-fill is {} slower: pace the fill and fsync it before use",
                p.times()
            ),
        ),
        (_, true) => {
            (Level::Warning, format!("after a zero-fill, overwriting {when}, {stalled}: fsync the fill before use"))
        }
        (Answer::Less, false) => (
            Level::Note,
            format!("overwriting {when} after a zero-fill is {} faster than a file written before", p.times_slower()),
        ),
        (Answer::Same, false) => (
            Level::Good,
            format!(
                "a zero-fill does no harm to overwriting {when}: cannot tell it from a file written before (under 10%)"
            ),
        ),
        (Answer::Unclear, false) => (
            Level::CannotTell,
            p.cannot_tell("a file written before", &format!("overwriting {when} after a zero-fill")),
        ),
    };
    w.add(subject, level, sentence, reason, &p.cells());
}

fn preallocated(results: &Results, w: &mut Writer<'_>) {
    let made = extend(Preparation::Preallocated, Access::Direct, Sync::Fdatasync);
    // Against a written file if the full run has one with the same access, else against appending.
    if let Some(p) = pair(results, &made, &extend(Preparation::Written, Access::Direct, Sync::Fdatasync)) {
        let (level, sentence) = match p.answer {
            Answer::More => {
                (Level::Good, format!("Seawall's preallocated file is {} faster than one written before", p.times()))
            }
            Answer::Less => (
                Level::Warning,
                format!("Seawall's preallocated file is {} slower than one written before", p.times_slower()),
            ),
            Answer::Same => (
                Level::Good,
                "Seawall's preallocated file is as good as one written before: cannot tell them apart (under 10%)"
                    .into(),
            ),
            Answer::Unclear => (Level::CannotTell, p.cannot_tell("Seawall's preallocated file", "one written before")),
        };
        w.add("preallocated", level, sentence + &longest(p.a), p.reason(), &p.cells());
    } else if let Some(p) = [Access::Direct, Access::Buffered]
        .into_iter()
        .find_map(|access| pair(results, &made, &extend(Preparation::Append, access, Sync::Fdatasync)))
    {
        let appending = if p.b.spec.access == Access::Direct { "appending" } else { "buffered appending" };
        let (level, sentence) = match p.answer {
            Answer::More => (
                Level::Good,
                format!("Seawall's preallocated file takes {} the durable writes of {appending}", p.times()),
            ),
            Answer::Less => (
                Level::Warning,
                format!("Seawall's preallocated file is {} slower than {appending} here", p.times_slower()),
            ),
            Answer::Same => (
                Level::Note,
                format!(
                    "Seawall's preallocated file gains nothing over {appending} here (any difference is under 10%)"
                ),
            ),
            Answer::Unclear => (Level::CannotTell, p.cannot_tell("Seawall's preallocated file", appending)),
        };
        w.add("preallocated", level, sentence + &longest(p.a), p.reason(), &p.cells());
    }
}

fn longest(cell: &CellResult) -> String {
    cell.latency_ns_max()
        .map_or_else(String::new, |ns| format!("; its longest write took {}", text::latency(ns as f64)))
}

fn paced_fill(results: &Results, w: &mut Writer<'_>) {
    let alone = extend(Preparation::Preallocated, Access::Direct, Sync::Fdatasync);
    let Some(p) = pair(results, &beside_fill(), &alone) else { return };
    let (level, sentence) = match p.answer {
        Answer::Less if p.ratio.median < 0.8 => (
            Level::Warning,
            format!(
                "even a rate-limited fill beside it slows overwriting down {}: preallocate in quiet hours",
                p.times_slower()
            ),
        ),
        Answer::Less => (
            Level::Note,
            format!(
                "a rate-limited fill beside it costs overwriting {:.0}% (published, unlimited: half)",
                (1.0 - p.ratio.median) * 100.0
            ),
        ),
        Answer::More => (
            Level::Note,
            format!("overwriting is {} faster beside a rate-limited fill, oddly: measure again", p.times()),
        ),
        Answer::Same => (
            Level::Good,
            "a rate-limited fill beside it does not hurt overwriting: cannot tell it from none (under 10%)".into(),
        ),
        Answer::Unclear => {
            (Level::CannotTell, p.cannot_tell("overwriting beside a rate-limited fill", "overwriting alone"))
        }
    };
    w.add("beside-fill", level, sentence, p.reason(), &p.cells());
}

/// The log-shaped comparison of durable writes: `O_DSYNC` against fdatasync on sequential overwrites.
fn o_dsync(results: &Results, w: &mut Writer<'_>) {
    for (access, subject, name) in
        [(Access::Direct, "o-dsync-direct", "direct"), (Access::Buffered, "o-dsync-buffered", "buffered")]
    {
        let Some(p) = pair(
            results,
            &extend(Preparation::Written, access, Sync::ODsync),
            &extend(Preparation::Written, access, Sync::Fdatasync),
        ) else {
            continue;
        };
        let (level, sentence) = match p.answer {
            Answer::More => (
                Level::Note,
                format!("for {name} log-like writes O_DSYNC is {} faster than write + fdatasync", p.times()),
            ),
            Answer::Less => (
                Level::Warning,
                format!(
                    "for {name} log-like writes this drive's O_DSYNC is slower than write + fdatasync ({})",
                    p.times_slower()
                ),
            ),
            Answer::Same | Answer::Unclear => {
                (Level::CannotTell, p.cannot_tell(&format!("O_DSYNC for {name} log-like writes"), "write + fdatasync"))
            }
        };
        w.add(subject, level, sentence, p.reason(), &p.cells());
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noisy, said, verdict};
    use super::*;
    use crate::sample::{self, cell};

    const OVERWRITE: f64 = 10_000.0;

    fn run(preparation: Preparation, rate: f64) -> Results {
        sample::results(vec![
            cell(extend(Preparation::Written, Access::Buffered, Sync::Fdatasync), OVERWRITE),
            cell(extend(preparation, Access::Buffered, Sync::Fdatasync), rate),
        ])
    }

    #[test]
    fn append_each_way() {
        let says = |rate| said(&run(Preparation::Append, rate), "append-overwrite.append");
        assert_eq!(
            says(3_226.0),
            (Level::Warning, "appending costs 3.1x overwriting on this ext4: preallocate, into written blocks".into())
        );
        assert_eq!(says(OVERWRITE).0, Level::Good);
        assert_eq!(says(2.0 * OVERWRITE).0, Level::Note);
        let mut r = run(Preparation::Append, 1.0);
        r.cells[1] = noisy(extend(Preparation::Append, Access::Buffered, Sync::Fdatasync), OVERWRITE);
        assert_eq!(said(&r, "append-overwrite.append").0, Level::CannotTell);
        r.cells.truncate(1);
        assert!(verdict(&r, "append-overwrite.append").is_none());
    }

    #[test]
    fn each_preparation_each_way() {
        for (preparation, subject) in [
            (Preparation::Unwritten, "unwritten"),
            (Preparation::KeepSize, "keep-size"),
            (Preparation::WriteZeroes, "write-zeroes"),
            (Preparation::Recycled, "recycled"),
            (Preparation::ZeroFilledNow, "zero-fill-now"),
            (Preparation::ZeroFilledWait, "zero-fill-wait"),
        ] {
            let id = format!("append-overwrite.{subject}");
            assert_eq!(said(&run(preparation, 4_000.0), &id).0, Level::Warning, "{id}");
            assert_eq!(said(&run(preparation, OVERWRITE), &id).0, Level::Good, "{id}");
            assert!(matches!(said(&run(preparation, 20_000.0), &id).0, Level::Note | Level::Good), "{id}");
            let mut r = run(preparation, OVERWRITE);
            r.cells[1] = noisy(extend(preparation, Access::Buffered, Sync::Fdatasync), OVERWRITE);
            assert_eq!(said(&r, &id).0, Level::CannotTell, "{id}");
        }
    }

    #[test]
    fn unwritten_is_compared_with_appending() {
        let mut r = run(Preparation::Unwritten, 4_000.0);
        assert!(!said(&r, "append-overwrite.unwritten").1.contains("hardly better"));
        r.cells.push(cell(extend(Preparation::Append, Access::Buffered, Sync::Fdatasync), 3_900.0));
        assert!(said(&r, "append-overwrite.unwritten").1.contains("hardly better than appending"));
    }

    #[test]
    fn one_long_stall_is_seen_at_full_speed() {
        let mut r = run(Preparation::ZeroFilledNow, OVERWRITE);
        r.cells[1].rounds[0].latency_ns_max = 450_000_000;
        let (level, sentence) = said(&r, "append-overwrite.zero-fill-now");
        assert_eq!(level, Level::Warning);
        assert!(sentence.contains("stalled 450 ms"), "{sentence}");
    }

    #[test]
    fn preallocation_and_its_fill_each_way() {
        let made = extend(Preparation::Preallocated, Access::Direct, Sync::Fdatasync);
        for base in [
            extend(Preparation::Written, Access::Direct, Sync::Fdatasync),
            extend(Preparation::Append, Access::Buffered, Sync::Fdatasync),
        ] {
            let says = |rate| {
                said(&sample::results(vec![cell(made, rate), cell(base, OVERWRITE)]), "append-overwrite.preallocated").0
            };
            assert_eq!(says(30_000.0), Level::Good);
            assert_eq!(says(4_000.0), Level::Warning);
            assert!(matches!(says(OVERWRITE), Level::Good | Level::Note));
        }
        let says = |rate| {
            said(
                &sample::results(vec![cell(made, OVERWRITE), cell(beside_fill(), rate)]),
                "append-overwrite.beside-fill",
            )
        };
        assert_eq!(says(OVERWRITE).0, Level::Good);
        assert_eq!(says(5_000.0).0, Level::Warning);
        assert!(says(8_800.0).1.contains("costs overwriting 12%"));
        assert_eq!(says(20_000.0).0, Level::Note);
    }

    #[test]
    fn o_dsync_each_way() {
        for (access, id) in [
            (Access::Direct, "append-overwrite.o-dsync-direct"),
            (Access::Buffered, "append-overwrite.o-dsync-buffered"),
        ] {
            let says = |rate| {
                let cells = vec![
                    cell(extend(Preparation::Written, access, Sync::ODsync), rate),
                    cell(extend(Preparation::Written, access, Sync::Fdatasync), OVERWRITE),
                ];
                said(&sample::results(cells), id).0
            };
            assert_eq!(says(20_000.0), Level::Note);
            assert_eq!(says(5_000.0), Level::Warning);
            assert_eq!(says(OVERWRITE), Level::CannotTell);
        }
    }
}
