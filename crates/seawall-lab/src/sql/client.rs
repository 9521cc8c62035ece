//! The server's client and sysbench, as child processes.

use super::{Result, SqlError, is_set, whole_seconds};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The interval at which a child process is polled.
const POLL: Duration = Duration::from_millis(20);
/// The scripts that sysbench does not ship.
const SCRIPTS: [(&str, &str); 2] = [("tpcc", include_str!("tpcc.lua")), ("cold", include_str!("cold.lua"))];
/// Never set: for statements that must run even when the run is stopping.
static NEVER: AtomicBool = AtomicBool::new(false);

/// A directory with the scripts; it is removed when it is dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("seawall-lab-sql-{}", std::process::id()));
        let failed = |error| SqlError::Scratch { path: path.clone(), error };
        std::fs::create_dir(&path).map_err(failed)?;
        let scratch = Self(path.clone());
        for (name, text) in SCRIPTS {
            std::fs::write(scratch.script(name), text).map_err(failed)?;
        }
        Ok(scratch)
    }

    fn script(&self, name: &str) -> PathBuf {
        self.0.join(name).with_extension("lua")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // On a failure two small files remain; nothing more can be done.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// What sysbench runs.
pub(super) struct Job<'a> {
    pub(super) script: &'a str,
    pub(super) database: String,
    pub(super) arguments: Vec<String>,
}

/// What a program printed.
struct Output {
    ok: bool,
    out: String,
    err: String,
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
    socket: &'a Path,
    user: &'a str,
    scratch: &'a Scratch,
    stop: &'a AtomicBool,
}

impl<'a> Client<'a> {
    pub(super) fn new(socket: &'a Path, user: &'a str, scratch: &'a Scratch, stop: &'a AtomicBool) -> Self {
        Self { socket, user, scratch, stop }
    }

    /// A client that ignores the stop flag.
    pub(super) fn always(self) -> Self {
        Self { stop: &NEVER, ..self }
    }

    /// The rows of a statement, or of several.
    pub(super) fn query(&self, sql: &str) -> Result<Vec<Vec<String>>> {
        let socket = self.socket.display();
        let options = ["--no-defaults".to_owned(), "--batch".into(), "--skip-column-names".into()];
        let target = [format!("--user={}", self.user), format!("--socket={socket}"), format!("--execute={sql}")];
        let output = self.run("mariadb", &[options, target].concat())?;
        if !output.ok {
            return Err(SqlError::Server(output.err.trim().to_owned()));
        }
        Ok(output.out.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }

    /// The only value of a statement.
    pub(super) fn value(&self, sql: &str) -> Result<String> {
        let value = self.query(sql)?.into_iter().flatten().next();
        value.ok_or_else(|| SqlError::Server(format!("no answer to: {sql}")))
    }

    pub(super) fn sysbench_version(&self) -> Result<String> {
        let output = self.run("sysbench", &["--version".to_owned()])?;
        Ok(output.out.trim().trim_start_matches("sysbench ").to_owned())
    }

    /// Runs `verb` of a script, one of sysbench's or of [`SCRIPTS`], in a database. With `time` zero it runs until it
    /// is done.
    pub(super) fn sysbench(&self, job: &Job<'_>, verb: &str, threads: u32, time: Duration) -> Result<Outcome> {
        let own = self.scratch.script(job.script);
        let script = if own.exists() { own.display().to_string() } else { job.script.to_owned() };
        let mut arguments = vec![script, format!("--mysql-socket={}", self.socket.display())];
        arguments.extend([format!("--mysql-user={}", self.user), format!("--mysql-db={}", job.database)]);
        arguments.extend(std::env::var("MYSQL_PWD").ok().map(|password| format!("--mysql-password={password}")));
        arguments.extend([format!("--threads={threads}"), format!("--time={}", whole_seconds(time))]);
        arguments.extend(["--rand-type=uniform".to_owned(), "--percentile=99".into()]);
        arguments.extend(job.arguments.iter().cloned());
        arguments.push(verb.to_owned());
        let output = self.run("sysbench", &arguments)?;
        if !output.ok {
            let fatal = output.out.lines().chain(output.err.lines()).find(|line| line.contains("FATAL"));
            let message = fatal.unwrap_or("it failed without a message").to_owned();
            return Err(SqlError::Sysbench { script: format!("{} {verb}", job.script), message });
        }
        Ok(read(&output.out))
    }

    /// Runs a program to its end, or kills it when the run must stop.
    fn run(&self, program: &'static str, arguments: &[String]) -> Result<Output> {
        let failed = |error| SqlError::NoProgram { program, error };
        // Files, not pipes: the program could fill a pipe while this process waits for it to end.
        let [out, err] = ["out", "err"].map(|name| self.scratch.0.join(name));
        let file = |path: &Path| File::create(path).map_err(|error| SqlError::Scratch { path: path.into(), error });
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
        let mut child = command.spawn().map_err(failed)?;
        let status = loop {
            if is_set(self.stop) {
                drop(child.kill());
            }
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None => std::thread::sleep(POLL),
            }
        };
        if is_set(self.stop) {
            return Err(SqlError::Interrupted);
        }
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        Ok(Output { ok: status.success(), out: read(&out), err: read(&err) })
    }
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
