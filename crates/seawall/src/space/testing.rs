//! A machine with a pool on a simulated disk, which can crash and be recovered; for the tests of the layers above the
//! pool.

use super::Space;
use crate::buffer::{ApplyRecord, CONTROL_FILE, Control, Pool, PoolConfig};
use crate::error::{Health, Result};
use crate::format::control::{ControlBlock, Torn};
use crate::format::{TxnId, page, tag};
use crate::log::{FIRST_LSN, Log, LogConfig, LogReader, MTR_BYTES_MAX, Records};
use seawall_io::{Clock, FlushMethod, IoStats, Op, SystemClock};
use seawall_sim::{Fault, Process, SimDisk, SimOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/db";

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) page_bytes: usize,
    pub(crate) frames: u64,
    /// How a record of the log changes a page.
    pub(crate) redo: ApplyRecord,
}

/// A database that runs on the machine.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Arc<Process>,
    pub(crate) pool: Arc<Pool>,
}

impl Machine {
    pub(crate) fn new(seed: u64, frames: u64, redo: ApplyRecord) -> Self {
        let options = SimOptions { seed, trace_entries_max: 0, ..SimOptions::default() };
        Self { disk: SimDisk::new(options), page_bytes: 4096, frames, redo }
    }

    /// Returns another machine, in the state that this one would have after a crash now.
    pub(crate) fn fork(&self, seed: u64) -> Self {
        Self { disk: self.disk.fork(seed), ..*self }
    }

    /// From now on the data file cannot grow.
    pub(crate) fn fill_disk(&self) {
        self.disk.inject(Fault::enospc().on(Op::Grow).path("/db/data"));
    }

    fn log_config(&self, incarnation: u32) -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 20,
            capacity_bytes: 4 << 20,
            buffer_bytes: 4 * MTR_BYTES_MAX,
            incarnation,
            ..LogConfig::new(DIR, [7; 16])
        }
    }

    fn pool_config(&self) -> PoolConfig {
        PoolConfig {
            dir: PathBuf::from(DIR),
            page_bytes: self.page_bytes,
            pool_bytes: self.frames * self.page_bytes as u64,
            pool_bytes_max: self.frames * self.page_bytes as u64,
            method: FlushMethod::ODirect,
            doublewrite_method: FlushMethod::ODirect,
            torn: Torn::Doublewrite,
            atomic_writes: false,
            stats: Arc::new(IoStats::default()),
            clock: Arc::new(SystemClock::default()) as Arc<dyn Clock>,
            io_capacity: 1000,
            io_capacity_burst: 10000,
            max_dirty_percent: 75,
            max_checkpoint_age_percent: 75,
            deferred_percent_min: 20,
            deferred_percent: 20,
            redo: self.redo,
            prefetch_depth: 32,
            prefetch_depth_total: 256,
            patience: Duration::from_secs(5),
        }
    }

    /// Creates an empty database.
    pub(crate) fn create(&self) -> Running {
        let process = Arc::new(Process::new(&self.disk));
        let health = Arc::new(Health::default());
        let log = Arc::new(Log::create(process.clone(), self.log_config(1), health.clone()).expect("log"));
        let block = ControlBlock {
            database: [7; 16],
            page_bytes: self.page_bytes as u32,
            block_bytes: 4096,
            segment_bytes: 1 << 20,
            incarnation: 1,
            torn: Torn::Doublewrite,
            clean: false,
            checkpoint: FIRST_LSN,
            log_end: FIRST_LSN,
            next_txn: TxnId(1),
            log_incarnation: 0,
            log_buffer: 1 << 20,
        };
        let path = Path::new(DIR).join(CONTROL_FILE);
        let control = Control::create(process.clone(), &path, &Arc::default(), block).expect("control");
        let pool = Pool::create(process.clone(), self.pool_config(), control, log, health).expect("pool");
        Running { process, pool: Arc::new(pool) }
    }

    /// Opens the database and replays its log.
    pub(crate) fn recover(&self) -> Result<Running> {
        let process = Arc::new(Process::new(&self.disk));
        let path = Path::new(DIR).join(CONTROL_FILE);
        let control = Control::open(process.clone(), &path, &Arc::default())?;
        let checkpoint = control.current().checkpoint;
        let incarnation = control.begin_incarnation(1 << 20)?;
        let config = self.log_config(incarnation);
        let mut reader = LogReader::open(process.clone(), &config, checkpoint, incarnation - 1)?;
        let mut frames = Vec::new();
        while let Some(frame) = reader.next()? {
            frames.push((frame.start, frame.end, frame.body.to_vec()));
        }
        let health = Arc::new(Health::default());
        let log = Arc::new(Log::open(process.clone(), config, health.clone(), reader.finish()?)?);
        let pool = Pool::open(process.clone(), self.pool_config(), control, log, health)?;
        pool.recover_doublewrite()?;
        for (start, end, body) in &frames {
            let records: Vec<_> = Records::new(body).map(|record| record.expect("a valid frame")).collect();
            let mut numbers: Vec<_> = records.iter().map(|record| record.page).collect();
            numbers.sort_unstable();
            numbers.dedup();
            for number in numbers {
                let mut own = records.iter().filter(|record| record.page == number).peekable();
                let initialises = own.peek().is_some_and(|record| tag::initialises(record.tag));
                let mut latched = pool.redo_page(number, initialises)?;
                if page::lsn(&latched) < *end {
                    for record in own {
                        (self.redo)(record.tag, record.body, latched.redo_bytes())
                            .expect("what was logged can be replayed");
                    }
                    latched.redone(*start, *end);
                }
            }
        }
        Ok(Running { process, pool: Arc::new(pool) })
    }
}

impl Running {
    /// Makes everything done so far durable.
    pub(crate) fn flush_log(&self) {
        self.pool.log().flush_to(self.pool.log().head()).expect("the log is flushed");
    }
}

/// Asserts that a check of the space finds nothing.
pub(crate) fn assert_sound(space: &Space) {
    let check = space.check().expect("the header can be read");
    let findings = check.findings();
    assert!(findings.is_empty(), "{} findings: {:?}", findings.len(), &findings[..findings.len().min(5)]);
}
