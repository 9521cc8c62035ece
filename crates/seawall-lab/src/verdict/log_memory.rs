//! E2: the log's write path. Direct or buffered, merged or one write per record, and the memory it leaves in
//! use.
//!
//! - Direct and buffered are compared with both merged: the published loss at many threads came from not
//!   merging.
//! - Reads at the device during a log cell are read-modify-writes: a log has no other reason to read.

use super::{Answer, Level, Verdict, Writer, file_system_word, pair};
use crate::cell::{Access, CellSpec, Experiment};
use crate::plan::log;
use crate::results::{CellResult, Results};
use crate::text;

/// From this many reads per commit on, partial-page writes are named as the cause.
const READS_MIN: f64 = 0.05;
/// From this much page cache on, a log is said to hold some.
const CACHED_MIN: u64 = 1 << 20;

pub(super) fn verdicts(results: &Results, out: &mut Vec<Verdict>) {
    let mut w = Writer { out, experiment: Some(Experiment::LogMemory) };
    direct_against_buffered(results, &mut w);
    merged(results, &mut w);
    dont_cache(results, &mut w);
    page_cache(results, &mut w);
    hidden_reads(results, &mut w);
}

/// Thread counts at which both of two specs were measured for a log cell: the smallest and the largest.
fn ends(results: &Results, spec: impl Fn(u32) -> [CellSpec; 2]) -> Vec<u32> {
    let threads: Vec<u32> =
        [1, 4, 16, 64].into_iter().filter(|t| spec(*t).iter().all(|s| results.cell(s).is_some())).collect();
    match threads[..] {
        [] => vec![],
        [one] => vec![one],
        [first, .., last] => vec![first, last],
    }
}

fn by(threads: u32) -> String {
    if threads == 1 { "one committing thread".into() } else { format!("{threads} committing threads") }
}

/// A merged direct log against a merged buffered one.
pub(crate) fn direct_and_buffered(threads: u32) -> [CellSpec; 2] {
    [log(threads, Access::Direct, 4096, true), log(threads, Access::Buffered, 512, true)]
}

fn direct_against_buffered(results: &Results, w: &mut Writer<'_>) {
    for t in ends(results, direct_and_buffered) {
        let [direct, buffered] = direct_and_buffered(t);
        let Some(p) = pair(results, &direct, &buffered) else { continue };
        let (level, sentence) = match p.answer {
            Answer::More => {
                (Level::Good, format!("with {} a direct log commits {} as much as a buffered one", by(t), p.times()))
            }
            Answer::Less => (
                Level::Note,
                format!(
                    "with {} a direct log is {} slower than a buffered one: the price of keeping the log out of memory here",
                    by(t),
                    p.times_slower()
                ),
            ),
            Answer::Same => (
                Level::Good,
                format!(
                    "with {} keeping the log out of the page cache costs nothing: cannot tell direct from buffered (under 10%)",
                    by(t)
                ),
            ),
            Answer::Unclear => {
                (Level::CannotTell, format!("with {}: {}", by(t), p.cannot_tell("a direct log", "a buffered one")))
            }
        };
        let published =
            if t == 1 { "published: direct about 10% faster" } else { "published: direct 10-20% slower, unmerged" };
        w.add(&format!("direct.t{t}"), level, sentence, format!("{}; {published}", p.reason()), &p.cells());
    }
}

fn merged(results: &Results, w: &mut Writer<'_>) {
    for (access, name) in [(Access::Buffered, "buffered"), (Access::Direct, "direct")] {
        let spec = |t| [log(t, access, 512, true), log(t, access, 512, false)];
        for t in ends(results, spec) {
            let [one, many] = spec(t);
            let Some(p) = pair(results, &one, &many) else { continue };
            let what = format!("the {name} log");
            let (level, sentence) = match p.answer {
                Answer::More => (
                    Level::Good,
                    format!("merging a group's records into one write gains {what} {} with {}", p.times(), by(t)),
                ),
                Answer::Less => (
                    Level::Warning,
                    format!(
                        "merging a group's records into one write makes {what} {} slower with {}",
                        p.times_slower(),
                        by(t)
                    ),
                ),
                Answer::Same => (
                    Level::Note,
                    format!(
                        "merging makes no odds to {what} with {}: cannot tell it from a write per record (under 10%)",
                        by(t)
                    ),
                ),
                Answer::Unclear => (
                    Level::CannotTell,
                    format!("{what} with {}: {}", by(t), p.cannot_tell("merged writes", "a write per record")),
                ),
            };
            w.add(&format!("merged-{name}.t{t}"), level, sentence, p.reason(), &p.cells());
        }
    }
}

fn dont_cache(results: &Results, w: &mut Writer<'_>) {
    let spec = |t| [log(t, Access::DontCache, 4096, true), log(t, Access::Direct, 4096, true)];
    for t in ends(results, spec) {
        let [uncached, direct] = spec(t);
        let Some(p) = pair(results, &uncached, &direct) else { continue };
        let (level, sentence) = match p.answer {
            Answer::More => {
                (Level::Note, format!("RWF_DONTCACHE commits {} as much as a direct log with {}", p.times(), by(t)))
            }
            Answer::Less => (
                Level::Good,
                format!("a direct log commits {} as much as RWF_DONTCACHE with {}", p.times_slower(), by(t)),
            ),
            Answer::Same | Answer::Unclear => {
                (Level::CannotTell, format!("with {}: {}", by(t), p.cannot_tell("RWF_DONTCACHE", "a direct log")))
            }
        };
        w.add(&format!("dontcache.t{t}"), level, sentence, p.reason(), &p.cells());
    }
}

fn page_cache(results: &Results, w: &mut Writer<'_>) {
    let memory = results.machine.memory_bytes as f64;
    for (access, subject, name) in [
        (Access::Buffered, "page-cache.buffered", "a buffered log"),
        (Access::Uncached, "page-cache.uncached", "a buffered log whose pages are dropped"),
        (Access::DontCache, "page-cache.dontcache", "an RWF_DONTCACHE log"),
        (Access::Direct, "page-cache.direct", "a direct log"),
    ] {
        let most = results
            .cells_of(Experiment::LogMemory)
            .filter(|c| c.spec.access == access)
            .filter_map(|c| Some((c, c.cached_bytes_max()?)))
            .max_by_key(|(_, bytes)| *bytes);
        let Some((cell, held)) = most else { continue };
        let rounds = cell.rounds.len().max(1) as f64;
        let commits = cell.operations() as f64 / rounds;
        let share =
            if memory > 0.0 { format!(" ({:.1}% of memory)", held as f64 / memory * 100.0) } else { String::new() };
        let reason = format!(
            "{}: {} in the page cache after about {} commits{share}; published: about 10 GB of binlogs and the full redo log on 72 GB hosts",
            cell.spec.title(),
            text::bytes(held as f64),
            text::count(commits)
        );
        let (level, sentence) = if held < CACHED_MIN {
            (Level::Good, format!("{name} leaves no page cache behind"))
        } else if access == Access::Buffered {
            (
                Level::Note,
                format!(
                    "{name} stays in the page cache, all {} of it here: memory that is taken from something else",
                    text::bytes(held as f64)
                ),
            )
        } else {
            (
                Level::Warning,
                format!(
                    "{name} still held {} of page cache on this {}",
                    text::bytes(held as f64),
                    file_system_word(results)
                ),
            )
        };
        w.add(subject, level, sentence, reason, &[cell]);
    }
}

fn hidden_reads(results: &Results, w: &mut Writer<'_>) {
    let mut measured: Vec<(&CellResult, f64)> = results
        .cells_of(Experiment::LogMemory)
        .filter_map(|c| Some((c, c.device_per_operation()?.reads)))
        .filter(|(c, reads)| reads.is_finite() && !c.disturbed())
        .collect();
    measured.sort_by(|a, b| b.1.total_cmp(&a.1));
    let Some(&(worst, reads)) = measured.first() else { return };
    if reads >= READS_MIN {
        let cells: Vec<&CellResult> = measured.iter().filter(|(_, r)| *r >= READS_MIN).map(|(c, _)| *c).collect();
        w.add(
            "hidden-reads",
            Level::Warning,
            format!(
                "partial-page log writes read the disk back: {reads:.2} device reads per commit ({}); write whole, aligned blocks",
                worst.spec.title()
            ),
            format!("reads at the device by /proc/diskstats while only a log was written, in {} of {} cells", cells.len(), measured.len()),
            &cells,
        );
    } else {
        w.add(
            "hidden-reads",
            Level::Good,
            "no log write read the disk back",
            format!("at most {reads:.3} device reads per commit in {} cells, by /proc/diskstats", measured.len()),
            &measured.iter().map(|(c, _)| *c).collect::<Vec<_>>(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noisy, said, verdict};
    use super::*;
    use crate::sample::{self, cell};

    #[test]
    fn direct_against_buffered_each_way() {
        for t in [1, 16] {
            let [direct, buffered] = direct_and_buffered(t);
            let id = format!("log-memory.direct.t{t}");
            let says = |rate| said(&sample::results(vec![cell(direct, rate), cell(buffered, 10_000.0)]), &id).0;
            assert_eq!(says(15_000.0), Level::Good);
            assert_eq!(says(10_000.0), Level::Good);
            assert_eq!(says(8_000.0), Level::Note);
            let r = sample::results(vec![noisy(direct, 10_000.0), cell(buffered, 10_000.0)]);
            assert_eq!(said(&r, &id).0, Level::CannotTell);
        }
    }

    #[test]
    fn merging_each_way() {
        for (access, name) in [(Access::Buffered, "buffered"), (Access::Direct, "direct")] {
            let says = |rate| {
                let cells = vec![cell(log(16, access, 512, true), rate), cell(log(16, access, 512, false), 10_000.0)];
                said(&sample::results(cells), &format!("log-memory.merged-{name}.t16")).0
            };
            assert_eq!(says(15_000.0), Level::Good);
            assert_eq!(says(10_000.0), Level::Note);
            assert_eq!(says(5_000.0), Level::Warning);
        }
        assert!(verdict(&sample::results(vec![]), "log-memory.merged-direct.t16").is_none());
    }

    #[test]
    fn dontcache_each_way() {
        let says = |rate| {
            let cells = vec![
                cell(log(4, Access::DontCache, 4096, true), rate),
                cell(log(4, Access::Direct, 4096, true), 10_000.0),
            ];
            said(&sample::results(cells), "log-memory.dontcache.t4").0
        };
        assert_eq!(says(15_000.0), Level::Note);
        assert_eq!(says(5_000.0), Level::Good);
        assert_eq!(says(10_000.0), Level::CannotTell);
    }

    #[test]
    fn page_cache_each_way() {
        for (access, subject, held) in [
            (Access::Buffered, "buffered", Level::Note),
            (Access::Uncached, "uncached", Level::Warning),
            (Access::DontCache, "dontcache", Level::Warning),
            (Access::Direct, "direct", Level::Warning),
        ] {
            let id = format!("log-memory.page-cache.{subject}");
            let mut r = sample::results(vec![cell(log(16, access, 512, true), 10_000.0)]);
            assert_eq!(said(&r, &id).0, Level::Good);
            r.cells[0].rounds[3].cached_bytes = Some(500 << 20);
            let (level, sentence) = said(&r, &id);
            assert_eq!(level, held);
            assert!(sentence.contains("500 MiB"), "{sentence}");
            r.cells[0].rounds.iter_mut().for_each(|round| round.cached_bytes = None);
            assert!(verdict(&r, &id).is_none());
        }
    }

    #[test]
    fn hidden_reads_each_way() {
        let mut r = sample::results(vec![cell(log(16, Access::Uncached, 512, true), 10_000.0)]);
        assert_eq!(said(&r, "log-memory.hidden-reads").0, Level::Good);
        for round in &mut r.cells[0].rounds {
            round.device.as_mut().unwrap().reads = round.operations / 2;
        }
        let (level, sentence) = said(&r, "log-memory.hidden-reads");
        assert_eq!(level, Level::Warning);
        assert!(sentence.contains("0.50 device reads per commit"), "{sentence}");
        r.cells[0].rounds[0].device = None;
        assert!(verdict(&r, "log-memory.hidden-reads").is_none());
    }
}
