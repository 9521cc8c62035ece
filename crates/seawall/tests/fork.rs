//! A forked process has every handle of its parent and may use none: each call is refused, and dropping them
//! touches nothing.
//!
//! 1. Children check their calls and end at once, without the test harness: a failure is written to a file
//!    and reported by the exit status. An alarm ends a child that waits for a lock of a thread that it does
//!    not have.
//! 2. One test at a time: a child inherits the open files of all databases of the process, and their locks.
#![allow(unsafe_code)]

use seawall::{
    Access, Background, BackupAnswer, BackupOptions, BuildOptions, CursorOptions, Database, Env, Error, Isolation,
    Options, RangeOrder, Seek, Task, TemporaryOptions, Transaction, Tree, TxOptions, Xid,
};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs `work` in a child, with everything moved into it, and waits for its end.
fn in_child<T>(dir: &Path, handles: &mut Option<T>, work: impl FnOnce(T)) {
    let told = dir.join("child-failed");
    // SAFETY: the child calls this test and the engine, which allocate: glibc makes its allocator usable in
    // the child. It takes no lock that another thread may hold: that is what is tested.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: ends this process unless it does so itself.
        unsafe { libc::alarm(60) };
        let handles = handles.take().expect("the child's copy");
        let status = match catch_unwind(AssertUnwindSafe(|| work(handles))) {
            Ok(()) => 0,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
                drop(std::fs::write(&told, text.unwrap_or_else(|| "a panic".into())));
                1
            }
        };
        // SAFETY: no code of the harness runs here.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, and writes to `status` only.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    let why = std::fs::read_to_string(&told).unwrap_or_else(|_| format!("it ended with status {status:#x}"));
    assert!(status == 0, "in the child: {why}");
}

fn is_refused<T>(what: &str, result: Result<T, Error>) {
    let result = result.map(|_| "done");
    assert!(matches!(&result, Err(Error::Usage(why)) if why.contains("fork")), "{what}: {result:?}");
}

/// Every call on a database is refused.
fn refuses(db: &Database, tree: &Tree) {
    let xid = Xid(b"prepared".to_vec());
    is_refused("begin", db.begin());
    is_refused("begin_with", db.begin_with(TxOptions { access: Access::ReadOnly, ..TxOptions::default() }));
    is_refused("transact", db.transact(|tx| tx.put(tree, b"k", b"lost")));
    is_refused("get", db.get(tree, b"k"));
    is_refused("create_tree", db.create_tree("new"));
    is_refused("open_tree", db.open_tree("t"));
    is_refused("drop_tree", db.drop_tree("t"));
    is_refused("rename_tree", db.rename_tree("t", "u"));
    is_refused("trees", db.trees());
    is_refused("commit_prepared", db.commit_prepared(&xid));
    is_refused("rollback_prepared", db.rollback_prepared(&xid));
    is_refused("checkpoint", db.checkpoint());
    is_refused("step", db.step());
    is_refused("step_task", db.step_task(Task::Purge));
    is_refused("set", db.set("io_capacity", "100"));
    is_refused("grow", db.grow(1 << 30));
    is_refused("check", db.check());
    is_refused("fragmentation", db.fragmentation(tree));
    is_refused("compact", db.compact(tree));
    is_refused("shrink", db.shrink());
    is_refused("close", db.clone().close());
    assert_eq!((db.prepared(), db.tree_bytes(tree), db.stats().log.commits), (vec![], 0, 0));
    assert!(db.options().page_size() > 0 && !db.path().as_os_str().is_empty());
}

/// And every call on a transaction.
fn transaction_refuses(mut tx: Transaction, tree: &Tree, end: u32) {
    let (k, v) = (&b"k"[..], &b"v"[..]);
    is_refused("take_snapshot", tx.take_snapshot());
    is_refused("get", tx.get(tree, k));
    is_refused("multi_get", tx.multi_get(tree, &[k]));
    is_refused("get_for_update", tx.get_for_update(tree, k));
    is_refused("iter", tx.iter(tree).next().unwrap());
    is_refused("estimate_range", tx.estimate_range(tree, k..));
    is_refused("scan", tx.scan_ranges::<&[u8], _>(tree, &[k..], RangeOrder::Arrival).next().unwrap());
    is_refused("cursor", tx.cursor(tree, CursorOptions::default()).seek(Seek::First));
    is_refused("insert", tx.insert(tree, k, v));
    is_refused("insert_unique_prefix", tx.insert_unique_prefix(tree, 1, k, v));
    is_refused("put", tx.put(tree, k, v));
    is_refused("put_many", tx.put_many(tree, &[(k, v)]));
    is_refused("update", tx.update(tree, k, v));
    is_refused("delete", tx.delete(tree, k));
    is_refused("delete_range", tx.delete_range::<&[u8]>(tree, ..));
    is_refused("create_tree", tx.create_tree("new"));
    is_refused("open_tree", tx.open_tree("t"));
    is_refused("drop_tree", tx.drop_tree("t"));
    is_refused("rename_tree", tx.rename_tree("t", "u"));
    is_refused("trees", tx.trees());
    tx.begin_statement();
    tx.end_statement();
    let savepoint = tx.savepoint();
    is_refused("rollback_to", tx.rollback_to(&savepoint));
    match end {
        0 => is_refused("commit", tx.commit()),
        1 => is_refused("commit_start", tx.commit_start()),
        2 => is_refused("rollback", tx.rollback()),
        3 => is_refused("prepare", tx.prepare(&Xid(b"y".to_vec()))),
        _ => drop(tx),
    }
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn a_forked_process_may_use_no_handle_and_touches_nothing() {
    let _alone = alone();
    for background in [Background::Steps, Background::Threads] {
        let (dir, other) = (dir(), dir());
        let env = Env { background, ..Env::system(seawall_io::Backend::Auto).unwrap() };
        let path = dir.path().join("db");
        std::fs::create_dir(&path).unwrap();
        let db = Database::open_in(env, &path, options()).unwrap();
        let tree = db.create_tree("t").unwrap();
        db.transact(|tx| (0..500u32).try_for_each(|key| tx.put(&tree, &key.to_be_bytes(), &[1; 100]))).unwrap();
        let mut prepared = db.begin().unwrap();
        prepared.put(&tree, b"prepared", b"v").unwrap();
        prepared.prepare(&Xid(b"prepared".to_vec())).unwrap();
        let open = |key: &[u8], isolation| {
            let mut tx = db.begin_with(TxOptions { isolation, ..TxOptions::default() }).unwrap();
            tx.put(&tree, key, b"v").unwrap();
            assert!(isolation == Isolation::Serializable || tx.get(&tree, b"absent").unwrap().is_none());
            tx
        };
        let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
        let mut ends: Vec<Transaction> = (0..5u8).map(|n| open(&[n], levels[usize::from(n) % 3])).collect();
        let mut live = open(b"live", Isolation::RepeatableRead);
        let savepoint = live.savepoint();
        let commit = open(b"committing", Isolation::RepeatableRead).commit_start().unwrap();
        let polled = open(b"polled", Isolation::RepeatableRead).commit_start().unwrap();
        let read_committed = TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() };
        let owned: *mut Transaction = Box::into_raw(Box::new(db.begin_with(read_committed).unwrap()));
        // SAFETY: it lives until it is dropped below, in each process after its borrowers.
        let reader = unsafe { &*owned };
        let mut cursor = reader.cursor(&tree, CursorOptions::default());
        assert!(cursor.seek(Seek::First).unwrap());
        let mut range = reader.iter(&tree);
        assert!(range.next().unwrap().is_ok());
        let deleting: *mut Transaction = Box::into_raw(Box::new(db.begin().unwrap()));
        // SAFETY: as above.
        let mut deleter = unsafe { &mut *deleting }.cursor_mut(&tree, CursorOptions::default());
        assert!(deleter.seek(Seek::First).unwrap());
        let building: *mut Transaction = Box::into_raw(Box::new(db.begin().unwrap()));
        // SAFETY: as above.
        let mut builder = unsafe { &mut *building }.tree_builder("built", BuildOptions::default()).unwrap();
        (0..3_000u32).for_each(|row| builder.push(&row.to_be_bytes(), &[7; 100]).unwrap());
        // A transaction ended since has made these read views stale: the last drop would take the lock of the
        // active set.
        db.transact(|tx| tx.put(&tree, b"later", b"v")).unwrap();

        let before = (background == Background::Steps).then(|| files(&path));
        let mut handles = Some((db, tree, ends, live, commit, polled));
        // Moved into the child's copy of the handles, and back out of the parent's.
        let (mut cursor, mut range) = (Some(cursor), Some(range));
        let (mut deleter, mut builder) = (Some(deleter), Some(builder));
        in_child(dir.path(), &mut handles, |(db, tree, ends, live, commit, mut polled)| {
            let (mut cursor, mut range) = (cursor.take().unwrap(), range.take().unwrap());
            refuses(&db, &tree);
            is_refused("cursor", cursor.next());
            is_refused("cursor", cursor.value().map(<[u8]>::to_vec));
            is_refused("range", range.next().unwrap());
            let (mut deleter, mut builder) = (deleter.take().unwrap(), builder.take().unwrap());
            is_refused("cursor delete", deleter.delete());
            (3_000..9_000u32).for_each(|row| is_refused("push", builder.push(&row.to_be_bytes(), &[7; 100])));
            is_refused("finish", builder.finish());
            drop(deleter);
            is_refused("poll", polled.poll().unwrap());
            is_refused("wait", polled.wait());
            drop(commit);
            drop(cursor);
            drop(range);
            for (tx, end) in ends.into_iter().zip(0..) {
                transaction_refuses(tx, &tree, end);
            }
            for tx in [owned, deleting, building] {
                // SAFETY: their borrowers are gone.
                drop(unsafe { Box::from_raw(tx) });
            }
            drop((live, tree, db));
            // Its threads would wait in queues behind copies of the parent's.
            is_refused("open", Database::open_with(&path, options()));
            is_refused("open", Database::open_with(other.path(), options()));
            is_refused("in_memory", Database::in_memory());
        });
        if let Some(before) = before {
            assert!(files(&path) == before, "the child has written");
        }

        drop((cursor, range, deleter, builder));
        for tx in [owned, deleting, building] {
            // SAFETY: as in the child.
            drop(unsafe { Box::from_raw(tx) });
        }
        let (db, tree, left, mut live, commit, polled) = handles.expect("the parent's copy");
        ends = left;
        commit.wait().unwrap();
        polled.wait().unwrap();
        live.rollback_to(&savepoint).unwrap();
        live.put(&tree, b"more", b"v").unwrap();
        live.commit().unwrap();
        ends.remove(0).commit().unwrap();
        drop(ends);
        db.commit_prepared(&Xid(b"prepared".to_vec())).unwrap();
        assert_eq!(db.check().unwrap(), []);
        db.close().unwrap();
        let db = Database::open_with(&path, options()).unwrap();
        let tree = db.open_tree("t").unwrap();
        for key in [&[0][..], b"live", b"more", b"committing", b"polled", b"prepared", b"later"] {
            assert_eq!(db.get(&tree, key).unwrap().unwrap(), b"v", "{}", key.escape_ascii());
        }
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 507);
        assert_eq!(db.check().unwrap(), []);
        db.close().unwrap();
        // When all are closed, with handles left over, a child may open its own database.
        in_child(dir.path(), &mut Some(()), |()| {
            let own = Database::open_with(other.path(), options()).unwrap();
            let tree = own.create_tree("t").unwrap();
            own.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
            own.close().unwrap();
        });
        let own = Database::open_with(other.path(), options()).unwrap();
        let tree = own.open_tree("t").unwrap();
        assert_eq!(own.get(&tree, b"k").unwrap().unwrap(), b"v");
    }
}

#[test]
fn a_forked_process_may_not_use_a_temporary_tree() {
    let _alone = alone();
    let dir = dir();
    let db = Database::open_with(dir.path().join("db"), options()).unwrap();
    let mut tree = db.temporary_tree(TemporaryOptions { memory_bytes: 128 << 10 }).unwrap();
    for i in 0..2000u32 {
        tree.put(&i.to_be_bytes(), &[1; 200]).unwrap();
    }
    let savepoint = tree.savepoint().unwrap();
    let mut handles = Some(tree);
    in_child(dir.path(), &mut handles, |mut tree| {
        is_refused("temporary_tree", db.temporary_tree(TemporaryOptions::default()));
        is_refused("get", tree.get("k"));
        is_refused("put", tree.put("k", b"v"));
        is_refused("delete", tree.delete("k"));
        is_refused("clear", tree.clear());
        is_refused("range", tree.range(..));
        is_refused("savepoint", tree.savepoint());
        is_refused("rollback_to", tree.rollback_to(&savepoint));
        is_refused("len", tree.len());
        drop(tree);
    });
    let tree = handles.unwrap();
    assert_eq!(tree.check().unwrap(), Vec::<String>::new());
    assert_eq!(tree.range(..).unwrap().map(Result::unwrap).count(), 2000);
}

/// Forks at random moments of other threads' work, with their locks held.
#[test]
fn forks_beside_threads_that_commit_lose_nothing() {
    const THREADS: u64 = 3;
    let _alone = alone();
    let dir = dir();
    let path = dir.path().join("db");
    let db = Database::open_with(&path, options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    let (stop, done) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; THREADS as usize]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, tree, stop, done) = (&db, &tree, &stop, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let n = done[thread as usize].load(Ordering::Relaxed);
                    let key = [thread.to_be_bytes(), (n % 300).to_be_bytes()].concat();
                    db.transact(|tx| tx.put(tree, &key, &n.to_be_bytes())).unwrap();
                    done[thread as usize].store(n + 1, Ordering::Relaxed);
                }
            });
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..30 {
                let mut tx = db.begin().unwrap();
                tx.put(&tree, b"parent", b"uncommitted").unwrap();
                let mut handles = Some((db.clone(), tx));
                in_child(dir.path(), &mut handles, |(db, tx)| {
                    is_refused("put", db.transact(|tx| tx.put(&tree, b"child", b"lost")));
                    transaction_refuses(tx, &tree, 0);
                    drop(db);
                });
                drop(handles);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
    db.close().unwrap();
    let db = Database::open_with(&path, options()).unwrap();
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.get(&tree, b"child").unwrap(), None);
    for thread in 0..THREADS {
        let last = done[thread as usize].load(Ordering::Relaxed) - 1;
        let key = [thread.to_be_bytes(), (last % 300).to_be_bytes()].concat();
        assert_eq!(db.get(&tree, &key).unwrap().unwrap(), last.to_be_bytes(), "thread {thread}");
    }
    assert_eq!(db.check().unwrap(), []);
}

/// Requests a backup through the socket of the database in `dir`.
fn asks(dir: &Path, to: &str) -> BackupAnswer {
    let to = dir.with_file_name(to);
    let options = BackupOptions { rate: 0, ..BackupOptions::default() };
    Database::ask_for_backup(dir, to, &options, |_| std::ops::ControlFlow::Continue(())).unwrap()
}

#[test]
fn a_forked_process_leaves_the_control_socket_alone() {
    let _alone = alone();
    let dir = dir();
    let path = dir.path().join("db");
    let db = Database::open_with(&path, options()).unwrap();
    in_child(dir.path(), &mut Some(db.clone()), drop);
    assert!(path.join("control.socket").exists());
    assert!(matches!(asks(&path, "one"), BackupAnswer::Done(_)));
    // A live child has a copy of its descriptor: after the parent has closed, no client may find the database
    // open.
    let [runs, ends] = ["child-runs", "child-ends"].map(|name| dir.path().join(name));
    let wait_for = |file: &Path| {
        while !file.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            in_child(dir.path(), &mut Some(()), |()| {
                std::fs::write(&runs, "").unwrap();
                wait_for(&ends);
            });
        });
        wait_for(&runs);
        assert!(matches!(asks(&path, "two"), BackupAnswer::Done(_)));
        db.close().unwrap();
        assert!(!path.join("control.socket").exists());
        assert_eq!(asks(&path, "three"), BackupAnswer::NoListener);
        std::fs::write(&ends, "").unwrap();
    });
}
