//! A disk with bytes that cannot be read.

use seawall_io::{
    Allocate, BackendInfo, Cached, Disk, Handle, IoError, Op, OpenHow, Request, RequestKind, Result, SyncHow, Ticket,
    WriteHow,
};
use std::io::IoSlice;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A disk that cannot read some bytes of some files until they are written again.
#[derive(Debug)]
pub(crate) struct Unreadable {
    inner: Arc<dyn Disk>,
    pub(crate) bad: Mutex<Vec<(PathBuf, Range<u64>)>>,
}

impl Unreadable {
    pub(crate) fn new(inner: Arc<dyn Disk>, bad: Vec<(PathBuf, Range<u64>)>) -> Arc<Self> {
        Arc::new(Self { inner, bad: Mutex::new(bad) })
    }

    fn refuses(&self, path: &Path, offset: u64, len: usize) -> bool {
        let meets =
            |(of, bad): &(PathBuf, Range<u64>)| of == path && bad.start < offset + len as u64 && offset < bad.end;
        self.bad.lock().unwrap().iter().any(meets)
    }

    fn written(&self, path: &Path, offset: u64, len: usize) {
        let end = offset + len as u64;
        let mut left = Vec::new();
        for (of, bad) in self.bad.lock().unwrap().drain(..) {
            if of != path || bad.start >= end || bad.end <= offset {
                left.push((of, bad));
                continue;
            }
            for part in [bad.start..offset.max(bad.start), end.min(bad.end)..bad.end] {
                if !part.is_empty() {
                    left.push((of.clone(), part));
                }
            }
        }
        *self.bad.lock().unwrap() = left;
    }
}

impl Disk for Unreadable {
    fn backend(&self) -> &BackendInfo {
        self.inner.backend()
    }
    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle> {
        self.inner.open(path, how)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.inner.list(path)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.inner.free_bytes(path)
    }
    fn lock(&self, file: &Handle) -> Result<()> {
        self.inner.lock(file)
    }
    fn len(&self, file: &Handle) -> Result<u64> {
        self.inner.len(file)
    }
    fn set_len(&self, file: &Handle, len: u64) -> Result<()> {
        self.inner.set_len(file, len)
    }
    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(file, how, offset, len)
    }
    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if self.refuses(file.path(), offset, buf.len()) {
            return Err(IoError::os(Op::Read, file.path(), 5));
        }
        self.inner.read_at(file, offset, buf)
    }
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        let written = self.inner.write_at(file, offset, bufs, how)?;
        self.written(file.path(), offset, written);
        Ok(written)
    }
    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()> {
        self.inner.sync(file, how)
    }
    fn cached(&self, file: &Handle, len: u64) -> Result<Cached> {
        self.inner.cached(file, len)
    }
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()> {
        self.inner.drop_cache(file, offset, len)
    }
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let tickets = batch.into_iter().map(|request| {
            let (path, offset, len) = (request.file.path().to_owned(), request.offset, request.len());
            match request.kind {
                RequestKind::Read if self.refuses(&path, offset, len) => {
                    let (ticket, completer) = Ticket::new();
                    let result = Err(IoError::os(Op::Read, &path, 5).at(offset, len as u64));
                    completer.complete(seawall_io::Completion { result, bufs: request.bufs });
                    ticket
                }
                kind => {
                    if matches!(kind, RequestKind::Write(_)) {
                        self.written(&path, offset, len);
                    }
                    self.inner.submit(vec![request]).pop().expect("one for each")
                }
            }
        });
        tickets.collect()
    }
    fn drive(&self, block: bool) -> usize {
        self.inner.drive(block)
    }
}
