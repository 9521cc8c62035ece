//! The whole state of a simulated disk, under one lock, and the operations on it.
//!
//! 1. Every operation goes through [`State::perform`]: it lets due requests and late writes take effect,
//!    moves the clock, checks the faults, does the work, and records the operation, in this order.
//! 2. Synchronous and asynchronous I/O share [`State::read`], [`State::write`] and [`State::sync`]: a fault
//!    or a rule applies to both.
//! 3. A failed operation changes nothing, except where a fault says so.

mod crash;
mod requests;

use crate::damage::Damage;
use crate::fault::FaultKind;
use crate::file::{SimFile, Via};
use crate::image::{BLOCK, blocks_of};
use crate::mapped::Mapped;
use crate::names::{Names, normal};
use crate::options::SimOptions;
use crate::queue::{InFlight, Queue};
use crate::rng::SeededRng;
use crate::trace::{Call, Trace, TraceEntry};
use seawall_io::{
    Allocate, Completion, Create, FileIdentity, IoError, IoErrorKind, OpenHow, RequestKind, SharedMemory, SyncHow,
    WriteHow,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// The errno of `flock` when another handle holds the lock.
const LOCKED: Errno = Errno(libc::EWOULDBLOCK);

pub(crate) type Answer<T> = Result<T, Errno>;

#[derive(Debug, Clone)]
struct OpenFile {
    inode: u64,
    how: OpenHow,
    failures_seen: u64,
}

/// A write that a killed process left in flight.
#[derive(Debug, Clone)]
struct LateWrite {
    inode: u64,
    path: PathBuf,
    offset: u64,
    bytes: Vec<u8>,
    how: WriteHow,
    open: OpenHow,
    due_op: u64,
    /// Whether the open file that the write keeps alive held the lock.
    keeps_lock: bool,
}

/// The holder of a file's lock: one handle, or several that share it.
#[derive(Debug, Default)]
struct Holders {
    shared: bool,
    handles: BTreeSet<u64>,
}

/// The parameters of an operation, for faults and trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) call: Call,
    pub(crate) path: &'a Path,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) asynchronous: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: SimOptions,
    pub(crate) rng: SeededRng,
    pub(crate) now: Duration,
    pub(crate) trace: Trace,
    pub(crate) lying: bool,
    pub(crate) queue: Queue,
    pub(crate) names: Names,
    ops: u64,
    seq: u64,
    next_inode: u64,
    files: BTreeMap<u64, SimFile>,
    open: BTreeMap<u64, OpenFile>,
    /// Inode to the handles that hold its lock.
    locks: BTreeMap<u64, Holders>,
    late: Vec<LateWrite>,
    mapped: Vec<Mapped>,
    pub(crate) damage: Vec<Damage>,
}

impl State {
    pub(crate) fn new(options: SimOptions) -> Self {
        let options = options.rounded();
        Self {
            rng: SeededRng::new(options.seed),
            now: Duration::ZERO,
            trace: Trace::new(options.trace_entries_max),
            lying: false,
            queue: Queue::default(),
            names: Names::new(options.lose_directories),
            ops: 0,
            seq: 0,
            next_inode: 0,
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            locks: BTreeMap::new(),
            late: Vec::new(),
            mapped: Vec::new(),
            damage: Vec::new(),
            options,
        }
    }

    // --- one operation -------------------------------------------------------------------------------------

    /// Runs one synchronous operation.
    pub(crate) fn perform<T>(
        &mut self,
        about: About<'_>,
        work: impl FnOnce(&mut Self, Option<FaultKind>) -> Answer<(T, u64)>,
    ) -> Result<T, IoError> {
        let least = self.least_time(about.call);
        self.now += self.options.latency.draw(least, &mut self.rng);
        self.run_due();
        self.attempt(about, work).map(|(value, _)| value).map_err(|errno| error(about, errno))
    }

    /// Makes one attempt at an operation, without its latency.
    fn attempt<T>(
        &mut self,
        about: About<'_>,
        work: impl FnOnce(&mut Self, Option<FaultKind>) -> Answer<(T, u64)>,
    ) -> Answer<(T, u64)> {
        self.ops += 1;
        self.land_late();
        let path = normal(about.path);
        let fault = self.options.faults.strike(about.call, &path, self.ops, about.asynchronous, &mut self.rng);
        let mut blocked = None;
        match fault {
            Some(FaultKind::Slow(by)) => self.now += by,
            Some(FaultKind::Errno(errno))
                if !matches!(about.call, Call::Write | Call::DurableWrite | Call::Sync | Call::SyncDir) =>
            {
                blocked = Some(Errno(errno));
            }
            _ => {}
        }
        let before = self.totals(&path);
        let answer = match blocked {
            Some(errno) => Err(errno),
            None => work(self, fault),
        };
        let after = self.totals(&path);
        self.trace.push(TraceEntry {
            number: self.ops,
            at: self.now,
            call: about.call,
            path,
            offset: about.offset,
            len: about.len,
            outcome: answer.as_ref().map(|(_, moved)| *moved).map_err(|errno| errno.0),
            grew: after.0.saturating_sub(before.0),
            allocated: after.1.saturating_sub(before.1) * BLOCK,
            device_read: after.2.saturating_sub(before.2),
            fault,
        });
        answer
    }

    fn least_time(&self, call: Call) -> Duration {
        let latency = &self.options.latency;
        match call {
            Call::Read => latency.read,
            Call::Write => latency.write,
            Call::DurableWrite => latency.write + latency.sync,
            Call::Sync | Call::SyncDir => latency.sync,
            _ => latency.other,
        }
    }

    /// Returns the length, the allocated blocks and the bytes read from the device, of the file of this name.
    fn totals(&self, path: &Path) -> (u64, u64, u64) {
        let file = self.names.seen.get(path).and_then(|inode| self.files.get(inode));
        file.map_or((0, 0, 0), |file| (file.seen.len, file.seen.allocated_blocks(), file.device_read))
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn unit(&self) -> u64 {
        u64::from(self.options.physical_sector_bytes)
    }

    // --- names ---------------------------------------------------------------------------------------------

    pub(crate) fn open(&mut self, id: u64, path: &Path, how: OpenHow) -> Answer<((), u64)> {
        let path = normal(path);
        if self.names.is_dir(&path) || path.file_name().is_none() {
            return Err(Errno(libc::EISDIR));
        }
        if self.names.is_below_file(&path) {
            return Err(Errno(libc::ENOTDIR));
        }
        let inode = match (self.names.seen.get(&path).copied(), how.create) {
            (Some(_), Create::New) => return Err(Errno(libc::EEXIST)),
            (Some(inode), _) => inode,
            (None, Create::No) => return Err(Errno(libc::ENOENT)),
            (None, Create::New | Create::IfMissing) => {
                self.next_inode += 1;
                self.files.insert(self.next_inode, SimFile::new(self.unit()));
                let seq = self.next_seq();
                self.names.create(seq, path, self.next_inode);
                self.next_inode
            }
        };
        if how.direct && self.options.refuses_direct {
            return Err(Errno(libc::EINVAL));
        }
        let failures_seen = self.files.get(&inode).map_or(0, |file| file.failures);
        self.open.insert(id, OpenFile { inode, how, failures_seen });
        Ok(((), 0))
    }

    pub(crate) fn close(&mut self, id: u64) {
        if let Some(open) = self.open.remove(&id) {
            if let Some(holders) = self.locks.get_mut(&open.inode) {
                holders.handles.remove(&id);
                if holders.handles.is_empty() {
                    self.locks.remove(&open.inode);
                }
            }
            self.forget_unreachable();
        }
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> Answer<((), u64)> {
        let (from, to) = (normal(from), normal(to));
        if self.names.is_dir(&to) {
            return Err(Errno(libc::EISDIR));
        }
        if self.names.is_below_file(&to) {
            return Err(Errno(libc::ENOTDIR));
        }
        if from == to && self.names.seen.contains_key(&from) {
            return Ok(((), 0));
        }
        let seq = self.next_seq();
        self.names.rename(seq, from, to).ok_or(Errno(libc::ENOENT))?;
        self.forget_unreachable();
        Ok(((), 0))
    }

    pub(crate) fn remove(&mut self, path: &Path) -> Answer<((), u64)> {
        let path = normal(path);
        if self.names.is_dir(&path) {
            return Err(Errno(libc::EISDIR));
        }
        let seq = self.next_seq();
        self.names.remove(seq, path).ok_or(Errno(libc::ENOENT))?;
        self.forget_unreachable();
        Ok(((), 0))
    }

    pub(crate) fn sync_dir(&mut self, path: &Path, fault: Option<FaultKind>) -> Answer<((), u64)> {
        let path = normal(path);
        if self.names.seen.contains_key(&path) {
            return Err(Errno(libc::ENOTDIR));
        }
        if let Some(FaultKind::Errno(errno)) = fault {
            let rng = &mut self.rng;
            self.names.sync_dir_failed(&path, || rng.percent(50));
            return Err(Errno(errno));
        }
        if !self.lying {
            self.names.sync_dir(&path);
            self.forget_unreachable();
        }
        Ok(((), 0))
    }

    fn forget_unreachable(&mut self) {
        let (names, open, late) = (&self.names, &self.open, &self.late);
        self.files.retain(|inode, _| {
            names.knows(*inode)
                || open.values().any(|open| open.inode == *inode)
                || late.iter().any(|late| late.inode == *inode)
        });
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        // A removed file keeps its blocks while a handle is open. A file that only a pending removal still
        // names holds none.
        let held = |inode: &u64| {
            self.names.seen.values().any(|seen| seen == inode) || self.open.values().any(|open| open.inode == *inode)
        };
        let used: u64 =
            self.files.iter().filter(|(inode, _)| held(inode)).map(|(_, file)| file.seen.allocated_blocks()).sum();
        (self.options.capacity_bytes / BLOCK).saturating_sub(used) * BLOCK
    }

    // --- an open file --------------------------------------------------------------------------------------

    fn opened(&self, id: u64) -> Answer<&OpenFile> {
        self.open.get(&id).ok_or(Errno(libc::ENXIO))
    }

    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.open.contains_key(&id)
    }

    pub(crate) fn file(&mut self, id: u64) -> Answer<&mut SimFile> {
        let inode = self.opened(id)?.inode;
        self.files.get_mut(&inode).ok_or(Errno(libc::ENXIO))
    }

    fn writable(&mut self, id: u64, refusal: i32) -> Answer<&mut SimFile> {
        if !self.opened(id)?.how.write {
            return Err(Errno(refusal));
        }
        self.file(id)
    }

    pub(crate) fn lock(&mut self, id: u64, shared: bool) -> Answer<((), u64)> {
        let inode = self.opened(id)?.inode;
        let in_the_way =
            |holders: &Holders| !(shared && holders.shared) && holders.handles.iter().any(|&holder| holder != id);
        if let Some(holders) = self.locks.get_mut(&inode).filter(|holders| in_the_way(holders)) {
            // As with flock(2), a failed conversion has already released the old lock.
            holders.handles.remove(&id);
            return Err(LOCKED);
        }
        let holds = |late: &LateWrite| late.inode == inode && late.keeps_lock;
        if self.late.iter().any(holds) {
            if self.options.late_lock_refuses {
                return Err(LOCKED);
            }
            self.land(holds);
        }
        let holders = self.locks.entry(inode).or_default();
        holders.shared = shared;
        holders.handles.insert(id);
        Ok(((), 0))
    }

    pub(crate) fn set_len(&mut self, id: u64, len: u64) -> Answer<((), u64)> {
        if i64::try_from(len).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        let seq = self.next_seq();
        self.writable(id, libc::EINVAL)?.set_len(seq, len);
        Ok(((), 0))
    }

    pub(crate) fn allocate(&mut self, id: u64, how: Allocate, offset: u64, len: u64) -> Answer<((), u64)> {
        if len == 0 || i64::try_from(offset).is_err() || i64::try_from(len).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        if self.options.refuses_allocation {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        end.ok_or(Errno(libc::EFBIG))?;
        let free = self.free_bytes() / BLOCK;
        let seq = self.next_seq();
        let file = self.writable(id, libc::EBADF)?;
        if blocks_needed(file, offset, len) > free {
            return Err(Errno(libc::ENOSPC));
        }
        match how {
            Allocate::Unwritten => file.allocate(seq, offset, len, true),
            Allocate::KeepSize => file.allocate(seq, offset, len, false),
            Allocate::WriteZeroes => file.write(seq, offset, len, None, Via { direct: true, dontcache: false }),
        }
        Ok(((), 0))
    }

    pub(crate) fn read(&mut self, id: u64, offset: u64, buf: &mut [u8], fault: Option<FaultKind>) -> Answer<((), u64)> {
        let direct = self.opened(id)?.how.direct;
        self.check_range(offset, buf.len() as u64, direct, libc::EINVAL)?;
        if fault == Some(FaultKind::BitRot) && !buf.is_empty() {
            let (at, bit) = (self.rng.below(buf.len() as u64), self.rng.below(8) as u8);
            let inode = self.opened(id)?.inode;
            if offset + at < self.file(id)?.seen.len {
                self.flip_bit_of(inode, offset + at, bit)?;
            }
        }
        let len = self.short(buf.len(), direct, fault);
        let moved = self.file(id)?.read(offset, &mut buf[..len], direct);
        let inode = self.opened(id)?.inode;
        for damage in &mut self.damage {
            damage.note_read(self.ops, inode, offset, &buf[..moved]);
        }
        Ok(((), moved as u64))
    }

    pub(crate) fn write(
        &mut self,
        id: u64,
        offset: u64,
        bytes: &[u8],
        how: WriteHow,
        fault: Option<FaultKind>,
    ) -> Answer<((), u64)> {
        let open = self.opened(id)?.how;
        if !open.write {
            return Err(Errno(libc::EBADF));
        }
        self.check_range(offset, bytes.len() as u64, open.direct, libc::EFBIG)?;
        if how.atomic {
            let len = bytes.len() as u64;
            let whole = len.is_power_of_two() && offset % len == 0 && len <= self.options.atomic_write_bytes.into();
            if !whole || !open.direct {
                return Err(Errno(libc::EINVAL));
            }
        }
        let inode = self.opened(id)?.inode;
        if let Some(FaultKind::Errno(errno)) = fault {
            if errno == libc::EIO {
                let seq = self.next_seq();
                let via = Via { direct: open.direct, dontcache: how.dontcache };
                let rng = &mut self.rng;
                // Only over existing bytes: what a failed write leaves beyond the end is not part of the
                // file.
                let file = self.files.get_mut(&inode).filter(|file| offset + bytes.len() as u64 <= file.seen.len);
                if let Some(file) = file {
                    let all = how.atomic.then(|| rng.percent(50));
                    file.write_in_part(seq, offset, bytes, via, || all.unwrap_or_else(|| rng.percent(50)));
                    if how.atomic {
                        file.pending.note_atomic(seq);
                    }
                }
            }
            return Err(Errno(errno));
        }
        let mut len = if how.atomic { bytes.len() } else { self.short(bytes.len(), open.direct, fault) };
        if open.direct && len < bytes.len() {
            let physical = u64::from(self.options.physical_sector_bytes);
            let end = (offset + len as u64) / physical * physical;
            // A sector that the write covers is written whole; the first one may be covered in part.
            let covers = offset % physical == 0 && bytes.len() as u64 >= physical;
            len = match end.saturating_sub(offset) {
                0 if covers => physical as usize,
                0 => len,
                whole => whole as usize,
            };
        }
        self.write_inode(inode, offset, &bytes[..len], how, open, fault)
    }

    /// Does the write itself, of an open file or of a killed process.
    fn write_inode(
        &mut self,
        inode: u64,
        offset: u64,
        bytes: &[u8],
        how: WriteHow,
        open: OpenHow,
        fault: Option<FaultKind>,
    ) -> Answer<((), u64)> {
        let free = self.free_bytes() / BLOCK;
        let (seq, lying) = (self.next_seq(), self.lying);
        let elsewhere = if fault == Some(FaultKind::MisdirectedWrite) { self.rng.next() } else { 0 };
        let file = self.files.get_mut(&inode).ok_or(Errno(libc::ENXIO))?;
        let len = room(file, offset, bytes.len() as u64, free);
        let least = if how.atomic { bytes.len() } else { bytes.len().min(1) };
        if len < least as u64 {
            return Err(Errno(libc::ENOSPC));
        }
        let bytes = &bytes[..len as usize];
        let via = Via { direct: open.direct, dontcache: how.dontcache };
        let name = self.names.seen.iter().find(|(_, known)| **known == inode).map_or(Path::new(""), |(name, _)| name);
        match fault {
            Some(kind @ FaultKind::LostWrite) => {
                let found = file.device(offset, len);
                self.damage.push(Damage::new(kind, (inode, name), offset, bytes.to_vec(), found));
                file.write_lost(seq, offset, bytes, via);
            }
            Some(kind @ FaultKind::MisdirectedWrite) => {
                let found = file.device(offset, len);
                self.damage.push(Damage::new(kind, (inode, name), offset, bytes.to_vec(), found));
                file.write_lost(seq, offset, bytes, via);
                let unit = u64::from(self.options.sector_bytes);
                if let Some(victim) = misdirect(offset, len, file.seen.len, unit, elsewhere) {
                    let wanted = file.device(victim, len);
                    let damage = Damage::new(kind, (inode, name), victim, wanted, bytes.to_vec());
                    self.damage.push(Damage { elsewhere: true, ..damage });
                    file.write(seq, victim, len, Some(bytes), Via { direct: true, dontcache: false });
                }
            }
            _ => file.write(seq, offset, len, Some(bytes), via),
        }
        if how.atomic {
            file.pending.note_atomic(seq);
        }
        match how.dsync || open.dsync {
            true if lying => file.sync_lied(offset, len),
            true => file.sync_range(offset, len),
            false => {}
        }
        self.trace.add_bytes(bytes);
        Ok(((), len))
    }

    pub(crate) fn sync(&mut self, id: u64, how: SyncHow, fault: Option<FaultKind>) -> Answer<((), u64)> {
        let lying = self.lying;
        let inode = self.opened(id)?.inode;
        let rng = &mut self.rng;
        let file = self.files.get_mut(&inode).ok_or(Errno(libc::ENXIO))?;
        let mut errno = libc::EIO;
        match fault {
            Some(FaultKind::Errno(asked)) => {
                errno = asked;
                file.sync_failed(|| rng.percent(50));
            }
            _ if lying => file.sync_lied(0, u64::MAX),
            _ => file.sync(how == SyncHow::All),
        }
        let failures = file.failures;
        match self.open.get_mut(&id) {
            Some(open) if open.failures_seen < failures => {
                open.failures_seen = failures;
                Err(Errno(errno))
            }
            _ => Ok(((), 0)),
        }
    }

    fn check_range(&self, offset: u64, len: u64, direct: bool, too_far: i32) -> Answer<()> {
        if i64::try_from(offset).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        if offset.checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Errno(too_far));
        }
        let sector = u64::from(self.options.sector_bytes);
        if direct && (offset % sector != 0 || len % sector != 0) {
            return Err(Errno(libc::EINVAL));
        }
        Ok(())
    }

    /// Returns how many of `len` bytes an attempt transfers.
    fn short(&mut self, len: usize, direct: bool, fault: Option<FaultKind>) -> usize {
        let unit = if direct { self.options.sector_bytes as usize } else { 1 };
        if fault != Some(FaultKind::Short) || len <= unit {
            return len;
        }
        let units = len.div_ceil(unit) as u64;
        (1 + self.rng.below(units - 1)) as usize * unit
    }

    pub(crate) fn identity(&self, id: u64) -> Answer<FileIdentity> {
        let inode = self.opened(id)?.inode;
        let names = self.names.seen.values().filter(|named| **named == inode).count() as u64;
        Ok(FileIdentity { device: 0, inode, names })
    }

    // --- shared memory -------------------------------------------------------------------------------------

    /// Maps the first `len` bytes of a file.
    pub(crate) fn map_shared(&mut self, id: u64, len: usize) -> Answer<(SharedMemory, u64)> {
        let inode = self.opened(id)?.inode;
        let mut bytes = vec![0; len];
        if self.file(id)?.read(0, &mut bytes, false) < len {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let (mapped, memory) = Mapped::new(inode, bytes);
        self.mapped.push(mapped);
        Ok((memory, len as u64))
    }

    /// Turns the stores to shared memory since the last call into buffered writes.
    pub(crate) fn take_stores(&mut self) {
        let via = Via { direct: false, dontcache: false };
        for mut mapped in std::mem::take(&mut self.mapped) {
            for (offset, bytes) in mapped.changed() {
                let seq = self.next_seq();
                if let Some(file) = self.files.get_mut(&mapped.inode) {
                    file.write(seq, offset, bytes.len() as u64, Some(&bytes), via);
                }
            }
            if !mapped.has_ended() {
                self.mapped.push(mapped);
            }
        }
    }

    /// Ends all mappings because the process dies: later stores of its threads change nothing.
    pub(crate) fn end_mappings(&mut self) {
        self.take_stores();
        self.mapped.clear();
    }

    // --- copies and inspection -----------------------------------------------------------------------------

    /// Copies the disk, with its own seed, as another process would find it after this one died.
    pub(crate) fn fork(&mut self, seed: u64) -> Self {
        self.take_stores();
        let mut late = self.late.clone();
        let mut rng = SeededRng::new(seed);
        for write in self.writes_in_flight() {
            let due_op = self.ops + 1 + rng.below(self.options.late_within_ops);
            late.push(LateWrite { due_op, ..write });
        }
        let mut copy = Self {
            options: SimOptions { seed, ..self.options.clone() },
            rng,
            now: self.now,
            trace: Trace::new(self.options.trace_entries_max),
            lying: self.lying,
            queue: Queue::default(),
            names: self.names.clone(),
            ops: self.ops,
            seq: self.seq,
            next_inode: self.next_inode,
            files: self.files.clone(),
            open: BTreeMap::new(),
            locks: BTreeMap::new(),
            late,
            mapped: Vec::new(),
            damage: self.damage.clone(),
        };
        copy.forget_unreachable();
        copy
    }

    pub(crate) fn seen_bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.files.get(self.names.seen.get(&normal(path))?).map(|file| file.seen.to_bytes())
    }

    pub(crate) fn stable_bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let mut stable = self.files.get(self.names.stable.get(&normal(path))?)?.stable.clone();
        stable.settle();
        Some(stable.to_bytes())
    }

    pub(crate) fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> Answer<((), u64)> {
        let inode = *self.names.seen.get(&normal(path)).ok_or(Errno(libc::ENOENT))?;
        self.flip_bit_of(inode, offset, bit)
    }

    fn flip_bit_of(&mut self, inode: u64, offset: u64, bit: u8) -> Answer<((), u64)> {
        let name = self.names.seen.iter().find(|(_, known)| **known == inode).map_or(Path::new(""), |(name, _)| name);
        let file = self.files.get_mut(&inode).ok_or(Errno(libc::ENOENT))?;
        if offset >= file.seen.len {
            return Err(Errno(libc::EINVAL));
        }
        let wanted = file.device(offset, 1);
        file.flip_bit(offset, bit);
        let found = file.device(offset, 1);
        self.damage.push(Damage::new(FaultKind::BitRot, (inode, name), offset, wanted, found));
        Ok(((), 0))
    }

    pub(crate) fn late_writes(&self) -> usize {
        self.late.len()
    }
}

/// Returns the error of an operation.
pub(crate) fn error(about: About<'_>, errno: Errno) -> IoError {
    let op = about.call.op().unwrap_or(seawall_io::Op::Inspect);
    let kind = if about.call == Call::Lock && errno == LOCKED { IoErrorKind::Locked } else { IoErrorKind::Os(errno.0) };
    let error = IoError::new(op, about.path, kind);
    match about.call {
        Call::Read | Call::Write | Call::DurableWrite | Call::Allocate | Call::SetLen => {
            error.at(about.offset, about.len)
        }
        _ => error,
    }
}

/// Joins the bytes of some buffers, without the first `skip`.
pub(crate) fn joined<'b>(bufs: impl Iterator<Item = &'b [u8]> + Clone, mut skip: usize) -> Vec<u8> {
    let len: usize = bufs.clone().map(<[u8]>::len).sum();
    let mut all = Vec::with_capacity(len - skip);
    for buf in bufs {
        let begin = skip.min(buf.len());
        skip -= begin;
        all.extend_from_slice(&buf[begin..]);
    }
    all
}

fn blocks_needed(file: &SimFile, offset: u64, len: u64) -> u64 {
    blocks_of(offset, len).map_or(0, |blocks| {
        let all = blocks.end() - blocks.start() + 1;
        all - file.seen.allocated_in(blocks)
    })
}

/// Returns how many of `len` bytes fit into `free` blocks.
fn room(file: &SimFile, offset: u64, len: u64, mut free: u64) -> u64 {
    if blocks_needed(file, offset, len) <= free {
        return len;
    }
    for block in blocks_of(offset, len).into_iter().flatten() {
        if file.seen.extent(block).is_none() {
            if free == 0 {
                return (block * BLOCK).saturating_sub(offset);
            }
            free -= 1;
        }
    }
    len
}

/// Returns another place in the file for `len` bytes; `None` if there is none.
fn misdirect(offset: u64, len: u64, file_len: u64, unit: u64, random: u64) -> Option<u64> {
    let places = file_len.checked_sub(len)? / unit + 1;
    let place = (random % places) * unit;
    if place != offset {
        return Some(place);
    }
    (places > 1).then(|| (random + 1) % places * unit)
}
