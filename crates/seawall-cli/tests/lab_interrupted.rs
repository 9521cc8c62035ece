//! Interrupted runs: signals, kill -9, a disk that fills up. Existing files are never touched.

mod common;

use common::{
    Mount, Ran, TINY, cells, in_scratch, lab, lab_command, names, read_json, scratch, signal, spawn, wait_until,
};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// A run that would take a long time.
fn long(work: &Path, disk: &Path, more: &[&str]) -> Command {
    let mut command = common::command(work);
    let args = TINY.map(|a| if a == "2" { "999" } else { a });
    command.arg("lab").arg(disk).args(args).args(more);
    command
}

#[test]
fn ctrl_c_shows_and_writes_what_was_measured() {
    for sent in [Signal::INT, Signal::TERM, Signal::HUP] {
        if is_ignored(sent) {
            // Under `nohup` the lab continues, as it should.
            continue;
        }
        let (work, disk) = (scratch(), scratch());
        let mut child = spawn(long(
            work.path(),
            disk.path(),
            &["--only", "E2", "--json", "r.json", "--require", "log_commit.p99<1ns"],
        ));
        // Every round of E2 creates the log again, and a disturbed round is repeated at most twice: when the
        // log exists for the fourth time, one cell has completed its first round.
        for n in 0..4 {
            wait_until(&mut child, || in_scratch(disk.path(), "log").is_some());
            if n < 3 {
                wait_until(&mut child, || in_scratch(disk.path(), "log").is_none());
            }
        }
        let ran = signal(child, sent).exits(130).shows("1 experiment").says("interrupted");
        assert!(names(disk.path()).is_empty(), "left behind: {:?}", names(disk.path()));
        let results = read_json(&work.path().join("r.json"));
        assert_eq!(results["complete"], false);
        assert!(!cells(&results).is_empty() && ran.err.contains("wrote r.json"));
        assert!(results["cells"].as_array().unwrap().iter().all(|c| !c["rounds"].as_array().unwrap().is_empty()));
        common::seawall(work.path(), ["lab", "report", "r.json"]).exits(0).shows("1 experiment");
    }
}

#[test]
fn ctrl_c_in_every_preparation_is_an_interruption() {
    let (work, disk) = (scratch(), scratch());
    for file in ["append", "unwritten", "zerofill-now", "preallocated.filling", "filled-beside.filling"] {
        let mut child = spawn(long(work.path(), disk.path(), &["--only", "E4", "--json", "-"]));
        wait_until(&mut child, || in_scratch(disk.path(), file).is_some());
        signal(child, Signal::INT).exits(130);
        assert!(names(disk.path()).is_empty());
    }
}

#[test]
fn ctrl_c_while_the_scratch_file_is_written_leaves_nothing() {
    let (work, disk) = (scratch(), scratch());
    let mut child = spawn(long(work.path(), disk.path(), &["--only", "baseline"]));
    wait_until(&mut child, || !names(disk.path()).is_empty());
    let ran = signal(child, Signal::INT).exits(130);
    assert!(ran.err.contains("interrupted"), "{ran:#?}");
    assert!(names(disk.path()).is_empty());
}

#[test]
fn a_slow_rate_does_not_hold_up_ctrl_c() {
    let (work, disk) = (scratch(), scratch());
    let args = ["--only", "baseline", "--rate", "0.001", "--round", "1h", "--json", "-"];
    let mut command = common::command(work.path());
    command.arg("lab").arg(disk.path()).args(["--size", "16M", "--reserve", "1M", "--force"]).args(args);
    let mut child = spawn(command);
    wait_until(&mut child, || {
        in_scratch(disk.path(), "base").is_some_and(|p| p.metadata().is_ok_and(|m| m.len() == 16 << 20))
    });
    signal(child, Signal::INT).exits(130);
    assert!(names(disk.path()).is_empty());
}

#[test]
fn what_a_killed_run_left_goes_with_the_next() {
    let (work, disk) = (scratch(), scratch());
    let mut child = spawn(long(work.path(), disk.path(), &[]));
    wait_until(&mut child, || in_scratch(disk.path(), "base").is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    let left = names(disk.path());
    assert_eq!(left.len(), 1, "{left:?}");
    lab(work.path(), disk.path(), &["--only", "baseline", "--json", "-"]).exits(0);
    assert!(names(disk.path()).is_empty(), "{:?}", names(disk.path()));
}

#[test]
fn what_was_there_before_is_not_touched() {
    let (work, disk) = (scratch(), scratch());
    let mine = ["base", "log", "seawall-lab-notes/base", "seawall-lab-2026/results.json", "ibdata1", "lock"];
    for name in mine {
        let path = disk.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("this is {name}")).unwrap();
    }
    let before = names(disk.path());
    lab(work.path(), disk.path(), &["--json", "-"]).exits(0);
    assert_eq!(names(disk.path()), before);
    for name in mine {
        assert_eq!(std::fs::read_to_string(disk.path().join(name)).unwrap(), format!("this is {name}"));
    }
}

#[test]
fn two_runs_in_one_directory_leave_each_other_alone() {
    let (work, disk) = (scratch(), scratch());
    let children = [(); 3].map(|()| spawn(lab_command(work.path(), disk.path(), &["--only", "baseline,E4"])));
    for child in children {
        Ran::from(child.wait_with_output().unwrap()).exits(0);
    }
    assert!(names(disk.path()).is_empty());
    let saved = names(work.path());
    assert_eq!(saved.len(), 3, "each run has a directory of its own: {saved:?}");
}

#[test]
fn a_disk_that_fills_up_ends_the_run_with_what_it_has() {
    // A run of this size needs 224 MiB; other files take the rest.
    let Some(mount) = Mount::tmpfs("size=240M") else { return };
    let work = scratch();
    let disk_only = ["--only", "baseline,E1,E2,E3,E4", "--json", "r.json"];
    let mut child = spawn(long(work.path(), &mount.path, &disk_only));
    wait_until(&mut child, || in_scratch(&mount.path, "log").is_some());
    let filler = std::fs::File::create(mount.path.join("others")).unwrap();
    let mut mib = 240;
    while mib > 0 {
        let at = filler.metadata().unwrap().len();
        let (flags, len) = (rustix::fs::FallocateFlags::empty(), mib << 20);
        if rustix::fs::fallocate(&filler, flags, at, len).is_err() {
            mib /= 2;
        }
    }
    let ran = Ran::from(child.wait_with_output().unwrap()).exits(2).shows("random 16 KiB reads");
    let ran = ran.says("went no further").says("free some space");
    assert!(!ran.err.contains("interrupted"), "{ran:#?}");
    assert_eq!(read_json(&work.path().join("r.json"))["complete"], false, "{ran:#?}");
    assert_eq!(names(&mount.path), ["others"]);
}

#[test]
fn a_write_that_fails_ends_the_run_with_what_it_has() {
    // The file size limit is 20 MiB: enough for the scratch file, too little for the fill that runs beside
    // one cell.
    let (work, disk) = (scratch(), scratch());
    let mut limited = Command::new("bash");
    limited.current_dir(work.path()).args(["-c", "ulimit -f 20480; exec \"$@\"", "bash"]);
    limited.arg(env!("CARGO_BIN_EXE_seawall")).arg("lab").arg(disk.path()).args(TINY).args(["--json", "r.json"]);
    // With this seed other cells come before that one.
    limited.args(["--seed", "3"]);
    let ran = Ran::from(limited.output().unwrap()).exits(2);
    let ran = ran.says("went no further").says("File too large").says("ulimit -f");
    let results = read_json(&work.path().join("r.json"));
    assert!(results["complete"] == false && !cells(&results).is_empty(), "{ran:#?}");
    assert!(names(disk.path()).is_empty());
}

/// Whether this process, and so every process it starts, ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells about a process");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("signals are part of it");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a mask in hexadecimal");
    mask >> (signal.as_raw() - 1) & 1 == 1
}
