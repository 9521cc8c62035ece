//! One cell: the request, common to key-value workloads and TPC-C, and its result.

use super::drive::Driven;
use crate::results::{CellResult, Load, Machine, Measured, TIMELINE_STEP};
use crate::store::{About, Durability};
use seawall_io::probe::{Finding, probe};
use seawall_lab::run::this_machine;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The request.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Workload, as on the command line.
    pub workload: String,
    /// Store, as on the command line.
    pub store: String,
    /// Threads.
    pub threads: usize,
    /// Keys; 0 when the workload has rows of its own.
    pub keys: u64,
    /// Bytes of a value; 0 likewise.
    pub value_size: u64,
    /// What a change waits for.
    pub durability: Durability,
    /// Memory for the store's cache, bytes.
    pub pool_bytes: u64,
    /// The most threads whose puts become one transaction; 1: each has its own.
    pub client_batch: usize,
    /// Added to each flush.
    pub flush_delay: Duration,
    /// The limit of the process's memory cgroup, bytes.
    pub memory_limit_bytes: Option<u64>,
    /// The seed of keys, values and order.
    pub seed: u64,
}

impl Cell {
    /// The result of a window that was driven on a store with files in `dir`.
    #[must_use]
    pub fn result(&self, driven: &Driven, about: &About, machine: Machine, load: Option<Load>) -> CellResult {
        let observed = &driven.observed;
        CellResult {
            workload: self.workload.clone(),
            store: self.store.clone(),
            version: about.version.clone(),
            threads: self.threads,
            keys: self.keys,
            value_size: self.value_size,
            durability: durability_name(self.durability).into(),
            pool_bytes: self.pool_bytes,
            client_batch: self.client_batch,
            flush_delay_ms: self.flush_delay.as_secs_f64() * 1e3,
            measured: measured(driven),
            rss_bytes: observed.rss_bytes,
            rss_peak_bytes: observed.rss_peak_bytes,
            page_cache_bytes: observed.page_cache_bytes,
            cpu_cores: observed.cpu_cores,
            foreign_cpu_cores: observed.foreign_cpu_cores,
            memory_limit_bytes: self.memory_limit_bytes,
            settings: about.settings.iter().cloned().collect(),
            machine,
            commit: commit(),
            seed: self.seed,
            load,
            timeline: driven.timeline.steps(driven.window, TIMELINE_STEP),
            histogram: driven.latencies.buckets(),
            extra: BTreeMap::new(),
        }
    }
}

fn measured(driven: &Driven) -> Measured {
    let seconds = driven.window.as_secs_f64();
    let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    let per_op = |count: u64| (driven.ops > 0).then(|| count as f64 / driven.ops as f64);
    let device = driven.observed.device;
    Measured {
        duration_s: seconds,
        ops: driven.ops,
        errors: driven.errors,
        conflicts: driven.conflicts,
        ops_per_s: per_second(driven.ops as f64),
        longest_gap_ms: driven.timeline.longest_gap(driven.window).as_secs_f64() * 1e3,
        device_read_bytes_per_op: device.and_then(|d| per_op(d.read_bytes)),
        device_written_bytes_per_op: device.and_then(|d| per_op(d.written_bytes)),
        device_reads_per_s: device.map(|d| per_second(d.reads as f64)),
        device_writes_per_s: device.map(|d| per_second(d.writes as f64)),
        flushes_per_op: device.and_then(|d| d.flushes).and_then(per_op),
        ..Measured::of(&driven.latencies)
    }
}

/// The name on the command line and in the JSON.
#[must_use]
pub fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Flushed => "flushed",
        Durability::Written => "written",
        Durability::Deferred => "deferred",
    }
}

/// The machine, and the file system and device of `dir`.
#[must_use]
pub fn machine(dir: &Path) -> Machine {
    let machine = this_machine();
    let (file_system, device) = match probe(dir) {
        Ok(found) => (
            found.file_system.known().map_or_else(|| "unknown".into(), |fs| format!("{} ({})", fs.kind, fs.options)),
            match found.device {
                Finding::Known(device) => match device.model.known() {
                    Some(model) => format!("{} ({model})", device.name),
                    None => device.name,
                },
                Finding::Unknown(why) => format!("unknown: {why}"),
            },
        ),
        Err(e) => ("unknown".into(), format!("unknown: {e}")),
    };
    Machine {
        cpu_model: machine.cpu_model,
        cores: machine.cpus,
        memory_bytes: machine.memory_bytes,
        kernel: machine.kernel,
        file_system,
        device,
    }
}

/// The commit of the source tree around the running program, by git; `unknown` for a program installed
/// elsewhere.
pub(crate) fn commit() -> String {
    let describe = |dir: &Path| {
        let git = std::process::Command::new("git")
            .args(["describe", "--always", "--dirty", "--abbrev=12"])
            .current_dir(dir)
            .stderr(std::process::Stdio::null())
            .output();
        git.ok().filter(|out| out.status.success()).and_then(|out| String::from_utf8(out.stdout).ok())
    };
    let program = std::env::current_exe().ok();
    let found = program.as_deref().and_then(Path::parent).and_then(describe);
    found.map_or_else(|| "unknown".into(), |text| text.trim().to_owned())
}
