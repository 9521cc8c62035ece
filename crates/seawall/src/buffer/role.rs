//! Roles: work that one thread does at a time, and that others wait for without holding a mutex across it.
//!
//! 1. A role is a flag. Its mutex is held only to read or set the flag, never during the role's work (disk
//!    writes, flushes).
//! 2. It is given up when its guard is dropped, after a panic too.

use crate::counted::Mutex;
use parking_lot::Condvar;

/// Work for one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct Role {
    taken: Mutex<bool>,
    freed: Condvar,
}

/// The role is held as long as this exists.
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

    /// Waits until the current holder gives the role up; returns at once if there is none.
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
        // Wakes all: threads in `wait` do not take the role, and would swallow the wake-up of a thread in
        // `take`.
        self.0.freed.notify_all();
    }
}
