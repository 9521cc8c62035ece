//! Copying the files of an open database.
//!
//! 1. Each step copies log before pages, and releases the log that is copied, so that little is held.
//! 2. The hold is checked after each read from a segment: only if it is still unbroken do the bytes belong to that
//!    segment (`log/hold.rs`, 1).
//! 3. A page of zeroes was never written, or the file was truncated and grew again. Nothing is copied. If it was in use
//!    then, the copied log must have a record that initialises it, or the page is lost. (Such a page was made after C:
//!    one that was made before C and never written would have kept the checkpoint before it. The mini-transaction that
//!    gives a page an owner initialises it.) What the source has on its disk later proves nothing: a lost page that is
//!    changed in memory is written again.
//! 4. A page that is still invalid after all dirty pages were written was not changed after C: writing the change would
//!    have made it whole. It is damaged, unless it has no owner.

use super::manifest::{Manifest, Name, PAGES_FILE, Target};
use super::taken::Taken;
use super::types::{BackupFile, BackupOptions, BackupProgress, BackupReport};
use crate::buffer::{CONTROL_FILE, Control, DATA_FILE, Pool};
use crate::db::background::Work;
use crate::db::open::absolute;
use crate::error::{Corruption, Error, Result};
use crate::format::control::ControlBlock;
use crate::format::{Lsn, PageId, page, tag};
use crate::log::{Log, LogConfig, LogEntry, LogHold, LogReader, Records};
use crate::space::FileHold;
use crate::txn::Engine;
use seawall_io::{
    AlignedBuf, Allocate, BUFFER_ALIGN, Cause, Create, Disk, File, FileClass, FileOptions, FlushMethod, IoStats, Pace,
};
use std::any::Any;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one read.
const CHUNK: usize = 256 << 10;
/// The rate without a limit, bytes a second.
const UNLIMITED: f64 = f64::MAX;
/// The longest pause between two checks for cancellation.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Bytes of log and pages between two calls of the progress function.
const STEP_BYTES: u64 = 1 << 20;

/// The wait before a page that was caught half-written is read again.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// How often such a page is read again before all dirty pages are written, and again after that.
const READ_AGAIN: u32 = 10;

/// The largest block a log position is rounded to for direct I/O, bytes.
pub(super) const BLOCK: u64 = 4096;

fn block_floor(lsn: Lsn) -> u64 {
    lsn.0 & !(BLOCK - 1)
}

/// The database that is copied.
pub(super) struct Subject {
    engine: Arc<Engine>,
    path: PathBuf,
    /// Keeps the database open; `None` for a backup that ends when the database closes.
    _handle: Option<Box<dyn Any + Send + Sync>>,
    ends: Option<Ends>,
}

/// Returns whether the backup has been cancelled.
pub(super) type Ends = Arc<dyn Fn() -> bool + Send + Sync>;

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Subject {
    /// The database in `path`, which stays open as long as `handle` exists.
    pub(super) fn of(engine: &Arc<Engine>, path: &Path, handle: Box<dyn Any + Send + Sync>) -> Self {
        Self { engine: engine.clone(), path: path.into(), _handle: Some(handle), ends: None }
    }

    /// The database in `path`. The copier calls `ends` between reads and in pauses, and stops when it returns true.
    pub(super) fn beside(work: &Work, path: &Path, ends: Ends) -> Self {
        Self { engine: work.engine.clone(), path: path.into(), _handle: None, ends: Some(ends) }
    }

    fn goes_on(&self) -> Result<()> {
        self.engine.instance.here()?;
        if self.ends.as_ref().is_some_and(|ends| ends()) { Err(Error::ShutDown) } else { Ok(()) }
    }
}

/// Begins a backup, copies it step by step, and ends it; returns `None` if `go_on` stopped it.
pub(super) fn take(
    of: Subject,
    dir: &Path,
    options: &BackupOptions,
    mut go_on: impl FnMut(&BackupProgress) -> ControlFlow<()>,
) -> Result<Option<BackupReport>> {
    let mut copying = Copying::begin(of, dir, options)?;
    let mut log_bytes = 0;
    loop {
        let progress = copying.step(STEP_BYTES)?;
        if go_on(&progress).is_break() {
            return Ok(None);
        }
        if progress.done {
            return copying.end().map(Some);
        }
        if progress.waits && progress.log_bytes == log_bytes {
            copying.rest();
        }
        log_bytes = progress.log_bytes;
    }
}

#[derive(Debug)]
pub(super) struct Copying {
    of: Subject,
    hold: LogHold,
    _file: FileHold,
    target: Target,
    options: BackupOptions,
    base: Option<Manifest>,
    taken: Taken,
    /// The control block when the backup began; its checkpoint is C.
    block: ControlBlock,
    stats: Arc<IoStats>,
    source: File,
    out: File,
    pages: u64,
    next: u64,
    copied: u64,
    /// The highest LSN of a copied page, and that page.
    newest: (Lsn, PageId),
    read_again: u64,
    /// Pages in use that were zeroes in the data file: new ones that only the log has, or lost ones.
    blank: BTreeSet<PageId>,
    /// Whether all pages are copied and the end is not yet decided.
    waits: bool,
    log: LogCopy,
    pace: Pace,
    /// The buffer for pages; taken out while it is filled.
    chunk: Option<AlignedBuf>,
    log_chunk: AlignedBuf,
}

/// Creates a file, to be written from its beginning.
pub(super) fn new_file(disk: &Arc<dyn Disk>, path: &Path, class: FileClass, stats: &Arc<IoStats>) -> Result<File> {
    let options = FileOptions::new(class, FlushMethod::ODirect).create(Create::New).stats(stats);
    Ok(File::open(disk.clone(), path, options)?)
}

/// Extends `file` to `len` bytes; unwritten parts are zeroes.
pub(super) fn lengthen(file: &File, len: u64) -> Result<()> {
    if file.len() >= len {
        return Ok(());
    }
    match file.grow(Allocate::Unwritten, len, Cause::Other) {
        Err(e) if e.is_unsupported() => {
            let zeroes = AlignedBuf::zeroed(BLOCK as usize);
            Ok(file.write_at(len - BLOCK, &zeroes, Cause::Other)?)
        }
        done => Ok(done?),
    }
}

/// The copy of the log, in files of the same names.
#[derive(Debug)]
pub(super) struct LogCopy {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    /// Everything before this is copied; a multiple of [`BLOCK`].
    pub(super) at: u64,
    from: u64,
    out: Option<(u64, File)>,
    source: Option<(u64, File)>,
    stats: Arc<IoStats>,
    source_stats: Arc<IoStats>,
}

impl LogCopy {
    /// Opens the files for the segment of `self.at`: the one to read from and the one to write to.
    fn files(&mut self, path: &Path) -> Result<()> {
        let number = self.at / self.segment_bytes;
        if self.source.as_ref().is_none_or(|(open, _)| *open != number) {
            let options = FileOptions::new(FileClass::Redo, FlushMethod::ODirect).stats(&self.source_stats);
            self.source = Some((number, File::open(self.disk.clone(), path, options)?));
        }
        self.target(number, path)
    }

    /// Opens the file that segment `number` is written to, after it has made the one before durable.
    fn target(&mut self, number: u64, path: &Path) -> Result<()> {
        if self.out.as_ref().is_some_and(|(open, _)| *open == number) {
            return Ok(());
        }
        self.sync()?;
        let name = path.file_name().unwrap_or_default();
        let file = new_file(&self.disk, &self.dir.join(name), FileClass::Redo, &self.stats)?;
        lengthen(&file, self.segment_bytes)?;
        self.out = Some((number, file));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        match &self.out {
            Some((_, file)) => Ok(file.sync(Cause::Other)?),
            None => Ok(()),
        }
    }
}

impl Copying {
    pub(super) fn begin(of: Subject, dir: &Path, options: &BackupOptions) -> Result<Self> {
        let dir = &absolute(dir)?;
        Self::begin_in(of, dir, options).map_err(|error| or_no_space(error, dir))
    }

    fn begin_in(of: Subject, dir: &Path, options: &BackupOptions) -> Result<Self> {
        of.goes_on()?;
        let engine = of.engine.clone();
        let pool = engine.pool();
        let log = pool.log();
        engine.health().check()?;
        let Some(hold) = log.hold(options.held_log_max) else {
            return Err(Error::Usage("a backup of this database is under way: one at a time".into()));
        };
        let file = engine.space.hold_file();
        let disk = pool.disk().clone();
        if options.ends_when_told {
            hold.ends_outside();
        }
        // Moves the checkpoint without waiting for dirty pages, so that there is less log to copy.
        pool.checkpoint()?;
        let block = pool.control().current();
        hold.release_before(block.checkpoint)?;
        let base = options.incremental_from.as_deref().map(|base| Manifest::read(&*disk, base)).transpose()?;
        let taken = Taken::read(&*disk, &of.path)?;
        if let Some((base, path)) = base.as_ref().zip(options.incremental_from.as_deref()) {
            fits(base, path, &block, &taken)?;
        }
        if disk.backend().name == "memory" {
            return Err(Error::Usage("a database in memory has no files to back up: dump it".into()));
        }
        let target = Target::begin(&*disk, dir)?;
        let stats = Arc::new(IoStats::new());
        let source_stats = pool.config().stats.clone();
        let data = FileOptions::new(FileClass::Data, FlushMethod::ODirect).stats(&source_stats);
        let source = File::open(disk.clone(), pool.data_path(), data)?;
        let name = if base.is_some() { PAGES_FILE } else { DATA_FILE };
        let out = new_file(&disk, &dir.join(name), FileClass::Data, &stats)?;
        let pages = u64::from(pool.file_pages());
        if base.is_none() {
            lengthen(&out, pages * pool.page_bytes() as u64)?;
        }
        let at = block_floor(block.checkpoint);
        let copy = LogCopy {
            disk: disk.clone(),
            dir: dir.into(),
            segment_bytes: block.segment_bytes,
            at,
            from: at,
            out: None,
            source: None,
            stats: stats.clone(),
            source_stats,
        };
        let rate = if options.rate == 0 { UNLIMITED } else { options.rate as f64 };
        Ok(Self {
            of,
            hold,
            _file: file,
            target,
            options: options.clone(),
            base,
            taken,
            block,
            stats,
            source,
            out,
            pages,
            next: 0,
            copied: 0,
            newest: (Lsn::ZERO, PageId::NONE),
            read_again: 0,
            blank: BTreeSet::new(),
            waits: false,
            log: copy,
            pace: Pace::new(rate),
            chunk: None,
            log_chunk: AlignedBuf::zeroed(CHUNK),
        })
    }

    fn pool(&self) -> &Pool {
        self.of.engine.pool()
    }

    fn live_log(&self) -> &Arc<Log> {
        self.pool().log()
    }

    pub(super) fn files(&self) -> Vec<BackupFile> {
        let pool = self.pool();
        let segment = self.block.segment_bytes;
        let (first, last) = (self.log.from / segment, pool.log().durable().0 / segment);
        let data = BackupFile { path: pool.data_path().into(), len_bytes: pool.data_file().len() };
        let log = (first..=last)
            .map(|number| BackupFile { path: self.hold.path_at(Lsn(number * segment)), len_bytes: segment });
        std::iter::once(data).chain(log).collect()
    }

    fn progress(&self) -> BackupProgress {
        BackupProgress {
            pages_read: self.next,
            pages: self.pages,
            pages_copied: self.copied,
            log_bytes: self.log.at - self.log.from,
            done: self.next == self.pages && !self.waits,
            waits: self.waits,
        }
    }

    /// Waits a little for the end to be decided.
    pub(super) fn rest(&self) {
        self.of.engine.clock.sleep(PAUSE_MAX);
    }

    pub(super) fn step(&mut self, bytes_max: u64) -> Result<BackupProgress> {
        self.copy(bytes_max).map_err(|error| or_no_space(error, &self.target.dir))
    }

    fn copy(&mut self, bytes_max: u64) -> Result<BackupProgress> {
        self.of.goes_on()?;
        self.pool().health().check()?;
        let bytes_max = bytes_max.max(2 * CHUNK as u64);
        // In this order: an end that is decided after `hold.end()` is not before `durable` (`log/hold.rs`, 3).
        let durable = self.live_log().durable_whole();
        let end = self.hold.end();
        let durable = block_floor(end.map_or(durable, |end| durable.min(end)));
        // However much log is written meanwhile, pages get their half.
        let mut left = bytes_max - self.copy_log(durable, bytes_max / 2, true)?;
        while left > 0 && self.next < self.pages {
            left = left.saturating_sub(self.copy_pages()?);
        }
        if self.options.ends_when_told && self.next == self.pages {
            self.hold.pages_are_copied();
            self.waits = end.is_none();
        }
        self.hold.check()?;
        Ok(self.progress())
    }

    /// Waits before `bytes` are read, as the rate demands.
    ///
    /// # Errors
    /// [`Error::ShutDown`] if the backup is cancelled.
    fn pause(&mut self, bytes: u64) -> Result<()> {
        let clock = &self.of.engine.clock;
        let mut delay = self.pace.delay(clock.now(), bytes as f64);
        self.of.goes_on()?;
        while self.options.rate > 0 && !delay.is_zero() {
            let part = delay.min(PAUSE_MAX);
            clock.sleep(part);
            delay -= part;
            self.of.goes_on()?;
        }
        Ok(())
    }

    /// Copies log up to `to`, about `bytes_max` bytes at most; returns how much.
    fn copy_log(&mut self, to: u64, bytes_max: u64, paced: bool) -> Result<u64> {
        let mut done = 0;
        while self.log.at < to && done < bytes_max {
            let at = self.log.at;
            let segment = self.log.segment_bytes;
            let len = (to - at).min(segment - at % segment).min(CHUNK as u64);
            if paced {
                self.pause(len)?;
            } else {
                self.of.goes_on()?;
            }
            self.copy_log_chunk(len, len)?;
            done += len;
        }
        Ok(done)
    }

    /// Copies `len` bytes of log, with zeroes in place of those from `keep` on.
    fn copy_log_chunk(&mut self, len: u64, keep: u64) -> Result<()> {
        let at = self.log.at;
        let path = self.hold.path_at(Lsn(at));
        let opened = self.log.files(&path);
        // A broken hold has released the file, so its absence is reported as a broken hold.
        self.hold.check()?;
        opened?;
        let (within, bytes) = (at % self.log.segment_bytes, &mut self.log_chunk[..len as usize]);
        let (Some((_, source)), Some((_, out))) = (&self.log.source, &self.log.out) else { return Ok(()) };
        let read = source.read_at(within, bytes, Cause::Other);
        self.hold.check()?;
        read?;
        bytes[keep as usize..].fill(0);
        out.write_at(within, bytes, Cause::Other)?;
        self.log.at = at + len;
        self.hold.release_before(Lsn(self.log.at))
    }

    /// Copies the next pages; returns how many bytes were read.
    fn copy_pages(&mut self) -> Result<u64> {
        let page_bytes = self.pool().page_bytes();
        let first = self.next;
        let count = (self.pages - first).min((CHUNK / page_bytes) as u64) as usize;
        let len = (count * page_bytes) as u64;
        self.pause(len)?;
        let mut chunk = self.chunk.take().unwrap_or_else(|| AlignedBuf::zeroed(CHUNK));
        let copied = self.copy_chunk(first, &mut chunk[..len as usize]);
        self.chunk = Some(chunk);
        copied?;
        self.next += count as u64;
        Ok(len)
    }

    fn copy_chunk(&mut self, first: u64, chunk: &mut [u8]) -> Result<()> {
        let page_bytes = self.pool().page_bytes();
        match self.source.read_at(first * page_bytes as u64, chunk, Cause::Other) {
            // Some drives fail like this for a sector that is being written: `settle` then reads each page, as if
            // half-written.
            Err(e) if e.is_unreadable() => chunk.fill(0xff),
            read => read?,
        }
        let since = self.base.as_ref().map(|base| base.begin);
        // Pages to write together.
        let mut run = 0..0;
        for (i, number) in (first..).take(chunk.len() / page_bytes).enumerate() {
            let bytes = i * page_bytes..(i + 1) * page_bytes;
            let goes = self.settle(PageId(number as u32), &mut chunk[bytes.clone()])?
                && since.is_none_or(|since| page::lsn(&chunk[bytes.clone()]) > since);
            if goes {
                self.newest = self.newest.max((page::lsn(&chunk[bytes.clone()]), PageId(number as u32)));
                self.copied += 1;
                run = if run.end == bytes.start && !run.is_empty() { run.start..bytes.end } else { bytes.clone() };
            }
            let ends = i + 1 == chunk.len() / page_bytes;
            if (ends || !goes) && !run.is_empty() {
                let at = if since.is_some() {
                    // After the pages before them; `copied` already counts those of the run.
                    self.copied * page_bytes as u64 - run.len() as u64
                } else {
                    first * page_bytes as u64 + run.start as u64
                };
                self.out.write_at(at, &chunk[run.clone()], Cause::Other)?;
                run = 0..0;
            }
        }
        Ok(())
    }

    /// Makes sure that `bytes` are the page; returns false if there is none.
    fn settle(&mut self, number: PageId, bytes: &mut [u8]) -> Result<bool> {
        if is_zero(bytes) {
            return self.settle_zeroes(number);
        }
        let path = self.pool().data_path().to_owned();
        let Err(mut why) = page::verify(bytes, number, &path) else { return Ok(true) };
        self.read_again += 1;
        let at = u64::from(number.0) * bytes.len() as u64;
        let mut refused = None;
        for time in 0..2 * READ_AGAIN {
            if time == READ_AGAIN {
                // Recovery may have made a page anew that was torn before this opening: it is whole as soon as it is
                // written.
                self.pool().flush_all()?;
            }
            match self.source.read_at(at, bytes, Cause::Other) {
                Err(e) if e.is_unreadable() => refused = Some(e),
                read => {
                    read?;
                    refused = None;
                    if is_zero(bytes) {
                        return self.settle_zeroes(number);
                    }
                    match page::verify(bytes, number, &path) {
                        Ok(()) => return Ok(true),
                        Err(found) => why = found,
                    }
                }
            }
            self.of.engine.clock.sleep(READ_AGAIN_AFTER);
        }
        if self.of.engine.space.is_free(number)? {
            return Ok(false);
        }
        Err(refused.map_or_else(|| why.into(), Error::from))
    }

    /// Notes a page in use that is zeroes in the data file. `check_log` finds out whether it is lost.
    fn settle_zeroes(&mut self, number: PageId) -> Result<bool> {
        if !self.of.engine.space.is_free(number)? {
            self.blank.insert(number);
        }
        Ok(false)
    }

    /// Reads the whole copy of the log, which must end where `block` says, and make each page that was zeroes.
    fn check_log(&mut self, config: &LogConfig, block: &ControlBlock) -> Result<()> {
        let disk = self.pool().disk().clone();
        let (of, blank) = (&self.of, &mut self.blank);
        let mut entries = 0u32;
        log_is_whole(&disk, config, &self.target.dir, block, |entry| {
            // A system call for some backups.
            if entries % 1024 == 0 {
                of.goes_on()?;
            }
            entries = entries.wrapping_add(1);
            if !blank.is_empty() {
                for record in Records::new(entry.body).flatten().filter(|record| tag::initialises(record.tag)) {
                    blank.remove(&record.page);
                }
            }
            Ok(())
        })?;
        let Some(lost) = self.blank.first() else { return Ok(()) };
        let zeroes = vec![0; self.block.page_bytes as usize];
        Ok(page::verify(&zeroes, *lost, self.pool().data_path())?)
    }

    pub(super) fn end(self) -> Result<BackupReport> {
        let dir = self.target.dir.clone();
        self.finish().map_err(|error| or_no_space(error, &dir))
    }

    fn finish(mut self) -> Result<BackupReport> {
        self.of.goes_on()?;
        if self.next < self.pages {
            let why = format!("{} of {} pages are not copied: step until done", self.pages - self.next, self.pages);
            return Err(Error::Usage(why));
        }
        if self.options.ends_when_told && self.hold.end().is_none() {
            return Err(Error::Usage("the end of the backup is not told yet: step until it does not wait".into()));
        }
        let log = self.live_log().clone();
        let end = match self.hold.end() {
            Some(told) => told,
            None => {
                log.flush_to(log.head())?;
                log.durable_whole()
            }
        };
        let (page_lsn, page) = self.newest;
        if page_lsn > end {
            return Err(Corruption::LogBehindPage { page, page_lsn, log_end: end }.into());
        }
        let whole = block_floor(end);
        self.copy_log(whole, u64::MAX, false)?;
        if end.0 > self.log.at {
            // The last block: what lies after the end is not part of the backup.
            self.copy_log_chunk(BLOCK, end.0 - whole)?;
        }
        // If the log ends where a segment ends, the backup has the next segment too.
        let last = self.hold.path_at(end);
        self.log.target(end.0 / self.block.segment_bytes, &last)?;
        self.log.sync()?;
        let data_bytes = self.pool().data_file().len();
        if self.base.is_none() {
            lengthen(&self.out, data_bytes)?;
        }
        self.out.sync(Cause::Other)?;
        self.hold.check()?;
        self.pool().health().check()?;
        let block = ControlBlock { log_end: end, clean: false, ..self.block.clone() };
        self.check_log(log.config(), &block)?;
        let disk = self.pool().disk().clone();
        write_control(&disk, &self.target.dir, &self.stats, &block)?;
        let (begin, incremental) = (block.checkpoint, self.base.is_some());
        let parts: [&[u8]; 5] = [
            &block.database,
            &self.of.engine.instance.token,
            &block.incarnation.to_le_bytes(),
            &begin.0.to_le_bytes(),
            &end.0.to_le_bytes(),
        ];
        let manifest = Manifest {
            name: Name::of(&parts),
            base: self.base.as_ref().map(|base| base.name),
            database: Name(block.database),
            page_bytes: block.page_bytes,
            block_bytes: block.block_bytes,
            segment_bytes: block.segment_bytes,
            begin,
            end,
            data_bytes,
            pages: self.copied,
        };
        self.of.goes_on()?;
        match self.taken.note(&*disk, &self.of.path, (manifest.name, end), manifest.base) {
            Err(Error::Io(error)) if error.is_full() => {
                log::warn!("no increment can follow the backup {}: {error}", self.target.dir.display());
            }
            noted => noted?,
        }
        self.target.finish_backup(&*disk, &manifest)?;
        Ok(BackupReport {
            begin: begin.0,
            end: end.0,
            pages: self.copied,
            log_bytes: self.log.at - self.log.from,
            read_again: self.read_again,
            incremental,
        })
    }
}

/// Converts the error to [`Error::NoSpace`] if the file system of `dir` is full.
pub(super) fn or_no_space(error: Error, dir: &Path) -> Error {
    match error {
        Error::Io(error) if error.is_full() && error.path.starts_with(dir) => {
            Error::NoSpace { path: error.path, needed_bytes: error.len.unwrap_or_default(), kept_free_bytes: 0 }
        }
        error => error,
    }
}

/// Checks that an increment can follow `base`.
fn fits(base: &Manifest, path: &Path, block: &ControlBlock, taken: &Taken) -> Result<()> {
    let refuse = |why: &str| Err(Error::BadBackup { path: path.into(), why: why.into() });
    if base.database != Name(block.database) {
        return refuse("it is of another database: take a full backup");
    }
    if !taken.has(base.name) {
        return refuse(
            "the database has no record of it: its files were restored or put back since, 128 backups were taken since, \
             its disk was full then, or an older version took it. Take a full backup",
        );
    }
    Ok(())
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Reads the whole copy of the log, and shows `each` mini-transaction: it must end exactly where `block` says.
pub(super) fn log_is_whole(
    disk: &Arc<dyn Disk>,
    config: &LogConfig,
    dir: &Path,
    block: &ControlBlock,
    mut each: impl FnMut(&LogEntry<'_>) -> Result<()>,
) -> Result<()> {
    let config = LogConfig {
        dir: dir.into(),
        method: FlushMethod::ODirect,
        // It is only read, also where direct I/O needs larger blocks than the database's own device.
        block_bytes: config.block_bytes.max(BUFFER_ALIGN),
        stats: Arc::default(),
        ..config.clone()
    };
    let mut reader = LogReader::open(disk.clone(), &config, block.checkpoint, block.incarnation)?;
    reader.written_by(block.log_incarnation, block.log_buffer);
    while let Some(entry) = reader.next()? {
        each(&entry)?;
    }
    if reader.at() == block.log_end {
        return Ok(());
    }
    let why = format!("its log ends at {}, but {} was expected: use another backup", reader.at(), block.log_end);
    Err(Error::BadBackup { path: dir.into(), why })
}

/// Creates the control file, with the block in both slots.
pub(super) fn write_control(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    stats: &Arc<IoStats>,
    block: &ControlBlock,
) -> Result<()> {
    let control = Control::create(disk.clone(), &dir.join(CONTROL_FILE), stats, block.clone())?;
    control.write(block)
}
