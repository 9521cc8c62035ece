//! Handles know their owner and are refused elsewhere: trees, savepoints, cursors, positions. And handles
//! dropped while a panic unwinds their thread behave as at any other time.

use seawall::{
    Background, CompactOptions, CursorOptions, Database, Env, Error, LockMode, OnConflict, Options, RangeOrder, Seek,
    Transaction, Tree, TxOptions, Xid,
};
use seawall_sim::{SimDisk, SimOptions};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[path = "support/dying_process.rs"]
#[allow(dead_code)] // shared with tests that need more of it
mod dying_process;
use dying_process::{DyingProcess, End};

fn is_refused<T>(what: &str, result: Result<T, Error>) {
    let result = result.map(|_| "done");
    assert!(matches!(result, Err(Error::Usage(_))), "{what}: {result:?}");
}

fn put(db: &Database, tree: &Tree, key: &[u8], value: &[u8]) {
    db.transact(|tx| tx.put(tree, key, value)).unwrap();
}

/// Every call that takes a tree.
fn refuses_tree(db: &Database, foreign: &Tree) {
    let (k, v) = (&b"k"[..], &b"v"[..]);
    let mut tx = db.begin_with(TxOptions { on_conflict: OnConflict::Latest, ..TxOptions::default() }).unwrap();
    is_refused("Database::get", db.get(foreign, k));
    is_refused("get", tx.get(foreign, k));
    is_refused("get_with", tx.get_with(foreign, k, <[u8]>::len));
    is_refused("contains", tx.contains(foreign, k));
    is_refused("multi_get", tx.multi_get(foreign, &[k]));
    is_refused("get_for_update", tx.get_for_update(foreign, k));
    is_refused("get_for_share", tx.get_for_share(foreign, k));
    is_refused("range", tx.range(foreign, k..).next().unwrap());
    is_refused("iter backwards", tx.iter(foreign).next_back().unwrap());
    is_refused("prefix", tx.prefix(foreign, k).next().unwrap());
    is_refused("estimate_range", tx.estimate_range(foreign, k..));
    for order in [RangeOrder::Key, RangeOrder::Arrival] {
        is_refused("scan_ranges", tx.scan_ranges::<&[u8], _>(foreign, &[k..], order).next().unwrap());
    }
    for lock in [None, Some(LockMode::Exclusive)] {
        let mut cursor = tx.cursor(foreign, CursorOptions { lock, ..CursorOptions::default() });
        is_refused("cursor", cursor.seek(Seek::First));
        is_refused("cursor", cursor.next());
        is_refused("cursor", cursor.prev());
        is_refused("cursor", cursor.value().map(<[u8]>::to_vec));
        assert_eq!(cursor.key(), b"");
        let position = cursor.position();
        is_refused("cursor", cursor.restore(&position));
    }
    is_refused("insert", tx.insert(foreign, k, v));
    is_refused("insert_unique_prefix", tx.insert_unique_prefix(foreign, 1, k, v));
    is_refused("put", tx.put(foreign, k, v));
    is_refused("put_many", tx.put_many(foreign, &[(k, v)]));
    is_refused("update", tx.update(foreign, k, v));
    is_refused("delete", tx.delete(foreign, k));
    is_refused("delete_range", tx.delete_range::<&[u8]>(foreign, ..));
    is_refused("fragmentation", db.fragmentation(foreign));
    is_refused("compact", db.compact_with(foreign, CompactOptions::default(), |_| ControlFlow::Continue(())));
    assert_eq!(db.tree_bytes(foreign), 0);
    assert_eq!(tx.id(), None, "nothing was begun");
}

#[test]
fn a_tree_of_another_database_is_refused() {
    let (one, two) = (Database::in_memory().unwrap(), Database::in_memory().unwrap());
    // Two trees with one id and root page, and another that the second database does not have.
    let (mine, theirs) = (one.create_tree("t").unwrap(), two.create_tree("t").unwrap());
    assert_eq!(mine.id(), theirs.id());
    let more = one.create_tree("more").unwrap();
    put(&one, &mine, b"k", b"one");
    put(&two, &theirs, b"k", b"two");
    refuses_tree(&two, &mine);
    refuses_tree(&two, &more);
    refuses_tree(&one, &theirs);
    assert_eq!(one.get(&mine, b"k").unwrap().unwrap(), b"one");
    assert_eq!(two.get(&theirs, b"k").unwrap().unwrap(), b"two");
    assert_eq!((one.check().unwrap(), two.check().unwrap()), (vec![], vec![]));
}

#[test]
fn a_tree_kept_over_close_and_reopening_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = || Options::default().with_pool_size(1 << 20).with_data_initial_size(1 << 20);
    let db = Database::open_with(dir.path(), options()).unwrap();
    let kept = db.create_tree("t").unwrap();
    put(&db, &kept, b"k", b"v");
    db.close().unwrap();
    let db = Database::open_with(dir.path(), options()).unwrap();
    refuses_tree(&db, &kept);
    db.drop_tree("t").unwrap();
    refuses_tree(&db, &kept);
    assert!(matches!(db.open_tree("t"), Err(Error::NoSuchTree { .. })));
    db.close().unwrap();
}

#[test]
fn a_savepoint_of_another_transaction_is_refused() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    let (mut one, mut two) = (db.begin().unwrap(), db.begin().unwrap());
    let before = one.savepoint();
    one.put(&tree, b"1", b"1").unwrap();
    two.put(&tree, b"2", b"2").unwrap();
    is_refused("before its own first", two.rollback_to(&before));
    let own = two.savepoint();
    is_refused("after its own first", two.rollback_to(&before));
    two.rollback_to(&own).unwrap();
    two.commit().unwrap();
    one.rollback_to(&before).unwrap();
    // Not even when the other has ended and this one has its place.
    drop(one);
    let mut three = db.begin().unwrap();
    three.put(&tree, b"3", b"3").unwrap();
    is_refused("of one that has ended", three.rollback_to(&before));
    is_refused("of one that has ended", three.rollback_to(&own));
    three.commit().unwrap();
    let keys: Vec<_> = db.begin().unwrap().iter(&tree).map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [b"2", b"3"]);
    // Savepoints of different threads differ too.
    let made: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| db.begin().unwrap().savepoint())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!((0..4).all(|a| (0..a).all(|b| made[a] != made[b])), "{made:?}");
}

#[test]
fn a_position_of_another_tree_is_refused() {
    let (db, other) = (Database::in_memory().unwrap(), Database::in_memory().unwrap());
    let (one, two) = (db.create_tree("one").unwrap(), db.create_tree("two").unwrap());
    let elsewhere = other.create_tree("one").unwrap();
    for (db, tree) in [(&db, &one), (&db, &two), (&other, &elsewhere)] {
        put(db, tree, b"k", b"v");
    }
    let (tx, foreign) = (db.begin().unwrap(), other.begin().unwrap());
    let mut cursor = tx.cursor(&one, CursorOptions::default());
    assert!(cursor.seek(Seek::First).unwrap());
    let position = cursor.position();
    is_refused("another tree", tx.cursor(&two, CursorOptions::default()).restore(&position));
    is_refused("another database", foreign.cursor(&elsewhere, CursorOptions::default()).restore(&position));
    // Another transaction may continue at this one's position.
    assert!(db.begin().unwrap().cursor(&one, CursorOptions::default()).restore(&position).unwrap());
}

#[test]
fn a_prepared_transaction_is_known_to_its_database_only() {
    let (db, other) = (Database::in_memory().unwrap(), Database::in_memory().unwrap());
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"k", b"v").unwrap();
    let xid = Xid(b"x".to_vec());
    tx.prepare(&xid).unwrap();
    assert!(matches!(other.commit_prepared(&xid), Err(Error::Unknown { .. })));
    assert!(matches!(other.rollback_prepared(&xid), Err(Error::Unknown { .. })));
    db.commit_prepared(&xid).unwrap();
}

// --- while a thread unwinds ----------------------------------------------------------------------------

/// A database that only the calling thread writes to.
fn alone() -> (Database, Tree) {
    let sim = SimDisk::new(SimOptions { seed: 4, trace_entries_max: 0, ..SimOptions::default() });
    let disk = DyingProcess::new(&sim, End::PowerCut, None);
    let env = Env { disk, clock: sim, seed: 5, background: Background::Steps };
    let options = Options::default()
        .with_page_size(4096)
        .with_pool_size(2 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(16 << 20)
        .with_log_buffer_size(1 << 20);
    let db = Database::open_in(env, "/db", options).unwrap();
    let tree = db.create_tree("t").unwrap();
    (db, tree)
}

/// Calls `f`, which must panic.
fn unwinds(f: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the user's"));
}

#[test]
fn a_commit_that_is_dropped_while_the_thread_unwinds() {
    let (db, tree) = alone();
    let groups = db.stats().log.groups;
    unwinds(|| {
        let mut tx = db.begin().unwrap();
        tx.put(&tree, b"k", b"v").unwrap();
        let _commit = tx.commit_start().unwrap();
        panic!("the user's");
    });
    assert!(db.stats().log.groups > groups, "it led the log");
    assert_eq!(db.get(&tree, b"k").unwrap().unwrap(), b"v");
    put(&db, &tree, b"after", b"v");
    db.close().unwrap();
}

#[test]
fn a_large_transaction_that_is_dropped_while_the_thread_unwinds() {
    let (db, tree) = alone();
    let fill = |tx: &mut Transaction, byte: u8| {
        (0..4000u32).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[byte; 500]))
    };
    db.transact(|tx| fill(tx, 1)).unwrap();
    let mut groups = 0;
    unwinds(|| {
        let mut tx = db.begin().unwrap();
        fill(&mut tx, 2).unwrap();
        groups = db.stats().log.groups;
        panic!("the user's");
    });
    assert!(db.stats().log.groups > groups, "its rollback wrote the log");
    assert!(db.begin().unwrap().iter(&tree).all(|entry| entry.unwrap().1 == [1; 500]));
    put(&db, &tree, b"after", b"v");
    db.close().unwrap();
}

#[test]
fn a_drop_that_commits_while_the_thread_unwinds() {
    struct Audit<'a>(&'a Database, &'a Tree);
    impl Drop for Audit<'_> {
        fn drop(&mut self) {
            put(self.0, self.1, b"audit", b"it panicked");
            // A prepared transaction that is decided there is flushed, too.
            let mut tx = self.0.begin().unwrap();
            tx.put(self.1, b"prepared", b"v").unwrap();
            tx.prepare(&Xid(b"x".to_vec())).unwrap();
            self.0.commit_prepared(&Xid(b"x".to_vec())).unwrap();
            self.0.checkpoint().unwrap();
        }
    }
    let (db, tree) = alone();
    unwinds(|| {
        let _audit = Audit(&db, &tree);
        panic!("the user's");
    });
    assert_eq!(db.get(&tree, b"audit").unwrap().unwrap(), b"it panicked");
    assert_eq!(db.get(&tree, b"prepared").unwrap().unwrap(), b"v");
    put(&db, &tree, b"after", b"v");
    db.close().unwrap();
}

// --- messages ------------------------------------------------------------------------------------------

#[test]
fn messages_name_what_is_meant() {
    let db = Database::in_memory().unwrap();
    let long = "n".repeat(513);
    db.create_tree("t").unwrap();
    for refused in [db.create_tree(&long).map(drop), db.rename_tree("t", &long)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::NameTooLong { len_bytes: 513, max_bytes: 512 }), "{error:?}");
        assert!(error.to_string().contains("a tree name of 513 bytes"), "{error}");
    }
    // Messages use the names of options.
    let refused = db.set("pool_size", "900G").unwrap_err().to_string();
    assert!(refused.contains("pool_size_max") && Options::info("pool_size_max").is_ok(), "{refused}");
}
