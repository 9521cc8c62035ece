//! Lock modes, and what a call does when another transaction holds the lock.

use crate::slice::Enumeration;
use seawall::{LockMode, LockWait};
use std::time::Duration;

/// What a call does when another transaction holds a lock.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// The transaction's setting. In the options of a transaction, the same as `SEAWALL_WAIT_MODE_WAIT`.
    Default = 0,
    /// Wait at most the time of the option `lock_wait_timeout`.
    Wait = 1,
    /// Wait at most `wait_ms`.
    For = 2,
    /// Fail at once.
    No = 3,
    /// Locking cursors skip the row; other calls fail at once, like `SEAWALL_WAIT_MODE_NO`.
    SkipLocked = 4,
}

/// The lock that a read takes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// No lock: the snapshot is read.
    None = 0,
    /// Other transactions may also hold a shared lock.
    Shared = 1,
    /// No other transaction may hold a lock.
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
