//! Many threads on one database: nothing is lost, no thread waits forever.

use seawall::{Database, Options, TxOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn small() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn number(bytes: Option<Vec<u8>>) -> u64 {
    u64::from_le_bytes(bytes.expect("the account is there").try_into().expect("eight bytes"))
}

#[test]
fn money_moves_and_none_is_made() {
    const ACCOUNTS: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path(), small()).unwrap();
    let accounts = db.create_tree("accounts").unwrap();
    let journal = db.create_tree("journal").unwrap();
    db.transact(|tx| (0..ACCOUNTS).try_for_each(|a| tx.put(&accounts, &a.to_be_bytes(), &1000u64.to_le_bytes())))
        .unwrap();
    let moved = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (db, accounts, journal, moved) = (&db, &accounts, &journal, moved.clone());
            scope.spawn(move || {
                let mut x = thread * 7919 + 1;
                for i in 0..400u64 {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (from, to) = ((x >> 33) % ACCOUNTS, (x >> 13) % ACCOUNTS);
                    if from == to {
                        continue;
                    }
                    db.transact(|tx| {
                        let a = number(tx.get_for_update(accounts, &from.to_be_bytes())?);
                        let b = number(tx.get_for_update(accounts, &to.to_be_bytes())?);
                        let amount = a.min(x % 50);
                        tx.put(accounts, &from.to_be_bytes(), &(a - amount).to_le_bytes())?;
                        tx.put(accounts, &to.to_be_bytes(), &(b + amount).to_le_bytes())?;
                        let len = if i % 40 == 0 { 9000 } else { 60 };
                        tx.put(journal, &[thread.to_be_bytes(), i.to_be_bytes()].concat(), &vec![1; len])
                    })
                    .unwrap();
                    moved.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (db, accounts) = (&db, &accounts);
        scope.spawn(move || {
            for _ in 0..60 {
                let tx = db.begin_with(TxOptions::default()).unwrap();
                let sum: u64 = tx.iter(accounts).map(|e| number(Some(e.unwrap().1))).sum();
                assert_eq!(sum, ACCOUNTS * 1000, "a snapshot sees whole transfers");
            }
        });
    });
    let sum = |db: &Database| {
        let accounts = db.open_tree("accounts").unwrap();
        let tx = db.begin().unwrap();
        tx.iter(&accounts).map(|e| number(Some(e.unwrap().1))).sum::<u64>()
    };
    assert_eq!(sum(&db), ACCOUNTS * 1000);
    db.close().unwrap();
    let db = Database::open_with(dir.path(), small()).unwrap();
    assert_eq!(sum(&db), ACCOUNTS * 1000);
    let journal = db.open_tree("journal").unwrap();
    assert_eq!(db.begin().unwrap().iter(&journal).count() as u64, moved.load(Ordering::Relaxed));
}
