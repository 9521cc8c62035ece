//! Rows around the sizes at which they leave their leaf, at all page sizes.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seawall::{Background, Database, Env, Options, Task, Tree};
use seawall_io::SystemClock;
use seawall_sim::{Process, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

const PAGES: [u64; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];

/// The longest key, as the manual states it.
fn key_max(page_bytes: u64) -> usize {
    match page_bytes {
        4096 => 928,
        8192 => 1952,
        _ => 4000,
    }
}

fn open(sim: &Arc<SimDisk>, page_bytes: u64) -> Database {
    let env = Env {
        disk: Arc::new(Process::new(sim)),
        clock: Arc::new(SystemClock::default()),
        seed: 5,
        background: Background::Steps,
    };
    let options = Options::default()
        .with_page_size(page_bytes)
        .with_pool_size(8 << 20)
        .with_data_initial_size(4 << 20)
        .with_data_growth_step(4 << 20)
        .with_log_segment_size(4 << 20)
        .with_log_capacity(64 << 20)
        .with_log_buffer_size(4 << 20);
    Database::open_in(env, "/db", options).unwrap()
}

fn disk() -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed: 3, trace_entries_max: 0, ..SimOptions::default() })
}

/// Background work, as its threads would do it between commits.
fn background(db: &Database) {
    while Task::ALL.iter().fold(false, |busy, &task| busy | db.step_task(task).unwrap()) {}
}

fn pages(db: &Database, tree: &Tree, page_bytes: u64) -> u64 {
    background(db);
    db.tree_bytes(tree) / page_bytes
}

#[test]
fn a_value_that_just_exceeds_its_leaf_takes_one_page() {
    for page_bytes in PAGES {
        let sim = disk();
        let db = open(&sim, page_bytes);
        let tree = db.create_tree("t").unwrap();
        let put = |key: u8, len: u64| db.transact(|tx| tx.put(&tree, &[key], &vec![key; len as usize])).unwrap();
        put(0, 10);
        assert_eq!(pages(&db, &tree, page_bytes), 1);
        // Overflow pages have 40 bytes of their own.
        let lengths = [page_bytes / 2 + 1, page_bytes * 3 / 4, page_bytes - 40, page_bytes - 39];
        let mut expected = 1;
        for (key, len) in (1..).zip(lengths) {
            put(key, len);
            // The last one has two pages and a list.
            expected += if key == 4 { 3 } else { 1 };
            assert_eq!(pages(&db, &tree, page_bytes), expected, "{len} bytes in pages of {page_bytes}");
        }
        // A rollback frees the page, and so does purge.
        let mut tx = db.begin().unwrap();
        tx.put(&tree, b"5", &vec![5; lengths[1] as usize]).unwrap();
        tx.put(&tree, &[1], &vec![6; lengths[2] as usize]).unwrap();
        tx.rollback().unwrap();
        assert_eq!(pages(&db, &tree, page_bytes), expected);
        put(1, lengths[1]);
        assert_eq!(pages(&db, &tree, page_bytes), expected, "the old value's page is purged");
        assert_eq!(db.check().unwrap(), []);
        db.close().unwrap();
        let db = open(&sim, page_bytes);
        let tree = db.open_tree("t").unwrap();
        for (key, len) in (2..).zip(&lengths[1..]) {
            assert_eq!(db.get(&tree, &[key]).unwrap(), Some(vec![key; *len as usize]));
        }
        assert_eq!(db.get(&tree, &[1]).unwrap(), Some(vec![1; lengths[1] as usize]));
        db.transact(|tx| (1..5).try_for_each(|key| tx.delete(&tree, &[key]).map(drop))).unwrap();
        assert_eq!(pages(&db, &tree, page_bytes), 1);
        assert_eq!(db.check().unwrap(), []);
        db.close().unwrap();
    }
}

/// The longest value that stays in its leaf: with its key and a header it takes half a page.
fn in_leaf_max(page_bytes: u64, key: &[u8]) -> usize {
    page_bytes as usize / 2 - 13 - key.len()
}

#[test]
fn a_row_of_up_to_half_a_page_stays_in_its_leaf() {
    for page_bytes in PAGES {
        let sim = disk();
        let db = open(&sim, page_bytes);
        let tree = db.create_tree("t").unwrap();
        let most = in_leaf_max(page_bytes, &[0]);
        let put = |key: u8, len: usize| db.transact(|tx| tx.put(&tree, &[key], &vec![key; len])).unwrap();
        put(1, most);
        assert_eq!(pages(&db, &tree, page_bytes), 1);
        put(1, most + 1);
        assert_eq!(pages(&db, &tree, page_bytes), 2);
        put(1, most);
        assert_eq!(pages(&db, &tree, page_bytes), 1, "it came back into its leaf");
        // Between two large rows: one leaf becomes three.
        put(9, most);
        assert_eq!(pages(&db, &tree, page_bytes), 3, "two leaves and a root");
        put(5, most);
        assert_eq!(pages(&db, &tree, page_bytes), 4);
        // Rows of a little less than half a page share a leaf.
        let tree = db.create_tree("pairs").unwrap();
        for key in 0..40u8 {
            db.transact(|tx| tx.put(&tree, &[key], &vec![key; most - 80])).unwrap();
        }
        let own = pages(&db, &tree, page_bytes);
        assert!(own <= 23, "{own} pages for 40 rows");
        assert_eq!(db.check().unwrap(), []);
    }
}

/// Many rows shrink, others take the space, and all of it is rolled back: the rows grow again, which splits
/// leaves.
#[test]
fn rows_that_shrank_regrow_in_a_rollback() {
    for page_bytes in PAGES {
        let sim = disk();
        let db = open(&sim, page_bytes);
        let tree = db.create_tree("t").unwrap();
        let (long, short) = (|i: u32| vec![i as u8; in_leaf_max(page_bytes, &[0; 4]) - i as usize % 3], vec![0; 40]);
        let rows: Vec<(Vec<u8>, Vec<u8>)> = (0..60u32).map(|i| ((i * 10).to_be_bytes().to_vec(), long(i))).collect();
        db.transact(|tx| tx.put_many(&tree, &rows)).unwrap();
        let mut tx = db.begin().unwrap();
        for (key, _) in &rows {
            tx.put(&tree, key, &short).unwrap();
        }
        let savepoint = tx.savepoint();
        for i in 0..600u32 {
            tx.put(&tree, &i.to_be_bytes(), &short).unwrap();
        }
        tx.rollback_to(&savepoint).unwrap();
        for (key, _) in rows.iter().step_by(2) {
            assert!(tx.delete(&tree, key).unwrap());
        }
        tx.rollback().unwrap();
        background(&db);
        let tx = db.begin().unwrap();
        assert!(tx.iter(&tree).map(Result::unwrap).eq(rows.iter().cloned()));
        assert_eq!(db.check().unwrap(), []);
    }
}

/// Transactions over keys and rows of all lengths, many of them at a limit, against a `BTreeMap`.
fn random_life(page_bytes: u64, seed: u64) {
    let sim = disk();
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for _ in 0..2 {
        let db = open(&sim, page_bytes);
        let tree = db.create_tree("t").unwrap();
        for stamp in 0..60u8 {
            let (mut tx, mut own) = (db.begin().unwrap(), model.clone());
            for _ in 0..dice.random_range(1..12) {
                let mut key = vec![dice.random_range(b'a'..b'f')];
                match dice.random_range(0..8) {
                    0 => key.resize(key_max(page_bytes), b'k'),
                    1 => key.resize(dice.random_range(1..=key_max(page_bytes)), b'k'),
                    2 => key.resize(key_max(page_bytes) - 1, 0xff),
                    _ => key.extend([dice.random_range(0..3), dice.random()]),
                }
                *key.last_mut().unwrap() = dice.random_range(0..5);
                let most = in_leaf_max(page_bytes, &key);
                let len = match dice.random_range(0..10) {
                    0 => most,
                    1 => most + 1,
                    2 => most - dice.random_range(0..20),
                    3 => dice.random_range(0..=most),
                    4 => page_bytes as usize - 40 + dice.random_range(0..2),
                    5 => page_bytes as usize / 4,
                    _ => dice.random_range(0..60),
                };
                match dice.random_range(0..6) {
                    0 | 1 => assert_eq!(tx.delete(&tree, &key).unwrap(), own.remove(&key).is_some()),
                    2 => {
                        let savepoint = tx.savepoint();
                        tx.put(&tree, &key, &vec![stamp; len]).unwrap();
                        tx.delete(&tree, &key).unwrap();
                        tx.rollback_to(&savepoint).unwrap();
                    }
                    _ => {
                        tx.put(&tree, &key, &vec![stamp; len]).unwrap();
                        own.insert(key, vec![stamp; len]);
                    }
                }
            }
            if dice.random_bool(0.3) {
                tx.rollback().unwrap();
            } else {
                tx.commit().unwrap();
                model = own;
            }
            if dice.random_bool(0.2) {
                background(&db);
            }
        }
        let tx = db.begin().unwrap();
        assert!(tx.iter(&tree).map(Result::unwrap).eq(model.clone()), "seed {seed}, pages of {page_bytes}");
        drop(tx);
        assert_eq!(db.check().unwrap(), []);
        db.close().unwrap();
    }
}

#[test]
fn rows_and_keys_around_the_limits_live_as_others_do() {
    for page_bytes in PAGES {
        (0..3).for_each(|seed| random_life(page_bytes, seed));
    }
}

#[test]
fn a_tree_that_is_built_has_one_page_for_such_a_value() {
    for page_bytes in PAGES {
        let sim = disk();
        let db = open(&sim, page_bytes);
        let rows: Vec<(Vec<u8>, Vec<u8>)> =
            (0..50u8).map(|key| (vec![key], vec![key; page_bytes as usize * 3 / 4])).collect();
        let mut tx = db.begin().unwrap();
        let tree = tx.build_tree("t", seawall::BuildOptions::default(), rows.iter().map(|(k, v)| (k, v))).unwrap();
        tx.commit().unwrap();
        assert_eq!(pages(&db, &tree, page_bytes), 51);
        assert_eq!(db.check().unwrap(), []);
        db.drop_tree("t").unwrap();
        drop(tree);
        background(&db);
        assert_eq!(db.check().unwrap(), []);
    }
}
