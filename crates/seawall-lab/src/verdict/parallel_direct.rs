//! E3: whether direct writers to one file run in parallel, what prevents it, and whether a flush is bounded
//! beside a busy writer.
//!
//! - "Serialises" is stated of a file system only if the device is known to do more in parallel: reads scale
//!   with depth and one writer leaves it idle. Otherwise one thread may have saturated the device, and the
//!   verdict is "cannot tell".

use super::{Answer, Level, Pair, Verdict, Writer, cell_rate, file_system_word, p50_ns, pair};
use crate::cell::{Beside, Experiment, Sync};
use crate::plan::{direct_sync, flush_under_writes, parallel, random_read};
use crate::results::Results;
use crate::text;

/// A speed-up from here on counts as parallel.
const PARALLEL_MIN: f64 = 1.5;
/// The device has capacity left when reads scale at least this far with depth ...
const READ_SCALING_MIN: f64 = 2.0;
/// ... and one writer takes no more than this part of the best read rate.
const SATURATED: f64 = 0.5;

pub(super) fn verdicts(results: &Results, out: &mut Vec<Verdict>) {
    let mut w = Writer { out, experiment: Some(Experiment::ParallelDirect) };
    serialised(results, &mut w);
    cached(results, &mut w);
    dropped(results, &mut w);
    beyond_eof(results, &mut w);
    flush_under_load(results, &mut w);
}

fn serialised(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = pair(results, &parallel(8, Beside::Nothing), &parallel(1, Beside::Nothing)) else { return };
    let name = file_system_word(results);
    if p.answer == Answer::More && p.ratio.median >= PARALLEL_MIN {
        w.add(
            "serialised",
            Level::Good,
            format!("direct writers run in parallel on this {name}: 8 threads write {} as much as one", p.times()),
            p.reason(),
            &p.cells(),
        );
        return;
    }
    if p.answer == Answer::Unclear {
        let sentence = p.cannot_tell("8 direct writers", "one");
        w.add("serialised", Level::CannotTell, sentence, p.reason(), &p.cells());
        return;
    }
    let mut cells = p.cells().to_vec();
    // Below 1.5x: does the file system serialise, or does one writer saturate the device?
    let depth = pair(results, &random_read(32), &random_read(1));
    let device = depth.map(|d| {
        cells.extend(d.cells());
        let best = d.a.rate().map_or(0.0, |r| r.median);
        let one = p.b.rate().map_or(f64::INFINITY, |r| r.median);
        (d.answer == Answer::More && d.ratio.median >= READ_SCALING_MIN && one <= SATURATED * best, d)
    });
    match device {
        Some((true, d)) => w.add(
            "serialised",
            Level::Warning,
            format!(
                "this {name} serialises direct writers: 8 threads write {} as much as one, while reads scale {} with depth; \
                 use xfs or ext4, and several data files",
                p.times(),
                d.times()
            ),
            format!("{}; {}", p.reason(), d.reason()),
            &cells,
        ),
        Some((false, d)) => w.add(
            "serialised",
            Level::CannotTell,
            format!(
                "cannot tell whether this {name} serialises direct writers: 8 threads write {} as much as one, \
                 but the device may have no more to give",
                p.times()
            ),
            format!("{}; {}", p.reason(), d.reason()),
            &cells,
        ),
        None => w.add(
            "serialised",
            Level::CannotTell,
            format!(
                "cannot tell whether this {name} serialises direct writers: 8 threads write {} as much as one, \
                 and what the device could do at depth was not measured",
                p.times()
            ),
            p.reason(),
            &cells,
        ),
    }
}

fn against_alone(results: &Results, beside: Beside) -> Option<Pair<'_>> {
    pair(results, &parallel(8, beside), &parallel(8, Beside::Nothing))
}

fn cached(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = against_alone(results, Beside::CachedPages) else { return };
    let (level, sentence) = match p.answer {
        Answer::Less => (
            Level::Warning,
            format!(
                "cached pages slow direct writers down {}: something read or copied the file through the page cache; \
                 drop it with `seawall cache drop`",
                p.times_slower()
            ),
        ),
        Answer::More => (
            Level::Note,
            format!("direct writers are {} faster with the file's pages cached, oddly: measure again", p.times()),
        ),
        Answer::Same => {
            (Level::Good, "cached pages do direct writers no harm: cannot tell them from none (under 10%)".into())
        }
        Answer::Unclear => (Level::CannotTell, p.cannot_tell("direct writers beside cached pages", "those without")),
    };
    w.add("cached-pages", level, sentence, p.reason(), &p.cells());
}

fn dropped(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = against_alone(results, Beside::DroppedPages) else { return };
    let harmed = against_alone(results, Beside::CachedPages).is_some_and(|c| c.answer == Answer::Less);
    let (level, sentence) = match p.answer {
        Answer::Same if harmed => {
            (Level::Good, "dropping the cached pages restores direct writers to full speed (within 10%)".to_owned())
        }
        Answer::Same => (
            Level::Good,
            "after dropping cached pages direct writers run as ever: cannot tell the difference (under 10%)".into(),
        ),
        Answer::Less => (
            Level::Warning,
            format!("direct writers stay {} slower after the cached pages were dropped", p.times_slower()),
        ),
        Answer::More => (Level::Note, format!("direct writers are {} faster after dropping the cache", p.times())),
        Answer::Unclear => {
            (Level::CannotTell, p.cannot_tell("direct writers after dropping cached pages", "those without"))
        }
    };
    w.add("dropped-pages", level, sentence, p.reason(), &p.cells());
}

fn beyond_eof(results: &Results, w: &mut Writer<'_>) {
    let Some(p) = against_alone(results, Beside::BeyondEof) else { return };
    let (level, sentence) = match p.answer {
        Answer::Less => (
            Level::Warning,
            format!(
                "direct writes beyond the end of the file are {} slower: extend files before they are written",
                p.times_slower()
            ),
        ),
        Answer::More => {
            (Level::Note, format!("direct writes beyond the end of the file are {} faster than inside", p.times()))
        }
        Answer::Same => (
            Level::Good,
            "direct writes beyond the end of the file cost no more: cannot tell them from those inside (under 10%)"
                .into(),
        ),
        Answer::Unclear => {
            (Level::CannotTell, p.cannot_tell("direct writes beyond the end of the file", "those inside"))
        }
    };
    w.add("beyond-eof", level, sentence, p.reason(), &p.cells());
}

/// A flush is bounded when its 99th percentile stays within ten times an undisturbed write + fdatasync and
/// its maximum within a second; without an undisturbed one to compare with, within 100 ms.
fn flush_under_load(results: &Results, w: &mut Writer<'_>) {
    const TIMES_MAX: f64 = 10.0;
    const WORST_NS_MAX: f64 = 1e9;
    const ALONE_NS: f64 = 100e6;
    let Some(cell) = results.cell(&flush_under_writes()) else { return };
    let (Some(p50), Some(p99), Some(worst)) = (p50_ns(cell), cell.latency_ns(0.99), cell.latency_ns_max()) else {
        return;
    };
    let (p99, worst) = (p99 as f64, worst as f64);
    let quiet = results.cell(&direct_sync(1, 4096, Sync::Fdatasync));
    let quiet_p99 = quiet.and_then(|q| q.latency_ns(0.99)).map(|ns| ns as f64);
    let limit = quiet_p99.map_or(ALONE_NS, |q| TIMES_MAX * q);
    let mut reason = format!(
        "{}; median {}, p99 {}, longest {}",
        cell_rate(cell),
        text::latency(p50),
        text::latency(p99),
        text::latency(worst)
    );
    match quiet_p99 {
        Some(q) => reason += &format!("; undisturbed write + fdatasync p99 {}", text::latency(q)),
        None => reason += "; the undisturbed write + fdatasync was not measured",
    }
    let cells: Vec<_> = std::iter::once(cell).chain(quiet).collect();
    if cell.operations() < 100 && worst <= WORST_NS_MAX {
        w.add(
            "flush-under-writes",
            Level::CannotTell,
            format!(
                "cannot tell whether flushes are bounded beside a busy writer: only {} were seen",
                cell.operations()
            ),
            reason,
            &cells,
        );
    } else if p99 <= limit && worst <= WORST_NS_MAX {
        w.add(
            "flush-under-writes",
            Level::Good,
            format!(
                "flushes stay bounded while another thread writes without pause: p99 {}, longest {}",
                text::latency(p99),
                text::latency(worst)
            ),
            reason,
            &cells,
        );
    } else {
        let times = quiet_p99
            .filter(|q| *q > 0.0 && p99 > limit)
            .map_or_else(String::new, |q| format!(", {} an undisturbed one", text::ratio(p99 / q)));
        w.add(
            "flush-under-writes",
            Level::Warning,
            format!(
                "flushes are held up while another thread writes without pause: p99 {}{times}, longest {}; keep the log on a file of its own, and data writes paced",
                text::latency(p99),
                text::latency(worst)
            ),
            reason,
            &cells,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noisy, said, verdict};
    use super::*;
    use crate::sample::{self, cell};

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
        // One writer saturates it.
        assert_eq!(says(&run(40_000.0, 42_000.0, 15_000.0, 45_000.0)).0, Level::CannotTell);
        // Nothing scales on this device: a limit of the device, not of the file system.
        assert_eq!(says(&run(3_000.0, 3_000.0, 3_000.0, 3_000.0)).0, Level::CannotTell);
        let mut r = run(15_000.0, 15_000.0, 15_000.0, 45_000.0);
        r.cells.truncate(2);
        assert!(says(&r).1.contains("was not measured"));
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
        assert!(sentence.contains("an undisturbed one"), "{sentence}");
        assert_eq!(says(10.0).0, Level::CannotTell);
        let alone = sample::results(vec![cell(flush_under_writes(), 500.0)]);
        assert_eq!(said(&alone, "parallel-direct.flush-under-writes").0, Level::Good);
        let mut stalled = sample::results(vec![cell(flush_under_writes(), 5_000.0)]);
        stalled.cells[0].rounds[2].latency_ns_max = 4_000_000_000;
        assert!(said(&stalled, "parallel-direct.flush-under-writes").1.contains("longest 4.0 s"));
    }
}
