//! Transfers between accounts by many threads at once: no money is created or lost, in any order of
//! transfers.
//!
//! `Database::transact` runs a closure in a transaction and commits it. After a deadlock or a conflict it
//! runs the closure again, so the closure must only work on the database. Run with `cargo run --release
//! --example bank`.

use seawall::{Database, Result, Tree};

const ACCOUNTS: u64 = 100;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 250;

fn balance(bytes: Option<Vec<u8>>) -> u64 {
    u64::from_le_bytes(bytes.expect("every account has a balance").try_into().expect("a balance has eight bytes"))
}

/// Moves up to `amount`; returns the moved amount.
fn transfer(db: &Database, accounts: &Tree, from: u64, to: u64, amount: u64) -> Result<u64> {
    db.transact(|tx| {
        // Locked, so that no other transaction changes them between the read and the write.
        let source = balance(tx.get_for_update(accounts, &from.to_be_bytes())?);
        let target = balance(tx.get_for_update(accounts, &to.to_be_bytes())?);
        let amount = amount.min(source);
        tx.put(accounts, &from.to_be_bytes(), &(source - amount).to_le_bytes())?;
        tx.put(accounts, &to.to_be_bytes(), &(target + amount).to_le_bytes())?;
        Ok(amount)
    })
}

fn total(db: &Database, accounts: &Tree) -> Result<u64> {
    // One snapshot: concurrent transfers are seen whole or not at all.
    db.begin()?.iter(accounts).map(|entry| Ok(balance(Some(entry?.1)))).sum()
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(dir.path())?;
    let accounts = db.create_tree("accounts")?;
    db.transact(|tx| (0..ACCOUNTS).try_for_each(|a| tx.put(&accounts, &a.to_be_bytes(), &1000u64.to_le_bytes())))?;

    let moved: Result<u64> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (db, accounts) = (&db, &accounts);
            move || -> Result<u64> {
                let mut x = thread + 1;
                let mut next = || {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    x >> 33
                };
                let mut moved = 0;
                for _ in 0..TRANSFERS {
                    let (from, to) = (next() % ACCOUNTS, next() % ACCOUNTS);
                    if from != to {
                        moved += transfer(db, accounts, from, to, next() % 300)?;
                    }
                    assert_eq!(total(db, accounts)?, ACCOUNTS * 1000, "every snapshot has all the money");
                }
                Ok(moved)
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });

    assert_eq!(total(&db, &accounts)?, ACCOUNTS * 1000);
    let stats = db.stats();
    println!(
        "{} moved by {} commits in {} log writes; {} conflicts and {} deadlocks were run again; the total is as before",
        moved?, stats.log.commits, stats.log.groups, stats.txn.conflicts, stats.locks.deadlocks
    );
    Ok(())
}
