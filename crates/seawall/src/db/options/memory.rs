//! The memory that this process may use: the machine's, or less if its control group limits it.
//!
//! 1. A limit that cannot be read is no limit: nothing here fails, and the result names its source.
//! 2. The limits of all ancestor groups count; the lowest wins. "Unlimited" is a word in version 2 and a huge
//!    number in version 1.

use std::fs;
use std::path::Path;

/// The memory that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryLimit {
    /// Bytes; `None` if neither the machine nor a control group reports a limit.
    pub bytes: Option<u64>,
    /// The source of the limit.
    pub from: String,
}

impl MemoryLimit {
    /// Reads the current limit of this process.
    ///
    /// ```
    /// let limit = seawall::options::MemoryLimit::read();
    /// assert!(limit.bytes.is_none_or(|bytes| bytes > 0), "{}", limit.from);
    /// ```
    #[must_use]
    pub fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    /// Returns an unknown limit.
    #[must_use]
    pub fn unknown() -> Self {
        Self { bytes: None, from: "nowhere".to_owned() }
    }

    fn read_below(root: &Path) -> Self {
        let mut lowest = Self::unknown();
        let mut offer = |bytes: Option<u64>, from: &Path| {
            if let Some(bytes) = bytes.filter(|b| *b > 0 && lowest.bytes.is_none_or(|l| *b < l)) {
                lowest = Self { bytes: Some(bytes), from: from.display().to_string() };
            }
        };
        let meminfo = root.join("proc/meminfo");
        offer(total_bytes(&fs::read_to_string(&meminfo).unwrap_or_default()), &meminfo);
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        for line in groups.lines() {
            // `0::/path` in version 2, `4:memory:/path` in version 1.
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
            let (mounts, names): (&[&str], &[&str]) = match controllers {
                "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], &["memory.max", "memory.high"]),
                list if list.split(',').any(|c| c == "memory") => {
                    (&["sys/fs/cgroup/memory"], &["memory.limit_in_bytes"])
                }
                _ => continue,
            };
            for mount in mounts {
                let mount = root.join(mount);
                // In a container the group's path may be the host's and not exist here: the root of the mount
                // is then the group. A path with `..` (a group outside this namespace) is not followed.
                let inside = Path::new(group.trim_start_matches('/'));
                let plain = inside.components().all(|c| matches!(c, std::path::Component::Normal(_)));
                let group = if plain { mount.join(inside) } else { mount.clone() };
                for dir in group.ancestors().take_while(|dir| dir.starts_with(&mount)) {
                    for name in names {
                        let file = dir.join(name);
                        offer(fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()), &file);
                    }
                }
            }
        }
        lowest
    }
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        MemoryLimit::read_below(root(files).path()).bytes
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");

    #[test]
    fn the_machine_is_the_limit_without_groups() {
        assert_eq!(limit(&[MACHINE]), Some(8 << 30));
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[("proc/meminfo", "MemTotal: lots\n")]), None);
    }

    #[test]
    fn the_lowest_group_wins() {
        let groups = ("proc/self/cgroup", "0::/system.slice/db.service\n");
        let own = ("sys/fs/cgroup/system.slice/db.service/memory.max", "max\n");
        let parent = ("sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
        assert_eq!(limit(&[MACHINE, groups, own, parent]), Some(1 << 30));
        let own = ("sys/fs/cgroup/system.slice/db.service/memory.high", "536870912\n");
        assert_eq!(limit(&[MACHINE, groups, own, parent]), Some(512 << 20));
    }

    #[test]
    fn a_container_sees_its_group_at_the_root() {
        let groups = ("proc/self/cgroup", "0::/docker/0123\n");
        assert_eq!(limit(&[MACHINE, groups, ("sys/fs/cgroup/memory.max", "268435456\n")]), Some(256 << 20));
        let outside = ("proc/self/cgroup", "0::/../../x\n");
        assert_eq!(limit(&[MACHINE, outside, ("sys/fs/cgroup/memory.max", "268435456\n")]), Some(256 << 20));
    }

    #[test]
    fn version_one_counts_too() {
        let groups = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/db\n0::/\n");
        let at = "sys/fs/cgroup/memory/db/memory.limit_in_bytes";
        assert_eq!(limit(&[MACHINE, groups, (at, "134217728\n")]), Some(128 << 20));
        assert_eq!(limit(&[MACHINE, groups, (at, "9223372036854771712\n")]), Some(8 << 30), "that is no limit");
        assert_eq!(limit(&[MACHINE, groups, (at, "-1\n")]), Some(8 << 30));
    }
}
