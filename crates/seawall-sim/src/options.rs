//! Settings of a simulated disk.

use crate::clock::Latency;
use crate::fault::FaultPlan;

/// Settings of a simulated disk.
///
/// ```
/// use seawall_sim::{SimDisk, SimOptions};
/// let disk = SimDisk::new(SimOptions { seed: 7, capacity_bytes: 1 << 20, ..SimOptions::default() });
/// assert_eq!(disk.seed(), 7);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SimOptions {
    /// The seed of every random decision.
    pub seed: u64,
    /// Logical sector: the alignment that direct I/O needs, bytes. A power of two from 512 to 4096; others
    /// are rounded.
    pub sector_bytes: u32,
    /// Physical sector: the unit that a power cut cannot tear, bytes. Rounded like `sector_bytes` and at
    /// least that; 0 means the same.
    pub physical_sector_bytes: u32,
    /// The largest atomic write ([`seawall_io::WriteHow::atomic`]), bytes; 0 for none.
    pub atomic_write_bytes: u32,
    /// Whether the file system refuses direct I/O: such an open fails with `EINVAL`, after it has created the file.
    pub refuses_direct: bool,
    /// Whether it refuses to allocate ([`seawall_io::Disk::allocate`]), with `EOPNOTSUPP`.
    pub refuses_allocation: bool,
    /// Space for file blocks of 4096 bytes, in bytes; names and other metadata take no space.
    pub capacity_bytes: u64,
    /// How long operations take on the virtual clock.
    pub latency: Latency,
    /// Faults from the start; [`crate::SimDisk::inject`] adds more.
    pub faults: FaultPlan,
    /// Writes that a killed process left in flight land within this number of operations.
    pub late_within_ops: u64,
    /// What [`seawall_io::Disk::lock`] does while writes of a killed process hold the lock: `false` waits for
    /// them (like a caller that retries until it succeeds), `true` refuses with `Locked`, as one call of
    /// flock(2) does.
    pub late_lock_refuses: bool,
    /// Whether a power cut can remove a directory with everything in it if its name was not made durable in
    /// the directory above. A directory is created with the first file in it. If false, every directory
    /// existed before the disk was created.
    pub lose_directories: bool,
    /// Number of operations for which the trace keeps details; tallies and hash cover all.
    pub trace_entries_max: usize,
}

impl Default for SimOptions {
    /// A disk of 1 GiB with sectors of 512 bytes and no faults but the power cut.
    fn default() -> Self {
        Self {
            seed: 0,
            sector_bytes: 512,
            physical_sector_bytes: 0,
            atomic_write_bytes: 0,
            refuses_direct: false,
            refuses_allocation: false,
            capacity_bytes: 1 << 30,
            latency: Latency::default(),
            faults: FaultPlan::new(),
            late_within_ops: 64,
            late_lock_refuses: false,
            lose_directories: false,
            trace_entries_max: 100_000,
        }
    }
}

impl SimOptions {
    pub(crate) fn rounded(mut self) -> Self {
        let round = |bytes: u32| bytes.clamp(512, 4096).next_power_of_two();
        self.sector_bytes = round(self.sector_bytes);
        self.physical_sector_bytes = round(self.physical_sector_bytes).max(self.sector_bytes);
        self
    }
}
