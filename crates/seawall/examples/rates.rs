//! The rates of the store on this machine: opening, loading, reading, scanning, committing. One run, medians
//! where there are rounds.
//!
//! ```text
//! cargo run --release -p seawall --example rates [DIR [RING_DIR]]
//! ```
//!
//! With `RING_DIR` (`/dev/shm`) the log's buffer is a file there: option `log_ring_dir`.

use seawall::{Database, Durability, Options, Result, TxOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROWS: u64 = 500_000;
const VALUE: [u8; 100] = [7; 100];
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

/// Keys in pseudorandom order, each once.
fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn per_second(count: u64, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn commits(db: &Database, tree: &seawall::Tree, threads: u64, durability: Durability) -> Result<f64> {
    let (began, done) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let done = &done;
                scope.spawn(move || -> Result<()> {
                    let mut i = thread * 7919;
                    while began.elapsed() < ROUND {
                        let options = TxOptions { durability: Some(durability), ..TxOptions::default() };
                        let mut tx = db.begin_with(options)?;
                        // Existing rows; no two threads change the same row.
                        tx.put(tree, &key(i % (ROWS / threads) * threads + thread), &VALUE)?;
                        tx.commit()?;
                        i += 1;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    Ok(per_second(done.into_inner(), began))
}

fn measure(dir: &Path, ring_dir: PathBuf) -> Result<()> {
    let mut opened = Vec::new();
    for i in 0..7 {
        let path = dir.join(format!("open-{i}"));
        let began = Instant::now();
        let db = Database::open(&path)?;
        opened.push(began.elapsed().as_secs_f64() * 1e3);
        db.close()?;
    }
    println!("first open of a new database: {:.1} ms (median of 7; the first calibrates, too)", median(opened));

    let options = Options::default().with_pool_size(256 << 20).with_log_ring_dir(ring_dir);
    let db = Database::open_with(dir.join("db"), options)?;
    let tree = db.create_tree("t")?;
    let began = Instant::now();
    for first in (0..ROWS).step_by(1000) {
        let mut tx = db.begin()?;
        for i in first..first + 1000 {
            tx.put(&tree, &key(i), &VALUE)?;
        }
        tx.commit_with(Durability::Written)?;
    }
    println!("load, keys in no order, 1000 a transaction: {:.0} rows/s", per_second(ROWS, began));
    let tx = db.begin()?;
    let began = Instant::now();
    let found =
        (0..ROWS).map(|i| tx.get_with(&tree, &key(i), <[u8]>::len)).filter(|v| matches!(v, Ok(Some(100)))).count();
    println!("get, in memory, one thread: {:.0}/s ({found} found)", per_second(ROWS, began));
    let began = Instant::now();
    let rows = tx.iter(&tree).filter(Result::is_ok).count() as u64;
    println!("scan, in memory: {:.0} rows/s", per_second(rows, began));
    drop(tx);
    for durability in [Durability::Flushed, Durability::Written, Durability::Deferred] {
        for threads in [1, 4, 16, 64] {
            let before = db.stats().log;
            let rates = (0..ROUNDS).map(|_| commits(&db, &tree, threads, durability)).collect::<Result<Vec<_>>>()?;
            let log = db.stats().log;
            let groups = (log.groups - before.groups).max(1);
            let bytes = log.bytes - before.bytes;
            let total: f64 = rates.iter().sum::<f64>() * ROUND.as_secs_f64();
            println!(
                "commits of one row, {durability:?}, {threads:2} threads: {:6.0}/s; {:.1} a group, {:.0} bytes of log \
                 a commit",
                median(rates),
                total / groups as f64,
                bytes as f64 / total
            );
        }
    }
    db.close()
}

fn main() {
    let place = std::env::args().nth(1).unwrap_or_else(|| "target".into());
    let dir = tempfile::tempdir_in(place).expect("a directory to measure in");
    let ring_dir = std::env::args().nth(2).map(PathBuf::from).unwrap_or_default();
    if let Err(error) = measure(dir.path(), ring_dir) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
