//! Reads the log back when a database is opened.
//!
//! 1. An entry is accepted if its CRC holds at its LSN and its incarnation is not below its predecessor's nor
//!    above the control block's. The first refused entry ends the log: log that was never acknowledged may be
//!    torn or missing in any way.
//! 2. The exception is a refused entry that was durable. If a whole entry beyond it records that it was durable to its
//!    end, flushed log is damaged, and reading fails with the position of the damage (writer.rs, 5 bounds how far to
//!    search).
//! 3. Whole entries beyond the refused one that prove nothing are *ghosts*: parts of groups whose earlier bytes did not
//!    persist. The reader reports them, and `Log::open` erases them.
//! 4. Log that was read may not be durable: it may be in a device's cache after a failed flush. Only what a later entry
//!    says was flushed is known to be durable; `Log::open` writes the rest again. It is not taken from the page cache
//!    ([`File::distrust_cache`]): the kernel may drop pages there that a failed flush left, and a second read would
//!    return something else than the first.
//! 5. Each segment is locked briefly before anything is read: then a killed process's last writes have completed, and
//!    none can follow (trap 7).
//! 6. A piece that the disk cannot read counts as zeroes, and its error is remembered. If the log ends in an entry with
//!    such a piece, the error is returned: that entry may have been acknowledged. Beyond that entry the piece is stale,
//!    from an older pass through the segments or from a write that a crash tore (trap 26).
//! 7. A log can end with its last segment. A segment that is missing before that one, or has another length, is an
//!    error that names the segment. Without any segment, the directory is probably not the log's: the error says so.

use super::entry::{ENTRY_BYTES_MAX, HEADER_BYTES, Header, INCARNATION_END, Seal};
use super::read_ahead::{LogSegments, ReadAhead};
use super::ring_file::OldRing;
use super::segment_file::{self, SegmentOptions};
use super::shelf::Shelf;
use super::{BLOCK_BYTES_MAX, LogConfig, MTR_BYTES_MAX};
use crate::error::{Corruption, Error, Result, while_locked};
use crate::format::Lsn;
use crate::mutants::{Mutant, Planted};
use seawall_io::errno::ENOENT;
use seawall_io::{AlignedBuf, BUFFER_ALIGN, Cause, Disk, File, IoError};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
const WINDOW_BYTES: usize = 2 * READ_BYTES;
/// Bytes that are checked for zeroes at once.
const ZEROES_STRIDE: usize = 256;
const _: () = assert!(ENTRY_BYTES_MAX + 2 * BUFFER_ALIGN + READ_BYTES <= WINDOW_BYTES, "an entry fits beside a read");

/// A mini-transaction, as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntry<'a> {
    /// Where it begins.
    pub start: Lsn,
    /// Where it ends: the LSN of its pages.
    pub end: Lsn,
    /// The opening that wrote it.
    pub incarnation: u32,
    /// Its records ([`super::Records`]); none in the entry that begins an opening.
    pub body: &'a [u8],
}

/// The end of the log, and everything that is needed to continue it. Holds the segments' locks.
#[derive(Debug)]
pub struct LogTail {
    /// Where reading began: the checkpoint.
    pub from: Lsn,
    /// Where the next mini-transaction will begin.
    pub end: Lsn,
    /// Incarnation of the last entry; 0 when there was none.
    pub last_incarnation: u32,
    /// Everything before this is known to be durable.
    pub(super) durable: u64,
    /// The bytes before `end` in its block.
    pub(super) prefix: Vec<u8>,
    /// Where the last ghost ends; `end` when there is none.
    pub(super) ghosts_end: u64,
    pub(super) shelf: Arc<Shelf>,
    pub(super) numbers: BTreeSet<u64>,
}

/// Reads entries in order.
#[derive(Debug)]
pub struct LogReader {
    shelf: Arc<Shelf>,
    numbers: BTreeSet<u64>,
    seal: Seal,
    segment_bytes: u64,
    block_bytes: usize,
    search_bytes: u64,
    from: u64,
    /// The lowest incarnation an entry can have.
    incarnation_min: u32,
    incarnation_max: u32,
    last_incarnation: u32,
    /// The next entry begins here.
    at: u64,
    /// Everything before this was durable, according to an entry or the checkpoint.
    durable: u64,
    /// The first position that no segment holds.
    files_end: u64,
    window: Window,
    ahead: ReadAhead,
    /// The end of the log, if the database was closed cleanly.
    closed_at: Option<u64>,
    tail: Option<Tail>,
    planted: Planted,
    /// Pieces of the stream that the disk could not read, with the error.
    unreadable: Vec<(u64, IoError)>,
    /// The ring of the opening that died; used once, where the segments end.
    ring: Option<OldRing>,
}

/// The result of the search beyond the end.
#[derive(Debug, Clone, Copy)]
struct Tail {
    ghosts_end: u64,
}

/// A stretch of the stream in memory.
#[derive(Debug)]
struct Window {
    buf: AlignedBuf,
    /// LSN of the first byte, a multiple of [`BUFFER_ALIGN`].
    base: u64,
    len: usize,
}

impl LogReader {
    /// Opens the log for reading from `from` on (the checkpoint). Accepts no entry of an incarnation above
    /// `incarnation_max` (the control block's).
    ///
    /// # Errors
    /// [`Corruption::File`] for a segment that is missing or has another length; [`crate::Error::Locked`]
    /// when another process has the log open; [`crate::Error::InvalidOption`]; [`crate::Error::Io`].
    #[allow(clippy::needless_pass_by_value)] // as everywhere: a disk is handed over
    pub fn open(disk: Arc<dyn Disk>, config: &LogConfig, from: Lsn, incarnation_max: u32) -> Result<Self> {
        config.check()?;
        let numbers: BTreeSet<u64> = match segment_file::list(&*disk, &config.dir) {
            Err(Error::Io(error)) if error.errno() == Some(ENOENT) => BTreeSet::new(),
            found => found?.into_keys().collect(),
        };
        if numbers.is_empty() {
            let why = "there is no log in this directory. Was the database made with another log_dir? Give that one \
                       (--log-dir, or log_dir in its seawall.toml). If the log is lost, restore a backup";
            return Err(Corruption::File { path: config.dir.clone(), why: why.into() }.into());
        }
        let shelf = Arc::new(Shelf::new(disk, &config.dir, SegmentOptions::of(config)));
        // The last segment first: a running database has that one open. All are made durable: a copy of a database may
        // be in the page cache alone, and a power cut must not take the length of a segment that later log relies on.
        for number in numbers.iter().rev() {
            while_locked(&*config.clock, || shelf.get(*number))?.distrust_cache()?;
        }
        let first = from.0 / config.segment_bytes;
        let missing = |number: u64, why: &str| -> Result<Self> {
            let path = segment_file::path_of(&config.dir, number);
            let why = format!("this segment of the log is missing: {why}. Restore it from a backup");
            Err(Corruption::File { path, why }.into())
        };
        // The checkpoint may lie at the very end of the last segment, if the next one was never needed.
        let at_the_end = from.0 % config.segment_bytes == 0 && first > 0 && numbers.contains(&(first - 1));
        if !numbers.contains(&first) && !at_the_end {
            return missing(first, &format!("the checkpoint at {from} lies in it"));
        }
        let contiguous =
            (first..).zip(numbers.range(first..)).take_while(|(expected, found)| expected == *found).count() as u64;
        if let Some(last) = numbers.last().filter(|last| **last >= first + contiguous) {
            return missing(first + contiguous, &format!("there is a later one, number {last:#x}"));
        }
        let (from, files_end) = (from.0, (first + contiguous) * config.segment_bytes);
        Ok(Self {
            shelf,
            numbers,
            seal: Seal::new(&config.database),
            segment_bytes: config.segment_bytes,
            block_bytes: config.block_bytes,
            search_bytes: search_bytes(config.buffer_bytes as u64),
            from,
            incarnation_min: 1,
            incarnation_max,
            last_incarnation: 0,
            at: from,
            durable: from,
            files_end,
            window: Window { buf: AlignedBuf::zeroed(WINDOW_BYTES), base: from & !(BUFFER_ALIGN as u64 - 1), len: 0 },
            ahead: ReadAhead::default(),
            closed_at: None,
            tail: None,
            planted: Planted::here(),
            unreadable: Vec::new(),
            ring: None,
        })
    }

    /// Also reads the entries after the end of the segments that the last opening had in its ring when it died
    /// (`log/ring_file.rs`, 2). Call this only if that opening did not close the database.
    ///
    /// # Errors
    /// [`crate::Error::Locked`]; [`crate::Error::Io`].
    pub fn with_ring(&mut self, disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<()> {
        self.ring = OldRing::find(disk, config)?;
        Ok(())
    }

    /// Sets what the control block says of the log from the checkpoint on: no entry has an earlier incarnation than
    /// `incarnation`, and none was written through a larger buffer than `buffer_bytes`, or than this opening's own.
    pub fn written_by(&mut self, incarnation: u32, buffer_bytes: u64) {
        self.incarnation_min = incarnation.max(1);
        self.search_bytes = self.search_bytes.max(search_bytes(buffer_bytes));
    }

    /// Returns another reader of the same open files, from the same position; the files can be locked only once.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            shelf: self.shelf.clone(),
            numbers: self.numbers.clone(),
            seal: self.seal,
            last_incarnation: 0,
            at: self.from,
            window: Window {
                buf: AlignedBuf::zeroed(WINDOW_BYTES),
                base: self.from & !(BUFFER_ALIGN as u64 - 1),
                len: 0,
            },
            ahead: ReadAhead::default(),
            tail: None,
            unreadable: Vec::new(),
            ring: None,
            ..*self
        }
    }

    /// Notes what the control block says: the database was closed cleanly with its durable log ending at `end`, and no
    /// opening has begun since. Then an earlier end is damage, and nothing beyond `end` has to be searched.
    pub fn closed_at(&mut self, end: Lsn) {
        self.closed_at = Some(end.0);
    }

    /// Returns where the next mini-transaction begins.
    #[must_use]
    pub fn at(&self) -> Lsn {
        Lsn(self.at)
    }

    /// Reads the next mini-transaction. Returns `None` at the end.
    ///
    /// # Errors
    /// [`Corruption::Log`] when flushed log is damaged; [`crate::Error::Io`].
    #[allow(clippy::should_implement_trait)] // an entry borrows the reader
    pub fn next(&mut self) -> Result<Option<LogEntry<'_>>> {
        if self.tail.is_some() {
            return Ok(None);
        }
        let mut found = self.entry_at(self.at, self.last_incarnation.max(self.incarnation_min))?;
        if found.is_none() && self.planted.has(Mutant::EndTooFar) {
            found = self.header_at(self.at)?;
        }
        if found.is_none() && self.take_up_ring()? {
            found = self.entry_at(self.at, self.last_incarnation.max(self.incarnation_min))?;
        }
        let Some(header) = found else {
            self.look_beyond()?;
            return Ok(None);
        };
        let start = self.at;
        self.at += header.entry_bytes();
        self.last_incarnation = header.incarnation;
        self.durable = header.durable_then(start).map_or(self.durable, |durable| durable.max(self.durable));
        let body = self.window.get(start + HEADER_BYTES as u64, header.len as usize);
        Ok(Some(LogEntry { start: Lsn(start), end: Lsn(self.at), incarnation: header.incarnation, body }))
    }

    /// Reads to the end, if it was not reached yet, and returns it.
    ///
    /// # Errors
    /// As [`LogReader::next`].
    pub fn finish(mut self) -> Result<LogTail> {
        while self.next()?.is_some() {}
        let floor = self.at & !(self.block_bytes as u64 - 1);
        let prefix_bytes = (self.at - floor) as usize;
        let prefix = if prefix_bytes == 0 {
            Vec::new()
        } else {
            self.window.seek(floor);
            self.load(self.at)?;
            self.check_readable(self.from.max(floor)..self.at)?;
            self.window.get(floor, prefix_bytes).to_vec()
        };
        let ghosts_end = self.tail.map_or(self.at, |tail| tail.ghosts_end);
        Ok(LogTail {
            from: Lsn(self.from),
            end: Lsn(self.at),
            last_incarnation: self.last_incarnation,
            durable: self.durable,
            prefix,
            ghosts_end,
            shelf: self.shelf,
            numbers: self.numbers,
        })
    }

    /// Returns the disk's error if a part of `needed` could not be read.
    fn check_readable(&self, needed: Range<u64>) -> Result<()> {
        let overlaps = |piece: u64| piece.max(needed.start) < needed.end.min(piece + BUFFER_ALIGN as u64);
        match self.unreadable.iter().find(|(piece, _)| overlaps(*piece)) {
            Some((_, error)) => Err(error.clone().into()),
            None => Ok(()),
        }
    }

    /// Writes the ring's entries that lie after the end of the segments to the segments, and flushes them. Returns
    /// `false` when the ring has none.
    fn take_up_ring(&mut self) -> Result<bool> {
        let Some(ring) = self.ring.take() else { return Ok(false) };
        if self.planted.has(Mutant::RingForgotten) {
            return Ok(false);
        }
        let taken = self.entries_of(&ring)?;
        let written = ring.written;
        drop(ring);
        let first = taken.first_chunk().map(|bytes| Header::entry_bytes_of(*bytes));
        let Some(first_bytes) = first else { return Ok(false) };
        if self.at + first_bytes <= written {
            log::warn!(
                "the log's files end at {}, and were written up to {written} before: the power was cut, or they were put \
                 back from an older copy. What the file of log_ring_dir has beyond is left out",
                Lsn(self.at)
            );
            return Ok(false);
        }
        let (start, end) = (self.at, self.at + taken.len() as u64);
        log::info!(
            "commits at Written: {} bytes from {} on are taken from the file of log_ring_dir",
            end - start,
            Lsn(start)
        );
        let block = self.block_bytes.max(BUFFER_ALIGN);
        let (floor, blocks_end) = (start & !(block as u64 - 1), end.next_multiple_of(block as u64));
        let mut bytes = AlignedBuf::zeroed((blocks_end - floor) as usize);
        // The bytes before the entries are log that was read, or log from before the checkpoint; the bytes after them
        // do not matter.
        for at in [floor, blocks_end - block as u64] {
            self.window.seek(at);
            self.load(at + block as u64)?;
            bytes[(at - floor) as usize..][..block].copy_from_slice(self.window.get(at, block));
        }
        self.check_readable(self.from.max(floor)..start)?;
        bytes[(start - floor) as usize..][..taken.len()].copy_from_slice(&taken);
        let mut at = floor;
        while at < blocks_end {
            let segment_end = (at / self.segment_bytes + 1) * self.segment_bytes;
            let next = blocks_end.min(segment_end).min(at + READ_BYTES as u64);
            let part = &bytes[(at - floor) as usize..(next - floor) as usize];
            let file = self.shelf.get(at / self.segment_bytes)?;
            file.write_durable_at(at % self.segment_bytes, part, Cause::Recovery)?;
            at = next;
        }
        // All of it is read again from the segments, like any other log.
        self.window.len = 0;
        self.window.seek(floor);
        self.ahead = ReadAhead::default();
        self.unreadable.retain(|(piece, _)| !(floor..blocks_end).contains(piece));
        Ok(true)
    }

    /// Returns the bytes of the ring's entries from `self.at` on. The ring may have the first entry only from a
    /// segment's end on: the part before is written, and its place in the ring is used again (`ring_file.rs`, 2 and 3).
    fn entries_of(&mut self, ring: &OldRing) -> Result<Vec<u8>> {
        let first_end = (self.at / self.segment_bytes + 1) * self.segment_bytes;
        let upto = self.files_end.min(self.at + ENTRY_BYTES_MAX as u64);
        self.load_from(self.at, upto)?;
        let ends = (first_end..upto).step_by(self.segment_bytes as usize);
        let mut tried = std::iter::once(self.at).chain(ends).map(|cut| self.entries_from(cut, ring));
        Ok(tried.find(|taken| !taken.is_empty()).unwrap_or_default())
    }

    /// Returns the bytes of the entries from `self.at` on: those before `cut` from the window, the others from the
    /// ring.
    fn entries_from(&self, cut: u64, ring: &OldRing) -> Vec<u8> {
        let copy_to = |lsn: u64, into: &mut [u8]| {
            let (written, other) = into.split_at_mut(into.len().min(cut.saturating_sub(lsn) as usize));
            if !written.is_empty() {
                written.copy_from_slice(self.window.get(lsn, written.len()));
            }
            ring.copy_to(lsn + written.len() as u64, other);
        };
        let mut incarnations = match self.last_incarnation {
            // No entry was read: the checkpoint is the segments' end.
            0 => self.incarnation_min..=self.incarnation_max,
            last => last..=last,
        };
        // The ring holds no more than its length, and admitted log has its segment.
        let limit = (cut + ring.len()).min(self.files_end);
        let mut taken = Vec::new();
        loop {
            let (begun, lsn) = (taken.len(), self.at + taken.len() as u64);
            let mut bytes = [0; HEADER_BYTES];
            copy_to(lsn, &mut bytes);
            let header = Header::decode(&bytes, &incarnations).filter(|header| lsn + header.entry_bytes() <= limit);
            let Some(header) = header else { break };
            taken.resize(begun + header.entry_bytes() as usize, 0);
            copy_to(lsn, &mut taken[begun..]);
            if !self.seal.holds(lsn, &header, &taken[begun + HEADER_BYTES..]) {
                taken.truncate(begun);
                break;
            }
            incarnations = header.incarnation..=header.incarnation;
        }
        taken
    }

    /// Returns the header of the entry at `lsn`, if there is a whole one of an incarnation from `least` on. The entry's
    /// bytes are then in the window.
    fn entry_at(&mut self, lsn: u64, least: u32) -> Result<Option<Header>> {
        let body_at = lsn + HEADER_BYTES as u64;
        if !self.load_from(lsn, body_at)? {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(self.window.get(lsn, HEADER_BYTES));
        let Some(header) = Header::decode(&bytes, &(least..=self.incarnation_max)) else { return Ok(None) };
        if !self.load_from(lsn, lsn + header.entry_bytes())? {
            return Ok(None);
        }
        let body = self.window.get(body_at, header.len as usize);
        Ok(self.seal.holds(lsn, &header, body).then_some(header))
    }

    /// Returns the end of the refused entry at `lsn` as its header says, or the end of the header if that does not bear
    /// its mark. A flush can end inside an entry, where a segment ends, and then proves nothing about the entry as a
    /// whole.
    fn refused_end(&mut self, lsn: u64) -> Result<u64> {
        let header = self.header_at(lsn)?;
        Ok(lsn + header.map_or(HEADER_BYTES as u64, |header| header.entry_bytes()))
    }

    /// Returns the header of the entry at `lsn`, whole or not, if the header bears its mark. The header's bytes are
    /// then in the window.
    fn header_at(&mut self, lsn: u64) -> Result<Option<Header>> {
        if !self.load_from(lsn, lsn + HEADER_BYTES as u64)? {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(self.window.get(lsn, HEADER_BYTES));
        let header = Header::decode(&bytes, &(1..=self.incarnation_max));
        Ok(header.filter(|header| self.seal.marked(lsn, header)))
    }

    /// Refuses a log that an opening has continued of which the control block does not know.
    fn check_is_own_end(&mut self, end: u64) -> Result<()> {
        let max = self.incarnation_max;
        let Some(first) = max.checked_add(1) else { return Ok(()) };
        self.incarnation_max = u32::MAX;
        let found = self.entry_at(end, first);
        self.incarnation_max = max;
        if found?.is_none() {
            return Ok(());
        }
        let why = "it goes on with the log of a later opening, of which the control file does not know: a copy of this \
                   database was opened with the same log_dir, or an older copy of its directory was put back. Nothing \
                   was changed. Put back the directory and the log of one moment, or open the later one";
        Err(Corruption::Log { at: Lsn(end), why: why.into() }.into())
    }

    /// Searches beyond the first refused entry for proof of damage and for ghosts.
    fn look_beyond(&mut self) -> Result<()> {
        let end = self.at;
        self.check_is_own_end(end)?;
        let whole_at = self.refused_end(end)?;
        let refused = |(piece, _): &&(u64, IoError)| *piece < whole_at && end < *piece + BUFFER_ALIGN as u64;
        if let Some((_, error)) = self.unreadable.iter().find(refused).filter(|_| self.closed_at != Some(end)) {
            return Err(error.clone().into());
        }
        if let Some(closed_at) = self.closed_at.filter(|closed_at| *closed_at != end) {
            let why = format!("the database was closed with its log ending at lsn {closed_at}");
            return Err(Corruption::Log { at: Lsn(end), why }.into());
        }
        if self.closed_at.is_some() {
            self.tail = Some(Tail { ghosts_end: end });
            return Ok(());
        }
        let mut ghosts_end = end;
        let mut at = end + 1;
        let stop = (end + self.search_bytes).min(self.files_end);
        let incarnations = 1..=self.incarnation_max;
        while at + HEADER_BYTES as u64 <= stop {
            self.load_from(at, at + HEADER_BYTES as u64)?;
            at = match self.window.header_from(at, &incarnations, self.seal) {
                Ok(found) => found,
                Err(next) => {
                    at = next;
                    continue;
                }
            };
            let Some(header) = self.entry_at(at, 1)? else {
                at += 1;
                continue;
            };
            let proof = header.durable_then(at).filter(|durable| *durable >= whole_at);
            if let Some(durable) = proof.filter(|_| !self.planted.has(Mutant::UnprovenEnd)) {
                let why = format!(
                    "the mini-transaction here is broken, but a whole one at lsn {at} says that everything before lsn \
                     {durable} was flushed"
                );
                return Err(Corruption::Log { at: Lsn(end), why }.into());
            }
            at += header.entry_bytes();
            ghosts_end = at;
        }
        self.tail = Some(Tail { ghosts_end });
        Ok(())
    }

    /// Loads `keep..upto` into the window. Returns `false` if the files end before `upto`.
    fn load_from(&mut self, keep: u64, upto: u64) -> Result<bool> {
        if upto > self.files_end {
            return Ok(false);
        }
        if upto > self.window.end() {
            self.window.seek(keep);
            self.load(upto)?;
        }
        Ok(true)
    }

    /// Reads on until the window ends at `upto` or later.
    fn load(&mut self, upto: u64) -> Result<()> {
        while self.window.end() < upto {
            let segments = LogSegments {
                shelf: &self.shelf,
                segment_bytes: self.segment_bytes,
                end: self.files_end,
                chunk: READ_BYTES as u64,
            };
            let at = self.window.base + self.window.len as u64;
            let into = &mut self.window.buf[self.window.len..];
            self.window.len += match self.ahead.read(segments, at, into) {
                Err(Error::Io(e)) if e.is_unreadable() => {
                    let len = segments.len_at(at);
                    let file = self.shelf.get(at / self.segment_bytes)?;
                    read_in_pieces(&file, at, at % self.segment_bytes, &mut into[..len], &mut self.unreadable)?;
                    len
                }
                read => read?,
            };
        }
        Ok(())
    }
}

/// Returns how far beyond the end a log with a buffer of this size can have written something: half a buffer unflushed,
/// a buffer not yet written, an entry (writer.rs, 5) and a block.
fn search_bytes(buffer_bytes: u64) -> u64 {
    buffer_bytes / 2 + buffer_bytes + ENTRY_BYTES_MAX as u64 + BLOCK_BYTES_MAX
}

/// Fills `into` from `offset` of `file`, which is `lsn` in the stream; unreadable pieces become zeroes (6).
fn read_in_pieces(
    file: &File,
    lsn: u64,
    offset: u64,
    into: &mut [u8],
    unreadable: &mut Vec<(u64, IoError)>,
) -> Result<()> {
    let mut piece = AlignedBuf::zeroed(BUFFER_ALIGN);
    for (into, done) in into.chunks_mut(BUFFER_ALIGN).zip((0..).step_by(BUFFER_ALIGN)) {
        match file.read_at(offset + done, &mut piece[..into.len()], Cause::Recovery) {
            Ok(()) => into.copy_from_slice(&piece[..into.len()]),
            Err(e) if e.is_unreadable() => {
                into.fill(0);
                unreadable.push((lsn + done, e));
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

impl Window {
    fn end(&self) -> u64 {
        self.base + self.len as u64
    }

    fn get(&self, lsn: u64, len: usize) -> &[u8] {
        let offset = (lsn - self.base) as usize;
        &self.buf[offset..offset + len]
    }

    /// Drops the bytes before `keep`.
    fn seek(&mut self, keep: u64) {
        let base = keep & !(BUFFER_ALIGN as u64 - 1);
        if (self.base..=self.end()).contains(&base) {
            let skip = (base - self.base) as usize;
            self.buf.copy_within(skip..self.len, 0);
            self.len -= skip;
        } else {
            self.len = 0;
        }
        self.base = base;
    }

    /// Returns the next position from `lsn` on where a header may begin. `Err` has the position to continue at, if the
    /// window has none.
    fn header_from(&self, lsn: u64, incarnations: &RangeInclusive<u32>, seal: Seal) -> Result<u64, u64> {
        let mut offset = (lsn - self.base) as usize;
        let buf = &self.buf[..self.len];
        while let Some(bytes) = buf.get(offset..offset + HEADER_BYTES) {
            // Most space that was never written is zeroes, possibly megabytes: no header has its incarnation within
            // them.
            let stride = &buf[offset..buf.len().min(offset + ZEROES_STRIDE)];
            if stride.iter().all(|&b| b == 0) {
                offset += stride.len() - INCARNATION_END + 1;
                continue;
            }
            let bytes = bytes.try_into().expect("a slice of this length");
            let at = self.base + offset as u64;
            if Header::decode(bytes, incarnations).is_some_and(|header| seal.marked(at, &header)) {
                return Ok(at);
            }
            offset += 1;
        }
        Err(self.base + offset as u64)
    }
}

const _: () = assert!(MTR_BYTES_MAX < READ_BYTES, "an entry never spans more than two reads");
