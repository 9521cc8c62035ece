//! Memory for direct I/O.
//!
//! 1. An [`AlignedBuf`] is aligned to 4096 bytes, zeroed, and freed by its owner.
//! 2. An [`IoBuf`] is exclusive: while a request owns it, no other code reads or writes its bytes, and its
//!    memory outlives the request. For [lent](IoBuf::lent) memory the lender promises exclusivity, and the
//!    buffer keeps the memory alive.
//! 3. A slot of an [`Arena`] belongs to one `IoBuf` at a time and is returned on drop. The arena lives until
//!    all slots are back.
//!
//! This is one of the modules in which `unsafe` is allowed.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Alignment of every buffer, bytes: enough for direct I/O on any device with blocks of up to 4 KiB.
pub const BUFFER_ALIGN: usize = 4096;

/// Zeroed memory aligned to [`BUFFER_ALIGN`].
///
/// ```
/// use seawall_io::AlignedBuf;
/// let mut block = AlignedBuf::zeroed(4096);
/// block[0] = 7;
/// assert_eq!(block.as_ptr() as usize % 4096, 0);
/// assert_eq!(block.len(), 4096);
/// ```
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an AlignedBuf owns its memory exclusively; moving or sharing it between threads is as safe as for a
// Vec<u8>.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared references give only shared access to the bytes.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates `len` zero bytes.
    ///
    /// # Panics
    /// When `len` is 0 or exceeds `isize::MAX`.
    ///
    /// ```
    /// assert!(seawall_io::AlignedBuf::zeroed(8192).iter().all(|&b| b == 0));
    /// ```
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has a non-zero size, checked in `layout`.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, len }
    }

    /// Copies `bytes` into an aligned buffer.
    ///
    /// # Panics
    /// When `bytes` is empty.
    ///
    /// ```
    /// let page = seawall_io::AlignedBuf::copy_of(b"page");
    /// assert_eq!(&page[..], b"page");
    /// ```
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    fn layout(len: usize) -> Layout {
        assert!(len > 0, "an empty buffer cannot be aligned");
        Layout::from_size_align(len, BUFFER_ALIGN).expect("a buffer is smaller than isize::MAX")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this very layout and is freed once, here.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes that live as long as self, and &self excludes
        // writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and &mut self excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

/// Memory that a request owns: an [`AlignedBuf`], a slot of an [`Arena`], or memory lent by its owner.
///
/// ```
/// use seawall_io::{AlignedBuf, Arena, IoBuf};
/// let arena = Arena::new(4096, 1);
/// let owned: IoBuf = AlignedBuf::copy_of(&[7; 4096]).into();
/// let mut slot = arena.claim().unwrap();
/// slot.copy_from_slice(&owned);
/// assert!(slot.is_from(&arena) && !owned.is_from(&arena));
/// ```
#[derive(Debug)]
pub struct IoBuf(Memory);

#[derive(Debug)]
enum Memory {
    Owned(AlignedBuf),
    Slot(ArenaSlot),
    Lent(Lent),
}

/// Memory that belongs to another owner and is lent to one buffer.
struct Lent {
    start: NonNull<u8>,
    len: usize,
    _keeper: Arc<dyn Any + Send + Sync>,
}

// SAFETY: `IoBuf::lent` promises that no other code touches the bytes: moving or sharing it is as safe as for
// a Vec<u8>.
unsafe impl Send for Lent {}
// SAFETY: as above; shared references give only shared access to the bytes.
unsafe impl Sync for Lent {}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes)", self.len)
    }
}

impl IoBuf {
    /// Wraps `len` bytes from `start`, in memory that `keeper` keeps alive. A read into the buffer places the
    /// bytes at their final address, without a copy.
    ///
    /// # Safety
    /// The bytes are initialised, and `keeper` keeps them allocated. Until the buffer is dropped, they are
    /// read and written only through it, even after the buffer was moved to another owner.
    ///
    /// # Panics
    /// When `start` is not aligned to [`BUFFER_ALIGN`], or `len` is 0.
    #[must_use]
    pub unsafe fn lent(start: NonNull<u8>, len: usize, keeper: Arc<dyn Any + Send + Sync>) -> Self {
        assert!(start.as_ptr() as usize % BUFFER_ALIGN == 0 && len > 0, "memory for direct I/O");
        Self(Memory::Lent(Lent { start, len, _keeper: keeper }))
    }

    /// Returns the length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.deref().len()
    }

    /// Returns false: a buffer has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the memory belongs to `arena`, so that I/O can use the arena's registration with the
    /// kernel.
    #[must_use]
    pub fn is_from(&self, arena: &Arena) -> bool {
        matches!(&self.0, Memory::Slot(slot) if std::ptr::eq(Arc::as_ptr(&slot.arena), arena))
    }
}

impl From<AlignedBuf> for IoBuf {
    fn from(buf: AlignedBuf) -> Self {
        Self(Memory::Owned(buf))
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Owned(buf) => buf,
            Memory::Slot(slot) => slot.bytes(),
            // SAFETY: initialised, alive and untouched by others, by the promise of `lent`.
            Memory::Lent(lent) => unsafe { std::slice::from_raw_parts(lent.start.as_ptr(), lent.len) },
        }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Owned(buf) => buf,
            Memory::Slot(slot) => slot.bytes_mut(),
            // SAFETY: as in `deref`, and &mut self excludes other references through this.
            Memory::Lent(lent) => unsafe { std::slice::from_raw_parts_mut(lent.start.as_ptr(), lent.len) },
        }
    }
}

/// A contiguous block of memory cut into equal slots. A backend can register it with the kernel once.
///
/// ```
/// use seawall_io::Arena;
/// let arena = Arena::new(4096, 2);
/// let (a, b) = (arena.claim().unwrap(), arena.claim().unwrap());
/// assert!(arena.claim().is_none());
/// drop(a);
/// assert_eq!(arena.claim().unwrap().len(), 4096);
/// # drop(b);
/// ```
#[derive(Debug)]
pub struct Arena {
    memory: NonNullBytes,
    slot_bytes: usize,
    free: Mutex<Vec<u32>>,
    claimed: AtomicU64,
}

/// The arena's memory: never borrowed whole as a Rust reference once slots exist.
#[derive(Debug)]
struct NonNullBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is only used through slots, each of which is exclusive, and freed once in Arena::drop.
unsafe impl Send for NonNullBytes {}
// SAFETY: as above.
unsafe impl Sync for NonNullBytes {}

impl Arena {
    /// Allocates `slots` buffers of `slot_bytes` each; `slot_bytes` is rounded up to [`BUFFER_ALIGN`].
    ///
    /// # Panics
    /// When either is 0 or the total size exceeds `isize::MAX`.
    ///
    /// ```
    /// let arena = seawall_io::Arena::new(1000, 1);
    /// assert_eq!(arena.claim().unwrap().len(), 4096, "rounded up");
    /// ```
    #[must_use]
    pub fn new(slot_bytes: usize, slots: u32) -> Arc<Self> {
        let slot_bytes = slot_bytes.next_multiple_of(BUFFER_ALIGN);
        let len = slot_bytes.checked_mul(slots as usize).expect("an arena is smaller than isize::MAX");
        let whole = AlignedBuf::zeroed(len);
        let memory = NonNullBytes { start: whole.start, len };
        std::mem::forget(whole);
        Arc::new(Self { memory, slot_bytes, free: Mutex::new((0..slots).rev().collect()), claimed: AtomicU64::new(0) })
    }

    /// Claims a free slot; returns `None` if all are claimed. The slot still holds the bytes of its last
    /// owner (zeroes at first).
    #[must_use]
    pub fn claim(self: &Arc<Self>) -> Option<IoBuf> {
        let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        self.claimed.fetch_add(1, Ordering::Relaxed);
        Some(IoBuf(Memory::Slot(ArenaSlot { arena: self.clone(), index })))
    }

    /// Returns the number of slots claimed so far, for statistics.
    #[must_use]
    pub fn claims(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Returns the start and length of the arena's memory, for registration with the kernel.
    pub(crate) fn extent(&self) -> (*mut u8, usize) {
        (self.memory.start.as_ptr(), self.memory.len)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Every slot holds an Arc of the arena, so none is left: the memory can be freed.
        drop(AlignedBuf { start: self.memory.start, len: self.memory.len });
    }
}

#[derive(Debug)]
struct ArenaSlot {
    arena: Arc<Arena>,
    index: u32,
}

impl ArenaSlot {
    fn start(&self) -> *mut u8 {
        // SAFETY: `index` is below the number of slots, so the result stays inside the arena's allocation.
        unsafe { self.arena.memory.start.as_ptr().add(self.index as usize * self.arena.slot_bytes) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the slot's bytes are initialised (zeroed at creation), inside the arena, kept alive by
        // `arena`, and owned by this slot alone until its drop returns the index.
        unsafe { std::slice::from_raw_parts(self.start(), self.arena.slot_bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and &mut self excludes other references to the slot.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.arena.slot_bytes) }
    }
}

impl Drop for ArenaSlot {
    fn drop(&mut self) {
        self.arena.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_come_back() {
        let arena = Arena::new(1000, 3);
        let mut slots: Vec<IoBuf> = std::iter::from_fn(|| arena.claim()).collect();
        assert_eq!(slots.len(), 3);
        for (i, slot) in slots.iter_mut().enumerate() {
            assert_eq!(slot.len(), 4096);
            slot.fill(i as u8 + 1);
        }
        for (i, slot) in slots.iter().enumerate() {
            assert!(slot.iter().all(|&b| b == i as u8 + 1));
            assert!(slot.is_from(&arena));
        }
        drop(slots);
        assert!(arena.claim().is_some());
        assert_eq!(arena.claims(), 4);
    }

    #[test]
    fn lent_memory_is_written_in_place_and_kept() {
        let keeper: Arc<AlignedBuf> = AlignedBuf::zeroed(8192).into();
        // SAFETY: the second half of the buffer.
        let start = unsafe { keeper.start.add(4096) };
        // SAFETY: initialised, kept by its Arc, and read again only after the buffer is gone.
        let mut lent = unsafe { IoBuf::lent(start, 4096, keeper.clone()) };
        lent.fill(7);
        assert_eq!((lent.len(), lent[4095], Arc::strong_count(&keeper)), (4096, 7, 2));
        drop(lent);
        assert!(keeper[..4096].iter().all(|&b| b == 0) && keeper[4096..].iter().all(|&b| b == 7));
    }

    #[test]
    fn a_slot_keeps_its_arena_alive() {
        let arena = Arena::new(4096, 1);
        let mut slot = arena.claim().unwrap();
        drop(arena);
        slot.fill(9);
        assert!(slot.iter().all(|&b| b == 9));
    }
}
