//! The rate of commits while data file and log grow, compared with the steady rate: that of a database with
//! all its space allocated from the start.
//!
//! 1. Both databases get the same transactions, some thousand at a time, alternately: a slow phase of the
//!    machine slows both.
//! 2. The steady one has all its space, and its log has been recycled once before the measurement. The
//!    growing one has neither: every window must see it grow, or the run reports that it did not.
//!
//! ```text
//! cargo run --release -p seawall --example growth -- /srv/scratch
//! ```
//! Also: `TRANSACTIONS` of a window (4000), `WINDOWS` (12), `THREADS` (4), `LOG` in MiB (256), `DURABILITY` (flushed).

use seawall::{Database, Options, Tree};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

mod machine;
use machine::number;

const ROWS: u64 = 4;
const ROW_BYTES: usize = 1000;

/// Inserts at random places; returns transactions a second.
fn rate(db: &Database, tree: &Tree, from: u64, transactions: u64, threads: u64) -> seawall::Result<f64> {
    let next = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= transactions {
                            return Ok(());
                        }
                        let mut random = from + number + 1;
                        db.transact(|tx| {
                            (0..ROWS).try_for_each(|_| {
                                tx.put(tree, &machine::next(&mut random).to_be_bytes(), &[7; ROW_BYTES])
                            })
                        })?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a writer does not panic"))
    })
    .map(|()| transactions as f64 / begun.elapsed().as_secs_f64())
}

fn main() -> seawall::Result<()> {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/growth"), PathBuf::from);
    let (transactions, windows, threads) = (number("TRANSACTIONS", 4000), number("WINDOWS", 12), number("THREADS", 4));
    let log_bytes = number("LOG", 256) << 20;
    let mut options = Options::default().with_pool_size(256 << 20).with_log_capacity(log_bytes);
    options.set("durability", &std::env::var("DURABILITY").unwrap_or_else(|_| "flushed".into()))?;
    machine::describe(&options);
    let space = (windows + 1) * transactions * ROWS * (ROW_BYTES as u64 + 100) * 2 + (256 << 20);
    let (scratch, steady) = machine::scratch(&dir, options.clone().with_data_initial_size(space))?;
    let (grown, growing) = machine::scratch(&dir, options.with_data_initial_size(1 << 20))?;
    // Recycles its log once.
    let other = steady.create_tree("other")?;
    while steady.stats().log.head_lsn < log_bytes * 11 / 10 {
        steady.transact(|tx| (0..64u64).try_for_each(|key| tx.put(&other, &key.to_be_bytes(), &[1; 3000])))?;
    }
    let trees = [steady.create_tree("t")?, growing.create_tree("t")?];
    println!(
        "{threads} threads, {ROWS} inserts of {ROW_BYTES} bytes a transaction, {transactions} transactions a window"
    );
    let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for window in 0..windows {
        let before = [steady.stats(), growing.stats()];
        let mut of = [0.0; 2];
        // The order alternates, so that neither always has the quieter half.
        for turn in 0..2 {
            let at = (turn + window as usize) % 2;
            let db = [&steady, &growing][at];
            of[at] = rate(db, &trees[at], window * transactions * 7919, transactions, threads)?;
        }
        let after = [steady.stats().since(&before[0]), growing.stats().since(&before[1])];
        let made = after[1].log.segments as i64 - before[1].log.segments as i64;
        let note = match (after[0].space.growths, after[1].space.growths, made) {
            (0, 0, ..=0) => "  (nothing grew: more TRANSACTIONS or LOG)",
            (0, ..) => "",
            _ => "  (the steady one grew too)",
        };
        println!(
            "window {window}: steady {:.0}/s, growing {:.0}/s ({:.2}); data grew {} times, the log by {made} \
             files{note}",
            of[0],
            of[1],
            of[1] / of[0],
            after[1].space.growths,
        );
        ratios.push(of[1] / of[0]);
        (0..2).for_each(|at| rates[at].push(of[at]));
    }
    let [all, some] = &mut rates;
    println!(
        "median: steady {:.0}/s, growing {:.0}/s; of the ratios {:.3}",
        machine::median(all),
        machine::median(some),
        machine::median(&mut ratios)
    );
    drop((trees, other, steady, growing, scratch, grown));
    Ok(())
}
