//! Reads the log in order and ahead of need, so that recovery keeps the disk and the processor busy at the
//! same time.
//!
//! 1. Each read is a whole chunk between multiples of the chunk's size; the first of a sequence may be shorter. No read
//!    crosses a segment's end.
//! 2. A read at any other than the next position begins a new sequence. The reads in flight of the old one are dropped.
//! 3. No read outlives its [`ReadAhead`]: a read in flight would keep its segment open, and so locked, even after the
//!    database is closed.

use super::shelf::Shelf;
use crate::error::Result;
use seawall_io::{AlignedBuf, Cause, File, FileRequest, IoBuf, Pending};
use std::collections::VecDeque;
use std::sync::Arc;

/// Reads in flight.
const DEPTH: usize = 4;

/// A read in flight.
#[derive(Debug)]
struct ReadInFlight {
    at: u64,
    len: usize,
    file: Arc<File>,
    pending: Pending,
}

/// The reads in flight, in order and without gaps.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    queue: VecDeque<ReadInFlight>,
    /// Buffers of a whole chunk each.
    spare: Vec<IoBuf>,
}

/// The segments that a log reader may read.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogSegments<'a> {
    pub(super) shelf: &'a Shelf,
    pub(super) segment_bytes: u64,
    /// No segment holds anything from here on.
    pub(super) end: u64,
    /// Bytes of a read; a power of two.
    pub(super) chunk: u64,
}

impl LogSegments<'_> {
    /// Returns the length of a read at `at`.
    pub(super) fn len_at(&self, at: u64) -> usize {
        let chunk = self.chunk.min(self.segment_bytes);
        (chunk - at % chunk).min(self.end.saturating_sub(at)) as usize
    }
}

impl ReadAhead {
    /// Reads the bytes from `at` on, [`LogSegments::len_at`] of them, into the front of `into`.
    ///
    /// # Errors
    /// The I/O error.
    pub(super) fn read(&mut self, segments: LogSegments<'_>, at: u64, into: &mut [u8]) -> Result<usize> {
        if self.queue.front().is_none_or(|ahead| ahead.at != at) {
            self.forget();
        }
        self.ask(segments, at)?;
        let Some(ReadInFlight { len, file, pending, .. }) = self.queue.pop_front() else { return Ok(0) };
        let mut bufs = file.wait(pending)?;
        if let Some(buf) = bufs.pop() {
            into[..len].copy_from_slice(&buf);
            if len as u64 == segments.chunk.min(segments.segment_bytes) {
                self.spare.push(buf);
            }
        }
        Ok(len)
    }

    /// Waits for the reads that are no longer needed.
    fn forget(&mut self) {
        for ReadInFlight { file, pending, .. } in self.queue.drain(..) {
            // The result does not matter.
            drop(file.wait(pending));
        }
    }

    /// Fills the queue, which begins at `at`.
    fn ask(&mut self, segments: LogSegments<'_>, at: u64) -> Result<()> {
        let mut next = self.queue.back().map_or(at, |last| last.at + last.len as u64);
        while self.queue.len() < DEPTH && next < segments.end {
            let len = segments.len_at(next);
            let whole = len as u64 == segments.chunk.min(segments.segment_bytes);
            let buf = if whole { self.spare.pop() } else { None };
            let buf = buf.unwrap_or_else(|| AlignedBuf::zeroed(len).into());
            let file = segments.shelf.get(next / segments.segment_bytes)?;
            let offset = next % segments.segment_bytes;
            let request = FileRequest { write: false, offset, bufs: vec![buf], cause: Cause::Recovery };
            let pending = file.submit(vec![request])?.pop().expect("one for each request");
            self.queue.push_back(ReadInFlight { at: next, len, file, pending });
            next += len as u64;
        }
        Ok(())
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.forget();
    }
}
