//! Carries the reports of many writers over one connection: each acknowledged write is reported to the
//! witness before its stream writes again.
//!
//! 1. A writer calls [`Reporter::report`] after its write was acknowledged, and waits until the witness has
//!    confirmed it: so each stream has at most one write that the witness does not know.
//! 2. Reports that arrive while a frame is being confirmed form the next one: the witness syncs once for all
//!    of them.
//! 3. A lost connection is re-established and the frame repeated; the witness skips reports it already has.
//!    Writers wait meanwhile. Only reports of writers are sent.
//! 4. After a final failure every writer is notified, and nothing more is sent.
//!
//! ```text
//!   waiting ──pending──> sent ──confirmed──> waiting
//!      └─quiet──> ping     └──broken──> reconnect ──Standing──> sent again
//!                                           └──too long──> dead
//! ```

use super::client::{Client, Failure};
use super::error::WitnessError;
use super::protocol::{REPORTS_MAX, Report};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PING_EVERY: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The progress of a run.
///
/// ```
/// use seawall_tools::witness::Progress;
/// use std::time::Duration;
/// let now = Progress { acknowledged: 90_000, elapsed: Duration::from_secs(60), connected: true };
/// assert_eq!(now.acknowledged / now.elapsed.as_secs(), 1500, "writes per second");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Writes acknowledged by the disk and confirmed by the witness.
    pub acknowledged: u64,
    /// Time since the first write.
    pub elapsed: Duration,
    /// False while the witness cannot be reached and the writers wait for it.
    pub connected: bool,
}

#[derive(Debug, Default)]
struct Shared {
    pending: Vec<Report>,
    confirmed: Vec<u64>,
    writers: usize,
    dead: bool,
}

#[derive(Debug)]
pub(super) struct Reporter {
    shared: Mutex<Shared>,
    changed: Condvar,
}

/// A writer that may still report; the reporter ends when the last one is dropped.
#[derive(Debug)]
pub(super) struct Writer<'a>(&'a Reporter);

/// How to reconnect to a lost witness.
pub(super) struct Return<'a> {
    pub(super) connect: &'a dyn Fn() -> Result<Client, WitnessError>,
    pub(super) addr: &'a str,
    pub(super) time_max: Duration,
}

impl Reporter {
    pub(super) fn new(streams: u32) -> Self {
        let shared = Shared { confirmed: vec![0; streams as usize], ..Shared::default() };
        Self { shared: Mutex::new(shared), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writer(&self) -> Writer<'_> {
        self.lock().writers += 1;
        Writer(self)
    }

    /// Returns the last confirmed sequence of each stream.
    pub(super) fn confirmed(&self) -> Vec<u64> {
        self.lock().confirmed.clone()
    }

    /// Carries reports until the last writer is gone and everything is confirmed. Then reports the end of the
    /// run, if `orderly` permits.
    pub(super) fn carry(
        &self,
        mut client: Client,
        back: &Return<'_>,
        stop: &AtomicBool,
        orderly: &dyn Fn() -> bool,
        progress: &(dyn Fn(&Progress) + Sync),
    ) -> Result<(), WitnessError> {
        let carried = self.carry_on(&mut client, back, stop, orderly, progress);
        if carried.is_err() {
            self.lock().dead = true;
            self.changed.notify_all();
        }
        carried
    }

    fn carry_on(
        &self,
        client: &mut Client,
        back: &Return<'_>,
        stop: &AtomicBool,
        orderly: &dyn Fn() -> bool,
        progress: &(dyn Fn(&Progress) + Sync),
    ) -> Result<(), WitnessError> {
        let began = Instant::now();
        let mut shown = began;
        loop {
            let (batch, done) = self.next_batch();
            if shown.elapsed() >= PROGRESS_EVERY || done {
                shown = Instant::now();
                progress(&Progress { acknowledged: self.total(), elapsed: began.elapsed(), connected: true });
            }
            loop {
                let sent = match (done, batch.is_empty()) {
                    (true, _) if orderly() => client.end(),
                    (true, _) => return Ok(()),
                    (false, true) => client.ping(),
                    (false, false) => client.report(batch.clone()),
                };
                match sent {
                    Ok(()) if done => return Ok(()),
                    Ok(()) => break,
                    Err(Failure::Final(error)) => return Err(error),
                    // Everything is confirmed; the report of an orderly end is optional.
                    Err(Failure::Broken(_)) if done => return Ok(()),
                    Err(Failure::Broken(_)) => {
                        progress(&Progress { acknowledged: self.total(), elapsed: began.elapsed(), connected: false });
                        *client = self.come_back(back, stop)?;
                    }
                }
            }
            let mut shared = self.lock();
            for report in &batch {
                shared.confirmed[report.stream as usize] = report.sequence;
            }
            drop(shared);
            self.changed.notify_all();
        }
    }

    /// Returns the reports of the next frame (none for a ping), and whether all writers are gone and nothing
    /// is left.
    fn next_batch(&self) -> (Vec<Report>, bool) {
        let (mut shared, _) = self
            .changed
            .wait_timeout_while(self.lock(), PING_EVERY, |shared| shared.pending.is_empty() && shared.writers > 0)
            .unwrap_or_else(PoisonError::into_inner);
        let count = shared.pending.len().min(REPORTS_MAX);
        let batch: Vec<Report> = shared.pending.drain(..count).collect();
        let done = batch.is_empty() && shared.writers == 0;
        (batch, done)
    }

    fn total(&self) -> u64 {
        self.lock().confirmed.iter().sum()
    }

    fn come_back(&self, back: &Return<'_>, stop: &AtomicBool) -> Result<Client, WitnessError> {
        let deadline = Instant::now() + back.time_max;
        loop {
            // On a stop request: one attempt to deliver what is pending, without waiting.
            let last = stop.load(Ordering::Relaxed) || Instant::now() >= deadline;
            let attempt = (back.connect)().map_err(Failure::Final).and_then(|mut client| {
                let standing = client.resume()?;
                Ok((client, standing))
            });
            let reason = match attempt {
                Ok((client, standing)) => {
                    for (stream, (&confirmed, &recorded)) in
                        self.lock().confirmed.iter().zip(&standing.last).enumerate()
                    {
                        if recorded < confirmed {
                            return Err(WitnessError::WitnessForgot { stream: stream as u32, confirmed, recorded });
                        }
                    }
                    return Ok(client);
                }
                // A witness that is being restarted refuses connections, or closes them half way.
                Err(Failure::Final(error @ (WitnessError::CannotReach { .. } | WitnessError::NotAWitness { .. }))) => {
                    error.to_string()
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Broken(reason)) => reason,
            };
            if last {
                return Err(WitnessError::ConnectionLost { addr: back.addr.into(), reason });
            }
            thread::sleep(RECONNECT_PAUSE);
        }
    }
}

impl Writer<'_> {
    /// Reports an acknowledged write and waits for its confirmation; returns false if there will be none.
    pub(super) fn report(&self, stream: u32, sequence: u64) -> bool {
        let mut shared = self.0.lock();
        if shared.dead {
            return false;
        }
        shared.pending.push(Report { stream, sequence });
        self.0.changed.notify_all();
        let shared = self
            .0
            .changed
            .wait_while(shared, |shared| shared.confirmed[stream as usize] < sequence && !shared.dead)
            .unwrap_or_else(PoisonError::into_inner);
        shared.confirmed[stream as usize] >= sequence
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.0.lock().writers -= 1;
        self.0.changed.notify_all();
    }
}
