//! Interprets the statistics: findings with their numbers, and advice.
//!
//! 1. Pure: a function of statistics that measures nothing and changes nothing.
//! 2. A finding names the numbers that it is based on. Without enough activity to judge, there is no finding.
//! 3. Each finding has an id, a line in docs/operations.md, and a test with and without the finding.
//!
//! [`place`] does the same for the disk under a directory. A [`Watch`] returns only new findings while a
//! database runs.

mod place;
mod watch;

pub use place::place;
pub use watch::Watch;

use seawall::Stats;
use seawall::stats::total_ns;
use seawall_io::{Cause, CellSnapshot, FileClass, Op};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Normal, although it may look odd.
    Good,
    /// Worth knowing.
    Note,
    /// Costs performance, or will soon cause a worse problem.
    Warning,
    /// Act now.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// One finding: an observation with its numbers, and advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Its name in docs/operations.md.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The observation, with its numbers.
    pub sentence: String,
    /// What to do.
    pub advice: String,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.severity, self.sentence, self.advice)
    }
}

/// Returns the findings about the time from `earlier` (or from the opening of the database) to `now`, the
/// worst first.
///
/// ```
/// use seawall::Stats;
/// use seawall_tools::doctor::{Severity, diagnose};
/// let mut now = Stats { elapsed_ns: 10_000_000_000, ..Stats::default() };
/// assert!(diagnose(&now, None).is_empty(), "nothing happened, nothing is said");
/// now.log.capacity_bytes = 512 << 20;
/// now.log.checkpoint_waits = 40;
/// let found = diagnose(&now, None).remove(0);
/// assert_eq!((found.id, found.severity), ("checkpoint-waits", Severity::Warning));
/// assert!(found.sentence.contains("40 times") && found.advice.contains("log_capacity"));
/// ```
#[must_use]
pub fn diagnose(now: &Stats, earlier: Option<&Stats>) -> Vec<Diagnosis> {
    let window = earlier.map_or_else(|| now.clone(), |earlier| now.since(earlier));
    let mut found: Vec<Diagnosis> = RULES.iter().flat_map(|rule| rule(&window)).collect();
    // Stable: findings of equal severity keep the order of the rules.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

type Rule = fn(&Stats) -> Vec<Diagnosis>;

const RULES: [Rule; 17] = [
    io_errors,
    disk_space,
    modes,
    backend,
    checkpoint_waits,
    pool,
    frames_not_ready,
    dirty_at_ceiling,
    clean_writes,
    log_flushes,
    log_buffer,
    purge,
    locks,
    growth,
    reclaimable,
    doublewrite,
    page_cache,
];

/// Fewer waits a second than this do not matter.
const WAITS_A_SECOND_MIN: f64 = 1.0;
/// A share of the time below this does not matter.
const SHARE_PERCENT_MIN: f64 = 1.0;
/// Fewer requests than this say nothing about a ratio.
const REQUESTS_MIN: u64 = 1000;

fn one(when: bool, id: &'static str, severity: Severity, say: impl FnOnce() -> (String, String)) -> Vec<Diagnosis> {
    if !when {
        return Vec::new();
    }
    let (sentence, advice) = say();
    vec![Diagnosis { id, severity, sentence, advice }]
}

/// Returns `part` in percent of `whole`; 0 if `whole` is 0.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Returns the average number of concurrent waiters (Little's law).
fn waiting(wait_ns: u64, stats: &Stats) -> f64 {
    percent(wait_ns, stats.elapsed_ns) / 100.0
}

/// Returns the rate, events a second.
fn a_second(times: u64, stats: &Stats) -> f64 {
    if stats.elapsed_ns == 0 { 0.0 } else { times as f64 * 1e9 / stats.elapsed_ns as f64 }
}

fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        1_000_000_000..120_000_000_000 => format!("{:.1} s", ns as f64 / 1e9),
        _ => format!("{} minutes", ns / 60_000_000_000),
    }
}

fn bytes(n: u64) -> String {
    match n {
        0..0x10_0000 => format!("{} KiB", n >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", n >> 20),
        _ => format!("{:.1} GiB", n as f64 / f64::from(1 << 30)),
    }
}

fn io_errors(s: &Stats) -> Vec<Diagnosis> {
    // Opening and allocating try methods that do not exist everywhere, so their errors are not failures of
    // the disk. The failed growth itself reports a full disk.
    let moves = |op: Op| matches!(op, Op::Read | Op::Write | Op::DurableWrite | Op::Sync);
    let counts = |cell: &&CellSnapshot| cell.errors > 0 && cell.class != FileClass::Scratch && moves(cell.op);
    let failed: Vec<_> = s.io.cells.iter().filter(counts).collect();
    let list = || {
        failed
            .iter()
            .map(|c| format!("{} {} for {}: {}", c.class, c.op, c.cause, c.errors))
            .collect::<Vec<_>>()
            .join(", ")
    };
    one(!failed.is_empty(), "io-errors", Severity::Critical, || {
        (
            format!("I/O failed ({}).", list()),
            "Look at the kernel log (dmesg) and the device. After a failed write of log or data the database takes \
             no more commits: open it again when the disk is well."
                .into(),
        )
    })
}

fn disk_space(s: &Stats) -> Vec<Diagnosis> {
    let (data, left) = (s.space.data_bytes, s.space.disk_free_bytes);
    let little = left < (data / 20).clamp(256 << 20, 10 << 30);
    let severity = if left < 64 << 20 { Severity::Critical } else { Severity::Warning };
    one(data > 0 && little, "disk-space", severity, || {
        (
            format!(
                "The file system has {} left; the data file has {}, {} of it \
                 free.",
                bytes(left),
                bytes(data),
                bytes(s.space.free_bytes)
            ),
            "Free space there or move the database. When it is full, new data is refused; reads, deletes and commits go \
             on."
                .into(),
        )
    })
}

fn modes(s: &Stats) -> Vec<Diagnosis> {
    s.files
        .iter()
        .filter(|file| file.mode.degraded.is_some())
        .flat_map(|file| {
            let buffered = file.mode.requested.is_direct() && !file.mode.direct;
            let severity = if buffered { Severity::Warning } else { Severity::Note };
            one(true, "mode-degraded", severity, || {
                (
                    format!("{} files are not open as requested: {}.", file.class, file.mode),
                    "`seawall probe` shows what the path supports. Choose a method that works here, or use another \
                     file system."
                        .into(),
                )
            })
        })
        .collect()
}

fn backend(s: &Stats) -> Vec<Diagnosis> {
    let fell_back = s.backend.contains("does not work here");
    one(fell_back, "backend-fallback", Severity::Warning, || {
        (
            format!("The I/O backend is {}.", s.backend),
            "Prefetch and the cleaner need more threads and processor time for the same I/O. A container's seccomp \
             profile, the sysctl kernel.io_uring_disabled, or the limit of locked memory (ulimit -l, LimitMEMLOCK) may \
             forbid io_uring; io_backend = threads accepts it as it is."
                .into(),
        )
    })
}

fn checkpoint_waits(s: &Stats) -> Vec<Diagnosis> {
    let l = &s.log;
    let often = a_second(l.checkpoint_waits, s);
    let waits = one(often >= WAITS_A_SECOND_MIN, "checkpoint-waits", Severity::Warning, || {
        (
            format!(
                "Changes waited {} times, {often:.1} times a second, for a checkpoint: the log ({}) was full.",
                l.checkpoint_waits,
                bytes(l.capacity_bytes)
            ),
            format!(
                "Raise log_capacity, to {} for a start (it can be changed while running), and io_capacity_burst if \
                 the disk can do more.",
                bytes(l.capacity_bytes.saturating_mul(2))
            ),
        )
    });
    if !waits.is_empty() {
        return waits;
    }
    let full = percent(l.checkpoint_age_bytes, l.capacity_bytes);
    one(full >= 85.0, "log-nearly-full", Severity::Note, || {
        (
            format!(
                "{full:.0}% of the log ({} of {}) is needed for recovery.",
                bytes(l.checkpoint_age_bytes),
                bytes(l.capacity_bytes)
            ),
            "Writes are paced by the log's size: raise log_capacity to absorb bursts.".into(),
        )
    })
}

fn pool(s: &Stats) -> Vec<Diagnosis> {
    let p = &s.pool;
    let cached = one(
        p.pages_written >= REQUESTS_MIN && p.reads < p.pages_written / 20,
        "working-set-cached",
        Severity::Good,
        || {
            (
                format!("{} pages were written and only {} read.", p.pages_written, p.reads),
                "The working set is in memory. That the disk then sees many more writes than reads is normal.".into(),
            )
        },
    );
    // Readers wait only for demand reads.
    let wait_ns = s.io.get(FileClass::Data, Op::Read, Cause::DemandRead).map_or(0, total_ns);
    let waiters = waiting(wait_ns, s);
    let often = p.misses >= REQUESTS_MIN && waiters >= 0.1;
    // Misses without evictions mean that the pool is still filling.
    let small = one(often && p.evictions.saturating_mul(2) > p.misses, "pool-too-small", Severity::Warning, || {
        (
            format!(
                "{waiters:.1} readers waited for the disk at a time ({} pages, {} each), and {} pages were \
                 evicted from a pool of {}.",
                p.misses,
                time(wait_ns / p.misses.max(1)),
                p.evictions,
                bytes(p.frames.saturating_mul(p.page_bytes))
            ),
            "Raise pool_size (it can be changed while running) if the machine has the memory, or read less: a scan \
             that could use an index does this too."
                .into(),
        )
    });
    [cached, small].concat()
}

fn frames_not_ready(s: &Stats) -> Vec<Diagnosis> {
    let p = &s.pool;
    let often = a_second(p.evict_waits, s);
    one(often >= WAITS_A_SECOND_MIN, "no-free-frames", Severity::Warning, || {
        (
            format!(
                "Threads waited {} times, {often:.1} times a second, for a free frame; {} of {} frames are dirty.",
                p.evict_waits, p.frames_dirty, p.frames
            ),
            "The cleaner does not keep up: raise io_capacity and io_capacity_burst to what `seawall lab` measured, \
             or raise pool_size."
                .into(),
        )
    })
}

fn dirty_at_ceiling(s: &Stats) -> Vec<Diagnosis> {
    let p = &s.pool;
    let full = p.frames_dirty_max > 0 && percent(p.frames_dirty, p.frames_dirty_max) >= 95.0;
    one(full, "dirty-at-ceiling", Severity::Warning, || {
        (
            format!(
                "{} frames are dirty; at most {} of {} may \
                 be.",
                p.frames_dirty, p.frames_dirty_max, p.frames
            ),
            "Pages are changed faster than they are written: raise io_capacity_burst if the disk can do more, or \
             raise pool_size."
                .into(),
        )
    })
}

fn clean_writes(s: &Stats) -> Vec<Diagnosis> {
    let spent = |of: fn(&CellSnapshot) -> bool| -> u64 {
        s.io.cells.iter().filter(|cell| of(cell)).map(total_ns).fold(0, u64::saturating_add)
    };
    let (cleaning, all) = (spent(|cell| cell.cause == Cause::Clean), spent(|_| true));
    let (p, l) = (&s.pool, &s.log);
    let much = p.pages_written >= REQUESTS_MIN && percent(cleaning, all) >= 50.0;
    one(much, "clean-writes-dominate", Severity::Note, || {
        let each = p.pages_written as f64 / l.commits.max(1) as f64;
        (
            format!(
                "{:.0}% of the I/O time ({} of {}) went to writing {} changed pages home, {each:.2} for each commit.",
                percent(cleaning, all),
                time(cleaning),
                time(all),
                p.pages_written
            ),
            format!(
                "The writes are in the background: act only if reads or commits are slow. A page is written once for \
                 all its changes since the last time: a larger log_capacity (now {}) and pool_size (now {}) collect \
                 more of them, and so do changes in key order.",
                bytes(l.capacity_bytes),
                bytes(p.frames.saturating_mul(p.page_bytes))
            ),
        )
    })
}

/// Returns the mean time of the flushes that commits wait for, ns: of durable writes, or of syncs if there
/// were none.
fn flush_mean_ns(s: &Stats) -> Option<u64> {
    [Op::DurableWrite, Op::Sync].into_iter().find_map(|op| {
        let cell = s.io.get(FileClass::Redo, op, Cause::Commit).filter(|cell| cell.count() > 0)?;
        let sum: f64 = cell.latency.iter().map(|bucket| bucket.end() as f64 * bucket.count() as f64).sum();
        Some((sum / cell.count() as f64) as u64)
    })
}

fn log_flushes(s: &Stats) -> Vec<Diagnosis> {
    let l = &s.log;
    let waiters = waiting(l.commit_wait_ns, s);
    if l.commit_waits < 100 || l.groups == 0 {
        return Vec::new();
    }
    let group = l.commits as f64 / l.groups as f64;
    let alone = one(waiters >= 4.0 && group < 1.5, "commits-not-grouped", Severity::Warning, || {
        (
            format!(
                "{waiters:.1} transactions waited for the log at a time, yet a write of the log carried \
                     {group:.1} commits."
            ),
            "They do not wait for each other's flush: check the flush latency below, and the CPU. Please \
             report it with these statistics."
                .into(),
        )
    });
    // Nearly one waiter at all times: a thread that commits in a loop does little but wait for the log.
    let dominates = one(waiters >= 0.8, "log-flush-dominates", Severity::Note, || {
        let flush = flush_mean_ns(s).map_or_else(String::new, |ns| format!(", a flush takes {}", time(ns)));
        (
            format!(
                "Commits waited {} on average for the log, {waiters:.1} at a time; a write of the log carried \
                 {group:.1} commits{flush}.",
                time(l.commit_wait_ns / l.commit_waits)
            ),
            "More concurrent or larger transactions share a flush. `seawall lab` finds the fastest log_flush_method; \
             a drive with power-loss protection makes flushes cheap; durability = written gives up the last \
             second at a power loss."
                .into(),
        )
    });
    [alone, dominates].concat()
}

fn log_buffer(s: &Stats) -> Vec<Diagnosis> {
    let l = &s.log;
    let often = a_second(l.buffer_waits, s);
    one(often >= WAITS_A_SECOND_MIN, "log-buffer-full", Severity::Warning, || {
        (
            format!(
                "Changes waited {} times, {often:.1} times a second, because the log buffer was full.",
                l.buffer_waits
            ),
            "Raise log_buffer_size, or see whether the log's disk is overloaded.".into(),
        )
    })
}

fn purge(s: &Stats) -> Vec<Diagnosis> {
    const HISTORY_MANY: u64 = 100_000;
    const UNDO_MUCH: u64 = 256 << 20;
    const VIEW_OLD_NS: u64 = 60_000_000_000;
    let p = &s.purge;
    let behind = p.history >= HISTORY_MANY || p.undo_bytes >= UNDO_MUCH;
    let old = p.oldest_view_age_ns >= VIEW_OLD_NS;
    let kept = format!("The undo of {} committed transactions ({}) is kept", p.history, bytes(p.undo_bytes));
    let held = one(behind && old, "purge-held-by-snapshot", Severity::Warning, || {
        (
            format!("{kept} for a snapshot that is {} old.", time(p.oldest_view_age_ns)),
            "End that transaction: until then space grows and reads of often-changed rows get slower. No option helps."
                .into(),
        )
    });
    let slow = one(behind && !old, "purge-behind", Severity::Warning, || {
        (
            format!("{kept}, though no snapshot is older than a minute; that of {} was purged.", p.purged),
            "Purge does not keep up: it needs the pages of the deleted rows. Raise pool_size or io_capacity, or \
             delete in smaller portions."
                .into(),
        )
    });
    [held, slow].concat()
}

fn locks(s: &Stats) -> Vec<Diagnosis> {
    let l = &s.locks;
    let waiters = waiting(l.wait_ns, s);
    let much = l.waits >= 10 && waiters >= 1.0 && l.wait_ns > s.log.commit_wait_ns;
    let waits = one(much, "lock-waits", Severity::Warning, || {
        (
            format!(
                "{waiters:.1} transactions waited for a lock at a time ({} waits, {} on average), longer than for \
                 the log.",
                l.waits,
                time(l.wait_ns / l.waits)
            ),
            "Make transactions shorter, change contended rows last, and commit before waiting for anything outside."
                .into(),
        )
    });
    let ended = l.deadlocks.saturating_add(l.timeouts);
    let lost = one(ended >= 10 && percent(ended, s.txn.begun) >= 1.0, "deadlocks", Severity::Warning, || {
        (
            format!("{} deadlocks and {} lock time-outs in {} transactions.", l.deadlocks, l.timeouts, s.txn.begun),
            "Lock rows in the same order everywhere; run a victim again.".into(),
        )
    });
    [waits, lost].concat()
}

fn growth(s: &Stats) -> Vec<Diagnosis> {
    let p = &s.space;
    let share = percent(p.growth_ns, s.elapsed_ns);
    one(p.growths >= 10 && share >= SHARE_PERCENT_MIN, "growth-cost", Severity::Warning, || {
        (
            format!(
                "The data file grew {} times, which took {} altogether ({share:.0}% of the time); {} of its {} \
                 are free.",
                p.growths,
                time(p.growth_ns),
                bytes(p.free_bytes),
                bytes(p.data_bytes)
            ),
            "Raise data_growth_step (it can be changed while running), or grow the file while nothing has it open: \
             `seawall grow`."
                .into(),
        )
    })
}

/// Free space below this is not reported, bytes.
const FREE_BYTES_PLENTY: u64 = 256 << 20;

fn reclaimable(s: &Stats) -> Vec<Diagnosis> {
    let p = &s.space;
    let much = p.free_bytes > FREE_BYTES_PLENTY && p.free_bytes > p.data_bytes / 4;
    one(much, "space-reclaimable", Severity::Note, || {
        let what = format!("{} of the data file's {} are free.", bytes(p.free_bytes), bytes(p.data_bytes));
        (what, "It is used before the file grows. To return it to the file system: `seawall compact`.".into())
    })
}

fn doublewrite(s: &Stats) -> Vec<Diagnosis> {
    let of = |class: FileClass| -> u64 {
        let writes = |op: Op| op == Op::Write || op == Op::DurableWrite;
        s.io.cells.iter().filter(|c| c.class == class && writes(c.op)).map(|c| c.bytes).fold(0, u64::saturating_add)
    };
    let twice = of(FileClass::Doublewrite);
    let all = [FileClass::Data, FileClass::Redo].into_iter().map(of).fold(twice, u64::saturating_add);
    // Fewer bytes than this are not reported.
    one(twice >= 1 << 30 && percent(twice, all) >= 30.0, "doublewrite-cost", Severity::Note, || {
        (
            format!(
                "{} of {} written went to the doublewrite area \
                 ({:.0}%).",
                bytes(twice),
                bytes(all),
                percent(twice, all)
            ),
            "That is the cost of protection against torn pages. Where `seawall probe` shows untorn writes of \
             a page, torn_page_protection = auto saves it; a larger log_capacity writes each page less \
             often."
                .into(),
        )
    })
}

fn page_cache(s: &Stats) -> Vec<Diagnosis> {
    // For the buffered ends of files, and pages that a probe left behind.
    const A_LITTLE: u64 = 1 << 20;
    s.files
        .iter()
        .filter_map(|file| Some((file, file.page_cache_bytes.filter(|b| *b > A_LITTLE)?)))
        .flat_map(|(file, cached)| {
            one(file.mode.direct, "page-cache-used", Severity::Note, || {
                (
                    format!(
                        "{} of {} files are in the kernel's page cache, though they are open for direct I/O.",
                        bytes(cached),
                        file.class
                    ),
                    "Another program read them, a backup for instance. `seawall cache` shows and drops them.".into(),
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
