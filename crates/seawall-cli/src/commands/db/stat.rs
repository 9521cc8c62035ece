//! `seawall stat DIR`: the numbers of a database that another process has open.
//!
//! - The database is not opened: the owning process publishes its statistics every `stats_interval` into a
//!   small file of the directory.
//! - The age of the numbers is always shown. The lock on the control file distinguishes a process that was
//!   killed from one that hangs.

use super::must_be_database;
use crate::{Ended, Failed, Outcome, Reader, Stop, answer, note, print, units};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use seawall::publish::STATS_FILE;
pub(super) use seawall::stats::percentile_ns as percentile;
use seawall::stats::total_ns;
use seawall::{Published, Stats};
use seawall_io::{CellSnapshot, Op};
use seawall_lab::report::latency;
use seawall_lab::run::pause;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(crate) struct StatArgs {
    /// The directory of the database
    dir: PathBuf,
    /// Show the rates repeatedly, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
    /// Time between two outputs of `--watch`, with ms, s, m or h; at least the interval of the numbers
    #[arg(long, default_value = "1s", value_parser = units::duration, requires = "watch")]
    interval: Duration,
    /// Stop `--watch` after this many outputs
    #[arg(long, requires = "watch")]
    count: Option<u64>,
    /// Print JSON; with `--watch`, one object per line
    #[arg(long)]
    json: bool,
    /// Print Prometheus text
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    prometheus: bool,
}

/// The last published statistics of a database, and whether a process has it open.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) published: Published,
    /// Whether its control file is locked; `None` if that cannot be determined.
    pub(super) held: Option<bool>,
}

/// Returns whether a process has the database in `dir` open for writing. A process that opens the database
/// at the same moment retries when it meets the shared lock that is taken here.
fn held(dir: &Path) -> Option<bool> {
    let control = File::open(dir.join(seawall::CONTROL_FILE)).ok()?;
    match flock(&control, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Some(false),
        Err(Errno::WOULDBLOCK) => Some(true),
        Err(_) => None,
    }
}

impl Seen {
    pub(super) fn look(dir: &Path) -> Result<Self, Failed> {
        must_be_database(dir)?;
        let published = Published::read(dir)?.ok_or_else(|| {
            let why = "it is written by the process that has the database open, every `stats_interval`";
            format!("{} has no {STATS_FILE}: {why}", dir.display())
        })?;
        Ok(Self { published, held: held(dir) })
    }

    /// Returns whether the process that published the numbers still has the database open and publishes.
    pub(super) fn is_live(&self) -> bool {
        self.published.is_live() && self.held != Some(false)
    }

    /// Returns a sentence about the origin of the numbers.
    pub(super) fn origin(&self) -> String {
        let age = self.published.age();
        let ago = if age < Duration::from_secs(90) {
            format!("{:.1} s ago", age.as_secs_f64())
        } else {
            format!("{} minutes ago", age.as_secs() / 60)
        };
        let pid = self.published.pid;
        match (self.published.open, self.held) {
            _ if self.is_live() => format!("process {pid} has it open; numbers of {ago}"),
            (true, Some(false)) => format!(
                "NOT CLOSED: process {pid} has ended without closing it, its last numbers are of {ago}; the \
                 next opening recovers it"
            ),
            (true, None) => {
                format!("STALE: numbers of {ago}; process {pid} has published none since: it hangs, or has ended")
            }
            (_, Some(true)) => format!(
                "STALE: numbers of process {pid}, {ago}; the process that has it open publishes none now: \
                 stats_interval is 0, the disk is full, or the process hangs"
            ),
            (false, _) => format!("closed: the last numbers of process {pid}, {ago}"),
        }
    }
}

pub(crate) fn stat(args: &StatArgs, stop: &Stop) -> Outcome {
    let first = Seen::look(&args.dir)?;
    if args.prometheus {
        if !first.is_live() {
            note(format_args!("seawall: {}", first.origin()));
        }
        let up = first.held.unwrap_or(first.is_live());
        return answer(seawall_tools::prometheus::published(&first.published, up));
    }
    let text = |seen: &Seen, stats: &Stats, title: &str, end: &str| {
        if args.json { as_json(seen, stats) } else { format!("{}\n{title}\n{}{end}", seen.origin(), page(stats)) }
    };
    if !args.watch {
        return answer(text(&first, &first.published.stats, "since it was opened:\n", ""));
    }
    let mut earlier = first;
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) && pause(args.interval, stop) {
        let now = Seen::look(&args.dir)?;
        let is_new = now.published.at_unix_ms != earlier.published.at_unix_ms;
        if !is_new && now.is_live() {
            // The interval of the outputs is shorter than that of the numbers.
            continue;
        }
        let window = now.published.stats.since(&earlier.published.stats);
        if print(text(&now, &window, "", "\n"))? == Reader::Gone {
            break;
        }
        looks += 1;
        if is_new {
            earlier = now;
        }
    }
    Ok(Ended::Well)
}

fn as_json(seen: &Seen, stats: &Stats) -> String {
    let published = &seen.published;
    let value = json!({
        "pid": published.pid, "open": published.open, "live": seen.is_live(), "held": seen.held,
        "age_ms": u64::try_from(published.age().as_millis()).unwrap_or(u64::MAX),
        "io": used(stats).map(io_json).collect::<Value>(), "stats": stats,
    });
    format!("{value}\n")
}

/// Iterates over the cells with operations or errors.
fn used(stats: &Stats) -> impl Iterator<Item = &CellSnapshot> {
    stats.io.cells.iter().filter(|cell| cell.count() + cell.errors > 0)
}

/// Returns the latencies of a cell: the median, the 99th percentile and the longest, ns.
fn latencies(cell: &CellSnapshot) -> [u64; 3] {
    [50.0, 99.0, 100.0].map(|percent| percentile(cell, percent))
}

fn io_json(cell: &CellSnapshot) -> Value {
    let [p50, p99, max] = latencies(cell);
    json!({
        "class": cell.class, "op": cell.op, "cause": cell.cause, "count": cell.count(), "bytes": cell.bytes,
        "errors": cell.errors, "total_ns": total_ns(cell), "p50_ns": p50, "p99_ns": p99, "max_ns": max,
    })
}

/// Formats a time for people.
pub(super) fn time(ns: u64) -> String {
    latency(ns as f64)
}

/// Draws the distribution of latencies, with a column for each factor of about three from 10 us to 1 s.
fn shape(cell: &CellSnapshot) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ENDS_US: [u64; 11] = [10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000];
    let mut columns = [0u64; ENDS_US.len() + 1];
    for bucket in &cell.latency {
        columns[ENDS_US.partition_point(|end| end * 1_000 < bucket.end())] += bucket.count();
    }
    let most = columns.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: u64| match count {
        0 => ' ',
        // A small count beside a large one still shows.
        _ => BARS[((count as f64 / most as f64) * 7.0).round() as usize],
    };
    columns.into_iter().map(bar).collect()
}

/// Describes the activity of the buffer pool, in one or two lines.
fn pool_lines(s: &Stats, rate: impl Fn(u64) -> f64 + Copy) -> String {
    let p = &s.pool;
    let [misses, evictions, written] = [p.misses, p.evictions, p.pages_written].map(rate);
    let mut text = format!(
        "pool: {} frames, {} free, {} dirty; {misses:.0} misses/s, {evictions:.0} evictions/s, {written:.0} pages/s \
         written\n",
        p.frames, p.frames_free, p.frames_dirty
    );
    if p.evictions_deferred > 0 {
        let [bytes, most] = [p.deferred_bytes, p.deferred_bytes_max].map(units::bytes);
        let [evicted, again, merged] = [p.evictions_deferred, p.deferred_read_again, p.pages_merged].map(rate);
        text += &format!(
            "deferred changes: of {} pages, {bytes} of at most {most}; {evicted:.0} pages/s evicted with them, \
             {again:.0}/s read again, {merged:.0}/s merged\n",
            p.deferred_pages
        );
    }
    text
}

/// Formats all activity in a window for people.
fn page(s: &Stats) -> String {
    let seconds = s.elapsed_ns as f64 / 1e9;
    let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let (l, t) = (&s.log, &s.txn);
    let wait = l.commit_wait_ns.checked_div(l.commit_waits).map_or_else(|| "-".into(), time);
    let [commits, rollbacks, writes, flushes] = [t.commits, t.rollbacks, l.groups, l.flushes].map(rate);
    let logged = units::bytes(rate(l.bytes) as u64);
    let [needed, capacity, unflushed] = [l.checkpoint_age_bytes, l.capacity_bytes, l.unflushed_bytes].map(units::bytes);
    let [data, free, left] = [s.space.data_bytes, s.space.free_bytes, s.space.disk_free_bytes].map(units::bytes);
    let (kept, undo, oldest) = (s.purge.history, units::bytes(s.purge.undo_bytes), time(s.purge.oldest_view_age_ns));
    let pool = pool_lines(s, rate);
    let mut out = format!(
        "{seconds:.1} s, {commits:.0} commits/s ({wait} each), {rollbacks:.0} rollbacks/s, {} active, {} prepared, {} \
         conflicts, {} deadlocks\n\
         {pool}\
         log: {logged}/s, {writes:.0} writes/s, {flushes:.0} flushes/s; {needed} of {capacity} needed for recovery, \
         {unflushed} not durable\n\
         undo: {kept} transactions kept ({undo}), oldest snapshot {oldest}; data: {data}, {free} free; disk: {left} \
         left\n",
        t.active, t.prepared, t.conflicts, s.locks.deadlocks
    );
    for file in &s.files {
        let cached = file.page_cache_bytes.map_or_else(|| "unknown".into(), units::bytes);
        out += &format!("{} files: {}, {cached} in the page cache\n", file.class, file.mode);
    }
    out += &format!("I/O through {}:\n", s.backend);
    out += "      class operation     cause            ops/s      bytes/s      p50      p99      max  10us..1s\n";
    for cell in used(s) {
        let errors = match (cell.errors, cell.op) {
            (0, _) => String::new(),
            // A method that is not supported here was tried.
            (n, Op::Grow | Op::Open | Op::Inspect) => format!("  {n} refused"),
            (n, _) => format!("  {n} ERRORS"),
        };
        let (ops, bytes) = (rate(cell.count()), units::bytes(rate(cell.bytes) as u64));
        let ([p50, p99, max], shape) = (latencies(cell).map(time), shape(cell));
        out += &format!(
            "{:>11} {:<13} {:<12} {ops:>9.1} {bytes:>12} {p50:>8} {p99:>8} {max:>8}  {shape}{errors}\n",
            cell.class, cell.op, cell.cause
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_io::{Cause, FileClass, IoStats};

    #[test]
    fn a_page_shows_rates_and_shapes() {
        let io = IoStats::new();
        for us in [5, 50, 50, 60, 5_000] {
            io.record(FileClass::Redo, Op::Sync, Cause::Commit, Duration::from_micros(us), 4096);
        }
        let mut stats = Stats { elapsed_ns: 2_000_000_000, io: io.snapshot(), ..Stats::default() };
        stats.txn.commits = 100;
        let text = page(&stats);
        assert!(text.contains("50 commits/s") && text.contains("commit"), "{text}");
        let cell = &stats.io.cells[0];
        assert!((50_000..52_000).contains(&percentile(cell, 50.0)), "{}", percentile(cell, 50.0));
        assert!(percentile(cell, 99.0) >= 5_000_000);
        assert_eq!(shape(cell).chars().filter(|c| *c != ' ').count(), 3, "{:?}", shape(cell));
        let none = page(&Stats::default());
        assert!(none.contains("0 commits/s (- each)"), "{none}");
    }
}
