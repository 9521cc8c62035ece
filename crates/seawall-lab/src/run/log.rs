//! E2's workload: many threads commit small records to one log; a committer that finds no leader becomes the
//! leader.
//!
//! ```text
//!   commit ──append to pending──> leader already there? ──yes──> sleep until durable
//!                                       └──no──> take pending, write, sync, wake all
//! ```
//!
//! 1. No artificial delay: a group consists of the commits that arrived while the previous group was written.
//! 2. Merged: a group is one write of whole blocks; the last, partial block is kept in memory and written
//!    again, whole, with the next group, never read back (trap 19). Split: each record is a separate write,
//!    as in logs at the time of E2.
//! 3. The mutex is not held across a write or a sync.

use super::LabError;
use super::prepare::{Prepared, write_how, write_whole};
use crate::cell::{Access, CellSpec, LogShape, Sync};
use parking_lot::{Condvar, Mutex};
use seawall_io::{AlignedBuf, Disk as _, IoError, OsDisk, SyncHow};
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest group, bytes; further commits wait for the next.
const GROUP_BYTES_MAX: usize = 1 << 20;

pub(super) struct GroupLog<'a> {
    disk: OsDisk,
    file: &'a Prepared,
    spec: &'a CellSpec,
    pub(super) shape: LogShape,
    state: Mutex<State>,
    changed: Condvar,
    writes: AtomicU64,
    syncs: AtomicU64,
}

struct State {
    pending: Vec<u8>,
    /// Bytes ever appended.
    appended: u64,
    /// Bytes ever made durable.
    durable: u64,
    /// The leader takes it; `None` while there is a leader.
    writer: Option<Writer>,
    failed: Option<IoError>,
}

struct Writer {
    /// Where the next byte goes in the file.
    at: u64,
    /// Aligned memory: the partial last block, then the group.
    buf: AlignedBuf,
    /// Bytes of the partial last block at the start of `buf`.
    tail: usize,
    group: Vec<u8>,
}

impl<'a> GroupLog<'a> {
    pub(super) fn new(spec: &'a CellSpec, file: &'a Prepared) -> Self {
        let one = LogShape { records_per_commit: 1, record_bytes: spec.block_bytes, merged: true };
        let buf = AlignedBuf::zeroed(GROUP_BYTES_MAX + 2 * spec.block_bytes as usize);
        let writer = Some(Writer { at: 0, buf, tail: 0, group: Vec::new() });
        Self {
            disk: OsDisk::synchronous(),
            file,
            spec,
            shape: spec.log.unwrap_or(one),
            state: Mutex::new(State { pending: Vec::new(), appended: 0, durable: 0, writer, failed: None }),
            changed: Condvar::new(),
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        }
    }

    /// Writes and syncs issued.
    pub(super) fn issued(&self) -> (u64, u64) {
        (self.writes.load(Ordering::Relaxed), self.syncs.load(Ordering::Relaxed))
    }

    /// Appends `records` and returns when they are durable.
    pub(super) fn commit(&self, records: &[u8]) -> Result<(), LabError> {
        let mut state = self.state.lock();
        while state.pending.len() + records.len() > GROUP_BYTES_MAX && state.failed.is_none() {
            self.changed.wait(&mut state);
        }
        state.pending.extend_from_slice(records);
        state.appended += records.len() as u64;
        let mine = state.appended;
        loop {
            if let Some(e) = &state.failed {
                return Err(e.clone().into());
            }
            if state.durable >= mine {
                return Ok(());
            }
            let Some(mut writer) = state.writer.take() else {
                self.changed.wait(&mut state);
                continue;
            };
            std::mem::swap(&mut writer.group, &mut state.pending);
            let end = state.appended;
            drop(state);
            let written = self.write(&mut writer);
            writer.group.clear();
            state = self.state.lock();
            state.writer = Some(writer);
            match written {
                Ok(()) => state.durable = end,
                Err(e) => state.failed = Some(e),
            }
            self.changed.notify_all();
        }
    }

    /// Writes a group and makes it durable.
    fn write(&self, writer: &mut Writer) -> Result<(), IoError> {
        let from = if self.shape.merged { self.write_merged(writer)? } else { self.write_split(writer)? };
        if self.spec.sync == Sync::Fdatasync {
            self.disk.sync(&self.file.file, SyncHow::Data)?;
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if self.spec.access == Access::Uncached {
            // Up to the end of the file: this also drops the page of the log's last, partial block. That is
            // E2's read trap.
            self.disk.drop_cache(&self.file.file, from, 0)?;
        }
        Ok(())
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        write_whole(&self.disk, &self.file.file, at, bytes, write_how(self.spec))?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn write_merged(&self, writer: &mut Writer) -> Result<u64, IoError> {
        let block = self.spec.block_bytes as usize;
        if writer.at + (writer.group.len() + block) as u64 > self.file.span {
            (writer.at, writer.tail) = (0, 0);
        }
        let len = writer.tail + writer.group.len();
        let padded = len.next_multiple_of(block);
        let start = writer.at - writer.tail as u64;
        writer.buf[writer.tail..len].copy_from_slice(&writer.group);
        writer.buf[len..padded].fill(0);
        self.put(start, &writer.buf[..padded])?;
        writer.at = start + len as u64;
        writer.tail = len % block;
        writer.buf.copy_within(len - writer.tail..len, 0);
        Ok(start)
    }

    fn write_split(&self, writer: &mut Writer) -> Result<u64, IoError> {
        let group = writer.group.len();
        if writer.at + group as u64 > self.file.span {
            writer.at = 0;
        }
        let start = writer.at;
        writer.buf[..group].copy_from_slice(&writer.group);
        for (i, record) in writer.buf[..group].chunks(self.shape.record_bytes as usize).enumerate() {
            self.put(start + i as u64 * u64::from(self.shape.record_bytes), record)?;
        }
        writer.at += group as u64;
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use seawall_io::{Create, OpenHow};

    /// All commits' bytes are in the file, in order, whole, for any grouping.
    #[test]
    fn groups_lose_nothing() {
        for (block, merged) in [(512, true), (4096, true), (512, false)] {
            let dir = tempfile::tempdir().unwrap();
            let disk = OsDisk::synchronous();
            let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
            let handle = disk.open(&dir.path().join("log"), how).unwrap();
            let file = Prepared::for_test(handle.clone(), 8 << 20);
            let spec = plan::log(4, Access::Buffered, block, merged);
            let log = GroupLog::new(&spec, &file);
            std::thread::scope(|scope| {
                for t in 0..4u8 {
                    let log = &log;
                    scope.spawn(move || (0..50u8).for_each(|i| log.commit(&[t * 50 + i + 1; 1536]).unwrap()));
                }
            });
            let mut bytes = vec![0; 4 * 50 * 1536];
            assert_eq!(disk.read_at(&handle, 0, &mut bytes).unwrap(), bytes.len());
            let mut seen: Vec<u8> = bytes.chunks(1536).map(|c| c[0]).collect();
            assert!(bytes.chunks(1536).all(|c| c.iter().all(|&b| b == c[0])), "a commit is torn");
            seen.sort_unstable();
            assert_eq!(seen, (1..=200).collect::<Vec<u8>>());
            let (writes, syncs) = log.issued();
            assert!(syncs <= 200 && writes >= syncs);
            assert_eq!(merged, writes == syncs);
        }
    }
}
