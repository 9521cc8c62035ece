//! A disk that runs a test's action at a chosen moment of another thread's I/O.

use seawall_io::{
    Allocate, BackendInfo, Cached, Disk, Handle, OpenHow, Request, RequestKind, Result, SyncHow, Ticket, WriteHow,
};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

type Deed = Box<dyn FnOnce() + Send>;

/// An operation before which a test's action can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// A synchronous write of the file with this name.
    Write(&'static str),
    /// A flush of the file with this name.
    Sync(&'static str),
    /// The submission of reads of the data file.
    SubmitRead,
    /// The submission of writes of the data file.
    SubmitWrite,
}

/// Forwards everything; runs an action once, just before the next matching operation.
pub(super) struct Hook {
    inner: Arc<dyn Disk>,
    before_page_write: Mutex<Option<Deed>>,
    before_page_read: Mutex<Option<Deed>>,
    before: Mutex<Option<(At, Deed)>>,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

impl Hook {
    pub(super) fn new(inner: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            before_page_write: Mutex::default(),
            before_page_read: Mutex::default(),
            before: Mutex::default(),
        })
    }

    pub(super) fn before_page_write(&self, deed: impl FnOnce() + Send + 'static) {
        *self.before_page_write.lock().unwrap() = Some(Box::new(deed));
    }

    pub(super) fn before_page_read(&self, deed: impl FnOnce() + Send + 'static) {
        *self.before_page_read.lock().unwrap() = Some(Box::new(deed));
    }

    pub(super) fn before(&self, at: At, deed: impl FnOnce() + Send + 'static) {
        *self.before.lock().unwrap() = Some((at, Box::new(deed)));
    }

    fn reached(&self, at: impl Fn(At) -> bool) {
        let deed = self.before.lock().unwrap().take_if(|(wanted, _)| at(*wanted));
        if let Some((_, deed)) = deed {
            deed();
        }
    }

    fn run(deed: &Mutex<Option<Deed>>) {
        let deed = deed.lock().unwrap().take();
        if let Some(deed) = deed {
            deed();
        }
    }
}

fn is_data(file: &Handle) -> bool {
    file.path().ends_with(super::DATA_FILE)
}

impl Disk for Hook {
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
        if is_data(file) {
            Self::run(&self.before_page_read);
        }
        self.inner.read_at(file, offset, buf)
    }
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        self.reached(|at| matches!(at, At::Write(name) if file.path().ends_with(name)));
        self.inner.write_at(file, offset, bufs, how)
    }
    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()> {
        self.reached(|at| matches!(at, At::Sync(name) if file.path().ends_with(name)));
        self.inner.sync(file, how)
    }
    fn cached(&self, file: &Handle, len: u64) -> Result<Cached> {
        self.inner.cached(file, len)
    }
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()> {
        self.inner.drop_cache(file, offset, len)
    }
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        if batch.iter().any(|r| is_data(&r.file) && matches!(r.kind, RequestKind::Write(_))) {
            Self::run(&self.before_page_write);
            self.reached(|at| at == At::SubmitWrite);
        }
        if batch.iter().any(|r| is_data(&r.file) && !matches!(r.kind, RequestKind::Write(_))) {
            self.reached(|at| at == At::SubmitRead);
        }
        self.inner.submit(batch)
    }
    fn drive(&self, block: bool) -> usize {
        self.inner.drive(block)
    }
}
