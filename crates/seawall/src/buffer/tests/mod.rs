//! The pool as a whole, on the simulated disk.

mod basics;
mod control;
mod crash;
mod deferred;
mod doublewrite;
mod faults;
mod hook;
mod panics;
mod prefetch;
mod prefetcher;
mod threads;

use super::*;
use crate::error::{Health, Result};
use crate::format::control::{ControlBlock, Torn};
use crate::format::{Lsn, Malformed, PageId, TreeId, TxnId, page, tag};
use crate::log::{FIRST_LSN, Log, LogConfig, LogReader, MTR_BYTES_MAX, Record, Records};
use seawall_io::{Clock, Disk, FlushMethod};
use seawall_sim::{Process, SimDisk, SimOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) const DIR: &str = "/db";
pub(super) const PAGE_BYTES: usize = 4096;
/// Tests change this many cells of a page, `u64` each, after the header.
pub(super) const CELLS: usize = (PAGE_BYTES - page::HEADER_BYTES) / 8;

/// Makes a page with one value in all its cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Make(pub(super) u64);

impl Redo for Make {
    const TAG: u8 = 0x20 | tag::INITIALISES;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }
    fn apply(&self, page: &mut [u8]) {
        let number = u32::from_le_bytes(page[page::NUMBER..page::NUMBER + 4].try_into().unwrap());
        // The page number is not in the record's body: tests put it into the value's upper half.
        let number = if number == 0 { (self.0 >> 32) as u32 } else { number };
        page::init(page, PageId(number), TreeId::FIRST_USER, page::PageKind::Leaf, 0);
        for cell in 0..CELLS {
            page::set_u64(page, page::HEADER_BYTES + 8 * cell, self.0);
        }
    }
}

/// Sets one cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Set {
    pub(super) cell: usize,
    pub(super) value: u64,
}

impl Redo for Set {
    const TAG: u8 = 0x21;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.cell as u64).to_le_bytes());
        out.extend_from_slice(&self.value.to_le_bytes());
    }
    fn apply(&self, page: &mut [u8]) {
        page::set_u64(page, page::HEADER_BYTES + 8 * self.cell, self.value);
    }
}

thread_local! {
    /// Whether this thread panics when it applies a record.
    pub(super) static PANICS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Applies a record by its tag.
fn apply_record(tag: u8, body: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    assert!(!PANICS.get(), "planted");
    match tag {
        Make::TAG => Make(number(body)).apply(page),
        Set::TAG => Set { cell: number(&body[..8]) as usize, value: number(&body[8..]) }.apply(page),
        other => panic!("no test logs {other}"),
    }
    Ok(())
}

pub(super) fn cell(page: &[u8], cell: usize) -> u64 {
    page::u64_at(page, page::HEADER_BYTES + 8 * cell)
}

/// The value that a page is made with: its number in the upper half, `low` in the lower.
pub(super) fn made(number: u32, low: u32) -> u64 {
    u64::from(number) << 32 | u64::from(low)
}

/// A clock that advances only by sleeping.
#[derive(Debug, Default)]
pub(super) struct TestClock(std::sync::Mutex<Duration>);

impl Clock for TestClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
    fn sleep(&self, duration: Duration) {
        *self.0.lock().unwrap() += duration;
    }
}

/// A machine with one database on it.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) disk: Arc<SimDisk>,
    pub(super) frames: u64,
    pub(super) frames_max: u64,
    pub(super) torn: Torn,
    pub(super) method: FlushMethod,
    pub(super) log_bytes: u64,
    pub(super) patience: Duration,
    pub(super) clock: Arc<dyn Clock>,
}

/// The parts of a database that the pool needs.
#[derive(Debug)]
pub(super) struct Db {
    pub(super) process: Arc<Process>,
    pub(super) pool: Arc<Pool>,
    pub(super) restored: Vec<PageId>,
    /// Where the log ended at the opening.
    pub(super) recovered: Lsn,
}

impl std::ops::Deref for Db {
    type Target = Pool;
    fn deref(&self) -> &Pool {
        &self.pool
    }
}

impl Machine {
    pub(super) fn new(seed: u64) -> Self {
        Self::with(SimOptions { seed, ..SimOptions::default() })
    }

    pub(super) fn with(options: SimOptions) -> Self {
        Self::on(SimDisk::new(options))
    }

    pub(super) fn on(disk: Arc<SimDisk>) -> Self {
        Self {
            disk,
            frames: 64,
            frames_max: 256,
            torn: Torn::Doublewrite,
            method: FlushMethod::ODirect,
            log_bytes: 2 << 20,
            patience: Duration::ZERO,
            clock: Arc::new(TestClock::default()),
        }
    }

    fn log_config(&self, incarnation: u32) -> LogConfig {
        LogConfig {
            segment_bytes: 64 << 10,
            capacity_bytes: self.log_bytes,
            buffer_bytes: 4 * MTR_BYTES_MAX,
            incarnation,
            clock: self.clock.clone(),
            ..LogConfig::new(DIR, [9; 16])
        }
    }

    pub(super) fn pool_config(&self) -> PoolConfig {
        PoolConfig {
            dir: DIR.into(),
            page_bytes: PAGE_BYTES,
            pool_bytes: self.frames * PAGE_BYTES as u64,
            pool_bytes_max: self.frames_max * PAGE_BYTES as u64,
            method: self.method,
            doublewrite_method: self.method,
            torn: self.torn,
            atomic_writes: false,
            stats: Arc::default(),
            clock: self.clock.clone(),
            io_capacity: 2000,
            io_capacity_burst: 20000,
            max_dirty_percent: 90,
            max_checkpoint_age_percent: 75,
            deferred_percent_min: 20,
            deferred_percent: 20,
            redo: apply_record,
            prefetch_depth: 32,
            prefetch_depth_total: 256,
            patience: self.patience,
        }
    }

    pub(super) fn process(&self) -> Arc<Process> {
        Arc::new(Process::new(&self.disk))
    }

    pub(super) fn create(&self) -> Db {
        self.create_on(self.process()).unwrap()
    }

    pub(super) fn create_on(&self, process: Arc<Process>) -> Result<Db> {
        self.create_through(process.clone(), process)
    }

    /// Like [`Machine::create_on`], but through another disk in front of the process's.
    pub(super) fn create_through(&self, disk: Arc<dyn Disk>, process: Arc<Process>) -> Result<Db> {
        let block = ControlBlock {
            database: [9; 16],
            page_bytes: PAGE_BYTES as u32,
            block_bytes: 4096,
            segment_bytes: 64 << 10,
            incarnation: 0,
            torn: self.torn,
            clean: false,
            checkpoint: FIRST_LSN,
            log_end: FIRST_LSN,
            next_txn: TxnId(1),
            log_incarnation: 0,
            log_buffer: 1 << 20,
        };
        let control = Control::create(disk.clone(), &Path::new(DIR).join(CONTROL_FILE), &Arc::default(), block)?;
        let incarnation = control.begin_incarnation(1 << 20)?;
        let health = Arc::new(Health::default());
        let log = Arc::new(Log::create(disk.clone(), self.log_config(incarnation), health.clone())?);
        disk.sync_dir(Path::new(DIR))?;
        let pool = Pool::create(disk, self.pool_config(), control, log, health)?;
        Ok(Db { process, pool: Arc::new(pool), restored: Vec::new(), recovered: Lsn::ZERO })
    }

    /// Opens the database on a new process and recovers it.
    pub(super) fn open(&self) -> Result<Db> {
        let process = self.process();
        let disk: Arc<dyn Disk> = process.clone();
        let control = Control::open(disk.clone(), &Path::new(DIR).join(CONTROL_FILE), &Arc::default())?;
        let before = control.current();
        let config = self.log_config(before.incarnation + 1);
        let mut frames = Vec::new();
        let mut reader = LogReader::open(disk.clone(), &config, before.checkpoint, before.incarnation)?;
        while let Some(frame) = reader.next()? {
            frames.push((frame.start, frame.end, frame.body.to_vec()));
        }
        let tail = reader.finish()?;
        let recovered = tail.end;
        assert!(tail.end >= before.log_end, "the log is as long as the control block says");
        control.begin_incarnation(1 << 20)?;
        let health = Arc::new(Health::default());
        let log = Arc::new(Log::open(disk.clone(), config, health.clone(), tail)?);
        let pool = Pool::open(disk, self.pool_config(), control, log, health)?;
        let restored = pool.recover_doublewrite()?;
        for (start, end, body) in frames {
            replay(&pool, start, end, &body)?;
        }
        Ok(Db { process, pool: Arc::new(pool), restored, recovered })
    }
}

/// One mini-transaction, applied as recovery does.
fn replay(pool: &Pool, start: Lsn, end: Lsn, body: &[u8]) -> Result<()> {
    let records: Vec<Record<'_>> = Records::new(body).map(|record| record.unwrap()).collect();
    let mut pages: Vec<PageId> = records.iter().map(|record| record.page).collect();
    pages.sort_unstable();
    pages.dedup();
    for page in pages {
        let of_page = || records.iter().filter(|record| record.page == page);
        let mut latched = pool.redo_page(page, of_page().next().is_some_and(|first| tag::initialises(first.tag)))?;
        if page::lsn(&latched) >= end {
            continue;
        }
        for Record { tag, body, .. } in of_page() {
            apply_record(*tag, body, latched.redo_bytes()).unwrap();
        }
        latched.redone(start, end);
    }
    Ok(())
}

impl Db {
    /// Makes a page in a mini-transaction of its own.
    pub(super) fn make(&self, number: u32, low: u32) -> Lsn {
        self.change(|mtr| {
            let held = mtr.fresh(PageId(number))?;
            Ok(move |mtr: &mut Mtr<'_>| mtr.run(held, &Make(made(number, low))))
        })
    }

    /// Sets a cell in a mini-transaction of its own.
    pub(super) fn set(&self, number: u32, cell: usize, value: u64) -> Lsn {
        self.change(|mtr| {
            let held = mtr.latch(PageId(number))?;
            Ok(move |mtr: &mut Mtr<'_>| mtr.run(held, &Set { cell, value }))
        })
    }

    /// A mini-transaction: `latch` latches the pages it needs and returns the closure that changes them.
    pub(super) fn change<C: FnOnce(&mut Mtr<'_>)>(
        &self,
        mut latch: impl FnMut(&mut Mtr<'_>) -> Result<C, crate::error::Stop>,
    ) -> Lsn {
        self.try_change(&mut latch).unwrap()
    }

    pub(super) fn try_change<C: FnOnce(&mut Mtr<'_>)>(
        &self,
        mut latch: impl FnMut(&mut Mtr<'_>) -> Result<C, crate::error::Stop>,
    ) -> Result<Lsn> {
        self.pool.retry(|| {
            let mut mtr = Mtr::begin(&self.pool, MtrSize::Small)?;
            let change = latch(&mut mtr)?;
            change(&mut mtr);
            Ok(mtr.commit())
        })
    }

    /// A cell, read under a shared latch.
    pub(super) fn get(&self, number: u32, at: usize) -> u64 {
        self.pool.retry(|| Ok(cell(&self.pool.shared(PageId(number))?, at))).unwrap()
    }

    /// Evicts every unpinned page, after writing the dirty ones.
    pub(super) fn drop_all(&self) {
        self.pool.flush_all().unwrap();
        self.pool.evict(usize::MAX, true);
    }
}
