//! The pool's memory: mappings that are reserved at their largest size and cost memory only where they are used.
//!
//! 1. A mapping is anonymous and zeroed and never moves. It is unmapped only when the pool and the last read
//!    into it are gone.
//! 2. A frame's descriptor is constructed before any thread learns the frame's number ([`Frames::grow`]), and is never
//!    dropped.
//! 3. A free frame is on the free list, an owned frame in one [`super::guard::Owned`], a retired frame in neither.
//! 4. Only one thread touches a huge page for the first time: if several threads fault in it at once, the kernel
//!    charges a huge page for each of them to the memory cgroup until one is mapped. Huge pages are enabled only for
//!    the frames of the pool: beyond those, a huge page would take back memory that retired frames have returned to the
//!    system.
#![allow(unsafe_code)]

use super::frame::{Dirt, Frame, RETIRED};
use crate::counted::Mutex;
use crate::error::{Error, Result};
#[cfg(miri)]
use allocated::{advise, map, unmap};
use rustix::mm::Advice;
#[cfg(not(miri))]
use rustix::mm::{madvise as advise, munmap as unmap};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The pool size from which huge pages help: the pool has several of them.
const HUGE_FROM_BYTES: usize = 64 << 20;
const HUGE_BYTES: usize = 2 << 20;
/// The most memory that is touched ahead of its use, bytes.
const AHEAD_BYTES_MAX: usize = 64 << 20;

#[cfg(not(miri))]
fn map(len: usize) -> rustix::io::Result<*mut c_void> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }
}

/// Allocates instead of mapping: Miri does not know `NORESERVE`.
#[cfg(miri)]
mod allocated {
    use rustix::io::Result;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ffi::c_void;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 4096).expect("a length that can be allocated")
    }

    pub(super) fn map(len: usize) -> Result<*mut c_void> {
        // SAFETY: `len` is not 0.
        Ok(unsafe { alloc_zeroed(layout(len)) }.cast())
    }

    pub(super) unsafe fn unmap(base: *mut c_void, len: usize) -> Result<()> {
        // SAFETY: as for munmap, `base` and `len` are those of `map`.
        unsafe { dealloc(base.cast(), layout(len)) };
        Ok(())
    }

    pub(super) unsafe fn advise(_: *mut c_void, _: usize, _: rustix::mm::Advice) -> Result<()> {
        Ok(())
    }
}

/// Zeroed memory that the system provides when it is touched.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory; its users decide which thread may touch which part.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes.
    pub(super) fn reserve(len: usize, option: &'static str) -> Result<Self> {
        let refused = |why: String| Error::InvalidOption { name: option.into(), value: len.to_string(), why };
        let base = map(len.max(1))
            .map_err(|e| refused(format!("the system does not provide that much address space: {e}")))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| refused("the system gave address zero".into()))?;
        Ok(Self { base, len: len.max(1) })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Turns huge pages off, so that only what is touched costs memory.
    pub(super) fn use_small_pages(&self) {
        self.advise(0, self.len, Advice::LinuxNoHugepage);
    }

    /// Returns to the system the whole system pages that lie inside a part of the mapping. The contents of that part
    /// may be lost.
    pub(super) fn give_back(&self, offset: usize, len: usize) {
        let page = rustix::param::page_size();
        let (start, end) = (offset.next_multiple_of(page), (offset + len) / page * page);
        if start < end {
            self.advise(start, end - start, Advice::LinuxDontNeed);
        }
    }

    fn advise(&self, offset: usize, len: usize, advice: Advice) {
        assert!(offset + len <= self.len, "inside the mapping");
        // SAFETY: inside the mapping, as just checked.
        let start = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: the range is this mapping's; the advice given here changes only the contents of owned frames or of
        // free chunks of lists.
        let advised = unsafe { advise(start.cast::<c_void>(), len, advice) };
        // If the kernel refuses the advice (without huge pages, for example), that costs only memory or speed.
        advised.unwrap_or(());
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `reserve` with this length; nothing borrows from a value that is dropped.
        let unmapped = unsafe { unmap(self.base.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping is unmapped once");
    }
}

/// The frames: their bytes, their descriptors, and the free list.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Arc<Mapping>,
    known: Mapping,
    dirt: Mapping,
    page_bytes: usize,
    max: u32,
    /// Frames constructed so far.
    made: AtomicU32,
    /// Number of frames of the pool: frames from here on are retired or being retired.
    limit: AtomicU32,
    /// No frame from here on holds a page.
    span: AtomicU32,
    /// The memory of all frames below this one has been touched (4).
    touched: AtomicU32,
    touching: Mutex<()>,
    /// The next free frame + 1 at the last call of [`Frames::touch_ahead`].
    next_seen: AtomicU32,
    /// Top of the free list: a count of its changes (against ABA), and the frame + 1.
    free: AtomicU64,
    free_count: AtomicI64,
}

impl Frames {
    /// Reserves room for `max` frames, none of them in use yet.
    pub(super) fn reserve(page_bytes: usize, max: u32) -> Result<Self> {
        let option = "pool_size_max";
        let bytes = Mapping::reserve(page_bytes * max as usize, option)?;
        let huge = bytes.len >= HUGE_FROM_BYTES;
        Ok(Self {
            bytes: Arc::new(bytes),
            known: Mapping::reserve(size_of::<Frame>() * max as usize, option)?,
            dirt: Mapping::reserve(size_of::<Dirt>() * max as usize, option)?,
            page_bytes,
            max,
            made: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            span: AtomicU32::new(0),
            touched: AtomicU32::new(if huge { 0 } else { max }),
            touching: Mutex::default(),
            next_seen: AtomicU32::new(0),
            free: AtomicU64::new(0),
            free_count: AtomicI64::new(0),
        })
    }

    /// The most frames there can be.
    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// Frames of the pool.
    pub(super) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Acquire)
    }

    /// Memory of the descriptors of the constructed frames, bytes.
    pub(super) fn descriptor_bytes(&self) -> usize {
        self.made.load(Ordering::Acquire) as usize * (size_of::<Frame>() + size_of::<Dirt>())
    }

    /// Number of frames that may hold pages.
    pub(super) fn span(&self) -> u32 {
        self.span.load(Ordering::Acquire)
    }

    /// Number of frames whose memory may be in use: those within the limit, and those beyond it that are not retired
    /// yet.
    pub(super) fn in_use(&self) -> u32 {
        self.limit() + self.stay_beyond(self.limit())
    }

    /// Number of frames beyond `limit` that are not retired yet.
    pub(super) fn stay_beyond(&self, limit: u32) -> u32 {
        let stays = |f: &u32| self.get(*f).flags.load(Ordering::Acquire) & RETIRED == 0;
        (limit..self.span()).filter(stays).count() as u32
    }

    /// Free frames, approximately.
    pub(super) fn free_count(&self) -> usize {
        usize::try_from(self.free_count.load(Ordering::Relaxed)).unwrap_or(0)
    }

    #[inline]
    pub(super) fn get(&self, frame: u32) -> &Frame {
        assert!(frame < self.made.load(Ordering::Acquire), "frame {frame} exists");
        // SAFETY: inside the mapping, because `made` <= `max`.
        let known = unsafe { self.known.base.cast::<Frame>().add(frame as usize) };
        // SAFETY: constructed by `grow` before `made` was raised above it; mappings are aligned to pages, and a Frame
        // is only borrowed shared.
        unsafe { known.as_ref() }
    }

    #[inline]
    pub(super) fn dirt(&self, frame: u32) -> &Dirt {
        assert!(frame < self.max, "frame {frame} exists");
        // SAFETY: inside the mapping, as just checked.
        let dirt = unsafe { self.dirt.base.cast::<Dirt>().add(frame as usize) };
        // SAFETY: zeroes are atomic integers of value 0; mappings are aligned to pages, and a Dirt is only borrowed
        // shared.
        unsafe { dirt.as_ref() }
    }

    /// Returns the start of the frame's bytes; the protocol decides which thread may touch them.
    #[inline]
    pub(super) fn bytes(&self, frame: u32) -> NonNull<u8> {
        assert!(frame < self.max, "frame {frame} exists");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.bytes.base.add(frame as usize * self.page_bytes) }
    }

    /// Returns a reference to the mapping of the frames' bytes, which keeps it mapped.
    pub(super) fn keeper(&self) -> Arc<Mapping> {
        self.bytes.clone()
    }

    /// Grows the pool to `limit` frames, and constructs the frames that have never existed. One caller at a time.
    pub(super) fn grow(&self, limit: u32) {
        assert!(limit <= self.max, "the pool was reserved at {} frames", self.max);
        let made = self.made.load(Ordering::Acquire);
        for frame in made..limit {
            // SAFETY: inside the mapping, because limit <= max.
            let known = unsafe { self.known.base.cast::<Frame>().add(frame as usize) };
            // SAFETY: aligned memory of our own that no thread reads before `made` is raised.
            unsafe { known.write(Frame::new()) };
        }
        self.made.fetch_max(limit, Ordering::AcqRel);
        self.huge_below(limit);
        let before = self.limit.swap(limit, Ordering::AcqRel);
        self.span.fetch_max(limit, Ordering::AcqRel);
        for frame in (before..limit).rev() {
            if frame >= made || self.revive(frame) {
                self.push(frame);
            }
        }
    }

    /// Shrinks the pool to `limit` frames: retires the free frames beyond it at once, and the others when they are
    /// released.
    pub(super) fn shrink(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
        self.huge_below(limit);
        self.retire_free();
    }

    /// Retires the free frames beyond the limit.
    fn retire_free(&self) {
        let mut kept = Vec::new();
        while let Some(frame) = self.take_free() {
            kept.push(frame);
        }
        for frame in kept.into_iter().rev() {
            self.push(frame);
        }
    }

    /// Enables huge pages for the frames below `limit`, and disables them for the rest (4).
    fn huge_below(&self, limit: u32) {
        if self.bytes.len < HUGE_FROM_BYTES {
            return;
        }
        let unaligned = self.bytes.base.as_ptr() as usize % HUGE_BYTES;
        let end = (limit as usize * self.page_bytes + unaligned) / HUGE_BYTES * HUGE_BYTES;
        let end = end.saturating_sub(unaligned).min(self.bytes.len);
        self.bytes.advise(0, end, Advice::LinuxHugepage);
        self.bytes.advise(end, self.bytes.len - end, Advice::LinuxNoHugepage);
    }

    /// Touches the memory of all frames up to this one, one huge page at a time. (At first, free frames are handed out
    /// in ascending order.)
    #[cold]
    fn touch(&self, frame: u32) {
        let _one = self.touching.lock();
        let unaligned = self.bytes.base.as_ptr() as usize % HUGE_BYTES;
        loop {
            let touched = self.touched.load(Ordering::Acquire);
            if frame < touched {
                return;
            }
            let from = touched as usize * self.page_bytes;
            let end = (from + unaligned) / HUGE_BYTES * HUGE_BYTES + HUGE_BYTES - unaligned;
            let end = end.next_multiple_of(self.page_bytes).min(self.limit().max(frame + 1) as usize * self.page_bytes);
            // One write for each page of the system. No advice to populate the memory: other threads could not map
            // or unmap anything while the kernel follows it.
            for at in (from..end).step_by(rustix::param::page_size()) {
                // SAFETY: inside the mapping.
                let byte = unsafe { self.bytes.base.add(at) };
                // SAFETY: `pop` hands these frames out only after `touched` is stored below.
                unsafe { byte.write_volatile(0) };
            }
            self.touched.store((end / self.page_bytes) as u32, Ordering::Release);
        }
    }

    /// Touches the memory of the next free frames: four times as many as were taken since the last call. The kernel
    /// zeroes memory when it is first touched. The page cleaner calls this, so foreground threads seldom wait for the
    /// zeroing.
    pub(super) fn touch_ahead(&self) {
        let (mut touched, limit) = (self.touched.load(Ordering::Acquire), self.limit());
        let next = self.free.load(Ordering::Acquire) as u32;
        let handed_out = next.saturating_sub(self.next_seen.swap(next, Ordering::Relaxed));
        let ahead = (4 * handed_out as usize).min(AHEAD_BYTES_MAX / self.page_bytes) as u32;
        let end = next.saturating_add(ahead).min(limit);
        // One huge page at a time: a thread that needs a frame waits for one at most.
        while ahead > 0 && touched < end {
            self.touch(touched);
            touched = self.touched.load(Ordering::Acquire);
        }
    }

    /// Lowers the span to the limit if all frames from the limit on are retired. Returns whether they are.
    pub(super) fn settle(&self) -> bool {
        let limit = self.limit();
        let all_retired = || (limit..self.span()).all(|f| self.get(f).flags.load(Ordering::Acquire) & RETIRED != 0);
        let settled = all_retired() || {
            // A `release` that read the limit before it was lowered has made a frame beyond it free.
            self.retire_free();
            all_retired()
        };
        if settled {
            self.span.store(limit, Ordering::Release);
        }
        settled
    }

    /// Takes a free frame, which the caller then owns.
    pub(super) fn pop(&self) -> Option<u32> {
        let frame = self.take_free()?;
        if frame >= self.touched.load(Ordering::Acquire) {
            self.touch(frame);
        }
        Some(frame)
    }

    fn take_free(&self) -> Option<u32> {
        loop {
            let top = self.free.load(Ordering::Acquire);
            let frame = (top as u32).checked_sub(1)?;
            let next = self.get(frame).next_free.load(Ordering::Relaxed);
            let new = ((top >> 32).wrapping_add(1) << 32) | u64::from(next);
            if self.free.compare_exchange_weak(top, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            self.free_count.fetch_sub(1, Ordering::Relaxed);
            if frame < self.limit() {
                return Some(frame);
            }
            self.retire(frame);
        }
    }

    /// Releases a frame that the caller owns.
    pub(super) fn release(&self, frame: u32) {
        if frame < self.limit() { self.push(frame) } else { self.retire(frame) }
    }

    fn push(&self, frame: u32) {
        loop {
            let top = self.free.load(Ordering::Acquire);
            self.get(frame).next_free.store(top as u32, Ordering::Relaxed);
            let new = ((top >> 32).wrapping_add(1) << 32) | u64::from(frame + 1);
            if self.free.compare_exchange_weak(top, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                self.free_count.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Gives the memory of a frame beyond the limit back to the system.
    fn retire(&self, frame: u32) {
        self.bytes.give_back(frame as usize * self.page_bytes, self.page_bytes);
        self.get(frame).flags.fetch_or(RETIRED, Ordering::AcqRel);
        // The pool may have grown in between and found this frame not yet retired.
        if frame < self.limit() && self.revive(frame) {
            self.push(frame);
        }
    }

    /// Returns whether the frame was retired; if so, the caller now owns it.
    fn revive(&self, frame: u32) -> bool {
        self.get(frame).flags.fetch_and(!RETIRED, Ordering::AcqRel) & RETIRED != 0
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_touched_a_huge_page_at_a_time_by_what_is_handed_out() {
        let frames = Frames::reserve(4096, 1 << 15).unwrap();
        frames.grow(1 << 14);
        frames.shrink(1 << 13);
        assert_eq!(frames.touched.load(Ordering::Relaxed), 0, "a change of size uses no memory");
        assert_eq!(frames.pop(), Some(0));
        let touched = frames.touched.load(Ordering::Relaxed);
        assert!((1..=512).contains(&touched), "{touched}");
    }

    #[test]
    fn memory_is_touched_ahead_of_those_who_take_frames_and_not_beyond_the_pool() {
        let frames = Frames::reserve(4096, 1 << 15).unwrap();
        frames.grow(1 << 13);
        let touched = || frames.touched.load(Ordering::Relaxed);
        frames.touch_ahead();
        assert!(touched() <= 512, "none was taken: {}", touched());
        for _ in 0..600 {
            frames.pop().unwrap();
        }
        frames.touch_ahead();
        assert!((5 * 600..5 * 600 + 512).contains(&touched()), "{}", touched());
        let before = touched();
        frames.touch_ahead();
        assert_eq!(touched(), before, "none was taken since");
        for _ in 0..7000 {
            frames.pop().unwrap();
        }
        frames.touch_ahead();
        assert_eq!(touched(), 1 << 13);
    }

    /// A thread has read the limit before the pool shrank, and makes its frame free afterwards.
    #[test]
    fn a_frame_beyond_the_limit_that_became_free_is_retired() {
        let frames = Frames::reserve(4096, 16).unwrap();
        frames.grow(8);
        for _ in 0..8 {
            frames.pop().unwrap();
        }
        frames.shrink(4);
        frames.push(5);
        [4, 6, 7].into_iter().for_each(|frame| frames.release(frame));
        assert!(frames.settle());
        assert_eq!((frames.span(), frames.free_count()), (4, 0));
    }
}
