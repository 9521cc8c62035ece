//! A backup during writes, an increment on it, and a database restored from both.
//!
//! ```text
//! cargo run -p seawall --example backup
//! ```

use seawall::{BackupOptions, Database};
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let at = |name: &str| scratch.path().join(name);
    let db = Database::open(at("accounts.db"))?;
    let accounts = db.create_tree("accounts")?;
    db.transact(|tx| (0..50_000u32).try_for_each(|n| tx.put(&accounts, &n.to_be_bytes(), &[1; 200])))?;

    // In one call, while another thread writes.
    let stop = AtomicBool::new(false);
    let full = std::thread::scope(|scope| {
        scope.spawn(|| -> seawall::Result<()> {
            for n in (0..50_000u32).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                db.transact(|tx| tx.put(&accounts, &n.to_be_bytes(), &[2; 200]))?;
            }
            Ok(())
        });
        let full = db.backup_to(at("monday"), &BackupOptions::default());
        stop.store(true, Ordering::Relaxed);
        full
    })?;
    println!("full: {} pages and {} bytes of log, at position {}", full.pages, full.log_bytes, full.end);

    // In steps, as a server's backup hooks call them: only the changes since the full backup.
    db.transact(|tx| tx.put(&accounts, b"tuesday", b"changed"))?;
    let since = BackupOptions { incremental_from: Some(at("monday")), ..BackupOptions::default() };
    let mut backup = db.backup_begin(at("tuesday"), &since)?;
    for file in backup.files() {
        println!("copies from {} ({} bytes)", file.path.display(), file.len_bytes);
    }
    while !backup.step(4 << 20)?.done {}
    db.transact(|tx| tx.put(&accounts, b"before the end", b"is in it"))?;
    let increment = backup.end()?;
    db.transact(|tx| tx.put(&accounts, b"after the end", b"is not"))?;
    println!("increment: {} pages, at position {}", increment.pages, increment.end);

    Database::restore(&[at("monday"), at("tuesday")], at("restored.db"))?;
    let restored = Database::open(at("restored.db"))?;
    let accounts = restored.open_tree("accounts")?;
    assert_eq!(restored.get(&accounts, b"tuesday")?.as_deref(), Some(&b"changed"[..]));
    assert!(restored.get(&accounts, b"before the end")?.is_some());
    assert!(restored.get(&accounts, b"after the end")?.is_none());
    println!("restored to position {}", increment.end);
    Ok(())
}
