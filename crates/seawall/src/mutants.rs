//! Defects planted on purpose, one at a time, that the crash rig must find (docs/recovery.md, "Planted
//! defects").
//!
//! 1. Without the cargo feature `mutants`, [`Planted`] has no bytes and [`Planted::has`] is a constant
//!    `false`: no code of a defect is compiled. Only this crate's own tests turn the feature on, through its
//!    dev-dependency on itself, so that they need no second build of it.
//! 2. With the feature a defect belongs to a database: one that a thread opens inside `plant` has it, in all
//!    its threads, until it is closed.
//! 3. A defect is one condition at the place of the correct action. It never fails or panics by itself: the
//!    rig must notice it.

/// A defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "its module is private then"))]
pub enum Mutant {
    /// A page is written home without its log being flushed.
    PageBeforeLog,
    /// A page is written home when its log is written, not flushed.
    WrittenIsFlushed,
    /// The doublewrite file is not used, though the control block claims that it is.
    NoDoublewrite,
    /// Pages that are written once are not written as atomic writes, where only those are whole.
    AtomicUnasked,
    /// Copies of pages are written and not flushed before their pages go home.
    DoublewriteUnflushed,
    /// An area of the doublewrite file is used again before the home writes of its last batch were flushed.
    DoublewriteReused,
    /// A checkpoint passes pages that are still dirty.
    CheckpointTooNew,
    /// A checkpoint is written before the data file is flushed.
    CheckpointUnflushed,
    /// The entry after the end of the log is accepted by its header alone.
    EndTooFar,
    /// Transactions that were open at a crash are not rolled back.
    LosersStay,
    /// A failed flush of the log or of the data file is repeated, and its second result believed.
    FlushRetried,
    /// The directory is not synced after a segment of the log got its name.
    DirectoryUnsynced,
    /// A commit is acknowledged when it is written.
    EarlyAcknowledgement,
    /// Purge treats the oldest transaction that some view does not see as visible to all views.
    PurgeEarly,
    /// Purge removes the row of a key without checking that it is still the deleted one.
    RevivedPurged,
    /// An insert that is undone and the end of its undo are two mini-transactions.
    UndoTwice,
    /// An opening uses the incarnation of the one before, and leaves that one's log beyond the end.
    GhostTail,
    /// A page that is read is not verified.
    PageUnchecked,
    /// The log ends at its first broken entry, though a later one proves that it was flushed.
    UnprovenEnd,
    /// Of the deferred changes of a page only the first is applied.
    DeferredCutOff,
    /// Deferred changes are applied twice.
    DeferredTwice,
    /// Deferred changes are applied from the newest to the oldest.
    DeferredBackward,
    /// A checkpoint passes pages with deferred changes.
    CheckpointPassesDeferred,
    /// An opening does not look at the ring of the one that died.
    RingForgotten,
}

impl Mutant {
    /// All there are.
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
        /// The defect that `plant` gives to a database that this thread opens now.
        pub(crate) fn here() -> Self {
            Self(PLANT.get())
        }

        pub(crate) fn has(self, mutant: Mutant) -> bool {
            self.0 == Some(mutant)
        }
    }

    /// Runs `work`; the databases that it opens on this thread have the defect.
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
