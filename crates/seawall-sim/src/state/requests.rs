//! Asynchronous requests: they wait in the queue, and take effect when they are due.

use super::{About, Errno, State, error, joined};
use crate::fault::FaultKind;
use crate::queue::{ATTEMPTS_MAX, InFlight};
use crate::trace::Call;
use seawall_io::{Completion, IoError, Request, RequestKind};
use std::time::Duration;

impl State {
    pub(crate) fn submit(&mut self, one: InFlight) {
        let call = request_call(&one.request);
        let least = self.least_time(call);
        // A random delay of up to three times the minimum latency lets requests overtake each other.
        let extra = Duration::from_nanos(self.rng.below(3 * u64::try_from(least.as_nanos()).unwrap_or(u64::MAX / 3)));
        let due = self.now + self.options.latency.draw(least, &mut self.rng) + extra;
        self.queue.push(due.max(self.now + Duration::from_nanos(1)), one);
    }

    /// Lets every request and late write take effect that is due now.
    pub(crate) fn run_due(&mut self) {
        while let Some(one) = self.queue.pop_due(self.now) {
            self.run(one);
        }
    }

    /// Advances the clock to the next request and lets one attempt at it take effect; returns false if
    /// nothing is in flight.
    pub(crate) fn run_next(&mut self) -> bool {
        let Some(due) = self.queue.next_due() else { return false };
        self.now = self.now.max(due);
        if let Some(one) = self.queue.pop_due(self.now) {
            self.run(one);
        }
        true
    }

    fn run(&mut self, one: InFlight) {
        let InFlight { mut request, completer, futile } = one;
        let answer = self.attempt_request(&mut request);
        let futile = if answer < 0 { futile + 1 } else { 0 };
        let result = match request.attempt_ended(answer) {
            None if futile < ATTEMPTS_MAX => return self.submit(InFlight { request, completer, futile }),
            None => Err(request_error(&request, Errno(i32::try_from(-answer).unwrap_or(libc::EIO)))),
            Some(result) => result,
        };
        self.queue.ready.push((completer, Completion { result, bufs: request.bufs }));
    }

    fn attempt_request(&mut self, request: &mut Request) -> i64 {
        let Some(id) = request.file.simulated_id() else { return -i64::from(libc::EBADF) };
        let path = request.file.path().to_owned();
        let about = About {
            call: request_call(request),
            path: &path,
            offset: request.offset + request.done as u64,
            len: (request.len() - request.done) as u64,
            asynchronous: true,
        };
        let answer = self.attempt(about, |state, fault| {
            if fault == Some(FaultKind::Cancelled) {
                return Err(Errno(libc::ECANCELED));
            }
            match request.kind {
                RequestKind::Sync(how) => state.sync(id, how, fault),
                RequestKind::Write(how) => state.write(id, about.offset, &rest(request), how, fault),
                RequestKind::Read => {
                    let mut bytes = rest(request);
                    let answer = state.read(id, about.offset, &mut bytes, fault);
                    if let Ok(((), moved)) = answer {
                        fill(request, &bytes[..moved as usize]);
                    }
                    answer
                }
            }
        });
        match answer {
            Ok(((), moved)) => moved as i64,
            Err(Errno(errno)) => -i64::from(errno),
        }
    }
}

/// Returns the error of a whole request.
pub(super) fn request_error(request: &Request, errno: Errno) -> IoError {
    let (path, len) = (request.file.path(), request.len() as u64);
    let about = About { call: request_call(request), path, offset: request.offset, len, asynchronous: true };
    error(about, errno)
}

fn request_call(request: &Request) -> Call {
    match request.kind {
        RequestKind::Read => Call::Read,
        RequestKind::Write(how) if how.dsync => Call::DurableWrite,
        RequestKind::Write(_) => Call::Write,
        RequestKind::Sync(_) => Call::Sync,
    }
}

/// Returns the bytes that a request still has to transfer.
pub(super) fn rest(request: &Request) -> Vec<u8> {
    joined(request.bufs.iter().map(|buf| &**buf), request.done)
}

/// Copies bytes to the buffers from where the request continues.
fn fill(request: &mut Request, mut bytes: &[u8]) {
    let mut skip = request.done;
    for buf in &mut request.bufs {
        let start = skip.min(buf.len());
        skip -= start;
        let len = (buf.len() - start).min(bytes.len());
        buf[start..start + len].copy_from_slice(&bytes[..len]);
        bytes = &bytes[len..];
    }
}
