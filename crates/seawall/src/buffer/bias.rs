//! Shared latches that write to no memory that others read: for pages that everybody reads and hardly anybody changes, the branches of trees.
//! After Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks" (ATC 2019).
//!
//! 1. While a frame is biased a reader writes the frame's number into a place of its own thread's row and looks again: still biased, it has the
//!    latch shared; else it takes its number back and goes to the latch.
//! 2. Whoever has taken the latch exclusively takes the bias away and then waits until no place names the frame. A reader's number is written
//!    before its second look, and the bias is taken away before the places are searched, all in one order (`SeqCst`): the reader
//!    sees the bias gone, or is seen.
//! 3. Who only tries the latch does not wait for readers: it takes the bias away, and if somebody reads, gives the bias back and then lets go of
//!    the latch. A frame that is read by (1) is therefore biased, but while somebody has its latch exclusively: whoever takes
//!    the latch next sees the bias, and so looks for readers.
//! 4. Otherwise a frame is biased only by one who has its latch shared: nobody who has it exclusively is overtaken by new readers.

use super::frame::{BIASED, Frame};
use super::sync::{AtomicU32, Ordering, one_order, pause};

/// Rows; threads beyond share them.
#[cfg(not(test))]
const ROWS: usize = 64;
#[cfg(test)]
const ROWS: usize = 2;
/// Places in a row: latches a thread has at a time, with room for a neighbour's.
#[cfg(not(test))]
const PLACES: usize = 16;
#[cfg(test)]
const PLACES: usize = 2;

/// The numbers of one thread; a cache line.
#[repr(align(64))]
struct Row([AtomicU32; PLACES]);

/// Who reads what without its latch.
pub(super) struct Bias(Box<[Row]>);

/// Where a reader's number stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u16);

impl Bias {
    pub(super) fn new() -> Self {
        Self((0..ROWS).map(|_| Row(std::array::from_fn(|_| AtomicU32::new(0)))).collect())
    }

    fn at(&self, place: Place) -> &AtomicU32 {
        &self.0[usize::from(place.0) / PLACES].0[usize::from(place.0) % PLACES]
    }

    /// Has the frame's latch shared if it is biased and the thread's row (any number) has a place.
    #[inline]
    pub(super) fn enter(&self, row: usize, frame: u32, known: &Frame) -> Option<Place> {
        let row = row % ROWS;
        let places = &self.0[row].0;
        let free = places.iter().position(|place| {
            place.load(Ordering::Relaxed) == 0
                && place.compare_exchange(0, frame + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        })?;
        let place = Place((row * PLACES + free) as u16);
        one_order();
        if known.flags.load(Ordering::SeqCst) & BIASED != 0 {
            return Some(place);
        }
        self.leave(place);
        None
    }

    /// Gives the latch up.
    #[inline]
    pub(super) fn leave(&self, place: Place) {
        self.at(place).store(0, Ordering::Release);
    }

    fn is_read(&self, frame: u32) -> bool {
        one_order();
        self.0.iter().any(|row| row.0.iter().any(|place| place.load(Ordering::SeqCst) == frame + 1))
    }

    /// Whoever has taken the latch exclusively waits for the readers beside it.
    #[inline]
    pub(super) fn wait_for_readers(&self, frame: u32, known: &Frame) {
        if known.take_bias() {
            for turn in 0u32.. {
                if !self.is_read(frame) {
                    break;
                }
                pause(turn);
            }
        }
    }

    /// Whether nobody reads beside the latch that was taken exclusively without waiting; if somebody does, the latch is to be given up at once (3).
    #[inline]
    pub(super) fn nobody_reads(&self, frame: u32, known: &Frame) -> bool {
        if !known.take_bias() {
            return true;
        }
        let read = self.is_read(frame);
        if read {
            known.give_bias_back();
        }
        !read
    }
}
