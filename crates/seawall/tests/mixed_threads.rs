//! Threads that do everything at once, on a pool too small for it: changes, long values, savepoints,
//! rollbacks, two-phase commits, trees that other threads create, drop and rename meanwhile, at all levels.
//! Every value read was written by some thread; in the end nothing is left over.

use seawall::{
    CursorOptions, Database, Durability, Error, Isolation, LockMode, LockWait, OnConflict, Options, Seek, Transaction,
    Tree, TxOptions, Xid,
};
use std::time::{Duration, Instant};

const THREADS: u64 = 6;
const KEYS: u64 = 300;

struct Dice(u64);

impl Dice {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn value(key: &[u8], dice: &mut Dice) -> Vec<u8> {
    let fill = dice.next(256) as u8;
    let len = if dice.next(12) == 0 { 1500 + dice.next(40_000) } else { dice.next(300) };
    let mut value = key.to_vec();
    value.resize(key.len() + 1 + len as usize, fill);
    value
}

fn check(key: &[u8], value: &[u8]) {
    assert!(value.starts_with(key), "another key's value: {key:?} {:?}", &value[..value.len().min(16)]);
    let fill = &value[key.len()..];
    assert!(fill.iter().all(|byte| *byte == fill[0]), "a value of two changes at {key:?}");
}

/// Errors that other threads can cause.
fn expected(error: &Error) -> bool {
    matches!(
        error,
        Error::LockTimeout { .. }
            | Error::Deadlock { .. }
            | Error::WriteConflict { .. }
            | Error::KeyExists { .. }
            | Error::TreeDropped { .. }
            | Error::NoSuchTree { .. }
            | Error::TreeExists { .. }
    )
}

fn options(dice: &mut Dice) -> TxOptions {
    let levels =
        [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::RepeatableRead, Isolation::Serializable];
    let durability = [None, Some(Durability::Written), Some(Durability::Deferred)];
    TxOptions {
        isolation: levels[dice.next(4) as usize],
        durability: durability[dice.next(3) as usize],
        on_conflict: if dice.next(2) == 0 { OnConflict::Fail } else { OnConflict::Latest },
        wait: if dice.next(4) == 0 { LockWait::NoWait } else { LockWait::Wait },
        ..TxOptions::default()
    }
}

fn read(tx: &Transaction, tree: &Tree, stable: bool, dice: &mut Dice) -> Result<(), Error> {
    let key = dice.next(KEYS).to_be_bytes();
    match dice.next(5) {
        0 => {
            if let Some(value) = tx.get(tree, &key)? {
                check(&key, &value);
            }
        }
        1 => drop(tx.get_with(tree, &key, |value| check(&key, value))?),
        2 => {
            let lock = [None, Some(LockMode::Shared), Some(LockMode::Exclusive)][dice.next(3) as usize];
            let wait = if dice.next(2) == 0 { Some(LockWait::SkipLocked) } else { None };
            let mut cursor = tx.cursor(tree, CursorOptions { lock, wait, ..CursorOptions::default() });
            let mut there = cursor.seek(Seek::AtLeast(&key))?;
            let forward = dice.next(2) == 0;
            for _ in 0..dice.next(20) {
                if !there {
                    break;
                }
                let key = cursor.key().to_vec();
                check(&key, cursor.value()?);
                there = if forward { cursor.next()? } else { cursor.prev()? };
            }
        }
        _ => {
            let to = (dice.next(KEYS)).to_be_bytes();
            let all = tx.range(tree, key..to).collect::<Result<Vec<_>, _>>()?;
            all.iter().for_each(|(key, value)| check(key, value));
            if stable {
                let again = tx.range(tree, key..to).rev().collect::<Result<Vec<_>, _>>()?;
                assert!(all.iter().eq(again.iter().rev()), "a snapshot, or what is locked, changes");
            }
        }
    }
    Ok(())
}

fn change(tx: &mut Transaction, tree: &Tree, dice: &mut Dice) -> Result<(), Error> {
    let key = dice.next(KEYS).to_be_bytes();
    match dice.next(8) {
        0..=2 => tx.put(tree, &key, &value(&key, dice)),
        3 => tx.insert(tree, &key, &value(&key, dice)),
        4 => tx.update(tree, &key, &value(&key, dice)).map(drop),
        5 => tx.delete(tree, &key).map(drop),
        6 => tx.insert_unique_prefix(tree, 7, &key, &value(&key, dice)),
        _ => tx.delete_range(tree, key..(dice.next(KEYS)).to_be_bytes()).map(drop),
    }
}

fn name(dice: &mut Dice) -> String {
    format!("tree {}", dice.next(4))
}

fn one(db: &Database, held: &mut Vec<Tree>, dice: &mut Dice, number: u64) -> Result<(), Error> {
    let options = options(dice);
    let stable = options.isolation != Isolation::ReadCommitted;
    let mut tx = db.begin_with(options)?;
    if dice.next(10) == 0 {
        match dice.next(4) {
            0 | 1 => held.push(tx.create_tree(&name(dice))?),
            2 => tx.drop_tree(&name(dice))?,
            _ => tx.rename_tree(&name(dice), &name(dice))?,
        }
    }
    if dice.next(3) == 0 || held.is_empty() {
        held.push(tx.open_tree(&name(dice))?);
    }
    if held.len() > 4 {
        held.remove(0);
    }
    for _ in 0..dice.next(12) {
        // Possibly a stale one.
        let tree = held[dice.next(held.len() as u64) as usize].clone();
        let done = match dice.next(6) {
            0 => {
                let savepoint = tx.savepoint();
                let done = change(&mut tx, &tree, dice).and_then(|()| change(&mut tx, &tree, dice));
                tx.rollback_to(&savepoint)?;
                done
            }
            1 | 2 => read(&tx, &tree, stable, dice),
            _ => change(&mut tx, &tree, dice),
        };
        match done {
            // As after an error of a statement in SQL.
            Err(Error::LockTimeout { .. } | Error::KeyExists { .. } | Error::TreeDropped { .. }) => {}
            done => done?,
        }
    }
    match dice.next(10) {
        0 | 1 => tx.rollback(),
        2 => {
            drop(tx);
            Ok(())
        }
        3 => {
            let xid = Xid(number.to_be_bytes().to_vec());
            tx.prepare(&xid)?;
            if dice.next(2) == 0 { db.commit_prepared(&xid) } else { db.rollback_prepared(&xid) }
        }
        4 => {
            drop(tx.commit_start()?);
            Ok(())
        }
        _ => tx.commit(),
    }
}

#[test]
fn everything_at_once_leaves_nothing_behind() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let seconds = std::env::var("SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.8);
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
        .with_lock_wait_timeout(Duration::from_millis(300));
    let db = Database::open_with(dir.path(), options.clone()).unwrap();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let done: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let db = &db;
                scope.spawn(move || {
                    let mut dice = Dice(seed * 1000 + thread);
                    let (mut held, mut number) = (Vec::new(), 0);
                    while Instant::now() < until {
                        number += 1;
                        if let Err(error) = one(db, &mut held, &mut dice, number * THREADS + thread) {
                            assert!(expected(&error), "{error:?}");
                        }
                    }
                    number
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{done} transactions");
    assert_eq!(db.prepared(), []);
    let waited = Instant::now();
    while db.stats().purge.history > 0 {
        assert!(waited.elapsed() < Duration::from_secs(60), "purge stands still: {:?}", db.stats().purge);
        std::thread::sleep(Duration::from_millis(20));
    }
    let stats = db.stats();
    assert_eq!(stats.txn.active, 0, "{:?}", stats.txn);
    assert_eq!(stats.locks.held, 0, "{:?}", stats.locks);
    assert_eq!(db.check().unwrap(), []);
    for name in db.trees().unwrap() {
        let tree = db.open_tree(&name).unwrap();
        db.begin().unwrap().iter(&tree).for_each(|entry| {
            let (key, value) = entry.unwrap();
            check(&key, &value);
        });
        db.drop_tree(&name).unwrap();
    }
    db.close().unwrap();
    let db = Database::open_with(dir.path(), options).unwrap();
    assert_eq!(db.check().unwrap(), []);
    assert_eq!(db.trees().unwrap(), [""; 0]);
}
