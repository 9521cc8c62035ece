//! Findings about the disk under a directory: whether flushed data survives, as far as the kernel reports.
//!
//! 1. Nothing is written and nothing is tried: /proc and sysfs only.
//! 2. An unknown fact gives no finding. A device that lies about its cache cannot be detected here:
//!    `seawall witness` does that.

use super::{Diagnosis, Severity};
use seawall_io::probe::{BlockDevice, FileSystem, Finding as Known, WriteCache, block_device_of, file_system_of};
use std::path::Path;

/// Returns the findings about the file system and the device that hold `dir`, the worst first.
///
/// ```
/// let found = seawall_tools::doctor::place(std::path::Path::new("/dev/shm"));
/// assert!(found.is_empty() || found[0].id == "memory-file-system");
/// ```
#[must_use]
pub fn place(dir: &Path) -> Vec<Diagnosis> {
    let (file_system, device) = (file_system_of(dir), block_device_of(dir));
    let found = file_system.known().and_then(|found| of_file_system(dir, found));
    found.into_iter().chain(device.known().and_then(|found| of_device(dir, found))).collect()
}

fn of_file_system(dir: &Path, found: &FileSystem) -> Option<Diagnosis> {
    let (dir, kind) = (dir.display(), &found.kind);
    let off = |option: &&str| matches!(*option, "nobarrier" | "barrier=0" | "nobarriers");
    let make = |id, severity, sentence, advice: &str| Some(Diagnosis { id, severity, sentence, advice: advice.into() });
    match kind.as_str() {
        "tmpfs" | "ramfs" | "devtmpfs" => make(
            "memory-file-system",
            Severity::Critical,
            format!("{dir} is on {kind}: in memory."),
            "Nothing there survives a restart of the machine. Move the data directory to a disk.",
        ),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "fuse" | "virtiofs" | "overlay" => make(
            "network-file-system",
            Severity::Note,
            format!("{dir} is on {kind}."),
            "What a flush is worth there depends on what is below it: `seawall witness` tests that with a power cut.",
        ),
        _ => {
            let option = found.options.split(',').find(off)?;
            make(
                "barriers-off",
                Severity::Critical,
                format!("{dir} is on {kind} mounted with {option}."),
                "The kernel sends no flushes to the device: a power loss can lose committed transactions and damage \
                 pages. Mount it without that option, unless the device's cache has a battery or capacitors.",
            )
        }
    }
}

fn of_device(dir: &Path, device: &BlockDevice) -> Option<Diagnosis> {
    (device.write_cache == Known::Known(WriteCache::Through)).then(|| Diagnosis {
        id: "write-through",
        severity: Severity::Note,
        sentence: format!(
            "The device {} below {} reports no volatile write cache, so the kernel sends no flush commands to it.",
            device.name,
            dir.display()
        ),
        advice: "That is right for a drive or a controller with power-loss protection. If it has none, commits can be \
                 lost at a power loss: `seawall witness` shows it."
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(kind: &str, options: &str) -> Option<(&'static str, Severity)> {
        let unknown = || Known::unknown("");
        let found = FileSystem {
            kind: kind.into(),
            mount_point: "/".into(),
            options: options.into(),
            copy_on_write: unknown(),
            journal: unknown(),
        };
        of_file_system(Path::new("/db"), &found).map(|found| (found.id, found.severity))
    }

    #[test]
    fn what_forgets_is_named() {
        assert_eq!(on("tmpfs", "rw"), Some(("memory-file-system", Severity::Critical)));
        assert_eq!(on("ext4", "rw,noatime,nobarrier"), Some(("barriers-off", Severity::Critical)));
        assert_eq!(on("overlay", "rw"), Some(("network-file-system", Severity::Note)));
        assert_eq!(on("ext4", "rw,noatime,errors=remount-ro"), None);
    }
}
