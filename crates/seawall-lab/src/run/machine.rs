//! The machine of a run, and other work on it.
//!
//! - Foreign CPU is the total use of the processors minus that of this process and of kernel threads, in
//!   cores.
//! - Foreign I/O is the bytes that other processes read and wrote, where this user may see them; else `None`.
//! - Device counters are those of the whole device (`/proc/diskstats`), so that a journal's writes count too.

use crate::results::{DeviceDelta, Machine};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Describes this machine.
///
/// ```
/// let machine = seawall_lab::run::this_machine();
/// assert!(machine.cpus >= 1);
/// ```
pub fn this_machine() -> Machine {
    let model = |text: &str| {
        let (_, model) = text.lines().find(|l| l.starts_with("model name"))?.split_once(':')?;
        Some(model.trim().to_owned())
    };
    let kib = |text: &str| text.lines().next()?.split_whitespace().nth(1)?.parse::<u64>().ok();
    let uname = rustix::system::uname();
    Machine {
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        cpu_model: parsed("/proc/cpuinfo", model).unwrap_or_else(|| "unknown".into()),
        memory_bytes: parsed("/proc/meminfo", kib).map_or(0, |kib| kib << 10),
        kernel: uname.release().to_string_lossy().into_owned(),
        host: uname.nodename().to_string_lossy().into_owned(),
    }
}

/// What `parse` finds in a file of the kernel; `None` also if it cannot be read.
fn parsed<T>(path: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    parse(&fs::read_to_string(path).ok()?)
}

/// Counters of one device since boot; `None` when `/proc/diskstats` has no row for it.
///
/// ```
/// assert_eq!(seawall_lab::run::device_counters("no-such-device"), None);
/// ```
pub fn device_counters(name: &str) -> Option<DeviceDelta> {
    parsed("/proc/diskstats", |text| parse_diskstats(text, name))
}

/// Fields by Documentation/admin-guide/iostats.rst; a sector there is always 512 bytes.
fn parse_diskstats(text: &str, name: &str) -> Option<DeviceDelta> {
    let line = text.lines().find(|l| l.split_whitespace().nth(2) == Some(name))?;
    let field = |n: usize| line.split_whitespace().nth(n + 2).and_then(|f| f.parse::<u64>().ok());
    Some(DeviceDelta {
        reads: field(1)?,
        read_bytes: field(3)? * 512,
        writes: field(5)?,
        written_bytes: field(7)? * 512,
        busy_ms: field(10)?,
        flushes: field(16),
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
    io_bytes: Option<BTreeMap<u32, u64>>,
}

impl ForeignReading {
    /// Reads all of `/proc`: some milliseconds.
    pub fn take() -> Self {
        let busy_ticks = parsed("/proc/stat", |text| {
            let fields = text.lines().next()?.split_whitespace().skip(1);
            let fields: Vec<u64> = fields.filter_map(|f| f.parse().ok()).collect();
            Some([0, 1, 2, 7].iter().filter_map(|&i| fields.get(i)).sum())
        });
        let (at, busy_ticks) = (Instant::now(), busy_ticks.unwrap_or(0));
        let mut reading = Self { at, busy_ticks, own_ticks: 0, kernel_ticks: 0, io_bytes: None };
        let (mut seen, mut unseen, mut kernel_seen) = (BTreeMap::new(), 0, false);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|e| e.file_name().to_string_lossy().parse::<u32>().ok()) {
            let Some((kernel, ticks)) = parsed(&format!("/proc/{pid}/stat"), parse_stat) else { continue };
            if pid == std::process::id() {
                reading.own_ticks = ticks;
            } else if kernel {
                reading.kernel_ticks += ticks;
                kernel_seen = true;
            } else if let Some(bytes) = parsed(&format!("/proc/{pid}/io"), parse_io) {
                seen.insert(pid, bytes);
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

/// Parses `/proc/PID/stat`: whether the process is a kernel thread, and its processor time (user + system, ticks). The
/// name in it may contain spaces and parentheses. A flag decides: in a container process 2 is an ordinary process.
fn parse_stat(text: &str) -> Option<(bool, u64)> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some((fields.get(6)?.parse::<u64>().ok()? & PF_KTHREAD != 0, ticks))
}

fn parse_io(text: &str) -> Option<u64> {
    let field = |name| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(field("read_bytes:")? + field("write_bytes:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_understood() {
        let text =
            "   8       0 sda 100 2 800 5 50 1 400 9 0 33 14 0 0 0 0 7 3\n 259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11\n";
        let sda = parse_diskstats(text, "sda").unwrap();
        assert_eq!((sda.reads, sda.read_bytes, sda.writes, sda.written_bytes), (100, 409_600, 50, 204_800));
        assert_eq!((sda.busy_ms, sda.flushes), (33, Some(7)));
        assert_eq!(parse_diskstats(text, "nvme0n1").unwrap().flushes, None);
        assert!(parse_diskstats(text, "sdb").is_none());
        assert_eq!(parse_stat("12 (a) b) c) S 7 1 1 0 -1 4 0 0 0 0 30 4 0 0 20"), Some((false, 34)));
        // A child of process 2 of a container is no kernel thread; a thread with the kernel's flag is.
        assert_eq!(parse_stat("9 (sh) R 2 1 1 0 -1 4194304 0 0 0 0 1 0 0 0 20"), Some((false, 1)));
        assert_eq!(parse_stat("40 (kworker/0:1) I 2 0 0 0 -1 69238880 0 0 0 0 0 5 0 0 20"), Some((true, 5)));
        assert_eq!(parse_io("rchar: 9\nread_bytes: 5\nwrite_bytes: 6\n"), Some(11));
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
