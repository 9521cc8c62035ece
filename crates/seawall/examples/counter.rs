//! A counter in one row, incremented by many threads: `transact` with `get_for_update` and `put`. The next increment
//! takes over the row when the commit of the last one is in the log, so a flush makes many durable. For comparison, the
//! example measures, alternately and on the same disk, how many times a second a block of 4 KiB can be overwritten
//! durably by the faster of two methods.
//!
//! ```text
//! cargo run --release -p seawall --example counter [DIR]      # THREADS=200 EACH=200 ROUNDS=3
//! ```

mod machine;

use seawall::{Options, Result};
use seawall_io::{AlignedBuf, Cause, Create, File, FileClass, FileOptions, FlushMethod, OsDisk};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 1024;
const PROBE: Duration = Duration::from_secs(1);

/// Durable writes a second.
fn flushes(path: &Path, method: FlushMethod) -> seawall_io::Result<f64> {
    let options = FileOptions::new(FileClass::Redo, method).create(Create::New);
    let file = File::open(Arc::new(OsDisk::synchronous()), path, options)?;
    let bytes = AlignedBuf::zeroed(BLOCK);
    for block in 0..BLOCKS {
        file.write_at(block * BLOCK as u64, &bytes, Cause::Preallocate)?;
    }
    file.sync(Cause::Preallocate)?;
    file.declare_written();
    let (began, mut done) = (Instant::now(), 0);
    while began.elapsed() < PROBE {
        file.write_durable_at(done % BLOCKS * BLOCK as u64, &bytes, Cause::Commit)?;
        done += 1;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// The rate of the faster of the methods whose write is durable when it returns.
fn flush_rate(dir: &Path) -> Result<f64> {
    let path = dir.join("flushes");
    let mut best = 0.0;
    for method in [FlushMethod::ODirect, FlushMethod::ODirectDsync] {
        let rate = flushes(&path, method);
        std::fs::remove_file(&path).ok();
        best = f64::max(best, rate?);
    }
    Ok(best)
}

/// Increments a second, and the number that failed.
fn increments(dir: &Path, threads: u64, each: u64) -> Result<(f64, u64)> {
    let (_scratch, db) = machine::scratch(dir, Options::default().with_pool_size(64 << 20))?;
    let counters = db.create_tree("counters")?;
    let increment = || {
        db.transact(|tx| {
            let n = tx
                .get_for_update(&counters, b"visits")?
                .map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap_or([0; 8])));
            tx.put(&counters, b"visits", &(n + 1).to_le_bytes())
        })
    };
    increment()?;
    let began = Instant::now();
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| (0..each).filter(|_| increment().is_err()).count() as u64)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).sum::<u64>()
    });
    let rate = (threads * each - failed) as f64 / began.elapsed().as_secs_f64();
    let counted = db.get(&counters, b"visits")?.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap_or([0; 8])));
    assert_eq!(counted, 1 + threads * each - failed, "an increment is lost, or counted twice");
    Ok((rate, failed))
}

fn run(dir: &Path) -> Result<()> {
    let (threads, each) = (machine::number("THREADS", 200), machine::number("EACH", 200));
    machine::describe(&Options::default());
    println!(
        "{threads} threads, {each} increments each\n| increments/s | failed | durable 4K writes/s before and after | \
         ratio |\n|---|---|---|---|"
    );
    let mut ratios = Vec::new();
    for _ in 0..machine::number("ROUNDS", 3) {
        let before = flush_rate(dir)?;
        let (rate, failed) = increments(dir, threads, each)?;
        let after = flush_rate(dir)?;
        let ratio = rate / f64::max(before, after);
        println!("| {rate:.0} | {failed} | {before:.0}, {after:.0} | {ratio:.2} |");
        ratios.push(ratio);
    }
    println!("median ratio {:.2} (goal 0.5)", machine::median(&mut ratios));
    Ok(())
}

fn main() -> ExitCode {
    let dir = std::env::args().nth(1).map_or_else(|| PathBuf::from("target"), PathBuf::from);
    match run(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
