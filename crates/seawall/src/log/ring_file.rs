//! The ring in a file: what is published survives the death of the process.
//!
//! ```text
//!   make ──map──> stores of mini-transactions ──clean shutdown──> removed
//!                     └──killed──> found by the next opening ──whole entries behind the segments' end──> segments, flushed ──> made anew
//! ```
//!
//! 1. The byte of the stream at `lsn` is the file's byte `lsn % length`. The file has no header: an entry proves itself.
//! 2. *Killed.* The kernel keeps the pages. The segments hold everything before [`Log::written`](super::Log::written),
//!    the ring everything from there on (`ring.rs`, 1); of an entry across a segment's end, the segment may have the first
//!    part alone. The next opening takes the entries behind the segments' end, one after the other, and writes them to
//!    the segments, flushed, before it does anything else: a crash meanwhile finds them here or there.
//! 3. *Power cut.* The file's bytes are of any age. An entry is taken only at its own place, whole, and if the opening
//!    that made the last entry in the segments made it. An opening's first entry is durable in the segments before
//!    anything else is logged, so no entry that an earlier opening left here is ever taken.
//! 4. A clean shutdown needs nothing of it, and removes it.
//! 5. The file [`POINTER`] in the log's directory says where it is: an opening with other options finds it.
//! 6. Every byte of the file is written before it is mapped: a store never needs space. It is locked while it is mapped.

use super::{LogConfig, MTR_BYTES_MAX, segment_file};
use crate::error::{Error, Result, while_locked};
use seawall_io::{Cause, Create, Disk, File, FileClass, FileOptions, FlushMethod, SharedMemory};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that holds the path of the ring's file.
pub(super) const POINTER: &str = "ring";
/// While it is written.
const POINTER_NEW: &str = "ring.new";
/// The longest path, bytes.
const PATH_MAX: u64 = 4096;
/// Bytes of one write.
const CHUNK: usize = 1 << 20;
const ENOENT: i32 = 2;
const EOPNOTSUPP: i32 = 95;

/// The file of the ring in use. Mapped as long as the ring's memory exists, locked as long as this does.
#[derive(Debug)]
pub(super) struct RingFile {
    disk: Arc<dyn Disk>,
    file: File,
}

/// A ring that an opening left which did not close.
#[derive(Debug)]
pub(super) struct OldRing {
    bytes: Vec<u8>,
}

fn open(disk: &Arc<dyn Disk>, path: &Path, create: Create, config: &LogConfig) -> seawall_io::Result<File> {
    let options = FileOptions::new(FileClass::Redo, FlushMethod::Fsync).create(create).stats(&config.stats);
    File::open(disk.clone(), path, options)
}

/// Where the last opening had its ring; `None` if that had none, or a power cut left no path.
fn pointed(disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<Option<PathBuf>> {
    let file = match open(disk, &config.dir.join(POINTER), Create::No, config) {
        Err(e) if e.errno() == Some(ENOENT) => return Ok(None),
        opened => opened?,
    };
    let mut path = vec![0; file.len().min(PATH_MAX) as usize];
    file.read_at(0, &mut path, Cause::Recovery)?;
    let path = PathBuf::from(OsStr::from_bytes(&path));
    // Relative to the log's directory, so that a database can be moved.
    let is_ring = path.extension().is_some_and(|extension| extension == "ring");
    Ok(is_ring.then(|| config.dir.join(path)))
}

impl OldRing {
    /// The ring of the last opening, which did not close.
    ///
    /// # Errors
    /// [`Error::Locked`]; [`Error::Io`].
    pub(super) fn find(disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<Option<Self>> {
        let Some(path) = pointed(disk, config)? else { return Ok(None) };
        let file = match open(disk, &path, Create::No, config) {
            Err(e) if e.errno() == Some(ENOENT) => {
                log::warn!(
                    "{} is gone, probably because the machine was restarted: commits at Written of the last \
                     flush_interval before that may be lost",
                    path.display()
                );
                return Ok(None);
            }
            opened => opened?,
        };
        while_locked(&*config.clock, || segment_file::lock(&file))?;
        // A power cut while it was made can leave any length.
        let len = file.len() as usize;
        if !len.is_power_of_two() || len < 4 * MTR_BYTES_MAX {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        file.read_at(0, &mut bytes, Cause::Recovery)?;
        Ok(Some(Self { bytes }))
    }

    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The bytes of the stream from `lsn` on.
    pub(super) fn copy_to(&self, lsn: u64, into: &mut [u8]) {
        let at = (lsn % self.len()) as usize;
        let first = into.len().min(self.bytes.len() - at);
        let (one, two) = into.split_at_mut(first);
        one.copy_from_slice(&self.bytes[at..at + first]);
        two.copy_from_slice(&self.bytes[..two.len()]);
    }
}

impl RingFile {
    /// Makes the file in `config.ring_dir`, maps it, and notes where it is. What an earlier opening left there or
    /// elsewhere is gone then. `None` without that directory, and when its file system is full: then commits at
    /// `Written` wait for a write, as without the option.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when the directory cannot be used; [`Error::Locked`]; [`Error::Io`].
    pub(super) fn make(disk: &Arc<dyn Disk>, config: &LogConfig) -> Result<Option<(Self, SharedMemory)>> {
        let before = pointed(disk, config)?;
        let Some(dir) = &config.ring_dir else {
            remove(&**disk, config, before.as_deref());
            return Ok(None);
        };
        match Self::make_in(dir, disk, config, before.as_deref()) {
            Err(Error::Io(e)) if e.is_full() => {
                log::warn!("log_ring_dir = {} has no room, so commits at Written wait for a write: {e}", dir.display());
                let half_made = config.dir.join(Self::path_in(dir, config));
                for path in [config.dir.join(POINTER_NEW), half_made] {
                    remove(&**disk, config, Some(&path));
                }
                Ok(None)
            }
            made => made.map(Some),
        }
    }

    /// The path of the file, relative to the log's directory.
    fn path_in(dir: &Path, config: &LogConfig) -> PathBuf {
        let name: String = config.database.iter().map(|byte| format!("{byte:02x}")).collect();
        dir.join(format!("seawall-{name}.ring"))
    }

    fn make_in(
        dir: &Path,
        disk: &Arc<dyn Disk>,
        config: &LogConfig,
        before: Option<&Path>,
    ) -> Result<(Self, SharedMemory)> {
        let relative = Self::path_in(dir, config);
        let path = config.dir.join(&relative);
        if before.is_some_and(|before| before != path) {
            remove(&**disk, config, before);
        }
        let refused =
            |why: String| Error::InvalidOption { name: "log_ring_dir".into(), value: dir.display().to_string(), why };
        let file = match open(disk, &path, Create::IfMissing, config) {
            Err(e) if e.errno() == Some(ENOENT) => {
                return Err(refused("there is no such directory: make it, or name another".into()));
            }
            opened => opened?,
        };
        while_locked(&*config.clock, || segment_file::lock(&file))?;
        let bytes = config.buffer_bytes;
        if file.len() != bytes as u64 {
            file.cut(0, Cause::Other)?;
        }
        let zeroes = vec![0; CHUNK.min(bytes)];
        for at in (0..bytes).step_by(zeroes.len()) {
            file.write_at(at as u64, &zeroes, Cause::Preallocate)?;
        }
        let memory = file.map_shared(bytes).map_err(|e| match e.errno() {
            Some(EOPNOTSUPP) => refused(
                "a file there cannot be shared memory that never needs space: name a directory of tmpfs (/dev/shm), \
                 ext4 or XFS, or none"
                    .into(),
            ),
            _ => e.into(),
        })?;
        let new = config.dir.join(POINTER_NEW);
        let pointer = open(disk, &new, Create::IfMissing, config)?;
        pointer.cut(0, Cause::Other)?;
        pointer.write_at(0, relative.as_os_str().as_bytes(), Cause::Other)?;
        disk.rename(&new, &config.dir.join(POINTER))?;
        Ok((Self { disk: disk.clone(), file }, memory))
    }

    /// Removes it: the log was closed. If that fails it stays, and the next opening looks at it for nothing.
    pub(super) fn remove(&self, config: &LogConfig) {
        remove(&*self.disk, config, Some(self.file.path()));
    }
}

/// Removes a ring's file, and first the path to it.
fn remove(disk: &dyn Disk, config: &LogConfig, ring: Option<&Path>) {
    let Some(ring) = ring else { return };
    for path in [&config.dir.join(POINTER), ring] {
        if let Err(e) = disk.remove(path) {
            if e.errno() != Some(ENOENT) {
                log::warn!("{} stays where it is: {e}", path.display());
            }
        }
    }
}
