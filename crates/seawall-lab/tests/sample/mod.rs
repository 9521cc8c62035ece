//! Invented results for tests of computations on results. Nothing here is a measurement.

use crate::cell::{Access, Ahead, Beside, CellSpec, FlushMethod, KeyOrder, Level, Pattern, Preparation, Sync};
use crate::results::{CellResult, DeviceDelta, EngineRun, Foreign, LATENCY_CONFIG, Results, Round};
use histogram::{Histogram, SparseHistogram};

/// A round of `operations` in one second with latencies around their mean.
pub fn round(operations: u64, seed: u64) -> Round {
    let mut latency = Histogram::new(LATENCY_CONFIG.0, LATENCY_CONFIG.1).expect("valid configuration");
    let mean = 1_000_000_000 / operations.max(1);
    for i in 0..operations.min(2000) {
        let tail = if (i * 7919 + seed) % 100 == 0 { 5 } else { 1 };
        latency.increment(mean * tail * (80 + (i * 31 + seed) % 40) / 100).expect("in range");
    }
    Round {
        operations,
        seconds: 1.0,
        latency: SparseHistogram::from(&latency),
        latency_ns_max: mean * 9,
        device: Some(device(0, operations)),
        foreign: Foreign { cpu_cores: 0.02, io_bytes_per_s: Some(0.0), disturbed: false },
        cached_bytes: Some(0),
        writes_issued: operations,
        syncs_issued: operations,
    }
}

/// A cell of six rounds around `rate`.
pub fn cell(spec: CellSpec, rate: f64) -> CellResult {
    let rates = [0.97, 1.0, 1.02, 0.99, 1.01, 1.03].map(|f| (rate * f) as u64);
    let rounds = rates.into_iter().zip(0..).map(|(operations, seed)| {
        // A query reads 160 pages. Queries and read-only loads write nothing.
        let reads = if spec.pattern == Pattern::RangeQuery { 160 * operations } else { 0 };
        let writes = if matches!(spec.pattern, Pattern::RangeQuery | Pattern::ReadOnly) { 0 } else { operations };
        let device = Some(device(reads, writes));
        Round { device, writes_issued: writes, syncs_issued: writes, ..round(operations, seed) }
    });
    CellResult { id: spec.id(), spec, rounds: rounds.collect() }
}

/// The device's work in a round, with a flush for each write.
fn device(reads: u64, writes: u64) -> DeviceDelta {
    let (read_bytes, written_bytes) = (reads * 16_384, writes * 8192);
    DeviceDelta { reads, read_bytes, writes, written_bytes, flushes: Some(writes), busy_ms: 900 }
}

/// A plausible rate for a cell, by simple rules.
fn plausible(spec: &CellSpec) -> f64 {
    let mut rate: f64 = match spec.pattern {
        Pattern::RandomRead => 15_000.0 * f64::from(spec.queue_depth.min(16)).powf(0.4),
        Pattern::SequentialRead => 1_800.0,
        Pattern::Log => {
            6_000.0 * f64::from(spec.threads).sqrt() * if spec.log.is_some_and(|l| l.merged) { 1.0 } else { 0.6 }
        }
        Pattern::ReadOnly => 300_000.0,
        Pattern::Transactional | Pattern::Tpcc | Pattern::Update => {
            let of_load = if spec.pattern == Pattern::Update { 20_000.0 } else { 4_000.0 };
            let engine = spec.engine.unwrap_or_default();
            let by_level = if engine.level == Some(Level::Flushed) { 1.0 } else { 1.8 };
            of_load * by_level * if engine.method == Some(FlushMethod::ODsync) { 0.8 } else { 1.0 }
        }
        Pattern::RangeQuery => {
            let engine = spec.engine.unwrap_or_default();
            let parallel = f64::from(spec.threads.min(4));
            let fragmented = if engine.tree == Some(KeyOrder::Fragmented) { 1.0 } else { 1.6 };
            fragmented
                * match (spec.access, engine.ahead) {
                    (Access::Buffered, _) => 110.0 * parallel,
                    (_, Some(Ahead::None)) => 90.0 * parallel,
                    (_, Some(Ahead::Window(pages))) => 90.0 * f64::from(pages.min(32)).sqrt(),
                    _ => 320.0 * parallel.sqrt().min(1.2),
                }
        }
        Pattern::SequentialWrite if spec.queue_depth > 1 => 900.0,
        Pattern::RandomWrite | Pattern::SequentialWrite => 18_000.0 * f64::from(spec.threads.min(8)).sqrt(),
    };
    if spec.sync != Sync::None && spec.pattern != Pattern::Log {
        rate *= 0.55;
    }
    rate *= match spec.preparation {
        Preparation::Append | Preparation::Unwritten | Preparation::KeepSize => 0.4,
        Preparation::ZeroFilledNow => 0.5,
        _ => 1.0,
    };
    match spec.beside {
        Beside::ContinuousWriter => rate * 0.3,
        Beside::PacedFill => rate * 0.95,
        _ => rate,
    }
}

/// The machine, run and probe of an imaginary NVMe drive under ext4.
fn invented() -> Results {
    serde_json::from_str(include_str!("sample.json")).expect("sample.json holds results")
}

/// Results holding `cells`.
pub fn results(cells: Vec<CellResult>) -> Results {
    Results { cells, engine: None, ..invented() }
}

/// Results of a whole plan at plausible rates.
pub fn of_plan(plan: &[CellSpec]) -> Results {
    let mut results = results(plan.iter().map(|spec| cell(*spec, plausible(spec))).collect());
    if plan.iter().any(|spec| spec.engine.is_some()) {
        let seawall_toml = crate::settings::recommend(&results).to_toml();
        results.engine = invented().engine.map(|engine| EngineRun { seawall_toml, ..engine });
    }
    results
}
