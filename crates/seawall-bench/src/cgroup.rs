//! A memory cgroup for this process and the page cache it fills, so that stores which live in the page cache
//! get the same memory as the others.
//!
//! 1. The group is created below the group of the process (version 1), or below the nearest ancestor that
//!    delegates its memory controller (version 2: a group with processes of its own cannot). On drop, the
//!    process leaves the group and the group is removed.
//! 2. Pages cached before the process joined count elsewhere: the caller drops them before it measures.
//! 3. If no group can be created, the error lists what was tried; a run that should be bounded never runs
//!    unbounded.

use std::fs;
use std::path::{Path, PathBuf};

/// The group this process is in; it leaves when this is dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
    before: PathBuf,
}

/// A way to bound memory: the group of the process, the groups below which one may be created, and the limit's file.
type Way = (PathBuf, Vec<PathBuf>, &'static str);

impl MemoryGroup {
    /// Puts this process into a fresh group of at most `limit` bytes.
    ///
    /// # Errors
    /// When there is no memory controller, or no right to use it: says what to do.
    pub fn enter(limit: u64) -> Result<Self, String> {
        Self::enter_below(Path::new("/"), limit)
    }

    fn enter_below(root: &Path, limit: u64) -> Result<Self, String> {
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let mut tried = Vec::new();
        for (before, parents, limit_file) in groups.lines().filter_map(|line| way(root, line)) {
            for parent in parents {
                match enter(&before, &parent, limit_file, limit) {
                    Ok(group) => return Ok(group),
                    Err(why) => tried.push(why),
                }
            }
        }
        if tried.is_empty() {
            tried.push("no mounted cgroup hierarchy has a memory controller for this process".into());
        }
        Err(format!(
            "cannot bound memory by a cgroup: {}; run as root or in a delegated group (systemd-run --scope -p \
             Delegate=yes), or leave --memory-limit out",
            tried.join("; ")
        ))
    }
}

/// The way that a line of `/proc/self/cgroup` offers: `4:memory:/path` in version 1, `0::/path` in version 2.
fn way(root: &Path, line: &str) -> Option<Way> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    let below = |mount: &Path| {
        // In a container the path may be the host's and not exist here: then use the mount's root.
        let dir = mount.join(group.trim_start_matches('/'));
        if group.contains("..") || !dir.is_dir() { mount.to_path_buf() } else { dir }
    };
    if controllers.split(',').any(|controller| controller == "memory") {
        let mount = root.join("sys/fs/cgroup/memory");
        return mount.is_dir().then(|| (below(&mount), vec![below(&mount)], "memory.limit_in_bytes"));
    }
    if !controllers.is_empty() {
        return None;
    }
    let mounts = ["sys/fs/cgroup", "sys/fs/cgroup/unified"].map(|mount| root.join(mount));
    let mount = mounts.into_iter().find(|mount| mount.join("cgroup.controllers").is_file())?;
    let before = below(&mount);
    let hands_on = |dir: &Path| {
        let controllers = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|controller| controller == "memory")
    };
    let parents = before.ancestors().take_while(|dir| dir.starts_with(&mount)).filter(|dir| hands_on(dir));
    let parents = parents.map(Path::to_path_buf).collect();
    Some((before, parents, "memory.max"))
}

fn enter(before: &Path, parent: &Path, limit_file: &str, limit: u64) -> Result<MemoryGroup, String> {
    let dir = parent.join(format!("seawall-bench-{}", std::process::id()));
    fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let write = |file: PathBuf, text: String| fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()));
    // Swap must not add memory; without swap accounting there is no such file.
    drop(fs::write(dir.join("memory.swap.max"), "0"));
    let entered = write(dir.join(limit_file), limit.to_string())
        .and_then(|()| write(dir.join("cgroup.procs"), std::process::id().to_string()));
    match entered {
        Ok(()) => Ok(MemoryGroup { dir, before: before.into() }),
        Err(why) => {
            drop(fs::remove_dir(&dir));
            Err(why)
        }
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // If this fails, the kernel removes the process from the group when it exits, and an empty group remains.
        drop(fs::write(self.before.join("cgroup.procs"), std::process::id().to_string()));
        drop(fs::remove_dir(&self.dir));
    }
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

    fn read(root: &Path, name: String) -> String {
        fs::read_to_string(root.join(name)).unwrap_or_default()
    }

    #[test]
    fn version_1_is_bounded_below_its_own_group() {
        let root = root(&[
            ("proc/self/cgroup", "5:cpu:/a\n4:hugetlb,memory:/a\n0::/\n"),
            ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
        ]);
        let group = MemoryGroup::enter_below(root.path(), 64 << 20).unwrap();
        let id = std::process::id();
        let below = format!("sys/fs/cgroup/memory/a/seawall-bench-{id}");
        assert_eq!(read(root.path(), format!("{below}/memory.limit_in_bytes")), (64 << 20).to_string());
        assert_eq!(read(root.path(), format!("{below}/cgroup.procs")), id.to_string());
        drop(group);
        assert_eq!(read(root.path(), "sys/fs/cgroup/memory/a/cgroup.procs".into()), id.to_string(), "it went back");
    }

    #[test]
    fn version_2_is_bounded_where_the_controller_is_handed_on() {
        let files = [
            ("proc/self/cgroup", "0::/user/session\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory"),
            ("sys/fs/cgroup/user/cgroup.subtree_control", "cpu memory"),
            ("sys/fs/cgroup/user/session/cgroup.subtree_control", ""),
        ];
        let root = root(&files);
        let group = MemoryGroup::enter_below(root.path(), 1 << 20).unwrap();
        let below = format!("sys/fs/cgroup/user/seawall-bench-{}", std::process::id());
        assert_eq!(read(root.path(), format!("{below}/memory.max")), (1 << 20).to_string());
        drop(group);
    }

    #[test]
    fn what_cannot_be_bounded_is_refused_with_the_reason() {
        let none = root(&[("proc/self/cgroup", "0::/\n")]);
        let why = MemoryGroup::enter_below(none.path(), 1 << 20).unwrap_err().to_string();
        assert!(why.contains("no mounted cgroup") && why.contains("--memory-limit"), "{why}");
        // A file where the group would be: like missing permission to create one.
        let blocked = root(&[("proc/self/cgroup", "4:memory:/\n"), ("sys/fs/cgroup/memory/x", "")]);
        let dir = blocked.path().join(format!("sys/fs/cgroup/memory/seawall-bench-{}", std::process::id()));
        fs::write(&dir, "").unwrap();
        let why = MemoryGroup::enter_below(blocked.path(), 1 << 20).unwrap_err().to_string();
        assert!(why.contains(&dir.display().to_string()), "{why}");
    }
}
