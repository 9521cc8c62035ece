//! Background work: steps that threads take in production, and a test takes one at a time.

use super::options::Options;
use crate::buffer::Progress;
use crate::counted::Mutex;
use crate::error::Result;
use crate::log::Durability;
use crate::txn::{Engine, Purge, SavepointAt, Txn};
use parking_lot::{Condvar, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Kinds of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Flush what waited for its interval; fill, recycle, remove log segments.
    Log,
    /// Write changed pages.
    Clean,
    /// Move the checkpoint.
    Checkpoint,
    /// Roll back what the last process left open.
    Rollback,
    /// Remove what no snapshot sees.
    Purge,
    /// Grow the data file ahead of need.
    Grow,
}

impl Task {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Log, Self::Clean, Self::Checkpoint, Self::Rollback, Self::Purge, Self::Grow];
}

/// How background work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Background {
    /// By threads.
    #[default]
    Threads,
    /// By [`super::Database::step`]. Nothing ever waits: a lock that is held is an error at once.
    Steps,
}

/// What background work works on.
#[derive(Debug)]
pub(super) struct Work {
    pub engine: Arc<Engine>,
    losers: Mutex<Vec<Txn>>,
    /// How many, when that could last be seen without waiting.
    losers_seen: AtomicUsize,
    durability: AtomicU8,
    /// Pages a second, at ease and in need.
    io_capacity: AtomicU32,
    io_capacity_burst: AtomicU32,
    flush_interval_ns: AtomicU64,
    /// How often the statistics are published; 0 for never.
    stats_interval_ns: AtomicU64,
    /// When this flushed the log last, by the clock, ns.
    flushed_ns: AtomicU64,
    stop: AtomicBool,
    idle: Mutex<()>,
    wake: Condvar,
}

/// Purge, rollback and compactions stand still.
#[derive(Debug)]
pub(super) struct Held<'w> {
    _purge: MutexGuard<'w, Purge>,
    _losers: MutexGuard<'w, Vec<Txn>>,
    _compacting: MutexGuard<'w, ()>,
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The longest rest of the cleaner: it has to see soon when it is needed more.
const REST_MAX: Duration = Duration::from_millis(250);

/// Records purged, or undone, in one step.
const RECORDS_A_STEP: usize = 64;

/// Log between checkpoints that background work writes, bytes; less in a small log.
const CHECKPOINT_EVERY_BYTES: u64 = 8 << 20;

impl Work {
    pub(super) fn new(engine: Arc<Engine>, losers: Vec<Txn>, options: &Options) -> Self {
        Self {
            engine,
            losers_seen: AtomicUsize::new(losers.len()),
            losers: Mutex::new(losers),
            durability: AtomicU8::new(options.durability() as u8),
            io_capacity: AtomicU32::new(options.io_capacity()),
            io_capacity_burst: AtomicU32::new(options.io_capacity_burst()),
            flush_interval_ns: AtomicU64::new(nanos(options.flush_interval())),
            stats_interval_ns: AtomicU64::new(nanos(options.stats_interval())),
            flushed_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            idle: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// What a commit waits for unless it says otherwise.
    pub(super) fn durability(&self) -> Durability {
        match self.durability.load(Ordering::Relaxed) {
            x if x == Durability::Deferred as u8 => Durability::Deferred,
            x if x == Durability::Written as u8 => Durability::Written,
            _ => Durability::Flushed,
        }
    }

    pub(super) fn set_durability(&self, durability: Durability) {
        self.durability.store(durability as u8, Ordering::Relaxed);
    }

    /// Pages a second that cleaning may write, at ease and in need.
    pub(super) fn set_io_capacity(&self, calm: u32, burst: u32) {
        self.io_capacity.store(calm, Ordering::Relaxed);
        self.io_capacity_burst.store(burst, Ordering::Relaxed);
    }

    /// How old log below `Flushed` may become. The log keeps to what it was opened with; where this is shorter it is kept to here.
    pub(super) fn set_flush_interval(&self, interval: Duration) {
        self.flush_interval_ns.store(nanos(interval), Ordering::Relaxed);
        self.wake.notify_all();
    }

    /// How often the statistics are published; zero for never.
    pub(super) fn stats_interval(&self) -> Duration {
        Duration::from_nanos(self.stats_interval_ns.load(Ordering::Relaxed))
    }

    pub(super) fn set_stats_interval(&self, interval: Duration) {
        self.stats_interval_ns.store(nanos(interval), Ordering::Relaxed);
    }

    /// Flushes the log when that is due earlier than the log itself thinks.
    fn flush_if_due(&self) -> Result<()> {
        let (log, interval) = (self.engine.log(), self.flush_interval_ns.load(Ordering::Relaxed));
        if interval >= nanos(log.config().flush_interval) {
            return Ok(());
        }
        let (now, head) = (nanos(self.engine.clock.now()), log.oldest_unpublished());
        if log.durable() >= head || now.saturating_sub(self.flushed_ns.load(Ordering::Relaxed)) < interval / 2 {
            return Ok(());
        }
        self.flushed_ns.store(now, Ordering::Relaxed);
        log.flush_to(head)
    }

    /// Holds purge, rollback and compactions until it is dropped: nothing changes but by transactions of users.
    pub(super) fn hold(&self) -> Held<'_> {
        let (purge, losers) = (self.engine.purge.lock(), self.losers.lock());
        Held { _purge: purge, _losers: losers, _compacting: self.engine.compacting.lock() }
    }

    pub(super) fn step(&self, task: Task) -> Result<bool> {
        if self.engine.health().is_read_only() {
            return Ok(false);
        }
        match task {
            Task::Log => self.flush_if_due().and_then(|()| self.engine.log().tend()),
            Task::Clean => self.engine.pool().clean_step().map(|progress| progress.more),
            Task::Checkpoint => self.checkpoint_step(),
            Task::Rollback => self.roll_back_losers(),
            Task::Purge => self.engine.purge.lock().step(&self.engine, RECORDS_A_STEP),
            Task::Grow => self.engine.space.grow_step(),
        }
    }

    /// Moves the checkpoint when it can move by something worth a write.
    fn checkpoint_step(&self) -> Result<bool> {
        let (pool, log) = (self.engine.pool(), self.engine.log());
        let before = pool.checkpoint_lsn();
        if log.head().0 - before.0 < CHECKPOINT_EVERY_BYTES.min(log.capacity() / 8) {
            return Ok(false);
        }
        Ok(pool.checkpoint()? > before)
    }

    fn roll_back_losers(&self) -> Result<bool> {
        let mut losers = self.losers.lock();
        let unfinished = std::mem::take(&mut *self.engine.unfinished.lock());
        losers.extend(unfinished.into_iter().map(|one| Txn::take_up(self.engine.clone(), one)));
        if self.engine.resumed_asked.load(Ordering::SeqCst) {
            // One whose undo cannot be read is met again by its rollback, and holds up no other.
            let learned = losers.iter_mut().try_fold(false, |any, loser| match any {
                true => Ok(true),
                false => loser.learn_trees(RECORDS_A_STEP),
            });
            match learned {
                Ok(true) => return Ok(true),
                all => {
                    self.engine.resumed_asked.store(false, Ordering::SeqCst);
                    all?;
                }
            }
        }
        let Some(loser) = losers.last_mut() else { return Ok(false) };
        for _ in 0..RECORDS_A_STEP {
            match loser.undo_one(SavepointAt::BEGIN) {
                Ok(true) => {}
                Ok(false) => return losers.pop().expect("there was one").rollback().map(|()| true),
                Err(error) => {
                    // One that cannot go on holds up no other.
                    losers.rotate_right(1);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Losers still to be rolled back. Waits for nobody: not for a check, which takes minutes.
    pub(super) fn losers(&self) -> usize {
        if let Some(losers) = self.losers.try_lock() {
            self.losers_seen.store(losers.len(), Ordering::Relaxed);
        }
        self.losers_seen.load(Ordering::Relaxed)
    }

    /// Leaves a database that needs no recovery.
    pub(super) fn close(&self) -> Result<()> {
        for loser in self.losers.lock().iter_mut() {
            loser.keep();
        }
        if self.engine.health().is_read_only() {
            return Ok(());
        }
        self.engine.health().check()?;
        self.engine.pool().close()
    }
}

/// The threads of an open database.
#[derive(Debug)]
pub(super) struct Threads {
    work: Arc<Work>,
    handles: Vec<JoinHandle<()>>,
}

/// Who does what, and how long it sleeps when nothing is due.
const THREADS: &[(&str, &[Task], Duration)] = &[
    ("seawall-log", &[Task::Log], Duration::from_millis(20)),
    ("seawall-clean", &[Task::Clean, Task::Checkpoint, Task::Grow], Duration::from_millis(20)),
    ("seawall-purge", &[Task::Rollback, Task::Purge], Duration::from_millis(50)),
];

impl Threads {
    /// # Errors
    /// When the system starts no more threads.
    pub(super) fn start(work: &Arc<Work>) -> std::io::Result<Self> {
        let mut threads = Self { work: work.clone(), handles: Vec::new() };
        for &(name, tasks, idle) in THREADS {
            let work = work.clone();
            let run = move || work.run(tasks, idle);
            match std::thread::Builder::new().name(name.into()).spawn(run) {
                Ok(handle) => threads.handles.push(handle),
                Err(error) => {
                    threads.stop();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    /// Ends them; returns when they have ended.
    pub(super) fn stop(self) {
        self.work.stop.store(true, Ordering::SeqCst);
        drop(self.work.idle.lock());
        self.work.wake.notify_all();
        for handle in self.handles {
            if handle.join().is_err() {
                // It has panicked, which the panic hook has reported; closing goes on.
            }
        }
    }
}

impl Work {
    fn run(&self, tasks: &[Task], idle: Duration) {
        while !self.stop.load(Ordering::SeqCst) {
            let mut busy = false;
            for &task in tasks {
                // A failed write has poisoned the database by itself; a failed read will be met again by whoever needs the page.
                busy |= match task {
                    Task::Clean => self.clean_paced(),
                    _ => self.step(task),
                }
                .unwrap_or(false);
            }
            if !busy {
                // The log is to be looked at four times an interval.
                let quarter = Duration::from_nanos(self.flush_interval_ns.load(Ordering::Relaxed)) / 4;
                self.rest(if tasks.contains(&Task::Log) { idle.min(quarter) } else { idle });
            }
        }
    }

    fn rest(&self, time: Duration) {
        let mut guard = self.idle.lock();
        if !self.stop.load(Ordering::SeqCst) {
            self.wake.wait_for(&mut guard, time);
        }
    }

    /// A step of cleaning, and the rest after it that keeps to the capacity.
    fn clean_paced(&self) -> Result<bool> {
        let began = self.engine.clock.now();
        let Progress { written, pause, more, .. } = self.engine.pool().clean_step()?;
        let calm = f64::from(self.io_capacity.load(Ordering::Relaxed).max(1));
        let burst = f64::from(self.io_capacity_burst.load(Ordering::Relaxed).max(1));
        // The pool reckons with the capacity that it was opened with.
        let wanted = pause.mul_f64(f64::from(self.engine.pool().config().io_capacity.max(1)) / calm);
        let wanted = wanted.max(Duration::from_secs_f64(written as f64 / burst));
        let rest = wanted.saturating_sub(self.engine.clock.now().saturating_sub(began)).min(REST_MAX);
        if !rest.is_zero() {
            self.rest(rest);
        }
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::{Background, Task};
    use crate::{Database, Env, Options};
    use seawall_sim::{SimDisk, SimOptions};
    use std::sync::Arc;

    /// While a snapshot pins everything, who asks again learns without a look at any stream that nothing is to be done.
    #[test]
    fn purge_looks_at_no_stream_while_every_view_sees_what_it_saw() {
        let disk = SimDisk::new(SimOptions { seed: 3, ..SimOptions::default() });
        let clock = Arc::new(seawall_io::SystemClock::default());
        let env = Env { disk, clock, seed: 1, background: Background::Steps };
        let small = Options::default().with_pool_size(1 << 20).with_data_initial_size(1 << 20);
        let db = Database::open_in(env, "/db", small).unwrap();
        let tree = db.create_tree("t").unwrap();
        // Several streams.
        let mut open: Vec<_> = (0..20).map(|_| db.begin().unwrap()).collect();
        for (tx, n) in open.iter_mut().zip(0u32..) {
            tx.put(&tree, &n.to_be_bytes(), b"v").unwrap();
        }
        open.into_iter().for_each(|tx| tx.commit().unwrap());
        let looked = || db.inner.engine().purge.lock().looked;
        let change = |n: u32| {
            db.transact(|tx| tx.delete(&tree, &(n % 20).to_be_bytes())).unwrap();
            db.transact(|tx| tx.put(&tree, &(n % 20).to_be_bytes(), b"w")).unwrap();
        };
        let held = db.begin().unwrap();
        held.take_snapshot().unwrap();
        change(0);
        while db.step_task(Task::Purge).unwrap() {}
        let before = looked();
        for n in 0..100 {
            change(n);
            assert!(!db.step_task(Task::Purge).unwrap());
        }
        assert_eq!(looked(), before);
        drop(held);
        while db.step_task(Task::Purge).unwrap() {}
        assert!(looked() > before);
        assert_eq!(db.stats().purge.history, 0, "it has caught up");
        // And so it is when what holds purge back is a transaction that writes.
        let mut writer = db.begin().unwrap();
        writer.put(&tree, b"held", b"v").unwrap();
        change(1);
        while db.step_task(Task::Purge).unwrap() {}
        writer.commit().unwrap();
        while db.step_task(Task::Purge).unwrap() {}
        assert_eq!(db.stats().purge.history, 0);
    }
}
