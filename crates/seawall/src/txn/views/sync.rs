//! The outside dependencies of `ids.rs`. Its model test replaces them by a checked scheduler: `model.rs`
//! compiles the same file a second time, with its own definitions of these names.

pub(super) use crate::counted::{Mutex, Padded, thread_number};
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

/// Stripes of slots: threads that begin and end transactions share no cache line but the set's `Line`.
pub(super) const STRIPES: usize = 16;
/// Slots of one stripe besides the first. With them a stripe fills two cache lines.
pub(super) const MORE: usize = 14;

/// Waits briefly: the other thread is between two instructions, or was preempted there.
pub(super) fn pause(turn: u32) {
    if turn < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
