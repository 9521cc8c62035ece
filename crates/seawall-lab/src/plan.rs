//! Which cells a run measures.
//!
//! - The default run contains only the cells that a verdict needs (two minutes for the disk, two and a half
//!   for the engine on it); `--full` contains the whole grid.
//! - Every cell that a verdict or a setting uses has a function here, so that plan and verdict cannot
//!   disagree on a spec.

use crate::cell::{
    Access, Ahead, Beside, CellSpec, EngineShape, Experiment, FlushMethod, KeyOrder, Level, LogShape, Origin, Pattern,
    Preparation, Sync,
};

const KIB: u32 = 1024;

/// 16 KiB random direct reads by one thread at `depth`.
///
/// ```
/// let spec = seawall_lab::plan::random_read(32);
/// assert_eq!(spec.id(), "base/overwrite/randread/16k/direct/nosync/t1/d32");
/// ```
#[must_use]
pub fn random_read(depth: u32) -> CellSpec {
    CellSpec {
        pattern: Pattern::RandomRead,
        block_bytes: 16 * KIB,
        queue_depth: depth,
        ..CellSpec::new(Experiment::Baseline)
    }
}

/// 1 MiB sequential direct reads, eight in flight.
///
/// ```
/// assert_eq!(seawall_lab::plan::sequential_read().title(), "sequential 1M reads, direct, depth 8, 1 thread");
/// ```
#[must_use]
pub fn sequential_read() -> CellSpec {
    CellSpec {
        pattern: Pattern::SequentialRead,
        block_bytes: 1024 * KIB,
        queue_depth: 8,
        ..CellSpec::new(Experiment::Baseline)
    }
}

/// E1: random direct writes of `block_bytes` by `threads`, made durable by `sync`.
///
/// ```
/// use seawall_lab::{cell::Sync, plan};
/// // What one commit waits for, and the rate of sixteen in parallel.
/// assert_eq!(plan::direct_sync(1, 4096, Sync::Fdatasync).id(), "e1/overwrite/randwrite/4k/direct/fdatasync/t1");
/// assert_eq!(plan::direct_sync(16, 4096, Sync::Fdatasync).threads, 16);
/// ```
#[must_use]
pub fn direct_sync(threads: u32, block_bytes: u32, sync: Sync) -> CellSpec {
    CellSpec { threads, block_bytes, sync, ..CellSpec::new(Experiment::DirectSync) }
}

/// E2: log commits by `threads`.
///
/// ```
/// use seawall_lab::{cell::Access, plan};
/// let merged = plan::log(16, Access::Direct, 4096, true);
/// assert_eq!(merged.id(), "e2/overwrite/log/4k/direct/fdatasync/t16/merged");
/// ```
#[must_use]
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

/// E3: 16 KiB random direct writes by `threads` to one file, with `beside` as the concurrent work.
///
/// ```
/// use seawall_lab::{cell::Beside, plan};
/// let beside_cache = plan::parallel(8, Beside::CachedPages);
/// assert_eq!(beside_cache.title(), "random 16K writes, direct, 8 threads, file's pages cached");
/// ```
#[must_use]
pub fn parallel(threads: u32, beside: Beside) -> CellSpec {
    CellSpec { threads, block_bytes: 16 * KIB, beside, ..CellSpec::new(Experiment::ParallelDirect) }
}

/// E3: latency of fdatasync while another thread overwrites without pause.
///
/// ```
/// use seawall_lab::{plan, results::operation_word};
/// assert_eq!(operation_word(&plan::flush_under_writes()), "flushes");
/// ```
#[must_use]
pub fn flush_under_writes() -> CellSpec {
    CellSpec { sync: Sync::Fdatasync, ..parallel(1, Beside::ContinuousWriter) }
}

/// E4: sequential 8 KiB writes, each made durable, into a file with this preparation.
///
/// ```
/// use seawall_lab::{cell::{Access, Preparation, Sync}, plan};
/// let append = plan::extend(Preparation::Append, Access::Buffered, Sync::Fdatasync);
/// assert_eq!(append.id(), "e4/append/seqwrite/8k/buffered/fdatasync/t1");
/// ```
#[must_use]
pub fn extend(preparation: Preparation, access: Access, sync: Sync) -> CellSpec {
    CellSpec {
        pattern: Pattern::SequentialWrite,
        block_bytes: 8 * KIB,
        preparation,
        access,
        sync,
        ..CellSpec::new(Experiment::AppendOverwrite)
    }
}

/// E4: overwriting a preallocated file while a rate-limited fill of another runs.
///
/// ```
/// assert!(seawall_lab::plan::beside_fill().title().ends_with("beside a rate-limited fill"));
/// ```
#[must_use]
pub fn beside_fill() -> CellSpec {
    CellSpec { beside: Beside::PacedFill, ..extend(Preparation::Preallocated, Access::Direct, Sync::Fdatasync) }
}

/// Threads of the cells of E5, and of the commits under settings.
pub const COMMIT_THREADS: u32 = 4;

/// The loads of E5, as published: sysbench simple, sysbench complex, DBT-2.
pub const COMMIT_LOADS: [Pattern; 3] = [Pattern::ReadOnly, Pattern::Transactional, Pattern::Tpcc];

/// The published flush methods of E5: fdatasync, `O_DSYNC`, `O_DIRECT`.
pub const PUBLISHED_METHODS: [FlushMethod; 3] = [FlushMethod::Fsync, FlushMethod::ODsync, FlushMethod::ODirect];

/// Numbers of concurrent queries in E6.
pub const QUERIES: [u32; 4] = [1, 2, 4, 16];

/// Fixed windows of E6 in `--full`, pages.
pub const WINDOWS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// E5: a load on the engine at a level of commit durability, with a flush method for data and log.
///
/// ```
/// use seawall_lab::{cell::{FlushMethod, Level, Pattern}, plan};
/// let cell = plan::commit_levels(Pattern::Tpcc, FlushMethod::ODirect, Level::Written);
/// assert_eq!(cell.id(), "e5/tpcc/o_direct/written/t4");
/// assert_eq!(cell.title(), "TPC-C, o_direct, Written (2), 4 threads");
/// ```
#[must_use]
pub fn commit_levels(load: Pattern, method: FlushMethod, level: Level) -> CellSpec {
    CellSpec {
        pattern: load,
        block_bytes: 16 * KIB,
        threads: COMMIT_THREADS,
        access: method.access(),
        engine: Some(EngineShape { level: Some(level), method: Some(method), ..EngineShape::default() }),
        ..CellSpec::new(Experiment::CommitLevels)
    }
}

/// E6: `queries` concurrent queries read ranges of rows of a tree that does not fit the pool.
///
/// ```
/// use seawall_lab::{cell::{Access, Ahead, KeyOrder}, plan};
/// let cell = plan::range_prefetch(KeyOrder::Fragmented, Access::Direct, Ahead::Adaptive, 16);
/// assert_eq!(cell.id(), "e6/fragmented/ranges/direct/adaptive/t16");
/// assert_eq!(cell.title(), "fragmented, direct, adaptive prefetch, 16 queries");
/// ```
#[must_use]
pub fn range_prefetch(tree: KeyOrder, access: Access, ahead: Ahead, queries: u32) -> CellSpec {
    CellSpec {
        pattern: Pattern::RangeQuery,
        block_bytes: 16 * KIB,
        threads: queries,
        access,
        engine: Some(EngineShape { tree: Some(tree), ahead: Some(ahead), ..EngineShape::default() }),
        ..CellSpec::new(Experiment::RangePrefetch)
    }
}

/// The engine with its defaults or with the recommended settings: small commits ([`Pattern::Update`]) by a
/// few threads, or one range query at a time over a fragmented tree that is not in memory
/// ([`Pattern::RangeQuery`]).
///
/// ```
/// use seawall_lab::{cell::{Origin, Pattern}, plan};
/// assert_eq!(plan::under_settings(Pattern::Update, Origin::Default).id(), "set/update/default/t4");
/// let scan = plan::under_settings(Pattern::RangeQuery, Origin::Recommended);
/// assert_eq!(scan.id(), "set/fragmented/ranges/recommended/t1");
/// ```
#[must_use]
pub fn under_settings(load: Pattern, settings: Origin) -> CellSpec {
    let reads = load == Pattern::RangeQuery;
    let tree = reads.then_some(KeyOrder::Fragmented);
    CellSpec {
        pattern: load,
        block_bytes: 16 * KIB,
        threads: if reads { 1 } else { COMMIT_THREADS },
        engine: Some(EngineShape { tree, settings: Some(settings), ..EngineShape::default() }),
        ..CellSpec::new(Experiment::Settings)
    }
}

/// The cells of E5 with these methods.
fn all_commit_levels(methods: &[FlushMethod]) -> Vec<CellSpec> {
    let mut cells = Vec::new();
    for load in COMMIT_LOADS {
        for method in methods {
            cells.extend(Level::ALL.map(|level| commit_levels(load, *method, level)));
        }
    }
    cells
}

/// The three published lines, on both trees, by number of concurrent queries.
fn all_range_prefetch() -> Vec<CellSpec> {
    let mut cells = Vec::new();
    for tree in [KeyOrder::InOrder, KeyOrder::Fragmented] {
        for (access, ahead) in
            [(Access::Buffered, Ahead::None), (Access::Direct, Ahead::None), (Access::Direct, Ahead::Adaptive)]
        {
            cells.extend(QUERIES.map(|queries| range_prefetch(tree, access, ahead, queries)));
        }
    }
    cells
}

fn all_settings() -> impl Iterator<Item = CellSpec> {
    [Pattern::Update, Pattern::RangeQuery]
        .into_iter()
        .flat_map(|load| [Origin::Default, Origin::Recommended].map(|settings| under_settings(load, settings)))
}

/// The cells of the default run.
///
/// ```
/// use seawall_lab::{plan, sample, verdict};
/// let experiments = [plan::random_read(1), plan::beside_fill()];
/// assert!(experiments.iter().all(|spec| plan::decisive().contains(spec)));
/// // Enough for every verdict except the one on a power cut.
/// let verdicts = verdict::verdicts(&sample::of_plan(&plan::decisive()));
/// assert!(verdicts.iter().any(|v| v.level == verdict::Level::NotTested));
/// ```
#[must_use]
pub fn decisive() -> Vec<CellSpec> {
    use {Access as A, Preparation as P, Sync as S};
    let mut cells = vec![
        random_read(1),
        random_read(32),
        direct_sync(1, 4 * KIB, S::None),
        direct_sync(1, 4 * KIB, S::Fdatasync),
        direct_sync(1, 4 * KIB, S::RwfDsync),
        direct_sync(16, 4 * KIB, S::Fdatasync),
        log(16, A::Buffered, 512, false),
        log(16, A::Buffered, 512, true),
        log(16, A::Direct, 4 * KIB, true),
        parallel(1, Beside::Nothing),
        parallel(8, Beside::Nothing),
        parallel(8, Beside::CachedPages),
        flush_under_writes(),
        extend(P::Append, A::Buffered, S::Fdatasync),
        extend(P::Written, A::Buffered, S::Fdatasync),
        extend(P::Unwritten, A::Buffered, S::Fdatasync),
        extend(P::ZeroFilledNow, A::Buffered, S::Fdatasync),
        extend(P::Preallocated, A::Direct, S::Fdatasync),
        beside_fill(),
    ];
    cells.extend(all_commit_levels(&PUBLISHED_METHODS));
    cells.extend(all_range_prefetch());
    cells.extend(all_settings());
    cells
}

/// The cells of `--full`: the decisive ones and the rest of each grid.
///
/// ```
/// use seawall_lab::plan;
/// let (full, decisive) = (plan::full(), plan::decisive());
/// assert!(full.len() > 2 * decisive.len());
/// assert!(decisive.iter().all(|spec| full.contains(spec)), "what is decided is in both");
/// ```
#[must_use]
pub fn full() -> Vec<CellSpec> {
    use {Access as A, Preparation as P, Sync as S};
    let mut cells: Vec<CellSpec> = [1, 2, 4, 8, 16, 32, 64].into_iter().map(random_read).collect();
    cells.push(sequential_read());
    for block_bytes in [4 * KIB, 16 * KIB] {
        for sync in [S::None, S::Fdatasync, S::RwfDsync] {
            cells.extend([1, 2, 4, 8, 16].map(|threads| direct_sync(threads, block_bytes, sync)));
        }
    }
    for threads in [1, 4, 16, 64] {
        cells.extend([
            log(threads, A::Buffered, 512, false),
            log(threads, A::Buffered, 512, true),
            log(threads, A::Uncached, 512, true),
            log(threads, A::Direct, 512, false),
            log(threads, A::Direct, 512, true),
            log(threads, A::Direct, 4 * KIB, true),
            log(threads, A::DontCache, 4 * KIB, true),
        ]);
    }
    for threads in [1, 2, 4, 8, 16] {
        cells.extend(
            [Beside::Nothing, Beside::CachedPages, Beside::DroppedPages, Beside::BeyondEof]
                .map(|b| parallel(threads, b)),
        );
    }
    cells.push(flush_under_writes());
    for preparation in [
        P::Append,
        P::Written,
        P::ZeroFilledNow,
        P::ZeroFilledWait,
        P::Unwritten,
        P::KeepSize,
        P::WriteZeroes,
        P::Recycled,
        P::Preallocated,
    ] {
        for access in [A::Buffered, A::Direct] {
            for sync in [S::Fdatasync, S::ODsync, S::RwfDsync] {
                cells.push(extend(preparation, access, sync));
            }
        }
    }
    cells.push(beside_fill());
    let [a, b, c] = PUBLISHED_METHODS;
    cells.extend(all_commit_levels(&[a, b, c, FlushMethod::ODirectDsync]));
    cells.extend(all_range_prefetch());
    for tree in [KeyOrder::InOrder, KeyOrder::Fragmented] {
        cells.extend(WINDOWS.map(|pages| range_prefetch(tree, Access::Direct, Ahead::Window(pages), 1)));
    }
    cells.extend(all_settings());
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_unique_and_the_full_plan_holds_the_decisive_one() {
        let ids: Vec<String> = full().iter().map(CellSpec::id).collect();
        let set: HashSet<&String> = ids.iter().collect();
        assert_eq!(set.len(), ids.len(), "two cells with the same id");
        for cell in decisive() {
            assert!(set.contains(&cell.id()), "{} is decisive but not in the full plan", cell.id());
        }
    }

    #[test]
    fn default_plan_stays_small() {
        let disk = decisive().iter().filter(|c| c.engine.is_none()).count();
        assert!(disk <= 20, "the disk's part of the default run must stay near two minutes");
        assert_eq!(decisive().len() - disk, 27 + 24 + 4, "and the engine's a minute for each experiment");
    }
}
