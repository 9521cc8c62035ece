//! A disk that refuses every write.
//!
//! 1. Every call that could change a file, a name or durability is refused with `EROFS` before it reaches the
//!    disk below.
//! 2. Files are opened for reading, even if write access was requested: no descriptor of this disk can write,
//!    and files without write permission open.
//! 3. A lock is shared: it excludes writers but not other readers.

use crate::class::Op;
use crate::disk::{
    Allocate, BackendInfo, Cached, Completion, Create, Disk, FileIdentity, Handle, OpenHow, Request, RequestKind,
    SyncHow, Ticket, WriteHow,
};
use crate::error::{IoError, Result};
use crate::probe::Finding;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A wrapper around another disk that changes nothing on it.
///
/// ```
/// use seawall_io::{Disk, OpenHow, OsDisk, ReadOnlyDisk, WriteHow};
/// use std::{io::IoSlice, sync::Arc};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// std::fs::write(&path, b"kept")?;
/// let disk = ReadOnlyDisk::new(Arc::new(OsDisk::synchronous()));
/// let file = disk.open(&path, OpenHow { write: true, ..OpenHow::default() })?;
/// // Two handles share the lock.
/// disk.lock(&file)?;
/// disk.lock(&disk.open(&path, OpenHow::default())?)?;
/// let refused = disk.write_at(&file, 0, &[IoSlice::new(b"lost")], WriteHow::default()).unwrap_err();
/// assert_eq!(refused.errno(), Some(30), "EROFS");
/// assert_eq!(std::fs::read(&path)?, b"kept");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ReadOnlyDisk {
    below: Arc<dyn Disk>,
}

impl ReadOnlyDisk {
    /// Creates a disk that reads from `below`.
    #[must_use]
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self { below }
    }
}

fn refused<T>(op: Op, path: &Path) -> Result<T> {
    Err(IoError::os(op, path, libc::EROFS))
}

impl Disk for ReadOnlyDisk {
    fn backend(&self) -> &BackendInfo {
        self.below.backend()
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle> {
        if how.create == Create::New {
            return refused(Op::Open, path);
        }
        self.below.open(path, OpenHow { write: false, create: Create::No, direct: how.direct, dsync: false })
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        refused(Op::Directory, from)
    }

    fn rename_new(&self, from: &Path, _to: &Path) -> Result<()> {
        refused(Op::Directory, from)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        refused(Op::Directory, path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        refused(Op::Directory, path)
    }

    fn identity(&self, file: &Handle) -> Result<FileIdentity> {
        self.below.identity(file)
    }

    fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.below.list(path)
    }

    fn pin(&self, dir: &Path) -> Result<()> {
        self.below.pin(dir)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.below.free_bytes(path)
    }

    fn untorn_write_bytes(&self, path: &Path) -> Finding<u32> {
        self.below.untorn_write_bytes(path)
    }

    fn atomic_write_bytes(&self, path: &Path) -> Finding<u32> {
        self.below.atomic_write_bytes(path)
    }

    fn lock(&self, file: &Handle) -> Result<()> {
        self.below.lock_shared(file)
    }

    fn lock_shared(&self, file: &Handle) -> Result<()> {
        self.below.lock_shared(file)
    }

    fn len(&self, file: &Handle) -> Result<u64> {
        self.below.len(file)
    }

    fn set_len(&self, file: &Handle, _len: u64) -> Result<()> {
        refused(Op::Grow, file.path())
    }

    fn allocate(&self, file: &Handle, _how: Allocate, _offset: u64, _len: u64) -> Result<()> {
        refused(Op::Grow, file.path())
    }

    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.below.read_at(file, offset, buf)
    }

    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let op = if how.dsync { Op::DurableWrite } else { Op::Write };
        refused(op, file.path()).map_err(|e| e.at(offset, len))
    }

    fn sync(&self, file: &Handle, _how: SyncHow) -> Result<()> {
        refused(Op::Sync, file.path())
    }

    fn cached(&self, file: &Handle, len: u64) -> Result<Cached> {
        self.below.cached(file, len)
    }

    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()> {
        self.below.drop_cache(file, offset, len)
    }

    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        if batch.iter().all(|request| request.kind == RequestKind::Read) {
            return self.below.submit(batch);
        }
        let one = |request: Request| {
            if request.kind == RequestKind::Read {
                return self.below.submit(vec![request]);
            }
            let (ticket, completer) = Ticket::new();
            let error = IoError::os(request.op(), request.file.path(), libc::EROFS);
            let result = Err(error.at(request.offset, request.len() as u64));
            completer.complete(Completion { result, bufs: request.bufs });
            vec![ticket]
        };
        batch.into_iter().flat_map(one).collect()
    }

    fn drive(&self, block: bool) -> usize {
        self.below.drive(block)
    }

    fn wait(&self, ticket: &Ticket) -> Completion {
        if ticket.is_done() {
            return ticket.take().expect("a completion is taken once");
        }
        self.below.wait(ticket)
    }
}
