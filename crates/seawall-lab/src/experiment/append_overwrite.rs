//! E4: the cost of growing a file, which kinds of preallocation help, and the cost of preallocating for other
//! work.
//!
//! - Everything is compared with overwriting a file with all blocks written, through the same access and
//!   sync.
//! - The stall of an unsynced zero-fill is one long operation: the maximum shows it, medians hide it.

use super::definition::Definition;
use super::published;
use crate::cell::{Access, Beside, CellSpec, Experiment, Pattern, Preparation, Sync};
use crate::evidence::{Bar, Evidence, Panel};
use crate::results::{CellResult, Results};
use crate::stats::distinct;
use crate::text::{self, vars};
use crate::verdict::{Answer, Pair, Writer, file_system_word, pair};

pub(crate) static EXPERIMENT: Definition = Definition {
    toml: include_str!("append_overwrite.toml"),
    cells,
    conclude: &[append, prepared, preallocated, paced_fill, o_dsync],
    evidence,
};

/// Every preparation with its name in plots, its colour, and the index of its published figure.
const PREPARATIONS: [(Preparation, &str, usize, Option<usize>); 9] = [
    (Preparation::Written, "overwrite a written file", 0, Some(1)),
    (Preparation::Append, "append to an empty file", 1, Some(0)),
    (Preparation::KeepSize, "append into reserved space", 1, None),
    (Preparation::Unwritten, "fallocated, unwritten extents", 1, None),
    (Preparation::ZeroFilledNow, "zero-filled, at once", 3, Some(2)),
    (Preparation::ZeroFilledWait, "zero-filled, 20 s later", 3, Some(3)),
    (Preparation::WriteZeroes, "after WRITE_ZEROES", 2, None),
    (Preparation::Recycled, "recycled file", 2, None),
    (Preparation::Preallocated, "preallocated by Seawall", 2, None),
];

/// An operation longer than this stalls a commit noticeably.
const STALL_NS: f64 = 100e6;

/// Sequential 8 KiB writes, each made durable, into a file with this preparation.
///
/// ```
/// use seawall_lab::{cell::{Access, Preparation, Sync}, plan};
/// let append = plan::extend(Preparation::Append, Access::Buffered, Sync::Fdatasync);
/// assert_eq!(append.id(), "e4/append/seqwrite/8k/buffered/fdatasync/t1");
/// ```
pub fn extend(preparation: Preparation, access: Access, sync: Sync) -> CellSpec {
    CellSpec {
        pattern: Pattern::SequentialWrite,
        block_bytes: 8 << 10,
        preparation,
        access,
        sync,
        ..CellSpec::new(Experiment::AppendOverwrite)
    }
}

/// Overwriting a preallocated file while a rate-limited fill of another runs.
///
/// ```
/// assert!(seawall_lab::plan::beside_fill().title().ends_with("beside a rate-limited fill"));
/// ```
pub fn beside_fill() -> CellSpec {
    CellSpec { beside: Beside::PacedFill, ..extend(Preparation::Preallocated, Access::Direct, Sync::Fdatasync) }
}

fn cells(full: bool) -> Vec<CellSpec> {
    use Preparation as P;
    let mut cells = Vec::new();
    if full {
        for (preparation, ..) in PREPARATIONS {
            for access in [Access::Buffered, Access::Direct] {
                cells.extend([Sync::Fdatasync, Sync::ODsync, Sync::RwfDsync].map(|s| extend(preparation, access, s)));
            }
        }
    } else {
        let buffered = [P::Append, P::Written, P::Unwritten, P::ZeroFilledNow];
        cells.extend(buffered.map(|p| extend(p, Access::Buffered, Sync::Fdatasync)));
        cells.push(extend(P::Preallocated, Access::Direct, Sync::Fdatasync));
    }
    cells.push(beside_fill());
    cells
}

/// Compares overwriting a written file with writing to a file of this preparation: buffered with fdatasync as
/// published, or direct if that was not measured.
pub(crate) fn overwrite_against(results: &Results, preparation: Preparation) -> Option<Pair<'_>> {
    let both = [Preparation::Written, preparation];
    let against = |access| pair(results, both.map(|p| extend(p, access, Sync::Fdatasync)));
    against(Access::Buffered).or_else(|| against(Access::Direct))
}

/// Each way to prepare a file, against a file written before.
fn prepared(results: &Results, w: &mut Writer<'_>) {
    reserved(results, w, Preparation::Unwritten, "unwritten", "writing into fallocated space");
    reserved(results, w, Preparation::KeepSize, "keep-size", "appending into reserved space");
    zero_fill(results, w, Preparation::ZeroFilledNow, "zero-fill-now", "at once");
    zero_fill(results, w, Preparation::ZeroFilledWait, "zero-fill-wait", "20 s later");
    for (preparation, subject, what) in [
        (Preparation::WriteZeroes, "write-zeroes", "space prepared by WRITE_ZEROES"),
        (Preparation::Recycled, "recycled", "a recycled file"),
    ] {
        w.compare("written", overwrite_against(results, preparation), vars![subject, what]);
    }
}

fn append(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = overwrite_against(results, Preparation::Append) else { return };
    let [over, append] = p.cells().map(|cell| cell.per_operation(|device| device.flushes));
    let flushes = over.zip(append).map_or_else(String::new, |(over, append)| {
        format!("; device flushes per write: {append:.1} appending, {over:.1} overwriting")
    });
    w.compare("append", p, vars![fs = file_system_word(results), flushes]);
}

/// `fallocate` in its two forms: the blocks are allocated, but the first write must convert them to written
/// ones.
fn reserved(results: &Results, w: &mut Writer<'_>, preparation: Preparation, subject: &str, doing: &str) {
    let Some(p) = overwrite_against(results, preparation) else { return };
    let no_better = overwrite_against(results, Preparation::Append)
        .is_some_and(|a| a.answer == Answer::More && p.ratio.median >= 0.8 * a.ratio.median);
    let no_better = if no_better { "hardly better than appending: fallocate alone does not preallocate" } else { "" };
    w.compare("reserved", p, vars![subject, doing, no_better]);
}

fn zero_fill(results: &Results, w: &mut Writer<'_>, preparation: Preparation, subject: &str, when: &str) {
    let Some(p) = overwrite_against(results, preparation) else { return };
    let longest = p.cells().map(|cell| cell.latency_ns_max().unwrap_or(0.0));
    let [overwriting, stall] = longest.map(text::latency);
    let published = if preparation == Preparation::ZeroFilledNow { "6,569" } else { "11,670" };
    let vars = vars![subject, when, overwriting, stall, published, rates = p.reason()];
    if longest[1] >= STALL_NS && p.answer != Answer::More {
        return w.say("zero-fill", "stalled", vars);
    }
    w.compare("zero-fill", p, vars);
}

fn preallocated(results: &Results, w: &mut Writer<'_>) {
    let made = extend(Preparation::Preallocated, Access::Direct, Sync::Fdatasync);
    let against = |preparation, access| pair(results, [made, extend(preparation, access, Sync::Fdatasync)]);
    // Against a written file if the full run has one with the same access, else against appending.
    let appended = [Access::Direct, Access::Buffered].into_iter().find_map(|a| against(Preparation::Append, a));
    let Some(p) = against(Preparation::Written, Access::Direct).or(appended) else { return };
    let longest = text::or_missing(p.a.latency_ns_max(), text::latency);
    let appending = if p.b.spec.access == Access::Direct { "appending" } else { "buffered appending" };
    let written = p.b.spec.preparation == Preparation::Written;
    w.compare(if written { "preallocated" } else { "preallocated-or-appending" }, p, vars![longest, appending]);
}

fn paced_fill(results: &Results, w: &mut Writer<'_>) {
    let alone = extend(Preparation::Preallocated, Access::Direct, Sync::Fdatasync);
    let Some(p) = pair(results, [beside_fill(), alone]) else { return };
    let share = text::percent(1.0 - p.ratio.median);
    let much = p.answer == Answer::Less && p.ratio.median < 0.8;
    w.compare_as("beside-fill", &p, if much { "much-less" } else { p.answer.word() }, None, vars![share]);
}

/// The log-shaped comparison of durable writes: `O_DSYNC` against fdatasync on sequential overwrites.
fn o_dsync(results: &Results, w: &mut Writer<'_>) {
    for access in [Access::Direct, Access::Buffered] {
        let p = pair(results, [Sync::ODsync, Sync::Fdatasync].map(|s| extend(Preparation::Written, access, s)));
        w.compare("o-dsync", p, vars![access]);
    }
}

/// Bars for each access and sync, relative to overwriting. Published figures stand beside the bars that repeat them.
fn evidence(e: &Evidence<'_>) -> Vec<Option<Panel>> {
    const MAIN: (Access, Sync) = (Access::Buffered, Sync::Fdatasync);
    let measured = e.cells().map(|c| (c.spec.access, c.spec.sync));
    let panels = distinct([MAIN].into_iter().chain(measured)).into_iter().map(|(access, sync)| {
        let main = (access, sync) == MAIN;
        let reference = e.results.cell(&extend(Preparation::Written, access, sync)).and_then(CellResult::median);
        let mut bars = Vec::new();
        for (preparation, name, series, figure) in PREPARATIONS {
            for (beside, aside) in [(Beside::Nothing, ""), (Beside::PacedFill, ", fill beside")] {
                let spec = CellSpec { beside, ..extend(preparation, access, sync) };
                let bar = e.results.cell(&spec).and_then(|c| Bar::rate(c, format!("{name}{aside}"), series));
                let figure = figure.filter(|_| main && beside == Beside::Nothing);
                let rate = |figure: usize| published(Experiment::AppendOverwrite)[figure].rates[0];
                let published = figure.map(|figure| (rate(figure), rate(1), "/s"));
                bars.extend(bar.map(|bar| bar.relative(reference, text::percent, published)));
            }
        }
        let how = if sync == Sync::ODsync { "O_DSYNC" } else { sync.word() };
        let key = if main { "as-published" } else { "otherwise" };
        e.bars(key, vars![access = access.words(), how], bars)
    });
    panels.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, cell};
    use crate::verdict::Level;
    use crate::verdict::testing::{noisy, said, verdict};

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
        assert!(!verdict(&r, "append-overwrite.unwritten").unwrap().reason.contains("hardly better"));
        r.cells.push(cell(extend(Preparation::Append, Access::Buffered, Sync::Fdatasync), 3_900.0));
        assert!(verdict(&r, "append-overwrite.unwritten").unwrap().reason.contains("hardly better than appending"));
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
        assert!(says(8_800.0).1.contains("costs overwriting 12%"), "{}", says(8_800.0).1);
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
