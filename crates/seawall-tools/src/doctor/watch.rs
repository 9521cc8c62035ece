//! Finds new problems while a database runs, for an error log.
//!
//! 1. Pure: the caller passes the statistics, at any interval. The time is that of the statistics (`elapsed_ns`).
//! 2. A finding is returned when it appears, when it becomes worse, and once an hour while it stays. A finding
//!    that disappears and returns within the hour is not repeated.
//! 3. Bounded memory: the statistics of one moment, an entry for each kind of finding, and the flushes of an hour
//!    in at most [`WINDOWS_MAX`] windows.

use super::{Diagnosis, Severity, diagnose, time};
use seawall::Stats;
use seawall::stats::percentile_ns;
use seawall_io::{Cause, FileClass, Op};
use std::collections::{BTreeMap, VecDeque};

/// A finding that stays is returned again after this time, ns.
const REPEAT_NS: u64 = 3600 * 1_000_000_000;
/// Current flushes are compared with those of this much past time, ns.
const PAST_NS: u64 = 3600 * 1_000_000_000;
/// Maximum number of windows kept.
const WINDOWS_MAX: usize = 3600;
/// A window with fewer flushes says nothing.
const FLUSHES_MIN: u64 = 20;
/// Minimum number of past windows for a comparison.
const WINDOWS_MIN: usize = 5;
/// Flushes are slower if they take this many times as long as before ...
const SLOWER_TIMES: u64 = 3;
/// ... and this much longer, ns.
const SLOWER_NS: u64 = 1_000_000;

/// The flushes of the log in one window.
#[derive(Debug, Clone, Copy)]
struct Flushes {
    at_ns: u64,
    count: u64,
    median_ns: u64,
}

/// The findings reported so far for one opening of a database.
#[derive(Debug, Default)]
pub struct Watch {
    earlier: Option<Stats>,
    flushes: VecDeque<Flushes>,
    told: BTreeMap<&'static str, (Severity, u64)>,
}

impl Watch {
    /// Returns the new warnings about the time since the last call, the worst first. `now` must be of the same
    /// opening of the database as in the last call.
    ///
    /// ```
    /// use seawall::Stats;
    /// use seawall_tools::doctor::Watch;
    /// let mut watch = Watch::default();
    /// let mut now = Stats { elapsed_ns: 10_000_000_000, ..Stats::default() };
    /// assert!(watch.look(now.clone()).is_empty());
    /// (now.elapsed_ns, now.log.checkpoint_waits) = (20_000_000_000, 90);
    /// assert_eq!(watch.look(now.clone())[0].id, "checkpoint-waits");
    /// (now.elapsed_ns, now.log.checkpoint_waits) = (30_000_000_000, 190);
    /// assert!(watch.look(now).is_empty(), "it was said");
    /// ```
    pub fn look(&mut self, now: Stats) -> Vec<Diagnosis> {
        let mut found = diagnose(&now, self.earlier.as_ref());
        let window = self.earlier.as_ref().map_or_else(|| now.clone(), |earlier| now.since(earlier));
        found.extend(self.slower_flushes(&window, now.elapsed_ns));
        found.retain(|finding| finding.severity >= Severity::Warning && self.is_new(finding, now.elapsed_ns));
        for finding in &found {
            self.told.insert(finding.id, (finding.severity, now.elapsed_ns));
        }
        self.earlier = Some(now);
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        found
    }

    fn is_new(&self, finding: &Diagnosis, now_ns: u64) -> bool {
        let told = self.told.get(finding.id);
        told.is_none_or(|&(severity, at_ns)| severity < finding.severity || now_ns.saturating_sub(at_ns) >= REPEAT_NS)
    }

    fn slower_flushes(&mut self, window: &Stats, now_ns: u64) -> Option<Diagnosis> {
        let cell = [Op::DurableWrite, Op::Sync]
            .into_iter()
            .find_map(|op| window.io.get(FileClass::Redo, op, Cause::Commit).filter(|cell| cell.count() > 0))?;
        let here = Flushes { at_ns: now_ns, count: cell.count(), median_ns: percentile_ns(cell, 50.0) };
        if here.count < FLUSHES_MIN {
            return None;
        }
        while self.flushes.len() >= WINDOWS_MAX
            || self.flushes.front().is_some_and(|first| now_ns.saturating_sub(first.at_ns) > PAST_NS)
        {
            self.flushes.pop_front();
        }
        let mut before: Vec<u64> = self.flushes.iter().map(|window| window.median_ns).collect();
        before.sort_unstable();
        self.flushes.push_back(here);
        let usual_ns = *before.get(before.len() / 2).filter(|_| before.len() >= WINDOWS_MIN)?;
        let slower = here.median_ns > usual_ns.saturating_mul(SLOWER_TIMES).max(usual_ns.saturating_add(SLOWER_NS));
        slower.then(|| Diagnosis {
            id: "flush-slower",
            severity: Severity::Warning,
            sentence: format!(
                "A flush of the log takes {} (the median of {}); in the last hour it took {}.",
                time(here.median_ns),
                here.count,
                time(usual_ns)
            ),
            advice: "Look for what else writes to the device (a backup, a copy, a rebuild of an array, another machine \
                     on the same storage), and for its errors in the kernel log (dmesg). A battery of a controller that \
                     has failed shows itself like this."
                .into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_io::IoStats;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_warning_is_said_once_an_hour_and_when_it_becomes_worse() {
        let mut watch = Watch::default();
        let mut now = Stats::default();
        now.space.data_bytes = 1 << 30;
        let mut at = |minute: u64, free: u64| {
            now.elapsed_ns = minute * 60 * SECOND;
            now.space.disk_free_bytes = free;
            watch.look(now.clone()).iter().map(|found| found.severity).collect::<Vec<_>>()
        };
        assert_eq!(at(0, 100 << 20), [Severity::Warning]);
        assert_eq!(at(1, 100 << 20), []);
        assert_eq!(at(2, 50 << 20), [Severity::Critical]);
        assert_eq!(at(3, 10 << 30), []);
        assert_eq!(at(4, 50 << 20), []);
        assert_eq!(at(62, 100 << 20), [Severity::Warning]);
    }

    #[test]
    fn flushes_are_compared_with_those_of_the_last_hour() {
        let (io, mut watch) = (IoStats::new(), Watch::default());
        let mut minute = 0;
        let mut flush = |count: u64, us: u64| {
            minute += 1;
            for _ in 0..count {
                io.record(FileClass::Redo, Op::DurableWrite, Cause::Commit, Duration::from_micros(us), 4096);
            }
            let now = Stats { elapsed_ns: minute * 60 * SECOND, io: io.snapshot(), ..Stats::default() };
            watch.look(now).pop().map(|found| (found.id, found.sentence))
        };
        for _ in 0..WINDOWS_MIN {
            assert_eq!(flush(100, 500), None);
        }
        assert_eq!(flush(5, 90_000), None, "too few");
        assert_eq!(flush(100, 1_200), None, "not by three times");
        let (id, sentence) = flush(100, 9_000).unwrap();
        assert_eq!(id, "flush-slower");
        assert!(sentence.contains("9.") && sentence.contains("(the median of 100)"), "{sentence}");
        for _ in 0..200 {
            flush(100, 9_000);
        }
        assert!(watch.flushes.len() <= 61, "an hour only");
    }
}
