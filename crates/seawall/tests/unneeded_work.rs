//! Work that an operation must not do: each test is unnecessary work that was once done.

use seawall::{
    Background, Database, Env, Error, Isolation, LockWait, OnConflict, Options, RangeOrder, Task, Transaction, Tree,
    TxOptions,
};
use seawall_io::{
    Allocate, BackendInfo, Cached, Disk, FileClass, Handle, Op, OpenHow, Request, Result as IoResult, SyncHow, Ticket,
    WriteHow,
};
use seawall_sim::{Process, SimDisk, SimOptions};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(1 << 20)
        .with_log_capacity(64 << 20)
        .with_log_buffer_size(1 << 20)
}

fn disk() -> Arc<SimDisk> {
    SimDisk::new(SimOptions { seed: 21, trace_entries_max: 0, ..SimOptions::default() })
}

fn open(disk: &Arc<SimDisk>) -> (Arc<Process>, Database) {
    let process = Arc::new(Process::new(disk));
    let clock = Arc::new(seawall_io::SystemClock::default());
    let env = Env { disk: process.clone(), clock, seed: 1, background: Background::Steps };
    (process, Database::open_in(env, "/db", options()).unwrap())
}

fn settle(db: &Database) {
    while db.step_task(Task::Rollback).unwrap() || db.step_task(Task::Purge).unwrap() {}
}

fn read_bytes(db: &Database) -> u64 {
    let io = db.stats().io;
    io.cells.iter().filter(|cell| cell.class == FileClass::Data && cell.op == Op::Read).map(|cell| cell.bytes).sum()
}

/// Replacing or removing a long value does not read the old value.
#[test]
fn a_long_value_is_written_without_reading_the_old_one() {
    let (_process, db) = open(&disk());
    let tree = db.create_tree("t").unwrap();
    let old = vec![1; 6 << 20];
    db.transact(|tx| tx.put(&tree, b"k", &old)).unwrap();
    for task in [Task::Log, Task::Clean] {
        while db.step_task(task).unwrap() {}
    }
    let before = read_bytes(&db);
    db.transact(|tx| tx.put(&tree, b"k", &[2; 5000])).unwrap();
    db.transact(|tx| tx.update(&tree, b"k", &[3; 5000])).unwrap();
    assert!(matches!(db.transact(|tx| tx.insert(&tree, b"k", &[3; 5000])), Err(Error::KeyExists { .. })));
    let read = read_bytes(&db) - before;
    assert!(read < 1 << 20, "{read} bytes were read to replace a value of {}", old.len());
    assert_eq!(db.get(&tree, b"k").unwrap().unwrap(), [3; 5000]);
}

fn leave(tx: Transaction) {
    // It is a loser of the crash: its drop comes too late to do anything.
    drop(tx);
}

/// After a crash a drop waits for the losers that wrote to its tree, and for no other.
#[test]
fn a_drop_after_a_crash_waits_for_the_losers_of_its_tree() {
    let disk = disk();
    let (process, db) = open(&disk);
    let trees: Vec<Tree> = ["a", "b", "c", "d"].iter().map(|name| db.create_tree(name).unwrap()).collect();
    for tree in &trees {
        db.transact(|tx| tx.put(tree, b"kept", b"v")).unwrap();
    }
    let (mut one, mut two) = (db.begin().unwrap(), db.begin().unwrap());
    for key in 0..3000u32 {
        // Scattered, so that each insertion has an undo record of its own.
        let scattered = |key: u32| key.wrapping_mul(2_654_435_761).to_be_bytes();
        one.put(&trees[0], &scattered(key), &[1; 100]).unwrap();
        two.put(&trees[usize::from(key == 7)], &scattered(key + 10_000), &[2; 6]).unwrap();
    }
    // Long values are another kind of undo.
    two.put(&trees[3], b"long", &[7; 20_000]).unwrap();
    db.transact(|tx| tx.put(&trees[2], b"last", b"v")).unwrap();
    process.crash_by(SimDisk::power_cut);
    leave(one);
    leave(two);
    drop((trees, db));

    let (_process, db) = open(&disk);
    assert_eq!(db.stats().txn.losers, 2);
    let no_wait = TxOptions { wait: LockWait::NoWait, ..TxOptions::default() };
    let drop_tree = |name: &str| {
        let mut tx = db.begin_with(no_wait).unwrap();
        tx.drop_tree(name).and_then(|()| tx.commit())
    };
    // Not known yet: it is looked up first, some records at a time.
    assert!(matches!(drop_tree("c"), Err(Error::LockTimeout { .. })));
    let mut steps = 0;
    while let Err(error) = drop_tree("c") {
        assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
        assert_eq!(db.stats().txn.losers, 2, "none is rolled back before");
        assert!(db.step_task(Task::Rollback).unwrap());
        steps += 1;
    }
    assert!(steps > 2, "{steps} steps");
    assert!(matches!(db.open_tree("c"), Err(Error::NoSuchTree { .. })));
    for name in ["a", "b", "d"] {
        assert!(matches!(drop_tree(name), Err(Error::LockTimeout { .. })), "{name}");
    }
    assert_eq!(db.stats().txn.losers, 2);
    settle(&db);
    assert_eq!(db.stats().txn.losers, 0);
    for name in ["a", "b", "d"] {
        assert_eq!(db.begin().unwrap().iter(&db.open_tree(name).unwrap()).count(), 1, "{name}");
        drop_tree(name).unwrap();
    }
    settle(&db);
    assert_eq!(db.check().unwrap(), []);
    db.close().unwrap();
}

/// Every call that reads before it locks detects that its tree was dropped and its pages reused, and reports
/// that.
#[test]
fn a_tree_that_is_dropped_and_purged_is_said_to_be_dropped() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        for reused in [false, true] {
            let (_process, db) = open(&disk());
            let tree = db.create_tree("t").unwrap();
            let fill = |tree: &Tree| {
                let rows: Vec<_> = (0..3000u32).map(|key| (key.to_be_bytes(), [1; 100])).collect();
                db.transact(|tx| tx.put_many(tree, &rows)).unwrap();
            };
            fill(&tree);
            let options = TxOptions { isolation, on_conflict: OnConflict::Latest, ..TxOptions::default() };
            let mut tx = db.begin_with(options).unwrap();
            db.drop_tree("t").unwrap();
            settle(&db);
            if reused {
                fill(&db.create_tree("other").unwrap());
            }
            let dropped = |what: &str, result: Result<(), Error>| {
                assert!(matches!(result, Err(Error::TreeDropped { .. })), "{what}, {isolation:?}: {result:?}");
            };
            let rows = [([0; 4], [2; 9]), ([5; 4], [2; 9])];
            dropped("put_many", tx.put_many(&tree, &rows));
            dropped("estimate_range", tx.estimate_range::<[u8; 4]>(&tree, ..).map(drop));
            dropped("estimate_range", tx.estimate_range(&tree, [0, 0, 1, 0]..[0, 0, 2, 0]).map(drop));
            for order in [RangeOrder::Key, RangeOrder::Arrival] {
                let mut ranges = tx.scan_ranges(&tree, &[[0; 4]..[9; 4]], order);
                dropped("scan_ranges", ranges.next().unwrap().map(drop));
            }
            dropped("multi_get", tx.multi_get(&tree, &[[0; 4], [1; 4]]).map(drop));
            dropped("delete_range", tx.delete_range::<[u8; 4]>(&tree, ..).map(drop));
            dropped("put", tx.put(&tree, b"k", &[1; 9000]));
        }
    }
}

/// Like the test above, but the drop happens while the descent waits for a page. At read committed no snapshot keeps
/// the pages.
#[test]
fn a_tree_that_is_purged_under_a_descent_is_said_to_be_dropped() {
    type Asked = fn(&mut Transaction, &Tree) -> Result<(), Error>;
    let asked: [(&str, Asked); 4] = [
        ("put_many", |tx, tree| tx.put_many(tree, &[([0; 4], [2; 9]), ([200; 4], [2; 9])])),
        ("estimate_range", |tx, tree| tx.estimate_range(tree, [1; 4]..[200; 4]).map(drop)),
        ("scan_ranges", |tx, tree| {
            let found = tx.scan_ranges(tree, &[[1; 4]..[2; 4], [200; 4]..[201; 4]], RangeOrder::Arrival).next();
            found.map_or(Ok(()), |found| found.map(drop))
        }),
        ("multi_get", |tx, tree| tx.multi_get(tree, &[[0; 4], [200; 4]]).map(drop)),
    ];
    let rows: Vec<_> = (0..12_000u32).map(|key| (key.wrapping_mul(0x9e37_79b1).to_be_bytes(), [1; 200])).collect();
    for (what, ask) in asked {
        let disk = Arc::new(Meanwhile { process: Process::new(&disk()), work: Mutex::default() });
        let clock = Arc::new(seawall_io::SystemClock::default());
        let env = Env { disk: disk.clone(), clock, seed: 1, background: Background::Steps };
        let db = Database::open_in(env, "/db", options()).unwrap();
        let (tree, other) = (db.create_tree("t").unwrap(), db.create_tree("other").unwrap());
        for tree in [&tree, &other] {
            db.transact(|tx| tx.put_many(tree, &rows)).unwrap();
        }
        // No page of the first tree is in memory.
        assert_eq!(db.begin().unwrap().iter(&other).count(), rows.len());
        let read_committed = TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() };
        let mut tx = db.begin_with(read_committed).unwrap();
        let work_db = db.clone();
        // The root has been read: a drop needs the root and waits for its readers.
        let work = move || {
            work_db.drop_tree("t").unwrap();
            settle(&work_db);
        };
        *disk.work.lock().unwrap() = Some((1, Box::new(work)));
        let answer = ask(&mut tx, &tree);
        assert!(disk.work.lock().unwrap().is_none(), "{what} has read a page");
        // A read that found its rows before the drop may return them, but a change comes too late.
        let is_right = match &answer {
            Ok(()) => what != "put_many",
            Err(error) => matches!(error, Error::TreeDropped { .. }),
        };
        assert!(is_right, "{what}: {answer:?}");
        drop(tx);
        settle(&db);
        assert_eq!(db.check().unwrap(), []);
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// A disk that runs a function, once, in the middle of a read of data.
struct Meanwhile {
    process: Process,
    /// The number of reads before it, and the function.
    work: Mutex<Option<(u32, Work)>>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Meanwhile {
    fn read(&self) {
        let mut left = self.work.lock().unwrap();
        match left.take() {
            Some((0, work)) => {
                drop(left);
                std::thread::spawn(work).join().unwrap();
            }
            later => *left = later.map(|(reads, work)| (reads - 1, work)),
        }
    }
}

impl Disk for Meanwhile {
    fn backend(&self) -> &BackendInfo {
        self.process.backend()
    }
    fn open(&self, path: &Path, how: OpenHow) -> IoResult<Handle> {
        self.process.open(path, how)
    }
    fn rename(&self, from: &Path, to: &Path) -> IoResult<()> {
        self.process.rename(from, to)
    }
    fn remove(&self, path: &Path) -> IoResult<()> {
        self.process.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> IoResult<()> {
        self.process.sync_dir(path)
    }
    fn list(&self, path: &Path) -> IoResult<Vec<PathBuf>> {
        self.process.list(path)
    }
    fn free_bytes(&self, path: &Path) -> IoResult<u64> {
        self.process.free_bytes(path)
    }
    fn lock(&self, file: &Handle) -> IoResult<()> {
        self.process.lock(file)
    }
    fn len(&self, file: &Handle) -> IoResult<u64> {
        self.process.len(file)
    }
    fn set_len(&self, file: &Handle, len: u64) -> IoResult<()> {
        self.process.set_len(file, len)
    }
    fn allocate(&self, file: &Handle, how: Allocate, offset: u64, len: u64) -> IoResult<()> {
        self.process.allocate(file, how, offset, len)
    }
    fn read_at(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> IoResult<usize> {
        self.read();
        self.process.read_at(file, offset, buf)
    }
    fn write_at(&self, file: &Handle, offset: u64, bufs: &[IoSlice<'_>], how: WriteHow) -> IoResult<usize> {
        self.process.write_at(file, offset, bufs, how)
    }
    fn sync(&self, file: &Handle, how: SyncHow) -> IoResult<()> {
        self.process.sync(file, how)
    }
    fn cached(&self, file: &Handle, len: u64) -> IoResult<Cached> {
        self.process.cached(file, len)
    }
    fn drop_cache(&self, file: &Handle, offset: u64, len: u64) -> IoResult<()> {
        self.process.drop_cache(file, offset, len)
    }
    fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        self.read();
        self.process.submit(batch)
    }
    fn drive(&self, block: bool) -> usize {
        self.process.drive(block)
    }
}
