//! The ring in a file: what is published survives the death of the process.
//!
//! ```text
//!   make ──map──> stores of mini-transactions ──clean shutdown──> removed
//!                     └──killed──> found by the next opening ──whole entries after the segments' end──> segments, flushed
//!                                                                                                        └──> made anew
//! ```
//!
//! 1. The byte of the stream at `lsn` is the file's byte `lsn % length`. The file has no header: an entry proves
//!    itself.
//! 2. *Killed.* The kernel keeps the pages. The segments hold everything before [`Log::written`](super::Log::written),
//!    the ring everything from there on (`ring.rs`, 1); the first part of an entry across a segment's end may be in the
//!    segment alone. Before it does anything else, the next opening copies the entries after the segments' end to the
//!    segments, in order, and flushes them. If a crash interrupts this, the entries are still in the ring or already in
//!    the segments.
//! 3. *Power cut.* The file's bytes are of any age. An entry is taken only if it is whole, at its own place, and made
//!    by the opening that made the last entry in the segments. An opening's first entry is durable in the segments
//!    before anything else is logged, so no entry that an earlier opening left here is ever taken.
//! 4. A clean shutdown removes the file: nothing in it is needed.
//! 5. The file [`POINTER`] in the log's directory says where the ring's file is, so that an opening with other options
//!    finds it. The pointer also holds the ring's inode, because another file may have that name by now, and its own
//!    device and inode, because the pointer may be a copy. A database in a copy of the directory takes the entries in
//!    the ring, which prove themselves, but leaves the ring to the database that it was copied from: it neither removes
//!    the ring nor waits for its lock. A ring within the log's directory was copied too. A ring that is not there is
//!    looked for under its name in the directory of the option, to which it may have been moved.
//! 6. Each opening makes its own file under a name that no file has, then points to it, then fills it. Every byte is
//!    written before the file is mapped, so that a store never needs disk space. The file is locked while it is mapped.
//! 7. After the ring, the file has a page with [`Log::written`](super::Log::written) ([`MARK_BYTES`]). Segments that
//!    end before that position have lost log, unless they end inside an entry that crosses it: they were restored from
//!    an older copy, or the power was cut. Then the ring does not belong to them, and nothing is taken from it.
//! 8. A file that is removed while it is mapped does not outlive the process: from then on commits at `Written` wait
//!    for a write ([`RingFile::look`]).

use super::ring::MARK_BYTES;
use super::{LogConfig, MTR_BYTES_MAX, segment_file};
use crate::error::{Error, Result, while_locked};
use seawall_io::errno::{EACCES, EBADF, EEXIST, ENOENT, ENOTDIR, EOPNOTSUPP, EPERM};
use seawall_io::{Cause, Create, Disk, File, FileClass, FileIdentity, FileOptions, FlushMethod, IoError, SharedMemory};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The file that holds the path of the ring's file.
pub(super) const POINTER: &str = "ring";
/// The name of that file while it is written.
const POINTER_NEW: &str = "ring.new";
/// Bytes of its numbers and the longest path.
const POINTER_MAX: u64 = 4096 + 64;
/// Bytes of one write.
const CHUNK: usize = 1 << 20;
/// Names that are tried: copies of one database can have their rings in one directory.
const COPIES_MAX: u32 = 1000;

/// The file of the ring in use. It is mapped as long as the ring's memory exists, and locked as long as this value
/// exists.
#[derive(Debug)]
pub(super) struct RingFile {
    disk: Arc<dyn Disk>,
    file: File,
    is_there: AtomicBool,
    /// When the file was last looked for.
    looked_ns: AtomicU64,
}

/// A ring that was left by an opening that did not close.
#[derive(Debug)]
pub(super) struct OldRing {
    bytes: Vec<u8>,
    /// The position up to which the segments had the log (7).
    pub(super) written: u64,
}

/// The contents of [`POINTER`].
#[derive(Debug)]
struct Pointer {
    path: PathBuf,
    /// The ring's inode; `None` for a ring within the log's directory, where a copy has another inode.
    inode: Option<u64>,
    /// `false` in a copy of the directory, or after a move to another device.
    is_own: bool,
}

fn open(disk: &Arc<dyn Disk>, path: &Path, create: Create, config: &LogConfig) -> seawall_io::Result<File> {
    let options = FileOptions::new(FileClass::Redo, FlushMethod::Fsync).create(create).stats(&config.stats);
    File::open(disk.clone(), path, options)
}

/// Returns the device and inode of a pointer, in the form in which the pointer holds them.
fn numbers_of(pointer: FileIdentity) -> String {
    format!("{:x}:{:x}", pointer.device, pointer.inode)
}

/// Returns where the last opening had its ring; `None` if it had none, or a power cut left no valid pointer.
fn pointed(disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<Option<Pointer>> {
    let file = match open(disk, &config.dir.join(POINTER), Create::No, config) {
        Err(e) if e.errno() == Some(ENOENT) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; file.len().min(POINTER_MAX) as usize];
    file.read_at(0, &mut bytes, Cause::Recovery)?;
    let is = numbers_of(file.identity()?);
    Ok(Pointer::parse(&bytes, &is, &config.dir))
}

impl Pointer {
    /// Parses the pointer in `dir` that has the numbers `is`. Returns `None` if it is not a pointer.
    fn parse(bytes: &[u8], is: &str, dir: &Path) -> Option<Self> {
        let mut parts = bytes.splitn(3, |byte| *byte == b' ');
        let numbers = parts.next()?;
        let inode = u64::from_str_radix(std::str::from_utf8(parts.next()?).ok()?, 16).ok()?;
        // Relative to the log's directory, so that a database can be moved.
        let path = Path::new(OsStr::from_bytes(parts.next()?));
        if path.extension().is_none_or(|extension| extension != "ring") {
            return None;
        }
        let is_within = path.components().all(|part| matches!(part, Component::CurDir | Component::Normal(_)));
        Some(Self {
            path: dir.join(path),
            inode: (!is_within).then_some(inode),
            is_own: is_within || numbers == is.as_bytes(),
        })
    }

    /// Opens the ring, also where it was moved to, together with the option.
    fn locate(&self, disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<Option<File>> {
        let found = self.open(disk, config)?;
        // A ring without a recorded inode moves with the database.
        let (None, Some(_), Some(dir)) = (&found, self.inode, &config.ring_dir) else { return Ok(found) };
        let path = config.dir.join(dir).join(self.path.file_name().unwrap_or_default());
        Self { path, ..*self }.open(disk, config)
    }

    /// Opens the ring. Returns `None` when it is gone, or another file has its name.
    fn open(&self, disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<Option<File>> {
        let file = match open(disk, &self.path, Create::No, config) {
            Err(e) if e.errno() == Some(ENOENT) => return Ok(None),
            // Of a copy of a database, which another user opens.
            Err(e) if !self.is_own && matches!(e.errno(), Some(EACCES | EPERM | ENOTDIR)) => return Ok(None),
            opened => opened?,
        };
        let is = file.identity()?.inode;
        Ok(self.inode.is_none_or(|inode| inode == is).then_some(file))
    }
}

impl OldRing {
    /// Reads the ring of the last opening, which did not close.
    ///
    /// # Errors
    /// [`Error::Locked`]; [`Error::Io`].
    pub(super) fn find(disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<Option<Self>> {
        let Some(pointer) = pointed(disk, config)? else { return Ok(None) };
        let Some(file) = pointer.locate(disk, config)? else {
            log::warn!(
                "{} is gone, because the machine was restarted or the file was removed, or it is another user's: commits \
                 at Written of the last flush_interval before that may be lost",
                pointer.path.display()
            );
            return Ok(None);
        };
        let lock = || segment_file::lock(&file);
        match if pointer.is_own { while_locked(&*config.clock, lock) } else { lock() } {
            Err(Error::Locked { .. }) if !pointer.is_own => {
                log::warn!(
                    "this is a copy of a database that is open: what its log has in {} alone is not in the copy",
                    pointer.path.display()
                );
                return Ok(None);
            }
            locked => locked?,
        }
        // A crash while the file was made can leave any length.
        let all = file.len() as usize;
        // A file of an earlier version has no mark: its contents are taken as they are.
        let len = if all.is_power_of_two() { all } else { all.saturating_sub(MARK_BYTES) };
        if !len.is_power_of_two() || len < 4 * MTR_BYTES_MAX {
            return Ok(None);
        }
        let mut bytes = vec![0; all];
        file.read_at(0, &mut bytes, Cause::Recovery).inspect_err(|_| {
            log::warn!(
                "{} may have the only copy of commits at Written of the last flush_interval. If it stays unreadable, \
                 move it away to open without them",
                pointer.path.display()
            );
        })?;
        let mark = bytes.split_off(len);
        let written = mark.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(Some(Self { bytes, written }))
    }

    /// Returns the length of the ring, bytes.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Copies the bytes of the stream from `lsn` on.
    pub(super) fn copy_to(&self, lsn: u64, into: &mut [u8]) {
        let at = (lsn % self.len()) as usize;
        let first = into.len().min(self.bytes.len() - at);
        let (one, two) = into.split_at_mut(first);
        one.copy_from_slice(&self.bytes[at..at + first]);
        two.copy_from_slice(&self.bytes[..two.len()]);
    }
}

impl RingFile {
    /// Makes the file in `config.ring_dir`, maps it, and notes where it is. Removes what an earlier opening left.
    /// Returns `None` without that directory, and when its file system is full: then commits at `Written` wait for a
    /// write, as without the option.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when the directory cannot be used; [`Error::Io`].
    pub(super) fn make(disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<Option<(Self, SharedMemory)>> {
        if let Some(before) = pointed(disk, config)? {
            let own = if before.is_own { before.locate(disk, config)? } else { None };
            remove(&**disk, config, own.as_ref().map(File::path));
        }
        let Some(dir) = &config.ring_dir else { return Ok(None) };
        let (relative, file) = match Self::create(dir, disk, config) {
            Err(Error::Io(e)) if e.is_full() => {
                warn_full(dir, &e);
                return Ok(None);
            }
            created => created?,
        };
        match Self::fill(dir, &relative, &file, disk, config) {
            Ok(memory) => Ok(Some((
                Self { disk: disk.clone(), file, is_there: AtomicBool::new(true), looked_ns: AtomicU64::new(0) },
                memory,
            ))),
            Err(error) => {
                remove(&**disk, config, Some(file.path()));
                match error {
                    Error::Io(e) if e.is_full() => {
                        warn_full(dir, &e);
                        Ok(None)
                    }
                    error => Err(error),
                }
            }
        }
    }

    /// Creates an empty file and locks it. Returns its path relative to the log's directory, and the file.
    fn create(dir: &Path, disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<(PathBuf, File)> {
        let database: String = config.database.iter().map(|byte| format!("{byte:02x}")).collect();
        for n in 0..COPIES_MAX {
            let more = if n == 0 { String::new() } else { format!("-{n}") };
            let relative = dir.join(format!("seawall-{database}-{}{more}.ring", config.incarnation));
            match open(disk, &config.dir.join(&relative), Create::New, config) {
                // The file of a copy of this database.
                Err(e) if e.errno() == Some(EEXIST) => {}
                Err(e) if e.errno() == Some(ENOENT) => {
                    return Err(refused(dir, "there is no such directory: make it, or name another"));
                }
                opened => {
                    let file = opened?;
                    while_locked(&*config.clock, || segment_file::lock(&file))?;
                    return Ok((relative, file));
                }
            }
        }
        Err(refused(dir, "there are too many rings of copies of this database: remove those that are not in use"))
    }

    /// Makes the pointer name the file, writes all of the file and maps it.
    fn fill(
        dir: &Path,
        relative: &Path,
        file: &File,
        disk: &Arc<dyn Disk>,
        config: &LogConfig,
    ) -> Result<SharedMemory> {
        let refuse = |e: IoError| match e.errno() {
            Some(EOPNOTSUPP | EBADF) => refused(
                dir,
                "a file there cannot be shared memory that never needs space: name a directory of tmpfs (/dev/shm), \
                 ext4 or XFS, or none",
            ),
            _ => e.into(),
        };
        let new = config.dir.join(POINTER_NEW);
        let pointer = open(disk, &new, Create::IfMissing, config)?;
        pointer.cut(0, Cause::Other)?;
        let is = numbers_of(pointer.identity().map_err(refuse)?);
        let numbers = format!("{is} {:x} ", file.identity().map_err(refuse)?.inode);
        pointer.write_at(0, &[numbers.as_bytes(), relative.as_os_str().as_bytes()].concat(), Cause::Other)?;
        // Otherwise a power cut could leave no valid pointer, and a file that no opening knows.
        pointer.sync(Cause::Other)?;
        disk.rename(&new, &config.dir.join(POINTER))?;
        disk.sync_dir(&config.dir)?;
        let len = config.buffer_bytes + MARK_BYTES;
        let zeroes = vec![0; CHUNK.min(len)];
        for at in (0..len).step_by(zeroes.len()) {
            file.write_at(at as u64, &zeroes[..zeroes.len().min(len - at)], Cause::Preallocate)?;
        }
        file.map_shared(len).map_err(refuse)
    }

    /// Returns whether the file was there when it was last looked for.
    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::SeqCst)
    }

    /// Checks that the file is still there, unless that was done less than `every_ns` ago. Once it is gone, it counts
    /// as gone for good.
    pub(super) fn look(&self, now_ns: u64, every_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns.load(Ordering::Relaxed)) < every_ns || !self.is_there() {
            return;
        }
        self.looked_ns.store(now_ns, Ordering::Relaxed);
        if self.file.identity().is_ok_and(|is| is.names == 0) {
            self.is_there.store(false, Ordering::SeqCst);
            log::warn!(
                "{} was removed while it is in use: from now on commits at Written wait for a write, until the \
                 database is opened again. In /dev/shm, systemd-logind removes the files of a user who logs out \
                 (RemoveIPC=yes): name another directory in log_ring_dir",
                self.file.path().display()
            );
        }
    }

    /// Removes the file: the log was closed. If that fails, the file stays, and the next opening reads it in vain.
    pub(super) fn remove(&self, config: &LogConfig) {
        let is_there = self.file.identity().is_ok_and(|is| is.names > 0);
        remove(&*self.disk, config, is_there.then(|| self.file.path()));
    }
}

fn refused(dir: &Path, why: &str) -> Error {
    Error::InvalidOption { name: "log_ring_dir".into(), value: dir.display().to_string(), why: why.into() }
}

fn warn_full(dir: &Path, error: &IoError) {
    log::warn!("log_ring_dir = {} has no room, so commits at Written wait for a write: {error}", dir.display());
}

/// Removes the pointer to a ring, an unfinished new pointer, and the ring itself.
fn remove(disk: &dyn Disk, config: &LogConfig, ring: Option<&Path>) {
    let paths = [Some(config.dir.join(POINTER)), Some(config.dir.join(POINTER_NEW)), ring.map(Path::to_path_buf)];
    for path in paths.into_iter().flatten() {
        if let Err(e) = disk.remove(&path) {
            if e.errno() != Some(ENOENT) {
                log::warn!("{} could not be removed: {e}", path.display());
            }
        }
    }
}
