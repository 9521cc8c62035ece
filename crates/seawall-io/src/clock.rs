//! A clock that can be replaced, and the pacing of background work by it.

use std::fmt;
use std::time::Duration;

/// A clock that tests can replace.
///
/// ```
/// use seawall_io::Clock;
/// use std::{sync::Mutex, time::Duration};
/// /// A clock whose sleeps take no time.
/// #[derive(Debug, Default)]
/// struct TestClock(Mutex<Duration>);
/// impl Clock for TestClock {
///     fn now(&self) -> Duration { *self.0.lock().unwrap() }
///     fn sleep(&self, duration: Duration) { *self.0.lock().unwrap() += duration; }
/// }
/// let clock = TestClock::default();
/// clock.sleep(Duration::from_secs(3600));
/// assert_eq!(clock.now().as_secs(), 3600);
/// ```
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the time since some fixed moment.
    fn now(&self) -> Duration;
    /// Waits for `duration`.
    fn sleep(&self, duration: Duration);
}

/// The operating system's monotonic clock.
///
/// ```
/// use seawall_io::{Clock, SystemClock};
/// # use std::time::Duration;
/// let clock = SystemClock::default();
/// let before = clock.now();
/// clock.sleep(Duration::from_millis(2));
/// assert!(clock.now() - before >= Duration::from_millis(2));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SystemClock(Duration);

impl Default for SystemClock {
    fn default() -> Self {
        Self(monotonic())
    }
}

/// Reads the clock with a third of the instructions of `Instant::elapsed`: every commit reads it several
/// times.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        monotonic().saturating_sub(self.0)
    }
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A rate limiter: computes the delay before the next unit of work, so that at most `per_second` units run
/// in a second. Idle time earns no burst.
///
/// ```
/// use seawall_io::Pace;
/// use std::time::Duration;
/// let mut pace = Pace::new(10.0);
/// assert_eq!(pace.delay(Duration::ZERO, 1.0), Duration::ZERO);
/// assert_eq!(pace.delay(Duration::ZERO, 1.0), Duration::from_millis(100));
/// // A long pause earns nothing.
/// assert_eq!(pace.delay(Duration::from_secs(60), 1.0), Duration::ZERO);
/// assert_eq!(pace.delay(Duration::from_secs(60), 1.0), Duration::from_millis(100));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    per_second: f64,
    next: Duration,
}

impl Pace {
    /// Allows at most `per_second` units of work a second; at 0 or less, one unit in all.
    ///
    /// ```
    /// use seawall_io::Pace;
    /// # use std::time::Duration;
    /// // A stopped pace lets one unit through, and then nothing in this life.
    /// let mut pace = Pace::new(0.0);
    /// assert_eq!(pace.delay(Duration::ZERO, 1.0), Duration::ZERO);
    /// assert_eq!(pace.delay(Duration::ZERO, 1.0), Duration::MAX);
    /// ```
    #[must_use]
    pub fn new(per_second: f64) -> Self {
        Self { per_second: per_second.max(f64::MIN_POSITIVE), next: Duration::ZERO }
    }

    /// Returns how long to wait from `now` before doing `units` (not negative) of work.
    pub fn delay(&mut self, now: Duration, units: f64) -> Duration {
        let start = self.next.max(now);
        let takes = Duration::try_from_secs_f64(units / self.per_second).unwrap_or(Duration::MAX);
        self.next = start.saturating_add(takes);
        start - now
    }
}
