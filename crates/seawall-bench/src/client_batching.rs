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

use crate::store::{About, Result, Session, Store, Tx, While};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The longest wait for other threads, unless an eighth of a write is longer.
pub const GATHER_TIME: Duration = Duration::from_micros(200);

/// A row to write.
type Row = (Vec<u8>, Vec<u8>);

/// A store whose puts are batched.
#[expect(missing_debug_implementations, reason = "the store is a trait object")]
pub struct ClientBatching {
    inner: Box<dyn Store>,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
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
enum Turn {
    /// Its thread leads.
    Lead,
    Done(Result<()>),
}

impl ClientBatching {
    /// Writes up to `limit` puts as one transaction.
    pub fn new(inner: Box<dyn Store>, limit: usize) -> Self {
        Self { inner, limit: limit.max(1), state: Mutex::default() }
    }
}

impl Store for ClientBatching {
    fn about(&self) -> About {
        let mut about = self.inner.about();
        about.settings.push(("client_batch".into(), self.limit.to_string()));
        about
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Work { store: self, inner: self.inner.session()? }))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let state = self.state.lock();
        vec![("client_batches", state.batches), ("client_batched_puts", state.batched_puts)]
    }

    fn steady(&self) -> Box<dyn Fn() -> bool + Sync + '_> {
        self.inner.steady()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.inner.close()
    }
}

struct Work<'s> {
    store: &'s ClientBatching,
    inner: Box<dyn Session + 's>,
}

impl Work<'_> {
    /// Writes batches until this thread's own put is done, then hands over.
    fn lead(&mut self, own: &Receiver<Turn>) -> Result<()> {
        loop {
            if let Ok(Turn::Done(outcome)) = own.try_recv() {
                let mut state = self.store.state.lock();
                let next = state.waiting.front();
                // The receiver of a waiting put lives until it gets the outcome.
                state.led = next.is_some_and(|(_, waiter)| waiter.send(Turn::Lead).is_ok());
                return outcome;
            }
            self.gather();
            let mut state = self.store.state.lock();
            let count = state.waiting.len().min(self.store.limit);
            let (batch, waiters): (Vec<Row>, Vec<_>) = state.waiting.drain(..count).unzip();
            drop(state);
            let began = Instant::now();
            let written = self.inner.load(&batch, true);
            let mut state = self.store.state.lock();
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
            let state = self.store.state.lock();
            let patience = state.last_write.min(GATHER_TIME.max(state.last_write / 8));
            if state.waiting.len() >= state.expected.min(self.store.limit) || began.elapsed() >= patience {
                break;
            }
            drop(state);
            std::thread::yield_now();
        }
    }
}

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.inner.get(key, visit)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (tell, own) = sync_channel(1);
        let leads = {
            let mut state = self.store.state.lock();
            state.waiting.push_back(((key.to_vec(), value.to_vec()), tell));
            !std::mem::replace(&mut state.led, true)
        };
        if !leads {
            if let Ok(Turn::Done(outcome)) = own.recv() {
                return outcome;
            }
        }
        self.lead(&own)
    }

    fn load(&mut self, rows: &[Row], durable: bool) -> Result<()> {
        self.inner.load(rows, durable)
    }

    fn walk(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut While<'_>) -> Result<()> {
        self.inner.walk(from, to, visit)
    }

    fn transaction(&mut self, durable: bool) -> Result<Box<dyn Tx + '_>> {
        self.inner.transaction(durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Error;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// A store that keeps its rows, works slowly, and fails on request.
    #[derive(Default)]
    struct Slow {
        batches: Mutex<Vec<usize>>,
        rows: Mutex<Vec<Row>>,
        fails: AtomicBool,
    }

    impl Store for Arc<Slow> {
        fn about(&self) -> About {
            About::default()
        }
        fn session(&self) -> Result<Box<dyn Session + '_>> {
            Ok(Box::new(&**self))
        }
        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
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
        let slow = Arc::new(Slow::default());
        let batched = ClientBatching::new(Box::new(slow.clone()), 4);
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let batched = &batched;
                scope.spawn(move || {
                    let mut session = batched.session().unwrap();
                    for i in 0..50u8 {
                        session.put(&[thread, i], &[i]).unwrap();
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
        let counted = [("client_batches", batches.len() as u64), ("client_batched_puts", 400)];
        assert_eq!(batched.counters(), counted);
    }

    #[test]
    fn a_batch_that_fails_fails_for_each() {
        let slow = Arc::new(Slow::default());
        slow.fails.store(true, Ordering::Relaxed);
        let batched = ClientBatching::new(Box::new(slow.clone()), 16);
        let failed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (batched, failed) = (&batched, &failed);
                scope.spawn(move || {
                    let error = batched.session().unwrap().put(&[thread], b"x").unwrap_err();
                    assert!(error.to_string().contains("no space"));
                    failed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(failed.into_inner(), 4);
        slow.fails.store(false, Ordering::Relaxed);
        batched.session().unwrap().put(b"k", b"v").unwrap();
        assert!(matches!(
            batched.session().unwrap().read_modify_write(b"k", &mut |_| ()),
            Err(Error::Unsupported { .. })
        ));
    }
}
