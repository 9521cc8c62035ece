//! Work that must not be left half done: a panic in the middle of it, or a forgotten step, poisons the
//! database.
//!
//! 1. The guard is created before the first step that other threads depend on, and exists until [`Unfinished::done`].
//!    If it is dropped without that call, it poisons the database: otherwise other threads would wait for ever for a
//!    step that never comes.
//! 2. If a failure has already poisoned the database, that first error is kept.
//! 3. The same holds for work that begins while its thread unwinds from another panic: it poisons only if it is not
//!    finished.

use crate::error::{Error, Health};

/// Poisons if it is dropped before [`Unfinished::done`].
#[derive(Debug)]
pub(crate) struct Unfinished<'h> {
    health: &'h Health,
    what: &'static str,
    /// The thread was already unwinding from another panic.
    panicking: bool,
}

impl<'h> Unfinished<'h> {
    /// Begins the work that `what` names.
    pub(crate) fn begin(health: &'h Health, what: &'static str) -> Self {
        Self { health, what, panicking: std::thread::panicking() }
    }

    /// Ends the work.
    pub(crate) fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.health.check().is_err() {
            return;
        }
        let how = if std::thread::panicking() && !self.panicking { "panicked" } else { "was given up half-way" };
        // The next user of the database gets the error.
        drop(self.health.poison(Error::Usage(format!("{} {how}: this is a bug, please report it", self.what))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn first_error(health: &Health) -> Option<String> {
        health.first_error().map(|error| error.to_string())
    }

    #[test]
    fn finished_work_leaves_no_trace_and_unfinished_work_poisons() {
        let health = Health::default();
        Unfinished::begin(&health, "a test").done();
        health.check().unwrap();
        drop(Unfinished::begin(&health, "a test"));
        assert!(first_error(&health).unwrap().contains("a test was given up half-way"));

        let health = Health::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _unfinished = Unfinished::begin(&health, "a test");
            panic!("in the middle");
        }));
        assert!(panicked.is_err());
        assert!(first_error(&health).unwrap().contains("a test panicked"));
    }

    /// Work in a `Drop` that runs because of another panic.
    #[test]
    fn work_that_begins_while_its_thread_unwinds_is_judged_by_whether_it_is_finished() {
        struct Works<'h>(&'h Health, bool);
        impl Drop for Works<'_> {
            fn drop(&mut self) {
                let work = Unfinished::begin(self.0, "a test");
                if self.1 {
                    work.done();
                }
            }
        }
        for finishes in [true, false] {
            let health = Health::default();
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _works = Works(&health, finishes);
                panic!("elsewhere");
            }));
            assert!(panicked.is_err());
            assert_eq!(health.check().is_ok(), finishes);
            assert!(first_error(&health).is_none_or(|error| error.contains("given up")));
        }
    }
}
