//! Changing the size of the data file and of the pool.

use super::{Patience, Pool, frames_of};
use crate::buffer::unfinished::Unfinished;
use crate::error::{Error, Result};
use seawall_io::{Allocate, Cause};

impl Pool {
    /// Makes the data file `pages` pages long, durably; never shorter. No latch may be held.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the disk is full: nothing has changed. The disk's refusal; a failed flush
    /// poisons the database.
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
            // No fallocate here: writing the last page extends the file, and a full disk shows when the pages
            // between are written.
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
        self.data.sync(Cause::Preallocate).map_err(|e| self.health.poison(e.into()))?;
        unfinished.done();
        Ok(())
    }

    /// Cuts the data file to `pages` pages, durably; never makes it longer. No page beyond may be dirty,
    /// being written, or named by log after the checkpoint. No latch may be held.
    ///
    /// # Errors
    /// The disk's refusal: the file stays as long as it was; a failed flush poisons the database.
    pub fn cut_file(&self, pages: u32) -> Result<()> {
        self.health.check()?;
        self.data.cut(u64::from(pages) * self.page_bytes as u64, Cause::Preallocate)?;
        self.data.sync(Cause::Preallocate).map_err(|e| self.health.poison(e.into()))
    }

    /// Size of the pool, bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.frames.limit()) * self.page_bytes as u64
    }

    /// Changes the size of the pool while it is used. Growing is done at once; shrinking writes and drops the
    /// pages of the frames that go. No latch may be held.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when `bytes` is too small or beyond what was reserved, or when pages beyond
    /// the new size stayed pinned for longer than the pool's patience (they go as soon as they are unpinned).
    /// A failed write poisons.
    pub fn set_bytes(&self, bytes: u64) -> Result<()> {
        let name = "pool_size";
        let refused = |why: String| Error::InvalidOption { name: name.into(), value: bytes.to_string(), why };
        let limit = frames_of(bytes, self.page_bytes, name)?;
        if limit > self.frames.max() {
            let most = u64::from(self.frames.max()) * self.page_bytes as u64;
            return Err(refused(format!("at most pool_size_max = {most}, which is set when the database is opened")));
        }
        let _role = self.resizing.take();
        if limit >= self.frames.limit() {
            self.frames.grow(limit);
            return Ok(());
        }
        self.frames.shrink(limit);
        let patience = Patience::new(self);
        loop {
            self.finish_prefetches(true);
            for frame in limit..self.frames.span() {
                drop(self.claim(frame));
            }
            if self.frames.settle() {
                return Ok(());
            }
            if self.clean_frames(limit..self.frames.span())? == 0 && !patience.nap() {
                return Err(refused("pages beyond that size are pinned; they go as soon as they are let go".into()));
            }
        }
    }
}
