//! Databases opened read-only: all reads work, all changes are refused, and no byte, name or time stamp
//! changes.

mod support {
    #[allow(dead_code)]
    pub(crate) mod dying_process;
}

use seawall::{
    Background, BackupOptions, BuildOptions, CursorOptions, Database, Durability, Env, Error, Isolation, LockWait,
    Options, RangeOrder, Seek, Task, TxOptions, Xid,
};
use seawall_io::{Disk, Op};
use seawall_sim::{Call, Fault, FaultKind, Process, SimDisk, SimOptions};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use support::dying_process::{DyingProcess, End};

const DIR: &str = "/db";
const EROFS: i32 = 30;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

/// 3000 rows, of which some are long and some deleted: several times the pool.
fn fill(db: &Database) {
    let tree = db.create_tree("t").unwrap();
    db.create_tree("empty").unwrap();
    for from in (0..3000u32).step_by(100) {
        db.transact(|tx| (from..from + 100).try_for_each(|i| tx.put(&tree, &i.to_be_bytes(), &value(i)))).unwrap();
    }
    db.transact(|tx| tx.delete_range(&tree, ..10u32.to_be_bytes())).unwrap();
}

fn value(i: u32) -> Vec<u8> {
    let len = if i % 100 == 50 { 9000 } else { 300 + i % 50 };
    vec![i as u8; len as usize]
}

fn read_everything(db: &Database) {
    assert!(db.is_read_only());
    assert_eq!(db.trees().unwrap(), ["empty", "t"]);
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.get(&tree, &3u32.to_be_bytes()).unwrap(), None);
    assert_eq!(db.get(&tree, &50u32.to_be_bytes()).unwrap(), Some(value(50)));
    let tx = db.begin().unwrap();
    tx.take_snapshot().unwrap();
    let rows: Vec<_> = tx.iter(&tree).collect::<seawall::Result<_>>().unwrap();
    let expected: Vec<_> = (10..3000u32).map(|i| (i.to_be_bytes().to_vec(), value(i))).collect();
    assert!(rows == expected);
    assert_eq!(tx.iter(&tree).rev().count(), 2990);
    assert_eq!(tx.count(&tree, ..).unwrap(), 2990);
    assert!(tx.multi_get(&tree, &[11u32.to_be_bytes(), 2u32.to_be_bytes()]).unwrap()[1].is_none());
    assert!(tx.estimate_range(&tree, 100u32.to_be_bytes()..).unwrap().rows > 1000);
    let ranges = [10u32.to_be_bytes()..20u32.to_be_bytes(), 30u32.to_be_bytes()..40u32.to_be_bytes()];
    assert_eq!(tx.scan_ranges(&tree, &ranges, RangeOrder::Key).count(), 20);
    let mut cursor = tx.cursor(&tree, CursorOptions::default());
    assert!(cursor.seek(Seek::Last).unwrap());
    assert_eq!(cursor.value().unwrap(), value(2999));
    drop(cursor);
    // A locking read locks in memory.
    assert!(tx.get_for_update(&tree, &20u32.to_be_bytes()).unwrap().is_some());
    let other = db.begin_with(TxOptions { wait: LockWait::NoWait, ..TxOptions::default() }).unwrap();
    assert!(matches!(other.get_for_share(&tree, &20u32.to_be_bytes()), Err(Error::LockTimeout { .. })));
    drop(other);
    tx.commit().unwrap();
    let serializable = TxOptions { isolation: Isolation::Serializable, ..TxOptions::default() };
    db.transact_with(serializable, |tx| tx.count(&tree, ..)).map(|rows| assert_eq!(rows, 2990)).unwrap();
    assert!(db.check().unwrap().is_empty());
    assert!(db.check_tree(&tree).unwrap().is_empty());
    db.begin().unwrap().prefetch(&tree, &[500u32.to_be_bytes()]).unwrap();
    db.sample_leaves(&tree, 4, |leaf| assert!(leaf.used_bytes() > 0)).unwrap();
    assert!(db.fragmentation(&tree).unwrap().leaves > 0);
    let mut out = Vec::new();
    db.dump(&mut out).unwrap();
    assert!(out.len() > 3000 * 300);
    assert!(db.stats().space.data_bytes > 0);
}

/// Each call that would change something.
fn refused_everything(db: &Database, elsewhere: &Path) {
    let (tree, empty) = (db.open_tree("t").unwrap(), db.open_tree("empty").unwrap());
    let refused = |what: &str, result: seawall::Result<()>| {
        assert!(matches!(result, Err(Error::ReadOnly { .. })), "{what}: {result:?}");
    };
    let key = 77u32.to_be_bytes();
    let mut tx = db.begin().unwrap();
    let savepoint = tx.savepoint();
    refused("put", tx.put(&tree, &key, b"v"));
    refused("put long", tx.put(&tree, &key, &[1; 20_000]));
    refused("insert", tx.insert(&empty, b"new", b"v"));
    refused("update", tx.update(&tree, &key, b"v").map(drop));
    refused("delete", tx.delete(&tree, &key).map(drop));
    refused("delete_range", tx.delete_range(&tree, key..).map(drop));
    refused("put_many", tx.put_many(&tree, &[(key, b"v")]));
    refused("insert_many", tx.insert_many(&empty, [(key, b"v")]).map(drop));
    refused("pop_first", tx.pop_first(&tree).map(drop));
    refused("retain", tx.retain(&tree, .., |_, _| false).map(drop));
    refused("build_tree", tx.build_tree("built", BuildOptions::default(), [(key, b"v")]).map(drop));
    refused("create_tree", tx.create_tree("more").map(drop));
    refused("drop_tree", tx.drop_tree("empty"));
    refused("rename_tree", tx.rename_tree("empty", "full"));
    refused("prepare_in_place", tx.prepare_in_place(&Xid(b"x".to_vec()), Durability::Flushed).map(drop));
    // Nothing was changed: rolling back is no change.
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(tx.get(&tree, &key).unwrap(), Some(value(77)));
    refused("prepare", tx.prepare(&Xid(b"y".to_vec())));
    refused("Database::create_tree", db.create_tree("more").map(drop));
    refused("Database::drop_tree", db.drop_tree("empty"));
    refused("transact", db.transact(|tx| tx.put(&tree, &key, b"v")));
    refused("checkpoint", db.checkpoint());
    refused("compact", db.compact(&tree).map(drop));
    refused("compact an empty tree", db.compact(&empty).map(drop));
    refused("shrink", db.shrink().map(drop));
    refused("grow", db.grow(1 << 30).map(drop));
    refused("backup_begin", db.backup_begin(elsewhere, &BackupOptions::default()).map(drop));
    refused("commit_prepared", db.commit_prepared(&Xid(b"z".to_vec())));
    refused("rollback_prepared", db.rollback_prepared(&Xid(b"z".to_vec())));
    refused("set", db.set("log_flush_method", "fsync"));
    for task in Task::ALL {
        assert!(!db.step_task(*task).unwrap(), "{task:?}");
    }
    // A call without work is no change.
    db.flush_log().unwrap();
    assert!(db.check().unwrap().is_empty());
}

/// Names, contents and modification times of all files in a directory.
fn seen(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let one = |path: PathBuf| {
        let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
        let contents = std::fs::read(&path).unwrap();
        (path, (changed, contents))
    };
    files.map(one).collect()
}

fn permit(dir: &Path, files: u32, directory: u32) {
    for file in std::fs::read_dir(dir).unwrap() {
        std::fs::set_permissions(file.unwrap().path(), std::fs::Permissions::from_mode(files)).unwrap();
    }
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(directory)).unwrap();
}

#[test]
fn all_reads_work_and_all_changes_are_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Database::open_with(&path, options()).unwrap();
    fill(&db);
    db.close().unwrap();
    permit(&path, 0o444, 0o555);
    let before = seen(&path);
    let changed = std::fs::metadata(&path).unwrap().modified().unwrap();

    let db = Database::open_read_only_with(&path, options()).unwrap();
    read_everything(&db);
    refused_everything(&db, &dir.path().join("backup"));
    assert!(!dir.path().join("backup").exists());
    // Several handles read it at the same time.
    let beside = Database::open_read_only_with(&path, options()).unwrap();
    read_everything(&beside);
    drop(db);
    read_everything(&beside);
    // And none can write meanwhile.
    permit(&path, 0o644, 0o755);
    assert!(matches!(Database::open_with(&path, options()), Err(Error::Locked { .. })));
    let other = beside.clone();
    beside.shutdown().unwrap();
    assert!(matches!(other.begin(), Err(Error::ShutDown)));
    drop((beside, other));

    assert!(seen(&path) == before, "names, contents and times");
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), changed);
    let db = Database::open_with(&path, options()).unwrap();
    assert!(!db.is_read_only());
    assert!(matches!(Database::open_read_only_with(&path, options()), Err(Error::Locked { .. })));
    db.create_tree("more").unwrap();
    db.close().unwrap();
    Database::open_read_only(&path).unwrap().close().unwrap();
}

#[test]
fn where_no_database_is_none_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Database::open_read_only(dir.path().join("missing"));
    assert!(matches!(&missing, Err(Error::Io(e)) if e.errno() == Some(2)), "{missing:?}");
    let empty = Database::open_read_only(dir.path());
    assert!(matches!(empty, Err(Error::NotADatabase { .. })), "{empty:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn env(process: &Arc<Process>, sim: &Arc<SimDisk>) -> Env {
    Env { disk: process.clone(), clock: sim.clone(), seed: 1, background: Background::Steps }
}

fn open(sim: &Arc<SimDisk>) -> (Arc<Process>, Database) {
    let process = Arc::new(Process::new(sim));
    let db = Database::open_in(env(&process, sim), DIR, options()).unwrap();
    (process, db)
}

fn open_read_only(sim: &Arc<SimDisk>) -> seawall::Result<Database> {
    Database::open_read_only_in(env(&Arc::new(Process::new(sim)), sim), DIR, options())
}

/// The disk operations other than reads since number `since` of the trace.
fn asked_to_change(sim: &SimDisk, since: u64) -> Vec<String> {
    let reads = [Call::Open, Call::List, Call::FreeBytes, Call::Lock, Call::Len, Call::Read, Call::Cached];
    let trace = sim.trace();
    let entries: Vec<_> = trace.since(since).collect();
    assert!(!entries.is_empty());
    entries.iter().filter(|entry| !reads.contains(&entry.call)).map(|entry| format!("{entry:?}")).collect()
}

#[test]
fn a_database_that_was_not_closed_is_refused_and_left_alone() {
    let sim = SimDisk::new(SimOptions { trace_entries_max: 1 << 20, ..SimOptions::default() });
    let (process, db) = open(&sim);
    fill(&db);
    process.crash_by(SimDisk::power_cut);
    drop(db);
    let before = sim.trace().len();
    let refused = open_read_only(&sim).unwrap_err();
    assert!(matches!(&refused, Error::NeedsRecovery { path } if path == Path::new(DIR)), "{refused}");
    assert_eq!(asked_to_change(&sim, before), Vec::<String>::new());
    // Following the error's advice helps.
    open(&sim).1.close().unwrap();
    let before = sim.trace().len();
    let db = open_read_only(&sim).unwrap();
    read_everything(&db);
    refused_everything(&db, Path::new("/backup"));
    db.close().unwrap();
    assert_eq!(asked_to_change(&sim, before), Vec::<String>::new());
}

/// A crash at any operation of an opening, a change and a closing, with the operation's write torn or late.
#[test]
fn after_a_crash_anywhere_it_is_refused_or_what_was_closed() {
    let rows = |db: &Database| -> seawall::Result<usize> {
        let tree = db.open_tree("t")?;
        Ok(db.begin()?.iter(&tree).collect::<seawall::Result<Vec<_>>>()?.len())
    };
    let base = SimDisk::new(SimOptions::default());
    let (_, db) = open(&base);
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| (0..40u32).try_for_each(|i| tx.put(&tree, &i.to_be_bytes(), &[7; 900]))).unwrap();
    drop(tree);
    db.close().unwrap();
    for how in [End::PowerCut, End::Killed] {
        let (mut opened, mut refused) = (0, 0);
        for n in 0.. {
            let sim = base.fork(1000 + n);
            let dying = DyingProcess::tearing(&sim, how, Some(n), true);
            let run = || -> seawall::Result<()> {
                let clock = sim.clone();
                let env = Env { disk: dying.clone(), clock, seed: 1, background: Background::Steps };
                let db = Database::open_in(env, DIR, options())?;
                let tree = db.open_tree("t")?;
                db.transact(|tx| (40..60u32).try_for_each(|i| tx.put(&tree, &i.to_be_bytes(), &[8; 900])))?;
                drop(tree);
                db.close()
            };
            let whole = run().is_ok();
            dying.dies_now();
            match open_read_only(&sim) {
                Ok(db) => {
                    let found = rows(&db).unwrap();
                    assert!(found == 60 || (found == 40 && !whole), "{how:?} at {n}: {found} rows");
                    assert!(db.check().unwrap().is_empty(), "{how:?} at {n}");
                    opened += 1;
                }
                Err(Error::NeedsRecovery { .. }) if !whole => refused += 1,
                Err(error) => panic!("{how:?} at {n}: {error}"),
            }
            if whole {
                break;
            }
        }
        assert!(opened > 1 && refused > 20, "{how:?}: {opened} opened, {refused} refused");
    }
}

/// Transactions that were open at the end: visible to no reader, and still there for the next opening.
#[test]
fn transactions_that_have_not_ended_are_not_seen_and_stay() {
    let sim = SimDisk::new(SimOptions::default());
    let (process, db) = open(&sim);
    let (tree, other) = (db.create_tree("t").unwrap(), db.create_tree("other").unwrap());
    db.transact(|tx| (0..50u32).try_for_each(|i| tx.put(&tree, &i.to_be_bytes(), b"old"))).unwrap();
    let mut prepared = db.begin().unwrap();
    prepared.put(&tree, &1u32.to_be_bytes(), b"prepared").unwrap();
    prepared.prepare(&Xid(b"p".to_vec())).unwrap();
    let mut loser = db.begin().unwrap();
    loser.put(&tree, &2u32.to_be_bytes(), b"lost").unwrap();
    loser.delete(&tree, &3u32.to_be_bytes()).unwrap();
    db.flush_log().unwrap();
    process.crash_by(SimDisk::power_cut);
    drop((loser, tree, other, db));
    // The next opening closes before it rolls the loser back.
    open(&sim).1.close().unwrap();

    let db = open_read_only(&sim).unwrap();
    let tree = db.open_tree("t").unwrap();
    let rows = db.begin().unwrap().iter(&tree).collect::<seawall::Result<Vec<_>>>().unwrap();
    assert!(rows.len() == 50 && rows.iter().all(|(_, value)| value == b"old"));
    assert_eq!(db.prepared(), [Xid(b"p".to_vec())]);
    assert!(matches!(db.commit_prepared(&Xid(b"p".to_vec())), Err(Error::ReadOnly { .. })));
    assert!(matches!(db.rollback_prepared(&Xid(b"p".to_vec())), Err(Error::ReadOnly { .. })));
    let tx = db.begin().unwrap();
    assert!(matches!(tx.get_for_update(&tree, &2u32.to_be_bytes()), Err(Error::LockTimeout { .. })));
    drop(tx);
    // A durable position is reported at once: no other thread would do it.
    let (told, tells) = std::sync::mpsc::channel();
    db.on_durable(db.log_position(), move |durable| told.send(durable.is_ok()).unwrap()).unwrap();
    assert!(tells.try_recv().unwrap());
    // What these transactions have changed is not looked up: waiting for them would be in vain.
    db.begin().unwrap().lock_tree(&db.open_tree("other").unwrap()).unwrap();
    assert!(db.check().unwrap().is_empty());
    drop(tree);
    db.close().unwrap();

    let (_process, db) = open(&sim);
    db.commit_prepared(&Xid(b"p".to_vec())).unwrap();
    while db.step().unwrap() {}
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.get(&tree, &1u32.to_be_bytes()).unwrap().as_deref(), Some(&b"prepared"[..]));
    assert_eq!(db.get(&tree, &2u32.to_be_bytes()).unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(db.shrink_with(|_| ControlFlow::Break(())).map(|_| ()).ok(), Some(()));
}

/// Damage is reported, and the rest can be read.
#[test]
fn errors_of_reading_are_the_readers() {
    let sim = SimDisk::new(SimOptions::default());
    let (_, db) = open(&sim);
    fill(&db);
    db.close().unwrap();
    let db = open_read_only(&sim).unwrap();
    let tree = db.open_tree("t").unwrap();
    sim.inject(Fault::new(FaultKind::Errno(5)).on(Op::Read));
    let failed = db.begin().unwrap().iter(&tree).find_map(Result::err);
    assert!(matches!(&failed, Some(Error::Io(e)) if e.errno() == Some(5)), "{failed:?}");
    sim.clear_faults();
    read_everything(&db);
    // A read-only opening does not need what only writers need.
    drop(tree);
    db.close().unwrap();
    for name in sim.list(DIR.as_ref()).unwrap() {
        if ["redo.", "doublewrite"].iter().any(|part| name.to_string_lossy().contains(part)) {
            sim.inject(Fault::new(FaultKind::Errno(EROFS)).exactly(&name));
        }
    }
    read_everything(&open_read_only(&sim).unwrap());
}

/// As an opening for writing: a restored database is not read with the log of the database that it was copied from.
#[test]
fn a_log_beside_the_data_is_not_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let with_log = || options().with_log_dir(path("log"));
    let db = Database::open_with(path("db"), with_log()).unwrap();
    fill(&db);
    db.backup_to(path("backup"), &BackupOptions::default()).unwrap();
    db.close().unwrap();
    Database::restore(&[path("backup")], path("copy")).unwrap();
    Database::open_with(path("copy"), options()).unwrap().close().unwrap();
    match Database::open_read_only_with(path("copy"), with_log()) {
        Err(Error::InvalidOption { name, why, .. }) => assert!(name == "log_dir" && why.contains("redo."), "{why}"),
        other => panic!("{other:?}"),
    }
    read_everything(&Database::open_read_only_with(path("copy"), options()).unwrap());
    read_everything(&Database::open_read_only_with(path("db"), with_log()).unwrap());
}
