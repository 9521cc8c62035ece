//! The block device and the file system under a path, from sysfs and /proc.

use super::finding::{BlockDevice, FileSystem, Finding, WriteCache};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One line of `/proc/self/mountinfo`.
struct Mount {
    device_number: String,
    point: PathBuf,
    /// The options of the mount, then those of the file system that are not among them.
    options: String,
    kind: String,
    source: String,
}

/// Undoes the octal escapes of `/proc/self/mountinfo` (`\040` for a space).
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let escaped = bytes
            .get(i + 1..i + 4)
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        match (bytes[i], escaped) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                i += 4;
            }
            (byte, _) => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (kind, source) = (right.next()?.to_owned(), unescape(right.next()?));
    let mut options: Vec<&str> = left.get(5)?.split(',').collect();
    for option in right.next().unwrap_or_default().split(',') {
        // Here "rw" is an option of the file system; the mount may be "ro".
        if !option.is_empty() && !matches!(option, "rw" | "ro") && !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount {
        device_number: (*left.get(2)?).to_owned(),
        point: unescape(left.get(4)?).into(),
        options: options.join(","),
        kind,
        source,
    })
}

fn mount_of(path: &Path) -> Option<Mount> {
    let info = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // Of equally long mount points the last one is mounted on top.
    info.lines().filter_map(parse_mount).filter(|m| path.starts_with(&m.point)).fold(None, |best: Option<Mount>, m| {
        match best {
            Some(b) if b.point.as_os_str().len() > m.point.as_os_str().len() => Some(b),
            _ => Some(m),
        }
    })
}

/// Returns `major:minor` of the file system that holds `path`.
fn device_number(path: &Path) -> Option<String> {
    let dev = rustix::fs::stat(path).ok()?.st_dev;
    Some(format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)))
}

/// Describes the file system that holds `path`, from its mount and its type. Reads only /proc and sysfs.
///
/// ```
/// use seawall_io::probe::{Finding, file_system_of};
/// if let Finding::Known(found) = file_system_of(std::path::Path::new("/proc")) {
///     assert_eq!(found.kind, "proc");
/// }
/// ```
#[must_use]
pub fn file_system_of(path: &Path) -> Finding<FileSystem> {
    let Some(mount) = mount_of(path) else {
        return Finding::unknown("no mount point for it in /proc/self/mountinfo");
    };
    let kind = mount.kind.as_str();
    let copy_on_write = match kind {
        "btrfs" | "zfs" | "bcachefs" | "f2fs" | "nilfs2" => Finding::Known(true),
        "ext2" | "ext3" | "ext4" | "xfs" | "jfs" | "tmpfs" | "ramfs" | "devtmpfs" | "vfat" | "exfat" => {
            Finding::Known(false)
        }
        other => Finding::unknown(format!("{other} is not one we know about")),
    };
    let journal = match kind {
        "xfs" | "ext3" | "jfs" => Finding::Known(true),
        "ext2" | "tmpfs" | "ramfs" | "devtmpfs" | "vfat" | "exfat" => Finding::Known(false),
        "ext4" => match (fs::read_dir("/proc/fs/jbd2"), block_device_of(path)) {
            (Ok(journals), Finding::Known(device)) => {
                let prefix = format!("{}-", device.volume);
                let has = journals.flatten().any(|j| j.file_name().to_string_lossy().starts_with(&prefix));
                Finding::Known(has)
            }
            (Err(e), _) if e.kind() == std::io::ErrorKind::NotFound && Path::new("/proc/fs/ext4").is_dir() => {
                Finding::Known(false)
            }
            _ => Finding::unknown("/proc/fs/jbd2 does not tell"),
        },
        other => Finding::unknown(format!("{other} is not one we know about")),
    };
    Finding::Known(FileSystem {
        copy_on_write,
        journal,
        kind: mount.kind,
        mount_point: mount.point,
        options: mount.options,
    })
}

/// Describes the block device that holds `path`, as far as sysfs can tell.
///
/// ```
/// use seawall_io::probe::{block_device_of, Finding};
/// match block_device_of(std::path::Path::new("/")) {
///     Finding::Known(device) => println!("watch {} in /proc/diskstats", device.name),
///     Finding::Unknown(reason) => println!("no block device: {reason}"),
/// }
/// ```
#[must_use]
pub fn block_device_of(path: &Path) -> Finding<BlockDevice> {
    let mount = mount_of(path);
    // In a chroot the mount is not visible, but the files on it still carry its device number.
    let by_number = mount.as_ref().map(|m| m.device_number.clone()).or_else(|| device_number(path));
    let by_number = by_number.map(|n| PathBuf::from("/sys/dev/block").join(n));
    // btrfs and a few others give the mount an anonymous device number; then the mount's source names the
    // device.
    let by_source = || {
        let source = fs::canonicalize(&mount.as_ref()?.source).ok()?;
        let name = source.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!");
        Some(PathBuf::from("/sys/class/block").join(name))
    };
    let Some(node) = by_number.and_then(|n| fs::canonicalize(n).ok()).or_else(|| fs::canonicalize(by_source()?).ok())
    else {
        return Finding::unknown(mount.map_or_else(
            || "no mount point for it in /proc/self/mountinfo, and no block device by its number".to_owned(),
            |m| format!("{} mounted from {} has no block device in sysfs", m.kind, m.source),
        ));
    };
    let file_name = |p: &Path| p.file_name().map_or_else(String::new, |n| n.to_string_lossy().replace('!', "/"));
    let volume = file_name(&node);
    let whole =
        if node.join("partition").exists() { node.parent().map_or(node.clone(), Path::to_path_buf) } else { node };
    let queue = whole.join("queue");
    Finding::Known(BlockDevice {
        name: file_name(&whole),
        volume,
        model: read(&whole.join("device/model")),
        rotational: read::<u8>(&queue.join("rotational")).map(|r| r == 1),
        write_cache: match read::<String>(&queue.join("write_cache")) {
            Finding::Known(text) if text == "write back" => Finding::Known(WriteCache::Back),
            Finding::Known(text) if text == "write through" => Finding::Known(WriteCache::Through),
            Finding::Known(text) => Finding::unknown(format!("sysfs says {text:?}")),
            Finding::Unknown(reason) => Finding::Unknown(reason),
        },
        fua: read::<u8>(&queue.join("fua")).map(|r| r == 1),
        logical_block_bytes: read(&queue.join("logical_block_size")),
        physical_block_bytes: read(&queue.join("physical_block_size")),
        scheduler: read::<String>(&queue.join("scheduler")).map(|text| {
            text.split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'))
                .map_or(text.clone(), |(name, _)| name.to_owned())
        }),
        below: below(&whole),
    })
}

/// Returns the size, bytes, of the largest write that a power cut leaves either complete or not done at all, in a file
/// below `path`, at an offset that is a multiple of the size. It is one block of a file system that writes in place, or
/// one physical sector of the devices below, whichever is smaller. Linux file systems rely on the same. The NVMe driver
/// reports no larger physical sector than the device writes atomically at a power failure (`nvme_update_disk_info` in
/// drivers/nvme/host/core.c).
///
/// ```
/// use seawall_io::probe::{Finding, untorn_write_bytes};
/// # let dir = tempfile::tempdir()?;
/// match untorn_write_bytes(dir.path()) {
///     Finding::Known(bytes) => println!("pages of {bytes} bytes need not be written twice"),
///     Finding::Unknown(reason) => println!("pages must be written twice: {reason}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn untorn_write_bytes(path: &Path) -> Finding<u32> {
    let found = || -> Result<u32, String> {
        let path = fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mount = mount_of(&path).ok_or("no mount point for it in /proc/self/mountinfo")?;
        if !matches!(mount.kind.as_str(), "ext4" | "xfs") {
            return Err(format!(
                "it is on {}: only ext4 and xfs are known to overwrite a block in one piece",
                mount.kind
            ));
        }
        let stat = rustix::fs::statvfs(&path).map_err(|e| format!("statvfs: {e}"))?;
        let node = fs::canonicalize(Path::new("/sys/dev/block").join(&mount.device_number))
            .map_err(|e| format!("{} mounted from {} has no block device in sysfs: {e}", mount.kind, mount.source))?;
        Ok(untorn_sector(&node)?.min(u32::try_from(stat.f_frsize).unwrap_or(u32::MAX)))
    };
    found().map_or_else(Finding::Unknown, Finding::Known)
}

/// Returns the smallest physical sector, bytes, of a device and of those below it, if all are aligned.
fn untorn_sector(node: &Path) -> Result<u32, String> {
    let known = |found: Finding<i64>| match found {
        Finding::Known(value) => Ok(value),
        Finding::Unknown(reason) => Err(reason),
    };
    let name = node.file_name().unwrap_or_default().to_string_lossy();
    if known(read(&node.join("alignment_offset")))? != 0 {
        return Err(format!("{name} does not begin at the start of a physical sector"));
    }
    let whole = if node.join("partition").exists() { node.parent().unwrap_or(node) } else { node };
    let lower = if whole.join("loop").exists() { Vec::new() } else { below(whole) };
    if lower.is_empty() && whole.starts_with("/sys/devices/virtual/block") {
        return Err(format!("{name} is a device of software (a file, memory or a network), whose store is not known"));
    }
    let mut least = known(read(&whole.join("queue/physical_block_size")))?.try_into().unwrap_or(0);
    for lower in lower {
        let lower = Path::new("/sys/class/block").join(lower);
        let lower = fs::canonicalize(&lower).map_err(|e| format!("{}: {e}", lower.display()))?;
        least = least.min(untorn_sector(&lower)?);
    }
    Ok(least)
}

/// Lists the devices (for a loop device, the file) below a device mapper, md or loop device.
fn below(whole: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(whole.join("slaves"))
        .map(|dir| dir.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    names.sort();
    if let Finding::Known(backing) = read::<String>(&whole.join("loop/backing_file")) {
        names.push(backing);
    }
    names
}

fn read<T: FromStr>(path: &Path) -> Finding<T> {
    match fs::read_to_string(path) {
        Ok(text) => match text.trim().parse() {
            Ok(value) => Finding::Known(value),
            Err(_) => Finding::unknown(format!("{} holds {:?}", path.display(), text.trim())),
        },
        Err(e) => Finding::unknown(format!("{}: {e}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_understood() {
        let m =
            parse_mount(r"36 35 98:0 /mnt1 /mnt/my\040disk rw,noatime master:1 - ext3 /dev/root rw,errors=continue")
                .unwrap();
        assert_eq!(m.point, Path::new("/mnt/my disk"));
        assert_eq!(m.options, "rw,noatime,errors=continue");
        assert_eq!((m.device_number.as_str(), m.kind.as_str(), m.source.as_str()), ("98:0", "ext3", "/dev/root"));
        assert!(parse_mount("nonsense").is_none());
        assert_eq!(unescape(r"a\134b\x"), r"a\b\x");
    }

    #[test]
    fn what_a_power_cut_leaves_whole_is_known_or_has_a_reason() {
        assert!(matches!(untorn_write_bytes(Path::new("/proc")), Finding::Unknown(reason) if reason.contains("proc")));
        assert!(
            matches!(untorn_write_bytes(Path::new("/no/such")), Finding::Unknown(reason) if reason.contains("/no/such"))
        );
        let here = untorn_write_bytes(Path::new(env!("CARGO_MANIFEST_DIR")));
        if let Finding::Known(bytes) = here {
            assert!(bytes.is_power_of_two() && (512..=65536).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn proc_has_no_block_device() {
        let found = block_device_of(Path::new("/proc"));
        assert!(matches!(&found, Finding::Unknown(reason) if reason.contains("proc")), "{found:?}");
    }
}
