//! One thing to measure, and the command that measures it.
//!
//! 1. A cell is measured by a process of its own: nothing of one store is in memory while another is measured.
//! 2. Cells with the same [`Cell::data`] work on the same rows, made once; what a loading workload fills is made anew each time.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Added to every flush of [`DiskKind::SlowFlush`], ms.
pub const FLUSH_DELAY_MS: u64 = 8;
/// Reads a second, and writes a second, of [`DiskKind::FewIops`].
pub const IOPS_MAX: u64 = 3000;
/// Operations of the shorter and the longer run under callgrind: what opening and closing cost is in both and goes out.
pub const CALLGRIND_OPS: [u64; 2] = [2_000, 12_000];

/// What measures a cell.
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
}

/// The disk under a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// As it is.
    Plain,
    /// Every flush takes [`FLUSH_DELAY_MS`] longer.
    SlowFlush,
    /// At most [`IOPS_MAX`] reads and writes a second.
    FewIops,
}

impl DiskKind {
    /// What names of goals on it begin with.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::SlowFlush => "slow-flush-",
            Self::FewIops => "few-iops-",
        }
    }
}

/// One thing to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What measures it.
    pub tool: Tool,
    /// The disk under it.
    pub disk: DiskKind,
    /// Workload.
    pub workload: String,
    /// Store; `fio` where there is none.
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
    /// Changes of up to so many writers go into one transaction.
    pub fold: u32,
    /// Options by the store's own names.
    pub set: BTreeMap<String, String>,
    /// Length of the measured window, s.
    pub seconds: f64,
    /// Before it, s.
    pub warm_up_seconds: f64,
    /// What a memory cgroup bounds the process and its page cache to, MiB.
    pub memory_mib: Option<u64>,
    /// Log to be replayed, MiB; 0 but for restarts.
    pub log_mib: u64,
}

impl Cell {
    /// In a line, for people; different for different cells.
    #[must_use]
    pub fn name(&self) -> String {
        let set: String = self.set.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let fold = if self.fold > 1 { format!(" fold {}", self.fold) } else { String::new() };
        format!(
            "{}{:?} {} {} {}t {}x{} pool {}M {}{fold}{set} {}s",
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

    /// Whether the workload itself makes the rows.
    #[must_use]
    pub fn loads(&self) -> bool {
        self.workload.starts_with("load-")
    }

    /// Whether a library of another project is measured.
    #[must_use]
    pub fn is_peer(&self) -> bool {
        !matches!(self.store.as_str(), "seawall" | "raw" | "fio")
    }

    /// The name of the directory its rows are in.
    #[must_use]
    pub fn data(&self) -> String {
        match self.tool {
            Tool::Fio => format!("fio-{}", self.data_mib()),
            Tool::Tpcc => format!("tpcc-{}-{}", self.store, self.keys),
            Tool::Restart => format!("restart-{}-{}", self.keys, self.log_mib),
            Tool::Kv | Tool::Callgrind if self.loads() => format!("{}-{}", self.workload, self.store),
            Tool::Kv | Tool::Callgrind => format!("kv-{}-{}-{}", self.store, self.keys, self.value_size),
        }
    }

    /// About the size of the rows, MiB.
    #[must_use]
    pub fn data_mib(&self) -> u64 {
        (self.keys * self.value_size).div_ceil(1 << 20).max(1)
    }

    /// Arguments of `seawall` that measure it in `dir`. `ops`: so many operations instead of a time.
    #[must_use]
    pub fn arguments(&self, dir: &Path, ops: Option<u64>) -> Vec<String> {
        let mut args = self.common(dir);
        if self.tool == Tool::Restart {
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
            // Once a second by the clock: in a process that is fifty times slower it would count fifty times.
            args.extend(["--set".into(), "stats_interval=0".into()]);
        }
        if let Some(memory) = self.memory_mib {
            args.extend(["--memory-limit".into(), format!("{memory}M")]);
        }
        if self.disk == DiskKind::SlowFlush {
            // Peers get it from a library loaded before theirs, and the flag for the record.
            args.extend(["--flush-delay".into(), format!("{FLUSH_DELAY_MS}ms")]);
        }
        args
    }

    /// Arguments of `seawall` that make its rows in `dir`; `None` when they need not be made beforehand.
    #[must_use]
    pub fn preparation(&self, dir: &Path) -> Option<Vec<String>> {
        match self.tool {
            Tool::Restart | Tool::Fio => None,
            Tool::Kv | Tool::Callgrind if self.loads() => None,
            Tool::Kv | Tool::Callgrind | Tool::Tpcc => {
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
            Tool::Kv | Tool::Callgrind | Tool::Fio => {
                add("kv", "--json".into());
                add("--workload", self.workload.clone());
                add("--keys", self.keys.to_string());
                add("--value-size", self.value_size.to_string());
            }
        }
        add("--dir", dir.display().to_string());
        add("--pool", format!("{}M", self.pool_mib));
        if self.tool == Tool::Restart {
            return args;
        }
        add("--store", self.store.clone());
        add("--threads", self.threads.to_string());
        add("--durability", self.durability.clone());
        add("--seed", "1".into());
        if self.fold > 1 {
            add("--fold", self.fold.to_string());
        }
        for (name, value) in &self.set {
            add("--set", format!("{name}={value}"));
        }
        if self.tool == Tool::Callgrind && self.store == "seawall" {
            // Valgrind knows the system calls of old; the path of a read or an update is the same.
            add("--set", "io_backend=sync".into());
        }
        args
    }

    /// Arguments of fio that measure it on `file`.
    #[must_use]
    pub fn fio_arguments(&self, file: &Path) -> Vec<String> {
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

    /// Arguments of fio that write `file`, so that every block of it is there.
    #[must_use]
    pub fn fio_preparation(&self, file: &Path) -> Vec<String> {
        let mut args = fio_common(file, self.data_mib());
        args.extend(["--rw=write", "--bs=1M", "--direct=1", "--end_fsync=1", "--output-format=json"].map(String::from));
        args
    }

    /// The file of fio in its directory.
    #[must_use]
    pub fn fio_file(dir: &Path) -> PathBuf {
        dir.join("file")
    }
}

fn fio_common(file: &Path, mib: u64) -> Vec<String> {
    vec!["--name=seawall-goals".into(), format!("--filename={}", file.display()), format!("--size={mib}M")]
}
