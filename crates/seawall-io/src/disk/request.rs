//! Asynchronous requests: the request, the submitter's ticket, and the completion that the backend stores for the
//! ticket.

use super::{Handle, SyncHow, WriteHow};
use crate::buf::IoBuf;
use crate::class::Op;
use crate::error::{IoError, IoErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// What an asynchronous request does.
///
/// ```
/// use seawall_io::{AlignedBuf, Handle, Request, RequestKind};
/// let read = Request::read(&Handle::simulated("data".as_ref(), 1), 0, AlignedBuf::zeroed(4096).into());
/// assert_eq!(read.kind, RequestKind::Read);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// Fill the buffers from the file.
    Read,
    /// Write the buffers to the file.
    Write(WriteHow),
    /// Make completed writes durable; no buffers.
    Sync(SyncHow),
}

/// An asynchronous request. It owns its buffers.
///
/// ```
/// use seawall_io::{AlignedBuf, Disk, OpenHow, OsDisk, Request};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// std::fs::write(&path, [[1; 4096], [2; 4096]].concat())?;
/// let disk = OsDisk::synchronous();
/// let file = disk.open(&path, OpenHow::default())?;
/// let batch = [4096, 0].map(|offset| Request::read(&file, offset, AlignedBuf::zeroed(4096).into()));
/// let tickets = disk.submit(batch.into());
/// let first_bytes: Vec<u8> = tickets.iter().map(|t| disk.wait(t).bufs[0][0]).collect();
/// assert_eq!(first_bytes, [2, 1], "in the order asked, whatever completed first");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Request {
    /// The file.
    pub file: Handle,
    /// What to do.
    pub kind: RequestKind,
    /// Offset of the first byte, bytes.
    pub offset: u64,
    /// The memory, in order.
    pub bufs: Vec<IoBuf>,
    /// Bytes already transferred by earlier, short attempts; initially 0.
    pub done: usize,
}

impl Request {
    /// Creates a read that fills `buf`.
    ///
    /// ```
    /// # use seawall_io::{AlignedBuf, Handle, Request};
    /// # let file = Handle::simulated("data".as_ref(), 1);
    /// assert_eq!(Request::read(&file, 0, AlignedBuf::zeroed(16384).into()).len(), 16384);
    /// ```
    #[must_use]
    pub fn read(file: &Handle, offset: u64, buf: IoBuf) -> Self {
        Self { file: file.clone(), kind: RequestKind::Read, offset, bufs: vec![buf], done: 0 }
    }

    /// Creates a write of all of `bufs`.
    ///
    /// ```
    /// # use seawall_io::{AlignedBuf, Handle, Request, WriteHow};
    /// # let log = Handle::simulated("log".as_ref(), 1);
    /// // One write of a group's blocks, which lie apart in memory.
    /// let blocks = (0..3).map(|_| AlignedBuf::zeroed(4096).into()).collect();
    /// assert_eq!(Request::write(&log, 0, blocks, WriteHow::default()).len(), 3 * 4096);
    /// ```
    #[must_use]
    pub fn write(file: &Handle, offset: u64, bufs: Vec<IoBuf>, how: WriteHow) -> Self {
        Self { file: file.clone(), kind: RequestKind::Write(how), offset, bufs, done: 0 }
    }

    /// Creates a sync.
    ///
    /// ```
    /// # use seawall_io::{Handle, Request, SyncHow};
    /// # let log = Handle::simulated("log".as_ref(), 1);
    /// assert!(Request::sync(&log, SyncHow::Data).is_empty(), "nothing to transfer");
    /// ```
    #[must_use]
    pub fn sync(file: &Handle, how: SyncHow) -> Self {
        Self { file: file.clone(), kind: RequestKind::Sync(how), offset: 0, bufs: Vec::new(), done: 0 }
    }

    /// Returns the total number of bytes to transfer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bufs.iter().map(IoBuf::len).sum()
    }

    /// Returns whether there is nothing to transfer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the operation, for errors and counters.
    #[must_use]
    pub fn op(&self) -> Op {
        match self.kind {
            RequestKind::Read => Op::Read,
            RequestKind::Write(how) if how.dsync => Op::DurableWrite,
            RequestKind::Write(_) => Op::Write,
            RequestKind::Sync(_) => Op::Sync,
        }
    }

    /// Processes the kernel's answer to one attempt (bytes, or a negative errno): returns `None` when another
    /// attempt is needed for the rest, `Some` when the request is finished. Every backend calls this
    /// function, so that all treat short transfers, interruptions and cancelled submitters alike.
    ///
    /// ```
    /// use seawall_io::{AlignedBuf, Handle, IoErrorKind, Request};
    /// let file = Handle::simulated("log".as_ref(), 1);
    /// let mut read = Request::read(&file, 0, AlignedBuf::zeroed(8192).into());
    /// assert!(read.attempt_ended(4096).is_none(), "short: go on");
    /// assert!(read.attempt_ended(-4).is_none(), "interrupted: go on");
    /// assert_eq!(read.done, 4096);
    /// let error = read.attempt_ended(0).unwrap().unwrap_err();
    /// assert_eq!(error.kind, IoErrorKind::UnexpectedEof { got: 4096 });
    /// ```
    pub fn attempt_ended(&mut self, answer: i64) -> Option<Result<()>> {
        let len = self.len();
        let error = |kind| IoError {
            offset: Some(self.offset),
            len: Some(len as u64),
            ..IoError::new(self.op(), self.file.path(), kind)
        };
        // ECANCELED: the submitting thread ended before the request did. That is not an error of the disk: try
        // again from this thread.
        const AGAIN: [i64; 3] = [-(libc::EINTR as i64), -(libc::EAGAIN as i64), -(libc::ECANCELED as i64)];
        if AGAIN.contains(&answer) {
            return None;
        }
        // A direct read stops inside a block only at the end of the file, and some file systems refuse to
        // continue there.
        if answer == -i64::from(libc::EINVAL)
            && self.kind == RequestKind::Read
            && self.done % crate::BUFFER_ALIGN != 0
            && self.done < len
        {
            return Some(Err(error(IoErrorKind::UnexpectedEof { got: self.done as u64 })));
        }
        if answer < 0 {
            return Some(Err(error(IoErrorKind::Os(i32::try_from(-answer).unwrap_or(libc::EIO)))));
        }
        let moved = usize::try_from(answer).unwrap_or(usize::MAX);
        if matches!(self.kind, RequestKind::Sync(_)) {
            return Some(Ok(()));
        }
        if moved == 0 && self.done < len {
            return Some(Err(match self.kind {
                RequestKind::Read => error(IoErrorKind::UnexpectedEof { got: self.done as u64 }),
                _ => error(IoErrorKind::NoProgress),
            }));
        }
        self.done = self.done.saturating_add(moved).min(len);
        (self.done == len).then_some(Ok(()))
    }
}

/// A finished request.
///
/// ```
/// use seawall_io::{AlignedBuf, Disk, OpenHow, OsDisk, Request};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// std::fs::write(&path, [1; 100])?;
/// let disk = OsDisk::synchronous();
/// let file = disk.open(&path, OpenHow::default())?;
/// let tickets = disk.submit(vec![Request::read(&file, 0, AlignedBuf::zeroed(4096).into())]);
/// let done = disk.wait(&tickets[0]);
/// assert!(done.result.is_err(), "the file is shorter");
/// assert_eq!(done.bufs[0].len(), 4096, "the buffer is returned, too");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Completion {
    /// Whether all bytes were transferred.
    pub result: Result<()>,
    /// The request's buffers, returned.
    pub bufs: Vec<IoBuf>,
}

/// The submitter's side of a request in flight. Dropping it discards the result but does not cancel the request.
///
/// ```
/// use seawall_io::{Disk, OsDisk, Request, SyncHow};
/// # use seawall_io::{Create, OpenHow};
/// # let dir = tempfile::tempdir()?;
/// # let disk = OsDisk::synchronous();
/// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
/// # let log = disk.open(&dir.path().join("log"), how)?;
/// let tickets = disk.submit(vec![Request::sync(&log, SyncHow::Data)]);
/// while !tickets[0].is_done() {
///     disk.drive(true);
/// }
/// tickets[0].take().expect("it is done").result?;
/// assert!(tickets[0].take().is_none(), "a completion is there once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ticket {
    slot: Arc<Slot>,
}

/// Holds the completion for its ticket.
#[derive(Debug, Default)]
struct Slot {
    done: AtomicBool,
    at: OnceLock<Instant>,
    completion: Mutex<Option<Completion>>,
}

impl Ticket {
    /// Creates a ticket and its completer, for implementations of [`super::Disk`].
    ///
    /// ```
    /// let (ticket, _completer) = seawall_io::Ticket::new();
    /// assert!(!ticket.is_done());
    /// ```
    #[must_use]
    pub fn new() -> (Self, Completer) {
        let slot = Arc::new(Slot::default());
        (Self { slot: slot.clone() }, Completer { slot })
    }

    /// Returns whether the request is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.slot.done.load(Ordering::Acquire)
    }

    /// Returns when this process learned that the request was done, which may be long before a thread waits for
    /// it.
    pub(crate) fn done_at(&self) -> Option<Instant> {
        self.slot.at.get().copied()
    }

    /// Takes the completion if the request is done; returns it only once.
    #[must_use]
    pub fn take(&self) -> Option<Completion> {
        if !self.is_done() {
            return None;
        }
        self.slot.completion.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Completes one [`Ticket`].
///
/// ```
/// use seawall_io::{Completion, Ticket};
/// let (ticket, completer) = Ticket::new();
/// std::thread::spawn(|| completer.complete(Completion { result: Ok(()), bufs: vec![] })).join().unwrap();
/// assert!(ticket.take().unwrap().result.is_ok());
/// ```
#[derive(Debug)]
pub struct Completer {
    slot: Arc<Slot>,
}

impl Completer {
    /// Stores the completion for the ticket.
    pub fn complete(self, completion: Completion) {
        self.slot.at.get_or_init(Instant::now);
        *self.slot.completion.lock().unwrap_or_else(PoisonError::into_inner) = Some(completion);
        self.slot.done.store(true, Ordering::Release);
    }
}
