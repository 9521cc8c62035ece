//! Shared latches whose readers write to no common cache line, for pages that many threads read and few change: the
//! branches of trees. After Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks" (ATC 2019).
//!
//! 1. While a frame is biased, a reader publishes the frame's number in a slot of its own thread's row and
//!    checks the bias again. If the frame is still biased, the reader has the shared latch. Otherwise it
//!    clears the slot and takes the latch itself.
//! 2. A thread that takes the latch exclusively revokes the bias and then waits until no slot names the frame. The
//!    reader publishes the number before its second check, and the other thread revokes the bias before it scans the
//!    slots, all in one order (`SeqCst`): either the reader sees that the bias is gone, or the scan sees the reader.
//! 3. A thread that only tries the latch does not wait for readers: it revokes the bias and, if it finds a reader,
//!    restores the bias and then releases the latch. So a frame with a published reader is biased, except while its
//!    latch is held exclusively: the next thread that takes the latch exclusively sees the bias, and scans for readers.
//! 4. Apart from (3), only a holder of the shared latch biases a frame. So once the holder of the exclusive latch has
//!    revoked the bias, no new reader enters by (1).

use super::frame::{BIASED, Frame};
use super::sync::{AtomicU32, Ordering, one_order, pause};

/// Rows; if there are more threads, some share a row.
#[cfg(not(test))]
const ROWS: usize = 64;
#[cfg(test)]
const ROWS: usize = 2;
/// Slots of a row: enough for the latches that a thread holds at a time, and some for a thread that shares the row.
#[cfg(not(test))]
const SLOTS: usize = 16;
#[cfg(test)]
const SLOTS: usize = 2;

/// The slots of one thread; a cache line.
#[repr(align(64))]
struct Row([AtomicU32; SLOTS]);

/// The table of published readers.
pub(super) struct VisibleReaders(Box<[Row]>);

/// Where a reader has published a frame's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReaderSlot(u16);

impl VisibleReaders {
    pub(super) fn new() -> Self {
        Self((0..ROWS).map(|_| Row(std::array::from_fn(|_| AtomicU32::new(0)))).collect())
    }

    fn at(&self, slot: ReaderSlot) -> &AtomicU32 {
        &self.0[usize::from(slot.0) / SLOTS].0[usize::from(slot.0) % SLOTS]
    }

    /// Publishes a reader: takes the frame's latch shared if the frame is biased and the thread's row (any number) has
    /// a free slot.
    #[inline]
    pub(super) fn enter(&self, row: usize, frame: u32, known: &Frame) -> Option<ReaderSlot> {
        let row = row % ROWS;
        let slots = &self.0[row].0;
        let free = slots.iter().position(|slot| {
            slot.load(Ordering::Relaxed) == 0
                && slot.compare_exchange(0, frame + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        })?;
        let slot = ReaderSlot((row * SLOTS + free) as u16);
        one_order();
        if known.flags.load(Ordering::SeqCst) & BIASED != 0 {
            return Some(slot);
        }
        self.leave(slot);
        None
    }

    /// Releases the shared latch.
    #[inline]
    pub(super) fn leave(&self, slot: ReaderSlot) {
        self.at(slot).store(0, Ordering::Release);
    }

    fn is_read(&self, frame: u32) -> bool {
        one_order();
        self.0.iter().any(|row| row.0.iter().any(|slot| slot.load(Ordering::SeqCst) == frame + 1))
    }

    /// Revokes the bias and waits for the published readers. The caller holds the exclusive latch.
    #[inline]
    pub(super) fn wait_for_readers(&self, frame: u32, known: &Frame) {
        if known.revoke_bias() {
            for turn in 0u32.. {
                if !self.is_read(frame) {
                    break;
                }
                pause(turn);
            }
        }
    }

    /// Returns whether no published reader is left, after the caller took the exclusive latch by a try. If `false`, the
    /// caller must release the latch at once (3).
    #[inline]
    pub(super) fn has_no_readers(&self, frame: u32, known: &Frame) -> bool {
        if !known.revoke_bias() {
            return true;
        }
        let read = self.is_read(frame);
        if read {
            known.restore_bias();
        }
        !read
    }
}
