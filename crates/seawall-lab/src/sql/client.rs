//! The server's client and sysbench, as child processes.

use super::{Result, failed, whole_seconds};
use crate::run::LabError;
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The interval at which a child process is polled.
const POLL: Duration = Duration::from_millis(20);
/// The scripts that sysbench does not ship.
const SCRIPTS: [(&str, &str); 2] = [("tpcc", include_str!("tpcc.lua")), ("cold", include_str!("cold.lua"))];

/// A directory with the scripts; it is removed when it is dropped.
pub(super) fn scratch() -> Result<TempDir> {
    let made = || {
        let dir = tempfile::Builder::new().prefix("seawall-lab-sql-").tempdir()?;
        for (name, text) in SCRIPTS {
            std::fs::write(script(dir.path(), name), text)?;
        }
        Ok(dir)
    };
    made().map_err(|e| not_written(&std::env::temp_dir(), &e))
}

fn script(dir: &Path, name: &str) -> PathBuf {
    dir.join(name).with_extension("lua")
}

fn not_written(path: &Path, error: &std::io::Error) -> LabError {
    let path = path.display();
    LabError::Refused(format!("a file in {path} could not be written: {error}; set TMPDIR to another directory"))
}

/// What sysbench runs.
pub(super) struct Job {
    pub(super) script: &'static str,
    pub(super) database: String,
    pub(super) arguments: Vec<String>,
}

/// What sysbench measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outcome {
    /// Transactions per second, or queries per second for queries outside a transaction.
    pub(super) rate: f64,
    pub(super) p99_ms: f64,
}

#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) socket: &'a Path,
    pub(super) user: &'a str,
    pub(super) scratch: &'a Path,
    pub(super) stop: &'a AtomicBool,
}

impl Client<'_> {
    /// The rows of a statement, or of several.
    pub(super) fn query(&self, sql: &str) -> Result<Vec<Vec<String>>> {
        let options = ["--no-defaults".to_owned(), "--batch".into(), "--skip-column-names".into()];
        let (user, socket) = (format!("--user={}", self.user), format!("--socket={}", self.socket.display()));
        let output = self.run("mariadb", &[&options[..], &[user, socket, format!("--execute={sql}")]].concat())?;
        if !output.status.success() {
            return failed(format!("the server says: {}", text(&output.stderr).trim()));
        }
        Ok(text(&output.stdout).lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }

    /// Sets a global variable: to a number as it is, to a word in quotation marks.
    pub(super) fn set(&self, name: &str, value: &str) -> Result<()> {
        let value = if value.parse::<u64>().is_ok() { value.to_owned() } else { format!("'{value}'") };
        self.query(&format!("set global {name} = {value}")).map(drop)
    }

    /// The only value of a statement.
    pub(super) fn value(&self, sql: &str) -> Result<String> {
        let value = self.query(sql)?.into_iter().flatten().next();
        value.ok_or_else(|| LabError::Refused(format!("the server says: no answer to: {sql}")))
    }

    pub(super) fn sysbench_version(&self) -> Result<String> {
        let output = self.run("sysbench", &["--version".to_owned()])?;
        Ok(text(&output.stdout).trim().trim_start_matches("sysbench ").to_owned())
    }

    /// Runs `verb` of a script, one of sysbench's or of [`SCRIPTS`], in a database. With `time` zero it runs until it
    /// is done.
    pub(super) fn sysbench(&self, job: &Job, verb: &str, threads: u32, time: Duration) -> Result<Outcome> {
        let own = script(self.scratch, job.script);
        let script = if own.exists() { own.display().to_string() } else { job.script.to_owned() };
        let mut arguments = vec![script, format!("--mysql-socket={}", self.socket.display())];
        arguments.extend([format!("--mysql-user={}", self.user), format!("--mysql-db={}", job.database)]);
        arguments.extend(std::env::var("MYSQL_PWD").ok().map(|password| format!("--mysql-password={password}")));
        arguments.extend([format!("--threads={threads}"), format!("--time={}", whole_seconds(time))]);
        arguments.extend(["--rand-type=uniform".to_owned(), "--percentile=99".into()]);
        arguments.extend(job.arguments.iter().cloned());
        arguments.push(verb.to_owned());
        let output = self.run("sysbench", &arguments)?;
        let [out, err] = [&output.stdout, &output.stderr].map(|bytes| text(bytes));
        if !output.status.success() {
            let fatal = out.lines().chain(err.lines()).find(|line| line.contains("FATAL"));
            let message = fatal.unwrap_or("it failed without a message");
            return failed(format!("sysbench {} {verb}: {message}", job.script));
        }
        Ok(read(&out))
    }

    /// Runs a program to its end, or kills it when the run must stop.
    fn run(&self, program: &str, arguments: &[String]) -> Result<Output> {
        let not_run = |e| {
            let hint = "apt-get install mariadb-client sysbench, or what your system calls them";
            LabError::Refused(format!("{program} cannot be started ({e}): {hint}"))
        };
        // Files, not pipes: the program could fill a pipe while this process waits for it to end.
        let [out, err] = ["out", "err"].map(|name| self.scratch.join(name));
        let file = |path: &Path| File::create(path).map_err(|e| not_written(path, &e));
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
        let mut child = command.spawn().map_err(not_run)?;
        let status = loop {
            if self.stop.load(Ordering::Relaxed) {
                drop(child.kill());
            }
            match child.try_wait().map_err(not_run)? {
                Some(status) => break status,
                None => std::thread::sleep(POLL),
            }
        };
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let [stdout, stderr] = [out, err].map(|path| std::fs::read(path).unwrap_or_default());
        Ok(Output { status, stdout, stderr })
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Parses the figures that sysbench printed.
fn read(text: &str) -> Outcome {
    let after = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name));
    let number = |text: &str| text.trim().parse().unwrap_or(0.0);
    let rate =
        after("transactions:").and_then(|rest| rest.split_once('(')).and_then(|(_, rest)| rest.split_once(" per sec"));
    Outcome { rate: rate.map_or(0.0, |(rate, _)| number(rate)), p99_ms: after("99th percentile:").map_or(0.0, number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_sysbench() {
        let text = "SQL statistics:\n    transactions:                        5361   (1339.61 per sec.)\n    \
                    queries:                             5361   (1339.61 per sec.)\nLatency (ms):\n         \
                    99th percentile:                        1.27\n";
        assert_eq!(read(text), Outcome { rate: 1339.61, p99_ms: 1.27 });
        assert_eq!(read("nothing"), Outcome { rate: 0.0, p99_ms: 0.0 });
    }
}
