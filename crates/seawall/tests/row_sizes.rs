//! Rows around the sizes at which they leave their leaf, at all page sizes.

use seawall::{Background, Database, Env, Options, Task, Tree};
use seawall_io::SystemClock;
use seawall_sim::{Process, SimDisk, SimOptions};
use std::sync::Arc;

const PAGES: [u64; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];

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

/// Work of the background, as its threads would do it between commits.
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
        // A rollback gives the page back, and so does purge.
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
