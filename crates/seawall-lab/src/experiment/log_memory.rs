//! E2: the log's write path. Direct or buffered, merged or one write per record, and the memory it leaves in
//! use.
//!
//! - Direct and buffered are compared with both merged: the published loss at many threads came from not
//!   merging.
//! - Reads at the device during a log cell are read-modify-writes: a log has no other reason to read.

use super::definition::Definition;
use crate::cell::{Access, CellSpec, Experiment, LogShape, Pattern, Sync};
use crate::evidence::{Evidence, Panel};
use crate::results::{CellResult, Results};
use crate::text::{self, vars};
use crate::verdict::{Pair, Writer, file_system_word, most_cached, pair};

pub(crate) static EXPERIMENT: Definition = Definition {
    toml: include_str!("log_memory.toml"),
    cells,
    conclude: &[direct_against_buffered, merged, dont_cache, page_cache, hidden_reads],
    evidence,
};

/// From this many reads per commit on, partial-page writes are named as the cause.
const READS_MIN: f64 = 0.05;
/// From this much page cache on, a log is said to hold some.
const CACHED_MIN: u64 = 1 << 20;
/// Committing threads of the full run.
pub(crate) const THREADS: [u32; 4] = [1, 4, 16, 64];

/// Log commits by `threads`.
///
/// ```
/// use seawall_lab::{cell::Access, plan};
/// let merged = plan::log(16, Access::Direct, 4096, true);
/// assert_eq!(merged.id(), "e2/overwrite/log/4k/direct/fdatasync/t16/merged");
/// ```
pub fn log(threads: u32, access: Access, block_bytes: u32, merged: bool) -> CellSpec {
    CellSpec {
        pattern: Pattern::Log,
        threads,
        access,
        block_bytes,
        sync: Sync::Fdatasync,
        log: Some(LogShape { records_per_commit: 4, record_bytes: 512, merged }),
        ..CellSpec::new(Experiment::LogMemory)
    }
}

fn cells(full: bool) -> Vec<CellSpec> {
    use Access as A;
    if !full {
        return vec![log(16, A::Buffered, 512, false), log(16, A::Buffered, 512, true), log(16, A::Direct, 4096, true)];
    }
    let of = |threads| {
        [
            log(threads, A::Buffered, 512, false),
            log(threads, A::Buffered, 512, true),
            log(threads, A::Uncached, 512, true),
            log(threads, A::Direct, 512, false),
            log(threads, A::Direct, 512, true),
            log(threads, A::Direct, 4096, true),
            log(threads, A::DontCache, 4096, true),
        ]
    };
    THREADS.into_iter().flat_map(of).collect()
}

/// A merged direct log against a merged buffered one.
pub(crate) fn direct_and_buffered(threads: u32) -> [CellSpec; 2] {
    [log(threads, Access::Direct, 4096, true), log(threads, Access::Buffered, 512, true)]
}

/// Compares two specs at the smallest and at the largest number of threads at which both were measured. Each result has
/// the number, as a number and in words.
fn ends(results: &Results, specs: impl Fn(u32) -> [CellSpec; 2]) -> Vec<(u32, String, Pair<'_>)> {
    let both = |t| Some((t, text::many(t, "thread", "threads"), pair(results, specs(t))?));
    let mut pairs: Vec<_> = THREADS.into_iter().filter_map(both).collect();
    if pairs.len() > 2 {
        pairs.drain(1..pairs.len() - 1);
    }
    pairs
}

fn direct_against_buffered(results: &Results, w: &mut Writer<'_>) {
    for (threads, with, p) in ends(results, direct_and_buffered) {
        let published = if threads == 1 { "direct about 10% faster" } else { "direct 10-20% slower, unmerged" };
        w.compare("direct", p, vars![threads, with, published]);
    }
}

fn merged(results: &Results, w: &mut Writer<'_>) {
    for access in [Access::Buffered, Access::Direct] {
        for (threads, with, p) in ends(results, |t| [true, false].map(|merged| log(t, access, 512, merged))) {
            w.compare("merged", p, vars![access, threads, with]);
        }
    }
}

fn dont_cache(results: &Results, w: &mut Writer<'_>) {
    let specs = |t| [Access::DontCache, Access::Direct].map(|access| log(t, access, 4096, true));
    for (threads, with, p) in ends(results, specs) {
        w.compare("dontcache", p, vars![threads, with]);
    }
}

fn page_cache(results: &Results, w: &mut Writer<'_>) {
    let (memory, fs) = (results.machine.memory_bytes as f64, file_system_word(results));
    for (access, log) in [
        (Access::Buffered, "a buffered log"),
        (Access::Uncached, "a buffered log whose pages are dropped"),
        (Access::DontCache, "an RWF_DONTCACHE log"),
        (Access::Direct, "a direct log"),
    ] {
        let of_access = results.cells_of(Experiment::LogMemory).filter(|c| c.spec.access == access);
        let Some((cell, cached)) = most_cached(of_access) else { continue };
        let (size, title) = (text::bytes(cached as f64), cell.spec.title());
        let commits = text::count(cell.operations() as f64 / cell.rounds.len() as f64);
        let share = text::percent(cached as f64 / memory);
        let share = if memory > 0.0 { format!(" ({share} of memory)") } else { String::new() };
        let outcome = match access {
            _ if cached < CACHED_MIN => "none",
            Access::Buffered => "stays",
            _ => "left",
        };
        w.say("page-cache", outcome, vars![access, log, title, fs, size, commits, share]);
    }
}

fn hidden_reads(results: &Results, w: &mut Writer<'_>) {
    let per_commit = |c| Some((c, CellResult::per_operation(c, |device| Some(device.reads))?));
    let quiet = results.cells_of(Experiment::LogMemory).filter(|c| !c.disturbed());
    let mut measured: Vec<(&CellResult, f64)> = quiet.filter_map(per_commit).collect();
    measured.sort_by(|a, b| b.1.total_cmp(&a.1));
    let Some(&(worst, reads)) = measured.first() else { return };
    let found = measured.iter().filter(|(_, r)| *r >= READS_MIN).count();
    let outcome = if found == 0 { "none" } else { "found" };
    let (most, worst, limit) = (format!("{reads:.3}"), worst.spec.title(), READS_MIN);
    let reads = format!("{reads:.2}");
    w.say("hidden-reads", outcome, vars![most, worst, limit, found, measured = measured.len(), reads]);
}

fn mode(spec: &CellSpec) -> String {
    let merged = if spec.log.is_some_and(|l| l.merged) { "one write per group" } else { "a write per record" };
    format!("{}, {}, {merged}", spec.access.words(), text::bytes(f64::from(spec.block_bytes)))
}

fn evidence(e: &Evidence<'_>) -> Vec<Option<Panel>> {
    vec![e.rates_over("rates", &[], |spec| Some((mode(spec), spec.threads)))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, cell};
    use crate::verdict::Level;
    use crate::verdict::testing::{noisy, said, verdict};

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
        for (access, subject, expected) in [
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
            assert_eq!(level, expected);
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
