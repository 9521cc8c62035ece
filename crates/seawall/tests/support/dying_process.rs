//! A process on a simulated disk that dies at a given operation, and its clock.
//!
//! 1. The crash falls *before* the operation with that number: everything earlier happened, that one and all
//!    later ones never do.
//! 2. If that operation is a write it may also be torn, including its own durability: it is in flight when
//!    the process dies, and the disk decides each of its sectors, or lets it land late.
//! 3. Reads of the clock and the collection of completions are not operations.

use seawall_io::probe::Finding;
use seawall_io::{
    AlignedBuf, Allocate, BackendInfo, Cached, Disk, FileIdentity, Handle, OpenHow, Request, Result, SharedMemory,
    SyncHow, Ticket, WriteHow,
};
use seawall_sim::{Process, SimDisk};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    PowerCut,
    Killed,
}

#[derive(Debug)]
pub(crate) struct DyingProcess {
    process: Process,
    how: End,
    /// Operations left; `u64::MAX`: it does not die by itself.
    left: AtomicU64,
    /// Batches of requests left; it dies right after it has submitted the last, with all of them in flight.
    batches_left: AtomicU64,
    /// Whether a write at which it dies is in flight (2).
    tears: bool,
    dead: AtomicBool,
}

impl DyingProcess {
    #[allow(dead_code)] // each test binary uses some of it
    pub(crate) fn new(disk: &Arc<SimDisk>, how: End, after: Option<u64>) -> Arc<Self> {
        Self::tearing(disk, how, after, false)
    }

    /// Like [`DyingProcess::new`]; `tears`: see (2).
    #[allow(dead_code)]
    pub(crate) fn tearing(disk: &Arc<SimDisk>, how: End, after: Option<u64>, tears: bool) -> Arc<Self> {
        let left = AtomicU64::new(after.unwrap_or(u64::MAX));
        Arc::new(Self {
            process: Process::new(disk),
            how,
            left,
            batches_left: AtomicU64::new(u64::MAX),
            tears,
            dead: AtomicBool::new(false),
        })
    }

    pub(crate) fn how(&self) -> End {
        self.how
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Dies before the operation this many further on.
    #[allow(dead_code)] // not by every test that has this module
    pub(crate) fn dies_after(&self, operations: u64) {
        self.left.store(operations, Ordering::SeqCst);
    }

    /// Dies with the requests of a batch in flight: the batch this many further on.
    #[allow(dead_code)] // as above
    pub(crate) fn dies_in_flight(&self, batches: u64) {
        self.batches_left.store(batches, Ordering::SeqCst);
    }

    pub(crate) fn dies_now(&self) {
        if !self.dead.swap(true, Ordering::SeqCst) {
            self.process.crash_by(match self.how {
                End::PowerCut => SimDisk::power_cut,
                End::Killed => SimDisk::process_crash,
            });
        }
    }

    fn alive(&self) -> &Process {
        let one_less = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(1));
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) == Ok(0) {
            self.dies_now();
        }
        &self.process
    }
}

impl Disk for DyingProcess {
    fn backend(&self) -> &BackendInfo {
        self.process.backend()
    }
    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle> {
        self.alive().open(path, how)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.alive().rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.alive().remove(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.alive().sync_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.alive().list(path)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.alive().free_bytes(path)
    }
    fn untorn_write_bytes(&self, path: &Path) -> Finding<u32> {
        self.process.untorn_write_bytes(path)
    }
    fn atomic_write_bytes(&self, path: &Path) -> Finding<u32> {
        self.process.atomic_write_bytes(path)
    }
    fn identity(&self, file: &Handle) -> Result<FileIdentity> {
        self.alive().identity(file)
    }
    fn map_shared(&self, file: &Handle, len: usize) -> Result<SharedMemory> {
        self.alive().map_shared(file, len)
    }
    fn lock(&self, file: &Handle) -> Result<()> {
        self.alive().lock(file)
    }
    fn lock_shared(&self, file: &Handle) -> Result<()> {
        self.alive().lock_shared(file)
    }
    fn len(&self, file: &Handle) -> Result<u64> {
        self.alive().len(file)
    }
    fn set_len(&self, file: &Handle, len: u64) -> Result<()> {
        self.alive().set_len(file, len)
    }
    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.alive().allocate(file, how, offset, len)
    }
    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.alive().read_at(file, offset, buf)
    }
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        if self.tears && self.left.load(Ordering::SeqCst) == 0 && !self.is_dead() {
            let bufs = bufs.iter().map(|buf| AlignedBuf::copy_of(buf).into()).collect();
            // No thread waits for it.
            drop(self.process.submit(vec![Request::write(file, offset, bufs, how)]));
        }
        self.alive().write_at(file, offset, bufs, how)
    }
    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()> {
        self.alive().sync(file, how)
    }
    fn cached(&self, file: &Handle, len: u64) -> Result<Cached> {
        self.alive().cached(file, len)
    }
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()> {
        self.alive().drop_cache(file, offset, len)
    }
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let tickets = self.alive().submit(batch);
        let one_less = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(1));
        if self.batches_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) == Ok(0) {
            self.dies_now();
        }
        tickets
    }
    fn drive(&self, block: bool) -> usize {
        self.process.drive(block)
    }
}
