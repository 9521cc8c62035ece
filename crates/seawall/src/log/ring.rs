//! The log buffer: the bytes between the written and the reserved position, in a ring.
//!
//! ```text
//!    floor(written)    written        oldest_unpublished       head          promised      floor(written) + bytes
//!        |  tail block's  |   published,   |  filled by their    |  promised:   |                |
//!        |     prefix     |  to be written |  owners, published  |  not placed  |      free      |
//! ```
//!
//! 1. `head + everything promised and not yet placed <= promised <= floor(written) + bytes`, where `floor` rounds down
//!    to a block: an [`EntrySlot`] never overlaps bytes that are still to be written, nor the beginning of the block
//!    that the next group writes again.
//! 2. A byte at or beyond `head` has no owner. Between `written` and `head`, its [`EntrySlot`] owns it until the entry
//!    is published; from then on the [`GroupReader`] owns it. From `floor(written)` to `written`, the `GroupReader`
//!    owns it.
//! 3. A ring has one [`GroupReader`], made with it. A [`Group`] borrows it, so `written` cannot move while a
//!    group is being written.
//! 4. A block that is not full is written from a copy, filled up with zeroes: other threads may be filling those bytes
//!    in the ring.
//!
//! Happens-before: the group's write ends before `written` is stored (release). A thread that promises bytes of the
//! freed space has loaded `written` (acquire). If another thread claims a place that needs that space, then the
//! promising thread has claimed earlier (otherwise the place would lie lower), and a claim's `fetch_add` on `head`
//! acquires from earlier claims.
//!
//! Most promises are taken from a thread's *share*: space that is promised to the thread's stripe, a batch at a time,
//! and not yet to a mini-transaction. A mini-transaction returns its unused space to the share. Shares count as
//! promised; before a thread is refused, all of them are given back. A thread that takes from a share acquires from all
//! threads that put space there, and so from the thread that loaded the `written` that allows it.
//!
//! A thread that waits for space increments `waiting`, checks once more, and sleeps. A thread that frees space does so
//! before it reads `waiting`. All of this is sequentially consistent, so one of the two sees the other. Publishing also
//! makes space, because it lets the waiting thread write a group, but wakes no thread: the waiting thread wakes by
//! itself after [`ROOM_PATIENCE`].
//!
//! This is one of the modules in which `unsafe` is allowed.
#![allow(unsafe_code)]

use super::entry::{HEADER_BYTES, Header};
use super::slots::{Claim, Slots};
use super::sync::{AtomicU32, Mutex, Padded};
use crate::counted::thread_number;
use parking_lot::Condvar;
use seawall_io::{AlignedBuf, BUFFER_ALIGN, SharedMemory};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest time that a thread that waits for space sleeps before it checks again.
const ROOM_PATIENCE: Duration = Duration::from_millis(1);

/// More than any limit.
const SEALED: u64 = 1 << 62;

/// The threads that wait for space.
#[derive(Debug, Default)]
struct Room {
    /// The number of waiting threads; only they write it.
    waiting: Padded<AtomicU32>,
    mutex: Mutex<()>,
    freed: Condvar,
}

/// Where the ring's bytes are.
#[derive(Debug)]
pub(super) enum RingMemory {
    /// In memory of this process.
    Own(AlignedBuf),
    /// In a file (`ring_file.rs`), followed by a page with the position up to which the segments have the log.
    Shared(SharedMemory),
}

/// Bytes of that page; it begins with the position, little-endian.
pub(super) const MARK_BYTES: usize = 4096;

impl RingMemory {
    pub(super) fn own(bytes: usize) -> Self {
        Self::Own(AlignedBuf::zeroed(bytes))
    }
}

#[derive(Debug)]
pub(super) struct Ring {
    /// The ring's bytes, inside `_owner`. All access is through this pointer; `_owner` itself is not used again.
    memory: NonNull<u8>,
    _owner: RingMemory,
    /// Whether a page of [`MARK_BYTES`] follows them.
    has_mark: bool,
    /// A power of two.
    bytes: u64,
    /// A power of two, at most `bytes`.
    block: u64,
    slots: Slots,
    promised: Padded<AtomicU64>,
    /// The part of `promised` that no mini-transaction has, by stripe.
    shares: Box<[Padded<AtomicU64>]>,
    /// Bytes that a share takes at a time; above twice this, it gives the excess back.
    batch: u64,
    written: Padded<AtomicU64>,
    room: Room,
}

/// The number of shares.
const SHARES: usize = 16;
/// The most that a share takes at a time, bytes.
const BATCH_MAX: u64 = 64 << 10;

// SAFETY: the ring owns the memory behind the pointer; the module's rules 1 to 4 decide which thread may
// touch which byte when.
unsafe impl Send for Ring {}
// SAFETY: as above: by these rules, only a byte's owner accesses it through a shared ring.
unsafe impl Sync for Ring {}

/// The right to place this many bytes, given back when dropped.
#[derive(Debug)]
pub(super) struct Promise<'r> {
    ring: &'r Ring,
    bytes: u64,
}

/// Why a promise is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The ring is full.
    Buffer,
    /// The promise would exceed the caller's limit: it would reach this position.
    Limit(u64),
}

/// Bytes of the stream that belong to one entry until it is published.
#[derive(Debug)]
pub(super) struct EntrySlot<'r> {
    ring: &'r Ring,
    claim: Claim,
}

/// A copy of a group's last block, which the group does not fill.
#[derive(Debug)]
struct Tail {
    bytes: AlignedBuf,
    /// The bytes after this many are zeroes.
    filled: usize,
}

/// Copies of tail blocks.
const TAILS: usize = 16;

/// The right to take published bytes out of a ring. Each ring has one.
#[derive(Debug)]
pub(super) struct GroupReader {
    /// Identifies its ring by the address of the ring's memory.
    ring: NonNull<u8>,
    /// By the stripe of the writing thread, so that no leader takes the cache lines of another leader's copy.
    tails: Box<[Option<Tail>]>,
    /// Published and handed out up to here.
    taken: u64,
    /// The end of the last entry that lies wholly before `taken`: a group that is cut at the end of its
    /// segment can end inside an entry.
    whole: u64,
    /// The end of the entry after that one; `whole` itself if everything published was taken.
    next: u64,
}

// SAFETY: the pointer is compared, never followed.
unsafe impl Send for GroupReader {}
// SAFETY: as above.
unsafe impl Sync for GroupReader {}

/// Published bytes, in whole blocks.
#[derive(Debug)]
pub(super) struct Group<'s> {
    /// Where the first block begins.
    pub(super) from: u64,
    /// Where the group's bytes end; zeroes from there to the end of the last block.
    pub(super) end: u64,
    /// All blocks, in order; some parts may be empty.
    pub(super) parts: [&'s [u8]; 3],
}

impl Ring {
    /// Makes a ring whose stream continues at `at`, in a block that begins with `prefix`.
    ///
    /// # Panics
    /// When the sizes are not powers of two that fit each other, or `prefix` is not as long as `at` requires.
    pub(super) fn new(mut owner: RingMemory, block: usize, at: u64, prefix: &[u8]) -> (Self, GroupReader) {
        let (memory, bytes, has_mark) = match &mut owner {
            RingMemory::Own(buf) => (NonNull::new(buf.as_mut_ptr()), buf.len(), false),
            RingMemory::Shared(shared) => (Some(shared.start()), shared.len() - MARK_BYTES, true),
        };
        let memory = memory.expect("an allocation is not at address zero");
        assert!(bytes.is_power_of_two() && block.is_power_of_two() && bytes >= block && bytes >= BUFFER_ALIGN);
        let floor = at & !(block as u64 - 1);
        assert_eq!(prefix.len() as u64, at - floor, "the tail block's beginning is known");
        let reader =
            GroupReader { ring: memory, tails: (0..TAILS).map(|_| None).collect(), taken: at, whole: at, next: at };
        let ring = Self {
            memory,
            _owner: owner,
            has_mark,
            bytes: bytes as u64,
            block: block as u64,
            slots: Slots::new(at),
            promised: Padded(AtomicU64::new(at)),
            shares: (0..SHARES).map(|_| Padded(AtomicU64::new(0))).collect(),
            // All shares together are at most a quarter of the ring.
            batch: (bytes as u64 / (8 * SHARES as u64)).min(BATCH_MAX),
            written: Padded(AtomicU64::new(at)),
            room: Room::default(),
        };
        // SAFETY: nothing else knows the ring yet; a prefix is shorter than a block.
        unsafe { ring.put(floor, prefix) };
        ring.mark(at);
        (ring, reader)
    }

    /// Records, in the page after a ring in a file, that the segments have everything before `written`.
    fn mark(&self, written: u64) {
        if self.has_mark {
            // SAFETY: the `MARK_BYTES` bytes after the ring's bytes are mapped as long as `_owner` lives.
            let mark = unsafe { self.memory.as_ptr().add(self.bytes as usize) };
            // SAFETY: a multiple of 8 from the beginning of a page; nothing else touches these bytes.
            let mark = unsafe { AtomicU64::from_ptr(mark.cast()) };
            mark.store(written.to_le(), Ordering::Release);
        }
    }

    fn floor(&self, lsn: u64) -> u64 {
        lsn & !(self.block - 1)
    }

    fn share(&self) -> &AtomicU64 {
        &self.shares[thread_number() % SHARES].0
    }

    /// Promises `bytes` if they fit into the ring and below `limit`.
    pub(super) fn promise(&self, bytes: u64, limit: &AtomicU64) -> Result<Promise<'_>, Full> {
        let share = self.share();
        let mut there = share.load(Ordering::Relaxed);
        while there >= bytes {
            match share.compare_exchange_weak(there, there - bytes, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(Promise { ring: self, bytes }),
                Err(now) => there = now,
            }
        }
        if self.raise(bytes + self.batch, limit).is_ok() {
            share.fetch_add(self.batch, Ordering::SeqCst);
            return Ok(Promise { ring: self, bytes });
        }
        if let Err(full) = self.raise(bytes, limit) {
            if !self.give_back_shares() {
                return Err(full);
            }
            self.raise(bytes, limit)?;
        }
        Ok(Promise { ring: self, bytes })
    }

    /// Like [`Ring::promise`], but leaves nothing in a share: for a caller with its own limit.
    pub(super) fn promise_exactly(&self, bytes: u64, limit: &AtomicU64) -> Result<Promise<'_>, Full> {
        self.raise(bytes, limit).map(|()| Promise { ring: self, bytes })
    }

    /// Increases `promised`.
    fn raise(&self, bytes: u64, limit: &AtomicU64) -> Result<(), Full> {
        let mut promised = self.promised.0.load(Ordering::Relaxed);
        loop {
            let after = promised + bytes;
            if after > self.floor(self.written()) + self.bytes {
                return Err(Full::Buffer);
            }
            if after > limit.load(Ordering::Acquire) {
                return Err(Full::Limit(after));
            }
            match self.promised.0.compare_exchange_weak(promised, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => promised = now,
            }
        }
    }

    /// Restores a promise that [`Promise::keep`] kept; each may be restored once.
    pub(super) fn kept(&self, bytes: u64) -> Promise<'_> {
        Promise { ring: self, bytes }
    }

    /// Refuses promises from now on; returns `false` if something is promised and not placed.
    pub(super) fn seal(&self) -> bool {
        // Shares count as promised. Once sealed they are empty, and nothing is left that could fill one.
        self.give_back_shares();
        let head = self.head();
        self.promised.0.compare_exchange(head, head + SEALED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Subtracts the shares from `promised`; returns whether there was anything in them.
    pub(super) fn give_back_shares(&self) -> bool {
        let filled = self.shares.iter().filter(|share| share.0.load(Ordering::SeqCst) > 0);
        let sum = filled.map(|share| share.0.swap(0, Ordering::SeqCst)).sum::<u64>();
        if sum > 0 {
            self.promised.0.fetch_sub(sum, Ordering::SeqCst);
        }
        sum > 0
    }

    /// Puts the unused part of a promise into the thread's share, or gives it to waiting threads.
    fn put_back(&self, bytes: u64) {
        let share = self.share();
        let now = share.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if self.room.waiting.0.load(Ordering::SeqCst) > 0 {
            self.give_back_shares();
            self.wake_waiting();
        } else if now > 2 * self.batch
            && share.compare_exchange(now, self.batch, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            self.promised.0.fetch_sub(now - self.batch, Ordering::SeqCst);
        }
    }

    /// Returns at once if there is space for `bytes` before `limit`, or something to write. Otherwise sleeps until
    /// space is given back, at most [`ROOM_PATIENCE`].
    pub(super) fn wait_for_room(&self, bytes: u64, limit: &AtomicU64) {
        self.room.waiting.0.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.room.mutex.lock();
        self.give_back_shares();
        let end = limit.load(Ordering::Acquire).min(self.floor(self.written()) + self.bytes);
        let full = self.promised.0.load(Ordering::SeqCst) + bytes > end;
        if full && self.oldest_unpublished() <= self.written() {
            self.room.freed.wait_for(&mut guard, ROOM_PATIENCE);
        }
        drop(guard);
        self.room.waiting.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the threads that wait for space, after space was freed.
    #[inline]
    fn wake_waiting(&self) {
        if self.room.waiting.0.load(Ordering::SeqCst) > 0 {
            // A thread that has checked and not yet slept holds the mutex.
            drop(self.room.mutex.lock());
            self.room.freed.notify_all();
        }
    }

    /// Assigns the place of an entry of `bytes`.
    ///
    /// # Panics
    /// When `bytes` is more than was promised: the ring would overflow.
    pub(super) fn place<'r>(&'r self, promise: Promise<'r>, bytes: u64) -> EntrySlot<'r> {
        assert!(bytes <= promise.bytes, "an entry of {bytes} bytes where {} were promised", promise.bytes);
        assert!(std::ptr::eq(self, promise.ring), "a promise is kept by the ring that made it");
        let claim = self.slots.claim(bytes);
        // Only the unused part: the rest of the promise is in `head` now.
        let promised = std::mem::ManuallyDrop::new(promise).bytes;
        self.put_back(promised - bytes);
        EntrySlot { ring: self, claim }
    }

    pub(super) fn head(&self) -> u64 {
        self.slots.head()
    }

    pub(super) fn oldest_unpublished(&self) -> u64 {
        self.slots.oldest_unpublished()
    }

    pub(super) fn published(&self) -> u64 {
        self.slots.published()
    }

    /// Returns the position beyond which nothing is placed unless more is promised. Includes the shares.
    pub(super) fn promised(&self) -> u64 {
        self.promised.0.load(Ordering::Acquire)
    }

    pub(super) fn written(&self) -> u64 {
        self.written.0.load(Ordering::Acquire)
    }

    fn at(&self, lsn: u64) -> usize {
        (lsn & (self.bytes - 1)) as usize
    }

    /// Copies `bytes` to the place of `lsn`, wrapping around the ring's end if need be.
    ///
    /// # Safety
    /// The caller owns these bytes of the stream (rules 1 and 2), and there are at most `self.bytes` of them.
    unsafe fn put(&self, lsn: u64, bytes: &[u8]) {
        let offset = self.at(lsn);
        let first = bytes.len().min(self.bytes as usize - offset);
        // SAFETY: `offset < self.bytes`, so this stays inside the allocation.
        let to = unsafe { self.memory.as_ptr().add(offset) };
        // SAFETY: `first` bytes fit between `offset` and the end, the caller owns them, and a slice of the
        // caller is not in the ring.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, first) };
        let rest = &bytes[first..];
        // SAFETY: the rest is less than the ring, and goes to its first byte.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), self.memory.as_ptr(), rest.len()) };
    }

    /// Returns bytes of the stream that do not wrap around the ring's end.
    ///
    /// # Safety
    /// They belong to the reader (rule 2), for as long as the result lives.
    unsafe fn get(&self, from: u64, len: u64) -> &[u8] {
        let offset = self.at(from);
        debug_assert!(offset as u64 + len <= self.bytes);
        // SAFETY: `offset + len` is within the allocation.
        let start = unsafe { self.memory.as_ptr().add(offset) };
        // SAFETY: initialised memory inside the allocation, which no thread writes while the slice lives (the
        // caller's promise).
        unsafe { std::slice::from_raw_parts(start, len as usize) }
    }

    /// Returns everything published and not yet written, up to `cut` (a multiple of the block), from the beginning of
    /// the tail block. Returns `None` when there is nothing to write.
    ///
    /// # Panics
    /// When the reader belongs to another ring.
    pub(super) fn group<'s>(&'s self, reader: &'s mut GroupReader, cut: u64) -> Option<Group<'s>> {
        assert_eq!(reader.ring, self.memory, "a reader belongs to one ring");
        debug_assert_eq!(cut % self.block, 0);
        let written = self.written();
        let published = self.oldest_unpublished();
        let end = published.min(cut);
        if end <= written {
            return None;
        }
        reader.taken = end;
        if end == published {
            // No place begins before `published` and ends after it (slots.rs, 3).
            (reader.whole, reader.next) = (end, end);
        } else {
            while reader.next <= end {
                reader.whole = reader.next;
                reader.next += self.entry_bytes_at(reader.next);
            }
        }
        let from = self.floor(written);
        let whole_end = self.floor(end);
        // The tail block is copied if the group does not fill it, because other threads own the rest of it.
        let rest = (end - whole_end) as usize;
        let block = self.block as usize;
        let tail = reader.tails[thread_number() % TAILS]
            .get_or_insert_with(|| Tail { bytes: AlignedBuf::zeroed(block), filled: 0 });
        if rest > 0 {
            // SAFETY: everything up to `end` is published and so belongs to the reader, and a block never wraps around
            // the ring's end.
            let bytes = unsafe { self.get(whole_end, rest as u64) };
            tail.bytes[..rest].copy_from_slice(bytes);
            let filled = std::mem::replace(&mut tail.filled, rest);
            if filled > rest {
                tail.bytes[rest..filled].fill(0);
            }
        }
        let whole = whole_end - from;
        let first = whole.min(self.bytes - self.at(from) as u64);
        // SAFETY: `from..end` is published and not released (rule 1): `written` moves only in `advance`,
        // which needs the reader that the result borrows.
        let one = unsafe { self.get(from, first) };
        // SAFETY: as above.
        let two = unsafe { self.get(from + first, whole - first) };
        let three = if rest > 0 { &tail.bytes[..] } else { &[] };
        Some(Group { from, end, parts: [one, two, three] })
    }

    /// Returns the bytes of the entry that begins at `lsn`, which must be published and not released.
    fn entry_bytes_at(&self, lsn: u64) -> u64 {
        debug_assert!((self.written()..self.slots.head()).contains(&lsn));
        // SAFETY: the entry is published and not released, so it belongs to the reader, for which this is called; one
        // byte never wraps around the ring's end.
        let first = std::array::from_fn(|i| unsafe { self.get(lsn + i as u64, 1) }[0]);
        Header::entry_bytes_of(first)
    }

    /// Notes that the last group is written, so that its space can be reused.
    pub(super) fn advance(&self, reader: &mut GroupReader) {
        assert_eq!(reader.ring, self.memory, "a reader belongs to one ring");
        // Before the space can be used again.
        self.mark(reader.taken);
        self.written.0.store(reader.taken, Ordering::SeqCst);
        self.wake_waiting();
    }
}

impl GroupReader {
    /// The end of the last entry that lies wholly before the end of the last group.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }
}

impl Promise<'_> {
    /// Keeps the promise beyond its borrow of the ring. Returns its bytes, for [`Ring::kept`].
    pub(super) fn keep(self) -> u64 {
        std::mem::ManuallyDrop::new(self).bytes
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.ring.put_back(self.bytes);
    }
}

impl EntrySlot<'_> {
    pub(super) fn start(&self) -> u64 {
        self.claim.start
    }

    pub(super) fn end(&self) -> u64 {
        self.claim.end
    }

    /// Fills the place and hands it to the reader.
    ///
    /// # Panics
    /// When header and body are not as long as the place.
    pub(super) fn publish(self, header: &[u8; HEADER_BYTES], body: &[u8]) {
        let start = self.claim.start;
        assert_eq!((HEADER_BYTES + body.len()) as u64, self.claim.end - start, "an entry fills its place");
        // SAFETY: this slot alone owns the place until it is published (rule 2); the place is as long as both parts
        // (asserted), and shorter than the ring (rule 1).
        unsafe { self.ring.put(start, header) };
        // SAFETY: as above.
        unsafe { self.ring.put(start + HEADER_BYTES as u64, body) };
        self.ring.slots.publish(&self.claim);
    }

    /// Abandons the place: the log ends before it.
    pub(super) fn abandon(self) {
        self.ring.slots.abandon(&self.claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(ring: &Ring, limit: &AtomicU64, bytes: &[u8]) {
        let (header, body) = bytes.split_at(HEADER_BYTES);
        let promise = ring.promise(bytes.len() as u64 + 40, limit).unwrap();
        ring.place(promise, bytes.len() as u64).publish(header.try_into().unwrap(), body);
    }

    proptest! {
        /// Compares with a plain vector: everything placed comes out in order and in whole blocks, while the ring wraps
        /// many times.
        #[test]
        fn groups_are_the_stream(
            steps in proptest::collection::vec((16usize..700, any::<bool>()), 1..120), at in 0u64..100_000,
        ) {
            let block = 512;
            let prefix: Vec<u8> = vec![0xee; (at % block) as usize];
            let (ring, mut reader) = Ring::new(RingMemory::own(4096), block as usize, at, &prefix);
            let limit = AtomicU64::new(u64::MAX);
            let mut stream = prefix;
            let mut disk: Vec<u8> = Vec::new();
            let base = at - at % block;
            let mut write = |stream: &Vec<u8>| {
                let Some(group) = ring.group(&mut reader, !(block - 1)) else { return };
                assert_eq!(group.from % block, 0);
                disk.truncate((group.from - base) as usize);
                disk.extend(group.parts.concat());
                assert_eq!(disk.len() as u64 % block, 0);
                let bytes = (group.end - base) as usize;
                assert_eq!(&disk[..bytes], &stream[..bytes]);
                assert!(disk[bytes..].iter().all(|&b| b == 0));
                ring.advance(&mut reader);
            };
            for (i, (len, write_now)) in steps.iter().enumerate() {
                if ring.promise(*len as u64 + 40, &limit).is_err() {
                    write(&stream);
                }
                let bytes = vec![i as u8; *len];
                fill(&ring, &limit, &bytes);
                stream.extend(&bytes);
                if *write_now {
                    write(&stream);
                }
            }
            write(&stream);
            prop_assert_eq!(ring.head(), base + stream.len() as u64);
            ring.give_back_shares();
            prop_assert_eq!(ring.promised(), ring.head(), "what was not needed is given back");
        }
    }

    proptest! {
        /// Groups cut at every kind of position: `whole` is the end of the last entry before the cut.
        #[test]
        fn a_cut_group_knows_its_last_whole_entry(
            steps in proptest::collection::vec((16usize..3000, 0u8..3), 1..80), at in 0u64..100_000,
        ) {
            const BLOCK: u64 = 512;
            const SEGMENT: u64 = 2048;
            let (ring, mut reader) = Ring::new(RingMemory::own(1 << 14), BLOCK as usize, at, &vec![0xee; (at % BLOCK) as usize]);
            let limit = AtomicU64::new(u64::MAX);
            let seal = crate::log::entry::Seal::new(&[7; 16]);
            let mut ends = vec![at];
            let mut write = |ends: &Vec<u64>| {
                let cut = (ring.written() / SEGMENT + 1) * SEGMENT;
                let Some(end) = ring.group(&mut reader, cut).map(|group| group.end) else { return false };
                assert_eq!(reader.whole(), *ends.iter().rev().find(|entry| **entry <= end).unwrap());
                ring.advance(&mut reader);
                true
            };
            for (len, writes) in steps {
                while ring.promise(len as u64, &limit).is_err() {
                    write(&ends);
                }
                let body = vec![0x5a; len - HEADER_BYTES];
                let place = ring.place(ring.promise(len as u64, &limit).unwrap(), len as u64);
                let header = seal.encode(place.start(), 1, at.min(place.start()), &body);
                ends.push(place.end());
                place.publish(&header, &body);
                for _ in 0..writes {
                    write(&ends);
                }
            }
            while write(&ends) {}
            prop_assert_eq!(ring.written(), ring.head());
        }
    }

    #[test]
    fn promises_count_against_both_bounds() {
        let (ring, _scribe) = Ring::new(RingMemory::own(4096), 512, 100, &[1; 100]);
        let limit = AtomicU64::new(2000);
        let first = ring.promise(1900, &limit).unwrap();
        assert_eq!(ring.promise(1, &limit).unwrap_err(), Full::Limit(2001));
        drop(first);
        limit.store(u64::MAX, Ordering::Release);
        // The tail block's beginning is kept: 4096 - 100 are left.
        assert_eq!(ring.promise(3997, &limit).unwrap_err(), Full::Buffer);
        drop(ring.promise(3996, &limit).unwrap());
    }

    #[test]
    fn threads_fill_their_places_while_groups_leave() {
        const THREADS: u64 = 4;
        const ENTRIES: u64 = 400;
        let (ring, mut reader) = Ring::new(RingMemory::own(1 << 14), 512, 0, &[]);
        let limit = AtomicU64::new(u64::MAX);
        let mut stream = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (ring, limit) = (&ring, &limit);
                scope.spawn(move || {
                    for i in 0..ENTRIES {
                        let body = [(thread * 50 + i % 50) as u8; 90];
                        let promise = loop {
                            match ring.promise(200, limit) {
                                Ok(promise) => break promise,
                                Err(_) => std::thread::yield_now(),
                            }
                        };
                        ring.place(promise, 106).publish(&[body[0]; 16], &body);
                    }
                });
            }
            while (stream.len() as u64) < THREADS * ENTRIES * 106 {
                let Some(group) = ring.group(&mut reader, !511) else {
                    std::thread::yield_now();
                    continue;
                };
                stream.truncate(group.from as usize);
                stream.extend(group.parts.concat());
                stream.truncate(group.end as usize);
                ring.advance(&mut reader);
            }
        });
        for entry in stream.chunks(106) {
            assert!(entry.iter().all(|&b| b == entry[0]), "no entry is torn");
        }
    }
}
