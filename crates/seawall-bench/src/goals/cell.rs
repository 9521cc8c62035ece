//! A cell: one measurement, and the command that makes it.
//!
//! 1. Each cell is measured by a process of its own: no data of one store is in memory while another is
//!    measured.
//! 2. Cells with the same [`Cell::data`] use the same rows, created once; the rows of a loading workload are
//!    created anew each time.

use super::spec::SUBJECT;
use crate::scan::fio::{Pattern, data_file};
use crate::scan::{Order, Query};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Added to every flush of [`DiskKind::SlowFlush`], ms.
pub const FLUSH_DELAY_MS: u64 = 8;
/// Reads a second, and writes a second, of [`DiskKind::FewIops`].
pub const IOPS_MAX: u64 = 3000;
/// Operations of the shorter and the longer run under callgrind: the cost of opening and closing is in both
/// and cancels out.
pub const CALLGRIND_OPS: [u64; 2] = [2_000, 12_000];

/// The program that measures a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// `seawall bench kv`.
    #[default]
    Kv,
    /// `seawall bench tpcc`.
    Tpcc,
    /// fio.
    Fio,
    /// `seawall bench kv` under valgrind's callgrind, twice.
    Callgrind,
    /// `seawall bench restart`.
    Restart,
    /// `seawall bench scan`.
    Scan,
    /// `seawall bench bulk`.
    Bulk,
    /// The example `instructions` of the crate `seawall`, which counts with callgrind.
    Instructions,
}

/// The example of [`Tool::Instructions`], beside the `seawall` command.
pub const INSTRUCTIONS: &str = "examples/instructions";
/// Its kinds of operations.
pub const KINDS: [&str; 8] = ["empty", "read", "probe", "range", "update", "locked-update", "locked-scan", "append"];

/// Point readers alone, as a workload of [`Tool::Scan`]; after a query and a plus sign, beside one scanning
/// thread.
pub const POINTS: &str = "points";

/// The disk under a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// Without a delay or limit.
    Plain,
    /// Every flush takes [`FLUSH_DELAY_MS`] longer.
    SlowFlush,
    /// At most [`IOPS_MAX`] reads and writes a second.
    FewIops,
}

impl DiskKind {
    /// Prefix of the names of goals on this disk.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::SlowFlush => "slow-flush-",
            Self::FewIops => "few-iops-",
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The program that measures it.
    pub tool: Tool,
    /// The disk it uses.
    pub disk: DiskKind,
    /// Workload.
    pub workload: String,
    /// In which order the rows of a scan were inserted.
    #[serde(default)]
    pub order: Option<Order>,
    /// Store; `fio` for fio.
    pub store: String,
    /// Threads, or jobs.
    pub threads: u32,
    /// Rows; warehouses of TPC-C.
    pub keys: u64,
    /// Bytes of a value.
    pub value_size: u64,
    /// Memory for the store's cache, MiB.
    pub pool_mib: u64,
    /// `flushed`, `written` or `deferred`.
    pub durability: String,
    /// The changes of up to this many writers form one transaction.
    pub fold: u32,
    /// Options by the store's own names.
    pub set: BTreeMap<String, String>,
    /// Length of the measured window, s.
    pub seconds: f64,
    /// Warm-up before it, s.
    pub warm_up_seconds: f64,
    /// Limit of the memory cgroup for the process and its page cache, MiB.
    pub memory_mib: Option<u64>,
    /// Log to be replayed, MiB; 0 except for restarts.
    pub log_mib: u64,
}

impl Cell {
    /// One line for people; different for different cells.
    #[must_use]
    pub fn name(&self) -> String {
        let set: String = self.set.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let fold = if self.fold > 1 { format!(" fold {}", self.fold) } else { String::new() };
        let order = self.order.map_or_else(String::new, |order| format!(" {order}"));
        format!(
            "{}{:?}{order} {} {} {}t {}x{} pool {}M {}{fold}{set} {}s",
            self.disk.prefix(),
            self.tool,
            self.workload,
            self.store,
            self.threads,
            self.keys,
            self.value_size,
            self.pool_mib,
            self.durability,
            self.seconds
        )
        .to_lowercase()
    }

    /// Whether the workload itself creates the rows.
    #[must_use]
    pub fn loads(&self) -> bool {
        self.tool == Tool::Bulk || self.workload.starts_with("load-")
    }

    /// Whether it measures a library of another project.
    #[must_use]
    pub fn is_peer(&self) -> bool {
        !matches!(self.store.as_str(), "seawall" | "raw" | "fio")
    }

    /// The name of the directory of its rows.
    #[must_use]
    pub fn data(&self) -> String {
        match self.tool {
            // fio reads what Seawall scans.
            Tool::Scan | Tool::Fio if self.order.is_some() => {
                let store = if self.tool == Tool::Fio { SUBJECT } else { &self.store };
                let order = self.order.map_or("", Order::name);
                format!("scan-{store}-{order}-{}-{}", self.keys, self.value_size)
            }
            Tool::Fio => format!("fio-{}", self.data_mib()),
            Tool::Tpcc => format!("tpcc-{}-{}", self.store, self.keys),
            Tool::Restart => format!("restart-{}-{}", self.keys, self.log_mib),
            Tool::Bulk => format!("bulk-{}", self.workload),
            // It works in memory and in its own directory.
            Tool::Instructions => format!("instructions-{}", self.workload),
            Tool::Kv | Tool::Callgrind if self.loads() => format!("{}-{}", self.workload, self.store),
            Tool::Kv | Tool::Callgrind | Tool::Scan => format!("kv-{}-{}-{}", self.store, self.keys, self.value_size),
        }
    }

    /// Approximate size of the rows, MiB.
    #[must_use]
    pub fn data_mib(&self) -> u64 {
        (self.keys * self.value_size).div_ceil(1 << 20).max(1)
    }

    /// Arguments of `seawall` that measure it in `dir`. `ops`: measure this many operations instead of a
    /// time.
    #[must_use]
    pub fn arguments(&self, dir: &Path, ops: Option<u64>) -> Vec<String> {
        if self.tool == Tool::Instructions {
            return vec!["count".into(), self.workload.clone()];
        }
        let mut args = self.common(dir);
        if self.tool == Tool::Restart {
            return args;
        }
        if self.tool == Tool::Bulk {
            args.extend(["--duration".into(), format!("{}ms", (self.seconds * 1000.0).round())]);
            return args;
        }
        match ops {
            Some(ops) => args.extend(["--ops".into(), ops.to_string()]),
            None if self.loads() => {}
            None => args.extend(["--duration".into(), format!("{}ms", (self.seconds * 1000.0).round())]),
        }
        if ops.is_none() && !self.loads() {
            args.extend(["--warm-up".into(), format!("{}ms", (self.warm_up_seconds * 1000.0).round())]);
        }
        if !self.loads() {
            args.push("--reuse".into());
        }
        if self.tool == Tool::Callgrind && self.store == "seawall" {
            // The statistics run once a second by the clock: in a process that is fifty times slower they
            // would count fifty times.
            args.extend(["--set".into(), "stats_interval=0".into()]);
        }
        if let Some(memory) = self.memory_mib {
            args.extend(["--memory-limit".into(), format!("{memory}M")]);
        }
        if self.disk == DiskKind::SlowFlush {
            // Peers get the delay from a preloaded library, and the flag for the record.
            args.extend(["--flush-delay".into(), format!("{FLUSH_DELAY_MS}ms")]);
        }
        args
    }

    /// Arguments of `seawall` that create its rows in `dir`; `None` when no rows are needed beforehand.
    #[must_use]
    pub fn preparation(&self, dir: &Path) -> Option<Vec<String>> {
        match self.tool {
            Tool::Fio if self.order.is_some() => Self {
                tool: Tool::Scan,
                store: SUBJECT.into(),
                workload: POINTS.into(),
                set: BTreeMap::new(),
                ..self.clone()
            }
            .preparation(dir),
            Tool::Restart | Tool::Fio | Tool::Bulk | Tool::Instructions => None,
            Tool::Kv | Tool::Callgrind if self.loads() => None,
            Tool::Kv | Tool::Callgrind | Tool::Tpcc | Tool::Scan => {
                let mut args = self.common(dir);
                args.extend(["--load-only".into(), "--reuse".into()]);
                Some(args)
            }
        }
    }

    fn common(&self, dir: &Path) -> Vec<String> {
        let mut args: Vec<String> = vec!["bench".into()];
        let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
        match self.tool {
            Tool::Restart => {
                add("restart", "--json".into());
                add("--log", format!("{}M", self.log_mib));
                add("--keys", self.keys.to_string());
                add("--value-size", self.value_size.to_string());
            }
            Tool::Tpcc => {
                add("tpcc", "--json".into());
                add("--warehouses", self.keys.to_string());
            }
            Tool::Scan => {
                add("scan", "--json".into());
                add("--keys", self.keys.to_string());
                add("--value-size", self.value_size.to_string());
                add("--tree", self.order.map_or("", Order::name).into());
                self.queries(&mut add);
            }
            Tool::Bulk => {
                add("bulk", "--json".into());
                add("--task", self.workload.clone());
                add("--keys", self.keys.to_string());
                add("--value-size", self.value_size.to_string());
                add("--threads", self.threads.to_string());
            }
            Tool::Kv | Tool::Callgrind | Tool::Fio | Tool::Instructions => {
                add("kv", "--json".into());
                add("--workload", self.workload.clone());
                add("--keys", self.keys.to_string());
                add("--value-size", self.value_size.to_string());
            }
        }
        add("--dir", dir.display().to_string());
        add("--pool", format!("{}M", self.pool_mib));
        if matches!(self.tool, Tool::Restart | Tool::Bulk) {
            return args;
        }
        add("--store", self.store.clone());
        if self.tool == Tool::Scan {
            // fio is a cell of its own.
            args.push("--no-fio".into());
        } else {
            add("--threads", self.threads.to_string());
        }
        let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
        add("--durability", self.durability.clone());
        add("--seed", "1".into());
        if self.fold > 1 {
            add("--fold", self.fold.to_string());
        }
        for (name, value) in &self.set {
            add("--set", format!("{name}={value}"));
        }
        if self.tool == Tool::Callgrind && self.store == "seawall" {
            // Valgrind knows only older system calls; the path of a read or an update is the same.
            add("--set", "io_backend=sync".into());
        }
        args
    }

    /// Which threads scan what, and which read points beside them.
    fn queries(&self, add: &mut impl FnMut(&str, String)) {
        let (query, readers) = match self.workload.strip_suffix(POINTS) {
            Some(query) => (query.strip_suffix('+'), self.threads),
            None => (Some(self.workload.as_str()), 0),
        };
        let threads = if readers == 0 { self.threads } else { u32::from(query.is_some()) };
        add("--threads", threads.to_string());
        add("--point-readers", readers.to_string());
        match query.and_then(|query| query.parse().ok()) {
            Some(Query::Range(rows)) => add("--rows-per-range", rows.to_string()),
            Some(Query::MultiGet(keys)) => add("--multi-get", keys.to_string()),
            Some(Query::Gets(keys)) => add("--gets", keys.to_string()),
            Some(Query::All) | None => add("--rows-per-range", "all".into()),
        }
    }

    /// Checks that its workload is one of [`Tool::Scan`].
    ///
    /// # Errors
    /// The list of these workloads.
    pub fn check_scan(&self) -> Result<(), String> {
        let query =
            self.workload.strip_suffix(POINTS).map_or(Some(&self.workload[..]), |query| query.strip_suffix('+'));
        query.map_or(Ok(()), |query| query.parse::<Query>().map(drop))?;
        self.order.map(drop).ok_or_else(|| "its data has no order: give `order` there".into())
    }

    /// Arguments of fio that measure it on `file`.
    #[must_use]
    pub fn fio_arguments(&self, file: &Path) -> Vec<String> {
        if let Some(pattern) = self.pattern() {
            let [warm_up, time] = [self.warm_up_seconds, self.seconds].map(Duration::from_secs_f64);
            return pattern.arguments(file, warm_up, time);
        }
        let mut args = fio_common(file, self.data_mib());
        args.extend(
            ["--rw=randread", "--bs=16k", "--direct=1", "--ioengine=psync", "--thread", "--group_reporting"]
                .map(String::from),
        );
        args.extend(["--norandommap", "--randrepeat=0", "--time_based", "--output-format=json"].map(String::from));
        args.push(format!("--numjobs={}", self.threads));
        args.push(format!("--ramp_time={}ms", (self.warm_up_seconds * 1000.0).round()));
        args.push(format!("--runtime={}ms", (self.seconds * 1000.0).round()));
        args
    }

    /// How fio reads the scanned data; `None` where it reads a file of its own.
    #[must_use]
    pub fn pattern(&self) -> Option<Pattern> {
        self.order.and_then(|_| self.workload.parse().ok())
    }

    /// Arguments of fio that write `file`, so that each of its blocks is allocated.
    #[must_use]
    pub fn fio_preparation(&self, file: &Path) -> Vec<String> {
        let mut args = fio_common(file, self.data_mib());
        args.extend(["--rw=write", "--bs=1M", "--direct=1", "--end_fsync=1", "--output-format=json"].map(String::from));
        args
    }

    /// The file that fio reads: its own in its directory, or that of a scanned store.
    ///
    /// # Errors
    /// When no file in the directory holds the rows.
    pub fn fio_file(&self, dir: &Path) -> Result<PathBuf, String> {
        if self.order.is_none() {
            return Ok(dir.join("file"));
        }
        let found = data_file(dir, self.keys.saturating_mul(self.value_size));
        found.ok_or_else(|| format!("no file below {} holds the rows: fio has nothing to read", dir.display()))
    }
}

fn fio_common(file: &Path, mib: u64) -> Vec<String> {
    vec!["--name=seawall-goals".into(), format!("--filename={}", file.display()), format!("--size={mib}M")]
}
