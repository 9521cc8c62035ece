//! One cell of a key-value workload, from an empty directory to its result.
//!
//! ```text
//!   data directory ──open──> loaded, settled (or there already) ──[cold: close, drop page cache, open]──> [all read once] ──drive──> result ──close──>
//! ```
//!
//! 1. The load before a workload uses one thread, batches of [`BATCH`] rows in key order, not durable;
//!    settling is not charged to the workload.
//! 2. If the data fits into the pool, all of it is read once before the warm-up, so that reads in memory are
//!    measured.
//! 3. A read that does not find its key, or finds a value of another size, is an error: such a store would be
//!    fast for the wrong reason.

use super::cell::{Cell, Open, Ran, RunConfig, cold};
use super::data_dir::remove;
use super::drive::{Driven, Limit, Outcome, Spec, drive};
pub use super::load::BATCH;
use super::load::{Loader, charge, fill};
use crate::client_batching::ClientBatching;
use crate::observe::Observer;
use crate::process::go_on;
use crate::results::named;
use crate::store::{Error, Result, Session, Store};
use crate::workload::{Keys, Permutation, SHORT_RANGE, Values, Workload, key, thread_rng};
use rand::Rng as _;
use rand_pcg::Pcg64Mcg;
use seawall_lab::run::Progress;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A cold read needs data of at least this many times the pool.
pub const COLD_FACTOR: u64 = 8;
/// A rough estimate of a store's overhead for a row, in percent of its key and value; used only to decide whether all
/// rows fit into the pool.
const OVERHEAD_PERCENT: u64 = 30;
const BENCH: &str = "bench";

/// One cell to run.
#[derive(Debug, Clone)]
pub struct KvRun {
    /// The request.
    pub cell: Cell,
    /// The workload; [`Cell::workload`] has its name.
    pub workload: Workload,
    /// Where, how long, and with what settings.
    pub config: RunConfig,
}

impl KvRun {
    /// Checks the request before anything is written.
    ///
    /// # Errors
    /// What to give instead.
    pub fn check(&self) -> Result<(), String> {
        self.cell.check()?;
        let Cell { keys, value_size, pool_bytes, client_batch, .. } = self.cell;
        if client_batch > 1 && !matches!(self.workload, Workload::Update | Workload::Commit | Workload::Mixed) {
            let workload = self.workload;
            return Err(format!(
                "--client-batch is about puts: workload {workload} has none; use update, commit or mixed"
            ));
        }
        if self.workload.loads() && self.config.reuse {
            return Err(format!("--reuse: {} measures the load itself and needs an empty directory", self.workload));
        }
        if self.workload == Workload::ShortRange && keys < SHORT_RANGE {
            return Err(format!("--keys {keys}: a short range has {SHORT_RANGE} rows; give at least as many"));
        }
        let data = keys.saturating_mul(value_size);
        if self.workload == Workload::PointReadCold && data < pool_bytes.saturating_mul(COLD_FACTOR) {
            let least = pool_bytes.saturating_mul(COLD_FACTOR).div_ceil(value_size);
            return Err(format!(
                "point-read-cold: {keys} keys of {value_size} bytes are {data} bytes, less than {COLD_FACTOR} times \
                 the pool of {pool_bytes} bytes, so that many reads would find their page in memory: give --keys \
                 {least} or more, or a smaller --pool"
            ));
        }
        Ok(())
    }

    /// Runs the cell.
    ///
    /// # Errors
    /// [`Error`]; an error inside the window is in [`Ran::error`] instead, together with the result so far.
    pub fn run(&self, open: &Open<'_>, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<Ran> {
        self.check()?;
        let order = if self.workload == Workload::LoadRandom { "random" } else { "sequential" };
        let (cell, marker) = (&self.cell, self.cell.marker(order));
        let (mut data_dir, settings) = self.config.prepare(cell, marker, &["kv"], cell.data_bytes())?;
        let backup = data_dir.dir().join("backup");
        if self.workload == Workload::CommitBesideBackup && backup.exists() {
            return Err(format!("{} exists: remove it, or give another --dir", backup.display()).into());
        }
        let (mut store, mut ran) = (open(&settings)?, Ran::default());
        let mut fill = || fill(&*store, self.loader(0..self.cell.keys, None, 0), progress, stop);
        if !self.workload.loads() && !self.config.load(&mut data_dir, &mut ran, &mut fill)? {
            store.close()?;
            return Ok(ran);
        }
        if self.workload == Workload::PointReadCold {
            store.close()?;
            store = cold(&settings, open)?;
        } else if self.fits_pool() && !self.workload.loads() {
            self.read_all(&*store, progress, stop)?;
        }
        let batching = (self.cell.client_batch > 1).then(|| ClientBatching::new(self.cell.client_batch));
        let mut observer = Observer::new(data_dir.dir());
        let mut work = || self.drive(&*store, batching.as_ref(), &mut observer, progress, stop);
        let mut extra = vec![("data_bytes", self.cell.data_bytes().into())];
        let mut driven = if self.workload == Workload::CommitBesideBackup {
            let (driven, [backups, bytes]) = beside_backups(&*store, &backup, work);
            extra.extend([("backups", backups.into()), ("backup_bytes", bytes.into())]);
            driven
        } else {
            work()
        };
        if self.workload.writes() && driven.error.is_none() {
            extra.extend(charge(&*store, &mut driven, &mut observer, progress)?);
            if self.workload.loads() {
                data_dir.set_loaded()?;
            }
        }
        let mut result = self.cell.result(&driven, store.about(), data_dir.dir(), ran.load.clone());
        if let Some(batching) = &batching {
            result.origin.settings.insert("client_batch".into(), self.cell.client_batch.to_string());
            extra.push(("client_batch_mean", batching.mean().into()));
        }
        result.extra = named(extra).collect();
        store.close()?;
        Ok(Ran { result: Some(result), error: driven.error, ..ran })
    }

    fn loader(&self, numbers: std::ops::Range<u64>, order: Option<Permutation>, thread: usize) -> Loader {
        Loader::new(numbers, order, self.cell.value_size, self.cell.seed, thread)
    }

    fn fits_pool(&self) -> bool {
        self.cell.data_bytes().saturating_mul(100 + OVERHEAD_PERCENT) / 100 <= self.cell.pool_bytes
    }

    /// Reads every row once.
    fn read_all(&self, store: &dyn Store, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<()> {
        let mut session = store.session()?;
        progress.begin("reading all once", self.cell.keys);
        let mut visit = |_: &[u8], value: &[u8]| {
            std::hint::black_box(value.first());
        };
        for first in (0..self.cell.keys).step_by(BATCH as usize) {
            let count = BATCH.min(self.cell.keys - first);
            match session.scan(&key(first), count, &mut visit) {
                Ok(seen) if seen == count => {}
                Ok(seen) => {
                    let found = format!("{seen} of {count} rows from key {first} on are there");
                    return Err(Error::failed(BENCH, format!("{found}: the data is not what was loaded")));
                }
                // A store that cannot scan, such as the bare disk, has no cache to warm.
                Err(Error::Unsupported { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
            go_on(stop)?;
            progress.at(first, "");
        }
        Ok(())
    }

    fn drive(
        &self,
        store: &dyn Store,
        batching: Option<&ClientBatching>,
        observer: &mut Observer<'_>,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Driven {
        let phase = self.workload.word();
        let (threads, keys, seed) = (self.cell.threads, self.cell.keys, self.cell.seed);
        if self.workload.loads() {
            let spec = Spec::new(threads, Limit::Finished { ops: keys }, stop);
            let order = (self.workload == Workload::LoadRandom).then(|| Permutation::new(keys, seed));
            return drive(&spec, observer, progress, phase, |thread| {
                let part = |thread: usize| (u128::from(keys) * thread as u128 / threads as u128) as u64;
                let mut loader = self.loader(part(thread)..part(thread + 1), order, thread);
                let mut session = store.session()?;
                // A batch that met a conflict is loaded again.
                let mut waiting = false;
                Ok(move || {
                    if !waiting && loader.next_batch().is_none() {
                        return Ok(Outcome::Finished);
                    }
                    let outcome = Outcome::of(session.load(loader.batch(), true), loader.batch().len() as u64)?;
                    waiting = outcome == Outcome::Conflict;
                    Ok(outcome)
                })
            });
        }
        let steady = store.steady();
        let mut spec = self.config.spec(threads, &*steady, stop);
        spec.steady = spec.steady.filter(|_| self.workload.writes());
        drive(&spec, observer, progress, phase, |thread| {
            let mut client = Client::new(self, thread)?;
            let mut session = store.session()?;
            Ok(move || client.operation(&mut *session, batching))
        })
    }
}

/// Runs `work` while one backup of `store` after the other is written into `to`, a directory that does not exist.
/// Returns what was driven, the number of whole backups, and the bytes read for all. It is an error if no backup read
/// anything meanwhile.
fn beside_backups(store: &dyn Store, to: &Path, work: impl FnOnce() -> Driven) -> (Driven, [u64; 2]) {
    let ended = AtomicBool::new(false);
    let back_up = || {
        let (mut backups, mut bytes) = (0, 0);
        while !ended.load(Ordering::SeqCst) {
            let backed_up = store.back_up(to, &mut |more| {
                bytes += more;
                !ended.load(Ordering::SeqCst)
            });
            backups += u64::from(backed_up.is_ok() && !ended.load(Ordering::SeqCst));
            let removed = remove(to);
            backed_up?;
            removed?;
        }
        let none = || Error::failed(BENCH, "no backup was taken meanwhile: give it more time");
        if bytes > 0 { Ok([backups, bytes]) } else { Err(none()) }
    };
    std::thread::scope(|scope| {
        let backups = scope.spawn(back_up);
        let mut driven = work();
        ended.store(true, Ordering::SeqCst);
        let taken = backups.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let taken = taken.unwrap_or_else(|error| {
            driven.error.get_or_insert(error);
            [0, 0]
        });
        (driven, taken)
    })
}

/// One thread's operations.
struct Client {
    workload: Workload,
    keys: Keys,
    values: Values,
    rng: Pcg64Mcg,
    number: u64,
    value: Vec<u8>,
    writes: bool,
    /// The last operation met a conflict and must be repeated.
    again: bool,
}

impl Client {
    fn new(run: &KvRun, thread: usize) -> Result<Self> {
        let (workload, seed) = (run.workload, run.cell.seed);
        // A range must find all its rows.
        let behind = if workload == Workload::ShortRange { SHORT_RANGE - 1 } else { 0 };
        let drawn = run.cell.keys.saturating_sub(behind);
        let keys = Keys::new(workload, drawn, seed)?;
        let values = Values::new(run.cell.value_size as usize, seed);
        let rng = thread_rng(seed, thread);
        Ok(Self { workload, keys, values, rng, number: 0, value: Vec::new(), writes: false, again: false })
    }

    fn operation(&mut self, session: &mut dyn Session, batching: Option<&ClientBatching>) -> Result<Outcome> {
        if !self.again {
            self.number = self.keys.draw(&mut self.rng);
            self.writes = match self.workload {
                Workload::Mixed => self.rng.random(),
                workload => workload.writes(),
            };
            if self.writes {
                self.values.fill(&mut self.value, &mut self.rng);
            }
        }
        let (row, size, new) = (key(self.number), self.values.size(), &self.value);
        // A visit cannot return an error: the size of a wrong value is kept and reported afterwards.
        let (mut found, mut rows) = (size, None);
        let mut visit = |value: &[u8]| {
            let len = std::hint::black_box(value).len();
            found = if len == size { found } else { len };
        };
        let done = if self.workload == Workload::ShortRange {
            session.scan(&row, SHORT_RANGE, &mut |_, value| visit(value)).map(|seen| rows = Some(seen))
        } else if !self.writes {
            session.get(&row, &mut visit).map(|there| found = if there { found } else { 0 })
        } else if self.workload == Workload::ReadModifyWrite {
            session.read_modify_write(&row, &mut |old| {
                visit(old);
                old.clone_from(new);
            })
        } else if let Some(batching) = batching {
            batching.put(session, &row, new)
        } else {
            session.put(&row, new)
        };
        let name = String::from_utf8_lossy(&row);
        let done = done.and_then(|()| match rows {
            _ if found != size => {
                let what = format!("key {name} has {found} bytes where {size} were loaded");
                Err(Error::failed(BENCH, format!("{what}: the store lost or changed it")))
            }
            Some(rows) if rows != SHORT_RANGE => {
                Err(Error::failed(BENCH, format!("{rows} of {SHORT_RANGE} rows from key {name} on are there")))
            }
            _ => Ok(()),
        });
        let outcome = Outcome::of(done, 1)?;
        self.again = outcome == Outcome::Conflict;
        Ok(outcome)
    }
}
