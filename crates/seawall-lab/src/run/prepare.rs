//! Brings a cell's file into the state that the cell needs.
//!
//! - The one big file is written once per run by direct writes, with data that neither compresses nor
//!   repeats, and synced.
//! - Every other preparation gets a fresh file for each round, removed after it.
//! - Before a round the file's pages are dropped from the page cache, unless the cell needs them there.

use super::LabError;
use crate::cell::{Access, Beside, CellSpec, Pattern, Preparation, Sync};
use parking_lot::Mutex;
use rand::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use seawall_io::errno::EINVAL;
use seawall_io::probe::{DirectIo, Finding, Probe};
use seawall_io::{
    AlignedBuf, Allocate, Create, Disk as _, FileClass, Fill, FillOptions, Handle, IoError, IoErrorKind, Op, OpenHow,
    OsDisk, SyncHow, SystemClock, WriteHow,
};
use std::collections::HashMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The largest fresh file of one round, bytes: more than a round can write on most disks, and quick to
/// prepare.
pub(super) const FRESH_BYTES: u64 = 128 << 20;
/// The published waiting time of case 4 of E4.
const PUBLISHED_WAIT: Duration = Duration::from_secs(20);
/// The size of a cell's log, bytes; overwritten cyclically.
const LOG_BYTES: u64 = 64 << 20;
/// The rate of a preallocating fill during preparation (in the cell with a concurrent fill it is
/// [`BESIDE_FILL_BYTES_PER_S`]).
const FILL_BYTES_PER_S: f64 = 400e6;
/// The rate of the fill that runs during a measurement.
pub(super) const BESIDE_FILL_BYTES_PER_S: f64 = 50e6;
const CHUNK: usize = 1 << 20;
const NO_DIRECT: &str = "this file system refuses direct I/O";
const NO_FALLOCATE: &str = "this file system has no fallocate";

/// A cell's prepared file.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Open with the cell's access and sync.
    pub(super) file: Handle,
    /// Bytes that operations may touch; a growing file may reach this size.
    pub(super) span: u64,
    /// When the span is used up, operations continue from its start; else the round ends there.
    pub(super) circular: bool,
    remove: Option<(Arc<OsDisk>, PathBuf)>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some((disk, path)) = &self.remove {
            drop(disk.remove(path));
            // The journal's commit of the removal belongs to this round, not to the next cell.
            drop(path.parent().map(|dir| disk.sync_dir(dir)));
        }
    }
}

impl Prepared {
    /// An existing file, opened as `spec` requires and used unchanged.
    pub(super) fn existing(disk: &OsDisk, path: &Path, spec: &CellSpec) -> Result<Self, LabError> {
        let file = disk.open(path, open_how(spec))?;
        let span = disk.len(&file)?;
        Ok(Self { file, span, circular: true, remove: None })
    }

    #[cfg(test)]
    /// A file used unchanged; `span` bytes of it are used once.
    pub(super) fn for_test(file: Handle, span: u64) -> Self {
        Self { file, span, circular: false, remove: None }
    }
}

/// Prepares files in one directory.
#[derive(Debug)]
pub(super) struct Preparer<'a> {
    pub(super) disk: Arc<OsDisk>,
    pub(super) dir: PathBuf,
    pub(super) base: PathBuf,
    pub(super) base_bytes: u64,
    pub(super) seed: u64,
    /// Set by Ctrl-C. Long preparations check it before each step, so that Ctrl-C never waits for a gigabyte.
    pub(super) stop: &'a AtomicBool,
    /// Zero-filled files that are waiting to be measured, and since when.
    pub(super) filled_ahead: Mutex<HashMap<PathBuf, Instant>>,
}

/// Fills `buf` with bytes that neither compress nor repeat.
pub(super) fn noise(buf: &mut [u8], seed: u64) {
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(buf);
}

/// Writes `bytes` at `at`, in as many calls as the disk needs.
pub(super) fn write_whole(
    disk: &OsDisk,
    file: &Handle,
    mut at: u64,
    mut bytes: &[u8],
    how: WriteHow,
) -> Result<(), IoError> {
    while !bytes.is_empty() {
        let n = disk.write_at(file, at, &[IoSlice::new(bytes)], how)?;
        if n == 0 {
            return Err(IoError::new(Op::Write, file.path(), IoErrorKind::NoProgress));
        }
        at += n as u64;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// How a cell opens its file.
fn open_how(spec: &CellSpec) -> OpenHow {
    let (direct, dsync) = (spec.access == Access::Direct, spec.sync == Sync::ODsync);
    OpenHow { write: true, create: Create::No, direct, dsync }
}

/// How a cell writes.
pub(super) fn write_how(spec: &CellSpec) -> WriteHow {
    WriteHow { dsync: spec.sync == Sync::RwfDsync, dontcache: spec.access == Access::DontCache, ..WriteHow::default() }
}

/// How a fresh file is created.
fn fresh() -> OpenHow {
    OpenHow { write: true, create: Create::New, ..OpenHow::default() }
}

/// Creates a file for direct I/O, or for buffered I/O where direct I/O is refused (the probe has reported that, and
/// direct cells are left out).
fn open_any(disk: &OsDisk, path: &Path) -> Result<Handle, IoError> {
    match disk.open(path, OpenHow { direct: true, ..fresh() }) {
        Err(e) if e.errno() == Some(EINVAL) => disk.open(path, OpenHow { create: Create::IfMissing, ..fresh() }),
        opened => opened,
    }
}

impl Preparer<'_> {
    /// Fails if the run was stopped.
    fn go_on(&self) -> Result<(), LabError> {
        if self.stop.load(Ordering::Relaxed) { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Writes a file whole, direct where that works, and syncs it; `progress` is called with the bytes written.
    pub(super) fn write_file(&self, path: &Path, len: u64, mut progress: impl FnMut(u64)) -> Result<(), LabError> {
        let file = open_any(&self.disk, path)?;
        let mut chunk = AlignedBuf::zeroed(CHUNK);
        noise(&mut chunk, self.seed);
        let mut at = 0;
        while at < len {
            self.go_on()?;
            // Stamps every block so that no two are equal, which is much cheaper than fresh noise.
            for (i, block) in chunk.chunks_exact_mut(4096).enumerate() {
                block[..8].copy_from_slice(&(at + i as u64).to_le_bytes());
            }
            let n = usize::try_from(len - at).map_or(CHUNK, |left| left.min(CHUNK));
            write_whole(&self.disk, &file, at, &chunk[..n], WriteHow::default())?;
            at += n as u64;
            progress(at);
        }
        Ok(self.disk.sync(&file, SyncHow::All)?)
    }

    fn zero_fill(&self, path: &Path, len: u64) -> Result<(), LabError> {
        let file = self.disk.open(path, fresh())?;
        let zeroes = AlignedBuf::zeroed(CHUNK);
        for at in (0..len).step_by(CHUNK) {
            self.go_on()?;
            write_whole(&self.disk, &file, at, &zeroes, WriteHow::default())?;
        }
        Ok(())
    }

    fn waiting_path(&self, spec: &CellSpec) -> PathBuf {
        self.dir.join(spec.id().replace('/', "-"))
    }

    pub(super) fn is_filled_ahead(&self, spec: &CellSpec) -> bool {
        self.filled_ahead.lock().contains_key(&self.waiting_path(spec))
    }

    /// The bytes of the files that are waiting to be measured.
    pub(super) fn filled_ahead_bytes(&self) -> u64 {
        self.filled_ahead.lock().len() as u64 * FRESH_BYTES.min(self.base_bytes)
    }

    /// Zero-fills the files of all these cells, so that they wait at the same time and not one after the
    /// other.
    pub(super) fn fill_ahead(&self, specs: &[CellSpec]) -> Result<(), LabError> {
        for spec in specs {
            let path = self.waiting_path(spec);
            self.zero_fill(&path, FRESH_BYTES.min(self.base_bytes))?;
            self.filled_ahead.lock().insert(path, Instant::now());
        }
        Ok(())
    }

    fn allocate(&self, path: &Path, how: Allocate, len: u64) -> Result<(), LabError> {
        let file = self.disk.open(path, fresh())?;
        let allocated = self.disk.allocate(&file, how, 0, len).and_then(|()| self.disk.sync(&file, SyncHow::All));
        allocated.map_err(|e| {
            drop(self.disk.remove(path));
            match e.errno() {
                Some(95 | 22 | 38) => LabError::Unavailable(match how {
                    Allocate::WriteZeroes => "this kernel, file system or device has no FALLOC_FL_WRITE_ZEROES".into(),
                    Allocate::Unwritten | Allocate::KeepSize => NO_FALLOCATE.into(),
                }),
                _ => e.into(),
            }
        })
    }

    /// Makes the file that `spec` needs; returns its path, the bytes of it that operations may touch, and whether they
    /// continue from its start.
    fn make(&self, spec: &CellSpec) -> Result<(PathBuf, u64, bool), LabError> {
        use Preparation as P;
        let (path, len) = (self.dir.join(spec.preparation.word()), FRESH_BYTES.min(self.base_bytes));
        // A block that was overwritten once is no longer in the state that the others left it in.
        let circular = matches!(spec.preparation, P::Recycled | P::Preallocated);
        match spec.preparation {
            _ if spec.pattern == Pattern::Log => {
                let (path, len) = (self.dir.join("log"), LOG_BYTES.min(self.base_bytes));
                self.write_file(&path, len, |_| {})?;
                return Ok((path, len, true));
            }
            P::Written if spec.beside != Beside::BeyondEof => return Ok((self.base.clone(), self.base_bytes, true)),
            P::Written | P::Append => {
                drop(self.disk.open(&path, fresh())?);
                return Ok((path, self.base_bytes, false));
            }
            P::Unwritten => self.allocate(&path, Allocate::Unwritten, len)?,
            P::KeepSize => self.allocate(&path, Allocate::KeepSize, len)?,
            P::WriteZeroes => self.allocate(&path, Allocate::WriteZeroes, len)?,
            P::Recycled => {
                let used = self.dir.join("used");
                self.write_file(&used, len, |_| {})?;
                self.disk.rename(&used, &path)?;
                self.disk.sync_dir(&self.dir)?;
            }
            P::ZeroFilledNow => self.zero_fill(&path, len)?,
            P::ZeroFilledWait => {
                if !self.is_filled_ahead(spec) {
                    self.fill_ahead(&[*spec])?;
                }
                let path = self.waiting_path(spec);
                let filled = self.filled_ahead.lock().remove(&path);
                while filled.is_some_and(|filled| filled.elapsed() < PUBLISHED_WAIT) {
                    self.go_on()?;
                    std::thread::sleep(Duration::from_millis(50));
                }
                return Ok((path, len, circular));
            }
            P::Preallocated => {
                let options = FillOptions::new(FileClass::Scratch, len);
                self.fill(&path, FillOptions { bytes_per_second: FILL_BYTES_PER_S, ..options }, self.stop)?;
            }
        }
        Ok((path, len, circular))
    }

    /// Makes a file as the engine preallocates one.
    pub(super) fn fill(&self, path: &Path, options: FillOptions, stop: &AtomicBool) -> Result<(), LabError> {
        match Fill::begin(self.disk.clone(), path, options)?.run(&SystemClock::default(), stop) {
            Err(e) if e.kind == IoErrorKind::Cancelled => Err(LabError::Interrupted),
            filled => Ok(filled.map(drop)?),
        }
    }

    /// Brings a file into the state that `spec` needs and opens it.
    pub(super) fn prepare(&self, spec: &CellSpec) -> Result<Prepared, LabError> {
        let (path, span, circular) = self.make(spec)?;
        let remove = (path != self.base).then(|| (self.disk.clone(), path.clone()));
        let mut prepared = Prepared { file: self.disk.open(&path, OpenHow::default())?, span, circular, remove };
        self.set_cache(spec, &path, span)?;
        prepared.file = self.disk.open(&path, open_how(spec)).map_err(|e| match e.errno() {
            Some(EINVAL) if spec.access == Access::Direct => LabError::Unavailable(NO_DIRECT.into()),
            _ => e.into(),
        })?;
        Ok(prepared)
    }

    /// Brings the page cache into the state that the cell needs.
    fn set_cache(&self, spec: &CellSpec, path: &Path, span: u64) -> Result<(), LabError> {
        if matches!(spec.preparation, Preparation::ZeroFilledNow | Preparation::ZeroFilledWait) {
            // The cell measures the fill that is not yet written back.
            return Ok(());
        }
        let buffered = self.disk.open(path, OpenHow { write: true, ..OpenHow::default() })?;
        // A server's buffered log has its file in the cache after the first cycle through it.
        let warm_log = spec.pattern == Pattern::Log && spec.access == Access::Buffered;
        let stay = warm_log || spec.beside == Beside::CachedPages;
        if stay || spec.beside == Beside::DroppedPages {
            let mut chunk = AlignedBuf::zeroed(CHUNK);
            let mut at = 0;
            while at < span {
                self.go_on()?;
                match self.disk.read_at(&buffered, at, &mut chunk)? {
                    0 => break,
                    n => at += n as u64,
                }
            }
        }
        if !stay {
            self.disk.sync(&buffered, SyncHow::Data)?;
            return Ok(self.disk.drop_cache(&buffered, 0, 0)?);
        }
        let resident = self.disk.cached(&buffered, span)?.resident;
        if resident < span / 10 * 9 {
            let reason = format!("only {} of {} MiB stay in the page cache here", resident >> 20, span >> 20);
            return Err(LabError::Unavailable(reason));
        }
        Ok(())
    }
}

/// Why a cell cannot be measured here, by the probe's findings; `None` when it can be tried.
pub(super) fn unavailable(spec: &CellSpec, probe: &Probe) -> Option<String> {
    if spec.access == Access::Direct {
        if probe.direct_io == Finding::Known(DirectIo::Refused) {
            return Some(NO_DIRECT.into());
        }
        let needed = probe.direct_align_tried_bytes.known().copied().unwrap_or(512);
        let block = spec.log.map_or(spec.block_bytes, |l| if l.merged { spec.block_bytes } else { l.record_bytes });
        if block % needed != 0 {
            return Some(format!("direct writes of {block} bytes are not allowed here: the block is {needed} bytes"));
        }
    }
    let fallocate = matches!(spec.preparation, Preparation::Unwritten | Preparation::KeepSize);
    let write_zeroes = spec.preparation == Preparation::WriteZeroes;
    const NO_WRITE_ZEROES: &str = "this kernel, file system or device has no FALLOC_FL_WRITE_ZEROES (Linux 6.17)";
    const NO_DONTCACHE: &str = "this kernel or file system has no RWF_DONTCACHE (Linux 6.14)";
    let needs = [
        (spec.access == Access::DontCache, &probe.rwf_dontcache, NO_DONTCACHE),
        (spec.sync == Sync::RwfDsync, &probe.rwf_dsync, "this file system has no RWF_DSYNC"),
        (write_zeroes, &probe.write_zeroes, NO_WRITE_ZEROES),
        (fallocate, &probe.fallocate, NO_FALLOCATE),
    ];
    let lacking = needs.into_iter().find(|(needed, found, _)| *needed && **found == Finding::Known(false));
    lacking.map(|(.., reason)| reason.to_owned())
}
