//! The witness's own file of one run: the acknowledged writes, in the order in which the reports arrived.
//!
//! 1. A report is confirmed and served only after the file has been synced with it.
//! 2. In each stream, sequences in the file rise by exactly one from 1: the record has the reported writes,
//!    without gaps.
//! 3. After a power cut of the witness's own machine, the file is read up to the first invalid record.
//!    Nothing confirmed lies after it, unless the witness's own disk lies; nothing unreported lies before
//!    it.
//! 4. A failed write or sync is sticky: nothing more is confirmed for that run.
//!
//! ```text
//! offset  size
//!      0     8  magic "SEAWITRC"
//!      8     2  version 1
//!     10     2  zero
//!     12     4  streams
//!     16     8  run id
//!     24     4  description, bytes
//!     28     4  crc32c of bytes 0..28 and the description
//!     32     n  description (JSON)
//! then        16 each: stream 4 | sequence 8 | crc32c 4 of (run id 8, index 8, stream 4, sequence 8)
//! ```
//! The record of stream `0xffff_ffff` means that the run ended by itself.

use super::RunId;
use super::protocol::{DESCRIPTION_BYTES_MAX, FLAG_ATTACHED, FLAG_ENDED, REPORTS_MAX, Report, STREAMS_MAX, Standing};
use super::whole;
use seawall_io::{Create, Disk, Handle, IoError, OpenHow, SyncHow, WriteHow};
use std::path::Path;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"SEAWITRC";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 32;
const RECORD_BYTES: usize = 16;
const END: u32 = u32::MAX;
const BUFFERED: WriteHow = WriteHow { dsync: false, dontcache: false, atomic: false };

/// Why a record cannot be used or extended.
#[derive(Debug)]
pub(super) enum RecordError {
    /// There is no record.
    Unknown,
    /// A record exists already.
    Exists,
    /// The file is not a record of this run.
    Unsound(&'static str),
    /// A report does not continue its stream.
    Gap { report: Report, expected: u64 },
    /// The run has no such stream.
    NoSuchStream(u32),
    /// The file has reached its limit.
    Full,
    /// An error of the disk, now or earlier.
    Io(IoError),
}

impl From<IoError> for RecordError {
    fn from(error: IoError) -> Self {
        match error.errno() {
            Some(errno) if errno == rustix::io::Errno::NOENT.raw_os_error() => Self::Unknown,
            Some(errno) if errno == rustix::io::Errno::EXIST.raw_os_error() => Self::Exists,
            _ => Self::Io(error),
        }
    }
}

/// An open record.
#[derive(Debug)]
pub(super) struct Record {
    disk: Arc<dyn Disk>,
    file: Handle,
    run: RunId,
    description: Vec<u8>,
    last: Vec<u64>,
    records: u64,
    bytes_max: u64,
    ended: bool,
    failed: Option<IoError>,
    /// The connection that may report; 0 when there is none.
    pub(super) owner: u64,
}

/// Returns the name of a run's record.
pub(super) fn file_name(run: RunId) -> String {
    format!("{run}.witness")
}

impl Record {
    /// Creates a new record and makes it and its name durable.
    pub(super) fn create(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        run: RunId,
        streams: u32,
        description: &[u8],
        bytes_max: u64,
    ) -> Result<Self, RecordError> {
        let path = dir.join(file_name(run));
        let file = disk.open(&path, OpenHow { write: true, create: Create::New, ..OpenHow::default() })?;
        let mut head = Vec::with_capacity(HEADER_BYTES + description.len());
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&[0; 2]);
        head.extend_from_slice(&streams.to_le_bytes());
        head.extend_from_slice(&run.0.to_le_bytes());
        head.extend_from_slice(&(description.len() as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head), description);
        head.extend_from_slice(&crc.to_le_bytes());
        head.extend_from_slice(description);
        whole::write(&**disk, &file, 0, &head, BUFFERED)?;
        disk.sync(&file, SyncHow::All)?;
        disk.sync_dir(dir)?;
        Ok(Self {
            disk: disk.clone(),
            file,
            run,
            description: description.to_vec(),
            last: vec![0; streams as usize],
            records: 0,
            bytes_max,
            ended: false,
            failed: None,
            owner: 0,
        })
    }

    /// Reads a record up to its last valid entry and cuts off the rest.
    pub(super) fn open(disk: &Arc<dyn Disk>, dir: &Path, run: RunId, bytes_max: u64) -> Result<Self, RecordError> {
        let path = dir.join(file_name(run));
        let file = disk.open(&path, OpenHow { write: true, ..OpenHow::default() })?;
        let mut head = [0; HEADER_BYTES];
        let u32_at = |head: &[u8], at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        if whole::read(&**disk, &file, 0, &mut head)? < HEADER_BYTES || head[..8] != MAGIC {
            return Err(RecordError::Unsound("it has no witness header"));
        }
        if head[8..10] != VERSION.to_le_bytes() {
            return Err(RecordError::Unsound("it is of another version of seawall"));
        }
        let (streams, description_bytes) = (u32_at(&head, 12), u32_at(&head, 24) as usize);
        if head[16..24] != run.0.to_le_bytes() || streams > STREAMS_MAX || description_bytes > DESCRIPTION_BYTES_MAX {
            return Err(RecordError::Unsound("its header is damaged"));
        }
        let mut description = vec![0; description_bytes];
        let got = whole::read(&**disk, &file, HEADER_BYTES as u64, &mut description)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..28]), &description);
        if got < description_bytes || crc != u32_at(&head, 28) {
            return Err(RecordError::Unsound("its header is damaged"));
        }
        let mut record = Self {
            disk: disk.clone(),
            file,
            run,
            description,
            last: vec![0; streams as usize],
            records: 0,
            bytes_max,
            ended: false,
            failed: None,
            owner: 0,
        };
        record.replay()?;
        // The part cut off was never confirmed. If it stayed, it could be mistaken for a continuation of
        // later appends.
        let end = record.end();
        if disk.len(&record.file)? > end {
            disk.set_len(&record.file, end)?;
        }
        // Entries written but not synced before the witness died are served from now on: make them durable
        // first.
        disk.sync(&record.file, SyncHow::All)?;
        Ok(record)
    }

    fn replay(&mut self) -> Result<(), RecordError> {
        let mut chunk = vec![0; RECORD_BYTES * 4096];
        loop {
            let got = whole::read(&*self.disk, &self.file, self.end(), &mut chunk)?;
            for bytes in chunk[..got].chunks_exact(RECORD_BYTES) {
                let Some(report) = self.decode(self.records, bytes) else { return Ok(()) };
                if report.stream == END {
                    self.ended = true;
                } else {
                    match self.last.get_mut(report.stream as usize) {
                        Some(last) if report.sequence == *last + 1 => *last += 1,
                        _ => return Ok(()),
                    }
                }
                self.records += 1;
            }
            if got < chunk.len() {
                return Ok(());
            }
        }
    }

    fn end(&self) -> u64 {
        self.offset(self.records)
    }

    fn offset(&self, index: u64) -> u64 {
        (HEADER_BYTES + self.description.len()) as u64 + index * RECORD_BYTES as u64
    }

    fn crc(&self, index: u64, report: Report) -> u32 {
        let mut bytes = [0; 28];
        bytes[0..8].copy_from_slice(&self.run.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&index.to_le_bytes());
        bytes[16..20].copy_from_slice(&report.stream.to_le_bytes());
        bytes[20..28].copy_from_slice(&report.sequence.to_le_bytes());
        crc32c::crc32c(&bytes)
    }

    fn decode(&self, index: u64, bytes: &[u8]) -> Option<Report> {
        let stream = u32::from_le_bytes(bytes[0..4].try_into().ok()?);
        let sequence = u64::from_le_bytes(bytes[4..12].try_into().ok()?);
        let report = Report { stream, sequence };
        (bytes[12..16] == self.crc(index, report).to_le_bytes()).then_some(report)
    }

    /// Records reports, all or none; they are on disk when this returns. Reports already recorded are
    /// skipped.
    pub(super) fn append(&mut self, reports: &[Report]) -> Result<(), RecordError> {
        let mut last = self.last.clone();
        let mut fresh = Vec::with_capacity(reports.len());
        for &report in reports {
            let last = last.get_mut(report.stream as usize).ok_or(RecordError::NoSuchStream(report.stream))?;
            if report.sequence > *last + 1 || report.sequence == 0 {
                return Err(RecordError::Gap { report, expected: *last + 1 });
            }
            if report.sequence == *last + 1 {
                *last += 1;
                fresh.push(report);
            }
        }
        self.write(&fresh)?;
        self.last = last;
        Ok(())
    }

    /// Records that the run ended by itself.
    pub(super) fn end_run(&mut self) -> Result<(), RecordError> {
        if !self.ended {
            self.write(&[Report { stream: END, sequence: 0 }])?;
            self.ended = true;
        }
        Ok(())
    }

    fn write(&mut self, fresh: &[Report]) -> Result<(), RecordError> {
        if let Some(error) = &self.failed {
            return Err(RecordError::Io(error.clone()));
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(fresh.len() * RECORD_BYTES);
        for (i, report) in fresh.iter().enumerate() {
            bytes.extend_from_slice(&report.stream.to_le_bytes());
            bytes.extend_from_slice(&report.sequence.to_le_bytes());
            bytes.extend_from_slice(&self.crc(self.records + i as u64, *report).to_le_bytes());
        }
        let at = self.end();
        if at + bytes.len() as u64 > self.bytes_max {
            return Err(RecordError::Full);
        }
        let written = whole::write(&*self.disk, &self.file, at, &bytes, BUFFERED)
            .and_then(|()| self.disk.sync(&self.file, SyncHow::Data));
        if let Err(error) = written {
            self.failed = Some(error.clone());
            return Err(RecordError::Io(error));
        }
        self.records += fresh.len() as u64;
        Ok(())
    }

    /// Returns up to a frame's worth of records from index `from`; empty at the end.
    pub(super) fn page(&self, from: u64) -> Result<Vec<Report>, RecordError> {
        let count = self.records.saturating_sub(from).min(REPORTS_MAX as u64);
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; count as usize * RECORD_BYTES];
        whole::read(&*self.disk, &self.file, self.offset(from), &mut bytes)?;
        let reports: Option<Vec<_>> =
            bytes.chunks_exact(RECORD_BYTES).zip(from..).map(|(bytes, index)| self.decode(index, bytes)).collect();
        reports.ok_or(RecordError::Unsound("a record that was sound before is not any more"))
    }

    pub(super) fn standing(&self) -> Standing {
        let flags = if self.ended { FLAG_ENDED } else { 0 } | if self.owner != 0 { FLAG_ATTACHED } else { 0 };
        Standing { records: self.records, flags, last: self.last.clone(), description: self.description.clone() }
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.last.iter().sum()
    }
}

/// Returns whether a record marks the end of the run instead of a write.
pub(super) fn is_end(report: Report) -> bool {
    report.stream == END
}
