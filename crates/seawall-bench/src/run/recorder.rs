//! When operations completed and how long they took, over all threads.
//!
//! 1. A thread records into its own histogram and touches shared memory once per millisecond, so that
//!    recording does not slow down what it measures.
//! 2. The longest gap is exact when it is at least one slot (1 ms): such a gap contains a slot's edge, and
//!    the last completion before each edge and the first after it are kept. A shorter gap is never reported
//!    as longer than it was.
//! 3. Operations count for the rate when they completed inside the window. One that began inside and
//!    completed later counts for the latencies only: otherwise a stall at the end would be invisible.

use histogram::Histogram;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Buckets are 0.8% wide.
const GROUPING_POWER: u8 = 7;
/// Latencies up to 2^40 ns (18 minutes) are distinguished; longer ones count as the maximum.
const MAX_VALUE_POWER: u8 = 40;
const SLOT_NS: u64 = 1_000_000;
/// Slots allocated together: about one second.
const CHUNK_SLOTS: u64 = 1024;

/// The completions of one millisecond.
#[derive(Debug)]
struct Slot {
    /// The earliest completion, ns from the slot's beginning; `u32::MAX` when there was none.
    first_ns: AtomicU32,
    last_ns: AtomicU32,
    ops: AtomicU32,
}

impl Slot {
    fn new() -> Self {
        Self { first_ns: AtomicU32::new(u32::MAX), last_ns: AtomicU32::new(0), ops: AtomicU32::new(0) }
    }
}

/// Completions of all threads by the millisecond.
#[derive(Debug)]
pub struct Timeline {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    ops: AtomicU64,
}

impl Timeline {
    /// For a window of at most `longest`; later completions count in the last slot.
    pub fn new(longest: Duration) -> Self {
        let slots = longest.as_millis() as u64 + 2 * CHUNK_SLOTS;
        Self { chunks: (0..slots.div_ceil(CHUNK_SLOTS)).map(|_| OnceLock::new()).collect(), ops: AtomicU64::new(0) }
    }

    fn slot(&self, index: u64) -> &Slot {
        let index = index.min(self.chunks.len() as u64 * CHUNK_SLOTS - 1);
        let chunk =
            self.chunks[(index / CHUNK_SLOTS) as usize].get_or_init(|| (0..CHUNK_SLOTS).map(|_| Slot::new()).collect());
        &chunk[(index % CHUNK_SLOTS) as usize]
    }

    /// Operations so far, possibly without those of each thread's last millisecond.
    pub fn ops(&self) -> u64 {
        self.ops.load(Ordering::Relaxed)
    }

    /// The slots with completions before the end of `window`: beginning (ns), slot.
    fn used(&self, window: Duration) -> impl Iterator<Item = (u64, &Slot)> {
        let slots = self.chunks.iter().enumerate().flat_map(|(at, chunk)| {
            let slots = chunk.get().into_iter().flatten();
            slots.enumerate().map(move |(i, slot)| ((at as u64 * CHUNK_SLOTS + i as u64) * SLOT_NS, slot))
        });
        let end = nanos(window);
        slots.filter(move |(begin, slot)| *begin < end && slot.ops.load(Ordering::Relaxed) > 0)
    }

    /// The longest time without a completion, from the window's beginning to its end.
    pub fn longest_gap(&self, window: Duration) -> Duration {
        let (mut longest, mut last) = (0, 0);
        for (begin, slot) in self.used(window) {
            let first = begin + u64::from(slot.first_ns.load(Ordering::Relaxed));
            longest = longest.max(first.saturating_sub(last));
            last = begin + u64::from(slot.last_ns.load(Ordering::Relaxed));
        }
        Duration::from_nanos(longest.max(nanos(window).saturating_sub(last)))
    }

    /// Operations completed in each `step` of the window; whole milliseconds, the last step may be cut short.
    pub fn steps(&self, window: Duration, step: Duration) -> Vec<u64> {
        let step = nanos(step).max(SLOT_NS);
        let mut steps = vec![0; nanos(window).div_ceil(step) as usize];
        for (begin, slot) in self.used(window) {
            if let Some(count) = steps.get_mut((begin / step) as usize) {
                *count += u64::from(slot.ops.load(Ordering::Relaxed));
            }
        }
        steps
    }
}

/// One thread's recorder.
#[derive(Debug)]
pub struct Recorder<'t> {
    timeline: &'t Timeline,
    latencies: Latencies,
    slot: u64,
    first_ns: u32,
    last_ns: u32,
    ops: u32,
}

impl<'t> Recorder<'t> {
    /// Nothing recorded yet.
    pub fn new(timeline: &'t Timeline) -> Self {
        Self { timeline, latencies: Latencies::default(), slot: 0, first_ns: 0, last_ns: 0, ops: 0 }
    }

    /// Records `ops` operations that completed together `at` after the window's beginning and took `latency`.
    /// Times must not decrease.
    pub fn record(&mut self, at: Duration, latency: Duration, ops: u64) {
        self.latencies.add(latency);
        self.latencies.ops += ops;
        let (slot, ns) = (nanos(at) / SLOT_NS, (nanos(at) % SLOT_NS) as u32);
        if slot != self.slot {
            self.publish();
            self.slot = slot;
        }
        if self.ops == 0 {
            self.first_ns = ns;
        }
        self.last_ns = ns;
        self.ops += u32::try_from(ops).unwrap_or(u32::MAX / 2);
    }

    /// Records an operation that began inside the window and completed after its end.
    pub fn record_late(&mut self, latency: Duration) {
        self.latencies.add(latency);
    }

    fn publish(&mut self) {
        if self.ops == 0 {
            return;
        }
        let slot = self.timeline.slot(self.slot);
        slot.first_ns.fetch_min(self.first_ns, Ordering::Relaxed);
        slot.last_ns.fetch_max(self.last_ns, Ordering::Relaxed);
        slot.ops.fetch_add(self.ops, Ordering::Relaxed);
        self.timeline.ops.fetch_add(self.ops.into(), Ordering::Relaxed);
        self.ops = 0;
    }

    /// Publishes the last slot and returns the latencies.
    pub fn finish(mut self) -> Latencies {
        self.publish();
        self.latencies
    }
}

/// How long operations took.
#[derive(Debug, Clone)]
pub struct Latencies {
    /// Operations completed inside the window; the histogram also has operations that completed later.
    pub ops: u64,
    histogram: Histogram,
    max_ns: u64,
}

impl Default for Latencies {
    /// None yet.
    fn default() -> Self {
        let histogram = Histogram::new(GROUPING_POWER, MAX_VALUE_POWER).expect("a valid histogram configuration");
        Self { ops: 0, histogram, max_ns: 0 }
    }
}

impl Latencies {
    /// Counts one operation.
    pub fn add(&mut self, latency: Duration) {
        let ns = nanos(latency);
        self.max_ns = self.max_ns.max(ns);
        // A value below 2^MAX_VALUE_POWER always has a bucket.
        let recorded = self.histogram.increment(ns.min((1 << MAX_VALUE_POWER) - 1));
        debug_assert!(recorded.is_ok());
    }

    /// Adds another thread's latencies.
    pub fn merge(&mut self, other: &Self) {
        // Histograms of one configuration can always be added.
        let added = self.histogram.checked_add_assign(&other.histogram);
        debug_assert!(added.is_ok());
        self.ops += other.ops;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Operations counted.
    pub fn count(&self) -> u64 {
        self.histogram.as_slice().iter().sum()
    }

    /// The latency that a share `quantile` (0 to 1) of operations did not exceed, us, at most 0.8% too high; 0 when
    /// there were none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        let bucket = self.histogram.quantile_bucket(quantile).ok().flatten();
        bucket.map_or(0.0, |bucket| bucket.end().min(self.max_ns) as f64 / 1e3)
    }

    /// The longest, us, exact.
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }

    /// Upper edge (us) and count of each bucket that is not empty, in order.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let used = self.histogram.iter().filter(|bucket| bucket.count() > 0);
        used.map(|bucket| (bucket.end() as f64 / 1e3, bucket.count())).collect()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    #[test]
    fn threads_add_up() {
        let timeline = Timeline::new(ms(500.0));
        let mut all = Latencies::default();
        for thread in 0..2 {
            let mut recorder = Recorder::new(&timeline);
            for i in 0..100 {
                recorder.record(ms(f64::from(i) * 2.0 + f64::from(thread)), ms(1.0), 3);
            }
            all.merge(&recorder.finish());
        }
        assert_eq!((all.count(), timeline.ops()), (200, 600));
        assert_eq!(timeline.steps(ms(250.0), ms(100.0)), [300, 300, 0]);
        assert_eq!(timeline.steps(ms(150.0), ms(100.0)), [300, 150]);
        assert!((all.quantile_us(0.5) - 1000.0).abs() < 10.0 && (all.max_us() - 1000.0).abs() < 0.001);
        assert_eq!(all.buckets().iter().map(|b| b.1).sum::<u64>(), 200);
    }

    #[test]
    fn a_gap_is_one_of_all_threads() {
        let timeline = Timeline::new(ms(5000.0));
        let mut one = Recorder::new(&timeline);
        let mut two = Recorder::new(&timeline);
        for at in [0.5, 1.25, 40.75, 100.0] {
            one.record(ms(at), ms(0.1), 1);
        }
        for at in [11.5, 99.0] {
            two.record(ms(at), ms(0.1), 1);
        }
        one.record_late(ms(3000.0));
        let late = one.finish();
        assert_eq!(timeline.ops(), 5, "the last of the other thread is not out yet");
        drop(two.finish());
        // Between 40.75 and 99.0: no single thread shows it.
        assert_eq!(timeline.longest_gap(ms(110.0)), ms(58.25));
        assert_eq!(timeline.longest_gap(ms(300.0)), ms(200.0), "up to the end");
        assert_eq!(late.max_us(), 3e6);
        assert_eq!(Timeline::new(ms(1.0)).longest_gap(ms(70.0)), ms(70.0), "nothing completed at all");
    }

    #[test]
    fn what_lies_beyond_the_last_slot_is_still_counted() {
        let timeline = Timeline::new(ms(1.0));
        let mut recorder = Recorder::new(&timeline);
        recorder.record(Duration::from_secs(3600), Duration::from_secs(7200), 1);
        let latencies = recorder.finish();
        assert_eq!((timeline.ops(), latencies.count(), latencies.max_us()), (1, 1, 7.2e9));
        assert_eq!(Latencies::default().quantile_us(0.99), 0.0);
    }
}
