//! The io_uring backend. This is one of the modules in which `unsafe` is allowed.
//!
//! ```text
//!   submit ──entry──> submission queue ──kernel──> completion queue ──fetch──> short: entry again
//!                                                                         └──> Completer::complete
//! ```
//!
//! 1. A request in flight lives in a `Box` whose address is the entry's `user_data`; it comes back exactly once, from
//!    the completion that carries that address. Its buffers and its iovec array are inside the box or owned by it, so
//!    the kernel's pointers stay valid.
//! 2. The submission queue is accessed only under the mutex `submitting`; the completion queue only by the
//!    one thread that `waiting` lets fetch. Nothing else accesses the ring.
//! 3. At most [`CAPACITY`] requests are in flight, so the completion queue cannot overflow. A request in
//!    flight is in the kernel, in the submission queue that a thread is about to pass to the kernel, or about
//!    to be submitted again: it will complete.
//! 4. Dropping the ring first waits for everything in flight: the kernel may still be writing to the buffers.
//! 5. A request that ends with `ECANCELED` because its submitter ended is submitted again by the thread that
//!    fetched it. The kernel also answers so as long as it can start no thread for the request (RLIMIT_NPROC,
//!    `pids.max`), so after [`CANCELED_MAX`] such answers the thread that fetches runs the request itself.
#![allow(unsafe_code)]

use super::raw;
use super::waiting::{NextStep, Waiting};
use crate::buf::{Arena, IoBuf};
use crate::class::Op;
use crate::disk::{Completer, Completion, Request, RequestKind, SyncHow, Ticket};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::fd::AsRawFd as _;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries of the submission queue; the completion queue has [`CAPACITY`].
const ENTRIES: u32 = 256;
/// Requests that may be in flight at once.
const CAPACITY: u32 = 4096;
/// How often the kernel may cancel a request before it is run without the kernel's threads.
const CANCELED_MAX: u32 = 3;
/// The kernel registers at most this many bytes as one buffer.
const REGISTERED_BYTES_MAX: usize = 1 << 30;

pub(super) struct Uring {
    ring: IoUring,
    submitting: Mutex<()>,
    waiting: Waiting,
    in_flight: AtomicU32,
    arena: Option<Arc<Arena>>,
    cooperative: bool,
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// The boxes are needed: a box's address is the entry's `user_data`, and its contents must not move.
#[allow(clippy::vec_box)]
type Flights = Vec<Box<InFlight>>;

struct InFlight {
    request: Request,
    completer: Completer,
    iovecs: Vec<libc::iovec>,
    canceled: u32,
}

// SAFETY: the raw pointers in `iovecs` point into the buffers that `request` owns and are used by the kernel
// alone.
unsafe impl Send for InFlight {}

impl Uring {
    /// Creates a ring and tests it with one no-op. Registers `arena` if the kernel allows it; the second
    /// value says why not. With `cooperative` (Linux 5.19), completions wait until the submitting thread
    /// enters the kernel, instead of interrupting it.
    pub(super) fn new(arena: Option<Arc<Arena>>, cooperative: bool) -> std::io::Result<(Self, Result<(), String>)> {
        let build = |cooperative: bool| {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(CAPACITY);
            if cooperative {
                builder.setup_coop_taskrun();
            }
            builder.build(ENTRIES)
        };
        let (ring, cooperative) = match build(cooperative) {
            Err(e) if cooperative && e.raw_os_error() == Some(libc::EINVAL) => (build(false)?, false),
            built => (built?, cooperative),
        };
        let mut registered = Err("no arena was given".to_owned());
        if let Some(arena) = &arena {
            registered = register(&ring, arena);
        }
        let arena = arena.filter(|_| registered.is_ok());
        let mut this = Self {
            ring,
            submitting: Mutex::default(),
            waiting: Waiting::default(),
            in_flight: AtomicU32::new(0),
            arena,
            cooperative,
        };
        this.trial()?;
        Ok((this, registered))
    }

    fn trial(&mut self) -> std::io::Result<()> {
        let mut known = Probe::new();
        self.ring.submitter().register_probe(&mut known)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
        ];
        if !needed.iter().all(|&code| known.is_supported(code)) {
            return Err(std::io::Error::other("this kernel's io_uring lacks operations that files need (Linux 5.6)"));
        }
        // SAFETY: a no-op refers to no memory.
        unsafe { self.ring.submission().push(&opcode::Nop::new().build()) }.map_err(std::io::Error::other)?;
        self.ring.submit_and_wait(1)?;
        match self.ring.completion().next() {
            Some(entry) if entry.result() >= 0 => Ok(()),
            Some(entry) => Err(std::io::Error::from_raw_os_error(-entry.result())),
            None => Err(std::io::Error::other("a no-op did not complete")),
        }
    }

    fn submitting(&self) -> MutexGuard<'_, ()> {
        self.submitting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(&self, batch: Vec<Request>) -> Vec<Ticket> {
        let mut tickets = Vec::with_capacity(batch.len());
        let mut rest = batch.into_iter().peekable();
        while rest.peek().is_some() {
            while self.in_flight.load(Ordering::Acquire) >= CAPACITY {
                self.drive(true);
            }
            let guard = self.submitting();
            let room = CAPACITY.saturating_sub(self.in_flight.load(Ordering::Acquire)) as usize;
            for mut request in rest.by_ref().take(room) {
                let (ticket, completer) = Ticket::new();
                tickets.push(ticket);
                if let Some(errno) = raw::refusal(&request) {
                    // Complete the request here, before it is counted as in flight: no thread may wait in the
                    // kernel for a request that never reaches it.
                    let result = request.attempt_ended(errno).unwrap_or(Ok(()));
                    completer.complete(Completion { result, bufs: request.bufs });
                    continue;
                }
                request.done = request.done.min(request.len());
                self.in_flight.fetch_add(1, Ordering::AcqRel);
                self.push(Box::new(InFlight { request, completer, iovecs: Vec::new(), canceled: 0 }), &guard);
            }
            self.enter(&guard);
        }
        tickets
    }

    /// Puts one request into the submission queue, making room as needed.
    fn push(&self, mut flight: Box<InFlight>, guard: &MutexGuard<'_, ()>) {
        let entry = entry(&mut flight, self.arena.as_deref()).user_data(Box::into_raw(flight) as u64);
        loop {
            // SAFETY: `guard` shows that this thread holds `submitting`, the only way to the submission queue
            // (invariant 2).
            let mut queue = unsafe { self.ring.submission_shared() };
            // SAFETY: the entry's memory is owned by the box that was just leaked into `user_data` (invariant
            // 1).
            let pushed = unsafe { queue.push(&entry) };
            drop(queue);
            if pushed.is_ok() {
                return;
            }
            self.enter(guard);
        }
    }

    /// Passes the whole submission queue to the kernel.
    fn enter(&self, guard: &MutexGuard<'_, ()>) {
        loop {
            match self.ring.submit() {
                // The kernel stops after an entry that it refuses, and may take fewer entries than there are.
                // An entry left in the queue would never complete, and its waiter would wait forever.
                Ok(_) => {
                    // SAFETY: as in `push`: `guard` shows that this thread holds `submitting`.
                    if unsafe { self.ring.submission_shared() }.is_empty() {
                        return;
                    }
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR)) => {}
                // The kernel is short of memory or of completion slots: fetching completions makes room.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) => {
                    if self.waiting.try_fetch() {
                        let again = self.fetch(false).1;
                        self.waiting.fetched();
                        self.push_all(again, guard);
                    }
                    std::thread::yield_now();
                }
                // EBADF, EFAULT, EINVAL, EOPNOTSUPP, ENXIO: the ring itself is unusable, which is our own
                // mistake.
                Err(e) => panic!("io_uring_enter refused a ring that it had accepted: {e}"),
            }
        }
    }

    fn push_all(&self, again: Flights, guard: &MutexGuard<'_, ()>) {
        for flight in again {
            self.push(flight, guard);
        }
    }

    /// Fetches completions from the kernel; with `block`, waits for at least one. Returns the number of
    /// requests completed, and those to submit again. The caller must be the one thread that `waiting` lets
    /// fetch.
    fn fetch(&self, block: bool) -> (usize, Flights) {
        let mut completed = 0;
        let mut again = Flights::new();
        let mut asked = false;
        loop {
            // SAFETY: the caller is the only thread that fetches, and only that thread accesses the
            // completion queue (invariant 2).
            let queue = unsafe { self.ring.completion_shared() };
            for entry in queue {
                // SAFETY: every entry's user_data is a box leaked by `push`, and each comes back once
                // (invariant 1).
                let mut flight = unsafe { Box::from_raw(entry.user_data() as *mut InFlight) };
                flight.canceled += u32::from(entry.result() == -libc::ECANCELED);
                let ended = flight.request.attempt_ended(i64::from(entry.result()));
                if ended.is_none() && flight.canceled < CANCELED_MAX {
                    again.push(flight);
                    continue;
                }
                let InFlight { request, completer, .. } = *flight;
                let completion = match ended {
                    Some(result) => Completion { result, bufs: request.bufs },
                    None => raw::run(request),
                };
                self.in_flight.fetch_sub(1, Ordering::AcqRel);
                completer.complete(completion);
                completed += 1;
            }
            // A cooperative ring shows completions only when a thread enters the kernel: enter once even
            // without waiting.
            let wait = block || (self.cooperative && !asked);
            if completed > 0 || !again.is_empty() || !wait || self.in_flight.load(Ordering::Acquire) == 0 {
                return (completed, again);
            }
            asked = true;
            // SAFETY: no submission (0 entries) and no argument memory; only waits for one completion, or for
            // none.
            let waited = unsafe {
                self.ring.submitter().enter::<()>(0, u32::from(block), 1 /* IORING_ENTER_GETEVENTS */, None)
            };
            match waited {
                Ok(_) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(e) => panic!("io_uring_enter refused to wait: {e}"),
            }
        }
    }

    /// Fetches once, lets another thread fetch, and submits unfinished requests again.
    fn fetch_once(&self, block: bool) -> usize {
        let (completed, again) = self.fetch(block);
        self.waiting.fetched();
        if !again.is_empty() {
            let guard = self.submitting();
            self.push_all(again, &guard);
            self.enter(&guard);
        }
        completed
    }

    pub(super) fn drive(&self, block: bool) -> usize {
        if !block {
            return if self.waiting.try_fetch() { self.fetch_once(false) } else { 0 };
        }
        match self.waiting.wait_or_fetch(true, || self.in_flight.load(Ordering::Acquire) == 0) {
            NextStep::Satisfied => 0,
            NextStep::Fetch => self.fetch_once(true),
        }
    }

    pub(super) fn wait(&self, ticket: &Ticket) -> Completion {
        loop {
            match self.waiting.wait_or_fetch(false, || ticket.is_done()) {
                NextStep::Satisfied => return ticket.take().expect("a completion is taken once"),
                NextStep::Fetch => {
                    self.fetch_once(!ticket.is_done());
                }
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        while self.in_flight.load(Ordering::Acquire) > 0 {
            self.drive(true);
        }
    }
}

/// Registers the arena's memory as fixed buffers of at most a gigabyte each.
fn register(ring: &IoUring, arena: &Arena) -> Result<(), String> {
    let (start, len) = arena.extent();
    let iovecs: Vec<libc::iovec> = (0..len)
        .step_by(REGISTERED_BYTES_MAX)
        .map(|at| libc::iovec {
            iov_base: start.wrapping_add(at).cast(),
            iov_len: (len - at).min(REGISTERED_BYTES_MAX),
        })
        .collect();
    // SAFETY: the memory belongs to the arena, which the ring's owner keeps alive (`Uring::arena`) until the
    // ring is closed.
    unsafe { ring.submitter().register_buffers(&iovecs) }.map_err(|e| match e.raw_os_error() {
        Some(libc::ENOMEM) => format!("{len} bytes exceed RLIMIT_MEMLOCK (ulimit -l)"),
        _ => e.to_string(),
    })
}

/// Returns the index of the registered buffer that holds all of `buf`, if `buf` is from the arena and does
/// not straddle two.
fn registered_index(buf: &IoBuf, arena: Option<&Arena>) -> Option<u16> {
    let arena = arena.filter(|a| buf.is_from(a))?;
    let at = buf.as_ptr() as usize - arena.extent().0 as usize;
    let (first, last) = (at / REGISTERED_BYTES_MAX, (at + buf.len() - 1) / REGISTERED_BYTES_MAX);
    (first == last).then(|| u16::try_from(first).ok()).flatten()
}

/// Returns the submission entry for the rest of a request that `raw::refusal` accepted.
fn entry(flight: &mut InFlight, arena: Option<&Arena>) -> squeue::Entry {
    let request = &mut flight.request;
    let fd = types::Fd(request.file.fd(Op::Inspect).map_or(-1, |fd| fd.as_raw_fd()));
    let offset = request.offset + request.done as u64;
    match (request.kind, request.bufs.as_mut_slice()) {
        (RequestKind::Sync(SyncHow::Data), _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        (RequestKind::Sync(SyncHow::All), _) => opcode::Fsync::new(fd).build(),
        (RequestKind::Read, [one]) => {
            let index = registered_index(one, arena);
            let rest = &mut one[request.done..];
            let len = u32::try_from(rest.len()).unwrap_or(1 << 30);
            match index {
                Some(index) => opcode::ReadFixed::new(fd, rest.as_mut_ptr(), len, index).offset(offset).build(),
                None => opcode::Read::new(fd, rest.as_mut_ptr(), len).offset(offset).build(),
            }
        }
        (RequestKind::Write(how), [one]) => {
            let flags = raw::flags(how).bits() as i32;
            let index = registered_index(one, arena);
            let rest = &one[request.done..];
            let len = u32::try_from(rest.len()).unwrap_or(1 << 30);
            match index {
                Some(index) => {
                    opcode::WriteFixed::new(fd, rest.as_ptr(), len, index).offset(offset).rw_flags(flags).build()
                }
                None => opcode::Write::new(fd, rest.as_ptr(), len).offset(offset).rw_flags(flags).build(),
            }
        }
        (kind, many) => {
            let mut skip = request.done;
            flight.iovecs.clear();
            for buf in many {
                let here = skip.min(buf.len());
                skip -= here;
                if here < buf.len() && flight.iovecs.len() < raw::IOV_MAX {
                    let rest = &mut buf[here..];
                    flight.iovecs.push(libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() });
                }
            }
            let (start, len) = (flight.iovecs.as_ptr(), flight.iovecs.len() as u32);
            match kind {
                RequestKind::Write(how) => {
                    opcode::Writev::new(fd, start, len).offset(offset).rw_flags(raw::flags(how).bits() as i32).build()
                }
                _ => opcode::Readv::new(fd, start, len).offset(offset).build(),
            }
        }
    }
}
