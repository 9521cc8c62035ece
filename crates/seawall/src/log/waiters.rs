//! Which thread writes the log, and how the others wait.
//!
//! The right to write is an object, the leader's state `L`. The thread that has it is the group-commit leader;
//! [`Waiters`] holds the state only while no thread leads.
//!
//! ```text
//!   enter ──no leader──> leads ──leave──> no leader; finished waiters woken, one of the rest called
//!      └────a leader────> queued ──woken: done──────────> returns
//!                            └────woken: called──> enter again
//! ```
//!
//! 1. The mutex guards state and queue and is never held across I/O, parking or waking.
//! 2. *No wake-up is lost:* when no thread leads and the queue is not empty, a thread has been called and has not
//!    arrived yet. A thread queues under the mutex and only while there is a leader, so the leader sees the queue when
//!    it puts the state back. A called thread takes the state if it is there, even if it has nothing left to wait for.
//!    It then puts the state back like any leader, which calls the next thread.
//! 3. A called waiter may find that a running thread became the leader first: that thread's `leave` serves
//!    the queue. So the log is not idle while a sleeper wakes up.
//! 4. The called thread is woken first: the next group begins while the others are still being woken.

use super::sync::{Arc, AtomicU32, Mutex, Ordering, Thread, current, park};

/// Waits in the queue.
const QUEUED: u32 = 0;
/// Its condition may hold now.
const DONE: u32 = 1;
/// Called to lead.
const CALLED: u32 = 2;

/// A thread's parking state. It belongs to one thread and is in one queue at a time.
#[derive(Debug)]
pub(super) struct Waiter {
    state: AtomicU32,
    thread: Thread,
}

impl Waiter {
    /// Makes the waiter of the calling thread.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: AtomicU32::new(DONE), thread: current() })
    }

    /// Wakes the thread, which is out of the queue and reads only its state.
    fn wake(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }

    /// Sleeps until woken. Returns [`DONE`] or [`CALLED`].
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
pub(super) enum Entered<L> {
    /// The caller leads, and gives the state to [`Waiters::leave`] afterwards.
    Lead(L),
    /// Another thread led: check again.
    Recheck,
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
struct Queue<L, W> {
    /// The state, while no thread leads.
    leader: Option<L>,
    waiting: Vec<(W, Arc<Waiter>)>,
}

/// The state and the queue, on one cache line. `W` is what a thread waits for.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Waiters<L, W> {
    queue: Mutex<Queue<L, W>>,
}

impl<L, W: Copy> Waiters<L, W> {
    pub(super) fn new(leader: L) -> Self {
        Self { queue: Mutex::new(Queue { leader: Some(leader), waiting: Vec::new() }) }
    }

    /// Leads, if no thread does. Return the state by [`Waiters::leave`].
    pub(super) fn try_lead(&self) -> Option<L> {
        self.queue.lock().leader.take()
    }

    /// Leads if no thread does. Otherwise sleeps until a leader finds `wanted` done. If a thread leads, checks `done`
    /// before it sleeps: a called thread may come too late.
    pub(super) fn enter(&self, wanted: W, waiter: &Arc<Waiter>, done: impl Fn() -> bool) -> Entered<L> {
        loop {
            {
                let mut queue = self.queue.lock();
                if let Some(leader) = queue.leader.take() {
                    return Entered::Lead(leader);
                }
                if done() {
                    return Entered::Recheck;
                }
                waiter.state.store(QUEUED, Ordering::Relaxed);
                queue.waiting.push((wanted, waiter.clone()));
            }
            if waiter.sleep() == DONE {
                return Entered::Recheck;
            }
        }
    }

    /// Returns the number of threads in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    /// Puts the state back, wakes the waiters that are `done`, and calls one of the rest.
    pub(super) fn leave(&self, leader: L, done: impl Fn(W) -> bool) -> Left {
        let mut woken: smallvec::SmallVec<[Arc<Waiter>; 32]> = smallvec::SmallVec::new();
        let (called, rest) = {
            let mut queue = self.queue.lock();
            queue.leader = Some(leader);
            queue.waiting.retain(|(wanted, waiter)| {
                let is_done = done(*wanted);
                if is_done {
                    woken.push(waiter.clone());
                }
                !is_done
            });
            let rest = queue.waiting.len();
            (if rest == 0 { None } else { Some(queue.waiting.remove(0).1) }, rest)
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
