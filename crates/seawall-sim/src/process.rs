//! The disk as one process sees it.
//!
//! - A [`SimDisk`] remains usable after a power cut, like a machine after its restart. The code under test
//!   must not continue: a thread between a rename and the sync of its directory would sync the restarted
//!   machine's directory and take the success for its own.
//! - So a test gives that code a [`Process`]: every operation of the process after its crash fails with
//!   `ENXIO`.
//! - No operation is in progress while the process dies: the crash falls between two operations, or hits
//!   requests in flight.

use crate::SimDisk;
use seawall_io::probe::Finding;
use seawall_io::{
    Allocate, BackendInfo, Cached, Completion, Disk, FileIdentity, Handle, IoError, Op, OpenHow, Request, Result,
    SharedMemory, SyncHow, Ticket, WriteHow,
};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// A process on a [`SimDisk`]; see the module documentation.
///
/// ```
/// use seawall_io::{Create, Disk as _, OpenHow};
/// use seawall_sim::{Process, SimDisk, SimOptions};
/// let disk = SimDisk::new(SimOptions::default());
/// let process = Process::new(&disk);
/// let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
/// process.open("/db/data".as_ref(), how)?;
/// process.crash_by(SimDisk::power_cut);
/// assert!(process.sync_dir("/db".as_ref()).is_err(), "the dead make nothing durable");
/// assert!(disk.sync_dir("/db".as_ref()).is_ok(), "the machine is up again");
/// # Ok::<(), seawall_io::IoError>(())
/// ```
#[derive(Debug)]
pub struct Process {
    disk: Arc<SimDisk>,
    dead: RwLock<bool>,
}

impl Process {
    /// Starts a process.
    ///
    /// ```
    /// # use seawall_io::Disk as _;
    /// # use seawall_sim::{Process, SimDisk, SimOptions};
    /// // After a crash the next process begins on the same disk.
    /// let disk = SimDisk::new(SimOptions::default());
    /// Process::new(&disk).crash_by(SimDisk::process_crash);
    /// assert!(Process::new(&disk).list("/".as_ref())?.is_empty());
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    #[must_use]
    pub fn new(disk: &Arc<SimDisk>) -> Self {
        Self { disk: disk.clone(), dead: RwLock::new(false) }
    }

    /// Ends the process. `how` crashes the disk: [`SimDisk::power_cut`] or [`SimDisk::process_crash`].
    pub fn crash_by(&self, how: impl FnOnce(&SimDisk)) {
        let mut dead = self.dead.write().unwrap_or_else(PoisonError::into_inner);
        how(&self.disk);
        *dead = true;
    }

    fn alive<T>(&self, path: &Path, operation: impl FnOnce(&SimDisk) -> Result<T>) -> Result<T> {
        let dead = self.dead.read().unwrap_or_else(PoisonError::into_inner);
        if *dead { Err(IoError::os(Op::Inspect, path, libc::ENXIO)) } else { operation(&self.disk) }
    }
}

impl Disk for Process {
    fn backend(&self) -> &BackendInfo {
        self.disk.backend()
    }
    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle> {
        self.alive(path, |disk| disk.open(path, how))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.alive(from, |disk| disk.rename(from, to))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.alive(path, |disk| disk.remove(path))
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.alive(path, |disk| disk.sync_dir(path))
    }
    fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.alive(path, |disk| disk.list(path))
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.alive(path, |disk| disk.free_bytes(path))
    }
    fn untorn_write_bytes(&self, path: &Path) -> Finding<u32> {
        self.disk.untorn_write_bytes(path)
    }
    fn atomic_write_bytes(&self, path: &Path) -> Finding<u32> {
        self.disk.atomic_write_bytes(path)
    }
    fn identity(&self, file: &Handle) -> Result<FileIdentity> {
        self.alive(file.path(), |disk| disk.identity(file))
    }
    fn map_shared(&self, file: &Handle, len: usize) -> Result<SharedMemory> {
        self.alive(file.path(), |disk| disk.map_shared(file, len))
    }
    fn lock(&self, file: &Handle) -> Result<()> {
        self.alive(file.path(), |disk| disk.lock(file))
    }
    fn lock_shared(&self, file: &Handle) -> Result<()> {
        self.alive(file.path(), |disk| disk.lock_shared(file))
    }
    fn len(&self, file: &Handle) -> Result<u64> {
        self.alive(file.path(), |disk| disk.len(file))
    }
    fn set_len(&self, file: &Handle, len: u64) -> Result<()> {
        self.alive(file.path(), |disk| disk.set_len(file, len))
    }
    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.alive(file.path(), |disk| disk.allocate(file, how, offset, len))
    }
    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.alive(file.path(), |disk| disk.read_at(file, offset, buf))
    }
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        self.alive(file.path(), |disk| disk.write_at(file, offset, bufs, how))
    }
    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()> {
        self.alive(file.path(), |disk| disk.sync(file, how))
    }
    fn cached(&self, file: &Handle, len: u64) -> Result<Cached> {
        self.alive(file.path(), |disk| disk.cached(file, len))
    }
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()> {
        self.alive(file.path(), |disk| disk.drop_cache(file, offset, len))
    }
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let dead = self.dead.read().unwrap_or_else(PoisonError::into_inner);
        if !*dead {
            return self.disk.submit(batch);
        }
        batch
            .into_iter()
            .map(|request| {
                let (ticket, completer) = Ticket::new();
                let result = Err(IoError::os(request.op(), request.file.path(), libc::ENXIO));
                completer.complete(Completion { result, bufs: request.bufs });
                ticket
            })
            .collect()
    }
    fn drive(&self, block: bool) -> usize {
        self.disk.drive(block)
    }
}
