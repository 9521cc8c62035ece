//! Which cells a run measures.
//!
//! - The default run holds only the cells that a verdict needs (about two minutes); `--full` holds the whole grid.
//! - Every cell that a verdict or a setting names has a function here, so that plan and verdict cannot disagree on a spec.

use crate::cell::{Access, Beside, CellSpec, Experiment, LogShape, Pattern, Preparation, Sync};

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
/// // What one commit waits for, and what sixteen do side by side.
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

/// E3: 16 KiB random direct writes by `threads` to one file, beside something or nothing.
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

/// E4: sequential 8 KiB writes, each made durable, into a file prepared as stated.
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

/// E4: overwriting a preallocated file while a rate-limited fill of another runs beside it.
///
/// ```
/// assert!(seawall_lab::plan::beside_fill().title().ends_with("beside a rate-limited fill"));
/// ```
#[must_use]
pub fn beside_fill() -> CellSpec {
    CellSpec { beside: Beside::PacedFill, ..extend(Preparation::Preallocated, Access::Direct, Sync::Fdatasync) }
}

/// The cells of the default run.
///
/// ```
/// use seawall_lab::{plan, sample, verdict};
/// let experiments = [plan::random_read(1), plan::beside_fill()];
/// assert!(experiments.iter().all(|spec| plan::decisive().contains(spec)));
/// // Enough for every verdict but the one on a power cut.
/// let verdicts = verdict::verdicts(&sample::of_plan(&plan::decisive()));
/// assert!(verdicts.iter().any(|v| v.level == verdict::Level::NotTested));
/// ```
#[must_use]
pub fn decisive() -> Vec<CellSpec> {
    use {Access as A, Preparation as P, Sync as S};
    vec![
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
    ]
}

/// The cells of `--full`: the decisive ones and the rest of each grid.
///
/// ```
/// use seawall_lab::plan;
/// let (full, decisive) = (plan::full(), plan::decisive());
/// assert!(full.len() > 5 * decisive.len());
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
        assert!(decisive().len() <= 20, "the default run must stay near two minutes");
    }
}
