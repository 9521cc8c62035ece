//! The operating system's disk: names, synchronous I/O, and one of three backends for asynchronous I/O.
//!
//! 1. Synchronous calls run on the calling thread with positioned system calls: at low concurrency, a hand-off to
//!    another thread costs more than the write.
//! 2. `EINTR` and `EAGAIN` never leave this module.
//! 3. The backend is picked by trial at creation and never changes; the reason is kept.
//! 4. A directory that was synced once stays open ([`dirs`]): its later syncs need no descriptor.

mod choose;
mod dirs;
pub(crate) mod limits;
mod pool;
mod raw;
pub(crate) mod sys;
mod uring;
mod waiting;

use crate::buf::Arena;
use crate::class::Op;
use crate::disk::{
    Allocate, BackendInfo, Cached, Completion, Create, Disk, Handle, OpenHow, Request, SyncHow, Ticket, WriteHow,
};
use crate::error::{IoError, IoErrorKind, Result};
use crate::probe::atomic_write_bytes;
use crate::probe::device::untorn_write_bytes;
use crate::probe::finding::Finding;
use crate::shared::SharedMemory;
pub use choose::{Backend, BackendUnavailable, UnknownBackend};
pub use dirs::{create_dir, create_dir_all};
use rustix::fs::{Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The operating system's disk.
///
/// ```
/// use seawall_io::{AlignedBuf, Backend, Create, Disk, OpenHow, OsDisk, Request, WriteHow};
/// # let dir = tempfile::tempdir()?;
/// let disk = OsDisk::new(Backend::Auto, None)?;
/// let file = disk.open(&dir.path().join("blocks"), OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
/// let block = AlignedBuf::copy_of(&[7; 4096]);
/// let tickets = disk.submit(vec![Request::write(&file, 0, vec![block.into()], WriteHow::default())]);
/// disk.wait(&tickets[0]).result?;
/// assert_eq!(disk.len(&file)?, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OsDisk {
    queue: Queue,
    info: BackendInfo,
    dirs: dirs::Dirs,
}

#[derive(Debug)]
enum Queue {
    Uring(Box<uring::Uring>),
    Threads(pool::Pool),
    Sync,
}

impl OsDisk {
    /// Creates a disk with the requested backend, or with `Auto` the best one that works here: io_uring, else threads.
    /// `arena` is registered with the kernel if that is possible.
    ///
    /// # Errors
    /// [`BackendUnavailable`] when a backend requested by name does not work here, with the reason and what to do.
    ///
    /// ```
    /// use seawall_io::{Arena, Backend, Disk, OsDisk};
    /// let disk = OsDisk::new(Backend::Auto, Some(Arena::new(16384, 8)))?;
    /// assert!(["io_uring", "threads"].contains(&disk.backend().name), "{}", disk.backend().reason);
    /// # Ok::<(), seawall_io::BackendUnavailable>(())
    /// ```
    pub fn new(backend: Backend, arena: Option<Arc<Arena>>) -> Result<Self, BackendUnavailable> {
        choose::choose(backend, arena, false)
    }

    /// Like [`OsDisk::new`], but for one thread that submits and waits by itself, such as a measuring thread: io_uring
    /// then saves an interrupt for each completion. Other threads may use the disk too, but a request may complete only
    /// at the next call of the thread that submitted it.
    ///
    /// # Errors
    /// As [`OsDisk::new`].
    ///
    /// ```
    /// use seawall_io::{AlignedBuf, Backend, Disk, OpenHow, OsDisk, Request};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, [7; 4096])?;
    /// let disk = OsDisk::for_one_thread(Backend::Auto, None)?;
    /// let file = disk.open(&path, OpenHow::default())?;
    /// let tickets = disk.submit(vec![Request::read(&file, 0, AlignedBuf::zeroed(4096).into())]);
    /// while !tickets[0].is_done() {
    ///     disk.drive(false);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_one_thread(backend: Backend, arena: Option<Arc<Arena>>) -> Result<Self, BackendUnavailable> {
        choose::choose(backend, arena, true)
    }

    /// Creates a disk that completes every request on the calling thread; works everywhere.
    ///
    /// ```
    /// use seawall_io::{AlignedBuf, Disk, OpenHow, OsDisk, Request};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, [7; 4096])?;
    /// let disk = OsDisk::synchronous();
    /// let file = disk.open(&path, OpenHow::default())?;
    /// let tickets = disk.submit(vec![Request::read(&file, 0, AlignedBuf::zeroed(4096).into())]);
    /// assert!(tickets[0].is_done(), "as soon as it is submitted");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn synchronous() -> Self {
        choose::synchronous()
    }

    fn errno(op: Op, path: &Path, errno: Errno) -> IoError {
        IoError::os(op, path, errno.raw_os_error())
    }

    /// Locks a file, without waiting.
    fn flock(file: &Handle, how: FlockOperation) -> Result<()> {
        let fd = file.fd(Op::Open)?;
        match uninterrupted(|| match rustix::fs::flock(fd, how) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            answer => answer.map(|()| true),
        }) {
            Ok(true) => Ok(()),
            Ok(false) => Err(IoError::new(Op::Open, file.path(), IoErrorKind::Locked)),
            Err(e) => Err(Self::errno(Op::Open, file.path(), e)),
        }
    }
}

/// Repeats a system call while it fails with `EINTR` or `EAGAIN`.
fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => std::thread::yield_now(),
            answer => return answer,
        }
    }
}

impl Disk for OsDisk {
    fn backend(&self) -> &BackendInfo {
        &self.info
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Handle> {
        let mut flags = OFlags::CLOEXEC | if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags |= match how.create {
            Create::No => OFlags::empty(),
            Create::New => OFlags::CREATE | OFlags::EXCL,
            Create::IfMissing => OFlags::CREATE,
        };
        flags.set(OFlags::DIRECT, how.direct);
        flags.set(OFlags::DSYNC, how.dsync);
        let place = self.dirs.place(path);
        let open =
            |flags| uninterrupted(|| rustix::fs::openat(place.dir(), place.name, flags, Mode::from_raw_mode(0o640)));
        let opened = match place.owner_of_new().filter(|_| how.create != Create::No) {
            // Exclusively: a link that another user has put there must not make its target the directory's.
            // Without O_DIRECT at first: a file system that has none refuses such an open after it has created the
            // file.
            Some((user, group)) => match open(flags.difference(OFlags::DIRECT) | OFlags::CREATE | OFlags::EXCL) {
                Ok(fd) => {
                    // Where it cannot be changed, the file is root's.
                    rustix::fs::fchown(&fd, Some(user), Some(group)).unwrap_or_default();
                    let direct = if how.direct { rustix::fs::fcntl_setfl(&fd, OFlags::DIRECT) } else { Ok(()) };
                    direct.map(|()| fd)
                }
                Err(Errno::EXIST) if how.create == Create::IfMissing => open(flags.difference(OFlags::CREATE)),
                refused => refused,
            },
            None => open(flags),
        };
        opened.map(|fd| Handle::os(path, fd)).map_err(|e| Self::errno(Op::Open, path, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (self.dirs.place(from), self.dirs.place(to));
        rustix::fs::renameat(old.dir(), old.name, new.dir(), new.name).map_err(|e| Self::errno(Op::Directory, from, e))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (self.dirs.place(from), self.dirs.place(to));
        match rustix::fs::renameat_with(old.dir(), old.name, new.dir(), new.name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(Self::errno(Op::Directory, to, Errno::EXIST)),
            // The file system has no rename without replacement (NFS, some FUSE): check for the name first.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if rustix::fs::statat(new.dir(), new.name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                    return Err(Self::errno(Op::Directory, to, Errno::EXIST));
                }
                self.rename(from, to)
            }
            Err(e) => Err(Self::errno(Op::Directory, from, e)),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let place = self.dirs.place(path);
        rustix::fs::unlinkat(place.dir(), place.name, AtFlags::empty()).map_err(|e| Self::errno(Op::Directory, path, e))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let dir = self.dirs.open(path).map_err(|e| Self::errno(Op::Open, path, e))?;
        match uninterrupted(|| rustix::fs::fsync(&*dir)) {
            // A file system that cannot sync directories says so with EINVAL; nothing more can be done there.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(e) => Err(Self::errno(Op::Sync, path, e)),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let failed = |e| Self::errno(Op::Directory, path, e);
        let dir = match self.dirs.pinned(path) {
            // A descriptor of its own, with its own position in the directory.
            Some(dir) => rustix::fs::Dir::read_from(&*dir),
            None => dirs::open_dir(path).and_then(|dir| rustix::fs::Dir::read_from(&*dir)),
        };
        let mut names = Vec::new();
        for entry in dir.map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(path.join(OsStr::from_bytes(name)));
            }
        }
        names.sort();
        Ok(names)
    }

    fn pin(&self, dir: &Path) -> Result<()> {
        self.dirs.pin(dir).map_err(|e| Self::errno(Op::Open, dir, e))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        let stat = match self.dirs.pinned(path) {
            Some(dir) => rustix::fs::fstatvfs(&*dir),
            None => rustix::fs::statvfs(path),
        };
        let stat = stat.map_err(|e| Self::errno(Op::Inspect, path, e))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn untorn_write_bytes(&self, path: &Path) -> Finding<u32> {
        untorn_write_bytes(path)
    }

    fn atomic_write_bytes(&self, path: &Path) -> Finding<u32> {
        atomic_write_bytes(path)
    }

    fn map_shared(&self, file: &Handle, len: usize) -> Result<SharedMemory> {
        const TMPFS_EXT4_XFS: [u64; 3] = [0x0102_1994, 0xef53, 0x5846_5342];
        let failed = |e| Self::errno(Op::Inspect, file.path(), e);
        let fd = file.fd(Op::Inspect)?;
        // (The type of f_type differs by architecture.)
        #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
        let kind = rustix::fs::fstatfs(fd).map_err(failed)?.f_type as u64 & 0xffff_ffff;
        if !TMPFS_EXT4_XFS.contains(&kind) || self.len(file)? < len as u64 {
            return Err(failed(Errno::OPNOTSUPP));
        }
        sys::map_shared(fd, len).map_err(failed)
    }

    fn lock(&self, file: &Handle) -> Result<()> {
        Self::flock(file, FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_shared(&self, file: &Handle) -> Result<()> {
        Self::flock(file, FlockOperation::NonBlockingLockShared)
    }

    fn len(&self, file: &Handle) -> Result<u64> {
        let stat = rustix::fs::fstat(file.fd(Op::Inspect)?).map_err(|e| Self::errno(Op::Inspect, file.path(), e))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn set_len(&self, file: &Handle, len: u64) -> Result<()> {
        let fd = file.fd(Op::Grow)?;
        uninterrupted(|| rustix::fs::ftruncate(fd, len)).map_err(|e| Self::errno(Op::Grow, file.path(), e).at(0, len))
    }

    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let fd = file.fd(Op::Grow)?;
        let flags = match how {
            Allocate::Unwritten => FallocateFlags::empty(),
            Allocate::KeepSize => FallocateFlags::KEEP_SIZE,
            Allocate::WriteZeroes => FallocateFlags::from_bits_retain(sys::FALLOC_FL_WRITE_ZEROES),
        };
        uninterrupted(|| rustix::fs::fallocate(fd, flags, offset, len))
            .map_err(|e| Self::errno(Op::Grow, file.path(), e).at(offset, len))
    }

    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let fd = file.fd(Op::Read)?;
        uninterrupted(|| rustix::io::pread(fd, &mut *buf, offset))
            .map_err(|e| Self::errno(Op::Read, file.path(), e).at(offset, buf.len() as u64))
    }

    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> Result<usize> {
        let op = if how.dsync { Op::DurableWrite } else { Op::Write };
        let fd = file.fd(op)?;
        uninterrupted(|| raw::write(fd, offset, bufs, how))
            .map_err(|e| Self::errno(op, file.path(), e).at(offset, bufs.iter().map(|b| b.len() as u64).sum()))
    }

    fn sync(&self, file: &Handle, how: SyncHow) -> Result<()> {
        let fd = file.fd(Op::Sync)?;
        uninterrupted(|| raw::sync(fd, how)).map_err(|e| Self::errno(Op::Sync, file.path(), e))
    }

    fn cached(&self, file: &Handle, len: u64) -> Result<Cached> {
        let fd = file.fd(Op::Inspect)?;
        if len == 0 {
            return Ok(Cached { dirty: Some(0), writeback: Some(0), evicted: Some(0), resident: 0 });
        }
        let page = rustix::param::page_size() as u64;
        match uninterrupted(|| sys::cachestat(fd, 0, len)) {
            Ok(stat) => Ok(Cached {
                resident: stat.cached * page,
                dirty: Some(stat.dirty * page),
                writeback: Some(stat.writeback * page),
                evicted: Some(stat.evicted * page),
            }),
            // Since Linux 5.2, mincore answers only a process that owns the file or may write it. To others it reports
            // every page as resident, which is no answer.
            Err(Errno::NOSYS | Errno::OPNOTSUPP) if !raw::may_write(fd) => {
                Err(Self::errno(Op::Inspect, file.path(), Errno::PERM))
            }
            Err(Errno::NOSYS | Errno::OPNOTSUPP) => uninterrupted(|| sys::mincore_pages(fd, len))
                .map(|pages| Cached { resident: pages * page, ..Cached::default() })
                .map_err(|e| Self::errno(Op::Inspect, file.path(), e)),
            Err(e) => Err(Self::errno(Op::Inspect, file.path(), e)),
        }
    }

    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> Result<()> {
        rustix::fs::fadvise(file.fd(Op::Inspect)?, offset, NonZeroU64::new(len), Advice::DontNeed)
            .map_err(|e| Self::errno(Op::Inspect, file.path(), e).at(offset, len))
    }

    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        match &self.queue {
            Queue::Uring(ring) => ring.submit(batch),
            Queue::Threads(pool) => pool.submit(batch),
            Queue::Sync => batch
                .into_iter()
                .map(|request| {
                    let (ticket, completer) = Ticket::new();
                    completer.complete(raw::run(request));
                    ticket
                })
                .collect(),
        }
    }

    fn drive(&self, block: bool) -> usize {
        match &self.queue {
            Queue::Uring(ring) => ring.drive(block),
            Queue::Threads(pool) => pool.drive(block),
            Queue::Sync => 0,
        }
    }

    fn wait(&self, ticket: &Ticket) -> Completion {
        match &self.queue {
            Queue::Uring(ring) => ring.wait(ticket),
            Queue::Threads(pool) => pool.wait(ticket),
            Queue::Sync => {
                // Complete before `submit` returned it.
                ticket.take().expect("a completion is taken once")
            }
        }
    }
}

#[cfg(test)]
#[path = "../../tests/common/skip.rs"]
mod skip;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mincore_agrees_with_cachestat() {
        let dir = tempfile::tempdir_in(std::env::current_dir().expect("a directory")).expect("a directory");
        let path = dir.path().join("f");
        let page = rustix::param::page_size();
        let len = (100 * page + 17) as u64;
        std::fs::write(&path, vec![1; len as usize]).expect("a file");
        let disk = OsDisk::synchronous();
        let file = disk.open(&path, OpenHow { write: true, ..OpenHow::default() }).expect("opens");
        let same = |pages: u64| {
            let fd = file.fd(Op::Inspect).expect("a descriptor");
            let counted = sys::mincore_pages(fd, len).expect("mincore");
            assert_eq!(counted, pages);
            match sys::cachestat(fd, 0, len) {
                Ok(stat) => assert_eq!(stat.cached, pages),
                Err(e) => skip::skipped(format_args!("cachestat: {e}")),
            }
        };
        same(101);
        disk.sync(&file, SyncHow::Data).expect("a sync");
        disk.drop_cache(&file, 0, 0).expect("a drop");
        if disk.cached(&file, len).expect("cached").resident > 0 {
            return skip::skipped("this file system keeps its pages");
        }
        for at in [0, 7, 50, 99] {
            let one = vec![2; page];
            disk.write_at(&file, (at * page) as u64, &[IoSlice::new(&one)], WriteHow::default()).expect("a write");
        }
        same(4);
    }

    #[test]
    fn mincore_estimates_a_large_file() {
        let dir = tempfile::tempdir_in(std::env::current_dir().expect("a directory")).expect("a directory");
        let path = dir.path().join("f");
        // 320 windows, of which 256 are looked at.
        let len = 5 << 30;
        std::fs::File::create(&path).and_then(|file| file.set_len(len)).expect("a sparse file");
        let disk = OsDisk::synchronous();
        let file = disk.open(&path, OpenHow { write: true, ..OpenHow::default() }).expect("opens");
        let counted = || sys::mincore_pages(file.fd(Op::Inspect).expect("a descriptor"), len).expect("mincore");
        assert_eq!(counted(), 0);
        let mut window = vec![0; 16 << 20];
        assert_eq!(disk.read_at(&file, 0, &mut window).expect("a read"), window.len());
        let pages = (window.len() / rustix::param::page_size()) as u64;
        // Read-ahead may have gone on.
        assert!((pages..2 * pages).contains(&counted()), "{} of {pages}", counted());
    }
}
