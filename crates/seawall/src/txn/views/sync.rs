//! What `ids.rs` takes from the outside, so that its model test can put a checked scheduler in its place: the same file is compiled a second
//! time in `model.rs`, on the same names from there.

pub(super) use crate::counted::{Mutex, Padded, thread_number};
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that begin and end transactions without a common cache line but the set's own.
pub(super) const STRIPES: usize = 16;
/// Further ids of one stripe: with its first slot, it fills the two cache lines.
pub(super) const MORE: usize = 14;

/// Waits a little: the thread that is waited for is between two instructions, or was taken off its processor there.
pub(super) fn pause(turn: u32) {
    if turn < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
