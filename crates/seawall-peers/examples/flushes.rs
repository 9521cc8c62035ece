//! Puts rows one after the other, each in its own commit, and does nothing else in between: for counting
//! system calls from outside.
//!
//!     strace -f -c -e trace=fsync,fdatasync,sync_file_range,msync target/debug/examples/flushes lmdb flushed 200 DIR
//!
//! A line on standard error before the first put and one after the last separate opening and closing in a
//! full trace.

use seawall_bench::Settings;
use seawall_bench::store::Durability;
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [store, durability, rows, dir] = &arguments[..] else {
        let names = seawall_peers::NAMES.join("|");
        return Err(format!("usage: flushes {names} flushed|written|deferred ROWS DIR").into());
    };
    let durability = match durability.as_str() {
        "flushed" => Durability::Flushed,
        "written" => Durability::Written,
        "deferred" => Durability::Deferred,
        other => return Err(format!("{other:?} is no durability: flushed, written or deferred").into()),
    };
    let settings = Settings {
        dir: dir.into(),
        pool_bytes: 64 << 20,
        durability,
        tables: vec!["rows".into()],
        threads: 1,
        options: Vec::new(),
        flush_delay: Duration::ZERO,
        data_bytes: 16 << 20,
    };
    let opened = seawall_peers::open(store, &settings).ok_or_else(|| format!("there is no store {store:?}"))?;
    let store = opened?;
    for (name, value) in store.about().settings {
        println!("{name} = {value}");
    }
    println!("version {}", store.about().version);
    let mut session = store.session()?;
    eprintln!("the first put follows");
    for row in 0..rows.parse::<u64>()? {
        session.put(&row.to_be_bytes(), &[b'v'; 100])?;
    }
    eprintln!("that was the last put");
    drop(session);
    store.close()?;
    Ok(())
}
