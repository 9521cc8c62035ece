//! Insertions of one transaction into one range, which share an undo record, are undone one by one where that is asked
//! for: by savepoints, after crashes, beside others that insert into the same range.

use seawall::{
    Background, Database, Env, Error, LockWait, OnConflict, Options, Task, Transaction, Tree, TxOptions, Xid,
};
use seawall_sim::{SimDisk, SimOptions};
use std::collections::BTreeMap;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dice;
    pub(crate) mod dying_process;
}
use support::dice::Dice;
use support::dying_process::{DyingProcess, End};

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn rows(tx: &Transaction, tree: &Tree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    tx.iter(tree).collect::<seawall::Result<_>>().unwrap()
}

fn contents(db: &Database, tree: &Tree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    rows(&db.begin().unwrap(), tree)
}

fn small() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(128 << 10)
        .with_log_capacity(2 << 20)
}

/// Each undo record takes 20 bytes and more.
#[test]
fn a_load_in_key_order_writes_hardly_any_undo() {
    let undo_of = |put: &dyn Fn(&mut Transaction, &Tree, u64)| {
        let db = Database::in_memory().unwrap();
        let tree = db.create_tree("t").unwrap();
        let mut tx = db.begin().unwrap();
        (0..20_000).for_each(|number| put(&mut tx, &tree, number));
        let undo = db.stats().purge.undo_bytes;
        tx.rollback().unwrap();
        assert_eq!(contents(&db, &tree), BTreeMap::new());
        assert_eq!(db.check().unwrap(), []);
        undo
    };
    let mixed = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let scattered = undo_of(&|tx, tree, number| tx.insert(tree, &key(mixed(number)), b"v").unwrap());
    let ascending = undo_of(&|tx, tree, number| tx.insert(tree, &key(number), b"v").unwrap());
    let many = undo_of(&|tx, tree, number| {
        let rows: Vec<_> = (number * 10..number * 10 + 10).map(|number| (key(number), b"v")).collect();
        if number < 2000 {
            tx.put_many(tree, &rows).unwrap();
        }
    });
    assert!(scattered > 400_000, "{scattered}");
    assert!(ascending <= 65_536 && many <= 65_536, "{ascending}, {many}");
}

/// Changes of two transactions in one range, with savepoints: after each step the rows are those of the model.
#[test]
fn savepoints_and_others_rows_in_the_range() {
    for seed in 0..25 {
        let mut dice = Dice::new(seed);
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = Database::open_with(dir.path(), small()).unwrap();
        let tree = db.create_tree("t").unwrap();
        let options = TxOptions { on_conflict: OnConflict::Latest, wait: LockWait::NoWait, ..TxOptions::default() };
        let mut committed: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut next = 0;
        for _ in 0..4 {
            let older = db.begin().unwrap();
            older.take_snapshot().unwrap();
            let mut tx = db.begin_with(options).unwrap();
            let mut mine = committed.clone();
            let mut savepoints = Vec::new();
            for _ in 0..12 {
                match dice.below(8) {
                    0..=2 => {
                        for _ in 0..dice.below(200) {
                            next += 1 + dice.below(3);
                            let value = vec![dice.below(256) as u8; dice.below(90) as usize];
                            if mine.contains_key(&key(next)) {
                                continue;
                            }
                            tx.insert(&tree, &key(next), &value).unwrap();
                            mine.insert(key(next), value);
                        }
                    }
                    3 => {
                        // Another transaction's rows, between its own.
                        let mut other = db.begin_with(options).unwrap();
                        for _ in 0..dice.below(60) {
                            let at = key(dice.below(next + 50));
                            if !mine.contains_key(&at) && matches!(other.insert(&tree, &at, b"other"), Ok(())) {
                                committed.insert(at.clone(), b"other".to_vec());
                                mine.insert(at.clone(), b"other".to_vec());
                                savepoints.iter_mut().for_each(|(_, was): &mut (_, BTreeMap<_, _>)| {
                                    was.insert(at.clone(), b"other".to_vec());
                                });
                            }
                        }
                        other.commit().unwrap();
                    }
                    4 => {
                        let of_its_own: Vec<_> =
                            mine.keys().filter(|key| !committed.contains_key(*key)).cloned().collect();
                        for at in &of_its_own {
                            let what = dice.below(10);
                            if what > 1 {
                                continue;
                            }
                            if what == 0 {
                                tx.delete(&tree, at).unwrap();
                                mine.remove(at);
                            } else {
                                tx.put(&tree, at, b"again").unwrap();
                                mine.insert(at.clone(), b"again".to_vec());
                            }
                        }
                    }
                    5 | 6 => savepoints.push((tx.savepoint(), mine.clone())),
                    _ => {
                        if let Some((savepoint, was)) = savepoints.pop() {
                            tx.rollback_to(&savepoint).unwrap();
                            let gone: Vec<_> = mine.keys().filter(|key| !was.contains_key(*key)).cloned().collect();
                            mine = was;
                            // Its row was there: it stays locked.
                            if let Some(at) = gone.first() {
                                let mut other = db.begin_with(options).unwrap();
                                assert!(matches!(other.insert(&tree, at, b"x"), Err(Error::LockTimeout { .. })));
                            }
                        }
                    }
                }
                assert_eq!(rows(&db.begin().unwrap(), &tree), committed, "seed {seed}: others see no row of it");
            }
            let mut all = Vec::new();
            let mut own = tx.cursor(&tree, seawall::CursorOptions::default());
            let mut more = own.seek(seawall::Seek::First).unwrap();
            while more {
                all.push((own.key().to_vec(), own.value().unwrap().to_vec()));
                more = own.next().unwrap();
            }
            drop(own);
            assert!(all.iter().map(|(k, v)| (k, v)).eq(mine.iter()), "seed {seed}: it sees its own rows");
            if dice.percent(50) {
                tx.commit().unwrap();
                committed = mine;
            } else {
                tx.rollback().unwrap();
            }
            drop(older);
            assert_eq!(contents(&db, &tree), committed, "seed {seed}");
        }
        assert_eq!(db.check().unwrap(), [], "seed {seed}");
    }
}

/// A large load is rolled back by steps; the power is cut before each of many operations, and the next opening ends
/// the rollback.
#[test]
fn a_power_cut_during_the_rollback_of_a_range() {
    const ROWS: u64 = 9000;
    let mut unfinished = 0;
    for cut in 0..30 {
        let sim = SimDisk::new(SimOptions { seed: cut, ..SimOptions::default() });
        let open = |disk, clock| {
            let env = Env { disk, clock, seed: cut, background: Background::Steps };
            Database::open_in(env, "/db", small())
        };
        let disk = DyingProcess::new(&sim, End::PowerCut, None);
        let db = open(disk.clone(), sim.clone()).unwrap();
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| (0..200).try_for_each(|number| tx.insert(&tree, &key(number * 20), b"before"))).unwrap();
        let before = contents(&db, &tree);
        let mut tx = db.begin().unwrap();
        for number in 0..ROWS {
            tx.insert(&tree, &key(10_000 + number), &[7; 60]).unwrap();
        }
        let prepared = cut % 3 == 0;
        if prepared {
            tx.prepare(&Xid(b"x".to_vec())).map(drop).unwrap();
        } else {
            std::mem::forget(tx);
        }
        // Its changes are in the log, and some pages are on disk.
        db.transact(|tx| tx.put(&tree, &key(1_000_000), b"other")).unwrap();
        if cut % 2 == 0 {
            db.checkpoint().unwrap();
        }
        disk.dies_now();
        drop((tree, db));
        let mut after = before.clone();
        after.insert(key(1_000_000), b"other".to_vec());
        // The next one begins to roll back, commits a row in the range, and dies.
        let disk = DyingProcess::new(&sim, End::PowerCut, None);
        let db = open(disk.clone(), sim.clone()).unwrap();
        let tree = db.open_tree("t").unwrap();
        if prepared && cut % 2 == 0 {
            db.commit_prepared(&Xid(b"x".to_vec())).unwrap();
            (0..ROWS).for_each(|number| drop(after.insert(key(10_000 + number), vec![7; 60])));
        } else if prepared {
            db.rollback_prepared(&Xid(b"x".to_vec())).unwrap();
        }
        for step in 0..cut % 5 {
            let more = db.step_task(Task::Rollback).unwrap();
            unfinished += u32::from(more && step + 1 == cut % 5);
            if step == 1 {
                db.transact(|tx| tx.put(&tree, &key(500_000), b"later")).unwrap();
                after.insert(key(500_000), b"later".to_vec());
            }
        }
        disk.dies_after(1 + cut % 5);
        drop(db.transact(|tx| tx.put(&tree, &key(5), b"maybe")));
        disk.dies_now();
        drop((tree, db));
        let db = open(DyingProcess::new(&sim, End::PowerCut, None), sim.clone()).unwrap();
        while db.step_task(Task::Rollback).unwrap() {}
        let tree = db.open_tree("t").unwrap();
        let mut found = contents(&db, &tree);
        if found.remove(&key(5)[..]).is_some() {
            assert!(!after.contains_key(&key(5)[..]));
        }
        assert!(found == after, "cut {cut}: {} rows, not {}", found.len(), after.len());
        assert_eq!(db.check().unwrap(), [], "cut {cut}");
    }
    assert!(unfinished > 5, "no power cut fell into a rollback");
}
