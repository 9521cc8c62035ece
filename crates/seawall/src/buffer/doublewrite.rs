//! The doublewrite file: copies of pages on their way home, so that a page torn by a crash can be restored.
//!
//! 1. A page is written home only when its copy is durable, header and all, in one of two areas.
//! 2. An area is overwritten only after a real flush of the data file that covers the home writes of its last
//!    batch (trap 4): a flush of this file or of the log is none.
//! 3. A copy counts if the header's checksum and the copy's own hold, for the page that the header names. It
//!    replaces a home page that fails its check, and no other.
//! 4. A copy whose LSN lies before the checkpoint is never used: a home page torn by a crash was being
//!    written, so its copy is newer. (An older copy would bring an old page back, and the log no longer holds
//!    its later changes.)
//! 5. Only the thread with the cleaner's role writes here.
//! 6. A page that the disk cannot read counts as torn: some drives answer EIO for a sector whose write was
//!    cut (trap 26). An unreadable home page is restored from its copy. An unreadable copy or header was
//!    being written, so its pages were not yet on their way home.

use super::control::open_error;
use super::pool::{Pool, PoolConfig};
use super::stats::count;
use crate::counted::Mutex;
use crate::error::{Error, Result, while_locked};
use crate::format::control::Torn;
use crate::format::page::{set_u32, set_u64, u32_at};
use crate::format::{Lsn, PageId, page};
use crate::mutants::Mutant;
use seawall_io::{AlignedBuf, Allocate, Cause, Create, Disk, File, FileClass, FileOptions, FileRequest, IoErrorKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the doublewrite file.
pub const DOUBLEWRITE_FILE: &str = "doublewrite";
/// Pages of a batch.
pub(super) const BATCH: usize = 128;
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
    file: File,
    page_bytes: usize,
    state: Mutex<Areas>,
}

#[derive(Debug, Default)]
struct Areas {
    next: usize,
    sequence: u64,
    /// Home writes of the area's last batch may not have been flushed.
    unflushed: [bool; AREAS],
}

fn area_bytes(page_bytes: usize) -> u64 {
    (HEADER_BYTES + BATCH * page_bytes) as u64
}

fn checksum(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..CRC]), &header[COUNT..])
}

impl Doublewrite {
    /// Opens the file, or makes it if it is missing and wanted; `None` if it is missing and not wanted.
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
            Err(e) if !wanted && e.errno() == Some(2) => return Ok(None),
            opened => opened.map_err(open_error)?,
        };
        while_locked(&*config.clock, || file.lock().map_err(open_error))?;
        let whole = area_bytes(config.page_bytes) * AREAS as u64;
        if wanted && file.len() < whole {
            // Room is taken now, so that no page write finds the disk full. The blocks stay unwritten: every
            // write here is made durable by its own flush, which pays for the conversion once.
            let before = file.len();
            match file.grow(Allocate::Unwritten, whole, Cause::Preallocate) {
                // Flushed: a write here makes only itself durable, and a power cut would free the blocks
                // while the length stays.
                Ok(()) => file.sync(Cause::Preallocate)?,
                Err(e) if e.errno() == Some(28) => {
                    return Err(Error::NoSpace { path, needed_bytes: whole - before, kept_free_bytes: 0 });
                }
                // No fallocate here: the first batches allocate the blocks.
                Err(e) if matches!(e.errno(), Some(22 | 38 | 95)) => {}
                Err(e) => return Err(e.into()),
            }
            disk.sync_dir(&config.dir)?;
        }
        Ok(Some(Self { file, page_bytes: config.page_bytes, state: Mutex::default() }))
    }

    /// Makes copies of pages durable; they may be written home when this returns. Only with the cleaner's
    /// role.
    pub(super) fn write(&self, pool: &Pool, pages: &[(PageId, &[u8])]) -> Result<()> {
        debug_assert!(pages.len() <= BATCH, "a batch fits an area");
        let (area, sequence, unflushed) = {
            let state = self.state.lock();
            (state.next, state.sequence + 1, state.unflushed[state.next])
        };
        if unflushed && !pool.health().has(Mutant::DoublewriteReused) {
            // All home writes so far have returned: one flush covers those of both areas (2).
            pool.data.sync(Cause::Clean)?;
            self.state.lock().unflushed = [false; AREAS];
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
        count(&pool.counters.doublewrite_flushes, 1);
        let mut state = self.state.lock();
        state.sequence = sequence;
        // From now on its pages are written home.
        state.unflushed[area] = true;
        state.next = (area + 1) % AREAS;
        Ok(())
    }

    /// The pages that a valid header names, with where their copies begin, bytes.
    fn copies(&self, pool: &Pool) -> Result<Vec<(PageId, u64)>> {
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
                && header[DATABASE..DATABASE + 16] == pool.control.current().database
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

/// Fills `buf`; `false` when the file ends before that, or the disk cannot read it (6).
fn read_if_there(file: &File, at: u64, buf: &mut [u8]) -> Result<bool> {
    match file.read_at(at, buf, Cause::Recovery) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.kind, IoErrorKind::UnexpectedEof { .. }) || e.is_unreadable() => Ok(false),
        Err(e) => Err(e.into()),
    }
}

impl Pool {
    /// Restores from their copies the pages that a crash has torn; returns them. At open, before anything
    /// else is read: it checks the home of every page that a copy names.
    ///
    /// # Errors
    /// The disk's refusal. A torn page without a copy is no error here: a reader of the page gets the error,
    /// and if the log initialises the page anew no thread reads the torn one.
    pub fn recover_doublewrite(&self) -> Result<Vec<PageId>> {
        let Some(doublewrite) = &self.doublewrite else { return Ok(Vec::new()) };
        let mut copies: BTreeMap<PageId, Vec<u64>> = BTreeMap::new();
        for (number, at) in doublewrite.copies(self)? {
            copies.entry(number).or_default().push(at);
        }
        let torn = self.torn_homes(copies.keys().copied().collect())?;
        let checkpoint = self.checkpoint_lsn();
        let mut restored = Vec::new();
        let mut copy = AlignedBuf::zeroed(self.page_bytes());
        for number in torn {
            let mut newest: Option<(Lsn, AlignedBuf)> = None;
            for &at in &copies[&number] {
                if !read_if_there(&doublewrite.file, at, &mut copy)?
                    || page::verify(&copy, number, doublewrite.file.path()).is_err()
                {
                    continue;
                }
                let lsn = page::lsn(&copy);
                if lsn >= checkpoint && newest.as_ref().is_none_or(|(newest, _)| *newest < lsn) {
                    newest = Some((lsn, AlignedBuf::copy_of(&copy)));
                }
            }
            if let Some((_, bytes)) = newest {
                self.data.write_at(self.offset_of(number), &bytes, Cause::Recovery).map_err(|e| self.failed(e))?;
                restored.push(number);
            }
        }
        if !restored.is_empty() {
            self.data.sync(Cause::Recovery).map_err(|e| self.failed(e))?;
            count(&self.counters.pages_restored, restored.len());
        }
        Ok(restored)
    }

    /// Of these pages, those whose home fails its check, cannot be read or is not there.
    fn torn_homes(&self, numbers: Vec<PageId>) -> Result<Vec<PageId>> {
        let (there, mut torn): (Vec<_>, Vec<_>) = numbers.into_iter().partition(|n| n.0 < self.file_pages());
        let read = |number: &PageId| FileRequest {
            write: false,
            offset: self.offset_of(*number),
            bufs: vec![AlignedBuf::zeroed(self.page_bytes()).into()],
            cause: Cause::Recovery,
        };
        // A part at a time: 256 copies of the largest page would be 8 MiB.
        for some in there.chunks(32) {
            let pending = self.data.submit(some.iter().map(read).collect())?;
            // Waits for all, also after an error: their order says which page each is.
            let homes: Vec<_> = pending.into_iter().map(|pending| self.data.wait(pending)).collect();
            for (&number, home) in some.iter().zip(homes) {
                match home {
                    Ok(home) if page::verify(&home[0], number, self.data.path()).is_ok() => {}
                    Err(e) if !e.is_unreadable() => return Err(e.into()),
                    _ => torn.push(number),
                }
            }
        }
        torn.sort_unstable();
        Ok(torn)
    }

    /// A failed write of data is final.
    pub(super) fn failed(&self, error: impl Into<Error>) -> Error {
        self.health().poison(error.into())
    }
}
