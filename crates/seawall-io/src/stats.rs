//! Every I/O is counted: latency and bytes by file class, operation and cause.
//!
//! 1. Recording takes two relaxed atomic additions and no lock, so it stays on.
//! 2. A cell's histogram (about 18 KiB) is allocated when something is first recorded in it.
//! 3. Snapshots merge by addition, across threads, files and processes.

use crate::class::{Cause, FileClass, Op};
use crate::latency::{Counters, Latencies};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CELLS: usize = FileClass::ALL.len() * Op::ALL.len() * Cause::ALL.len();

#[derive(Debug)]
struct Cell {
    latency: Counters,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// Live counters; share one among all files of a database.
///
/// ```
/// use seawall_io::{Cause, FileClass, IoStats, Op};
/// use std::time::Duration;
/// let stats = IoStats::new();
/// stats.record(FileClass::Redo, Op::DurableWrite, Cause::Commit, Duration::from_micros(90), 4096);
/// let snapshot = stats.snapshot();
/// let cell = snapshot.get(FileClass::Redo, Op::DurableWrite, Cause::Commit).unwrap();
/// assert_eq!((cell.count(), cell.bytes), (1, 4096));
/// ```
pub struct IoStats {
    cells: Box<[OnceLock<Box<Cell>>]>,
}

impl fmt::Debug for IoStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoStats")
            .field("cells_in_use", &self.cells.iter().filter(|c| c.get().is_some()).count())
            .finish()
    }
}

impl Default for IoStats {
    fn default() -> Self {
        Self { cells: (0..CELLS).map(|_| OnceLock::new()).collect() }
    }
}

impl IoStats {
    /// Creates counters at zero.
    ///
    /// ```
    /// assert!(seawall_io::IoStats::new().snapshot().cells.is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn cell(&self, class: FileClass, op: Op, cause: Cause) -> &Cell {
        let index = (class as usize * Op::ALL.len() + op as usize) * Cause::ALL.len() + cause as usize;
        self.cells[index].get_or_init(|| {
            Box::new(Cell { latency: Counters::new(), bytes: AtomicU64::new(0), errors: AtomicU64::new(0) })
        })
    }

    /// Counts one successful operation.
    pub fn record(&self, class: FileClass, op: Op, cause: Cause, latency: Duration, bytes: u64) {
        let cell = self.cell(class, op, cause);
        cell.latency.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        cell.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts one failed operation.
    pub fn record_error(&self, class: FileClass, op: Op, cause: Cause) {
        self.cell(class, op, cause).errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a copy of everything counted so far.
    #[must_use]
    pub fn snapshot(&self) -> IoSnapshot {
        let mut cells = Vec::new();
        for &class in FileClass::ALL {
            for &op in Op::ALL {
                for &cause in Cause::ALL {
                    let index = (class as usize * Op::ALL.len() + op as usize) * Cause::ALL.len() + cause as usize;
                    if let Some(cell) = self.cells[index].get() {
                        cells.push(CellSnapshot {
                            class,
                            op,
                            cause,
                            latency: cell.latency.load(),
                            bytes: cell.bytes.load(Ordering::Relaxed),
                            errors: cell.errors.load(Ordering::Relaxed),
                        });
                    }
                }
            }
        }
        IoSnapshot { cells }
    }
}

/// Counters of one class, operation and cause.
///
/// ```
/// use seawall_io::{Cause, FileClass, IoStats, Op};
/// # use std::time::Duration;
/// let stats = IoStats::new();
/// stats.record(FileClass::Redo, Op::Sync, Cause::Commit, Duration::from_micros(70), 0);
/// stats.record_error(FileClass::Redo, Op::Sync, Cause::Commit);
/// let cell = stats.snapshot().cells.remove(0);
/// assert_eq!((cell.count(), cell.errors), (1, 1), "a failed operation has no latency");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CellSnapshot {
    /// File class.
    pub class: FileClass,
    /// Operation.
    pub op: Op,
    /// Cause.
    pub cause: Cause,
    /// Latencies, ns.
    pub latency: Latencies,
    /// Bytes moved.
    pub bytes: u64,
    /// Operations that failed (not in `latency`).
    pub errors: u64,
}

impl CellSnapshot {
    /// Returns the number of successful operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.latency.count().iter().fold(0, |all, count| all.saturating_add(*count))
    }
}

/// Everything counted up to one moment.
///
/// ```
/// use seawall_io::{Cause, FileClass, IoStats, Op};
/// # use std::time::Duration;
/// let key = (FileClass::Data, Op::Read, Cause::DemandRead);
/// let of_a_process = || {
///     let stats = IoStats::new();
///     stats.record(key.0, key.1, key.2, Duration::from_micros(85), 16384);
///     stats.snapshot()
/// };
/// let both = of_a_process().merged(&of_a_process());
/// assert_eq!(both.get(key.0, key.1, key.2).unwrap().bytes, 32768);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IoSnapshot {
    /// The cells in use, ordered by class, operation, cause.
    pub cells: Vec<CellSnapshot>,
}

impl IoSnapshot {
    /// Returns one cell, if anything was counted in it.
    #[must_use]
    pub fn get(&self, class: FileClass, op: Op, cause: Cause) -> Option<&CellSnapshot> {
        self.cells.iter().find(|c| (c.class, c.op, c.cause) == (class, op, cause))
    }

    /// Returns the sum of two snapshots.
    #[must_use]
    pub fn merged(mut self, other: &Self) -> Self {
        for theirs in &other.cells {
            let key = (theirs.class, theirs.op, theirs.cause);
            match self.cells.binary_search_by_key(&key, |c| (c.class, c.op, c.cause)) {
                Ok(at) => {
                    let ours = &mut self.cells[at];
                    ours.latency = ours.latency.added(&theirs.latency);
                    ours.bytes = ours.bytes.saturating_add(theirs.bytes);
                    ours.errors = ours.errors.saturating_add(theirs.errors);
                }
                Err(at) => self.cells.insert(at, theirs.clone()),
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_counts_add_up_and_merge() {
        let stats = IoStats::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..1000 {
                        stats.record(FileClass::Data, Op::Read, Cause::Prefetch, Duration::from_nanos(i), 16384);
                    }
                    stats.record_error(FileClass::Data, Op::Read, Cause::Prefetch);
                });
            }
        });
        let once = stats.snapshot();
        let cell = once.get(FileClass::Data, Op::Read, Cause::Prefetch).unwrap();
        assert_eq!((cell.count(), cell.bytes, cell.errors), (4000, 4000 * 16384, 4));
        stats.record(FileClass::Redo, Op::Sync, Cause::Commit, Duration::MAX, 0);
        let both = once.merged(&stats.snapshot());
        assert_eq!(both.get(FileClass::Data, Op::Read, Cause::Prefetch).unwrap().count(), 8000);
        assert_eq!(both.get(FileClass::Redo, Op::Sync, Cause::Commit).unwrap().count(), 1);
        #[cfg(feature = "serde")]
        {
            let json = serde_json::to_string(&both).unwrap();
            assert_eq!(serde_json::from_str::<IoSnapshot>(&json).unwrap(), both);
        }
    }
}
