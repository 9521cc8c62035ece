//! Background work: threads run its steps in production; a test runs one step at a time.

use super::options::Options;
use crate::buffer::Progress;
use crate::counted::Mutex;
use crate::error::Result;
use crate::format::TxnId;
use crate::log::Durability;
use crate::txn::{Engine, Purge, SavepointAt, Txn};
use parking_lot::{Condvar, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Kinds of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Flush log that is as old as the flush interval; fill, recycle, remove log segments.
    Log,
    /// Write dirty pages.
    Clean,
    /// Move the checkpoint.
    Checkpoint,
    /// Roll back the losers of the last process, and continue rollbacks that stopped.
    Rollback,
    /// Purge undo and deleted rows that no snapshot sees.
    Purge,
    /// Read the space maps that are still unread, then grow the data file in advance.
    Grow,
}

impl Task {
    /// All tasks.
    pub const ALL: &'static [Self] =
        &[Self::Log, Self::Clean, Self::Checkpoint, Self::Rollback, Self::Purge, Self::Grow];
}

/// How background work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Background {
    /// By threads.
    #[default]
    Threads,
    /// By [`super::Database::step`]. Nothing ever waits: a lock conflict is an error at once.
    Steps,
}

/// The state that background work uses.
#[derive(Debug)]
pub(super) struct Work {
    pub engine: Arc<Engine>,
    losers: Mutex<Vec<Txn>>,
    /// The number of losers, as last read without waiting.
    losers_seen: AtomicUsize,
    durability: AtomicU8,
    /// How often the statistics are published; 0 for never.
    stats_interval_ns: AtomicU64,
    stop: AtomicBool,
    idle: Mutex<()>,
    wake: Condvar,
}

/// While this exists, purge, rollback and compactions are blocked.
#[derive(Debug)]
pub(super) struct WorkBlocked<'w> {
    _purge: MutexGuard<'w, Purge>,
    _losers: MutexGuard<'w, Vec<Txn>>,
    _compacting: MutexGuard<'w, ()>,
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The longest pause of the cleaner, so that it soon notices a higher demand.
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
            stats_interval_ns: AtomicU64::new(nanos(options.stats_interval())),
            stop: AtomicBool::new(false),
            idle: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// The default durability of a commit.
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

    /// Sets how old unflushed log may become.
    pub(super) fn set_flush_interval(&self, interval: Duration) {
        self.engine.log().set_flush_interval(interval);
        self.wake.notify_all();
    }

    /// Returns how often the statistics are published; zero for never.
    pub(super) fn stats_interval(&self) -> Duration {
        Duration::from_nanos(self.stats_interval_ns.load(Ordering::Relaxed))
    }

    pub(super) fn set_stats_interval(&self, interval: Duration) {
        self.stats_interval_ns.store(nanos(interval), Ordering::Relaxed);
    }

    /// Blocks purge, rollback and compactions until the result is dropped: meanwhile only user transactions
    /// change the database.
    pub(super) fn hold(&self) -> WorkBlocked<'_> {
        let (purge, losers) = (self.engine.purge.lock(), self.losers.lock());
        WorkBlocked { _purge: purge, _losers: losers, _compacting: self.engine.compacting.lock() }
    }

    pub(super) fn step(&self, task: Task) -> Result<bool> {
        if self.engine.health().is_read_only() {
            return Ok(false);
        }
        match task {
            Task::Log => self.engine.log().tend(),
            Task::Clean => self.engine.pool().clean_step().map(|progress| progress.more),
            Task::Checkpoint => self.checkpoint_step(),
            Task::Rollback => self.roll_back_losers(),
            Task::Purge => self.engine.purge.lock().step(&self.engine, RECORDS_A_STEP),
            Task::Grow => self.engine.space.grow_step(),
        }
    }

    /// Does a step of purge, only for transactions whose ids are less than `next`.
    pub(super) fn purge_before(&self, next: TxnId) -> Result<bool> {
        if self.engine.health().is_read_only() {
            return Ok(false);
        }
        self.engine.purge.lock().step_before(&self.engine, RECORDS_A_STEP, next)
    }

    /// Moves the checkpoint if it can move far enough to be worth a write.
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
            // A loser whose undo cannot be read does not stop the others.
            let mut failed = None;
            for loser in losers.iter_mut() {
                match loser.learn_trees(RECORDS_A_STEP) {
                    Ok(true) => return Ok(true),
                    Ok(false) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            self.engine.resumed_asked.store(false, Ordering::SeqCst);
            if let Some(error) = failed {
                return Err(error);
            }
        }
        let Some(loser) = losers.last_mut() else { return Ok(false) };
        for _ in 0..RECORDS_A_STEP {
            match loser.undo_one(SavepointAt::BEGIN) {
                // Others wait for `losers`.
                Ok(true) if loser.is_freeing_a_tree() => return Ok(true),
                Ok(true) => {}
                Ok(false) => return losers.pop().expect("there was one").rollback().map(|()| true),
                Err(error) => {
                    // A loser that cannot continue does not delay the others.
                    losers.rotate_right(1);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Returns the number of losers still to be rolled back. It does not wait for a mutex, because a check can
    /// hold it for minutes.
    pub(super) fn losers(&self) -> usize {
        if let Some(losers) = self.losers.try_lock() {
            self.losers_seen.store(losers.len(), Ordering::Relaxed);
        }
        self.losers_seen.load(Ordering::Relaxed)
    }

    /// Closes the database so that it needs no recovery.
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

/// The threads, their tasks, and how long each sleeps if nothing is due.
const THREADS: &[(&str, &[Task], Duration)] = &[
    ("seawall-log", &[Task::Log], Duration::from_millis(20)),
    ("seawall-clean", &[Task::Clean, Task::Checkpoint, Task::Grow], Duration::from_millis(20)),
    ("seawall-purge", &[Task::Rollback, Task::Purge], Duration::from_millis(50)),
];

impl Threads {
    /// # Errors
    /// If the system cannot start another thread.
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

    /// Stops the threads; returns when they have ended.
    pub(super) fn stop(self) {
        self.work.stop.store(true, Ordering::SeqCst);
        drop(self.work.idle.lock());
        self.work.wake.notify_all();
        for handle in self.handles {
            if handle.join().is_err() {
                // The thread has panicked, and the panic hook has reported that; closing continues.
            }
        }
    }
}

impl Work {
    fn run(&self, tasks: &[Task], idle: Duration) {
        while !self.stop.load(Ordering::SeqCst) {
            let mut busy = false;
            for &task in tasks {
                // A failed write has already poisoned the database; after a failed read, a thread that needs
                // the page gets the error.
                busy |= match task {
                    Task::Clean => self.clean_paced(),
                    _ => self.step(task),
                }
                .unwrap_or(false);
            }
            if !busy {
                // Checks the log four times in an interval.
                let quarter = self.engine.log().flush_interval() / 4;
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

    /// Runs one step of the cleaner, then the pause that limits its rate to the I/O capacity.
    fn clean_paced(&self) -> Result<bool> {
        let began = self.engine.clock.now();
        let Progress { pause, more, .. } = self.engine.pool().clean_step()?;
        let rest = pause.saturating_sub(self.engine.clock.now().saturating_sub(began)).min(REST_MAX);
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

    /// While a snapshot holds back all undo, repeated purge steps find without reading any undo log that
    /// there is nothing to do.
    #[test]
    fn purge_looks_at_no_stream_while_every_view_sees_what_it_saw() {
        let disk = SimDisk::new(SimOptions { seed: 3, ..SimOptions::default() });
        let clock = Arc::new(seawall_io::SystemClock::default());
        let env = Env { disk, clock, seed: 1, background: Background::Steps };
        let small = Options::default().with_pool_size(1 << 20).with_data_initial_size(1 << 20);
        let db = Database::open_in(env, "/db", small).unwrap();
        let tree = db.create_tree("t").unwrap();
        // Several undo logs.
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
        // The same holds if a writing transaction holds back purge.
        let mut writer = db.begin().unwrap();
        writer.put(&tree, b"held", b"v").unwrap();
        change(1);
        while db.step_task(Task::Purge).unwrap() {}
        writer.commit().unwrap();
        while db.step_task(Task::Purge).unwrap() {}
        assert_eq!(db.stats().purge.history, 0);
    }
}
