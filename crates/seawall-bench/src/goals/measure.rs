//! Measures one cell once.
//!
//! 1. Before a measurement, it waits for a quiet machine, up to a limit. The work of other processes
//!    meanwhile is recorded.
//! 2. A figure missing in a result is missing, never zero.

use super::cell::{CALLGRIND_OPS, Cell, DiskKind, INSTRUCTIONS, Tool};
use super::disks::{Disks, delayed_calls};
use super::process::{self, ProcessError, Said};
use crate::scan::fio;
use seawall_lab::run::ForeignReading;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// More work of other processes than this disturbs a cell, cores.
pub const FOREIGN_CORES_MAX: f64 = 0.1;
/// The longest wait for a quiet machine before a cell.
const QUIET_WITHIN: Duration = Duration::from_secs(15);
/// And in a whole run: on a machine that is never quiet an hour must not become a day; the results mark
/// disturbed goals.
pub const QUIET_WITHIN_RUN: Duration = Duration::from_secs(300);
const QUIET_FOR: Duration = Duration::from_millis(250);
/// The most that loading, opening and closing may take beside the measured window; callgrind is fifty times
/// slower.
const BESIDE_WINDOW: Duration = Duration::from_secs(900);

/// The result of a cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Figures by name: the numbers in the result's JSON, and figures derived from them.
    pub figures: BTreeMap<String, f64>,
    /// Settings by the store's own names.
    pub settings: BTreeMap<String, String>,
    /// The store's version.
    pub version: String,
    /// The machine, as in the result.
    pub machine: Value,
    /// The commit of the source.
    pub commit: String,
    /// Cores that other processes used meanwhile.
    pub foreign_cpu_cores: f64,
}

impl Measured {
    /// Whether work of other processes disturbed it.
    #[must_use]
    pub fn disturbed(&self) -> bool {
        self.foreign_cpu_cores > FOREIGN_CORES_MAX
    }

    /// From the JSON that a process wrote, and the files that the store left in `dir`.
    ///
    /// # Errors
    /// When it is not a result.
    pub fn from_json(text: &str, cell: &Cell, dir: &Path) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("its result is no JSON: {e}"))?;
        let fields = value.as_object().ok_or("its result is no JSON object")?;
        let number = |(name, value): (&String, &Value)| Some((name.clone(), value.as_f64()?));
        let mut figures: BTreeMap<String, f64> = fields.iter().filter_map(number).collect();
        if let Some(resident) = figures.get("rss_peak_bytes") {
            let beside = resident / f64::from(1 << 20) - cell.pool_mib as f64;
            figures.insert("rss_beside_pool_mib".into(), beside);
        }
        let of = |name: &str| figures.get(name).copied();
        if let (Some(rows), Some(loading), Some(settling)) = (of("ops"), of("duration_s"), of("settle_seconds")) {
            figures.insert("rows_per_s_settled".into(), rows / (loading + settling));
        }
        if let Some(bytes) = metadata_bytes(dir) {
            figures.insert("metadata_share".into(), bytes / ((cell.pool_mib << 20) as f64));
        }
        let words = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let settings = fields.get("settings").and_then(Value::as_object).into_iter().flatten();
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Ok(Self {
            settings: settings.map(|(name, value)| (name.clone(), shown(value))).collect(),
            version: words("version"),
            machine: fields.get("machine").cloned().unwrap_or_default(),
            commit: words("commit"),
            foreign_cpu_cores: figures.get("foreign_cpu_cores").copied().unwrap_or(0.0),
            figures,
        })
    }
}

/// The last report of Seawall on its pool's bookkeeping; `None` for other stores.
fn metadata_bytes(dir: &Path) -> Option<f64> {
    let path =
        crate::observe::files_below(dir).into_iter().find(|path| path.ends_with(seawall::publish::STATS_FILE))?;
    let text = std::fs::read_to_string(path).ok()?;
    let published: Value = serde_json::from_str(&text).ok()?;
    published["stats"]["pool"]["metadata_bytes"].as_f64()
}

/// Measures cells by processes of their own.
#[derive(Debug)]
pub struct Bench<'r> {
    /// The `seawall` command.
    pub exe: PathBuf,
    /// The disks.
    pub disks: Disks<'r>,
    /// Set by Ctrl-C.
    pub stop: &'r AtomicBool,
    /// How much longer to wait for a quiet machine; initially [`QUIET_WITHIN_RUN`].
    pub quiet_left: Duration,
}

impl Bench<'_> {
    /// Creates a cell's rows, unless they exist.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn prepare(&mut self, cell: &Cell) -> Result<(), ProcessError> {
        let dir = self.disks.dir(cell)?;
        if cell.tool == Tool::Fio && cell.order.is_none() {
            let file = cell.fio_file(&dir).map_err(ProcessError::Failed)?;
            if file.exists() {
                return Ok(());
            }
            std::fs::create_dir_all(&dir)
                .map_err(|e| ProcessError::Failed(format!("cannot make {}: {e}", dir.display())))?;
            let mut fio = Command::new("fio");
            fio.args(cell.fio_preparation(&file));
            return process::run(fio, BESIDE_WINDOW, self.stop).map(drop);
        }
        let Some(arguments) = cell.preparation(&dir) else { return Ok(()) };
        let mut command = Command::new(&self.exe);
        command.args(arguments);
        let made = process::run(command, BESIDE_WINDOW, self.stop);
        if made.is_err() {
            // A partial load is useless.
            self.disks.remove(&dir)?;
        }
        made.map(drop)
    }

    /// Measures a cell once.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn measure(&mut self, cell: &Cell) -> Result<Measured, ProcessError> {
        let dir = self.disks.dir(cell)?;
        if cell.loads() {
            self.disks.remove(&dir)?;
        }
        let environment = self.disks.environment(cell)?;
        // Unwritten data of one store must not slow down the next.
        rustix::fs::sync();
        self.disks.limit(cell)?;
        self.wait_for_quiet()?;
        let limit = BESIDE_WINDOW + Duration::from_secs_f64(cell.seconds + cell.warm_up_seconds);
        let result = match cell.tool {
            Tool::Kv | Tool::Tpcc | Tool::Restart | Tool::Scan | Tool::Bulk => {
                let mut command = Command::new(&self.exe);
                command.args(cell.arguments(&dir, None)).envs(environment);
                let said = process::run(command, limit, self.stop)?;
                if cell.disk == DiskKind::SlowFlush && cell.is_peer() {
                    check_delay(cell, &said)?;
                }
                Measured::from_json(&said.out, cell, &dir).map_err(ProcessError::Failed)
            }
            Tool::Fio => self.fio(cell, &dir, limit),
            Tool::Callgrind => self.callgrind(cell, &dir, limit),
            Tool::Instructions => self.instructions(cell, &dir, limit),
        };
        if cell.loads() || cell.tool == Tool::Restart {
            self.disks.remove(&dir)?;
        }
        result
    }

    fn wait_for_quiet(&mut self) -> Result<(), ProcessError> {
        let (began, within) = (Instant::now(), QUIET_WITHIN.min(self.quiet_left));
        while began.elapsed() < within {
            let before = ForeignReading::take();
            std::thread::sleep(QUIET_FOR);
            if before.since().0 <= FOREIGN_CORES_MAX {
                return Ok(());
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(ProcessError::Interrupted);
            }
        }
        self.quiet_left = self.quiet_left.saturating_sub(began.elapsed());
        Ok(())
    }

    fn fio(&self, cell: &Cell, dir: &Path, limit: Duration) -> Result<Measured, ProcessError> {
        let mut fio = Command::new("fio");
        fio.args(cell.fio_arguments(&cell.fio_file(dir).map_err(ProcessError::Failed)?));
        let said = process::run(fio, limit, self.stop)?;
        fio_result(&said.out, cell).map_err(ProcessError::Failed)
    }

    /// Instructions of an operation, as the example `instructions` counts them.
    fn instructions(&self, cell: &Cell, dir: &Path, limit: Duration) -> Result<Measured, ProcessError> {
        let mut counting = Command::new(instructions_beside(&self.exe));
        counting.args(cell.arguments(dir, None));
        let said = process::run(counting, limit, self.stop)?;
        let count = said.out.trim().parse::<f64>();
        let count =
            count.map_err(|e| ProcessError::Failed(format!("{:?} is no count of instructions: {e}", said.out)))?;
        let machine = serde_json::to_value(crate::run::cell::machine(self.exe.parent().unwrap_or(dir)));
        Ok(Measured {
            figures: [("instructions_per_op".to_owned(), count)].into(),
            version: env!("CARGO_PKG_VERSION").into(),
            machine: machine.unwrap_or_default(),
            commit: crate::run::cell::commit(),
            ..Measured::default()
        })
    }

    /// Instructions of an operation: what a longer run needs beyond a shorter one.
    fn callgrind(&self, cell: &Cell, dir: &Path, limit: Duration) -> Result<Measured, ProcessError> {
        let mut collected = [0.0; 2];
        let mut measured = Measured::default();
        for (ops, collected) in CALLGRIND_OPS.into_iter().zip(&mut collected) {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&self.exe);
            valgrind.args(cell.arguments(dir, Some(ops)));
            let said = process::run(valgrind, limit, self.stop)?;
            measured = Measured::from_json(&said.out, cell, dir).map_err(ProcessError::Failed)?;
            *collected = instructions(&said.err)
                .ok_or_else(|| ProcessError::Failed("valgrind did not say how many instructions it counted".into()))?;
        }
        // Times under valgrind mean nothing, and work of other processes changes no count.
        let per_op = (collected[1] - collected[0]) / (CALLGRIND_OPS[1] - CALLGRIND_OPS[0]) as f64;
        measured.figures = [("instructions_per_op".to_owned(), per_op)].into();
        measured.foreign_cpu_cores = 0.0;
        Ok(measured)
    }
}

/// The example that counts instructions, of the same build as the command.
#[must_use]
pub fn instructions_beside(exe: &Path) -> PathBuf {
    exe.parent().unwrap_or(Path::new(".")).join(INSTRUCTIONS)
}

/// Checks that a requested delay took effect; otherwise a slow disk would be compared with a fast one.
fn check_delay(cell: &Cell, said: &Said) -> Result<(), ProcessError> {
    match delayed_calls(&said.err) {
        Some(calls) if calls > 0 || cell.durability != "flushed" => Ok(()),
        calls => Err(ProcessError::Failed(format!(
            "the injected delay reached {} calls of {}: its flushes do not go through libc",
            calls.unwrap_or(0),
            cell.store
        ))),
    }
}

/// The count in callgrind's final output: `==123== Collected : 456`.
fn instructions(said: &str) -> Option<f64> {
    let line = said.lines().rev().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// What fio read.
pub(super) fn fio_result(text: &str, cell: &Cell) -> Result<Measured, String> {
    let (reads, version) = fio::parse(text)?;
    let settings = match cell.pattern() {
        Some(pattern) => vec![("pattern", pattern.to_string()), ("ioengine", "libaio".into()), ("direct", "1".into())],
        None => vec![
            ("jobs", cell.threads.to_string()),
            ("ioengine", "psync".into()),
            ("direct", "1".into()),
            ("bs", "16k".into()),
        ],
    };
    let figures = [
        ("ops_per_s", reads.reads_per_s),
        ("device_reads_per_s", reads.reads_per_s),
        ("device_read_mb_per_s", reads.mb_per_s),
    ];
    Ok(Measured {
        figures: figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        settings: settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        version,
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::spec::{Extent, GOALS, Overrides, Plan};

    fn cell() -> Cell {
        Plan::read(GOALS, Extent::Full, Overrides::default()).unwrap().groups[0].cells()[0].clone()
    }

    #[test]
    fn figures_are_the_numbers_of_a_result() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("stats.json"), r#"{"stats":{"pool":{"metadata_bytes":10737418}}}"#).unwrap();
        let text = r#"{"store":"s","version":"1","ops_per_s":5.5,"rss_peak_bytes":2147483648,"device_reads_per_s":null,
            "settings":{"a":"b"},"ops":30,"duration_s":2.0,"settle_seconds":1.0,"foreign_cpu_cores":0.2,"machine":{"cores":2},"commit":"c"}"#;
        let measured = Measured::from_json(text, &cell(), dir.path()).unwrap();
        assert_eq!(measured.figures["ops_per_s"], 5.5);
        assert_eq!(measured.figures["rss_beside_pool_mib"], 1024.0);
        assert_eq!(measured.figures["rows_per_s_settled"], 10.0);
        assert!((measured.figures["metadata_share"] - 0.01).abs() < 1e-6);
        assert!(!measured.figures.contains_key("device_reads_per_s"), "unknown is not zero");
        assert!(measured.disturbed() && measured.settings["a"] == "b" && measured.machine["cores"] == 2);
        assert!(Measured::from_json("oops", &cell(), dir.path()).is_err());
        assert!(Measured::from_json("[]", &cell(), dir.path()).is_err());
    }

    #[test]
    fn other_tools_are_understood() {
        assert_eq!(instructions("==7== Events    : Ir\n==7== Collected : 123456\n==7==\n"), Some(123_456.0));
        assert_eq!(instructions("==7== Events    : Ir\n"), None);
        let fio = "note: both iodepth\n{\"fio version\": \"fio-3.33\", \"jobs\": [{\"read\": {\"iops\": 4000.5}}]}";
        assert_eq!(fio_result(fio, &cell()).unwrap().figures["ops_per_s"], 4000.5);
        assert!(fio_result("{\"jobs\": []}", &cell()).is_err());
        assert!(fio_result("fio: failed", &cell()).is_err());
    }

    #[test]
    fn a_delay_that_reached_nothing_is_no_result() {
        let said = |err: &str| Said { out: String::new(), err: err.into() };
        let cell = Cell { store: "redb".into(), ..cell() };
        assert!(check_delay(&cell, &said("flush_delay: 12 calls delayed\n")).is_ok());
        assert!(check_delay(&cell, &said("flush_delay: 0 calls delayed\n")).is_err());
        assert!(check_delay(&cell, &said("")).is_err());
    }
}
