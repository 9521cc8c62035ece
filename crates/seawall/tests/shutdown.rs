//! A database that is shut down while others hold handles of it.

use seawall::{Background, Database, Durability, Env, Error, Options, Xid};
use seawall_io::SystemClock;
use seawall_sim::{Process, SimDisk, SimOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(128 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(disk: &Arc<Process>, background: Background) -> Database {
    let env = Env { disk: disk.clone(), clock: Arc::new(SystemClock::default()), seed: 1, background };
    Database::open_in(env, "/db", options()).unwrap()
}

fn sim(seed: u64) -> (Arc<SimDisk>, Arc<Process>) {
    let sim = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
    let process = Arc::new(Process::new(&sim));
    (sim, process)
}

fn is_refused<T>(what: &str, done: Result<T, Error>) {
    match done {
        Err(Error::ShutDown) => {}
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: it was done"),
    }
}

#[test]
fn every_later_call_is_refused_and_nothing_is_to_be_recovered() {
    for background in [Background::Threads, Background::Steps] {
        let (sim, process) = sim(1);
        let db = open(&process, background);
        let tree = db.create_tree("t").unwrap();
        for n in 0..200u32 {
            let mut tx = db.begin().unwrap();
            tx.put(&tree, &n.to_be_bytes(), &[7; 100]).unwrap();
            tx.commit_with(Durability::Deferred).unwrap();
        }
        let mut tx = db.begin().unwrap();
        tx.put(&tree, b"prepared", b"v").unwrap();
        tx.prepare(&Xid(b"x".to_vec())).unwrap();
        let (other, position) = (db.clone(), db.log_position());
        let (tell, told) = std::sync::mpsc::channel();
        db.on_durable(position, move |durable| tell.send(durable.is_ok()).unwrap()).unwrap();
        db.shutdown().unwrap();
        assert_eq!(told.recv(), Ok(true));
        other.shutdown().unwrap();
        is_refused("begin", other.begin());
        is_refused("get", other.get(&tree, b"k"));
        is_refused("create_tree", other.create_tree("u"));
        is_refused("transact", other.transact(|tx| tx.put(&tree, b"k", b"v")));
        is_refused("checkpoint", other.checkpoint());
        is_refused("commit_prepared", other.commit_prepared(&Xid(b"x".to_vec())));
        is_refused("flush_log", other.flush_log());
        is_refused("on_durable", other.on_durable(position, |_| unreachable!()));
        is_refused("compact", other.compact(&tree));
        is_refused("step", other.step());
        is_refused("close", other.close());
        // Nothing that is not stable is needed, and nothing is to be done again.
        process.dies_of(SimDisk::power_cut);
        drop((db, tree));
        let process = Arc::new(Process::new(&sim));
        let db = open(&process, Background::Steps);
        assert!(db.stats().log.checkpoint_age_bytes < 100, "but the frame of this opening");
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 200);
        assert_eq!(db.prepared(), [Xid(b"x".to_vec())]);
        db.commit_prepared(&Xid(b"x".to_vec())).unwrap();
    }
}

#[test]
fn transactions_that_are_open_are_waited_for() {
    let (_sim, process) = sim(2);
    let db = open(&process, Background::Threads);
    let tree = db.create_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"k", b"v").unwrap();
    assert!(matches!(db.shutdown_within(Duration::ZERO), Err(Error::StillRunning { running: 1 })));
    is_refused("begin", db.begin());
    // It goes on.
    tx.put(&tree, b"l", b"v").unwrap();
    std::thread::scope(|scope| {
        let shut = scope.spawn(|| db.clone().shutdown());
        tx.commit().unwrap();
        shut.join().unwrap().unwrap();
    });
    drop((db, tree));
    let db = open(&process, Background::Threads);
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.begin().unwrap().iter(&tree).count(), 2);
    // Where nothing waits, it is an error at once.
    let tx = db.begin().unwrap();
    drop((tx, tree, db));
    let db = open(&process, Background::Steps);
    let tx = db.begin().unwrap();
    assert!(matches!(db.shutdown(), Err(Error::StillRunning { running: 1 })));
    drop(tx);
    db.shutdown().unwrap();
}

/// Under load: what was acknowledged is there, and nothing else is.
#[test]
fn writers_end_with_what_they_were_told() {
    for seed in 0..6 {
        let (sim, process) = sim(seed);
        let db = open(&process, Background::Threads);
        let tree = db.create_tree("t").unwrap();
        let (acknowledged, compacted) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (db, tree, acknowledged) = (db.clone(), &tree, &acknowledged);
                scope.spawn(move || {
                    for n in 0u32.. {
                        let key = [thread.to_be_bytes(), n.to_be_bytes()].concat();
                        match db.transact(|tx| tx.put(tree, &key, &[n as u8; 200])) {
                            Ok(()) => acknowledged.fetch_add(1, Ordering::SeqCst),
                            Err(error) => return assert!(matches!(error, Error::ShutDown), "{error}"),
                        };
                    }
                });
            }
            let (other, tree, compacted) = (db.clone(), &tree, &compacted);
            scope.spawn(move || {
                while other.compact(tree).is_ok() {
                    compacted.fetch_add(1, Ordering::SeqCst);
                }
            });
            while acknowledged.load(Ordering::SeqCst) < 100 * (1 + seed) {
                std::thread::yield_now();
            }
            db.shutdown().unwrap();
        });
        process.dies_of(SimDisk::power_cut);
        drop((db, tree));
        let process = Arc::new(Process::new(&sim));
        let db = open(&process, Background::Steps);
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count() as u64, acknowledged.into_inner(), "seed {seed}");
        assert_eq!(db.check().unwrap(), [], "seed {seed}");
    }
}
