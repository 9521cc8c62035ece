//! The log as a whole, on the simulated disk.

mod basics;
mod crash;
mod damage;
mod files;
mod levels;
mod ring_file;
mod threads;

use super::*;
use crate::format::PageId;
use seawall_io::Disk;
use seawall_sim::{Process, SimDisk, SimOptions};
use std::sync::Mutex;

pub(super) const DIR: &str = "/db";

/// A clock that moves only when set.
#[derive(Debug, Default)]
pub(super) struct TestClock(Mutex<Duration>);

impl TestClock {
    pub(super) fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

/// A machine with one database on it.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) disk: Arc<SimDisk>,
    pub(super) clock: Arc<TestClock>,
    pub(super) method: FlushMethod,
    pub(super) segment_bytes: u64,
    pub(super) buffer_bytes: usize,
    pub(super) ring_dir: Option<PathBuf>,
}

impl Machine {
    pub(super) fn new(seed: u64) -> Self {
        Self::with(SimOptions { seed, ..SimOptions::default() })
    }

    pub(super) fn with(options: SimOptions) -> Self {
        Self {
            disk: SimDisk::new(options),
            clock: Arc::default(),
            method: FlushMethod::ODirect,
            segment_bytes: 64 << 10,
            buffer_bytes: 4 * MTR_BYTES_MAX,
            ring_dir: None,
        }
    }

    /// Returns the same machine with another disk.
    pub(super) fn on(&self, disk: Arc<SimDisk>) -> Self {
        Self { disk, clock: self.clock.clone(), ring_dir: self.ring_dir.clone(), ..*self }
    }

    /// Returns the same machine in one of its possible futures.
    pub(super) fn fork(&self, seed: u64) -> Self {
        self.on(self.disk.fork(seed))
    }

    pub(super) fn config(&self, incarnation: u32) -> LogConfig {
        LogConfig {
            method: self.method,
            block_bytes: 4096,
            segment_bytes: self.segment_bytes,
            capacity_bytes: 2 * self.buffer_bytes as u64,
            buffer_bytes: self.buffer_bytes,
            ring_dir: self.ring_dir.clone(),
            incarnation,
            clock: self.clock.clone(),
            ..LogConfig::new(DIR, [9; 16])
        }
    }

    pub(super) fn create(&self) -> (Arc<Process>, Log) {
        let process = Arc::new(Process::new(&self.disk));
        let log = Log::create(process.clone(), self.config(1), Arc::default()).unwrap();
        (process, log)
    }

    /// Reads from `from` on. Returns the bodies and the tail.
    #[allow(clippy::needless_pass_by_value)] // a disk is handed over
    pub(super) fn read(&self, disk: Arc<dyn Disk>, from: Lsn, incarnation_max: u32) -> Result<(Vec<Vec<u8>>, LogTail)> {
        let config = self.config(incarnation_max + 1);
        let mut reader = LogReader::open(disk.clone(), &config, from, incarnation_max)?;
        reader.with_ring(&disk, &config)?;
        let mut bodies = Vec::new();
        let mut at = from;
        while let Some(entry) = reader.next()? {
            assert_eq!(entry.start, at);
            at = entry.end;
            if !entry.body.is_empty() {
                bodies.push(entry.body.to_vec());
            }
        }
        let tail = reader.finish()?;
        assert_eq!(tail.end, at);
        Ok((bodies, tail))
    }

    /// Reads everything and continues in the next incarnation.
    pub(super) fn reopen(&self, from: Lsn, incarnation: u32) -> Result<(Arc<Process>, Log, Vec<Vec<u8>>)> {
        let process = Arc::new(Process::new(&self.disk));
        let (bodies, tail) = self.read(process.clone(), from, incarnation - 1)?;
        let log = Log::open(process.clone(), self.config(incarnation), Arc::default(), tail)?;
        Ok((process, log, bodies))
    }
}

/// Admits, reserves and publishes; returns the end.
pub(super) fn append(log: &Log, body: &[u8]) -> Lsn {
    loop {
        match log.try_admit(body.len()).unwrap() {
            Ok(credit) => {
                let reservation = log.reserve(credit, body.len());
                let end = reservation.end;
                reservation.publish(body);
                return end;
            }
            Err(NoRoom::Buffer) => log.make_room(body.len()).unwrap(),
            Err(NoRoom::Checkpoint(lsn)) => {
                log.flush_to(lsn).unwrap();
                log.release_before(lsn);
            }
        }
    }
}

/// Makes a body that contains its number.
pub(super) fn body(i: usize, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    push_record(&mut out, 0x21, PageId(i as u32), |out| out.resize(out.len() + len, i as u8));
    out
}
