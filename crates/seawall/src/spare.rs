//! Memory that a thread keeps for its next use.
//!
//! A thread that is ending has none: a transaction that another destructor drops may find it gone already.

use std::cell::Cell;
use std::thread::LocalKey;

/// Takes the memory that the thread keeps.
#[inline]
pub(crate) fn take<T: Default>(spare: &'static LocalKey<Cell<T>>) -> T {
    spare.try_with(Cell::take).unwrap_or_default()
}

/// Keeps memory for the thread's next [`take`].
#[inline]
pub(crate) fn keep<T>(spare: &'static LocalKey<Cell<T>>, memory: T) {
    let _kept = spare.try_with(|kept| kept.set(memory));
}
