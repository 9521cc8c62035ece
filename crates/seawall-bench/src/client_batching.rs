//! Client batching: the application collects the puts of several threads and writes them as one transaction
//! of the store.
//!
//! 1. A thread that finds no leader becomes the leader: it takes up to the limit of waiting puts, writes them
//!    in one durable batch, and wakes their threads.
//! 2. Before a batch the leader waits for the threads of the last batch and those that came just too late for it, as
//!    Seawall's group commit does: at most as long as the last write took, and at most [`GATHER_TIME`] or an eighth of
//!    that write, whichever is longer.
//! 3. A put returns when the batch that holds it is durable. When the batch fails, each put in it fails.
//! 4. The leader writes batches until its own put is done, then hands over to the thread that has waited
//!    longest.

use crate::store::{Result, Session};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The longest wait for other threads, unless an eighth of a write is longer.
pub const GATHER_TIME: Duration = Duration::from_micros(200);

/// A row to write.
type Row = (Vec<u8>, Vec<u8>);

/// Batches the puts of the threads that share it.
#[derive(Debug)]
pub struct ClientBatching {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Row, SyncSender<Turn>)>,
    /// Whether a thread leads.
    led: bool,
    /// Puts of the last batch, and those that waited when it was written.
    expected: usize,
    /// How long the last batch took to write.
    last_write: Duration,
    batches: u64,
    batched_puts: u64,
}

/// What happens to a waiting put.
#[derive(Debug)]
enum Turn {
    /// Its thread leads.
    Lead,
    Done(Result<()>),
}

impl ClientBatching {
    /// Writes up to `limit` puts as one transaction.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), state: Mutex::default() }
    }

    /// Puts of a batch so far, on average.
    pub fn mean(&self) -> f64 {
        let state = self.state.lock();
        state.batched_puts as f64 / state.batches.max(1) as f64
    }

    /// Sets the value of `key` in a batch, which `session` or that of another thread writes.
    ///
    /// # Errors
    /// Those of the batch.
    pub fn put(&self, session: &mut dyn Session, key: &[u8], value: &[u8]) -> Result<()> {
        let (tell, own) = sync_channel(1);
        let leads = {
            let mut state = self.state.lock();
            state.waiting.push_back(((key.to_vec(), value.to_vec()), tell));
            !std::mem::replace(&mut state.led, true)
        };
        if !leads {
            if let Ok(Turn::Done(outcome)) = own.recv() {
                return outcome;
            }
        }
        self.lead(session, &own)
    }

    /// Writes batches until this thread's own put is done, then hands over.
    fn lead(&self, session: &mut dyn Session, own: &Receiver<Turn>) -> Result<()> {
        loop {
            if let Ok(Turn::Done(outcome)) = own.try_recv() {
                let mut state = self.state.lock();
                let next = state.waiting.front();
                // The receiver of a waiting put lives until it gets the outcome.
                state.led = next.is_some_and(|(_, waiter)| waiter.send(Turn::Lead).is_ok());
                return outcome;
            }
            self.gather();
            let mut state = self.state.lock();
            let count = state.waiting.len().min(self.limit);
            let (batch, waiters): (Vec<Row>, Vec<_>) = state.waiting.drain(..count).unzip();
            drop(state);
            let began = Instant::now();
            let written = session.load(&batch, true);
            let mut state = self.state.lock();
            state.last_write = began.elapsed();
            state.expected = count + state.waiting.len();
            state.batches += 1;
            state.batched_puts += count as u64;
            drop(state);
            waiters.iter().for_each(|waiter| waiter.send(Turn::Done(written.clone())).unwrap_or(()));
        }
    }

    /// Waits for the threads that are about to put again (2).
    fn gather(&self) {
        let began = Instant::now();
        loop {
            let state = self.state.lock();
            let patience = state.last_write.min(GATHER_TIME.max(state.last_write / 8));
            if state.waiting.len() >= state.expected.min(self.limit) || began.elapsed() >= patience {
                break;
            }
            drop(state);
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Error, While};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// A session that keeps its rows, works slowly, and fails on request.
    #[derive(Default)]
    struct Slow {
        batches: Mutex<Vec<usize>>,
        rows: Mutex<Vec<Row>>,
        fails: AtomicBool,
    }

    impl Session for &Slow {
        fn get(&mut self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> Result<bool> {
            Ok(false)
        }
        fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
            Err(Error::failed("slow", "puts must come as batches"))
        }
        fn load(&mut self, rows: &[Row], durable: bool) -> Result<()> {
            assert!(durable);
            std::thread::sleep(std::time::Duration::from_millis(1));
            if self.fails.load(Ordering::Relaxed) {
                return Err(Error::failed("slow", "no space"));
            }
            self.batches.lock().push(rows.len());
            self.rows.lock().extend_from_slice(rows);
            Ok(())
        }
        fn walk(&mut self, _: &[u8], _: Option<&[u8]>, _: &mut While<'_>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_put_is_written_once_in_batches_within_the_limit() {
        let (slow, batching) = (Slow::default(), ClientBatching::new(4));
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let (mut session, batching) = (&slow, &batching);
                scope.spawn(move || {
                    for i in 0..50u8 {
                        batching.put(&mut session, &[thread, i], &[i]).unwrap();
                    }
                });
            }
        });
        let mut rows = slow.rows.lock().clone();
        rows.sort();
        rows.dedup();
        let batches = slow.batches.lock();
        assert_eq!((rows.len(), batches.iter().sum::<usize>()), (400, 400));
        assert!(batches.iter().all(|&count| (1..=4).contains(&count)) && batches.len() < 400, "{batches:?}");
        assert_eq!(batching.mean(), 400.0 / batches.len() as f64);
    }

    #[test]
    fn a_batch_that_fails_fails_for_each() {
        let (slow, batching) = (Slow::default(), ClientBatching::new(16));
        slow.fails.store(true, Ordering::Relaxed);
        let failed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (mut session, batching, failed) = (&slow, &batching, &failed);
                scope.spawn(move || {
                    let error = batching.put(&mut session, &[thread], b"x").unwrap_err();
                    assert!(error.to_string().contains("no space"));
                    failed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(failed.into_inner(), 4);
        slow.fails.store(false, Ordering::Relaxed);
        batching.put(&mut &slow, b"k", b"v").unwrap();
    }
}
