use super::*;
use seawall::metrics::FileState;
use seawall_io::{EffectiveMode, FlushMethod, IoStats};
use std::collections::HashSet;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// Statistics of ten busy seconds of a healthy database.
fn well() -> Stats {
    let mut s = Stats { elapsed_ns: 10 * SECOND, ..Stats::default() };
    s.pool.page_bytes = 16384;
    s.pool.frames = 8192;
    s.pool.frames_free = 100;
    s.pool.frames_dirty = 3000;
    s.pool.frames_dirty_max = 7372;
    s.pool.misses = 3_000;
    s.pool.reads = 5_000;
    s.pool.evictions = 4_000;
    s.pool.prefetched = 2_000;
    s.pool.pages_written = 3_000;
    s.log.groups = 2_000;
    s.log.commits = 20_000;
    s.log.commit_waits = 20_000;
    s.log.commit_wait_ns = 5 * SECOND;
    s.log.capacity_bytes = 512 << 20;
    s.log.checkpoint_age_bytes = 300 << 20;
    s.txn.begun = 20_000;
    s.locks.waits = 50;
    s.locks.wait_ns = SECOND;
    s.purge.history = 1_000;
    s.space.data_bytes = 10 << 30;
    s.space.disk_free_bytes = 50 << 30;
    s.files = vec![file(FileClass::Data, true, None, Some(0))];
    s
}

fn file(class: FileClass, direct: bool, degraded: Option<&str>, page_cache_bytes: Option<u64>) -> FileState {
    let degraded = degraded.map(str::to_owned);
    let mode = EffectiveMode { requested: FlushMethod::ODirect, direct, align_bytes: 512, rwf_dsync: false, degraded };
    FileState { class, mode, page_cache_bytes }
}

fn ids(stats: &Stats) -> Vec<&'static str> {
    diagnose(stats, None).into_iter().map(|f| f.id).collect()
}

/// Returns the findings after one change to a healthy database.
fn after(change: impl FnOnce(&mut Stats)) -> Vec<&'static str> {
    let mut stats = well();
    change(&mut stats);
    ids(&stats)
}

type Case = (&'static str, fn(&mut Stats), fn(&mut Stats));

/// A finding, statistics that cause it, and statistics that just do not.
const CASES: [Case; 20] = [
    ("io-errors", |s| fail(s, FileClass::Redo), |s| fail(s, FileClass::Scratch)),
    ("disk-space", |s| s.space.disk_free_bytes = 500 << 20, |s| s.space.disk_free_bytes = 600 << 20),
    (
        "mode-degraded",
        |s| s.files.push(file(FileClass::Redo, false, Some("tmpfs refuses O_DIRECT"), None)),
        |s| s.files.push(file(FileClass::Redo, true, None, None)),
    ),
    (
        "backend-fallback",
        |s| s.backend = "threads (io_uring does not work here: EPERM)".into(),
        |s| s.backend = "threads (asked for)".into(),
    ),
    ("checkpoint-waits", |s| s.log.checkpoint_waits = 30, |s| s.log.checkpoint_waits = 3),
    (
        "log-nearly-full",
        |s| s.log.checkpoint_age_bytes = 450 << 20,
        |s| (s.log.checkpoint_age_bytes, s.log.checkpoint_waits) = (450 << 20, 30),
    ),
    (
        "working-set-cached",
        |s| (s.pool.misses, s.pool.reads, s.pool.pages_written) = (10, 10, 5000),
        |s| (s.pool.misses, s.pool.reads, s.pool.pages_written) = (10, 10, 500),
    ),
    (
        "pool-too-small",
        |s| read(s, 30_000, 30_000),
        // A pool that is still filling has misses and no evictions.
        |s| read(s, 30_000, 0),
    ),
    ("no-free-frames", |s| s.pool.evict_waits = 100, |s| s.pool.evict_waits = 5),
    ("dirty-at-ceiling", |s| s.pool.frames_dirty = 7300, |s| s.pool.frames_dirty = 6500),
    ("clean-writes-dominate", |s| clean(s, 2_000), |s| clean(s, 200)),
    (
        "commits-not-grouped",
        |s| (s.log.groups, s.log.commit_wait_ns) = (19_000, 80 * SECOND),
        |s| (s.log.groups, s.log.commit_wait_ns) = (19_000, 9 * SECOND),
    ),
    ("log-flush-dominates", |s| s.log.commit_wait_ns = 9 * SECOND, |s| s.log.commit_wait_ns = 7 * SECOND),
    ("log-buffer-full", |s| s.log.buffer_waits = 100, |s| s.log.buffer_waits = 5),
    (
        "purge-held-by-snapshot",
        |s| (s.purge.history, s.purge.oldest_view_age_ns) = (200_000, 3600 * SECOND),
        |s| (s.purge.history, s.purge.oldest_view_age_ns) = (2_000, 3600 * SECOND),
    ),
    (
        "purge-behind",
        |s| s.purge.undo_bytes = 1 << 30,
        |s| (s.purge.undo_bytes, s.purge.oldest_view_age_ns) = (1 << 30, 3600 * SECOND),
    ),
    ("lock-waits", |s| s.locks.wait_ns = 40 * SECOND, |s| s.locks.wait_ns = 9 * SECOND),
    ("deadlocks", |s| s.locks.deadlocks = 300, |s| s.locks.deadlocks = 30),
    (
        "growth-cost",
        |s| (s.space.growths, s.space.growth_ns) = (20, SECOND),
        |s| (s.space.growths, s.space.growth_ns) = (20, 1),
    ),
    (
        "space-reclaimable",
        |s| (s.space.data_bytes, s.space.free_bytes) = (1 << 30, 600 << 20),
        |s| (s.space.data_bytes, s.space.free_bytes) = (8 << 30, 600 << 20),
    ),
];

/// Records `misses` reads that a thread waited for, a millisecond each.
fn read(s: &mut Stats, misses: u64, evictions: u64) {
    let io = IoStats::new();
    for _ in 0..misses {
        io.record(FileClass::Data, Op::Read, Cause::DemandRead, Duration::from_millis(1), 16384);
    }
    (s.io, s.pool.misses, s.pool.evictions) = (io.snapshot(), misses, evictions);
}

/// Records `writes` page writes of the cleaner and a thousand durable writes of the log, a
/// millisecond each.
fn clean(s: &mut Stats, writes: u64) {
    let io = IoStats::new();
    for _ in 0..writes {
        io.record(FileClass::Data, Op::Write, Cause::Clean, Duration::from_millis(1), 16384);
    }
    for _ in 0..1000 {
        io.record(FileClass::Redo, Op::DurableWrite, Cause::Commit, Duration::from_millis(1), 4096);
    }
    s.io = io.snapshot();
}

fn fail(s: &mut Stats, class: FileClass) {
    let io = IoStats::new();
    io.record_error(class, Op::Write, Cause::Other);
    s.io = io.snapshot();
}

fn wrote(s: &mut Stats, twice: u64, once: u64) {
    let io = IoStats::new();
    io.record(FileClass::Doublewrite, Op::Write, Cause::Clean, Duration::from_micros(500), twice);
    io.record(FileClass::Data, Op::Write, Cause::Clean, Duration::from_micros(500), once);
    s.io = io.snapshot();
}

#[test]
fn a_healthy_database_has_no_findings() {
    assert_eq!(ids(&well()), [] as [&str; 0]);
    assert_eq!(ids(&Stats::default()), [] as [&str; 0]);
}

#[test]
fn each_finding_is_made_and_not_made() {
    for (id, enough, short) in CASES {
        assert!(after(enough).contains(&id), "{id} was not found: {:?}", after(enough));
        assert!(!after(short).contains(&id), "{id} was found without reason");
    }
    let refused = |s: &mut Stats| {
        let io = IoStats::new();
        io.record_error(FileClass::Redo, Op::Grow, Cause::Preallocate);
        s.io = io.snapshot();
    };
    assert!(!after(refused).contains(&"io-errors"), "a way to allocate that does not exist here");
    assert!(after(|s| wrote(s, 4 << 30, 4 << 30)).contains(&"doublewrite-cost"));
    assert!(!after(|s| wrote(s, 1 << 20, 1 << 20)).contains(&"doublewrite-cost"), "too little to speak of");
    let cached = |direct| file(FileClass::Data, direct, None, Some(64 << 20));
    assert!(after(|s| s.files = vec![cached(true)]).contains(&"page-cache-used"));
    assert!(!after(|s| s.files = vec![cached(false)]).contains(&"page-cache-used"), "buffered files belong there");
}

#[test]
fn the_worst_comes_first_and_numbers_are_named() {
    let mut stats = well();
    stats.log.checkpoint_age_bytes = 500 << 20;
    stats.space.disk_free_bytes = 1 << 20;
    stats.pool.frames_dirty = 7372;
    let found = diagnose(&stats, None);
    let severities: Vec<Severity> = found.iter().map(|f| f.severity).collect();
    assert_eq!(severities, [Severity::Critical, Severity::Warning, Severity::Note]);
    assert!(found[0].to_string().starts_with("critical: The file system has 1 MiB left"), "{}", found[0]);
    let mut stats = well();
    stats.files = vec![file(FileClass::Data, false, Some("tmpfs refuses O_DIRECT"), None)];
    assert!(diagnose(&stats, None)[0].sentence.contains("buffered; tmpfs refuses O_DIRECT"));
}

#[test]
fn only_what_happened_since_counts() {
    let mut earlier = well();
    earlier.log.checkpoint_waits = 50;
    let mut now = earlier.clone();
    now.elapsed_ns += 10 * SECOND;
    assert!(ids(&now).contains(&"checkpoint-waits"));
    assert!(diagnose(&now, Some(&earlier)).is_empty(), "nothing happened since");
}

#[test]
fn extreme_numbers_do_not_overflow() {
    let mut s = well();
    let json = serde_json::to_string(&s).unwrap();
    let huge: Stats = serde_json::from_str(&json.replace("3000", "18446744073709551615")).unwrap();
    assert!(!diagnose(&huge, None).is_empty());
    s.log.capacity_bytes = u64::MAX;
    s.pool.frames = u64::MAX;
    s.pool.misses = u64::MAX;
    s.pool.evictions = u64::MAX;
    s.log.checkpoint_waits = u64::MAX;
    assert!(!diagnose(&s, None).is_empty());
}

#[test]
fn every_finding_is_documented() {
    let mut made: HashSet<&str> = CASES.iter().map(|(id, ..)| *id).collect();
    made.extend(["doublewrite-cost", "page-cache-used", "flush-slower"]);
    made.extend(["memory-file-system", "barriers-off", "network-file-system", "write-through"]);
    let source = [include_str!("../doctor.rs"), include_str!("place.rs"), include_str!("watch.rs")].concat();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    // The published crate does not contain the docs directory.
    let page = std::fs::read_to_string(page).unwrap_or_default();
    for id in &made {
        assert!(source.contains(&format!("\"{id}\"")), "{id}");
        assert!(page.is_empty() || page.contains(&format!("`{id}`")), "{id} is missing in docs/operations.md");
    }
}
