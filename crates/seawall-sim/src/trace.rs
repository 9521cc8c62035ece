//! The record of operations, so that a test can check "no commit extends a file" or "the log is never read".
//!
//! 1. Every operation is hashed in order with its outcome and, for writes, its bytes: equal hashes mean equal
//!    runs.
//! 2. Tallies cover the whole run; details cover only the last [`crate::SimOptions::trace_entries_max`]
//!    operations.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An operation of the disk, or an event such as a crash.
///
/// ```
/// assert_eq!(seawall_sim::Call::SyncDir.op(), Some(seawall_io::Op::Sync));
/// assert_eq!(seawall_sim::Call::PowerCut.op(), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // each is the operation of that name
pub enum Call {
    Open,
    Rename,
    Remove,
    SyncDir,
    List,
    FreeBytes,
    Lock,
    MapShared,
    Identity,
    Len,
    SetLen,
    Allocate,
    Read,
    Write,
    DurableWrite,
    Sync,
    Cached,
    DropCache,
    /// A write of a killed process landed.
    LateWrite,
    PowerCut,
    ProcessCrash,
}

impl Call {
    /// Returns the operation in errors and counters; `None` for an event that is not an operation.
    #[must_use]
    pub fn op(self) -> Option<seawall_io::Op> {
        use seawall_io::Op;
        Some(match self {
            Self::Open | Self::Lock => Op::Open,
            Self::Rename | Self::Remove | Self::List => Op::Directory,
            Self::MapShared | Self::Identity | Self::FreeBytes | Self::Len | Self::Cached | Self::DropCache => {
                Op::Inspect
            }
            Self::SetLen | Self::Allocate => Op::Grow,
            Self::Read => Op::Read,
            Self::Write => Op::Write,
            Self::DurableWrite => Op::DurableWrite,
            Self::Sync | Self::SyncDir => Op::Sync,
            Self::LateWrite | Self::PowerCut | Self::ProcessCrash => return None,
        })
    }
}

/// One operation.
///
/// ```
/// use seawall_io::{Create, Disk as _, OpenHow, Op};
/// use seawall_sim::{Call, Fault, FaultKind, SimDisk, SimOptions};
/// let disk = SimDisk::new(SimOptions::default());
/// disk.inject(Fault::eio().on(Op::Open).once());
/// assert!(disk.open("/db/data".as_ref(), OpenHow { create: Create::New, ..OpenHow::default() }).is_err());
/// let trace = disk.trace();
/// let entry = trace.entries().next().unwrap();
/// assert_eq!((entry.number, entry.call, entry.outcome), (1, Call::Open, Err(5)));
/// assert_eq!(entry.fault, Some(FaultKind::Errno(5)), "so it was no accident");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEntry {
    /// Number of the operation, from 1.
    pub number: u64,
    /// Virtual time at its end.
    pub at: Duration,
    /// The operation.
    pub call: Call,
    /// The file or directory.
    pub path: PathBuf,
    /// Offset, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// Bytes transferred (0 for an operation that transfers none), or the errno.
    pub outcome: Result<u64, i32>,
    /// Bytes by which the file's length grew.
    pub grew: u64,
    /// Bytes of blocks that were allocated.
    pub allocated: u64,
    /// Bytes read from the device, including a buffered write's read of the rest of its page.
    pub device_read: u64,
    /// The fault that applied.
    pub fault: Option<crate::FaultKind>,
}

/// Sums over all operations of one kind on one path.
///
/// ```
/// use seawall_io::{Create, Disk as _, OpenHow, WriteHow};
/// use seawall_sim::{Call, SimDisk, SimOptions};
/// # let disk = SimDisk::new(SimOptions::default());
/// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
/// # let log = disk.open("/log".as_ref(), how)?;
/// for offset in [0, 6] {
///     disk.write_at(&log, offset, &[std::io::IoSlice::new(b"commit")], WriteHow::default())?;
/// }
/// let writes = disk.trace().tally("/log", Call::Write);
/// assert_eq!((writes.calls, writes.bytes, writes.grew), (2, 12, 12), "these commits extend the file");
/// # Ok::<(), seawall_io::IoError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Operations.
    pub calls: u64,
    /// Those that failed.
    pub errors: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Bytes by which the file's length grew.
    pub grew: u64,
    /// Bytes of blocks that were allocated.
    pub allocated: u64,
    /// Bytes read from the device, including a buffered write's read of the rest of its page.
    pub device_read: u64,
}

/// A record of operations.
///
/// ```
/// use seawall_io::{Create, Disk as _, OpenHow, WriteHow};
/// use seawall_sim::{Call, SimDisk, SimOptions};
/// # fn main() -> seawall_io::Result<()> {
/// let disk = SimDisk::new(SimOptions::default());
/// let log = disk.open("/db/log".as_ref(), OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
/// let before = disk.trace().len();
/// disk.write_at(&log, 0, &[std::io::IoSlice::new(b"commit")], WriteHow::default())?;
/// let trace = disk.trace();
/// assert_eq!(trace.tally("/db/log", Call::Read).calls, 0);
/// assert_eq!(trace.since(before).map(|entry| entry.grew).sum::<u64>(), 6); // this commit extended the file
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    entries: VecDeque<TraceEntry>,
    entries_max: usize,
    total: u64,
    tallies: BTreeMap<(PathBuf, Call), Tally>,
    hash: Fnv,
}

impl Trace {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { entries: VecDeque::new(), entries_max, total: 0, tallies: BTreeMap::new(), hash: Fnv::default() }
    }

    pub(crate) fn push(&mut self, entry: TraceEntry) {
        self.total = entry.number;
        let tally = self.tallies.entry((entry.path.clone(), entry.call)).or_default();
        tally.calls += 1;
        tally.errors += u64::from(entry.outcome.is_err());
        tally.bytes += entry.outcome.unwrap_or(0);
        tally.grew += entry.grew;
        tally.allocated += entry.allocated;
        tally.device_read += entry.device_read;
        for number in [
            entry.number,
            entry.at.as_nanos() as u64,
            entry.call as u64,
            entry.offset,
            entry.len,
            entry.outcome.unwrap_or_else(|errno| u64::MAX - errno.unsigned_abs() as u64),
            entry.grew,
            entry.allocated,
            entry.device_read,
        ] {
            self.hash.add(&number.to_le_bytes());
        }
        self.hash.add(entry.path.as_os_str().as_encoded_bytes());
        if self.entries.len() == self.entries_max {
            self.entries.pop_front();
        }
        if self.entries_max > 0 {
            self.entries.push_back(entry);
        }
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        self.hash.add(bytes);
    }

    /// Returns the number of operations so far, including those without details.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns whether no operation has been recorded yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns a hash of all operations, outcomes and written bytes: the same seed and the same calls give the
    /// same hash.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.0
    }

    /// Iterates over the operations with details, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &TraceEntry> {
        self.entries.iter()
    }

    /// Iterates over the operations after number `number` ([`Trace::len`] of an earlier trace), as far as
    /// details are kept.
    pub fn since(&self, number: u64) -> impl Iterator<Item = &TraceEntry> {
        self.entries.iter().filter(move |entry| entry.number > number)
    }

    /// Returns the sums over one kind of operation on one path.
    #[must_use]
    pub fn tally(&self, path: impl AsRef<Path>, call: Call) -> Tally {
        self.tallies.get(&(crate::names::normal(path.as_ref()), call)).copied().unwrap_or_default()
    }

    /// Returns the number of operations of one kind on all paths.
    #[must_use]
    pub fn count(&self, call: Call) -> u64 {
        self.tallies.iter().filter(|((_, known), _)| *known == call).map(|(_, tally)| tally.calls).sum()
    }
}

/// FNV-1a with 64 bits, computed over words instead of bytes, which is eight times faster. Unlike the standard
/// library's hasher, it never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        let mut last = [0; 8];
        for word in words.by_ref() {
            last.copy_from_slice(word);
            self.word(u64::from_le_bytes(last));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
    }

    fn word(&mut self, word: u64) {
        // A product carries only upwards; the rotation moves the high bits to where the next product includes
        // them.
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }
}
