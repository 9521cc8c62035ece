//! Time that passes only when the disk executes an operation.
//!
//! 1. No real clock is read and nothing sleeps: an hour of simulated time costs only what its operations
//!    cost.
//! 2. Latencies are drawn from the disk's own rng, so time is part of what a seed replays.

use crate::disk::SimDisk;
use crate::rng::SeededRng;
use seawall_io::Clock;
use std::time::Duration;

/// The disk's virtual time; sleeping advances it.
impl Clock for SimDisk {
    fn now(&self) -> Duration {
        self.now()
    }
    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

/// How long operations take: a base, a random addition of up to the same length, and rare spikes.
///
/// ```
/// use seawall_sim::{Latency, SimDisk, SimOptions};
/// use std::time::Duration;
/// let slow = Latency { sync: Duration::from_millis(20), ..Latency::default() };
/// let disk = SimDisk::new(SimOptions { seed: 1, latency: slow, ..SimOptions::default() });
/// assert_eq!(disk.now(), Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Minimum time of a read.
    pub read: Duration,
    /// Minimum time of a write that is not durable when it returns.
    pub write: Duration,
    /// Minimum time of a sync, or of the durable part of a durable write.
    pub sync: Duration,
    /// Minimum time of everything else.
    pub other: Duration,
    /// Spikes per million operations.
    pub spikes_per_million: u32,
    /// Maximum time that a spike adds.
    pub spike: Duration,
}

impl Default for Latency {
    /// A quick NVMe drive without power-loss protection, with a hiccup of up to 50 ms every thousand
    /// operations.
    fn default() -> Self {
        Self {
            read: Duration::from_micros(60),
            write: Duration::from_micros(20),
            sync: Duration::from_micros(400),
            other: Duration::from_micros(5),
            spikes_per_million: 1000,
            spike: Duration::from_millis(50),
        }
    }
}

impl Latency {
    pub(crate) fn draw(&self, least: Duration, rng: &mut SeededRng) -> Duration {
        let whole = |end: Duration, rng: &mut SeededRng| {
            Duration::from_nanos(rng.below(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)))
        };
        let usual = least + whole(least, rng);
        if rng.ppm(self.spikes_per_million) { usual + whole(self.spike, rng) } else { usual }
    }
}
