//! What one thread of a round records, and how the threads' records become a [`Round`].

use crate::results::{Foreign, LATENCY_CONFIG, Round};
use histogram::{Histogram, SparseHistogram};
use std::time::{Duration, Instant};

/// One thread's record. Recording adds to memory that no other thread touches.
#[derive(Debug)]
pub(super) struct Recorder {
    start: Instant,
    latency: Histogram,
    max_ns: u64,
    pub(super) operations: u64,
    /// From the start to the end of the last operation.
    took: Option<Duration>,
    pub(super) writes: u64,
    pub(super) syncs: u64,
}

impl Recorder {
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            latency: Histogram::new(LATENCY_CONFIG.0, LATENCY_CONFIG.1).expect("a valid histogram configuration"),
            max_ns: 0,
            operations: 0,
            took: None,
            writes: 0,
            syncs: 0,
        }
    }

    /// Counts an operation that took `latency` and ended at `end`.
    pub(super) fn add(&mut self, latency: Duration, end: Instant) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).min((1 << LATENCY_CONFIG.1) - 1);
        let recorded = self.latency.increment(ns);
        debug_assert!(recorded.is_ok(), "a value below the maximum has a bucket");
        self.max_ns = self.max_ns.max(ns);
        self.operations += 1;
        self.took = self.took.max(Some(end.duration_since(self.start)));
    }

    /// Combines the threads' records into a round; the caller adds what the machine did meanwhile. The round ends with
    /// the last operation: closing rings and threads is not part of it. If the rate was limited, the pause after the
    /// last operation is part of it, and the round lasts `elapsed`. `None` without threads.
    pub(super) fn round(records: Vec<Self>, elapsed: Duration, limited: bool) -> Option<Round> {
        let mut records = records.into_iter();
        let mut all = records.next()?;
        for other in records {
            if let Ok(sum) = all.latency.checked_add(&other.latency) {
                all.latency = sum;
            }
            all.max_ns = all.max_ns.max(other.max_ns);
            all.took = all.took.max(other.took);
            all.operations += other.operations;
            all.writes += other.writes;
            all.syncs += other.syncs;
        }
        Some(Round {
            operations: all.operations,
            seconds: all.took.filter(|_| !limited).unwrap_or(elapsed).as_secs_f64(),
            latency: SparseHistogram::from(&all.latency),
            latency_ns_max: all.max_ns,
            device: None,
            foreign: Foreign::default(),
            cached_bytes: None,
            writes_issued: all.writes,
            syncs_issued: all.syncs,
        })
    }
}
