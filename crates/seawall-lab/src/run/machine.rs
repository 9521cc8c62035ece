//! The machine of a run, and other work on it.
//!
//! - Foreign CPU is the total use of the processors minus that of this process and of kernel threads, in
//!   cores.
//! - Foreign I/O is the bytes that other processes read and wrote, where this user may see them; else `None`.
//! - Device counters are those of the whole device (`/proc/diskstats`), so that a journal's writes count too.

use crate::results::{DeviceDelta, Machine};
use procfs::process::{StatFlags, all_processes};
use procfs::{CpuInfo, Current as _, CurrentSI as _, KernelStats, Meminfo};
use std::collections::BTreeMap;
use std::time::Instant;

/// Describes this machine.
///
/// ```
/// let machine = seawall_lab::run::this_machine();
/// assert!(machine.cpus >= 1);
/// ```
pub fn this_machine() -> Machine {
    let model = CpuInfo::current().ok().and_then(|cpu| cpu.model_name(0).map(str::to_owned));
    let uname = rustix::system::uname();
    Machine {
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        cpu_model: model.unwrap_or_else(|| "unknown".into()),
        memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
        kernel: uname.release().to_string_lossy().into_owned(),
        host: uname.nodename().to_string_lossy().into_owned(),
    }
}

/// Counters of one device since boot; `None` when `/proc/diskstats` has no row for it.
///
/// ```
/// assert_eq!(seawall_lab::run::device_counters("no-such-device"), None);
/// ```
pub fn device_counters(name: &str) -> Option<DeviceDelta> {
    let disk = procfs::diskstats().ok()?.into_iter().find(|disk| disk.name == name)?;
    // A sector there is always 512 bytes.
    Some(DeviceDelta {
        reads: disk.reads,
        read_bytes: disk.sectors_read * 512,
        writes: disk.writes,
        written_bytes: disk.sectors_written * 512,
        busy_ms: disk.time_in_progress,
        flushes: disk.flushes,
    })
}

/// The change between two readings of [`device_counters`].
///
/// ```
/// use seawall_lab::{results::DeviceDelta, run::device_delta};
/// let before = DeviceDelta { writes: 100, flushes: Some(7), ..DeviceDelta::default() };
/// let after = DeviceDelta { writes: 130, flushes: Some(9), ..before };
/// let between = device_delta(before, after);
/// assert_eq!((between.writes, between.flushes), (30, Some(2)));
/// ```
pub fn device_delta(before: DeviceDelta, after: DeviceDelta) -> DeviceDelta {
    DeviceDelta {
        reads: after.reads.saturating_sub(before.reads),
        read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
        writes: after.writes.saturating_sub(before.writes),
        written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
        flushes: after.flushes.zip(before.flushes).map(|(after, before)| after.saturating_sub(before)),
        busy_ms: after.busy_ms.saturating_sub(before.busy_ms),
    }
}

/// A reading of other processes' work on the machine.
///
/// ```
/// use seawall_lab::run::ForeignReading;
/// let before = ForeignReading::take();
/// let (cores, io_bytes_per_s) = before.since();
/// assert!(cores >= 0.0 && io_bytes_per_s.is_none_or(|rate| rate >= 0.0));
/// ```
#[derive(Debug)]
pub struct ForeignReading {
    at: Instant,
    /// user + nice + system + steal of all processors, ticks. Interrupts are left out: most come from the
    /// lab's own I/O.
    busy_ticks: u64,
    own_ticks: u64,
    kernel_ticks: u64,
    /// Bytes read and written so far by each other process.
    io_bytes: Option<BTreeMap<i32, u64>>,
}

impl ForeignReading {
    /// Reads all of `/proc`: some milliseconds.
    pub fn take() -> Self {
        let busy_ticks = KernelStats::current().map_or(0, |kernel| {
            let all = kernel.total;
            all.user + all.nice + all.system + all.steal.unwrap_or(0)
        });
        let mut reading = Self { at: Instant::now(), busy_ticks, own_ticks: 0, kernel_ticks: 0, io_bytes: None };
        let (mut seen, mut unseen, mut kernel_seen) = (BTreeMap::new(), 0, false);
        for process in all_processes().into_iter().flatten().flatten() {
            let Ok(stat) = process.stat() else { continue };
            let ticks = stat.utime + stat.stime;
            if stat.pid.unsigned_abs() == std::process::id() {
                reading.own_ticks = ticks;
            } else if is_kernel_thread(stat.flags) {
                reading.kernel_ticks += ticks;
                kernel_seen = true;
            } else if let Ok(io) = process.io() {
                seen.insert(stat.pid, io.read_bytes + io.write_bytes);
            } else {
                unseen += 1;
            }
        }
        // In a container other containers are not visible either.
        reading.io_bytes = (kernel_seen && unseen <= seen.len()).then_some(seen);
        reading
    }

    /// Foreign load since this reading: cores, and bytes per second if visible.
    pub fn since(&self) -> (f64, Option<f64>) {
        let now = Self::take();
        let seconds = now.at.duration_since(self.at).as_secs_f64().max(1e-3);
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let gone = |after: u64, before: u64| after.saturating_sub(before) as f64;
        let foreign = gone(now.busy_ticks, self.busy_ticks)
            - gone(now.own_ticks, self.own_ticks)
            - gone(now.kernel_ticks, self.kernel_ticks);
        let io = self.io_bytes.as_ref().zip(now.io_bytes.as_ref()).map(|(before, after)| {
            let moved = after.iter().map(|(pid, bytes)| bytes.saturating_sub(*before.get(pid).unwrap_or(&0)));
            moved.sum::<u64>() as f64 / seconds
        });
        ((foreign / per_second / seconds).max(0.0), io)
    }
}

/// A flag decides: in a container process 2 is an ordinary process.
fn is_kernel_thread(flags: u32) -> bool {
    flags & StatFlags::PF_KTHREAD.bits() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_process_2_of_a_container_is_no_kernel_thread() {
        assert!(!is_kernel_thread(4_194_304) && is_kernel_thread(69_238_880));
    }

    #[test]
    fn a_busy_loop_of_ours_is_not_foreign_and_a_child_is() {
        let before = ForeignReading::take();
        let start = Instant::now();
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        while start.elapsed().as_millis() < 600 {
            std::hint::spin_loop();
        }
        let (cores, _) = before.since();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(cores > 0.02, "a child burning a processor must show: {cores}");
    }
}
