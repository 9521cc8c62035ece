//! Roles: work that one thread does at a time, and that others wait for without holding a mutex across it.
//!
//! 1. A role is a flag; its mutex is held only to look at the flag, never while the role's work (disk writes, flushes)
//!    is done.
//! 2. It is given up when its guard is dropped, after a panic too.

use crate::counted::Mutex;
use parking_lot::Condvar;

/// Work for one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct Role {
    taken: Mutex<bool>,
    freed: Condvar,
}

/// Whoever holds it has the role.
#[derive(Debug)]
pub(crate) struct RoleGuard<'r>(&'r Role);

impl Role {
    /// Waits for the role.
    pub(crate) fn take(&self) -> RoleGuard<'_> {
        let mut taken = self.taken.lock();
        while *taken {
            self.freed.wait(&mut taken);
        }
        *taken = true;
        RoleGuard(self)
    }

    /// The role, unless another thread has it.
    pub(crate) fn try_take(&self) -> Option<RoleGuard<'_>> {
        let mut taken = self.taken.lock();
        if std::mem::replace(&mut *taken, true) { None } else { Some(RoleGuard(self)) }
    }

    /// Waits until whoever has the role has given it up once; returns at once when nobody has it.
    pub(crate) fn wait(&self) {
        let mut taken = self.taken.lock();
        if *taken {
            self.freed.wait(&mut taken);
        }
    }
}

impl Drop for RoleGuard<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        // All: those in `wait` want no more than to know that it is done, and would swallow the wake-up of one who
        // wants the role.
        self.0.freed.notify_all();
    }
}
