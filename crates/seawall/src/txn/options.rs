//! How a transaction is to run, and what it does when it meets another.

use crate::log::Durability;
use std::time::Duration;

/// What concurrent transactions may do to what this one reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub enum Isolation {
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed at the transaction's first read without a lock, or when it took
    /// its snapshot.
    #[default]
    RepeatableRead,
    /// As if transactions ran one after the other: what is read is locked, ranges included.
    Serializable,
}

/// What a transaction may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Everything.
    #[default]
    ReadWrite,
    /// Reading.
    ReadOnly,
}

/// What a transaction does when it writes, or reads for update, a row that another transaction changed after its
/// snapshot. It has a snapshot at repeatable read, and at serializable if it has called
/// [`crate::Transaction::take_snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// Fail with [`crate::Error::WriteConflict`]: no update is lost (snapshot isolation).
    #[default]
    Fail,
    /// Act on the latest committed version, as InnoDB does.
    Latest,
}

/// What to do when another transaction holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockWait {
    /// Wait, up to the lock wait time-out.
    #[default]
    Wait,
    /// Wait, up to this long, whatever the lock wait time-out is. Zero is [`LockWait::NoWait`].
    For(Duration),
    /// [`crate::Error::LockTimeout`] at once.
    NoWait,
    /// Locking cursors skip the row; elsewhere as [`LockWait::NoWait`].
    SkipLocked,
}

/// How a transaction is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxOptions {
    /// What others may do to what it reads.
    pub isolation: Isolation,
    /// What it may do.
    pub access: Access,
    /// What its commit waits for; the database's option when `None`.
    pub durability: Option<Durability>,
    /// What it does about later versions.
    pub on_conflict: OnConflict,
    /// Follows InnoDB where a SQL server relies on it. A change that is refused, because the key exists or there is no
    /// such row, takes no snapshot, also with [`OnConflict::Fail`]. And at read committed, too, key locks beyond
    /// `lock_memory_per_transaction` become a range, instead of [`crate::Error::TooManyLocks`].
    pub like_innodb: bool,
    /// What it does when another transaction holds a lock.
    pub wait: LockWait,
    /// A number that the caller gives it, which reports of lock waits show: a connection's number, for
    /// example. 0 if it has none.
    pub tag: u64,
}

impl TxOptions {
    /// Whether its key locks are never replaced by a range.
    pub(super) fn keeps_points(&self) -> bool {
        self.isolation == Isolation::ReadCommitted && !self.like_innodb
    }
}
