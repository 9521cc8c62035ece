//! The simulated disk as programs see it: [`seawall_io::Disk`] under one lock.
//!
//! 1. This file decides nothing: it finds the handle, takes the lock, and calls [`State`].
//! 2. The disk processes the close of a handle at the next operation: the handle's guard only records the close,
//!    so that dropping a request under the lock does not wait for the lock.
//! 3. Completions are delivered after the lock is released.

use crate::damage::Damage;
use crate::fault::Fault;
use crate::image::{BLOCK, blocks_of};
use crate::options::SimOptions;
use crate::queue::InFlight;
use crate::state::{About, Errno, State, error, joined};
use crate::trace::{Call, Trace};
use seawall_io::probe::Finding;
use seawall_io::{
    Allocate, BackendInfo, Cached, Completer, Completion, Disk, FileIdentity, Handle, Op, OpenHow, Request, Result,
    SharedMemory, SyncHow, Ticket, WriteHow,
};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Ids of handles are unique in the whole program, so that a handle never refers to a file of another disk.
/// They are not part of traces.
static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);

/// A deterministic disk in memory, with the faults of real ones. See the [crate] for its model.
///
/// ```
/// use seawall_io::{Create, Disk as _, OpenHow, SyncHow, WriteHow};
/// use seawall_sim::{SimDisk, SimOptions};
/// # fn main() -> seawall_io::Result<()> {
/// let disk = SimDisk::new(SimOptions { seed: 42, ..SimOptions::default() });
/// let file = disk.open("/db/data".as_ref(), OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
/// disk.write_at(&file, 0, &[std::io::IoSlice::new(b"kept")], WriteHow::default())?;
/// disk.sync(&file, SyncHow::Data)?;
/// disk.sync_dir("/db".as_ref())?;
/// disk.power_cut();
/// assert_eq!(disk.seen("/db/data"), Some(b"kept".to_vec()));
/// assert_eq!(disk.len(&file).unwrap_err().errno(), Some(6)); // ENXIO: a handle from before the restart
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SimDisk {
    state: Mutex<State>,
    closed: Closed,
    seed: u64,
    info: BackendInfo,
}

/// Handles that were closed since the last operation.
type Closed = Arc<Mutex<Vec<u64>>>;

#[derive(Debug)]
struct CloseNote {
    id: u64,
    closed: Closed,
}

impl Drop for CloseNote {
    fn drop(&mut self) {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

impl SimDisk {
    /// Creates an empty disk.
    ///
    /// ```
    /// use seawall_io::Disk as _;
    /// use seawall_sim::{SimDisk, SimOptions};
    /// let disk = SimDisk::new(SimOptions { capacity_bytes: 64 << 10, ..SimOptions::default() });
    /// assert_eq!(disk.free_bytes("/".as_ref())?, 64 << 10);
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    #[must_use]
    pub fn new(options: SimOptions) -> Arc<Self> {
        Self::of(State::new(options))
    }

    fn of(state: State) -> Arc<Self> {
        let seed = state.options.seed;
        Arc::new(Self {
            seed,
            closed: Closed::default(),
            info: BackendInfo {
                name: "simulated",
                reason: format!("asked for, with seed {seed}"),
                registered_buffers: Err("there is no kernel to register them with".into()),
            },
            state: Mutex::new(state),
        })
    }

    /// Returns the seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut closed = std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner));
        closed.sort_unstable();
        for id in closed {
            state.close(id);
        }
        state
    }

    // --- crashes -------------------------------------------------------------------------------------------

    /// Cuts the power and restarts the machine. Any subset of what is not stable persists, torn at physical
    /// sectors; this includes names. From now on, handles and requests in flight fail with `ENXIO`.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow};
    /// # use seawall_sim::{SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// disk.open("/kept".as_ref(), how)?;
    /// disk.sync_dir("/".as_ref())?;
    /// disk.open("/perhaps".as_ref(), how)?;
    /// disk.power_cut();
    /// assert!(disk.list("/".as_ref())?.contains(&"/kept".into()), "whatever becomes of the other name");
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn power_cut(&self) {
        let ready = {
            let mut state = self.state();
            state.end_mappings();
            state.power_cut();
            std::mem::take(&mut state.queue.ready)
        };
        deliver(ready);
    }

    /// Returns whether a failed sync of a directory has lost a change of a name that is still visible. A real file
    /// system then stops (ext4 aborts its journal, XFS and btrfs shut down) and accepts no write until it is
    /// mounted again.
    #[must_use]
    pub fn has_lost_names(&self) -> bool {
        self.state().names.have_lost()
    }

    /// Kills the process: every completed write stays visible, locks are released, handles fail with `ENXIO` from
    /// now on, and each write in flight may still land during the next [`SimOptions::late_within_ops`] operations.
    /// As in the kernel, locking a file waits for the late writes through the handle that held its lock; no call
    /// waits for other late writes.
    ///
    /// ```
    /// use seawall_io::{AlignedBuf, Create, Disk as _, OpenHow, Request, WriteHow};
    /// use seawall_sim::{SimDisk, SimOptions};
    /// # fn main() -> seawall_io::Result<()> {
    /// let disk = SimDisk::new(SimOptions { seed: 1, ..SimOptions::default() });
    /// let how = OpenHow { write: true, create: Create::IfMissing, direct: true, ..OpenHow::default() };
    /// let file = disk.open("/log".as_ref(), how)?;
    /// disk.lock(&file)?;
    /// let write = Request::write(&file, 0, vec![AlignedBuf::copy_of(&[7; 4096]).into()], WriteHow::default());
    /// let ticket = disk.submit(vec![write]).remove(0);
    /// disk.process_crash();
    /// assert!(disk.wait(&ticket).result.is_err());
    /// let successor = disk.open("/log".as_ref(), how)?;
    /// disk.lock(&successor)?;
    /// assert_eq!(disk.late_writes(), 0); // each has landed, or never will
    /// # Ok(()) }
    /// ```
    pub fn process_crash(&self) {
        let ready = {
            let mut state = self.state();
            state.end_mappings();
            state.process_crash();
            std::mem::take(&mut state.queue.ready)
        };
        deliver(ready);
    }

    /// Returns the number of writes of killed processes that may still land.
    #[must_use]
    pub fn late_writes(&self) -> usize {
        self.state().late_writes()
    }

    /// Copies the disk, with its own seed, as another process would find it if this process died now. A test can
    /// examine many crashes of one run without changing the run. Handles are not valid on the copy, and its trace
    /// begins empty.
    ///
    /// ```
    /// use seawall_io::{Create, Disk as _, OpenHow, WriteHow};
    /// use seawall_sim::{SimDisk, SimOptions};
    /// # fn main() -> seawall_io::Result<()> {
    /// let disk = SimDisk::new(SimOptions::default());
    /// let file = disk.open("/f".as_ref(), OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
    /// disk.sync_dir("/".as_ref())?;
    /// disk.write_at(&file, 0, &[std::io::IoSlice::new(b"unsynced")], WriteHow::default())?;
    /// let outcomes: std::collections::BTreeSet<_> = (0..50)
    ///     .map(|seed| {
    ///         let crashed = disk.fork(seed);
    ///         crashed.power_cut();
    ///         crashed.seen("/f")
    ///     })
    ///     .collect();
    /// assert!(outcomes.contains(&Some(b"unsynced".to_vec())));
    /// assert!(outcomes.contains(&Some(Vec::new())));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fork(&self, seed: u64) -> Arc<Self> {
        Self::of(self.state().fork(seed))
    }

    /// Copies only the stable data, as after a power cut that loses everything it can.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow, SyncHow, WriteHow};
    /// # use seawall_sim::{SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// # let file = disk.open("/f".as_ref(), how)?;
    /// # disk.sync_dir("/".as_ref())?;
    /// # let write = |offset, text: &[u8]| {
    /// #     disk.write_at(&file, offset, &[std::io::IoSlice::new(text)], WriteHow::default())
    /// # };
    /// write(0, b"synced")?;
    /// disk.sync(&file, SyncHow::Data)?;
    /// write(6, b", not synced")?;
    /// assert_eq!(disk.clone_stable().seen("/f"), Some(b"synced".to_vec()));
    /// assert_eq!(disk.seen("/f"), Some(b"synced, not synced".to_vec()), "the run goes on undisturbed");
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    #[must_use]
    pub fn clone_stable(&self) -> Arc<Self> {
        let mut copy = self.state().fork(self.seed);
        copy.lose_all();
        Self::of(copy)
    }

    // --- faults --------------------------------------------------------------------------------------------

    /// Adds a fault to those of [`SimOptions::faults`].
    ///
    /// ```
    /// use seawall_io::{Create, Disk as _, OpenHow, Op};
    /// use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # fn main() -> seawall_io::Result<()> {
    /// let disk = SimDisk::new(SimOptions::default());
    /// let file = disk.open("/f".as_ref(), OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
    /// disk.inject(Fault::enospc().on(Op::Grow).once());
    /// assert_eq!(disk.set_len(&file, 100).unwrap_err().errno(), Some(28));
    /// disk.set_len(&file, 100)?;
    /// # Ok(()) }
    /// ```
    pub fn inject(&self, fault: Fault) {
        self.state().options.faults.push(fault);
    }

    /// Removes all faults. A lying flush stays.
    pub fn clear_faults(&self) {
        self.state().options.faults = crate::FaultPlan::new();
    }

    /// Switches an illegal fault: while it is on, flushes and durable writes are acknowledged but leave everything
    /// in a volatile cache. The first flush after it is switched off makes all of it stable.
    ///
    /// ```
    /// use seawall_io::{Create, Disk as _, OpenHow, SyncHow, WriteHow};
    /// use seawall_sim::{SimDisk, SimOptions};
    /// # fn main() -> seawall_io::Result<()> {
    /// let disk = SimDisk::new(SimOptions::default());
    /// let file = disk.open("/f".as_ref(), OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
    /// disk.sync_dir("/".as_ref())?;
    /// disk.lying_flush(true);
    /// disk.write_at(&file, 0, &[std::io::IoSlice::new(b"acknowledged")], WriteHow::default())?;
    /// disk.sync(&file, SyncHow::All)?;
    /// assert_eq!(disk.stable("/f"), Some(Vec::new()));
    /// # Ok(()) }
    /// ```
    pub fn lying_flush(&self, lying: bool) {
        self.state().lying = lying;
    }

    /// Flips a bit of a file on the medium, an illegal fault.
    ///
    /// # Errors
    /// `ENOENT` when there is no such file, `EINVAL` beyond its end.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow, SyncHow, WriteHow};
    /// # use seawall_sim::{SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// # let file = disk.open("/f".as_ref(), how)?;
    /// # disk.sync_dir("/".as_ref())?;
    /// disk.write_at(&file, 0, &[std::io::IoSlice::new(b"A")], WriteHow::default())?;
    /// disk.sync(&file, SyncHow::All)?;
    /// disk.flip_bit("/f", 0, 1)?;
    /// assert_eq!(disk.stable("/f"), Some(b"C".to_vec()));
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64, bit: u8) -> Result<()> {
        let path = path.as_ref();
        let about = About { call: Call::Write, path, offset, len: 1, asynchronous: false };
        self.state().flip_bit(path, offset, bit).map(drop).map_err(|errno| error(about, errno))
    }

    /// Returns the damage done by illegal faults so far, in the order in which it happened.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        self.state().damage.clone()
    }

    /// Returns the number of entries of [`SimDisk::damage`].
    #[must_use]
    pub fn damages(&self) -> usize {
        self.state().damage.len()
    }

    // --- inspection ----------------------------------------------------------------------------------------

    /// Returns a copy of the record of operations.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.state().trace.clone()
    }

    /// Returns the virtual time since the disk was created.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.state().now
    }

    /// Advances virtual time; requests that are due by then take effect.
    ///
    /// ```
    /// # use seawall_sim::{SimDisk, SimOptions};
    /// # use std::time::Duration;
    /// # let disk = SimDisk::new(SimOptions::default());
    /// disk.advance(Duration::from_secs(86_400));
    /// assert_eq!(disk.now(), Duration::from_secs(86_400));
    /// ```
    pub fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.now += by;
        state.run_due();
    }

    /// Returns what programs see of a file, without an operation and without touching the page cache; `None` if it
    /// does not exist.
    #[must_use]
    pub fn seen(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.state().seen_bytes(path.as_ref())
    }

    /// Returns the content of a file that no power cut can remove; `None` if its name is not stable.
    #[must_use]
    pub fn stable(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.state().stable_bytes(path.as_ref())
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().queue.len()
    }

    /// Completes exactly one request, advancing the clock as needed; returns false if nothing is in flight. For
    /// test runners that interleave the disk with other work, one step at a time.
    ///
    /// ```
    /// use seawall_io::{AlignedBuf, Create, Disk as _, OpenHow, Request};
    /// use seawall_sim::{SimDisk, SimOptions};
    /// # fn main() -> seawall_io::Result<()> {
    /// let disk = SimDisk::new(SimOptions::default());
    /// let file = disk.open("/f".as_ref(), OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
    /// disk.set_len(&file, 8192)?;
    /// let reads = [0, 4096].map(|offset| Request::read(&file, offset, AlignedBuf::zeroed(4096).into()));
    /// let tickets = disk.submit(reads.into());
    /// assert!(disk.step());
    /// assert_eq!(tickets.iter().filter(|ticket| ticket.is_done()).count(), 1);
    /// assert!(disk.step() && !disk.step());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn step(&self) -> bool {
        let ready = {
            let mut state = self.state();
            while state.queue.ready.is_empty() && state.run_next() {}
            if state.queue.ready.is_empty() { None } else { Some(state.queue.ready.remove(0)) }
        };
        let any = ready.is_some();
        deliver(ready);
        any
    }

    // --- helpers of the trait ------------------------------------------------------------------------------

    fn on_path<T>(
        &self,
        call: Call,
        path: &Path,
        work: impl FnOnce(&mut State) -> Result<(T, u64), Errno>,
    ) -> Result<T> {
        let about = About { call, path, offset: 0, len: 0, asynchronous: false };
        self.state().perform(about, |state, _| work(state))
    }

    fn on_file<T>(
        &self,
        call: Call,
        file: &Handle,
        range: (u64, u64),
        work: impl FnOnce(&mut State, u64, Option<crate::FaultKind>) -> Result<(T, u64), Errno>,
    ) -> Result<T> {
        let about = About { call, path: file.path(), offset: range.0, len: range.1, asynchronous: false };
        let Some(id) = file.simulated_id() else { return Err(error(about, Errno(libc::EBADF))) };
        self.state().perform(
            about,
            |state, fault| {
                if state.is_open(id) { work(state, id, fault) } else { Err(Errno(libc::ENXIO)) }
            },
        )
    }
}

fn deliver(ready: impl IntoIterator<Item = (Completer, Completion)>) -> usize {
    ready.into_iter().map(|(completer, completion)| completer.complete(completion)).count()
}

impl Disk for SimDisk {
    fn backend(&self) -> &BackendInfo {
        &self.info
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle> {
        let id = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
        self.on_path(Call::Open, path, |state| state.open(id, path, how))?;
        Ok(Handle::simulated_guarded(path, id, Box::new(CloseNote { id, closed: self.closed.clone() })))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.on_path(Call::Rename, from, |state| state.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.on_path(Call::Remove, path, |state| state.remove(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let about = About { call: Call::SyncDir, path, offset: 0, len: 0, asynchronous: false };
        // That the path is not a directory is detected at the open, before any sync.
        let label = |e: seawall_io::IoError| {
            if e.errno() == Some(libc::ENOTDIR) { seawall_io::IoError { op: Op::Open, ..e } } else { e }
        };
        self.state().perform(about, |state, fault| state.sync_dir(path, fault)).map_err(label)
    }

    fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.on_path(Call::List, path, |state| Ok((state.names.list(&crate::names::normal(path)), 0)))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.on_path(Call::FreeBytes, path, |state| Ok((state.free_bytes(), 0)))
    }

    fn untorn_write_bytes(&self, _path: &Path) -> Finding<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Finding::Known(state.options.physical_sector_bytes)
    }

    fn atomic_write_bytes(&self, _path: &Path) -> Finding<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Finding::Known(state.options.atomic_write_bytes)
    }

    fn identity(&self, file: &Handle) -> Result<FileIdentity> {
        self.on_file(Call::Identity, file, (0, 0), |state, id, _| Ok((state.identity(id)?, 0)))
    }

    fn map_shared(&self, file: &Handle, len: usize) -> Result<SharedMemory> {
        self.on_file(Call::MapShared, file, (0, len as u64), |state, id, _| state.map_shared(id, len))
    }

    fn lock(&self, file: &Handle) -> Result<()> {
        self.on_file(Call::Lock, file, (0, 0), |state, id, _| state.lock(id, false))
    }

    fn lock_shared(&self, file: &Handle) -> Result<()> {
        self.on_file(Call::Lock, file, (0, 0), |state, id, _| state.lock(id, true))
    }

    fn len(&self, file: &Handle) -> Result<u64> {
        self.on_file(Call::Len, file, (0, 0), |state, id, _| Ok((state.file(id)?.seen.len, 0)))
    }

    fn set_len(&self, file: &Handle, len: u64) -> Result<()> {
        self.on_file(Call::SetLen, file, (0, len), |state, id, _| state.set_len(id, len))
    }

    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.on_file(Call::Allocate, file, (offset, len), |state, id, _| state.allocate(id, how, offset, len))
    }

    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut moved = 0;
        self.on_file(Call::Read, file, (offset, buf.len() as u64), |state, id, fault| {
            let answer = state.read(id, offset, buf, fault)?;
            moved = answer.1 as usize;
            Ok(answer)
        })?;
        Ok(moved)
    }

    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        let bytes = joined(bufs.iter().map(|buf| &**buf), 0);
        let call = if how.dsync { Call::DurableWrite } else { Call::Write };
        let mut moved = 0;
        self.on_file(call, file, (offset, bytes.len() as u64), |state, id, fault| {
            let answer = state.write(id, offset, &bytes, how, fault)?;
            moved = answer.1 as usize;
            Ok(answer)
        })?;
        Ok(moved)
    }

    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()> {
        self.on_file(Call::Sync, file, (0, 0), |state, id, fault| state.sync(id, how, fault))
    }

    fn cached(&self, file: &Handle, len: u64) -> Result<Cached> {
        self.on_file(Call::Cached, file, (0, len), |state, id, _| {
            let file = state.file(id)?;
            Ok((blocks_of(0, len).map_or_else(Cached::default, |pages| file.cache.cached(pages)), 0))
        })
    }

    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()> {
        self.on_file(Call::DropCache, file, (offset, len), |state, id, _| {
            // Only pages that lie wholly inside the range, as posix_fadvise(2) does.
            let end = if len == 0 { u64::MAX } else { offset.saturating_add(len) };
            let (first, beyond) = (offset.div_ceil(BLOCK), end / BLOCK);
            if first < beyond {
                state.file(id)?.drop_cache(first..=beyond - 1);
            }
            Ok(((), 0))
        })
    }

    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let mut state = self.state();
        let mut tickets = Vec::with_capacity(batch.len());
        for request in batch {
            let (ticket, completer) = Ticket::new();
            state.submit(InFlight { request, completer, futile: 0 });
            tickets.push(ticket);
        }
        tickets
    }

    fn drive(&self, block: bool) -> usize {
        let ready = {
            let mut state = self.state();
            // A query costs a little time, so that a program that only polls makes progress too.
            state.now += Duration::from_micros(1);
            state.run_due();
            while block && state.queue.ready.is_empty() && state.run_next() {}
            std::mem::take(&mut state.queue.ready)
        };
        deliver(ready)
    }
}
