//! Changing the size of the data file and of the pool.

use super::{FRAMES_MIN, Patience, Pool, frames_of};
use crate::buffer::doublewrite::BATCH;
use crate::buffer::stats::count;
use crate::buffer::unfinished::Unfinished;
use crate::error::{Error, Result};
use seawall_io::{Allocate, Cause, EffectiveMode};
use std::sync::atomic::Ordering;

impl Pool {
    /// Grows the data file to `pages` pages, durably; never makes it shorter. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the disk is full: nothing has changed. Other errors of the disk; a failed flush poisons
    /// the database.
    pub fn grow_file(&self, pages: u32) -> Result<()> {
        self.health.check()?;
        let (before, len) = (self.data.len(), u64::from(pages) * self.page_bytes as u64);
        if len <= before {
            return Ok(());
        }
        let refused = |error: seawall_io::IoError| {
            if error.is_full() {
                Error::NoSpace { path: self.data.path().into(), needed_bytes: len - before, kept_free_bytes: 0 }
            } else {
                Error::Io(error)
            }
        };
        // Once the file is longer, the next caller assumes that it is durable.
        let unfinished = Unfinished::begin(&self.health, "growing the data file");
        match self.data.grow(Allocate::Unwritten, len, Cause::Preallocate) {
            Ok(()) => {}
            // The file system has no fallocate: writing the last page extends the file, and a full disk is only found
            // when the pages before it are written.
            Err(e) if e.is_unsupported() => {
                let zeroes = seawall_io::AlignedBuf::zeroed(self.page_bytes);
                let last = len - self.page_bytes as u64;
                if let Err(e) = self.data.write_at(last, &zeroes, Cause::Preallocate) {
                    unfinished.done();
                    return Err(refused(e));
                }
            }
            Err(e) => {
                unfinished.done();
                return Err(refused(e));
            }
        }
        self.flush_data(|data| data.sync(Cause::Preallocate))?;
        unfinished.done();
        Ok(())
    }

    /// Cuts the data file to `pages` pages, durably; never makes it longer. No page that is cut off may be dirty, being
    /// written, or named by the log after the checkpoint. No latch may be held.
    ///
    /// # Errors
    /// An error of the disk: the file stays as long as it was. A failed flush poisons the database.
    pub fn cut_file(&self, pages: u32) -> Result<()> {
        self.health.check()?;
        self.data.cut(u64::from(pages) * self.page_bytes as u64, Cause::Preallocate)?;
        self.flush_data(|data| data.sync(Cause::Preallocate))
    }

    /// The mode in which the data file is open.
    pub fn data_mode(&self) -> EffectiveMode {
        self.data.mode()
    }

    /// Size of the pool, bytes: the frames, and what is kept for deferred changes.
    pub fn bytes(&self) -> u64 {
        self.given_bytes.load(Ordering::Relaxed)
    }

    /// Number of frames.
    pub fn frames(&self) -> u64 {
        self.frames.limit().into()
    }

    /// Sets the limits of the share that is kept for deferred changes once the pool has had to evict, percent.
    pub fn set_deferred_percent(&self, least: u32, most: u32) {
        self.deferred.set_share(least, most);
    }

    /// Changes the size of the pool while it is in use. Growing is immediate; shrinking writes and evicts the pages of
    /// the frames that are retired. No latch may be held.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when `bytes` is too small or beyond what was reserved, or when pages in frames beyond
    /// the new size stay pinned for longer than the pool's patience; a failed write poisons. After an error the size is
    /// as before.
    pub fn set_bytes(&self, bytes: u64) -> Result<()> {
        let name = "pool_size";
        let refused = |why: String| Error::InvalidOption { name: name.into(), value: bytes.to_string(), why };
        let limit = frames_of(bytes, self.page_bytes, name)?;
        if limit > self.frames.max() {
            let most = u64::from(self.frames.max()) * self.page_bytes as u64;
            return Err(refused(format!("at most pool_size_max = {most}, which is set when the database is opened")));
        }
        let _role = self.resizing.take();
        let before = self.given_bytes.swap(bytes, Ordering::Relaxed);
        if self.set_frames() {
            return Ok(());
        }
        let patience = Patience::new(self);
        let outcome = loop {
            match self.retire_frames(true, usize::MAX) {
                Ok(Retired { all: true, .. }) => break Ok(()),
                Ok(_) if patience.nap() => {}
                Ok(_) => break Err(refused("pages beyond that size stay pinned: try again".into())),
                Err(e) => break Err(e),
            }
        };
        if outcome.is_err() {
            self.given_bytes.store(before, Ordering::Relaxed);
            self.set_frames();
        }
        self.give_rest();
        outcome
    }

    /// Divides the pool's size between frames and deferred changes. Returns false if frames must first be retired.
    /// Called with the role of resizing.
    fn set_frames(&self) -> bool {
        let (bytes, page_bytes) = (self.bytes(), self.page_bytes as u64);
        // The frames are never fewer than `FRAMES_MIN`.
        let kept = self.deferred.kept_of(bytes).min(bytes.saturating_sub(FRAMES_MIN * page_bytes));
        let (limit, before) = (((bytes - kept) / page_bytes) as u32, self.frames.limit());
        let grows = limit >= before;
        if !grows {
            self.frames.shrink(limit);
        }
        self.give_rest();
        let held = self.deferred.held_after_trim(kept);
        if held > kept {
            self.deferred.set_unfit();
        }
        if grows {
            // Frames get only the memory that lists have given back.
            let free = (bytes.saturating_sub(held) / page_bytes) as u32;
            let limit = limit.min(free.saturating_sub(self.frames.stay_beyond(limit)));
            if limit > before {
                self.frames.grow(limit);
            }
        }
        grows
    }

    /// Allows lists to use their share, as far as retired frames have given it back.
    fn give_rest(&self) {
        let (bytes, frames) = (self.bytes(), u64::from(self.frames.in_use()) * self.page_bytes as u64);
        self.deferred.set_bytes_max(self.deferred.kept_of(bytes).min(bytes.saturating_sub(frames)));
    }

    /// Evicts the pages of frames beyond the limit, after writing at most `most` of those that must be written. Called
    /// with the role of resizing.
    fn retire_frames(&self, wait: bool, most: usize) -> Result<Retired> {
        self.finish_prefetches(wait);
        let beyond = self.frames.limit()..self.frames.span();
        let drop_pages =
            || beyond.clone().filter_map(|frame| self.claim(frame).or_else(|| self.send_away(frame))).count();
        let mut retired = Retired { frames: drop_pages(), ..Retired::default() };
        retired.all = self.frames.settle();
        if !retired.all {
            retired.written = self.clean_frames(beyond.clone(), most)?;
            retired.frames += drop_pages();
            retired.all = self.frames.settle();
        }
        count(&self.counters.evictions, retired.frames);
        Ok(retired)
    }

    /// Does one step towards the number of frames that the share for deferred changes leaves.
    pub(in crate::buffer) fn fit_frames(&self) -> Result<Retired> {
        if !self.deferred.is_unfit() && self.frames.span() == self.frames.limit() {
            return Ok(Retired::default());
        }
        let Some(_role) = self.resizing.try_take() else { return Ok(Retired::default()) };
        self.deferred.fit();
        self.set_frames();
        let retired = self.retire_frames(false, BATCH);
        self.give_rest();
        retired
    }
}

/// What a step of shrinking the pool did.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::buffer) struct Retired {
    /// Pages written home.
    pub(in crate::buffer) written: usize,
    /// Pages evicted.
    pub(in crate::buffer) frames: usize,
    /// Whether no frame beyond the limit holds a page.
    all: bool,
}
