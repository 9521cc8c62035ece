//! A batch: a part of the log, sorted by page.

use super::Redone;
use crate::btree;
use crate::buffer::Pool;
use crate::error::{Corruption, Error, READS_AGAIN, Result};
use crate::format::tag::{self, Layer};
use crate::format::{Lsn, Malformed, PageId, page};
use crate::log::{LogEntry, LogReader, MTR_BYTES_MAX, Records};
use crate::space;
use crate::txn::undo;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Approximate bytes of a batch. Two exist at a time, and the sort needs up to half of another.
const BATCH_BYTES: usize = 12 << 20;
/// Pages prefetched ahead of the one that is redone.
const READ_AHEAD: usize = 64;

/// Records copied out of the log.
#[derive(Debug)]
pub(super) struct Batch {
    bodies: Vec<u8>,
    /// Where the mini-transactions begin and end.
    entries: Vec<(Lsn, Lsn)>,
    records: Vec<Redo>,
    last_txn: u64,
}

/// A record. It is small, because sorting moves it.
#[derive(Debug)]
struct Redo {
    page: PageId,
    /// Its mini-transaction, an index of `entries`.
    entry: u32,
    /// Offset and length of its body in `bodies`.
    body: u32,
    len: u32,
    tag: u8,
}

const _: () = assert!(BATCH_BYTES + MTR_BYTES_MAX < u32::MAX as usize, "an offset fits its field");

impl Batch {
    /// Makes an empty batch. Its memory is reserved at once, and used only as it is filled: a list that grows by
    /// doubling takes up to twice as much.
    pub(super) fn new() -> Self {
        let records = Vec::with_capacity(BATCH_BYTES / size_of::<Redo>());
        let entries = Vec::with_capacity(BATCH_BYTES / size_of::<(Lsn, Lsn)>());
        Self { bodies: Vec::with_capacity(BATCH_BYTES), entries, records, last_txn: 0 }
    }

    /// Fills the batch, which must be empty, from the log up to `end`. Returns whether there was anything.
    pub(super) fn fill(&mut self, reader: &mut LogReader, end: Lsn) -> Result<bool> {
        // After `end`, this opening is already writing.
        while !self.is_full() && reader.at() < end {
            let Some(entry) = reader.next()? else {
                let why = format!("it was whole up to {end} a moment ago, when its end was looked for");
                return Err(Corruption::Log { at: reader.at(), why }.into());
            };
            self.add(&entry)?;
        }
        // Stable: the records of one page stay in the order of the log.
        self.records.sort_by_key(|record| record.page);
        Ok(!self.entries.is_empty())
    }

    fn add(&mut self, entry: &LogEntry<'_>) -> Result<()> {
        for record in Records::new(entry.body) {
            let record = record.map_err(|why| damaged(entry.start, &why.to_string()))?;
            if let Some(txn) = undo::begun(record.tag, record.body) {
                self.last_txn = self.last_txn.max(txn.0);
            }
            let (body, len) = (self.bodies.len() as u32, record.body.len() as u32);
            self.bodies.extend_from_slice(record.body);
            let entry = self.entries.len() as u32;
            self.records.push(Redo { page: record.page, entry, body, len, tag: record.tag });
        }
        self.entries.push((entry.start, entry.end));
        Ok(())
    }

    fn is_full(&self) -> bool {
        let lists = self.records.len() * size_of::<Redo>() + self.entries.len() * size_of::<(Lsn, Lsn)>();
        self.bodies.len() + lists >= BATCH_BYTES
    }

    /// Returns where a batch that is not empty begins.
    pub(super) fn start(&self) -> Lsn {
        self.entries.first().map_or(Lsn(0), |entry| entry.0)
    }

    /// Applies all records, and empties the batch.
    pub(super) fn apply(&mut self, pool: &Pool, threads: usize, abandons: bool, done: &mut Redone) -> Result<()> {
        let pages: Vec<&[Redo]> = self.records.chunk_by(|a, b| a.page == b.page).collect();
        let next = AtomicUsize::new(0);
        let (applied, skipped) = (AtomicU64::new(0), AtomicU64::new(0));
        let work = || -> Result<()> {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(records) = pages.get(at) else { return Ok(()) };
                if at % (READ_AHEAD / 2) == 0 {
                    pool.prefetch(&read_ahead(&pages[at..]));
                }
                let (new, known) = match self.redo_page(pool, records) {
                    Err(error) if error.is_damage() => self.abandon(pool, records, error, abandons)?,
                    redone => redone?,
                };
                applied.fetch_add(new, Ordering::Relaxed);
                skipped.fetch_add(known, Ordering::Relaxed);
            }
        };
        let threads = threads.min(pages.len());
        if threads <= 1 {
            work()?;
        } else {
            std::thread::scope(|scope| {
                let others: Vec<_> =
                    (1..threads).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
                let mine = work();
                let theirs = others.into_iter().map(|thread| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
                theirs.fold(mine, Result::and)
            })?;
        }
        done.mini_transactions += self.entries.len() as u64;
        done.applied += applied.into_inner();
        done.skipped += skipped.into_inner();
        done.last_txn = done.last_txn.max(self.last_txn);
        self.records.clear();
        self.bodies.clear();
        self.entries.clear();
        Ok(())
    }

    /// Applies the records of one page. Returns how many the page did not have, and how many it had.
    fn redo_page(&self, pool: &Pool, records: &[Redo]) -> Result<(u64, u64)> {
        let mut page = match pool.redo_page(records[0].page, tag::initialises(records[0].tag)) {
            // What comes before the last record that initialises the page is not needed.
            Err(error) if error.is_damage() => {
                let whole = records.iter().rposition(|record| tag::initialises(record.tag)).filter(|&at| at > 0);
                let at = whole.ok_or(error)?;
                let (applied, skipped) = self.redo_page(pool, &records[at..])?;
                return Ok((applied, skipped + at as u64));
            }
            page => page?,
        };
        let (mut applied, mut skipped) = (0, 0);
        for of_one in records.chunk_by(|a, b| a.entry == b.entry) {
            let (start, end) = self.entries[of_one[0].entry as usize];
            // The page has all of this mini-transaction's changes to it, or none.
            if page::lsn(&page) >= end {
                skipped += of_one.len() as u64;
                continue;
            }
            for record in of_one {
                let body = &self.bodies[record.body as usize..][..record.len as usize];
                apply(record.tag, body, page.redo_bytes()).map_err(|why| {
                    damaged(start, &format!("record {:#04x} of page {}: {why}", record.tag, record.page))
                })?;
            }
            page.redone(start, end);
            applied += of_one.len() as u64;
        }
        Ok((applied, skipped))
    }

    /// Abandons a page that could not be read, or passes records of one that was abandoned before. Returns as
    /// [`Batch::redo_page`].
    ///
    /// # Errors
    /// `error`, if that is not allowed; an error of the disk.
    fn abandon(&self, pool: &Pool, records: &[Redo], error: Error, abandons: bool) -> Result<(u64, u64)> {
        let (page, passed) = (records[0].page, (0, records.len() as u64));
        if !records.iter().all(|record| tag::layer(record.tag) == Some(Layer::Btree)) {
            return Err(error);
        }
        if error.is_abandoned() {
            return Ok(passed);
        }
        let is_lost = |error: &Error| match error {
            Error::Corrupt(why) => {
                matches!(**why, Corruption::ChecksumMismatch { .. } | Corruption::Misdirected { .. })
            }
            error => error.is_damage(),
        };
        if !is_lost(&error) {
            return Err(error);
        }
        if !abandons {
            ::log::error!(
                "the log has changes of page {page}, which cannot be read: restore a backup. If there is none, copy the \
                 files, and open once with damaged_pages = abandon: what the page holds is then lost, and the rest can \
                 be dumped"
            );
            return Err(error);
        }
        for _ in 0..READS_AGAIN {
            match self.redo_page(pool, records) {
                Err(again) if is_lost(&again) => {}
                redone => return redone,
            }
        }
        pool.abandon(page)?;
        ::log::warn!("page {page} is abandoned, as damaged_pages = abandon says: what it holds is lost. {error}");
        // A prefetch by another thread may have read it at last: then it is written home as any other page.
        match self.redo_page(pool, records) {
            Err(error) if error.is_abandoned() => Ok(passed),
            redone => redone,
        }
    }
}

/// Applies a record to its page, by its tag.
///
/// # Errors
/// A record that does not decode, or does not fit the page.
pub fn apply(tag: u8, body: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    match tag::layer(tag) {
        Some(Layer::Space) => space::redo(tag, body, page),
        Some(Layer::Btree) => btree::redo(tag, body, page),
        Some(Layer::Txn) => undo::redo(tag, body, page),
        None => Err(Malformed("no layer has this tag")),
    }
}

/// Returns the next pages that must be read from disk, without those that the log initialises.
fn read_ahead(pages: &[&[Redo]]) -> Vec<PageId> {
    let ahead = pages.iter().take(READ_AHEAD);
    ahead.filter(|records| !tag::initialises(records[0].tag)).map(|records| records[0].page).collect()
}

fn damaged(at: Lsn, why: &str) -> Error {
    Corruption::Log { at, why: why.into() }.into()
}
