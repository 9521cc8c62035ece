//! The data file is not much larger than what lies in it, and gives back what it does not need.

use seawall::{Background, Database, Env, Options, Task};
use seawall_io::SystemClock;
use seawall_sim::{Process, SimDisk, SimOptions};
use std::sync::Arc;

fn options(page_kib: u64) -> Options {
    Options::default()
        .with_page_size(page_kib << 10)
        .with_pool_size(4 << 20)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(1 << 20)
        .with_log_capacity(16 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(sim: &Arc<SimDisk>, options: Options) -> Database {
    let env = Env {
        disk: Arc::new(Process::new(sim)),
        clock: Arc::new(SystemClock::default()),
        seed: 5,
        background: Background::Steps,
    };
    Database::open_in(env, "/db", options).unwrap()
}

/// Work of the background, as its threads would do it between commits.
fn background(db: &Database) {
    for _ in 0..20 {
        let mut busy = false;
        for &task in Task::ALL {
            busy |= db.step_task(task).unwrap();
        }
        if !busy {
            return;
        }
    }
}

#[test]
fn after_a_load_in_order_the_file_is_hardly_larger_than_the_tree() {
    for page_kib in [4, 8, 16, 32] {
        let sim = SimDisk::new(SimOptions { seed: page_kib, trace_entries_max: 0, ..SimOptions::default() });
        let db = open(&sim, options(page_kib));
        let tree = db.create_tree("t").unwrap();
        for first in (0..60_000u64).step_by(1000) {
            db.transact(|tx| (first..first + 1000).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[7; 200])))
                .unwrap();
            background(&db);
        }
        let (file, own) = (db.stats().space.data_bytes, db.tree_bytes(&tree));
        assert!(own > 12 << 20, "{own}");
        // A few MiB are kept ahead, however large the file.
        let most = own + own / 25 + (4 << 20);
        assert!(file <= most, "pages of {page_kib}K: a file of {file} bytes for a tree of {own}: {most} are allowed");
    }
}
