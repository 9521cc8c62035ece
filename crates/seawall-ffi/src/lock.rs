//! What is locked, and what a call does when another transaction has the lock.

use crate::slice::Enumeration;
use seawall::{LockMode, LockWait};
use std::time::Duration;

/// What a call does when another transaction holds a lock.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// The transaction's setting; in the options of a transaction, as `Wait`.
    Default = 0,
    /// Wait, up to the option `lock_wait_timeout`.
    Wait = 1,
    /// Wait, up to `wait_ms`.
    For = 2,
    /// Fail at once.
    No = 3,
    /// Locking cursors skip the row; elsewhere as `No`.
    SkipLocked = 4,
}

/// A lock.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// None: the snapshot is read.
    None = 0,
    /// Others may read it with a lock, too.
    Shared = 1,
    /// No other transaction has it.
    Exclusive = 2,
}

impl Enumeration for Lock {
    const NAME: &'static str = "seawall_lock";
    const VALUES: &'static [Self] = &[Self::None, Self::Shared, Self::Exclusive];
}

impl Enumeration for WaitMode {
    const NAME: &'static str = "seawall_wait_mode";
    const VALUES: &'static [Self] = &[Self::Default, Self::Wait, Self::For, Self::No, Self::SkipLocked];
}

impl Lock {
    pub(crate) fn mode(self) -> Option<LockMode> {
        match self {
            Self::None => None,
            Self::Shared => Some(LockMode::Shared),
            Self::Exclusive => Some(LockMode::Exclusive),
        }
    }
}

impl WaitMode {
    pub(crate) fn wait(self, wait_ms: u64) -> Option<LockWait> {
        match self {
            Self::Default => None,
            Self::Wait => Some(LockWait::Wait),
            Self::For => Some(LockWait::For(Duration::from_millis(wait_ms))),
            Self::No => Some(LockWait::NoWait),
            Self::SkipLocked => Some(LockWait::SkipLocked),
        }
    }
}
