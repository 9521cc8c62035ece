//! Scans of trees that do not fit the pool: one loaded in key order, one at random, one at random and then compacted;
//! with and without prefetch, with the device's counters. The depth is the device's own: the total time of its
//! requests, divided by the elapsed time.
//!
//! ```text
//! cargo run --release -p seawall --example cold_scan [DIR [MiB [POOL_MiB]]]
//! ```
//! Also: `DEPTH`, one `prefetch_depth` instead of several.

mod machine;

use seawall::{Database, Durability, Options, Result, Tree};
use std::path::Path;
use std::time::Instant;

/// Bytes of a row's value; with its key and header about 200 in a leaf.
const VALUE: [u8; 180] = [7; 180];
const DEPTHS: [u32; 4] = [0, 1, 8, 32];
const TREES: [&str; 3] = ["ordered", "random", "compacted"];

/// The counters of the block device under `dir`: reads, bytes read, and the total milliseconds that requests
/// were in flight.
fn device(dir: &Path) -> Option<[u64; 3]> {
    use std::os::unix::fs::MetadataExt as _;
    let dev = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xfff00));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let field: Vec<u64> = stat.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    Some([*field.first()?, *field.get(2)? * 512, *field.get(3)?])
}

/// A permutation of the numbers below `rows`, a power of two: each step is invertible.
fn shuffled(i: u64, rows: u64) -> u64 {
    let (mask, half) = (rows - 1, rows.ilog2() / 2);
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
    x ^= x >> half;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93) & mask;
    x ^ (x >> half)
}

fn load(db: &Database, tree: &Tree, rows: u64, in_order: bool) -> Result<()> {
    let began = Instant::now();
    for first in (0..rows).step_by(2000) {
        let mut tx = db.begin()?;
        for i in first..rows.min(first + 2000) {
            let number = if in_order { i } else { shuffled(i, rows) };
            tx.put(tree, &number.to_be_bytes(), &VALUE)?;
        }
        tx.commit_with(Durability::Written)?;
    }
    db.checkpoint()?;
    let (name, found) = (tree.name(), db.fragmentation(tree)?);
    println!(
        "{name}: {rows} rows loaded in {:.1} s, {} MiB, {} leaves, {:.1}% of neighbours apart, {}% full",
        began.elapsed().as_secs_f64(),
        db.tree_bytes(tree) >> 20,
        found.leaves,
        100.0 * found.share(),
        found.fill_percent
    );
    Ok(())
}

fn compact(db: &Database, tree: &Tree) -> Result<()> {
    let (began, before) = (Instant::now(), db.stats());
    let done = db.compact(tree)?;
    let (took, log) = (began.elapsed().as_secs_f64(), db.stats().since(&before).log.bytes);
    let (after, leaves) = (done.after, done.done.freed as f64);
    println!(
        "{}: compacted in {took:.1} s ({:.0} leaves/s, {} MiB of log), now {} leaves, {:.1}% of neighbours apart, {}% \
         full",
        tree.name(),
        leaves / took,
        log >> 20,
        after.leaves,
        100.0 * after.share(),
        after.fill_percent
    );
    db.checkpoint()
}

fn report(db: &Database, what: &str, run: impl FnOnce() -> Result<u64>) -> Result<()> {
    let (before, began, stats) = (device(db.path()), Instant::now(), db.stats());
    let rows = run()?;
    let took = began.elapsed().as_secs_f64();
    let pool = db.stats().since(&stats).pool;
    let io = match (before, device(db.path())) {
        (Some(a), Some(b)) => {
            let [reads, bytes, ms] = std::array::from_fn(|i| b[i].saturating_sub(a[i]) as f64);
            format!("{:6.0} reads/s {:5.0} MB/s depth {:4.1}", reads / took, bytes / took / 1e6, ms / took / 1e3)
        }
        _ => "no counters of the device".to_owned(),
    };
    println!(
        "{what}: {:8.0} rows/s | {io} | misses {} prefetched {} in {} reads, waits {}, wasted {}",
        rows as f64 / took,
        pool.misses,
        pool.prefetched,
        pool.prefetch_reads,
        pool.prefetch_waits,
        pool.prefetch_wasted,
    );
    Ok(())
}

/// Rows in ranges of `rows_each`, spread over the tree.
fn ranges(db: &Database, tree: &Tree, rows: u64, rows_each: u64, count: u64) -> Result<u64> {
    let tx = db.begin()?;
    let mut seen = 0;
    for i in 0..count {
        let from = shuffled(i * 7 + 3, rows).min(rows - rows_each);
        for row in tx.range(tree, from.to_be_bytes()..(from + rows_each).to_be_bytes()) {
            seen += u64::from(!row?.1.is_empty());
        }
    }
    Ok(seen)
}

fn full(db: &Database, tree: &Tree, forward: bool) -> Result<u64> {
    let tx = db.begin()?;
    let mut all = tx.iter(tree).long();
    let mut seen = 0;
    while let Some(row) = if forward { all.next() } else { all.next_back() } {
        seen += u64::from(!row?.1.is_empty());
    }
    Ok(seen)
}

fn points(db: &Database, tree: &Tree, rows: u64, keys_each: usize, count: u64) -> Result<u64> {
    let tx = db.begin()?;
    let mut seen = 0;
    for i in 0..count {
        let keys: Vec<_> =
            (0..keys_each as u64).map(|k| shuffled(i * 7919 + k * 104_729 + 1, rows).to_be_bytes()).collect();
        seen += tx.multi_get(tree, &keys)?.iter().flatten().count() as u64;
    }
    Ok(seen)
}

fn measure(dir: &Path, mib: u64, pool_mib: u64) -> Result<()> {
    // A power of two, so that `shuffled` is a permutation.
    let rows = ((mib << 20) / 200).next_power_of_two();
    // Loaded in memory: random inserts with a small pool would take an hour, and give the same trees.
    let options = Options::default().with_log_capacity(512 << 20);
    let db = Database::open_with(dir.join("db"), options.clone().with_pool_size(mib << 22))?;
    for name in TREES {
        let tree = db.create_tree(name)?;
        load(&db, &tree, rows, name == TREES[0])?;
        if name == TREES[2] {
            compact(&db, &tree)?;
        }
    }
    db.close()?;
    let options = options.with_pool_size(pool_mib << 20);
    machine::describe(&options);
    let db = Database::open_with(dir.join("db"), options)?;
    println!("{}", db.stats().backend);
    let one = machine::number("DEPTH", u64::MAX);
    for name in TREES {
        let tree = db.open_tree(name)?;
        for depth in if one < u64::MAX { vec![one as u32] } else { DEPTHS.to_vec() } {
            db.set("prefetch_depth", &depth.to_string())?;
            let what = |what: &str| format!("{name}, depth {depth:2}, {what}");
            report(&db, &what("full scan         "), || full(&db, &tree, true))?;
            if depth == 32 {
                report(&db, &what("full scan backward"), || full(&db, &tree, false))?;
            }
            report(&db, &what("30000-row ranges  "), || ranges(&db, &tree, rows, 30_000, 20))?;
            report(&db, &what("1000-row ranges   "), || ranges(&db, &tree, rows, 1000, 300))?;
            report(&db, &what("100-row ranges    "), || ranges(&db, &tree, rows, 100, 2000))?;
            report(&db, &what("multi_get of 100  "), || points(&db, &tree, rows, 100, 100))?;
        }
    }
    db.close()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let place = args.next().unwrap_or_else(|| "target".into());
    let mut number = |default| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (mib, pool_mib) = (number(640), number(64));
    let dir = tempfile::tempdir_in(&place).expect("a directory to measure in");
    if let Err(error) = measure(dir.path(), mib, pool_mib) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
