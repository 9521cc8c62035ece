//! Three ways to load sorted rows into a new tree, and the cost of each.
//!
//! `cargo run --release --example load -- [rows, 1000000] [value bytes, 100] [directory, a temporary one] [pool, 1G]`
//!
//! Times include a final checkpoint, so that all pages are written back.

use seawall::{BuildOptions, Database, Options};
use std::time::Instant;

const BATCH: usize = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let value = vec![7u8; args.next().map_or(Ok(100), |bytes| bytes.parse())?];
    let temporary = tempfile::tempdir()?;
    let dir = args.next().map_or(temporary.path().to_owned(), Into::into);
    let pool = args.next().unwrap_or("1G".into());
    for way in ["insert", "put_many", "put_rows", "build_tree"] {
        let dir = dir.join(way);
        let mut options = Options::default();
        options.set("pool_size", &pool)?;
        let db = Database::open_with(&dir, options)?;
        let begun = Instant::now();
        let all = (0..rows).map(|i| (i.to_be_bytes(), &value));
        match way {
            "build_tree" => drop(db.transact(|tx| tx.build_tree("t", BuildOptions::default(), all.clone()))?),
            "put_rows" => {
                let tree = db.create_tree("t")?;
                db.transact(|tx| tx.put_rows(&tree, all.clone()))?;
            }
            "put_many" => {
                let tree = db.create_tree("t")?;
                let mut all = all;
                loop {
                    let some: Vec<_> = all.by_ref().take(BATCH).collect();
                    if some.is_empty() {
                        break;
                    }
                    db.transact(|tx| tx.put_many(&tree, &some))?;
                }
            }
            _ => {
                let tree = db.create_tree("t")?;
                let mut all = all.peekable();
                while all.peek().is_some() {
                    db.transact(|tx| {
                        all.by_ref().take(BATCH).try_for_each(|(key, value)| tx.insert(&tree, &key, value))
                    })?;
                }
            }
        }
        let loaded = begun.elapsed();
        db.checkpoint()?;
        let written = begun.elapsed();
        let tree = db.open_tree("t")?;
        let found = db.fragmentation(&tree)?;
        println!(
            "{way:>10}: {:9.0} rows/s loaded, {:9.0} rows/s with a checkpoint; {} leaves, {}% full",
            rows as f64 / loaded.as_secs_f64(),
            rows as f64 / written.as_secs_f64(),
            found.leaves,
            found.fill_percent
        );
        db.close()?;
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}
