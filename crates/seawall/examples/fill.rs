//! The size of a data file after rows were loaded in key order, at each page size.
//!
//! ```text
//! cargo run --release -p seawall --example fill -- /srv/scratch
//! ```
//! Also: `MIB` of rows (256), `VALUE` bytes of a value (200; a key has 8), `ROWS` of a transaction (1000).

use seawall::{Database, Options};
use std::path::PathBuf;

mod machine;
use machine::number;

fn main() -> seawall::Result<()> {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/fill"), PathBuf::from);
    let (mib, value, rows) = (number("MIB", 256), number("VALUE", 200), number("ROWS", 1000));
    let count = (mib << 20) / (8 + value);
    machine::describe(&Options::default().with_pool_size(64 << 20));
    println!("{count} rows of {} bytes, {mib} MiB, {rows} rows a transaction", 8 + value);
    println!("| page | file MiB | of it the tree MiB | free MiB | file / rows | file / tree |");
    println!("|---|---|---|---|---|---|");
    for page_kib in [4, 8, 16, 32] {
        let options = Options::default().with_page_size(page_kib << 10).with_pool_size(64 << 20);
        let (_scratch, db): (_, Database) = machine::scratch(&dir, options)?;
        let tree = db.create_tree("t")?;
        let bytes = vec![7; value as usize];
        let mut next = 0u64;
        while next < count {
            let end = count.min(next + rows);
            db.transact(|tx| (next..end).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &bytes)))?;
            next = end;
        }
        let stats = db.stats();
        let (file, free, own) = (stats.space.data_bytes, stats.space.free_bytes, db.tree_bytes(&tree));
        let mib_of = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "| {page_kib}K | {:.0} | {:.0} | {:.0} | {:.3} | {:.3} |",
            mib_of(file),
            mib_of(own),
            mib_of(free),
            mib_of(file) / mib as f64,
            file as f64 / own as f64
        );
        db.close()?;
    }
    Ok(())
}
