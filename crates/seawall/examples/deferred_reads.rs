//! The cost of deferred changes for readers: cold point reads and a cold scan while a fifth of the pages are away
//! (evicted, with their changes in memory), and after all of them have been written to the data file; and the restart
//! of a process that was killed with as many pages away as possible.
//!
//! ```text
//! cargo run --release -p seawall --example deferred_reads DIR
//! ```
//! `MIB` of rows, `POOL_MIB`, of which `PERCENT` are kept for deferred changes.

mod machine;

use machine::number;
use seawall::{Database, Durability, Options, Result, Tree, TxOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const VALUE: usize = 400;
const THREADS: u64 = 16;
const WINDOW: Duration = Duration::from_secs(10);

/// Calls `one` with random keys from all threads until `go_on` returns false; returns the calls in a second.
fn all_threads(rows: u64, go_on: impl Fn() -> bool, one: impl Fn(u64) -> Result<()> + Sync) -> Result<f64> {
    let (stop, done, began) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    let failed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (stop, done, one) = (&stop, &done, &one);
                scope.spawn(move || {
                    let mut x = began.elapsed().as_nanos() as u64 ^ (thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    while !stop.load(Ordering::Relaxed) {
                        // xorshift64 (Marsaglia 2003).
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        one(x % rows)?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        while go_on() {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().find_map(|thread| thread.join().expect("no thread panics").err())
    });
    failed.map_or_else(|| Ok(done.into_inner() as f64 / began.elapsed().as_secs_f64()), Err)
}

fn for_a_while() -> impl Fn() -> bool {
    let began = Instant::now();
    move || began.elapsed() < WINDOW
}

/// Changes random rows until this percentage of the tree's pages is away, at most for twelve windows.
fn update(db: &Database, tree: &Tree, rows: u64, percent: u64) -> Result<()> {
    let wanted = db.tree_bytes(tree) / db.options().page_size() * percent / 100;
    let began = Instant::now();
    let written = TxOptions { durability: Some(Durability::Written), ..TxOptions::default() };
    let rate = all_threads(
        rows,
        || db.stats().pool.deferred_pages < wanted && began.elapsed() < 12 * WINDOW,
        |key| {
            let mut tx = db.begin_with(written)?;
            tx.put(tree, &key.to_be_bytes(), &[key as u8; VALUE])?;
            tx.commit()
        },
    )?;
    println!("{rate:.0} updates/s for {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn read(db: &Database, tree: &Tree, rows: u64, what: &str) -> Result<()> {
    let away = db.stats().pool.deferred_pages;
    let gets = all_threads(rows, for_a_while(), |key| db.get(tree, &key.to_be_bytes()).map(drop))?;
    let (began, mut seen) = (Instant::now(), 0u64);
    for row in db.begin()?.iter(tree) {
        row?;
        seen += 1;
    }
    println!(
        "{what}: {away} pages away before, {gets:.0} point reads/s of {THREADS} threads, {:.0} rows/s in one scan, {} \
         pages away after",
        seen as f64 / began.elapsed().as_secs_f64(),
        db.stats().pool.deferred_pages
    );
    Ok(())
}

fn open(dir: &Path, pool: u64, percent: u64) -> Result<Database> {
    let options = Options::default().with_pool_size(pool).with_pool_size_max(pool);
    let percent = u32::try_from(percent).unwrap_or(u32::MAX);
    Database::open_with(dir, options.with_deferred_percent_min(percent).with_deferred_percent(percent))
}

fn main() -> Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        return Err(seawall::Error::Usage("deferred_reads DIR".into()));
    };
    let dir = Path::new(&dir);
    let (bytes, pool, percent) = (number("MIB", 640) << 20, number("POOL_MIB", 64) << 20, number("PERCENT", 12));
    let rows = bytes / (VALUE as u64 + 40);
    let db = open(dir, pool, percent)?;
    let tree = db.create_tree("rows")?;
    for first in (0..rows).step_by(1000) {
        db.transact(|tx| tx.put_rows(&tree, (first..rows.min(first + 1000)).map(|i| (i.to_be_bytes(), [1; VALUE]))))?;
    }
    db.checkpoint()?;
    println!("{rows} rows in {} MiB, pool {} MiB", db.tree_bytes(&tree) >> 20, pool >> 20);
    if std::env::var_os("KILLED").is_some() {
        update(&db, &tree, rows, 100)?;
        let stats = db.stats();
        println!(
            "killed with {} pages away, {} frames dirty and {} MiB of log to recover",
            stats.pool.deferred_pages,
            stats.pool.frames_dirty,
            stats.log.checkpoint_age_bytes >> 20
        );
        std::process::abort();
    }
    for round in 0..3 {
        update(&db, &tree, rows, 20)?;
        read(&db, &tree, rows, "with deferred changes")?;
        db.set("deferred_percent_min", "0")?;
        db.set("deferred_percent", "0")?;
        while db.stats().pool.deferred_pages > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        db.checkpoint()?;
        read(&db, &tree, rows, "without")?;
        if round < 2 {
            db.set("deferred_percent", &percent.to_string())?;
            db.set("deferred_percent_min", &percent.to_string())?;
        }
    }
    db.close()?;
    std::fs::remove_dir_all(dir).ok();
    let again = std::process::Command::new(std::env::current_exe().expect("it has a path"))
        .args(std::env::args_os().skip(1))
        .env("KILLED", "1")
        .status();
    println!("the killed process: {again:?}");
    let began = Instant::now();
    let db = open(dir, pool, percent)?;
    println!("opened again in {:.1} s", began.elapsed().as_secs_f64());
    db.close()
}
