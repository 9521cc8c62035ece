//! The cost of taking rows from the front of a tree: in one transaction, by a cursor, by many transactions, and while
//! others read the front.
//!
//! Run with `cargo run --release --example drain [ROWS]`. In memory: this measures the work, not a disk.

use seawall::{
    CursorOptions, Database, Durability, Isolation, LockMode, LockWait, OnConflict, Result, Seek, Tree, TxOptions,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

fn fill(db: &Database, tree: &Tree, rows: u32) -> Result<()> {
    db.transact(|tx| (0..rows).try_for_each(|row| tx.put(tree, &row.to_be_bytes(), &[7; 100])))
}

fn database(rows: u32) -> Result<(Database, Tree)> {
    let db = Database::in_memory()?;
    let tree = db.create_tree("t")?;
    fill(&db, &tree, rows)?;
    Ok((db, tree))
}

/// Elapsed time, and processor time of this thread, seconds: on a busy machine only the second shows the cost
/// of the work.
fn now() -> (Instant, f64) {
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: f64 = scheduled.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(f64::NAN);
    (Instant::now(), nanos / 1e9)
}

fn say(what: &str, rows: u32, (since, busy): (Instant, f64)) {
    let (elapsed, worked) = (since.elapsed().as_secs_f64(), now().1 - busy);
    let rows = f64::from(rows);
    println!("{what:66} {:>10.0} a second, {:>10.0} a second of processor time", rows / elapsed, rows / worked);
}

/// Reads the first ten rows repeatedly, until stopped.
fn read_head(db: &Database, tree: &Tree, stop: &AtomicBool, what: &str) -> Result<()> {
    let (mut times, since) = (0, now());
    while !stop.load(Ordering::Relaxed) {
        db.begin()?.iter(tree).take(10).try_for_each(|row| row.map(drop))?;
        times += 1;
    }
    say(what, times, since);
    Ok(())
}

fn main() -> Result<()> {
    let rows: u32 = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(200_000);

    let (db, tree) = database(rows)?;
    let mut tx = db.begin()?;
    let since = now();
    let mut cursor = tx.cursor_mut(&tree, CursorOptions::default());
    let mut there = cursor.seek(Seek::First)?;
    while there {
        cursor.delete()?;
        there = cursor.next()?;
    }
    say("one transaction, a cursor that deletes what it stands on", rows, since);
    drop(cursor);
    tx.rollback()?;

    let (db, tree) = database(rows)?;
    let mut tx = db.begin()?;
    let since = now();
    let mut cursor = tx.cursor_mut(&tree, CursorOptions::default());
    while cursor.seek(Seek::First)? {
        cursor.delete()?;
    }
    say("one transaction, the first row by a cursor, again and again", rows, since);
    drop(cursor);
    tx.commit()?;

    let (db, tree) = database(rows)?;
    let mut tx = db.begin()?;
    let since = now();
    loop {
        let Some((key, _)) = tx.iter(&tree).next().transpose()? else { break };
        tx.delete(&tree, &key)?;
    }
    say("one transaction, the first row by an iterator and its key", rows, since);
    tx.commit()?;

    let queue = TxOptions {
        isolation: Isolation::ReadCommitted,
        on_conflict: OnConflict::Latest,
        durability: Some(Durability::Deferred),
        ..TxOptions::default()
    };
    let lock =
        CursorOptions { lock: Some(LockMode::Exclusive), wait: Some(LockWait::SkipLocked), ..Default::default() };
    for pinned in [false, true] {
        let (db, tree) = database(rows)?;
        let old = db.begin()?;
        if pinned {
            old.take_snapshot()?;
        }
        for part in 0..4 {
            let since = now();
            for _ in 0..rows / 4 {
                let mut tx = db.begin_with(queue)?;
                let mut cursor = tx.cursor_mut(&tree, lock);
                if cursor.seek(Seek::First)? {
                    cursor.delete()?;
                }
                drop(cursor);
                tx.commit()?;
            }
            let view = if pinned { ", beside an old snapshot" } else { "" };
            say(&format!("a transaction for each{view}: quarter {}", part + 1), rows / 4, since);
        }
    }

    for deleting in [false, true] {
        let (db, tree) = database(rows)?;
        let (stop, since) = (AtomicBool::new(false), Instant::now());
        let end = if deleting { "first" } else { "last" };
        let what = format!("scans of the first ten rows, beside a deleter of the {end} rows");
        std::thread::scope(|scope| -> Result<()> {
            let reader = scope.spawn(|| read_head(&db, &tree, &stop, &what));
            while since.elapsed().as_secs_f64() < 2.0 {
                // The same work at the front or at the back.
                let mut tx = db.begin_with(queue)?;
                let mut cursor = tx.cursor_mut(&tree, lock);
                if cursor.seek(if deleting { Seek::First } else { Seek::Last })? {
                    cursor.delete()?;
                }
                drop(cursor);
                tx.commit()?;
            }
            stop.store(true, Ordering::Relaxed);
            reader.join().expect("no reader panics")
        })?;
    }
    Ok(())
}
