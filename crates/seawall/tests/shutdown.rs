//! A database that is shut down while other handles of it exist.

use seawall::{Background, BackupOptions, Database, Durability, Env, Error, IndexOptions, Options, Xid};
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
        // Everything needed is stable, and nothing is to be redone.
        process.crash_by(SimDisk::power_cut);
        drop((db, tree));
        let process = Arc::new(Process::new(&sim));
        let db = open(&process, Background::Steps);
        assert!(db.stats().log.checkpoint_age_bytes < 100, "but the entry of this opening");
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
    // It continues.
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
    // Without waiting, it is an immediate error.
    let tx = db.begin().unwrap();
    drop((tx, tree, db));
    let db = open(&process, Background::Steps);
    let tx = db.begin().unwrap();
    assert!(matches!(db.shutdown(), Err(Error::StillRunning { running: 1 })));
    drop(tx);
    db.shutdown().unwrap();
}

/// Under load: every acknowledged commit is there, and nothing else.
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
        process.crash_by(SimDisk::power_cut);
        drop((db, tree));
        let process = Arc::new(Process::new(&sim));
        let db = open(&process, Background::Steps);
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count() as u64, acknowledged.into_inner(), "seed {seed}");
        assert_eq!(db.check().unwrap(), [], "seed {seed}");
    }
}

/// A running backup ends with an error and is unfinished; the shutdown does not wait for it.
#[test]
fn a_backup_under_way_is_unfinished() {
    for (background, steps) in [(Background::Threads, 0), (Background::Threads, 1), (Background::Steps, u64::MAX)] {
        let (_sim, process) = sim(7);
        let db = open(&process, background);
        let tree = db.create_tree("t").unwrap();
        for n in 0..300u32 {
            db.transact(|tx| tx.put(&tree, &n.to_be_bytes(), &[7; 1000])).unwrap();
        }
        let full_speed = BackupOptions { rate: 0, ..BackupOptions::default() };
        let mut backup = db.backup_begin("/backup", &full_speed).unwrap();
        for _ in 0..steps {
            if backup.step(1).unwrap().done {
                break;
            }
        }
        db.shutdown().unwrap();
        if steps < u64::MAX {
            is_refused("step", backup.step(1 << 20));
            drop(backup);
        } else {
            is_refused("end", backup.end());
        }
        is_refused("another", db.backup_begin("/other", &full_speed));
        drop((tree, db));
        let env = Env { disk: process.clone(), clock: Arc::new(SystemClock::default()), seed: 1, background };
        let restored = Database::restore_in(&env, &["/backup"], "/restored");
        assert!(matches!(restored, Err(Error::UnfinishedBackup { .. })), "{restored:?}");
        let db = open(&process, background);
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 300);
        // And is free for the next.
        db.backup_to("/another", &full_speed).unwrap();
    }
}

/// At any step: a backup is either finished or unfinished, and a finished one contains everything.
#[test]
fn a_backup_beside_the_shutdown_ends_or_not() {
    let (mut ended, mut refused) = (0, 0);
    for seed in 0..24u64 {
        let (_sim, process) = sim(seed);
        let db = open(&process, Background::Threads);
        let tree = db.create_tree("t").unwrap();
        for n in 0..200u32 {
            db.transact(|tx| tx.put(&tree, &n.to_be_bytes(), &[7; 1000])).unwrap();
        }
        let calls = AtomicU64::new(0);
        let taken = std::thread::scope(|scope| {
            let (other, calls) = (db.clone(), &calls);
            let backup = scope.spawn(move || {
                let mut backup =
                    other.backup_begin("/backup", &BackupOptions { rate: 0, ..BackupOptions::default() })?;
                while !backup.step(100_000)?.done {
                    calls.fetch_add(1, Ordering::SeqCst);
                }
                calls.store(u64::MAX, Ordering::SeqCst);
                backup.end()
            });
            // After a number of steps, or (the last of them) when its end begins.
            let after = if seed % 4 == 3 { u64::MAX } else { seed % 4 };
            while calls.load(Ordering::SeqCst) < after && !backup.is_finished() {
                std::thread::yield_now();
            }
            db.shutdown().unwrap();
            backup.join().unwrap()
        });
        drop((tree, db));
        let clock = Arc::new(SystemClock::default());
        let env = Env { disk: process.clone(), clock, seed: 1, background: Background::Steps };
        let restored = Database::restore_in(&env, &["/backup"], "/restored");
        match taken {
            Ok(_) => {
                ended += 1;
                restored.unwrap();
                let db = Database::open_in(env, "/restored", options()).unwrap();
                let tree = db.open_tree("t").unwrap();
                assert_eq!(db.begin().unwrap().iter(&tree).count(), 200, "seed {seed}");
                assert_eq!(db.check().unwrap(), [], "seed {seed}");
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, Error::ShutDown), "seed {seed}: {error}");
                assert!(restored.is_err(), "seed {seed}: {restored:?}");
            }
        }
    }
    println!("{ended} backups had their end, {refused} were refused");
}

/// An index build is aborted: its work is rolled back, and the shutdown waits for that.
#[test]
fn an_index_that_is_being_built_is_given_up() {
    for at in [0, 1, 500, 999] {
        let (_sim, process) = sim(at);
        let db = open(&process, Background::Threads);
        let tree = db.create_tree("t").unwrap();
        let rows = (0..1000u32).map(|n| (n.to_be_bytes(), [7; 100]));
        db.transact(|tx| tx.put_rows(&tree, rows.clone())).unwrap();
        std::thread::scope(|scope| {
            let mut shuts = None;
            let mut shut_down = || {
                let other = db.clone();
                shuts = Some(scope.spawn(move || other.shutdown()));
                // The shutdown has begun when no new transaction can begin.
                while db.begin().is_ok() {
                    std::thread::yield_now();
                }
            };
            let mut calls = 0;
            let sorted_outside = IndexOptions { sort_bytes: 20_000, ..IndexOptions::default() };
            let built = db.build_index(
                &tree,
                "index",
                sorted_outside,
                |key, value, index| {
                    if calls == at {
                        shut_down();
                    }
                    calls += 1;
                    index.push([value, key].concat(), key);
                },
                |_| unreachable!("it is not switched to"),
            );
            is_refused("build_index", built);
            assert!(calls <= at + 300, "{calls} calls, {at} of them before the shutdown");
            shuts.unwrap().join().unwrap().unwrap();
        });
        drop((tree, db));
        let db = open(&process, Background::Steps);
        assert!(matches!(db.open_tree("index"), Err(Error::NoSuchTree { .. })));
        assert_eq!(db.trees().unwrap(), ["t"], "no run of the sort is left");
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count(), 1000);
        while db.step().unwrap() {}
        assert_eq!(db.check().unwrap(), []);
        // It can be built now.
        db.build_index(&tree, "index", IndexOptions::default(), |key, _, index| index.push(key, key), |_| Ok(()))
            .unwrap();
    }
}

/// The error of a call that meets the shutdown: it is not a failure, because there is nothing to repair.
#[test]
fn a_shutdown_is_no_failure() {
    let health = seawall::internals::error::Health::default();
    assert!(matches!(health.poison(Error::ShutDown), Error::ShutDown));
    is_refused("check", health.check());
    let late = health.poison(Error::Usage("something else".into()));
    assert!(matches!(late, Error::ShutDown), "{late}");
}

/// A check of a large database reads for minutes. It holds what the background threads need to stop.
#[test]
fn a_check_is_given_up() {
    let (_sim, process) = sim(7);
    let db = open(&process, Background::Threads);
    let tree = db.create_tree("t").unwrap();
    for group in 0..200u32 {
        let rows = (0..100u32).map(|row| ([group.to_be_bytes(), row.to_be_bytes()].concat(), [7; 1000]));
        db.transact(|tx| tx.put_rows(&tree, rows.clone())).unwrap();
    }
    let reads = || db.stats().pool.misses + db.stats().pool.prefetched;
    let before = reads();
    let checked = std::thread::scope(|scope| {
        let other = db.clone();
        let check = scope.spawn(move || other.check());
        while reads() < before + 200 && !check.is_finished() {
            std::thread::yield_now();
        }
        db.shutdown().unwrap();
        check.join().unwrap()
    });
    is_refused("check", checked);
}

#[test]
fn a_shutdown_with_patience_does_not_wait_for_another_one() {
    let db = Database::in_memory().unwrap();
    let open = db.begin().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| db.shutdown());
        while db.begin().is_ok() {
            std::thread::yield_now();
        }
        assert!(matches!(db.shutdown_within(Duration::ZERO), Err(Error::StillRunning { .. })));
        drop(open);
        waits.join().unwrap().unwrap();
    });
}
