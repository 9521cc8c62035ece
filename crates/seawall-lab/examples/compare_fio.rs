//! Compares the lab's cells with `fio` on the same file: interleaved rounds, medians, paired ratios with
//! their interval.
//!
//! - Both programs do the same operations on the same file: pattern, block, depth, direct, sync, backend,
//!   registered buffers.
//! - Rounds alternate, and which program goes first alternates too, so that drift falls on both.
//! - The exit code is 1 when a median ratio lies outside 0.90 to 1.10.
//!
//! `cargo run --release -p seawall-lab --example compare_fio -- DIR [ROUNDS [SECONDS]]`

use seawall_io::{AlignedBuf, Backend, Create, Disk as _, OpenHow, OsDisk, SyncHow, WriteHow};
use seawall_lab::cell::{CellSpec, Sync};
use seawall_lab::plan;
use seawall_lab::run::{Limits, measure_on, this_machine};
use seawall_lab::stats::Estimate;
use std::error::Error;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

const FILE_BYTES: u64 = 1 << 30;
const BOUNDS: (f64, f64) = (0.90, 1.10);

/// A cell with the equivalent `fio` options.
struct Pair {
    title: &'static str,
    spec: CellSpec,
    fio: &'static [&'static str],
    /// The key in fio's JSON.
    direction: &'static str,
}

fn pairs() -> [Pair; 4] {
    [
        Pair {
            title: "4K direct random write, no sync",
            spec: plan::direct_sync(1, 4096, Sync::None),
            fio: &["--rw=randwrite", "--bs=4k", "--ioengine=psync"],
            direction: "write",
        },
        Pair {
            title: "4K direct random write, fdatasync each",
            spec: plan::direct_sync(1, 4096, Sync::Fdatasync),
            fio: &["--rw=randwrite", "--bs=4k", "--ioengine=psync", "--fdatasync=1"],
            direction: "write",
        },
        Pair {
            title: "16K direct random read, depth 1",
            spec: plan::random_read(1),
            fio: &["--rw=randread", "--bs=16k", "--ioengine=psync"],
            direction: "read",
        },
        Pair {
            title: "16K direct random read, depth 32",
            spec: plan::random_read(32),
            fio: &["--rw=randread", "--bs=16k", "--ioengine=io_uring", "--iodepth=32", "--fixedbufs=1"],
            direction: "read",
        },
    ]
}

/// The file that both programs use; removed at the end.
struct Shared(PathBuf);

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.0) {
            eprintln!("could not remove {}: {e}", self.0.display());
        }
    }
}

fn make_file(dir: &Path) -> Result<Shared, Box<dyn Error>> {
    let disk = OsDisk::synchronous();
    let path = dir.join(format!("compare-fio-{}", std::process::id()));
    let file = disk.open(&path, OpenHow { write: true, create: Create::New, direct: true, dsync: false })?;
    let shared = Shared(path);
    let mut chunk = AlignedBuf::zeroed(1 << 20);
    for at in (0..FILE_BYTES).step_by(chunk.len()) {
        for (i, word) in chunk.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&((at + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
        }
        if disk.write_at(&file, at, &[IoSlice::new(&chunk)], WriteHow::default())? != chunk.len() {
            return Err("the file could not be written whole".into());
        }
    }
    disk.sync(&file, SyncHow::All)?;
    Ok(shared)
}

fn fio_rate(path: &Path, pair: &Pair, seconds: f64, seed: u32) -> Result<f64, Box<dyn Error>> {
    let output = Command::new("fio")
        .args(["--name=compare", "--direct=1", "--norandommap", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={FILE_BYTES}"))
        .arg(format!("--runtime={}ms", (seconds * 1000.0) as u64))
        .arg(format!("--randseed={seed}"))
        .args(pair.fio)
        .output()
        .map_err(|e| format!("cannot run fio ({e}): install it with `apt-get install fio`"))?;
    if !output.status.success() {
        return Err(format!("fio failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    json["jobs"][0][pair.direction]["iops"].as_f64().ok_or_else(|| "fio printed no rate".into())
}

fn lab_rate(path: &Path, pair: &Pair, seconds: f64, seed: u32) -> Result<f64, Box<dyn Error>> {
    let limits = Limits { round: Duration::from_secs_f64(seconds), operations_min: 1, rate: None };
    let round = measure_on(path, &pair.spec, &limits, Backend::Auto, u64::from(seed))?;
    Ok(round.operations as f64 / round.seconds)
}

fn compare(dir: &Path, rounds: u32, seconds: f64) -> Result<bool, Box<dyn Error>> {
    let version = Command::new("fio").arg("--version").output();
    let version = version.map_err(|e| format!("cannot run fio ({e}): install it with `apt-get install fio`"))?;
    let machine = this_machine();
    println!(
        "{} against seawall lab {}, {} rounds of {seconds} s each in turn, {} cpus ({}), kernel {}",
        String::from_utf8_lossy(&version.stdout).trim(),
        env!("CARGO_PKG_VERSION"),
        rounds,
        machine.cpus,
        machine.cpu_model,
        machine.kernel
    );
    let shared = make_file(dir)?;
    let mut within = true;
    println!("{:<40} {:>9} {:>9} {:>7}  95% interval", "", "lab", "fio", "ratio");
    for pair in pairs() {
        let (mut lab, mut fio) = (Vec::new(), Vec::new());
        for n in 0..rounds {
            if n % 2 == 0 {
                lab.push(lab_rate(&shared.0, &pair, seconds, n)?);
                fio.push(fio_rate(&shared.0, &pair, seconds, n)?);
            } else {
                fio.push(fio_rate(&shared.0, &pair, seconds, n)?);
                lab.push(lab_rate(&shared.0, &pair, seconds, n)?);
            }
        }
        let ratios: Vec<f64> = lab.iter().zip(&fio).map(|(l, f)| l / f).collect();
        let (Some(l), Some(f), Some(r)) = (Estimate::of(&lab), Estimate::of(&fio), Estimate::of(&ratios)) else {
            return Err("no round was measured".into());
        };
        let inside = (BOUNDS.0..=BOUNDS.1).contains(&r.median);
        within &= inside;
        println!(
            "{:<40} {:>9.0} {:>9.0} {:>7.3}  {:.3} to {:.3}{}",
            pair.title,
            l.median,
            f.median,
            r.median,
            r.low,
            r.high,
            if inside { "" } else { "  OUTSIDE" }
        );
    }
    println!("{}", if within { "all within 10%" } else { "outside 10%: see above" });
    Ok(within)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "target".into());
    let rounds = args.next().and_then(|a| a.parse().ok()).unwrap_or(11);
    let seconds = args.next().and_then(|a| a.parse().ok()).unwrap_or(2.0);
    match compare(Path::new(&dir), rounds, seconds) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("compare-fio: {e}");
            ExitCode::from(2)
        }
    }
}
