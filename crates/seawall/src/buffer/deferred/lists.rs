//! The memory of lists: chunks of 64 bytes in blocks of 4 KiB, in a mapping of its own.
//!
//! ```text
//!   block:  GONE ──no other has a free chunk──> HELD, with a bit for each free chunk
//!            ^                                    │
//!            └──────── trim: all are free ────────┘
//!
//!   list:   first chunk [ Head | records ] ──> [ next | records ] ──> [ next | records ]
//! ```
//!
//! 1. A chunk is free, or part of one [`List`]. Only the holder of that list touches the chunk's bytes. Chunks are
//!    taken and freed under the mutex.
//! 2. A chunk comes from the lowest held block that has a free one. Another block is taken only when all held blocks
//!    are full, and high blocks become empty over time. So lists never hold more memory than the most that they have
//!    used since the last trim, or than that trim left. (A general-purpose allocator wasted up to a third of the memory
//!    here.)
//! 3. While [`Lists::trim`] gives a block back to the system, the block counts as full, so that none of its chunks is
//!    handed out.
#![allow(unsafe_code)]

use crate::buffer::arena::Mapping;
use crate::counted::Mutex;
use crate::error::Result;
use crate::format::Lsn;
use std::mem::size_of;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

const CHUNK: usize = 64;
/// Chunks of a block: the bits of a word.
const CHUNKS: usize = 64;
const BLOCK: usize = CHUNK * CHUNKS;
/// A block without a used chunk.
const FREE: u64 = u64::MAX;
/// Bytes of a record in a list in addition to its body: its tag and the length of the body.
const RECORD_BYTES: usize = 1 + size_of::<u16>();
/// Memory that a list takes outside its chunks, bytes (computed, not measured): its entry in the set of `Away` (16
/// bytes in nodes that are two thirds full, plus the allocator's overhead), and its entry in the map of `Away` (9 bytes
/// in tables that are 44% to 88% full and grow by copying).
const ENTRY_BYTES: usize = 56;

/// The records that a page on the disk lacks. Must be freed with [`Lists::free`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::buffer) struct List(NonZeroU32);

impl List {
    /// Returns the number of the first chunk, counted from 1.
    pub(super) fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns the list with that number; the caller is now its holder. `None` for 0.
    pub(super) fn of(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }
}

/// The beginning of the first chunk of a list.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Head {
    /// Start of the oldest record.
    pub(super) since: u64,
    /// The page's LSN before the oldest record.
    pub(super) base: Lsn,
    /// The page's LSN after the newest record.
    pub(super) end: Lsn,
    next: u32,
    last: u32,
    /// Bytes of the records.
    len: u16,
    pub(super) records: u16,
    /// The page has changed since it was last brought back: without the list, the next eviction would write it.
    pub(super) changed: bool,
    /// Explicit padding: no byte of a chunk is undefined.
    unused: [u8; 3],
}

/// The offset of the records in a first chunk (`FIRST`) and in other chunks (`NEXT`).
const FIRST: usize = size_of::<Head>();
const _: () = assert!(FIRST == 40, "without padding");
const NEXT: usize = size_of::<u32>();

impl Head {
    /// Returns the free bytes of the last chunk.
    fn room(&self) -> usize {
        let len = usize::from(self.len);
        match len.checked_sub(CHUNK - FIRST) {
            None => CHUNK - FIRST - len,
            Some(beyond) => beyond.next_multiple_of(CHUNK - NEXT) - beyond,
        }
    }
}

/// The lists of a pool.
#[derive(Debug)]
pub(super) struct Lists {
    memory: Mapping,
    blocks: Mutex<Blocks>,
    /// Chunks in use, blocks held, and held blocks without a used chunk.
    used: AtomicUsize,
    held: AtomicUsize,
    empty: AtomicUsize,
    lists: AtomicUsize,
}

#[derive(Debug, Default)]
struct Blocks {
    /// The free chunks of each block, by bit.
    free: Vec<u64>,
    /// Held blocks with a free chunk, by bit; none below word `from`.
    some: Vec<u64>,
    from: usize,
    /// Blocks that were given back.
    gone: Vec<u32>,
}

/// Returns the bit of a block in its word of `some`.
fn bit_of(block: usize) -> u64 {
    1 << (block % 64)
}

impl Blocks {
    fn note_free(&mut self, block: usize) {
        if self.some.len() <= block / 64 {
            self.some.resize(block / 64 + 1, 0);
        }
        self.some[block / 64] |= bit_of(block);
        self.from = self.from.min(block / 64);
    }

    /// Returns the lowest held block with a free chunk.
    fn lowest(&mut self) -> Option<usize> {
        while let Some(&word) = self.some.get(self.from) {
            if word != 0 {
                return Some(self.from * 64 + word.trailing_zeros() as usize);
            }
            self.from += 1;
        }
        None
    }
}

impl Lists {
    /// Reserves room for lists of at most `bytes`: only address space.
    pub(super) fn reserve(bytes: u64) -> Result<Self> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(u32::MAX as usize * CHUNK) / BLOCK * BLOCK;
        let lists = Self {
            memory: Mapping::reserve(bytes, "pool_size_max")?,
            blocks: Mutex::default(),
            used: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            empty: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
        };
        lists.memory.use_small_pages();
        Ok(lists)
    }

    /// Returns the memory that lists use, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed) * CHUNK + self.entries()
    }

    /// Returns the memory that lists hold, bytes: used, or free in their blocks.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed) * BLOCK + self.entries()
    }

    /// Returns whether [`Lists::trim`] would give anything back.
    pub(super) fn has_empty_blocks(&self) -> bool {
        self.empty.load(Ordering::Relaxed) > 0
    }

    fn entries(&self) -> usize {
        self.lists.load(Ordering::Relaxed) * ENTRY_BYTES
    }

    /// Makes a list without records; `None` if there is no memory left.
    pub(super) fn begin(&self, since: u64, base: Lsn) -> Option<List> {
        let mut list = None;
        self.take(1, |chunk| list = Some(List(chunk)));
        let list = list?;
        // SAFETY: the chunk belongs to the caller (1), and is aligned to 64 bytes.
        unsafe { self.head_of(&list).write(Head { since, base, end: base, last: list.0.get(), ..Head::default() }) };
        self.lists.fetch_add(1, Ordering::Relaxed);
        Some(list)
    }

    pub(super) fn head(&self, list: &List) -> Head {
        // SAFETY: written by `begin`; the chunk belongs to the holder of the list (1).
        unsafe { self.head_of(list).read() }
    }

    fn set_head(&self, list: &mut List, head: Head) {
        // SAFETY: as above.
        unsafe { self.head_of(list).write(head) };
    }

    /// Notes that the page was brought back. Returns whether it had changed since the last time.
    pub(super) fn brought_back(&self, list: &mut List) -> bool {
        let head = self.head(list);
        self.set_head(list, Head { changed: false, ..head });
        head.changed
    }

    pub(super) fn set_end(&self, list: &mut List, end: Lsn) {
        let head = self.head(list);
        self.set_head(list, Head { end, ..head });
    }

    /// Appends a record if the list stays within `most` bytes and there is memory. Otherwise returns `false`, and the
    /// caller must free the list.
    #[must_use]
    pub(super) fn push(&self, list: &mut List, tag: u8, body: &[u8], most: usize) -> bool {
        let mut head = self.head(list);
        let added = RECORD_BYTES + body.len();
        let most = most.min(usize::from(u16::MAX));
        if usize::from(head.len) + added > most {
            return false;
        }
        let (first, room) = (list.0.get(), head.room());
        let (mut at, mut place) = (head.last, CHUNK - room);
        if at == first {
            place = FIRST + usize::from(head.len);
        }
        let wanted = added.saturating_sub(room).div_ceil(CHUNK - NEXT);
        // The chunks are linked even if they do not suffice, so that they are freed with the list.
        let taken = self.take(wanted, |chunk| {
            let chunk = chunk.get();
            self.write_chunk(list, chunk)[..NEXT].fill(0);
            if head.last == first {
                head.next = chunk;
            } else {
                self.write_chunk(list, head.last)[..NEXT].copy_from_slice(&chunk.to_ne_bytes());
            }
            head.last = chunk;
        });
        let enough = taken == wanted;
        if enough {
            let len = (body.len() as u16).to_ne_bytes();
            for mut bytes in [&[tag], &len[..], body] {
                while !bytes.is_empty() {
                    if place == CHUNK {
                        at = if at == first { head.next } else { self.next(list, at) };
                        place = NEXT;
                    }
                    let (now, rest) = bytes.split_at(bytes.len().min(CHUNK - place));
                    self.write_chunk(list, at)[place..][..now.len()].copy_from_slice(now);
                    (place, bytes) = (place + now.len(), rest);
                }
            }
            head.len += added as u16;
            head.records += 1;
            head.changed = true;
        }
        self.set_head(list, head);
        enough
    }

    /// Returns the records of a list, for [`records`].
    pub(super) fn read(&self, list: &List) -> Vec<u8> {
        let head = self.head(list);
        let len = usize::from(head.len);
        let mut read = Vec::with_capacity(len);
        let (mut at, mut next, mut place) = (list.0.get(), head.next, FIRST);
        loop {
            let now = (len - read.len()).min(CHUNK - place);
            read.extend_from_slice(&self.read_chunk(list, at)[place..][..now]);
            if read.len() == len {
                return read;
            }
            at = next;
            (next, place) = (self.next(list, at), NEXT);
        }
    }

    /// Frees a list.
    #[allow(clippy::needless_pass_by_value)] // the list no longer exists after this
    pub(super) fn free(&self, list: List) {
        let mut next = self.head(&list).next;
        let mut blocks = self.blocks.lock();
        let (mut chunk, mut freed) = (list.0.get(), 0);
        loop {
            let nth = chunk as usize - 1;
            let (block, bit) = (nth / CHUNKS, nth % CHUNKS);
            debug_assert!(blocks.free[block] & 1 << bit == 0, "a chunk is freed once");
            blocks.free[block] |= 1 << bit;
            blocks.note_free(block);
            self.empty.fetch_add(usize::from(blocks.free[block] == FREE), Ordering::Relaxed);
            freed += 1;
            if next == 0 {
                break;
            }
            // The chunk still belongs to this thread: others take chunks only under the mutex.
            chunk = next;
            next = self.next(&list, chunk);
        }
        self.used.fetch_sub(freed, Ordering::Relaxed);
        drop(blocks);
        self.lists.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives blocks without a used chunk back to the system.
    pub(super) fn trim(&self) {
        if !self.has_empty_blocks() {
            return;
        }
        let mut blocks = self.blocks.lock();
        let empty: Vec<usize> = (0..blocks.free.len()).filter(|&block| blocks.free[block] == FREE).collect();
        for &block in &empty {
            blocks.free[block] = 0;
            blocks.some[block / 64] &= !bit_of(block);
        }
        self.empty.store(0, Ordering::Relaxed);
        drop(blocks);
        for run in empty.chunk_by(|a, b| a + 1 == *b) {
            self.memory.give_back(run[0] * BLOCK, run.len() * BLOCK);
        }
        self.held.fetch_sub(empty.len(), Ordering::Relaxed);
        self.blocks.lock().gone.extend(empty.into_iter().map(|block| block as u32));
    }

    /// Takes `wanted` chunks, or fewer if there is not enough memory. Returns how many.
    fn take(&self, wanted: usize, mut taken: impl FnMut(NonZeroU32)) -> usize {
        if wanted == 0 {
            return 0;
        }
        let mut blocks = self.blocks.lock();
        let mut left = wanted;
        while left > 0 {
            let block = match blocks.lowest() {
                Some(block) => block,
                None => match self.hold(&mut blocks) {
                    Some(block) => block,
                    None => break,
                },
            };
            self.empty.fetch_sub(usize::from(blocks.free[block] == FREE), Ordering::Relaxed);
            while left > 0 && blocks.free[block] != 0 {
                let bit = blocks.free[block].trailing_zeros();
                blocks.free[block] &= !(1 << bit);
                taken(NonZeroU32::MIN.saturating_add(block as u32 * CHUNKS as u32 + bit));
                left -= 1;
            }
            if blocks.free[block] == 0 {
                blocks.some[block / 64] &= !bit_of(block);
            }
        }
        self.used.fetch_add(wanted - left, Ordering::Relaxed);
        wanted - left
    }

    /// Takes another block into use; `None` if all are in use.
    fn hold(&self, blocks: &mut Blocks) -> Option<usize> {
        let block = match blocks.gone.pop() {
            Some(block) => block as usize,
            None if (blocks.free.len() + 1) * BLOCK <= self.memory.len() => {
                blocks.free.push(0);
                blocks.free.len() - 1
            }
            None => return None,
        };
        blocks.free[block] = FREE;
        blocks.note_free(block);
        self.empty.fetch_add(1, Ordering::Relaxed);
        self.held.fetch_add(1, Ordering::Relaxed);
        Some(block)
    }

    fn head_of(&self, list: &List) -> NonNull<Head> {
        self.chunk(list.0.get()).cast()
    }

    /// Returns a chunk of the list.
    fn read_chunk<'l>(&'l self, _: &'l List, chunk: u32) -> &'l [u8; CHUNK] {
        // SAFETY: memory of the mapping; its bytes change only with the list borrowed exclusively (1).
        unsafe { self.chunk(chunk).cast().as_ref() }
    }

    /// Returns a chunk of the list, to change it.
    fn write_chunk<'l>(&'l self, _: &'l mut List, chunk: u32) -> &'l mut [u8; CHUNK] {
        // SAFETY: as above.
        unsafe { self.chunk(chunk).cast().as_mut() }
    }

    /// Returns the chunk after a chunk that is not the first; 0 if it is the last.
    fn next(&self, list: &List, chunk: u32) -> u32 {
        let bytes = self.read_chunk(list, chunk);
        bytes.first_chunk().map_or(0, |next| u32::from_ne_bytes(*next))
    }

    fn chunk(&self, chunk: u32) -> NonNull<u8> {
        let offset = (chunk as usize - 1) * CHUNK;
        assert!(offset < self.memory.len(), "chunk {chunk} exists");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.memory.base().add(offset) }
    }
}

/// Iterates over the tags and bodies of what [`Lists::read`] returns.
pub(super) fn records(mut read: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&tag, after) = read.split_first()?;
        let (len, after) = after.split_first_chunk()?;
        let (body, after) = after.split_at_checked(u16::from_ne_bytes(*len).into())?;
        read = after;
        Some((tag, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Known = (List, Vec<(u8, Vec<u8>)>);

    fn check(lists: &Lists, known: &[Known]) {
        for (nth, (list, put)) in known.iter().enumerate() {
            let read = lists.read(list);
            let found: Vec<(u8, Vec<u8>)> = records(&read).map(|(tag, body)| (tag, body.to_vec())).collect();
            assert_eq!(&found, put, "list {nth}");
            assert_eq!(usize::from(lists.head(list).records), put.len());
        }
    }

    /// Random lists keep their records, no block is held without need, and all memory is given back.
    #[test]
    fn lists_keep_their_records_and_blocks_are_used_again() {
        let lists = Lists::reserve(1 << 20).unwrap();
        let mut known: Vec<Known> = Vec::new();
        let (mut state, mut used_most, mut left) = (1_u64, 0, 0);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..20_000_u64 {
            match random(8) {
                0 | 1 => known.push((lists.begin(round, Lsn(round)).unwrap(), Vec::new())),
                2 if !known.is_empty() => {
                    let at = random(known.len() as u64) as usize;
                    lists.free(known.swap_remove(at).0);
                }
                _ if !known.is_empty() => {
                    let at = random(known.len() as u64) as usize;
                    let (list, put) = &mut known[at];
                    let (tag, body) = (random(256) as u8, vec![random(256) as u8; random(200) as usize]);
                    if lists.push(list, tag, &body, 4096) {
                        put.push((tag, body));
                    } else {
                        assert!(lists.read(list).len() + 203 > 4096, "there is memory");
                        lists.free(known.swap_remove(at).0);
                    }
                }
                _ => {}
            }
            if known.len() > 200 {
                known.drain(..150).for_each(|(list, _)| lists.free(list));
                lists.trim();
                (used_most, left) = (0, lists.held.load(Ordering::Relaxed));
            }
            used_most = used_most.max(lists.used.load(Ordering::Relaxed));
            let held = lists.held.load(Ordering::Relaxed);
            assert!(held <= used_most.div_ceil(CHUNKS).max(left), "{held} blocks, {used_most} chunks at most");
            if round % 500 == 0 {
                let empty = lists.blocks.lock().free.iter().filter(|&&free| free == FREE).count();
                assert_eq!(lists.empty.load(Ordering::Relaxed), empty);
                check(&lists, &known);
            }
        }
        check(&lists, &known);
        known.drain(..).for_each(|(list, _)| lists.free(list));
        lists.trim();
        assert_eq!((lists.bytes(), lists.held(), lists.has_empty_blocks()), (0, 0, false));
    }

    #[test]
    fn a_list_tells_its_head_and_is_refused_when_memory_ends() {
        let lists = Lists::reserve(2 * BLOCK as u64).unwrap();
        let mut list = lists.begin(7, Lsn(5)).unwrap();
        lists.set_end(&mut list, Lsn(9));
        assert!(lists.push(&mut list, 1, &[2; 100], 200));
        assert!(!lists.push(&mut list, 1, &[2; 100], 200), "too long");
        assert!(lists.brought_back(&mut list));
        assert!(!lists.brought_back(&mut list), "unchanged since");
        let head = lists.head(&list);
        assert_eq!((head.since, head.base, head.end, head.records), (7, Lsn(5), Lsn(9), 1));
        let mut long = lists.begin(1, Lsn(1)).unwrap();
        while lists.push(&mut long, 3, &[0; 1000], 60_000) {}
        assert_eq!(lists.held(), 2 * BLOCK + 2 * ENTRY_BYTES);
        assert_eq!(lists.begin(2, Lsn(2)), None);
        lists.free(long);
        assert_eq!(lists.read(&list).len(), RECORD_BYTES + 100);
        lists.free(list);
        lists.trim();
        assert_eq!(lists.held(), 0);
    }
}
