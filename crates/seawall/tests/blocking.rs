//! A scheduler of threads is told of their waits.

use seawall::{
    Background, BlockObserver, Blocking, Database, Durability, Env, Error, LockWait, Options, TxOptions,
    observe_blocking,
};
use seawall_io::SystemClock;
use seawall_sim::{Process, SimDisk, SimOptions};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

#[derive(Debug, Default)]
struct Told {
    now: HashMap<ThreadId, Blocking>,
    locks: u32,
    logs: u32,
    pages: u32,
}

#[derive(Debug, Default, Clone)]
struct Scheduler(Arc<Mutex<Told>>);

/// The engine's own threads wait whenever they like.
fn is_engines() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("seawall-"))
}

impl BlockObserver for Scheduler {
    fn begins(&self, on: Blocking) {
        if is_engines() {
            return;
        }
        let mut told = self.0.lock().unwrap();
        match on {
            Blocking::Lock => told.locks += 1,
            Blocking::Log => told.logs += 1,
            Blocking::Page => told.pages += 1,
        }
        let before = told.now.insert(std::thread::current().id(), on);
        assert_eq!(before, None, "a wait inside a wait for {on:?}");
    }

    fn ended(&self) {
        assert!(is_engines() || self.0.lock().unwrap().now.remove(&std::thread::current().id()).is_some());
    }
}

impl Scheduler {
    /// How often threads have waited for locks, the log and pages since the last call. None waits now.
    fn waits(&self) -> (u32, u32, u32) {
        let told = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(told.now.is_empty(), "{told:?}");
        (told.locks, told.logs, told.pages)
    }

    fn until_waiting(&self, on: Blocking) {
        while !self.0.lock().unwrap().now.values().any(|&now| now == on) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn waits_for_locks_the_log_and_pages_are_told() {
    let sim = SimDisk::new(SimOptions { seed: 7, ..SimOptions::default() });
    let open = || {
        let (disk, clock) = (Arc::new(Process::new(&sim)), Arc::new(SystemClock::default()));
        // The log's thread flushes nothing of its own accord.
        let options = Options::default()
            .with_pool_size(4 << 20)
            .with_data_initial_size(1 << 20)
            .with_flush_interval(Duration::from_secs(3600));
        Database::open_in(Env { disk, clock, seed: 5, background: Background::Threads }, "/db", options).unwrap()
    };
    let scheduler = Scheduler::default();
    observe_blocking(scheduler.clone()).unwrap();
    assert!(matches!(observe_blocking(scheduler.clone()), Err(Error::Usage(_))));
    let db = open();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| (0..3000u32).try_for_each(|row| tx.put(&tree, &row.to_be_bytes(), &[7; 500]))).unwrap();

    scheduler.waits();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"a", b"1").unwrap();
    assert_eq!(scheduler.waits(), (0, 0, 0));
    tx.commit_with(Durability::Flushed).unwrap();
    assert_eq!(scheduler.waits(), (0, 1, 0), "a commit waits for its flush");
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"a", b"2").unwrap();
    tx.commit_with(Durability::Deferred).unwrap();
    assert_eq!(db.get(&tree, b"a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(scheduler.waits(), (0, 0, 0), "nothing to wait for");

    let begin = |wait| db.begin_with(TxOptions { wait, ..TxOptions::default() }).unwrap();
    let mut holder = begin(LockWait::Wait);
    holder.put(&tree, b"a", b"3").unwrap();
    let mut at_once = begin(LockWait::NoWait);
    assert!(at_once.put(&tree, b"a", b"x").is_err());
    assert_eq!(scheduler.waits(), (0, 0, 0), "it does not wait");
    let mut short = begin(LockWait::For(Duration::from_millis(1)));
    assert!(short.put(&tree, b"a", b"x").is_err());
    assert_eq!(scheduler.waits(), (1, 0, 0), "a wait that times out");
    let mut late = begin(LockWait::Wait);
    let interrupt = late.interrupt_handle();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| late.put(&tree, b"a", b"x"));
        scheduler.until_waiting(Blocking::Lock);
        interrupt.interrupt();
        assert!(matches!(waits.join().unwrap(), Err(Error::Interrupted { .. })));
    });
    assert_eq!(scheduler.waits(), (1, 0, 0), "a wait that is interrupted");
    let mut granted = begin(LockWait::Wait);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| granted.delete(&tree, b"a"));
        scheduler.until_waiting(Blocking::Lock);
        holder.rollback().unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
    assert_eq!(scheduler.waits(), (1, 0, 0), "a lock that is granted");
    drop((tree, at_once, short, late, granted));
    db.close().unwrap();

    let db = open();
    let tree = db.open_tree("t").unwrap();
    scheduler.waits();
    assert!(db.get(&tree, &1500u32.to_be_bytes()).unwrap().is_some());
    let (locks, logs, pages) = scheduler.waits();
    assert!((locks, logs) == (0, 0) && (1..4).contains(&pages), "{pages} pages of a path");
    assert!(db.get(&tree, &1500u32.to_be_bytes()).unwrap().is_some());
    assert_eq!(scheduler.waits(), (0, 0, 0), "it is in memory");
    let rows = db.begin().unwrap().iter(&tree).count();
    assert_eq!(rows, 3001);
    assert_eq!(db.check().unwrap(), []);
    drop(db);
    scheduler.waits();
}
