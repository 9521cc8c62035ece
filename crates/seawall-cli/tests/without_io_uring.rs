//! A container's seccomp profile that forbids io_uring, as Docker's does: the command works without it, or
//! says what to do.

mod common;

use common::skip::skipped;
use common::{Ran, TINY, command, names, scratch};
use seccompiler::{SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;
use std::path::Path;

/// `io_uring_setup`, which has the same number on every architecture.
const IO_URING_SETUP: i64 = 425;
const EPERM: u32 = 1;

/// Runs the command under a filter that refuses io_uring; `None`, with the reason printed, where no filter can be set.
fn refused(dir: &Path, args: &[&str]) -> Option<Ran> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().ok().or_else(|| {
        skipped(format_args!("no seccomp filters for {}", std::env::consts::ARCH));
        None
    })?;
    let rules = BTreeMap::from([(IO_URING_SETUP, Vec::new())]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EPERM), arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    let mut command = command(dir);
    command.args(args);
    // A filter applies to a thread and its children: the other tests keep their io_uring.
    let ran = std::thread::spawn(move || match seccompiler::apply_filter(&program) {
        Ok(()) => Some(command.output().unwrap().into()),
        Err(e) => {
            skipped(format_args!("no seccomp filter can be set here: {e}"));
            None
        }
    });
    ran.join().unwrap()
}

fn lab(dir: &Path, backend: &str) -> Option<Ran> {
    let more = ["--only", "baseline", "--json", "-", "--io-backend", backend];
    refused(dir, &[&["lab", "."], &TINY[..], &more].concat())
}

#[test]
fn auto_goes_on_with_threads_and_says_why() {
    let dir = scratch();
    let Some(ran) = lab(dir.path(), "auto") else { return };
    let used = ran.exits(0).json()["run"]["io_backend"].as_str().unwrap().to_owned();
    assert!(used.starts_with("threads (io_uring does not work here") && used.contains("not permitted"), "{used}");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn io_uring_by_name_is_refused_with_what_to_do() {
    let dir = scratch();
    let Some(ran) = lab(dir.path(), "io_uring") else { return };
    let ran = ran.exits(2).measured_nothing().says("I/O backend io_uring does not work here");
    ran.says("use `threads`, or `auto`").says("seccomp").says("io_uring_disabled");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn the_probe_says_so() {
    let dir = scratch();
    let Some(ran) = refused(dir.path(), &["probe", "."]) else { return };
    let ran = ran.exits(0);
    let line = ran.out.lines().find(|l| l.starts_with("io_uring")).unwrap();
    assert!(!line.contains("yes"), "{line}");
    assert!(ran.out.contains("not permitted"), "{}", ran.out);
}
