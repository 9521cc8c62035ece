//! Positions that a transaction can be rolled back to.

use crate::format::UndoPtr;

/// A position that a transaction can be rolled back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavepointAt {
    /// The last undo record at that time.
    pub(super) last: UndoPtr,
    /// [`super::Txn::changes`] at that time, or at the savepoint that the transaction had just been rolled back to.
    pub(super) changes: u64,
}

impl SavepointAt {
    /// Before the first change.
    pub const BEGIN: Self = Self { last: UndoPtr::NONE, changes: 0 };
}

/// Records which savepoints of a transaction no longer exist because it was rolled back to an earlier one.
///
/// 1. A savepoint has a label: the count of changes and undone changes when it was made. A rollback at count
///    `after` to label `to` removes those whose labels lie between the two.
/// 2. Right after a rollback the transaction is where it was at the savepoint, so a savepoint made at that moment gets
///    the same label.
/// 3. An interval is kept only if a savepoint in it was given out, and only until a rollback goes back beyond
///    it. So statements that set a savepoint, fail and are rolled back leave nothing behind, however many
///    there are.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// `to` and `after` of rollbacks; both rise.
    intervals: Vec<(u64, u64)>,
    /// The last rollback: its `to` and `after`.
    last: Option<(u64, u64)>,
    /// The highest label that was given out and still exists.
    given_out: u64,
}

impl Gone {
    /// The label of a savepoint that is made after `changes` changes.
    pub(super) fn label(&self, changes: u64) -> u64 {
        self.last.filter(|(_, after)| *after == changes).map_or(changes, |(to, _)| to)
    }

    /// Notes that the user has a savepoint with this label, and may roll back to it at any time.
    pub(super) fn give_out(&mut self, label: u64) {
        self.given_out = self.given_out.max(label);
    }

    /// Whether a savepoint with this label no longer exists.
    pub(super) fn contains(&self, label: u64) -> bool {
        // Of the rollbacks after the savepoint, the first went back furthest.
        let at = self.intervals.partition_point(|(_, after)| *after <= label);
        self.intervals.get(at).is_some_and(|(to, _)| *to < label)
    }

    /// Notes a rollback to label `to`, or a partial one (`all_of_it` is false), after which the count of
    /// changes is `after`.
    pub(super) fn rolled_back(&mut self, to: u64, after: u64, all_of_it: bool) {
        let kept = self.intervals.partition_point(|(earlier, _)| *earlier < to);
        if self.given_out > to || kept < self.intervals.len() {
            self.intervals.truncate(kept);
            self.intervals.push((to, after));
        }
        self.given_out = self.given_out.min(to);
        self.last = all_of_it.then_some((to, after));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.intervals.len()
    }
}
