//! Locks that a build can count, and means to avoid shared cache lines: padding, striped reference counts, thread
//! numbers.
//!
//! The locks are parking_lot's own types. A build with the feature `contention` wraps them: each attempt to
//! lock adds to a count of the calling thread, which no other thread writes. Page latches are not counted
//! here (`buffer/sync.rs`).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(feature = "contention"))]
pub(crate) use parking_lot::{Mutex, RwLock};

#[cfg(feature = "contention")]
pub use counting::locks_taken;
#[cfg(feature = "contention")]
pub(crate) use counting::{Mutex, RwLock};

/// A value alone on its two cache lines (processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// Returns the number of the calling thread, counted from 0, for choosing a stripe. The choice may only affect which
/// threads share a cache line.
#[inline]
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.with(|mine| *mine)
}

/// The number of reference counts of one value.
const COUNTS: usize = 16;

/// Several reference counts of one value, so that threads that take and release references do not all write the same
/// cache line.
#[derive(Debug)]
pub struct Refs<T>(Arc<Vec<Ref<T>>>);

/// One reference to a value of [`Refs`], which keeps the value alive. Its clones share its count.
#[derive(Debug)]
pub struct Ref<T>(Arc<Padded<Arc<T>>>);

impl<T> Refs<T> {
    /// Returns the reference counts of `value`.
    pub fn new(value: &Arc<T>) -> Self {
        Self(Arc::new((0..COUNTS).map(|_| Ref::from(value.clone())).collect()))
    }

    /// Returns a reference through the calling thread's count.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Ref<T> {
        self.0[thread_number() % COUNTS].clone()
    }
}

impl<T> Clone for Refs<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> From<Arc<T>> for Ref<T> {
    fn from(value: Arc<T>) -> Self {
        Self(Arc::new(Padded(value)))
    }
}

impl<T> Clone for Ref<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0.0
    }
}

#[cfg(feature = "contention")]
#[allow(dead_code, missing_docs, unreachable_pub)] // like the types that they wrap
mod counting {
    use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    use std::cell::Cell;

    thread_local!(static TAKEN: Cell<u64> = const { Cell::new(0) });

    fn count() {
        TAKEN.set(TAKEN.get() + 1);
    }

    /// Returns how many mutexes and read-write locks the calling thread has taken or tried to take.
    #[must_use]
    pub fn locks_taken() -> u64 {
        TAKEN.get()
    }

    #[derive(Debug, Default)]
    pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub const fn new(value: T) -> Self {
            Self(parking_lot::const_mutex(value))
        }
    }

    impl<T: ?Sized> Mutex<T> {
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            count();
            self.0.lock()
        }

        #[inline]
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            count();
            self.0.try_lock()
        }

        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    #[derive(Debug, Default)]
    pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        pub const fn new(value: T) -> Self {
            Self(parking_lot::const_rwlock(value))
        }
    }

    impl<T: ?Sized> RwLock<T> {
        #[inline]
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            count();
            self.0.read()
        }

        #[inline]
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            count();
            self.0.write()
        }

        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }
}
