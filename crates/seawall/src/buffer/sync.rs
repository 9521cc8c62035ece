//! The primitives that the protocol of frames uses. `model.rs` replaces this file by its own, so that the model runs
//! the code of `frame.rs` itself under every interleaving that it finds.
//!
//! The latch is parking_lot's one-word lock: shared or exclusive, eventually fair, with waiters parked outside the
//! word.
#![allow(unsafe_code)]

use parking_lot::lock_api::RawRwLock as _;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Stands between a `SeqCst` write and a `SeqCst` read of another location. These have a total order by themselves, but
/// loom treats both as weaker and needs a fence here.
#[inline]
pub(super) fn one_order() {}

/// Pauses between two checks of a word that another thread is about to change.
pub(super) fn pause(turn: u32) {
    if turn < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// One word: shared count, exclusive bit, parked bits.
pub(super) struct Latch(parking_lot::RawRwLock);

impl Latch {
    pub(super) fn new() -> Self {
        Self(parking_lot::RawRwLock::INIT)
    }

    #[inline]
    pub(super) fn lock_shared(&self) {
        self.0.lock_shared();
    }

    #[inline]
    pub(super) fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared()
    }

    #[inline]
    pub(super) fn lock_exclusive(&self) {
        self.0.lock_exclusive();
    }

    #[inline]
    pub(super) fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock_exclusive()
    }

    /// # Safety
    /// The caller holds the latch shared, and releases it with this call.
    #[inline]
    pub(super) unsafe fn unlock_shared(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock_shared() }
    }

    /// # Safety
    /// The caller holds the latch exclusively, and releases it with this call.
    #[inline]
    pub(super) unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock_exclusive() }
    }
}
