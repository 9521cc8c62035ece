//! Writes reports of invented results, to look at while changing the report:
//! `cargo run -p seawall-lab --example report_sample -- DIRECTORY`.
//!
//! The rates are invented; nothing here is a measurement.

use seawall_lab::cell::{Access, Beside, CellSpec, Pattern, Preparation, Sync};
use seawall_lab::report::html;
use seawall_lab::results::{CellResult, Plateau, Results, Skipped, Sustain};
use seawall_lab::{plan, sample};
use std::path::Path;

/// A consumer drive on a bad day: flushes cost a hundred times a write, some writes wait for the journal,
/// rounds differ.
fn slow() -> Results {
    let rate = |spec: &CellSpec| {
        let threads = f64::from(spec.threads);
        let base = match (spec.sync, spec.pattern) {
            (_, Pattern::RandomRead) => 9_000.0 * f64::from(spec.queue_depth).powf(0.85),
            (_, Pattern::SequentialRead) | (Sync::None, Pattern::SequentialWrite) => 520.0,
            (_, Pattern::Log) => 160.0 * threads.powf(0.9),
            (Sync::None, _) => 31_000.0 * threads.powf(0.3),
            (Sync::Fdatasync, _) => 270.0 * threads.powf(0.5),
            (Sync::RwfDsync, _) => 410.0 * threads.powf(0.7),
            (Sync::ODsync | Sync::Fsync, _) => 405.0,
        };
        let of_blocks = match spec.preparation {
            Preparation::Append => 0.47,
            Preparation::Unwritten | Preparation::KeepSize => 0.55,
            Preparation::ZeroFilledNow => 0.31,
            Preparation::Preallocated => 1.04,
            _ => 1.0,
        };
        let beside = match spec.beside {
            Beside::CachedPages | Beside::BeyondEof => 0.4 / threads.powf(0.3),
            Beside::ContinuousWriter => 0.05,
            _ => 1.0,
        };
        let path = if spec.access == Access::Direct { 1.1 } else { 1.0 };
        base * of_blocks * beside * path
    };
    let mut cells: Vec<CellResult> = plan::full().into_iter().map(|spec| sample::cell(spec, rate(&spec))).collect();
    for (n, cell) in cells.iter_mut().enumerate() {
        let others = [sample::round(rate(&cell.spec) as u64 / 9 + 1, 3).latency, cell.rounds[0].latency.clone()];
        for (i, round) in cell.rounds.iter_mut().enumerate() {
            round.seconds = [1.0, 1.31, 0.93, 1.6, 1.02, 0.97][(i + n) % 6];
            if let Ok(mixed) = round.latency.checked_add(&others[i % 2]) {
                round.latency = mixed;
            }
            round.foreign.disturbed = n % 11 == 4 && i == 2;
        }
    }
    let mut results = sample::results(cells);
    results.run.full = true;
    results.machine.host = "a-rather-long-host-name-017.storage.example.internal".into();
    results.machine.cpu_model = "Imaginary CPU E5-2680 v4 @ 2.40GHz, a model name as long as they come".into();
    results
}

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let write = |name: &str, results: &Results| std::fs::write(Path::new(&directory).join(name), html(results));
    write("default.html", &sample::of_plan(&plan::decisive()))?;

    let mut full = sample::of_plan(&plan::full());
    full.run.full = true;
    full.run.command = "seawall lab /srv/db --full".into();
    full.cells[9].rounds[2].foreign.disturbed = true;
    full.skipped = vec![Skipped {
        id: "e2/overwrite/log/4k/dontcache/fdatasync/t16/merged".into(),
        title: "log commits, merged, 4K blocks, RWF_DONTCACHE, fdatasync per group, 16 threads".into(),
        reason: "RWF_DONTCACHE needs Linux 6.14; this is 6.12.0".into(),
    }];
    full.cells.retain(|c| !c.id.contains("dontcache"));
    for cell in full.cells.iter_mut().filter(|c| c.id.contains("/log/512/buffered")) {
        for round in &mut cell.rounds {
            round.cached_bytes = Some(900 << 20);
            round.device.as_mut().expect("the sample has a device").reads = round.operations / 9;
        }
    }
    write("full.html", &full)?;

    write("slow.html", &slow())?;

    let mut interrupted = sample::of_plan(&plan::decisive()[..5]);
    interrupted.complete = false;
    write("interrupted.html", &interrupted)?;

    let mut sustained = sample::results(vec![]);
    let second = |s: u32| if s < 240 { 11_800 } else { 3_000 } + (s * 7919 % 613);
    sustained.sustain = Some(Sustain {
        title: "random 16K writes, direct, fdatasync each".into(),
        per_second: (0..1800).map(second).collect(),
        plateaus: vec![
            Plateau { from_s: 0, to_s: 240, rate: 12_100.0 },
            Plateau { from_s: 240, to_s: 1800, rate: 3306.0 },
        ],
    });
    write("sustain.html", &sustained)
}
