//! User closures that run under a latch.

use crate::error::{Error, Result};
use std::cell::Cell;

thread_local! {
    /// Whether this thread is running a user's closure under a latch.
    static LENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a user's closure under a latch. During it, calls that need pages or a mini-transaction are refused, because
/// they could wait for that latch.
pub fn lend<T>(f: impl FnOnce() -> T) -> T {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            LENT.set(false);
        }
    }
    LENT.set(true);
    let _back = Back;
    f()
}

/// # Errors
/// [`Error::Usage`] in a closure that [`lend`] runs.
pub fn may_latch() -> Result<()> {
    if LENT.get() {
        let why = "the database is called by a closure that it has lent a value of one of its pages: copy the value, \
            and call afterwards";
        return Err(Error::Usage(why.into()));
    }
    Ok(())
}
