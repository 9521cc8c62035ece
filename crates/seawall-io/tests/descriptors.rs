//! A process without free file descriptors: open files remain usable, and nothing is lost.

mod common;

use common::{dir, in_child};
use seawall_io::{Create, Disk, Op, OpenHow, OsDisk};

/// Takes every descriptor that this process may still open; dropping the returned value frees them.
#[allow(unsafe_code)]
fn exhaust() -> Vec<std::fs::File> {
    let limit = libc::rlimit { rlim_cur: 60, rlim_max: 60 };
    // SAFETY: the limit lives as long as the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

#[test]
fn a_directory_that_was_synced_once_is_synced_without_a_descriptor() {
    if !in_child("a_directory_that_was_synced_once_is_synced_without_a_descriptor") {
        return;
    }
    let (one, other) = (dir(), dir());
    let disk = OsDisk::synchronous();
    let how = OpenHow { write: true, create: Create::IfMissing, ..OpenHow::default() };
    drop(disk.open(&one.path().join("f"), how).unwrap());
    disk.sync_dir(one.path()).unwrap();
    let taken = exhaust();
    let refused = disk.open(&one.path().join("f"), how).unwrap_err();
    assert!(refused.is_not_now() && refused.op == Op::Open, "{refused:?}");
    disk.rename(&one.path().join("f"), &one.path().join("g")).unwrap();
    disk.sync_dir(one.path()).unwrap();
    // Another directory cannot be opened: this is not a failed flush.
    let refused = disk.sync_dir(other.path()).unwrap_err();
    assert!(refused.is_not_now() && refused.path == other.path() && !refused.is_fatal(), "{refused:?}");
    drop(taken);
    disk.sync_dir(other.path()).unwrap();
}

#[test]
fn a_directory_in_the_place_of_another_is_the_one_that_is_synced() {
    let dir = dir();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    std::fs::create_dir(&a).unwrap();
    let disk = OsDisk::synchronous();
    let open = || -> Vec<std::path::PathBuf> {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap();
        fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).filter(|to| to.starts_with(dir.path())).collect()
    };
    disk.sync_dir(&a).unwrap();
    std::fs::rename(&a, &b).unwrap();
    std::fs::create_dir(&a).unwrap();
    assert_eq!(open(), std::slice::from_ref(&b), "the one it was opened on");
    disk.sync_dir(&a).unwrap();
    assert_eq!(open(), [a], "the one that the path leads to");
}

#[test]
#[allow(unsafe_code)]
fn the_limit_is_raised_as_far_as_the_process_may() {
    if !in_child("the_limit_is_raised_as_far_as_the_process_may") {
        return;
    }
    let (soft, hard) = (40, 400);
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the limit lives as long as the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    assert_eq!(seawall_io::raise_descriptor_limit(), Some(hard));
    let dir = dir();
    let many: Vec<_> = (0..100).map(|i| std::fs::File::create(dir.path().join(i.to_string())).unwrap()).collect();
    drop(many);
}
