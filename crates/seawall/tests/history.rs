//! Random histories of concurrent transactions on real threads, at every isolation level; the checker decides
//! whether the level kept its promise.
//!
//! `HISTORIES=n` runs more of them.

mod support {
    pub(crate) mod checker;
    pub(crate) mod dice;
    pub(crate) mod histories;
}
mod api {
    pub(crate) use seawall::{
        Background, Database, Durability, Env, Error, Isolation, OnConflict, Options, Transaction, Tree, TxOptions,
    };
    use seawall::{InterruptHandle, LockOrCommitted};

    /// A semi-consistent read that does not need the row: if it locked the row, it releases the lock. Returns
    /// the value, and whether the row is unlocked again.
    pub(crate) fn look(tx: &Transaction, tree: &Tree, key: &[u8]) -> Result<(Option<Vec<u8>>, bool), Error> {
        match tx.lock_or_committed(tree, key)? {
            LockOrCommitted::Committed(value) => Ok((value, true)),
            LockOrCommitted::Locked(row) => {
                let gone = tx.unlock_row(tree, key)?;
                assert!(!gone || row.newly_locked, "it was locked before");
                Ok((row.value, gone))
            }
        }
    }

    /// How other threads interrupt a transaction.
    pub(crate) struct Interrupt(InterruptHandle);

    impl Interrupt {
        pub(crate) fn of(tx: &Transaction) -> Self {
            Self(tx.interrupt_handle())
        }

        pub(crate) fn raise(&self) {
            self.0.interrupt();
        }

        pub(crate) fn clear(&self) {
            self.0.clear();
        }
    }
}

use api::{Background, Database, Env, Options};
use seawall_io::SystemClock;
use seawall_sim::{SimDisk, SimOptions};
use std::sync::Arc;
use support::checker::{Level, check};
use support::histories::{Load, record};

/// Every other database is so small that it evicts, checkpoints and purges all the time.
fn database(seed: u64) -> Database {
    let mut options = Options::default();
    if seed % 2 == 1 {
        for (name, value) in [
            ("page_size", "4K"),
            ("pool_size", "256K"),
            ("data_initial_size", "1M"),
            ("log_segment_size", "64K"),
            ("log_capacity", "2M"),
            ("log_buffer_size", "1M"),
        ] {
            options.set(name, value).unwrap();
        }
    }
    let disk = SimDisk::new(SimOptions { seed, trace_entries_max: 0, ..SimOptions::default() });
    let env = Env { disk, clock: Arc::new(SystemClock::default()), seed, background: Background::Threads };
    Database::open_in(env, "/db", options).unwrap()
}

fn histories(level: Level) {
    let count = std::env::var("HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    for seed in 0..count {
        let load =
            Load { threads: 4, txns: 150, keys: [3, 6, 10][seed as usize % 3], padding: [0, 400][seed as usize % 2] };
        let db = database(seed);
        let history = record(&db, level, load, seed);
        let committed = history.txns.iter().filter(|txn| txn.committed.is_some()).count();
        println!("{level:?} {seed}: {committed} of {} transactions are committed", history.txns.len());
        assert!(committed > history.txns.len() / 20, "only {committed} are committed");
        let wrong = check(&history);
        if let Some((anomaly, why)) = wrong.first() {
            for (index, txn) in history.txns.iter().enumerate() {
                eprintln!("T{index} {txn:?}");
            }
            panic!("{level:?}, seed {seed}: {anomaly:?}: {why} (and {} more)", wrong.len() - 1);
        }
    }
}

#[test]
fn read_committed_reads_only_what_is_committed() {
    histories(Level::ReadCommitted);
}

#[test]
fn repeatable_reads_come_from_one_snapshot() {
    histories(Level::RepeatableLatest);
}

#[test]
fn failing_on_conflicts_is_snapshot_isolation() {
    histories(Level::RepeatableFail);
}

#[test]
fn serializable_is_as_if_one_after_the_other() {
    histories(Level::Serializable);
}
