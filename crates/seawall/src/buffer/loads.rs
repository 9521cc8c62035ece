//! Reads in flight, and the token that decides which thread may take frames.

use super::frame::Parked;
use super::role::{Role, RoleGuard};
use crate::counted::Mutex;
use crate::format::PageId;
use parking_lot::Condvar;
use seawall_io::Pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Shards of waiting threads, by page number.
const SHARDS: usize = 64;
/// The most pages in flight at one time; the pool's size may lower it.
const PAGES_MAX: u32 = 512;
/// The largest read, bytes.
const RUN_BYTES: usize = 512 << 10;

/// Reads in flight.
#[derive(Debug)]
pub(super) struct Loads {
    waiting: Vec<(Mutex<()>, Condvar)>,
    /// Demand reads in flight: a thread waits for each from its beginning.
    pub(super) demanded: AtomicU32,
    /// Prefetches in flight.
    pub(super) prefetches: Prefetches,
}

impl Loads {
    pub(super) fn new(page_bytes: usize, frames_max: u32) -> Self {
        Self {
            waiting: (0..SHARDS).map(|_| Default::default()).collect(),
            demanded: AtomicU32::new(0),
            prefetches: Prefetches::new(page_bytes, frames_max),
        }
    }

    /// Returns whether a demand read is in flight.
    pub(super) fn are_demanded(&self) -> bool {
        self.demanded.load(Ordering::Relaxed) > 0
    }

    pub(super) fn shard(&self, page: PageId) -> &(Mutex<()>, Condvar) {
        &self.waiting[page.0 as usize % SHARDS]
    }

    /// Wakes the threads that wait for this page. The caller has already changed the page's entry or the list of
    /// prefetches.
    pub(super) fn wake(&self, page: PageId) {
        let (mutex, changed) = self.shard(page);
        // A thread that checked before the change holds the mutex until it waits.
        drop(mutex.lock());
        changed.notify_all();
    }
}

/// Decides which thread gets frames while frames are short.
#[derive(Debug, Default)]
pub(super) struct AllocationToken {
    role: Role,
    /// The number of the thread that has the token; 0 when none has it.
    holder: AtomicU64,
}

/// The token is held for as long as this value exists.
#[derive(Debug)]
pub(super) struct TokenGuard<'p> {
    token: &'p AllocationToken,
    _role: RoleGuard<'p>,
}

/// Returns a number unique to this thread, never 0.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

impl AllocationToken {
    /// Returns whether this thread may take a frame.
    pub(super) fn may_take(&self) -> bool {
        match self.holder.load(Ordering::Acquire) {
            0 => true,
            holder => holder == thread_number(),
        }
    }

    /// Takes the token, and waits for it if needed. Returns `None` if this thread has it already.
    pub(super) fn take(&self) -> Option<TokenGuard<'_>> {
        if self.holder.load(Ordering::Acquire) == thread_number() {
            return None;
        }
        let role = self.role.take();
        self.holder.store(thread_number(), Ordering::Release);
        Some(TokenGuard { token: self, _role: role })
    }
}

impl Drop for TokenGuard<'_> {
    fn drop(&mut self) {
        self.token.holder.store(0, Ordering::Release);
    }
}

/// Prefetches in flight, and their limits.
#[derive(Debug)]
pub(super) struct Prefetches {
    /// Reads that no thread has begun to finish.
    pub(super) list: Mutex<Vec<PrefetchRead>>,
    /// Length of the list, so that no thread takes the mutex only to find the list empty.
    pub(super) count: AtomicUsize,
    /// Pages in flight.
    pub(super) pages: AtomicUsize,
    /// The most pages in flight.
    pub(super) pages_max: usize,
    /// The most pages of one read.
    pub(super) run_pages: usize,
    /// Prefetchers that have requested something and have not ended.
    pub(super) prefetchers: Arc<AtomicU32>,
}

/// A read of contiguous pages in flight.
#[derive(Debug)]
pub(super) struct PrefetchRead {
    pub(super) first: PageId,
    /// The frames set aside for the pages.
    pub(super) frames: Vec<Parked>,
    pub(super) pending: Pending,
    /// The requester's count of its reads in flight.
    pub(super) owner: Option<Arc<AtomicU32>>,
}

impl Prefetches {
    pub(super) fn new(page_bytes: usize, frames_max: u32) -> Self {
        let pages_max = (frames_max / 8).clamp(1, PAGES_MAX) as usize;
        Self {
            list: Mutex::default(),
            count: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            pages_max,
            run_pages: (RUN_BYTES / page_bytes).clamp(1, pages_max.div_ceil(4)),
            prefetchers: Arc::default(),
        }
    }

    /// The most pages of one read.
    pub(super) fn run_pages(&self) -> usize {
        self.run_pages
    }

    /// Pages in flight.
    pub(super) fn pages(&self) -> usize {
        self.pages.load(Ordering::Acquire)
    }

    /// Reads in flight.
    pub(super) fn reads(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Takes all reads for which `fits` is true off the list. The caller must finish them.
    pub(super) fn take_all(&self, fits: impl Fn(&PrefetchRead) -> bool) -> Vec<PrefetchRead> {
        let mut list = self.list.lock();
        let mut taken = Vec::new();
        let mut at = 0;
        while at < list.len() {
            if fits(&list[at]) { taken.push(list.swap_remove(at)) } else { at += 1 }
        }
        self.count.store(list.len(), Ordering::Release);
        taken
    }
}

impl PrefetchRead {
    pub(super) fn holds(&self, page: PageId) -> bool {
        (self.first.0..self.first.0 + self.frames.len() as u32).contains(&page.0)
    }
}
