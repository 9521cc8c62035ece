//! The thread-pool backend: long-lived workers that run requests with plain positioned system calls.
//!
//! 1. Workers start as requests arrive, up to [`WORKERS_MAX`], and live until the disk is dropped.
//! 2. Dropping the disk completes all submitted requests first; none is abandoned.

use super::raw;
use super::waiting::Waiting;
use crate::disk::{Completer, Completion, Request, Ticket};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Maximum number of workers, and so of requests at the device at once.
pub(super) const WORKERS_MAX: usize = 32;

#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    waiting: Waiting,
    completed: AtomicUsize,
    in_flight: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<(Request, Completer)>,
    idle: usize,
    closed: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one request to its end.
    fn run(&self, request: Request, completer: Completer) {
        completer.complete(raw::run(request));
        self.in_flight.fetch_sub(1, Ordering::Release);
        self.completed.fetch_add(1, Ordering::Release);
        self.waiting.completed();
    }

    fn work(&self) {
        let mut queue = self.queue();
        loop {
            if let Some((request, completer)) = queue.requests.pop_front() {
                drop(queue);
                self.run(request, completer);
                queue = self.queue();
            } else if queue.closed {
                return;
            } else {
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

impl Pool {
    pub(super) fn new() -> Self {
        Self { shared: Arc::default(), workers: Mutex::default() }
    }

    pub(super) fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let mut tickets = Vec::with_capacity(batch.len());
        let mut queue = self.shared.queue();
        for request in batch {
            let (ticket, completer) = Ticket::new();
            self.shared.in_flight.fetch_add(1, Ordering::Relaxed);
            queue.requests.push_back((request, completer));
            tickets.push(ticket);
        }
        let short_of = queue.requests.len().saturating_sub(queue.idle);
        drop(queue);
        self.shared.work.notify_all();
        if short_of > 0 {
            let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..short_of.min(WORKERS_MAX - workers.len().min(WORKERS_MAX)) {
                let shared = self.shared.clone();
                match std::thread::Builder::new().name("seawall-io".into()).spawn(move || shared.work()) {
                    Ok(worker) => workers.push(worker),
                    Err(_) if !workers.is_empty() => break,
                    // No worker thread could be started: the submitter runs the requests itself.
                    Err(_) => {
                        drop(workers);
                        loop {
                            // A separate statement, so that the queue is unlocked while the request runs.
                            let next = self.shared.queue().requests.pop_front();
                            let Some((request, completer)) = next else { break };
                            self.shared.run(request, completer);
                        }
                        break;
                    }
                }
            }
        }
        tickets
    }

    pub(super) fn drive(&self, block: bool) -> usize {
        if block
            && self.shared.in_flight.load(Ordering::Acquire) > 0
            && self.shared.completed.load(Ordering::Acquire) == 0
        {
            self.shared.waiting.sleep_until(true, || {
                self.shared.in_flight.load(Ordering::Acquire) == 0 || self.shared.completed.load(Ordering::Acquire) > 0
            });
        }
        self.shared.completed.swap(0, Ordering::AcqRel)
    }

    pub(super) fn wait(&self, ticket: &Ticket) -> Completion {
        self.shared.waiting.sleep_until(false, || ticket.is_done());
        ticket.take().expect("a completion is taken once")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_all();
        for worker in self.workers.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Err(panic) = worker.join() {
                if !std::thread::panicking() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}
