//! Opening after `kill -9`: how long it takes, and its lower bound.
//!
//! ```text
//!   writer: load, close │ open with a cleaner that hardly works, update until so much log lies behind the checkpoint,
//!           say `ready`, SIGKILL to itself
//!   parent: copy it, open the copy from the page cache: `apply_s`
//!           drop the page cache, open, get one row: `open_s`
//!           the same log read in sequence, the data file read at random: `read_log_s`, `read_pages_s`; `bound_s` is the greatest
//! ```
//!
//! 1. The rates are measured after the opening, on the same files: caches below the engine that the opening
//!    fills can only lower the bound. The time to apply the log is that of another opening, of a copy whose
//!    files are all in the page cache.
//! 2. Pages read are counted as in a pool that holds all rows, so that no page counts twice.

use crate::observe::{Observer, drop_page_cache};
use crate::process::{self, failed};
use crate::results::{Origin, named};
use crate::run::load::Loader;
use crate::scan::fio;
use crate::store::{About, Error, Result};
use crate::workload::{Values, key};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rustix::process::{Signal, getpid, kill_process};
use seawall::{DATA_FILE, Database, Durability, Options};
use seawall_io::{FileClass, Op};
use seawall_lab::run::files_below;
use serde::Serialize;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TREE: &str = "kv";
/// Rows of a transaction: many, so that the log grows fast.
const CHANGES: u64 = 100;
/// Transactions between two checks of the log's length.
const LOOK_EVERY: u64 = 16;
/// fio's reads of the log, one after the other.
const LOG_READS: [&str; 4] = ["--rw=read", "--ioengine=psync", "--bs=1M", "--runtime=3s"];
/// Random reads of fio: as many as the opening may have in flight.
const RANDOM_READS: [&str; 5] =
    ["--rw=randread", "--ioengine=psync", "--numjobs=16", "--group_reporting", "--runtime=3s"];
/// The most time that fio gets.
const FIO_TIME: Duration = Duration::from_secs(120);
/// The most time that the writer gets.
const WRITER_TIME: Duration = Duration::from_secs(600);
/// The writer's message when the log has the requested length, followed by the length in bytes.
const READY: &str = "ready ";

/// The database to open.
#[derive(Debug, Clone)]
pub struct Restart {
    /// Where the database is created; must not exist.
    pub dir: PathBuf,
    /// Log after the last checkpoint, bytes.
    pub log_bytes: u64,
    /// Rows.
    pub keys: u64,
    /// Bytes of a value.
    pub value_size: u64,
    /// The pool, bytes.
    pub pool_bytes: u64,
}

/// The result: each term of the bound separately.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Restarted {
    /// `restart`.
    pub workload: &'static str,
    /// `seawall`.
    pub store: &'static str,
    /// From the call that opens to the first row, s.
    pub open_s: f64,
    /// The greatest of the three terms, s.
    pub bound_s: f64,
    /// Log after the checkpoint when the process was killed, bytes.
    pub log_bytes: u64,
    /// Bytes of log that the opening read; bytes read twice count twice.
    pub log_read_bytes: u64,
    /// Direct reads of 1 MiB in sequence over a file of the log, bytes a second.
    pub log_read_bytes_per_s: f64,
    /// Time to read the log, s.
    pub read_log_s: f64,
    /// Pages of the data file that the opening read.
    pub pages_read: u64,
    /// Direct random reads of a page of the same file by 16 jobs, per second.
    pub random_reads_per_s: f64,
    /// Time to read the pages, s.
    pub read_pages_s: f64,
    /// Time to open a copy of the database whose files are in the page cache, s.
    pub apply_s: f64,
    /// Processor time of the opening, s.
    pub cpu_s: f64,
    /// Cores that other processes used during the opening.
    pub foreign_cpu_cores: f64,
    /// Where the figures come from.
    #[serde(flatten)]
    pub origin: Origin,
}

/// The copy of the database at `dir` that a run makes and removes.
pub fn copy_of(dir: &Path) -> PathBuf {
    dir.with_extension("copy")
}

impl Restart {
    fn settings(&self) -> [(&'static str, String); 5] {
        [
            ("pool_size", self.pool_bytes.to_string()),
            // Far from full, so that no log pressure speeds up the cleaner.
            ("log_capacity", (self.log_bytes * 4 + (64 << 20)).to_string()),
            ("io_capacity", "10".into()),
            ("io_capacity_burst", "20".into()),
            ("max_dirty_percent", "99".into()),
        ]
    }

    fn options(&self) -> seawall::Result<Options> {
        let mut options = Options::default();
        for (name, value) in self.settings() {
            options.set(name, &value)?;
        }
        Ok(options)
    }

    /// The writer's part: creates the database, changes it until its log is as long as asked for, says so, and kills
    /// this process: SIGKILL leaves no time to clean up.
    ///
    /// # Errors
    /// Those of the database.
    pub fn write(&self, stop: &AtomicBool, mut say: impl FnMut(&str)) -> seawall::Result<()> {
        let values = Values::new(self.value_size as usize, 1);
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut value = Vec::new();
        let db = Database::open_with(&self.dir, Options::default().with_pool_size(self.pool_bytes))?;
        let tree = db.create_tree(TREE)?;
        let mut loader = Loader::new(0..self.keys, None, self.value_size, 1, 0);
        while let Some(rows) = loader.next_batch() {
            let mut tx = db.begin()?;
            tx.put_many(&tree, rows)?;
            tx.commit_with(Durability::Deferred)?;
            if stop.load(Ordering::Relaxed) {
                return db.close();
            }
        }
        db.close()?;

        let db = Database::open_with(&self.dir, self.options()?)?;
        let tree = db.open_tree(TREE)?;
        for turn in 1.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut tx = db.begin()?;
            for _ in 0..CHANGES {
                values.fill(&mut value, &mut random);
                tx.put(&tree, &key(random.random_range(0..self.keys)), &value)?;
            }
            // All of the reported length must be in the file.
            let long = turn % LOOK_EVERY == 0 && db.stats().log.checkpoint_age_bytes >= self.log_bytes;
            tx.commit_with(if long { Durability::Flushed } else { Durability::Deferred })?;
            if long {
                say(&format!("{READY}{}", db.stats().log.checkpoint_age_bytes));
                kill_process(getpid(), Signal::KILL).unwrap_or(());
            }
        }
        db.close()
    }

    /// Runs `writer`, opens the database it left, and measures the bound.
    ///
    /// # Errors
    /// In words, including Ctrl-C.
    pub fn run(&self, writer: Command, stop: &AtomicBool) -> Result<Restarted> {
        let log_bytes = killed(writer, stop)?;
        let apply_s = self.apply_time()?;
        drop_page_cache(&self.dir)?;

        let mut observer = Observer::new(&self.dir);
        observer.begin();
        let began = Instant::now();
        let db = Database::open_with(&self.dir, self.options()?)?;
        let tree = db.open_tree(TREE)?;
        let found = db.begin()?.get(&tree, &key(0))?;
        let open_s = began.elapsed().as_secs_f64();
        let observed = observer.end();
        if found.is_none_or(|value| value.len() as u64 != self.value_size) {
            return Err(Error::Other("a row that was loaded is not there after the restart".into()));
        }
        let stats = db.stats();
        let read_bytes = |class| {
            let reads = stats.io.cells.iter().filter(move |cell| cell.class == class && cell.op == Op::Read);
            reads.map(|cell| cell.bytes).sum::<u64>()
        };
        let (log_read_bytes, data_read) = (read_bytes(FileClass::Redo), read_bytes(FileClass::Data));
        // No page is needed twice if all fit: a repeated read is the opening's own cost.
        let pages_read = data_read.min(stats.space.data_bytes) / stats.pool.page_bytes.max(1);
        drop(tree);
        let log_read_bytes_per_s = self.log_rate(stop)?;
        let random_reads_per_s = self.random_reads(stats.pool.page_bytes, stop)?;
        db.close()?;

        let about = About { version: env!("CARGO_PKG_VERSION").into(), settings: named(self.settings()).collect() };
        let read_log_s = log_bytes as f64 / log_read_bytes_per_s;
        let read_pages_s = pages_read as f64 / random_reads_per_s;
        Ok(Restarted {
            workload: "restart",
            store: "seawall",
            open_s,
            bound_s: read_log_s.max(read_pages_s).max(apply_s),
            log_bytes,
            log_read_bytes,
            log_read_bytes_per_s,
            read_log_s,
            pages_read,
            random_reads_per_s,
            read_pages_s,
            apply_s,
            cpu_s: observed.used.cpu_cores * open_s,
            foreign_cpu_cores: observed.used.foreign_cpu_cores,
            origin: Origin::new(about, &self.dir),
        })
    }

    /// The time to open a copy whose files are in the page cache, s: recovery without waiting for the disk.
    fn apply_time(&self) -> Result<f64> {
        let copy = copy_of(&self.dir);
        let told = failed(format!("copying to {}", copy.display()));
        let copied = files_below(&self.dir).into_iter().try_for_each(|from| {
            let to = copy.join(from.strip_prefix(&self.dir).unwrap_or(&from));
            std::fs::create_dir_all(to.parent().unwrap_or(&copy))?;
            std::fs::copy(&from, &to)?;
            // Some file systems copy by sharing extents, which leaves nothing in the page cache.
            std::io::copy(&mut std::fs::File::open(&to)?, &mut std::io::sink()).map(drop)
        });
        let opened = || -> seawall::Result<f64> {
            let mut options = self.options()?;
            for name in ["data_flush_method", "log_flush_method"] {
                options.set(name, "fsync")?;
            }
            let began = Instant::now();
            let db = Database::open_with(&copy, options)?;
            db.begin()?.get(&db.open_tree(TREE)?, &key(0))?;
            let took = began.elapsed().as_secs_f64();
            db.close()?;
            Ok(took)
        };
        let took = copied.map_err(&told).and_then(|()| opened().map_err(failed("opening the copy")));
        std::fs::remove_dir_all(&copy).map_err(&told)?;
        took
    }

    /// Direct sequential reads of the log, bytes a second: of its oldest file, which is full.
    fn log_rate(&self, stop: &AtomicBool) -> Result<f64> {
        let is_log =
            |file: &PathBuf| file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"redo."));
        let oldest = files_below(&self.dir).into_iter().filter(is_log).min();
        let oldest = oldest.ok_or_else(|| format!("{} has no log file to be read", self.dir.display()))?;
        Ok(fio::run(&oldest, &LOG_READS, FIO_TIME, stop)?.0.mb_per_s * 1e6)
    }

    /// Direct random page reads a second from the data file.
    fn random_reads(&self, page_bytes: u64, stop: &AtomicBool) -> Result<f64> {
        let block = format!("--bs={page_bytes}");
        let arguments: Vec<&str> = RANDOM_READS.into_iter().chain([&*block]).collect();
        Ok(fio::run(&self.dir.join(DATA_FILE), &arguments, FIO_TIME, stop)?.0.reads_per_s)
    }
}

/// Runs the writer, which kills itself; returns the length of its log.
fn killed(writer: Command, stop: &AtomicBool) -> Result<u64> {
    let (status, said) = process::ended(writer, WRITER_TIME, stop)?;
    let length = said.out.lines().find_map(|line| line.strip_prefix(READY)?.trim().parse().ok());
    let length = length.filter(|_| status.signal() == Some(Signal::KILL.as_raw()));
    length
        .ok_or_else(|| format!("the writer ended before its log was as long as asked for: {}", said.err.trim()).into())
}
