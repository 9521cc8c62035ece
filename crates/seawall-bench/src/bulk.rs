//! Workloads for Seawall only: rows popped from the front, a tree built of sorted rows, an index built while threads
//! write.
//!
//! ```text
//!   pop-first   load ──checkpoint──> [pop until none is left] ──> settled
//!   build-tree  [build] ──> settled                               put-many   [put, batch by batch] ──> settled
//!   index       load ──checkpoint──> writers: [alone] [index built] [alone] ──> index checked
//! ```
//!
//! 1. Only the part in brackets counts for a rate; settling is a checkpoint and is reported separately.
//! 2. A wrong result is an error, not a figure: the rows of every tree are counted, and each row is looked up
//!    in an index.
//! 3. Writers share a gate with the index build. The index is made visible, and checked, with the gate closed, so that
//!    it misses none of their changes.
//! 4. `build-tree` and `put-many` take the same rows from the same source.

use crate::observe::{Observed, Observer, cpu_time};
use crate::process::go_on;
use crate::results::Origin;
use crate::run::load::{BATCH, Loader};
use crate::store::Result;
use crate::stores::about;
use crate::workload::{Values, check_keys, key, thread_rng};
use parking_lot::RwLock;
use rand::Rng as _;
use rustix::time::ClockId;
use seawall::{
    BuildOptions, Database, Durability, IndexEntries, IndexOptions, Isolation, Options, Transaction, Tree, TxOptions,
};
use seawall_lab::results::DeviceDelta;
use seawall_lab::words;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TREE: &str = "kv";
const INDEX: &str = "index";
/// Leading bytes of a value that the index orders by.
const INDEXED: usize = 8;

words! {
    /// The task to measure.
    pub enum Task {
        /// Rows popped from the front one by one, [`BATCH`] per transaction.
        PopFirst = "pop-first",
        /// A tree built from sorted rows.
        BuildTree = "build-tree",
        /// The same rows put in order, [`BATCH`] per transaction.
        PutMany = "put-many",
        /// An index built while threads update the indexed rows.
        Index = "index",
    }
}

/// One task to measure.
#[derive(Debug, Clone)]
pub struct Bulk {
    /// The task.
    pub task: Task,
    /// Where the database is created; must not exist.
    pub dir: PathBuf,
    /// Rows.
    pub keys: u64,
    /// Bytes of a value.
    pub value_size: u64,
    /// The pool, bytes.
    pub pool_bytes: u64,
    /// Threads that write while the index is built.
    pub writers: usize,
    /// How long the writers are measured alone before the index build, and again after it.
    pub alone: Duration,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bulked {
    /// The task's name.
    pub workload: &'static str,
    /// `seawall`.
    pub store: &'static str,
    /// Rows popped, built, put or indexed.
    pub ops: u64,
    /// The time they took, s.
    pub duration_s: f64,
    /// Rows a second.
    pub ops_per_s: f64,
    /// Rows a second of the working thread's processor time.
    pub ops_per_cpu_s: f64,
    /// The checkpoint after it, s.
    pub settle_seconds: f64,
    /// Rows a second, the checkpoint included.
    pub sustained_per_s: f64,
    /// Index: commits a second of the writers while it was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_per_s: Option<f64>,
    /// Index: commits a second of the writers alone, before and after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_per_s: Option<f64>,
    /// Rows.
    pub keys: u64,
    /// Bytes of a value.
    pub value_size: u64,
    /// Cores that this process used.
    pub cpu_cores: f64,
    /// Cores that other processes used meanwhile.
    pub foreign_cpu_cores: f64,
    /// Bytes written at the device for each row, settling included.
    pub device_written_bytes_per_op: Option<f64>,
    /// Where the figures come from.
    #[serde(flatten)]
    pub origin: Origin,
}

/// Elapsed and processor time of a task; the writers' rates during an index build.
struct Took {
    wall: Duration,
    cpu: Duration,
    beside_per_s: Option<f64>,
    alone_per_s: Option<f64>,
}

fn take_time(work: impl FnOnce() -> Result<()>) -> Result<Took> {
    let cpu_time = || cpu_time(ClockId::ThreadCPUTime);
    let (wall, cpu) = (Instant::now(), cpu_time());
    work()?;
    let (wall, cpu) = (wall.elapsed(), cpu_time().saturating_sub(cpu));
    Ok(Took { wall, cpu, beside_per_s: None, alone_per_s: None })
}

/// Options of transactions that change the latest version and do not wait at commit.
fn deferred() -> TxOptions {
    TxOptions { isolation: Isolation::ReadCommitted, durability: Some(Durability::Deferred), ..TxOptions::default() }
}

impl Bulk {
    fn options(&self) -> Options {
        Options::default().with_pool_size(self.pool_bytes).with_durability(Durability::Flushed)
    }

    /// Checks the settings before anything is written.
    ///
    /// # Errors
    /// What is wrong, and what to give instead.
    pub fn check(&self) -> Result<(), String> {
        check_keys(self.keys)?;
        let index = self.task == Task::Index;
        if index && self.value_size < INDEXED as u64 {
            return Err(format!("--value-size {}: the index is by {INDEXED} bytes of it", self.value_size));
        }
        if index && (self.writers == 0 || self.alone.is_zero()) {
            return Err("an index beside no writers: give --threads and --duration above 0".into());
        }
        Ok(())
    }

    /// Runs the task. The database stays in [`Bulk::dir`].
    ///
    /// # Errors
    /// [`Error`], also after Ctrl-C.
    pub fn run(&self, stop: &AtomicBool) -> Result<Bulked> {
        self.check()?;
        let db = Database::open_with(&self.dir, self.options())?;
        let mut observer = Observer::new(&self.dir);
        match self.task {
            Task::PopFirst | Task::Index => {
                self.build(&db, stop)?;
                db.checkpoint()?;
            }
            Task::PutMany => drop(db.create_tree(TREE)?),
            Task::BuildTree => {}
        }
        let tree = || db.open_tree(TREE);
        observer.begin();
        let took = match self.task {
            Task::PopFirst => take_time(|| self.pop(&db, &tree()?, stop))?,
            Task::BuildTree => take_time(|| self.build(&db, stop))?,
            Task::PutMany => take_time(|| self.put(&db, &tree()?, stop))?,
            Task::Index => self.index(&db, &tree()?, stop)?,
        };
        let began = Instant::now();
        db.checkpoint()?;
        let settled = began.elapsed();
        let observed = observer.end();
        expect_rows(&db, &tree()?, if self.task == Task::PopFirst { 0 } else { self.keys })?;
        let result = self.result(&took, settled, &observed);
        db.close()?;
        Ok(result)
    }

    fn result(&self, took: &Took, settled: Duration, observed: &Observed) -> Bulked {
        let per_s = |time: Duration| self.keys as f64 / time.as_secs_f64().max(1e-9);
        let per_row = |device: DeviceDelta| device.written_bytes as f64 / self.keys as f64;
        let shown = ["pool_size", "durability", "page_size", "log_capacity"];
        Bulked {
            workload: self.task.word(),
            store: "seawall",
            ops: self.keys,
            duration_s: took.wall.as_secs_f64(),
            ops_per_s: per_s(took.wall),
            ops_per_cpu_s: per_s(took.cpu),
            settle_seconds: settled.as_secs_f64(),
            sustained_per_s: per_s(took.wall + settled),
            beside_per_s: took.beside_per_s,
            alone_per_s: took.alone_per_s,
            keys: self.keys,
            value_size: self.value_size,
            cpu_cores: observed.used.cpu_cores,
            foreign_cpu_cores: observed.used.foreign_cpu_cores,
            device_written_bytes_per_op: observed.device.map(per_row),
            origin: Origin::new(about(&self.options(), &shown), &self.dir),
        }
    }

    fn loader(&self) -> Loader {
        Loader::new(0..self.keys, None, self.value_size, 1, 0)
    }

    fn build(&self, db: &Database, stop: &AtomicBool) -> Result<()> {
        let mut tx = db.begin()?;
        let mut builder = tx.tree_builder(TREE, BuildOptions::default())?;
        let mut loader = self.loader();
        while let Some(rows) = loader.next_batch() {
            rows.iter().try_for_each(|(key, value)| builder.push(key, value))?;
            go_on(stop)?;
        }
        builder.finish()?;
        Ok(tx.commit_with(Durability::Deferred)?)
    }

    fn put(&self, db: &Database, tree: &Tree, stop: &AtomicBool) -> Result<()> {
        let mut loader = self.loader();
        while let Some(rows) = loader.next_batch() {
            let mut tx = db.begin_with(deferred())?;
            tx.put_many(tree, rows)?;
            tx.commit()?;
            go_on(stop)?;
        }
        Ok(())
    }

    fn pop(&self, db: &Database, tree: &Tree, stop: &AtomicBool) -> Result<()> {
        let mut numbers = (0..self.keys).peekable();
        while numbers.peek().is_some() {
            let mut tx = db.begin_with(deferred())?;
            for number in numbers.by_ref().take(BATCH as usize) {
                let popped = tx.pop_first(tree)?;
                if !popped.as_ref().is_some_and(|(k, v)| *k == key(number) && v.len() as u64 == self.value_size) {
                    let popped = popped.map_or("none".into(), |(key, _)| key.escape_ascii().to_string());
                    return Err(format!("key {popped} was first where number {number} was loaded").into());
                }
            }
            tx.commit()?;
            go_on(stop)?;
        }
        Ok(())
    }

    /// Measures the time of the index build, and the writers' commits a second during it and without it.
    fn index(&self, db: &Database, tree: &Tree, stop: &AtomicBool) -> Result<Took> {
        let writers = Writers { over: AtomicBool::new(false), done: AtomicU64::new(0), gate: RwLock::new(()) };
        std::thread::scope(|scope| {
            let writers = &writers;
            let started = (0..self.writers).map(|writer| scope.spawn(move || self.write(db, tree, writer, writers)));
            let threads: Vec<_> = started.collect();
            let measured = self.beside(db, tree, writers, stop);
            writers.over.store(true, Ordering::Relaxed);
            let wrote: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no writer panics")).collect();
            let measured = measured?;
            wrote.into_iter().collect::<Result<(), _>>()?;
            Ok(measured)
        })
    }

    fn beside(&self, db: &Database, tree: &Tree, writers: &Writers, stop: &AtomicBool) -> Result<Took> {
        let count = || writers.done.load(Ordering::Relaxed);
        let alone = || -> Result<(f64, f64)> {
            let (before, began) = (count(), Instant::now());
            while began.elapsed() < self.alone {
                std::thread::sleep(self.alone.saturating_sub(began.elapsed()).min(Duration::from_millis(10)));
                go_on(stop)?;
            }
            Ok(((count() - before) as f64, began.elapsed().as_secs_f64()))
        };
        let before = alone()?;
        let (counted, mut closed) = (count(), None);
        let took = take_time(|| {
            let entries = |key: &[u8], value: &[u8], index: &mut IndexEntries| index.push(entry(key, value), []);
            let switch = |_: &mut Transaction| {
                closed = Some(writers.gate.write());
                Ok(())
            };
            db.build_index(tree, INDEX, IndexOptions::default(), entries, switch)?;
            Ok(())
        })?;
        let beside = (count() - counted) as f64 / took.wall.as_secs_f64().max(1e-9);
        self.check_index(db, tree, stop)?;
        drop(closed);
        let after = alone()?;
        let alone = (before.0 + after.0) / (before.1 + after.1).max(1e-9);
        Ok(Took { beside_per_s: Some(beside), alone_per_s: Some(alone), ..took })
    }

    /// Checks that the index has an entry for each row and no other. The rows must not change meanwhile.
    fn check_index(&self, db: &Database, tree: &Tree, stop: &AtomicBool) -> Result<()> {
        let index = db.open_tree(INDEX)?;
        expect_rows(db, &index, self.keys)?;
        let tx = db.begin()?;
        for row in tx.iter(tree) {
            let (key, value) = row?;
            if tx.get_with(&index, &entry(&key, &value), |_| ())?.is_none() {
                return Err(format!("row {} is not in the index", key.escape_ascii()).into());
            }
            go_on(stop)?;
        }
        let findings = db.check_tree(&index)?;
        findings.first().map_or(Ok(()), |finding| Err(format!("the index is damaged: {finding}").into()))
    }

    /// One writer, until the task is over.
    fn write(&self, db: &Database, tree: &Tree, writer: usize, writers: &Writers) -> Result<(), seawall::Error> {
        let (values, mut rng) = (Values::new(self.value_size as usize, 2), thread_rng(2, writer));
        let mut value = Vec::new();
        while !writers.over.load(Ordering::Relaxed) {
            let number = rng.random_range(0..self.keys);
            values.fill(&mut value, &mut rng);
            let _open = writers.gate.read();
            db.transact(|tx| tx.put(tree, &key(number), &value))?;
            writers.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What the writers share.
struct Writers {
    over: AtomicBool,
    /// Commits.
    done: AtomicU64,
    /// Held shared for each change.
    gate: RwLock<()>,
}

/// The index's entry of a row.
fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&value[..INDEXED.min(value.len())], key].concat()
}

fn expect_rows(db: &Database, tree: &Tree, expected: u64) -> Result<()> {
    let rows = db.begin()?.count(tree, ..)?;
    if rows == expected {
        return Ok(());
    }
    Err(format!("tree {} has {rows} rows where there should be {expected}", tree.name()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Error;

    fn bulk(task: Task, dir: PathBuf) -> Bulk {
        let alone = Duration::from_millis(20);
        Bulk { task, dir, keys: 2500, value_size: 40, pool_bytes: 16 << 20, writers: 2, alone }
    }

    #[test]
    fn every_task_does_what_it_is_asked() {
        for task in Task::ALL {
            let dir = tempfile::tempdir().unwrap();
            let done = bulk(task, dir.path().join("db")).run(&AtomicBool::new(false)).unwrap();
            assert_eq!((done.workload.parse(), done.ops), (Ok(task), 2500));
            assert!(done.ops_per_s > 0.0 && done.ops_per_cpu_s > 0.0, "{done:?}");
            let rates = [done.beside_per_s, done.alone_per_s];
            assert!(rates.iter().all(|rate| rate.is_some() == (task == Task::Index)), "{done:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_ctrl_c_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |task| bulk(task, dir.path().join("db"));
        assert!(Bulk { keys: 0, ..at(Task::PopFirst) }.check().unwrap_err().contains("--keys 0"));
        assert!(Bulk { value_size: 4, ..at(Task::Index) }.check().unwrap_err().contains("--value-size 4"));
        assert!(Bulk { writers: 0, ..at(Task::Index) }.check().unwrap_err().contains("--threads"));
        assert!("pop".parse::<Task>().unwrap_err().contains("build-tree"));
        assert!(!dir.path().join("db").exists());
        assert!(matches!(at(Task::Index).run(&AtomicBool::new(true)), Err(Error::Interrupted)));
    }

    #[test]
    fn a_tree_that_lacks_a_row_is_no_result() {
        let dir = tempfile::tempdir().unwrap();
        let bulk = bulk(Task::Index, dir.path().join("db"));
        let (db, no) = (Database::open_with(&bulk.dir, bulk.options()).unwrap(), AtomicBool::new(false));
        bulk.build(&db, &no).unwrap();
        let tree = db.open_tree(TREE).unwrap();
        expect_rows(&db, &tree, 2500).unwrap();
        let entries = |key: &[u8], value: &[u8], index: &mut IndexEntries| index.push(entry(key, value), []);
        let index = db.build_index(&tree, INDEX, IndexOptions::default(), entries, |_| Ok(())).unwrap();
        bulk.check_index(&db, &tree, &no).unwrap();
        db.transact(|tx| tx.put(&tree, &key(7), &[9; 40])).unwrap();
        let stale = bulk.check_index(&db, &tree, &no).unwrap_err().to_string();
        assert!(stale.contains("is not in the index"), "{stale}");
        db.transact(|tx| tx.pop_first(&index)).unwrap();
        let few = bulk.check_index(&db, &tree, &no).unwrap_err().to_string();
        assert!(few.contains("2499 rows"), "{few}");
    }
}
