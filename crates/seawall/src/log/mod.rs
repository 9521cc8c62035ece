//! The log: an endless stream of entries, made durable in groups. See DESIGN.md, "Log".
//!
//! 1. *Admit, reserve, publish, wait.* Room is promised before any latch is taken ([`Log::try_admit`]); a
//!    position is taken while all pages are latched ([`Log::reserve`]); the publishing thread copies the
//!    bytes and computes the CRC ([`Reservation::publish`]); a commit waits for durability with no latch held
//!    ([`Log::wait`]).
//! 2. `durable_whole <= durable <= written <= oldest_unpublished <= head`, each only growing. Reads of the
//!    files see the log up to `written`; `durable` is what was written and then flushed by a call that
//!    succeeded; `durable_whole` is the end of the last entry before it.
//! 3. The first failed write or flush poisons the database; nothing is written after it, and every waiter
//!    gets that error.
//! 4. Log acknowledged below `Flushed` is durable, or became part of the log less than the flush interval
//!    ago: [`Log::fresh_since_ns`](Log) bounds the age of the oldest byte that is not durable from above, and
//!    commits wait when it reaches the interval.
//! 5. An opening of the database begins with an empty entry of its own incarnation, durable before anything
//!    else is done: from then on no entry that an earlier opening left after the end can be taken for the
//!    next one (trap 1).
//!
//! | file | holds |
//! |---|---|
//! | `entry`, `record` | the format |
//! | `slots` | which mini-transaction owns which bytes (lock-free), and up to where all is published |
//! | `ring` | the bytes in memory |
//! | `ring_file` | that memory in a file, which outlives the process |
//! | `waiters` | the group-commit leader and the threads that wait |
//! | `watch` | callbacks for a durable position |
//! | `writer` | a group: one write, one flush |
//! | `segments` | the files: which there are, and making them |
//! | `segment_file` | one of them: its name, and how it is opened |
//! | `shelf` | which of them are open |
//! | `hold` | which of them a backup still needs |
//! | `reader` | reading it back |

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
pub use stats::LogStats;

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
    /// 0: only that the oldest unflushed commit is younger than the flush interval. Loses at most the
    /// interval.
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
    /// SegmentOptions it is flushed.
    pub method: FlushMethod,
    /// Unit of writing, bytes; at least the physical sector. A power of two from 512 to 64 KiB.
    pub block_bytes: usize,
    /// Size of a segment, bytes; a multiple of `block_bytes` and of 4096. Fixed when the database is made.
    pub segment_bytes: u64,
    /// Most log kept, bytes; at least three segments, and at least one segment and 4 x [`MTR_BYTES_MAX`].
    pub capacity_bytes: u64,
    /// Free space on the log's file system that additional segments must leave, bytes.
    pub reserve_bytes: u64,
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

/// What a leader writes with each group; one thread after the other, so together on its cache lines.
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
    counters: Counters,
}

/// Room in the log for one mini-transaction. Given back when dropped, or when the mini-transaction is
/// published.
#[derive(Debug)]
pub struct Credit<'l> {
    log: &'l Log,
    promise: Promise<'l>,
}

/// Room in the log for one mini-transaction that is logged later: a [`Credit`] without its borrow. Give it
/// back by [`Log::credit`].
#[derive(Debug)]
#[must_use = "room that is not given back is lost until the database is opened again"]
pub struct KeptRoom(u64);

impl Credit<'_> {
    /// Keeps the room beyond the borrow of the log.
    pub fn keep(self) -> KeptRoom {
        KeptRoom(self.promise.keep())
    }
}

/// A position in the log that belongs to one mini-transaction. It blocks everything after it until published.
///
/// Dropped unpublished it poisons the database: the log can never be written past it.
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
    /// When `body` is not as long as was reserved: pages carry the LSN already.
    pub fn publish(mut self, body: &[u8]) {
        let log = self.log;
        // The page may be one that another mini-transaction broke before it poisoned the database. A leader that
        // began before that would write this entry, and the next opening finds in a ring what is published: the log
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
    /// Makes the log of a new database, at its first LSN, with as few segments as it can begin with.
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

    /// Removes the log in `dir`. Only if its database is known to have never come into being: an interrupted
    /// creation.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(disk: &dyn Disk, dir: &Path) -> Result<()> {
        segment_file::discard(disk, dir)
    }

    /// Continues the log of an existing database where `tail` ends, in a new incarnation, which must be
    /// durable in the control block before. Makes everything before `tail.end` durable; assumes that the log
    /// before the `from` of `tail` is not needed. [`Log::head`] is then a little beyond `tail.end`: the
    /// opening has an entry of its own, without records.
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
        // A killed process may have renamed a segment without having made that durable.
        disk.sync_dir(&config.dir)?;
        let log = Self::start(disk, config, health, from.0, end.0, &prefix, (shelf, numbers), None)?;
        log.begin_incarnation(durable, if ghosts { 0 } else { ghosts_end })?;
        Ok(log)
    }

    /// The log of a database that is opened read-only and was closed at `end`: opens no file, and `health`
    /// admits nothing.
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
                counters: Counters::default(),
            }),
            waiters: Waiters::new(Box::new(LeaderState::new(reader, blank))),
            segments,
            watch: Watch::default(),
            config,
        })
    }

    /// Makes durable what an earlier opening left beyond `durable`, and erases what it left beyond the end.
    fn begin_incarnation(&self, durable: u64, ghosts_end: u64) -> Result<()> {
        let end = self.ring.head();
        self.write_again(durable, end)?;
        self.erase(end, ghosts_end)?;
        let bytes = HEADER_BYTES as u64;
        self.segments.make_up_to(end + bytes, &self.led.0.counters)?;
        // Beyond the limit of admissions if need be: one segment of the capacity is reserved.
        let unlimited = AtomicU64::new(u64::MAX);
        let promise = self.ring.promise_exactly(bytes, &unlimited).expect("an empty buffer has room for a header");
        let reservation = self.reserve(Credit { log: self, promise }, 0);
        let end = reservation.end;
        reservation.publish(&[]);
        self.flush_to(end)
    }

    /// Room for a mini-transaction of at most `bytes` of body. Does not wait for other threads; may make a
    /// segment if background work did not keep ahead. No latch may be held.
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

    /// Turns kept room into a credit. Dropped, the credit gives the room back.
    pub fn credit(&self, KeptRoom(bytes): KeptRoom) -> Credit<'_> {
        Credit { log: self, promise: self.ring.kept(bytes) }
    }

    /// Room that is promised and not used yet, bytes.
    #[cfg(test)]
    pub(crate) fn promised_and_not_logged(&self) -> u64 {
        self.ring.give_back_shares();
        self.ring.promised() - self.ring.head()
    }

    /// Refuses admissions from now on, if no mini-transaction is admitted now; returns whether it does. A
    /// thread that asks for room then waits until the database is poisoned.
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
        // The first entry after everything was durable: nothing that is not durable is older than this
        // moment.
        let head = self.ring.head();
        let now = (self.led.0.durable.load(Ordering::Relaxed) == head).then(|| self.now_ns());
        let place = self.ring.place(credit.promise, (HEADER_BYTES + bytes) as u64);
        if let Some(now) = now.filter(|_| place.start() == head) {
            self.led.0.fresh_since_ns.fetch_max(now, Ordering::AcqRel);
        }
        Reservation { start: Lsn(place.start()), end: Lsn(place.end()), log: self, place: Some(place) }
    }

    /// Where the next mini-transaction will begin.
    pub fn head(&self) -> Lsn {
        Lsn(self.ring.head())
    }

    /// No mini-transaction that begins before this is unpublished.
    pub fn oldest_unpublished(&self) -> Lsn {
        Lsn(self.ring.oldest_unpublished())
    }

    /// Everything before this is written.
    pub fn written(&self) -> Lsn {
        Lsn(self.ring.written())
    }

    /// Everything before this is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.led.0.durable.load(Ordering::Acquire))
    }

    /// The end of the last mini-transaction that is durable as a whole. [`Log::durable`] can lie inside the
    /// next one, where a segment ends; recovery never ends inside an entry.
    pub fn durable_whole(&self) -> Lsn {
        Lsn(self.led.0.durable_whole.load(Ordering::Acquire))
    }

    /// Whether a commit whose mini-transaction ends at `lsn` is done at `level`, now. Never true in a
    /// poisoned database for a position that is not durable.
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

    /// Makes room in the buffer for a mini-transaction of `bytes`, or waits for some: for a thread that was
    /// refused with [`NoRoom::Buffer`], which asks again afterwards. Writes what is published. If all of that
    /// is written, others have been promised the room, and this sleeps until one of them gives some back. No
    /// latch may be held.
    ///
    /// # Errors
    /// As [`Log::wait`].
    pub fn make_room(&self, bytes: usize) -> Result<()> {
        let target = self.ring.oldest_unpublished();
        if target <= self.ring.written() {
            self.ring.wait_for_room((HEADER_BYTES + bytes) as u64);
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

    /// Makes those of the least number of files that the log can go round in that are missing: for a caller
    /// that is about to take space on the same file system, and could never give it back without a log. No
    /// latch may be held.
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

    /// So much log is kept at most, bytes.
    pub fn capacity(&self) -> u64 {
        self.segments.capacity()
    }

    /// The log has ended, durable: the next opening needs nothing of the ring.
    pub fn forget_ring(&self) {
        if let Some(ring) = &self.ring_file {
            ring.remove(&self.config);
        }
    }

    /// Changes how the log is flushed, while it is in use. Commits wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when earlier writes cannot be made durable. With [`Error::Io`] nothing is lost, and segments
    /// are flushed as before; an open one that could not be changed back is flushed the new way, which is safe: each
    /// file knows what its own writes need.
    pub fn set_method(&self, method: FlushMethod) -> Result<()> {
        self.health.check()?;
        self.while_no_thread_writes(|| self.segments.set_method(method))
    }

    /// The mode in effect for the segment being written, beside the requested one.
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

    /// One step of background work: flush what is older than the interval, write what fills the buffer, fill
    /// or recycle a segment, shrink. Returns whether there is more to do now. Call it at least four times an
    /// interval.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when writing failed. Any other error ([`Error::NoSpace`], [`Error::Io`]) concerns
    /// a segment that could not be prepared: nothing is lost, and it is tried again later.
    pub fn tend(&self) -> Result<bool> {
        if self.tend_writing()? {
            return Ok(true);
        }
        // Shares of threads that no longer write must not hold room back.
        self.ring.give_back_shares();
        self.segments.tend(self.ring.promised(), &self.led.0.counters)
    }

    /// Removes files that are not needed, also those that a backup holds, because the disk is full; false if there
    /// are none.
    pub fn give_way(&self) -> bool {
        self.segments.give_way(self.ring.promised(), &self.led.0.counters)
    }

    /// Counters since the opening.
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

    /// The options it was opened with. Capacity, flush method and flush interval may have changed since.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    fn now_ns(&self) -> u64 {
        ns(self.config.clock.now())
    }
}

/// The name of segment `number`.
#[must_use]
pub fn segment_name(number: u64) -> PathBuf {
    segment_file::path_of(Path::new(""), number)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
