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
    // A mount point is found by its name: a relative path, or a symbolic link to another disk, would miss it.
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let (file_system, device) = (file_system_of(&real), block_device_of(&real));
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
        kind if is_above_another(kind) => make(
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

/// Whether files there are another file system's, for example a server's.
fn is_above_another(kind: &str) -> bool {
    let others = ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "9p", "virtiofs", "overlay"];
    // Such as fuse.sshfs, fuse.glusterfs and fuseblk.
    kind.starts_with("fuse") || others.contains(&kind)
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
        for kind in ["overlay", "fuse.sshfs", "fuseblk", "ceph"] {
            assert_eq!(on(kind, "rw"), Some(("network-file-system", Severity::Note)), "{kind}");
        }
        assert_eq!(on("ext4", "rw,noatime,errors=remount-ro"), None);
    }

    #[test]
    fn the_disk_behind_a_symbolic_link_is_meant() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/shm", &link).unwrap();
        assert!(matches!(&file_system_of(Path::new("/dev/shm")), Known::Known(found) if found.kind == "tmpfs"));
        assert_eq!(place(&link).first().map(|found| found.id), Some("memory-file-system"));
    }
}
