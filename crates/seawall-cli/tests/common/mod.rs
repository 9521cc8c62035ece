//! Shared by the tests of the command. Each runs the real binary and checks its output.
//!
//! - No time is measured: a wait has a limit only so that a hang becomes a failure.
//! - A test that this machine cannot run (mount without root, for example) is skipped with the reason on
//!   standard error.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[path = "../../../seawall-io/tests/common/skip.rs"]
pub mod skip;

/// Seconds instead of minutes; the figures mean nothing.
pub const TINY: [&str; 9] = ["--size", "16M", "--rounds", "2", "--round", "30ms", "--force", "--reserve", "1M"];

/// Time after which a process is considered hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// A fresh directory on the disk under the checkout (`/tmp` is often memory).
pub fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The exit status and output of the command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let ran = Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ran.err.contains("panicked"), "{ran:#?}");
        ran
    }
}

impl Ran {
    /// Asserts the exit code, showing everything if it is another.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Asserts that standard error holds `text`.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "standard error lacks {text:?}: {self:#?}");
        self
    }

    /// Asserts that standard output holds `text`.
    #[track_caller]
    pub fn shows(self, text: &str) -> Self {
        assert!(self.out.contains(text), "standard output lacks {text:?}: {self:#?}");
        self
    }

    /// Asserts that nothing was measured.
    #[track_caller]
    pub fn measured_nothing(self) -> Self {
        assert!(!self.err.contains("scratch file") && !self.err.contains("measuring"), "{self:#?}");
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("standard output is not JSON: {e}: {self:#?}"))
    }
}

/// The command, in `dir`.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// Runs the command in `dir` to its end.
pub fn seawall<I: IntoIterator<Item: AsRef<OsStr>>>(dir: &Path, args: I) -> Ran {
    command(dir).args(args).output().unwrap().into()
}

/// `seawall lab PATH` with tiny rounds and more arguments.
pub fn lab(dir: &Path, path: &Path, more: &[&str]) -> Ran {
    lab_command(dir, path, more).output().unwrap().into()
}

pub fn lab_command(dir: &Path, path: &Path, more: &[&str]) -> Command {
    let mut command = command(dir);
    command.arg("lab").arg(path).args(TINY).args(more);
    command
}

/// Starts a command and captures its output.
pub fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until `ready` holds; fails if the child ends before.
#[track_caller]
pub fn wait_until(child: &mut Child, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < PATIENCE, "what was waited for did not come");
        assert!(child.try_wait().unwrap().is_none(), "the command ended too early");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a signal, waits for the end and returns the output.
pub fn signal(child: Child, signal: rustix::process::Signal) -> Ran {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, signal).unwrap();
    child.wait_with_output().unwrap().into()
}

/// A file of this name in a run's scratch directory below `parent`.
pub fn in_scratch(parent: &Path, name: &str) -> Option<PathBuf> {
    let dirs = std::fs::read_dir(parent).unwrap().flatten();
    dirs.map(|d| d.path().join(name)).find(|p| p.metadata().is_ok_and(|m| m.is_file()))
}

/// Names in a directory, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The cells of a results file, by id.
pub fn cells(results: &Value) -> Vec<String> {
    results["cells"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap().to_owned()).collect()
}

/// A file system mounted for one test.
pub struct Mount {
    pub path: PathBuf,
    _dir: TempDir,
}

impl Mount {
    /// A tmpfs with these options; `None`, with the reason printed, where nothing can be mounted.
    pub fn tmpfs(options: &str) -> Option<Self> {
        let dir = scratch();
        let path = dir.path().join("mount");
        std::fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "seawall-test"]).arg(&path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { path, _dir: dir }),
            Ok(output) => {
                skip::skipped(format_args!("cannot mount a tmpfs: {}", String::from_utf8_lossy(&output.stderr).trim()));
                None
            }
            Err(e) => {
                skip::skipped(format_args!("cannot run mount: {e}"));
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.path).output());
    }
}

/// Whether a directory is in memory, where pages cannot leave the page cache.
pub fn is_memory(dir: &Path) -> bool {
    let found = seawall(dir, ["probe", ".", "--json"]).exits(0).json();
    found["file_system"]["known"]["kind"] == "tmpfs"
}
