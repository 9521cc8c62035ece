//! Measures one cell once, in a separate process: no data of one store is in memory while another is measured.

use super::disks::Disks;
use super::plan::{Cell, DiskKind, Tool};
use crate::observe::FOREIGN_CORES;
use crate::process::{self, Said, failed, go_on};
use crate::run::data_dir::remove;
use crate::scan::fio;
use crate::store::Result;
use seawall_lab::run::ForeignReading;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Operations of the shorter and the longer run under callgrind: the cost of opening and closing is in both
/// and cancels out.
pub const CALLGRIND_OPS: [u64; 2] = [2_000, 12_000];
/// The example of [`Tool::Instructions`], beside the `seawall` command.
pub const INSTRUCTIONS: &str = "examples/instructions";
/// The longest wait for a quiet machine before a cell.
const QUIET_WITHIN: Duration = Duration::from_secs(15);
/// The longest such wait in a whole run: on a machine that is never quiet, an hour must not become a day. The results
/// mark disturbed goals.
const QUIET_WITHIN_RUN: Duration = Duration::from_secs(300);
const QUIET_FOR: Duration = Duration::from_millis(250);
/// The most that a cell may take; callgrind is fifty times slower than the processor.
const CELL_TIME: Duration = Duration::from_secs(1800);

/// Measures cells.
#[derive(Debug)]
pub struct Bench<'r> {
    exe: PathBuf,
    pub(super) disks: Disks<'r>,
    stop: &'r AtomicBool,
    /// How much longer to wait for a quiet machine.
    quiet_left: Duration,
}

impl<'r> Bench<'r> {
    /// Measures with the `seawall` command at `exe`, with all rows below `base`, until Ctrl-C sets `stop`.
    ///
    /// # Errors
    /// When `base` cannot be used.
    pub fn new(base: &Path, exe: PathBuf, stop: &'r AtomicBool) -> Result<Self> {
        Ok(Self { exe, disks: Disks::new(base, stop)?, stop, quiet_left: QUIET_WITHIN_RUN })
    }

    fn seawall(&self, arguments: &[String], dir: &Path) -> Command {
        let mut command = Command::new(&self.exe);
        command.args(arguments).arg("--dir").arg(dir);
        command
    }

    /// Creates a cell's rows, unless they exist.
    ///
    /// # Errors
    /// Why there is no result; Ctrl-C is a reason.
    pub fn prepare(&mut self, cell: &Cell) -> Result<()> {
        if cell.prepare.is_empty() {
            return Ok(());
        }
        let dir = self.disks.dir(cell)?;
        let made = process::run(self.seawall(&cell.prepare, &dir), CELL_TIME, self.stop);
        if made.is_err() {
            // A partial load is useless.
            remove(&dir)?;
        }
        made.map(drop)
    }

    /// Measures a cell once; returns its result.
    ///
    /// # Errors
    /// Why there is no result; Ctrl-C is a reason.
    pub fn measure(&mut self, cell: &Cell) -> Result<Value> {
        let dir = self.disks.dir(cell)?;
        let fresh = cell.prepare.is_empty();
        if fresh {
            remove(&dir)?;
        }
        let environment = self.disks.environment(cell)?;
        // Unwritten data of one store must not slow down the next.
        rustix::fs::sync();
        self.disks.limit(cell)?;
        self.wait_for_quiet()?;
        let result = match cell.tool {
            Tool::Bench => {
                let mut command = self.seawall(&cell.command, &dir);
                command.envs(environment);
                let said = process::run(command, CELL_TIME, self.stop)?;
                if cell.disk == DiskKind::SlowFlush && cell.is_peer() {
                    check_delay(cell, &said)?;
                }
                object(&said.out).map(Value::Object)
            }
            Tool::Fio => self.fio(cell, &dir),
            Tool::Callgrind => self.callgrind(cell, &dir),
            Tool::Instructions => self.instructions(cell),
        };
        if fresh {
            remove(&dir)?;
        }
        result
    }

    fn wait_for_quiet(&mut self) -> Result<()> {
        let (began, within) = (Instant::now(), QUIET_WITHIN.min(self.quiet_left));
        while began.elapsed() < within {
            let before = ForeignReading::take();
            std::thread::sleep(QUIET_FOR);
            if before.since().0 <= FOREIGN_CORES {
                return Ok(());
            }
            go_on(self.stop)?;
        }
        self.quiet_left = self.quiet_left.saturating_sub(began.elapsed());
        Ok(())
    }

    /// Runs fio on the file that holds the rows; it only reads, with direct I/O.
    fn fio(&self, cell: &Cell, dir: &Path) -> Result<Value> {
        let file =
            fio::data_file(dir, 1).ok_or_else(|| format!("{} has no file: fio has nothing to read", dir.display()))?;
        let (reads, version) = fio::run(&file, &cell.command, CELL_TIME, self.stop)?;
        Ok(json!({
            "store": "fio",
            "version": version,
            "settings": { "arguments": cell.command.join(" ") },
            "ops_per_s": reads.reads_per_s,
            "device_reads_per_s": reads.reads_per_s,
            "scan_device_reads_per_s": reads.reads_per_s,
            "device_read_mb_per_s": reads.mb_per_s,
        }))
    }

    /// Instructions of an operation, as the example `instructions` counts them.
    fn instructions(&self, cell: &Cell) -> Result<Value> {
        let mut counting = Command::new(instructions_beside(&self.exe));
        counting.args(&cell.command);
        let said = process::run(counting, CELL_TIME, self.stop)?;
        let not_one = failed(format!("{:?} is not a count of instructions", said.out));
        let count: f64 = said.out.trim().parse().map_err(not_one)?;
        Ok(json!({ "store": cell.store, "version": env!("CARGO_PKG_VERSION"), "instructions_per_op": count }))
    }

    /// Instructions per operation: the difference between a longer run and a shorter one.
    fn callgrind(&self, cell: &Cell, dir: &Path) -> Result<Value> {
        let mut collected = [0.0; 2];
        let mut result = Map::new();
        for (ops, collected) in CALLGRIND_OPS.into_iter().zip(&mut collected) {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&self.exe).args(&cell.command);
            valgrind.args(["--ops", &ops.to_string()]).arg("--dir").arg(dir);
            let said = process::run(valgrind, CELL_TIME, self.stop)?;
            result = object(&said.out)?;
            *collected = instructions(&said.err)
                .ok_or_else(|| "valgrind did not say how many instructions it counted".to_owned())?;
        }
        let per_op = (collected[1] - collected[0]) / (CALLGRIND_OPS[1] - CALLGRIND_OPS[0]) as f64;
        // Times under valgrind mean nothing, and work of other processes changes no count.
        result.retain(|name, _| ["store", "version", "settings", "machine", "disk", "commit"].contains(&name.as_str()));
        result.insert("instructions_per_op".into(), per_op.into());
        Ok(result.into())
    }
}

/// The example that counts instructions, of the same build as the command.
pub fn instructions_beside(exe: &Path) -> PathBuf {
    exe.parent().unwrap_or(Path::new(".")).join(INSTRUCTIONS)
}

fn object(text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).map_err(failed("its result is not a JSON object"))
}

/// Checks that a requested delay took effect; otherwise a slow disk would be compared with a fast one.
fn check_delay(cell: &Cell, said: &Said) -> Result<()> {
    // Of several processes, the last.
    let line = said.err.lines().rev().find_map(|line| line.strip_prefix("flush_delay: "));
    let calls = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    // A workload that only reads flushes nothing.
    if calls > Some(0) || (calls.is_some() && cell.command.iter().any(|word| word == "scan")) {
        return Ok(());
    }
    let (calls, store) = (calls.unwrap_or(0), &cell.store);
    Err(format!("the injected delay reached {calls} calls of {store}: its flushes do not go through libc").into())
}

/// The count in callgrind's final output: `==123== Collected : 456`.
fn instructions(said: &str) -> Option<f64> {
    let line = said.lines().rev().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_tools_are_understood() {
        assert_eq!(instructions("==7== Events    : Ir\n==7== Collected : 123456\n==7==\n"), Some(123_456.0));
        assert_eq!(instructions("==7== Events    : Ir\n"), None);
        assert!(object("oops").is_err() && object("[]").is_err() && object("{\"a\":1}").is_ok());
    }

    #[test]
    fn a_delay_that_reached_nothing_is_no_result() {
        let said = |err: &str| Said { out: String::new(), err: err.into() };
        let cell = Cell { store: "redb".into(), ..Cell::default() };
        assert!(check_delay(&cell, &said("flush_delay: 12 calls delayed\n")).is_ok());
        assert!(check_delay(&cell, &said("flush_delay: 0 calls delayed\n")).is_err());
        assert!(check_delay(&cell, &said("")).is_err());
    }
}
