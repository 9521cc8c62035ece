//! The synchronization primitives of the log's two protocols (`slots.rs`, `waiters.rs`). Model tests replace them by a
//! checked scheduler: `model.rs` compiles the same two files a second time, with its own versions of these names.

use std::cell::Cell;

pub(super) use crate::counted::Mutex;
pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(super) use std::thread::{Thread, current, park, yield_now};

/// Mini-transactions that can be between reservation and publication at one time; further ones wait for
/// microseconds.
pub(super) const SLOTS: usize = 64;

/// A value alone on its two cache lines (processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

/// Returns the slot at which the calling thread starts its search for a free one; it differs between threads.
pub(super) fn slot_hint() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static MINE: Cell<u32> = const { Cell::new(u32::MAX) });
    MINE.with(|mine| {
        if mine.get() == u32::MAX {
            // An odd stride, so that threads that start one after the other are not neighbours in memory.
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(37) % SLOTS as u32);
        }
        mine.get() as usize
    })
}
