//! Roles: work that one thread does at a time. Other threads may wait for it, and no mutex is held during the work.
//!
//! 1. A role is a flag. Its mutex is held only to read or set the flag, never during the role's work (disk
//!    writes, flushes).
//! 2. It is released when its guard is dropped, even after a panic.

use crate::counted::Mutex;
use parking_lot::Condvar;

/// Work for one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct Role {
    taken: Mutex<bool>,
    freed: Condvar,
}

/// The role is held for as long as this value exists.
#[derive(Debug)]
pub(crate) struct RoleGuard<'r>(&'r Role);

impl Role {
    /// Takes the role; waits while another thread holds it.
    pub(crate) fn take(&self) -> RoleGuard<'_> {
        let mut taken = self.taken.lock();
        while *taken {
            self.freed.wait(&mut taken);
        }
        *taken = true;
        RoleGuard(self)
    }

    /// Takes the role, unless another thread holds it.
    pub(crate) fn try_take(&self) -> Option<RoleGuard<'_>> {
        let mut taken = self.taken.lock();
        if std::mem::replace(&mut *taken, true) { None } else { Some(RoleGuard(self)) }
    }

    /// Waits until the current holder releases the role; returns at once if there is none.
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
        // Wakes all threads: a thread in `wait` does not take the role, and would consume the wake-up of a thread in
        // `take`.
        self.0.freed.notify_all();
    }
}
