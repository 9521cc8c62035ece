//! Workloads for Seawall only: rows popped from the front, a tree built of sorted rows, an index built while threads
//! write.
//!
//! ```text
//!   pop-first   load ──checkpoint──> [pop until none is left] ──> settled
//!   build-tree  [build] ──> settled                               put-many   [put, batch by batch] ──> settled
//!   index       load ──checkpoint──> writers: alone [index built] checked, alone ──> settled
//! ```
//!
//! 1. The part in brackets is the window: one operation of one thread, which counts as many as there are rows.
//! 2. A wrong result is an error, not a figure: the rows of every tree are counted, and each row is looked up
//!    in an index.
//! 3. Writers share a gate with the index build. The index is made visible, and checked, with the gate closed, so that
//!    it misses none of their changes.
//! 4. `build-tree` and `put-many` take the same rows from the same source.

use crate::observe::{Observer, cpu_time};
use crate::process::go_on;
use crate::results::named;
use crate::run::cell::{Cell, Ran, RunConfig};
use crate::run::data_dir::remove;
use crate::run::drive::{Driven, Limit, Outcome, Spec, drive};
use crate::run::load::{BATCH, Loader, charge};
use crate::store::{Error, Result, Store as _};
use crate::stores::Seawall;
use crate::workload::{Values, key, thread_rng};
use parking_lot::RwLock;
use rand::Rng as _;
use rustix::time::ClockId;
use seawall::{
    BuildOptions, Database, Durability, IndexEntries, IndexOptions, Isolation, Transaction, Tree, TxOptions,
};
use seawall_lab::run::{Progress, pause};
use seawall_lab::words;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TREE: &str = "kv";
const INDEX: &str = "index";
/// Leading bytes of a value that the index orders by.
const INDEXED: usize = 8;
/// How long a writer sleeps at the closed gate.
const CLOSED_PAUSE: Duration = Duration::from_millis(1);

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

/// The work of a window.
type Work<'w> = dyn Fn() -> Result<()> + Sync + 'w;
/// A window, and its figures by name.
type Measured = (Driven, Vec<(&'static str, Value)>);

/// One task to measure.
#[derive(Debug, Clone)]
pub struct BulkRun {
    /// The request; [`Cell::workload`] has the task's name, [`Cell::threads`] are the writers beside an index.
    pub cell: Cell,
    /// The task.
    pub task: Task,
    /// Where and with what settings; its duration is that of the writers alone.
    pub config: RunConfig,
}

impl BulkRun {
    /// Checks the request before anything is written.
    ///
    /// # Errors
    /// What is wrong, and what to give instead.
    pub fn check(&self) -> Result<(), String> {
        self.cell.check()?;
        let (Cell { value_size, store, .. }, config) = (&self.cell, &self.config);
        if store != "seawall" {
            return Err(format!("--store {store}: only Seawall has these tasks"));
        }
        if self.task == Task::Index && *value_size < INDEXED as u64 {
            return Err(format!("--value-size {value_size}: the index is by {INDEXED} bytes of it"));
        }
        let timed = matches!(config.limit, Limit::For(_));
        if !timed || config.reuse || config.load_only || config.rate.is_some() || config.steady.is_some() {
            let why = "a task is run once, on rows of its own";
            return Err(format!("{why}: leave --ops, --reuse, --load-only, --rate and --steady out"));
        }
        Ok(())
    }

    /// Runs the task in a directory that is empty before and afterwards.
    ///
    /// # Errors
    /// [`Error`]; an error inside the window is in [`Ran::error`] instead, together with the result so far.
    pub fn run(&self, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<Ran> {
        self.check()?;
        let tables: &[&str] = if self.task == Task::PutMany { &[TREE] } else { &[] };
        let marker = self.cell.marker(self.task.word());
        let (data_dir, settings) = self.config.prepare(&self.cell, marker, tables, self.cell.data_bytes())?;
        let ran = Seawall::open(&settings).and_then(|store| self.measure(store, data_dir.dir(), progress, stop));
        remove(&data_dir.data())?;
        ran
    }

    fn measure(&self, store: Seawall, dir: &Path, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<Ran> {
        let (db, keys, cpu) = (store.database(), self.cell.keys, AtomicU64::new(0));
        if matches!(self.task, Task::PopFirst | Task::Index) {
            self.build(db, stop)?;
            store.settle()?;
        }
        let (mut observer, mut extra) = (Observer::new(dir), Vec::new());
        let mut once = |work: &Work<'_>| {
            let spec = Spec::new(1, Limit::Finished { ops: keys }, stop);
            drive(&spec, &mut observer, progress, self.task.word(), |_| {
                let mut done = false;
                let cpu = &cpu;
                Ok(move || {
                    if std::mem::replace(&mut done, true) {
                        return Ok(Outcome::Finished);
                    }
                    let began = cpu_time(ClockId::ThreadCPUTime);
                    work()?;
                    cpu.store((cpu_time(ClockId::ThreadCPUTime) - began).as_nanos() as u64, Ordering::Relaxed);
                    Ok(Outcome::Done(keys))
                })
            })
        };
        let mut driven = match self.task {
            Task::PopFirst => once(&|| self.pop(db, stop)),
            Task::BuildTree => once(&|| self.build(db, stop)),
            Task::PutMany => once(&|| self.put(&store, stop)),
            Task::Index => {
                let (driven, rates) = self.index(db, stop, once)?;
                extra.extend(rates);
                driven
            }
        };
        if driven.error.is_none() {
            extra.push(("ops_per_cpu_s", (keys as f64 / (cpu.into_inner().max(1) as f64 / 1e9)).into()));
            extra.extend(charge(&store, &mut driven, &mut observer, progress)?);
            expect_rows(db, &db.open_tree(TREE)?, if self.task == Task::PopFirst { 0 } else { keys })?;
        }
        let mut result = self.cell.result(&driven, store.about(), dir, None);
        result.extra = named(extra).collect();
        Box::new(store).close()?;
        Ok(Ran { result: Some(result), load: None, error: driven.error })
    }

    fn loader(&self) -> Loader {
        Loader::new(0..self.cell.keys, None, self.cell.value_size, self.cell.seed, 0)
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

    fn put(&self, store: &Seawall, stop: &AtomicBool) -> Result<()> {
        let (mut loader, mut session) = (self.loader(), store.session()?);
        while let Some(rows) = loader.next_batch() {
            session.load(rows, false)?;
            go_on(stop)?;
        }
        Ok(())
    }

    fn pop(&self, db: &Database, stop: &AtomicBool) -> Result<()> {
        let (tree, durability) = (db.open_tree(TREE)?, Some(Durability::Deferred));
        let options = TxOptions { isolation: Isolation::ReadCommitted, durability, ..TxOptions::default() };
        let mut numbers = (0..self.cell.keys).peekable();
        while numbers.peek().is_some() {
            let mut tx = db.begin_with(options)?;
            for number in numbers.by_ref().take(BATCH as usize) {
                let popped = tx.pop_first(&tree)?;
                if !popped.as_ref().is_some_and(|(k, v)| *k == key(number) && v.len() as u64 == self.cell.value_size) {
                    let popped = popped.map_or("none".into(), |(key, _)| key.escape_ascii().to_string());
                    return Err(failed(format!("key {popped} was first where number {number} was loaded")));
                }
            }
            tx.commit()?;
            go_on(stop)?;
        }
        Ok(())
    }

    /// Measures the index build, and the writers' commits a second during it and without it.
    fn index(&self, db: &Database, stop: &AtomicBool, once: impl FnOnce(&Work<'_>) -> Driven) -> Result<Measured> {
        let tree = &db.open_tree(TREE)?;
        let writers = &Writers::default();
        std::thread::scope(|scope| {
            let started =
                (0..self.cell.threads).map(|writer| scope.spawn(move || self.write(db, tree, writer, writers)));
            let threads: Vec<_> = started.collect();
            let measured = self.beside(db, tree, writers, stop, once);
            writers.over.store(true, Ordering::Relaxed);
            threads.into_iter().try_for_each(|thread| thread.join().expect("no writer panics"))?;
            measured
        })
    }

    fn beside(
        &self,
        db: &Database,
        tree: &Tree,
        writers: &Writers,
        stop: &AtomicBool,
        once: impl FnOnce(&Work<'_>) -> Driven,
    ) -> Result<Measured> {
        let time = if let Limit::For(time) = self.config.limit { time } else { Duration::ZERO };
        let count = || writers.done.load(Ordering::Relaxed);
        let alone = || {
            let (before, began) = (count(), Instant::now());
            pause(time, stop);
            go_on(stop).map(|()| ((count() - before) as f64, began.elapsed().as_secs_f64()))
        };
        let before = alone()?;
        let counted = count();
        let driven = once(&|| {
            let entries = |key: &[u8], value: &[u8], index: &mut IndexEntries| index.push(entry(key, value), []);
            let switch = |_: &mut Transaction| {
                *writers.closed.write() = true;
                Ok(())
            };
            Ok(db.build_index(tree, INDEX, IndexOptions::default(), entries, switch).map(drop)?)
        });
        let beside = (count() - counted) as f64 / driven.window.as_secs_f64().max(1e-9);
        if driven.error.is_some() {
            return Ok((driven, Vec::new()));
        }
        self.check_index(db, tree, stop)?;
        *writers.closed.write() = false;
        let after = alone()?;
        let alone = (before.0 + after.0) / (before.1 + after.1);
        Ok((driven, vec![("beside_per_s", beside.into()), ("alone_per_s", alone.into())]))
    }

    /// One writer, until the task is over.
    fn write(&self, db: &Database, tree: &Tree, writer: usize, writers: &Writers) -> Result<()> {
        let (values, mut rng) = (Values::new(self.cell.value_size as usize, 2), thread_rng(2, writer));
        let mut value = Vec::new();
        while !writers.over.load(Ordering::Relaxed) {
            let closed = writers.closed.read();
            if *closed {
                drop(closed);
                std::thread::sleep(CLOSED_PAUSE);
                continue;
            }
            let number = rng.random_range(0..self.cell.keys);
            values.fill(&mut value, &mut rng);
            db.transact(|tx| tx.put(tree, &key(number), &value))?;
            writers.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks that the index has an entry for each row and no other. The rows must not change meanwhile.
    fn check_index(&self, db: &Database, tree: &Tree, stop: &AtomicBool) -> Result<()> {
        let index = db.open_tree(INDEX)?;
        expect_rows(db, &index, self.cell.keys)?;
        let tx = db.begin()?;
        for row in tx.iter(tree) {
            let (key, value) = row?;
            if tx.get_with(&index, &entry(&key, &value), |_| ())?.is_none() {
                return Err(failed(format!("row {} is not in the index", key.escape_ascii())));
            }
            go_on(stop)?;
        }
        let findings = db.check_tree(&index)?;
        findings.first().map_or(Ok(()), |finding| Err(failed(format!("the index is damaged: {finding}"))))
    }
}

/// What the writers share.
#[derive(Default)]
struct Writers {
    over: AtomicBool,
    /// Commits.
    done: AtomicU64,
    /// Whether the gate is closed; held shared for each change.
    closed: RwLock<bool>,
}

/// The index's entry of a row.
fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&value[..INDEXED.min(value.len())], key].concat()
}

fn failed(why: impl std::fmt::Display) -> Error {
    Error::failed("bulk", why)
}

fn expect_rows(db: &Database, tree: &Tree, expected: u64) -> Result<()> {
    let rows = db.begin()?.count(tree, ..)?;
    if rows == expected {
        return Ok(());
    }
    Err(failed(format!("tree {} has {rows} rows where there should be {expected}", tree.name())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Settings;
    use seawall_lab::run::Silent;

    fn bulk(task: Task, dir: &Path) -> BulkRun {
        let cell = Cell {
            workload: task.word().into(),
            store: "seawall".into(),
            threads: 2,
            keys: 2500,
            value_size: 40,
            durability: Durability::Flushed,
            pool_bytes: 16 << 20,
            client_batch: 1,
            flush_delay_ms: 0.0,
            memory_limit_bytes: None,
            seed: 1,
        };
        let config = RunConfig {
            dir: Some(dir.into()),
            reuse: false,
            load_only: false,
            limit: Limit::For(Duration::from_millis(20)),
            warm_up: None,
            steady: None,
            rate: None,
            options: Vec::new(),
        };
        BulkRun { cell, task, config }
    }

    #[test]
    fn every_task_does_what_it_is_asked() {
        for task in Task::ALL {
            let dir = tempfile::tempdir().unwrap();
            let ran = bulk(task, dir.path()).run(&mut Silent, &AtomicBool::new(false)).unwrap();
            assert!(ran.error.is_none(), "{ran:?}");
            let done = ran.result.unwrap();
            assert_eq!((done.cell.workload.parse(), done.measured.ops), (Ok(task), 2500));
            let figure = |name: &str| done.extra.get(name).and_then(Value::as_f64);
            assert!(done.measured.ops_per_s > 0.0 && figure("ops_per_cpu_s") > Some(0.0), "{done:?}");
            let rates = [figure("beside_per_s"), figure("alone_per_s")];
            assert!(rates.iter().all(|rate| rate.is_some() == (task == Task::Index)), "{done:?}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_ctrl_c_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |task, change: &dyn Fn(&mut BulkRun)| {
            let mut bulk = bulk(task, dir.path());
            change(&mut bulk);
            bulk.check().unwrap_err()
        };
        assert!(refused(Task::PopFirst, &|bulk| bulk.cell.keys = 0).contains("--keys 0"));
        assert!(refused(Task::Index, &|bulk| bulk.cell.value_size = 4).contains("--value-size 4"));
        assert!(refused(Task::Index, &|bulk| bulk.cell.threads = 0).contains("--threads"));
        assert!(refused(Task::PutMany, &|bulk| bulk.cell.store = "lmdb".into()).contains("--store"));
        assert!(refused(Task::PutMany, &|bulk| bulk.config.reuse = true).contains("--reuse"));
        assert!("pop".parse::<Task>().unwrap_err().contains("build-tree"));
        let stopped = bulk(Task::Index, dir.path()).run(&mut Silent, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_tree_that_lacks_a_row_is_no_result() {
        let dir = tempfile::tempdir().unwrap();
        let (bulk, no) = (bulk(Task::Index, dir.path()), AtomicBool::new(false));
        let settings = Settings {
            dir: dir.path().join("db"),
            pool_bytes: 16 << 20,
            durability: Durability::Flushed,
            tables: Vec::new(),
            threads: 1,
            options: Vec::new(),
            flush_delay: Duration::ZERO,
            data_bytes: 0,
        };
        let store = Seawall::open(&settings).unwrap();
        let db = store.database();
        bulk.build(db, &no).unwrap();
        let tree = db.open_tree(TREE).unwrap();
        expect_rows(db, &tree, 2500).unwrap();
        let entries = |key: &[u8], value: &[u8], index: &mut IndexEntries| index.push(entry(key, value), []);
        let index = db.build_index(&tree, INDEX, IndexOptions::default(), entries, |_| Ok(())).unwrap();
        bulk.check_index(db, &tree, &no).unwrap();
        db.transact(|tx| tx.put(&tree, &key(7), &[9; 40])).unwrap();
        let stale = bulk.check_index(db, &tree, &no).unwrap_err().to_string();
        assert!(stale.contains("is not in the index"), "{stale}");
        db.transact(|tx| tx.pop_first(&index)).unwrap();
        let few = bulk.check_index(db, &tree, &no).unwrap_err().to_string();
        assert!(few.contains("2499 rows"), "{few}");
    }
}
