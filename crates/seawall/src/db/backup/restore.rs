//! Restores a database from a backup, or from a full backup and the increments on it.
//!
//! 1. Each file is verified as it is read: pages, manifests and the control block by their checksums, the log to its
//!    end. The backups are not changed.
//! 2. Pages of a later backup in the chain replace those of an earlier one. The log is that of the last backup.
//! 3. A restored database has no record of earlier backups, so increments on them are refused (`taken.rs`).

use super::copy::{BLOCK, is_zero, lengthen, log_is_whole, new_file, or_no_space, write_control};
use super::manifest::{Manifest, Name, PAGES_FILE, Target, files_of};
use crate::buffer::{CONTROL_FILE, DATA_FILE};
use crate::db::database::Database;
use crate::db::open::{Env, absolute};
use crate::error::{Error, Result};
use crate::format::control::{ControlBlock, SLOT_BYTES, SLOT_STRIDE, SLOTS};
use crate::format::{PageId, page};
use crate::log::LogConfig;
use seawall_io::errno::{EINVAL, EOPNOTSUPP};
use seawall_io::{
    AlignedBuf, Backend, Cause, Disk, File, FileClass, Handle, IoError, IoErrorKind, IoStats, Op, OpenHow,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of one read: a multiple of every page size.
const CHUNK: usize = 1 << 20;

/// The result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The position in the log of the state that the database has when it is opened.
    pub end: u64,
    /// Pages that were written.
    pub pages: u64,
    /// Length of the data file, bytes.
    pub data_bytes: u64,
}

impl Database {
    /// Restores a database into `to`, which must be new or empty, from backups: a full one, and the increments on it in
    /// order. All files are durable when this returns; the first opening recovers to the end of the last backup. A
    /// `seawall.toml` is not part of a backup.
    ///
    /// # Errors
    /// [`Error::BadBackup`] if the chain does not fit, something in it is damaged, or `to` is not empty;
    /// [`Error::UnfinishedBackup`]; [`Error::Corrupt`] for a damaged page; [`Error::NoSpace`], [`Error::Io`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use seawall::{BackupOptions, Database};
    /// let db = Database::open(dir.path().join("db"))?;
    /// let report = db.backup_to(dir.path().join("copy"), &BackupOptions::default())?;
    /// let restored = Database::restore(&[dir.path().join("copy")], dir.path().join("again"))?;
    /// assert_eq!(restored.end, report.end);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn restore(from: &[impl AsRef<Path>], to: impl AsRef<Path>) -> Result<Restored> {
        Self::restore_in(&Env::system(Backend::Auto)?, from, to)
    }

    /// Like [`Database::restore`], on a given disk.
    ///
    /// # Errors
    /// Those of [`Database::restore`].
    pub fn restore_in(env: &Env, from: &[impl AsRef<Path>], to: impl AsRef<Path>) -> Result<Restored> {
        let to = &absolute(to.as_ref())?;
        Self::restore_from(env, from, to).map_err(|error| or_no_space(error, to))
    }

    fn restore_from(env: &Env, from: &[impl AsRef<Path>], to: &Path) -> Result<Restored> {
        let disk = &env.disk;
        let mut chain: Vec<(PathBuf, Manifest)> = Vec::new();
        for dir in from {
            let dir = dir.as_ref();
            let manifest = Manifest::read(&**disk, dir)?;
            let refuse = |why: String| Err(Error::BadBackup { path: dir.into(), why });
            match (chain.last(), manifest.base) {
                (None, None) => {}
                (None, Some(_)) => return refuse("it is an increment: name the full backup before it".into()),
                (Some(_), None) => return refuse("it is a full backup: name it first, or alone".into()),
                (Some((before, _)), Some(base)) if base != chain[chain.len() - 1].1.name => {
                    return refuse(format!("it is not an increment on {}", before.display()));
                }
                (Some((_, before)), Some(_))
                    if (before.page_bytes, before.database) != (manifest.page_bytes, manifest.database) =>
                {
                    return refuse("the backup before it has other pages or is of another database".into());
                }
                (Some(_), Some(_)) => {}
            }
            for file in files_of(&manifest) {
                if !disk.list(dir)?.contains(&dir.join(file)) {
                    return refuse(format!("its file {file:?} is missing: use another backup"));
                }
            }
            chain.push((dir.into(), manifest));
        }
        let Some((last_dir, last)) = chain.last() else {
            return Err(Error::Usage("nothing to restore from: name a backup".into()));
        };
        let block = read_control(&**disk, last_dir, last)?;
        let target = Target::begin(&**disk, to)?;
        let restoring = Restoring { env, to: &target.dir, stats: Arc::new(IoStats::new()) };
        let pages = restoring.pages(&chain, last)?;
        restoring.log(last_dir, last, &block)?;
        write_control(disk, &target.dir, &restoring.stats, &block)?;
        target.finish(&**disk)?;
        Ok(Restored { end: last.end.0, pages, data_bytes: last.data_bytes })
    }
}

struct Restoring<'a> {
    env: &'a Env,
    to: &'a Path,
    stats: Arc<IoStats>,
}

impl Restoring<'_> {
    /// Writes the data file; returns how many pages.
    fn pages(&self, chain: &[(PathBuf, Manifest)], last: &Manifest) -> Result<u64> {
        let out = new_file(&self.env.disk, &self.to.join(DATA_FILE), FileClass::Data, &self.stats)?;
        lengthen(&out, last.data_bytes)?;
        let mut written = 0;
        for (dir, manifest) in chain {
            let full = manifest.base.is_none();
            let source = Source::open(&*self.env.disk, &dir.join(if full { DATA_FILE } else { PAGES_FILE }))?;
            let page_bytes = manifest.page_bytes as usize;
            let expected = if full { manifest.data_bytes } else { manifest.pages * page_bytes as u64 };
            source.has(expected)?;
            let mut chunk = AlignedBuf::zeroed(CHUNK);
            let mut found = 0;
            for at in (0..expected).step_by(CHUNK) {
                let len = (expected - at).min(CHUNK as u64) as usize;
                let chunk = &mut chunk[..len];
                source.read(&*self.env.disk, at, chunk)?;
                found += write_pages(&out, &source.path, chunk, page_bytes, full.then_some(at), last.data_bytes)?;
            }
            if found != manifest.pages {
                let why = format!("it has {found} pages, but {} were expected: use another backup", manifest.pages);
                return Err(Error::BadBackup { path: source.path, why });
            }
            written += found;
        }
        out.sync(Cause::Other)?;
        Ok(written)
    }

    fn log(&self, dir: &Path, manifest: &Manifest, block: &ControlBlock) -> Result<()> {
        let disk = &self.env.disk;
        for number in block.checkpoint.0 / manifest.segment_bytes..=manifest.end.0 / manifest.segment_bytes {
            let name = crate::log::segment_name(number);
            let source = Source::open(&**disk, &dir.join(&name))?;
            source.has(manifest.segment_bytes)?;
            let out = new_file(disk, &self.to.join(&name), FileClass::Redo, &self.stats)?;
            lengthen(&out, manifest.segment_bytes)?;
            let mut chunk = AlignedBuf::zeroed(CHUNK);
            for at in (0..manifest.segment_bytes).step_by(CHUNK) {
                let len = (manifest.segment_bytes - at).min(CHUNK as u64) as usize;
                source.read(&**disk, at, &mut chunk[..len])?;
                if !is_zero(&chunk[..len]) {
                    out.write_at(at, &chunk[..len], Cause::Other)?;
                }
            }
            out.sync(Cause::Other)?;
        }
        let usual = LogConfig::new(self.to, block.database);
        let config = LogConfig {
            block_bytes: block.block_bytes as usize,
            segment_bytes: block.segment_bytes,
            capacity_bytes: usual.capacity_bytes.max(8 * block.segment_bytes),
            incarnation: block.incarnation.max(1),
            clock: self.env.clock.clone(),
            ..usual
        };
        log_is_whole(disk, &config, self.to, block, |_| Ok(()))
    }
}

/// Writes the pages in `chunk` to their places; returns how many. `chunk` is a part of a data file, at `at`, or of an
/// increment, whose pages contain their numbers.
fn write_pages(
    out: &File,
    path: &Path,
    chunk: &[u8],
    page_bytes: usize,
    at: Option<u64>,
    data_bytes: u64,
) -> Result<u64> {
    let mut found = 0;
    // Pages to write together, and their place.
    let (mut run, mut run_at) = (0..0, 0);
    let flush = |run: &mut Range<usize>, run_at: u64| -> Result<()> {
        if run.start < run.end {
            // If the file was shortened later, it has no place for the rest.
            let len = (data_bytes.saturating_sub(run_at)).min(run.len() as u64) as usize;
            if len > 0 {
                out.write_at(run_at, &chunk[run.start..run.start + len], Cause::Other)?;
            }
        }
        *run = 0..0;
        Ok(())
    };
    for (i, bytes) in chunk.chunks_exact(page_bytes).enumerate() {
        let here = i * page_bytes;
        let number =
            at.map_or_else(|| page::number(bytes), |at| PageId(((at + here as u64) / page_bytes as u64) as u32));
        if at.is_some() && is_zero(bytes) {
            continue;
        }
        page::verify(bytes, number, path)?;
        found += 1;
        let to = u64::from(number.0) * page_bytes as u64;
        if run.is_empty() || run.end != here || run_at + run.len() as u64 != to {
            flush(&mut run, run_at)?;
            (run, run_at) = (here..here, to);
        }
        run.end = here + page_bytes;
    }
    flush(&mut run, run_at)?;
    Ok(found)
}

/// Reads the control block of a backup.
fn read_control(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> Result<ControlBlock> {
    let source = Source::open(disk, &dir.join(CONTROL_FILE))?;
    let bad = |why: String| Error::BadBackup { path: source.path.clone(), why };
    let mut whys = Vec::new();
    for slot in 0..SLOTS {
        let mut bytes = AlignedBuf::zeroed(SLOT_BYTES);
        match source.read(disk, slot * SLOT_STRIDE, &mut bytes) {
            Ok(()) => match ControlBlock::decode(&bytes) {
                Ok((_, block)) => {
                    let fits = Name(block.database) == manifest.database
                        && (block.checkpoint, block.log_end) == (manifest.begin, manifest.end)
                        && (block.page_bytes, block.block_bytes) == (manifest.page_bytes, manifest.block_bytes)
                        && block.segment_bytes == manifest.segment_bytes;
                    if fits {
                        return Ok(block);
                    }
                    whys.push("is that of another backup".to_owned());
                }
                Err(why) => whys.push(why.to_string()),
            },
            Err(error) => whys.push(error.to_string()),
        }
    }
    Err(bad(format!("no valid control block: {}. Use another backup", whys.join(", "))))
}

/// How often a read that stops within a block is tried again.
const TRIES_MAX: u32 = 1000;

/// A file of a backup, which may be on a read-only file system.
struct Source {
    path: PathBuf,
    handle: Handle,
    len: u64,
}

impl Source {
    fn open(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let how = OpenHow { direct: true, ..OpenHow::default() };
        let handle = match disk.open(path, how) {
            Err(e) if matches!(e.errno(), Some(EINVAL | EOPNOTSUPP)) => {
                disk.open(path, OpenHow { direct: false, ..how })?
            }
            opened => opened?,
        };
        Ok(Self { path: path.into(), len: disk.len(&handle)?, handle })
    }

    fn has(&self, len: u64) -> Result<()> {
        if self.len == len {
            return Ok(());
        }
        let why =
            format!("it has {} bytes, but {len} were expected: it was truncated or copied only in part", self.len);
        Err(Error::BadBackup { path: self.path.clone(), why })
    }

    /// Fills `buf`. The offset and the length must suit direct I/O.
    fn read(&self, disk: &dyn Disk, at: u64, buf: &mut [u8]) -> Result<()> {
        debug_assert!(at % BLOCK == 0 && buf.len() as u64 % BLOCK == 0, "direct reads are of whole blocks");
        let (mut done, mut tries) = (0, 0);
        while done < buf.len() {
            // A direct read continues at a whole block; after a short read that may be the same block.
            let n = disk.read_at(&self.handle, at + done as u64, &mut buf[done..])?;
            let next = if done + n == buf.len() { buf.len() } else { (done + n) & !(BLOCK as usize - 1) };
            tries = if next == done { tries + 1 } else { 0 };
            if at + (done + n) as u64 >= self.len && next < buf.len() || tries == TRIES_MAX {
                let kind = IoErrorKind::UnexpectedEof { got: (done + n) as u64 };
                return Err(IoError::new(Op::Read, &self.path, kind).at(at, buf.len() as u64).into());
            }
            done = next;
        }
        Ok(())
    }
}
