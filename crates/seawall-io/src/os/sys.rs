//! System calls that no library wraps, and the raw memory they need. This is one of the modules in which
//! `unsafe` is allowed.
#![allow(unsafe_code)]

use crate::shared::SharedMemory;
use rustix::fd::{AsRawFd as _, BorrowedFd};
use rustix::io::Errno;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `RWF_DONTCACHE` (Linux 6.14).
pub(crate) const RWF_DONTCACHE: u32 = 0x80;
/// `RWF_ATOMIC` (Linux 6.11).
pub(crate) const RWF_ATOMIC: u32 = 0x40;
/// `FALLOC_FL_WRITE_ZEROES` (Linux 6.17).
pub(crate) const FALLOC_FL_WRITE_ZEROES: u32 = 0x80;
/// `STATX_WRITE_ATOMIC` (Linux 6.11).
pub(crate) const STATX_WRITE_ATOMIC: u32 = 0x1_0000;
/// `cachestat(2)` has the same number on every architecture (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;

/// Number of forks by the C library from the process in which counting began to this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Number of `InUse` values in this process, and whether there were any when it was forked.
pub(crate) static IN_USE: AtomicU64 = AtomicU64::new(0);
pub(crate) static FORKED_IN_USE: AtomicBool = AtomicBool::new(false);

/// Returns the number of forks from the process in which counting began to this one.
#[inline]
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Starts counting forks.
pub(crate) fn count_forks() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
        if IN_USE.load(Ordering::Relaxed) > 0 {
            FORKED_IN_USE.store(true, Ordering::Relaxed);
        }
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler changes atomics and nothing else, which is allowed in a child of a process with
        // threads, and it is never unloaded.
        let answer = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(answer, 0, "no memory for a handler of fork");
    });
}

#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// What `cachestat(2)` reports, in pages.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CacheStat {
    pub(crate) cached: u64,
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
    pub(crate) evicted: u64,
    pub(crate) recently_evicted: u64,
}

/// Calls `cachestat(2)` for `len` bytes from `offset`; `len` 0 means to the end.
pub(crate) fn cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<CacheStat, Errno> {
    let range = Range { offset, len };
    let mut stat = CacheStat::default();
    // SAFETY: both pointers are to live, properly laid out structs for the duration of the call; the kernel
    // writes only `stat`.
    let answer = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut stat, 0) };
    if answer == 0 { Ok(stat) } else { Err(last_errno()) }
}

/// How much of a file [`mincore_pages`] looks at, bytes: this many pages take some 50 ms.
const LOOKED_AT_MAX: u64 = 4 << 30;
/// A window at a time, so that a huge file needs little address space and memory.
const WINDOW: u64 = 16 << 20;

/// Counts the resident pages of the first `len` bytes with `mincore(2)`. For more than [`LOOKED_AT_MAX`] it is an
/// estimate from windows spread evenly over them.
pub(crate) fn mincore_pages(fd: BorrowedFd<'_>, len: u64) -> Result<u64, Errno> {
    let page = rustix::param::page_size() as u64;
    let (windows, sampled) = (len.div_ceil(WINDOW), len > LOOKED_AT_MAX);
    let looked_at = windows.min(LOOKED_AT_MAX / WINDOW);
    let (mut resident, mut bytes) = (0, 0);
    for nth in 0..looked_at {
        let offset = nth * windows / looked_at * WINDOW;
        let window = WINDOW.min(len - offset);
        resident += mincore_window(fd, offset, window)?;
        bytes += window;
    }
    let scaled = (resident as f64 * (len as f64 / bytes.max(1) as f64)).round() as u64;
    Ok(if sampled { scaled.min(len.div_ceil(page)) } else { resident })
}

fn mincore_window(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let len = usize::try_from(len).map_err(|_too_large| Errno::OVERFLOW)?;
    let at = libc::off_t::try_from(offset).map_err(|_too_large| Errno::OVERFLOW)?;
    // SAFETY: a fresh shared mapping at an address of the kernel's choice; never dereferenced.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_SHARED, fd.as_raw_fd(), at) };
    if map == libc::MAP_FAILED {
        return Err(last_errno());
    }
    let mut pages = vec![0u8; len.div_ceil(rustix::param::page_size())];
    // SAFETY: `map` covers `len` bytes, and `pages` has one byte for each of its pages.
    let answer = unsafe { libc::mincore(map, len, pages.as_mut_ptr()) };
    let failed = (answer != 0).then(last_errno);
    // SAFETY: exactly the mapping made above, unmapped once.
    let unmapped = unsafe { libc::munmap(map, len) };
    debug_assert_eq!(unmapped, 0, "munmap of our own mapping");
    failed.map_or_else(|| Ok(pages.iter().filter(|&&p| p & 1 == 1).count() as u64), Err)
}

/// Maps the first `len` bytes of the file as shared memory.
pub(crate) fn map_shared(fd: BorrowedFd<'_>, len: usize) -> Result<SharedMemory, Errno> {
    struct Map(*mut libc::c_void, usize);
    // SAFETY: an address and a length, which only `drop` uses.
    unsafe impl Send for Map {}
    // SAFETY: as above.
    unsafe impl Sync for Map {}
    impl Drop for Map {
        fn drop(&mut self) {
            // SAFETY: exactly the mapping made below, unmapped once.
            let unmapped = unsafe { libc::munmap(self.0, self.1) };
            debug_assert_eq!(unmapped, 0, "munmap of our own mapping");
        }
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh shared mapping at an address of the kernel's choice.
    let map = unsafe {
        libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), 0)
    };
    if map == libc::MAP_FAILED {
        return Err(last_errno());
    }
    let keeper = Box::new(Map(map, len));
    let start = std::ptr::NonNull::new(map.cast()).ok_or(Errno::FAULT)?;
    // SAFETY: `len` bytes from `start` are mapped for reading and writing until `keeper` is dropped.
    Ok(unsafe { SharedMemory::new(start, len, keeper) })
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
