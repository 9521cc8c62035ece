//! The doublewrite file: copies of pages that are about to be written home, so that a page torn by a crash can be
//! restored.
//!
//! 1. A page is written home only when its copy, and the header that names it, is durable in one of two areas.
//! 2. An area is overwritten only after a real flush of the data file that covers the home writes of its last batch
//!    (trap 4). A flush of this file or of the log does not suffice.
//! 3. A copy is valid if the header's checksum and the copy's own checksum are right, and the copy is of the page that
//!    the header names. It replaces a page in the data file only if that page fails its check.
//! 4. A copy whose LSN lies before the checkpoint is never used: a page torn by a crash was being written, so its copy
//!    is newer. (An older copy would bring an old page back, whose later changes the log no longer has.)
//! 5. Only the thread with the cleaner's role writes here.
//! 6. A page that the disk cannot read counts as torn: some drives answer EIO for a sector whose write was cut (trap
//!    26). An unreadable page of the data file is restored from its copy. An unreadable copy or header was being
//!    written, so the writes of its pages to the data file had not begun.

use super::config::PoolConfig;
use super::control::open_error;
use super::pool::Pool;
use crate::counted::Mutex;
use crate::error::{Error, Result, read_again, while_locked};
use crate::format::PageId;
use crate::format::control::Torn;
use crate::format::page::{set_u32, set_u64, u32_at};
use crate::log::quickest;
use crate::mutants::Mutant;
use seawall_io::errno::{EINVAL, ENOENT, ENOSYS, EOPNOTSUPP};
use seawall_io::{AlignedBuf, Allocate, Cause, Create, Disk, File, FileClass, FileOptions, IoErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Name of the doublewrite file.
pub const DOUBLEWRITE_FILE: &str = "doublewrite";
/// The most pages of a batch.
pub(super) const BATCH: usize = 128;
/// Pages of a batch if a flush is fast: commits wait for the writes before theirs in the disk's queue, and larger
/// batches save few flushes.
const BATCH_QUICK: usize = 32;
/// Bytes that a fast device writes in a microsecond. Multiplied by the duration of a flush, they give a batch whose
/// write takes as long as the flush before it.
const BYTES_A_MICROSECOND: usize = 2048;
const AREAS: usize = 2;

const MAGIC: [u8; 8] = *b"SWDOUBLE";
const CRC: usize = 8;
const COUNT: usize = 12;
const SEQUENCE: usize = 16;
const DATABASE: usize = 24;
const PAGE_BYTES: usize = 40;
const NUMBERS: usize = 64;
const HEADER_BYTES: usize = 4096;

const _: () = assert!(DATABASE + 16 == PAGE_BYTES && PAGE_BYTES + 4 <= NUMBERS);
const _: () = assert!(NUMBERS + 4 * BATCH <= HEADER_BYTES);

/// The open doublewrite file.
#[derive(Debug)]
pub(super) struct Doublewrite {
    pub(super) file: File,
    page_bytes: usize,
    state: Mutex<Areas>,
}

#[derive(Debug, Default)]
struct Areas {
    next: usize,
    sequence: u64,
    /// Whether the area's last batch may have home writes that are not flushed.
    unflushed: [bool; AREAS],
    /// How long a flush of the data file takes by itself ([`quickest`]); `None` before the first.
    flush: Option<Duration>,
}

fn area_bytes(page_bytes: usize) -> u64 {
    (HEADER_BYTES + BATCH * page_bytes) as u64
}

fn checksum(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..CRC]), &header[COUNT..])
}

impl Doublewrite {
    /// Opens the file, or creates it if it is missing and wanted. Returns `None` if it is missing and not wanted.
    pub(super) fn open(disk: &Arc<dyn Disk>, config: &PoolConfig, create: Create) -> Result<Option<Self>> {
        let wanted = config.torn == Torn::Doublewrite;
        let create = match (create, wanted) {
            (Create::New, false) => return Ok(None),
            (Create::New, true) => Create::New,
            (_, true) => Create::IfMissing,
            (_, false) => Create::No,
        };
        let path = config.dir.join(DOUBLEWRITE_FILE);
        let options = FileOptions::new(FileClass::Doublewrite, config.doublewrite_method);
        let file = match File::open(disk.clone(), &path, options.create(create).stats(&config.stats)) {
            Err(e) if !wanted && e.errno() == Some(ENOENT) => return Ok(None),
            opened => opened.map_err(open_error)?,
        };
        while_locked(&*config.clock, || file.lock().map_err(open_error))?;
        let whole = area_bytes(config.page_bytes) * AREAS as u64;
        if !wanted {
            return Ok(Some(Self { file, page_bytes: config.page_bytes, state: Mutex::default() }));
        }
        if file.len() < whole {
            // Allocates the space now, so that no page write finds the disk full. The blocks stay unwritten: every
            // write here is made durable by its own flush, which pays for the conversion once.
            let before = file.len();
            match file.grow(Allocate::Unwritten, whole, Cause::Preallocate) {
                Ok(()) => {}
                Err(e) if e.is_full() => {
                    return Err(Error::NoSpace { path, needed_bytes: whole - before, kept_free_bytes: 0 });
                }
                // The file system has no fallocate: the first batches allocate the blocks.
                Err(e) if matches!(e.errno(), Some(EINVAL | ENOSYS | EOPNOTSUPP)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // A write here makes only itself durable: without this sync, a power cut would free the blocks while the length
        // stays. And a killed process may have left the file or its name unsynced.
        file.sync(Cause::Preallocate)?;
        disk.sync_dir(&config.dir)?;
        Ok(Some(Self { file, page_bytes: config.page_bytes, state: Mutex::default() }))
    }

    /// Returns how many pages a batch should have. `log_flush`: how long a flush of the log takes by itself. After a
    /// flush of the log, a device that both share may have nothing left to do for the flush of the data file.
    pub(super) fn batch(&self, log_flush: Duration) -> usize {
        let flush = self.state.lock().flush.map_or(Duration::ZERO, |flush| flush.max(log_flush));
        let bytes = (flush.as_micros() as usize).saturating_mul(BYTES_A_MICROSECOND);
        (bytes / self.page_bytes).clamp(BATCH_QUICK, BATCH)
    }

    /// Makes copies of pages durable. The pages may be written home when this returns. Called with the cleaner's role.
    pub(super) fn write(&self, pool: &Pool, pages: &[(PageId, &[u8])]) -> Result<()> {
        debug_assert!(pages.len() <= BATCH, "a batch fits an area");
        let (area, sequence, unflushed) = {
            let state = self.state.lock();
            (state.next, state.sequence + 1, state.unflushed[state.next])
        };
        if unflushed && !pool.health().has(Mutant::DoublewriteReused) {
            // All home writes so far have returned: one flush covers those of both areas (2).
            let clock = &pool.config.clock;
            let mut took = Duration::ZERO;
            pool.flush_data(|data| {
                let begun = clock.now();
                data.sync(Cause::Clean)?;
                took = clock.now().saturating_sub(begun);
                Ok(())
            })?;
            let mut state = self.state.lock();
            state.unflushed = [false; AREAS];
            state.flush = Some(quickest(state.flush, took));
        }
        let mut header = AlignedBuf::zeroed(HEADER_BYTES);
        header[..CRC].copy_from_slice(&MAGIC);
        set_u32(&mut header, COUNT, pages.len() as u32);
        set_u64(&mut header, SEQUENCE, sequence);
        header[DATABASE..DATABASE + 16].copy_from_slice(&pool.control.current().database);
        set_u32(&mut header, PAGE_BYTES, self.page_bytes as u32);
        for (i, (number, _)) in pages.iter().enumerate() {
            set_u32(&mut header, NUMBERS + 4 * i, number.0);
        }
        let crc = checksum(&header);
        set_u32(&mut header, CRC, crc);
        let mut parts: Vec<&[u8]> = Vec::with_capacity(pages.len() + 1);
        parts.push(&header);
        parts.extend(pages.iter().map(|(_, bytes)| *bytes));
        let at = area as u64 * area_bytes(self.page_bytes);
        if pool.health().has(Mutant::DoublewriteUnflushed) {
            self.file.write_vectored_at(at, &parts, Cause::Clean)?;
        } else {
            self.file.write_durable_vectored_at(at, &parts, Cause::Clean)?;
        }
        let mut state = self.state.lock();
        state.sequence = sequence;
        // From now on, pages of this batch may be written home.
        state.unflushed[area] = true;
        state.next = (area + 1) % AREAS;
        Ok(())
    }

    /// Returns the pages that valid headers name, and the offsets of their copies, bytes.
    pub(super) fn copies(&self, database: [u8; 16]) -> Result<Vec<(PageId, u64)>> {
        let mut copies = Vec::new();
        let mut header = AlignedBuf::zeroed(HEADER_BYTES);
        for area in 0..AREAS as u64 {
            let at = area * area_bytes(self.page_bytes);
            if !read_if_there(&self.file, at, &mut header)? {
                continue;
            }
            let pages = u32_at(&header, COUNT) as usize;
            let valid = header[..CRC] == MAGIC
                && u32_at(&header, CRC) == checksum(&header)
                && header[DATABASE..DATABASE + 16] == database
                && u32_at(&header, PAGE_BYTES) as usize == self.page_bytes
                && pages <= BATCH;
            if valid {
                copies.extend((0..pages).map(|i| {
                    let number = PageId(u32_at(&header, NUMBERS + 4 * i));
                    (number, at + (HEADER_BYTES + i * self.page_bytes) as u64)
                }));
            }
        }
        Ok(copies)
    }
}

/// Fills `buf`. Returns `false` if the file ends before that, or if the disk cannot read it (6).
pub(super) fn read_if_there(file: &File, at: u64, buf: &mut [u8]) -> Result<bool> {
    // The home that it would repair may be lost without it.
    match read_again(|| Ok(file.read_at(at, buf, Cause::Recovery)?)) {
        Ok(()) => Ok(true),
        Err(Error::Io(e)) if matches!(e.kind, IoErrorKind::UnexpectedEof { .. }) => Ok(false),
        Err(Error::Io(e)) if e.is_unreadable() => {
            ::log::warn!(
                "a copy of written pages cannot be read: {e}. If opening now reports a damaged page, open again \
                 before you restore a backup: the copy may repair it"
            );
            Ok(false)
        }
        Err(e) => Err(e),
    }
}
