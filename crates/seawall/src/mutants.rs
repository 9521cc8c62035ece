//! Defects planted on purpose, one at a time, that the crash rig must find (docs/recovery.md, "Planted
//! defects").
//!
//! 1. Without the cargo feature `mutants`, [`Planted`] has no bytes and [`Planted::has`] is a constant `false`: no code
//!    of a defect is compiled. Only this crate's own tests turn the feature on, through its dev-dependency on itself,
//!    so that they need no second build of the crate.
//! 2. With the feature, a defect belongs to a database: a database that a thread opens inside `plant` has the defect in
//!    all its threads until it is closed.
//! 3. A defect is a single condition at the place that takes the correct action. It never fails or panics by itself:
//!    the rig must notice it.

/// A defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "its module is private then"))]
pub enum Mutant {
    /// A page is written to the data file before its log is flushed.
    PageBeforeLog,
    /// A page is written to the data file when its log is written but not flushed.
    WrittenIsFlushed,
    /// The doublewrite file is not used, though the control block claims that it is.
    NoDoublewrite,
    /// Pages that bypass the doublewrite file are written without requesting an atomic write, although only an atomic
    /// write cannot tear.
    AtomicUnasked,
    /// The copies in the doublewrite file are not flushed before their pages are written to the data file.
    DoublewriteUnflushed,
    /// An area of the doublewrite file is used again before the data-file writes of its last batch are flushed.
    DoublewriteReused,
    /// A checkpoint passes pages that are still dirty.
    CheckpointTooNew,
    /// A checkpoint is written before the data file is flushed.
    CheckpointUnflushed,
    /// The entry after the end of the log is accepted on its header alone.
    EndTooFar,
    /// Transactions that were open at a crash are not rolled back.
    LosersStay,
    /// A failed flush of the log or of the data file is retried, and the second result is trusted.
    FlushRetried,
    /// The directory is not synced after a log segment gets its name.
    DirectoryUnsynced,
    /// A commit is acknowledged when its log is written but not flushed.
    EarlyAcknowledgement,
    /// Purge treats the oldest transaction that is invisible to some view as visible to all views.
    PurgeEarly,
    /// Purge removes the row of a key without checking that it is still the deleted one.
    RevivedPurged,
    /// Rollback undoes an insertion or a deletion and cuts off its undo record in two mini-transactions, with a flush
    /// between.
    UndoTwice,
    /// An opening uses the incarnation of the previous opening, and leaves that opening's log beyond the end.
    GhostTail,
    /// A page is not verified when it is read.
    PageUnchecked,
    /// The log ends at its first broken entry, although a later entry proves that the broken one was flushed.
    UnprovenEnd,
    /// Only the first of a page's deferred changes is applied.
    DeferredCutOff,
    /// Deferred changes are applied twice.
    DeferredTwice,
    /// Deferred changes are applied from the newest to the oldest.
    DeferredBackward,
    /// A checkpoint passes pages with deferred changes.
    CheckpointPassesDeferred,
    /// An opening ignores the log ring that a killed process left.
    RingForgotten,
}

impl Mutant {
    /// All defects.
    #[cfg(feature = "mutants")]
    pub const ALL: [Self; 24] = [
        Self::PageBeforeLog,
        Self::WrittenIsFlushed,
        Self::NoDoublewrite,
        Self::AtomicUnasked,
        Self::DoublewriteUnflushed,
        Self::DoublewriteReused,
        Self::CheckpointTooNew,
        Self::CheckpointUnflushed,
        Self::EndTooFar,
        Self::LosersStay,
        Self::FlushRetried,
        Self::DirectoryUnsynced,
        Self::EarlyAcknowledgement,
        Self::PurgeEarly,
        Self::RevivedPurged,
        Self::UndoTwice,
        Self::GhostTail,
        Self::PageUnchecked,
        Self::UnprovenEnd,
        Self::DeferredCutOff,
        Self::DeferredTwice,
        Self::DeferredBackward,
        Self::CheckpointPassesDeferred,
        Self::RingForgotten,
    ];
}

/// The defect of one database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planted(#[cfg(feature = "mutants")] Option<Mutant>);

#[cfg(not(feature = "mutants"))]
impl Planted {
    pub(crate) const fn here() -> Self {
        Self()
    }

    #[inline]
    pub(crate) const fn has(self, _: Mutant) -> bool {
        false
    }
}

#[cfg(feature = "mutants")]
mod planting {
    use super::{Mutant, Planted};
    use std::cell::Cell;

    thread_local! {
        static PLANT: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    impl Planted {
        /// Returns the defect that `plant` gives to a database that this thread opens now.
        pub(crate) fn here() -> Self {
            Self(PLANT.get())
        }

        pub(crate) fn has(self, mutant: Mutant) -> bool {
            self.0 == Some(mutant)
        }
    }

    /// Runs `work`; databases that it opens on this thread have the defect.
    pub fn plant<T>(mutant: Option<Mutant>, work: impl FnOnce() -> T) -> T {
        struct Before(Option<Mutant>);
        impl Drop for Before {
            fn drop(&mut self) {
                PLANT.set(self.0);
            }
        }
        let _before = Before(PLANT.replace(mutant));
        work()
    }
}
#[cfg(feature = "mutants")]
pub use planting::plant;
