//! The cost for others of a snapshot held during heavy updates, and how long purge takes after it ends.
//!
//! 1. Windows without and with a held snapshot alternate in one run, so that a slow phase of the machine
//!    slows both.
//! 2. A window with a held snapshot begins after the snapshot's first read, and ends before the snapshot does. Purge
//!    then catches up before the next.
//!
//! ```text
//! SECONDS=120 WINDOWS=2 cargo run --release -p seawall --example held_snapshot -- /srv/scratch
//! ```
//! Also: `THREADS` (4), `ROWS` (200000), `DURABILITY` (written), `POOL` in MiB (256).

use seawall::{Database, Options, Transaction, Tree};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod machine;
use machine::number;

const CHANGES: u64 = 4;

struct Load<'a> {
    db: &'a Database,
    tree: &'a Tree,
    rows: u64,
    threads: u64,
}

impl Load<'_> {
    fn one(&self, tx: &mut Transaction, random: &mut u64) -> seawall::Result<()> {
        for _ in 0..CHANGES {
            let key = (machine::next(random) % self.rows).to_be_bytes();
            let mut value = tx.get_for_update(self.tree, &key)?.unwrap_or_default();
            if let Some(first) = value.first_mut() {
                *first = first.wrapping_add(1);
            }
            tx.put(self.tree, &key, &value)?;
        }
        Ok(())
    }

    /// Transactions a second of all threads together.
    fn rate(&self, window: Duration) -> seawall::Result<f64> {
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (stop, done) = (&stop, &done);
                    scope.spawn(move || {
                        let mut random = thread + 1;
                        while !stop.load(Ordering::Relaxed) {
                            self.db.transact(|tx| self.one(tx, &mut random))?;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(())
                    })
                })
                .collect();
            std::thread::sleep(window);
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().try_for_each(|worker| worker.join().expect("a writer does not panic"))
        })
        .map(|()| done.into_inner() as f64 / begun.elapsed().as_secs_f64())
    }

    /// Waits until purge has nothing left to do.
    fn caught_up(&self) -> Duration {
        let begun = Instant::now();
        while self.db.stats().purge.history > 0 && begun.elapsed() < Duration::from_secs(3600) {
            std::thread::sleep(Duration::from_millis(5));
        }
        begun.elapsed()
    }
}

fn main() -> seawall::Result<()> {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/held-snapshot"), PathBuf::from);
    let (seconds, windows) = (number("SECONDS", 10), number("WINDOWS", 5));
    let mut options = Options::default().with_pool_size(number("POOL", 256) << 20);
    options.set("durability", &std::env::var("DURABILITY").unwrap_or_else(|_| "written".into()))?;
    machine::describe(&options);
    let (scratch, db) = machine::scratch(&dir, options)?;
    let tree = db.create_tree("t")?;
    let load = Load { db: &db, tree: &tree, rows: number("ROWS", 200_000), threads: number("THREADS", 4) };
    let mut next = 0;
    while next < load.rows {
        let end = (next + 10_000).min(load.rows);
        db.transact(|tx| (next..end).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[7; 100])))?;
        next = end;
    }
    println!(
        "{} threads, {CHANGES} locked reads and updates a transaction, {} rows, {seconds} s a window",
        load.threads, load.rows
    );
    load.rate(Duration::from_secs(seconds.min(5)))?;
    load.caught_up();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for window in 0..windows {
        let free = load.rate(Duration::from_secs(seconds))?;
        load.caught_up();
        let held = db.begin()?;
        let sum = |tx: &Transaction| -> seawall::Result<u64> {
            tx.iter(&tree).try_fold(0u64, |sum, entry| Ok(sum + u64::from(entry?.1[0])))
        };
        let before = sum(&held)?;
        let pinned = load.rate(Duration::from_secs(seconds))?;
        let history = db.stats().purge.history;
        let reading = Instant::now();
        assert_eq!(sum(&held)?, before, "it shows its moment");
        let read = reading.elapsed();
        drop(held);
        let purge = load.caught_up();
        println!(
            "window {window}: {free:.0}/s without, {pinned:.0}/s with ({:.2}); history {history}, read through it in \
             {read:.2?}, purged in {purge:.2?}",
            pinned / free
        );
        without.push(free);
        with.push(pinned);
    }
    let (free, pinned) = (machine::median(&mut without), machine::median(&mut with));
    println!("median: {free:.0}/s without, {pinned:.0}/s with a held snapshot: {:.3} of it", pinned / free);
    drop((tree, db, scratch));
    Ok(())
}
