//! The damage that illegal faults did to the medium, and the reads that returned it: a test that requires
//! "reported, or harmless" must know which damage the engine had to report.
//!
//! 1. A misdirected write is two damages: at the intended place and at the place it reached.
//! 2. A read is recorded if it overlaps a damaged range and returned other bytes there than the wanted ones.
//!    These may be newer bytes: the test judges what they are. The same bytes at the same place are recorded
//!    once.

use crate::fault::FaultKind;
use std::path::{Path, PathBuf};

/// One damaged range of one file.
///
/// ```
/// use seawall_io::{Create, Disk as _, OpenHow, SyncHow, WriteHow};
/// use seawall_sim::{Fault, FaultKind, SimDisk, SimOptions};
/// let disk = SimDisk::new(SimOptions::default());
/// let how = OpenHow { write: true, direct: true, create: Create::New, ..OpenHow::default() };
/// let file = disk.open("/f".as_ref(), how)?;
/// let mut block = seawall_io::AlignedBuf::zeroed(4096);
/// block.fill(1);
/// disk.inject(Fault::lost_write().once());
/// disk.write_at(&file, 0, &[std::io::IoSlice::new(&block)], WriteHow::default())?;
/// disk.read_at(&file, 0, &mut block)?;
/// let damage = &disk.damage()[0];
/// assert_eq!((damage.kind, damage.wanted[0], damage.found[0]), (FaultKind::LostWrite, 1, 0));
/// assert_eq!(damage.reads.len(), 1, "a program has read the old bytes");
/// # Ok::<(), seawall_io::IoError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What went wrong.
    pub kind: FaultKind,
    /// Whether this is the place that a misdirected write reached.
    pub elsewhere: bool,
    /// The file's name at that time.
    pub path: PathBuf,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// The bytes that should be there.
    pub wanted: Vec<u8>,
    /// The bytes that were there instead.
    pub found: Vec<u8>,
    /// Reads since then that returned wrong bytes there.
    pub reads: Vec<DamagedRead>,
    pub(crate) inode: u64,
}

/// A read that overlapped a damaged range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRead {
    /// Number of the first such read in the disk's trace.
    pub number: u64,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// The bytes read, as far as they lie in the damaged range.
    pub bytes: Vec<u8>,
}

impl Damage {
    pub(crate) fn new(
        kind: FaultKind,
        (inode, path): (u64, &Path),
        offset: u64,
        wanted: Vec<u8>,
        found: Vec<u8>,
    ) -> Self {
        Self { kind, elsewhere: false, path: path.into(), offset, wanted, found, reads: Vec::new(), inode }
    }

    /// Records that `bytes` were read at `offset` of file `inode`.
    pub(crate) fn note_read(&mut self, number: u64, inode: u64, offset: u64, bytes: &[u8]) {
        let (from, to) = (self.offset.max(offset), self.end().min(offset + bytes.len() as u64));
        if inode != self.inode || from >= to {
            return;
        }
        let read = &bytes[(from - offset) as usize..(to - offset) as usize];
        let wanted = &self.wanted[(from - self.offset) as usize..(to - self.offset) as usize];
        if read != wanted && !self.reads.iter().any(|known| known.offset == from && known.bytes == read) {
            self.reads.push(DamagedRead { number, offset: from, bytes: read.to_vec() });
        }
    }

    /// Returns the offset of the first byte after the damaged range.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.wanted.len() as u64
    }
}
