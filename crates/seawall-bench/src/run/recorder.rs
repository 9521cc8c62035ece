//! When operations completed and how long they took, over all threads.
//!
//! 1. A thread records into its own histogram and takes the shared lock once per millisecond, so that
//!    recording does not slow down what it measures.
//! 2. The longest gap is exact when it is at least one slot (1 ms): such a gap contains a slot's edge, and
//!    the last completion before each edge and the first after it are kept. A shorter gap is never reported
//!    as longer than it was.
//! 3. Operations count for the rate when they completed inside the window. One that began inside and
//!    completed later counts for the latencies only: otherwise a stall at the end would be invisible.

use histogram::Histogram;
use parking_lot::Mutex;
use std::time::Duration;

/// Buckets are 0.8% wide.
const GROUPING_POWER: u8 = 7;
/// Latencies up to 2^40 ns (18 minutes) are distinguished; longer ones count as the maximum.
const MAX_VALUE_POWER: u8 = 40;
const SLOT_NS: u64 = 1_000_000;

/// The completions of one millisecond: the first and the last, ns from the slot's beginning, and how many.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    first_ns: u32,
    last_ns: u32,
    ops: u32,
}

impl Slot {
    fn add(&mut self, more: Self) {
        self.first_ns = if self.ops == 0 { more.first_ns } else { self.first_ns.min(more.first_ns) };
        self.last_ns = self.last_ns.max(more.last_ns);
        self.ops += more.ops;
    }
}

/// Completions of all threads by the millisecond.
#[derive(Debug, Default)]
pub struct Timeline {
    slots: Vec<Slot>,
    /// Operations so far, possibly without those of each thread's last millisecond.
    pub ops: u64,
}

impl Timeline {
    /// The slots with completions before the end of `window`: beginning (ns), slot.
    fn used(&self, window: Duration) -> impl Iterator<Item = (u64, &Slot)> {
        let slots = (0..nanos(window)).step_by(SLOT_NS as usize).zip(&self.slots);
        slots.filter(|(_, slot)| slot.ops > 0)
    }

    /// The longest time without a completion, from the window's beginning to its end.
    pub fn longest_gap(&self, window: Duration) -> Duration {
        let (mut longest, mut last) = (0, 0);
        for (begin, slot) in self.used(window) {
            longest = longest.max((begin + u64::from(slot.first_ns)).saturating_sub(last));
            last = begin + u64::from(slot.last_ns);
        }
        Duration::from_nanos(longest.max(nanos(window).saturating_sub(last)))
    }

    /// Operations completed in each `step` of the window; whole milliseconds, the last step may be cut short.
    pub fn steps(&self, window: Duration, step: Duration) -> Vec<u64> {
        let step = nanos(step).max(SLOT_NS);
        let mut steps = vec![0; nanos(window).div_ceil(step) as usize];
        for (begin, slot) in self.used(window) {
            steps[(begin / step) as usize] += u64::from(slot.ops);
        }
        steps
    }
}

/// One thread's recorder of completions. It publishes its last millisecond when it is dropped.
#[derive(Debug)]
pub struct Recorder<'t> {
    timeline: &'t Mutex<Timeline>,
    index: usize,
    slot: Slot,
}

impl<'t> Recorder<'t> {
    /// Nothing recorded yet.
    pub fn new(timeline: &'t Mutex<Timeline>) -> Self {
        Self { timeline, index: 0, slot: Slot::default() }
    }

    /// Records `ops` operations that completed together `at` after the window's beginning. Times must not decrease.
    pub fn record(&mut self, at: Duration, ops: u64) {
        let (index, ns) = ((nanos(at) / SLOT_NS) as usize, (nanos(at) % SLOT_NS) as u32);
        if index != self.index {
            self.publish();
            self.index = index;
        }
        self.slot.add(Slot { first_ns: ns, last_ns: ns, ops: ops as u32 });
    }

    fn publish(&mut self) {
        let (index, slot) = (self.index, std::mem::take(&mut self.slot));
        if slot.ops == 0 {
            return;
        }
        let mut timeline = self.timeline.lock();
        if timeline.slots.len() <= index {
            timeline.slots.resize(index + 1, Slot::default());
        }
        timeline.slots[index].add(slot);
        timeline.ops += u64::from(slot.ops);
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.publish();
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
        let timeline = Mutex::<Timeline>::default();
        let mut all = Latencies::default();
        for thread in 0..2 {
            let (mut recorder, mut latencies) = (Recorder::new(&timeline), Latencies::default());
            for i in 0..100 {
                recorder.record(ms(f64::from(i) * 2.0 + f64::from(thread)), 3);
                latencies.add(ms(1.0));
            }
            all.merge(&latencies);
        }
        let timeline = timeline.into_inner();
        assert_eq!((all.count(), timeline.ops), (200, 600));
        assert_eq!(timeline.steps(ms(250.0), ms(100.0)), [300, 300, 0]);
        assert_eq!(timeline.steps(ms(150.0), ms(100.0)), [300, 150]);
        assert!((all.quantile_us(0.5) - 1000.0).abs() < 10.0 && (all.max_us() - 1000.0).abs() < 0.001);
        assert_eq!(all.buckets().iter().map(|b| b.1).sum::<u64>(), 200);
    }

    #[test]
    fn a_gap_is_one_of_all_threads() {
        let timeline = Mutex::<Timeline>::default();
        let mut one = Recorder::new(&timeline);
        let mut two = Recorder::new(&timeline);
        for at in [0.5, 1.25, 40.75, 100.0] {
            one.record(ms(at), 1);
        }
        for at in [11.5, 99.0] {
            two.record(ms(at), 1);
        }
        drop(one);
        assert_eq!(timeline.lock().ops, 5, "the last of the other thread is not out yet");
        drop(two);
        let timeline = timeline.into_inner();
        // Between 40.75 and 99.0: no single thread shows it.
        assert_eq!(timeline.longest_gap(ms(110.0)), ms(58.25));
        assert_eq!(timeline.longest_gap(ms(300.0)), ms(200.0), "up to the end");
        assert_eq!(Timeline::default().longest_gap(ms(70.0)), ms(70.0), "nothing completed at all");
    }

    #[test]
    fn the_longest_latency_is_exact_and_none_is_lost() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_us(0.99), 0.0);
        latencies.add(Duration::from_secs(7200));
        assert_eq!((latencies.count(), latencies.max_us()), (1, 7.2e9));
    }
}
