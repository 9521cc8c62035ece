//! Runs a measuring process: starts it, collects its output, and ends it when it takes too long or Ctrl-C arrives.
//!
//! 1. At most one runs at a time, and none is left behind: a child that does not end on request is killed.
//! 2. It has a process group of its own, so that Ctrl-C at the terminal reaches it only through this process,
//!    and it can clean up.

use crate::store::{Error, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a child is polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time that a child has for cleaning up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The output of a process.
#[derive(Debug)]
pub struct Said {
    /// On standard output.
    pub out: String,
    /// On standard error.
    pub err: String,
}

/// Says what failed, for `map_err`.
pub(crate) fn failed<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl Fn(E) -> Error {
    move |error| Error::Other(format!("{what}: {error}"))
}

/// Whether a program is installed.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Returns an error after Ctrl-C.
pub(crate) fn go_on(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Runs `command` for at most `limit` and returns its output; any exit code but 0 is an error with the last
/// line of its output.
///
/// # Errors
/// Why there is no result; Ctrl-C is a reason.
pub fn run(command: Command, limit: Duration, stop: &AtomicBool) -> Result<Said> {
    let (status, said) = ended(command, limit, stop)?;
    if status.success() { Ok(said) } else { Err(format!("{status}: {}", last_words(&said.err)).into()) }
}

/// Runs `command` for at most `limit`; returns how it ended and its output. A process that must end gets SIGTERM, with
/// those that it has started, and SIGKILL if it does not end in time.
///
/// # Errors
/// Why there is no result; Ctrl-C is a reason.
pub(crate) fn ended(mut command: Command, limit: Duration, stop: &AtomicBool) -> Result<(ExitStatus, Said)> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(failed(format_args!("cannot start {name}")))?;
    let (began, group, mut asked) = (Instant::now(), Pid::from_child(&child), None);
    // A group that has ended needs no signal.
    let signal = |signal| kill_process_group(group, signal).unwrap_or(());
    let output = thread::spawn(move || child.wait_with_output());
    while !output.is_finished() {
        if let Some((since, _)) = &asked {
            if Instant::now() > *since + PATIENCE {
                signal(Signal::KILL);
            }
        } else if stop.load(Ordering::Relaxed) {
            signal(Signal::TERM);
            asked = Some((Instant::now(), Error::Interrupted));
        } else if began.elapsed() > limit {
            signal(Signal::TERM);
            let why = format!("it did not end within {} s", limit.as_secs());
            asked = Some((Instant::now(), Error::Other(why)));
        }
        thread::sleep(LOOK_EVERY);
    }
    let output = output.join().expect("waiting does not panic").map_err(failed("cannot wait for a process"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = Said { out: text(&output.stdout), err: text(&output.stderr) };
    asked.map_or(Ok((output.status, said)), |(_, why)| Err(why))
}

/// The last line that is not empty.
fn last_words(text: &str) -> String {
    let said = |line: &&str| !line.trim().is_empty() && !line.starts_with("flush_delay:");
    text.lines().rev().find(said).unwrap_or("it said nothing").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_it_says_is_heard() {
        let stop = AtomicBool::new(false);
        let said = run(shell("echo out; echo err >&2"), Duration::from_secs(60), &stop).unwrap();
        assert_eq!((said.out.as_str(), said.err.as_str()), ("out\n", "err\n"));
        let failed = run(shell("echo first >&2; echo why >&2; exit 3"), Duration::from_secs(60), &stop).unwrap_err();
        assert!(failed.to_string().ends_with("why") && failed.to_string().contains('3'), "{failed}");
        let missing = run(Command::new("/no/such/program"), Duration::from_secs(60), &stop).unwrap_err();
        assert!(missing.to_string().contains("/no/such/program"), "{missing}");
    }

    #[test]
    fn it_is_ended() {
        let stop = AtomicBool::new(false);
        let slow = run(shell("exec sleep 600"), Duration::from_millis(1), &stop).unwrap_err();
        assert!(slow.to_string().contains("did not end"), "{slow}");
        stop.store(true, Ordering::Relaxed);
        let interrupted = run(shell("exec sleep 600"), Duration::from_secs(600), &stop).unwrap_err();
        assert!(matches!(interrupted, Error::Interrupted), "{interrupted}");
        // What the child has started, and waits for, holds its output.
        let nested = run(shell("sleep 600; true"), Duration::from_secs(600), &stop).unwrap_err();
        assert!(matches!(nested, Error::Interrupted), "{nested}");
    }
}
