//! `seawall witness` over loopback. A test cannot cut the power: a killed process takes its place, and must
//! prove nothing.

mod common;

use common::{command, names, read_json, scratch, seawall, signal, spawn, wait_until};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout};
use tempfile::TempDir;

/// A witness on a free port of this machine.
struct Serving {
    child: Option<Child>,
    addr: String,
    dir: TempDir,
}

impl Serving {
    fn new(more: &[&str]) -> Self {
        let dir = scratch();
        let mut serve = command(dir.path());
        serve.args(["witness", "serve", "--listen", "127.0.0.1:0", "--state", "state"]).args(more);
        serve.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let mut child = serve.spawn().unwrap();
        let line = first_line(&mut BufReader::new(child.stdout.take().unwrap()));
        let addr = line.strip_prefix("listening on ").and_then(|l| l.split(',').next()).unwrap().to_owned();
        Self { child: Some(child), addr, dir }
    }

    /// Ctrl-C.
    fn end(mut self) {
        let child = self.child.take().unwrap();
        signal(child, Signal::INT).exits(0);
        assert!(!names(&self.dir.path().join("state")).is_empty(), "the records stay");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn first_line(out: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Starts a run; returns when writes have been acknowledged, with the run's id.
fn run(disk: &Path, addr: &str, more: &[&str]) -> (Child, String) {
    let mut run = command(disk);
    run.args(["witness", "run", ".", "--witness", addr, "--reserve", "1M", "--threads", "2"]).args(more);
    let mut child = spawn(run);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let line = first_line(&mut out);
    let id =
        line.strip_prefix("run ").and_then(|l| l.split(':').next()).unwrap_or_else(|| panic!("{line:?}")).to_owned();
    let how = first_line(&mut out);
    assert!(how.contains(&format!("seawall witness verify {} --witness {addr} --run {id}", disk.display())), "{how}");
    (child, id)
}

fn verify(disk: &Path, addr: &str, id: &str, more: &[&str]) -> common::Ran {
    seawall(disk, [&["witness", "verify", ".", "--witness", addr, "--run", id], more].concat())
}

#[test]
fn a_killed_process_loses_nothing_and_proves_nothing() {
    let (witness, disk) = (Serving::new(&[]), scratch());
    std::fs::write(disk.path().join("mine"), "x").unwrap();
    let (mut child, id) = run(disk.path(), &witness.addr, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = verify(disk.path(), &witness.addr, &id, &["--json", "found.json"]).exits(0);
    assert!(ran.out.contains("None lost, none torn, none reordered"), "{}", ran.out);
    assert!(ran.out.contains("proves nothing about power loss"), "{}", ran.out);
    let found = read_json(&disk.path().join("found.json"));
    assert_eq!((&found["cut"], found["main"]["lost"].as_u64()), (&"same-boot".into(), Some(0)));
    assert!(found["main"]["acknowledged"].as_u64().unwrap() > 0);
    // The report must not count it as a proof either.
    let args = ["--only", "baseline", "--json", "r.json", "--witness", "found.json", "--table"];
    let lab = common::lab(disk.path(), disk.path(), &args);
    lab.exits(0).says("proves nothing about power loss").shows("durability under power loss: not tested");
    verify(disk.path(), &witness.addr, &id, &["--cleanup"]).exits(0).says("removed");
    assert_eq!(names(disk.path()), ["found.json", "mine", "r.json"]);
    witness.end();
}

#[test]
fn a_disk_that_lost_writes_is_found_out() {
    let (witness, disk) = (Serving::new(&[]), scratch());
    let (child, id) = run(disk.path(), &witness.addr, &["--no-control"]);
    signal(child, Signal::INT).exits(130);
    let mut hit = 0;
    for name in names(disk.path()) {
        let path = disk.path().join(&name);
        if name.contains("scratch") || name.contains("append") || name.contains("name") {
            let zeroes = vec![0; std::fs::metadata(&path).unwrap().len() as usize];
            std::fs::write(path, zeroes).unwrap();
            hit += 1;
        }
    }
    assert!(hit > 0, "{:?}", names(disk.path()));
    verify(disk.path(), &witness.addr, &id, &[]).exits(1).shows("lost");
}

#[test]
fn a_run_ends_when_told_so() {
    let (witness, disk) = (Serving::new(&[]), scratch());
    let args = ["witness", "run", ".", "--witness", &witness.addr, "--reserve", "1M", "--duration", "700ms"];
    seawall(disk.path(), args).exits(0).shows("ended without a power cut").shows("nothing is proven yet");
}

#[test]
fn a_run_that_the_witness_does_not_know_exits_with_2() {
    let (witness, disk) = (Serving::new(&[]), scratch());
    verify(disk.path(), &witness.addr, "0123456789abcdef", &[]).exits(2).says("knows no run 0123456789abcdef");
    verify(disk.path(), &witness.addr, "my-run", &[]).exits(2).says("my-run");
}

#[test]
fn without_a_witness_nothing_is_written() {
    let disk = scratch();
    // A port that was free a moment ago and on which no process listens.
    let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ran = seawall(disk.path(), ["witness", "run", ".", "--witness", &addr]).exits(2);
    let ran = ran.says("cannot reach the witness").says("seawall witness serve");
    assert!(ran.out.is_empty(), "no invitation to pull the plug: {}", ran.out);
    verify(disk.path(), &addr, "0123456789abcdef", &[]).exits(2).says("cannot reach the witness");
    assert!(names(disk.path()).is_empty());
}

#[test]
fn the_token_must_be_the_same() {
    let (witness, disk) = (Serving::new(&["--token", "sesame"]), scratch());
    let args = ["witness", "run", ".", "--witness", &witness.addr, "--reserve", "1M", "--duration", "1s"];
    seawall(disk.path(), args).exits(2).says("refused the token");
    assert!(names(disk.path()).is_empty());
    seawall(disk.path(), [&args[..], &["--token", "sesame"]].concat()).exits(0);
}

#[test]
fn a_witness_needs_a_place_and_an_address() {
    let dir = scratch();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    let serve = |args: &[&str]| seawall(dir.path(), [&["witness", "serve"], args].concat()).exits(2);
    serve(&["--state", "file", "--listen", "127.0.0.1:0"]).says("file");
    serve(&["--state", "s", "--listen", "nonsense"]).says("cannot listen on nonsense");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    serve(&["--state", "s", "--listen", &taken.local_addr().unwrap().to_string()]).says("in use");
}

#[test]
fn paths_that_cannot_be_written_are_named() {
    let (witness, disk) = (Serving::new(&[]), scratch());
    std::fs::write(disk.path().join("file"), "x").unwrap();
    for path in ["nowhere", "file"] {
        let args = ["witness", "run", path, "--witness", &witness.addr, "--reserve", "1M", "--duration", "1s"];
        seawall(disk.path(), args).exits(2).says(path);
    }
    let args = ["witness", "run", ".", "--witness", &witness.addr, "--block"];
    for block in ["1000", "8M", "8G"] {
        seawall(disk.path(), [&args[..], &[block]].concat()).exits(2).says("a multiple of 512 bytes up to 1 MiB");
    }
    seawall(disk.path(), [&args[..], &["16K", "--reserve", "1000T"]].concat()).exits(2);
    assert_eq!(names(disk.path()), ["file"]);
}

#[test]
fn a_lost_reader_does_not_end_the_run() {
    let (witness, disk) = (Serving::new(&[]), scratch());
    let args = ["witness", "run", ".", "--witness", &witness.addr, "--reserve", "1M", "--duration", "700ms"];
    let mut run = command(disk.path());
    run.args(args);
    let mut child = spawn(run);
    drop((child.stdout.take(), child.stderr.take()));
    wait_until(&mut child, || !names(disk.path()).is_empty());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
