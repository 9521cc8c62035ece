//! Observes the machine while a workload runs: the device, the processors, this process's memory.
//!
//! 1. A value that cannot be read is `None`, not zero.
//! 2. Device counters are those of the whole device, so that a journal's writes count too. I/O of other
//!    processes on it counts as well.
//! 3. Writes that a store left to the kernel and that reach the device after the window are not in the
//!    window's figures.

use procfs::process::Process;
use rustix::time::{ClockId, clock_gettime};
use seawall_io::probe::block_device_of;
use seawall_io::{Disk as _, OpenHow, OsDisk};
use seawall_lab::results::DeviceDelta;
use seawall_lab::run::{ForeignReading, cached_bytes, device_counters, device_delta, files_below};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A measurement is called disturbed if other processes used more than this meanwhile, cores.
pub const FOREIGN_CORES: f64 = 0.1;

/// What happened in a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// The device under the data.
    pub device: Option<DeviceDelta>,
    /// Reads that the device had in flight, on average.
    pub device_reads_in_flight: Option<f64>,
    /// Growth of the counters that the observer was given.
    pub counted: Vec<u64>,
    /// What was used.
    pub used: Usage,
}

/// What a process used in a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processors this process used, user and system, in cores.
    pub cpu_cores: f64,
    /// Processors that other processes used meanwhile, in cores.
    pub foreign_cpu_cores: f64,
    /// Resident memory at the end, bytes.
    pub rss_bytes: Option<u64>,
    /// Its maximum in the window, bytes.
    pub rss_peak_bytes: Option<u64>,
    /// Bytes of the store's files in the page cache at the end.
    pub page_cache_bytes: Option<u64>,
}

/// Observes one window after the other.
#[expect(missing_debug_implementations, reason = "the counters are a closure")]
pub struct Observer<'c> {
    dir: PathBuf,
    device: Option<String>,
    /// Reads counters that only grow, at both ends of a window; none unless set.
    pub(crate) counters: Box<dyn Fn() -> Vec<u64> + 'c>,
    began: Option<(Reading, ForeignReading)>,
}

/// What is read at both ends of a window.
struct Reading {
    at: Instant,
    device: Option<DeviceDelta>,
    reading_ms: Option<u64>,
    counted: Vec<u64>,
    cpu: Duration,
}

impl Observer<'_> {
    /// Creates an observer for a store whose files are in `dir`.
    pub fn new(dir: &Path) -> Self {
        let canonical = fs::canonicalize(dir).unwrap_or_else(|_| dir.into());
        let device = block_device_of(&canonical).known().map(|device| device.name.clone());
        Self { dir: canonical, device, counters: Box::new(Vec::new), began: None }
    }

    fn read(&self) -> Reading {
        let device = self.device.as_deref();
        let (reading_ms, device) = (device.and_then(reading_ms), device.and_then(device_counters));
        let (counted, cpu) = ((self.counters)(), cpu_time(ClockId::ProcessCPUTime));
        Reading { at: Instant::now(), device, reading_ms, counted, cpu }
    }

    /// Begins a window.
    pub fn begin(&mut self) {
        // Asks the kernel to reset the peak resident size, which the load has set. Without that support, the peak is
        // that of the process since its start.
        drop(fs::write("/proc/self/clear_refs", "5"));
        let foreign = ForeignReading::take();
        self.began = Some((self.read(), foreign));
    }

    /// Ends the window.
    pub fn end(&mut self) -> Observed {
        let Some((begun, foreign)) = self.began.take() else { return Observed::default() };
        let now = self.read();
        let seconds = (now.at - begun.at).as_secs_f64().max(1e-6);
        let (foreign_cpu_cores, _) = foreign.since();
        // Little's law: the sum of all read times, divided by the elapsed time.
        let in_flight = |(before, after): (u64, u64)| after.saturating_sub(before) as f64 / 1e3 / seconds;
        let status = Process::myself().and_then(|this| this.status()).ok();
        let bytes = |kib: Option<u64>| kib?.checked_mul(1024);
        Observed {
            device: begun.device.zip(now.device).map(|(before, after)| device_delta(before, after)),
            device_reads_in_flight: begun.reading_ms.zip(now.reading_ms).map(in_flight),
            counted: now.counted.iter().zip(&begun.counted).map(|(now, before)| now.saturating_sub(*before)).collect(),
            used: Usage {
                cpu_cores: now.cpu.saturating_sub(begun.cpu).as_secs_f64() / seconds,
                foreign_cpu_cores,
                rss_bytes: status.as_ref().and_then(|status| bytes(status.vmrss)),
                rss_peak_bytes: status.as_ref().and_then(|status| bytes(status.vmhwm)),
                page_cache_bytes: cached_bytes(&self.dir),
            },
        }
    }
}

/// The sum of the times of all completed reads of a device, ms.
fn reading_ms(device: &str) -> Option<u64> {
    Some(procfs::diskstats().ok()?.into_iter().find(|disk| disk.name == device)?.time_reading)
}

/// Processor time so far, user and system, of this process or thread.
pub(crate) fn cpu_time(of: ClockId) -> Duration {
    let time = clock_gettime(of);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Drops the cached pages of the files below `dir`, so that a store's next reads reach the device.
///
/// # Errors
/// When a file's data cannot be written back or dropped, with the file's name.
pub fn drop_page_cache(dir: &Path) -> Result<(), String> {
    let disk = OsDisk::synchronous();
    for path in files_below(dir) {
        let Ok(file) = disk.open(&path, OpenHow::default()) else { continue };
        // Dirty pages cannot be dropped: write them first.
        disk.sync(&file, seawall_io::SyncHow::All)
            .and_then(|()| disk.drop_cache(&file, 0, 0))
            .map_err(|e| format!("cannot drop {} from the page cache: {e}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_observed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), vec![7; 100_000]).unwrap();
        let count = std::cell::Cell::new(5);
        let mut observer = Observer::new(dir.path());
        observer.counters = Box::new(|| vec![count.get()]);
        assert_eq!(observer.end(), Observed::default(), "nothing began");
        observer.begin();
        let cpu_time = || cpu_time(ClockId::ProcessCPUTime);
        let begin = cpu_time();
        while cpu_time() - begin < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        count.set(8);
        let observed = observer.end();
        assert_eq!(observed.counted, [3]);
        assert!(observed.used.cpu_cores > 0.0, "{observed:?}");
        assert!(
            observed.used.rss_bytes.unwrap() > 0
                && observed.used.rss_peak_bytes.unwrap() >= observed.used.rss_bytes.unwrap() / 2
        );
        assert!(observed.used.page_cache_bytes.is_none_or(|bytes| bytes >= 100_000), "{observed:?}");
        drop_page_cache(dir.path()).unwrap();
        assert_eq!(files_below(dir.path()), [dir.path().join("sub/file")]);
    }
}
