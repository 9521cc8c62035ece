//! Rollbacks that meet read errors: what is said to be prepared is what a crash leaves, and what is undone can go on.

use seawall::{
    Background, CursorOptions, Database, Durability, Env, Isolation, Options, OwnedCursor, Seek, Transaction,
    TxOptions, Xid,
};
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

/// A database of 6,000 rows in the tree "other", and a tree "t".
fn filled() -> (Arc<SimDisk>, Database) {
    let disk = SimDisk::new(SimOptions { seed: 3, trace_entries_max: 10, ..SimOptions::default() });
    let db = open(&disk);
    let (tree, other) = (db.create_tree("t").unwrap(), db.create_tree("other").unwrap());
    for group in 0..60u64 {
        let rows = (0..100u64).map(|row| ((group * 100 + row).to_be_bytes(), [1; 300]));
        db.transact(|tx| tx.put_rows(&other, rows.clone())).unwrap();
        while db.step().unwrap() {}
    }
    db.transact(|tx| tx.put(&tree, b"before", b"1")).unwrap();
    (disk, db)
}

/// Reads the tree "other", so that the pool has no other page.
fn read_others(db: &Database) {
    db.checkpoint().unwrap();
    let other = db.open_tree("other").unwrap();
    let reader = db.begin().unwrap();
    for _ in 0..3 {
        assert_eq!(reader.iter(&other).count(), 6000);
    }
    for row in (0..6000u64).step_by(5).flat_map(|row| [row; 3]) {
        assert!(reader.get(&other, &row.to_be_bytes()).unwrap().is_some());
    }
}

/// A database whose prepared transaction X has no page in the pool; the transaction, if it is prepared in place.
fn prepared(in_place: bool) -> (Arc<SimDisk>, Database, Option<Transaction>) {
    let (disk, db) = filled();
    let tree = db.open_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"first", b"1").unwrap();
    tx.put(&tree, b"second", b"1").unwrap();
    let tx = if in_place {
        tx.prepare_in_place(&xid(), Durability::Flushed).unwrap();
        Some(tx)
    } else {
        tx.prepare(&xid()).unwrap();
        None
    };
    read_others(&db);
    (disk, db, tx)
}

#[test]
fn a_rollback_that_stops_is_decided_or_has_not_begun() {
    for in_place in [false, true] {
        rollbacks_that_stop(in_place);
    }
}

fn rollbacks_that_stop(in_place: bool) {
    let mut seen = [0, 0];
    for (nth, closes) in (0..4).flat_map(|nth| [(nth, false), (nth, true)]) {
        let (disk, db, tx) = prepared(in_place);
        // All reads, or one.
        disk.inject(if nth == 0 { Fault::eio().on(Op::Read) } else { Fault::eio().on(Op::Read).nth(nth) });
        let answer = tx.map_or_else(|| db.rollback_prepared(&xid()), Transaction::rollback);
        disk.clear_faults();
        if answer.is_ok() {
            continue;
        }
        // As `rollback_prepared` does.
        db.flush_log().unwrap();
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
    // In place, its undo log's last page stays in the pool: the decision reads nothing.
    assert!(seen[1] > 0 && (seen[0] > 0) != in_place, "errors before and after the decision: {seen:?}");
}

/// A long value whose writing fails, and whose written part cannot be taken back at once: a rollback to a savepoint
/// before it makes the transaction whole.
#[test]
fn a_savepoint_is_a_way_back_from_a_change_that_is_half_done() {
    let mut was_half_done = 0;
    for nth in 1..12 {
        let (disk, db) = filled();
        let tree = db.open_tree("t").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&tree, b"kept", b"1").unwrap();
        let savepoint = tx.savepoint();
        tx.put(&tree, b"undone", b"1").unwrap();
        read_others(&db);
        // Some reads that follow each other.
        (nth..nth + 6).for_each(|nth| disk.inject(Fault::eio().on(Op::Read).nth(nth)));
        let put = tx.put(&tree, b"before", &[7; 300_000]);
        disk.clear_faults();
        if put.is_err() && tx.put(&tree, b"other", b"1").is_err() {
            was_half_done += 1;
            // One that is set afterwards is none.
            let late = tx.savepoint();
            drop(tx.rollback_to(&late));
            assert!(tx.put(&tree, b"other", b"1").is_err(), "{nth}");
        }
        tx.rollback_to(&savepoint).unwrap();
        tx.put(&tree, b"after", b"1").unwrap();
        tx.commit().unwrap();
        let rows: Vec<_> = db.begin().unwrap().iter(&tree).map(|row| row.unwrap().0).collect();
        assert_eq!(rows, [&b"after"[..], b"before", b"kept"], "{nth}");
        assert_eq!(db.check().unwrap(), []);
    }
    assert!(was_half_done > 0);
}

/// A cursor that stays idle does not hold back purge, though the rollback of its transaction stopped.
#[test]
fn an_idle_cursor_has_no_view_after_a_rollback_that_stopped() {
    let (disk, db) = filled();
    let tree = db.open_tree("t").unwrap();
    let isolation = Isolation::ReadCommitted;
    let mut tx = db.begin_with(TxOptions { isolation, ..TxOptions::default() }).unwrap();
    let mut cursor = OwnedCursor::new();
    cursor.reset(&tree, CursorOptions::default(), ..);
    assert!(cursor.seek(&tx, Seek::First).unwrap());
    tx.put(&tree, b"before", b"2").unwrap();
    read_others(&db);
    disk.inject(Fault::eio().on(Op::Read));
    assert!(tx.rollback_in_place().is_err());
    disk.clear_faults();
    while db.step().unwrap() {}
    assert_eq!(db.stats().txn.views, 0);
    assert_eq!(db.get(&tree, b"before").unwrap().as_deref(), Some(&b"1"[..]));
    drop(cursor);
}
