//! A rollback of a prepared transaction that meets read errors: what is said to be prepared is what a crash leaves.

use seawall::{Background, Database, Env, Options, Xid};
use seawall_io::{Op, SystemClock};
use seawall_sim::{Fault, SimDisk, SimOptions};
use std::sync::Arc;

fn open(disk: &Arc<SimDisk>) -> Database {
    let clock = Arc::new(SystemClock::default());
    let env = Env { disk: disk.clone(), clock, seed: 5, background: Background::Steps };
    let mut options = Options::default()
        .with_page_size(4096)
        .with_pool_size(256 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(128 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20);
    for name in ["data_flush_method", "log_flush_method"] {
        options.set(name, "o_direct").unwrap();
    }
    Database::open_in(env, "/db", options).unwrap()
}

fn xid() -> Xid {
    Xid(b"X".to_vec())
}

/// A database whose prepared transaction X has no page in the pool.
fn prepared() -> (Arc<SimDisk>, Database) {
    let disk = SimDisk::new(SimOptions { seed: 3, trace_entries_max: 10, ..SimOptions::default() });
    let db = open(&disk);
    let (tree, other) = (db.create_tree("t").unwrap(), db.create_tree("other").unwrap());
    for group in 0..60u64 {
        let rows = (0..100u64).map(|row| ((group * 100 + row).to_be_bytes(), [1; 300]));
        db.transact(|tx| tx.put_rows(&other, rows.clone())).unwrap();
        while db.step().unwrap() {}
    }
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"first", b"1").unwrap();
    tx.put(&tree, b"second", b"1").unwrap();
    tx.prepare(&xid()).unwrap();
    db.checkpoint().unwrap();
    let reader = db.begin().unwrap();
    for _ in 0..3 {
        assert_eq!(reader.iter(&other).count(), 6000);
    }
    for row in (0..6000u64).step_by(5).flat_map(|row| [row; 3]) {
        assert!(reader.get(&other, &row.to_be_bytes()).unwrap().is_some());
    }
    drop(reader);
    (disk, db)
}

#[test]
fn a_rollback_that_stops_is_decided_or_has_not_begun() {
    let mut seen = [0, 0];
    for (nth, closes) in (0..4).flat_map(|nth| [(nth, false), (nth, true)]) {
        let (disk, db) = prepared();
        // All reads, or one.
        disk.inject(if nth == 0 { Fault::eio().on(Op::Read) } else { Fault::eio().on(Op::Read).nth(nth) });
        let answer = db.rollback_prepared(&xid());
        disk.clear_faults();
        if answer.is_ok() {
            continue;
        }
        let listed = db.prepared();
        seen[usize::from(listed.is_empty())] += 1;
        let after = disk.fork(9);
        if closes {
            db.close().unwrap();
        } else {
            after.power_cut();
        }
        let db = open(if closes { &disk } else { &after });
        assert_eq!(db.prepared(), listed, "read {nth}, closed: {closes}: {answer:?}");
        if !listed.is_empty() {
            db.rollback_prepared(&xid()).unwrap();
        }
        while db.step().unwrap() {}
        assert_eq!(db.get(&db.open_tree("t").unwrap(), b"first").unwrap(), None);
        assert_eq!(db.check().unwrap(), []);
    }
    assert!(seen.iter().all(|&times| times > 0), "errors before and after the decision: {seen:?}");
}
