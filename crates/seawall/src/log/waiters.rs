//! Which thread writes the log, and how the others wait.
//!
//! The right to write is an object, the *pen* `P`. The thread that has it is the group-commit leader; while a
//! thread has it, the desk is empty.
//!
//! ```text
//!   enter ──pen on the desk──> leads ──leave──> pen on the desk; finished waiters woken, one of the rest called
//!      └────desk empty──────> queued ──woken: done──────────> returns
//!                                └────woken: called──> enter again
//! ```
//!
//! 1. The mutex guards desk and queue and is never held across I/O, parking or waking.
//! 2. *No wake-up is lost:* when the pen is on the desk and the queue is not empty, a thread has been called
//!    and has not arrived yet. A thread queues under the mutex and only while the desk is empty, so the
//!    leader sees the queue when it puts the pen back. A called thread takes the pen if it is there, even if
//!    it has nothing left to wait for. It then puts the pen back like any leader, which calls the next.
//! 3. A called waiter may find that a running thread took the pen first: that thread's `leave` serves the
//!    queue. So the log is not idle while a sleeper wakes up.
//! 4. The called thread is woken first: the next group begins while the others are still being woken.

use super::sync::{Arc, AtomicU32, Mutex, Ordering, Thread, current, park};

/// Waits in the queue.
const QUEUED: u32 = 0;
/// Its condition may hold now.
const DONE: u32 = 1;
/// Called to take the pen.
const CALLED: u32 = 2;

/// A thread's parking state. It belongs to one thread and is in one queue at a time.
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

    /// Wakes it. It is out of the queue, and reads only its state.
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

/// How a wait ended.
#[derive(Debug)]
pub(super) enum Turn<P> {
    /// The caller leads, and gives the pen to [`Waiters::leave`] afterwards.
    Lead(P),
    /// Another thread led: check again.
    Look,
}

/// The waiters that a leader found when it left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// Woken as done.
    pub(super) done: usize,
    /// Still waiting, the called thread included.
    pub(super) rest: usize,
}

#[derive(Debug)]
struct Desk<P, W> {
    pen: Option<P>,
    queue: Vec<(W, Arc<Waiter>)>,
}

/// The desk and the queue, on one cache line. `W` is what a thread waits for.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Waiters<P, W> {
    desk: Mutex<Desk<P, W>>,
}

impl<P, W: Copy> Waiters<P, W> {
    pub(super) fn new(pen: P) -> Self {
        Self { desk: Mutex::new(Desk { pen: Some(pen), queue: Vec::new() }) }
    }

    /// Takes the pen, if it is on the desk. Return it by [`Waiters::leave`].
    pub(super) fn try_lead(&self) -> Option<P> {
        self.desk.lock().pen.take()
    }

    /// Leads if no thread does. Otherwise sleeps until a leader finds `wanted` done. If the pen is taken,
    /// `done` checks this first: a called thread may come too late.
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

    /// Threads asleep in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.desk.lock().queue.len()
    }

    /// Puts the pen back, wakes the waiters that are `done`, and calls one of the rest.
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
