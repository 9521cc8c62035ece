//! The share of their rate that writers keep while an index is built.
//!
//! `cargo run --release --example index_online -- [rows, 1000000] [writers, 16] [directory, a temporary one]`

use seawall::{Database, Durability, IndexOptions, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let rows: u64 = args.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let writers: u64 = args.next().map_or(Ok(16), |writers| writers.parse())?;
    let temporary = tempfile::tempdir()?;
    let dir = args.next().map_or(temporary.path().to_owned(), Into::into);
    let options = Options::default().with_pool_size(512 << 20).with_durability(Durability::Flushed);
    let db = Database::open_with(dir.join("db"), options)?;
    let base = db.create_tree("base")?;
    let value = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    db.transact(|tx| tx.put_rows(&base, (0..rows).map(|i| (i.to_be_bytes(), value(i)))))?;
    db.checkpoint()?;
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (db, base, stop, done) = (&db, &base, &stop, &done);
            scope.spawn(move || {
                let mut at = writer;
                while !stop.load(Ordering::Relaxed) {
                    at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let key = ((at >> 20) % rows).to_be_bytes();
                    db.transact(|tx| tx.put(base, &key, &value(at))).expect("a writer");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let rate = |work: &mut dyn FnMut()| {
            let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
            work();
            ((done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64(), begun.elapsed())
        };
        for round in 0..3 {
            let (alone, _) = rate(&mut || std::thread::sleep(Duration::from_secs(3)));
            let (beside, took) = rate(&mut || {
                let name = format!("index {round}");
                let by_value = |key: &[u8], value: &[u8], index: &mut seawall::IndexEntries| {
                    index.push([value, key].concat(), []);
                };
                db.build_index(&base, &name, IndexOptions::default(), by_value, |_| Ok(())).expect("the index");
            });
            println!(
                "{writers} writers: {alone:.0} commits/s, {beside:.0} while an index of {rows} rows is built in \
                 {took:.1?}: {:.2}",
                beside / alone
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    Ok(())
}
