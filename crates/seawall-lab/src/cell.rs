//! A cell is one measured combination: the operations, their access and sync, the number of threads, and
//! concurrent work.
//!
//! - A [`CellSpec`] contains everything that decides the outcome; two cells with equal specs measure the same
//!   thing.
//! - [`CellSpec::id`] is derived from the spec alone, so results of two machines can be joined by id.
//! - Ids are stable across versions: `results.json` files are compared with `seawall lab diff` years apart.

use crate::text::{self, vars};
use crate::words;
use serde::{Deserialize, Serialize};

words! {
    /// The experiment that a cell belongs to, with its long name and its short id. `experiment/` defines its cells and
    /// verdicts; `docs/experiments.md` says why it exists.
    ///
    /// ```
    /// use seawall_lab::cell::Experiment;
    /// let short: Vec<_> = Experiment::ALL.iter().map(|e| e.short()).collect();
    /// assert_eq!(short, ["base", "e1", "e2", "e3", "e4", "e5", "e6", "set"]);
    /// assert_eq!(Experiment::DirectSync.to_string(), "direct-sync");
    /// ```
    #[derive(PartialOrd, Ord)]
    pub enum Experiment {
        /// The device on its own: random and sequential reads and writes, on which the other verdicts rely.
        Baseline = "baseline" | "base",
        /// E1: direct writes with and without a flush after each, by threads (Callaghan 2009).
        DirectSync = "direct-sync" | "e1",
        /// E2: the log's write path and its memory (Mituzas 2010).
        LogMemory = "log-memory" | "e2",
        /// E3: parallel direct writers to one file (Mituzas 2008).
        ParallelDirect = "parallel-direct" | "e3",
        /// E4: appending against overwriting (Matsunobu 2009).
        AppendOverwrite = "append-overwrite" | "e4",
        /// E5: the engine's levels of commit durability by flush method (Danti 2012).
        CommitLevels = "commit-levels" | "e5",
        /// E6: the engine's range queries with and without reading ahead (Hardy 2010).
        RangePrefetch = "range-prefetch" | "e6",
        /// The engine with its defaults and with the recommended settings. No publication.
        Settings = "settings" | "set",
    }
}

impl Experiment {
    /// The short id: `base`, `e1` .. `e6`, `set`.
    pub fn short(self) -> &'static str {
        self.words()
    }

    /// Parses a long name or a short id, in any case.
    ///
    /// ```
    /// use seawall_lab::cell::Experiment;
    /// assert_eq!(Experiment::parse("E4"), Some(Experiment::AppendOverwrite));
    /// assert_eq!(Experiment::parse("log-memory"), Some(Experiment::LogMemory));
    /// assert_eq!(Experiment::parse("e9"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let short = Self::ALL.into_iter().find(|e| text.eq_ignore_ascii_case(e.short()));
        short.or_else(|| text.parse().ok())
    }
}

mod engine;
pub use engine::{Ahead, EngineShape, FlushMethod, KeyOrder, Level, Origin};

words! {
    /// The operation of a request.
    ///
    /// ```
    /// use seawall_lab::{cell::Pattern, plan};
    /// assert_eq!(plan::random_read(1).pattern, Pattern::RandomRead);
    /// assert_eq!(Pattern::SequentialWrite.word(), "seqwrite");
    /// ```
    pub enum Pattern {
        /// Random blocks read.
        RandomRead = "randread",
        /// Blocks read in order.
        SequentialRead = "seqread",
        /// Random blocks overwritten.
        RandomWrite = "randwrite",
        /// Blocks written in order.
        SequentialWrite = "seqwrite",
        /// Commits of several small records each, written to a log by group commit.
        Log = "log",
        /// Reads of a row by its key from the engine, one per transaction (sysbench simple).
        ReadOnly = "read-only",
        /// Engine transactions that read and write (sysbench complex).
        Transactional = "transactional",
        /// TPC-C's five transactions on the engine (DBT-2 is an implementation of it).
        Tpcc = "tpcc" | "TPC-C",
        /// Reads of row ranges from an engine tree that is not in memory.
        RangeQuery = "ranges" | "range queries",
        /// Updates of one small row in the engine, one per transaction.
        Update = "update" | "small commits",
    }
}

words! {
    /// The use of the page cache.
    ///
    /// ```
    /// use seawall_lab::cell::{Access, CellSpec, Experiment};
    /// let dontcache = CellSpec { access: Access::DontCache, ..CellSpec::new(Experiment::LogMemory) };
    /// assert!(dontcache.title().contains("RWF_DONTCACHE"));
    /// ```
    pub enum Access {
        /// Through the page cache.
        Buffered = "buffered",
        /// Through the page cache, pages dropped behind the writer (`posix_fadvise`).
        Uncached = "uncached" | "buffered, cache dropped",
        /// Through the page cache with `RWF_DONTCACHE`.
        DontCache = "dontcache" | "RWF_DONTCACHE",
        /// `O_DIRECT`.
        Direct = "direct",
    }
}

words! {
    /// What makes a write durable, once per write or per group of commits.
    ///
    /// ```
    /// use seawall_lab::{cell::Sync, plan};
    /// let id = |sync| plan::direct_sync(1, 4096, sync).id();
    /// assert_eq!(id(Sync::RwfDsync), id(Sync::None).replace("nosync", "rwf-dsync"));
    /// ```
    pub enum Sync {
        /// Nothing.
        None = "nosync" | "",
        /// `fdatasync` after the write.
        Fdatasync = "fdatasync" | "fdatasync {per}",
        /// `fsync` after the write.
        Fsync = "fsync" | "fsync {per}",
        /// `RWF_DSYNC` on the write.
        RwfDsync = "rwf-dsync" | "RWF_DSYNC {per}",
        /// The file opened with `O_DSYNC`.
        ODsync = "o-dsync" | "O_DSYNC",
    }
}

words! {
    /// The state of the file's blocks before the measurement.
    ///
    /// ```
    /// use seawall_lab::{cell::{Access, Preparation, Sync}, plan};
    /// let fresh = plan::extend(Preparation::Unwritten, Access::Buffered, Sync::Fdatasync);
    /// assert_eq!(fresh.title(), "write 8K into fallocated space, buffered, fdatasync each, 1 thread");
    /// ```
    pub enum Preparation {
        /// Every block was written and synced long before the measurement.
        Written = "overwrite" | "overwrite {size}",
        /// An empty file that grows with each write.
        Append = "append" | "append {size}",
        /// `posix_fallocate`: size set, extents unwritten.
        Unwritten = "unwritten" | "write {size} into fallocated space",
        /// `fallocate(KEEP_SIZE)`: blocks reserved beyond the end, size grows with each write.
        KeepSize = "keepsize" | "append {size} into reserved space",
        /// `fallocate(FALLOC_FL_WRITE_ZEROES)`: written extents without writing.
        WriteZeroes = "writezeroes" | "overwrite {size} after WRITE_ZEROES",
        /// A used file, renamed and overwritten from its start, as a log segment is recycled.
        Recycled = "recycled" | "overwrite {size}, recycled file",
        /// Zero-filled through the page cache, overwritten at once (published case 3).
        ZeroFilledNow = "zerofill-now" | "overwrite {size} right after a zero-fill",
        /// Zero-filled through the page cache, overwritten after 20 s (published case 4).
        ZeroFilledWait = "zerofill-wait" | "overwrite {size} 20 s after a zero-fill",
        /// Zero-filled by rate-limited direct writes and fsynced: what Seawall's preallocator does.
        Preallocated = "preallocated" | "overwrite {size}, preallocated by Seawall",
    }
}

words! {
    /// Concurrent work during the measurement.
    ///
    /// ```
    /// use seawall_lab::{cell::Beside, plan};
    /// assert!(plan::parallel(8, Beside::DroppedPages).id().ends_with("/dropped"));
    /// assert!(!plan::parallel(8, Beside::Nothing).id().contains("alone"), "nothing is not said");
    /// ```
    pub enum Beside {
        /// Nothing.
        Nothing = "alone" | "",
        /// The file's pages are in the page cache while direct writes go to it.
        CachedPages = "cached" | "file's pages cached",
        /// The file's pages were cached and have been dropped.
        DroppedPages = "dropped" | "cached pages dropped first",
        /// Direct writes go beyond the end of the file.
        BeyondEof = "beyond-eof" | "beyond the end of the file",
        /// Another thread overwrites the same file without pause; the cell's operations are fdatasyncs.
        ContinuousWriter = "under-writes" | "another thread writing without pause",
        /// A rate-limited fill of another file runs at the same time.
        PacedFill = "beside-fill" | "beside a rate-limited fill",
    }
}

/// The shape of a commit in the [`Pattern::Log`] cells.
///
/// ```
/// use seawall_lab::{cell::Access, plan};
/// let shape = plan::log(16, Access::Direct, 4096, true).log.unwrap();
/// assert_eq!(shape.records_per_commit * shape.record_bytes, 2048, "bytes of a commit");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogShape {
    /// Records in each commit.
    pub records_per_commit: u32,
    /// Bytes of each record; a multiple of 512.
    pub record_bytes: u32,
    /// Whether a group is written with one write (`true`) or with one write per record group.
    pub merged: bool,
}

/// Everything that decides a cell's outcome.
///
/// ```
/// use seawall_lab::cell::{CellSpec, Experiment, Sync};
/// let spec = CellSpec { threads: 4, sync: Sync::Fdatasync, ..CellSpec::new(Experiment::DirectSync) };
/// assert_eq!(spec.title(), "random 4K writes, direct, fdatasync each, 4 threads");
/// assert_ne!(spec.id(), CellSpec { threads: 8, ..spec }.id(), "another measurement, another id");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellSpec {
    /// The publication the cell re-runs.
    pub experiment: Experiment,
    /// The operation.
    pub pattern: Pattern,
    /// Bytes per operation; for log cells, the log's block size.
    pub block_bytes: u32,
    /// Threads issuing operations; for log cells, committing threads.
    pub threads: u32,
    /// Requests in flight per thread.
    pub queue_depth: u32,
    /// The use of the page cache.
    pub access: Access,
    /// What makes each operation durable.
    pub sync: Sync,
    /// The state of the file's blocks beforehand.
    pub preparation: Preparation,
    /// Concurrent work.
    pub beside: Beside,
    /// The shape of a commit; only in log cells.
    pub log: Option<LogShape>,
    /// The engine's setup; only in cells that measure the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineShape>,
}

impl CellSpec {
    /// A random 4 KiB direct overwrite by one thread without sync; a base to adjust.
    ///
    /// ```
    /// # use seawall_lab::cell::{CellSpec, Experiment};
    /// assert_eq!(CellSpec::new(Experiment::Baseline).title(), "random 4K writes, direct, 1 thread");
    /// ```
    pub fn new(experiment: Experiment) -> Self {
        Self {
            experiment,
            pattern: Pattern::RandomWrite,
            block_bytes: 4096,
            threads: 1,
            queue_depth: 1,
            access: Access::Direct,
            sync: Sync::None,
            preparation: Preparation::Written,
            beside: Beside::Nothing,
            log: None,
            engine: None,
        }
    }

    /// The stable id, such as `e4/append/seqwrite/8k/buffered/fdatasync/t1`, or `e5/tpcc/o_direct/written/t4`
    /// in cells of the engine.
    ///
    /// ```
    /// use seawall_lab::cell::{CellSpec, Experiment};
    /// assert_eq!(CellSpec::new(Experiment::DirectSync).id(), "e1/overwrite/randwrite/4k/direct/nosync/t1");
    /// ```
    pub fn id(&self) -> String {
        if let Some(engine) = &self.engine {
            return engine.id(self);
        }
        let Self { preparation, pattern, access, sync, threads, .. } = self;
        let (short, size) = (self.experiment.short(), size_word(self.block_bytes));
        let mut id = format!("{short}/{preparation}/{pattern}/{size}/{access}/{sync}/t{threads}");
        if self.queue_depth > 1 {
            id += &format!("/d{}", self.queue_depth);
        }
        if let Some(log) = self.log {
            id += if log.merged { "/merged" } else { "/split" };
        }
        if self.beside != Beside::Nothing {
            id += &format!("/{}", self.beside);
        }
        id
    }

    /// Returns whether the cell reads blocks from the disk.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.pattern, Pattern::RandomRead | Pattern::SequentialRead)
    }

    /// A short human title, such as `append 8K, buffered, fdatasync each, 1 thread`.
    pub fn title(&self) -> String {
        if let Some(engine) = &self.engine {
            return engine.title(self);
        }
        let size = size_word(self.block_bytes).to_uppercase();
        let merged = if self.log.is_some_and(|l| l.merged) { "merged" } else { "a write per record" };
        let operation = match (self.pattern, self.preparation) {
            (Pattern::SequentialWrite, Preparation::Written) if self.queue_depth > 1 => "sequential {size} writes",
            (Pattern::RandomRead, _) => "random {size} reads",
            (Pattern::SequentialRead, _) => "sequential {size} reads",
            (Pattern::Log, _) if self.block_bytes < 1024 => "log commits, {merged}, {size} B blocks",
            (Pattern::Log, _) => "log commits, {merged}, {size} blocks",
            (Pattern::RandomWrite, Preparation::Written) if self.beside == Beside::BeyondEof => "{size} writes",
            (Pattern::RandomWrite, Preparation::Written) => "random {size} writes",
            // An engine cell without engine settings: only a file edited by hand contains one.
            (pattern, Preparation::Written) if pattern != Pattern::SequentialWrite => pattern.word(),
            _ => self.preparation.words(),
        };
        let per = if self.pattern == Pattern::Log { "per group" } else { "each" };
        let depth = if self.queue_depth > 1 { format!("depth {}", self.queue_depth) } else { String::new() };
        let threads = text::many(self.threads, "thread", "threads");
        let parts = [operation, self.access.words(), self.sync.words(), &depth, &threads, self.beside.words()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        text::fill(&parts.join(", "), vars![size, merged, per])
    }
}

/// `512`, `4k`, `16k`, `1m`.
fn size_word(bytes: u32) -> String {
    match bytes {
        b if b % (1 << 20) == 0 => format!("{}m", b >> 20),
        b if b % 1024 == 0 => format!("{}k", b >> 10),
        b => b.to_string(),
    }
}
