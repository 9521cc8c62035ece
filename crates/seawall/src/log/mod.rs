//! The log: an endless stream of entries, made durable in groups. See DESIGN.md, "Log".
//!
//! 1. *Admit, reserve, publish, wait.* [`Log::try_admit`] promises space before any latch is taken; [`Log::reserve`]
//!    takes a position while all pages are latched; [`Reservation::publish`] copies the bytes and computes the CRC; a
//!    commit waits for durability with no latch held ([`Log::wait`]).
//! 2. `durable_whole <= durable <= written <= head`, and each only grows. Everything before `written` is published
//!    (`oldest_unpublished` may report less for a moment: `slots.rs`, 6). Reads of the files see the log up to
//!    `written`; a successful flush covers everything before `durable`; `durable_whole` is the end of the last entry
//!    before it.
//! 3. The first failed write or flush poisons the database; nothing is written after it, and every waiter
//!    gets that error.
//! 4. Log acknowledged below `Flushed` is durable, or younger than the flush interval: no byte that is not durable is
//!    older than `Led::fresh_since_ns`, and commits wait when the time since then reaches the interval.
//! 5. An opening of the database first makes an empty entry of its own incarnation durable. From then on, no entry that
//!    an earlier opening left after the end can be taken for the next one (trap 1).
//!
//! | file | holds |
//! |---|---|
//! | `entry`, `record` | the format |
//! | `slots` | which mini-transaction owns which bytes (lock-free), and up to where everything is published |
//! | `ring` | the bytes in memory |
//! | `ring_file` | the ring in a file, which outlives the process |
//! | `waiters` | the group-commit leader and the threads that wait |
//! | `watch` | callbacks for a durable position |
//! | `writer` | a group: one write, one flush |
//! | `segments` | the files: which exist, and making them |
//! | `segment_file` | one file: its name, and how it is opened |
//! | `shelf` | which files are open |
//! | `hold` | which files a backup still needs |
//! | `reader` | reading the log back |

mod entry;
mod hold;
#[cfg(test)]
mod model;
mod read_ahead;
mod reader;
mod record;
mod ring;
mod ring_file;
mod segment_file;
mod segments;
mod shelf;
mod slots;
mod stats;
mod sync;
#[cfg(test)]
mod tests;
mod waiters;
mod watch;
mod writer;

pub use hold::LogHold;
pub use reader::{LogEntry, LogReader, LogTail};
#[cfg(feature = "internals")]
pub use record::Record;
pub use record::{Records, push_record};
pub use segment_file::is_of_log;
pub use stats::LogStats;
pub use writer::quickest;

use crate::error::{Error, Health, Result};
use crate::format::Lsn;
use crate::mutants::Mutant;
use entry::{HEADER_BYTES, Seal};
use ring::{EntrySlot, Full, Promise, Ring, RingMemory};
use ring_file::RingFile;
use seawall_io::{Clock, Disk, EffectiveMode, FlushMethod, IoStats, SystemClock};
use segment_file::SegmentOptions;
use segments::{SEGMENTS_MIN, Segments};
use shelf::Shelf;
use stats::{Counters, count};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use sync::Padded;
use waiters::Waiters;
use watch::Watch;
use writer::{Blank, LeaderState, Need, Wanted};

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Durability {
    /// 0: the oldest unflushed commit is younger than the flush interval. A crash loses at most that interval.
    Deferred,
    /// 2: the log is written, or in a ring that outlives the process (option `log_ring_dir`). Survives a crash of the
    /// process; loses at most the flush interval on power loss.
    Written,
    /// 1: the log is flushed. Survives power loss.
    #[default]
    Flushed,
}

/// Options of the log.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// The directory of the segments.
    pub dir: PathBuf,
    /// How the log is flushed.
    pub method: FlushMethod,
    /// Unit of writing, bytes; at least the physical sector. A power of two from 512 to 64 KiB.
    pub block_bytes: usize,
    /// Size of a segment, bytes; a multiple of `block_bytes` and of 4096. Fixed when the database is made.
    pub segment_bytes: u64,
    /// The most log kept, bytes; at least three segments, and at least one segment and 4 x [`MTR_BYTES_MAX`].
    pub capacity_bytes: u64,
    /// Free space on the log's file system that additional segments must leave, bytes.
    pub reserve_bytes: u64,
    /// Whether new segments are filled with zeroes before their use, and not only allocated.
    pub written: bool,
    /// Size of the buffer in memory, bytes; a power of two, at least 4 x [`MTR_BYTES_MAX`].
    pub buffer_bytes: usize,
    /// The directory of the ring's file, relative to `dir`: what is published there survives the death of the process,
    /// so [`Durability::Written`] needs no write. `None`: the ring is this process's own memory.
    pub ring_dir: Option<PathBuf>,
    /// The longest that log acknowledged below [`Durability::Flushed`] stays unflushed
    /// ([`Log::set_flush_interval`]).
    pub flush_interval: Duration,
    /// The database's identity: part of every CRC.
    pub database: [u8; 16],
    /// This opening's number, from 1: part of every CRC.
    pub incarnation: u32,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub stats: Arc<IoStats>,
}

impl LogConfig {
    /// The defaults for a log in `dir`, for the first opening of a database.
    ///
    /// ```
    /// use seawall::internals::log::LogConfig;
    /// let config = LogConfig::new("/srv/db", [7; 16]);
    /// assert_eq!((config.segment_bytes, config.capacity_bytes), (16 << 20, 1 << 30));
    /// ```
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, database: [u8; 16]) -> Self {
        Self {
            dir: dir.into(),
            method: FlushMethod::ODirect,
            block_bytes: 4096,
            segment_bytes: 16 << 20,
            capacity_bytes: 1 << 30,
            reserve_bytes: 64 << 20,
            written: true,
            buffer_bytes: 16 << 20,
            ring_dir: None,
            flush_interval: Duration::from_secs(1),
            database,
            incarnation: 1,
            clock: Arc::new(SystemClock::default()),
            stats: Arc::default(),
        }
    }

    fn check(&self) -> Result<()> {
        let refuse = |name: &str, value: u64, why: &str| {
            Err(Error::InvalidOption { name: name.into(), value: value.to_string(), why: why.into() })
        };
        let block = self.block_bytes as u64;
        if !self.block_bytes.is_power_of_two() || !(512..=BLOCK_BYTES_MAX).contains(&block) {
            return refuse("log_block_bytes", block, "a power of two from 512 to 65536");
        }
        if self.segment_bytes == 0 || self.segment_bytes % block.max(4096) != 0 {
            return refuse("log_segment_bytes", self.segment_bytes, "a multiple of 4096 and of log_block_bytes");
        }
        self.check_capacity(self.capacity_bytes)?;
        if !self.buffer_bytes.is_power_of_two() || self.buffer_bytes < 4 * MTR_BYTES_MAX {
            return refuse("log_buffer_bytes", self.buffer_bytes as u64, "a power of two, at least 1 MiB");
        }
        if self.incarnation == 0 {
            return refuse("incarnation", 0, "at least 1");
        }
        Ok(())
    }

    fn check_capacity(&self, bytes: u64) -> Result<()> {
        let least = (SEGMENTS_MIN * self.segment_bytes).max(self.segment_bytes + 4 * MTR_BYTES_MAX as u64);
        if bytes >= least && bytes < 1 << 60 {
            return Ok(());
        }
        let why = format!("at least {least} bytes with segments of {}", self.segment_bytes);
        Err(Error::InvalidOption { name: "log_capacity_bytes".into(), value: bytes.to_string(), why })
    }
}

/// The largest unit of writing, bytes.
const BLOCK_BYTES_MAX: u64 = 64 << 10;

/// The most bytes one mini-transaction may log.
pub const MTR_BYTES_MAX: usize = 256 << 10;

/// Where the first mini-transaction of a database begins. No position lies before it: 0 means "never".
pub const FIRST_LSN: Lsn = Lsn(4096);

/// The log of an open database.
#[derive(Debug)]
pub struct Log {
    config: LogConfig,
    seal: Seal,
    health: Arc<Health>,
    /// See [`Log::set_flush_interval`].
    flush_interval_ns: AtomicU64,
    ring: Ring,
    ring_file: Option<RingFile>,
    led: Padded<Led>,
    waiters: Waiters<Box<LeaderState>, Wanted>,
    segments: Segments,
    watch: Watch,
}

/// What the leader writes with each group. Only one thread at a time writes it, so the fields share cache lines.
#[derive(Debug)]
#[repr(C)]
struct Led {
    durable: AtomicU64,
    /// The end of the last whole entry before `durable`.
    durable_whole: AtomicU64,
    /// Every byte that is not durable was reserved at this time (of the clock, ns) or later.
    fresh_since_ns: AtomicU64,
    /// Threads in the last group or just too late for it: an estimate of the concurrent commits.
    committers: AtomicU32,
    /// How long a group takes by itself, with its flush: see [`Log::quickest_flush`]; ns.
    flush_ns: AtomicU32,
    counters: Counters,
}

/// Space in the log for one mini-transaction. Dropping it gives the space back; [`Log::reserve`] gives back what the
/// mini-transaction does not need.
#[derive(Debug)]
pub struct Credit<'l> {
    log: &'l Log,
    promise: Promise<'l>,
}

/// Space in the log for one mini-transaction that is logged later: a [`Credit`] that does not borrow the log.
/// [`Log::credit`] turns it back into a credit.
#[derive(Debug)]
#[must_use = "room that is not given back is lost until the database is opened again"]
pub struct KeptRoom(u64);

impl Credit<'_> {
    /// Keeps the space beyond the borrow of the log.
    pub fn keep(self) -> KeptRoom {
        KeptRoom(self.promise.keep())
    }
}

/// A position in the log that belongs to one mini-transaction. Nothing after it can be written until it is published.
///
/// Dropping it unpublished poisons the database: the log can never be written past it.
#[derive(Debug)]
pub struct Reservation<'l> {
    /// Where its entry begins.
    pub start: Lsn,
    /// Where its entry ends: the LSN of its pages.
    pub end: Lsn,
    log: &'l Log,
    place: Option<EntrySlot<'l>>,
}

impl Reservation<'_> {
    /// Copies the body into the buffer and publishes it.
    ///
    /// # Panics
    /// When `body` does not have the reserved length: pages carry the LSN already.
    pub fn publish(mut self, body: &[u8]) {
        let log = self.log;
        // Another mini-transaction may have damaged the page before it poisoned the database. A leader that began
        // before that would write this entry, and the next opening finds everything published in the ring: so the log
        // ends here.
        if log.health.check().is_err() {
            return;
        }
        let place = self.place.take().expect("a reservation is published once");
        // Everything durable now lies before this entry, which is not published yet.
        let durable = log.led.0.durable.load(Ordering::Acquire);
        let header = log.seal.encode(place.start(), log.config.incarnation, durable, body);
        place.publish(&header, body);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        // The error itself goes to the next user of the database.
        drop(self.log.health.poison(Error::Usage(format!(
            "a mini-transaction at {} was given up after its position was taken: this is a bug, please report it",
            self.start
        ))));
        place.abandon();
    }
}

/// Why a mini-transaction cannot be admitted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// The log is at its capacity: the checkpoint must advance to at least this position.
    Checkpoint(Lsn),
    /// The buffer or the window of open segments is full: the log must be written ([`Log::make_room`]).
    Buffer,
}

impl Log {
    /// Creates the log of a new database at its first LSN, with as few segments as possible.
    ///
    /// # Errors
    /// [`Error::InvalidOption`]; [`Error::NotADatabase`] when there are segments already; [`Error::NoSpace`];
    /// [`Error::Io`].
    pub fn create(disk: Arc<dyn Disk>, config: LogConfig, health: Arc<Health>) -> Result<Self> {
        config.check()?;
        if let Some(found) = segment_file::list(&*disk, &config.dir)?.into_values().next() {
            let why = "the log of a new database would begin here, but there is one already".into();
            return Err(Error::NotADatabase { path: found, why });
        }
        let at = FIRST_LSN.0;
        let number = at / config.segment_bytes;
        let written = Segments::create_first(&disk, &config, number)?;
        let blank = (!written).then(|| Blank::new(number, config.segment_bytes));
        let floor = at & !(config.block_bytes as u64 - 1);
        let prefix = vec![0; (at - floor) as usize];
        let shelf = Arc::new(Shelf::new(disk.clone(), &config.dir, SegmentOptions::of(&config)));
        let log = Self::start(disk, config, health, at, at, &prefix, (shelf, BTreeSet::from([number])), blank)?;
        log.segments.make_up_to(at + 1, &log.led.0.counters)?;
        Ok(log)
    }

    /// Removes the log in `dir`. Only for an interrupted creation, when the database is known to have never existed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(disk: &dyn Disk, dir: &Path) -> Result<()> {
        segment_file::discard(disk, dir)
    }

    /// Continues the log of an existing database where `tail` ends, in a new incarnation, which must already be durable
    /// in the control block. Makes everything before `tail.end` durable; assumes that the log before `tail.from` is not
    /// needed. Afterwards [`Log::head`] is a little beyond `tail.end`: the opening logs an entry of its own, without
    /// records.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], [`Error::Usage`] when `config.incarnation` is not above every one in the
    /// log, [`Error::NoSpace`], [`Error::Io`].
    pub fn open(disk: Arc<dyn Disk>, config: LogConfig, health: Arc<Health>, tail: LogTail) -> Result<Self> {
        config.check()?;
        let ghosts = health.has(Mutant::GhostTail);
        if config.incarnation <= tail.last_incarnation && !ghosts {
            return Err(Error::Usage(format!(
                "the log was written by incarnation {}: {} cannot go on with it",
                tail.last_incarnation, config.incarnation
            )));
        }
        let LogTail { from, end, last_incarnation: _, durable, prefix, ghosts_end, shelf, numbers } = tail;
        segment_file::remove_unfinished(&*disk, &config.dir)?;
        // A killed process may have renamed a segment without syncing the directory.
        disk.sync_dir(&config.dir)?;
        let log = Self::start(disk, config, health, from.0, end.0, &prefix, (shelf, numbers), None)?;
        log.begin_incarnation(from.0..durable, if ghosts { 0 } else { ghosts_end })?;
        Ok(log)
    }

    /// Returns the log of a database that is opened read-only and was closed at `end`. It opens no file, and `health`
    /// refuses every admission.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn open_read_only(disk: Arc<dyn Disk>, config: LogConfig, health: Arc<Health>, end: Lsn) -> Result<Self> {
        debug_assert!(health.is_read_only(), "nothing is appended to it");
        let config = LogConfig { buffer_bytes: 4 * MTR_BYTES_MAX, ring_dir: None, ..config };
        config.check()?;
        let floor = end.0 & !(config.block_bytes as u64 - 1);
        let prefix = vec![0; (end.0 - floor) as usize];
        let shelf = Arc::new(Shelf::new(disk.clone(), &config.dir, SegmentOptions::of(&config)));
        Self::start(disk, config, health, end.0, end.0, &prefix, (shelf, BTreeSet::new()), None)
    }

    #[allow(clippy::too_many_arguments)] // one caller for each way to begin
    fn start(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        health: Arc<Health>,
        checkpoint: u64,
        at: u64,
        prefix: &[u8],
        (shelf, numbers): (Arc<Shelf>, BTreeSet<u64>),
        blank: Option<Blank>,
    ) -> Result<Self> {
        let made = if health.is_read_only() { None } else { RingFile::make(&disk, &config)? };
        let (ring_file, memory) = made.unzip();
        let memory = memory.map_or_else(|| RingMemory::own(config.buffer_bytes), RingMemory::Shared);
        let (ring, reader) = Ring::new(memory, config.block_bytes, at, prefix);
        let segments = Segments::new(disk, &config, health.clone(), (checkpoint, at), shelf, numbers);
        let now = ns(config.clock.now());
        Ok(Self {
            seal: Seal::new(&config.database),
            health,
            flush_interval_ns: AtomicU64::new(ns(config.flush_interval)),
            ring,
            ring_file,
            led: Padded(Led {
                durable: AtomicU64::new(at),
                durable_whole: AtomicU64::new(at),
                fresh_since_ns: AtomicU64::new(now),
                committers: AtomicU32::new(0),
                flush_ns: AtomicU32::new(0),
                counters: Counters::default(),
            }),
            waiters: Waiters::new(Box::new(LeaderState::new(reader, blank))),
            segments,
            watch: Watch::default(),
            config,
        })
    }

    /// Makes durable what an earlier opening left beyond `durable`, which begins with the checkpoint and ends where the
    /// log was known to be durable, and erases what it left beyond the end.
    fn begin_incarnation(&self, durable: Range<u64>, ghosts_end: u64) -> Result<()> {
        let end = self.ring.head();
        self.write_again(durable.start, durable.end..end)?;
        self.erase(end, ghosts_end)?;
        let bytes = HEADER_BYTES as u64;
        self.segments.make_up_to(end + bytes, &self.led.0.counters)?;
        // This may exceed the limit for admissions, which keeps one segment of the capacity in reserve.
        let unlimited = AtomicU64::new(u64::MAX);
        let promise = self.ring.promise_exactly(bytes, &unlimited).expect("an empty buffer has room for a header");
        let reservation = self.reserve(Credit { log: self, promise }, 0);
        let end = reservation.end;
        reservation.publish(&[]);
        self.flush_to(end)
    }

    /// Promises space for a mini-transaction with a body of at most `bytes`. Waits for no write and no checkpoint;
    /// makes a segment, or waits until another thread has made it, if background work did not keep ahead. No latch may
    /// be held.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::NoSpace`] when the log can neither grow nor reuse the files it has;
    /// [`Error::Usage`] for more than [`MTR_BYTES_MAX`].
    pub fn try_admit(&self, bytes: usize) -> Result<std::result::Result<Credit<'_>, NoRoom>> {
        self.health.check()?;
        if bytes > MTR_BYTES_MAX {
            return Err(Error::Usage(format!(
                "a mini-transaction of {bytes} bytes: at most {MTR_BYTES_MAX} can be logged"
            )));
        }
        let need = (HEADER_BYTES + bytes) as u64;
        loop {
            match self.ring.promise(need, self.segments.limit()) {
                Ok(promise) => return Ok(Ok(Credit { log: self, promise })),
                Err(Full::Buffer) => {
                    count(&self.led.0.counters.waits_for_buffer, 1);
                    return Ok(Err(NoRoom::Buffer));
                }
                Err(Full::Limit(after)) => {
                    let (head, counters) = (self.ring.head(), &self.led.0.counters);
                    if let Some(no_room) = self.segments.make_room(need, after, head, counters)? {
                        return Ok(Err(no_room));
                    }
                }
            }
        }
    }

    /// Turns kept space into a credit. Dropping the credit gives the space back.
    pub fn credit(&self, KeptRoom(bytes): KeptRoom) -> Credit<'_> {
        Credit { log: self, promise: self.ring.kept(bytes) }
    }

    /// Returns the space that is promised and not used yet, bytes.
    #[cfg(test)]
    pub(crate) fn promised_and_not_logged(&self) -> u64 {
        self.ring.give_back_shares();
        self.ring.promised() - self.ring.head()
    }

    /// Refuses admissions from now on, unless a mini-transaction is admitted now; returns whether it refuses them. A
    /// thread that asks for space then waits until the database is poisoned.
    pub fn seal(&self) -> bool {
        self.ring.seal()
    }

    /// Reserves the position of a body of exactly `bytes`. All pages of the mini-transaction must be latched.
    /// Never fails.
    ///
    /// # Panics
    /// When `bytes` is more than was admitted.
    pub fn reserve<'l>(&'l self, credit: Credit<'l>, bytes: usize) -> Reservation<'l> {
        debug_assert!(std::ptr::eq(self, credit.log), "a credit is of one log");
        // If this is the first entry after everything was durable, nothing that is not durable is older than `now`.
        let head = self.ring.head();
        let now = (self.led.0.durable.load(Ordering::Relaxed) == head).then(|| self.now_ns());
        let place = self.ring.place(credit.promise, (HEADER_BYTES + bytes) as u64);
        if let Some(now) = now.filter(|_| place.start() == head) {
            self.led.0.fresh_since_ns.fetch_max(now, Ordering::AcqRel);
        }
        Reservation { start: Lsn(place.start()), end: Lsn(place.end()), log: self, place: Some(place) }
    }

    /// Returns where the next mini-transaction will begin.
    pub fn head(&self) -> Lsn {
        Lsn(self.ring.head())
    }

    /// Returns a position before which no unpublished mini-transaction begins.
    pub fn oldest_unpublished(&self) -> Lsn {
        Lsn(self.ring.oldest_unpublished())
    }

    /// Returns the position before which everything is written.
    pub fn written(&self) -> Lsn {
        Lsn(self.ring.written())
    }

    /// Returns the position before which everything is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.led.0.durable.load(Ordering::Acquire))
    }

    /// Returns the end of the last mini-transaction that is durable as a whole. [`Log::durable`] can lie inside the
    /// next one, where a segment ends; recovery never ends inside an entry.
    pub fn durable_whole(&self) -> Lsn {
        Lsn(self.led.0.durable_whole.load(Ordering::Acquire))
    }

    /// Returns whether a commit whose mini-transaction ends at `lsn` is complete at `level`. In a poisoned database,
    /// returns `false` for a position that is not durable.
    pub fn reached(&self, lsn: Lsn, level: Durability) -> bool {
        self.is_done(Wanted::of(lsn, level))
    }

    /// Waits until `lsn` is reached at `level`; writes as leader if no other thread does. No latch may be
    /// held.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when the log could not be written or flushed, now or before: whether `lsn` is
    /// durable is then unknown. [`Error::Usage`] when `lsn` lies beyond the log.
    pub fn wait(&self, lsn: Lsn, level: Durability) -> Result<()> {
        if self.reached(lsn, level) {
            return Ok(());
        }
        self.health.check()?;
        if lsn.0 > self.ring.head() {
            return Err(Error::Usage(format!("{lsn} lies beyond the log, which ends at {}", self.head())));
        }
        self.wait_for(Wanted::of(lsn, level))
    }

    /// Makes everything before `lsn` durable.
    ///
    /// # Errors
    /// As [`Log::wait`].
    pub fn flush_to(&self, lsn: Lsn) -> Result<()> {
        self.wait(lsn, Durability::Flushed)
    }

    /// Makes space in the buffer for a mini-transaction of `bytes`, or waits for space, after an admission was refused
    /// with [`NoRoom::Buffer`]; the caller then asks again. Writes what is published. If all of that is written
    /// already, the space is promised to other mini-transactions, and the call sleeps until one of them gives some
    /// back. No latch may be held.
    ///
    /// # Errors
    /// As [`Log::wait`].
    pub fn make_room(&self, bytes: usize) -> Result<()> {
        let target = self.ring.oldest_unpublished();
        if target <= self.ring.written() {
            self.ring.wait_for_room((HEADER_BYTES + bytes) as u64, self.segments.limit());
            return self.health.check();
        }
        self.wait_for(Wanted { lsn: target, need: Need::Room })
    }

    /// Releases the log before `checkpoint`, which must be durable.
    pub fn release_before(&self, checkpoint: Lsn) {
        self.segments.release_before(checkpoint.0.min(self.durable().0));
    }

    /// Changes how much log is kept, bytes. Background work makes and removes files as they are needed and
    /// become free.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] below three segments.
    pub fn set_capacity(&self, bytes: u64) -> Result<()> {
        self.config.check_capacity(bytes)?;
        self.segments.set_capacity(bytes);
        Ok(())
    }

    /// Makes files until the log has the fewest among which it can rotate. For a caller that is about to take space on
    /// the same file system, and could never give it back without a log. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`].
    pub fn make_least(&self) -> Result<()> {
        self.segments.make_least(&self.led.0.counters)
    }

    /// Changes how much free space additional segments must leave, bytes.
    pub fn set_space_reserve(&self, bytes: u64) {
        self.segments.set_reserve(bytes);
    }

    /// Returns how much log is kept at most, bytes.
    pub fn capacity(&self) -> u64 {
        self.segments.capacity()
    }

    /// Removes the ring's file: the log has ended and is durable, so the next opening does not need the ring.
    pub fn forget_ring(&self) {
        if let Some(ring) = &self.ring_file {
            ring.remove(&self.config);
        }
    }

    /// Changes how the log is flushed, while it is in use. Commits wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when earlier writes cannot be made durable. After [`Error::Io`] nothing is lost, and
    /// segments are flushed as before. An open segment that could not be changed back is flushed the new way, which is
    /// safe: each file knows what its own writes need.
    pub fn set_method(&self, method: FlushMethod) -> Result<()> {
        self.health.check()?;
        self.while_no_thread_writes(|| self.segments.set_method(method))
    }

    /// Returns the flush mode in effect for the segment being written, and the requested one.
    pub fn mode(&self) -> EffectiveMode {
        let unknown = || EffectiveMode {
            requested: self.config.method,
            direct: false,
            align_bytes: 1,
            rwf_dsync: false,
            degraded: Some("no segment is open".into()),
        };
        self.segments
            .mode(self.ring.written())
            .or_else(|| self.segments.mode(self.ring.written() - 1))
            .unwrap_or_else(unknown)
    }

    /// Does one step of background work: flushes log before its age reaches the interval, writes log before it fills
    /// the buffer, fills or recycles a segment, or removes some. Returns whether there is more to do now. Call it at
    /// least four times per interval.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when writing failed. Any other error ([`Error::NoSpace`], [`Error::Io`]) concerns
    /// a segment that could not be prepared: nothing is lost, and it is tried again later.
    pub fn tend(&self) -> Result<bool> {
        if self.tend_writing()? {
            return Ok(true);
        }
        // Shares of threads that no longer write must not keep space from others.
        self.ring.give_back_shares();
        self.segments.tend(self.ring.promised(), &self.led.0.counters)
    }

    /// Removes files that are not needed, including those that a backup holds, because the disk is full. Returns
    /// `false` if there are none.
    pub fn give_way(&self) -> bool {
        self.segments.give_way(&self.led.0.counters)
    }

    /// Returns the counters since the opening.
    pub fn stats(&self) -> LogStats {
        self.led.0.counters.snapshot(self.ring.published())
    }

    /// Sets how long log acknowledged below [`Durability::Flushed`] stays unflushed, from now on.
    pub fn set_flush_interval(&self, interval: Duration) {
        self.flush_interval_ns.store(ns(interval), Ordering::Relaxed);
    }

    /// The longest that log acknowledged below [`Durability::Flushed`] stays unflushed.
    pub fn flush_interval(&self) -> Duration {
        Duration::from_nanos(self.flush_interval_ns.load(Ordering::Relaxed))
    }

    /// Returns the options that the log was opened with. Capacity, flush method and flush interval may have changed
    /// since.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    fn now_ns(&self) -> u64 {
        ns(self.config.clock.now())
    }
}

/// Checks that an opening with `log_dir` does not pass over `beside`, a file of the log in the database's directory.
/// After a restore the log is there, and `log_dir` may have the source's: an opening would replay that, and come to
/// another state.
///
/// # Errors
/// [`Error::InvalidOption`]; opening the file.
pub fn check_log_dir(disk: &Arc<dyn Disk>, beside: Option<&Path>, log_dir: &Path) -> Result<()> {
    let Some(found) = beside else { return Ok(()) };
    if !segment_file::is_passed_over(disk, found, log_dir)? {
        return Ok(());
    }
    let why = format!(
        "the database has log beside its data, {}, and would be opened with another. If it was restored: open it without \
         log_dir, or move redo.* and ring from {} to an empty directory and name that. If its log is in log_dir: remove \
         these files",
        found.display(),
        found.parent().unwrap_or(found).display()
    );
    Err(Error::InvalidOption { name: "log_dir".into(), value: log_dir.display().to_string(), why })
}

/// Returns the name of segment `number`.
#[must_use]
pub fn segment_name(number: u64) -> PathBuf {
    segment_file::path_of(Path::new(""), number)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
