//! Which name leads to which file.
//!
//! 1. A creation, rename or removal is visible at once and pending until its directory is synced; a rename
//!    between two directories is pending until both are synced. Syncing the file itself promises nothing
//!    about its name.
//! 2. At a power cut any subset of the pending changes persists, each one whole: a rename never leaves both
//!    names or neither.
//! 3. After a failed sync of a directory at least one of its pending changes is lost: it is still visible, no
//!    later sync makes it stable, and no power cut keeps it.
//! 4. Every directory exists: [`seawall_io::Disk`] cannot create one. When directories can be lost, a
//!    directory is created with the first file in it, and its own name is pending until the directory above
//!    is synced. A power cut that loses a directory loses everything below it.

use crate::crash::CrashOutcomes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

#[derive(Debug, Clone)]
enum Change {
    Create(PathBuf),
    Remove(PathBuf),
    Rename { from: PathBuf, to: PathBuf, from_synced: bool, to_synced: bool },
}

#[derive(Debug, Clone)]
struct PendingName {
    seq: u64,
    inode: u64,
    change: Change,
    /// A failed sync lost the change.
    lost: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub(crate) seen: BTreeMap<PathBuf, u64>,
    pub(crate) stable: BTreeMap<PathBuf, u64>,
    pending: Vec<PendingName>,
    /// Directories whose name is stable; `None` when no directory can be lost.
    dirs: Option<BTreeSet<PathBuf>>,
    /// Directories created but not stable, with the sequence number of their creation.
    pending_dirs: Vec<(u64, PathBuf)>,
}

/// Returns the path without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            _ => normal.push(part),
        }
    }
    normal
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

impl Names {
    pub(crate) fn new(lose_directories: bool) -> Self {
        Self { dirs: lose_directories.then(BTreeSet::new), ..Self::default() }
    }

    /// Creates the directories above `path` that do not exist.
    fn make_dirs(&mut self, seq: u64, path: &Path) {
        let Some(stable) = &self.dirs else { return };
        for dir in path.ancestors().skip(1).filter(|dir| dir.parent().is_some() && !dir.as_os_str().is_empty()) {
            if !stable.contains(dir) && !self.pending_dirs.iter().any(|(_, pending)| pending == dir) {
                self.pending_dirs.push((seq, dir.to_owned()));
            }
        }
    }

    /// Removes every pending directory for which `keep` returns false, and everything below it.
    fn cut_dirs(&mut self, mut keep: impl FnMut(u64) -> bool) {
        for (seq, dir) in std::mem::take(&mut self.pending_dirs) {
            if !keep(seq) {
                self.stable.retain(|name, _| !name.starts_with(&dir));
            } else if let Some(stable) = &mut self.dirs {
                stable.insert(dir);
            }
        }
    }

    pub(crate) fn create(&mut self, seq: u64, path: PathBuf, inode: u64) {
        self.make_dirs(seq, &path);
        self.seen.insert(path.clone(), inode);
        self.pending.push(PendingName { seq, inode, change: Change::Create(path), lost: false });
    }

    pub(crate) fn remove(&mut self, seq: u64, path: PathBuf) -> Option<u64> {
        let inode = self.seen.remove(&path)?;
        self.pending.push(PendingName { seq, inode, change: Change::Remove(path), lost: false });
        Some(inode)
    }

    pub(crate) fn rename(&mut self, seq: u64, from: PathBuf, to: PathBuf) -> Option<u64> {
        let inode = self.seen.remove(&from)?;
        self.make_dirs(seq, &to);
        self.seen.insert(to.clone(), inode);
        let change = Change::Rename { from, to, from_synced: false, to_synced: false };
        self.pending.push(PendingName { seq, inode, change, lost: false });
        Some(inode)
    }

    /// Returns whether files lie below this path.
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        self.seen.keys().any(|name| name != path && name.starts_with(path))
    }

    /// Returns whether an ancestor of the path is a file.
    pub(crate) fn is_below_file(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| self.seen.contains_key(above))
    }

    pub(crate) fn list(&self, dir: &Path) -> Vec<PathBuf> {
        self.seen.keys().filter(|name| parent(name) == dir).cloned().collect()
    }

    pub(crate) fn sync_dir(&mut self, dir: &Path) {
        if let Some(stable) = &mut self.dirs {
            self.pending_dirs.retain(|(_, pending)| {
                let synced = parent(pending) == dir;
                if synced {
                    stable.insert(pending.clone());
                }
                !synced
            });
        }
        let mut chosen: Vec<bool> = self.pending.iter_mut().map(|pending| pending.change.synced(dir)).collect();
        // A change cannot be stable before an earlier one of the same name or file.
        for late in (0..chosen.len()).rev() {
            if chosen[late] {
                for (early, chosen) in chosen.iter_mut().enumerate().take(late) {
                    *chosen |= self.pending[early].touches(&self.pending[late]);
                }
            }
        }
        let all = std::mem::take(&mut self.pending);
        for (pending, chosen) in all.into_iter().zip(chosen) {
            if chosen && !pending.lost { self.settle(&pending) } else { self.pending.push(pending) }
        }
    }

    /// Returns whether a failed sync lost a change that is still visible.
    pub(crate) fn have_lost(&self) -> bool {
        self.pending.iter().any(|pending| pending.lost)
    }

    /// Fails the sync of a directory: loses the newest of its pending changes, and every other one for which
    /// `keep` returns false.
    pub(crate) fn sync_dir_failed(&mut self, dir: &Path, mut keep: impl FnMut() -> bool) {
        let of_dir = |change: &Change| change.names().iter().any(|name| parent(name) == dir);
        let mut last = true;
        for pending in self.pending.iter_mut().rev().filter(|pending| of_dir(&pending.change)) {
            pending.lost |= last || !keep();
            last = false;
        }
    }

    pub(crate) fn cut(&mut self, outcomes: &mut CrashOutcomes<'_>) {
        for pending in std::mem::take(&mut self.pending) {
            if outcomes.whole(pending.seq) && !pending.lost {
                self.settle(&pending);
            }
        }
        self.cut_dirs(|seq| outcomes.whole(seq));
        self.seen = self.stable.clone();
    }

    pub(crate) fn forget_pending(&mut self) {
        self.pending.clear();
        self.cut_dirs(|_| false);
        self.seen = self.stable.clone();
    }

    pub(crate) fn seqs(&self) -> impl Iterator<Item = u64> + '_ {
        self.pending.iter().map(|pending| pending.seq).chain(self.pending_dirs.iter().map(|(seq, _)| *seq))
    }

    /// Returns whether a file can still be reached by a name, now or after a power cut.
    pub(crate) fn knows(&self, inode: u64) -> bool {
        self.seen.values().chain(self.stable.values()).any(|&known| known == inode)
            || self.pending.iter().any(|pending| pending.inode == inode)
    }

    fn settle(&mut self, pending: &PendingName) {
        match &pending.change {
            Change::Create(path) => {
                self.stable.insert(path.clone(), pending.inode);
            }
            Change::Remove(path) => {
                if self.stable.get(path) == Some(&pending.inode) {
                    self.stable.remove(path);
                }
            }
            Change::Rename { to, .. } => {
                self.stable.retain(|_, inode| *inode != pending.inode);
                self.stable.insert(to.clone(), pending.inode);
            }
        }
    }
}

impl Change {
    /// Records the sync of a directory; returns whether the change is stable now.
    fn synced(&mut self, dir: &Path) -> bool {
        match self {
            Self::Create(path) | Self::Remove(path) => parent(path) == dir,
            Self::Rename { from, to, from_synced, to_synced } => {
                *from_synced |= parent(from) == dir;
                *to_synced |= parent(to) == dir;
                *from_synced && *to_synced
            }
        }
    }

    fn names(&self) -> [&Path; 2] {
        match self {
            Self::Create(path) | Self::Remove(path) => [path, path],
            Self::Rename { from, to, .. } => [from, to],
        }
    }
}

impl PendingName {
    fn touches(&self, other: &Self) -> bool {
        self.inode == other.inode || self.change.names().iter().any(|name| other.change.names().contains(name))
    }
}
