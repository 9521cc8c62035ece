//! A temporary tree used together with transactions: intermediate results of one connection, which no commit waits for
//! and no recovery restores.
//!
//! A report groups a million amounts by customer. The groups do not fit into the memory that they are given, so most of
//! them are in a file without a name. A failed statement's changes of the tree are undone by a savepoint of the tree.
//! Run with `cargo run --release --example temporary`.

use seawall::{Database, Result, TemporaryOptions, TemporaryTree};
use std::time::Instant;

const AMOUNTS: u64 = 1_000_000;
const CUSTOMERS: u64 = 200_000;

/// Adds an amount to what the customer has.
fn add(sums: &mut TemporaryTree, customer: u64, amount: u64) -> Result<()> {
    let key = customer.to_be_bytes();
    let before = sums.get(&key)?.map_or(0, |sum| u64::from_le_bytes(sum.try_into().expect("eight bytes")));
    sums.put(&key, &(before + amount).to_le_bytes()).map(drop)
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory for the example");
    let db = Database::open(dir.path())?;
    let reports = db.create_tree("reports")?;
    let logged = db.stats().log.head_lsn;

    let begun = Instant::now();
    let mut sums = db.temporary_tree(TemporaryOptions { memory_bytes: 2 << 20 })?;
    for i in 0..AMOUNTS {
        add(&mut sums, i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % CUSTOMERS, i % 100)?;
    }
    let (memory, file) = sums.bytes()?;
    let rate = AMOUNTS as f64 / begun.elapsed().as_secs_f64();
    println!("{} customers, {rate:.0} amounts/s, {memory} bytes in memory, {file} in the file", sums.len()?);
    println!("{} bytes of log", db.stats().log.head_lsn - logged);

    // A savepoint undoes the changes of a statement that fails; the transaction is not involved.
    let statement = sums.savepoint()?;
    sums.put(&[0; 8], b"nonsense")?;
    sums.rollback_to(&statement)?;
    sums.release(statement)?;

    // The result is a row like any other, and durable.
    let mut best = (0, 0);
    for row in sums.range(..)? {
        let (customer, sum) = row?;
        let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
        best = best.max((sum, u64::from_be_bytes(customer.try_into().expect("eight bytes"))));
    }
    let mut tx = db.begin()?;
    tx.put(&reports, "best customer", &best.1.to_be_bytes())?;
    tx.commit()?;
    println!("customer {} has {}", best.1, best.0);
    Ok(())
}
