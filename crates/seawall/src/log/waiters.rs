//! Who writes the log, and who waits for whom.
//!
//! The right to write is a thing, the *pen* `P`: whoever has it leads, and while somebody has it the desk is empty.
//!
//! ```text
//!   enter ──pen on the desk──> leads ──leave──> pen on the desk, those who are done woken, one of the rest called
//!      └────desk empty──────> queued ──woken: done──────────> returns
//!                                └────woken: called──> enter again
//! ```
//!
//! 1. The mutex guards desk and queue and is never held across I/O, parking or waking.
//! 2. *No wake-up is lost:* when the pen lies on the desk and the queue is not empty, somebody has been called and has
//!    not come yet. Queueing happens under the mutex and only while the desk is empty, so whoever has the pen will see
//!    the queue when putting it back; and whoever was called takes the pen if it is there, even if it has nothing left
//!    to wait for, and then puts it back like any leader, which calls the next.
//! 3. A called waiter may find that a running thread was faster with the pen: that one's `leave` sees to the queue. So
//!    the log is not idle while a sleeper wakes up.
//! 4. The called one is woken first: the next group begins while the others are still being woken.

use super::sync::{Arc, AtomicU32, Mutex, Ordering, Thread, current, park};

/// Waiting in the queue.
const QUEUED: u32 = 0;
/// What it waits for may be there.
const DONE: u32 = 1;
/// Asked to take the pen.
const CALLED: u32 = 2;

/// A thread's means to wait. Of one thread, in one queue at a time.
#[derive(Debug)]
pub(super) struct Waiter {
    state: AtomicU32,
    thread: Thread,
}

impl Waiter {
    /// For the calling thread.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: AtomicU32::new(DONE), thread: current() })
    }

    /// Wakes it. It is out of the queue, and looks at nothing but its state.
    fn wake(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }

    /// Returns how it was woken.
    fn sleep(&self) -> u32 {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state != QUEUED {
                return state;
            }
            park();
        }
    }
}

/// What became of a wait.
#[derive(Debug)]
pub(super) enum Turn<P> {
    /// The caller leads, and gives the pen to [`Waiters::leave`] afterwards.
    Lead(P),
    /// Somebody else led: look again.
    Look,
}

/// Whom a leader left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// Woken as done.
    pub(super) done: usize,
    /// Still waiting, the called one included.
    pub(super) rest: usize,
}

#[derive(Debug)]
struct Desk<P, W> {
    pen: Option<P>,
    queue: Vec<(W, Arc<Waiter>)>,
}

/// The desk and the queue, on one cache line. `W` is what somebody waits for.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Waiters<P, W> {
    desk: Mutex<Desk<P, W>>,
}

impl<P, W: Copy> Waiters<P, W> {
    pub(super) fn new(pen: P) -> Self {
        Self { desk: Mutex::new(Desk { pen: Some(pen), queue: Vec::new() }) }
    }

    /// The pen, if nobody has it. It must go back by [`Waiters::leave`].
    pub(super) fn try_lead(&self) -> Option<P> {
        self.desk.lock().pen.take()
    }

    /// Leads if nobody does, else sleeps until somebody who led says that `wanted` is done. `done` says whether it is,
    /// for those who were called and came too late.
    pub(super) fn enter(&self, wanted: W, waiter: &Arc<Waiter>, done: impl Fn() -> bool) -> Turn<P> {
        loop {
            {
                let mut desk = self.desk.lock();
                if let Some(pen) = desk.pen.take() {
                    return Turn::Lead(pen);
                }
                if done() {
                    return Turn::Look;
                }
                waiter.state.store(QUEUED, Ordering::Relaxed);
                desk.queue.push((wanted, waiter.clone()));
            }
            if waiter.sleep() == DONE {
                return Turn::Look;
            }
        }
    }

    /// How many sleep in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.desk.lock().queue.len()
    }

    /// Puts the pen back, wakes those for whom `done`, and calls one of the rest.
    pub(super) fn leave(&self, pen: P, done: impl Fn(W) -> bool) -> Left {
        let mut woken: smallvec::SmallVec<[Arc<Waiter>; 32]> = smallvec::SmallVec::new();
        let (called, rest) = {
            let mut desk = self.desk.lock();
            desk.pen = Some(pen);
            desk.queue.retain(|(wanted, waiter)| {
                let is_done = done(*wanted);
                if is_done {
                    woken.push(waiter.clone());
                }
                !is_done
            });
            let rest = desk.queue.len();
            (if rest == 0 { None } else { Some(desk.queue.remove(0).1) }, rest)
        };
        if let Some(called) = called {
            called.wake(CALLED);
        }
        for waiter in &woken {
            waiter.wake(DONE);
        }
        Left { done: woken.len(), rest }
    }
}
