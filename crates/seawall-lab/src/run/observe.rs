//! `--observe`: watches a device without adding load to it.

use super::machine::{device_counters, device_delta};
use crate::results::DeviceDelta;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One interval of a watched device.
///
/// ```
/// use seawall_lab::{results::DeviceDelta, run::Observation};
/// let delta = DeviceDelta { writes: 3000, busy_ms: 500, ..DeviceDelta::default() };
/// let second = Observation { at_s: 1.0, seconds: 1.0, delta };
/// assert_eq!(second.busy(), 0.5);
/// assert!(second.line().ends_with("50%") && Observation::HEADER.ends_with("busy"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Seconds since the start.
    pub at_s: f64,
    /// Length of the interval, seconds.
    pub seconds: f64,
    /// The device's work in it.
    pub delta: DeviceDelta,
}

impl Observation {
    /// Share of the interval in which the device was busy, 0 to 1.
    pub fn busy(&self) -> f64 {
        (self.delta.busy_ms as f64 / 1000.0 / self.seconds).min(1.0)
    }

    /// One line for a terminal; see [`Observation::HEADER`].
    pub fn line(&self) -> String {
        let per_s = |n: u64| n as f64 / self.seconds;
        let kib = |bytes: u64, n: u64| if n == 0 { 0.0 } else { bytes as f64 / n as f64 / 1024.0 };
        let d = &self.delta;
        format!(
            "{:>7.0} {:>9.0} {:>9.1} {:>7.1} {:>9.0} {:>9.1} {:>7.1} {:>9} {:>5.0}%",
            self.at_s,
            per_s(d.reads),
            per_s(d.read_bytes) / 1e6,
            kib(d.read_bytes, d.reads),
            per_s(d.writes),
            per_s(d.written_bytes) / 1e6,
            kib(d.written_bytes, d.writes),
            d.flushes.map_or_else(|| "-".to_owned(), |n| format!("{:.0}", per_s(n))),
            self.busy() * 100.0
        )
    }

    /// The heading of [`Observation::line`].
    pub const HEADER: &'static str = "seconds   reads/s read MB/s   KiB/r  writes/s wrote MB/s  KiB/w flushes/s   busy";
}

/// Sleeps for `time`; returns `false` as soon as `stop` is set.
pub fn pause(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}

/// Watches `device` every `interval` until `stop` is set or `duration` is over; calls `each` with every
/// interval, until it returns false. Returns false when the kernel has no counters for the device.
///
/// ```
/// use seawall_lab::run::{Observation, observe};
/// use std::{sync::atomic::AtomicBool, time::Duration};
/// let (second, stop) = (Duration::from_secs(1), AtomicBool::new(false));
/// let print = |seen: &Observation| {
///     println!("{}", seen.line());
///     true
/// };
/// assert!(!observe("no-such-device", second, None, &stop, print), "it has no counters");
/// ```
pub fn observe(
    device: &str,
    interval: Duration,
    duration: Option<Duration>,
    stop: &AtomicBool,
    mut each: impl FnMut(&Observation) -> bool,
) -> bool {
    let start = Instant::now();
    let Some(mut before) = device_counters(device) else { return false };
    let mut last = start;
    while !stop.load(Ordering::Relaxed) && duration.is_none_or(|d| start.elapsed() < d) {
        pause(duration.map_or(interval, |d| interval.min(d.saturating_sub(start.elapsed()))), stop);
        let Some(after) = device_counters(device) else { return false };
        let now = Instant::now();
        let go_on = each(&Observation {
            at_s: now.duration_since(start).as_secs_f64(),
            seconds: now.duration_since(last).as_secs_f64().max(1e-3),
            delta: device_delta(before, after),
        });
        if !go_on {
            break;
        }
        (last, before) = (now, after);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_rates_not_counts() {
        let delta = DeviceDelta {
            reads: 10,
            read_bytes: 163_840,
            writes: 4,
            written_bytes: 16_384,
            flushes: Some(2),
            busy_ms: 500,
        };
        let line = Observation { at_s: 2.0, seconds: 2.0, delta }.line();
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(fields, ["2", "5", "0.1", "16.0", "2", "0.0", "4.0", "1", "25%"]);
    }

    #[test]
    fn an_unknown_device_is_said_to_be_unknown() {
        assert!(!observe("nosuchdisk", Duration::from_millis(1), None, &AtomicBool::new(false), |_| true));
    }
}
