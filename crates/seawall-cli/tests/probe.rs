//! `seawall probe`.

mod common;

use common::skip::skipped;
use common::{Mount, names, scratch, seawall};
use std::path::Path;

#[test]
fn a_directory_is_probed_and_left_as_it_was() {
    let dir = scratch();
    std::fs::write(dir.path().join("mine"), "x").unwrap();
    let ran = seawall(dir.path(), ["probe", "."]).exits(0);
    for finding in ["file system", "direct I/O", "RWF_DSYNC", "io_uring", "free space", "cachestat"] {
        assert!(ran.out.contains(finding), "{finding}: {}", ran.out);
    }
    assert!(ran.err.is_empty(), "{}", ran.err);
    assert_eq!(names(dir.path()), ["mine"]);
}

#[test]
fn json_holds_the_findings() {
    let dir = scratch();
    let found = seawall(dir.path(), ["probe", ".", "--json"]).exits(0).json();
    assert!(found["free_bytes"].as_u64().unwrap() > 0);
    // In a chroot the mount is not visible; then the reason is given.
    let file_system = &found["file_system"];
    assert!(file_system["known"]["kind"].is_string() || file_system["unknown"].is_string(), "{found}");
}

#[test]
fn memory_is_called_memory() {
    if !Path::new("/dev/shm").is_dir() {
        skipped("no /dev/shm");
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    seawall(dir.path(), ["probe", "."]).exits(0).shows("memory: nothing here survives a restart");
}

#[test]
fn a_file_stands_for_its_directory() {
    let dir = scratch();
    std::fs::write(dir.path().join("mine"), "x").unwrap();
    seawall(dir.path(), ["probe", "mine"]).exits(0).shows("file system");
    assert_eq!(std::fs::read(dir.path().join("mine")).unwrap(), b"x");
}

#[test]
fn a_missing_path_is_named() {
    let ran =
        seawall(scratch().path(), ["probe", "no/such"]).exits(2).says("no/such").says("check that the path exists");
    assert!(ran.out.is_empty());
}

#[test]
fn a_read_only_path_is_called_so() {
    let Some(mount) = Mount::tmpfs("ro") else { return };
    seawall(scratch().path(), ["probe".as_ref(), mount.path.as_os_str()]).exits(2).says("mounted read-only");
}

#[test]
fn a_path_that_is_not_utf8_is_no_reason_to_fail() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = scratch();
    let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&odd).unwrap();
    seawall(&odd, ["probe", "."]).exits(0);
    seawall(&odd, ["probe", ".", "--json"]).exits(0).json();
}
