//! Pages of temporary data with one owner, in their own memory and in a file without a name. The data ends with its
//! owner.
//!
//! 1. *No durability.* Nothing here is logged, flushed, checkpointed or recovered. The buffer pool, the data file and
//!    the log do not know these pages, and therefore recovery, backup, checks and shrinking do not either.
//! 2. *The file.* The file is created when memory does not suffice, and its name is removed before the first write:
//!    when the owner or the process ends, the file system frees the blocks. A power cut can bring the name back; the
//!    next opening removes it ([`remove_leftovers`]).
//! 3. *Steps.* Pages leave memory only at the beginning of a step. Until the next step, a page that was read or made
//!    stays in memory, so only the first access to a page can fail. A step loads all pages that it needs before it
//!    changes the first of them; then nothing fails. Memory use can exceed its limit by the pages of one step. On a
//!    full disk it can also exceed the limit by the pages that are read or rolled back: existing data can still be read
//!    and rolled back.
//! 4. A page that is read back must have the checksum that it had when it was written. The checksums are kept in
//!    memory.
//! 5. A page that has not changed since it was written is not written again. Adjacent pages that leave memory together
//!    are one write.
//!
//! ```text
//!   free ──make──> in memory, changed ──begin_step──> in the file ──page──> in memory ──seen_mut──> in memory, changed
//!
//!   release: from each of these states to free
//! ```

use crate::error::{Corruption, Error, Result};
use crate::format::PageId;
use seawall_io::errno::{EEXIST, ENOENT};
use seawall_io::{AlignedBuf, Cause, Create, Disk, File, FileClass, FileOptions, FlushMethod, IoError, IoStats};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The prefix of a file's name while it has one.
const PREFIX: &str = "temporary.";
/// The fewest frames: enough for a descent, the siblings, and some more.
const FRAMES_MIN: usize = 32;
/// The most pages that leave memory in one step.
const LEAVING_MAX: usize = 64;
/// The most bytes of one write.
const WRITE_BYTES_MAX: usize = 512 << 10;
/// The number of names that are tried for a file.
const NAMES_TRIED: u64 = 8;
/// Stands for no frame, and for no page.
const NONE: u32 = u32::MAX;

/// Where and how the file is created.
#[derive(Debug, Clone)]
pub struct SpillPlace {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory.
    pub dir: PathBuf,
    /// The number in the file's name, unique among the files that are created in the directory.
    pub number: u64,
    /// How the file is opened.
    pub method: FlushMethod,
    /// Counters.
    pub stats: Arc<IoStats>,
}

#[derive(Debug)]
struct Frame {
    page: u32,
    bytes: AlignedBuf,
    /// Changed since it was read or written.
    changed: bool,
    /// Used since the hand last passed.
    used: bool,
    /// The step that last used it.
    step: u64,
}

/// The state of a page.
#[derive(Debug, Clone, Copy)]
struct Known {
    frame: u32,
    /// The checksum of the page in the file.
    checksum: u32,
    /// The next page, if the owner has chained pages.
    next: u32,
}

/// The state of page 0, whose number stands for "no page", and of a new page.
const NO_PAGE: Known = Known { frame: NONE, checksum: 0, next: NONE };

/// Pages, numbered from 1.
#[derive(Debug)]
pub struct Spill {
    place: SpillPlace,
    page_bytes: usize,
    frames_max: usize,
    frames: Vec<Frame>,
    pages: Vec<Known>,
    free: Vec<u32>,
    file: Option<File>,
    hand: usize,
    step: u64,
}

impl Spill {
    /// Begins with no pages. The limit of memory is `memory_bytes`, or `FRAMES_MIN` pages if that is more.
    pub fn new(place: SpillPlace, page_bytes: usize, memory_bytes: u64) -> Self {
        let frames_max = usize::try_from(memory_bytes / page_bytes as u64).unwrap_or(usize::MAX).max(FRAMES_MIN);
        Self {
            place,
            page_bytes,
            frames_max,
            frames: Vec::new(),
            pages: vec![NO_PAGE],
            free: Vec::new(),
            file: None,
            hand: 0,
            step: 0,
        }
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.frames.len() * self.page_bytes) as u64
    }

    /// Bytes of the file; 0 if there is none.
    pub fn file_bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, File::len)
    }

    /// Pages in use.
    pub fn used_pages(&self) -> usize {
        self.pages.len() - 1 - self.free.len()
    }

    /// Removes all pages and the file.
    pub fn clear(&mut self) {
        (self.frames, self.pages, self.free, self.file) = (Vec::new(), vec![NO_PAGE], Vec::new(), None);
    }

    /// Begins a step that reads or rolls back (3): pages of earlier steps may leave memory. On a full disk, changed
    /// pages stay in memory, beyond its limit.
    ///
    /// # Errors
    /// An error of the disk. Pages that could not be written stay in memory.
    pub fn begin_step(&mut self) -> Result<()> {
        match self.begin_growing() {
            Err(Error::NoSpace { .. }) => Ok(()),
            begun => begun,
        }
    }

    /// Begins a step that adds data.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; otherwise as [`Spill::begin_step`].
    pub fn begin_growing(&mut self) -> Result<()> {
        self.step += 1;
        if self.frames.len() <= self.frames_max {
            return Ok(());
        }
        // Some more pages than necessary, so that not every step has to evict.
        let wanted = (self.frames.len() - self.frames_max + self.frames_max / 16).min(LEAVING_MAX);
        let mut leaving = self.choose(wanted);
        leaving.sort_unstable_by_key(|&frame| self.frames[frame].page);
        let written = self.write_changed(&leaving);
        if written.is_err() {
            leaving.retain(|&frame| !self.frames[frame].changed);
        }
        leaving.sort_unstable();
        for frame in leaving.into_iter().rev() {
            let left = self.frames.swap_remove(frame);
            self.pages[left.page as usize].frame = NONE;
            if let Some(moved) = self.frames.get(frame) {
                self.pages[moved.page as usize].frame = frame as u32;
            }
        }
        match written {
            Err(Error::NoSpace { .. }) if self.frames.len() <= self.frames_max => Ok(()),
            written => written,
        }
    }

    /// Chooses frames whose pages were not used recently.
    fn choose(&mut self, wanted: usize) -> Vec<usize> {
        let mut chosen = Vec::with_capacity(wanted);
        for _ in 0..2 * self.frames.len() {
            if chosen.len() == wanted {
                break;
            }
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[self.hand];
            if !std::mem::take(&mut frame.used) && !chosen.contains(&self.hand) {
                chosen.push(self.hand);
            }
        }
        chosen
    }

    /// Writes the changed pages among these frames, which are sorted by page. If the disk has no space for some, the
    /// others are still written: most already have their place in the file.
    fn write_changed(&mut self, frames: &[usize]) -> Result<()> {
        let changed: Vec<usize> = frames.iter().copied().filter(|&frame| self.frames[frame].changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        self.open()?;
        let file = self.file.as_ref().expect("it is open");
        let (mut rest, mut full) = (&changed[..], None);
        while let Some(&first) = rest.first() {
            let page = self.frames[first].page;
            let most = (WRITE_BYTES_MAX / self.page_bytes).max(1);
            let together = rest
                .iter()
                .zip(page..)
                .take(most)
                .take_while(|&(&frame, page)| self.frames[frame].page == page)
                .count();
            let (run, behind) = rest.split_at(together);
            let parts: Vec<&[u8]> = run.iter().map(|&frame| &self.frames[frame].bytes[..]).collect();
            let at = u64::from(page) * self.page_bytes as u64;
            rest = behind;
            match file.write_vectored_at(at, &parts, Cause::Clean).map_err(|e| self.refused(e, run.len())) {
                Ok(()) => {}
                Err(error @ Error::NoSpace { .. }) => {
                    full = full.or(Some(error));
                    continue;
                }
                Err(error) => return Err(error),
            }
            for &frame in run {
                let Frame { page, bytes, changed, .. } = &mut self.frames[frame];
                self.pages[*page as usize].checksum = crc32c::crc32c(bytes);
                *changed = false;
            }
        }
        full.map_or(Ok(()), Err)
    }

    fn refused(&self, error: IoError, pages: usize) -> Error {
        if error.is_full() {
            let needed_bytes = (pages * self.page_bytes) as u64;
            return Error::NoSpace { path: error.path, needed_bytes, kept_free_bytes: 0 };
        }
        Error::Io(error)
    }

    /// Creates the file, and removes its name (2).
    fn open(&mut self) -> Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let SpillPlace { disk, dir, number, method, stats } = &self.place;
        // Skips a name that a power cut has brought back and that could not be removed.
        for attempt in 0..NAMES_TRIED {
            let path = dir.join(format!("{PREFIX}{:016x}", number + (attempt << 48)));
            let options = FileOptions::new(FileClass::Scratch, *method).create(Create::New).stats(stats);
            match File::open(disk.clone(), &path, options) {
                Err(e) if e.errno() == Some(EEXIST) && attempt + 1 < NAMES_TRIED => {}
                Err(e) => return Err(self.refused(e, 1)),
                Ok(file) => {
                    disk.remove(&path)?;
                    self.file = Some(file);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Makes a page of zeroes.
    pub fn make(&mut self) -> PageId {
        let page = self.free.pop().unwrap_or_else(|| {
            self.pages.push(NO_PAGE);
            self.pages.len() as u32 - 1
        });
        self.enter(page, AlignedBuf::zeroed(self.page_bytes), true);
        PageId(page)
    }

    fn enter(&mut self, page: u32, bytes: AlignedBuf, changed: bool) {
        self.pages[page as usize].frame = self.frames.len() as u32;
        self.frames.push(Frame { page, bytes, changed, used: true, step: self.step });
    }

    /// Frees a page, in memory or in the file. Does no I/O.
    pub fn release(&mut self, page: PageId) {
        let known = &mut self.pages[page.0 as usize];
        known.next = NONE;
        let frame = std::mem::replace(&mut known.frame, NONE) as usize;
        if frame < self.frames.len() {
            self.frames.swap_remove(frame);
            if let Some(moved) = self.frames.get(frame) {
                self.pages[moved.page as usize].frame = frame as u32;
            }
        }
        self.free.push(page.0);
    }

    /// Returns the page after this one in its chain.
    pub fn next_of(&self, page: PageId) -> Option<PageId> {
        let next = self.pages[page.0 as usize].next;
        (next != NONE).then_some(PageId(next))
    }

    /// Sets the page after `page` in its chain.
    pub fn chain(&mut self, page: PageId, next: Option<PageId>) {
        self.pages[page.0 as usize].next = next.map_or(NONE, |next| next.0);
    }

    /// Brings a page into memory, where it stays until the next step. Returns its frame.
    fn load(&mut self, page: PageId) -> Result<usize> {
        let known = self.pages[page.0 as usize];
        if known.frame != NONE {
            let frame = &mut self.frames[known.frame as usize];
            (frame.used, frame.step) = (true, self.step);
            return Ok(known.frame as usize);
        }
        let file = self.file.as_ref().expect("a page that is not in memory is in the file");
        let mut bytes = AlignedBuf::zeroed(self.page_bytes);
        file.read_at(u64::from(page.0) * self.page_bytes as u64, &mut bytes, Cause::DemandRead)?;
        let found = crc32c::crc32c(&bytes);
        if found != known.checksum {
            let (path, expected) = (file.path().into(), known.checksum);
            return Err(Corruption::ChecksumMismatch { path, page, expected, found }.into());
        }
        self.enter(page.0, bytes, false);
        Ok(self.frames.len() - 1)
    }

    /// Returns the bytes of a page, which is loaded if needed.
    ///
    /// # Errors
    /// An error of the disk; [`Corruption::ChecksumMismatch`]. None if this step has already accessed the page.
    pub fn page(&mut self, page: PageId) -> Result<&[u8]> {
        let frame = self.load(page)?;
        Ok(&self.frames[frame].bytes)
    }

    /// Returns the bytes of a page that this step has loaded or made.
    pub fn seen(&self, page: PageId) -> &[u8] {
        let frame = &self.frames[self.pages[page.0 as usize].frame as usize];
        debug_assert_eq!(frame.step, self.step, "this step has looked at it");
        &frame.bytes
    }

    /// Like [`Spill::seen`], but to change the page.
    pub fn seen_mut(&mut self, page: PageId) -> &mut [u8] {
        let frame = &mut self.frames[self.pages[page.0 as usize].frame as usize];
        debug_assert_eq!(frame.step, self.step, "this step has looked at it");
        frame.changed = true;
        &mut frame.bytes
    }
}

/// Returns whether the name of a file is that of a spill file. Such a name remains only after a power cut or a crash.
pub fn is_spilled(path: &Path) -> bool {
    let digits = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Removes such files. The control file must be locked, so that no other process creates any.
pub fn remove_leftovers(disk: &dyn Disk, leftovers: &[PathBuf]) {
    for path in leftovers {
        match disk.remove(path) {
            // The file only takes space, and the next opening tries again.
            Err(error) if error.errno() != Some(ENOENT) => {
                ::log::warn!("a temporary file was left by a crash, and cannot be removed: {error}");
            }
            _ => {}
        }
    }
}
