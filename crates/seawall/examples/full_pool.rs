//! Fills a pool to its last page and continues, with large and small transactions at the same time, for a run inside a
//! memory limit: `full_pool <dir> <pool bytes>`; see scripts/cgroup-test. Prints the peak of memory and the swapped
//! bytes.

use seawall::{Database, Options};
use std::time::{Duration, Instant};

mod machine;
use machine::number;

fn status(of: &str) -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines().find(|line| line.starts_with(of)).unwrap_or("unknown").to_owned()
}

/// Runs transactions that change `rows` rows of 1000 bytes, every other one rolled back, until the time is
/// over; at least two.
fn large_transactions(db: &Database, rows: u64, begun: Instant, time: Duration) -> seawall::Result<u64> {
    let tree = db.create_tree("large")?;
    let mut done = 0;
    while done < 2 || begun.elapsed() < time {
        let mut tx = db.begin()?;
        (0..rows).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[done as u8; 1000]))?;
        if done % 2 == 0 {
            tx.commit()?;
        } else {
            tx.rollback()?;
        }
        done += 1;
    }
    Ok(done)
}

fn main() -> seawall::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(Ok(pool))) = (args.next(), args.next().map(|bytes| bytes.parse::<u64>())) else {
        return Err(seawall::Error::Usage("full_pool <dir> <pool bytes>".into()));
    };
    let options = Options::default().with_pool_size(pool).with_pool_size_max(pool);
    let db = Database::open_with(dir, options.clone())?;
    let tree = db.create_tree("t")?;
    // A third more than fits, so that every frame is used and pages are evicted.
    let rows = pool / 1100 * 4 / 3;
    let begun = Instant::now();
    let mut next = 0;
    while next < rows {
        let end = (next + 2000).min(rows);
        db.transact(|tx| (next..end).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[7; 1000])))?;
        next = end;
    }
    println!("{rows} rows in {:.1?}", begun.elapsed());
    let (begun, seconds) = (Instant::now(), number("RUN_SECONDS", 20));
    std::thread::scope(|scope| -> seawall::Result<()> {
        let large = scope.spawn(|| large_transactions(&db, rows / 4, begun, Duration::from_secs(seconds)));
        let workers: Vec<_> = (0..4u64)
            .map(|thread| {
                let (db, tree) = (&db, &tree);
                scope.spawn(move || {
                    let mut random = thread + 1;
                    let mut done = 0u64;
                    while begun.elapsed() < Duration::from_secs(seconds) {
                        db.transact(|tx| {
                            (0..8).try_for_each(|_| {
                                let key = (machine::next(&mut random) % rows).to_be_bytes();
                                tx.get_for_update(tree, &key)?;
                                tx.put(tree, &key, &[8; 1000])
                            })
                        })?;
                        done += 1;
                    }
                    Ok(done)
                })
            })
            .collect();
        let done: seawall::Result<Vec<u64>> =
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
        let done: u64 = done?.iter().sum();
        let large = large.join().expect("no panic")?;
        println!("{done} transactions in {seconds} s, and {large} of {} rows each beside them", rows / 4);
        Ok(())
    })?;
    let free = db.stats().pool.frames_free;
    println!("{free} frames free; {}; {}", status("VmHWM"), status("VmSwap"));
    drop(tree);
    db.close()
}
