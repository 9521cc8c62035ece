//! What it costs to take rows from the front of a tree: in one transaction, by a cursor, by many transactions, and beside those who read there.
//!
//! Run with `cargo run --release --example drain [ROWS]`. In memory: what is measured is the work, not a disk.

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
    db.set("pool_size", "512M")?;
    let tree = db.create_tree("t")?;
    fill(&db, &tree, rows)?;
    Ok((db, tree))
}

fn say(what: &str, rows: u32, since: Instant) {
    println!("{what:64} {:>12.0} a second", f64::from(rows) / since.elapsed().as_secs_f64());
}

/// Reads the first ten rows, again and again, until told to stop; how often that was.
fn read_head(db: &Database, tree: &Tree, stop: &AtomicBool) -> Result<u32> {
    let mut times = 0;
    while !stop.load(Ordering::Relaxed) {
        db.begin()?.iter(tree).take(10).try_for_each(|row| row.map(drop))?;
        times += 1;
    }
    Ok(times)
}

fn main() -> Result<()> {
    let rows: u32 = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(200_000);

    let (db, tree) = database(rows)?;
    let mut tx = db.begin()?;
    let since = Instant::now();
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
    let since = Instant::now();
    let mut cursor = tx.cursor_mut(&tree, CursorOptions::default());
    while cursor.seek(Seek::First)? {
        cursor.delete()?;
    }
    say("one transaction, the first row by a cursor, again and again", rows, since);
    drop(cursor);
    tx.commit()?;

    let (db, tree) = database(rows)?;
    let mut tx = db.begin()?;
    let since = Instant::now();
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
            let since = Instant::now();
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
        let stop = AtomicBool::new(false);
        let since = Instant::now();
        std::thread::scope(|scope| -> Result<()> {
            let reader = scope.spawn(|| read_head(&db, &tree, &stop));
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
            let times = reader.join().expect("no reader panics")?;
            let what = if deleting { "of the first rows" } else { "of the last rows" };
            say(&format!("scans of the first ten rows, beside a deleter {what}"), times, since);
            Ok(())
        })?;
    }
    Ok(())
}
